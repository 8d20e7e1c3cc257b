/* script_engine.h: the languages of scripts and libraries. The first line of a script names one: "#!name".
 *
 * Lua is the engine of scripts without such a line; its interpreter is in this directory. Other engines are registered
 * at run time, and removed with all that they have compiled. Main thread only. */
#pragma once
#include "lib/structures/linked_list.h"
#include "lib/text/output.h"
#include "script/lua_vm.h"
#include "script/script_run.h"

struct script_engine_memory {
    size_t used, overhead; /* bytes */
};
/* What an engine has compiled: a script of EVAL, or a function of a library. The engine owns the handle. */
struct script_engine_function {
    void *handle;
    struct slice name, description; /* of a function; valid until the call that passes them returns */
    uint32_t flags;                 /* script_flag */
};
struct script_engine {
    struct list_link link;
    const char *name, *module; /* the loaded module that it belongs to */
    unsigned version;          /* of its interface */
    /* Compiles code, which begins behind the first line, and calls `add` for each function of it: of a script that is
     * one, without a name. Within `limit_ms`, 0: without limit. Returns NULL, or the error, valid until the next call:
     * then what was added is released by the caller. NULL: the interpreter of this directory, as for all functions. */
    const char *(*compile)(struct script_engine *engine, enum lua_vm_kind kind, struct slice code, uint64_t limit_ms,
                           void (*add)(void *context, const struct script_engine_function *function), void *context);
    void (*release)(struct script_engine *engine, enum lua_vm_kind kind, void *handle);
    /* Within script_begin() and script_end(). Replies. */
    void (*run)(struct script_engine *engine, enum lua_vm_kind kind, void *handle,
                const struct lua_arguments *arguments, struct call *call);
    /* Nothing is compiled any more: SCRIPT FLUSH, FUNCTION FLUSH. */
    void (*reset)(struct script_engine *engine, enum lua_vm_kind kind, bool in_background);
    struct script_engine_memory (*memory)(struct script_engine *engine);
    /* Its debugger, which uses script_debug.h. NULL: it has none. False: it cannot be used now. `source`: the script.
     */
    bool (*debug_enable)(struct script_engine *engine);
    void (*debug_disable)(struct script_engine *engine);
    void (*debug_start)(struct script_engine *engine, struct slice source);
    void (*debug_end)(struct script_engine *engine);
};
extern struct script_engine script_engine_lua;
static inline bool script_engine_is_lua(const struct script_engine *engine) {
    return engine == &script_engine_lua;
}
struct script_engine *script_engine_find(struct slice name); /* case does not matter; NULL: unknown */
/* False: there is one of that name. The struct must stay valid until it is unregistered. */
bool script_engine_register(struct script_engine *engine);
/* Removes its scripts and libraries first. Not while a script runs. */
void script_engine_unregister(struct script_engine *engine);
size_t script_engines_count(void);
void script_engines_each(void (*visit)(void *context, const struct script_engine *engine), void *context);
void script_engines_reset(enum lua_vm_kind kind, bool in_background);
void script_engines_write(struct output *out); /* the section of INFO */

/* script_eval.c and function.c: forget what the engine has compiled. */
void script_cache_drop(const struct script_engine *engine);
void libraries_drop(const struct script_engine *engine);
