/* export.c: the source of a migration.
 *
 * The job's client is the connection to the target. It has the flags CLIENT_MIGRATION and CLIENT_REPLICA: its output is
 * limited like that of a replica, and no command of it is dispatched.
 *
 * A listener of propagation sees every change. It finds the slot of a command by its keys, because a script or a
 * transaction may change several slots; the command then goes to the job that exports this slot. */
#include "cluster/migration/pull.h"
#include "cluster/protocol/own_fields.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "repl/link_transport.h"
#include "repl/pull_seal.h"
#include "repl/repl_settings.h"
#include "repl/replica.h"
#include "repl/sync/sync.h"
#include "resp/request.h"
#include "server/clients/listeners.h"
#include "server/clients/user.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/config/config_engine.h"
#include "server/config/tls_options.h"
#include "server/maxmemory.h"
#include "server/role.h"
#include "server/server.h"
#include <stdio.h>
#include <string.h>

enum {
    ANSWER_MAX = 16 * 1024, /* bytes of a reply of the handshake */
    IN_LIMIT = 64 * 1024,
    GRANTED_PAUSE_MS = 2000,   /* the writes are held at least this long when the target may take the slots */
    ON_THE_WAY_MS = 1000,      /* a message that is read later was sent after the link broke */
    RDMA_TIMEOUT_MS = 5000,    /* of a connect */
    CAPABILITY_WAIT_MS = 1000, /* the snapshot is sent as commands without an answer */
    KEYS_ON_STACK = 16
};
static const struct request_limits limits = {.multibulk_max = 16, .bulk_max = 1024};

/* The jobs that get the changes of each slot. */
static struct job *streaming[HASH_SLOTS];
static unsigned streams;

static void propagated(struct propagation_listener *self, const struct propagation *propagation);
static struct propagation_listener listener = {.command = propagated, .changes_only = true, .target = PROPAGATE_ANY};

/* --- The stream --- */

static void stream_begin(struct job *job) {
    memory_output_init(&job->backlog);
    job->stream_db = -1;
    if (!streams++) propagate_listen(&listener);
}

void export_stream_slot(struct job *job, unsigned slot) {
    streaming[slot] = job;
}

static void stream_end(struct job *job) {
    if (!job->backlog.out.ops) return;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (streaming[slot] == job) streaming[slot] = NULL;
    memory_output_free(&job->backlog);
    job->backlog = (struct memory_output){.data = NULL};
    if (!--streams) propagate_unlisten(&listener);
}

static struct slice backlog_bytes(const struct job *job) {
    return job->backlog.out.ops ? memory_output_slice(&job->backlog) : SLICE("");
}

size_t job_output(const struct job *job) {
    if (job->is_import || !job->client) return 0;
    return conn_pending(job->client->conn) + backlog_bytes(job).len;
}

static void stream_command(struct job *job, const struct propagation *propagation) {
    if (!job->client) return;
    struct output *out = job->state == JOB_SNAPSHOTTING ? &job->backlog.out : &job->client->conn->out;
    if (job->stream_db != propagation->db) {
        char number[NUMBER_TEXT_MAX];
        job->stream_db = propagation->db;
        request_write(out, 2,
                      (struct slice[]){SLICE("SELECT"), {number, format_int64(number, (int64_t)propagation->db)}});
    }
    request_write_count(out, (size_t)propagation->argc);
    for (int i = 0; i < propagation->argc; i++) {
        struct blob *blob = propagation_blob(propagation, i);
        if (blob)
            request_write_blob(out, blob);
        else
            request_write_argument(out, propagation->argv[i]);
    }
    if (job->state != JOB_SNAPSHOTTING) client_flush_later(job->client);
    client_check_output(job->client);
}

/* What waits for the targets. Evicting keys would only add to it. */
static size_t held_for_targets(void) {
    size_t bytes = 0;
    list_each(&jobs_in_progress, link) {
        const struct job *job = job_in_progress(link);
        size_t input = 0, output = 0;
        if (job->is_import || !job->client) continue;
        if (job->client->conn) conn_memory(job->client->conn, &input, &output);
        bytes += output + job->backlog.capacity;
    }
    return bytes;
}

void export_start(void) {
    static struct uncounted_memory memory = {.bytes = held_for_targets};
    eviction_leave_out(&memory);
}

