/* geo.c: positions in sorted sets: GEOADD, GEODIST, GEOHASH, GEOPOS; geo_search.c has the searches. A position is a
 * member whose score is its geohash (commands/geo/geohash.h), so all sorted set commands work on positions. */
#include "commands/geo/geo.h"
#include "commands/zset/zset_common.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"

bool argument_point(struct call *call, int index, struct geo_point *point) {
    if (!parse_double(call->argv[index], &point->longitude) || !parse_double(call->argv[index + 1], &point->latitude))
        return reply_error(call->reply, "ERR value is not a valid float");
    if (geo_is_valid(*point)) return true;
    return reply_error_format(call->reply, "ERR invalid longitude,latitude pair %f,%f", point->longitude,
                              point->latitude);
}

bool argument_unit(struct call *call, int index, double *meters) {
    struct slice unit = call->argv[index];
    *meters = slice_is(unit, "m")    ? 1
              : slice_is(unit, "km") ? 1000
              : slice_is(unit, "ft") ? 0.3048
              : slice_is(unit, "mi") ? 1609.34
                                     : 0;
    if (*meters == 0) reply_error(call->reply, "ERR unsupported unit provided. please use M, KM, FT, MI");
    return *meters != 0;
}

void reply_distance(struct reply *reply, double distance) {
    char text[DOUBLE_TEXT_MAX];
    reply_bulk(reply, (struct slice){text, format_fixed(text, distance, 4)});
}

static void reply_coordinate(struct reply *reply, double value) {
    char text[DOUBLE_TEXT_MAX + 4];
    size_t len = format_long_double(text + 1, value);
    if (reply->protocol == 2) {
        reply_bulk(reply, (struct slice){text + 1, len});
        return;
    }
    text[0] = ',';
    memcpy(text + 1 + len, "\r\n", 2);
    reply_raw(reply, (struct slice){text, len + 3});
}
void reply_point(struct reply *reply, struct geo_point point) {
    reply_array(reply, 2);
    reply_coordinate(reply, point.longitude);
    reply_coordinate(reply, point.latitude);
}

/* --- GEOADD: executed and propagated as ZADD --- */

static void geoadd_run(struct call *call) {
    bool nx = false, xx = false;
    int at = 2;
    for (; at < call->argc; at++) {
        if (slice_is(call->argv[at], "nx"))
            nx = true;
        else if (slice_is(call->argv[at], "xx"))
            xx = true;
        else if (!slice_is(call->argv[at], "ch"))
            break;
    }
    if ((call->argc - at) % 3 || (nx && xx)) {
        reply_syntax_error(call->reply);
        return;
    }
    int count = (call->argc - at) / 3, argc = at + 2 * count;
    struct slice *argv = mem_alloc((size_t)argc * sizeof *argv);
    char(*scores)[NUMBER_TEXT_MAX] = mem_alloc(((size_t)count + 1) * sizeof *scores);
    argv[0] = SLICE("ZADD");
    for (int i = 1; i < at; i++) argv[i] = call->argv[i];
    bool good = true;
    for (int i = 0; i < count && good; i++) {
        struct geo_point point;
        good = argument_point(call, at + 3 * i, &point);
        if (!good) break;
        argv[at + 2 * i] = (struct slice){scores[i], format_uint64(scores[i], geo_encode(point))};
        argv[at + 2 * i + 1] = call->argv[at + 3 * i + 2];
    }
    if (good) {
        const struct slice *own = call->argv;
        int own_count = call->argc;
        call->argv = argv;
        call->argc = argc;
        zadd_run(call);
        call->argv = own;
        call->argc = own_count;
        if (call->dirty) call_propagate(call, argc, argv);
    }
    mem_free(scores);
    mem_free(argv);
}

static bool member_point(const struct zset *zset, struct slice member, struct geo_point *point) {
    double score;
    if (!zset_score(zset, member, &score)) return false;
    *point = geo_decode_score(score);
    return true;
}

static void geodist_run(struct call *call) {
    double meters = 1;
    if (call->argc == 5) {
        if (!argument_unit(call, 4, &meters)) return;
    } else if (call->argc > 5) {
        reply_syntax_error(call->reply);
        return;
    }
    struct entry *entry;
    struct zset zset;
    struct geo_point a, b;
    if (!find_zset(call, call->argv[1], &entry, &zset)) return;
    if (!entry || !member_point(&zset, call->argv[2], &a) || !member_point(&zset, call->argv[3], &b))
        reply_null(call->reply);
    else
        reply_distance(call->reply, geo_distance(a, b) / meters);
}

static void geohash_run(struct call *call) {
    struct entry *entry;
    struct zset zset;
    struct geo_point point;
    char text[GEOHASH_TEXT];
    if (!find_zset(call, call->argv[1], &entry, &zset)) return;
    reply_array(call->reply, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++) {
        if (!entry || !member_point(&zset, call->argv[i], &point)) {
            reply_null(call->reply);
        } else {
            geo_text(point, text);
            reply_bulk_text(call->reply, text);
        }
    }
}

static void geopos_run(struct call *call) {
    struct entry *entry;
    struct zset zset;
    struct geo_point point;
    if (!find_zset(call, call->argv[1], &entry, &zset)) return;
    reply_array(call->reply, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++) {
        if (!entry || !member_point(&zset, call->argv[i], &point))
            reply_null_array(call->reply);
        else
            reply_point(call->reply, point);
    }
}

const struct command_spec geo_commands[] = {
    {COMMAND("geoadd", geoadd_run, -5, CMD_WRITE | CMD_DENYOOM, ON_GEO, "3.2.0"),
     .complexity = "O(log(N)) for each position, where N is the number of members",
     .summary = "Adds positions to a sorted set, which is created if it does not exist.",
     .syntax =
         "key:key [condition(NX|XX)@6.2.0] [change=CH@6.2.0] data{longitude:double latitude:double member:string}...",
     .history = WORDS("6.2.0", "`CH`, `NX` and `XX`."), .keys = FIRST_KEY(KEY_RW | KEY_UPDATE)},
    {COMMAND("geodist", geodist_run, -4, CMD_READONLY, ON_GEO, "3.2.0"), .complexity = "O(1)",
     .summary = "Returns the distance between two positions.",
     .syntax = "key:key member1:string member2:string [unit(M|KM|FT|MI)]", .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("geohash", geohash_run, -2, CMD_READONLY, ON_GEO, "3.2.0"), .complexity = "O(1) for each member",
     .summary = "Returns positions as geohash strings.", .syntax = "key:key [member:string]...",
     .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("geopos", geopos_run, -2, CMD_READONLY, ON_GEO, "3.2.0"), .complexity = "O(1) for each member",
     .summary = "Returns the longitude and latitude of positions.", .syntax = "key:key [member:string]...",
     .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {.name = NULL},
};
