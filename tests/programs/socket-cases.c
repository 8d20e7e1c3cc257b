/* socket-cases.c: what programs do with a TCP socket, as cases that end alike over TCP and under valkey-rdma-run.
 *
 *   socket-cases PORT CLOSED-PORT [CASE...]     against a Valkey server on 127.0.0.1; nobody listens on CLOSED-PORT
 *
 * Prints a line for each failed expectation, and at the end "N passed, N failed". The environment variable
 * SOCKET_CASES_LIST=1 prints the names of the cases. */
#include "sockets/cases.h"
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

int port, closed_port;
const char *current;
_Atomic int wrong;
volatile sig_atomic_t signalled;

/* --- Reading and writing --- */

static void blocking(void) {
    int fd = opened();
    for (int i = 0; i < 100; i++) EXPECT(pings(fd));
    errno = 0;
    EXPECT(connect_to(fd, port) < 0 && errno == EISCONN);
    EXPECT(close(fd) == 0);
    EXPECT(read(fd, &fd, 1) < 0 && errno == EBADF);
}

static void nonblocking(void) {
    int fd = connect_nonblocking();
    char byte;
    EXPECT(fcntl(fd, F_GETFL) & O_NONBLOCK);
    EXPECT(read(fd, &byte, 1) < 0 && errno == EAGAIN);
    EXPECT(pings(fd));
    EXPECT(recv(fd, &byte, 1, 0) < 0 && errno == EAGAIN);
    set_nonblocking(fd, false);
    EXPECT(pings(fd));
    int on = 1;
    EXPECT(ioctl(fd, FIONBIO, &on) == 0);
    EXPECT(read(fd, &byte, 1) < 0 && errno == EAGAIN);
    close(fd);
}

static void refused(void) {
    int fd = open_socket(0);
    for (int i = 0; i < 2; i++) EXPECT(connect_to(fd, closed_port) < 0 && errno == ECONNREFUSED);
    EXPECT(connect_to(fd, port) == 0 && pings(fd)); /* the socket can be connected still */
    close(fd);
    fd = open_socket(SOCK_NONBLOCK);
    int result = connect_to(fd, closed_port), error = 0;
    socklen_t len = sizeof error;
    if (result == 0 || errno != EINPROGRESS) {
        EXPECT(result < 0 && errno == ECONNREFUSED);
    } else {
        EXPECT(wait_for(fd, POLLOUT | POLLERR | POLLHUP));
        EXPECT(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNREFUSED);
    }
    close(fd);
}

static void receive_flags(void) {
    int fd = opened(), count = -1;
    char bytes[32];
    EXPECT(recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    put(fd, "PING\r\n");
    EXPECT(wait_for(fd, POLLIN));
    EXPECT(recv(fd, bytes, sizeof bytes, MSG_PEEK) == 7);
    EXPECT(recv(fd, bytes, 3, MSG_PEEK) == 3 && !memcmp(bytes, "+PO", 3));
    EXPECT(ioctl(fd, FIONREAD, &count) == 0 && count == 7);
    EXPECT(got(fd, "+PONG\r\n"));
    EXPECT(ioctl(fd, FIONREAD, &count) == 0 && count == 0);
    put(fd, "PING\r\n");
    usleep(1000);
    put(fd, "PING\r\n");
    EXPECT(recv(fd, bytes, 14, MSG_WAITALL) == 14 && !memcmp(bytes, "+PONG\r\n+PONG\r\n", 14));
    EXPECT(read(fd, bytes, 0) == 0);
    close(fd);
}

static void vectors(void) {
    int fd = opened();
    char a[3], b[4];
    struct iovec out[] = {{"PI", 2}, {"", 0}, {"NG\r", 3}, {"\n", 1}}, in[] = {{a, 3}, {b, 4}};
    EXPECT(writev(fd, out, 4) == 6);
    EXPECT(wait_for(fd, POLLIN));
    EXPECT(readv(fd, in, 2) == 7 && !memcmp(a, "+PO", 3) && !memcmp(b, "NG\r\n", 4));
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 4};
    EXPECT(sendmsg(fd, &message, MSG_NOSIGNAL) == 6);
    struct sockaddr_storage from;
    message = (struct msghdr){.msg_iov = in, .msg_iovlen = 2, .msg_name = &from, .msg_namelen = sizeof from};
    EXPECT(recvmsg(fd, &message, MSG_WAITALL) == 7 && message.msg_flags == 0 && !memcmp(b, "NG\r\n", 4));
    EXPECT(sendto(fd, "PING\r\n", 6, 0, NULL, 0) == 6);
    EXPECT(recvfrom(fd, a, 3, 0, NULL, NULL) == 3 && recvfrom(fd, b, 4, MSG_WAITALL, NULL, NULL) == 4);
    struct mmsghdr two[2] = {{.msg_hdr = {.msg_iov = out, .msg_iovlen = 4}},
                             {.msg_hdr = {.msg_iov = out, .msg_iovlen = 4}}};
    EXPECT(sendmmsg(fd, two, 2, 0) == 2 && two[1].msg_len == 6);
    EXPECT(got(fd, "+PONG\r\n+PONG\r\n"));
    close(fd);
}

