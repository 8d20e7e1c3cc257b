/* client_output.c: when replies leave, and how many may wait.
 *
 * Over RDMA a client's replies leave at the end of its turn: sending is a few stores. Over sockets, where it is a system call that wakes the peer,
 * and for what others write to a client, they leave before the loop waits: such clients stand in one list. What the peer does not take is queued in the connection; the limits of
 * client-output-buffer-limit are on that queue. */
#include "lib/clock.h"
#include "lib/log.h"
#include "server/auth.h"
#include "server/client_private.h"

/* What fits into one piece of send memory is not counted against the limits: a limit of a few bytes still lets replies through. */
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
    client_stats.writes++;
    conn_flush(client->conn);
    client_count_bytes(client);
    if (!client_check_output(client)) return;
    if (__builtin_expect(client_memory_bounded, 0)) client_memory_note(client);
    if ((client->flags & CLIENT_CLOSE_AFTER_REPLY) && conn_pending(client->conn) == 0) client_free(client);
}

void client_flush(struct client *client) {
    if (client->conn->transport->flush_late) client_flush_later(client);
    else flush_now(client);
}

void clients_flush(void) {
    /* Closing a client may make others write; they are appended and have their turn too. */
    while (flushes.len) {
        struct client *client = container_of(list_first(&flushes), struct client, flush_link);
        list_remove(&flushes, &client->flush_link);
        flush_now(client);
    }
}

/* Limits */

static __attribute__((noinline)) bool limit_passed(struct client *client) {
    log_warning("Client %s scheduled to be closed ASAP for overcoming of output buffer limits.", client_log_text(client));
    client_stats.output_limit_closed++;
    client_free(client);
    return false;
}

/* Who has not logged in is owed a few errors and no more: replies that it does not read must not pile up, whatever the limits say. */
static bool owed_before_auth(const struct client *client) {
    return !client->authenticated && auth_required() && client->conn && conn_pending(client->conn) > OUTPUT_FREE;
}

bool client_check_output(struct client *client) {
    if (__builtin_expect(!client->authenticated, 0) && owed_before_auth(client)) return limit_passed(client);
    const struct client_limit *limit = &client_settings.limits[client_class(client)];
    if (__builtin_expect(!(limit->hard | limit->soft), 1) || !client->conn) return true;
    size_t pending = conn_pending(client->conn);
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
