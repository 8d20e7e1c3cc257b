/* run.h: the library that valkey-rdma-run preloads into a program.
 *
 * It replaces functions of the C library (calls.c, poll.c, set.c). A call on a descriptor that it does not know goes on
 * to the C library after one load from a table. A TCP connection to a mapped address (mapping.h) becomes a `link`: an
 * RDMA connection of net/rdma, behind the descriptor that the program holds.
 *
 * The descriptor
 *   The program's descriptor stays a real one. While the link connects it is the program's own, unconnected TCP socket.
 *   If RDMA fails, the library connects that socket and forgets the link: the program has a TCP connection, and its
 *   registrations with epoll become the kernel's. If RDMA succeeds, one end of a Unix socket pair takes the place of
 * the socket (dup3); the library keeps the other end, the `side`. dup, fcntl, fork, close-on-exec are thus the
 * kernel's.
 *
 * Fast path
 *   recv, send, poll, epoll_wait … on the descriptor go to the RDMA connection in the caller's thread. No byte passes
 *   through the socket pair, and the kernel is asked for the other descriptors only. All links of the process share one
 *   event loop under one lock (engine.h): a waiting thread runs it.
 *
 * Relay
 *   Where the library cannot see all that happens to a descriptor, it falls back: a service thread copies between the
 *   RDMA connection and the side, and the descriptor is used by plain system calls, by any process. A link becomes a
 *   relay, for good, when
 *     - bytes arrive at the side: something wrote without the library (a raw system call, io_uring, a program after
 *       exec, a process that got the descriptor in a message);
 *     - a forked child uses an inherited descriptor (the child asks for it through a socket), or the program closes it
 *       and another process still has it;
 *     - it is registered in an epoll instance that is itself polled or nested;
 *     - stdio (fdopen), splice, preadv2 or a message with descriptors (SCM_RIGHTS) needs it.
 *
 * Locks
 *   engine_lock() protects everything but the two tables of descriptors, which are read without it to find out that a
 *   descriptor is none of ours. It is never held while a thread waits.
 *
 * Rejected: a service thread for all connections. Each byte is copied through the socket pair and each round trip
 * switches threads twice; 50 connections of one event loop were slower than TCP. Rejected: replacing the descriptor by
 * an eventfd: it cannot be shared with another process, and system calls that are not replaced would do harm. */
#pragma once
#include "net/connection.h"
#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define EXPORTED __attribute__((visibility("default")))

/* --- The C library's functions: real_read() … --- */

#define REAL_FUNCTIONS(X)                                                                                              \
    X(int, connect, (int, const struct sockaddr *, socklen_t))                                                         \
    X(int, socket, (int, int, int))                                                                                    \
    X(ssize_t, read, (int, void *, size_t))                                                                            \
    X(ssize_t, readv, (int, const struct iovec *, int))                                                                \
    X(ssize_t, recv, (int, void *, size_t, int))                                                                       \
    X(ssize_t, recvfrom, (int, void *, size_t, int, struct sockaddr *, socklen_t *))                                   \
    X(ssize_t, recvmsg, (int, struct msghdr *, int))                                                                   \
    X(int, recvmmsg, (int, struct mmsghdr *, unsigned, int, struct timespec *))                                        \
    X(ssize_t, write, (int, const void *, size_t))                                                                     \
    X(ssize_t, writev, (int, const struct iovec *, int))                                                               \
    X(ssize_t, send, (int, const void *, size_t, int))                                                                 \
    X(ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t))                           \
    X(ssize_t, sendmsg, (int, const struct msghdr *, int))                                                             \
    X(int, sendmmsg, (int, struct mmsghdr *, unsigned, int))                                                           \
    X(ssize_t, sendfile, (int, int, off_t *, size_t))                                                                  \
    X(ssize_t, splice, (int, off64_t *, int, off64_t *, size_t, unsigned))                                             \
    X(ssize_t, preadv2, (int, const struct iovec *, int, off_t, int))                                                  \
    X(int, poll, (struct pollfd *, nfds_t, int))                                                                       \
    X(int, ppoll, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *))                                \
    X(int, select, (int, fd_set *, fd_set *, fd_set *, struct timeval *))                                              \
    X(int, pselect, (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *))                    \
    X(int, epoll_create, (int))                                                                                        \
    X(int, epoll_create1, (int))                                                                                       \
    X(int, epoll_ctl, (int, int, int, struct epoll_event *))                                                           \
    X(int, epoll_wait, (int, struct epoll_event *, int, int))                                                          \
    X(int, epoll_pwait, (int, struct epoll_event *, int, int, const sigset_t *))                                       \
    X(int, epoll_pwait2, (int, struct epoll_event *, int, const struct timespec *, const sigset_t *))                  \
    X(int, fcntl, (int, int, ...))                                                                                     \
    X(int, fcntl64, (int, int, ...))                                                                                   \
    X(int, ioctl, (int, unsigned long, ...))                                                                           \
    X(int, getsockopt, (int, int, int, void *, socklen_t *))                                                           \
    X(int, setsockopt, (int, int, int, const void *, socklen_t))                                                       \
    X(int, getpeername, (int, struct sockaddr *, socklen_t *))                                                         \
    X(int, getsockname, (int, struct sockaddr *, socklen_t *))                                                         \
    X(int, shutdown, (int, int))                                                                                       \
    X(int, dup, (int))                                                                                                 \
    X(int, dup2, (int, int))                                                                                           \
    X(int, dup3, (int, int, int))                                                                                      \
    X(int, close, (int))                                                                                               \
    X(int, close_range, (unsigned, unsigned, int))                                                                     \
    X(void, closefrom, (int))                                                                                          \
    X(FILE *, fdopen, (int, const char *))                                                                             \
    X(int, fclose, (FILE *))                                                                                           \
    X(long, syscall, (long, ...))                                                                                      \
    X(void, _exit, (int))
