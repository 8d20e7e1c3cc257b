/* zset.c: the commands on members of one sorted set. zset_range.c has the ranges, zset_algebra.c the operations on
 * several sorted sets. */
#include "commands/signed_count.h"
#include "commands/value_scan.h"
#include "commands/zset/zset_common.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"
#include <math.h>
#include <stdio.h>

void zset_members_removed(struct call *call, struct slice key, struct entry *entry, const struct zset *zset,
                          const char *event) {
    zset_keep(call->db, entry, zset);
    key_elements_removed(call, key, zset_len(zset) == 0, NOTIFY_ZSET, event);
}

void zset_store_result(struct call *call, struct slice key, struct zset *zset, const char *event) {
    size_t len = zset_len(zset);
    if (len) {
        bool existed = find_replace(call, key);
        if (existed) db_delete_as(call->db, key, store_settings.lazy_server_del, REMOVAL_OVERWRITTEN);
        db_add_value(call->db, key, TYPE_ZSET, zset->encoding, zset->value);
        if (!existed) notify(call->db, NOTIFY_NEW, "new", key);
        notify(call->db, NOTIFY_ZSET, event, key);
        call->dirty++;
    } else {
        zset_free(zset);
        delete_destination(call, key);
    }
    reply_integer(call->reply, (int64_t)len);
}

/* --- Adding --- */

struct add_options {
    unsigned conditions;
    bool changed; /* CH */
    int first;    /* index of the first score in argv */
};

/* Reads the options from argv[2] on. False: replied with an error. */
static bool add_options_read(struct call *call, struct add_options *options) {
    int i = 2;
    for (; i < call->argc; i++) {
        struct slice word = call->argv[i];
        if (slice_is(word, "nx"))
            options->conditions |= ZSET_NX;
        else if (slice_is(word, "xx"))
            options->conditions |= ZSET_XX;
        else if (slice_is(word, "ch"))
            options->changed = true;
        else if (slice_is(word, "incr"))
            options->conditions |= ZSET_INCREMENT;
        else if (slice_is(word, "gt"))
            options->conditions |= ZSET_GT;
        else if (slice_is(word, "lt"))
            options->conditions |= ZSET_LT;
        else
            break;
    }
    options->first = i;
    unsigned c = options->conditions;
    int left = call->argc - i;
    if (left == 0 || left % 2) {
        reply_syntax_error(call->reply);
    } else if ((c & ZSET_NX) && (c & ZSET_XX)) {
        reply_error(call->reply, "ERR XX and NX options at the same time are not compatible");
    } else if (((c & ZSET_GT) && (c & (ZSET_NX | ZSET_LT))) || ((c & ZSET_LT) && (c & ZSET_NX))) {
        reply_error(call->reply, "ERR GT, LT, and/or NX options at the same time are not compatible");
    } else if ((c & ZSET_INCREMENT) && left > 2) {
        reply_error(call->reply, "ERR INCR option supports a single increment-element pair");
    } else {
        return true;
    }
    return false;
}

enum { SCORES_INLINE = 64 };
/* Reads the scores into `inline_scores` or an allocation; NULL: one is invalid; replied with the error. */
static double *scores_read(struct call *call, int first, double inline_scores[static SCORES_INLINE]) {
    size_t count = (size_t)(call->argc - first) / 2;
    double *scores = count <= SCORES_INLINE ? inline_scores : mem_alloc(count * sizeof *scores);
    for (size_t i = 0; i < count; i++) {
        if (parse_double(call->argv[(size_t)first + 2 * i], &scores[i])) continue;
        reply_error(call->reply, "ERR value is not a valid float");
        if (scores != inline_scores) mem_free(scores);
        return NULL;
    }
    return scores;
}

