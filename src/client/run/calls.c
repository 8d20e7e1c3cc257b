/* calls.c: the functions of the C library that the preloaded library replaces, but for waiting (poll.c, set.c).
 *
 * The aliases with underscores are names that glibc's own headers and older programs use; those that end in _chk are
 * what _FORTIFY_SOURCE makes of calls. A call within libc does not come here: stdio is handled in fdopen(), and output
 * that bypasses this library reaches the socket pair, whose link becomes a relay. */
#include "client/run/run.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

#define X(type, name, parameters) type(*real_##name) parameters;
REAL_FUNCTIONS(X)
#undef X

void real_find(void) {
#define X(type, name, parameters) *(void **)&real_##name = dlsym(RTLD_NEXT, #name);
    REAL_FUNCTIONS(X)
#undef X
    if (!real_fcntl64) real_fcntl64 = real_fcntl;
}

static int run_calls_fail(int error) {
    errno = error;
    return -1;
}
/* The result of a function that returns -errno. */
static ssize_t result_of(ssize_t result) {
    return result < 0 ? run_calls_fail((int)-result) : result;
}

/* The number is about to be free, or another file's. links_closed() follows. */
static void closing(int fd, struct link **links_closing) {
    sets_forget(fd);
    set_closed(fd);
    link_close_later(fd, links_closing);
}
/* It was closed without our knowledge. */
static void forget(int fd) {
    struct link *links_closing = NULL;
    closing(fd, &links_closing);
    links_closed(links_closing);
}

/* --- Connecting --- */

EXPORTED int socket(int domain, int type, int protocol) {
    real_ready();
    int fd = real_socket(domain, type, protocol);
    if (fd < 0 || !mappings_exist()) return fd;
    forget(fd); /* the number may have belonged to a descriptor that was closed by other means */
    if ((domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_STREAM) sets_note_socket(fd);
    return fd;
}

static void detect_uring(void) {
    static atomic_bool said;
    if (dlsym(RTLD_DEFAULT, "io_uring_queue_init") && !atomic_exchange(&said, true))
        say("this program uses liburing: connections that it serves by io_uring go through the slow relay");
}

/* The result of link_connect(). */
static int finish_connect(int fd, const struct sockaddr *address, socklen_t len, int result) {
    if (result <= 0) return result < 0 ? run_calls_fail(-result) : 0;
    int connected = real_connect(fd, address, len);
    if (connected == 0 || result == 1) return connected;
    if (errno == EISCONN) return 0;
    return errno == EALREADY ? run_calls_fail(EINPROGRESS) : -1; /* SO_SNDTIMEO */
}

EXPORTED int connect(int fd, const struct sockaddr *address, socklen_t len) {
    real_ready();
    struct mapping *mapping = mapping_find(address, len);
    struct link *link = link_enter_any(fd);
    if (link && link->state == LINK_CONNECTING) {
        int result = link_connect_again(link, fd);
        link_leave(link);
        return finish_connect(fd, address, len, result);
    }
    if (link) {
        int error = EISCONN;
        bool anew = false;
        if (link->error)
            error = link_take_error(link);
        else if (link->state == LINK_OVER && link->side < 0)
            anew = true; /* it has failed, and the program knows */
        else if (!link->told)
            error = 0;
        link->told = true;
        if (anew) link_forget(link);
        link_leave(link);
        if (!anew) return error ? run_calls_fail(error) : 0;
    }
    if (!mapping) return real_connect(fd, address, len);
    detect_uring();
    return finish_connect(fd, address, len, link_connect(fd, mapping, address, len));
}
EXPORTED int __connect(int fd, const struct sockaddr *address, socklen_t len) __attribute__((alias("connect")));

/* --- Input --- */

static ssize_t receive(struct link *link, const struct iovec *vector, int count, int flags) {
    ssize_t result = link_receive(link, vector, count, flags);
    link_leave(link);
    return result;
}

EXPORTED ssize_t recv(int fd, void *buffer, size_t size, int flags) {
    real_ready();
    struct link *link = link_enter(fd);
    if (link) {
        ssize_t result = receive(link, &(struct iovec){buffer, size}, 1, flags);
        if (result != -ENOLINK) return result_of(result);
    }
    return real_recv(fd, buffer, size, flags);
}
EXPORTED ssize_t __recv(int fd, void *buffer, size_t size, int flags) __attribute__((alias("recv")));

EXPORTED ssize_t read(int fd, void *buffer, size_t size) {
    real_ready();
    struct link *link = link_enter(fd);
    if (link) {
        ssize_t result = receive(link, &(struct iovec){buffer, size}, 1, 0);
        if (result != -ENOLINK) return result_of(result);
    }
    return real_read(fd, buffer, size);
}
EXPORTED ssize_t __read(int fd, void *buffer, size_t size) __attribute__((alias("read")));

EXPORTED ssize_t readv(int fd, const struct iovec *vector, int count) {
    real_ready();
    struct link *link = link_enter(fd);
    if (link) {
        ssize_t result = count < 0 || count > 1024 ? -EINVAL : link_receive(link, vector, count, 0);
        link_leave(link);
        if (result != -ENOLINK) return result_of(result);
    }
    return real_readv(fd, vector, count);
}

EXPORTED ssize_t recvfrom(int fd, void *buffer, size_t size, int flags, struct sockaddr *from, socklen_t *len) {
    real_ready();
    struct link *link = link_enter(fd);
    if (link) {
        ssize_t result = receive(link, &(struct iovec){buffer, size}, 1, flags);
        if (result != -ENOLINK) {
            if (result >= 0 && from && len) *len = 0; /* as TCP */
            return result_of(result);
        }
    }
    return real_recvfrom(fd, buffer, size, flags, from, len);
}

EXPORTED ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    real_ready();
    struct link *link = link_enter(fd);
    if (link) {
        ssize_t result = receive(link, message->msg_iov, (int)message->msg_iovlen, flags);
        if (result != -ENOLINK) {
            if (result >= 0) message->msg_namelen = 0, message->msg_controllen = 0, message->msg_flags = 0;
            return result_of(result);
        }
    }
    return real_recvmsg(fd, message, flags);
}

