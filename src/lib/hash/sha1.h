/* sha1.h: SHA-1 (FIPS 180-4). Not for secrets: it names scripts and computes digests that peers compare. */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>
struct sha1 {
    uint32_t state[5];
    uint64_t len; /* bytes hashed */
    unsigned char block[64];
};
enum { SHA1_SIZE = 20 };
void sha1_init(struct sha1 *sha1);
void sha1_update(struct sha1 *sha1, struct slice bytes);
void sha1_final(struct sha1 *sha1, unsigned char digest[static SHA1_SIZE]);
void sha1_digest(struct slice bytes, unsigned char digest[static SHA1_SIZE]); /* of one slice */
