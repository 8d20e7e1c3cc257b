/* output.h: a place to write bytes to, in place.
 *
 * Whoever produces bytes (a reply, a request, a dump) writes to [pos, end) and moves pos. When there is too little room
 * it asks make_room. Behind it stands a connection's send memory, a growing buffer, or nothing. This is the one
 * interface by which bytes leave: resp/ writes replies into it without knowing what a connection is.
 *
 * Not thread-safe: an output belongs to the thread of its owner. */
#ifndef LIB_OUTPUT_H
#define LIB_OUTPUT_H
#include "lib/blob.h"
#include "lib/slice.h"
#include <stdint.h>

struct output {
    char *pos; /* where the next byte goes */
    char *end; /* end of the room */
    const struct output_ops *ops;
};

struct output_ops {
    /* Takes what was written up to pos and points pos and end at room for at least `len` bytes more. May not fail: an
     * owner that can take no more (closed connection, limit passed) points at scratch memory whose content it drops. */
    void (*make_room)(struct output *out, size_t len);
    /* Puts the blob's bytes next in the stream, without copying them where it can, and takes over one reference. NULL:
     * this output wants copies. Called only for blobs of at least share_min bytes. */
    void (*share)(struct output *out, struct blob *blob);
    size_t share_min;
};
enum {
    OUTPUT_SHARE_MIN = 16 * 1024 /* of outputs to which a blob costs more than a copy of fewer bytes */,
    OUTPUT_ROOM_MAX = 4096 /* the most a single output_reserve may ask for */
};

/* Returns room for `len` <= OUTPUT_ROOM_MAX bytes; write there, then output_commit() what was used. */
static inline char *output_reserve(struct output *out, size_t len) {
    if (__builtin_expect((size_t)(out->end - out->pos) < len, 0)) out->ops->make_room(out, len);
    return out->pos;
}
static inline void output_commit(struct output *out, size_t len) {
    out->pos += len;
}
void output_write_slow(struct output *out, struct slice bytes);
static inline void output_write(struct output *out, struct slice bytes) { /* any length */
    if (__builtin_expect((size_t)(out->end - out->pos) < bytes.len, 0)) {
        output_write_slow(out, bytes);
        return;
    }
    if (bytes.len) memcpy(out->pos, bytes.data, bytes.len);
    out->pos += bytes.len;
}
static inline bool output_shares(const struct output *out, const struct blob *blob) {
    return out->ops->share && blob->len >= out->ops->share_min;
}
/* Writes the blob's bytes, shared where that pays; the caller keeps its own reference. Bytes that are shared do not
 * move `pos`; `end` is moved by a byte instead, so that whoever counts what is written by the way of `pos` sees that
 * there was more, as he does where it goes on in other memory. */
void output_write_blob(struct output *out, struct blob *blob);

/* An output that keeps everything in one growing piece of memory. */
struct memory_output {
    struct output out; /* must be first */
    char *data;
    size_t capacity;
};
void memory_output_init(struct memory_output *m);
void memory_output_free(struct memory_output *m);
void memory_output_clear(struct memory_output *m); /* keeps the memory */
static inline struct slice memory_output_slice(const struct memory_output *m) {
    return (struct slice){m->data, (size_t)(m->out.pos - m->data)};
}
/* An output that drops everything (CLIENT REPLY OFF, a call that nobody listens to). One for each thread is enough. */
struct null_output {
    struct output out; /* must be first */
    char scratch[OUTPUT_ROOM_MAX];
};
void null_output_init(struct null_output *n);
#endif
