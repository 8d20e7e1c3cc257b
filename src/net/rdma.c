/* rdma.c: the data path of Valkey over RDMA, the same for both ends. The wire is told in rdma_wire.h, the shape in rdma_connection.h.
 *
 * Everything a peer sends is checked here: length and opcode of a control message, whether its turn has come, the bounds of the memory
 * it announces, immediates against the room that is left. A violation is logged with the peer's address and ends that connection, and nothing
 * is sized by what a peer says.
 *
 * Send queue.  Every work request has a sequence number; completions come in order, so a completed one retires all before it.
 *   posted - retired never exceeds the depth of the queue, hence posting cannot find it full. CONTROL_RESERVE places are kept for control
 *   messages. Since every quarter of the queue asks for a completion, a full queue always has one coming.
 *
 * Rejected: one work request a segment (a doorbell and a completion at the peer for each), asking for every completion (they cost both the card and us),
 * waiting a moment to collect more before sending (what is there goes at once). */
#include "net/rdma_connection.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    MESSAGE_MAX = 128 * 1024, /* bytes told by one immediate */
    REQUESTS_A_MESSAGE = 4,
    CONTROL_RESERVE = 4,
    REGISTERED_MAX = 128 * 1024, /* what waits beyond this waits in ordinary memory */
    SIGNAL_BYTES = 64 * 1024,
    SIDE_STEP = 4 * 1024,
    LINGER_US = 2 * 1000 * 1000,
    REGISTER_TIMEOUT_US = 10 * 1000 * 1000, /* for the peer to announce its buffer */
    CONTROL_A_TICK = 512,                   /* more control messages than this are a flood */
    PEER_BUFFER_MAX = 1024 * 1024 * 1024,
    IN_LIMIT_DEFAULT = 1024 * 1024 * 1024,
};

/* A queued part of the stream: bytes in a chunk or a blob. */
struct segment {
    struct list_link link;
    const char *data;
    size_t len;
    struct rdma_chunk *chunk;
    struct blob *blob; /* when chunk is NULL */
};

static inline bool reached(uint32_t seq, uint32_t by) {
    return (int32_t)(by - seq) >= 0;
}

/* Telling the owner */

void rdma_connection_ready(struct rdma_connection *c) {
    if (!list_is_linked(&c->ready_link) && !c->finished) list_append(&c->owner->ready, &c->ready_link);
}

static void drop_output(struct rdma_connection *c);

static uint64_t connecting_failed(struct event_timer *timer) {
    rdma_connection_run(container_of(timer, struct rdma_connection, timer));
    return 0;
}

void rdma_connection_failed(struct rdma_connection *c, int error, const char *note) {
    if (c->end_pending || c->finished) return;
    c->end_pending = true;
    c->failure = error;
    if (note && !c->error_note) c->error_note = mem_strdup(note);
    if (error) c->owner->stats.failed++;
    drop_output(c);
    if (c->lingering || (c->passive && c->conn.state == CONN_CONNECTING))
        rdma_connection_finish(c); /* nobody is there to be told */
    else if (c->conn.state == CONN_CONNECTING)
        event_timer_set(c->conn.loop, &c->timer, 0,
                        connecting_failed); /* there may be no device that polls the list */
    else
        rdma_connection_ready(c);
}

