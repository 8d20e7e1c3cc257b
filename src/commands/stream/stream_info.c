/* stream_info.c: XINFO: information about a stream, its groups and their consumers. */
#include "commands/stream/stream_common.h"
#include "server/command/help.h"
#include "server/command/spec.h"

enum { FULL_COUNT = 10 }; /* entries, and pending entries of each group and consumer, shown by FULL without COUNT */

/* Finds the stream of argv[2]; NULL: replied with an error. */
static const struct stream *info_stream(struct call *call) {
    struct stream *stream;
    if (!find_stream(call, call->argv[2], &stream)) return NULL;
    if (!stream) reply_no_such_key(call->reply);
    return stream;
}
static void reply_name(struct reply *reply, const char *name) {
    reply_bulk_text(reply, name);
}
static void reply_count(struct reply *reply, const char *name, uint64_t value) {
    reply_name(reply, name);
    reply_integer(reply, (int64_t)value);
}
static void reply_id(struct reply *reply, const char *name, struct stream_id id) {
    reply_name(reply, name);
    reply_stream_id(reply, id);
}
static void reply_progress(struct reply *reply, const struct stream *stream, const struct stream_group *group) {
    int64_t lag;
    reply_name(reply, "entries-read");
    if (group->entries_read == STREAM_READ_UNKNOWN)
        reply_null(reply);
    else
        reply_integer(reply, group->entries_read);
    reply_name(reply, "lag");
    if (stream_group_lag(stream, group, &lag))
        reply_integer(reply, lag);
    else
        reply_null(reply);
}

/* Calls `show` for each value of a tree with names as keys; the tree may be NULL. */
struct showing {
    struct reply *reply;
    const struct stream *stream;
    uint64_t count;
};
static void reply_each(const struct showing *showing, const struct radix_tree *tree,
                       void (*show)(const struct showing *showing, struct slice name, void *value)) {
    struct radix_iterator it;
    reply_array(showing->reply, tree ? radix_tree_len(tree) : 0);
    if (!tree) return;
    radix_iterator_init(&it, tree);
    for (bool at = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); at; at = radix_iterator_next(&it))
        show(showing, it.key, it.value);
    radix_iterator_free(&it);
}

/* --- STREAM --- */

static void reply_numbers(struct reply *reply, const struct stream *stream) {
    reply_count(reply, "length", stream->length);
    reply_count(reply, "radix-tree-keys", stream_node_count(stream));
    reply_count(reply, "radix-tree-nodes", stream_tree_nodes(stream));
    reply_id(reply, "last-generated-id", stream->last_id);
    reply_id(reply, "max-deleted-entry-id", stream->max_deleted_id);
    reply_count(reply, "entries-added", stream->entries_added);
    reply_id(reply, "recorded-first-entry-id", stream->first_id);
}
static void reply_end(struct reply *reply, const struct stream *stream, const char *name, struct stream_id id) {
    reply_name(reply, name);
    if (!stream->length || !reply_stream_one(reply, stream, id)) reply_null(reply);
}
static void reply_stream(struct reply *reply, const struct stream *stream) {
    struct stream_id last = STREAM_ID_MIN;
    reply_map(reply, 10);
    reply_numbers(reply, stream);
    reply_count(reply, "groups", stream_group_count(stream));
    stream_last_entry(stream, &last);
    reply_end(reply, stream, "first-entry", stream->first_id);
    reply_end(reply, stream, "last-entry", last);
}

/* Replies with the pending entries of a group, or, without names, of a consumer. */
static void reply_pending(const struct showing *showing, const struct radix_tree *tree, bool names) {
    struct stream_pending_iterator it;
    const struct stream_pending *pending;
    size_t count = radix_tree_len(tree);
    if (showing->count && showing->count < count) count = (size_t)showing->count;
    reply_array(showing->reply, count);
    stream_pending_iterate(&it, tree, STREAM_ID_MIN);
    for (; count && (pending = stream_pending_next(&it)); count--) {
        reply_array(showing->reply, names ? 4 : 3);
        reply_stream_id(showing->reply, it.id);
        if (names) reply_bulk(showing->reply, stream_consumer_name(pending->consumer));
        reply_integer(showing->reply, pending->delivered_ms);
        reply_integer(showing->reply, (int64_t)pending->deliveries);
    }
    stream_pending_iterate_end(&it);
}
static void show_consumer_fully(const struct showing *showing, struct slice name, void *value) {
    const struct stream_consumer *consumer = value;
    struct reply *reply = showing->reply;
    reply_map(reply, 5);
    reply_name(reply, "name");
    reply_bulk(reply, name);
    reply_name(reply, "seen-time");
    reply_integer(reply, consumer->seen_ms);
    reply_name(reply, "active-time");
    reply_integer(reply, consumer->active_ms);
    reply_count(reply, "pel-count", radix_tree_len(consumer->pending));
    reply_name(reply, "pending");
    reply_pending(showing, consumer->pending, false);
}
static void show_group_fully(const struct showing *showing, struct slice name, void *value) {
    const struct stream_group *group = value;
    struct reply *reply = showing->reply;
    reply_map(reply, 7);
    reply_name(reply, "name");
    reply_bulk(reply, name);
    reply_id(reply, "last-delivered-id", group->last_id);
    reply_progress(reply, showing->stream, group);
    reply_count(reply, "pel-count", radix_tree_len(group->pending));
    reply_name(reply, "pending");
    reply_pending(showing, group->pending, true);
    reply_name(reply, "consumers");
    reply_each(showing, group->consumers, show_consumer_fully);
}
static void reply_stream_fully(struct reply *reply, const struct stream *stream, uint64_t count) {
    reply_map(reply, 9);
    reply_numbers(reply, stream);
    reply_name(reply, "entries");
    reply_stream_range(reply, stream, STREAM_ID_MIN, STREAM_ID_MAX, count, false);
    reply_name(reply, "groups");
    reply_each(&(struct showing){reply, stream, count}, stream->groups, show_group_fully);
}

