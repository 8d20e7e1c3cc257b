/* library.h: what the parts of libvalkeyrdma share. valkeyrdma.h describes what they do.
 *
 *   verbs.c       loads rdma-core
 *   context.c     contexts: the lock, waiting, fork
 *   connection.c  connecting, sending, receiving
 *   region.c      memory of the program that servers read and write
 *   placement.c   the client for the BLOB commands, on a connection of its own
 *
 * How threads wait
 *   A context is an event loop (net/event_loop.h) and a lock. Whoever calls the library takes the lock, works on the
 *   connection, and turns the loop where it must. A thread that has to wait becomes the leader if there is none: it
 *   arms the loop, releases the lock, and waits for the loop's descriptor. The other threads that wait sleep on a
 *   descriptor of their own. A turn that handled something wakes all of them, and the leader wakes one when it leaves.
 *   So sending never waits for a thread that waits to receive. The leader has a descriptor of its own, too: a wake-up
 *   of the loop (event_loop_wake) may be consumed by the next turn of another thread before the leader has run.
 *
 * Fork
 *   Contexts carry the generation of the process that made them, and every function checks it before it touches the
 *   lock or the loop. fork() takes the locks of all contexts first, so that no lock of the transport is held in the
 *   child, which may create contexts of its own. */
#pragma once
#include "client/valkeyrdma.h"
#include "lib/structures/linked_list.h"
#include "net/connection.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

struct addrinfo;

struct valkeyrdma_context {
    struct list_link link; /* in the process's list */
    unsigned generation;
    pthread_mutex_t lock;
    _Atomic int contenders; /* threads that wait for the lock */
    struct event_loop *loop;
    int timer_fd;
    struct event_io timer_io;
    uint64_t timer_due; /* of timer_fd; 0: not set */
    bool leading;       /* a thread waits for the loop's descriptor, or is about to */
    int leader_fd;      /* eventfd: ends its wait */
    struct list waiters;
    uint64_t turns;
    _Atomic bool interrupted;         /* valkeyrdma_context_wake() */
    struct list connections, changed; /* struct valkeyrdma */
    struct list regions;              /* struct valkeyrdma_region */
    struct list placements;           /* struct valkeyrdma_placement */
    struct list complete;             /* struct valkeyrdma_batch that no one has waited for or taken */
};

struct valkeyrdma {
    struct list_link link, changed_link;
    struct valkeyrdma_context *context;
    struct connection *conn;
    bool own_context, connected, ended, one_sided;
    /* Of a placement client: called in a turn at each change, in place of valkeyrdma_context_next(). It may end the
     * connection. */
    void (*watch)(struct valkeyrdma *c);
    struct valkeyrdma_placement *watcher;
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
/* Wakes the threads that wait for something that did not happen in a turn. */
void context_notify(struct valkeyrdma_context *context);

/* A connection that is not begun, with its addresses resolved; needs no lock. NULL: errno, and text in `error`. */
struct valkeyrdma *connection_new(const char *host, int port, const struct valkeyrdma_options *options, int timeout_ms,
                                  char *error, size_t error_size);
/* Under the lock. False: there is no address to try, and the caller frees it. */
bool connection_begin(struct valkeyrdma *c, struct valkeyrdma_context *context);
void connection_orphan(struct valkeyrdma *c); /* closes and frees it */
void connection_free(struct valkeyrdma *c);   /* that has no transport's connection */

/* region.c, under the lock. The key and the address of the region's first byte for the device of a connection. 0, or
 * -errno with the reason. */
int region_reach(struct valkeyrdma_region *region, const struct connection *conn, uint64_t *key, uint64_t *address,
                 char *error, size_t error_size);
/* Registers all regions of the context with the device of a connection. 0, or -errno with the reason. */
int regions_reach(struct valkeyrdma_context *context, const struct connection *conn, char *error, size_t error_size);
void region_destroy(struct valkeyrdma_region *region);

struct valkeyrdma_region {
    struct list_link link;
    struct valkeyrdma_context *context;
    char *address; /* NULL: a DMA buffer */
    int fd;        /* of the DMA buffer; -1 */
    uint64_t offset;
    size_t length;
    int uses;
    struct list keys; /* struct region_key */
};

/* placement.c, under the lock. */
void placement_let_go(struct valkeyrdma_region *region); /* ends what uses the region */
void placements_destroy(struct valkeyrdma_context *context);

static inline void fail_text(char *error, size_t error_size, const char *text) {
    if (error && error_size) snprintf(error, error_size, "%s", text);
}
