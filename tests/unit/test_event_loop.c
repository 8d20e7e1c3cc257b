/* The event loop: order of timers, removal inside handlers, deferred work, polled sources, wake-ups. */
#include "unit.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "net/event_loop.h"
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

static struct event_loop *loop;

/* Replaces the system call: records when the loop yields, and uses the CPU for yield_takes_us. */
static _Thread_local uint64_t yield_takes_us, last_yield_us, shortest_gap_us;
static _Thread_local unsigned yields;
int sched_yield(void) {
    uint64_t now = clock_monotonic_us();
    if (yields++ && now - last_yield_us < shortest_gap_us) shortest_gap_us = now - last_yield_us;
    while (clock_monotonic_us() - now < yield_takes_us) continue;
    last_yield_us = clock_monotonic_us();
    return 0;
}

/* Replaces the system call: a thread that loses its CPU `switches_a_look` times between two calls, and uses it for
 * ran_a_look_us. */
static _Thread_local long switches_a_look, ran_a_look_us, looks;
int getrusage(__rusage_who_t who, struct rusage *usage) {
    looks++;
    *usage = (struct rusage){.ru_nivcsw = looks * switches_a_look,
                             .ru_utime = {looks * ran_a_look_us / 1000000, looks * ran_a_look_us % 1000000}};
    return 0;
}

static int setup(void **state) {
    switches_a_look = ran_a_look_us = looks = 0;
    loop = event_loop_new();
    return 0;
}
static int teardown(void **state) {
    event_loop_free(loop);
    return 0;
}

struct test_timer {
    struct event_timer timer;
    int number;
};
static int fired[2000], fired_count;
static uint64_t note_timer(struct event_timer *timer) {
    fired[fired_count++] = ((struct test_timer *)timer)->number;
    return 0;
}

/* Runs the loop until *count is `expected`, for PATIENCE_US at most, so that the test passes on a busy machine. */
enum { PATIENCE_US = 10 * 1000 * 1000 };
static void run_until(const int *count, int expected) {
    uint64_t end = clock_monotonic_us() + PATIENCE_US;
    while (*count < expected && clock_monotonic_us() < end) event_loop_turn(loop, 1000);
    event_loop_turn(loop, 0); /* calls too many would show here */
    assert_int_equal(*count, expected);
}

#define LOOP_TEST(name) TEST_WITH(name, setup, teardown)

LOOP_TEST(timers_fire_in_order_of_due_time) {
    struct test_timer timers[1000];
    memset(timers, 0, sizeof timers);
    fired_count = 0;
    for (int i = 0; i < 1000; i++) {
        int n = (i * 617) % 1000; /* an unsorted order */
        timers[n].number = n;
        event_timer_set(loop, &timers[n].timer, (uint64_t)(20000 + n * 50), note_timer);
    }
    run_until(&fired_count, 1000);
    for (int i = 1; i < 1000; i++) assert_true(timers[fired[i - 1]].timer.due_us <= timers[fired[i]].timer.due_us);
}

LOOP_TEST(cancelled_and_reset_timers_keep_the_order) {
    enum { COUNT = 500 };
    struct test_timer timers[COUNT];
    memset(timers, 0, sizeof timers);
    bool cancelled[COUNT] = {false};
    random_seed(7);
    fired_count = 0;
    for (int i = 0; i < COUNT; i++) {
        timers[i].number = i;
        event_timer_set(loop, &timers[i].timer, 1000000 + random_below(1000), note_timer);
    }
    for (int i = 0; i < COUNT; i++) {
        if (random_below(3) == 0) {
            event_timer_cancel(loop, &timers[i].timer);
            event_timer_cancel(loop, &timers[i].timer); /* harmless */
            cancelled[i] = true;
        } else
            event_timer_set(loop, &timers[i].timer, 1000 + random_below(20000), note_timer);
    }
    int expected = 0;
    for (int i = 0; i < COUNT; i++) expected += !cancelled[i];
    run_until(&fired_count, expected);
    for (int i = 0; i < fired_count; i++) {
        assert_false(cancelled[fired[i]]);
        if (i) assert_true(timers[fired[i - 1]].timer.due_us <= timers[fired[i]].timer.due_us);
    }
}

