/* stall.c: what sending waits for: space in the peer's buffer, and send memory. See send.h. */
#include "net/rdma/send.h"
#include "lib/system/clock.h"
#include <endian.h>

enum {
    STALL_WAKE_US = 1000, /* a peer whose buffer is full for this long gets its first Keepalive */
    STALL_WAKE_MOST_US = 250 * 1000,
};

/* Waits. A wait begins and ends rarely, so these functions read the clock: with the loop's cached time, half of the
 * waits would seem to take no time. */

static uint64_t waited(struct rdma_connection *c, uint64_t since_us) {
    uint64_t now = clock_monotonic_us(), us = now > since_us ? now - since_us : 0;
    if (rdma_hooks.stalled) rdma_hooks.stalled(&c->conn, us);
    return us;
}

/* A client of the base protocol that waits for our buffer inside its write polls its completion queue there, and takes
 * the completions of our replies with it. When these have filled its own buffer, no further event of ours wakes it, and
 * it may sleep with all of them unread. A Keepalive is an event. It is repeated at growing intervals while the peer
 * does not announce a buffer; a peer that is only slow ignores it. */
static uint64_t wake_stalled(struct event_timer *timer) {
    struct rdma_connection *c = container_of(timer, struct rdma_connection, timer);
    if (!c->send.stalled || c->conn.state != CONN_OPEN || c->end_pending || c->finished) return 0;
    rdma_send_keepalive(c);
    uint64_t stalled_us = clock_monotonic_us() - c->send.stalled_us;
    return stalled_us < STALL_WAKE_MOST_US ? stalled_us + STALL_WAKE_US : STALL_WAKE_MOST_US;
}

void rdma_stall_begin(struct rdma_connection *c) {
    if (c->send.stalled) return;
    c->send.stalled = true;
    c->send.stalled_us = 0;
    if (!c->send.peer_size) return; /* it has not announced its first buffer yet */
    c->send.stalled_us = clock_monotonic_us();
    c->owner->stats.stalls++;
    if (!c->send.to_ring && c->conn.state == CONN_OPEN && !c->flushed)
        event_timer_set(c->conn.loop, &c->timer, STALL_WAKE_US, wake_stalled);
}

void rdma_stall_end(struct rdma_connection *c) {
    if (c->send.stalled && c->send.stalled_us) c->owner->stats.stall_us += waited(c, c->send.stalled_us);
    c->send.stalled = false;
    c->send.stalled_us = 0;
}

void rdma_starved_begin(struct rdma_connection *c) {
    if (list_is_linked(&c->send.starved_link)) return;
    list_append(&c->qp.device->starved, &c->send.starved_link);
    c->send.starved_us = clock_monotonic_us();
    c->owner->stats.memory_waits++;
}

void rdma_starved_end(struct rdma_connection *c) {
    if (!list_is_linked(&c->send.starved_link)) return;
    list_remove(&c->qp.device->starved, &c->send.starved_link);
    c->owner->stats.memory_wait_us += waited(c, c->send.starved_us);
}

/* Connections whose peers' buffers are full hold send memory that others could use: their output moves to ordinary
 * memory. */
void rdma_send_relieve(struct rdma_device *device) {
    list_each_entry(&device->owner->connections, struct rdma_connection, link, c) {
        if (c->qp.device == device && c->send.stalled) rdma_send_unregister(c);
    }
}

/* Resumes the connections that waited for send memory. */
void rdma_send_feed(struct rdma_device *device) {
    for (size_t left = device->starved.len; left > 0 && device->starved.len > 0 && device->memory.free_chunks; left--) {
        struct rdma_connection *c =
            container_of(list_first(&device->starved), struct rdma_connection, send.starved_link);
        rdma_starved_end(c);
        rdma_send_pump(c);
    }
}
