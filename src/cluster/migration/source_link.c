/* source_link.c: the link of an export: the connection to the target.
 *
 * When the target has accepted, the connection gets a client, with the flags CLIENT_MIGRATION and CLIENT_REPLICA: its
 * output is limited like that of a replica, and no command of it is dispatched. */
#include "cluster/migration/source_link.h"
#include "cluster/migration/link.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "net/reply_line.h"
#include "repl/link_transport.h"
#include "repl/settings.h"
#include "resp/request.h"
#include "server/clients/listeners.h"
#include "server/clients/user.h"
#include "server/config/tls_options.h"
#include "server/server.h"
#include <string.h>

enum {
    ANSWER_MAX = 16 * 1024, /* bytes of a reply of the handshake */
    IN_LIMIT = 64 * 1024,
    RDMA_TIMEOUT_MS = 5000 /* of a connect */
};
static const struct request_limits limits = {.multibulk_max = 16, .bulk_max = 1024};
static const char failed_command[] = "Failed to process command during slot migration. Check logs for more information";

/* --- Messages of the target --- */

static void source_received(struct slot_export *export, int argc, const struct slice *argv) {
    static struct slot_ranges ranges;
    struct slot_message message;
    if (argc == 0) return;
    if (argc < 3 || !slice_is(argv[0], "cluster") || !slice_is(argv[1], "syncslots")) {
        log_warning("Received a command that is not part of the protocol from slot migration %s: %.*s",
                    export_text(export), argv[0].len > 32 ? 32 : (int)argv[0].len, argv[0].data);
        job_end_later(&export->job, failed_command);
        return;
    }
    slot_message_parse(&message, argc, argv, &ranges);
    export_received(&migrations, export, &message, migration_now());
}

static void read_requests(struct slot_export *export) {
    struct client *client = export_client(export);
    struct connection *conn = client->conn;
    while (!export->job.ending && conn->in_len) {
        enum request_status status = request_read(&client->reader, conn_peek(conn), &limits);
        if (status == REQUEST_PARTIAL) return;
        if (status != REQUEST_READY) {
            log_warning("Protocol error from slot migration %s", export_text(export));
            job_end_later(&export->job, failed_command);
            return;
        }
        client->active_ms = clock_mono_ms();
        struct command *parent, *command = command_lookup(client->reader.argc, client->reader.argv, &parent);
        if (command) client->current = command;
        source_received(export, client->reader.argc, client->reader.argv);
        conn_consume(conn, client->reader.size);
        request_done(&client->reader);
    }
}

static void source_readable(struct connection *conn) {
    struct slot_job *job = job_of_client(conn->owner);
    if (job) read_requests(export_of(job));
}
static void source_closed(struct connection *conn) {
    struct client *client = conn->owner;
    if (conn->error)
        log_verbose("Reading from client: %s", conn_error_text(conn));
    else
        log_verbose("Client closed connection %s", client_log_text(client));
    client_free(client);
}
static const struct connection_events link_events = {.readable = source_readable, .closed = source_closed};

/* --- The handshake --- */

void source_accepted(void *context, struct slot_export *export) {
    struct job_link *link = link_of(&export->job);
    struct connection *conn = link->conn;
    struct client *client = client_new(conn);
    static struct null_output replies;
    if (!replies.out.ops) null_output_init(&replies);
    client->user = &user_superuser;
    client->authenticated = true;
    client->flags |= CLIENT_MIGRATION | CLIENT_REPLICA;
    client->reply.out = &replies.out;
    client->reply.protocol = 2;
    conn->owner = client;
    conn->events = &link_events;
    conn_set_trusted(conn, true);
    conn_set_in_limit(conn, IN_LIMIT);
    link->conn = NULL;
    link_attach(&export->job, client);
}

static void handshake_connected(struct connection *conn) {
    export_connected(&migrations, conn->owner, migration_now());
}

static void handshake_readable(struct connection *conn) {
    struct slot_export *export = conn->owner;
    struct slice line;
    ssize_t used = reply_line_read(conn_peek(conn), ANSWER_MAX, &line);
    if (used < 0) job_end_later(&export->job, "Response to establish job is larger than buffer limit");
    if (used <= 0) return;
    if (line.len && line.data[0] == '-') { /* it ends the job, and the connection */
        export_answered(&migrations, export, line, migration_now());
        return;
    }
    conn_consume(conn, (size_t)used);
    export_answered(&migrations, export, SLICE("+OK"), migration_now());
    if (export_client(export)) read_requests(export);
}

static void handshake_closed(struct connection *conn) {
    struct slot_export *export = conn->owner;
    struct job_link *link = link_of(&export->job);
    bool connecting = export->state == EXPORT_CONNECTING;
    if (connecting && link_is_rdma(conn)) {
        log_warning("Slot migration %s: no RDMA connection to the target (%s). Using %s", export_text(export),
                    conn_error_text(conn), link_without_rdma());
        link->tcp_only = true;
        link->conn = NULL;
        conn_close(conn);
        export_dial_again(export);
        return;
    }
    export_handshake_failed(&migrations, export, connecting || conn->error ? conn_error_text(conn) : "",
                            migration_now());
}

static const struct connection_events handshake_events = {
    .connected = handshake_connected, .readable = handshake_readable, .closed = handshake_closed};

void source_dial(void *context, struct slot_export *export, const struct cluster_node *target) {
    struct job_link *link = link_of(&export->job);
    bool tls = tls_for_replication();
    /* Only our servers announce an RDMA port. */
    const struct transport *rdma = target->rdma_port && !link->tcp_only ? link_rdma_transport() : NULL;
    int port = rdma ? target->rdma_port : tls ? target->tls_port : target->port;
    uint32_t timeout_ms = (uint32_t)repl_settings.timeout * 1000;
    log_notice("Connecting slot migration %s (ip: %s, port %d)", export_text(export), target->address, port);
    struct connect_options options = {.host = target->address,
                                      .port = port,
                                      .source_host = outgoing_source(),
                                      .source_optional = true,
                                      .timeout_ms = rdma && timeout_ms > RDMA_TIMEOUT_MS ? RDMA_TIMEOUT_MS : timeout_ms,
                                      .events = &handshake_events,
                                      .owner = export};
    const struct transport *stream = transport_find(tls ? "tls" : "tcp");
    link->conn = conn_connect(rdma ? rdma : stream, server.loop, &options);
    conn_set_in_limit(link->conn, 2 * ANSWER_MAX);
}
