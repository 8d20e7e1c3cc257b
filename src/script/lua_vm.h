/* lua_vm.h: an interpreter of Lua 5.1 for scripts: its libraries, its sandbox, and calls into it.
 *
 * There are two interpreters, created at their first use: one for EVAL, one for functions. A state exists until SCRIPT
 * FLUSH or FUNCTION FLUSH. Between scripts it keeps only values that closures hold, and the state of the random number
 * generator.
 *
 * Stock Lua has no read-only tables. A table that scripts must not change is therefore hidden behind an empty table,
 * whose metatable forwards reads (lua_sandbox.c). The functions that bypass metatables (rawset, next, getmetatable and
 * others) are replaced by functions that support such tables.
 *
 * Lua code runs only in protected calls, whose error handler adds the position to the error. A failed allocation is the
 * Lua error "not enough memory". Main thread only, except lua_vm_free(), which any thread may call. */
#pragma once
#include "lib/text/slice.h"
#include <lua.h>
#include <stdint.h>

enum lua_vm_kind { LUA_VM_EVAL, LUA_VM_FUNCTIONS };
lua_State *lua_vm_new(enum lua_vm_kind kind);
void lua_vm_free(lua_State *lua);
size_t lua_vm_memory(lua_State *lua); /* bytes; NULL: 0 */
/* For the cron: collects the garbage of large scripts, for some milliseconds at a time. */
struct lua_garbage {
    lua_State *lua; /* the interpreter of the last call */
    size_t live;    /* bytes after the last collection */
    int cycles;     /* to do */
};
void lua_vm_collect(lua_State *lua, struct lua_garbage *garbage);

/* Compiles the text of a script. Returns a reference for lua_vm_run(); LUA_NOREF: failed, with Lua's message in *error,
 * valid until the next call. */
int lua_vm_compile(lua_State *lua, struct slice text, const char *chunk_name, const char **error);
void lua_vm_release(lua_State *lua, int reference);

struct call;
struct lua_arguments {
    int key_count, argument_count;
    const struct slice *keys, *arguments;
};
/* Reads the arguments of EVAL, FCALL and their variants: argv[2] is the number of keys, which follow it. False: replied
 * with an error, which is `not_a_number` if argv[2] is not a number. */
bool lua_arguments_read(struct call *call, const char *not_a_number, struct lua_arguments *arguments);
/* Runs a compiled script and replies with its result or its error. A script of EVAL receives the arguments as the
 * globals KEYS and ARGV, a function receives them as its two parameters. */
void lua_vm_run(lua_State *lua, enum lua_vm_kind kind, int reference, const struct lua_arguments *arguments,
                struct call *call);

/* Registration of functions (FUNCTION LOAD): runs the code of a library and calls `add` for each call of
 * register_function. Returns NULL or the error. */
struct lua_function {
    struct slice name, description; /* description.data NULL: none */
    uint32_t flags;                 /* script_flag */
    int reference;                  /* the receiver owns it */
};
struct lua_registration {
    void (*add)(struct lua_registration *self, const struct lua_function *function);
    uint64_t deadline; /* of ticks.h, 0: none */
    lua_State *lua;    /* private */
};
const char *lua_vm_load_library(lua_State *lua, struct slice text, struct lua_registration *registration);
extern struct lua_registration *lua_registering; /* NULL: no library is being loaded */

/* --- Shared by the files of the interpreter --- */

/* lua_sandbox.c */
/* The table on top of the stack becomes read-only, and a read of what it does not have raises an error. */
void lua_make_globals(lua_State *lua);
void lua_sandbox_open(lua_State *lua, enum lua_vm_kind kind);
bool lua_push_protected(lua_State *lua, int index); /* pushes the table behind a read-only one; false: not read-only */
void lua_sandbox_reset(lua_State *lua);             /* after each run: the collector's settings */
int lua_load_text(lua_State *lua, struct slice text, const char *chunk_name); /* rejects bytecode */

/* lua_api.c */
void lua_api_open(lua_State *lua, enum lua_vm_kind kind); /* pushes the table `redis` */
void lua_api_open_for_load(lua_State *lua);               /* the table that libraries see while they are loaded */
int lua_error_handler(lua_State *lua);

/* lua_vm.c: ends the running script with this error, even if the script catches errors. For hooks. */
void lua_vm_stop(lua_State *lua, const char *error);

/* lua_debug.c: while a debugging session runs. */
void lua_debug_begin(lua_State *lua);
void lua_debug_end(lua_State *lua);
/* Shows a command that the script called, and its reply, or the error if it was rejected. */
void lua_debug_called(int argc, const struct slice *argv, struct slice reply, const char *error);
void lua_debug_stop_soon(void);                /* redis.breakpoint() */
void lua_debug_show_reply(struct slice reply); /* of a command, in any session */
void lua_debug_show_arguments(lua_State *lua); /* redis.debug() */

/* lua_value.c */
const char *lua_push_reply(lua_State *lua, const char *at, const char *end); /* returns the end of the reply */
struct reply;
void lua_write_reply(lua_State *lua, struct reply *reply); /* pops the value */

int lua_open_cjson(lua_State *lua);
int lua_open_cmsgpack(lua_State *lua);
int lua_open_struct(lua_State *lua);
