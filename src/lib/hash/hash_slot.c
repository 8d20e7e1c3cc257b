/* hash_slot.c: see hash_slot.h.
 *
 * CRC-16/XMODEM: polynomial 0x1021, initial value 0, not reflected. Since the initial value is 0, bytes of zero before
 * a text change nothing.
 *
 * On CPUs with carry-less multiplication (PCLMULQDQ of x86) a text of at most 16 bytes is one polynomial of 128 bits,
 * which five multiplications reduce: half the instructions that tables take. Each 16 bytes more take two.
 *
 * On other CPUs a step processes eight bytes with eight tables (4 KiB): table k holds the effect of a byte on the
 * checksum when k more bytes follow it. Only the first two bytes of a step depend on the step before. */
#include "lib/hash/hash_slot.h"
#include <stdbool.h>
#include <stdint.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { TABLES = 8 };
static uint16_t tables[TABLES][256];

static void tables_make(void) {
    for (unsigned i = 0; i < 256; i++) {
        uint32_t crc = i << 8;
        for (int bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
        tables[0][i] = (uint16_t)crc;
    }
    for (int t = 1; t < TABLES; t++) {
        for (unsigned i = 0; i < 256; i++) {
            unsigned crc = tables[t - 1][i];
            tables[t][i] = (uint16_t)(crc << 8 ^ tables[0][crc >> 8]);
        }
    }
}

static unsigned slot_by_table(struct slice text) {
    const unsigned char *at = (const unsigned char *)text.data, *end = at + text.len;
    unsigned crc = 0;
    for (; end - at >= 8; at += 8)
        crc = tables[7][at[0] ^ crc >> 8] ^ tables[6][at[1] ^ (crc & 0xff)] ^ tables[5][at[2]] ^ tables[4][at[3]] ^
              tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
    if (end - at >= 4) {
        crc = tables[3][at[0] ^ crc >> 8] ^ tables[2][at[1] ^ (crc & 0xff)] ^ tables[1][at[2]] ^ tables[0][at[3]];
        at += 4;
    }
    for (; at < end; at++) crc = (crc << 8 & 0xffff) ^ tables[0][*at ^ crc >> 8];
    return crc % HASH_SLOTS;
}

#ifdef __x86_64__
enum {
    /* x^n modulo the polynomial */
    X16 = 0x1021,
    X64 = 0xb861,
    X80 = 0xeb23,
    X128 = 0xaefc,
    X192 = 0x650b
};
#define X64_BY_POLYNOMIAL 0x111303471a041 /* the quotient */
static bool can_multiply;

static inline uint64_t read_word(const char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return __builtin_bswap64(word);
}
/* At most 8 bytes as a polynomial. */
static inline uint64_t read_short(const char *at, size_t len) {
    uint32_t first, last;
    if (len == 8) return read_word(at);
    if (len < sizeof first) {
        uint64_t word = 0;
        for (size_t i = 0; i < len; i++) word = word << 8 | (unsigned char)at[i];
        return word;
    }
    memcpy(&first, at, sizeof first);
    memcpy(&last, at + len - sizeof last, sizeof last); /* may overlap */
    return (uint64_t)__builtin_bswap32(first) << 8 * (len - sizeof first) | __builtin_bswap32(last);
}
/* At most 16 bytes. */
static inline __m128i read_block(const char *at, size_t len) {
    if (len <= 8) return _mm_cvtsi64_si128((long long)read_short(at, len));
    return _mm_set_epi64x((long long)(read_word(at) >> 8 * (16 - len)), (long long)read_word(at + len - 8));
}

#define MULTIPLY(a, b, halves) _mm_clmulepi64_si128(a, b, halves)
__attribute__((target("pclmul"))) static unsigned slot_by_product(struct slice text) {
    const __m128i ahead = _mm_set_epi64x(X192, X128), final = _mm_set_epi64x(X80, X16),
                  reduce = _mm_set_epi64x(X64_BY_POLYNOMIAL, X64), polynomial = _mm_cvtsi32_si128(X16);
    const char *at = text.data, *end = text.data + text.len;
    size_t first = text.len <= 16 ? text.len : (text.len - 1) % 16 + 1;
    __m128i sum = read_block(at, first); /* congruent to the text so far */
    for (at += first; at < end; at += 16)
        sum = _mm_xor_si128(_mm_xor_si128(MULTIPLY(sum, ahead, 0x00), MULTIPLY(sum, ahead, 0x11)), read_block(at, 16));
    sum = _mm_xor_si128(MULTIPLY(sum, final, 0x00), MULTIPLY(sum, final, 0x11)); /* of the text times x^16, 79 bits */
    sum = _mm_xor_si128(MULTIPLY(sum, reduce, 0x01), sum);                       /* in its lower 64 bits */
    __m128i quotient = _mm_srli_si128(MULTIPLY(_mm_srli_epi64(sum, 16), reduce, 0x10), 6);
    sum = _mm_xor_si128(MULTIPLY(quotient, polynomial, 0x00), sum);
    return (unsigned)_mm_cvtsi128_si32(sum) % HASH_SLOTS;
}
#endif

__attribute__((constructor)) static void prepare(void) {
    tables_make();
#ifdef __x86_64__
    __builtin_cpu_init();
    can_multiply = __builtin_cpu_supports("pclmul");
#endif
}

static inline unsigned slot_of_text(struct slice text) {
#ifdef __x86_64__
    if (__builtin_expect(can_multiply, 1)) return slot_by_product(text);
#endif
    return slot_by_table(text);
}

/* --- Hash tags --- */

enum { WORD = sizeof(uint64_t), SCANNED_MAX = 64 /* of longer keys, memchr() takes less */ };

static inline bool word_has_brace(uint64_t word) {
    const uint64_t ones = 0x0101010101010101;
    word ^= ones * '{';
    return (word - ones) & ~word & ones << 7;
}
/* Whether one of 16 bytes, in two parts, is a brace. */
static inline bool parts_have_brace(const char *first, const char *second) {
#ifdef __SSE2__
    __m128i parts =
        _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)first), _mm_loadl_epi64((const __m128i *)second));
    return _mm_movemask_epi8(_mm_cmpeq_epi8(parts, _mm_set1_epi8('{')));
