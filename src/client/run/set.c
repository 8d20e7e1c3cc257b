/* set.c: epoll instances in which links are registered.
 *
 * The registration of a link is kept here and not given to the kernel. epoll_wait() returns ready links first, and asks
 * the kernel for the other descriptors when there are none, and every ASK_US otherwise. While nothing is ready the
 * thread waits for the instance's descriptor, which the kernel makes readable, and for the engine.
 *
 * Readiness works as in the kernel: a registration enters the list `ready` when it is added or changed and when
 * something happens to its link. epoll_wait() takes it from the list, reports the events that are true at that moment,
 * and puts it back at the end if it is level-triggered. So edge-triggered registrations report each arrival once, and
 * a registration that is not ready costs nothing.
 *
 * An instance that is itself waited for by poll(), select() or another instance is native: its links become relays.
 *
 * A thread that waits for an instance without links waits in the kernel, and the kernel does not learn of a link that
 * another thread registers meanwhile. The beacon, an eventfd that is always readable, is then registered with the
 * instance until all threads that waited in the kernel have returned; the program does not see its event. */
#include "client/run/run.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

enum { ASK_US = 50 };

_Atomic(struct poll_set *) set_table[LINK_TABLE];
static struct list sets = LIST_INIT(sets);
static int beacon = -1; /* eventfd; its address is the data of its registrations */

/* Registrations of TCP sockets that are not connected yet: these are in the kernel until the connection turns out to be
 * a link. */
struct early {
    struct list_link link;
    int set_fd, fd;
    struct epoll_event event;
};
static struct list early = LIST_INIT(early);
static struct fd_bits candidates;
static _Atomic int copies_end; /* one more than the largest descriptor from dup() among them */

bool sets_has_socket(int fd) {
    return fd_bits_has(&candidates, fd);
}

/* --- Life --- */

static struct poll_set *set_of(int fd) {
    return fd_is_set(fd) ? atomic_load_explicit(&set_table[fd], memory_order_relaxed) : NULL;
}

static void free_if_unused(struct poll_set *set) {
    if (set->fds || set->in_kernel) return;
    list_remove(&sets, &set->link);
    mem_free(set);
}

static void registration_free(struct registration *r) {
    list_remove(&r->set->registrations, &r->in_set);
    list_remove(&r->link->registrations, &r->in_link);
    if (list_is_linked(&r->in_ready)) list_remove(&r->set->ready, &r->in_ready);
    mem_free(r);
}

void set_created(int fd) {
    if ((unsigned)fd >= LINK_TABLE || !mappings_exist() || engine_locked_here()) return;
    set_closed(fd); /* the last one with this number was closed by other means */
    struct poll_set *set = mem_calloc(1, sizeof *set);
    set->fds = 1;
    list_init(&set->registrations);
    list_init(&set->ready);
    engine_lock();
    list_append(&sets, &set->link);
    atomic_store(&set_table[fd], set);
    engine_unlock();
}

void set_duplicated(int fd, int copy) {
    if ((unsigned)copy >= LINK_TABLE) {
        set_make_native(fd);
        return;
    }
    set_closed(copy);
    engine_lock();
    struct poll_set *set = set_of(fd);
    if (set) {
        set->fds++;
        atomic_store(&set_table[copy], set);
    }
    engine_unlock();
}

static void early_remove(int set_fd, int fd) {
    list_each_entry(&early, struct early, link, one) {
        if ((set_fd >= 0 && one->set_fd != set_fd) || (fd >= 0 && one->fd != fd)) continue;
        list_remove(&early, &one->link);
        mem_free(one);
    }
}

void set_closed(int fd) {
    if (!fd_is_set(fd) || engine_locked_here()) return;
    engine_lock();
    struct poll_set *set = set_of(fd);
    if (set) {
        atomic_store(&set_table[fd], NULL);
        early_remove(fd, -1);
        if (!--set->fds) {
            while (set->registrations.len)
                registration_free(container_of(list_first(&set->registrations), struct registration, in_set));
            free_if_unused(set);
        }
    }
    engine_unlock();
}

/* --- What happens to links --- */

static void run_set_mark(struct registration *r) {
    if (!r->spent && !list_is_linked(&r->in_ready)) list_append(&r->set->ready, &r->in_ready);
}

/* The kernel can report what happens to it: as a relay, or, if it could not be connected, as a socket that is not. */
static bool can_be_native(const struct link *link) {
    return link->side >= 0 || link->state == LINK_OVER;
}

static void become_native(struct link *link) {
    if (link->side >= 0)
        link_relay(link);
    else
        sets_link_native(link);
}

void sets_link_changed(struct link *link) {
    bool native = false;
    list_each_entry(&link->registrations, struct registration, in_link, r) {
        run_set_mark(r);
        native = native || r->set->native;
    }
    if (native && can_be_native(link)) become_native(link); /* it was registered while it was connecting */
}