static void timeouts(void) {
    int fd = opened();
    char byte;
    struct timeval time = {.tv_usec = 50000};
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    long before = now_ms();
    EXPECT(read(fd, &byte, 1) < 0 && errno == EAGAIN);
    long took = now_ms() - before;
    EXPECT(took >= 45 && took < 3000);
    EXPECT(pings(fd));
    close(fd);
}

static void options(void) {
    int fd = opened(), value = 1;
    socklen_t len = sizeof value;
    struct sockaddr_in there;
    socklen_t there_len = sizeof there;
    EXPECT(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value) == 0);
    value = 0;
    EXPECT(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &len) == 0 && value == 1);
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value) == 0);
    EXPECT(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len) == 0 && value == SOCK_STREAM);
    EXPECT(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &len) == 0 && value == AF_INET);
    EXPECT(getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 && there.sin_family == AF_INET &&
           ntohs(there.sin_port) == port && there_len == sizeof there);
    EXPECT(getsockname(fd, (struct sockaddr *)&there, &there_len) == 0 && there.sin_family == AF_INET &&
           there.sin_port != 0);
    struct tcp_info info;
    len = sizeof info;
    EXPECT(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_state == TCP_ESTABLISHED);
    EXPECT(pings(fd));
    close(fd);
}

/* --- Descriptors and processes --- */

static void duplicates(void) {
    int fd = opened(), copy = dup(fd), high = fcntl(fd, F_DUPFD_CLOEXEC, 100), other = dup(0);
    EXPECT(copy >= 0 && high >= 100);
    EXPECT(put(fd, "PING\r\n") && got(copy, "+PONG\r\n"));
    close(fd);
    EXPECT(pings(copy) && pings(high));
    EXPECT(dup2(copy, other) == other && pings(other));
    close(copy);
    close(high);
    EXPECT(pings(other));
    EXPECT(dup2(0, other) == other);
    errno = 0;
    EXPECT(send(other, "x", 1, 0) < 0 && errno == ENOTSOCK);
    close(other);
    fd = opened(); /* the number is used again */
    EXPECT(pings(fd));
    close(fd);
}

/* A call that fails leaves both descriptors as they were. */
static void failed_duplicates(void) {
    int fd = opened(), unused = dup(0);
    close(unused);
    EXPECT(dup2(unused, fd) < 0 && errno == EBADF && pings(fd));
    EXPECT(dup3(0, fd, 0x4000) < 0 && errno == EINVAL && pings(fd));
    EXPECT(dup3(fd, fd, 0) < 0 && errno == EINVAL && pings(fd));
    close(fd);
}

