/* multi_pop.c: pops from the first of several keys. See multi_pop.h. */
#include "commands/multi_pop.h"
#include "commands/lookup.h"
#include "server/clients/blocking.h"

struct multi_pop {
    int first_key, key_count, end;
    int64_t count;
};

/* Reads [COUNT count], from argument `index` to the last. */
static bool count_read(struct call *call, int index, int64_t *count) {
    *count = 1;
    if (index == call->argc) return true;
    bool named = index + 1 < call->argc && slice_is(call->argv[index], "count");
    if (named && (!parse_int64(call->argv[index + 1], count) || *count < 1)) {
        reply_error(call->reply, "ERR count should be greater than 0");
    } else if (!named || call->argc > index + 2) {
        reply_syntax_error(call->reply);
    } else {
        return true;
    }
    return false;
}

/* Reads the arguments from `index` on. False: replied with an error. */
static bool multi_pop_read(struct call *call, int index, const struct multi_pop_kind *kind, struct multi_pop *pop) {
    int64_t keys;
    if (!parse_int64(call->argv[index], &keys) || keys < 1)
        return reply_error(call->reply, "ERR numkeys should be greater than 0");
    if (keys > call->argc - index - 2) return reply_syntax_error(call->reply);
    int at = index + 1 + (int)keys;
    pop->first_key = index + 1;
    pop->key_count = (int)keys;
    pop->end = slice_is(call->argv[at], kind->ends[1]);
    if (!pop->end && !slice_is(call->argv[at], kind->ends[0])) return reply_syntax_error(call->reply);
    return count_read(call, at + 1, &pop->count);
}

/* False: all keys are missing, without a reply. */
static bool multi_pop_try(struct call *call, const struct multi_pop_kind *kind, const struct multi_pop *pop) {
    for (int i = pop->first_key; i < pop->first_key + pop->key_count; i++) {
        struct slice key = call->argv[i];
        struct entry *entry = find_write(call, key);
        if (!type_ok(call, entry, kind->type)) return true;
        if (!entry) continue;
        char text[NUMBER_TEXT_MAX];
        reply_array(call->reply, 2);
        reply_bulk(call->reply, key);
        size_t popped = kind->pop(call, key, entry, pop->end, (size_t)pop->count);
        call_propagate(
            call, 3,
            (struct slice[]){slice_of(kind->propagated_as[pop->end]), key, {text, format_uint64(text, popped)}});
        return true;
    }
    return false;
}

void multi_pop(struct call *call, const struct multi_pop_kind *kind) {
    struct multi_pop pop;
    if (multi_pop_read(call, 1, kind, &pop) && !multi_pop_try(call, kind, &pop)) reply_null_array(call->reply);
}

void multi_pop_wait(struct call *call, const struct multi_pop_kind *kind) {
    struct multi_pop pop;
    int64_t timeout_ms;
    if (!multi_pop_read(call, 2, kind, &pop) || !call_timeout_seconds(call, 1, &timeout_ms) ||
        multi_pop_try(call, kind, &pop))
        return;
    call_block(call, &(struct blocking){.first_key = pop.first_key,
                                        .key_count = pop.key_count,
                                        .type = kind->type,
                                        .timeout_ms = timeout_ms});
}

void pop_wait(struct call *call, const struct multi_pop_kind *kind) {
    int timeout_at = call->argc - 1, end = call_variant(call);
    int64_t timeout_ms;
    if (!call_timeout_seconds(call, timeout_at, &timeout_ms)) return;
    for (int i = 1; i < timeout_at; i++) {
        struct slice key = call->argv[i];
        struct entry *entry = find_write(call, key);
        if (!type_ok(call, entry, kind->type)) return;
        if (!entry) continue;
        call_propagate(call, 2, (struct slice[]){slice_of(kind->propagated_as[end]), key});
        kind->pop_one(call, key, entry, end);
        return;
    }
    call_block(call, &(struct blocking){
                         .first_key = 1, .key_count = timeout_at - 1, .type = kind->type, .timeout_ms = timeout_ms});
}
