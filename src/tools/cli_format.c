/* cli_format.c: replies as text, in the formats of Valkey's tool: standard, raw, CSV and JSON. Scripts parse this
 * output, so it matches in every detail. */
#include "tools/cli_format.h"
#include <stdio.h>

static void cli_format_put(struct output *out, const char *text) {
    output_write(out, slice_of(text));
}
static void put_char(struct output *out, char c) {
    output_write(out, (struct slice){&c, 1});
}

/* How characters are escaped in quoted strings of Valkey, or of JSON. */
struct escapes {
    const char *characters, *letters; /* these characters become \\ and the corresponding letter */
    const char *other;                /* printf format of other escaped characters */
    unsigned char last;               /* characters from ' ' to this one are not escaped */
};
static const struct escapes quoted_escapes = {"\\\"\n\r\t\a\b", "\\\"nrtab", "\\x%02x", '~'};
static const struct escapes json_escapes = {"\\\"\n\r\t\f\b", "\\\"nrtfb", "\\u%04x", 0xff};

/* Writes the text between the quotes. */
static void escape(struct output *out, struct slice text, const struct escapes *escapes) {
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        const char *at = c ? strchr(escapes->characters, c) : NULL;
        char escaped[8];
        if (at) {
            output_write(out, (struct slice){(char[]){'\\', escapes->letters[at - escapes->characters]}, 2});
        } else if (c >= ' ' && c <= escapes->last) {
            put_char(out, (char)c);
        } else {
            snprintf(escaped, sizeof escaped, escapes->other, c);
            cli_format_put(out, escaped);
        }
    }
}

void format_quoted(struct output *out, struct slice text) {
    put_char(out, '"');
    escape(out, text, &quoted_escapes);
    put_char(out, '"');
}

/* --- Standard --- */

static void format_tty(struct output *out, const struct resp_value *v, const char *prefix, size_t prefix_len);

static void format_map_value(struct output *out, const struct resp_value *value, const char *prefix,
                             size_t prefix_len) {
    cli_format_put(out, " => ");
    bool nested = value->count == 1 && resp_is_aggregate(&value->children[0]) && value->children[0].count > 0;
    if (resp_is_aggregate(value) && (nested || value->count > (value->type == RESP_MAP ? 2u : 1u))) {
        put_char(out, '\n');
        output_write(out, (struct slice){prefix, prefix_len});
    }
    format_tty(out, value, prefix, prefix_len);
}

static void format_aggregate(struct output *out, const struct resp_value *v, const char *prefix, size_t prefix_len) {
    bool map = v->type == RESP_MAP || v->type == RESP_ATTRIBUTE;
    if (v->count == 0) {
        cli_format_put(out, map                    ? "(empty hash)\n"
                            : v->type == RESP_SET  ? "(empty set)\n"
                            : v->type == RESP_PUSH ? "(empty push)\n"
                                                   : "(empty array)\n");
        return;
    }
    char mark = map ? '#' : v->type == RESP_SET ? '~' : ')';
    size_t count = map ? v->count / 2 : v->count;
    int width = 1;
    for (size_t left = count; left >= 10; left /= 10) width++;
    /* Nested elements are indented by the width of the element's number. */
    char inner[1024];
    size_t inner_len = prefix_len + (size_t)width + 2;
    if (inner_len >= sizeof inner) inner_len = sizeof inner - 1;
    memcpy(inner, prefix, prefix_len < inner_len ? prefix_len : inner_len);
    if (inner_len > prefix_len) memset(inner + prefix_len, ' ', inner_len - prefix_len);
    for (size_t i = 0; i < count; i++) {
        char number[40];
        if (i > 0) output_write(out, (struct slice){prefix, prefix_len});
        snprintf(number, sizeof number, "%*zu%c ", width < 20 ? width : 20, i + 1, mark);
        cli_format_put(out, number);
        if (!map) {
            format_tty(out, &v->children[i], inner, inner_len);
            continue;
        }
        struct memory_output key = MEMORY_OUTPUT_INIT;
        format_tty(&key.out, &v->children[2 * i], inner, inner_len);
        struct slice text = memory_output_slice(&key);
        if (text.len && text.data[text.len - 1] == '\n') text.len--;
        output_write(out, text);
        memory_output_free(&key);
        format_map_value(out, &v->children[2 * i + 1], inner, inner_len);
    }
}

static void format_tty(struct output *out, const struct resp_value *v, const char *prefix, size_t prefix_len) {
    switch (v->type) {
    case RESP_ERROR: cli_format_put(out, "(error) "); break;
    case RESP_INTEGER: cli_format_put(out, "(integer) "); break;
    case RESP_DOUBLE: cli_format_put(out, "(double) "); break;
    case RESP_BIG_NUMBER: cli_format_put(out, "(big number) "); break;
    case RESP_NULL: cli_format_put(out, "(nil)\n"); return;
    case RESP_BOOLEAN: cli_format_put(out, v->integer ? "(true)\n" : "(false)\n"); return;
    case RESP_BULK:
        format_quoted(out, v->text);
        put_char(out, '\n');
        return;
    case RESP_STATUS:
    case RESP_VERBATIM: break;
    default: format_aggregate(out, v, prefix, prefix_len); return;
    }
    output_write(out, v->text);
    put_char(out, '\n');
}

/* --- Raw --- */

