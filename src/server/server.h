/* server.h: what is left when every room has its own state: identity, life cycle, and the parts that all of server/ shares. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H
#include "lib/version.h"
#include "net/event_loop.h"
#include "store/keyspace.h"

#define SERVER_VERSION PROJECT_VERSION /* valkey_version */
#define SERVER_REDIS_VERSION "7.2.4"  /* what clients compare with */
#define SERVER_NAME "valkey"

struct server {
    struct event_loop *loop;
    struct keyspace *keyspace;
    char run_id[41];
    int64_t started_ms;
    const char *executable;
    bool loading;
    int hz;
    uint64_t dirty; /* changes since the last save */
};
extern struct server server;

/* Why and how to stop; SHUTDOWN and signals come here. Returns false where it was refused (the reason was logged). */
enum shutdown_flag { SHUTDOWN_SAVE = 1, SHUTDOWN_NOSAVE = 2, SHUTDOWN_NOW = 4, SHUTDOWN_FORCE = 8 };
bool server_shutdown(int flags);
/* Hooks of other rooms into the server's life; registered in main.c. Any may be NULL. */
struct server_part {
    struct list_link link;
    const char *name;
    void (*start)(void);                /* after configuration, before listening */
    void (*cron)(void);                 /* hz times a second */
    void (*before_wait)(void);          /* each loop turn */
    bool (*prepare_shutdown)(int flags); /* false: refuses */
    void (*stop)(void);
};
void server_add_part(struct server_part *part);
#endif