#include <stdio.h>
#define X(type, name, parameters) extern type(*real_##name) parameters;
REAL_FUNCTIONS(X)
#undef X
/* Finds them. The constructor calls it; calls of other libraries' constructors may come earlier. */
void real_find(void);
static inline void real_ready(void) {
    if (__builtin_expect(!real_read, 0)) real_find();
}

/* --- Mappings (mapping.c): read from the environment, see run_main.c --- */

struct mapping {
    struct sockaddr_storage from; /* the address that the program connects to */
    bool any_host;                /* any address with this port */
    char host[64];                /* where the RDMA listener is; "": the address itself */
    int port;
    char text[128];       /* "127.0.0.1:6379", for messages */
    int said;             /* 0: nothing yet; 1: RDMA; 2: TCP */
    uint64_t retry_at_us; /* after a timeout RDMA is not tried before this time */
};
void mappings_read(void);
bool mappings_exist(void);
struct mapping *mapping_find(const struct sockaddr *address, socklen_t len);
bool mapping_required(void);       /* --require */
uint32_t mapping_timeout_ms(void); /* --timeout */
uint32_t mapping_spin_us(void);    /* --spin */
/* A connection of the mapping is RDMA (`reason` NULL), or not, and why. On standard error, and in the status file, when
 * it is not what was said last. */
void mapping_say(struct mapping *mapping, const char *reason);
void say(const char *text); /* one line on standard error and in the status file */

/* --- Links (link.c) --- */

enum link_state { LINK_CONNECTING, LINK_FAILED /* RDMA failed: TCP follows */, LINK_OPEN, LINK_OVER };

struct link {
    struct list_link link;   /* in engine.links */
    struct connection *conn; /* NULL: closed */
    enum link_state state;
    struct mapping *mapping;
    unsigned unanswered;    /* pieces of output less pieces of input; not changed after the output was shut down */
    int error;              /* errno to report once: SO_ERROR, or the next read or write */
    char *reason;           /* LINK_FAILED */
    bool ended;             /* the peer has ended its direction: reads return 0 after the bytes that are there */
    bool reset;             /* with an error, and thus both directions: unlike `error` it is not taken */
    bool no_read, no_write; /* shut down by the program */
    bool nonblocking;       /* O_NONBLOCK of the open file description */
    bool tcp;               /* RDMA has failed, and the socket connects */
    bool told;              /* connect() has returned 0 to the program: a further call gets EISCONN */
    bool relay;             /* the descriptor is used by plain system calls */
    bool inherited;         /* in a forked child: the link is the parent's */
    bool was_full;          /* a write found no space: tell when there is some */
    bool side_full;         /* relay: bytes wait for space in the socket pair */
    int side;               /* our end of the socket pair; -1: none yet */
    int socket;             /* the program's TCP socket, for its options; -1: the descriptor is still it */
    struct event_io side_io;
    struct event_timer half_closed;
    int *fds; /* the descriptors of this process */
    unsigned fd_count, fd_space;
    unsigned users;            /* threads within a call: the struct stays */
    struct link *next_closing; /* link_close_later() */
    struct sockaddr_storage peer, local;
    socklen_t peer_len, local_len;
    int64_t receive_timeout_us, send_timeout_us; /* SO_RCVTIMEO, SO_SNDTIMEO; -1: none */
    struct list registrations;                   /* struct registration in_link */
};

