/* info_text.c: the INFO texts of all servers, for INFO-CACHE.
 *
 * It is seldom asked for, and these texts, 6 KB each, would be most of what a server costs. The texts of servers of one
 * role differ in some values only: each is kept as its difference from a reference text, the first that came from a
 * server of this role, and compressed.
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

enum { EQUAL = 0x80, LITERAL = 0x7f, SKIP_MAX = 100, PREFIX_MAX = 255, REFERENCE_LINES_MAX = 4096 };

struct info_reference {
    char *text;
    size_t count;
    struct info_line {
        struct slice text; /* with its newline */
        size_t name;       /* length of "name:"; 0: it has none */
    } lines[];
};

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

static struct info_reference *reference_new(struct slice text) {
    size_t count = 0;
    struct slice rest = text;
    for (; rest.len && count < REFERENCE_LINES_MAX; count++) next_line(&rest);
    struct info_reference *reference = mem_calloc(1, sizeof *reference + count * sizeof *reference->lines);
    text.len -= rest.len;
    reference->text = mem_strndup(text.data, text.len);
    rest = slice_make(reference->text, text.len);
    for (; reference->count < count; reference->count++) {
        struct slice line = next_line(&rest);
        reference->lines[reference->count] = (struct info_line){line, name_len(line)};
    }
    return reference;
}
void info_references_free(struct sentinel *s) {
    for (size_t i = 0; i < sizeof s->info_references / sizeof *s->info_references; i++) {
        if (s->info_references[i]) mem_free(s->info_references[i]->text);
        mem_free(s->info_references[i]);
    }
}

/* `delta` has room for twice the text. Returns its length. */
static size_t write_delta(struct slice text, const struct info_reference *reference, char *delta) {
    char *at = delta;
    size_t next = 0; /* line of the reference */
    while (text.len) {
        struct slice line = next_line(&text);
        size_t name = name_len(line), end = next + SKIP_MAX, used = 0, i = next;
        bool equal = false, found = false;
        if (end > reference->count) end = reference->count;
        for (; i < end && !found; i++) {
            const struct info_line *known = &reference->lines[i];
            equal = slice_equal(known->text, line);
            found = equal || (name && known->name == name && memcmp(known->text.data, line.data, name) == 0);
        }
        size_t skip = i - next - 1;
        if (equal) {
            *at++ = (char)(EQUAL + skip);
            used = line.len;
        } else if (found) {
            *at++ = (char)skip;
            *at++ = (char)name;
            used = name;
        } else {
            *at++ = LITERAL;
        }
        if (found) next = i;
        memcpy(at, line.data + used, line.len - used);
        at += line.len - used;
    }
    return (size_t)(at - delta);
}
/* The inverse. `text` has room for its known length. */
static void read_delta(struct slice delta, const struct info_reference *reference, char *text) {
    size_t next = 0;
    while (delta.len) {
        unsigned char kind = (unsigned char)*delta.data;
        struct slice known = {NULL, 0};
        delta.data++, delta.len--;
        if (kind != LITERAL) {
            next += (kind & ~(unsigned)EQUAL) + 1;
            known = reference->lines[next - 1].text;
        }
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

void info_text_keep(struct sentinel *s, struct instance *i, struct slice text) {
    char *delta = mem_try_alloc(text.len * 2 + 1);
    char *packed = delta ? mem_try_alloc(text.len * 2 + 1) : NULL;
    if (packed) {
        struct info_reference **reference = &s->info_references[(i->flags & INSTANCE_PRIMARY) != 0];
        if (!*reference && text.len) *reference = reference_new(text);
        i->info_reference = *reference;
        i->info_len = text.len;
        i->info_delta_len = write_delta(text, i->info_reference, delta);
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
    if (text) read_delta(slice_make(delta ? delta : i->info, i->info_delta_len), i->info_reference, text);
    mem_free(delta);
    return text;
}
