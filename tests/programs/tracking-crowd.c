/* tracking-crowd: many clients that track keys, and a writer that changes them, for tests/perf/tracking.
 *
 *   tracking-crowd PORT CLIENTS WORK KEYS
 *
 * WORK is what the clients track:
 *
 *   shared        all read the same KEYS keys; one MSET changes them
 *   own           each reads a key of its own; the writer sends a SET for each, in one pipeline
 *   bcast         all have the same prefix; one MSET changes KEYS keys with it
 *   bcast-own     each has a prefix of its own; the writer sends a SET for each, in one pipeline
 *
 * After connecting it says "ready". Then it obeys its input: "read" lets each client read its keys, until all replies
 * have come; "write" changes them, until each client has got all its messages. It answers each line with
 * "INVALIDATIONS SECONDS". Messages are counted by their bytes, which are the same with every server. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

enum { EVENTS = 512, BUFFER = 1 << 18, KEY_TEXT = 12 /* bytes of a key: "key:00000042" */, TIMEOUT_MS = 60000 };
static char buffer[BUFFER];
static int *clients, client_count, key_count, writer, poller;
static bool shared, broadcast;

static void fail(const char *what) {
    fprintf(stderr, "tracking-crowd: %s: %s\n", what, errno ? strerror(errno) : "unexpected");
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int open_connection(int port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void send_all(int fd, const char *data, size_t len) {
    while (len) {
        ssize_t sent = send(fd, data, len, 0);
        if (sent <= 0) fail("send");
        data += sent, len -= (size_t)sent;
    }
}

/* Sends a command that ends with +OK and waits for that. */
static void setup(int fd, const char *commands) {
    size_t have = 0;
    send_all(fd, commands, strlen(commands));
    do {
        ssize_t got = recv(fd, buffer + have, sizeof buffer - have, 0);
        if (got <= 0) fail("setup");
        have += (size_t)got;
    } while (have < 5 || memcmp(buffer + have - 5, "+OK\r\n", 5) != 0);
}

/* A text that grows. */
struct text {
    char *data;
    size_t len, size;
};
static void add(struct text *text, const char *format, int number) {
    if (text->size - text->len < 256) {
        text->size = text->size * 2 + 1024;
        text->data = realloc(text->data, text->size);
        if (!text->data) fail("memory");
    }
    text->len += (size_t)snprintf(text->data + text->len, 256, format, number);
}

/* Receives from the clients until that many bytes have come, and (writer_bytes) that many for the writer. */
static void receive(uint64_t bytes, uint64_t writer_bytes) {
    struct epoll_event events[EVENTS];
    while (bytes || writer_bytes) {
        int count = epoll_wait(poller, events, EVENTS, TIMEOUT_MS);
        if (count <= 0) fail("waiting for the server");
        for (int i = 0; i < count; i++) {
            ssize_t got = recv(events[i].data.fd, buffer, sizeof buffer, 0);
            uint64_t *left = events[i].data.fd == writer ? &writer_bytes : &bytes;
            if (got <= 0 || (uint64_t)got > *left) fail("bytes that nothing asked for");
            *left -= (uint64_t)got;
        }
    }
}

static size_t message_bytes(int keys) {
    char head[64];
    return (size_t)snprintf(head, sizeof head, ">2\r\n$10\r\ninvalidate\r\n*%d\r\n", keys) +
           (size_t)keys * (sizeof "$12\r\n\r\n" - 1 + KEY_TEXT);
}

#define KEY "$12\r\nkey:%08d\r\n"

static void read_round(void) {
    struct text request = {0};
    int each = shared ? key_count : 1;
    if (broadcast) return;
    for (int i = 0; i < client_count; i++) {
        if (i == 0 || !shared) {
            request.len = 0;
            add(&request, "*%d\r\n$4\r\nMGET\r\n", each + 1);
            for (int k = 0; k < each; k++) add(&request, KEY, shared ? k : i);
        }
        send_all(clients[i], request.data, request.len);
    }
    char head[32];
    size_t reply = (size_t)snprintf(head, sizeof head, "*%d\r\n", each) + (size_t)each * (sizeof "$1\r\nv\r\n" - 1);
    receive((uint64_t)client_count * reply, 0);
    free(request.data);
}

/* Gives the invalidations: pairs of a client and a key. */
static uint64_t write_round(bool expect) {
    struct text request = {0};
    int keys = shared ? key_count : client_count;
    if (shared) add(&request, "*%d\r\n$4\r\nMSET\r\n", 2 * keys + 1);
    for (int k = 0; k < keys; k++) {
        if (!shared) add(&request, "*3\r\n$3\r\nSET\r\n", 0);
        add(&request, KEY, k);
        add(&request, "$1\r\nv\r\n", 0);
    }
    uint64_t each = shared ? (uint64_t)keys : 1;
    uint64_t bytes = shared && !broadcast ? each * message_bytes(1) : message_bytes((int)each);
    send_all(writer, request.data, request.len);
    receive(expect ? (uint64_t)client_count * bytes : 0, shared ? 5 : 5 * (uint64_t)keys);
    free(request.data);
    return (uint64_t)client_count * each;
}

static void watch(int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

int main(int argc, char **argv) {
    if (argc != 5) fail("usage: tracking-crowd PORT CLIENTS shared|own|bcast|bcast-own KEYS");
    int port = atoi(argv[1]);
    client_count = atoi(argv[2]), key_count = atoi(argv[4]);
    broadcast = strncmp(argv[3], "bcast", 5) == 0;
    shared = strcmp(argv[3], "shared") == 0 || strcmp(argv[3], "bcast") == 0;
    clients = calloc((size_t)client_count, sizeof *clients);
    poller = epoll_create1(0);
    if (!clients || poller < 0) fail("start");
    writer = open_connection(port);
    watch(writer);
    write_round(false);
    for (int i = 0; i < client_count; i++) {
        struct text commands = {0};
        clients[i] = open_connection(port);
        add(&commands, "HELLO 3\r\nCLIENT TRACKING ON", 0);
        if (broadcast) add(&commands, shared ? " BCAST PREFIX key:" : " BCAST PREFIX key:%08d", i);
        add(&commands, "\r\n", 0);
        add(&commands, "", 0);
        setup(clients[i], commands.data);
        watch(clients[i]);
        free(commands.data);
    }
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        double began = now();
        uint64_t count = 0;
        if (line[0] == 'r')
            read_round();
        else
            count = write_round(true);
        printf("%llu %.6f\n", (unsigned long long)count, now() - began);
        fflush(stdout);
    }
    return 0;
}
