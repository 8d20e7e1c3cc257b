/* script_shebang.c: see script_shebang.h. */
#include "script/script_shebang.h"
#include "script/script_run.h"
#include <stdio.h>

enum { SHOWN_MAX = 128 };
static char error_text[SHOWN_MAX + 128];

static const char *fail(const char *format, struct slice shown) {
    snprintf(error_text, sizeof error_text, format, (int)(shown.len < SHOWN_MAX ? shown.len : SHOWN_MAX), shown.data);
    return error_text;
}

/* The next word of the line; len 0: none. */
static struct slice next_word(struct slice *line) {
    while (line->len && line->data[0] == ' ') line->data++, line->len--;
    struct slice word = {line->data, 0};
    while (word.len < line->len && word.data[word.len] != ' ') word.len++;
    line->data += word.len;
    line->len -= word.len;
    return word;
}

static bool has_prefix(struct slice word, struct slice prefix, struct slice *rest) {
    if (word.len < prefix.len || strncasecmp(word.data, prefix.data, prefix.len) != 0) return false;
    *rest = (struct slice){word.data + prefix.len, word.len - prefix.len};
    return true;
}

static bool split(struct slice text, struct slice *line, struct slice *code) {
    const char *end = text.len ? memchr(text.data, '\n', text.len) : NULL;
    if (!end) return false;
    *line = (struct slice){text.data + 2, (size_t)(end - text.data) - 2};
    *code = (struct slice){end, text.len - (size_t)(end - text.data)};
    if (line->len && line->data[line->len - 1] == '\r') line->len--;
    return true;
}

static const char *flags_read(struct slice list, uint32_t *flags) {
    while (list.len) {
        const char *comma = memchr(list.data, ',', list.len);
        struct slice name = {list.data, comma ? (size_t)(comma - list.data) : list.len};
        uint32_t flag = script_flag_parse(name);
        if (!flag) return fail("ERR Unexpected flag in script shebang: %.*s", name);
        *flags |= flag;
        size_t used = name.len + (comma != NULL);
        list.data += used;
        list.len -= used;
    }
    return NULL;
}

const char *script_shebang_read(struct slice text, struct script_shebang *shebang) {
    struct slice line, rest;
    *shebang = (struct script_shebang){.name = {NULL, 0}};
    if (!split(text, &line, &shebang->code)) return "ERR Invalid script shebang";
    struct slice engine = next_word(&line);
    if (!slice_is(engine, "lua")) return fail("ERR Could not find scripting engine '%.*s'", engine);
    for (struct slice word; (word = next_word(&line)).len;) {
        if (!has_prefix(word, SLICE("flags="), &rest)) return fail("ERR Unknown lua shebang option: %.*s", word);
        const char *error = flags_read(rest, &shebang->flags);
        if (error) return error;
    }
    return NULL;
}

static bool name_ok(struct slice name) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) return false;
    }
    return name.len > 0;
}

const char *library_shebang_read(struct slice text, struct script_shebang *shebang) {
    struct slice line, rest;
    *shebang = (struct script_shebang){.name = {NULL, 0}};
    if (!script_has_shebang(text)) return "ERR Missing library metadata";
    if (!split(text, &line, &shebang->code)) return "ERR Invalid library metadata";
    struct slice engine = next_word(&line);
    for (struct slice word; (word = next_word(&line)).len;) {
        if (!has_prefix(word, SLICE("name="), &rest)) return fail("ERR Invalid metadata value given: %.*s", word);
        if (shebang->name.data) return "ERR Invalid metadata value, name argument was given multiple times";
        shebang->name = rest;
    }
    if (!shebang->name.data) return "ERR Library name was not given";
    if (!name_ok(shebang->name))
        return "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one "
               "character long";
    if (!slice_is(engine, "lua")) return fail("ERR Engine '%.*s' not found", engine);
    return NULL;
}
