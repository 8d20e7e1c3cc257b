/* stream_read.c: XREAD and XREADGROUP: the entries after an id, of several streams, now or when they arrive.
 *
 * XREAD returns the entries after the id. XREADGROUP with ">" returns the entries after the last id that the group has
 * read; with any other id it always replies, with the consumer's pending entries. If no stream has entries to return,
 * the client may block: the command is then called again with "$" replaced by the last id at the time of the first
 * call. */
#include "commands/stream/stream_common.h"
#include "lib/system/memory.h"
#include "server/clients/blocking.h"
#include "server/command/spec.h"

/* A stream of the call. */
struct stream_source {
    struct stream *stream;      /* NULL: no such key */
    struct stream_group *group; /* of XREADGROUP */
    struct stream_id after;     /* return entries after this id; STREAM_ID_MAX for XREADGROUP: ">" */
    bool now;                   /* "$" was given */
    bool serves;                /* there are entries to return */
};
enum { SOURCES_AT_HAND = 8 };
struct stream_read {
    bool grouped, no_ack, wait;
    struct slice group, consumer;
    int64_t count, timeout_ms;
    int first, streams; /* the keys start at argv[first]; the same number of ids follows */
    struct stream_source *sources, at_hand[SOURCES_AT_HAND];
};

/* --- Arguments --- */

static bool only_grouped(struct call *call, const struct stream_read *read, const char *option) {
    if (read->grouped) return true;
    return reply_error_format(call->reply,
                              "ERR The %s option is only supported by XREADGROUP. You called XREAD instead.", option);
}
/* Reads the arguments after STREAMS; false: replied with an error. */
static bool streams_split(struct call *call, struct stream_read *read, int first) {
    int words = call->argc - first;
    read->first = first;
    read->streams = words / 2;
    if (words % 2 == 0) return true;
    return reply_error_format(
        call->reply, "ERR Unbalanced '%s' list of streams: for each stream key an ID or '%c' must be specified.",
        call->command->full_name, read->grouped ? '>' : '$');
}
static bool options_read(struct call *call, struct stream_read *read) {
    for (int i = 1; i < call->argc && !read->first; i++) {
        struct slice word = call->argv[i];
        int more = call->argc - 1 - i;
        if (more && slice_is(word, "block")) {
            if (!call_timeout_milliseconds(call, ++i, &read->timeout_ms)) return false;
            read->wait = true;
        } else if (more && slice_is(word, "count")) {
            if (!argument_int64(call, ++i, &read->count)) return false;
            if (read->count < 0) read->count = 0;
        } else if (more && slice_is(word, "streams")) {
            if (!streams_split(call, read, i + 1)) return false;
        } else if (more > 1 && slice_is(word, "group")) {
            if (!only_grouped(call, read, "GROUP")) return false;
            read->group = call->argv[i + 1];
            read->consumer = call->argv[i + 2];
            i += 2;
        } else if (slice_is(word, "noack")) {
            if (!only_grouped(call, read, "NOACK")) return false;
            read->no_ack = true;
        } else {
            return reply_syntax_error(call->reply);
        }
    }
    if (!read->first)
        reply_syntax_error(call->reply);
    else if (read->grouped && !read->group.data)
        reply_error(call->reply, "ERR Missing GROUP option for XREADGROUP");
    return read->first && (!read->grouped || read->group.data);
}

