/* client.h: a client issues commands. It is the peer of a connection, or (conn NULL) a part of the server itself.
 *
 * The connection provides bytes, resp/request.c parses requests in them, client_turn.c executes the requests one after
 * the other and flushes the replies when the input is used up. client-output-buffer-limit bounds the output. Main
 * thread only. */
#pragma once
#include "lib/structures/linked_list.h"
#include "net/connection.h"
#include "net/event_loop.h"
#include "resp/reply.h"
#include "resp/request.h"
#include "server/command/command.h"
#include "server/config/config.h"

enum client_flag {
    CLIENT_CLOSE_AFTER_REPLY = 1 << 0,
    CLIENT_CLOSING = 1 << 1,
    CLIENT_REPLY_OFF = 1 << 2,
    CLIENT_REPLY_SKIP_NEXT = 1 << 3,
    CLIENT_REPLY_SKIP = 1 << 4,
    CLIENT_NO_EVICT = 1 << 5,
    CLIENT_NO_TOUCH = 1 << 6,
    CLIENT_REPLICA = 1 << 7,
    CLIENT_PUBSUB = 1 << 8,
    CLIENT_PRIMARY = 1 << 9,
    CLIENT_PAUSED = 1 << 10 /* its request waits for CLIENT UNPAUSE */,
    CLIENT_IMPORT_SOURCE = 1 << 11,
    CLIENT_READONLY = 1 << 12,
    CLIENT_INTERNAL = 1 << 13,
    CLIENT_MONITOR = 1 << 14,
    CLIENT_CAPA_REDIRECT = 1 << 15,
    CLIENT_DIRTY_WATCH = 1 << 16 /* a watched key has changed */,
    CLIENT_CAPA_RDMA_ENDPOINTS = 1 << 17,
    CLIENT_DENY_BLOCKING = 1 << 18 /* within EXEC or a script: commands must not block */,
    CLIENT_CALLED_AGAIN = 1 << 19, /* the running command blocked before and is called again */
    CLIENT_LOADER = 1 << 20,       /* executes the contents of a file: nothing is propagated */
    CLIENT_PROTECTED = 1 << 21,    /* client_protect() */
    CLIENT_CLOSE_WANTED = 1 << 22, /* client_free() was called for a protected client */
    CLIENT_TRACKING = 1 << 23,     /* CLIENT TRACKING ON */
    /* The link of a slot migration: to the target together with CLIENT_REPLICA, from the source without. */
    CLIENT_MIGRATION = 1 << 24,
    CLIENT_TAKEN_OVER = 1 << 25,  /* its requests go to the feature that has `request` in client_listener */
    CLIENT_TRANSACTED = 1 << 26,  /* it has opened a transaction before */
    CLIENT_KNOWN = 1 << 27,       /* it has authenticated before, even if it has not since RESET */
    CLIENT_ASKING = 1 << 28,      /* its next command follows an -ASK redirection … */
    CLIENT_ASKING_USED = 1 << 29, /* … and that command has come */
    CLIENT_OVER_MEMORY = 1 << 30  /* scripts that it runs do not obey maxmemory: a module has not asked for that */
};
enum client_class {
    CLIENT_CLASS_NORMAL,
    CLIENT_CLASS_REPLICA,
    CLIENT_CLASS_PUBSUB,
    CLIENT_CLASS_PRIMARY,
    CLIENT_CLASSES
};