/* The peer broke the protocol: nothing more of it is looked at. */
static void violation(struct rdma_connection *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void violation(struct rdma_connection *c, const char *format, ...) {
    static _Thread_local uint64_t second, told;
    char what[160], peer[128];
    va_list arguments;
    if (c->end_pending || c->finished) return;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    c->owner->stats.protocol_errors++;
    uint64_t now = clock_mono() / 1000000;
    if (now != second) second = now, told = 0;
    if (told++ < 20) { /* hostile peers do not get to fill the disk */
        conn_format_address(&c->conn, true, peer);
        log_warning("RDMA: closing the connection of %s (%s), which broke the protocol: %s", peer,
                    c->device->name, what);
    }
    c->received = c->taken; /* what was not shown yet is not shown */
    rdma_connection_failed(c, EPROTO, what);
}

/* Output: segments and chunks */

static void give_chunk(struct rdma_connection *c, struct rdma_chunk *chunk) {
    rdma_chunk_give(c->device ? &c->device->memory : NULL, chunk);
}

static bool in_flight(const struct rdma_connection *c, const struct rdma_chunk *chunk) {
    return chunk->used && !reached(chunk->last_seq, c->retired);
}

/* Nothing unsent lies in the chunk any more and nothing is written to it: it goes back, or waits for its requests to be done. */
static void chunk_sent(struct rdma_connection *c, struct rdma_chunk *chunk) {
    if (!in_flight(c, chunk)) {
        give_chunk(c, chunk);
        return;
    }
    chunk->next = NULL;
    *c->held_end = chunk;
    c->held_end = &chunk->next;
}

static void leave_chunk(struct rdma_connection *c, struct rdma_chunk *chunk) {
    if (--chunk->unsent == 0 && chunk != c->chunk) chunk_sent(c, chunk);
}

static void free_segment(struct rdma_connection *c, struct segment *segment) {
    list_remove(&c->segments, &segment->link);
    if (segment->chunk)
        leave_chunk(c, segment->chunk);
    else
        blob_release(segment->blob);
    mem_free(segment);
}

/* Nothing more is written to the chunk of conn.out. All of it is sealed or sent. */
static void retire_chunk(struct rdma_connection *c) {
    struct rdma_chunk *chunk = c->chunk;
    c->chunk = NULL;
    c->chunk_start = c->conn.out.pos = c->conn.out.end = NULL;
    if (chunk && chunk->unsent == 0) chunk_sent(c, chunk);
}

/* Gives back what no request reads any more. */
static void reap(struct rdma_connection *c) {
    while (c->held && !in_flight(c, c->held)) {
        struct rdma_chunk *chunk = c->held;
        c->held = chunk->next;
        if (!c->held) c->held_end = &c->held;
        give_chunk(c, chunk);
    }
    if (c->chunk && c->chunk_start == c->conn.out.pos && c->chunk->unsent == 0 && !in_flight(c, c->chunk))
        retire_chunk(c);
}

/* Turns what was written to the chunk since the last time into a segment. */
static void seal(struct rdma_connection *c) {
    size_t len = (size_t)(c->conn.out.pos - c->chunk_start);
    if (!len) return;
    struct segment *segment = mem_alloc(sizeof *segment);
    *segment = (struct segment){.data = c->chunk_start, .len = len, .chunk = c->chunk};
    c->chunk->unsent++;
    list_append(&c->segments, &segment->link);
    c->queued += len;
    c->chunk_start = c->conn.out.pos;
}

void rdma_connection_unregister_queue(struct rdma_connection *c) {
    if (c->chunk && c->chunk->registered) {
        seal(c);
        retire_chunk(c);
    }
    for (struct list_link *link = c->segments.head.next; link != &c->segments.head; link = link->next) {
        struct segment *segment = container_of(link, struct segment, link);
        if (!segment->chunk || !segment->chunk->registered || !segment->len) continue;
        struct rdma_chunk *plain = rdma_chunk_plain();
        memcpy(plain->data, segment->data, segment->len);
        plain->unsent = 1;
        leave_chunk(c, segment->chunk);
        segment->chunk = plain;
        segment->data = plain->data;
    }
    reap(c);
}

static void drop_output(struct rdma_connection *c) {
    while (c->segments.len) free_segment(c, container_of(list_first(&c->segments), struct segment, link));
    c->queued = 0;
    c->waiting = false;
    retire_chunk(c);
    reap(c);
}

static inline bool takes_output(const struct rdma_connection *c) {
    return c->conn.state <= CONN_OPEN && !c->end_pending && rdma_usable();
}

static void rdma_make_room(struct output *out, size_t len) {
    static _Thread_local char dropped[OUTPUT_ROOM_MAX];
    struct rdma_connection *c = rdma_of((struct connection *)out);
    if (!takes_output(c)) {
        out->pos = dropped;
        out->end = dropped + sizeof dropped;
        return;
    }
    if (c->chunk) {
        seal(c);
        retire_chunk(c);
    }
    if (c->phase == RDMA_ESTABLISHED && !c->stalled && c->queued < REGISTERED_MAX)
        c->chunk = rdma_chunk_take(&c->device->memory);
    if (!c->chunk) c->chunk = rdma_chunk_plain();
    c->chunk_start = out->pos = c->chunk->data;
    out->end = c->chunk->data + RDMA_CHUNK_SIZE;
}

static void rdma_share(struct output *out, struct blob *blob) {
    struct rdma_connection *c = rdma_of((struct connection *)out);
    if (!takes_output(c) || blob->len == 0) {
        blob_release(blob);
        return;
    }
    if (c->chunk) seal(c);
    struct segment *segment = mem_alloc(sizeof *segment);
    *segment = (struct segment){.data = blob->data, .len = blob->len, .blob = blob};
    list_append(&c->segments, &segment->link);
    c->queued += blob->len;
}

static const struct output_ops rdma_output_ops = {.make_room = rdma_make_room, .share = rdma_share};

static inline size_t unsealed(const struct rdma_connection *c) {
    return c->chunk ? (size_t)(c->conn.out.pos - c->chunk_start) : 0;
}

static size_t rdma_pending(const struct connection *conn) {
    const struct rdma_connection *c = rdma_of(conn);
    return c->queued + unsealed(c);
}

/* Posting */

static inline uint32_t send_room(const struct rdma_connection *c) {
    return c->send_depth - (c->posted - c->retired);
}

/* Posts a chain of `count` requests that end a message or are a control message. */
static bool post(struct rdma_connection *c, struct ibv_send_wr *wrs, uint32_t count, bool must_signal) {
    struct ibv_send_wr *last = &wrs[count - 1], *bad;
    c->posted += count;
    if (must_signal || c->posted - c->last_signalled >= c->send_depth / 4 ||
        c->unsignalled_bytes >= SIGNAL_BYTES) {
        last->send_flags |= IBV_SEND_SIGNALED;
        c->last_signalled = c->posted;
        c->unsignalled_bytes = 0;
        c->owner->stats.signalled++;
    }
    last->wr_id = (uint64_t)c->posted << 1;
    struct rdma_stats *stats = &c->owner->stats;
    stats->doorbells++;
    stats->work_requests += count;
    if (last->send_flags & IBV_SEND_INLINE) stats->inlined++;
    int error = ibv_post_send(c->qp, wrs, &bad);
    if (error == 0) return true;
    log_verbose("RDMA: posting to %s (%s) failed: %s", c->target, c->device->name, strerror(error));
    rdma_connection_failed(c, error, NULL);
    return false;
}

/* Sends a control message. False: no room now, try again after a completion. */
static bool send_control(struct rdma_connection *c, const union rdma_wire_message *message) {
    if (send_room(c) == 0) return false;
    struct ibv_sge sge = {.addr = (uintptr_t)message, .length = sizeof *message};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    if (c->max_inline >= sizeof *message)
        wr.send_flags = IBV_SEND_INLINE;
    else {
        /* A place for each sequence number under way. */
        if (!c->control && !(c->control = rdma_chunk_take(&c->device->memory))) return false;
        char *place = c->control->data + (c->posted % c->send_depth) * sizeof *message;
        memcpy(place, message, sizeof *message);
        sge.addr = (uintptr_t)place;
        sge.lkey = c->control->lkey;
    }
    c->owner->stats.control_out++;
    c->last_control_us = clock_mono();
    post(c, &wr, 1, false);
    return true;
}

/* Tells the peer that our buffer is there to be written, from its start. */
static void announce_buffer(struct rdma_connection *c) {
    union rdma_wire_message message = {.memory = {.opcode = htobe16(RDMA_OP_REGISTER_XFER_MEMORY),
                                                  .addr = htobe64((uintptr_t)c->rx->data),
                                                  .length = htobe32(c->rx->size),
                                                  .key = htobe32(c->rx->mr->rkey)}};
    c->want_register = !send_control(c, &message);
    c->registered = !c->want_register;
}

static void answer_features(struct rdma_connection *c) {
    union rdma_wire_message message = {
        .feature = {.opcode = htobe16(RDMA_OP_GET_SERVER_FEATURE), .select = htobe16(c->feature_select)}};
    c->want_feature_reply = !send_control(c, &message);
}

/* A request without bytes, to be told when all before it are done. */
static void post_marker(struct rdma_connection *c) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
    wr.wr.rdma.remote_addr = c->peer_addr;
    wr.wr.rdma.rkey = c->peer_key;
    post(c, &wr, 1, true);
}

