/* commandlog.c: see commandlog.h. Each kind has one ring of entries, newest first. An entry holds the beginning of the
 * command: at most 32 arguments, 128 bytes of each, without secrets (call_redact). */
#include "server/stats/commandlog.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/ticks.h"
#include "lib/text/number.h"
#include "server/clients/client.h"
#include "server/clients/reply_barrier.h"
#include "server/command/command.h"
#include "server/command/dispatch.h"
#include "server/command/help.h"
#include "server/command/spec.h"
#include "server/config/config.h"
#include "server/feature.h"
#include "server/server.h"
#include <stdio.h>

enum { ARGUMENTS_MAX = 32, ARGUMENT_MAX = 128, GET_DEFAULT = 10 };

struct log_entry {
    struct list_link link;
    uint64_t id, value;
    uint64_t number; /* reply_barrier_number(); 0: the command has nothing to do with data */
    int64_t time;
    char address[128], *client_name;
    int argc;
    struct slice argv[ARGUMENTS_MAX]; /* allocated */
};
static struct log {
    struct list entries;
    uint64_t next_id;
    int64_t threshold, max;
} logs[COMMANDLOG_KINDS];
uint64_t commandlog_thresholds[COMMANDLOG_KINDS] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};

static void entry_free(struct log *log, struct log_entry *entry) {
    list_remove(&log->entries, &entry->link);
    for (int i = 0; i < entry->argc; i++) mem_free((char *)(uintptr_t)entry->argv[i].data);
    mem_free(entry->client_name);
    mem_free(entry);
}

static void log_trim(struct log *log, size_t max) {
    while (log->entries.len > max) entry_free(log, container_of(log->entries.head.prev, struct log_entry, link));
}

static struct slice argument_copy(struct slice from) {
    if (from.len <= ARGUMENT_MAX) return (struct slice){mem_strndup(from.data, from.len), from.len};
    char *text = mem_alloc(ARGUMENT_MAX + 48);
    memcpy(text, from.data, ARGUMENT_MAX);
    int note = snprintf(text + ARGUMENT_MAX, 48, "... (%zu more bytes)", from.len - ARGUMENT_MAX);
    return (struct slice){text, (size_t)(ARGUMENT_MAX + note)};
}

static struct slice text_copy(const char *text) {
    return (struct slice){mem_strdup(text), strlen(text)};
}

void commandlog_add(enum commandlog_kind kind, const struct command *command, struct client *client, int argc,
                    const struct slice *argv, uint64_t value) {
    struct log *log = &logs[kind];
    if ((command->spec->flags & CMD_SKIP_COMMANDLOG) || log->max == 0) return;
    struct log_entry *entry = mem_calloc(1, sizeof *entry);
    entry->id = log->next_id++;
    entry->value = value;
    bool of_data = !(command->spec->flags & CMD_NO_DATA) || command->spec->flags & CMD_MAY_REPLICATE;
    if (of_data) entry->number = reply_barrier_number();
    entry->time = clock_ms() / 1000;
    /* A command of a script is logged for the client that called the script. */
    const struct client *peer = client->flags & CLIENT_INTERNAL ? dispatch_requester() : client;
    if (!peer) peer = client;
    if (peer->conn) conn_format_address(peer->conn, true, entry->address);
    entry->client_name = mem_strdup(peer->name ? peer->name : "");
    entry->argc = argc > ARGUMENTS_MAX ? ARGUMENTS_MAX : argc;
    int whole = argc > ARGUMENTS_MAX ? ARGUMENTS_MAX - 1 : argc;
    for (int i = 0; i < whole; i++)
        entry->argv[i] = client_hides_argument(client, i) ? text_copy("(redacted)") : argument_copy(argv[i]);
    if (argc > ARGUMENTS_MAX) {
        char text[64];
        snprintf(text, sizeof text, "... (%d more arguments)", argc - whole);
        entry->argv[whole] = text_copy(text);
    }
    list_prepend(&log->entries, &entry->link);
    log_trim(log, (size_t)log->max);
}

/* --- Commands --- */

static void entry_reply(struct reply *reply, const struct log_entry *entry) {
    reply_array(reply, 6);
    reply_integer(reply, (int64_t)entry->id);
    reply_integer(reply, entry->time);
    reply_integer(reply, (int64_t)entry->value);
    reply_array(reply, (size_t)entry->argc);
    for (int i = 0; i < entry->argc; i++) reply_bulk(reply, entry->argv[i]);
    reply_bulk_text(reply, entry->address);
    reply_bulk_text(reply, entry->client_name);
}

