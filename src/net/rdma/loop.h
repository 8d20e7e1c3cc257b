/* loop.h: the state of the transport in one event loop: its device contexts, connections and listeners, its counters,
 * and its channel of the connection manager.
 *
 * A thread that owns connections runs a loop. Everything in struct rdma_loop belongs to that thread, except the members
 * that another thread reads to sum the counters. The process keeps a list of all loops, under a lock.
 *
 * Tidying
 *   Work that can wait is done by a timer, in portions: buffers that were given back, memory that is not needed any
 *   more, receives that the device did not accept. */
#pragma once
#include "net/event_loop.h"
#include "net/input_buffer.h"
#include "net/rdma/settings.h"

struct rdma_event_channel;
struct transport;

struct rdma_loop {
    struct event_attachment attachment;
    struct event_loop *loop;
    const struct transport *transport;  /* transport_rdma */
    struct rdma_event_channel *channel; /* NULL: not opened */
    struct event_io channel_io;
    struct list devices, connections, listeners;
    struct input_shared input; /* where the connections receive */
    struct list untrusted;     /* connections of untrusted peers, the oldest first */
    struct list ready;         /* connections with something to report to their owners */
    struct event_timer tick;   /* keepalive, idle memory; runs while there are connections */
    struct event_timer tidy;   /* freed memory, receives that could not be posted; runs while there is work */
    uint64_t ticked_us, ticked_before_us; /* the last tick, and the one before it */
    uint64_t aged_us;                     /* when memory was last aged */
    uint64_t tidy_from_us;                /* tidying resumes at this time, not earlier */
    uint64_t full_errors_second;          /* the second in which `full_errors` were counted */
    unsigned full_errors;                 /* connections accepted only to send them the error "server full" */
    struct rdma_stats stats;
    struct list_link registry_link; /* in the process's list of loops, for rdma_stats() */
    /* For a loop of another thread (rdma_join), which copies the counters on request. Under the registry lock. */
    bool joined, asked, trim;
    struct event_post show_stats;
    struct rdma_stats shown;
};

struct rdma_loop *rdma_loop_new(struct event_loop *loop, const struct transport *transport);
void rdma_loop_free(struct rdma_loop *loop); /* after its connections and listeners; frees its device contexts */
/* Another thread will run the loop: rdma_loop_find() finds its state from any thread from now on. */
void rdma_loop_joined(struct rdma_loop *loop);
struct rdma_loop *rdma_loop_find(const struct event_loop *loop); /* NULL: it has no state */
/* Calls `visit` for each other loop of the process, under the lock of their list. */
void rdma_loops_visit_others(const struct rdma_loop *self, void (*visit)(struct rdma_loop *other, void *context),
                             void *context);
void rdma_loops_sum(struct rdma_stats *sum);      /* the counters of the process */
void rdma_loops_trim(struct rdma_loop *self);     /* frees unused memory of all loops, of this one before it returns */
void rdma_loop_tidy_soon(struct rdma_loop *loop); /* there is work for the loop's tidying */