/* Adds the pairs of the call to the sorted set. False: replied with an error; pairs already added remain. */
static bool add_pairs(struct call *call, const struct add_options *options, const double *scores, uint64_t *added,
                      uint64_t *updated, bool *processed, double *now) {
    struct slice key = call->argv[1];
    struct entry *entry;
    struct zset zset;
    if (!find_zset_write(call, key, &entry, &zset)) return false;
    if (!entry && (options->conditions & ZSET_XX)) return true;
    size_t count = (size_t)(call->argc - options->first) / 2, longest = 0, i;
    for (i = 0; i < count; i++) {
        size_t len = call->argv[(size_t)options->first + 2 * i + 1].len;
        if (len > longest) longest = len;
    }
    if (entry)
        zset_expect(&zset, count, longest);
    else
        zset = zset_new(count, longest);
    enum zset_result result = ZSET_NOTHING;
    for (i = 0; i < count && result != ZSET_NAN; i++) {
        result = zset_put(&zset, scores[i], call->argv[(size_t)options->first + 2 * i + 1], options->conditions, now);
        *added += result == ZSET_ADDED;
        *updated += result == ZSET_UPDATED;
        *processed |= result != ZSET_NOTHING && result != ZSET_NAN;
    }
    if (entry) {
        zset_keep(call->db, entry, &zset);
        if (*added || *updated) db_changed(call->db, key);
    } else if (zset_len(&zset)) {
        db_add_value(call->db, key, TYPE_ZSET, zset.encoding, zset.value);
        notify(call->db, NOTIFY_NEW, "new", key);
    } else {
        zset_free(&zset);
    }
    if (result == ZSET_NAN) reply_error(call->reply, "ERR resulting score is not a number (NaN)");
    return result != ZSET_NAN;
}

static void zset_add(struct call *call, const struct add_options *options) {
    double inline_scores[SCORES_INLINE], *scores = scores_read(call, options->first, inline_scores), now = 0;
    if (!scores) return;
    uint64_t added = 0, updated = 0;
    bool processed = false, increment = options->conditions & ZSET_INCREMENT;
    bool done = add_pairs(call, options, scores, &added, &updated, &processed, &now);
    if (scores != inline_scores) mem_free(scores);
    if (done && !increment)
        reply_integer(call->reply, (int64_t)(options->changed ? added + updated : added));
    else if (done && processed)
        reply_double(call->reply, now);
    else if (done)
        reply_null(call->reply);
    call->dirty += added + updated;
    if (added || updated) notify(call->db, NOTIFY_ZSET, increment ? "zincr" : "zadd", call->argv[1]);
}
void zadd_run(struct call *call) {
    struct add_options options = {0};
    if (add_options_read(call, &options)) zset_add(call, &options);
}
static void zincrby_run(
    struct call *call) { /* an increment that is an option name of ZADD is parsed as one, which leaves no pair */
    struct add_options options = {.conditions = ZSET_INCREMENT};
    if (add_options_read(call, &options)) zset_add(call, &options);
}

static void zrem_run(struct call *call) {
    struct entry *entry;
    struct zset zset;
    int64_t removed = 0;
    if (!find_zset_write(call, call->argv[1], &entry, &zset)) return;
    for (int i = 2; entry && i < call->argc && zset_len(&zset); i++) removed += zset_remove(&zset, call->argv[i]);
    if (removed) zset_members_removed(call, call->argv[1], entry, &zset, "zrem");
    call->dirty += (uint64_t)removed;
    reply_integer(call->reply, removed);
}

/* --- Scores and ranks --- */

static void zcard_run(struct call *call) {
    struct entry *entry;
    struct zset zset;
    if (find_zset(call, call->argv[1], &entry, &zset)) reply_integer(call->reply, entry ? (int64_t)zset_len(&zset) : 0);
}
static void reply_score(struct call *call, const struct entry *entry, const struct zset *zset, struct slice member) {
    double score;
    if (entry && zset_score(zset, member, &score))
        reply_double(call->reply, score);
    else
        reply_null(call->reply);
}
static void zscore_run(struct call *call) {
    struct entry *entry;
    struct zset zset;
    if (find_zset(call, call->argv[1], &entry, &zset)) reply_score(call, entry, &zset, call->argv[2]);
}
static void zmscore_run(struct call *call) {
    struct entry *entry;
    struct zset zset;
    if (!find_zset(call, call->argv[1], &entry, &zset)) return;
    reply_array(call->reply, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++) reply_score(call, entry, &zset, call->argv[i]);
}

static void rank(struct call *call, bool reverse) {
    struct entry *entry;
    struct zset zset;
    size_t place;
    double score;
    if (call->argc > 4) {
        reply_error_format(call->reply, "ERR wrong number of arguments for '%s' command", call->command->full_name);
        return;
    }
    bool with_score = call->argc == 4;
    if (with_score && !slice_is(call->argv[3], "withscore")) {
        reply_syntax_error(call->reply);
        return;
    }
    if (!find_zset(call, call->argv[1], &entry, &zset)) return;
    if (!entry || !zset_rank(&zset, call->argv[2], &place, &score)) {
        if (with_score)
            reply_null_array(call->reply);
        else
            reply_null(call->reply);
        return;
    }
    if (reverse) place = zset_len(&zset) - 1 - place;
    if (with_score) reply_array(call->reply, 2);
    reply_integer(call->reply, (int64_t)place);
    if (with_score) reply_double(call->reply, score);
}
static void zrank_run(struct call *call) {
    rank(call, false);
}
static void zrevrank_run(struct call *call) {
    rank(call, true);
}

