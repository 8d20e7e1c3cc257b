/* rdb_read.c: reads values; see rdb.h.
 *
 * A listpack or an intset within the limits of its type is taken over after every byte was checked. All other values
 * are built with the functions that commands use, so the limits of encodings apply, and duplicate members are found:
 * they are corruption.
 *
 * Counts in the input are not trusted. Tables are expanded in advance for up to EXPECT_MAX elements; beyond that they
 * grow with the elements that arrive. */
#include "formats/rdb_legacy.h"
#include "formats/rdb_stream.h"
#include "lib/structures/intset.h"
#include "lib/structures/listpack.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "store/bulk.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/set.h"
#include "store/types.h"
#include "store/zset.h"
#include <errno.h>
#include <math.h>

enum { EXPECT_MAX = 1 << 20 };
/* Kinds of list nodes. The nodes of older lists are ziplists and have no kind. */
enum rdb_node_kind { NODE_PLAIN = 1, NODE_PACKED = 2, NODE_ZIPLIST };

/* A value while it is read. */
struct reading {
    struct rdb_reader *in;
    struct db *db;
    struct slice key;
    int64_t expire_at;
    struct entry *entry; /* NULL: not created yet */
    uint8_t type;
};

static bool rdb_read_failed(const struct reading *reading) {
    return reading->in->source->failed;
}
static void fail_corrupt(struct reading *reading, const char *what) {
    source_fail(reading->in->source, -EINVAL, "%s", what);
}
static void make(struct reading *reading, enum value_type type, enum value_encoding encoding, void *value) {
    reading->entry = entry_new_value(reading->key, reading->expire_at, type, encoding, value);
}

/* Reads the number of following items, each of at least `bytes` bytes. */
static uint64_t read_count(struct reading *reading, unsigned bytes) {
    uint64_t count = rdb_read_length(reading->in);
    if (rdb_read_failed(reading)) return 0;
    if (count == 0) reading->in->empty = true;
    if (count > source_left(reading->in->source) / bytes) fail_corrupt(reading, "Unexpected EOF reading RDB file");
    return rdb_read_failed(reading) ? 0 : count;
}
static size_t expected(uint64_t count) {
    return count < EXPECT_MAX ? (size_t)count : EXPECT_MAX;
}
/* --- Listpacks --- */

static size_t longest_text(const uint8_t *lp) {
    size_t longest = 0;
    for (const uint8_t *at = listpack_first(lp); at; at = listpack_next(lp, at)) {
        size_t len = listpack_get(at).len;
        if (len > longest) longest = len;
    }
    return longest;
}

/* True: every `step`th element is unique. A duplicate member would still exist after its removal, and one of the two
 * would be lost when the encoding changes. */
static bool all_differ(const uint8_t *lp, size_t step) {
    enum { SLOTS_ON_STACK = 1024 };
    const uint8_t *small[SLOTS_ON_STACK], **slots = small;
    size_t count = listpack_count(lp), mask = 15;
    while (mask < 2 * count) mask = 2 * mask + 1;
    if (mask >= SLOTS_ON_STACK && !(slots = mem_try_alloc((mask + 1) * sizeof *slots))) return false;
    memset(slots, 0, (mask + 1) * sizeof *slots);
    bool differ = true;
    size_t skip = 0;
    for (const uint8_t *at = listpack_first(lp); at && differ; at = listpack_next(lp, at)) {
        if (skip) {
            skip--;
            continue;
        }
        skip = step - 1;
        char text_bytes[LISTPACK_TEXT];
        struct slice text = listpack_text(at, text_bytes);
        uint64_t hash = 14695981039346656037u; /* FNV-1a */
        for (size_t i = 0; i < text.len; i++) hash = (hash ^ (uint8_t)text.data[i]) * 1099511628211u;
        size_t slot = (size_t)(hash ^ hash >> 32) & mask;
        for (; slots[slot] && differ; slot = (slot + 1) & mask) differ = !listpack_equal(slots[slot], text);
        slots[slot] = at;
    }
    if (slots != small) mem_free(slots);
    return differ;
}

