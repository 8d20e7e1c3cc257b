/* link.c: TCP connections that are RDMA connections. See run.h.
 *
 * Ends
 *   The peer's orderly end reads as with TCP: the bytes that arrived before, then 0. A failure is reported once, as
 *   ECONNRESET or ETIMEDOUT, by whatever asks first: a read, a write or SO_ERROR.
 *   RDMA has no half-closed connections. shutdown(SHUT_WR) sends what was written and refuses further output; the
 *   connection is closed when the peer closes it, or when HALF_CLOSED_US have passed without input. A server closes a
 *   TCP connection as soon as it reads its end, so a program that expects no reply shall not wait long: if input has
 *   come as often as output was written, ANSWERED_US without input are enough. The program then reads the end.
 *
 * Input
 *   The transport stops at RECEIVE_LIMIT bytes that the program has not read, so that a server notices a client that
 *   does not read, and its limits act.
 *
 * Output
 *   A write is copied into the connection's send memory and posted at once. More than SEND_LIMIT bytes that the peer
 *   does not take are refused: the descriptor is then not writable. */
#include "client/run/run.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "net/rdma/rdma.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

enum { RECEIVE_LIMIT = 4 * 1024 * 1024, SEND_LIMIT = 1024 * 1024 };
enum { HALF_CLOSED_US = 1000 * 1000, ANSWERED_US = 50 * 1000, FLUSH_US = 2000 * 1000 };

_Atomic(struct link *) link_table[LINK_TABLE];
struct list links = LIST_INIT(links);

static void close_connection(struct link *link);
static void pump(struct link *link);
static void side_ready(struct event_io *io, int mask);

/* --- Life --- */

static void close_socket(struct link *link) {
    if (link->socket < 0) return;
    engine_own(link->socket, false);
    real_close(link->socket);
    link->socket = -1;
}

static void free_if_unused(struct link *link) {
    if (link->fd_count || link->users || link->conn || link->side >= 0) return;
    close_socket(link);
    if (engine_loop() && !link->inherited) event_timer_cancel(engine_loop(), &link->half_closed);
    if (link->relay && !link->inherited) engine_need_service(-1);
    sets_link_left(link);
    list_remove(&links, &link->link);
    mem_free(link->reason);
    mem_free(link->fds);
    mem_free(link);
}

bool link_add_fd(struct link *link, int fd) {
    if ((unsigned)fd >= LINK_TABLE) return false;
    mem_grow(link->fds, link->fd_count, link->fd_space, 2);
    link->fds[link->fd_count++] = fd;
    atomic_store(&link_table[fd], link);
    return true;
}

static void close_side(struct link *link) {
    if (link->side < 0) return;
    if (!link->inherited) event_io_remove(engine_loop(), &link->side_io);
    engine_own(link->side, false);
    real_close(link->side);
    link->side = -1;
}

