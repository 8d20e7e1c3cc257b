/* rdma-client: uses libvalkeyrdma as a program would. It includes nothing else of this project.
 *
 *   rdma-client available                prints "0" or a negative errno, and the reason
 *   rdma-client CHECK HOST PORT          one of the checks below, or "all"; prints "ok NAME" for each that has passed
 *   rdma-client load HOST PORT THREADS CONNECTIONS SECONDS TIMEOUT_MS
 *                                        requests from threads that block and from one that polls. Prints "running"
 * when all are connected. Ends with "ended ERRNO TEXT" for each connection that was lost. Exits 3 if a reply is wrong
 *   rdma-client removal HOST PORT
 *                                        the device is removed with the third connection; prints the error's text
 *   rdma-client steady HOST PORT REQUESTS
 *                                        received bytes stay as they are while the peer rewrites them. Exits 3 if not
 *   rdma-client bench HOST PORT CONNECTIONS REQUESTS
 *                                        PING from one thread; prints requests per second */
#include "client-check.h"
#include "client/valkeyrdma.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct valkeyrdma *open_in(struct valkeyrdma_context *context) {
    char error[VALKEYRDMA_ERROR_MAX] = "";
    struct valkeyrdma *c = valkeyrdma_connect(context, host, port, NULL, 10000, error, sizeof error);
    if (!c) {
        fprintf(stderr, "connecting failed: %s\n", error);
        exit(1);
    }
    return c;
}

static void send_all(struct valkeyrdma *c, const char *text) {
    CHECK(valkeyrdma_send(c, text, strlen(text), 10000) == (ssize_t)strlen(text));
}

static void expect(struct valkeyrdma *c, const char *text) {
    char got[256];
    size_t len = strlen(text), have = 0;
    while (have < len) {
        ssize_t n = valkeyrdma_recv(c, got + have, len - have, 10000);
        CHECK(n > 0);
        have += (size_t)n;
    }
    CHECK(memcmp(got, text, len) == 0);
}

static void check_blocking(void) {
    struct valkeyrdma *c = open_in(NULL);
    char text[VALKEYRDMA_ADDRESS_MAX], line[256];
    for (int i = 0; i < 1000; i++) {
        send_all(c, "PING\r\n");
        expect(c, "+PONG\r\n");
    }
    CHECK(valkeyrdma_state(c) == (VALKEYRDMA_OPEN | VALKEYRDMA_WRITABLE | VALKEYRDMA_DRAINED));
    CHECK(valkeyrdma_address(c, 1, text) == 0 && strstr(text, host));
    CHECK(valkeyrdma_address(c, 0, text) == 0);
    valkeyrdma_describe(c, line, sizeof line);
    CHECK(strstr(line, "device="));
    CHECK(valkeyrdma_error(c) == 0 && !*valkeyrdma_error_text(c));
    double before = now();
    CHECK(valkeyrdma_recv(c, text, sizeof text, 0) == -EAGAIN);
    CHECK(valkeyrdma_recv(c, text, sizeof text, 0) == -EAGAIN);
    CHECK(now() - before < 1);
    CHECK(valkeyrdma_recv(c, text, sizeof text, 50) == -ETIMEDOUT);
    CHECK(now() - before >= 0.05);
    CHECK(valkeyrdma_recv(c, text, 0, -1) == 0);
    send_all(c, "PING\r\n");
    expect(c, "+PONG\r\n");
    valkeyrdma_close(c);
}

