/* intset.h: a sorted array of distinct integers in one piece of memory, byte for byte as RDB files and DUMP hold it.
 *
 *     bytes 0-3   bytes of one integer: 2, 4 or 8; little-endian
 *     bytes 4-7   number of integers, little-endian
 *     integers    ascending, little-endian, two's complement
 *
 * All integers have the width that the widest needs; adding one that needs more widens the array, and nothing narrows
 * it again.
 *
 * An intset is a plain pointer to memory of lib/memory.h; a change returns where it is now. Searching is by halves.
 * Adding in the middle moves what is behind, so users bound the number of integers (set-max-intset-entries). Trusts the
 * bytes except in intset_validate(). */
#ifndef LIB_INTSET_H
#define LIB_INTSET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INTSET_HEADER_BYTES = 8 };
uint8_t *intset_new(void);
uint8_t *intset_copy(const uint8_t *set);
void intset_free(uint8_t *set);
size_t intset_count(const uint8_t *set);
size_t intset_bytes(const uint8_t *set);
int64_t intset_at(const uint8_t *set, size_t index); /* ascending; index below the count */
/* As intset_has, where the values asked for ascend: *index is where the last search ended, 0 at first. In any other
 * order it is only slower. */
bool intset_seek(const uint8_t *set, int64_t value, size_t *index);
bool intset_has(const uint8_t *set, int64_t value);
int64_t intset_min(const uint8_t *set); /* of a set that is not empty, as the two below */
int64_t intset_max(const uint8_t *set);
int64_t intset_random(const uint8_t *set);
/* *added tells whether it was not there before. */
uint8_t *intset_add(uint8_t *set, int64_t value, bool *added);
uint8_t *intset_remove(uint8_t *set, int64_t value, bool *removed);
uint8_t *intset_remove_tail(uint8_t *set, size_t count); /* the `count` largest */
/* Is this an intset that is not empty? Looks at nothing outside of the `size` bytes; deep: at the order of the integers
 * too. */
bool intset_validate(const uint8_t *bytes, size_t size, bool deep);
#endif
