/* sort.c: SORT and SORT_RO: return the elements of a list, set or sorted set, sorted by value or by keys that a pattern
 * selects, or store them as a list.
 *
 * A pattern contains a '*' that stands for the element; "->" and a field name after it select a field of a hash. */
#include "commands/lookup.h"
#include "commands/scratch_db.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/clients/user.h"
#include "server/command/spec.h"
#include "server/server.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/loan.h"
#include "store/set.h"
#include "store/zset.h"
#include <stdlib.h>

struct sort_element {
    struct slice text;
    double weight;
    struct slice key; /* the sort key with ALPHA */
    bool has_key;
};
struct sort {
    struct call *call;
    bool descending, alpha, unsorted;
    struct slice by;           /* data NULL: sort by the elements themselves */
    int64_t offset, count;     /* count negative: all */
    const struct slice *store; /* NULL: reply with the result */
    bool missed_volatile;      /* a field was missing, perhaps because it has expired */
    bool has_ties;             /* the order of some elements is not determined */
    int get_count;
    struct sort_element *elements;
    size_t len, capacity;
    struct text_block {
        struct text_block *next;
        size_t size, used; /* of `bytes` */
        char bytes[];
    } * texts; /* copies of texts whose memory may change */
};

/* Copies a text for the duration of the command, with a NUL after it for the collation of the locale. */
static struct slice keep_text(struct sort *sort, struct slice text) {
    enum { BLOCK = 64 * 1024 };
    struct text_block *block = sort->texts;
    if (!block || block->size - block->used < text.len + 1) {
        size_t size = text.len + 1 > BLOCK ? text.len + 1 : BLOCK;
        block = mem_alloc(sizeof *block + size);
        *block = (struct text_block){.next = sort->texts, .size = size};
        sort->texts = block;
    }
    char *copy = block->bytes + block->used;
    if (text.len) memcpy(copy, text.data, text.len);
    copy[text.len] = 0;
    block->used += text.len + 1;
    return (struct slice){copy, text.len};
}

/* --- The elements --- */

static void add_element(struct sort *sort, struct slice text) {
    mem_grow(sort->elements, sort->len, sort->capacity, 64);
    sort->elements[sort->len++] = (struct sort_element){.text = keep_text(sort, text)};
}

static void load_list(struct sort *sort, const struct entry *entry) {
    struct list_type_iterator it;
    struct list_type_element element;
    char text[LISTPACK_TEXT];
    bool backward = sort->unsorted && sort->descending;
    list_type_iterate(&it, entry, backward ? -1 : 0, backward);
    while (list_type_next(&it, &element))
        add_element(sort, element.blob ? blob_slice(element.blob) : listpack_value_text(&element.value, text));
    list_type_iterate_end(&it);
}
static void load_set(struct sort *sort, const struct entry *entry) {
    struct set set = set_of(entry);
    struct set_iterator it;
    struct listpack_value member;
    char text[LISTPACK_TEXT];
    set_iterate(&it, &set);
    while (set_next(&it, &member)) add_element(sort, listpack_value_text(&member, text));
    set_iterate_end(&it);
}
/* The set becomes a skiplist, as in Valkey: OBJECT ENCODING shows it. */
static void load_zset(struct sort *sort, struct entry *entry) {
    struct zset zset = zset_of(entry);
    if (zset.encoding == ENCODING_LISTPACK) {
        before_value_changes(entry);
        zset_index(&zset);
        zset_keep(sort->call->db, entry, &zset);
    }
    struct zset_iterator it;
    struct zset_item item;
    char text[LISTPACK_TEXT];
    bool down = sort->unsorted && sort->descending;
    zset_iterate(&it, &zset, down ? zset_len(&zset) - 1 : 0, down);
    while (zset_next(&it, &item)) add_element(sort, listpack_value_text(&item.member, text));
}

