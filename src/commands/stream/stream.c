/* stream.c: the non-blocking commands on the entries of a stream: XLEN, XRANGE, XREVRANGE, XDEL, XSETID. */
#include "commands/stream/stream_common.h"
#include "server/clients/blocking.h"
#include "server/command/spec.h"

static void xlen_run(struct call *call) {
    struct stream *stream;
    if (find_stream(call, call->argv[1], &stream)) reply_integer(call->reply, stream ? (int64_t)stream->length : 0);
}

static void range(struct call *call, int start, int end, bool down) {
    struct stream_id first, last;
    struct stream *stream;
    int64_t count = INT64_MAX;
    if (!stream_start_read(call, call->argv[start], &first) || !stream_end_read(call, call->argv[end], &last)) return;
    for (int i = 4; i < call->argc; i += 2) {
        if (i + 1 == call->argc || !slice_is(call->argv[i], "count")) {
            reply_syntax_error(call->reply);
            return;
        }
        if (!argument_int64(call, i + 1, &count)) return;
    }
    if (!find_stream(call, call->argv[1], &stream)) return;
    if (!stream)
        reply_array(call->reply, 0);
    else if (count <= 0)
        reply_null_array(call->reply);
    else
        reply_stream_range(call->reply, stream, first, last, (uint64_t)count, down);
}
static void xrange_run(struct call *call) {
    range(call, 2, 3, false);
}
static void xrevrange_run(struct call *call) {
    range(call, 3, 2, true);
}

static void xdel_run(struct call *call) {
    struct slice key = call->argv[1];
    struct stream *stream;
    struct stream_id inline_ids[STREAM_IDS_INLINE], *ids;
    if (!find_stream_write(call, key, &stream)) return;
    if (!stream) {
        reply_integer(call->reply, 0);
        return;
    }
    if (!(ids = stream_ids_read(call, 2, inline_ids))) return;
    uint64_t deleted = 0;
    for (int i = 0; i < call->argc - 2; i++) deleted += stream_delete(stream, ids[i]);
    stream_ids_free(ids, inline_ids);
    if (deleted) {
        blocking_changed_quietly(call->db, key);
        notify(call->db, NOTIFY_STREAM, "xdel", key);
        call->dirty += deleted;
    }
    reply_integer(call->reply, (int64_t)deleted);
}

/* --- XSETID --- */

struct set_id {
    struct stream_id last, deleted; /* 0-0: keep the current value */
    int64_t added;                  /* -1: keep the current value */
};
static bool set_id_read(struct call *call, struct set_id *set) {
    *set = (struct set_id){.added = -1};
    if (!stream_id_read(call, call->argv[2], 0, &set->last)) return false;
    for (int i = 3; i < call->argc; i += 2) {
        bool more = i + 1 < call->argc;
        if (more && slice_is(call->argv[i], "entriesadded")) {
            if (!argument_int64(call, i + 1, &set->added)) return false;
            if (set->added >= 0) continue;
            reply_error(call->reply, "ERR entries_added must be positive");
        } else if (more && slice_is(call->argv[i], "maxdeletedid")) {
            if (!stream_id_read(call, call->argv[i + 1], 0, &set->deleted)) return false;
            if (stream_id_compare(set->last, set->deleted) >= 0) continue;
            reply_error(call->reply,
                        "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id");
        } else {
            reply_syntax_error(call->reply);
        }
        return false;
    }
    return true;
}
/* Returns NULL, or the error. */
static const char *set_id_refused(const struct stream *stream, const struct set_id *set) {
    struct stream_id top;
    if (stream_id_compare(set->last, stream->max_deleted_id) < 0)
        return "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id";
    if (!stream_last_entry(stream, &top)) return NULL;
    if (stream_id_compare(set->last, top) < 0)
        return "ERR The ID specified in XSETID is smaller than the target stream top item";
    if (set->added >= 0 && (uint64_t)set->added < stream->length)
        return "ERR The entries_added specified in XSETID is smaller than the target stream length";
    return NULL;
}
static void xsetid_run(struct call *call) {
    struct set_id set;
    struct stream *stream;
    if (!set_id_read(call, &set) || !find_stream_write(call, call->argv[1], &stream)) return;
    if (!stream) {
        reply_no_such_key(call->reply);
        return;
    }
    const char *refused = set_id_refused(stream, &set);
    if (refused) {
        reply_error(call->reply, refused);
        return;
    }
    stream->last_id = set.last;
    if (set.added >= 0) stream->entries_added = (uint64_t)set.added;
    if (!stream_id_is_zero(set.deleted)) stream->max_deleted_id = set.deleted;
    reply_ok(call->reply);
    call->dirty++;
    notify(call->db, NOTIFY_STREAM, "xsetid", call->argv[1]);
}

#define RANGE_COMPLEXITY "O(N) where N is how many entries are returned; O(1) with a constant COUNT."
const struct command_spec stream_commands[] = {
    {COMMAND("xlen", xlen_run, 2, CMD_READONLY | CMD_FAST, ON_STREAMS, "5.0.0"), .complexity = "O(1)",
     .summary = "Returns the number of entries in a stream.", .syntax = "key:key", .keys = FIRST_KEY(KEY_RO)},
    {COMMAND("xrange", xrange_run, -4, CMD_READONLY, ON_STREAMS, "5.0.0"), .complexity = RANGE_COMPLEXITY,
     .summary = "Returns the entries of a range of ids.",
     .syntax = "key:key start:string end:string [COUNT count:integer]",
     .history = WORDS("6.2.0", "Ends of the range may be excluded."), .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("xrevrange", xrevrange_run, -4, CMD_READONLY, ON_STREAMS, "5.0.0"), .complexity = RANGE_COMPLEXITY,
     .summary = "Returns the entries of a range of ids in reverse order.",
     .syntax = "key:key end:string start:string [COUNT count:integer]",
     .history = WORDS("6.2.0", "Ends of the range may be excluded."), .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("xdel", xdel_run, -3, CMD_WRITE | CMD_FAST, ON_STREAMS, "5.0.0"), .complexity = "O(1) an entry",
     .summary = "Deletes entries of a stream.", .syntax = "key:key id:string...",
     .keys = FIRST_KEY(KEY_RW | KEY_DELETE)},
    {COMMAND("xsetid", xsetid_run, -3, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_STREAMS, "5.0.0"), .complexity = "O(1)",
     .summary = "Sets the last id and the counters of a stream, for use by replication.",
     .syntax = "key:key last-id:string [ENTRIESADDED entries-added:integer@7.0.0] "
               "[MAXDELETEDID max-deleted-id:string@7.0.0]",
     .history = WORDS("7.0.0", "Counts what was added and deleted: ENTRIESADDED, MAXDELETEDID."),
     .keys = FIRST_KEY(KEY_RW | KEY_UPDATE)},
    {.name = NULL},
};