/* Its limits are those of a replica. The snapshot itself is no part of the stream, and waits for the target. */
void export_report(const struct job *job, struct client_report *report) {
    report->held_output += backlog_bytes(job).len;
    report->memory += job->backlog.capacity;
    report->output_least = (size_t)repl_settings.backlog_size;
    if (job->state == JOB_SNAPSHOTTING && job->client->conn) report->output_least += conn_pending(job->client->conn);
}

/* CLUSTER FLUSHSLOT has its slot as an argument. */
static int flushed_slot(const struct propagation *propagation) {
    int64_t slot;
    if (propagation->argc < 3 || !slice_is(propagation->argv[0], "cluster") ||
        !slice_is(propagation->argv[1], "flushslot") || !parse_int64(propagation->argv[2], &slot) || slot < 0 ||
        slot >= HASH_SLOTS)
        return -1;
    return (int)slot;
}

static void propagated(struct propagation_listener *self, const struct propagation *propagation) {
    struct command *parent;
    if (propagation->origin != PROPAGATION_LOCAL) return;
    const struct command *command = command_lookup(propagation->argc, propagation->argv, &parent);
    /* What the server itself propagates (UNLINK, HDEL) may be renamed away here. The target knows it. */
    if (!command) command = command_lookup_original(propagation->argc, propagation->argv, &parent);
    if (!command) return;
    int slot = -1;
    if (command->only_key && (int)command->only_key < propagation->argc) {
        slot = (int)hash_slot(propagation->argv[command->only_key]);
    } else if (command->keyless) {
        slot = flushed_slot(propagation);
    } else {
        struct key_position few[KEYS_ON_STACK], *positions = few;
        int most = propagation->argc > KEYS_ON_STACK ? propagation->argc : KEYS_ON_STACK;
        if (most > KEYS_ON_STACK) positions = mem_alloc((size_t)most * sizeof(*positions));
        int count = command_find_keys(command, propagation->argc, propagation->argv, positions, most);
        if (count > 0) slot = (int)hash_slot(propagation->argv[positions[0].index]);
        if (positions != few) mem_free(positions);
    }
    if (slot >= 0 && streaming[slot]) stream_command(streaming[slot], propagation);
}

/* --- Messages of the target --- */

static void received(struct job *job, int argc, const struct slice *argv) {
    if (argc < 3 || !slice_is(argv[0], "cluster") || !slice_is(argv[1], "syncslots")) {
        if (argc == 0) return;
        log_warning("Received a command that is not part of the protocol from slot migration %s: %.*s", job_text(job),
                    argv[0].len > 32 ? 32 : (int)argv[0].len, argv[0].data);
        job_fail_later(job, "Failed to process command during slot migration. Check logs for more information");
    } else if (slice_is(argv[2], "ack")) {
        job_heard(job);
    } else if (slice_is(argv[2], "request-pause")) {
        if (job->state == JOB_SNAPSHOTTING || job->state == JOB_REPLICATING)
            job->pause_requested = true; /* the child may not be reaped yet */
        else
            job_unexpected(job, argv[2]);
    } else if (slice_is(argv[2], "request-failover")) {
        if (job->state == JOB_FAILOVER_PAUSED)
            job->failover_requested = true;
        else
            job_unexpected(job, argv[2]);
    } else if (slice_is(argv[2], "capa")) {
        if (job->chunks_until_ms && argc > 3 && slice_is(argv[3], CHUNK_CAPABILITY)) job->chunks = true;
        job->pull = job->chunks && job->asked_pull && argc > 4 && slice_is(argv[4], PULL_CAPABILITY_SLOTS);
        job->asked_pull = false;
        job->chunks_until_ms = 0;
    } else if (slice_is(argv[2], "pulled")) {
        int64_t count;
        job_heard(job);
        if (argc != 4 || !parse_int64(argv[3], &count) || !snapshot_pulled(job, count)) job_unexpected(job, argv[2]);
    } else {
        job_unexpected(job, argv[2]);
    }
}

