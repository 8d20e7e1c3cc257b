/* rdma_receive.c: the receiving half of the data path: what the peer has written is shown in place. See
 * rdma_connection.h for the shape. */
#include "net/rdma_connection.h"
#include "lib/clock.h"
#include "lib/memory.h"
#include <string.h>

enum {
    SIDE_STEP = 4 * 1024,
    GROW_FACTOR = 4,
    GROW_BELOW_US =
        500, /* a buffer that is full in less was too small: the peer waits a round trip for each, some 10 us */
    GROW_RING_BELOW_US = 100, /* a ring's peer does not wait as long as a quarter of it takes longer than a round trip;
                                 and small ones stay in the caches together */
    SHRINK_ABOVE_US = 500 * 1000, /* one that takes longer than this is larger than it needs to be */
};

/* The size of the buffer */

static uint32_t whole_pages(uint32_t size, uint32_t least, uint32_t most) {
    enum { PAGE = 4096 };
    if (size < least) size = least;
    if (size > most) size = most;
    return (size + PAGE - 1) / PAGE * PAGE;
}

static uint32_t largest_size(void) {
    return whole_pages(rdma_settings.rx_size, RDMA_RX_SIZE_MIN, RDMA_RX_SIZE_MAX);
}

uint32_t rdma_receive_first_size(bool passive) {
    uint32_t largest = largest_size();
    return passive && rdma_settings.rx_initial ? whole_pages(rdma_settings.rx_initial, RDMA_RX_INITIAL_MIN, largest)
                                               : largest;
}

bool rdma_receive_allocate(struct rdma_connection *c) {
    c->rx_least = rdma_receive_first_size(c->passive);
    c->rx = rdma_rx_take(&c->device->memory, c->rx_least);
    return c->rx != NULL;
}

/* The steps are those from the first size on, so that there are few different sizes in use and each has its pool. */
static uint32_t step_below(const struct rdma_connection *c) {
    uint32_t size = c->rx_least;
    while (size * GROW_FACTOR < c->rx->size) size *= GROW_FACTOR;
    return size;
}

uint32_t rdma_receive_next_size(const struct rdma_connection *c, uint64_t bytes, uint64_t took_us) {
    uint32_t size = c->rx->size, most = largest_size();
    if (!c->conn.trusted) return size < c->rx_least ? size : c->rx_least;
    uint64_t fill_us = bytes ? took_us * size / bytes : UINT64_MAX;
    bool quick = fill_us < (c->ring.in ? GROW_RING_BELOW_US : GROW_BELOW_US) || c->conn.sink_len >= size;
    if (size < most && quick) {
        do size = size > most / GROW_FACTOR ? most : size * GROW_FACTOR;
        while (size < most && size < c->conn.sink_len);
    } else if (size > c->rx_least && !quick && (fill_us > SHRINK_ABOVE_US || rdma_memory_is_short()))
        size = step_below(c);
    return size;
}

struct rdma_rx *rdma_receive_take_other(struct rdma_connection *c, uint32_t size) {
    bool grow = size > c->rx->size;
    struct rdma_rx *rx = grow ? rdma_rx_take_to_grow(&c->device->memory, size) : rdma_rx_take(&c->device->memory, size);
    if (rx) *(grow ? &c->owner->stats.grown : &c->owner->stats.shrunk) += 1;
    return rx;
}

bool rdma_receive_switch(struct rdma_connection *c, uint32_t size) {
    struct rdma_rx *rx = rdma_receive_take_other(c, size);
    if (!rx) return false;
    rdma_rx_give(&c->device->memory, c->rx);
    c->rx = rx;
    return true;
}

void rdma_receive_begin(struct rdma_connection *c) {
    c->received = c->taken = 0;
    c->room = c->rx->size;
    c->rx_since_us = clock_mono();
    c->rx->told = true;
    rdma_control_announce(c);
}

/* Showing what arrived */

/* Makes room for `more` bytes behind those shown from the side buffer. */
static void side_make_room(struct rdma_connection *c, size_t more) {
    struct connection *conn = &c->conn;
    size_t at = (size_t)(conn->in - c->side);
    if (c->side_size - at - conn->in_len >= more) return;
    if (c->side_size >= conn->in_len + more && at >= conn->in_len) {
        memcpy(c->side, conn->in, conn->in_len);
        conn->in = c->side;
        return;
    }
    char *grown = mem_alloc_usable((conn->in_len + more) * 2, &c->side_size);
    if (conn->in_len) memcpy(grown, conn->in, conn->in_len);
    mem_free(c->side);
    conn->in = c->side = grown;
}

