/* send.c: see send.h.
 *
 * Rejected: one work request for each segment, which costs a doorbell and a completion at the peer for each; asking for
 * every completion, which costs the card and the thread; waiting a moment to collect more output before sending, which
 * costs latency. */
#include "net/rdma/send.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "net/rdma/announce.h"
#include <endian.h>
#include <errno.h>
#include <string.h>

enum {
    /* Bytes announced by one immediate. A stock client sleeps for each message, so that it spends more on a few
     * messages of a large reply than it gains by reading the first while the next one is on its way. */
    MESSAGE_MAX = 128 * 1024,
    MESSAGE_PLAIN_MAX = 512 * 1024, /* to a peer of the base protocol */
    CONTROL_RESERVE = 4,
    REGISTERED_MAX = 128 * 1024, /* output queued beyond this waits in ordinary memory */
    SIGNAL_BYTES = 64 * 1024,
    COPY_LEAST = 256, /* a chunk of copies with less space than this counts as full */
};

/* --- Output: segments and chunks --- */

/* Every chunk of the connection but `control` is taken and given back through these, and so counted. */
static struct rdma_chunk *take_chunk(struct rdma_connection *c) {
    struct rdma_chunk *chunk = rdma_chunk_take(&c->qp.device->memory);
    if (chunk) c->send.chunks++;
    return chunk;
}

static struct rdma_chunk *take_plain_chunk(struct rdma_connection *c) {
    struct rdma_chunk *chunk = rdma_chunk_plain(c->send.output.queued);
    if (chunk) c->send.chunks++;
    return chunk;
}

static void give_chunk(struct rdma_connection *c, struct rdma_chunk *chunk) {
    must(c->send.chunks > 0);
    c->send.chunks--;
    rdma_chunk_give(c->qp.device ? &c->qp.device->memory : NULL, chunk);
}

static inline struct rdma_chunk *chunk_of(struct output_chunk *queued) {
    return (struct rdma_chunk *)queued;
}

static bool in_flight(const struct rdma_connection *c, const struct rdma_chunk *chunk) {
    return chunk->used && !rdma_seq_reached(chunk->last_seq, c->send.retired);
}

/* The chunk, if it is not NULL, holds no unsent bytes and is not written to: gives it back, or keeps it until its
 * requests have completed. */
static void chunk_sent(struct rdma_connection *c, struct rdma_chunk *chunk) {
    if (!chunk) return;
    if (!in_flight(c, chunk)) {
        give_chunk(c, chunk);
        return;
    }
    chunk->next = NULL;
    *c->send.held_end = chunk;
    c->send.held_end = &chunk->next;
}

/* All of the segment is sent, or it is dropped. A blob that a request still reads is kept. */
static void free_segment(struct rdma_connection *c, struct output_segment *segment) {
    if (!segment->chunk && segment->used && !rdma_seq_reached(segment->last_seq, c->send.retired)) {
        output_queue_advance(&c->send.output, segment, segment->len);
        list_remove(&c->send.output.segments, &segment->link);
        list_append(&c->send.values, &segment->link);
        return;
    }
    chunk_sent(c, chunk_of(output_queue_remove(&c->send.output, segment)));
}

/* Detaches the chunk of conn.out. All of it is sealed or sent. */
static void retire_chunk(struct rdma_connection *c) {
    chunk_sent(c, chunk_of(output_queue_leave(&c->send.output, &c->conn.out)));
}

/* Copies go to another chunk from here on. */
static void retire_copies(struct rdma_connection *c) {
    struct rdma_chunk *chunk = c->send.copies;
    c->send.copies = NULL;
    c->send.copies_used = 0;
    chunk_sent(c, chunk);
}

/* Gives back the chunks and blobs that no request reads any more. */
static void reap(struct rdma_connection *c) {
    while (c->send.held && !in_flight(c, c->send.held)) {
        struct rdma_chunk *chunk = c->send.held;
        c->send.held = chunk->next;
        if (!c->send.held) c->send.held_end = &c->send.held;
        give_chunk(c, chunk);
    }
    for (struct list_link *link; (link = list_first(&c->send.values));) {
        struct output_segment *segment = container_of(link, struct output_segment, link);
        if (!rdma_seq_reached(segment->last_seq, c->send.retired)) break;
        list_remove(&c->send.values, link);
        blob_release(segment->blob);
        mem_free(segment);
    }
    struct rdma_chunk *chunk = chunk_of(c->send.output.chunk);
    if (chunk && !output_queue_unsealed(&c->send.output, &c->conn.out) && !chunk->queued.segments &&
        !in_flight(c, chunk))
        retire_chunk(c);
    if (c->send.copies && !in_flight(c, c->send.copies)) retire_copies(c);
    if (__builtin_expect(c->send.placed.len != 0, 0)) rdma_place_reap(c);
}

