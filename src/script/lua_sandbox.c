/* lua_sandbox.c: the globals and libraries that scripts can use, and the restrictions on them.
 *
 * Scripts have the standard libraries without access to files, processes, modules and other functions' environments
 * (`os` has only clock()). They also have cjson, cmsgpack, struct, bit and redis, which has the second name `server`.
 *
 * The globals and the libraries are read-only (lua_vm.h). A read-only table is empty; field 1 of its metatable is the
 * table that it protects, and the metatable is marked by a key that scripts cannot create. The functions of the
 * standard libraries that would read or change the empty table are replaced.
 *
 * Bytecode is rejected, because the interpreter does not verify it: a text that begins like bytecode is prefixed with a
 * space, which makes it a syntax error. Patterns are limited, because matching recurses for each of their items.
 * Functions of the distribution's libraries reject arguments for which they would write outside their memory. */
#include "script/lua_vm.h"
#include "script/script_run.h"
#include <lauxlib.h>
#include <lua-bitop.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN_ITEMS_MAX = 10000, GC_PAUSE = 200, GC_STEP = 200 };

static char mark; /* key of the metatables of read-only tables */

static char global_view; /* key of the metatable of _G */
static bool collector_changed;

/* --- Read-only tables --- */

static int refuse_write(lua_State *lua) {
    return luaL_error(lua, "Attempt to modify a readonly table");
}

/* The same error without a position, for functions of the standard libraries. */
static int refuse_raw_write(lua_State *lua) {
    lua_pushliteral(lua, "Attempt to modify a readonly table");
    return lua_error(lua);
}

/* Replaces the table on top of the stack by a read-only one. */
static void lua_make_read_only(lua_State *lua) {
    lua_newtable(lua);
    lua_createtable(lua, 1, 3);
    lua_pushvalue(lua, -3);
    lua_setfield(lua, -2, "__index");
    lua_pushvalue(lua, -3);
    lua_rawseti(lua, -2, 1);
    lua_pushcfunction(lua, refuse_write);
    lua_setfield(lua, -2, "__newindex");
    lua_pushlightuserdata(lua, &mark);
    lua_pushboolean(lua, 1);
    lua_rawset(lua, -3);
    lua_setmetatable(lua, -2);
    lua_replace(lua, -2);
}

bool lua_push_protected(lua_State *lua, int index) {
    if (!lua_getmetatable(lua, index)) return false;
    lua_pushlightuserdata(lua, &mark);
    lua_rawget(lua, -2);
    bool marked = lua_toboolean(lua, -1);
    lua_pop(lua, 1);
    if (marked) {
        lua_rawgeti(lua, -1, 1);
        lua_replace(lua, -2);
        return true;
    }
    lua_pop(lua, 1);
    return false;
}

static bool is_protected(lua_State *lua, int index) {
    if (lua_type(lua, index) != LUA_TTABLE || !lua_push_protected(lua, index)) return false;
    lua_pop(lua, 1);
    return true;
}

/* Replaces a read-only argument by the table behind it, for functions that only read it. */
static void see_through(lua_State *lua, int index) {
    if (lua_type(lua, index) == LUA_TTABLE && lua_push_protected(lua, index)) lua_replace(lua, index);
}

/* Functions of the standard libraries that a replacement calls. Error messages show the name of the replacement. */
enum original {
    ORIGINAL_NEXT,
    ORIGINAL_PAIRS,
    ORIGINAL_RAWGET,
    ORIGINAL_RAWSET,
    ORIGINAL_GETMETATABLE,
    ORIGINAL_SETMETATABLE,
    ORIGINAL_COLLECTGARBAGE,
    ORIGINAL_UNPACK,
    ORIGINAL_TOBIT,
    ORIGINAL_TOHEX,
    ORIGINAL_INSERT,
    ORIGINAL_FOREACH,
    ORIGINAL_FIND,
    ORIGINAL_MATCH,
    ORIGINAL_GMATCH,
    ORIGINAL_GSUB,
    ORIGINALS
};
static lua_CFunction originals[ORIGINALS];

