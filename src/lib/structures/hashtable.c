/* hashtable.c: see hashtable.h.
 *
 * A bucket is one cache line:
 *
 *     byte 0      meta: a bit for each slot that holds an entry, and CHAINED
 *     bytes 1-7   one hash byte per entry
 *     bytes 8-63  7 pointers to entries; in a chained bucket 6, and the last points to the child bucket
 *
 * Only the last bucket of a chain has free slots: the others hold 6 entries. The last holds at least 2 (a single entry
 * would fit into its parent), so a chain is never longer than necessary. A deletion in any other bucket moves the last
 * entry of the chain to the free slot. A deletion in the last bucket leaves a free slot, and the next entry is stored
 * in the first free slot. So a table of up to 7 entries lists them in the order of Valkey, even after deletions.
 *
 * The low bits of the hash select the bucket; the top 8 bits are the hash byte stored beside the entry. A lookup
 * compares all 7 hash bytes in parallel; it reads one in 256 of the entries that do not match.
 *
 * Sizes. A table doubles when it has more than 7 entries per bucket, and shrinks to about half full when less than one
 * slot in eight is used. It takes 10 to 19 bytes per entry, about 15 on average, children included. At 7 entries per
 * bucket on average, one lookup in five continues in a child. Growing earlier was not worth the memory.
 *
 * Resizing. During a resize there are two arrays: buckets move from `arrays[0]`, from bucket 0 to the last, into
 * `arrays[1]`. New entries go into arrays[1]. Every insertion and deletion moves REHASH_STEP buckets, so a resize
 * completes long before the next one is due. Growing reads the keys of the entries again, so they are prefetched.
 * Shrinking need not, because the index of the bucket gives the low bits of the hash.
 *
 * Scan. The cursor counts buckets with the highest bit first ("reverse binary"): when the table doubles, bucket b
 * splits into b and b + size, which are adjacent in that order at the position of b; when it halves they merge again.
 * So the buckets before the cursor hold only visited entries, whatever the size of the table. While there are two
 * arrays, a call visits one bucket of the smaller array and all corresponding buckets of the larger one.
 *
 * Rejected: open addressing over all buckets (no scan guarantee without tombstones, and long probes when nearly full);
 * more hash bits per entry, so that growing need not read keys (2 bytes per entry). */
#include "lib/structures/hashtable.h"
#include "lib/hash/siphash.h"
#include "lib/system/clock.h"
#include "lib/system/likely.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include <stdatomic.h>
#include <stdio.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    SLOTS = 7,        /* slots in a bucket */
    USED = 0x7f,      /* in meta: a bit for each slot */
    CHAINED = 0x80,   /* in meta: the last slot points to the child, and its bit is not set */
    PARENT = 0xbf,    /* the meta of each bucket that has a child */
    REHASH_STEP = 2,  /* buckets moved by every change */
    FILL_FORCED = 5,  /* load factor at which HASHTABLE_RESIZE_AVOID still grows */
    SHRINK_BELOW = 8, /* shrink below one used slot in this number */
    LINE = 64,        /* of the cache, in bytes */
    SECOND_LINE = 32, /* prefetched with the start of an entry: its key may extend into the next line */
    EMPTY_VISITS = 10 /* empty buckets skipped per bucket to move */
};

struct bucket {
    uint8_t meta;
    uint8_t hashes[SLOTS];
    void *entries[SLOTS];
};
_Static_assert(sizeof(struct bucket) == 8 + SLOTS * sizeof(void *), "a bucket has no holes");
_Static_assert(sizeof(void *) != 8 || sizeof(struct bucket) == 64, "a bucket is a cache line");

struct array {
    struct bucket *buckets; /* NULL: no array */
    size_t mask;            /* number of buckets - 1 */
};

struct hashtable {
    const struct hashtable_type *type;
    struct array arrays[2]; /* the second only while resizing */
    size_t used;            /* entries */
    size_t rehash_index;    /* buckets of arrays[0] below it are empty */
    uint64_t children : 48; /* child buckets */
    uint64_t held : 16;     /* open iterators, which prevent resizing */
};
_Static_assert(sizeof(void *) != 8 || sizeof(struct hashtable) == 64, "of the many small tables each is a cache line");

static _Atomic enum hashtable_resizing resizing = HASHTABLE_RESIZE;
static uint8_t seed[16], names_seed[16]; /* names_seed: for tables that ignore case, which exist before `seed` is set */
static _Atomic bool seeded;

void hashtable_set_resizing(enum hashtable_resizing policy) {
    resizing = policy;
}
static void seed_once(void) {
    if (likely(seeded)) return;
    random_bytes(seed, sizeof(seed));
    random_bytes(names_seed, sizeof(names_seed));
    seeded = true;
}
void hashtable_set_seed(const uint8_t new_seed[16]) {
    seed_once();
    memcpy(seed, new_seed, sizeof(seed));
}

