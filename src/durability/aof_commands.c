/* aof_commands.c: keys as the commands that create them: base files with aof-use-rdb-preamble no.
 *
 * A value of many elements takes several commands of at most CHUNK elements each, so that loading needs little memory
 * for a command. Nothing is built in memory first: the sink takes every piece as it comes. */
#include "durability/aof_private.h"
#include "durability/durability.h"
#include "lib/number.h"
#include "server/script_hooks.h"
#include "server/process/child.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/set.h"
#include "store/stream_group.h"
#include "store/zset.h"
#include <errno.h>

enum { CHUNK = 64 };

/* Writing */

static void head(struct output *out, char kind, uint64_t number) {
    char *at = output_reserve(out, NUMBER_TEXT_MAX + 3);
    size_t len = 0;
    at[len++] = kind;
    len += format_uint64(at + len, number);
    at[len++] = '\r';
    at[len++] = '\n';
    output_commit(out, len);
}

static void bulk(struct output *out, struct slice text) {
    head(out, '$', text.len);
    output_write(out, text);
    output_write(out, SLICE("\r\n"));
}

static void bulk_blob(struct output *out, struct blob *blob) {
    head(out, '$', blob->len);
    output_write_blob(out, blob);
    output_write(out, SLICE("\r\n"));
}

static void bulk_number(struct output *out, int64_t number) {
    char text[NUMBER_TEXT_MAX];
    bulk(out, (struct slice){text, format_int64(text, number)});
}

static void bulk_value(struct output *out, const struct listpack_value *value) {
    char text[LISTPACK_TEXT];
    bulk(out, listpack_value_text(value, text));
}

static void bulk_id(struct output *out, struct stream_id id) {
    char text[STREAM_ID_TEXT];
    bulk(out, (struct slice){text, stream_id_format(text, id)});
}

static void command(struct output *out, const char *name, size_t arguments) {
    head(out, '*', arguments + 1);
    bulk(out, slice_of(name));
}

/* Begins a command with the key and the next elements, `width` arguments each, where one begins. */
static void chunk(struct output *out, const char *name, struct slice key, size_t done, size_t total, size_t width) {
    if (done % CHUNK) return;
    size_t count = total - done < CHUNK ? total - done : CHUNK;
    command(out, name, 1 + count * width);
    bulk(out, key);
}

/* Types */

static void write_string(struct output *out, struct slice key, const struct entry *entry) {
    command(out, "SET", 2);
    bulk(out, key);
    struct blob *blob = entry_blob(entry);
    char text[STRING_NUMBER_TEXT];
    if (blob)
        bulk_blob(out, blob);
    else
        bulk(out, entry_string(entry, text));
}

static void write_list(struct output *out, struct slice key, const struct entry *entry) {
    size_t total = list_type_len(entry), done = 0;
    struct list_type_iterator it;
    struct list_type_element element;
    list_type_iterate(&it, entry, 0, false);
    for (; list_type_next(&it, &element); done++) {
        chunk(out, "RPUSH", key, done, total, 1);
        bulk_value(out, &element.value);
    }
    list_type_iterate_end(&it);
}

static void write_set(struct output *out, struct slice key, const struct entry *entry) {
    struct set set = set_of(entry);
    size_t total = set_len(&set), done = 0;
    struct set_iterator it;
    struct listpack_value member;
    set_iterate(&it, &set);
    for (; set_next(&it, &member); done++) {
        chunk(out, "SADD", key, done, total, 1);
        bulk_value(out, &member);
    }
    set_iterate_end(&it);
}

static void write_zset(struct output *out, struct slice key, const struct entry *entry) {
    struct zset zset = zset_of(entry);
    size_t total = zset_len(&zset), done = 0;
    struct zset_iterator it;
    struct zset_item item;
    zset_iterate(&it, &zset, 0, false);
    for (; zset_next(&it, &item); done++) {
        char text[40];
        chunk(out, "ZADD", key, done, total, 2);
        bulk(out, (struct slice){text, format_double(text, item.score)});
        bulk_value(out, &item.member);
    }
}

static void bulk_field_value(struct output *out, const struct hash_value *value) {
    if (value->blob)
        bulk_blob(out, value->blob);
    else
        bulk(out, value->bytes);
}

/* Fields that expire first, each with its time; then the others, of which there are as many as the first pass left. */
static void write_hash(struct output *out, struct slice key, const struct entry *entry) {
    size_t total = 0, done = 0;
    struct hash_iterator it;
    struct hash_item item;
    hash_iterate_all(&it, entry);
    while (hash_next(&it, &item)) {
        if (item.expire_at == HASH_NEVER) {
            total++;
            continue;
        }
        command(out, "HSETEX", 7);
        bulk(out, key);
        bulk(out, SLICE("PXAT"));
        bulk_number(out, item.expire_at);
        bulk(out, SLICE("FIELDS"));
        bulk(out, SLICE("1"));
        bulk(out, item.field);
        bulk_field_value(out, &item.value);
    }
    hash_iterate_end(&it);
    if (!total) return;
    hash_iterate_all(&it, entry);
    while (hash_next(&it, &item)) {
        if (item.expire_at != HASH_NEVER) continue;
        chunk(out, "HMSET", key, done++, total, 2);
        bulk(out, item.field);
        bulk_field_value(out, &item.value);
    }
    hash_iterate_end(&it);
}

/* Streams */

