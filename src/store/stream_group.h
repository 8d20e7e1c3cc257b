/* stream_group.h: consumer groups of a stream: how far each group has read, its consumers, and the entries delivered
 * but not acknowledged (pending).
 *
 * A pending entry is one structure in two radix trees, by id: the tree of its group, which owns it, and the tree of its
 * consumer. It may outlive the entry in the stream. Other code may read the radix trees, but only the functions here
 * change them; their keys are ids as bytes, or names.
 *
 * entries_read of a group counts all entries ever added up to its last id, including deleted ones, so that lag is a
 * subtraction. The count is not always known:
 *
 * - A group is created with a given count, or without one.
 * - Advancing to an entry adds one if the count is known and no entry from that entry on was deleted
 *   (stream_has_gaps()). Otherwise the count is derived again from the position of the entry.
 * - The position of an id is known only if nothing between it and an end of the stream was deleted: see
 *   stream_entries_up_to().
 * - Lag is entries_added minus the count, or, if there are gaps ahead of the group, minus the position of its last id.
 *   If neither is known the lag is unknown. */
#pragma once
#include "store/stream.h"

enum { STREAM_READ_UNKNOWN = -1 };

/* Other code may set last_id and entries_read (XGROUP SETID, XCLAIM LASTID) and the times and counts below. */
struct stream_group {
    struct stream_id last_id;     /* the last id delivered */
    int64_t entries_read;         /* STREAM_READ_UNKNOWN, or >= 0 */
    struct radix_tree *pending;   /* id → struct stream_pending */
    struct radix_tree *consumers; /* name → struct stream_consumer */
};
struct stream_consumer {
    int64_t seen_ms;            /* time of its last request, ms since the epoch */
    int64_t active_ms;          /* time of its last successful read or claim; -1: never */
    struct radix_tree *pending; /* the group's pending entries of this consumer */
    size_t name_len;
    char name[];
};
struct stream_pending {
    int64_t delivered_ms;
    uint64_t deliveries;
    struct stream_consumer *consumer; /* owner */
};
static inline struct slice stream_consumer_name(const struct stream_consumer *consumer) {
    return (struct slice){consumer->name, consumer->name_len};
}

/* Groups. */
size_t stream_group_count(const struct stream *stream);
struct stream_group *stream_group_find(const struct stream *stream, struct slice name); /* NULL: not found */
struct stream_group *stream_group_create(struct stream *stream, struct slice name, struct stream_id last_id,
                                         int64_t entries_read); /* NULL: it exists */
bool stream_group_destroy(struct stream *stream,
                          struct slice name); /* with its consumers and pending entries; false: not found */

/* Consumers. */
struct stream_consumer *stream_consumer_find(const struct stream_group *group, struct slice name);
struct stream_consumer *
stream_consumer_create(struct stream_group *group, struct slice name,
                       int64_t now_ms); /* NULL: it exists. Sets seen_ms to now and active_ms to -1 */
uint64_t stream_consumer_delete(struct stream_group *group,
                                struct stream_consumer *consumer); /* with its pending entries; returns their number */

/* Reading: advances the group to an entry above its last id. */
void stream_group_advance(const struct stream *stream, struct stream_group *group, struct stream_id id);
/* The number of entries ever added up to and including the id; STREAM_READ_UNKNOWN if it cannot be determined. */
int64_t stream_entries_up_to(const struct stream *stream, struct stream_id id);
bool stream_group_lag(const struct stream *stream, const struct stream_group *group,
                      int64_t *lag); /* false: unknown. Negative if a given count was too high */

/* Pending entries. */
struct stream_pending *stream_pending_find(const struct stream_group *group, struct stream_id id);
/* Records a delivery to the consumer at that time: the entry becomes pending with a delivery count of one. If it was
 * pending for any consumer, ownership moves. */
struct stream_pending *stream_deliver(struct stream_group *group, struct stream_consumer *consumer, struct stream_id id,
                                      int64_t now_ms);
/* Changes the owner, but not the time and count of deliveries. */
void stream_pending_give(struct stream_pending *pending, struct stream_id id, struct stream_consumer *consumer);
bool stream_acknowledge(struct stream_group *group,
                        struct stream_id id); /* removes the pending entry; false: not pending */

/* Iterates over the pending entries of a group or a consumer, upwards from an id. After any change of that tree call
 * stream_pending_resume() before continuing. */
struct stream_pending_iterator {
    struct radix_iterator at;
    struct stream_id id; /* the id of the last stream_pending_next(); before the first call, the id to start with */
    bool begun, seek;
};
void stream_pending_iterate(struct stream_pending_iterator *it, const struct radix_tree *pending,
                            struct stream_id from);
struct stream_pending *stream_pending_next(struct stream_pending_iterator *it); /* NULL: no more entries */
static inline void stream_pending_resume(struct stream_pending_iterator *it) {
    it->seek = true;
}
void stream_pending_iterate_end(struct stream_pending_iterator *it);

/* For rdb_stream.c: adds a pending entry without an owner; NULL: it exists. The caller must assign a consumer before
 * any other code uses it. */
struct stream_pending *stream_pending_restore(struct stream_group *group, struct stream_id id, int64_t delivered_ms,
                                              uint64_t deliveries);
/* Destruction, for stream.c. */
void stream_groups_free(struct radix_tree *groups);
struct radix_tree *stream_groups_copy(const struct radix_tree *groups);
size_t stream_groups_memory(const struct radix_tree *groups);
size_t stream_groups_allocations(const struct radix_tree *groups);
