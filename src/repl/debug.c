/* debug.c: the subcommands of DEBUG about replication. */
#include "repl/repl.h"
#include "lib/system/log.h"
#include "lib/text/number.h"
#include "repl/history.h"
#include "repl/primary/main_channels.h"
#include "repl/replica/apply.h"

static void run_change_repl_id(struct call *call) {
    log_warning("Changing replication IDs after receiving change-repl-id");
    repl_history_new();
    reply_ok(call->reply);
}

/* Other text is 0, as in Valkey. */
static int number_of(struct slice text) {
    int64_t number;
    return parse_int64(text, &number) && number >= 0 && number <= INT32_MAX ? (int)number : 0;
}
static void run_delay_rdb_client_free(struct call *call) {
    main_channel_grace_s = number_of(call->argv[2]);
    reply_ok(call->reply);
}
static void run_force_free_primary_async(struct call *call) {
    apply_frees_later = number_of(call->argv[2]) != 0;
    reply_ok(call->reply);
}

const struct debug_subcommand repl_debug_subcommands[] = {
    {"change-repl-id", 0, 0, run_change_repl_id,
     WORDS("CHANGE-REPL-ID", "    Change the replication IDs of the instance.",
           "    Dangerous: should be used only for testing the replication subsystem.")},
    {"delay-rdb-client-free-seconds", 1, 1, run_delay_rdb_client_free, NULL},
    {"delay-rdb-client-free-second", 1, 1, run_delay_rdb_client_free, /* the name in DEBUG HELP of Valkey */
     WORDS("DELAY-RDB-CLIENT-FREE-SECOND <seconds>",
           "    Grace period in seconds for replica main channel to establish psync.")},
    {"force-free-primary-async", 1, 1, run_force_free_primary_async,
     WORDS("FORCE-FREE-PRIMARY-ASYNC <0|1>", "    Force freeClient on primary to use async path.")},
    {NULL, 0, 0, NULL, NULL}};
