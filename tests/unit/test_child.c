/* The module of child processes: one child at a time, their end, their reports, their open descriptors, and the work
 * that the server pauses meanwhile. */
#include "unit.h"
#include <stdio.h>

#include "lib/system/clock.h"
#include "server/process/child.h"
#include "server/server.h"
#include "server/store_events.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

enum { PATIENCE_US = 60 * 1000000 };

static int done_count, done_status, done_signal;
static void done(struct child_job *job, int status, int signal) {
    assert_false(child_active());
    done_count++;
    done_status = status;
    done_signal = signal;
}

static int return_status;
static int run_returns(struct child_job *job) {
    return return_status;
}
static int run_forever(struct child_job *job) {
    while (pause() < 0) continue; /* until a signal ends the process */
    return 0;
}
static int run_reports(struct child_job *job) {
    child_report(3);
    child_report_end();
    return server.is_child && job->keys_total == 7 ? 0 : 1;
}
static int kept_fd, other_fd;
static int run_looks_at_descriptors(struct child_job *job) {
    if (fcntl(kept_fd, F_GETFD) < 0) return 1;
    if (fcntl(other_fd, F_GETFD) >= 0 || errno != EBADF) return 2;
    return store_settings.keep_access ? 0 : 3;
}

static struct child_job job_of(int (*run)(struct child_job *)) {
    done_count = 0;
    done_status = done_signal = -1;
    return (struct child_job){
        .kind = CHILD_MODULE, .title = "test-child", .log_name = "test", .run = run, .done = done};
}
static void wait_done(void) {
    uint64_t end = clock_monotonic_us() + PATIENCE_US;
    while (!done_count && clock_monotonic_us() < end) event_loop_turn(server.loop, 100000);
    assert_int_equal(done_count, 1);
}

static int setup(void **state) {
    clock_update();
    server.loop = event_loop_new();
    server.keyspace = keyspace_new(2, &store_events);
    return 0;
}
static int teardown(void **state) {
    keyspace_free(server.keyspace);
    event_loop_free(server.loop);
    return 0;
}

TEST(the_exit_status_reaches_done) {
    static const int statuses[] = {0, 1, 77};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        return_status = statuses[i];
        struct child_job job = job_of(run_returns);
        uint64_t forks = child_stats.total_forks;
        pid_t pid = child_start(&job);
        assert_true(pid > 0);
        assert_int_equal(child_active_pid(), pid);
        assert_int_equal(child_kind(), CHILD_MODULE);
        wait_done();
        assert_int_equal(done_status, statuses[i]);
        assert_int_equal(done_signal, 0);
        assert_int_equal(child_active_pid(), 0);
        assert_int_equal(child_stats.total_forks, forks + 1);
    }
}

TEST(one_child_runs_at_a_time) {
    struct child_job job = job_of(run_forever), second = job_of(run_returns);
    assert_true(child_start(&job) > 0);
    assert_int_equal(child_start(&second), -EBUSY);
    child_kill_wait();
    assert_int_equal(done_count, 1);
    assert_int_equal(done_signal, CHILD_KILL_SIGNAL);
    return_status = 0;
    done_count = 0;
    assert_true(child_start(&second) > 0);
    wait_done();
}

TEST(a_killed_child_reports_the_signal) {
    struct child_job job = job_of(run_forever);
    assert_true(child_start(&job) > 0);
    child_kill();
    wait_done();
    assert_int_equal(done_signal, CHILD_KILL_SIGNAL);
    job = job_of(run_forever);
    pid_t pid = child_start(&job);
    assert_true(pid > 0);
    kill(pid, SIGKILL);
    wait_done();
    assert_int_equal(done_signal, SIGKILL);
    child_kill(); /* nothing to kill */
    child_kill_wait();
    assert_int_equal(done_count, 1);
}

TEST(children_ignore_interrupts_and_sigterm) {
    struct child_job job = job_of(run_forever);
    pid_t pid = child_start(&job);
    assert_true(pid > 0);
    /* Its descriptors are closed after its signals are set. */
    char path[64];
    uint64_t end = clock_monotonic_us() + PATIENCE_US;
    bool ignored = false;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    while (!ignored && clock_monotonic_us() < end) {
        FILE *file = fopen(path, "re");
        char line[256];
        unsigned long long mask;
        while (file && fgets(line, sizeof line, file))
            if (sscanf(line, "SigIgn: %llx", &mask) == 1) ignored = mask >> (SIGINT - 1) & mask >> (SIGTERM - 1) & 1;
        if (file) fclose(file);
    }
    assert_true(ignored);
    kill(pid, SIGINT);
    kill(pid, SIGTERM);
    child_kill_wait();
    assert_int_equal(done_signal, CHILD_KILL_SIGNAL);
}