/* Reads "$", future entries, or "+", the last entry. */
static bool current_id_read(struct call *call, const struct stream_read *read, struct slice word,
                            struct stream_source *source) {
    if (read->grouped)
        return reply_error_format(call->reply,
                                  "ERR The %c ID is meaningless in the context of XREADGROUP: you want to read the "
                                  "history of this consumer by specifying a proper ID, or use the > ID to get new "
                                  "messages. The %c ID would just return an empty result set.",
                                  word.data[0], word.data[0]);
    source->after = source->stream ? source->stream->last_id : STREAM_ID_MIN;
    source->now = word.data[0] == '$';
    if (source->now || !source->stream || stream_id_is_zero(source->after)) return true;
    /* "+" finds nothing if the last entry was deleted, as in Valkey 8. */
    return stream_id_decrement(&source->after);
}
static bool source_read(struct call *call, const struct stream_read *read, int index, struct stream_source *source) {
    struct slice key = call->argv[read->first + index], word = call->argv[read->first + read->streams + index];
    *source = (struct stream_source){.stream = NULL};
    if (!(read->grouped ? find_stream_groups : find_stream)(call, key, &source->stream)) return false;
    if (read->grouped) {
        source->group = source->stream ? stream_group_find(source->stream, read->group) : NULL;
        if (!source->group)
            return reply_error_format(
                call->reply, "NOGROUP No such key '%.*s' or consumer group '%.*s' in XREADGROUP with GROUP option",
                shown_len(key), key.data, shown_len(read->group), read->group.data);
    }
    if (slice_is(word, "$") || slice_is(word, "+")) return current_id_read(call, read, word, source);
    if (!slice_is(word, ">")) return stream_id_read(call, word, 0, &source->after);
    source->after = STREAM_ID_MAX;
    if (read->grouped) return true;
    return reply_error(call->reply,
                       "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> "
                       "<consumer> option.");
}

/* --- Reading --- */

static bool asks_for_new(const struct stream_source *source) {
    return source->group && stream_id_equal(source->after, STREAM_ID_MAX);
}
static bool serves(const struct stream_source *source) {
    struct stream_id top;
    if (!source->stream) return false;
    if (source->group && !asks_for_new(source)) return true;
    return stream_last_entry(source->stream, &top) &&
           stream_id_compare(top, source->group ? source->group->last_id : source->after) > 0;
}

/* Replies with new entries, which become pending for the consumer unless NOACK is given. */
static void serve_new(struct call *call, const struct stream_read *read, const struct stream_source *source,
                      struct stream_consumer *consumer, struct slice key) {
    struct stream_group *group = source->group;
    const struct stream_group_name name = {key, read->group};
    struct stream_iterator it;
    struct stream_id id, first = group->last_id;
    size_t fields;
    stream_id_increment(&first);
    uint64_t count = stream_count(source->stream, first, STREAM_ID_MAX, (uint64_t)read->count);
    reply_array(call->reply, count);
    stream_iterate(&it, source->stream, first, STREAM_ID_MAX, false);
    for (; count && stream_next(&it, &id, &fields); count--) {
        stream_group_advance(source->stream, group, id);
        reply_stream_entry(call->reply, &it, id, fields);
        if (read->no_ack) continue;
        consumer->active_ms = clock_data_ms();
        stream_propagate_claim(call, &name, group, id, NULL, stream_deliver(group, consumer, id, clock_data_ms()));
    }
    stream_iterate_end(&it);
    stream_propagate_group(call, &name, group);
}

/* Replies with the consumer's pending entries, counted as another delivery; deleted entries have no fields. */
static void serve_pending(struct call *call, const struct stream_read *read, const struct stream_source *source,
                          struct stream_consumer *consumer, struct slice key) {
    const struct stream_group_name name = {key, read->group};
    struct stream_pending_iterator it;
    struct stream_pending *pending;
    struct stream_id first = source->after;
    uint64_t count = 0;
    stream_id_increment(&first);
    stream_pending_iterate(&it, consumer->pending, first);
    while ((!read->count || count < (uint64_t)read->count) && stream_pending_next(&it)) count++;
    stream_pending_iterate_end(&it);
    reply_array(call->reply, count);
    stream_pending_iterate(&it, consumer->pending, first);
    for (; count && (pending = stream_pending_next(&it)); count--) {
        if (reply_stream_one(call->reply, source->stream, it.id)) {
            pending->delivered_ms = clock_data_ms();
            pending->deliveries++;
            stream_propagate_claim(call, &name, source->group, it.id, NULL, pending);
        } else {
            reply_array(call->reply, 2);
            reply_stream_id(call->reply, it.id);
            reply_null_array(call->reply);
        }
    }
    stream_pending_iterate_end(&it);
}

