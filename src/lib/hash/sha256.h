/* sha256.h: SHA-256 (FIPS 180-4). The server stores passwords of users as SHA-256 digests. Rejected: OpenSSL's
 * implementation, because a build without TLS does not link OpenSSL but stores passwords as well. */
#pragma once
#include "lib/text/slice.h"
enum { SHA256_SIZE = 32 };
void sha256_digest(struct slice bytes, unsigned char digest[static SHA256_SIZE]);