static ssize_t peek_side(const struct link *link) {
    char byte;
    return real_recv(link->side, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
}
/* Whether a process can still use the descriptor, or has left bytes that are not read yet. */
static bool is_used_elsewhere(const struct link *link) {
    struct pollfd side = {.fd = link->side};
    return real_poll(&side, 1, 0) != 1 || !(side.revents & POLLHUP) || peek_side(link) != 0;
}

static void remove_fd(struct link *link, int fd) {
    for (unsigned i = 0; i < link->fd_count; i++)
        if (link->fds[i] == fd) {
            link->fds[i] = link->fds[--link->fd_count];
            break;
        }
    atomic_store(&link_table[fd], NULL);
    if (link->fd_count) return;
    sets_link_left(link);
    if (!link->inherited) engine_wake(link);
}

void link_close_later(int fd, struct link **closing) {
    struct link *link = link_enter_any(fd);
    if (!link) return;
    remove_fd(link, fd);
    if (!link->fd_count) {
        link->users++;
        link->next_closing = *closing;
        *closing = link;
    }
    link_leave(link);
}

void links_closed(struct link *closing) {
    int error = errno;
    while (closing) {
        struct link *link = closing;
        closing = link->next_closing;
        engine_lock();
        bool used = !link->inherited && link->side >= 0 && is_used_elsewhere(link);
        if (used)
            link_relay(link); /* side_ready() notices when nothing is left */
        else if (!link->inherited) {
            close_connection(link);
            close_side(link);
        }
        link_leave(link);
    }
    errno = error;
}

void link_forget(struct link *link) {
    sets_link_native(link);
    while (link->fd_count) atomic_store(&link_table[link->fds[--link->fd_count]], NULL);
    engine_wake(link);
    free_if_unused(link);
}

static struct link *run_link_enter(int fd, bool any) {
    if (!fd_is_link(fd) || engine_locked_here()) return NULL;
    engine_lock();
    struct link *link = atomic_load_explicit(&link_table[fd], memory_order_relaxed);
    if (link && link->inherited && !link->relay && !any) {
        /* From now on by plain system calls, once the parent has heard. A child that only closes it, or asks for an
         * address, leaves the parent its fast path. */
        link->relay = true;
        request_relay(link);
        sets_link_native(link);
    }
    if (!link || (link->relay && !any)) {
        engine_unlock();
        return NULL;
    }
    link->users++;
    return link;
}
struct link *link_enter(int fd) {
    return run_link_enter(fd, false);
}
struct link *link_enter_any(int fd) {
    return run_link_enter(fd, true);
}
void link_leave(struct link *link) {
    link->users--;
    free_if_unused(link);
    engine_unlock();
}

/* --- What is true of a link --- */

static size_t space(const struct link *link) {
    size_t pending = link->conn ? conn_pending(link->conn) : 0;
    return pending < SEND_LIMIT ? SEND_LIMIT - pending : 0;
}

size_t link_readable(const struct link *link) {
    return link->conn ? link->conn->in_len : 0; /* also after the input was shut down */
}

short link_events(const struct link *link) {
    if (link->state <= LINK_FAILED) return 0;
    short events = 0;
    if (link->state == LINK_OPEN) {
        if (link->ended || link->no_read) events |= POLLIN | POLLRDHUP;
        if (link_readable(link)) events |= POLLIN;
        if (link->ended || (link->conn && space(link) > 0)) events |= POLLOUT;
        if (link->no_read && link->no_write) events |= POLLHUP | POLLOUT;
        if (link->ended && (link->no_write || link->reset)) events |= POLLHUP | POLLOUT;
    } else
        events = POLLIN | POLLOUT | POLLHUP | POLLRDHUP;
    if (link->error) events |= POLLERR | POLLIN | POLLOUT;
    return events;
}

int link_take_error(struct link *link) {
    int error = link->error;
    link->error = 0;
    return error;
}

static void run_link_changed(struct link *link) {
    sets_link_changed(link);
    engine_wake(link);
    if (link->relay) pump(link);
}

/* --- Connecting --- */

static int64_t timeout_option(int fd, int name) {
    struct timeval time = {0};
    socklen_t len = sizeof time;
    return real_getsockopt(fd, SOL_SOCKET, name, &time, &len) < 0 ? -1 : timeout_of_socket(&time);
}
static void set_timeout(int fd, int name, int64_t us) {
    struct timeval time = {.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    if (us > 0) real_setsockopt(fd, SOL_SOCKET, name, &time, sizeof time);
}

/* One end of a socket pair takes the place of the TCP socket. On failure nothing has changed. */
static int take_descriptor(struct link *link) {
    int pair[2], error = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) return -errno;
    if (link->nonblocking) real_fcntl(pair[0], F_SETFL, O_NONBLOCK);
    set_timeout(pair[0], SO_RCVTIMEO, link->receive_timeout_us);
    set_timeout(pair[0], SO_SNDTIMEO, link->send_timeout_us);
    real_fcntl(pair[1], F_SETFL, O_NONBLOCK);
    link->side = engine_high(pair[1]);
    link->socket = real_fcntl(link->fds[0], F_DUPFD_CLOEXEC, 3);
    if (link->socket < 0) error = errno;
    link->socket = engine_high(link->socket);
    if (!error) error = -event_io_set(engine_loop(), &link->side_io, link->side, EVENT_READ, side_ready);
    for (unsigned i = 0; i < link->fd_count && !error; i++) {
        int flags = real_fcntl(link->fds[i], F_GETFD);
        real_dup3(pair[0], link->fds[i], flags > 0 && flags & FD_CLOEXEC ? O_CLOEXEC : 0);
    }
    real_close(pair[0]);
    if (!error) return 0;
    close_side(link);
    close_socket(link);
    return -error;
}

static void to_sockaddr(const struct address *from, struct sockaddr_storage *to, socklen_t *len, sa_family_t family) {
    struct addrinfo *found;
    if (address_resolve(from->host, from->port, AI_NUMERICHOST, &found) != 0) return;
    if (family == AF_INET6 && found->ai_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)found->ai_addr;
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = v4->sin_port};
        v6.sin6_addr.s6_addr[10] = v6.sin6_addr.s6_addr[11] = 0xff;
        memcpy(v6.sin6_addr.s6_addr + 12, &v4->sin_addr, 4);
        memcpy(to, &v6, *len = sizeof v6);
    } else
        memcpy(to, found->ai_addr, *len = found->ai_addrlen);
    freeaddrinfo(found);
}

