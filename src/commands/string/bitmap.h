/* bitmap.h: functions shared by bitmap.c and bitfield.c. */
#pragma once
#include "commands/lookup.h"

/* Reads argument `index` as a bit offset. With a width, "#N" is the offset of the Nth integer of that width. False:
 * replied with an error. */
bool argument_bit_offset(struct call *call, int index, unsigned width, uint64_t *offset);
/* Returns the string's bytes for writing, at least `len` of them, zero-filled. Creates the entry if it is NULL, and
 * notifies "new". The encoding becomes raw. The caller calls db_changed() after a change. */
char *bitmap_edit(struct call *call, struct slice key, struct entry *entry, size_t len);