/* The first segment with something to send. An inlined segment stays in the list, empty, until it has been posted. */
static struct segment *first_segment(const struct rdma_connection *c) {
    for (struct list_link *link = c->segments.head.next; link != &c->segments.head; link = link->next) {
        struct segment *segment = container_of(link, struct segment, link);
        if (segment->len) return segment;
    }
    return NULL;
}

static void advance_segment(struct rdma_connection *c, struct segment *segment, size_t len) {
    segment->data += len;
    segment->len -= len;
    c->queued -= len;
}

/* Copies what is not registered (ordinary chunks, blobs) into a chunk of send memory, as much as fits in it.
 * When values lie in registered memory one day, this is the place that will name them instead. */
static bool gather_copied(struct rdma_connection *c, uint32_t max, uint32_t seq, struct ibv_sge *sge) {
    struct rdma_chunk *to = rdma_chunk_take(&c->device->memory);
    if (!to) return false;
    uint32_t filled = 0;
    if (max > RDMA_CHUNK_SIZE) max = RDMA_CHUNK_SIZE;
    for (struct segment *segment; filled < max && (segment = first_segment(c));) {
        if (segment->chunk && segment->chunk->registered) break;
        size_t part = segment->len < max - filled ? segment->len : max - filled;
        memcpy(to->data + filled, segment->data, part);
        advance_segment(c, segment, part);
        filled += (uint32_t)part;
        if (segment->len == 0) free_segment(c, segment);
    }
    if (filled == 0) { /* only the unsealed end of an ordinary chunk is left */
        size_t part = unsealed(c);
        if (part > max) part = max;
        memcpy(to->data, c->chunk_start, part);
        c->chunk_start += part;
        filled = (uint32_t)part;
    }
    to->last_seq = seq;
    to->used = true;
    chunk_sent(c, to);
    *sge = (struct ibv_sge){.addr = (uintptr_t)to->data, .length = filled, .lkey = to->lkey};
    return true;
}

