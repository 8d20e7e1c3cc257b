/* evict.c: approximated LRU, LFU and TTL eviction; see evict.h.
 *
 * Rejected: an exact order, which would cost two pointers per entry and relinking at every access. Instead, each
 * eviction samples a few entries of each database and keeps the best candidates in a small sorted pool across
 * evictions, so the choice is made among far more entries than one call samples. The pool holds copies of keys, because
 * entries may move or be deleted before they are chosen; a candidate that no longer exists is skipped. A candidate used
 * since it was sampled may still be evicted: this is rare, and detecting it would need a second lookup. */
#include "store/evict.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "store/keyspace_layout.h"

enum { POOL_SIZE = 16, SAMPLES_MAX = 64, KEY_KEPT = 255, CHECK_EVERY = 16 };

struct candidate {
    uint64_t score; /* higher: evict first */
    int db;
    size_t len;
    char *key;
    char kept[KEY_KEPT]; /* storage of `key` unless it is longer */
};
static struct {
    struct candidate at[POOL_SIZE];
    int order[POOL_SIZE]; /* by score, ascending */
    int count;
    enum eviction_kind kind; /* the meaning of the scores */
    const struct keyspace *keyspace;
} pool;

static uint64_t entry_score(const struct entry *e, enum eviction_kind kind) {
    switch (kind) {
    case EVICT_LRU: return entry_idle_seconds(e);
    case EVICT_LFU: return 255 - (uint64_t)entry_frequency(e);
    default: return UINT64_MAX - (uint64_t)*entry_expiry_word(e);
    }
}

static void candidate_drop(struct candidate *c) {
    if (c->key != c->kept) mem_free(c->key);
    c->key = NULL;
}
static void candidate_fill(struct candidate *c, int db, struct slice key, uint64_t score) {
    c->score = score;
    c->db = db;
    c->len = key.len;
    c->key = key.len <= KEY_KEPT ? c->kept : mem_alloc(key.len);
    memcpy(c->key, key.data, key.len);
}

static bool pool_has(int db, struct slice key, uint64_t score) {
    for (int i = 0; i < pool.count; i++) {
        const struct candidate *c = &pool.at[pool.order[i]];
        if (c->score == score && c->db == db && slice_equal((struct slice){c->key, c->len}, key)) return true;
    }
    return false;
}

/* order[0..count) are used and sorted, the rest is free. A full pool drops its worst candidate. */
static void pool_offer(int db, const struct entry *e, enum eviction_kind kind) {
    uint64_t score = entry_score(e, kind);
    struct slice key = entry_key_inline(e);
    if (pool.count == POOL_SIZE && score <= pool.at[pool.order[0]].score) return;
    if (pool_has(db, key, score)) return;
    int slot;
    if (pool.count == POOL_SIZE) {
        slot = pool.order[0];
        candidate_drop(&pool.at[slot]);
        memmove(pool.order, pool.order + 1, (POOL_SIZE - 1) * sizeof(pool.order[0]));
        pool.count--;
    } else {
        slot = pool.order[pool.count];
    }
    must_less(pool.count, POOL_SIZE);
    int i = pool.count++;
    for (; i > 0 && pool.at[pool.order[i - 1]].score > score; i--) pool.order[i] = pool.order[i - 1];
    pool.order[i] = slot;
    candidate_fill(&pool.at[slot], db, key, score);
}

static const struct key_tables *choice(const struct db *db, bool volatile_only) {
    return volatile_only ? &db->expires : &db->keys;
}

/* Samples all databases. Returns the number of keys to choose from. */
static size_t pool_sample(struct keyspace *k, const struct eviction *eviction, bool volatile_only) {
    size_t keys = 0;
    void *entries[SAMPLES_MAX];
    size_t samples = eviction->samples < 1             ? 1
                     : eviction->samples > SAMPLES_MAX ? SAMPLES_MAX
                                                       : (size_t)eviction->samples;
    for (int i = 0; i < k->databases; i++) {
        const struct key_tables *tables = choice(&k->db[i], volatile_only);
        keys += key_tables_size(tables);
        size_t got = key_tables_sample(tables, entries, samples);
        for (size_t n = 0; n < got; n++) pool_offer(i, entries[n], eviction->kind);
    }
    return keys;
}

static struct entry *pool_take(struct keyspace *k, bool volatile_only, struct db **db) {
    while (pool.count) {
        struct candidate *c = &pool.at[pool.order[--pool.count]];
        struct entry *e = NULL;
        *db = keyspace_db(k, c->db);
        struct slice key = {c->key, c->len};
        /* Its slot may have left, and be on its way back: what is hidden is its source's. */
        bool hidden = hidden_slots.count && slot_is_hidden(hash_slot(key));
        if (*db && !hidden) e = key_tables_find(choice(*db, volatile_only), key);
        candidate_drop(c);
        if (e) return e;
    }
    return NULL;
}

static struct entry *choose_best(struct keyspace *k, const struct eviction *eviction, bool volatile_only,
                                 struct db **db) {
    if (pool.kind != eviction->kind || pool.keyspace != k) {
        for (int i = 0; i < pool.count; i++) candidate_drop(&pool.at[pool.order[i]]);
        pool.count = 0;
        for (int i = 0; i < POOL_SIZE; i++) pool.order[i] = i;
        pool.kind = eviction->kind;
        pool.keyspace = k;
    }
    while (pool_sample(k, eviction, volatile_only)) {
        struct entry *e = pool_take(k, volatile_only, db);
        if (e) return e;
    }
    return NULL;
}

/* Rotates over the databases. */
static struct entry *choose_any(struct keyspace *k, bool volatile_only, struct db **db) {
    static int turn;
    for (int i = 0; i < k->databases; i++) {
        *db = &k->db[(unsigned)turn++ % (unsigned)k->databases];
        struct entry *e = key_tables_random(choice(*db, volatile_only));
        if (e) return e;
    }
    return NULL;
}

static size_t decrease(size_t from, size_t to) {
    return from > to ? from - to : 0;
}

/* Returns the bytes that the key released. Memory that the eviction itself takes (messages to clients that track the
 * key, the replication stream) is not subtracted: otherwise it would cause the next eviction. */
static size_t evict(struct db *db, struct entry *e) {
    store_stats.evicted_keys++;
    db->keyspace->hooks.evicted(db, entry_key_inline(e));
    size_t before = mem_used();
    db_unlink(db, e);
    size_t unlinked = mem_used();
    hook_changed(db, e);
    size_t notified = mem_used();
    entry_dispose(e, db->id, store_settings.lazy_eviction);
    return decrease(before, unlinked) + decrease(notified, mem_used());
}

enum eviction_result keyspace_evict(struct keyspace *k, const struct eviction *eviction) {
    bool volatile_only = eviction->volatile_only || eviction->kind == EVICT_TTL;
    uint64_t start = clock_monotonic_us();
    size_t freed = 0, needed = eviction->excess(eviction->context);
    /* `freed` does not include values that are freed in the background. */
    for (unsigned evicted = 0; freed < needed && eviction->excess(eviction->context); evicted++) {
        if (eviction->limit_us && evicted && evicted % CHECK_EVERY == 0 &&
            clock_monotonic_us() - start > eviction->limit_us)
            return EVICTION_UNDONE;
        struct db *db;
        struct entry *e = eviction->kind == EVICT_RANDOM ? choose_any(k, volatile_only, &db)
                                                         : choose_best(k, eviction, volatile_only, &db);
        if (!e) return EVICTION_NO_KEYS;
        freed += evict(db, e);
    }
    return EVICTION_DONE;
}
