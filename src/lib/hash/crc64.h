/* crc64.h: the checksum at the end of RDB files and DUMP payloads: CRC-64-Jones.
 *
 *     polynomial         0xad93d23594c935a9, input and output reflected
 *     initial value      0, no final xor
 *     check value        0xe9c6d914c4b8d9ca for "123456789" */
#pragma once
#include <stddef.h>
#include <stdint.h>
/* Continues the checksum `crc` (0 to start), so data can be passed in pieces. */
uint64_t crc64(uint64_t crc, const void *data, size_t len);
uint64_t crc64_portable(uint64_t crc, const void *data, size_t len); /* without the CPU's special instructions */
/* Returns the checksum of two concatenated pieces from their checksums and the length of the second. */
uint64_t crc64_combine(uint64_t first, uint64_t second, size_t second_len);
