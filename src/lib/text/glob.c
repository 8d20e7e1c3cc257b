/* glob.c: pattern matching; see glob.h.
 *
 * Every pattern element except * consumes exactly one byte. When an element fails it is enough to let the last star
 * consume one more byte: an earlier star could only shift the remainder to the right, which the last star can do as
 * well. One backtrack point therefore replaces recursion, and the time is O(pattern x text).
 *
 * Valkey fails a match that needs more than 1000 stars, not counting one at the end. The limit here is the same, so
 * that both match the same keys and channels.
 *
 * Special cases of the syntax: an unclosed class ends with the pattern; a range may be reversed; ']' directly after '['
 * closes an empty class; a trailing backslash stands for itself; the empty text matches only the empty pattern, not
 * "*". */
#include "lib/text/glob.h"

static unsigned char fold(unsigned char c, bool ignore_case) {
    return ignore_case && c >= 'A' && c <= 'Z' ? (unsigned char)(c + 32) : c;
}

/* Matches one byte against the class whose '[' precedes *at; moves *at past the class. */
static bool class_match(struct slice pattern, size_t *at, unsigned char c, bool ignore_case) {
    size_t p = *at;
    bool negated = p < pattern.len && pattern.data[p] == '^', found = false;
    if (negated) p++;
    c = fold(c, ignore_case);
    for (; p < pattern.len; p++) {
        unsigned char low = (unsigned char)pattern.data[p], high;
        if (low == '\\' && p + 1 < pattern.len) {
            low = high = (unsigned char)pattern.data[++p];
        } else if (low == ']') {
            p++;
            break;
        } else if (p + 2 < pattern.len && pattern.data[p + 1] == '-') {
            high = (unsigned char)pattern.data[p += 2];
            if (low > high) {
                unsigned char swap = low;
                low = high, high = swap;
            }
        } else {
            high = low;
        }
        low = fold(low, ignore_case), high = fold(high, ignore_case);
        if (c >= low && c <= high) found = true;
    }
    *at = p;
    return found != negated;
}

/* Matches one byte against the element at *at (not a star); moves *at past it. */
static bool element_match(struct slice pattern, size_t *at, unsigned char c, bool ignore_case) {
    unsigned char element = (unsigned char)pattern.data[(*at)++];
    if (element == '?') return true;
    if (element == '[') return class_match(pattern, at, c, ignore_case);
    if (element == '\\' && *at < pattern.len) element = (unsigned char)pattern.data[(*at)++];
    return fold(element, ignore_case) == fold(c, ignore_case);
}

enum { STARS_MAX = 1000 };

bool glob_match(struct slice pattern, struct slice text, bool ignore_case) {
    if (text.len == 0) return pattern.len == 0;
    size_t p = 0, t = 0, star_p = 0, star_t = 0;
    bool star = false;
    int stars = 0;
    while (t < text.len) {
        if (p < pattern.len && pattern.data[p] == '*') {
            while (p < pattern.len && pattern.data[p] == '*') p++; /* a run of stars is one */
            if (p == pattern.len) return true;
            if (++stars > STARS_MAX) return false;
            star = true, star_p = p, star_t = t;
            continue;
        }
        if (p < pattern.len && element_match(pattern, &p, (unsigned char)text.data[t], ignore_case)) {
            t++;
            continue;
        }
        if (!star) return false;
        p = star_p, t = ++star_t;
    }
    while (p < pattern.len && pattern.data[p] == '*') p++;
    return p == pattern.len;
}
