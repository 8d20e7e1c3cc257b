/* function.c: see function.h.
 *
 * Libraries and functions are in a struct functions. Loading checks the whole new library before it changes anything. A
 * restored set is built separately, in its own interpreter, because its code may do anything while it is loaded; then
 * it replaces or joins the current set. */
#include "script/function.h"
#include "lib/structures/hashtable.h"
#include "lib/system/background.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/ticks.h"
#include "script/script_shebang.h"
#include "server/clients/reply_barrier.h"
#include <stdio.h>

enum { LOAD_LIMIT_MS = 500, SHOWN_MAX = 128 };

/* A set of libraries with its interpreter. */
static struct functions {
    lua_State *vm;
    struct list libraries;
    struct hashtable *by_name, *functions;
    size_t bytes;
} current;

static struct slice *codes;
static char error_text[SHOWN_MAX + 128];

static struct slice library_name(const void *entry) {
    return ((const struct library *)entry)->name;
}
static struct slice function_name(const void *entry) {
    const struct function *function = entry;
    return (struct slice){function->name, function->name_len};
}
static const struct hashtable_type library_type = {.key = library_name};
static const struct hashtable_type function_type = {.key = function_name, .ignore_case = true};

static void set_init(struct functions *set) {
    *set = (struct functions){.vm = lua_vm_new(LUA_VM_FUNCTIONS),
                              .by_name = hashtable_new(&library_type),
                              .functions = hashtable_new(&function_type)};
    list_init(&set->libraries);
}

static struct functions *current_functions(void) {
    if (!current.vm) set_init(&current);
    return &current;
}

static void function_free(lua_State *vm, struct function *function) {
    struct script_engine *engine = function->library->engine;
    if (!script_engine_is_lua(engine))
        engine->release(engine, LUA_VM_FUNCTIONS, function->handle);
    else if (vm)
        lua_vm_release(vm, function->reference);
    mem_free(function->name);
    mem_free(function->description);
    mem_free(function);
}

/* `vm` NULL: the whole interpreter is being freed. */
static void library_free(lua_State *vm, struct library *library) {
    while (library->functions.len) {
        struct function *function = container_of(list_first(&library->functions), struct function, link);
        list_remove(&library->functions, &function->link);
        function_free(vm, function);
    }
    mem_free(library);
}

static void free_vm(void *vm) {
    lua_vm_free(vm);
}

static void set_free(struct functions *set, bool in_background) {
    if (!set->vm) return;
    while (set->libraries.len) {
        struct library *library = container_of(list_first(&set->libraries), struct library, link);
        list_remove(&set->libraries, &library->link);
        library_free(NULL, library);
    }
    hashtable_free(set->by_name);
    hashtable_free(set->functions);
    if (in_background)
        background_submit(BACKGROUND_LAZY_FREE, free_vm, set->vm);
    else
        lua_vm_free(set->vm);
    *set = (struct functions){0};
}

struct list *libraries_all(void) {
    return &current_functions()->libraries;
}
struct function *function_find(struct slice name) {
    return current.vm ? hashtable_find(current.functions, name) : NULL;
}
lua_State *function_current_vm(void) {
    return current.vm;
}
lua_State *function_vm(void) {
    return current_functions()->vm;
}

void function_stats(struct function_stats *stats) {
    *stats = (struct function_stats){0};
    if (!current.vm) return;
    *stats = (struct function_stats){.libraries = current.libraries.len,
                                     .functions = hashtable_size(current.functions),
                                     .bytes = current.bytes,
                                     .vm_bytes = lua_vm_memory(current.vm)};
}

size_t libraries_code(const struct slice **out) {
    size_t count = 0;
    if (!current.vm) return 0;
    codes = mem_realloc(codes, (current.libraries.len + 1) * sizeof *codes);
    list_each(&current.libraries, link) codes[count++] = container_of(link, struct library, link)->code;
    *out = codes;
    return count;
}

/* --- Loading --- */

struct function_loading {
    struct lua_registration registration; /* must be first */
    lua_State *vm;
    struct library *library;
    const char *error;
};

static bool has_function(struct library *library, struct slice name) {
    list_each(&library->functions, link) {
        struct slice other = function_name(container_of(link, struct function, link));
        if (other.len == name.len && strncasecmp(other.data, name.data, name.len) == 0) return true;
    }
    return false;
}

/* Notes the error, if there is one, and adds the function all the same: the library frees it. */
static struct function *function_add(struct function_loading *loading, struct slice name, struct slice description,
                                     uint32_t flags) {
    if (loading->error) {
        /* the first error counts */
    } else if (!script_name_ok(name))
        loading->error = "ERR Function names can only contain letters, numbers, or underscores(_) and must be at least "
                         "one character long";
    else if (has_function(loading->library, name))
        loading->error = "ERR Function already exists in the library";
    struct function *function = mem_alloc(sizeof *function);
    *function = (struct function){
        .library = loading->library, .name = mem_strndup(name.data, name.len), .name_len = name.len, .flags = flags};
    if (description.data) {
        function->description = mem_strndup(description.data, description.len);
        function->description_len = description.len;
    }
    list_append(&loading->library->functions, &function->link);
    loading->library->bytes += mem_size(function) + mem_size(function->name);
    return function;
}
static void add_function(struct lua_registration *registration, const struct lua_function *given) {
    struct function_loading *loading = (struct function_loading *)registration;
    function_add(loading, given->name, given->description, given->flags)->reference = given->reference;
}
static void add_compiled(void *context, const struct script_engine_function *given) {
    function_add(context, given->name, given->description, given->flags)->handle = given->handle;
}

