/* reads.h: fetches chunks that a peer offers (pull/arena.h) by RDMA READ, several at a time, into a ring of local
 * buffers, and gives them out in order. The full synchronization (pull/replica.h) and the migration of slots
 * (cluster/migration/pull_target.c) use it; each has its own messages.
 *
 *     pull_reads_start()   for each offer, while pull_reads_ready()
 *     arrived()            READ has ended: the chunk is verified, and decrypted if there is a key
 *     pull_reads_front()   the bytes of the oldest chunk
 *     pull_reads_next()    its buffer is free
 *
 * Three counters divide the chunks: those before `consumed` were given out, those from there to `arrived` are in local
 * buffers, and those from there to `started` are being read. Chunk n uses buffer n modulo the number of buffers. READs
 * complete in the order in which they were started.
 *
 * The peer cannot write to the buffers: they are only for reads of this process. It can let a READ fail or bring bytes
 * with a wrong checksum; the first failure ends the work.
 *
 * Main thread only. Compiled in with BUILD_RDMA=yes. */
#pragma once
#include "net/rdma/read.h"
#include "repl/pull/seal.h"

struct pull_offer {
    uint64_t address;
    uint32_t length, rkey;
    uint32_t checksum; /* CRC-32C of the bytes as they lie there */
    uint64_t keys;     /* written when the chunk was filled, for displaying progress */
};

struct pull_reads_params {
    uint32_t chunk_size; /* bytes of the longest chunk */
    uint32_t buffers;
    const struct pull_key *key; /* of the chunks, copied; NULL: they are not encrypted */
    /* The loop calls it after a READ has completed or failed; it must not free the reads. May be NULL. */
    void (*arrived)(void *context);
    void *context;
};

/* For reading. */
struct pull_reads {
    uint64_t started, arrived, consumed; /* chunks */
    uint64_t called_back;                /* READs that completed or failed */
    uint64_t bytes;                      /* of the chunks that have arrived, without tags */
    uint64_t keys;                       /* of the newest one of them */
    int error;                           /* 0, or the negative errno of the first failure */
    char reason[160];
};

/* NULL: it failed; `error`: the reason, static. */
struct pull_reads *pull_reads_new(struct connection *conn, const struct pull_reads_params *params, const char **error);
/* If READs are in flight, close the connection afterwards: the memory is freed when they have ended. NULL is accepted.
 */
void pull_reads_free(struct pull_reads *reads);
/* Whether a buffer is free and another READ may be in flight. */
bool pull_reads_ready(const struct pull_reads *reads);
/* Checks the length of the offer. False: it is not one of a chunk. Another failure is in reads->error. */
bool pull_reads_start(struct pull_reads *reads, struct connection *conn, const struct pull_offer *offer);
/* The oldest chunk; its length is 0 if none has arrived. Valid until pull_reads_next(). */
struct slice pull_reads_front(const struct pull_reads *reads);
void pull_reads_next(struct pull_reads *reads);
/* The first failure counts. */
void pull_reads_fail(struct pull_reads *reads, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The key of sealed chunks as 64 hexadecimal digits. */
enum { PULL_KEY_TEXT = 2 * PULL_KEY_SIZE };
void pull_key_format(char text[PULL_KEY_TEXT], const struct pull_key *key);
bool pull_key_parse(struct slice text, struct pull_key *key);
