/* apply.c: follows the primary's stream: executes its commands, forwards its bytes, and acknowledges them.
 *
 * The stream's client (CLIENT_PRIMARY) owns the link's connection. Requests are executed in the receive buffer; large
 * arguments are in the blobs into which they were received. The client gets no replies. The server logs error replies,
 * because after one the data may differ from the primary's.
 *
 * After a request has been executed, its bytes are appended unchanged to the stream of this server (stream.h), for
 * its sub-replicas and its backlog. That advances role->position.offset. The bytes of a transaction are kept here until
 * its EXEC has been executed, so a link that breaks within a transaction resumes before its MULTI.
 *
 * When the connection ends, the client is freed, and the next PSYNC continues at role->position. If the stream contains
 * a request that this server cannot execute (an inline request, an unknown command, the number of a database that it
 * does not have, a value for which it has no memory), the position is discarded: the link ends, and a full
 * synchronization follows.
 *
 * While a command that turns the loop runs (a busy script, a debugging session), the stream waits: its bytes stay in
 * the connection, and the replica keeps sending acknowledgements, so that the link does not time out. The stream also
 * waits during CLIENT PAUSE, so that paused clients find the data unchanged. */
#include "repl/replica/apply.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/ticks.h"
#include "persistence/aof.h"
#include "persistence/snapshot.h"
#include "repl/quorum/quorum.h"
#include "repl/replica/link.h"
#include "repl/settings.h"
#include "repl/stream.h"
#include "repl/stream_error.h"
#include "server/clients/client.h"
#include "server/clients/transactions.h"
#include "server/clients/user.h"
#include "server/command/dispatch.h"
#include "server/role.h"
#include "server/stats/errorstats.h"
#include "server/stats/stats.h"
#include <stdio.h>
#include <stdlib.h>

enum { IN_LIMIT = 64 * 1024 * 1024, LOG_INTERVAL_US = 10 * 1000 * 1000 };
static const struct request_limits limits = {.multibulk_max = 1024 * 1024 * 1024, .bulk_max = INT64_MAX / 4};

/* A large argument of a request or transaction that is not executed yet; the other bytes are in apply.kept. */
struct kept_blob {
    size_t at; /* its position among the bytes of apply.kept */
    struct blob *blob;
};

/* The stream offset up to which the append-only file is on disk (fsynced_mark), or up to which appendfsync would
 * release replies (safe_mark). The file counts commands and the stream counts bytes, so file_offset() notes pairs of
 * both. */
struct file_mark {
    uint64_t command; /* commands in the file when `offset` was noted */
    int64_t offset;   /* the noted offset: reached when `command` commands are done */
    int64_t reached;  /* the highest offset that was reached; -1: none */
};

static struct {
    struct client *client; /* NULL: the stream is not followed */
    bool running;          /* apply_input() is on the stack */
    bool waits;            /* input arrived while a command ran: apply_before_wait() executes it */
    bool refused;          /* the last request was refused before it ran, or this server lacks what it needs */
    bool held;             /* a filter held back the request in the reader */
    struct event_timer alive;
    uint64_t counted; /* bytes of the connection already in replication_stats */
    size_t used;      /* bytes of the input that were executed but not yet consumed */
    struct memory_output kept;
    struct kept_blob *blobs;
    size_t blob_count, blob_capacity, blob_bytes;
    bool ack_due;         /* after GETACK, until the append-only file has everything on disk: acknowledge then */
    bool ack_now;         /* send an acknowledgement before the loop waits */
    uint64_t asked_us;    /* time of the last GETACK; 0: none */
    int64_t acked;        /* last offset acknowledged */
    int64_t fsynced_sent; /* last offset acknowledged as being on disk */
    /* Valid for this link only: the next one may continue another history. */
    struct file_mark safe_mark, fsynced_mark;
} apply;

/* --- Kept bytes of an open transaction --- */

static size_t kept_len(void) {
    return memory_output_slice(&apply.kept).len + apply.blob_bytes;
}