uint32_t hashtable_seed_number(void) {
    static const char text[] = "seed";
    seed_once();
    return (uint32_t)siphash(text, sizeof(text), seed);
}

/* --- Keys --- */

static inline uint64_t type_hash(const struct hashtable_type *type, struct slice key) {
    return type->ignore_case ? siphash_nocase(key.data, key.len, names_seed) : siphash(key.data, key.len, seed);
}
static inline uint64_t hash_of(const struct hashtable *table, struct slice key) {
    return type_hash(table->type, key);
}
static inline uint8_t hash_byte(uint64_t hash) {
    return (uint8_t)(hash >> 56);
}

static bool equal_nocase(struct slice a, struct slice b) {
    for (size_t i = 0; i < a.len; i++) {
        unsigned char x = (unsigned char)a.data[i], y = (unsigned char)b.data[i];
        if (x >= 'A' && x <= 'Z') x |= 0x20;
        if (y >= 'A' && y <= 'Z') y |= 0x20;
        if (x != y) return false;
    }
    return true;
}
static inline bool key_is(const struct hashtable_type *type, const void *entry, struct slice key) {
    struct slice other = type->key(entry);
    if (other.len != key.len) return false;
    if (unlikely(type->ignore_case)) return equal_nocase(other, key);
    return memcmp(other.data, key.data, key.len) == 0;
}

/* --- Buckets --- */

static inline unsigned bucket_used(const struct bucket *b) {
    return b->meta & USED;
}
/* Sums the bits in pairs, then in fours, because the baseline instruction set has no POPCNT. */
static inline unsigned bucket_count(const struct bucket *b) {
    unsigned bits = bucket_used(b);
    bits -= bits >> 1 & 0x55;
    bits = (bits & 0x33) + (bits >> 2 & 0x33);
    return (bits + (bits >> 4)) & 0xf;
}
/* Runs the statement that follows with `slot` at each slot that holds an entry, from the first to the last. */
#define each_used_slot(slot, b)                                                                                        \
    for (unsigned slot = 0, used_ = bucket_used(b); used_ >> slot; slot++)                                             \
        if (likely(used_ >> slot & 1))
static inline bool bucket_chained(const struct bucket *b) {
    return b->meta & CHAINED;
}
static inline struct bucket *bucket_child(const struct bucket *b) {
    return bucket_chained(b) ? b->entries[SLOTS - 1] : NULL;
}

/* Returns a bit for each slot whose hash byte is `byte`. */
static inline unsigned bucket_matches(const struct bucket *b, uint8_t byte) {
    unsigned taken = bucket_used(b);
#ifdef __SSE2__
    __m128i line = _mm_loadl_epi64((const __m128i *)(const void *)b);
    __m128i same = _mm_cmpeq_epi8(line, _mm_set1_epi8((char)byte));
    return (unsigned)_mm_movemask_epi8(same) >> 1 & taken;
#else
    unsigned same = 0;
    for (unsigned i = 0; i < SLOTS; i++) same |= (unsigned)(b->hashes[i] == byte) << i;
    return same & taken;
#endif
}

static void bucket_put(struct bucket *b, unsigned location, uint8_t byte, void *entry) {
    b->meta |= (uint8_t)(1u << location);
    b->hashes[location] = byte;
    b->entries[location] = entry;
}

/* Adds an entry to the chain. */
static void chain_append(struct hashtable *table, struct bucket *b, uint8_t byte, void *entry) {
    while (bucket_chained(b)) b = bucket_child(b);
    if (unlikely(bucket_used(b) == USED)) {
        struct bucket *child = mem_alloc(sizeof(*child));
        memset(child, 0, sizeof(*child));
        bucket_put(child, 0, b->hashes[SLOTS - 1], b->entries[SLOTS - 1]);
        b->entries[SLOTS - 1] = child;
        b->meta = PARENT;
        table->children++;
        b = child;
    }
    bucket_put(b, (unsigned)__builtin_ctz(~(unsigned)b->meta), byte, entry);
}

/* Removes the entry of a slot. True: the bucket was a child and has been freed; its remaining entry is now in the last
 * slot of the parent. */
static bool chain_remove(struct hashtable *table, struct bucket *b, unsigned location, struct bucket *parent) {
    struct bucket *last = b, *above = parent;
    must_hold(bucket_used(b) >> location & 1, "slot %u of %x", location, bucket_used(b));
    while (bucket_chained(last)) above = last, last = bucket_child(last);
    if (last != b) {
        unsigned end = 31u - (unsigned)__builtin_clz(bucket_used(last));
        bucket_put(b, location, last->hashes[end], last->entries[end]);
        location = end;
    }
    last->meta &= (uint8_t) ~(1u << location);
    if (!above || bucket_used(last) & (bucket_used(last) - 1)) return false;
    must(bucket_used(last)); /* a child had two entries at least */
    unsigned left = (unsigned)__builtin_ctz(bucket_used(last));
    above->meta = PARENT & USED;
    bucket_put(above, SLOTS - 1, last->hashes[left], last->entries[left]);
    mem_free(last);
    table->children--;
    return last == b;
}

