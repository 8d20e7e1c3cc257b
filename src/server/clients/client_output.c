/* client_output.c: when replies are sent, and how many bytes may be queued.
 *
 * Over RDMA a client's replies are sent at the end of its turn, because sending is a few stores. Over sockets, where
 * sending is a system call that wakes the peer, and for output of other writers, they are sent before the loop waits:
 * one list holds the clients to flush. The option immediate-reply selects one of the two for all transports. Bytes that
 * the peer does not take are queued in the connection; client-output-buffer-limit bounds that queue. A reply barrier
 * (reply_barrier.h) may hold a client's replies back: held bytes count like queued bytes. */
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/remote.h"
#include "server/clients/auth.h"
#include "server/clients/client_private.h"
#include "server/clients/reply_barrier.h"
#include "server/command/dispatch.h"

enum { OUTPUT_FREE = 16 * 1024 };
enum { BLOCK = 20 * 1024, BLOCK_HEAD = 24, CLASSES_A_DOUBLING = 4 };
bool client_replies_are_lists, client_reply_sizes_adapt = true;
int64_t client_reply_peak_reset_ms = REPLY_PEAK_MS;
static struct list flushes = LIST_INIT(flushes);

uint64_t client_bytes_out(const struct client *client) {
    if (!client->conn) return 0;
    return client->threaded ? remote_bytes_out(client->conn) : client->conn->bytes_out;
}

struct output *client_output(struct client *client) {
    if (client->flags & CLIENT_REPLICA) return client->reply.out;
    struct held_replies *held = reply_barrier_replies(client);
    return held ? held_replies_output(held) : &client->conn->out;
}

static inline void count_bytes(struct client *client) {
    const struct connection *conn = client->conn;
    uint64_t out = __builtin_expect(client->threaded, 0) ? remote_bytes_out(conn) : conn->bytes_out;
    client_stats.bytes_in += conn->bytes_in - client->net_in;
    client_stats.bytes_out += out - client->net_out;
    client->net_in = conn->bytes_in;
    client->net_out = out;
}
void client_count_bytes(struct client *client) {
    count_bytes(client);
}

void client_flush_later(struct client *client) {
    if (!list_is_linked(&client->flush_link) && client->conn) list_append(&flushes, &client->flush_link);
}

void client_flush_forget(struct client *client) {
    if (list_is_linked(&client->flush_link)) list_remove(&flushes, &client->flush_link);
}

static __attribute__((noinline)) void reply_peak_note(struct client *client, size_t size) {
    if (size > client->buffer.size) size = client->buffer.size;
    if (size > client->buffer.peak) client->buffer.peak = (uint32_t)size;
}

/* What happens to a client above a limit, for the log. */
static const char later[] = "scheduled to be closed ASAP", now[] = "closed";

static bool limits_check_slowly(struct client *client, const struct client_limit *limit, bool before_flush,
                                const char *what);
static inline bool limits_check(struct client *client, bool before_flush, const char *what) {
    const struct client_limit *limit = &client_settings.limits[client_class(client)];
    if (__builtin_expect(client->authenticated && !(limit->hard | limit->soft), 1)) return true;
    return limits_check_slowly(client, limit, before_flush, what);
}

static inline __attribute__((always_inline)) void flush_inline(struct client *client) {
    bool held = __builtin_expect(reply_barrier_replies(client) != NULL, 0) && reply_barrier_holds(client);
    if (__builtin_expect(client->conn->state != CONN_OPEN, 0) && !client_has_turn(client))
        client->flags |= CLIENT_CLOSE_AFTER_REPLY; /* the peer sends nothing more */
    bool closes = client->flags & CLIENT_CLOSE_AFTER_REPLY && !held;
    client_stats.writes++;
    client->conn->wants_drained = closes;
    conn_flush(client->conn);
    uint64_t before = client->net_out;
    count_bytes(client);
    if (__builtin_expect(client->net_out - before > client->buffer.peak, 0))
        reply_peak_note(client, client->net_out - before);
    if (!limits_check(client, false, later)) return;
    if (__builtin_expect(client_memory_bounded, 0)) client_memory_note(client);
    if (closes && conn_pending(client->conn) == 0) client_free(client);
}

static void flush_now(struct client *client) {
    flush_inline(client);
}

