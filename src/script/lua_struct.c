/* lua_struct.c: the library `struct` of scripts: converts Lua values to C structs and back.
 *
 * A format is a list of options:
 *
 *     <  >       little-endian, big-endian from here on; the machine's order before
 *     !n         alignment to at most n bytes, a power of 2 (without n: 8); 1 before
 *     x          a byte of padding
 *     b B h H l L T    char, short, long and size_t; the upper case is unsigned
 *     i In       int, or an integer of n bytes (up to 32); I is unsigned
 *     f d        float, double
 *     s          a string that ends with a NUL
 *     cn         n characters; c0 all of a string, or the number of characters that was read before it
 *
 * Every size and offset is checked against the data. */
#include "script/lua_buffer.h"
#include "script/lua_vm.h"
#include <ctype.h>
#include <limits.h>

enum { INTEGER_MAX = 32, ALIGN_DEFAULT = 8 };

struct format {
    lua_State *lua;
    const char *at;
    bool little;
    size_t align;
};

static void format_begin(struct format *format, lua_State *lua) {
    *format = (struct format){
        .lua = lua, .at = luaL_checkstring(lua, 1), .little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, .align = 1};
}

static size_t read_size(struct format *format, size_t unless) {
    size_t size = 0;
    if (!isdigit((unsigned char)*format->at)) return unless;
    for (; isdigit((unsigned char)*format->at); format->at++) {
        if (size > (INT_MAX / 2 - 9) / 10) luaL_error(format->lua, "integral size overflow");
        size = size * 10 + (size_t)(*format->at - '0');
    }
    return size;
}

/* Returns the bytes of an option and moves past its size in the format. */
static size_t option_size(struct format *format, char option) {
    switch (option) {
    case 'b':
    case 'B':
    case 'x': return 1;
    case 'h':
    case 'H': return sizeof(short);
    case 'l':
    case 'L': return sizeof(long);
    case 'T': return sizeof(size_t);
    case 'f': return sizeof(float);
    case 'd': return sizeof(double);
    case 'c': return read_size(format, 1);
    case 'i':
    case 'I': {
        size_t size = read_size(format, sizeof(int));
        if (size > INTEGER_MAX)
            luaL_error(format->lua, "integral size %d is larger than limit of %d", (int)size, INTEGER_MAX);
        return size;
    }
    default: return 0;
    }
}

/* Padding before an option of `size` bytes at `offset`. Existing scripts rely on this formula, also for sizes that are
 * not a power of 2. */
static size_t padding(const struct format *format, char option, size_t size, size_t offset) {
    if (size == 0 || option == 'c' || option == 'x') return 0;
    size_t align = size < format->align ? size : format->align;
    return (align - (offset & (align - 1))) & (align - 1);
}

static void control(struct format *format, char option) {
    switch (option) {
    case ' ': return;
    case '>': format->little = false; return;
    case '<': format->little = true; return;
    case '!': {
        size_t align = read_size(format, ALIGN_DEFAULT);
        if (align == 0 || (align & (align - 1)))
            luaL_error(format->lua, "alignment %d is not a power of 2", (int)align);
        format->align = align;
        return;
    }
    default: luaL_argerror(format->lua, 1, lua_pushfstring(format->lua, "invalid format option '%c'", option));
    }
}

static void swap(char *bytes, size_t size) {
    for (size_t i = 0; i < size / 2; i++) {
        char other = bytes[i];
        bytes[i] = bytes[size - 1 - i];
        bytes[size - 1 - i] = other;
    }
}

/* The two's complement. Numbers beyond 64 bits are converted as by the CPU. */
static uint64_t integer_bits(lua_Number number) {
    if (number >= 0 && number < 0x1p64) return (uint64_t)number;
    if (number < 0 && number >= -0x1p63) return (uint64_t)(int64_t)number;
    return number >= 0x1p64 ? 0 : UINT64_C(1) << 63;
}

/* Integers beyond 8 bytes: the higher bytes are zero. */
static void put_integer(struct lua_buffer *out, const struct format *format, int index, size_t size) {
    uint64_t value = integer_bits(luaL_checknumber(format->lua, index));
    char bytes[INTEGER_MAX] = {0};
    for (size_t i = 0; i < size && i < sizeof value; i++) bytes[i] = (char)(value >> (8 * i));
    if (!format->little) swap(bytes, size);
    lua_buffer_append(out, bytes, size);
}

static void put_float(struct lua_buffer *out, const struct format *format, int index, size_t size) {
    char bytes[sizeof(double)];
    double number = luaL_checknumber(format->lua, index);
    float narrow = (float)number;
    memcpy(bytes, size == sizeof narrow ? (void *)&narrow : (void *)&number, size);
    if (format->little != (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)) swap(bytes, size);
    lua_buffer_append(out, bytes, size);
}

static void put_string(struct lua_buffer *out, const struct format *format, int index, char option, size_t size) {
    size_t len;
    const char *text = luaL_checklstring(format->lua, index, &len);
    if (size == 0) size = len;
    luaL_argcheck(format->lua, len >= size, index + 1, "string too short"); /* the index that scripts expect */
    lua_buffer_append(out, text, size);
    if (option == 's') lua_buffer_append_byte(out, 0);
}

