/* blob.c: reference-counted byte strings; see blob.h. */
#include "lib/text/blob.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/relocate.h"
#include <stdatomic.h>

enum { GROW_STEP_MAX = 1024 * 1024 };

/* Header, data and the spare byte after it. */
static bool blob_bytes(size_t capacity, size_t *bytes) {
    return !__builtin_add_overflow(capacity, sizeof(struct blob) + 1, bytes);
}

static const struct blob_allocator *large_allocator;
static _Atomic size_t large_min = SIZE_MAX;
static _Atomic enum blob_large_use large_use;

void blob_set_large_use(enum blob_large_use use) {
    atomic_store_explicit(&large_use, use, memory_order_release);
}
static inline bool is_foreign(const struct blob *blob) {
    return blob->large && atomic_load_explicit(&large_use, memory_order_relaxed) == BLOB_LARGE_FOREIGN;
}

void blob_set_large_allocator(const struct blob_allocator *allocator, size_t min) {
    must(!large_allocator || large_allocator == allocator);
    large_allocator = allocator;
    atomic_store_explicit(&large_min, min, memory_order_release);
}

/* The capacity is the usable size of the allocation. */
static struct blob *blob_setup(struct blob *blob, size_t len, size_t usable, bool large) {
    atomic_init(&blob->references, 1);
    blob->crc = 0;
    blob->large = large;
    blob->len = len;
    blob->capacity = usable - sizeof(struct blob) - 1;
    return blob;
}

/* NULL: the blob is too small for the large allocator, or its memory is exhausted. */
static inline struct blob *large_new(size_t len, size_t bytes) {
    if (__builtin_expect(bytes - sizeof(struct blob) - 1 < atomic_load_explicit(&large_min, memory_order_acquire), 1))
        return NULL;
    size_t usable;
    struct blob *blob = large_allocator->take(bytes, &usable);
    return blob ? blob_setup(blob, len, usable, true) : NULL;
}

struct blob *blob_new(size_t len, size_t capacity) {
    size_t bytes, usable;
    if (capacity < len) capacity = len;
    if (!blob_bytes(capacity, &bytes)) bytes = SIZE_MAX; /* fails in the out-of-memory handler */
    struct blob *blob = large_new(len, bytes);
    if (blob) return blob;
    blob = mem_alloc_usable(bytes, &usable);
    return blob_setup(blob, len, usable, false);
}

struct blob *blob_try_new(size_t len) {
    size_t bytes;
    if (!blob_bytes(len, &bytes)) return NULL;
    struct blob *blob = large_new(len, bytes);
    if (blob) return blob;
    blob = mem_try_alloc(bytes);
    return blob ? blob_setup(blob, len, bytes, false) : NULL;
}

struct blob *blob_try_new_large(size_t len) {
    size_t bytes, usable;
    if (!blob_bytes(len, &bytes) || atomic_load_explicit(&large_min, memory_order_acquire) == SIZE_MAX) return NULL;
    struct blob *blob = large_allocator->take(bytes, &usable);
    return blob ? blob_setup(blob, len, usable, true) : NULL;
}

struct blob *blob_copy(struct slice bytes) {
    struct blob *blob = blob_new(bytes.len, bytes.len);
    if (bytes.len) memcpy(blob->data, bytes.data, bytes.len);
    return blob;
}

struct blob *blob_hold(struct blob *blob) {
    if (is_foreign(blob)) return blob;
    uint32_t before = atomic_fetch_add_explicit(&blob->references, 1, memory_order_relaxed);
    must_hold(before > 0 && before < UINT32_MAX, "%u references", before);
    return blob;
}

static inline bool has_other_holders(const struct blob *blob) {
    return atomic_load_explicit(&blob->references, memory_order_acquire) != 1;
}

bool blob_is_shared(const struct blob *blob) {
    if (has_other_holders(blob)) return true;
    enum blob_large_use use = atomic_load_explicit(&large_use, memory_order_acquire);
    if (!blob->large || use == BLOB_LARGE_OWN) return false;
    return use == BLOB_LARGE_FOREIGN || !large_allocator->writable(blob);
}

static void blob_free(struct blob *blob) {
    atomic_store_explicit(&blob->references, 0, memory_order_relaxed); /* a later use of the blob fails */
    if (blob->large)
        large_allocator->give(blob);
    else
        mem_free(blob);
}

/* If the caller holds the only reference, no other thread can add one, so no atomic read-modify-write is needed. */
void blob_release(struct blob *blob) {
    if (is_foreign(blob)) return;
    if (has_other_holders(blob)) {
        uint32_t before = atomic_fetch_sub_explicit(&blob->references, 1, memory_order_acq_rel);
        must(before > 0);
        if (before > 1) return;
    }
    blob_free(blob);
}

size_t blob_memory(const struct blob *blob) {
    return blob->large ? large_allocator->size(blob) : mem_size(blob);
}

static struct blob *blob_move(struct blob *from, struct blob *to) {
    must_within(from->len, to->capacity);
    memcpy(to->data, from->data, from->len);
    blob_free(from);
    return to;
}

struct blob *blob_grow(struct blob *blob, size_t capacity) {
    must(!has_other_holders(blob));
    if (capacity <= blob->capacity) return blob;
    size_t step = blob->capacity / 2 < GROW_STEP_MAX ? blob->capacity / 2 : GROW_STEP_MAX;
    size_t wanted = blob->capacity + step, bytes, usable;
    if (wanted < capacity) wanted = capacity;
    if (!blob_bytes(wanted, &bytes)) bytes = SIZE_MAX;
    size_t len = blob->len;
    struct blob *large = large_new(len, bytes);
    if (large) return blob_move(blob, large);
    if (blob->large) return blob_move(blob, blob_new(len, wanted));
    blob = mem_realloc_usable(blob, bytes, &usable);
    return blob_setup(blob, len, usable, false);
}

void blob_relocate(struct relocation *r, struct blob **pointer) {
    void *block = *pointer;
    if ((*pointer)->large || blob_is_shared(*pointer)) {
        r->stayed++;
        return;
    }
    relocate_block(r, &block);
    *pointer = block;
}
