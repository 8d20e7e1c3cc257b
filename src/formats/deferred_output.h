/* deferred_output.h: an output whose bytes another thread compresses and writes.
 *
 * The writer fills batches of DEFERRED_BATCH bytes. A batch owns everything in it, so it can pass to another thread,
 * which shares nothing with the writer: bytes are copied, and a blob is held by a reference, which keeps others from
 * changing it. Strings that are worth compressing stay uncompressed in the batch, with their positions;
 * deferred_batch_write() compresses them.
 *
 * The writer is the main thread, or another one that reads values in place (store/loan.h).
 *
 * A batch belongs to one thread at a time. */
#pragma once
#include "lib/text/output.h"

enum {
    DEFERRED_BATCH = 128 * 1024,
    DEFERRED_SHARE_MIN = 1024 /* shorter blobs are copied */
};

struct deferred_string {
    uint32_t at;        /* in bytes: what precedes the string, and the string itself unless `blob` has it */
    uint32_t len : 31;  /* of the string in bytes; 0 if `blob` has it */
    uint32_t plain : 1; /* the blob's bytes as they are, without a length */
    struct blob *blob;  /* holds a reference */
};

struct deferred_batch {
    size_t len;  /* of bytes */
    size_t held; /* bytes of blobs */
    size_t strings, capacity;
    struct deferred_string *string;
    void *owner;   /* for the receiver of the batch, */
    uint64_t keys; /* and so is this */
    char bytes[DEFERRED_BATCH];
};
static inline size_t deferred_batch_memory(const struct deferred_batch *batch) { /* bytes, without those of blobs */
    return sizeof *batch + batch->capacity * sizeof *batch->string;
}
/* Writes the content to an output that does not defer. Ends early, after at most one string that is compressed or
 * 1 MiB, when *stop is set. Any thread. */
void deferred_batch_write(const struct deferred_batch *batch, struct output *out, const _Atomic bool *stop);
void deferred_batch_free(struct deferred_batch *batch); /* any thread */

struct deferred_output {
    struct output out; /* must be first */
    /* Receives each batch that is full, and owns it. */
    void (*full)(void *context, struct deferred_batch *batch);
    void *context;
    bool uncompressed;            /* compress no string; rdbcompression decides nothing here. May be set after init */
    struct deferred_batch *batch; /* private */
};
void deferred_output_init(struct deferred_output *output, void (*full)(void *, struct deferred_batch *), void *context);
/* Strings are copied from now on, or not: for values that change without copying what a reference holds. */
void deferred_output_copies(struct deferred_output *output, bool copies);
size_t deferred_output_memory(const struct deferred_output *output); /* of the batch at hand, with its blobs */
void deferred_output_flush(struct deferred_output *output);          /* passes on a batch that is not full */
void deferred_output_free(struct deferred_output *output);           /* what was not passed on is lost */
