/* stream_group.c: XGROUP and XACK. stream_read.c reads for consumer groups; stream_claim.c and stream_pending.c handle
 * pending entries. */
#include "commands/stream/stream_common.h"
#include "server/clients/blocking.h"
#include "server/command/help.h"
#include "server/command/spec.h"

/* The common arguments of the subcommands: argv[2] is the key, argv[3] the group. */
struct group_target {
    struct stream *stream;
    struct stream_group *group; /* set with NEEDS_GROUP */
};
enum { MAY_MAKE = 1 /* the key may be missing */, NEEDS_GROUP = 2 };
/* False: key or group not found; replied with the error. */
static bool target_find(struct call *call, unsigned what, struct group_target *target) {
    struct slice key = call->argv[2], name = call->argv[3];
    *target = (struct group_target){.stream = NULL};
    if (!find_stream_write(call, key, &target->stream)) return false;
    if (!target->stream && !(what & MAY_MAKE))
        return reply_error(
            call->reply,
            "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use "
            "the MKSTREAM option to create an empty stream automatically.");
    if (!(what & NEEDS_GROUP)) return true;
    target->group = find_stream_group(call, target->stream, key, name, NO_GROUP_OF_KEY);
    return target->group != NULL;
}
static void stream_group_changed(struct call *call, const char *event) {
    call->dirty++;
    notify(call->db, NOTIFY_STREAM, event, call->argv[2]);
}

struct group_options {
    bool make; /* MKSTREAM */
    int64_t entries_read;
};
/* Reads the options from argv[5] on; false: replied with an error. */
static bool options_read(struct call *call, bool may_make, struct group_options *options) {
    *options = (struct group_options){.entries_read = STREAM_READ_UNKNOWN};
    for (int i = 5; i < call->argc; i++) {
        if (may_make && slice_is(call->argv[i], "mkstream")) {
            options->make = true;
        } else if (i + 1 < call->argc && slice_is(call->argv[i], "entriesread")) {
            if (!argument_int64(call, ++i, &options->entries_read)) return false;
            if (options->entries_read >= 0 || options->entries_read == STREAM_READ_UNKNOWN) continue;
            return reply_error(call->reply, "ERR value for ENTRIESREAD must be positive or -1");
        } else {
            reply_stream_misunderstood(call, "XGROUP");
            return false;
        }
    }
    return true;
}
/* Reads argv[4]: an id, or "$" for the last id of the stream. */
static bool position_read(struct call *call, const struct stream *stream, unsigned syntax, struct stream_id *id) {
    if (!slice_is(call->argv[4], "$")) return stream_id_read(call, call->argv[4], syntax, id);
    *id = stream ? stream->last_id : STREAM_ID_MIN;
    return true;
}

static void create_run(struct call *call) {
    enum { MOST_ARGUMENTS = 8 };
    struct group_options options;
    struct group_target target;
    struct stream_id id;
    if (!options_read(call, true, &options) || !target_find(call, options.make ? MAY_MAKE : 0, &target)) return;
    if (call->argc > MOST_ARGUMENTS) {
        reply_stream_misunderstood(call, "XGROUP");
        return;
    }
    if (!position_read(call, target.stream, 0, &id)) return;
    if (!target.stream) {
        target.stream = stream_make(call, call->argv[2]);
        db_changed(call->db, call->argv[2]);
    }
    if (stream_group_create(target.stream, call->argv[3], id, options.entries_read)) {
        reply_ok(call->reply);
        stream_group_changed(call, "xgroup-create");
    } else {
        reply_error(call->reply, "BUSYGROUP Consumer Group name already exists");
    }
}

static void setid_run(struct call *call) {
    enum { MOST_ARGUMENTS = 7 };
    struct group_options options;
    struct group_target target;
    struct stream_id id;
    if (!options_read(call, false, &options) || !target_find(call, NEEDS_GROUP, &target)) return;
    if (call->argc > MOST_ARGUMENTS) {
        reply_stream_misunderstood(call, "XGROUP");
        return;
    }
    if (!position_read(call, target.stream, STREAM_ID_EDGES, &id)) return;
    target.group->last_id = id;
    target.group->entries_read = options.entries_read;
    reply_ok(call->reply);
    stream_group_changed(call, "xgroup-setid");
}

static void destroy_run(struct call *call) {
    struct group_target target;
    if (!target_find(call, 0, &target)) return;
    bool there = stream_group_destroy(target.stream, call->argv[3]);
    reply_integer(call->reply, there);
    if (!there) return;
    stream_group_changed(call, "xgroup-destroy");
    blocking_wake(call->db, call->argv[2]);
}

static void createconsumer_run(struct call *call) {
    struct group_target target;
    if (!target_find(call, NEEDS_GROUP, &target)) return;
    bool made = stream_consumer_create(target.group, call->argv[4], clock_data_ms()) != NULL;
    reply_integer(call->reply, made);
    if (made) stream_group_changed(call, "xgroup-createconsumer");
}

