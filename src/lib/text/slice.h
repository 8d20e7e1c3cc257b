/* slice.h: a reference to bytes that another object owns. A slice is passed by value and does not own its bytes. It may
 * hold any byte and is not NUL-terminated. The owner determines how long it stays valid. */
#pragma once
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
static inline bool slice_starts(struct slice text, const char *start) {
    size_t len = strlen(start);
    return text.len >= len && memcmp(text.data, start, len) == 0;
}
/* Removes the first line, with its newline, from `rest`, which is not empty. Returns it without the newline. */
static inline struct slice slice_take_line(struct slice *rest) {
    const char *end = memchr(rest->data, '\n', rest->len);
    struct slice line = {rest->data, end ? (size_t)(end - rest->data) : rest->len};
    size_t used = line.len + (end != NULL);
    *rest = slice_make(rest->data + used, rest->len - used);
    return line;
}
/* memcmp order; a prefix sorts before the longer slice. */
static inline int slice_compare(struct slice a, struct slice b) {
    size_t len = a.len < b.len ? a.len : b.len;
    int order = len ? memcmp(a.data, b.data, len) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}
