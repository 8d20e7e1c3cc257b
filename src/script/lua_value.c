/* lua_value.c: converts replies to Lua values and Lua values to replies.
 *
 *     reply            Lua value                              also read as a reply
 *     integer          number                                 yes; the fraction is cut off
 *     bulk string      string                                 yes
 *     array            table 1 … n                            yes, up to the first nil
 *     status           {ok = text}                            yes
 *     error            {err = text}                           yes
 *     null             false; after setresp(3): nil           both
 *     boolean          boolean (RESP3)                        true as 1; after setresp(3) as a boolean
 *     double           {double = number} (RESP3)              yes
 *     map, set         {map = {k = v}}, {set = {k = true}}    yes
 *     big number       {big_number = text}                    yes
 *     verbatim string  {verbatim_string = {format, string}}   yes
 *
 * Replies of commands come from this server, so they are well-formed. */
#include "lib/system/memory.h"
#include "resp/reply.h"
#include "script/lua_vm.h"
#include "script/script_run.h"
#include "server/stats/errorstats.h"
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_NEEDED = 8 };

/* --- From replies --- */

static const char *line_end(const char *at, const char *end) {
    return memchr(at, '\r', (size_t)(end - at));
}

/* Reads the integer of a line and moves *at past the line. */
static int64_t read_integer(const char **at) {
    const char *p = *at;
    bool negative = *p == '-';
    uint64_t value = 0;
    for (p += negative; *p != '\r'; p++) value = value * 10 + (uint64_t)(*p - '0');
    *at = p + 2;
    return (int64_t)(negative ? 0 - value : value);
}

static void push_field(lua_State *lua, const char *name, const char *text, size_t len) {
    lua_createtable(lua, 0, 1);
    lua_pushstring(lua, name);
    lua_pushlstring(lua, text, len);
    lua_rawset(lua, -3);
}

static const char *push_line(lua_State *lua, const char *name, const char *at, const char *end) {
    const char *stop = line_end(at, end);
    push_field(lua, name, at, (size_t)(stop - at));
    return stop + 2;
}

static const char *push_error(lua_State *lua, const char *at, const char *end) {
    at = push_line(lua, "err", at, end);
    lua_pushliteral(lua, "ignore_error_stats_update"); /* the call of the command has already counted the error */
    lua_pushboolean(lua, 1);
    lua_rawset(lua, -3);
    return at;
}

static void push_null(lua_State *lua) {
    if (script_protocol() == 2)
        lua_pushboolean(lua, 0);
    else
        lua_pushnil(lua);
}

static const char *push_bulk(lua_State *lua, const char *at) {
    int64_t len = read_integer(&at);
    if (len < 0) {
        push_null(lua);
        return at;
    }
    lua_pushlstring(lua, at, (size_t)len);
    return at + len + 2;
}

static const char *push_verbatim(lua_State *lua, const char *at) {
    enum { FORMAT = 3 };
    int64_t len = read_integer(&at);
    lua_createtable(lua, 0, 1);
    lua_createtable(lua, 0, 2);
    lua_pushlstring(lua, at, FORMAT);
    lua_setfield(lua, -2, "format");
    lua_pushlstring(lua, at + FORMAT + 1, (size_t)len - FORMAT - 1);
    lua_setfield(lua, -2, "string");
    lua_setfield(lua, -2, "verbatim_string");
    return at + len + 2;
}

static const char *push_array(lua_State *lua, const char *at, const char *end) {
    int64_t count = read_integer(&at);
    if (count < 0) {
        push_null(lua);
        return at;
    }
    lua_createtable(lua, (int)count, 0);
    for (int64_t i = 1; i <= count; i++) {
        at = lua_push_reply(lua, at, end);
        lua_rawseti(lua, -2, (int)i);
    }
    return at;
}