/* With few descriptors left every one that the program may have is good. */
static void few_descriptors(void) {
    enum { FEW = 200 };
    struct rlimit before, few;
    int fds[FEW], count = 0, on = 1;
    EXPECT(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = before;
    few.rlim_cur = FEW;
    EXPECT(setrlimit(RLIMIT_NOFILE, &few) == 0);
    for (; count < FEW && !wrong && (fds[count] = open_socket(0)) >= 0; count++) {
        EXPECT(connect_to(fds[count], port) == 0);
        EXPECT(setsockopt(fds[count], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    }
    EXPECT(count > FEW / 4);
    for (int i = 0; i < count; i++) EXPECT(pings(fds[i]));
    for (int i = 0; i < count; i++) close(fds[i]);
    EXPECT(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static bool child_is_good(pid_t child) {
    int status = -1;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void fork_child_uses(void) {
    int fd = opened();
    EXPECT(pings(fd));
    pid_t child = fork();
    if (child == 0) _exit(pings(fd) && pings(fd) ? 0 : 1);
    EXPECT(child_is_good(child));
    EXPECT(pings(fd));
    close(fd);
}

static void fork_child_reads_first(void) {
    int fd = opened();
    put(fd, "PING\r\n");
    EXPECT(wait_for(fd, POLLIN));
    pid_t child = fork();
    if (child == 0) _exit(got(fd, "+PONG\r\n") && pings(fd) ? 0 : 1);
    EXPECT(child_is_good(child));
    EXPECT(pings(fd));
    close(fd);
}

/* A child that waits sleeps. */
static void fork_child_polls(void) {
    int fd = opened();
    pid_t child = fork();
    if (child == 0) {
        struct pollfd p = {fd, POLLIN, 0};
        clock_t before = clock();
        if (poll(&p, 1, 300) != 0) _exit(1);
        if (clock() - before > CLOCKS_PER_SEC / 10) _exit(2);
        _exit(put(fd, "PING\r\n") && wait_for(fd, POLLIN) && got(fd, "+PONG\r\n") ? 0 : 3);
    }
    EXPECT(child_is_good(child));
    EXPECT(pings(fd));
    close(fd);
}

/* By name only: children that do not use the descriptor leave the connection to the library. A relay would carry the
 * reply through the kernel's socket. */
static void fork_child_closes(void) {
    int fd = opened();
    char byte;
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            struct sockaddr_in there;
            socklen_t len = sizeof there;
            bool good = getpeername(fd, (struct sockaddr *)&there, &len) == 0 && ntohs(there.sin_port) == port;
            good = good && (i ? close_range(3, ~0U, 0) : close(fd)) == 0 && write(fd, "x", 1) < 0 && errno == EBADF;
            _exit(good ? 0 : 1);
        }
        EXPECT(child_is_good(child));
        EXPECT(put(fd, "PING\r\n") && wait_for(fd, POLLIN));
        EXPECT(syscall(SYS_recvfrom, fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL) < 0 && errno == EAGAIN);
        EXPECT(got(fd, "+PONG\r\n"));
    }
    close(fd);
}

static void fork_parent_closes(void) {
    int fd = opened(), pipes[2];
    EXPECT(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(pipes[1]);
        if (read(pipes[0], &byte, 1) != 0) _exit(2);
        _exit(pings(fd) && pings(fd) ? 0 : 1);
    }
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
    EXPECT(child_is_good(child));
}

/* shutdown() acts on the connection, in whichever process. */
static void fork_parent_shuts_down(void) {
    static const int hows[] = {SHUT_RDWR, SHUT_WR};
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        int fd = opened(), pipes[2];
        EXPECT(pings(fd) && pipe(pipes) == 0);
        pid_t child = fork();
        if (child == 0) {
            char byte;
            close(pipes[1]);
            if (read(pipes[0], &byte, 1) != 1) _exit(2);
            _exit(send(fd, "PING\r\n", 6, MSG_NOSIGNAL) < 0 && errno == EPIPE ? 0 : 1);
        }
        EXPECT(shutdown(fd, hows[i]) == 0 && send(fd, "PING\r\n", 6, MSG_NOSIGNAL) < 0 && errno == EPIPE);
        close(fd);
        close(pipes[0]);
        EXPECT(write(pipes[1], "x", 1) == 1 && child_is_good(child));
        close(pipes[1]);
    }
}

/* O_NONBLOCK belongs to the open file description, which a child shares. */
static void fork_child_sets_nonblocking(void) {
    int fd = opened();
    char byte;
    EXPECT(pings(fd));
    pid_t child = fork();
    if (child == 0) _exit(fcntl(fd, F_SETFL, O_NONBLOCK) == 0 ? 0 : 1);
    EXPECT(child_is_good(child) && fcntl(fd, F_GETFL) & O_NONBLOCK);
    EXPECT(read(fd, &byte, 1) < 0 && errno == EAGAIN);
    close(fd);
}

static void fork_child_connects(void) {
    int fd = opened();
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        int own = open_socket(0);
        _exit(connect_to(own, port) == 0 && pings(own) ? 0 : 1);
    }
    EXPECT(child_is_good(child));
    EXPECT(pings(fd));
    close(fd);
}

static bool connects(int fd) {
    int error = -1;
    socklen_t len = sizeof error;
    return wait_for(fd, POLLOUT) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0;
}

/* A connection that is being made when a child is forked belongs to both. */
static void fork_while_connecting(void) {
    enum { CHILD_USES, CHILD_CLOSES, PARENT_CLOSES, WAYS };
    for (int way = 0; way < WAYS; way++) {
        int fd = open_socket(SOCK_NONBLOCK), pipes[2], result = connect_to(fd, port);
        char byte;
        EXPECT(result == 0 || errno == EINPROGRESS);
        EXPECT(pipe(pipes) == 0);
        pid_t child = fork();
        if (child == 0) {
            close(pipes[1]);
            if (way == CHILD_CLOSES) _exit(close(fd));
            if (way == PARENT_CLOSES && read(pipes[0], &byte, 1) != 0) _exit(2);
            _exit(connects(fd) && pings(fd) && pings(fd) ? 0 : 1);
        }
        if (way == PARENT_CLOSES) close(fd);
        close(pipes[0]);
        close(pipes[1]);
        EXPECT(child_is_good(child));
        if (way == PARENT_CLOSES) continue;
        EXPECT(connects(fd) && pings(fd));
        close(fd);
    }
}

static _Atomic bool enough;
static void *connect_blocking(void *fd) {
    EXPECT(connect_to(*(int *)fd, port) == 0);
    while (!enough) usleep(1000); /* an ended thread that is not joined is a leak to ThreadSanitizer, in the child */
    return NULL;
}
/* The same while another thread waits in connect(). */
static void fork_while_thread_connects(void) {
    for (int i = 0; i < 4; i++) {
        int fd = open_socket(0);
        pthread_t t;
        enough = false;
        pthread_create(&t, NULL, connect_blocking, &fd);
        struct pollfd p = {fd, POLLOUT, 0}; /* an unconnected socket is hung up */
        while (poll(&p, 1, 0) == 1 && p.revents & POLLHUP) usleep(100);
        pid_t child = fork();
        if (child == 0) _exit(i % 2 ? close(fd) : connects(fd) && pings(fd) ? 0 : 1);
        EXPECT(child_is_good(child));
        enough = true;
        pthread_join(t, NULL);
        EXPECT(pings(fd));
        close(fd);
    }
}

static void *connect_often(void *unused) {
    while (!enough) close(opened());
    return NULL;
}
/* Children are forked though there is always a connection that is being made. */
static void fork_while_threads_connect(void) {
    pthread_t t[8];
    enough = false;
    for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, connect_often, NULL);
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        EXPECT(child_is_good(child));
    }
    enough = true;
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
}