/* True: all scores are numbers. *sorted: the scores ascend, and members with equal scores ascend. */
static bool scores_are_valid(const uint8_t *lp, bool *sorted) {
    char text[LISTPACK_TEXT], before_text[LISTPACK_TEXT];
    const uint8_t *before = NULL;
    double last = -INFINITY, score;
    *sorted = true;
    for (const uint8_t *member = listpack_first(lp), *at; member; member = listpack_next(lp, at)) {
        int64_t number;
        at = listpack_next(lp, member);
        if (listpack_number(at, &number))
            score = (double)number;
        else if (!parse_double(listpack_text(at, text), &score))
            return false;
        if (score < last || (before && score == last &&
                             slice_compare(listpack_text(before, before_text), listpack_text(member, text)) >= 0))
            *sorted = false;
        before = member, last = score;
    }
    return true;
}

/* Why a sorted set with scores that are no numbers is refused. */
static const char *score_fault(const uint8_t *lp, bool ziplist) {
    char text[LISTPACK_TEXT];
    for (const uint8_t *member = listpack_first(lp), *at; member; member = listpack_next(lp, at)) {
        at = listpack_next(lp, member);
        struct slice score = listpack_text(at, text);
        if (slice_is(score, "nan") || slice_is(score, "-nan") || slice_is(score, "+nan"))
            return ziplist ? "Zset ziplist with NAN score detected" : "Zset listpack with NAN score detected";
    }
    return ziplist ? "Zset ziplist integrity check failed." : "Zset listpack integrity check failed.";
}

static void add_field(struct reading *reading, struct slice field, struct slice value, struct blob *blob,
                      int64_t expire_at) {
    if (!hash_put_until(reading->db, reading->entry, field, value, blob, expire_at))
        fail_corrupt(reading, entry_encoding(reading->entry) == ENCODING_LISTPACK ? "Hash with dup elements"
                                                                                  : "Duplicate hash fields detected");
}

static void build_hash(struct reading *reading, const uint8_t *lp) {
    char field_text[LISTPACK_TEXT], value_text[LISTPACK_TEXT];
    make(reading, TYPE_HASH, ENCODING_LISTPACK, listpack_new(0));
    hash_expect(reading->db, reading->entry, listpack_count(lp) / 2);
    for (uint8_t *field = listpack_first(lp), *value; field && !rdb_read_failed(reading);
         field = listpack_next(lp, value)) {
        value = listpack_next(lp, field);
        add_field(reading, listpack_text(field, field_text), listpack_text(value, value_text), NULL, HASH_NEVER);
    }
}

static void keep_set(struct reading *reading, struct set *set) {
    if (rdb_read_failed(reading))
        set_free(set);
    else
        make(reading, TYPE_SET, set->encoding, set->value);
}
static void build_set(struct reading *reading, const uint8_t *lp) {
    char text[LISTPACK_TEXT];
    struct set set = set_new_as(ENCODING_LISTPACK);
    set_expect(&set, listpack_count(lp));
    for (uint8_t *at = listpack_first(lp); at && !rdb_read_failed(reading); at = listpack_next(lp, at))
        if (!set_add(&set, listpack_text(at, text))) fail_corrupt(reading, "Set listpack integrity check failed.");
    keep_set(reading, &set);
}

static void add_scored(struct reading *reading, struct zset *zset, struct slice member, double score) {
    double now;
    /* A listpack would store 0 instead of -0, and a replica's data would differ from its primary's. */
    if (score == 0 && signbit(score)) zset_expect(zset, 0, SIZE_MAX);
    if (isnan(score))
        fail_corrupt(reading, "Zset with NAN score detected");
    else if (zset_put(zset, score, member, ZSET_NX, &now) != ZSET_ADDED)
        fail_corrupt(reading, "Duplicate zset fields detected");
}
static void keep_zset(struct reading *reading, struct zset *zset) {
    if (rdb_read_failed(reading))
        zset_free(zset);
    else
        make(reading, TYPE_ZSET, zset->encoding, zset->value);
}
static void build_zset(struct reading *reading, const uint8_t *lp, bool ziplist) {
    char member_text[LISTPACK_TEXT], score_text[LISTPACK_TEXT];
    struct zset zset = zset_new(listpack_count(lp) / 2, 0);
    for (uint8_t *member = listpack_first(lp), *value; member && !rdb_read_failed(reading);
         member = listpack_next(lp, value)) {
        double score;
        value = listpack_next(lp, member);
        if (parse_double(listpack_text(value, score_text), &score))
            add_scored(reading, &zset, listpack_text(member, member_text), score);
        else
            fail_corrupt(reading, score_fault(lp, ziplist));
    }
    keep_zset(reading, &zset);
}

