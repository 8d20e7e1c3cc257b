/* set_algebra.c: intersections, unions and differences of sets.
 *
 * An intersection iterates over the smallest set and looks up each member in the others, the next smallest first. A
 * difference iterates over the first set and looks up in the others, the largest first. A union of few sets is replied
 * without being built: each member is replied from the first set that contains it. A listpack with many lookups gets a
 * temporary index. A result to be stored is built in a separate set before it replaces the destination, which may be
 * one of the sources. */
#include "commands/lookup.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"
#include "store/member_table.h"
#include "store/set.h"
#include <stdlib.h>

enum set_operation { INTERSECTION, UNION, DIFFERENCE };
enum { FEW_SETS = 8, SETS_INLINE = 16 };

struct set_source {
    struct set set;
    size_t position; /* in an intset: the position of the last lookup */
    struct member_index held;
};
/* The sets of a call. Missing keys are empty sets, which are omitted but counted. */
struct sources {
    struct set_source *sets, inline_sets[SETS_INLINE];
    size_t count, missing;
    bool first_missing;
};

static void sources_free(struct sources *s) {
    for (size_t i = 0; i < s->count; i++) member_index_free(&s->sets[i].held);
    if (s->sets != s->inline_sets) mem_free(s->sets);
}
/* Finds argv[first] and the following `count` - 1 keys. False: one has another type; replied with the error, and
 * nothing to free. */
static bool sources_find(struct call *call, int first, int count, struct sources *s) {
    s->sets = s->inline_sets;
    s->count = s->missing = 0;
    s->first_missing = false;
    if (count > SETS_INLINE) s->sets = mem_alloc((size_t)count * sizeof *s->sets);
    for (int i = 0; i < count; i++) {
        struct entry *entry = find_read(call, call->argv[first + i]);
        if (!type_ok(call, entry, TYPE_SET)) {
            sources_free(s);
            return false;
        }
        if (entry) {
            s->sets[s->count++] = (struct set_source){.set = set_of(entry)};
        } else {
            s->missing++;
            s->first_missing |= i == 0;
        }
    }
    return true;
}
static int compare_len(const void *a, const void *b) {
    size_t x = set_len(&((const struct set_source *)a)->set), y = set_len(&((const struct set_source *)b)->set);
    return (x > y) - (x < y);
}
static int compare_len_down(const void *a, const void *b) {
    return compare_len(b, a);
}

static void index_set(const void *context, struct member_table *table) {
    struct set_iterator it;
    struct listpack_value member;
    set_iterate(&it, context);
    while (set_next(&it, &member)) member_table_append(table, &member, 0);
    set_iterate_end(&it);
}
static bool source_has(struct set_source *source, const struct listpack_value *member) {
    const struct set *set = &source->set;
    if (set->encoding == ENCODING_INTSET && !member->data)
        return intset_seek(set->value, member->number, &source->position);
    if (set->encoding == ENCODING_LISTPACK && member_index_wanted(&source->held, set_len(set), index_set, set))
        return member_table_find(&source->held.table, member);
    return set_has_value(set, member);
}

/* --- Producing the results --- */

/* Called with each member of the result; false stops the iteration. */
typedef bool result_visitor(void *context, const struct listpack_value *member);

static void each_in_all(struct sources *s, result_visitor *visit, void *context) {
    struct set_iterator it;
    struct listpack_value member;
    if (s->missing || !s->count) return;
    qsort(s->sets, s->count, sizeof *s->sets, compare_len);
    set_iterate(&it, &s->sets[0].set);
    while (set_next(&it, &member)) {
        size_t i = 1;
        while (i < s->count && (s->sets[i].set.value == s->sets[0].set.value || source_has(&s->sets[i], &member))) i++;
        if (i == s->count && !visit(context, &member)) break;
    }
    set_iterate_end(&it);
}
static void each_in_first_only(struct sources *s, result_visitor *visit, void *context) {
    struct set_iterator it;
    struct listpack_value member;
    if (s->first_missing || !s->count) return;
    qsort(s->sets + 1, s->count - 1, sizeof *s->sets, compare_len_down);
    for (size_t i = 1; i < s->count; i++)
        if (s->sets[i].set.value == s->sets[0].set.value) return;
    set_iterate(&it, &s->sets[0].set);
    while (set_next(&it, &member)) {
        size_t i = 1;
        while (i < s->count && !source_has(&s->sets[i], &member)) i++;
        if (i == s->count && !visit(context, &member)) break;
    }
    set_iterate_end(&it);
}
static void each_of_set(const struct set *set, result_visitor *visit, void *context) {
    struct set_iterator it;
    struct listpack_value member;
    set_iterate(&it, set);
    while (set_next(&it, &member) && visit(context, &member)) {
    }
    set_iterate_end(&it);
}