static int periodic_calls;
static uint64_t periodic(struct event_timer *timer) {
    return ++periodic_calls < 4 ? 1000 : 0;
}
LOOP_TEST(a_timer_repeats_until_it_returns_zero) {
    struct event_timer timer = {0};
    periodic_calls = 0;
    event_timer_set(loop, &timer, 1000, periodic);
    run_until(&periodic_calls, 4);
    assert_int_equal(timer.heap_index, 0);
}

static uint64_t free_itself(struct event_timer *timer) {
    mem_free(timer);
    fired_count++;
    return 0;
}
LOOP_TEST(a_timer_may_free_itself) {
    fired_count = 0;
    for (int i = 0; i < 10; i++) event_timer_set(loop, mem_calloc(1, sizeof(struct event_timer)), 100, free_itself);
    run_until(&fired_count, 10);
}

LOOP_TEST(a_turn_waits_no_longer_than_the_next_timer) {
    struct test_timer timer = {.number = 1};
    fired_count = 0;
    event_timer_set(loop, &timer.timer, 3000, note_timer);
    uint64_t begin = clock_monotonic_us();
    while (!fired_count) event_loop_turn(loop, -1);
    uint64_t took = clock_monotonic_us() - begin;
    assert_true(took >= 3000 && took < PATIENCE_US);
}

/* --- Descriptors --- */

struct test_io {
    struct event_io io;
    int calls;
    struct test_io *victim;
};
static void remove_victim(struct event_io *io, int mask) {
    struct test_io *w = (struct test_io *)io;
    w->calls++;
    if (w->victim) event_io_remove(loop, &w->victim->io);
}
LOOP_TEST(a_watch_removed_by_another_handler_is_not_called) {
    struct test_io a = {0}, b = {0};
    int fd_a = eventfd(1, EFD_NONBLOCK), fd_b = eventfd(1, EFD_NONBLOCK);
    a.victim = &b, b.victim = &a;
    assert_int_equal(event_io_set(loop, &a.io, fd_a, EVENT_READ, remove_victim), 0);
    assert_int_equal(event_io_set(loop, &b.io, fd_b, EVENT_READ, remove_victim), 0);
    event_loop_turn(loop, 0); /* both are ready: the handler that runs first removes the other */
    assert_int_equal(a.calls + b.calls, 1);
    event_io_remove(loop, &a.io);
    event_io_remove(loop, &b.io);
    close(fd_a);
    close(fd_b);
}

LOOP_TEST(a_reused_descriptor_does_not_get_its_predecessors_event) {
    struct test_io first = {0}, second = {0}, third = {0};
    int fd1 = eventfd(1, EFD_NONBLOCK), fd2 = eventfd(1, EFD_NONBLOCK);
    first.victim = &second;
    event_io_set(loop, &first.io, fd1, EVENT_READ, remove_victim);
    event_io_set(loop, &second.io, fd2, EVENT_READ, remove_victim);
    /* As if the handler of `first` closed fd2 and the kernel reused the number immediately. */
    event_io_remove(loop, &second.io);
    close(fd2);
    int fd3 = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(fd3, fd2);
    event_io_set(loop, &third.io, fd3, EVENT_READ, remove_victim);
    event_loop_turn(loop, 0);
    assert_int_equal(third.calls, 0);
    assert_int_equal(first.calls, 1);
    event_io_remove(loop, &first.io);
    event_io_remove(loop, &third.io);
    close(fd1);
    close(fd3);
}

LOOP_TEST(the_mask_of_a_watch_can_change) {
    struct test_io w = {0};
    int fd = eventfd(0, EFD_NONBLOCK);
    event_io_set(loop, &w.io, fd, EVENT_READ, remove_victim);
    event_loop_turn(loop, 0);
    assert_int_equal(w.calls, 0);
    event_io_set(loop, &w.io, fd, EVENT_READ | EVENT_WRITE, remove_victim);
    event_loop_turn(loop, 0);
    assert_int_equal(w.calls, 1);
    event_io_set(loop, &w.io, fd, 0, remove_victim);
    event_loop_turn(loop, 0);
    assert_int_equal(w.calls, 1);
    close(fd);
}

/* --- Deferred work --- */

