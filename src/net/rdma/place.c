/* place.c: placements in the output of a connection. See send.h and net/placement.h.
 *
 * A placement is posted in requests of up to the device's longest message, each to one range of the peer. A WRITE reads
 * the value in place, where its memory is registered; other values are copied into send memory, a chunk at a time. A
 * READ writes to the value, which must lie in registered memory. A background thread registers that, and wakes the loop
 * when it has; until then the connection waits.
 *
 * Sharing the thread.  A card takes a request of any length in no time. A device that is software may copy the bytes
 * while it is posted, and then all other connections of the thread wait. So the length of a request follows the time
 * that posting one takes, and a connection that has posted for TURN_US goes on in the next turn of the loop.
 *
 * Completions.  A completion wakes the thread, with cold caches after a large copy: that costs more than all else that
 * the thread does for a transfer. So one completion reports several values of a run.
 *
 * Rejected: placements in messages of their own, outside of the output. Held replies (the reply barrier), connections
 * on other threads and lingering connections would each have to keep them in order with the replies. */
#include "lib/system/clock.h"
#include "lib/system/must.h"
#include "net/rdma/send.h"
#include "net/rdma/values.h"
#include <errno.h>

enum {
    PIECE_LEAST = 64 * 1024,
    PIECE_FIRST = 128 * 1024,
    FAST_US = 5,              /* posting a whole piece takes less: pieces may be longer, … */
    SLOW_US = 20,             /* … or more: shorter, … */
    COPIED_A_US = 128 * 1024, /* … unless not even a copy of the bytes would be that fast */
    TURN_US = 30,
    SLEEP_LEAST = 64 * 1024, /* a transfer of this length takes longer than a sleep and a wake-up */
    /* Bytes of placements of a run that complete together, at most. Nobody waits for those of WRITEs but the memory of
     * the values; replies wait for those of READs: half of what a client's pipeline may have in flight, so that the
     * device has work while the thread wakes up. */
    SILENT_WRITES = 256 * 1024 * 1024,
    SILENT_READS = 32 * 1024 * 1024,
};

static inline bool is_large(const struct placement *placement) {
    return placement->blob->len >= SLEEP_LEAST;
}

static inline struct placement *first_place(const struct rdma_connection *c) {
    return container_of(c->send.places.head.next, struct placement, link);
}

static void rdma_place_end(struct placement *placement, int error) {
    placement->ended(placement, error);
}

void rdma_place(struct output *out, struct placement *placement) {
    struct rdma_connection *c = rdma_of((struct connection *)out);
    if (!rdma_takes_output(c)) {
        rdma_place_end(placement, -ECANCELED);
        return;
    }
    placement->link = (struct list_link){0};
    must(placement->blob && placement->count && placement->ended);
    placement->position = c->conn.bytes_out + rdma_send_pending(c);
    placement->done = placement->range = 0;
    placement->in_range = 0;
    placement->posted = false;
    placement->error = 0;
    list_append(&c->send.places, &placement->link);
}

uint64_t rdma_place_ahead(const struct rdma_connection *c) {
    if (!c->send.places.len) return UINT64_MAX;
    must_within(c->conn.bytes_out, first_place(c)->position);
    return first_place(c)->position - c->conn.bytes_out;
}

/* The first placement is posted, or needs no request. */
static void rdma_place_leave(struct rdma_connection *c, struct placement *placement, int error) {
    list_remove(&c->send.places, &placement->link);
    must(error || placement->done == placement->blob->len || placement->range == placement->count);
    if (!placement->posted) {
        rdma_place_end(placement, error);
        return;
    }
    placement->error = error;
    list_append(&c->send.placed, &placement->link);
}

static uint32_t reads_depth(const struct rdma_connection *c) {
    return c->read_depth < RDMA_PLACE_READS_MAX ? c->read_depth : RDMA_PLACE_READS_MAX;
}

static bool reads_are_full(const struct rdma_connection *c) {
    uint32_t depth = reads_depth(c);
    if (c->send.place_reads < depth) return false;
    return !rdma_seq_reached(c->send.place_read_seqs[(c->send.place_reads - depth) % RDMA_PLACE_READS_MAX],
                             c->send.retired);
}

/* The memory of a request. False: it has to wait, or (error) there is none. */
static bool find_memory(struct rdma_connection *c, const struct placement *placement, uint32_t len, struct ibv_sge *sge,
                        int *error) {
    struct rdma_values *values = &c->qp.device->values;
    char *data = placement->blob->data + placement->done;
    uint32_t key;
    if (rdma_values_has(placement->blob) && rdma_values_key(values, data, &key)) {
        *sge = (struct ibv_sge){.addr = (uintptr_t)data, .length = len, .lkey = key};
        return true;
    }
    if (placement->from_peer) {
        if (!rdma_values_has(placement->blob) || !rdma_values_pending(values, data)) *error = -ENOBUFS;
        return false;
    }
    if (rdma_send_copy(c, data, len, sge)) return true;
    rdma_send_starved(c);
    return false;
}

static void adapt_piece(struct rdma_device *device, uint32_t len, uint64_t us) {
    uint64_t copy_us = len / COPIED_A_US;
    if (us > SLOW_US && us > copy_us && device->place_piece > PIECE_LEAST)
        device->place_piece /= 2;
    else if ((us < FAST_US || us < copy_us) && len == device->place_piece && len <= device->max_message / 2)
        device->place_piece *= 2;
}

