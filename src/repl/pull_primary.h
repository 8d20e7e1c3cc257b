/* pull_primary.h: the pulled full synchronization on the primary. A child process writes the snapshot once into shared
 * memory (pull_arena.h); any number of replicas fetch it from there at the same time by RDMA READ. The server's thread
 * only sends the descriptors of chunks and takes acknowledgements (pull_wire.h).
 *
 *     pull_start()                 forks the child. The stream goes on from role->position.offset for all replicas
 *       pull_join(), pull_join()   a replica takes part, as long as all chunks from the first on are still held
 *       pull_taken()               REPLCONF PULLED
 *         delivered(), failed()
 *     ended()                      the memory is free; another snapshot can start
 *
 * Memory
 *   rdma-replication-snapshot-memory bounds the chunks. The child waits while all chunks hold bytes that a replica has
 *   not fetched. Chunks are kept for replicas that may join as long as there is memory to go on.
 *
 * CPU
 *   The child has a lower priority than the server, so that clients come first where all CPUs are busy. The
 *   synchronization takes as long: the child is ahead of the replicas, which load what they fetch.
 *
 * Slow replicas
 *   The slowest replica would hold back the others and the child. The time for which others waited for it is charged to
 *   it. When this exceeds rdma-replication-max-wait, its synchronization fails, and it synchronizes again later. A
 *   replica from which nothing is heard for repl-timeout fails, too.
 *
 * Keys
 *   Each replica gets a key of its own, for a registration of the chunks and nothing else. The key is revoked when the
 *   replica has acknowledged the last chunk, fails or leaves. A snapshot has memory of its own, so the chunks never
 *   hold bytes of something else.
 *
 * Main thread only. */
#ifndef REPL_PULL_PRIMARY_H
#define REPL_PULL_PRIMARY_H
#include "formats/sink.h"
#include "server/clients/client.h"
#include <stdbool.h>
#include <stdint.h>

struct pull_settings {
    int64_t snapshot_memory; /* bytes */
    int max_wait_ms;
};
extern struct pull_settings pull_settings; /* link_transport.c */

struct pull_reader; /* a replica that takes part */
struct pull_events {
    /* In the child: writes the data set, an RDB file, to the sink, and calls child_report(). 0 or a negative errno. */
    int (*save)(struct sink *sink);
    /* The replica has fetched everything. The reader is gone; the stream may follow. */
    void (*delivered)(void *owner);
    /* The synchronization failed. The reader is gone; the owner closes the client. */
    void (*failed)(void *owner, const char *reason);
    /* The snapshot has ended and its memory is free. It may be called by pull_leave(). */
    void (*ended)(void);
    /* Whether replicas wait for the next snapshot. */
    bool (*awaited)(void);
};

/* For INFO. Zeros if no snapshot is held. */
struct pull_status {
    unsigned readers;
    uint64_t memory;               /* bytes of the chunks */
    uint64_t bytes;                /* of the snapshot so far */
    double percent;                /* of the keys that the slowest replica has fetched */
    double bytes_per_second;       /* of the slowest replica */
    int64_t seconds_left;          /* -1: unknown */
    uint64_t snapshots, delivered; /* since the start */
    uint64_t dropped_slow;         /* replicas that kept others waiting for too long */
};

#ifdef USE_RDMA
/* Whether the replica can fetch: its connection is RDMA. An I/O thread may own it. */
bool pull_possible(const struct client *client);
/* Forks. 0 or a negative errno: -EBUSY while a snapshot is held or another child runs. */
int pull_start(const struct pull_events *events);
bool pull_active(void);   /* a snapshot is held */
bool pull_joinable(void); /* and all of its chunks so far are */
/* Adds a replica and registers the memory for it; sends nothing. NULL: that failed, and `error` (static) says why. */
struct pull_reader *pull_join(struct client *client, void *owner, const char **error);
/* The caller has sent +FULLRESYNC: the header and the descriptors follow. */
void pull_begin(struct pull_reader *reader);
void pull_leave(struct pull_reader *reader); /* the client is gone. NULL is accepted */
/* REPLCONF PULLED. False: the number is impossible, and the caller closes the client. The reader may be gone
 * afterwards (delivered). */
bool pull_taken(struct pull_reader *reader, int64_t count);
void pull_read_status(struct pull_status *status);
#else
static inline bool pull_possible(const struct client *client) {
    return false;
}
static inline int pull_start(const struct pull_events *events) {
    return -1;
}
static inline bool pull_active(void) {
    return false;
}
static inline bool pull_joinable(void) {
    return false;
}
static inline struct pull_reader *pull_join(struct client *client, void *owner, const char **error) {
    *error = "this server was built without RDMA";
    return NULL;
}
static inline void pull_begin(struct pull_reader *reader) {}
static inline void pull_leave(struct pull_reader *reader) {}
static inline bool pull_taken(struct pull_reader *reader, int64_t count) {
    return false;
}
static inline void pull_read_status(struct pull_status *status) {
    *status = (struct pull_status){.seconds_left = -1};
}
#endif
#endif
