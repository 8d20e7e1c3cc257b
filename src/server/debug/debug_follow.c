/* debug_follow.c: DEBUG FOLLOW. After its +OK the client receives everything that is propagated (propagate.h), as
 * requests: SELECT before the first one and whenever the database changes, MULTI and EXEC around a group of more than
 * one command. Tests use it to check what a write is propagated as, without a replica. It ends with the connection or
 * with RESET. */
#include "server/debug/debug.h"
#include "server/clients/subscribers.h"
#include "server/command/propagation_writer.h"

static struct subscribers followers;
static struct memory_output pending; /* the first command of a group, until a second one shows that it needs MULTI */

static void debug_follow_mark(struct propagation_writer *writer) {} /* `pending` is empty where a group begins */
static void insert(struct propagation_writer *writer, struct slice bytes) {
    struct memory_output first = pending;
    memory_output_init(&pending);
    output_write(&pending.out, bytes);
    output_write(&pending.out, memory_output_slice(&first));
    memory_output_free(&first);
}
static struct propagation_writer writer = {.out = &pending.out, .mark = debug_follow_mark, .insert = insert};

static void send_pending(void) {
    subscribers_send(&followers, memory_output_slice(&pending));
    memory_output_clear(&pending);
}

static void follow_command(struct propagation_listener *self, const struct propagation *propagation) {
    propagation_writer_command(&writer, propagation);
    if (!writer.in_group || writer.commands > 1) send_pending();
}
static void follow_begin(struct propagation_listener *self, int db) {
    propagation_writer_begin(&writer);
}
static void follow_end(struct propagation_listener *self) {
    propagation_writer_end(&writer);
    send_pending();
}
static struct propagation_listener listener = {.command = follow_command, .begin = follow_begin, .end = follow_end};

static void debug_follow_leave(struct client *client) {
    if (!subscribers_leave(&followers, client) || followers.count) return;
    propagate_unlisten(&listener);
    memory_output_free(&pending);
}
static struct client_listener client_listener = {.freed = debug_follow_leave, .reset = debug_follow_leave};

static void run_follow(struct call *call) {
    if (!call->client->conn || call->client->flags & CLIENT_DENY_BLOCKING) {
        reply_error(call->reply, "ERR DEBUG FOLLOW needs a connection of its own");
        return;
    }
    client_listen(&client_listener);
    if (!subscribers_has(&followers, call->client)) {
        subscribers_join(&followers, call->client);
        if (followers.count == 1) {
            memory_output_init(&pending);
            writer.in_group = false;
            propagate_listen(&listener);
        }
        writer.db = -1;
    }
    reply_ok(call->reply);
}

const struct debug_subcommand debug_follow_subcommands[] = {
    {"follow", 0, 0, run_follow,
     WORDS("FOLLOW", "    From now on send this client every change as others would have to repeat it, as requests.")},
    {NULL, 0, 0, NULL, NULL}};
