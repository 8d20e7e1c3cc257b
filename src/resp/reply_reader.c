/* reply_reader.c: see reply_reader.h.
 *
 * Counting needs no stack: one number holds the missing elements of a whole reply over all nesting levels. An aggregate
 * of n adds n and subtracts itself; at zero the reply is complete. */
#include "resp/reply_reader.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include <stdio.h>

static bool is_type(char type) {
    return type && strchr("+-:$*_,#(=!%~>|", type);
}

/* Finds the end of the line at `at`, sets `*text` to the line and returns the start of the next one. NULL: incomplete.
 * Nearly all lines are short: comparing a few bytes costs less than a call of memchr. */
static inline const char *line_read(const char *at, const char *end, size_t scanned, struct slice *text) {
    const char *from = at + scanned, *near = end - from > 16 ? from + 16 : end;
    while (from < near && *from != '\r') from++;
    const char *cr = from < near ? from : from < end ? memchr(from, '\r', (size_t)(end - from)) : NULL;
    if (!cr || end - cr < 2) return NULL;
    *text = (struct slice){at + 1, (size_t)(cr - at - 1)};
    return cr + 2;
}

/* --- Counting --- */

static inline bool length_parse(struct slice text, int64_t *value) {
    /* Nearly all lengths have one to four digits; the general code handles the rest, including signs and invalid input.
     */
    int64_t sum = 0;
    if (__builtin_expect(text.len - 1 < 4, 1)) {
        size_t i = 0;
        for (; i < text.len && (unsigned char)(text.data[i] - '0') < 10; i++) sum = sum * 10 + (text.data[i] - '0');
        if (i == text.len) {
            *value = sum;
            return true;
        }
    }
    return parse_int64(text, value) && *value >= -1;
}

static const uint64_t MISSING_MAX = UINT64_C(1) << 60;

/* Processes the head of an element of type `type`; `first`: it starts a reply. False: invalid. */
static bool element_count(struct reply_counter *c, char type, struct slice text, bool first) {
    int64_t len;
    switch (type) {
    case '-':
        if (first) {
            c->errors++;
            snprintf(c->error_text, sizeof c->error_text, "%.*s", (int)(text.len < 255 ? text.len : 255), text.data);
        }
        c->missing--;
        return true;
    case '+':
    case ':':
    case '_':
    case ',':
    case '#':
    case '(': c->missing--; return true;
    case '$':
    case '=':
    case '!':
        if (!length_parse(text, &len) || (len < 0 && type != '$')) return false;
        if (type == '!' && first) {
            c->errors++;
            strcpy(c->error_text, "an error in the form of a bulk");
        }
        if (len < 0)
            c->missing--;
        else
            c->skip = (uint64_t)len + 2;
        return true;
    case '*':
    case '~':
    case '%':
    case '>':
    case '|':
        if (!length_parse(text, &len) || (len < 0 && type != '*')) return false;
        if (len < 0) len = 0;
        if ((uint64_t)len > MISSING_MAX / 4 || c->missing > MISSING_MAX) return false;
        if (type == '%' || type == '|') len *= 2;
        if (first && (type == '>' || type == '|')) c->aside = true;
        /* An attribute inside a reply precedes its element, which is still to come. */
        if (type != '|' || first) c->missing--;
        c->missing += (uint64_t)len;
        return true;
    default: return false;
    }
}

/* An element has ended. Returns the number of replies that end with it. */
static int reply_ended(struct reply_counter *c) {
    if (c->missing) return 0;
    int count = !c->aside;
    c->aside = false;
    return count;
}

int64_t reply_count(struct reply_counter *c, struct slice input, int64_t limit, size_t *used) {
    const char *at = input.data, *end = input.data + input.len;
    int64_t count = 0;
    while (at < end && count < limit) {
        if (c->skip) {
            uint64_t here = (uint64_t)(end - at) < c->skip ? (uint64_t)(end - at) : c->skip;
            at += here;
            c->skip -= here;
            if (c->skip) break;
            c->missing--;
        } else {
            struct slice text;
            const char *next = line_read(at, end, c->scanned ? c->scanned : 1, &text);
            if (!next) {
                if (end - at > REPLY_LINE_MAX || !is_type(*at)) return -1;
                c->scanned = (size_t)(end - at) - 1;
                break;
            }
            c->scanned = 0;
            bool first = c->missing == 0;
            if (first) c->missing = 1;
            if (!element_count(c, *at, text, first)) return -1;
            at = next;
        }
        count += reply_ended(c);
    }
    *used = (size_t)(at - input.data);
    return count;
}

