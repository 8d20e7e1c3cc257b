/* geo_search.c: GEOSEARCH, GEOSEARCHSTORE and their older forms GEORADIUS and GEORADIUSBYMEMBER with the read-only
 * variants.
 *
 * Distances to a polygon are measured from the mean of its corners.
 *
 * Up to nine cells cover the shape, each a range of scores; every member of these ranges is checked. */
#include "commands/geo/geo.h"
#include "commands/zset/zset_common.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"
#include <stdlib.h>

enum geo_search_form { FORM_SEARCH, FORM_SEARCH_STORE, FORM_RADIUS, FORM_RADIUS_RO, FORM_MEMBER, FORM_MEMBER_RO };

struct search {
    enum geo_search_form form;
    struct slice source;
    struct geo_shape shape;
    struct geo_point *corners; /* of a polygon; owned by this struct */
    double unit;               /* meters */
    const struct slice *store; /* NULL: reply with the result */
    bool store_distances, with_distance, with_hash, with_point, has_from, has_by, any;
    enum { SORT_NONE, SORT_ASCENDING, SORT_DESCENDING } sort;
    int64_t count; /* 0: all */
};
struct geo_found {
    struct listpack_value member;
    double score, distance;
    struct geo_point point;
};
struct results {
    struct geo_found *items;
    size_t count, capacity;
    bool other_choice; /* others could have been chosen: the command does not determine them */
};

/* --- Arguments --- */

static bool read_length(struct call *call, int index, const char *what, double *length) {
    if (parse_double(call->argv[index], length)) return true;
    return reply_error_format(call->reply, "ERR need numeric %s", what);
}

static bool read_radius(struct call *call, int index, struct search *search) {
    if (!read_length(call, index, "radius", &search->shape.radius)) return false;
    if (search->shape.radius < 0) return reply_error(call->reply, "ERR radius cannot be negative");
    if (!argument_unit(call, index + 1, &search->unit)) return false;
    search->shape.radius *= search->unit;
    return search->has_by = true;
}

static bool read_box(struct call *call, int index, struct search *search) {
    struct geo_shape *shape = &search->shape;
    if (!read_length(call, index, "width", &shape->width) || !read_length(call, index + 1, "height", &shape->height))
        return false;
    if (shape->width < 0 || shape->height < 0)
        return reply_error(call->reply, "ERR height or width cannot be negative");
    if (!argument_unit(call, index + 2, &search->unit)) return false;
    shape->width *= search->unit;
    shape->height *= search->unit;
    shape->form = GEO_BOX;
    return search->has_by = true;
}

/* Reads the number of corners and the corners. Returns the number of arguments; 0: replied with an error. */
static int read_polygon(struct call *call, int index, struct search *search) {
    int64_t count;
    if (!parse_int64(call->argv[index], &count) || count != (int32_t)count) {
        reply_error(call->reply, "ERR invalid number of vertices");
        return 0;
    }
    if (count < 3 || count > (call->argc - index - 1) / 2) {
        reply_error(call->reply, "ERR GEOSEARCH BYPOLYGON must have at least 3 vertices");
        return 0;
    }
    search->corners = mem_alloc((size_t)count * sizeof *search->corners);
    for (int i = 0; i < count; i++)
        if (!argument_point(call, index + 1 + 2 * i, &search->corners[i])) return 0;
    geo_polygon(&search->shape, search->corners, (size_t)count);
    search->unit = 1;
    search->has_by = true;
    return 1 + 2 * (int)count;
}

/* A missing key has no members, so the search finds nothing, whatever its center. */
static bool read_member(struct call *call, int index, struct search *search, const struct zset *zset) {
    double score;
    search->has_from = true;
    if (!zset) return true;
    if (!zset_score(zset, call->argv[index], &score)) {
        struct slice member = call->argv[index];
        return reply_error_format(call->reply, "ERR member %.*s does not exist", shown_len(member), member.data);
    }
    search->shape.center = geo_decode_score(score);
    return true;
}

