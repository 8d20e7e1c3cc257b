/* zset_algebra.c: intersections, unions and differences of sorted sets and sets; members of a set have the score 1.
 *
 * The sources are processed in order of size, so that floating-point sums equal those of Valkey to the last bit.
 * Results are collected in a member table and sorted at the end; a sorted set is built only to be stored. */
#include "commands/zset/zset_common.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"
#include "store/set.h"
#include <math.h>
#include <stdlib.h>

enum zset_operation { INTERSECTION, UNION, DIFFERENCE };
enum aggregate { SUM, MIN, MAX };
enum { SOURCES_AT_HAND = 8 };

struct zset_source {
    enum { SOURCE_NONE, SOURCE_SET, SOURCE_ZSET } kind;
    struct set set;
    struct zset zset;
    size_t len;
    double weight;
    int index; /* position in the call */
    struct member_index held;
};
struct combination {
    enum zset_operation operation;
    int first; /* index of the first key in argv */
    int count;
    bool stores, scores, counts /* ZINTERCARD */;
    enum aggregate aggregate;
    uint64_t limit; /* 0: none */
    struct zset_source *sources, at_hand[SOURCES_AT_HAND];
};

/* --- Sources --- */

struct source_iterator {
    const struct zset_source *source;
    struct set_iterator set;
    struct zset_iterator zset;
};
static void source_iterate(struct source_iterator *it, const struct zset_source *source) {
    it->source = source;
    if (source->kind == SOURCE_SET)
        set_iterate(&it->set, &source->set);
    else if (source->kind == SOURCE_ZSET)
        zset_iterate(&it->zset, &source->zset, 0, false);
}
static bool source_next(struct source_iterator *it, struct zset_item *item) {
    if (it->source->kind == SOURCE_ZSET) return zset_next(&it->zset, item);
    item->score = 1;
    return it->source->kind == SOURCE_SET && set_next(&it->set, &item->member);
}
static void source_iterate_end(struct source_iterator *it) {
    if (it->source->kind == SOURCE_SET) set_iterate_end(&it->set);
}
static void index_source(const void *context, struct member_table *table) {
    struct source_iterator it;
    struct zset_item item;
    source_iterate(&it, context);
    while (source_next(&it, &item)) member_table_append(table, &item.member, item.score);
    source_iterate_end(&it);
}
static bool source_score(struct zset_source *source, const struct listpack_value *member, double *score) {
    *score = 1;
    if (source->kind == SOURCE_NONE) return false;
    if ((source->kind == SOURCE_ZSET ? source->zset.encoding : source->set.encoding) == ENCODING_LISTPACK &&
        member_index_wanted(&source->held, source->len, index_source, source)) {
        const struct member *found = member_table_find(&source->held.table, member);
        if (found) *score = found->score;
        return found;
    }
    if (source->kind == SOURCE_SET) return set_has_value(&source->set, member);
    char text[LISTPACK_TEXT];
    return zset_score(&source->zset, listpack_value_text(member, text), score);
}
static int compare_len(const void *a, const void *b) {
    const struct zset_source *x = a, *y = b;
    return x->len != y->len ? (x->len > y->len) - (x->len < y->len) : x->index - y->index;
}

/* --- Reading the call --- */

static bool sources_find(struct call *call, struct combination *r) {
    for (int i = 0; i < r->count; i++) {
        struct zset_source *source = &r->sources[i];
        struct entry *entry = find_read(call, call->argv[r->first + i]);
        *source = (struct zset_source){.weight = 1, .index = i};
        if (!entry) continue;
        if (entry_type(entry) == TYPE_SET) {
            source->kind = SOURCE_SET;
            source->set = set_of(entry);
            source->len = set_len(&source->set);
        } else if (type_ok(call, entry, TYPE_ZSET)) {
            source->kind = SOURCE_ZSET;
            source->zset = zset_of(entry);
            source->len = zset_len(&source->zset);
        } else {
            return false;
        }
    }
    return true;
}

static bool weights_read(struct call *call, struct combination *r, int index) {
    for (int i = 0; i < r->count; i++) {
        if (parse_double(call->argv[index + i], &r->sources[i].weight)) continue;
        return reply_error(call->reply, "ERR weight value is not a float");
    }
    return true;
}
static bool options_read(struct call *call, struct combination *r) {
    bool weighs = r->operation != DIFFERENCE && !r->counts;
    for (int i = r->first + r->count; i < call->argc; i++) {
        struct slice word = call->argv[i];
        int left = call->argc - i - 1;
        if (weighs && slice_is(word, "weights") && left >= r->count) {
            if (!weights_read(call, r, i + 1)) return false;
            i += r->count;
        } else if (weighs && slice_is(word, "aggregate") && left >= 1) {
            struct slice how = call->argv[++i];
            if (slice_is(how, "sum"))
                r->aggregate = SUM;
            else if (slice_is(how, "min"))
                r->aggregate = MIN;
            else if (slice_is(how, "max"))
                r->aggregate = MAX;
            else
                goto syntax;
        } else if (!r->stores && !r->counts && slice_is(word, "withscores")) {
            r->scores = true;
        } else if (r->counts && slice_is(word, "limit") && left >= 1) {
            int64_t limit;
            if (!parse_int64(call->argv[++i], &limit) || limit < 0)
                return reply_error(call->reply, "ERR LIMIT can't be negative");
            r->limit = (uint64_t)limit;
        } else {
            goto syntax;
        }
    }
    return true;
syntax:
    return reply_syntax_error(call->reply);
}

