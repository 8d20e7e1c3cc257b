/* primary.c: the replicas of this server: sends the stream, takes acknowledgements, and does periodic work (PING,
 * timeouts, freeing the backlog). See primary.h and repl.h.
 *
 * Each turn of the loop sends the stream to all replicas before it waits. A reader writes to its connection until
 * REPLICA_SEND_AHEAD bytes are queued there, and continues when they are sent. Bytes that slow replicas have not read
 * are in memory once, in the shared stream; client-output-buffer-limit replica bounds a replica's distance to its end.
 */
#include "repl/primary.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "repl/repl_feed.h"
#include "repl/sync/sync.h"
#include "server/command/dispatch.h"
#include "server/process/child.h"
#include "server/role.h"
#include "server/stats/errorstats.h"
#include "server/stats/stats.h"
#include <stdio.h>
#include <string.h>

enum { SEND_STEP = 256 * 1024, SEND_TURN = 8 * 1024 * 1024, CRON_MS = 1000 };
enum { REPLICA_SEND_AHEAD = 1024 * 1024 }; /* bytes in a connection's queue beyond which nothing is added */

struct list replicas = LIST_INIT(replicas);
static int64_t alone_since_ms; /* since when there are no replicas; 0: there are some */
static struct event_timer again;

/* --- State of a client --- */

static void replica_freed(struct client *client);
static void replica_reset(struct client *client);
static void replica_drained(struct client *client);
static void replica_requested(struct client *client);
static void replica_report(const struct client *client, struct client_report *report);
static struct client_listener client_listener = {.freed = replica_freed,
                                                 .reset = replica_reset,
                                                 .drained = replica_drained,
                                                 .requested = replica_requested,
                                                 .report = replica_report};

struct replica *replica_find(const struct client *client) {
    return client_state(client, &client_listener);
}

struct replica *replica_get(struct client *client) {
    struct replica *replica = replica_find(client);
    if (replica) return replica;
    replica = mem_calloc(1, sizeof *replica);
    replica->client = client;
    replica->file = -1;
    if (client->conn) conn_address(client->conn, true, &replica->peer);
    client_set_state(client, &client_listener, replica);
    return replica;
}

static void replica_free(struct replica *replica) {
    must(!list_is_linked(&replica->link) && !replica->reader.block);
    client_set_state(replica->client, &client_listener, NULL);
    mem_free(replica->address);
    sync_replica_freed(replica);
    mem_free(replica);
}

/* A replica would read replies as part of the stream. They are discarded, and a replica that caused one is
 * disconnected. */
static void replica_requested(struct client *client) {
    struct replica *replica = replica_find(client);
    if (!list_is_linked(&replica->link) || replica->replies.out.pos == replica->replies.scratch) return;
    if (client->flags & (CLIENT_CLOSING | CLIENT_CLOSE_AFTER_REPLY)) return;
    log_warning("Replica generated a reply to command '%s', disconnecting it: %s",
                client->current ? client->current->full_name : "<unknown>", client_log_text(client));
    replica_close(replica);
}

void repl_log_error(const char *what, struct slice text, const struct command *command) {
    enum { SHOWN_MAX = 256 };
    bool general = text.len > 4 && memcmp(text.data, "ERR ", 4) == 0;
    if (general) text = (struct slice){text.data + 4, text.len - 4};
    log_warning("== CRITICAL == %s: '%s%.*s' after processing the command '%s'", what, general ? "" : "-",
                text.len < SHOWN_MAX ? (int)text.len : SHOWN_MAX, text.data,
                command ? command->full_name : "<unknown>");
}

static void replica_error(struct reply *reply, struct slice text) {
    errorstats_count(reply, text);
    repl_log_error("This primary is sending an error to its replica", text,
                   container_of(reply, struct client, reply)->current);
}

/* Refuses commands on data from a replica. */
static enum filter_answer data_ask(struct client *client, const struct command *command, int argc,
                                   const struct slice *argv, const char **error) {
    if (!(client->flags & CLIENT_REPLICA)) return FILTER_PASS;
    *error = "ERR Replica can't interact with the keyspace";
    return FILTER_REFUSE;
}
static struct command_filter data_filter = {
    .order = FILTER_MONITOR, .flags = CMD_READONLY | CMD_WRITE, .ask = data_ask};

void replica_join(struct replica *replica) {
    replica->client->flags |= CLIENT_REPLICA;
    null_output_init(&replica->replies);
    replica->client->reply.out = &replica->replies.out;
    replica->client->reply.error_hook = replica_error;
    replica->acked_ms = replica->progress_ms = clock_mono_ms();
    if (!replicas.len) dispatch_add_filter(&data_filter);
    list_append(&replicas, &replica->link);
    alone_since_ms = 0;
    if (repl_settings.disable_nodelay) conn_set_nodelay(replica->client->conn, false);
}

