/* rdma-hostile: a peer that breaks the rules of Valkey over RDMA.
 *
 *   rdma-hostile --host H --port P [--cases N] [--first N] [--seed S] [--kind NAME] [--wait MS] [--list]
 *   rdma-hostile --host H --port P --hold POSTURE [--cases N]
 *
 * Connects N times and does something hostile each time, one kind after the other, beginning with case --first: control
 * messages of a wrong length, opcode or content, immediates that lie, writes and reads outside of the server's buffer,
 * floods, ends at any moment. After each it looks whether the server ended the connection, which it must where the kind
 * says so. Kinds that are odd but lawful must be answered. Exit code 0 when every case ended as it must.
 *
 * It is written on plain verbs and knows the protocol by itself: a mistake in the server's transport code must not be
 * repeated here by sharing it. Control messages are 32 bytes, big-endian; see the table in src/net/rdma/wire.h. */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    GET_SERVER_FEATURE,
    SET_CLIENT_FEATURE,
    KEEPALIVE,
    REGISTER_MEMORY,
    CREDIT = 0x8000,
    BUFFER_TAKEN,
    POLL_BEGIN,
    POLL_BEGUN,
    POLL_END,
    POLL_ENDED,
    CONTROL_SIZE = 32
};
#define RING   (UINT64_C(1) << 32)
#define POLLED (UINT64_C(1) << 33)
enum { SEND_DEPTH = 512, RECV_DEPTH = 64, RECV_SLOT = 64, OUT_SIZE = 256 * 1024, IN_SIZE = 64 * 1024 };
enum { CONNECT_MS = 30000, TOGETHER = 64 /* links that connect at the same time */ };

struct link {
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *in_mr, *out_mr, *control_mr;
    uint8_t *in, *out, *control; /* control: RECV_DEPTH slots for messages of the server */
    uint64_t peer_addr;          /* its receive buffer, once it has told */
    uint32_t peer_length, peer_key;
    uint32_t peer_offset; /* how much of it we have filled */
    uint32_t in_filled;   /* bytes of replies so far */
    unsigned sends;       /* posted and not completed; all are signalled */
    bool established, closed, told, feature_answer;
    uint64_t features;
    bool ring, owes_taken; /* the server's buffer is a ring; it has announced another one */
    uint32_t window;       /* of the ring */
    bool poll_told, poll_end,
        polling; /* the server has announced its polled word; has withdrawn it; we have confirmed it */
    uint64_t word_addr;
    uint32_t word_key;
    uint32_t counted, base, crc; /* what the word says: bytes, and the checksum of those after the base */
};

static const char *host = "127.0.0.1", *port = "6379";
static int wait_ms = 5000;
static unsigned long messages; /* work requests posted, of all cases */

/* --- Random numbers: one seed gives the same cases everywhere. --- */

