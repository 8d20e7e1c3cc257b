/* crc32c.h: CRC-32C (Castagnoli: polynomial 0x1EDC6F41, reflected, initial value all ones, final value inverted), as in
 * iSCSI and RFC 3720. crc32c(0, "123456789", 9) is 0xe3069283. It uses the CPU's CRC instruction where available. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Continues the checksum `crc` (0 to start) over `len` bytes: crc32c(crc32c(0, a), b) is the checksum of a followed by
 * b. Any thread may call it. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);
/* The same with lookup tables, for CPUs without the instruction and for tests. */
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t len);