static void replica_leave(struct replica *replica) {
    if (!list_is_linked(&replica->link)) return;
    log_notice(replica->rdb_channel ? "Dual channel replication: Replica %s rdb channel disconnected."
                                    : "Connection with replica %s lost.",
               replica_name(replica));
    list_remove(&replicas, &replica->link);
    sync_replica_left(replica);
    repl_stream_detach(&replica->reader);
    full_sync_forget(replica);
    if (replicas.len) return;
    dispatch_remove_filter(&data_filter);
    alone_since_ms = clock_mono_ms();
}

static void replica_freed(struct client *client) {
    struct replica *replica = replica_find(client);
    if (!replica) return;
    replica_leave(replica);
    replica_free(replica);
}

static void replica_reset(struct client *client) {
    struct replica *replica = replica_find(client);
    if (replica && !list_is_linked(&replica->link)) replica_free(replica);
}

static void replica_report(const struct client *client, struct client_report *report) {
    const struct replica *replica = replica_find(client);
    report->memory += mem_size(replica);
    /* The backlog keeps this much in any case: closing the client would free nothing. */
    report->output_least = (size_t)repl_settings.backlog_size;
    bool copies = replica->state == REPLICA_TRANSFER || replica->state == REPLICA_FILE_TRANSFER;
    if (copies && client->conn) report->output_least += conn_pending(client->conn); /* the limit is on the stream */
    if (replica->reader.block) report->held_output += repl_stream_reader_lag(&replica->reader);
    report->held_output += full_sync_kept_for(replica);
}

void replica_close(struct replica *replica) {
    client_free(replica->client);
}

void repl_disconnect_replicas(const char *reason) {
    if (replicas.len) log_notice("Disconnecting all replicas: %s", reason);
    list_each(&replicas, link) replica_close(replica_of(link));
    full_sync_drop_main_channels();
}

/* --- Commands of our own servers --- */

int64_t repl_own_commands_at = -1;

static bool is_own(const struct replica *replica) {
    return replica->capabilities & CAPA_SLOT_CHUNKS;
}

bool repl_replicas_are_own(void) {
    list_each(&replicas, link) {
        if (!is_own(replica_of(link))) return false;
    }
    return !full_sync_main_channels_awaited();
}

void repl_note_own_command(void) {
    repl_stream_written();
    /* A primary has written it: its last byte. A replica has not: its first. */
    repl_own_commands_at = role->position.offset - !role_is_replica();
    if (!role_is_replica() || repl_replicas_are_own()) return;
    full_sync_drop_main_channels();
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (is_own(replica)) continue;
        log_notice("Closing replica %s, which does not know a command of the primary", replica_name(replica));
        replica_close(replica);
    }
}

/* --- Names --- */

struct slice replica_address(const struct replica *replica) {
    return slice_of(replica->address ? replica->address : replica->peer.host);
}

const char *replica_name(const struct replica *replica) {
    static char name[REPLICA_NAME_MAX];
    struct slice address = replica_address(replica);
    bool bare = memchr(address.data, ':', address.len) == NULL;
    if (replica->port)
        snprintf(name, sizeof name, bare ? "%.*s:%d" : "[%.*s]:%d", (int)address.len, address.data, replica->port);
    else if (address.len)
        snprintf(name, sizeof name, bare ? "%.*s:<unknown-replica-port>" : "[%.*s]:<unknown-replica-port>",
                 (int)address.len, address.data);
    else
        snprintf(name, sizeof name, "client id #%llu", (unsigned long long)replica->client->id);
    return name;
}

const char *replica_state_name(const struct replica *replica) {
    static const char *const names[] = {
        [REPLICA_REFUSED] = "wait_bgsave", [REPLICA_HANDSHAKE] = "handshake",      [REPLICA_WAITS] = "wait_bgsave",
        [REPLICA_FILE] = "wait_bgsave",    [REPLICA_FILE_TRANSFER] = "send_bulk",  [REPLICA_TRANSFER] = "wait_bgsave",
        [REPLICA_PULL] = "send_bulk",      [REPLICA_MAIN_CHANNEL] = "bg_transfer", [REPLICA_ONLINE] = "online",
        [REPLICA_DONE] = "rdb_transmitted"};
    return names[replica->state];
}

const char *replica_type_name(const struct replica *replica) {
    if (replica->rdb_channel) return "rdb-channel";
    return replica->state == REPLICA_MAIN_CHANNEL ? "main-channel" : "replica";
}

/* --- Sending --- */

void replica_write(struct replica *replica, struct slice bytes) {
    struct connection *conn = replica->client->conn;
    if (!conn) return;
    output_write(&conn->out, bytes);
    conn_flush(conn);
    replication_stats.bytes_out += bytes.len;
}

