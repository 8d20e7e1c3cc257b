/* handshake.c: REPLCONF, PSYNC and SYNC: stores what a replica announces, and decides between a partial and a
 * full synchronization. See replicas.h. */
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "repl/feed.h"
#include "repl/history.h"
#include "repl/link_transport.h"
#include "repl/primary/failover.h"
#include "repl/primary/full_sync.h"
#include "repl/primary/full_sync_pull.h"
#include "repl/primary/full_sync_slow.h"
#include "repl/primary/main_channels.h"
#include "repl/primary/primary.h"
#include "repl/pull/wire.h"
#include "repl/quorum/quorum.h"
#include "repl/settings.h"
#include "resp/request.h"
#include "server/clients/reply_barrier.h"
#include "server/command/command.h"
#include "server/command/spec.h"
#include "server/role.h"
#include "server/server_events.h"
#include "server/stats/stats.h"
#include <stdio.h>

/* --- REPLCONF --- */

static const char *parse_version(struct slice text, int *version) {
    int64_t parts[3];
    for (int i = 0; i < 3; i++) {
        const char *dot = text.len ? memchr(text.data, '.', text.len) : NULL;
        size_t len = i < 2 ? (dot ? (size_t)(dot - text.data) : 0) : text.len;
        if (!parse_int64((struct slice){text.data, len}, &parts[i]) || parts[i] < 0 || parts[i] > 255) return "";
        text.data += len + (i < 2), text.len -= len + (i < 2);
    }
    *version = (int)(parts[0] << 16 | parts[1] << 8 | parts[2]);
    return NULL;
}

static bool parse_flag(struct reply *reply, struct slice text, bool *flag) {
    int64_t number;
    if (!parse_int64(text, &number)) {
        reply_not_integer(reply);
    } else if (number < 0 || number > 1) {
        reply_error(reply, "ERR value is out of range, value must between 0 and 1");
    } else {
        *flag = number;
        return true;
    }
    return false;
}

static bool parse_filter(struct reply *reply, struct slice text, unsigned *filter) {
    struct slice *words;
    int count = words_split(text, &words);
    if (count < 0) return reply_error(reply, "ERR Missing rdb-filter-only values");
    *filter = FILTER_NO_DATA | FILTER_NO_FUNCTIONS;
    bool known = true;
    for (int i = 0; i < count && known; i++) {
        known = slice_is(words[i], "functions");
        if (known)
            *filter &= ~(unsigned)FILTER_NO_FUNCTIONS;
        else
            reply_error_format(reply, "ERR Unsupported rdb-filter-only option: %.*s",
                               (int)(words[i].len > 128 ? 128 : words[i].len), words[i].data);
    }
    words_free(words, count);
    return known;
}

/* REPLCONF ACK gets no reply. An offset beyond the end of the stream is ignored, since WAIT would count it. */
static void replconf_ack(struct call *call, int at) {
    struct replica *replica = replica_find(call->client);
    int64_t offset, fsynced = -1;
    if (!replica || !list_is_linked(&replica->link) || !parse_int64(call->argv[at + 1], &offset)) return;
    if (call->argc > at + 3 && slice_is(call->argv[at + 2], "fack") && !parse_int64(call->argv[at + 3], &fsynced))
        return;
    if (offset > role->position.offset || fsynced > role->position.offset) return;
    replica_acknowledged(replica, offset, fsynced);
}

