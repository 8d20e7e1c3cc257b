/* siphash.c: SipHash-1-3: one round per word, three at the end. See siphash.h. */
#include "lib/hash/siphash.h"
#include <string.h>

static inline uint64_t siphash_load(const unsigned char *at) {
    uint64_t word;
    memcpy(&word, at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline uint64_t load_tail(const unsigned char *at, size_t len) { /* len < 8 */
    uint64_t word = 0;
    for (size_t i = 0; i < len; i++) word |= (uint64_t)at[i] << (8 * i);
    return word;
}

/* Converts all eight bytes to lower case in parallel: bit 7 of `upper` marks the bytes within 'A'..'Z', and 0x80 >> 2
 * is the difference between the cases. Bytes from 0x80 on do not change. */
static inline uint64_t lower(uint64_t word) {
    uint64_t low7 = word & 0x7f7f7f7f7f7f7f7f;
    uint64_t from_a = low7 + 0x3f3f3f3f3f3f3f3f, past_z = low7 + 0x2525252525252525;
    uint64_t upper = from_a & ~past_z & ~word & 0x8080808080808080;
    return word | upper >> 2;
}

#define ROTATE(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))
#define ROUND                                                                                                          \
    do {                                                                                                               \
        v0 += v1, v1 = ROTATE(v1, 13), v1 ^= v0, v0 = ROTATE(v0, 32);                                                  \
        v2 += v3, v3 = ROTATE(v3, 16), v3 ^= v2;                                                                       \
        v0 += v3, v3 = ROTATE(v3, 21), v3 ^= v0;                                                                       \
        v2 += v1, v1 = ROTATE(v1, 17), v1 ^= v2, v2 = ROTATE(v2, 32);                                                  \
    } while (0)

static inline uint64_t hash(const void *data, size_t len, const uint8_t key[16], int nocase) {
    const unsigned char *at = data;
    uint64_t k0 = siphash_load(key), k1 = siphash_load(key + 8), word;
    uint64_t v0 = k0 ^ 0x736f6d6570736575, v1 = k1 ^ 0x646f72616e646f6d;
    uint64_t v2 = k0 ^ 0x6c7967656e657261, v3 = k1 ^ 0x7465646279746573;
    for (size_t left = len; left >= 8; left -= 8, at += 8) {
        word = siphash_load(at);
        if (nocase) word = lower(word);
        v3 ^= word;
        ROUND;
        v0 ^= word;
    }
    word = load_tail(at, len & 7);
    if (nocase) word = lower(word);
    word |= (uint64_t)len << 56;
    v3 ^= word;
    ROUND;
    v0 ^= word;
    v2 ^= 0xff;
    ROUND;
    ROUND;
    ROUND;
    return v0 ^ v1 ^ v2 ^ v3;
}

uint64_t siphash(const void *data, size_t len, const uint8_t key[16]) {
    return hash(data, len, key, 0);
}
uint64_t siphash_nocase(const void *data, size_t len, const uint8_t key[16]) {
    return hash(data, len, key, 1);
}
