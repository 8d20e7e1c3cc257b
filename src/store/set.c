/* set.c: see set.h. */
#include "store/set.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "store/types_private.h"

enum { LONG_MEMBER = 255, WORD = 8, INTSET_MAX = 1 << 30, NUMBER_DIGITS = 20 };

/* --- Members of the table --- */

static inline struct slice member_text(const void *entry) {
    const char *p = entry;
    size_t len = (uint8_t)p[0];
    if (__builtin_expect(len != LONG_MEMBER, 1)) return (struct slice){p + 1, len};
    memcpy(&len, p + 1, WORD);
    return (struct slice){p + 1 + WORD, len};
}
static void *member_make(struct slice text) {
    size_t head = text.len < LONG_MEMBER ? 1 : 1 + WORD;
    char *p = mem_alloc(head + text.len);
    p[0] = (char)(text.len < LONG_MEMBER ? text.len : LONG_MEMBER);
    if (head > 1) memcpy(p + 1, &text.len, WORD);
    if (text.len) memcpy(p + head, text.data, text.len);
    return p;
}
static const struct hashtable_type table_type = {.key = member_text, .free_entry = mem_free};
static const struct hashtable_type sample_type = {.key = member_text};

static inline struct listpack_value member_value(const void *entry) {
    return listpack_text_value(member_text(entry));
}

/* --- Creation and destruction --- */

static inline bool is_number(struct slice text, int64_t *number) {
    return text.len <= NUMBER_DIGITS && parse_int64(text, number);
}
static uint64_t intset_limit(void) {
    uint64_t limit = (uint64_t)encoding_limits.set_intset_entries;
    return limit < INTSET_MAX ? limit : INTSET_MAX;
}

struct set set_new_as(enum value_encoding encoding) {
    return (struct set){encoding, encoding == ENCODING_INTSET     ? (void *)intset_new()
                                  : encoding == ENCODING_LISTPACK ? (void *)listpack_new(0)
                                                                  : (void *)hashtable_new(&table_type)};
}
struct set set_new(struct slice first, size_t expected) {
    int64_t number;
    if (expected <= intset_limit() && is_number(first, &number)) return set_new_as(ENCODING_INTSET);
    if (expected <= (uint64_t)encoding_limits.set_listpack_entries) return set_new_as(ENCODING_LISTPACK);
    struct set set = set_new_as(ENCODING_HASHTABLE);
    hashtable_expand(set.value, expected);
    return set;
}
static void structure_free(void *value, enum value_encoding encoding) {
    if (encoding == ENCODING_INTSET)
        intset_free(value);
    else if (encoding == ENCODING_LISTPACK)
        listpack_free(value);
    else
        hashtable_free(value);
}
void set_free(struct set *set) {
    structure_free(set->value, set->encoding);
    set->value = NULL;
}
void set_keep(struct db *db, struct entry *entry, const struct set *set) {
    /* A converted structure may have the address of the former one. */
    if (entry_value(entry) != set->value || entry_encoding(entry) != set->encoding)
        db_set_value(db, entry, set->encoding, set->value);
}

/* --- Conversion --- */

static void convert(struct set *set, enum value_encoding encoding, size_t expected) {
    struct set to = set_new_as(encoding);
    size_t len = set_len(set);
    if (encoding == ENCODING_HASHTABLE) hashtable_expand(to.value, expected > len ? expected : len);
    struct set_iterator it;
    struct listpack_value member;
    char text[LISTPACK_TEXT];
    bool added = true;
    set_iterate(&it, set);
    while (set_next(&it, &member)) {
        if (encoding == ENCODING_HASHTABLE)
            added = hashtable_add(to.value, member_make(listpack_value_text(&member, text)));
        else if (encoding == ENCODING_LISTPACK)
            to.value = listpack_append_many(to.value, &member, 1);
        else if (!member.data || is_number((struct slice){member.data, member.len}, &member.number))
            to.value = intset_add(to.value, member.number, &added);
        must(added); /* members differ */
    }
    set_iterate_end(&it);
    must_equal(set_len(&to), len);
    set_free(set);
    *set = to;
}

void set_expect(struct set *set, size_t more) {
    if ((set->encoding == ENCODING_LISTPACK && more > (uint64_t)encoding_limits.set_listpack_entries) ||
        (set->encoding == ENCODING_INTSET && more > intset_limit()))
        convert(set, ENCODING_HASHTABLE, more);
}

static bool only_integers(const struct set *set) {
    struct set_iterator it;
    struct listpack_value member;
    bool all = true;
    set_iterate(&it, set);
    while (all && set_next(&it, &member)) {
        if (!member.data) continue;
        all = is_number((struct slice){member.data, member.len}, &member.number);
    }
    set_iterate_end(&it);
    return all;
}
void set_compact(struct set *set) {
    if (set->encoding == ENCODING_INTSET) return;
    if (set_len(set) <= intset_limit() && only_integers(set))
        convert(set, ENCODING_INTSET, 0);
    else if (set->encoding == ENCODING_LISTPACK)
        set->value = listpack_shrink(set->value);
}

/* --- Lookup --- */

