/* debug.c: DEBUG: inspection, fault injection, and commands that tests need. It must be enabled (enable-debug-command).
 * Its subcommands are not registered as commands of their own. Those about values and databases are in debug_data.c.
 */
#include "server/debug/debug.h"
#include "formats/rdb.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include "lib/text/blob.h"
#include "lib/text/glob.h"
#include "lib/text/number.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/command/command.h"
#include "server/command/help.h"
#include "server/command/propagate.h"
#include "server/command/spec.h"
#include "server/config/config_engine.h"
#include "server/config/settings.h"
#include "server/feature.h"
#include "server/process/child.h"
#include "server/process/restart.h"
#include "server/server.h"
#include "store/entry.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef USE_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

static const struct debug_subcommand **tables;
static size_t tables_count;

void debug_register(const struct debug_subcommand *subcommands) {
    tables = mem_realloc(tables, (tables_count + 1) * sizeof *tables);
    tables[tables_count++] = subcommands;
}
bool debug_permitted(struct call *call, int permission, const char *command, const char *option) {
    const struct connection *conn = call->client ? call->client->conn : NULL;
    if (permission == PERMIT_YES || !conn || (permission == PERMIT_LOCAL && conn_is_local(conn))) return true;
    return reply_error_format(
        call->reply,
        "ERR %s command not allowed. If the %s option is set to \"local\", you can run it from a local "
        "connection, otherwise you need "
        "to set this option in the configuration file, and then restart the server.",
        command, option);
}
void debug_reply_unknown(struct call *call) {
    reply_error_format(call->reply, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try DEBUG HELP.",
                       call->argv[1].len < 128 ? (int)call->argv[1].len : 128, call->argv[1].data);
}

/* --- crashes --- */

static void run_segfault(struct call *call) {
    volatile char *nowhere = NULL;
    __asm__("" : "+r"(nowhere)); /* keeps the compiler from removing the undefined access */
    *nowhere = 'x';
}
static void run_panic(struct call *call) {
    log_warning("Panic on request of DEBUG PANIC (%s:%d)", __FILE__, __LINE__);
    if (server_settings.exit_on_panic) exit(1);
    abort();
}
static void run_assert(struct call *call) {
    int one = 1;
    __asm__("" : "+r"(one)); /* keeps the compiler from removing what follows */
    must_hold(one == 2, "one is %d, on request of DEBUG ASSERT", one);
}
static void run_oom(struct call *call) {
    size_t too_much = SIZE_MAX / 4;
    __asm__("" : "+r"(too_much));
    mem_free(mem_alloc(too_much));
    reply_ok(call->reply);
}
static void run_leak(struct call *call) {
    static char *leaked;
    leaked = mem_strndup(call->argv[2].data, call->argv[2].len);
    __asm__("" : : "r"(leaked));
    reply_ok(call->reply);
}

/* --- small subcommands --- */

