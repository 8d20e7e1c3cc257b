/* key_tables.c: see key_tables.h. */
#include "store/key_tables.h"
#include "lib/structures/fenwick.h"
#include "lib/system/clock.h"
#include "lib/system/likely.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/random.h"

enum { WORD_BITS = 64 };
struct known_slot key_slot_of_call;
struct known_slots key_slots_ahead;

unsigned key_slot_search(struct slice key) {
    struct known_slots *ahead = &key_slots_ahead;
    for (size_t i = 0; i < ahead->count; i++) {
        if (!known_slot_is(&ahead->keys[i], key)) continue;
        must_in_tests(ahead->keys[i].slot == hash_slot(key));
        ahead->found = i;
        ahead->next = i + 1;
        return ahead->keys[i].slot;
    }
    return hash_slot(key);
}

struct slot_tables {
    struct hashtable_head heads[HASH_SLOTS];    /* of `tables`, as of their last change */
    size_t sums[HASH_SLOTS + 1];                /* a Fenwick tree of the numbers of keys */
    struct hashtable *tables[HASH_SLOTS];       /* NULL: no keys */
    uint64_t rehashing[HASH_SLOTS / WORD_BITS]; /* bitmap: tables that are being resized */
    int rehashing_count;
    unsigned rehash_slot; /* where key_tables_rehash_for() continues */
    unsigned resize_slot; /* where key_tables_resize_where_needed() continues */
    size_t memory;        /* of the tables, without this structure */
};

/* --- Tables of slots --- */

size_t slot_tables_size(const struct slot_tables *slots) {
    return slots->sums[HASH_SLOTS];
}

size_t key_tables_slot_size(const struct key_tables *tables, unsigned slot) {
    enum { AHEAD = 16 };
    if (!tables->slots) return 0;
    /* Callers ask about one slot after the other, and each table is a cache miss. */
    if (slot + AHEAD < HASH_SLOTS) __builtin_prefetch(tables->slots->tables[slot + AHEAD]);
    const struct hashtable *table = tables->slots->tables[slot];
    return table ? hashtable_size(table) : 0;
}

struct hidden_slots hidden_slots;

/* Adds to the number of keys of a slot. */
static inline void sum_add(struct slot_tables *slots, unsigned slot, size_t keys) {
    if (!slot_is_hidden(slot)) fenwick_add(slots->sums, HASH_SLOTS, slot, keys);
}

void key_tables_slot_visible(struct key_tables *tables, unsigned slot, bool visible) {
    size_t keys = key_tables_slot_size(tables, slot);
    must(visible || keys <= (tables->slots ? slot_tables_size(tables->slots) : 0));
    if (keys) fenwick_add(tables->slots->sums, HASH_SLOTS, slot, visible ? keys : 0 - keys);
}

/* The first slot with keys from this one on; HASH_SLOTS: none. */
static unsigned slot_with_keys(const struct slot_tables *slots, unsigned slot) {
    if (slot < HASH_SLOTS && slots->tables[slot] && !slot_is_hidden(slot)) return slot;
    return (unsigned)fenwick_find(slots->sums, HASH_SLOTS, fenwick_below(slots->sums, slot));
}

/* The slot of a random key. There must be one. */
static unsigned slot_of_random_key(const struct slot_tables *slots) {
    must(slot_tables_size(slots) > 0);
    return (unsigned)fenwick_find(slots->sums, HASH_SLOTS, random_below(slot_tables_size(slots)));
}

/* Called after a change of a table, which had `before` bytes of buckets. */
static void slot_changed(struct slot_tables *slots, unsigned slot, size_t before) {
    const struct hashtable *table = slots->tables[slot];
    must_within(before, slots->memory);
    slots->memory += hashtable_buckets_memory(table) - before;
    slots->heads[slot] = hashtable_head(table);
    uint64_t *word = &slots->rehashing[slot / WORD_BITS], bit = (uint64_t)1 << slot % WORD_BITS;
    bool rehashing = hashtable_is_rehashing(table);
    if (likely(rehashing == ((*word & bit) != 0))) return;
    *word ^= bit;
    slots->rehashing_count += rehashing ? 1 : -1;
    must_within(0, slots->rehashing_count);
}

