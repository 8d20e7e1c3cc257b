/* list.c: the non-blocking list commands; list_blocking.c has the blocking ones.
 *
 * A pop from one of several keys is propagated as a pop from that key. */
#include "commands/list/list.h"
#include "commands/lookup.h"
#include "commands/signed_count.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"
#include "store/list_type.h"

/* --- Lookup --- */

/* Finds a list for reading. False: the key has another type; replied with the error. */
static bool find_list(struct call *call, struct entry **entry) {
    *entry = find_read(call, call->argv[1]);
    return type_ok(call, *entry, TYPE_LIST);
}
/* Finds a list for writing; NULL: no such key. False: the key has another type; replied with the error. */
static bool find_list_write(struct call *call, struct slice key, struct entry **entry) {
    *entry = find_write(call, key);
    return type_ok(call, *entry, TYPE_LIST);
}
static void reply_list_element(struct reply *reply, const struct list_type_element *element) {
    if (__builtin_expect(element->blob != NULL, 0))
        reply_bulk_blob(reply, element->blob);
    else
        reply_element(reply, &element->value);
}
/* Call after removing elements: notifies (event NULL: no notification), and deletes an empty list. */
static void list_elements_removed(struct call *call, struct slice key, struct entry *entry, const char *event) {
    bool empty = list_type_len(entry) == 0;
    if (!empty) list_type_shrunk(call->db, entry);
    key_elements_removed(call, key, empty, NOTIFY_LIST, event);
}

/* --- Pushing --- */

enum { AT_TAIL = 1, ONLY_PRESENT = 2 }; /* variants of LPUSH */
static void push_run(struct call *call) {
    enum list_type_end end = call_variant(call) & AT_TAIL ? LIST_TYPE_TAIL : LIST_TYPE_HEAD;
    bool only_present = call_variant(call) & ONLY_PRESENT;
    struct slice key = call->argv[1];
    struct entry *entry;
    if (!find_list_write(call, key, &entry)) return;
    if (!entry && only_present) {
        reply_integer(call->reply, 0);
        return;
    }
    if (!entry) {
        entry = list_type_create(call->db, key);
        notify(call->db, NOTIFY_NEW, "new", key);
    }
    size_t bytes = 0;
    for (int i = 2; i < call->argc; i++) bytes += call->argv[i].len;
    list_type_expect(call->db, entry, (size_t)call->argc - 2, bytes);
    for (int i = 2; i < call->argc; i++) list_type_push(call->db, entry, end, call->argv[i], argument_blob(call, i));
    db_changed(call->db, key);
    notify(call->db, NOTIFY_LIST, end == LIST_TYPE_HEAD ? "lpush" : "rpush", key);
    call->dirty += (uint64_t)call->argc - 2;
    reply_integer(call->reply, (int64_t)list_type_len(entry));
}

static void linsert_run(struct call *call) {
    struct entry *entry;
    struct slice key = call->argv[1], text = call->argv[4];
    bool after = slice_is(call->argv[2], "after");
    if (!after && !slice_is(call->argv[2], "before")) {
        reply_syntax_error(call->reply);
        return;
    }
    if (!find_list_write(call, key, &entry)) return;
    if (!entry) {
        reply_integer(call->reply, 0);
        return;
    }
    list_type_expect(call->db, entry, 1, text.len);
    if (!list_type_insert(call->db, entry, call->argv[3], after, text, argument_blob(call, 4))) {
        reply_integer(call->reply, -1);
        return;
    }
    db_changed(call->db, key);
    notify(call->db, NOTIFY_LIST, "linsert", key);
    call->dirty++;
    reply_integer(call->reply, (int64_t)list_type_len(entry));
}

static void lset_run(struct call *call) {
    struct entry *entry;
    struct slice key = call->argv[1], text = call->argv[3];
    int64_t index;
    if (!find_list_write(call, key, &entry)) return;
    if (!entry) {
        reply_no_such_key(call->reply);
        return;
    }
    if (!argument_int64(call, 2, &index)) return;
    list_type_expect(call->db, entry, 1,
                     text.len); /* Valkey converts before it checks the index, as if the list grew by one element */
    if (!list_type_replace(call->db, entry, index, text, argument_blob(call, 3))) {
        reply_error(call->reply, "ERR index out of range");
        return;
    }
    list_type_shrunk(call->db, entry);
    db_changed(call->db, key);
    notify(call->db, NOTIFY_LIST, "lset", key);
    call->dirty++;
    reply_ok(call->reply);
}

/* --- Popping --- */

