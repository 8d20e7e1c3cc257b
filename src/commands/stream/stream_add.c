/* stream_add.c: XADD and XTRIM, which share their trimming options.
 *
 * Both are propagated exactly as executed: with the chosen id, and with an exact threshold in place of an approximate
 * one. Such a call may contain LIMIT with "=", which is accepted only from a primary or an AOF. */
#include "commands/stream/stream_common.h"
#include "lib/system/memory.h"
#include "server/clients/blocking.h"
#include "server/command/propagate.h"
#include "server/command/spec.h"

#define STREAM_TOO_LARGE "ERR Elements are too large to be stored"

struct add {
    bool must_exist; /* NOMKSTREAM */
    struct stream_trim trim;
    int threshold; /* index of the threshold in argv; 0: no trimming */
    bool limited;  /* LIMIT was given */
    int id_at;     /* index of the id of XADD; the pairs follow it */
    enum stream_id_form form;
    struct stream_id id;
};

/* Reads the trimming strategy from argv[at] on. Returns the index of its last argument; -1: replied with an error. */
static int strategy_read(struct call *call, struct add *add, int at, enum stream_trim_by by) {
    int last = call->argc - 1;
    int64_t length;
    if (add->trim.by != STREAM_TRIM_NOTHING) {
        reply_error(call->reply, "ERR syntax error, MAXLEN and MINID options at the same time are not compatible");
        return -1;
    }
    add->trim.by = by;
    at++;
    if (at < last && (slice_is(call->argv[at], "~") || slice_is(call->argv[at], "=")))
        add->trim.approximate = slice_is(call->argv[at++], "~");
    add->threshold = at;
    if (by == STREAM_TRIM_ID) return stream_id_read(call, call->argv[at], 0, &add->trim.min) ? at : -1;
    if (!argument_int64(call, at, &length)) return -1;
    add->trim.length = (uint64_t)length;
    if (length >= 0) return at;
    reply_error(call->reply, "ERR The MAXLEN argument must be >= 0.");
    return -1;
}
static bool limit_read(struct call *call, struct add *add, int at) {
    int64_t limit;
    if (!argument_int64(call, at, &limit)) return false;
    add->trim.limit = (uint64_t)limit;
    add->limited = true;
    if (limit < 0) reply_error(call->reply, "ERR The LIMIT argument must be >= 0.");
    return limit >= 0;
}
static bool trim_check(struct call *call, struct add *add, bool is_trim) {
    const char *error = NULL;
    if (add->trim.limit && add->trim.by == STREAM_TRIM_NOTHING)
        error = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy";
    else if (is_trim && add->trim.by == STREAM_TRIM_NOTHING)
        error = "ERR syntax error, XTRIM must be called with a trimming strategy";
    else if (client_must_be_obeyed(call->client))
        add->trim.limit = 0;
    else if (add->limited && !add->trim.approximate)
        error = "ERR syntax error, LIMIT cannot be used without the special ~ option";
    else if (add->trim.approximate && !add->limited)
        add->trim.limit = stream_trim_limit();
    if (error) reply_error(call->reply, error);
    return !error;
}

/* Reads the options from argv[2] on. False: replied with an error. */
static bool options_read(struct call *call, struct add *add, bool is_trim) {
    int i = 2;
    *add = (struct add){.form = STREAM_ID_CHOSEN};
    for (; i < call->argc; i++) {
        struct slice word = call->argv[i];
        bool more = i + 1 < call->argc, chosen;
        if (!is_trim && slice_is(word, "*")) break;
        if (more && slice_is(word, "maxlen")) {
            i = strategy_read(call, add, i, STREAM_TRIM_LENGTH);
        } else if (more && slice_is(word, "minid")) {
            i = strategy_read(call, add, i, STREAM_TRIM_ID);
        } else if (more && slice_is(word, "limit")) {
            i = limit_read(call, add, i + 1) ? i + 1 : -1;
        } else if (!is_trim && slice_is(word, "nomkstream")) {
            add->must_exist = true;
        } else if (is_trim) {
            return reply_syntax_error(call->reply);
        } else if (stream_id_parse(word, STREAM_ID_PARTIAL, 0, &add->id, &chosen)) {
            add->form = chosen ? STREAM_ID_MS_GIVEN : STREAM_ID_GIVEN;
            break;
        } else {
            return reply_error(call->reply, STREAM_BAD_ID);
        }
        if (i < 0) return false;
    }
    add->id_at = i;
    return trim_check(call, add, is_trim);
}

/* Trims according to the options; returns the number of entries removed. */
static uint64_t trim(struct call *call, struct stream *stream, const struct add *add) {
    uint64_t removed = add->threshold ? stream_trim(stream, &add->trim) : 0;
    if (removed) notify(call->db, NOTIFY_STREAM, "xtrim", call->argv[1]);
    return removed;
}

