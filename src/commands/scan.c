/* scan.c: iteration over the keys of a database: SCAN, KEYS, RANDOMKEY. */
#include "commands/lookup.h"
#include "commands/scan.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/memory.h"
#include "lib/text/glob.h"
#include "server/command/spec.h"
#include "store/extension.h"
#include <errno.h>
#include <stdlib.h>

static void keys_run(struct call *call) {
    struct slice pattern = call->argv[1];
    bool all = slice_equal(pattern, SLICE("*"));
    size_t found = 0;
    struct reply_deferred deferred;
    reply_deferred_begin(call->reply, &deferred);
    int slot = all ? -1 : hash_slot_of_pattern(pattern);
    if (slot >= 0 && keyspace_slot_is_hidden((unsigned)slot)) {
        reply_deferred_end(call->reply, &deferred, REPLY_ARRAY, 0);
        return;
    }
    struct db_iterator *iterator = db_iterate(call->db, slot);
    for (struct entry *entry; (entry = db_iterate_next(iterator));) {
        struct slice key = entry_key(entry);
        if ((!all && !glob_match(pattern, key, false)) || entry_is_expired(entry)) continue;
        reply_bulk(call->reply, key);
        found++;
    }
    db_iterate_end(iterator);
    reply_deferred_end(call->reply, &deferred, REPLY_ARRAY, found);
}

static void randomkey_run(struct call *call) {
    struct entry *entry = db_random(call->db);
    if (entry) {
        reply_bulk(call->reply, entry_key(entry));
    } else {
        reply_null(call->reply);
    }
}

static void scan_seen(void *context, struct entry *entry) {
    struct scan *scan = context;
    scan->sampled++;
    struct slice key = entry_key(entry);
    if (scan->match && !glob_match(scan->pattern, key, false)) return;
    if (scan->type != -1 && (int)entry_type(entry) != scan->type) return;
    if (scan->extension && extension_of(entry)->type != scan->extension) return;
    if (entry_is_expired(entry)) {
        /* The table must not change during the scan, so expired keys are collected and deleted afterwards, unless this
         * server keeps them: a replica waits for its primary's DEL. */
        mem_grow(scan->expired, scan->expired_count, scan->expired_capacity, 16);
        scan->expired[scan->expired_count++] = (struct slice){mem_strndup(key.data, key.len), key.len};
        return;
    }
    reply_bulk(scan->reply, key);
    scan->found++;
}

bool scan_cursor_parse(struct slice text, uint64_t *cursor) {
    int64_t value;
    if (parse_int64(text, &value)) {
        *cursor = (uint64_t)value;
        return value >= 0;
    }
    /* Above the signed range, or not canonical ("+5"): parse it with strtoull. */
    char copy[64];
    if (text.len == 0 || text.len >= sizeof copy) return false;
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    char *end;
    errno = 0;
    *cursor = strtoull(copy, &end, 10);
    return errno == 0 && end == copy + text.len;
}

static bool scan_type_read(struct call *call, struct slice name, struct scan *scan) {
    scan->extension = NULL;
    for (scan->type = 0; scan->type < TYPE_EXTENSION; ++scan->type) {
        if (slice_is(name, value_type_name((enum value_type)scan->type))) return true;
    }
    if ((scan->extension = extension_find_name(name, true))) return true;
    return reply_error_format(call->reply, "ERR unknown type name '%.*s'", shown_len(name), name.data);
}

static bool scan_slot_read(struct call *call, struct scan *scan, struct slice text) {
    int64_t slot;
    if (scan->slot >= 0) {
        reply_error(call->reply, "ERR SLOT option can only be specified once");
    } else if (!parse_int64(text, &slot) || slot < 0 || slot >= HASH_SLOTS) {
        reply_error(call->reply, "ERR Invalid or out of range slot");
    } else {
        scan->slot = (int)slot;
        return true;
    }
    return false;
}