static void on_failed(struct link *link, int error, const char *text);

static void run_link_on_connected(struct connection *conn) {
    struct link *link = conn->owner;
    struct address address;
    memset(&link->local, 0, sizeof link->local);
    link->local.ss_family = link->peer.ss_family;
    link->local_len = link->peer_len;
    if (conn_address(conn, false, &address))
        to_sockaddr(&address, &link->local, &link->local_len, link->peer.ss_family);
    int result = link->fd_count ? take_descriptor(link) : 0; /* none: it is being closed */
    if (result < 0) {
        on_failed(link, -result, strerror(-result));
        return;
    }
    link->state = LINK_OPEN;
    mapping_say(link->mapping, NULL);
    run_link_changed(link);
}

/* RDMA has failed: the program's socket is connected instead, or begins to be. So it is never seen unconnected, by no
 * thread and no child, after connect() was called. */
static void fall_back(struct link *link) {
    int fd = link->fds[0], flags = real_fcntl(fd, F_GETFL), result = -1, error;
    if (mapping_required()) {
        error = link->error == ETIMEDOUT ? ETIMEDOUT : ECONNREFUSED;
    } else {
        if (!link->nonblocking) real_fcntl(fd, F_SETFL, flags | O_NONBLOCK);
        result = real_connect(fd, (struct sockaddr *)&link->peer, link->peer_len);
        error = result < 0 ? errno : 0;
        if (!link->nonblocking) real_fcntl(fd, F_SETFL, flags);
    }
    link->error = error;
    if (error && error != EINPROGRESS) {
        link->state = LINK_OVER;
        run_link_changed(link);
    } else {
        link->tcp = true;
        link_forget(link);
    }
}

static void on_failed(struct link *link, int error, const char *text) {
    link->state = LINK_FAILED;
    link->error = error ? error : ECONNREFUSED;
    mem_free(link->reason);
    link->reason = mem_strdup(text && *text ? text : strerror(link->error));
    if (error == ETIMEDOUT) link->mapping->retry_at_us = clock_monotonic_us() + 30 * 1000 * 1000;
    mapping_say(link->mapping, link->reason);
    close_connection(link);
    link->users++;
    if (link->fd_count) fall_back(link);
    engine_wake(link);
    link->users--;
    free_if_unused(link);
}

static int error_like_tcp(int error) {
    return error == 0 || error == ETIMEDOUT ? error : ECONNRESET;
}

static void run_link_on_closed(struct connection *conn) {
    struct link *link = conn->owner;
    if (link->state == LINK_CONNECTING) {
        on_failed(link, conn->error, conn_error_text(conn));
        return;
    }
    link->ended = true;
    link->reset = conn->error != 0;
    if (!link->error) link->error = error_like_tcp(conn->error);
    if (!conn->in_len) close_connection(link);
    run_link_changed(link);
}

static uint64_t half_closed_long_enough(struct event_timer *timer) {
    struct link *link = container_of(timer, struct link, half_closed);
    link->ended = true;
    close_connection(link);
    run_link_changed(link);
    return 0;
}

