/* replica.c: the link of a replica to its primary: connection, handshake, partial synchronization, retry.
 *
 * The link is a state machine on one connection. The replica sends PING; then, together, AUTH and the REPLCONF commands
 * that describe it; then PSYNC with the position up to which it has the history. The primary accepts (+CONTINUE), sends
 * a full copy (+FULLRESYNC), or asks for a second connection (+DUALCHANNELSYNC). A primary that does not know PSYNC or
 * a REPLCONF option replies with an error, and the handshake continues without it.
 *
 * Every failure ends in replica_link_lost(): the connection is closed and the next attempt begins within a second. The
 * position (role->position) survives a lost link and REPLICAOF to another primary, so that the next PSYNC may be
 * partial. It is forgotten when a full copy begins to replace the data.
 *
 * link_connect() chooses the transport of the connection. */
#include "repl/replica.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "repl/link_transport.h"
#include "repl/pull_replica.h"
#include "repl/pull_wire.h"
#include "repl/repl_stream.h"
#include "repl/sync/sync.h"
#include "resp/request.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/listeners.h"
#include "server/cluster_hooks.h"
#include "server/command/dispatch.h"
#include "server/config/tls_options.h"
#include "server/role.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* After this many failed fetches in a row the replica asks for an ordinary copy. */
enum { PULLS_FAILED_MAX = 2 };
enum { REFUSED_WAIT_US = 10 * 1000 * 1000, RECONNECT_US = 1000 * 1000 };

enum phase {
    PHASE_OFF,     /* not a replica */
    PHASE_WAIT,    /* no connection: the cron tries again */
    PHASE_CONNECT, /* the connection is being made */
    PHASE_PING,    /* waiting for the reply to PING */
    PHASE_DESCRIBE,
    PHASE_PSYNC,
    PHASE_HEADER, /* +FULLRESYNC was received; the header of the copy comes next */
    PHASE_COPY,   /* sync_load.c or dual_channel.c owns the connection */
    PHASE_STREAM  /* apply.c owns it */
};

static struct {
    enum phase phase;
    struct connection *conn;
    uint64_t heard_us;             /* monotonic: last bytes received during the handshake */
    uint64_t connect_us;           /* monotonic: when the last connect began */
    bool failover;                 /* the next PSYNC asks the primary to hand over (FAILOVER) */
    bool dual;                     /* dual_channel.c owns the connection */
    bool failed;                   /* the last attempt reached the primary and failed: for the log */
    bool known;                    /* a connection to this primary was made before: the next one is a reconnect */
    struct stream_position copied; /* of the full copy, from +FULLRESYNC */
    uint64_t refused_us, retry_us; /* monotonic: when a stream last could not be executed; earliest next attempt */
    unsigned pulls_failed;         /* fetches by RDMA READ that failed in a row */
    const char *answers[12];       /* PHASE_DESCRIBE: the subjects of the replies still to come, in order */
    int answers_count, answers_next;
} link;

struct replica_settings replica_settings;

static struct event_deferred reconnect;

/* --- Closing and waiting --- */

static void handshake_close(void) {
    sync_link_lost();
    if (link.phase == PHASE_COPY) {
        if (link.dual) dual_channel_cancel();
        sync_cancel();
    }
    link.dual = false;
    if (link.phase == PHASE_STREAM)
        apply_stop();
    else if (link.conn)
        conn_close(link.conn);
    link.conn = NULL;
}

/* Closes the link's connection; the cron connects again within a second. Keeps the position for a partial
 * synchronization. */
static void replica_link_lost(void) {
    if (link.phase == PHASE_OFF) return;
    link.failed = link.known = link.phase >= PHASE_PING;
    handshake_close();
    link.phase = PHASE_WAIT;
    role_sync.read_ahead = 0;
    role_set_link(ROLE_LINK_CONNECT);
}

void replica_forget_position(void) {
    if (role->position.known) log_notice("Discarding previously cached primary state.");
    role_set_position_known(false);
    sync_data_lost();
}

/* If the stream fails again soon after a full copy, the next attempt is delayed: each costs the primary a snapshot. */
void replica_stream_refused(void) {
    uint64_t now = clock_mono();
    bool again = link.refused_us && now - link.refused_us < REFUSED_WAIT_US;
    link.refused_us = now;
    link.retry_us = again ? now + REFUSED_WAIT_US : 0;
    replica_forget_position();
}

