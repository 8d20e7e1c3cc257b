/* rdma-base-load: load on a server by clients of the base protocol, after a warm-up.
 *
 *   rdma-base-load HOST PORT set|get|mixed CLIENTS PIPELINE BYTES SECONDS [SERVER]
 *
 * Each client behaves like a stock one as the server sees it. It asks for no features and announces a receive buffer of
 * 1 MiB once, and again whenever the server has filled it. Its send buffer has the size of the buffer that the server
 * announced last: a change of that size costs a deregistration, an allocation and a registration. It copies each batch
 * of PIPELINE requests into the send buffer and sends what fits as one WRITE_WITH_IMM. When the buffer is full it waits
 * in the middle of the batch, and serves no other client, until the server announces a buffer again. Clients sleep for
 * completions; none spins.
 *
 * A client is warm after WARM_BATCHES batches. When all are warm, the program counts replies for SECONDS. It prints
 * requests a second, microseconds of its own CPU time a request, milliseconds from the first connection until all
 * clients were warm, how often the announced size changed for a client, and how often a client waited for a buffer in
 * the middle of a batch, for each batch after the warm-up. With the process SERVER it also prints microseconds of that
 * one's CPU time a request.
 *
 * It is written on plain verbs: what it measures does not depend on this project's transport. SET writes the key
 * "base-load" with BYTES bytes; GET reads it, and the program writes it first. A batch of
 * "mixed" alternates between the two. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

enum {
    REGISTER_MEMORY = 3,
    CONTROL_SIZE = 32,
    RECEIVES = 256,
    SENDS = 256,
    IN_SIZE = 1024 * 1024,
    WARM_BATCHES = 2,
    WAIT_MS = 20000, /* a server that does not react for this long has failed */
    READY_AT_ONCE = 64,
};

struct client {
    struct rdma_event_channel *events;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *in_mr, *out_mr, *control_mr;
    char *in, *out;
    uint8_t *control; /* RECEIVES messages of the server, and one of ours behind them */
    uint64_t peer_addr;
    uint32_t peer_size, peer_key, sent; /* the server's buffer, and how much of it is full */
    uint32_t arrived, parsed;           /* of our buffer */
    uint64_t skip;                      /* bytes of a reply's value that are still missing */
    char line[64];                      /* the beginning of a reply's first line */
    uint32_t line_len, replies;         /* of the present batch */
    unsigned batches, size_changes;
};

static const char *host, *port;
static bool gets, sets;
static unsigned long pipeline, value_bytes;
static char *batch;
static size_t batch_len;
static uint64_t answered, waits; /* requests; full buffers in the middle of a batch */

static void die(const char *what) {
    fprintf(stderr, "rdma-base-load: %s (%s)\n", what, errno ? strerror(errno) : "no error");
    exit(1);
}

static double seconds_of(clockid_t clock) {
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Connecting */

static void expect_event(struct client *c, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(c->events, &event)) die("rdma_get_cm_event");
    errno = 0;
    if (event->event != type) die(rdma_event_str(event->event));
    rdma_ack_cm_event(event);
}

