/* valkeyrdma.h: libvalkeyrdma 1.1, byte streams to a Valkey server over RDMA, and values in the program's own memory.
 *
 * The library connects to the RDMA listener of a Valkey server ("Valkey over RDMA", docs/rdma-protocol.md) and carries
 * bytes in both directions, as a TCP connection does. That part knows nothing of commands and replies: a client library
 * puts it in the place of its sockets. It uses the transport of valkey-server and valkey-cli.
 *
 * Since 1.1 a program also registers memory of its own (regions), and a placement client moves values between regions
 * and a server, one RDMA operation each. "Regions" and "Placement clients" below describe it.
 *
 *     cc program.c $(pkg-config --cflags --libs libvalkeyrdma)
 *
 *     char error[VALKEYRDMA_ERROR_MAX], reply[64];
 *     struct valkeyrdma *c = valkeyrdma_connect(NULL, "192.0.2.1", 6379, NULL, 5000, error, sizeof error);
 *     if (!c) errx(1, "%s", error);
 *     valkeyrdma_send(c, "PING\r\n", 6, 5000);
 *     ssize_t n = valkeyrdma_recv(c, reply, sizeof reply, 5000);
 *     valkeyrdma_close(c);
 *
 * Results
 *   Functions that return an int or a ssize_t return 0 or a count on success and a negative errno on failure, as
 *   -EAGAIN. valkeyrdma_error_text() has the reason why a connection failed.
 *
 * Timeouts
 *   `timeout_ms` is the longest time that a call waits: 0 does not wait, -1 waits without limit. A call that could do
 *   nothing returns -EAGAIN with timeout_ms 0, and -ETIMEDOUT when the time was over. A call that waits returns -EINTR
 *   when the thread handled a signal meanwhile, with or without SA_RESTART. After each of the three the connection is
 *   as before and the call may be repeated.
 *
 * Contexts
 *   A connection belongs to a context, which owns the device's resources: completion queue, shared receive queue,
 *   registered memory. valkeyrdma_connect(NULL, …) gives the connection a context of its own, which costs about 3 MiB.
 *   A program with many connections creates a context with valkeyrdma_context_new() for each thread and opens the
 *   connections in it. They then share memory and one descriptor, and one call serves all of them. Work is done only
 *   inside calls of the library, which has no threads. A program that waits elsewhere (poll, epoll) follows the next
 *   paragraph, so that the peer's control messages are answered.
 *
 * Waiting elsewhere: the descriptor
 *   A context has one descriptor, valkeyrdma_context_fd(). Wait for it to become readable (POLLIN; level-triggered,
 *   also when you wait to send) and then call valkeyrdma_context_process(). Timeouts make it readable, too: about four
 *   times a second while there are connections. Call valkeyrdma_context_process() also once before you wait for the
 *   first time, and before you wait again after any other call of the library for that context: it arms the
 *   notifications. valkeyrdma_context_next() then returns each connection whose state has changed, and
 *   valkeyrdma_state() its state. A connection is reported once for each change (as with edge-triggered epoll):
 *   receive until -EAGAIN, or until a call returns less than it was asked for, or keep in mind that there is more.
 *
 * Threads
 *   Every function may be called from any thread, with these exceptions. Only one thread at a time receives from a
 *   connection (recv, recvv, peek, consume) and only one at a time sends to it (send, sendv); the receiving and the
 *   sending thread may be two. While valkeyrdma_close(), valkeyrdma_context_free() or valkeyrdma_context_next() runs,
 *   no other thread may use that connection, any connection of that context, or call next on it, respectively. A
 *   context has one lock, which is never held while a thread sleeps. Threads that use one context contend for it; give
 *   threads contexts of their own where speed matters.
 *
 * Fork
 *   Connections and contexts belong to the process that made them. In a forked child every function fails for them
 *   with -EPERM, and valkeyrdma_close() and valkeyrdma_context_free() release nothing and send nothing: the parent's
 *   connections go on. The child may create contexts of its own. fork() waits for calls of other threads that hold a
 *   context's lock, which is short.
 *
 * End of a connection
 *   RDMA has no half-closed connections: there is no shutdown(). When the peer has closed, bytes that it sent before
 *   are still received, then valkeyrdma_recv() returns 0 (orderly end) or a negative errno; sending returns -EPIPE.
 *   valkeyrdma_close() still delivers what was sent before, for 2 seconds at most, and then ends both directions:
 *   replies that were on their way are lost. To end in order, send QUIT or wait for the last reply, then close.
 *   valkeyrdma_flush() waits until the local device has all output. Only a reply proves that the server has read it.
 *
 * RDMA libraries
 *   libibverbs.so.1 and librdmacm.so.1 (rdma-core) are loaded when the first connection or context is made. A program
 *   linked with this library starts without them; connecting then fails with -ENOSYS and a text that names the
 *   library.
 *
 * Limits
 *   The library calls abort() when a small allocation (kilobytes) fails, like the rest of the project. Memory whose
 *   size the peer or the caller determines is bounded by `receive_limit` and `send_limit`, and its failure is an
 *   error. SIGPIPE, standard output and the log are never used. */