/* Takes the next bytes off the queue as one element. False: send memory has run out. */
static bool gather(struct rdma_connection *c, uint32_t max, uint32_t seq, bool inlined, struct ibv_sge *sge) {
    struct segment *segment = first_segment(c);
    struct rdma_chunk *chunk = segment ? segment->chunk : c->chunk;
    const char *data = segment ? segment->data : c->chunk_start;
    size_t len = segment ? segment->len : unsealed(c);
    if (!inlined && !(chunk && chunk->registered)) return gather_copied(c, max, seq, sge);
    if (len > max) len = max;
    *sge =
        (struct ibv_sge){.addr = (uintptr_t)data, .length = (uint32_t)len, .lkey = chunk ? chunk->lkey : 0};
    if (!inlined) {
        chunk->last_seq = seq;
        chunk->used = true;
    }
    if (!segment) {
        c->chunk_start += len;
        return true;
    }
    advance_segment(c, segment, len);
    if (segment->len == 0 && !inlined) free_segment(c, segment);
    return true;
}

static void drop_posted(struct rdma_connection *c) {
    while (c->segments.len) {
        struct segment *segment = container_of(list_first(&c->segments), struct segment, link);
        if (segment->len) break;
        free_segment(c, segment);
    }
}

/* Sends one message of at most `limit` bytes. False: nothing could be sent. */
static bool post_message(struct rdma_connection *c, uint32_t limit) {
    struct ibv_send_wr wrs[REQUESTS_A_MESSAGE];
    struct ibv_sge sges[REQUESTS_A_MESSAGE * RDMA_SGE_MAX];
    uint32_t requests = 0, elements = 0, total = 0;
    uint32_t most = send_room(c) - CONTROL_RESERVE, max_sge = (uint32_t)c->device->max_sge;
    bool inlined = limit <= c->max_inline, starved = false;
    if (most > REQUESTS_A_MESSAGE) most = REQUESTS_A_MESSAGE;
    if (inlined) most = 1;
    while (total < limit && requests < most && !starved) {
        uint32_t first = elements, before = total;
        while (total < limit && elements - first < max_sge) {
            starved = !gather(c, limit - total, c->posted + requests + 1, inlined, &sges[elements]);
            if (starved) break;
            total += sges[elements++].length;
        }
        if (elements == first) break;
        struct ibv_send_wr *wr = &wrs[requests];
        *wr = (struct ibv_send_wr){
            .sg_list = &sges[first], .num_sge = (int)(elements - first), .opcode = IBV_WR_RDMA_WRITE};
        wr->wr.rdma.remote_addr = c->peer_addr + c->peer_used + before;
        wr->wr.rdma.rkey = c->peer_key;
        if (requests) wrs[requests - 1].next = wr;
        requests++;
    }
    if (starved && !list_is_linked(&c->starved_link)) {
        list_append(&c->device->starved, &c->starved_link);
        if (c->device->starved.len == 1) rdma_device_relieve(c->device);
    }
    if (total == 0) return false;
    wrs[requests - 1].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wrs[requests - 1].imm_data = htobe32(total);
    if (inlined)
        wrs[requests - 1].send_flags = IBV_SEND_INLINE;
    else
        c->unsignalled_bytes += total;
    c->peer_used += total;
    c->conn.bytes_out += total;
    c->owner->stats.bytes_out += total;
    c->owner->stats.messages_out++;
    bool good = post(c, wrs, requests, false);
    drop_posted(c);
    return good && !starved;
}

