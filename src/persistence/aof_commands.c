/* aof_commands.c: writes keys as the commands that create them, for base files with aof-use-rdb-preamble no.
 *
 * A value with many elements takes several commands of at most CHUNK elements each, so that loading a command needs
 * little memory. Every piece is written directly to the sink. */
#include "formats/rdb.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "persistence/aof_private.h"
#include "persistence/persistence.h"
#include "resp/request.h"
#include "server/cluster_hooks.h"
#include "server/script_hooks.h"
#include "store/extension.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/set.h"
#include "store/stream_group.h"
#include "store/zset.h"
#include <errno.h>
#include <stdlib.h>

enum { CHUNK = 64 };

/* --- Writing --- */

static void write_argument_number(struct output *out, int64_t number) {
    char text[NUMBER_TEXT_MAX];
    request_write_argument(out, (struct slice){text, format_int64(text, number)});
}

static void write_argument_value(struct output *out, const struct listpack_value *value) {
    char text[LISTPACK_TEXT];
    request_write_argument(out, listpack_value_text(value, text));
}

static void write_argument_id(struct output *out, struct stream_id id) {
    char text[STREAM_ID_TEXT];
    request_write_argument(out, (struct slice){text, stream_id_format(text, id)});
}

static void command(struct output *out, const char *name, size_t arguments) {
    request_write_count(out, arguments + 1);
    request_write_argument(out, slice_of(name));
}

/* Starts a command before each CHUNK elements: writes its argument count, name and key. An element has `width`
 * arguments. */
static void chunk(struct output *out, const char *name, struct slice key, size_t done, size_t total, size_t width) {
    if (done % CHUNK) return;
    size_t count = total - done < CHUNK ? total - done : CHUNK;
    command(out, name, 1 + count * width);
    request_write_argument(out, key);
}

/* --- Types --- */

static void write_string(struct output *out, struct slice key, const struct entry *entry) {
    command(out, "SET", 2);
    request_write_argument(out, key);
    struct blob *blob = entry_blob(entry);
    char text[STRING_NUMBER_TEXT];
    if (blob)
        request_write_blob(out, blob);
    else
        request_write_argument(out, entry_string(entry, text));
}

static void write_list(struct output *out, struct slice key, const struct entry *entry) {
    size_t total = list_type_len(entry), done = 0;
    struct list_type_iterator it;
    struct list_type_element element;
    list_type_iterate(&it, entry, 0, false);
    for (; !out->failed && list_type_next(&it, &element); done++) {
        chunk(out, "RPUSH", key, done, total, 1);
        write_argument_value(out, &element.value);
    }
    list_type_iterate_end(&it);
}

static void write_set(struct output *out, struct slice key, const struct entry *entry) {
    struct set set = set_of(entry);
    size_t total = set_len(&set), done = 0;
    struct set_iterator it;
    struct listpack_value member;
    set_iterate(&it, &set);
    for (; !out->failed && set_next(&it, &member); done++) {
        chunk(out, "SADD", key, done, total, 1);
        write_argument_value(out, &member);
    }
    set_iterate_end(&it);
}

static void write_zset(struct output *out, struct slice key, const struct entry *entry) {
    struct zset zset = zset_of(entry);
    size_t total = zset_len(&zset), done = 0;
    struct zset_iterator it;
    struct zset_item item;
    zset_iterate(&it, &zset, 0, false);
    for (; !out->failed && zset_next(&it, &item); done++) {
        char text[40];
        chunk(out, "ZADD", key, done, total, 2);
        request_write_argument(out, (struct slice){text, format_double(text, item.score)});
        write_argument_value(out, &item.member);
    }
}

static void bulk_field_value(struct output *out, const struct hash_value *value) {
    if (value->blob)
        request_write_blob(out, value->blob);
    else
        request_write_argument(out, value->bytes);
}

/* First pass: fields with an expiration time, each in a command of its own. Second pass: the others, which the first
 * pass has counted. */