#ifndef VALKEYRDMA_H
#define VALKEYRDMA_H
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define VALKEYRDMA_API __attribute__((visibility("default")))
#else
#define VALKEYRDMA_API
#endif

struct valkeyrdma;         /* a connection */
struct valkeyrdma_context; /* what connections share */

enum { VALKEYRDMA_ERROR_MAX = 512 }; /* enough for every error text */
enum { VALKEYRDMA_ADDRESS_MAX = 128 };

/* The version of this interface. A program that uses 1.1 does not start with a library of 1.0. */
enum { VALKEYRDMA_MAJOR = 1, VALKEYRDMA_MINOR = 1 };

/* "9.1.0": the version of the library. */
VALKEYRDMA_API const char *valkeyrdma_version(void);

/* Whether RDMA can be used here: loads rdma-core and looks for a device. Returns 0, -ENOSYS (rdma-core is missing) or
 * -ENODEV (no device), with the reason in `error`. `error` may be NULL, here and below. */
VALKEYRDMA_API int valkeyrdma_available(char *error, size_t error_size);

/* Settings of the process, for connections that are made afterwards. Names, with their defaults:
 *   "busy-poll-us"       20        before a call sleeps, poll the device for this long after the last message
 *   "receive-buffer"     1048576   largest receive buffer of a connection, bytes; 65536 to 16777216
 *   "keepalive-ms"       3000      period of Keepalive messages; 0: none. A dead peer is noticed after about 2 seconds
 *                                  of unacknowledged messages
 *   "ack-timeout-ms"     250       unacknowledged messages are sent again after this time, seven times
 *   "traffic-class"      -1        of the packets, 0 to 255; -1: the connection manager's default
 *   "completion-vector"  -1        -1: random; -2: the one whose interrupt is served on the thread's CPUs; else its
 *                                  number
 *   "base-protocol"      0         1: use no extensions of the protocol
 * Returns 0, -ENOENT for an unknown name, or -ERANGE. */
VALKEYRDMA_API int valkeyrdma_set(const char *name, int64_t value);

/* --- Contexts --- */

/* Returns NULL on failure, with errno set and the reason in `error`. */
VALKEYRDMA_API struct valkeyrdma_context *valkeyrdma_context_new(char *error, size_t error_size);
/* Frees the context and closes its connections, whose unsent output is lost: close them before. NULL is allowed. */
VALKEYRDMA_API void valkeyrdma_context_free(struct valkeyrdma_context *context);
/* The descriptor to wait for; it stays the same and is close-on-exec. Do not read from it. */
VALKEYRDMA_API int valkeyrdma_context_fd(const struct valkeyrdma_context *context);
/* Does what is pending without waiting and arms the notifications of the descriptor. Returns 1 if
 * valkeyrdma_context_next() has connections to return, or valkeyrdma_batch_next() batches, otherwise 0; or -EPERM in a
 * forked child. */
VALKEYRDMA_API int valkeyrdma_context_process(struct valkeyrdma_context *context);
/* The same, but waits until there is a connection or a batch to return. Polls the device first, as "busy-poll-us" says,
 * and is the fastest way to serve many connections. Returns 1, -ETIMEDOUT (-EAGAIN with timeout_ms 0), -EINTR or
 * -EPERM. */