/* Replies with the elements at one end, the outermost first, and removes them; returns their number. */
static size_t pop_range(struct call *call, struct slice key, struct entry *entry, enum list_type_end end,
                        size_t count) {
    struct list_type_iterator it;
    struct list_type_element element;
    size_t len = list_type_len(entry);
    if (count > len) count = len;
    reply_array(call->reply, count);
    list_type_iterate(&it, entry, end == LIST_TYPE_HEAD ? 0 : -1, end == LIST_TYPE_TAIL);
    for (size_t i = 0; i < count && list_type_next(&it, &element); i++) reply_list_element(call->reply, &element);
    list_type_iterate_end(&it);
    if (count) {
        list_type_delete(call->db, entry, end == LIST_TYPE_HEAD ? 0 : -(int64_t)count, count);
        list_elements_removed(call, key, entry, end == LIST_TYPE_HEAD ? "lpop" : "rpop");
    }
    call->dirty += count;
    return count;
}
static void pop_one(struct call *call, struct slice key, struct entry *entry, enum list_type_end end) {
    struct list_type_iterator it;
    struct list_type_element element;
    int64_t index = end == LIST_TYPE_HEAD ? 0 : -1;
    list_type_iterate(&it, entry, index, false);
    list_type_next(&it, &element);
    reply_list_element(call->reply, &element);
    list_type_iterate_end(&it);
    list_type_delete(call->db, entry, index, 1);
    list_elements_removed(call, key, entry, end == LIST_TYPE_HEAD ? "lpop" : "rpop");
    call->dirty++;
}

static void pop_run(struct call *call) {
    enum list_type_end end = call_variant(call);
    struct entry *entry;
    int64_t count = 0;
    if (call->argc > 3) {
        reply_error_format(call->reply, "ERR wrong number of arguments for '%s' command", call->command->full_name);
        return;
    }
    bool counted = call->argc == 3;
    if (counted && (!parse_int64(call->argv[2], &count) || count < 0)) {
        reply_error(call->reply, "ERR value is out of range, must be positive");
        return;
    }
    if (!find_list_write(call, call->argv[1], &entry)) return;
    if (!entry) {
        if (counted)
            reply_null_array(call->reply);
        else
            reply_null(call->reply);
    } else if (counted) {
        pop_range(call, call->argv[1], entry, end, (size_t)count);
    } else {
        pop_one(call, call->argv[1], entry, end);
    }
}

bool list_end_read(struct call *call, struct slice word, enum list_type_end *end) {
    if (slice_is(word, "left")) {
        *end = LIST_TYPE_HEAD;
    } else if (slice_is(word, "right")) {
        *end = LIST_TYPE_TAIL;
    } else {
        return reply_syntax_error(call->reply);
    }
    return true;
}

static size_t pop_from_end(struct call *call, struct slice key, struct entry *entry, int end, size_t count) {
    return pop_range(call, key, entry, end ? LIST_TYPE_TAIL : LIST_TYPE_HEAD, count);
}
static void pop_one_with_key(struct call *call, struct slice key, struct entry *entry, int end) {
    reply_array(call->reply, 2);
    reply_bulk(call->reply, key);
    pop_one(call, key, entry, end ? LIST_TYPE_TAIL : LIST_TYPE_HEAD);
}
const struct multi_pop_kind list_multi_pop = {
    TYPE_LIST, {"left", "right"}, {"LPOP", "RPOP"}, pop_from_end, pop_one_with_key};
static void lmpop_run(struct call *call) {
    multi_pop(call, &list_multi_pop);
}

/* --- Moving --- */

/* Copies the element, because it is removed from one list before it is added to the other, which may be the same list.
 * A large element is shared instead. */
