/* rdma-hostile-features.h: the kinds of rdma-hostile.c that negotiate the ring, lawfully or not, and break its rules. A part of that program. */

static void send_features(struct link *l, uint16_t opcode, uint64_t features) {
    uint8_t *m = message(l, opcode);
    features = htobe64(features);
    memcpy(m + 24, &features, 8);
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
}
static void send_credit(struct link *l, uint32_t bytes) {
    uint8_t *m = message(l, CREDIT);
    bytes = htonl(bytes);
    memcpy(m + 24, &bytes, 4);
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
}
static void wait_until(struct link *l, const bool *what) {
    int64_t end = now_ms() + wait_ms;
    while (!*what && !l->closed && now_ms() < end) {
        take_completions(l);
        cm_event(l, 0);
    }
}
/* A connection on which both ends have agreed on the ring. */
static struct link *link_open_ring(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    send_features(l, GET_SERVER_FEATURE, 0);
    wait_until(l, &l->feature_answer);
    if (!(l->features & RING)) {
        fprintf(stderr, "rdma-hostile: the server does not offer the ring\n");
        exit(1);
    }
    send_features(l, SET_CLIENT_FEATURE, RING);
    wait_until(l, &l->ring);
    message(l, 0);
    return l;
}
/* Writes to the ring as its rules are, all around it and into the buffers that follow it. */
static void write_ring(struct link *l, const char *bytes, uint32_t length) {
    int64_t end = now_ms() + wait_ms;
    while (length && !l->closed && now_ms() < end) {
        take_completions(l);
        cm_event(l, 0);
        if (l->owes_taken) {
            message(l, BUFFER_TAKEN);
            l->owes_taken = false;
            send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
        }
        uint32_t n = length < l->window ? length : l->window, first = l->peer_length - l->peer_offset;
        if (!n) continue;
        message(l, 0);
        if (l->owes_taken) continue;
        if (first > n) first = n;
        memcpy(l->out, bytes, n);
        struct ibv_sge sge[2] = {{.addr = (uintptr_t)l->out, .length = first, .lkey = l->out_mr->lkey},
                                 {.addr = (uintptr_t)l->out + first, .length = n - first, .lkey = l->out_mr->lkey}};
        struct ibv_send_wr one = {.sg_list = &sge[0], .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .imm_data = htonl(n)};
        struct ibv_send_wr two = {.sg_list = &sge[1], .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(n)};
        one.wr.rdma.remote_addr = l->peer_addr + l->peer_offset;
        two.wr.rdma.remote_addr = l->peer_addr;
        one.wr.rdma.rkey = two.wr.rdma.rkey = l->peer_key;
        if (first == n) one.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        post(l, &one);
        if (first < n) post(l, &two);
        l->peer_offset = (l->peer_offset + n) % l->peer_length;
        l->window -= n;
        bytes += n;
        length -= n;
    }
}

