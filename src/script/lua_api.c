/* lua_api.c: the functions of the table `redis`, which scripts also find under the name `server`. */
#include "lib/hash/sha1.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "script/lua_vm.h"
#include "script/script_debug.h"
#include "script/script_run.h"
#include "server/command/propagate.h"
#include "server/server.h"
#include <lauxlib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ARGUMENTS_KEPT = 64, NUMBER_TEXT = 40 };

/* --- Errors --- */

static void push_error(lua_State *lua, const char *error) {
    lua_createtable(lua, 0, 1);
    lua_pushstring(lua, error);
    lua_setfield(lua, -2, "err");
}

/* Raises {err = error}. */
static int lua_raise(lua_State *lua, const char *error) {
    push_error(lua, error);
    return lua_error(lua);
}

static void push_error_text(lua_State *lua) {
    size_t len;
    const char *text;
    lua_pushliteral(lua, "ERR ");
    if (lua_isboolean(lua, 1))
        lua_pushstring(lua, lua_toboolean(lua, 1) ? "true" : "false");
    else if ((text = lua_tolstring(lua, 1, &len)))
        lua_pushlstring(lua, text, len);
    else
        lua_pushfstring(lua, lua_isnil(lua, 1) ? "nil" : "%s: %p", luaL_typename(lua, 1),
                        lua_islightuserdata(lua, 1) ? lua_touserdata(lua, 1) : lua_topointer(lua, 1));
    lua_concat(lua, 2);
}

/* Makes a new table for an error: its text and its position. A table that the script raises is not changed, because it
 * may be a table that scripts must not change. Reading its fields may call functions of its metatable, whose errors
 * replace this error. */
int lua_error_handler(lua_State *lua) {
    enum { RAISED = 1, ERROR };
    lua_Debug where;
    lua_settop(lua, RAISED);
    lua_createtable(lua, 0, 4);
    if (lua_istable(lua, RAISED)) {
        lua_getfield(lua, RAISED, "err");
        if (lua_isnil(lua, -1)) lua_pushliteral(lua, "ERR unknown error");
        lua_getfield(lua, RAISED, "ignore_error_stats_update");
        lua_setfield(lua, ERROR, "ignore_error_stats_update");
    } else {
        push_error_text(lua);
    }
    lua_setfield(lua, ERROR, "err");
    lua_settop(lua, ERROR);
    bool known = lua_getstack(lua, 1, &where) && lua_getinfo(lua, "Sl", &where);
    if (known && strcmp(where.what, "C") == 0) known = lua_getstack(lua, 2, &where) && lua_getinfo(lua, "Sl", &where);
    if (known) {
        lua_pushstring(lua, where.source);
        lua_setfield(lua, ERROR, "source");
        lua_pushinteger(lua, where.currentline);
        lua_setfield(lua, ERROR, "line");
    }
    return 1;
}

/* --- Calls --- */

/* Arguments of commands. They point to the strings on the stack; numbers are formatted in `texts`. */
static struct arguments {
    struct slice *items;
    char (*texts)[NUMBER_TEXT];
    int capacity;
} arguments;

static size_t format_number(char text[static NUMBER_TEXT], lua_Number number) {
    if (isnan(number)) {
        memcpy(text, "-nan", 4);
        if (signbit(number)) return 4;
        memcpy(text, "nan", 3);
        return 3;
    }
    if (number > -0x1p63 && number < 0x1p63 && (lua_Number)(int64_t)number == number)
        return format_int64(text, (int64_t)number);
    return format_double_digits(text, number);
}

/* Returns NULL, or the error. */
static const char *arguments_read(lua_State *lua, int *argc) {
    enum { LARGE = 64 * 1024 };
    static const char wrong[] = "ERR Command arguments must be strings or integers";
    int count = lua_gettop(lua);
    if (!count) return "ERR Please specify at least one argument for this call";
    if (count > arguments.capacity) {
        int capacity = count < ARGUMENTS_KEPT ? ARGUMENTS_KEPT : count;
        arguments.items = mem_realloc(arguments.items, (size_t)capacity * sizeof *arguments.items);
        arguments.texts = mem_realloc(arguments.texts, (size_t)capacity * sizeof *arguments.texts);
        arguments.capacity = capacity;
    }
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        struct slice *item = &arguments.items[i];
        switch (lua_type(lua, i + 1)) {
        case LUA_TSTRING: item->data = lua_tolstring(lua, i + 1, &item->len); break;
        case LUA_TNUMBER:
            item->data = arguments.texts[i];
            item->len = format_number(arguments.texts[i], lua_tonumber(lua, i + 1));
            break;
        default: return wrong;
        }
        bytes += item->len;
    }
    /* As for a client's request: a command may copy its arguments, and that cannot fail. */
    if (bytes > LARGE && !mem_is_available(bytes)) return "OOM the request is too large for the memory that is left";
    *argc = count;
    return NULL;
}

