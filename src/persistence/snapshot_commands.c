/* snapshot_commands.c: SAVE, BGSAVE, LASTSAVE. */
#include "lib/system/log.h"
#include "persistence/persistence.h"
#include "persistence/snapshot.h"
#include "server/clients/client.h"
#include "server/command/spec.h"
#include "server/process/child.h"

static const char in_progress[] = "ERR Background save already in progress";

static void save_run(struct call *call) {
    if (snapshot_running()) {
        reply_error(call->reply, in_progress);
        return;
    }
    snapshot_state.saves++;
    if (snapshot_save() == 0)
        reply_ok(call->reply);
    else
        reply_error(call->reply, "ERR");
}

static void cancel(struct call *call) {
    if (snapshot_running()) {
        log_notice("Background saving will be aborted due to user request");
        child_kill();
        reply_status(call->reply, "Background saving cancelled");
    } else if (snapshot_state.scheduled) {
        log_notice("Scheduled background saving will be cancelled due to user request");
        snapshot_state.scheduled = false;
        reply_status(call->reply, "Scheduled background saving cancelled");
    } else {
        reply_error(call->reply, "ERR Background saving is currently not in progress or scheduled");
    }
}

static void bgsave_run(struct call *call) {
    struct slice option = call->argc == 2 ? call->argv[1] : SLICE("");
    bool schedule = slice_is(option, "schedule");
    if (slice_is(option, "cancel")) {
        cancel(call);
        return;
    }
    if (call->argc == 2 && slice_is(option, "fork")) {
        reply_error(call->reply, "ERR This server saves without fork, which needs no memory for a second copy of the "
                                 "data: use BGSAVE or BGSAVE FORKLESS");
        return;
    }
    if (call->argc > 2 || (call->argc == 2 && !schedule && !slice_is(option, "forkless"))) {
        reply_syntax_error(call->reply);
        return;
    }
    bool in_transaction = call->client->flags & CLIENT_DENY_BLOCKING;
    if (snapshot_running()) {
        reply_error(call->reply, in_progress);
    } else if (child_active() || in_transaction) {
        if (schedule || in_transaction) {
            snapshot_state.scheduled = true;
            reply_status(call->reply, "Background saving scheduled");
        } else {
            reply_error(call->reply, "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE "
                                     "SCHEDULE in order to schedule a BGSAVE whenever possible.");
        }
    } else if (snapshot_start(&(struct save_content){0}) == 0) {
        reply_status(call->reply, "Background saving started");
    } else {
        reply_error(call->reply, "ERR");
    }
}

static void lastsave_run(struct call *call) {
    reply_integer(call->reply, snapshot_state.last_save_ms / 1000);
}

static const char *const bgsave_history[] = {
    "3.2.2", "The option `SCHEDULE`.", "8.1.0", "The option `CANCEL`.", "9.2.0", "The options `FORK` and `FORKLESS`.",
    NULL};
static const char *const lastsave_tips[] = {"nondeterministic_output", NULL};

const struct command_spec snapshot_commands[] = {
    {COMMAND("save", save_run, 1, CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_NO_ASYNC_LOADING | CMD_NO_MULTI,
             .group = GROUP_SERVER, "1.0.0"),
     .complexity = "O(N) where N is the number of keys in all databases.",
     .summary = "Writes the data to the RDB file and replies when the file is on disk.", .syntax = ""},
    {COMMAND("bgsave", bgsave_run, -1, CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_NO_ASYNC_LOADING,
             .group = GROUP_SERVER, "1.0.0"),
     .complexity = "O(1)", .summary = "Writes the data to the RDB file in the background.",
     .syntax = "[operation(SCHEDULE@3.2.2|CANCEL@8.1.0|FORK@9.2.0|FORKLESS@9.2.0)]", .history = bgsave_history},
    {COMMAND("lastsave", lastsave_run, 1, CMD_NO_DATA | CMD_LOADING | CMD_STALE | CMD_FAST, .group = GROUP_SERVER,
             "1.0.0"),
     .categories = CAT_ADMIN | CAT_DANGEROUS, .complexity = "O(1)",
     .summary = "Returns the Unix time of the last successful save.", .syntax = "", .tips = lastsave_tips},
    {.name = NULL},
};
