/* states.c: cases of socket-cases about connections that are being made, shut down, or used by other means than the
 * functions that valkey-rdma-run replaces. */
#include "cases.h"
#include <spawn.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

extern char **environ;

/* --- While connecting --- */

/* Neither call fails for good while the connection is being made. */
void use_while_connecting(void) {
    char byte;
    int fd = open_socket(SOCK_NONBLOCK), result = connect_to(fd, port);
    EXPECT(result == 0 || errno == EINPROGRESS);
    EXPECT(recv(fd, &byte, 1, 0) < 0 && errno == EAGAIN);
    bool sent = false;
    for (long end = now_ms() + 10000; !sent && now_ms() < end;) {
        sent = send(fd, "PING\r\n", 6, 0) == 6;
        if (!sent && errno != EAGAIN) break;
        if (!sent) wait_for(fd, POLLOUT);
    }
    EXPECT(sent && got(fd, "+PONG\r\n"));
    close(fd);
}

/* On a socket that blocks, calls wait for the connection that a call without waiting, or one that a signal ended, has
 * begun. */
void block_while_connecting(void) {
    for (int way = 0; way < 3; way++) {
        int fd = open_socket(SOCK_NONBLOCK), result = connect_to(fd, port);
        EXPECT(result == 0 || errno == EINPROGRESS);
        set_nonblocking(fd, false);
        if (way == 0) EXPECT(connect_to(fd, port) == 0);
        if (way == 1) EXPECT(connect_to(fd, port) == 0 && connect_to(fd, port) < 0 && errno == EISCONN);
        EXPECT(pings(fd));
        close(fd);
    }
    int fd = open_socket(SOCK_NONBLOCK), result = connect_to(fd, closed_port);
    bool refused = result < 0 && errno == ECONNREFUSED;
    EXPECT(refused || errno == EINPROGRESS);
    set_nonblocking(fd, false);
    if (!refused) EXPECT(connect_to(fd, closed_port) < 0 && errno == ECONNREFUSED);
    close(fd);
}

/* All descriptors of the socket are the connection, and so are its registrations. */
void duplicate_before_connect(void) {
    int fd = open_socket(0), copy = dup(fd), high = fcntl(fd, F_DUPFD_CLOEXEC, 100), set = epoll_create1(0);
    struct epoll_event e[4];
    EXPECT(connect_to(copy, port) == 0);
    EXPECT(pings(fd) && pings(copy) && pings(high));
    close(fd);
    close(copy);
    EXPECT(pings(high));
    close(high);
    fd = open_socket(SOCK_NONBLOCK);
    high = fcntl(fd, F_DUPFD, 100);
    close(fd);
    EXPECT(control(set, EPOLL_CTL_ADD, high, EPOLLIN, 5) == 0);
    int result = connect_to(high, port);
    EXPECT(result == 0 || errno == EINPROGRESS);
    EXPECT(wait_for(high, POLLOUT) && put(high, "PING\r\n"));
    EXPECT(epoll_wait(set, e, 4, 5000) == 1 && e[0].data.u64 == 5 && e[0].events == EPOLLIN);
    EXPECT(got(high, "+PONG\r\n"));
    close(high);
    close(set);
}

/* --- Plain system calls --- */

/* Times that were set before connecting hold in whatever way the descriptor is read. */
void timeout_of_relay(void) {
    int fd = open_socket(0);
    char byte;
    struct timeval time = {.tv_usec = 50000};
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    EXPECT(connect_to(fd, port) == 0);
    FILE *in = fdopen(fd, "r");
    EXPECT(in && read(fd, &byte, 1) < 0 && errno == EAGAIN);
    EXPECT(pings(fd));
    fclose(in);
}

/* A program that shuts its output down by a plain system call also reads so. */
void plain_shutdown(void) {
    int fd = opened();
    char bytes[16];
    EXPECT(put(fd, "PING\r\n") && wait_for(fd, POLLIN));
    EXPECT(syscall(SYS_shutdown, fd, SHUT_WR) == 0);
    EXPECT(syscall(SYS_recvfrom, fd, bytes, sizeof bytes, 0, NULL, NULL) == 7);
    EXPECT(syscall(SYS_recvfrom, fd, bytes, sizeof bytes, 0, NULL, NULL) == 0);
    close(fd);
}

void offset_of_none(void) {
    int fd = opened();
    char bytes[7];
    struct iovec out = {"PING\r\n", 6}, in = {bytes, sizeof bytes};
    EXPECT(pwritev2(fd, &out, 1, -1, 0) == 6);
    close(fd);
    fd = opened();
    EXPECT(put(fd, "PING\r\n") && wait_for(fd, POLLIN));
    EXPECT(preadv2(fd, &in, 1, -1, 0) == 7 && !memcmp(bytes, "+PONG\r\n", 7));
    close(fd);
}

/* --- Descriptors of other processes --- */

union one_descriptor {
    struct cmsghdr head;
    char space[CMSG_SPACE(sizeof(int))];
};