static void read_requests(struct job *job) {
    struct client *client = job->client;
    struct connection *conn = client->conn;
    while (!job->failing && conn->in_len) {
        enum request_status status = request_read(&client->reader, conn_peek(conn), &limits);
        if (status == REQUEST_PARTIAL) return;
        if (status != REQUEST_READY) {
            log_warning("Protocol error from slot migration %s", job_text(job));
            job_fail_later(job, "Failed to process command during slot migration. Check logs for more information");
            return;
        }
        client->active_ms = clock_mono_ms();
        struct command *parent, *command = command_lookup(client->reader.argc, client->reader.argv, &parent);
        if (command) client->current = command;
        received(job, client->reader.argc, client->reader.argv);
        conn_consume(conn, client->reader.size);
        request_done(&client->reader);
    }
}

/* --- The handshake --- */

static void send_establish(struct job *job) {
    job_set_state(job, JOB_SENDING_ESTABLISH);
    struct output *out = &job->conn->out;
    char number[NUMBER_TEXT_MAX];
    request_write_count(out, 8 + 2 * job->count);
    request_write_argument(out, SLICE("CLUSTER"));
    request_write_argument(out, SLICE("SYNCSLOTS"));
    request_write_argument(out, SLICE("ESTABLISH"));
    request_write_argument(out, SLICE("SOURCE"));
    request_write_argument(out, slice_make(job->source.text, NODE_ID_LEN));
    request_write_argument(out, SLICE("NAME"));
    request_write_argument(out, slice_make(job->name, JOB_NAME_LEN));
    request_write_argument(out, SLICE("SLOTSRANGE"));
    for (size_t i = 0; i < job->count; i++)
        for (int j = 0; j < 2; j++)
            request_write_argument(out, (struct slice){number, format_int64(number, job->ranges[i][j])});
    conn_flush(job->conn);
    job_set_state(job, JOB_READING_ESTABLISH);
}

static void connected(struct connection *conn) {
    struct job *job = conn->owner;
    log_notice("Slot migration %s connection established.", job_text(job));
    if (!replica_settings.primary_auth.len) {
        send_establish(job);
        return;
    }
    job_set_state(job, JOB_SENDING_AUTH);
    replica_send_auth(conn);
    job_set_state(job, JOB_READING_AUTH);
}

static struct user superuser = {.name = "(superuser)", .flags = USER_ENABLED | USER_ALL_RIGHTS};
static const struct connection_events events;

/* Asks a target whether it takes chunks, unless it is known not to. */
static void ask_for_chunks(struct job *job) {
    const struct cluster_node *target = nodes_find(&this_cluster->nodes, &job->target);
    if (!target || !(target->features & OWN_FEATURE_SLOT_CHUNKS)) return;
    job->asked_pull = slot_pull_ask(job);
    if (!job->asked_pull) job_send_capability(job);
    job->chunks_until_ms = clock_mono_ms() + CAPABILITY_WAIT_MS;
}

/* The target has accepted: from here on the connection is a client's. */
static void established(struct job *job) {
    struct connection *conn = job->conn;
    struct client *client = client_new(conn);
    static struct null_output replies;
    if (!replies.out.ops) null_output_init(&replies);
    client->user = &superuser;
    client->authenticated = true;
    client->flags |= CLIENT_MIGRATION | CLIENT_REPLICA;
    client->reply.out = &replies.out;
    client->reply.protocol = 2;
    conn->owner = client;
    conn->events = &events;
    conn_set_trusted(conn, true);
    conn_set_in_limit(conn, IN_LIMIT);
    job->conn = NULL;
    job_attach(job, client);
    job_heard(job);
    job_send(job, "ACK");
    ask_for_chunks(job);
    job_set_state(job, JOB_WAITING_TO_SNAPSHOT);
}

static void refused(struct job *job, const char *what, struct slice line) {
    char text[ANSWER_MAX + 64];
    snprintf(text, sizeof text, "%s%.*s", what, (int)line.len, line.data);
    job_end(job, JOB_FAILED, text);
}

static void answered(struct connection *conn) {
    struct job *job = conn->owner;
    struct slice in = conn_peek(conn);
    const char *end = in.len ? memchr(in.data, '\n', in.len) : NULL;
    if (!end) {
        if (in.len >= ANSWER_MAX) job_fail_later(job, "Response to establish job is larger than buffer limit");
        return;
    }
    struct slice line = {in.data, (size_t)(end - in.data)};
    size_t size = line.len + 1;
    if (line.len && line.data[line.len - 1] == '\r') line.len--;
    if (size > ANSWER_MAX) {
        job_fail_later(job, "Response to establish job is larger than buffer limit");
        return;
    }
    bool error = line.len && line.data[0] == '-';
    if (error) {
        refused(job,
                job->state == JOB_READING_AUTH ? "Failed to AUTH to target node: "
                                               : "Received error during handshake to target: ",
                line);
        return;
    }
    conn_consume(conn, size);
    if (job->state == JOB_READING_AUTH) {
        log_notice("Successfully authenticated slot migration %s", job_text(job));
        send_establish(job);
    } else if (job->state == JOB_READING_ESTABLISH) {
        established(job);
        read_requests(job);
    }
}

