/* blob.h: a byte string of any size in an allocation of its own, shared by counting references.
 *
 * A value too large to stand inside its entry is a blob; a reply may hold a reference to it and so be sent without a
 * copy, and a large argument is received straight into one. The count is atomic, because values are also freed in the
 * background and replies may be sent by other threads; blobs are large, so that costs nothing in proportion. Only who
 * holds the single reference (blob_is_shared says no) may write to the bytes: whoever sends them holds another one.
 *
 * Large blobs may come from an allocator of their own, from whose memory a transport can send without a copy
 * (blob_set_large_allocator). Nobody else can tell. */
#ifndef LIB_BLOB_H
#define LIB_BLOB_H
#include "lib/slice.h"
#include <stdbool.h>
#include <stdint.h>

struct blob {
    _Atomic uint32_t references;
    bool large;      /* it came from the large allocator */
    size_t len;      /* bytes in use */
    size_t capacity; /* bytes that fit */
    char data[];     /* always followed by one spare byte, so that a NUL can be put there */
};

struct blob *blob_new(size_t len, size_t capacity); /* contents undefined; one reference; capacity >= len */
struct blob *blob_try_new(size_t len);              /* NULL where memory is short */
struct blob *blob_copy(struct slice bytes);
struct blob *blob_hold(struct blob *blob); /* one more reference */
bool blob_is_shared(const struct blob *blob);
void blob_release(struct blob *blob); /* frees with the last one */
/* Makes room for `capacity` bytes; the caller holds the only reference. Growth is by half again up to 1 MiB, then by
 * 1 MiB. Returns the blob, perhaps moved. */
struct blob *blob_grow(struct blob *blob, size_t capacity);
size_t blob_memory(const struct blob *blob); /* bytes that it takes up */

/* Where blobs with room for at least `min` bytes come from. All may be called by any thread. */
struct blob_allocator {
    void *(*take)(size_t size, size_t *usable); /* NULL: there is none to be had; ordinary memory is taken */
    void (*give)(void *block);
    size_t (*size)(const void *block);
    bool (*writable)(
        const void *block); /* false: a child process reads the block. Asked in BLOB_LARGE_READ_BY_CHILD only */
};
/* Who uses the allocator's blobs, whose memory parent and child share. */
enum blob_large_use {
    BLOB_LARGE_OWN,           /* this process */
    BLOB_LARGE_READ_BY_CHILD, /* a child, too: a blob that is not `writable` counts as shared */
    BLOB_LARGE_FOREIGN,       /* the parent; this is the child. Holding and releasing them does nothing */
};
void blob_set_large_use(enum blob_large_use use);
/* The allocator is set once and stays, what it gave has to go back to it; `min` may be changed at any time (SIZE_MAX:
 * nothing more is taken from it). */
void blob_set_large_allocator(const struct blob_allocator *allocator, size_t min);
static inline struct slice blob_slice(const struct blob *blob) {
    return (struct slice){blob->data, blob->len};
}
#endif
