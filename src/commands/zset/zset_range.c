/* zset_range.c: ranges of a sorted set by rank, score or lexicographic order: returning, storing, counting and removing
 * them.
 *
 * A range is converted to ranks first: the first rank and the number of members. */
#include "commands/zset/zset_common.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

enum range_by { BY_ANY /* not determined yet */, BY_RANK, BY_SCORE, BY_TEXT };
enum { DIRECTION_ANY = -1 };

struct zset_range {
    enum range_by by;
    int64_t start, end;          /* BY_RANK */
    struct zset_bound low, high; /* otherwise */
    int64_t offset, limit;       /* negative limit: none */
};

/* --- Reading bounds --- */

/* More lenient than the parser of scores: too large numbers become infinite; too small numbers and empty text become
 * 0. */
static bool score_bound_read(struct slice text, struct zset_bound *bound) {
    *bound = (struct zset_bound){.kind = BOUND_SCORE, .exclusive = text.len && text.data[0] == '('};
    if (bound->exclusive) text.data++, text.len--;
    if (parse_double(text, &bound->score)) return true;
    if (text.len && (isspace((unsigned char)text.data[0]) || number_is_hexadecimal(text))) return false;
    char buffer[128], *copy = text.len < sizeof buffer ? buffer : mem_alloc(text.len + 1), *end;
    if (text.len) memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    bound->score = strtod(copy, &end);
    bool read = *end == '\0' && !isnan(bound->score);
    if (copy != buffer) mem_free(copy);
    return read;
}
static bool text_bound_read(struct slice text, struct zset_bound *bound) {
    *bound = (struct zset_bound){.kind = BOUND_TEXT};
    if (!text.len) return false;
    switch (text.data[0]) {
    case '+':
    case '-': bound->kind = text.data[0] == '+' ? BOUND_HIGHEST : BOUND_LOWEST; return text.len == 1;
    case '(': bound->exclusive = true; /* fallthrough */
    case '[': bound->text = (struct slice){text.data + 1, text.len - 1}; return true;
    default: return false;
    }
}

/* Reads the two arguments from `index` on; `swapped`: the upper bound comes first. False: replied with an error. */
static bool range_read(struct call *call, int index, bool swapped, struct zset_range *range) {
    struct slice low = call->argv[index + swapped], high = call->argv[index + !swapped];
    switch (range->by) {
    case BY_SCORE:
        if (score_bound_read(low, &range->low) && score_bound_read(high, &range->high)) return true;
        return reply_error(call->reply, "ERR min or max is not a float");
    case BY_TEXT:
        if (text_bound_read(low, &range->low) && text_bound_read(high, &range->high)) return true;
        return reply_error(call->reply, "ERR min or max not valid string range item");
    default: return argument_int64(call, index, &range->start) && argument_int64(call, index + 1, &range->end);
    }
}

/* Computes the ranks of a range from the lowest score, before the limit. Given ranks count from the other end if
 * `reverse`, and texts are searched from there. */
static size_t range_ranks(const struct zset *zset, const struct zset_range *range, bool reverse, size_t skip,
                          size_t *first) {
    if (range->by != BY_RANK) return zset_between(zset, &range->low, &range->high, reverse, skip, first);
    int64_t len = (int64_t)zset_len(zset), start = range->start, end = range->end;
    if (start < 0) start += len;
    if (end < 0) end += len;
    if (start < 0) start = 0;
    if (end >= len) end = len - 1;
    if (start > end || start >= len) return 0;
    *first = (size_t)(reverse ? len - 1 - end : start);
    return (size_t)(end - start + 1);
}

/* --- ZRANGE and its variants --- */

struct query {
    struct zset_range range;
    int direction; /* DIRECTION_ANY, or true for descending */
    bool scores, stores;
    int key; /* index in argv */
};

/* Reads the arguments after the bounds. False: replied with an error. */
static bool query_options_read(struct call *call, struct query *query) {
    struct zset_range *range = &query->range;
    range->limit = -1;
    for (int i = query->key + 3; i < call->argc; i++) {
        struct slice word = call->argv[i];
        if (!query->stores && slice_is(word, "withscores")) {
            query->scores = true;
        } else if (slice_is(word, "limit") && i + 2 < call->argc) {
            if (!argument_int64(call, i + 1, &range->offset) || !argument_int64(call, i + 2, &range->limit))
                return false;
            i += 2;
        } else if (query->direction == DIRECTION_ANY && slice_is(word, "rev")) {
            query->direction = true;
        } else if (range->by == BY_ANY && slice_is(word, "bylex")) {
            range->by = BY_TEXT;
        } else if (range->by == BY_ANY && slice_is(word, "byscore")) {
            range->by = BY_SCORE;
        } else {
            return reply_syntax_error(call->reply);
        }
    }
    if (query->direction == DIRECTION_ANY) query->direction = false;
    if (range->by == BY_ANY) range->by = BY_RANK;
    if (range->limit != -1 && range->by == BY_RANK)
        return reply_error(call->reply,
                           "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX");
    if (range->by == BY_RANK) range->offset = 0; /* LIMIT with any offset and -1 is accepted without effect */
    if (query->scores && range->by == BY_TEXT)
        return reply_error(call->reply, "ERR syntax error, WITHSCORES not supported in combination with BYLEX");
    return range_read(call, query->key + 1, query->direction && range->by != BY_RANK, range);
}

