/* primary.h: the replicas of this server; shared by the files that implement the primary. Main thread only.
 *
 * A replica is a client. Its state here begins with its first REPLCONF; with PSYNC or SYNC it enters the list of
 * replicas. It then goes through these states:
 *
 *     full synchronization from a file     WAITS, FILE, FILE_TRANSFER, ONLINE
 *     through a pipe                       WAITS, TRANSFER, ONLINE; the stream begins with its first acknowledgement
 *     partial synchronization              ONLINE
 *     on two connections                   WAITS, TRANSFER, DONE on the RDB channel; MAIN_CHANNEL, ONLINE on the other
 *     refused                              WAITS, REFUSED, until full_sync_cron() sends the reason
 *
 * From the snapshot's offset on, the replica's reader pins the stream (repl_stream.h), so the stream is not copied
 * while the replica loads the snapshot. */
#ifndef REPL_PRIMARY_H
#define REPL_PRIMARY_H
#include "repl/repl.h"
#include "repl/repl_settings.h"
#include "repl/repl_stream.h"
#include "server/clients/client.h"
#include "server/cluster_hooks.h"

struct sync_hello;

enum replica_state {
    REPLICA_HANDSHAKE,     /* not in the list of replicas */
    REPLICA_WAITS,         /* waits for a snapshot to begin */
    REPLICA_REFUSED,       /* cannot be served; gets the error a second after its request */
    REPLICA_FILE,          /* waits until the snapshot is written to a file */
    REPLICA_FILE_TRANSFER, /* the file is being sent */
    REPLICA_TRANSFER,      /* the snapshot is sent while the child writes it */
    REPLICA_PULL,          /* fetches the snapshot by RDMA READ: pull_primary.h */
    REPLICA_MAIN_CHANNEL,  /* receives the stream here, and the snapshot on another connection */
    REPLICA_ONLINE,
    REPLICA_DONE /* has the RDB file that it asked for, or its error; the connection closes */
};
enum replica_capability {
    CAPA_EOF = 1,
    CAPA_PSYNC2 = 2,
    CAPA_DUAL_CHANNEL = 4,
    CAPA_RDMA_PULL = 8,
    CAPA_SLOT_CHUNKS = 16,
    CAPA_RDMA_PULL_SEALED = 32,
    CAPA_NO_CHECKSUM = 64
};
enum replica_filter { FILTER_NO_DATA = 1, FILTER_NO_FUNCTIONS = 2 }; /* REPLCONF rdb-filter-only */

struct replica {
    struct list_link link;
    struct client *client;
    enum replica_state state;
    /* Announced by REPLCONF. */
    int port;
    char *address;       /* NULL: the connection's */
    struct address peer; /* of the connection */
    unsigned capabilities, filter;
    int version;                           /* 0xMMmmpp; 0: not announced */
    int rdma_port;                         /* at which it can be reached by RDMA; 0: not announced */
    char node_id[CLUSTER_NODE_ID_LEN + 1]; /* of a node of this cluster; "": not announced */
    bool rdb_only, rdb_channel; /* receives only the RDB file; is the RDB channel of a dual-channel replica */
    uint64_t rdb_client_id;     /* main channel: the client of its RDB channel; 0: none */
    /* The stream. */
    struct repl_stream_reader reader;
    bool psync;           /* it sent PSYNC, not SYNC: it acknowledges, and understands +FULLRESYNC */
    bool has_acked;       /* since the full copy began; it may have loaded the copy before the child has exited */
    bool awaits_ack;      /* online, but the stream begins with its first acknowledgement */
    int64_t acked;        /* offset; 0: it has acknowledged nothing since it asked for the stream */
    int64_t fsynced;      /* offset that its append-only file has on disk */
    int64_t acked_ms;     /* when the last acknowledgement came */
    uint64_t heard_bytes; /* the connection's bytes_in at heard_ms: acknowledgements, or newlines while it loads */
    int64_t heard_ms;     /* when close_silent() last saw new bytes from it */
    /* Synchronous replication (sync/sync.h). */
    struct sync_hello *sync; /* what it said of itself; NULL: it does not take part */
    bool sync_linked;        /* the state machine counts it */
    bool sync_copies;        /* it is a candidate that catches up from this voter */
    /* The full synchronization. */
    struct pull_reader *pull; /* REPLICA_PULL */
    bool pull_refused;        /* RDMA READ is impossible for it: it gets an ordinary copy */
    int64_t waits_since_ms;
    const char *refusal; /* REPLICA_REFUSED: the error; static */
    int file;            /* -1: none */
    uint64_t file_left;
    bool last_sent, copy_lost;  /* the child that writes to its socket: sends its last bytes; has dropped it */
    uint64_t progress_bytes;    /* the connection's bytes_out at progress_ms */
    int64_t progress_ms;        /* when close_silent() last saw progress */
    struct null_output replies; /* a replica must cause none: see replica_requested() */
};