size_t set_len(const struct set *set) {
    return set->encoding == ENCODING_INTSET     ? intset_count(set->value)
           : set->encoding == ENCODING_LISTPACK ? listpack_count(set->value)
                                                : hashtable_size(set->value);
}

static inline uint8_t *packed_find(const struct set *set, struct slice member) {
    return listpack_find(set->value, listpack_first(set->value), member, 0);
}
bool set_has(const struct set *set, struct slice member) {
    int64_t number;
    if (set->encoding == ENCODING_INTSET) return is_number(member, &number) && intset_has(set->value, number);
    if (set->encoding == ENCODING_LISTPACK) return packed_find(set, member);
    return hashtable_find(set->value, member);
}
bool set_has_value(const struct set *set, const struct listpack_value *member) {
    if (!member->data && set->encoding == ENCODING_INTSET) return intset_has(set->value, member->number);
    char text[LISTPACK_TEXT];
    return set_has(set, listpack_value_text(member, text));
}

/* --- Changes --- */

static bool packed_allowed(const uint8_t *lp, struct slice member) {
    return listpack_count(lp) < (uint64_t)encoding_limits.set_listpack_entries &&
           member.len <= (uint64_t)encoding_limits.set_listpack_value &&
           listpack_has_space(lp, listpack_size_of(member));
}

/* True: a listpack can hold these integers and one more member. */
static bool intset_packs(const uint8_t *set, struct slice member) {
    size_t count = intset_count(set), widest = 0;
    char text[NUMBER_TEXT_MAX];
    if (count) {
        size_t lowest = format_int64(text, intset_min(set)), highest = format_int64(text, intset_max(set));
        widest = lowest > highest ? lowest : highest;
    }
    uint64_t longest = (uint64_t)encoding_limits.set_listpack_value;
    return count < (uint64_t)encoding_limits.set_listpack_entries && member.len <= longest && widest <= longest &&
           listpack_has_space(NULL, count * 10 + listpack_size_of(member));
}

static bool intset_add_number(struct set *set, int64_t number) {
    bool added;
    set->value = intset_add(set->value, number, &added);
    if (added && intset_count(set->value) > intset_limit()) convert(set, ENCODING_HASHTABLE, 0);
    return added;
}
static bool table_add(struct set *set, struct slice member) {
    struct hashtable_position position;
    if (hashtable_find_or_prepare(set->value, member, &position)) return false;
    hashtable_add_at(set->value, &position, member_make(member));
    return true;
}

static bool set_type_add(struct set *set, struct slice member, bool new) {
    int64_t number;
    if (set->encoding == ENCODING_INTSET) {
        if (is_number(member, &number)) return intset_add_number(set, number);
        convert(set, intset_packs(set->value, member) ? ENCODING_LISTPACK : ENCODING_HASHTABLE, 0);
    }
    if (set->encoding == ENCODING_LISTPACK) {
        if (!new &&packed_find(set, member)) return false;
        if (packed_allowed(set->value, member)) {
            set->value = listpack_append(set->value, member);
            return true;
        }
        convert(set, ENCODING_HASHTABLE, 0);
    }
    return table_add(set, member);
}
static bool add_value(struct set *set, const struct listpack_value *member, bool new) {
    if (!member->data && set->encoding == ENCODING_INTSET) return intset_add_number(set, member->number);
    char text[LISTPACK_TEXT];
    return set_type_add(set, listpack_value_text(member, text), new);
}
bool set_add(struct set *set, struct slice member) {
    return set_type_add(set, member, false);
}
bool set_add_value(struct set *set, const struct listpack_value *member) {
    return add_value(set, member, false);
}
void set_add_new(struct set *set, const struct listpack_value *member) {
    add_value(set, member, true);
}

bool set_remove(struct set *set, struct slice member) {
    if (set->encoding == ENCODING_INTSET) {
        int64_t number;
        bool removed = false;
        if (is_number(member, &number)) set->value = intset_remove(set->value, number, &removed);
        return removed;
    }
    if (set->encoding == ENCODING_LISTPACK) {
        uint8_t *p = packed_find(set, member);
        if (!p) return false;
        set->value = listpack_delete(set->value, &p, 1);
        return true;
    }
    return hashtable_delete(set->value, member);
}

/* --- Iteration --- */

void set_iterate(struct set_iterator *it, const struct set *set) {
    it->set = set;
    it->index = 0;
    if (set->encoding == ENCODING_LISTPACK)
        it->at = listpack_first(set->value);
    else if (set->encoding == ENCODING_HASHTABLE)
        hashtable_iterator_open(&it->table, set->value);
}
bool set_next(struct set_iterator *it, struct listpack_value *member) {
    const struct set *set = it->set;
    if (set->encoding == ENCODING_INTSET) {
        if (it->index == intset_count(set->value)) return false;
        *member = listpack_number_value(intset_at(set->value, it->index++));
    } else if (set->encoding == ENCODING_LISTPACK) {
        if (!it->at) return false;
        *member = listpack_get(it->at);
        it->at = listpack_next(set->value, it->at);
    } else {
        const void *entry = hashtable_iterator_next(&it->table);
        if (!entry) return false;
        *member = member_value(entry);
    }
    return true;
}
void set_iterate_end(struct set_iterator *it) {
    if (it->set->encoding == ENCODING_HASHTABLE) hashtable_iterator_close(&it->table);
}

