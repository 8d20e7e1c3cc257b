/* primary.h: the pulled full synchronization on the primary. A background save (persistence/background_save.h) writes
 * the snapshot once into shared memory (pull/arena.h). Any number of replicas fetch it from there at the same time by
 * RDMA READ. The server's main thread only sends the descriptors of chunks and receives acknowledgements (pull/wire.h).
 *
 *     pull_start()                 starts the save. All replicas continue the stream at role->position.offset
 *       pull_join(), pull_join()   adds a replica, while no chunk has been released yet
 *       pull_taken()               REPLCONF PULLED
 *         delivered(), failed()
 *     ended()                      the memory is free; another snapshot can start
 *
 * Memory
 *   rdma-replication-snapshot-memory limits the chunks. The save waits while every chunk holds bytes that some
 *   replica has not fetched. As long as it has free chunks, none are released, so that more replicas can join.
 *
 * Slow replicas
 *   The slowest replica holds back the others and the save. The server adds up the time for which others wait for it.
 *   When this exceeds rdma-replication-max-wait, the slow replica's synchronization fails, and it tries again later. It
 *   also fails if the replica sends nothing for repl-timeout. Clients whose writes are paused because too much waits
 *   for a free chunk are such others, too.
 *
 * Keys
 *   Each replica gets an rkey of its own, for a registration of the chunks and nothing else. The rkey is revoked when
 *   the replica has acknowledged the last chunk, fails or disconnects. Each snapshot has memory of its own, so the
 *   chunks hold only bytes of this snapshot.
 *
 * TLS
 *   A snapshot is for replicas with TLS, or for those without: the chunks of the former are encrypted with a key that
 *   only they know.
 *
 * Main thread only. */
#pragma once
#include "persistence/background_save.h"
#include "server/clients/client.h"
#include <stdbool.h>
#include <stdint.h>

struct pull_reader; /* a replica that takes part */
struct pull_events {
    /* The replica has fetched everything, and the reader is freed. The stream may follow. */
    void (*delivered)(void *owner);
    /* It kept writes of clients waiting, for longer than it may keep others waiting. failed() follows. */
    void (*held_writes)(void *owner, int64_t waited_ms);
    /* The synchronization failed, and the reader is freed. The owner closes the client. */
    void (*failed)(void *owner, const char *reason);
    /* The snapshot has ended and its memory is free. pull_leave() may call it. */
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
    double bytes_per_second;       /* that the slowest replica fetches */
    int64_t seconds_left;          /* -1: unknown */
    uint64_t snapshots, delivered; /* since the start */
    uint64_t dropped_slow;         /* replicas that kept others waiting for too long */
};

#ifdef USE_RDMA
/* Whether the replica can fetch: its connection is RDMA. It may belong to an I/O thread. */
bool pull_possible(const struct client *client);
/* Whether it can fetch sealed snapshots only, which are encrypted (pull/seal.h): the connection uses TLS. */
bool pull_needs_seal(const struct client *client);
/* 0 or a negative errno: -EBUSY while a snapshot is held or another save or child runs. */
int pull_start(const struct pull_events *events, const struct save_content *content, bool sealed);
bool pull_active(void);              /* a snapshot is held */
bool pull_joinable(bool needs_seal); /* one of this kind is held, and none of its chunks is released */
/* Adds a replica and registers the memory for it; sends nothing. NULL: it failed; `error`: the reason, static. */
struct pull_reader *pull_join(struct client *client, void *owner, const char **error);
/* The caller has sent +FULLRESYNC: the header and the descriptors follow. */
void pull_begin(struct pull_reader *reader);
void pull_leave(struct pull_reader *reader); /* the client is gone. NULL is accepted */
/* REPLCONF PULLED. False: the number is invalid; the caller closes the client. May call delivered(), which frees the
 * reader. */
bool pull_taken(struct pull_reader *reader, int64_t count);
void pull_read_status(struct pull_status *status);
#else
static inline bool pull_possible(const struct client *client) {
    return false;
}
static inline bool pull_needs_seal(const struct client *client) {
    return false;
}
static inline int pull_start(const struct pull_events *events, const struct save_content *content, bool sealed) {
    return -1;
}
static inline bool pull_active(void) {
    return false;
}
static inline bool pull_joinable(bool needs_seal) {
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
