/* type_debug.c: the type-specific parts of DEBUG DIGEST, HTSTATS-KEY and OBJECT (server/debug/debug.h describes the
 * digests), and LISTPACK, QUICKLIST and QUICKLIST-PACKED-THRESHOLD. */
#include "commands/commands.h"
#include "lib/text/number.h"
#include "server/debug/debug.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/set.h"
#include "store/stream.h"
#include "store/types.h"
#include "store/zset.h"
#include <stdio.h>

/* As in Valkey, the digest includes neither the expiry of fields nor expired fields. */
static void hash_digest(const struct entry *entry, struct digest *digest) {
    struct hash_iterator it;
    struct hash_item item;
    hash_iterate(&it, entry);
    while (hash_next(&it, &item)) {
        struct digest pair = {{0}};
        digest_mix(&pair, item.field);
        digest_mix(&pair, item.value.bytes);
        digest_xor(digest, slice_make(pair.bytes, sizeof pair.bytes));
    }
    hash_iterate_end(&it);
}

static void set_digest(const struct entry *entry, struct digest *digest) {
    struct set set = set_of(entry);
    struct set_iterator it;
    struct listpack_value member;
    char text[LISTPACK_TEXT];
    set_iterate(&it, &set);
    while (set_next(&it, &member)) digest_xor(digest, listpack_value_text(&member, text));
    set_iterate_end(&it);
}

static void list_digest(const struct entry *entry, struct digest *digest) {
    struct list_type_iterator it;
    struct list_type_element element;
    char text[LISTPACK_TEXT];
    list_type_iterate(&it, entry, 0, false);
    while (list_type_next(&it, &element)) digest_mix(digest, listpack_value_text(&element.value, text));
    list_type_iterate_end(&it);
}

static void zset_digest(const struct entry *entry, struct digest *digest) {
    struct zset zset = zset_of(entry);
    struct zset_iterator it;
    struct zset_item item;
    char text[LISTPACK_TEXT], score[40];
    zset_iterate(&it, &zset, 0, false);
    while (zset_next(&it, &item)) {
        struct digest pair = {{0}};
        digest_mix(&pair, listpack_value_text(&item.member, text));
        digest_mix(&pair, slice_make(score, format_double_digits(score, item.score)));
        digest_xor(digest, slice_make(pair.bytes, sizeof pair.bytes));
    }
}

static void stream_digest(const struct entry *entry, struct digest *digest) {
    struct stream_iterator it;
    struct stream_id id;
    size_t fields;
    char text[STREAM_ID_TEXT];
    stream_iterate(&it, stream_of(entry), STREAM_ID_MIN, STREAM_ID_MAX, false);
    while (stream_next(&it, &id, &fields)) {
        size_t len = stream_id_format(text, id);
        *(char *)memchr(text, '-', len) = '.';
        digest_mix(digest, slice_make(text, len));
        for (struct slice field, value; fields--;) {
            stream_field(&it, &field, &value);
            digest_mix(digest, field);
            digest_mix(digest, value);
        }
    }
    stream_iterate_end(&it);
}

/* --- OBJECT, LISTPACK, QUICKLIST --- */

static void list_describe(const struct entry *entry, bool fast, char *text, size_t size) {
    struct quicklist_stats nodes;
    list_type_describe(entry, &nodes);
    if (!nodes.count) return;
    size_t len = (size_t)snprintf(text, size, " ql_nodes:%zu ql_avg_node:%.2f ql_listpack_max:%d ql_compressed:%d",
                                  nodes.count, (double)list_type_len(entry) / (double)nodes.count,
                                  encoding_limits.list_listpack_size, encoding_limits.list_compress_depth != 0);
    if (!fast) snprintf(text + len, size - len, " ql_uncompressed_size:%zu", nodes.bytes);
}

