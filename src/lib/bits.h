/* bits.h: long rows of bits. Bit 0 is the highest bit of the first byte.
 *
 * Each function uses what the CPU has (chosen at the first call): POPCNT or AVX-512 for counting, AVX2 for finding and
 * combining. Any thread. */
#ifndef LIB_BITS_H
#define LIB_BITS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t bits_count(const void *bytes, size_t len); /* ones */
/* The first bit with that value; -1: none. */
int64_t bits_find(const void *bytes, size_t len, bool bit);
enum bits_operation { BITS_AND, BITS_OR, BITS_XOR };
void bits_combine(void *to, const void *from, size_t len, enum bits_operation operation); /* to = to op from */
void bits_invert(void *to, const void *from, size_t len);

/* A number of `width` bits (1 … 64), most significant first, that begins at bit `offset`. Bits behind the `len` bytes
 * read as zeros. */
uint64_t bits_get(const void *bytes, size_t len, uint64_t offset, unsigned width);
void bits_set(void *bytes, uint64_t offset, unsigned width, uint64_t value); /* all of them must be there */
#endif