/* --- Popping --- */

enum pairs { PAIRS_FLAT, PAIRS_BY_PROTOCOL, PAIRS_NESTED };

/* Replies with the members of the lowest or highest scores, the outermost first, and removes them; returns their
 * number. */
static size_t pop_items(struct call *call, struct slice key, struct entry *entry, struct zset *zset, bool highest,
                        size_t count, enum pairs pairs) {
    struct zset_iterator it;
    struct zset_item item;
    size_t len = zset_len(zset);
    if (count > len) count = len;
    bool nested = pairs == PAIRS_NESTED || (pairs == PAIRS_BY_PROTOCOL && call->reply->protocol > 2);
    reply_array(call->reply, nested ? count : count * 2);
    zset_iterate(&it, zset, highest ? len - 1 : 0, highest);
    for (size_t i = 0; i < count && zset_next(&it, &item); i++) {
        if (nested) reply_array(call->reply, 2);
        reply_element(call->reply, &item.member);
        reply_double(call->reply, item.score);
    }
    if (!count) return 0;
    zset_delete(zset, highest ? len - count : 0, count);
    zset_members_removed(call, key, entry, zset, highest ? "zpopmax" : "zpopmin");
    call->dirty += count;
    return count;
}
static void pop(struct call *call, bool highest) {
    struct entry *entry;
    struct zset zset;
    int64_t count = 1;
    if (call->argc > 3) {
        reply_syntax_error(call->reply);
        return;
    }
    if (call->argc == 3 && (!parse_int64(call->argv[2], &count) || count < 0)) {
        reply_error(call->reply, "ERR value is out of range, must be positive");
        return;
    }
    if (!find_zset_write(call, call->argv[1], &entry, &zset)) return;
    if (!entry)
        reply_array(call->reply, 0);
    else
        pop_items(call, call->argv[1], entry, &zset, highest, (size_t)count,
                  call->argc == 3 ? PAIRS_BY_PROTOCOL : PAIRS_FLAT);
}
static void zpopmin_run(struct call *call) {
    pop(call, false);
}
static void zpopmax_run(struct call *call) {
    pop(call, true);
}

static size_t pop_nested(struct call *call, struct slice key, struct entry *entry, int end, size_t count) {
    struct zset zset = zset_of(entry);
    return pop_items(call, key, entry, &zset, end, count, PAIRS_NESTED);
}
static void pop_one(struct call *call, struct slice key, struct entry *entry, int highest) {
    struct zset zset = zset_of(entry);
    struct zset_iterator it;
    struct zset_item item;
    size_t len = zset_len(&zset);
    zset_iterate(&it, &zset, highest ? len - 1 : 0, highest);
    zset_next(&it, &item);
    reply_array(call->reply, 3);
    reply_bulk(call->reply, key);
    reply_element(call->reply, &item.member);
    reply_double(call->reply, item.score);
    zset_delete(&zset, highest ? len - 1 : 0, 1);
    zset_members_removed(call, key, entry, &zset, highest ? "zpopmax" : "zpopmin");
    call->dirty++;
}
const struct multi_pop_kind zset_multi_pop = {TYPE_ZSET, {"min", "max"}, {"ZPOPMIN", "ZPOPMAX"}, pop_nested, pop_one};
static void zmpop_run(struct call *call) {
    multi_pop(call, &zset_multi_pop);
}

/* --- Random members --- */

