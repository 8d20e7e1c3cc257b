/* Values in RDB files and RESTORE payloads with any bytes: corrupt values are rejected without a leak; an accepted
 * value is the same after writing and reading it. Streams, whose nodes are used as they arrive, are also read and
 * changed in all ways; hashes lose their expired fields. */
#include "formats/rdb.h"
#include "fuzz.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "small_values.h"
#include "store/hash.h"
#include "store/stream_group.h"

static struct keyspace *keyspace;
static const int64_t now = INT64_C(1) << 40; /* between the expiry times of fields, so that some have expired */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const struct store_hooks nobody;
    small_values_init();
    clock_cache.data_ms = clock_cache.wall_ms = now;
    keyspace = keyspace_new(2, &nobody);
    return 0;
}

/* Returns the number of entries and texts. */
static uint64_t walk_entries(const struct stream *stream, struct stream_id first, struct stream_id last, bool down,
                             size_t *bytes) {
    struct stream_iterator it;
    struct stream_id id, before = down ? STREAM_ID_MAX : STREAM_ID_MIN;
    size_t fields;
    uint64_t count = 0;
    *bytes = 0;
    for (stream_iterate(&it, stream, first, last, down); stream_next(&it, &id, &fields); count++) {
        int order = stream_id_compare(id, before);
        FUZZ_CHECK(count == 0 || (down ? order < 0 : order > 0), "out of order");
        FUZZ_CHECK(stream_id_compare(id, first) >= 0 && stream_id_compare(id, last) <= 0, "out of range");
        before = id;
        for (struct slice field, value; fields--; *bytes += field.len + value.len) stream_field(&it, &field, &value);
    }
    stream_iterate_end(&it);
    FUZZ_CHECK(stream_count(stream, first, last, 0) == count, "another count");
    return count;
}

static void use_group(const struct stream *stream, struct stream_group *group, struct stream_consumer *fresh) {
    int64_t lag;
    stream_group_lag(stream, group, &lag);
    stream_group_advance(stream, group, stream->last_id);
    struct stream_pending_iterator it;
    uint64_t count = 0, pending = radix_tree_len(group->pending);
    stream_pending_iterate(&it, group->pending, STREAM_ID_MIN);
    for (struct stream_pending *entry; (entry = stream_pending_next(&it)); count++) {
        if (count % 3 == 0) stream_pending_give(entry, it.id, fresh);
        if (count % 3 != 1) continue;
        stream_acknowledge(group, it.id);
        stream_pending_resume(&it);
    }
    stream_pending_iterate_end(&it);
    FUZZ_CHECK(count == pending, "%llu of %llu are seen", (unsigned long long)count, (unsigned long long)pending);
    stream_deliver(group, fresh, stream->last_id, 0);
    struct radix_iterator consumers;
    radix_iterator_init(&consumers, group->consumers);
    for (bool more = radix_iterator_seek(&consumers, RADIX_FIRST, SLICE("")); more;
         more = radix_iterator_seek(&consumers, RADIX_ABOVE, consumers.key))
        if (consumers.value != fresh) stream_consumer_delete(group, consumers.value);
    radix_iterator_free(&consumers);
    FUZZ_CHECK(radix_tree_len(group->pending) == radix_tree_len(fresh->pending), "some are nobody's");
}

static void use_stream(struct stream *stream) {
    size_t up, down;
    FUZZ_CHECK(walk_entries(stream, STREAM_ID_MIN, STREAM_ID_MAX, false, &up) == stream->length, "length %llu",
               (unsigned long long)stream->length);
    FUZZ_CHECK(walk_entries(stream, STREAM_ID_MIN, STREAM_ID_MAX, true, &down) == stream->length && up == down,
               "other texts downwards");
    struct stream_id id, middle = {stream->first_id.ms / 2 + stream->last_id.ms / 2, stream->last_id.seq};
    for (int way = 0; way < 2; way++) walk_entries(stream, stream->first_id, middle, way, &up);
    if (stream->length)
        FUZZ_CHECK(stream_last_entry(stream, &id) && stream_contains(stream, id) &&
                       stream_contains(stream, stream->first_id),
                   "an end is missing");
    struct radix_iterator it;
    radix_iterator_init(&it, stream->groups);
    for (bool more = stream->groups && radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more;
         more = radix_iterator_next(&it)) {
        struct stream_consumer *fresh = stream_consumer_create(it.value, SLICE("a name of its own"), 0);
        if (fresh) use_group(stream, it.value, fresh);
    }
    radix_iterator_free(&it);
    id = stream->last_id;
    static const struct slice texts[] = {{"a", 1}, {"some text", 9}, {"b", 1}, {"12", 2}};
    for (size_t pairs = 1; pairs <= 2; pairs++)
        if (stream_next_id(stream, STREAM_ID_CHOSEN, 0, &id)) {
            FUZZ_CHECK(stream_append(stream, id, texts, pairs) && stream_contains(stream, id),
                       "what was added is missing");
        }
    while (stream->length > 4) {
        struct stream_trim trim = {
            .by = STREAM_TRIM_LENGTH, .length = stream->length - 2, .approximate = stream->length % 3 == 0};
        FUZZ_CHECK(stream_delete(stream, stream->first_id), "the first cannot be deleted");
        if (stream_last_entry(stream, &id)) FUZZ_CHECK(stream_delete(stream, id), "the last cannot be deleted");
        stream_trim(stream, &trim);
        trim = (struct stream_trim){.by = STREAM_TRIM_ID, .min = middle, .approximate = stream->length % 2};
        stream_trim(stream, &trim);
    }
}

