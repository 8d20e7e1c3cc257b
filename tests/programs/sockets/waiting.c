/* waiting.c: cases of socket-cases that wait: poll, select and epoll, threads and signals. */
#include "cases.h"
#include <pthread.h>
#include <sys/select.h>

/* --- Waiting --- */

void polling(void) {
    int fd = opened(), pipes[2];
    EXPECT(pipe(pipes) == 0);
    struct pollfd p[3] = {{fd, POLLIN, 0}, {pipes[0], POLLIN, 0}, {-1, POLLIN, 0}};
    long before = now_ms();
    EXPECT(poll(p, 3, 30) == 0 && now_ms() - before >= 28);
    EXPECT(poll(p, 1, 0) == 0);
    put(fd, "PING\r\n");
    EXPECT(poll(p, 3, 5000) == 1 && p[0].revents == POLLIN && !p[1].revents);
    EXPECT(write(pipes[1], "x", 1) == 1);
    EXPECT(poll(p, 3, 5000) == 2 && p[1].revents == POLLIN);
    EXPECT(got(fd, "+PONG\r\n"));
    EXPECT(poll(p, 3, 5000) == 1 && p[0].revents == 0);
    p[0].events = POLLIN | POLLOUT;
    struct timespec time = {.tv_sec = 5};
    EXPECT(ppoll(p, 1, &time, NULL) == 1 && p[0].revents == POLLOUT);
    close(pipes[0]);
    close(pipes[1]);
    close(fd);
}

void selecting(void) {
    int fd = opened(), pipes[2];
    EXPECT(pipe(pipes) == 0);
    fd_set in, out;
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(fd, &in);
    FD_SET(pipes[0], &in);
    FD_SET(fd, &out);
    struct timeval time = {.tv_sec = 5};
    int top = (fd > pipes[0] ? fd : pipes[0]) + 1;
    EXPECT(select(top, &in, &out, NULL, &time) == 1 && !FD_ISSET(fd, &in) && FD_ISSET(fd, &out));
    put(fd, "PING\r\n");
    FD_SET(fd, &in);
    FD_SET(pipes[0], &in);
    struct timespec limit = {.tv_sec = 5};
    EXPECT(pselect(top, &in, NULL, NULL, &limit, NULL) == 1 && FD_ISSET(fd, &in) && !FD_ISSET(pipes[0], &in));
    EXPECT(got(fd, "+PONG\r\n"));
    EXPECT(write(pipes[1], "x", 1) == 1);
    FD_SET(fd, &in);
    FD_SET(pipes[0], &in);
    EXPECT(select(top, &in, NULL, NULL, &time) == 1 && !FD_ISSET(fd, &in) && FD_ISSET(pipes[0], &in));
    time = (struct timeval){.tv_usec = 20000};
    FD_ZERO(&in);
    FD_SET(fd, &in);
    EXPECT(select(top, &in, NULL, NULL, &time) == 0);
    close(pipes[0]);
    close(pipes[1]);
    close(fd);
}

void epoll_level(void) {
    int fd = opened(), set = epoll_create1(EPOLL_CLOEXEC), pipes[2];
    struct epoll_event e[4];
    EXPECT(pipe(pipes) == 0);
    EXPECT(control(set, EPOLL_CTL_MOD, fd, EPOLLIN, 1) < 0 && errno == ENOENT);
    EXPECT(control(set, EPOLL_CTL_ADD, fd, EPOLLIN, 1) == 0);
    EXPECT(control(set, EPOLL_CTL_ADD, fd, EPOLLIN, 1) < 0 && errno == EEXIST);
    EXPECT(control(set, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 2) == 0);
    EXPECT(epoll_wait(set, e, 4, 20) == 0);
    put(fd, "PING\r\n");
    EXPECT(epoll_wait(set, e, 4, 5000) == 1 && e[0].data.u64 == 1 && e[0].events == EPOLLIN);
    EXPECT(epoll_wait(set, e, 4, 5000) == 1);
    EXPECT(write(pipes[1], "x", 1) == 1);
    usleep(1000);
    int count = 0, seen = 0;
    for (int i = 0; i < 100 && seen != 3; i++) {
        count = epoll_wait(set, e, 1, 5000);
        if (count == 1) seen |= (int)e[0].data.u64;
    }
    EXPECT(seen == 3);
    EXPECT(got(fd, "+PONG\r\n"));
    EXPECT(epoll_wait(set, e, 4, 5000) == 1 && e[0].data.u64 == 2);
    EXPECT(control(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT, 3) == 0);
    EXPECT(control(set, EPOLL_CTL_DEL, pipes[0], 0, 0) == 0);
    EXPECT(epoll_wait(set, e, 4, 5000) == 1 && e[0].data.u64 == 3 && e[0].events == EPOLLOUT);
    EXPECT(control(set, EPOLL_CTL_DEL, fd, 0, 0) == 0);
    EXPECT(epoll_wait(set, e, 4, 0) == 0);
    EXPECT(control(pipes[0], EPOLL_CTL_ADD, fd, EPOLLIN, 1) < 0 && errno == EINVAL);
    EXPECT(control(set, EPOLL_CTL_ADD, fd, EPOLLIN, 1) == 0);
    close(fd);
    EXPECT(epoll_wait(set, e, 4, 0) == 0);
    close(set);
    close(pipes[0]);
    close(pipes[1]);
}