void rdma_connection_pump(struct rdma_connection *c) {
    if (c->phase != RDMA_ESTABLISHED || c->end_pending || c->finished) return;
    if (c->want_register) announce_buffer(c);
    if (c->want_feature_reply) answer_features(c);
    for (size_t pending; (pending = c->queued + unsealed(c)) > 0;) {
        uint32_t window = c->peer_size - c->peer_used;
        if (window == 0) {
            if (c->peer_size && !c->stalled) c->owner->stats.stalls++;
            c->stalled = true;
            break;
        }
        if (send_room(c) <= CONTROL_RESERVE) break;
        uint32_t limit = pending < MESSAGE_MAX ? (uint32_t)pending : MESSAGE_MAX;
        if (!post_message(c, limit < window ? limit : window)) break;
    }
    reap(c);
}

static void rdma_flush(struct connection *conn) {
    struct rdma_connection *c = rdma_of(conn);
    if (conn->state != CONN_OPEN || !takes_output(c)) return;
    rdma_connection_pump(c);
    if (c->queued + unsealed(c)) c->waiting = true;
}

/* A closed connection whose last bytes have arrived may go. */
static void check_linger(struct rdma_connection *c) {
    if (!c->lingering || c->finished || c->queued + unsealed(c)) return;
    if (c->posted == c->retired)
        rdma_connection_finish(c);
    else if (reached(c->last_signalled, c->retired) && send_room(c))
        post_marker(c);
}

void rdma_connection_sent(struct rdma_connection *c, uint32_t seq) {
    if (reached(seq, c->retired)) return;
    c->retired = seq;
    rdma_connection_pump(c);
    if (c->waiting && c->queued + unsealed(c) == 0) rdma_connection_ready(c);
    check_linger(c);
}

/* Input */

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
    memcpy(grown, conn->in, conn->in_len);
    mem_free(c->side);
    conn->in = c->side = grown;
}

/* Shows bytes that arrived, or as many of them as is good now. */
static void take_received(struct rdma_connection *c) {
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
        if (part > there) part = there;
        side_make_room(c, part);
        memcpy(c->side + (conn->in - c->side) + conn->in_len, c->rx->data + c->taken, part);
        c->side_from_rx += part;
        there = part;
    } else if (conn->in_len == 0)
        conn->in = c->rx->data + c->taken;
    c->taken += (uint32_t)there;
    conn->in_len += there;
}

static bool may_receive(const struct rdma_connection *c) {
    return c->conn.state == CONN_OPEN && !c->conn.reading_paused && !c->showing &&
           (c->conn.sink || c->conn.in_len < c->conn.in_limit);
}

/* After a handler, and before the next: back from the side buffer when the straddling request is gone; a full buffer starts anew. */
static void settle(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    if (!c->rx || c->showing) return;
    if (c->in_side && conn->in_len <= c->side_from_rx) {
        conn->in = c->rx->data + c->taken - conn->in_len;
        mem_free(c->side);
        c->side = NULL;
        c->in_side = false;
        c->side_size = c->side_from_rx = 0;
    }
    if (c->taken < c->rx->size || !may_receive(c) || c->end_pending) return;
    if (conn->in_len && !c->in_side) {
        c->side = mem_alloc_usable(conn->in_len + SIDE_STEP, &c->side_size);
        memcpy(c->side, conn->in, conn->in_len);
        conn->in = c->side;
        c->in_side = true;
    }
    c->side_from_rx = 0;
    c->received = c->taken = 0;
    announce_buffer(c);
}