static void serve(struct call *call, const struct stream_read *read, const struct stream_source *source,
                  struct stream_consumer *consumer, struct slice key) {
    if (call->reply->protocol == 2) reply_array(call->reply, 2);
    reply_bulk(call->reply, key);
    if (!source->group) {
        struct stream_id first = source->after;
        stream_id_increment(&first);
        reply_stream_range(call->reply, source->stream, first, STREAM_ID_MAX, (uint64_t)read->count, false);
        return;
    }
    if (asks_for_new(source))
        serve_new(call, read, source, consumer, key);
    else
        serve_pending(call, read, source, consumer, key);
    call->dirty++;
}
static void reply_served(struct reply *reply, size_t count) {
    if (reply->protocol == 2)
        reply_array(reply, count);
    else
        reply_map(reply, count);
}

/* Looks up each key again, which counts in statistics and notifications, and returns the number of streams with
 * entries. */
static size_t streams_that_serve(struct call *call, const struct stream_read *read) {
    size_t count = 0;
    for (int i = 0; i < read->streams; i++) {
        struct stream_source *source = &read->sources[i];
        find_read(call, call->argv[read->first + i]);
        source->serves = serves(source);
        count += source->serves;
    }
    return count;
}
static bool serve_plain(struct call *call, const struct stream_read *read) {
    size_t count = streams_that_serve(call, read);
    if (!count) return false;
    reply_served(call->reply, count);
    for (int i = 0; i < read->streams; i++)
        if (read->sources[i].serves) serve(call, read, &read->sources[i], NULL, call->argv[read->first + i]);
    return true;
}

static struct stream_consumer *consumer_of(struct call *call, const struct stream_read *read,
                                           const struct stream_source *source, struct slice key) {
    bool made, claims = serves(source) && asks_for_new(source) && !read->no_ack;
    struct stream_consumer *consumer = stream_consumer_get(call, key, source->group, read->consumer, &made);
    if (made && !claims) stream_propagate_consumer(call, &(struct stream_group_name){key, read->group}, read->consumer);
    return consumer;
}
static bool serve_grouped(struct call *call, const struct stream_read *read) {
    struct reply_deferred deferred;
    bool several = read->streams > 1, any = streams_that_serve(call, read);
    size_t count = 0;
    call_propagate_nothing(call);
    /* A key may be given twice, and the first read may leave nothing for the second, so the number of streams is known
     * only afterwards. */
    if (any && several) reply_deferred_begin(call->reply, &deferred);
    for (int i = 0; i < read->streams; i++) {
        const struct stream_source *source = &read->sources[i];
        struct slice key = call->argv[read->first + i];
        struct stream_consumer *consumer = consumer_of(call, read, source, key);
        if (!serves(source)) continue;
        if (!several) reply_served(call->reply, 1);
        serve(call, read, source, consumer, key);
        count++;
    }
    if (any && several)
        reply_deferred_end(call->reply, &deferred, call->reply->protocol == 2 ? REPLY_ARRAY : REPLY_MAP, count);
    return any;
}

/* Blocks the client; "$" is replaced by the current last id. */
static void wait_for_entries(struct call *call, const struct stream_read *read) {
    struct blocking blocking = {.first_key = read->first,
                                .key_count = read->streams,
                                .type = TYPE_STREAM,
                                .unless_present = read->grouped,
                                .timeout_ms = read->timeout_ms};
    struct slice *argv = NULL;
    char(*texts)[STREAM_ID_TEXT] = NULL;
    for (int i = 0; i < read->streams; i++) {
        if (!read->sources[i].now) continue;
        if (!argv) {
            argv = mem_alloc((size_t)call->argc * sizeof *argv);
            memcpy(argv, call->argv, (size_t)call->argc * sizeof *argv);
            texts = mem_alloc((size_t)read->streams * sizeof *texts);
        }
        size_t len = stream_id_format(texts[i], read->sources[i].after);
        argv[read->first + read->streams + i] = (struct slice){texts[i], len};
    }
    blocking.argv = argv;
    call_block(call, &blocking);
    mem_free(argv);
    mem_free(texts);
}