static void delconsumer_run(struct call *call) {
    struct group_target target;
    if (!target_find(call, NEEDS_GROUP, &target)) return;
    struct stream_consumer *consumer = stream_consumer_find(target.group, call->argv[4]);
    reply_integer(call->reply, consumer ? (int64_t)stream_consumer_delete(target.group, consumer) : 0);
    if (consumer) stream_group_changed(call, "xgroup-delconsumer");
}

static void xack_run(struct call *call) {
    struct stream *stream;
    struct stream_id inline_ids[STREAM_IDS_INLINE], *ids;
    if (!find_stream_groups(call, call->argv[1], &stream)) return;
    struct stream_group *group = stream ? stream_group_find(stream, call->argv[2]) : NULL;
    if (!group) {
        reply_integer(call->reply, 0);
        return;
    }
    if (!(ids = stream_ids_read(call, 3, inline_ids))) return;
    uint64_t acknowledged = 0;
    for (int i = 0; i < call->argc - 3; i++) acknowledged += stream_acknowledge(group, ids[i]);
    stream_ids_free(ids, inline_ids);
    call->dirty += acknowledged;
    reply_integer(call->reply, (int64_t)acknowledged);
}

#define GROUP_KEY(...)                                                                                                 \
    { KEY_RANGE(2, 0, 1, __VA_ARGS__) }
static const struct command_spec xgroup_subcommands[] = {
    {COMMAND("create", create_run, -5, CMD_WRITE | CMD_DENYOOM, ON_STREAMS, "5.0.0"), .complexity = "O(1)",
     .summary = "Creates a consumer group.",
     .syntax = "key:key group:string id-selector(id:string|new-id=\"$\") [MKSTREAM] "
               "[ENTRIESREAD entriesread:integer\"entries-read\"]",
     .history = WORDS("7.0.0", "`ENTRIESREAD`."), .keys = GROUP_KEY(KEY_RW | KEY_INSERT)},
    {COMMAND("setid", setid_run, -5, CMD_WRITE, ON_STREAMS, "5.0.0"), .complexity = "O(1)",
     .summary = "Sets the last delivered id of a consumer group.",
     .syntax = "key:key group:string id-selector(id:string|new-id=\"$\") "
               "[ENTRIESREAD entriesread:integer\"entries-read\"]",
     .history = WORDS("7.0.0", "`ENTRIESREAD`."), .keys = GROUP_KEY(KEY_RW | KEY_UPDATE)},
    {COMMAND("destroy", destroy_run, 4, CMD_WRITE, ON_STREAMS, "5.0.0"),
     .complexity = "O(N), where N is the number of pending entries in the group",
     .summary = "Deletes a consumer group.", .syntax = "key:key group:string", .keys = GROUP_KEY(KEY_RW | KEY_DELETE)},
    {COMMAND("createconsumer", createconsumer_run, 5, CMD_WRITE | CMD_DENYOOM, ON_STREAMS, "6.2.0"),
     .complexity = "O(1)", .summary = "Creates a consumer in a consumer group.",
     .syntax = "key:key group:string consumer:string", .keys = GROUP_KEY(KEY_RW | KEY_INSERT)},
    {COMMAND("delconsumer", delconsumer_run, 5, CMD_WRITE, ON_STREAMS, "5.0.0"), .complexity = "O(1)",
     .summary = "Deletes a consumer from a consumer group.", .syntax = "key:key group:string consumer:string",
     .keys = GROUP_KEY(KEY_RW | KEY_DELETE)},
    {HELP_ROW(help_handler, "CREATE <key> <group> <id|$> [MKSTREAM] [ENTRIESREAD <count>]",
              "    Make a group that reads what comes after <id>, or from now on ($).",
              "    MKSTREAM makes the stream, too, where it is missing; ENTRIESREAD says how",
              "    many entries count as read.", "CREATECONSUMER <key> <group> <consumer>",
              "    Make a consumer of a group.", "DELCONSUMER <key> <group> <consumer>",
              "    Delete a consumer with all that is pending for it.", "DESTROY <key> <group>",
              "    Delete a group with all that is pending in it.", "SETID <key> <group> <id|$> [ENTRIESREAD <count>]",
              "    Let a group go on, or back, to <id>."),
     .categories = CAT_STREAM, .group = GROUP_STREAM, .since = "5.0.0"},
    {.name = NULL},
};
const struct command_spec stream_group_commands[] = {
    {COMMAND("xgroup", NULL, -2, 0, .group = GROUP_STREAM, "5.0.0"), .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about consumer groups.", .subcommands = xgroup_subcommands},
    {COMMAND("xack", xack_run, -4, CMD_WRITE | CMD_FAST, ON_STREAMS, "5.0.0"), .complexity = "O(1) an entry",
     .summary = "Acknowledges pending entries of a consumer group.", .syntax = "key:key group:string id:string...",
     .keys = FIRST_KEY(KEY_RW | KEY_UPDATE)},
    {.name = NULL},
};
