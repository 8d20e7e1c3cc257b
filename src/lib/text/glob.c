/* glob.c: pattern matching; see glob.h.
 *
 * Every pattern element except * consumes exactly one byte. When an element fails it is enough to let the last star
 * consume one more byte: an earlier star could only shift the remainder to the right, which the last star can do as
 * well. One backtrack point therefore replaces recursion, and the time is O(pattern x text).
 *
 * A long class is read once for a pattern, into a bitmap, which is kept for the next text: a class may have millions of
 * members, and be compared with each byte of a text. Other patterns need neither memory nor preparation.
 *
 * Valkey fails a match that needs more than 1000 stars, not counting one at the end. The limit here is the same, so
 * that both match the same keys and channels.
 *
 * Special cases of the syntax: an unclosed class ends with the pattern; a range may be reversed; ']' directly after '['
 * closes an empty class; a trailing backslash stands for itself; the empty text matches only the empty pattern, not
 * "*". */
#include "lib/text/glob.h"
#include "lib/system/memory.h"
#include <string.h>

enum {
    STARS_MAX = 1000,
    CLASS_SHORT = 64,       /* bytes of a class that is read again at each byte of the text */
    KNOWN_MAX = 1024 * 1024 /* a longer pattern is forgotten after its match */
};

static unsigned char fold(unsigned char c, bool ignore_case) {
    return ignore_case && c >= 'A' && c <= 'Z' ? (unsigned char)(c + 32) : c;
}

/* --- Classes --- */

struct class_reader {
    struct slice pattern;
    size_t at, end; /* it stops at `end`, perhaps within the class */
    bool negated, ended;
};

static void class_open(struct class_reader *reader, struct slice pattern, size_t at, size_t longest) {
    *reader = (struct class_reader){
        .pattern = pattern, .at = at, .end = pattern.len - at < longest ? pattern.len : at + longest};
    if (at < pattern.len && pattern.data[at] == '^') reader->negated = true, reader->at++;
}

/* The next range of bytes; false: there is none, because the class or the part of it to read has ended. */
static bool class_next(struct class_reader *reader, bool ignore_case, unsigned char *first, unsigned char *last) {
    struct slice pattern = reader->pattern;
    size_t p = reader->at;
    if (p >= reader->end) {
        reader->ended = p >= pattern.len;
        return false;
    }
    unsigned char low = (unsigned char)pattern.data[p], high;
    if (low == '\\' && p + 1 < pattern.len) {
        low = high = (unsigned char)pattern.data[++p];
    } else if (low == ']') {
        reader->at = p + 1;
        reader->ended = true;
        return false;
    } else if (p + 2 < pattern.len && pattern.data[p + 1] == '-') {
        high = (unsigned char)pattern.data[p += 2];
        if (low > high) {
            unsigned char swap = low;
            low = high, high = swap;
        }
    } else {
        high = low;
    }
    reader->at = p + 1;
    *first = fold(low, ignore_case), *last = fold(high, ignore_case);
    return true;
}

/* --- Long classes --- */

struct long_class {
    size_t from, to; /* in the pattern: after its '[', after its ']' */
    uint64_t bytes[4];
};
/* Those of the last pattern that had any: KEYS and the like match one pattern against many texts. */
static _Thread_local struct {
    struct slice pattern;
    bool ignore_case;
    struct long_class *classes; /* ascending */
    size_t count, capacity;
} known;

static void known_free(void) {
    mem_free((void *)known.pattern.data);
    mem_free(known.classes);
    known.pattern = (struct slice){NULL, 0};
    known.classes = NULL;
    known.count = known.capacity = 0;
}

static void range_set(uint64_t *bytes, unsigned char low, unsigned char high) {
    for (unsigned c = low; c <= high; c++) bytes[c / 64] |= UINT64_C(1) << c % 64;
}

