/* lua_cmsgpack.c: the library `cmsgpack` of scripts: converts Lua values to MessagePack and back.
 *
 * Packing writes the shortest form of a number: an integer if it has no fraction, a 32-bit float if that is exact. A
 * table whose keys are 1 … n is an array, any other a map. Tables nested deeper than 16 become nil. Unpacking supports
 * everything except extension types, does not trust lengths, and checks the Lua stack at each level. */
#include "script/lua_buffer.h"
#include "script/lua_vm.h"
#include <endian.h>
#include <math.h>

enum { DEPTH_MAX = 16, STACK_NEEDED = 8 };
#define TOO_MANY "too many return values at once; use unpack_one or unpack_limit instead."

/* --- Packing --- */

/* Writes a code and the low `bytes` bytes of a value, big-endian. */
static void put_coded(struct lua_buffer *out, unsigned code, uint64_t value, unsigned bytes) {
    uint64_t big = htobe64(value << (64 - 8 * bytes));
    lua_buffer_append_byte(out, code);
    lua_buffer_append(out, &big, bytes);
}

static void pack_integer(struct lua_buffer *out, int64_t value) {
    uint64_t bits = (uint64_t)value;
    if (value >= 0) {
        if (value < 0x80)
            lua_buffer_append_byte(out, (unsigned)value);
        else if (value <= UINT8_MAX)
            put_coded(out, 0xcc, bits, 1);
        else if (value <= UINT16_MAX)
            put_coded(out, 0xcd, bits, 2);
        else if (value <= UINT32_MAX)
            put_coded(out, 0xce, bits, 4);
        else
            put_coded(out, 0xcf, bits, 8);
    } else if (value >= -32) {
        lua_buffer_append_byte(out, (unsigned)(value & 0xff));
    } else if (value >= INT8_MIN) {
        put_coded(out, 0xd0, bits, 1);
    } else if (value >= INT16_MIN) {
        put_coded(out, 0xd1, bits, 2);
    } else if (value >= INT32_MIN) {
        put_coded(out, 0xd2, bits, 4);
    } else {
        put_coded(out, 0xd3, bits, 8);
    }
}

static void pack_number(struct lua_buffer *out, lua_Number number) {
    if (number >= -0x1p63 && number < 0x1p63 && (lua_Number)(int64_t)number == number) {
        pack_integer(out, (int64_t)number);
        return;
    }
    float narrow = (float)number;
    if ((lua_Number)narrow == number) {
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        put_coded(out, 0xca, bits, 4);
    } else {
        uint64_t bits;
        memcpy(&bits, &number, sizeof bits);
        put_coded(out, 0xcb, bits, 8);
    }
}

static void pack_string(struct lua_buffer *out, int index) {
    size_t len;
    const char *text = lua_tolstring(out->lua, index, &len);
    if (len < 32)
        lua_buffer_append_byte(out, 0xa0 | (unsigned)len);
    else if (len <= UINT8_MAX)
        put_coded(out, 0xd9, len, 1);
    else if (len <= UINT16_MAX)
        put_coded(out, 0xda, len, 2);
    else
        put_coded(out, 0xdb, len, 4);
    lua_buffer_append(out, text, len);
}

static void put_count(struct lua_buffer *out, size_t count, unsigned fixed, unsigned code) {
    if (count < 16)
        lua_buffer_append_byte(out, fixed | (unsigned)count);
    else if (count <= UINT16_MAX)
        put_coded(out, code, count, 2);
    else
        put_coded(out, code + 1, count, 4);
}

/* Counts the items of the table on top of the stack; *is_array: its keys are 1 … count. */
static size_t count_items(lua_State *lua, bool *is_array) {
    size_t count = 0;
    lua_Number highest = 0;
    bool positive = true;
    for (lua_pushnil(lua); lua_next(lua, -2); lua_pop(lua, 1)) {
        lua_Number key = lua_type(lua, -2) == LUA_TNUMBER ? lua_tonumber(lua, -2) : 0;
        positive = positive && key > 0 && floor(key) == key;
        if (key > highest) highest = key;
        count++;
    }
    *is_array = positive && highest == (lua_Number)count;
    return count;
}

static void pack_value(struct lua_buffer *out, int depth);