struct client {
    struct list_link link; /* in the list of all clients */
    struct connection *conn;
    struct reply reply;
    struct db *db;
    uint64_t id;
    uint32_t flags;
    bool authenticated;
    int16_t slot;        /* the hash slot of the request, which the filter of cluster mode sets; -1: see struct call */
    uint32_t redacted;   /* arguments of the last call that are secret (call_redact): use client_hides_argument */
    bool threaded;       /* an I/O thread owns its connection and delivers parsed batches */
    bool held;           /* the reader holds a whole request that waits for client_release() */
    bool waits_for_turn; /* its turn ended with input left; reading is off */
    bool reads_ahead;    /* a feature has begun work for its next requests: `requested` */
    uint8_t holds;       /* client_hold() calls without client_release() */
    void (*resume)(struct client *client); /* called after the last release, if the client's owner executes its
                                              requests (the replica's link); NULL: client_turn.c executes them */
    struct request_reader reader;
    size_t input_peak;           /* bytes of the largest request since the cron last looked at the client */
    size_t used;                 /* bytes of the input executed in this turn and not consumed yet */
    struct list_link turn_link;  /* in the queue for its next turn */
    struct list_link flush_link; /* in the list of clients whose output is sent before the loop waits */
    struct event_deferred deferred;
    struct command *current;         /* the command that runs, or ran last, for CLIENT LIST */
    struct command *last;            /* the command of the last request, if its name alone identifies it; or NULL */
    char *name, *lib_name, *lib_ver; /* NULL: not set */
    char *addresses;                 /* the peer's address, NUL, the connection's own; NULL: not shown yet */
    struct user *user;               /* the user it acts as once authenticated; never NULL */
    int64_t created_ms, active_ms;   /* clock_mono_ms() */
    uint64_t soft_limit_since_us;    /* when the soft output limit was exceeded; 0: it is not */
    uint64_t commands, net_in, net_out;
    struct client_states *states; /* what features keep for the client: client_state(); NULL: nothing */
    uint64_t produced;            /* bytes of replies written before produced_at, a position in conn->out */
    const char *produced_at;
    size_t memory_noted; /* counted against maxmemory-clients */
    struct client_reply_buffer {
        uint32_t size; /* rbs of CLIENT LIST: bytes of replies that count as buffered and not as queued … */
        uint32_t peak; /* … rbp: and the most that were in it since … */
        int64_t peak_since_ms;
    } buffer;
};

/* One bit for each argument; the last one stands for all arguments from REDACTED_REST on. */
enum { REDACTED_REST = 31 };
static inline bool client_hides_argument(const struct client *client, int index) {
    return client->redacted >> (index < REDACTED_REST ? index : REDACTED_REST) & 1;
}

/* The server executes the stream of its primary, that of the source of a slot migration, and the commands of a file
 * unconditionally. No limit of clients (permissions, time, memory, replicas, disk errors, the role, sizes) may refuse,
 * drop or change a command of such a client. Code that enforces a limit calls this function; dispatch does not call
 * filters for such a client. */
static inline bool client_must_be_obeyed(const struct client *client) {
    return client->flags & (CLIENT_PRIMARY | CLIENT_LOADER | CLIENT_MIGRATION);
}

struct client *client_new(struct connection *conn); /* conn NULL: internal */
void client_free(struct client *client); /* callable at any time, also while the client's own command runs; its memory
                                            is freed at the end of the turn */
void client_free_after_reply(struct client *client);
/* DEBUG PROTECT-CLIENT: the server reads nothing more from the client, and client_free() only sets CLIENT_CLOSE_WANTED.
 */
void client_protect(struct client *client);
struct client *client_by_id(uint64_t id);
struct list *clients_all(void);      /* those with a connection, oldest first */
struct list *clients_internal(void); /* those without: of scripts, files and calls of modules */
size_t clients_count(void);
size_t client_memory(const struct client *client); /* bytes used for the client: the struct, its input, its output */
enum client_class client_class(const struct client *client);
const char *client_class_name(enum client_class class);
bool client_class_parse(struct slice name, enum client_class *class); /* TYPE of CLIENT LIST and KILL */
void client_describe(struct client *client, struct output *out);      /* a line of CLIENT LIST, without the line end */
/* The client's line for the log; hide-user-data-from-log leaves names out. Static, valid until the next call. */
const char *client_log_text(struct client *client);
/* The client that requested something, for the log: the fields that do not change. Static, valid until the next call.
 */
const char *client_requester_text(const struct client *client);
const char *client_crash_text(struct client *client); /* the same for a crash report: takes no lock */
void client_accept(struct listener *listener, struct connection *conn);
/* Replaces the client's connection by another one with the same peer (io_threads.h). The client, which may be blocked,
 * must be between two requests and have no output that is not flushed. Not within a handler. */
bool client_can_change_connection(const struct client *client);
void client_change_connection(struct client *client, struct connection *conn);
/* Executes a command for a client as if it had sent it: for scripts, replica links, AOF loading. The reply goes to
 * client->reply.out. */
void client_execute(struct client *client, int argc, const struct slice *argv);

/* Sets reply.out after CLIENT_REPLY_OFF or a similar flag has changed. Replication sets that of CLIENT_REPLICA. */
void client_retarget(struct client *client);

/* Output. A client's own replies are flushed when its input is used up, or before the loop waits (immediate-reply).
 * Other writers to a client (messages, monitors, replicas) call client_flush_later(), and client_check_output() after
 * writing many bytes. */
