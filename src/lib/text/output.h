/* output.h: an output buffer that callers write to in place.
 *
 * The writer of a reply, a request or a dump writes to [pos, end) and advances pos. If the space is too small it calls
 * make_space. Behind an output is the send memory of a connection, a growing buffer, or nothing. resp/ writes replies
 * through this interface without knowing about connections.
 *
 * The length of a reply is a client's choice, so its memory may run out. Then the output fails: it drops its content,
 * discards what follows, and tells its owner (a connection closes). Callers need not know, but one that writes very
 * much asks its owner from time to time.
 *
 * Not thread-safe: an output belongs to the thread of its owner. */
#pragma once
#include "lib/system/must.h"
#include "lib/text/blob.h"
#include "lib/text/slice.h"

struct placement;

struct output {
    char *pos; /* next byte to write */
    char *end; /* end of the space */
    const struct output_ops *ops;
    bool failed; /* its memory has run out */
};

struct output_ops {
    /* Consumes the bytes written up to pos and sets pos and end to space for at least `len` more bytes. Always provides
     * it: an owner that accepts no more bytes (connection closed, out of memory) provides scratch memory and drops its
     * content. */
    void (*make_space)(struct output *out, size_t len);
    void (*give_up)(struct output *out); /* output_fail(); NULL: the output holds nothing */
    /* Queues the blob's bytes next in the stream, without a copy where possible, and takes over one reference. NULL:
     * this output always copies. Called only for blobs of at least share_min bytes. */
    void (*share)(struct output *out, struct blob *blob);
    size_t share_min;
    /* A string of a file format whose encoding the output chooses, because compressing it takes long
     * (formats/deferred_output.h). `blob`: has the string; NULL: none does. NULL: the writer chooses the encoding. */
    void (*string)(struct output *out, struct slice text, struct blob *blob);
    void (*place)(struct output *out, struct placement *placement); /* net/placement.h; NULL: it cannot */
};
enum {
    OUTPUT_SHARE_MIN = 16 * 1024 /* for outputs where a blob costs more than a copy of fewer bytes */,
    OUTPUT_RESERVE_MAX = 4096 /* maximum of one output_reserve call */
};

/* Returns space for `len` <= OUTPUT_RESERVE_MAX bytes. Write there, then call output_commit() with the bytes used. */
void output_make_space(struct output *out, size_t len);
static inline char *output_reserve(struct output *out, size_t len) {
    if (__builtin_expect((size_t)(out->end - out->pos) < len, 0)) output_make_space(out, len);
    return out->pos;
}
static inline void output_commit(struct output *out, size_t len) {
    must_in_tests(len <= (size_t)(out->end - out->pos));
    out->pos += len;
}
static inline void output_write_byte(struct output *out, uint8_t byte) {
    output_reserve(out, 1)[0] = (char)byte;
    output_commit(out, 1);
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
/* Writes the blob's bytes, shared where that is cheaper; the caller keeps its own reference. Sharing does not move
 * `pos`; it moves `end` by one byte instead, so that a caller that measures its output by `pos` detects that bytes went
 * another way, as it does when the output switches to other memory. */
void output_write_blob(struct output *out, struct blob *blob);
/* For what is written here on behalf of the caller, memory has run out: the output fails. */
static inline void output_fail(struct output *out) {
    if (out->ops->give_up) out->ops->give_up(out);
}

/* An output into one growing buffer. It begins as MEMORY_OUTPUT_INIT, or by one of the two functions. */
struct memory_output {
    struct output out; /* must be first */
    char *data;
    size_t capacity;
};
extern const struct output_ops memory_output_ops;
#define MEMORY_OUTPUT_INIT                                                                                             \
    { .out.ops = &memory_output_ops }
void memory_output_init(struct memory_output *m); /* for content of bounded size: without memory the program aborts */
void memory_output_init_try(struct memory_output *m); /* for any content: the caller looks at out.failed */
void memory_output_free(struct memory_output *m);
void memory_output_clear(struct memory_output *m); /* keeps the memory */
static inline struct slice memory_output_slice(const struct memory_output *m) {
    return m->out.failed ? (struct slice){0} : (struct slice){m->data, (size_t)(m->out.pos - m->data)};
}
/* An implementation of make_space for owners that accept no more bytes: provides scratch memory of the thread. */
void output_discard(struct output *out);

/* An output that discards everything (CLIENT REPLY OFF, calls without a receiver). One per thread is enough. */
struct null_output {
    struct output out; /* must be first */
    char scratch[OUTPUT_RESERVE_MAX];
};
void null_output_init(struct null_output *n);