static void chain_free(struct hashtable *table, struct bucket *b) {
    for (struct bucket *child = bucket_child(b), *next; child; child = next) {
        next = bucket_child(child);
        mem_free(child);
        table->children--;
    }
    b->meta = 0;
}

/* --- Arrays and resizing --- */

static inline bool rehashing(const struct hashtable *table) {
    return table->arrays[1].buckets != NULL;
}
static inline size_t array_slots(const struct array *a) {
    return a->buckets ? (a->mask + 1) * SLOTS : 0;
}
/* The array that receives new entries. */
static inline struct array *target(struct hashtable *table) {
    return &table->arrays[rehashing(table)];
}

/* The smallest power of two of buckets that have at least `slots` slots together. */
static size_t buckets_for(size_t slots) {
    size_t needed = slots / SLOTS + (slots % SLOTS != 0);
    return needed <= 1 ? 1 : (size_t)1 << (64 - __builtin_clzll(needed - 1));
}

static void resize_end(struct hashtable *table) {
    mem_free(table->arrays[0].buckets);
    table->arrays[0] = table->arrays[1];
    table->arrays[1] = (struct array){NULL, 0};
    table->rehash_index = 0;
}

static void prefetch_entries(const struct bucket *b) {
    each_used_slot(i, b) __builtin_prefetch(b->entries[i]);
}

static void move_bucket(struct hashtable *table, size_t index) {
    struct array *from = &table->arrays[0], *to = &table->arrays[1];
    struct bucket *head = &from->buckets[index];
    bool shrinking = to->mask < from->mask;
    for (struct bucket *b = head; b; b = bucket_child(b)) {
        struct bucket *child = bucket_child(b);
        if (child && !shrinking) prefetch_entries(child);
        each_used_slot(i, b) {
            void *entry = b->entries[i];
            uint64_t low = shrinking ? index : hash_of(table, table->type->key(entry));
            chain_append(table, &to->buckets[low & to->mask], b->hashes[i], entry);
        }
    }
    chain_free(table, head);
}

/* Moves up to `buckets` non-empty buckets. */
static void rehash_step(struct hashtable *table, size_t buckets) {
    struct array *from = &table->arrays[0];
    size_t visits = buckets * EMPTY_VISITS;
    must_within(table->rehash_index, from->mask);
    while (buckets && visits--) {
        if (bucket_used(&from->buckets[table->rehash_index])) {
            move_bucket(table, table->rehash_index);
            buckets--;
        }
        if (table->rehash_index++ == from->mask) {
            resize_end(table);
            return;
        }
    }
    /* Prefetch the entries of the next step. */
    for (size_t i = table->rehash_index; i <= from->mask && i < table->rehash_index + REHASH_STEP; i++)
        prefetch_entries(&from->buckets[i]);
}

/* True: the policy allows a resize for a table with this number of slots. */
static bool resizing_allowed(const struct hashtable *table, size_t slots) {
    if (table->held) return false;
    enum hashtable_resizing policy = atomic_load_explicit(&resizing, memory_order_relaxed);
    if (likely(policy == HASHTABLE_RESIZE)) return true;
    return policy == HASHTABLE_RESIZE_AVOID && table->used / FILL_FORCED > slots;
}
static bool rehashing_allowed(const struct hashtable *table) { /* nor may the new array be overfull */
    size_t old = array_slots(&table->arrays[0]), new = array_slots(&table->arrays[1]);
    return resizing_allowed(table, old < new ? old : new);
}

/* False: out of memory. */
static bool resize_to(struct hashtable *table, size_t buckets) {
    bool first = !table->arrays[0].buckets;
    must(!rehashing(table));
    must_hold(buckets && !(buckets & (buckets - 1)), "%zu buckets", buckets);
    if (!first && buckets == table->arrays[0].mask + 1) return true;
    struct array new = {mem_try_calloc(buckets, sizeof(struct bucket)), buckets - 1};
    if (!new.buckets) return false;
    table->arrays[!first] = new;
    table->rehash_index = 0;
    if (!first && !table->used) resize_end(table);
    return true;
}

static void step_with_change(struct hashtable *table) {
    if (rehashing(table) && rehashing_allowed(table)) rehash_step(table, REHASH_STEP);
}