static void pack_table(struct lua_buffer *out, int depth) {
    lua_State *lua = out->lua;
    bool is_array;
    luaL_checkstack(lua, STACK_NEEDED, "in function table_to_msgpack");
    bool read_only = lua_push_protected(lua, -1);
    size_t count = count_items(lua, &is_array);
    if (is_array) {
        put_count(out, count, 0x90, 0xdc);
        for (size_t i = 1; i <= count; i++) {
            lua_rawgeti(lua, -1, (int)i);
            pack_value(out, depth);
            lua_pop(lua, 1);
        }
    } else {
        put_count(out, count, 0x80, 0xde);
        for (lua_pushnil(lua); lua_next(lua, -2); lua_pop(lua, 1)) {
            lua_pushvalue(lua, -2);
            pack_value(out, depth);
            lua_pop(lua, 1);
            pack_value(out, depth);
        }
    }
    if (read_only) lua_pop(lua, 1);
}

/* Packs the value on top of the stack without popping it. Values without a MessagePack form become nil. */
static void pack_value(struct lua_buffer *out, int depth) {
    lua_State *lua = out->lua;
    switch (lua_type(lua, -1)) {
    case LUA_TSTRING: pack_string(out, -1); break;
    case LUA_TNUMBER: pack_number(out, lua_tonumber(lua, -1)); break;
    case LUA_TBOOLEAN: lua_buffer_append_byte(out, lua_toboolean(lua, -1) ? 0xc3 : 0xc2); break;
    case LUA_TTABLE:
        if (depth < DEPTH_MAX) {
            pack_table(out, depth + 1);
            break;
        }
        /* fall through */
    default: lua_buffer_append_byte(out, 0xc0);
    }
}

static int pack(lua_State *lua) {
    int count = lua_gettop(lua);
    struct lua_buffer out;
    if (!count) return luaL_argerror(lua, 0, "MessagePack pack needs input.");
    luaL_checkstack(lua, STACK_NEEDED, "Too many arguments for MessagePack pack.");
    lua_buffer_init(&out, lua);
    for (int i = 1; i <= count; i++) {
        lua_pushvalue(lua, i);
        pack_value(&out, 0);
        lua_pop(lua, 1);
    }
    lua_buffer_push(&out);
    return 1;
}

/* --- Unpacking --- */

struct input {
    lua_State *lua;
    const unsigned char *at, *end;
};

static void need(struct input *in, uint64_t len) {
    if ((uint64_t)(in->end - in->at) < len) luaL_error(in->lua, "Missing bytes in input.");
}

/* Reads the big-endian value after the code and moves past it. */
static uint64_t cmsgpack_take(struct input *in, unsigned bytes) {
    uint64_t value = 0;
    need(in, 1 + (uint64_t)bytes);
    for (unsigned i = 1; i <= bytes; i++) value = value << 8 | in->at[i];
    in->at += 1 + bytes;
    return value;
}

static void push_string(struct input *in, uint64_t len) {
    need(in, len);
    lua_pushlstring(in->lua, (const char *)in->at, (size_t)len);
    in->at += len;
}

static void unpack_value(struct input *in);

/* The count is not trusted: tables grow with the items that are read. */
static void unpack_array(struct input *in, uint64_t count) {
    luaL_checkstack(in->lua, STACK_NEEDED, "in function mp_decode_to_lua_array");
    lua_newtable(in->lua);
    for (uint64_t i = 1; i <= count; i++) {
        unpack_value(in);
        lua_rawseti(in->lua, -2, (int)i);
    }
}

static void unpack_map(struct input *in, uint64_t count) {
    luaL_checkstack(in->lua, STACK_NEEDED, TOO_MANY);
    lua_newtable(in->lua);
    for (uint64_t i = 0; i < count; i++) {
        unpack_value(in);
        unpack_value(in);
        lua_settable(in->lua, -3);
    }
}

