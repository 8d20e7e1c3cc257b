/* rdma-place: a client of direct placement on plain verbs, driven by lines of its standard input.
 *
 *   rdma-place --host H --port P [--no-reads]
 *
 * Prints "ready" when it is connected. Each line is one of these, and gets one line as its answer:
 *   region NAME SIZE read|write|both    registers memory with these rights for the peer: "KEY ADDRESS"
 *   drop NAME                           deregisters it; the memory stays: "ok"
 *   fill NAME OFFSET LENGTH SEED        "ok"
 *   text NAME OFFSET TEXT               "ok"
 *   crc NAME OFFSET LENGTH              the CRC-32C of these bytes
 *   show NAME OFFSET LENGTH             the bytes, those that are not printable as dots
 *   send WORD...                        sends a command: "ok"; a word @NAME+OFFSET stands for two: the key of the
 *                                       region, and the address. `repeat N` before WORD: N times
 *   reply                               the next reply, on one line: +OK, :1, $5 hello, *2 [:1 :2], closed; bytes
 *                                       that are not printable as dots
 *   replies N                           awaits N replies: the number of those that are errors or nil
 *   time N WORD...                      sends the command N times, in a pipeline: microseconds until the last reply
 *   gets N LENGTH NAME ROUNDS           gets block:0 to block:N-1 into one region, in a pipeline: microseconds a round
 *   sets N LENGTH NAME ROUNDS           the same with sets
 *   copy NAME LENGTH N ROUNDS           has the device copy N blocks from the region's first half to the second:
 *                                       microseconds a round
 *   end                                 ends without a disconnect
 * --no-reads: the connection offers no READs of this end's memory.
 *
 * Written on plain verbs, in the base protocol (src/net/rdma/wire.h): what is tested is not tested with itself. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SENDS = 64, RECEIVES = 1024, CONTROL = 32, REGISTER_MEMORY = 3 };
enum { IN_SIZE = 1 << 20, OUT_SIZE = 1 << 20, MESSAGES = OUT_SIZE - 4096 };
enum { WAIT_US = 30 * 1000 * 1000, REGIONS_MAX = 512, WORDS_MAX = 1024 };

struct region {
    char name[32];
    char *data;
    size_t size;
    struct ibv_mr *mr;
    uint32_t key;
};

static struct rdma_event_channel *events;
static struct rdma_cm_id *id;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *in_mr, *out_mr, *control_mr;
static char *in, *out, *control;
static uint64_t peer_addr;
static uint32_t peer_length, peer_key, peer_offset;
static unsigned told, sends;
static uint32_t in_filled;
static char *received;
static size_t received_len, received_capacity, parsed;
static bool closed;
static struct region regions[REGIONS_MAX];
static int region_count;

static uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}
static void die(const char *what) {
    fprintf(stderr, "rdma-place: %s: %s\n", what, strerror(errno));
    exit(2);
}

static uint32_t crc32c(const char *data, size_t length) {
    static uint32_t table[256];
    uint32_t crc = ~0u;
    if (!table[1])
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t c = b;
            for (int bit = 0; bit < 8; bit++) c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
            table[b] = c;
        }
    for (size_t i = 0; i < length; i++) crc = crc >> 8 ^ table[(crc ^ (uint8_t)data[i]) & 0xff];
    return ~crc;
}

/* --- The connection --- */

static int cm_event(int ms) {
    struct pollfd p = {.fd = events->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    if (poll(&p, 1, ms) <= 0 || rdma_get_cm_event(events, &event)) return -1;
    int type = (int)event->event;
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_REJECTED) closed = true;
    return type;
}