/* Called before an insertion. */
static inline void grow_where_needed(struct hashtable *table) {
    if (unlikely(rehashing(table))) {
        step_with_change(table);
        return;
    }
    size_t slots = array_slots(&table->arrays[0]);
    if (likely(table->used < slots)) return;
    if (!slots) {
        table->arrays[0] = (struct array){mem_calloc(1, sizeof(struct bucket)), 0};
    } else if (resizing_allowed(table, slots)) {
        size_t buckets = buckets_for(table->used + 1);
        if (table->type->may_grow && table->used / FILL_FORCED <= slots &&
            !table->type->may_grow(buckets * sizeof(struct bucket)))
            return;
        resize_to(table, buckets); /* out of memory: the chains grow instead */
    }
}

/* Called after a deletion. */
static void shrink_where_possible(struct hashtable *table) {
    if (rehashing(table)) {
        step_with_change(table);
        return;
    }
    struct array *a = &table->arrays[0];
    if (a->mask && table->used < array_slots(a) / SHRINK_BELOW && resizing == HASHTABLE_RESIZE && !table->held)
        resize_to(table, buckets_for(table->used * 2));
}

void hashtable_resize_where_needed(struct hashtable *table) {
    if (rehashing(table) || !table->arrays[0].buckets) return;
    grow_where_needed(table);
    if (!rehashing(table)) shrink_where_possible(table);
}

void hashtable_expand(struct hashtable *table, size_t entries) {
    if (rehashing(table) || table->held || entries <= array_slots(&table->arrays[0])) return;
    if (entries <= SIZE_MAX / 128) resize_to(table, buckets_for(entries));
}

bool hashtable_is_rehashing(const struct hashtable *table) {
    return rehashing(table);
}

size_t hashtable_rehashing_memory(const struct hashtable *table) {
    return rehashing(table) ? (table->arrays[0].mask + 1) * sizeof(struct bucket) : 0;
}

bool hashtable_rehash_for(struct hashtable *table, uint64_t microseconds) {
    if (!rehashing(table) || !rehashing_allowed(table)) return false;
    uint64_t end = clock_monotonic_us() + microseconds;
    do {
        rehash_step(table, 64);
    } while (rehashing(table) && clock_monotonic_us() < end);
    return rehashing(table);
}

/* --- Creation and destruction --- */

struct hashtable *hashtable_new(const struct hashtable_type *type) {
    seed_once();
    struct hashtable *table = mem_calloc(1, sizeof(*table));
    table->type = type;
    return table;
}

void hashtable_clear(struct hashtable *table) {
    must_equal(table->held, 0);
    for (int i = 0; i < 2; i++) {
        struct array *a = &table->arrays[i];
        for (size_t index = 0; a->buckets && index <= a->mask; index++) {
            struct bucket *head = &a->buckets[index];
            for (struct bucket *b = head; table->type->free_entry && b; b = bucket_child(b))
                each_used_slot(p, b) table->type->free_entry(b->entries[p]);
            chain_free(table, head);
        }
        mem_free(a->buckets);
        *a = (struct array){NULL, 0};
    }
    must_equal(table->children, 0);
    table->used = table->rehash_index = 0;
}

void hashtable_free(struct hashtable *table) {
    if (!table) return;
    hashtable_clear(table);
    mem_free(table);
}

size_t hashtable_size(const struct hashtable *table) {
    return table->used;
}

size_t hashtable_buckets_memory(const struct hashtable *table) {
    size_t buckets = table->children;
    for (int i = 0; i < 2; i++)
        if (table->arrays[i].buckets) buckets += table->arrays[i].mask + 1;
    return buckets * sizeof(struct bucket);
}
size_t hashtable_memory(const struct hashtable *table) {
    return mem_size(table) + hashtable_buckets_memory(table);
}

/* --- Lookup and changes --- */

/* The location of an entry. */
struct location {
    struct bucket *bucket, *parent;
    unsigned index;
};

static bool chain_find(const struct hashtable_type *type, struct bucket *b, struct slice key, uint64_t hash,
                       struct location *location) {
    uint8_t byte = hash_byte(hash);
    struct bucket *parent = NULL, *child;
    for (; b; parent = b, b = child) {
        child = bucket_child(b);
        for (unsigned matches = bucket_matches(b, byte); matches; matches &= matches - 1) {
            unsigned index = (unsigned)__builtin_ctz(matches);
            __builtin_prefetch((const char *)b->entries[index] + SECOND_LINE);
            if (likely(key_is(type, b->entries[index], key))) {
                *location = (struct location){b, parent, index};
                return true;
            }
        }
    }
    return false;
}

static inline bool find(struct hashtable *table, struct slice key, uint64_t hash, struct location *location) {
    struct array *a = table->arrays;
    if (likely(!rehashing(table)))
        return a[0].buckets && chain_find(table->type, &a[0].buckets[hash & a[0].mask], key, hash, location);
    struct bucket *new = &a[1].buckets[hash & a[1].mask];
    __builtin_prefetch(new);
    if ((hash & a[0].mask) >= table->rehash_index &&
        chain_find(table->type, &a[0].buckets[hash & a[0].mask], key, hash, location))
        return true;
    return chain_find(table->type, new, key, hash, location);
}

