/* library.h: what the parts of libvalkeyrdma share. valkeyrdma.h describes what they do.
 *
 *   verbs.c       loads rdma-core
 *   context.c     contexts: the lock, waiting, fork
 *   connection.c  connecting, sending, receiving
 *
 * How threads wait
 *   A context is an event loop (net/event_loop.h) and a lock. Whoever calls the library takes the lock, works on the
 *   connection, and turns the loop where it must. A thread that has to wait becomes the leader if there is none: it
 * arms the loop, releases the lock, and waits for the loop's descriptor. The other threads that wait sleep on a
 * descriptor of their own. A turn that handled something wakes all of them, and the leader wakes one when it leaves. So
 * sending never waits for a thread that waits to receive.
 *
 * Fork
 *   Contexts carry the generation of the process that made them, and every function checks it before it touches the
 *   lock or the loop. fork() takes the locks of all contexts first, so that no lock of the transport is held in the
 *   child, which may create contexts of its own. */
#ifndef CLIENT_LIBRARY_H
#define CLIENT_LIBRARY_H
#include "client/valkeyrdma.h"
#include "lib/structures/linked_list.h"
#include "lib/system/biased_lock.h"
#include "net/connection.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

struct addrinfo;

struct valkeyrdma_context {
    struct list_link link; /* in the process's list */
    unsigned generation;
    struct biased_lock lock;
    struct event_loop *loop;
    int timer_fd;
    struct event_io timer_io;
    uint64_t timer_due; /* of timer_fd; 0: not set */
    bool leading;       /* a thread waits for the loop's descriptor, or is about to */
    struct list waiters;
    uint64_t turns;
    _Atomic bool interrupted;         /* valkeyrdma_context_wake() */
    struct list connections, changed; /* struct valkeyrdma */
};

struct valkeyrdma {
    struct list_link link, changed_link;
    struct valkeyrdma_context *context;
    struct connection *conn;
    bool own_context, connected, ended;
    bool peeked;         /* reading is paused: peek() has shown bytes */
    uint64_t seen_turns; /* of the context when receiving last found nothing */
    size_t send_limit, receive_limit;
    int error; /* errno of the failure, 0: an orderly end */
    char error_text[VALKEYRDMA_ERROR_MAX];
    void *data;
    /* While it is connecting: addresses that are left to try. */
    struct addrinfo *addresses, *next_address;
    char *source_host;
    int port;
    uint64_t deadline_us;
};

/* False: the context belongs to the parent process. Otherwise takes the lock. */
bool context_enter(struct valkeyrdma_context *context);
void context_leave(struct valkeyrdma_context *context);
bool context_is_ours(const struct valkeyrdma_context *context); /* of this process */
/* Under the lock. */
void context_turn(struct valkeyrdma_context *context); /* handles what is pending */
/* Waits until reached() is true. 0, -EAGAIN, -ETIMEDOUT or -EINTR; timeout_ms as in valkeyrdma.h. The lock is released
 * meanwhile. */
int context_wait(struct valkeyrdma_context *context, bool (*reached)(const void *argument), const void *argument,
                 int timeout_ms);
/* Runs the loop until all connections of the transport are gone, for `limit_us` at most. */
void context_finish(struct valkeyrdma_context *context, uint64_t limit_us);
void connection_orphan(struct valkeyrdma *c); /* closes it, with its context */

static inline void fail_text(char *error, size_t error_size, const char *text) {
    if (error && error_size) snprintf(error, error_size, "%s", text);
}
#endif