VALKEYRDMA_API int valkeyrdma_context_wait(struct valkeyrdma_context *context, int timeout_ms);
/* Makes the descriptor readable and ends one wait of another thread, with -EINTR. May be called in a signal handler. */
VALKEYRDMA_API void valkeyrdma_context_wake(struct valkeyrdma_context *context);
/* The next connection whose state has changed since it was last returned; NULL: none. Changes: it is connected or has
 * failed, bytes have arrived, all queued output has been sent, it has ended. */
VALKEYRDMA_API struct valkeyrdma *valkeyrdma_context_next(struct valkeyrdma_context *context);

/* --- Connecting --- */

struct valkeyrdma_options {
    size_t size;             /* sizeof (struct valkeyrdma_options), so that later versions may add members */
    const char *source_host; /* address to connect from; NULL: any */
    size_t send_limit;       /* bytes that may be queued for sending, beyond which senders wait; 0: 1 MiB */
    size_t receive_limit;    /* largest `at_least` of valkeyrdma_peek(), bytes; 0: 64 MiB */
    void *data;              /* for valkeyrdma_data() */
    int one_sided;           /* since 1.1. 1: the connection's own commands name regions; see valkeyrdma_region_key() */
};

/* Connects and waits until the connection is open. `context` NULL: one of its own, which is freed with it. `host` is an
 * IP address or a name, whose resolution may block and is not bounded by the timeout. `options` may be NULL.
 * timeout_ms -1: 5 seconds. Returns NULL on failure, with errno set and the reason in `error`. */
VALKEYRDMA_API struct valkeyrdma *valkeyrdma_connect(struct valkeyrdma_context *context, const char *host, int port,
                                                     const struct valkeyrdma_options *options, int timeout_ms,
                                                     char *error, size_t error_size);
/* The same without waiting. timeout_ms, here at least 1, is the time after which the attempt fails. The connection is
 * reported by valkeyrdma_context_next() when it is open or has failed. NULL: it could not be started. */
VALKEYRDMA_API struct valkeyrdma *valkeyrdma_connect_start(struct valkeyrdma_context *context, const char *host,
                                                           int port, const struct valkeyrdma_options *options,
                                                           int timeout_ms, char *error, size_t error_size);
/* Waits for a connection that valkeyrdma_connect_start() has begun. Returns 0 when it is open, -EAGAIN (timeout_ms 0),
 * -ETIMEDOUT or -EINTR while it is not, or the negative errno of its failure. */
VALKEYRDMA_API int valkeyrdma_connect_finish(struct valkeyrdma *c, int timeout_ms);

/* --- State --- */

enum valkeyrdma_state {
    VALKEYRDMA_OPEN = 1,     /* connected; stays set after the end */
    VALKEYRDMA_READABLE = 2, /* receiving does not wait: there are bytes, or the end, or the failure */
    VALKEYRDMA_WRITABLE = 4, /* sending does not wait: there is space, or the connection has ended */
    VALKEYRDMA_DRAINED = 8,  /* no output is queued in this process */
    VALKEYRDMA_ENDED = 16,   /* closed by the peer, or failed; received bytes may be left */
};
/* A mask of these. Does no work: it is as the last call of the library for the context left it. 0 in a forked child. */
VALKEYRDMA_API int valkeyrdma_state(const struct valkeyrdma *c);
/* 0, or the negative errno of the failure; an orderly end is no failure. */
VALKEYRDMA_API int valkeyrdma_error(const struct valkeyrdma *c);
/* Why the connection failed or ended; "" while it has not. Valid until it is closed. */
VALKEYRDMA_API const char *valkeyrdma_error_text(const struct valkeyrdma *c);
VALKEYRDMA_API struct valkeyrdma_context *valkeyrdma_context_of(const struct valkeyrdma *c);
VALKEYRDMA_API int valkeyrdma_fd(const struct valkeyrdma *c); /* the descriptor of its context */
VALKEYRDMA_API void *valkeyrdma_data(const struct valkeyrdma *c);
VALKEYRDMA_API void valkeyrdma_set_data(struct valkeyrdma *c, void *data);
/* "192.0.2.1:6379", "[2001:db8::1]:6379"; 0, or -ENOTCONN while it is unknown. */
VALKEYRDMA_API int valkeyrdma_address(const struct valkeyrdma *c, int peer, char text[VALKEYRDMA_ADDRESS_MAX]);
/* "device=mlx5_0 qp=… rx=…": for display. */
VALKEYRDMA_API void valkeyrdma_describe(const struct valkeyrdma *c, char *text, size_t size);