void *hashtable_find(struct hashtable *table, struct slice key) {
    struct location location;
    return table->used && find(table, key, hash_of(table, key), &location) ? location.bucket->entries[location.index]
                                                                           : NULL;
}

void **hashtable_find_slot(struct hashtable *table, struct slice key) {
    struct location location;
    return table->used && find(table, key, hash_of(table, key), &location) ? &location.bucket->entries[location.index]
                                                                           : NULL;
}

/* Prefetches the entries of the bucket that have the hash byte, and the child of the bucket. */
static inline void bucket_prefetch_matches(const struct bucket *b, uint64_t hash) {
    for (unsigned matches = bucket_matches(b, hash_byte(hash)); matches; matches &= matches - 1) {
        const char *entry = b->entries[__builtin_ctz(matches)];
        __builtin_prefetch(entry);
        __builtin_prefetch(entry + SECOND_LINE);
    }
    if (bucket_chained(b)) __builtin_prefetch(bucket_child(b));
}
static void prefetch_matches(const struct hashtable *table, uint64_t hash) {
    for (int a = 0; a < 2 && table->arrays[a].buckets; a++)
        bucket_prefetch_matches(&table->arrays[a].buckets[hash & table->arrays[a].mask], hash);
}

static void hash_and_prefetch(const struct hashtable *table, const struct slice *keys, size_t count, uint64_t *hashes) {
    for (size_t i = 0; i < count; i++) {
        hashes[i] = hash_of(table, keys[i]);
        for (int a = 0; a < 2 && table->arrays[a].buckets; a++)
            __builtin_prefetch(&table->arrays[a].buckets[hashes[i] & table->arrays[a].mask]);
    }
}

void hashtable_prefetch(struct hashtable *table, const struct slice *keys, size_t count) {
    uint64_t hashes[HASHTABLE_PREFETCH_MAX];
    if (!table->used) return;
    if (count > HASHTABLE_PREFETCH_MAX) count = HASHTABLE_PREFETCH_MAX;
    hash_and_prefetch(table, keys, count, hashes);
    for (size_t i = 0; i < count; i++) prefetch_matches(table, hashes[i]);
}

void **hashtable_find_or_prepare(struct hashtable *table, struct slice key, struct hashtable_position *position) {
    struct location location;
    position->hash = hash_of(table, key);
    return find(table, key, position->hash, &location) ? &location.bucket->entries[location.index] : NULL;
}

void hashtable_prefetch_position(struct hashtable *table, const struct hashtable_position *position) {
    for (int a = 0; a < 2 && table->arrays[a].buckets; a++)
        __builtin_prefetch(&table->arrays[a].buckets[position->hash & table->arrays[a].mask], 1);
}
void hashtable_locate(const struct hashtable_type *type, struct slice key, struct hashtable_position *position) {
    seed_once();
    position->hash = type_hash(type, key);
}
void hashtable_locate_all(const struct hashtable_type *type, const struct slice *keys, size_t count,
                          struct hashtable_position *positions) {
    seed_once();
    for (size_t i = 0; i < count; i++) positions[i].hash = type_hash(type, keys[i]);
}
void hashtable_prepare(struct hashtable *table, struct slice key, struct hashtable_position *position) {
    position->hash = hash_of(table, key);
    hashtable_prefetch_position(table, position);
}
void **hashtable_find_at(struct hashtable *table, struct slice key, const struct hashtable_position *position) {
    struct location location;
    return table->used && find(table, key, position->hash, &location) ? &location.bucket->entries[location.index]
                                                                      : NULL;
}

enum { HEAD_SHIFT = 56 };
struct hashtable_head hashtable_head(const struct hashtable *table) {
    const struct array *a = &table->arrays[0];
    uint64_t address = (uint64_t)(uintptr_t)a->buckets;
    if (unlikely(rehashing(table)) || !address || unlikely(address >> HEAD_SHIFT)) return (struct hashtable_head){0};
    return (struct hashtable_head){address | (uint64_t)__builtin_ctzll(a->mask + 1) << HEAD_SHIFT};
}
static inline struct bucket *head_bucket(const struct hashtable_head *head, uint64_t hash) {
    uint64_t word = head->word, mask = (UINT64_C(1) << (word >> HEAD_SHIFT)) - 1;
    struct bucket *buckets = (void *)(uintptr_t)(word & ((UINT64_C(1) << HEAD_SHIFT) - 1));
    return buckets + (hash & mask);
}
void hashtable_head_prefetch(const struct hashtable_head *head, const struct hashtable_position *position) {
    if (head->word) __builtin_prefetch(head_bucket(head, position->hash), 1);
}
void hashtable_head_prefetch_entries(const struct hashtable_head *head, const struct hashtable_position *position) {
    if (head->word) bucket_prefetch_matches(head_bucket(head, position->hash), position->hash);
}
void **hashtable_head_find(const struct hashtable_head *head, const struct hashtable_type *type, struct slice key,
                           const struct hashtable_position *position) {
    struct location location;
    if (!chain_find(type, head_bucket(head, position->hash), key, position->hash, &location)) return NULL;
    return &location.bucket->entries[location.index];
}