static uint64_t random_state;
static uint32_t random_next(void) {
    random_state += 0x9e3779b97f4a7c15ull;
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)((z ^ (z >> 31)) >> 16);
}
static uint32_t random_below(uint32_t n) {
    return random_next() % n;
}
static void random_fill(void *to, size_t n) {
    for (size_t i = 0; i < n; i++) ((uint8_t *)to)[i] = (uint8_t)random_next();
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

static void die(const char *what) {
    fprintf(stderr, "rdma-hostile: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* --- One connection --- */

/* Waits for one event of the connection manager; its type, or -1 when none came in time. */
static int cm_event(struct link *l, int ms) {
    struct pollfd p = {.fd = l->events->fd, .events = POLLIN};
    if (poll(&p, 1, ms) <= 0) return -1;
    struct rdma_cm_event *e;
    if (rdma_get_cm_event(l->events, &e)) return -1;
    int type = (int)e->event;
    rdma_ack_cm_event(e);
    if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_TIMEWAIT_EXIT || type == RDMA_CM_EVENT_REJECTED)
        l->closed = true;
    return type;
}

static void post_receive(struct link *l, uint32_t slot) {
    struct ibv_sge sge = {
        .addr = (uintptr_t)(l->control + slot * RECV_SLOT), .length = RECV_SLOT, .lkey = l->control_mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    ibv_post_recv(l->id->qp, &wr, &bad);
}

static void control_received(struct link *l, const uint8_t *m, uint32_t length) {
    if (length != CONTROL_SIZE) return;
    uint16_t opcode = (uint16_t)(m[0] << 8 | m[1]);
    if (opcode == REGISTER_MEMORY) {
        uint64_t addr;
        uint32_t n, key;
        memcpy(&addr, m + 16, 8);
        memcpy(&n, m + 24, 4);
        memcpy(&key, m + 28, 4);
        l->peer_addr = be64toh(addr);
        l->peer_length = ntohl(n);
        l->peer_key = ntohl(key);
        l->peer_offset = 0;
        l->owes_taken = l->ring;
        l->window = l->peer_length;
        l->told = true;
    } else if (opcode == GET_SERVER_FEATURE) {
        uint64_t f;
        memcpy(&f, m + 24, 8);
        l->features = be64toh(f);
        l->feature_answer = true;
    } else if (opcode == SET_CLIENT_FEATURE) {
        l->ring = true;
        l->window = l->peer_length - l->peer_offset;
        if (l->window == 0) l->peer_offset = 0;
    } else if (opcode == POLL_BEGIN) {
        uint64_t addr;
        uint32_t key;
        memcpy(&addr, m + 16, 8);
        memcpy(&key, m + 28, 4);
        l->word_addr = be64toh(addr);
        l->word_key = ntohl(key);
        l->poll_told = true;
    } else if (opcode == POLL_END) {
        l->poll_end = true;
    } else if (opcode == CREDIT) {
        uint32_t n;
        memcpy(&n, m + 24, 4);
        l->window += ntohl(n);
    }
}

/* Takes what the completion queue has. */
static void take_completions(struct link *l) {
    struct ibv_wc wc[16];
    int n;
    while ((n = ibv_poll_cq(l->cq, 16, wc)) > 0) {
        for (int i = 0; i < n; i++) {
            bool receive = wc[i].wr_id < RECV_DEPTH;
            if (!receive && l->sends) l->sends--;
            if (wc[i].status != IBV_WC_SUCCESS) {
                l->closed = true;
                continue;
            }
            if (!receive) continue;
            if (wc[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
                l->in_filled += ntohl(wc[i].imm_data);
            } else {
                control_received(l, l->control + wc[i].wr_id * RECV_SLOT, wc[i].byte_len);
            }
            post_receive(l, (uint32_t)wc[i].wr_id);
        }
    }
}

static void link_close(struct link *l) {
    if (!l) return;
    if (l->id && l->id->qp) {
        if (l->established && !l->closed) rdma_disconnect(l->id);
        rdma_destroy_qp(l->id);
    }
    if (l->in_mr) ibv_dereg_mr(l->in_mr);
    if (l->out_mr) ibv_dereg_mr(l->out_mr);
    if (l->control_mr) ibv_dereg_mr(l->control_mr);
    if (l->cq) ibv_destroy_cq(l->cq);
    if (l->pd) ibv_dealloc_pd(l->pd);
    if (l->id) rdma_destroy_id(l->id);
    if (l->events) rdma_destroy_event_channel(l->events);
    free(l->in);
    free(l->out);
    free(l->control);
    free(l);
}

static bool link_resources(struct link *l) {
    if (!(l->pd = ibv_alloc_pd(l->id->verbs))) return false;
    if (!(l->cq = ibv_create_cq(l->id->verbs, SEND_DEPTH + RECV_DEPTH + 16, NULL, NULL, 0))) return false;
    struct ibv_qp_init_attr attr = {
        .send_cq = l->cq,
        .recv_cq = l->cq,
        .cap = {.max_send_wr = SEND_DEPTH, .max_recv_wr = RECV_DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    if (rdma_create_qp(l->id, l->pd, &attr)) return false;
    l->in = aligned_alloc(4096, IN_SIZE);
    l->out = aligned_alloc(4096, OUT_SIZE);
    l->control = aligned_alloc(4096, 4096 * ((RECV_DEPTH * RECV_SLOT + 4095) / 4096));
    if (!l->in || !l->out || !l->control) return false;
    memset(l->in, 0, IN_SIZE);
    memset(l->out, 0, OUT_SIZE);
    l->in_mr = ibv_reg_mr(l->pd, l->in, IN_SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    l->out_mr = ibv_reg_mr(l->pd, l->out, OUT_SIZE, IBV_ACCESS_LOCAL_WRITE);
    l->control_mr = ibv_reg_mr(l->pd, l->control, RECV_DEPTH * RECV_SLOT, IBV_ACCESS_LOCAL_WRITE);
    if (!l->in_mr || !l->out_mr || !l->control_mr) return false;
    for (uint32_t i = 0; i < RECV_DEPTH; i++) post_receive(l, i);
    return true;
}

/* The steps of connecting. Each waits for the answer to the one before, so that many links can be connected at the same
 * time. The waits end only when something is wrong. */
static struct link *link_begin(void) {
    struct link *l = calloc(1, sizeof *l);
    if (!l) die("no memory");
    struct addrinfo *to = NULL, hints = {.ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host, port, &hints, &to)) die("getaddrinfo");
    if (!(l->events = rdma_create_event_channel())) die("rdma_create_event_channel");
    if (rdma_create_id(l->events, &l->id, NULL, RDMA_PS_TCP)) die("rdma_create_id");
    if (rdma_resolve_addr(l->id, NULL, to->ai_addr, CONNECT_MS)) die("rdma_resolve_addr");
    freeaddrinfo(to);
    return l;
}

static void link_resolve(struct link *l) {
    int got = cm_event(l, CONNECT_MS);
    if (got != RDMA_CM_EVENT_ADDR_RESOLVED) {
        fprintf(stderr, "rdma-hostile: the address was not resolved (event %d)\n", got);
        exit(2);
    }
    if (rdma_resolve_route(l->id, CONNECT_MS)) die("rdma_resolve_route");
}

static void link_prepare(struct link *l) {
    if (cm_event(l, CONNECT_MS) != RDMA_CM_EVENT_ROUTE_RESOLVED) die("rdma_resolve_route");
    if (!link_resources(l)) die("verbs objects");
}

static void link_connect(struct link *l, const void *private_data, size_t private_length) {
    struct rdma_conn_param param = {
        .private_data = private_data,
        .private_data_len = (uint8_t)private_length,
        .responder_resources = 1,
        .initiator_depth = 1,
        .retry_count = 7,
        .rnr_retry_count = 7,
    };
    if (rdma_connect(l->id, &param)) die("rdma_connect");
}

static void link_established(struct link *l) {
    int got = cm_event(l, CONNECT_MS);
    if (got != RDMA_CM_EVENT_ESTABLISHED) {
        fprintf(stderr, "rdma-hostile: no connection (event %d: %s)\n", got,
                got >= 0 ? rdma_event_str((enum rdma_cm_event_type)got) : "none");
        exit(2);
    }
    l->established = true;
}

static void link_told(struct link *l) {
    int64_t end = now_ms() + CONNECT_MS;
    while (!l->told && !l->closed && now_ms() < end) {
        take_completions(l);
        cm_event(l, 0);
    }
    if (l->told) return;
    fprintf(stderr, "rdma-hostile: the server did not register its buffer after the connection was made\n");
    exit(1);
}

/* Connects as far as `steps` says: 0 addresses resolved, 1 connect sent, 2 established, 3 the server has told its
 * buffer. */
static struct link *link_open(int steps, const void *private_data, size_t private_length) {
    struct link *l = link_begin();
    link_resolve(l);
    link_prepare(l);
    if (steps >= 1) link_connect(l, private_data, private_length);
    if (steps >= 2) link_established(l);
    if (steps >= 3) link_told(l);
    return l;
}

/* Posts one work request. When the send queue is full, first waits for completions. */
static void post(struct link *l, struct ibv_send_wr *wr) {
    int64_t end = now_ms() + wait_ms;
    while (l->sends >= SEND_DEPTH - 1 && !l->closed && now_ms() < end) {
        take_completions(l);
        cm_event(l, 0);
    }
    if (l->closed) return;
    wr->wr_id = RECV_DEPTH + 1;
    struct ibv_send_wr *bad;
    if (ibv_post_send(l->id->qp, wr, &bad)) {
        l->closed = true;
        return;
    }
    l->sends++;
    messages++;
}

static void send_bytes(struct link *l, uint32_t length, enum ibv_wr_opcode opcode, uint32_t imm) {
    struct ibv_sge sge = {.addr = (uintptr_t)l->out, .length = length, .lkey = l->out_mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = length ? 1 : 0, .opcode = opcode, .imm_data = htonl(imm)};
    post(l, &wr);
}

static void write_at(struct link *l, uint64_t addr, uint32_t key, uint32_t length, enum ibv_wr_opcode opcode,
                     uint32_t imm) {
    struct ibv_sge sge = {.addr = (uintptr_t)l->out, .length = length, .lkey = l->out_mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = length ? 1 : 0, .opcode = opcode, .imm_data = htonl(imm)};
    wr.wr.rdma.remote_addr = addr;
    wr.wr.rdma.rkey = key;
    post(l, &wr);
}

/* The lawful way to send bytes. */
static void write_lawful(struct link *l, const void *bytes, uint32_t length) {
    memcpy(l->out, bytes, length);
    write_at(l, l->peer_addr + l->peer_offset, l->peer_key, length, IBV_WR_RDMA_WRITE_WITH_IMM, length);
    l->peer_offset += length;
}

static uint8_t *message(struct link *l, uint16_t opcode) {
    /* Waits for earlier sends: they still read the buffer. */
    int64_t end = now_ms() + wait_ms;
    while (l->sends && !l->closed && now_ms() < end) {
        take_completions(l);
        cm_event(l, 0);
    }
    memset(l->out, 0, CONTROL_SIZE);
    l->out[0] = (uint8_t)(opcode >> 8);
    l->out[1] = (uint8_t)opcode;
    return l->out;
}
static void send_memory(struct link *l, uint64_t addr, uint32_t length, uint32_t key) {
    uint8_t *m = message(l, REGISTER_MEMORY);
    addr = htobe64(addr);
    length = htonl(length);
    key = htonl(key);
    memcpy(m + 16, &addr, 8);
    memcpy(m + 24, &length, 4);
    memcpy(m + 28, &key, 4);
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
}
static void register_lawful(struct link *l) {
    send_memory(l, (uintptr_t)l->in, IN_SIZE, l->in_mr->rkey);
}

/* Looks until the connection is closed or that time is over. */
static bool is_closed(struct link *l, int ms) {
    int64_t end = now_ms() + ms;
    while (!l->closed) {
        take_completions(l);
        if (l->closed) break;
        cm_event(l, 1);
        if (now_ms() >= end) break;
    }
    return l->closed;
}
/* Polls until that number of bytes of replies has arrived. */
static bool has_reply(struct link *l, uint32_t bytes, int ms) {
    int64_t end = now_ms() + ms;
    while (l->in_filled < bytes && !l->closed && now_ms() < end) {
        take_completions(l);
        cm_event(l, 0);
    }
    return l->in_filled >= bytes;
}

/* --- The kinds of cases --- */

enum verdict { GOOD, BAD };
static enum verdict must_close(struct link *l) {
    bool closed = is_closed(l, wait_ms);
    link_close(l);
    return closed ? GOOD : BAD;
}
/* It may be closed or not; what counts is that the server survives. */
static enum verdict whatever(struct link *l) {
    is_closed(l, 2);
    link_close(l);
    return GOOD;
}

static const char ping[] = "PING\r\n";
static const char half[] = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100\r\nhalf";

static enum verdict lawful_ping(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    write_lawful(l, ping, 6);
    bool ok = has_reply(l, 7, wait_ms) && !memcmp(l->in, "+PONG\r\n", 7);
    link_close(l);
    return ok ? GOOD : BAD;
}
/* A client that executes nothing more waits for its replies to leave. They never do, and the end comes, perhaps behind
 * bytes that the server does not read. The suite looks whether the client is gone. */
static enum verdict end_behind_quit(void) {
    struct link *l = link_open(3, NULL, 0);
    send_memory(l, (uintptr_t)l->in, 1, l->in_mr->rkey);
    message(l, 0);
    write_lawful(l, "QUIT\r\nPING\r\n", 12);
    bool ok = has_reply(l, 1, wait_ms) && l->in[0] == '+';
    if (random_below(2)) write_lawful(l, ping, 1);
    message(l, 0); /* waits until all has arrived */
    link_close(l);
    return ok ? GOOD : BAD;
}
/* Several WRITEs and one notification are lawful. */
static enum verdict lawful_chained_writes(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    memcpy(message(l, 0), ping, 6);
    struct ibv_sge sge[2] = {{.addr = (uintptr_t)l->out, .length = 3, .lkey = l->out_mr->lkey},
                             {.addr = (uintptr_t)l->out + 3, .length = 3, .lkey = l->out_mr->lkey}};
    struct ibv_send_wr one = {.sg_list = &sge[0], .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    struct ibv_send_wr two = {
        .sg_list = &sge[1], .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(6)};
    one.wr.rdma.remote_addr = l->peer_addr;
    two.wr.rdma.remote_addr = l->peer_addr + 3;
    one.wr.rdma.rkey = two.wr.rdma.rkey = l->peer_key;
    post(l, &one);
    post(l, &two);
    bool ok = has_reply(l, 7, wait_ms) && !memcmp(l->in, "+PONG\r\n", 7);
    link_close(l);
    return ok ? GOOD : BAD;
}
static enum verdict lawful_get_feature(void) {
    struct link *l = link_open(3, NULL, 0);
    message(l, GET_SERVER_FEATURE);
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
    int64_t end = now_ms() + wait_ms;
    while (!l->feature_answer && !l->closed && now_ms() < end) {
        take_completions(l);
        cm_event(l, 0);
    }
    bool ok = l->feature_answer;
    if (ok) {
        /* Asking for nothing is lawful too. */
        message(l, SET_CLIENT_FEATURE);
        send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
        register_lawful(l);
        write_lawful(l, ping, 6);
        ok = has_reply(l, 7, wait_ms);
    }
    link_close(l);
    return ok ? GOOD : BAD;
}
static enum verdict lawful_keepalives(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    for (int i = 0; i < 3; i++) {
        message(l, KEEPALIVE);
        send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
    }
    message(l, KEEPALIVE);
    write_lawful(l, ping, 6);
    bool ok = has_reply(l, 7, wait_ms);
    link_close(l);
    return ok ? GOOD : BAD;
}
/* The buffer filled to its very last byte: the server must register it anew and go on. */
static enum verdict lawful_exactly_full(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    uint32_t left = l->peer_length, pings = 0;
    while (left) {
        uint32_t n = left < 120000 ? left : 120000;
        message(l, 0);
        /* Empty lines, with one PING at the end of each piece. */
        memset(l->out, '\n', n);
        if (n >= 5) {
            memcpy(l->out + n - 5, "PING\n", 5);
            pings++;
        }
        write_at(l, l->peer_addr + l->peer_offset, l->peer_key, n, IBV_WR_RDMA_WRITE_WITH_IMM, n);
        l->peer_offset += n;
        left -= n;
        if (l->closed) break;
    }
    l->told = false;
    bool ok = has_reply(l, 7 * pings, wait_ms);
    int64_t end = now_ms() + wait_ms;
    while (!l->told && !l->closed && now_ms() < end) {
        take_completions(l);
        cm_event(l, 0);
    }
    if (ok && l->told) {
        message(l, 0);
        write_lawful(l, ping, 6);
        ok = has_reply(l, 7 * pings + 7, wait_ms);
    } else {
        ok = false;
    }
    link_close(l);
    return ok ? GOOD : BAD;
}
/* Fills buffer after buffer with nothing but empty lines, as fast as it can: the server may give more to those it
 * trusts, and to nobody else. */
static enum verdict lawful_many_buffers(void) {
    enum { BUFFERS = 30 };
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    bool ok = l->told;
    for (int i = 0; ok && i < BUFFERS; i++) {
        uint32_t left = l->peer_length, n;
        l->told = false;
        for (; left && !l->closed; left -= n) {
            n = left < 120000 ? left : 120000;
            message(l, 0);
            memset(l->out, '\n', n);
            write_at(l, l->peer_addr + l->peer_offset, l->peer_key, n, IBV_WR_RDMA_WRITE_WITH_IMM, n);
            l->peer_offset += n;
        }
        int64_t end = now_ms() + wait_ms;
        while (!l->told && !l->closed && now_ms() < end) {
            take_completions(l);
            cm_event(l, 0);
        }
        ok = l->told;
    }
    if (ok) {
        message(l, 0);
        write_lawful(l, ping, 6);
        ok = has_reply(l, 7, wait_ms);
    }
    link_close(l);
    return ok ? GOOD : BAD;
}
static enum verdict private_data_rubbish(void) {
    uint8_t rubbish[56];
    random_fill(rubbish, sizeof rubbish);
    struct link *l = link_open(3, rubbish, random_below(sizeof rubbish + 1));
    return whatever(l);
}

static enum verdict control_short(void) {
    struct link *l = link_open(3, NULL, 0);
    random_fill(message(l, 0), CONTROL_SIZE);
    if (random_below(2)) message(l, (uint16_t)random_below(4));
    send_bytes(l, 1 + random_below(CONTROL_SIZE - 1), IBV_WR_SEND, 0);
    return must_close(l);
}
static enum verdict control_empty(void) {
    struct link *l = link_open(3, NULL, 0);
    send_bytes(l, 0, IBV_WR_SEND, 0);
    return must_close(l);
}
static enum verdict control_long(void) {
    struct link *l = link_open(3, NULL, 0);
    message(l, (uint16_t)random_below(4));
    send_bytes(l, CONTROL_SIZE + 1 + random_below(5000), IBV_WR_SEND, 0);
    return must_close(l);
}
static enum verdict control_opcode(void) {
    struct link *l = link_open(3, NULL, 0);
    uint8_t *m = message(l, 0);
    random_fill(m, CONTROL_SIZE);
    uint16_t opcode = (uint16_t)(4 + random_below(65532));
    m[0] = (uint8_t)(opcode >> 8);
    m[1] = (uint8_t)opcode;
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
    return must_close(l);
}
static enum verdict control_with_imm(void) {
    struct link *l = link_open(3, NULL, 0);
    message(l, KEEPALIVE);
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND_WITH_IMM, random_next());
    return whatever(l);
}
/* Features nobody has. */
static enum verdict feature_unknown(void) {
    struct link *l = link_open(3, NULL, 0);
    uint8_t *m = message(l, SET_CLIENT_FEATURE);
    memset(m + 24, 0xff, 8);
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
    return must_close(l);
}
static enum verdict feature_select(void) {
    struct link *l = link_open(3, NULL, 0);
    uint8_t *m = message(l, (uint16_t)random_below(2));
    m[2] = (uint8_t)random_next();
    m[3] = (uint8_t)(1 + random_below(255));
    random_fill(m + 24, 8);
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
    return whatever(l);
}
static enum verdict memory_of_no_length(void) {
    struct link *l = link_open(3, NULL, 0);
    send_memory(l, (uintptr_t)l->in, 0, l->in_mr->rkey);
    message(l, 0);
    write_lawful(l, ping, 6);
    return whatever(l);
}
/* It must not make the server allocate or pin four gigabytes; it may be refused or taken as a promise. */
static enum verdict memory_of_huge_length(void) {
    struct link *l = link_open(3, NULL, 0);
    send_memory(l, (uintptr_t)l->in, 0xffffffffu - random_below(3), l->in_mr->rkey);
    message(l, 0);
    write_lawful(l, ping, 6);
    return whatever(l);
}
/* The server's reply to a buffer that does not exist breaks the connection. */
static enum verdict memory_of_nobody(void) {
    struct link *l = link_open(3, NULL, 0);
    uint64_t addr = (uint64_t)random_next() << 32 | random_next();
    send_memory(l, addr, 1 + random_below(1 << 20), random_next());
    message(l, 0);
    write_lawful(l, ping, 6);
    return must_close(l);
}
static enum verdict memory_smaller_than_said(void) {
    struct link *l = link_open(3, NULL, 0);
    send_memory(l, (uintptr_t)l->in + IN_SIZE - 3, 1 << 20, l->in_mr->rkey);
    message(l, 0);
    write_lawful(l, ping, 6);
    return must_close(l);
}
/* Again and again, full or not. */
static enum verdict memory_again_and_again(void) {
    struct link *l = link_open(3, NULL, 0);
    for (int i = 0; i < 50 && !l->closed; i++)
        send_memory(l, (uintptr_t)l->in, 1 + random_below(IN_SIZE), l->in_mr->rkey);
    message(l, 0);
    write_lawful(l, ping, 6);
    return whatever(l);
}
static enum verdict memory_tiny(void) {
    struct link *l = link_open(3, NULL, 0);
    send_memory(l, (uintptr_t)l->in, 1 + random_below(6), l->in_mr->rkey);
    message(l, 0);
    write_lawful(l, ping, 6);
    return whatever(l);
}
static enum verdict immediate_beyond_the_buffer(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    message(l, 0);
    static const uint32_t lies[] = {0xffffffffu, 0x80000000u, 0x7fffffffu};
    uint32_t lie = random_below(2) ? lies[random_below(3)] : l->peer_length + 1 + random_below(1000);
    write_at(l, l->peer_addr, l->peer_key, random_below(100), IBV_WR_RDMA_WRITE_WITH_IMM, lie);
    return must_close(l);
}
/* Lawful steps up to the middle, then one beyond the end. */
static enum verdict immediate_beyond_the_rest(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    message(l, 0);
    memset(l->out, '\n', 1000);
    write_at(l, l->peer_addr, l->peer_key, 1000, IBV_WR_RDMA_WRITE_WITH_IMM, 1000);
    write_at(l, l->peer_addr + 1000, l->peer_key, 1, IBV_WR_RDMA_WRITE_WITH_IMM,
             l->peer_length - 1000 + 1 + random_below(100));
    return must_close(l);
}
/* Bytes that were never written: whatever stood in the buffer is the request. */
static enum verdict immediate_for_nothing(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    message(l, 0);
    write_at(l, l->peer_addr, l->peer_key, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 1 + random_below(l->peer_length));
    return whatever(l);
}
static enum verdict immediate_zero(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    message(l, 0);
    for (int i = 0; i < 10; i++) write_at(l, l->peer_addr, l->peer_key, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 0);
    return whatever(l);
}
static enum verdict data_before_registering(void) {
    struct link *l = link_open(3, NULL, 0);
    message(l, 0);
    for (int i = 0; i < 20 && !l->closed; i++) {
        message(l, 0);
        write_lawful(l, ping, 6);
    }
    return whatever(l);
}
static enum verdict write_outside(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    message(l, 0);
    uint64_t at[] = {l->peer_addr + l->peer_length,
                     l->peer_addr - 1,
                     l->peer_addr + l->peer_length - 1,
                     l->peer_addr + (1ull << 32),
                     0,
                     UINT64_MAX - 1};
    write_at(l, at[random_below(6)], l->peer_key, 2, random_below(2) ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM,
             2);
    return must_close(l);
}
static enum verdict write_with_wrong_key(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    message(l, 0);
    write_at(l, l->peer_addr, l->peer_key ^ (1u << random_below(32)), 6, IBV_WR_RDMA_WRITE_WITH_IMM, 6);
    return must_close(l);
}
/* Nobody but the server reads its memory. */
static enum verdict read_of_the_buffer(void) {
    struct link *l = link_open(3, NULL, 0);
    message(l, 0);
    write_at(l, l->peer_addr, l->peer_key, 1 + random_below(4096), IBV_WR_RDMA_READ, 0);
    return must_close(l);
}
static enum verdict flood_of_controls(void) {
    struct link *l = link_open(3, NULL, 0);
    message(l, KEEPALIVE);
    for (int i = 0; i < 3000 && !l->closed; i++) send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
    return whatever(l);
}
static enum verdict flood_of_tiny_writes(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    message(l, 0);
    l->out[0] = '\n';
    for (uint32_t i = 0; i < 3000 && i < l->peer_length && !l->closed; i++)
        write_at(l, l->peer_addr + i, l->peer_key, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 1);
    return whatever(l);
}
/* Asks for more than its buffer takes, and never says that it is free again. */
static enum verdict reader_that_never_reads(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    static const char echo[] = "*2\r\n$4\r\nECHO\r\n$60000\r\n";
    for (int i = 0; i < 10 && !l->closed; i++) {
        message(l, 0);
        uint32_t n = sizeof echo - 1;
        memcpy(l->out, echo, n);
        memset(l->out + n, 'x', 60000);
        memcpy(l->out + n + 60000, "\r\n", 2);
        n += 60002;
        if (l->peer_offset + n > l->peer_length) break;
        write_at(l, l->peer_addr + l->peer_offset, l->peer_key, n, IBV_WR_RDMA_WRITE_WITH_IMM, n);
        l->peer_offset += n;
    }
    return whatever(l);
}
static enum verdict gone_at_any_moment(void) {
    struct link *l = link_open((int)random_below(4), NULL, 0);
    if (l->told) {
        switch (random_below(4)) {
        case 0: register_lawful(l); break;
        case 1:
            register_lawful(l);
            message(l, 0);
            write_lawful(l, half, sizeof half - 1);
            break;
        case 2:
            register_lawful(l);
            message(l, 0);
            write_lawful(l, ping, 6);
            break;
        default: break;
        }
    }
    /* Sometimes without a word. */
    if (random_below(2)) l->established = false;
    link_close(l);
    return GOOD;
}
static enum verdict rubbish_requests(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    for (int i = 0; i < 5 && !l->closed; i++) {
        message(l, 0);
        uint32_t n = 1 + random_below(500);
        random_fill(l->out, n);
        write_at(l, l->peer_addr + l->peer_offset, l->peer_key, n, IBV_WR_RDMA_WRITE_WITH_IMM, n);
        l->peer_offset += n;
    }
    return whatever(l);
}
/* One connection, one thing after the other, until the server has enough. */
static enum verdict everything_on_one_connection(void) {
    struct link *l = link_open(3, NULL, 0);
    int steps = 1 + (int)random_below(30);
    for (int i = 0; i < steps && !l->closed; i++) {
        uint8_t *m = message(l, (uint16_t)random_below(4));
        switch (random_below(7)) {
        case 0: send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0); break;
        case 1: register_lawful(l); break;
        case 2:
            random_fill(m + 2, CONTROL_SIZE - 2);
            send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
            break;
        case 3:
            if (l->peer_offset + 6 <= l->peer_length) write_lawful(l, ping, 6);
            break;
        case 4: send_bytes(l, random_below(40), IBV_WR_SEND, 0); break;
        case 5:
            write_at(l, l->peer_addr + random_below(l->peer_length), l->peer_key, random_below(50),
                     IBV_WR_RDMA_WRITE_WITH_IMM, random_below(100));
            break;
        case 6: write_at(l, l->peer_addr, l->peer_key, 10, IBV_WR_RDMA_WRITE, 0); break;
        }
    }
    return whatever(l);
}

/* --- Peers that stay --- */

/* Takes one of these postures with N connections, says "holding N", and stays until standard input ends or all were
 * ended by the server ("all ended"):
 *   dialling     asked to connect, and does not confirm the answer
 *   silent       connected, says nothing: never announces a buffer
 *   idle         announced its buffer
 *   half         sent half a request
 *   unread       asked for more than its buffer takes, and never gives it back
 * Killed, it is a peer that vanishes. */
static void posture_take(struct link *l, const char *posture) {
    if (!strcmp(posture, "silent")) return;
    register_lawful(l);
    message(l, 0);
    if (!strcmp(posture, "half")) write_lawful(l, half, sizeof half - 1);
    if (!strcmp(posture, "unread")) {
        static const char get[] = "GET unread\r\nGET unread\r\n";
        write_lawful(l, get, sizeof get - 1);
    }
    message(l, 0);
}

/* On a busy machine a process waits long for each answer, so it waits once for those of many links. */
static void take_together(struct link **links, long count, const char *posture) {
    for (long i = 0; i < count; i++) links[i] = link_begin();
    for (long i = 0; i < count; i++) link_resolve(links[i]);
    for (long i = 0; i < count; i++) link_prepare(links[i]);
    for (long i = 0; i < count; i++) link_connect(links[i], NULL, 0);
    if (!strcmp(posture, "dialling")) return;
    for (long i = 0; i < count; i++) link_established(links[i]);
    for (long i = 0; i < count; i++) link_told(links[i]);
    for (long i = 0; i < count; i++) posture_take(links[i], posture);
}

static int hold(const char *posture, long count) {
    static const char *const postures[] = {"dialling", "silent", "idle", "half", "unread"};
    bool known = false;
    for (size_t i = 0; i < sizeof postures / sizeof *postures; i++) known |= !strcmp(posture, postures[i]);
    struct link **links = calloc((size_t)count, sizeof *links);
    if (!known || !links) {
        fprintf(stderr, "rdma-hostile: there is no posture %s\n", posture);
        return 2;
    }
    for (long i = 0; i < count; i += TOGETHER)
        take_together(links + i, count - i < TOGETHER ? count - i : TOGETHER, posture);
    printf("holding %ld\n", count);
    bool dialling = !strcmp(posture, "dialling"), ended = false;
    for (struct pollfd in = {.fd = 0, .events = POLLIN}; !ended && poll(&in, 1, 5) == 0;) {
        ended = !dialling;
        for (long i = 0; i < count && !dialling; i++) {
            if (!links[i]->closed) take_completions(links[i]);
            if (!links[i]->closed) cm_event(links[i], 0);
            ended &= links[i]->closed;
        }
    }
    if (ended) puts("all ended");
    for (long i = 0; i < count; i++) link_close(links[i]);
    free(links);
    return 0;
}

#include "rdma-hostile-features.h"
#include "rdma-hostile-placement.h"

/* clang-format off */
#define KINDS(X)                                                                                                      \
    X(lawful_ping)                                                                                                    \
    X(end_behind_quit)                                                                                                \
    X(lawful_chained_writes) X(lawful_get_feature) X(lawful_keepalives) X(lawful_exactly_full) X(lawful_many_buffers) \
        X(private_data_rubbish) X(control_short) X(control_empty) X(control_long) X(control_opcode)                   \
            X(control_with_imm) X(feature_unknown) X(feature_select) X(memory_of_no_length) X(memory_of_huge_length)  \
                X(memory_of_nobody) X(memory_smaller_than_said) X(memory_again_and_again) X(memory_tiny)              \
                    X(immediate_beyond_the_buffer) X(immediate_beyond_the_rest) X(immediate_for_nothing)              \
                        X(immediate_zero) X(data_before_registering) X(write_outside) X(write_with_wrong_key)         \
                            X(read_of_the_buffer) X(flood_of_controls) X(flood_of_tiny_writes)                        \
                                X(reader_that_never_reads) X(gone_at_any_moment) X(rubbish_requests)                  \
                                    X(everything_on_one_connection) FEATURE_KINDS(X) PLACEMENT_KINDS(X)
/* clang-format on */

static const struct kind {
    const char *name;
    enum verdict (*run)(void);
} kinds[] = {
#define X(name) {#name, name},
    KINDS(X)
#undef X
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

static void usage(FILE *to) {
    fputs(
        "usage: rdma-hostile --host H --port P [--cases N] [--first N] [--seed S] [--kind NAME] [--wait MS] [--list]\n"
        "       rdma-hostile --host H --port P --hold dialling|silent|idle|half|unread [--cases N]\n",
        to);
}

int main(int argc, char **argv) {
    long cases = 100, first = 0;
    unsigned long seed = 1;
    const char *only = NULL, *posture = NULL;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!strcmp(a, "--list")) {
            for (int k = 0; k < KIND_COUNT; k++) puts(kinds[k].name);
            return 0;
        }
        if (!strcmp(a, "--help")) {
            usage(stdout);
            return 0;
        }
        if (i + 1 >= argc) {
            usage(stderr);
            return 2;
        }
        const char *v = argv[++i];
        if (!strcmp(a, "--host"))
            host = v;
        else if (!strcmp(a, "--port"))
            port = v;
        else if (!strcmp(a, "--cases"))
            cases = strtol(v, NULL, 10);
        else if (!strcmp(a, "--first"))
            first = strtol(v, NULL, 10);
        else if (!strcmp(a, "--seed"))
            seed = strtoul(v, NULL, 10);
        else if (!strcmp(a, "--kind"))
            only = v;
        else if (!strcmp(a, "--wait"))
            wait_ms = atoi(v);
        else if (!strcmp(a, "--hold"))
            posture = v;
        else {
            usage(stderr);
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (posture) return hold(posture, cases);
    long failed = 0, done = 0, runs[KIND_COUNT] = {0};
    for (long i = first; i < first + cases; i++) {
        random_state = seed * 1000003ull + (unsigned long)i;
        int k = (int)(i % KIND_COUNT);
        /* The slow ones seldom: what they find, they find soon. */
        if (!only && i >= KIND_COUNT &&
            (kinds[k].run == flood_of_controls || kinds[k].run == flood_of_tiny_writes ||
             kinds[k].run == lawful_exactly_full || kinds[k].run == lawful_many_buffers ||
             kinds[k].run == reader_that_never_reads) &&
            i / KIND_COUNT % 10)
            k = (int)random_below(4) + 6;
        if (only) {
            for (k = 0; k < KIND_COUNT && strcmp(kinds[k].name, only) != 0; k++) {
            }
            if (k == KIND_COUNT) {
                fprintf(stderr, "rdma-hostile: there is no kind %s (see --list)\n", only);
                return 2;
            }
        }
        if (kinds[k].run() == BAD) {
            printf("failed: %s (seed %lu, case %ld): %s\n", kinds[k].name, seed, i,
                   strncmp(kinds[k].name, "lawful", 6) ? "the server did not end the connection" : "no proper answer");
            if (++failed >= 20) break;
        }
        runs[k]++;
        done++;
    }
    for (int k = 0; k < KIND_COUNT; k++)
        if (runs[k]) printf("%6ld %s\n", runs[k], kinds[k].name);
    printf("%ld cases, %lu messages, %ld failed\n", done, messages, failed);
    return failed ? 1 : 0;
}
