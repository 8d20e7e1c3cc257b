/* child.c: see child.h. */
#include "server/process/child.h"
#include "lib/structures/hashtable.h"
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/thread.h"
#include "net/pin.h"
#include "net/value_arena.h"
#include "server/clients/client.h"
#include "server/command/propagate.h"
#include "server/process/process.h"
#include "server/process/process_title.h"
#include "server/server_events.h"
#include "server/stats/latency_monitor.h"
#ifdef USE_RDMA
#include "net/rdma/rdma.h"
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    REPORT_INTERVAL_US = 1000000,
    REPORT_DUTY = 100, /* measuring takes at most 1/REPORT_DUTY of the child's time */
    REAP_RETRY_US = 1000
};
const int CHILD_KILL_SIGNAL = SIGUSR1;

struct child_stats child_stats;
static bool resizing_enabled = true;

/* The children as the server sees them. */
static struct child_process child;         /* of child_start() */
static struct child_reservation *reserved; /* NULL: none */
static uint64_t last_module_cow;
static size_t sessions;

/* The child's own state */
static struct {
    bool yes;
    int pipe_fd;
    struct child_job *job;
    uint64_t keys, next_report_us;
    uint64_t cow, cow_peak, cow_sum, reports;
} self = {.pipe_fd = -1};

enum child_kind child_kind(void) {
    if (child.job) return child.job->kind;
    return reserved ? reserved->kind : CHILD_NONE;
}
pid_t child_active_pid(void) {
    return child.job ? child.pid : 0;
}
uint64_t child_last_module_cow(void) {
    return last_module_cow;
}

struct child_progress child_progress(void) {
    struct child_progress progress = {0};
    if (child.job)
        progress = (struct child_progress){.keys = child.last.keys,
                                           .keys_total = child.job->keys_total,
                                           .cow = child.last.cow,
                                           .cow_peak = child.cow_peak,
                                           .started_ms = child.started_ms};
    if (child.job && child.reported_us) progress.cow_age = (clock_monotonic_us() - child.reported_us) / 1000000;
    if (reserved)
        progress = (struct child_progress){
            .keys = reserved->keys, .keys_total = reserved->keys_total, .started_ms = reserved->started_ms};
    if (progress.keys_total) progress.percent = (double)progress.keys * 100 / (double)progress.keys_total;
    return progress;
}

/* Turns off what would copy shared pages without need. */
static void apply_sharing(void) {
    bool shared = child.job || sessions;
    store_settings.keep_access = shared;
    hashtable_set_resizing(!resizing_enabled ? HASHTABLE_RESIZE_FORBID
                           : shared          ? HASHTABLE_RESIZE_AVOID
                                             : HASHTABLE_RESIZE);
}
void child_set_resizing(bool enabled) {
    resizing_enabled = enabled;
    apply_sharing();
}

/* --- In the child --- */

static void killed(int number) {
    log_write_from_handler("Received SIGUSR1 in child, exiting now.");
    signal(number, SIG_DFL);
    raise(number); /* delivered when the handler returns; wait() in the server then reports the signal */
}

static void become_ordinary_process(void) {
    static const int defaults[] = {SIGCHLD, SIGALRM};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = SIG_DFL;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) sigaction(defaults[i], &action, NULL);
    /* A terminal's interrupt and a service manager's SIGTERM reach the whole group of processes: the server decides
     * whether to end the child. */
    action.sa_handler = SIG_IGN;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = killed;
    sigaction(CHILD_KILL_SIGNAL, &action, NULL);
}

static void close_range_of(unsigned from, unsigned to) {
    if (from > to) return;
#ifdef SYS_close_range
    if (syscall(SYS_close_range, from, to, 0) == 0) return;
#endif
    long limit = sysconf(_SC_OPEN_MAX);
    if (limit > 0 && to >= (unsigned)limit) to = (unsigned)limit - 1;
    for (unsigned fd = from; fd <= to; fd++) close((int)fd);
}
/* While the child holds the descriptor of a connection that the server closed, the peer does not see it close. */
static void close_descriptors(const struct child_job *job) {
    int first = job->keep < self.pipe_fd ? job->keep : self.pipe_fd, last = job->keep + self.pipe_fd - first;
    if (first > STDERR_FILENO) close_range_of(STDERR_FILENO + 1, (unsigned)first - 1);
    close_range_of((unsigned)(first > STDERR_FILENO ? first : STDERR_FILENO) + 1, (unsigned)last - 1);
    close_range_of((unsigned)last + 1, ~0U);
}