void hashtable_add_at(struct hashtable *table, struct hashtable_position *position, void *entry) {
    must_equal(table->held, 0); /* an iteration would miss the entry or see it twice */
    must_in_tests(position->hash == hash_of(table, table->type->key(entry)));
    grow_where_needed(table);
    struct array *a = target(table);
    chain_append(table, &a->buckets[position->hash & a->mask], hash_byte(position->hash), entry);
    table->used++;
}

bool hashtable_add(struct hashtable *table, void *entry) {
    struct hashtable_position position;
    if (hashtable_find_or_prepare(table, table->type->key(entry), &position)) return false;
    hashtable_add_at(table, &position, entry);
    return true;
}

void *hashtable_pop(struct hashtable *table, struct slice key) {
    struct location location;
    if (!table->used || !find(table, key, hash_of(table, key), &location)) return NULL;
    void *entry = location.bucket->entries[location.index];
    must_equal(table->held, 0);
    chain_remove(table, location.bucket, location.index, location.parent);
    table->used--;
    shrink_where_possible(table);
    return entry;
}

bool hashtable_delete(struct hashtable *table, struct slice key) {
    void *entry = hashtable_pop(table, key);
    if (!entry) return false;
    if (table->type->free_entry) table->type->free_entry(entry);
    return true;
}

/* --- Iteration --- */

static uint64_t reverse_bits(uint64_t v) {
    v = (v >> 1 & 0x5555555555555555) | (v & 0x5555555555555555) << 1;
    v = (v >> 2 & 0x3333333333333333) | (v & 0x3333333333333333) << 2;
    v = (v >> 4 & 0x0f0f0f0f0f0f0f0f) | (v & 0x0f0f0f0f0f0f0f0f) << 4;
    return __builtin_bswap64(v);
}
/* The next cursor in a table with this mask: adds one to the reversed bits within the mask. */
static uint64_t cursor_next(uint64_t cursor, size_t mask) {
    return reverse_bits(reverse_bits(cursor | ~(uint64_t)mask) + 1);
}

/* Calls `visit` for each bucket that a step of a scan covers, and returns the next cursor. */
static inline uint64_t scan_step(struct hashtable *table, uint64_t cursor,
                                 void (*visit)(void *context, struct bucket *bucket), void *context) {
    if (!table->used) return 0;
    must(table->arrays[0].buckets);
    const struct array *small = &table->arrays[0], *large = &table->arrays[1];
    if (!rehashing(table)) {
        visit(context, &small->buckets[cursor & small->mask]);
        return cursor_next(cursor, small->mask);
    }
    if (small->mask > large->mask) {
        const struct array *swap = small;
        small = large, large = swap;
    }
    visit(context, &small->buckets[cursor & small->mask]);
    do {
        visit(context, &large->buckets[cursor & large->mask]);
        cursor = cursor_next(cursor, large->mask);
    } while (cursor & (small->mask ^ large->mask));
    return cursor;
}

struct hashtable_scan {
    void (*visit)(void *context, void *entry);
    void *context;
};
static void scan_bucket(void *context, struct bucket *b) {
    const struct hashtable_scan *scan = context;
    for (; b; b = bucket_child(b)) each_used_slot(i, b) scan->visit(scan->context, b->entries[i]);
}
uint64_t hashtable_scan(struct hashtable *table, uint64_t cursor, void (*visit)(void *context, void *entry),
                        void *context) {
    return scan_step(table, cursor, scan_bucket, &(struct hashtable_scan){visit, context});
}

struct scan_refs {
    void (*visit)(void *context, void **ref);
    void *context;
};
static void scan_bucket_refs(void *context, struct bucket *b) {
    const struct scan_refs *scan = context;
    for (; b; b = bucket_child(b)) each_used_slot(i, b) scan->visit(scan->context, &b->entries[i]);
}
uint64_t hashtable_scan_refs(struct hashtable *table, uint64_t cursor, void (*visit)(void *context, void **ref),
                             void *context) {
    return scan_step(table, cursor, scan_bucket_refs, &(struct scan_refs){visit, context});
}