static void check_end(void) {
    struct valkeyrdma *c = open_in(NULL);
    char byte;
    send_all(c, "PING\r\nQUIT\r\n");
    expect(c, "+PONG\r\n+OK\r\n"); /* what came before the end is delivered */
    CHECK(valkeyrdma_recv(c, &byte, 1, 10000) == 0);
    CHECK(valkeyrdma_recv(c, &byte, 1, -1) == 0);
    CHECK(valkeyrdma_state(c) & VALKEYRDMA_ENDED);
    CHECK(valkeyrdma_error(c) == 0 && *valkeyrdma_error_text(c));
    CHECK(valkeyrdma_send(c, "PING\r\n", 6, -1) == -EPIPE);
    CHECK(valkeyrdma_flush(c, -1) == -EPIPE);
    valkeyrdma_close(c);
    /* What was sent before closing arrives. */
    struct valkeyrdma *other = open_in(NULL);
    c = open_in(NULL);
    send_all(c, "SET closing 1\r\n");
    valkeyrdma_close(c);
    for (int i = 0;; i++) {
        char reply[4];
        CHECK(i < 1000);
        send_all(other, "EXISTS closing\r\n");
        CHECK(valkeyrdma_recv(other, reply, sizeof reply, 10000) == 4);
        if (memcmp(reply, ":1\r\n", 4) == 0) break;
        usleep(10000);
    }
    valkeyrdma_close(other);
}

static void check_errors(void) {
    char error[VALKEYRDMA_ERROR_MAX] = "";
    CHECK(!valkeyrdma_connect(NULL, host, 1, NULL, 2000, error, sizeof error) && errno > 0 && *error);
    CHECK(!valkeyrdma_connect(NULL, host, 0, NULL, 2000, error, sizeof error) && errno == EINVAL);
    CHECK(!valkeyrdma_connect(NULL, "no-such-host.invalid", port, NULL, 2000, error, sizeof error) && *error);
    CHECK(!valkeyrdma_connect(NULL, host, 1, NULL, 2000, NULL, 0));
    CHECK(valkeyrdma_set("no-such", 1) == -ENOENT && valkeyrdma_set("traffic-class", 256) == -ERANGE);
    CHECK(valkeyrdma_set("busy-poll-us", 20) == 0);
    struct valkeyrdma_context *context = valkeyrdma_context_new(error, sizeof error);
    CHECK(context);
    struct valkeyrdma *c = valkeyrdma_connect_start(context, host, 1, NULL, 2000, error, sizeof error);
    CHECK(c && valkeyrdma_context_wait(context, 10000) == 1 && valkeyrdma_context_next(context) == c);
    int result = valkeyrdma_connect_finish(c, 0);
    CHECK(result < 0 && result != -EAGAIN && valkeyrdma_error(c) == result && *valkeyrdma_error_text(c));
    CHECK(valkeyrdma_recv(c, error, 1, 0) == result && valkeyrdma_send(c, "x", 1, 0) == result);
    valkeyrdma_close(c);
    CHECK(!valkeyrdma_context_next(context) && valkeyrdma_context_wait(context, 0) == -EAGAIN);
    c = open_in(context);
    valkeyrdma_context_free(context); /* with a connection in it */
    valkeyrdma_context_free(NULL);
    valkeyrdma_close(NULL);
}

/* A value of `size` bytes that depends on its position everywhere. */
static char *make_value(size_t size) {
    char *value = malloc(size);
    CHECK(value);
    uint32_t x = 2463534242u;
    for (size_t i = 0; i < size; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        value[i] = (char)x;
    }
    return value;
}