/* Pushes a map, or a set as a map with the value true for each member. */
static const char *push_keyed(lua_State *lua, const char *name, bool is_map, const char *at, const char *end) {
    int64_t count = read_integer(&at);
    lua_createtable(lua, 0, 1);
    lua_createtable(lua, 0, (int)count);
    for (int64_t i = 0; i < count; i++) {
        at = lua_push_reply(lua, at, end);
        if (is_map)
            at = lua_push_reply(lua, at, end);
        else
            lua_pushboolean(lua, 1);
        lua_rawset(lua, -3);
    }
    lua_setfield(lua, -2, name);
    return at;
}

static const char *push_double(lua_State *lua, const char *at, const char *end) {
    lua_createtable(lua, 0, 1);
    lua_pushnumber(lua, strtod(at, NULL));
    lua_setfield(lua, -2, "double");
    return line_end(at, end) + 2;
}

/* An attribute precedes the value it describes; scripts see only the value. */
static const char *skip_attribute(lua_State *lua, const char *at, const char *end) {
    int64_t count = read_integer(&at) * 2;
    for (int64_t i = 0; i < count; i++) {
        at = lua_push_reply(lua, at, end);
        lua_pop(lua, 1);
    }
    return lua_push_reply(lua, at, end);
}

const char *lua_push_reply(lua_State *lua, const char *at, const char *end) {
    luaL_checkstack(lua, STACK_NEEDED, "reply is nested too deep");
    char type = *at++;
    switch (type) {
    case '$': return push_bulk(lua, at);
    case ':': lua_pushnumber(lua, (lua_Number)read_integer(&at)); return at;
    case '+': return push_line(lua, "ok", at, end);
    case '-': return push_error(lua, at, end);
    case '*':
    case '>': return push_array(lua, at, end);
    case '%': return push_keyed(lua, "map", true, at, end);
    case '~': return push_keyed(lua, "set", false, at, end);
    case ',': return push_double(lua, at, end);
    case '(': return push_line(lua, "big_number", at, end);
    case '=': return push_verbatim(lua, at);
    case '#': lua_pushboolean(lua, *at == 't'); return at + 3;
    case '|': return skip_attribute(lua, at, end);
    default: lua_pushnil(lua); return at + 2; /* '_' */
    }
}

/* --- To replies --- */

/* Writes the text of a line. Line breaks become spaces. */
static void write_line_text(struct reply *reply, const char *text, size_t len,
                            void (*write)(struct reply *, struct slice)) {
    char *copy = mem_alloc(len + 1);
    for (size_t i = 0; i < len; i++) copy[i] = text[i] == '\r' || text[i] == '\n' ? ' ' : text[i];
    copy[len] = 0;
    write(reply, (struct slice){copy, len});
    mem_free(copy);
}

static void write_status(struct reply *reply, struct slice text) {
    reply_status(reply, text.data);
}

/* Number of errors of commands in the reply so far. */
static uint32_t command_errors;

static void write_value(lua_State *lua, struct reply *reply);

/* An error that a command replied with is already in the error statistics. The script counts as failed once for each of
 * these, and once for all other errors together. */
static void write_error(lua_State *lua, struct reply *reply, int table) {
    lua_pushliteral(lua, "ignore_error_stats_update");
    lua_rawget(lua, table);
    const char *text = lua_tostring(lua, -2);
    bool counted = lua_toboolean(lua, -1);
    struct reply before = *reply;
    if (counted)
        reply->error_hook = NULL;
    else if (before.error_hook == errorstats_count)
        reply->error_hook = errorstats_count_invented;
    reply_error(reply, text);
    reply->error_hook = before.error_hook;
    if (counted) {
        reply->failed = before.failed;
        command_errors++;
    }
    lua_pop(lua, 1);
}

static void write_verbatim(lua_State *lua, struct reply *reply) {
    size_t format_len, len;
    const char *format = lua_tolstring(lua, -2, &format_len), *text = lua_tolstring(lua, -1, &len);
    char extension[4] = "   ";
    memcpy(extension, format, format_len < 3 ? format_len : 3);
    reply_verbatim(reply, extension, (struct slice){text, len});
}

