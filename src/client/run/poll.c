/* poll.c: poll and select on links and other descriptors together. See run.h. */
#include "client/run/run.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include <errno.h>
#include <string.h>
#include <sys/select.h>

/* Whether one of the descriptors is a link. Epoll instances among them become native. */
static bool has_links(const struct pollfd *fds, nfds_t count) {
    bool found = false;
    if (engine_locked_here()) return false;
    for (nfds_t i = 0; i < count; i++) {
        if (fd_is_link(fds[i].fd)) found = true;
        if (fd_is_set(fds[i].fd)) set_make_native(fds[i].fd);
    }
    return found;
}

static const short inputs = POLLIN | POLLRDNORM, outputs = POLLOUT | POLLWRNORM;

/* The state of the links among them; `rest` gets the others. Returns the number of ready links. */
static int look(struct pollfd *fds, nfds_t count, struct pollfd *rest, bool *others, bool *links_left) {
    int ready = 0;
    *others = *links_left = false;
    for (nfds_t i = 0; i < count; i++) {
        struct link *link =
            fd_is_link(fds[i].fd) ? atomic_load_explicit(&link_table[fds[i].fd], memory_order_relaxed) : NULL;
        rest[i] = fds[i];
        rest[i].revents = 0;
        fds[i].revents = 0;
        if (!link || link->relay) {
            if (fds[i].fd >= 0) *others = true;
            continue;
        }
        rest[i].fd = -1;
        *links_left = true;
        short events = link_events(link);
        if (events & POLLIN) events |= inputs;
        if (events & POLLOUT) events |= outputs;
        fds[i].revents = (short)(events & (fds[i].events | POLLERR | POLLHUP));
        if (fds[i].revents) ready++;
    }
    return ready;
}

static int merge(struct pollfd *fds, nfds_t count, const struct pollfd *rest) {
    int ready = 0;
    for (nfds_t i = 0; i < count; i++) {
        if (rest[i].fd >= 0) fds[i].revents = rest[i].revents;
        if (fds[i].revents) ready++;
    }
    return ready;
}

static int poll_links(struct pollfd *fds, nfds_t count, int64_t timeout_us, const sigset_t *mask) {
    struct pollfd few[16], *rest = few;
    bool others, links_left;
    struct run_wait wait;
    int result = 0;
    if (count > 16 && !(rest = mem_try_alloc(count * sizeof *rest))) {
        errno = ENOMEM;
        return -1;
    }
    /* In a forked child the parent is asked for the links now. */
    for (nfds_t i = 0; i < count; i++) {
        struct link *link = fd_is_link(fds[i].fd) && !engine_usable() ? link_enter(fds[i].fd) : NULL;
        if (link) link_leave(link);
    }
    engine_lock();
    wait_begin(&wait, timeout_us);
    for (bool first = true;; first = false) {
        /* A link that has input already is worth no turn. */
        int ready = first ? look(fds, count, rest, &others, &links_left) : 0;
        if (!ready) {
            engine_turn();
            ready = look(fds, count, rest, &others, &links_left);
        }
        if (!links_left) break; /* all are relays, or closed */
        if (others && real_poll(rest, count, 0) > 0) ready = 1;
        if (ready) {
            result = merge(fds, count, rest);
            if (!first) wait_succeeded(&wait);
            break;
        }
        if (timeout_us == 0 && !mask) break;
        const struct link *only = count == 1 && fd_is_link(fds[0].fd)
                                      ? atomic_load_explicit(&link_table[fds[0].fd], memory_order_relaxed)
                                      : NULL;
        result = wait_more(&wait, only, rest, others ? (unsigned)count : 0, mask);
        if (result == -ETIMEDOUT) {
            result = 0;
            break;
        }
        if (result == -EINTR) break;
    }
    engine_unlock();
    if (result == 0 && !links_left) {
        uint64_t now = clock_monotonic_us(), left = wait.deadline_us > now ? wait.deadline_us - now : 0;
        struct timespec limit = {.tv_sec = (time_t)(left / 1000000), .tv_nsec = (long)(left % 1000000) * 1000};
        result = real_ppoll(fds, count, timeout_us < 0 ? NULL : &limit, mask);
        if (result < 0) result = -errno;
    }
    if (rest != few) mem_free(rest);
    if (result >= 0) return result;
    errno = -result;
    return -1;
}