/* Computes the wanted members: the rank of the first one in the direction of the query, and their number. */
static size_t query_ranks(const struct zset *zset, const struct query *query, size_t *rank) {
    const struct zset_range *range = &query->range;
    size_t first = 0, skip = range->offset < 0 ? 0 : (size_t)range->offset;
    if (range->offset < 0 && zset->encoding == ENCODING_LISTPACK) return 0;
    size_t count = range_ranks(zset, range, query->direction, skip, &first);
    if (range->offset < 0) { /* as in Valkey 9.1, only a skiplist counts it from the end of the range */
        size_t kept = (size_t)0 - (size_t)range->offset;
        if (kept > count) return 0;
        if (!query->direction) first += count - kept;
        count = kept;
    }
    if (!count) return 0;
    *rank = query->direction ? first + count - 1 : first;
    return range->limit >= 0 && (uint64_t)range->limit < count ? (size_t)range->limit : count;
}

static void query_store(struct call *call, const struct zset *zset, size_t rank, size_t count, bool down) {
    struct zset result = zset_new(count, 0);
    struct zset_iterator it;
    struct zset_item item;
    double now;
    if (count) zset_iterate(&it, zset, rank, down);
    for (; count && zset_next(&it, &item); count--) {
        char text[LISTPACK_TEXT];
        struct slice member = {item.member.data, item.member.len};
        if (!member.data) member = (struct slice){text, format_int64(text, item.member.number)};
        zset_put(&result, item.score, member, 0, &now);
    }
    zset_store_result(call, call->argv[1], &result, "zrangestore");
}

static void query_run(struct call *call, struct query query) {
    struct entry *entry;
    struct zset zset;
    size_t rank = 0;
    if (!query_options_read(call, &query) || !find_zset(call, call->argv[query.key], &entry, &zset)) return;
    size_t count = entry ? query_ranks(&zset, &query, &rank) : 0;
    if (query.stores) {
        query_store(call, &zset, rank, count, query.direction);
        return;
    }
    reply_items(call->reply, count, query.scores);
    if (!count) return;
    struct zset_iterator it;
    struct zset_item item;
    zset_iterate(&it, &zset, rank, query.direction);
    for (; count && zset_next(&it, &item); count--) reply_item(call->reply, &item, query.scores);
}
#define QUERY(name, wanted_by, wanted_direction, ...)                                                                  \
    static void name(struct call *call) {                                                                              \
        query_run(call, (struct query){.range.by = (wanted_by), .direction = (wanted_direction), __VA_ARGS__});        \
    }
QUERY(zrange_run, BY_ANY, DIRECTION_ANY, .key = 1)
QUERY(zrangestore_run, BY_ANY, DIRECTION_ANY, .key = 2, .stores = true)
QUERY(zrevrange_run, BY_RANK, true, .key = 1)
QUERY(zrangebyscore_run, BY_SCORE, false, .key = 1)
QUERY(zrevrangebyscore_run, BY_SCORE, true, .key = 1)
QUERY(zrangebylex_run, BY_TEXT, false, .key = 1)
QUERY(zrevrangebylex_run, BY_TEXT, true, .key = 1)

/* --- Counting and removing --- */

static void count_range_run(struct call *call) {
    enum range_by by = call_variant(call);
    struct zset_range range = {.by = by};
    struct entry *entry;
    struct zset zset;
    size_t first;
    if (!range_read(call, 2, false, &range) || !find_zset(call, call->argv[1], &entry, &zset)) return;
    reply_integer(call->reply, entry ? (int64_t)range_ranks(&zset, &range, false, 0, &first) : 0);
}

static void remove_range_run(struct call *call) {
    enum range_by by = call_variant(call);
    struct zset_range range = {.by = by};
    struct entry *entry;
    struct zset zset;
    size_t first = 0;
    if (!range_read(call, 2, false, &range) || !find_zset_write(call, call->argv[1], &entry, &zset)) return;
    size_t count = entry ? range_ranks(&zset, &range, false, 0, &first) : 0;
    if (count) {
        zset_delete(&zset, first, count);
        zset_members_removed(call, call->argv[1], entry, &zset, call->command->spec->name);
        call->dirty += count;
    }
    reply_integer(call->reply, (int64_t)count);
}