int reply_skipped(struct reply_counter *c) {
    c->skip = 0;
    c->missing--;
    return reply_ended(c);
}

/* --- Trees --- */

void resp_value_free(struct resp_value *value) {
    for (size_t i = 0; i < value->count; i++) resp_value_free(&value->children[i]);
    mem_free(value->children);
    mem_free((char *)value->text.data);
    memset(value, 0, sizeof *value);
}

const struct resp_value *resp_value_get(const struct resp_value *map, const char *key) {
    if (map->type != RESP_MAP && map->type != RESP_ARRAY) return NULL;
    for (size_t i = 0; i + 1 < map->count; i += 2) {
        if (slice_is(map->children[i].text, key)) return &map->children[i + 1];
    }
    return NULL;
}

void reply_reader_init(struct reply_reader *reader) {
    memset(reader, 0, sizeof *reader);
}

void reply_reader_free(struct reply_reader *reader) {
    resp_value_free(&reader->value);
    mem_free(reader->stack);
    reply_reader_init(reader);
}

static enum reply_status reply_fail(struct reply_reader *reader, const char *text) {
    snprintf(reader->error, sizeof reader->error, "%s", text);
    return REPLY_FAILED;
}

/* Returns the value for the next element: the reply itself, or a new child of the innermost open aggregate. NULL: out
 * of memory. */
static struct resp_value *element_new(struct reply_reader *reader) {
    if (reader->depth == 0) return &reader->value;
    struct resp_value *parent = reader->stack[reader->depth - 1].value;
    if (parent->count == parent->capacity) {
        size_t capacity = parent->capacity ? parent->capacity * 2 : 4;
        struct resp_value *children = mem_try_realloc(parent->children, capacity * sizeof *children);
        if (!children) return NULL;
        parent->children = children;
        parent->capacity = capacity;
    }
    struct resp_value *value = &parent->children[parent->count++];
    memset(value, 0, sizeof *value);
    return value;
}

/* Completes an element, and every aggregate whose last element it is. */
static void element_done(struct reply_reader *reader) {
    while (reader->depth > 0) {
        struct reply_frame *frame = &reader->stack[reader->depth - 1];
        if (frame->missing > 0 && --frame->missing > 0) return;
        reader->depth--;
        /* An attribute inside an aggregate does not count as an element. */
        if (reader->depth > 0 && frame->value->type == RESP_ATTRIBUTE) return;
    }
    reader->complete = true;
}

static bool aggregate_open(struct reply_reader *reader, struct resp_value *value, uint64_t missing) {
    if (reader->depth == REPLY_DEPTH_MAX) return false;
    mem_grow(reader->stack, reader->depth, reader->stack_capacity, 8);
    reader->stack[reader->depth++] = (struct reply_frame){value, missing};
    return true;
}

/* Reads bytes of a string; its memory grows as they arrive. */
static enum reply_status bulk_read(struct reply_reader *reader, const char **at, const char *end) {
    struct resp_value *value = reader->bulk;
    while (reader->bulk_missing > 0 && *at < end) {
        size_t here = (size_t)(end - *at);
        if (here > reader->bulk_missing) here = (size_t)reader->bulk_missing;
        if (value->text.len + here > reader->bulk_capacity) {
            size_t capacity = (value->text.len + here) * 2;
            if (capacity - value->text.len > reader->bulk_missing)
                capacity = value->text.len + (size_t)reader->bulk_missing;
            char *data = mem_try_realloc((char *)value->text.data, capacity + 1);
            if (!data) return reply_fail(reader, "not enough memory for the reply");
            value->text.data = data;
            reader->bulk_capacity = capacity;
        }
        memcpy((char *)value->text.data + value->text.len, *at, here);
        value->text.len += here;
        reader->bulk_missing -= here;
        *at += here;
    }
    if (reader->bulk_missing > 0 || end - *at < 2) return REPLY_PARTIAL;
    *at += 2;
    if (!value->text.data) value->text.data = mem_alloc(1);
    ((char *)value->text.data)[value->text.len] = '\0';
    reader->bulk = NULL;
    if (value->type == RESP_VERBATIM) {
        if (value->text.len < 4 || value->text.data[3] != ':')
            return reply_fail(reader, "a verbatim string without a format");
        memcpy(value->extension, value->text.data, 3);
        value->text.len -= 4;
        memmove((char *)value->text.data, value->text.data + 4, value->text.len + 1);
    }
    element_done(reader);
    return REPLY_READY;
}

