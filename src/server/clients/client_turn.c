/* client_turn.c: executes the requests of clients in turns.
 *
 * A turn executes requests directly from the connection's input until the input is used up, then flushes once. At its
 * end it consumes the executed bytes from the connection in one step. A turn that takes longer than TURN_US ends early:
 * the client goes to the end of a queue and continues after the event loop has served all other descriptors, so an
 * endless pipeline starves no other client. */
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/thread.h"
#include "lib/system/ticks.h"
#include "net/remote.h"
#include "resp/request_ahead.h"
#include "server/clients/auth.h"
#include "server/clients/blocking.h"
#include "server/clients/client_private.h"
#include "server/clients/io_threads.h"
#include "server/clients/reply_barrier.h"
#include "server/clients/transactions.h"
#include "server/command/dispatch.h"
#include "server/config/settings.h"
#include "server/server.h"
#include "server/stats/commandlog.h"
#include <ctype.h>
#include <stdio.h>

enum {
    TURN_US = 1000,
    INPUT_PIECE = 16 * 1024,
    REQUEST_COPY_MIN = 1024 * 1024,          /* smaller requests are not checked for memory for a copy */
    REQUEST_KEPT_MIN = 20 * 1024,            /* larger requests leave receive memory of their size behind, */
    REQUEST_KEPT_MAX = 2 * REQUEST_COPY_MIN, /* but not more than this */
    CLIENT_SKIPS = CLIENT_REPLY_SKIP | CLIENT_REPLY_SKIP_NEXT
};

static struct list turns = LIST_INIT(turns);
static struct event_timer turns_timer;

/* Clients were released that execute their requests before the reply of what released them is sent: a client that has
 * seen that reply must not overtake them. */
static bool turns_go_first;

static uint64_t turns_run(struct event_timer *timer);

static void turn_queue(struct client *client) {
    if (list_is_linked(&client->turn_link)) return;
    list_append(&turns, &client->turn_link);
    if (!turns_timer.heap_index) event_timer_set(server.loop, &turns_timer, 0, turns_run);
}

void client_turn_forget(struct client *client) {
    if (list_is_linked(&client->turn_link)) list_remove(&turns, &client->turn_link);
}

void client_turns_detach(void) {
    list_init(&turns);
    turns_go_first = false;
}

void client_hold(struct client *client) {
    must_less(client->holds, UINT8_MAX);
    client->holds++;
}

void client_release(struct client *client) {
    must(client->holds > 0);
    if (--client->holds == 0 && !(client->flags & CLIENT_CLOSING) && client->conn) turn_queue(client);
}

void client_releases_go_first(void) {
    turns_go_first = turns.len > 0;
}

/* CLIENT REPLY SKIP: the next request gets no reply. */
static __attribute__((noinline)) void skip_begin(struct client *client) {
    client->flags &= ~CLIENT_SKIPS;
    client->flags |= CLIENT_REPLY_SKIP;
    client_retarget(client);
}

void client_skip_end(struct client *client) {
    client->flags &= ~(uint32_t)CLIENT_REPLY_SKIP;
    client_retarget(client);
}

/* The reply of a request that blocks comes later: blocking.c ends the skip then. */
static __attribute__((noinline)) void request_ended(struct client *client) {
    if (client->flags & CLIENT_REPLY_SKIP && !blocking_command(client)) client_skip_end(client);
    if (client->flags & CLIENT_REPLICA || client->reads_ahead) client_notify_requested(client);
}

/* The size of replies. The sum of bytes a connection has sent and has queued only grows by what is written to it. As
 * long as the output stays in the same piece of send memory, it grows by the distance that the write position moves. So
 * the sum is computed once a turn, and again after a reply that continued in another piece. */
static inline uint64_t output_produced(const struct connection *conn) {
    return conn->bytes_out + conn_pending(conn);
}

static inline void produced_start(struct client *client) {
    client->produced = output_produced(client->conn);
    client->produced_at = client->conn->out.pos;
}

uint64_t client_reply_bytes(const struct client *client) {
    return output_produced(client->conn) + reply_barrier_held(client);
}

void client_produced_start(struct client *client) {
    produced_start(client);
}

void client_call_starts(struct client *client, struct call_start *start) {
    if (client->conn) produced_start(client);
    start->pos = client->conn ? client->conn->out.pos : NULL;
    start->calls = client->commands;
    start->held = reply_barrier_held(client);
}

