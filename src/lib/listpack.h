/* listpack.h: a list of short strings and integers in one piece of memory, byte for byte as RDB files and DUMP hold it.
 *
 *     bytes 0-3   length of the whole, little-endian, header and end included
 *     bytes 4-5   number of elements, little-endian; 65535: more than 65534, or unknown: count them
 *     elements
 *     last byte   0xff
 *
 * An element is an encoding, the data that belongs to it, and the length of both once more (backlen), so that it can be
 * walked backwards.
 *
 *     first byte   what follows                what it is
 *     0xxxxxxx                                 integer 0..127
 *     10xxxxxx     x bytes                     string of up to 63 bytes
 *     110xxxxx     1 byte                      integer of 13 bits, two's complement, high bits first: -4096..4095
 *     1110xxxx     1 byte, then x bytes        string of up to 4095 bytes; 12 bits of length, high bits first
 *     11110000     4 bytes of length, bytes    string, length little-endian
 *     11110001     2 bytes                     integer of 16 bits, little-endian, two's complement; the same below
 *     11110010     3 bytes                     24 bits
 *     11110011     4 bytes                     32 bits
 *     11110100     8 bytes                     64 bits
 *     11111111                                 the end
 *
 * The backlen is written high bits first, 7 bits a byte; every byte but the first has its highest bit set, so that it
 * is read from its end:
 *
 *     length of encoding and data     bytes of backlen
 *     0..127                          1
 *     128..16382                      2
 *     16383..2097150                  3
 *     2097151..268435454              4
 *     more                            5
 *
 * A string that is an integer written canonically is always kept as that integer, in the smallest encoding; reading
 * gives the same text again. Nothing else tells "12" from 12.
 *
 * A listpack is a plain pointer to memory of lib/memory.h. Functions that change one return where it is now; pointers
 * to elements got before are dead then. An element is named by a pointer to its first byte; NULL stands for "there is
 * none". Text that is to be stored must not lie in the listpack itself.
 *
 * The format ends at 4 GiB; before adding, callers ask listpack_has_room(), which ends at 1 GiB, and keep their data in
 * another form beyond that. A change that would pass 4 GiB all the same aborts. Except for listpack_validate()
 * everything trusts the bytes: what comes from outside is validated deeply first. */
#ifndef LIB_LISTPACK_H
#define LIB_LISTPACK_H
#include "lib/slice.h"
#include <stdint.h>

enum { LISTPACK_EMPTY_BYTES = 7, LISTPACK_BYTES_MAX = 1 << 30, LISTPACK_TEXT = 24 /* room for an integer as text */ };

/* What an element holds: text, or where data is NULL, a number. An empty string has data. */
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

uint8_t *listpack_new(size_t capacity); /* empty; room for so many bytes at once, 0: just what it needs */
uint8_t *listpack_copy(const uint8_t *lp);
void listpack_free(uint8_t *lp);
uint8_t *listpack_shrink(uint8_t *lp); /* gives back room that was asked for in advance */

size_t listpack_bytes(const uint8_t *lp);
size_t listpack_count(const uint8_t *lp); /* O(1) up to 65534 elements */
/* Bytes that an element takes, backlen included; and the bytes it would take. */
size_t listpack_element_bytes(const uint8_t *element);
size_t listpack_size_of(struct slice text);
size_t listpack_size_of_number(int64_t number);
/* May `more` bytes of elements be added? NULL is an empty listpack. */
bool listpack_has_room(const uint8_t *lp, size_t more);

/* Walking. */
uint8_t *listpack_first(const uint8_t *lp);
uint8_t *listpack_last(const uint8_t *lp);
/* Steps over small elements, which most are, are taken inline; the _any functions are for their use only. */
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
uint8_t *listpack_seek(const uint8_t *lp, int64_t index); /* negative: from the end, -1 is the last */

/* Reading. Text lies in the listpack. */
struct listpack_value listpack_get(const uint8_t *element);
struct slice listpack_value_text(const struct listpack_value *value,
                                 char text[static LISTPACK_TEXT]);                   /* a number is written to `text` */
struct slice listpack_text(const uint8_t *element, char text[static LISTPACK_TEXT]); /* the same */
bool listpack_number_any(const uint8_t *element, int64_t *number);
static inline bool listpack_number(const uint8_t *element,
                                   int64_t *number) { /* false: it is a text, which is no canonical integer then */
    if (*element >= 0x80) return listpack_number_any(element, number);
    *number = *element;
    return true;
}
bool listpack_equal(const uint8_t *element, struct slice text);
/* The first element from `element` on that equals `text`; after each that does not, `skip` elements are passed over
 * unseen (1: values of pairs). */
uint8_t *listpack_find(const uint8_t *lp, const uint8_t *element, struct slice text, unsigned skip);

/* Changing. */
uint8_t *listpack_append(uint8_t *lp, struct slice text);
uint8_t *listpack_append_number(uint8_t *lp, int64_t number);
uint8_t *listpack_prepend(uint8_t *lp, struct slice text);
uint8_t *listpack_append_many(uint8_t *lp, const struct listpack_value *values, size_t count); /* grows once */
uint8_t *listpack_prepend_many(uint8_t *lp, const struct listpack_value *values,
                               size_t count); /* values[0] becomes the first */
/* Inserts before *element; NULL: at the end. *element is the new one afterwards. */
uint8_t *listpack_insert(uint8_t *lp, uint8_t **element, struct listpack_value value);
/* The same for `count` values; *element is the first new one. */
uint8_t *listpack_insert_many(uint8_t *lp, uint8_t **element, const struct listpack_value *values, size_t count);
uint8_t *listpack_replace(uint8_t *lp, uint8_t **element,
                          struct listpack_value value); /* *element is where it is now */
/* Deletes `count` elements from *element on, or as many as there are; *element is the one behind them. */
uint8_t *listpack_delete(uint8_t *lp, uint8_t **element, size_t count);
uint8_t *listpack_delete_range(uint8_t *lp, int64_t index,
                               size_t count); /* index may be negative; one that is not there: nothing is done */
/* The elements of `other` behind those of lp. `other` is freed. */
uint8_t *listpack_merge(uint8_t *lp, uint8_t *other);

/* Choosing `wanted` of the groups of `group` elements (1, 2: pairs) from *index on, of `total` groups, each with the
 * same chance, in their order: returns the first element of the next one chosen. Start with listpack_first() and *index
 * 0; go on with the element behind the group returned, wanted - 1, and *index, which is then that of the group behind
 * it. */
uint8_t *listpack_next_random(const uint8_t *lp, uint8_t *element, size_t *index, size_t total, size_t wanted,
                              unsigned group);

/* Is this a listpack? Looks at nothing outside of the `size` bytes. Not deep: at the header and the end only. Deep: at
 * every element, its encoding, its backlen and the number of elements; `seen` (may be NULL) is called for each, and may
 * refuse by false. */
bool listpack_validate(const uint8_t *bytes, size_t size, bool deep,
                       bool (*seen)(void *context, const uint8_t *element, size_t index), void *context);
#endif
