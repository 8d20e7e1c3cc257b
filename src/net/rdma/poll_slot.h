/* poll_slot.h: the memory of polled words (polled.h) of a device context. Each slot is a page with its own memory
 * region, so that no peer reaches a neighbour's slot.
 *
 * A slot is registered when a connection agrees on the feature. Once a peer knows its key, no other connection gets it
 * before the loop's tidying has registered it again. Slots are never registered while messages flow. */
#pragma once
#include "net/rdma/memory.h"

struct rdma_connection;

enum { RDMA_POLLED_MAX = 64 }; /* connections of a device context that are polled at a time */

struct rdma_poll_slot {
    _Atomic uint64_t *word;      /* as wire.h lays it out */
    struct ibv_mr *mr;           /* NULL: not registered */
    struct rdma_poll_slot *next; /* in the list of ready or stale slots */
};

/* One element of the array that the poller scans: all it needs for a connection without new messages. */
struct rdma_poll_entry {
    const _Atomic uint64_t *word;
    uint64_t last; /* the last value read */
    struct rdma_connection *conn;
};

/* State of a device. */
struct rdma_polls {
    struct rdma_memory *memory; /* of the device context */
    char *pages;                /* NULL: not needed yet */
    struct rdma_poll_slot slots[RDMA_POLLED_MAX];
    struct rdma_poll_slot *ready;                    /* registered, and no peer knows the key */
    struct rdma_poll_slot *stale;                    /* given back: a peer still knows the key */
    int made;                                        /* slots that were ever registered: the first ones */
    int usable;                                      /* slots in use or ready */
    size_t users;                                    /* connections that agreed on the feature */
    struct rdma_poll_entry entries[RDMA_POLLED_MAX]; /* the first `count` */
    int count;
};

void rdma_polls_add(struct rdma_polls *polls); /* adds a slot if another connection could use it */
struct rdma_poll_slot *rdma_poll_slot_take(struct rdma_polls *polls); /* NULL: none is ready */
/* The peer knows its key, so no other connection gets it before it is registered again. */
void rdma_poll_slot_give(struct rdma_polls *polls, struct rdma_poll_slot *slot);
/* Registers slots again whose key a peer knew, and frees those that no connection can need. */
void rdma_polls_tidy(struct rdma_polls *polls);
void rdma_polls_free(struct rdma_polls *polls); /* after the last connection */