static int safe_next(lua_State *lua) {
    see_through(lua, 1);
    return originals[ORIGINAL_NEXT](lua);
}
static int safe_pairs(lua_State *lua) {
    if (!is_protected(lua, 1)) return originals[ORIGINAL_PAIRS](lua);
    lua_pushvalue(lua, lua_upvalueindex(2));
    lua_pushvalue(lua, 1);
    lua_pushnil(lua);
    return 3;
}
static int safe_rawget(lua_State *lua) {
    see_through(lua, 1);
    return originals[ORIGINAL_RAWGET](lua);
}
static int safe_rawset(lua_State *lua) {
    return is_protected(lua, 1) ? refuse_raw_write(lua) : originals[ORIGINAL_RAWSET](lua);
}
static int safe_setmetatable(lua_State *lua) {
    return is_protected(lua, 1) ? refuse_raw_write(lua) : originals[ORIGINAL_SETMETATABLE](lua);
}
static int safe_insert(lua_State *lua) {
    return is_protected(lua, 1) ? refuse_raw_write(lua) : originals[ORIGINAL_INSERT](lua);
}
static int safe_foreach(lua_State *lua) {
    see_through(lua, 1);
    return originals[ORIGINAL_FOREACH](lua);
}

static int safe_getmetatable(lua_State *lua) {
    if (!is_protected(lua, 1)) return originals[ORIGINAL_GETMETATABLE](lua);
    if (lua_rawequal(lua, 1, LUA_GLOBALSINDEX)) {
        lua_pushlightuserdata(lua, &global_view);
        lua_rawget(lua, LUA_REGISTRYINDEX);
    } else {
        lua_pushnil(lua);
    }
    return 1;
}

/* A script may stop or tune the collector only for itself. */
static int safe_collectgarbage(lua_State *lua) {
    collector_changed = true;
    return originals[ORIGINAL_COLLECTGARBAGE](lua);
}

void lua_sandbox_reset(lua_State *lua) {
    if (__builtin_expect(!collector_changed, 1)) return;
    collector_changed = false;
    lua_gc(lua, LUA_GCSETPAUSE, GC_PAUSE);
    lua_gc(lua, LUA_GCSETSTEPMUL, GC_STEP);
    lua_gc(lua, LUA_GCRESTART, 0);
}

/* --- Arguments that the distribution's libraries do not check --- */

/* The original computes the number of results as an int, which may overflow: it would write past the stack. */
static int safe_unpack(lua_State *lua) {
    luaL_checktype(lua, 1, LUA_TTABLE);
    int64_t first = luaL_optint(lua, 2, 1);
    int64_t last = luaL_opt(lua, luaL_checkint, 3, (int)lua_objlen(lua, 1));
    if (last - first >= LUAI_MAXCSTACK) return luaL_error(lua, "too many results to unpack");
    return originals[ORIGINAL_UNPACK](lua);
}

/* The original negates the number of digits, which overflows for INT_MIN: it would write outside its buffer. Numbers
 * above 8 mean 8. */
static int safe_tohex(lua_State *lua) {
    if (lua_isnumber(lua, 2)) {
        lua_pushcfunction(lua, originals[ORIGINAL_TOBIT]);
        lua_pushvalue(lua, 2);
        lua_call(lua, 1, 1);
        if (lua_tonumber(lua, -1) == INT32_MIN) {
            lua_pushinteger(lua, -8);
            lua_replace(lua, 2);
        }
        lua_pop(lua, 1);
    }
    return originals[ORIGINAL_TOHEX](lua);
}

/* --- Patterns --- */

static void check_pattern(lua_State *lua) {
    size_t len = 0, items = 0;
    const char *pattern = lua_type(lua, 2) == LUA_TSTRING ? lua_tolstring(lua, 2, &len) : NULL;
    if (len <= PATTERN_ITEMS_MAX) return;
    for (size_t i = 0; i < len; i++) items += memchr("?*+-()%[", pattern[i], 8) != NULL;
    if (items > PATTERN_ITEMS_MAX) luaL_error(lua, "pattern too complex");
}
static int safe_find(lua_State *lua) {
    check_pattern(lua);
    return originals[ORIGINAL_FIND](lua);
}
static int safe_match(lua_State *lua) {
    check_pattern(lua);
    return originals[ORIGINAL_MATCH](lua);
}
static int safe_gmatch(lua_State *lua) {
    check_pattern(lua);
    return originals[ORIGINAL_GMATCH](lua);
}
static int safe_gsub(lua_State *lua) {
    check_pattern(lua);
    return originals[ORIGINAL_GSUB](lua);
}

