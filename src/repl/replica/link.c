/* link.c: the link of a replica to its primary: connection, handshake, partial synchronization, retry.
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
#include "repl/replica/link.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "net/reply_line.h"
#include "repl/feed.h"
#include "repl/history.h"
#include "repl/link_transport.h"
#include "repl/primary/failover.h"
#include "repl/primary/replicas.h"
#include "repl/pull/replica.h"
#include "repl/quorum/quorum.h"
#include "repl/replica/apply.h"
#include "repl/replica/copy.h"
#include "repl/replica/dual_channel.h"
#include "repl/settings.h"
#include "repl/stream.h"
#include "resp/request.h"
#include "server/clients/listeners.h"
#include "server/cluster_hooks.h"
#include "server/config/tls_options.h"
#include "server/role.h"
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
    PHASE_COPY,   /* copy.c or dual_channel.c owns the connection */
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

static struct event_deferred reconnect;

/* --- Closing and waiting --- */

static void handshake_close(void) {
    quorum_link_lost();
    if (link.phase == PHASE_COPY) {
        if (link.dual) dual_channel_cancel();
        copy_cancel();
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
    quorum_data_lost();
}

/* If the stream fails again soon after a full copy, the next attempt is delayed: each costs the primary a snapshot. */
void replica_stream_refused(void) {
    uint64_t now = clock_mono();
    bool again = link.refused_us && now - link.refused_us < REFUSED_WAIT_US;
    link.refused_us = now;
    link.retry_us = again ? now + REFUSED_WAIT_US : 0;
    replica_forget_position();
}

static void link_fail(const char *what, const char *reply) {
    log_warning(what, reply);
    replica_link_lost();
}

/* --- Sending --- */

void replica_send(struct connection *conn, int argc, const struct slice *argv) {
    request_write(&conn->out, argc, argv);
    conn_flush(conn);
}

int replica_listening_port(void) {
    if (replica_settings.announce_port) return replica_settings.announce_port;
    if (tls_for_replication() && listeners_tls_port()) return listeners_tls_port();
    /* tls-replication may serve only the connection to the primary. A server without a port of TCP and TLS is reached
     * over RDMA only: REPLICAOF and `sentinel rdma yes` use this port then. */
    return listeners_port() ? listeners_port() : listeners_rdma_port();
}

static void link_expect(const char *what) {
    link.answers[link.answers_count++] = what;
}

static void send_description(struct connection *conn) {
    char port[12];
    link.answers_count = link.answers_next = 0;
    if (replica_settings.primary_auth.len) {
        link_send_auth(conn);
        link_expect("AUTH");
    }
    snprintf(port, sizeof port, "%d", replica_listening_port());
    replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("listening-port"), slice_of(port)});
    link_expect("listening-port");
    if (*replica_settings.announce_ip) {
        replica_send(conn, 3,
                     (struct slice[]){SLICE("REPLCONF"), SLICE("ip-address"), slice_of(replica_settings.announce_ip)});
        link_expect("ip-address");
    }
    if (link_asks_port()) {
        snprintf(port, sizeof port, "%d", link_announced_port());
        replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("rdma-port"), slice_of(port)});
        link_expect("rdma-port");
    }
    if (pull_fetch_possible(conn) && link.pulls_failed < PULLS_FAILED_MAX) {
        struct slice capability = slice_of(pull_fetch_capability(conn));
        replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("capa"), capability});
        link_expect("capa rdma-pull");
    }
    if (server.cluster_enabled) {
        replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("capa"), SLICE(REPL_OWN_CAPABILITY)});
        link_expect("capa " REPL_OWN_CAPABILITY);
    }
    struct slice capa = SLICE("capa"),
                 words[9] = {SLICE("REPLCONF"), capa, SLICE("eof"), capa, SLICE("psync2"), capa, {0}, capa, {0}};
    int count = 5;
    if (copy_needs_no_checksum(conn)) words[count + 1] = SLICE(REPL_NO_CHECKSUM_CAPABILITY), count += 2;
    if (repl_settings.dual_channel) words[count + 1] = SLICE("dual-channel"), count += 2;
    replica_send(conn, count, words);
    link_expect("capa");
    replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("version"), SLICE(SERVER_VERSION)});
    link_expect("VERSION");
    if (quorum_on) {
        struct memory_output text = MEMORY_OUTPUT_INIT;
        quorum_write_hello(&text.out);
        replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("SYNC-HELLO"), memory_output_slice(&text)});
        memory_output_free(&text);
        link_expect("SYNC-HELLO");
    }
    if (cluster_hooks) {
        struct slice id = cluster_hooks->node_id();
        replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("set-cluster-node-id"), id});
        link_expect("SET-CLUSTER-NODE-ID");
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
    struct slice text, in = conn_peek(conn);
    ssize_t used = reply_line_read(in, REPLICA_LINE_MAX, &text);
    if (used == 0) return -1;
    if (used < 0) text = slice_make(in.data, REPLICA_LINE_SHOWN);
    memcpy(line, text.data, text.len);
    line[text.len] = 0;
    if (used < 0) return -2;
    conn_consume(conn, (size_t)used);
    return (int)text.len;
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
        link_fail("Error reply to PING from primary: '%s'", line);
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
        const char *reason = quorum_welcomed(line);
        if (reason && !link.failover) { /* FAILOVER: the other server does not lead yet; PSYNC asks it to */
            link_fail("Synchronous replication: this server does not follow the primary: %s", reason);
            return;
        }
    } else if (line[0] == '-') {
        if (strcmp(what, "AUTH") == 0) {
            link_fail("Unable to AUTH to PRIMARY: %s", line);
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
        link_fail("Primary replied with wrong +FULLRESYNC syntax: %s", line);
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
    quorum_stream_joined();
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
        link_fail("Primary replied with wrong +CONTINUE syntax: %s", line);
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
    if (quorum_on && line[0] == '+' && !quorum_acks_at_once()) { /* it began to lead after it refused SYNC-HELLO */
        replica_link_lost();
    } else if (starts(line, "+FULLRESYNC ")) {
        got_full_resync(line);
    } else if (strcmp(line, "+CONTINUE") == 0 || starts(line, "+CONTINUE ")) {
        if (role->position.known)
            got_continue(line);
        else
            link_fail("Primary continues a history that this replica did not ask for: %s", line);
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
    else if (copy_was_pulled())
        link.pulls_failed++;
    if (loaded)
        replica_synchronized(link.conn, &link.copied);
    else
        replica_link_lost();
}

void replica_synchronized(struct connection *conn, const struct stream_position *at) {
    bool local_changes = role->position.local_changes; /* by clients, since the copy was loaded (dual channel) */
    repl_disconnect_replicas("the data set was replaced");
    repl_history_adopt(at);
    if (local_changes) role_note_local_change();
    quorum_data_copied();
    follow_stream(conn);
    log_notice("PRIMARY <-> REPLICA sync: Finished with success");
}

static void got_header(const char *line) {
    if (line[0] == '-') {
        link_fail("PRIMARY aborted replication with an error: %s", line + 1);
        return;
    }
    if (line[0] != '$') {
        link_fail(
            "Bad protocol from PRIMARY, the first byte is not '$' (we received '%s'), are you sure the host and port "
            "are right?",
            line);
        return;
    }
    link.phase = PHASE_COPY;
    if (!copy_start(link.conn, line, &link.copied, copy_done)) {
        if (copy_was_pulled()) link.pulls_failed = PULLS_FAILED_MAX;
        replica_link_lost();
    }
}

static void link_readable(struct connection *conn) {
    char line[REPLICA_LINE_MAX];
    link.heard_us = clock_mono();
    while (conn == link.conn && link.phase < PHASE_COPY) {
        int len = replica_read_line(conn, line);
        if (len == -1) return;
        if (len == -2) {
            if (link.phase == PHASE_PING && line[0] == '-') /* protected mode refuses with a long text */
                link_fail("Error reply to PING from primary: '%s'", line);
            else
                link_fail("Bad protocol from PRIMARY: %s", "a line of the handshake does not end");
            return;
        }
        if (len == 0) continue;
        switch (link.phase) {
        case PHASE_PING: got_ping(line); break;
        case PHASE_DESCRIBE: got_description(line); break;
        case PHASE_PSYNC: got_psync(line); break;
        case PHASE_HEADER: got_header(line); break;
        default: link_fail("Unexpected message from PRIMARY: %s", line); return;
        }
    }
}

static void link_closed(struct connection *conn) {
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

static void link_established(struct connection *conn) {
    log_notice("Non blocking connect for SYNC fired the event.");
    link_connected(conn);
    link.heard_us = clock_mono();
    link.phase = PHASE_PING;
    role_set_link(ROLE_LINK_HANDSHAKE);
    replica_send(conn, 1, (struct slice[]){SLICE("PING")});
}

static const struct connection_events events = {
    .connected = link_established, .readable = link_readable, .closed = link_closed};

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

static void link_follow(struct slice host, int port, enum repl_follow how) {
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

static void link_lead(void) {
    if (!role->is_replica) return;
    /* The log shows the lines about the end of the link as those of a primary. When the state of the link changes,
     * role.c sets the role in log lines to that of the server, which is still a replica. */
    log_set_role('M');
    handshake_close();
    log_set_role('M');
    link.phase = PHASE_OFF;
    link.failover = false;
    if (role->position.known) log_notice("Discarding previously cached primary state.");
    role_set_position_known(false);
    role_sync.read_ahead = 0;
    role_lead();
    repl_history_branch();
    role_report();
    repl_disconnect_replicas("this server became a primary");
}

static void link_drop(bool again) {
    if (link.phase == PHASE_OFF) return;
    handshake_close();
    link.failover = false;
    link.phase = again ? PHASE_WAIT : PHASE_OFF;
    role_sync.read_ahead = 0;
    role_set_link(ROLE_LINK_CONNECT);
}

bool replica_link_is_on(void) {
    return link.phase != PHASE_OFF;
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

static void link_cron(void) {
    static uint64_t last_us;
    if (link.phase == PHASE_OFF || server_is_loading()) return;
    if (clock_mono() - last_us < 1000000) return;
    last_us = clock_mono();
    check_timeout();
    if (link.phase == PHASE_COPY) {
        if (link.dual) dual_channel_cron();
        if (link.phase == PHASE_COPY) copy_check_timeout();
    } else if (link.phase == PHASE_STREAM) {
        apply_cron();
    } else if (link.phase == PHASE_WAIT && clock_mono() >= link.retry_us) {
        connect_now();
    }
}

/* A server that the configuration makes a replica connects after it has loaded the data set, whose AUX fields may give
 * it a position. */
static void link_start(void) {
    if (role->is_replica) link.phase = PHASE_WAIT;
}

static void link_before_wait(void) {
    static bool begun;
    apply_before_wait();
    if (begun || server.loading) return;
    begun = true;
    if (link.phase != PHASE_WAIT) return;
    role_set_position_known(role->position.offset > 0);
    if (role->position.known) log_cached_position();
    connect_now();
}

static void link_reconnect(struct event_deferred *deferred) {
    if (link.phase == PHASE_WAIT && !server.loading && !server.async_loading) connect_now();
}

void replica_stream_ended(void) {
    if (link.phase != PHASE_STREAM) return;
    quorum_link_lost();
    link.conn = NULL;
    link.phase = PHASE_WAIT;
    link.known = true;
    link.failed = false;
    role_set_link(ROLE_LINK_CONNECT);
    /* Reconnect immediately, unless the last connect was less than RECONNECT_US ago: the primary may accept and close
     * each connection. */
    if (clock_mono() - link.connect_us > RECONNECT_US) event_loop_defer(server.loop, &reconnect, link_reconnect);
}

const struct server_part replica_part = {
    .name = "replica", .start = link_start, .cron = link_cron, .before_wait = link_before_wait, .stop = copy_stop};

const struct repl_role_hooks replica_role_hooks = {.follow = link_follow,
                                                   .lead = link_lead,
                                                   .drop_link = link_drop,
                                                   .say = apply_say,
                                                   .end_waits = redirect_end_waits};