/* --- Sending --- */

/* Sends bytes, in order. Copies them into registered memory and starts the transfer before it returns. Returns the
 * number of bytes taken, which is less than `len` only if the time was over. Waits while `send_limit` bytes are queued.
 * -EPIPE: the peer has closed; other errors: valkeyrdma_error(). */
VALKEYRDMA_API ssize_t valkeyrdma_send(struct valkeyrdma *c, const void *bytes, size_t len, int timeout_ms);
/* The same for several pieces of memory, which leave in one message where they fit. */
VALKEYRDMA_API ssize_t valkeyrdma_sendv(struct valkeyrdma *c, const struct iovec *pieces, int count, int timeout_ms);
/* Waits until no output is queued in this process: the device has all of it. 0, -EAGAIN, -ETIMEDOUT, -EINTR, or the
 * failure. */
VALKEYRDMA_API int valkeyrdma_flush(struct valkeyrdma *c, int timeout_ms);
VALKEYRDMA_API size_t valkeyrdma_queued(const struct valkeyrdma *c); /* bytes of output that are not sent yet */

/* --- Receiving --- */

/* Copies received bytes and removes them from the stream. Waits for the first byte only. Returns their number, 0 at the
 * orderly end, or a negative errno. `len` 0 returns 0. */
VALKEYRDMA_API ssize_t valkeyrdma_recv(struct valkeyrdma *c, void *buffer, size_t len, int timeout_ms);
VALKEYRDMA_API ssize_t valkeyrdma_recvv(struct valkeyrdma *c, const struct iovec *pieces, int count, int timeout_ms);
/* Gives access to received bytes in the library's memory, which the peer cannot write. Waits until at least
 * `at_least` bytes are there in one piece (0 counts as 1). *bytes and the returned number describe all that are there;
 * fewer than at_least only if the connection has ended behind them. They stay valid and unchanged, also while other
 * threads use the context, until the next recv, recvv, peek, consume or close of this connection. Meanwhile no
 * further bytes are received; the peer waits when its space is used up. Ask for at_least of more than a few KiB only
 * where the bytes must be contiguous: what does not lie in one piece is copied together. 0 at the orderly end, or a
 * negative errno; -EMSGSIZE: at_least is larger than receive_limit, -ENOMEM: or than the free memory. */
VALKEYRDMA_API ssize_t valkeyrdma_peek(struct valkeyrdma *c, const void **bytes, size_t at_least, int timeout_ms);
/* Removes the first `len` bytes that valkeyrdma_peek() returned. 0 or -EINVAL. */
VALKEYRDMA_API int valkeyrdma_consume(struct valkeyrdma *c, size_t len);
VALKEYRDMA_API size_t valkeyrdma_received(const struct valkeyrdma *c); /* bytes that can be received without waiting */

/* Closes the connection and frees it. Waits for unsent output as described above only if the connection has a context
 * of its own; in another one it is sent while the context is used. NULL is allowed. */
VALKEYRDMA_API void valkeyrdma_close(struct valkeyrdma *c);

/* --- Regions (1.1) ---
 *
 * A region is memory of the program that a server may write (values that the program gets) or read (values that it
 * sets). Register a large arena once: it serves all connections of the context, and items name parts of it. The device
 * pins the pages, which takes between 0.1 and 0.4 seconds a GiB and counts against RLIMIT_MEMLOCK. Align regions to
 * pages, and use huge pages for large ones.
 *
 * The memory of a region is the caller's. It must stay mapped until valkeyrdma_region_free() returns. After that no
 * device writes or reads it: deregistering waits for what is under way, and the key is void. If a device refuses to
 * deregister, all connections of the context on that device end, so that nobody is left who could use the key.
 *
 * Rights
 *   Whoever knows the key can use the whole region with the rights that it was registered with. The library sends the
 *   key to the servers that the program connects to, and to no one else. Bytes travel in clear.
 *
 * Fork
 *   A child must not use the region; with kernels before 5.12 it does not even have its pages. */

