/* debug_follow.c: DEBUG FOLLOW. After its +OK the client receives everything that is propagated (propagate.h), as
 * requests: SELECT before the first one and whenever the database changes, MULTI and EXEC around a group of more than
 * one command. Tests use it to check what a write is propagated as, without a replica. It ends with the connection or
 * with RESET. */
#include "server/debug/debug_follow.h"
#include "lib/memory.h"
#include "lib/number.h"
#include "server/clients/subscribers.h"
#include "server/command/propagate.h"

static struct subscribers followers;
static int selected = -1;            /* the database that the followers have selected */
static bool together;                /* between begin and end */
static size_t pending_count;         /* commands in `pending`, or already sent, since begin */
static struct memory_output pending; /* the first command: a second one decides that a MULTI is needed */

static void write_head(struct output *out, char kind, size_t number) {
    char text[NUMBER_TEXT_MAX + 3];
    text[0] = kind;
    size_t len = 1 + format_uint64(text + 1, number);
    memcpy(text + len, "\r\n", 2);
    output_write(out, (struct slice){text, len + 2});
}
static void write_request(struct output *out, int argc, const struct slice *argv) {
    write_head(out, '*', (size_t)argc);
    for (int i = 0; i < argc; i++) {
        write_head(out, '$', argv[i].len);
        output_write(out, argv[i]);
        output_write(out, SLICE("\r\n"));
    }
}
static void send_pending(void) {
    subscribers_send(&followers, memory_output_slice(&pending));
    memory_output_clear(&pending);
}

static void follow_command(struct propagation_listener *self, const struct propagation *propagation) {
    int db = propagation->db;
    if (db != selected) {
        char text[NUMBER_TEXT_MAX];
        selected = db;
        write_request(&pending.out, 2, (struct slice[]){SLICE("SELECT"), {text, format_int64(text, db)}});
    }
    if (together && pending_count == 1) {
        struct memory_output first = pending;
        memory_output_init(&pending);
        write_request(&pending.out, 1, (struct slice[]){SLICE("MULTI")});
        output_write(&pending.out, memory_output_slice(&first));
        memory_output_free(&first);
    }
    write_request(&pending.out, propagation->argc, propagation->argv);
    pending_count++;
    if (!together || pending_count > 1) send_pending();
}
static void follow_begin(struct propagation_listener *self, int db) {
    together = true;
    pending_count = 0;
}
static void follow_end(struct propagation_listener *self) {
    if (pending_count > 1) write_request(&pending.out, 1, (struct slice[]){SLICE("EXEC")});
    together = false;
    pending_count = 0;
    send_pending();
}
static struct propagation_listener listener = {.command = follow_command, .begin = follow_begin, .end = follow_end};

static void leave(struct client *client) {
    if (!subscribers_leave(&followers, client) || followers.count) return;
    propagate_unlisten(&listener);
    memory_output_free(&pending);
}
static struct client_watcher watcher = {.freed = leave, .reset = leave};

static void run_follow(struct call *call) {
    if (!call->client->conn || call->client->flags & CLIENT_DENY_BLOCKING) {
        reply_error(call->reply, "ERR DEBUG FOLLOW needs a connection of its own");
        return;
    }
    if (!list_is_linked(&watcher.link)) clients_watch(&watcher);
    if (!subscribers_has(&followers, call->client)) {
        subscribers_join(&followers, call->client);
        if (followers.count == 1) {
            memory_output_init(&pending);
            together = false;
            pending_count = 0;
            propagate_listen(&listener);
        }
        selected = -1;
    }
    reply_ok(call->reply);
}

const struct debug_subcommand debug_follow_subcommands[] = {
    {"follow", 0, 0, run_follow,
     (const char *const[]){
         "FOLLOW", "    From now on send this client every change as others would have to repeat it, as requests.",
         NULL}},
    {NULL, 0, 0, NULL, NULL}};