struct test_deferred {
    struct event_deferred deferred;
    int runs;
    bool again;
};
static void run_deferred(struct event_deferred *deferred) {
    struct test_deferred *d = (struct test_deferred *)deferred;
    d->runs++;
    if (d->again) event_loop_defer(loop, deferred, run_deferred);
}
static struct test_deferred *deferred_by_timer;
static int runs_seen_in_inner_turn;
static uint64_t turn_inside(struct event_timer *timer) {
    event_loop_defer(loop, &deferred_by_timer->deferred, run_deferred);
    event_loop_turn(loop, 0);
    runs_seen_in_inner_turn = deferred_by_timer->runs;
    return 0;
}
LOOP_TEST(deferred_work_runs_once_at_the_end_of_the_turn) {
    struct test_deferred d = {0};
    event_loop_defer(loop, &d.deferred, run_deferred);
    event_loop_defer(loop, &d.deferred, run_deferred);
    assert_int_equal(d.runs, 0);
    event_loop_turn(loop, -1); /* does not block: there is work */
    assert_int_equal(d.runs, 1);
    event_loop_turn(loop, 0);
    assert_int_equal(d.runs, 1);
}
LOOP_TEST(deferred_work_that_defers_itself_runs_in_the_next_turn) {
    struct test_deferred d = {.again = true};
    event_loop_defer(loop, &d.deferred, run_deferred);
    event_loop_turn(loop, 0);
    assert_int_equal(d.runs, 1);
    d.again = false;
    event_loop_turn(loop, 0);
    assert_int_equal(d.runs, 2);
}
LOOP_TEST(a_nested_iteration_runs_no_deferred_work) {
    struct test_deferred d = {0};
    struct event_timer timer = {0};
    deferred_by_timer = &d;
    event_timer_set(loop, &timer, 0, turn_inside);
    while (!d.runs) event_loop_turn(loop, 1000);
    assert_int_equal(runs_seen_in_inner_turn, 0);
    assert_int_equal(d.runs, 1);
}

/* --- Polled sources --- */

struct test_poller {
    struct event_poller poller;
    int work, polls, prepared;
    bool refuse_sleep, leave;
};
static int poll_test(struct event_poller *poller) {
    struct test_poller *p = (struct test_poller *)poller;
    p->polls++;
    if (p->leave) event_poller_remove(loop, poller);
    if (!p->work) return 0;
    p->work--;
    return 1;
}
static bool prepare_test(struct event_poller *poller) {
    struct test_poller *p = (struct test_poller *)poller;
    p->prepared++;
    return !p->refuse_sleep;
}

static bool prepare_without_work(struct event_poller *poller) {
    return ((struct test_poller *)poller)->work == 0;
}