struct zset_random_reply {
    struct reply *reply;
    bool scores;
};
static void reply_random(void *context, const struct zset_item *item) {
    const struct zset_random_reply *r = context;
    reply_item(r->reply, item, r->scores);
}
static void random_members(struct call *call, int64_t wanted, bool scores) {
    struct entry *entry;
    struct zset zset;
    struct zset_item item;
    if (!find_zset(call, call->argv[1], &entry, &zset)) return;
    struct zset_random_reply r = {call->reply, scores};
    size_t len = entry ? zset_len(&zset) : 0;
    if (len == 0 || wanted == 0) {
        reply_array(call->reply, 0);
    } else if (wanted < 0) {
        reply_items(call->reply, (size_t)-wanted, scores);
        for (; wanted < 0 && reply_continues(call, wanted); wanted++) {
            zset_random(&zset, &item);
            reply_random(&r, &item);
        }
    } else if ((uint64_t)wanted < len) {
        reply_items(call->reply, (size_t)wanted, scores);
        zset_sample(&zset, (size_t)wanted, reply_random, &r);
    } else {
        struct zset_iterator it;
        reply_items(call->reply, len, scores);
        zset_iterate(&it, &zset, len - 1, true);
        while (zset_next(&it, &item)) reply_random(&r, &item);
    }
}
static void zrandmember_run(struct call *call) {
    if (call->argc > 2) {
        int64_t wanted;
        if (!signed_count_read(call, 2, &wanted)) return;
        if (call->argc > 4 || (call->argc == 4 && !slice_is(call->argv[3], "withscores")))
            reply_syntax_error(call->reply);
        else if (call->argc == 4 && (wanted < -INT64_MAX / 2 || wanted > INT64_MAX / 2))
            reply_error(call->reply, "ERR value is out of range");
        else
            random_members(call, wanted, call->argc == 4);
        return;
    }
    struct entry *entry;
    struct zset zset;
    struct zset_item item;
    if (!find_zset(call, call->argv[1], &entry, &zset)) return;
    if (!entry) {
        reply_null(call->reply);
        return;
    }
    zset_random(&zset, &item);
    reply_element(call->reply, &item.member);
}

/* --- ZSCAN --- */

/* Members of a skiplist are shown with all 17 digits of their scores, as in Valkey; those of a listpack as stored. */
static size_t score_digits(char text[static 40], double score) {
    if (fabs(score) < 1e17 && (double)(int64_t)score == score) return format_double(text, score);
    return (size_t)snprintf(text, 40, "%.17g", score);
}
static void reply_scanned(struct value_scan *scan, const struct zset_item *item,
                          size_t (*shown)(char text[static 40], double)) {
    char number[LISTPACK_TEXT], score[40];
    struct slice member = {item->member.data, item->member.len};
    if (!member.data) member = (struct slice){number, format_int64(number, item->member.number)};
    if (!value_scan_wants(scan, member, scan->names_only ? 1 : 2)) return;
    reply_bulk(scan->reply, member);
    if (!scan->names_only) reply_bulk(scan->reply, (struct slice){score, shown(score, item->score)});
}
static void scan_seen_packed(void *scan, const struct zset_item *item) {
    reply_scanned(scan, item, format_double);
}
static void scan_seen(void *scan, const struct zset_item *item) {
    reply_scanned(scan, item, score_digits);
}
static uint64_t scan_step(const struct entry *entry, uint64_t cursor, struct value_scan *scan) {
    struct zset zset = zset_of(entry);
    return zset_scan(&zset, cursor, zset.encoding == ENCODING_LISTPACK ? scan_seen_packed : scan_seen, scan);
}
static void zscan_run(struct call *call) {
    uint64_t cursor;
    struct entry *entry;
    struct value_scan scan;
    if (value_scan_find(call, TYPE_ZSET, &cursor, &entry) && value_scan_options(call, &scan, SCAN_NO_SCORES))
        value_scan_run(call, &scan, cursor, entry, scan_step);
}

