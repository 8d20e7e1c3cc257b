/* sha256.c: SHA-256 after FIPS 180-4, with the message schedule kept as a ring of sixteen words. */
#include "lib/hash/sha256.h"
#include <stdint.h>

enum { BLOCK = 64, LENGTH_SIZE = 8 };

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t word, int bits) {
    return word >> bits | word << (32 - bits);
}
static uint32_t sha256_load(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void take_block(uint32_t state[static 8], const unsigned char *block) {
    uint32_t w[16], v[8];
    for (int i = 0; i < 16; i++) w[i] = sha256_load(block + 4 * i);
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        if (i >= 16) {
            uint32_t early = w[(i - 15) % 16], late = w[(i - 2) % 16];
            w[i % 16] += w[(i - 7) % 16] + (rotate(early, 7) ^ rotate(early, 18) ^ early >> 3) +
                         (rotate(late, 17) ^ rotate(late, 19) ^ late >> 10);
        }
        uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]), majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        uint32_t first =
            v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) + choice + round_constants[i] + w[i % 16];
        uint32_t second = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) + majority;
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += first;
        v[0] = first + second;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

void sha256_digest(struct slice bytes, unsigned char digest[static SHA256_SIZE]) {
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint64_t bits = (uint64_t)bytes.len * 8;
    for (; bytes.len >= BLOCK; bytes.data += BLOCK, bytes.len -= BLOCK)
        take_block(state, (const unsigned char *)bytes.data);
    unsigned char last[2 * BLOCK] = {0};
    if (bytes.len) memcpy(last, bytes.data, bytes.len);
    last[bytes.len] = 0x80;
    size_t size = bytes.len + 1 + LENGTH_SIZE <= BLOCK ? BLOCK : 2 * BLOCK;
    for (int i = 0; i < LENGTH_SIZE; i++) last[size - 1 - (size_t)i] = (unsigned char)(bits >> (8 * i));
    for (size_t at = 0; at < size; at += BLOCK) take_block(state, last + at);
    for (int i = 0; i < SHA256_SIZE; i++) digest[i] = (unsigned char)(state[i / 4] >> (24 - 8 * (i % 4)));
}
