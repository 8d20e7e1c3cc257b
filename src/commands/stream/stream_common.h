/* stream_common.h: functions shared by the files of the stream commands: finding streams and groups, reading ids,
 * replying with entries. */
#pragma once
#include "commands/lookup.h"
#include "lib/system/clock.h"
#include "store/stream_group.h"

#define STREAM_BAD_ID "ERR Invalid stream ID specified as stream command argument"

/* Returns the stream of an entry, NULL for a missing key. False: the key has another type; replied with the error. */
static inline bool stream_get(struct call *call, const struct entry *entry, struct stream **stream) {
    if (!type_ok(call, entry, TYPE_STREAM)) return false;
    *stream = entry ? stream_of(entry) : NULL;
    return true;
}
static inline bool find_stream(struct call *call, struct slice key, struct stream **stream) {
    return stream_get(call, find_read(call, key), stream);
}
/* For commands that count as a read, but change the consumer groups. */
static inline struct entry *find_read_groups(struct call *call, struct slice key) {
    return find_read_with(call, key, LOOKUP_CHANGES);
}
static inline bool find_stream_groups(struct call *call, struct slice key, struct stream **stream) {
    return stream_get(call, find_read_groups(call, key), stream);
}
static inline bool find_stream_write(struct call *call, struct slice key, struct stream **stream) {
    return stream_get(call, find_write(call, key), stream);
}
/* Creates an empty stream for a missing key, and notifies. */
struct stream *stream_make(struct call *call, struct slice key);

/* Reading ids: "MS-SEQ" or "MS"; bounds of an interval may also be "-", "+", or start with "(" for exclusive. False:
 * replied with an error. */
bool stream_id_read(struct call *call, struct slice text, unsigned syntax /* stream_id.h */, struct stream_id *id);
bool stream_start_read(struct call *call, struct slice text, struct stream_id *first);
bool stream_end_read(struct call *call, struct slice text, struct stream_id *last);

/* Reads many ids into `inline_ids` or an allocation, from argv[first] to the end; NULL: one is invalid; replied with
 * the error. */
enum { STREAM_IDS_INLINE = 16 };
struct stream_id *stream_ids_alloc(size_t count, struct stream_id inline_ids[static STREAM_IDS_INLINE]);
struct stream_id *stream_ids_read(struct call *call, int first, struct stream_id inline_ids[static STREAM_IDS_INLINE]);
void stream_ids_free(struct stream_id *ids, const struct stream_id inline_ids[static STREAM_IDS_INLINE]);

/* Replying. */
void reply_stream_misunderstood(struct call *call,
                                const char *container); /* the arguments of a subcommand are invalid */
void reply_stream_id(struct reply *reply, struct stream_id id);
/* Replies with the entry of the last stream_next(). */
void reply_stream_entry(struct reply *reply, struct stream_iterator *it, struct stream_id id, size_t fields);
/* Replies with the entries from `first` to `last`, at most `count` (0: all). */
void reply_stream_range(struct reply *reply, const struct stream *stream, struct stream_id first, struct stream_id last,
                        uint64_t count, bool down);
/* Replies with one entry; false: no such entry, without a reply. */
bool reply_stream_one(struct reply *reply, const struct stream *stream, struct stream_id id);

/* Milliseconds since `then_ms`, saturating, because a payload may contain any time. */
static inline int64_t stream_elapsed(int64_t then_ms) {
    int64_t passed;
    if (__builtin_sub_overflow(clock_data_ms(), then_ms, &passed)) return then_ms < 0 ? INT64_MAX : INT64_MIN;
    return passed;
}
/* Finds the group of a stream, which may be NULL. NULL: not found; replied with the error text of either kind of
 * command. */
enum no_group { NO_KEY_OR_GROUP, NO_GROUP_OF_KEY };
struct stream_group *find_stream_group(struct call *call, const struct stream *stream, struct slice key,
                                       struct slice name, enum no_group words);
/* Returns the consumer and sets seen_ms to now; creates it if it is missing, which is notified and counted. */
struct stream_consumer *stream_consumer_get(struct call *call, struct slice key, struct stream_group *group,
                                            struct slice name, bool *made);
/* Propagation of reads and claims: the owner of each entry, and the position of the group. */
struct stream_group_name {
    struct slice key, group;
};
/* `written`: the id as the client gave it, or NULL. */
void stream_propagate_claim(struct call *call, const struct stream_group_name *name, const struct stream_group *group,
                            struct stream_id id, const struct slice *written, const struct stream_pending *pending);
/* For a new consumer that no claim names. */
void stream_propagate_consumer(struct call *call, const struct stream_group_name *name, struct slice consumer);
void stream_propagate_group(struct call *call, const struct stream_group_name *name, const struct stream_group *group);
