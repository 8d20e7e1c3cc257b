/* rdma-blob-standin: a server of the BLOB commands that misbehaves when a key says so, for tests of their clients.
 *
 *   rdma-blob-standin HOST PORT        listens over RDMA, prints "ready", and runs until it is killed
 *
 * It knows AUTH (any user, password "secret"), SELECT, CLIENT, ASKING, PING, SET, GET, EXISTS, DEL, BLOB.SET and
 * BLOB.GET with one triple, of values up to 8 MiB. These starts of keys make BLOB.GET misbehave:
 *
 *   never     no reply and no byte           wrong     another checksum than the value's
 *   nonsense  a reply of another type        long      a length larger than the client's memory
 *   moved     MOVED to its own address       ask       ASK, except after ASKING
 *   close     the value, then no reply but the end of the connection
 *   flood     no reply, but the value again and again until the connection ends. Prints "flooding" */
#include "lib/hash/crc32c.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "net/rdma/completion.h"
#include "net/rdma/connection.h"
#include "net/rdma/read.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS_MAX = 16, VALUES_MAX = 4096 };

struct value {
    char *key, *bytes;
    size_t key_len, len;
    uint32_t crc;
    struct ibv_mr *mr; /* NULL: it was never placed */
};

struct peer {
    struct connection *conn;
    bool asking, closed;
    bool stuck; /* it answers nothing more */
    struct event_timer flood;
    struct value *flooding;
    uint64_t address, rkey;
    /* A BLOB.SET under way. */
    struct rdma_window window;
    struct value incoming;
    bool reading;
};

static struct event_loop *loop;
static struct value values[VALUES_MAX];
static size_t value_count;
static const char *own_host;
static int own_port;

static struct value *find(struct slice key) {
    for (size_t i = 0; i < value_count; i++)
        if (slice_equal(slice_make(values[i].key, values[i].key_len), key)) return &values[i];
    return NULL;
}

static bool drop(struct slice key) {
    struct value *value = find(key);
    if (!value) return false;
    mem_free(value->key);
    if (value->mr) ibv_dereg_mr(value->mr);
    free(value->bytes);
    *value = values[--value_count];
    return true;
}

static char *allocate(size_t len) {
    void *bytes = NULL;
    if (posix_memalign(&bytes, 4096, len + 4096)) abort();
    return bytes;
}

static void store(struct value value) {
    drop(slice_make(value.key, value.key_len));
    if (value_count == VALUES_MAX) abort();
    value.crc = crc32c(0, value.bytes, value.len);
    values[value_count++] = value;
}

static void say(struct peer *peer, const char *text) {
    output_write(&peer->conn->out, slice_of(text));
    output_write(&peer->conn->out, SLICE("\r\n"));
}

/* WRITEs the value on the connection's queue pair. The transport counts its own requests: this one completes with the
 * number of the last that has completed, which changes nothing. So it must be complete when it is posted, or the send
 * queue could be full for the transport: main() turns the copying thread of the software device off. */
static bool place(struct peer *peer, struct value *value) {
    struct rdma_connection *c = rdma_of(peer->conn);
    if (!value->mr) value->mr = ibv_reg_mr(c->qp.device->pd, value->bytes, value->len, 0);
    if (!value->mr) return false;
    struct ibv_sge piece = {.addr = (uintptr_t)value->bytes, .length = (uint32_t)value->len, .lkey = value->mr->lkey};
    struct ibv_send_wr request = {.wr_id = (uint64_t)c->send.retired << 1,
                                  .sg_list = &piece,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_RDMA_WRITE,
                                  .send_flags = IBV_SEND_SIGNALED,
                                  .wr.rdma = {.remote_addr = peer->address, .rkey = (uint32_t)peer->rkey}};
    struct ibv_send_wr *bad;
    rdma_device_drain(c->qp.device); /* the send queue has room again */
    return ibv_post_send(c->qp.verbs, &request, &bad) == 0;
}

static uint64_t flood_more(struct event_timer *timer) {
    struct peer *peer = container_of(timer, struct peer, flood);
    for (int i = 0; i < 4; i++)
        if (peer->closed || !place(peer, peer->flooding)) return 0;
    return 1;
}

