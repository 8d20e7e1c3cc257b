/* value_scan.c: see value_scan.h. */
#include "commands/value_scan.h"
#include "commands/lookup.h"
#include "commands/scan.h"
#include "lib/text/glob.h"

bool value_scan_find(struct call *call, enum value_type type, uint64_t *cursor, struct entry **entry) {
    if (!scan_cursor_parse(call->argv[2], cursor)) return reply_error(call->reply, "ERR invalid cursor");
    *entry = find_read(call, call->argv[1]);
    if (!*entry) {
        reply_array(call->reply, 2);
        reply_bulk_text(call->reply, "0");
        reply_array(call->reply, 0);
        return false;
    }
    return type_ok(call, *entry, type);
}

bool value_scan_options(struct call *call, struct value_scan *scan, unsigned allowed) {
    *scan = (struct value_scan){.reply = call->reply, .count = 10};
    for (int i = 3; i < call->argc; i++) {
        struct slice word = call->argv[i];
        bool more = i + 1 < call->argc;
        if (more && slice_is(word, "count")) {
            if (!argument_int64(call, ++i, &scan->count)) return false;
            if (scan->count < 1) return reply_syntax_error(call->reply);
        } else if (more && slice_is(word, "match")) {
            scan->pattern = call->argv[++i];
            scan->match = !slice_equal(scan->pattern, SLICE("*"));
        } else if (slice_is(word, "novalues")) {
            if (!(allowed & SCAN_NO_VALUES))
                return reply_error(call->reply, "ERR NOVALUES option can only be used in HSCAN");
            scan->names_only = true;
        } else if (slice_is(word, "noscores")) {
            if (!(allowed & SCAN_NO_SCORES))
                return reply_error(call->reply, "ERR NOSCORES option can only be used in ZSCAN");
            scan->names_only = true;
        } else {
            return reply_syntax_error(call->reply);
        }
    }
    return true;
}

bool value_scan_wants(struct value_scan *scan, struct slice name, size_t parts) {
    scan->sampled++;
    if (scan->match && !glob_match(scan->pattern, name, false)) return false;
    scan->replied += parts;
    return true;
}

void value_scan_run(struct call *call, struct value_scan *scan, uint64_t cursor, const struct entry *entry,
                    uint64_t (*step)(const struct entry *entry, uint64_t cursor, struct value_scan *scan)) {
    /* The cursor precedes the elements in the reply but is known only after them, so they go to memory first. */
    memory_output_init(&scan->memory);
    struct output *outer = call->reply->out;
    call->reply->out = &scan->memory.out;
    uint64_t steps = scan->count > INT64_MAX / 10 ? (uint64_t)INT64_MAX : (uint64_t)scan->count * 10;
    do {
        cursor = step(entry, cursor, scan);
    } while (cursor != 0 && --steps > 0 && scan->sampled < (uint64_t)scan->count);
    call->reply->out = outer;

    reply_array(call->reply, 2);
    char text[NUMBER_TEXT_MAX];
    reply_bulk(call->reply, (struct slice){text, format_uint64(text, cursor)});
    reply_array(call->reply, scan->replied);
    reply_raw(call->reply, memory_output_slice(&scan->memory));
    memory_output_free(&scan->memory);
}