TEST(keys_and_copied_memory_are_reported) {
    for (int i = 0; i < 7; i++) {
        char key = (char)('a' + i);
        db_set_int64(keyspace_db(server.keyspace, i % 2), (struct slice){&key, 1}, i, false);
    }
    struct child_job job = job_of(run_reports);
    assert_true(child_start(&job) > 0);
    assert_int_equal(child_progress().keys_total, 7);
    wait_done();
    assert_int_equal(done_status, 0);
    assert_true(child_last_module_cow() > 0);
    assert_int_equal(child_progress().keys_total, 0);
    assert_false(server.is_child);
}

TEST(a_child_keeps_only_its_jobs_descriptors) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    kept_fd = ends[0];
    other_fd = ends[1];
    struct child_job job = job_of(run_looks_at_descriptors);
    job.keep = kept_fd;
    assert_true(child_start(&job) > 0);
    wait_done();
    assert_int_equal(done_status, 0);
    assert_true(fcntl(other_fd, F_GETFD) >= 0);
    close(ends[0]);
    close(ends[1]);
}

TEST(access_times_stay_while_memory_is_shared) {
    struct child_job job = job_of(run_forever);
    assert_false(store_settings.keep_access);
    assert_true(child_start(&job) > 0);
    assert_true(store_settings.keep_access);
    child_kill_wait();
    assert_false(store_settings.keep_access);
}

static struct child_job session_of(int (*run)(struct child_job *)) {
    struct child_job job = job_of(run);
    job.kind = CHILD_SESSION;
    return job;
}
static int ended_sessions;
static void session_done(struct child_job *job, int status, int signal) {
    assert_int_equal(signal, CHILD_KILL_SIGNAL);
    ended_sessions++;
}

TEST(sessions_run_beside_a_child_and_beside_each_other) {
    enum { COUNT = 3 };
    struct child_process processes[COUNT] = {0};
    struct child_job jobs[COUNT], snapshot;
    ended_sessions = 0;
    for (int i = 0; i < COUNT; i++) {
        jobs[i] = session_of(run_forever);
        jobs[i].done = session_done;
        assert_true(child_start_session(&processes[i], &jobs[i]) > 0);
    }
    assert_int_equal(child_sessions(), COUNT);
    assert_int_equal(child_kind(), CHILD_NONE);
    return_status = 0;
    snapshot = job_of(run_returns);
    assert_true(child_start(&snapshot) > 0);
    wait_done();
    assert_int_equal(child_sessions(), COUNT);
    assert_true(store_settings.keep_access);
    for (int i = 0; i < COUNT; i++) child_kill_process(&processes[i]);
    uint64_t end = clock_monotonic_us() + PATIENCE_US;
    while (ended_sessions < COUNT && clock_monotonic_us() < end) event_loop_turn(server.loop, 100000);
    assert_int_equal(ended_sessions, COUNT);
    assert_int_equal(child_sessions(), 0);
    assert_false(store_settings.keep_access);
    child_kill_process(&processes[0]); /* nothing to kill */
}

static int session_exit;
static void session_status(struct child_job *job, int status, int signal) {
    session_exit = signal ? 1000 + signal : status;
}
static int run_looks_for_other_children(struct child_job *job) {
    child_kill(); /* the server's child is not this process's */
    return child_active() || child_sessions() || !server.is_child;
}
TEST(a_session_does_not_know_the_servers_children) {
    struct child_job snapshot = job_of(run_forever);
    assert_true(child_start(&snapshot) > 0);
    struct child_process process = {0};
    struct child_job job = session_of(run_looks_for_other_children);
    job.done = session_status;
    session_exit = -1;
    assert_true(child_start_session(&process, &job) > 0);
    uint64_t end = clock_monotonic_us() + PATIENCE_US;
    while (session_exit < 0 && clock_monotonic_us() < end) event_loop_turn(server.loop, 100000);
    assert_int_equal(session_exit, 0);
    assert_int_equal(child_kind(), CHILD_MODULE);
    child_kill_wait();
    assert_int_equal(done_signal, CHILD_KILL_SIGNAL);
}

int main(void) {
    return RUN_TESTS_WITH(setup, teardown);
}
