/* rdb_value.c: values as rdb.h writes them down.
 *
 * Reading goes through the functions by which commands change values, so limits of encodings hold for what is read, and
 * members that come twice are noticed: they are damage. Packed forms are looked through before a byte of them is
 * believed. */
#include "lib/intset.h"
#include "lib/listpack.h"
#include "lib/memory.h"
#include "lib/number.h"
#include "persist/rdb_legacy.h"
#include "persist/rdb_stream.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/set.h"
#include "store/zset.h"
#include <endian.h>
#include <math.h>

enum { NODE_BYTES = 8 * 1024 };
/* Of a list's nodes. Older lists are of ziplists only, and do not say so. */
enum node_kind { NODE_PLAIN = 1, NODE_PACKED = 2, NODE_ZIPLIST };

/* Writing */

static void write_type(struct output *out, enum rdb_type type) {
    output_reserve(out, 1)[0] = (char)type;
    output_commit(out, 1);
}

static void write_packed(struct output *out, const struct entry *entry) {
    const uint8_t *lp = entry_value(entry);
    rdb_write_string(out, slice_make(lp, listpack_bytes(lp)));
}

static void write_node(struct memory_output *nodes, uint8_t *lp) {
    rdb_write_length(&nodes->out, NODE_PACKED);
    rdb_write_string(&nodes->out, slice_make(lp, listpack_bytes(lp)));
}

/* Elements are packed into nodes of a size of our own: whoever reads them packs them anew. */
static void write_list(struct output *out, const struct entry *entry) {
    struct memory_output nodes;
    struct list_type_iterator it;
    struct sequence_element element;
    uint64_t count = 0;
    uint8_t *lp = listpack_new(NODE_BYTES);
    memory_output_init(&nodes);
    list_type_iterate(&it, entry, 0, false);
    while (list_type_next(&it, &element)) {
        struct slice text = {element.value.data, element.value.len};
        bool alone = element.blob || text.len > NODE_BYTES;
        size_t size = alone                ? 0
                      : element.value.data ? listpack_size_of(text)
                                           : listpack_size_of_number(element.value.number);
        if (listpack_count(lp) && (alone || listpack_bytes(lp) + size > NODE_BYTES)) {
            write_node(&nodes, lp);
            count++;
            listpack_free(lp);
            lp = listpack_new(NODE_BYTES);
        }
        if (alone) {
            rdb_write_length(&nodes.out, NODE_PLAIN);
            rdb_write_string(&nodes.out, element.blob ? blob_slice(element.blob) : text);
            count++;
        } else {
            lp = element.value.data ? listpack_append(lp, text) : listpack_append_number(lp, element.value.number);
        }
    }
    list_type_iterate_end(&it);
    if (listpack_count(lp)) {
        write_node(&nodes, lp);
        count++;
    }
    listpack_free(lp);
    rdb_write_length(out, count);
    output_write(out, memory_output_slice(&nodes));
    memory_output_free(&nodes);
}

/* Fields that have expired are written, too: who reads them deletes them as we would have. */
static void write_hash(struct output *out, const struct entry *entry, bool times) {
    struct hash_iterator it;
    struct hash_item item;
    rdb_write_length(out, hash_len(entry));
    hash_iterate_all(&it, entry);
    while (hash_next(&it, &item)) {
        rdb_write_string(out, item.field);
        rdb_write_string(out, item.value.bytes);
        if (times) rdb_write_time(out, item.expire_at);
    }
    hash_iterate_end(&it);
}

static void write_set(struct output *out, const struct entry *entry) {
    struct set set = set_of(entry);
    struct set_iterator it;
    struct listpack_value member;
    char text[LISTPACK_TEXT];
    rdb_write_length(out, set_len(&set));
    set_iterate(&it, &set);
    while (set_next(&it, &member)) rdb_write_string(out, listpack_value_text(&member, text));
    set_iterate_end(&it);
}

/* Highest first: whoever adds them one by one finds their place at the beginning. */
static void write_zset(struct output *out, const struct entry *entry) {
    struct zset zset = zset_of(entry);
    struct zset_iterator it;
    struct zset_item item;
    char text[LISTPACK_TEXT];
    rdb_write_length(out, zset_len(&zset));
    zset_iterate(&it, &zset, zset_len(&zset) - 1, true);
    while (zset_next(&it, &item)) {
        uint64_t bits;
        memcpy(&bits, &item.score, sizeof bits);
        bits = htole64(bits);
        rdb_write_string(out, listpack_value_text(&item.member, text));
        output_write(out, slice_make(&bits, sizeof bits));
    }
}