static void combination_free(struct combination *r) {
    for (int i = 0; i < r->count; i++) member_index_free(&r->sources[i].held);
    if (r->sources != r->at_hand) mem_free(r->sources);
}
/* False: replied with an error; nothing to free. */
static bool combination_read(struct call *call, struct combination *r) {
    int64_t keys;
    if (!argument_int64(call, r->first - 1, &keys)) return false;
    if (keys < 1)
        return reply_error_format(call->reply, "ERR at least 1 input key is needed for '%s' command",
                                  call->command->full_name);
    if (keys > call->argc - r->first) return reply_syntax_error(call->reply);
    r->count = (int)keys;
    r->sources = keys <= SOURCES_AT_HAND ? r->at_hand : mem_calloc((size_t)keys, sizeof *r->sources);
    if (sources_find(call, r) && options_read(call, r)) return true;
    combination_free(r);
    return false;
}

/* --- Results --- */

/* Infinity times 0 and the sum of opposite infinities are 0. */
static double weigh(double weight, double score) {
    double value = weight * score;
    return isnan(value) ? 0 : value;
}
static double aggregate(enum aggregate how, double a, double b) {
    if (how == MIN) return b < a ? b : a;
    if (how == MAX) return b > a ? b : a;
    double sum = a + b;
    return isnan(sum) ? 0 : sum;
}

/* Adds the members of all sources to the result (NULL: counts only). Returns their number, up to the limit. */
static uint64_t intersect(struct combination *r, struct member_table *result) {
    struct source_iterator it;
    struct zset_item item;
    uint64_t found = 0;
    source_iterate(&it, &r->sources[0]);
    while (source_next(&it, &item)) {
        double score = weigh(r->sources[0].weight, item.score), other;
        int i = 1;
        for (; i < r->count && source_score(&r->sources[i], &item.member, &other); i++)
            score =
                aggregate(r->aggregate, score, r->sources[i].weight * other); /* may be NaN; only a sum checks for it */
        if (i < r->count) continue;
        if (result) member_table_append(result, &item.member, score);
        if (++found == r->limit) break;
    }
    source_iterate_end(&it);
    return found;
}
static void unite(struct combination *r, struct member_table *result) {
    for (int i = 0; i < r->count; i++) {
        struct source_iterator it;
        struct zset_item item;
        source_iterate(&it, &r->sources[i]);
        while (source_next(&it, &item)) {
            double score = weigh(r->sources[i].weight, item.score);
            bool added;
            struct member *member = member_table_find_or_add(result, &item.member, score, &added);
            if (!added) member->score = aggregate(r->aggregate, member->score, score);
        }
        source_iterate_end(&it);
    }
}
static void subtract(struct combination *r, struct member_table *result) {
    struct source_iterator it;
    struct zset_item item;
    source_iterate(&it, &r->sources[0]);
    while (source_next(&it, &item)) {
        double score;
        int i = 1;
        while (i < r->count && !source_score(&r->sources[i], &item.member, &score)) i++;
        if (i == r->count) member_table_append(result, &item.member, item.score);
    }
    source_iterate_end(&it);
}

/* Builds the sorted result. Its texts point into the sources. */
static void build(struct combination *r, struct member_table *result) {
    if (r->operation != DIFFERENCE) qsort(r->sources, (size_t)r->count, sizeof *r->sources, compare_len);
    member_table_init(result, r->operation == UNION ? r->sources[r->count - 1].len : 0);
    if (r->operation == INTERSECTION)
        intersect(r, result);
    else if (r->operation == UNION)
        unite(r, result);
    else
        subtract(r, result);
    member_table_sort(result);
}

static void store_run(struct call *call) {
    enum zset_operation operation = call_variant(call);
    struct combination r = {.operation = operation, .first = 3, .stores = true};
    struct member_table members;
    if (!combination_read(call, &r)) return;
    build(&r, &members);
    struct zset result = zset_of_members(&members);
    member_table_free(&members);
    combination_free(&r);
    zset_store_result(call, call->argv[1], &result, call->command->spec->name);
}

