/* lua_vm.c: see lua_vm.h. The bottom of a state's stack holds the error handler and the function that runs a script in
 * a protected call, so that a run creates neither. */
#include "script/lua_vm.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/ticks.h"
#include "lib/text/number.h"
#include "script/script_debug.h"
#include "script/script_run.h"
#include "server/clients/client.h"
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    HANDLER = 1,
    RUNNER = 2,             /* positions on the stack */
    HOOK_INTERVAL = 100000, /* instructions, less than a millisecond */
    STACK_MIN = 32
};

struct lua_registration *lua_registering;

/* As in Valkey, used_memory does not include the interpreters: evicting keys cannot lower their memory, so that of a
 * large script, or its garbage, must neither evict a key nor refuse a write. */
static void *allocate(void *context, void *block, size_t old_size, size_t size) {
    return size || block ? mem_library_realloc(MEM_LUA, block, size) : NULL;
}

static int panic(lua_State *lua) {
    log_warning("Lua: an error outside of a protected call: %s", lua_tostring(lua, -1));
    abort();
}

/* --- The hook: long scripts serve the event loop, killed scripts end --- */

static const char *stopping; /* the error that ends the script; NULL: it continues */

static void hook(lua_State *lua, lua_Debug *where);

/* Each further instruction raises the error, so that the script cannot continue by pcall(). */
void lua_vm_stop(lua_State *lua, const char *error) {
    stopping = error;
    lua_sethook(lua, hook, LUA_MASKCOUNT, 1);
    lua_pushstring(lua, error);
    lua_error(lua);
}

static void hook(lua_State *lua, lua_Debug *where) {
    if (stopping) lua_vm_stop(lua, stopping);
    if (lua_registering) {
        if (lua_registering->deadline && ticks_now() >= lua_registering->deadline)
            lua_vm_stop(lua, "FUNCTION LOAD timeout");
        return;
    }
    if (!script_running || !script_poll()) return;
    lua_vm_stop(lua, script_running->is_function ? "Script killed by user with FUNCTION KILL."
                                                 : "Script killed by user with SCRIPT KILL.");
}

static void hook_set(lua_State *lua) {
    stopping = NULL;
    lua_sethook(lua, hook, LUA_MASKCOUNT, HOOK_INTERVAL);
}

/* --- Running --- */

struct lua_run {
    enum lua_vm_kind kind;
    int reference;
    const struct lua_arguments *arguments;
    struct call *call;
    bool replying;
};

static void push_list(lua_State *lua, const struct slice *items, int count) {
    lua_createtable(lua, count, 0);
    for (int i = 0; i < count; i++) {
        lua_pushlstring(lua, items[i].data, items[i].len);
        lua_rawseti(lua, -2, i + 1);
    }
}

static void set_global(lua_State *lua, const char *name, const struct slice *items, int count) {
    lua_pushstring(lua, name);
    push_list(lua, items, count);
    lua_rawset(lua, -3);
}

/* Runs in a protected call: everything here may raise an error. */
static int runner(lua_State *lua) {
    struct lua_run *run = lua_touserdata(lua, 1);
    const struct lua_arguments *arguments = run->arguments;
    int parameters = 0;
    lua_rawgeti(lua, LUA_REGISTRYINDEX, run->reference);
    if (run->kind == LUA_VM_EVAL) {
        lua_push_protected(lua, LUA_GLOBALSINDEX);
        set_global(lua, "KEYS", arguments->keys, arguments->key_count);
        set_global(lua, "ARGV", arguments->arguments, arguments->argument_count);
        lua_pop(lua, 1);
    } else {
        push_list(lua, arguments->keys, arguments->key_count);
        push_list(lua, arguments->arguments, arguments->argument_count);
        parameters = 2;
    }
    lua_call(lua, parameters, 1);
    run->replying = true;
    lua_write_reply(lua, run->call->reply);
    return 0;
}

/* Writes the text of the error on top of the stack, with its position. */
static void write_error(lua_State *lua, struct output *out, bool *counted) {
    *counted = false;
    if (!lua_istable(lua, -1)) { /* raised without the handler: out of memory, or an error in the handler */
        const char *text = lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1) : NULL;
        output_write(out, SLICE("ERR "));
        output_write(out, slice_of(text ? text : "unknown error"));
        return;
    }
    int table = lua_gettop(lua);
    lua_getfield(lua, table, "ignore_error_stats_update");
    *counted = lua_toboolean(lua, -1);
    lua_getfield(lua, table, "err");
    const char *text = lua_tostring(lua, -1);
    output_write(out, slice_of(text ? text : "ERR unknown error"));
    lua_getfield(lua, table, "source");
    lua_getfield(lua, table, "line");
    const char *source = lua_tostring(lua, -2), *line = lua_tostring(lua, -1);
    if (source && line) {
        output_write(out, SLICE(" script: on "));
        output_write(out, slice_of(source));
        output_write(out, SLICE(":"));
        output_write(out, slice_of(line));
        output_write(out, SLICE("."));
    }
    lua_settop(lua, table);
}