static bool is_expiring(const struct entry *entry) {
    return entry_encoding(entry) == ENCODING_EXPIRING_HASHTABLE;
}

int rdb_value_version(const struct entry *entry) {
    return is_expiring(entry) ? RDB_VERSION : RDB_VERSION_COMMON;
}

void rdb_write_value(struct output *out, const struct entry *entry) {
    bool packed = entry_encoding(entry) == ENCODING_LISTPACK, timed = is_expiring(entry);
    char text[STRING_NUMBER_TEXT];
    switch (entry_type(entry)) {
    case TYPE_STRING:
        write_type(out, RDB_STRING);
        rdb_write_string(out, entry_string(entry, text));
        break;
    case TYPE_LIST:
        write_type(out, RDB_LIST_QUICKLIST_2);
        write_list(out, entry);
        break;
    case TYPE_HASH:
        write_type(out, packed ? RDB_HASH_LISTPACK : timed ? RDB_HASH_EXPIRING : RDB_HASH);
        if (packed)
            write_packed(out, entry);
        else
            write_hash(out, entry, timed);
        break;
    case TYPE_SET:
        if (entry_encoding(entry) == ENCODING_INTSET) {
            const uint8_t *set = entry_value(entry);
            write_type(out, RDB_SET_INTSET);
            rdb_write_string(out, slice_make(set, intset_bytes(set)));
        } else {
            write_type(out, packed ? RDB_SET_LISTPACK : RDB_SET);
            if (packed)
                write_packed(out, entry);
            else
                write_set(out, entry);
        }
        break;
    case TYPE_ZSET:
        write_type(out, packed ? RDB_ZSET_LISTPACK : RDB_ZSET_2);
        if (packed)
            write_packed(out, entry);
        else
            write_zset(out, entry);
        break;
    case TYPE_STREAM:
        write_type(out, RDB_STREAM_3);
        rdb_write_stream(out, stream_of(entry));
        break;
    default: break;
    }
}

/* Reading */

/* What becomes of a value while it is read. */
struct reading {
    struct rdb_reader *in;
    struct db *db;
    struct slice key;
    struct entry *entry; /* NULL: nothing is made yet */
};

static void push_all(struct reading *reading, const uint8_t *lp) {
    char text[LISTPACK_TEXT];
    list_type_expect(reading->db, reading->entry, listpack_count(lp), listpack_bytes(lp));
    for (uint8_t *at = listpack_first(lp); at; at = listpack_next(lp, at))
        list_type_push(reading->db, reading->entry, LIST_TYPE_TAIL, listpack_text(at, text), NULL);
}

/* Nodes without elements are skipped; a list of nothing else is damaged. */
static void read_list_node(struct reading *reading, uint64_t kind, struct slice node) {
    const uint8_t *lp = (const uint8_t *)node.data;
    uint8_t *converted = NULL;
    if (kind == NODE_ZIPLIST)
        lp = converted = ziplist_to_listpack(node);
    else if (kind == NODE_PACKED && !listpack_validate(lp, node.len, true, NULL, NULL))
        lp = NULL;
    if (!lp || kind < NODE_PLAIN) reading->in->failed = true;
    if (reading->in->failed || (kind != NODE_PLAIN && listpack_count(lp) == 0)) {
        listpack_free(converted);
        return;
    }
    if (!reading->entry) reading->entry = list_type_create(reading->db, reading->key);
    if (kind != NODE_PLAIN) {
        push_all(reading, lp);
    } else {
        list_type_expect(reading->db, reading->entry, 1, node.len);
        list_type_push(reading->db, reading->entry, LIST_TYPE_TAIL, node, NULL);
    }
    listpack_free(converted);
}

static void read_list(struct reading *reading, enum rdb_type type) {
    struct rdb_reader *in = reading->in;
    uint64_t count = type == RDB_LIST_ZIPLIST ? 1 : rdb_read_length(in);
    for (uint64_t i = 0; i < count && !in->failed; i++) {
        uint64_t kind = type == RDB_LIST ? NODE_PLAIN : NODE_ZIPLIST;
        if (type == RDB_LIST_QUICKLIST_2 && (kind = rdb_read_length(in)) > NODE_PACKED) in->failed = true;
        char *made;
        struct slice text = rdb_read_string(in, &made);
        if (!in->failed) read_list_node(reading, kind, text);
        mem_free(made);
    }
    if (!reading->entry) in->failed = true;
}

static void add_field(struct reading *reading, struct slice field, struct slice value, int64_t expire_at) {
    if (!hash_put_until(reading->db, reading->entry, field, value, NULL, expire_at)) reading->in->failed = true;
}