static void write_map(lua_State *lua, struct reply *reply, bool is_map) {
    size_t count = 0;
    int table = lua_gettop(lua);
    for (lua_pushnil(lua); lua_next(lua, table); lua_pop(lua, 1)) count++;
    if (is_map)
        reply_map(reply, count);
    else
        reply_set(reply, count);
    for (lua_pushnil(lua); lua_next(lua, table);) {
        lua_pushvalue(lua, -2);
        write_value(lua, reply);
        if (is_map)
            write_value(lua, reply);
        else
            lua_pop(lua, 1);
    }
}

static void write_array(lua_State *lua, struct reply *reply) {
    int table = lua_gettop(lua), count = 0;
    for (;; count++) {
        lua_rawgeti(lua, table, count + 1);
        bool ends = lua_isnil(lua, -1);
        lua_pop(lua, 1);
        if (ends) break;
    }
    reply_array(reply, (size_t)count);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(lua, table, i);
        write_value(lua, reply);
    }
}

/* Pushes a field of the table on top of the stack if it has the type; otherwise pushes nothing. */
static bool push_typed(lua_State *lua, const char *name, int type) {
    lua_pushstring(lua, name);
    lua_rawget(lua, -2);
    if (lua_type(lua, -1) == type) return true;
    lua_pop(lua, 1);
    return false;
}

static bool push_verbatim_fields(lua_State *lua) {
    if (!push_typed(lua, "verbatim_string", LUA_TTABLE)) return false;
    if (push_typed(lua, "format", LUA_TSTRING)) {
        lua_insert(lua, -2);
        if (push_typed(lua, "string", LUA_TSTRING)) return true;
        lua_pop(lua, 1);
    }
    lua_pop(lua, 1);
    return false;
}

static void write_table(lua_State *lua, struct reply *reply) {
    int table = lua_gettop(lua);
    size_t len;
    if (push_typed(lua, "err", LUA_TSTRING)) {
        write_error(lua, reply, table);
    } else if (push_typed(lua, "ok", LUA_TSTRING)) {
        const char *text = lua_tolstring(lua, -1, &len);
        write_line_text(reply, text, len, write_status);
    } else if (push_typed(lua, "double", LUA_TNUMBER)) {
        reply_double(reply, lua_tonumber(lua, -1));
    } else if (push_typed(lua, "map", LUA_TTABLE)) {
        write_map(lua, reply, true);
    } else if (push_typed(lua, "set", LUA_TTABLE)) {
        write_map(lua, reply, false);
    } else if (push_typed(lua, "big_number", LUA_TSTRING)) {
        const char *text = lua_tolstring(lua, -1, &len);
        write_line_text(reply, text, len, reply_big_number);
    } else if (push_verbatim_fields(lua)) {
        lua_remove(lua, -2);
        write_verbatim(lua, reply);
    } else {
        write_array(lua, reply);
    }
    lua_settop(lua, table);
}

/* A number that is not a 64-bit integer becomes INT64_MIN, as with the CPU's conversion. */
static int64_t integer_of(lua_Number number) {
    return number >= -0x1p63 && number < 0x1p63 ? (int64_t)number : INT64_MIN;
}

static void write_value(lua_State *lua, struct reply *reply) {
    size_t len;
    const char *text;
    if (!lua_checkstack(lua, STACK_NEEDED)) {
        reply_error(reply, "ERR reached lua stack limit");
        lua_pop(lua, 1);
        return;
    }
    switch (lua_type(lua, -1)) {
    case LUA_TSTRING:
        text = lua_tolstring(lua, -1, &len);
        reply_bulk(reply, (struct slice){text, len});
        break;
    case LUA_TNUMBER: reply_integer(reply, integer_of(lua_tonumber(lua, -1))); break;
    case LUA_TBOOLEAN:
        if (script_protocol() == 3)
            reply_boolean(reply, lua_toboolean(lua, -1));
        else if (lua_toboolean(lua, -1))
            reply_integer(reply, 1);
        else
            reply_null(reply);
        break;
    case LUA_TTABLE: write_table(lua, reply); break;
    default: reply_null(reply);
    }
    lua_pop(lua, 1);
}

void lua_write_reply(lua_State *lua, struct reply *reply) {
    command_errors = 0;
    write_value(lua, reply);
    reply->failed += command_errors;
}