LOOP_TEST(a_busy_poller_keeps_the_loop_from_sleeping) {
    struct test_poller p = {.poller = {.poll = poll_test, .prepare_sleep = prepare_without_work}, .work = 100};
    event_poller_add(loop, &p.poller);
    uint64_t sleeps = event_loop_stats(loop)->sleeps;
    event_loop_turn(loop, 0); /* finds the first work */
    while (p.work) event_loop_turn(loop, 1000);
    if (!event_loop_stats(loop)->spin_pauses) assert_int_equal(event_loop_stats(loop)->sleeps, sleeps);
    assert_int_equal(p.polls, 100);
    event_poller_remove(loop, &p.poller);
}
LOOP_TEST(a_poller_that_does_not_spin_lets_the_loop_sleep_right_after_its_work) {
    struct test_poller p = {.poller = {.poll = poll_test, .prepare_sleep = prepare_without_work}, .work = 1};
    event_poller_add(loop, &p.poller);
    uint64_t sleeps = event_loop_stats(loop)->sleeps;
    event_loop_turn(loop, 0);
    assert_int_equal(p.polls, 1);
    event_loop_turn(loop, 1000);
    assert_int_equal(event_loop_stats(loop)->sleeps, sleeps + 1);
    event_poller_remove(loop, &p.poller);
}
LOOP_TEST(a_poller_spins_for_its_time_and_then_sleeps) {
    struct test_poller p = {.poller = {.poll = poll_test, .prepare_sleep = prepare_test, .spin_us = 20000}, .work = 1};
    event_poller_add(loop, &p.poller);
    clock_update();
    uint64_t begin = clock_mono(); /* before the work that it spins after */
    event_loop_turn(loop, 0);
    p.prepared = 0;
    while (!p.prepared) event_loop_turn(loop, 100);
    uint64_t took = clock_monotonic_us() - begin;
    assert_true(took >= 20000 || event_loop_stats(loop)->spin_pauses);
    assert_true(took < PATIENCE_US);
    assert_true(p.polls > 1);
    event_poller_remove(loop, &p.poller);
}
LOOP_TEST(a_poller_that_found_something_while_arming_prevents_sleep) {
    struct test_poller p = {.poller = {.poll = poll_test, .prepare_sleep = prepare_test}, .refuse_sleep = true};
    event_poller_add(loop, &p.poller);
    uint64_t begin = clock_monotonic_us();
    event_loop_turn(loop, 2 * PATIENCE_US);
    assert_true(clock_monotonic_us() - begin < PATIENCE_US);
    event_poller_remove(loop, &p.poller);
}
LOOP_TEST(a_descriptor_is_served_while_a_poller_spins) {
    struct test_poller p = {.poller = {.poll = poll_test, .prepare_sleep = prepare_test, .spin_us = 2 * PATIENCE_US},
                            .work = 1};
    struct test_io w = {0};
    int fd = eventfd(0, EFD_NONBLOCK);
    event_poller_add(loop, &p.poller);
    event_io_set(loop, &w.io, fd, EVENT_READ, remove_victim);
    event_loop_turn(loop, 0);
    uint64_t one = 1, begin = clock_monotonic_us();
    assert_int_equal(write(fd, &one, sizeof one), sizeof one);
    while (!w.calls) event_loop_turn(loop, -1);
    assert_true(clock_monotonic_us() - begin < PATIENCE_US); /* 50 us on an idle CPU */
    event_poller_remove(loop, &p.poller);
    event_io_remove(loop, &w.io);
    close(fd);
}
/* A poller that had work recently and has none now, so that the loop spins. */
static struct test_poller spinning_poller(void) {
    return (struct test_poller){
        .poller = {.poll = poll_test, .prepare_sleep = prepare_test, .spin_us = 2 * PATIENCE_US}, .work = 1};
}
LOOP_TEST(a_spinning_iteration_polls_repeatedly) {
    struct test_poller p = spinning_poller();
    event_poller_add(loop, &p.poller);
    event_loop_turn(loop, 0);
    uint64_t end = clock_monotonic_us() + PATIENCE_US;
    int polls = 0;
    while (polls < 2 && clock_monotonic_us() < end) { /* a turn that is interrupted polls only once */
        uint64_t turns = event_loop_stats(loop)->turns;
        p.polls = 0;
        event_loop_turn(loop, 1000);
        assert_int_equal(event_loop_stats(loop)->turns - turns, 1);
        polls = p.polls;
    }
    assert_true(polls > 1);
    if (!event_loop_stats(loop)->spin_pauses) assert_int_equal(p.prepared, 0);
    event_poller_remove(loop, &p.poller);
}
LOOP_TEST(a_nonblocking_iteration_polls_once) {
    struct test_poller p = spinning_poller();
    event_poller_add(loop, &p.poller);
    event_loop_turn(loop, 0);
    assert_int_equal(p.polls, 1);
    event_loop_turn(loop, 0);
    assert_int_equal(p.polls, 2);
    event_poller_remove(loop, &p.poller);
}
LOOP_TEST(a_spinning_iteration_yields_the_cpu) {
    struct test_poller p = spinning_poller();
    event_poller_add(loop, &p.poller);
    event_loop_turn(loop, 0); /* the poller has its work */
    yields = 0, yield_takes_us = 0;
    while (!yields) event_loop_turn(loop, 1000); /* on a busy CPU the loop does not spin for a while */
    assert_int_equal(event_loop_stats(loop)->yields, yields);
    event_poller_remove(loop, &p.poller);
}