static size_t smallest_mask(const struct hashtable *table) {
    const struct array *a = table->arrays;
    return rehashing(table) && a[1].mask < a[0].mask ? a[1].mask : a[0].mask;
}
size_t hashtable_parts(const struct hashtable *table) {
    return table->arrays[0].buckets ? smallest_mask(table) + 1 : 0;
}

struct part_visit {
    void (*visit)(void *context, void *entry);
    void *context;
    const struct hashtable *table;
    size_t mask, part;
    bool mixed; /* a bucket may have entries of other parts */
};
static void visit_bucket_of_part(void *context, struct bucket *b) {
    const struct part_visit *v = context;
    for (; b; b = bucket_child(b)) each_used_slot(i, b) {
            if (v->mixed && (hash_of(v->table, v->table->type->key(b->entries[i])) & v->mask) != v->part) continue;
            v->visit(v->context, b->entries[i]);
        }
}
/* The buckets of a part are adjacent in the order of a scan, and the one with the number of the part is the first. */
void hashtable_visit_part(struct hashtable *table, size_t parts, size_t part, void (*visit)(void *context, void *entry),
                          void *context) {
    must(parts && !(parts & (parts - 1)) && part < parts);
    struct part_visit v = {visit, context, table, parts - 1, part, smallest_mask(table) < parts - 1};
    uint64_t cursor = part;
    do {
        cursor = scan_step(table, cursor, visit_bucket_of_part, &v);
    } while (cursor && (cursor & v.mask) == part);
}

/* The two arrays of a table that grows have about the same number of entries in the buckets that a part has. */
void hashtable_prefetch_part(const struct hashtable *table, size_t part) {
    for (int i = 0; i < 2 && table->arrays[i].buckets; i++) {
        const struct array *a = &table->arrays[i];
        const struct bucket *b = &a->buckets[part & a->mask];
        each_used_slot(slot, b) {
            const char *entry = b->entries[slot];
            __builtin_prefetch(entry);
            __builtin_prefetch(entry + LINE);
        }
        __builtin_prefetch(&a->buckets[(part + 4) & a->mask]);
    }
}
void hashtable_prefetch_values(const struct hashtable *table, size_t part, void (*prefetch)(const void *entry)) {
    for (int i = 0; i < 2 && table->arrays[i].buckets; i++) {
        const struct bucket *b = &table->arrays[i].buckets[part & table->arrays[i].mask];
        each_used_slot(slot, b) prefetch(b->entries[slot]);
    }
}

static _Thread_local bool iterates_held;

void hashtable_iterates_held(bool on) {
    must(iterates_held != on);
    iterates_held = on;
}

void hashtable_hold(struct hashtable *table) {
    must_less(table->held, UINT16_MAX);
    table->held++;
}

void hashtable_release(struct hashtable *table) {
    must(table->held > 0);
    table->held--;
    shrink_where_possible(table);
}

void hashtable_iterator_open(struct hashtable_iterator *it, struct hashtable *table) {
    *it = (struct hashtable_iterator){.table = table};
    if (rehashing(table)) it->bucket_index = table->rehash_index;
    if (likely(!iterates_held)) hashtable_hold(table);
}

/* `bucket` is the current bucket (NULL: start with the one at bucket_index), `position` its next slot. */
void *hashtable_iterator_next(struct hashtable_iterator *it) {
    for (; it->array < 2; it->array++, it->bucket_index = 0) {
        struct array *a = &it->table->arrays[it->array];
        if (!a->buckets) break;
        while (it->bucket || it->bucket_index <= a->mask) {
            struct bucket *b = it->bucket;
            if (!b) {
                b = it->bucket = &a->buckets[it->bucket_index++];
                it->position = 0;
                if (it->bucket_index <= a->mask) prefetch_entries(&a->buckets[it->bucket_index]);
                if (it->bucket_index < a->mask) __builtin_prefetch(&a->buckets[it->bucket_index + 1]);
            }
            unsigned left = bucket_used(b) >> it->position;
            if (left) {
                it->position += __builtin_ctz(left) + 1;
                return b->entries[it->position - 1];
            }
            it->bucket = bucket_child(b);
            it->position = 0;
        }
    }
    return NULL;
}

void hashtable_iterator_close(struct hashtable_iterator *it) {
    if (likely(!iterates_held)) hashtable_release(it->table);
}

/* --- Random entries --- */

static size_t total_buckets(const struct hashtable *table) {
    size_t sum = table->arrays[0].mask + 1 - table->rehash_index;
    return rehashing(table) ? sum + table->arrays[1].mask + 1 : sum;
}
/* Numbers the buckets that may hold entries, over both arrays. */
static struct bucket *nth_bucket(const struct hashtable *table, size_t n) {
    size_t first = table->arrays[0].mask + 1 - table->rehash_index;
    return n < first ? &table->arrays[0].buckets[table->rehash_index + n] : &table->arrays[1].buckets[n - first];
}
static size_t chain_count(const struct bucket *b) {
    size_t count = 0;
    for (; b; b = bucket_child(b)) count += bucket_count(b);
    return count;
}
static void *chain_nth(const struct bucket *b, size_t n) {
    for (; n >= bucket_count(b); b = bucket_child(b)) n -= bucket_count(b);
    unsigned left = bucket_used(b);
    if (likely(!(left & (left + 1)))) return b->entries[n]; /* no free slot before the last entry */
    while (n--) left &= left - 1;
    return b->entries[__builtin_ctz(left)];
}

