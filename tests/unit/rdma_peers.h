/* rdma_peers.h: the peers that test_rdma_peers.c starts as separate processes (--peer MODE HOST PORT): peers on plain
 * verbs that violate the protocol, and the stress test. Included only by test_rdma_peers.c. */
#pragma once

/* --- The peers use plain verbs, so that they can violate every rule --- */

static struct raw {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char memory[256 * 1024];
    uint64_t addr; /* address of the server's buffer */
    uint32_t size, key;
    union rdma_wire_message last; /* control message received */
    int noted;
} raw;

static struct rdma_cm_event *raw_event(int timeout_ms) {
    struct pollfd fd = {.fd = raw.channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    if (poll(&fd, 1, timeout_ms) <= 0 || rdma_get_cm_event(raw.channel, &event) != 0) return NULL;
    return event;
}
static void raw_expect(enum rdma_cm_event_type type) {
    struct rdma_cm_event *event = raw_event(5000);
    if (!event || event->event != type) _exit(10 + (int)type);
    rdma_ack_cm_event(event);
}
static void raw_receive(int slot) {
    struct ibv_sge sge = {.addr = (uintptr_t)raw.memory + (size_t)slot * 64, .length = 64, .lkey = raw.mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = (uint64_t)slot, .sg_list = &sge, .num_sge = 1}, *bad;
    if (ibv_post_recv(raw.id->qp, &wr, &bad)) _exit(3);
}
static bool raw_completion(struct ibv_wc *wc, int timeout_ms) {
    uint64_t end = clock_monotonic_us() + (uint64_t)timeout_ms * 1000;
    do {
        int n = ibv_poll_cq(raw.cq, 1, wc);
        if (n > 0) return true;
        usleep(100);
    } while (clock_monotonic_us() < end);
    return false;
}
/* Records a control message. */
static void raw_note(const struct ibv_wc *wc) {
    if (wc->byte_len != 32) _exit(6);
    memcpy(&raw.last, raw.memory + wc->wr_id * 64, 32);
    raw.noted++;
}
static void raw_connect(const char *host, const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    inet_pton(AF_INET, host, &to.sin_addr);
    raw.channel = rdma_create_event_channel();
    if (!raw.channel || rdma_create_id(raw.channel, &raw.id, NULL, RDMA_PS_TCP)) _exit(2);
    if (rdma_resolve_addr(raw.id, NULL, (struct sockaddr *)&to, 2000)) _exit(2);
    raw_expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    if (rdma_resolve_route(raw.id, 2000)) _exit(2);
    raw_expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    raw.pd = ibv_alloc_pd(raw.id->verbs);
    raw.cq = ibv_create_cq(raw.id->verbs, 512, NULL, NULL, 0);
    raw.mr = ibv_reg_mr(raw.pd, raw.memory, sizeof raw.memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp_init_attr attr = {
        .send_cq = raw.cq,
        .recv_cq = raw.cq,
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = 128, .max_recv_wr = 128, .max_send_sge = 1, .max_recv_sge = 1}};
    if (!raw.mr || rdma_create_qp(raw.id, raw.pd, &attr)) _exit(2);
    for (int i = 0; i < 64; i++) raw_receive(i);
    struct rdma_conn_param param = {
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
    if (rdma_connect(raw.id, &param)) _exit(2);
    raw_expect(RDMA_CM_EVENT_ESTABLISHED);
    struct ibv_wc wc;
    if (!raw_completion(&wc, 5000) || wc.status != IBV_WC_SUCCESS) _exit(4);
    raw_note(&wc);
    if (be16toh(raw.last.opcode) != RDMA_OP_REGISTER_XFER_MEMORY) _exit(5);
    raw.addr = be64toh(raw.last.memory.addr);
    raw.size = be32toh(raw.last.memory.length);
    raw.key = be32toh(raw.last.memory.key);
}
static bool raw_post(struct ibv_send_wr *wr, const void *data, uint32_t len) {
    struct ibv_wc wc;
    char *place = raw.memory + 128 * 1024;
    struct ibv_sge sge = {.addr = (uintptr_t)place, .length = len, .lkey = raw.mr->lkey};
    struct ibv_send_wr *bad;
    if (data) memcpy(place, data, len);
    wr->sg_list = &sge;
    wr->num_sge = len ? 1 : 0;
    if (ibv_post_send(raw.id->qp, wr, &bad)) return false;
    while (raw_completion(&wc, 3000)) {
        bool receive = wc.status == IBV_WC_SUCCESS && (wc.opcode & IBV_WC_RECV);
        if (!receive) return wc.status == IBV_WC_SUCCESS;
        if (wc.opcode == IBV_WC_RECV) raw_note(&wc); /* it arrived before our own completion */
    }
    return false;
}
static bool raw_send(const void *data, uint32_t len) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    return raw_post(&wr, data, len);
}
static bool raw_write(uint64_t addr, const void *data, uint32_t len, uint32_t immediate) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(immediate)};
    wr.wr.rdma.remote_addr = addr;
    wr.wr.rdma.rkey = raw.key;
    return raw_post(&wr, data, len);
}
static bool raw_register(uint64_t addr, uint32_t len, uint32_t key) {
    union rdma_wire_message message = {.memory = {.opcode = htobe16(RDMA_OP_REGISTER_XFER_MEMORY),
                                                  .addr = htobe64(addr),
                                                  .length = htobe32(len),
                                                  .key = htobe32(key)}};
    return raw_send(&message, sizeof message);
}
static bool raw_register_own(void) {
    return raw_register((uintptr_t)raw.memory + 65536, 65536, raw.mr->rkey);
}
static bool raw_disconnected(void) {
    struct rdma_cm_event *event = raw_event(10000);
    return event && event->event == RDMA_CM_EVENT_DISCONNECTED;
}

