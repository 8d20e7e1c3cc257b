/* random.h: random numbers. Each thread has its own generator, seeded by the kernel. */
#pragma once
#include <stddef.h>
#include <stdint.h>
uint64_t random_u64(void);                 /* xoshiro256**, fast, not for secrets */
uint64_t random_below(uint64_t bound);     /* uniform; bound > 0 */
void random_seed(uint64_t seed);           /* this thread's generator, for repeatable tests */
void random_bytes(void *data, size_t len); /* from the kernel: ids, seeds, secrets */
void random_hex(char *text, size_t digits);
