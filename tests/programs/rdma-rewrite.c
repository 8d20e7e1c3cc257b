/* rdma-rewrite: a peer of Valkey over RDMA that rewrites bytes after it has announced them.
 *
 *   rdma-rewrite --host H --port P --corpus FILE [--seconds S] [--seed N] [--auth "AUTH …"]
 *   rdma-rewrite --host H --port P --race TRIES [--auth "AUTH …"] WORD...
 *   rdma-rewrite --host H --port P --inline TRIES
 *   rdma-rewrite --host H --port P --serve FILE [--seconds S] [--seed N]
 *
 * --corpus: sends the commands of the file, in random order, and rewrites a few random bytes of each, back and forth,
 * until the reply has come. One command a line; %xx is a byte, %e is an empty word.
 * --race: sends one command TRIES times. A word may contain `{this|that}`, of equal lengths: `this` is announced, and
 * rewritten to `that` and back until the reply has come. `#` in a word is the number of the try. Prints each different
 * reply with its count.
 * --inline: the same with long inline requests, in which quotes appear.
 * --serve: listens, and answers each request with bytes that it rewrites. Lines of the file are `NAME REPLY`: the reply
 * to requests that contain NAME, `*` for all others; several of them are used in random order. Prints
 * "serving" when it listens, and runs until it is killed.
 *
 * Exit code 0: the server has lived on. Written on plain verbs, in the base protocol (src/net/rdma/wire.h). */
#include <arpa/inet.h>
#include <ctype.h>
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

enum { SENDS = 256, RECEIVES = 1024, CONTROL = 32, REGISTER_MEMORY = 3 };
enum { IN_SIZE = 1 << 20, OUT_SIZE = 1 << 20, ALTERNATIVES = OUT_SIZE / 2, MESSAGES = OUT_SIZE - 4096 };
enum { WAIT_US = 10 * 1000 * 1000, REWRITE_US = 300 * 1000, REQUEST_MAX = 128 * 1024, WORDS_MAX = 512 };

struct link {
    struct rdma_event_channel *events; /* NULL: accepted, run_server() handles its events */
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *in_mr, *out_mr, *control_mr;
    char *in, *out, *control; /* out: what was sent last; from ALTERNATIVES what it is rewritten to; control messages */
    uint64_t peer_addr;
    uint32_t peer_length, peer_key, peer_offset;
    unsigned told;  /* announcements of the peer */
    unsigned sends; /* posted and not completed */
    uint32_t in_filled;
    char *received; /* what has come since the last request was sent, with a NUL behind it */
    size_t received_len, received_capacity;
    bool closed, established;
};

static const char *host = "127.0.0.1", *port = "6379", *auth;
static double seconds = 5;
static unsigned long rewrites;

static uint64_t random_state = 1;
static uint32_t random_below(uint32_t n) {
    random_state += 0x9e3779b97f4a7c15ull;
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)((z ^ (z >> 31)) >> 16) % n;
}
static uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}
static void die(const char *what) {
    fprintf(stderr, "rdma-rewrite: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* --- One connection --- */

static int cm_event(struct link *l, int ms) {
    struct pollfd p = {.fd = l->events ? l->events->fd : -1, .events = POLLIN};
    struct rdma_cm_event *event;
    if (!l->events || poll(&p, 1, ms) <= 0 || rdma_get_cm_event(l->events, &event)) return -1;
    int type = (int)event->event;
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_ESTABLISHED) l->established = true;
    if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_REJECTED || type == RDMA_CM_EVENT_UNREACHABLE ||
        type == RDMA_CM_EVENT_CONNECT_ERROR)
        l->closed = true;
    return type;
}

