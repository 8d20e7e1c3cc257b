/* stream_group.c: see stream_group.h. */
#include "store/stream_group.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"

/* The bytes of an id: its key in radix trees. */
struct id_key {
    char bytes[STREAM_ID_BYTES];
};
static struct slice id_key(struct id_key *key, struct stream_id id) {
    stream_id_encode(key->bytes, id);
    return slice_make(key->bytes, sizeof key->bytes);
}

/* --- Groups --- */

static struct stream_group *group_new(struct stream_id last_id, int64_t entries_read) {
    struct stream_group *group = mem_alloc(sizeof *group);
    *group = (struct stream_group){last_id, entries_read, radix_tree_new(), radix_tree_new()};
    return group;
}
static void consumer_free(void *value) {
    struct stream_consumer *consumer = value;
    radix_tree_free(consumer->pending, NULL);
    mem_free(consumer);
}
static void group_free(void *value) {
    struct stream_group *group = value;
    radix_tree_free(group->consumers, consumer_free);
    radix_tree_free(group->pending, mem_free);
    mem_free(group);
}

size_t stream_group_count(const struct stream *stream) {
    return stream->groups ? radix_tree_len(stream->groups) : 0;
}
struct stream_group *stream_group_find(const struct stream *stream, struct slice name) {
    void *group = NULL;
    if (stream->groups) radix_tree_find(stream->groups, name, &group);
    return group;
}
struct stream_group *stream_group_create(struct stream *stream, struct slice name, struct stream_id last_id,
                                         int64_t entries_read) {
    if (stream_group_find(stream, name)) return NULL;
    if (!stream->groups) stream->groups = radix_tree_new();
    struct stream_group *group = group_new(last_id, entries_read);
    radix_tree_set(stream->groups, name, group, NULL);
    return group;
}
bool stream_group_destroy(struct stream *stream, struct slice name) {
    void *group;
    if (!stream->groups || !radix_tree_remove(stream->groups, name, &group)) return false;
    group_free(group);
    return true;
}

/* --- Position and lag --- */

int64_t stream_entries_up_to(const struct stream *stream, struct stream_id id) {
    int order = stream_id_compare(id, stream->last_id);
    if (!stream->entries_added) return 0;
    if (order == 0 || (order < 0 && !stream->length)) return (int64_t)stream->entries_added;
    if (order > 0) return STREAM_READ_UNKNOWN;
    if (!stream_id_is_zero(id) && stream_id_compare(id, stream->max_deleted_id) < 0) return STREAM_READ_UNKNOWN;
    /* All removed entries were below the first live entry, so the position follows from the length. */
    bool whole =
        stream_id_is_zero(stream->max_deleted_id) || stream_id_compare(stream->max_deleted_id, stream->first_id) < 0;
    int from_first = stream_id_compare(id, stream->first_id);
    if (!whole || from_first > 0) return STREAM_READ_UNKNOWN;
    return (int64_t)(stream->entries_added - stream->length) + (from_first == 0);
}

void stream_group_advance(const struct stream *stream, struct stream_group *group, struct stream_id id) {
    /* XGROUP may have set any count for a group that is before the first entry, but the position of that entry is
     * exact. */
    if (group->entries_read != STREAM_READ_UNKNOWN && group->entries_read < INT64_MAX &&
        stream_id_compare(group->last_id, stream->first_id) >= 0 &&
        !stream_has_gaps(stream, group->last_id, STREAM_ID_MAX))
        group->entries_read++;
    else
        group->entries_read = stream_entries_up_to(stream, id);
    group->last_id = id;
}

bool stream_group_lag(const struct stream *stream, const struct stream_group *group, int64_t *lag) {
    int64_t read = group->entries_read;
    *lag = 0;
    if (!stream->entries_added) return true;
    if (read == STREAM_READ_UNKNOWN || stream_has_gaps(stream, group->last_id, STREAM_ID_MAX))
        read = stream_entries_up_to(stream, group->last_id);
    if (read == STREAM_READ_UNKNOWN) return false;
    *lag = (int64_t)(stream->entries_added - (uint64_t)read);
    return true;
}

/* --- Consumers --- */

struct stream_consumer *stream_consumer_find(const struct stream_group *group, struct slice name) {
    void *consumer = NULL;
    radix_tree_find(group->consumers, name, &consumer);
    return consumer;
}
struct stream_consumer *stream_consumer_create(struct stream_group *group, struct slice name, int64_t now_ms) {
    if (stream_consumer_find(group, name)) return NULL;
    struct stream_consumer *consumer = mem_alloc(sizeof *consumer + name.len);
    consumer->seen_ms = now_ms;
    consumer->active_ms = -1;
    consumer->pending = radix_tree_new();
    consumer->name_len = name.len;
    if (name.len) memcpy(consumer->name, name.data, name.len);
    radix_tree_set(group->consumers, name, consumer, NULL);
    return consumer;
}
uint64_t stream_consumer_delete(struct stream_group *group, struct stream_consumer *consumer) {
    uint64_t count = radix_tree_len(consumer->pending);
    struct stream_pending_iterator it;
    struct id_key key;
    stream_pending_iterate(&it, consumer->pending, STREAM_ID_MIN);
    for (struct stream_pending *pending; (pending = stream_pending_next(&it));) {
        bool removed = radix_tree_remove(group->pending, id_key(&key, it.id), NULL);
        must(removed && pending->consumer == consumer);
        mem_free(pending);
    }
    stream_pending_iterate_end(&it);
    bool known = radix_tree_remove(group->consumers, stream_consumer_name(consumer), NULL);
    must(known);
    consumer_free(consumer);
    return count;
}

/* --- Pending entries --- */