static bool read_count(struct call *call, int index, struct search *search) {
    if (!argument_int64(call, index, &search->count)) return false;
    if (search->count > 0) return true;
    return reply_error(call->reply, "ERR COUNT must be > 0");
}

/* Reads the option at argv[i]. Returns its number of arguments; 0: replied with an error. */
static int read_option(struct call *call, int i, struct search *search, const struct zset *zset) {
    struct slice word = call->argv[i];
    int left = call->argc - i - 1;
    bool searching = search->form <= FORM_SEARCH_STORE,
         may_store = search->form == FORM_RADIUS || search->form == FORM_MEMBER;
    if (slice_is(word, "withdist")) return search->with_distance = true;
    if (slice_is(word, "withhash")) return search->with_hash = true;
    if (slice_is(word, "withcoord")) return search->with_point = true;
    if (slice_is(word, "any")) return search->any = true;
    if (slice_is(word, "asc")) return search->sort = SORT_ASCENDING, 1;
    if (slice_is(word, "desc")) return search->sort = SORT_DESCENDING, 1;
    if (slice_is(word, "count") && left >= 1) return read_count(call, i + 1, search) ? 2 : 0;
    if (may_store && left >= 1 && (slice_is(word, "store") || slice_is(word, "storedist"))) {
        search->store = &call->argv[i + 1];
        search->store_distances = slice_is(word, "storedist");
        return 2;
    }
    if (searching && left >= 1 && !search->has_from && !search->corners && slice_is(word, "frommember"))
        return read_member(call, i + 1, search, zset) ? 2 : 0;
    if (searching && left >= 2 && !search->has_from && !search->corners && slice_is(word, "fromlonlat"))
        return argument_point(call, i + 1, &search->shape.center) ? (search->has_from = true, 3) : 0;
    if (searching && left >= 2 && !search->has_by && slice_is(word, "byradius"))
        return read_radius(call, i + 1, search) ? 3 : 0;
    if (searching && left >= 3 && !search->has_by && slice_is(word, "bybox"))
        return read_box(call, i + 1, search) ? 4 : 0;
    if (searching && left >= 1 && !search->has_by && !search->has_from && slice_is(word, "bypolygon")) {
        int words = read_polygon(call, i + 1, search);
        return words ? 1 + words : 0;
    }
    if (search->form == FORM_SEARCH_STORE && slice_is(word, "storedist")) return search->store_distances = true;
    reply_syntax_error(call->reply);
    return 0;
}

static bool complete(struct call *call, struct search *search) {
    struct slice typed = call->argv[0]; /* as Valkey's texts have it */
    if (search->store && (search->with_distance || search->with_hash || search->with_point))
        reply_error_format(call->reply, "ERR %s is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
                           search->form == FORM_SEARCH_STORE ? "GEOSEARCHSTORE" : "STORE option in GEORADIUS");
    else if (!search->corners && !search->has_from)
        reply_error_format(call->reply, "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for %.*s",
                           (int)typed.len, typed.data);
    else if (!search->has_by)
        reply_error_format(call->reply, "ERR exactly one of BYRADIUS, BYBOX and BYPOLYGON can be specified for %.*s",
                           (int)typed.len, typed.data);
    else if (search->any && !search->count)
        reply_error(call->reply, "ERR the ANY argument requires COUNT argument");
    else
        return true;
    return false;
}

/* Reads the fixed arguments and the options. */
static bool search_read(struct call *call, struct search *search, const struct zset *zset) {
    int at = search->form == FORM_SEARCH_STORE ? 3 : 2;
    if (search->form == FORM_RADIUS || search->form == FORM_RADIUS_RO) {
        if (!argument_point(call, 2, &search->shape.center) || !read_radius(call, 4, search)) return false;
        search->has_from = true;
        at = 6;
    } else if (search->form >= FORM_MEMBER) {
        if (!read_member(call, 2, search, zset) || (zset && !read_radius(call, 3, search))) return false;
        search->has_by = true; /* for a missing key the radius is not validated */
        at = 5;
    }
    while (at < call->argc) {
        int words = read_option(call, at, search, zset);
        if (!words) return false;
        at += words;
    }
    /* With COUNT and without ANY, the nearest members win. */
    if (search->count && !search->any && search->sort == SORT_NONE) search->sort = SORT_ASCENDING;
    return complete(call, search);
}