static void read_hash(struct reading *reading, bool times) {
    struct rdb_reader *in = reading->in;
    uint64_t count = rdb_read_length(in);
    if (count == 0 || count > (uint64_t)(in->end - in->at)) in->failed = true;
    if (in->failed) return;
    reading->entry = hash_create(reading->db, reading->key);
    hash_expect(reading->db, reading->entry, count);
    for (uint64_t i = 0; i < count && !in->failed; i++) {
        char *made_field, *made_value;
        struct slice field = rdb_read_string(in, &made_field), value = rdb_read_string(in, &made_value);
        int64_t expire_at = times ? rdb_read_time(in) : HASH_NEVER;
        if (expire_at < HASH_NEVER) in->failed = true;
        if (!in->failed) add_field(reading, field, value, expire_at);
        mem_free(made_field);
        mem_free(made_value);
    }
}

static void read_hash_listpack(struct reading *reading, const uint8_t *lp) {
    char field_text[LISTPACK_TEXT], value_text[LISTPACK_TEXT];
    reading->entry = hash_create(reading->db, reading->key);
    hash_expect(reading->db, reading->entry, listpack_count(lp) / 2);
    for (uint8_t *field = listpack_first(lp), *value; field && !reading->in->failed; field = listpack_next(lp, value)) {
        value = listpack_next(lp, field);
        add_field(reading, listpack_text(field, field_text), listpack_text(value, value_text), HASH_NEVER);
    }
}

static void add_member(struct reading *reading, struct set *set, struct slice member) {
    if (!set_add(set, member)) reading->in->failed = true;
}

static void add_set(struct reading *reading, struct set *set) {
    if (reading->in->failed)
        set_free(set);
    else
        reading->entry = db_add_value(reading->db, reading->key, TYPE_SET, set->encoding, set->value);
}

static void read_set(struct reading *reading) {
    struct rdb_reader *in = reading->in;
    uint64_t count = rdb_read_length(in);
    if (count == 0 || count > (uint64_t)(in->end - in->at)) in->failed = true;
    struct set set = {0};
    for (uint64_t i = 0; i < count && !in->failed; i++) {
        char *made;
        struct slice member = rdb_read_string(in, &made);
        if (!in->failed && !set.value) set = set_new(member, count);
        if (!in->failed) add_member(reading, &set, member);
        mem_free(made);
    }
    if (set.value) add_set(reading, &set);
}

static void read_set_listpack(struct reading *reading, const uint8_t *lp) {
    char text[LISTPACK_TEXT];
    struct set set = set_new_as(ENCODING_LISTPACK);
    set_expect(&set, listpack_count(lp));
    for (uint8_t *at = listpack_first(lp); at && !reading->in->failed; at = listpack_next(lp, at))
        add_member(reading, &set, listpack_text(at, text));
    add_set(reading, &set);
}

static void read_set_intset(struct reading *reading, struct slice bytes) {
    if (!intset_validate((const uint8_t *)bytes.data, bytes.len, true)) {
        reading->in->failed = true;
        return;
    }
    struct set set = set_new_as(ENCODING_INTSET);
    set_expect(&set, intset_count((const uint8_t *)bytes.data));
    for (size_t i = 0, count = intset_count((const uint8_t *)bytes.data); i < count; i++) {
        struct listpack_value member = listpack_number_value(intset_at((const uint8_t *)bytes.data, i));
        set_add_value(&set, &member);
    }
    add_set(reading, &set);
}

static void add_scored(struct reading *reading, struct zset *zset, struct slice member, double score) {
    double now;
    if (isnan(score) || zset_put(zset, score, member, ZSET_NX, &now) != ZSET_ADDED) reading->in->failed = true;
}

static void add_zset(struct reading *reading, struct zset *zset) {
    if (reading->in->failed)
        zset_free(zset);
    else
        reading->entry = db_add_value(reading->db, reading->key, TYPE_ZSET, zset->encoding, zset->value);
}

static void read_zset(struct reading *reading, double (*read_score)(struct rdb_reader *in)) {
    struct rdb_reader *in = reading->in;
    uint64_t count = rdb_read_length(in);
    if (count == 0 || count > (uint64_t)(in->end - in->at)) in->failed = true;
    if (in->failed) return;
    struct zset zset = zset_new(count, 0);
    for (uint64_t i = 0; i < count && !in->failed; i++) {
        char *made;
        struct slice member = rdb_read_string(in, &made);
        double score = read_score(in);
        if (!in->failed) add_scored(reading, &zset, member, score);
        mem_free(made);
    }
    add_zset(reading, &zset);
}

