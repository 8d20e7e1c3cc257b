/* read.c: one-sided reads: windows, and the reads of a connection. See read.h.
 *
 * The reads of a connection form a queue. Three counters divide it: reads before `reported` have been called back,
 * those before `completed` have completed, those before `posted` are in the send queue, and the others, up to
 * `started`, wait for space in it. Completions of a reliable connection arrive in order, so the counters only grow.
 *
 * A connection allocates its queue with its first window or read. Without it, the data path pays for reads with one
 * comparison for each completion. Waiting reads are posted by the same call as waiting control messages
 * (rdma_control_pump()), so sending does not check for them. */
#include "net/rdma/read.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "net/rdma/connection.h"
#include "net/rdma/reads.h"
#include "net/rdma/send.h"
#include "net/remote.h"
#include <errno.h>
#include <string.h>

struct rdma_read {
    uint64_t address;
    char *to;
    uint32_t rkey, lkey, length;
    uint32_t seq; /* of its work request, once it is posted */
    rdma_read_done *done;
    void *context;
};

struct rdma_reads {
    struct list windows;
    uint32_t started, posted, completed, reported;
    struct rdma_read queue[RDMA_READS_MAX];
};

static inline struct rdma_read *read_at(struct rdma_reads *reads, uint32_t index) {
    return &reads->queue[index % RDMA_READS_MAX];
}

static struct rdma_reads *reads_of(struct rdma_connection *c) {
    if (!c->reads) {
        c->reads = mem_calloc(1, sizeof *c->reads);
        list_init(&c->reads->windows);
    }
    return c->reads;
}

/* --- Windows --- */

/* The name is the same in the half of the connection that is on another thread. */
static bool has_tls(const struct connection *conn) {
    return strcmp(conn_transport_name(conn), "rdma-tls") == 0;
}

bool rdma_window_possible(const struct connection *conn) {
    return (has_tls(conn) || strcmp(conn_transport_name(conn), "rdma") == 0) && rdma_usable();
}

/* A connection on another thread: its thread opens and closes the window, while this one waits. */
struct opening {
    struct rdma_window *window;
    enum rdma_window_use use;
    void *base;
    size_t length;
    int result;
};
static void open_there(struct connection *conn, void *context) {
    struct opening *opening = context;
    opening->result = rdma_window_open(conn, opening->use, opening->base, opening->length, opening->window);
}
static void close_there(struct connection *conn, void *context) {
    (void)conn;
    rdma_window_close(context);
}

static int open_remote(struct connection *conn, struct opening *opening) {
    if (opening->use == RDMA_WINDOW_TARGET) return -EOPNOTSUPP;
    if (conn->state != CONN_OPEN || !remote_run(conn, open_there, opening)) return -ENOTCONN;
    if (opening->result == 0) opening->window->home = conn;
    return opening->result;
}

int rdma_window_open(struct connection *conn, enum rdma_window_use use, void *base, size_t length,
                     struct rdma_window *window) {
    *window = (struct rdma_window){.base = base, .length = length, .use = use};
    if (!rdma_window_possible(conn)) return -EOPNOTSUPP;
    if ((use == RDMA_WINDOW_OFFERED || use == RDMA_WINDOW_PLACED) && has_tls(conn)) return -EPERM;
    if (conn_is_remote(conn))
        return open_remote(conn, &(struct opening){.window = window, .use = use, .base = base, .length = length});
    if (conn->state != CONN_OPEN || !(conn = conn_carrier(conn))) return -ENOTCONN;
    struct rdma_connection *c = rdma_of(conn);
    if (conn->state != CONN_OPEN || c->end_pending) return -ENOTCONN;
    if (length == 0) return -EINVAL;
    if (!rdma_memory_leaves_share(length)) return -EDQUOT;
    int access = use == RDMA_WINDOW_TARGET ? IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_REMOTE_READ;
    if (use == RDMA_WINDOW_PLACED) access |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    window->mr = rdma_register(&c->qp.device->memory, base, length, access, RDMA_MEMORY_WINDOWS);
    if (!window->mr) return errno ? -errno : -EIO;
    if (use != RDMA_WINDOW_TARGET) window->rkey = window->mr->rkey;
    window->conn = conn;
    list_append(&reads_of(c)->windows, &window->link);
    c->owner->stats.windows++;
    return 0;
}

void rdma_window_close(struct rdma_window *window) {
    if (!window->conn) return;
    if (window->home) {
        struct connection *home = window->home;
        window->home = NULL;
        if (rdma_usable()) remote_run(home, close_there, window);
        return;
    }
    struct rdma_connection *c = rdma_of(window->conn);
    must(c->reads);
    list_remove(&c->reads->windows, &window->link);
    window->conn = NULL;
    if (!rdma_usable()) return; /* it belongs to the parent */
    rdma_unregister(&c->qp.device->memory, window->mr, RDMA_MEMORY_WINDOWS);
    window->mr = NULL;
    c->owner->stats.windows--;
}