static void fail(const char *what, const char *reply) {
    log_warning(what, reply);
    replica_link_lost();
}

/* --- Sending --- */

void replica_send(struct connection *conn, int argc, const struct slice *argv) {
    request_write(&conn->out, argc, argv);
    conn_flush(conn);
}

int replica_auth(struct slice argv[static 3]) {
    int argc = 0;
    if (!replica_settings.primary_auth.len) return 0;
    argv[argc++] = SLICE("AUTH");
    if (*replica_settings.primary_user) argv[argc++] = slice_of(replica_settings.primary_user);
    argv[argc++] = replica_settings.primary_auth;
    return argc;
}

void replica_send_auth(struct connection *conn) {
    struct slice argv[3];
    int argc = replica_auth(argv);
    if (argc) replica_send(conn, argc, argv);
}

int replica_listening_port(void) {
    if (replica_settings.announce_port) return replica_settings.announce_port;
    if (tls_for_replication() && listeners_tls_port()) return listeners_tls_port();
    /* tls-replication may serve only the connection to the primary. A server without a port of TCP and TLS is reached
     * over RDMA only: REPLICAOF and `sentinel rdma yes` use this port then. */
    return listeners_port() ? listeners_port() : listeners_rdma_port();
}

static void expect(const char *what) {
    link.answers[link.answers_count++] = what;
}

static void send_description(struct connection *conn) {
    char port[12];
    link.answers_count = link.answers_next = 0;
    if (replica_settings.primary_auth.len) {
        replica_send_auth(conn);
        expect("AUTH");
    }
    snprintf(port, sizeof port, "%d", replica_listening_port());
    replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("listening-port"), slice_of(port)});
    expect("listening-port");
    if (*replica_settings.announce_ip) {
        replica_send(conn, 3,
                     (struct slice[]){SLICE("REPLCONF"), SLICE("ip-address"), slice_of(replica_settings.announce_ip)});
        expect("ip-address");
    }
    if (link_asks_port()) {
        snprintf(port, sizeof port, "%d", link_announced_port());
        replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("rdma-port"), slice_of(port)});
        expect("rdma-port");
    }
    if (pull_fetch_possible(conn) && link.pulls_failed < PULLS_FAILED_MAX) {
        struct slice capability = slice_of(pull_fetch_capability(conn));
        replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("capa"), capability});
        expect("capa rdma-pull");
    }
    if (server.cluster_enabled) {
        replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("capa"), SLICE(REPL_OWN_CAPABILITY)});
        expect("capa " REPL_OWN_CAPABILITY);
    }
    struct slice capa = SLICE("capa"),
                 words[9] = {SLICE("REPLCONF"), capa, SLICE("eof"), capa, SLICE("psync2"), capa, {0}, capa, {0}};
    int count = 5;
    if (sync_needs_no_checksum(conn)) words[count + 1] = SLICE(REPL_NO_CHECKSUM_CAPABILITY), count += 2;
    if (repl_settings.dual_channel) words[count + 1] = SLICE("dual-channel"), count += 2;
    replica_send(conn, count, words);
    expect("capa");
    replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("version"), SLICE(SERVER_VERSION)});
    expect("VERSION");
    if (sync_on) {
        struct memory_output text;
        memory_output_init(&text);
        sync_write_hello(&text.out);
        replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("SYNC-HELLO"), memory_output_slice(&text)});
        memory_output_free(&text);
        expect("SYNC-HELLO");
    }
    if (cluster_hooks) {
        struct slice id = cluster_hooks->node_id();
        replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("set-cluster-node-id"), id});
        expect("SET-CLUSTER-NODE-ID");
    }
}

static void send_psync(struct connection *conn) {
    char offset[24] = "-1";
    struct slice id = SLICE("?");
    if (role->position.known) {
        snprintf(offset, sizeof offset, "%lld", (long long)role->position.offset + 1);
        id = slice_of(role->position.id);
        log_notice("Trying a partial resynchronization (request %s:%s).", id.data, offset);
    } else {
        log_notice("Partial resynchronization not possible (no cached primary)");
    }
    struct slice words[] = {SLICE("PSYNC"), id, slice_of(offset), SLICE("FAILOVER")};
    replica_send(conn, link.failover ? 4 : 3, words);
}

/* --- Receiving --- */

