/* zset.c: see zset.h. */
#include "store/zset.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "store/types_private.h"
#include <math.h>

enum { SCORE_TEXT = 40, TYPICAL_PAIR = 24 /* estimated bytes of a member and its score */ };

/* The structure of ENCODING_SKIPLIST. The list owns the nodes. */
struct indexed {
    struct skiplist *list;
    struct hashtable *members;
};

static struct slice node_key(const void *entry) {
    return skiplist_text(entry);
}
static const struct hashtable_type members_type = {.key = node_key};

static inline bool packed(const struct zset *z) {
    return z->encoding == ENCODING_LISTPACK;
}
static inline const struct indexed *indexed(const struct zset *z) {
    return z->value;
}

/* --- Elements of a listpack --- */

/* The form of a score in a listpack: an integer if possible, otherwise text. */
static struct listpack_value score_value(double score, char text[static SCORE_TEXT]) {
    const double limit = (double)(INT64_MAX / 2);
    if (score >= -limit && score <= limit && (double)(int64_t)score == score)
        return listpack_number_value((int64_t)score);
    return (struct listpack_value){text, format_double(text, score), 0};
}
static double score_at(const uint8_t *element) {
    int64_t number;
    if (listpack_number(element, &number)) return (double)number;
    char text[LISTPACK_TEXT];
    double score = 0;
    bool valid = parse_double(listpack_text(element, text), &score);
    must(valid); /* score_value() wrote it, or formats/ has checked it */
    return score;
}
static inline int compare_at(const uint8_t *element, struct slice text) {
    char buffer[LISTPACK_TEXT];
    return slice_compare(listpack_text(element, buffer), text);
}

/* The position of a member with that score; NULL: at the end. */
static uint8_t *packed_position(const uint8_t *lp, double score, struct slice member) {
    for (uint8_t *p = listpack_first(lp), *s; p; p = listpack_next(lp, s)) {
        s = listpack_next(lp, p);
        double other = score_at(s);
        if (other > score || (other == score && compare_at(p, member) > 0)) return p;
    }
    return NULL;
}
static void packed_insert(struct zset *z, double score, struct slice member) {
    char text[SCORE_TEXT];
    struct listpack_value pair[2] = {listpack_text_value(member), score_value(score, text)};
    uint8_t *at = packed_position(z->value, score, member);
    z->value = listpack_insert_many(z->value, &at, pair, 2);
}
static uint8_t *packed_find(const struct zset *z, struct slice member) {
    return listpack_find(z->value, listpack_first(z->value), member, 1);
}

/* --- Creation and encodings --- */

static void *indexed_new(size_t expected) {
    struct indexed *i = mem_alloc(sizeof *i);
    *i = (struct indexed){skiplist_new(), hashtable_new(&members_type)};
    hashtable_expand(i->members, expected);
    return i;
}
static bool packed_suits(size_t count, size_t longest) {
    return count <= (uint64_t)encoding_limits.zset_listpack_entries &&
           longest <= (uint64_t)encoding_limits.zset_listpack_value;
}
struct zset zset_new(size_t expected, size_t longest) {
    if (packed_suits(expected, longest) && encoding_limits.zset_listpack_entries)
        return (struct zset){ENCODING_LISTPACK, listpack_new(0)};
    return (struct zset){ENCODING_SKIPLIST, indexed_new(expected)};
}
static void structure_free(void *value, enum value_encoding encoding) {
    if (encoding == ENCODING_LISTPACK) {
        listpack_free(value);
        return;
    }
    struct indexed *i = value;
    hashtable_free(i->members);
    skiplist_free(i->list);
    mem_free(i);
}
void zset_free(struct zset *z) {
    structure_free(z->value, z->encoding);
    z->value = NULL;
}
void zset_keep(struct db *db, struct entry *entry, const struct zset *z) {
    /* A converted structure may have the address of the former one. */
    if (entry_value(entry) != z->value || entry_encoding(entry) != z->encoding)
        db_set_value(db, entry, z->encoding, z->value);
}