/* --- Searching --- */

/* False: enough members found. */
static bool search_range(const struct search *search, const struct zset *zset, struct geo_range range,
                         struct results *results) {
    struct zset_bound low = {.kind = BOUND_SCORE, .score = (double)range.low},
                      high = {.kind = BOUND_SCORE, .score = (double)range.high, .exclusive = true};
    struct zset_iterator it;
    struct zset_item item;
    size_t first, count = zset_between(zset, &low, &high, false, 0, &first);
    if (!count) return true;
    zset_iterate(&it, zset, first, false);
    while (count-- && zset_next(&it, &item)) {
        struct geo_found found = {.member = item.member, .score = item.score, .point = geo_decode_score(item.score)};
        if (!geo_contains(&search->shape, found.point, &found.distance)) continue;
        mem_grow(results->items, results->count, results->capacity, 64);
        results->items[results->count++] = found;
        if (search->any && results->count >= (size_t)search->count) return false;
    }
    return true;
}

static int nearer(const void *a, const void *b) {
    double x = ((const struct geo_found *)a)->distance, y = ((const struct geo_found *)b)->distance;
    return (x > y) - (x < y);
}
static int farther(const void *a, const void *b) {
    return nearer(b, a);
}

static void search_all(const struct search *search, const struct zset *zset, struct results *results) {
    struct geo_range ranges[GEO_CELLS];
    int count = geo_ranges(&search->shape, ranges);
    for (int i = 0; i < count; i++)
        if (!search_range(search, zset, ranges[i], results)) break;
    if (search->sort != SORT_NONE && results->count)
        qsort(results->items, results->count, sizeof *results->items,
              search->sort == SORT_ASCENDING ? nearer : farther);
    size_t most = (size_t)search->count;
    if (!most || results->count < most) return;
    /* ANY keeps those that are found first. */
    results->other_choice =
        search->any || (results->count > most && results->items[most - 1].distance == results->items[most].distance);
    results->count = most;
}

/* --- Replying --- */

static void reply_results(struct call *call, const struct search *search, const struct results *results) {
    struct reply *reply = call->reply;
    size_t words = 1u + search->with_distance + search->with_hash + search->with_point;
    reply_array(reply, results->count);
    for (size_t i = 0; i < results->count; i++) {
        const struct geo_found *found = &results->items[i];
        if (words > 1) reply_array(reply, words);
        reply_element(reply, &found->member);
        if (search->with_distance) reply_distance(reply, found->distance / search->unit);
        if (search->with_hash) reply_integer(reply, (int64_t)found->score);
        if (search->with_point) reply_point(reply, found->point);
    }
}

/* Propagates the stored members instead of the command: another server may choose others that are as near. */
static void propagate_members(struct call *call, struct slice key, const struct zset *zset) {
    enum { BATCH = 64, SCORE_TEXT = 40 };
    char scores[BATCH][SCORE_TEXT], members[BATCH][LISTPACK_TEXT];
    struct slice argv[2 * BATCH + 2] = {SLICE("DEL"), key};
    struct zset_iterator it;
    struct zset_item item;
    int count = 0;
    call_propagate(call, 2, argv);
    argv[0] = SLICE("ZADD");
    zset_iterate(&it, zset, 0, false);
    while (zset_next(&it, &item)) {
        argv[2 + 2 * count] = (struct slice){scores[count], format_double(scores[count], item.score)};
        argv[3 + 2 * count] = listpack_value_text(&item.member, members[count]);
        if (++count < BATCH) continue;
        call_propagate(call, 2 + 2 * count, argv);
        count = 0;
    }
    if (count) call_propagate(call, 2 + 2 * count, argv);
}

