/* server_events.h: events of the server's life, for listeners in a higher layer, modules, and what the server asks of
 * that layer.
 *
 * Code in which such an event happens reports it, with what the event says of itself. While nobody listens to an event,
 * a report costs one test. The numbers are those of the interface to modules. Main thread only. */
#pragma once
#include "lib/text/slice.h"
#include "resp/reply.h"
#include <stdint.h>

enum server_event {
    EVENT_ROLE = 0,                 /* 0: now a primary, 1: now a replica */
    EVENT_PERSISTENCE = 1,          /* enum persistence_event; in the process that writes the file */
    EVENT_FLUSHDB = 2,              /* 0: begins, 1: has ended; struct flush_event */
    EVENT_LOADING = 3,              /* enum loading_event */
    EVENT_CLIENT_CHANGE = 4,        /* 0: connected, 1: disconnects; struct client */
    EVENT_REPLICA_CHANGE = 6,       /* 0: a replica is online, 1: it is gone */
    EVENT_PRIMARY_LINK = 7,         /* 0: up, 1: down */
    EVENT_LOADING_PROGRESS = 10,    /* 0: of an RDB file, 1: of an append-only file; int: of 1024 parts;
                                       -1: not known */
    EVENT_ASYNC_LOAD = 14,          /* 0: started, 1: aborted, 2: completed */
    EVENT_FORK_CHILD = 13,          /* 0: born, 1: died */
    EVENT_KEY = 17,                 /* 0: is deleted, 1: expires, 2: is evicted, 3: is overwritten; before that. struct
                                       key_event */
    EVENT_AUTHENTICATION = 18,      /* struct authentication_event */
    EVENT_SLOT_MIGRATION = 19,      /* enum slot_migration_kind; struct slot_migration_event; at the end of a turn */
    EVENT_COMMAND_REJECTED = 22,    /* struct rejection_event */
    EVENT_COMMAND_ACL_REJECTED = 23 /* enum user_denial; USER_ALLOWED: it has not authenticated */
};
enum persistence_event {
    PERSISTENCE_RDB_START,
    PERSISTENCE_AOF_START,
    PERSISTENCE_SYNC_RDB_START,
    PERSISTENCE_ENDED,
    PERSISTENCE_FAILED
};
enum loading_event { LOADING_RDB_START, LOADING_AOF_START, LOADING_REPLICATION_START, LOADING_ENDED, LOADING_FAILED };
struct flush_event {
    bool sync;
    int db; /* -1: all */
};
struct key_event {
    struct db *db;
    struct slice key;
};
struct authentication_event {
    struct client *client;
    struct slice user;
    const char *module; /* that has decided; NULL: the server */
    bool granted;
};
enum slot_migration_kind { IMPORT_STARTED, EXPORT_STARTED, IMPORT_ABORTED, EXPORT_ABORTED, IMPORT_DONE, EXPORT_DONE };
struct slot_migration_event {
    const char *job; /* its name */
    size_t count;
    const uint16_t (*ranges)[2];
};
struct rejection_event {
    struct client *client;
    const struct command *command; /* NULL: unknown */
    int argc;
    const struct slice *argv;
    const char *error;
};
/* A set of 1 << event: those that somebody listens to. */
extern uint32_t server_events_wanted;
extern void (*server_event_listener)(enum server_event event, unsigned kind, const void *data);
static inline bool server_event_wanted(enum server_event event) {
    return __builtin_expect(server_events_wanted >> event & 1, 0);
}
static inline void server_event(enum server_event event, unsigned kind, const void *data) {
    if (server_event_wanted(event)) server_event_listener(event, kind, data);
}

/* Writes the array of modules in the replies of MODULE LIST and HELLO. NULL: there are none. */
extern void (*modules_reply)(struct reply *reply);
/* Why a replica must store the copy of its primary in a file before it loads it: the modules of this server cannot load
 * what may break off, or not beside the old data (`swap`). NULL: it may load the copy as it arrives. */
extern const char *(*modules_refuse_direct_load)(bool swap);