/* The union of few sets: each member comes from the first set that has it. */
static void each_in_few(struct sources *s, result_visitor *visit, void *context) {
    for (size_t i = 0; i < s->count; i++) {
        struct set_iterator it;
        struct listpack_value member;
        set_iterate(&it, &s->sets[i].set);
        while (set_next(&it, &member)) {
            size_t before = 0;
            while (before < i && !source_has(&s->sets[before], &member)) before++;
            if (before == i) visit(context, &member);
        }
        set_iterate_end(&it);
    }
}

/* --- Storing --- */

static bool add_seen(void *context, const struct listpack_value *member) {
    set_add_value(context, member);
    return true;
}
static bool add_new_seen(void *context, const struct listpack_value *member) {
    set_add_new(context, member);
    return true;
}

/* Results start as an intset, which adapts to what is added. An intersection takes its members from the smallest set:
 * if that holds strings, the result starts as a listpack and becomes an intset at the end if it holds only integers. */
static enum value_encoding first_encoding(const struct sources *s, enum set_operation operation) {
    if (operation != INTERSECTION || !s->count) return ENCODING_INTSET;
    const struct set_source *smallest = s->sets;
    for (size_t i = 1; i < s->count; i++)
        if (compare_len(&s->sets[i], smallest) < 0) smallest = &s->sets[i];
    return smallest->set.encoding == ENCODING_INTSET ? ENCODING_INTSET : ENCODING_LISTPACK;
}
static struct set build(struct sources *s, enum set_operation operation) {
    struct set result = set_new_as(first_encoding(s, operation));
    if (operation == INTERSECTION) {
        each_in_all(s, add_new_seen, &result);
        set_compact(&result);
    } else if (operation == DIFFERENCE) {
        each_in_first_only(s, add_new_seen, &result);
    } else if (s->count <= FEW_SETS) {
        each_in_few(s, add_new_seen, &result);
    } else {
        for (size_t i = 0; i < s->count; i++) each_of_set(&s->sets[i].set, add_seen, &result);
    }
    return result;
}

static void store_run(struct call *call) {
    enum set_operation operation = call_variant(call);
    struct slice key = call->argv[1];
    struct sources s;
    if (!sources_find(call, 2, call->argc - 2, &s)) return;
    struct set result = build(&s, operation);
    sources_free(&s);
    size_t len = set_len(&result);
    if (len) {
        bool existed = find_replace(call, key);
        if (existed) db_delete_as(call->db, key, store_settings.lazy_server_del, REMOVAL_OVERWRITTEN);
        db_add_value(call->db, key, TYPE_SET, result.encoding, result.value);
        if (!existed) notify(call->db, NOTIFY_NEW, "new", key);
        notify(call->db, NOTIFY_SET, call->command->spec->name, key);
        call->dirty++;
    } else {
        set_free(&result);
        delete_destination(call, key);
    }
    reply_integer(call->reply, (int64_t)len);
}

/* --- Replying --- */

struct replied {
    struct reply *reply;
    size_t count;
};
static bool reply_seen(void *context, const struct listpack_value *member) {
    struct replied *replied = context;
    reply_element(replied->reply, member);
    replied->count++;
    return true;
}
static void reply_result(struct call *call, void (*each)(struct sources *s, result_visitor *visit, void *context)) {
    struct sources s;
    struct reply_deferred deferred;
    if (!sources_find(call, 1, call->argc - 1, &s)) return;
    struct replied replied = {call->reply, 0};
    reply_deferred_begin(call->reply, &deferred);
    each(&s, reply_seen, &replied);
    reply_deferred_end(call->reply, &deferred, REPLY_SET, replied.count);
    sources_free(&s);
}
static void sinter_run(struct call *call) {
    reply_result(call, each_in_all);
}
static void sdiff_run(struct call *call) {
    reply_result(call, each_in_first_only);
}

static void each_in_any(struct sources *s, result_visitor *visit, void *context) {
    if (s->count <= FEW_SETS) {
        each_in_few(s, visit, context);
        return;
    }
    struct set result = build(s, UNION);
    each_of_set(&result, visit, context);
    set_free(&result);
}
static void sunion_run(struct call *call) {
    reply_result(call, each_in_any);
}