static void write_hash(struct output *out, struct slice key, const struct entry *entry) {
    size_t total = 0, done = 0;
    struct hash_iterator it;
    struct hash_item item;
    hash_iterate_all(&it, entry);
    while (!out->failed && hash_next(&it, &item)) {
        if (item.expire_at == HASH_NEVER) {
            total++;
            continue;
        }
        command(out, "HSETEX", 7);
        request_write_argument(out, key);
        request_write_argument(out, SLICE("PXAT"));
        write_argument_number(out, item.expire_at);
        request_write_argument(out, SLICE("FIELDS"));
        request_write_argument(out, SLICE("1"));
        request_write_argument(out, item.field);
        bulk_field_value(out, &item.value);
    }
    hash_iterate_end(&it);
    if (!total) return;
    hash_iterate_all(&it, entry);
    while (!out->failed && hash_next(&it, &item)) {
        if (item.expire_at != HASH_NEVER) continue;
        chunk(out, "HMSET", key, done++, total, 2);
        request_write_argument(out, item.field);
        bulk_field_value(out, &item.value);
    }
    hash_iterate_end(&it);
}

/* --- Streams --- */

/* XCLAIM drops pending entries that are not in the stream. So those whose entries were deleted or trimmed are claimed
 * from substitutes, which are removed when all groups are complete. */
struct substitutes {
    struct stream_id *ids; /* ascending, without duplicates */
    size_t count, capacity;
    size_t below; /* number of them that precede the first entry */
};

static int compare_ids(const void *a, const void *b) {
    return stream_id_compare(*(const struct stream_id *)a, *(const struct stream_id *)b);
}

static void substitutes_add(struct substitutes *substitutes, const struct stream *stream,
                            const struct stream_group *group) {
    struct stream_pending_iterator it;
    stream_pending_iterate(&it, group->pending, STREAM_ID_MIN);
    while (stream_pending_next(&it)) {
        /* XSETID may have set the last id below a pending entry. XADD could not be followed by the same XSETID. */
        if (stream_contains(stream, it.id) || stream_id_compare(it.id, stream->last_id) > 0) continue;
        mem_grow(substitutes->ids, substitutes->count, substitutes->capacity, CHUNK);
        substitutes->ids[substitutes->count++] = it.id;
    }
    stream_pending_iterate_end(&it);
}

static struct substitutes substitutes_of(const struct stream *stream) {
    struct substitutes all = {.ids = NULL};
    if (!stream->groups) return all;
    struct radix_iterator it;
    radix_iterator_init(&it, stream->groups);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more; more = radix_iterator_next(&it))
        substitutes_add(&all, stream, it.value);
    radix_iterator_free(&it);
    if (all.count) qsort(all.ids, all.count, sizeof *all.ids, compare_ids);
    size_t unique = 0;
    for (size_t i = 0; i < all.count; i++)
        if (!i || !stream_id_equal(all.ids[i], all.ids[i - 1])) all.ids[unique++] = all.ids[i];
    all.count = unique;
    while (all.below < all.count && (!stream->length || stream_id_compare(all.ids[all.below], stream->first_id) < 0))
        all.below++;
    return all;
}

static void write_substitute(struct output *out, struct slice key, struct stream_id id) {
    command(out, "XADD", 4);
    request_write_argument(out, key);
    write_argument_id(out, id);
    request_write_argument(out, SLICE("x"));
    request_write_argument(out, SLICE("y"));
}

/* Those before the first entry are trimmed: XDEL would change the greatest deleted id, which XSETID cannot set to 0-0
 * again. */
static void remove_substitutes(struct output *out, struct slice key, const struct stream *stream,
                               const struct substitutes *substitutes) {
    size_t deleted = substitutes->count - substitutes->below;
    if (substitutes->below) {
        command(out, "XTRIM", 3);
        request_write_argument(out, key);
        request_write_argument(out, stream->length ? SLICE("MINID") : SLICE("MAXLEN"));
        if (stream->length)
            write_argument_id(out, stream->first_id);
        else
            request_write_argument(out, SLICE("0"));
    }
    for (size_t i = 0; i < deleted && !out->failed; i++) {
        chunk(out, "XDEL", key, i, deleted, 1);
        write_argument_id(out, substitutes->ids[substitutes->below + i]);
    }
}

static void write_entries(struct output *out, struct slice key, const struct stream *stream,
                          const struct substitutes *substitutes) {
    struct stream_iterator it;
    struct stream_id id;
    size_t fields, at = 0;
    stream_iterate(&it, stream, STREAM_ID_MIN, STREAM_ID_MAX, false);
    while (!out->failed && stream_next(&it, &id, &fields)) {
        for (; at < substitutes->count && stream_id_compare(substitutes->ids[at], id) < 0; at++)
            write_substitute(out, key, substitutes->ids[at]);
        command(out, "XADD", 2 + 2 * fields);
        request_write_argument(out, key);
        write_argument_id(out, id);
        while (fields--) {
            struct slice field, value;
            stream_field(&it, &field, &value);
            request_write_argument(out, field);
            request_write_argument(out, value);
        }
    }
    stream_iterate_end(&it);
    for (; at < substitutes->count && !out->failed; at++) write_substitute(out, key, substitutes->ids[at]);
}

