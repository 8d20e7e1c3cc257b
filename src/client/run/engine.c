/* engine.c: the event loop that all links of the process share, its lock, waiting, and the service thread.
 *
 * Who runs the loop
 *   Every call on a link may run a turn. A thread that has to wait spins a little, running turns, and then sleeps in
 *   ppoll(). One sleeping thread, the leader, includes the loop's descriptor; the others have an eventfd each, which is
 *   written when a link that they wait for has changed. A leader that returns to the program wakes one of them to
 *   lead.
 *   The service thread leads when no thread of the program does: keepalives, credits and closing are not left to a
 *   program that computes. It checks every TICK_MS whether somebody ran the loop, and takes part only if not, so it
 *   costs nothing on the fast path. While there are relays it runs the loop at once.
 *
 * Spinning
 *   A round trip over RDMA is often shorter than falling asleep and waking. A thread therefore spins for --spin
 *   microseconds before it sleeps. After BUSY_US it yields its CPU between two turns: not before, because schedulers
 * let a thread that yields wait for a whole slice of any other one. After VAIN spins in a row that found nothing, only
 * one wait in RETRY spins. The same holds after a yield that took YIELD_LONG_US: other threads want the CPU, and the
 * scheduler prefers a thread that wakes up to one that yields.
 *
 * Signals
 *   A thread that sleeps wakes for events of the engine that the program does not see. A signal that arrives while it
 *   is awake must end the call all the same. From its first sleep until the call returns, a thread therefore has its
 *   signals blocked, and ppoll() alone unblocks them. */
#include "client/run/run.h"
#include "client/verbs.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/thread.h"
#include "net/rdma/rdma.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { TICK_MS = 10, BUSY_US = 25, VAIN = 8, RETRY = 32, YIELD_LONG_US = 500, HIGH_FD = 512 };

struct sleeper {
    struct list_link link;
    const struct link *only; /* NULL: any */
    int event_fd;
    bool kicked, is_service;
    uint64_t due_us; /* of a leader: it runs the loop then, at the latest */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool locked_here;
static _Thread_local int cancel_state; /* before the lock */
static _Thread_local bool signals_blocked;
static _Thread_local sigset_t signals_before;
static struct event_loop *loop;
static bool dead; /* a child of a process that used RDMA */
static struct list sleepers;
static struct sleeper *leader;
static uint64_t turns;
static int relays;
static unsigned vain, skipped;
static pthread_t service;
static pthread_cond_t service_wanted;
static bool service_parked;
static int ask[2] = {-1, -1}; /* datagrams from children that want a relay: [1] is theirs */
static struct event_io ask_io;
static bool started; /* all of engine_start(): without its thread no connection may use RDMA */
static struct fd_bits own_fds;

/* A thread is not cancelled while it holds the lock: polling devices calls functions that are cancellation points. */
void engine_lock(void) {
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&lock);
    cancel_state = state;
    locked_here = true;
    clock_follow(); /* the cached time belongs to the thread */
}
static void unlock(void) {
    int state = cancel_state;
    locked_here = false;
    pthread_mutex_unlock(&lock);
    pthread_setcancelstate(state, NULL);
}
/* With signals blocked: see sleep_now(). */
static void restore_signals(void) {
    bool blocked = signals_blocked;
    signals_blocked = false;
    if (blocked) pthread_sigmask(SIG_SETMASK, &signals_before, NULL);
}
static void find_leader(void);
void engine_unlock(void) {
    find_leader();
    unlock();
    restore_signals();
}
bool engine_locked_here(void) {
    return locked_here;
}
bool engine_usable(void) {
    return !dead;
}
struct event_loop *engine_loop(void) {
    return loop;
}

/* --- Descriptors of our own --- */

bool engine_is_own(int fd) {
    return fd_bits_has(&own_fds, fd);
}
void engine_own(int fd, bool own) {
    fd_bits_set(&own_fds, fd, own);
}
int engine_high(int fd) {
    if (fd < 0) return fd;
    int high = real_fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high >= 0) {
        real_close(fd);
        fd = high;
    }
    engine_own(fd, true);
    return fd;
}

/* --- Sleepers --- */

