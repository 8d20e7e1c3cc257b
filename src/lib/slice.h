/* slice.h: bytes that somebody else owns. A slice is passed by value, never frees anything, is not NUL-terminated and
 * may hold any byte. It is valid as long as its owner says. */
#ifndef LIB_SLICE_H
#define LIB_SLICE_H
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
/* Compares with a keyword; ASCII case does not matter. */
static inline bool slice_is(struct slice a, const char *keyword) {
    size_t len = strlen(keyword);
    return a.len == len && strncasecmp(a.data, keyword, len) == 0;
}
/* memcmp order, the shorter first where one is the beginning of the other. */
static inline int slice_compare(struct slice a, struct slice b) {
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len ? memcmp(a.data, b.data, len) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}
#endif