/* Finds a value with an encoding; false: missing or another encoding; replied with the error. */
static bool find_encoded(struct call *call, enum value_encoding encoding, struct entry **entry) {
    *entry = db_find(call->db, call->argv[2], LOOKUP_NOTOUCH | LOOKUP_NOSTATS);
    if (!*entry)
        reply_no_such_key(call->reply);
    else if (entry_encoding(*entry) != encoding)
        reply_error_format(call->reply, "ERR Not a %s encoded object.", value_encoding_name(encoding));
    else
        return true;
    return false;
}
static void print_element(size_t index, const struct listpack_value *value) {
    if (value->data)
        printf("  %zu: %zu bytes: %.*s\n", index, value->len, value->len < 100 ? (int)value->len : 100, value->data);
    else
        printf("  %zu: integer %lld\n", index, (long long)value->number);
}
static void run_listpack(struct call *call) {
    struct entry *entry;
    if (!find_encoded(call, ENCODING_LISTPACK, &entry)) return;
    const uint8_t *lp = entry_value(entry);
    size_t index = 0;
    printf("listpack of %zu bytes, %zu elements\n", listpack_bytes(lp), listpack_count(lp));
    for (uint8_t *at = listpack_first(lp); at; at = listpack_next(lp, at), index++) {
        struct listpack_value value = listpack_get(at);
        print_element(index, &value);
    }
    fflush(stdout);
    reply_status(call->reply, "Listpack structure printed on stdout");
}
static void run_quicklist(struct call *call) {
    struct entry *entry;
    struct quicklist_stats nodes;
    if (!find_encoded(call, ENCODING_QUICKLIST, &entry)) return;
    list_type_describe(entry, &nodes);
    printf("quicklist of %zu nodes, %zu of them compressed, %zu large elements; %zu elements, %zu bytes\n", nodes.count,
           nodes.packed, nodes.large, list_type_len(entry), nodes.bytes);
    if (call->argc == 4 && slice_is(call->argv[3], "1")) {
        struct list_type_iterator it;
        struct list_type_element element;
        list_type_iterate(&it, entry, 0, false);
        for (size_t index = 0; list_type_next(&it, &element); index++) {
            if (element.blob) element.value = listpack_text_value(blob_slice(element.blob));
            print_element(index, &element.value);
        }
        list_type_iterate_end(&it);
    }
    fflush(stdout);
    reply_status(call->reply, "Quicklist structure printed on stdout");
}
static const uint64_t packed_threshold_max = (UINT64_C(1) << 32) - (1 << 20);
static void run_packed_threshold(struct call *call) {
    uint64_t bytes;
    if (!parse_memory(call->argv[2], &bytes) || bytes > packed_threshold_max) {
        reply_error(call->reply, "ERR argument must be a memory value bigger than 1 and smaller than 4gb");
        return;
    }
    encoding_limits.list_large_min =
        bytes < LISTPACK_BYTES_MAX / 2 ? bytes : LISTPACK_BYTES_MAX / 2; /* the maximum size of a node */
    reply_ok(call->reply);
}

const struct debug_subcommand type_debug_subcommands[] = {
    {"listpack", 1, 1, run_listpack,
     WORDS("LISTPACK <key>", "    Show low level info about the listpack encoding of <key>.")},
    {"quicklist", 1, 2, run_quicklist,
     WORDS("QUICKLIST <key> [<0|1>]", "    Show low level info about the quicklist encoding of <key>.",
           "    The optional argument (0 by default) sets the level of detail")},
    {"quicklist-packed-threshold", 1, 1, run_packed_threshold,
     WORDS("QUICKLIST-PACKED-THRESHOLD <size>",
           "    Sets the threshold for elements to be inserted as plain vs packed nodes",
           "    Default value is 1GB, allows values up to 4GB. Setting to 0 restores to default.")},
    {NULL, 0, 0, NULL, NULL}};

void type_debug_register(void) {
    static const struct debug_value_ops list = {list_digest, NULL, list_describe}, set = {set_digest, set_table, NULL},
                                        zset = {zset_digest, zset_table, NULL}, hash = {hash_digest, hash_table, NULL},
                                        stream = {stream_digest, NULL, NULL};
    debug_register_value(TYPE_LIST, &list);
    debug_register_value(TYPE_SET, &set);
    debug_register_value(TYPE_ZSET, &zset);
    debug_register_value(TYPE_HASH, &hash);
    debug_register_value(TYPE_STREAM, &stream);
}