EXPORTED int recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout) {
    real_ready();
    struct link *link = link_enter(fd);
    if (!link) return real_recvmmsg(fd, messages, count, flags, timeout);
    link_leave(link);
    unsigned done = 0;
    for (; done < count; done++) {
        bool waits = done == 0 || !(flags & MSG_WAITFORONE);
        ssize_t got = recvmsg(fd, &messages[done].msg_hdr, (flags & ~MSG_WAITFORONE) | (waits ? 0 : MSG_DONTWAIT));
        if (got < 0) return done ? (int)done : -1;
        messages[done].msg_len = (unsigned)got;
        if (got == 0) return (int)done + 1;
    }
    return (int)done;
}

ssize_t __read_chk(int fd, void *buffer, size_t size, size_t capacity);
EXPORTED ssize_t __read_chk(int fd, void *buffer, size_t size, size_t capacity) {
    if (size > capacity) __builtin_trap();
    return read(fd, buffer, size);
}
ssize_t __recv_chk(int fd, void *buffer, size_t size, size_t capacity, int flags);
EXPORTED ssize_t __recv_chk(int fd, void *buffer, size_t size, size_t capacity, int flags) {
    if (size > capacity) __builtin_trap();
    return recv(fd, buffer, size, flags);
}
ssize_t __recvfrom_chk(int fd, void *buffer, size_t size, size_t capacity, int flags, struct sockaddr *from,
                       socklen_t *len);
EXPORTED ssize_t __recvfrom_chk(int fd, void *buffer, size_t size, size_t capacity, int flags, struct sockaddr *from,
                                socklen_t *len) {
    if (size > capacity) __builtin_trap();
    return recvfrom(fd, buffer, size, flags, from, len);
}

