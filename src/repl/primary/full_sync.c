/* full_sync.c: the full synchronization on the primary: which replicas share a snapshot, when it starts, and how they
 * get it: from a file (full_sync_file.h), as a stream (full_sync_stream.h) or by RDMA READ (full_sync_pull.h).
 *
 * On two channels (dual-channel-replication-enabled) the replica opens a second connection, its RDB channel. The
 * primary sends the offset of the snapshot there ("$ENDOFF:<offset> <id> <db> <client>"), and then the snapshot as a
 * stream. While it is still being sent, the replica's main channel asks for the stream from that offset on by
 * PSYNC; the primary keeps the stream until then (main_channels.h). */
#include "repl/primary/full_sync.h"
#include "formats/rdb.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "persistence/snapshot.h"
#include "repl/feed.h"
#include "repl/primary/full_sync_stream.h"
#include "repl/primary/full_sync_file.h"
#include "repl/primary/full_sync_pull.h"
#include "repl/primary/full_sync_slow.h"
#include "repl/primary/main_channels.h"
#include "repl/pull/primary.h"
#include "repl/settings.h"
#include "server/command/dispatch.h"
#include "server/process/child.h"
#include "server/role.h"
#include <stdio.h>
#include <string.h>

enum { VERSION_9 = 0x090000 };
enum { REFUSAL_DELAY_MS = 1000, REFUSALS_KNOWN = 16 };

/* --- Announcing the position --- */

void full_sync_announce(struct replica *replica) {
    char line[REPL_ID_LEN + 48];
    int len;
    replica->acked = 0;
    replica->has_acked = false;
    if (replica->announced.rdb_channel) {
        len = snprintf(line, sizeof line, "$ENDOFF:%lld %s %d %llu\r\n", (long long)role->position.offset,
                       role->position.id, role->position.db, (unsigned long long)replica->client->id);
        log_notice("Dual channel replication: Sending to replica %s RDB end offset %lld and client-id %llu",
                   replica_name(replica), (long long)role->position.offset, (unsigned long long)replica->client->id);
        main_channel_await(replica);
        replica_write(replica, (struct slice){line, (size_t)len});
        return;
    }
    if (!replica->announced.rdb_only) repl_stream_attach_end(&replica->reader);
    if (!replica->psync) return; /* the reply to SYNC is the file itself */
    len = snprintf(line, sizeof line, "+FULLRESYNC %s %lld\r\n", role->position.id, (long long)role->position.offset);
    replica_write(replica, (struct slice){line, (size_t)len});
}

void full_sync_announce_like(struct replica *replica, const struct repl_stream_reader *other) {
    char line[REPL_ID_LEN + 48];
    int64_t offset = repl_stream_reader_offset(other);
    replica->acked = 0;
    if (!replica->announced.rdb_only) repl_stream_attach_like(&replica->reader, other);
    if (!replica->psync) return;
    int len = snprintf(line, sizeof line, "+FULLRESYNC %s %lld\r\n", role->position.id, (long long)offset);
    replica_write(replica, (struct slice){line, (size_t)len});
}

/* --- Which replicas share a snapshot --- */

bool full_sync_is_shared(const struct replica *a, const struct replica *b) {
    return a->announced.filter == b->announced.filter && a->announced.rdb_channel == b->announced.rdb_channel &&
           full_sync_pulls(a) == full_sync_pulls(b) && full_sync_is_slow(a) == full_sync_is_slow(b);
}

static bool has_expiring_fields(void) {
    for (int id = 0; id < keyspace_databases(server.keyspace); id++)
        if (db_expiring(keyspace_db(server.keyspace, id))) return true;
    return false;
}

/* The highest RDB version that the replica is known to load. Replicas older than Valkey 8 do not announce a version,
 * but they do announce EOF. A client without either is a tool, which gets the version that the data need. */
int full_sync_version(const struct replica *replica) {
    if (replica->announced.version >= VERSION_9) return RDB_VERSION;
    if (replica->announced.version) return RDB_VERSION_COMMON;
    bool tool = !(replica->announced.capabilities & CAPA_EOF);
    return tool && has_expiring_fields() ? RDB_VERSION : RDB_VERSION_OLD;
}

/* A command that ends the save (FLUSHALL) may be part of a transaction, where no snapshot can begin; the cron starts
 * it then. */