static void keep(struct slice bytes) {
    output_write(&apply.kept.out, bytes);
}

static void kept_clear(void) {
    enum { CAPACITY_KEPT = 64 * 1024 };
    for (size_t i = 0; i < apply.blob_count; i++) blob_release(apply.blobs[i].blob);
    apply.blob_count = apply.blob_bytes = 0;
    if (apply.kept.capacity > CAPACITY_KEPT) {
        memory_output_free(&apply.kept);
        memory_output_init(&apply.kept);
    } else {
        memory_output_clear(&apply.kept);
    }
}

static void kept_pass_on(void) {
    struct slice bytes = memory_output_slice(&apply.kept);
    size_t done = 0;
    for (size_t i = 0; i < apply.blob_count; i++) {
        const struct kept_blob *kept = &apply.blobs[i];
        must_hold(kept->at >= done && kept->at <= bytes.len, "%zu after %zu of %zu", kept->at, done, bytes.len);
        if (kept->at > done) repl_stream_write((struct slice){bytes.data + done, kept->at - done});
        done = kept->at;
        repl_stream_write_blob(kept->blob);
    }
    if (bytes.len > done) repl_stream_write((struct slice){bytes.data + done, bytes.len - done});
    kept_clear();
}

/* Acknowledgements
 *
 * The replica acknowledges each second, and when the primary asks (GETACK) because a client waits (WAIT). For EAGER_US
 * after a GETACK it acknowledges without being asked again, so that the next WAIT often need not wait.
 *
 * An acknowledgement promises what a reply to a write promises. With an append-only file its offset covers only
 * commands whose replies appendfsync would release. It is sent before the loop waits, after the commands of the turn
 * are written to the file. */
enum { EAGER_US = 1000 * 1000, ALIVE_US = 1000 * 1000 };

static int64_t file_offset(struct file_mark *mark, uint64_t appended, uint64_t done) {
    if (done >= appended) return mark->offset = mark->reached = role->position.offset;
    if (done >= mark->command) {
        mark->reached = mark->offset;
        mark->command = appended;
        mark->offset = role->position.offset;
    }
    return mark->reached < 0 ? 0 : mark->reached;
}

/* The offset up to which the append-only file on disk has the stream's commands; -1: the file is off. */
static int64_t fsynced_offset(void) {
    struct aof_progress file;
    if (aof_progress(&file)) return file_offset(&apply.fsynced_mark, file.appended, file.synced);
    return apply.fsynced_mark.offset = apply.fsynced_mark.reached = -1;
}

/* The offset to acknowledge. With replica-ignore-disk-write-errors, a replica that cannot write to its disk
 * acknowledges what it has in memory. */
static int64_t safe_offset(void) {
    struct aof_progress file;
    bool without_disk = replica_settings.ignore_disk_errors && aof_refuses_writes();
    if (aof_progress(&file) && !without_disk) return file_offset(&apply.safe_mark, file.appended, file.safe);
    return apply.safe_mark.offset = apply.safe_mark.reached = role->position.offset;
}

static void send_ack(void) {
    char offset[24], fsynced[24];
    struct client *client = apply.client;
    int64_t on_disk = fsynced_offset();
    quorum_acknowledges();
    apply.acked = safe_offset();
    apply.ack_now &= apply.acked < role->position.offset;
    snprintf(offset, sizeof offset, "%lld", (long long)apply.acked);
    snprintf(fsynced, sizeof fsynced, "%lld", (long long)on_disk);
    struct slice words[] = {SLICE("REPLCONF"), SLICE("ACK"), slice_of(offset), SLICE("FACK"), slice_of(fsynced)};
    request_write(&client->conn->out, on_disk >= 0 ? 5 : 3, words);
    apply.fsynced_sent = on_disk;
    client_flush_later(client);
}