/* The log text for a corrupt value of that type, the same as Valkey's, because monitoring tools search for it. */
static const char *corruption_text(enum rdb_type stored) {
    switch (stored) {
    case RDB_HASH_LISTPACK: return "Hash listpack integrity check failed.";
    case RDB_ZSET_LISTPACK: return "Zset listpack integrity check failed.";
    case RDB_SET_LISTPACK: return "Set listpack integrity check failed.";
    case RDB_HASH_ZIPMAP: return "Zipmap integrity check failed.";
    case RDB_HASH_ZIPLIST: return "Hash ziplist integrity check failed.";
    case RDB_ZSET_ZIPLIST: return "Zset ziplist integrity check failed.";
    case RDB_LIST_ZIPLIST: return "List ziplist integrity check failed.";
    case RDB_LIST_QUICKLIST: return "Ziplist integrity check failed.";
    default: return "Listpack integrity check failed.";
    }
}

/* Uses a valid listpack as the value. `stored` is its type in the file, which for older forms differs from `type`. As
 * in Valkey, the number of items decides whether it stays a listpack, and the size of its elements only for a zipmap.
 * True: the listpack was taken over. */
static bool adopt(struct reading *reading, enum rdb_type stored, enum rdb_type type, uint8_t *lp) {
    size_t count = listpack_count(lp), step = type == RDB_SET_LISTPACK ? 1 : 2;
    const struct encoding_limits *l = &encoding_limits;
    bool hash = type == RDB_HASH_LISTPACK, zset = type == RDB_ZSET_LISTPACK, sorted = true;
    int64_t items = hash ? l->hash_listpack_entries : zset ? l->zset_listpack_entries : l->set_listpack_entries;
    if (count == 0) {
        reading->in->empty = true;
        return false;
    }
    if (count % step) {
        fail_corrupt(reading, corruption_text(stored));
        return false;
    }
    bool fits = count / step <= (uint64_t)items && listpack_has_space(lp, 0);
    if (stored == RDB_HASH_ZIPMAP && longest_text(lp) > (uint64_t)l->hash_listpack_value) fits = false;
    if (fits && zset && !scores_are_valid(lp, &sorted)) {
        fail_corrupt(reading, score_fault(lp, stored == RDB_ZSET_ZIPLIST));
        return false;
    }
    if (fits && !all_differ(lp, step)) {
        fail_corrupt(reading, stored == RDB_HASH_ZIPMAP ? "Hash zipmap with dup elements" : corruption_text(stored));
        return false;
    }
    if (fits && sorted) {
        make(reading, hash ? TYPE_HASH : zset ? TYPE_ZSET : TYPE_SET, ENCODING_LISTPACK, lp);
        return true;
    }
    if (hash)
        build_hash(reading, lp);
    else if (zset)
        build_zset(reading, lp, stored == RDB_ZSET_ZIPLIST);
    else
        build_set(reading, lp);
    return false;
}

static void read_listpack(struct reading *reading, enum rdb_type type) {
    size_t len;
    uint8_t *lp = rdb_read_block(reading->in, &len);
    if (!lp) return;
    rdb_sanitizations++;
    if (!listpack_validate(lp, len, true, NULL, NULL))
        fail_corrupt(reading, corruption_text(type));
    else if (adopt(reading, type, type, lp))
        return;
    listpack_free(lp);
}
/* Reads a value in an older form and converts it to the form of `type`. */
static void read_converted(struct reading *reading, enum rdb_type stored, enum rdb_type type,
                           uint8_t *(*to_listpack)(struct slice bytes)) {
    struct slice bytes;
    if (!rdb_read_string(reading->in, &reading->in->first, &bytes)) return;
    rdb_sanitizations++;
    uint8_t *lp = to_listpack(bytes);
    if (!lp || (stored == RDB_HASH_ZIPMAP && !listpack_count(lp))) { /* no server has written an empty zipmap */
        listpack_free(lp);
        fail_corrupt(reading, corruption_text(stored));
        return;
    }
    if (!adopt(reading, stored, type, lp)) listpack_free(lp);
}