struct valkeyrdma_region;
enum valkeyrdma_region_use {
    VALKEYRDMA_REGION_GET = 1, /* servers may write the region. The memory must be writable */
    VALKEYRDMA_REGION_SET = 2, /* servers may read it */
};

/* Registers `length` bytes at `address`, for a mask of uses (0: both). Registers with the devices that the context has
 * opened; with another one when a connection first uses it, and then that connection fails if the device refuses.
 * Returns NULL on failure, with errno set and the reason in `error`: EINVAL, ENOMEM (the limit of locked memory), EPERM
 * (in a forked child), EFAULT. */
VALKEYRDMA_API struct valkeyrdma_region *valkeyrdma_region_register(struct valkeyrdma_context *context, void *address,
                                                                    size_t length, int uses, char *error,
                                                                    size_t error_size);
/* The same for `length` bytes from `offset` on of a DMA buffer, as memory of a GPU. The library duplicates the
 * descriptor. The device reaches the memory directly; this process need not have it mapped, so VALKEYRDMA_CHECK is
 * refused. EOPNOTSUPP: rdma-core or the device cannot do that. */
VALKEYRDMA_API struct valkeyrdma_region *valkeyrdma_region_register_dmabuf(struct valkeyrdma_context *context, int fd,
                                                                           uint64_t offset, size_t length, int uses,
                                                                           char *error, size_t error_size);
/* For a program that sends its own BLOB commands on a connection of the context: the key and the address of the
 * region's first byte, as the commands name them. The connection must have been made with `one_sided`: then it finds
 * replies by completions only, so that a reply proves that everything which the server wrote before is there. Close the
 * connection before memory is used again that a command without a reply has named. 0, -ENOTCONN (not connected),
 * -EINVAL (not one_sided, or of another context), or the errno of the registration. */
VALKEYRDMA_API int valkeyrdma_region_key(struct valkeyrdma_region *region, struct valkeyrdma *c, uint64_t *key,
                                         uint64_t *address);
/* Takes the memory back. Placement clients with unfinished items in the region lose their connection first, and these
 * items end with -ECANCELED. NULL is allowed. Releases nothing in a forked child. */
VALKEYRDMA_API void valkeyrdma_region_free(struct valkeyrdma_region *region);

/* --- Placement clients (1.1) ---
 *
 * A placement client has one connection to one server and sends BLOB.GET, BLOB.SET, EXISTS and DEL on it, pipelined.
 * The server moves the values between its memory and the regions; they never pass through the connection's buffers.
 *
 *     struct valkeyrdma_item items[2] = {
 *         {.key = "a", .key_length = 1, .region = region, .offset = 0, .length = size},
 *         {.key = "b", .key_length = 1, .region = region, .offset = size, .length = size},
 *     };
 *     struct valkeyrdma_batch *batch = valkeyrdma_placement_get(client, items, 2, NULL);
 *     valkeyrdma_batch_wait(batch, -1);
 *     if (items[0].result == 0) use(arena, items[0].value_length);
 *     valkeyrdma_batch_free(batch);
 *
 * When memory may be used again
 *   From submission to completion the items, their keys and their parts of the regions belong to the library. After the
 *   completion of the batch nobody writes or reads there any more, whatever the results are:
 *   - An item with a reply of the server, also an error: the server posts a value's writes before the reply, on the
 *     same queue pair, and has ended its reads. The client notices the reply by a completion, never by looking at
 *     memory, so the bytes are in place.
 *   - An item without a reply (deadline, cancelled, lost connection): the library destroys the queue pair before it
 *     reports the item. The device then drops what still arrives for it, and ibv_destroy_qp() waits for what it is
 *     writing. For the same reason one late item costs the connection and ends the other items on it.
 *   A client that lost its connection connects again only in valkeyrdma_placement_connect().
 *
 * Threads
 *   Any thread may use a client, several at a time; requests leave in the order of their submission. A batch is waited
 *   for and freed by one thread. valkeyrdma_placement_free() must be the last use.
 *
 * Waiting elsewhere
 *   Completed batches make the context's descriptor readable, as connections do: call valkeyrdma_context_process() and
 *   then valkeyrdma_batch_next() until it returns NULL. */

