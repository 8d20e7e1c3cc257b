/* module.h: modules: shared libraries that add commands, value types, options and more to the server.
 *
 * valkeymodule.h is the interface to a module, and docs/modules.md its manual. The rest of the server knows modules
 * only by what they register: commands, options, sections of INFO, value types, listeners of events. This directory
 * has a file for each group of the functions that modules call:
 *
 *   load.c        finds, opens and closes the libraries      module_commands.c  MODULE, loadmodule, INFO modules
 *   api_table.c   functions by name                          context.c          what a function acts on
 *   strings.c     ValkeyModuleString                         replies.c          ReplyWith*
 *   commands.c    CreateCommand and its description          call.c             Call, and call_reply.c its replies
 *   memory.c      Alloc and Free                             keys.c, key_*.c    OpenKey and the values of keys
 *   types*.c      value types of modules                     blocked.c          clients that wait for a module
 *   threads.c     the lock, contexts of threads              timers.c           timers, descriptors of the loop
 *   config.c      options of modules                         info.c             their sections, and GetServerInfo
 *   events.c      keyspace events and server events          clients.c          clients, ACL, authentication
 *
 * All runs on the main thread, or on a thread that holds the lock of threads.h. */
#pragma once
#include "lib/structures/linked_list.h"
#include "lib/text/output.h"
#include "module/api.h"
#include "server/command/command.h"

struct module {
    struct list_link link; /* in modules_all() */
    char *name, *path;     /* name NULL: OnLoad has not called Init yet */
    int version, api_version;
    void *library;    /* of dlopen() */
    const void *base; /* where it begins: module_base_of() of its functions */
    int argc;
    char **arguments;
    uint64_t options;            /* VALKEYMODULE_OPTIONS_* */
    bool loading;                /* within OnLoad */
    struct list commands;        /* struct ValkeyModuleCommand */
    struct list types;           /* struct ValkeyModuleType */
    struct list shared;          /* struct module_shared: functions that it exports to other modules */
    struct list uses;            /* struct module_use: modules whose functions it has asked for */
    struct list filters;         /* command filters */
    struct list notifications;   /* keyspace events */
    struct list events;          /* server events */
    struct list configs;         /* options */
    struct list refused;         /* blocked clients whose wait for keys was refused */
    bool configs_loaded;         /* LoadConfigs was called */
    struct list receivers;       /* of messages on the cluster bus */
    struct list engines;         /* scripting engines */
    unsigned calls;              /* of Call that run */
    unsigned blocked, timers;    /* clients and timers that keep it loaded */
    _Atomic unsigned background; /* calls of its code that background threads make, or will make */
    uint32_t categories;         /* of commands, which it has added */
    ValkeyModuleInfoFunc write_info;
    ValkeyModuleDefragFunc defrag; /* of what it keeps outside of keys */
};
void module_lists_init(struct module *module);
struct list *modules_all(void); /* in the order of loading */
/* Where the library begins that contains an address, and its module; NULL: none. Any thread may ask for the first. */
const void *module_base_of(const void *address);
struct module *module_of_address(const void *address);

/* Loads a library and logs why it cannot. Arguments are copied. `options`: names and values in turn, from MODULE
 * LOADEX. */
bool module_load(const char *path, int argc, const struct slice *arguments, int options, const struct slice *pairs);
/* Writes the names of the modules that export functions to this one (uses), or that this one exports functions to. */
void module_write_relations(const struct module *of, bool uses, struct output *out);
extern bool modules_starting;                       /* those of the configuration are being loaded */
const char *modules_direct_load_refusal(bool swap); /* server/server_events.h */
/* Returns NULL, or why the module stays. */
const char *module_unload(struct slice name);

/* Writes a line to the log, with the name of the module (NULL: none) in front. `level`: VALKEYMODULE_LOGLEVEL_*. */
void module_log(const char *name, const char *level, const char *format, va_list arguments);

/* Groups undo what a module has registered. Each is called before the library is closed. */
void module_commands_drop(struct module *module);
bool module_types_drop(struct module *module); /* false: values of its types exist, and what frees them stays */
void module_filters_drop(struct module *module);
void module_notifications_drop(struct module *module);
void module_events_drop(struct module *module);
void module_configs_drop(struct module *module);
void module_timers_drop(struct module *module);
void module_descriptors_drop(const struct module *module);
bool module_descriptors_run(const struct module *module); /* one of its functions runs now */
void module_promises_drop(const struct module *module);
void module_users_drop(struct module *module);
void module_messages_drop(struct module *module);
void module_refused_drop(struct module *module);
void module_forks_drop(struct module *module);
void module_engines_drop(struct module *module);

extern const struct feature module_feature;