enum { LINK_TABLE = 1 << 20 }; /* descriptors above are never mapped */
extern _Atomic(struct link *) link_table[LINK_TABLE];
extern struct list links;

static inline bool fd_is_link(int fd) {
    return (unsigned)fd < LINK_TABLE && atomic_load_explicit(&link_table[fd], memory_order_relaxed) != NULL;
}
/* A set of descriptors. Any thread, without the lock. */
struct fd_bits {
    unsigned char bytes[LINK_TABLE / 8];
};
static inline bool fd_bits_has(const struct fd_bits *bits, int fd) {
    return (unsigned)fd < LINK_TABLE && __atomic_load_n(&bits->bytes[fd / 8], __ATOMIC_RELAXED) & 1 << fd % 8;
}
static inline void fd_bits_set(struct fd_bits *bits, int fd, bool on) {
    if ((unsigned)fd >= LINK_TABLE) return;
    unsigned char bit = (unsigned char)(1 << fd % 8);
    if (on)
        __atomic_or_fetch(&bits->bytes[fd / 8], bit, __ATOMIC_RELAXED);
    else
        __atomic_and_fetch(&bits->bytes[fd / 8], (unsigned char)~bit, __ATOMIC_RELAXED);
}

/* Takes the lock and returns the link for use of the fast path, one user more; NULL, unlocked: use the C library's
 * function. */
struct link *link_enter(int fd);
/* The same for calls that need the link also while it is a relay (addresses, options, closing). */
struct link *link_enter_any(int fd);
void link_leave(struct link *link); /* unlocks */

/* connect() to a mapped address. 1: not over RDMA, connect the socket; 2: wait for the socket, which is connecting. */
int link_connect(int fd, struct mapping *mapping, const struct sockaddr *address, socklen_t len);
/* connect() again while the first one has not been decided. The same results. */
int link_connect_again(struct link *link, int fd);
void link_forget(struct link *link);        /* the descriptor is its socket, and no link any more */
short link_events(const struct link *link); /* POLLIN, POLLOUT, POLLERR, POLLHUP, POLLRDHUP: what is true now */
ssize_t link_receive(struct link *link, const struct iovec *vector, int count, int flags);
ssize_t link_send(struct link *link, const struct iovec *vector, int count, int flags);
int link_shutdown(struct link *link, int how);
size_t link_readable(const struct link *link);
int link_take_error(struct link *link);
bool link_add_fd(struct link *link, int fd);
/* The number is about to be closed by the kernel. If it is the last one of its link, the link joins the list.
 * links_closed(), after that, ends the connections whose descriptor no other process has. Both without the lock. */
void link_close_later(int fd, struct link **closing);
void links_closed(struct link *closing);
void link_relay(struct link *link); /* from here on plain system calls use the descriptor */
/* At the end of the process: waits for output on its way, also that of connections which were closed before. */
void links_flush(void);
/* Before a fork: waits until no connection is being made, --timeout at most. The child could not share it: it would
 * keep the unconnected socket, which is the program's descriptor until then. */
void links_await_decision(void);
void links_after_fork(void); /* in the child */

/* --- Epoll instances (set.c) --- */