static pthread_key_t event_key;
static pthread_once_t event_once = PTHREAD_ONCE_INIT;
static _Thread_local int my_event; /* plus one; 0: none */

static void event_close(void *value) {
    int fd = (int)(intptr_t)value - 1;
    engine_own(fd, false);
    real_close(fd);
}
static void event_init(void) {
    pthread_key_create(&event_key, event_close);
}
static int event_of_thread(void) {
    if (my_event) return my_event - 1;
    pthread_once(&event_once, event_init);
    int fd = engine_high(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (fd < 0) return -1;
    my_event = fd + 1;
    pthread_setspecific(event_key, (void *)(intptr_t)my_event);
    return fd;
}

static void kick(struct sleeper *sleeper) {
    if (sleeper->kicked) return;
    uint64_t one = 1;
    sleeper->kicked = true;
    while (sleeper->event_fd >= 0 && real_write(sleeper->event_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* A thread that leaves the loop lets another one that sleeps lead. So does one that was woken for this, and leaves
 * because it has what it waited for. */
static void find_leader(void) {
    if (!leader && sleepers.len) kick(container_of(list_first(&sleepers), struct sleeper, link));
}

void engine_wake(const struct link *link) {
    list_each_entry(&sleepers, struct sleeper, link, sleeper)
        if (!sleeper->only || sleeper->only == link) kick(sleeper);
}

void engine_turn(void) {
    if (!loop || dead || event_loop_is_turning(loop)) return;
    turns++;
    event_loop_turn(loop, 0);
}

/* --- Waiting --- */

void wait_begin(struct run_wait *wait, int64_t timeout_us) {
    wait->began_us = clock_monotonic_us();
    wait->deadline_us = timeout_us < 0 ? UINT64_MAX : wait->began_us + (uint64_t)timeout_us;
    wait->decided = wait->spun = false;
}

static void sleeper_leaves(struct sleeper *sleeper) {
    list_remove(&sleepers, &sleeper->link);
    if (leader == sleeper) {
        leader = NULL;
        if (service_parked) pthread_cond_signal(&service_wanted);
    }
    if (sleeper->kicked) {
        uint64_t value;
        while (real_read(sleeper->event_fd, &value, sizeof value) < 0 && errno == EINTR) {
        }
    }
}
/* Cancellation of a thread that sleeps. */
static void sleeper_cancelled(void *sleeper) {
    engine_lock();
    sleeper_leaves(sleeper);
    engine_unlock();
}

/* Microseconds until the loop needs a turn, -1: no limit, 0: now. */
static int64_t loop_patience(void) {
    if (!event_loop_prepare_wait(loop, false)) return 0;
    uint64_t due = event_loop_next_due(loop), now = clock_monotonic_us();
    return due == INT64_MAX ? -1 : due > now ? (int64_t)(due - now) : 0;
}

/* Signals of the program's own faults. They are not blocked, and how they are handled says nothing about the others:
 * fault handlers of Python and of sanitizers lack SA_RESTART. */
static const int of_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
static bool is_of_fault(int signal) {
    for (size_t i = 0; i < sizeof of_faults / sizeof *of_faults; i++)
        if (of_faults[i] == signal) return true;
    return false;
}

static int sleep_unlocked(struct sleeper *self, struct pollfd *fds, unsigned count, const struct timespec *limit,
                          const sigset_t *mask) {
    int result;
    unlock();
    pthread_cleanup_push(sleeper_cancelled, self);
    result = real_ppoll(fds, count, limit, mask);
    pthread_cleanup_pop(0);
    return result;
}

static int sleep_now(uint64_t deadline_us, const struct link *only, struct pollfd *fds, unsigned count,
                     const sigset_t *mask, bool is_service) {
    struct sleeper self = {.only = only, .event_fd = event_of_thread(), .is_service = is_service};
    struct pollfd few[10], *all = count + 2 <= 10 ? few : mem_alloc((count + 2) * sizeof *all);
    uint64_t now = clock_monotonic_us();
    int64_t left = deadline_us == UINT64_MAX ? -1 : deadline_us > now ? (int64_t)(deadline_us - now) : 0;
    if (self.event_fd < 0) left = left < 0 || left > 1000 ? 1000 : left; /* nobody can wake this thread */
    if (count) memcpy(all, fds, count * sizeof *all);
    unsigned total = count;
    all[total++] = (struct pollfd){.fd = self.event_fd, .events = POLLIN};
    int64_t patience = loop_patience();
    if (patience == 0) {
        if (all != few) mem_free(all);
        return 0;
    }
    uint64_t due = patience < 0 ? UINT64_MAX : now + (uint64_t)patience;
    if (leader && (leader->is_service || leader->due_us > due)) kick(leader);
    if (!leader || leader->event_fd < 0 || leader->is_service) {
        leader = &self;
        self.due_us = due;
        all[total++] = (struct pollfd){.fd = event_loop_fd(loop), .events = POLLIN};
        if (patience > 0 && (left < 0 || patience < left)) left = patience;
    }
    list_append(&sleepers, &self.link);
    struct timespec limit = {.tv_sec = left / 1000000, .tv_nsec = left % 1000000 * 1000};
    int result, error;
    if (!is_service && !signals_blocked) {
        sigset_t blocked;
        thread_signals_without_faults(&blocked);
        signals_blocked = pthread_sigmask(SIG_SETMASK, &blocked, &signals_before) == 0;
    }
    const sigset_t *const used = !mask && signals_blocked ? &signals_before : mask;
    result = sleep_unlocked(&self, all, total, left < 0 ? NULL : &limit, used);
    error = errno;
    engine_lock();
    sleeper_leaves(&self);
    if (count) memcpy(fds, all, count * sizeof *all);
    if (all != few) mem_free(all);
    if (result < 0) {
        for (unsigned i = 0; i < count; i++) fds[i].revents = 0;
        return error == EINTR ? -EINTR : 0;
    }
    return 0;
}

/* Lets signals in that the mask unblocks and that are pending. True: there was one. */
static bool takes_signal(const sigset_t *mask) {
    if (!mask) return false;
    struct timespec none = {0};
    unlock();
    bool taken = real_ppoll(NULL, 0, &none, mask) < 0 && errno == EINTR;
    engine_lock();
    return taken;
}

static bool spin_is_worthwhile(void) {
    return vain < VAIN || ++skipped % RETRY == 0;
}

int wait_more(struct run_wait *wait, const struct link *link, struct pollfd *fds, unsigned count,
              const sigset_t *mask) {
    uint64_t now = clock_monotonic_us();
    for (unsigned i = 0; i < count; i++) fds[i].revents = 0;
    if (now >= wait->deadline_us) return takes_signal(mask) ? -EINTR : -ETIMEDOUT;
    if (!wait->decided) {
        wait->decided = true;
        wait->spun = !spin_is_worthwhile();
    }
    if (!wait->spun && now - wait->began_us < mapping_spin_us()) {
        bool yields = now - wait->began_us >= BUSY_US;
        unlock();
        if (yields) sched_yield();
        engine_lock();
        if (yields && clock_monotonic_us() - now > YIELD_LONG_US) {
            wait->spun = true;
            vain = VAIN;
        }
        return 0;
    }
    if (!wait->spun) {
        wait->spun = true;
        vain++;
    }
    return sleep_now(wait->deadline_us, link, fds, count, mask, false);
}

void wait_succeeded(const struct run_wait *wait) {
    if (clock_monotonic_us() - wait->began_us < mapping_spin_us()) vain = 0;
}

bool signals_restart(void) {
    for (int signal = 1; signal < NSIG; signal++) {
        struct sigaction action;
        if (is_of_fault(signal) || sigaction(signal, NULL, &action) < 0) continue;
        bool handled = action.sa_flags & SA_SIGINFO || (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
        if (handled && !(action.sa_flags & SA_RESTART)) return false;
    }
    return true;
}

/* --- The service thread --- */

static void *serve(void *unused) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    engine_lock();
    uint64_t seen = turns;
    for (;;) {
        bool driven = leader || turns != seen;
        seen = turns;
        if (driven && !relays) {
            struct timespec until;
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_nsec += TICK_MS * 1000000;
            if (until.tv_nsec >= 1000000000) {
                until.tv_nsec -= 1000000000;
                until.tv_sec++;
            }
            find_leader();
            locked_here = false;
            const struct sleeper *before = leader;
            if (before && turns == seen && service_parked) { /* a thread sleeps, and leads for long */
                pthread_cond_wait(&service_wanted, &lock);
                service_parked = false;
            } else {
                pthread_cond_timedwait(&service_wanted, &lock, &until);
                service_parked = before && leader == before && turns == seen;
            }
            locked_here = true;
            clock_follow();
            continue;
        }
        service_parked = false;
        engine_turn();
        seen = turns;
        sleep_now(UINT64_MAX, NULL, NULL, 0, NULL, true);
    }
    return NULL;
}

void engine_need_service(int change) {
    relays += change;
    if (relays > 0) {
        service_parked = false;
        pthread_cond_signal(&service_wanted);
    }
}

static int service_start(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&service_wanted, &attributes);
    pthread_condattr_destroy(&attributes);
    int error = thread_create(&service, serve, NULL);
    if (!error) pthread_detach(service);
    return error;
}

/* --- Children that ask for a relay --- */

static void asked(struct event_io *io, int mask) {
    const struct link *wanted;
    while (real_recv(ask[0], &wanted, sizeof wanted, MSG_DONTWAIT) == sizeof wanted) list_each(&links, item) {
            struct link *link = container_of(item, struct link, link);
            if (link == wanted) link_relay(link);
        }
}

int request_relay(const struct link *link) {
    return real_send(ask[1], &link, sizeof link, MSG_NOSIGNAL) == sizeof link ? 0 : -errno;
}

/* --- Life --- */

static pid_t process;

pid_t engine_process(void) {
    return process;
}

/* The handlers of rdma-core's loader, of the software device and of the allocator, which begin() has called, come
 * later: links_await_decision() may use them. fork() is no cancellation point. */
static void run_engine_before_fork(void) {
    int state;
    if (locked_here) return; /* from a signal handler; the child can only exec */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    engine_lock();
    if (loop && !dead) links_await_decision();
    restore_signals();
    cancel_state = state;
}
static void after_fork_in_parent(void) {
    if (locked_here) engine_unlock();
}
static void after_fork_in_child(void) {
    process = getpid();
    sets_after_fork();
    if (loop && !dead) {
        dead = true; /* the verbs objects are the parent's */
        rdma_after_fork_child();
        list_init(&sleepers);
        leader = NULL;
        my_event = 0; /* the kernel's object is shared with the parent's thread */
        links_after_fork();
    }
    if (locked_here) pthread_setcancelstate(cancel_state, NULL);
    locked_here = false;
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void begin(void) {
    real_find();
    process = getpid();
    list_init(&sleepers);
    mappings_read();
    pthread_atfork(run_engine_before_fork, after_fork_in_parent, after_fork_in_child);
}

__attribute__((destructor)) static void finish(void) {
    links_flush();
}

int engine_start(char *error, size_t error_size) {
    if (dead) {
        snprintf(error, error_size, "this process was forked from one that used RDMA");
        return -EPERM;
    }
    int result = verbs_load(error, error_size);
    if (result < 0 || started) return result;
    log_level = LOG_LEVEL_NOTHING; /* standard output belongs to the program */
    rdma_settings.zero_copy_min = 0;
    rdma_settings.rx_size = 256 * 1024;
    if (!loop && (loop = event_loop_try_new())) engine_own(event_loop_fd(loop), true);
    result = loop ? 0 : -errno;
    if (result == 0 && ask[0] < 0) {
        result = socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ask) < 0 ? -errno : 0;
        if (result == 0) ask[0] = engine_high(ask[0]), ask[1] = engine_high(ask[1]);
    }
    if (result == 0 && !ask_io.mask) {
        ask_io.fd = -1;
        result = event_io_set(loop, &ask_io, ask[0], EVENT_READ, asked);
    }
    if (result == 0) result = service_start();
    if (result < 0) snprintf(error, error_size, "%s", strerror(-result)); /* what there is stays for the next attempt */
    started = result == 0;
    return result;
}
