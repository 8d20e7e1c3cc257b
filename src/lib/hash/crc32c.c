/* crc32c.c: see crc32c.h. The instruction processes eight bytes in three cycles, the tables in about eight. Rejected:
 * three interleaved streams of the instruction, which are faster only from about one KiB on; the data checked here is
 * shorter. */
#include "lib/hash/crc32c.h"
#include <endian.h>
#include <stdbool.h>
#include <string.h>

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

#ifdef __x86_64__
static bool has_instruction;

__attribute__((target("sse4.2"))) static uint32_t crc32c_instruction(uint32_t crc, const void *data, size_t len) {
    const uint8_t *p = data;
    uint64_t wide = ~crc;
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    if (len & 4) {
        uint32_t word;
        memcpy(&word, p, 4);
        crc = __builtin_ia32_crc32si(crc, word);
        p += 4;
    }
    for (len &= 3; len; p++, len--) crc = __builtin_ia32_crc32qi(crc, *p);
    return ~crc;
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
#ifdef __x86_64__
    __builtin_cpu_init();
    has_instruction = __builtin_cpu_supports("sse4.2");
#endif
}