static void not_connected(struct connection *conn) {
    struct job *job = conn->owner;
    char text[256];
    if (job->state == JOB_CONNECTING && link_is_rdma(conn)) {
        log_warning("Slot migration %s: no RDMA connection to the target (%s). Using %s", job_text(job),
                    conn_error_text(conn), link_without_rdma());
        job->tcp_only = true;
        job_detach(job); /* export_step() dials again */
    } else if (job->state == JOB_CONNECTING) {
        snprintf(text, sizeof text, "Unable to connect to target node: %s", conn_error_text(conn));
        job_end(job, JOB_FAILED, text);
    } else if (job->state == JOB_READING_AUTH) {
        log_warning("Failed to read response from the server: %s",
                    conn->error ? conn_error_text(conn) : "Connection closed by the target");
        job_fail_later(job, "Target node did not respond to AUTH command");
    } else {
        log_notice("Slot migration %s connection lost", job_text(job));
        job_fail_later(job, "Connection lost to target. Check CLUSTER GETSLOTMIGRATIONS on the target node for more "
                            "information.");
    }
}

static const struct connection_events handshake_events = {
    .connected = connected, .readable = answered, .closed = not_connected};

static void readable(struct connection *conn) {
    struct job *job = job_of_client(conn->owner);
    if (job) read_requests(job);
}
static void closed(struct connection *conn) {
    struct client *client = conn->owner;
    if (conn->error)
        log_verbose("Reading from client: %s", conn_error_text(conn));
    else
        log_verbose("Client closed connection %s", client_log_text(client));
    client_free(client);
}
static const struct connection_events events = {.readable = readable, .closed = closed};

/* A cancelled job has granted slots of this job, and its target may take them yet. */
static bool waits_for_outcome(const struct job *job) {
    list_each(&jobs_in_progress, link) {
        const struct job *other = job_in_progress(link);
        if (other == job || other->is_import || other->state != JOB_EXPORT_GRANTED) continue;
        for (unsigned i = 0; i < SLOT_BITMAP_SIZE; i++)
            if (other->slots.bytes[i] & job->slots.bytes[i]) return true;
    }
    return false;
}

static void dial(struct job *job) {
    const struct cluster_node *target = nodes_find(&this_cluster->nodes, &job->target);
    if (!target) {
        job_fail_later(job, "Unable to connect to target node: it is not known any more");
        return;
    }
    bool tls = tls_for_replication();
    /* Only nodes of ours tell their RDMA port, and have use for the link. */
    const struct transport *rdma = target->rdma_port && !job->tcp_only ? link_rdma_transport() : NULL;
    int port = rdma ? target->rdma_port : tls ? target->tls_port : target->port;
    uint32_t timeout_ms = (uint32_t)repl_settings.timeout * 1000;
    log_notice("Connecting slot migration %s (ip: %s, port %d)", job_text(job), target->address, port);
    struct connect_options options = {.host = target->address,
                                      .port = port,
                                      .source_host = outgoing_source(),
                                      .source_optional = true,
                                      .timeout_ms = rdma && timeout_ms > RDMA_TIMEOUT_MS ? RDMA_TIMEOUT_MS : timeout_ms,
                                      .events = &handshake_events,
                                      .owner = job};
    const struct transport *stream = transport_find(tls ? "tls" : "tcp");
    job->conn = conn_connect(rdma ? rdma : stream, server.loop, &options);
    conn_set_in_limit(job->conn, 2 * ANSWER_MAX);
    job->heard_ms = clock_mono_ms(); /* from now on it may time out */
}

/* --- The states --- */

struct job *export_new(const struct cluster_node *target, const uint16_t (*ranges)[2], size_t count) {
    struct job *job = job_new(false, SLICE(""), ranges, count, JOB_CONNECTING);
    job->target = target->id;
    job->source = this_cluster->myself->id;
    return job;
}

