/* stream_claim.c: XCLAIM and XAUTOCLAIM: a consumer takes over pending entries of others. Both remove pending entries
 * that were deleted from the stream. */
#include "commands/stream/stream_common.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"

/* The parameters of a claim. */
struct stream_claim {
    struct stream_group_name name;
    struct stream *stream;
    struct stream_group *group;
    struct stream_consumer *consumer;
    int64_t min_idle, delivered_ms, deliveries; /* deliveries -1: increment */
    bool force, only_ids;                       /* FORCE, JUSTID */
    bool propagated;                            /* already propagated, with the group's last id */
    bool taken;                                 /* an entry was claimed, so the propagated XCLAIM has the consumer */
    const struct slice *written;                /* the current id as given by the client */
};

static void claim_init(const struct call *call, struct stream_claim *claim) {
    *claim = (struct stream_claim){
        .name = {call->argv[1], call->argv[2]}, .delivered_ms = clock_data_ms(), .deliveries = -1};
}
/* Finds the group in the entry. False: not found; replied with the error. */
static bool claim_find(struct call *call, struct stream_claim *claim, const struct entry *entry) {
    if (!stream_get(call, entry, &claim->stream)) return false;
    claim->group = find_stream_group(call, claim->stream, claim->name.key, claim->name.group, NO_KEY_OR_GROUP);
    return claim->group != NULL;
}
/* Reads argv[4]; false: replied with an error. */
static bool min_idle_read(struct call *call, struct stream_claim *claim, const char *command) {
    if (!parse_int64(call->argv[4], &claim->min_idle))
        return reply_error_format(call->reply, "ERR Invalid min-idle-time argument for %s", command);
    if (claim->min_idle < 0) claim->min_idle = 0;
    return true;
}
static void claim_propagate(struct call *call, struct stream_claim *claim, struct stream_id id,
                            const struct stream_pending *pending) {
    stream_propagate_claim(call, &claim->name, claim->group, id, claim->written, pending);
    claim->propagated = true;
    call->dirty++;
}
/* Removes a pending entry that no longer exists in the stream. The same command does so on replicas. */
static void claim_forget(struct call *call, struct stream_claim *claim, struct stream_id id,
                         const struct stream_pending *pending) {
    claim_propagate(call, claim, id, pending);
    stream_acknowledge(claim->group, id);
}
static bool is_idle(const struct stream_claim *claim, const struct stream_pending *pending) {
    return !claim->min_idle || stream_elapsed(pending->delivered_ms) >= claim->min_idle;
}
/* Assigns the existing entry to the consumer. */
static void claim_take(struct call *call, struct stream_claim *claim, struct stream_id id,
                       struct stream_pending *pending) {
    stream_pending_give(pending, id, claim->consumer);
    pending->delivered_ms = claim->delivered_ms;
    if (claim->deliveries >= 0)
        pending->deliveries = (uint64_t)claim->deliveries;
    else if (!claim->only_ids)
        pending->deliveries++;
    claim->consumer->active_ms = clock_data_ms();
    claim->taken = true;
    claim_propagate(call, claim, id, pending);
}
static void reply_claimed(struct call *call, const struct stream_claim *claim, const struct stream_id *ids,
                          size_t count) {
    reply_array(call->reply, count);
    for (size_t i = 0; i < count; i++) {
        if (claim->only_ids)
            reply_stream_id(call->reply, ids[i]);
        else
            reply_stream_one(call->reply, claim->stream, ids[i]);
    }
}

/* --- XCLAIM --- */

