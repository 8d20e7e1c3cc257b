/* replica.h: the pulled full synchronization on the replica. Fetches the chunks of the primary's snapshot with
 * several RDMA READs in flight, and gives their bytes in order to a loader (which blocks until they arrive) or to a
 * writer of a file (which is called when they have arrived). pull/wire.h has the messages.
 *
 * The chunks are read into a ring of local buffers, PULL_FETCH_MEMORY bytes in all. As soon as a chunk has arrived, the
 * replica verifies its checksum and acknowledges it. The primary may then reuse the chunk's memory while the replica
 * loads from its buffer. When all buffers are full, the replica reads no more descriptors from the connection, and the
 * primary waits.
 *
 * On a link with TLS the chunks are encrypted, and decrypted where they lie once they have arrived. The peer cannot
 * write there: the buffers are only for reads of this process.
 *
 * Every message is checked: the order of chunk numbers, lengths against the chunk size, the totals of the last line. A
 * malformed message, a wrong checksum or tag, or a failed READ ends the synchronization.
 *
 * While the fetch runs, it consumes the connection's input; the connection's owner must not. The owner sends a newline
 * to the primary each second, and still handles `closed`. Main thread only. */
#pragma once
#include "net/connection.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { PULL_FETCH_MEMORY = 16 * 1024 * 1024 };

struct pull_fetch;

/* Progress of a fetch, for INFO and the log. */
struct pull_progress {
    uint64_t bytes;          /* fetched */
    uint64_t keys;           /* keys in the fetched chunks */
    uint64_t keys_total;     /* of the primary's data set */
    double percent;          /* of the keys */
    double bytes_per_second; /* since the start of the fetch */
    int64_t seconds_left;    /* estimated from the keys; -1: unknown */
};

#ifdef USE_RDMA
/* Whether the link allows RDMA READ. The replica then declares the capability. */
bool pull_fetch_possible(const struct connection *conn);
const char *pull_fetch_capability(const struct connection *conn); /* its name: with TLS, chunks must be encrypted */
/* `header`: the line "$PULL:..." without its line end. NULL: it failed; `error`: the reason, static. The first READ
 * starts with the first call of one of the functions below. */
struct pull_fetch *pull_fetch_new(struct connection *conn, struct slice header, const char **error);
/* Copies the next 1 to `len` bytes of the snapshot; runs the event loop until some have arrived. 0: the end. A negative
 * errno: see pull_fetch_error(). Must not be called from handlers of the connection. */
ssize_t pull_fetch_read(struct pull_fetch *fetch, void *to, size_t len);
/* The same without the copy: *bytes points into the local buffer, until the next call of one of the two functions. */
ssize_t pull_fetch_show(struct pull_fetch *fetch, const char **bytes);
/* The same for handlers of the loop: does not run the loop, and checks no timeout. -EAGAIN: no bytes have arrived; call
 * it again when the connection is readable, and after `arrived`. */
ssize_t pull_fetch_take(struct pull_fetch *fetch, const char **bytes);
/* `arrived` is called by the loop after a READ has completed or failed; it must not free the fetch. */
void pull_fetch_notify(struct pull_fetch *fetch, void (*arrived)(void));
/* Starts READs and acknowledges completed ones, without waiting. The loader calls it from time to time. */
void pull_fetch_pump(struct pull_fetch *fetch);
/* If the end was not reached, close the connection afterwards: the memory is freed when the READs in flight have ended.
 * */
void pull_fetch_free(struct pull_fetch *fetch);
const char *pull_fetch_error(const struct pull_fetch *fetch); /* of the first failure; NULL: none */
/* Of the running fetch. False: none is running. */
bool pull_fetch_progress(struct pull_progress *progress);
/* Computes the progress, on the primary and on the replica. */
struct pull_progress pull_progress_of(uint64_t bytes, uint64_t keys, uint64_t keys_total, uint64_t elapsed_us);
#else
static inline bool pull_fetch_progress(struct pull_progress *progress) {
    return false;
}
static inline bool pull_fetch_possible(const struct connection *conn) {
    return false;
}
static inline const char *pull_fetch_capability(const struct connection *conn) {
    return "";
}
static inline struct pull_fetch *pull_fetch_new(struct connection *conn, struct slice header, const char **error) {
    *error = "this server was built without RDMA";
    return NULL;
}
static inline ssize_t pull_fetch_read(struct pull_fetch *fetch, void *to, size_t len) {
    return -1;
}
static inline ssize_t pull_fetch_show(struct pull_fetch *fetch, const char **bytes) {
    return -1;
}
static inline ssize_t pull_fetch_take(struct pull_fetch *fetch, const char **bytes) {
    return -1;
}
static inline void pull_fetch_notify(struct pull_fetch *fetch, void (*arrived)(void)) {}
static inline void pull_fetch_pump(struct pull_fetch *fetch) {}
static inline void pull_fetch_free(struct pull_fetch *fetch) {}
static inline const char *pull_fetch_error(const struct pull_fetch *fetch) {
    return "";
}
#endif
