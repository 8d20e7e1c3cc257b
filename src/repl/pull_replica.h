/* pull_replica.h: the pulled full synchronization on the replica: fetches the chunks of the primary's snapshot with
 * several RDMA READs in flight, and gives their bytes in order to a loader, which waits for them, or to a writer of a
 * file, which is called when they have arrived. pull_wire.h has the messages.
 *
 * The chunks are read into a ring of local buffers, PULL_FETCH_MEMORY bytes in all. A chunk is checked against its
 * checksum and acknowledged as soon as it has arrived. The primary may then reuse its memory while the replica loads
 * from its own. When all buffers are full, the replica reads no more descriptors from the connection, and the primary
 * waits.
 *
 * Every message is checked: numbers in order, lengths within the chunk size, the sums of the last line. A primary that
 * breaks a rule, a chunk with a wrong checksum and a refused read end the synchronization.
 *
 * While it runs, the fetch consumes the connection's input; the connection's owner must leave it alone until the source
 * has ended, and send a newline to the primary every second or so. The owner still gets `closed`, and may call
 * pull_fetch_cancel() at any time. Main thread only. */
#ifndef REPL_PULL_REPLICA_H
#define REPL_PULL_REPLICA_H
#include "net/connection.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { PULL_FETCH_MEMORY = 16 * 1024 * 1024 };

struct pull_fetch;

/* Progress of a fetch, for INFO and the log. */
struct pull_progress {
    uint64_t bytes;          /* fetched */
    uint64_t keys;           /* of the primary, in what was fetched */
    uint64_t keys_total;     /* of the primary's data set */
    double percent;          /* of the keys */
    double bytes_per_second; /* since the begin */
    int64_t seconds_left;    /* estimated from the keys; -1: unknown */
};

#ifdef USE_RDMA
/* Whether the link can fetch: the replica declares the capability then. */
bool pull_fetch_possible(const struct connection *conn);
/* Begins with the header, a line without its end. NULL: the reason is in `error`, static. Reads start with
 * pull_fetch_read(). */
struct pull_fetch *pull_fetch_new(struct connection *conn, struct slice header, const char **error);
/* Copies the next 1 to `len` bytes of the snapshot, and runs the event loop while none are there. 0: the end. A
 * negative errno: -ECANCELED after pull_fetch_cancel(), else the failure of the link or of the primary
 * (pull_fetch_error()). Must not be called from handlers of the connection. */
ssize_t pull_fetch_read(struct pull_fetch *fetch, void *to, size_t len);
/* The same without the copy: shows the bytes in the local buffer, where they stay until the next call of one of the two
 * functions. */
ssize_t pull_fetch_show(struct pull_fetch *fetch, const char **bytes);
/* The same for a caller in a handler of the loop: never waits and never runs the loop. -EAGAIN: no bytes are there. The
 * caller calls it again when the connection is readable, and from `arrived`. It checks no timeout. */
ssize_t pull_fetch_take(struct pull_fetch *fetch, const char **bytes);
/* `arrived` is called within the loop after a read has ended, successfully or not; it must not free the fetch. */
void pull_fetch_notify(struct pull_fetch *fetch, void (*arrived)(void));
/* Starts reads and takes those that have completed, without waiting. For the loader to call now and then. */
void pull_fetch_pump(struct pull_fetch *fetch);
/* Call before the connection is closed. Later reads return -ECANCELED. */
void pull_fetch_cancel(struct pull_fetch *fetch);
/* Unless the end was reached, close the connection afterwards: the memory that reads in flight write to stays until
 * then. */
void pull_fetch_free(struct pull_fetch *fetch);
const char *pull_fetch_error(const struct pull_fetch *fetch); /* of the first failure; NULL: none */
/* Of the fetch that runs. False: none runs. */
bool pull_fetch_progress(struct pull_progress *progress);
/* From keys and bytes, for both sides. */
struct pull_progress pull_progress_of(uint64_t bytes, uint64_t keys, uint64_t keys_total, uint64_t elapsed_us);
#else
static inline bool pull_fetch_progress(struct pull_progress *progress) {
    return false;
}
static inline bool pull_fetch_possible(const struct connection *conn) {
    return false;
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
static inline void pull_fetch_cancel(struct pull_fetch *fetch) {}
static inline void pull_fetch_free(struct pull_fetch *fetch) {}
static inline const char *pull_fetch_error(const struct pull_fetch *fetch) {
    return "";
}
#endif

#endif