/* Resolves a pattern for an element. False: no value. The text is valid until the next change or call. */
static bool pattern_value(struct sort *sort, struct slice pattern, struct slice element, struct slice *value) {
    static char text[STRING_NUMBER_TEXT];
    static struct hash_value field_value;
    if (slice_equal(pattern, SLICE("#"))) {
        *value = element;
        return true;
    }
    const char *star = memchr(pattern.data, '*', pattern.len), *end = pattern.data + pattern.len;
    if (!star) return false;
    const char *arrow = memmem(star + 1, (size_t)(end - star - 1), "->", 2);
    struct slice field = arrow && arrow + 2 < end ? (struct slice){arrow + 2, (size_t)(end - arrow - 2)} : SLICE("");
    size_t before = (size_t)(star - pattern.data), after = (size_t)((field.len ? arrow : end) - star - 1),
           len = before + element.len + after;
    char buffer[256], *name = len <= sizeof buffer ? buffer : mem_alloc(len);
    memcpy(name, pattern.data, before);
    if (element.len) memcpy(name + before, element.data, element.len);
    memcpy(name + before + element.len, star + 1, after);
    struct entry *entry = find_read(sort->call, (struct slice){name, len});
    if (name != buffer) mem_free(name);
    if (!entry) return false;
    if (field.len) {
        if (entry_type(entry) != TYPE_HASH) return false;
        if (!hash_get(entry, field, &field_value)) {
            sort->missed_volatile |= hash_is_volatile(entry);
            return false;
        }
        *value = field_value.bytes;
    } else {
        if (entry_type(entry) != TYPE_STRING) return false;
        *value = entry_string(entry, text);
    }
    return true;
}

/* --- Ordering --- */

/* Converts the text up to its first NUL, which must be its end, to a number. */
static bool weight_read(struct slice text, double *weight) {
    int64_t number;
    if (parse_int64(text, &number)) { /* the common case */
        *weight = (double)number;
        return true;
    }
    return parse_double((struct slice){text.data, strlen(text.data)}, weight);
}

/* Computes the sort keys. False: one is not a number; replied with the error. */
static bool weigh(struct sort *sort) {
    bool good = true;
    for (size_t i = 0; i < sort->len; i++) {
        struct sort_element *element = &sort->elements[i];
        struct slice key = element->text;
        bool has_key = !sort->by.data || pattern_value(sort, sort->by, element->text, &key);
        if (sort->alpha) {
            element->has_key = has_key;
            element->key = sort->by.data && has_key ? keep_text(sort, key) : element->text;
        } else if (has_key) {
            good &= weight_read(sort->by.data ? keep_text(sort, key) : key, &element->weight);
        }
    }
    if (!good) reply_error(sort->call->reply, "ERR One or more scores can't be converted into double");
    return good;
}

static int compare(const void *left, const void *right, void *context) {
    const struct sort_element *a = left, *b = right;
    struct sort *sort = context;
    int order;
    if (!sort->alpha) {
        order = (a->weight > b->weight) - (a->weight < b->weight);
        if (order == 0) order = slice_compare(a->text, b->text); /* makes the order deterministic */
    } else if (sort->by.data && (!a->has_key || !b->has_key)) {
        order = a->has_key - b->has_key;
    } else {
        /* A stored result must not depend on the locale. */
        order = sort->store ? slice_compare(a->key, b->key) : strcoll(a->key.data, b->key.data);
    }
    sort->has_ties |= order == 0 && !slice_equal(a->text, b->text);
    return sort->descending ? -order : order;
}

/* --- Arguments --- */

/* In cluster mode a pattern selects keys in the slot of the sorted key, and none elsewhere. */
static bool pattern_leaves_slot(const struct call *call, struct slice pattern) {
    return server.cluster_enabled && hash_slot_of_pattern(pattern) != (int)hash_slot(call->argv[1]);
}

static bool sort_read(struct call *call, struct sort *sort, bool read_only) {
    for (int i = 2; i < call->argc; i++) {
        struct slice word = call->argv[i];
        int left = call->argc - i - 1;
        if (slice_is(word, "asc")) {
            sort->descending = false;
        } else if (slice_is(word, "desc")) {
            sort->descending = true;
        } else if (slice_is(word, "alpha")) {
            sort->alpha = true;
        } else if (slice_is(word, "limit") && left >= 2) {
            if (!argument_int64(call, i + 1, &sort->offset) || !argument_int64(call, i + 2, &sort->count)) return false;
            i += 2;
        } else if (slice_is(word, "store") && left >= 1 && !read_only) {
            sort->store = &call->argv[++i];
        } else if (slice_is(word, "by") && left >= 1) {
            sort->by = call->argv[++i];
            /* A constant pattern leaves the order unchanged. */
            if (!memchr(sort->by.data, '*', sort->by.len)) {
                sort->unsorted = true;
            } else if (pattern_leaves_slot(call, sort->by)) {
                return reply_error(call->reply,
                                   "ERR BY option of SORT denied in Cluster mode when keys formed by the pattern "
                                   "may be in different slots.");
            } else if (!user_reads_all_keys(call->client, call->command, call->argc, call->argv)) {
                return reply_error(call->reply, "ERR BY option of SORT denied due to insufficient ACL permissions.");
            }
        } else if (slice_is(word, "get") && left >= 1) {
            if (!slice_equal(call->argv[i + 1], SLICE("#")) && pattern_leaves_slot(call, call->argv[i + 1]))
                return reply_error(call->reply, "ERR GET option of SORT denied in Cluster mode when keys formed by the "
                                                "pattern may be in different slots.");
            if (!user_reads_all_keys(call->client, call->command, call->argc, call->argv))
                return reply_error(call->reply, "ERR GET option of SORT denied due to insufficient ACL permissions.");
            sort->get_count++;
            i++;
        } else {
            return reply_syntax_error(call->reply);
        }
    }
    return true;
}