static enum reply_status scalar_read(struct reply_reader *reader, struct resp_value *value, struct slice text) {
    switch (value->type) {
    case RESP_INTEGER:
        if (!parse_int64(text, &value->integer)) return reply_fail(reader, "not an integer");
        break;
    case RESP_BOOLEAN:
        if (text.len != 1 || (text.data[0] != 't' && text.data[0] != 'f')) return reply_fail(reader, "not a boolean");
        value->integer = text.data[0] == 't';
        break;
    case RESP_DOUBLE: {
        double number;
        if (!slice_is(text, "nan") && !slice_is(text, "-nan") && !parse_double(text, &number)) {
            return reply_fail(reader, "not a double");
        }
        break;
    }
    case RESP_BIG_NUMBER:
        for (size_t i = 0; i < text.len; i++) {
            bool sign = i == 0 && text.len > 1 && (text.data[0] == '-' || text.data[0] == '+');
            if (!sign && (text.data[i] < '0' || text.data[i] > '9')) return reply_fail(reader, "not a big number");
        }
        if (text.len == 0) return reply_fail(reader, "not a big number");
        break;
    default: break;
    }
    value->text = (struct slice){mem_strndup(text.data, text.len), text.len};
    element_done(reader);
    return REPLY_READY;
}

static enum reply_status element_read(struct reply_reader *reader, char type, struct slice text) {
    int64_t len = 0;
    bool has_length = strchr("$=!*~%>|", type) != NULL;
    int64_t least = type == '$' || type == '*' ? -1 : 0; /* RESP2 nulls; types of RESP3 have no -1 */
    if (has_length && (!parse_int64(text, &len) || len < least || len > INT64_MAX / 4)) {
        return reply_fail(reader, "a length that cannot be");
    }
    struct resp_value *value = element_new(reader);
    if (!value) return reply_fail(reader, "not enough memory for the reply");
    value->type = type == '!' ? RESP_ERROR : (enum resp_type)type;
    if (!has_length) return scalar_read(reader, value, text);
    if (len < 0) {
        value->type = RESP_NULL;
        element_done(reader);
        return REPLY_READY;
    }
    if (type == '$' || type == '=' || type == '!') {
        reader->bulk = value;
        reader->bulk_missing = (uint64_t)len;
        reader->bulk_capacity = 0;
        return REPLY_READY;
    }
    if (type == '%' || type == '|') len *= 2;
    if (!aggregate_open(reader, value, (uint64_t)len)) return reply_fail(reader, "nested too deeply");
    if (len == 0) element_done(reader);
    return REPLY_READY;
}

enum reply_status reply_read(struct reply_reader *reader, struct slice input, size_t *used) {
    const char *at = input.data, *end = input.data + input.len;
    enum reply_status status = REPLY_READY;
    if (reader->complete) {
        resp_value_free(&reader->value);
        reader->complete = false;
    }
    while (!reader->complete && status == REPLY_READY) {
        if (reader->bulk) {
            status = bulk_read(reader, &at, end);
            continue;
        }
        if (at < end && !is_type(*at)) {
            snprintf(reader->error, sizeof reader->error, "got \"%c\" as reply type byte",
                     *at >= ' ' && *at <= '~' ? *at : '?');
            status = REPLY_FAILED;
            break;
        }
        struct slice text;
        const char *next = at < end ? line_read(at, end, reader->scanned ? reader->scanned : 1, &text) : NULL;
        if (!next) {
            size_t have = (size_t)(end - at);
            reader->scanned = have > 1 ? have - 1 : 0;
            status = have > REPLY_LINE_MAX ? reply_fail(reader, "a line without end") : REPLY_PARTIAL;
        } else {
            reader->scanned = 0;
            status = element_read(reader, *at, text);
            at = next;
        }
    }
    *used = (size_t)(at - input.data);
    return status;
}