static inline bool replies_wait(const struct client *client) {
    int when = client_settings.immediate_reply;
    return when == REPLY_AS_TRANSPORT ? conn_flushes_late(client->conn) : when == REPLY_LATE;
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

static __attribute__((noinline)) struct client *next_without_call(void) {
    list_each_entry(&flushes, struct client, flush_link, client)
        if (!dispatch_replies_to(client)) return client;
    return NULL;
}

/* A client whose own call is on the stack stays in the list until a turn after the call. */
static inline struct client *next_to_flush(void) {
    if (__builtin_expect(dispatch_running() != NULL, 0)) return next_without_call();
    struct list_link *first = list_first(&flushes);
    return first ? container_of(first, struct client, flush_link) : NULL;
}

void clients_flush(void) {
    /* Closing a client may write to other clients; they are appended to the list and flushed too. */
    for (struct client *client = next_to_flush(); client; client = next_to_flush()) {
        list_remove(&flushes, &client->flush_link);
        flush_inline(client);
    }
}

/* Pushes: those to a client whose own command runs wait in a memory_output, the feature's state. */

static void pushes_drop(struct client *client);
static void pushes_report(const struct client *client, struct client_report *report);
static struct client_listener pushes_listener = {.freed = pushes_drop, .report = pushes_report};

static void pushes_free(struct memory_output *pushes) {
    memory_output_free(pushes);
    mem_free(pushes);
}

static void pushes_drop(struct client *client) {
    struct memory_output *pushes = client_state(client, &pushes_listener);
    if (!pushes) return;
    client_set_state(client, &pushes_listener, NULL);
    pushes_free(pushes);
}

/* They count like output that is queued. */
static void pushes_report(const struct client *client, struct client_report *report) {
    size_t size = memory_output_slice(client_state(client, &pushes_listener)).len;
    report->held_output += size;
    report->memory += size;
}

static inline struct output *push_output(struct client *client) {
    if (__builtin_expect(reply_barrier_armed || reply_barrier_replies(client), 0))
        return reply_barrier_push_output(client);
    return &client->conn->out;
}

static struct output *push_target(struct client *client) {
    if (!dispatch_is_running(client)) return push_output(client);
    struct memory_output *pushes = client_state(client, &pushes_listener);
    if (!pushes) {
        pushes = mem_alloc(sizeof *pushes);
        memory_output_init(pushes);
        client_set_state(client, &pushes_listener, pushes);
    }
    return &pushes->out;
}

static void push_done(struct client *client) {
    if (!client_state(client, &pushes_listener)) client_flush_later(client);
    /* Before the flush: a large message that the peer takes at once exceeds no limit. */
    limits_check(client, true, later);
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
    struct memory_output *pushes = client_state(client, &pushes_listener);
    if (!pushes) return;
    client_set_state(client, &pushes_listener, NULL);
    if (client->conn) {
        output_write(push_output(client), memory_output_slice(pushes));
        push_done(client);
    }
    pushes_free(pushes);
}

/* --- Limits --- */

static __attribute__((noinline)) bool limit_passed(struct client *client, const char *what) {
    log_warning("Client %s %s for overcoming of output buffer limits.", client_log_text(client), what);
    client_stats.output_limit_closed++;
    if (client->conn) client->conn->drops_output = true;
    client_free(client);
    return false;
}

/* A client that has not authenticated may queue only a few error replies, whatever the limits are, so that replies it
 * does not read cannot pile up. Bytes that were not yet tried to be sent do not count: the cron may run between a turn
 * and its flush. */
static bool owed_before_auth(const struct client *client) {
    if (client->authenticated || client->flags & CLIENT_KNOWN || !client->conn || !auth_required()) return false;
    if (client_replies_are_lists) return conn_pending(client->conn);
    return !list_is_linked(&client->flush_link) && conn_pending(client->conn) > OUTPUT_FREE;
}

struct client_output_figures client_output_figures(const struct client *client, size_t pending, size_t shared) {
    struct client_output_figures figures = {0};
    size_t buffer = client_replies_are_lists || client->flags & CLIENT_REPLICA ? 0 : client->buffer.size;
    if (shared > pending) shared = pending;
    size_t copied = pending - shared;
    figures.buffered = copied < buffer ? copied : buffer;
    if (!client_settings.shared_reply_min) { /* shared strings count as if they were copied */
        size_t part = shared < buffer - figures.buffered ? shared : buffer - figures.buffered;
        shared -= part;
        copied += part;
        figures.buffered += part;
        figures.blocks = shared > 0;
    }
    size_t blocks = (copied - figures.buffered + BLOCK - 1) / BLOCK;
    figures.blocks += blocks;
    figures.queued = blocks * (BLOCK + BLOCK_HEAD) + shared;
    return figures;
}

/* Output that fits into one piece of send memory does not count against the limits, so that a limit of a few bytes
 * still lets replies through. */
static size_t counted(const struct client *client, size_t pending, size_t shared) {
    if (pending <= OUTPUT_FREE && !client_replies_are_lists) return 0;
    return client_output_figures(client, pending, shared).queued;
}

/* Whole seconds, so that a limit of 0 seconds lets a peer catch up within the second. */
static bool soft_time_over(const struct client *client, const struct client_limit *limit) {
    return clock_mono() / 1000000 - client->soft_limit_since_us / 1000000 > limit->soft_seconds;
}

static bool limits_check_slowly(struct client *client, const struct client_limit *limit, bool before_flush,
                                const char *what) {
    if (!client->authenticated && owed_before_auth(client)) return limit_passed(client, what);
    if (!(limit->hard | limit->soft) || !client->conn) return true;
    struct client_report report;
    client_report(client, &report);
    size_t shared = conn_pending_shared(client->conn), sent = conn_pending(client->conn);
    sent -= report.output_uncounted < sent ? report.output_uncounted : sent;
    if (shared > sent) shared = sent;
    size_t waiting = sent + report.held_output;
    if (before_flush && client_settings.shared_reply_min) waiting -= shared, shared = 0;
    size_t pending = counted(client, waiting, shared);
    if (waiting < report.output_least) pending = 0;
    if (limit->hard && pending >= limit->hard) return limit_passed(client, what);
    if (!limit->soft || pending < limit->soft) {
        if (!before_flush) client->soft_limit_since_us = 0; /* before it, not all output is counted */
    } else if (client->soft_limit_since_us == 0) {
        client->soft_limit_since_us = clock_mono() ? clock_mono() : 1;
    } else if (soft_time_over(client, limit)) {
        return limit_passed(client, what);
    }
    return true;
}

bool client_check_output(struct client *client) {
    return limits_check(client, false, later);
}

bool client_check_replies(struct client *client) {
    if (!client->conn || client->flags & CLIENT_CLOSING) return false;
    if (client->conn->error) return false; /* no memory was left for its output */
    return limits_check(client, true, later);
}

/* The reply buffer
 *
 * A connection takes send memory from a pool while it has replies to send, so no client owns a reply buffer. Its size
 * is the client's share of that memory before output counts as queued. It follows use by the rules of Valkey: doubled
 * if it was full, reduced to the peak if that was less than half of it. */

/* The least size class of the allocator for `size`: four for each power of two. */
static uint32_t size_class(uint32_t size) {
    uint32_t step = REPLY_SIZE_MIN / CLASSES_A_DOUBLING;
    while (size > step * CLASSES_A_DOUBLING * 2) step *= 2;
    return (size + step - 1) / step * step;
}

static void reply_buffer_cron(struct client *client, size_t pending) {
    if (pending > client->buffer.peak) reply_peak_note(client, pending);
    if (!client_reply_sizes_adapt) return;
    if (!pending) { /* what is buffered stays there */
        uint32_t size = client->buffer.size, peak = client->buffer.peak;
        if (peak < size / 2)
            client->buffer.size = size_class(peak < REPLY_SIZE_MIN ? REPLY_SIZE_MIN : peak + 1);
        else if (peak >= size)
            client->buffer.size = size < REPLY_SIZE_MAX / 2 ? size * 2 : REPLY_SIZE_MAX;
        client_stats.reply_shrinks += client->buffer.size < size;
        client_stats.reply_expands += client->buffer.size > size;
    }
    if (client_reply_peak_reset_ms < 0 || clock_mono_ms() - client->buffer.peak_since_ms <= client_reply_peak_reset_ms)
        return;
    client->buffer.peak = (uint32_t)(pending < client->buffer.size ? pending : client->buffer.size);
    client->buffer.peak_since_ms = clock_mono_ms();
}

void client_output_cron(struct client *client) {
    reply_buffer_cron(client, conn_pending(client->conn));
    limits_check(client, false, now);
}
