/* sha256.h: SHA-256 (FIPS 180-4). Passwords of users are kept as such digests. OpenSSL has it, too, but a build without
 * TLS does not link OpenSSL and stores the same passwords. */
#ifndef LIB_SHA256_H
#define LIB_SHA256_H
#include "lib/slice.h"
enum { SHA256_SIZE = 32 };
void sha256_digest(struct slice bytes, unsigned char digest[static SHA256_SIZE]);
#endif
