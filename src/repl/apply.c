/* apply.c: follows the stream of the primary: executes its commands, passes its bytes on, and acknowledges them.
 *
 * The stream's client (CLIENT_PRIMARY) has the link's connection. Requests are executed from where they were received,
 * large arguments in the blobs they were received into. The client gets no replies; the server logs errors, because the
 * data may differ from the primary's after one.
 *
 * The bytes of each request go unchanged to the stream of this server (repl_stream.h), for its own replicas and its
 * backlog, once the request has been executed. That advances role->offset. A transaction counts as executed when its
 * EXEC is: until then its bytes are kept here, so a link that breaks within a transaction resumes before it.
 *
 * When the connection ends, the client is freed, and role->offset is where the next PSYNC continues. */
#include "durability/aof.h"
#include "durability/snapshot.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include "lib/ticks.h"
#include "repl/repl_stream.h"
#include "repl/replica.h"
#include "server/clients/client.h"
#include "server/clients/transactions.h"
#include "server/clients/user.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/role.h"
#include "server/stats/errorstats.h"
#include "server/stats/stats.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN_LIMIT = 64 * 1024 * 1024, LOG_INTERVAL_US = 10 * 1000 * 1000 };
static const struct request_limits limits = {.multibulk_max = 1024 * 1024 * 1024, .bulk_max = INT64_MAX / 4};

/* Bytes that were received and belong to a request, or to a transaction, that is not executed yet. */
struct kept_blob {
    size_t at; /* place in `bytes` before which the blob's bytes go */
    struct blob *blob;
};

static struct {
    struct client *client; /* NULL: the stream is not followed */
    int db;
    bool running;     /* apply_input() is on the stack */
    uint64_t counted; /* bytes of the connection in replication_stats */
    size_t used;      /* bytes of the input that were executed and are not consumed */
    struct memory_output kept;
    struct kept_blob *blobs;
    size_t blob_count, blob_capacity, blob_bytes;
    bool ack_due;         /* the primary asked for an acknowledgement */
    uint64_t asked_us;    /* when it last did; 0: never */
    int64_t acked;        /* last offset acknowledged */
    int64_t fsynced_sent; /* last offset acknowledged as being on disk */
} apply;

/* What is kept */

static size_t kept_len(void) {
    return memory_output_slice(&apply.kept).len + apply.blob_bytes;
}

static void keep(struct slice bytes) {
    output_write(&apply.kept.out, bytes);
}

static void keep_blob(struct blob *blob) {
    if (apply.blob_count == apply.blob_capacity) {
        apply.blob_capacity = apply.blob_capacity ? apply.blob_capacity * 2 : 8;
        apply.blobs = mem_realloc(apply.blobs, apply.blob_capacity * sizeof *apply.blobs);
    }
    apply.blobs[apply.blob_count++] = (struct kept_blob){memory_output_slice(&apply.kept).len, blob_hold(blob)};
    apply.blob_bytes += blob->len;
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
        if (kept->at > done) repl_stream_write((struct slice){bytes.data + done, kept->at - done});
        done = kept->at;
        repl_stream_write_blob(kept->blob);
    }
    if (bytes.len > done) repl_stream_write((struct slice){bytes.data + done, bytes.len - done});
    kept_clear();
}

/* Acknowledgements
 *
 * The primary gets one each second and when it asks (GETACK), because a client waits (WAIT). For EAGER_US after it has
 * asked, the replica acknowledges without being asked again: the next WAIT often finds the acknowledgement there. */
enum { EAGER_US = 1000 * 1000 };

/* The offset up to which the stream's commands are in the append-only file on the disk; -1: the file is off. The file
 * counts commands, the stream bytes: the offset at which the file has some number of commands is noted, and counts once
 * all of these are on the disk. */
static int64_t fsynced_offset(void) {
    static uint64_t noted_command;
    static int64_t noted_offset, fsynced;
    struct aof_progress file;
    if (!aof_progress(&file)) return noted_offset = fsynced = -1;
    if (file.synced >= file.appended) return noted_offset = fsynced = role->offset;
    if (file.synced >= noted_command) {
        fsynced = noted_offset;
        noted_command = file.appended;
        noted_offset = role->offset;
    }
    return fsynced < 0 ? 0 : fsynced;
}