static void write_entries(struct output *out, struct slice key, const struct stream *stream) {
    struct stream_iterator it;
    struct stream_id id;
    size_t fields;
    stream_iterate(&it, stream, STREAM_ID_MIN, STREAM_ID_MAX, false);
    while (stream_next(&it, &id, &fields)) {
        command(out, "XADD", 2 + 2 * fields);
        bulk(out, key);
        bulk_id(out, id);
        while (fields--) {
            struct slice field, value;
            stream_field(&it, &field, &value);
            bulk(out, field);
            bulk(out, value);
        }
    }
    stream_iterate_end(&it);
}

/* A stream without an entry is created by an entry that MAXLEN 0 removes at once. */
static void write_empty(struct output *out, struct slice key, const struct stream *stream) {
    struct stream_id id = stream_id_is_zero(stream->last_id) ? (struct stream_id){0, 1} : stream->last_id;
    command(out, "XADD", 6);
    bulk(out, key);
    bulk(out, SLICE("MAXLEN"));
    bulk(out, SLICE("0"));
    bulk_id(out, id);
    bulk(out, SLICE("x"));
    bulk(out, SLICE("y"));
}

static void write_pending(struct output *out, struct slice key, struct slice group,
                          const struct stream_consumer *consumer) {
    struct stream_pending_iterator it;
    stream_pending_iterate(&it, consumer->pending, STREAM_ID_MIN);
    for (struct stream_pending *pending; (pending = stream_pending_next(&it));) {
        command(out, "XCLAIM", 11);
        bulk(out, key);
        bulk(out, group);
        bulk(out, stream_consumer_name(consumer));
        bulk(out, SLICE("0"));
        bulk_id(out, it.id);
        bulk(out, SLICE("TIME"));
        bulk_number(out, pending->delivered_ms);
        bulk(out, SLICE("RETRYCOUNT"));
        bulk_number(out, (int64_t)pending->deliveries);
        bulk(out, SLICE("JUSTID"));
        bulk(out, SLICE("FORCE"));
    }
    stream_pending_iterate_end(&it);
}

static void write_group(struct output *out, struct slice key, struct slice name, const struct stream_group *group) {
    command(out, "XGROUP", 6);
    bulk(out, SLICE("CREATE"));
    bulk(out, key);
    bulk(out, name);
    bulk_id(out, group->last_id);
    bulk(out, SLICE("ENTRIESREAD"));
    bulk_number(out, group->entries_read);
    struct radix_iterator it;
    radix_iterator_init(&it, group->consumers);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it)) {
        const struct stream_consumer *consumer = it.value;
        command(out, "XGROUP", 4);
        bulk(out, SLICE("CREATECONSUMER"));
        bulk(out, key);
        bulk(out, name);
        bulk(out, stream_consumer_name(consumer));
        write_pending(out, key, name, consumer);
    }
    radix_iterator_free(&it);
}

static void write_stream(struct output *out, struct slice key, const struct entry *entry) {
    const struct stream *stream = stream_of(entry);
    if (stream->length)
        write_entries(out, key, stream);
    else
        write_empty(out, key, stream);
    command(out, "XSETID", 6);
    bulk(out, key);
    bulk_id(out, stream->last_id);
    bulk(out, SLICE("ENTRIESADDED"));
    bulk_number(out, (int64_t)stream->entries_added);
    bulk(out, SLICE("MAXDELETEDID"));
    bulk_id(out, stream->max_deleted_id);
    if (!stream->groups) return;
    struct radix_iterator it;
    radix_iterator_init(&it, stream->groups);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it))
        write_group(out, key, it.key, it.value);
    radix_iterator_free(&it);
}

/* Databases */

static void (*const writers[VALUE_TYPES])(struct output *out, struct slice key, const struct entry *entry) = {
    [TYPE_STRING] = write_string, [TYPE_LIST] = write_list, [TYPE_SET] = write_set,
    [TYPE_ZSET] = write_zset,     [TYPE_HASH] = write_hash, [TYPE_STREAM] = write_stream};

static void write_entry(struct output *out, const struct entry *entry) {
    struct slice key = entry_key(entry);
    writers[entry_type(entry)](out, key, entry);
    int64_t at = entry_expire_at(entry);
    if (at < 0) return;
    command(out, "PEXPIREAT", 2);
    bulk(out, key);
    bulk_number(out, at);
}

int aof_commands_write(struct sink *sink, struct keyspace *keyspace, bool in_child) {
    uint64_t keys = 0;
    const struct slice *libraries;
    size_t count = script_hooks ? script_hooks->libraries(&libraries) : 0;
    for (size_t i = 0; i < count; i++) {
        command(&sink->out, "FUNCTION", 2);
        bulk(&sink->out, SLICE("LOAD"));
        bulk(&sink->out, libraries[i]);
    }
    for (int id = 0; id < keyspace_databases(keyspace); id++) {
        struct db *db = keyspace_db(keyspace, id);
        if (!db_size(db)) continue;
        command(&sink->out, "SELECT", 1);
        bulk_number(&sink->out, id);
        struct db_iterator *it = db_iterate(db, -1);
        for (struct entry *entry; !sink_error(sink) && (entry = db_iterate_next(it));) {
            write_entry(&sink->out, entry);
            keys++;
            if (in_child) child_report(keys);
            if (durability_settings.key_save_delay) durability_delay(durability_settings.key_save_delay);
        }
        db_iterate_end(it);
    }
    return sink_flush(sink);
}