static void stream_run(struct call *call) {
    bool full = call->argc > 3 && slice_is(call->argv[3], "full");
    bool counted = call->argc == 6 && slice_is(call->argv[4], "count");
    int64_t count = FULL_COUNT;
    const struct stream *stream = info_stream(call);
    if (!stream) return;
    if (call->argc > 3 && !(full && (counted || call->argc == 4))) {
        reply_stream_misunderstood(call, "XINFO");
        return;
    }
    if (counted && !argument_int64(call, 5, &count)) return;
    if (full)
        reply_stream_fully(call->reply, stream, count < 0 ? FULL_COUNT : (uint64_t)count);
    else
        reply_stream(call->reply, stream);
}

/* --- GROUPS and CONSUMERS --- */

static void show_group(const struct showing *showing, struct slice name, void *value) {
    const struct stream_group *group = value;
    struct reply *reply = showing->reply;
    reply_map(reply, 6);
    reply_name(reply, "name");
    reply_bulk(reply, name);
    reply_count(reply, "consumers", radix_tree_len(group->consumers));
    reply_count(reply, "pending", radix_tree_len(group->pending));
    reply_id(reply, "last-delivered-id", group->last_id);
    reply_progress(reply, showing->stream, group);
}
static void groups_run(struct call *call) {
    const struct stream *stream = info_stream(call);
    if (stream) reply_each(&(struct showing){call->reply, stream, 0}, stream->groups, show_group);
}

static int64_t since(int64_t then_ms) {
    int64_t passed = stream_elapsed(then_ms);
    return passed < 0 ? 0 : passed;
}
static void show_consumer(const struct showing *showing, struct slice name, void *value) {
    const struct stream_consumer *consumer = value;
    struct reply *reply = showing->reply;
    reply_map(reply, 4);
    reply_name(reply, "name");
    reply_bulk(reply, name);
    reply_count(reply, "pending", radix_tree_len(consumer->pending));
    reply_name(reply, "idle");
    reply_integer(reply, since(consumer->seen_ms));
    reply_name(reply, "inactive");
    reply_integer(reply, consumer->active_ms < 0 ? -1 : since(consumer->active_ms));
}
static void consumers_run(struct call *call) {
    const struct stream *stream = info_stream(call);
    if (!stream) return;
    const struct stream_group *group = find_stream_group(call, stream, call->argv[2], call->argv[3], NO_GROUP_OF_KEY);
    if (group) reply_each(&(struct showing){call->reply, stream, 0}, group->consumers, show_consumer);
}

#define STREAM_KEY .keys = {KEY_RANGE(2, 0, 1, KEY_RO | KEY_ACCESS)}
static const struct command_spec xinfo_subcommands[] = {
    {COMMAND("consumers", consumers_run, 4, CMD_READONLY, ON_STREAMS, "5.0.0"), STREAM_KEY,
     .complexity = "O(N), where N is the number of consumers", .summary = "Returns the consumers of a consumer group.",
     .syntax = "key:key group:string", .history = WORDS("7.2.0", "`inactive`; `idle` counts attempts, too."),
     .tips = WORDS("nondeterministic_output")},
    {COMMAND("groups", groups_run, 3, CMD_READONLY, ON_STREAMS, "5.0.0"), STREAM_KEY,
     .complexity = "O(N), where N is the number of groups", .summary = "Returns the consumer groups of a stream.",
     .syntax = "key:key", .history = WORDS("7.0.0", "`entries-read` and `lag`.")},
    {COMMAND("stream", stream_run, -3, CMD_READONLY, ON_STREAMS, "5.0.0"), STREAM_KEY,
     .complexity = "O(1); O(N) with FULL, where N is how much is shown", .summary = "Returns properties of a stream.",
     .syntax = "key:key [full-block{FULL [COUNT count:integer]}]",
     .history = WORDS("6.0.0", "`FULL`.", "7.0.0",
                      "`max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read`, `lag`.",
                      "7.2.0", "`active-time`; `seen-time` counts attempts, too.")},
    {HELP_ROW(help_handler, "CONSUMERS <key> <group>", "    Show the consumers of a group.", "GROUPS <key>",
              "    Show the consumer groups of a stream.", "STREAM <key> [FULL [COUNT <count>]]",
              "    Show a stream; FULL: with <count> of its entries, and its groups with all",
              "    consumers and <count> of what is pending for each."),
     .categories = CAT_STREAM, .group = GROUP_STREAM, .since = "5.0.0"},
    {.name = NULL},
};
const struct command_spec stream_info_commands[] = {
    {COMMAND("xinfo", NULL, -2, 0, .group = GROUP_STREAM, "5.0.0"), .complexity = "Depends on the subcommand.",
     .summary = "A container for commands that describe streams.", .subcommands = xinfo_subcommands},
    {.name = NULL},
};