struct counted {
    uint64_t count, limit;
};
static bool count_seen(void *context, const struct listpack_value *member) {
    struct counted *counted = context;
    return ++counted->count != counted->limit;
}
static void sintercard_run(struct call *call) {
    int64_t keys, limit = 0;
    if (!parse_int64(call->argv[1], &keys) || keys < 1) {
        reply_error(call->reply, "ERR numkeys should be greater than 0");
        return;
    }
    if (keys > call->argc - 2) {
        reply_error(call->reply, "ERR Number of keys can't be greater than number of args");
        return;
    }
    for (int i = 2 + (int)keys; i < call->argc; i += 2) {
        if (i + 1 == call->argc || !slice_is(call->argv[i], "limit")) {
            reply_syntax_error(call->reply);
            return;
        }
        if (!parse_int64(call->argv[i + 1], &limit) || limit < 0) {
            reply_error(call->reply, "ERR LIMIT can't be negative");
            return;
        }
    }
    struct sources s;
    if (!sources_find(call, 2, (int)keys, &s)) return;
    struct counted counted = {0, (uint64_t)limit};
    each_in_all(&s, count_seen, &counted);
    sources_free(&s);
    reply_integer(call->reply, (int64_t)counted.count);
}

const struct command_spec set_algebra_commands[] = {
    {COMMAND("sinter", sinter_run, -2, CMD_READONLY, ON_SETS, "1.0.0"),
     .complexity = "O(N*M) at worst, where N is the number of members in the smallest set and M is the number of sets.",
     .summary = "Returns the intersection of sets.", .syntax = "key:key...",
     .tips = WORDS("nondeterministic_output_order"), .keys = {KEY_RANGE(1, -1, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("sinterstore", store_run, -3, CMD_WRITE | CMD_DENYOOM, ON_SETS, "1.0.0"), .variant = INTERSECTION,
     .complexity = "O(N*M) at worst, where N is the number of members in the smallest set and M is the number of sets.",
     .summary = "Stores the intersection of sets in a key and returns the number of members.",
     .syntax = "destination:key key:key(#1)...",
     .keys = {KEY_RANGE(1, 0, 1, KEY_OW | KEY_UPDATE), KEY_RANGE(2, -1, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("sintercard", sintercard_run, -3, CMD_READONLY | CMD_MOVABLE_KEYS, ON_SETS, "7.0.0"),
     .complexity = "O(N*M) at worst, where N is the number of members in the smallest set and M is the number of sets.",
     .summary = "Counts the members of the intersection of sets, up to a limit.",
     .syntax = "numkeys:integer key:key... [LIMIT limit:integer]", .keys = {KEY_COUNTED(1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("sunion", sunion_run, -2, CMD_READONLY, ON_SETS, "1.0.0"),
     .complexity = "O(N) where N is the total number of members in all sets.", .summary = "Returns the union of sets.",
     .syntax = "key:key...", .tips = WORDS("nondeterministic_output_order"),
     .keys = {KEY_RANGE(1, -1, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("sunionstore", store_run, -3, CMD_WRITE | CMD_DENYOOM, ON_SETS, "1.0.0"), .variant = UNION,
     .complexity = "O(N) where N is the total number of members in all sets.",
     .summary = "Stores the union of sets in a key and returns the number of members.",
     .syntax = "destination:key key:key(#1)...",
     .keys = {KEY_RANGE(1, 0, 1, KEY_OW | KEY_UPDATE), KEY_RANGE(2, -1, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("sdiff", sdiff_run, -2, CMD_READONLY, ON_SETS, "1.0.0"),
     .complexity = "O(N*M) at worst, where N is the number of members in the first set and M is the number of sets.",
     .summary = "Returns the difference of sets.", .syntax = "key:key...",
     .tips = WORDS("nondeterministic_output_order"), .keys = {KEY_RANGE(1, -1, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("sdiffstore", store_run, -3, CMD_WRITE | CMD_DENYOOM, ON_SETS, "1.0.0"), .variant = DIFFERENCE,
     .complexity = "O(N*M) at worst, where N is the number of members in the first set and M is the number of sets.",
     .summary = "Stores the difference of sets in a key and returns the number of members.",
     .syntax = "destination:key key:key(#1)...",
     .keys = {KEY_RANGE(1, 0, 1, KEY_OW | KEY_UPDATE), KEY_RANGE(2, -1, 1, KEY_RO | KEY_ACCESS)}},
    {.name = NULL},
};