/* Draws a bucket and one of `most` slots in it until it hits an entry, so each entry has the same probability. `most`
 * is chosen so that nearly no chain is longer. In a nearly empty table this would take too long; there, the random draw
 * only determines where the search starts. */
void *hashtable_random(struct hashtable *table) {
    if (!table->used) return NULL;
    size_t buckets = total_buckets(table), most = table->used / buckets * 2 + 9;
    for (int tries = buckets < 64 ? 4096 : 512; tries; tries--) {
        const struct bucket *b = nth_bucket(table, random_below(buckets));
        size_t count = chain_count(b), n = random_below(most);
        if (n < count) return chain_nth(b, count > most ? random_below(count) : n);
    }
    for (size_t n = random_below(buckets), left = buckets;; left--, n = n + 1 < buckets ? n + 1 : 0) {
        must(left > 0); /* the table has an entry */
        size_t count = chain_count(nth_bucket(table, n));
        if (count) return chain_nth(nth_bucket(table, n), random_below(count));
    }
}

size_t hashtable_sample(struct hashtable *table, void **entries, size_t count) {
    if (count > table->used) count = table->used;
    if (!count) return 0;
    size_t buckets = total_buckets(table), n = random_below(buckets), got = 0, visits = count * 10;
    for (size_t left = buckets; left && got < count; left--, n = n + 1 < buckets ? n + 1 : 0) {
        if (got && visits-- == 0) break;
        for (const struct bucket *b = nth_bucket(table, n); b && got < count; b = bucket_child(b))
            each_used_slot(i, b) if (got < count) entries[got++] = b->entries[i];
    }
    return got;
}

/* --- Description --- */

static void array_stats_add(const struct array *a, struct hashtable_stats *stats) {
    for (size_t i = 0; i <= a->mask; i++) {
        size_t count = chain_count(&a->buckets[i]);
        stats->entries += count;
        stats->chained += bucket_chained(&a->buckets[i]);
        if (count > stats->longest) stats->longest = count;
        stats->lengths[count < HASHTABLE_LENGTHS ? count : HASHTABLE_LENGTHS - 1]++;
    }
    stats->buckets += a->mask + 1;
}

void hashtable_stats_add(const struct hashtable *table, struct hashtable_stats stats[2]) {
    for (int i = 0; i < 2 && table->arrays[i].buckets; i++) array_stats_add(&table->arrays[i], &stats[i]);
}

static size_t describe_arrays(const struct hashtable_stats *stats, int which, char *text, size_t size, bool full) {
    double buckets = (double)stats->buckets;
    int len = snprintf(text, size,
                       "Hash table %d stats (%s):\n table size: %zu\n number of entries: %zu\n buckets: %zu\n"
                       " chained buckets: %zu (%.2f%%)\n entries per bucket: %.2f\n most entries in a bucket: %zu\n",
                       which, which ? "rehashing target" : "main hash table", stats->buckets * SLOTS, stats->entries,
                       stats->buckets, stats->chained, 100.0 * (double)stats->chained / buckets,
                       (double)stats->entries / buckets, stats->longest);
    size_t used = len > 0 && (size_t)len < size ? (size_t)len : size;
    for (size_t i = 0; full && i < HASHTABLE_LENGTHS && used < size; i++) {
        if (!stats->lengths[i]) continue;
        len = snprintf(text + used, size - used, " %s%zu entries: %zu buckets (%.2f%%)\n",
                       i == HASHTABLE_LENGTHS - 1 ? ">= " : "", i, stats->lengths[i],
                       100.0 * (double)stats->lengths[i] / buckets);
        used = len > 0 && (size_t)len < size - used ? used + (size_t)len : size;
    }
    return used;
}

size_t hashtable_describe(const struct hashtable_stats stats[2], char *text, size_t size, bool full) {
    if (!size) return 0;
    size_t used = 0;
    text[0] = '\0';
    if (!stats[0].buckets) {
        int len = snprintf(text, size, "No stats available for empty hash tables\n");
        return len > 0 && (size_t)len < size ? (size_t)len : size - 1;
    }
    for (int i = 0; i < 2 && stats[i].buckets && used < size; i++)
        used += describe_arrays(&stats[i], i, text + used, size - used, full);
    return used < size ? used : size - 1;
}