static void end_now(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    conn->state = CONN_ENDED;
    conn->error = c->failure;
    event_timer_cancel(conn->loop, &c->timer);
    conn->events->closed(conn);
}

static uint64_t still_silent(struct event_timer *timer) {
    rdma_connection_failed(container_of(timer, struct rdma_connection, timer), ECONNRESET, NULL);
    return 0;
}

void rdma_connection_run(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    if (c->finished || c->showing || conn->state >= CONN_ENDED) return;
    if (conn->state == CONN_OPEN) {
        settle(c);
        while (may_receive(c) && c->received > c->taken) {
            take_received(c);
            c->showing = true;
            conn->events->readable(conn);
            c->showing = false;
            if (conn->state != CONN_OPEN) return;
            settle(c);
        }
        if (c->waiting && c->queued + unsealed(c) == 0 && !c->end_pending) {
            c->waiting = false;
            if (conn->events->drained) conn->events->drained(conn);
            if (conn->state != CONN_OPEN) return;
        }
    }
    if (c->end_pending && (conn->state == CONN_CONNECTING || c->received == c->taken))
        end_now(c);
    else if (c->flushed && !c->end_pending)
        event_timer_set(conn->loop, &c->timer, 20000, still_silent);
}

static void rdma_consume(struct connection *conn, size_t len) {
    struct rdma_connection *c = rdma_of(conn);
    conn->in += len;
    conn->in_len -= len;
    /* What is shown stays where it is until the caller is done. */
    if (!c->showing && c->rx && (c->taken == c->rx->size || c->taken < c->received)) rdma_connection_ready(c);
}

static void rdma_set_reading(struct connection *conn) {
    struct rdma_connection *c = rdma_of(conn);
    if (conn->state == CONN_OPEN) rdma_connection_ready(c);
}

/* What arrives */

static void on_data(struct rdma_connection *c, uint32_t len) {
    if (!c->registered)
        violation(c, "data before our buffer was announced");
    else if (len == 0)
        violation(c, "an immediate of zero bytes");
    else if (len > c->rx->size - c->received)
        violation(c, "an immediate of %u bytes where %u are left", len, c->rx->size - c->received);
    else {
        c->received += len;
        c->conn.bytes_in += len;
        c->owner->stats.bytes_in += len;
        c->owner->stats.messages_in++;
        if (!c->lingering) rdma_connection_ready(c);
    }
}

static void on_peer_buffer(struct rdma_connection *c, const struct rdma_wire_memory *memory) {
    uint64_t addr = be64toh(memory->addr);
    uint32_t size = be32toh(memory->length);
    if (size == 0 || size > PEER_BUFFER_MAX) {
        violation(c, "RegisterXferMemory of %u bytes", size);
    } else if (addr == 0 || addr + size < addr) {
        violation(c, "RegisterXferMemory at address %llx of %u bytes", (unsigned long long)addr, size);
    } else if (c->peer_used < c->peer_size) {
        violation(c, "RegisterXferMemory while %u bytes of the buffer are free", c->peer_size - c->peer_used);
    } else {
        c->peer_addr = addr;
        c->peer_size = size;
        c->peer_key = be32toh(memory->key);
        c->peer_used = 0;
        c->stalled = false;
        if (!c->flushed && !c->lingering) event_timer_cancel(c->conn.loop, &c->timer);
        rdma_connection_pump(c);
        if (c->waiting && c->queued + unsealed(c) == 0) rdma_connection_ready(c);
        check_linger(c);
    }
}

