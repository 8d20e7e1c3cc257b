/* scan.h: the cursor of SCAN, HSCAN, SSCAN and ZSCAN. */
#ifndef COMMANDS_SCAN_H
#define COMMANDS_SCAN_H
#include "lib/text/slice.h"
#include <stdint.h>
/* Parses a cursor; false: the caller replies with "ERR invalid cursor". */
bool scan_cursor_parse(struct slice text, uint64_t *cursor);
#endif