void sets_link_left(struct link *link) {
    while (link->registrations.len)
        registration_free(container_of(list_first(&link->registrations), struct registration, in_link));
}

void sets_link_native(struct link *link) {
    while (link->registrations.len) {
        struct registration *r = container_of(list_first(&link->registrations), struct registration, in_link);
        struct epoll_event event = {.events = r->spent ? 0 : r->events, .data = r->data};
        if (real_epoll_ctl(r->set_fd, EPOLL_CTL_ADD, r->fd, &event) < 0 && errno == EEXIST)
            real_epoll_ctl(r->set_fd, EPOLL_CTL_MOD, r->fd, &event);
        registration_free(r);
    }
}

void set_make_native(int fd) {
    if (!fd_is_set(fd) || engine_locked_here()) return;
    engine_lock();
    struct poll_set *set = set_of(fd);
    if (set && !set->native) {
        set->native = true;
        list_each(&set->registrations, item) {
            struct link *link = container_of(item, struct registration, in_set)->link;
            if (can_be_native(link)) become_native(link);
        }
        /* Links that are still connecting become native when they are open: see sets_link_changed(). */
    }
    engine_unlock();
}

void sets_note_socket(int fd) {
    if (mappings_exist()) fd_bits_set(&candidates, fd, true);
}

void sets_note_copy(int fd, int copy) {
    int largest = (fd > copy ? fd : copy) + 1, end = copies_end;
    sets_note_socket(copy);
    while (largest > end && !atomic_compare_exchange_weak(&copies_end, &end, largest)) continue;
}

int sets_next_copy(int fd, int after) {
    struct stat socket, other;
    int end = copies_end;
    if (!end || fstat(fd, &socket) < 0) return -1;
    for (int copy = after + 1; copy < end; copy++)
        if (copy != fd && sets_has_socket(copy) && fstat(copy, &other) == 0 && other.st_ino == socket.st_ino &&
            other.st_dev == socket.st_dev)
            return copy;
    return -1;
}

void sets_forget(int fd) {
    if (!sets_has_socket(fd)) return;
    fd_bits_set(&candidates, fd, false);
    if (engine_locked_here()) return;
    engine_lock();
    early_remove(-1, fd);
    engine_unlock();
}

void sets_after_fork(void) {
    list_each(&sets, item) container_of(item, struct poll_set, link)->in_kernel = 0;
}

static struct registration *run_set_find(const struct poll_set *set, struct link *link, int fd) {
    list_each_entry(&link->registrations, struct registration, in_link, r)
        if (r->set == set && r->fd == fd) return r;
    return NULL;
}

static void light_beacon(struct poll_set *set, int set_fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &beacon};
    if (beacon < 0) beacon = engine_high(eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
    set->has_beacon = beacon >= 0 && real_epoll_ctl(set_fd, EPOLL_CTL_ADD, beacon, &event) == 0;
}

static void run_set_add(struct poll_set *set, struct link *link, int set_fd, int fd, const struct epoll_event *event) {
    struct registration *r = mem_calloc(1, sizeof *r);
    *r = (struct registration){
        .set = set, .link = link, .set_fd = set_fd, .fd = fd, .events = event->events, .data = event->data};
    list_append(&set->registrations, &r->in_set);
    list_append(&link->registrations, &r->in_link);
    run_set_mark(r);
    if (set->in_kernel && !set->has_beacon) light_beacon(set, set_fd);
}

void sets_adopt(int fd, struct link *link) {
    fd_bits_set(&candidates, fd, false);
    list_each_entry(&early, struct early, link, one) {
        if (one->fd != fd) continue;
        struct epoll_event unused = {0};
        struct poll_set *set = set_of(one->set_fd);
        if (set && real_epoll_ctl(one->set_fd, EPOLL_CTL_DEL, fd, &unused) == 0)
            run_set_add(set, link, one->set_fd, fd, &one->event);
        list_remove(&early, &one->link);
        mem_free(one);
    }
}

/* --- The calls --- */

static void note_early(int set_fd, int operation, int fd, const struct epoll_event *event) {
    engine_lock();
    early_remove(set_fd, fd);
    if (operation != EPOLL_CTL_DEL) {
        struct early *one = mem_alloc(sizeof *one);
        *one = (struct early){.set_fd = set_fd, .fd = fd, .event = *event};
        list_append(&early, &one->link);
    }
    engine_unlock();
}