/* Sends the descriptor to ourselves and closes it; returns the one that arrives. */
static int passed(int fd, bool many) {
    int pair[2];
    union one_descriptor part = {0};
    char byte = 'x';
    struct iovec vector = {&byte, 1};
    struct mmsghdr message = {
        .msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = &part, .msg_controllen = sizeof part.space}};
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    part.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&part.head), &fd, sizeof fd);
    EXPECT(many ? sendmmsg(pair[0], &message, 1, 0) == 1 : sendmsg(pair[0], &message.msg_hdr, 0) == 1);
    close(fd);
    fd = -1;
    EXPECT(recvmsg(pair[1], &message.msg_hdr, 0) == 1);
    memcpy(&fd, CMSG_DATA(&part.head), sizeof fd);
    close(pair[0]);
    close(pair[1]);
    return fd;
}

void passed_by_sendmmsg(void) {
    int fd = opened();
    EXPECT(put(fd, "PING\r\n") && wait_for(fd, POLLIN));
    fd = passed(fd, true);
    EXPECT(got(fd, "+PONG\r\n") && pings(fd));
    close(fd);
}

void passed_relay(void) {
    int fd = opened();
    FILE *in = fdopen(dup(fd), "r");
    EXPECT(in && pings(fd));
    fclose(in);
    fd = passed(fd, false);
    EXPECT(pings(fd));
    close(fd);
}

/* A program that was started without fork() keeps the connection that its parent closes. */
void spawned_program_keeps(void) {
    int fd = opened(), pipes[2], status = -1;
    char text[240];
    pid_t child = -1;
    posix_spawn_file_actions_t actions;
    EXPECT(pipe2(pipes, O_CLOEXEC) == 0);
    snprintf(text, sizeof text,
             "read -r go; printf 'PING\\r\\n' >&%d; IFS= read -r line <&%d; [ \"$go${line%%?}\" = go+PONG ]", fd, fd);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[0], 0);
    EXPECT(posix_spawnp(&child, "bash", &actions, NULL, (char *[]){"bash", "-c", text, NULL}, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(fd);
    close(pipes[0]);
    EXPECT(write(pipes[1], "go\n", 3) == 3);
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(pipes[1]);
}

/* --- Shutting down --- */

/* What has arrived is read also after the input was shut down. */
void shutdown_of_input(void) {
    int fd = opened();
    char byte;
    EXPECT(put(fd, "PING\r\n") && wait_for(fd, POLLIN));
    EXPECT(shutdown(fd, SHUT_RD) == 0);
    EXPECT(got(fd, "+PONG\r\n") && read(fd, &byte, 1) == 0);
    close(fd);
}

/* --- Waiting --- */

/* A blocked signal that is pending ends a call with a mask that does not wait. Not with ThreadSanitizer, which runs the
 * handler of a signal later. */
void mask_without_waiting(void) {
#ifndef __SANITIZE_THREAD__
    int fd = opened();
    struct sigaction action = {.sa_handler = on_signal}, old;
    struct pollfd p = {fd, POLLIN, 0};
    struct timespec none = {0};
    sigset_t blocked, before;
    fd_set in;
    sigaction(SIGUSR1, &action, &old);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    signalled = 0;
    raise(SIGUSR1);
    EXPECT(poll(&p, 1, 0) == 0 && signalled == 0);
    EXPECT(ppoll(&p, 1, &none, &before) < 0 && errno == EINTR && signalled == 1);
    raise(SIGUSR1);
    FD_ZERO(&in);
    FD_SET(fd, &in);
    EXPECT(pselect(fd + 1, &in, NULL, NULL, &none, &before) < 0 && errno == EINTR && signalled == 2);
    EXPECT(ppoll(&p, 1, &none, &before) == 0);
    raise(SIGUSR1);
    EXPECT(put(fd, "PING\r\n") && wait_for(fd, POLLIN));
    EXPECT(ppoll(&p, 1, &none, &before) == 1 && signalled == 2); /* what is ready comes first */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    EXPECT(signalled == 3 && got(fd, "+PONG\r\n"));
    sigaction(SIGUSR1, &old, NULL);
    close(fd);
#endif
}

void invalid_times(void) {
    int fd = opened();
    struct pollfd p = {fd, POLLIN, 0};
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    EXPECT(ppoll(&p, 1, &(struct timespec){.tv_sec = -1}, NULL) < 0 && errno == EINVAL);
    EXPECT(ppoll(&p, 1, &(struct timespec){.tv_nsec = 1000000000}, NULL) < 0 && errno == EINVAL);
    EXPECT(pselect(fd + 1, &in, NULL, NULL, &(struct timespec){.tv_nsec = -1}, NULL) < 0 && errno == EINVAL);
    EXPECT(put(fd, "PING\r\n"));
    EXPECT(ppoll(&p, 1, &(struct timespec){.tv_sec = INT64_MAX / 1000000 + 1}, NULL) == 1);
    EXPECT(select(fd + 1, &in, NULL, NULL, &(struct timeval){.tv_sec = INT64_MAX / 1000}) == 1);
    EXPECT(got(fd, "+PONG\r\n"));
    close(fd);
}