/* --- Output --- */

static ssize_t transmit(struct link *link, const struct iovec *vector, int count, int flags) {
    ssize_t result = link_send(link, vector, count, flags);
    link_leave(link);
    if (result == -EPIPE && !(flags & MSG_NOSIGNAL)) raise(SIGPIPE);
    return result;
}

EXPORTED ssize_t send(int fd, const void *buffer, size_t size, int flags) {
    real_ready();
    struct link *link = link_enter(fd);
    if (link) {
        ssize_t result = transmit(link, &(struct iovec){(void *)(uintptr_t)buffer, size}, 1, flags);
        if (result != -ENOLINK) return result_of(result);
    }
    return real_send(fd, buffer, size, flags);
}
EXPORTED ssize_t __send(int fd, const void *buffer, size_t size, int flags) __attribute__((alias("send")));

EXPORTED ssize_t write(int fd, const void *buffer, size_t size) {
    real_ready();
    struct link *link = link_enter(fd);
    if (link) {
        ssize_t result = transmit(link, &(struct iovec){(void *)(uintptr_t)buffer, size}, 1, 0);
        if (result != -ENOLINK) return result_of(result);
    }
    return real_write(fd, buffer, size);
}
EXPORTED ssize_t __write(int fd, const void *buffer, size_t size) __attribute__((alias("write")));

EXPORTED ssize_t writev(int fd, const struct iovec *vector, int count) {
    real_ready();
    struct link *link = link_enter(fd);
    if (link) {
        if (count < 0 || count > 1024) {
            link_leave(link);
            return run_calls_fail(EINVAL);
        }
        ssize_t result = transmit(link, vector, count, 0);
        if (result != -ENOLINK) return result_of(result);
    }
    return real_writev(fd, vector, count);
}

EXPORTED ssize_t sendto(int fd, const void *buffer, size_t size, int flags, const struct sockaddr *to, socklen_t len) {
    real_ready();
    struct link *link = link_enter(fd);
    if (link) {
        ssize_t result = transmit(link, &(struct iovec){(void *)(uintptr_t)buffer, size}, 1, flags);
        if (result != -ENOLINK) return result_of(result);
    }
    return real_sendto(fd, buffer, size, flags, to, len);
}

static void use_natively(int fd) {
    struct link *link = link_enter(fd);
    if (!link) return;
    link_relay(link);
    link_leave(link);
}

/* Descriptors in the message go to another process, which knows nothing of links. */
static void relay_passed(const struct msghdr *message) {
    if (!message->msg_control || message->msg_controllen < sizeof(struct cmsghdr)) return;
    struct msghdr copy = *message;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&copy); part; part = CMSG_NXTHDR(&copy, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            use_natively(fd);
        }
    }
}

EXPORTED ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    real_ready();
    struct link *link = link_enter(fd);
    if (link) {
        ssize_t result = transmit(link, message->msg_iov, (int)message->msg_iovlen, flags);
        if (result != -ENOLINK) return result_of(result);
    } else
        relay_passed(message);
    return real_sendmsg(fd, message, flags);
}

EXPORTED int sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags) {
    real_ready();
    struct link *link = link_enter(fd);
    if (!link) {
        for (unsigned i = 0; i < count; i++) relay_passed(&messages[i].msg_hdr);
        return real_sendmmsg(fd, messages, count, flags);
    }
    link_leave(link);
    unsigned done = 0;
    for (; done < count; done++) {
        ssize_t sent = sendmsg(fd, &messages[done].msg_hdr, flags);
        if (sent < 0) return done ? (int)done : -1;
        messages[done].msg_len = (unsigned)sent;
    }
    return (int)done;
}