/* Returns false if it has replied with an error. */
static bool replconf_set(struct call *call, struct slice option, struct slice value) {
    struct replica *replica = replica_get(call->client);
    struct reply *reply = call->reply;
    int64_t number;
    if (slice_is(option, "listening-port")) {
        if (!parse_int64(value, &number) || number < INT32_MIN || number > INT32_MAX) return reply_not_integer(reply);
        replica->announced.port = (int)number;
    } else if (slice_is(option, "ip-address")) {
        if (value.len > REPLICA_ADDRESS_MAX)
            return reply_error_format(
                reply, "ERR REPLCONF ip-address provided by replica instance is too long: %zu bytes", value.len);
        mem_free(replica->announced.address);
        replica->announced.address = value.len ? mem_strndup(value.data, value.len) : NULL;
    } else if (slice_is(option, "capa")) { /* unknown ones are ignored */
        if (slice_is(value, "eof")) replica->announced.capabilities |= CAPA_EOF;
        if (slice_is(value, "psync2")) replica->announced.capabilities |= CAPA_PSYNC2;
        if (slice_is(value, "dual-channel")) replica->announced.capabilities |= CAPA_DUAL_CHANNEL;
        if (slice_is(value, REPL_NO_CHECKSUM_CAPABILITY)) replica->announced.capabilities |= CAPA_NO_CHECKSUM;
        if (slice_is(value, PULL_CAPABILITY)) replica->announced.capabilities |= CAPA_RDMA_PULL;
        if (slice_is(value, PULL_CAPABILITY_SEALED)) replica->announced.capabilities |= CAPA_RDMA_PULL_SEALED;
        if (slice_is(value, REPL_OWN_CAPABILITY)) replica->announced.capabilities |= CAPA_SLOT_CHUNKS;
    } else if (slice_is(option, "version")) {
        if (parse_version(value, &replica->announced.version))
            return reply_error_format(reply, "ERR Unrecognized version format: %.*s",
                                      (int)(value.len > 128 ? 128 : value.len), value.data);
    } else if (slice_is(option, "rdb-only")) {
        return parse_flag(reply, value, &replica->announced.rdb_only);
    } else if (slice_is(option, "rdb-channel")) {
        return parse_flag(reply, value, &replica->announced.rdb_channel);
    } else if (slice_is(option, "rdb-filter-only")) {
        return parse_filter(reply, value, &replica->announced.filter);
    } else if (slice_is(option, "set-rdb-client-id")) {
        if (!parse_int64(value, &number)) return reply_not_integer(reply);
        if (number <= 0 || !main_channel_is_awaited((uint64_t)number))
            return reply_error_format(reply, "ERR Unrecognized RDB client id %lld", (long long)number);
        replica->announced.rdb_client_id = (uint64_t)number;
    } else if (slice_is(option, "set-cluster-node-id")) {
        if (!cluster_hooks) return reply_error(reply, "ERR This instance has cluster support disabled");
        if (!cluster_hooks->knows(value))
            return reply_error_format(reply, "ERR Unknown node %.*s", (int)(value.len > 128 ? 128 : value.len),
                                      value.data);
        memcpy(replica->announced.node_id, value.data, value.len);
    } else {
        return reply_error_format(reply, "ERR Unrecognized REPLCONF option: %.*s",
                                  (int)(option.len > 128 ? 128 : option.len), option.data);
    }
    return true;
}

/* The replica announces its RDMA port, and the reply has ours. */
static void replconf_rdma_port(struct call *call) {
    int64_t number;
    char answer[32];
    if (!parse_int64(call->argv[2], &number) || number < 0 || number > 65535) {
        reply_not_integer(call->reply);
        return;
    }
    replica_get(call->client)->announced.rdma_port = (int)number;
    int own = link_announced_port();
    snprintf(answer, sizeof answer, own ? "OK %d" : "OK", own);
    reply_status(call->reply, answer);
}

static void replconf_run(struct call *call) {
    if (call->argc % 2 == 0) {
        reply_syntax_error(call->reply);
        return;
    }
    if (call->argc == 3 && slice_is(call->argv[1], "rdma-port")) {
        replconf_rdma_port(call);
        return;
    }
    if (quorum_replconf(call)) return;
    if (call->argc == 3 && slice_is(call->argv[1], "pulled")) {
        struct replica *replica = replica_find(call->client); /* gets no reply */
        int64_t chunks;
        if (replica && parse_int64(call->argv[2], &chunks)) full_sync_pulled(replica, chunks);
        return;
    }
    for (int i = 1; i < call->argc; i += 2) {
        if (slice_is(call->argv[i], "ack")) {
            replconf_ack(call, i);
            return;
        }
        if (slice_is(call->argv[i], "getack")) return; /* meant for replicas: apply.c handles it */
        if (!replconf_set(call, call->argv[i], call->argv[i + 1])) return;
    }
    reply_ok(call->reply);
}

/* --- PSYNC and SYNC --- */