static void ignore_event(struct event_io *io, int mask) {}
LOOP_TEST(after_short_sleeps_the_loop_looks_for_events_before_it_sleeps) {
    const struct event_loop_stats *stats = event_loop_stats(loop);
    struct event_io io = {0};
    int fd = eventfd(1, EFD_NONBLOCK);
    uint64_t value, end = clock_monotonic_us() + PATIENCE_US;
    yield_takes_us = 0;
    assert_int_equal(event_io_set(loop, &io, fd, EVENT_READ, ignore_event), 0);
    while (!stats->spins && clock_monotonic_us() < end) event_loop_turn(loop, 5000); /* always readable */
    assert_int_not_equal(stats->spins, 0);
    uint64_t sleeps = stats->sleeps;
    event_loop_turn(loop, 5000);
    assert_int_equal(stats->sleeps, sleeps);
    assert_int_equal(read(fd, &value, sizeof value), sizeof value);
    uint64_t spins = stats->spins;
    event_loop_turn(loop, 5000); /* no work arrives */
    assert_int_equal(stats->sleeps, sleeps + 1);
    assert_true(stats->spins > spins);
    spins = stats->spins;
    event_loop_turn(loop, 5000);
    assert_int_equal(stats->sleeps, sleeps + 2);
    assert_int_equal(stats->spins, spins);
    event_io_remove(loop, &io);
    close(fd);
}

LOOP_TEST(after_long_yields_the_loop_sleeps_for_a_pause) {
    enum { LONG_US = 9 * 1000, FACTOR = 20, WAIT_US = 500 };
    const struct event_loop_stats *stats = event_loop_stats(loop);
    struct test_poller p = spinning_poller();
    p.poller.spin_us = EVENT_SPIN_ALWAYS_US - 1;
    event_poller_add(loop, &p.poller);
    event_loop_turn(loop, 0); /* the poller has its work */
    yields = 0, yield_takes_us = LONG_US, shortest_gap_us = UINT64_MAX;
    for (int turns = 0; yields < 3; turns++) {
        p.work = turns & 1; /* or the time to spin is over */
        event_loop_turn(loop, WAIT_US);
    }
    yield_takes_us = 0;
    assert_true(shortest_gap_us >= LONG_US * FACTOR);
    assert_true(stats->spin_pauses >= 3);
    assert_true(stats->sleeps > 0);
    assert_true(p.prepared > 0);
    event_poller_remove(loop, &p.poller);
}

LOOP_TEST(short_losses_cause_a_pause_when_they_add_up) {
    enum { LONG_US = 700, SUM_US = 8000 };
    struct test_poller p = spinning_poller();
    p.poller.spin_us = EVENT_SPIN_ALWAYS_US - 1;
    event_poller_add(loop, &p.poller);
    uint64_t began = clock_monotonic_us();
    yield_takes_us = LONG_US;
    for (int turns = 0; !event_loop_stats(loop)->spin_pauses; turns++) {
        p.work = turns & 1; /* or the time to spin is over */
        event_loop_turn(loop, 500);
    }
    yield_takes_us = 0;
    assert_true(clock_monotonic_us() - began >= SUM_US);
    event_poller_remove(loop, &p.poller);
}

LOOP_TEST(a_poller_that_spins_for_long_has_no_pauses) {
    struct test_poller p = spinning_poller();
    event_poller_add(loop, &p.poller);
    event_loop_turn(loop, 0);
    yields = 0, yield_takes_us = 600;
    uint64_t sleeps = event_loop_stats(loop)->sleeps;
    for (int i = 0; i < 100; i++) event_loop_turn(loop, 500);
    yield_takes_us = 0;
    assert_true(yields > 0);
    assert_int_equal(event_loop_stats(loop)->sleeps, sleeps);
    event_poller_remove(loop, &p.poller);
}

LOOP_TEST(pauses_grow_to_two_seconds_while_the_cpu_is_lost) {
    enum { LONG_US = 120 * 1000, MOST_US = 2000 * 1000, WAIT_US = 10 * 1000 };
    struct test_poller p = spinning_poller();
    event_poller_add(loop, &p.poller);
    event_loop_turn(loop, 0);
    yields = 0, yield_takes_us = LONG_US, shortest_gap_us = UINT64_MAX;
    while (yields < 2) event_loop_turn(loop, WAIT_US);
    yield_takes_us = 0;
    assert_true(shortest_gap_us >= MOST_US - WAIT_US);
    event_poller_remove(loop, &p.poller);
}