static void combine_run(struct call *call) {
    enum zset_operation operation = call_variant(call);
    struct combination r = {.operation = operation, .first = 2};
    if (!combination_read(call, &r)) return;
    struct member_table result;
    build(&r, &result);
    reply_items(call->reply, result.count, r.scores);
    for (size_t i = 0; i < result.count; i++)
        reply_item(call->reply, &(struct zset_item){result.members[i].value, result.members[i].score}, r.scores);
    member_table_free(&result);
    combination_free(&r);
}
static void zintercard_run(struct call *call) {
    struct combination r = {.operation = INTERSECTION, .first = 2, .counts = true};
    if (!combination_read(call, &r)) return;
    qsort(r.sources, (size_t)r.count, sizeof *r.sources, compare_len);
    reply_integer(call->reply, (int64_t)intersect(&r, NULL));
    combination_free(&r);
}

const struct command_spec zset_algebra_commands[] = {
    {COMMAND("zinter", combine_run, -3, CMD_READONLY | CMD_MOVABLE_KEYS, ON_SORTED_SETS, "6.2.0"),
     .variant = INTERSECTION,
     .complexity = "O(N*K)+O(M*log(M)) at worst, where N is the number of members in the smallest source, K is the "
                   "number of sources and M is the number of members in the result.",
     .summary = "Returns the intersection of sorted sets.",
     .syntax = "numkeys:integer key:key... [WEIGHTS weight:integer...] [AGGREGATE "
               "aggregate(SUM|MIN|MAX)] [WITHSCORES]",
     .keys = {KEY_COUNTED(1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zinterstore", store_run, -4, CMD_WRITE | CMD_DENYOOM | CMD_MOVABLE_KEYS, ON_SORTED_SETS, "2.0.0"),
     .variant = INTERSECTION,
     .complexity = "O(N*K)+O(M*log(M)) at worst, where N is the number of members in the smallest source, K is the "
                   "number of sources and M is the number of members in the result.",
     .summary = "Stores the intersection of sorted sets in a key and returns the number of members.",
     .syntax = "destination:key numkeys:integer key:key(#1)... [WEIGHTS weight:integer...] [AGGREGATE "
               "aggregate(SUM|MIN|MAX)]",
     .keys = {KEY_RANGE(1, 0, 1, KEY_OW | KEY_UPDATE), KEY_COUNTED(2, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zintercard", zintercard_run, -3, CMD_READONLY | CMD_MOVABLE_KEYS, ON_SORTED_SETS, "7.0.0"),
     .complexity =
         "O(N*K) at worst, where N is the number of members in the smallest source and K is the number of sources.",
     .summary = "Counts the members of the intersection of sorted sets, up to a limit.",
     .syntax = "numkeys:integer key:key... [LIMIT limit:integer]", .keys = {KEY_COUNTED(1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zunion", combine_run, -3, CMD_READONLY | CMD_MOVABLE_KEYS, ON_SORTED_SETS, "6.2.0"), .variant = UNION,
     .complexity =
         "O(N)+O(M*log(M)) where N is the total number of members in all sources and M is the number in the result.",
     .summary = "Returns the union of sorted sets.",
     .syntax = "numkeys:integer key:key... [WEIGHTS weight:integer...] [AGGREGATE "
               "aggregate(SUM|MIN|MAX)] [WITHSCORES]",
     .keys = {KEY_COUNTED(1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zunionstore", store_run, -4, CMD_WRITE | CMD_DENYOOM | CMD_MOVABLE_KEYS, ON_SORTED_SETS, "2.0.0"),
     .variant = UNION,
     .complexity =
         "O(N)+O(M*log(M)) where N is the total number of members in all sources and M is the number in the result.",
     .summary = "Stores the union of sorted sets in a key and returns the number of members.",
     .syntax = "destination:key numkeys:integer key:key(#1)... [WEIGHTS weight:integer...] [AGGREGATE "
               "aggregate(SUM|MIN|MAX)]",
     .keys = {KEY_RANGE(1, 0, 1, KEY_OW | KEY_UPDATE), KEY_COUNTED(2, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zdiff", combine_run, -3, CMD_READONLY | CMD_MOVABLE_KEYS, ON_SORTED_SETS, "6.2.0"), .variant = DIFFERENCE,
     .complexity = "O(N*K)+O(M*log(M)) at worst, where N is the number of members in the first source, K is the number "
                   "of sources and M is the number of members in the result.",
     .summary = "Returns the difference of sorted sets.", .syntax = "numkeys:integer key:key... [WITHSCORES]",
     .keys = {KEY_COUNTED(1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zdiffstore", store_run, -4, CMD_WRITE | CMD_DENYOOM | CMD_MOVABLE_KEYS, ON_SORTED_SETS, "6.2.0"),
     .variant = DIFFERENCE,
     .complexity = "O(N*K)+O(M*log(M)) at worst, where N is the number of members in the first source, K is the number "
                   "of sources and M is the number of members in the result.",
     .summary = "Stores the difference of sorted sets in a key and returns the number of members.",
     .syntax = "destination:key numkeys:integer key:key(#1)...",
     .keys = {KEY_RANGE(1, 0, 1, KEY_OW | KEY_UPDATE), KEY_COUNTED(2, KEY_RO | KEY_ACCESS)}},
    {.name = NULL},
};