static void send_ack(void) {
    char offset[24], fsynced[24];
    struct client *client = apply.client;
    int64_t on_disk = fsynced_offset();
    snprintf(offset, sizeof offset, "%lld", (long long)role->offset);
    snprintf(fsynced, sizeof fsynced, "%lld", (long long)on_disk);
    struct slice words[] = {SLICE("REPLCONF"), SLICE("ACK"), slice_of(offset), SLICE("FACK"), slice_of(fsynced)};
    request_write(&client->conn->out, on_disk >= 0 ? 5 : 3, words);
    apply.fsynced_sent = on_disk;
    apply.acked = role->offset;
    client_flush_later(client);
}

/* Errors */

static bool panics(void) {
    return replica_settings.error_behavior == ERRORS_PANIC ||
           replica_settings.error_behavior == ERRORS_PANIC_ON_REPLICAS;
}

static void error_reply(struct reply *reply, struct slice text) {
    const struct client *client = container_of(reply, struct client, reply);
    const struct command *command = client->current;
    errorstats_count(reply, text);
    role_sync.errors++;
    log_warning("== CRITICAL == This replica is sending an error to its primary: '-%.*s' after processing the command "
                "'%s'",
                text.len < 256 ? (int)text.len : 256, text.data, command ? command->full_name : "?");
    if (repl_stream_backlog_len() > 0)
        log_warning("Latest backlog is: the %lld bytes before offset %lld", (long long)repl_stream_backlog_len(),
                    (long long)role->offset);
    if (!panics()) return;
    log_warning("This replica panicked sending an error to its primary after processing a command from its replication "
                "stream");
    abort();
}

/* Executing */

static bool is_getack(const struct request_reader *reader) {
    return reader->argc == 3 && slice_is(reader->argv[0], "replconf") && slice_is(reader->argv[1], "getack");
}

/* A request was executed: its bytes are `raw`, behind what is kept of it. */
static void executed(struct slice raw) {
    struct client *client = apply.client;
    if (transaction_queued(client) >= 0) { /* counts when EXEC is executed */
        keep(raw);
        return;
    }
    if (kept_len()) {
        keep(raw);
        kept_pass_on();
    } else {
        repl_stream_write(raw);
    }
    apply.db = db_id(client->db);
}

/* False: a filter holds the request back. */
static bool execute(void) {
    struct request_reader *reader = &apply.client->reader;
    if (reader->argc == 0) return true;
    if (is_getack(reader)) {
        repl_stream_written(); /* the offset includes the requests before it that came in the same bytes */
        send_ack();
        apply.ack_due = true;
        apply.asked_us = clock_mono();
        return true;
    }
    return dispatch_request(apply.client, reader->argc, reader->argv);
}

static void receive_large(struct slice input) {
    struct request_reader *reader = &apply.client->reader;
    struct connection *conn = apply.client->conn;
    keep((struct slice){input.data, reader->size - reader->large_have});
    keep_blob(reader->large);
    conn_consume(conn, apply.used + reader->size);
    apply.used = 0;
    conn_receive_into(conn, reader->large->data + reader->large_have, reader->large->len - reader->large_have);
}

/* A replica that went on without its disk would lose, at its next start, changes that its primary counts on. */
static void check_disk(void) {
    static uint64_t logged_us;
    if (!replica_settings.ignore_disk_errors) {
        log_warning("Replica was unable to write command to disk.");
        exit(1);
    }
    if (logged_us && clock_mono() - logged_us < LOG_INTERVAL_US) return;
    logged_us = clock_mono();
    log_warning("Replica is applying a command it is unable to write to disk.");
}