/* Returns the bytes of a reply that began at `from` and is large or continued in another piece of send memory. */
static uint64_t reply_measure(struct client *client, const char *from) {
    uint64_t before = client->produced + (uint64_t)(from - client->produced_at);
    produced_start(client);
    /* Less than before: the connection has failed and dropped its queue. */
    return client->produced < before ? 0 : client->produced - before;
}

__attribute__((noinline)) void client_call_ends(struct client *client, const struct call_start *start, int argc,
                                                const struct slice *argv, size_t request_size) {
    if (!client->conn) return; /* internal or closed */
    uint64_t reply_size = reply_measure(client, start->pos), held = reply_barrier_held(client);
    held = held > start->held ? held - start->held : 0;
    if (held) reply_barrier_replied(client);
    reply_size += held;
    if (client->commands == start->calls || !client->current) return; /* refused, queued or blocked: not executed */
    if (request_size >= commandlog_thresholds[COMMANDLOG_LARGE_REQUEST])
        commandlog_add(COMMANDLOG_LARGE_REQUEST, client->current, client, argc, argv, request_size);
    if (reply_size >= commandlog_thresholds[COMMANDLOG_LARGE_REPLY])
        commandlog_add(COMMANDLOG_LARGE_REPLY, client->current, client, argc, argv, reply_size);
}

/* A command may copy its arguments into values, and those allocations cannot fail: a large request is refused if there
 * is not enough memory for one copy. As in Valkey, CLIENT LIST shows a query buffer of the size of a request with a
 * large argument until the cron finds it unused; that of many small arguments is freed at once. */
static __attribute__((noinline)) bool request_affordable(struct client *client) {
    enum { LARGE_ARGUMENT = 32 * 1024 };
    size_t size = request_wire_size(&client->reader), kept = 0;
    for (int i = 0; i < client->reader.argc && !kept; i++)
        if (client->reader.argv[i].len >= LARGE_ARGUMENT) kept = size < REQUEST_KEPT_MAX ? size : REQUEST_KEPT_MAX;
    if (client->input_peak < kept) client->input_peak = kept;
    if (client->conn->in_kept < kept) client->conn->in_kept = kept;
    if (size < REQUEST_COPY_MIN || mem_is_available(size)) return true;
    dispatch_refuse(client, "OOM the request is too large for the memory that is left");
    return false;
}

/* The reader holds a request. Returns false if a filter holds it back; it then stays in the reader. */
static inline bool request_execute(struct client *client) {
    struct request_reader *reader = &client->reader;
    const struct output *out = &client->conn->out;
    if (reader->argc) {
        size_t held = __builtin_expect(client->states != NULL, 0) ? reply_barrier_held(client) : 0;
        struct call_start start = {out->pos, client->commands, held};
        const char *end = out->end;
        if (__builtin_expect(client->flags & (CLIENT_REPLY_SKIP_NEXT | CLIENT_TAKEN_OVER), 0)) {
            if (client->flags & CLIENT_TAKEN_OVER) {
                dispatch_ticks = ticks_now(); /* bounds the turn */
                client_notify_request(client, reader->argc, reader->argv);
                return true;
            }
            skip_begin(client);
        }
        if (__builtin_expect(reader->size + reader->memory >= REQUEST_KEPT_MIN, 0) && !request_affordable(client)) {
            request_ended(client);
            return true;
        }
        if (__builtin_expect(!dispatch_request(client, reader->argc, reader->argv), 0)) return false;
        if (__builtin_expect(client->flags & (CLIENT_REPLY_SKIP | CLIENT_REPLICA) || client->reads_ahead, 0))
            request_ended(client);
        if (__builtin_expect(out->end != end || reply_barrier_replies(client) ||
                                 (uint64_t)(out->pos - start.pos) >= commandlog_thresholds[COMMANDLOG_LARGE_REPLY] ||
                                 reader->size + reader->memory >= commandlog_thresholds[COMMANDLOG_LARGE_REQUEST],
                             0))
            client_call_ends(client, &start, reader->argc, reader->argv, request_wire_size(reader));
    } else {
        dispatch_ticks = ticks_now(); /* empty lines take time too */
    }
    return true;
}

/* The start and the end of what could not be read, printable characters only. */
static const char *unread_text(const struct client *client) {
    enum { SHOWN = 64 };
    static char text[4 * SHOWN];
    struct slice unread = client->reader.unread;
    if (server_settings.hide_user_data) return "*redacted*";
    size_t head = unread.len <= 2 * SHOWN ? unread.len : SHOWN, tail = unread.len <= 2 * SHOWN ? 0 : SHOWN;
    char *p = text;
    *p++ = '\'';
    for (size_t i = 0; i < head; i++) *p++ = isprint((unsigned char)unread.data[i]) ? unread.data[i] : '.';
    if (tail) p += sprintf(p, "' (... more %zu bytes ...) '", unread.len - head - tail);
    for (size_t i = unread.len - tail; i < unread.len; i++)
        *p++ = isprint((unsigned char)unread.data[i]) ? unread.data[i] : '.';
    memcpy(p, "'", 2);
    return text;
}