static struct hashtable *slot_table_make(struct key_tables *tables, unsigned slot) {
    if (!tables->slots) tables->slots = mem_calloc(1, sizeof(*tables->slots));
    struct hashtable **table = &tables->slots->tables[slot];
    if (!*table) {
        *table = hashtable_new(tables->type);
        tables->slots->memory += hashtable_memory(*table);
    }
    return *table;
}

/* Frees the table of a slot without keys. */
static void slot_table_free(struct slot_tables *slots, unsigned slot) {
    must_equal(hashtable_size(slots->tables[slot]), 0);
    size_t before = hashtable_buckets_memory(slots->tables[slot]);
    hashtable_clear(slots->tables[slot]);
    slot_changed(slots, slot, before);
    slots->memory -= hashtable_memory(slots->tables[slot]);
    hashtable_free(slots->tables[slot]);
    slots->tables[slot] = NULL;
    slots->heads[slot] = (struct hashtable_head){0};
}

struct hashtable *key_tables_take_slot(struct key_tables *tables, unsigned slot) {
    struct slot_tables *slots = tables->slots;
    struct hashtable *table = slots ? slots->tables[slot] : NULL;
    if (!table) return NULL;
    must(slot_is_hidden(slot) || hashtable_size(table) <= slot_tables_size(slots));
    must_within(hashtable_memory(table), slots->memory);
    sum_add(slots, slot, 0 - hashtable_size(table));
    slots->memory -= hashtable_memory(table);
    uint64_t *word = &slots->rehashing[slot / WORD_BITS], bit = (uint64_t)1 << slot % WORD_BITS;
    if (*word & bit) *word ^= bit, slots->rehashing_count--;
    must_within(0, slots->rehashing_count);
    slots->tables[slot] = NULL;
    slots->heads[slot] = (struct hashtable_head){0};
    return table;
}

/* --- All tables --- */

void key_tables_free(struct key_tables *tables) {
    hashtable_free(tables->table);
    if (tables->slots)
        for (unsigned slot = 0; slot < HASH_SLOTS; slot++) hashtable_free(tables->slots->tables[slot]);
    mem_free(tables->slots);
    *tables = key_tables_init(tables->type, tables->per_slot);
}

size_t key_tables_memory(const struct key_tables *tables) {
    size_t bytes = tables->slots                  ? sizeof(*tables->slots) + tables->slots->memory
                   : key_tables_is_single(tables) ? hashtable_memory(tables->table)
                                                  : 0;
    return bytes ? sizeof(*tables) + bytes : 0;
}

int key_tables_rehashing(const struct key_tables *tables) {
    if (key_tables_is_single(tables)) return hashtable_is_rehashing(tables->table);
    return tables->slots ? tables->slots->rehashing_count : 0;
}

static unsigned slot_rehashing(const struct slot_tables *slots, unsigned slot);

size_t key_tables_rehashing_memory(const struct key_tables *tables) {
    if (key_tables_is_single(tables)) return hashtable_rehashing_memory(tables->table);
    size_t bytes = 0;
    unsigned slot = 0;
    for (int left = tables->slots ? tables->slots->rehashing_count : 0; left; left--, slot++) {
        slot = slot_rehashing(tables->slots, slot);
        bytes += hashtable_rehashing_memory(tables->slots->tables[slot]);
    }
    return bytes;
}

static struct hashtable *single_table(struct key_tables *tables) {
    if (!tables->table) tables->table = hashtable_new(tables->type);
    return tables->table;
}

void key_tables_expand(struct key_tables *tables, size_t keys) {
    if (keys && !tables->per_slot) hashtable_expand(single_table(tables), keys);
}

