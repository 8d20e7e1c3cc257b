/* yield.c: Yield: a long command, a long load, or a thread that holds the lock for long, lets the server answer others.
 *
 * Once it has lasted for busy-reply-threshold, clients get the error BUSY, but for commands with the flag allow_busy.
 * Within a command the loop turns as it does for a busy script (server/nested_turn.h). A thread passes the lock to the
 * main thread for a turn. */
#include "lib/system/ticks.h"
#include "module/context.h"
#include "module/threads.h"
#include "persistence/loading.h"
#include "script/script_run.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include "server/nested_turn.h"
#include "server/server.h"
#include <stdio.h>

static char busy_text[256];
static struct ValkeyModuleCtx *yielding; /* the command that is busy; NULL: none */
static struct client *held;              /* whose command it is */

static enum filter_answer busy_ask(struct client *client, const struct command *command, int argc,
                                   const struct slice *argv, const char **error) {
    (void)argc;
    (void)argv;
    if (command->spec->flags & CMD_ALLOW_BUSY) return FILTER_PASS;
    if (client_must_be_obeyed(client)) { /* an error would end the replication or the migration */
        client_postpone(client);
        return FILTER_HOLD;
    }
    *error = busy_text;
    return FILTER_REFUSE;
}
static struct command_filter busy_filter = {.order = FILTER_BUSY, .asks_obeyed = true, .ask = busy_ask};

static void busy_set(const char *reply) {
    snprintf(busy_text, sizeof busy_text, "BUSY %s", reply ? reply : "Valkey is busy running a module command.");
    dispatch_set_filter(&busy_filter, true);
}
static void busy_clear(void) {
    dispatch_set_filter(&busy_filter, false);
    clients_postponed_again();
}

static bool is_over(uint64_t since) {
    int64_t threshold = script_settings.busy_threshold_ms;
    return threshold > 0 && ticks_to_us(ticks_now() - since) / 1000 >= (uint64_t)threshold;
}

bool context_is_within_another(void) {
    return dispatch_caller() && dispatch_caller() != dispatch_requester();
}

void context_hold_caller(struct ValkeyModuleCtx *ctx) {
    if (yielding) return;
    yielding = ctx;
    held = dispatch_caller() ? dispatch_caller() : dispatch_requester();
    client_hold(held);
    if (held->conn) conn_set_reading(held->conn, false);
    ctx->flags |= CONTEXT_YIELDED;
}

/* The arguments of the command are in the memory of its client's connection, which is not read meanwhile. */
static void yield_command(struct ValkeyModuleCtx *ctx, const char *reply) {
    if (yielding && yielding != ctx) { /* called by a command that has yielded: that one ends it */
        if (!dispatch_caller() || dispatch_caller() == held) nested_turn(0);
        return; /* else another client's command within the other one's turn, whose client is not held */
    }
    if (!yielding) {
        context_hold_caller(ctx);
        busy_set(reply);
    }
    nested_turn(0);
}
void context_yield_end(void) {
    yielding->flags &= ~(uint32_t)CONTEXT_YIELDED;
    yielding = NULL;
    busy_clear();
    if (held->conn && !held->waits_for_turn) conn_set_reading(held->conn, true);
    client_release(held);
}

void api_Yield(ValkeyModuleCtx *ctx, int flags, const char *busy_reply) {
    if (!(flags & VALKEYMODULE_YIELD_FLAG_CLIENTS)) return;
    if (server.loading) { /* the value of a module is read */
        if (dispatch_running()) context_hold_caller(ctx);
        loading_turn();
        return;
    }
    if (ctx->flags & CONTEXT_THREAD_SAFE && module_lock_is_of_thread()) {
        if (!is_over(module_lock_since())) return;
        busy_set(busy_reply);
        module_lock_pass();
        busy_clear();
    } else if (ctx->flags & CONTEXT_COMMAND && dispatch_running() && !server.loading && !context_must_only_read() &&
               is_over(ctx->began)) {
        yield_command(ctx, busy_reply);
    }
}
