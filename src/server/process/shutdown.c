/* shutdown.c: stops the server.
 *
 *   1. Each part may refuse (prepare_shutdown: the final save, a rewrite of the append-only file in progress). One
 *      refusal ends the shutdown, unless FORCE was given.
 *   2. The server holds writes and waits for parts that are not ready (replicas that lag behind), at most
 *      shutdown-timeout. NOW does not wait.
 *   3. The server closes the listeners, sends the replies, stops the parts, removes the pid file, and exits.
 *
 * Step 3 exits from within the call: requests after SHUTDOWN are not executed. */
#include "server/process/shutdown.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "server/clients/client.h"
#include "server/clients/listeners.h"
#include "server/clients/reply_barrier.h"
#include "server/command/command.h"
#include "server/command/spec.h"
#include "server/process/process.h"
#include "server/script_hooks.h"
#include "server/server.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int timeout_seconds, on_sigint, on_sigterm;
static volatile sig_atomic_t signal_caught;
static struct {
    bool waiting;
    int flags;
    int64_t deadline_ms;
    uint64_t *client_ids; /* of the clients that wait for SHUTDOWN */
    size_t client_count;
} shutdown_;

static void (*finish_by)(void); /* NULL: exit */

static _Noreturn void finish(void) {
    listeners_stop();
    reply_barrier_flush();
    clients_flush();
    list_each(clients_all(), link) conn_flush(container_of(link, struct client, link)->conn);
    each_part(part) {
        if (part->stop) part->stop();
    }
    if (process_has_pid_file()) log_notice("Removing the pid file.");
    process_remove_files();
    if (script_hooks) log_notice("Module lua unloaded");
    log_warning("%s is now ready to exit, bye bye...", strcmp(server.mode, "sentinel") == 0 ? "Sentinel" : "Valkey");
    if (finish_by) finish_by();
    exit(0);
}

static bool parts_ready(void) {
    each_part(part) {
        if (part->ready_to_stop && !part->ready_to_stop()) return false;
    }
    return true;
}

/* Steps 1 and 3 */
static bool prepare_and_finish(int flags) {
    each_part(part) {
        if (part->shutdown_begins) part->shutdown_begins();
    }
    each_part(part) {
        if (!part->prepare_shutdown || part->prepare_shutdown(flags)) continue;
        if (flags & SHUTDOWN_FORCE) continue;
        log_warning("Errors trying to shut down the server. Check the logs for more information.");
        return false;
    }
    finish();
}

void shutdown_and_then(void (*end)(void)) {
    finish_by = end;
    prepare_and_finish(0);
    finish_by = NULL;
}

/* False: the shutdown was refused; the reason was logged. */
static bool server_shutdown(int flags) {
    if (shutdown_.waiting && !(flags & SHUTDOWN_NOW)) return true;
    if ((flags & SHUTDOWN_NOW) || timeout_seconds == 0 || parts_ready()) return prepare_and_finish(flags);
    shutdown_.waiting = true;
    shutdown_.flags = flags;
    shutdown_.deadline_ms = clock_mono_ms() + (int64_t)timeout_seconds * 1000;
    clients_pause(PAUSE_SHUTDOWN, PAUSE_WRITE, INT64_MAX);
    log_notice("Waiting for replicas before shutting down.");
    return true;
}

static const char failed[] = "ERR Errors trying to SHUTDOWN. Check logs.";

/* The server continues. Clients that wait for SHUTDOWN get an error, and a signal that arrived since is ignored. */
static void shutdown_stop_waiting(void) {
    shutdown_.waiting = false;
    signal_caught = 0;
    clients_unpause(PAUSE_SHUTDOWN);
    for (size_t i = 0; i < shutdown_.client_count; i++) {
        struct client *client = client_by_id(shutdown_.client_ids[i]);
        if (!client) continue; /* it has left */
        reply_error(&client->reply, failed);
        client_flush_later(client);
        client_release(client);
    }
    mem_free(shutdown_.client_ids);
    shutdown_.client_ids = NULL;
    shutdown_.client_count = 0;
}

static void shutdown_for(struct client *client, int flags) {
    log_notice("User requested shutdown... (user request from '%s')", client_requester_text(client));
    if (!server_shutdown(flags)) {
        reply_error(&client->reply, failed);
    } else if (client->conn) { /* waiting */
        client_hold(client);
        shutdown_.client_ids =
            mem_realloc(shutdown_.client_ids, (shutdown_.client_count + 1) * sizeof *shutdown_.client_ids);
        shutdown_.client_ids[shutdown_.client_count++] = client->id;
    }
}

static bool shutdown_abort(void) {
    if (!shutdown_.waiting && !signal_caught) return false;
    log_notice("Shutdown manually aborted.");
    shutdown_stop_waiting();
    return true;
}

int64_t shutdown_remaining_ms(void) {
    if (!shutdown_.waiting) return -1;
    int64_t left = shutdown_.deadline_ms - clock_mono_ms();
    return left > 0 ? left : 0;
}

void shutdown_continue(void) {
    if (!shutdown_.waiting || (!parts_ready() && clock_mono_ms() < shutdown_.deadline_ms)) return;
    if (!prepare_and_finish(shutdown_.flags)) shutdown_stop_waiting();
}

