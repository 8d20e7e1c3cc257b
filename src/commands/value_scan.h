/* value_scan.h: the common part of HSCAN, SSCAN and ZSCAN: cursor, options, reply.
 *
 * A command reads the cursor, finds its key and reads the options (which are ignored for a missing key).
 * value_scan_run() then calls the command's function for each bucket of the value; that function filters elements with
 * value_scan_wants() and replies to scan->reply. */
#pragma once
#include "server/command/command.h"

struct value_scan {
    struct reply *reply;
    struct slice pattern;
    bool match, names_only;
    int64_t count;
    size_t sampled, replied;
    struct memory_output memory;
};
/* Reads argv[2] into *cursor and finds the entry of argv[1], which must have that type. False: already replied. */
bool value_scan_find(struct call *call, enum value_type type, uint64_t *cursor, struct entry **entry);
/* Reads the options from argv[3] on; `allowed`: additional options of the type, 0: none. False: replied with an error.
 */
enum value_scan_option { SCAN_NO_VALUES = 1, SCAN_NO_SCORES = 2 };
bool value_scan_options(struct call *call, struct value_scan *scan, unsigned allowed);
/* Counts an element and returns true if it matches; then `parts` reply elements must follow. */
bool value_scan_wants(struct value_scan *scan, struct slice name, size_t parts);
/* Calls `step`, which returns the next cursor, until enough elements were visited; then replies. */
void value_scan_run(struct call *call, struct value_scan *scan, uint64_t cursor, const struct entry *entry,
                    uint64_t (*step)(const struct entry *entry, uint64_t cursor, struct value_scan *scan));
