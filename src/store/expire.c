/* expire.c: active expiry.
 *
 * A lookup deletes a key that has expired. For other keys a cycle scans the tables of expiring keys: it samples a few
 * buckets, deletes the expired keys, and continues with the same database, within a time limit, while more than a
 * tolerated share of the sample had expired. So the CPU time follows the number of expired keys, and the share of
 * expired keys that still use memory stays near the tolerance (10 % minus active_expire_effort).
 *
 * The slow cycle runs in the cron and may use 25 % of the time between two calls. The fast cycle runs before the loop
 * sleeps and takes a millisecond, but only after a slow cycle ran out of time.
 *
 * Hash fields need no scan: a heap yields the expired ones. They are deleted first, in at most a quarter of the cycle's
 * time, so that neither keys nor fields starve the other. */
#include "store/hash.h"
#include "store/keyspace_layout.h"
#include "store/loan.h"

enum {
    KEYS_PER_ROUND = 20,
    FAST_US = 1000,
    SLOW_PERCENT = 25,
    STALE_PERCENT = 10,
    FIELDS_SHARE = 4, /* the fraction of a cycle's time: a quarter */
    BATCH = 64,       /* expired entries deleted per scan step; later calls find the rest */
    TTL_SAMPLES = 50  /* weight of the previous average */
};

void db_expire_entry(struct db *db, struct entry *e) {
    store_stats.expired_keys++;
    db->keyspace->hooks.expired(db, entry_key_inline(e));
    db_unlink(db, e);
    hook_changed(db, e);
    entry_dispose(e, db->id, store_settings.lazy_expire);
}

struct expire_batch {
    struct entry *expired[BATCH];
    size_t expired_count, sampled, alive;
    int64_t ttl_sum, now;
};
static void batch_see(void *context, void *entry) {
    struct expire_batch *batch = context;
    struct entry *e = entry;
    int64_t left = *entry_expiry_word(e) - batch->now;
    batch->sampled++;
    if (left >= 0) {
        if (__builtin_add_overflow(batch->ttl_sum, left, &batch->ttl_sum)) batch->ttl_sum = INT64_MAX;
        batch->alive++;
    } else if (batch->expired_count < BATCH) {
        batch->expired[batch->expired_count++] = e;
    }
}

struct cycle {
    uint64_t start, limit_us, keys_per_round, tolerated_percent;
    uint64_t sampled, expired;   /* in all databases */
    uint64_t hashes, hashes_due; /* with field expiration; with expired fields */
    bool timed_out;
};

static bool cycle_is_over(struct cycle *cycle) {
    if (clock_monotonic_us() - cycle->start > cycle->limit_us) cycle->timed_out = true;
    return cycle->timed_out;
}

/* One round: about keys_per_round keys, and at most 20 times as many empty buckets. True: another round is
 * worthwhile. */
static bool cycle_round(struct db *db, struct cycle *cycle) {
    struct expire_batch batch = {.now = clock_data_ms()};
    size_t sampled = 0, expired = 0;
    for (size_t steps = cycle->keys_per_round * 20; steps && sampled < cycle->keys_per_round; steps--) {
        batch.sampled = batch.expired_count = 0;
        db->expire_cursor = key_tables_scan(&db->expires, -1, db->expire_cursor, batch_see, &batch);
        for (size_t i = 0; i < batch.expired_count; i++) db_expire_entry(db, batch.expired[i]);
        sampled += batch.sampled, expired += batch.expired_count;
        if (!db_expires(db)) break;
    }
    if (batch.alive) {
        int64_t average = batch.ttl_sum / (int64_t)batch.alive;
        if (!db->average_ttl) db->average_ttl = average;
        db->average_ttl += (average - db->average_ttl) / TTL_SAMPLES;
    }
    cycle->sampled += sampled, cycle->expired += expired;
    return sampled && expired * 100 > sampled * cycle->tolerated_percent;
}

static void cycle_db(struct db *db, struct cycle *cycle) {
    if (!db_expires(db)) {
        db->average_ttl = 0;
        return;
    }
    for (unsigned round = 1; cycle_round(db, cycle) && db_expires(db); round++)
        if (round % 16 == 0 && cycle_is_over(cycle)) return;
}