static double seconds_of(struct slice text) {
    char copy[64];
    snprintf(copy, sizeof copy, "%.*s", text.len < sizeof copy ? (int)text.len : (int)sizeof copy - 1, text.data);
    return strtod(copy, NULL);
}
static void run_sleep(struct call *call) {
    double seconds = seconds_of(call->argv[2]);
    if (seconds > 0 && seconds < 1e9) {
        struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
        while (nanosleep(&time, &time) < 0 && errno == EINTR) continue;
    }
    reply_ok(call->reply);
}
static void run_log(struct call *call) {
    log_warning("DEBUG LOG: %.*s", (int)call->argv[2].len, call->argv[2].data);
    reply_ok(call->reply);
}
static void run_error(struct call *call) {
    char *text = mem_strndup(call->argv[2].data, call->argv[2].len);
    reply_error(call->reply, text);
    mem_free(text);
}
static void run_replicate(struct call *call) {
    propagate_message(db_id(call->db), call->argc - 2, call->argv + 2);
    reply_ok(call->reply);
}
/* Few different bytes, so that the text is also useful as a pattern. */
static struct slice random_text(char text[32]) {
    static const char bytes[] = "*?[]^-\\ab";
    size_t len = random_below(33);
    for (size_t i = 0; i < len; i++) text[i] = bytes[random_below(sizeof bytes - 1)];
    return (struct slice){text, len};
}
static void run_stringmatch_test(struct call *call) {
    enum { ROUNDS = 100000 };
    char pattern[32], text[32];
    for (int i = 0; i < ROUNDS; i++) glob_match(random_text(pattern), random_text(text), i & 1);
    reply_status(call->reply, "Apparently the server did not crash: test passed");
}
static void run_set_active_expire(struct call *call) {
    store_settings.active_expire = seconds_of(call->argv[2]) != 0;
    reply_ok(call->reply);
}
static void run_dict_resizing(struct call *call) {
    child_set_resizing(seconds_of(call->argv[2]) != 0);
    reply_ok(call->reply);
}
static void run_pause_after_fork(struct call *call) {
    child_set_pause_after_fork(seconds_of(call->argv[2]) != 0);
    reply_ok(call->reply);
}
static void run_skip_checksum(struct call *call) {
    rdb_settings.skip_checksum = seconds_of(call->argv[2]) != 0;
    reply_ok(call->reply);
}
static void run_config_rewrite(struct call *call) {
    int result = *config_file() ? config_rewrite(true) : -ENOENT;
    if (result < 0)
        reply_error_format(call->reply, "ERR CONFIG-REWRITE-FORCE-ALL failed: %s", strerror(-result));
    else
        reply_ok(call->reply);
}
/* Valkey's tests call this to make the cron resize reply buffers. Here replies are written directly to send memory. */
static void run_pause_cron(struct call *call) {
    server.cron_paused = seconds_of(call->argv[2]) != 0;
    reply_ok(call->reply);
}
/* In the format of Valkey. The server has no struct for a string in an entry, which knows its length; a large string is
 * a blob. */
static void run_structsize(struct call *call) {
    char text[160];
    size_t blob = sizeof(struct blob);
    int len = snprintf(text, sizeof text,
                       "bits:%d robj:%zu dictentry:%zu sdshdr5:%zu sdshdr8:%zu sdshdr16:%zu sdshdr32:%zu sdshdr64:%zu ",
                       (int)sizeof(void *) * 8, entry_header_size(), sizeof(void *), (size_t)0, (size_t)0, (size_t)0,
                       blob, blob);
    reply_bulk(call->reply, (struct slice){text, (size_t)len});
}
/* Switches of mechanisms that this server does not have. Valkey's tests reset them at their end in any case. */
static void run_without_effect(struct call *call) {
    reply_ok(call->reply);
}

/* --- the allocator --- */

#ifdef USE_JEMALLOC
static void reply_allocator_error(struct call *call, int error) {
    reply_error_format(call->reply, "ERR %s", strerror(error));
}
static void run_mallctl(struct call *call) {
    char *name = mem_strndup(call->argv[2].data, call->argv[2].len);
    int64_t given = 0;
    union {
        uint64_t whole;
        uint32_t half;
        bool small;
    } old = {0}, new = {0};
    size_t size = 0;
    bool write = call->argc == 4;
    if (write && !parse_int64(call->argv[3], &given)) {
        reply_not_integer(call->reply);
        mem_free(name);
        return;
    }
    /* mallctl needs the exact size of the value: try each possible one. */
    static const size_t sizes[] = {sizeof(uint64_t), sizeof(uint32_t), sizeof(bool)};
    int error = EINVAL;
    for (size_t i = 0; i < 3 && error == EINVAL; i++) {
        size = sizes[i];
        if (size == sizeof(uint64_t))
            new.whole = (uint64_t)given;
        else if (size == sizeof(uint32_t))
            new.half = (uint32_t)given;
        else
            new.small = given != 0;
        error = mallctl(name, &old, &size, write ? &new : NULL, write ? size : 0);
    }
    if (error == EPERM && write) error = mallctl(name, NULL, NULL, &new, size); /* write-only */
    mem_free(name);
    if (error)
        reply_allocator_error(call, error);
    else
        reply_integer(call->reply, size == sizeof(uint64_t)   ? (int64_t)old.whole
                                   : size == sizeof(uint32_t) ? (int64_t)old.half
                                                              : old.small);
}
static void run_mallctl_str(struct call *call) {
    char *name = mem_strndup(call->argv[2].data, call->argv[2].len), *new = NULL;
    const char *old = NULL;
    size_t size = sizeof old;
    if (call->argc == 4) new = mem_strndup(call->argv[3].data, call->argv[3].len);
    int error = mallctl(name, &old, &size, new ? &new : NULL, new ? sizeof new : 0);
    mem_free(name);
    mem_free(new);
    if (error)
        reply_allocator_error(call, error);
    else
        reply_bulk_text(call->reply, old ? old : "");
}
#endif

