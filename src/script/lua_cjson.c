/* lua_cjson.c: the library `cjson` of scripts: converts Lua values to JSON and back. Its functions, settings and errors
 * are the same as in lua-cjson 2.1.0; deps/README.md explains why that library is not used.
 *
 * A module table has its settings in a userdata, which is the first upvalue of its functions. Texts are built in the
 * memory of the interpreter, so a failed allocation is an error of the script. Nesting is limited in both directions,
 * and each level checks the Lua stack. */
#include "script/lua_buffer.h"
#include "script/lua_vm.h"
#include <lauxlib.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_DEFAULT = 1000, PRECISION_DEFAULT = 14, PRECISION_MAX = 14, STACK_NEEDED = 8 };

enum invalid_numbers { INVALID_REFUSED, INVALID_PASSED, INVALID_NULL };
struct settings {
    bool sparse_convert;
    int sparse_ratio, sparse_safe;
    int encode_depth, decode_depth;
    int precision;
    bool keep_buffer;
    enum invalid_numbers encode_invalid, decode_invalid;
};

static struct settings *settings_of(lua_State *lua) {
    return lua_touserdata(lua, lua_upvalueindex(1));
}

/* --- Encoding --- */

struct encoder {
    struct lua_buffer out;
    const struct settings *settings;
};

static size_t escape(char out[static 6], unsigned char c) {
    static const char digits[] = "0123456789abcdef";
    char simple = 0;
    switch (c) {
    case '"': simple = '"'; break;
    case '\\': simple = '\\'; break;
    case '/': simple = '/'; break;
    case '\b': simple = 'b'; break;
    case '\t': simple = 't'; break;
    case '\n': simple = 'n'; break;
    case '\f': simple = 'f'; break;
    case '\r': simple = 'r'; break;
    default:
        if (c >= ' ' && c != 127) {
            out[0] = (char)c;
            return 1;
        }
    }
    out[0] = '\\';
    if (simple) {
        out[1] = simple;
        return 2;
    }
    memcpy(out + 1, "u00", 3);
    out[4] = digits[c >> 4];
    out[5] = digits[c & 15];
    return 6;
}

static void append_string(struct encoder *encoder, int index) {
    size_t len;
    const char *text = lua_tolstring(encoder->out.lua, index, &len);
    lua_buffer_append_byte(&encoder->out, '"');
    for (size_t i = 0; i < len; i++) {
        char *at = lua_buffer_reserve(&encoder->out, 6);
        encoder->out.len += escape(at, (unsigned char)text[i]);
    }
    lua_buffer_append_byte(&encoder->out, '"');
}

static int fail_type(struct encoder *encoder, int index, const char *reason) {
    return luaL_error(encoder->out.lua, "Cannot serialise %s: %s", luaL_typename(encoder->out.lua, index), reason);
}

static void append_number(struct encoder *encoder, int index) {
    lua_Number number = lua_tonumber(encoder->out.lua, index);
    char text[64];
    if (isnan(number) || isinf(number)) {
        enum invalid_numbers invalid = encoder->settings->encode_invalid;
        if (invalid == INVALID_REFUSED) fail_type(encoder, index, "must not be NaN or Inf");
        const char *word = invalid == INVALID_NULL ? "null" : isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
        lua_buffer_append(&encoder->out, word, strlen(word));
        return;
    }
    int len = snprintf(text, sizeof text, "%.*g", encoder->settings->precision, number);
    lua_buffer_append(&encoder->out, text, (size_t)len);
}

static void append_value(struct encoder *encoder, int depth);

static void check_depth(struct encoder *encoder, int depth) {
    if (depth <= encoder->settings->encode_depth && lua_checkstack(encoder->out.lua, STACK_NEEDED)) return;
    luaL_error(encoder->out.lua, "Cannot serialise, excessive nesting (%d)", depth);
}

/* The length of the table on top of the stack as an array; -1: it is an object. */
static int array_length(struct encoder *encoder) {
    lua_State *lua = encoder->out.lua;
    const struct settings *settings = encoder->settings;
    lua_Number highest = 0;
    int items = 0;
    for (lua_pushnil(lua); lua_next(lua, -2); lua_pop(lua, 1)) {
        lua_Number key = lua_type(lua, -2) == LUA_TNUMBER ? lua_tonumber(lua, -2) : 0;
        if (key < 1 || floor(key) != key || key > INT_MAX) {
            lua_pop(lua, 2);
            return -1;
        }
        if (key > highest) highest = key;
        items++;
    }
    if (settings->sparse_ratio > 0 && highest > (lua_Number)items * settings->sparse_ratio &&
        highest > settings->sparse_safe) {
        if (!settings->sparse_convert) fail_type(encoder, -1, "excessively sparse array");
        return -1;
    }
    return (int)highest;
}

