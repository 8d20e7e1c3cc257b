/* cases.h: what the files of socket-cases share: its helpers, and the cases of waiting.c and states.c. */
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(hidden) /* not to be seen by preloaded libraries */
extern int port, closed_port;       /* of the server; of no listener */
extern const char *current;         /* the case that runs */
extern _Atomic int wrong;           /* its failed expectations */
extern volatile sig_atomic_t signalled;

static inline void expect(bool good, const char *what, int line) {
    if (good) return;
    printf("[failed] %s, line %d: %s (errno %d: %s)\n", current, line, what, errno, strerror(errno));
    fflush(stdout);
    wrong++;
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)

static inline struct sockaddr_in address_of(int number) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return to;
}
static inline int open_socket(int flags) {
    return socket(AF_INET, SOCK_STREAM | flags, 0);
}
static inline int connect_to(int fd, int number) {
    struct sockaddr_in to = address_of(number);
    return connect(fd, (struct sockaddr *)&to, sizeof to);
}
static inline int opened(void) {
    int fd = open_socket(0);
    EXPECT(connect_to(fd, port) == 0);
    return fd;
}
static inline bool put(int fd, const char *text) {
    return write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}
/* Reads exactly these bytes. */
static inline bool got(int fd, const char *text) {
    char bytes[256];
    size_t want = strlen(text), have = 0;
    while (have < want) {
        ssize_t n = read(fd, bytes + have, want - have);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd p = {fd, POLLIN, 0};
            if (poll(&p, 1, 5000) == 1) continue;
        }
        if (n <= 0) return false;
        have += (size_t)n;
    }
    return memcmp(bytes, text, want) == 0;
}
static inline bool pings(int fd) {
    return put(fd, "PING\r\n") && got(fd, "+PONG\r\n");
}
static inline bool wait_for(int fd, short events) {
    struct pollfd p = {fd, events, 0};
    return poll(&p, 1, 5000) == 1 && p.revents & events;
}
static inline int connect_nonblocking(void) {
    int fd = open_socket(SOCK_NONBLOCK), error = -1;
    socklen_t len = sizeof error;
    int result = connect_to(fd, port);
    EXPECT(result == 0 || errno == EINPROGRESS);
    EXPECT(wait_for(fd, POLLOUT));
    EXPECT(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0);
    return fd;
}
static inline void set_nonblocking(int fd, bool on) {
    int flags = fcntl(fd, F_GETFL);
    EXPECT(fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0);
}
static inline long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
static inline int control(int set, int operation, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(set, operation, fd, &event);
}

static inline void on_signal(int number) {
    signalled++;
}

/* --- waiting.c --- */

void polling(void);
void selecting(void);
void epoll_level(void);
void epoll_edge(void);
void epoll_nested(void);
void epoll_nested_connecting(void);
void epoll_polled(void);
void epoll_before_connect(void);
void threads(void);
void threads_end(void);
void reader_and_writer(void);
void add_while_waiting(void);
void add_to_empty_while_waiting(void);
void signals(void);
void cancellation(void);

/* --- states.c --- */

void use_while_connecting(void);
void block_while_connecting(void);
void duplicate_before_connect(void);
void timeout_of_relay(void);
void plain_shutdown(void);
void offset_of_none(void);
void passed_by_sendmmsg(void);
void passed_relay(void);
void spawned_program_keeps(void);
void shutdown_of_input(void);
void mask_without_waiting(void);
void invalid_times(void);
#pragma GCC visibility pop
