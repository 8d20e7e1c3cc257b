/* dual_channel.c: the full synchronization on two connections, on the replica.
 *
 * With dual-channel-replication-enabled on both servers, the primary sends the full copy and the stream at the same
 * time on two connections, and need not keep the stream for the replica during the transfer:
 *
 *     main channel                                  RDB channel
 *     PSYNC ? -1
 *     <- +DUALCHANNELSYNC                           REPLCONF ... rdb-only 1 rdb-channel 1, SYNC
 *                                                   <- $ENDOFF:<offset> <history> <database> <client id>
 *     REPLCONF set-rdb-client-id <client id>
 *     PSYNC <history> <offset + 1>
 *     <- +CONTINUE, the stream                      <- $EOF:<mark>, the copy
 *
 * Both channels use the transport of the link. If an RDMA connect for the RDB channel fails, it uses TCP: the primary
 * may not have memory for a second RDMA connection.
 *
 * Until the copy is loaded, the stream waits in the receive buffer of the main channel, up to the hard limit of
 * client-output-buffer-limit replica; the primary keeps the rest. A small copy may be loaded before the primary replies
 * on the main channel. If the primary has given up the main channel in the meantime, it does not know the client id any
 * more; its reply to PSYNC decides whether the synchronization can continue. */
#include "repl/replica/dual_channel.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/text/number.h"
#include "repl/link_transport.h"
#include "repl/replica/copy.h"
#include "repl/replica/link.h"
#include "repl/settings.h"
#include "server/clients/client.h"
#include "server/process/child.h"
#include "server/role.h"
#include <stdio.h>
#include <string.h>

enum { BUFFER_DEFAULT = 256 * 1024 * 1024, FREE_LATER_MIN = 64 * 1024 };

static struct {
    bool running, full; /* full: the receive buffer has reached its limit, which was logged */
    struct connection *main, *rdb;
    void (*done)(bool synchronized);
    uint64_t heard_us;
    int answers; /* replies still to come on the RDB channel: to AUTH and REPLCONF */
    enum { MAIN_WAITS, MAIN_ID, MAIN_PSYNC, MAIN_STREAM } main_state;
    enum { RDB_CONNECT, RDB_REPLCONF, RDB_END_OFFSET, RDB_HEADER, RDB_COPY, RDB_LOADED, RDB_FAILED } rdb_state;
    char client_id[24], header[REPLICA_LINE_MAX];
    struct stream_position at; /* of the copy */
    uint64_t positions_lost;   /* when the copy was loaded */
} dual;

static void close_rdb(void) {
    if (dual.rdb) conn_close(dual.rdb);
    dual.rdb = NULL;
}

/* Discards the buffered part of the stream, which is useless without the copy; a large one on another thread. */
static void abort_channels(void) {
    dual.running = false;
    role_sync.buffer = 0;
    void *input = dual.main->in_len >= FREE_LATER_MIN ? conn_take_input(dual.main) : NULL;
    if (input) store_free_later(input);
}

void dual_channel_cancel(void) {
    if (!dual.running) return;
    copy_cancel();
    close_rdb();
    abort_channels();
}

static void fail(const char *what, const char *text) {
    if (dual.rdb_state == RDB_COPY) { /* copy.c ends the copy and calls copied() */
        char reason[200];
        snprintf(reason, sizeof reason, "Dual channel replication: %s%s%.100s", what, *text ? ": " : "", text);
        copy_broken(reason);
        return;
    }
    log_warning("Dual channel replication: %s%s%s", what, *text ? ": " : "", text);
    log_notice("Dual channel replication: Aborting dual channel sync");
    dual_channel_cancel();
    dual.done(false);
}

/* The RDB channel failed. If a reply is due on the main channel, waits for it before giving up: a primary that has
 * given up the synchronization replies with the reason, and fail() logs it. */
static void rdb_failed(void) {
    bool asks = dual.main_state == MAIN_ID || dual.main_state == MAIN_PSYNC;
    close_rdb();
    if (asks && conn_is_open(dual.main)) {
        dual.rdb_state = RDB_FAILED;
        dual.heard_us = clock_mono();
        return;
    }
    log_notice("Dual channel replication: Aborting dual channel sync");
    abort_channels();
    dual.done(false);
}

/* The copy is loaded, and the main channel has the stream from its offset on. */
static void finish(void) {
    struct connection *conn = dual.main;
    void (*done)(bool synchronized) = dual.done;
    if (role_positions_lost() != dual.positions_lost) { /* by DEBUG RELOAD, for example */
        fail("the data are no longer those of the copy", "");
        return;
    }
    dual.running = false;
    role_sync.buffer = 0;
    log_notice("Dual channel replication: Successfully streamed replication data into memory");
    replica_synchronized(conn, &dual.at);
    done(true);
}

