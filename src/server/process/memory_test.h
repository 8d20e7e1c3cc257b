/* memory_test.h: a test of the machine's memory, for --test-memory.
 *
 * It finds cells that do not keep their value, addresses that reach the same cell, and neighbours that influence each
 * other. It tests the memory that the kernel gives to this process; memtest86+, which runs without a kernel, tests all
 * memory. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Tests `count` words, whose content is lost. Each function writes all words, then reads them. Returns the number of
 * words that were read wrong. */
uint64_t memory_test_addresses(volatile uint64_t *words, size_t count); /* each word has its own number */
uint64_t memory_test_pattern(volatile uint64_t *words, size_t count, uint64_t pattern); /* and its inverse, in turn */
uint64_t memory_test_random(volatile uint64_t *words, size_t count, uint64_t seed);

/* valkey-server --test-memory MEGABYTES [PASSES]: shows the progress, and returns the exit status. NULL: not given. */
int memory_test_main(const char *program, const char *megabytes, const char *passes);