static void check_large(void) {
    enum { SIZE = 8 * 1024 * 1024 + 17 };
    char *value = make_value(SIZE), head[128];
    struct valkeyrdma *c = open_in(NULL);
    snprintf(head, sizeof head, "*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$%d\r\n", SIZE);
    struct iovec pieces[4] = {{head, strlen(head)}, {value, 1000}, {value + 1000, SIZE - 1000}, {(char *)"\r\n", 2}};
    ssize_t total = (ssize_t)strlen(head) + SIZE + 2;
    CHECK(valkeyrdma_sendv(c, pieces, 4, 30000) == total);
    CHECK(valkeyrdma_flush(c, 30000) == 0 && valkeyrdma_queued(c) == 0);
    expect(c, "+OK\r\n");
    /* In place, in pieces as they come. */
    snprintf(head, sizeof head, "$%d\r\n", SIZE);
    send_all(c, "GET large\r\n");
    expect(c, head);
    for (size_t at = 0; at < SIZE;) {
        const void *bytes;
        ssize_t n = valkeyrdma_peek(c, &bytes, 1, 10000);
        CHECK(n > 0);
        size_t len = (size_t)n > SIZE - at ? SIZE - at : (size_t)n;
        if (len > 7 && at % 3 == 0) len -= 7; /* not all of it */
        CHECK(memcmp(bytes, value + at, len) == 0);
        CHECK(valkeyrdma_consume(c, (size_t)n + 1) == -EINVAL);
        CHECK(valkeyrdma_consume(c, len) == 0);
        at += len;
    }
    expect(c, "\r\n");
    /* In place, in one piece. */
    const void *bytes;
    send_all(c, "GET large\r\n");
    expect(c, head);
    CHECK(valkeyrdma_peek(c, &bytes, SIZE + 2, 30000) >= SIZE + 2);
    CHECK(memcmp(bytes, value, SIZE) == 0 && valkeyrdma_consume(c, SIZE + 2) == 0);
    CHECK(valkeyrdma_peek(c, &bytes, 65 * 1024 * 1024, 0) == -EMSGSIZE);
    CHECK(valkeyrdma_peek(c, &bytes, 1, 0) == -EAGAIN && !bytes && valkeyrdma_consume(c, 1) == -EINVAL);
    /* By copy, into vectors, and many replies at once. */
    char *copy = malloc(SIZE);
    CHECK(copy);
    send_all(c, "GET large\r\n");
    expect(c, head);
    for (size_t at = 0; at < SIZE;) {
        size_t left = SIZE - at, half = left / 2;
        struct iovec to[2] = {{copy + at, half}, {copy + at + half, left - half}};
        ssize_t n = valkeyrdma_recvv(c, to, 2, 10000);
        CHECK(n > 0);
        at += (size_t)n;
    }
    CHECK(memcmp(copy, value, SIZE) == 0);
    expect(c, "\r\n");
    free(copy);
    free(value);
    valkeyrdma_close(c);
}

/* A sender that is not blocked takes part of it when the queue is full, and goes on as it drains. */
static void check_limits(void) {
    enum { SIZE = 32 * 1024 * 1024 };
    char error[VALKEYRDMA_ERROR_MAX], head[128], *value = make_value(SIZE);
    struct valkeyrdma_options options = {.size = sizeof options, .send_limit = 100000, .data = value};
    struct valkeyrdma *c = valkeyrdma_connect(NULL, host, port, &options, 10000, error, sizeof error);
    CHECK(c && valkeyrdma_data(c) == value);
    snprintf(head, sizeof head, "*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$%d\r\n", SIZE);
    send_all(c, head);
    int waits = 0;
    for (size_t at = 0; at < SIZE;) {
        ssize_t n = valkeyrdma_send(c, value + at, SIZE - at, 0);
        CHECK(n == -EAGAIN || n > 0);
        CHECK(valkeyrdma_queued(c) <= 100000);
        if (n > 0)
            at += (size_t)n;
        else {
            waits++;
            while (!(valkeyrdma_state(c) & VALKEYRDMA_WRITABLE)) {
                struct pollfd wait = {.fd = valkeyrdma_fd(c), .events = POLLIN};
                CHECK(valkeyrdma_context_process(valkeyrdma_context_of(c)) >= 0);
                if (!(valkeyrdma_state(c) & VALKEYRDMA_WRITABLE)) CHECK(poll(&wait, 1, 10000) == 1);
            }
        }
    }
    CHECK(waits > 0);
    send_all(c, "\r\n");
    expect(c, "+OK\r\n");
    send_all(c, "DEL large\r\n");
    expect(c, ":1\r\n");
    free(value);
    valkeyrdma_close(c);
}

/* Many connections in one context, driven by its descriptor. `wait`: by valkeyrdma_context_wait(). */
struct client {
    struct valkeyrdma *c;
    size_t received; /* of the reply that is awaited: its rest may follow, at the end of the receive buffer */
    int left;
    bool open;
};

