/* function.h: libraries of functions. A library is a text of code that registers functions under names, which are
 * unique over all libraries, whatever their case. Libraries are part of the data set: they are saved, loaded and
 * propagated. Main thread only. */
#ifndef SCRIPT_FUNCTION_H
#define SCRIPT_FUNCTION_H
#include "lib/list.h"
#include "lib/slice.h"
#include "script/lua_vm.h"

struct library {
    struct list_link link;
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
    int reference;  /* in the interpreter */
};
struct function_stats {
    size_t libraries, functions, bytes, vm_bytes;
};
void function_stats(struct function_stats *stats);

struct list *libraries_all(void);
struct function *function_find(struct slice name);
lua_State *function_vm(void);
/* Adds a library. Returns NULL, with the library in *added (may be NULL), or the error, valid until the next call.
 * Nothing has changed then. */
const char *library_load(struct slice code, bool replaces, struct library **added);
bool library_delete(struct slice name); /* false: there is none */
void libraries_flush(bool in_background);
size_t libraries_code(const struct slice **codes); /* script_hooks.h */

enum library_restore { LIBRARY_RESTORE_APPEND, LIBRARY_RESTORE_REPLACE, LIBRARY_RESTORE_FLUSH };
/* A set of libraries that replaces or joins the present one as a whole: FUNCTION RESTORE. Returns NULL or the error. */
const char *libraries_restore(const struct slice *codes, size_t count, enum library_restore policy);
#endif