bool list_move(struct call *call, enum list_type_end from_end, enum list_type_end to_end) {
    struct slice from_key = call->argv[1], to_key = call->argv[2];
    struct entry *from, *to;
    if (!find_list_write(call, from_key, &from)) return true;
    if (!from) return false;
    if (!find_list_write(call, to_key, &to)) return true;
    struct list_type_iterator it;
    struct list_type_element element;
    char number[LISTPACK_TEXT];
    int64_t index = from_end == LIST_TYPE_HEAD ? 0 : -1;
    list_type_iterate(&it, from, index, false);
    list_type_next(&it, &element);
    reply_list_element(call->reply, &element);
    struct slice text = {element.value.data, element.value.len};
    if (!element.value.data) text = (struct slice){number, format_int64(number, element.value.number)};
    struct blob *blob = element.blob ? blob_hold(element.blob) : NULL;
    char buffer[256], *copy = NULL;
    if (!blob) {
        copy = text.len <= sizeof buffer ? buffer : mem_alloc(text.len);
        if (text.len) memcpy(copy, text.data, text.len);
        text.data = copy;
    }
    list_type_iterate_end(&it);

    list_type_delete(call->db, from, index, 1);
    if (!to) {
        to = list_type_create(call->db, to_key);
        notify(call->db, NOTIFY_NEW, "new", to_key);
    }
    list_type_expect(call->db, to, 1, text.len);
    list_type_push(call->db, to, to_end, text, blob);
    if (copy != buffer) mem_free(copy);
    db_changed(call->db, to_key);
    notify(call->db, NOTIFY_LIST, to_end == LIST_TYPE_HEAD ? "lpush" : "rpush", to_key);
    list_elements_removed(call, from_key, from, from_end == LIST_TYPE_HEAD ? "lpop" : "rpop");
    call->dirty++;
    return true;
}
static void lmove_run(struct call *call) {
    enum list_type_end from, to;
    if (list_end_read(call, call->argv[3], &from) && list_end_read(call, call->argv[4], &to) &&
        !list_move(call, from, to))
        reply_null(call->reply);
}
static void rpoplpush_run(struct call *call) {
    if (!list_move(call, LIST_TYPE_TAIL, LIST_TYPE_HEAD)) reply_null(call->reply);
}

/* --- Reading --- */

static void llen_run(struct call *call) {
    struct entry *entry;
    if (find_list(call, &entry)) reply_integer(call->reply, entry ? (int64_t)list_type_len(entry) : 0);
}

static void lindex_run(struct call *call) {
    struct entry *entry;
    int64_t index;
    if (!find_list(call, &entry)) return;
    if (!entry) {
        reply_null(call->reply);
        return;
    }
    if (!argument_int64(call, 2, &index)) return;
    struct list_type_iterator it;
    struct list_type_element element;
    list_type_iterate(&it, entry, index, false);
    if (list_type_next(&it, &element))
        reply_list_element(call->reply, &element);
    else
        reply_null(call->reply);
    list_type_iterate_end(&it);
}

/* Clips a range of LRANGE or LTRIM: sets *start and returns the number of elements. */
static size_t range_clip(int64_t *start, int64_t end, size_t len) {
    if (*start < 0) *start += (int64_t)len;
    if (end < 0) end += (int64_t)len;
    if (*start < 0) *start = 0;
    if (*start > end || *start >= (int64_t)len) return 0;
    if (end >= (int64_t)len) end = (int64_t)len - 1;
    return (size_t)(end - *start + 1);
}

static void lrange_run(struct call *call) {
    struct entry *entry;
    int64_t start, end;
    if (!argument_int64(call, 2, &start) || !argument_int64(call, 3, &end) || !find_list(call, &entry)) return;
    size_t count = entry ? range_clip(&start, end, list_type_len(entry)) : 0;
    reply_array(call->reply, count);
    if (!count) return;
    struct list_type_iterator it;
    struct list_type_element element;
    list_type_iterate(&it, entry, start, false);
    for (; count && list_type_next(&it, &element); count--) reply_list_element(call->reply, &element);
    list_type_iterate_end(&it);
}

struct position_options {
    int64_t rank, count /* -1: not given */, most;
};
static bool position_options_read(struct call *call, struct position_options *options) {
    *options = (struct position_options){1, -1, 0};
    for (int i = 3; i < call->argc; i += 2) {
        struct slice word = call->argv[i];
        if (i + 1 == call->argc) return reply_syntax_error(call->reply);
        if (slice_is(word, "rank")) {
            if (!signed_count_read(call, i + 1, &options->rank)) return false;
            if (options->rank == 0)
                return reply_error(call->reply,
                                   "ERR RANK can't be zero: use 1 to start from the first match, 2 from the "
                                   "second ... or use negative to start from the end of the list");
        } else if (slice_is(word, "count")) {
            if (!parse_int64(call->argv[i + 1], &options->count) || options->count < 0)
                return reply_error(call->reply, "ERR COUNT can't be negative");
        } else if (slice_is(word, "maxlen")) {
            if (!parse_int64(call->argv[i + 1], &options->most) || options->most < 0)
                return reply_error(call->reply, "ERR MAXLEN can't be negative");
        } else {
            return reply_syntax_error(call->reply);
        }
    }
    return true;
}