static void serve(struct client *client, int *busy) {
    static const char pong[] = "+PONG\r\n";
    char reply[sizeof pong];
    if (!client->open) {
        CHECK(valkeyrdma_connect_finish(client->c, 0) == 0);
        client->open = true;
        send_all(client->c, "PING\r\n");
    }
    for (;;) {
        size_t missing = strlen(pong) - client->received;
        ssize_t n = valkeyrdma_recv(client->c, reply, missing + 1, 0);
        if (n == -EAGAIN) return;
        CHECK(n > 0 && (size_t)n <= missing && memcmp(reply, pong + client->received, (size_t)n) == 0);
        if ((size_t)n < missing) {
            client->received += (size_t)n;
            continue;
        }
        client->received = 0;
        if (--client->left == 0)
            (*busy)--;
        else if (client->left > 0)
            send_all(client->c, "PING\r\n");
        return; /* it was all; a later reply is reported again */
    }
}

static double drive(int count, int requests, bool wait, int *polls) {
    char error[VALKEYRDMA_ERROR_MAX];
    struct valkeyrdma_context *context = valkeyrdma_context_new(error, sizeof error);
    struct client *clients = calloc((size_t)count, sizeof *clients);
    CHECK(context && clients);
    for (int i = 0; i < count; i++) {
        struct valkeyrdma_options options = {.size = sizeof options, .data = &clients[i]};
        clients[i].left = requests;
        clients[i].c = valkeyrdma_connect_start(context, host, port, &options, 10000, error, sizeof error);
        CHECK(clients[i].c);
    }
    double began = now();
    for (int busy = count; busy;) {
        struct valkeyrdma *c;
        if (wait)
            CHECK(valkeyrdma_context_wait(context, 10000) == 1);
        else if (valkeyrdma_context_process(context) == 0) {
            struct pollfd descriptor = {.fd = valkeyrdma_context_fd(context), .events = POLLIN};
            CHECK(poll(&descriptor, 1, 10000) == 1);
            (*polls)++;
        }
        while ((c = valkeyrdma_context_next(context))) serve(valkeyrdma_data(c), &busy);
    }
    double took = now() - began;
    for (int i = 0; i < count; i++) valkeyrdma_close(clients[i].c);
    valkeyrdma_context_free(context);
    free(clients);
    return took;
}

static void check_descriptor(void) {
    int polls = 0;
    drive(20, 200, false, &polls);
    CHECK(polls > 0);
    drive(20, 200, true, &polls);
    drive(1, 1000, false, &polls);
    /* More than a receive buffer of replies: some of them are split at its end. */
    CHECK(valkeyrdma_set("receive-buffer", 64 * 1024) == 0);
    drive(2, 30000, true, &polls);
    CHECK(valkeyrdma_set("receive-buffer", 1024 * 1024) == 0);
}

/* --- Threads --- */

static void *ping_thread(void *context) {
    struct valkeyrdma *c = open_in(context);
    for (int i = 0; i < 300; i++) {
        send_all(c, "PING\r\n");
        expect(c, "+PONG\r\n");
    }
    valkeyrdma_close(c);
    return NULL;
}

static void *write_thread(void *c) {
    for (int i = 0; i < 3000; i++) send_all(c, "PING\r\n");
    return NULL;
}

static void check_threads(void) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    char error[VALKEYRDMA_ERROR_MAX];
    struct valkeyrdma_context *shared = valkeyrdma_context_new(error, sizeof error);
    CHECK(shared);
    for (int round = 0; round < 2; round++) { /* contexts of their own, then a common one */
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, ping_thread, round ? shared : NULL) == 0);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    }
    valkeyrdma_context_free(shared);
    /* A reader and a writer on one connection. */
    struct valkeyrdma *c = open_in(NULL);
    CHECK(pthread_create(&threads[0], NULL, write_thread, c) == 0);
    for (int got = 0; got < 3000 * 7;) {
        const void *bytes;
        ssize_t n = valkeyrdma_peek(c, &bytes, 1, 10000);
        CHECK(n > 0);
        for (ssize_t i = 0; i < n; i++) CHECK(((const char *)bytes)[i] == "+PONG\r\n"[(got + i) % 7]);
        CHECK(valkeyrdma_consume(c, (size_t)n) == 0);
        got += (int)n;
    }
    pthread_join(threads[0], NULL);
    valkeyrdma_close(c);
}