EXPORTED ssize_t sendfile(int out, int in, off_t *offset, size_t count) {
    real_ready();
    struct link *link = link_enter(out);
    if (!link) return real_sendfile(out, in, offset, count);
    link_leave(link);
    char bytes[64 * 1024];
    off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);
    if (at < 0) return -1;
    size_t done = 0;
    while (done < count) {
        ssize_t got = pread(in, bytes, count - done < sizeof bytes ? count - done : sizeof bytes, at);
        ssize_t sent = got > 0 ? write(out, bytes, (size_t)got) : got;
        if (sent < 0 && !done) return -1;
        if (sent <= 0) break;
        done += (size_t)sent;
        at += sent;
        if (sent < got) break;
    }
    if (offset)
        *offset = at;
    else
        lseek(in, at, SEEK_SET);
    return (ssize_t)done;
}
EXPORTED ssize_t sendfile64(int out, int in, off64_t *offset, size_t count) __attribute__((alias("sendfile")));

EXPORTED ssize_t splice(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t len, unsigned flags) {
    real_ready();
    use_natively(in);
    use_natively(out);
    return real_splice(in, in_offset, out, out_offset, len, flags);
}

EXPORTED ssize_t preadv2(int fd, const struct iovec *vector, int count, off_t offset, int flags) {
    real_ready();
    use_natively(fd);
    if (real_preadv2) return real_preadv2(fd, vector, count, offset, flags);
    return run_calls_fail(ENOSYS);
}
EXPORTED ssize_t preadv64v2(int fd, const struct iovec *vector, int count, off64_t offset, int flags)
    __attribute__((alias("preadv2")));

EXPORTED FILE *fdopen(int fd, const char *mode) {
    real_ready();
    use_natively(fd); /* stdio does its I/O within libc */
    return real_fdopen(fd, mode);
}

EXPORTED int fclose(FILE *file) {
    real_ready();
    int fd = file ? fileno(file) : -1;
    struct link *links_closing = NULL;
    if (fd_is_link(fd)) {
        fflush(file);
        closing(fd, &links_closing); /* libc closes it without calling close() */
    }
    int result = real_fclose(file);
    links_closed(links_closing);
    return result;
}

/* --- Options and addresses --- */

static int give_address(const struct sockaddr_storage *from, socklen_t from_len, struct sockaddr *to, socklen_t *len) {
    memcpy(to, from, *len < from_len ? *len : from_len);
    *len = from_len;
    return 0;
}

EXPORTED int getpeername(int fd, struct sockaddr *address, socklen_t *len) {
    real_ready();
    struct link *link = link_enter_any(fd);
    if (!link) return real_getpeername(fd, address, len);
    int result =
        link->state == LINK_OPEN ? give_address(&link->peer, link->peer_len, address, len) : run_calls_fail(ENOTCONN);
    link_leave(link);
    return result;
}

EXPORTED int getsockname(int fd, struct sockaddr *address, socklen_t *len) {
    real_ready();
    struct link *link = link_enter_any(fd);
    if (!link) return real_getsockname(fd, address, len);
    int result = link->state == LINK_OPEN ? give_address(&link->local, link->local_len, address, len)
                                          : real_getsockname(fd, address, len);
    link_leave(link);
    return result;
}

static int give_int(int value, void *to, socklen_t *len) {
    if (*len < sizeof value) return run_calls_fail(EINVAL);
    memcpy(to, &value, *len = sizeof value);
    return 0;
}

EXPORTED int getsockopt(int fd, int level, int name, void *value, socklen_t *len) {
    real_ready();
    struct link *link = link_enter_any(fd);
    if (!link) return real_getsockopt(fd, level, name, value, len);
    int result;
    if (level == SOL_SOCKET && name == SO_ERROR)
        result = give_int(link_take_error(link), value, len);
    else {
        result = real_getsockopt(link->socket >= 0 ? link->socket : fd, level, name, value, len);
        if (result == 0 && level == IPPROTO_TCP && name == TCP_INFO && *len > 0 && link->state == LINK_OPEN)
            *(uint8_t *)value = link->ended ? TCP_CLOSE_WAIT : TCP_ESTABLISHED; /* tcpi_state */
    }
    link_leave(link);
    return result;
}