struct set_visitor {
    set_visitor *visit;
    void *context;
};
static void visit_member(void *context, void *entry) {
    const struct set_visitor *visitor = context;
    struct listpack_value member = member_value(entry);
    visitor->visit(visitor->context, &member);
}
uint64_t set_scan(const struct set *set, uint64_t cursor, set_visitor *visit, void *context) {
    if (set->encoding == ENCODING_HASHTABLE)
        return hashtable_scan(set->value, cursor, visit_member, &(struct set_visitor){visit, context});
    struct set_iterator it;
    struct listpack_value member;
    set_iterate(&it, set);
    while (set_next(&it, &member)) visit(context, &member);
    return 0;
}

/* --- Random members --- */

void set_random(const struct set *set, struct listpack_value *member) {
    must(set_len(set) > 0);
    if (set->encoding == ENCODING_INTSET)
        *member = listpack_number_value(intset_random(set->value));
    else if (set->encoding == ENCODING_LISTPACK)
        *member = listpack_get(listpack_seek(set->value, (int64_t)random_below(listpack_count(set->value))));
    else
        *member = member_value(hashtable_random(set->value));
}

void set_sample(const struct set *set, size_t count, set_visitor *visit, void *context) {
    if (set->encoding == ENCODING_HASHTABLE) {
        table_sample(set->value, &sample_type, count, visit_member, &(struct set_visitor){visit, context});
        return;
    }
    struct set_iterator it;
    struct listpack_value member;
    size_t left = set_len(set);
    set_iterate(&it, set);
    for (; count && set_next(&it, &member); left--) {
        if (random_below(left) >= count) continue;
        visit(context, &member);
        count--;
    }
    must_equal(count, (size_t)0); /* a reply has announced that many */
}

static void set_type_collect(void *context, void *entry) {
    void ***next = context;
    *(*next)++ = entry;
}
static void table_pop(struct set *set, size_t count, set_visitor *visit, void *context) {
    void **chosen = mem_alloc(count * sizeof *chosen), **next = chosen;
    table_sample(set->value, &sample_type, count, set_type_collect, &next);
    for (size_t i = 0; i < count; i++) {
        struct listpack_value member = member_value(chosen[i]);
        visit(context, &member);
        hashtable_delete(set->value, member_text(chosen[i]));
    }
    mem_free(chosen);
}
void set_pop(struct set *set, size_t count, set_visitor *visit, void *context) {
    if (set->encoding == ENCODING_HASHTABLE) {
        table_pop(set, count, visit, context);
    } else if (set->encoding == ENCODING_LISTPACK) {
        uint8_t *p = listpack_first(set->value);
        size_t index = 0, total = listpack_count(set->value);
        for (; count && (p = listpack_next_random(set->value, p, &index, total, count, 1)); count--) {
            struct listpack_value member = listpack_get(p);
            visit(context, &member);
            set->value = listpack_delete(set->value, &p, 1);
        }
    } else {
        for (; count; count--) {
            struct listpack_value member = listpack_number_value(intset_random(set->value));
            bool removed;
            visit(context, &member);
            set->value = intset_remove(set->value, member.number, &removed);
            must(removed);
        }
    }
}

/* --- For the keyspace --- */

struct hashtable *set_table(const struct entry *entry) {
    return entry_encoding(entry) == ENCODING_HASHTABLE ? entry_value(entry) : NULL;
}
static size_t structure_free_effort(const void *value, enum value_encoding encoding) {
    return encoding == ENCODING_HASHTABLE ? hashtable_size(value) : 1;
}
static void *structure_copy(const void *value, enum value_encoding encoding) {
    if (encoding == ENCODING_INTSET) return intset_copy(value);
    if (encoding == ENCODING_LISTPACK) return listpack_copy(value);
    struct hashtable *copy = hashtable_new(&table_type);
    struct hashtable_iterator it;
    hashtable_expand(copy, hashtable_size(value));
    hashtable_iterator_open(&it, (struct hashtable *)value);
    for (const void *member; (member = hashtable_iterator_next(&it));)
        hashtable_add(copy, member_make(member_text(member)));
    hashtable_iterator_close(&it);
    return copy;
}
static size_t structure_memory(const void *value, enum value_encoding encoding, size_t samples) {
    if (encoding != ENCODING_HASHTABLE) return mem_size(value);
    return table_memory((struct hashtable *)value, samples, mem_size);
}

static void member_relocate(void *context, void **ref) {
    relocate_block(context, ref);
}
static uint64_t structure_relocate(void **value, enum value_encoding encoding, uint64_t cursor, struct relocation *r) {
    if (encoding == ENCODING_HASHTABLE) return table_relocate(*value, cursor, r, member_relocate, r);
    relocate_block(r, value);
    return 0;
}
const struct value_ops set_ops = {structure_free, structure_free_effort, structure_copy, structure_memory,
                                  structure_relocate};