EXPORTED int poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    real_ready();
    if (!has_links(fds, count)) return real_poll(fds, count, timeout_ms);
    return poll_links(fds, count, timeout_ms < 0 ? -1 : (int64_t)timeout_ms * 1000, NULL);
}
EXPORTED int __poll(struct pollfd *fds, nfds_t count, int timeout_ms) __attribute__((alias("poll")));
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t size);
EXPORTED int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t size) {
    if (size / sizeof *fds < count) __builtin_trap();
    return poll(fds, count, timeout_ms);
}

static int invalid(void) {
    errno = EINVAL;
    return -1;
}

EXPORTED int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    real_ready();
    int64_t us;
    if (!has_links(fds, count)) return real_ppoll(fds, count, timeout, mask);
    return timeout_of(timeout, &us) ? poll_links(fds, count, us, mask) : invalid();
}
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t size);
EXPORTED int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask,
                         size_t size) {
    if (size / sizeof *fds < count) __builtin_trap();
    return ppoll(fds, count, timeout, mask);
}

/* --- select --- */

static bool in_set(const fd_set *set, int fd) {
    return set && FD_ISSET(fd, set);
}

static bool select_has_links(int count, const fd_set *in, const fd_set *out, const fd_set *odd) {
    bool found = false;
    if (engine_locked_here() || count > FD_SETSIZE) return false;
    for (int fd = 0; fd < count; fd++) {
        if (!fd_is_link(fd) && !fd_is_set(fd)) continue;
        if (!in_set(in, fd) && !in_set(out, fd) && !in_set(odd, fd)) continue;
        if (fd_is_link(fd)) found = true;
        if (fd_is_set(fd)) set_make_native(fd);
    }
    return found;
}

static int select_links(int count, fd_set *in, fd_set *out, fd_set *odd, int64_t timeout_us, const sigset_t *mask) {
    struct pollfd fds[FD_SETSIZE];
    nfds_t used = 0;
    for (int fd = 0; fd < count; fd++) {
        short events =
            (short)((in_set(in, fd) ? POLLIN : 0) | (in_set(out, fd) ? POLLOUT : 0) | (in_set(odd, fd) ? POLLPRI : 0));
        if (events) fds[used++] = (struct pollfd){.fd = fd, .events = events};
    }
    int result = poll_links(fds, used, timeout_us, mask);
    if (result < 0) return result;
    for (nfds_t i = 0; i < used; i++)
        if (fds[i].revents & POLLNVAL) {
            errno = EBADF;
            return -1;
        }
    result = 0;
    for (nfds_t i = 0; i < used; i++) {
        int fd = fds[i].fd;
        bool readable = fds[i].revents & (POLLIN | POLLHUP | POLLERR), writable = fds[i].revents & (POLLOUT | POLLERR);
        if (in_set(in, fd)) {
            if (readable)
                result++;
            else
                FD_CLR(fd, in);
        }
        if (in_set(out, fd)) {
            if (writable)
                result++;
            else
                FD_CLR(fd, out);
        }
        if (in_set(odd, fd)) {
            if (fds[i].revents & POLLPRI)
                result++;
            else
                FD_CLR(fd, odd);
        }
    }
    return result;
}

EXPORTED int select(int count, fd_set *in, fd_set *out, fd_set *odd, struct timeval *timeout) {
    real_ready();
    if (!select_has_links(count, in, out, odd)) return real_select(count, in, out, odd, timeout);
    if (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)) return invalid();
    struct run_wait wait;
    wait_begin(&wait, 0);
    uint64_t began = wait.began_us;
    int64_t us = -1;
    if (timeout) { /* more than a second of microseconds is valid */
        int64_t seconds = timeout->tv_sec < TIMEOUT_SECONDS_MAX ? timeout->tv_sec : TIMEOUT_SECONDS_MAX;
        us = seconds * 1000000 + timeout->tv_usec;
    }
    int result = select_links(count, in, out, odd, us, NULL), error = errno;
    if (timeout) { /* Linux stores the time that is left */
        wait_begin(&wait, 0);
        int64_t left = us - (int64_t)(wait.began_us - began);
        if (left < 0) left = 0;
        *timeout = (struct timeval){.tv_sec = left / 1000000, .tv_usec = left % 1000000};
    }
    errno = error;
    return result;
}

EXPORTED int pselect(int count, fd_set *in, fd_set *out, fd_set *odd, const struct timespec *timeout,
                     const sigset_t *mask) {
    real_ready();
    int64_t us;
    if (!select_has_links(count, in, out, odd)) return real_pselect(count, in, out, odd, timeout, mask);
    return timeout_of(timeout, &us) ? select_links(count, in, out, odd, us, mask) : invalid();
}