void format_raw(struct output *out, const struct resp_value *v, const char *delimiter) {
    switch (v->type) {
    case RESP_NULL: return;
    case RESP_BOOLEAN: cli_format_put(out, v->integer ? "(true)" : "(false)"); return;
    case RESP_ERROR:
        output_write(out, v->text);
        put_char(out, '\n');
        return;
    case RESP_MAP:
        for (size_t i = 0; i + 1 < v->count; i += 2) {
            if (i) cli_format_put(out, delimiter);
            format_raw(out, &v->children[i], delimiter);
            put_char(out, ' ');
            format_raw(out, &v->children[i + 1], delimiter);
        }
        return;
    default: break;
    }
    if (!resp_is_aggregate(v)) {
        output_write(out, v->text);
        return;
    }
    for (size_t i = 0; i < v->count; i++) {
        if (i) cli_format_put(out, delimiter);
        format_raw(out, &v->children[i], delimiter);
    }
}

/* --- CSV --- */

static void format_csv(struct output *out, const struct resp_value *v) {
    switch (v->type) {
    case RESP_NULL: cli_format_put(out, "NULL"); return;
    case RESP_BOOLEAN: cli_format_put(out, v->integer ? "true" : "false"); return;
    case RESP_ERROR:
        cli_format_put(out, "ERROR,");
        format_quoted(out, v->text);
        return;
    case RESP_STATUS:
    case RESP_BULK:
    case RESP_VERBATIM: format_quoted(out, v->text); return;
    case RESP_INTEGER:
    case RESP_DOUBLE:
    case RESP_BIG_NUMBER: output_write(out, v->text); return;
    default: break;
    }
    for (size_t i = 0; i < v->count; i++) {
        if (i) put_char(out, ',');
        format_csv(out, &v->children[i]);
    }
}

/* --- JSON --- */

static void format_json_text(struct output *out, struct slice text) {
    put_char(out, '"');
    escape(out, text, &json_escapes);
    put_char(out, '"');
}

/* The quoted form of the text, with doubled backslashes: only ASCII. */
static void format_json_ascii(struct output *out, struct slice text) {
    struct memory_output quoted = MEMORY_OUTPUT_INIT;
    escape(&quoted.out, text, &quoted_escapes);
    struct slice inner = memory_output_slice(&quoted);
    put_char(out, '"');
    for (size_t i = 0; i < inner.len; i++) {
        if (inner.data[i] == '\\') put_char(out, '\\');
        put_char(out, inner.data[i]);
    }
    put_char(out, '"');
    memory_output_free(&quoted);
}

static void format_json(struct output *out, const struct resp_value *v, bool ascii);

/* Names in a JSON object are strings, so any other value is written as its JSON text in quotes. */
static void format_json_name(struct output *out, const struct resp_value *v, bool ascii) {
    bool text = v->type == RESP_BULK || v->type == RESP_STATUS || v->type == RESP_VERBATIM;
    if (!text) put_char(out, '"');
    format_json(out, v, ascii);
    cli_format_put(out, text ? ":" : "\":");
}

static void format_json(struct output *out, const struct resp_value *v, bool ascii) {
    switch (v->type) {
    case RESP_NULL: cli_format_put(out, "null"); return;
    case RESP_BOOLEAN: cli_format_put(out, v->integer ? "true" : "false"); return;
    case RESP_INTEGER:
    case RESP_DOUBLE:
    case RESP_BIG_NUMBER: output_write(out, v->text); return;
    case RESP_ERROR: cli_format_put(out, "error:"); /* fall through */
    case RESP_STATUS:
    case RESP_BULK:
    case RESP_VERBATIM:
        if (ascii)
            format_json_ascii(out, v->text);
        else
            format_json_text(out, v->text);
        return;
    default: break;
    }
    bool map = v->type == RESP_MAP || v->type == RESP_ATTRIBUTE;
    put_char(out, map ? '{' : '[');
    for (size_t i = 0; i < v->count; i++) {
        if (map && i % 2 == 0) {
            if (i) put_char(out, ',');
            format_json_name(out, &v->children[i], ascii);
            continue;
        }
        if (!map && i) put_char(out, ',');
        format_json(out, &v->children[i], ascii);
    }
    put_char(out, map ? '}' : ']');
}

/* --- All formats --- */

void format_reply(struct output *out, const struct resp_value *v, const struct cli_options *o, enum cli_output as) {
    switch (as) {
    case CLI_FORMATTED: format_tty(out, v, "", 0); break;
    case CLI_RAW:
        format_raw(out, v, o->bulk_delimiter);
        cli_format_put(out, o->command_delimiter);
        break;
    case CLI_CSV:
        format_csv(out, v);
        put_char(out, '\n');
        break;
    case CLI_JSON:
    case CLI_QUOTED_JSON:
        format_json(out, v, as == CLI_QUOTED_JSON);
        put_char(out, '\n');
        break;
    }
}

void format_push(struct output *out, const struct resp_value *v, const struct cli_options *o) {
    if (o->output != CLI_FORMATTED || v->count != 2 || !slice_is(v->children[0].text, "invalidate") ||
        v->children[1].type != RESP_ARRAY) {
        format_reply(out, v, o, o->output);
        return;
    }
    cli_format_put(out, "-> invalidate: ");
    for (size_t i = 0; i < v->children[1].count; i++) {
        if (i) cli_format_put(out, ", ");
        put_char(out, '\'');
        output_write(out, v->children[1].children[i].text);
        put_char(out, '\'');
    }
    put_char(out, '\n');
}