static bool post_piece(struct rdma_connection *c, struct placement *placement, struct ibv_send_wr *wr, uint32_t len) {
    const char *data = placement->blob->data + placement->done;
    bool whole = placement->done + len == placement->blob->len, reads = placement->from_peer;
    c->send.place_silent += len;
    uint32_t most = reads ? SILENT_READS : SILENT_WRITES;
    bool comes = !rdma_seq_reached(c->send.last_signalled, c->send.retired); /* then the pump sees to it */
    bool signal = whole && (c->send.place_silent >= most || (c->send.places.len == 1 && !comes));
    /* Others are to be posted while half of the READs that are possible are in flight. */
    if (reads && c->send.place_reads + 1 - c->send.place_reads_told >= (reads_depth(c) + 1) / 2) signal = true;
    uint32_t copied = wr->sg_list->addr == (uintptr_t)data ? 0 : len;
    if (reads ? !rdma_send_read(c, wr, signal) : !rdma_send_write(c, wr, copied, signal)) return false;
    if (c->end_pending) return false; /* posting failed: the placement is dropped, and perhaps gone */
    if (reads)
        c->send.place_read_seqs[c->send.place_reads++ % RDMA_PLACE_READS_MAX] = c->send.posted;
    else
        c->send.after_place = true;
    if (rdma_seq_reached(c->send.posted, c->send.last_signalled)) {
        c->send.place_silent = 0;
        c->send.place_reads_told = c->send.place_reads;
    }
    if (!placement->posted) {
        placement->first_seq = c->send.posted;
        c->qp.device->placing += is_large(placement);
    }
    placement->posted = true;
    placement->last_seq = c->send.posted;
    return true;
}

bool rdma_place_post(struct rdma_connection *c, uint64_t *began_us) {
    must(c->send.places.len > 0);
    struct placement *placement = first_place(c);
    must_within(placement->done, placement->blob->len);
    must_within(placement->range, placement->count);
    struct rdma_device *device = c->qp.device;
    const struct placement_range *range = &placement->ranges[placement->range];
    size_t left = placement->blob->len - placement->done;
    int error = placement->from_peer && !c->read_depth ? -EOPNOTSUPP : 0;
    if (!left || placement->range == placement->count || error) {
        rdma_place_leave(c, placement, error);
        return true;
    }
    if (!rdma_send_has_space(c) || (placement->from_peer && reads_are_full(c))) return false;
    if (!device->place_piece) device->place_piece = PIECE_FIRST;
    if (device->place_piece > device->max_message) device->place_piece = device->max_message;
    uint64_t len = range->length - placement->in_range, before_us = clock_monotonic_us();
    if (!*began_us) *began_us = before_us;
    if (before_us - *began_us >= TURN_US) {
        rdma_connection_ready(c);
        return false;
    }
    if (len > left) len = left;
    if (len > device->place_piece) len = device->place_piece;
    struct ibv_sge sge;
    if (!find_memory(c, placement, (uint32_t)len, &sge, &error)) {
        if (!error) return false;
        rdma_place_leave(c, placement, error);
        return true;
    }
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1};
    wr.opcode = placement->from_peer ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    wr.wr.rdma.remote_addr = range->address + placement->in_range;
    wr.wr.rdma.rkey = range->rkey;
    if (!post_piece(c, placement, &wr, sge.length)) return false;
    adapt_piece(device, sge.length, clock_monotonic_us() - before_us);
    placement->done += sge.length;
    placement->in_range += sge.length;
    must_within(placement->in_range, range->length);
    if (placement->in_range == range->length) {
        placement->range++;
        placement->in_range = 0;
    }
    if (placement->done == placement->blob->len) rdma_place_leave(c, placement, 0);
    return true;
}

bool rdma_place_is_silent(const struct rdma_connection *c) {
    const struct list_link *link = NULL;
    if (c->send.placed.len) link = c->send.placed.head.prev;
    if (c->send.places.len && first_place(c)->posted) link = &first_place(c)->link;
    return link && !rdma_seq_reached(container_of(link, struct placement, link)->last_seq, c->send.last_signalled);
}

void rdma_place_resume(struct rdma_device *device) {
    list_each(&device->owner->connections, link) {
        struct rdma_connection *c = container_of(link, struct rdma_connection, link);
        if (c->qp.device == device && c->send.places.len && !c->finished) rdma_connection_ready(c);
    }
}

void rdma_place_reap(struct rdma_connection *c) {
    while (c->send.placed.len) {
        struct placement *placement = container_of(list_first(&c->send.placed), struct placement, link);
        if (!rdma_seq_reached(placement->last_seq, c->send.retired)) return;
        list_remove(&c->send.placed, &placement->link);
        must_within(is_large(placement), c->qp.device->placing);
        c->qp.device->placing -= is_large(placement);
        c->qp.device->placed_last |= is_large(placement);
        rdma_place_end(placement, placement->error);
    }
}

void rdma_place_drop(struct rdma_connection *c) {
    while (c->send.places.len) rdma_place_leave(c, first_place(c), -ECANCELED);
}

void rdma_place_fail(struct rdma_connection *c) {
    list_each_entry(&c->send.placed, struct placement, link, placement) {
        if (!rdma_seq_reached(placement->last_seq, c->send.retired)) placement->error = -ECONNRESET;
    }
}

bool rdma_place_holds(const struct rdma_connection *c, uint32_t seq, bool *reads) {
    const struct list *lists[] = {&c->send.placed, &c->send.places};
    for (int i = 0; i < 2; i++) {
        for (const struct list_link *link = lists[i]->head.next; link != &lists[i]->head; link = link->next) {
            const struct placement *placement = container_of(link, struct placement, link);
            if (!(placement->posted && rdma_seq_reached(placement->first_seq, seq) &&
                  rdma_seq_reached(seq, placement->last_seq)))
                continue;
            *reads = placement->from_peer;
            return true;
        }
    }
    return false;
}