void rdma_send_unregister(struct rdma_connection *c) {
    struct rdma_chunk *plain = NULL;
    size_t used = 0;
    struct output_queue *queue = &c->send.output;
    if (queue->chunk && chunk_of(queue->chunk)->registered) {
        output_queue_seal(queue, &c->conn.out);
        retire_chunk(c);
    }
    for (struct list_link *link = queue->segments.head.next; link != &queue->segments.head; link = link->next) {
        struct output_segment *segment = container_of(link, struct output_segment, link);
        struct output_chunk *chunk = segment->chunk;
        if (!chunk || !chunk_of(chunk)->registered || !segment->len) continue;
        if (!plain || RDMA_CHUNK_SIZE - used < segment->len) { /* short headers between blobs share one */
            plain = take_plain_chunk(c);
            if (!plain) break; /* the rest stays in registered memory */
            used = 0;
        }
        memcpy(plain->data + used, segment->data, segment->len);
        plain->queued.segments++;
        chunk_sent(c, chunk_of(output_queue_move_out(queue, chunk)));
        segment->chunk = &plain->queued;
        segment->data = plain->data + used;
        used += segment->len;
    }
    reap(c);
}

void rdma_send_drop(struct rdma_connection *c) {
    while (c->send.output.segments.len) free_segment(c, output_queue_first(&c->send.output));
    rdma_place_drop(c);
    c->send.waiting = false;
    retire_chunk(c);
    retire_copies(c);
    reap(c);
}

static void rdma_fail(struct output *out) {
    struct rdma_connection *c = rdma_of((struct connection *)out);
    if (rdma_takes_output(c)) {
        c->callbacks->failed(c, ENOMEM, "no memory for its output");
        c->conn.error = ENOMEM;
    }
    out->failed = true;
    output_discard(out);
}

static void rdma_make_space(struct output *out, size_t len) {
    struct rdma_connection *c = rdma_of((struct connection *)out);
    if (!rdma_takes_output(c)) {
        output_discard(out);
        return;
    }
    output_queue_seal(&c->send.output, out);
    retire_chunk(c);
    bool soon = c->phase == RDMA_ESTABLISHED && !c->send.stalled && c->send.output.queued < REGISTERED_MAX;
    struct rdma_chunk *chunk = soon ? take_chunk(c) : NULL;
    if (!chunk) chunk = take_plain_chunk(c);
    if (!chunk) {
        rdma_fail(out);
        return;
    }
    output_queue_open(&c->send.output, out, &chunk->queued, chunk->data, RDMA_CHUNK_SIZE);
}

static void rdma_share(struct output *out, struct blob *blob) {
    struct rdma_connection *c = rdma_of((struct connection *)out);
    if (!rdma_takes_output(c) || blob->len == 0) {
        blob_release(blob);
        return;
    }
    if (blob->len < OUTPUT_SHARE_MIN && !rdma_values_has(blob)) {
        output_write(out, blob_slice(blob)); /* it would be copied anyway, so copy it now, next to its neighbours */
        blob_release(blob);
        return;
    }
    output_queue_share(&c->send.output, out, blob);
}

struct output_ops rdma_output_ops = {.make_space = rdma_make_space,
                                     .give_up = rdma_fail,
                                     .share = rdma_share,
                                     .share_min = OUTPUT_SHARE_MIN,
                                     .place = rdma_place};

void rdma_send_init(struct rdma_connection *c) {
    c->conn.out.ops = &rdma_output_ops;
    c->send.held_end = &c->send.held;
    output_queue_init(&c->send.output);
    list_init(&c->send.values);
    list_init(&c->send.places);
    list_init(&c->send.placed);
}

void rdma_send_begin(struct rdma_connection *c) {
    c->send.signal_every = c->qp.send_depth / 4;
    c->send.request_elements = (uint32_t)c->qp.device->max_sge;
}

