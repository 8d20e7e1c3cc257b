/* stream_pending.c: XPENDING: the pending entries of a group: a summary, or the entries of a range. */
#include "commands/stream/stream_common.h"
#include "server/command/spec.h"

/* Replies with the consumers that have pending entries, and their numbers. */
static void reply_consumers(struct reply *reply, const struct stream_group *group) {
    struct radix_iterator it;
    size_t count = 0;
    radix_iterator_init(&it, group->consumers);
    for (bool at = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); at; at = radix_iterator_next(&it))
        count += radix_tree_len(((const struct stream_consumer *)it.value)->pending) != 0;
    reply_array(reply, count);
    for (bool at = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); at; at = radix_iterator_next(&it)) {
        const struct stream_consumer *consumer = it.value;
        size_t pending = radix_tree_len(consumer->pending);
        if (!pending) continue;
        reply_array(reply, 2);
        reply_bulk(reply, stream_consumer_name(consumer));
        reply_bulk_integer(reply, (int64_t)pending);
    }
    radix_iterator_free(&it);
}
static void reply_edge(struct reply *reply, const struct stream_group *group, enum radix_seek edge) {
    struct radix_iterator it;
    radix_iterator_init(&it, group->pending);
    radix_iterator_seek(&it, edge, SLICE(""));
    reply_stream_id(reply, stream_id_decode(it.key.data));
    radix_iterator_free(&it);
}
static void summary(struct call *call) {
    struct stream *stream;
    if (!find_stream(call, call->argv[1], &stream)) return;
    const struct stream_group *group = find_stream_group(call, stream, call->argv[1], call->argv[2], NO_KEY_OR_GROUP);
    if (!group) return;
    size_t count = radix_tree_len(group->pending);
    reply_array(call->reply, 4);
    reply_integer(call->reply, (int64_t)count);
    if (count) {
        reply_edge(call->reply, group, RADIX_FIRST);
        reply_edge(call->reply, group, RADIX_LAST);
        reply_consumers(call->reply, group);
    } else {
        reply_null(call->reply);
        reply_null(call->reply);
        reply_null_array(call->reply);
    }
}

struct pending_range {
    int64_t min_idle, count;
    struct stream_id first, last;
    const struct slice *consumer; /* NULL: all consumers */
};
/* Reads argv[3] on: [IDLE min-idle-time] start end count [consumer]; further arguments are ignored. False: replied with
 * an error. */
static bool range_read(struct call *call, struct pending_range *range) {
    int at = 3;
    *range = (struct pending_range){.min_idle = 0};
    if (slice_is(call->argv[3], "idle")) {
        if (!argument_int64(call, 4, &range->min_idle)) return false;
        if (call->argc < 8) return reply_syntax_error(call->reply);
        at = 5;
    }
    if (!argument_int64(call, at + 2, &range->count) || !stream_start_read(call, call->argv[at], &range->first) ||
        !stream_end_read(call, call->argv[at + 1], &range->last))
        return false;
    if (at + 3 < call->argc) range->consumer = &call->argv[at + 3];
    return true;
}
static size_t reply_pending(struct reply *reply, const struct radix_tree *tree, const struct pending_range *range) {
    struct stream_pending_iterator it;
    const struct stream_pending *pending;
    int64_t count = 0;
    stream_pending_iterate(&it, tree, range->first);
    while (count < range->count && (pending = stream_pending_next(&it)) && stream_id_compare(it.id, range->last) <= 0) {
        int64_t idle = stream_elapsed(pending->delivered_ms);
        if (idle < range->min_idle) continue;
        reply_array(reply, 4);
        reply_stream_id(reply, it.id);
        reply_bulk(reply, stream_consumer_name(pending->consumer));
        reply_integer(reply, idle < 0 ? 0 : idle);
        reply_integer(reply, (int64_t)pending->deliveries);
        count++;
    }
    stream_pending_iterate_end(&it);
    return (size_t)count;
}
static void xpending_run(struct call *call) {
    enum { SUMMARY = 3, RANGE_LEAST = 6, RANGE_MOST = 9 };
    struct pending_range range;
    struct stream *stream;
    if (call->argc == SUMMARY) {
        summary(call);
        return;
    }
    if (call->argc < RANGE_LEAST || call->argc > RANGE_MOST) {
        reply_syntax_error(call->reply);
        return;
    }
    if (!range_read(call, &range) || !find_stream(call, call->argv[1], &stream)) return;
    const struct stream_group *group = find_stream_group(call, stream, call->argv[1], call->argv[2], NO_KEY_OR_GROUP);
    if (!group) return;
    const struct radix_tree *tree = group->pending;
    if (range.consumer) {
        const struct stream_consumer *consumer = stream_consumer_find(group, *range.consumer);
        tree = consumer ? consumer->pending : NULL;
    }
    struct reply_deferred deferred;
    reply_deferred_begin(call->reply, &deferred);
    size_t count = tree ? reply_pending(call->reply, tree, &range) : 0;
    reply_deferred_end(call->reply, &deferred, REPLY_ARRAY, count);
}

const struct command_spec stream_pending_commands[] = {
    {COMMAND("xpending", xpending_run, -3, CMD_READONLY, ON_STREAMS, "5.0.0"),
     .complexity = "O(N), where N is the number of entries examined; O(C) for the summary of C consumers.",
     .summary = "Returns the pending entries of a consumer group.",
     .syntax = "key:key group:string [filters{[IDLE min-idle-time:integer@6.2.0] start:string end:string "
               "count:integer [consumer:string]}]",
     .history = WORDS("6.2.0", "`IDLE`; ends of the range may be excluded."), .tips = WORDS("nondeterministic_output"),
     .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {.name = NULL},
};
