/* InfiniBand orders the execution of WRITEs, and completions order memory; the moments at which memory shows the bytes
 * of WRITEs are not ordered by anything else. Cards with adaptive routing, and buses with relaxed ordering, make use of
 * it. This fault does, too: it withholds some of the cache lines of a WRITE, so that later WRITEs of the same queue
 * pair show before them. Withheld lines show, in any order, when their time has come, or before the next completion at
 * the peer: of WRITE with immediate, of SEND, of READ and atomics. Each line shows at once and whole.
 *
 * Lines are shown by the poster's thread or by the progress thread, under the queue pair's lock. Keys are checked again
 * then: where the peer has withdrawn its region meanwhile, the bytes are gone, as with a packet that was on its way. */
#include "scatter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "mr.h"
#include "stats.h"

#define LINE 64

struct late_line {
    struct link link;
    uint64_t addr;
    uint32_t rkey, len;
    uint8_t bytes[LINE];
};

static uint32_t chance(struct qp *qp) {
    qp->late_seed = qp->late_seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(qp->late_seed >> 33);
}

static void show(struct qp *qp, struct late_line *line) {
    const struct route *r = &qp->route;
    uint64_t at;
    list_remove(&line->link);
    bool there = r->peer && !peer_is_dead(r->peer) && load_acquire(&r->rqp->sender) == qp->token;
    const struct mr_slot *slot =
        there ? mr_check(r->mrs, r->mr_slots, line->rkey, line->addr, line->len, r->pd, IBV_ACCESS_REMOTE_WRITE, &at)
              : NULL;
    if (slot) copy_to_peer(r->peer, slot, at, line->bytes, line->len);
    free(line);
}

void scatter_show_all(struct qp *qp) {
    while (!list_empty(&qp->late)) show(qp, container_of(qp->late.next, struct late_line, link));
}

void scatter_show(struct qp *qp, uint64_t addr, uint64_t len) {
    for (struct link *l = qp->late.next, *next; l != &qp->late; l = next) {
        struct late_line *line = container_of(l, struct late_line, link);
        next = l->next;
        if (line->addr < addr + len && addr < line->addr + line->len) show(qp, line);
    }
}

void scatter_discard(struct qp *qp) {
    for (struct link *l; (l = list_pop(&qp->late));) free(container_of(l, struct late_line, link));
}

/* False: no memory. The line takes a random place among those that wait. */
static bool withhold(struct qp *qp, uint64_t addr, uint32_t rkey, const uint8_t *bytes, uint32_t len) {
    struct late_line *line = malloc(sizeof(*line));
    if (!line) return false;
    line->addr = addr;
    line->rkey = rkey;
    line->len = len;
    memcpy(line->bytes, bytes, len);
    list_append(chance(qp) & 1 ? &qp->late : qp->late.next, &line->link);
    stats_inc(withheld_lines);
    return true;
}

int scatter_write(struct qp *qp, const struct ibv_send_wr *wr, uint64_t len, uint64_t ns) {
    uint64_t addr = wr->wr.rdma.remote_addr;
    uint8_t *bytes = malloc(len), *p = bytes;
    if (!bytes) return -ENOMEM;
    for (int i = 0; i < wr->num_sge; i++) {
        memcpy(p, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        p += wr->sg_list[i].length;
    }
    scatter_show(qp, addr, len);
    bool first = list_empty(&qp->late); /* else the timer runs; those that come now show early */
    int result = 0;
    const struct route *r = &qp->route;
    for (uint64_t done = 0; done < len && !result;) {
        uint64_t part = LINE - (addr + done) % LINE, at;
        if (part > len - done) part = len - done;
        if (!(chance(qp) & 1) || !withhold(qp, addr + done, wr->wr.rdma.rkey, bytes + done, (uint32_t)part)) {
            const struct mr_slot *slot =
                mr_check(r->mrs, r->mr_slots, wr->wr.rdma.rkey, addr + done, part, r->pd, IBV_ACCESS_REMOTE_WRITE, &at);
            result = slot ? copy_to_peer(r->peer, slot, at, bytes + done, part) : -EFAULT;
        }
        done += part;
    }
    free(bytes);
    if (first && !list_empty(&qp->late)) timer_set(&qp->late_timer, now_ns() + ns);
    return result;
}