static void post_receive(struct link *l, uint32_t slot) {
    struct ibv_sge sge = {
        .addr = (uintptr_t)(l->control + slot * CONTROL), .length = CONTROL, .lkey = l->control_mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    ibv_post_recv(l->id->qp, &wr, &bad);
}

static void take_completions(struct link *l);

static void post(struct link *l, uint64_t from, uint32_t length, enum ibv_wr_opcode opcode, uint64_t to) {
    while (l->sends >= SENDS - 1 && !l->closed) {
        take_completions(l);
        if (l->sends >= SENDS - 1) cm_event(l, 0);
    }
    struct ibv_sge sge = {.addr = (uintptr_t)(l->out + from), .length = length, .lkey = l->out_mr->lkey};
    struct ibv_send_wr wr = {.wr_id = RECEIVES, .sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.imm_data = htonl(length);
    wr.wr.rdma.remote_addr = to;
    wr.wr.rdma.rkey = l->peer_key;
    if (l->closed) return;
    if (ibv_post_send(l->id->qp, &wr, &bad))
        l->closed = true;
    else
        l->sends++;
}

static void announce(struct link *l) {
    static unsigned turn;
    uint32_t at = MESSAGES + CONTROL * (turn++ % 64), length = htonl(IN_SIZE), key = htonl(l->in_mr->rkey);
    uint64_t addr = htobe64((uintptr_t)l->in);
    char *message = memset(l->out + at, 0, CONTROL);
    message[1] = REGISTER_MEMORY;
    memcpy(message + 16, &addr, sizeof addr);
    memcpy(message + 24, &length, sizeof length);
    memcpy(message + 28, &key, sizeof key);
    l->in_filled = 0;
    post(l, at, CONTROL, IBV_WR_SEND, 0);
}

static void control_received(struct link *l, const char *message) {
    if (message[0] != 0 || message[1] != REGISTER_MEMORY) return; /* keepalive, or a question for features */
    memcpy(&l->peer_addr, message + 16, 8);
    memcpy(&l->peer_length, message + 24, 4);
    memcpy(&l->peer_key, message + 28, 4);
    l->peer_addr = be64toh(l->peer_addr);
    l->peer_length = ntohl(l->peer_length);
    l->peer_key = ntohl(l->peer_key);
    l->peer_offset = 0;
    l->told++;
}

static void bytes_received(struct link *l, uint32_t length) {
    if (l->received_len + length + 1 > l->received_capacity) {
        l->received_capacity = 2 * (l->received_len + length + 1);
        l->received = realloc(l->received, l->received_capacity);
        if (!l->received) die("no memory");
    }
    memcpy(l->received + l->received_len, l->in + l->in_filled, length);
    l->received_len += length;
    l->received[l->received_len] = '\0';
    l->in_filled += length;
}

static void take_completions(struct link *l) {
    struct ibv_wc wc[16];
    int n;
    while ((n = ibv_poll_cq(l->cq, 16, wc)) > 0) {
        for (int i = 0; i < n; i++) {
            bool receive = wc[i].wr_id < RECEIVES;
            if (!receive && l->sends) l->sends--;
            if (wc[i].status != IBV_WC_SUCCESS) l->closed = true;
            if (!receive || wc[i].status != IBV_WC_SUCCESS) continue;
            if (wc[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM)
                bytes_received(l, ntohl(wc[i].imm_data));
            else
                control_received(l, l->control + wc[i].wr_id * CONTROL);
            post_receive(l, (uint32_t)wc[i].wr_id);
            if (l->in_filled == IN_SIZE) announce(l);
        }
    }
}

static void link_resources(struct link *l) {
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    l->pd = ibv_alloc_pd(l->id->verbs);
    l->cq = ibv_create_cq(l->id->verbs, SENDS + RECEIVES + 16, NULL, NULL, 0);
    if (!l->pd || !l->cq) die("verbs objects");
    attr.send_cq = attr.recv_cq = l->cq;
    if (rdma_create_qp(l->id, l->pd, &attr)) die("rdma_create_qp");
    l->in = aligned_alloc(4096, IN_SIZE);
    l->out = aligned_alloc(4096, OUT_SIZE);
    l->control = aligned_alloc(4096, RECEIVES * CONTROL);
    l->received = calloc(1, l->received_capacity = 4096);
    if (!l->in || !l->out || !l->control || !l->received) die("no memory");
    memset(l->in, 0, IN_SIZE);
    memset(l->out, 0, OUT_SIZE);
    l->in_mr = ibv_reg_mr(l->pd, l->in, IN_SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    l->out_mr = ibv_reg_mr(l->pd, l->out, OUT_SIZE, IBV_ACCESS_LOCAL_WRITE);
    l->control_mr = ibv_reg_mr(l->pd, l->control, RECEIVES * CONTROL, IBV_ACCESS_LOCAL_WRITE);
    if (!l->in_mr || !l->out_mr || !l->control_mr) die("ibv_reg_mr");
    for (uint32_t i = 0; i < RECEIVES; i++) post_receive(l, i);
}

static void link_free(struct link *l) {
    if (l->id->qp) {
        if (l->established && !l->closed) rdma_disconnect(l->id);
        rdma_destroy_qp(l->id);
        ibv_dereg_mr(l->in_mr);
        ibv_dereg_mr(l->out_mr);
        ibv_dereg_mr(l->control_mr);
        ibv_destroy_cq(l->cq);
        ibv_dealloc_pd(l->pd);
    }
    struct rdma_event_channel *events = l->events;
    rdma_destroy_id(l->id);
    if (events) rdma_destroy_event_channel(events);
    free(l->in);
    free(l->out);
    free(l->control);
    free(l->received);
    free(l);
}

static struct rdma_conn_param parameters(void) {
    return (struct rdma_conn_param){
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
}

static bool await_told(struct link *l, unsigned before) {
    for (uint64_t end = now_us() + WAIT_US; l->told == before && !l->closed && now_us() < end;) {
        take_completions(l);
        cm_event(l, 0);
    }
    return l->told != before && !l->closed;
}

static size_t words_make(char *to, const char *line, uint32_t *starts, uint32_t *lengths, int *count);
static bool call(struct link *l, const char *request, size_t length);

/* NULL: there is no server. */
static struct link *link_open(void) {
    struct link *l = calloc(1, sizeof *l);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    struct rdma_conn_param param = parameters();
    inet_pton(AF_INET, host, &to.sin_addr);
    if (!l || !(l->events = rdma_create_event_channel()) || rdma_create_id(l->events, &l->id, NULL, RDMA_PS_TCP))
        die("no connection");
    bool open = rdma_resolve_addr(l->id, NULL, (struct sockaddr *)&to, 5000) == 0 &&
                cm_event(l, 10000) == RDMA_CM_EVENT_ADDR_RESOLVED && rdma_resolve_route(l->id, 5000) == 0 &&
                cm_event(l, 10000) == RDMA_CM_EVENT_ROUTE_RESOLVED;
    if (open) {
        link_resources(l);
        open = rdma_connect(l->id, &param) == 0 && cm_event(l, 10000) == RDMA_CM_EVENT_ESTABLISHED;
    }
    if (open) announce(l);
    if (open && await_told(l, 0)) {
        static char request[REQUEST_MAX];
        uint32_t starts[WORDS_MAX], lengths[WORDS_MAX];
        int count;
        if (!auth || call(l, request, words_make(request, auth, starts, lengths, &count))) return l;
    }
    link_free(l);
    return NULL;
}

/* A server that is alive but has no time accepts at a later try. */
static struct link *link_reopen(struct link *old) {
    struct link *l = NULL;
    if (old) link_free(old);
    for (int tries = 0; tries < 20 && !(l = link_open()); tries++) usleep(100000);
    return l;
}

/* --- Sending and rewriting --- */

static void send_bytes(struct link *l, const char *bytes, uint32_t length) {
    while (l->sends && !l->closed) { /* `out` may be overwritten then */
        take_completions(l);
        cm_event(l, 0);
    }
    memcpy(l->out, bytes, length);
    for (uint32_t at = 0, part; at < length && !l->closed; at += part) {
        if (l->peer_offset == l->peer_length && !await_told(l, l->told)) {
            l->closed = true;
            return;
        }
        part = length - at < l->peer_length - l->peer_offset ? length - at : l->peer_length - l->peer_offset;
        uint64_t to = l->peer_addr + l->peer_offset;
        l->peer_offset += part;
        post(l, at, part, IBV_WR_RDMA_WRITE_WITH_IMM, to);
    }
}

/* Fills the buffer with an empty line unless `length` bytes fit, so that what is sent next lies in one piece. */
static void make_fit(struct link *l, uint32_t length) {
    static char line[64 * 1024];
    while (!l->closed && l->peer_length - l->peer_offset < length) {
        uint32_t left = l->peer_length - l->peer_offset;
        unsigned told = l->told;
        if (left > sizeof line) left = sizeof line;
        memset(line, ' ', left);
        if (left) line[left - 1] = '\n';
        send_bytes(l, line, left);
        if (l->peer_offset == l->peer_length && l->told == told && !await_told(l, told)) l->closed = true;
        if (l->peer_offset == 0 && l->peer_length < length) l->closed = true;
    }
}

/* Writes the two versions of `length` bytes, which were announced before, to `to`, until something comes back or for
 * `limit_us`. */
static void rewrite(struct link *l, uint64_t to, const char *first, const char *second, uint32_t length,
                    uint64_t limit_us) {
    size_t before = l->received_len;
    uint64_t end = now_us() + limit_us;
    memcpy(l->out + ALTERNATIVES, second, length);
    memcpy(l->out + ALTERNATIVES + REQUEST_MAX, first, length);
    for (unsigned i = 0; l->received_len == before && !l->closed; i++) {
        post(l, i & 1 ? ALTERNATIVES + REQUEST_MAX : ALTERNATIVES, length, IBV_WR_RDMA_WRITE, to);
        rewrites++;
        take_completions(l);
        if (i & 255) continue;
        cm_event(l, 0);
        if (now_us() > end) break;
    }
}

static bool call(struct link *l, const char *request, size_t length) {
    l->received_len = 0;
    send_bytes(l, request, (uint32_t)length);
    for (uint64_t end = now_us() + WAIT_US; !l->received_len && !l->closed && now_us() < end;) {
        take_completions(l);
        cm_event(l, 0);
    }
    return l->received_len > 0;
}

/* --- Commands --- */

static size_t word_decode(char *to, const char *from) {
    size_t length = 0;
    for (; *from; from++) {
        char digits[3] = {0};
        if (*from == '%' && from[1] == 'e') {
            from++;
        } else if (*from == '%' && isxdigit((unsigned char)from[1]) && isxdigit((unsigned char)from[2])) {
            memcpy(digits, from + 1, 2);
            to[length++] = (char)strtol(digits, NULL, 16);
            from += 2;
        } else
            to[length++] = *from;
    }
    return length;
}

/* The request of a line's words, and where each of them is in it. */
static size_t words_make(char *to, const char *line, uint32_t *starts, uint32_t *lengths, int *count) {
    char *copy = strdup(line), *decoded = malloc(strlen(line) + 1), *save, *words[WORDS_MAX];
    int n = 0;
    for (char *word = strtok_r(copy, " ", &save); word && n < WORDS_MAX; word = strtok_r(NULL, " ", &save))
        words[n++] = word;
    size_t at = (size_t)sprintf(to, "*%d\r\n", n);
    for (int i = 0; i < n; i++) {
        size_t length = word_decode(decoded, words[i]);
        at += (size_t)sprintf(to + at, "$%zu\r\n", length);
        starts[i] = (uint32_t)at;
        lengths[i] = (uint32_t)length;
        memcpy(to + at, decoded, length);
        memcpy(to + at + length, "\r\n", 2);
        at += length + 2;
    }
    free(copy);
    free(decoded);
    *count = n;
    return at;
}

static char *lines[8192];
static int line_count;

static void lines_read(const char *name) {
    FILE *file = fopen(name, "r");
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    if (!file) die(name);
    while ((length = getline(&line, &capacity, file)) > 0 && line_count < (int)(sizeof lines / sizeof *lines)) {
        if (line[length - 1] == '\n') line[--length] = '\0';
        if (length && length < REQUEST_MAX / 8) lines[line_count++] = strdup(line);
    }
    free(line);
    fclose(file);
    if (!line_count) die("no lines");
}

/* Other bytes for `length` of a request: what a parser, a pattern or a number reacts to, or random ones. */
static void bytes_invent(char *to, uint32_t length) {
    static const char *const texts[] = {"-", "\"", "1",    "9223372036854775807",  "nan", "0",      " ",   "\n",
                                        "*", "[",  "\\",   "18446744073709551615", "inf", "MAXLEN", "u64", "\r\n",
                                        "$", "'",  "\x1b", "\xff\xff\xff\xff",     "=",   "1e308",  "(",   "-1"};
    const char *text = texts[random_below(sizeof texts / sizeof *texts)];
    uint32_t kind = random_below(8), unit = (uint32_t)strlen(text);
    for (uint32_t i = 0; i < length; i++)
        to[i] = kind < 2 ? (char)random_below(256) : kind == 2 ? (char)('a' + random_below(26)) : text[i % unit];
}

/* Which bytes of a request to rewrite: some of a word, all of it, or some of its length too. */
static uint32_t bytes_choose(uint32_t start, uint32_t length, uint32_t *from) {
    uint32_t kind = random_below(4), width = 1;
    if (kind == 0) width = 1 + random_below(length < 8 ? length : 8);
    if (kind == 1) width = length < 200 ? length : 200;
    *from = start + random_below(length - width + 1);
    if (random_below(10) == 0 && *from > 8) *from -= 1 + random_below(8);
    return width;
}

static int run_corpus(void) {
    static char request[REQUEST_MAX * 4];
    unsigned long sent = 0, connections = 1;
    struct link *l = link_open();
    if (!l) die("no connection");
    for (uint64_t end = now_us() + (uint64_t)(seconds * 1e6); now_us() < end;) {
        uint32_t starts[WORDS_MAX], lengths[WORDS_MAX], from, width;
        int count, word;
        char other[256];
        const char *line = lines[random_below((uint32_t)line_count)];
        size_t length = words_make(request, line, starts, lengths, &count);
        if (random_below(12) == 0) { /* as an inline request */
            length = (size_t)snprintf(request, sizeof request, "%s\r\n", line);
            starts[0] = 0;
            lengths[0] = (uint32_t)length - 2;
            count = 1;
        }
        word = (int)random_below((uint32_t)count);
        if (!lengths[word]) word = 0;
        make_fit(l, (uint32_t)length);
        if (!l->closed) {
            width = bytes_choose(starts[word], lengths[word], &from);
            bytes_invent(other, width);
            l->received_len = 0;
            uint64_t to = l->peer_addr + l->peer_offset + from;
            send_bytes(l, request, (uint32_t)length);
            rewrite(l, to, request + from, other, width, REWRITE_US / 100);
            sent++;
        }
        if (!l->closed && random_below(2000)) continue;
        connections++;
        if (!(l = link_reopen(l))) {
            printf("the server is gone after %lu requests, the last one: %s\n", sent, line);
            return 1;
        }
    }
    link_free(l);
    printf("%lu requests, %lu rewrites, %lu connections\n", sent, rewrites, connections);
    return sent ? 0 : 1;
}

/* The command of a race: `{this|that}` becomes one of both, `#` the number of the try. */
static void race_words(char *to, char **words, bool second, unsigned number) {
    for (; *words; words++) {
        bool skip = false, inside = false;
        for (const char *from = *words; *from; from++) {
            if (*from == '{') {
                inside = true;
                skip = second;
            } else if (inside && *from == '|') {
                skip = !second;
            } else if (inside && *from == '}') {
                inside = skip = false;
            } else if (*from == '#' && !skip) {
                to += sprintf(to, "%06u", number);
            } else if (!skip)
                *to++ = *from;
        }
        *to++ = words[1] ? ' ' : '\0';
    }
}

struct seen {
    char *reply;
    unsigned count;
};

static void seen_note(struct seen *seen, int *count, int most, const struct link *l) {
    if (!l->received_len) return;
    for (int i = 0; i < *count; i++) {
        if (strcmp(seen[i].reply, l->received)) continue;
        seen[i].count++;
        return;
    }
    if (*count < most) seen[(*count)++] = (struct seen){strdup(l->received), 1};
}

static int run_race(unsigned tries, char **words) {
    enum { REPLIES = 64 };
    static char first[REQUEST_MAX], second[REQUEST_MAX], line[REQUEST_MAX];
    struct seen seen[REPLIES];
    int seen_count = 0;
    struct link *l = link_open();
    if (!l) die("no connection");
    for (unsigned i = 0; i < tries; i++) {
        uint32_t starts[WORDS_MAX], lengths[WORDS_MAX], from = 0, to;
        int count;
        race_words(line, words, true, i);
        size_t length = words_make(second, line, starts, lengths, &count);
        race_words(line, words, false, i);
        if (words_make(first, line, starts, lengths, &count) != length) die("alternatives differ in length");
        while (from < length && first[from] == second[from]) from++;
        for (to = (uint32_t)length; to > from && first[to - 1] == second[to - 1];) to--;
        make_fit(l, (uint32_t)length);
        l->received_len = 0;
        uint64_t remote = l->peer_addr + l->peer_offset + from;
        send_bytes(l, first, (uint32_t)length);
        rewrite(l, remote, first + from, second + from, to - from, WAIT_US);
        seen_note(seen, &seen_count, REPLIES, l);
        if (l->closed && !(l = link_reopen(l))) {
            printf("the server is gone after %u requests\n", i + 1);
            return 1;
        }
    }
    link_free(l);
    for (int i = 0; i < seen_count; i++) {
        printf("%u ", seen[i].count);
        for (const char *p = seen[i].reply; *p; p++) putchar(*p == '\r' || *p == '\n' ? ' ' : *p);
        printf("\n");
        free(seen[i].reply);
    }
    printf("%u tries, %lu rewrites\n", tries, rewrites);
    return 0;
}

static int run_inline(unsigned tries) {
    enum { LENGTH = 30000 };
    static char request[LENGTH];
    struct link *l = link_open();
    if (!l) die("no connection");
    for (unsigned i = 0; i < tries; i++) {
        if (i & 1) call(l, "\"a\"\r\n", 5); /* the server has a little memory for decoded words */
        make_fit(l, LENGTH);
        memset(request, 'A' + (int)(i % 26), LENGTH);
        request[LENGTH - 1] = '\n';
        l->received_len = 0;
        uint64_t to = l->peer_addr + l->peer_offset + LENGTH - 3;
        send_bytes(l, request, LENGTH);
        rewrite(l, to, request + LENGTH - 3, "\"\"", 2, WAIT_US);
        if (l->closed && !(l = link_reopen(l))) {
            printf("the server is gone after %u requests\n", i + 1);
            return 1;
        }
    }
    link_free(l);
    printf("%u tries, %lu rewrites\n", tries, rewrites);
    return 0;
}

/* --- A server --- */

static const char *line_for(const char *request) {
    const char *found[256];
    uint32_t count = 0;
    for (int round = 0; round < 2 && !count; round++) {
        for (int i = 0; i < line_count && count < sizeof found / sizeof *found; i++) {
            const char *space = strchr(lines[i], ' ');
            char name[64];
            if (!space || space - lines[i] >= (long)sizeof name) continue;
            memcpy(name, lines[i], (size_t)(space - lines[i]));
            name[space - lines[i]] = '\0';
            bool other = strcmp(name, "*") == 0;
            if (round ? !other : other || !strstr(request, name)) continue;
            found[count++] = space + 1;
        }
    }
    return count ? found[random_below(count)] : "+OK%0d%0a";
}

static void serve_request(struct link *l, const char *request, uint64_t limit_us) {
    static char reply[REQUEST_MAX];
    char other[256];
    uint32_t length = (uint32_t)word_decode(reply, line_for(request)), from;
    if (l->peer_length - l->peer_offset < length) { /* it cannot be rewritten in one piece: send it as it is */
        send_bytes(l, reply, length);
        return;
    }
    uint32_t width = bytes_choose(0, length, &from);
    bytes_invent(other, width);
    uint64_t to = l->peer_addr + l->peer_offset + from;
    send_bytes(l, reply, length);
    rewrite(l, to, reply + from, other, width, limit_us);
}

/* Answers what has come. A request begins with `*` at the start of a line. */
static void serve_requests(struct link *l) {
    char *all = strdup(l->received);
    l->received_len = 0;
    for (char *at = all, *next; at && *at && !l->closed; at = next) {
        next = strstr(at + 1, "\n*");
        if (next) *next++ = '\0';
        serve_request(l, at, next ? 20 : 300);
    }
    free(all);
}

static _Noreturn void run_server(void) {
    enum { CONNECTIONS = 64 };
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *listener;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    struct link *links[CONNECTIONS];
    int count = 0;
    inet_pton(AF_INET, host, &at.sin_addr);
    if (!events || rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) ||
        rdma_bind_addr(listener, (struct sockaddr *)&at) || rdma_listen(listener, CONNECTIONS))
        die("listening");
    printf("serving\n");
    fflush(stdout);
    for (;;) {
        struct pollfd p = {.fd = events->fd, .events = POLLIN};
        struct rdma_cm_event *event;
        bool busy = false;
        while (poll(&p, 1, 0) > 0 && rdma_get_cm_event(events, &event) == 0) {
            enum rdma_cm_event_type type = event->event;
            struct rdma_cm_id *id = event->id;
            rdma_ack_cm_event(event);
            struct link *l = id == listener ? NULL : id->context;
            if (type == RDMA_CM_EVENT_CONNECT_REQUEST && count == CONNECTIONS) {
                rdma_reject(id, NULL, 0);
                rdma_destroy_id(id);
            } else if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
                struct rdma_conn_param param = parameters();
                l = links[count++] = calloc(1, sizeof *l);
                if (!l) die("no memory");
                l->id = id;
                id->context = l;
                link_resources(l);
                if (rdma_accept(id, &param)) l->closed = true;
            } else if (type == RDMA_CM_EVENT_ESTABLISHED && l) {
                l->established = true;
                announce(l);
            } else if (l && type != RDMA_CM_EVENT_TIMEWAIT_EXIT)
                l->closed = true;
        }
        for (int i = 0; i < count; i++) {
            struct link *l = links[i];
            if (l->established && !l->closed) take_completions(l);
            if (l->told && l->received_len && !l->closed) {
                serve_requests(l);
                busy = true;
            }
            if (!l->closed) continue;
            link_free(l);
            links[i--] = links[--count];
        }
        if (!busy) usleep(count ? 20 : 1000);
    }
}

/* --- */

int main(int argc, char **argv) {
    const char *corpus = NULL, *serve = NULL;
    unsigned race = 0, inlined = 0;
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        const char *name = argv[i] + 2, *value = argv[i + 1];
        if (strcmp(name, "host") == 0)
            host = value;
        else if (strcmp(name, "port") == 0)
            port = value;
        else if (strcmp(name, "auth") == 0)
            auth = value;
        else if (strcmp(name, "seconds") == 0)
            seconds = atof(value);
        else if (strcmp(name, "seed") == 0)
            random_state = strtoull(value, NULL, 10);
        else if (strcmp(name, "corpus") == 0)
            corpus = value;
        else if (strcmp(name, "serve") == 0)
            serve = value;
        else if (strcmp(name, "race") == 0)
            race = (unsigned)atoi(value);
        else if (strcmp(name, "inline") == 0)
            inlined = (unsigned)atoi(value);
        else
            break;
    }
    if (corpus || serve) lines_read(corpus ? corpus : serve);
    if (corpus && i == argc) return run_corpus();
    if (serve && i == argc) run_server();
    if (race && i < argc) return run_race(race, argv + i);
    if (inlined && i == argc) return run_inline(inlined);
    fprintf(stderr, "rdma-rewrite: see the comment at the head of its source\n");
    return 2;
}
