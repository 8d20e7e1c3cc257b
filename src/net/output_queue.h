/* output_queue.h: the output of a connection that is not sent yet, for the transports that send bytes themselves.
 *
 * conn->out writes into a chunk: memory that the transport provides. A segment is a part of the stream, in a chunk or
 * in a shared blob. The bytes at the end of the chunk that conn->out writes to belong to no segment until they are
 * sealed, and a transport may send them from there: a connection whose output leaves with each flush has no segments.
 *
 * A chunk is free once conn->out has left it and no segment is in it. The functions that can free a chunk return it,
 * and the transport gives it back to where it came from.
 *
 * Not thread-safe: a queue belongs to the thread of its connection.
 *
 * Rejected: this queue for remote.c. Its output is written into messages, which become the end's property when they are
 * sent: a queue of segments in front of them would allocate memory for each. */
#pragma once
#include "lib/structures/linked_list.h"
#include "lib/system/must.h"
#include "lib/text/output.h"

/* The transport embeds it in its chunk. Zero in a chunk that is handed to output_queue_open(). */
struct output_chunk {
    uint32_t segments; /* queued segments in it */
};

struct output_segment {
    struct list_link link;
    const char *data;
    size_t len;
    struct output_chunk *chunk;
    struct blob *blob; /* when chunk is NULL; one reference */
    bool used;         /* private to RDMA: a request reads the blob in place */
    uint32_t last_seq; /* private to RDMA: number of the last request that does, if `used` */
};

struct output_queue {
    struct list segments;
    size_t queued;              /* bytes in segments */
    size_t queued_blobs;        /* of them in blobs */
    struct output_chunk *chunk; /* that the output writes to, or NULL */
    char *chunk_start;          /* the bytes from here to out->pos belong to no segment yet */
};

static inline void output_queue_init(struct output_queue *q) {
    *q = (struct output_queue){0};
    list_init(&q->segments);
}
static inline size_t output_queue_unsealed(const struct output_queue *q, const struct output *out) {
    return q->chunk ? (size_t)(out->pos - q->chunk_start) : 0;
}
static inline size_t output_queue_pending(const struct output_queue *q, const struct output *out) { /* bytes */
    return q->queued + output_queue_unsealed(q, out);
}
static inline struct output_segment *output_queue_first(const struct output_queue *q) { /* there is one */
    must(q->segments.len > 0);
    return container_of(q->segments.head.next, struct output_segment, link);
}

/* Lets `out` write to the `size` bytes at `data`, which are the chunk's. It writes to no other chunk now. */
static inline void output_queue_open(struct output_queue *q, struct output *out, struct output_chunk *chunk, char *data,
                                     size_t size) {
    must(!q->chunk && chunk->segments == 0);
    q->chunk = chunk;
    q->chunk_start = out->pos = data;
    out->end = data + size;
}
/* Turns the unsealed bytes, `len` of them, into a segment. */
void output_queue_append(struct output_queue *q, struct output *out, size_t len);
static inline void output_queue_seal(struct output_queue *q, struct output *out) {
    size_t len = output_queue_unsealed(q, out);
    if (len) output_queue_append(q, out, len);
}
/* `out` leaves its chunk, if it has one, and drops unsealed bytes. Returns the chunk if it is free, or NULL. */
static inline struct output_chunk *output_queue_leave(struct output_queue *q, struct output *out) {
    struct output_chunk *chunk = q->chunk;
    q->chunk = NULL;
    q->chunk_start = out->pos = out->end = NULL;
    return chunk && chunk->segments == 0 ? chunk : NULL;
}
/* Queues the blob behind all bytes written so far, and takes over one reference. */
void output_queue_share(struct output_queue *q, struct output *out, struct blob *blob);

/* The first `len` bytes of the segment are sent. The segment stays, even if no byte is left. */
static inline void output_queue_advance(struct output_queue *q, struct output_segment *segment, size_t len) {
    must_within(len, segment->len);
    must_within(len, q->queued);
    segment->data += len;
    segment->len -= len;
    q->queued -= len;
    if (!segment->chunk) q->queued_blobs -= len;
}
/* Removes the segment, with the bytes left in it, and frees it. Returns its chunk if that is free now, or NULL. */
struct output_chunk *output_queue_remove(struct output_queue *q, struct output_segment *segment);
/* A segment moves out of the chunk. Returns the chunk if it is free now, or NULL. */
static inline struct output_chunk *output_queue_move_out(const struct output_queue *q, struct output_chunk *chunk) {
    must(chunk->segments > 0);
    return --chunk->segments == 0 && chunk != q->chunk ? chunk : NULL;
}