int replica_read_line(struct connection *conn, char line[static REPLICA_LINE_MAX]) {
    struct slice in = conn_peek(conn);
    size_t window = in.len < REPLICA_LINE_MAX ? in.len : REPLICA_LINE_MAX;
    const char *end = window ? memchr(in.data, '\n', window) : NULL;
    if (!end && in.len < REPLICA_LINE_MAX) return -1;
    if (!end) {
        memcpy(line, in.data, REPLICA_LINE_SHOWN);
        line[REPLICA_LINE_SHOWN] = 0;
        return -2;
    }
    size_t len = (size_t)(end - in.data), text = len && end[-1] == '\r' ? len - 1 : len;
    memcpy(line, in.data, text);
    line[text] = 0;
    conn_consume(conn, len + 1);
    return (int)text;
}

static bool starts(const char *line, const char *with) {
    return strncmp(line, with, strlen(with)) == 0;
}

static void got_ping(const char *line) {
    /* -NOAUTH, -NOPERM and "operation not permitted" (the error of old versions): AUTH follows. -MISCONF: the primary's
     * last snapshot failed; the snapshot for this replica may succeed and clear the error. -MASTERDOWN: the target of a
     * failover is still a replica. */
    bool hands_over = link.failover && starts(line, "-MASTERDOWN");
    if (line[0] != '+' && !hands_over && !starts(line, "-NOAUTH") && !starts(line, "-NOPERM") &&
        !starts(line, "-ERR operation not permitted") && !starts(line, "-MISCONF")) {
        fail("Error reply to PING from primary: '%s'", line);
        return;
    }
    log_notice("Primary replied to PING, replication can continue...");
    send_description(link.conn);
    link.phase = PHASE_DESCRIBE;
}

static void connect_now(void);

static void got_description(const char *line) {
    const char *what = link.answers[link.answers_next++];
    if (strcmp(what, "rdma-port") == 0 && link_learn_port(link.conn, slice_of(line))) {
        replica_link_lost();
        link.known = false;
        connect_now();
        return;
    }
    if (strcmp(what, "SYNC-HELLO") == 0) {
        const char *reason = sync_welcomed(line);
        if (reason && !link.failover) { /* FAILOVER: the other server does not lead yet; PSYNC asks it to */
            fail("Synchronous replication: this server does not follow the primary: %s", reason);
            return;
        }
    } else if (line[0] == '-') {
        if (strcmp(what, "AUTH") == 0) {
            fail("Unable to AUTH to PRIMARY: %s", line);
            return;
        }
        log_notice("(Non critical) Primary does not understand REPLCONF %s: %s", what, line);
    }
    if (link.answers_next < link.answers_count) return;
    send_psync(link.conn);
    link.phase = PHASE_PSYNC;
}

static bool is_id(const char *text, size_t len) {
    return len == REPL_ID_LEN && strspn(text, "0123456789abcdefABCDEF") >= REPL_ID_LEN;
}

static void got_full_resync(const char *line) {
    const char *id = line + strlen("+FULLRESYNC "), *space = strchr(id, ' ');
    int64_t offset;
    if (!space || !is_id(id, (size_t)(space - id)) || !parse_int64(slice_of(space + 1), &offset) || offset < 0 ||
        offset > INT64_MAX / 2) {
        fail("Primary replied with wrong +FULLRESYNC syntax: %s", line);
        return;
    }
    link.copied = (struct stream_position){.offset = offset, .db = STREAM_DB_NONE};
    memcpy(link.copied.id, id, REPL_ID_LEN);
    log_notice("Full resync from primary: %s:%lld", link.copied.id, (long long)offset);
    link.phase = PHASE_HEADER;
}

static void follow_stream(struct connection *conn) {
    link.conn = conn;
    role_set_position_known(true);
    link.phase = PHASE_STREAM;
    link.failover = false;
    role_set_link(ROLE_LINK_CONNECTED);
    if (!repl_stream_has_backlog()) repl_stream_create_backlog();
    apply_start(conn);
    sync_stream_joined();
}

const char *replica_continue_id(const char *line) {
    static const char head[] = "+CONTINUE";
    if (!starts(line, head)) return NULL;
    const char *id = line + strlen(head);
    if (!*id) return id;
    if (*id++ != ' ') return NULL;
    return !*id || is_id(id, strlen(id)) ? id : NULL;
}

