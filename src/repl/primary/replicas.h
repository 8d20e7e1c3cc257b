/* replicas.h: the replicas of this server. Main thread only.
 *
 * A replica is a client. Its state here begins with its first REPLCONF; with PSYNC or SYNC it enters the list of
 * replicas. It then goes through these states:
 *
 *     full synchronization from a file     WAITS, FILE, FILE_TRANSFER, ONLINE
 *     as a stream                          WAITS, TRANSFER, ONLINE; the stream begins with its first acknowledgement
 *     by RDMA READ                         WAITS, PULL, ONLINE; the same
 *     partial synchronization              ONLINE
 *     on two connections                   WAITS, TRANSFER, DONE on the RDB channel; MAIN_CHANNEL, ONLINE on the other
 *     refused                              WAITS, REFUSED, until full_sync_cron() sends the reason
 *
 * From the snapshot's offset on, the replica's reader pins the stream (stream.h), so the stream is not copied while the
 * replica loads the snapshot. */
#pragma once
#include "repl/stream.h"
#include "server/clients/client.h"
#include "server/cluster_hooks.h"

struct pull_reader;
struct quorum_hello;

enum replica_state {
    REPLICA_HANDSHAKE,     /* not in the list of replicas */
    REPLICA_WAITS,         /* waits for a snapshot to begin */
    REPLICA_REFUSED,       /* cannot be served; gets the error a second after its request */
    REPLICA_FILE,          /* waits until the snapshot is written to a file */
    REPLICA_FILE_TRANSFER, /* the file is being sent */
    REPLICA_TRANSFER,      /* the snapshot is sent while it is written */
    REPLICA_PULL,          /* fetches the snapshot by RDMA READ: pull/primary.h */
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

/* What a replica says of itself by REPLCONF. handshake.c writes it. */
struct replica_announced {
    int port;
    char *address; /* NULL: that of the connection */
    unsigned capabilities, filter;
    int version;                           /* 0xMMmmpp; 0: not announced */
    int rdma_port;                         /* at which it can be reached by RDMA; 0: not announced */
    char node_id[CLUSTER_NODE_ID_LEN + 1]; /* of a node of this cluster; "": not announced */
    bool rdb_only;                         /* it wants only the RDB file */
    bool rdb_channel;                      /* the connection is the RDB channel of a dual-channel replica */
    uint64_t rdb_client_id;                /* main channel: the client of its RDB channel; 0: none */
};

/* The full synchronization. The files full_sync*.c write it. */
struct replica_copy {
    int64_t waits_since_ms;   /* when it asked for a snapshot */
    const char *refusal;      /* REPLICA_REFUSED: the error; static */
    int file;                 /* REPLICA_FILE_TRANSFER: the descriptor; -1: none */
    uint64_t file_left;       /* bytes of the file that are not queued yet */
    struct pull_reader *pull; /* REPLICA_PULL */
    bool pull_refused;        /* RDMA READ is impossible for it: it gets an ordinary copy */
    bool chosen;              /* the snapshot that starts is for it */
};

/* Synchronous replication. quorum/ writes it. */
struct replica_quorum {
    struct quorum_hello *hello; /* what it said of itself; NULL: it does not take part. Allocated */
    bool linked;                /* the state machine counts it */
    bool copies;                /* it is a candidate that catches up from this voter */
};

struct replica {
    struct list_link link;
    struct client *client;
    enum replica_state state;
    struct address peer; /* of the connection */
    struct replica_announced announced;
    struct replica_copy copy;
    struct replica_quorum quorum;
    /* The stream. handshake.c, primary.c and full_sync*.c write this. */
    struct repl_stream_reader reader; /* where it is in the stream */
    bool psync;                       /* it sent PSYNC, not SYNC: it acknowledges, and understands +FULLRESYNC */
    bool awaits_ack;                  /* online, but the stream begins with its first acknowledgement */
    /* Acknowledgements. replica_acknowledged() writes this; a new copy clears it. */
    bool has_acked;   /* since the full copy began; it may have loaded the copy before the save has ended */
    int64_t acked;    /* offset; 0: it has acknowledged nothing since it asked for the stream */
    int64_t fsynced;  /* offset that its append-only file has on disk */
    int64_t acked_ms; /* when the last acknowledgement came */
    /* Timeouts. close_silent() of primary.c writes this. */
    uint64_t heard_bytes;    /* the connection's bytes_in at heard_ms: acknowledgements, or newlines while it loads */
    int64_t heard_ms;        /* when new bytes from it were last seen */
    uint64_t progress_bytes; /* the connection's bytes_out at progress_ms */
    int64_t progress_ms;     /* when the connection last made progress, or a copy began */
    struct null_output replies; /* a replica must cause none: see replica_requested() */
};

extern struct list replicas; /* of struct replica; all but those in the handshake */
size_t replicas_online(void);

/* The replica's state of a client. replica_find(): NULL if it sent no REPLCONF, PSYNC or SYNC. */
struct replica *replica_find(const struct client *client);
struct replica *replica_get(struct client *client);
void replica_join(struct replica *replica); /* adds it to the list; the caller has set its state */
void replica_close(struct replica *replica);
/* Closes the connections of all replicas. Each reconnects and synchronizes with the new history, by a partial
 * synchronization if possible. */
void repl_disconnect_replicas(const char *reason);

struct replica_events {
    void (*left)(struct replica *replica);    /* its connection is closed, and it is in the list no more */
    void (*drained)(struct replica *replica); /* the connection has sent what was queued */
};
extern const struct replica_events *replica_events; /* primary.c installs it */

/* Commands of our own servers in the stream (feed.h). repl_replicas_are_own(): all replicas know them, and none is
 * about to join that may not. repl_note_own_command(): the caller is about to propagate such a command, or executes one
 * of its primary: it drops sub-replicas that do not know it. */
bool repl_replicas_are_own(void);
void repl_note_own_command(void);

/* --- Names --- */
enum { REPLICA_ADDRESS_MAX = 255, REPLICA_NAME_MAX = REPLICA_ADDRESS_MAX + 32 };
const char *replica_name(const struct replica *replica);       /* "127.0.0.1:6380" for the log; static */
const char *replica_state_name(const struct replica *replica); /* as INFO shows it */
const char *replica_type_name(const struct replica *replica);
struct slice replica_address(const struct replica *replica);

static inline struct replica *replica_of(struct list_link *link) {
    return container_of(link, struct replica, link);
}
static inline bool replica_is_online(const struct replica *replica) {
    return replica->state == REPLICA_ONLINE;
}

/* --- Sending --- */
/* Writes to the replica's connection and sends, bypassing the reply barrier. */
void replica_write(struct replica *replica, struct slice bytes);
void replica_pass(struct replica *replica, struct blob *blob); /* the same with a piece of a full copy; shares it */
bool replica_is_full(const struct replica *replica);           /* its connection has enough bytes queued */