static bool element_is(const struct list_type_element *element, struct slice text, bool numeric, int64_t number) {
    if (element->value.data) return slice_equal((struct slice){element->value.data, element->value.len}, text);
    return numeric && element->value.number == number;
}
static void lpos_run(struct call *call) {
    struct position_options options;
    struct entry *entry;
    if (!position_options_read(call, &options) || !find_list(call, &entry)) return;
    bool many = options.count >= 0, backward = options.rank < 0;
    int64_t skip = (backward ? -options.rank : options.rank) - 1, number = 0, found = -1;
    bool numeric = parse_int64(call->argv[2], &number);
    size_t len = entry ? list_type_len(entry) : 0, visited = 0, replied = 0;
    struct reply_deferred deferred;
    struct list_type_iterator it;
    struct list_type_element element;
    if (many) reply_deferred_begin(call->reply, &deferred);
    if (entry) list_type_iterate(&it, entry, backward ? -1 : 0, backward);
    while (entry && (options.most == 0 || visited < (uint64_t)options.most) && list_type_next(&it, &element)) {
        visited++;
        if (!element_is(&element, call->argv[2], numeric, number) || skip-- > 0) continue;
        found = (int64_t)(backward ? len - visited : visited - 1);
        if (!many) break;
        reply_integer(call->reply, found);
        if (++replied == (uint64_t)options.count) break;
    }
    if (entry) list_type_iterate_end(&it);
    if (many)
        reply_deferred_end(call->reply, &deferred, REPLY_ARRAY, replied);
    else if (found >= 0)
        reply_integer(call->reply, found);
    else
        reply_null(call->reply);
}

/* --- Removing --- */

static void ltrim_run(struct call *call) {
    struct entry *entry;
    struct slice key = call->argv[1];
    int64_t start, end;
    if (!argument_int64(call, 2, &start) || !argument_int64(call, 3, &end) || !find_list_write(call, key, &entry))
        return;
    if (entry) {
        size_t len = list_type_len(entry), kept = range_clip(&start, end, len);
        size_t before = kept ? (size_t)start : len, behind = len - before - kept;
        if (behind) list_type_delete(call->db, entry, (int64_t)(before + kept), behind);
        if (before) list_type_delete(call->db, entry, 0, before);
        if (before + behind)
            list_elements_removed(call, key, entry, "ltrim");
        else
            notify(call->db, NOTIFY_LIST, "ltrim", key);
        call->dirty += before + behind;
    }
    reply_ok(call->reply);
}

static void lrem_run(struct call *call) {
    struct entry *entry;
    struct slice key = call->argv[1];
    int64_t count;
    if (!signed_count_read(call, 2, &count) || !find_list_write(call, key, &entry)) return;
    size_t removed = entry ? list_type_remove(call->db, entry, call->argv[3], count) : 0;
    if (removed) list_elements_removed(call, key, entry, "lrem");
    call->dirty += removed;
    reply_integer(call->reply, (int64_t)removed);
}

