/* rdb_stream.c: see rdb_stream.h. The reader checks everything that commands rely on: the content and order of nodes,
 * counts, unique names and ids, owners of pending entries. */
#include "formats/rdb_stream.h"
#include "lib/system/memory.h"
#include "store/stream_group.h"
#include <errno.h>

/* --- Writing --- */

static void write_id(struct output *out, struct stream_id id) {
    rdb_write_length(out, id.ms);
    rdb_write_length(out, id.seq);
}

/* For a consumer only the ids are written; its group has the rest. */
static void write_pending(struct output *out, const struct radix_tree *pending, bool whole) {
    struct radix_iterator it;
    rdb_write_length(out, radix_tree_len(pending));
    radix_iterator_init(&it, pending);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more && !out->failed;
         more = radix_iterator_next(&it)) {
        const struct stream_pending *entry = it.value;
        output_write(out, it.key);
        if (!whole) continue;
        rdb_write_time(out, entry->delivered_ms);
        rdb_write_length(out, entry->deliveries);
    }
    radix_iterator_free(&it);
}

static void write_group(struct output *out, struct slice name, const struct stream_group *group, bool active_times) {
    struct radix_iterator it;
    rdb_write_string(out, name);
    write_id(out, group->last_id);
    rdb_write_length(out, (uint64_t)group->entries_read);
    write_pending(out, group->pending, true);
    rdb_write_length(out, radix_tree_len(group->consumers));
    radix_iterator_init(&it, group->consumers);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more && !out->failed;
         more = radix_iterator_next(&it)) {
        const struct stream_consumer *consumer = it.value;
        rdb_write_string(out, it.key);
        rdb_write_time(out, consumer->seen_ms);
        if (active_times) rdb_write_time(out, consumer->active_ms);
        write_pending(out, consumer->pending, false);
    }
    radix_iterator_free(&it);
}

void rdb_write_stream(struct output *out, const struct stream *stream, bool active_times) {
    struct radix_iterator it;
    rdb_write_length(out, radix_tree_len(stream->nodes));
    radix_iterator_init(&it, stream->nodes);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more && !out->failed;
         more = radix_iterator_next(&it)) {
        rdb_write_string(out, it.key);
        rdb_write_string(out, slice_make(it.value, listpack_bytes(it.value)));
    }
    radix_iterator_free(&it);
    rdb_write_length(out, stream->length);
    write_id(out, stream->last_id);
    write_id(out, stream->first_id);
    write_id(out, stream->max_deleted_id);
    rdb_write_length(out, stream->entries_added);
    rdb_write_length(out, stream_group_count(stream));
    if (!stream->groups) return;
    radix_iterator_init(&it, stream->groups);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more && !out->failed;
         more = radix_iterator_next(&it))
        write_group(out, it.key, it.value, active_times);
    radix_iterator_free(&it);
}

/* --- Reading --- */

static bool fail_corrupt(struct rdb_reader *in, const char *what) {
    return source_fail(in->source, -EINVAL, "%s", what);
}
static bool rdb_stream_failed(const struct rdb_reader *in) {
    return in->source->failed;
}

static struct stream_id read_id(struct rdb_reader *in) {
    struct stream_id id = {.ms = rdb_read_length(in)};
    id.seq = rdb_read_length(in);
    return id;
}
static struct stream_id read_raw_id(struct rdb_reader *in) {
    char bytes[STREAM_ID_BYTES] = {0};
    return source_read(in->source, bytes, sizeof bytes) ? stream_id_decode(bytes) : STREAM_ID_MIN;
}

/* *after: the last live id so far. */
static void read_node(struct rdb_reader *in, struct stream *stream, struct stream_id *after) {
    struct slice key;
    uint64_t living = 0;
    size_t len;
    if (!rdb_read_string(in, &in->first, &key)) return;
    if (key.len != STREAM_ID_BYTES) {
        fail_corrupt(in, "Stream node key entry is not the size of a stream ID");
        return;
    }
    struct stream_id master = stream_id_decode(key.data);
    uint8_t *lp = rdb_read_block(in, &len);
    if (!lp) return;
    rdb_sanitizations++;
    if (stream_id_compare(master, *after) <= 0)
        fail_corrupt(in, "Stream listpacks are not in order");
    else if (!stream_node_validate(lp, len, master, after, &living))
        fail_corrupt(in, "Stream listpack integrity check failed.");
    if (!rdb_stream_failed(in) && living)
        stream_add_node(stream, master, lp, living);
    else
        mem_free(lp);
}