static void indexed_check(const struct indexed *i) {
    must_equal(hashtable_size(i->members), skiplist_len(i->list));
}
static void indexed_add(const struct indexed *i, double score, struct slice member) {
    bool added = hashtable_add(i->members, skiplist_insert(i->list, score, member));
    must(added);
    indexed_check(i);
}
static void convert_to_skiplist(struct zset *z, size_t expected) {
    size_t len = zset_len(z);
    struct indexed *to = indexed_new(expected > len ? expected : len);
    char text[LISTPACK_TEXT];
    const uint8_t *lp = z->value;
    for (const uint8_t *p = listpack_first(lp); p;) {
        const uint8_t *score = listpack_next(lp, p);
        indexed_add(to, score_at(score), listpack_text(p, text));
        p = listpack_next(lp, score);
    }
    zset_free(z);
    *z = (struct zset){ENCODING_SKIPLIST, to};
}
void zset_index(struct zset *z) {
    if (packed(z)) convert_to_skiplist(z, 0);
}
void zset_expect(struct zset *z, size_t expected, size_t longest) {
    if (packed(z) && !packed_suits(expected, longest)) convert_to_skiplist(z, expected);
}

static bool packed_holds(const struct member_table *sorted) {
    size_t longest = 0, bytes = 0;
    char text[LISTPACK_TEXT];
    if (!packed_suits(sorted->count, 0)) return false;
    for (size_t i = 0; i < sorted->count; i++) {
        size_t len = listpack_value_text(&sorted->members[i].value, text).len;
        if (len > longest) longest = len;
        bytes += len + SCORE_TEXT;
    }
    return packed_suits(sorted->count, longest) && listpack_has_space(NULL, bytes);
}
struct zset zset_of_members(const struct member_table *sorted) {
    char text[SCORE_TEXT];
    if (packed_holds(sorted)) {
        uint8_t *lp = listpack_new(LISTPACK_EMPTY_BYTES + sorted->count * TYPICAL_PAIR);
        for (size_t i = 0; i < sorted->count; i++) {
            struct listpack_value pair[2] = {sorted->members[i].value, score_value(sorted->members[i].score, text)};
            lp = listpack_append_many(lp, pair, 2);
        }
        return (struct zset){ENCODING_LISTPACK, listpack_shrink(lp)};
    }
    struct indexed *to = indexed_new(sorted->count);
    /* From the end: each member then belongs at the front, so no search is needed. */
    for (size_t i = sorted->count; i-- > 0;)
        indexed_add(to, sorted->members[i].score, listpack_value_text(&sorted->members[i].value, text));
    return (struct zset){ENCODING_SKIPLIST, to};
}

/* --- Lookup --- */

size_t zset_len(const struct zset *z) {
    return packed(z) ? listpack_count(z->value) / 2 : skiplist_len(indexed(z)->list);
}
bool zset_score(const struct zset *z, struct slice member, double *score) {
    if (packed(z)) {
        const uint8_t *p = packed_find(z, member);
        if (p) *score = score_at(listpack_next(z->value, p));
        return p;
    }
    const struct skiplist_node *node = hashtable_find(indexed(z)->members, member);
    if (node) *score = node->score;
    return node;
}
bool zset_rank(const struct zset *z, struct slice member, size_t *rank, double *score) {
    if (!packed(z)) {
        const struct skiplist_node *node = hashtable_find(indexed(z)->members, member);
        if (!node) return false;
        *rank = skiplist_rank(indexed(z)->list, node);
        *score = node->score;
        return true;
    }
    const uint8_t *lp = z->value, *p = packed_find(z, member);
    if (!p) return false;
    *score = score_at(listpack_next(lp, p));
    *rank = 0;
    for (const uint8_t *before = listpack_first(lp); before != p; ++*rank)
        before = listpack_next(lp, listpack_next(lp, before));
    return true;
}

/* --- Changes --- */

