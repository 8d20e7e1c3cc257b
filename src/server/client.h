/* client.h: one who issues commands: somebody at the other end of a connection, or (conn NULL) a part of the server itself.
 *
 * Input: the connection shows bytes, resp/request.c finds requests in them, client.c executes them one after the other and flushes the reply when the
 * input is used up. Output bounds are client-output-buffer-limit's. Main thread only. */
#ifndef SERVER_CLIENT_H
#define SERVER_CLIENT_H
#include "lib/list.h"
#include "net/connection.h"
#include "resp/reply.h"
#include "resp/request.h"
#include "server/command.h"

enum client_flag {
    CLIENT_CLOSE_AFTER_REPLY = 1 << 0, CLIENT_CLOSING = 1 << 1, CLIENT_REPLY_OFF = 1 << 2, CLIENT_REPLY_SKIP_NEXT = 1 << 3, CLIENT_REPLY_SKIP = 1 << 4,
    CLIENT_NO_EVICT = 1 << 5, CLIENT_NO_TOUCH = 1 << 6, CLIENT_REPLICA = 1 << 7, CLIENT_PUBSUB = 1 << 8, CLIENT_PRIMARY = 1 << 9,
    CLIENT_PAUSED = 1 << 10 /* its input waits for CLIENT UNPAUSE */, CLIENT_IMPORT_SOURCE = 1 << 11, CLIENT_READONLY = 1 << 12, CLIENT_INTERNAL = 1 << 13
};
enum client_class { CLIENT_CLASS_NORMAL, CLIENT_CLASS_REPLICA, CLIENT_CLASS_PUBSUB, CLIENT_CLASS_PRIMARY, CLIENT_CLASSES };

struct client {
    struct list_link link; /* in the list of all clients */
    struct connection *conn;
    struct reply reply;
    struct db *db;
    uint64_t id;
    uint32_t flags;
    bool authenticated;
    struct request_reader reader;
    const struct command *current, *last;
    char *name, *lib_name, *lib_ver; /* NULL: not set */
    char *user;                      /* "default" */
    int64_t created_ms, active_ms;   /* wall clock */
    uint64_t soft_limit_since_us;    /* when the soft output limit was first passed; 0: it is not */
    uint64_t commands, net_in, net_out;
    void *pending_propagation;       /* of the call that runs */
};

struct client *client_new(struct connection *conn); /* conn NULL: internal */
void client_free(struct client *client);            /* at any time, by anyone; safe while the client's own command runs */
void client_free_after_reply(struct client *client);
struct client *client_by_id(uint64_t id);
struct list *clients_all(void);
size_t clients_count(void);
enum client_class client_class(const struct client *client);
void client_describe(struct client *client, struct output *out); /* a line of CLIENT LIST */
/* CLIENT PAUSE and its like (failover): holds the execution of writes or of everything until then. */
enum pause_kind { PAUSE_NONE, PAUSE_WRITE, PAUSE_ALL };
void clients_pause(enum pause_kind kind, int64_t until_ms);
void clients_unpause(void);
enum pause_kind clients_paused(void);
/* Executes a command for a client as if it had sent it: used by scripts, replica links, AOF loading. The reply goes to client->reply.out. */
void client_execute(struct client *client, int argc, const struct slice *argv);
void client_accept(struct listener *listener, struct connection *conn);
#endif