/* A forked child changes what the open file description has for all processes: its parent stops using its own copy. */
static void share_description(int fd) {
    struct link *link = link_enter(fd);
    if (link) link_leave(link);
}

EXPORTED int setsockopt(int fd, int level, int name, const void *value, socklen_t len) {
    real_ready();
    if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO)) share_description(fd);
    struct link *link = link_enter_any(fd);
    if (!link) return real_setsockopt(fd, level, name, value, len);
    int result = real_setsockopt(link->socket >= 0 ? link->socket : fd, level, name, value, len);
    if (result == 0 && level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO) &&
        len >= sizeof(struct timeval)) {
        struct timeval time;
        memcpy(&time, value, sizeof time);
        *(name == SO_RCVTIMEO ? &link->receive_timeout_us : &link->send_timeout_us) = timeout_of_socket(&time);
        if (link->side >= 0) real_setsockopt(fd, level, name, value, len); /* for a relay */
    }
    link_leave(link);
    return result;
}

EXPORTED int shutdown(int fd, int how) {
    real_ready();
    struct link *link = link_enter(fd);
    if (!link) return real_shutdown(fd, how);
    int result = link_shutdown(link, how);
    link_leave(link);
    return result < 0 ? run_calls_fail(-result) : 0;
}

static void set_nonblocking(int fd, bool on) {
    share_description(fd);
    struct link *link = link_enter_any(fd);
    if (!link) return;
    link->nonblocking = on;
    link_leave(link);
}

/* A child of vfork() shares our memory, but not our descriptors: it must not change the tables. */
static bool is_other_process(void) {
    return getpid() != engine_process();
}

/* Whether copies of the descriptor are tracked, too. */
static bool is_known(int fd) {
    return fd_is_link(fd) || fd_is_set(fd) || sets_has_socket(fd);
}

static void duplicated(int fd, int copy) {
    if (copy < 0 || is_other_process()) return;
    if (sets_has_socket(fd)) sets_note_copy(fd, copy);
    struct link *link = link_enter_any(fd);
    if (link) {
        if (!link_add_fd(link, copy)) link_relay(link);
        link_leave(link);
    }
    if (fd_is_set(fd)) set_duplicated(fd, copy);
}

static int control(int (*real)(int, int, ...), int fd, int command, void *argument) {
    int result = real(fd, command, argument);
    if (result < 0 || !fd_is_link(fd)) {
        if (result >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC) && is_known(fd)) duplicated(fd, result);
        return result;
    }
    if (command == F_SETFL && !is_other_process())
        set_nonblocking(fd, (int)(intptr_t)argument & O_NONBLOCK);
    else if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        duplicated(fd, result);
    else if (command == F_GETFL) /* a socket pair's flags, as the socket's would be */
        result |= O_RDWR;
    return result;
}

EXPORTED int fcntl(int fd, int command, ...) {
    real_ready();
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return control(real_fcntl, fd, command, argument);
}
EXPORTED int fcntl64(int fd, int command, ...) {
    real_ready();
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return control(real_fcntl64, fd, command, argument);
}
int __fcntl(int fd, int command, ...);
EXPORTED int __fcntl(int fd, int command, ...) __attribute__((alias("fcntl")));

EXPORTED int ioctl(int fd, unsigned long request, ...) {
    real_ready();
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    struct link *link = request == FIONREAD || request == SIOCOUTQ ? link_enter(fd) : NULL;
    if (link) {
        if (request == FIONREAD && !link_readable(link)) engine_turn();
        *(int *)argument = (int)(request == FIONREAD ? link_readable(link) : link->conn ? conn_pending(link->conn) : 0);
        link_leave(link);
        return 0;
    }
    int result = real_ioctl(fd, request, argument);
    if (result == 0 && request == FIONBIO && fd_is_link(fd)) set_nonblocking(fd, *(int *)argument != 0);
    return result;
}