static void on_control(struct rdma_connection *c, uint32_t len, const union rdma_wire_message *message) {
    c->owner->stats.control_in++;
    if (len != sizeof *message) {
        violation(c, "a control message of %u bytes", len);
        return;
    }
    unsigned opcode = be16toh(message->opcode);
    /* RegisterXferMemory is bounded by what we send. */
    if (opcode != RDMA_OP_REGISTER_XFER_MEMORY && c->control_budget-- == 0) {
        violation(c, "a flood of control messages");
        return;
    }
    switch (opcode) {
    case RDMA_OP_REGISTER_XFER_MEMORY: on_peer_buffer(c, &message->memory); return;
    case RDMA_OP_KEEPALIVE: return;
    case RDMA_OP_GET_SERVER_FEATURE:
        if (!c->passive) break;
        c->feature_select = be16toh(message->feature.select);
        if (c->phase == RDMA_ESTABLISHED)
            answer_features(c);
        else
            c->want_feature_reply = true;
        return;
    case RDMA_OP_SET_CLIENT_FEATURE:
        if (!c->passive) break;
        if (message->feature.features)
            violation(c, "it sets features %llx that we do not offer",
                      (unsigned long long)be64toh(message->feature.features));
        return;
    }
    violation(c, "a control message with opcode %u", opcode);
}

void rdma_connection_received(struct rdma_connection *c, const struct ibv_wc *wc,
                              const union rdma_wire_message *message) {
    if (c->end_pending || c->finished) return;
    if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
        on_data(c, be32toh(wc->imm_data));
    else
        on_control(c, wc->byte_len, message);
}

static int error_of(enum ibv_wc_status status) {
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR: return ETIMEDOUT;
    case IBV_WC_RNR_RETRY_EXC_ERR: return ENOBUFS;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR: return EPROTO;
    default: return EIO;
    }
}

void rdma_connection_broken(struct rdma_connection *c, const struct ibv_wc *wc) {
    if (c->end_pending || c->finished) return;
    if (wc->status == IBV_WC_WR_FLUSH_ERR) {
        /* Requests are flushed when the peer disconnects, too; the event that says so may be on its way. */
        if (c->flushed) return;
        c->flushed = true;
        if (c->lingering)
            rdma_connection_finish(c);
        else
            rdma_connection_ready(c);
        return;
    }
    if (rdma_is_receive(wc)) {
        violation(c, "a message that does not fit a control message (%s)", ibv_wc_status_str(wc->status));
        return;
    }
    log_verbose("RDMA: connection with %s (%s) failed: %s", c->target, c->device->name,
                ibv_wc_status_str(wc->status));
    rdma_connection_failed(c, error_of(wc->status), ibv_wc_status_str(wc->status));
}

/* Life */

void rdma_connection_init(struct rdma_connection *c, struct rdma_loop *owner, enum connection_state state) {
    c->conn.out.ops = &rdma_output_ops;
    c->conn.transport = &transport_rdma;
    c->conn.loop = owner->loop;
    c->conn.state = state;
    c->conn.in_limit = IN_LIMIT_DEFAULT;
    c->owner = owner;
    c->held_end = &c->held;
    c->control_budget = CONTROL_A_TICK;
    list_init(&c->segments);
    list_append(&owner->connections, &c->link);
    owner->stats.connections++;
    rdma_loop_tick_start(owner);
}

static uint64_t never_registered(struct event_timer *timer) {
    struct rdma_connection *c = container_of(timer, struct rdma_connection, timer);
    violation(c, "no RegisterXferMemory within %d seconds", REGISTER_TIMEOUT_US / 1000000);
    return 0;
}

void rdma_connection_opened(struct rdma_connection *c) {
    c->phase = RDMA_ESTABLISHED;
    c->conn.state = CONN_OPEN;
    /* When our receives run out, the peer shall try again soon; the default of the connection manager is 655 ms. */
    struct ibv_qp_attr attr = {.min_rnr_timer = 1 /* 10 us */};
    ibv_modify_qp(c->qp, &attr, IBV_QP_MIN_RNR_TIMER);
    event_timer_cancel(c->conn.loop, &c->timer);
    if (!c->peer_size) event_timer_set(c->conn.loop, &c->timer, REGISTER_TIMEOUT_US, never_registered);
    announce_buffer(c);
    c->last_control_us = clock_mono();
}