void epoll_edge(void) {
    int fd = connect_nonblocking(), set = epoll_create1(0);
    struct epoll_event e[4];
    char bytes[64];
    EXPECT(control(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP, 7) == 0);
    EXPECT(epoll_wait(set, e, 4, 5000) == 1 && e[0].events == EPOLLOUT);
    EXPECT(epoll_wait(set, e, 4, 10) == 0);
    for (int i = 0; i < 20; i++) {
        put(fd, "PING\r\n");
        EXPECT(epoll_wait(set, e, 4, 5000) == 1 && e[0].events & EPOLLIN);
        if (i % 2) EXPECT(recv(fd, bytes, 3, 0) == 3); /* what is left raises no event */
        if (i % 2) EXPECT(epoll_wait(set, e, 4, 5) == 0);
        EXPECT(recv(fd, bytes, sizeof bytes, 0) == (i % 2 ? 4 : 7));
        EXPECT(recv(fd, bytes, sizeof bytes, 0) < 0 && errno == EAGAIN);
    }
    EXPECT(control(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 8) == 0);
    put(fd, "PING\r\n");
    EXPECT(epoll_wait(set, e, 4, 5000) == 1 && e[0].data.u64 == 8);
    EXPECT(epoll_wait(set, e, 4, 10) == 0);
    EXPECT(control(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT, 9) == 0);
    EXPECT(epoll_wait(set, e, 4, 5000) == 1 && e[0].data.u64 == 9);
    EXPECT(got(fd, "+PONG\r\n"));
    EXPECT(control(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, 10) == 0);
    put(fd, "QUIT\r\n");
    uint32_t seen = 0;
    for (int i = 0; i < 10 && !(seen & EPOLLRDHUP); i++)
        if (epoll_wait(set, e, 4, 5000) == 1) seen |= e[0].events;
    EXPECT(seen & EPOLLIN && seen & EPOLLRDHUP);
    EXPECT(got(fd, "+OK\r\n") && recv(fd, bytes, 1, 0) == 0);
    close(fd);
    close(set);
}

void epoll_nested(void) {
    int fd = opened(), inner = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event e[4];
    EXPECT(control(inner, EPOLL_CTL_ADD, fd, EPOLLIN, 1) == 0);
    EXPECT(control(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2) == 0);
    EXPECT(epoll_wait(outer, e, 4, 20) == 0);
    for (int i = 0; i < 20; i++) {
        put(fd, "PING\r\n");
        EXPECT(epoll_wait(outer, e, 4, 5000) == 1 && e[0].data.u64 == 2);
        EXPECT(epoll_wait(inner, e, 4, 5000) == 1 && e[0].data.u64 == 1);
        EXPECT(got(fd, "+PONG\r\n"));
        EXPECT(epoll_wait(outer, e, 4, 0) == 0);
    }
    int second = opened();
    EXPECT(control(inner, EPOLL_CTL_ADD, second, EPOLLIN, 3) == 0);
    put(second, "PING\r\n");
    EXPECT(wait_for(outer, POLLIN));
    EXPECT(epoll_wait(inner, e, 4, 5000) == 1 && e[0].data.u64 == 3);
    EXPECT(got(second, "+PONG\r\n"));
    close(second);
    close(fd);
    close(inner);
    close(outer);
}

