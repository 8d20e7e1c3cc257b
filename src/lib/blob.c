/* blob.c: reference-counted byte strings; see blob.h. */
#include "lib/blob.h"
#include "lib/memory.h"
#include <stdatomic.h>

enum { GROW_STEP_MAX = 1024 * 1024 };

/* Header, bytes, and the spare byte behind them. */
static bool blob_bytes(size_t capacity, size_t *bytes) {
    return !__builtin_add_overflow(capacity, sizeof(struct blob) + 1, bytes);
}

/* All that the allocator gave is capacity. */
static struct blob *blob_setup(struct blob *blob, size_t len, size_t usable) {
    atomic_init(&blob->references, 1);
    blob->len = len;
    blob->capacity = usable - sizeof(struct blob) - 1;
    return blob;
}

struct blob *blob_new(size_t len, size_t capacity) {
    size_t bytes, usable;
    if (capacity < len) capacity = len;
    if (!blob_bytes(capacity, &bytes)) bytes = SIZE_MAX; /* ends in the out-of-memory handler */
    struct blob *blob = mem_alloc_usable(bytes, &usable);
    return blob_setup(blob, len, usable);
}

struct blob *blob_try_new(size_t len) {
    size_t bytes;
    if (!blob_bytes(len, &bytes)) return NULL;
    struct blob *blob = mem_try_alloc(bytes);
    return blob ? blob_setup(blob, len, bytes) : NULL;
}

struct blob *blob_copy(struct slice bytes) {
    struct blob *blob = blob_new(bytes.len, bytes.len);
    if (bytes.len) memcpy(blob->data, bytes.data, bytes.len);
    return blob;
}

struct blob *blob_hold(struct blob *blob) {
    atomic_fetch_add_explicit(&blob->references, 1, memory_order_relaxed);
    return blob;
}

bool blob_is_shared(const struct blob *blob) {
    return atomic_load_explicit(&blob->references, memory_order_acquire) != 1;
}

/* Nobody can take another reference from the last one but its holder, who is here: then no locked instruction is needed. */
void blob_release(struct blob *blob) {
    if (!blob_is_shared(blob) || atomic_fetch_sub_explicit(&blob->references, 1, memory_order_acq_rel) == 1)
        mem_free(blob);
}

struct blob *blob_grow(struct blob *blob, size_t capacity) {
    if (capacity <= blob->capacity) return blob;
    size_t step = blob->capacity / 2 < GROW_STEP_MAX ? blob->capacity / 2 : GROW_STEP_MAX;
    size_t wanted = blob->capacity + step, bytes, usable;
    if (wanted < capacity) wanted = capacity;
    if (!blob_bytes(wanted, &bytes)) bytes = SIZE_MAX;
    size_t len = blob->len;
    blob = mem_realloc_usable(blob, bytes, &usable);
    return blob_setup(blob, len, usable);
}
