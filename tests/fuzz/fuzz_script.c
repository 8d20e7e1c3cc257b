/* The Lua libraries cjson, cmsgpack and struct of scripts. For any argument they return or raise an error, and they
 * read their own output back to the same value. Input: a byte that selects the test; for struct the length of the
 * format and the format; the text. */
#include "fuzz.h"
#include "script/lua_vm.h"
#include <lauxlib.h>

bool lua_push_protected(lua_State *lua, int index) { /* this program has no sandbox */
    return false;
}

static lua_State *lua;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    lua = luaL_newstate();
    lua_open_cjson(lua);
    lua_open_cmsgpack(lua);
    lua_open_struct(lua);
    lua_settop(lua, 0);
    return 0;
}

static void push_function(const char *library, const char *name) {
    lua_getglobal(lua, library);
    lua_getfield(lua, -1, name);
    lua_remove(lua, -2);
}

static void push_text(struct slice text) {
    lua_pushlstring(lua, text.data, text.len);
}

/* Decodes the text, and encodes and decodes the result repeatedly: from the second time on the encodings have the same
 * length. (The order of a table's keys may differ, and values that are nested too deeply for cmsgpack become nil.) */
static void fuzz_codec(const char *library, const char *decode, const char *encode, struct slice text) {
    enum { ROUNDS = 3 };
    size_t lengths[ROUNDS];
    push_function(library, decode);
    push_text(text);
    if (lua_pcall(lua, 1, 1, 0)) return;
    for (int i = 0; i < ROUNDS; i++) {
        push_function(library, encode);
        lua_insert(lua, -2);
        if (lua_pcall(lua, 1, 1, 0)) return; /* inf, or nested too deeply for the encoder */
        FUZZ_CHECK(lua_type(lua, -1) == LUA_TSTRING, "an encoding that is no string");
        lua_tolstring(lua, -1, &lengths[i]);
        push_function(library, decode);
        lua_insert(lua, -2);
        if (lua_pcall(lua, 1, 1, 0)) { /* a key that is a table nested too deeply has become nil */
            FUZZ_CHECK(library[1] == 'm', "its own encoding: %s", lua_tostring(lua, -1));
            return;
        }
    }
    FUZZ_CHECK(lengths[1] == lengths[2], "%zu bytes became %zu", lengths[1], lengths[2]);
}

static void fuzz_struct(struct slice format, struct slice text) {
    push_function("struct", "size");
    push_text(format);
    lua_pcall(lua, 1, 1, 0);
    push_function("struct", "unpack");
    push_text(format);
    push_text(text);
    int base = lua_gettop(lua) - 3;
    if (lua_pcall(lua, 2, LUA_MULTRET, 0)) return;
    lua_pop(lua, 1); /* the offset */
    int count = lua_gettop(lua) - base;
    push_function("struct", "pack");
    lua_insert(lua, base + 1);
    push_text(format);
    lua_insert(lua, base + 2);
    lua_pcall(lua, count + 1, 1, 0); /* c0 took its size from the previous value, which is missing now */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, data + size};
    uint8_t choice = fuzz_byte(&in);
    if (choice % 3 == 2) {
        struct slice format = fuzz_take(&in, fuzz_byte(&in) % 32);
        fuzz_struct(format, fuzz_take(&in, SIZE_MAX));
    } else {
        struct slice text = fuzz_take(&in, SIZE_MAX);
        if (choice % 3)
            fuzz_codec("cmsgpack", "unpack", "pack", text);
        else
            fuzz_codec("cjson", "decode", "encode", text);
    }
    lua_settop(lua, 0);
    lua_gc(lua, LUA_GCCOLLECT, 0);
    return 0;
}