static void copied(bool loaded) {
    if (!loaded) {
        rdb_failed();
        return;
    }
    close_rdb();
    dual.rdb_state = RDB_LOADED;
    dual.positions_lost = role_positions_lost();
    dual.heard_us = clock_mono();
    if (dual.main_state == MAIN_STREAM) finish();
}

static void load(void) {
    dual.rdb_state = RDB_COPY;
    if (copy_start(dual.rdb, dual.header, &dual.at, copied)) {
        copy_keep_alive(dual.main);
        return;
    }
    dual.rdb_state = RDB_HEADER;
    fail("the copy cannot be received", "");
}

/* --- The main channel --- */

static void main_line(const char *line) {
    switch (dual.main_state) {
    case MAIN_ID: {
        if (line[0] != '+')
            log_notice("Dual channel replication: Primary does not know the RDB channel's client id: %s", line);
        char offset[24];
        snprintf(offset, sizeof offset, "%lld", (long long)dual.at.offset + 1);
        log_notice("Dual channel replication: Trying a partial resynchronization using main channel (request %s:%s).",
                   dual.at.id, offset);
        replica_send(dual.main, 3, (struct slice[]){SLICE("PSYNC"), slice_of(dual.at.id), slice_of(offset)});
        dual.main_state = MAIN_PSYNC;
        return;
    }
    case MAIN_PSYNC: {
        const char *id = replica_continue_id(line);
        if (!id) {
            fail("the primary refuses to continue on the main channel", line);
            return;
        }
        /* The primary may have got another history since it announced the copy, which is a part of both. */
        if (*id) memcpy(dual.at.id, id, REPL_ID_LEN);
        dual.main_state = MAIN_STREAM;
        if (dual.rdb_state == RDB_FAILED) {
            rdb_failed();
            return;
        }
        if (dual.rdb_state != RDB_LOADED) {
            log_notice("Dual channel replication: PRIMARY <-> REPLICA sync: Primary accepted a Partial "
                       "Resynchronization, RDB load in background.");
            return;
        }
        log_notice("Dual channel replication: PRIMARY <-> REPLICA sync: Primary accepted a Partial Resynchronization.");
        log_debug("Dual channel replication: Psync established after rdb load");
        finish();
        return;
    }
    default: fail("unexpected message on the main channel", line);
    }
}

static void main_readable(struct connection *conn) {
    char line[REPLICA_LINE_MAX];
    dual.heard_us = clock_mono();
    while (dual.running && dual.main_state != MAIN_STREAM) {
        int len = replica_read_line(conn, line);
        if (len == -1) return;
        if (len == -2) {
            fail("a line of the main channel does not end", "");
            return;
        }
        if (len) main_line(line);
    }
    if (!dual.running) return;
    role_sync.buffer = conn->in_len;
    if (role_sync.buffer > role_sync.buffer_peak) role_sync.buffer_peak = role_sync.buffer;
    if (dual.full || conn->in_len < conn->in_limit) return;
    dual.full = true;
    log_notice("Dual channel replication: Replication buffer limit reached (%zu bytes), stopping buffering. Further "
               "accumulation will occur on primary side.",
               conn->in_limit);
}

static void main_closed(struct connection *conn) {
    const char *why = conn->error ? conn_error_text(conn) : "end of the connection";
    fail("the main channel is lost", why);
}
static const struct connection_events main_events = {.readable = main_readable, .closed = main_closed};

/* --- The RDB channel --- */

static void rdb_connected(struct connection *conn) {
    char port[12];
    log_debug("Dual channel replication: The RDB channel is connected");
    dual.heard_us = clock_mono();
    dual.answers = 1 + (replica_settings.primary_auth.len != 0) + (*replica_settings.announce_ip != 0);
    link_send_auth(conn);
    snprintf(port, sizeof port, "%d", replica_listening_port());
    replica_send(conn, 11,
                 (struct slice[]){SLICE("REPLCONF"), SLICE("capa"), SLICE("eof"), SLICE("rdb-only"), SLICE("1"),
                                  SLICE("rdb-channel"), SLICE("1"), SLICE("listening-port"), slice_of(port),
                                  SLICE("version"), SLICE(SERVER_VERSION)});
    if (*replica_settings.announce_ip)
        replica_send(conn, 3,
                     (struct slice[]){SLICE("REPLCONF"), SLICE("ip-address"), slice_of(replica_settings.announce_ip)});
    dual.rdb_state = RDB_REPLCONF;
}