static void count_item(void *context, const struct hash_item *item) {
    FUZZ_CHECK(item->expire_at < 0 || item->expire_at >= now, "an expired field is seen");
    ++*(size_t *)context;
}

/* Expired fields are hidden, then deleted; the other fields get and lose expiry times. The hash may be deleted. */
static void use_hash(struct db *db, struct slice key, struct entry *entry) {
    size_t live = hash_len_now(entry), seen = 0;
    uint64_t cursor = 0;
    do cursor = hash_scan(entry, cursor, count_item, &seen);
    while (cursor);
    FUZZ_CHECK(seen >= live, "%zu of %zu are seen", seen, live);
    struct entry *copy = db_copy(db, entry, db, SLICE("copy"));
    FUZZ_CHECK(hash_len(copy) == hash_len(entry) && hash_len_now(copy) == live, "a copy differs");
    while (db_expiring(db) && hash_len(copy) > hash_len_now(copy) && live) hash_expire_due(db, copy);
    if (live) FUZZ_CHECK(hash_len(copy) == live, "%zu are left", hash_len(copy));
    for (size_t round = 0; live && round < 8; round++) {
        struct hash_item item;
        hash_random(copy, &item);
        struct blob *name = blob_copy(item.field);
        hash_set_expire(db, copy, blob_slice(name), round % 3 ? now + (int64_t)round : HASH_NEVER);
        if (round == 5) hash_put_until(db, copy, blob_slice(name), SLICE("another"), NULL, HASH_KEEP);
        blob_release(name);
    }
    db_delete(db, SLICE("copy"), false);
    for (int rounds = 0; db_expiring(db) && rounds < 10; rounds++) keyspace_expire_cycle(keyspace, false, 1);
    FUZZ_CHECK((db_find(db, key, LOOKUP_NOTOUCH) != NULL) == (live != 0), "a key stays or goes wrongly");
}

static void write_typed(struct output *out, const struct entry *entry) {
    enum rdb_type type = rdb_value_type(entry, RDB_VERSION);
    output_write(out, (struct slice){&(char){(char)type}, 1});
    rdb_write_value(out, entry, 0, type);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct slice key = {"key", 3};
    struct db *db = keyspace_db(keyspace, 0), *other = keyspace_db(keyspace, 1);
    char *exact = mem_alloc(size ? size : 1); /* so that reads past the end are detected */
    if (size) memcpy(exact, data, size);
    struct source source;
    struct rdb_reader in;
    source_init_memory(&source, slice_make(exact, size));
    rdb_reader_init(&in, &source);
    struct entry *entry = rdb_read_value(&in, db, key);
    rdb_reader_free(&in);
    FUZZ_CHECK((entry != NULL) == (db_size(db) == 1), "%zu keys", db_size(db));
    if (entry) {
        struct memory_output once, twice;
        memory_output_init(&once);
        memory_output_init(&twice);
        write_typed(&once.out, entry);
        struct slice written = memory_output_slice(&once);
        source_init_memory(&source, written);
        rdb_reader_init(&in, &source);
        struct entry *copy = rdb_read_value(&in, other, key);
        rdb_reader_free(&in);
        FUZZ_CHECK(copy, "what was written cannot be read");
        FUZZ_CHECK(source_at_end(&source), "%zu bytes are left", (size_t)source_left(&source));
        FUZZ_CHECK(entry_type(copy) == entry_type(entry), "another type");
        write_typed(&twice.out, copy);
        /* A table has no order. The form with expiration times becomes one, and is packed again once none expires. */
        bool same_form = entry_encoding(copy) == entry_encoding(entry) && entry_encoding(copy) != ENCODING_HASHTABLE;
        FUZZ_CHECK(!same_form || memory_output_slice(&twice).len == written.len, "another length");
        memory_output_free(&once);
        memory_output_free(&twice);
        if (entry_type(copy) == TYPE_STREAM) use_stream(stream_of(copy));
        if (entry_type(copy) == TYPE_HASH) use_hash(other, key, copy);
        db_delete(other, key, false);
        db_delete(db, key, false);
    }
    mem_free(exact);
    return 0;
}