/* Reads the number after an option. */
static bool number_read(struct call *call, int index, const char *option, int64_t *value) {
    if (parse_int64(call->argv[index], value)) return true;
    return reply_error_format(call->reply, "ERR Invalid %s option argument for XCLAIM", option);
}
/* Reads the options from argv[at] on; false: replied with an error. */
static bool claim_options_read(struct call *call, int at, struct stream_claim *claim, struct stream_id *last_id) {
    int64_t now = clock_data_ms(), value;
    for (; at < call->argc; at++) {
        struct slice word = call->argv[at];
        bool more = at + 1 < call->argc;
        if (slice_is(word, "force")) {
            claim->force = true;
        } else if (slice_is(word, "justid")) {
            claim->only_ids = true;
        } else if (more && slice_is(word, "idle")) {
            if (!number_read(call, ++at, "IDLE", &value)) return false;
            claim->delivered_ms = (int64_t)((uint64_t)now - (uint64_t)value);
        } else if (more && slice_is(word, "time")) {
            if (!number_read(call, ++at, "TIME", &claim->delivered_ms)) return false;
        } else if (more && slice_is(word, "retrycount")) {
            if (!number_read(call, ++at, "RETRYCOUNT", &claim->deliveries)) return false;
        } else if (more && slice_is(word, "lastid")) {
            if (!stream_id_read(call, call->argv[++at], 0, last_id)) return false;
        } else {
            return reply_error_format(call->reply, "ERR Unrecognized XCLAIM option '%.*s'", shown_len(word), word.data);
        }
    }
    /* The clock of a primary may be ahead. */
    bool future = claim->delivered_ms > now && !client_must_be_obeyed(call->client);
    if (claim->delivered_ms < 0 || future) claim->delivered_ms = now;
    return true;
}

enum { FIRST_ID = 5 };
/* Reads the leading arguments that are ids. */
static int claim_ids_read(const struct call *call, struct stream_id *ids) {
    int count = 0;
    while (FIRST_ID + count < call->argc && stream_id_parse(call->argv[FIRST_ID + count], 0, 0, &ids[count], NULL))
        count++;
    return count;
}
static bool claim_one(struct call *call, struct stream_claim *claim, struct stream_id id) {
    struct stream_pending *pending = stream_pending_find(claim->group, id);
    if (!stream_contains(claim->stream, id)) {
        if (pending) claim_forget(call, claim, id, pending);
        return false;
    }
    if (pending && !is_idle(claim, pending)) return false;
    if (!pending && !claim->force) return false;
    if (!pending) pending = stream_deliver(claim->group, claim->consumer, id, claim->delivered_ms);
    claim_take(call, claim, id, pending);
    return true;
}
/* Claims the ids and compacts the array to those claimed. */
static void claim_all(struct call *call, struct stream_claim *claim, struct stream_id *ids, int count,
                      struct stream_id last_id) {
    bool made, advanced = stream_id_compare(last_id, claim->group->last_id) > 0;
    size_t claimed = 0;
    if (advanced) claim->group->last_id = last_id;
    call_propagate_nothing(call);
    claim->consumer = stream_consumer_get(call, claim->name.key, claim->group, call->argv[3], &made);
    for (int i = 0; i < count; i++) {
        claim->written = &call->argv[FIRST_ID + i];
        if (claim_one(call, claim, ids[i])) ids[claimed++] = ids[i];
    }
    reply_claimed(call, claim, ids, claimed);
    if (made && !claim->taken) stream_propagate_consumer(call, &claim->name, call->argv[3]);
    if (!advanced || claim->propagated) return;
    stream_propagate_group(call, &claim->name, claim->group);
    call->dirty++;
}
static void xclaim_run(struct call *call) {
    struct stream_claim claim;
    struct stream_id inline_ids[STREAM_IDS_INLINE], last_id = STREAM_ID_MIN;
    claim_init(call, &claim);
    if (!claim_find(call, &claim, find_read_groups(call, call->argv[1])) || !min_idle_read(call, &claim, "XCLAIM"))
        return;
    struct stream_id *ids = stream_ids_alloc((size_t)(call->argc - FIRST_ID), inline_ids);
    int count = claim_ids_read(call, ids);
    if (claim_options_read(call, FIRST_ID + count, &claim, &last_id)) claim_all(call, &claim, ids, count, last_id);
    stream_ids_free(ids, inline_ids);
}

/* --- XAUTOCLAIM --- */

enum { AUTOCLAIM_COUNT = 100, AUTOCLAIM_EXAMINED = 10 /* entries examined per entry to be claimed */ };

