/* rdma_send.c: the sending half of the data path: output that was written to a connection becomes work requests.
 * rdma_connection.h describes the structure.
 *
 * Send queue.  Every work request has a sequence number; completions come in order, so a completed one retires all
 * before it. posted - retired never exceeds the depth of the queue, hence posting cannot find it full. CONTROL_RESERVE
 * entries are kept for control messages. Since every quarter of the queue asks for a completion, a full queue always
 * has one coming.
 *
 * Rejected: one work request a segment (a doorbell and a completion at the peer for each), asking for every completion
 * (they cost both the card and us), waiting a moment to collect more output before sending (latency). */
#include "net/rdma_connection.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include <endian.h>
#include <errno.h>
#include <string.h>

enum {
    MESSAGE_MAX = 128 * 1024, /* bytes announced by one immediate */
    CONTROL_RESERVE = 4,
    REGISTERED_MAX = 128 * 1024, /* output queued beyond this waits in ordinary memory */
    SIGNAL_BYTES = 64 * 1024,
    COPY_LEAST = 256, /* a chunk of copies with less space than this counts as full */
};

/* A queued part of the stream: bytes in a chunk or a blob. */
struct segment {
    struct list_link link;
    const char *data;
    size_t len;
    struct rdma_chunk *chunk;
    struct blob *blob; /* when chunk is NULL */
    bool used;         /* a request reads the blob in place … */
    uint32_t last_seq; /* … and this is the last one */
};

/* Output: segments and chunks */

/* Every chunk of the connection but `control` is taken and given back through these, and so counted. */
static struct rdma_chunk *take_chunk(struct rdma_connection *c) {
    struct rdma_chunk *chunk = rdma_chunk_take(&c->device->memory);
    if (chunk) c->chunks++;
    return chunk;
}

static struct rdma_chunk *take_plain_chunk(struct rdma_connection *c) {
    c->chunks++;
    return rdma_chunk_plain();
}

static void give_chunk(struct rdma_connection *c, struct rdma_chunk *chunk) {
    c->chunks--;
    rdma_chunk_give(c->device ? &c->device->memory : NULL, chunk);
}

static bool in_flight(const struct rdma_connection *c, const struct rdma_chunk *chunk) {
    return chunk->used && !rdma_seq_reached(chunk->last_seq, c->retired);
}

/* Call when the chunk holds no unsent bytes and is not written to: gives it back, or keeps it until its requests have
 * completed. */
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
    if (segment->chunk) {
        leave_chunk(c, segment->chunk);
    } else if (segment->used && !rdma_seq_reached(segment->last_seq, c->retired)) {
        list_append(&c->values, &segment->link);
        return;
    } else {
        blob_release(segment->blob);
    }
    mem_free(segment);
}

/* Detaches the chunk of conn.out. All of it is sealed or sent. */
static void retire_chunk(struct rdma_connection *c) {
    struct rdma_chunk *chunk = c->chunk;
    c->chunk = NULL;
    c->chunk_start = c->conn.out.pos = c->conn.out.end = NULL;
    if (chunk && chunk->unsent == 0) chunk_sent(c, chunk);
}

/* Copies go to another chunk from here on. */
static void retire_copies(struct rdma_connection *c) {
    struct rdma_chunk *chunk = c->copies;
    c->copies = NULL;
    c->copies_used = 0;
    if (chunk) chunk_sent(c, chunk);
}

/* Gives back the chunks and blobs that no request reads any more. */
static void reap(struct rdma_connection *c) {
    while (c->held && !in_flight(c, c->held)) {
        struct rdma_chunk *chunk = c->held;
        c->held = chunk->next;
        if (!c->held) c->held_end = &c->held;
        give_chunk(c, chunk);
    }
    for (struct list_link *link; (link = list_first(&c->values));) {
        struct segment *segment = container_of(link, struct segment, link);
        if (!rdma_seq_reached(segment->last_seq, c->retired)) break;
        list_remove(&c->values, link);
        blob_release(segment->blob);
        mem_free(segment);
    }
    if (c->chunk && c->chunk_start == c->conn.out.pos && c->chunk->unsent == 0 && !in_flight(c, c->chunk))
        retire_chunk(c);
    if (c->copies && !in_flight(c, c->copies)) retire_copies(c);
}

/* Turns the bytes written to the chunk since the last call into a segment. */
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