void client_flush_later(struct client *client);
void clients_flush(void); /* flushes all queued clients, before the loop waits */
/* The output that keeps the client's replies and confirmations in order, regardless of CLIENT REPLY: the output of its
 * connection, or its held replies (reply_barrier.h). Output to a replica is discarded. The client must have a
 * connection. */
struct output *client_output(struct client *client);
/* Bytes of replies that were written for the client so far, sent or not. It must have a connection. */
uint64_t client_reply_bytes(const struct client *client);
/* Writes protocol bytes that do not reply to a request (a message, an invalidation), regardless of CLIENT REPLY. While
 * a command of the client's own runs, they wait until after its reply. */
void client_push(struct client *client, struct slice bytes);
void client_push_blob(struct client *client, struct blob *blob); /* shares a large blob instead of copying it */
/* Sends a client's pushes immediately, while they are in the CPU's cache. For code that writes to very many clients and
 * has nothing more to write to this one. May free the client. */
void client_flush_pushes(struct client *client);
void client_pushes_write(
    struct client *client); /* writes the pushes that waited, if any; dispatch calls it after the call */
/* Applies the class's output limits. Returns false if a limit was exceeded and the client is freed. */
bool client_check_output(struct client *client);
/* The same for the client's own replies before they are flushed. Large strings that are shared with the store do not
 * count, because they need no memory of their own. A command with an unlimited reply calls it repeatedly. */
bool client_check_replies(struct client *client);

/* Holds the execution of a client's requests; calls nest. The connection continues to receive. The last release resumes
 * the execution, in this turn of the loop or the next one. */
void client_hold(struct client *client);
void client_release(struct client *client);

/* Holds the execution of writes or of all commands until clock_mono_ms() is `until_ms`, or until clients_unpause() with
 * the same reason. A second pause for the same reason can make the pause longer or stricter, not shorter or weaker. */
enum pause_kind { PAUSE_NONE, PAUSE_WRITE, PAUSE_DATA /* reads, too */, PAUSE_ALL };
enum pause_reason {
    PAUSE_COMMAND /* CLIENT PAUSE */,
    PAUSE_SHUTDOWN,
    PAUSE_FAILOVER,
    PAUSE_SLOT_MIGRATION,
    PAUSE_MIGRATE,
    PAUSE_SNAPSHOT, /* too much waits to be written (persistence/forkless.h) */
    PAUSE_REASONS
};
void clients_pause(enum pause_reason reason, enum pause_kind kind, int64_t until_ms);
void clients_unpause(enum pause_reason reason);
/* Keeps a client whose request a filter holds back (FILTER_HOLD). When a pause ends, or clients_postponed_again() is
 * called, the filters decide about the requests of these clients again. */
void client_postpone(struct client *client);
void clients_postponed_again(void);
bool clients_paused_for(enum pause_reason reason);
enum pause_kind clients_paused(void);   /* by all reasons together */
int64_t clients_paused_ms(void);        /* milliseconds until the last pause ends; 0: not paused, or unknown */
const char *clients_pause_reason(void); /* of the pause that ends last, as INFO shows it */

void clients_cron(int hz); /* timeouts and limits of a slice of all clients */
void client_set_name(struct client *client, struct slice name);
/* In a forked child that executes commands: no client has a connection any more, so nothing is sent to any. */
void clients_detach(void);
void client_reset(struct client *client); /* RESET: back to the state at connection */

/* State of features
 *
 * struct client has no members of single features (transactions, subscriptions, blocking, pauses, held replies …). Some
 * features (tracking, MONITOR, subscriptions, ASKING) have a flag instead, because every request asks about them: one
 * test of `flags` covers several, where client_state() would need a load and a branch for each. A feature with state
 * for some clients has one static client_listener, whose callbacks are called when a client is freed, reset and shown,
 * and one pointer for each client that has such state:
 *
 *     static struct client_listener client_listener = {.freed = drop, .reset = drop, .report = report};
 *     client_set_state(client, &client_listener, state);   NULL removes it
 *     struct state *state = client_state(client, &client_listener);   NULL: none
 *
 * The feature owns what the pointer points to. Its `freed` must remove the state; it is called while the client still
 * has its connection, but nothing can be written to the client any more. A client without any state has no table, so
 * a test of client->states decides for all features at once. Registration (client_listen) happens at start, or by the
 * first client_set_state(). Rejected: an enum of all features, which every feature would have to change. */