static void await_end(struct link *link) {
    uint64_t patience_us = link->unanswered ? HALF_CLOSED_US : ANSWERED_US;
    if (!link->ended) event_timer_set(engine_loop(), &link->half_closed, patience_us, half_closed_long_enough);
}

static void on_readable(struct connection *conn) {
    struct link *link = conn->owner;
    if (link->no_write)
        await_end(link);
    else if (link->unanswered)
        link->unanswered--;
    run_link_changed(link);
}
static void on_drained(struct connection *conn) {
    struct link *link = conn->owner;
    if (!link->was_full && !link->relay) return;
    link->was_full = false;
    run_link_changed(link);
}

static const struct connection_events events = {
    .connected = run_link_on_connected, .readable = on_readable, .drained = on_drained, .closed = run_link_on_closed};

static void close_connection(struct link *link) {
    struct connection *conn = link->conn;
    link->conn = NULL;
    if (conn && !link->inherited) conn_close(conn);
}

static unsigned forks; /* that wait: no connection begins meanwhile, or they might wait for ever */

static bool a_fork_waits(void) {
    return forks > 0;
}
static bool any_is_connecting(void) {
    list_each_entry(&links, const struct link, link, link)
        if (link->state == LINK_CONNECTING && link->fd_count) return true;
    return false;
}
/* A signal does not end it. */
static void wait_while(bool (*holds)(void)) {
    struct run_wait wait;
    wait_begin(&wait, -1);
    while (holds()) {
        engine_turn();
        if (holds()) wait_more(&wait, NULL, NULL, 0, NULL);
    }
}

/* The result of connect(): waits if the socket blocks. */
static int await_decision(struct link *link, int fd) {
    bool blocking = !link->nonblocking;
    struct run_wait wait;
    wait_begin(&wait, blocking ? link->send_timeout_us : 0);
    int result = 0;
    engine_turn();
    while (blocking && link->state == LINK_CONNECTING) {
        result = wait_more(&wait, link, NULL, 0, NULL);
        if (result == -ETIMEDOUT || (result == -EINTR && !signals_restart())) break;
        result = 0;
        engine_turn();
    }
    if (!link->fd_count || atomic_load(&link_table[fd]) != link) {
        /* TCP is connecting, or the descriptor was closed. */
        result = blocking && link->tcp ? 2 : -EINPROGRESS;
    } else if (link->state == LINK_OVER) {
        result = link->error ? -link_take_error(link) : -ECONNREFUSED;
        link_forget(link);
    } else if (result == -ETIMEDOUT || !blocking) {
        result = -EINPROGRESS; /* also if it is open, as with a socket: the program waits for the event */
    } else if (link->state == LINK_OPEN) {
        link->told = true;
    }
    return result;
}

