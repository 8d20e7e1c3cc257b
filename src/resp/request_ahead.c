/* request_ahead.c: see request_ahead.h. */
#include "resp/request_ahead.h"

enum { DIGITS_MAX = 5, ARGUMENTS_MAX = 64 };

/* Reads "<type>123\r\n" at *at. Negative: something else, or incomplete. */
static inline long length_at(const char **at, const char *end, char type) {
    const char *p = *at;
    if (end - p < 4 || *p++ != type) return -1;
    long value = 0;
    const char *first = p;
    for (; p < end && p - first <= DIGITS_MAX && (unsigned char)(*p - '0') < 10; p++) value = value * 10 + (*p - '0');
    if (end - p < 2 || p == first || *p != '\r') return -1;
    *at = p + 2;
    return value;
}

/* Moves *at past a complete request. False: there is none. */
static bool request_pass(const char **at, const char *end, struct slice *key) {
    const char *p = *at;
    long arguments = length_at(&p, end, '*');
    if (arguments < 1 || arguments > ARGUMENTS_MAX) return false;
    for (long i = 0; i < arguments; i++) {
        long len = length_at(&p, end, '$');
        if (len < 0 || end - p < len + 2) return false;
        if (i == 1) *key = (struct slice){p, (size_t)len};
        p += len + 2;
    }
    *at = p;
    return true;
}

int request_ahead(struct slice input, struct slice *argv, int max, size_t *size) {
    const char *p = input.data, *end = p + input.len;
    long arguments = length_at(&p, end, '*');
    if (arguments < 1 || arguments > max) return 0;
    for (long i = 0; i < arguments; i++) {
        long len = length_at(&p, end, '$');
        if (len < 0 || end - p < len + 2) return 0;
        argv[i] = (struct slice){p, (size_t)len};
        p += len + 2;
    }
    *size = (size_t)(p - input.data);
    return (int)arguments;
}

size_t requests_ahead(struct slice input, struct slice *keys, size_t max, size_t *scanned) {
    const char *at = input.data, *end = at + input.len;
    size_t count = 0;
    for (size_t i = 0; i < max; i++) {
        struct slice key = {NULL, 0};
        if (!request_pass(&at, end, &key)) break;
        if (key.data) keys[count++] = key;
    }
    *scanned = (size_t)(at - input.data);
    return count;
}