static void log_refused_id(const struct replica *replica, struct slice id, int64_t offset) {
    if (slice_is(id, "?")) {
        log_notice("Full resync requested by replica %s", replica_name(replica));
    } else if (slice_is(id, repl_history->second_id)) {
        log_notice("Partial resynchronization not accepted: Requested offset for second ID was %lld, but I can reply "
                   "up to %lld",
                   (long long)offset, (long long)repl_history->second_offset + 1);
    } else {
        log_notice("Partial resynchronization not accepted: Replication ID mismatch (Replica asked for '%.*s', my "
                   "replication IDs are '%s' and '%s')",
                   (int)(id.len > REPL_ID_LEN ? REPL_ID_LEN : id.len), id.data, role->position.id,
                   repl_history->second_id);
    }
}

/* `offset` is the first byte that the replica needs, counted from 1. */
static bool stream_attach(struct replica *replica, int64_t offset) {
    if (replica->announced.rdb_client_id) return main_channel_attach(replica, offset - 1);
    return repl_stream_has_backlog() && repl_stream_attach(&replica->reader, offset - 1);
}

static bool partial_sync(struct replica *replica, struct slice id, int64_t offset) {
    if (offset < 1 || !repl_history_has(id, offset - 1)) {
        log_refused_id(replica, id, offset);
        return false;
    }
    if (!(replica->announced.capabilities & CAPA_SLOT_CHUNKS) && offset - 1 <= repl_own_commands_at) {
        log_notice("Partial resynchronization not accepted: Replica %s would receive commands that it does not know",
                   replica_name(replica));
        return false;
    }
    if (!stream_attach(replica, offset)) {
        bool has = repl_stream_has_backlog();
        log_notice("Unable to partial resync with replica %s for lack of backlog (Replica request was %.*s:%lld, and I "
                   "can only reply with the range [%lld, %lld]).",
                   replica_name(replica), (int)(id.len > REPL_ID_LEN ? REPL_ID_LEN : id.len), id.data,
                   (long long)offset, has ? (long long)repl_stream_backlog_start() + 1 : 0LL,
                   (long long)role->position.offset + 1);
        if (offset > role->position.offset + 1)
            log_warning("Warning: replica %s tried to PSYNC with an offset that is greater than the primary "
                        "replication offset.",
                        replica_name(replica));
        return false;
    }
    bool main_channel = replica->announced.rdb_client_id;
    replica->state = main_channel ? REPLICA_MAIN_CHANNEL : REPLICA_ONLINE;
    if (!main_channel) server_event(EVENT_REPLICA_CHANGE, 0, NULL);
    replica->acked = 0; /* the requested offset acknowledges nothing: the replica's append-only file may be behind */
    replica_join(replica);
    char answer[REPL_ID_LEN + 16];
    int len = replica->announced.capabilities & CAPA_PSYNC2
                  ? snprintf(answer, sizeof answer, "+CONTINUE %s\r\n", role->position.id)
                  : snprintf(answer, sizeof answer, "+CONTINUE\r\n");
    log_notice("Partial resynchronization request from %s accepted. Sending %llu bytes of backlog starting from offset "
               "%lld.",
               replica_name(replica), (unsigned long long)repl_stream_reader_lag(&replica->reader), (long long)offset);
    replica_write(replica, (struct slice){answer, (size_t)len});
    replica_send_stream(replica);
    return true;
}

/* A candidate of synchronous replication copies from a voter, which may follow nobody: only the connection on which it
 * has said that it is the candidate may do so. */
static bool takes_dual_channel(const struct replica *replica) {
    return !(replica->quorum.hello && replica->quorum.copies) && repl_settings.dual_channel &&
           repl_settings.diskless_sync && replica->announced.capabilities & CAPA_DUAL_CHANNEL &&
           replica->announced.capabilities & CAPA_EOF && !replica->announced.rdb_only && !replica->announced.filter &&
           !full_sync_pulls(replica) && !full_sync_is_slow(replica);
}