/* --- Signals and wake-ups --- */

static void on_alarm(int number) {}

static void *wake_thread(void *context) {
    usleep(50000);
    valkeyrdma_context_wake(context);
    return NULL;
}

static void check_signals(void) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct valkeyrdma *c = open_in(NULL);
    char byte;
    pthread_t thread;
    sigaction(SIGALRM, &action, NULL);
    ualarm(50000, 0);
    CHECK(valkeyrdma_recv(c, &byte, 1, 10000) == -EINTR);
    CHECK(pthread_create(&thread, NULL, wake_thread, valkeyrdma_context_of(c)) == 0);
    CHECK(valkeyrdma_recv(c, &byte, 1, 10000) == -EINTR);
    pthread_join(thread, NULL);
    send_all(c, "PING\r\n");
    expect(c, "+PONG\r\n");
    valkeyrdma_close(c);
}

/* --- Fork --- */

/* The allocator of GCC 12's AddressSanitizer takes no lock at fork: a child hangs in it if another thread of the parent
 * allocated at that moment. */
#ifdef __SANITIZE_ADDRESS__
static const bool allocator_knows_fork = false;
#else
static const bool allocator_knows_fork = true;
#endif

static void wait_for_child(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void check_fork(void) {
    char byte, error[VALKEYRDMA_ERROR_MAX];
    struct valkeyrdma_context *context = valkeyrdma_context_new(error, sizeof error);
    struct valkeyrdma *c = open_in(context), *own = open_in(NULL);
    send_all(c, "SET forked 1\r\n");
    expect(c, "+OK\r\n");
    pthread_t thread; /* holds the lock now and then */
    if (allocator_knows_fork) CHECK(pthread_create(&thread, NULL, ping_thread, context) == 0);
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            CHECK(valkeyrdma_send(c, "PING\r\n", 6, -1) == -EPERM && valkeyrdma_recv(c, &byte, 1, -1) == -EPERM);
            CHECK(valkeyrdma_context_wait(context, -1) == -EPERM && valkeyrdma_state(c) == 0);
            CHECK(!valkeyrdma_connect(context, host, port, NULL, 1000, error, sizeof error) && errno == EPERM);
            valkeyrdma_close(own);
            valkeyrdma_close(c);
            valkeyrdma_context_free(context);
            struct valkeyrdma *mine = open_in(NULL); /* a connection of its own */
            send_all(mine, "GET forked\r\n");
            expect(mine, "$1\r\n1\r\n");
            valkeyrdma_close(mine);
            _exit(0);
        }
        wait_for_child(pid);
        send_all(c, "PING\r\n");
        expect(c, "+PONG\r\n");
        send_all(own, "PING\r\n");
        expect(own, "+PONG\r\n");
    }
    if (allocator_knows_fork) pthread_join(thread, NULL);
    valkeyrdma_close(own);
    valkeyrdma_close(c);
    valkeyrdma_context_free(context);
}

static const struct {
    const char *name;
    void (*run)(void);
} checks[] = {{"blocking", check_blocking}, {"end", check_end},         {"errors", check_errors},
              {"large", check_large},       {"limits", check_limits},   {"descriptor", check_descriptor},
              {"threads", check_threads},   {"signals", check_signals}, {"fork", check_fork}};

/* --- Removal --- */