struct error_text {
    struct memory_output out;
    bool counted;
};
static int error_writer(lua_State *lua) {
    struct error_text *text = lua_touserdata(lua, 1);
    lua_pushvalue(lua, 2);
    write_error(lua, &text->out.out, &text->counted);
    return 0;
}

/* Pops the error and writes it, in a protected call, because memory may be exhausted. */
static void error_take(lua_State *lua, struct error_text *text) {
    memory_output_init(&text->out);
    text->counted = false;
    int error = lua_gettop(lua);
    lua_pushcfunction(lua, error_writer);
    lua_pushlightuserdata(lua, text);
    lua_pushvalue(lua, error);
    if (lua_pcall(lua, 2, 0, 0)) {
        memory_output_clear(&text->out);
        output_write(&text->out.out, SLICE("ERR not enough memory"));
    }
    output_write(&text->out.out, slice_make("", 1));
    lua_settop(lua, error - 1);
}

static void reply_run_error(lua_State *lua, struct call *call) {
    struct error_text text;
    error_take(lua, &text);
    struct reply *reply = call->reply;
    void (*count)(struct reply *, struct slice) = reply->error_hook;
    if (text.counted) reply->error_hook = NULL;
    reply_error(reply, memory_output_slice(&text.out).data);
    reply->error_hook = count;
    memory_output_free(&text.out);
}

bool lua_arguments_read(struct call *call, const char *not_a_number, struct lua_arguments *arguments) {
    int64_t keys;
    int rest = call->argc - 3;
    const char *error = NULL;
    if (!parse_int64(call->argv[2], &keys))
        error = not_a_number;
    else if (keys > rest)
        error = "ERR Number of keys can't be greater than number of args";
    else if (keys < 0)
        error = "ERR Number of keys can't be negative";
    if (error) return reply_error(call->reply, error);
    const struct slice *first = call->argv + 3;
    *arguments = (struct lua_arguments){(int)keys, rest - (int)keys, first, first + keys};
    return true;
}

void lua_vm_run(lua_State *lua, enum lua_vm_kind kind, int reference, const struct lua_arguments *arguments,
                struct call *call) {
    struct lua_run run = {.kind = kind, .reference = reference, .arguments = arguments, .call = call};
    bool debugged = script_session != NULL;
    if (__builtin_expect(debugged, 0)) lua_debug_begin(lua);
    lua_pushvalue(lua, RUNNER);
    lua_pushlightuserdata(lua, &run);
    if (lua_pcall(lua, 1, 0, HANDLER)) {
        if (run.replying) /* the reply is written in part, and the rest is unknown */
            client_free_after_reply(call->client);
        else
            reply_run_error(lua, call);
        hook_set(lua);
    }
    if (__builtin_expect(debugged, 0)) {
        lua_debug_end(lua);
        hook_set(lua);
    }
    lua_sandbox_reset(lua);
}

/* --- Compiling --- */

/* Copies the error of a failed compilation to static memory. */
static const char *keep_error(const char *text) {
    static char kept[1024];
    snprintf(kept, sizeof kept, "%s", text ? text : "unknown error");
    return kept;
}

int lua_vm_compile(lua_State *lua, struct slice text, const char *chunk_name, const char **error) {
    if (lua_load_text(lua, text, chunk_name)) {
        *error = keep_error(lua_tostring(lua, -1));
        lua_settop(lua, RUNNER);
        return LUA_NOREF;
    }
    return luaL_ref(lua, LUA_REGISTRYINDEX);
}

void lua_vm_release(lua_State *lua, int reference) {
    luaL_unref(lua, LUA_REGISTRYINDEX, reference);
}

/* Libraries of functions: while a library is loaded, its code sees the globals for loading. Afterwards its functions
 * see the globals for running, because both are behind the same read-only table. */