void rdma_send_settings_changed(void) {
    size_t least = rdma_values_share_min();
    rdma_output_ops.share_min = least && least < OUTPUT_SHARE_MIN ? least : OUTPUT_SHARE_MIN;
}

size_t rdma_send_pending(const struct rdma_connection *c) {
    return output_queue_pending(&c->send.output, &c->conn.out);
}

/* --- Posting --- */

static inline uint32_t send_space(const struct rdma_connection *c) {
    must_within(c->send.posted - c->send.retired, c->qp.send_depth);
    return c->qp.send_depth - (c->send.posted - c->send.retired);
}

/* Posts a chain of `count` requests that end a message or are a control message. */
static bool post(struct rdma_connection *c, struct ibv_send_wr *wrs, uint32_t count, bool must_signal) {
    struct ibv_send_wr *last = &wrs[count - 1], *bad;
    must_within(count, send_space(c));
    c->send.posted += count;
    if (__builtin_expect(c->failing, 0)) return false;
    if (must_signal || c->send.posted - c->send.last_signalled >= c->send.signal_every ||
        c->send.unsignalled_bytes >= SIGNAL_BYTES) {
        last->send_flags |= IBV_SEND_SIGNALED;
        c->send.last_signalled = c->send.posted;
        c->send.unsignalled_bytes = 0;
        c->owner->stats.signalled++;
    }
    last->wr_id = (uint64_t)c->send.posted << 1;
    struct rdma_stats *stats = &c->owner->stats;
    stats->doorbells++;
    stats->work_requests += count;
    if (last->send_flags & IBV_SEND_INLINE) stats->inlined++;
    int error = ibv_post_send(c->qp.verbs, wrs, &bad);
    if (error == 0) return true;
    c->callbacks->request_failed(c, error, "posting to the send queue failed");
    return false;
}

bool rdma_send_control(struct rdma_connection *c, const union rdma_wire_message *message) {
    if (send_space(c) == 0) return false;
    struct ibv_sge sge = {.addr = (uintptr_t)message, .length = sizeof *message};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    if (c->qp.max_inline >= sizeof *message)
        wr.send_flags = IBV_SEND_INLINE;
    else {
        /* One element for each outstanding sequence number. */
        if (!c->send.control && !(c->send.control = rdma_chunk_take(&c->qp.device->memory))) return false;
        char *place = c->send.control->data + (c->send.posted % c->qp.send_depth) * sizeof *message;
        memcpy(place, message, sizeof *message);
        sge.addr = (uintptr_t)place;
        sge.lkey = c->send.control->lkey;
    }
    c->owner->stats.control_out++;
    c->send.last_control_us = clock_mono();
    post(c, &wr, 1, false);
    return true;
}

void rdma_send_keepalive(struct rdma_connection *c) {
    union rdma_wire_message message = {.keepalive = {.opcode = htobe16(RDMA_OP_KEEPALIVE)}};
    rdma_send_control(c, &message);
}

bool rdma_send_count(struct rdma_connection *c, enum rdma_opcode opcode, uint32_t count) {
    union rdma_wire_message message = {.credit = {.opcode = htobe16(opcode), .bytes = htobe32(count)}};
    return rdma_send_control(c, &message);
}

bool rdma_send_has_space(const struct rdma_connection *c) {
    return send_space(c) > CONTROL_RESERVE + (uint32_t)c->announce.on;
}

bool rdma_send_read(struct rdma_connection *c, struct ibv_send_wr *wr, bool signal) {
    if (!rdma_send_has_space(c)) return false;
    post(c, wr, 1, signal);
    return true;
}

bool rdma_send_write(struct rdma_connection *c, struct ibv_send_wr *wr, uint32_t copied, bool signal) {
    if (!rdma_send_has_space(c)) return false;
    c->send.unsignalled_bytes += copied;
    post(c, wr, 1, signal);
    return true;
}