static void got_continue(const char *line) {
    const char *id = replica_continue_id(line);
    if (!id) {
        fail("Primary replied with wrong +CONTINUE syntax: %s", line);
        return;
    }
    log_notice("Successful partial resynchronization with primary.");
    if (*id && strcmp(id, role->position.id) != 0) {
        log_notice("Primary replication ID changed to %s", id);
        repl_history_rename(slice_of(id));
        repl_disconnect_replicas("the primary's replication ID changed");
    }
    log_notice("PRIMARY <-> REPLICA sync: Primary accepted a Partial Resynchronization.");
    follow_stream(link.conn);
}

/* The reply to SYNC has no replication id. A random one begins a history that no other server can continue. */
static void got_old_full_copy(void) {
    link.copied = (struct stream_position){.db = STREAM_DB_NONE};
    random_hex(link.copied.id, REPL_ID_LEN);
    link.phase = PHASE_HEADER;
}

static void dual_channel_done(bool synchronized) {
    link.dual = false;
    if (!synchronized) replica_link_lost();
}

static void got_psync(const char *line) {
    if (sync_on && line[0] == '+' && !sync_acks_at_once()) { /* it began to lead after it refused SYNC-HELLO */
        replica_link_lost();
    } else if (starts(line, "+FULLRESYNC ")) {
        got_full_resync(line);
    } else if (strcmp(line, "+CONTINUE") == 0 || starts(line, "+CONTINUE ")) {
        if (role->position.known)
            got_continue(line);
        else
            fail("Primary continues a history that this replica did not ask for: %s", line);
    } else if (starts(line, "+DUALCHANNELSYNC")) {
        log_notice("Dual channel replication: PSYNC is not possible, initialize RDB channel.");
        link.phase = PHASE_COPY;
        link.dual = true;
        dual_channel_start(link.conn, dual_channel_done);
    } else if (starts(line, "-NOMASTERLINK") || starts(line, "-LOADING")) {
        log_notice("Primary is currently unable to PSYNC but should be in the future: %s", line);
        replica_link_lost();
    } else if (link.failover) {
        log_notice("Failover target refuses to take over: %s", line);
        repl_failover_refused();
    } else {
        if (starts(line, "-ERR"))
            log_notice("Primary does not support PSYNC or is in error state (reply: %s)", line);
        else
            log_warning("Unexpected reply to PSYNC from primary: %s", line);
        log_notice("Retrying with SYNC...");
        output_write(&link.conn->out, SLICE("SYNC\r\n"));
        conn_flush(link.conn);
        got_old_full_copy();
    }
}

static void copy_done(bool loaded) {
    if (loaded)
        link.pulls_failed = 0;
    else if (sync_was_pulled())
        link.pulls_failed++;
    if (loaded)
        replica_synchronized(link.conn, &link.copied);
    else
        replica_link_lost();
}

void replica_synchronized(struct connection *conn, const struct stream_position *at) {
    bool local_changes = role->position.local_changes; /* by clients, since the copy was loaded (dual channel) */
    repl_history_adopt(at);
    if (local_changes) role_note_local_change();
    sync_data_copied();
    follow_stream(conn);
    log_notice("PRIMARY <-> REPLICA sync: Finished with success");
}

static void got_header(const char *line) {
    if (line[0] == '-') {
        fail("PRIMARY aborted replication with an error: %s", line + 1);
        return;
    }
    if (line[0] != '$') {
        fail("Bad protocol from PRIMARY, the first byte is not '$' (we received '%s'), are you sure the host and port "
             "are right?",
             line);
        return;
    }
    link.phase = PHASE_COPY;
    if (!sync_start(link.conn, line, &link.copied, copy_done)) {
        if (sync_was_pulled()) link.pulls_failed = PULLS_FAILED_MAX;
        replica_link_lost();
    }
}

static void readable(struct connection *conn) {
    char line[REPLICA_LINE_MAX];
    link.heard_us = clock_mono();
    while (conn == link.conn && link.phase < PHASE_COPY) {
        int len = replica_read_line(conn, line);
        if (len == -1) return;
        if (len == -2) {
            if (link.phase == PHASE_PING && line[0] == '-') /* protected mode refuses with a long text */
                fail("Error reply to PING from primary: '%s'", line);
            else
                fail("Bad protocol from PRIMARY: %s", "a line of the handshake does not end");
            return;
        }
        if (len == 0) continue;
        switch (link.phase) {
        case PHASE_PING: got_ping(line); break;
        case PHASE_DESCRIBE: got_description(line); break;
        case PHASE_PSYNC: got_psync(line); break;
        case PHASE_HEADER: got_header(line); break;
        default: fail("Unexpected message from PRIMARY: %s", line); return;
        }
    }
}

