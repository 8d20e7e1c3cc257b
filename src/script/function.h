/* function.h: libraries of functions. A library is code that registers functions. The names of functions are unique
 * among all libraries, ignoring case. Libraries are part of the data set: they are saved, loaded and propagated. Main
 * thread only. */
#pragma once
#include "lib/structures/linked_list.h"
#include "lib/text/slice.h"
#include "script/script_engine.h"

struct library {
    struct list_link link;
    struct script_engine *engine;
    struct list functions; /* in the order of their registration */
    size_t bytes;
    struct slice name, code; /* in one block with the struct */
};
struct function {
    struct list_link link;
    struct library *library;
    char *name, *description; /* NULL: none */
    size_t name_len, description_len;
    uint32_t flags; /* script_flag */
    int reference;  /* in the interpreter; of Lua */
    void *handle;   /* of another engine */
};
struct function_stats {
    size_t libraries, functions, bytes, vm_bytes;
};
void function_stats(struct function_stats *stats);

struct list *libraries_all(void);
uint64_t libraries_changed(void); /* the reply_barrier_number() of their last change */
struct function *function_find(struct slice name);
lua_State *function_vm(void);
lua_State *function_current_vm(void); /* NULL: there is none */
/* Adds a library. Returns NULL and sets *added (may be NULL), or returns the error, valid until the next call, and
 * changes nothing. `limited`: the code may run for at most half a second, so that a client cannot block the server;
 * libraries from the primary and from files are not limited. */
const char *library_load(struct slice code, bool replaces, bool limited, struct library **added);
bool library_delete(struct slice name); /* false: no such library */
void libraries_flush(bool in_background);
size_t libraries_code(const struct slice **codes); /* script_hooks.h */

enum library_restore { LIBRARY_RESTORE_APPEND, LIBRARY_RESTORE_REPLACE, LIBRARY_RESTORE_FLUSH };
/* Replaces the current libraries by a set of libraries, or adds the set, as a whole: FUNCTION RESTORE. Returns NULL or
 * the error. */
const char *libraries_restore(const struct slice *codes, size_t count, enum library_restore policy, bool limited);