void key_tables_expand_slot(struct key_tables *tables, unsigned slot, size_t keys) {
    if (!keys || !tables->per_slot) return;
    struct hashtable *table = slot_table_make(tables, slot);
    size_t before = hashtable_buckets_memory(table);
    hashtable_expand(table, keys);
    slot_changed(tables->slots, slot, before);
}

/* The first table that is being resized, from this slot on, wrapping around to slot 0. There must be one. */
static unsigned slot_rehashing(const struct slot_tables *slots, unsigned slot) {
    enum { WORDS = HASH_SLOTS / WORD_BITS };
    must(slots->rehashing_count > 0);
    unsigned at = slot / WORD_BITS;
    uint64_t word = slots->rehashing[at] & ~(uint64_t)0 << slot % WORD_BITS;
    while (!word) at = (at + 1) % WORDS, word = slots->rehashing[at];
    return at * WORD_BITS + (unsigned)__builtin_ctzll(word);
}

bool key_tables_rehash_for(struct key_tables *tables, uint64_t microseconds) {
    if (key_tables_is_single(tables)) return hashtable_rehash_for(tables->table, microseconds);
    struct slot_tables *slots = tables->slots;
    if (!slots || !slots->rehashing_count) return false;
    uint64_t now = clock_monotonic_us(), end = now + microseconds;
    for (int left = slots->rehashing_count; left; left--) {
        if (now >= end) return true;
        unsigned slot = slot_rehashing(slots, slots->rehash_slot);
        size_t before = hashtable_buckets_memory(slots->tables[slot]);
        bool undone = hashtable_rehash_for(slots->tables[slot], end - now);
        slot_changed(slots, slot, before);
        if (undone) return true;
        slots->rehash_slot = (slot + 1) % HASH_SLOTS;
        now = clock_monotonic_us();
    }
    return false;
}

void key_tables_resize_where_needed(struct key_tables *tables) {
    enum { SLOTS_A_CALL = 16 };
    if (key_tables_is_single(tables)) {
        hashtable_resize_where_needed(tables->table);
        return;
    }
    struct slot_tables *slots = tables->slots;
    for (int i = 0; slots && i < SLOTS_A_CALL; i++) {
        unsigned slot = slot_with_keys(slots, slots->resize_slot);
        slots->resize_slot = slot < HASH_SLOTS ? slot + 1 : 0;
        if (slot >= HASH_SLOTS) return;
        size_t before = hashtable_buckets_memory(slots->tables[slot]);
        hashtable_resize_where_needed(slots->tables[slot]);
        slot_changed(slots, slot, before);
    }
}

void key_tables_stats(const struct key_tables *tables, struct hashtable_stats stats[2]) {
    if (key_tables_is_single(tables)) hashtable_stats_add(tables->table, stats);
    if (!tables->slots) return;
    for (unsigned slot = 0; (slot = slot_with_keys(tables->slots, slot)) < HASH_SLOTS; slot++)
        hashtable_stats_add(tables->slots->tables[slot], stats);
}

/* --- Changes, and searches for a position --- */

/* The table at a position; NULL: none yet. */
static struct hashtable *table_at(const struct key_tables *tables, const struct table_position *position) {
    if (key_tables_is_single(tables)) return tables->table;
    return tables->slots ? tables->slots->tables[position->slot] : NULL;
}

/* Slot and hash of a key. What is known of the key of the call is not computed again. */
static inline struct table_position locate(const struct key_tables *tables, struct slice key) {
    struct table_position position = {.slot = 0};
    struct known_slot *known = &key_slot_of_call;
    if (tables->per_slot && likely(known_slot_is(known, key))) {
        must_in_tests(known->slot == hash_slot(key)); /* the bytes are still the key's */
        position.slot = known->slot;
        position.hash.hash = known->hash;
        if (likely(known->hashed)) return position;
        must_less(known->slot, (unsigned)HASH_SLOTS);
        hashtable_locate(tables->type, key, &position.hash);
        known->hash = position.hash.hash;
        known->hashed = true;
        return position;
    }
    if (tables->per_slot) position.slot = hash_slot(key);
    hashtable_locate(tables->type, key, &position.hash);
    return position;
}