/* --- the table of subcommands --- */

static void run_help(struct call *call);
static void run_blocking_visited(struct call *call) {
    reply_integer(call->reply, (int64_t)blocking_visited());
}

static const struct debug_subcommand general[] = {
    {"assert", 0, 0, run_assert, WORDS("ASSERT", "    Crash by assertion failed.")},
    {"blocking-visited", 0, 0, run_blocking_visited,
     WORDS("BLOCKING-VISITED", "    How many waits of blocked clients were looked at to serve keys, since the start.")},
    {"config-rewrite-force-all", 0, 0, run_config_rewrite,
     WORDS("CONFIG-REWRITE-FORCE-ALL", "    Like CONFIG REWRITE but writes all configuration options, including",
           "    keywords not listed in original configuration file or default values.")},
    {"crash-and-recover", 0, -1, restart_crash_run,
     WORDS("CRASH-AND-RECOVER [<milliseconds>]",
           "    Hard crash and restart after a <milliseconds> delay (default 0).")},
    {"dict-resizing", 1, 1, run_dict_resizing,
     WORDS("DICT-RESIZING <0|1>", "    Enable or disable the main dict and expire dict resizing.")},
    {"error", 1, 1, run_error,
     WORDS("ERROR <string>", "    Return a RESP protocol error with <string> as message. Useful for clients",
           "    unit tests to simulate error replies.")},
    {"leak", 1, 1, run_leak, WORDS("LEAK <string>", "    Create a memory leak of the input string.")},
    {"log", 1, 1, run_log, WORDS("LOG <message>", "    Write <message> to the server log.")},
#ifdef USE_JEMALLOC
    {"mallctl", 1, 2, run_mallctl, WORDS("MALLCTL <key> [<val>]", "    Get or set a malloc tuning integer.")},
    {"mallctl-str", 1, 2, run_mallctl_str,
     WORDS("MALLCTL-STR <key> [<val>]", "    Get or set a malloc tuning string.")},
#endif
    {"oom", 0, 0, run_oom, WORDS("OOM", "    Crash the server simulating an out-of-memory error.")},
    {"panic", 0, 0, run_panic, WORDS("PANIC", "    Crash the server simulating a panic.")},
    {"pause-after-fork", 1, 1, run_pause_after_fork,
     WORDS("PAUSE-AFTER-FORK <0|1>", "    Stop the server's main process after fork.")},
    {"pause-cron", 1, 1, run_pause_cron, WORDS("PAUSE-CRON <0|1>", "    Stop periodic cron job processing.")},
    {"set-skip-checksum-validation", 1, 1, run_skip_checksum,
     WORDS("SET-SKIP-CHECKSUM-VALIDATION <0|1>",
           "    Enables or disables checksum checks for RDB files and RESTORE's payload.")},
    {"replicate", 1, -1, run_replicate,
     WORDS("REPLICATE <string>", "    Replicates the provided string to replicas, allowing data divergence.")},
    {"segfault", 0, 0, run_segfault, WORDS("SEGFAULT", "    Crash the server with sigsegv.")},
    {"set-active-expire", 1, 1, run_set_active_expire,
     WORDS("SET-ACTIVE-EXPIRE <0|1>", "    Setting it to 0 disables expiring keys in background when they are not",
           "    accessed (otherwise the behavior). Setting it to 1 reenables back the", "    default.")},
    {"stringmatch-test", 0, 0, run_stringmatch_test,
     WORDS("STRINGMATCH-TEST", "    Run a fuzz tester against the stringmatchlen() function.")},
    {"sleep", 1, 1, run_sleep, WORDS("SLEEP <seconds>", "    Stop the server for <seconds>. Decimals allowed.")},
    {"hashtable-can-abort-shrink", 1, 1, run_without_effect,
     WORDS("HASHTABLE-CAN-ABORT-SHRINK <0|1>", "    Enable or disable the hashtable shrink abort.")},
    {"structsize", 0, 0, run_structsize, WORDS("STRUCTSIZE", "    Return the size of different core C structures.")},
    {"help", 0, 0, run_help, NULL},
    {"restart", 0, -1, restart_run,
     WORDS("RESTART [<milliseconds>]",
           "    Graceful restart: save config, db, restart after a <milliseconds> delay (default 0).")},
    {NULL, 0, 0, NULL, NULL}};

