/* lua_buffer.h: a growing text in the interpreter's memory: a userdata on the stack, which an error frees. Growing may
 * raise the error "not enough memory". */
#pragma once
#include <lauxlib.h>
#include <stdint.h>
#include <string.h>

struct lua_buffer {
    lua_State *lua;
    char *data;
    size_t len, capacity;
    int position; /* on the stack */
};

static inline void lua_buffer_init(struct lua_buffer *buffer, lua_State *lua) {
    enum { FIRST = 512 };
    buffer->lua = lua;
    buffer->len = 0;
    buffer->capacity = FIRST;
    buffer->data = lua_newuserdata(lua, FIRST);
    buffer->position = lua_gettop(lua);
}

/* Returns space for `len` more bytes; the caller adds the number of bytes written to buffer->len. */
static inline char *lua_buffer_reserve(struct lua_buffer *buffer, size_t len) {
    if (__builtin_expect(buffer->capacity - buffer->len < len, 0)) {
        size_t capacity = buffer->capacity;
        if (len > SIZE_MAX / 4 - capacity) luaL_error(buffer->lua, "not enough memory");
        while (capacity - buffer->len < len) capacity *= 2;
        char *data = lua_newuserdata(buffer->lua, capacity);
        memcpy(data, buffer->data, buffer->len);
        lua_replace(buffer->lua, buffer->position);
        buffer->data = data;
        buffer->capacity = capacity;
    }
    return buffer->data + buffer->len;
}

static inline void lua_buffer_append(struct lua_buffer *buffer, const void *bytes, size_t len) {
    char *at = lua_buffer_reserve(buffer, len);
    if (len) memcpy(at, bytes, len);
    buffer->len += len;
}
static inline void lua_buffer_append_byte(struct lua_buffer *buffer, unsigned byte) {
    *lua_buffer_reserve(buffer, 1) = (char)byte;
    buffer->len++;
}
static inline void lua_buffer_push(struct lua_buffer *buffer) { /* pushes it as a string */
    lua_pushlstring(buffer->lua, buffer->data, buffer->len);
}
