/* placement.h: direct placement: transfers between a blob of this process and memory that the peer of a connection has
 * registered with its device (docs/direct-placement.md).
 *
 * A placement is an item of a connection's output. It is carried out behind all bytes that were written before it, and
 * before those that are written after it: a reply that is written next proves to the peer that the bytes of a
 * placement towards it have arrived. Its bytes are no part of the stream: they need no space in the peer's receive
 * buffer, and conn_pending() does not count them.
 *
 * The peer chooses addresses, lengths and keys, and its device checks them: they need no check here. What the device
 * refuses ends the connection.
 *
 * The blob is held until the device cannot touch it any more: the transfers have completed, or the queue pair is
 * destroyed. Nothing waits for that; `ended` reports it. So the owner of a value may change, replace or delete it at
 * any time (blob_is_shared() is true meanwhile), and a peer that neither dies nor lets a transfer complete keeps the
 * blob: the owner of the connection bounds that, and closes the connection. */
#pragma once
#include "lib/structures/linked_list.h"
#include "net/connection.h"
#include <stdint.h>

/* A range of the peer's memory. */
struct placement_range {
    uint64_t address, length;
    uint32_t rkey;
};

/* The owner allocates it and fills the first part. From output_place() until `ended` it belongs to the output. */
struct placement {
    struct blob *blob; /* the owner's reference: it releases it in `ended` or later */
    bool from_peer;    /* the peer's memory is read into the blob; else it is written from the blob */
    uint32_t count;
    const struct placement_range *ranges; /* filled, or read, one after the other; blob->len bytes in total at most */
    /* Called once. error 0: all bytes are transferred; else a negative errno: -ECANCELED: dropped with the connection's
     * output; -ECONNRESET: the connection ended; -EOPNOTSUPP: the peer allows no READs; -ENOBUFS: the blob is not in
     * registered memory. After an error the blob's content is undefined if `from_peer`. It is called on the thread of
     * the connection, or on that of its user, from anywhere: it must not use the connection. */
    void (*ended)(struct placement *placement, int error);
    /* The rest is the transport's. */
    struct list_link link;
    uint64_t position; /* in the stream */
    size_t done;       /* bytes that are posted */
    uint32_t range;    /* that is next, … */
    uint64_t in_range; /* … and the bytes of it that are posted */
    uint32_t first_seq, last_seq;
    bool posted; /* some of it is: the numbers are valid */
    int error;
};

/* Whether placements reach the peer: the connection is RDMA, without TLS, on this thread or another. */
bool conn_places(const struct connection *conn);
/* Takes the placement over. An output that cannot carry it out ends it at once (-ECANCELED). */
void output_place(struct output *out, struct placement *placement);