/* Holds the clients' writes, or all commands on data, for this job. A grant that is in the stream has no time limit: a
 * successor that finds it there asks the target, which then takes the slots without later writes. Only the end of the
 * job, which is in the stream before them, lets these go on. */
static void hold_clients(const struct job *job) {
    bool reads = sync_on && job->state == JOB_EXPORT_GRANTED;
    clients_pause(PAUSE_SLOT_MIGRATION, reads ? PAUSE_DATA : PAUSE_WRITE,
                  reads || job->is_recorded ? INT64_MAX : job->paused_until_ms);
}

/* The clients are held as the other jobs need it. They execute nothing before this function returns. */
static void release_clients(const struct job *job) {
    if (!clients_paused_for(PAUSE_SLOT_MIGRATION)) return;
    clients_unpause(PAUSE_SLOT_MIGRATION);
    list_each(&jobs_in_progress, link) {
        const struct job *other = job_in_progress(link);
        if (other != job && !other->is_import && !other->is_tracked &&
            (other->state == JOB_FAILOVER_PAUSED || other->state == JOB_EXPORT_GRANTED))
            hold_clients(other);
    }
}

static void forget_stream(struct job *job) {
    snapshot_cancel(job);
    stream_end(job);
    if (job->pull_key) pull_key_forget(job->pull_key);
    mem_free(job->pull_key);
    job->pull_key = NULL;
}

void export_end(struct job *job, enum job_state state) {
    forget_stream(job);
    if (state == JOB_FAILOVER_PAUSED || state == JOB_EXPORT_GRANTED) release_clients(job);
}

/* A target that was granted the slots may have taken them. Clients then see the job as cancelled, but it goes on to
 * hold the writes. */
void export_cancel(struct job *job) {
    if (job->state != JOB_EXPORT_GRANTED) {
        job_end(job, JOB_CANCELLED, "");
        return;
    }
    if (job->failing) return; /* it is known how it ended */
    job_detach(job);
    job_finished(job, JOB_CANCELLED, "");
    job->state = JOB_EXPORT_GRANTED;
    job->cancelled = true;
    job->unknown_ms = cluster_now();
    forget_stream(job);
    job->sent_ms = 0; /* the target is asked at once */
    granted_ask_cancelled(job);
}

static void begin_snapshot(struct job *job) {
    if (!snapshot_possible(job)) return;
    if (job->chunks_until_ms && clock_mono_ms() < job->chunks_until_ms) return;
    job->chunks_until_ms = 0;
    stream_begin(job);
    if (!snapshot_export(job)) {
        stream_end(job);
        return;
    }
    job_set_state(job, JOB_SNAPSHOTTING);
}

void export_snapshot_done(struct job *job, bool good) {
    if (!good) {
        job_fail_later(job, "Failed to perform snapshot");
        return;
    }
    if (!job->client) return;
    job_set_state(job, JOB_REPLICATING);
    log_notice("Slot migration %s snapshot finished, starting streaming.", job_text(job));
    output_write(&job->client->conn->out, backlog_bytes(job));
    memory_output_free(&job->backlog);
    memory_output_init(&job->backlog);
    job_send(job, "ACK"); /* the target requests the pause when it has executed what is before this */
    job_heard(job);
    client_flush_later(job->client);
    client_check_output(job->client);
}

static void pause_writes(struct job *job, int64_t ms) {
    int64_t until = clock_mono_ms() + ms;
    if (until > job->paused_until_ms) job->paused_until_ms = until;
    hold_clients(job);
}

/* See migration.h: this node may be about to take slots itself. It also is when it has the grant, and its shard has not
 * committed yet that it takes them. */
static bool may_take_slots(void) {
    list_each(&jobs_in_progress, link) {
        const struct job *job = job_in_progress(link);
        if (job->takes || job->state == JOB_FAILOVER_REQUESTED || job->state == JOB_IMPORT_GRANTED) return true;
    }
    return false;
}