static void blob_get(struct peer *peer, const struct slice *argv) {
    char text[128];
    uint64_t len;
    struct slice key = argv[1];
    bool asked = peer->asking;
    struct value *value = find(key);
#define STARTS(word) (key.len >= sizeof word - 1 && memcmp(key.data, word, sizeof word - 1) == 0)
    peer->asking = false;
    if (STARTS("moved") || (STARTS("ask") && !asked)) {
        snprintf(text, sizeof text, "-%s 7 %s:%d", STARTS("ask") ? "ASK" : "MOVED", own_host, own_port);
        say(peer, text);
        return;
    }
    peer->stuck = STARTS("never") || (STARTS("flood") && value);
    if (STARTS("never")) return;
    if (!value) {
        say(peer, "$-1");
        return;
    }
    if (!parse_uint64(argv[2], &peer->rkey) || !parse_uint64(argv[3], &peer->address) || !parse_uint64(argv[4], &len)) {
        say(peer, "-ERR invalid rkey");
        return;
    }
    if (len < value->len) {
        snprintf(text, sizeof text, "-ERR client memory address length %llu smaller than object length %zu",
                 (unsigned long long)len, value->len);
        say(peer, text);
        return;
    }
    if (STARTS("flood")) {
        peer->flooding = value;
        event_timer_set(loop, &peer->flood, 0, flood_more);
        puts("flooding");
        return;
    }
    if (STARTS("nonsense")) {
        say(peer, "$3\r\nabc");
        return;
    }
    if (!place(peer, value)) {
        say(peer, "-ERR RDMA write failed");
        return;
    }
    if (STARTS("close")) {
        peer->closed = true;
        return;
    }
    snprintf(text, sizeof text, "*2\r\n:%llu\r\n:%u", (unsigned long long)(STARTS("long") ? len + 1 : value->len),
             STARTS("wrong") ? ~value->crc : value->crc);
    say(peer, text);
}

static void handle(struct peer *peer);

static void has_read(struct connection *conn, void *context, int64_t result) {
    struct peer *peer = context;
    peer->reading = false;
    rdma_window_close(&peer->window);
    if (result < 0) {
        mem_free(peer->incoming.key);
        free(peer->incoming.bytes);
        return;
    }
    store(peer->incoming);
    say(peer, "+OK");
    conn_set_reading(conn, true);
    handle(peer);
}

static void blob_set(struct peer *peer, size_t argc, const struct slice *argv) {
    uint64_t len, rkey, address;
    bool must_exist = slice_is(argv[argc - 1], "xx"), must_not = slice_is(argv[argc - 1], "nx");
    if (!parse_uint64(argv[2], &len) || len == 0 || len > RDMA_READ_LENGTH_MAX || !parse_uint64(argv[3], &rkey) ||
        !parse_uint64(argv[4], &address)) {
        say(peer, "-ERR invalid len");
        return;
    }
    if ((must_exist && !find(argv[1])) || (must_not && find(argv[1]))) {
        say(peer, "$-1");
        return;
    }
    peer->incoming = (struct value){.bytes = allocate(len), .len = len, .key_len = argv[1].len};
    peer->incoming.key = mem_alloc(argv[1].len + 1);
    memcpy(peer->incoming.key, argv[1].data, argv[1].len);
    if (rdma_window_open(peer->conn, RDMA_WINDOW_TARGET, peer->incoming.bytes, len, &peer->window) < 0 ||
        rdma_read_start(peer->conn, &peer->window, 0, address, (uint32_t)rkey, (uint32_t)len, has_read, peer) < 0) {
        say(peer, "-ERR RDMA read failed");
        return;
    }
    peer->reading = true;
    conn_set_reading(peer->conn, false);
}