enum { REPLICA_ADDRESS_MAX = 255, REPLICA_NAME_MAX = REPLICA_ADDRESS_MAX + 32 };
/* The replica's state of a client. replica_find(): NULL if it sent no REPLCONF, PSYNC or SYNC. */
struct replica *replica_find(const struct client *client);
struct replica *replica_get(struct client *client);
void replica_join(struct replica *replica); /* adds it to the list; the caller has set its state */
void replica_acknowledged(struct replica *replica, int64_t offset, int64_t fsynced);

extern struct list replicas; /* of struct replica; all but those in the handshake */

/* "127.0.0.1:6380" for the log; static. */
const char *replica_name(const struct replica *replica);
const char *replica_state_name(const struct replica *replica); /* as INFO shows it */
const char *replica_type_name(const struct replica *replica);
struct slice replica_address(const struct replica *replica);
static inline struct replica *replica_of(struct list_link *link) {
    return container_of(link, struct replica, link);
}
static inline bool replica_is_online(const struct replica *replica) {
    return replica->state == REPLICA_ONLINE;
}
/* Writes to the replica's connection and sends, bypassing the reply barrier. */
void replica_write(struct replica *replica, struct slice bytes);
void replica_pass(struct replica *replica, struct blob *blob); /* the same with a piece of a full copy; shares it */
bool replica_is_full(const struct replica *replica);           /* its connection has enough bytes queued */
void replica_send_stream(struct replica *replica);             /* as much of the stream as the connection takes */
void replica_close(struct replica *replica);
/* The full copy is sent: the replica goes online, or is done. `await_ack`: the stream begins with its first
 * acknowledgement, which says that it has loaded the copy. */
void replica_put_online(struct replica *replica, bool await_ack);

/* --- full_sync.c --- */
/* The replica needs a snapshot: it joins the current one, or waits for the next one. */
void full_sync_request(struct replica *replica);
void full_sync_send(struct replica *replica);   /* its connection has taken what was queued */
void full_sync_forget(struct replica *replica); /* its connection is closed */
void full_sync_cron(void);                      /* once a second */
void full_sync_start(void);                     /* at start */
/* Sends the position of the copy ("+FULLRESYNC id offset") and pins the stream from there on. */
void full_sync_announce(struct replica *replica);

/* --- full_sync_pull.c --- */
/* Whether the replica can fetch a snapshot by RDMA READ. */
bool full_sync_pulls(const struct replica *replica);
/* Starts a snapshot for all waiting replicas that can fetch it, those with TLS or those without. False: they need an
 * ordinary copy. */
bool full_sync_pull_start(bool sealed);
/* Adds the replica to the current snapshot. False: it must wait for the next one. */
bool full_sync_pull_join(struct replica *replica);
void full_sync_pulled(struct replica *replica, int64_t chunks); /* REPLCONF PULLED */

/* --- full_sync.c --- */
/* Seconds for which the stream is kept for a main channel after the RDB channel has ended. */
extern int full_sync_grace_s;
/* The stream is kept from the snapshot's offset on for the main channel of a dual-channel replica, until that connects.
 * `replica` is such a main channel: attaches its reader at `offset`. False: nothing is kept for it. */
bool full_sync_main_channel(struct replica *replica, int64_t offset);
bool full_sync_knows_rdb_client(uint64_t id);
size_t full_sync_main_channels_awaited(void); /* replicas_waiting_psync */
void full_sync_drop_main_channels(void);      /* gives up all of them and the stream kept for them */
/* Bytes of the stream that are kept for the main channel of this RDB channel; 0: none. */
uint64_t full_sync_kept_for(const struct replica *replica);
/* Gives up main channels for which the kept stream exceeds client-output-buffer-limit replica. */
void full_sync_limit_kept(void);

/* --- wait.c --- */
void repl_wait_start(void);
void repl_wait_acknowledged(void);       /* a replica has acknowledged */
size_t repl_replicas_at(int64_t offset); /* replicas that are online and have acknowledged the stream up to it */
bool repl_min_replicas_set(void);        /* min-replicas-to-write and min-replicas-max-lag */
size_t repl_good_replicas(void);         /* online, with an acknowledgement in the last min-replicas-max-lag seconds */
/* --- redirect.c --- */
void repl_redirect_start(void);
/* --- repl_info.c --- */
void repl_info_start(void);
#endif
