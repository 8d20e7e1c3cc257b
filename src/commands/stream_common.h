/* stream_common.h: what the files of the stream commands share: finding streams and groups, reading ids, replying with
 * entries. */
#ifndef COMMANDS_STREAM_COMMON_H
#define COMMANDS_STREAM_COMMON_H
#include "commands/lookup.h"
#include "lib/clock.h"
#include "store/stream_group.h"

#define STREAM_BAD_ID "ERR Invalid stream ID specified as stream command argument"

/* The stream of an entry that was looked up, NULL where there is none. False: it has another type, and that is replied.
 */
static inline bool stream_get(struct call *call, const struct entry *entry, struct stream **stream) {
    if (!type_ok(call, entry, TYPE_STREAM)) return false;
    *stream = entry ? stream_of(entry) : NULL;
    return true;
}
static inline bool find_stream(struct call *call, struct slice key, struct stream **stream) {
    return stream_get(call, find_read(call, key), stream);
}
static inline bool find_stream_write(struct call *call, struct slice key, struct stream **stream) {
    return stream_get(call, find_write(call, key), stream);
}
/* An empty stream under a key that is missing; told to those who listen. */
struct stream *stream_make(struct call *call, struct slice key);

/* Reading ids: "MS-SEQ" or "MS"; an interval's may be "-" and "+", and "(" before it excludes it. False: the error is
 * replied. */
bool stream_id_read(struct call *call, struct slice text, unsigned syntax /* stream_id.h */, struct stream_id *id);
bool stream_start_read(struct call *call, struct slice text, struct stream_id *first);
bool stream_end_read(struct call *call, struct slice text, struct stream_id *last);

/* Many ids: in `at_hand` or an allocation. stream_ids_read takes argv[first] up to the end; NULL: one is none, and that
 * is replied. */
enum { STREAM_IDS_AT_HAND = 16 };
struct stream_id *stream_ids_room(size_t count, struct stream_id at_hand[static STREAM_IDS_AT_HAND]);
struct stream_id *stream_ids_read(struct call *call, int first, struct stream_id at_hand[static STREAM_IDS_AT_HAND]);
void stream_ids_free(struct stream_id *ids, const struct stream_id at_hand[static STREAM_IDS_AT_HAND]);

/* Replying. */
void reply_stream_misunderstood(struct call *call, const char *container); /* a subcommand's arguments make no sense */
void reply_stream_id(struct reply *reply, struct stream_id id);
/* The entry that stream_next() came to. */
void reply_stream_entry(struct reply *reply, struct stream_iterator *it, struct stream_id id, size_t fields);
/* The entries from `first` to `last`, no more than `count` (0: all). */
void reply_stream_range(struct reply *reply, const struct stream *stream, struct stream_id first, struct stream_id last,
                        uint64_t count, bool down);
/* One entry; false: it is not there, nothing is replied. */
bool reply_stream_one(struct reply *reply, const struct stream *stream, struct stream_id id);

/* Milliseconds since then. A payload may have brought any time: what cannot be counted is the most or the least that
 * can. */
static inline int64_t stream_elapsed(int64_t then_ms) {
    int64_t passed;
    if (__builtin_sub_overflow(clock_ms(), then_ms, &passed)) return then_ms < 0 ? INT64_MAX : INT64_MIN;
    return passed;
}
/* The group of a stream, which may be NULL. NULL: there is none, and that is replied, in the words of either kind of
 * command. */
enum no_group { NO_KEY_OR_GROUP, NO_GROUP_OF_KEY };
struct stream_group *find_stream_group(struct call *call, const struct stream *stream, struct slice key,
                                       struct slice name, enum no_group words);
/* The consumer of that name, made where it is missing, which is told and counted; seen now. */
struct stream_consumer *stream_consumer_get(struct call *call, struct slice key, struct stream_group *group,
                                            struct slice name, bool *made);
/* What is repeated elsewhere of reading and claiming: who has which entry, and how far the group is. */
struct stream_group_name {
    struct slice key, group;
};
/* `written`: the id as it was given; NULL: it was not. */
void stream_propagate_claim(struct call *call, const struct stream_group_name *name, const struct stream_group *group,
                            struct stream_id id, const struct slice *written, const struct stream_pending *pending);
void stream_propagate_group(struct call *call, const struct stream_group_name *name, const struct stream_group *group);
#endif
