/* stream_group.h: consumer groups of a stream: how far each has read, who reads for it, and what was delivered but not
 * acknowledged yet ("pending").
 *
 * A pending entry is one structure, found by its id in two radix trees: that of its group, which owns it, and that of
 * the consumer it was delivered to. It may outlive the entry in the stream. Radix trees are to be looked at by
 * everybody and changed by the functions here only; their keys are the bytes of ids, or names.
 *
 * How many entries a group has read is a count of all that were ever added up to its last id, deleted ones included, so
 * that lag is a subtraction. It is not always known:
 *
 *     - A group is created with a count that was given, or with none.
 *     - Going on to an entry adds one where the count is known and no entry from that one on was deleted
 * (stream_has_gaps()); otherwise the count is estimated anew from the place of the entry.
 *     - The place of an id can be told only where nothing is deleted on the way: see stream_entries_up_to().
 *     - Lag is entries_added less the count, or, where there are gaps ahead of the group, less the place of its last
 * id; where neither is known it is unknown. */
#ifndef STORE_STREAM_GROUP_H
#define STORE_STREAM_GROUP_H
#include "store/stream.h"

enum { STREAM_READ_UNKNOWN = -1 };

/* last_id and entries_read may be set by anybody (XGROUP SETID, XCLAIM LASTID), and so may times and counts below. */
struct stream_group {
    struct stream_id last_id;     /* delivered last */
    int64_t entries_read;         /* STREAM_READ_UNKNOWN, or >= 0 */
    struct radix_tree *pending;   /* id → struct stream_pending */
    struct radix_tree *consumers; /* name → struct stream_consumer */
};
struct stream_consumer {
    int64_t seen_ms;            /* when it asked last, since the epoch */
    int64_t active_ms;          /* when it got something last; -1: never */
    struct radix_tree *pending; /* those of the group's that are its own */
    size_t name_len;
    char name[];
};
struct stream_pending {
    int64_t delivered_ms;
    uint64_t deliveries;
    struct stream_consumer *consumer; /* whose it is */
};
static inline struct slice stream_consumer_name(const struct stream_consumer *consumer) {
    return (struct slice){consumer->name, consumer->name_len};
}

/* Groups. */
size_t stream_group_count(const struct stream *stream);
struct stream_group *stream_group_find(const struct stream *stream, struct slice name); /* NULL: there is none */
struct stream_group *stream_group_create(struct stream *stream, struct slice name, struct stream_id last_id,
                                         int64_t entries_read); /* NULL: it exists */
bool stream_group_destroy(struct stream *stream,
                          struct slice name); /* with its consumers and what is pending; false: there is none */

/* Consumers. */
struct stream_consumer *stream_consumer_find(const struct stream_group *group, struct slice name);
struct stream_consumer *stream_consumer_create(struct stream_group *group, struct slice name,
                                               int64_t now_ms); /* NULL: it exists. Seen now, never active */
uint64_t stream_consumer_delete(struct stream_group *group,
                                struct stream_consumer *consumer); /* with what is pending for it: returns how many */

/* Reading: the group goes on to an entry above its last id. */
void stream_group_advance(const struct stream *stream, struct stream_group *group, struct stream_id id);
/* Entries ever added up to the id, itself included; STREAM_READ_UNKNOWN where that cannot be told. */
int64_t stream_entries_up_to(const struct stream *stream, struct stream_id id);
bool stream_group_lag(const struct stream *stream, const struct stream_group *group,
                      int64_t *lag); /* false: unknown. Negative where a count was given that is too high */

/* Pending entries. */
struct stream_pending *stream_pending_find(const struct stream_group *group, struct stream_id id);
/* The entry is delivered to the consumer, once, at that time: pending from now on, or, where it was pending for
 * anybody, taken from him. */
struct stream_pending *stream_deliver(struct stream_group *group, struct stream_consumer *consumer, struct stream_id id,
                                      int64_t now_ms);
/* Only the owner changes; time and count stay. */
void stream_pending_give(struct stream_pending *pending, struct stream_id id, struct stream_consumer *consumer);
bool stream_acknowledge(struct stream_group *group, struct stream_id id); /* no longer pending; false: it was not */

/* Walking what is pending, of a group or a consumer, upwards from an id on. After any change of that tree call
 * stream_pending_resume() before going on. */
struct stream_pending_iterator {
    struct radix_iterator at;
    struct stream_id id; /* the one stream_pending_next() came to, before its first call the one to begin with */
    bool begun, seek;
};
void stream_pending_iterate(struct stream_pending_iterator *it, const struct radix_tree *pending,
                            struct stream_id from);
struct stream_pending *stream_pending_next(struct stream_pending_iterator *it); /* NULL: no more */
static inline void stream_pending_resume(struct stream_pending_iterator *it) {
    it->seek = true;
}
void stream_pending_iterate_end(struct stream_pending_iterator *it);

/* For rdb_stream.c: an entry that nobody owns yet; NULL: it is there already. It has to be given to a consumer before
 * anybody else sees it. */
struct stream_pending *stream_pending_restore(struct stream_group *group, struct stream_id id, int64_t delivered_ms,
                                              uint64_t deliveries);
/* Life, for stream.c. */
void stream_groups_free(struct radix_tree *groups);
struct radix_tree *stream_groups_copy(const struct radix_tree *groups);
size_t stream_groups_memory(const struct radix_tree *groups);
size_t stream_groups_allocations(const struct radix_tree *groups);
#endif