/* --- Loading code --- */

struct text_reader {
    struct slice text;
    bool spaced;
};
static const char *read_text(lua_State *lua, void *context, size_t *size) {
    struct text_reader *reader = context;
    struct slice text = reader->text;
    if (text.len && text.data[0] == LUA_SIGNATURE[0] && !reader->spaced) {
        reader->spaced = true;
        *size = 1;
        return " ";
    }
    reader->text = SLICE("");
    *size = text.len;
    return text.len ? text.data : NULL;
}

int lua_load_text(lua_State *lua, struct slice text, const char *chunk_name) {
    return lua_load(lua, read_text, &(struct text_reader){.text = text}, chunk_name);
}

/* Results of load() and loadstring(): the function, or nil and the message. */
static int loaded(lua_State *lua, int status) {
    if (!status) return 1;
    lua_pushnil(lua);
    lua_insert(lua, -2);
    return 2;
}

static int safe_loadstring(lua_State *lua) {
    size_t len;
    const char *text = luaL_checklstring(lua, 1, &len);
    return loaded(lua, lua_load_text(lua, (struct slice){text, len}, luaL_optstring(lua, 2, text)));
}

enum { LOAD_FUNCTION = 1, LOAD_NAME = 2, LOAD_PIECE = 3 };
/* The piece is on the stack while it is read, so that it is not collected. */
static const char *read_pieces(lua_State *lua, void *context, size_t *size) {
    bool *first = context;
    const char *piece;
    *size = 0;
    if (lua_toboolean(lua, lua_upvalueindex(1))) { /* bytecode: the piece after the space */
        lua_pushboolean(lua, 0);
        lua_replace(lua, lua_upvalueindex(1));
        return lua_tolstring(lua, LOAD_PIECE, size);
    }
    luaL_checkstack(lua, 2, "too many nested functions");
    lua_pushvalue(lua, LOAD_FUNCTION);
    lua_call(lua, 0, 1);
    if (lua_isnil(lua, -1)) return NULL;
    if (!lua_isstring(lua, -1)) luaL_error(lua, "reader function must return a string");
    lua_replace(lua, LOAD_PIECE);
    piece = lua_tolstring(lua, LOAD_PIECE, size);
    if (*first && *size) {
        *first = false;
        if (piece[0] == LUA_SIGNATURE[0]) {
            lua_pushboolean(lua, 1);
            lua_replace(lua, lua_upvalueindex(1));
            *size = 1;
            return " ";
        }
    }
    return piece;
}
static int safe_load(lua_State *lua) {
    bool first = true;
    const char *name = luaL_optstring(lua, LOAD_NAME, "=(load)");
    luaL_checktype(lua, LOAD_FUNCTION, LUA_TFUNCTION);
    lua_settop(lua, LOAD_PIECE);
    /* The parser uses a string with this name. When the reader function is called once more after the end of the text,
     * the collector could free that string. The name on the stack is the same string and keeps it alive. */
    lua_pushstring(lua, name);
    lua_replace(lua, LOAD_NAME);
    lua_pushboolean(lua, 0);
    lua_replace(lua, lua_upvalueindex(1));
    return loaded(lua, lua_load(lua, read_pieces, &first, name));
}

/* --- Errors --- */

/* Errors of redis.call() are tables; a script that catches one receives the text in its field `err`. If `err` is not a
 * string, its value, possibly nil, is an additional result. */
static int safe_pcall(lua_State *lua) {
    if (lua_gettop(lua) == 0) lua_pushboolean(lua, 1);
    int status = lua_pcall(lua, lua_gettop(lua) - 1, LUA_MULTRET, 0);
    lua_pushboolean(lua, status == 0);
    lua_insert(lua, 1);
    if (status && lua_istable(lua, -1)) {
        lua_getfield(lua, -1, "err");
        if (lua_isstring(lua, -1)) lua_replace(lua, -2);
    }
    return lua_gettop(lua);
}

/* --- math.random: the generator of drand48(), which is the same on all systems; its state persists between scripts
 * --- */

static unsigned short random_state[3] = {0x330e, 0xabcd, 0x1234};