/* --- Replying --- */

static void reply_value(struct sort *sort, bool has, struct slice value) {
    if (has)
        reply_bulk(sort->call->reply, value);
    else
        reply_null(sort->call->reply);
}
static void store_value(struct sort *sort, struct db *scratch, struct entry *list, bool has, struct slice value) {
    if (!has) value = SLICE("");
    list_type_expect(scratch, list, 1, value.len);
    list_type_push(scratch, list, LIST_TYPE_TAIL, value, NULL);
}

/* Writes each element, or the values of its GET patterns, to the reply or (list not NULL) to the list. */
static void emit(struct sort *sort, const struct sort_element *element, struct db *scratch, struct entry *list) {
    struct call *call = sort->call;
    struct slice value = element->text;
    if (!sort->get_count) {
        if (list)
            store_value(sort, scratch, list, true, value);
        else
            reply_value(sort, true, value);
        return;
    }
    for (int i = 2; i < call->argc; i++) {
        struct slice word = call->argv[i];
        if (slice_is(word, "get")) {
            bool has = pattern_value(sort, call->argv[++i], element->text, &value);
            if (list)
                store_value(sort, scratch, list, has, value);
            else
                reply_value(sort, has, value);
        } else if (slice_is(word, "limit")) {
            i += 2;
        } else if (slice_is(word, "by") || slice_is(word, "store")) {
            i++;
        }
    }
}

/* Propagates the stored list instead of the command. */
static void propagate_list(struct sort *sort, struct slice key) {
    enum { BATCH = 512 };
    struct call *call = sort->call;
    struct slice argv[BATCH + 2] = {SLICE("DEL"), key};
    struct list_type_iterator it;
    struct list_type_element element;
    char text[LISTPACK_TEXT];
    int count = 0;
    call_propagate(call, 2, argv);
    argv[0] = SLICE("RPUSH");
    list_type_iterate(&it, find_write(call, key), 0, false);
    while (list_type_next(&it, &element)) {
        struct slice value = element.blob ? blob_slice(element.blob) : listpack_value_text(&element.value, text);
        argv[2 + count++] = keep_text(sort, value);
        if (count < BATCH) continue;
        call_propagate(call, 2 + count, argv);
        count = 0;
    }
    list_type_iterate_end(&it);
    if (count) call_propagate(call, 2 + count, argv);
}

static void sort_store(struct sort *sort, size_t first, size_t end) {
    struct call *call = sort->call;
    struct slice key = *sort->store;
    size_t values = (end - first) * (size_t)(sort->get_count ? sort->get_count : 1);
    if (values) {
        struct db *scratch = scratch_db();
        struct entry *list = list_type_create(scratch, key);
        for (size_t i = first; i < end; i++) emit(sort, &sort->elements[i], scratch, list);
        bool existed = find_replace(call, key);
        db_rename(scratch, key, call->db, key);
        if (!existed) notify(call->db, NOTIFY_NEW, "new", key);
        notify(call->db, NOTIFY_LIST, "sortstore", key);
        call->dirty += values;
        /* Replicas and the append-only file do not check expiry: they would find the expired fields. They may have the
         * elements of a set in another order, and other servers sort equal elements in another way. */
        if (sort->missed_volatile || sort->has_ties) propagate_list(sort, key);
    } else {
        delete_destination(call, key);
    }
    reply_integer(call->reply, (int64_t)values);
}

static void sort_answer(struct sort *sort) {
    int64_t len = (int64_t)sort->len, first = sort->offset < 0 ? 0 : sort->offset > len ? len : sort->offset;
    int64_t end = sort->count < 0 || sort->count > len - first ? len : first + sort->count;
    if (sort->store) {
        sort_store(sort, (size_t)first, (size_t)end);
        return;
    }
    reply_array(sort->call->reply, (size_t)(end - first) * (size_t)(sort->get_count ? sort->get_count : 1));
    for (int64_t i = first; i < end; i++) emit(sort, &sort->elements[i], NULL, NULL);
}