void rdma_send_unregister(struct rdma_connection *c) {
    struct rdma_chunk *plain = NULL;
    size_t used = 0;
    if (c->chunk && c->chunk->registered) {
        seal(c);
        retire_chunk(c);
    }
    for (struct list_link *link = c->segments.head.next; link != &c->segments.head; link = link->next) {
        struct segment *segment = container_of(link, struct segment, link);
        if (!segment->chunk || !segment->chunk->registered || !segment->len) continue;
        if (!plain || RDMA_CHUNK_SIZE - used < segment->len) { /* short headers between blobs share one */
            plain = take_plain_chunk(c);
            used = 0;
        }
        memcpy(plain->data + used, segment->data, segment->len);
        plain->unsent++;
        leave_chunk(c, segment->chunk);
        segment->chunk = plain;
        segment->data = plain->data + used;
        used += segment->len;
    }
    reap(c);
}

void rdma_send_drop(struct rdma_connection *c) {
    while (c->segments.len) free_segment(c, container_of(list_first(&c->segments), struct segment, link));
    c->queued = c->queued_blobs = 0;
    c->waiting = false;
    retire_chunk(c);
    retire_copies(c);
    reap(c);
}

static void rdma_make_room(struct output *out, size_t len) {
    static _Thread_local char dropped[OUTPUT_ROOM_MAX];
    struct rdma_connection *c = rdma_of((struct connection *)out);
    if (!rdma_takes_output(c)) {
        out->pos = dropped;
        out->end = dropped + sizeof dropped;
        return;
    }
    if (c->chunk) {
        seal(c);
        retire_chunk(c);
    }
    if (c->phase == RDMA_ESTABLISHED && !c->stalled && c->queued < REGISTERED_MAX) c->chunk = take_chunk(c);
    if (!c->chunk) c->chunk = take_plain_chunk(c);
    c->chunk_start = out->pos = c->chunk->data;
    out->end = c->chunk->data + RDMA_CHUNK_SIZE;
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
    if (c->chunk) seal(c);
    struct segment *segment = mem_alloc(sizeof *segment);
    *segment = (struct segment){.data = blob->data, .len = blob->len, .blob = blob};
    list_append(&c->segments, &segment->link);
    c->queued += blob->len;
    c->queued_blobs += blob->len;
}

struct output_ops rdma_output_ops = {.make_room = rdma_make_room, .share = rdma_share, .share_min = OUTPUT_SHARE_MIN};

static inline size_t unsealed(const struct rdma_connection *c) {
    return c->chunk ? (size_t)(c->conn.out.pos - c->chunk_start) : 0;
}

size_t rdma_send_pending(const struct rdma_connection *c) {
    return c->queued + unsealed(c);
}

/* Posting */

static inline uint32_t send_space(const struct rdma_connection *c) {
    return c->send_depth - (c->posted - c->retired);
}