/* The id below which all entries, and no others, have been removed. */
static struct stream_id first_kept(const struct stream *stream) {
    struct radix_iterator it;
    radix_iterator_init(&it, stream->nodes);
    struct stream_id id =
        radix_iterator_seek(&it, RADIX_FIRST, SLICE("")) ? stream_id_decode(it.key.data) : STREAM_ID_MAX;
    radix_iterator_free(&it);
    return id;
}
/* Propagates the exact effect if the arguments are not exact. */
static void propagate_exactly(struct call *call, const struct stream *stream, const struct add *add) {
    enum { INLINE_MAX = 32 };
    bool id_chosen = add->id_at < call->argc && add->form != STREAM_ID_GIVEN;
    if (!propagate_wanted() || !(id_chosen || add->trim.approximate)) return;
    struct slice inline_argv[INLINE_MAX], *argv = inline_argv;
    char id[STREAM_ID_TEXT], threshold[STREAM_ID_TEXT];
    if (call->argc > INLINE_MAX) argv = mem_alloc((size_t)call->argc * sizeof *argv);
    memcpy(argv, call->argv, (size_t)call->argc * sizeof *argv);
    if (id_chosen) argv[add->id_at] = (struct slice){id, stream_id_format(id, add->id)};
    if (add->trim.approximate) {
        argv[add->threshold - 1] = SLICE("=");
        argv[add->threshold] = (struct slice){threshold, add->trim.by == STREAM_TRIM_LENGTH
                                                             ? format_uint64(threshold, stream->length)
                                                             : stream_id_format(threshold, first_kept(stream))};
    }
    call_propagate(call, call->argc, argv);
    if (argv != inline_argv) mem_free(argv);
}

/* Finds or creates the stream. NULL: not possible; replied with the reason. */
static struct stream *add_target(struct call *call, const struct add *add, const struct slice *texts, size_t pairs) {
    struct slice key = call->argv[1];
    struct stream *stream;
    if (!find_stream_write(call, key, &stream)) return NULL;
    if (!stream && add->must_exist) {
        reply_null(call->reply);
        return NULL;
    }
    if (stream && stream_id_equal(stream->last_id, STREAM_ID_MAX)) {
        reply_error(call->reply, "ERR The stream has exhausted the last possible ID, unable to add more items");
        return NULL;
    }
    if (stream) return stream;
    if (stream_fits(texts, pairs)) return stream_make(call, key);
    reply_error(call->reply, STREAM_TOO_LARGE);
    return NULL;
}

static void xadd_run(struct call *call) {
    struct add add;
    if (!options_read(call, &add, false)) return;
    int texts = call->argc - add.id_at - 1;
    if (texts < 2 || texts % 2) {
        reply_error_format(call->reply, "ERR wrong number of arguments for '%s' command", call->command->full_name);
        return;
    }
    if (add.form == STREAM_ID_GIVEN && stream_id_is_zero(add.id)) {
        reply_error(call->reply, "ERR The ID specified in XADD must be greater than 0-0");
        return;
    }
    struct slice key = call->argv[1];
    const struct slice *first = &call->argv[add.id_at + 1];
    struct stream *stream = add_target(call, &add, first, (size_t)texts / 2);
    if (!stream) return;
    if (!stream_next_id(stream, add.form, clock_data_ms(), &add.id)) {
        reply_error(call->reply, "ERR The ID specified in XADD is equal or smaller than the target stream top item");
        return;
    }
    if (!stream_append(stream, add.id, first, (size_t)texts / 2)) {
        reply_error(call->reply, STREAM_TOO_LARGE);
        return;
    }
    reply_stream_id(call->reply, add.id);
    db_changed(call->db, key);
    notify(call->db, NOTIFY_STREAM, "xadd", key);
    call->dirty++;
    trim(call, stream, &add);
    propagate_exactly(call, stream, &add);
}

static void xtrim_run(struct call *call) {
    struct add add;
    struct stream *stream;
    if (!options_read(call, &add, true) || !find_stream_write(call, call->argv[1], &stream)) return;
    uint64_t removed = stream ? trim(call, stream, &add) : 0;
    if (removed) {
        blocking_changed_quietly(call->db, call->argv[1]);
        propagate_exactly(call, stream, &add);
        call->dirty += removed;
    }
    reply_integer(call->reply, (int64_t)removed);
}

#define TRIM_SYNTAX                                                                                                    \
    "trim{strategy(MAXLEN|MINID@6.2.0) [operator(equal=\"=\"|approximately=\"~\")] threshold:string "                  \
    "[LIMIT count:integer@6.2.0]}"
const struct command_spec stream_add_commands[] = {
    {COMMAND("xadd", xadd_run, -5, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_STREAMS, "5.0.0"),
     .complexity = "O(1) when adding a new entry, O(N) when trimming where N being the number of entries evicted.",
     .summary = "Appends a new message to a stream. Creates the key if it doesn't exist.",
     .syntax = "key:key [NOMKSTREAM@6.2.0] [" TRIM_SYNTAX "] id-selector(auto-id=\"*\"|id:string) "
               "data{field:string value:string}...",
     .history = WORDS("6.2.0", "Added the `NOMKSTREAM` option, `MINID` trimming strategy and the `LIMIT` option.",
                      "7.0.0", "Added support for the `<ms>-*` explicit ID form."),
     .tips = WORDS("nondeterministic_output"),
     .keys = {{.flags = KEY_RW | KEY_UPDATE,
               .notes = "UPDATE instead of INSERT because of the optional trimming feature",
               .begin = BEGIN_INDEX,
               .index = 1,
               .find = FIND_RANGE,
               .a = 0,
               .b = 1}}},
    {COMMAND("xtrim", xtrim_run, -4, CMD_WRITE, ON_STREAMS, "5.0.0"),
     .complexity = "O(N) where N is the number of entries removed; whole nodes of them at once.",
     .summary = "Removes the first entries of a stream.", .syntax = "key:key " TRIM_SYNTAX,
     .history = WORDS("6.2.0", "`MINID` and `LIMIT`."), .tips = WORDS("nondeterministic_output"),
     .keys = FIRST_KEY(KEY_RW | KEY_DELETE)},
    {.name = NULL},
};
