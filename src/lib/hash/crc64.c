/* crc64.c: see crc64.h.
 *
 * On CPUs with carry-less multiplication (PCLMULQDQ of x86), long input is folded: four accumulators of 128 bits hold
 * polynomials that are congruent to all the bytes so far. A step multiplies them by x^512 modulo the polynomial and
 * adds the next 64 bytes. The 16 bytes that remain are checksummed by table. Intel's paper "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ Instruction" describes the method. The constants are computed at the first use. A
 * gigabyte takes about 0.05 s.
 *
 * On other CPUs each step processes sixteen bytes with sixteen tables (32 KiB): table k holds the effect of a byte on
 * the checksum when k more bytes follow it. Long input is processed as three interleaved streams, because a single
 * stream waits for its own previous step. Multiplying by a power of x combines their checksums. */
#include "lib/hash/crc64.h"
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { TABLES = 16, STREAMS_MIN = 4096 };
static const uint64_t polynomial = 0x95ac9329ac4bc9b5; /* 0xad93d23594c935a9 with its bits reversed */
static uint64_t tables[TABLES][256];
static uint64_t powers[64]; /* x^(2^n) */

/* Returns a * b modulo the polynomial, both reflected: the highest bit is the coefficient of x^0. */
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

#ifdef __x86_64__
enum { FOLD_MIN = 128, FOLD_WIDTH = 64, SHIFT_BITS = 7 };
static struct fold {
    uint64_t first, second;      /* multiply the first and the second eight bytes of an accumulator */
} fold_16, fold_64;              /* bytes that an accumulator advances */
static uint64_t fold_powers[64]; /* [n]: advances a checksum by 2^n bits, n at least SHIFT_BITS */
static bool can_fold;

static uint64_t power_of_x(unsigned exponent) {
    uint64_t product = (uint64_t)1 << 63; /* x^0 */
    for (int n = 0; exponent; n++, exponent >>= 1)
        if (exponent & 1) product = multiply(product, powers[n]);
    return product;
}
/* The product of two reflected words of 64 bits, taken as 128 bits, has one factor of x too many. */
static struct fold fold_by(unsigned bytes) {
    return (struct fold){power_of_x(8 * bytes + 63), power_of_x(8 * bytes - 1)};
}
static void fold_prepare(void) {
    fold_16 = fold_by(16);
    fold_64 = fold_by(FOLD_WIDTH);
    /* The table that reduces a product also multiplies by x^64. */
    fold_powers[SHIFT_BITS] = power_of_x((1 << SHIFT_BITS) - 65);
    for (int n = SHIFT_BITS; n < 63; n++) fold_powers[n + 1] = multiply(fold_powers[n], powers[n]);
    __builtin_cpu_init();
    can_fold = __builtin_cpu_supports("pclmul");
}

__attribute__((target("pclmul"))) static inline __m128i fold_step(__m128i accumulator, __m128i constants,
                                                                  const uint8_t *next) {
    __m128i first = _mm_clmulepi64_si128(accumulator, constants, 0x00),
            second = _mm_clmulepi64_si128(accumulator, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, second), _mm_loadu_si128((const __m128i *)next));
}
/* Folds `len` bytes, a multiple of 16 and at least FOLD_WIDTH, to 16 bytes that have the same checksum when it starts
 * from 0. */
__attribute__((target("pclmul"))) static void fold(uint64_t crc, const uint8_t *p, size_t len, uint8_t result[16]) {
    const __m128i by_64 = _mm_set_epi64x((long long)fold_64.second, (long long)fold_64.first),
                  by_16 = _mm_set_epi64x((long long)fold_16.second, (long long)fold_16.first);
    __m128i a = _mm_xor_si128(_mm_loadu_si128((const __m128i *)p), _mm_set_epi64x(0, (long long)crc)),
            b = _mm_loadu_si128((const __m128i *)(p + 16)), c = _mm_loadu_si128((const __m128i *)(p + 32)),
            d = _mm_loadu_si128((const __m128i *)(p + 48));
    for (p += FOLD_WIDTH, len -= FOLD_WIDTH; len >= FOLD_WIDTH; p += FOLD_WIDTH, len -= FOLD_WIDTH) {
        a = fold_step(a, by_64, p);
        b = fold_step(b, by_64, p + 16);
        c = fold_step(c, by_64, p + 32);
        d = fold_step(d, by_64, p + 48);
    }
    uint8_t parts[48];
    _mm_storeu_si128((__m128i *)parts, b);
    _mm_storeu_si128((__m128i *)(parts + 16), c);
    _mm_storeu_si128((__m128i *)(parts + 32), d);
    for (size_t i = 0; i < sizeof parts; i += 16) a = fold_step(a, by_16, parts + i);
    for (; len; p += 16, len -= 16) a = fold_step(a, by_16, p);
    _mm_storeu_si128((__m128i *)result, a);
}

static uint64_t one_stream(uint64_t crc, const uint8_t *p, size_t len);
/* Returns the checksum after `len` more zero bytes. */
__attribute__((target("pclmul"))) static uint64_t fold_shift(uint64_t crc, size_t len) {
    static const uint8_t zeros[1 << (SHIFT_BITS - 3)];
    crc = one_stream(crc, zeros, len % sizeof zeros);
    len /= sizeof zeros;
    for (int n = SHIFT_BITS; len; n++, len >>= 1) {
        uint8_t product[16];
        if (!(len & 1)) continue;
        _mm_storeu_si128((__m128i *)product, _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc),
                                                                  _mm_cvtsi64_si128((long long)fold_powers[n]), 0));
        crc = one_stream(0, product, sizeof product);
    }
    return crc;
}
#endif

static void prepare(void) {
    tables_make();
#ifdef __x86_64__
    fold_prepare();
#endif
}
static void tables_need(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
}

/* Returns the checksum after `len` more zero bytes. */
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

uint64_t crc64_portable(uint64_t crc, const void *data, size_t len) {
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

uint64_t crc64(uint64_t crc, const void *data, size_t len) {
#ifdef __x86_64__
    tables_need();
    if (can_fold && len >= FOLD_MIN) {
        uint8_t folded[16];
        size_t whole = len & ~(size_t)15;
        fold(crc, data, whole, folded);
        return one_stream(one_stream(0, folded, sizeof folded), (const uint8_t *)data + whole, len - whole);
    }
#endif
    return crc64_portable(crc, data, len);
}

uint64_t crc64_combine(uint64_t first, uint64_t second, size_t second_len) {
    tables_need();
#ifdef __x86_64__
    if (can_fold) return fold_shift(first, second_len) ^ second;
#endif
    return shift(first, second_len) ^ second;
}
