/* listpack.h: a list of short strings and integers in one allocation, byte for byte as in RDB files and DUMP payloads.
 *
 *     bytes 0-3   total length, little-endian, header and end byte included
 *     bytes 4-5   number of elements, little-endian; 65535: more than 65534, or unknown: count them
 *     elements
 *     last byte   0xff
 *
 * An element is an encoding, its data, and the length of both (backlen), which allows backward iteration.
 *
 *     first byte   followed by             value
 *     0xxxxxxx                             integer 0..127
 *     10xxxxxx     x bytes                 string of up to 63 bytes
 *     110xxxxx     1 byte                  integer of 13 bits, two's complement, high bits first: -4096..4095
 *     1110xxxx     1 byte, then x bytes    string of up to 4095 bytes; 12 bits of length, high bits first
 *     11110000     4 bytes of length       string, length little-endian, then its bytes
 *     11110001     2 bytes                 integer of 16 bits, little-endian, two's complement; the same below
 *     11110010     3 bytes                 24 bits
 *     11110011     4 bytes                 32 bits
 *     11110100     8 bytes                 64 bits
 *     11111111                             end of the listpack
 *
 * The backlen is big-endian, 7 bits per byte; every byte except the first has its highest bit set, so it can be read
 * backwards:
 *
 *     length of encoding and data     bytes of backlen
 *     0..127                          1
 *     128..16382                      2
 *     16383..2097150                  3
 *     2097151..268435454              4
 *     more                            5
 *
 * A string that is a canonical decimal integer is always stored as an integer in the smallest encoding; reading returns
 * the same text. "12" and 12 are the same element.
 *
 * A listpack is a plain pointer to memory of lib/system/memory.h. A function that changes it returns the new pointer
 * and invalidates all element pointers. An element is identified by a pointer to its first byte; NULL means "no
 * element". Text to be stored must not be inside the listpack itself.
 *
 * The format is limited to 4 GiB. Before adding, callers check listpack_has_space(), which allows 1 GiB, and convert
 * their data to another encoding beyond that. A change that would still exceed 4 GiB aborts. Only listpack_validate()
 * accepts untrusted bytes: validate external data with `deep` first. */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>

enum {
    LISTPACK_EMPTY_BYTES = 7,
    LISTPACK_BYTES_MAX = 1 << 30,
    LISTPACK_TEXT = 24 /* size of a buffer for an integer as text */
};

/* The value of an element: a string, or a number if data is NULL. An empty string has non-NULL data. */
struct listpack_value {
    const char *data;
    size_t len;
    int64_t number;
};
static inline struct listpack_value listpack_text_value(struct slice text) {
    return (struct listpack_value){text.len ? text.data : "", text.len, 0};
}
static inline struct listpack_value listpack_number_value(int64_t number) {
    return (struct listpack_value){NULL, 0, number};
}

uint8_t *listpack_new(size_t capacity); /* empty, with `capacity` bytes allocated; 0: the minimum */
uint8_t *listpack_copy(const uint8_t *lp);
void listpack_free(uint8_t *lp);
uint8_t *listpack_shrink(uint8_t *lp); /* releases unused capacity */

size_t listpack_bytes(const uint8_t *lp);
size_t listpack_count(const uint8_t *lp); /* O(1) up to 65534 elements */
/* The bytes of an element, backlen included; and the bytes that a value would take. */
size_t listpack_element_bytes(const uint8_t *element);
size_t listpack_size_of(struct slice text);
size_t listpack_size_of_number(int64_t number);
/* True: `more` bytes of elements may be added. NULL counts as an empty listpack. */
bool listpack_has_space(const uint8_t *lp, size_t more);