static int library_loader(lua_State *lua) {
    struct slice *text = lua_touserdata(lua, 1);
    const char **compile_error = lua_touserdata(lua, 2);
    if (lua_load_text(lua, *text, "@user_function")) {
        *compile_error = keep_error(lua_tostring(lua, -1));
        return 0;
    }
    lua_newtable(lua);
    lua_api_open_for_load(lua);
    lua_pushvalue(lua, -1);
    lua_setfield(lua, -3, "redis");
    lua_setfield(lua, -2, "server");
    lua_make_globals(lua);
    lua_pushvalue(lua, -1);
    lua_setfenv(lua, -3);
    lua_insert(lua, -2); /* globals, code */
    lua_call(lua, 0, 0);
    lua_getmetatable(lua, -1);
    lua_push_protected(lua, LUA_GLOBALSINDEX);
    lua_pushvalue(lua, -1);
    lua_setfield(lua, -3, "__index");
    lua_rawseti(lua, -2, 1);
    return 0;
}

const char *lua_vm_load_library(lua_State *lua, struct slice text, struct lua_registration *registration) {
    static char failure[1100];
    const char *compile_error = NULL;
    registration->lua = lua;
    lua_registering = registration;
    lua_pushcfunction(lua, library_loader);
    lua_pushlightuserdata(lua, &text);
    lua_pushlightuserdata(lua, &compile_error);
    int status = lua_pcall(lua, 2, 0, HANDLER);
    lua_registering = NULL;
    if (!status) {
        if (!compile_error) return NULL;
        snprintf(failure, sizeof failure, "ERR Error compiling function: %s", compile_error);
        return failure;
    }
    hook_set(lua);
    /* The error without its position, which the message contains already. */
    const char *reason = NULL;
    if (lua_istable(lua, -1)) {
        lua_pushliteral(lua, "err");
        lua_rawget(lua, -2);
        reason = lua_tostring(lua, -1);
    } else {
        reason = lua_tostring(lua, -1);
    }
    snprintf(failure, sizeof failure, "ERR Error registering functions: %s", reason ? reason : "ERR unknown error");
    lua_settop(lua, RUNNER);
    return failure;
}

/* --- Life --- */

static int open_all(lua_State *lua) {
    enum lua_vm_kind kind = (enum lua_vm_kind)lua_tointeger(lua, 1);
    lua_sandbox_open(lua, kind);
    return 0;
}

lua_State *lua_vm_new(enum lua_vm_kind kind) {
    lua_State *lua = lua_newstate(allocate, NULL);
    if (!lua) {
        log_warning("Out of memory: cannot create a Lua interpreter");
        abort();
    }
    lua_atpanic(lua, panic);
    luaL_checkstack(lua, STACK_MIN, "no memory");
    lua_pushcfunction(lua, open_all);
    lua_pushinteger(lua, kind);
    lua_call(lua, 1, 0);
    lua_pushcfunction(lua, lua_error_handler);
    lua_pushcfunction(lua, runner);
    hook_set(lua);
    return lua;
}

void lua_vm_free(lua_State *lua) {
    lua_close(lua);
}

/* In steps of this many KiB of the collector's work. Lua does not collect on its own while no script runs. */
enum { COLLECT_STEP = 64, COLLECT_MIN = 1024 * 1024, COLLECT_US = 5000 };

struct lua_collection {
    uint64_t end_us;
    bool finished;
};
static int lua_vm_collect_step(lua_State *lua) { /* protected: the collector may allocate */
    struct lua_collection *collection = lua_touserdata(lua, 1);
    while (!(collection->finished = lua_gc(lua, LUA_GCSTEP, COLLECT_STEP)) && clock_monotonic_us() < collection->end_us)
        continue;
    return 0;
}

void lua_vm_collect(lua_State *lua, struct lua_garbage *garbage) {
    if (garbage->lua != lua) *garbage = (struct lua_garbage){.lua = lua};
    if (!lua) return;
    /* What was alive when the first cycle saw it may be garbage in the second one. */
    if (!garbage->cycles && lua_vm_memory(lua) > garbage->live * 2 + COLLECT_MIN) garbage->cycles = 2;
    if (!garbage->cycles) return;
    struct lua_collection collection = {.end_us = clock_monotonic_us() + COLLECT_US};
    if (lua_cpcall(lua, lua_vm_collect_step, &collection)) lua_settop(lua, RUNNER);
    if (collection.finished && --garbage->cycles == 0) garbage->live = lua_vm_memory(lua);
}

size_t lua_vm_memory(lua_State *lua) {
    return lua ? (size_t)lua_gc(lua, LUA_GCCOUNT, 0) * 1024 + (size_t)lua_gc(lua, LUA_GCCOUNTB, 0) : 0;
}