/* Some laps around the ring, in pieces that do not divide it. */
static enum verdict lawful_ring(void) {
    struct link *l = link_open_ring();
    char piece[10007];
    uint32_t pings = 0;
    memset(piece, '\n', sizeof piece);
    memcpy(piece + sizeof piece - 6, ping, 6);
    for (int i = 0; i < 60 && !l->closed; i++, pings++) write_ring(l, piece, sizeof piece);
    bool ok = has_reply(l, 7 * pings, wait_ms);
    link_close(l);
    return ok ? GOOD : BAD;
}
/* Replies of more than our buffer holds: they go around it, for as long as we give credit. */
static enum verdict lawful_ring_of_replies(void) {
    struct link *l = link_open_ring();
    char echo[40000 + 64];
    int head = sprintf(echo, "*2\r\n$4\r\nECHO\r\n$40000\r\n");
    memset(echo + head, 'x', 40000);
    memcpy(echo + head + 40000, "\r\n", 2);
    bool ok = true;
    for (int i = 1; i <= 8 && ok; i++) {
        uint32_t reply = 8 + 40000 + 2, before = l->in_filled;
        write_ring(l, echo, (uint32_t)head + 40002);
        ok = has_reply(l, before + reply, wait_ms) && l->in_filled == before + reply;
        if (ok) send_credit(l, reply);
        for (uint32_t k = 8; ok && k < 40008; k++) ok = l->in[(before + k) % IN_SIZE] == 'x';
    }
    link_close(l);
    return ok ? GOOD : BAD;
}
static enum verdict feature_not_offered(void) {
    struct link *l = link_open(3, NULL, 0);
    send_features(l, GET_SERVER_FEATURE, 0);
    send_features(l, SET_CLIENT_FEATURE, RING | UINT64_C(1) << random_below(32));
    return must_close(l);
}
static enum verdict feature_set_unasked(void) {
    struct link *l = link_open(3, NULL, 0);
    send_features(l, SET_CLIENT_FEATURE, RING);
    return must_close(l);
}
static enum verdict feature_set_twice(void) {
    struct link *l = link_open_ring();
    send_features(l, SET_CLIENT_FEATURE, random_below(2) ? RING : 0);
    return must_close(l);
}
static enum verdict feature_asked_after_set(void) {
    struct link *l = link_open_ring();
    send_features(l, GET_SERVER_FEATURE, 0);
    return must_close(l);
}
static enum verdict credit_without_ring(void) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    send_credit(l, 1);
    return must_close(l);
}
static enum verdict credit_of_nothing(void) {
    struct link *l = link_open_ring();
    write_ring(l, ping, 6);
    has_reply(l, 7, wait_ms);
    send_credit(l, 0);
    return must_close(l);
}
/* More than was written, or what would be less than nothing. */
static enum verdict credit_beyond(void) {
    struct link *l = link_open_ring();
    write_ring(l, ping, 6);
    has_reply(l, 7, wait_ms);
    static const uint32_t lies[] = {8, IN_SIZE, 0xffffffffu, 0x80000000u, 0xfffffff9u};
    send_credit(l, lies[random_below(5)]);
    return must_close(l);
}
static enum verdict credit_twice(void) {
    struct link *l = link_open_ring();
    write_ring(l, ping, 6);
    has_reply(l, 7, wait_ms);
    send_credit(l, 7);
    send_credit(l, 1 + random_below(7));
    return must_close(l);
}
static enum verdict taken_without_ring(void) {
    struct link *l = link_open(3, NULL, 0);
    message(l, BUFFER_TAKEN);
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
    return must_close(l);
}
static enum verdict taken_without_buffer(void) {
    struct link *l = link_open_ring();
    message(l, BUFFER_TAKEN);
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
    return must_close(l);
}
/* Another buffer with every message, without waiting for the answers; what is written there meanwhile is lost, and only to us. */
static enum verdict ring_of_ever_other_buffers(void) {
    struct link *l = link_open_ring();
    for (int i = 0; i < 100 && !l->closed; i++) {
        send_memory(l, (uintptr_t)l->in + random_below(IN_SIZE / 2), 1 + random_below(IN_SIZE / 2), l->in_mr->rkey);
        write_ring(l, ping, 6);
        if (random_below(2)) send_credit(l, 1);
    }
    return whatever(l);
}
static enum verdict ring_flood_of_buffers(void) {
    struct link *l = link_open_ring();
    for (int i = 0; i < 2000 && !l->closed; i++) register_lawful(l);
    return whatever(l);
}
/* The ring is full of a request that is not complete, and more is told. */
static enum verdict ring_beyond_the_credit(void) {
    struct link *l = link_open_ring();
    uint32_t rest = random_below(100);
    memset(l->out, 'x', l->peer_length);
    memcpy(l->out, "*2\r\n$4\r\nECHO\r\n$9000000\r\n", 25);
    write_at(l, l->peer_addr, l->peer_key, 100, IBV_WR_RDMA_WRITE_WITH_IMM, 100);
    write_at(l, l->peer_addr, l->peer_key, 1, IBV_WR_RDMA_WRITE_WITH_IMM, l->peer_length + 1 + rest);
    return must_close(l);
}
static enum verdict ring_everything(void) {
    struct link *l = link_open_ring();
    int steps = 1 + (int)random_below(40);
    for (int i = 0; i < steps && !l->closed; i++) {
        switch (random_below(9)) {
        case 0: send_credit(l, random_below(20)); break;
        case 1: register_lawful(l); break;
        case 2:
            message(l, BUFFER_TAKEN);
            send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
            break;
        case 3: send_features(l, (uint16_t)random_below(2), random_below(2) ? RING : 0); break;
        case 4:
            message(l, KEEPALIVE);
            send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
            break;
        default: write_ring(l, ping, 6);
        }
    }
    return whatever(l);
}

#define FEATURE_KINDS(X)                                                                                               \
    X(lawful_ring) X(lawful_ring_of_replies) X(feature_not_offered) X(feature_set_unasked) X(feature_set_twice)        \
    X(feature_asked_after_set) X(credit_without_ring) X(credit_of_nothing) X(credit_beyond) X(credit_twice)            \
    X(taken_without_ring) X(taken_without_buffer) X(ring_of_ever_other_buffers) X(ring_flood_of_buffers)               \
    X(ring_beyond_the_credit) X(ring_everything)