/* --- Lists --- */

/* Appends a node and takes over the listpack. Nodes without elements are skipped. */
static void append_node(struct reading *reading, uint8_t *lp) {
    if (rdb_read_failed(reading) || listpack_count(lp) == 0) {
        listpack_free(lp);
        return;
    }
    if (!reading->entry) make(reading, TYPE_LIST, ENCODING_LISTPACK, listpack_new(0));
    list_type_append_node(reading->db, reading->entry, lp);
}

static void read_plain(struct reading *reading, bool may_be_empty) {
    struct slice text = SLICE("");
    struct blob *blob = rdb_read_blob(reading->in, &reading->in->first, &text);
    if (!rdb_read_failed(reading) && !text.len && !may_be_empty)
        fail_corrupt(reading, "Quicklist node of one element without bytes");
    if (rdb_read_failed(reading)) return;
    if (!reading->entry) make(reading, TYPE_LIST, ENCODING_LISTPACK, listpack_new(0));
    list_type_expect(reading->db, reading->entry, 1, text.len);
    list_type_push(reading->db, reading->entry, LIST_TYPE_TAIL, text, blob);
}
static void read_node(struct reading *reading) {
    size_t len;
    uint8_t *lp = rdb_read_block(reading->in, &len);
    rdb_sanitizations += lp != NULL;
    if (lp && !listpack_validate(lp, len, true, NULL, NULL))
        fail_corrupt(reading, corruption_text(RDB_LIST_QUICKLIST_2));
    if (lp) append_node(reading, lp);
}
static void read_ziplist(struct reading *reading, enum rdb_type type) {
    struct slice bytes;
    if (!rdb_read_string(reading->in, &reading->in->first, &bytes)) return;
    rdb_sanitizations++;
    uint8_t *lp = ziplist_to_listpack(bytes);
    if (lp)
        append_node(reading, lp);
    else
        fail_corrupt(reading, corruption_text(type));
}

static void read_list(struct reading *reading, enum rdb_type type) {
    uint64_t count = type == RDB_LIST_ZIPLIST ? 1 : read_count(reading, 1);
    for (uint64_t i = 0; i < count && !rdb_read_failed(reading); i++) {
        uint64_t kind = type == RDB_LIST ? NODE_PLAIN : NODE_ZIPLIST;
        if (type == RDB_LIST_QUICKLIST_2) kind = rdb_read_length(reading->in);
        if (rdb_read_failed(reading)) break;
        if (kind == NODE_PLAIN)
            read_plain(reading, type == RDB_LIST);
        else if (kind == NODE_PACKED && type == RDB_LIST_QUICKLIST_2)
            read_node(reading);
        else if (kind == NODE_ZIPLIST && type != RDB_LIST_QUICKLIST_2)
            read_ziplist(reading, type);
        else
            fail_corrupt(reading, "Quicklist integrity check failed.");
    }
    if (rdb_read_failed(reading)) return;
    if (!reading->entry)
        reading->in->empty = true;
    else if (type == RDB_LIST_ZIPLIST) /* a quicklist of any size, as in Valkey */
        list_type_expect(reading->db, reading->entry, 0, SIZE_MAX / 2);
    else
        list_type_shrunk(reading->db, reading->entry);
}

/* --- Hashes, sets and sorted sets, item by item --- */

