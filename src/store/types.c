/* types.c: see types.h and types_private.h. */
#include "store/types.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include "store/types_private.h"

struct encoding_limits encoding_limits = {
    .hash_listpack_entries = 512,
    .hash_listpack_value = 64,
    .set_intset_entries = 512,
    .set_listpack_entries = 128,
    .set_listpack_value = 64,
    .zset_listpack_entries = 128,
    .zset_listpack_value = 64,
    .list_listpack_size = -2,
    .stream_node_bytes = 4096,
    .stream_node_entries = 100,
};

void store_types_register(void) {
    value_ops_register(TYPE_HASH, &hash_ops);
    value_ops_register(TYPE_SET, &set_ops);
    value_ops_register(TYPE_LIST, &list_ops);
    value_ops_register(TYPE_ZSET, &zset_ops);
    value_ops_register(TYPE_STREAM, &stream_ops);
    value_ops_register(TYPE_EXTENSION, &extension_ops);
}

void table_sample(struct hashtable *table, const struct hashtable_type *plain, size_t count,
                  void (*visit)(void *context, void *entry), void *context) {
    enum { WALK_ABOVE = 3 }; /* iterate if more than one entry in 3 is wanted */
    size_t left = hashtable_size(table);
    must_within(count, left); /* otherwise the draw would never end */
    if (count > left / WALK_ABOVE) {
        struct hashtable_iterator it;
        hashtable_iterator_open(&it, table);
        for (void *entry; count && (entry = hashtable_iterator_next(&it)); left--)
            if (random_below(left) < count) {
                visit(context, entry);
                count--;
            }
        hashtable_iterator_close(&it);
        return;
    }
    struct hashtable *chosen = hashtable_new(plain);
    while (count) {
        void *entry = hashtable_random(table);
        if (!hashtable_add(chosen, entry)) continue;
        visit(context, entry);
        count--;
    }
    hashtable_free(chosen);
}

size_t table_memory(struct hashtable *table, size_t samples, size_t (*entry_bytes)(const void *entry)) {
    size_t count = hashtable_size(table), measured = 0, bytes = 0;
    struct hashtable_iterator it;
    hashtable_iterator_open(&it, table);
    for (const void *entry; measured < samples && (entry = hashtable_iterator_next(&it)); measured++)
        bytes += entry_bytes(entry);
    hashtable_iterator_close(&it);
    if (measured && measured < count) bytes = (size_t)((double)bytes / (double)measured * (double)count);
    return hashtable_memory(table) + bytes;
}

uint64_t table_relocate(struct hashtable *table, uint64_t cursor, struct relocation *r,
                        void (*visit)(void *context, void **ref), void *context) {
    uint64_t begin = r->moved + r->stayed;
    do cursor = hashtable_scan_refs(table, cursor, visit, context);
    while (cursor && r->moved + r->stayed - begin < r->limit);
    return cursor;
}