static void apply_input(void) {
    struct client *client = apply.client;
    if (apply.running || client->holds || client->conn->sink_len) return;
    if (aof_refuses_writes() || snapshot_refuses_writes()) check_disk();
    apply.running = true;
    dispatch_ticks = ticks_now();
    client->active_ms = clock_ms();
    for (;;) {
        struct connection *conn = client->conn;
        struct slice input = {conn->in + apply.used, conn->in_len - apply.used};
        if (!input.len) break;
        enum request_status status = request_read(&client->reader, input, &limits);
        if (status == REQUEST_LARGE) {
            receive_large(input);
            if (conn->sink_len) break;
            continue;
        }
        if (status == REQUEST_FAILED) {
            log_warning("Protocol error from the primary: %s", client->reader.error);
            client_free(client);
            break;
        }
        if (status == REQUEST_PARTIAL || !execute()) break;
        if (client->flags & CLIENT_CLOSING) break;
        executed((struct slice){conn->in + apply.used, client->reader.size});
        apply.used += client->reader.size;
        request_done(&client->reader);
        if (client->holds) break;
    }
    apply.running = false;
    if (client->flags & CLIENT_CLOSING) return;
    if (apply.used) conn_consume(client->conn, apply.used);
    apply.used = 0;
    role_sync.read_ahead = (int64_t)kept_len();
    repl_stream_written();
    if (apply.asked_us && clock_mono() - apply.asked_us < EAGER_US && apply.acked != role->offset) send_ack();
}

/* The request that was held back is parsed again: the input may have moved. A request with large arguments, parts of
 * which have left the input, stays in the reader. */
static void resume(struct client *client) {
    struct request_reader *reader = &client->reader;
    if (reader->size && !reader->larges_count)
        request_done(reader);
    else if (reader->size)
        request_moved(reader, conn_peek(client->conn));
    apply_input();
}

static void readable(struct connection *conn) {
    replication_stats.bytes_in += conn->bytes_in - apply.counted;
    apply.counted = conn->bytes_in;
    role_heard();
    apply_input();
}

bool apply_frees_later;
static void free_closed(struct event_deferred *deferred) {
    (void)deferred;
    if (apply.client && !conn_is_open(apply.client->conn)) client_free(apply.client);
}

static void closed(struct connection *conn) {
    static struct event_deferred later;
    if (conn->error) log_verbose("Error on the connection of the primary: %s", conn_error_text(conn));
    if (apply_frees_later)
        event_loop_defer(server.loop, &later, free_closed);
    else
        client_free(apply.client);
}

static const struct connection_events events = {.readable = readable, .closed = closed};

/* Life */

static void freed(struct client *client) {
    if (client != apply.client) return;
    log_notice("Connection with primary lost.");
    log_notice("Caching the disconnected primary state.");
    repl_stream_written();
    kept_clear();
    apply.client = NULL;
    role_sync.read_ahead = 0;
    replica_stream_ended(apply.db);
}
static struct client_watcher watcher = {.freed = freed};

static struct user superuser = {.name = "(superuser)", .flags = USER_ENABLED | USER_ALL_RIGHTS};

void apply_start(struct connection *conn, int db) {
    struct client *client = client_new(conn);
    if (!list_is_linked(&watcher.link)) {
        clients_watch(&watcher);
        memory_output_init(&apply.kept);
    }
    apply.client = client;
    apply.db = db;
    apply.used = 0;
    apply.counted = conn->bytes_in;
    client->db = keyspace_db(server.keyspace, db);
    client->user = &superuser;
    client->authenticated = true;
    client->flags |= CLIENT_PRIMARY | CLIENT_REPLY_OFF;
    client->reply.protocol = 2;
    client_retarget(client);
    client->reply.error_hook = error_reply;
    client->resume = resume;
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
        apply_input(); /* bytes that came with the answer to PSYNC */
}

void apply_stop(void) {
    if (apply.client) client_free(apply.client);
}

bool apply_is_running(void) {
    return apply.client != NULL;
}

int apply_db(void) {
    return apply.db;
}

void apply_cron(void) {
    if (apply.client) send_ack();
}

/* The primary that waits for acknowledgements gets one as soon as the file is on disk. */
void apply_before_wait(void) {
    if (!apply.client || !apply.ack_due) return;
    int64_t on_disk = fsynced_offset();
    if (on_disk < 0 || on_disk >= role->offset) apply.ack_due = false;
    if (on_disk > apply.fsynced_sent) send_ack();
}