static int safe_random(lua_State *lua) {
    double fraction = (double)(nrand48(random_state) % INT32_MAX) / (double)INT32_MAX;
    int low = 1, high, count = lua_gettop(lua);
    if (count == 0) {
        lua_pushnumber(lua, fraction);
        return 1;
    }
    if (count > 2) return luaL_error(lua, "wrong number of arguments");
    if (count == 2) low = luaL_checkint(lua, 1);
    high = luaL_checkint(lua, count);
    luaL_argcheck(lua, low <= high, count, "interval is empty");
    lua_pushnumber(lua, (double)(int64_t)(fraction * ((double)high - low + 1)) + low);
    return 1;
}
static int safe_randomseed(lua_State *lua) {
    uint32_t seed = (uint32_t)luaL_checkint(lua, 1);
    random_state[0] = 0x330e;
    random_state[1] = (unsigned short)seed;
    random_state[2] = (unsigned short)(seed >> 16);
    return 0;
}

/* --- Opening --- */

static void open_library(lua_State *lua, const char *name, lua_CFunction open) {
    lua_pushcfunction(lua, open);
    lua_pushstring(lua, name);
    lua_call(lua, 1, 0);
}

/* Replaces a function of the table on top of the stack and stores the original. */
static void replace(lua_State *lua, const char *name, lua_CFunction function, int original) {
    if (original >= 0) {
        lua_getfield(lua, -1, name);
        originals[original] = lua_tocfunction(lua, -1);
        lua_pop(lua, 1);
    }
    lua_pushcfunction(lua, function);
    lua_setfield(lua, -2, name);
}

static void remove_field(lua_State *lua, const char *name) {
    lua_pushnil(lua);
    lua_setfield(lua, -2, name);
}

static void open_base(lua_State *lua) {
    static const char *const absent[] = {"dofile", "loadfile", "print", "module", "require", "package", "debug", "io"};
    static const char *const insecure[] = {"getfenv", "setfenv", "newproxy"};
    lua_pushvalue(lua, LUA_GLOBALSINDEX);
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) remove_field(lua, absent[i]);
    for (size_t i = 0; i < sizeof insecure / sizeof *insecure && !script_settings.insecure_api; i++)
        remove_field(lua, insecure[i]);
    lua_getfield(lua, -1, "pairs");
    originals[ORIGINAL_PAIRS] = lua_tocfunction(lua, -1);
    lua_pop(lua, 1);
    lua_getfield(lua, -1, "next"); /* upvalue of the original, which would not see into a read-only table */
    lua_getfield(lua, -2, "next");
    originals[ORIGINAL_NEXT] = lua_tocfunction(lua, -1);
    lua_pop(lua, 1);
    lua_pushcfunction(lua, safe_next);
    lua_setfield(lua, -3, "next");
    lua_pushcfunction(lua, safe_next);
    lua_pushcclosure(lua, safe_pairs, 2);
    lua_setfield(lua, -2, "pairs");
    replace(lua, "rawget", safe_rawget, ORIGINAL_RAWGET);
    replace(lua, "rawset", safe_rawset, ORIGINAL_RAWSET);
    replace(lua, "getmetatable", safe_getmetatable, ORIGINAL_GETMETATABLE);
    replace(lua, "setmetatable", safe_setmetatable, ORIGINAL_SETMETATABLE);
    replace(lua, "collectgarbage", safe_collectgarbage, ORIGINAL_COLLECTGARBAGE);
    replace(lua, "unpack", safe_unpack, ORIGINAL_UNPACK);
    replace(lua, "loadstring", safe_loadstring, -1);
    replace(lua, "pcall", safe_pcall, -1);
    lua_pushboolean(lua, 0);
    lua_pushcclosure(lua, safe_load, 1);
    lua_setfield(lua, -2, "load");
    lua_pop(lua, 1);
}