static void store_results(struct call *call, const struct search *search, const struct results *results) {
    size_t longest = 0;
    char text[LISTPACK_TEXT];
    double now;
    for (size_t i = 0; i < results->count; i++)
        if (results->items[i].member.len > longest) longest = results->items[i].member.len;
    struct zset zset = zset_new(results->count, longest);
    for (size_t i = 0; i < results->count; i++) {
        const struct geo_found *found = &results->items[i];
        struct slice member = {found->member.data, found->member.len};
        if (!member.data) member = (struct slice){text, format_int64(text, found->member.number)};
        zset_put(&zset, search->store_distances ? found->distance / search->unit : found->score, member, 0, &now);
    }
    if (results->other_choice) propagate_members(call, *search->store, &zset);
    if (results->count) call->dirty += results->count - 1;
    zset_store_result(call, *search->store, &zset,
                      search->form == FORM_SEARCH_STORE ? "geosearchstore" : "georadiusstore");
}

static void geosearch_run(struct call *call) {
    enum geo_search_form form = call_variant(call);
    struct search search = {.form = form,
                            .source = call->argv[form == FORM_SEARCH_STORE ? 2 : 1],
                            .store = form == FORM_SEARCH_STORE ? &call->argv[1] : NULL};
    struct results results = {0};
    struct entry *entry;
    struct zset zset;
    if (!find_zset(call, search.source, &entry, &zset)) return;
    if (search_read(call, &search, entry ? &zset : NULL)) {
        if (entry) search_all(&search, &zset, &results);
        if (search.store)
            store_results(call, &search, &results);
        else
            reply_results(call, &search, &results);
    }
    mem_free(results.items);
    mem_free(search.corners);
}

/* The key of STORE or STOREDIST: the last one counts. */
static int radius_find_keys(const struct command *command, int argc, const struct slice *argv,
                            struct key_position *positions, int max) {
    int count = 0, store = 0;
    for (int i = 5; i + 1 < argc; i++)
        if (slice_is(argv[i], "store") || slice_is(argv[i], "storedist")) store = ++i;
    if (count < max) positions[count++] = (struct key_position){1, KEY_RO | KEY_ACCESS};
    if (store && count < max) positions[count++] = (struct key_position){store, KEY_OW | KEY_UPDATE};
    return 1 + (store != 0);
}

#define UNIT "unit(M|KM|FT|MI)"
#define FROM_BY                                                                                                        \
    "[from(FROMMEMBER member:string|FROMLONLAT fromlonlat{longitude:double latitude:double})] by(circle{BYRADIUS "     \
    "radius:double " UNIT "}|box{BYBOX width:double height:double " UNIT                                               \
    "}|polygon{BYPOLYGON num-vertices:integer vertices{longitude:double latitude:double}...}@9.0.0)"
#define ORDER "[order(ASC|DESC)]"
#define WITH  "[WITHCOORD] [WITHDIST] [WITHHASH]"
#define STORE "[store(STORE storekey:key(#1)\"key\"|STOREDIST storedistkey:key(#2)\"key\")]"
#define SEARCH_COMPLEXITY                                                                                              \
    "O(N+log(M)), where N is the number of places in the cells around the shape and M that of the places in the shape"
#define POLYGON     "9.0.0", "`BYPOLYGON`; then there is neither `FROMMEMBER` nor `FROMLONLAT`."
#define UPPERCASE   "7.0.0", "Units in capital letters."
#define ANY_HISTORY "6.2.0", "`ANY` for `COUNT`."
#define STORE_KEYS(from)                                                                                               \
    {                                                                                                                  \
        KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS),                                                                       \
            {.flags = KEY_OW | KEY_UPDATE | KEY_VARIABLE_FLAGS,                                                        \
             .begin = BEGIN_KEYWORD,                                                                                   \
             .index = (from),                                                                                          \
             .keyword = "STORE",                                                                                       \
             .find = FIND_RANGE,                                                                                       \
             .a = 0,                                                                                                   \
             .b = 1},                                                                                                  \
        {                                                                                                              \
            .flags = KEY_OW | KEY_UPDATE | KEY_VARIABLE_FLAGS, .begin = BEGIN_KEYWORD, .index = (from),                \
            .keyword = "STOREDIST", .find = FIND_RANGE, .a = 0, .b = 1                                                 \
        }                                                                                                              \
    }