static int call_with(lua_State *lua, bool raises) {
    int argc = 0;
    struct slice reply = {NULL, 0};
    const char *error = arguments_read(lua, &argc);
    bool counted = !error;
    if (!error) error = script_call(argc, arguments.items, &reply);
    if (__builtin_expect(script_session != NULL, 0)) lua_debug_called(argc, arguments.items, reply, error);
    lua_settop(lua, 0); /* the arguments may have filled the stack */
    if (error) {
        push_error(lua, error);
        if (counted) {
            lua_pushboolean(lua, 1);
            lua_setfield(lua, -2, "ignore_error_stats_update");
        }
        return raises ? lua_error(lua) : 1;
    }
    if (!reply.len) return 0; /* a command without a reply */
    bool failed = reply.data[0] == '-';
    lua_push_reply(lua, reply.data, reply.data + reply.len);
    return failed && raises ? lua_error(lua) : 1;
}

static int api_call(lua_State *lua) {
    return call_with(lua, true);
}
static int api_pcall(lua_State *lua) {
    return call_with(lua, false);
}

static int api_acl_check_cmd(lua_State *lua) {
    int argc;
    const char *error = arguments_read(lua, &argc);
    if (error) return lua_raise(lua, error);
    int allowed = script_may_call(argc, arguments.items);
    if (allowed < 0) return lua_raise(lua, "ERR Invalid command passed to server.acl_check_cmd()");
    lua_pushboolean(lua, allowed);
    return 1;
}

/* --- Replies --- */

static int single_field(lua_State *lua, const char *name) {
    if (lua_gettop(lua) != 1 || lua_type(lua, 1) != LUA_TSTRING) {
        lua_createtable(lua, 0, 1);
        lua_pushliteral(lua, "ERR wrong number or type of arguments");
        lua_setfield(lua, -2, "err");
        return 1;
    }
    lua_createtable(lua, 0, 1);
    lua_pushvalue(lua, 1);
    lua_setfield(lua, -2, name);
    return 1;
}

static int api_status_reply(lua_State *lua) {
    return single_field(lua, "ok");
}

/* Adds a code to a text without one; "-CODE text" is used without the '-'. */
static int api_error_reply(lua_State *lua) {
    if (lua_gettop(lua) == 1 && lua_type(lua, 1) == LUA_TSTRING) {
        const char *text = lua_tostring(lua, 1);
        if (*text == '-') text++;
        lua_pushfstring(lua, strchr(text, ' ') ? "%s" : "ERR %s", text);
        lua_replace(lua, 1);
    }
    return single_field(lua, "err");
}

/* --- Others --- */