static void raw_misbehave(const char *mode) {
    union rdma_wire_message message;
    char bytes[64] = {0};
    memset(&message, 0, sizeof message);
    if (strcmp(mode, "imm-beyond") == 0) {
        raw_register_own();
        raw_write(raw.addr, "hello", 5, 5);
        raw_write(raw.addr + 5, "hello", 5, raw.size - 4);
    } else if (strcmp(mode, "imm-huge") == 0)
        raw_write(raw.addr, "hello", 5, UINT32_MAX);
    else if (strcmp(mode, "imm-zero") == 0)
        raw_write(raw.addr, "", 0, 0);
    else if (strcmp(mode, "short") == 0)
        raw_send(bytes, 31);
    else if (strcmp(mode, "long") == 0)
        raw_send(bytes, 33);
    else if (strcmp(mode, "opcode") == 0) {
        message.opcode = htobe16(4);
        raw_send(&message, 32);
    } else if (strcmp(mode, "register-empty") == 0)
        raw_register(0x10000, 0, 1);
    else if (strcmp(mode, "register-huge") == 0)
        raw_register(0x10000, UINT32_MAX, 1);
    else if (strcmp(mode, "register-wrap") == 0)
        raw_register(UINT64_MAX - 100, 65536, 1);
    else if (strcmp(mode, "register-twice") == 0) {
        raw_register_own();
        raw_register_own();
    } else if (strcmp(mode, "features") == 0) {
        message.feature.opcode = htobe16(RDMA_OP_SET_CLIENT_FEATURE);
        message.feature.features = htobe64(1);
        raw_send(&message, 32);
    } else if (strcmp(mode, "flood") == 0) {
        message.opcode = htobe16(RDMA_OP_KEEPALIVE);
        for (int i = 0; i < 1000000 && raw_send(&message, 32); i++) {
        }
    }
}

/* A stress test: connections are opened, stream, and are closed at random times from either end, while the device fails
 * according to SOFTRDMA_FAULTS. Any operation may fail; nothing may crash, hang, be corrupted or leak. */
