/* hash_slot.c: see hash_slot.h. */
#include "lib/hash/hash_slot.h"
#include <stdbool.h>
#include <stdint.h>

/* CRC-16/XMODEM: polynomial 0x1021, initial value 0, not reflected. The polynomial has so few terms that shifts replace
 * the usual table: the eight steps of a byte have the same effect as these, and take no longer than a table lookup. */
static uint16_t crc16(struct slice text) {
    uint32_t crc = 0;
    for (size_t i = 0; i < text.len; i++) {
        uint32_t x = (crc >> 8 ^ (unsigned char)text.data[i]) & 0xff;
        x ^= x >> 4;
        crc = crc << 8 ^ x << 12 ^ x << 5 ^ x;
    }
    return (uint16_t)crc;
}

/* Returns the tag, or the whole key if it has none. */
static struct slice hash_tag(struct slice key) {
    const char *open = key.len ? memchr(key.data, '{', key.len) : NULL;
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