static void read_ids(struct rdb_reader *in, struct stream *stream, enum rdb_type type, struct stream_id after) {
    if (rdb_read_length(in) != stream->length)
        fail_corrupt(in, "Stream length inconsistent with the number of valid entries");
    stream->last_id = read_id(in);
    if (stream_id_compare(stream->last_id, after) < 0) fail_corrupt(in, "Stream has entries above its last ID");
    stream->entries_added = stream->length;
    if (type == RDB_STREAM || rdb_stream_failed(in)) return;
    read_id(in); /* the first id, which follows from the entries */
    stream->max_deleted_id = read_id(in);
    stream->entries_added = rdb_read_length(in);
    if (stream->entries_added < stream->length || stream->entries_added > INT64_MAX)
        fail_corrupt(in, "Stream has an impossible number of entries added");
}

static void read_group_pending(struct rdb_reader *in, struct stream_group *group) {
    uint64_t count = rdb_read_length(in);
    for (uint64_t i = 0; i < count && !rdb_stream_failed(in); i++) {
        struct stream_id id = read_raw_id(in);
        int64_t delivered_ms = rdb_read_time(in);
        uint64_t deliveries = rdb_read_length(in);
        if (!rdb_stream_failed(in) && !stream_pending_restore(group, id, delivered_ms, deliveries))
            fail_corrupt(in, "Duplicated global PEL entry loading stream consumer group");
    }
}

/* Returns the number of entries that are pending for the consumer. */
static uint64_t read_consumer(struct rdb_reader *in, struct stream_group *group, enum rdb_type type) {
    struct slice name;
    if (!rdb_read_string_kept(in, &in->first, &name)) return 0;
    int64_t seen_ms = rdb_read_time(in), active_ms = type == RDB_STREAM_3 ? rdb_read_time(in) : seen_ms;
    struct stream_consumer *consumer = rdb_stream_failed(in) ? NULL : stream_consumer_create(group, name, seen_ms);
    if (consumer)
        consumer->active_ms = active_ms;
    else
        fail_corrupt(in, "Duplicate stream consumer detected.");
    uint64_t count = rdb_read_length(in);
    for (uint64_t i = 0; i < count && !rdb_stream_failed(in); i++) {
        struct stream_id id = read_raw_id(in);
        struct stream_pending *pending = rdb_stream_failed(in) ? NULL : stream_pending_find(group, id);
        if (!pending)
            fail_corrupt(in, "Consumer entry not found in group global PEL");
        else if (pending->consumer == consumer)
            fail_corrupt(in, "Duplicated consumer PEL entry loading a stream consumer group");
        else if (pending->consumer)
            fail_corrupt(in,
                         "NACK already assigned to a different consumer, shared NACKs across consumers are not valid");
        else
            stream_pending_give(pending, id, consumer);
    }
    return count;
}

static void read_group(struct rdb_reader *in, struct stream *stream, enum rdb_type type) {
    struct slice name;
    if (!rdb_read_string_kept(in, &in->first, &name)) return;
    struct stream_id last_id = read_id(in);
    int64_t entries_read = type == RDB_STREAM ? stream_entries_up_to(stream, last_id) : (int64_t)rdb_read_length(in);
    if (rdb_stream_failed(in)) return;
    if (entries_read < STREAM_READ_UNKNOWN) {
        fail_corrupt(in, "Stream consumer group has an impossible number of entries read");
        return;
    }
    struct stream_group *group = stream_group_create(stream, name, last_id, entries_read);
    if (!group) {
        fail_corrupt(in, "Duplicated consumer group name loading a stream");
        return;
    }
    read_group_pending(in, group);
    uint64_t owned = 0, count = rdb_read_length(in);
    for (uint64_t i = 0; i < count && !rdb_stream_failed(in); i++) owned += read_consumer(in, group, type);
    if (owned != radix_tree_len(group->pending)) fail_corrupt(in, "Stream CG PEL entry without consumer");
}

struct stream *rdb_read_stream(struct rdb_reader *in, enum rdb_type type) {
    struct stream *stream = stream_new();
    struct stream_id after = STREAM_ID_MIN;
    uint64_t nodes = rdb_read_length(in);
    for (uint64_t i = 0; i < nodes && !rdb_stream_failed(in); i++) read_node(in, stream, &after);
    read_ids(in, stream, type, after);
    uint64_t groups = rdb_read_length(in);
    for (uint64_t i = 0; i < groups && !rdb_stream_failed(in); i++) read_group(in, stream, type);
    if (!rdb_stream_failed(in)) return stream;
    stream_free(stream);
    return NULL;
}