static void closed(struct connection *conn) {
    if (link.phase == PHASE_CONNECT && link_connect_failed(conn, conn_error_text(conn))) {
        conn_close(conn);
        connect_now();
        return;
    }
    if (link.phase == PHASE_CONNECT)
        log_warning("Error condition on socket for SYNC: %s", conn_error_text(conn));
    else
        log_warning(link.phase == PHASE_HEADER ? "I/O error reading bulk count from PRIMARY: %s"
                                               : "Failed to read response from the server: %s",
                    conn->error ? conn_error_text(conn) : "Connection closed by the primary");
    replica_link_lost();
}

/* --- Connecting --- */

static void connected(struct connection *conn) {
    log_notice("Non blocking connect for SYNC fired the event.");
    link_connected(conn);
    link.heard_us = clock_mono();
    link.phase = PHASE_PING;
    role_set_link(ROLE_LINK_HANDSHAKE);
    replica_send(conn, 1, (struct slice[]){SLICE("PING")});
}

static const struct connection_events events = {.connected = connected, .readable = readable, .closed = closed};

static void connect_now(void) {
    if (link.known)
        log_notice("Reconnecting to PRIMARY %s:%d%s", role->host, role->port, link.failed ? " after failure" : "");
    else
        log_notice("Connecting to PRIMARY %s:%d", role->host, role->port);
    link.known = link.failed = false;
    link.connect_us = clock_mono();
    link.phase = PHASE_CONNECT;
    link.heard_us = clock_mono();
    link.conn = link_connect(&events, (uint32_t)(repl_timeout_us() / 1000));
    log_notice("PRIMARY <-> REPLICA sync started");
    role_set_link(ROLE_LINK_CONNECTING);
}

/* --- Roles --- */

static void log_cached_position(void) {
    log_notice(
        "Before turning into a replica, using my own primary parameters to synthesize a cached primary: I may be "
        "able to synchronize with the new primary with just a partial transfer.");
}

void repl_follow(struct slice host, int port, enum repl_follow how) {
    bool was_replica = role->is_replica, failover = how == REPL_FOLLOW_FAILOVER;
    handshake_close();
    link.known = false;
    role_follow(host, port);
    if (!failover) repl_end_waits(); /* failover.c does it when the failover has succeeded */
    if (!was_replica && how != REPL_FOLLOW_UNRELATED) {
        log_cached_position();
        role_set_position_known(true);
    }
    if (how == REPL_FOLLOW_UNRELATED && role->position.known) {
        log_notice("Discarding previously cached primary state.");
        role_set_position_known(false);
    }
    /* The target of a failover is one of the replicas. Without its link it would refuse PSYNC if it serves no stale
     * data. The links end when this server continues the target's history or receives its data. */
    if (!failover) repl_disconnect_replicas("the primary of this server changed");
    link.phase = PHASE_WAIT;
    link.failover = failover;
    connect_now();
}

void repl_lead(void) {
    if (!role->is_replica) return;
    log_set_role('M'); /* in the lines about the end of the link, too */
    handshake_close();
    log_set_role('M'); /* the end of the link has set the letter of the present role */
    link.phase = PHASE_OFF;
    link.failover = false;
    if (role->position.known) log_notice("Discarding previously cached primary state.");
    role_set_position_known(false);
    role_sync.read_ahead = 0;
    role_lead();
    repl_history_branch();
    repl_disconnect_replicas("this server became a primary");
}

void repl_drop_link(bool again) {
    if (link.phase == PHASE_OFF) return;
    handshake_close();
    link.failover = false;
    link.phase = again ? PHASE_WAIT : PHASE_OFF;
    role_sync.read_ahead = 0;
    role_set_link(ROLE_LINK_CONNECT);
}

