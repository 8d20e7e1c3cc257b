/* lua_vm.h: an interpreter of Lua 5.1 for scripts: its libraries, its sandbox, and calls into it.
 *
 * There are two, created when first used: one for EVAL, one for functions. A state lives until SCRIPT FLUSH or FUNCTION
 * FLUSH. From one script to the next it keeps only values that closures hold, and the state of the random number
 * generator.
 *
 * The stock library has no read-only tables. A table that scripts must not change is therefore hidden behind an empty
 * one, whose metatable forwards reads (lua_sandbox.c). The functions that bypass metatables (rawset, next, getmetatable
 * and the like) are replaced by ones that know such tables.
 *
 * Lua code runs in protected calls only, whose error handler adds the position to the error. Memory that the allocator
 * cannot provide becomes the Lua error "not enough memory". Main thread only, but lua_vm_free() may be called from any
 * thread. */
#ifndef SCRIPT_LUA_VM_H
#define SCRIPT_LUA_VM_H
#include "lib/output.h"
#include "lib/slice.h"
#include <lua.h>
#include <stdint.h>

enum lua_vm_kind { LUA_VM_EVAL, LUA_VM_FUNCTIONS };
lua_State *lua_vm_new(enum lua_vm_kind kind);
void lua_vm_free(lua_State *lua);
size_t lua_vm_memory(lua_State *lua); /* bytes; NULL: 0 */

/* Compiles the text of a script. Returns a reference for lua_vm_run(); LUA_NOREF: failed, with Lua's message in *error,
 * valid until the next call. */
int lua_vm_compile(lua_State *lua, struct slice text, const char *chunk_name, const char **error);
void lua_vm_release(lua_State *lua, int reference);

struct call;
struct lua_arguments {
    int key_count, argument_count;
    const struct slice *keys, *arguments;
};
/* Reads the arguments of EVAL, FCALL and the like: argv[2] is the number of keys, which follow it. False: replied with
 * an error, which is `not_a_number` if argv[2] is none. */
bool lua_arguments_read(struct call *call, const char *not_a_number, struct lua_arguments *arguments);
/* Runs a compiled script and replies with what it returns, or with its error. Of a script for EVAL the arguments are
 * the globals KEYS and ARGV, of a function they are its two parameters. */
void lua_vm_run(lua_State *lua, enum lua_vm_kind kind, int reference, const struct lua_arguments *arguments,
                struct call *call);

/* The registration of functions (FUNCTION LOAD): runs the code of a library. Each call of register_function passes what
 * it registers. Returns NULL, or the error. */
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

/* --- Between the files of the interpreter --- */

/* lua_sandbox.c */
void lua_sandbox_open(lua_State *lua, enum lua_vm_kind kind);
void lua_make_read_only(lua_State *lua);            /* replaces the table on the stack's top by one that protects it */
bool lua_push_protected(lua_State *lua, int index); /* pushes the table behind a read-only one; false: it is none */
void lua_sandbox_reset(lua_State *lua);             /* after each run: the collector's settings */
int lua_load_text(lua_State *lua, struct slice text, const char *chunk_name); /* refuses bytecode */

/* lua_api.c */
void lua_api_open(lua_State *lua, enum lua_vm_kind kind); /* pushes the table `redis` */
void lua_api_open_for_load(lua_State *lua);               /* the one that libraries see while they are loaded */
int lua_raise(lua_State *lua, const char *error);         /* raises {err = error} */
int lua_error_handler(lua_State *lua);

/* lua_vm.c: ends the running script with this error, whatever it catches. For hooks. */
void lua_vm_stop(lua_State *lua, const char *error);

/* lua_debug.c: while a debugging session runs. */
void lua_debug_begin(lua_State *lua);
void lua_debug_end(lua_State *lua);
/* A command was called by the script: shows it, and its reply or the error with which it was refused. */
void lua_debug_called(int argc, const struct slice *argv, struct slice reply, const char *error);
void lua_debug_stop_soon(void);                /* redis.breakpoint() */
void lua_debug_show_arguments(lua_State *lua); /* redis.debug() */

/* lua_value.c */
const char *lua_push_reply(lua_State *lua, const char *at, const char *end); /* returns the end of the reply */
struct reply;
void lua_write_reply(lua_State *lua, struct reply *reply); /* pops the value */

int lua_open_cjson(lua_State *lua);
int lua_open_cmsgpack(lua_State *lua);
int lua_open_struct(lua_State *lua);
#endif