struct valkeyrdma_placement;
struct valkeyrdma_batch;

struct valkeyrdma_placement_options {
    size_t size;             /* sizeof (struct valkeyrdma_placement_options) */
    const char *source_host; /* as in struct valkeyrdma_options */
    const char *username;    /* NULL: "default" */
    const char *password;    /* NULL: no AUTH */
    int database;            /* SELECT, if it is not 0 */
    unsigned in_flight;      /* requests without a reply, at most; further ones wait in the client; 0: 256 */
    void *data;              /* for valkeyrdma_placement_data() */
};

struct valkeyrdma_item {
    const void *key;
    size_t key_length;
    struct valkeyrdma_region *region; /* get and set; ignored by exists and delete, as offset and length */
    size_t offset, length;            /* the part of the region; length at least 1 */
    uint64_t reserved[2];             /* 0 */
    /* Written by the library before the batch completes. */
    int result;
    uint32_t checksum;      /* get: CRC-32C of the value, as the server says */
    uint64_t value_length;  /* get: bytes of the value, at most `length`; the rest of the part is untouched */
    const char *error_text; /* the server's error, or why the connection was lost; NULL: none. Valid until
                               valkeyrdma_batch_free() */
};
/* result:
 *   0                done; exists: the key exists; delete: it did
 *   -ENOENT          no such key; set with VALKEYRDMA_XX: not set
 *   -EEXIST          set with VALKEYRDMA_NX: not set
 *   -EMSGSIZE        get: the value is larger than `length`; nothing was written
 *   -EBADMSG         get with VALKEYRDMA_CHECK: the bytes that arrived do not have the checksum
 *   -EREMOTE         the key is at another node of the cluster: error_text is "MOVED slot host:port" or "ASK …"
 *   -EACCES          the server wants another user or password, or the user lacks the right
 *   -ENOSPC          set: the server's memory is used up (OOM)
 *   -EOPNOTSUPP      the server does not know the command
 *   -EREMOTEIO       another error of the server
 *   -ENOTCONN        there was no connection when the request was to be sent: it was not sent
 *   -ETIMEDOUT, -ECANCELED   the deadline; valkeyrdma_batch_cancel(), or the client or the region was freed
 *   another errno    the connection was lost: a set or a delete may have been executed */

enum valkeyrdma_batch_flags {
    VALKEYRDMA_CHECK = 1,   /* get: compare the bytes in the region with the checksum */
    VALKEYRDMA_NX = 2,      /* set: only if the key does not exist */
    VALKEYRDMA_XX = 4,      /* set: only if it exists */
    VALKEYRDMA_KEEPTTL = 8, /* set: keep the key's time to live */
    VALKEYRDMA_ASKING = 16, /* send ASKING before each request, after an ASK */
};

struct valkeyrdma_batch_options {
    size_t size;       /* sizeof (struct valkeyrdma_batch_options) */
    int timeout_ms;    /* of the whole batch; 0: none */
    int flags;         /* a mask of enum valkeyrdma_batch_flags */
    int64_t expire_ms; /* set: time to live; 0: none */
    void *data;        /* for valkeyrdma_batch_data() */
};

/* A client of the context; it does not connect yet. `options` may be NULL. Returns NULL on failure, with errno set and
 * the reason in `error`. */
VALKEYRDMA_API struct valkeyrdma_placement *valkeyrdma_placement_new(struct valkeyrdma_context *context,
                                                                     const char *host, int port,
                                                                     const struct valkeyrdma_placement_options *options,
                                                                     char *error, size_t error_size);
