/* blob.h: a byte string of any size in its own allocation, shared by reference counting.
 *
 * A value too large to be embedded in its entry is a blob. A reply can hold a reference to the blob and send it without
 * a copy, and a large argument is received straight into one. The count is atomic because background threads free
 * values and other threads send replies; the cost is small against the size of a blob. Only the holder of the single
 * reference may write to the bytes (blob_is_shared() returns false): a reply that is being sent holds another
 * reference.
 *
 * Large blobs can come from a separate allocator whose memory a transport can send without a copy
 * (blob_set_large_allocator). Other code does not see the difference. */
#pragma once
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stdint.h>

struct blob {
    _Atomic uint32_t references;
    uint32_t crc;         /* CRC-32C of the bytes; 0: not computed. Main thread; a write to the bytes resets it */
    size_t len;           /* bytes in use */
    size_t capacity : 63; /* bytes allocated for data */
    size_t large : 1;     /* allocated by the large allocator */
    char data[];          /* always followed by one spare byte for a NUL */
};

struct blob *blob_new(size_t len, size_t capacity); /* contents undefined; one reference; capacity >= len */
struct blob *blob_try_new(size_t len);              /* NULL: out of memory */
/* From the large allocator, whatever its size. NULL: there is none, or its memory is exhausted. */
struct blob *blob_try_new_large(size_t len);
struct blob *blob_copy(struct slice bytes);
struct blob *blob_hold(struct blob *blob); /* adds a reference */
bool blob_is_shared(const struct blob *blob);
void blob_release(struct blob *blob); /* frees the blob with the last reference */
/* Grows the blob to a capacity of at least `capacity` bytes. The caller must hold the only reference. The capacity
 * grows by half up to 1 MiB, then in steps of 1 MiB. Returns the blob, which may have moved. */
struct blob *blob_grow(struct blob *blob, size_t capacity);
size_t blob_memory(const struct blob *blob); /* bytes allocated, header included */
/* Moves a blob out of a sparse slab and updates the pointer (relocate.h). A shared blob does not move. */
struct relocation;
void blob_relocate(struct relocation *r, struct blob **pointer);

/* The allocator of blobs with a capacity of at least `min` bytes. Any thread may call its functions. */
struct blob_allocator {
    void *(*take)(size_t size, size_t *usable); /* NULL: exhausted; the blob comes from ordinary memory */
    void (*give)(void *block);
    size_t (*size)(const void *block);
    /* False: a child process reads the block. Called in BLOB_LARGE_READ_BY_CHILD only. */
    bool (*writable)(const void *block);
};
/* Which process uses the allocator's blobs after a fork: parent and child share their memory. */
enum blob_large_use {
    BLOB_LARGE_OWN,           /* this process */
    BLOB_LARGE_READ_BY_CHILD, /* this process and a child: a blob that is not `writable` counts as shared */
    BLOB_LARGE_FOREIGN,       /* the parent; this is the child: holding and releasing such a blob does nothing */
};
void blob_set_large_use(enum blob_large_use use);
/* Sets the allocator once for the life of the process, because its blobs must be returned to it. `min` may change at
 * any time; SIZE_MAX stops new allocations from it. */
void blob_set_large_allocator(const struct blob_allocator *allocator, size_t min);
static inline struct slice blob_slice(const struct blob *blob) {
    return (struct slice){blob->data, blob->len};
}