EXPORTED int epoll_ctl(int set_fd, int operation, int fd, struct epoll_event *event) {
    real_ready();
    struct link *link = link_enter(fd);
    if (!link) {
        if (fd_is_set(fd)) set_make_native(fd);
        int result = real_epoll_ctl(set_fd, operation, fd, event);
        if (result == 0 && sets_has_socket(fd) && !engine_locked_here()) note_early(set_fd, operation, fd, event);
        return result;
    }
    struct poll_set *set = set_of(set_fd);
    int error = 0;
    struct epoll_event unused = {0};
    if (!set && real_epoll_ctl(set_fd, EPOLL_CTL_DEL, fd, &unused) < 0 && errno != ENOENT) {
        error = errno;
    } else if (!set || (set->native && can_be_native(link))) {
        link_relay(link); /* an instance that was made without the library knowing */
        link_leave(link);
        return real_epoll_ctl(set_fd, operation, fd, event);
    } else {
        struct registration *r = run_set_find(set, link, fd);
        if (operation == EPOLL_CTL_ADD && r)
            error = EEXIST;
        else if (operation != EPOLL_CTL_ADD && !r)
            error = ENOENT;
        else if (operation == EPOLL_CTL_ADD)
            run_set_add(set, link, set_fd, fd, event);
        else if (operation == EPOLL_CTL_DEL)
            registration_free(r);
        else if (operation == EPOLL_CTL_MOD) {
            r->events = event->events;
            r->data = event->data;
            r->spent = false;
            run_set_mark(r);
        } else
            error = EINVAL;
        if (!error && operation != EPOLL_CTL_DEL && link_events(link)) engine_wake(link);
    }
    link_leave(link);
    if (!error) return 0;
    errno = error;
    return -1;
}

/* Moves ready links into `events`. */
static int run_set_collect(struct poll_set *set, struct epoll_event *events, int most) {
    int count = 0;
    for (size_t left = set->ready.len; left > 0 && count < most && set->ready.len; left--) {
        struct registration *r = container_of(list_first(&set->ready), struct registration, in_ready);
        list_remove(&set->ready, &r->in_ready);
        if (set->native && r->link->side >= 0) {
            link_relay(r->link);
            continue;
        }
        /* The bits of poll() and of epoll are the same. */
        uint32_t now = (uint32_t)(unsigned short)link_events(r->link);
        uint32_t wanted = r->events | EPOLLERR | EPOLLHUP;
        if (now & EPOLLIN) now |= EPOLLRDNORM;
        if (now & EPOLLOUT) now |= EPOLLWRNORM;
        if (!(now &= wanted)) continue;
        events[count++] = (struct epoll_event){.events = now, .data = r->data};
        if (r->events & EPOLLONESHOT)
            r->spent = true;
        else if (!(r->events & EPOLLET))
            list_append(&set->ready, &r->in_ready);
    }
    return count;
}

/* Removes the beacon from the events, and returns how many are left. */
static int without_beacon(struct epoll_event *events, int count, bool *saw_beacon) {
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr != &beacon) continue;
        *saw_beacon = true;
        events[i] = events[--count];
        break;
    }
    return count;
}

static int wait_for_set(int fd, struct epoll_event *events, int most, int64_t timeout_us, const sigset_t *mask) {
    struct poll_set *set = set_of(fd);
    struct run_wait wait;
    int result = 0;
    wait_begin(&wait, timeout_us);
    bool asked = false, saw_beacon;
    for (bool first = true;; first = false) {
        engine_turn();
        if (set_of(fd) != set) { /* closed by another thread */
            errno = EBADF;
            return -1;
        }
        uint64_t now = clock_monotonic_us();
        int count = 0;
        if (now - set->asked_us >= ASK_US || asked) {
            set->asked_us = now;
            count = without_beacon(events, real_epoll_wait(fd, events, most, 0), &saw_beacon);
            if (count < 0) return count;
            asked = true;
        }
        count += run_set_collect(set, events + count, most - count);
        if (count == 0 && !asked) {
            set->asked_us = now;
            count = without_beacon(events, real_epoll_wait(fd, events, most, 0), &saw_beacon);
        }
        asked = false;
        if (count != 0) {
            if (!first) wait_succeeded(&wait);
            return count;
        }
        if (timeout_us == 0) return 0;
        struct pollfd kernel = {.fd = fd, .events = POLLIN};
        result = wait_more(&wait, NULL, &kernel, 1, mask);
        asked = kernel.revents;
        if (result == -ETIMEDOUT) return 0;
        if (result == -EINTR) {
            errno = EINTR;
            return -1;
        }
    }
}

/* A thread that waits in the kernel for an instance without links. */
struct kernel_wait {
    struct poll_set *set;
    int fd;
    bool saw_beacon;
};