static void append_array(struct encoder *encoder, int depth, int length) {
    lua_buffer_append_byte(&encoder->out, '[');
    for (int i = 1; i <= length; i++) {
        if (i > 1) lua_buffer_append_byte(&encoder->out, ',');
        lua_rawgeti(encoder->out.lua, -1, i);
        append_value(encoder, depth);
        lua_pop(encoder->out.lua, 1);
    }
    lua_buffer_append_byte(&encoder->out, ']');
}

static void append_object(struct encoder *encoder, int depth) {
    lua_State *lua = encoder->out.lua;
    bool comma = false;
    lua_buffer_append_byte(&encoder->out, '{');
    for (lua_pushnil(lua); lua_next(lua, -2); lua_pop(lua, 1)) {
        if (comma) lua_buffer_append_byte(&encoder->out, ',');
        comma = true;
        switch (lua_type(lua, -2)) {
        case LUA_TNUMBER:
            lua_buffer_append_byte(&encoder->out, '"');
            append_number(encoder, -2);
            lua_buffer_append(&encoder->out, "\":", 2);
            break;
        case LUA_TSTRING:
            append_string(encoder, -2);
            lua_buffer_append_byte(&encoder->out, ':');
            break;
        default: fail_type(encoder, -2, "table key must be a number or string");
        }
        append_value(encoder, depth);
    }
    lua_buffer_append_byte(&encoder->out, '}');
}

static void append_table(struct encoder *encoder, int depth) {
    check_depth(encoder, depth);
    bool readonly = lua_push_protected(encoder->out.lua, -1);
    int length = array_length(encoder);
    if (length > 0)
        append_array(encoder, depth, length);
    else
        append_object(encoder, depth);
    if (readonly) lua_pop(encoder->out.lua, 1);
}

/* Encodes the value on top of the stack without popping it. */
static void append_value(struct encoder *encoder, int depth) {
    lua_State *lua = encoder->out.lua;
    switch (lua_type(lua, -1)) {
    case LUA_TSTRING: append_string(encoder, -1); break;
    case LUA_TNUMBER: append_number(encoder, -1); break;
    case LUA_TBOOLEAN:
        if (lua_toboolean(lua, -1))
            lua_buffer_append(&encoder->out, "true", 4);
        else
            lua_buffer_append(&encoder->out, "false", 5);
        break;
    case LUA_TTABLE: append_table(encoder, depth + 1); break;
    case LUA_TNIL: lua_buffer_append(&encoder->out, "null", 4); break;
    case LUA_TLIGHTUSERDATA:
        if (!lua_touserdata(lua, -1)) {
            lua_buffer_append(&encoder->out, "null", 4);
            break;
        }
        /* fall through */
    default: fail_type(encoder, -1, "type not supported");
    }
}

static int encode(lua_State *lua) {
    struct encoder encoder = {.settings = settings_of(lua)};
    luaL_argcheck(lua, lua_gettop(lua) == 1, 1, "expected 1 argument");
    lua_buffer_init(&encoder.out, lua);
    lua_pushvalue(lua, 1);
    append_value(&encoder, 0);
    lua_buffer_push(&encoder.out);
    return 1;
}

/* --- Decoding --- */

enum token_kind {
    TOKEN_OBJECT_BEGIN,
    TOKEN_OBJECT_END,
    TOKEN_ARRAY_BEGIN,
    TOKEN_ARRAY_END,
    TOKEN_STRING,
    TOKEN_NUMBER,
    TOKEN_BOOLEAN,
    TOKEN_NULL,
    TOKEN_COLON,
    TOKEN_COMMA,
    TOKEN_END,
    TOKEN_ERROR
};
static const char *const token_names[] = {"T_OBJ_BEGIN", "T_OBJ_END", "T_ARR_BEGIN", "T_ARR_END",
                                          "T_STRING",    "T_NUMBER",  "T_BOOLEAN",   "T_NULL",
                                          "T_COLON",     "T_COMMA",   "T_END",       NULL};
struct token {
    enum token_kind kind;
    size_t at;
    double number;
    bool boolean;
    const char *error;
    size_t string_len; /* of TOKEN_STRING, in the parser's `string` */
};
struct json_parser {
    lua_State *lua;
    const struct settings *settings;
    const char *text, *at, *end;
    char *string; /* as large as the text, because decoding only shortens strings */
    int depth;
};