/* Creates a stream without entries: MAXLEN 0 removes the added entry immediately. */
static void write_empty(struct output *out, struct slice key, const struct stream *stream) {
    struct stream_id id = stream_id_is_zero(stream->last_id) ? (struct stream_id){0, 1} : stream->last_id;
    command(out, "XADD", 6);
    request_write_argument(out, key);
    request_write_argument(out, SLICE("MAXLEN"));
    request_write_argument(out, SLICE("0"));
    write_argument_id(out, id);
    request_write_argument(out, SLICE("x"));
    request_write_argument(out, SLICE("y"));
}

static void write_pending(struct output *out, struct slice key, struct slice group,
                          const struct stream_consumer *consumer) {
    struct stream_pending_iterator it;
    stream_pending_iterate(&it, consumer->pending, STREAM_ID_MIN);
    for (struct stream_pending *pending; !out->failed && (pending = stream_pending_next(&it));) {
        command(out, "XCLAIM", 11);
        request_write_argument(out, key);
        request_write_argument(out, group);
        request_write_argument(out, stream_consumer_name(consumer));
        request_write_argument(out, SLICE("0"));
        write_argument_id(out, it.id);
        request_write_argument(out, SLICE("TIME"));
        write_argument_number(out, pending->delivered_ms);
        request_write_argument(out, SLICE("RETRYCOUNT"));
        write_argument_number(out, (int64_t)pending->deliveries);
        request_write_argument(out, SLICE("JUSTID"));
        request_write_argument(out, SLICE("FORCE"));
    }
    stream_pending_iterate_end(&it);
}

static void write_group(struct output *out, struct slice key, struct slice name, const struct stream_group *group) {
    command(out, "XGROUP", 6);
    request_write_argument(out, SLICE("CREATE"));
    request_write_argument(out, key);
    request_write_argument(out, name);
    write_argument_id(out, group->last_id);
    request_write_argument(out, SLICE("ENTRIESREAD"));
    write_argument_number(out, group->entries_read);
    struct radix_iterator it;
    radix_iterator_init(&it, group->consumers);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more && !out->failed;
         more = radix_iterator_next(&it)) {
        const struct stream_consumer *consumer = it.value;
        command(out, "XGROUP", 4);
        request_write_argument(out, SLICE("CREATECONSUMER"));
        request_write_argument(out, key);
        request_write_argument(out, name);
        request_write_argument(out, stream_consumer_name(consumer));
        write_pending(out, key, name, consumer);
    }
    radix_iterator_free(&it);
}

static void write_groups(struct output *out, struct slice key, const struct stream *stream) {
    if (!stream->groups) return;
    struct radix_iterator it;
    radix_iterator_init(&it, stream->groups);
    for (bool more = radix_iterator_seek(&it, RADIX_FIRST, SLICE("")); more && !out->failed;
         more = radix_iterator_next(&it))
        write_group(out, key, it.key, it.value);
    radix_iterator_free(&it);
}

static void write_stream(struct output *out, struct slice key, const struct entry *entry) {
    const struct stream *stream = stream_of(entry);
    struct substitutes substitutes = substitutes_of(stream);
    if (stream->length || substitutes.count)
        write_entries(out, key, stream, &substitutes);
    else
        write_empty(out, key, stream);
    write_groups(out, key, stream);
    remove_substitutes(out, key, stream, &substitutes);
    mem_free(substitutes.ids);
    command(out, "XSETID", 6);
    request_write_argument(out, key);
    write_argument_id(out, stream->last_id);
    request_write_argument(out, SLICE("ENTRIESADDED"));
    write_argument_number(out, (int64_t)stream->entries_added);
    request_write_argument(out, SLICE("MAXDELETEDID"));
    write_argument_id(out, stream->max_deleted_id);
}

/* --- Databases --- */

static void (*const writers[VALUE_TYPES])(struct output *out, struct slice key, const struct entry *entry) = {
    [TYPE_STRING] = write_string, [TYPE_LIST] = write_list, [TYPE_SET] = write_set,
    [TYPE_ZSET] = write_zset,     [TYPE_HASH] = write_hash, [TYPE_STREAM] = write_stream};