void rdma_receive_show(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    size_t there = c->received - c->taken;
    if (conn->sink) {
        size_t part = there < conn->sink_len ? there : conn->sink_len;
        memcpy(conn->sink, c->rx->data + c->taken, part);
        c->taken += (uint32_t)part;
        conn->sink_len -= part;
        conn->sink = conn->sink_len ? conn->sink + part : NULL;
        there -= part;
        if (there == 0) return;
    }
    if (c->in_side) {
        size_t part = conn->in_len > SIDE_STEP ? conn->in_len : SIDE_STEP;
        if (part > there || c->copies_in) part = there;
        side_make_room(c, part);
        memcpy(c->side + (conn->in - c->side) + conn->in_len, c->rx->data + c->taken, part);
        c->side_from_rx += part;
        if (c->ring.in) { /* what is kept to come back to is not free for the peer */
            size_t most = c->rx->size / 4;
            c->side_from_rx = part < most ? part : most;
        }
        there = part;
    } else if (conn->in_len == 0)
        conn->in = c->rx->data + c->taken;
    c->taken += (uint32_t)there;
    conn->in_len += there;
}

bool rdma_may_receive(const struct rdma_connection *c) {
    return c->conn.state == CONN_OPEN && !c->conn.reading_paused && !c->showing &&
           (c->conn.sink || c->conn.in_len < c->conn.in_limit);
}

void rdma_receive_move_aside(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    c->side = mem_alloc_usable(conn->in_len + SIDE_STEP, &c->side_size);
    memcpy(c->side, conn->in, conn->in_len);
    conn->in = c->side;
    c->in_side = true;
}

void rdma_receive_settle(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    if (!c->rx || c->showing) return;
    if (c->in_side && !c->copies_in && conn->in_len <= c->side_from_rx) {
        conn->in = c->rx->data + c->taken - conn->in_len;
        mem_free(c->side);
        c->side = NULL;
        c->in_side = false;
        c->side_size = c->side_from_rx = 0;
    }
    if (c->ring.in) {
        bool maybe_credit = c->room <= c->rx->size - c->rx->size / 4;
        if (maybe_credit || c->taken == c->rx->size || c->ring.next) rdma_ring_settle(c);
        return;
    }
    if (c->taken < c->rx->size || !rdma_may_receive(c) || c->end_pending) return;
    if (conn->in_len && !c->in_side) rdma_receive_move_aside(c);
    c->side_from_rx = 0; /* nothing in the buffer is shown any more */
    uint32_t size = rdma_receive_next_size(c, c->rx->size, clock_mono() - c->rx_since_us);
    if (size != c->rx->size) rdma_receive_switch(c, size);
    rdma_receive_begin(c);
}

void rdma_receive_consume(struct rdma_connection *c, size_t len) {
    struct connection *conn = &c->conn;
    conn->in += len;
    conn->in_len -= len;
    /* What is shown stays where it is until the caller is done. */
    if (c->showing || !c->rx) return;
    if (c->taken == c->rx->size || c->taken < c->received || rdma_ring_wants_turn(c)) rdma_connection_ready(c);
}

void rdma_receive_data(struct rdma_connection *c, uint32_t len) {
    if (!c->registered)
        rdma_violation(c, "data before our buffer was announced");
    else if (len == 0)
        rdma_violation(c, "an immediate of zero bytes");
    else if (len > c->room)
        rdma_violation(c, "a message of %u bytes where %u are left", len, c->room);
    else {
        c->room -= len;
        /* The peer's bytes are in nobody's cache or in another core's: they are on their way here while the rest of the
         * batch of completions is looked at. */
        const char *arrived = c->rx->data + c->received;
        __builtin_prefetch(arrived);
        if (len > 64) __builtin_prefetch(arrived + 64);
        if (len <= c->rx->size - c->received && !c->ring.next)
            c->received += len;
        else
            rdma_ring_arrived(c, len);
        c->conn.bytes_in += len;
        c->owner->stats.bytes_in += len;
        c->owner->stats.messages_in++;
        if (!c->lingering) rdma_connection_ready(c);
    }
}

void rdma_receive_release(struct rdma_connection *c) {
    rdma_untrusted_leave(c);
    rdma_ring_release(c);
    if (c->rx) rdma_rx_give(&c->device->memory, c->rx);
    c->rx = NULL;
    mem_free(c->side);
    c->side = NULL;
}