static void shutdown_run(struct call *call) {
    int flags = 0, aborts = 0;
    for (int i = 1; i < call->argc; i++) {
        if (slice_is(call->argv[i], "nosave"))
            flags |= SHUTDOWN_NOSAVE;
        else if (slice_is(call->argv[i], "save"))
            flags |= SHUTDOWN_SAVE;
        else if (slice_is(call->argv[i], "now"))
            flags |= SHUTDOWN_NOW;
        else if (slice_is(call->argv[i], "force"))
            flags |= SHUTDOWN_FORCE;
        else if (slice_is(call->argv[i], "safe"))
            flags |= SHUTDOWN_SAFE;
        else if (slice_is(call->argv[i], "failover"))
            flags |= SHUTDOWN_FAILOVER;
        else if (slice_is(call->argv[i], "abort"))
            aborts++;
        else
            aborts = 2;
    }
    if (aborts > 1 || (aborts && flags) || ((flags & SHUTDOWN_SAVE) && (flags & SHUTDOWN_NOSAVE))) {
        reply_syntax_error(call->reply);
        return;
    }
    if (flags & SHUTDOWN_FAILOVER && !server.cluster_enabled) {
        reply_error(call->reply, "ERR SHUTDOWN FAILOVER is only supported in cluster mode.");
        return;
    }
    if (aborts) {
        if (shutdown_abort())
            reply_ok(call->reply);
        else
            reply_error(call->reply, "ERR No shutdown in progress.");
        return;
    }
    shutdown_for(call->client, flags);
}

/* --- Signals --- */

static void caught(int number) {
    /* A second interrupt from the keyboard exits immediately. */
    if (number == SIGINT && signal_caught) {
        log_write_from_handler("You insist... exiting now.");
        process_remove_files();
        _exit(1);
    }
    log_write_from_handler(number == SIGINT ? "Received SIGINT scheduling shutdown..."
                                            : "Received SIGTERM scheduling shutdown...");
    signal_caught = number;
    if (server.loop) event_loop_wake(server.loop);
}

void shutdown_catch_signals(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = caught;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL); /* beyond the limit of a file's size, writing fails with EFBIG */
}

void shutdown_on_signal(void) {
    if (__builtin_expect(signal_caught == 0, 1) || shutdown_.waiting || server.cron_paused) return;
    static bool refused;
    int flags = (signal_caught == SIGINT ? on_sigint : on_sigterm) | (refused ? SHUTDOWN_INSISTED : 0);
    log_notice("User requested shutdown...");
    if (server_shutdown(flags)) return;
    refused = true;
    signal_caught = 0;
}

static const struct config_name shutdown_flags[] = {{"default", 0},
                                                    {"save", SHUTDOWN_SAVE},
                                                    {"nosave", SHUTDOWN_NOSAVE},
                                                    {"now", SHUTDOWN_NOW},
                                                    {"force", SHUTDOWN_FORCE},
                                                    {"safe", SHUTDOWN_SAFE},
                                                    {"failover", SHUTDOWN_FAILOVER},
                                                    {NULL, 0}};

static const char *check_shutdown_flags(const struct config_option *option, struct slice text) {
    /* "nosave" contains "save": compare whole words. */
    bool save = false, nosave = false;
    for (size_t i = 0; i < text.len;) {
        size_t start = i;
        while (i < text.len && text.data[i] != ' ') i++;
        struct slice word = {text.data + start, i - start};
        save |= slice_is(word, "save");
        nosave |= slice_is(word, "nosave");
        while (i < text.len && text.data[i] == ' ') i++;
    }
    return save && nosave ? "shutdown options SAVE and NOSAVE can't be used simultaneously" : NULL;
}

const struct config_option shutdown_options[] = {
    {OPTION("shutdown-timeout", CONFIG_INT, &timeout_seconds, "10"), .min = 0, .max = INT32_MAX},
    {OPTION("shutdown-on-sigint", CONFIG_FLAGS, &on_sigint, "default"), .flags = CONFIG_MULTI_ARG,
     .names = shutdown_flags, .check = check_shutdown_flags},
    {OPTION("shutdown-on-sigterm", CONFIG_FLAGS, &on_sigterm, "default"), .flags = CONFIG_MULTI_ARG,
     .names = shutdown_flags, .check = check_shutdown_flags},
    {.name = NULL},
};

static const char *const shutdown_history[] = {"7.0.0", "Takes NOW, FORCE and ABORT.", "9.0.0",
                                               "Takes SAFE and FAILOVER.", NULL};

const struct command_spec shutdown_commands[] = {
    {COMMAND("shutdown", shutdown_run, -1,
             CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE | CMD_NO_MULTI | CMD_ALLOW_BUSY,
             .group = GROUP_SERVER, "1.0.0"),
     .complexity = "O(N) when saving, where N is the number of keys in all databases, else O(1)",
     .summary = "Saves the data as configured and stops the server.",
     .syntax = "[abort-selector(save-selector-block{[save-selector(NOSAVE|SAVE)] [NOW@7.0.0] [FORCE@7.0.0] "
               "[SAFE@9.0.0] [FAILOVER@9.0.0]}|ABORT@7.0.0)]",
     .history = shutdown_history},
    {.name = NULL},
};
