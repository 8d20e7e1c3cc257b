/* primary.c: sends the stream to replicas, takes acknowledgements, and does periodic work (PING, timeouts, freeing the
 * backlog). See replicas.h and repl.h.
 *
 * Each turn of the loop sends the stream to all replicas before it waits. A reader writes to its connection until
 * enough bytes are queued there (replica_is_full()), and continues when they are sent. */
#include "repl/primary/primary.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/must.h"
#include "repl/feed.h"
#include "repl/history.h"
#include "repl/primary/failover.h"
#include "repl/primary/full_sync.h"
#include "repl/primary/main_channels.h"
#include "repl/primary/wait.h"
#include "repl/quorum/quorum.h"
#include "repl/settings.h"
#include "server/process/child.h"
#include "server/role.h"
#include "server/server_events.h"
#include "server/stats/stats.h"
#include <stdio.h>
#include <string.h>

enum { SEND_STEP = 256 * 1024, SEND_TURN = 8 * 1024 * 1024, CRON_MS = 1000 };

static int64_t left_ms; /* when the last replica left, or the server started */
static struct event_timer again;

/* --- Sending --- */

static uint64_t work_left(struct event_timer *timer) {
    return 0; /* the timer only causes another turn of the loop, which calls primary_before_wait() */
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

static void primary_sent(struct replica *replica) {
    if (replica->state == REPLICA_FILE_TRANSFER || replica->state == REPLICA_TRANSFER)
        full_sync_send(replica);
    else
        replica_send_stream(replica);
}

static void primary_left(struct replica *replica) {
    left_ms = clock_mono_ms();
    quorum_replica_left(replica);
    full_sync_forget(replica);
}

static const struct replica_events events = {.left = primary_left, .drained = primary_sent};

static void primary_before_wait(void) {
    if (__builtin_expect(repl_stream_excess, 0)) {
        repl_stream_trim();
        turn_again();
    }
    if (main_channels_awaited()) main_channels_limit();
    if (__builtin_expect(!replicas.len, 1)) return;
    list_each_entry(&replicas, struct replica, link, replica) {
        if (replica->reader.block)
            replica_send_stream(replica); /* also checks the output limit, and may free the replica */
        else if (replica->announced.rdb_channel)
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
    if (replica->announced.rdb_only) {
        replica->state = REPLICA_DONE;
        log_notice("RDB transfer completed, rdb only replica (%s) should be disconnected asap", replica_name(replica));
        client_free_after_reply(replica->client);
        return;
    }
    replica->state = REPLICA_ONLINE;
    server_event(EVENT_REPLICA_CHANGE, 0, NULL);
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
        server_event(EVENT_REPLICA_CHANGE, 0, NULL);
        log_notice("Synchronization with replica %s succeeded", replica_name(replica));
    }
    if (replica->awaits_ack && replica->state == REPLICA_ONLINE) {
        replica->awaits_ack = false;
        begin_stream(replica);
    }
    quorum_replica_acked(replica);
    repl_wait_acknowledged();
}

/* --- Periodic work --- */

static void close_silent(int64_t now) {
    int64_t limit = (int64_t)repl_settings.timeout * 1000;
    list_each_entry(&replicas, struct replica, link, replica) {
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
    if (replicas.len || !repl_settings.backlog_ttl || !repl_stream_has_backlog() || role_is_replica() || quorum_on)
        return;
    if ((now - left_ms) / 1000 <= repl_settings.backlog_ttl) return;
    repl_history_new();
    repl_stream_free_backlog();
    log_notice("Replication backlog freed after %lld seconds without connected replicas.",
               (long long)repl_settings.backlog_ttl);
}

static void primary_cron(void) {
    static int64_t next_ms;
    static int64_t seconds;
    int64_t now = clock_mono_ms();
    if (now < next_ms) return;
    next_ms = now + CRON_MS;
    /* Counts also while there are no replicas, so that a reconnect does not shift the times of PING. */
    bool ping_due = seconds++ % repl_settings.ping_period == 0;
    if (replicas.len && ping_due && may_ping()) repl_feed_ping();
    /* Newlines, so that a waiting replica does not run into repl-timeout. */
    list_each_entry(&replicas, struct replica, link, replica) {
        if (replica->state == REPLICA_WAITS || replica->state == REPLICA_FILE) replica_write(replica, SLICE("\n"));
    }
    close_silent(now);
    free_idle_backlog(now);
    full_sync_cron();
}

static void primary_start(void) {
    static struct role_listener listener = {.changed = repl_feed_update};
    replica_events = &events;
    role_listen(&listener);
    repl_history_start();
    left_ms = clock_mono_ms();
    full_sync_start();
}

/* SHUTDOWN waits until all replicas have acknowledged the whole stream, so that no write is lost if one takes over. */
static bool is_in_sync(const struct replica *replica) {
    return !replica_is_online(replica) || !replica->psync || replica->acked >= role->position.offset;
}

static bool primary_ready_to_stop(void) {
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
    list_each_entry(&replicas, const struct replica, link, replica) {
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

static bool primary_prepare_shutdown(int flags) {
    if (child_kind() == CHILD_REPLICATION) child_kill_wait();
    return true;
}

/* FLUSHALL: the snapshot is obsolete, and a new one, of an empty data set, is faster than the rest of it. */
static void primary_flushed_all(void) {
    if (child_kind() == CHILD_REPLICATION) child_kill();
}

static void primary_stop(void) {
    list_each(&replicas, link) replica_send_stream(replica_of(link));
}

const struct server_part primary_part = {.name = "replicas",
                                         .ready_to_stop = primary_ready_to_stop,
                                         .shutdown_begins = log_lagging,
                                         .prepare_shutdown = primary_prepare_shutdown,
                                         .start = primary_start,
                                         .cron = primary_cron,
                                         .before_wait = primary_before_wait,
                                         .flushed_all = primary_flushed_all,
                                         .in_call = true,
                                         .stop = primary_stop};
