/* random.c: xoshiro256** (Blackman, Vigna 2018) per thread, and the kernel's generator; see random.h. */
#include "lib/system/random.h"
#include "lib/system/must.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

static _Thread_local uint64_t state[4]; /* all zero: not seeded yet */

static uint64_t rotate(uint64_t x, int bits) {
    return x << bits | x >> (64 - bits);
}

/* splitmix64: expands one number into the state, which must not be all zero. */
void random_seed(uint64_t seed) {
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        state[i] = z ^ z >> 31;
    }
}

static __attribute__((noinline)) void seed_from_kernel(void) {
    uint64_t seed;
    random_bytes(&seed, sizeof(seed));
    random_seed(seed);
}

uint64_t random_u64(void) {
    if (__builtin_expect(!(state[0] | state[1] | state[2] | state[3]), 0)) seed_from_kernel();
    uint64_t result = rotate(state[1] * 5, 7) * 9, t = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= t;
    state[3] = rotate(state[3], 45);
    return result;
}

/* Lemire 2019: a multiplication instead of a division; biased values are rejected and drawn again. */
uint64_t random_below(uint64_t bound) {
    must(bound > 0);
    unsigned __int128 product = (unsigned __int128)random_u64() * bound;
    if ((uint64_t)product < bound) {
        uint64_t threshold = -bound % bound;
        while ((uint64_t)product < threshold) product = (unsigned __int128)random_u64() * bound;
    }
    return (uint64_t)(product >> 64);
}

void random_bytes(void *data, size_t len) {
    char *at = data;
    while (len) {
        ssize_t got = getrandom(at, len, 0);
        if (got < 0) {
            if (errno == EINTR) continue;
            abort(); /* secrets need randomness; Linux has getrandom since 3.17 */
        }
        at += got, len -= (size_t)got;
    }
}

void random_hex(char *text, size_t digits) {
    static const char hex[] = "0123456789abcdef";
    unsigned char bytes[64];
    while (digits) {
        size_t n = digits < sizeof(bytes) ? digits : sizeof(bytes);
        random_bytes(bytes, n);
        for (size_t i = 0; i < n; i++) *text++ = hex[bytes[i] & 15];
        digits -= n;
    }
}