LOOP_TEST(a_loop_with_work_stops_spinning_after_involuntary_switches) {
    enum { LOOKS = 5 };
    const struct event_loop_stats *stats = event_loop_stats(loop);
    struct test_poller p = spinning_poller();
    p.work = INT_MAX;
    event_poller_add(loop, &p.poller);
    ran_a_look_us = 5000;
    while (looks < LOOKS) event_loop_turn(loop, 1000);
    assert_int_equal(stats->spin_pauses, 0);
    switches_a_look = 2, looks = 0;
    while (!stats->spin_pauses) event_loop_turn(loop, 1000);
    assert_true(looks >= 2); /* the first look only begins */
    long before = looks;
    uint64_t end = clock_monotonic_us() + 100 * 1000;
    while (clock_monotonic_us() < end) event_loop_turn(loop, 1000);
    assert_int_equal(looks, before); /* not during a pause */
    event_poller_remove(loop, &p.poller);
}

LOOP_TEST(a_wake_up_and_deferred_work_end_a_spin) {
    struct test_poller p = spinning_poller();
    struct test_deferred d = {0};
    event_poller_add(loop, &p.poller);
    event_loop_turn(loop, 0);
    event_loop_wake(loop);
    event_loop_turn(loop, -1);
    assert_int_equal(p.polls, 2);
    event_loop_defer(loop, &d.deferred, run_deferred);
    event_loop_turn(loop, -1);
    assert_int_equal(d.runs, 1);
    assert_int_equal(p.polls, 3);
    event_poller_remove(loop, &p.poller);
}
LOOP_TEST(a_timer_is_fired_while_a_poller_spins) {
    struct test_poller p = spinning_poller();
    struct test_timer t = {0};
    event_poller_add(loop, &p.poller);
    event_loop_turn(loop, 0);
    fired_count = 0;
    uint64_t begin = clock_monotonic_us();
    event_timer_set(loop, &t.timer, 300, note_timer);
    while (!fired_count) event_loop_turn(loop, -1);
    uint64_t took = clock_monotonic_us() - begin;
    assert_true(took >= 300 && took < PATIENCE_US);
    event_poller_remove(loop, &p.poller);
}
LOOP_TEST(a_followed_clock_goes_on_and_comes_back_from_a_frozen_one) {
    clock_update();
    uint64_t before = clock_mono();
    usleep(100);
    clock_follow();
    assert_true(clock_mono() >= before + 100);
    clock_freeze();
    int64_t frozen = clock_data_ms(), seen = clock_us();
    usleep(2000);
    clock_update();
    assert_int_equal(clock_data_ms(), frozen);
    assert_true(clock_us() > seen);
    clock_thaw();
    clock_follow();
    assert_true(clock_data_ms() > frozen);
}
LOOP_TEST(pollers_may_leave_while_they_are_polled) {
    struct test_poller p[3];
    memset(p, 0, sizeof p);
    for (int i = 0; i < 3; i++) {
        p[i].poller.poll = poll_test;
        p[i].leave = true;
        event_poller_add(loop, &p[i].poller);
    }
    event_loop_turn(loop, 0);
    event_loop_turn(loop, 0);
    for (int i = 0; i < 3; i++) assert_int_equal(p[i].polls, 1);
}

/* --- Wake-up, hooks, attachments --- */

static _Atomic int turns_ended;
/* Two wake-ups that no turn separates count as one. */
static void *wake_soon(void *argument) {
    for (int i = 0; i < 3; i++) {
        while (turns_ended < i) usleep(100);
        usleep(5000);
        event_loop_wake(loop);
    }
    return NULL;
}
LOOP_TEST(another_thread_can_end_the_wait) {
    pthread_t thread;
    uint64_t begin = clock_monotonic_us();
    turns_ended = 0;
    pthread_create(&thread, NULL, wake_soon, NULL);
    for (int i = 0; i < 3; i++, turns_ended++) event_loop_turn(loop, 60000000);
    assert_true(clock_monotonic_us() - begin < 60000000);
    pthread_join(thread, NULL);
}