static const struct debug_subcommand *subcommand_find(struct slice name) {
    for (size_t i = tables_count; i-- > 0;)
        for (const struct debug_subcommand *sub = tables[i]; sub->name; sub++)
            if (slice_is(name, sub->name)) return sub;
    return NULL;
}
static void run_help(struct call *call) {
    const char *lines[256];
    size_t count = 0;
    for (size_t i = 0; i < tables_count; i++)
        for (const struct debug_subcommand *sub = tables[i]; sub->name; sub++)
            for (const char *const *line = sub->help; line && *line && count < 255; line++) lines[count++] = *line;
    lines[count] = NULL;
    reply_help(call->reply, "DEBUG", lines);
}
bool debug_refused_by_load(struct call *call) {
    if (!server_is_loading()) return false;
    reply_error(call->reply, WITH_PRODUCT("LOADING ", " is loading the dataset in memory"));
    return true;
}
static void run_debug(struct call *call) {
    if (!debug_permitted(call, server_settings.debug_command, "DEBUG", "enable-debug-command")) return;
    const struct debug_subcommand *sub = subcommand_find(call->argv[1]);
    int arguments = call->argc - 2;
    if (!sub || arguments < sub->min_arguments || (sub->max_arguments >= 0 && arguments > sub->max_arguments))
        debug_reply_unknown(call);
    else
        sub->run(call);
}

/* DEBUG waits for the reply barrier with these, but no filter refuses it. */
static uint32_t debug_flags(struct slice name) {
    static const char *const of_data[] = {"digest",   "digest-value", "htstats",   "htstats-key",
                                          "listpack", "object",       "quicklist", "sdslen"};
    for (size_t i = 0; i < sizeof of_data / sizeof *of_data; i++)
        if (slice_is(name, of_data[i])) return CMD_SHOWS_DATA;
    return 0;
}

static const struct command_spec debug_commands[] = {
    {COMMAND("debug", run_debug, -2, CMD_NO_DATA | CMD_ADMIN | CMD_LOADING | CMD_NOSCRIPT | CMD_STALE | CMD_SYSCMD,
             .group = GROUP_SERVER, "1.0.0"),
     .call_flags = debug_flags, .complexity = "Depends on subcommand.",
     .summary = "A container for what developers and tests need."},
    {.name = NULL}};

const struct feature debug_feature = {
    .name = "debug",
    .commands = COMMANDS(debug_commands),
    .debug = DEBUG_SUBCOMMANDS(general, debug_data_subcommands, debug_follow_subcommands, debug_barrier_subcommands,
                               debug_client_subcommands, rdma_debug_subcommands),
};