static int pack(lua_State *lua) {
    struct format format;
    struct lua_buffer out;
    int index = 2;
    format_begin(&format, lua);
    lua_pushnil(lua); /* so that a missing argument is nil, not the buffer */
    lua_buffer_init(&out, lua);
    while (*format.at) {
        char option = *format.at++;
        size_t size = option_size(&format, option);
        for (size_t left = padding(&format, option, size, out.len); left; left--) lua_buffer_append_byte(&out, 0);
        switch (option) {
        case 'b':
        case 'B':
        case 'h':
        case 'H':
        case 'l':
        case 'L':
        case 'T':
        case 'i':
        case 'I': put_integer(&out, &format, index++, size); break;
        case 'x': lua_buffer_append_byte(&out, 0); break;
        case 'f':
        case 'd': put_float(&out, &format, index++, size); break;
        case 'c':
        case 's': put_string(&out, &format, index++, option, size); break;
        default: control(&format, option);
        }
    }
    lua_buffer_push(&out);
    return 1;
}

static lua_Number get_integer(const struct format *format, const char *at, size_t size, bool is_signed) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) value = value << 8 | (unsigned char)at[format->little ? size - 1 - i : i];
    if (!is_signed) return (lua_Number)value;
    if (size < sizeof value && size > 0 && value >> (8 * size - 1)) value |= UINT64_MAX << (8 * size);
    return (lua_Number)(int64_t)value;
}

static lua_Number get_float(const struct format *format, const char *at, size_t size) {
    char bytes[sizeof(double)];
    float narrow;
    double number;
    memcpy(bytes, at, size);
    if (format->little != (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)) swap(bytes, size);
    if (size == sizeof number) {
        memcpy(&number, bytes, sizeof number);
        return number;
    }
    memcpy(&narrow, bytes, sizeof narrow);
    return narrow;
}

/* Pushes the characters of 'c'. Returns their number. */
static size_t push_characters(lua_State *lua, int results, const char *at, size_t left, size_t size) {
    if (size == 0) {
        if (!results || !lua_isnumber(lua, -1)) luaL_error(lua, "format 'c0' needs a previous size");
        lua_Number count = lua_tonumber(lua, -1);
        luaL_argcheck(lua, count > -1 && count <= (lua_Number)left, 2, "data string too short");
        size = (size_t)count;
        lua_pop(lua, 1);
    }
    lua_pushlstring(lua, at, size);
    return size;
}

static size_t push_terminated(lua_State *lua, const char *at, size_t left) {
    const char *end = left ? memchr(at, 0, left) : NULL;
    if (!end) luaL_error(lua, "unfinished string in data");
    lua_pushlstring(lua, at, (size_t)(end - at));
    return (size_t)(end - at) + 1;
}

static int struct_unpack(lua_State *lua) {
    struct format format;
    size_t len;
    format_begin(&format, lua);
    const char *data = luaL_checklstring(lua, 2, &len);
    lua_Integer start = luaL_optinteger(lua, 3, 1);
    luaL_argcheck(lua, start != 0, 3, "offset must be 1 or greater");
    luaL_argcheck(lua, start > 0 && (size_t)start - 1 <= len, 2, "data string too short");
    size_t offset = (size_t)start - 1;
    lua_settop(lua, 2);
    while (*format.at) {
        char option = *format.at++;
        size_t size = option_size(&format, option);
        offset += padding(&format, option, size, offset);
        luaL_argcheck(lua, offset <= len && size <= len - offset, 2, "data string too short");
        luaL_checkstack(lua, 2, "too many results");
        switch (option) {
        case 'b':
        case 'B':
        case 'h':
        case 'H':
        case 'l':
        case 'L':
        case 'T':
        case 'i':
        case 'I': lua_pushnumber(lua, get_integer(&format, data + offset, size, islower((unsigned char)option))); break;
        case 'x': break;
        case 'f':
        case 'd': lua_pushnumber(lua, get_float(&format, data + offset, size)); break;
        case 'c': size = push_characters(lua, lua_gettop(lua) - 2, data + offset, len - offset, size); break;
        case 's': size = push_terminated(lua, data + offset, len - offset); break;
        default: control(&format, option);
        }
        offset += size;
    }
    lua_pushinteger(lua, (lua_Integer)offset + 1);
    return lua_gettop(lua) - 2;
}

static int fixed_size(lua_State *lua) {
    struct format format;
    size_t total = 0;
    format_begin(&format, lua);
    while (*format.at) {
        char option = *format.at++;
        size_t size = option_size(&format, option);
        if (option == 's') luaL_argerror(lua, 1, "option 's' has no fixed size");
        if (option == 'c' && size == 0) luaL_argerror(lua, 1, "option 'c0' has no fixed size");
        size_t more = padding(&format, option, size, total) + size;
        if (more > INT_MAX - total) luaL_error(lua, "integral size overflow");
        total += more;
        if (!isalnum((unsigned char)option)) control(&format, option);
    }
    lua_pushinteger(lua, (lua_Integer)total);
    return 1;
}

int lua_open_struct(lua_State *lua) {
    lua_newtable(lua);
    lua_pushcfunction(lua, pack);
    lua_setfield(lua, -2, "pack");
    lua_pushcfunction(lua, struct_unpack);
    lua_setfield(lua, -2, "unpack");
    lua_pushcfunction(lua, fixed_size);
    lua_setfield(lua, -2, "size");
    lua_setglobal(lua, "struct");
    return 0;
}