static void post_receive(struct client *c, uint64_t slot) {
    struct ibv_sge sge = {
        .addr = (uintptr_t)(c->control + slot * CONTROL_SIZE), .length = CONTROL_SIZE, .lkey = c->control_mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    if (ibv_post_recv(c->id->qp, &wr, &bad)) die("ibv_post_recv");
}

static void *pages(size_t size) {
    void *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (!memory) die("no memory");
    return memset(memory, 0, size);
}

static struct ibv_mr *register_memory(struct client *c, void *memory, size_t size) {
    struct ibv_mr *mr = ibv_reg_mr(c->pd, memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!mr) die("ibv_reg_mr");
    return mr;
}

static void create_objects(struct client *c) {
    if (!(c->pd = ibv_alloc_pd(c->id->verbs))) die("ibv_alloc_pd");
    if (!(c->channel = ibv_create_comp_channel(c->id->verbs))) die("ibv_create_comp_channel");
    if (!(c->cq = ibv_create_cq(c->id->verbs, SENDS + RECEIVES, c, c->channel, 0))) die("ibv_create_cq");
    if (ibv_req_notify_cq(c->cq, 0)) die("ibv_req_notify_cq");
    fcntl(c->channel->fd, F_SETFL, fcntl(c->channel->fd, F_GETFL) | O_NONBLOCK);
    struct ibv_qp_init_attr attributes = {
        .send_cq = c->cq,
        .recv_cq = c->cq,
        .cap = {.max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    if (rdma_create_qp(c->id, c->pd, &attributes)) die("rdma_create_qp");
    c->in = pages(IN_SIZE);
    c->control = pages((RECEIVES + 1) * CONTROL_SIZE);
    c->in_mr = register_memory(c, c->in, IN_SIZE);
    c->control_mr = register_memory(c, c->control, (RECEIVES + 1) * CONTROL_SIZE);
    for (uint64_t i = 0; i < RECEIVES; i++) post_receive(c, i);
}

static void connect_client(struct client *c, const struct sockaddr *to) {
    if (!(c->events = rdma_create_event_channel())) die("rdma_create_event_channel");
    if (rdma_create_id(c->events, &c->id, NULL, RDMA_PS_TCP)) die("rdma_create_id");
    if (rdma_resolve_addr(c->id, NULL, (struct sockaddr *)to, WAIT_MS)) die("rdma_resolve_addr");
    expect_event(c, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (rdma_resolve_route(c->id, WAIT_MS)) die("rdma_resolve_route");
    expect_event(c, RDMA_CM_EVENT_ROUTE_RESOLVED);
    create_objects(c);
    struct rdma_conn_param param = {
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
    if (rdma_connect(c->id, &param)) die("rdma_connect");
    expect_event(c, RDMA_CM_EVENT_ESTABLISHED);
}

/* The connection */

static void post_send(struct client *c, struct ibv_send_wr *wr) {
    struct ibv_send_wr *bad;
    wr->wr_id = RECEIVES;
    if ((errno = ibv_post_send(c->id->qp, wr, &bad))) die("ibv_post_send");
}

static void announce(struct client *c) {
    uint8_t *message = c->control + RECEIVES * CONTROL_SIZE;
    uint64_t addr = htobe64((uintptr_t)c->in);
    uint32_t size = htonl(IN_SIZE), key = htonl(c->in_mr->rkey);
    memset(message, 0, CONTROL_SIZE);
    message[1] = REGISTER_MEMORY;
    memcpy(message + 16, &addr, 8);
    memcpy(message + 24, &size, 4);
    memcpy(message + 28, &key, 4);
    c->arrived = c->parsed = 0;
    struct ibv_sge sge = {.addr = (uintptr_t)message, .length = CONTROL_SIZE, .lkey = c->control_mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    post_send(c, &wr);
}

static void take_control(struct client *c, const uint8_t *message) {
    uint32_t size;
    if (message[0] || message[1] != REGISTER_MEMORY) return;
    memcpy(&c->peer_addr, message + 16, 8);
    memcpy(&size, message + 24, 4);
    memcpy(&c->peer_key, message + 28, 4);
    c->peer_addr = be64toh(c->peer_addr);
    c->peer_key = ntohl(c->peer_key);
    c->sent = 0;
    if (ntohl(size) == c->peer_size) return;
    if (c->out_mr) {
        c->size_changes++;
        ibv_dereg_mr(c->out_mr);
        free(c->out);
    }
    c->peer_size = ntohl(size);
    c->out = pages(c->peer_size);
    c->out_mr = register_memory(c, c->out, c->peer_size);
}

/* Counts the replies that have arrived. A reply of one line ends with it; a value follows its length. */
static void parse(struct client *c) {
    while (c->parsed < c->arrived) {
        uint32_t there = c->arrived - c->parsed;
        if (c->skip) {
            uint32_t part = c->skip < there ? (uint32_t)c->skip : there;
            c->parsed += part;
            c->skip -= part;
            if (c->skip == 0) c->replies++;
            continue;
        }
        char byte = c->in[c->parsed++];
        if (c->line_len == sizeof c->line - 1) die("a reply begins with a long line");
        c->line[c->line_len++] = byte;
        if (byte != '\n') continue;
        c->line[c->line_len] = 0;
        c->line_len = 0;
        errno = 0;
        bool value = c->line[0] == '$';
        if (value ? !gets : !sets || c->line[0] != '+') die(c->line);
        if (value && strtoul(c->line + 1, NULL, 10) != value_bytes) die(c->line);
        if (value)
            c->skip = value_bytes + 2;
        else
            c->replies++;
    }
    if (c->parsed == IN_SIZE) announce(c);
}

static void take_completions(struct client *c) {
    struct ibv_wc wc[16];
    for (int n; (n = ibv_poll_cq(c->cq, 16, wc)) != 0;) {
        if (n < 0) die("ibv_poll_cq");
        for (int i = 0; i < n; i++) {
            errno = 0;
            if (wc[i].status != IBV_WC_SUCCESS) die(ibv_wc_status_str(wc[i].status));
            if (wc[i].wr_id >= RECEIVES) continue;
            if (wc[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
                c->arrived += ntohl(wc[i].imm_data);
                if (c->arrived > IN_SIZE) die("more bytes than the buffer takes");
            } else {
                take_control(c, c->control + wc[i].wr_id * CONTROL_SIZE);
            }
            post_receive(c, wc[i].wr_id);
        }
        parse(c);
    }
}

/* Takes the notification, arms the next one, and takes what has completed. */
static void handle_event(struct client *c) {
    struct ibv_cq *cq;
    void *context;
    while (ibv_get_cq_event(c->channel, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
    if (ibv_req_notify_cq(c->cq, 0)) die("ibv_req_notify_cq");
    take_completions(c);
}

static void wait_for_buffer(struct client *c) {
    while (c->sent == c->peer_size) {
        struct pollfd ready = {.fd = c->channel->fd, .events = POLLIN};
        errno = 0;
        if (poll(&ready, 1, WAIT_MS) == 0) die("the server announces no buffer");
        handle_event(c);
    }
}

static void send_bytes(struct client *c, const char *data, size_t len) {
    for (const char *start = data; len;) {
        if (c->sent == c->peer_size && data != start) waits++;
        wait_for_buffer(c);
        uint32_t space = c->peer_size - c->sent, part = len < space ? (uint32_t)len : space;
        memcpy(c->out + c->sent, data, part);
        struct ibv_sge sge = {.addr = (uintptr_t)(c->out + c->sent), .length = part, .lkey = c->out_mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                 .imm_data = htonl(part),
                                 .wr.rdma = {.remote_addr = c->peer_addr + c->sent, .rkey = c->peer_key}};
        c->sent += part;
        data += part;
        len -= part;
        post_send(c, &wr);
    }
}

/* Sends the next batch if all replies to the one before are there. */
static void proceed(struct client *c) {
    if (c->replies < pipeline) return;
    c->replies = 0;
    c->batches++;
    answered += pipeline;
    send_bytes(c, batch, batch_len);
}

/* The program */

static void make_batch(void) {
    char header[128];
    char *value = pages(value_bytes + 1);
    memset(value, 'v', value_bytes);
    size_t most = pipeline * (sizeof header + (sets ? value_bytes + 2 : 0));
    batch = pages(most);
    for (unsigned long i = 0; i < pipeline; i++) {
        bool get = gets && (!sets || i % 2);
        int n = get ? snprintf(header, sizeof header, "*2\r\n$3\r\nGET\r\n$9\r\nbase-load\r\n")
                    : snprintf(header, sizeof header, "*3\r\n$3\r\nSET\r\n$9\r\nbase-load\r\n$%lu\r\n", value_bytes);
        memcpy(batch + batch_len, header, (size_t)n);
        batch_len += (size_t)n;
        if (get) continue;
        memcpy(batch + batch_len, value, value_bytes);
        memcpy(batch + batch_len + value_bytes, "\r\n", 2);
        batch_len += value_bytes + 2;
    }
    free(value);
}

static struct client *open_client(const struct sockaddr *to, int epoll) {
    struct client *c = pages(sizeof *c);
    connect_client(c, to);
    c->sent = c->peer_size = 0;
    announce(c);
    wait_for_buffer(c);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->channel->fd, &event)) die("epoll_ctl");
    return c;
}

/* The value that GET reads. */
static void write_value(const struct sockaddr *to, int epoll) {
    unsigned long many = pipeline;
    bool mixed = sets;
    gets = false;
    sets = true;
    pipeline = 1;
    make_batch();
    struct client *c = open_client(to, epoll);
    send_bytes(c, batch, batch_len);
    struct pollfd ready = {.fd = c->channel->fd, .events = POLLIN};
    while (!c->replies) {
        errno = 0;
        if (poll(&ready, 1, WAIT_MS) == 0) die("the server does not reply");
        handle_event(c);
    }
    epoll_ctl(epoll, EPOLL_CTL_DEL, c->channel->fd, NULL);
    rdma_disconnect(c->id);
    free(batch);
    batch_len = answered = 0;
    gets = true;
    sets = mixed;
    pipeline = many;
}

static void turn(int epoll) {
    struct epoll_event ready[READY_AT_ONCE];
    errno = 0;
    int n = epoll_wait(epoll, ready, READY_AT_ONCE, WAIT_MS);
    if (n <= 0) die("the server does not reply");
    for (int i = 0; i < n; i++) {
        handle_event(ready[i].data.ptr);
        proceed(ready[i].data.ptr);
    }
}

static bool all_warm(struct client **clients, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (clients[i]->batches < WARM_BATCHES) return false;
    return true;
}

int main(int argc, char **argv) {
    if (argc != 8 && argc != 9) {
        fprintf(stderr, "usage: rdma-base-load HOST PORT set|get|mixed CLIENTS PIPELINE BYTES SECONDS [SERVER]\n");
        return 2;
    }
    host = argv[1];
    port = argv[2];
    gets = strcmp(argv[3], "set") != 0;
    sets = strcmp(argv[3], "get") != 0;
    size_t count = strtoul(argv[4], NULL, 10);
    pipeline = strtoul(argv[5], NULL, 10);
    value_bytes = strtoul(argv[6], NULL, 10);
    double seconds = strtod(argv[7], NULL);
    clockid_t server_clock;
    if (argc == 9 && (errno = clock_getcpuclockid(atoi(argv[8]), &server_clock))) die("SERVER");
    struct addrinfo *to = NULL, hints = {.ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host, port, &hints, &to)) die("getaddrinfo");
    int epoll = epoll_create1(0);
    if (gets) write_value(to->ai_addr, epoll);
    make_batch();
    struct client **clients = calloc(count, sizeof(struct client *));
    double began = seconds_of(CLOCK_MONOTONIC);
    for (size_t i = 0; i < count; i++) clients[i] = open_client(to->ai_addr, epoll);
    for (size_t i = 0; i < count; i++) send_bytes(clients[i], batch, batch_len);
    while (!all_warm(clients, count)) turn(epoll);
    double warm = seconds_of(CLOCK_MONOTONIC), cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID), end = warm;
    double server = argc == 9 ? seconds_of(server_clock) : 0;
    uint64_t before = answered, waits_before = waits;
    while ((end = seconds_of(CLOCK_MONOTONIC)) < warm + seconds) turn(epoll);
    cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (argc == 9) server = seconds_of(server_clock) - server;
    double requests = (double)(answered - before), changes = 0;
    for (size_t i = 0; i < count; i++) changes += clients[i]->size_changes;
    if (answered == before) die("no request was answered");
    printf("%.0f %.2f %.1f %.2f %.2f", requests / (end - warm), cpu / requests * 1e6, (warm - began) * 1000,
           changes / (double)count, (double)(waits - waits_before) / requests * (double)pipeline);
    if (argc == 9) printf(" %.2f", server / requests * 1e6);
    printf("\n");
    for (size_t i = 0; i < count; i++) rdma_disconnect(clients[i]->id);
    free(clients);
    freeaddrinfo(to);
    return 0;
}