/* The same with a connection that is still being made when it is registered. */
void epoll_nested_connecting(void) {
    int inner = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event e[4];
    EXPECT(control(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2) == 0);
    for (int i = 0; i < 3; i++) {
        int fd = open_socket(SOCK_NONBLOCK), error = -1;
        socklen_t len = sizeof error;
        int result = connect_to(fd, i < 2 ? port : closed_port);
        bool at_once = result < 0 && errno == ECONNREFUSED;
        EXPECT(result == 0 || errno == EINPROGRESS || (i == 2 && at_once));
        EXPECT(control(inner, EPOLL_CTL_ADD, fd, EPOLLOUT, 1) == 0);
        EXPECT(epoll_wait(outer, e, 4, 5000) == 1 && e[0].data.u64 == 2);
        EXPECT(epoll_wait(inner, e, 4, 5000) == 1 && e[0].data.u64 == 1 && e[0].events & EPOLLOUT);
        EXPECT(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0);
        EXPECT(i < 2 ? error == 0 && pings(fd) : error == ECONNREFUSED || at_once);
        close(fd);
    }
    close(inner);
    close(outer);
}

void epoll_polled(void) {
    int fd = opened(), set = epoll_create1(0);
    struct epoll_event e[4];
    EXPECT(control(set, EPOLL_CTL_ADD, fd, EPOLLIN, 1) == 0);
    struct pollfd p = {set, POLLIN, 0};
    EXPECT(poll(&p, 1, 10) == 0);
    put(fd, "PING\r\n");
    EXPECT(poll(&p, 1, 5000) == 1);
    EXPECT(epoll_wait(set, e, 4, 0) == 1);
    EXPECT(got(fd, "+PONG\r\n") && pings(fd));
    close(fd);
    close(set);
}

void epoll_before_connect(void) {
    int fd = open_socket(SOCK_NONBLOCK), set = epoll_create1(0);
    struct epoll_event e[4];
    EXPECT(control(set, EPOLL_CTL_ADD, fd, EPOLLOUT | EPOLLIN | EPOLLET, 5) == 0);
    epoll_wait(set, e, 4, 0); /* Linux reports an unconnected socket as hung up */
    int result = connect_to(fd, port);
    EXPECT(result == 0 || errno == EINPROGRESS);
    EXPECT(epoll_wait(set, e, 4, 5000) == 1 && e[0].data.u64 == 5 && e[0].events & EPOLLOUT);
    put(fd, "PING\r\n");
    EXPECT(epoll_wait(set, e, 4, 5000) == 1 && e[0].events & EPOLLIN);
    EXPECT(got(fd, "+PONG\r\n"));
    close(fd);
    close(set);
}

/* --- Threads and signals --- */

static void *ping_often(void *unused) {
    int fd = opened();
    for (int i = 0; i < 200; i++) EXPECT(pings(fd));
    close(fd);
    return NULL;
}
void threads(void) {
    pthread_t t[8];
    for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, ping_often, NULL);
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
}

/* Threads that begin and end while others open and close. Afterwards every number is the program's. */
static void *wait_and_ping(void *unused) {
    int fd = opened();
    EXPECT(put(fd, "DEBUG SLEEP 0.001\r\n") && got(fd, "+OK\r\n"));
    close(fd);
    return NULL;
}
void threads_end(void) {
    for (int round = 0; round < 30; round++) {
        pthread_t t[4];
        for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, wait_and_ping, NULL);
        for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    }
    int copies[200], wrongly = 0;
    for (int i = 0; i < 200; i++) copies[i] = fcntl(0, F_DUPFD, 500);
    for (int i = 0; i < 200; i++) wrongly += copies[i] >= 0 && close(copies[i]) != 0;
    EXPECT(wrongly == 0);
}

static void *write_often(void *fd) {
    for (int i = 0; i < 1000; i++) EXPECT(put(*(int *)fd, "PING\r\n"));
    return NULL;
}
void reader_and_writer(void) {
    int fd = opened();
    pthread_t t;
    pthread_create(&t, NULL, write_often, &fd);
    for (int i = 0; i < 1000; i++) EXPECT(got(fd, "+PONG\r\n"));
    pthread_join(t, NULL);
    close(fd);
}

static void *ping_later(void *fd) {
    usleep(50000);
    EXPECT(put(*(int *)fd, "PING\r\n"));
    return NULL;
}
/* A thread that waits in epoll_wait() notices what another one adds and causes. */
void add_while_waiting(void) {
    int fd = opened(), set = epoll_create1(0);
    struct epoll_event e[2];
    EXPECT(control(set, EPOLL_CTL_ADD, fd, EPOLLIN, 1) == 0);
    pthread_t t;
    pthread_create(&t, NULL, ping_later, &fd);
    EXPECT(epoll_wait(set, e, 2, 5000) == 1);
    EXPECT(got(fd, "+PONG\r\n"));
    pthread_join(t, NULL);
    close(fd);
    close(set);
}