uint8_t *listpack_first(const uint8_t *lp);
uint8_t *listpack_last(const uint8_t *lp);
/* Steps over small elements, which are the most common, are inline. Only these functions call the _any functions. */
uint8_t *listpack_next_any(const uint8_t *lp, const uint8_t *element);
static inline uint8_t *listpack_next(const uint8_t *lp, const uint8_t *element) {
    if (*element >= 0xc0) return listpack_next_any(lp, element);
    element += 2 + (*element < 0x80 ? 0 : *element & 0x3f);
    return *element == 0xff ? NULL : (uint8_t *)element;
}
uint8_t *listpack_prev_any(const uint8_t *lp, const uint8_t *element);
static inline uint8_t *listpack_prev(const uint8_t *lp, const uint8_t *element) {
    if (element == lp + LISTPACK_EMPTY_BYTES - 1 || element[-1] >= 0x80) return listpack_prev_any(lp, element);
    return (uint8_t *)element - element[-1] - 1;
}
uint8_t *listpack_seek(const uint8_t *lp, int64_t index); /* negative: from the end, -1 is the last element */

/* Reading. Returned text points into the listpack. */
struct listpack_value listpack_get(const uint8_t *element);
/* Returns the value as text; a number is formatted into `text`. */
struct slice listpack_value_text(const struct listpack_value *value, char text[static LISTPACK_TEXT]);
struct slice listpack_text(const uint8_t *element, char text[static LISTPACK_TEXT]); /* the same for an element */
bool listpack_number_any(const uint8_t *element, int64_t *number);
/* False: the element is a string, hence not a canonical integer. */
static inline bool listpack_number(const uint8_t *element, int64_t *number) {
    if (*element >= 0x80) return listpack_number_any(element, number);
    *number = *element;
    return true;
}
bool listpack_equal(const uint8_t *element, struct slice text);
/* Searches from `element` on for an element that equals `text`; skips `skip` elements after each mismatch (1: the
 * values of field-value pairs). */
uint8_t *listpack_find(const uint8_t *lp, const uint8_t *element, struct slice text, unsigned skip);

/* Changing. */
uint8_t *listpack_append(uint8_t *lp, struct slice text);
uint8_t *listpack_append_number(uint8_t *lp, int64_t number);
uint8_t *listpack_prepend(uint8_t *lp, struct slice text);
uint8_t *listpack_append_many(uint8_t *lp, const struct listpack_value *values, size_t count); /* allocates once */
/* Inserts before *element; NULL: at the end. Sets *element to the new element. */
uint8_t *listpack_insert(uint8_t *lp, uint8_t **element, struct listpack_value value);
/* The same for `count` values; sets *element to the first new element. */
uint8_t *listpack_insert_many(uint8_t *lp, uint8_t **element, const struct listpack_value *values, size_t count);
/* Sets *element to the new position of the replaced element. */
uint8_t *listpack_replace(uint8_t *lp, uint8_t **element, struct listpack_value value);
/* Deletes up to `count` elements from *element on. Sets *element to the element after them. */
uint8_t *listpack_delete(uint8_t *lp, uint8_t **element, size_t count);
/* `index` may be negative; out of range: no change. */
uint8_t *listpack_delete_range(uint8_t *lp, int64_t index, size_t count);

/* Chooses `wanted` random groups of `group` elements (1, or 2 for pairs) among the groups from *index to `total`. Every
 * group has the same probability; the chosen groups keep their order. Returns the first element of the next chosen
 * group. Start with listpack_first() and *index 0; continue with the element after the returned group, wanted - 1, and
 * *index, which the call set to the index of the following group. */
uint8_t *listpack_next_random(const uint8_t *lp, uint8_t *element, size_t *index, size_t total, size_t wanted,
                              unsigned group);

/* Checks for a valid listpack. Reads only the `size` bytes. Not deep: checks the header and the end byte. Deep: checks
 * every element, its encoding and backlen, and the number of elements. `visit` (may be NULL) is called for each element
 * and rejects the listpack by returning false. */
bool listpack_validate(const uint8_t *bytes, size_t size, bool deep,
                       bool (*visit)(void *context, const uint8_t *element, size_t index), void *context);
