/* memory_test.c: see memory_test.h. */
#include "server/process/memory_test.h"
#include "lib/text/number.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PASSES_DEFAULT = 50, PASSES_MAX = 1000000, MEGABYTE = 1 << 20 };

uint64_t memory_test_addresses(volatile uint64_t *words, size_t count) {
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++) words[i] = i;
    for (size_t i = 0; i < count; i++) wrong += words[i] != i;
    return wrong;
}

uint64_t memory_test_pattern(volatile uint64_t *words, size_t count, uint64_t pattern) {
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++) words[i] = i & 1 ? ~pattern : pattern;
    for (size_t i = 0; i < count; i++) wrong += words[i] != (i & 1 ? ~pattern : pattern);
    return wrong;
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

uint64_t memory_test_random(volatile uint64_t *words, size_t count, uint64_t seed) {
    uint64_t wrong = 0, state = seed | 1;
    for (size_t i = 0; i < count; i++) words[i] = next_random(&state);
    state = seed | 1;
    for (size_t i = 0; i < count; i++) wrong += words[i] != next_random(&state);
    return wrong;
}

/* One pass over all memory. */
static uint64_t pass_run(volatile uint64_t *words, size_t count, uint64_t pass) {
    static const uint64_t patterns[] = {0, UINT64_MAX, 0x5555555555555555, 0xaaaaaaaaaaaaaaaa};
    uint64_t wrong = memory_test_addresses(words, count);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        wrong += memory_test_pattern(words, count, patterns[i]);
    return wrong + memory_test_random(words, count, pass * 0x9e3779b97f4a7c15);
}

int memory_test_main(const char *program, const char *megabytes, const char *passes_text) {
    int64_t size, passes = PASSES_DEFAULT, memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / MEGABYTE;
    if (!megabytes) {
        fprintf(stderr,
                "Please specify the amount of memory to test in megabytes.\n"
                "Example: %s --test-memory 4096\n",
                program);
        return 1;
    }
    if (!parse_int64(slice_of(megabytes), &size) || size < 1 || size > memory ||
        (passes_text && (!parse_int64(slice_of(passes_text), &passes) || passes < 1 || passes > PASSES_MAX))) {
        fprintf(stderr,
                "--test-memory takes the megabytes to test, 1 to %lld on this machine, and the number of passes, 1 to "
                "%d (default: %d)\n",
                (long long)memory, PASSES_MAX, PASSES_DEFAULT);
        return 1;
    }
    size_t bytes = (size_t)size * MEGABYTE;
    void *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED) {
        fprintf(stderr, "Cannot allocate %lld megabytes: %m\n", (long long)size);
        return 1;
    }
    uint64_t wrong = 0;
    for (int64_t pass = 1; pass <= passes; pass++) {
        wrong += pass_run(words, bytes / sizeof(uint64_t), (uint64_t)pass);
        printf("Pass %lld of %lld: %llu errors\n", (long long)pass, (long long)passes, (unsigned long long)wrong);
        fflush(stdout);
    }
    munmap(words, bytes);
    if (wrong) {
        printf("\nThe memory of this machine is broken: replace it. Data that it held may be wrong.\n");
        return 1;
    }
    printf("\nYour memory passed this test.\n"
           "A test of several minutes for each gigabyte finds more. If you still suspect the memory, test all of it "
           "with memtest86+ (https://memtest.org).\n");
    return 0;
}