/* The device is removed when the third connection is established (SOFTRDMA_FAULTS), and is there again at once. */
static int removal(void) {
    char error[VALKEYRDMA_ERROR_MAX], byte;
    struct valkeyrdma_context *context = valkeyrdma_context_new(error, sizeof error);
    CHECK(context);
    struct valkeyrdma *blocking = open_in(NULL), *polled = open_in(context), *seen = NULL;
    for (int i = 0; i < 2; i++) {
        send_all(blocking, "PING\r\n");
        expect(blocking, "+PONG\r\n");
        send_all(polled, "PING\r\n");
        expect(polled, "+PONG\r\n");
    }
    while (valkeyrdma_context_next(context)) continue;
    struct valkeyrdma *third = valkeyrdma_connect(NULL, host, port, NULL, 10000, error, sizeof error);
    CHECK(valkeyrdma_recv(blocking, &byte, 1, 10000) == -ENODEV);
    for (double until = now() + 10; !seen && now() < until; seen = valkeyrdma_context_next(context)) {
        struct pollfd descriptor = {.fd = valkeyrdma_context_fd(context), .events = POLLIN};
        if (valkeyrdma_context_process(context) == 0) poll(&descriptor, 1, 1000);
    }
    CHECK(seen == polled && (valkeyrdma_state(polled) & VALKEYRDMA_ENDED));
    CHECK(valkeyrdma_recv(polled, &byte, 1, 0) == -ENODEV);
    CHECK(valkeyrdma_send(polled, "PING\r\n", 6, 10000) == -ENODEV);
    CHECK(valkeyrdma_error(blocking) == -ENODEV && valkeyrdma_error(polled) == -ENODEV);
    CHECK(strcmp(valkeyrdma_error_text(blocking), valkeyrdma_error_text(polled)) == 0);
    printf("%s\n", valkeyrdma_error_text(polled));
    valkeyrdma_close(third);
    valkeyrdma_close(blocking);
    valkeyrdma_close(polled);
    struct valkeyrdma *anew = open_in(context);
    send_all(anew, "PING\r\n");
    expect(anew, "+PONG\r\n");
    valkeyrdma_close(anew);
    valkeyrdma_context_free(context);
    return 0;
}

/* --- Load --- */

static double deadline;
static int patience_ms;
static atomic_int connected;
static atomic_bool all_connected; /* faults that begin with a certain request do not meet a connection that is made */

static void lost(int error, const char *text) {
    printf("ended %d %s\n", -error, text);
    fflush(stdout);
}