int link_connect(int fd, struct mapping *mapping, const struct sockaddr *address, socklen_t len) {
    char error[300];
    int kind;
    socklen_t kind_len = sizeof kind;
    if ((unsigned)fd >= LINK_TABLE || len > sizeof(struct sockaddr_storage)) return 1;
    if (real_getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &kind_len) < 0 || kind != SOCK_STREAM) return 1;
    struct sockaddr_storage there;
    socklen_t there_len = sizeof there;
    if (real_getpeername(fd, (struct sockaddr *)&there, &there_len) == 0) return 1; /* EISCONN */
    if (engine_locked_here()) return 1;
    engine_lock();
    if (a_fork_waits()) wait_while(a_fork_waits);
    int result = mapping->retry_at_us > clock_monotonic_us() ? -ETIMEDOUT : engine_start(error, sizeof error);
    if (result < 0) {
        bool paused = mapping->retry_at_us > clock_monotonic_us();
        if (!paused) mapping_say(mapping, error);
        engine_unlock();
        if (!mapping_required()) return 1;
        return paused ? -ETIMEDOUT : -ECONNREFUSED;
    }
    struct address to = {.port = mapping->port};
    address_from(address, &to);
    struct link *link = mem_calloc(1, sizeof *link);
    link->side = link->socket = link->side_io.fd = -1;
    link->mapping = mapping;
    link->nonblocking = real_fcntl(fd, F_GETFL) & O_NONBLOCK;
    link->receive_timeout_us = timeout_option(fd, SO_RCVTIMEO);
    link->send_timeout_us = timeout_option(fd, SO_SNDTIMEO);
    memcpy(&link->peer, address, link->peer_len = len);
    list_init(&link->registrations);
    list_append(&links, &link->link);
    for (int copy = fd, next; copy >= 0; copy = next) {
        next = sets_next_copy(fd, copy == fd ? -1 : copy);
        link_add_fd(link, copy);
        sets_adopt(copy, link);
    }
    link->users++;
    const char *host = mapping->host[0] ? mapping->host : to.host;
    if (strncmp(host, "::ffff:", 7) == 0 && strchr(host, '.')) host += 7;
    link->conn = conn_connect(
        &transport_rdma, engine_loop(),
        &(struct connect_options){
            .host = host, .port = mapping->port, .timeout_ms = mapping_timeout_ms(), .events = &events, .owner = link});
    conn_set_in_limit(link->conn, RECEIVE_LIMIT);
    link->conn->wants_drained = true;
    link->conn->takes_later = true;
    result = await_decision(link, fd);
    link_leave(link);
    return result;
}

int link_connect_again(struct link *link, int fd) {
    return link->nonblocking ? -EALREADY : await_decision(link, fd);
}

/* --- Input --- */

static void after_input(struct link *link) {
    if (link->ended && link->conn && !link->conn->in_len) close_connection(link);
}

/* What there is, without waiting: a count, 0 at the end, or -errno. */
static ssize_t run_link_take(struct link *link, const struct iovec *vector, int count, size_t skip, int flags) {
    if (link->state <= LINK_FAILED) return -EAGAIN;
    if (!link_readable(link)) {
        if (link->no_read) return 0;
        if (link->error) {
            link->ended = true;
            return -link_take_error(link);
        }
        return link->ended || link->state == LINK_OVER ? 0 : -EAGAIN;
    }
    struct slice in = conn_peek(link->conn);
    size_t done = 0;
    for (int i = 0; i < count && done < in.len; i++) {
        if (skip >= vector[i].iov_len) {
            skip -= vector[i].iov_len;
            continue;
        }
        size_t len = vector[i].iov_len - skip;
        if (len > in.len - done) len = in.len - done;
        if (!(flags & MSG_TRUNC)) memcpy((char *)vector[i].iov_base + skip, in.data + done, len);
        done += len;
        skip = 0;
    }
    if (!(flags & MSG_PEEK)) {
        conn_consume(link->conn, done);
        after_input(link);
    }
    return (ssize_t)done;
}

static size_t vector_size(const struct iovec *vector, int count) {
    size_t size = 0;
    for (int i = 0; i < count; i++) size += vector[i].iov_len;
    return size;
}

/* It became one while the call waited: -ENOLINK, and the caller starts again with the C library. */
static bool is_for_kernel(const struct link *link) {
    return link->relay || link->tcp;
}

ssize_t link_receive(struct link *link, const struct iovec *vector, int count, int flags) {
    size_t size = vector_size(vector, count), done = 0;
    if (flags & MSG_OOB) return -EINVAL;
    if (flags & MSG_ERRQUEUE) return -EAGAIN;
    bool wait_all = flags & MSG_WAITALL && !(flags & (MSG_PEEK | MSG_DONTWAIT)) && !link->nonblocking;
    struct run_wait wait = {0};
    for (bool turned = false;;) {
        ssize_t got = size == done ? 0 : run_link_take(link, vector, count, done, flags);
        if (got > 0) {
            done += (size_t)got;
            if (!wait_all || done == size) break;
            continue;
        }
        if (got != -EAGAIN || size == done) {
            if (!done && got < 0) return got;
            break;
        }
        if (!turned) {
            engine_turn();
            turned = true;
            if (is_for_kernel(link)) return done ? (ssize_t)done : -ENOLINK;
            continue;
        }
        if (flags & MSG_DONTWAIT || link->nonblocking) return done ? (ssize_t)done : -EAGAIN;
        if (!wait.began_us) wait_begin(&wait, link->receive_timeout_us);
        int result = wait_more(&wait, link, NULL, 0, NULL);
        if (is_for_kernel(link)) return done ? (ssize_t)done : -ENOLINK;
        if (!link->fd_count) return done ? (ssize_t)done : 0; /* closed by another thread */
        if (result == -ETIMEDOUT) return done ? (ssize_t)done : -EAGAIN;
        if (result == -EINTR && (done || link->receive_timeout_us >= 0 || !signals_restart()))
            return done ? (ssize_t)done : -EINTR;
        turned = false;
    }
    if (wait.began_us) wait_succeeded(&wait);
    return (ssize_t)done;
}