/* The command may be lost with what it has written: nobody may see its arguments yet. Operators get the other entries
 * at once. */
static bool is_hidden(const struct log_entry *entry) {
    return entry->number && reply_barrier_armed && reply_barrier_guards() && !reply_barrier_is_released(entry->number);
}

static void log_get(struct call *call, struct log *log, const struct slice *count) {
    int64_t wanted = GET_DEFAULT;
    if (count && (!parse_int64(*count, &wanted) || wanted < -1)) {
        reply_error(call->reply, "ERR count should be greater than or equal to -1");
        return;
    }
    size_t shown = 0;
    list_each(&log->entries, link) shown += !is_hidden(container_of(link, struct log_entry, link));
    size_t left = wanted == -1 || (uint64_t)wanted > shown ? shown : (size_t)wanted;
    reply_array(call->reply, left);
    list_each_entry(&log->entries, const struct log_entry, link, entry) {
        if (left == 0) break;
        if (is_hidden(entry)) continue;
        entry_reply(call->reply, entry);
        left--;
    }
}

static struct log *log_named(struct call *call, struct slice name) {
    if (slice_is(name, "slow")) return &logs[COMMANDLOG_SLOW];
    if (slice_is(name, "large-request")) return &logs[COMMANDLOG_LARGE_REQUEST];
    if (slice_is(name, "large-reply")) return &logs[COMMANDLOG_LARGE_REPLY];
    reply_error(call->reply, "ERR type should be one of the following: slow, large-request, large-reply");
    return NULL;
}

static void get_run(struct call *call) {
    struct log *log = log_named(call, call->argv[3]);
    if (log) log_get(call, log, &call->argv[2]);
}
static void len_run(struct call *call) {
    struct log *log = log_named(call, call->argv[2]);
    if (log) reply_integer(call->reply, (int64_t)log->entries.len);
}
static void commandlog_reset_run(struct call *call) {
    struct log *log = log_named(call, call->argv[2]);
    if (!log) return;
    log_trim(log, 0);
    reply_ok(call->reply);
}

static void slow_get_run(struct call *call) {
    if (call->argc > 3) {
        reply_error_format(call->reply,
                           "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try SLOWLOG HELP.",
                           (int)call->argv[1].len, call->argv[1].data);
        return;
    }
    log_get(call, &logs[COMMANDLOG_SLOW], call->argc == 3 ? &call->argv[2] : NULL);
}
static void slow_len_run(struct call *call) {
    reply_integer(call->reply, (int64_t)logs[COMMANDLOG_SLOW].entries.len);
}
static void slow_reset_run(struct call *call) {
    log_trim(&logs[COMMANDLOG_SLOW], 0);
    reply_ok(call->reply);
}

static const char *const get_tips[] = {"request_policy:all_nodes", "nondeterministic_output", NULL};
static const char *const len_tips[] = {"request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output",
                                       NULL};
static const char *const reset_tips[] = {"request_policy:all_nodes", "response_policy:all_succeeded", NULL};
static const char *const get_history[] = {"4.0.0", "Shows the client's address and name.", NULL};
#define LOG_FLAGS (CMD_ADMIN | CMD_LOADING | CMD_STALE)