struct stream_pending *stream_pending_find(const struct stream_group *group, struct stream_id id) {
    void *pending = NULL;
    struct id_key key;
    radix_tree_find(group->pending, id_key(&key, id), &pending);
    return pending;
}
void stream_pending_give(struct stream_pending *pending, struct stream_id id, struct stream_consumer *consumer) {
    struct id_key key;
    if (pending->consumer == consumer) return;
    bool moved = !pending->consumer || radix_tree_remove(pending->consumer->pending, id_key(&key, id), NULL);
    must(moved);
    pending->consumer = consumer;
    bool added = radix_tree_set(consumer->pending, id_key(&key, id), pending, NULL);
    must(added);
}
struct stream_pending *stream_pending_restore(struct stream_group *group, struct stream_id id, int64_t delivered_ms,
                                              uint64_t deliveries) {
    struct id_key key;
    struct stream_pending *pending = mem_alloc(sizeof *pending);
    void *there;
    *pending = (struct stream_pending){delivered_ms, deliveries, NULL};
    if (radix_tree_set(group->pending, id_key(&key, id), pending, &there)) return pending;
    radix_tree_set(group->pending, id_key(&key, id), there, NULL);
    mem_free(pending);
    return NULL;
}
struct stream_pending *stream_deliver(struct stream_group *group, struct stream_consumer *consumer, struct stream_id id,
                                      int64_t now_ms) {
    struct stream_pending *pending = stream_pending_restore(group, id, now_ms, 1);
    if (!pending) pending = stream_pending_find(group, id); /* rare: the group was set back */
    must(pending);
    stream_pending_give(pending, id, consumer);
    pending->delivered_ms = now_ms;
    pending->deliveries = 1;
    return pending;
}
bool stream_acknowledge(struct stream_group *group, struct stream_id id) {
    struct id_key key;
    void *value;
    if (!radix_tree_remove(group->pending, id_key(&key, id), &value)) return false;
    struct stream_pending *pending = value;
    must(pending->consumer);
    bool removed = radix_tree_remove(pending->consumer->pending, id_key(&key, id), NULL);
    must(removed);
    mem_free(pending);
    return true;
}

void stream_pending_iterate(struct stream_pending_iterator *it, const struct radix_tree *pending,
                            struct stream_id from) {
    radix_iterator_init(&it->at, pending);
    it->id = from;
    it->begun = it->seek = false;
}
struct stream_pending *stream_pending_next(struct stream_pending_iterator *it) {
    struct id_key key;
    bool there;
    if (it->begun && !it->seek)
        there = radix_iterator_next(&it->at);
    else
        there = radix_iterator_seek(&it->at, it->begun ? RADIX_ABOVE : RADIX_AT_OR_ABOVE, id_key(&key, it->id));
    it->begun = true;
    it->seek = false;
    if (!there) return NULL;
    it->id = stream_id_decode(it->at.key.data);
    return it->at.value;
}
void stream_pending_iterate_end(struct stream_pending_iterator *it) {
    radix_iterator_free(&it->at);
}

/* --- Destruction --- */

void stream_groups_free(struct radix_tree *groups) {
    radix_tree_free(groups, group_free);
}

static void *group_copy(void *value) {
    const struct stream_group *from = value;
    struct stream_group *group = group_new(from->last_id, from->entries_read);
    struct radix_iterator it;
    radix_iterator_init(&it, from->consumers);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it)) {
        const struct stream_consumer *theirs = it.value;
        struct stream_consumer *ours = stream_consumer_create(group, it.key, theirs->seen_ms);
        struct stream_pending_iterator pending;
        ours->active_ms = theirs->active_ms;
        stream_pending_iterate(&pending, theirs->pending, STREAM_ID_MIN);
        for (const struct stream_pending *p; (p = stream_pending_next(&pending));)
            stream_deliver(group, ours, pending.id, p->delivered_ms)->deliveries = p->deliveries;
        stream_pending_iterate_end(&pending);
    }
    radix_iterator_free(&it);
    return group;
}
struct radix_tree *stream_groups_copy(const struct radix_tree *groups) {
    return groups ? radix_tree_copy(groups, group_copy) : NULL;
}

static size_t group_memory(const struct stream_group *group) {
    size_t bytes = mem_size(group) + radix_tree_memory(group->pending) + radix_tree_memory(group->consumers);
    struct radix_iterator it;
    radix_iterator_init(&it, group->pending);
    if (radix_iterator_seek(&it, RADIX_FIRST, SLICE(""))) /* all have the same size */
        bytes += mem_size(it.value) * radix_tree_len(group->pending);
    radix_iterator_free(&it);
    radix_iterator_init(&it, group->consumers);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it)) {
        const struct stream_consumer *consumer = it.value;
        bytes += mem_size(consumer) + radix_tree_memory(consumer->pending);
    }
    radix_iterator_free(&it);
    return bytes;
}
size_t stream_groups_memory(const struct radix_tree *groups) {
    struct radix_iterator it;
    if (!groups) return 0;
    size_t bytes = radix_tree_memory(groups);
    radix_iterator_init(&it, groups);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it))
        bytes += group_memory(it.value);
    radix_iterator_free(&it);
    return bytes;
}
size_t stream_groups_allocations(const struct radix_tree *groups) {
    struct radix_iterator it;
    size_t count = 0;
    if (!groups) return 0;
    radix_iterator_init(&it, groups);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it)) {
        const struct stream_group *group = it.value;
        count += 1 + radix_tree_len(group->pending) + 2 * radix_tree_nodes(group->pending) +
                 2 * radix_tree_len(group->consumers);
    }
    radix_iterator_free(&it);
    return count;
}