bool scan_options_read(struct call *call, struct scan *scan, bool slot_allowed) {
    *scan = (struct scan){.reply = call->reply, .type = -1, .count = 10, .slot = -1};
    for (int i = 2; i < call->argc; i += 2) {
        struct slice word = call->argv[i];
        if (i + 1 < call->argc && slice_is(word, "count")) {
            if (!argument_int64(call, i + 1, &scan->count)) return false;
            if (scan->count < 1) return reply_syntax_error(call->reply);
        } else if (slot_allowed && i + 1 < call->argc && slice_is(word, "slot")) {
            if (!scan_slot_read(call, scan, call->argv[i + 1])) return false;
        } else if (i + 1 < call->argc && slice_is(word, "match")) {
            scan->pattern = call->argv[i + 1];
            scan->match = !slice_equal(scan->pattern, SLICE("*"));
        } else if (i + 1 < call->argc && slice_is(word, "type")) {
            if (!scan_type_read(call, call->argv[i + 1], scan)) return false;
        } else if (slice_is(word, "novalues")) {
            return reply_error(call->reply, "ERR NOVALUES option can only be used in HSCAN");
        } else if (slice_is(word, "noscores")) {
            return reply_error(call->reply, "ERR NOSCORES option can only be used in ZSCAN");
        } else {
            return reply_syntax_error(call->reply);
        }
    }
    return true;
}

/* The cursor precedes the keys in the reply but is known only after them, so the keys go to memory first. */
void scan_begin(struct call *call, struct scan *scan) {
    memory_output_init(&scan->memory);
    scan->outer = call->reply->out;
    call->reply->out = &scan->memory.out;
    /* In a sparse table many steps find nothing, so the number of steps is limited as well. */
    scan->steps = scan->count > INT64_MAX / 10 ? (uint64_t)INT64_MAX : (uint64_t)scan->count * 10;
}

uint64_t scan_slots(struct call *call, struct scan *scan, int slot, uint64_t cursor) {
    do {
        cursor = db_scan(call->db, slot, cursor, scan_seen, scan);
    } while (cursor != 0 && --scan->steps > 0 && scan->sampled < (uint64_t)scan->count);
    return cursor;
}

void scan_end(struct call *call, struct scan *scan, struct slice cursor) {
    call->reply->out = scan->outer;
    reply_array(call->reply, 2);
    reply_bulk(call->reply, cursor);
    reply_array(call->reply, scan->found);
    reply_raw(call->reply, memory_output_slice(&scan->memory));
    memory_output_free(&scan->memory);
    for (size_t i = 0; i < scan->expired_count; i++) {
        db_find(call->db, scan->expired[i], LOOKUP_NOTOUCH | LOOKUP_NOSTATS);
        mem_free((void *)scan->expired[i].data);
    }
    mem_free(scan->expired);
}

static void scan_run(struct call *call) {
    uint64_t cursor;
    struct scan scan;
    char text[NUMBER_TEXT_MAX];
    if (!scan_cursor_parse(call->argv[1], &cursor)) {
        reply_error(call->reply, "ERR invalid cursor");
        return;
    }
    if (!scan_options_read(call, &scan, false)) return;
    scan_begin(call, &scan);
    cursor = scan_slots(call, &scan, scan.match ? hash_slot_of_pattern(scan.pattern) : -1, cursor);
    scan_end(call, &scan, (struct slice){text, format_uint64(text, cursor)});
}

const struct command_spec scan_commands[] = {
    {COMMAND("keys", keys_run, 2, CMD_READONLY, .group = GROUP_GENERIC, "1.0.0"),
     .categories = CAT_KEYSPACE | CAT_DANGEROUS,
     .complexity = "O(N) where N is the number of keys in the database, if names and pattern are of limited length.",
     .summary = "Returns the names of all keys that match a pattern.", .syntax = "pattern:pattern",
     .tips = WORDS("request_policy:all_shards", "nondeterministic_output_order")},
    {COMMAND("randomkey", randomkey_run, 1, CMD_READONLY | CMD_TOUCHES_ARBITRARY_KEYS, ON_KEYS, "1.0.0"),
     .complexity = "O(1)", .summary = "Returns a random key.", .syntax = "",
     .tips = WORDS("request_policy:all_shards", "response_policy:special", "nondeterministic_output")},
    {COMMAND("scan", scan_run, -2, CMD_READONLY | CMD_TOUCHES_ARBITRARY_KEYS, ON_KEYS, "2.8.0"),
     .complexity = "O(1) for each call. O(N) for a whole walk, of as many calls as it takes until the cursor is 0 "
                   "again. N is the number of keys.",
     .summary = "Iterates over the names of the keys, a few with each call.",
     .syntax = "cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [TYPE type:string@6.0.0]",
     .history = WORDS("6.0.0", "The option `TYPE`."),
     .tips = WORDS("nondeterministic_output", "request_policy:special", "response_policy:special")},
    {.name = NULL},
};