/* The same while nothing that is connected is registered: as in programs with one thread for all events. */
static void *connect_and_ping_later(void *set) {
    usleep(50000);
    static int fd;
    fd = opened();
    EXPECT(control(*(int *)set, EPOLL_CTL_ADD, fd, EPOLLIN, 1) == 0);
    usleep(1000);
    EXPECT(put(fd, "PING\r\n"));
    return &fd;
}
static void *wait_for_set(void *set) {
    struct epoll_event e[2];
    EXPECT(epoll_wait(*(int *)set, e, 2, 5000) == 1 && e[0].data.u64 == 1 && e[0].events == EPOLLIN);
    return NULL;
}
void add_to_empty_while_waiting(void) {
    int set = epoll_create1(0), pipes[2];
    struct epoll_event e[2];
    void *fd;
    EXPECT(pipe(pipes) == 0);
    EXPECT(control(set, EPOLL_CTL_ADD, pipes[0], EPOLLIN, 2) == 0);
    for (int i = 0; i < 3; i++) {
        pthread_t t, others[2];
        pthread_create(&t, NULL, connect_and_ping_later, &set);
        for (int j = 0; j < 2; j++) pthread_create(&others[j], NULL, wait_for_set, &set);
        wait_for_set(&set);
        for (int j = 0; j < 2; j++) pthread_join(others[j], NULL);
        pthread_join(t, &fd);
        EXPECT(got(*(int *)fd, "+PONG\r\n"));
        close(*(int *)fd);
        EXPECT(epoll_wait(set, e, 2, 10) == 0);
    }
    EXPECT(write(pipes[1], "x", 1) == 1);
    EXPECT(epoll_wait(set, e, 2, 5000) == 1 && e[0].data.u64 == 2);
    close(pipes[0]);
    close(pipes[1]);
    close(set);
}

static void *signal_later(void *thread) {
    usleep(50000);
    pthread_kill(*(pthread_t *)thread, SIGUSR1);
    return NULL;
}
static void *signal_and_ping(void *arguments) {
    void **both = arguments;
    signal_later(both[0]);
    usleep(50000);
    EXPECT(put(*(int *)both[1], "PING\r\n"));
    return NULL;
}
void signals(void) {
    int fd = opened(), set = epoll_create1(0);
    char byte;
    struct sigaction action = {.sa_handler = on_signal};
    pthread_t self = pthread_self(), t;
    struct epoll_event e[1];
    sigaction(SIGUSR1, &action, NULL);
    signalled = 0;
    pthread_create(&t, NULL, signal_later, &self);
    EXPECT(read(fd, &byte, 1) < 0 && errno == EINTR && signalled == 1);
    pthread_join(t, NULL);
    struct pollfd p = {fd, POLLIN, 0};
    pthread_create(&t, NULL, signal_later, &self);
    EXPECT(poll(&p, 1, 5000) < 0 && errno == EINTR);
    pthread_join(t, NULL);
    EXPECT(control(set, EPOLL_CTL_ADD, fd, EPOLLIN, 1) == 0);
    pthread_create(&t, NULL, signal_later, &self);
    EXPECT(epoll_wait(set, e, 1, 5000) < 0 && errno == EINTR);
    pthread_join(t, NULL);
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, NULL);
    void *both[] = {&self, &fd};
    signalled = 0;
    pthread_create(&t, NULL, signal_and_ping, both);
    EXPECT(got(fd, "+PONG\r\n") && signalled == 1);
    pthread_join(t, NULL);
    /* A blocked signal that is pending ends ppoll() with a mask. */
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    pthread_kill(self, SIGUSR1);
    EXPECT(ppoll(&p, 1, &(struct timespec){.tv_sec = 5}, &before) < 0 && errno == EINTR && signalled == 2);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    signal(SIGUSR1, SIG_DFL);
    EXPECT(pings(fd));
    close(fd);
    close(set);
}

static void *cancelled(void *fd) {
    char byte;
    read(*(int *)fd, &byte, 1);
    return NULL;
}
void cancellation(void) {
    int fd = opened();
    pthread_t t;
    void *result;
    pthread_create(&t, NULL, cancelled, &fd);
    usleep(20000);
    pthread_cancel(t);
    EXPECT(pthread_join(t, &result) == 0 && result == PTHREAD_CANCELED);
    EXPECT(pings(fd));
    close(fd);
}