void key_tables_locate(const struct key_tables *tables, struct slice key, struct table_position *position) {
    *position = locate(tables, key);
}

/* Of a database with a table for each slot. */
static inline void **slots_find(const struct key_tables *tables, struct slice key,
                                const struct table_position *position) {
    const struct slot_tables *slots = tables->slots;
    const struct hashtable_head *head = &slots->heads[position->slot];
    if (likely(head->word != 0)) return hashtable_head_find(head, tables->type, key, &position->hash);
    struct hashtable *table = slots->tables[position->slot];
    return table ? hashtable_find_at(table, key, &position->hash) : NULL;
}

void **key_tables_slow_find_ref(const struct key_tables *tables, struct slice key) {
    if (!tables->slots) return NULL;
    struct table_position position = locate(tables, key);
    return slots_find(tables, key, &position);
}

void **key_tables_slow_find_or_prepare(const struct key_tables *tables, struct slice key,
                                       struct table_position *position) {
    *position = locate(tables, key);
    return tables->slots ? slots_find(tables, key, position) : NULL;
}

void key_tables_slow_add_at(struct key_tables *tables, struct table_position *position, void *entry) {
    if (!tables->per_slot) {
        hashtable_add_at(single_table(tables), &position->hash, entry);
        return;
    }
    must_less(position->slot, (unsigned)HASH_SLOTS);
    struct hashtable *table = slot_table_make(tables, position->slot);
    size_t before = hashtable_buckets_memory(table);
    hashtable_add_at(table, &position->hash, entry);
    sum_add(tables->slots, position->slot, 1);
    slot_changed(tables->slots, position->slot, before);
}

void *key_tables_slow_pop(struct key_tables *tables, struct slice key) {
    struct slot_tables *slots = tables->slots;
    unsigned slot = slots ? key_slot(key) : 0;
    struct hashtable *table = slots ? slots->tables[slot] : NULL;
    if (!table) return NULL;
    size_t before = hashtable_buckets_memory(table);
    void *entry = hashtable_pop(table, key);
    if (!entry) return NULL;
    must(slot_is_hidden(slot) || slot_tables_size(slots) > 0);
    sum_add(slots, slot, SIZE_MAX);
    slot_changed(slots, slot, before);
    if (!hashtable_size(table)) slot_table_free(slots, slot);
    return entry;
}

/* --- Prefetching --- */

void key_tables_prepare(const struct key_tables *tables, struct slice key, struct table_position *position) {
    position->slot = tables->per_slot ? key_slot(key) : 0;
    struct hashtable *table = table_at(tables, position);
    if (table)
        hashtable_prepare(table, key, &position->hash);
    else
        hashtable_locate(tables->type, key, &position->hash);
}
void key_tables_prefetch_position(const struct key_tables *tables, const struct table_position *position) {
    struct hashtable *table = table_at(tables, position);
    if (table) hashtable_prefetch_position(table, &position->hash);
}
void **key_tables_find_at(const struct key_tables *tables, struct slice key, const struct table_position *position) {
    struct hashtable *table = table_at(tables, position);
    return table ? hashtable_find_at(table, key, &position->hash) : NULL;
}

/* Prefetches in steps, each for all keys: the heads, the buckets, the entries. A table that is being resized is not
 * prefetched. */
