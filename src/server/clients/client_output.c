/* client_output.c: when replies are sent, and how many bytes may be queued.
 *
 * Over RDMA a client's replies are sent at the end of its turn, because sending is a few stores. Over sockets, where
 * sending is a system call that wakes the peer, and for output of other writers, they are sent before the loop waits:
 * one list holds the clients to flush. The option immediate-reply selects one of the two for all transports. Bytes that
 * the peer does not take are queued in the connection; client-output-buffer-limit bounds that queue. A reply barrier
 * (reply_barrier.h) may hold a client's replies back: held bytes count like queued bytes. */
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include "server/clients/auth.h"
#include "server/clients/client_private.h"
#include "server/clients/reply_barrier.h"
#include "server/command/dispatch.h"

/* Output that fits into one piece of send memory does not count against the limits, so that a limit of a few bytes
 * still lets replies through. */
enum { OUTPUT_FREE = 16 * 1024 };
static struct list flushes = {.head = {&flushes.head, &flushes.head}};

void client_count_bytes(struct client *client) {
    const struct connection *conn = client->conn;
    client_stats.bytes_in += conn->bytes_in - client->net_in;
    client_stats.bytes_out += conn->bytes_out - client->net_out;
    client->net_in = conn->bytes_in;
    client->net_out = conn->bytes_out;
}

void client_flush_later(struct client *client) {
    if (!list_is_linked(&client->flush_link) && client->conn) list_append(&flushes, &client->flush_link);
}

void client_flush_forget(struct client *client) {
    if (list_is_linked(&client->flush_link)) list_remove(&flushes, &client->flush_link);
}

static void flush_now(struct client *client) {
    bool held = __builtin_expect(reply_barrier_replies(client) != NULL, 0) && reply_barrier_holds(client);
    if (__builtin_expect(client->conn->state != CONN_OPEN, 0) && !client_has_turn(client))
        client->flags |= CLIENT_CLOSE_AFTER_REPLY; /* the peer sends nothing more */
    bool closes = client->flags & CLIENT_CLOSE_AFTER_REPLY && !held;
    client_stats.writes++;
    client->conn->wants_drained = closes;
    conn_flush(client->conn);
    client_count_bytes(client);
    if (!client_check_output(client)) return;
    if (__builtin_expect(client_memory_bounded, 0)) client_memory_note(client);
    if (closes && conn_pending(client->conn) == 0) client_free(client);
}

static inline bool replies_wait(const struct client *client) {
    int when = client_settings.immediate_reply;
    return when == REPLY_AS_TRANSPORT ? client->conn->transport->flush_late : when == REPLY_LATE;
}

void client_flush(struct client *client) {
    if (replies_wait(client))
        client_flush_later(client);
    else
        flush_now(client);
}

/* A replica would take a message for a part of the stream. */
static bool takes_pushes(const struct client *client) {
    return client->conn && !(client->flags & (CLIENT_CLOSE_AFTER_REPLY | CLIENT_CLOSING | CLIENT_REPLICA));
}

void client_flush_pushes(struct client *client) {
    if (!takes_pushes(client) || dispatch_is_running(client)) return;
    client_flush_forget(client);
    flush_now(client);
}

void clients_flush(void) {
    /* Closing a client may write to other clients; they are appended to the list and flushed too. */
    while (flushes.len) {
        struct client *client = container_of(list_first(&flushes), struct client, flush_link);
        list_remove(&flushes, &client->flush_link);
        flush_now(client);
    }
}

/* Pushes: those to a client whose own command runs wait in a memory_output, the feature's state. */

static void pushes_drop(struct client *client);
static struct client_watcher pushes_watcher = {.freed = pushes_drop};

static void pushes_free(struct memory_output *pushes) {
    memory_output_free(pushes);
    mem_free(pushes);
}

static void pushes_drop(struct client *client) {
    struct memory_output *pushes = client_state(client, &pushes_watcher);
    if (!pushes) return;
    client_set_state(client, &pushes_watcher, NULL);
    pushes_free(pushes);
}

static inline struct output *push_output(struct client *client) {
    if (__builtin_expect(reply_barrier_armed || reply_barrier_replies(client), 0))
        return reply_barrier_push_output(client);
    return &client->conn->out;
}

static struct output *push_target(struct client *client) {
    if (!dispatch_is_running(client)) return push_output(client);
    struct memory_output *pushes = client_state(client, &pushes_watcher);
    if (!pushes) {
        pushes = mem_alloc(sizeof *pushes);
        memory_output_init(pushes);
        client_set_state(client, &pushes_watcher, pushes);
    }
    return &pushes->out;
}

static void push_done(struct client *client) {
    if (client_state(client, &pushes_watcher)) return;
    client_flush_later(client);
    client_check_output(client);
}

void client_push(struct client *client, struct slice bytes) {
    if (!takes_pushes(client)) return;
    output_write(push_target(client), bytes);
    push_done(client);
}

void client_push_blob(struct client *client, struct blob *blob) {
    if (!takes_pushes(client)) return;
    output_write_blob(push_target(client), blob);
    push_done(client);
}

void client_pushes_write(struct client *client) {
    struct memory_output *pushes = client_state(client, &pushes_watcher);
    if (!pushes) return;
    client_set_state(client, &pushes_watcher, NULL);
    if (client->conn) {
        output_write(push_output(client), memory_output_slice(pushes));
        push_done(client);
    }
    pushes_free(pushes);
}

/* Limits */

static __attribute__((noinline)) bool limit_passed(struct client *client) {
    log_warning("Client %s scheduled to be closed ASAP for overcoming of output buffer limits.",
                client_log_text(client));
    client_stats.output_limit_closed++;
    client_free(client);
    return false;
}

/* A client that has not authenticated may queue only a few error replies, whatever the limits are, so that replies it
 * does not read cannot pile up. Bytes that were not yet tried to be sent do not count: the cron may run between a turn
 * and its flush. */
static bool owed_before_auth(const struct client *client) {
    return !list_is_linked(&client->flush_link) && !client->authenticated && auth_required() && client->conn &&
           conn_pending(client->conn) > OUTPUT_FREE;
}

bool client_check_output(struct client *client) {
    if (__builtin_expect(!client->authenticated, 0) && owed_before_auth(client)) return limit_passed(client);
    const struct client_limit *limit = &client_settings.limits[client_class(client)];
    if (__builtin_expect(!(limit->hard | limit->soft), 1) || !client->conn) return true;
    struct client_report report;
    client_report(client, &report);
    size_t pending = conn_pending(client->conn) + report.held_output;
    if (pending <= OUTPUT_FREE) pending = 0;
    if (limit->hard && pending >= limit->hard) return limit_passed(client);
    if (!limit->soft || pending < limit->soft) {
        client->soft_limit_since_us = 0;
    } else if (client->soft_limit_since_us == 0) {
        client->soft_limit_since_us = clock_mono() ? clock_mono() : 1;
    } else if (clock_mono() - client->soft_limit_since_us > limit->soft_seconds * 1000000) {
        return limit_passed(client);
    }
    return true;
}