const struct command_spec list_commands[] = {
    {COMMAND("lpush", push_run, -3, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_LISTS, "1.0.0"),
     .complexity = "O(1) for each element.", .summary = "Inserts elements at the head of a list, one after the other.",
     .syntax = "key:key element:string...", .history = WORDS("2.4.0", "Takes several `element` arguments."),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_INSERT)}},
    {COMMAND("rpush", push_run, -3, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_LISTS, "1.0.0"), .variant = AT_TAIL,
     .complexity = "O(1) for each element.", .summary = "Appends elements to a list.",
     .syntax = "key:key element:string...", .history = WORDS("2.4.0", "Takes several `element` arguments."),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_INSERT)}},
    {COMMAND("lpushx", push_run, -3, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_LISTS, "2.2.0"), .variant = ONLY_PRESENT,
     .complexity = "O(1) for each element.", .summary = "Inserts elements at the head of a list, if the key exists.",
     .syntax = "key:key element:string...", .history = WORDS("4.0.0", "Takes several `element` arguments."),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_INSERT)}},
    {COMMAND("rpushx", push_run, -3, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_LISTS, "2.2.0"),
     .variant = AT_TAIL | ONLY_PRESENT, .complexity = "O(1) for each element.",
     .summary = "Appends elements to a list, if the key exists.", .syntax = "key:key element:string...",
     .history = WORDS("4.0.0", "Takes several `element` arguments."),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_INSERT)}},
    {COMMAND("linsert", linsert_run, 5, CMD_WRITE | CMD_DENYOOM, ON_LISTS, "2.2.0"),
     .complexity = "O(N) where N is the number of elements before the requested one.",
     .summary = "Inserts an element before or after another.",
     .syntax = "key:key where(BEFORE|AFTER) pivot:string element:string",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_INSERT)}},
    {COMMAND("lset", lset_run, 4, CMD_WRITE | CMD_DENYOOM, ON_LISTS, "1.0.0"),
     .complexity = "O(N) where N is how far the index is from the nearer end of the list.",
     .summary = "Replaces the element at an index.", .syntax = "key:key index:integer element:string",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_UPDATE)}},
    {COMMAND("lpop", pop_run, -2, CMD_WRITE | CMD_FAST, ON_LISTS, "1.0.0"), .variant = LIST_TYPE_HEAD,
     .complexity = "O(N) where N is the number of elements returned.",
     .summary = "Removes the first elements of a list and returns them. Deletes the key with the last "
                "of them.",
     .syntax = "key:key [count:integer@6.2.0]", .history = WORDS("6.2.0", "The argument `count`."),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_DELETE)}},
    {COMMAND("rpop", pop_run, -2, CMD_WRITE | CMD_FAST, ON_LISTS, "1.0.0"), .variant = LIST_TYPE_TAIL,
     .complexity = "O(N) where N is the number of elements returned.",
     .summary = "Removes the last elements of a list and returns them. Deletes the key with the last of "
                "them.",
     .syntax = "key:key [count:integer@6.2.0]", .history = WORDS("6.2.0", "The argument `count`."),
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_DELETE)}},
    {COMMAND("lmpop", lmpop_run, -4, CMD_WRITE | CMD_MOVABLE_KEYS, ON_LISTS, "7.0.0"),
     .complexity = "O(N+M) where N is the number of keys given and M is the number of elements returned.",
     .summary = "Removes elements from an end of the first list that is not empty, and returns them.",
     .syntax = "numkeys:integer key:key... where(LEFT|RIGHT) [COUNT count:integer]",
     .keys = {KEY_COUNTED(1, KEY_RW | KEY_ACCESS | KEY_DELETE)}},
    {COMMAND("lmove", lmove_run, 5, CMD_WRITE | CMD_DENYOOM, ON_LISTS, "6.2.0"), .complexity = "O(1)",
     .summary = "Moves an element from an end of a list to an end of another, and returns it.",
     .syntax = "source:key destination:key(#1) wherefrom(LEFT|RIGHT) whereto(LEFT|RIGHT)",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_DELETE), KEY_RANGE(2, 0, 1, KEY_RW | KEY_INSERT)}},
    {COMMAND("rpoplpush", rpoplpush_run, 3, CMD_WRITE | CMD_DENYOOM, ON_LISTS, "1.2.0"), .complexity = "O(1)",
     .summary = "Moves the last element of a list to the head of another, and returns it.",
     .syntax = "source:key destination:key(#1)",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_DELETE), KEY_RANGE(2, 0, 1, KEY_RW | KEY_INSERT)}},
    {COMMAND("llen", llen_run, 2, CMD_READONLY | CMD_FAST, ON_LISTS, "1.0.0"), .complexity = "O(1)",
     .summary = "Returns the number of elements in a list.", .syntax = "key:key", .keys = {KEY_RANGE(1, 0, 1, KEY_RO)}},
    {COMMAND("lindex", lindex_run, 3, CMD_READONLY, ON_LISTS, "1.0.0"),
     .complexity = "O(N) where N is how far the index is from the nearer end of the list.",
     .summary = "Returns the element at an index.", .syntax = "key:key index:integer",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("lrange", lrange_run, 4, CMD_READONLY, ON_LISTS, "1.0.0"),
     .complexity = "O(S+N) where S is how far the range is from the nearer end of the list and N is the number of "
                   "elements returned.",
     .summary = "Returns the elements of a range.", .syntax = "key:key start:integer stop:integer",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("lpos", lpos_run, -3, CMD_READONLY, ON_LISTS, "6.0.6"),
     .complexity = "O(N) where N is the number of elements examined.",
     .summary = "Returns the indexes of matching elements in a list.",
     .syntax = "key:key element:string [RANK rank:integer] [COUNT num-matches:integer] [MAXLEN "
               "len:integer]",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("ltrim", ltrim_run, 4, CMD_WRITE, ON_LISTS, "1.0.0"),
     .complexity = "O(N) where N is the number of elements removed.",
     .summary = "Removes the elements outside of a range.", .syntax = "key:key start:integer stop:integer",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_DELETE)}},
    {COMMAND("lrem", lrem_run, 4, CMD_WRITE, ON_LISTS, "1.0.0"),
     .complexity = "O(N) where N is the number of elements in the list.",
     .summary = "Removes elements that equal a value.", .syntax = "key:key count:integer element:string",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_DELETE)}},
    {.name = NULL},
};