static void read_zset_listpack(struct reading *reading, const uint8_t *lp) {
    char member_text[LISTPACK_TEXT], score_text[LISTPACK_TEXT];
    struct zset zset = zset_new(listpack_count(lp) / 2, 0);
    for (uint8_t *member = listpack_first(lp), *value; member && !reading->in->failed;
         member = listpack_next(lp, value)) {
        double score;
        value = listpack_next(lp, member);
        if (parse_double(listpack_text(value, score_text), &score))
            add_scored(reading, &zset, listpack_text(member, member_text), score);
        else
            reading->in->failed = true;
    }
    add_zset(reading, &zset);
}

static void read_listpack(struct reading *reading, enum rdb_type type, const uint8_t *lp) {
    if (listpack_count(lp) == 0 || (type != RDB_SET_LISTPACK && listpack_count(lp) % 2))
        reading->in->failed = true;
    else if (type == RDB_HASH_LISTPACK)
        read_hash_listpack(reading, lp);
    else if (type == RDB_ZSET_LISTPACK)
        read_zset_listpack(reading, lp);
    else
        read_set_listpack(reading, lp);
}

/* A whole value in a string, in a form of today. */
static void read_packed(struct reading *reading, enum rdb_type type) {
    char *made;
    struct slice bytes = rdb_read_string(reading->in, &made);
    const uint8_t *lp = (const uint8_t *)bytes.data;
    if (reading->in->failed) {
    } else if (type == RDB_SET_INTSET) {
        read_set_intset(reading, bytes);
    } else if (!listpack_validate(lp, bytes.len, true, NULL, NULL)) {
        reading->in->failed = true;
    } else {
        read_listpack(reading, type, lp);
    }
    mem_free(made);
}
/* In an older form, which becomes one of `type`. */
static void read_converted(struct reading *reading, enum rdb_type type, uint8_t *(*to_listpack)(struct slice bytes)) {
    char *made;
    struct slice bytes = rdb_read_string(reading->in, &made);
    uint8_t *lp = reading->in->failed ? NULL : to_listpack(bytes);
    if (lp)
        read_listpack(reading, type, lp);
    else
        reading->in->failed = true;
    listpack_free(lp);
    mem_free(made);
}

static void read_text(struct reading *reading) {
    char *made;
    struct slice text = rdb_read_string(reading->in, &made);
    if (!reading->in->failed) reading->entry = db_set_string(reading->db, reading->key, text, NULL, false);
    mem_free(made);
}

static void read_stream(struct reading *reading, uint8_t type) {
    struct stream *stream = rdb_read_stream(reading->in, type);
    if (stream) reading->entry = db_add_value(reading->db, reading->key, TYPE_STREAM, ENCODING_STREAM, stream);
}

struct entry *rdb_read_value(struct rdb_reader *in, struct db *db, struct slice key) {
    struct reading reading = {.in = in, .db = db, .key = key};
    if (in->failed || in->at == in->end) return NULL;
    uint8_t type = (uint8_t)*in->at++;
    switch (type) {
    case RDB_STRING: read_text(&reading); break;
    case RDB_LIST:
    case RDB_LIST_ZIPLIST:
    case RDB_LIST_QUICKLIST:
    case RDB_LIST_QUICKLIST_2: read_list(&reading, type); break;
    case RDB_HASH: read_hash(&reading, false); break;
    case RDB_HASH_EXPIRING: read_hash(&reading, true); break;
    case RDB_SET: read_set(&reading); break;
    case RDB_ZSET: read_zset(&reading, rdb_read_double_text); break;
    case RDB_ZSET_2: read_zset(&reading, rdb_read_double); break;
    case RDB_SET_INTSET:
    case RDB_SET_LISTPACK:
    case RDB_ZSET_LISTPACK:
    case RDB_HASH_LISTPACK: read_packed(&reading, type); break;
    case RDB_HASH_ZIPMAP: read_converted(&reading, RDB_HASH_LISTPACK, zipmap_to_listpack); break;
    case RDB_HASH_ZIPLIST: read_converted(&reading, RDB_HASH_LISTPACK, ziplist_to_listpack); break;
    case RDB_ZSET_ZIPLIST: read_converted(&reading, RDB_ZSET_LISTPACK, ziplist_to_listpack); break;
    case RDB_STREAM:
    case RDB_STREAM_2:
    case RDB_STREAM_3: read_stream(&reading, type); break;
    default: in->failed = true;
    }
    if (!in->failed) return reading.entry;
    if (reading.entry) db_delete(db, key, false);
    return NULL;
}