const struct command_spec zset_commands[] = {
    {COMMAND("zadd", zadd_run, -4, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_SORTED_SETS, "1.2.0"),
     .complexity = "O(log(N)) for each member, where N is the number of members.",
     .summary = "Adds members to a sorted set, or changes their scores.",
     .syntax = "key:key [condition(NX|XX)@3.0.2] [comparison(GT|LT)@6.2.0] [change=CH@3.0.2] "
               "[increment=INCR@3.0.2] data{score:double member:string}...",
     .history = WORDS("2.4.0", "Takes several pairs of `score` and `member`.", "3.0.2",
                      "The options `XX`, `NX`, `CH` and `INCR`.", "6.2.0", "The options `GT` and `LT`."),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_UPDATE)}},
    {COMMAND("zincrby", zincrby_run, 4, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_SORTED_SETS, "1.2.0"),
     .complexity = "O(log(N)) where N is the number of members.",
     .summary = "Increments the score of a member by a number; a missing member has the score 0.",
     .syntax = "key:key increment:integer member:string",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_UPDATE)}},
    {COMMAND("zrem", zrem_run, -3, CMD_WRITE | CMD_FAST, ON_SORTED_SETS, "1.2.0"),
     .complexity = "O(M*log(N)) where N is the number of members and M is the number given.",
     .summary = "Removes members, and the key with the last of them.", .syntax = "key:key member:string...",
     .history = WORDS("2.4.0", "Takes several `member` arguments."), .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_DELETE)}},
    {COMMAND("zcard", zcard_run, 2, CMD_READONLY | CMD_FAST, ON_SORTED_SETS, "1.2.0"), .complexity = "O(1)",
     .summary = "Returns the number of members in a sorted set.", .syntax = "key:key",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO)}},
    {COMMAND("zscore", zscore_run, 3, CMD_READONLY | CMD_FAST, ON_SORTED_SETS, "1.2.0"), .complexity = "O(1)",
     .summary = "Returns the score of a member.", .syntax = "key:key member:string",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zmscore", zmscore_run, -3, CMD_READONLY | CMD_FAST, ON_SORTED_SETS, "6.2.0"),
     .complexity = "O(M) where M is the number of members requested.", .summary = "Returns the scores of members.",
     .syntax = "key:key member:string...", .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zrank", zrank_run, -3, CMD_READONLY | CMD_FAST, ON_SORTED_SETS, "2.0.0"),
     .complexity = "O(log(N)) where N is the number of members.",
     .summary = "Returns the rank of a member, counted from the lowest score.",
     .syntax = "key:key member:string [WITHSCORE]", .history = WORDS("7.2.0", "The option `WITHSCORE`."),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zrevrank", zrevrank_run, -3, CMD_READONLY | CMD_FAST, ON_SORTED_SETS, "2.0.0"),
     .complexity = "O(log(N)) where N is the number of members.",
     .summary = "Returns the rank of a member, counted from the highest score.",
     .syntax = "key:key member:string [WITHSCORE]", .history = WORDS("7.2.0", "The option `WITHSCORE`."),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zpopmin", zpopmin_run, -2, CMD_WRITE | CMD_FAST, ON_SORTED_SETS, "5.0.0"),
     .complexity = "O(M*log(N)) where N is the number of members and M is the number removed.",
     .summary = "Removes the members with the lowest scores and returns them. Deletes the key with the "
                "last of them.",
     .syntax = "key:key [count:integer]", .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_DELETE)}},
    {COMMAND("zpopmax", zpopmax_run, -2, CMD_WRITE | CMD_FAST, ON_SORTED_SETS, "5.0.0"),
     .complexity = "O(M*log(N)) where N is the number of members and M is the number removed.",
     .summary = "Removes the members with the highest scores and returns them. Deletes the key with the "
                "last of them.",
     .syntax = "key:key [count:integer]", .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_DELETE)}},
    {COMMAND("zmpop", zmpop_run, -4, CMD_WRITE | CMD_MOVABLE_KEYS, ON_SORTED_SETS, "7.0.0"),
     .complexity = "O(K)+O(M*log(N)) where K is the number of keys given, N is the number of members in the sorted set "
                   "and M is the number removed.",
     .summary = "Removes the members with the highest or lowest scores of the first sorted set that is "
                "not empty, and returns them.",
     .syntax = "numkeys:integer key:key... where(MIN|MAX) [COUNT count:integer]",
     .keys = {KEY_COUNTED(1, KEY_RW | KEY_ACCESS | KEY_DELETE)}},
    {COMMAND("zrandmember", zrandmember_run, -2, CMD_READONLY, ON_SORTED_SETS, "6.2.0"),
     .complexity = "O(N) where N is the number of members returned.",
     .summary = "Returns random members, with their scores if requested.",
     .syntax = "key:key [options{count:integer [WITHSCORES]}]", .tips = WORDS("nondeterministic_output"),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("zscan", zscan_run, -3, CMD_READONLY, ON_SORTED_SETS, "2.8.0"),
     .complexity = "O(1) for each call. O(N) for a whole walk, of as many calls as it takes until the cursor is 0 "
                   "again. N is the number of members.",
     .summary = "Iterates over the members and scores of a sorted set, a few with each call.",
     .syntax = "key:key cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [NOSCORES]",
     .history = WORDS("8.0.0", "The option `NOSCORES`."), .tips = WORDS("nondeterministic_output"),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {.name = NULL},
};