static bool class_keep(struct class_reader *reader, bool ignore_case) {
    struct long_class class = {.from = reader->at - reader->negated};
    for (unsigned char low, high; class_next(reader, ignore_case, &low, &high);) range_set(class.bytes, low, high);
    for (int i = 0; reader->negated && i < 4; i++) class.bytes[i] = ~class.bytes[i];
    class.to = reader->at;
    if (class.to - class.from <= CLASS_SHORT) return true;
    if (known.count == known.capacity) {
        size_t capacity = known.capacity ? known.capacity * 2 : 1;
        struct long_class *classes = mem_try_realloc(known.classes, capacity * sizeof *classes);
        if (!classes) return false;
        known.classes = classes, known.capacity = capacity;
    }
    known.classes[known.count++] = class;
    return true;
}

/* False: no memory. */
static bool know(struct slice pattern, bool ignore_case) {
    if (known.ignore_case == ignore_case && slice_equal(known.pattern, pattern)) return true;
    known_free();
    char *copy = mem_try_realloc(NULL, pattern.len);
    if (!copy) return false;
    memcpy(copy, pattern.data, pattern.len);
    known.pattern = (struct slice){copy, pattern.len};
    known.ignore_case = ignore_case;
    for (size_t p = 0; p < pattern.len;) {
        char element = pattern.data[p++];
        if (element == '\\') p++;
        if (element != '[') continue;
        struct class_reader reader;
        class_open(&reader, pattern, p, pattern.len);
        if (!class_keep(&reader, ignore_case)) {
            known_free();
            return false;
        }
        p = reader.at;
    }
    return true;
}

static const struct long_class *known_find(size_t from) {
    size_t low = 0, high = known.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (known.classes[middle].from < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low < known.count && known.classes[low].from == from ? &known.classes[low] : NULL;
}

/* Matches one byte against the class whose '[' precedes *at; moves *at past the class. *knows: the long classes of this
 * pattern are known. */
static bool class_match(struct slice pattern, size_t *at, unsigned char c, bool ignore_case, bool *knows) {
    const struct long_class *class = *knows ? known_find(*at) : NULL;
    c = fold(c, ignore_case);
    if (!class) {
        struct class_reader reader;
        bool found = false;
        class_open(&reader, pattern, *at, CLASS_SHORT);
        for (unsigned char low, high; class_next(&reader, ignore_case, &low, &high);) found |= c >= low && c <= high;
        if (!reader.ended && know(pattern, ignore_case)) {
            *knows = true;
            class = known_find(*at);
        }
        if (!class) {
            reader.end = pattern.len;
            for (unsigned char low, high; !reader.ended && class_next(&reader, ignore_case, &low, &high);)
                found |= c >= low && c <= high;
            *at = reader.at;
            return found != reader.negated;
        }
    }
    *at = class->to;
    return class->bytes[c / 64] >> c % 64 & 1;
}

/* Matches one byte against the element at *at (not a star); moves *at past it. */
static bool element_match(struct slice pattern, size_t *at, unsigned char c, bool ignore_case, bool *knows) {
    unsigned char element = (unsigned char)pattern.data[(*at)++];
    if (element == '?') return true;
    if (element == '[') return class_match(pattern, at, c, ignore_case, knows);
    if (element == '\\' && *at < pattern.len) element = (unsigned char)pattern.data[(*at)++];
    return fold(element, ignore_case) == fold(c, ignore_case);
}

static bool match(struct slice pattern, struct slice text, bool ignore_case, bool *knows) {
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
        if (p < pattern.len && element_match(pattern, &p, (unsigned char)text.data[t], ignore_case, knows)) {
            t++;
            continue;
        }
        if (!star) return false;
        p = star_p, t = ++star_t;
    }
    while (p < pattern.len && pattern.data[p] == '*') p++;
    return p == pattern.len;
}

bool glob_match(struct slice pattern, struct slice text, bool ignore_case) {
    bool knows = false, matches = match(pattern, text, ignore_case, &knows);
    if (__builtin_expect(knows && pattern.len > KNOWN_MAX, 0)) known_free();
    return matches;
}
