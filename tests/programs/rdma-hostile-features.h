/* rdma-hostile-features.h: the kinds of rdma-hostile.c that negotiate the ring and the polled word, lawfully or not,
 * and break its rules. A part of that program. */

enum { WORD_MESSAGE_MAX = 1024, WORD_BYTES_MAX = 32 * 1024 };

static void send_features(struct link *l, uint16_t opcode, uint64_t features) {
    uint8_t *m = message(l, opcode);
    features = htobe64(features);
    memcpy(m + 24, &features, 8);
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
}
static void send_number(struct link *l, uint16_t opcode, uint32_t number) {
    uint8_t *m = message(l, opcode);
    number = htonl(number);
    memcpy(m + 24, &number, 4);
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
}
static void send_plain(struct link *l, uint16_t opcode) {
    send_number(l, opcode, 0);
}
/* CRC-32C, a bit at a time: another way than the server's. */
static uint32_t crc32c_slowly(uint32_t crc, const void *bytes, size_t length) {
    crc = ~crc;
    for (const uint8_t *p = bytes; length; p++, length--) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}
static void write_word(struct link *l, uint32_t count, uint32_t crc) {
    uint32_t word[2] = {htonl(count), htonl(crc)};
    memcpy(message(l, 0), word, 8);
    write_at(l, l->word_addr, l->word_key, 8, IBV_WR_RDMA_WRITE, 0);
}
/* A completion has told, or is about to tell, the server the count. */
static void begin_checksum(struct link *l) {
    uint32_t wire = htonl(l->counted);
    l->base = l->counted;
    l->crc = crc32c_slowly(0, &wire, 4);
}
static void wait_until(struct link *l, const bool *what) {
    int64_t end = now_ms() + wait_ms;
    while (!*what && !l->closed && now_ms() < end) {
        take_completions(l);
        cm_event(l, 0);
    }
}
static void send_credit(struct link *l, uint32_t bytes) {
    send_number(l, CREDIT, bytes);
}
/* A connection on which both ends have agreed on the ring, and on what else is wanted. */
static struct link *link_open_with(uint64_t features) {
    struct link *l = link_open(3, NULL, 0);
    register_lawful(l);
    send_features(l, GET_SERVER_FEATURE, 0);
    wait_until(l, &l->feature_answer);
    if (features & ~l->features) {
        fprintf(stderr, "rdma-hostile: the server does not offer what is to be tested\n");
        exit(1);
    }
    send_features(l, SET_CLIENT_FEATURE, features);
    wait_until(l, &l->ring);
    message(l, 0);
    return l;
}
static struct link *link_open_ring(void) {
    return link_open_with(RING);
}
/* What the server waits for before it gets more. */
static void answer(struct link *l) {
    if (l->owes_taken) {
        l->owes_taken = false;
        send_number(l, BUFFER_TAKEN, l->polling ? l->counted : 0);
        begin_checksum(l);
    }
    if (l->polling && l->poll_end) {
        l->poll_told = l->poll_end = l->polling = false;
        send_number(l, POLL_ENDED, l->counted);
    }
}
/* Writes to the ring as its rules are, all around it and into the buffers that follow it. */
static void write_ring(struct link *l, const char *bytes, uint32_t length) {
    int64_t end = now_ms() + wait_ms;
    while (length && !l->closed && now_ms() < end) {
        take_completions(l);
        cm_event(l, 0);
        answer(l);
        uint32_t n = length < l->window ? length : l->window, first = l->peer_length - l->peer_offset;
        if (!n) continue;
        message(l, 0);
        if (l->owes_taken || (l->polling && l->poll_end)) continue;
        if (first > n) first = n;
        memcpy(l->out, bytes, n);
        struct ibv_sge sge[2] = {{.addr = (uintptr_t)l->out, .length = first, .lkey = l->out_mr->lkey},
                                 {.addr = (uintptr_t)l->out + first, .length = n - first, .lkey = l->out_mr->lkey}};
        struct ibv_send_wr one = {.sg_list = &sge[0], .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .imm_data = htonl(n)};
        struct ibv_send_wr two = {
            .sg_list = &sge[1], .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htonl(n)};
        one.wr.rdma.remote_addr = l->peer_addr + l->peer_offset;
        two.wr.rdma.remote_addr = l->peer_addr;
        one.wr.rdma.rkey = two.wr.rdma.rkey = l->peer_key;
        if (first == n) one.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        bool by_word = l->polling && n <= WORD_MESSAGE_MAX && l->counted + n - l->base <= WORD_BYTES_MAX;
        if (l->polling) l->counted += n;
        if (by_word) {
            one.opcode = two.opcode = IBV_WR_RDMA_WRITE;
            l->crc = crc32c_slowly(l->crc, bytes, n);
        } else if (l->polling) {
            one.imm_data = two.imm_data = htonl(l->counted);
            begin_checksum(l);
        }
        post(l, &one);
        if (first < n) post(l, &two);
        if (by_word) write_word(l, l->counted, l->crc);
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
/* Another buffer with every message, without waiting for the answers; what is written there meanwhile is lost, and only
 * to us. */
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
/* The ring is full of a request that is not complete, and the peer announces more. */
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

static void poll_begun(struct link *l) {
    send_plain(l, POLL_BEGUN);
    l->polling = true;
    begin_checksum(l);
}
/* A connection whose word the server polls, or wants to poll if `begun` is false: it was busy for a while. */
static struct link *link_open_polled(bool begun) {
    struct link *l = link_open_with(RING | POLLED);
    int64_t end = now_ms() + 10 * wait_ms;
    while (!l->poll_told && !l->closed && now_ms() < end) write_ring(l, "\n", 1);
    if (!l->poll_told) {
        fprintf(stderr, "rdma-hostile: the server does not poll\n");
        exit(1);
    }
    if (begun) poll_begun(l);
    return l;
}
/* Through many periods of it, as the server likes; the server's buffers change meanwhile. */
static enum verdict lawful_polled(void) {
    struct link *l = link_open_polled(true);
    char piece[2003];
    memset(piece, '\n', sizeof piece);
    memcpy(piece + sizeof piece - 6, ping, 6);
    bool ok = true;
    for (uint32_t i = 1; i <= 400 && ok; i++) {
        uint32_t rest = random_below(2) ? (uint32_t)sizeof piece - 6 : 0;
        if (l->poll_told && !l->polling && !l->poll_end) poll_begun(l);
        write_ring(l, piece + rest, (uint32_t)sizeof piece - rest);
        int64_t end = now_ms() + wait_ms;
        while (l->in_filled < 7 * i && !l->closed && now_ms() < end) {
            has_reply(l, 7 * i, 1);
            answer(l); /* it may sleep, and then the answer wakes it */
        }
        ok = l->in_filled == 7 * i;
    }
    link_close(l);
    return ok ? GOOD : BAD;
}
/* A count that cannot be: no word makes the server believe it, and a completion that tells it is a violation. */
static enum verdict word_beyond_the_space(void) {
    struct link *l = link_open_polled(true);
    static const uint32_t lies[] = {0xffffffffu, 0x80000000u, 0x7fffffffu, 1 << 24};
    uint32_t lie = l->counted + lies[random_below(4)];
    write_word(l, lie, random_next());
    wait_until(l, &l->poll_end);
    send_number(l, POLL_ENDED, lie);
    return must_close(l);
}
/* Bytes are announced that were never written. */
static enum verdict word_of_nothing(void) {
    struct link *l = link_open_polled(true);
    for (int i = 0; i < 10; i++) write_word(l, l->counted += random_below(l->window / 10), random_next());
    return whatever(l);
}
/* The server asks for the count when it finds no sense in the words, and goes on with that. */
static enum verdict served_after_words(struct link *l) {
    wait_until(l, &l->poll_end);
    bool ok = l->poll_end && has_reply(l, 0, 1);
    answer(l);
    write_ring(l, ping, 6);
    ok = ok && has_reply(l, 7, wait_ms) && l->in_filled == 7;
    link_close(l);
    return ok ? GOOD : BAD;
}
static enum verdict lawful_after_words_that_flicker(void) {
    struct link *l = link_open_polled(true);
    for (int i = 0; i < 200 && !l->closed; i++) write_word(l, random_next(), random_next());
    return served_after_words(l);
}
/* Counts that can be, of bytes whose checksum never agrees: as if the bytes did not show. */
static enum verdict lawful_after_words_that_disagree(void) {
    struct link *l = link_open_polled(true);
    uint32_t most = l->window < WORD_BYTES_MAX ? l->window : WORD_BYTES_MAX;
    for (int i = 0; i < 20 && !l->closed; i++)
        write_word(l, l->counted + 1 + random_below(most), l->crc ^ (1 + random_below(1000)));
    return served_after_words(l);
}
/* The page of the word is the peer's own; what is beside it is not. */
static enum verdict word_outside_its_region(void) {
    struct link *l = link_open_polled(true);
    uint64_t addr = (l->word_addr & ~UINT64_C(4095)) + (random_below(2) ? 4096 : -UINT64_C(8));
    message(l, 0);
    write_at(l, addr, l->word_key, 8, IBV_WR_RDMA_WRITE, 0);
    return must_close(l);
}
/* It is a count now, and this one tells of nothing, or of too much. */
static enum verdict immediate_that_lies_while_polled(void) {
    struct link *l = link_open_polled(true);
    message(l, 0);
    uint32_t lie = random_below(2) ? l->counted : l->counted + l->window + 1 + random_below(1 << 20);
    write_at(l, l->peer_addr + l->peer_offset, l->peer_key, 1, IBV_WR_RDMA_WRITE_WITH_IMM, lie);
    return must_close(l);
}
static enum verdict poll_begun_twice(void) {
    struct link *l = link_open_polled(true);
    send_plain(l, POLL_BEGUN);
    return must_close(l);
}
static enum verdict poll_begun_unasked(void) {
    struct link *l = random_below(2) ? link_open_ring() : link_open_with(RING | POLLED);
    send_plain(l, POLL_BEGUN);
    return must_close(l);
}
static enum verdict poll_ended_unasked(void) {
    struct link *l = random_below(2) ? link_open_with(RING | POLLED) : link_open_polled(false);
    send_plain(l, POLL_ENDED);
    return must_close(l);
}
/* The peer gives the server the address of a word that it may write. */
static void poll_begin(struct link *l, uint64_t addr, uint32_t length, uint32_t key) {
    uint8_t *m = message(l, POLL_BEGIN);
    addr = htobe64(addr);
    length = htonl(length);
    key = htonl(key);
    memcpy(m + 16, &addr, 8);
    memcpy(m + 24, &length, 4);
    memcpy(m + 28, &key, 4);
    send_bytes(l, CONTROL_SIZE, IBV_WR_SEND, 0);
}
static enum verdict poll_begin_without_the_feature(void) {
    struct link *l = link_open_ring();
    poll_begin(l, (uintptr_t)l->in, 8, l->in_mr->rkey);
    return must_close(l);
}
static enum verdict poll_begin_twice(void) {
    struct link *l = link_open_with(RING | POLLED);
    for (int i = 0; i < 2; i++) poll_begin(l, (uintptr_t)l->in, 8, l->in_mr->rkey);
    return must_close(l);
}
static enum verdict poll_begin_of_no_word(void) {
    struct link *l = link_open_with(RING | POLLED);
    switch (random_below(3)) {
    case 0: poll_begin(l, 0, 8, l->in_mr->rkey); break;
    case 1: poll_begin(l, (uintptr_t)l->in + 1 + random_below(7), 8, l->in_mr->rkey); break;
    default: poll_begin(l, (uintptr_t)l->in, random_below(8), l->in_mr->rkey);
    }
    return must_close(l);
}
/* A word that is no memory of ours: what the server writes to it fails. */
static enum verdict poll_begin_of_nobodys_word(void) {
    struct link *l = link_open_with(RING | POLLED);
    poll_begin(l, 0x10000, 8, l->in_mr->rkey ^ random_below(2));
    for (int i = 0; i < 3 && !l->closed; i++) write_ring(l, ping, 6);
    return must_close(l);
}
static enum verdict poll_end_unasked(void) {
    struct link *l = random_below(2) ? link_open_ring() : link_open_with(RING | POLLED);
    send_plain(l, POLL_END);
    return must_close(l);
}
static enum verdict polled_everything(void) {
    struct link *l = link_open_polled(random_below(2));
    int steps = 1 + (int)random_below(40);
    for (int i = 0; i < steps && !l->closed; i++) {
        switch (random_below(10)) {
        case 0: send_plain(l, (uint16_t)(POLL_BEGUN + random_below(3))); break;
        case 1: send_number(l, POLL_ENDED, random_below(2) ? l->counted : random_next()); break;
        case 2: poll_begin(l, (uintptr_t)l->in + 8 * random_below(100), 8, l->in_mr->rkey); break;
        case 3:
            write_word(l, random_below(4) ? l->counted + random_below(100) : random_next(),
                       random_below(2) ? l->crc : random_next());
            break;
        case 4: register_lawful(l); break;
        case 5: send_number(l, BUFFER_TAKEN, random_next()); break;
        case 6: send_credit(l, random_below(20)); break;
        default: write_ring(l, ping, 6);
        }
    }
    return whatever(l);
}

/* clang-format off */
#define FEATURE_KINDS(X)                                                                                          \
    X(lawful_ring)                                                                                                \
    X(lawful_ring_of_replies) X(feature_not_offered) X(feature_set_unasked) X(feature_set_twice)                  \
        X(feature_asked_after_set) X(credit_without_ring) X(credit_of_nothing) X(credit_beyond) X(credit_twice)   \
            X(taken_without_ring) X(taken_without_buffer) X(ring_of_ever_other_buffers) X(ring_flood_of_buffers)  \
                X(ring_beyond_the_credit) X(ring_everything) X(lawful_polled) X(word_beyond_the_space)             \
                    X(word_of_nothing) X(lawful_after_words_that_flicker)                           \
    X(lawful_after_words_that_disagree) X(word_outside_its_region) X(immediate_that_lies_while_polled)\
                        X(poll_begun_twice) X(poll_begun_unasked) X(poll_ended_unasked)                           \
                            X(poll_begin_without_the_feature) X(poll_begin_twice) X(poll_begin_of_no_word)        \
                                X(poll_begin_of_nobodys_word) X(poll_end_unasked) X(polled_everything)
/* clang-format on */