static void spawned_program(void) {
    int fd = opened();
    pid_t child = vfork();
    if (child == 0) {
        close(fd);
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    EXPECT(child_is_good(child));
    EXPECT(pings(fd));
    EXPECT(system("exit 0") == 0);
    EXPECT(pings(fd));
    close(fd);
}

/* A program after exec has the descriptor, and writes first. */
static void exec_inherits(void) {
    int fd = opened();
    char text[200];
    snprintf(text, sizeof text, "printf 'PING\\r\\n' >&%d; IFS= read -r line <&%d; [ \"${line%%?}\" = +PONG ]", fd, fd);
    pid_t child = fork();
    if (child == 0) {
        execlp("bash", "bash", "-c", text, (char *)NULL);
        _exit(9);
    }
    EXPECT(child_is_good(child));
    close(fd);
}

static void passed_descriptor(void) {
    int fd = opened(), pair[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } part = {0};
    struct iovec vector = {"x", 1};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &part, .msg_controllen = sizeof part.space};
    part.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&part.head), &fd, sizeof fd);
    EXPECT(sendmsg(pair[0], &message, 0) == 1);
    close(fd);
    char byte;
    vector = (struct iovec){&byte, 1};
    message.msg_controllen = sizeof part.space;
    EXPECT(recvmsg(pair[1], &message, 0) == 1);
    memcpy(&fd, CMSG_DATA(&part.head), sizeof fd);
    EXPECT(pings(fd));
    close(fd);
    close(pair[0]);
    close(pair[1]);
}

