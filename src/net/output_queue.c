/* output_queue.c: see output_queue.h. */
#include "net/output_queue.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"

static void chunk_append(struct output_queue *q, const char *data, size_t len, struct output_chunk *chunk,
                         struct blob *blob) {
    struct output_segment *segment = mem_alloc(sizeof *segment);
    segment->link = (struct list_link){0};
    segment->data = data;
    segment->len = len;
    segment->chunk = chunk;
    segment->blob = blob;
    segment->used = false;
    list_append(&q->segments, &segment->link);
    q->queued += len;
}

void output_queue_append(struct output_queue *q, struct output *out, size_t len) {
    must_equal(len, output_queue_unsealed(q, out));
    chunk_append(q, q->chunk_start, len, q->chunk, NULL);
    q->chunk->segments++;
    q->chunk_start = out->pos;
}

void output_queue_share(struct output_queue *q, struct output *out, struct blob *blob) {
    output_queue_seal(q, out);
    chunk_append(q, blob->data, blob->len, NULL, blob);
    q->queued_blobs += blob->len;
}

struct output_chunk *output_queue_remove(struct output_queue *q, struct output_segment *segment) {
    struct output_chunk *chunk = segment->chunk;
    output_queue_advance(q, segment, segment->len);
    list_remove(&q->segments, &segment->link);
    if (!chunk) blob_release(segment->blob);
    mem_free(segment);
    return chunk ? output_queue_move_out(q, chunk) : NULL;
}