static int api_sha1hex(lua_State *lua) {
    unsigned char digest[SHA1_SIZE];
    char text[SHA1_SIZE * 2 + 1];
    if (lua_gettop(lua) != 1) return lua_raise(lua, "ERR wrong number of arguments");
    size_t len = 0;
    const char *bytes = lua_tolstring(lua, 1, &len);
    sha1_digest((struct slice){bytes, len}, digest);
    for (int i = 0; i < SHA1_SIZE; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
    lua_pushlstring(lua, text, SHA1_SIZE * 2);
    return 1;
}

static int api_log(lua_State *lua) {
    int count = lua_gettop(lua);
    if (count < 2) return lua_raise(lua, "ERR server.log() requires two arguments or more.");
    if (!lua_isnumber(lua, 1)) return lua_raise(lua, "ERR First argument must be a number (log level).");
    lua_Integer level = lua_tointeger(lua, 1);
    if (level < LOG_LEVEL_DEBUG || level > LOG_LEVEL_WARNING) return lua_raise(lua, "ERR Invalid log level.");
    if ((enum log_level)level < log_level) return 0;
    luaL_Buffer line;
    luaL_buffinit(lua, &line);
    for (int i = 2; i <= count; i++) {
        size_t len;
        const char *text = lua_tolstring(lua, i, &len);
        if (!text) continue;
        if (i > 2) luaL_addchar(&line, ' ');
        luaL_addlstring(&line, text, len);
    }
    luaL_pushresult(&line);
    log_write((enum log_level)level, "<lua> %s", lua_tostring(lua, -1));
    return 0;
}

static int api_setresp(lua_State *lua) {
    if (lua_gettop(lua) != 1) return lua_raise(lua, "ERR server.setresp() requires one argument.");
    lua_Integer protocol = lua_tointeger(lua, 1);
    if (protocol != 2 && protocol != 3) return lua_raise(lua, "ERR RESP version must be 2 or 3.");
    script_set_protocol((int)protocol);
    return 0;
}

static int api_set_repl(lua_State *lua) {
    if (lua_gettop(lua) != 1) return lua_raise(lua, "ERR server.set_repl() requires one argument.");
    lua_Integer targets = lua_tointeger(lua, 1);
    if (targets & ~PROPAGATE_ALL)
        return lua_raise(lua, "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.");
    script_set_targets((int)targets);
    return 0;
}

/* Scripts are always replicated by their effects. */
static int api_replicate_commands(lua_State *lua) {
    lua_pushboolean(lua, 1);
    return 1;
}

/* Without a debugging session these functions do nothing. */
static int api_breakpoint(lua_State *lua) {
    lua_pushboolean(lua, script_session != NULL);
    if (script_session) lua_debug_stop_soon();
    return 1;
}
static int api_debug(lua_State *lua) {
    if (script_session) lua_debug_show_arguments(lua);
    return 0;
}

/* --- Registering functions --- */

static void flags_read(lua_State *lua, struct lua_function *function) {
    if (!lua_istable(lua, -1)) {
        lua_raise(lua, "ERR flags argument to server.register_function must be a table representing function flags");
        return;
    }
    for (int i = 1;; i++) {
        lua_rawgeti(lua, -1, i);
        if (lua_isnil(lua, -1)) break;
        size_t len = 0;
        const char *name = lua_type(lua, -1) == LUA_TSTRING ? lua_tolstring(lua, -1, &len) : NULL;
        uint32_t flag = name ? script_flag_parse((struct slice){name, len}) : 0;
        if (!flag) lua_raise(lua, "ERR unknown flag given");
        function->flags |= flag;
        lua_pop(lua, 1);
    }
    lua_pop(lua, 1);
}

/* Reads the table of named arguments at position 1. The strings stay valid, because the table references them. */
static void named_arguments_read(lua_State *lua, struct lua_function *function) {
    for (lua_pushnil(lua); lua_next(lua, 1); lua_pop(lua, 1)) {
        const char *key = lua_type(lua, -2) == LUA_TSTRING ? lua_tostring(lua, -2) : "";
        if (strcmp(key, "function_name") == 0) {
            if (!lua_isstring(lua, -1))
                lua_raise(lua, "ERR function_name argument given to server.register_function must be a string");
            lua_pushvalue(lua, -1);
            function->name.data = lua_tolstring(lua, -1, &function->name.len);
            lua_replace(lua, 2);
        } else if (strcmp(key, "description") == 0) {
            if (!lua_isstring(lua, -1))
                lua_raise(lua, "ERR description argument given to server.register_function must be a string");
            lua_pushvalue(lua, -1);
            function->description.data = lua_tolstring(lua, -1, &function->description.len);
            lua_replace(lua, 3);
        } else if (strcmp(key, "callback") == 0) {
            if (!lua_isfunction(lua, -1))
                lua_raise(lua, "ERR callback argument given to server.register_function must be a function");
            lua_pushvalue(lua, -1);
            lua_replace(lua, 4);
        } else if (strcmp(key, "flags") == 0) {
            flags_read(lua, function);
        } else {
            lua_raise(lua, "ERR unknown argument given to server.register_function");
        }
    }
    if (!function->name.data) lua_raise(lua, "ERR server.register_function must get a function name argument");
    if (lua_isnil(lua, 4)) lua_raise(lua, "ERR server.register_function must get a callback argument");
}

static int api_register_function(lua_State *lua) {
    struct lua_function function = {.reference = LUA_NOREF};
    int count = lua_gettop(lua);
    if (!lua_registering)
        return lua_raise(lua, "ERR server.register_function can only be called on FUNCTION LOAD command");
    if (count < 1 || count > 2) return lua_raise(lua, "ERR wrong number of arguments to server.register_function");
    if (count == 1) {
        if (!lua_istable(lua, 1))
            return lua_raise(lua, "ERR calling server.register_function with a single argument is only applicable to "
                                  "Lua table (representing named arguments).");
        lua_settop(lua, 4);
        named_arguments_read(lua, &function);
        lua_settop(lua, 4);
    } else {
        if (!lua_isstring(lua, 1))
            return lua_raise(lua, "ERR first argument to server.register_function must be a string");
        if (!lua_isfunction(lua, 2))
            return lua_raise(lua, "ERR second argument to server.register_function must be a function");
        function.name.data = lua_tolstring(lua, 1, &function.name.len);
    }
    function.reference = luaL_ref(lua, LUA_REGISTRYINDEX);
    lua_registering->add(lua_registering, &function);
    return 0;
}

/* --- Opening --- */

struct constant {
    const char *name;
    int value;
};
static const struct constant log_levels[] = {{"LOG_DEBUG", LOG_LEVEL_DEBUG},
                                             {"LOG_VERBOSE", LOG_LEVEL_VERBOSE},
                                             {"LOG_NOTICE", LOG_LEVEL_NOTICE},
                                             {"LOG_WARNING", LOG_LEVEL_WARNING},
                                             {NULL, 0}};
static const struct constant targets[] = {{"REPL_ALL", PROPAGATE_ALL},
                                          {"REPL_AOF", PROPAGATE_AOF},
                                          {"REPL_REPLICA", PROPAGATE_REPLICAS},
                                          {"REPL_SLAVE", PROPAGATE_REPLICAS},
                                          {"REPL_NONE", 0},
                                          {NULL, 0}};
static const luaL_Reg common_functions[] = {{"call", api_call},
                                            {"pcall", api_pcall},
                                            {"acl_check_cmd", api_acl_check_cmd},
                                            {"status_reply", api_status_reply},
                                            {"error_reply", api_error_reply},
                                            {"sha1hex", api_sha1hex},
                                            {"log", api_log},
                                            {"setresp", api_setresp},
                                            {"set_repl", api_set_repl},
                                            {NULL, NULL}};
static const luaL_Reg eval_functions[] = {
    {"replicate_commands", api_replicate_commands}, {"breakpoint", api_breakpoint}, {"debug", api_debug}, {NULL, NULL}};

static void set_functions(lua_State *lua, const luaL_Reg *functions) {
    for (; functions->name; functions++) {
        lua_pushcfunction(lua, functions->func);
        lua_setfield(lua, -2, functions->name);
    }
}
static void set_constants(lua_State *lua, const struct constant *constants) {
    for (; constants->name; constants++) {
        lua_pushinteger(lua, constants->value);
        lua_setfield(lua, -2, constants->name);
    }
}
static void set_version(lua_State *lua, const char *name, const char *number_name, const char *version) {
    int major = 0, minor = 0, patch = 0;
    sscanf(version, "%d.%d.%d", &major, &minor, &patch);
    lua_pushstring(lua, version);
    lua_setfield(lua, -2, name);
    lua_pushinteger(lua, major << 16 | minor << 8 | patch);
    lua_setfield(lua, -2, number_name);
}
static void set_versions(lua_State *lua) {
    set_version(lua, "REDIS_VERSION", "REDIS_VERSION_NUM", SERVER_REDIS_VERSION);
    set_version(lua, "VALKEY_VERSION", "VALKEY_VERSION_NUM", SERVER_VERSION);
    lua_pushliteral(lua, SERVER_NAME);
    lua_setfield(lua, -2, "SERVER_NAME");
}

void lua_api_open(lua_State *lua, enum lua_vm_kind kind) {
    lua_newtable(lua);
    set_functions(lua, common_functions);
    if (kind == LUA_VM_EVAL) set_functions(lua, eval_functions);
    set_constants(lua, log_levels);
    set_constants(lua, targets);
    set_versions(lua);
}

void lua_api_open_for_load(lua_State *lua) {
    lua_newtable(lua);
    lua_pushcfunction(lua, api_log);
    lua_setfield(lua, -2, "log");
    lua_pushcfunction(lua, api_register_function);
    lua_setfield(lua, -2, "register_function");
    set_constants(lua, log_levels);
    set_versions(lua);
    lua_make_globals(lua);
}
