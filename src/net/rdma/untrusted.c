/* untrusted.c: the limit on receive buffers of peers that are not trusted yet (rdma_settings.max_untrusted).
 *
 * The limit is in bytes, for the process. When a new connection would exceed it, the oldest connection that has been
 * untrusted for longer than rdma_settings.trust_timeout_ms is closed. Its age counts, not its idle time: otherwise a
 * peer could stay by sending requests that are refused. A loop closes only its own connections. A loop without a
 * connection that is old enough sets `asked`, and the other loops check theirs at their next tick.
 *
 * Rejected: a timeout that always runs. Pools of connections that authenticate at their first use are common, and do
 * no harm below the limit. */
#include "net/rdma/untrusted.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/must.h"
#include "net/rdma/lifetime.h"
#include "net/rdma/size.h"
#include <stdatomic.h>

static _Atomic uint64_t untrusted; /* bytes, of the process */
static _Atomic bool asked;         /* a loop has no connection to close and asks the others to close one */

uint64_t rdma_untrusted_bytes(void) {
    return untrusted;
}

static bool claim(uint32_t size) {
    uint64_t bound = rdma_settings.max_untrusted;
    if (atomic_fetch_add(&untrusted, size) + size <= bound || !bound) return true;
    atomic_fetch_sub(&untrusted, size);
    return false;
}

/* There may be thousands. */
static void log_closed(const struct rdma_connection *c, uint64_t timeout_us) {
    static _Thread_local struct log_limit limit = {.interval_us = 1000000};
    char name[RDMA_NAME_MAX];
    log_limited(&limit, LOG_LEVEL_WARNING,
                "RDMA: closed %s, which has not authenticated in %llu ms, for another client "
                "(rdma-max-unauthenticated-memory); %llu so far",
                rdma_connection_name(c, name), (unsigned long long)timeout_us / 1000,
                (unsigned long long)c->owner->stats.untrusted_closed + 1);
}

/* Closes the loop's oldest untrusted connection if its time is over. */
static bool expire(struct rdma_loop *owner) {
    uint64_t timeout_us = (uint64_t)rdma_settings.trust_timeout_ms * 1000;
    if (!timeout_us || !owner->untrusted.len) return false;
    struct rdma_connection *c = NULL;
    list_each_entry(&owner->untrusted, struct rdma_connection, untrusted.link, candidate) {
        if (candidate->end_pending) continue; /* its buffer comes back by itself */
        c = candidate;
        break;
    }
    if (!c || clock_monotonic_us() - c->connecting.began_us < timeout_us) return false;
    log_closed(c, timeout_us);
    owner->stats.untrusted_closed++;
    rdma_untrusted_leave(c);
    rdma_connection_failed(c, 0, "it did not authenticate in time");
    return true;
}

bool rdma_untrusted_claim(struct rdma_loop *owner, uint32_t size) {
    while (!claim(size)) {
        if (expire(owner)) continue;
        asked = true;
        return false;
    }
    return true;
}

static void rdma_untrusted_unclaim(uint32_t size) {
    uint64_t before = atomic_fetch_sub(&untrusted, size);
    must_within(size, before);
}

void rdma_untrusted_enter(struct rdma_connection *c, uint32_t claimed) {
    c->untrusted.bytes = claimed;
    c->owner->stats.untrusted_bytes += claimed;
    list_append(&c->owner->untrusted, &c->untrusted.link);
}

void rdma_untrusted_leave(struct rdma_connection *c) {
    if (!list_is_linked(&c->untrusted.link)) return;
    list_remove(&c->owner->untrusted, &c->untrusted.link);
    c->owner->stats.untrusted_bytes -= c->untrusted.bytes;
    rdma_untrusted_unclaim(c->untrusted.bytes);
}

void rdma_untrusted_tick(struct rdma_loop *owner) {
    if (!asked) return;
    bool available = untrusted + rdma_receive_first_size(true) <= rdma_settings.max_untrusted;
    if (available || expire(owner)) asked = false;
}
