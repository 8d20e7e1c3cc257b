#include "copied_entries.h"
#include "unit.h"
#include <string.h>

#include "formats/rdb.h"
#include "formats/rdb_file.h"
#include "lib/hash/sha1.h"
#include "lib/system/memory.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/set.h"
#include "store/types.h"
#include "store/zset.h"

struct slice copied_key(const void *entry) {
    const struct copied *copied = entry;
    return (struct slice){copied->bytes, copied->key_len};
}
const struct hashtable_type copies_type = {.key = copied_key, .free_entry = mem_free};

/* Members of tables have no order that lasts: they count as a sum. */
static uint64_t item_sum(struct slice first, struct slice second, int64_t at) {
    unsigned char hash[SHA1_SIZE];
    static char bytes[128 * 1024];
    size_t len = first.len + second.len + sizeof at;
    assert_true(len <= sizeof bytes);
    if (first.len) memcpy(bytes, first.data, first.len);
    if (second.len) memcpy(bytes + first.len, second.data, second.len);
    memcpy(bytes + first.len + second.len, &at, sizeof at);
    sha1_digest((struct slice){bytes, len}, hash);
    uint64_t sum;
    memcpy(&sum, hash, sizeof sum);
    return sum;
}
static void sum_member(void *context, const struct listpack_value *member) {
    char text[LISTPACK_TEXT];
    *(uint64_t *)context += item_sum(listpack_value_text(member, text), SLICE(""), 0);
}
static void write_sum(struct output *out, const struct entry *entry, uint64_t sum) {
    uint64_t head[4] = {entry_type(entry), (uint64_t)entry_expire_at(entry), sum, 0};
    output_write(out, slice_make(head, sizeof head));
}
void copied_write_value(struct output *out, const struct entry *entry) {
    uint64_t sum = 0;
    if (entry_type(entry) == TYPE_SET) {
        struct set set = set_of(entry);
        struct set_iterator it;
        struct listpack_value member;
        set_iterate(&it, &set);
        while (set_next(&it, &member)) sum_member(&sum, &member);
        set_iterate_end(&it);
        write_sum(out, entry, sum);
    } else if (entry_type(entry) == TYPE_HASH) {
        struct hash_iterator it;
        struct hash_item item;
        hash_iterate_all(&it, entry); /* fields that have expired are there until they are deleted */
        while (hash_next(&it, &item)) sum += item_sum(item.field, item.value.bytes, item.expire_at);
        hash_iterate_end(&it);
        write_sum(out, entry, sum);
    } else if (entry_type(entry) == TYPE_ZSET) {
        struct zset zset = zset_of(entry);
        struct zset_iterator it;
        struct zset_item item;
        char text[LISTPACK_TEXT];
        zset_iterate(&it, &zset, 0, false);
        while (zset_next(&it, &item))
            sum += item_sum(listpack_value_text(&item.member, text), slice_make(&item.score, sizeof item.score), 0);
        write_sum(out, entry, sum);
    } else if (entry_type(entry) == TYPE_LIST) {
        struct list_type_iterator it;
        struct list_type_element element;
        char text[LISTPACK_TEXT];
        write_sum(out, entry, list_type_len(entry));
        list_type_iterate(&it, entry, 0, false);
        while (list_type_next(&it, &element)) {
            unsigned char hash[SHA1_SIZE];
            sha1_digest(listpack_value_text(&element.value, text), hash);
            output_write(out, slice_make(hash, sizeof hash));
        }
        list_type_iterate_end(&it);
    } else {
        rdb_write_key(out, entry, 0, RDB_ACCESS_NONE, RDB_VERSION);
    }
}
/* Tables of the same members may have them in another order. */
void copied_write_exactly(struct output *out, const struct entry *entry) {
    enum value_encoding encoding = entry_encoding(entry);
    if ((entry_type(entry) == TYPE_SET && encoding == ENCODING_HASHTABLE) ||
        (entry_type(entry) == TYPE_HASH && encoding != ENCODING_LISTPACK))
        copied_write_value(out, entry);
    else
        rdb_write_key(out, entry, 0, RDB_ACCESS_NONE, RDB_VERSION);
}

struct copied *copied_new(int db, const struct entry *entry,
                          void (*write)(struct output *out, const struct entry *entry)) {
    struct memory_output bytes;
    memory_output_init(&bytes);
    char number = (char)db;
    output_write(&bytes.out, (struct slice){&number, 1});
    output_write(&bytes.out, entry_key(entry));
    write(&bytes.out, entry);
    struct slice all = memory_output_slice(&bytes);
    struct copied *copied = mem_alloc(sizeof *copied + all.len);
    *copied = (struct copied){.key_len = 1 + entry_key(entry).len, .len = all.len};
    memcpy(copied->bytes, all.data, all.len);
    memory_output_free(&bytes);
    return copied;
}
bool copied_same(const struct copied *a, const struct copied *b) {
    return a->len == b->len && !memcmp(a->bytes, b->bytes, a->len);
}