/* A value that is first in the heap, or near to it, and has expired items. One that is lent waits: loan.h. */
static const struct expiring_value *first_due(const struct db *db) {
    enum { LOOKED_AT = 64 };
    const struct heap *heap = &db->expiring_values;
    for (size_t i = 0; i < heap->len && i < LOOKED_AT; i++) {
        const struct expiring_value *value = heap->items[i];
        if (time_is_over(value->next_at) && !value_is_lent(value->entry)) return value;
        if (!i && !time_is_over(value->next_at)) return NULL;
    }
    return NULL;
}

/* True: all expired fields of the database are deleted, but for those of lent values. */
static bool fields_db(struct db *db, struct cycle *cycle) {
    const struct expiring_value *value;
    cycle->hashes += db->expiring_values.len;
    while ((value = first_due(db))) {
        hash_expire_due(db, value->entry);
        cycle->hashes_due++;
        if (clock_monotonic_us() - cycle->start > cycle->limit_us / FIELDS_SHARE) return false;
    }
    return true;
}
void db_expire_fields(struct db *db) {
    const struct expiring_value *value;
    if (store_settings.keep_expired || store_settings.show_expired) return;
    while ((value = heap_first(&db->expiring_values)) && time_is_over(value->next_at))
        if (!hash_expire_due(db, value->entry)) return;
}

static void cycle_fields(struct keyspace *k, struct cycle *cycle) {
    k->field_expire_behind = false;
    for (int i = 0; i < k->databases && !k->field_expire_behind; i++) {
        k->field_expire_behind = !fields_db(&k->db[k->field_expire_db], cycle);
        if (!k->field_expire_behind) k->field_expire_db = (k->field_expire_db + 1) % k->databases;
    }
}

static void average_add(double *percent, uint64_t expired, uint64_t all) {
    if (expired > all) expired = all; /* a hash with many expired fields counts several times */
    double stale = all ? (double)expired * 100 / (double)all : 0;
    *percent = stale * 0.05 + *percent * 0.95;
}

static void cycle_finish(const struct cycle *cycle, bool fields_late) {
    if (cycle->timed_out || fields_late) store_stats.expired_time_cap_reached++;
    store_stats.expire_cycle_us += clock_monotonic_us() - cycle->start;
    average_add(&store_stats.expired_stale_percent, cycle->expired, cycle->sampled);
    average_add(&store_stats.expired_hashes_stale_percent, cycle->hashes_due, cycle->hashes);
}

void keyspace_expire_cycle(struct keyspace *k, bool fast, int hz) {
    static bool timed_out;     /* the last cycle ran out of time */
    static uint64_t last_fast; /* start of the last fast cycle */
    if (!store_settings.active_expire || store_settings.keep_expired || store_settings.show_expired) return;
    uint64_t effort = (uint64_t)(store_settings.active_expire_effort - 1), fast_us = FAST_US + FAST_US / 4 * effort;
    uint64_t tolerated = STALE_PERCENT - effort;
    if (fast && !timed_out && !k->field_expire_behind && store_stats.expired_stale_percent < (double)tolerated)
        return; /* the common case */
    struct cycle cycle = {.start = clock_monotonic_us(),
                          .keys_per_round = KEYS_PER_ROUND + KEYS_PER_ROUND / 4 * effort,
                          .tolerated_percent = tolerated};
    if (fast) {
        if (cycle.start < last_fast + fast_us * 2) return;
        last_fast = cycle.start;
        cycle.limit_us = fast_us;
    } else {
        cycle.limit_us = (SLOW_PERCENT + 2 * effort) * 1000000 / (uint64_t)(hz > 0 ? hz : 1) / 100;
    }
    cycle_fields(k, &cycle);
    for (int i = 0; i < k->databases && !cycle.timed_out; i++) {
        struct db *db = &k->db[k->expire_db];
        cycle_db(db, &cycle);
        if (!cycle.timed_out) k->expire_db = (k->expire_db + 1) % k->databases;
    }
    timed_out = cycle.timed_out;
    cycle_finish(&cycle, k->field_expire_behind);
}