static __attribute__((noinline)) void request_refuse(struct client *client) {
    const char *reason = client->reader.error, *prefix = "ERR Protocol error: ";
    if (strncmp(reason, prefix, strlen(prefix)) == 0) reason += strlen(prefix);
    log_verbose("Protocol error (%s) from client: %s. Query buffer: %s", reason, client_log_text(client),
                unread_text(client));
    reply_error(&client->reply, client->reader.error);
    client->flags |= CLIENT_CLOSE_AFTER_REPLY;
}

/* Closes a client whose request exceeds client-query-buffer-limit. */
static __attribute__((noinline)) void query_limit_close(struct client *client, size_t size) {
    log_warning("Closing client that reached max query buffer length: %s (%zu bytes)", client_log_text(client), size);
    client_stats.query_limit_closed++;
    client_free(client);
}

/* Bytes that have arrived and are not parsed: behind the running request, or of an argument that is not complete. */
static __attribute__((noinline)) size_t unparsed_bytes(const struct client *client) {
    const struct connection *conn = client->conn;
    if (client->threaded) return remote_unread(conn);
    size_t input = conn->in_len > client->used ? conn->in_len - client->used : 0;
    return request_figures(&client->reader, input, conn->sink_len).waiting;
}

/* Bytes of the commands that an open transaction has queued. */
static __attribute__((noinline)) size_t queued_bytes(const struct client *client) {
    if (!client->states || transaction_queued(client) < 0) return 0;
    struct client_report report;
    client_report(client, &report);
    return report.queued_memory;
}

/* As in Valkey, neither the announced length of an argument counts nor the complete arguments of a partial request. So
 * the latter, which stay in the input, may exceed the limit of the input: the rest must arrive nevertheless. */
static __attribute__((noinline)) bool query_limit_passed(struct client *client) {
    struct connection *conn = client->conn;
    size_t limit = (size_t)client_settings.query_buffer_limit, size = 0;
    if (client->threaded || client->states || conn->in_len + client->reader.memory >= limit)
        size = unparsed_bytes(client) + queued_bytes(client);
    if (size > limit) {
        query_limit_close(client, size);
        return true;
    }
    if (conn->in_len >= conn->in_limit) conn_set_in_limit(conn, 2 * conn->in_len);
    return false;
}

/* The same for an argument that has been received into its blob, with its line end. The input behind it is not parsed
 * yet, so it does not count. */
static __attribute__((noinline)) bool large_limit_passed(struct client *client) {
    size_t behind = client->conn->in_len < 2 ? client->conn->in_len : 2;
    size_t size = client->reader.large->len + behind + queued_bytes(client);
    if (size <= (size_t)client_settings.query_buffer_limit) return false;
    query_limit_close(client, size);
    return true;
}

/* Receives an argument of the request straight into its blob. Consumes everything executed before it, and the received
 * part of the request. */
static __attribute__((noinline)) void request_receive_large(struct client *client) {
    struct request_reader *reader = &client->reader;
    client_recent_input(reader->memory);
    conn_consume(client->conn, client->used + reader->size);
    client->used = 0;
    conn_receive_into(client->conn, reader->large->data + reader->large_have, reader->large->len - reader->large_have);
}

static const struct request_limits *client_limits(const struct client *client) {
    static struct request_limits normal = {.multibulk_max = 1024 * 1024 * 1024},
                                 unauthenticated = {.multibulk_max = 10, .bulk_max = 16384, .unauthenticated = true};
    if (!client->authenticated && auth_required()) return &unauthenticated;
    normal.bulk_max = client_settings.bulk_max;
    return &normal;
}

size_t client_prefetch_max(void) {
    size_t max = (size_t)client_settings.prefetch_batch_max;
    return max < HASHTABLE_PREFETCH_MAX ? max : HASHTABLE_PREFETCH_MAX;
}

/* Prefetches the keys of the next requests of a pipeline, so that memory latencies overlap. Returns how many bytes of
 * the input it has read ahead; all of them if prefetching does not pay. */
static __attribute__((noinline)) size_t pipeline_fetch(struct client *client, struct slice input) {
    struct slice keys[HASHTABLE_PREFETCH_MAX];
    size_t seen, max = client_prefetch_max();
    if (max < 2 || !db_prefetch_pays(client->db)) return input.len;
    db_prefetch_requests(client->db, keys, requests_ahead(input, keys, max, &seen));
    return seen ? seen : input.len;
}