void full_sync_next(void) {
    if (!dispatch_running()) full_sync_cron();
}

/* While a snapshot is held for RDMA READ, replicas that would fetch the next one wait. */
static struct replica *first_waiting(void) {
    list_each_entry(&replicas, struct replica, link, replica) {
        if (replica->state == REPLICA_WAITS && !(pull_active() && full_sync_pulls(replica))) return replica;
    }
    return NULL;
}

/* A Valkey replica retries immediately after an error. The error is delayed by REFUSAL_DELAY_MS, so that the replica
 * retries once a second, as it does when the primary is unreachable. */
static void full_sync_refuse(struct replica *replica, const char *error) {
    replica->state = REPLICA_REFUSED;
    replica->copy.refusal = error;
}

static void send_refusals(int64_t now) {
    list_each_entry(&replicas, struct replica, link, replica) {
        if (replica->state != REPLICA_REFUSED || now - replica->copy.waits_since_ms < REFUSAL_DELAY_MS) continue;
        struct reply reply = {.out = &replica->client->conn->out, .protocol = 2};
        reply_error(&reply, replica->copy.refusal);
        client_free_after_reply(replica->client);
        replica->state = REPLICA_DONE;
    }
}

static void fail_chosen(void) {
    log_warning("BGSAVE for replication failed");
    list_each_entry(&replicas, struct replica, link, replica) {
        if (!replica->copy.chosen) continue;
        main_channel_forget(replica);
        full_sync_slow_forget(replica);
        full_sync_refuse(replica, "ERR BGSAVE failed, replication can't continue");
    }
}

static void log_refusal(const struct replica *replica, int version) {
    static struct {
        char name[REPLICA_NAME_MAX];
        struct log_limit limit;
    } refused[REFUSALS_KNOWN]; /* the replicas refused last */
    static unsigned next;
    const char *name = replica_name(replica);
    unsigned i = 0;
    while (i < REFUSALS_KNOWN && strcmp(refused[i].name, name) != 0) i++;
    if (i == REFUSALS_KNOWN) {
        i = next;
        next = (next + 1) % REFUSALS_KNOWN;
        snprintf(refused[i].name, sizeof refused[i].name, "%s", name);
        refused[i].limit = (struct log_limit){.interval_us = 60 * 1000000};
    }
    log_limited(&refused[i].limit, LOG_LEVEL_WARNING,
                "SYNC failed. Replica %s reads RDB version %d, which cannot hold hash fields with an expiry", name,
                version);
}

/* Only the newest RDB version can hold hash fields with an expiration. A snapshot in an older one would always fail. */
static void refuse_old_replicas(void) {
    bool needs_newest = has_expiring_fields();
    list_each_entry(&replicas, struct replica, link, replica) {
        int version = full_sync_version(replica);
        if (!needs_newest || replica->state != REPLICA_WAITS || version >= RDB_VERSION ||
            replica->announced.filter & FILTER_NO_DATA)
            continue;
        log_refusal(replica, version);
        full_sync_refuse(replica,
                         "ERR The data contain hash fields with an expiry, which this replica's version cannot load");
    }
}

static void full_sync_take_part(enum replica_state state) {
    list_each_entry(&replicas, struct replica, link, replica) {
        if (!replica->copy.chosen) continue;
        replica->state = state;
        replica->progress_ms = clock_mono_ms();
        full_sync_announce(replica);
    }
}