/* Posts a chain of `count` requests that end a message or are a control message. */
static bool post(struct rdma_connection *c, struct ibv_send_wr *wrs, uint32_t count, bool must_signal) {
    struct ibv_send_wr *last = &wrs[count - 1], *bad;
    c->posted += count;
    if (must_signal || c->posted - c->last_signalled >= c->signal_every || c->unsignalled_bytes >= SIGNAL_BYTES) {
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
    rdma_connection_failed(c, error, "posting to the send queue failed");
    return false;
}

bool rdma_send_control(struct rdma_connection *c, const union rdma_wire_message *message) {
    if (send_space(c) == 0) return false;
    struct ibv_sge sge = {.addr = (uintptr_t)message, .length = sizeof *message};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    if (c->max_inline >= sizeof *message)
        wr.send_flags = IBV_SEND_INLINE;
    else {
        /* One element for each outstanding sequence number. */
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

bool rdma_send_read(struct rdma_connection *c, struct ibv_send_wr *wr) {
    if (send_space(c) <= CONTROL_RESERVE + (uint32_t)c->polled.out) return false;
    post(c, wr, 1, true);
    return true;
}

/* A signalled request without bytes, whose completion covers all requests before it. */
static void post_marker(struct rdma_connection *c) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
    wr.wr.rdma.remote_addr = c->peer_addr;
    wr.wr.rdma.rkey = c->peer_key;
    post(c, &wr, 1, true);
}

/* The first segment with bytes to send. An inlined segment stays in the list, empty, until it has been posted. */
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
    if (!segment->chunk) c->queued_blobs -= len;
}

/* Whether a request can read the bytes in place, and with which local key. It cannot read an ordinary chunk, or a value
 * in ordinary memory. */
static inline bool segment_key(struct rdma_connection *c, const struct segment *segment, uint32_t *key) {
    if (!segment->chunk)
        return rdma_values_has(segment->blob) && rdma_values_key(c->device, &c->device->values, segment->data, key);
    *key = segment->chunk->lkey;
    return segment->chunk->registered;
}

/* Copies bytes that a request cannot read in place into a chunk of send memory, as many as fit. */
static bool gather_copied(struct rdma_connection *c, uint32_t max, uint32_t seq, struct ibv_sge *sge) {
    if (c->copies && RDMA_CHUNK_SIZE - c->copies_used < COPY_LEAST) retire_copies(c);
    if (!c->copies && !(c->copies = take_chunk(c))) return false;
    struct rdma_chunk *chunk = c->copies;
    char *to = chunk->data + c->copies_used;
    uint32_t filled = 0, key;
    if (max > RDMA_CHUNK_SIZE - c->copies_used) max = RDMA_CHUNK_SIZE - c->copies_used;
    for (struct segment *segment; filled < max && (segment = first_segment(c));) {
        if (filled && segment_key(c, segment, &key)) break;
        size_t part = segment->len < max - filled ? segment->len : max - filled;
        memcpy(to + filled, segment->data, part);
        advance_segment(c, segment, part);
        filled += (uint32_t)part;
        if (segment->len == 0) free_segment(c, segment);
    }
    if (filled == 0) { /* only the unsealed end of an ordinary chunk remains */
        size_t part = unsealed(c);
        if (part > max) part = max;
        memcpy(to, c->chunk_start, part);
        c->chunk_start += part;
        filled = (uint32_t)part;
    }
    chunk->last_seq = seq;
    chunk->used = true;
    c->copies_used += filled;
    *sge = (struct ibv_sge){.addr = (uintptr_t)to, .length = filled, .lkey = chunk->lkey};
    return true;
}

static void mark_used(struct rdma_connection *c, struct segment *segment, struct rdma_chunk *chunk, uint32_t seq,
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
    struct segment *segment = first_segment(c);
    struct rdma_chunk *chunk = segment ? segment->chunk : c->chunk;
    const char *data = segment ? segment->data : c->chunk_start;
    size_t len = segment ? segment->len : unsealed(c);
    uint32_t key = chunk ? chunk->lkey : 0;
    bool named = inlined || (segment ? segment_key(c, segment, &key) : chunk->registered);
    if (!named) return gather_copied(c, max, seq, sge);
    if (len > max) len = max;
    *sge = (struct ibv_sge){.addr = (uintptr_t)data, .length = (uint32_t)len, .lkey = key};
    if (!inlined) mark_used(c, segment, chunk, seq, (uint32_t)len);
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

static inline void use_window(struct rdma_connection *c, uint32_t len) {
    c->window -= len;
    c->peer_used += len;
    if (c->peer_used >= c->peer_size) c->peer_used -= c->peer_size;
}

/* Sends one message of at most `limit` bytes. False: nothing could be sent. */
static bool post_message(struct rdma_connection *c, uint32_t limit) {
    struct ibv_send_wr wrs[RDMA_MESSAGE_REQUESTS + 1];
    struct ibv_sge sges[RDMA_MESSAGE_REQUESTS * RDMA_SGE_MAX + 1];
    bool polled =
        c->polled.out; /* if set, a WRITE of the peer's word may announce the message in place of an immediate */
    uint64_t word;
    uint32_t immediate;
    uint32_t requests = 0, elements = 0, total = 0;
    uint32_t most = send_space(c) - CONTROL_RESERVE - polled;
    uint32_t edge =
        c->peer_size - c->peer_used; /* a request ends at the end of a ring; a plain buffer takes no more than that */
    bool inlined = limit <= c->max_inline, starved = false;
    if (inlined && limit > edge) limit = edge;
    if (most > c->message_requests) most = c->message_requests;
    if (inlined) most = 1;
    while (total < limit && requests < most && !starved) {
        uint32_t first = elements, before = total, stop = total < edge && edge < limit ? edge : limit;
        while (total < stop && elements - first < c->request_elements) {
            starved = !gather(c, stop - total, c->posted + requests + 1, inlined, &sges[elements]);
            if (starved) break;
            total += sges[elements++].length;
        }
        if (elements == first) break;
        struct ibv_send_wr *wr = &wrs[requests];
        *wr = (struct ibv_send_wr){
            .sg_list = &sges[first], .num_sge = (int)(elements - first), .opcode = IBV_WR_RDMA_WRITE};
        wr->wr.rdma.remote_addr = before < edge ? c->peer_addr + c->peer_used + before : c->peer_addr + (before - edge);
        wr->wr.rdma.rkey = c->peer_key;
        if (requests) wrs[requests - 1].next = wr;
        requests++;
    }
    if (starved && !list_is_linked(&c->starved_link)) {
        rdma_starved_begin(c);
        if (c->device->starved.len == 1) rdma_device_relieve(c->device);
    }
    if (total == 0) return false;
    if (inlined)
        wrs[requests - 1].send_flags = IBV_SEND_INLINE;
    else
        c->unsignalled_bytes += total;
    if (rdma_polled_announce(c, total, sges, elements, &wrs[requests], &sges[elements], &word, &immediate)) {
        wrs[requests - 1].next = &wrs[requests];
        requests++;
    } else {
        wrs[requests - 1].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wrs[requests - 1].imm_data = htobe32(immediate);
    }
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
    if (c->wants_control) rdma_control_pump(c);
    for (size_t pending; !c->ring.owes_taken && (pending = rdma_send_pending(c)) > 0;) {
        uint32_t window = c->window;
        if (window == 0) {
            rdma_stall_begin(c);
            break;
        }
        if (send_space(c) <= CONTROL_RESERVE + (uint32_t)c->polled.out) break;
        uint32_t limit = pending < MESSAGE_MAX ? (uint32_t)pending : MESSAGE_MAX;
        if (!post_message(c, limit < window ? limit : window)) break;
    }
    reap(c);
}

void rdma_send_flush(struct rdma_connection *c) {
    if (c->conn.state != CONN_OPEN || !rdma_takes_output(c)) return;
    rdma_send_pump(c);
    if (rdma_send_pending(c)) c->waiting = true;
}

void rdma_send_resume(struct rdma_connection *c) {
    rdma_stall_end(c);
    /* A peer may announce its buffer before the connection is established here; then the timer is the one of accepting.
     */
    if (c->phase == RDMA_ESTABLISHED && !c->flushed && !c->lingering) event_timer_cancel(c->conn.loop, &c->timer);
    rdma_send_pump(c);
    if (c->waiting && rdma_send_pending(c) == 0) rdma_connection_ready(c);
    rdma_send_check_linger(c);
}

void rdma_send_check_linger(struct rdma_connection *c) {
    if (!c->lingering || c->finished || rdma_send_pending(c)) return;
    if (c->posted == c->retired)
        rdma_connection_finish(c);
    else if (rdma_seq_reached(c->last_signalled, c->retired) && send_space(c))
        post_marker(c);
}

void rdma_connection_sent(struct rdma_connection *c, uint32_t seq) {
    if (rdma_seq_reached(seq, c->retired)) return;
    c->retired = seq;
    if (__builtin_expect(c->reads != NULL, 0)) rdma_reads_completed(c);
    rdma_send_pump(c);
    if (c->waiting && rdma_send_pending(c) == 0) rdma_connection_ready(c);
    rdma_send_check_linger(c);
}

void rdma_send_tick(struct rdma_connection *c) {
    /* Requests from before the last tick are outstanding, and no signalled one will report that their send memory is
     * free. */
    if (!rdma_seq_reached(c->tick_posted, c->retired) && rdma_seq_reached(c->last_signalled, c->retired) &&
        send_space(c))
        post_marker(c);
    c->tick_posted = c->posted;
    if (c->control && c->posted == c->retired) {
        rdma_chunk_give(&c->device->memory, c->control);
        c->control = NULL;
    }
}

size_t rdma_send_memory(const struct rdma_connection *c) {
    size_t chunks = c->chunks + (c->control ? 1 : 0);
    return chunks * RDMA_CHUNK_SIZE + c->queued_blobs + c->segments.len * sizeof(struct segment);
}

void rdma_send_release(struct rdma_connection *c) {
    c->retired = c->posted;
    rdma_send_drop(c);
    if (c->control) rdma_chunk_give(&c->device->memory, c->control);
    c->control = NULL;
}
