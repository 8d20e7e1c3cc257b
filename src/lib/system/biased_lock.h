/* biased_lock.h: a mutex that costs a thread next to nothing while no other thread uses it.
 *
 * A thread that has taken the lock often in a row becomes its owner. The owner takes it without an atomic
 * read-modify-write operation and without a fence: it sets `inside` and then looks whether it is still the owner.
 * Another thread takes the mutex, ends the ownership, and waits until the owner is not inside. Neither thread's store
 * may be delayed beyond its load. The other thread enforces that for both with membarrier(2), which makes every running
 * thread of the process execute a fence. Where the kernel has no membarrier() the lock is a plain mutex.
 *
 * Ending an ownership takes microseconds. The number of times in a row that make an owner therefore doubles each time,
 * and after BIASED_LOCK_OWNERS owners the lock is a plain mutex. Each ownership has an `inside` of its own: a thread
 * that was interrupted between the first look and the store may come back long after its ownership has ended.
 *
 * Rejected: leaving the mutex out while __libc_single_threaded says that there is one thread. Programs have threads for
 * other purposes. */
#ifndef LIB_SYSTEM_BIASED_LOCK_H
#define LIB_SYSTEM_BIASED_LOCK_H
#include "lib/system/likely.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { BIASED_LOCK_ROW = 64, BIASED_LOCK_OWNERS = 8 };

struct biased_lock {
    struct biased_lock_owner {
        _Atomic uintptr_t thread;              /* its pthread_self(); 0: not yet, or no more */
        _Atomic bool inside;                   /* it holds the lock, or is about to see that its ownership has ended */
    } owners[BIASED_LOCK_OWNERS + 1];          /* the last one has no thread */
    _Atomic(struct biased_lock_owner *) owner; /* the present one, or the next */
    struct biased_lock_owner *held_by;         /* NULL: the lock is held with the mutex */
    uintptr_t last;                            /* the thread that took the mutex last */
    unsigned row, wanted;                      /* times in a row; times that make an owner */
    _Atomic int contenders;                    /* threads that wait */
    pthread_mutex_t mutex;
};

void biased_lock_init(struct biased_lock *lock);
void biased_lock_destroy(struct biased_lock *lock); /* nobody holds it */
void biased_lock_take_mutex(struct biased_lock *lock);

static inline void biased_lock_take(struct biased_lock *lock) {
    uintptr_t me = (uintptr_t)pthread_self();
    struct biased_lock_owner *owner = atomic_load_explicit(&lock->owner, memory_order_acquire);
    if (likely(atomic_load_explicit(&owner->thread, memory_order_relaxed) == me)) {
        atomic_store_explicit(&owner->inside, true, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst); /* a full one whenever another thread calls membarrier() */
        if (likely(atomic_load_explicit(&owner->thread, memory_order_relaxed) == me)) {
            lock->held_by = owner;
            return;
        }
        atomic_store_explicit(&owner->inside, false, memory_order_release);
    }
    biased_lock_take_mutex(lock);
}

static inline void biased_lock_give(struct biased_lock *lock) {
    struct biased_lock_owner *owner = lock->held_by;
    if (likely(owner != NULL)) {
        lock->held_by = NULL;
        atomic_store_explicit(&owner->inside, false, memory_order_release);
    } else
        pthread_mutex_unlock(&lock->mutex);
}

/* Whether other threads wait for it. */
static inline bool biased_lock_is_contended(const struct biased_lock *lock) {
    return atomic_load_explicit(&lock->contenders, memory_order_relaxed) > 0;
}
#endif
