/* slice.h: a reference to bytes that another object owns. A slice is passed by value and does not own its bytes. It may
 * hold any byte and is not NUL-terminated. The owner determines how long it stays valid. */
#ifndef LIB_TEXT_SLICE_H
#define LIB_TEXT_SLICE_H
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

struct slice {
    const char *data;
    size_t len;
};

#define SLICE(literal) ((struct slice){(literal), sizeof(literal) - 1})

static inline struct slice slice_of(const char *text) {
    return (struct slice){text, strlen(text)};
}
static inline struct slice slice_make(const void *data, size_t len) {
    return (struct slice){data, len};
}
static inline bool slice_equal(struct slice a, struct slice b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}
/* Compares with a keyword, ignoring ASCII case. */
static inline bool slice_is(struct slice a, const char *keyword) {
    size_t len = strlen(keyword);
    return a.len == len && strncasecmp(a.data, keyword, len) == 0;
}
/* memcmp order; a prefix sorts before the longer slice. */
static inline int slice_compare(struct slice a, struct slice b) {
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len ? memcmp(a.data, b.data, len) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}
#endif