/* Acknowledges now, or, if the append-only file is behind, before the loop waits. */
static void acknowledge(void) {
    apply.ack_now = true;
    if (safe_offset() == role->position.offset) send_ack();
}

/* A timer, because the cron does not run while a command turns the loop. */
static uint64_t apply_keep_alive(struct event_timer *timer) {
    if (!apply.client) return 0;
    if (dispatch_running() && conn_is_open(apply.client->conn)) send_ack();
    return ALIVE_US;
}

/* --- Errors --- */

/* On a writable replica errors are expected: its data may differ from the primary's. */
static bool panics(void) {
    if (!role_is_read_only()) return false;
    return replica_settings.error_behavior == ERRORS_PANIC ||
           replica_settings.error_behavior == ERRORS_PANIC_ON_REPLICAS;
}

static void apply_error(struct reply *reply, struct slice text) {
    const struct client *client = container_of(reply, struct client, reply);
    const struct command *command = client->current;
    errorstats_count(reply, text);
    role_sync.errors++;
    apply.refused |= !dispatch_running() || is_no_such_db(text) || is_no_memory(text);
    repl_log_error("This replica is sending an error to its primary", text, command);
    if (repl_stream_backlog_len() > 0)
        log_warning("Latest backlog is: the %lld bytes before offset %lld", (long long)repl_stream_backlog_len(),
                    (long long)role->position.offset);
    if (!panics()) return;
    log_warning("This replica panicked sending an error to its primary after processing a command from its replication "
                "stream");
    abort();
}

/* --- Executing --- */

/* A request was executed. Its bytes are those in apply.kept, if any, followed by `raw`. */
static void apply_executed(struct slice raw) {
    struct client *client = apply.client;
    if (transaction_queued(client) >= 0) { /* until EXEC */
        keep(raw);
        return;
    }
    if (kept_len()) {
        keep(raw);
        kept_pass_on();
    } else {
        repl_stream_write(raw);
    }
    role_set_stream_db(db_id(client->db));
}

/* False: a filter holds the request back. */
static bool apply_execute(void) {
    struct request_reader *reader = &apply.client->reader;
    apply.refused = false;
    if (reader->argc == 0 || reader->is_inline) return true;
    if (reader->argc == 3 && slice_is(reader->argv[0], "replconf") && slice_is(reader->argv[1], "getack")) {
        repl_stream_written(); /* so that the offset includes the requests before this one */
        apply.ack_due = true;
        acknowledge();
        apply.asked_us = clock_mono();
        return true;
    }
    if (quorum_stream_request(reader)) return true;
    return dispatch_request(apply.client, reader->argc, reader->argv);
}

static void receive_large(struct slice input) {
    struct request_reader *reader = &apply.client->reader;
    struct connection *conn = apply.client->conn;
    keep((struct slice){input.data, reader->size - reader->large_have});
    mem_grow(apply.blobs, apply.blob_count, apply.blob_capacity, 8);
    apply.blobs[apply.blob_count++] =
        (struct kept_blob){memory_output_slice(&apply.kept).len, blob_hold(reader->large)};
    apply.blob_bytes += reader->large->len;
    conn_consume(conn, apply.used + reader->size);
    apply.used = 0;
    conn_receive_into(conn, reader->large->data + reader->large_have, reader->large->len - reader->large_have);
}

/* The server cannot write to its disk. If it continued, its next start would lose changes that it has acknowledged. */
static void check_disk(void) {
    static struct log_limit limit = {.interval_us = LOG_INTERVAL_US};
    if (!replica_settings.ignore_disk_errors) {
        log_warning("Replica was unable to write command to disk.");
        exit(1);
    }
    log_limited(&limit, LOG_LEVEL_WARNING, "Replica is applying a command it is unable to write to disk.");
}

/* Ends the link and discards the position: the rest of the stream does not fit the data. */
static void apply_give_up(const char *why) {
    log_warning("%s. Closing the primary connection and discarding the cached primary.", why);
    replica_stream_refused();
    client_free(apply.client);
}