/* Connects, or connects again after the connection was lost, and waits until the server has accepted user and database.
 * timeout_ms 0 only begins: call again for the result; -1: 5 seconds. Resolving a name may block. Returns 0 when the
 * client is connected (also if it was), -EAGAIN, -EINTR, or the negative errno of the failure; its reason is
 * valkeyrdma_placement_error_text(). Batches may be submitted while it connects. */
VALKEYRDMA_API int valkeyrdma_placement_connect(struct valkeyrdma_placement *client, int timeout_ms);
/* 1: connected; 0: connecting; -ENOTCONN: not connected, or the connection was lost; -EPERM in a forked child. */
VALKEYRDMA_API int valkeyrdma_placement_state(const struct valkeyrdma_placement *client);
/* Why the client is not connected; "" before the first attempt. Valid until valkeyrdma_placement_connect(). */
VALKEYRDMA_API const char *valkeyrdma_placement_error_text(const struct valkeyrdma_placement *client);
VALKEYRDMA_API void *valkeyrdma_placement_data(const struct valkeyrdma_placement *client);
/* Closes the connection. Unfinished items end with -ECANCELED; their batches stay and are freed by the program. NULL is
 * allowed. */
VALKEYRDMA_API void valkeyrdma_placement_free(struct valkeyrdma_placement *client);

/* Submit a batch of at least one item. Never wait. `options` may be NULL. Return NULL with errno, and have touched
 * nothing: EINVAL (an item lies outside its region, an unknown flag, a key without bytes), EACCES (a region without the
 * use), EOPNOTSUPP (VALKEYRDMA_CHECK and a DMA buffer), EPERM (in a forked child). */
VALKEYRDMA_API struct valkeyrdma_batch *valkeyrdma_placement_get(struct valkeyrdma_placement *client,
                                                                 struct valkeyrdma_item *items, size_t count,
                                                                 const struct valkeyrdma_batch_options *options);
VALKEYRDMA_API struct valkeyrdma_batch *valkeyrdma_placement_set(struct valkeyrdma_placement *client,
                                                                 struct valkeyrdma_item *items, size_t count,
                                                                 const struct valkeyrdma_batch_options *options);
VALKEYRDMA_API struct valkeyrdma_batch *valkeyrdma_placement_exists(struct valkeyrdma_placement *client,
                                                                    struct valkeyrdma_item *items, size_t count,
                                                                    const struct valkeyrdma_batch_options *options);
VALKEYRDMA_API struct valkeyrdma_batch *valkeyrdma_placement_delete(struct valkeyrdma_placement *client,
                                                                    struct valkeyrdma_item *items, size_t count,
                                                                    const struct valkeyrdma_batch_options *options);

/* Waits until the batch is complete, and takes it from valkeyrdma_batch_next(). 0, -EAGAIN, -ETIMEDOUT, -EINTR: this
 * says nothing of the items; after the last three it still runs. */
VALKEYRDMA_API int valkeyrdma_batch_wait(struct valkeyrdma_batch *batch, int timeout_ms);
/* The next complete batch of the context that no one has waited for; NULL: none. */
VALKEYRDMA_API struct valkeyrdma_batch *valkeyrdma_batch_next(struct valkeyrdma_context *context);
/* Ends a batch: if requests of it are at the server, by closing the connection. The batch is complete afterwards. */
VALKEYRDMA_API void valkeyrdma_batch_cancel(struct valkeyrdma_batch *batch);
/* The number of items whose result is 0, or -EINPROGRESS. */
VALKEYRDMA_API ssize_t valkeyrdma_batch_succeeded(const struct valkeyrdma_batch *batch);
VALKEYRDMA_API void *valkeyrdma_batch_data(const struct valkeyrdma_batch *batch);
/* Frees the batch, not the items. One that is not complete is cancelled before. NULL is allowed. */
VALKEYRDMA_API void valkeyrdma_batch_free(struct valkeyrdma_batch *batch);

/* CRC-32C (Castagnoli), as servers compute it: 0xe3069283 for "123456789". */
VALKEYRDMA_API uint32_t valkeyrdma_checksum(const void *bytes, size_t length);

#ifdef __cplusplus
}
#endif
#endif
