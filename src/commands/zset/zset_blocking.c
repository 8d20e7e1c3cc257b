/* zset_blocking.c: the blocking sorted set commands: BZPOPMIN, BZPOPMAX, BZMPOP. server/clients/blocking.h implements
 * blocking. They are propagated as their non-blocking counterparts. */
#include "commands/zset/zset_common.h"
#include "server/command/spec.h"

static void bzpopmin_run(struct call *call) {
    pop_wait(call, &zset_multi_pop);
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
    {COMMAND("bzpopmax", bzpopmin_run, -3, CMD_WRITE | CMD_BLOCKING | CMD_FAST, ON_SORTED_SETS, "5.0.0"), .variant = 1,
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