bool rdma_send_copy(struct rdma_connection *c, const char *data, uint32_t max, struct ibv_sge *sge) {
    if (c->send.copies && RDMA_CHUNK_SIZE - c->send.copies_used < COPY_LEAST) retire_copies(c);
    if (!c->send.copies && !(c->send.copies = take_chunk(c))) return false;
    struct rdma_chunk *chunk = c->send.copies;
    char *to = chunk->data + c->send.copies_used;
    if (max > RDMA_CHUNK_SIZE - c->send.copies_used) max = RDMA_CHUNK_SIZE - c->send.copies_used;
    memcpy(to, data, max);
    chunk->last_seq = c->send.posted + 1;
    chunk->used = true;
    c->send.copies_used += max;
    *sge = (struct ibv_sge){.addr = (uintptr_t)to, .length = max, .lkey = chunk->lkey};
    return true;
}

void rdma_send_starved(struct rdma_connection *c) {
    if (list_is_linked(&c->send.starved_link)) return;
    rdma_starved_begin(c);
    if (c->qp.device->starved.len == 1) rdma_send_relieve(c->qp.device);
}

/* A signalled request without bytes, whose completion covers all requests before it. */
static void post_marker(struct rdma_connection *c) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
    wr.wr.rdma.remote_addr = c->send.peer_addr;
    wr.wr.rdma.rkey = c->send.peer_key;
    post(c, &wr, 1, true);
}

/* The first segment with bytes to send. An inlined segment stays in the list, empty, until it has been posted. */
static struct output_segment *first_segment(const struct rdma_connection *c) {
    const struct list *segments = &c->send.output.segments;
    for (struct list_link *link = segments->head.next; link != &segments->head; link = link->next) {
        struct output_segment *segment = container_of(link, struct output_segment, link);
        if (segment->len) return segment;
    }
    return NULL;
}

/* Whether a request can read the bytes in place, and with which local key. It cannot read an ordinary chunk, or a value
 * in ordinary memory. */
static inline bool segment_key(struct rdma_connection *c, const struct output_segment *segment, uint32_t *key) {
    if (!segment->chunk)
        return rdma_values_has(segment->blob) && rdma_values_key(&c->qp.device->values, segment->data, key);
    const struct rdma_chunk *chunk = chunk_of(segment->chunk);
    *key = chunk->lkey;
    return chunk->registered;
}

/* Copies bytes that a request cannot read in place into a chunk of send memory, as many as fit. */
static bool gather_copied(struct rdma_connection *c, uint32_t max, uint32_t seq, struct ibv_sge *sge) {
    if (c->send.copies && RDMA_CHUNK_SIZE - c->send.copies_used < COPY_LEAST) retire_copies(c);
    if (!c->send.copies && !(c->send.copies = take_chunk(c))) return false;
    struct rdma_chunk *chunk = c->send.copies;
    char *to = chunk->data + c->send.copies_used;
    uint32_t filled = 0, key;
    if (max > RDMA_CHUNK_SIZE - c->send.copies_used) max = RDMA_CHUNK_SIZE - c->send.copies_used;
    for (struct output_segment *segment; filled < max && (segment = first_segment(c));) {
        if (filled && segment_key(c, segment, &key)) break;
        size_t part = segment->len < max - filled ? segment->len : max - filled;
        memcpy(to + filled, segment->data, part);
        output_queue_advance(&c->send.output, segment, part);
        filled += (uint32_t)part;
        if (segment->len == 0) free_segment(c, segment);
    }
    if (filled == 0) { /* only the unsealed end of an ordinary chunk remains */
        size_t part = output_queue_unsealed(&c->send.output, &c->conn.out);
        if (part > max) part = max;
        memcpy(to, c->send.output.chunk_start, part);
        c->send.output.chunk_start += part;
        filled = (uint32_t)part;
    }
    chunk->last_seq = seq;
    chunk->used = true;
    c->send.copies_used += filled;
    *sge = (struct ibv_sge){.addr = (uintptr_t)to, .length = filled, .lkey = chunk->lkey};
    return true;
}

static void mark_used(struct rdma_connection *c, struct output_segment *segment, struct rdma_chunk *chunk, uint32_t seq,
                      uint32_t len) {
    if (chunk) {
        chunk->last_seq = seq;
        chunk->used = true;
        return;
    }
    segment->last_seq = seq;
    segment->used = true;
    c->owner->stats.zero_copies++;
    c->owner->stats.zero_copy_bytes += len;
}