static void *blocking_load(void *unused) {
    struct valkeyrdma *c = open_in(NULL);
    char reply[1200];
    connected++;
    while (!all_connected) usleep(1000);
    for (int i = 0; now() < deadline; i++) {
        char request[1200];
        int size = i % 1000, len = snprintf(request, sizeof request, "ECHO %.*s\r\n", size + 1,
                                            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
        ssize_t n = valkeyrdma_send(c, request, (size_t)len, patience_ms);
        size_t got = 0;
        while (n >= 0 && (got < 2 || memcmp(reply + got - 2, "x\r", 2) != 0)) {
            n = valkeyrdma_recv(c, reply + got, 1, patience_ms);
            if (n == 0) n = -ECONNRESET;
            if (n > 0 && (got += (size_t)n) == sizeof reply) exit(3);
        }
        if (n >= 0) n = valkeyrdma_recv(c, reply, 1, patience_ms);
        if (n <= 0) {
            lost((int)n, valkeyrdma_error_text(c));
            break;
        }
        if (*reply != '\n') exit(3);
    }
    valkeyrdma_close(c);
    return NULL;
}

static void polling_load(int count) {
    char error[VALKEYRDMA_ERROR_MAX], reply[64];
    struct valkeyrdma_context *context = valkeyrdma_context_new(error, sizeof error);
    struct valkeyrdma **all = calloc((size_t)count, sizeof *all);
    CHECK(context && all);
    for (int i = 0; i < count; i++) all[i] = open_in(context);
    for (int i = 0; i < count; i++) send_all(all[i], "PING\r\n");
    all_connected = true;
    printf("running %d\n", (int)getpid());
    fflush(stdout);
    double soon = now() + 0.05;
    for (int open = count; open && now() < deadline;) {
        struct valkeyrdma *c;
        if (now() > soon) { /* one more connection: the device's faults can begin with its events */
            valkeyrdma_close(valkeyrdma_connect(NULL, host, port, NULL, 1000, NULL, 0));
            soon = deadline;
        }
        if (valkeyrdma_context_process(context) == 0) {
            struct pollfd descriptor = {.fd = valkeyrdma_context_fd(context), .events = POLLIN};
            poll(&descriptor, 1, 1000);
        }
        while ((c = valkeyrdma_context_next(context))) {
            ssize_t n;
            while ((n = valkeyrdma_recv(c, reply, sizeof reply, 0)) > 0) {
                if (n != 7 || memcmp(reply, "+PONG\r\n", 7) != 0) exit(3);
                n = valkeyrdma_send(c, "PING\r\n", 6, 0);
                if (n < 0) break;
            }
            if (n == -EAGAIN || valkeyrdma_data(c)) continue;
            lost((int)n, valkeyrdma_error_text(c));
            valkeyrdma_set_data(c, c);
            open--;
        }
    }
    for (int i = 0; i < count; i++) valkeyrdma_close(all[i]);
    valkeyrdma_context_free(context);
    free(all);
}

static int load(int count, int connections, double seconds) {
    pthread_t threads[64];
    if (count > 64) return 2;
    deadline = now() + seconds;
    for (int i = 0; i < count; i++) CHECK(pthread_create(&threads[i], NULL, blocking_load, NULL) == 0);
    while (connected < count) usleep(1000);
    polling_load(connections);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    return 0;
}

static int bench(int connections, int requests) {
    int polls = 0;
    double took;
    if (connections > 1)
        took = drive(connections, requests / connections, true, &polls);
    else {
        struct valkeyrdma *c = open_in(NULL);
        double began = now();
        for (int i = 0; i < requests; i++) {
            CHECK(valkeyrdma_send(c, "PING\r\n", 6, 10000) == 6);
            expect(c, "+PONG\r\n");
        }
        took = now() - began;
        valkeyrdma_close(c);
    }
    printf("%.0f\n", requests / took);
    return 0;
}

/* The server answers each request with a reply that it rewrites (rdma-rewrite --serve). */
static int steady(int requests) {
    static char copy[64 * 1024];
    struct valkeyrdma *c = open_in(NULL);
    int changed = 0;
    for (int i = 0; i < requests; i++) {
        const void *bytes;
        send_all(c, "*1\r\n$4\r\nPING\r\n");
        ssize_t got = valkeyrdma_peek(c, &bytes, 1, 10000);
        if (got <= 0) break;
        size_t len = (size_t)got < sizeof copy ? (size_t)got : sizeof copy;
        memcpy(copy, bytes, len);
        for (double end = now() + 0.00005; now() < end;) changed += memcmp(copy, bytes, len) != 0;
        CHECK(valkeyrdma_consume(c, (size_t)got) == 0);
    }
    valkeyrdma_close(c);
    if (changed) fprintf(stderr, "received bytes have changed\n");
    return changed ? 3 : 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "available") == 0) {
        char error[VALKEYRDMA_ERROR_MAX] = "";
        printf("%d %s\n", valkeyrdma_available(error, sizeof error), error);
        return 0;
    }
    if (argc < 4) return 2;
    host = argv[2];
    port = atoi(argv[3]);
    alarm(300);
    if (strcmp(argv[1], "load") == 0 && argc == 8) {
        patience_ms = atoi(argv[7]);
        return load(atoi(argv[4]), atoi(argv[5]), atof(argv[6]));
    }
    if (strcmp(argv[1], "removal") == 0) return removal();
    if (strcmp(argv[1], "steady") == 0 && argc == 5) return steady(atoi(argv[4]));
    if (strcmp(argv[1], "bench") == 0 && argc == 6) return bench(atoi(argv[4]), atoi(argv[5]));
    bool found = false;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (strcmp(argv[1], "all") != 0 && strcmp(argv[1], checks[i].name) != 0) continue;
        checks[i].run();
        printf("ok %s\n", checks[i].name);
        fflush(stdout);
        found = true;
    }
    return found ? 0 : 2;
}
