/* expire_time.c: see expire_time.h. */
#include "commands/expire_time.h"
#include "commands/lookup.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"

bool expire_option_read(const struct call *call, int *index, struct expire_option *option, unsigned allowed) {
    static const struct {
        const char *name;
        size_t len;
        enum expire_kind kind;
    } names[] = {{"ex", 2, EXPIRE_EX},     {"px", 2, EXPIRE_PX},           {"exat", 4, EXPIRE_EXAT},
                 {"pxat", 4, EXPIRE_PXAT}, {"keepttl", 7, EXPIRE_KEEPTTL}, {"persist", 7, EXPIRE_PERSIST}};
    struct slice word = call->argv[*index];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (word.len != names[i].len || !(names[i].kind & allowed) ||
            strncasecmp(word.data, names[i].name, word.len) != 0)
            continue;
        if (option->kind != EXPIRE_NONE && option->kind != names[i].kind) return false;
        option->kind = names[i].kind;
        if (!(option->kind & EXPIRE_TIMES)) return true;
        option->index = ++*index;
        return *index < call->argc;
    }
    return false;
}

bool expire_time_make(int64_t value, bool seconds, bool relative, int64_t *at) {
    if (seconds && __builtin_mul_overflow(value, 1000, &value)) return false;
    return !__builtin_add_overflow(value, relative ? clock_data_ms() : 0, at);
}

int64_t expire_time_shown(int64_t at, bool seconds, bool relative) {
    if (relative) at = at > clock_data_ms() ? at - clock_data_ms() : 0;
    return seconds ? at / 1000 + (at % 1000 >= 500) : at;
}

bool reply_invalid_expire(struct call *call) {
    return reply_error_format(call->reply, "ERR invalid expire time in '%s' command", call->command->full_name);
}

static bool option_time(struct call *call, const struct expire_option *option, int64_t least, int64_t *at) {
    *at = -1;
    if (!(option->kind & EXPIRE_TIMES)) return true;
    int64_t value;
    if (!argument_integer(call, option->index, &value)) return false;
    if (value >= least &&
        expire_time_make(value, option->kind & (EXPIRE_EX | EXPIRE_EXAT), option->kind & (EXPIRE_EX | EXPIRE_PX), at)) {
        return true;
    }
    return reply_invalid_expire(call);
}

bool expire_option_time(struct call *call, const struct expire_option *option, int64_t *at) {
    return option_time(call, option, 1, at);
}
bool expire_option_time_or_zero(struct call *call, const struct expire_option *option, int64_t *at) {
    return option_time(call, option, 0, at);
}

void expire_option_propagate(struct call *call, int first, const struct expire_option *option, int64_t at) {
    char text[NUMBER_TEXT_MAX];
    struct slice *args = mem_alloc((size_t)call->argc * sizeof *args);
    int count = 0;
    for (int i = 0; i < call->argc; i++) {
        struct expire_option again = {0};
        if (i < first || !expire_option_read(call, &i, &again, EXPIRE_TIMES)) {
            args[count++] = call->argv[i];
        } else if (i == option->index) {
            args[count++] = SLICE("PXAT");
            args[count++] = (struct slice){text, format_int64(text, at)};
        }
    }
    call_propagate(call, count, args);
    mem_free(args);
}

static const struct {
    const char *name;
    enum expire_condition condition;
} conditions[EXPIRE_CONDITIONS] = {
    {"NX", CONDITION_NX}, {"XX", CONDITION_XX}, {"GT", CONDITION_GT}, {"LT", CONDITION_LT}};

bool expire_conditions_read(struct call *call, int first, int end, unsigned *read) {
    for (int i = first; i < end; i++) {
        struct slice word = call->argv[i];
        int c = 0;
        while (c < EXPIRE_CONDITIONS && !slice_is(word, conditions[c].name)) c++;
        if (c == EXPIRE_CONDITIONS)
            return reply_error_format(call->reply, "ERR Unsupported option %.*s", shown_len(word), word.data);
        *read |= conditions[c].condition;
    }
    if ((*read & CONDITION_NX) && (*read & ~(unsigned)CONDITION_NX))
        return reply_error(call->reply, "ERR NX and XX, GT or LT options at the same time are not compatible");
    if ((*read & CONDITION_GT) && (*read & CONDITION_LT))
        return reply_error(call->reply, "ERR GT and LT options at the same time are not compatible");
    return true;
}

bool expire_conditions_met(unsigned wanted, int64_t now_at, int64_t at) {
    bool never = now_at == -1;
    return !((wanted & CONDITION_NX) && !never) && !((wanted & CONDITION_XX) && never) &&
           !((wanted & CONDITION_GT) && (never || at <= now_at)) &&
           !((wanted & CONDITION_LT) && !never && at >= now_at);
}

bool expire_time_is_past(const struct call *call, int64_t at) {
    return at <= clock_data_ms() && !store_settings.keep_expired && !client_must_be_obeyed(call->client);
}

void expire_now(struct call *call, struct slice key) {
    bool lazy = store_settings.lazy_expire;
    call_propagate(call, 2, (struct slice[]){lazy ? SLICE("UNLINK") : SLICE("DEL"), key});
    db_delete_as(call->db, key, lazy, REMOVAL_EXPIRED);
    notify(call->db, NOTIFY_EXPIRED, "expired", key);
    store_stats.expired_keys++;
    call->dirty++;
}