const struct command_spec zset_range_commands[] = {
    {COMMAND("zrange", zrange_run, -4, CMD_READONLY, ON_SORTED_SETS, "1.2.0"),
     .complexity = "O(log(N)+M) where N is the number of members and M is the number returned.",
     .summary = "Returns the members of a range of ranks, scores or texts.",
     .syntax = "key:key start:string stop:string [sortby(BYSCORE|BYLEX)@6.2.0] [REV@6.2.0] [LIMIT "
               "limit{offset:integer count:integer}@6.2.0] [WITHSCORES]",
     .history = WORDS("6.2.0", "The options `REV`, `BYSCORE`, `BYLEX` and `LIMIT`."),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zrangestore", zrangestore_run, -5, CMD_WRITE | CMD_DENYOOM, ON_SORTED_SETS, "6.2.0"),
     .complexity = "O(log(N)+M) where N is the number of members and M is the number stored.",
     .summary = "Stores the members of a range in a key.",
     .syntax = "dst:key src:key(#1) min:string max:string [sortby(BYSCORE|BYLEX)] [REV] [LIMIT "
               "limit{offset:integer count:integer}]",
     .keys = {KEY_RANGE(1, 0, 1, KEY_OW | KEY_UPDATE), KEY_RANGE(2, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zrevrange", zrevrange_run, -4, CMD_READONLY, ON_SORTED_SETS, "1.2.0"),
     .complexity = "O(log(N)+M) where N is the number of members and M is the number returned.",
     .summary = "Returns the members of a range of ranks, counted from the highest score.",
     .syntax = "key:key start:integer stop:integer [WITHSCORES]", .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zrangebyscore", zrangebyscore_run, -4, CMD_READONLY, ON_SORTED_SETS, "1.0.5"),
     .complexity = "O(log(N)+M) where N is the number of members and M is the number returned.",
     .summary = "Returns the members of a range of scores.",
     .syntax = "key:key min:double max:double [WITHSCORES@2.0.0] [LIMIT limit{offset:integer "
               "count:integer}]",
     .history = WORDS("2.0.0", "The option `WITHSCORES`."), .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zrevrangebyscore", zrevrangebyscore_run, -4, CMD_READONLY, ON_SORTED_SETS, "2.2.0"),
     .complexity = "O(log(N)+M) where N is the number of members and M is the number returned.",
     .summary = "Returns the members of a range of scores, the highest first.",
     .syntax = "key:key max:double min:double [WITHSCORES] [LIMIT limit{offset:integer count:integer}]",
     .history = WORDS("2.1.6", "`min` and `max` can be left out of the range."),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zrangebylex", zrangebylex_run, -4, CMD_READONLY, ON_SORTED_SETS, "2.8.9"),
     .complexity = "O(log(N)+M) where N is the number of members and M is the number returned.",
     .summary = "Returns the members of a range of texts.",
     .syntax = "key:key min:string max:string [LIMIT limit{offset:integer count:integer}]",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zrevrangebylex", zrevrangebylex_run, -4, CMD_READONLY, ON_SORTED_SETS, "2.8.9"),
     .complexity = "O(log(N)+M) where N is the number of members and M is the number returned.",
     .summary = "Returns the members of a range of texts, the highest first.",
     .syntax = "key:key max:string min:string [LIMIT limit{offset:integer count:integer}]",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zcount", count_range_run, 4, CMD_READONLY | CMD_FAST, ON_SORTED_SETS, "2.0.0"), .variant = BY_SCORE,
     .complexity = "O(log(N)) where N is the number of members.", .summary = "Counts the members of a range of scores.",
     .syntax = "key:key min:double max:double", .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zlexcount", count_range_run, 4, CMD_READONLY | CMD_FAST, ON_SORTED_SETS, "2.8.9"), .variant = BY_TEXT,
     .complexity = "O(log(N)) where N is the number of members.", .summary = "Counts the members of a range of texts.",
     .syntax = "key:key min:string max:string", .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zremrangebyrank", remove_range_run, 4, CMD_WRITE, ON_SORTED_SETS, "2.0.0"), .variant = BY_RANK,
     .complexity = "O(log(N)+M) where N is the number of members and M is the number removed.",
     .summary = "Removes the members of a range of ranks. Deletes the key with the last of them.",
     .syntax = "key:key start:integer stop:integer", .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_DELETE)}},
    {COMMAND("zremrangebyscore", remove_range_run, 4, CMD_WRITE, ON_SORTED_SETS, "1.2.0"), .variant = BY_SCORE,
     .complexity = "O(log(N)+M) where N is the number of members and M is the number removed.",
     .summary = "Removes the members of a range of scores. Deletes the key with the last of them.",
     .syntax = "key:key min:double max:double", .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_DELETE)}},
    {COMMAND("zremrangebylex", remove_range_run, 4, CMD_WRITE, ON_SORTED_SETS, "2.8.9"), .variant = BY_TEXT,
     .complexity = "O(log(N)+M) where N is the number of members and M is the number removed.",
     .summary = "Removes the members of a range of texts. Deletes the key with the last of them.",
     .syntax = "key:key min:string max:string", .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_DELETE)}},
    {.name = NULL},
};