void key_tables_slow_prefetch(const struct key_tables *tables, const struct slice *keys, size_t count, bool ahead) {
    const struct hashtable_head *heads[HASHTABLE_PREFETCH_MAX];
    struct hashtable_position hashes[HASHTABLE_PREFETCH_MAX];
    unsigned slots[HASHTABLE_PREFETCH_MAX];
    if (!tables->slots) return;
    if (count > HASHTABLE_PREFETCH_MAX) count = HASHTABLE_PREFETCH_MAX;
    for (size_t i = 0; i < count; i++) {
        slots[i] = hash_slot(keys[i]);
        heads[i] = &tables->slots->heads[slots[i]];
        __builtin_prefetch(heads[i]);
    }
    hashtable_locate_all(tables->type, keys, count, hashes);
    for (size_t i = 0; i < count; i++) hashtable_head_prefetch(heads[i], &hashes[i]);
    if (ahead) {
        key_slots_ahead.count = count < KEY_SLOTS_AHEAD_MAX ? count : KEY_SLOTS_AHEAD_MAX;
        key_slots_ahead.next = key_slots_ahead.found = 0;
        for (size_t i = 0; i < key_slots_ahead.count; i++)
            key_slots_ahead.keys[i] = (struct known_slot){keys[i].data, keys[i].len, slots[i], true, hashes[i].hash};
    }
    for (size_t i = 0; i < count; i++) hashtable_head_prefetch_entries(heads[i], &hashes[i]);
}

/* --- Iteration --- */

/* The cursor at the first bucket of a slot; at HASH_SLOTS the scan is complete. */
static uint64_t cursor_at(unsigned slot) {
    return slot < HASH_SLOTS ? slot : 0;
}

static uint64_t slots_scan(const struct slot_tables *slots, int only, uint64_t cursor,
                           void (*visit)(void *context, void *entry), void *context) {
    unsigned slot = cursor % HASH_SLOTS;
    if (only >= 0 && slot != (unsigned)only) {
        if (slot > (unsigned)only) return 0;
        cursor = slot = (unsigned)only;
    }
    if (!slots->tables[slot] || slot_is_hidden(slot)) {
        cursor = slot = only >= 0 ? HASH_SLOTS : slot_with_keys(slots, slot);
        if (slot == HASH_SLOTS) return 0;
    }
    uint64_t next = hashtable_scan(slots->tables[slot], cursor >> HASH_SLOT_BITS, visit, context);
    if (next) return next << HASH_SLOT_BITS | slot;
    return only >= 0 ? 0 : cursor_at(slot_with_keys(slots, slot + 1));
}

uint64_t key_tables_scan(const struct key_tables *tables, int slot, uint64_t cursor,
                         void (*visit)(void *context, void *entry), void *context) {
    if (key_tables_is_single(tables)) return hashtable_scan(tables->table, cursor, visit, context);
    return tables->slots ? slots_scan(tables->slots, slot, cursor, visit, context) : 0;
}

uint64_t key_tables_scan_refs(const struct key_tables *tables, uint64_t cursor,
                              void (*visit)(void *context, void **ref), void *context) {
    if (key_tables_is_single(tables)) return hashtable_scan_refs(tables->table, cursor, visit, context);
    if (!tables->slots) return 0;
    unsigned slot = cursor % HASH_SLOTS;
    if (!tables->slots->tables[slot] || slot_is_hidden(slot)) {
        cursor = slot = slot_with_keys(tables->slots, slot);
        if (slot == HASH_SLOTS) return 0;
    }
    uint64_t next = hashtable_scan_refs(tables->slots->tables[slot], cursor >> HASH_SLOT_BITS, visit, context);
    return next ? next << HASH_SLOT_BITS | slot : cursor_at(slot_with_keys(tables->slots, slot + 1));
}