static const struct command_spec commandlog_subcommands[] = {
    {COMMAND("get", get_run, 4, LOG_FLAGS | CMD_NO_DATA, .group = GROUP_SERVER, "8.1.0"),
     .complexity = "O(N) where N is the number of entries",
     .summary = "Returns the newest entries of a log of commands.",
     .syntax = "count:integer type(SLOW|LARGE-REQUEST|LARGE-REPLY)", .tips = get_tips},
    {HELP_ROW(help_handler, "GET <count> <type>", "    The newest <count> entries of a log (-1: all). The types are:",
              "    * slow: commands that took long, with their microseconds",
              "    * large-request: commands that came in large requests, with their bytes",
              "    * large-reply: commands that had large replies, with their bytes",
              "    An entry is an id, a time, the number, the arguments, the client's address and name.", "LEN <type>",
              "    The number of entries of a log.", "RESET <type>", "    Empty a log."),
     .group = GROUP_SERVER, .since = "8.1.0"},
    {COMMAND("len", len_run, 3, LOG_FLAGS | CMD_NO_DATA, .group = GROUP_SERVER, "8.1.0"), .complexity = "O(1)",
     .summary = "Returns the number of entries in a log of commands.", .syntax = "type(SLOW|LARGE-REQUEST|LARGE-REPLY)",
     .tips = len_tips},
    {COMMAND("reset", commandlog_reset_run, 3, LOG_FLAGS | CMD_NO_DATA, .group = GROUP_SERVER, "8.1.0"),
     .complexity = "O(N) where N is the number of entries", .summary = "Empties a log of commands.",
     .syntax = "type(SLOW|LARGE-REQUEST|LARGE-REPLY)", .tips = reset_tips},
    {.name = NULL},
};
static const struct command_spec slowlog_subcommands[] = {
    {COMMAND("get", slow_get_run, -2, LOG_FLAGS | CMD_NO_DATA, .group = GROUP_SERVER, "2.2.12"),
     .complexity = "O(N) where N is the number of entries",
     .summary = "Returns the newest entries of the log of slow commands.", .syntax = "[count:integer]",
     .history = get_history, .tips = get_tips},
    {HELP_ROW(help_handler, "GET [<count>]",
              "    The newest <count> entries of the log of slow commands (default: 10, -1: all).",
              "    An entry is an id, a time, the microseconds, the arguments, the client's address and name.", "LEN",
              "    The number of entries.", "RESET", "    Empty the log."),
     .group = GROUP_SERVER, .since = "6.2.0"},
    {COMMAND("len", slow_len_run, 2, LOG_FLAGS | CMD_NO_DATA, .group = GROUP_SERVER, "2.2.12"), .complexity = "O(1)",
     .summary = "Returns the number of entries in the log of slow commands.", .tips = len_tips},
    {COMMAND("reset", slow_reset_run, 2, LOG_FLAGS | CMD_NO_DATA, .group = GROUP_SERVER, "2.2.12"),
     .complexity = "O(N) where N is the number of entries", .summary = "Empties the log of slow commands.",
     .tips = reset_tips},
    {.name = NULL},
};
static const struct command_spec commandlog_commands[] = {
    {COMMAND("commandlog", NULL, -2, 0, .group = GROUP_SERVER, "8.1.0"), .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about the logs of commands.", .subcommands = commandlog_subcommands},
    {COMMAND("slowlog", NULL, -2, 0, .group = GROUP_SERVER, "2.2.12"), .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about the log of slow commands.", .subcommands = slowlog_subcommands},
    {.name = NULL},
};

/* --- Options --- */

static const char *commandlog_apply(void) {
    for (int kind = 0; kind < COMMANDLOG_KINDS; kind++) {
        struct log *log = &logs[kind];
        if (log->threshold < 0)
            commandlog_thresholds[kind] = UINT64_MAX;
        else
            commandlog_thresholds[kind] =
                kind == COMMANDLOG_SLOW ? ticks_of_us((uint64_t)log->threshold) : (uint64_t)log->threshold;
        log_trim(log, (size_t)log->max);
    }
    return NULL;
}
static void commandlog_start(void) {
    for (int kind = 0; kind < COMMANDLOG_KINDS; kind++) list_init(&logs[kind].entries);
    commandlog_apply();
}
static const struct server_part commandlog_part = {.name = "commandlog", .start = commandlog_start};

#define THRESHOLD(option, other, kind, by_default)                                                                     \
    {                                                                                                                  \
        .name = option, .alias = other, .type = CONFIG_INT64, .value = &logs[kind].threshold, .initial = by_default,   \
        .min = -1, .max = INT64_MAX, .apply = commandlog_apply                                                         \
    }
#define LENGTH(option, other, kind)                                                                                    \
    {                                                                                                                  \
        .name = option, .alias = other, .type = CONFIG_INT64, .value = &logs[kind].max, .initial = "128", .min = 0,    \
        .max = INT64_MAX, .apply = commandlog_apply                                                                    \
    }
static const struct config_option commandlog_options[] = {
    THRESHOLD("commandlog-execution-slower-than", "slowlog-log-slower-than", COMMANDLOG_SLOW, "10000"),
    LENGTH("commandlog-slow-execution-max-len", "slowlog-max-len", COMMANDLOG_SLOW),
    THRESHOLD("commandlog-request-larger-than", NULL, COMMANDLOG_LARGE_REQUEST, "1048576"),
    LENGTH("commandlog-large-request-max-len", NULL, COMMANDLOG_LARGE_REQUEST),
    THRESHOLD("commandlog-reply-larger-than", NULL, COMMANDLOG_LARGE_REPLY, "1048576"),
    LENGTH("commandlog-large-reply-max-len", NULL, COMMANDLOG_LARGE_REPLY),
    {.name = NULL},
};

const struct feature commandlog_feature = {
    .name = "commandlog",
    .options = OPTIONS(commandlog_options),
    .commands = COMMANDS(commandlog_commands),
    .parts = PARTS(&commandlog_part),
};
