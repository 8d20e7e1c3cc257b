/* server.h: identity, life cycle, and state that all of server/ shares. Other state belongs to its own module. */
#pragma once
#include "lib/system/version.h"
#include "net/event_loop.h"

#define SERVER_VERSION       PROJECT_VERSION /* valkey_version */
#define SERVER_REDIS_VERSION "7.2.4"         /* the version that clients compare with */
#define SERVER_NAME          "valkey"
#define SERVER_RELEASE_STAGE "dev" /* valkey_release_stage: "ga" from the first release on */

struct server {
    struct event_loop *loop;
    struct keyspace *keyspace;
    char run_id[41];
    int64_t started_ms;
    const char *executable; /* absolute path */
    const char *git_commit; /* lib/system/version.h; NULL in tests */
    int git_dirty;
    const char *mode;     /* "standalone" or "cluster" */
    bool cluster_enabled; /* this server is a node of a cluster; constant once the configuration has been read */
    bool loading;         /* a data set is being loaded; clients cannot use the data */
    bool async_loading;   /* a data set is being loaded into other databases; clients use the old data. Code that
                             asks whether a data set is being loaded at all calls server_is_loading() */
    bool is_child;        /* a child process: its changes are not those of the server */
    bool cron_paused;     /* DEBUG PAUSE-CRON */
    int hz;               /* in force; the option may have a value out of range */
    uint64_t dirty;       /* changes since the last save */
};
extern struct server server;
/* How the loop spends its time, for INFO debug. */
extern struct turn_stats {
    uint64_t cron_ticks, aof_ticks; /* lib/system/ticks.h */
    uint64_t most_commands;         /* executed in one turn */
} turn_stats;

static inline bool server_is_loading(void) {
    return server.loading || server.async_loading;
}

/* How the server stops. SHUTDOWN and signals use these flags. */
enum shutdown_flag {
    SHUTDOWN_SAVE = 1,
    SHUTDOWN_NOSAVE = 2,
    SHUTDOWN_NOW = 4,
    SHUTDOWN_FORCE = 8,
    SHUTDOWN_SAFE = 16,
    SHUTDOWN_FAILOVER = 32, /* for cluster nodes; no effect on other servers */
    SHUTDOWN_INSISTED = 64  /* by a signal, after the server has refused an earlier one */
};

/* Hooks of other modules into the server's life cycle, registered by features (server/feature.h). Any may be NULL. */
struct server_part {
    const char *name;
    void (*configured)(void);  /* the configuration has been read; nothing else has happened. May refuse it and exit */
    void (*start)(void);       /* after configuration, before listening */
    void (*cron)(void);        /* hz times a second */
    void (*before_wait)(void); /* each loop turn */
    bool in_call;              /* before_wait is also called in turns within a call (nested_turn.h) */
    void (*shutdown_begins)(void);       /* no part has been asked yet */
    bool (*prepare_shutdown)(int flags); /* false: refuses the shutdown */
    bool (*ready_to_stop)(void);         /* false: not yet (replicas lag behind); called again until shutdown-timeout */
    void (*stop)(void);
    void (*flushed_all)(void); /* FLUSHALL emptied all databases; before its reply */
};
void server_add_part(const struct server_part *part);
const struct server_part *const *server_parts(void); /* ends with NULL */
#define each_part(part)                                                                                                \
    for (const struct server_part *const *part##_at = server_parts(), *part; (part = *part##_at); part##_at++)
#define parts_call(hook)                                                                                               \
    each_part(part) {                                                                                                  \
        if (part->hook) part->hook();                                                                                  \
    }
void server_flushed_all(void); /* calls the hook of each part */
/* Empties all databases, with the events of it, and returns the number of keys. */
uint64_t server_flush_all(bool lazy);

/* Reasons for which the server itself neither expires nor evicts keys: expired keys look missing but stay in memory.
 */
enum deletion_pause { DELETION_PAUSE_PAUSE = 1, DELETION_PAUSE_REPLICA = 2, DELETION_PAUSE_IMPORT = 4 };
void server_pause_deletion(enum deletion_pause reason, bool on);
bool server_deletion_paused(void);
bool server_deletion_paused_for(int reasons); /* true if any of them holds */

/* Start-up: see lifecycle.h. */
void server_configured(void); /* the configuration has been read */
void server_run(void);        /* until the server stops; does not return */
/* Runs a task after this turn of the loop has ended. The task may turn the loop itself, and these turns run all hooks
 * and deferred work. For loading a data set that arrives on a connection. One task at a time. */
void server_run_outside(void (*task)(void));