static void iterator_start(struct key_tables_iterator *it, unsigned slot) {
    struct slot_tables *slots = it->tables->slots;
    it->current = -1;
    if (slot == HASH_SLOTS || !slots->tables[slot]) return;
    it->current = (int)slot;
    hashtable_iterator_open(&it->table, slots->tables[slot]);
}
static void iterator_stop(struct key_tables_iterator *it) {
    if (it->current < 0) return;
    struct slot_tables *slots = it->tables->slots;
    size_t before = slots ? hashtable_buckets_memory(slots->tables[it->current]) : 0;
    hashtable_iterator_close(&it->table);
    if (slots) slot_changed(slots, (unsigned)it->current, before); /* the table may shrink now */
}

void key_tables_iterator_open(struct key_tables_iterator *it, struct key_tables *tables, int slot) {
    *it = (struct key_tables_iterator){.tables = tables, .current = -1, .only = slot >= 0};
    if (key_tables_is_single(tables)) {
        it->current = 0;
        hashtable_iterator_open(&it->table, tables->table);
    } else if (tables->slots) {
        iterator_start(it, slot >= 0 ? (unsigned)slot : slot_with_keys(tables->slots, 0));
    }
}

void *key_tables_iterator_next(struct key_tables_iterator *it) {
    while (it->current >= 0) {
        void *entry = hashtable_iterator_next(&it->table);
        if (entry || !it->tables->slots) return entry;
        if (it->only) return NULL;
        iterator_stop(it);
        iterator_start(it, slot_with_keys(it->tables->slots, (unsigned)it->current + 1));
    }
    return NULL;
}

void key_tables_iterator_close(struct key_tables_iterator *it) {
    iterator_stop(it);
    it->current = -1;
}

/* --- Parts --- */

static struct hashtable *part_table(const struct key_tables *tables, unsigned slot) {
    must_less(slot, (unsigned)HASH_SLOTS);
    if (key_tables_is_single(tables)) return tables->table;
    return tables->slots ? tables->slots->tables[slot] : NULL;
}
size_t key_tables_parts(const struct key_tables *tables, unsigned slot) {
    const struct hashtable *table = part_table(tables, slot);
    return table ? hashtable_parts(table) : 0;
}
void key_tables_visit_part(const struct key_tables *tables, unsigned slot, size_t parts, size_t part,
                           void (*visit)(void *context, void *entry), void *context) {
    struct hashtable *table = part_table(tables, slot);
    if (table) hashtable_visit_part(table, parts, part, visit, context);
}
void key_tables_prefetch_part(const struct key_tables *tables, unsigned slot, size_t part) {
    const struct hashtable *table = part_table(tables, slot);
    if (table) hashtable_prefetch_part(table, part);
}
void key_tables_prefetch_values(const struct key_tables *tables, unsigned slot, size_t part,
                                void (*prefetch)(const void *entry)) {
    const struct hashtable *table = part_table(tables, slot);
    if (table) hashtable_prefetch_values(table, part, prefetch);
}

/* --- Random entries --- */

void *key_tables_random(const struct key_tables *tables) {
    if (key_tables_is_single(tables)) return hashtable_random(tables->table);
    if (!tables->slots || !slot_tables_size(tables->slots)) return NULL;
    return hashtable_random(tables->slots->tables[slot_of_random_key(tables->slots)]);
}

/* Samples from the table of a random key on, wrapping around to slot 0. */
static size_t slots_sample(const struct slot_tables *slots, void **entries, size_t count) {
    size_t got = 0;
    if (count > slot_tables_size(slots)) count = slot_tables_size(slots);
    if (!count) return 0;
    unsigned first = slot_of_random_key(slots), slot = first;
    do {
        got += hashtable_sample(slots->tables[slot], entries + got, count - got);
        slot = slot_with_keys(slots, slot + 1);
        if (slot == HASH_SLOTS) slot = slot_with_keys(slots, 0);
    } while (got < count && slot != first);
    return got;
}

size_t key_tables_sample(const struct key_tables *tables, void **entries, size_t count) {
    if (key_tables_is_single(tables)) return hashtable_sample(tables->table, entries, count);
    return tables->slots ? slots_sample(tables->slots, entries, count) : 0;
}
