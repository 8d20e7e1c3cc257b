/* info_text.c: the INFO texts of all servers, for INFO-CACHE.
 *
 * It is seldom asked for, and these texts, 6 KB each, would be most of what a server costs. The texts of servers differ
 * in some values only: each is kept as its difference from one reference text, the first that came, and compressed.
 *
 * The difference has a record for each line of the text:
 *
 *     0x80 + SKIP            the reference's line that follows SKIP others after the last one used
 *     SKIP LENGTH rest       that line's first LENGTH bytes, then the rest
 *     0x7f line              a line that the reference does not have */
#include "lib/system/memory.h"
#include "lib/text/lzf.h"
#include "sentinel/protocol/machine.h"
#include <string.h>

enum { EQUAL = 0x80, LITERAL = 0x7f, SKIP_MAX = 100, PREFIX_MAX = 255 };

/* Takes the next line, with its newline, from a text. */
static struct slice next_line(struct slice *text) {
    const char *newline = text->len ? memchr(text->data, '\n', text->len) : NULL;
    size_t len = newline ? (size_t)(newline - text->data) + 1 : text->len;
    struct slice line = slice_make(text->data, len);
    text->data += len, text->len -= len;
    return line;
}
/* The length of "name:", 0 if there is none. */
static size_t name_len(struct slice line) {
    const char *colon = line.len ? memchr(line.data, ':', line.len) : NULL;
    size_t len = colon ? (size_t)(colon - line.data) + 1 : 0;
    return len <= PREFIX_MAX ? len : 0;
}

/* `delta` has room for twice the text. Returns its length. */
static size_t write_delta(struct slice text, struct slice reference, char *delta) {
    char *at = delta;
    while (text.len) {
        struct slice line = next_line(&text), search = reference;
        size_t name = name_len(line), skip = 0, used = 0;
        bool equal = false, found = false;
        for (; skip < SKIP_MAX && search.len && !found; skip++) {
            struct slice known = next_line(&search);
            equal = slice_equal(known, line);
            found = equal || (name && name_len(known) == name && memcmp(known.data, line.data, name) == 0);
        }
        if (equal) {
            *at++ = (char)(EQUAL + skip - 1);
            used = line.len;
        } else if (found) {
            *at++ = (char)(skip - 1);
            *at++ = (char)name;
            used = name;
        } else {
            *at++ = LITERAL;
        }
        if (found) reference = search;
        memcpy(at, line.data + used, line.len - used);
        at += line.len - used;
    }
    return (size_t)(at - delta);
}
/* The inverse. `text` has room for its known length. */
static void read_delta(struct slice delta, struct slice reference, char *text) {
    while (delta.len) {
        unsigned char kind = (unsigned char)*delta.data;
        struct slice known = {NULL, 0};
        delta.data++, delta.len--;
        if (kind != LITERAL)
            for (int skip = kind & ~EQUAL; skip >= 0; skip--) known = next_line(&reference);
        if (kind < LITERAL) {
            known.len = (unsigned char)*delta.data;
            delta.data++, delta.len--;
        }
        if (known.len) memcpy(text, known.data, known.len);
        text += known.len;
        if (kind & EQUAL) continue;
        struct slice rest = next_line(&delta);
        memcpy(text, rest.data, rest.len);
        text += rest.len;
    }
}

static struct slice reference_of(const struct sentinel *s) {
    return slice_make(s->info_reference ? s->info_reference : "", s->info_reference_len);
}

void info_text_keep(struct sentinel *s, struct instance *i, struct slice text) {
    char *delta = mem_try_alloc(text.len * 2 + 1);
    char *packed = delta ? mem_try_alloc(text.len * 2 + 1) : NULL;
    if (packed) {
        if (!s->info_reference && text.len) {
            s->info_reference = mem_strndup(text.data, text.len);
            s->info_reference_len = text.len;
        }
        i->info_len = text.len;
        i->info_delta_len = write_delta(text, reference_of(s), delta);
        i->info_packed_len = lzf_pack(slice_make(delta, i->info_delta_len), packed, i->info_delta_len / 4 * 3);
        mem_free(i->info);
        i->info = i->info_packed_len ? mem_strndup(packed, i->info_packed_len) : mem_strndup(delta, i->info_delta_len);
    }
    mem_free(delta);
    mem_free(packed);
}

char *sentinel_info_text(const struct sentinel *s, const struct instance *i) {
    char *text = i->info ? mem_try_alloc(i->info_len + 1) : NULL;
    char *delta = text && i->info_packed_len ? mem_try_alloc(i->info_delta_len + 1) : NULL;
    if (delta) lzf_unpack(slice_make(i->info, i->info_packed_len), delta, i->info_delta_len);
    if (text && i->info_packed_len && !delta) {
        mem_free(text);
        return NULL;
    }
    if (text) read_delta(slice_make(delta ? delta : i->info, i->info_delta_len), reference_of(s), text);
    mem_free(delta);
    return text;
}