/* A child that runs the code of a module may use any descriptor, but must not hold the ports. */
static void close_listeners(void) {
    DIR *directory = opendir("/proc/self/fd");
    if (!directory) return;
    for (const struct dirent *entry; (entry = readdir(directory));) {
        int fd = atoi(entry->d_name), listens = 0;
        socklen_t len = sizeof listens;
        if (fd > STDERR_FILENO && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens) close(fd);
    }
    closedir(directory);
}

static void become_child(struct child_job *job, int pipe_fd) {
    self.yes = server.is_child = true;
    self.pipe_fd = pipe_fd;
    self.job = job;
    self.next_report_us = clock_monotonic_us() + REPORT_INTERVAL_US;
#ifdef USE_RDMA
    rdma_after_fork_child();
#endif
    become_ordinary_process();
    if (job->run)
        close_descriptors(job);
    else
        close_listeners();
    log_set_role('C');
    child.job = NULL; /* the server's children are not this process's */
    reserved = NULL;
    sessions = 0;
    if (job->kind == CHILD_SESSION) {
        propagation_set_origin(PROPAGATION_LOADING);
        clients_detach();
    } else {
        hashtable_set_resizing(HASHTABLE_RESIZE_FORBID);
        store_settings.keep_access = true;
    }
    process_title_child(job->title);
    process_set_oom_score(PROCESS_CHILD);
    const char *cpus = process_bgsave_cpulist();
    int pinned = pin_thread(cpus);
    if (pinned < 0) log_warning("Could not pin a child process to the CPUs %s: %s", cpus, strerror(-pinned));
}

/* Bytes of pages that this process no longer shares: the memory cost of the fork so far. */
static uint64_t private_bytes(void) {
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    if (!file) file = fopen("/proc/self/smaps", "re");
    if (!file) return 0;
    char line[512];
    unsigned long long kilobytes, sum = 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Private_Dirty: %llu kB", &kilobytes) == 1) sum += kilobytes;
    fclose(file);
    return sum * 1024;
}

static void report(void) {
    uint64_t began = clock_monotonic_us();
    self.cow = private_bytes();
    if (self.cow > self.cow_peak) self.cow_peak = self.cow;
    self.cow_sum += self.cow;
    self.reports++;
    struct child_report_data message = {self.keys, self.cow}; /* shorter than PIPE_BUF, so the write is atomic */
    /* If the server is too busy to read, the next report carries newer numbers. If the server has ended, the child must
     * not replace files of a server that may have started since. */
    if (write(self.pipe_fd, &message, sizeof message) < 0 && errno == EPIPE) _exit(1);
    uint64_t now = clock_monotonic_us(), pause = (now - began) * REPORT_DUTY;
    self.next_report_us = now + (pause > REPORT_INTERVAL_US ? pause : REPORT_INTERVAL_US);
}

void child_report(uint64_t keys) {
    if (!self.yes) return;
    self.keys = keys;
    if (clock_monotonic_us() >= self.next_report_us) report();
}

void child_report_end(void) {
    if (!self.yes) return;
    report();
    log_notice("Fork CoW for %s: current %llu MB, peak %llu MB, average %llu MB", self.job->log_name,
               (unsigned long long)(self.cow >> 20), (unsigned long long)(self.cow_peak >> 20),
               (unsigned long long)((self.cow_sum / self.reports) >> 20));
}

/* --- In the server --- */

/* False: the child has closed its end. */
static bool read_reports(struct child_process *process) {
    struct child_report_data message;
    ssize_t got;
    while ((got = read(process->fd, &message, sizeof message)) == (ssize_t)sizeof message) {
        process->last = message;
        if (message.cow > process->cow_peak) process->cow_peak = message.cow;
        process->reported_us = clock_monotonic_us();
    }
    return got != 0;
}