static void execute(struct peer *peer, size_t argc, const struct slice *argv) {
    char head[64];
    if (slice_is(argv[0], "auth"))
        say(peer, slice_is(argv[argc - 1], "secret") ? "+OK" : "-WRONGPASS invalid username-password pair");
    else if (slice_is(argv[0], "ping"))
        say(peer, "+PONG");
    else if (slice_is(argv[0], "asking")) {
        peer->asking = true;
        say(peer, "+OK");
    } else if (slice_is(argv[0], "set") && argc == 3) {
        struct value value = {.key = mem_alloc(argv[1].len + 1), .key_len = argv[1].len, .len = argv[2].len};
        memcpy(value.key, argv[1].data, argv[1].len);
        value.bytes = allocate(value.len);
        memcpy(value.bytes, argv[2].data, value.len);
        store(value);
        say(peer, "+OK");
    } else if (slice_is(argv[0], "get") && argc == 2) {
        const struct value *value = find(argv[1]);
        snprintf(head, sizeof head, "$%zd\r\n", value ? (ssize_t)value->len : (ssize_t)-1);
        output_write(&peer->conn->out, slice_of(head));
        if (!value) return;
        output_write(&peer->conn->out, slice_make(value->bytes, value->len));
        output_write(&peer->conn->out, SLICE("\r\n"));
    } else if (slice_is(argv[0], "exists") && argc == 2)
        say(peer, find(argv[1]) ? ":1" : ":0");
    else if (slice_is(argv[0], "del") && argc == 2)
        say(peer, drop(argv[1]) ? ":1" : ":0");
    else if (slice_is(argv[0], "blob.get") && argc == 5)
        blob_get(peer, argv);
    else if (slice_is(argv[0], "blob.set") && argc >= 6)
        blob_set(peer, argc, argv);
    else
        say(peer, "+OK");
}

/* Takes "<type><number>\r\n". Returns the bytes used, 0: more are needed. */
static size_t take_count(struct slice in, size_t *count) {
    const char *end = memchr(in.data, '\n', in.len);
    int64_t number;
    if (!end) return 0;
    if (end - in.data < 3 || !parse_int64(slice_make(in.data + 1, (size_t)(end - in.data) - 2), &number)) abort();
    *count = (size_t)number;
    return (size_t)(end - in.data) + 1;
}

/* Executes one request. Returns its bytes, 0: more are needed. */
static size_t take_request(struct peer *peer, struct slice in) {
    struct slice argv[ARGUMENTS_MAX];
    size_t argc, len, used = take_count(in, &argc), step;
    if (!used) return 0;
    if (argc > ARGUMENTS_MAX) abort();
    for (size_t i = 0; i < argc; i++) {
        step = take_count(slice_make(in.data + used, in.len - used), &len);
        if (!step || in.len - used - step < len + 2) return 0;
        argv[i] = slice_make(in.data + used + step, len);
        used += step + len + 2;
    }
    execute(peer, argc, argv);
    return used;
}

static void handle(struct peer *peer) {
    size_t used;
    while (!peer->reading && !peer->stuck && !peer->closed && peer->conn->in_len &&
           (used = take_request(peer, conn_peek(peer->conn))))
        conn_consume(peer->conn, used);
    conn_flush(peer->conn);
    if (!peer->closed) return;
    event_timer_cancel(loop, &peer->flood);
    conn_close(peer->conn);
}

static void peer_readable(struct connection *conn) {
    struct peer *peer = conn->owner;
    if (!peer->reading) handle(peer);
}
static void peer_closed(struct connection *conn) {
    struct peer *peer = conn->owner;
    peer->closed = true;
    event_timer_cancel(loop, &peer->flood);
    conn_close(conn); /* calls has_read(), if it reads. The peer stays until the process ends */
}
static const struct connection_events events = {.readable = peer_readable, .closed = peer_closed};

static void peer_accepted(struct listener *listener, struct connection *conn) {
    struct peer *peer = mem_calloc(1, sizeof *peer);
    peer->conn = conn;
    conn->events = &events;
    conn->owner = peer;
    conn_set_trusted(conn, true);
}

int main(int argc, char **argv) {
    char error[512];
    if (argc != 3) {
        fprintf(stderr, "usage: rdma-blob-standin HOST PORT\n");
        return 2;
    }
    own_host = argv[1];
    own_port = atoi(argv[2]);
    log_level = LOG_LEVEL_NOTHING;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("SOFTRDMA_BULK", "0", 1); /* see place() */
    loop = event_loop_new();
    struct listen_options options = {.host = own_host, .port = own_port, .backlog = 100, .accepted = peer_accepted};
    struct listener *listener = conn_listen(transport_find("rdma"), loop, &options, error, sizeof error);
    if (!listener) {
        fprintf(stderr, "rdma-blob-standin: %s\n", error);
        return 1;
    }
    puts("ready");
    for (;;) event_loop_turn(loop, -1);
}
