/* list_blocking.c: the blocking list commands: BLPOP, BRPOP, BLMOVE, BRPOPLPUSH, BLMPOP. server/clients/blocking.h
 * implements blocking. They are propagated as their non-blocking counterparts. */
#include "commands/list/list.h"
#include "server/clients/blocking.h"
#include "server/command/spec.h"

/* --- The commands validate the timeout first, also in a transaction --- */

static void blpop_run(struct call *call) {
    pop_wait(call, &list_multi_pop);
}

static void blocking_move(struct call *call, enum list_type_end from, enum list_type_end to, int64_t timeout_ms,
                          int propagated_argc, const struct slice *propagated) {
    if (list_move(call, from, to)) {
        if (call->dirty) call_propagate(call, propagated_argc, propagated);
        return;
    }
    call_block(call,
               &(struct blocking){
                   .first_key = 1, .key_count = 1, .type = TYPE_LIST, .timeout_ms = timeout_ms, .refused = reply_null});
}

static void blmove_run(struct call *call) {
    enum list_type_end from, to;
    int64_t timeout_ms;
    const struct slice *argv = call->argv;
    if (!list_end_read(call, argv[3], &from) || !list_end_read(call, argv[4], &to) ||
        !call_timeout_seconds(call, 5, &timeout_ms))
        return;
    blocking_move(call, from, to, timeout_ms, 5, (struct slice[]){SLICE("LMOVE"), argv[1], argv[2], argv[3], argv[4]});
}
static void brpoplpush_run(struct call *call) {
    int64_t timeout_ms;
    if (!call_timeout_seconds(call, 3, &timeout_ms)) return;
    blocking_move(call, LIST_TYPE_TAIL, LIST_TYPE_HEAD, timeout_ms, 3,
                  (struct slice[]){SLICE("RPOPLPUSH"), call->argv[1], call->argv[2]});
}

static void blmpop_run(struct call *call) {
    multi_pop_wait(call, &list_multi_pop);
}

#define FRACTIONS .history = WORDS("6.0.0", "`timeout` may have fractions of a second.")
#define BLOCKING_POP                                                                                                   \
    .complexity = "O(N), where N is the number of keys", .syntax = "key:key... timeout:double", FRACTIONS,             \
    .keys = {KEY_RANGE(1, -2, 1, KEY_RW | KEY_ACCESS | KEY_DELETE)}
const struct command_spec list_blocking_commands[] = {
    {COMMAND("blpop", blpop_run, -3, CMD_WRITE | CMD_BLOCKING, ON_LISTS, "2.0.0"), .variant = LIST_TYPE_HEAD,
     BLOCKING_POP,
     .summary =
         "Removes the first element of the first list that is not empty, and returns it. Blocks until there is one."},
    {COMMAND("brpop", blpop_run, -3, CMD_WRITE | CMD_BLOCKING, ON_LISTS, "2.0.0"), .variant = LIST_TYPE_TAIL,
     BLOCKING_POP,
     .summary =
         "Removes the last element of the first list that is not empty, and returns it. Blocks until there is one."},
    {COMMAND("blmove", blmove_run, 6, CMD_WRITE | CMD_DENYOOM | CMD_BLOCKING, ON_LISTS, "6.2.0"), .complexity = "O(1)",
     .summary =
         "Moves an element from an end of a list to an end of another, and returns it. Blocks until there is one.",
     .syntax = "source:key destination:key(#1) wherefrom(LEFT|RIGHT) whereto(LEFT|RIGHT) timeout:double",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_DELETE), KEY_RANGE(2, 0, 1, KEY_RW | KEY_INSERT)}},
    {COMMAND("brpoplpush", brpoplpush_run, 4, CMD_WRITE | CMD_DENYOOM | CMD_BLOCKING, ON_LISTS, "2.2.0"),
     .complexity = "O(1)",
     .summary = "Moves the last element of a list to the head of another, and returns it. Blocks until there is one.",
     .syntax = "source:key destination:key(#1) timeout:double", FRACTIONS,
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_DELETE), KEY_RANGE(2, 0, 1, KEY_RW | KEY_INSERT)}},
    {COMMAND("blmpop", blmpop_run, -5, CMD_WRITE | CMD_BLOCKING | CMD_MOVABLE_KEYS, ON_LISTS, "7.0.0"),
     .complexity = "O(N+M), where N is the number of keys and M that of the elements returned",
     .summary = "Removes elements from an end of the first list that is not empty, and returns them. Blocks until "
                "there are some.",
     .syntax = "timeout:double numkeys:integer key:key... where(LEFT|RIGHT) [COUNT count:integer]",
     .keys = {KEY_COUNTED(2, KEY_RW | KEY_ACCESS | KEY_DELETE)}},
    {.name = NULL},
};
