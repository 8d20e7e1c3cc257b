/* read.h: one-sided reads over RDMA connections. One end registers a range of its memory, a window, and sends the
 * peer its address, length and key in a message of the protocol above. The peer's device reads from the window; the
 * owner's process takes no part in it and learns nothing of it. Compiled in with BUILD_RDMA=yes.
 *
 *   owner of the bytes                        reader
 *     rdma_window_open(RDMA_WINDOW_OFFERED)     rdma_window_open(RDMA_WINDOW_TARGET)
 *     sends base, length, rkey     ------>      rdma_read_start(), several at a time
 *                                                 … done() for each, in the order they were started
 *                                  <------      a message of the protocol above: finished
 *     rdma_window_close()                       rdma_window_close()
 *
 * Rights
 *   A window is a memory region of its own with a single right: an offered window can be read by peers and written by
 *   nobody, except that one for direct placement can be written; a target can be written by the local device, for reads
 * of this process, and is closed to peers. Closing a window revokes the key before rdma_window_close() returns. A later
 * read with the key fails at the reader, whatever memory is registered then. A device accepts a key from every
 * connection of the same protection domain, that is of the same loop, so the key must be known to no other peer. It is
 * random only as far as the device makes it so: a peer may guess it, as it may guess the key of a receive buffer
 * (memory.h), and a wrong guess costs it the connection. Offer a window for a short time, to an authenticated peer, and
 * with nothing in it that this peer may not read. Rejected: memory windows of type 2, which are bound to a queue pair;
 * few devices have them.
 *
 * Reads in flight
 *   The two ends negotiate how many reads each may have in flight while they connect, from the limits of their devices
 *   and RDMA_READS_MAX. A peer with other software may allow fewer or none: rdma_read_depth(). Reads and messages share
 *   the send queue. Reads are posted before the messages that are written after them, but their bytes have no order
 *   relative to the messages.
 *
 * Failures
 *   A read that the peer's device refuses (revoked key, outside the window) ends the connection, because the queue pair
 *   is in the error state then. The connection logs the reason, calls back all reads with a negative errno and calls
 *   `closed`. After a failed read the bytes in the target are undefined, and the device may write there until the
 *   target is closed.
 *
 * TLS over RDMA
 *   The functions also take a connection of transport_rdma_tls. Its records do not protect what is read.
 *
 * Threads, fork
 *   All functions are for the thread of conn->loop. For the home half of a connection on another thread (remote.h)
 *   rdma_read_depth() is 0, and only windows that are offered can be opened: the other thread registers the memory, and
 *   the caller waits for it. In a forked child the windows of the
 *   parent are not usable, and closing them there has no effect on the parent. */
#pragma once
#include "lib/structures/linked_list.h"
#include "net/connection.h"

enum {
    RDMA_READS_MAX = 16,                    /* reads in flight on a connection */
    RDMA_READ_LENGTH_MAX = 8 * 1024 * 1024, /* bytes of one read. Every device takes messages of this length */
};

enum rdma_window_use {
    RDMA_WINDOW_OFFERED,        /* the peer may read the range */
    RDMA_WINDOW_OFFERED_SEALED, /* the same; the bytes are encrypted at all times, so the connection may be TLS */
    RDMA_WINDOW_PLACED,         /* the peer may read and write the range: for direct placement, by clients */
    RDMA_WINDOW_TARGET,         /* reads of this end may store bytes in the range */
};

struct ibv_mr;

/* The caller owns the struct, which must not move while the window is open, and the memory. Only base, length and rkey
 * are for reading. */
struct rdma_window {
    void *base;
    size_t length;
    uint32_t rkey; /* offered, placed: the key for the peer, in host byte order; else 0 */
    enum rdma_window_use use;
    struct connection *conn; /* of transport_rdma; NULL: closed */
    struct connection *home; /* the half of conn that is here, where conn is on another thread; else NULL */
    struct ibv_mr *mr;
    struct list_link link;
};

/* Whether the connection is RDMA, with TLS or without, on this thread or another: windows can be offered while it is
 * open. */
bool rdma_window_possible(const struct connection *conn);
/* Registers `length` bytes at `base`, at least 1, and fills `window`. The pages are pinned until it is closed; align
 * ranges to pages where possible. Registering takes microseconds and about as long again for each 10 to 100 pages, on
 * this thread: open a window once and use it often. The bytes count as rdma_settings.max_registered and in INFO
 * (rdma_registered_window_bytes). The last eighth of the limit is left to new connections.
 * Returns 0 or -errno: -EOPNOTSUPP: not an RDMA connection, or a target on another thread; -ENOTCONN: it is not open;
 * -EPERM: OFFERED or PLACED on a connection with TLS; -EINVAL: no bytes; -EDQUOT: the limit; else the device refused
 * (-ENOMEM: the limit of locked memory, -EFAULT: not mapped). */
int rdma_window_open(struct connection *conn, enum rdma_window_use use, void *base, size_t length,
                     struct rdma_window *window);
/* Revokes the key and unpins the memory. conn_close() does this for all windows of the connection, so that their memory
 * may be freed or reused after either call. Windows of a connection on another thread must be closed before it. A
 * closed window may be closed again; one that was never opened must be zeroed. While reads into a target are in flight,
 * closing it fails the connection. */
void rdma_window_close(struct rdma_window *window);

/* Reads that this end may have in flight on the connection; 0: reads are not possible. */
unsigned rdma_read_depth(const struct connection *conn);

/* Reports a read: `result` is its length, or a negative errno: -ECANCELED after conn_close(), else that of the
 * connection's failure (-EACCES: refused, -ECONNRESET: the peer is gone). Called from the loop, and by conn_close()
 * before it returns. It may start reads, and may close windows and the connection. When a connection is closed while
 * reads are in flight, queued output may be lost. */
typedef void rdma_read_done(struct connection *conn, void *context, int64_t result);

/* Starts to read `length` bytes (1 … RDMA_READ_LENGTH_MAX) from `address` of the peer's window with key `rkey` into the
 * target, from `offset` of it. Returns 0, and `done` is called exactly once, later; or -errno, and it is not called:
 * -EAGAIN: rdma_read_depth() reads are in flight; -EINVAL: the length, or not within the target; -ENOTCONN: the
 * connection is not open, or the target is not an open target of this connection. The address and the length may come
 * from a peer unchecked: the peer's device checks them. */
int rdma_read_start(struct connection *conn, const struct rdma_window *target, size_t offset, uint64_t address,
                    uint32_t rkey, uint32_t length, rdma_read_done *done, void *context);
