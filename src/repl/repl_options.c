/* repl_options.c: the options and DEBUG subcommands of the primary's side. */
#include "lib/system/log.h"
#include "lib/text/number.h"
#include "repl/primary.h"
#include "repl/replica.h"

struct repl_settings repl_settings;

static const char *apply_backlog_size(void) {
    enum { LEAST = 16 * 1024 };
    if (repl_settings.backlog_size < LEAST) repl_settings.backlog_size = LEAST;
    repl_stream_trim();
    return NULL;
}

const struct config_option repl_primary_options[] = {
    {.name = "repl-diskless-sync", .type = CONFIG_BOOL, .value = &repl_settings.diskless_sync, .initial = "yes"},
    {.name = "repl-diskless-sync-delay",
     .type = CONFIG_INT,
     .value = &repl_settings.diskless_delay,
     .initial = "5",
     .min = 0,
     .max = INT32_MAX},
    {.name = "repl-diskless-sync-max-replicas",
     .type = CONFIG_INT,
     .value = &repl_settings.diskless_max_replicas,
     .initial = "0",
     .min = 0,
     .max = INT32_MAX},
    {.name = "dual-channel-replication-enabled",
     .type = CONFIG_BOOL,
     .value = &repl_settings.dual_channel,
     .initial = "no"},
    {.name = "repl-ping-replica-period",
     .alias = "repl-ping-slave-period",
     .type = CONFIG_INT,
     .value = &repl_settings.ping_period,
     .initial = "10",
     .min = 1,
     .max = INT32_MAX},
    {.name = "repl-timeout",
     .type = CONFIG_INT,
     .value = &repl_settings.timeout,
     .initial = "60",
     .min = 1,
     .max = INT32_MAX},
    {.name = "repl-disable-tcp-nodelay", .type = CONFIG_BOOL, .value = &repl_settings.disable_nodelay, .initial = "no"},
    {.name = "repl-backlog-size",
     .type = CONFIG_MEMORY,
     .value = &repl_settings.backlog_size,
     .initial = "10mb",
     .min = 1,
     .max = INT64_MAX,
     .apply = apply_backlog_size},
    {.name = "repl-backlog-ttl",
     .type = CONFIG_INT64,
     .value = &repl_settings.backlog_ttl,
     .initial = "3600",
     .min = 0,
     .max = INT64_MAX},
    {.name = NULL},
};

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
    full_sync_grace_s = number_of(call->argv[2]);
    reply_ok(call->reply);
}
static void run_force_free_primary_async(struct call *call) {
    apply_frees_later = number_of(call->argv[2]) != 0;
    reply_ok(call->reply);
}

const struct debug_subcommand repl_debug_subcommands[] = {
    {"change-repl-id", 0, 0, run_change_repl_id,
     (const char *const[]){"CHANGE-REPL-ID", "    Change the replication IDs of the instance.",
                           "    Dangerous: should be used only for testing the replication subsystem.", NULL}},
    {"delay-rdb-client-free-seconds", 1, 1, run_delay_rdb_client_free, NULL},
    {"delay-rdb-client-free-second", 1, 1, run_delay_rdb_client_free, /* the name in DEBUG HELP of Valkey */
     (const char *const[]){"DELAY-RDB-CLIENT-FREE-SECOND <seconds>",
                           "    Grace period in seconds for replica main channel to establish psync.", NULL}},
    {"force-free-primary-async", 1, 1, run_force_free_primary_async,
     (const char *const[]){"FORCE-FREE-PRIMARY-ASYNC <0|1>", "    Force freeClient on primary to use async path.",
                           NULL}},
    {NULL, 0, 0, NULL, NULL}};
