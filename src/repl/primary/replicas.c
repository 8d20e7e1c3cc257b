/* replicas.c: see replicas.h.
 *
 * A connection queues at most REPLICA_SEND_AHEAD bytes. Bytes that slow replicas have not read are in memory once, in
 * the shared stream; client-output-buffer-limit replica bounds a replica's distance to its end. */
#include "repl/primary/replicas.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "repl/feed.h"
#include "repl/primary/main_channels.h"
#include "repl/settings.h"
#include "repl/stream_error.h"
#include "server/command/dispatch.h"
#include "server/role.h"
#include "server/server_events.h"
#include "server/stats/errorstats.h"
#include "server/stats/stats.h"
#include <stdio.h>
#include <string.h>

enum { REPLICA_SEND_AHEAD = 1024 * 1024 }; /* bytes in a connection's queue beyond which nothing is added */

struct list replicas = LIST_INIT(replicas);
const struct replica_events *replica_events;

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
    replica->copy.file = -1;
    if (client->conn) conn_address(client->conn, true, &replica->peer);
    client_set_state(client, &client_listener, replica);
    return replica;
}

static void replica_free(struct replica *replica) {
    must(!list_is_linked(&replica->link) && !replica->reader.block);
    client_set_state(replica->client, &client_listener, NULL);
    mem_free(replica->announced.address);
    mem_free(replica->quorum.hello);
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

static void replica_error(struct reply *reply, struct slice text) {
    errorstats_count(reply, text);
    repl_log_error("This primary is sending an error to its replica", text,
                   container_of(reply, struct client, reply)->current);
}

/* Refuses commands on data from a replica. */
static enum filter_answer replica_data_ask(struct client *client, const struct command *command, int argc,
                                           const struct slice *argv, const char **error) {
    if (!(client->flags & CLIENT_REPLICA)) return FILTER_PASS;
    *error = "ERR Replica can't interact with the keyspace";
    return FILTER_REFUSE;
}
static struct command_filter data_filter = {
    .order = FILTER_MONITOR, .flags = CMD_READONLY | CMD_WRITE, .ask = replica_data_ask};

void replica_join(struct replica *replica) {
    replica->client->flags |= CLIENT_REPLICA;
    null_output_init(&replica->replies);
    replica->client->reply.out = &replica->replies.out;
    replica->client->reply.error_hook = replica_error;
    replica->acked_ms = replica->progress_ms = clock_mono_ms();
    if (!replicas.len) dispatch_add_filter(&data_filter);
    list_append(&replicas, &replica->link);
    if (repl_settings.disable_nodelay) conn_set_nodelay(replica->client->conn, false);
}

static void replica_leave(struct replica *replica) {
    if (!list_is_linked(&replica->link)) return;
    log_notice(replica->announced.rdb_channel ? "Dual channel replication: Replica %s rdb channel disconnected."
                                              : "Connection with replica %s lost.",
               replica_name(replica));
    list_remove(&replicas, &replica->link);
    if (replica->state == REPLICA_ONLINE) server_event(EVENT_REPLICA_CHANGE, 1, NULL);
    repl_stream_detach(&replica->reader);
    replica_events->left(replica);
    if (!replicas.len) dispatch_remove_filter(&data_filter);
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

static void replica_drained(struct client *client) {
    struct replica *replica = replica_find(client);
    if (replica && list_is_linked(&replica->link)) replica_events->drained(replica);
}

static void replica_report(const struct client *client, struct client_report *report) {
    const struct replica *replica = replica_find(client);
    report->memory += mem_size(replica);
    /* The backlog keeps this much in any case: closing the client would free nothing. */
    report->output_least = (size_t)repl_settings.backlog_size;
    bool copies = replica->state == REPLICA_TRANSFER || replica->state == REPLICA_FILE_TRANSFER;
    if (copies && client->conn) report->output_uncounted = conn_pending(client->conn); /* the limit is on the stream */
    if (replica->reader.block) report->held_output += repl_stream_reader_lag(&replica->reader);
    report->held_output += main_channel_kept(replica);
}

void replica_close(struct replica *replica) {
    client_free(replica->client);
}

void repl_disconnect_replicas(const char *reason) {
    if (replicas.len) log_notice("Disconnecting all replicas: %s", reason);
    list_each(&replicas, link) replica_close(replica_of(link));
    main_channels_drop();
}

/* --- Commands of our own servers --- */

static bool is_own(const struct replica *replica) {
    return replica->announced.capabilities & CAPA_SLOT_CHUNKS;
}

bool repl_replicas_are_own(void) {
    list_each(&replicas, link) {
        if (!is_own(replica_of(link))) return false;
    }
    return !main_channels_awaited();
}

void repl_note_own_command(void) {
    repl_stream_written();
    /* A primary has written it: its last byte. A replica has not: its first. */
    repl_own_commands_at = role->position.offset - !role_is_replica();
    if (!role_is_replica() || repl_replicas_are_own()) return;
    main_channels_drop();
    list_each_entry(&replicas, struct replica, link, replica) {
        if (is_own(replica)) continue;
        log_notice("Closing replica %s, which does not know a command of the primary", replica_name(replica));
        replica_close(replica);
    }
}

/* --- Names --- */

struct slice replica_address(const struct replica *replica) {
    return slice_of(replica->announced.address ? replica->announced.address : replica->peer.host);
}

const char *replica_name(const struct replica *replica) {
    static char name[REPLICA_NAME_MAX];
    struct slice address = replica_address(replica);
    bool bare = memchr(address.data, ':', address.len) == NULL;
    if (replica->announced.port)
        snprintf(name, sizeof name, bare ? "%.*s:%d" : "[%.*s]:%d", (int)address.len, address.data,
                 replica->announced.port);
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
    if (replica->announced.rdb_channel) return "rdb-channel";
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

size_t replicas_online(void) {
    size_t count = 0;
    list_each(&replicas, link) count += replica_is_online(replica_of(link));
    return count;
}
