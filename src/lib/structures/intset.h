/* intset.h: a sorted array of distinct integers in one allocation, byte for byte as in RDB files and DUMP payloads.
 *
 *     bytes 0-3   bytes per integer: 2, 4 or 8; little-endian
 *     bytes 4-7   number of integers, little-endian
 *     integers    ascending, little-endian, two's complement
 *
 * All integers have the width of the widest. Adding a wider integer widens the array; it never becomes narrower.
 *
 * An intset is a plain pointer to memory of lib/system/memory.h; a change returns the new pointer. Searches are binary.
 * An insertion moves all following integers, so callers limit the number of integers (set-max-intset-entries). Only
 * intset_validate() accepts untrusted bytes. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INTSET_HEADER_BYTES = 8 };
uint8_t *intset_new(void);
uint8_t *intset_copy(const uint8_t *set);
void intset_free(uint8_t *set);
size_t intset_count(const uint8_t *set);
size_t intset_bytes(const uint8_t *set);
int64_t intset_at(const uint8_t *set, size_t index); /* in ascending order; index < count */
/* intset_has() for a series of ascending values: *index is the position where the last search ended, initially 0.
 * Values in another order work, but slower. */
bool intset_seek(const uint8_t *set, int64_t value, size_t *index);
bool intset_has(const uint8_t *set, int64_t value);
int64_t intset_min(const uint8_t *set); /* the set must not be empty, here and in the next two functions */
int64_t intset_max(const uint8_t *set);
int64_t intset_random(const uint8_t *set);
/* *added: the value is new. */
uint8_t *intset_add(uint8_t *set, int64_t value, bool *added);
uint8_t *intset_remove(uint8_t *set, int64_t value, bool *removed);
/* Checks for a valid, non-empty intset. Reads only the `size` bytes. `deep` also checks the order of the integers. */
bool intset_validate(const uint8_t *bytes, size_t size, bool deep);