/* --- Output --- */

static ssize_t run_link_put(struct link *link, const struct iovec *vector, int count, size_t skip) {
    if (link->state <= LINK_FAILED) return -EAGAIN;
    if (link->no_write) return -EPIPE;
    if (link->error) {
        link->ended = true;
        return -link_take_error(link);
    }
    if (!link->conn || link->ended || !conn_is_open(link->conn)) return -EPIPE;
    size_t left = space(link), done = 0;
    if (!left) {
        link->was_full = true;
        return -EAGAIN;
    }
    for (int i = 0; i < count && left; i++) {
        if (skip >= vector[i].iov_len) {
            skip -= vector[i].iov_len;
            continue;
        }
        size_t len = vector[i].iov_len - skip < left ? vector[i].iov_len - skip : left;
        output_write(&link->conn->out, (struct slice){(const char *)vector[i].iov_base + skip, len});
        left -= len;
        done += len;
        skip = 0;
    }
    if (!left) link->was_full = true;
    link->unanswered++;
    link->conn->wants_drained = true;
    conn_flush(link->conn);
    return (ssize_t)done;
}

ssize_t link_send(struct link *link, const struct iovec *vector, int count, int flags) {
    size_t size = vector_size(vector, count), done = 0;
    struct run_wait wait = {0};
    if (flags & MSG_OOB) return -EOPNOTSUPP;
    while (done < size) {
        ssize_t put_now = run_link_put(link, vector, count, done);
        if (put_now > 0) {
            done += (size_t)put_now;
            continue;
        }
        if (put_now != -EAGAIN) {
            if (done) break;
            return put_now;
        }
        engine_turn();
        if (is_for_kernel(link)) return done ? (ssize_t)done : -ENOLINK;
        if (link->state > LINK_FAILED && space(link)) continue;
        if (flags & MSG_DONTWAIT || link->nonblocking) return done ? (ssize_t)done : -EAGAIN;
        if (!wait.began_us) wait_begin(&wait, link->send_timeout_us);
        int result = wait_more(&wait, link, NULL, 0, NULL);
        if (is_for_kernel(link)) return done ? (ssize_t)done : -ENOLINK;
        if (!link->fd_count) return done ? (ssize_t)done : -EPIPE;
        if (result == -ETIMEDOUT) return done ? (ssize_t)done : -EAGAIN;
        if (result == -EINTR && (done || link->send_timeout_us >= 0 || !signals_restart()))
            return done ? (ssize_t)done : -EINTR;
        engine_turn();
    }
    return (ssize_t)done;
}

int link_shutdown(struct link *link, int how) {
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return -EINVAL;
    if (link->state != LINK_OPEN) return -ENOTCONN;
    if (how != SHUT_WR) link->no_read = true;
    if (how != SHUT_RD) link->no_write = true;
    if (link->side >= 0) real_shutdown(link->fds[0], how); /* for all processes that have the descriptor */
    if (link->no_read && link->no_write)
        close_connection(link);
    else if (link->no_write)
        await_end(link);
    run_link_changed(link);
    return 0;
}

/* --- Relays --- */