struct poll_set {
    struct list_link link;
    unsigned fds;
    unsigned in_kernel; /* threads that wait there, and not for links */
    bool has_beacon;
    bool native; /* links are relays before they are registered */
    struct list registrations, ready;
    uint64_t asked_us; /* when the kernel was asked last */
};
struct registration {
    struct list_link in_set, in_link, in_ready;
    struct poll_set *set;
    struct link *link;
    int set_fd, fd;
    uint32_t events;
    epoll_data_t data;
    bool spent; /* EPOLLONESHOT */
};
extern _Atomic(struct poll_set *) set_table[LINK_TABLE];
static inline bool fd_is_set(int fd) {
    return (unsigned)fd < LINK_TABLE && atomic_load_explicit(&set_table[fd], memory_order_relaxed) != NULL;
}
void set_created(int fd);
void set_closed(int fd);
void set_duplicated(int fd, int copy);
void set_make_native(int fd);               /* it is polled, or registered in another instance */
void sets_link_changed(struct link *link);  /* its events may be new */
void sets_link_left(struct link *link);     /* the link goes: drop its registrations */
void sets_link_native(struct link *link);   /* its registrations become the kernel's */
void sets_adopt(int fd, struct link *link); /* registrations of the socket before it was connected */
void sets_forget(int fd);                   /* the socket was closed */
void sets_note_socket(int fd);              /* a new TCP socket */
void sets_note_copy(int fd, int copy);      /* of a TCP socket that is not connected yet */
bool sets_has_socket(int fd);               /* whether it is one of these */
/* The next descriptor above `after` of the same TCP socket, which is not connected yet; -1: none. */
int sets_next_copy(int fd, int after);
void sets_after_fork(void); /* in the child */

/* --- The engine (engine.c) --- */

void engine_lock(void);
void engine_unlock(void);
bool engine_locked_here(void); /* by this thread: a signal handler interrupted it */
/* With the lock. 0, or -errno and the reason. */
int engine_start(char *error, size_t error_size);
bool engine_usable(void);   /* false in a forked child whose parent used RDMA */
pid_t engine_process(void); /* the process that the tables belong to */
struct event_loop *engine_loop(void);
void engine_turn(void);
void engine_need_service(int change);      /* links that nobody's call drives: relays */
void engine_wake(const struct link *link); /* its state has changed: threads that wait for it look again */
bool engine_is_own(int fd);                /* one of our descriptors, which the program does not know */
void engine_own(int fd, bool own);
int engine_high(int fd); /* moves a descriptor of ours out of the program's way */

/* False: it is not valid. `us`: microseconds, rounded up, no more than a wait can have; -1: no limit. */
enum { TIMEOUT_SECONDS_MAX = INT32_MAX };
static inline bool timeout_of(const struct timespec *timeout, int64_t *us) {
    *us = -1;
    if (!timeout) return true;
    if (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= 1000000000) return false;
    int64_t seconds = timeout->tv_sec < TIMEOUT_SECONDS_MAX ? timeout->tv_sec : TIMEOUT_SECONDS_MAX;
    *us = seconds * 1000000 + (timeout->tv_nsec + 999) / 1000;
    return true;
}
static inline int64_t timeout_of_socket(const struct timeval *timeout) {
    int64_t us = -1;
    timeout_of(&(struct timespec){.tv_sec = timeout->tv_sec, .tv_nsec = timeout->tv_usec * 1000}, &us);
    return us > 0 ? us : -1;
}

/* A wait, from its beginning. */
struct run_wait {
    uint64_t began_us, deadline_us; /* UINT64_MAX: none */
    bool decided, spun;             /* whether it spins; it does so no more */
};
void wait_begin(struct run_wait *wait, int64_t timeout_us); /* -1: no limit */
/* With the lock, which it releases meanwhile: waits a little or until something has happened. `fds` are waited for as
 * well; their revents are set. Returns 0: look again; -EINTR: a signal; -ETIMEDOUT. `link`: wait for this one only. */
int wait_more(struct run_wait *wait, const struct link *link, struct pollfd *fds, unsigned count, const sigset_t *mask);
void wait_succeeded(const struct run_wait *wait); /* what it waited for has come: learns from how long that took */
/* Whether a call that a signal has interrupted continues: all handlers have SA_RESTART. */
bool signals_restart(void);
int request_relay(const struct link *link); /* in a child: ask the parent */