static void token_fail(struct token *token, const struct json_parser *p, const char *at, const char *error) {
    token->kind = TOKEN_ERROR;
    token->at = (size_t)(at - p->text);
    token->error = error;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}
/* Reads four hexadecimal digits; -1: they are missing. */
static int hex_read(const char *at, const char *end) {
    int value = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(at[i]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

static size_t utf8_put(char *out, uint32_t code) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* Reads "\uXXXX" at p->at, and a second one that completes a surrogate pair. Returns the length written; 0: invalid. */
static size_t unicode_read(struct json_parser *p, char *out) {
    enum { ESCAPE = 6 };
    int code = hex_read(p->at + 2, p->end);
    if (code < 0) return 0;
    uint32_t value = (uint32_t)code;
    size_t used = ESCAPE;
    if ((code & 0xf800) == 0xd800) {
        if (code & 0x400) return 0; /* a low surrogate without a high one */
        if (p->end - p->at < 2 * ESCAPE || p->at[6] != '\\' || p->at[7] != 'u') return 0;
        int low = hex_read(p->at + 8, p->end);
        if (low < 0 || (low & 0xfc00) != 0xdc00) return 0;
        value = 0x10000 + (((uint32_t)code & 0x3ff) << 10 | ((uint32_t)low & 0x3ff));
        used = 2 * ESCAPE;
    }
    p->at += used;
    return utf8_put(out, value);
}

static void string_read(struct json_parser *p, struct token *token) {
    size_t len = 0;
    const char *begin = p->at++;
    for (;;) {
        if (p->at >= p->end) {
            token_fail(token, p, p->at, "unexpected end of string");
            return;
        }
        char c = *p->at;
        if (c == '"') break;
        if (c != '\\') {
            p->string[len++] = c;
            p->at++;
            continue;
        }
        char next = p->at + 1 < p->end ? p->at[1] : 0;
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        const char *simple = next ? strchr(from, next) : NULL;
        if (simple) {
            p->string[len++] = to[simple - from];
            p->at += 2;
        } else if (next == 'u') {
            size_t written = unicode_read(p, p->string + len);
            if (!written) {
                token_fail(token, p, p->at, "invalid unicode escape code");
                return;
            }
            len += written;
        } else {
            token_fail(token, p, p->at, "invalid escape code");
            return;
        }
    }
    p->at++;
    token->kind = TOKEN_STRING;
    token->at = (size_t)(begin - p->text);
    token->string_len = len;
}

/* True: a number that JSON does not allow: hexadecimal, leading zeros, inf, nan. */
static bool is_invalid_number(const char *at) {
    if (*at == '+') return true;
    if (*at == '-') at++;
    if (*at == '0') {
        char next = at[1] | 0x20;
        return next == 'x' || (at[1] >= '0' && at[1] <= '9');
    }
    if (*at >= '0' && *at <= '9') return false;
    return strncasecmp(at, "inf", 3) == 0 || strncasecmp(at, "nan", 3) == 0;
}

static void number_read(struct json_parser *p, struct token *token) {
    char *end;
    token->number = strtod(p->at, &end); /* Lua ends strings with a NUL */
    if (end == p->at) {
        token_fail(token, p, p->at, "invalid number");
        return;
    }
    token->kind = TOKEN_NUMBER;
    p->at = end;
}

static bool word_read(struct json_parser *p, const char *word) {
    size_t len = strlen(word);
    if ((size_t)(p->end - p->at) < len || memcmp(p->at, word, len) != 0) return false;
    p->at += len;
    return true;
}

static void token_next(struct json_parser *p, struct token *token) {
    static const char marks[] = "{}[]:,";
    static const enum token_kind kinds[] = {TOKEN_OBJECT_BEGIN, TOKEN_OBJECT_END, TOKEN_ARRAY_BEGIN,
                                            TOKEN_ARRAY_END,    TOKEN_COLON,      TOKEN_COMMA};
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')) p->at++;
    token->at = (size_t)(p->at - p->text);
    if (p->at >= p->end || *p->at == '\0') { /* a NUL also ends the text, as scripts expect */
        token->kind = TOKEN_END;
        return;
    }
    const char *mark = strchr(marks, *p->at);
    if (mark) {
        token->kind = kinds[mark - marks];
        p->at++;
        return;
    }
    if (*p->at == '"') {
        string_read(p, token);
        return;
    }
    token->kind = TOKEN_BOOLEAN;
    token->boolean = true;
    if (word_read(p, "true")) return;
    token->boolean = false;
    if (word_read(p, "false")) return;
    token->kind = TOKEN_NULL;
    if (word_read(p, "null")) return;
    bool invalid = is_invalid_number(p->at);
    if (*p->at == '-' || (*p->at >= '0' && *p->at <= '9')) {
        if (!invalid || p->settings->decode_invalid != INVALID_REFUSED)
            number_read(p, token);
        else
            token_fail(token, p, p->at, "invalid number");
        return;
    }
    if (invalid && p->settings->decode_invalid != INVALID_REFUSED) {
        number_read(p, token);
        return;
    }
    token_fail(token, p, p->at, "invalid token");
}

static void fail_expected(struct json_parser *p, const char *expected, const struct token *token) {
    const char *found = token->kind == TOKEN_ERROR ? token->error : token_names[token->kind];
    luaL_error(p->lua, "Expected %s but found %s at character %d", expected, found, (int)(token->at + 1));
}

static void value_push(struct json_parser *p, struct token *token);

static void descend(struct json_parser *p) {
    p->depth++;
    if (p->depth <= p->settings->decode_depth && lua_checkstack(p->lua, STACK_NEEDED)) return;
    luaL_error(p->lua, "Found too many nested data structures (%d) at character %d", p->depth, (int)(p->at - p->text));
}

static void object_push(struct json_parser *p) {
    struct token token;
    descend(p);
    lua_newtable(p->lua);
    token_next(p, &token);
    if (token.kind != TOKEN_OBJECT_END) {
        for (;;) {
            if (token.kind != TOKEN_STRING) fail_expected(p, "object key string", &token);
            lua_pushlstring(p->lua, p->string, token.string_len);
            token_next(p, &token);
            if (token.kind != TOKEN_COLON) fail_expected(p, "colon", &token);
            token_next(p, &token);
            value_push(p, &token);
            lua_rawset(p->lua, -3);
            token_next(p, &token);
            if (token.kind == TOKEN_OBJECT_END) break;
            if (token.kind != TOKEN_COMMA) fail_expected(p, "comma or object end", &token);
            token_next(p, &token);
        }
    }
    p->depth--;
}

static void array_push(struct json_parser *p) {
    struct token token;
    descend(p);
    lua_newtable(p->lua);
    token_next(p, &token);
    if (token.kind != TOKEN_ARRAY_END) {
        for (int i = 1;; i++) {
            value_push(p, &token);
            lua_rawseti(p->lua, -2, i);
            token_next(p, &token);
            if (token.kind == TOKEN_ARRAY_END) break;
            if (token.kind != TOKEN_COMMA) fail_expected(p, "comma or array end", &token);
            token_next(p, &token);
        }
    }
    p->depth--;
}

static void value_push(struct json_parser *p, struct token *token) {
    switch (token->kind) {
    case TOKEN_STRING: lua_pushlstring(p->lua, p->string, token->string_len); break;
    case TOKEN_NUMBER: lua_pushnumber(p->lua, token->number); break;
    case TOKEN_BOOLEAN: lua_pushboolean(p->lua, token->boolean); break;
    case TOKEN_NULL: lua_pushlightuserdata(p->lua, NULL); break;
    case TOKEN_OBJECT_BEGIN: object_push(p); break;
    case TOKEN_ARRAY_BEGIN: array_push(p); break;
    default: fail_expected(p, "value", token);
    }
}

static int decode(lua_State *lua) {
    size_t len;
    luaL_argcheck(lua, lua_gettop(lua) == 1, 1, "expected 1 argument");
    const char *text = luaL_checklstring(lua, 1, &len);
    if (len >= 2 && (!text[0] || !text[1])) return luaL_error(lua, "JSON parser does not support UTF-16 or UTF-32");
    struct json_parser parser = {.lua = lua, .settings = settings_of(lua), .text = text, .at = text, .end = text + len};
    struct token token;
    parser.string = lua_newuserdata(lua, len + 1);
    token_next(&parser, &token);
    value_push(&parser, &token);
    token_next(&parser, &token);
    if (token.kind != TOKEN_END) fail_expected(&parser, "the end", &token);
    return 1;
}

/* --- Settings --- */

/* Checks for at most `most` arguments, and makes a missing argument nil. Returns the settings. */
static struct settings *settings_begin(lua_State *lua, int most) {
    luaL_argcheck(lua, lua_gettop(lua) <= most, most + 1, "found too many arguments");
    lua_settop(lua, most);
    return settings_of(lua);
}

static void integer_setting(lua_State *lua, int index, int *value, int min, int max) {
    if (!lua_isnil(lua, index)) {
        char text[64];
        int given = (int)luaL_checkinteger(lua, index);
        snprintf(text, sizeof text, "expected integer between %d and %d", min, max);
        luaL_argcheck(lua, min <= given && given <= max, 1, text); /* the index that scripts expect */
        *value = given;
    }
    lua_pushinteger(lua, *value);
}

static void boolean_setting(lua_State *lua, int index, bool *value) {
    if (!lua_isnil(lua, index)) {
        luaL_checktype(lua, index, LUA_TBOOLEAN);
        *value = lua_toboolean(lua, index);
    }
    lua_pushboolean(lua, *value);
}

static int encode_sparse_array(lua_State *lua) {
    struct settings *settings = settings_begin(lua, 3);
    boolean_setting(lua, 1, &settings->sparse_convert);
    integer_setting(lua, 2, &settings->sparse_ratio, 0, INT_MAX);
    integer_setting(lua, 3, &settings->sparse_safe, 0, INT_MAX);
    return 3;
}
static int encode_max_depth(lua_State *lua) {
    integer_setting(lua, 1, &settings_begin(lua, 1)->encode_depth, 1, INT_MAX);
    return 1;
}
static int decode_max_depth(lua_State *lua) {
    integer_setting(lua, 1, &settings_begin(lua, 1)->decode_depth, 1, INT_MAX);
    return 1;
}
static int encode_number_precision(lua_State *lua) {
    integer_setting(lua, 1, &settings_begin(lua, 1)->precision, 1, PRECISION_MAX);
    return 1;
}
/* The setting has no effect: the buffer is in the interpreter's memory, and keeping it has no advantage. */
static int encode_keep_buffer(lua_State *lua) {
    boolean_setting(lua, 1, &settings_begin(lua, 1)->keep_buffer);
    return 1;
}

static int invalid_numbers(lua_State *lua, enum invalid_numbers *value, bool null_allowed) {
    static const char *const options[] = {"off", "on", "null", NULL}, *const decode_options[] = {"off", "on", NULL};
    if (lua_isboolean(lua, 1))
        *value = lua_toboolean(lua, 1) ? INVALID_PASSED : INVALID_REFUSED;
    else if (!lua_isnil(lua, 1))
        *value = (enum invalid_numbers)luaL_checkoption(lua, 1, NULL, null_allowed ? options : decode_options);
    if (*value == INVALID_NULL)
        lua_pushliteral(lua, "null");
    else
        lua_pushboolean(lua, *value == INVALID_PASSED);
    return 1;
}
static int encode_invalid_numbers(lua_State *lua) {
    return invalid_numbers(lua, &settings_begin(lua, 1)->encode_invalid, true);
}
static int decode_invalid_numbers(lua_State *lua) {
    return invalid_numbers(lua, &settings_begin(lua, 1)->decode_invalid, false);
}

static int new_module(lua_State *lua) {
    static const luaL_Reg functions[] = {{"encode", encode},
                                         {"decode", decode},
                                         {"encode_sparse_array", encode_sparse_array},
                                         {"encode_max_depth", encode_max_depth},
                                         {"decode_max_depth", decode_max_depth},
                                         {"encode_number_precision", encode_number_precision},
                                         {"encode_keep_buffer", encode_keep_buffer},
                                         {"encode_invalid_numbers", encode_invalid_numbers},
                                         {"decode_invalid_numbers", decode_invalid_numbers},
                                         {"new", new_module},
                                         {NULL, NULL}};
    lua_newtable(lua);
    struct settings *settings = lua_newuserdata(lua, sizeof *settings);
    *settings = (struct settings){.sparse_ratio = 2,
                                  .sparse_safe = 10,
                                  .encode_depth = DEPTH_DEFAULT,
                                  .decode_depth = DEPTH_DEFAULT,
                                  .precision = PRECISION_DEFAULT,
                                  .keep_buffer = true,
                                  .decode_invalid = INVALID_PASSED};
    for (const luaL_Reg *function = functions; function->name; function++) {
        lua_pushvalue(lua, -1);
        lua_pushcclosure(lua, function->func, 1);
        lua_setfield(lua, -3, function->name);
    }
    lua_pop(lua, 1);
    lua_pushlightuserdata(lua, NULL);
    lua_setfield(lua, -2, "null");
    lua_pushliteral(lua, "cjson");
    lua_setfield(lua, -2, "_NAME");
    lua_pushliteral(lua, "2.1.0");
    lua_setfield(lua, -2, "_VERSION");
    return 1;
}

int lua_open_cjson(lua_State *lua) {
    new_module(lua);
    lua_setglobal(lua, "cjson");
    return 0;
}
