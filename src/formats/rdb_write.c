/* rdb_write.c: writes values; see rdb.h.
 *
 * A value is written while it is iterated over, without a copy, whatever its size. Listpacks, intsets and the nodes of
 * lists and streams are written as they are in memory. An output that has failed ends what may take long. */
#include "formats/rdb.h"
#include "formats/rdb_opcodes.h"
#include "formats/rdb_stream.h"
#include "lib/structures/intset.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/set.h"
#include "store/zset.h"
#include <endian.h>

enum rdb_type rdb_value_type(const struct entry *entry, int version) {
    bool old = version < RDB_VERSION_COMMON;
    enum value_encoding encoding = entry_encoding(entry);
    bool packed = encoding == ENCODING_LISTPACK;
    switch (entry_type(entry)) {
    case TYPE_LIST: return RDB_LIST_QUICKLIST_2;
    case TYPE_HASH:
        return packed ? RDB_HASH_LISTPACK : encoding == ENCODING_EXPIRING_HASHTABLE ? RDB_HASH_EXPIRING : RDB_HASH;
    case TYPE_SET:
        return packed ? (old ? RDB_SET : RDB_SET_LISTPACK) : encoding == ENCODING_INTSET ? RDB_SET_INTSET : RDB_SET;
    case TYPE_ZSET: return packed ? RDB_ZSET_LISTPACK : RDB_ZSET_2;
    case TYPE_STREAM: return old ? RDB_STREAM_2 : RDB_STREAM_3;
    case TYPE_EXTENSION: return RDB_MODULE_2;
    default: return RDB_STRING;
    }
}
int rdb_value_version(const struct entry *entry) {
    return entry_encoding(entry) == ENCODING_EXPIRING_HASHTABLE ? RDB_VERSION : RDB_VERSION_COMMON;
}

static void write_string(struct output *out, const struct entry *entry) {
    char text[STRING_NUMBER_TEXT];
    int64_t number;
    struct blob *blob = entry_blob(entry);
    if (blob)
        rdb_write_blob(out, blob);
    else if (entry_encoding(entry) == ENCODING_INT && entry_string_int64(entry, &number))
        rdb_write_int64(out, number);
    else
        rdb_write_string(out, entry_string(entry, text));
}

static void write_listpack(struct output *out, const uint8_t *lp) {
    rdb_write_string(out, slice_make(lp, listpack_bytes(lp)));
}

static void write_node(void *context, const struct list_node_view *node) {
    enum { NODE_PLAIN = 1, NODE_PACKED = 2 };
    struct output *out = context;
    if (out->failed) return;
    rdb_write_length(out, node->blob ? NODE_PLAIN : NODE_PACKED);
    if (node->blob)
        rdb_write_blob(out, node->blob);
    else if (node->unpacked)
        rdb_write_compressed(out, node->bytes, node->unpacked);
    else
        rdb_write_string(out, node->bytes);
}

/* Expired fields are written as well: the server that reads them deletes them. */
static void write_hash(struct output *out, const struct entry *entry, bool times) {
    struct hash_iterator it;
    struct hash_item item;
    rdb_write_length(out, hash_len(entry));
    hash_iterate_all(&it, entry);
    while (!out->failed && hash_next(&it, &item)) {
        rdb_write_string(out, item.field);
        if (item.value.blob)
            rdb_write_blob(out, item.value.blob);
        else
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
    while (!out->failed && set_next(&it, &member)) rdb_write_string(out, listpack_value_text(&member, text));
    set_iterate_end(&it);
}

/* Highest score first, so that a reader inserts each member at the front, without a search. */
static void write_zset(struct output *out, const struct entry *entry) {
    struct zset zset = zset_of(entry);
    struct zset_iterator it;
    struct zset_item item;
    char text[LISTPACK_TEXT];
    rdb_write_length(out, zset_len(&zset));
    zset_iterate(&it, &zset, zset_len(&zset) - 1, true);
    while (!out->failed && zset_next(&it, &item)) {
        uint64_t bits;
        memcpy(&bits, &item.score, sizeof bits);
        bits = htole64(bits);
        rdb_write_string(out, listpack_value_text(&item.member, text));
        output_write(out, slice_make(&bits, sizeof bits));
    }
}

static void write_extension(struct output *out, const struct entry *entry, int db) {
    const struct extension_value *structure = extension_of(entry);
    struct extension_place place = {db, entry_key(entry)};
    rdb_write_length(out, structure->type->id);
    structure->type->methods->write(structure->type, &place, structure->value, out);
    rdb_write_length(out, RDB_ITEM_END);
}

void rdb_write_extension_aux(struct output *out, uint64_t id, bool after_keys) {
    enum { BEFORE = 1, AFTER = 2 };
    output_reserve(out, 1)[0] = (char)RDB_OPCODE_MODULE_AUX;
    output_commit(out, 1);
    rdb_write_length(out, id);
    rdb_write_length(out, RDB_ITEM_UNSIGNED);
    rdb_write_length(out, after_keys ? AFTER : BEFORE);
}

void rdb_write_value(struct output *out, const struct entry *entry, int db, enum rdb_type type) {
    switch (type) {
    case RDB_STRING: write_string(out, entry); break;
    case RDB_LIST_QUICKLIST_2:
        rdb_write_length(out, list_type_nodes(entry));
        list_type_each_node(entry, write_node, out);
        break;
    case RDB_HASH: write_hash(out, entry, false); break;
    case RDB_HASH_EXPIRING: write_hash(out, entry, true); break;
    case RDB_SET_INTSET: rdb_write_string(out, slice_make(entry_value(entry), intset_bytes(entry_value(entry)))); break;
    case RDB_SET: write_set(out, entry); break;
    case RDB_ZSET_2: write_zset(out, entry); break;
    case RDB_MODULE_2: write_extension(out, entry, db); break;
    case RDB_STREAM_2: rdb_write_stream(out, stream_of(entry), false); break;
    case RDB_STREAM_3: rdb_write_stream(out, stream_of(entry), true); break;
    default: write_listpack(out, entry_value(entry));
    }
}