void replica_pass(struct replica *replica, struct blob *blob) {
    struct connection *conn = replica->client->conn;
    if (!conn || !conn_is_open(conn)) return;
    output_write_blob(&conn->out, blob);
    conn->wants_drained = true;
    conn_flush(conn);
    replication_stats.bytes_out += blob->len;
}

bool replica_is_full(const struct replica *replica) {
    const struct connection *conn = replica->client->conn;
    return conn && conn_pending(conn) >= (size_t)REPLICA_SEND_AHEAD;
}

static uint64_t work_left(struct event_timer *timer) {
    return 0; /* the timer only causes another turn of the loop, which calls before_wait() */
}
static void turn_again(void) {
    if (!again.heap_index) event_timer_set(server.loop, &again, 0, work_left);
}

void replica_send_stream(struct replica *replica) {
    struct client *client = replica->client;
    struct connection *conn = client->conn;
    bool sends = replica->state == REPLICA_ONLINE || replica->state == REPLICA_MAIN_CHANNEL;
    if (!sends || replica->awaits_ack || !replica->reader.block || !conn || client->flags & CLIENT_CLOSE_AFTER_REPLY)
        return;
    size_t sent = 0, step;
    while (conn_is_open(conn) && !replica_is_full(replica) && sent < SEND_TURN) {
        step = repl_stream_read(&replica->reader, &conn->out, SEND_STEP);
        if (!step) break;
        conn->wants_drained = true;
        conn_flush(conn);
        sent += step;
    }
    replication_stats.bytes_out += sent;
    if (sent >= SEND_TURN) turn_again();
    if (sent || repl_stream_reader_lag(&replica->reader)) client_check_output(client);
}

static void replica_drained(struct client *client) {
    struct replica *replica = replica_find(client);
    if (!replica || !list_is_linked(&replica->link)) return;
    if (replica->state == REPLICA_FILE_TRANSFER || replica->state == REPLICA_TRANSFER)
        full_sync_send(replica);
    else
        replica_send_stream(replica);
}

static void before_wait(void) {
    if (__builtin_expect(repl_stream_excess, 0)) {
        repl_stream_trim();
        turn_again();
    }
    if (full_sync_main_channels_awaited()) full_sync_limit_kept();
    if (__builtin_expect(!replicas.len, 1)) return;
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (replica->reader.block)
            replica_send_stream(replica); /* also checks the output limit, and may free the replica */
        else if (replica->rdb_channel)
            client_check_output(replica->client);
    }
}

static bool may_ping(void) {
    return !role_is_replica() && !repl_failover_running() && !repl_offset_is_final();
}

/* A replica at offset 0 looks like one without data: CLUSTER SLOTS leaves it out, and its election waits. */
static void begin_stream(struct replica *replica) {
    if (role->position.offset == 0 && may_ping()) repl_feed_ping();
    replica_send_stream(replica);
}

void replica_put_online(struct replica *replica, bool await_ack) {
    if (replica->rdb_only) {
        replica->state = REPLICA_DONE;
        log_notice("RDB transfer completed, rdb only replica (%s) should be disconnected asap", replica_name(replica));
        client_free_after_reply(replica->client);
        return;
    }
    replica->state = REPLICA_ONLINE;
    replica->acked_ms = clock_mono_ms();
    replica->awaits_ack = await_ack && !replica->has_acked;
    log_notice("Synchronization with replica %s succeeded", replica_name(replica));
    if (replica->awaits_ack)
        replica_send_stream(replica);
    else
        begin_stream(replica);
}

void replica_acknowledged(struct replica *replica, int64_t offset, int64_t fsynced) {
    if (offset > replica->acked) replica->acked = offset;
    if (fsynced > replica->fsynced) replica->fsynced = fsynced;
    replica->acked_ms = clock_mono_ms();
    replica->has_acked = true;
    if (replica->state == REPLICA_MAIN_CHANNEL) {
        replica->state = REPLICA_ONLINE;
        log_notice("Synchronization with replica %s succeeded", replica_name(replica));
    }
    if (replica->awaits_ack && replica->state == REPLICA_ONLINE) {
        replica->awaits_ack = false;
        begin_stream(replica);
    }
    sync_replica_acked(replica);
    repl_wait_acknowledged();
}

size_t repl_replicas_online(void) {
    size_t count = 0;
    list_each(&replicas, link) count += replica_is_online(replica_of(link));
    return count;
}

/* --- Periodic work --- */

/* Newlines, so that a waiting replica does not run into repl-timeout. */
static void keep_alive(void) {
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (replica->state == REPLICA_WAITS || replica->state == REPLICA_FILE) replica_write(replica, SLICE("\n"));
    }
}

