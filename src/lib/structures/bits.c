/* bits.c: see bits.h. The compiler vectorizes these loops; the variants differ only in the instruction sets that it may
 * use. */
#include "lib/structures/bits.h"
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

static inline uint64_t bits_load(const unsigned char *p) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

ALWAYS_INLINE uint64_t count(const unsigned char *p, size_t len) {
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (; len >= 32; p += 32, len -= 32) {
        a += (uint64_t)__builtin_popcountll(bits_load(p));
        b += (uint64_t)__builtin_popcountll(bits_load(p + 8));
        c += (uint64_t)__builtin_popcountll(bits_load(p + 16));
        d += (uint64_t)__builtin_popcountll(bits_load(p + 24));
    }
    for (; len >= 8; p += 8, len -= 8) a += (uint64_t)__builtin_popcountll(bits_load(p));
    uint64_t rest = 0;
    memcpy(&rest, p, len);
    return a + b + c + d + (uint64_t)__builtin_popcountll(rest);
}
/* A single sum, so that the compiler can vectorize the loop. */
ALWAYS_INLINE uint64_t count_words(const unsigned char *p, size_t words) {
    uint64_t sum = 0;
    for (size_t i = 0; i < words; i++) sum += (uint64_t)__builtin_popcountll(bits_load(p + i * 8));
    return sum;
}
/* Counts the leading bytes, in whole blocks, that all equal `skip`. */
enum { BLOCK = 256 };
ALWAYS_INLINE size_t skip_blocks(const unsigned char *p, size_t len, uint64_t skip) {
    size_t at = 0;
    for (; len - at >= BLOCK; at += BLOCK) {
        uint64_t differ = 0;
        for (size_t i = 0; i < BLOCK; i += 8) differ |= bits_load(p + at + i) ^ skip;
        if (differ) break;
    }
    return at;
}
ALWAYS_INLINE void combine(unsigned char *restrict to, const unsigned char *restrict from, size_t len,
                           enum bits_operation operation) {
    if (operation == BITS_AND)
        for (size_t i = 0; i < len; i++) to[i] &= from[i];
    else if (operation == BITS_OR)
        for (size_t i = 0; i < len; i++) to[i] |= from[i];
    else
        for (size_t i = 0; i < len; i++) to[i] ^= from[i];
}
ALWAYS_INLINE void invert(unsigned char *to, const unsigned char *from, size_t len) {
    for (size_t i = 0; i < len; i++) to[i] = (unsigned char)~from[i];
}

static uint64_t count_plain(const unsigned char *p, size_t len) {
    return count(p, len);
}
static size_t skip_plain(const unsigned char *p, size_t len, uint64_t skip) {
    return skip_blocks(p, len, skip);
}
static void combine_plain(unsigned char *to, const unsigned char *from, size_t len, enum bits_operation operation) {
    combine(to, from, len, operation);
}
static void invert_plain(unsigned char *to, const unsigned char *from, size_t len) {
    invert(to, from, len);
}

#if defined(__x86_64__)
__attribute__((target("popcnt"))) static uint64_t count_popcnt(const unsigned char *p, size_t len) {
    return count(p, len);
}
__attribute__((target("avx2"))) static void combine_avx2(unsigned char *to, const unsigned char *from, size_t len,
                                                         enum bits_operation operation) {
    combine(to, from, len, operation);
}
__attribute__((target("avx2"))) static void invert_avx2(unsigned char *to, const unsigned char *from, size_t len) {
    invert(to, from, len);
}
__attribute__((target("avx2"))) static size_t skip_avx2(const unsigned char *p, size_t len, uint64_t skip) {
    return skip_blocks(p, len, skip);
}
__attribute__((target("popcnt,avx512f,avx512vl,avx512vpopcntdq"))) static uint64_t count_avx512(const unsigned char *p,
                                                                                                size_t len) {
    return count_words(p, len / 8) + count(p + len / 8 * 8, len % 8);
}
static inline bool has_vpopcnt(void) {
    return __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512vl");
}
static inline bool has_popcnt(void) {
    return __builtin_cpu_supports("popcnt");
}
static inline bool has_avx2(void) {
    return __builtin_cpu_supports("avx2");
}
#else /* on other CPUs the plain loops use the baseline vector unit */
#define count_popcnt count_plain
#define count_avx512 count_plain
#define skip_avx2    skip_plain
#define combine_avx2 combine_plain
#define invert_avx2  invert_plain
static inline bool has_vpopcnt(void) {
    return false;
}
static inline bool has_popcnt(void) {
    return false;
}
static inline bool has_avx2(void) {
    return false;
}
#endif

uint64_t bits_count(const void *bytes, size_t len) {
    if (len >= BLOCK && has_vpopcnt()) return count_avx512(bytes, len);
    return has_popcnt() ? count_popcnt(bytes, len) : count_plain(bytes, len);
}

void bits_combine(void *to, const void *from, size_t len, enum bits_operation operation) {
    if (has_avx2())
        combine_avx2(to, from, len, operation);
    else
        combine_plain(to, from, len, operation);
}

void bits_invert(void *to, const void *from, size_t len) {
    if (has_avx2())
        invert_avx2(to, from, len);
    else
        invert_plain(to, from, len);
}

int64_t bits_find(const void *bytes, size_t len, bool bit) {
    const unsigned char *p = bytes;
    const uint64_t skip = bit ? 0 : UINT64_MAX;
    size_t at = len < BLOCK ? 0 : has_avx2() ? skip_avx2(p, len, skip) : skip_plain(p, len, skip);
    while (len - at >= 8 && bits_load(p + at) == skip) at += 8;
    for (; at < len; at++) {
        unsigned char byte = bit ? p[at] : (unsigned char)~p[at];
        if (byte) return (int64_t)at * 8 + __builtin_clz((unsigned)byte) - 24;
    }
    return -1;
}

uint64_t bits_get(const void *bytes, size_t len, uint64_t offset, unsigned width) {
    const unsigned char *p = bytes;
    uint64_t first = offset / 8;
    unsigned skip = offset % 8, whole = (skip + width + 7) / 8;
    unsigned __int128 row = 0;
    for (unsigned i = 0; i < whole; i++) row = row << 8 | (first + i < len ? p[first + i] : 0);
    row >>= whole * 8 - skip - width;
    return width == 64 ? (uint64_t)row : (uint64_t)row & ((UINT64_C(1) << width) - 1);
}

void bits_set(void *bytes, uint64_t offset, unsigned width, uint64_t value) {
    unsigned char *p = (unsigned char *)bytes + offset / 8;
    unsigned skip = offset % 8, whole = (skip + width + 7) / 8, after = whole * 8 - skip - width;
    unsigned __int128 mask = ((unsigned __int128)1 << width) - 1, row = 0;
    for (unsigned i = 0; i < whole; i++) row = row << 8 | p[i];
    row = (row & ~(mask << after)) | ((unsigned __int128)value & mask) << after;
    for (unsigned i = whole; i-- > 0; row >>= 8) p[i] = (unsigned char)row;
}
