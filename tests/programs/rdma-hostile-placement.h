/* rdma-hostile-placement.h: the kinds of rdma-hostile.c that abuse direct placement (BLOB.GET and BLOB.SET). A part of
 * that program. The memory that requests name is `placed`, registered for each link. */

enum { PLACED = 512 * 1024 };

/* A connection with memory for placements. */
struct placing {
    struct link *l;
    uint8_t *memory;
    struct ibv_mr *mr;
};

static struct placing placing_open(void) {
    struct placing p = {.l = link_open(3, NULL, 0), .memory = aligned_alloc(4096, PLACED)};
    if (!p.memory) die("no memory");
    random_fill(p.memory, 4096);
    p.mr = ibv_reg_mr(p.l->pd, p.memory, PLACED,
                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    if (!p.mr) die("ibv_reg_mr");
    register_lawful(p.l);
    return p;
}
static void placing_drop(struct placing *p) {
    if (p->mr) ibv_dereg_mr(p->mr);
    p->mr = NULL;
}
/* The server must end the connection by itself, or may. */
static enum verdict placing_end(struct placing *p, bool must_end) {
    bool good = is_closed(p->l, must_end ? wait_ms : 2) || !must_end;
    placing_drop(p);
    link_close(p->l);
    free(p->memory);
    return good ? GOOD : BAD;
}

/* Appends a word of a request; returns the new length. */
static size_t add_word(char *to, size_t at, const char *word) {
    return at + (size_t)sprintf(to + at, "$%zu\r\n%s\r\n", strlen(word), word);
}
static size_t add_number(char *to, size_t at, unsigned long long number) {
    char word[24];
    snprintf(word, sizeof word, "%llu", number);
    return add_word(to, at, word);
}
/* A key of this process: the sizes of its values are known. */
static const char *placed_key(unsigned number) {
    static char key[48];
    snprintf(key, sizeof key, "hostile:placed:%ld:%u", (long)getpid(), number);
    return key;
}
/* One request with one range, which lies at `offset` of the memory. */
static size_t make_request(char *to, size_t at, const struct placing *p, unsigned number, bool get, uint64_t value,
                           uint32_t rkey, uint64_t offset, uint64_t length) {
    at += (size_t)sprintf(to + at, get ? "*5\r\n" : "*6\r\n");
    at = add_word(to, at, get ? "BLOB.GET" : "BLOB.SET");
    at = add_word(to, at, placed_key(number));
    if (!get) at = add_number(to, at, value);
    at = add_number(to, at, rkey);
    at = add_number(to, at, (uintptr_t)p->memory + offset);
    return add_number(to, at, length);
}
static void request(struct placing *p, unsigned number, bool get, uint64_t value, uint32_t rkey, uint64_t offset,
                    uint64_t length) {
    char text[512];
    size_t size = make_request(text, 0, p, number, get, value, rkey, offset, length);
    message(p->l, 0); /* the buffer is free then */
    write_lawful(p->l, text, (uint32_t)size);
}
/* Sets a value of each key that requests may name, and awaits the replies. */
static bool fill_keys(struct placing *p, uint64_t size) {
    uint32_t before = p->l->in_filled;
    for (unsigned i = 0; i < 8; i++) request(p, i, false, size, p->mr->rkey, 0, PLACED);
    return has_reply(p->l, before + 8 * 5, wait_ms);
}

static enum verdict lawful_placement(void) {
    struct placing p = placing_open();
    bool ok = fill_keys(&p, 100 * 1024) && !memcmp(p.l->in, "+OK\r\n+OK\r\n", 10);
    placing_end(&p, false);
    return ok ? GOOD : BAD;
}
/* Ranges that overlap, and the memory of replies and of requests as the target: its own affair. */
static enum verdict lawful_overlapping_ranges(void) {
    struct placing p = placing_open();
    bool ok = fill_keys(&p, 5000);
    char text[32 * 1024];
    uint32_t before = p.l->in_filled;
    size_t at = (size_t)sprintf(text, "*%d\r\n", 3 + 3 * 256);
    at = add_word(text, at, "BLOB.SET");
    at = add_word(text, at, placed_key(random_below(8)));
    at = add_number(text, at, 256 * 100);
    for (unsigned i = 0; i < 256; i++) {
        at = add_number(text, at, p.mr->rkey);
        at = add_number(text, at, (uintptr_t)p.memory + random_below(1000));
        at = add_number(text, at, 100);
    }
    message(p.l, 0);
    write_lawful(p.l, text, (uint32_t)at);
    ok = ok && has_reply(p.l, before + 5, wait_ms) && !memcmp(p.l->in + before, "+OK\r\n", 5);
    placing_end(&p, false);
    return ok ? GOOD : BAD;
}
/* Lengths and counts that no request may have: errors, and the connection lives. */
static enum verdict lawful_errors_of_placement(void) {
    struct placing p = placing_open();
    bool ok = fill_keys(&p, 1000);
    static const char *const words[] = {"0", "-1", "18446744073709551615", "18446744073709551616", "536870913",
                                        "x", ""};
    uint32_t before = p.l->in_filled;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char text[512];
        size_t at = (size_t)sprintf(text, "*6\r\n");
        at = add_word(text, at, "BLOB.SET");
        at = add_word(text, at, placed_key(random_below(8)));
        at = add_word(text, at, words[i]);
        for (int k = 0; k < 3; k++) at = add_word(text, at, words[random_below(sizeof words / sizeof *words)]);
        message(p.l, 0);
        write_lawful(p.l, text, (uint32_t)at);
    }
    message(p.l, 0);
    write_lawful(p.l, ping, 6);
    int64_t end = now_ms() + wait_ms;
    while (ok && !strstr((char *)p.l->in + before, "+PONG") && !p.l->closed && now_ms() < end) take_completions(p.l);
    ok = ok && strstr((char *)p.l->in + before, "+PONG") && !strstr((char *)p.l->in + before, "+OK");
    placing_end(&p, false);
    return ok ? GOOD : BAD;
}
static enum verdict placement_with_a_wrong_key(void) {
    struct placing p = placing_open(), other = placing_open();
    uint32_t keys[] = {p.mr->rkey + 1, other.mr->rkey, p.l->in_mr->rkey, 0, ~0u, p.l->peer_key}; /* of other memory */
    bool ok = fill_keys(&p, 3000);
    request(&p, random_below(8), random_below(2), 3000, keys[random_below(6)], 0, PLACED);
    placing_end(&other, false);
    return placing_end(&p, true) == GOOD && ok ? GOOD : BAD;
}
static enum verdict placement_beyond_the_region(void) {
    struct placing p = placing_open();
    bool ok = fill_keys(&p, 200 * 1024);
    uint64_t offsets[] = {PLACED - 1, PLACED - 150 * 1024, (uint64_t)-4096, UINT64_C(1) << 46};
    request(&p, random_below(8), random_below(2), 200 * 1024, p.mr->rkey, offsets[random_below(4)],
            UINT64_MAX >> random_below(30));
    return placing_end(&p, true) == GOOD && ok ? GOOD : BAD;
}
/* Bytes of requests change while the server works on them, and the value changes while it is read. */
static enum verdict placement_that_is_rewritten(void) {
    struct placing p = placing_open();
    fill_keys(&p, 100 * 1024);
    char text[4096];
    size_t size = 0;
    for (int i = 0; i < 16; i++)
        size = make_request(text, size, &p, random_below(8), i % 2, 100 * 1024, p.mr->rkey,
                            (uint64_t)random_below(4096), 200 * 1024);
    message(p.l, 0);
    uint64_t at = p.l->peer_addr + p.l->peer_offset;
    write_lawful(p.l, text, (uint32_t)size);
    for (int i = 0; i < 200 && !p.l->closed; i++) {
        random_fill(p.l->out + 8192, 64);
        struct ibv_sge sge = {.addr = (uintptr_t)p.l->out + 8192, .length = 64, .lkey = p.l->out_mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
        wr.wr.rdma.remote_addr = at + random_below((uint32_t)size - 64);
        wr.wr.rdma.rkey = p.l->peer_key;
        post(p.l, &wr);
        random_fill(p.memory + random_below(100 * 1024), 64);
        take_completions(p.l);
    }
    return placing_end(&p, false);
}
static void flood(struct placing *p, int requests) {
    char text[8192];
    for (int i = 0; i < requests && !p->l->closed; i += 16) {
        size_t size = 0;
        for (int k = 0; k < 16; k++)
            size =
                make_request(text, size, p, random_below(8), random_below(4) > 0, 100 * 1024, p->mr->rkey, 0, PLACED);
        message(p->l, 0);
        if (p->l->peer_offset + size > p->l->peer_length) return; /* its buffer is full */
        write_lawful(p->l, text, (uint32_t)size);
    }
}
/* It takes no replies: its receives are used up, and it announces no buffer. */
static enum verdict flood_of_placements(void) {
    struct placing p = placing_open();
    fill_keys(&p, 100 * 1024);
    flood(&p, 16 * (1 + (int)random_below(40)));
    return placing_end(&p, false);
}
static enum verdict placements_without_memory(void) {
    struct placing p = placing_open();
    fill_keys(&p, 100 * 1024);
    flood(&p, 16);
    placing_drop(&p); /* under way */
    return placing_end(&p, false);
}
static enum verdict gone_amid_placements(void) {
    struct placing p = placing_open();
    if (random_below(2)) fill_keys(&p, 1 + random_below(PLACED));
    flood(&p, 1 + (int)random_below(64));
    if (random_below(2)) rdma_disconnect(p.l->id);
    if (random_below(2)) {
        rdma_destroy_qp(p.l->id);
        p.l->id->qp = NULL;
    }
    placing_drop(&p);
    link_close(p.l);
    free(p.memory);
    return GOOD;
}

#define PLACEMENT_KINDS(X)                                                                                             \
    X(lawful_placement)                                                                                                \
    X(lawful_overlapping_ranges)                                                                                       \
    X(lawful_errors_of_placement)                                                                                      \
    X(placement_with_a_wrong_key)                                                                                      \
    X(placement_beyond_the_region)                                                                                     \
    X(placement_that_is_rewritten)                                                                                     \
    X(flood_of_placements)                                                                                             \
    X(placements_without_memory)                                                                                       \
    X(gone_amid_placements)