/* Decides how an existing member changes. */
static enum zset_result decide(double old, double *score, unsigned conditions) {
    if (conditions & ZSET_NX) return ZSET_NOTHING;
    if (conditions & ZSET_INCREMENT) {
        *score += old;
        if (isnan(*score)) return ZSET_NAN;
    }
    if (((conditions & ZSET_GT) && *score <= old) || ((conditions & ZSET_LT) && *score >= old)) return ZSET_NOTHING;
    return *score == old ? ZSET_SAME : ZSET_UPDATED;
}

static enum zset_result indexed_put(struct zset *z, double score, struct slice member, unsigned conditions,
                                    double *now) {
    const struct indexed *i = indexed(z);
    struct hashtable_position spot;
    void **slot = hashtable_find_or_prepare(i->members, member, &spot);
    if (!slot) {
        if (conditions & ZSET_XX) return ZSET_NOTHING;
        *now = score;
        hashtable_add_at(i->members, &spot, skiplist_insert(i->list, score, member));
        indexed_check(i);
        return ZSET_ADDED;
    }
    struct skiplist_node *node = *slot;
    enum zset_result result = decide(node->score, &score, conditions);
    if (result == ZSET_UPDATED) skiplist_rescore(i->list, node, score);
    *now = score;
    return result;
}

enum zset_result zset_put(struct zset *z, double score, struct slice member, unsigned conditions, double *now) {
    if (isnan(score)) return ZSET_NAN;
    if (!packed(z)) return indexed_put(z, score, member, conditions, now);
    uint8_t *p = packed_find(z, member);
    if (p) {
        enum zset_result result = decide(score_at(listpack_next(z->value, p)), &score, conditions);
        *now = score;
        if (result == ZSET_UPDATED) {
            z->value = listpack_delete(z->value, &p, 2);
            packed_insert(z, score, member);
        }
        return result;
    }
    if (conditions & ZSET_XX) return ZSET_NOTHING;
    if (!packed_suits(zset_len(z) + 1, member.len) || !listpack_has_space(z->value, member.len + SCORE_TEXT)) {
        convert_to_skiplist(z, 0);
        return indexed_put(z, score, member, conditions, now);
    }
    *now = score;
    packed_insert(z, score, member);
    return ZSET_ADDED;
}

bool zset_remove(struct zset *z, struct slice member) {
    if (packed(z)) {
        uint8_t *p = packed_find(z, member);
        if (!p) return false;
        z->value = listpack_delete(z->value, &p, 2);
        return true;
    }
    struct skiplist_node *node = hashtable_pop(indexed(z)->members, member);
    if (!node) return false;
    skiplist_take(indexed(z)->list, node);
    skiplist_node_free(node);
    indexed_check(indexed(z));
    return true;
}

static void forget_node(void *members, struct skiplist_node *node) {
    const struct skiplist_node *forgotten = hashtable_pop(members, skiplist_text(node));
    must(forgotten == node);
}
void zset_delete(struct zset *z, size_t first, size_t count) {
    if (packed(z))
        z->value = listpack_delete_range(z->value, (int64_t)first * 2, count * 2);
    else
        skiplist_delete(indexed(z)->list, first, count, forget_node, indexed(z)->members);
}

/* --- Ranges --- */

/* Compare a member with the start of the range of a lower bound, and with the end of the range of an upper bound. */
static bool below_low(const struct zset_bound *low, double score, struct slice text) {
    switch (low->kind) {
    case BOUND_SCORE: return low->exclusive ? score <= low->score : score < low->score;
    case BOUND_TEXT: return low->exclusive ? slice_compare(text, low->text) <= 0 : slice_compare(text, low->text) < 0;
    default: return low->kind == BOUND_HIGHEST;
    }
}
static bool within_high(const struct zset_bound *high, double score, struct slice text) {
    switch (high->kind) {
    case BOUND_SCORE: return high->exclusive ? score < high->score : score <= high->score;
    case BOUND_TEXT:
        return high->exclusive ? slice_compare(text, high->text) < 0 : slice_compare(text, high->text) <= 0;
    default: return high->kind == BOUND_HIGHEST;
    }
}
static bool node_below_low(const void *low, const struct skiplist_node *node) {
    return below_low(low, node->score, skiplist_text(node));
}
static bool node_within_high(const void *high, const struct skiplist_node *node) {
    return within_high(high, node->score, skiplist_text(node));
}

