/* hash_slot.c: see hash_slot.h.
 *
 * CRC-16/XMODEM: polynomial 0x1021, initial value 0, not reflected. A step processes eight bytes with eight tables
 * (4 KiB): table k holds the effect of a byte on the checksum when k more bytes follow it. Only the first two bytes of
 * a step depend on the step before. Rejected: carry-less multiplication, which gains nothing for keys of this length.
 */
#include "lib/hash/hash_slot.h"
#include <stdbool.h>
#include <stdint.h>

enum { TABLES = 8 };
static uint16_t tables[TABLES][256];

__attribute__((constructor)) static void tables_make(void) {
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

static inline unsigned crc16(struct slice text) {
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
    return crc;
}

/* The first brace of a key, or NULL. Keys are short: eight bytes at a time take less than a call of memchr(). */
static inline const char *find_open(struct slice key) {
    const uint64_t ones = 0x0101010101010101, braces = ones * '{';
    const char *at = key.data, *end = key.data + key.len;
    for (; end - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        word ^= braces;
        if ((word - ones) & ~word & ones << 7) break; /* one of its bytes is zero */
    }
    for (; at < end; at++)
        if (*at == '{') return at;
    return NULL;
}

/* Returns the tag, or the whole key if it has none. */
static inline struct slice hash_tag(struct slice key) {
    const char *open = key.len <= 64 ? find_open(key) : memchr(key.data, '{', key.len);
    if (!open) return key;
    const char *tag = open + 1, *end = key.data + key.len, *close = memchr(tag, '}', (size_t)(end - tag));
    return close && close > tag ? (struct slice){tag, (size_t)(close - tag)} : key;
}

unsigned hash_slot(struct slice key) {
    return crc16(hash_tag(key)) % HASH_SLOTS;
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
