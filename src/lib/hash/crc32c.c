/* crc32c.c: see crc32c.h. The instruction processes eight bytes in three cycles, the tables in about eight. The CPU can
 * begin an instruction in each cycle, so three lanes of a long block are checked side by side. The register of a lane
 * is then advanced over the lanes after it, as if these were zeros, and their registers are added. The CPU's own
 * prefetching does not follow lanes that are this short: without that of add_lanes(), bytes in memory take twice as
 * long (5 instead of 11 GB/s). */
#include "lib/hash/crc32c.h"
#include <endian.h>
#include <stdbool.h>
#include <string.h>
#if defined __aarch64__ && defined __linux__
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

enum { TABLES = 8 };
#define POLYNOMIAL UINT32_C(0x82f63b78) /* reflected */

/* table[k][b]: the effect of byte b on the checksum when k more bytes follow it. */
static uint32_t table[TABLES][256];

static void make_tables(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[0][b] = crc;
    }
    for (uint32_t b = 0; b < 256; b++)
        for (int k = 1; k < TABLES; k++) table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 0xff];
}

uint32_t crc32c_portable(uint32_t crc, const void *data, size_t len) {
    const uint8_t *p = data;
    crc = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        word = le64toh(word) ^ crc;
        crc = 0;
        for (int k = 0; k < TABLES; k++) crc ^= table[TABLES - 1 - k][word >> 8 * k & 0xff];
    }
    for (; len; p++, len--) crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xff];
    return ~crc;
}

#if defined __x86_64__
#define HAS_CRC32C
#define WITH_CRC32C __attribute__((target("sse4.2")))
WITH_CRC32C static inline uint64_t add_word(uint64_t crc, uint64_t word) {
    return __builtin_ia32_crc32di(crc, word);
}
WITH_CRC32C static inline uint64_t add_half(uint64_t crc, uint32_t half) {
    return __builtin_ia32_crc32si((uint32_t)crc, half);
}
WITH_CRC32C static inline uint64_t add_byte(uint64_t crc, uint8_t byte) {
    return __builtin_ia32_crc32qi((uint32_t)crc, byte);
}
static bool cpu_has_crc32c(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}
#elif defined __aarch64__ && defined __linux__
#define HAS_CRC32C
#define WITH_CRC32C
static inline uint64_t add_word(uint64_t crc, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(le64toh(word)));
    return crc;
}
static inline uint64_t add_half(uint64_t crc, uint32_t half) {
    __asm__(".arch_extension crc\n\tcrc32cw %w0, %w0, %w1" : "+r"(crc) : "r"(le32toh(half)));
    return crc;
}
static inline uint64_t add_byte(uint64_t crc, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    return crc;
}
static bool cpu_has_crc32c(void) {
    return getauxval(AT_HWCAP) & HWCAP_CRC32;
}
#endif

#ifdef HAS_CRC32C
enum { LANE_BITS = 10, LANE = 1 << LANE_BITS, LINE = 64, AHEAD = 6 * LANE }; /* bytes */
static bool has_instruction;
/* over_lane[k][b]: byte k of the register, if it is b, after LANE bytes of zeros. */
static uint32_t over_lane[4][256];

/* `columns`: what each bit of the register becomes. */
static uint32_t crc32c_apply(const uint32_t columns[32], uint32_t crc) {
    uint32_t result = 0;
    for (int bit = 0; bit < 32; bit++)
        if (crc >> bit & 1) result ^= columns[bit];
    return result;
}

static void make_lane_table(void) {
    uint32_t columns[32], twice[32];
    for (int bit = 0; bit < 32; bit++) columns[bit] = bit < 8 ? table[0][1 << bit] : UINT32_C(1) << (bit - 8);
    for (int i = 0; i < LANE_BITS; i++) {
        for (int bit = 0; bit < 32; bit++) twice[bit] = crc32c_apply(columns, columns[bit]);
        memcpy(columns, twice, sizeof columns);
    }
    for (int k = 0; k < 4; k++)
        for (uint32_t b = 0; b < 256; b++) over_lane[k][b] = crc32c_apply(columns, b << 8 * k);
}

static uint64_t advance_over_lane(uint64_t crc) {
    return over_lane[0][crc & 0xff] ^ over_lane[1][crc >> 8 & 0xff] ^ over_lane[2][crc >> 16 & 0xff] ^
           over_lane[3][crc >> 24 & 0xff];
}

WITH_CRC32C static uint64_t add_lanes(uint64_t first, const uint8_t *p) {
    uint64_t second = 0, third = 0;
    for (int i = 0; i < LANE; i += 8) {
        uint64_t words[3];
        if (i % LINE == 0) /* it may be beyond the end: that has no effect */
            for (int lane = 0; lane < 3; lane++)
                __builtin_prefetch((const void *)((uintptr_t)p + (unsigned)(i + lane * LANE + AHEAD)));
        for (int lane = 0; lane < 3; lane++) memcpy(&words[lane], p + i + (ptrdiff_t)lane * LANE, 8);
        first = add_word(first, words[0]);
        second = add_word(second, words[1]);
        third = add_word(third, words[2]);
    }
    return advance_over_lane(advance_over_lane(first) ^ second) ^ third;
}

WITH_CRC32C static uint32_t crc32c_instruction(uint32_t crc, const void *data, size_t len) {
    enum { LANES = 3 * LANE };
    const uint8_t *p = data;
    uint64_t wide = ~crc;
    for (; len >= LANES; p += LANES, len -= LANES) wide = add_lanes(wide, p);
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        wide = add_word(wide, word);
    }
    if (len & 4) {
        uint32_t half;
        memcpy(&half, p, 4);
        wide = add_half(wide, half);
        p += 4;
    }
    for (len &= 3; len; p++, len--) wide = add_byte(wide, *p);
    return ~(uint32_t)wide;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t len) {
    return has_instruction ? crc32c_instruction(crc, data, len) : crc32c_portable(crc, data, len);
}
#else
uint32_t crc32c(uint32_t crc, const void *data, size_t len) {
    return crc32c_portable(crc, data, len);
}
#endif

__attribute__((constructor)) static void start(void) {
    make_tables();
#ifdef HAS_CRC32C
    has_instruction = cpu_has_crc32c();
    make_lane_table();
#endif
}