/* The first function of the library whose name a library other than `except` uses; NULL: none. */
static struct function *find_clash(struct functions *set, struct library *library, const struct library *except) {
    list_each_entry(&library->functions, struct function, link, function) {
        struct function *other = hashtable_find(set->functions, function_name(function));
        if (other && other->library != except) return function;
    }
    return NULL;
}

static uint64_t changed; /* libraries_changed() */

uint64_t libraries_changed(void) {
    return changed;
}

static void library_detach(struct functions *set, struct library *library) {
    changed = reply_barrier_number();
    list_each(&library->functions, link)
        hashtable_pop(set->functions, function_name(container_of(link, struct function, link)));
    hashtable_pop(set->by_name, library->name);
    must_within(library->bytes, set->bytes);
    list_remove(&set->libraries, &library->link);
    set->bytes -= library->bytes;
}

static void library_attach(struct functions *set, struct library *library) {
    changed = reply_barrier_number();
    list_each(&library->functions, link) hashtable_add(set->functions, container_of(link, struct function, link));
    hashtable_add(set->by_name, library);
    list_append(&set->libraries, &library->link);
    set->bytes += library->bytes;
}

static struct library *library_new(struct script_engine *engine, struct slice name, struct slice code) {
    struct library *library = mem_alloc(sizeof *library + name.len + code.len);
    char *at = (char *)(library + 1);
    memcpy(at, name.data, name.len);
    memcpy(at + name.len, code.data, code.len);
    *library = (struct library){.engine = engine, .name = {at, name.len}, .code = {at + name.len, code.len}};
    list_init(&library->functions);
    library->bytes = mem_size(library);
    return library;
}

static const char *shown_error(const char *format, struct slice name) {
    snprintf(error_text, sizeof error_text, format, (int)(name.len < SHOWN_MAX ? name.len : SHOWN_MAX), name.data);
    return error_text;
}

enum { LOAD_REPLACES = 1, LOAD_LIMITED = 2, LOAD_RESTORES = 4 };
static const char *set_load(struct functions *set, struct slice code, int how, struct library **added) {
    struct script_shebang shebang;
    const char *error = library_shebang_read(code, &shebang);
    if (error) return error;
    struct library *old = hashtable_find(set->by_name, shebang.name);
    if (old && !(how & LOAD_REPLACES))
        return shown_error(how & LOAD_RESTORES ? "ERR Library %.*s already exists"
                                               : "ERR Library '%.*s' already exists",
                           shebang.name);
    struct library *library = library_new(shebang.engine, shebang.name, code);
    struct function_loading loading = {.registration = {.add = add_function}, .vm = set->vm, .library = library};
    if (script_engine_is_lua(shebang.engine)) {
        if (how & LOAD_LIMITED) loading.registration.deadline = ticks_now() + ticks_of_us(LOAD_LIMIT_MS * 1000);
        error = lua_vm_load_library(set->vm, shebang.code, &loading.registration);
    } else {
        uint64_t limit = how & LOAD_LIMITED ? LOAD_LIMIT_MS : 0;
        error = shebang.engine->compile(shebang.engine, LUA_VM_FUNCTIONS, shebang.code, limit, add_compiled, &loading);
    }
    if (!error) error = loading.error;
    if (!error && !library->functions.len) error = "ERR No functions registered";
    struct function *clash = error ? NULL : find_clash(set, library, old);
    if (clash) error = shown_error("ERR Function %.*s already exists", function_name(clash));
    if (error) {
        library_free(set->vm, library);
        return error;
    }
    if (old) {
        library_detach(set, old);
        library_free(set->vm, old);
    }
    library_attach(set, library);
    if (added) *added = library;
    return NULL;
}

const char *library_load(struct slice code, bool replaces, bool limited, struct library **added) {
    return set_load(current_functions(), code, (replaces ? LOAD_REPLACES : 0) | (limited ? LOAD_LIMITED : 0), added);
}

bool library_delete(struct slice name) {
    struct library *library = current.vm ? hashtable_find(current.by_name, name) : NULL;
    if (!library) return false;
    library_detach(&current, library);
    library_free(current.vm, library);
    return true;
}

void libraries_drop(const struct script_engine *engine) {
    if (!current.vm) return;
    list_each(&current.libraries, link) {
        struct library *library = container_of(link, struct library, link);
        if (library->engine != engine) continue;
        library_detach(&current, library);
        library_free(current.vm, library);
    }
}

void libraries_flush(bool in_background) {
    changed = reply_barrier_number();
    set_free(&current, in_background);
    script_engines_reset(LUA_VM_FUNCTIONS, in_background);
}

const char *libraries_restore(const struct slice *texts, size_t count, enum library_restore policy, bool limited) {
    struct functions next;
    int how = LOAD_RESTORES | (limited ? LOAD_LIMITED : 0);
    const char *error = NULL;
    set_init(&next);
    if (policy != LIBRARY_RESTORE_FLUSH)
        list_each(&current_functions()->libraries, link) if (!error) error =
            set_load(&next, container_of(link, struct library, link)->code, LOAD_RESTORES, NULL);
    for (size_t i = 0; i < count && !error; i++)
        error = set_load(&next, texts[i], how | (policy == LIBRARY_RESTORE_REPLACE ? LOAD_REPLACES : 0), NULL);
    if (error) {
        set_free(&next, false);
        return error;
    }
    set_free(&current, false);
    current = next;
    list_init(&current.libraries);
    while (next.libraries.len) {
        struct list_link *link = list_first(&next.libraries);
        list_remove(&next.libraries, link);
        list_append(&current.libraries, link);
    }
    return NULL;
}