static void replicaof_run(struct call *call) {
    struct slice host = call->argv[1], port_text = call->argv[2];
    int64_t port;
    if (server.cluster_enabled) {
        reply_error(call->reply, "ERR REPLICAOF not allowed in cluster mode.");
        return;
    }
    if (repl_failover_running()) {
        reply_error(call->reply, "ERR REPLICAOF not allowed while failing over.");
        return;
    }
    if (slice_is(host, "no") && slice_is(port_text, "one")) {
        if (sync_on) {
            if (!sync_leads()) sync_stand();
        } else if (role->is_replica) {
            repl_lead();
            log_notice("PRIMARY MODE enabled (user request from '%s')", client_requester_text(call->client));
        }
        reply_ok(call->reply);
        return;
    }
    if (call->client->flags & CLIENT_REPLICA) {
        reply_error(call->reply, "ERR Command is not valid when client is a replica.");
        return;
    }
    if (!parse_int64(port_text, &port) || port < 0 || port > 65535) {
        reply_error(call->reply, "ERR Invalid master port");
        return;
    }
    bool follows = role->is_replica && link.phase != PHASE_OFF && !sync_stands();
    if (follows && slice_is(host, role->host) && role->port == port) {
        log_notice("REPLICAOF would result into synchronization with the primary we are already connected with. No "
                   "operation performed.");
        reply_status(call->reply, "OK Already connected to specified master");
        return;
    }
    sync_follow();
    repl_follow(host, (int)port, REPL_FOLLOW);
    log_notice("REPLICAOF %.*s:%d enabled (user request from '%s')", (int)host.len, host.data, (int)port,
               client_requester_text(call->client));
    reply_ok(call->reply);
}

/* --- The cron --- */

static void check_timeout(void) {
    if (clock_mono() - link.heard_us <= repl_timeout_us()) return;
    if (link.phase >= PHASE_CONNECT && link.phase <= PHASE_HEADER) {
        log_warning("Timeout connecting to the PRIMARY...");
        replica_link_lost();
    } else if (link.phase == PHASE_STREAM && (uint64_t)(clock_mono_ms() - role->heard_ms) * 1000 > repl_timeout_us()) {
        log_warning("PRIMARY timeout: no data nor PING received...");
        replica_link_lost();
    }
}

static void cron(void) {
    static uint64_t last_us;
    if (link.phase == PHASE_OFF || server_is_loading()) return;
    if (clock_mono() - last_us < 1000000) return;
    last_us = clock_mono();
    check_timeout();
    if (link.phase == PHASE_COPY) {
        if (link.dual) dual_channel_cron();
        if (link.phase == PHASE_COPY) sync_check_timeout();
    } else if (link.phase == PHASE_STREAM) {
        apply_cron();
    } else if (link.phase == PHASE_WAIT && clock_mono() >= link.retry_us) {
        connect_now();
    }
}

/* A server that the configuration makes a replica connects after it has loaded the data set, whose AUX fields may give
 * it a position. */
static void start(void) {
    if (role->is_replica) link.phase = PHASE_WAIT;
}

static void before_wait(void) {
    static bool begun;
    apply_before_wait();
    if (begun || server.loading) return;
    begun = true;
    if (link.phase != PHASE_WAIT) return;
    role_set_position_known(role->position.offset > 0);
    if (role->position.known) log_cached_position();
    connect_now();
}

static void reconnect_now(struct event_deferred *deferred) {
    if (link.phase == PHASE_WAIT && !server.loading && !server.async_loading) connect_now();
}

void replica_stream_ended(void) {
    if (link.phase != PHASE_STREAM) return;
    sync_link_lost();
    link.conn = NULL;
    link.phase = PHASE_WAIT;
    link.known = true;
    link.failed = false;
    role_set_link(ROLE_LINK_CONNECT);
    /* Reconnect immediately, unless the last connect was less than RECONNECT_US ago: the primary may accept and close
     * each connection. */
    if (clock_mono() - link.connect_us > RECONNECT_US) event_loop_defer(server.loop, &reconnect, reconnect_now);
}

const struct server_part repl_replica_part = {
    .name = "replica", .start = start, .cron = cron, .before_wait = before_wait, .stop = sync_stop};

/* --- Options --- */

static const char *set_replicaof(const struct config_option *option, int count, const struct slice *words) {
    int64_t port;
    if (count == 0) return NULL;
    if (count != 2) return "wrong number of arguments";
    if (slice_is(words[0], "no") && slice_is(words[1], "one")) {
        role_lead();
        return NULL;
    }
    if (!parse_int64(words[1], &port) || port < 0 || port > 65535) return "Invalid primary port";
    role_follow(words[0], (int)port);
    return NULL;
}

static void get_replicaof(const struct config_option *option, struct output *out) {
    char port[12];
    if (!role->is_replica) return;
    output_write(out, slice_of(role->host));
    snprintf(port, sizeof port, " %d", role->port);
    output_write(out, slice_of(port));
}