/* "$ENDOFF:<offset> <history> <database> <client id>" */
static bool parse_end_offset(const char *line) {
    static const char head[] = "$ENDOFF:";
    char words[4][48];
    int64_t db, id;
    if (strncmp(line, head, strlen(head)) != 0) return false;
    if (sscanf(line + strlen(head), "%47s %47s %47s %47s", words[0], words[1], words[2], words[3]) != 4) return false;
    if (!parse_int64(slice_of(words[0]), &dual.at.offset) || dual.at.offset < 0 || dual.at.offset > INT64_MAX / 2)
        return false;
    if (strlen(words[1]) != REPL_ID_LEN || strspn(words[1], "0123456789abcdefABCDEF") != REPL_ID_LEN) return false;
    if (!parse_int64(slice_of(words[2]), &db) || db >= keyspace_databases(server.keyspace)) return false;
    if (!parse_int64(slice_of(words[3]), &id) || id < 0) return false;
    memcpy(dual.at.id, words[1], REPL_ID_LEN + 1);
    dual.at.db = db < 0 ? STREAM_DB_NONE : (int)db;
    snprintf(dual.client_id, sizeof dual.client_id, "%lld", (long long)id);
    return true;
}

static void rdb_line(const char *line) {
    switch (dual.rdb_state) {
    case RDB_REPLCONF:
        if (line[0] != '+') {
            fail("the primary refuses the RDB channel", line);
        } else if (--dual.answers == 0) {
            output_write(&dual.rdb->out, SLICE("SYNC\r\n"));
            conn_flush(dual.rdb);
            dual.rdb_state = RDB_END_OFFSET;
        }
        return;
    case RDB_END_OFFSET:
        if (!parse_end_offset(line)) {
            fail("the primary does not announce the end offset of the copy", line);
            return;
        }
        child_pause_after_fork(); /* DEBUG: tests delay the main channel here, as in Valkey */
        replica_send(dual.main, 3,
                     (struct slice[]){SLICE("REPLCONF"), SLICE("set-rdb-client-id"), slice_of(dual.client_id)});
        dual.main_state = MAIN_ID;
        dual.rdb_state = RDB_HEADER;
        return;
    default:
        if (line[0] != '$') {
            fail("the RDB channel brings no copy", line);
            return;
        }
        snprintf(dual.header, sizeof dual.header, "%s", line);
        load();
    }
}

static void rdb_readable(struct connection *conn) {
    char line[REPLICA_LINE_MAX];
    dual.heard_us = clock_mono();
    while (dual.running && conn == dual.rdb && dual.rdb_state < RDB_COPY && !*dual.header) {
        int len = replica_read_line(conn, line);
        if (len == -1) return;
        if (len == -2) {
            fail("a line of the RDB channel does not end", "");
            return;
        }
        if (len) rdb_line(line);
    }
}

static void dial_rdb(const struct connection *link);
static void rdb_closed(struct connection *conn) {
    if (dual.rdb_state == RDB_CONNECT && link_is_rdma(conn)) {
        log_warning("Dual channel replication: No RDMA connection for the RDB channel (%s). Using %s",
                    conn_error_text(conn), link_without_rdma());
        close_rdb();
        dial_rdb(NULL);
        return;
    }
    if (dual.main_state == MAIN_ID) {
        log_warning("Dual channel replication: the RDB channel is lost: %s",
                    conn->error ? conn_error_text(conn) : "end of the connection");
        rdb_failed();
        return;
    }
    fail("the RDB channel is lost", conn->error ? conn_error_text(conn) : "end of the connection");
}
static const struct connection_events rdb_events = {
    .connected = rdb_connected, .readable = rdb_readable, .closed = rdb_closed};

static void dial_rdb(const struct connection *link) {
    dual.rdb = link_connect_beside(link, &rdb_events, (uint32_t)(repl_timeout_us() / 1000));
}

void dual_channel_start(struct connection *conn, void (*done)(bool synchronized)) {
    const struct client_limit *limit = &client_settings.limits[CLIENT_CLASS_REPLICA];
    memset(&dual, 0, sizeof dual);
    dual.running = true;
    dual.main = conn;
    dual.done = done;
    dual.heard_us = clock_mono();
    role_sync.total = -1;
    role_sync.read = 0;
    role_sync.heard_ms = clock_mono_ms();
    role_sync.buffer = role_sync.buffer_peak = 0;
    conn->events = &main_events;
    conn_set_in_limit(conn, !limit->hard                     ? BUFFER_DEFAULT
                            : limit->hard < REPLICA_LINE_MAX ? REPLICA_LINE_MAX
                                                             : limit->hard);
    dial_rdb(conn);
}

void dual_channel_cron(void) {
    if (!dual.running || dual.rdb_state == RDB_COPY || clock_mono() - dual.heard_us <= repl_timeout_us()) return;
    fail("timeout", "");
}
