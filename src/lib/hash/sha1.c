/* sha1.c: SHA-1 after FIPS 180-4, with the message schedule kept as a ring of sixteen words. */
#include "lib/hash/sha1.h"

static uint32_t rotate(uint32_t word, int bits) {
    return word << bits | word >> (32 - bits);
}
static uint32_t sha1_load(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void take_block(struct sha1 *sha1, const unsigned char *block) {
    uint32_t w[16], a = sha1->state[0], b = sha1->state[1], c = sha1->state[2], d = sha1->state[3], e = sha1->state[4];
    for (int i = 0; i < 16; i++) w[i] = sha1_load(block + 4 * i);
    for (int i = 0; i < 80; i++) {
        if (i >= 16) w[i % 16] = rotate(w[(i - 3) % 16] ^ w[(i - 8) % 16] ^ w[(i - 14) % 16] ^ w[i % 16], 1);
        uint32_t f = i < 20   ? (b & c) | (~b & d)
                     : i < 40 ? b ^ c ^ d
                     : i < 60 ? (b & c) | (b & d) | (c & d)
                              : b ^ c ^ d;
        uint32_t k = i < 20 ? 0x5a827999 : i < 40 ? 0x6ed9eba1 : i < 60 ? 0x8f1bbcdc : 0xca62c1d6;
        uint32_t next = rotate(a, 5) + f + e + k + w[i % 16];
        e = d, d = c, c = rotate(b, 30), b = a, a = next;
    }
    sha1->state[0] += a, sha1->state[1] += b, sha1->state[2] += c, sha1->state[3] += d, sha1->state[4] += e;
}
void sha1_init(struct sha1 *sha1) {
    *sha1 = (struct sha1){.state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}
void sha1_update(struct sha1 *sha1, struct slice bytes) {
    size_t held = sha1->len % 64;
    sha1->len += bytes.len;
    while (bytes.len) {
        if (!held && bytes.len >= 64) {
            take_block(sha1, (const unsigned char *)bytes.data);
            bytes.data += 64, bytes.len -= 64;
            continue;
        }
        size_t part = 64 - held < bytes.len ? 64 - held : bytes.len;
        memcpy(sha1->block + held, bytes.data, part);
        bytes.data += part, bytes.len -= part, held += part;
        if (held < 64) return;
        take_block(sha1, sha1->block);
        held = 0;
    }
}
void sha1_final(struct sha1 *sha1, unsigned char digest[static SHA1_SIZE]) {
    static const char padding[64] = {(char)0x80};
    unsigned char length[8];
    uint64_t bits = sha1->len * 8;
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    size_t held = sha1->len % 64;
    sha1_update(sha1, (struct slice){padding, held < 56 ? 56 - held : 120 - held});
    sha1_update(sha1, (struct slice){(const char *)length, 8});
    for (int i = 0; i < SHA1_SIZE; i++) digest[i] = (unsigned char)(sha1->state[i / 4] >> (24 - 8 * (i % 4)));
}
void sha1_digest(struct slice bytes, unsigned char digest[static SHA1_SIZE]) {
    struct sha1 sha1;
    sha1_init(&sha1);
    sha1_update(&sha1, bytes);
    sha1_final(&sha1, digest);
}