static void stdio(void) {
    int fd = opened();
    FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
    char line[32];
    EXPECT(in && out);
    for (int i = 0; i < 10; i++) {
        EXPECT(fputs("PING\r\n", out) >= 0 && fflush(out) == 0);
        EXPECT(fgets(line, sizeof line, in) && strcmp(line, "+PONG\r\n") == 0);
    }
    fclose(in);
    fclose(out);
    fd = opened();
    EXPECT(dprintf(fd, "%s\r\n", "PING") == 6); /* within libc */
    EXPECT(wait_for(fd, POLLIN) && got(fd, "+PONG\r\n"));
    close(fd);
}

static void files(void) {
    int fd = opened();
    FILE *file = tmpfile();
    off_t offset = 2;
    EXPECT(fputs("xxPING\r\nPING\r\n", file) >= 0 && fflush(file) == 0);
    EXPECT(sendfile(fd, fileno(file), &offset, 100) == 12 && offset == 14);
    EXPECT(got(fd, "+PONG\r\n+PONG\r\n"));
    fclose(file);
    close(fd);
}

/* The ways of end_after_write(), in a program of its own. Two of them bypass the functions that can be replaced. */
enum { WRITE_EXIT, WRITE_RETURN, PRINT_CLOSE, PRINT_EXIT, WRITES };

static void write_and_end(int way) {
    int fd = opened();
    FILE *out = way >= PRINT_CLOSE ? fdopen(fd, "w") : NULL;
    if (out)
        EXPECT(fputs("INCR socket-cases\r\n", out) >= 0 && fflush(out) == 0);
    else
        put(fd, "INCR socket-cases\r\n");
    if (way == PRINT_CLOSE) fclose(out);
    if (way == PRINT_CLOSE || way == WRITE_RETURN) exit(wrong ? 1 : 0);
    _exit(wrong ? 1 : 0);
}

/* Output is not lost when the process ends at once. */
static void end_after_write(void) {
    int fd = opened();
    EXPECT(put(fd, "DEL socket-cases\r\n"));
    EXPECT(wait_for(fd, POLLIN));
    close(fd);
    for (int i = 0; i < WRITES; i++) {
        fflush(stdout);
        /* A program of its own, as a child of a process that used RDMA has TCP only. */
        char number[16], way[2] = {(char)('0' + i), 0};
        snprintf(number, sizeof number, "%d", port);
        pid_t child = fork();
        if (child == 0) {
            execl("/proc/self/exe", "socket-cases", number, "--write-and-end", way, (char *)NULL);
            _exit(9);
        }
        EXPECT(child_is_good(child));
    }
    fd = opened();
    bool there = false;
    for (int i = 0; i < 500 && !there; i++) {
        char bytes[64] = {0};
        put(fd, "GET socket-cases\r\n");
        EXPECT(wait_for(fd, POLLIN) && read(fd, bytes, sizeof bytes - 1) > 0);
        there = strncmp(bytes, "$1\r\n4", 5) == 0;
        if (!there) usleep(10000);
    }
    EXPECT(there);
    close(fd);
}

/* --- Much data, and ends --- */

static void large(void) {
    enum { SIZE = 8 * 1024 * 1024 };
    int fd = connect_nonblocking();
    char head[64], *bytes = malloc(SIZE + 64);
    int len = snprintf(head, sizeof head, "*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$%d\r\n", SIZE);
    for (int i = 0; i < SIZE; i++) bytes[i] = (char)('a' + i % 23);
    memcpy(bytes + SIZE, "\r\n", 2);
    bool was_full = false;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    was_full = true; /* a program this slow may never fill the queue */
#endif
    for (int round = 0; round == 0 || (round < 30 && !was_full); round++) {
        size_t done = 0;
        EXPECT(write(fd, head, (size_t)len) == len);
        while (done < SIZE + 2) {
            ssize_t n = send(fd, bytes + done, SIZE + 2 - done, 0);
            if (n > 0) done += (size_t)n;
            if (n < 0 && errno != EAGAIN) break;
            if (n < 0) {
                was_full = true;
                if (!wait_for(fd, POLLOUT)) break;
            }
        }
        EXPECT(done == SIZE + 2);
        EXPECT(got(fd, "+OK\r\n"));
    }
    EXPECT(was_full);
    set_nonblocking(fd, false);
    EXPECT(put(fd, "GET large\r\n"));
    snprintf(head, sizeof head, "$%d\r\n", SIZE);
    EXPECT(got(fd, head));
    memset(bytes, 0, SIZE);
    EXPECT(recv(fd, bytes, SIZE + 2, MSG_WAITALL) == SIZE + 2);
    bool same = true;
    for (int i = 0; i < SIZE; i++) same = same && bytes[i] == (char)('a' + i % 23);
    EXPECT(same);
    EXPECT(put(fd, "DEL large\r\n") && got(fd, ":1\r\n"));
    free(bytes);
    close(fd);
}