static char hook_order[16];
static void hook_before(void *context) {
    strcat(hook_order, "b");
}
static void hook_asleep(void *context) {
    strcat(hook_order, "s");
}
static bool hook_awake(void *context) {
    strcat(hook_order, "a");
    return false;
}
LOOP_TEST(hooks_run_around_the_wait) {
    event_loop_set_hooks(loop,
                         &(struct event_hooks){.before_wait = hook_before, .asleep = hook_asleep, .awake = hook_awake});
    hook_order[0] = '\0';
    event_loop_turn(loop, 0);
    event_loop_turn(loop, 0);
    assert_string_equal(hook_order, "bsabsa");
}

/* A thread uses the loop while its own thread waits: sets a timer, defers work, and removes a descriptor that is
 * ready. */
static struct {
    struct event_timer timer;
    struct event_deferred deferred;
    struct event_io io;
    int pipe[2], fired, ran, read;
    bool started;
    pthread_t thread;
} shared;
static uint64_t shared_fire(struct event_timer *timer) {
    shared.fired++;
    return 0;
}
static void shared_run(struct event_deferred *deferred) {
    shared.ran++;
}
static void shared_ready(struct event_io *io, int mask) {
    shared.read++;
}
static void *use_the_loop(void *argument) {
    event_loop_adopt(loop);
    event_timer_set(loop, &shared.timer, 1, shared_fire);
    event_loop_defer(loop, &shared.deferred, shared_run);
    event_io_remove(loop, &shared.io);
    event_loop_wake(loop);
    return NULL;
}
static void shared_asleep(void *context) {
    shared.started = !shared.fired;
    if (shared.started) pthread_create(&shared.thread, NULL, use_the_loop, NULL);
}
static bool shared_awake(void *context) {
    if (shared.started) pthread_join(shared.thread, NULL);
    return shared.started;
}
LOOP_TEST(another_thread_uses_the_loop_during_the_wait) {
    memset(&shared, 0, sizeof shared);
    assert_int_equal(pipe(shared.pipe), 0);
    assert_int_equal(write(shared.pipe[1], "x", 1), 1);
    event_io_set(loop, &shared.io, shared.pipe[0], EVENT_READ, shared_ready);
    event_loop_set_hooks(loop, &(struct event_hooks){.asleep = shared_asleep, .awake = shared_awake});
    for (int i = 0; i < 10 && !shared.fired; i++) event_loop_turn(loop, 1000000);
    assert_int_equal(shared.fired, 1);
    assert_true(shared.ran > 0);
    assert_int_equal(shared.read, 0);
    event_loop_set_hooks(loop, NULL);
    close(shared.pipe[0]);
    close(shared.pipe[1]);
}

static uint64_t stop_loop(struct event_timer *timer) {
    event_loop_stop(loop);
    return 0;
}
LOOP_TEST(run_returns_after_stop) {
    struct event_timer timer = {0};
    event_timer_set(loop, &timer, 1000, stop_loop);
    event_loop_run(loop);
    event_timer_set(loop, &timer, 1000, stop_loop);
    event_loop_run(loop);
}

static int attachments_freed;
static void free_attachment(struct event_attachment *attachment) {
    attachments_freed++;
}
LOOP_TEST(an_attachment_is_found_by_its_key_and_freed_with_the_loop) {
    static const char key_a, key_b;
    struct event_loop *own = event_loop_new();
    struct event_attachment a = {.key = &key_a, .free = free_attachment};
    event_loop_attach(own, &a);
    assert_ptr_equal(event_loop_attachment(own, &key_a), &a);
    assert_null(event_loop_attachment(own, &key_b));
    attachments_freed = 0;
    event_loop_free(own);
    assert_int_equal(attachments_freed, 1);
}

/* --- Posts --- */

