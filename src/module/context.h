/* context.h: ValkeyModuleCtx: what a function of a module acts on: the module, a client or none, a database, and where
 * replies go. The server passes one to each function of a module that it calls; threads have their own. */
#pragma once
#include "module/api.h"
#include "module/module.h"
#include "module/strings.h"
#include "resp/reply.h"

enum context_flag {
    CONTEXT_AUTO_MEMORY = 1 << 0,
    CONTEXT_KEYS_REQUEST = 1 << 1,     /* asks for the positions of keys */
    CONTEXT_CHANNELS_REQUEST = 1 << 2, /* of channels */
    CONTEXT_BLOCKED_REPLY = 1 << 3,
    CONTEXT_BLOCKED_TIMEOUT = 1 << 4,
    CONTEXT_BLOCKED_GONE = 1 << 5, /* the client has disconnected */
    CONTEXT_THREAD_SAFE = 1 << 6,
    CONTEXT_COMMAND = 1 << 7,   /* within the command of a client */
    CONTEXT_GROUPED = 1 << 8,   /* a group of propagation has begun */
    CONTEXT_YIELDED = 1 << 9,   /* the server answers BUSY until the context ends */
    CONTEXT_SCRIPT = 1 << 10,   /* of a scripting engine that runs a script */
    CONTEXT_LISTENER = 1 << 11, /* of a keyspace event */
    CONTEXT_DETACHED = 1 << 12  /* thread-safe, and answers no client */
};
/* What is freed with the context: AutoMemory. */
struct context_object {
    enum { OBJECT_STRING, OBJECT_KEY, OBJECT_REPLY, OBJECT_DICT, OBJECT_INFO } kind;
    void *object;
};
struct context_postponed;
struct ValkeyModuleCtx {
    int (*get_api)(const char *name, void *function); /* the first member: modules call it before they know others */
    struct module *module;
    struct client *client; /* NULL: the context acts for no client */
    struct call *call;     /* CONTEXT_COMMAND */
    struct db *db;
    struct reply *reply; /* discards what is written if there is nobody to reply to */
    uint32_t flags;
    uint64_t began; /* CONTEXT_COMMAND: of ticks.h */
    unsigned objects_count, objects_capacity;
    struct context_object *objects;
    struct context_postponed *postponed; /* aggregates whose length is set later, the innermost first */
    struct context_block *blocks;        /* PoolAlloc */
    struct ValkeyModuleBlockedClient *blocked;
    struct ValkeyModuleString *ready_key; /* that a blocked client is served for; NULL: none */
    const struct ValkeyModuleUser *user;
    struct ValkeyModuleString **argv; /* of the command: ReplicateVerbatim */
    int argc;
    /* KEYS_REQUEST and CHANNELS_REQUEST */
    struct key_position *positions;
    int positions_count, positions_max;
};

/* A context without a client, on database 0 until it selects another. */
void context_init(struct ValkeyModuleCtx *ctx, struct module *module);
/* A function of a module is about to run in a call of this client whose command says that it shows no data: what the
 * module says may be data, and it may change data. The reply waits like that to a write, unless this server shows no
 * data at all (reply_barrier_refusal()). */
void call_shows_data(struct client *client);
/* In the middle of a command or a deletion: no context may change data (notifications.c). */
bool context_must_only_read(void);
void context_init_command(struct ValkeyModuleCtx *ctx, struct module *module, struct call *call);
/* Ends a use: closes keys, frees what AutoMemory collects, completes aggregates. */
void context_end(struct ValkeyModuleCtx *ctx);
/* Begins a group of propagation, outside of a command: the first change of the context calls it, and context_end() ends
 * the group. A context of a thread lives on and begins none: the lock groups what happens under it, and without the
 * lock, on the main thread, each call is a group of its own. */
void context_group(struct ValkeyModuleCtx *ctx);
/* With AutoMemory: keeps the object until the end of the context, or forgets it, because the module frees it. */
void context_keep(struct ValkeyModuleCtx *ctx, int kind, void *object);
void context_forget(struct ValkeyModuleCtx *ctx, int kind, void *object);
void context_postponed_end(struct ValkeyModuleCtx *ctx);
/* Within a command: the loop may turn until the context ends, because the client of the command is held. */
void context_hold_caller(struct ValkeyModuleCtx *ctx);
/* The running command was called in a turn of the loop within another client's command, whose data must not change. */
bool context_is_within_another(void);
void context_yield_end(void);                          /* of the context that has CONTEXT_YIELDED */
void context_blocks_free(struct ValkeyModuleCtx *ctx); /* memory of PoolAlloc */
void client_info_write(const struct client *client, ValkeyModuleClientInfoV1 *info); /* but for the version */
struct ValkeyModuleString *context_string(struct ValkeyModuleCtx *ctx, struct slice bytes);