static void pipeline(void) {
    enum { COUNT = 20000 };
    int fd = connect_nonblocking(), set = epoll_create1(0);
    struct epoll_event e[1];
    size_t sent = 0, received = 0;
    char bytes[5000];
    EXPECT(control(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLET, 1) == 0);
    while (received < COUNT * 7) {
        if (epoll_wait(set, e, 1, 5000) != 1) break;
        for (;;) {
            bool idle = true;
            if (sent < COUNT * 6) {
                static const char ping[] = "PING\r\nPING\r\nPING\r\nPING\r\n";
                size_t at = sent % 6, left = COUNT * 6 - sent, size = left < 18 ? left : 18;
                ssize_t n = send(fd, ping + at, size, 0);
                if (n > 0) sent += (size_t)n, idle = false;
            }
            ssize_t n = recv(fd, bytes, sizeof bytes, 0);
            if (n > 0) received += (size_t)n, idle = false;
            if (idle) break;
        }
    }
    EXPECT(sent == COUNT * 6 && received == COUNT * 7);
    close(fd);
    close(set);
}

static void half_close(void) {
    int fd = opened();
    char byte;
    put(fd, "PING\r\n");
    EXPECT(wait_for(fd, POLLIN));
    EXPECT(shutdown(fd, SHUT_WR) == 0);
    EXPECT(send(fd, "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
    EXPECT(got(fd, "+PONG\r\n"));
    EXPECT(read(fd, &byte, 1) == 0 && read(fd, &byte, 1) == 0);
    close(fd);
    fd = opened();
    EXPECT(shutdown(fd, SHUT_RDWR) == 0);
    EXPECT(read(fd, &byte, 1) == 0);
    EXPECT(wait_for(fd, POLLHUP));
    close(fd);
}

static void peer_closes(void) {
    int fd = opened();
    char byte;
    EXPECT(put(fd, "QUIT\r\n") && got(fd, "+OK\r\n"));
    EXPECT(read(fd, &byte, 1) == 0 && read(fd, &byte, 1) == 0);
    EXPECT(wait_for(fd, POLLIN));
    close(fd);
    fd = opened();
    struct sigaction action = {.sa_handler = on_signal}, before;
    sigaction(SIGPIPE, &action, &before);
    signalled = 0;
    EXPECT(shutdown(fd, SHUT_WR) == 0);
    EXPECT(send(fd, "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE && signalled == 0);
    EXPECT(write(fd, "x", 1) < 0 && errno == EPIPE && signalled == 1);
    sigaction(SIGPIPE, &before, NULL);
    close(fd);
}

/* By name only, and with SOFTRDMA_FAULTS: the device is removed when the third connection is made, and there again at
 * once. The program sees connections that the peer has reset. */
static void device_removed(void) {
    char byte;
    int error = 0, first = opened(), second = opened(), set = epoll_create1(0);
    socklen_t len = sizeof error;
    struct epoll_event e = {0};
    EXPECT(put(first, "PING\r\n") && got(first, "+PONG\r\n"));
    EXPECT(put(second, "PING\r\n") && got(second, "+PONG\r\n"));
    EXPECT(control(set, EPOLL_CTL_ADD, second, EPOLLIN, 7) == 0);
    close(opened());
    EXPECT(read(first, &byte, 1) < 0 && errno == ECONNRESET);
    EXPECT(read(first, &byte, 1) == 0);
    EXPECT(send(first, "x", 1, MSG_NOSIGNAL) < 0 && (errno == EPIPE || errno == ECONNRESET));
    EXPECT(epoll_wait(set, &e, 1, 10000) == 1 && e.data.u64 == 7 && (e.events & EPOLLERR) && (e.events & EPOLLHUP));
    EXPECT(getsockopt(second, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == ECONNRESET);
    EXPECT(read(second, &byte, 1) == 0);
    close(set);
    close(first);
    close(second);
    first = opened();
    EXPECT(put(first, "PING\r\n") && got(first, "+PONG\r\n"));
    close(first);
}

static void many(void) {
    enum { COUNT = 60 };
    int fds[COUNT], set = epoll_create1(0), left = COUNT;
    struct epoll_event e[16];
    for (int i = 0; i < COUNT; i++) {
        fds[i] = connect_nonblocking();
        EXPECT(control(set, EPOLL_CTL_ADD, fds[i], EPOLLIN, (uint64_t)i) == 0);
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < COUNT; i++) EXPECT(put(fds[i], "PING\r\n"));
        for (left = COUNT; left > 0;) {
            int count = epoll_wait(set, e, 16, 5000);
            if (count <= 0) break;
            for (int i = 0; i < count; i++, left--) EXPECT(got(fds[e[i].data.u64], "+PONG\r\n"));
        }
        EXPECT(left == 0);
    }
    for (int i = 0; i < COUNT; i++) close(fds[i]);
    close(set);
}

#define CASE(name)                                                                                                     \
    { #name, name }
static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    CASE(blocking),
    CASE(nonblocking),
    CASE(refused),
    CASE(receive_flags),
    CASE(vectors),
    CASE(timeouts),
    CASE(options),
    CASE(polling),
    CASE(selecting),
    CASE(epoll_level),
    CASE(epoll_edge),
    CASE(epoll_nested),
    CASE(epoll_nested_connecting),
    CASE(epoll_polled),
    CASE(epoll_before_connect),
    CASE(duplicates),
    CASE(failed_duplicates),
    CASE(few_descriptors),
    CASE(fork_child_uses),
    CASE(fork_child_reads_first),
    CASE(fork_child_polls),
    CASE(fork_parent_closes),
    CASE(fork_parent_shuts_down),
    CASE(fork_child_sets_nonblocking),
    CASE(fork_child_closes),
    CASE(fork_child_connects),
    CASE(fork_while_connecting),
    CASE(fork_while_thread_connects),
    CASE(fork_while_threads_connect),
    CASE(spawned_program),
    CASE(exec_inherits),
    CASE(passed_descriptor),
    CASE(stdio),
    CASE(files),
    CASE(end_after_write),
    CASE(threads),
    CASE(threads_end),
    CASE(reader_and_writer),
    CASE(add_while_waiting),
    CASE(add_to_empty_while_waiting),
    CASE(signals),
    CASE(cancellation),
    CASE(use_while_connecting),
    CASE(block_while_connecting),
    CASE(duplicate_before_connect),
    CASE(timeout_of_relay),
    CASE(plain_shutdown),
    CASE(offset_of_none),
    CASE(passed_by_sendmmsg),
    CASE(passed_relay),
    CASE(spawned_program_keeps),
    CASE(shutdown_of_input),
    CASE(mask_without_waiting),
    CASE(invalid_times),
    CASE(large),
    CASE(pipeline),
    CASE(half_close),
    CASE(peer_closes),
    CASE(many),
    CASE(device_removed),
};

int main(int argc, char **argv) {
    int passed = 0, failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 3) return 2;
    port = atoi(argv[1]);
    if (!strcmp(argv[2], "--write-and-end")) write_and_end(argv[3][0] - '0');
    closed_port = atoi(argv[2]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool by_name_only = cases[i].run == device_removed || cases[i].run == fork_child_closes;
        bool wanted = argc == 3 && !by_name_only;
        for (int a = 3; a < argc; a++) wanted = wanted || !strcmp(argv[a], cases[i].name);
        if (!wanted) continue;
        wrong = 0;
        current = cases[i].name;
        alarm(30); /* a case that hangs ends the program */
        long before = now_ms();
        cases[i].run();
        if (getenv("SOCKET_CASES_LIST")) printf("%s %s %ld ms\n", wrong ? "failed" : "ok", current, now_ms() - before);
        if (wrong)
            failed++;
        else
            passed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