static void open_others(lua_State *lua) {
    lua_getglobal(lua, "table");
    replace(lua, "insert", safe_insert, ORIGINAL_INSERT);
    replace(lua, "foreach", safe_foreach, ORIGINAL_FOREACH);
    lua_getglobal(lua, "math");
    replace(lua, "random", safe_random, -1);
    replace(lua, "randomseed", safe_randomseed, -1);
    lua_getglobal(lua, "string");
    replace(lua, "find", safe_find, ORIGINAL_FIND);
    replace(lua, "match", safe_match, ORIGINAL_MATCH);
    replace(lua, "gmatch", safe_gmatch, ORIGINAL_GMATCH);
    replace(lua, "gsub", safe_gsub, ORIGINAL_GSUB);
    lua_getfield(lua, -1, "gmatch");
    lua_setfield(lua, -2, "gfind");
    lua_getglobal(lua, "bit");
    lua_getfield(lua, -1, "tobit");
    originals[ORIGINAL_TOBIT] = lua_tocfunction(lua, -1);
    lua_pop(lua, 1);
    replace(lua, "tohex", safe_tohex, ORIGINAL_TOHEX);
    lua_getglobal(lua, "os");
    lua_newtable(lua);
    lua_getfield(lua, -2, "clock");
    lua_setfield(lua, -2, "clock");
    lua_setglobal(lua, "os");
    lua_pop(lua, 5);
}

static int refuse_unknown_global(lua_State *lua) {
    return luaL_error(lua, "Script attempted to access nonexistent global variable '%s'",
                      lua_type(lua, 2) == LUA_TSTRING ? lua_tostring(lua, 2) : luaL_typename(lua, 2));
}

void lua_make_globals(lua_State *lua) {
    lua_newtable(lua);
    lua_pushcfunction(lua, refuse_unknown_global);
    lua_setfield(lua, -2, "__index");
    lua_setmetatable(lua, -2);
    lua_make_read_only(lua);
}

static void protect_libraries(lua_State *lua) {
    static const char *const names[] = {"string", "table",    "math",   "coroutine", "os",
                                        "cjson",  "cmsgpack", "struct", "bit",       "redis"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lua_getglobal(lua, names[i]);
        lua_make_read_only(lua);
        lua_setglobal(lua, names[i]);
    }
    lua_getglobal(lua, "redis");
    lua_setglobal(lua, "server");
    /* getmetatable("") returns a read-only copy of the metatable of strings. */
    lua_pushliteral(lua, "");
    lua_getmetatable(lua, -1);
    lua_newtable(lua);
    lua_getglobal(lua, "string");
    lua_setfield(lua, -2, "__index");
    lua_make_read_only(lua);
    lua_setfield(lua, -2, "__metatable");
    lua_pop(lua, 2);
}

static void protect_globals(lua_State *lua, enum lua_vm_kind kind) {
    if (kind == LUA_VM_EVAL) {
        lua_pushcfunction(lua, lua_error_handler);
        lua_setglobal(lua, "__redis__err__handler");
        lua_pushcfunction(lua, lua_error_handler);
        lua_setglobal(lua, "__server__err__handler");
    }
    lua_newtable(lua);
    lua_pushcfunction(lua, refuse_unknown_global);
    lua_setfield(lua, -2, "__index");
    lua_pushlightuserdata(lua, &global_view);
    lua_pushvalue(lua, -2);
    lua_make_read_only(lua);
    lua_rawset(lua, LUA_REGISTRYINDEX);
    lua_pushvalue(lua, LUA_GLOBALSINDEX);
    lua_insert(lua, -2);
    lua_setmetatable(lua, -2); /* the metatable of the globals */
    lua_make_read_only(lua);
    lua_pushliteral(lua, "_G");
    lua_pushvalue(lua, -2);
    lua_rawset(lua, LUA_GLOBALSINDEX);
    lua_replace(lua, LUA_GLOBALSINDEX);
}

void lua_sandbox_open(lua_State *lua, enum lua_vm_kind kind) {
    open_library(lua, "", luaopen_base);
    open_library(lua, LUA_TABLIBNAME, luaopen_table);
    open_library(lua, LUA_STRLIBNAME, luaopen_string);
    open_library(lua, LUA_MATHLIBNAME, luaopen_math);
    open_library(lua, LUA_OSLIBNAME, luaopen_os);
    open_library(lua, "bit", luaopen_bit);
    open_library(lua, "cjson", lua_open_cjson);
    open_library(lua, "cmsgpack", lua_open_cmsgpack);
    open_library(lua, "struct", lua_open_struct);
    open_base(lua);
    open_others(lua);
    lua_api_open(lua, kind);
    lua_setglobal(lua, "redis");
    protect_libraries(lua);
    protect_globals(lua, kind);
}
