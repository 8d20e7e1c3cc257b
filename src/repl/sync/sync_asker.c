/* sync_asker.c: the connections on which a candidate asks the members of its group for votes: one connection for each
 * question. It carries AUTH (primaryuser, primaryauth), as a link to a primary does, and REPLCONF SYNC-ASK. A question
 * without an answer is dropped after a while; the state machine asks again. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/connection.h"
#include "repl/replica.h"
#include "repl/sync/sync.h"
#include "server/clients/listeners.h"
#include "server/config/tls_options.h"
#include <stdio.h>
#include <string.h>

enum { ASKERS_MAX = 2 * SYNC_MEMBERS_MAX, TIMEOUT_MS = 2000, LOG_US = 10 * 1000 * 1000 };

static struct asker {
    struct connection *conn; /* NULL: unused */
    char id[SYNC_ID_LEN + 1];
    struct sync_ask ask;
    int64_t began_ms;
} askers[ASKERS_MAX];

static void asker_close(struct asker *asker) {
    if (asker->conn) conn_close(asker->conn);
    asker->conn = NULL;
}

static void connected(struct connection *conn) {
    struct asker *asker = conn->owner;
    struct memory_output text;
    replica_send_auth(conn);
    memory_output_init(&text);
    sync_ask_print(&text.out, &asker->ask);
    replica_send(conn, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("SYNC-ASK"), memory_output_slice(&text)});
    memory_output_free(&text);
}

static void got_line(struct asker *asker, struct slice line) {
    static struct log_limit limit = {.interval_us = LOG_US};
    static struct sync_vote vote;
    if (slice_is(line, "+OK")) return; /* AUTH */
    struct slice text = {line.data + 1, line.len ? line.len - 1 : 0};
    if (line.len && line.data[0] == '+' && sync_vote_parse(text, &vote)) {
        asker_close(asker);
        sync_who_voted(&sync_who, &vote, sync_now_ms());
        return;
    }
    log_limited(&limit, LOG_LEVEL_WARNING, "A member of the group did not vote: %.*s",
                (int)(line.len > 200 ? 200 : line.len), line.data);
    asker_close(asker);
}

static void readable(struct connection *conn) {
    struct asker *asker = conn->owner;
    while (asker->conn == conn) {
        struct slice in = conn_peek(conn);
        const char *end = in.len ? memchr(in.data, '\n', in.len) : NULL;
        if (!end) {
            if (in.len > SYNC_TEXT_MAX) asker_close(asker);
            return;
        }
        size_t len = (size_t)(end - in.data);
        char *line = mem_strndup(in.data, len && end[-1] == '\r' ? len - 1 : len);
        conn_consume(conn, len + 1);
        got_line(asker, slice_of(line));
        mem_free(line);
    }
}

static void closed(struct connection *conn) {
    asker_close(conn->owner);
}

static const struct connection_events events = {.connected = connected, .readable = readable, .closed = closed};

void sync_asker_ask(const struct sync_member *member, const struct sync_ask *ask) {
    struct asker *unused = NULL;
    int64_t now_ms = sync_now_ms();
    for (int i = 0; i < ASKERS_MAX; i++) {
        struct asker *asker = &askers[i];
        if (asker->conn && now_ms - asker->began_ms > TIMEOUT_MS) asker_close(asker);
        if (!asker->conn) {
            if (!unused) unused = asker;
        } else if (strcmp(asker->id, member->id) == 0) {
            if (asker->ask.kind == ask->kind && sync_term_compare(&asker->ask.term, &ask->term) == 0) return;
            asker_close(asker);
            if (!unused) unused = asker;
        }
    }
    if (!unused) return;
    memcpy(unused->id, member->id, sizeof unused->id);
    unused->ask = *ask;
    unused->began_ms = now_ms;
    struct connect_options options = {.host = member->host,
                                      .port = member->port,
                                      .source_host = outgoing_source(),
                                      .source_optional = true,
                                      .timeout_ms = TIMEOUT_MS,
                                      .events = &events,
                                      .owner = unused};
    unused->conn = conn_connect(transport_find(tls_for_replication() ? "tls" : "tcp"), server.loop, &options);
}