enum { CLIENT_SUBSCRIPTION_KINDS = 3 };
struct client_report { /* what features contribute to CLIENT LIST and to the memory of a client */
    int subscriptions[CLIENT_SUBSCRIPTION_KINDS]; /* channels, patterns, shard channels */
    int queued_commands;                          /* -1: the client has never opened a transaction */
    int watched_keys;
    int64_t redirect; /* id of the client that gets its invalidation messages; 0: itself; -1: it does not track keys */
    bool broadcasts;  /* it tracks prefixes: BCAST */
    bool redirect_broken;     /* the client that gets its invalidation messages is gone */
    size_t queued_memory;     /* bytes of queued commands, as Valkey counts them */
    size_t held_output;       /* bytes; also part of `memory` */
    size_t waiting_arguments; /* bytes of the arguments of a blocked command; also part of `memory` */
    size_t transfers;         /* of direct placement, in progress */
    size_t pinned;            /* bytes of values that these hold; not part of `memory` */
    size_t output_uncounted;  /* bytes of the connection's output that no limit counts */
    size_t output_least;      /* bytes; a limit of client-output-buffer-limit below this counts as this */
    size_t memory;
};
struct client_listener {
    struct list_link link;                /* private */
    unsigned slot;                        /* private; 0: not registered */
    void (*freed)(struct client *client); /* may be NULL */
    void (*reset)(struct client *client); /* RESET; may be NULL */
    /* The client has CLIENT_TAKEN_OVER: receives its requests in place of dispatch, if it has state; may be NULL */
    void (*request)(struct client *client, int argc, const struct slice *argv);
    void (*drained)(struct client *client); /* its connection has sent what was queued; if it has state; may be NULL */
    /* A request of a client with CLIENT_REPLICA or `reads_ahead`, and state, was executed or refused. */
    void (*requested)(struct client *client);
    void (*arrived)(struct client *client); /* input, which waits; if it has state; may be NULL */
    /* Adds to the report what the feature knows of a client that has state. May be NULL. */
    void (*report)(const struct client *client, struct client_report *report);
};
void client_listen(struct client_listener *listener);
struct client_states {
    unsigned size, used; /* slots; those that are not NULL */
    void *slots[];
};
static inline void *client_state(const struct client *client, const struct client_listener *listener) {
    const struct client_states *states = client->states;
    return __builtin_expect(!states, 1) || listener->slot >= states->size ? NULL : states->slots[listener->slot];
}
void client_set_state(struct client *client, struct client_listener *listener, void *state);
void client_report(const struct client *client, struct client_report *report);

enum immediate_reply { REPLY_LATE, REPLY_IMMEDIATE, REPLY_AS_TRANSPORT };
struct client_settings {
    int timeout, tcp_keepalive, protocol /* until HELLO */, immediate_reply /* enum */;
    int prefetch_batch_max;
    int64_t maxclients, query_buffer_limit, bulk_max;
    int64_t shared_reply_min; /* 0: large strings in replies count against the output limits at once */
    struct client_limit {
        uint64_t hard, soft, soft_seconds;
    } limits[CLIENT_CLASSES];
};
extern struct client_settings client_settings;
/* How many requests may have their keys prefetched together: at most HASHTABLE_PREFETCH_MAX, less with
 * prefetch-batch-max-size. */
size_t client_prefetch_max(void);
struct client_stats {
    uint64_t accepted, rejected, bytes_in, bytes_out, reads, writes, query_limit_closed, output_limit_closed;
    uint64_t reply_shrinks, reply_expands;      /* changes of buffer.size */
    size_t recent_max_input, recent_max_output; /* of the last seconds */
};
extern struct client_stats client_stats;
extern bool client_replies_are_lists; /* DEBUG: the least reply counts as a whole block against the output limits */
enum { REPLY_SIZE_MAX = 16 * 1024, REPLY_SIZE_MIN = 1024, REPLY_PEAK_MS = 5000 };
extern bool client_reply_sizes_adapt;      /* DEBUG: buffer.size follows buffer.peak */
extern int64_t client_reply_peak_reset_ms; /* DEBUG: buffer.peak starts again after this time; negative: never */
extern const struct config_option client_options[], client_eviction_options[];
void clients_evict(void);                            /* maxmemory-clients; before the loop waits */
bool clients_memory_is_limited(void);                /* maxmemory-clients is set */
size_t client_limited_memory(struct client *client); /* bytes that count against it, if it is set; 0: not evictable */
uint64_t clients_evicted(void);
void clients_evicted_reset(void);
void client_eviction_start(void);
