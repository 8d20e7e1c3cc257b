/* scan.h: the cursor of SCAN, HSCAN, SSCAN and ZSCAN; and a scan of keys, for SCAN and CLUSTERSCAN.
 *
 *     if (!scan_options_read(call, &scan, true)) return;
 *     scan_begin(call, &scan);
 *     cursor = scan_slots(call, &scan, slot, cursor);      once or more often
 *     scan_end(call, &scan, text); */
#pragma once
#include "server/command/command.h"
/* Parses a cursor; false: the caller replies with "ERR invalid cursor". */
bool scan_cursor_parse(struct slice text, uint64_t *cursor);

struct scan {
    struct slice pattern;
    bool match;
    int type;                               /* -1: any */
    const struct extension_type *extension; /* of TYPE_EXTENSION */
    int slot;                               /* SLOT; -1: not given */
    int64_t count;                          /* elements to visit */
    /* private */
    struct reply *reply;
    struct memory_output memory;
    struct output *outer;
    uint64_t steps;
    size_t sampled, found;
    struct slice *expired; /* copies of expired keys */
    size_t expired_count, expired_capacity;
};
/* Reads the options from argv[2] on. False: replied with an error. */
bool scan_options_read(struct call *call, struct scan *scan, bool slot_allowed);
/* From here on only scan_slots() may be called, until scan_end(). */
void scan_begin(struct call *call, struct scan *scan);
/* Visits keys of a slot, or of all (-1), until enough were seen. Returns the cursor to go on with; 0: at the end. */
uint64_t scan_slots(struct call *call, struct scan *scan, int slot, uint64_t cursor);
static inline bool scan_is_full(const struct scan *scan) {
    return scan->sampled >= (uint64_t)scan->count || scan->steps == 0;
}
void scan_end(struct call *call, struct scan *scan, struct slice cursor); /* replies */