static void read_hash(struct reading *reading, bool times) {
    struct rdb_reader *in = reading->in;
    uint64_t count = read_count(reading, times ? 10 : 2);
    if (count == 0) return;
    if (times) { /* its expiry times are in the database's heap */
        reading->entry = db_add_value(reading->db, reading->key, TYPE_HASH, ENCODING_LISTPACK, listpack_new(0));
        hash_unpack(reading->db, reading->entry, expected(count)); /* also if no field expires, as in Valkey */
    } else {
        make(reading, TYPE_HASH, ENCODING_LISTPACK, listpack_new(0));
        hash_expect(reading->db, reading->entry, expected(count));
    }
    for (uint64_t i = 0; i < count && !rdb_read_failed(reading); i++) {
        struct slice field, value = SLICE("");
        if (!rdb_read_string_kept(in, &in->first, &field)) break;
        struct blob *blob = rdb_read_blob(in, &in->second, &value);
        if (times && !blob && !rdb_read_failed(reading) &&
            value.data != in->second.data) { /* the value is in the window */
            if (!source_buffer_reserve(in->source, &in->second, value.len)) break;
            if (value.len) memcpy(in->second.data, value.data, value.len);
            value.data = in->second.data;
        }
        int64_t expire_at = times && !rdb_read_failed(reading) ? rdb_read_time(in) : HASH_NEVER;
        if (expire_at < HASH_NEVER) fail_corrupt(reading, "Hash field with a negative expiration time");
        bool expired = in->skip_expired && expire_at >= 0 && expire_at < clock_data_ms();
        if (!rdb_read_failed(reading) && !expired)
            add_field(reading, field, value, blob, expire_at);
        else if (blob)
            blob_release(blob);
    }
    if (!rdb_read_failed(reading) && hash_len(reading->entry) == 0) in->empty = in->all_expired = true;
}

static void read_set(struct reading *reading) {
    struct rdb_reader *in = reading->in;
    struct set set = {.value = NULL};
    uint64_t count = read_count(reading, 1);
    for (uint64_t i = 0; i < count && !rdb_read_failed(reading); i++) {
        struct slice member;
        if (!rdb_read_string(in, &in->first, &member)) break;
        if (!set.value) set = set_new(member, expected(count));
        if (!set_add(&set, member)) fail_corrupt(reading, "Duplicate set members detected");
    }
    if (set.value) keep_set(reading, &set);
}

static void read_intset(struct reading *reading) {
    size_t len;
    uint8_t *numbers = rdb_read_block(reading->in, &len);
    if (!numbers) return;
    rdb_sanitizations++;
    if (!intset_validate(numbers, len, true)) {
        fail_corrupt(reading, "Intset integrity check failed.");
        mem_free(numbers);
        return;
    }
    size_t count = intset_count(numbers);
    if (count <= (uint64_t)encoding_limits.set_intset_entries) {
        make(reading, TYPE_SET, ENCODING_INTSET, numbers);
        return;
    }
    struct set set = set_new_as(ENCODING_INTSET);
    set_expect(&set, count);
    for (size_t i = 0; i < count; i++) {
        struct listpack_value member = listpack_number_value(intset_at(numbers, i));
        set_add_value(&set, &member);
    }
    keep_set(reading, &set);
    mem_free(numbers);
}

static void read_zset(struct reading *reading, bool text) {
    struct rdb_reader *in = reading->in;
    uint64_t count = read_count(reading, text ? 2 : 9);
    if (count == 0) return;
    struct zset zset = zset_new(expected(count), 0);
    for (uint64_t i = 0; i < count && !rdb_read_failed(reading); i++) {
        struct slice member;
        if (!rdb_read_string_kept(in, &in->first, &member)) break;
        double score = text ? rdb_read_double_text(in) : rdb_read_double(in);
        if (!rdb_read_failed(reading)) add_scored(reading, &zset, member, score);
    }
    keep_zset(reading, &zset);
}

static void read_stream(struct reading *reading, uint8_t type) {
    struct stream *stream = rdb_read_stream(reading->in, type);
    if (stream) make(reading, TYPE_STREAM, ENCODING_STREAM, stream);
}

/* --- Any value --- */

/* True: the items are complete. Looked at only if all input is in memory (RESTORE): a file is trusted more, and its
 * loading ends with the first error in any case. */
static bool items_are_complete(const struct rdb_reader *in) {
    if (in->source->ops) return true;
    struct source source;
    struct rdb_reader probe;
    source_init_memory(&source, slice_make(in->source->at, (size_t)(in->source->end - in->source->at)));
    rdb_reader_init(&probe, &source);
    bool complete = rdb_skip_items(&probe);
    rdb_reader_free(&probe);
    source_free(&source);
    return complete;
}