#else
    uint64_t words[2];
    memcpy(&words[0], first, WORD);
    memcpy(&words[1], second, WORD);
    return word_has_brace(words[0]) | word_has_brace(words[1]);
#endif
}

/* Keys are short: looking at some bytes twice takes less than a call of memchr(). */
static inline bool may_have_tag(struct slice key) {
    const char *at = key.data, *end = key.data + key.len;
    if (key.len > SCANNED_MAX) return true;
    if (key.len >= WORD) {
        for (; end - at > 2 * WORD; at += 2 * WORD)
            if (parts_have_brace(at, at + WORD)) return true;
        return parts_have_brace(end - at >= WORD ? at : end - WORD, end - WORD);
    }
    if (key.len >= WORD / 2) {
        uint32_t parts[2];
        memcpy(&parts[0], at, sizeof parts[0]);
        memcpy(&parts[1], end - sizeof parts[1], sizeof parts[1]);
        return word_has_brace((uint64_t)parts[0] << 32 | parts[1]);
    }
    for (; at < end; at++)
        if (*at == '{') return true;
    return false;
}

/* Returns the tag, or the whole key if it has none. */
static struct slice hash_tag(struct slice key) {
    const char *open = key.len ? memchr(key.data, '{', key.len) : NULL;
    if (!open) return key;
    const char *tag = open + 1, *end = key.data + key.len, *close = memchr(tag, '}', (size_t)(end - tag));
    return close && close > tag ? (struct slice){tag, (size_t)(close - tag)} : key;
}

static __attribute__((noinline)) unsigned slot_of_tag(struct slice key) {
    return slot_of_text(hash_tag(key));
}

unsigned hash_slot(struct slice key) {
    return may_have_tag(key) ? slot_of_tag(key) : slot_of_text(key);
}

static bool is_literal(const char *from, const char *end) {
    for (; from < end; from++)
        if (*from == '*' || *from == '?' || *from == '[' || *from == '\\') return false;
    return true;
}

int hash_slot_of_pattern(struct slice pattern) {
    struct slice hashed = hash_tag(pattern);
    return is_literal(pattern.data, hashed.data + hashed.len) ? (int)hash_slot(pattern) : -1;
}
