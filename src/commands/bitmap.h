/* bitmap.h: what bitmap.c and bitfield.c share. */
#ifndef COMMANDS_BITMAP_H
#define COMMANDS_BITMAP_H
#include "commands/lookup.h"

/* Argument `index` as the number of a bit. With a width, "#N" means the bit at which the Nth number of that width
 * begins. False: the error is replied. */
bool argument_bit_offset(struct call *call, int index, unsigned width, uint64_t *offset);
/* The string's bytes, to be changed, at least `len` of them; the entry (NULL: missing) is made, and "new" told. Zeros
 * where there was nothing. Its encoding is raw from then on. The caller tells db_changed() where he changes something.
 */
char *bitmap_edit(struct call *call, struct slice key, struct entry *entry, size_t len);
#endif