static void pause_if_ready(struct job *job) {
    if (!job->client) return;
    conn_flush(job->client->conn); /* the changes of this turn */
    size_t left = job_output(job);
    bool enough = migration_settings.failover_bytes < 0 || left <= (uint64_t)migration_settings.failover_bytes;
    if (migration_settings.prevent_pause || !enough || may_take_slots()) {
        if (job->state == JOB_REPLICATING) job_set_state(job, JOB_WAITING_TO_PAUSE);
        return;
    }
    log_notice("Pausing writes (remaining_repl_size is %zu) to allow slot migration %s to finalize failover.", left,
               job_text(job));
    pause_writes(job, 2 * config_number("cluster-manual-failover-timeout"));
    job_set_state(job, JOB_FAILOVER_PAUSED);
    job_send(job, "PAUSED");
}

/* Looks at the owners of the slots when any has changed. A primary that copies the data of another server before it
 * leads its shard again gets writes that are not its own: the target would miss them. */
static void check_owners(struct job *job) {
    const struct slot_table *slots = &this_cluster->slots;
    if (job->owners_version == slots->version) {
        if (role_is_replica() && job->state != JOB_EXPORT_GRANTED)
            job_fail_later(job, "A failover occurred during slot export");
        return;
    }
    job->owners_version = slots->version;
    const struct cluster_node *myself = this_cluster->myself;
    bool ours = node_is_primary(myself), theirs = true;
    const struct cluster_node *target = nodes_find(&this_cluster->nodes, &job->target);
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(&job->slots, slot)) continue;
        const struct cluster_node *owner = slots->owner[slot];
        ours &= owner == myself || (!owner && target); /* DELSLOTS: it may be added again. RESET forgets the target */
        theirs &= owner && target && (owner == target || nodes_share_shard(owner, target));
    }
    if (ours) return;
    if (job->cancelled) {
        job_fail_later(job, "");
    } else if (theirs && job->state == JOB_EXPORT_GRANTED) {
        log_notice("Slot migration %s slots are now owned by target node.", job_text(job));
        job->failing_as = JOB_SUCCESS;
        job_fail_later(job, "");
    } else {
        log_warning("Slot migration %s contains slots that are no longer all owned by myself", job_text(job));
        job_fail_later(job, "Slots are no longer owned by myself");
    }
}

bool exports_await_claim(const struct job *except) {
    list_each(&jobs_in_progress, link) {
        const struct job *job = job_in_progress(link);
        if (job != except && job->state == JOB_EXPORT_GRANTED && !job->is_tracked && !job->is_refused) return true;
    }
    return false;
}

bool migration_awaits_claim(void) {
    return exports_await_claim(NULL);
}

/* False: not yet. */
static bool grant_is_recorded(struct job *job) {
    if (!granted_is_asked(job)) return true; /* a target that cannot be asked: target_has_refused() */
    if (!job->is_recorded) {
        granted_record(job);
        hold_clients(job);
    }
    if (job->committed_at < 0) job->committed_at = role->position.offset;
    return sync_has_committed(job->committed_at);
}

/* The bus is another link: the target may not have heard of this node's epoch, or of an election for which this node
 * has voted, when it gets the grant, and other nodes may have. They would not believe a claim with a smaller epoch, and
 * one with the epoch of the election would have two owners. */
static void send_grant(struct job *job) {
    const struct cluster_node *target = nodes_find(&this_cluster->nodes, &job->target);
    char epoch[NUMBER_TEXT_MAX];
    if (target && target->features & OWN_FEATURE_SLOT_OUTCOME)
        job_send_words(job, 5,
                       (struct slice[]){SLICE("CLUSTER"),
                                        SLICE("SYNCSLOTS"),
                                        SLICE("FAILOVER-GRANTED"),
                                        SLICE("EPOCH"),
                                        {epoch, format_uint64(epoch, this_cluster->current_epoch)}});
    else
        job_send(job, "FAILOVER-GRANTED");
}

void export_step(struct job *job) {
    if (job->is_recorded && job->state == JOB_EXPORT_GRANTED) {
        granted_step(job);
        return;
    }
    check_owners(job);
    if (job->failing) return;
    if (job->state == JOB_CONNECTING && !job->conn && !waits_for_outcome(job)) dial(job);
    if (job->state == JOB_WAITING_TO_SNAPSHOT) begin_snapshot(job);
    if ((job->state == JOB_REPLICATING && job->pause_requested) || job->state == JOB_WAITING_TO_PAUSE)
        pause_if_ready(job);
    if (job->state != JOB_FAILOVER_PAUSED || !job->failover_requested) return;
    if (may_take_slots()) return;
    if (sync_on) {
        /* Not after its writes went on, nor if another node may lead this shard. Afterwards they go on when the outcome
         * is known. So do reads: the target may serve newer data. */
        if (clock_monotonic_ms() >= job->paused_until_ms || !clients_paused_for(PAUSE_SLOT_MIGRATION)) return;
        if (!sync_leads_for_certain() || !grant_is_recorded(job)) return;
        job->paused_until_ms = INT64_MAX;
        job->unknown_ms = 0;
    } else {
        granted_note_target(job);
        pause_writes(job, GRANTED_PAUSE_MS);
    }
    job_set_state(job, JOB_EXPORT_GRANTED);
    hold_clients(job);
    send_grant(job);
}