/* False: the first member is above the range, or the last member is below it. If bounds are texts and scores differ,
 * members between them may still be in the range; as in Valkey, the range is empty nevertheless. */
static bool ends_touch(const struct zset *z, const struct zset_bound *low, const struct zset_bound *high) {
    struct zset_item item;
    struct zset_iterator it;
    char text[LISTPACK_TEXT];
    zset_iterate(&it, z, 0, false);
    if (!zset_next(&it, &item)) return false;
    if (!within_high(high, item.score, listpack_value_text(&item.member, text))) return false;
    zset_iterate(&it, z, zset_len(z) - 1, false);
    return zset_next(&it, &item) && !below_low(low, item.score, listpack_value_text(&item.member, text));
}

/* Searches a listpack; see zset_between(). */
static size_t packed_between(const uint8_t *lp, const struct zset_bound *low, const struct zset_bound *high, bool down,
                             size_t skip, size_t *first) {
    size_t before = 0, count = 0;
    bool begun = false;
    const uint8_t *p = down ? listpack_last(lp) : listpack_first(lp);
    if (p && down) p = listpack_prev(lp, p);
    while (p) {
        char text[LISTPACK_TEXT];
        const uint8_t *s = listpack_next(lp, p);
        struct slice member = listpack_text(p, text);
        double score = score_at(s);
        if (!begun && (down ? !within_high(high, score, member) : below_low(low, score, member))) {
            before++;
        } else {
            bool beyond = down ? below_low(low, score, member) : !within_high(high, score, member);
            if (beyond && (!begun || !skip)) break;
            begun = true;
            if (skip)
                skip--, before++;
            else
                count++;
        }
        p = down ? listpack_prev(lp, p) : listpack_next(lp, s);
        if (p && down) p = listpack_prev(lp, p);
    }
    *first = down ? listpack_count(lp) / 2 - before - count : before;
    return count;
}

size_t zset_between(const struct zset *z, const struct zset_bound *low, const struct zset_bound *high, bool down,
                    size_t skip, size_t *first) {
    *first = 0;
    if (low->kind != BOUND_SCORE && !ends_touch(z, low, high)) return 0;
    if (packed(z)) return packed_between(z->value, low, high, down, skip, first);
    size_t begin = skiplist_count_before(indexed(z)->list, node_below_low, low);
    size_t end = skiplist_count_before(indexed(z)->list, node_within_high, high);
    size_t count = end > begin ? end - begin : 0;
    if (skip > count) skip = count;
    *first = down ? begin : begin + skip;
    return count - skip;
}

/* --- Iteration --- */

void zset_iterate(struct zset_iterator *it, const struct zset *z, size_t rank, bool down) {
    *it = (struct zset_iterator){.down = down};
    if (packed(z)) {
        it->lp = z->value;
        it->at = listpack_seek(it->lp, (int64_t)rank * 2);
    } else {
        struct skiplist *list = indexed(z)->list;
        it->node = rank == 0                        ? skiplist_first(list)
                   : rank + 1 == skiplist_len(list) ? skiplist_last(list)
                                                    : skiplist_at(list, rank);
    }
}
static void item_of_node(const struct skiplist_node *node, struct zset_item *item) {
    item->member = listpack_text_value(skiplist_text(node));
    item->score = node->score;
}
bool zset_next(struct zset_iterator *it, struct zset_item *item) {
    if (!it->lp) {
        if (!it->node) return false;
        item_of_node(it->node, item);
        it->node = it->down ? it->node->prev : skiplist_next(it->node);
        return true;
    }
    if (!it->at) return false;
    const uint8_t *score = listpack_next(it->lp, it->at);
    item->member = listpack_get(it->at);
    item->score = score_at(score);
    if (it->down) {
        it->at = listpack_prev(it->lp, it->at);
        if (it->at) it->at = listpack_prev(it->lp, it->at);
    } else {
        it->at = listpack_next(it->lp, score);
    }
    return true;
}