/* From the connection to the socket pair, and the end. */
static void pump(struct link *link) {
    link->users++;
    while (link->side >= 0 && link->conn && link->conn->in_len && !link->side_full) {
        struct slice in = conn_peek(link->conn);
        ssize_t sent = real_send(link->side, in.data, in.len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0)
            conn_consume(link->conn, (size_t)sent);
        else if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM))
            link->side_full = true;
        else if (sent < 0 && errno != EINTR)
            break;
    }
    after_input(link);
    if (link->side >= 0 && link->ended && !link->conn) {
        close_side(link);
    } else if (link->side >= 0) {
        int mask =
            (link->conn && space(link) && !link->no_write ? EVENT_READ : 0) | (link->side_full ? EVENT_WRITE : 0);
        event_io_set(engine_loop(), &link->side_io, link->side, mask, side_ready);
    }
    link->users--;
    free_if_unused(link);
}

static void side_ready(struct event_io *io, int mask) {
    struct link *link = container_of(io, struct link, side_io);
    char bytes[16 * 1024];
    link->users++;
    if (mask & EVENT_WRITE) link->side_full = false;
    if (mask & EVENT_READ) {
        size_t most = space(link) < sizeof bytes ? space(link) : sizeof bytes;
        ssize_t got = most ? real_recv(link->side, bytes, most, MSG_DONTWAIT) : -1;
        if (got > 0) {
            link_relay(link);
            struct iovec vector = {bytes, (size_t)got};
            if (run_link_put(link, &vector, 1, 0) != got) close_side(link); /* the connection is over */
        } else if (got == 0) {
            struct pollfd hup = {.fd = link->side};
            if (link->no_write) {
                event_io_remove(engine_loop(), &link->side_io); /* the end that link_shutdown() made */
            } else if (real_poll(&hup, 1, 0) == 1 && hup.revents & POLLHUP) {
                /* No process holds the descriptor, and it was not closed through the library. */
                while (link->fd_count) {
                    int fd = link->fds[--link->fd_count];
                    atomic_store(&link_table[fd], NULL);
                }
                sets_link_left(link);
                close_connection(link);
                close_side(link);
                engine_wake(link);
            } else { /* shut down by a process that uses plain system calls */
                link->no_write = true;
                link_relay(link);
                await_end(link);
            }
        }
    }
    if (link->relay && link->side >= 0) pump(link);
    link->users--;
    free_if_unused(link);
}

void link_relay(struct link *link) {
    if (link->relay || link->side < 0) return;
    link->relay = true;
    engine_need_service(1);
    sets_link_native(link);
    engine_wake(link);
    pump(link);
}

/* --- The process --- */

void links_await_decision(void) {
    forks++;
    wait_while(any_is_connecting);
    if (--forks == 0) engine_wake(NULL);
}

void links_after_fork(void) {
    forks = 0; /* of other threads */
    list_each_entry(&links, struct link, link, link) {
        link->inherited = true;
        link->users = 0;
        link->conn = NULL;
        link->relay = false;
        close_side(link); /* the parent must see when the last descriptor is closed */
    }
}

/* A link with bytes from plain system calls that are not read yet. */
static struct link *find_unsent(void) {
    list_each_entry(&links, struct link, link, link) {
        if (link->conn && link->state == LINK_OPEN && link->side >= 0 && peek_side(link) > 0) return link;
    }
    return NULL;
}

void links_flush(void) {
    if (!engine_loop() || !engine_usable() || engine_locked_here()) return;
    engine_lock();
    uint64_t until = clock_monotonic_us() + FLUSH_US;
    for (struct link *link; clock_monotonic_us() < until && (link = find_unsent());) {
        struct run_wait wait;
        if (space(link)) {
            side_ready(&link->side_io, EVENT_READ);
            continue;
        }
        wait_begin(&wait, 1000);
        wait_more(&wait, NULL, NULL, 0, NULL);
        engine_turn();
    }
    list_each_entry(&links, struct link, link, link)
        if (link->conn && link->state == LINK_OPEN) close_connection(link);
    while (rdma_stats()->connections && clock_monotonic_us() < until) {
        struct run_wait wait;
        engine_turn();
        if (!rdma_stats()->connections) break;
        wait_begin(&wait, 1000);
        wait_more(&wait, NULL, NULL, 0, NULL);
    }
    engine_unlock();
}