/* --- Reads --- */

unsigned rdma_read_depth(const struct connection *conn) {
    if (conn->transport->carrier && !(conn = conn->transport->carrier(conn))) return 0;
    if (conn->out.ops != &rdma_output_ops || !rdma_usable()) return 0;
    const struct rdma_connection *c = rdma_of(conn);
    return conn->state == CONN_OPEN ? c->read_depth : 0;
}

int rdma_read_start(struct connection *conn, const struct rdma_window *target, size_t offset, uint64_t address,
                    uint32_t rkey, uint32_t length, rdma_read_done *done, void *context) {
    conn = conn_carrier(conn);
    if (!conn || target->conn != conn || target->use != RDMA_WINDOW_TARGET || !rdma_usable()) return -ENOTCONN;
    struct rdma_connection *c = rdma_of(conn);
    if (conn->state != CONN_OPEN || c->end_pending) return -ENOTCONN;
    if (length == 0 || length > RDMA_READ_LENGTH_MAX) return -EINVAL;
    if (offset > target->length || length > target->length - offset) return -EINVAL;
    struct rdma_reads *reads = c->reads;
    if (reads->started - reads->reported >= c->read_depth) return -EAGAIN;
    must_less(reads->started - reads->reported, (uint32_t)RDMA_READS_MAX);
    *read_at(reads, reads->started++) = (struct rdma_read){.address = address,
                                                           .to = (char *)target->base + offset,
                                                           .rkey = rkey,
                                                           .lkey = target->mr->lkey,
                                                           .length = length,
                                                           .done = done,
                                                           .context = context};
    c->send.wants_control = true;
    c->callbacks->pump_control(c);
    return 0;
}

bool rdma_reads_pump(struct rdma_connection *c) {
    struct rdma_reads *reads = c->reads;
    while (reads->posted != reads->started) {
        struct rdma_read *read = read_at(reads, reads->posted);
        struct ibv_sge sge = {.addr = (uintptr_t)read->to, .length = read->length, .lkey = read->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
        wr.wr.rdma.remote_addr = read->address;
        wr.wr.rdma.rkey = read->rkey;
        if (!rdma_send_read(c, &wr, true)) return false;
        read->seq = c->send.posted;
        reads->posted++;
        if (c->end_pending || c->failing) return true; /* posting failed */
    }
    return true;
}

void rdma_reads_completed(struct rdma_connection *c) {
    struct rdma_reads *reads = c->reads;
    uint32_t before = reads->completed;
    while (reads->completed != reads->posted) {
        const struct rdma_read *read = read_at(reads, reads->completed);
        if (!rdma_seq_reached(read->seq, c->send.retired)) break;
        reads->completed++;
        c->owner->stats.reads++;
        c->owner->stats.read_bytes += read->length;
    }
    if (reads->completed != before && !c->lingering) rdma_connection_ready(c);
}

bool rdma_reads_holds(const struct rdma_connection *c, uint32_t seq) {
    struct rdma_reads *reads = c->reads;
    for (uint32_t i = reads ? reads->completed : 0; reads && i != reads->posted; i++)
        if (read_at(reads, i)->seq == seq) return true;
    return false;
}

/* Calls the oldest read back. The callback may close the connection, which frees c->reads. */
static void rdma_read_report(struct rdma_connection *c, int error) {
    must(c->reads->reported != c->reads->started);
    struct rdma_read read = *read_at(c->reads, c->reads->reported++);
    read.done(&c->conn, read.context, error ? error : (int64_t)read.length);
}

void rdma_reads_run(struct rdma_connection *c) {
    while (c->reads && c->conn.state == CONN_OPEN && c->reads->reported != c->reads->completed) rdma_read_report(c, 0);
}

void rdma_reads_fail(struct rdma_connection *c, int error) {
    if (!c->reads) return;
    uint32_t last = c->reads->started; /* a callback that tries to start another one is refused */
    while (c->reads && c->reads->reported != last) {
        c->owner->stats.reads_failed++;
        rdma_read_report(c, error);
    }
}

void rdma_reads_close(struct rdma_connection *c) {
    if (!c->reads) return;
    while (c->reads->windows.len)
        rdma_window_close(container_of(list_first(&c->reads->windows), struct rdma_window, link));
    if (rdma_usable()) rdma_reads_fail(c, -ECANCELED);
    mem_free(c->reads);
    c->reads = NULL;
}