struct zset_visitor {
    zset_visitor *visit;
    void *context;
};
static void visit_node(void *context, void *node) {
    const struct zset_visitor *visitor = context;
    struct zset_item item;
    item_of_node(node, &item);
    visitor->visit(visitor->context, &item);
}
uint64_t zset_scan(const struct zset *z, uint64_t cursor, zset_visitor *visit, void *context) {
    if (!packed(z))
        return hashtable_scan(indexed(z)->members, cursor, visit_node, &(struct zset_visitor){visit, context});
    struct zset_iterator it;
    struct zset_item item;
    zset_iterate(&it, z, 0, false);
    while (zset_next(&it, &item)) visit(context, &item);
    return 0;
}

void zset_random(const struct zset *z, struct zset_item *item) {
    must(zset_len(z) > 0);
    if (packed(z)) {
        struct zset_iterator it;
        zset_iterate(&it, z, random_below(zset_len(z)), false);
        zset_next(&it, item);
    } else {
        item_of_node(hashtable_random(indexed(z)->members), item);
    }
}
void zset_sample(const struct zset *z, size_t count, zset_visitor *visit, void *context) {
    if (!packed(z)) {
        table_sample(indexed(z)->members, &members_type, count, visit_node, &(struct zset_visitor){visit, context});
        return;
    }
    struct zset_iterator it;
    struct zset_item item;
    zset_iterate(&it, z, 0, false);
    for (size_t left = zset_len(z); count && zset_next(&it, &item); left--) {
        if (random_below(left) >= count) continue;
        visit(context, &item);
        count--;
    }
    must_equal(count, (size_t)0); /* a reply has announced that many */
}

/* --- For the keyspace --- */

struct hashtable *zset_table(const struct entry *entry) {
    return entry_encoding(entry) == ENCODING_SKIPLIST ? ((const struct indexed *)entry_value(entry))->members : NULL;
}
static size_t structure_free_effort(const void *value, enum value_encoding encoding) {
    return encoding == ENCODING_LISTPACK ? 1 : skiplist_len(((const struct indexed *)value)->list);
}
static void *structure_copy(const void *value, enum value_encoding encoding) {
    if (encoding == ENCODING_LISTPACK) return listpack_copy(value);
    const struct indexed *from = value;
    struct indexed *copy = indexed_new(skiplist_len(from->list));
    /* From the end: each member then belongs at the front, so no search is needed. */
    for (const struct skiplist_node *node = skiplist_last(from->list); node; node = node->prev)
        indexed_add(copy, node->score, skiplist_text(node));
    return copy;
}
static size_t structure_memory(const void *value, enum value_encoding encoding, size_t samples) {
    if (encoding == ENCODING_LISTPACK) return mem_size(value);
    const struct indexed *i = value;
    return mem_size(i) + mem_size(i->list) + table_memory(i->members, samples, mem_size);
}

struct node_relocation {
    struct relocation *r;
    struct skiplist *list;
};
static void node_relocate(void *context, void **ref) {
    const struct node_relocation *relocation = context;
    struct skiplist_node *node = *ref, *copy = relocate_begin(relocation->r, node);
    if (!copy) return;
    skiplist_replace(relocation->list, node, copy);
    *ref = copy;
    relocate_end(node);
}
static uint64_t structure_relocate(void **value, enum value_encoding encoding, uint64_t cursor, struct relocation *r) {
    if (encoding == ENCODING_LISTPACK) {
        relocate_block(r, value);
        return 0;
    }
    struct indexed *i = *value;
    struct node_relocation relocation = {r, i->list};
    return table_relocate(i->members, cursor, r, node_relocate, &relocation);
}
const struct value_ops zset_ops = {structure_free, structure_free_effort, structure_copy, structure_memory,
                                   structure_relocate};