/* Removes the next bytes from the queue as one scatter/gather element. False: send memory has run out. */
static bool gather(struct rdma_connection *c, uint32_t max, uint32_t seq, bool inlined, struct ibv_sge *sge) {
    struct output_segment *segment = first_segment(c);
    struct rdma_chunk *chunk = chunk_of(segment ? segment->chunk : c->send.output.chunk);
    const char *data = segment ? segment->data : c->send.output.chunk_start;
    size_t len = segment ? segment->len : output_queue_unsealed(&c->send.output, &c->conn.out);
    uint32_t key = chunk ? chunk->lkey : 0;
    bool named = inlined || (segment ? segment_key(c, segment, &key) : chunk->registered);
    if (!named) return gather_copied(c, max, seq, sge);
    if (len > max) len = max;
    *sge = (struct ibv_sge){.addr = (uintptr_t)data, .length = (uint32_t)len, .lkey = key};
    if (!inlined) mark_used(c, segment, chunk, seq, (uint32_t)len);
    if (!segment) {
        c->send.output.chunk_start += len;
        return true;
    }
    output_queue_advance(&c->send.output, segment, len);
    if (segment->len == 0 && !inlined) free_segment(c, segment);
    return true;
}

static void drop_posted(struct rdma_connection *c) {
    while (c->send.output.segments.len) {
        struct output_segment *segment = output_queue_first(&c->send.output);
        if (segment->len) break;
        free_segment(c, segment);
    }
}

static inline void use_window(struct rdma_connection *c, uint32_t len) {
    must_within(len, c->send.window);
    c->send.window -= len;
    c->send.peer_used += len;
    if (c->send.peer_used >= c->send.peer_size) c->send.peer_used -= c->send.peer_size;
    must_within(c->send.peer_used, c->send.peer_size);
}

/* Sends one message of at most `limit` bytes. False: nothing could be sent. */
static bool post_message(struct rdma_connection *c, uint32_t limit) {
    struct ibv_send_wr wrs[RDMA_MESSAGE_REQUESTS + 1];
    struct ibv_sge sges[RDMA_MESSAGE_REQUESTS * RDMA_SGE_MAX + 1];
    bool polled =
        c->announce.on; /* if set, a WRITE of the peer's word may announce the message in place of an immediate */
    uint64_t word;
    uint32_t immediate;
    uint32_t requests = 0, elements = 0, total = 0;
    uint32_t most = send_space(c) - CONTROL_RESERVE - polled;
    uint32_t edge = c->send.peer_size -
                    c->send.peer_used; /* a request ends at the end of a ring; a plain buffer takes no more than that */
    bool inlined = limit <= c->qp.max_inline, starved = false;
    if (inlined && limit > edge) limit = edge;
    must(most && most <= c->qp.send_depth); /* the caller has found space */
    if (most > RDMA_MESSAGE_REQUESTS) most = RDMA_MESSAGE_REQUESTS;
    if (inlined) most = 1;
    while (total < limit && requests < most && !starved) {
        uint32_t first = elements, before = total, stop = total < edge && edge < limit ? edge : limit;
        while (total < stop && elements - first < c->send.request_elements) {
            starved = !gather(c, stop - total, c->send.posted + requests + 1, inlined, &sges[elements]);
            if (starved) break;
            total += sges[elements++].length;
        }
        if (elements == first) break;
        struct ibv_send_wr *wr = &wrs[requests];
        *wr = (struct ibv_send_wr){
            .sg_list = &sges[first], .num_sge = (int)(elements - first), .opcode = IBV_WR_RDMA_WRITE};
        wr->wr.rdma.remote_addr =
            before < edge ? c->send.peer_addr + c->send.peer_used + before : c->send.peer_addr + (before - edge);
        wr->wr.rdma.rkey = c->send.peer_key;
        if (requests) wrs[requests - 1].next = wr;
        requests++;
    }
    if (starved) rdma_send_starved(c);
    if (total == 0) return false;
    must_within(requests, (uint32_t)RDMA_MESSAGE_REQUESTS);
    must_less(elements, (uint32_t)(sizeof sges / sizeof *sges));
    if (inlined)
        wrs[requests - 1].send_flags = IBV_SEND_INLINE;
    else
        c->send.unsignalled_bytes += total;
    if (rdma_announce_message(c, total, sges, elements, &wrs[requests], &sges[elements], &word, &immediate)) {
        wrs[requests - 1].next = &wrs[requests];
        requests++;
    } else {
        wrs[requests - 1].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wrs[requests - 1].imm_data = htobe32(immediate);
    }
    c->send.after_place = false;
    use_window(c, total);
    c->conn.bytes_out += total;
    c->owner->stats.bytes_out += total;
    c->owner->stats.messages_out++;
    bool good = post(c, wrs, requests, false);
    drop_posted(c);
    return good && !starved;
}

