/* crc64.h: the checksum at the end of RDB files and DUMP payloads: CRC-64 of Jones, reflected.
 *
 *     polynomial 0xad93d23594c935a9, bits reflected in and out, start 0, no final xor; of "123456789":
 * 0xe9c6d914c4b8d9ca */
#ifndef LIB_CRC64_H
#define LIB_CRC64_H
#include <stddef.h>
#include <stdint.h>
/* Goes on from `crc`, which is 0 at first: the checksum of a whole is that of its parts, one after the other. */
uint64_t crc64(uint64_t crc, const void *data, size_t len);
uint64_t crc64_portable(uint64_t crc, const void *data, size_t len); /* without the processor's instructions */
/* The checksum of two pieces behind each other, from theirs and the length of the second. */
uint64_t crc64_combine(uint64_t first, uint64_t second, size_t second_len);
#endif