/* DEBUG RELOAD or DEBUG LOADAOF has replaced the data, perhaps with a part of a file. */
static void give_up_other_data(void) {
    apply_give_up("The data are no longer those of the primary's stream");
}

/* Whether the stream can continue after the request in the reader, which was executed. If not, ends the link. */
static bool can_continue(void) {
    if (apply.refused)
        apply_give_up("The primary sent a command that this server cannot execute");
    else if (apply.client->reader.is_inline && apply.client->reader.argc)
        apply_give_up("WARNING: Receiving inline protocol from primary, primary stream corruption?");
    else if (!role->position.known)
        give_up_other_data(); /* the command could not be executed as a whole */
    else
        return !(apply.client->flags & CLIENT_CLOSING);
    return false;
}

static void note_read_ahead(void) {
    role_sync.read_ahead = (int64_t)(kept_len() + apply.client->conn->in_len);
}

/* The input buffer is limited to IN_LIMIT, so that a waiting stream takes no more memory. A request may be larger than
 * the limit, which is therefore doubled whenever a partial request fills the buffer. */
static void bound_input(struct connection *conn, bool is_partial) {
    if (is_partial && conn->in_len >= conn->in_limit)
        conn_set_in_limit(conn, conn->in_limit * 2);
    else if (conn->in_limit > IN_LIMIT && conn->in_len < IN_LIMIT)
        conn_set_in_limit(conn, IN_LIMIT);
}

/* If a filter has held a request back, it is complete in the reader, but the input may have moved since. This may run
 * for new input before the filter releases the request. */
static enum request_status read_request(struct slice input) {
    struct request_reader *reader = &apply.client->reader;
    if (!apply.held) return request_read(reader, input, &limits);
    request_moved(reader, input);
    return REQUEST_READY;
}

static void apply_input(void) {
    struct client *client = apply.client;
    if (apply.running || client->holds || client->conn->sink_len) return;
    apply.waits = dispatch_running() != NULL;
    if (apply.waits) return;
    if (!role->position.known) {
        give_up_other_data();
        return;
    }
    if (aof_refuses_writes() || snapshot_refuses_writes()) check_disk();
    apply.running = true;
    dispatch_ticks = ticks_now();
    client->active_ms = clock_mono_ms();
    bool is_partial = false;
    for (;;) {
        struct connection *conn = client->conn;
        must_within(apply.used, conn->in_len);
        struct slice input = {conn->in + apply.used, conn->in_len - apply.used};
        if (!input.len) break;
        enum request_status status = read_request(input);
        if (status == REQUEST_LARGE) {
            receive_large(input);
            if (conn->sink_len) break;
            continue;
        }
        if (status == REQUEST_FAILED) {
            log_warning("Protocol error from the primary: %s", client->reader.error);
            apply_give_up("The stream of the primary is damaged");
            break;
        }
        is_partial = status == REQUEST_PARTIAL;
        if (is_partial) break;
        apply.held = !apply_execute();
        if (apply.held || !can_continue()) break;
        apply_executed((struct slice){conn->in + apply.used, client->reader.size});
        apply.used += client->reader.size;
        request_done(&client->reader);
        if (client->holds) break;
    }
    apply.running = false;
    if (client->flags & CLIENT_CLOSING) return;
    if (apply.used) conn_consume(client->conn, apply.used);
    apply.used = 0;
    bound_input(client->conn, is_partial);
    note_read_ahead();
    repl_stream_written();
    if (quorum_acks_at_once()) {
        if (apply.acked != role->position.offset) acknowledge();
        apply.ack_due |= apply.ack_now || quorum_fsync;
        return;
    }
    if (apply.asked_us && clock_mono() - apply.asked_us < EAGER_US && apply.acked != role->position.offset)
        acknowledge();
}

static void apply_resume(struct client *client) {
    apply_input();
}