struct numbered_post {
    struct event_post post;
    int sender, number;
};
enum { SENDERS = 3, POSTS = 20000 };
static int next_of[SENDERS], posts_run;
static void note_post(struct event_post *post) {
    struct numbered_post *numbered = (struct numbered_post *)post;
    assert_int_equal(numbered->number, next_of[numbered->sender]++);
    posts_run++;
    mem_free(numbered);
}
static void *send_posts(void *argument) {
    for (int i = 0; i < POSTS; i++) {
        struct numbered_post *numbered = mem_alloc(sizeof *numbered);
        *numbered = (struct numbered_post){.post.run = note_post, .sender = *(int *)argument, .number = i};
        event_loop_post(loop, &numbered->post);
        if (i % 1000 == 0) usleep(500); /* the loop goes to sleep meanwhile */
    }
    return NULL;
}
LOOP_TEST(posts_of_each_thread_keep_their_order_and_wake_the_loop) {
    pthread_t senders[SENDERS];
    int numbers[SENDERS];
    memset(next_of, 0, sizeof next_of);
    posts_run = 0;
    event_loop_take_posts(loop);
    for (int i = 0; i < SENDERS; i++) numbers[i] = i, pthread_create(&senders[i], NULL, send_posts, &numbers[i]);
    while (posts_run < SENDERS * POSTS) event_loop_turn(loop, -1); /* a lost wake-up would never return */
    for (int i = 0; i < SENDERS; i++) pthread_join(senders[i], NULL);
}

static struct event_loop *other;
static void stop_other(struct event_post *post) {
    event_loop_stop(other);
}
static void *run_other(void *argument) {
    event_loop_run(other);
    return NULL;
}
static struct event_outbox outbox;
static struct event_post answer;
static void note_answer(struct event_post *post) {
    posts_run++;
}
static void answer_it(struct event_post *post) {
    event_outbox_add(&outbox, &answer);
}
LOOP_TEST(an_outbox_is_published_before_its_loop_waits) {
    pthread_t thread;
    struct event_post question = {.run = answer_it}, stop = {.run = stop_other};
    other = event_loop_new();
    event_loop_take_posts(loop);
    event_loop_take_posts(other);
    event_outbox_init(&outbox, other, loop);
    answer.run = note_answer;
    posts_run = 0;
    pthread_create(&thread, NULL, run_other, NULL);
    for (int i = 1; i <= 200; i++) {
        event_loop_post(other, &question);
        while (posts_run < i) event_loop_turn(loop, -1);
    }
    event_loop_post(other, &stop);
    pthread_join(thread, NULL);
    event_loop_free(other);
}

/* Posts that do not run are freed: those that were published, that the loop had fetched when it was stopped for good,
 * that wait in its outboxes, and that arrive while its attachments are freed. */
static int posts_dropped;
static void drop_post(struct event_post *post) {
    posts_dropped++;
    mem_free(post);
}
static void run_and_free(struct event_post *post) {
    posts_run++;
    mem_free(post);
}
static struct event_post *droppable(void (*run)(struct event_post *)) {
    struct event_post *post = mem_alloc(sizeof *post);
    *post = (struct event_post){.run = run, .drop = drop_post};
    return post;
}
static void drop_the_next(struct event_post *post) {
    run_and_free(post);
    event_loop_drop_posts(other); /* the next one, which is fetched */
    assert_int_equal(posts_dropped, 1);
}
static void attachment_posts(struct event_attachment *attachment) {
    assert_int_equal(posts_dropped, 3); /* its posts were dropped before it */
    event_loop_post(other, droppable(run_and_free));
}
LOOP_TEST(posts_that_never_run_are_dropped_with_their_loop) {
    static const char key;
    struct event_post kept = {.run = note_answer}; /* without drop(): its sender keeps it */
    struct event_attachment attachment = {.key = &key, .free = attachment_posts};
    struct event_outbox unsent;
    posts_run = posts_dropped = 0;
    other = event_loop_new();
    event_loop_take_posts(other);
    event_loop_post(other, droppable(drop_the_next));
    event_loop_post(other, droppable(run_and_free));
    event_loop_turn(other, 0);
    assert_int_equal(posts_run, 1);
    event_outbox_init(&unsent, other, loop);
    event_outbox_add(&unsent, droppable(run_and_free));
    event_loop_post(other, droppable(run_and_free));
    event_loop_post(other, &kept);
    event_loop_attach(other, &attachment);
    event_loop_free(other);
    assert_int_equal(posts_dropped, 4);
    assert_int_equal(posts_run, 1);
    assert_int_equal(unsent.count, 0);
}
