/* glob.c: pattern matching; see glob.h.
 *
 * Every element of a pattern but * eats exactly one byte. So when an element fails it is enough to let the LAST star
 * seen eat one byte more: an earlier star could only move the whole remainder further right, where the later star can
 * bring it as well. One remembered place therefore replaces recursion, and the time is at most pattern x text.
 *
 * Oddities that are part of the language: a class that is never closed ends with the pattern; a range may be written
 * backwards; a ']' directly behind '[' closes an empty class; a backslash at the very end stands for itself; the empty
 * text matches the empty pattern only, not even "*". */
#include "lib/glob.h"

static unsigned char fold(unsigned char c, bool ignore_case) {
    return ignore_case && c >= 'A' && c <= 'Z' ? (unsigned char)(c + 32) : c;
}

/* Matches one byte against the class whose '[' stands before *at, and moves *at behind the class. */
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

/* Matches one byte against the element at *at (not a star) and moves *at behind it. */
static bool element_match(struct slice pattern, size_t *at, unsigned char c, bool ignore_case) {
    unsigned char element = (unsigned char)pattern.data[(*at)++];
    if (element == '?') return true;
    if (element == '[') return class_match(pattern, at, c, ignore_case);
    if (element == '\\' && *at < pattern.len) element = (unsigned char)pattern.data[(*at)++];
    return fold(element, ignore_case) == fold(c, ignore_case);
}

bool glob_match(struct slice pattern, struct slice text, bool ignore_case) {
    if (text.len == 0) return pattern.len == 0;
    size_t p = 0, t = 0, star_p = 0, star_t = 0;
    bool star = false;
    while (t < text.len) {
        if (p < pattern.len && pattern.data[p] == '*') {
            star = true, star_p = ++p, star_t = t;
            if (p == pattern.len) return true;
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
