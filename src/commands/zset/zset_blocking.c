/* zset_blocking.c: the blocking sorted set commands: BZPOPMIN, BZPOPMAX, BZMPOP. server/clients/blocking.h implements
 * blocking. They are propagated as their non-blocking counterparts. */
#include "commands/zset/zset_common.h"
#include "server/clients/blocking.h"
#include "server/command/spec.h"

static void blocking_pop(struct call *call, bool highest) {
    int timeout_at = call->argc - 1;
    int64_t timeout_ms;
    if (!call_timeout_seconds(call, timeout_at, &timeout_ms)) return;
    for (int i = 1; i < timeout_at; i++) {
        struct slice key = call->argv[i];
        if (!zset_pop_one(call, key, highest)) continue;
        if (call->dirty) call_propagate(call, 2, (struct slice[]){highest ? SLICE("ZPOPMAX") : SLICE("ZPOPMIN"), key});
        return;
    }
    call_block(call, &(struct blocking){
                         .first_key = 1, .key_count = timeout_at - 1, .type = TYPE_ZSET, .timeout_ms = timeout_ms});
}
static void bzpopmin_run(struct call *call) {
    blocking_pop(call, false);
}
static void bzpopmax_run(struct call *call) {
    blocking_pop(call, true);
}

static void bzmpop_run(struct call *call) {
    multi_pop_wait(call, &zset_multi_pop);
}

const struct command_spec zset_blocking_commands[] = {
    {COMMAND("bzpopmin", bzpopmin_run, -3, CMD_WRITE | CMD_BLOCKING | CMD_FAST, ON_SORTED_SETS, "5.0.0"),
     .complexity = "O(log(N)), where N is the number of members",
     .summary = "Removes the member with the lowest score of the first sorted set that is not empty, and returns it. "
                "Blocks until there is one.",
     .syntax = "key:key... timeout:double", .history = WORDS("6.0.0", "`timeout` may have fractions of a second."),
     .keys = {KEY_RANGE(1, -2, 1, KEY_RW | KEY_ACCESS | KEY_DELETE)}},
    {COMMAND("bzpopmax", bzpopmax_run, -3, CMD_WRITE | CMD_BLOCKING | CMD_FAST, ON_SORTED_SETS, "5.0.0"),
     .complexity = "O(log(N)), where N is the number of members",
     .summary =
         "Removes the member with the highest score of the first sorted set that is not empty, and returns it. Blocks "
         "until there is one.",
     .syntax = "key:key... timeout:double", .history = WORDS("6.0.0", "`timeout` may have fractions of a second."),
     .keys = {KEY_RANGE(1, -2, 1, KEY_RW | KEY_ACCESS | KEY_DELETE)}},
    {COMMAND("bzmpop", bzmpop_run, -5, CMD_WRITE | CMD_BLOCKING | CMD_MOVABLE_KEYS, ON_SORTED_SETS, "7.0.0"),
     .complexity =
         "O(K)+O(M*log(N)), where K is the number of keys, N that of the members and M that of the members taken",
     .summary = "Removes the members with the highest or lowest scores of the first sorted set that is not empty, and "
                "returns them. Blocks until there are some.",
     .syntax = "timeout:double numkeys:integer key:key... where(MIN|MAX) [COUNT count:integer]",
     .keys = {KEY_COUNTED(2, KEY_RW | KEY_ACCESS | KEY_DELETE)}},
    {.name = NULL},
};