static void sort_run_as(struct call *call, bool read_only) {
    struct sort sort = {.call = call, .count = -1};
    if (!sort_read(call, &sort, read_only)) return;
    /* load_zset() converts, and then recalls the value. */
    struct entry *entry = find_read_with(call, call->argv[1], LOOKUP_CHANGES | LOOKUP_REPLACES);
    enum value_type type = entry ? entry_type(entry) : TYPE_LIST;
    if (type != TYPE_LIST && type != TYPE_SET && type != TYPE_ZSET) {
        reply_wrong_type(call->reply);
        return;
    }
    /* The order of a set may differ on replicas, and a script may depend on it. */
    if (sort.unsorted && type == TYPE_SET && (sort.store || call->client->flags & CLIENT_INTERNAL)) {
        sort.unsorted = false;
        sort.alpha = true;
        sort.by = (struct slice){NULL, 0};
    }
    if (entry) {
        if (type == TYPE_LIST)
            load_list(&sort, entry);
        else if (type == TYPE_SET)
            load_set(&sort, entry);
        else
            load_zset(&sort, entry);
    }
    if (sort.unsorted || weigh(&sort)) {
        if (!sort.unsorted && sort.len) qsort_r(sort.elements, sort.len, sizeof *sort.elements, compare, &sort);
        sort_answer(&sort);
    }
    mem_free(sort.elements);
    for (struct text_block *block = sort.texts, *next; block; block = next) {
        next = block->next;
        mem_free(block);
    }
}
static void sort_run(struct call *call) {
    sort_run_as(call, false);
}
static void sort_ro_run(struct call *call) {
    sort_run_as(call, true);
}

/* The key, and the last of several STORE keys. */
static int sort_find_keys(const struct command *command, int argc, const struct slice *argv,
                          struct key_position *positions, int max) {
    int store = 0, count = 1;
    for (int i = 2; i < argc; i++) {
        if (slice_is(argv[i], "limit"))
            i += 2;
        else if (slice_is(argv[i], "by") || slice_is(argv[i], "get"))
            i++;
        else if (slice_is(argv[i], "store") && i + 1 < argc)
            store = ++i;
    }
    if (max > 0) positions[0] = (struct key_position){1, KEY_RO | KEY_ACCESS};
    if (store && max > 1) positions[count++] = (struct key_position){store, KEY_OW | KEY_UPDATE};
    return 1 + (store != 0);
}

static int sort_ro_find_keys(const struct command *command, int argc, const struct slice *argv,
                             struct key_position *positions, int max) {
    if (max > 0) positions[0] = (struct key_position){1, KEY_RO | KEY_ACCESS};
    return 1;
}

#define SORT_WORDS                                                                                                     \
    "key:key [BY by-pattern:pattern(#1)\"pattern\"] [LIMIT limit{offset:integer count:integer}] [GET "                 \
    "get-pattern:pattern(#1)\"pattern\"]... [order(ASC|DESC)] "                                                        \
    "[sorting=ALPHA]"
#define SORT_COMPLEXITY                                                                                                \
    "O(N+M*log(M)), where N is the number of elements and M that of the elements returned; O(N) where they are not "   \
    "sorted"
#define UNKNOWN_KEYS(access, why)                                                                                      \
    { .flags = (access), .begin = BEGIN_UNKNOWN, .find = FIND_UNKNOWN, .notes = (why) }
#define SORTING .group = GROUP_GENERIC, .categories = CAT_SET | CAT_SORTEDSET | CAT_LIST | CAT_DANGEROUS
const struct command_spec sort_commands[] = {
    {COMMAND("sort", sort_run, -2, CMD_WRITE | CMD_DENYOOM | CMD_MOVABLE_KEYS, SORTING, "1.0.0"),
     .complexity = SORT_COMPLEXITY,
     .summary = "Sorts the elements of a list, a set or a sorted set and stores them if requested.",
     .syntax = SORT_WORDS " [STORE destination:key(#2)]",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS),
              UNKNOWN_KEYS(KEY_RO | KEY_ACCESS, "BY and GET name keys that are known only when the command runs"),
              UNKNOWN_KEYS(KEY_OW | KEY_UPDATE, "STORE may stand anywhere among the options")},
     .find_keys = sort_find_keys},
    {COMMAND("sort_ro", sort_ro_run, -2, CMD_READONLY | CMD_MOVABLE_KEYS, SORTING, "7.0.0"),
     .complexity = SORT_COMPLEXITY, .summary = "Returns the elements of a list, a set or a sorted set in order.",
     .syntax = SORT_WORDS,
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS),
              UNKNOWN_KEYS(KEY_RO | KEY_ACCESS, "BY and GET name keys that are known only when the command runs")},
     .find_keys = sort_ro_find_keys},
    {.name = NULL},
};
