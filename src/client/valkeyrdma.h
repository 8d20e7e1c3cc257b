/* valkeyrdma.h: libvalkeyrdma, byte streams to a Valkey server over RDMA.
 *
 * The library connects to the RDMA listener of a Valkey server ("Valkey over RDMA", docs/rdma-protocol.md) and carries
 * bytes in both directions, as a TCP connection does. It knows nothing of commands and replies: a client library puts
 * it in the place of its sockets. It uses the transport of valkey-server and valkey-cli.
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
 * valkeyrdma_context_next() has connections to return, otherwise 0; or -EPERM in a forked child. */
VALKEYRDMA_API int valkeyrdma_context_process(struct valkeyrdma_context *context);
/* The same, but waits until there is a connection to return. Polls the device first, as "busy-poll-us" says, and is
 * the fastest way to serve many connections. Returns 1, -ETIMEDOUT (-EAGAIN with timeout_ms 0), -EINTR or -EPERM. */
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

#ifdef __cplusplus
}
#endif
#endif