static void read_streams(struct call *call, bool grouped) {
    struct stream_read read = {.grouped = grouped};
    if (!options_read(call, &read)) return;
    read.sources =
        read.streams <= SOURCES_AT_HAND ? read.at_hand : mem_alloc((size_t)read.streams * sizeof *read.sources);
    bool understood = true;
    for (int i = 0; i < read.streams && understood; i++) understood = source_read(call, &read, i, &read.sources[i]);
    if (understood && !(grouped ? serve_grouped(call, &read) : serve_plain(call, &read))) {
        if (read.wait)
            wait_for_entries(call, &read);
        else
            reply_null_array(call->reply);
    }
    if (read.sources != read.at_hand) mem_free(read.sources);
}
static void xread_run(struct call *call) {
    read_streams(call, false);
}
static void xreadgroup_run(struct call *call) {
    read_streams(call, true);
}

/* Finds the keys as options_read() does. Valkey's key spec searches the first STREAMS, which may be the name of a group
 * or consumer if GROUP is not the first option; a user could then read streams without permission. Without GROUP, which
 * is an error, this function searches STREAMS like the key spec. */
static int xreadgroup_find_keys(const struct command *command, int argc, const struct slice *argv,
                                struct key_position *positions, int max) {
    enum { FIRST_STREAMS = 4 }; /* after GROUP group consumer */
    int at = 1, count = 0;
    while (at < argc && !slice_is(argv[at], "streams")) at += slice_is(argv[at], "group") ? 3 : 1;
    if (at < FIRST_STREAMS)
        for (at = FIRST_STREAMS; at < argc && !slice_is(argv[at], "streams"); at++) continue;
    if (at + 1 >= argc) return 0;
    int streams = (argc - at - 1) / 2;
    for (; count < streams && count < max; count++)
        positions[count] = (struct key_position){at + 1 + count, KEY_RO | KEY_ACCESS};
    return streams ? count : -1;
}

#define STREAM_KEYS(start)                                                                                             \
    {                                                                                                                  \
        {                                                                                                              \
            .flags = KEY_RO | KEY_ACCESS, .begin = BEGIN_KEYWORD, .keyword = "STREAMS", .index = (start),              \
            .find = FIND_RANGE, .a = -1, .b = 1, .c = 2                                                                \
        }                                                                                                              \
    }
const struct command_spec stream_read_commands[] = {
    {COMMAND("xread", xread_run, -4, CMD_READONLY | CMD_BLOCKING | CMD_MOVABLE_KEYS, ON_STREAMS, "5.0.0"),
     .summary = "Returns the entries of streams after given ids; can block until there are some.",
     .syntax = "[COUNT count:integer] [BLOCK milliseconds:integer] STREAMS streams{key:key... id:string...}",
     .keys = STREAM_KEYS(1)},
    {COMMAND("xreadgroup", xreadgroup_run, -7, CMD_WRITE | CMD_BLOCKING | CMD_MOVABLE_KEYS, ON_STREAMS, "5.0.0"),
     .complexity = "O(M) a stream, where M is the number of entries returned.",
     .summary = "Delivers new entries of streams to a consumer of a group, or returns its pending entries; can block "
                "until there are new ones.",
     .syntax = "GROUP group-block{group:string consumer:string} [COUNT count:integer] "
               "[BLOCK milliseconds:integer] [NOACK] STREAMS streams{key:key... id:string...}",
     .keys = STREAM_KEYS(4), .find_keys = xreadgroup_find_keys},
    {.name = NULL},
};