void rdma_send_pump(struct rdma_connection *c) {
    if (c->phase != RDMA_ESTABLISHED || c->end_pending || c->finished) return;
    if (c->send.wants_control) c->callbacks->pump_control(c);
    uint64_t began_us = 0;
    for (;;) {
        uint64_t ahead = c->send.places.len ? rdma_place_ahead(c) : UINT64_MAX;
        if (__builtin_expect(ahead == 0, 0)) {
            if (c->failing || !rdma_place_post(c, &began_us)) break;
            continue;
        }
        size_t pending = rdma_send_pending(c);
        if (c->send.owes_taken || !pending) break;
        uint32_t window = c->send.window;
        if (window == 0) {
            rdma_stall_begin(c);
            break;
        }
        if (send_space(c) <= CONTROL_RESERVE + (uint32_t)c->announce.on) break;
        uint32_t most = c->features & RDMA_FEATURE_RING ? MESSAGE_MAX : MESSAGE_PLAIN_MAX;
        if (most > c->qp.device->max_message) most = c->qp.device->max_message;
        uint32_t limit = pending < most ? (uint32_t)pending : most;
        if (limit > ahead) limit = (uint32_t)ahead;
        if (!post_message(c, limit < window ? limit : window)) break;
    }
    /* No request that is outstanding will call this again. */
    bool silent = rdma_seq_reached(c->send.last_signalled, c->send.retired);
    if (__builtin_expect(c->send.placed.len || c->send.places.len, 0) && silent && rdma_place_is_silent(c) &&
        send_space(c) && !c->end_pending)
        post_marker(c);
    reap(c);
}

static bool has_output(const struct rdma_connection *c) {
    return rdma_send_pending(c) || c->send.places.len;
}

void rdma_send_flush(struct rdma_connection *c) {
    if (c->conn.state != CONN_OPEN || !rdma_takes_output(c)) return;
    rdma_send_pump(c);
    if (has_output(c)) c->send.waiting = true;
}

void rdma_send_resume(struct rdma_connection *c) {
    rdma_stall_end(c);
    /* A peer may announce its buffer before the connection is established here; then the timer is the one of accepting.
     */
    if (c->phase == RDMA_ESTABLISHED && !c->flushed && !c->lingering) event_timer_cancel(c->conn.loop, &c->timer);
    rdma_send_continue(c);
}

void rdma_send_continue(struct rdma_connection *c) {
    rdma_send_pump(c);
    if (c->send.waiting && !c->lingering && !has_output(c)) rdma_connection_ready(c);
    rdma_send_check_linger(c);
}

void rdma_send_check_linger(struct rdma_connection *c) {
    if (!c->lingering || c->finished || has_output(c)) return;
    if (c->send.posted == c->send.retired)
        c->callbacks->finish(c);
    else if (rdma_seq_reached(c->send.last_signalled, c->send.retired) && send_space(c))
        post_marker(c);
}

void rdma_send_tick(struct rdma_connection *c) {
    /* Requests from before the last tick are outstanding, and no signalled one will report that their send memory is
     * free. */
    if (!rdma_seq_reached(c->send.tick_posted, c->send.retired) &&
        rdma_seq_reached(c->send.last_signalled, c->send.retired) && send_space(c))
        post_marker(c);
    c->send.tick_posted = c->send.posted;
    if (c->send.control && c->send.posted == c->send.retired) {
        rdma_chunk_give(&c->qp.device->memory, c->send.control);
        c->send.control = NULL;
    }
}

size_t rdma_send_memory(const struct rdma_connection *c) {
    size_t chunks = c->send.chunks + (c->send.control ? 1 : 0);
    return chunks * RDMA_CHUNK_SIZE + c->send.output.queued_blobs +
           c->send.output.segments.len * sizeof(struct output_segment);
}

void rdma_send_release(struct rdma_connection *c) {
    rdma_place_fail(c);
    c->send.retired = c->send.posted;
    rdma_send_drop(c);
    if (c->send.control) rdma_chunk_give(&c->qp.device->memory, c->send.control);
    c->send.control = NULL;
}