/* Whether the instance has links: then locked. Otherwise, if the thread will wait, it is counted. */
static bool has_links(int fd, bool waits, struct kernel_wait *wait) {
    *wait = (struct kernel_wait){.fd = fd};
    if (!fd_is_set(fd) || engine_locked_here()) return false;
    engine_lock();
    struct poll_set *set = set_of(fd);
    if (set && set->registrations.len && !engine_usable()) /* a forked child: the kernel's from now on */
        while (set->registrations.len) {
            struct link *link = container_of(list_first(&set->registrations), struct registration, in_set)->link;
            if (!link->relay) request_relay(link);
            link->relay = true;
            sets_link_native(link);
        }
    if (set && set->registrations.len) return true;
    if (set && waits) {
        wait->set = set;
        set->in_kernel++;
    }
    engine_unlock();
    return false;
}

static void leave_kernel(void *argument) {
    const struct kernel_wait *wait = argument;
    struct poll_set *set = wait->set;
    if (!set) return;
    engine_lock();
    if (--set->in_kernel == 0 && set->has_beacon) {
        struct epoll_event unused = {0};
        if (set_of(wait->fd) == set) real_epoll_ctl(wait->fd, EPOLL_CTL_DEL, beacon, &unused);
        set->has_beacon = false;
    }
    free_if_unused(set);
    engine_unlock();
}

static int ask_kernel(int fd, struct epoll_event *events, int most, int64_t timeout_us, const sigset_t *mask) {
    int64_t ms = timeout_us < 0 ? -1 : timeout_us / 1000 + (timeout_us % 1000 > 0);
    if (real_epoll_pwait2 && (timeout_us % 1000 > 0 || ms > INT_MAX)) {
        struct timespec limit = {.tv_sec = timeout_us / 1000000, .tv_nsec = timeout_us % 1000000 * 1000};
        int count = real_epoll_pwait2(fd, events, most, &limit, mask);
        if (count >= 0 || errno != ENOSYS) return count;
    }
    return real_epoll_pwait(fd, events, most, ms > INT_MAX ? INT_MAX : (int)ms, mask);
}

static int wait_in_kernel(struct kernel_wait *wait, struct epoll_event *events, int most, int64_t timeout_us,
                          const sigset_t *mask) {
    int count;
    pthread_cleanup_push(leave_kernel, wait);
    count = ask_kernel(wait->fd, events, most, timeout_us, mask);
    pthread_cleanup_pop(0);
    int error = errno;
    leave_kernel(wait);
    errno = error;
    return without_beacon(events, count, &wait->saw_beacon);
}

static int wait_for(int fd, struct epoll_event *events, int most, int64_t timeout_us, const sigset_t *mask) {
    uint64_t until_us = timeout_us < 0 ? UINT64_MAX : clock_monotonic_us() + (uint64_t)timeout_us;
    for (;;) {
        struct kernel_wait wait;
        int result;
        if (!has_links(fd, timeout_us != 0, &wait)) {
            result = wait_in_kernel(&wait, events, most, timeout_us, mask);
            if (result != 0 || !wait.saw_beacon) return result;
            uint64_t now = clock_monotonic_us();
            if (timeout_us > 0) timeout_us = until_us > now ? (int64_t)(until_us - now) : 0;
            continue;
        }
        result = wait_for_set(fd, events, most, timeout_us, mask);
        int error = errno;
        engine_unlock();
        errno = error;
        return result;
    }
}

EXPORTED int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout_ms, const sigset_t *mask) {
    real_ready();
    if (most <= 0 || !fd_is_set(fd)) return real_epoll_pwait(fd, events, most, timeout_ms, mask);
    return wait_for(fd, events, most, timeout_ms < 0 ? -1 : (int64_t)timeout_ms * 1000, mask);
}

EXPORTED int epoll_wait(int fd, struct epoll_event *events, int most, int timeout_ms) {
    real_ready();
    if (most <= 0 || !fd_is_set(fd)) return real_epoll_wait(fd, events, most, timeout_ms);
    return epoll_pwait(fd, events, most, timeout_ms, NULL);
}

EXPORTED int epoll_pwait2(int fd, struct epoll_event *events, int most, const struct timespec *timeout,
                          const sigset_t *mask) {
    real_ready();
    if (most <= 0 || !fd_is_set(fd)) {
        if (real_epoll_pwait2) return real_epoll_pwait2(fd, events, most, timeout, mask);
        errno = ENOSYS;
        return -1;
    }
    int64_t us;
    if (timeout_of(timeout, &us)) return wait_for(fd, events, most, us, mask);
    errno = EINVAL;
    return -1;
}

EXPORTED int epoll_create(int size) {
    real_ready();
    int fd = real_epoll_create(size);
    if (fd >= 0) set_created(fd);
    return fd;
}
EXPORTED int epoll_create1(int flags) {
    real_ready();
    int fd = real_epoll_create1(flags);
    if (fd >= 0) set_created(fd);
    return fd;
}
