/* rdb_stream.c: see rdb_stream.h. Whatever commands rely on is checked: the insides and the order of nodes, counts that
 * must agree, names and ids that come once, owners of what is pending. */
#include "persist/rdb_stream.h"
#include "lib/memory.h"
#include "store/stream_group.h"

/* --- Writing --- */

static void write_id(struct output *out, struct stream_id id) {
    rdb_write_length(out, id.ms);
    rdb_write_length(out, id.seq);
}
static void write_nodes(struct output *out, const struct radix_tree *nodes) {
    struct radix_iterator it;
    rdb_write_length(out, radix_tree_len(nodes));
    radix_iterator_init(&it, nodes);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it)) {
        rdb_write_string(out, it.key);
        rdb_write_string(out, slice_make(it.value, listpack_bytes(it.value)));
    }
    radix_iterator_free(&it);
}

/* Of a consumer only ids; the rest stands with its group. */
static void write_pending(struct output *out, const struct radix_tree *pending, bool whole) {
    struct radix_iterator it;
    rdb_write_length(out, radix_tree_len(pending));
    radix_iterator_init(&it, pending);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it)) {
        const struct stream_pending *entry = it.value;
        output_write(out, it.key);
        if (!whole) continue;
        rdb_write_time(out, entry->delivered_ms);
        rdb_write_length(out, entry->deliveries);
    }
    radix_iterator_free(&it);
}

static void write_group(struct output *out, struct slice name, const struct stream_group *group) {
    struct radix_iterator it;
    rdb_write_string(out, name);
    write_id(out, group->last_id);
    rdb_write_length(out, (uint64_t)group->entries_read);
    write_pending(out, group->pending, true);
    rdb_write_length(out, radix_tree_len(group->consumers));
    radix_iterator_init(&it, group->consumers);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it)) {
        const struct stream_consumer *consumer = it.value;
        rdb_write_string(out, it.key);
        rdb_write_time(out, consumer->seen_ms);
        rdb_write_time(out, consumer->active_ms);
        write_pending(out, consumer->pending, false);
    }
    radix_iterator_free(&it);
}

void rdb_write_stream(struct output *out, const struct stream *stream) {
    write_nodes(out, stream->nodes);
    rdb_write_length(out, stream->length);
    write_id(out, stream->last_id);
    write_id(out, stream->first_id);
    write_id(out, stream->max_deleted_id);
    rdb_write_length(out, stream->entries_added);
    rdb_write_length(out, stream_group_count(stream));
    if (!stream->groups) return;
    struct radix_iterator it;
    radix_iterator_init(&it, stream->groups);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it))
        write_group(out, it.key, it.value);
    radix_iterator_free(&it);
}

/* --- Reading --- */

static struct stream_id read_id(struct rdb_reader *in) {
    struct stream_id id = {.ms = rdb_read_length(in)};
    id.seq = rdb_read_length(in);
    return id;
}
static struct stream_id read_raw_id(struct rdb_reader *in) {
    char bytes[STREAM_ID_BYTES];
    rdb_read_bytes(in, bytes, sizeof bytes);
    return stream_id_decode(bytes);
}

/* *after is the last living id so far. */
static void read_node(struct rdb_reader *in, struct stream *stream, struct stream_id *after) {
    char *made_key, *made;
    uint64_t living = 0;
    struct stream_id master = STREAM_ID_MIN;
    struct slice key = rdb_read_string(in, &made_key), bytes = rdb_read_string(in, &made);
    if (key.len == STREAM_ID_BYTES) master = stream_id_decode(key.data);
    if (stream_id_compare(master, *after) <= 0 ||
        !stream_node_validate((const uint8_t *)bytes.data, bytes.len, master, after, &living))
        in->failed = true;
    if (!in->failed && living) stream_add_node(stream, master, (const uint8_t *)bytes.data, living);
    mem_free(made_key);
    mem_free(made);
}

static void read_nodes(struct rdb_reader *in, struct stream *stream, enum rdb_type type) {
    struct stream_id after = STREAM_ID_MIN;
    uint64_t count = rdb_read_length(in);
    for (uint64_t i = 0; i < count && !in->failed; i++) read_node(in, stream, &after);
    if (rdb_read_length(in) != stream->length) in->failed = true;
    stream->last_id = read_id(in);
    if (stream_id_compare(stream->last_id, after) < 0) in->failed = true;
    stream->entries_added = stream->length;
    if (type == RDB_STREAM) return;
    read_id(in); /* the first one, which is known */
    stream->max_deleted_id = read_id(in);
    stream->entries_added = rdb_read_length(in);
    if (stream->entries_added < stream->length || stream->entries_added > INT64_MAX) in->failed = true;
}

static void read_group_pending(struct rdb_reader *in, struct stream_group *group) {
    uint64_t count = rdb_read_length(in);
    for (uint64_t i = 0; i < count && !in->failed; i++) {
        struct stream_id id = read_raw_id(in);
        int64_t delivered_ms = rdb_read_time(in);
        uint64_t deliveries = rdb_read_length(in);
        if (!in->failed && !stream_pending_restore(group, id, delivered_ms, deliveries)) in->failed = true;
    }
}

/* Returns how many entries are pending for the consumer. */
static uint64_t read_consumer(struct rdb_reader *in, struct stream_group *group, enum rdb_type type) {
    char *made;
    struct slice name = rdb_read_string(in, &made);
    int64_t seen_ms = rdb_read_time(in), active_ms = type == RDB_STREAM_3 ? rdb_read_time(in) : seen_ms;
    struct stream_consumer *consumer = in->failed ? NULL : stream_consumer_create(group, name, seen_ms);
    mem_free(made);
    if (consumer)
        consumer->active_ms = active_ms;
    else
        in->failed = true;
    uint64_t count = rdb_read_length(in);
    for (uint64_t i = 0; i < count && !in->failed; i++) {
        struct stream_id id = read_raw_id(in);
        struct stream_pending *pending = in->failed ? NULL : stream_pending_find(group, id);
        if (pending && !pending->consumer)
            stream_pending_give(pending, id, consumer);
        else
            in->failed = true;
    }
    return count;
}

static void read_group(struct rdb_reader *in, struct stream *stream, enum rdb_type type) {
    char *made;
    struct slice name = rdb_read_string(in, &made);
    struct stream_id last_id = read_id(in);
    int64_t entries_read = type == RDB_STREAM ? stream_entries_up_to(stream, last_id) : (int64_t)rdb_read_length(in);
    struct stream_group *group = in->failed ? NULL : stream_group_create(stream, name, last_id, entries_read);
    mem_free(made);
    if (!group || entries_read < STREAM_READ_UNKNOWN) in->failed = true;
    if (in->failed) return;
    read_group_pending(in, group);
    uint64_t owned = 0, count = rdb_read_length(in);
    for (uint64_t i = 0; i < count && !in->failed; i++) owned += read_consumer(in, group, type);
    if (owned != radix_tree_len(group->pending)) in->failed = true;
}

struct stream *rdb_read_stream(struct rdb_reader *in, enum rdb_type type) {
    struct stream *stream = stream_new();
    read_nodes(in, stream, type);
    uint64_t groups = rdb_read_length(in);
    for (uint64_t i = 0; i < groups && !in->failed; i++) read_group(in, stream, type);
    if (!in->failed) return stream;
    stream_free(stream);
    return NULL;
}
