/* expire_time.c: see expire_time.h. */
#include "commands/expire_time.h"
#include "lib/clock.h"
#include "lib/number.h"
#include "server/notify.h"
#include "server/server.h"

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
    return !__builtin_add_overflow(value, relative ? clock_ms() : 0, at);
}

void reply_invalid_expire(struct call *call) {
    reply_error_format(call->reply, "ERR invalid expire time in '%s' command", call->command->full_name);
}

bool expire_option_time(struct call *call, const struct expire_option *option, int64_t *at) {
    *at = -1;
    if (!(option->kind & EXPIRE_TIMES)) return true;
    int64_t value;
    if (!parse_int64(call->argv[option->index], &value)) {
        reply_not_integer(call->reply);
        return false;
    }
    if (value > 0 && expire_time_make(value, option->kind & (EXPIRE_EX | EXPIRE_EXAT),
                                      option->kind & (EXPIRE_EX | EXPIRE_PX), at)) {
        return true;
    }
    reply_invalid_expire(call);
    return false;
}

bool expire_time_is_past(int64_t at) {
    return at <= clock_ms() && !server.loading && !store_settings.keep_expired;
}

void expire_now(struct call *call, struct slice key) {
    bool lazy = store_settings.lazy_expire;
    call_propagate(call, 2, (struct slice[]){lazy ? SLICE("UNLINK") : SLICE("DEL"), key});
    db_delete(call->db, key, lazy);
    notify(call->db, NOTIFY_GENERIC, "del", key);
    call->dirty++;
}