/* With synchronous replication and a target that does not know SYNCSLOTS OUTCOME, the source goes on only when it is
 * certain that the target did not take the slots (if it did, check_owners() ends the job): it, or a successor of it,
 * speaks on the bus long after the link broke, and does not claim them. */
static bool target_has_refused(struct job *job) {
    const struct cluster_node *target = nodes_find(&this_cluster->nodes, &job->target), *speaker = NULL;
    int64_t now = cluster_now(), timeout = config_number("cluster-node-timeout");
    if (!granted_knows_shard(job)) return true; /* forgotten: an operator's decision */
    if (job->client && (clock_mono_ms() - job->changed_ms > GRANTED_PAUSE_MS || !target || node_failed(target)))
        client_free(job->client);
    if (job->client) return false;
    if (!job->unknown_ms) job->unknown_ms = now;
    int64_t least = timeout;
    if (target && node_is_primary(target) && !node_failed(target)) {
        speaker = target;
        if (!sync_on) least = ON_THE_WAY_MS;
    } else { /* a successor makes up its mind first: import.c */
        least = 2 * config_number("cluster-manual-failover-timeout") + 4 * timeout;
        for (size_t i = 0; i < this_cluster->nodes.count; i++) {
            const struct cluster_node *node = this_cluster->nodes.list[i];
            if (node != target && node_votes(node) && node_id_equal(&node->shard, &job->target_shard)) speaker = node;
        }
    }
    return speaker && speaker->beat->data_received_ms > job->unknown_ms + least;
}

void export_tick(struct job *job) {
    int64_t now = clock_mono_ms();
    if (job->is_tracked) return;
    bool paused = clients_paused_for(PAUSE_SLOT_MIGRATION);
    /* Another job, or a grant in the stream, may hold the clients for longer than this job may. */
    if (job->state == JOB_FAILOVER_PAUSED && (!paused || clock_mono_ms() >= job->paused_until_ms)) {
        job_fail_later(job, "Unpaused before failover completed");
        return;
    }
    if (job->state == JOB_EXPORT_GRANTED && job->is_recorded) return;
    if (job->state == JOB_EXPORT_GRANTED && sync_on) {
        job->is_refused = job->is_refused || target_has_refused(job);
        if (!job->is_refused || exports_await_claim(job)) return;
        cluster_bump_epoch(this_cluster, cluster_now()); /* above that of a claim that may still come */
        job_fail_later(job, "The target did not take the slots");
        return;
    }
    if (job->state == JOB_EXPORT_GRANTED) {
        granted_ask_cancelled(job);
        if (job->cancelled && (!paused || job->is_refused || target_has_refused(job))) {
            job_fail_later(job, "");
        } else if (!paused) {
            log_warning("Write loss risk! During slot migration %s, new owner did not broadcast ownership before we "
                        "unpaused ourselves. Any writes we have recorded since unpausing may be lost!",
                        job_text(job));
            job_fail_later(job, "Unpaused before migration completed (migration may have succeeded with lost writes)");
        }
        return;
    }
    if (job->state == JOB_CONNECTING && !job->conn) return; /* waits_for_outcome() */
    if (now - job->heard_ms > (int64_t)repl_settings.timeout * 1000) {
        log_warning("Timing out slot migration %s after not receiving ack for too long", job_text(job));
        job_fail_later(job, "Timed out after too long with no interaction");
        return;
    }
    if (!job->client || (job->state == JOB_SNAPSHOTTING && !snapshot_lets_send(job)) ||
        now - job->sent_ms < ACK_INTERVAL_MS)
        return;
    job->sent_ms = now;
    job_send(job, "ACK");
}