static void apply_readable(struct connection *conn) {
    replication_stats.bytes_in += conn->bytes_in - apply.counted;
    apply.counted = conn->bytes_in;
    role_heard();
    if (apply.client->holds) note_read_ahead(); /* apply_input() does nothing while the client is paused */
    apply_input();
}

bool apply_frees_later;
static void free_closed(struct event_deferred *deferred) {
    if (apply.client && !conn_is_open(apply.client->conn)) client_free(apply.client);
}

static void apply_closed(struct connection *conn) {
    static struct event_deferred later;
    if (conn->error) log_verbose("Error on the connection of the primary: %s", conn_error_text(conn));
    if (apply_frees_later)
        event_loop_defer(server.loop, &later, free_closed);
    else
        client_free(apply.client);
}

static const struct connection_events events = {.readable = apply_readable, .closed = apply_closed};

/* --- Life --- */

static void apply_freed(struct client *client) {
    if (client != apply.client) return;
    log_notice("Connection with primary lost.");
    log_notice("Caching the disconnected primary state.");
    repl_stream_written();
    kept_clear();
    apply.client = NULL;
    event_timer_cancel(server.loop, &apply.alive);
    role_sync.read_ahead = 0;
    replica_stream_ended();
}
static struct client_listener client_listener = {.freed = apply_freed};

void apply_start(struct connection *conn) {
    struct client *client = client_new(conn);
    int db = role->position.db;
    if (!list_is_linked(&client_listener.link)) {
        client_listen(&client_listener);
        memory_output_init(&apply.kept);
    }
    must(!apply.client);
    apply.client = client;
    apply.used = 0;
    apply.waits = apply.held = false;
    apply.counted = conn->bytes_in;
    apply.ack_now = apply.ack_due = false;
    apply.fsynced_mark = (struct file_mark){.offset = -1, .reached = -1};
    apply.safe_mark = (struct file_mark){.offset = -1, .reached = -1}; /* the file may be behind role->position */
    event_timer_set(server.loop, &apply.alive, ALIVE_US, apply_keep_alive);
    client->db = keyspace_db(server.keyspace, db < 0 ? 0 : db);
    client->user = &user_superuser;
    client->authenticated = true;
    client->flags |= CLIENT_PRIMARY | CLIENT_REPLY_OFF;
    client->reply.protocol = 2;
    client_retarget(client);
    client->reply.error_hook = apply_error;
    client->resume = apply_resume;
    conn->owner = client;
    conn->events = &events;
    conn_set_trusted(conn, true);
    conn_set_in_limit(conn, IN_LIMIT);
    conn_set_reading(conn, true);
    role_heard();
    send_ack();
    if (!conn_is_open(conn))
        client_free(client);
    else if (conn_peek(conn).len)
        apply_input(); /* bytes that arrived with the reply to PSYNC */
}

void apply_say(int argc, const struct slice *argv) {
    if (!apply.client || !conn_is_open(apply.client->conn)) return;
    request_write(&apply.client->conn->out, argc, argv);
    client_flush_later(apply.client);
}

void apply_stop(void) {
    if (apply.client) client_free(apply.client);
}

void apply_cron(void) {
    if (!apply.client) return;
    if (role->position.known)
        send_ack();
    else if (!dispatch_running())
        give_up_other_data();
}

/* Executes the input that arrived while a command ran. After GETACK, acknowledges as soon as the append-only file is
 * written, and again when it is on disk. */
void apply_before_wait(void) {
    if (apply.client && apply.waits && !dispatch_running()) {
        role_heard(); /* the cached clock did not advance while the command ran */
        apply_input();
    }
    if (!apply.client || !conn_is_open(apply.client->conn)) return;
    if (apply.ack_now && safe_offset() > apply.acked) send_ack();
    if (!apply.ack_due) return;
    int64_t on_disk = fsynced_offset();
    if (on_disk > apply.fsynced_sent) send_ack();
    if (!apply.ack_now && (on_disk < 0 || on_disk >= role->position.offset)) apply.ack_due = false;
}