static void push_float(struct input *in) {
    uint32_t bits = (uint32_t)cmsgpack_take(in, 4);
    float value;
    memcpy(&value, &bits, sizeof value);
    lua_pushnumber(in->lua, value);
}
static void push_double(struct input *in) {
    uint64_t bits = cmsgpack_take(in, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    lua_pushnumber(in->lua, value);
}

static void unpack_value(struct input *in) {
    lua_State *lua = in->lua;
    need(in, 1);
    unsigned code = *in->at;
    switch (code) {
    case 0xc0: in->at++, lua_pushnil(lua); return;
    case 0xc2: in->at++, lua_pushboolean(lua, 0); return;
    case 0xc3: in->at++, lua_pushboolean(lua, 1); return;
    case 0xca: push_float(in); return;
    case 0xcb: push_double(in); return;
    case 0xcc: lua_pushnumber(lua, (lua_Number)cmsgpack_take(in, 1)); return;
    case 0xcd: lua_pushnumber(lua, (lua_Number)cmsgpack_take(in, 2)); return;
    case 0xce: lua_pushnumber(lua, (lua_Number)cmsgpack_take(in, 4)); return;
    case 0xcf: lua_pushnumber(lua, (lua_Number)(int64_t)cmsgpack_take(in, 8)); return; /* as scripts expect */
    case 0xd0: lua_pushnumber(lua, (int8_t)cmsgpack_take(in, 1)); return;
    case 0xd1: lua_pushnumber(lua, (int16_t)cmsgpack_take(in, 2)); return;
    case 0xd2: lua_pushnumber(lua, (int32_t)cmsgpack_take(in, 4)); return;
    case 0xd3: lua_pushnumber(lua, (lua_Number)(int64_t)cmsgpack_take(in, 8)); return;
    case 0xd9: push_string(in, cmsgpack_take(in, 1)); return;
    case 0xda: push_string(in, cmsgpack_take(in, 2)); return;
    case 0xdb: push_string(in, cmsgpack_take(in, 4)); return;
    case 0xdc: unpack_array(in, cmsgpack_take(in, 2)); return;
    case 0xdd: unpack_array(in, cmsgpack_take(in, 4)); return;
    case 0xde: unpack_map(in, cmsgpack_take(in, 2)); return;
    case 0xdf: unpack_map(in, cmsgpack_take(in, 4)); return;
    default: break;
    }
    if (code < 0x80 || code >= 0xe0) {
        in->at++;
        lua_pushnumber(lua, (int8_t)code);
    } else if (code < 0x90) {
        in->at++;
        unpack_map(in, code & 0x0f);
    } else if (code < 0xa0) {
        in->at++;
        unpack_array(in, code & 0x0f);
    } else if (code < 0xc0) {
        in->at++;
        push_string(in, code & 0x1f);
    } else {
        luaL_error(lua, "Bad data format in input.");
    }
}

/* Unpacks at most `limit` values (0: all) from an offset. With a limit the first result is the offset of the rest, or
 * -1 if there is no rest. */
static int unpack_some(lua_State *lua, int limit, int offset, bool all) {
    size_t len;
    const unsigned char *bytes = (const unsigned char *)luaL_checklstring(lua, 1, &len);
    if (offset < 0 || limit < 0)
        return luaL_error(lua, "Invalid request to unpack with offset of %d and limit of %d.", offset, (int)len);
    if ((size_t)offset > len) return luaL_error(lua, "Start offset %d greater than input length %d.", offset, (int)len);
    struct input in = {lua, bytes + offset, bytes + len};
    int count = 0, base = lua_gettop(lua);
    for (; in.at < in.end && (limit == 0 || count < limit); count++) {
        luaL_checkstack(lua, STACK_NEEDED, TOO_MANY);
        unpack_value(&in);
    }
    if (all) return count;
    lua_pushinteger(lua, in.at == in.end ? -1 : (lua_Integer)(in.at - bytes));
    lua_insert(lua, base + 1);
    return count + 1;
}

static int cmsgpack_unpack(lua_State *lua) {
    return unpack_some(lua, 0, 0, true);
}
static int unpack_one(lua_State *lua) {
    int offset = (int)luaL_optinteger(lua, 2, 0);
    lua_settop(lua, 1);
    return unpack_some(lua, 1, offset, false);
}
static int unpack_limit(lua_State *lua) {
    int limit = (int)luaL_checkinteger(lua, 2), offset = (int)luaL_optinteger(lua, 3, 0);
    lua_settop(lua, 1);
    return unpack_some(lua, limit, offset, limit == 0 && offset == 0);
}

int lua_open_cmsgpack(lua_State *lua) {
    static const luaL_Reg functions[] = {{"pack", pack},
                                         {"unpack", cmsgpack_unpack},
                                         {"unpack_one", unpack_one},
                                         {"unpack_limit", unpack_limit},
                                         {NULL, NULL}};
    static const char *const texts[][2] = {{"_NAME", "cmsgpack"},
                                           {"_VERSION", "lua-cmsgpack 0.4.0"},
                                           {"_COPYRIGHT", "Copyright (C) 2012, Redis Ltd."},
                                           {"_DESCRIPTION", "MessagePack C implementation for Lua"}};
    lua_newtable(lua);
    for (const luaL_Reg *function = functions; function->name; function++) {
        lua_pushcfunction(lua, function->func);
        lua_setfield(lua, -2, function->name);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        lua_pushstring(lua, texts[i][1]);
        lua_setfield(lua, -2, texts[i][0]);
    }
    lua_setglobal(lua, "cmsgpack");
    return 0;
}