/* False: the child has not ended yet. */
static bool reap(struct child_process *process, int options) {
    int state;
    pid_t pid;
    must(process->job && process->pid > 0);
    do pid = waitpid(process->pid, &state, options);
    while (pid < 0 && errno == EINTR);
    if (pid == 0) return false;
    if (pid < 0) {
        log_warning("Could not get the exit status of child process %d: %s", (int)process->pid, strerror(errno));
        state = 1 << 8;
    }
    read_reports(process);
    struct child_job *job = process->job;
    must(job->kind != CHILD_SESSION || sessions > 0);
    if (job->kind == CHILD_SESSION)
        sessions--;
    else
        last_module_cow = process->last.cow;
    event_timer_cancel(server.loop, &process->reap_timer);
    event_io_remove(server.loop, &process->pipe);
    close(process->fd);
    process->job = NULL;
    value_arena_defer_free(false);
    apply_sharing();
    job->done(job, WIFEXITED(state) ? WEXITSTATUS(state) : 0, WIFSIGNALED(state) ? WTERMSIG(state) : 0);
    server_event(EVENT_FORK_CHILD, 1, NULL); /* last: a module that hears of it may fork again */
    return true;
}

static uint64_t reap_later(struct event_timer *timer) {
    return reap(container_of(timer, struct child_process, reap_timer), WNOHANG) ? 0 : REAP_RETRY_US;
}

/* A report, or the end: the kernel closes the child's descriptors shortly before it can be reaped. */
static void pipe_ready(struct event_io *io, int mask) {
    struct child_process *process = container_of(io, struct child_process, pipe);
    if (read_reports(process)) return;
    event_io_remove(server.loop, io);
    if (!reap(process, WNOHANG)) event_timer_set(server.loop, &process->reap_timer, REAP_RETRY_US, reap_later);
}

static bool pause_after_fork;
void child_set_pause_after_fork(bool enabled) {
    pause_after_fork = enabled;
}
void child_pause_after_fork(void) {
    if (pause_after_fork) raise(SIGSTOP);
}

static pid_t start(struct child_process *process, struct child_job *job) {
    int ends[2];
    must_be_main_thread(); /* and so is the child's only thread */
    must(!process->job);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) return -errno;
    job->keys_total = keyspace_size(server.keyspace);
    value_arena_defer_free(true);
    uint64_t began = clock_monotonic_us();
    background_before_fork();
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        become_child(job, ends[1]);
        if (job->run) _exit(job->run(job));
        return 0;
    }
    int error = errno;
    uint64_t took = clock_monotonic_us() - began;
    close(ends[1]);
    if (pid < 0) {
        value_arena_defer_free(false);
        close(ends[0]);
        return -error;
    }
    child_pause_after_fork();
    child_stats.total_forks++;
    child_stats.latest_fork_us = took;
    child_stats.fork_rate = (double)mem_used() / (double)(took ? took : 1) * 1000000 / (1 << 30);
    latency_event("fork", took);
    server_event(EVENT_FORK_CHILD, 0, NULL);
    *process =
        (struct child_process){.job = job, .pid = pid, .fd = ends[0], .pipe.fd = -1, .started_ms = clock_mono_ms()};
    int result = event_io_set(server.loop, &process->pipe, process->fd, EVENT_READ, pipe_ready);
    if (result < 0) {
        log_warning("Could not watch child process %d, polling for its exit instead: %s", (int)pid, strerror(-result));
        event_timer_set(server.loop, &process->reap_timer, REAP_RETRY_US, reap_later);
    }
    return pid;
}

pid_t child_start(struct child_job *job) {
    if (child_active()) return -EBUSY;
    pid_t pid = start(&child, job);
    if (pid > 0) apply_sharing();
    return pid;
}

pid_t child_start_session(struct child_process *process, struct child_job *job) {
    pid_t pid = start(process, job);
    if (pid < 0) return pid;
    sessions++;
    apply_sharing();
    return pid;
}

size_t child_sessions(void) {
    return sessions;
}

static void kill_process(const struct child_process *process) {
    log_notice("Killing running %s child: %d", process->job->log_name, (int)process->pid);
    kill(process->pid, CHILD_KILL_SIGNAL);
    kill(process->pid, SIGCONT); /* a stopped process acts on the signal only when it continues */
}
void child_reserve(struct child_reservation *reservation) {
    must_be_main_thread();
    must(!child_active());
    reserved = reservation;
}
void child_unreserve(struct child_reservation *reservation) {
    must(reserved == reservation);
    reserved = NULL;
}

void child_kill(void) {
    if (reserved) reserved->kill(reserved, false);
    if (child.job) kill_process(&child);
}
void child_kill_wait(void) {
    if (reserved) {
        reserved->kill(reserved, true);
        return;
    }
    if (!child.job) return;
    child_kill();
    reap(&child, 0);
}
void child_kill_process(struct child_process *process) {
    if (process->job) kill_process(process);
}