void rdma_connection_tick(struct rdma_connection *c, uint64_t now) {
    c->control_budget = CONTROL_A_TICK;
    if (c->phase != RDMA_ESTABLISHED || c->end_pending || c->finished) return;
    uint64_t period = (uint64_t)rdma_settings.keepalive_ms * 1000;
    if (period && now - c->last_control_us >= period) {
        union rdma_wire_message message = {.keepalive = {.opcode = htobe16(RDMA_OP_KEEPALIVE)}};
        send_control(c, &message);
    }
    /* Quiet, and nothing under way that will tell when the send memory is free. */
    if (c->posted == c->tick_posted && c->posted != c->retired && reached(c->last_signalled, c->retired) &&
        send_room(c))
        post_marker(c);
    c->tick_posted = c->posted;
    if (c->control && c->posted == c->retired) {
        rdma_chunk_give(&c->device->memory, c->control);
        c->control = NULL;
    }
}

static uint64_t lingered_enough(struct event_timer *timer) {
    rdma_connection_finish(container_of(timer, struct rdma_connection, timer));
    return 0;
}

static void rdma_close(struct connection *conn) {
    struct rdma_connection *c = rdma_of(conn);
    if (takes_output(c) && c->phase == RDMA_ESTABLISHED && !c->flushed &&
        (c->queued + unsealed(c) || c->posted != c->retired)) {
        if (list_is_linked(&c->ready_link)) list_remove(&c->owner->ready, &c->ready_link);
        c->lingering = true;
        conn->state = CONN_CLOSED;
        event_timer_set(conn->loop, &c->timer, LINGER_US, lingered_enough);
        rdma_connection_pump(c);
        check_linger(c);
    } else {
        conn->state = CONN_CLOSED;
        if (rdma_usable()) rdma_connection_finish(c);
    }
    conn->in_len = 0;
    conn->sink = NULL;
}

void rdma_connection_release(struct rdma_connection *c) {
    if (c->released) return;
    c->released = true;
    list_remove(&c->owner->connections, &c->link);
    c->owner->stats.connections--;
    if (c->passive) c->owner->accepted--;
    if (c->device) {
        rdma_device_drain(c->device); /* its receives come back before the queue pair goes */
        rdma_queue_pair_destroy(c);
    }
    c->retired = c->posted;
    drop_output(c);
    if (c->control) rdma_chunk_give(&c->device->memory, c->control);
    if (c->rx) rdma_rx_give(&c->device->memory, c->rx);
    if (c->id) rdma_destroy_id(c->id);
    c->id = NULL;
    c->rx = NULL;
    mem_free(c->side);
    c->side = NULL;
    mem_free(c->error_note);
    c->error_note = NULL;
}

/* For people */

static int rdma_fd(const struct connection *conn) {
    return -1;
}
static int rdma_set_keepalive(struct connection *conn, int seconds) {
    return 0;
} /* rdma_settings.keepalive_ms, for all */

static const char *rdma_error_text(const struct connection *conn) {
    const struct rdma_connection *c = rdma_of(conn);
    if (c->error_note) return c->error_note;
    return conn->error ? strerror(conn->error) : "Connection closed by the peer";
}

static size_t rdma_memory(const struct connection *conn, size_t *input, size_t *output) {
    const struct rdma_connection *c = rdma_of(conn);
    size_t in = (c->rx ? c->rx->size : 0) + c->side_size;
    size_t out = c->queued + (c->chunk ? RDMA_CHUNK_SIZE : 0) + (c->control ? RDMA_CHUNK_SIZE : 0) +
                 c->segments.len * sizeof(struct segment);
    for (const struct rdma_chunk *chunk = c->held; chunk; chunk = chunk->next) out += RDMA_CHUNK_SIZE;
    if (input) *input = in;
    if (output) *output = out;
    return sizeof *c + in + out;
}

static void rdma_describe(const struct connection *conn, char *text, size_t size) {
    const struct rdma_connection *c = rdma_of(conn);
    snprintf(text, size, "device=%s rx=%u", c->device ? c->device->name : "?", c->rx ? c->rx->size : 0);
}

const struct transport transport_rdma = {
    .name = "rdma",
    .connect = rdma_connect_start,
    .listen = rdma_listen_start,
    .consume = rdma_consume,
    .set_reading = rdma_set_reading,
    .flush = rdma_flush,
    .pending = rdma_pending,
    .close = rdma_close,
    .address = rdma_connection_address,
    .fd = rdma_fd,
    .is_local = rdma_connection_is_local,
    .set_keepalive = rdma_set_keepalive,
    .error_text = rdma_error_text,
    .memory = rdma_memory,
    .describe = rdma_describe,
};
