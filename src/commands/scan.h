/* scan.h: what SCAN, HSCAN, SSCAN and ZSCAN share. */
#ifndef COMMANDS_SCAN_H
#define COMMANDS_SCAN_H
#include "lib/slice.h"
#include <stdint.h>
/* Reads a cursor; false: "ERR invalid cursor" is due. */
bool scan_cursor_parse(struct slice text, uint64_t *cursor);
#endif
