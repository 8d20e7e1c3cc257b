/* server.h: what is left when every room has its own state: identity, life cycle, and the parts that all of server/
 * shares. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H
#include "lib/version.h"
#include "net/event_loop.h"
#include "store/keyspace.h"

#define SERVER_VERSION       PROJECT_VERSION /* valkey_version */
#define SERVER_REDIS_VERSION "7.2.4"         /* what clients compare with */
#define SERVER_NAME          "valkey"
#define SERVER_RELEASE_STAGE "ga" /* valkey_release_stage */

struct server {
    struct event_loop *loop;
    struct keyspace *keyspace;
    char run_id[41];
    int64_t started_ms;
    const char *executable; /* absolute path */
    const char *mode;       /* "standalone" */
    bool loading;
    bool cron_paused; /* DEBUG PAUSE-CRON */
    int hz;
    uint64_t dirty; /* changes since the last save */
};
extern struct server server;

/* Why and how to stop; SHUTDOWN and signals come here. Returns false where it was refused (the reason was logged). */
enum shutdown_flag {
    SHUTDOWN_SAVE = 1,
    SHUTDOWN_NOSAVE = 2,
    SHUTDOWN_NOW = 4,
    SHUTDOWN_FORCE = 8,
    SHUTDOWN_SAFE = 16,
    SHUTDOWN_FAILOVER = 32 /* of a cluster's nodes; without effect on any other server */
};
bool server_shutdown(int flags);
struct client;
void server_shutdown_for(struct client *client, int flags); /* SHUTDOWN: answers only where it fails */
bool server_shutdown_abort(void);                           /* SHUTDOWN ABORT; false: none is in progress */

/* Hooks of other rooms into the server's life; registered in main.c. Any may be NULL. */
struct server_part {
    struct list_link link;
    const char *name;
    void (*start)(void);                 /* after configuration, before listening */
    void (*cron)(void);                  /* hz times a second */
    void (*before_wait)(void);           /* each loop turn */
    bool (*prepare_shutdown)(int flags); /* false: refuses */
    bool (*ready_to_stop)(void); /* false: not yet; asked again until shutdown-timeout (replicas that lag behind) */
    void (*stop)(void);
    void (*flushed_all)(void); /* FLUSHALL emptied all databases; before its reply */
};
void server_add_part(struct server_part *part);
struct list *server_parts(void);
void server_flushed_all(void);  /* tells the parts */
int server_configured_hz(void); /* as the option says; server.hz is what is in force */

/* Reasons for which the server itself neither expires nor evicts: expired keys look missing but stay. */
enum deletion_pause { DELETION_PAUSE_PAUSE = 1, DELETION_PAUSE_REPLICA = 2, DELETION_PAUSE_IMPORT = 4 };
void server_pause_deletion(enum deletion_pause reason, bool on);
bool server_deletion_paused(void);
bool server_deletion_paused_for(int reasons); /* one of them */

/* Start-up, in this order; called by main once everything is registered and the configuration is read. */
void server_init(const char *executable); /* before anything is registered: clocks, seeds, signals */
void server_start(void);                  /* loop, keyspace, parts, cron: from here on the loop may be turned */
void server_run(void);                    /* until it is told to stop; does not return */

#endif