static void close_silent(int64_t now) {
    int64_t limit = (int64_t)repl_settings.timeout * 1000;
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        const struct connection *conn = replica->client->conn;
        if (conn->bytes_out != replica->progress_bytes || !conn_pending(conn)) {
            replica->progress_bytes = conn->bytes_out;
            replica->progress_ms = now;
        }
        if (conn->bytes_in != replica->heard_bytes) {
            replica->heard_bytes = conn->bytes_in;
            replica->heard_ms = now;
        }
        bool streams = replica->state == REPLICA_ONLINE && replica->psync;
        bool transfers = replica->state == REPLICA_TRANSFER || replica->state == REPLICA_FILE_TRANSFER ||
                         replica->state == REPLICA_DONE;
        if (streams && now - replica->acked_ms > limit && now - replica->heard_ms > limit) {
            log_warning("Disconnecting timedout replica (streaming sync): %s", replica_name(replica));
            replica_close(replica);
        } else if (transfers && now - replica->progress_ms > limit) {
            log_warning("Disconnecting timedout replica (full sync): %s", replica_name(replica));
            replica_close(replica);
        }
    }
}

/* Without replicas the backlog only costs memory, and a copy of each write. Later writes are in no stream, so a new
 * history begins: a replica that reconnects must not continue the old one. */
static void free_idle_backlog(int64_t now) {
    if (!alone_since_ms || !repl_settings.backlog_ttl || !repl_stream_has_backlog() || role_is_replica() || sync_on)
        return;
    if ((now - alone_since_ms) / 1000 <= repl_settings.backlog_ttl) return;
    repl_history_new();
    repl_stream_free_backlog();
    log_notice("Replication backlog freed after %lld seconds without connected replicas.",
               (long long)repl_settings.backlog_ttl);
}

static void cron(void) {
    static int64_t next_ms;
    static int64_t seconds;
    int64_t now = clock_mono_ms();
    if (now < next_ms) return;
    next_ms = now + CRON_MS;
    /* Counts also while there are no replicas, so that a reconnect does not shift the times of PING. */
    bool ping_due = seconds++ % repl_settings.ping_period == 0;
    if (replicas.len && ping_due && may_ping()) repl_feed_ping();
    keep_alive();
    close_silent(now);
    free_idle_backlog(now);
    full_sync_cron();
}

static void start(void) {
    static struct role_listener listener = {.changed = repl_feed_update};
    role_listen(&listener);
    repl_history_start();
    alone_since_ms = clock_mono_ms();
    full_sync_start();
    repl_wait_start();
    repl_redirect_start();
    repl_info_start();
}

/* SHUTDOWN waits until all replicas have acknowledged the whole stream, so that no write is lost if one takes over. */
static bool is_in_sync(const struct replica *replica) {
    return !replica_is_online(replica) || !replica->psync || replica->acked >= role->position.offset;
}

static bool ready_to_stop(void) {
    static int64_t asked_at = -1;
    if (role_is_replica()) return true;
    bool ready = true;
    list_each(&replicas, link) ready &= is_in_sync(replica_of(link));
    if (!ready && role->position.offset != asked_at) {
        repl_feed_getack();
        asked_at = role->position.offset;
    }
    return ready;
}

/* Before a cluster hands the role over, which is one more command. */
static void log_lagging(void) {
    size_t count = 0, in_sync = 0;
    if (role_is_replica()) return;
    list_each(&replicas, link) {
        const struct replica *replica = replica_of(link);
        if (!replica_is_online(replica)) continue;
        count++;
        in_sync += is_in_sync(replica);
        if (is_in_sync(replica)) continue;
        log_notice("Lagging replica %s reported offset %lld behind master, lag=%lld, state=%s.", replica_name(replica),
                   (long long)(role->position.offset - replica->acked),
                   (long long)(clock_mono_ms() - replica->acked_ms) / 1000, replica_state_name(replica));
    }
    if (count) log_notice("%zu of %zu replicas are in sync when shutting down.", in_sync, count);
}

static bool prepare_shutdown(int flags) {
    if (child_kind() == CHILD_REPLICATION) child_kill_wait();
    return true;
}

/* FLUSHALL: the snapshot is obsolete, and a new one, of an empty data set, is faster than the rest of it. */
static void flushed_all(void) {
    if (child_kind() == CHILD_REPLICATION) child_kill();
}

static void stop(void) {
    list_each(&replicas, link) replica_send_stream(replica_of(link));
}

const struct server_part repl_primary_part = {.name = "replicas",
                                              .ready_to_stop = ready_to_stop,
                                              .shutdown_begins = log_lagging,
                                              .prepare_shutdown = prepare_shutdown,
                                              .start = start,
                                              .cron = cron,
                                              .before_wait = before_wait,
                                              .flushed_all = flushed_all,
                                              .in_call = true,
                                              .stop = stop};
