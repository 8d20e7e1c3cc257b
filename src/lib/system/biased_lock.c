/* biased_lock.c: see biased_lock.h. */
#include "lib/system/biased_lock.h"
#include "lib/system/must.h"
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool membarrier_exists;

static int membarrier(int command) {
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

static void find_membarrier(void) {
    membarrier_exists = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

/* A fence in every thread. If the kernel refuses it now (a filter that was installed meanwhile), this thread waits for
 * far longer than any CPU delays a store. */
static void fence_everywhere(void) {
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
}

void biased_lock_init(struct biased_lock *lock) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_membarrier);
    *lock = (struct biased_lock){.wanted = BIASED_LOCK_ROW};
    atomic_store_explicit(&lock->owner, lock->owners, memory_order_relaxed);
    pthread_mutex_init(&lock->mutex, NULL);
}

void biased_lock_destroy(struct biased_lock *lock) {
    must(!lock->held_by && !biased_lock_is_contended(lock));
    pthread_mutex_destroy(&lock->mutex);
}

/* Of another thread. With the mutex, so that there is one at a time. */
static void end_ownership(struct biased_lock *lock, struct biased_lock_owner *owner) {
    atomic_fetch_add_explicit(&lock->contenders, 1, memory_order_relaxed);
    atomic_store_explicit(&owner->thread, 0, memory_order_relaxed);
    atomic_store_explicit(&lock->owner, owner + 1, memory_order_release);
    fence_everywhere();
    while (atomic_load_explicit(&owner->inside, memory_order_acquire)) sched_yield();
    atomic_fetch_sub_explicit(&lock->contenders, 1, memory_order_relaxed);
    lock->row = 0;
    lock->wanted *= 2;
}

void biased_lock_take_mutex(struct biased_lock *lock) {
    uintptr_t me = (uintptr_t)pthread_self();
    bool waits = pthread_mutex_trylock(&lock->mutex) != 0;
    if (waits) {
        atomic_fetch_add_explicit(&lock->contenders, 1, memory_order_relaxed);
        pthread_mutex_lock(&lock->mutex);
        atomic_fetch_sub_explicit(&lock->contenders, 1, memory_order_relaxed);
    }
    struct biased_lock_owner *owner = atomic_load_explicit(&lock->owner, memory_order_relaxed);
    if (atomic_load_explicit(&owner->thread, memory_order_relaxed)) end_ownership(lock, owner++);
    lock->row = lock->last == me && !waits ? lock->row + 1 : 0;
    lock->last = me;
    if (lock->row < lock->wanted || owner == &lock->owners[BIASED_LOCK_OWNERS] || !membarrier_exists) return;
    atomic_store_explicit(&owner->thread, me, memory_order_relaxed);
}