/* A primary writes no line: genuine servers refuse an empty `replicaof`. A node of a cluster refuses any. */
static void rewrite_replicaof(const struct config_option *option, struct output *out) {
    if (!role->is_replica || server.cluster_enabled) return;
    output_write(out, SLICE("replicaof "));
    get_replicaof(option, out);
    output_write(out, SLICE("\n"));
}

static const struct config_name diskless_loads[] = {{"disabled", DISKLESS_LOAD_DISABLED},
                                                    {"on-empty-db", DISKLESS_LOAD_ON_EMPTY},
                                                    {"swapdb", DISKLESS_LOAD_SWAP},
                                                    {"flush-before-load", DISKLESS_LOAD_FLUSH},
                                                    {NULL, 0}};
static const struct config_name error_behaviors[] = {
    {"ignore", ERRORS_IGNORED}, {"panic", ERRORS_PANIC}, {"panic-on-replicas", ERRORS_PANIC_ON_REPLICAS}, {NULL, 0}};

const struct config_option repl_replica_options[] = {
    {.name = "replicaof",
     .alias = "slaveof",
     .type = CONFIG_CUSTOM,
     .flags = CONFIG_IMMUTABLE | CONFIG_MULTI_ARG,
     .initial = "",
     .set = set_replicaof,
     .get = get_replicaof,
     .rewrite = rewrite_replicaof},
    {.name = "primaryauth",
     .alias = "masterauth",
     .type = CONFIG_BYTES,
     .flags = CONFIG_SENSITIVE,
     .value = &replica_settings.primary_auth,
     .initial = ""},
    {.name = "primaryuser",
     .alias = "masteruser",
     .type = CONFIG_STRING,
     .flags = CONFIG_SENSITIVE,
     .value = &replica_settings.primary_user,
     .initial = ""},
    {.name = "replica-lazy-flush",
     .alias = "slave-lazy-flush",
     .type = CONFIG_BOOL,
     .value = &replica_settings.lazy_flush,
     .initial = "yes"},
    {.name = "replica-ignore-disk-write-errors",
     .type = CONFIG_BOOL,
     .value = &replica_settings.ignore_disk_errors,
     .initial = "no"},
    {.name = "replica-priority",
     .alias = "slave-priority",
     .type = CONFIG_INT,
     .value = &replica_settings.priority,
     .initial = "100",
     .min = 0,
     .max = INT32_MAX},
    {.name = "replica-announced", .type = CONFIG_BOOL, .value = &replica_settings.announced, .initial = "yes"},
    {.name = "replica-announce-ip",
     .alias = "slave-announce-ip",
     .type = CONFIG_STRING,
     .value = &replica_settings.announce_ip,
     .initial = ""},
    {.name = "replica-announce-port",
     .alias = "slave-announce-port",
     .type = CONFIG_INT,
     .value = &replica_settings.announce_port,
     .initial = "0",
     .min = 0,
     .max = 65535},
    {.name = "repl-diskless-load",
     .type = CONFIG_ENUM,
     .flags = CONFIG_DENY_LOADING,
     .value = &replica_settings.diskless_load,
     .initial = "disabled",
     .names = diskless_loads},
    {.name = "rdb-del-sync-files", .type = CONFIG_BOOL, .value = &replica_settings.delete_sync_files, .initial = "no"},
    {.name = "propagation-error-behavior",
     .type = CONFIG_ENUM,
     .value = &replica_settings.error_behavior,
     .initial = "ignore",
     .names = error_behaviors},
    {.name = NULL},
};

#define OF_REPLICATION                                                                                                 \
    .run = replicaof_run, .arity = 3,                                                                                  \
    .flags = CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_STALE | CMD_NO_ASYNC_LOADING, .group = GROUP_SERVER,         \
    .complexity = "O(1)"

const struct command_spec repl_replica_commands[] = {
    {.name = "replicaof",
     OF_REPLICATION,
     .since = "5.0.0",
     .summary = "Makes the server a replica of another one, or a primary.",
     .syntax = "args(host-port{host:string port:integer}|no-one{NO ONE})"},
    {.name = "slaveof",
     OF_REPLICATION,
     .since = "1.0.0",
     .summary = "Makes the server a replica of another one, or a primary.",
     .syntax = "args(host-port{host:string port:integer}|no-one{NO ONE})",
     .deprecated_since = "5.0.0",
     .replaced_by = "`REPLICAOF`"},
    {.name = NULL},
};