const struct command_spec geo_search_commands[] = {
    {COMMAND("geosearch", geosearch_run, -7, CMD_READONLY, ON_GEO, "6.2.0"), .variant = FORM_SEARCH,
     .complexity = SEARCH_COMPLEXITY, .summary = "Finds the positions within a circle, a box or a polygon.",
     .syntax = "key:key " FROM_BY " " ORDER " [count-block{COUNT count:integer [ANY]}] " WITH,
     .history = WORDS(UPPERCASE, POLYGON), .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("geosearchstore", geosearch_run, -8, CMD_WRITE | CMD_DENYOOM, ON_GEO, "6.2.0"),
     .variant = FORM_SEARCH_STORE, .complexity = SEARCH_COMPLEXITY,
     .summary = "Finds the positions within a circle, a box or a polygon and stores them.",
     .syntax =
         "destination:key source:key(#1) " FROM_BY " " ORDER " [count-block{COUNT count:integer [ANY]}] [STOREDIST]",
     .history = WORDS(UPPERCASE, POLYGON),
     .keys = {KEY_RANGE(1, 0, 1, KEY_OW | KEY_UPDATE), KEY_RANGE(2, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("georadius", geosearch_run, -6, CMD_WRITE | CMD_DENYOOM | CMD_MOVABLE_KEYS, ON_GEO, "3.2.0"),
     .variant = FORM_RADIUS, .complexity = SEARCH_COMPLEXITY,
     .summary = "Finds the positions within a circle and stores them if requested.",
     .syntax = "key:key longitude:double latitude:double radius:double " UNIT " " WITH
               " [count-block{COUNT count:integer [ANY@6.2.0]}] " ORDER " " STORE,
     .history = WORDS(ANY_HISTORY, UPPERCASE), .keys = STORE_KEYS(6), .find_keys = radius_find_keys},
    {COMMAND("georadiusbymember", geosearch_run, -5, CMD_WRITE | CMD_DENYOOM | CMD_MOVABLE_KEYS, ON_GEO, "3.2.0"),
     .variant = FORM_MEMBER, .complexity = SEARCH_COMPLEXITY,
     .summary = "Finds the positions within a circle around a member and stores them if requested.",
     .syntax = "key:key member:string radius:double " UNIT " " WITH " [count-block{COUNT count:integer [ANY]}] " ORDER
               " " STORE,
     .history = WORDS(ANY_HISTORY, UPPERCASE), .keys = STORE_KEYS(5), .find_keys = radius_find_keys},
    {COMMAND("georadius_ro", geosearch_run, -6, CMD_READONLY, ON_GEO, "3.2.10"), .variant = FORM_RADIUS_RO,
     .complexity = SEARCH_COMPLEXITY, .summary = "Finds the positions within a circle.",
     .syntax = "key:key longitude:double latitude:double radius:double " UNIT " " WITH
               " [count-block{COUNT count:integer [ANY@6.2.0]}] " ORDER,
     .history = WORDS(ANY_HISTORY, UPPERCASE), .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("georadiusbymember_ro", geosearch_run, -5, CMD_READONLY, ON_GEO, "3.2.10"), .variant = FORM_MEMBER_RO,
     .complexity = SEARCH_COMPLEXITY, .summary = "Finds the positions within a circle around a member.",
     .syntax = "key:key member:string radius:double " UNIT " " WITH " [count-block{COUNT count:integer [ANY]}] " ORDER,
     .history = WORDS(ANY_HISTORY, UPPERCASE), .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {.name = NULL},
};