static void read_extension(struct reading *reading) {
    struct rdb_reader *in = reading->in;
    char name[EXTENSION_NAME + 1];
    uint64_t id = rdb_read_length(in);
    if (rdb_read_failed(reading)) return;
    struct extension_type *type = extension_find(id);
    rdb_extension_name(id, name);
    if (!type) {
        source_fail(in->source, -ENOTSUP,
                    "The RDB file contains module data I can't load: no matching module type '%s'", name);
        return;
    }
    if (!items_are_complete(in)) {
        fail_corrupt(reading, "The data of a module's value are not complete");
        return;
    }
    struct extension_place place = {db_id(reading->db), reading->key};
    void *value = type->methods->read(type, &place, in, (int)(id & ((1 << EXTENSION_VERSION_BITS) - 1)));
    uint64_t end = rdb_read_failed(reading) ? RDB_ITEM_END : rdb_read_length(in);
    if (!rdb_read_failed(reading) && end != RDB_ITEM_END)
        source_fail(in->source, -EINVAL,
                    "The RDB file contains module data for the module '%s' that is not terminated by the proper module "
                    "value EOF marker",
                    type->owner);
    else if (!value)
        source_fail(in->source, -EINVAL,
                    "The RDB file contains module data for the module type '%s', that the responsible module is not "
                    "able to load. Check for modules log above for additional clues.",
                    type->owner);
    if (!rdb_read_failed(reading))
        make(reading, TYPE_EXTENSION, ENCODING_EXTENSION, extension_value_new(type, value));
    else if (value)
        type->methods->free(type, value);
}

static void read_any(struct reading *reading) {
    struct rdb_reader *in = reading->in;
    uint8_t type = reading->type;
    switch (type) {
    case RDB_STRING: reading->entry = rdb_read_string_entry(in, reading->key, reading->expire_at); break;
    case RDB_LIST:
    case RDB_LIST_ZIPLIST:
    case RDB_LIST_QUICKLIST:
    case RDB_LIST_QUICKLIST_2: read_list(reading, type); break;
    case RDB_HASH: read_hash(reading, false); break;
    case RDB_HASH_EXPIRING: read_hash(reading, true); break;
    case RDB_SET: read_set(reading); break;
    case RDB_ZSET: read_zset(reading, true); break;
    case RDB_ZSET_2: read_zset(reading, false); break;
    case RDB_SET_INTSET: read_intset(reading); break;
    case RDB_SET_LISTPACK:
    case RDB_ZSET_LISTPACK:
    case RDB_HASH_LISTPACK: read_listpack(reading, type); break;
    case RDB_HASH_ZIPMAP: read_converted(reading, type, RDB_HASH_LISTPACK, zipmap_to_listpack); break;
    case RDB_HASH_ZIPLIST: read_converted(reading, type, RDB_HASH_LISTPACK, ziplist_to_listpack); break;
    case RDB_ZSET_ZIPLIST: read_converted(reading, type, RDB_ZSET_LISTPACK, ziplist_to_listpack); break;
    case RDB_STREAM:
    case RDB_STREAM_2:
    case RDB_STREAM_3: read_stream(reading, type); break;
    case RDB_MODULE: source_fail(in->source, -ENOTSUP, "Pre-release module format not supported"); break;
    case RDB_MODULE_2: read_extension(reading); break;
    default: source_fail(in->source, -EPROTONOSUPPORT, "Unknown RDB encoding type %u", type);
    }
}

struct entry *rdb_read_entry(struct rdb_reader *in, uint8_t type, struct db *db, struct slice key, int64_t expire_at,
                             bool *attached) {
    struct reading reading = {.in = in, .type = type, .db = db, .key = key, .expire_at = expire_at};
    in->empty = in->all_expired = false;
    *attached = type == RDB_HASH_EXPIRING;
    read_any(&reading);
    if (!rdb_read_failed(&reading) && !in->empty)
        return *attached && expire_at >= 0 ? db_set_expire(db, reading.entry, expire_at) : reading.entry;
    if (reading.entry && *attached)
        db_delete(db, key, true);
    else if (reading.entry)
        entry_discard(reading.entry);
    return NULL;
}

struct entry *rdb_read_value(struct rdb_reader *in, struct db *db, struct slice key) {
    uint8_t type;
    bool attached;
    if (!source_byte(in->source, &type)) return NULL;
    struct entry *entry = rdb_read_entry(in, type, db, key, -1, &attached);
    if (entry && !attached) db_add_entry(db, entry);
    return entry;
}
