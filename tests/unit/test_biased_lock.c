/* Biased locks: who owns them, and that they exclude. */
#include "lib/system/biased_lock.h"
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>
#include <cmocka.h>

static struct biased_lock lock;

/* True if the last time did not need the mutex. */
static bool take_often(int times) {
    bool owned = false;
    for (int i = 0; i < times; i++) {
        biased_lock_take(&lock);
        owned = lock.held_by != NULL;
        biased_lock_give(&lock);
    }
    return owned;
}

static void *take_once(void *unused) {
    take_often(1);
    return NULL;
}

static void run(void *(*function)(void *)) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_thread_that_uses_it_alone_becomes_the_owner(void **state) {
    biased_lock_init(&lock);
    assert_false(take_often(BIASED_LOCK_ROW));
    if (!take_often(10)) {
        biased_lock_destroy(&lock);
        skip(); /* the kernel has no membarrier() */
    }
    assert_true(take_often(10 * BIASED_LOCK_ROW));
    run(take_once);
    assert_false(take_often(BIASED_LOCK_ROW)); /* from now on twice as often in a row */
    assert_true(take_often(BIASED_LOCK_ROW + 10));
    biased_lock_destroy(&lock);
}

static void after_some_owners_it_is_a_mutex(void **state) {
    biased_lock_init(&lock);
    for (int i = 0; i < BIASED_LOCK_OWNERS; i++) {
        take_often((BIASED_LOCK_ROW << i) + 10);
        run(take_once);
    }
    assert_false(take_often((BIASED_LOCK_ROW << (BIASED_LOCK_OWNERS + 1)) + 10));
    biased_lock_destroy(&lock);
}

/* Threads with rows of different lengths, so that each is the owner at times. What the lock protects is not atomic. */
enum { THREADS = 4, ROWS = 60, LONGEST = 20000 };
static long taken;
static volatile long in_order[2];

static void *take_rows(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument * 7919 + 1;
    long mine = 0;
    for (int row = 0; row < ROWS; row++) {
        seed = seed * 1103515245 + 12345;
        long times = (seed >> 8) % (row % 3 ? 20 : LONGEST);
        for (long i = 0; i < times; i++) {
            biased_lock_take(&lock);
            in_order[0]++;
            taken++;
            in_order[1]++;
            if (in_order[0] != in_order[1]) mine = -1000000000;
            biased_lock_give(&lock);
        }
        mine += times;
        sched_yield();
    }
    return (void *)(intptr_t)mine;
}

static void it_excludes_threads_that_own_it_in_turn(void **state) {
    pthread_t threads[THREADS];
    long expected = 0;
    biased_lock_init(&lock);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_rows, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *mine;
        assert_int_equal(pthread_join(threads[i], &mine), 0);
        expected += (long)(intptr_t)mine;
    }
    assert_int_equal(taken, expected);
    assert_false(biased_lock_is_contended(&lock));
    biased_lock_destroy(&lock);
}

/* Two threads, one of which ends each ownership of the other while that thread takes the lock all the time: the moment
 * that needs the fence. */
enum { LOCKS = 400 };
static struct biased_lock locks[LOCKS];
static long inside[LOCKS], outside[LOCKS];

static bool is_owned(const struct biased_lock *l) {
    const struct biased_lock_owner *owner = atomic_load(&l->owner);
    return atomic_load_explicit(&owner->thread, memory_order_relaxed) != 0;
}
static bool has_owners_left(const struct biased_lock *l) {
    return atomic_load(&l->owner) != &l->owners[BIASED_LOCK_OWNERS];
}

static bool take_alone(int i) {
    biased_lock_take(&locks[i]);
    inside[i]++;
    atomic_signal_fence(memory_order_seq_cst);
    outside[i]++;
    bool alone = inside[i] == outside[i];
    biased_lock_give(&locks[i]);
    return alone;
}

static void *own_each(void *unused) {
    intptr_t times = 0;
    for (int i = 0; i < LOCKS; i++)
        while (has_owners_left(&locks[i])) {
            if (!take_alone(i)) return (void *)(intptr_t)-1;
            times++;
        }
    return (void *)times;
}

static void it_excludes_an_owner_at_the_end_of_the_ownership(void **state) {
    pthread_t owner;
    void *result;
    biased_lock_init(&lock);
    bool owned = take_often(BIASED_LOCK_ROW + 10);
    biased_lock_destroy(&lock);
    if (!owned) skip(); /* the kernel has no membarrier() */
    for (int i = 0; i < LOCKS; i++) biased_lock_init(&locks[i]);
    assert_int_equal(pthread_create(&owner, NULL, own_each, NULL), 0);
    long times = 0, wrong = 0, all = 0;
    for (int i = 0; i < LOCKS; i++)
        while (has_owners_left(&locks[i])) {
            if (!is_owned(&locks[i])) {
                sched_yield();
                continue;
            }
            wrong += !take_alone(i);
            times++;
        }
    assert_int_equal(pthread_join(owner, &result), 0);
    assert_int_equal(wrong, 0);
    assert_int_not_equal((intptr_t)result, -1);
    for (int i = 0; i < LOCKS; i++) {
        all += inside[i];
        biased_lock_destroy(&locks[i]);
    }
    assert_int_equal(times, (long)LOCKS * BIASED_LOCK_OWNERS);
    assert_int_equal(all, times + (intptr_t)result);
}

int main(void) {
    alarm(100); /* threads that were inside together may leave the lock taken for good */
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_thread_that_uses_it_alone_becomes_the_owner),
                                       cmocka_unit_test(after_some_owners_it_is_a_mutex),
                                       cmocka_unit_test(it_excludes_threads_that_own_it_in_turn),
                                       cmocka_unit_test(it_excludes_an_owner_at_the_end_of_the_ownership)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