/* Reads the options from argv[6] on; false: replied with an error. */
static bool autoclaim_options_read(struct call *call, struct stream_claim *claim, int64_t *count) {
    *count = AUTOCLAIM_COUNT;
    for (int i = 6; i < call->argc; i++) {
        if (i + 1 < call->argc && slice_is(call->argv[i], "count")) {
            if (parse_int64(call->argv[++i], count) && *count > 0 && *count <= INT64_MAX / STREAM_ID_BYTES) continue;
            return reply_error(call->reply, "ERR COUNT must be > 0");
        } else if (slice_is(call->argv[i], "justid")) {
            claim->only_ids = true;
        } else {
            return reply_syntax_error(call->reply);
        }
    }
    return true;
}
/* Ids for the later part of the reply. */
struct ids {
    struct stream_id *ids;
    size_t count, capacity;
};
static void ids_add(struct ids *ids, struct stream_id id) {
    mem_grow(ids->ids, ids->count, ids->capacity, STREAM_IDS_INLINE);
    ids->ids[ids->count++] = id;
}
/* Claims entries from an id on. Returns the next cursor; 0-0: complete. */
static struct stream_id autoclaim_walk(struct call *call, struct stream_claim *claim, struct stream_id from,
                                       int64_t count, struct ids *claimed, struct ids *deleted) {
    struct stream_pending_iterator it;
    struct stream_pending *pending;
    int64_t looks = count > INT64_MAX / AUTOCLAIM_EXAMINED ? INT64_MAX : count * AUTOCLAIM_EXAMINED;
    stream_pending_iterate(&it, claim->group->pending, from);
    for (; looks && count && (pending = stream_pending_next(&it)); looks--) {
        if (!stream_contains(claim->stream, it.id)) {
            ids_add(deleted, it.id);
            claim_forget(call, claim, it.id, pending);
            stream_pending_resume(&it);
        } else if (is_idle(claim, pending)) {
            ids_add(claimed, it.id);
            claim_take(call, claim, it.id, pending);
        } else {
            continue;
        }
        count--;
    }
    struct stream_id next = stream_pending_next(&it) ? it.id : STREAM_ID_MIN;
    stream_pending_iterate_end(&it);
    return next;
}
static void xautoclaim_run(struct call *call) {
    struct stream_claim claim;
    struct ids claimed = {.count = 0}, deleted = {.count = 0};
    struct stream_id from;
    int64_t count;
    bool made;
    claim_init(call, &claim);
    const struct entry *entry = find_read_groups(call, call->argv[1]);
    if (!min_idle_read(call, &claim, "XAUTOCLAIM") || !stream_start_read(call, call->argv[5], &from) ||
        !autoclaim_options_read(call, &claim, &count) || !claim_find(call, &claim, entry))
        return;
    call_propagate_nothing(call);
    claim.consumer = stream_consumer_get(call, claim.name.key, claim.group, call->argv[3], &made);
    struct stream_id next = autoclaim_walk(call, &claim, from, count, &claimed, &deleted);
    if (made && !claim.taken) stream_propagate_consumer(call, &claim.name, call->argv[3]);
    reply_array(call->reply, 3);
    reply_stream_id(call->reply, next);
    reply_claimed(call, &claim, claimed.ids, claimed.count);
    reply_array(call->reply, deleted.count);
    for (size_t i = 0; i < deleted.count; i++) reply_stream_id(call->reply, deleted.ids[i]);
    mem_free(claimed.ids);
    mem_free(deleted.ids);
}

const struct command_spec stream_claim_commands[] = {
    {COMMAND("xclaim", xclaim_run, -6, CMD_WRITE | CMD_FAST, ON_STREAMS, "5.0.0"),
     .tips = WORDS("nondeterministic_output"),
     .complexity = "O(log N) where N is the number of pending entries in the group.",
     .summary = "Changes the consumer of pending entries.",
     .syntax = "key:key group:string consumer:string min-idle-time:string id:string... [IDLE ms:integer] "
               "[TIME unix-time-milliseconds:unix-time] [RETRYCOUNT count:integer] [FORCE] [JUSTID] "
               "[LASTID lastid:string]",
     .keys = FIRST_KEY(KEY_RW | KEY_UPDATE)},
    {COMMAND("xautoclaim", xautoclaim_run, -6, CMD_WRITE | CMD_FAST, ON_STREAMS, "6.2.0"),
     .tips = WORDS("nondeterministic_output"), .complexity = "O(1) if COUNT is small.",
     .summary = "Finds entries that have been pending for a minimum time, and changes their consumer.",
     .syntax = "key:key group:string consumer:string min-idle-time:string start:string [COUNT count:integer] "
               "[JUSTID]",
     .history = WORDS("7.0.0", "Returns the ids of entries that it dropped because they are deleted."),
     .keys = FIRST_KEY(KEY_RW | KEY_DELETE)},
    {.name = NULL},
};