static void write_restore(struct output *out, struct slice key, const struct entry *entry, int db) {
    struct memory_output payload;
    memory_output_init(&payload);
    dump_write(&payload.out, entry, db);
    command(out, "RESTORE", 3);
    request_write_argument(out, key);
    request_write_argument(out, SLICE("0"));
    request_write_argument(out, memory_output_slice(&payload));
    memory_output_free(&payload);
}

/* Modules add entries without fields; XADD does not. */
static bool has_bare_entry(const struct stream *stream) {
    struct stream_iterator it;
    struct stream_id id;
    size_t fields = 1;
    stream_iterate(&it, stream, STREAM_ID_MIN, STREAM_ID_MAX, false);
    while (fields && stream_next(&it, &id, &fields)) {
    }
    stream_iterate_end(&it);
    return !fields;
}

/* A type without commands is restored from its payload. */
static bool write_extension(struct output *out, struct slice key, const struct entry *entry, int db) {
    const struct extension_value *structure = extension_of(entry);
    struct extension_place place = {db, key};
    if (structure->type->methods->write_commands)
        return structure->type->methods->write_commands(structure->type, &place, structure->value, out);
    write_restore(out, key, entry, db);
    return true;
}

bool aof_write_entry(struct output *out, const struct entry *entry, int db) {
    struct slice key = entry_key(entry);
    if (entry_type(entry) == TYPE_EXTENSION) {
        if (!write_extension(out, key, entry, db)) return false;
    } else if (entry_type(entry) == TYPE_STREAM && has_bare_entry(stream_of(entry))) {
        write_restore(out, key, entry, db);
    } else {
        writers[entry_type(entry)](out, key, entry);
    }
    int64_t at = entry_expire_at(entry);
    if (at < 0) return true;
    command(out, "PEXPIREAT", 2);
    request_write_argument(out, key);
    write_argument_number(out, at);
    return true;
}

void aof_entries_begin(struct aof_entries *entries, struct output *out) {
    const struct slice *libraries;
    *entries = (struct aof_entries){.out = out, .db = -1};
    if (aof_settings.timestamps) aof_write_timestamp(out, clock_ms() / 1000);
    size_t count = script_hooks ? script_hooks->libraries(&libraries) : 0;
    for (size_t i = 0; i < count; i++) {
        command(out, "FUNCTION", 2);
        request_write_argument(out, SLICE("LOAD"));
        request_write_argument(out, libraries[i]);
    }
    if (cluster_hooks) cluster_hooks->write_commands(out);
}

void aof_entries_place(struct aof_entries *entries, int db) {
    if (db != entries->db) {
        command(entries->out, "SELECT", 1);
        write_argument_number(entries->out, db);
    }
    entries->db = db;
}

int aof_entries_add(struct aof_entries *entries, int db, const struct entry *entry) {
    aof_entries_place(entries, db);
    return aof_write_entry(entries->out, entry, db) ? 0 : -EINVAL;
}

struct aof_text_writer {
    struct sink *sink;
    struct aof_entries entries;
    int error; /* a module could not write a key */
};

/* The visible keys, or those of a slot. */
static void write_keys(struct aof_text_writer *writer, struct db *db, int slot) {
    struct db_iterator *it = db_iterate(db, slot);
    for (struct entry *entry; !writer->error && !sink_error(writer->sink) && (entry = db_iterate_next(it));) {
        writer->error = aof_entries_add(&writer->entries, db_id(db), entry);
        if (persistence_settings.key_save_delay) persistence_delay(persistence_settings.key_save_delay);
    }
    db_iterate_end(it);
}

int aof_commands_write(struct sink *sink, struct keyspace *keyspace) {
    struct aof_text_writer writer = {.sink = sink};
    aof_entries_begin(&writer.entries, &sink->out);
    for (int id = 0; id < keyspace_databases(keyspace); id++) {
        struct db *db = keyspace_db(keyspace, id);
        write_keys(&writer, db, -1);
        for (unsigned slot = 0; db_hidden_size(db).keys && slot < HASH_SLOTS; slot++)
            if (keyspace_slot_is_hidden(slot)) write_keys(&writer, db, (int)slot);
    }
    return writer.error ? writer.error : sink_flush(sink);
}