static void post_receive(uint32_t slot) {
    struct ibv_sge sge = {.addr = (uintptr_t)(control + slot * CONTROL), .length = CONTROL, .lkey = control_mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    ibv_post_recv(id->qp, &wr, &bad);
}

static bool take_completions(void);

static void post(uint64_t from, uint32_t length, enum ibv_wr_opcode opcode, uint64_t to) {
    while (sends >= SENDS - 1 && !closed) take_completions();
    struct ibv_sge sge = {.addr = (uintptr_t)(out + from), .length = length, .lkey = out_mr->lkey};
    struct ibv_send_wr wr = {.wr_id = RECEIVES, .sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.imm_data = htonl(length);
    wr.wr.rdma.remote_addr = to;
    wr.wr.rdma.rkey = peer_key;
    if (closed) return;
    if (ibv_post_send(id->qp, &wr, &bad))
        closed = true;
    else
        sends++;
}

static void announce(void) {
    static unsigned turn;
    uint32_t at = MESSAGES + CONTROL * (turn++ % 64), length = htonl(IN_SIZE), key = htonl(in_mr->rkey);
    uint64_t addr = htobe64((uintptr_t)in);
    char *message = memset(out + at, 0, CONTROL);
    message[1] = REGISTER_MEMORY;
    memcpy(message + 16, &addr, sizeof addr);
    memcpy(message + 24, &length, sizeof length);
    memcpy(message + 28, &key, sizeof key);
    in_filled = 0;
    post(at, CONTROL, IBV_WR_SEND, 0);
}

static void control_received(const char *message) {
    if (message[0] != 0 || message[1] != REGISTER_MEMORY) return;
    memcpy(&peer_addr, message + 16, 8);
    memcpy(&peer_length, message + 24, 4);
    memcpy(&peer_key, message + 28, 4);
    peer_addr = be64toh(peer_addr);
    peer_length = ntohl(peer_length);
    peer_key = ntohl(peer_key);
    peer_offset = 0;
    told++;
}

static void bytes_received(uint32_t length) {
    if (received_len + length + 1 > received_capacity) {
        received_capacity = 2 * (received_len + length + 1);
        received = realloc(received, received_capacity);
        if (!received) die("no memory");
    }
    memcpy(received + received_len, in + in_filled, length);
    received_len += length;
    received[received_len] = '\0';
    in_filled += length;
}

static bool take_completions(void) {
    struct ibv_wc wc[16];
    bool some = false;
    int n;
    while ((n = ibv_poll_cq(cq, 16, wc)) > 0) {
        some = true;
        for (int i = 0; i < n; i++) {
            bool receive = wc[i].wr_id < RECEIVES;
            if (!receive && sends) sends--;
            if (wc[i].status != IBV_WC_SUCCESS) closed = true;
            if (!receive || wc[i].status != IBV_WC_SUCCESS) continue;
            if (wc[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM)
                bytes_received(ntohl(wc[i].imm_data));
            else
                control_received(control + wc[i].wr_id * CONTROL);
            post_receive((uint32_t)wc[i].wr_id);
            if (in_filled == IN_SIZE) announce();
        }
    }
    return some;
}

/* Waits until something arrives, for a while. Polling all the time would take a CPU from the server and its device. */
static void look(unsigned turn) {
    enum { POLLS = 64, WAIT_MS = 10 };
    struct pollfd waits[] = {{.fd = channel->fd, .events = POLLIN}, {.fd = events->fd, .events = POLLIN}};
    struct ibv_cq *which;
    void *context;
    if (take_completions() || turn < POLLS) return;
    if (ibv_req_notify_cq(cq, 0)) die("ibv_req_notify_cq");
    if (take_completions() || poll(waits, 2, WAIT_MS) <= 0) return;
    if (waits[0].revents && ibv_get_cq_event(channel, &which, &context) == 0) ibv_ack_cq_events(which, 1);
    if (waits[1].revents) cm_event(0);
}

static char *memory_new(size_t size) {
    char *memory = aligned_alloc(4096, (size + 4095) & ~(size_t)4095);
    if (!memory) die("no memory");
    return memset(memory, 0, size);
}

static void resources(void) {
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    pd = ibv_alloc_pd(id->verbs);
    channel = ibv_create_comp_channel(id->verbs);
    cq = channel ? ibv_create_cq(id->verbs, SENDS + RECEIVES + 16, NULL, channel, 0) : NULL;
    if (!pd || !cq) die("verbs objects");
    attr.send_cq = attr.recv_cq = cq;
    if (rdma_create_qp(id, pd, &attr)) die("rdma_create_qp");
    in = memory_new(IN_SIZE);
    out = memory_new(OUT_SIZE);
    control = memory_new(RECEIVES * CONTROL);
    received = calloc(1, received_capacity = 4096);
    in_mr = ibv_reg_mr(pd, in, IN_SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    out_mr = ibv_reg_mr(pd, out, OUT_SIZE, IBV_ACCESS_LOCAL_WRITE);
    control_mr = ibv_reg_mr(pd, control, RECEIVES * CONTROL, IBV_ACCESS_LOCAL_WRITE);
    if (!received || !in_mr || !out_mr || !control_mr) die("ibv_reg_mr");
    for (uint32_t i = 0; i < RECEIVES; i++) post_receive(i);
}

static bool await_told(unsigned before) {
    uint64_t end = now_us() + WAIT_US;
    for (unsigned turn = 0; told == before && !closed && now_us() < end; turn++) look(turn);
    return told != before && !closed;
}

static void link_open(const char *host, const char *port, bool reads) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    struct rdma_conn_param param = {
        .responder_resources = reads ? 16 : 0, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
    inet_pton(AF_INET, host, &to.sin_addr);
    events = rdma_create_event_channel();
    if (!events || rdma_create_id(events, &id, NULL, RDMA_PS_TCP)) die("rdma_create_id");
    if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000) || cm_event(10000) != RDMA_CM_EVENT_ADDR_RESOLVED ||
        rdma_resolve_route(id, 5000) || cm_event(10000) != RDMA_CM_EVENT_ROUTE_RESOLVED)
        die("no route");
    resources();
    if (rdma_connect(id, &param) || cm_event(10000) != RDMA_CM_EVENT_ESTABLISHED) die("no connection");
    announce();
    if (!await_told(0)) die("the server announced no buffer");
}

static void send_bytes(const char *bytes, size_t length) {
    for (size_t at = 0; at < length && !closed;) {
        uint64_t end = now_us() + WAIT_US;
        for (unsigned turn = 0; sends && !closed && now_us() < end; turn++) look(turn); /* `out` is free then */
        if (peer_offset == peer_length && !await_told(told)) closed = true;
        uint32_t part = peer_length - peer_offset;
        if (part > MESSAGES) part = MESSAGES;
        if (part > length - at) part = (uint32_t)(length - at);
        memcpy(out, bytes + at, part);
        uint64_t target = peer_addr + peer_offset;
        peer_offset += part;
        post(0, part, IBV_WR_RDMA_WRITE_WITH_IMM, target);
        at += part;
    }
}

/* --- Replies --- */

static void print_byte(char c, FILE *to) {
    fputc(c >= ' ' && c <= '~' ? c : '.', to);
}

/* The end of the value at `at`, 0: it has not arrived completely. Appends its text to `text`, unless that is NULL. */
static size_t value_end(size_t at, FILE *text) {
    char *line = received + at, *end = at < received_len ? strstr(line, "\r\n") : NULL;
    if (!end) return 0;
    size_t next = (size_t)(end - received) + 2;
    long count = atol(line + 1);
    if (*line == '$' && count >= 0) {
        if (next + (size_t)count + 2 > received_len) return 0;
        if (text) fprintf(text, "$%ld ", count);
        for (long i = 0; text && i < count && i < 4000; i++) print_byte(received[next + (size_t)i], text);
        return next + (size_t)count + 2;
    }
    if (*line != '*' || count < 0) {
        if (text) fprintf(text, "%.*s", (int)(end - line), line);
        return next;
    }
    if (text) fprintf(text, "*%ld [", count);
    for (long i = 0; i < count && next; i++) {
        if (text && i) fputc(' ', text);
        next = value_end(next, text);
    }
    if (text) fputc(']', text);
    return next;
}

/* Awaits a reply. False: the connection is over, or nothing comes. */
static bool reply_take(char **text, char *first) {
    uint64_t end = now_us() + WAIT_US;
    for (unsigned turn = 0;; turn++) {
        size_t next = value_end(parsed, NULL);
        if (next) {
            size_t size;
            FILE *to = text ? open_memstream(text, &size) : NULL;
            *first = received[parsed];
            if (received[parsed] == '$' && received[parsed + 1] == '-') *first = '-';
            value_end(parsed, to);
            if (to) fclose(to);
            parsed = next;
            if (parsed == received_len) parsed = received_len = 0;
            return true;
        }
        if (closed || now_us() > end) return false;
        look(turn);
    }
}

/* --- Lines --- */

static struct region *region_find(const char *name) {
    for (int i = 0; i < region_count; i++)
        if (strcmp(regions[i].name, name) == 0) return &regions[i];
    fprintf(stderr, "rdma-place: no region %s\n", name);
    exit(2);
}

static void region_new(const char *name, size_t size, const char *rights) {
    struct region *region = NULL;
    for (int i = 0; i < region_count; i++)
        if (strcmp(regions[i].name, name) == 0) region = &regions[i];
    if (!region) {
        if (region_count == REGIONS_MAX) exit(2);
        region = &regions[region_count++];
        snprintf(region->name, sizeof region->name, "%s", name);
        region->size = size;
        region->data = memory_new(size);
    }
    int access = IBV_ACCESS_LOCAL_WRITE;
    if (strcmp(rights, "write") != 0) access |= IBV_ACCESS_REMOTE_READ;
    if (strcmp(rights, "read") != 0) access |= IBV_ACCESS_REMOTE_WRITE;
    region->mr = ibv_reg_mr(pd, region->data, region->size, access);
    if (!region->mr) die("ibv_reg_mr");
    region->key = region->mr->rkey;
    printf("%u %llu\n", region->key, (unsigned long long)(uintptr_t)region->data);
}

static void bytes_fill(char *to, size_t length, uint64_t seed) {
    uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;
    for (size_t i = 0; i < length; i++) {
        if (i % 8 == 0) x = x * 6364136223846793005ull + 1442695040888963407ull;
        to[i] = (char)(x >> 8 * (i % 8));
    }
}

/* The request of the words. */
static char *request_make(char **words, int count, size_t *length) {
    char *request, *expanded[WORDS_MAX], numbers[WORDS_MAX][24];
    int n = 0, used = 0;
    for (int i = 0; i < count && n < WORDS_MAX - 2; i++) {
        if (words[i][0] != '@') {
            expanded[n++] = words[i];
            continue;
        }
        char name[32] = "";
        unsigned long long offset = 0;
        sscanf(words[i], "@%31[^+]+%llu", name, &offset);
        const struct region *region = region_find(name);
        snprintf(numbers[used], sizeof numbers[used], "%u", region->key);
        expanded[n++] = numbers[used++];
        snprintf(numbers[used], sizeof numbers[used], "%llu", (unsigned long long)(uintptr_t)region->data + offset);
        expanded[n++] = numbers[used++];
    }
    FILE *to = open_memstream(&request, length);
    fprintf(to, "*%d\r\n", n);
    for (int i = 0; i < n; i++) fprintf(to, "$%zu\r\n%s\r\n", strlen(expanded[i]), expanded[i]);
    fclose(to);
    return request;
}

static void words_send(char **words, int count, long times) {
    size_t length;
    char *request = request_make(words, count, &length);
    for (long i = 0; i < times; i++) send_bytes(request, length);
    free(request);
}

static size_t length_of(const char *word) {
    return strtoull(word, NULL, 10);
}

/* Blocks of one region, which is used again from its start when it ends. The requests of a round leave together, as
 * those of a batch of libvalkeyrdma do. */
static uint64_t blocks_move(bool get, long blocks, size_t length, const struct region *region, long rounds) {
    uint64_t began = now_us();
    char first;
    for (long round = 0; round < rounds && !closed; round++) {
        char *requests;
        size_t all;
        FILE *to = open_memstream(&requests, &all);
        for (long i = 0; i < blocks; i++) {
            char key[32], size[24], memory[64], *request;
            size_t one;
            char *get_words[] = {"BLOB.GET", key, memory, size}, *set_words[] = {"BLOB.SET", key, size, memory, size};
            snprintf(key, sizeof key, "block:%ld", i);
            snprintf(size, sizeof size, "%zu", length);
            snprintf(memory, sizeof memory, "@%s+%zu", region->name, (size_t)i * length % (region->size - length + 1));
            request = request_make(get ? get_words : set_words, get ? 4 : 5, &one);
            fwrite(request, 1, one, to);
            free(request);
        }
        fclose(to);
        send_bytes(requests, all);
        free(requests);
        for (long i = 0; i < blocks; i++)
            if (!reply_take(NULL, &first) || first == '-') closed = true;
    }
    return (now_us() - began) / (uint64_t)rounds;
}

/* A queue pair whose peer is in this process. */
static struct ibv_qp *loop_half(struct ibv_cq *completions) {
    struct ibv_qp_init_attr attr = {.send_cq = completions,
                                    .recv_cq = completions,
                                    .cap = {.max_send_wr = SENDS, .max_recv_wr = 1, .max_send_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_qp_attr to = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    if (!qp || ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        die("a queue pair for copies");
    return qp;
}

static void loop_connect(struct ibv_qp *qp, uint32_t peer) {
    struct ibv_qp_attr receives = {.qp_state = IBV_QPS_RTR,
                                   .path_mtu = IBV_MTU_1024,
                                   .dest_qp_num = peer,
                                   .max_dest_rd_atomic = 1,
                                   .min_rnr_timer = 1,
                                   .ah_attr = {.is_global = 1, .port_num = 1}};
    struct ibv_qp_attr sends_too = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .max_rd_atomic = 1};
    if (ibv_modify_qp(qp, &receives,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ||
        ibv_modify_qp(qp, &sends_too,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC))
        die("connecting a queue pair for copies");
}

/* What the device does by itself: WRITEs from one half of the region to the other, as many at a time as fit. */
static uint64_t blocks_copy(const struct region *region, size_t length, long blocks, long rounds) {
    static struct ibv_cq *completions;
    static struct ibv_qp *halves[2];
    if (!completions) {
        completions = ibv_create_cq(id->verbs, 2 * SENDS, NULL, NULL, 0);
        if (!completions) die("ibv_create_cq");
        for (int i = 0; i < 2; i++) halves[i] = loop_half(completions);
        for (int i = 0; i < 2; i++) loop_connect(halves[i], halves[!i]->qp_num);
    }
    size_t half = region->size / 2;
    long posted = 0, done = 0, all = blocks * rounds;
    uint64_t began = now_us();
    while (done < all) {
        struct ibv_wc wc;
        for (; posted < all && posted - done < SENDS; posted++) {
            size_t at = (size_t)(posted % blocks) * length % (half - length + 1);
            struct ibv_sge sge = {
                .addr = (uintptr_t)region->data + at, .length = (uint32_t)length, .lkey = region->mr->lkey};
            struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
            wr.send_flags = IBV_SEND_SIGNALED;
            wr.wr.rdma.remote_addr = (uintptr_t)region->data + half + at;
            wr.wr.rdma.rkey = region->key;
            if (ibv_post_send(halves[0], &wr, &bad)) die("a copy");
        }
        int n = ibv_poll_cq(completions, 1, &wc);
        if (n < 0 || (n && wc.status)) die("a copy");
        done += n;
    }
    return (now_us() - began) / (uint64_t)rounds;
}

static void run_line(char **words, int count) {
    const char *what = words[0];
    struct region *region = count > 1 && strstr("drop fill text crc show", what) ? region_find(words[1]) : NULL;
    size_t offset = count > 2 ? strtoull(words[2], NULL, 10) : 0, length = count > 3 ? strtoull(words[3], NULL, 10) : 0;
    char first, *text = NULL;
    if (strcmp(what, "region") == 0) {
        region_new(words[1], offset, words[3]);
    } else if (strcmp(what, "drop") == 0) {
        ibv_dereg_mr(region->mr);
        puts("ok");
    } else if (strcmp(what, "fill") == 0) {
        bytes_fill(region->data + offset, length, strtoull(words[4], NULL, 10));
        puts("ok");
    } else if (strcmp(what, "text") == 0) {
        memcpy(region->data + offset, words[3], strlen(words[3]));
        puts("ok");
    } else if (strcmp(what, "crc") == 0) {
        printf("%u\n", crc32c(region->data + offset, length));
    } else if (strcmp(what, "show") == 0) {
        for (size_t i = 0; i < length; i++) print_byte(region->data[offset + i], stdout);
        putchar('\n');
    } else if (strcmp(what, "send") == 0) {
        bool repeats = count > 3 && strcmp(words[1], "repeat") == 0;
        words_send(words + (repeats ? 3 : 1), count - (repeats ? 3 : 1), repeats ? atol(words[2]) : 1);
        puts("ok");
    } else if (strcmp(what, "reply") == 0) {
        bool replied = reply_take(&text, &first);
        puts(replied ? text : "closed");
        free(text);
    } else if (strcmp(what, "replies") == 0) {
        long bad = 0, left = atol(words[1]);
        for (; left > 0 && reply_take(NULL, &first); left--) bad += first == '-';
        printf(left ? "closed\n" : "%ld\n", bad);
    } else if (strcmp(what, "time") == 0) {
        long left = atol(words[1]);
        uint64_t began = now_us();
        words_send(words + 2, count - 2, left);
        while (left > 0 && reply_take(NULL, &first)) left--;
        printf(left ? "closed\n" : "%llu\n", (unsigned long long)(now_us() - began));
    } else if (strcmp(what, "gets") == 0 || strcmp(what, "sets") == 0) {
        uint64_t us =
            blocks_move(what[0] == 'g', atol(words[1]), length_of(words[2]), region_find(words[3]), atol(words[4]));
        printf(closed ? "closed\n" : "%llu\n", (unsigned long long)us);
    } else if (strcmp(what, "copy") == 0) {
        printf("%llu\n", (unsigned long long)blocks_copy(region_find(words[1]), length_of(words[2]), atol(words[3]),
                                                         atol(words[4])));
    } else if (strcmp(what, "end") == 0) {
        _exit(0);
    } else {
        fprintf(stderr, "rdma-place: what is %s?\n", what);
        exit(2);
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    const char *host = "127.0.0.1", *port = "6379";
    bool reads = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--no-reads") == 0) reads = false;
        if (strcmp(argv[i], "--host") == 0 && i + 1 < argc) host = argv[++i];
        if (strcmp(argv[i], "--port") == 0 && i + 1 < argc) port = argv[++i];
    }
    link_open(host, port, reads);
    puts("ready");
    fflush(stdout);
    char *line = NULL, *words[WORDS_MAX], *save;
    size_t capacity = 0;
    while (getline(&line, &capacity, stdin) > 0) {
        int count = 0;
        for (char *word = strtok_r(line, " \n", &save); word && count < WORDS_MAX; word = strtok_r(NULL, " \n", &save))
            words[count++] = word;
        if (count) run_line(words, count);
    }
    return 0;
}
