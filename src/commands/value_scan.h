/* value_scan.h: what HSCAN, SSCAN and ZSCAN share: cursor, options, the reply.
 *
 * A command reads the cursor, finds its key, reads the options (a missing key is not asked for them), lets
 * value_scan_run call its function for each bucket of the value, and that function shows elements with value_scan_wants
 * and replies to scan->reply. */
#ifndef COMMANDS_VALUE_SCAN_H
#define COMMANDS_VALUE_SCAN_H
#include "server/command/command.h"

struct value_scan {
    struct reply *reply;
    struct slice pattern;
    bool match, names_only;
    int64_t count;
    size_t sampled, replied;
    struct memory_output memory;
};
/* argv[2] into *cursor, and the entry of argv[1], which has that type. False: all is replied. */
bool value_scan_find(struct call *call, enum value_type type, uint64_t *cursor, struct entry **entry);
/* From argv[3] on; `allowed` is what the type adds, 0: nothing. False: the error is replied. */
enum value_scan_option { SCAN_NO_VALUES = 1, SCAN_NO_SCORES = 2 };
bool value_scan_options(struct call *call, struct value_scan *scan, unsigned allowed);
/* Counts an element, and tells whether it is to be replied; then `parts` elements of the reply follow. */
bool value_scan_wants(struct value_scan *scan, struct slice name, size_t parts);
/* Calls `step`, which returns the next cursor, until enough was seen, and replies. */
void value_scan_run(struct call *call, struct value_scan *scan, uint64_t cursor, const struct entry *entry,
                    uint64_t (*step)(const struct entry *entry, uint64_t cursor, struct value_scan *scan));
#endif