/* Replies with an error if a synchronization is not possible now. */
static bool synchronization_refused(struct call *call) {
    bool catches_up;
    const char *refusal = quorum_refuses_copy(replica_get(call->client), &catches_up);
    if (refusal) {
        reply_error(call->reply, refusal);
    } else if (role_is_replica() && !catches_up && role->link != ROLE_LINK_CONNECTED) {
        reply_error(call->reply, "NOMASTERLINK Can't SYNC while not connected with my master");
    } else if (conn_pending(call->client->conn) || reply_barrier_held(call->client)) {
        reply_error(call->reply, "ERR SYNC and PSYNC are invalid with pending output");
    } else if (replica_get(call->client)->announced.filter &&
               !(replica_get(call->client)->announced.capabilities & CAPA_EOF)) {
        reply_error(call->reply, "ERR Filtered replica requires EOF capability");
    } else {
        return false;
    }
    return true;
}

static void create_history(void) {
    if (repl_stream_has_backlog()) return;
    if (!role_is_replica()) repl_history_new();
    repl_stream_create_backlog();
    log_notice("Replication backlog created, my new replication IDs are '%s' and '%s'", role->position.id,
               repl_history->second_id);
}

static void synchronize(struct call *call, bool psync, struct slice id, int64_t offset) {
    struct replica *replica = replica_get(call->client);
    log_notice("Replica %s asks for synchronization", replica_name(replica));
    replica->psync = psync;
    if (psync && partial_sync(replica, id, offset)) {
        replication_stats.partial_ok++;
        return;
    }
    if (psync && !slice_is(id, "?")) replication_stats.partial_refused++;
    replica->announced.rdb_client_id = 0;
    if (psync && takes_dual_channel(replica)) {
        log_notice("Dual channel replication: Replica %s is capable of dual channel synchronization, and partial sync "
                   "isn't possible. Full sync will continue with dedicated RDB channel.",
                   replica_name(replica));
        reply_status(call->reply, "DUALCHANNELSYNC");
        return;
    }
    replication_stats.full++;
    create_history();
    replica->state = REPLICA_WAITS;
    replica->copy.waits_since_ms = clock_mono_ms();
    replica_join(replica);
    full_sync_request(replica);
}

/* Clients that cannot become replicas: replicas, MONITOR clients, the primary's stream, and clients without a
 * connection. */
static bool is_ignored(const struct client *client) {
    return client->flags & (CLIENT_REPLICA | CLIENT_MONITOR | CLIENT_PRIMARY) || !client->conn;
}

static void psync_run(struct call *call) {
    int64_t offset;
    if (is_ignored(call->client)) return;
    if (call->argc > 3 && slice_is(call->argv[3], "failover") && !repl_failover_asked(call)) return;
    if (synchronization_refused(call)) return;
    if (!parse_int64(call->argv[2], &offset)) {
        log_warning("Replica %s asks for synchronization but with a wrong offset",
                    replica_name(replica_get(call->client)));
        reply_not_integer(call->reply);
        return;
    }
    synchronize(call, true, call->argv[1], offset);
}

static void sync_run(struct call *call) {
    if (is_ignored(call->client) || synchronization_refused(call)) return;
    synchronize(call, false, SLICE("?"), -1);
}

const struct command_spec handshake_commands[] = {
    {COMMAND("replconf", replconf_run, -1,
             CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE | CMD_ALLOW_BUSY | CMD_SYSCMD,
             .group = GROUP_SERVER, "3.0.0"),
     .categories = CAT_ADMIN | CAT_DANGEROUS, .complexity = "O(1)",
     .summary = "Sends properties of a replica to its primary, and acknowledges the replication stream."},
    {COMMAND("psync", psync_run, -3, CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_NO_ASYNC_LOADING | CMD_NO_MULTI,
             .group = GROUP_SERVER, "2.8.0"),
     .categories = CAT_ADMIN | CAT_DANGEROUS,
     .summary = "Makes the connection a replica, which continues the replication stream if it can.",
     .syntax = "replicationid:string offset:integer"},
    {COMMAND("sync", sync_run, 1, CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_NO_ASYNC_LOADING | CMD_NO_MULTI,
             .group = GROUP_SERVER, "1.0.0"),
     .categories = CAT_ADMIN | CAT_DANGEROUS, .summary = "Makes the connection a replica, which receives a full copy."},
    {.name = NULL},
};
