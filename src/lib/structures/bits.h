/* bits.h: bit arrays of any length. Bit 0 is the most significant bit of the first byte.
 *
 * Each function selects the best instructions of the CPU at its first call: POPCNT or AVX-512 for counting, AVX2 for
 * searching and combining. Any thread may call them. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t bits_count(const void *bytes, size_t len); /* number of one bits */
/* Returns the index of the first bit with that value, or -1. */
int64_t bits_find(const void *bytes, size_t len, bool bit);
enum bits_operation { BITS_AND, BITS_OR, BITS_XOR };
void bits_combine(void *to, const void *from, size_t len, enum bits_operation operation); /* to = to op from */
void bits_invert(void *to, const void *from, size_t len);

/* Reads a number of `width` bits (1 to 64), most significant bit first, that begins at bit `offset`. Bits past the end
 * of the `len` bytes read as zero. */
uint64_t bits_get(const void *bytes, size_t len, uint64_t offset, unsigned width);
void bits_set(void *bytes, uint64_t offset, unsigned width, uint64_t value); /* the bytes must be large enough */
