/* type_debug.c: what DEBUG DIGEST and DEBUG HTSTATS-KEY show of the types; the digests are described in server/debug.h. */
#include "commands/commands.h"
#include "server/debug.h"
#include "lib/number.h"
#include "store/hash.h"
#include "store/sequence.h"
#include "store/set.h"
#include "store/stream.h"
#include "store/zset.h"

static void hash_digest(const struct entry *entry, struct digest *digest) {
    struct hash_iterator it;
    struct hash_item item;
    hash_iterate_all(&it, entry);
    while (hash_next(&it, &item)) {
        struct digest pair = {{0}};
        digest_mix(&pair, item.field);
        digest_mix(&pair, item.value.bytes);
        if (item.expire_at >= 0) digest_xor(&pair, SLICE("!!hexpire!!"));
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
    struct sequence_iterator it;
    struct sequence_element element;
    char text[LISTPACK_TEXT];
    sequence_iterate(&it, entry, 0, false);
    while (sequence_next(&it, &element)) digest_mix(digest, listpack_value_text(&element.value, text));
    sequence_iterate_end(&it);
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

void type_debug_register(void) {
    static const struct debug_value_ops hash = {hash_digest, hash_table};
    static const struct debug_value_ops set = {set_digest, set_table};
    static const struct debug_value_ops list = {list_digest, NULL};
    debug_register_value(TYPE_LIST, &list);
    static const struct debug_value_ops zset = {zset_digest, zset_table};
    debug_register_value(TYPE_ZSET, &zset);
    static const struct debug_value_ops stream = {stream_digest, NULL};
    debug_register_value(TYPE_STREAM, &stream);
    debug_register_value(TYPE_HASH, &hash);
    debug_register_value(TYPE_SET, &set);
}
