/* rdb_legacy.h: the packed forms of servers before Redis 7.0, which this server reads but does not write.
 *
 * A ziplist. Numbers are little-endian unless stated otherwise.
 *
 *     bytes 0-3   length of the whole, header and end included
 *     bytes 4-7   offset of the last element (of the end if there are no elements)
 *     bytes 8-9   number of elements; 65535: count them
 *     elements
 *     last byte   0xff
 *
 * An element is the length of the previous element (0 for the first), an encoding, and its data. The length is 1 byte
 * up to 253, or 0xfe and 4 bytes, which may also hold a short length.
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
 *     fields       length, field, length of the value, number of unused bytes (1 byte), value, unused bytes
 *     last byte    0xff
 *
 * A length is 1 byte up to 253, or 254 and 4 bytes. */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>

/* Converts the elements to a new listpack, which the caller frees with listpack_free(). Every byte is checked. NULL:
 * corrupt. */
uint8_t *ziplist_to_listpack(struct slice bytes);
uint8_t *zipmap_to_listpack(struct slice bytes); /* field, value, field, … */
