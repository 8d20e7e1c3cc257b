/* stream_common.c: see stream_common.h. */
#include "commands/stream/stream_common.h"
#include "lib/system/memory.h"
#include "server/command/propagate.h"

struct stream *stream_make(struct call *call, struct slice key) {
    struct entry *entry = stream_create(call->db, key);
    notify(call->db, NOTIFY_NEW, "new", key);
    return stream_of(entry);
}

/* --- Ids --- */

static bool id_read(struct call *call, struct slice text, unsigned syntax, uint64_t missing_seq, struct stream_id *id) {
    if (stream_id_parse(text, syntax, missing_seq, id, NULL)) return true;
    return reply_error(call->reply, STREAM_BAD_ID);
}
bool stream_id_read(struct call *call, struct slice text, unsigned syntax, struct stream_id *id) {
    return id_read(call, text, syntax, 0, id);
}

/* Reads an end of an interval; `past` moves an exclusive bound by one towards the other end. */
static bool edge_read(struct call *call, struct slice text, uint64_t missing_seq, struct stream_id *id,
                      bool (*past)(struct stream_id *id), const char *none_left) {
    bool excluded = text.len > 1 && text.data[0] == '(';
    if (excluded) text = (struct slice){text.data + 1, text.len - 1};
    if (!id_read(call, text, excluded ? 0 : STREAM_ID_EDGES, missing_seq, id)) return false;
    if (!excluded || past(id)) return true;
    return reply_error(call->reply, none_left);
}
bool stream_start_read(struct call *call, struct slice text, struct stream_id *first) {
    return edge_read(call, text, 0, first, stream_id_increment, "ERR invalid start ID for the interval");
}
bool stream_end_read(struct call *call, struct slice text, struct stream_id *last) {
    return edge_read(call, text, UINT64_MAX, last, stream_id_decrement, "ERR invalid end ID for the interval");
}

struct stream_id *stream_ids_alloc(size_t count, struct stream_id inline_ids[static STREAM_IDS_INLINE]) {
    return count <= STREAM_IDS_INLINE ? inline_ids : mem_alloc(count * sizeof *inline_ids);
}
void stream_ids_free(struct stream_id *ids, const struct stream_id inline_ids[static STREAM_IDS_INLINE]) {
    if (ids != inline_ids) mem_free(ids);
}
struct stream_id *stream_ids_read(struct call *call, int first, struct stream_id inline_ids[static STREAM_IDS_INLINE]) {
    struct stream_id *ids = stream_ids_alloc((size_t)(call->argc - first), inline_ids);
    for (int i = first; i < call->argc; i++) {
        if (stream_id_read(call, call->argv[i], 0, &ids[i - first])) continue;
        stream_ids_free(ids, inline_ids);
        return NULL;
    }
    return ids;
}

/* --- Replies --- */

void reply_stream_misunderstood(struct call *call, const char *container) {
    enum { SHOWN = 128 };
    struct slice word = call->argv[1];
    reply_error_format(call->reply, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try %s HELP.",
                       word.len < SHOWN ? (int)word.len : SHOWN, word.data, container);
}

void reply_stream_id(struct reply *reply, struct stream_id id) {
    char text[STREAM_ID_TEXT];
    reply_bulk(reply, (struct slice){text, stream_id_format(text, id)});
}

void reply_stream_entry(struct reply *reply, struct stream_iterator *it, struct stream_id id, size_t fields) {
    struct slice field, value;
    reply_array(reply, 2);
    reply_stream_id(reply, id);
    reply_array(reply, fields * 2);
    for (; fields; fields--) {
        stream_field(it, &field, &value);
        reply_bulk(reply, field);
        reply_bulk(reply, value);
    }
}