enum turn_end { TURN_DONE, TURN_OVER /* time is up */, TURN_HELD, TURN_LARGE };

/* Where the requests of a turn come from: the input of the connection, or the batch that an I/O thread made of it. */
struct turn {
    struct client *client;
    const struct request_limits *limits;
    size_t fetched; /* bytes of the input whose keys are being fetched; a single request has nothing to gain */
    struct io_batch *batch;
};

static inline enum request_status input_next(struct turn *turn) {
    struct client *client = turn->client;
    struct connection *conn = client->conn;
    if (conn->in_len <= client->used) return REQUEST_PARTIAL;
    struct slice input = {conn->in + client->used, conn->in_len - client->used};
    if (client->used >= turn->fetched) turn->fetched = client->used + pipeline_fetch(client, input);
    return request_read(&client->reader, input, turn->limits);
}

static enum request_status batch_next(struct turn *turn, size_t *size) {
    if (!turn->batch) return REQUEST_PARTIAL;
    io_batch_prefetch(turn->batch, turn->client->db);
    return io_batch_next(turn->batch, &turn->client->reader, size);
}

static inline void request_executed(struct turn *turn, bool threaded) {
    struct client *client = turn->client;
    client->used += client->reader.size;
    if (threaded && turn->batch)
        io_batch_done(turn->batch, &client->reader);
    else
        request_done(&client->reader);
    if (__builtin_expect(turn->limits->unauthenticated || !client->authenticated, 0))
        turn->limits = client_limits(client);
}

/* Checks the output limits, and sends the replies after each INPUT_PIECE bytes of requests. A peer that reads its
 * replies then exceeds no limit however long its pipeline is, as with a server that reads INPUT_PIECE bytes in one
 * call. Returns false if the client is freed. `sent_at` is client->used when replies were last sent. */
static __attribute__((noinline)) bool replies_limit(struct client *client, size_t *sent_at) {
    if (!client_check_replies(client)) return false;
    if (client->used - *sent_at < INPUT_PIECE || reply_barrier_replies(client)) return true;
    *sent_at = client->used;
    conn_flush(client->conn);
    produced_start(client);
    return true;
}

/* Executes requests until there is none left; client->used counts the bytes of input to consume. The compiler makes
 * two functions of it, so that a client without an I/O thread pays nothing for the other kind. No pointer to the turn
 * leaves this file's inline functions: its members stay in registers. */
static inline __attribute__((always_inline)) enum turn_end turn_loop(struct turn *turn, bool threaded) {
    struct client *client = turn->client;
    uint64_t limit = dispatch_ticks + ticks_of_us(TURN_US);
    size_t sent_at = 0;
    for (;;) {
        size_t size = 0;
        switch (threaded ? batch_next(turn, &size) : input_next(turn)) {
        case REQUEST_READY: break;
        case REQUEST_PARTIAL: return TURN_DONE;
        case REQUEST_LARGE:
            if (!threaded) {
                request_receive_large(client);
                return TURN_LARGE;
            }
            query_limit_close(client, size);
            return TURN_DONE;
        case REQUEST_FAILED: request_refuse(client); return TURN_DONE;
        }
        if (!request_execute(client)) {
            if (threaded) io_batch_hold(turn->batch, &client->reader);
            return TURN_HELD;
        }
        request_executed(turn, threaded);
        if (__builtin_expect(client->flags & CLIENT_STOPS || client->holds, 0)) return TURN_DONE;
        bool limited = client_settings.limits[CLIENT_CLASS_NORMAL].hard != 0 || client_replies_are_lists;
        if (__builtin_expect(limited, 0) && !replies_limit(client, &sent_at)) return TURN_DONE;
        if (__builtin_expect(dispatch_ticks > limit, 0)) return TURN_OVER;
    }
}

static enum turn_end turn_execute(struct client *client) {
    struct turn turn = {.client = client, .limits = client_limits(client), .fetched = 1};
    enum turn_end end;
    if (__builtin_expect(!client->threaded, 1)) {
        end = turn_loop(&turn, false);
    } else {
        turn.batch = io_batch_of(client->conn);
        end = turn_loop(&turn, true);
    }
    db_prefetch_requests_end();
    return end;
}

bool client_waits(const struct client *client) {
    return client->holds > reply_barrier_holds_requests(client);
}