enum { STORM_CONNECTIONS = 24, STORM_MS = 1500 };
static struct end storm_near[STORM_CONNECTIONS], storm_far[STORM_CONNECTIONS * 8];
static void storm_accept(struct listener *from, struct connection *conn) {
    for (size_t i = 0; i < sizeof storm_far / sizeof *storm_far; i++) {
        struct end *end = &storm_far[i];
        if (end->conn) continue;
        *end = (struct end){
            .conn = conn, .send_seed = 23, .expect_seed = 11, .pending_bound = 1 << 20, .on_drained = end_pump};
        conn->events = &end_events;
        conn->owner = end;
        conn_set_trusted(conn, true);
        if (random_below(10) == 0) {
            close_self(end);
            return;
        }
        end->close_when_sent = random_below(4) == 0;
        send_stream(end, random_below(random_below(2) ? 500 : 2000000));
        return;
    }
    conn_close(conn);
}
static void storm_step(struct end *end) {
    if (!end->conn) {
        *end = (struct end){.send_seed = 11,
                            .expect_seed = 23,
                            .pending_bound = 1 << 20,
                            .on_drained = end_pump,
                            .on_connected = end_pump};
        end->to_send = random_below(random_below(2) ? 500 : 2000000);
        dial(end);
    } else if (random_below(30) == 0)
        close_self(end);
    else if (random_below(3) == 0 && conn_is_open(end->conn))
        conn_set_reading(end->conn, random_below(3) != 0);
}
static int storm_main(const char *host) {
    use_polled(NULL);
    snprintf(suite.host, sizeof suite.host, "%s", host);
    log_level = LOG_LEVEL_NOTHING;
    loop = event_loop_new();
    char error[256];
    struct listen_options options = listen_here();
    options.accepted = storm_accept;
    rdma_settings.send_memory = 4 << 20;
    rdma_settings.keepalive_ms = 50;
    rdma_settings.connect_timeout_ms = 500;
    for (int i = 0; i < 50 && !listener; i++)
        listener = conn_listen(suite.transport, loop, &options, error, sizeof error);
    if (!listener) return 20;
    suite.port = listener->address.port;
    uint64_t until = clock_monotonic_us() + STORM_MS * 1000;
    while (clock_monotonic_us() < until) {
        storm_step(&storm_near[random_below(STORM_CONNECTIONS)]);
        for (int i = 0; i < 3; i++) event_loop_turn(loop, 300);
    }
    int bad = 0;
    for (size_t i = 0; i < STORM_CONNECTIONS; i++) {
        if (storm_near[i].conn) close_self(&storm_near[i]);
        bad |= storm_near[i].corrupt;
    }
    for (size_t i = 0; i < sizeof storm_far / sizeof *storm_far; i++) {
        if (storm_far[i].conn) close_self(&storm_far[i]);
        bad |= storm_far[i].corrupt;
    }
    /* Lingering connections give up in bounded time. */
    until = clock_monotonic_us() + 60 * 1000000;
    while (rdma_stats()->connections && clock_monotonic_us() < until) event_loop_turn(loop, 10000);
    if (rdma_stats()->connections) return 21;
    listener_close(listener);
    event_loop_free(loop);
    if (getenv("RDMA_TEST_VERBOSE"))
        printf("accepted %lu failed %lu refused %lu stalls %lu bytes %lu violations %lu\n", rdma_stats()->accepted,
               rdma_stats()->failed, rdma_stats()->refused, rdma_stats()->stalls, rdma_stats()->bytes_in,
               rdma_stats()->errors[RDMA_ERROR_PROTOCOL]);
    return bad ? 22 : rdma_stats()->registered_bytes ? 23 : 0;
}

static int peer_main(char **argv) {
    const char *mode = argv[2], *host = argv[3], *port = argv[4];
    clock_update();
    if (strcmp(mode, "storm") == 0) exit(storm_main(host));
    raw_connect(host, port);
    if (strcmp(mode, "talk") == 0) { /* until killed */
        raw_register_own();
        uint64_t sent = 0;
        for (uint32_t used = 0;; used += 100) {
            char piece[100];
            if (used + 100 > raw.size)
                for (;;) pause();
            for (int i = 0; i < 100; i++) piece[i] = stream_byte(11, sent++);
            raw_write(raw.addr + used, piece, 100, 100);
        }
    }
    if (strcmp(mode, "deaf") == 0) { /* announces a buffer once and no other */
        raw_register_own();
        return raw_disconnected() ? 0 : 1;
    }
    if (strcmp(mode, "write-outside") == 0) {
        raw_register_own();
        bool worked = raw_write(raw.addr + raw.size - 2, "beyond", 6, 6);
        return worked ? 1 : 0;
    }
    if (strcmp(mode, "bad-key") == 0) {
        raw_register((uintptr_t)raw.memory + 65536, 65536, raw.mr->rkey ^ 0x5a5a5a);
        raw_disconnected();
        return 0;
    }
    if (strcmp(mode, "get-features") == 0 || strcmp(mode, "get-no-features") == 0) {
        uint64_t wanted = mode[4] == 'f' ? RDMA_FEATURE_RING : 0;
        union rdma_wire_message message = {.feature = {.opcode = htobe16(RDMA_OP_GET_SERVER_FEATURE)}};
        raw_register_own();
        struct ibv_wc wc;
        raw.noted = 0;
        raw_send(&message, 32);
        if (!raw.noted && raw_completion(&wc, 5000)) raw_note(&wc);
        bool answered = raw.noted && be16toh(raw.last.opcode) == RDMA_OP_GET_SERVER_FEATURE;
        return answered && be64toh(raw.last.feature.features) == wanted ? 0 : 1;
    }
    raw_misbehave(mode);
    return raw_disconnected() ? 0 : 1;
}