/* Starts a snapshot for the first waiting replica and all that can share it. RDB channels get the offset first. */
static void start_snapshot(void) {
    refuse_old_replicas();
    struct replica *first = first_waiting();
    if (first && full_sync_pulls(first)) {
        repl_feed_select_again();
        if (full_sync_pull_start(pull_needs_seal(first->client))) return;
        first = first_waiting();
    }
    if (!first || child_active()) return; /* the cron tries again */
    bool by_socket = (repl_settings.diskless_sync && !full_sync_is_slow(first)) || first->announced.filter ||
                     first->announced.rdb_channel;
    struct save_content content = {.version = RDB_VERSION,
                                   .unchecked = true,
                                   .without_keys = first->announced.filter & FILTER_NO_DATA,
                                   .without_libraries = first->announced.filter & FILTER_NO_FUNCTIONS};
    list_each_entry(&replicas, struct replica, link, replica) {
        replica->copy.chosen = replica->state == REPLICA_WAITS && full_sync_is_shared(replica, first);
        if (!replica->copy.chosen) continue;
        if (!(replica->announced.capabilities & CAPA_EOF)) by_socket = false;
        /* An RDB channel is not asked: it announces fewer capabilities, and a reader that finds no checksum does not
         * check. */
        if (!(replica->announced.rdb_channel || replica->announced.capabilities & CAPA_NO_CHECKSUM) ||
            !conn_is_encrypted(replica->client->conn))
            content.unchecked = false;
        int version = full_sync_version(replica);
        if (version < content.version) content.version = version;
    }
    log_notice("Starting BGSAVE for SYNC with target: %s using: %s", by_socket ? "replicas sockets" : "disk",
               first->announced.rdb_channel ? "dual-channel" : "normal sync");
    repl_feed_select_again();
    /* From here on `first` may be gone: a module hears of the start of a save to a file, and may close clients. */
    bool dual = by_socket && first->announced.rdb_channel;
    if (dual) full_sync_take_part(REPLICA_TRANSFER);
    int result = by_socket ? full_sync_stream_start(&content, dual) : full_sync_file_start(&content);
    if (result < 0) {
        log_warning("Can't start the snapshot for replicas: %s", strerror(-result));
        fail_chosen();
    } else if (!dual) {
        full_sync_take_part(by_socket ? REPLICA_TRANSFER : REPLICA_FILE);
    }
}

void full_sync_request(struct replica *replica) {
    if (full_sync_pulls(replica) && full_sync_pull_join(replica)) {
        log_notice("Replica %s joins the snapshot that other replicas fetch", replica_name(replica));
    } else if (full_sync_stream_runs()) {
        log_notice("Current BGSAVE has socket target. Waiting for next BGSAVE for SYNC");
    } else if (snapshot_running()) {
        if (!full_sync_file_join(replica))
            log_notice("Can't attach the replica to the current BGSAVE. Waiting for next BGSAVE for SYNC");
    } else if (repl_settings.diskless_sync && replica->announced.capabilities & CAPA_EOF &&
               repl_settings.diskless_delay) {
        log_notice("Delay next BGSAVE for diskless SYNC");
        if (repl_settings.diskless_max_replicas) full_sync_cron();
    } else if (child_active()) {
        log_notice("No BGSAVE in progress, but another BG operation is active. BGSAVE for replication delayed");
    } else {
        start_snapshot();
    }
}

/* repl-diskless-sync-delay: the snapshot is delayed, so that more replicas can share it. */
static bool delay_is_over(int64_t now) {
    int64_t longest = 0;
    int waiting = 0;
    bool delays = repl_settings.diskless_sync;
    list_each_entry(&replicas, const struct replica, link, replica) {
        if (replica->state != REPLICA_WAITS) continue;
        if (!(replica->announced.capabilities & CAPA_EOF)) delays = false;
        if (now - replica->copy.waits_since_ms > longest) longest = now - replica->copy.waits_since_ms;
        waiting++;
    }
    if (!waiting) return false;
    if (!delays || longest >= (int64_t)repl_settings.diskless_delay * 1000) return true;
    return repl_settings.diskless_max_replicas && waiting >= repl_settings.diskless_max_replicas;
}

void full_sync_cron(void) {
    int64_t now = clock_mono_ms();
    main_channels_expire(now);
    send_refusals(now);
    if (!child_active() && !server_is_loading() && !repl_stream_is_marked() && delay_is_over(now)) start_snapshot();
}

void full_sync_send(struct replica *replica) {
    if (replica->state == REPLICA_FILE_TRANSFER)
        full_sync_file_send(replica);
    else
        full_sync_stream_resume();
}

void full_sync_forget(struct replica *replica) {
    full_sync_file_forget(replica);
    bool sent = full_sync_stream_sent(replica) || replica->state == REPLICA_DONE;
    if (sent)
        main_channel_rdb_done(replica);
    else
        main_channel_forget(replica);
    pull_leave(replica->copy.pull);
    replica->copy.pull = NULL;
    if (replica->state == REPLICA_FILE) full_sync_file_kill_unneeded();
    full_sync_stream_left(replica);
}

void full_sync_start(void) {
    full_sync_file_listen();
}
