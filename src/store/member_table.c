/* member_table.c: see member_table.h. Open addressing over member numbers: a slot is four bytes, so the slots are fast
 * to clear and stay in the cache. */
#include "store/member_table.h"
#include "lib/hash/siphash.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include <stdlib.h>

enum {
    CAPACITY_MIN = 16,
    SLOTS_PER_MEMBER = 2,
    NUMBER_DIGITS = 20,
    INDEX_LEN = 16,
    INDEX_QUESTIONS = 4 /* below this number of lookups a linear search is as fast */
};

static uint8_t seed[16];

static void seed_once(void) {
    static bool seeded;
    if (__atomic_load_n(&seeded, __ATOMIC_ACQUIRE)) return;
    random_bytes(seed, sizeof seed);
    __atomic_store_n(&seeded, true, __ATOMIC_RELEASE);
}

/* Returns a number if the member is a canonical integer, as text or as a number. */
static inline struct listpack_value canonical(const struct listpack_value *value) {
    int64_t number;
    if (value->data && value->len && value->len <= NUMBER_DIGITS && value->data[0] <= '9' &&
        parse_int64((struct slice){value->data, value->len}, &number))
        return listpack_number_value(number);
    return *value;
}
static inline uint64_t hash_of(const struct listpack_value *value) {
    return value->data ? siphash(value->data, value->len, seed) : siphash(&value->number, sizeof value->number, seed);
}
static inline bool same(const struct listpack_value *a, const struct listpack_value *b) {
    if (!a->data || !b->data) return a->data == b->data && a->number == b->number;
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

void member_table_init(struct member_table *table, size_t expected) {
    seed_once();
    if (expected < CAPACITY_MIN) expected = CAPACITY_MIN;
    *table = (struct member_table){.capacity = expected, .members = mem_alloc(expected * sizeof *table->members)};
}
void member_table_free(struct member_table *table) {
    mem_free(table->members);
    mem_free(table->slots);
}

static void slot_put(struct member_table *table, size_t index) {
    size_t at = table->members[index].hash & table->mask;
    must_less(index, table->mask); /* a slot is free: otherwise the search would never end */
    while (table->slots[at]) at = (at + 1) & table->mask;
    table->slots[at] = (uint32_t)index + 1;
}
/* Allocates slots for the capacity and adds the current members. */
static void slots_make(struct member_table *table) {
    bool hashed = table->slots;
    size_t wanted = table->capacity * SLOTS_PER_MEMBER;
    table->mask = ((size_t)1 << (64 - __builtin_clzll(wanted - 1))) - 1;
    mem_free(table->slots);
    table->slots = mem_calloc(table->mask + 1, sizeof *table->slots);
    for (size_t i = 0; i < table->count; i++) {
        struct member *member = &table->members[i];
        if (!hashed) {
            member->value = canonical(&member->value);
            member->hash = hash_of(&member->value);
        }
        slot_put(table, i);
    }
}

static struct member *member_append(struct member_table *table, const struct member *member) {
    if (table->count == table->capacity) {
        must(table->count <= UINT32_MAX / 4); /* half a terabyte of members */
        table->capacity *= 2;
        table->members = mem_realloc(table->members, table->capacity * sizeof *table->members);
        if (table->slots) slots_make(table);
    }
    table->members[table->count] = *member;
    return &table->members[table->count++];
}
void member_table_append(struct member_table *table, const struct listpack_value *value, double score) {
    struct member member = {.value = *value, .score = score};
    if (table->slots) {
        member.value = canonical(value);
        member.hash = hash_of(&member.value);
    }
    member_append(table, &member);
    if (table->slots) slot_put(table, table->count - 1);
}

static struct member *member_find(struct member_table *table, const struct listpack_value *value, uint64_t hash) {
    for (size_t at = hash & table->mask; table->slots[at]; at = (at + 1) & table->mask) {
        struct member *member = &table->members[table->slots[at] - 1];
        if (member->hash == hash && same(&member->value, value)) return member;
    }
    return NULL;
}
const struct member *member_table_find(struct member_table *table, const struct listpack_value *value) {
    struct listpack_value wanted = canonical(value);
    if (!table->slots) slots_make(table);
    return member_find(table, &wanted, hash_of(&wanted));
}
struct member *member_table_find_or_add(struct member_table *table, const struct listpack_value *value, double score,
                                        bool *added) {
    struct member member = {.value = canonical(value), .score = score};
    member.hash = hash_of(&member.value);
    if (!table->slots) slots_make(table);
    struct member *found = member_find(table, &member.value, member.hash);
    *added = !found;
    if (found) return found;
    found = member_append(table, &member);
    slot_put(table, table->count - 1);
    return found;
}

/* --- Order --- */

static int compare(const void *left, const void *right) {
    const struct member *a = left, *b = right;
    if (a->score != b->score) return a->score < b->score ? -1 : 1;
    char text[2][LISTPACK_TEXT];
    return slice_compare(listpack_value_text(&a->value, text[0]), listpack_value_text(&b->value, text[1]));
}
void member_table_sort(struct member_table *table) {
    mem_free(table->slots);
    table->slots = NULL;
    for (size_t i = 1; i < table->count; i++) {
        if (compare(&table->members[i - 1], &table->members[i]) <= 0) continue;
        qsort(table->members, table->count, sizeof *table->members, compare);
        return;
    }
}

/* --- Indices --- */

bool member_index_wanted(struct member_index *index, size_t len,
                         void (*fill)(const void *context, struct member_table *table), const void *context) {
    if (index->made) return true;
    if (len < INDEX_LEN || index->questions++ < INDEX_QUESTIONS) return false;
    member_table_init(&index->table, len);
    fill(context, &index->table);
    index->made = true;
    return true;
}
void member_index_free(struct member_index *index) {
    if (index->made) member_table_free(&index->table);
}