/* --- Descriptors --- */

EXPORTED int close(int fd) {
    real_ready();
    if (!mappings_exist() || is_other_process()) return real_close(fd);
    if (engine_is_own(fd) && !engine_locked_here())
        return run_calls_fail(EBADF); /* a program that closes all numbers */
    struct link *links_closing = NULL;
    closing(fd, &links_closing);
    int result = real_close(fd);
    links_closed(links_closing);
    return result;
}
EXPORTED int __close(int fd) __attribute__((alias("close")));

EXPORTED int dup(int fd) {
    real_ready();
    int copy = real_dup(fd);
    if (mappings_exist() && is_known(fd)) duplicated(fd, copy);
    return copy;
}

static int replace(int fd, int copy, int flags, bool with_flags) {
    struct link *links_closing = NULL;
    bool valid = fd != copy && !(flags & ~O_CLOEXEC);
    if (mappings_exist() && valid && !is_other_process()) {
        if (engine_is_own(copy)) return run_calls_fail(EBUSY);
        if (real_fcntl(fd, F_GETFD) >= 0 && copy >= 0) closing(copy, &links_closing);
    }
    int result = with_flags ? real_dup3(fd, copy, flags) : real_dup2(fd, copy);
    links_closed(links_closing);
    if (result >= 0 && fd != copy && mappings_exist() && is_known(fd)) duplicated(fd, copy);
    return result;
}
EXPORTED int dup2(int fd, int copy) {
    real_ready();
    return replace(fd, copy, 0, false);
}
EXPORTED int __dup2(int fd, int copy) __attribute__((alias("dup2"), leaf, nothrow));
EXPORTED int dup3(int fd, int copy, int flags) {
    real_ready();
    return replace(fd, copy, flags, true);
}

/* The kernel closes all but our own descriptors. */
EXPORTED int close_range(unsigned first, unsigned last, int flags) {
    real_ready();
    if (!mappings_exist() || is_other_process() || flags & CLOSE_RANGE_CLOEXEC || first > last)
        return real_close_range ? real_close_range(first, last, flags) : run_calls_fail(ENOSYS);
    unsigned most = last < LINK_TABLE ? last : LINK_TABLE - 1, begin = first;
    struct link *links_closing = NULL;
    int result = 0;
    for (unsigned fd = first; fd <= most && result == 0; fd++) {
        if (engine_is_own((int)fd)) {
            if (fd > begin) result = real_close_range(begin, fd - 1, flags);
            begin = fd + 1;
        } else
            closing((int)fd, &links_closing);
    }
    if (result == 0 && begin <= last) result = real_close_range(begin, last, flags);
    links_closed(links_closing);
    return result;
}
EXPORTED void closefrom(int first) {
    close_range(first < 0 ? 0 : (unsigned)first, ~0U, 0);
}

/* --- Raw system calls through libc, and the end --- */

EXPORTED long syscall(long number, ...) {
    real_ready();
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    switch (number) {
    case SYS_close: return close((int)a[0]); /* libuv */
    case SYS_read: return read((int)a[0], (void *)a[1], (size_t)a[2]);
    case SYS_write: return write((int)a[0], (void *)a[1], (size_t)a[2]);
    case SYS_close_range: return close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
    case SYS_io_uring_setup: {
        static atomic_bool said;
        if (mappings_exist() && !atomic_exchange(&said, true))
            say("this program uses io_uring: connections that it serves by it go through the slow relay");
        break;
    }
    }
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

EXPORTED void _exit(int status) {
    real_ready();
    if (!is_other_process()) links_flush();
    real__exit(status);
    __builtin_unreachable();
}
EXPORTED void _Exit(int status) __attribute__((alias("_exit"), noreturn));