void reply_stream_range(struct reply *reply, const struct stream *stream, struct stream_id first, struct stream_id last,
                        uint64_t count, bool down) {
    struct stream_iterator it;
    struct stream_id id;
    size_t fields;
    count = stream_count(stream, first, last, count);
    reply_array(reply, count);
    if (!count) return;
    stream_iterate(&it, stream, first, last, down);
    for (; count && stream_next(&it, &id, &fields); count--) reply_stream_entry(reply, &it, id, fields);
    stream_iterate_end(&it);
}

bool reply_stream_one(struct reply *reply, const struct stream *stream, struct stream_id id) {
    struct stream_iterator it;
    size_t fields;
    stream_iterate(&it, stream, id, id, false);
    bool there = stream_next(&it, &id, &fields);
    if (there) reply_stream_entry(reply, &it, id, fields);
    stream_iterate_end(&it);
    return there;
}

/* --- Groups --- */

struct stream_group *find_stream_group(struct call *call, const struct stream *stream, struct slice key,
                                       struct slice name, enum no_group words) {
    struct stream_group *group = stream ? stream_group_find(stream, name) : NULL;
    if (group) return group;
    if (words == NO_KEY_OR_GROUP)
        reply_error_format(call->reply, "NOGROUP No such key '%.*s' or consumer group '%.*s'", shown_len(key), key.data,
                           shown_len(name), name.data);
    else
        reply_error_format(call->reply, "NOGROUP No such consumer group '%.*s' for key name '%.*s'", shown_len(name),
                           name.data, shown_len(key), key.data);
    return NULL;
}

struct stream_consumer *stream_consumer_get(struct call *call, struct slice key, struct stream_group *group,
                                            struct slice name, bool *made) {
    struct stream_consumer *consumer = stream_consumer_find(group, name);
    *made = !consumer;
    if (!consumer) {
        consumer = stream_consumer_create(group, name, clock_data_ms());
        notify(call->db, NOTIFY_STREAM, "xgroup-createconsumer", key);
        call->dirty++;
    }
    consumer->seen_ms = clock_data_ms();
    return consumer;
}

void stream_propagate_claim(struct call *call, const struct stream_group_name *name, const struct stream_group *group,
                            struct stream_id id, const struct slice *written, const struct stream_pending *pending) {
    if (!propagate_wanted()) return;
    char id_text[STREAM_ID_TEXT], last_text[STREAM_ID_TEXT], time[NUMBER_TEXT_MAX], deliveries[NUMBER_TEXT_MAX];
    struct slice shown = written ? *written : (struct slice){id_text, stream_id_format(id_text, id)};
    call_propagate(call, 14,
                   (struct slice[]){SLICE("XCLAIM"),
                                    name->key,
                                    name->group,
                                    stream_consumer_name(pending->consumer),
                                    SLICE("0"),
                                    shown,
                                    SLICE("TIME"),
                                    {time, format_int64(time, pending->delivered_ms)},
                                    SLICE("RETRYCOUNT"),
                                    {deliveries, format_int64(deliveries, (int64_t)pending->deliveries)},
                                    SLICE("FORCE"),
                                    SLICE("JUSTID"),
                                    SLICE("LASTID"),
                                    {last_text, stream_id_format(last_text, group->last_id)}});
}

void stream_propagate_consumer(struct call *call, const struct stream_group_name *name, struct slice consumer) {
    call_propagate(call, 5,
                   (struct slice[]){SLICE("XGROUP"), SLICE("CREATECONSUMER"), name->key, name->group, consumer});
}

void stream_propagate_group(struct call *call, const struct stream_group_name *name, const struct stream_group *group) {
    char id[STREAM_ID_TEXT], read[NUMBER_TEXT_MAX];
    call_propagate(call, 7,
                   (struct slice[]){SLICE("XGROUP"),
                                    SLICE("SETID"),
                                    name->key,
                                    name->group,
                                    {id, stream_id_format(id, group->last_id)},
                                    SLICE("ENTRIESREAD"),
                                    {read, format_int64(read, group->entries_read)}});
}
