/* script_shebang.c: see script_shebang.h. */
#include "script/script_shebang.h"
#include "lib/system/memory.h"
#include "resp/request.h"
#include "script/script_engine.h"
#include "script/script_run.h"
#include <stdio.h>

enum { SHOWN_MAX = 128 };
static char error_text[SHOWN_MAX + 128];

static const char *shebang_fail(const char *format, struct slice shown) {
    snprintf(error_text, sizeof error_text, format, (int)(shown.len < SHOWN_MAX ? shown.len : SHOWN_MAX), shown.data);
    return error_text;
}

static bool has_prefix(struct slice word, struct slice prefix, struct slice *rest) {
    if (word.len < prefix.len || strncasecmp(word.data, prefix.data, prefix.len) != 0) return false;
    *rest = (struct slice){word.data + prefix.len, word.len - prefix.len};
    return true;
}

/* The words of the line, in the syntax of inline requests. The first word is "#!" followed by the engine. */
struct shebang_line {
    struct slice *words, engine;
    int count; /* negative: unbalanced quotes */
};

/* False: the line has no newline. */
static bool line_open(struct slice text, struct shebang_line *line, struct slice *code) {
    const char *end = text.len ? memchr(text.data, '\n', text.len) : NULL;
    if (!end) return false;
    *code = (struct slice){end, text.len - (size_t)(end - text.data)};
    line->count = words_split((struct slice){text.data, (size_t)(end - text.data)}, &line->words);
    if (line->count > 0) line->engine = (struct slice){line->words[0].data + 2, line->words[0].len - 2};
    return true;
}

static void line_close(struct shebang_line *line) {
    if (line->count >= 0) words_free(line->words, line->count);
}

static const char *flags_read(struct slice list, uint32_t *flags) {
    for (bool more = list.len; more;) {
        const char *comma = list.len ? memchr(list.data, ',', list.len) : NULL;
        struct slice name = {list.data, comma ? (size_t)(comma - list.data) : list.len};
        uint32_t flag = script_flag_parse(name);
        if (!flag) return shebang_fail("ERR Unexpected flag in script shebang: %.*s", name);
        *flags |= flag;
        more = comma;
        list.data += name.len + more;
        list.len -= name.len + more;
    }
    return NULL;
}

static const char *script_line_read(const struct shebang_line *line, struct script_shebang *shebang) {
    struct slice rest;
    if (line->count <= 0) return "ERR Invalid engine in script shebang";
    for (int i = 1; i < line->count; i++) {
        if (!has_prefix(line->words[i], SLICE("flags="), &rest))
            return shebang_fail("ERR Unknown lua shebang option: %.*s", line->words[i]);
        const char *error = flags_read(rest, &shebang->flags);
        if (error) return error;
    }
    shebang->engine = script_engine_find(line->engine);
    return shebang->engine ? NULL : shebang_fail("ERR Could not find scripting engine '%.*s'", line->engine);
}

const char *script_shebang_read(struct slice text, struct script_shebang *shebang) {
    struct shebang_line line;
    *shebang = (struct script_shebang){.name = {NULL, 0}};
    if (!line_open(text, &line, &shebang->code)) return "ERR Invalid script shebang";
    const char *error = script_line_read(&line, shebang);
    line_close(&line);
    return error;
}

bool script_name_ok(struct slice name) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_')) return false;
    }
    return name.len > 0;
}

static const char *library_line_read(const struct shebang_line *line, struct script_shebang *shebang) {
    static char *name;
    struct slice rest, given = {NULL, 0};
    if (line->count <= 0) return "ERR Invalid library metadata";
    for (int i = 1; i < line->count; i++) {
        if (!has_prefix(line->words[i], SLICE("name="), &rest))
            return shebang_fail("ERR Invalid metadata value given: %.*s", line->words[i]);
        if (given.data) return "ERR Invalid metadata value, name argument was given multiple times";
        given = rest;
    }
    if (!given.data) return "ERR Library name was not given";
    if (!script_name_ok(given))
        return "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one "
               "character long";
    shebang->engine = script_engine_find(line->engine);
    if (!shebang->engine) return shebang_fail("ERR Engine '%.*s' not found", line->engine);
    mem_free(name);
    name = mem_strndup(given.data, given.len);
    shebang->name = (struct slice){name, given.len};
    return NULL;
}

const char *library_shebang_read(struct slice text, struct script_shebang *shebang) {
    struct shebang_line line;
    *shebang = (struct script_shebang){.name = {NULL, 0}};
    if (!script_has_shebang(text)) return "ERR Missing library metadata";
    if (!line_open(text, &line, &shebang->code)) return "ERR Invalid library metadata";
    const char *error = library_line_read(&line, shebang);
    line_close(&line);
    return error;
}
