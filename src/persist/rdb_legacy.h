/* rdb_legacy.h: packed forms that servers before Redis 7.0 wrote, and that are read only.
 *
 * A ziplist; all numbers little-endian but where said otherwise:
 *
 *     bytes 0-3   length of the whole, header and end included
 *     bytes 4-7   offset of the last element (of the end, where there is none)
 *     bytes 8-9   number of elements; 65535: count them
 *     elements
 *     last byte   0xff
 *
 * An element is the length of the one before it (0 for the first), an encoding, and the data that belongs to it. That
 * length is 1 byte up to 253, or 0xfe and 4 bytes, which may hold a short one, too.
 *
 *     first byte   what follows         what it is
 *     00xxxxxx     x bytes              string of up to 63 bytes
 *     01xxxxxx     1 byte, x bytes      string of up to 16383 bytes; 14 bits of length, high bits first
 *     10xxxxxx     4 bytes, bytes       string; length high bits first; x is of no meaning
 *     11000000     2 bytes              integer of 16 bits, two's complement; the same below
 *     11010000     4 bytes              32 bits
 *     11100000     8 bytes              64 bits
 *     11110000     3 bytes              24 bits
 *     11111110     1 byte               8 bits
 *     1111xxxx                          x - 1: 0..12 for x of 0001..1101
 *
 * A zipmap, of fields and values:
 *
 *     byte 0       number of fields; 254 and more: count them
 *     fields       length, field, length of the value, bytes that are unused behind it (1 byte), value, unused bytes
 *     last byte    0xff
 *
 * A length is 1 byte up to 253, or 254 and 4 bytes. */
#ifndef PERSIST_RDB_LEGACY_H
#define PERSIST_RDB_LEGACY_H
#include "lib/slice.h"
#include <stdint.h>

/* The elements as a listpack of its own, to be freed with listpack_free(); every byte is checked. NULL: damaged. */
uint8_t *ziplist_to_listpack(struct slice bytes);
uint8_t *zipmap_to_listpack(struct slice bytes); /* field, value, field, … */
#endif
