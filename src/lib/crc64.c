/* crc64.c: see crc64.h.
 *
 * Sixteen bytes a step with sixteen tables (32 KiB, made at the first use): the table of a byte tells what it does to
 * the checksum when that many bytes follow it. Long input is read as three streams side by side whose checksums are put
 * together, since one stream waits for its own last step; two bits of arithmetic (multiplying by a power of x) stand
 * behind that. Instructions for carry-less multiplication would be faster again, at the price of code that each
 * processor has in its own way; snapshots are bound by other things by then. */
#include "lib/crc64.h"
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { TABLES = 16, STREAMS_MIN = 4096 };
static const uint64_t polynomial = 0x95ac9329ac4bc9b5; /* 0xad93d23594c935a9 with its bits reversed */
static uint64_t tables[TABLES][256];
static uint64_t powers[64]; /* x to the power of 2^n, for n bits */

/* a * b modulo the polynomial, both reflected: the highest bit is that of x^0. */
static uint64_t multiply(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    for (int i = 0; i < 64; i++) {
        if (a >> 63) product ^= b;
        a <<= 1;
        b = b >> 1 ^ (b & 1 ? polynomial : 0);
    }
    return product;
}

static void tables_make(void) {
    for (unsigned i = 0; i < 256; i++) {
        uint64_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        tables[0][i] = crc;
    }
    for (int t = 1; t < TABLES; t++)
        for (unsigned i = 0; i < 256; i++) tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 255];
    powers[0] = (uint64_t)1 << 62; /* x^1 */
    for (int n = 1; n < 64; n++) powers[n] = multiply(powers[n - 1], powers[n - 1]);
}
static void tables_need(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, tables_make);
}

/* What `len` zero bytes behind it make of a checksum. */
static uint64_t shift(uint64_t crc, size_t len) {
    for (int n = 3; len; n++, len >>= 1)
        if (len & 1) crc = multiply(crc, powers[n]);
    return crc;
}

static inline uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}
static inline uint64_t step(uint64_t crc, const uint8_t *p) {
    uint64_t a = crc ^ load64(p), b = load64(p + 8), result = 0;
    for (int i = 0; i < 8; i++) {
        result ^= tables[15 - i][a >> 8 * i & 255];
        result ^= tables[7 - i][b >> 8 * i & 255];
    }
    return result;
}
static uint64_t one_stream(uint64_t crc, const uint8_t *p, size_t len) {
    for (; len >= 16; p += 16, len -= 16) crc = step(crc, p);
    for (; len; p++, len--) crc = crc >> 8 ^ tables[0][(crc ^ *p) & 255];
    return crc;
}

uint64_t crc64(uint64_t crc, const void *data, size_t len) {
    const uint8_t *p = data;
    tables_need();
    while (len >= STREAMS_MIN) {
        size_t piece = len / 3 < (1 << 20) ? len / 3 & ~(size_t)15 : 1 << 20;
        uint64_t b = 0, c = 0;
        for (size_t i = 0; i < piece; i += 16) {
            crc = step(crc, p + i);
            b = step(b, p + piece + i);
            c = step(c, p + 2 * piece + i);
        }
        crc = shift(shift(crc, piece) ^ b, piece) ^ c;
        p += 3 * piece, len -= 3 * piece;
    }
    return one_stream(crc, p, len);
}

uint64_t crc64_combine(uint64_t first, uint64_t second, size_t second_len) {
    tables_need();
    return shift(first, second_len) ^ second;
}