bool client_has_turn(const struct client *client) {
    return list_is_linked(&client->turn_link) || client->waits_for_turn || reply_barrier_holds_requests(client);
}

bool client_free_if_peer_gone(struct client *client) {
    if (__builtin_expect(!client->conn->hung_up, 1) || !client_waits(client)) return false;
    client_closed_by_peer(client);
    return true;
}

static bool can_execute(const struct client *client) {
    return !(client->holds || client->held || (client->flags & CLIENT_STOPS) || client->conn->sink_len);
}

static void turn_finish(struct client *client, enum turn_end end) {
    struct connection *conn = client->conn;
    if (client->flags & CLIENT_CLOSING) return;
    if (client->used) conn_consume(conn, client->used);
    client->used = 0;
    client_count_bytes(client);
    /* Receive nothing more until the current input is executed. In particular do not receive the end of the connection,
     * which would discard that input. */
    bool over = end == TURN_OVER && conn->in_len;
    if (over != client->waits_for_turn) conn_set_reading(conn, !over);
    client->waits_for_turn = over;
    if (over) turn_queue(client);
    if (end == TURN_HELD) client->held = true;
    if (client->flags & CLIENT_CLOSE_AFTER_REPLY) conn_set_reading(conn, false);
    if (client_free_if_peer_gone(client)) return;
    if (__builtin_expect(client_memory_bounded, 0)) client_memory_note(client); /* with the replies, before they go */
    if (__builtin_expect(turns_go_first, 0) && can_execute(client))
        turn_queue(client); /* it has nothing to execute then, and is flushed */
    else
        client_flush(client);
}

/* Input has arrived for a client that executes nothing now. The server continues to receive, because the end of the
 * connection may follow that input, so the size of the input is limited. */
static __attribute__((noinline)) void input_waits(struct client *client) {
    client->active_ms = clock_mono_ms();
    if (client->flags & CLIENT_STOPS || !(client->holds || client->conn->sink_len)) return;
    if (client_free_if_peer_gone(client) || query_limit_passed(client)) return;
    if (client->states) client_notify_arrived(client);
}

/* The turns of other clients have used memory since the last look: no client is seen above maxmemory-clients. Returns
 * true if this client is closed. */
static __attribute__((noinline)) bool memory_limit(struct client *client) {
    client_memory_note(client);
    clients_evict();
    return client->flags & CLIENT_CLOSING;
}

void client_turn(struct client *client) {
    if (!can_execute(client)) {
        input_waits(client);
        return;
    }
    if (__builtin_expect(client_memory_bounded, 0) && memory_limit(client)) return;
    if (__builtin_expect(client->reader.large != NULL, 0) && large_limit_passed(client)) return;
    must_be_main_thread();
    dispatch_ticks = ticks_now();
    produced_start(client);
    client->active_ms = clock_mono_ms();
    enum turn_end end = turn_execute(client);
    turn_finish(client, end);
    if (!client->threaded && !(client->flags & CLIENT_CLOSING) && end == TURN_DONE) query_limit_passed(client);
}

/* Resumes a client that was held, first with the request in its reader. The input may have moved since: the request is
 * parsed again, unless parts of it have left the input (large arguments). */
static void turn_resume(struct client *client) {
    if (client->holds) { /* held again since it was queued: its release queues it again */
        client_flush(client);
        return;
    }
    if (client->resume) {
        client->resume(client);
        return;
    }
    if (client->held && (client->threaded || !client->reader.larges_count)) {
        client->held = false;
        if (!client->threaded) request_done(&client->reader);
    }
    if (client->held) {
        request_moved(&client->reader, conn_peek(client->conn));
        dispatch_ticks = ticks_now();
        produced_start(client);
        if (!request_execute(client)) {
            client_free_if_peer_gone(client);
            return;
        }
        if (client->flags & CLIENT_CLOSING) return;
        client->held = false;
        conn_consume(client->conn, client->reader.size);
        request_done(&client->reader);
        if (client->flags & CLIENT_CLOSE_AFTER_REPLY) {
            client_flush(client);
            return;
        }
    }
    client_turn(client);
}

static uint64_t turns_run(struct event_timer *timer) {
    turns_go_first = false;
    for (size_t left = turns.len; left > 0 && turns.len > 0; left--) {
        struct client *client = container_of(list_first(&turns), struct client, turn_link);
        list_remove(&turns, &client->turn_link);
        turn_resume(client);
    }
    return 0;
}

void client_execute(struct client *client, int argc, const struct slice *argv) {
    if (argc == 0) return;
    if (!dispatch_running()) dispatch_ticks = ticks_now();
    dispatch_request(client, argc, argv);
}
