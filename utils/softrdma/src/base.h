/* The few things every file of the device needs: branch hints, a spin lock, a clock, list links, the export
 * mark.
 *
 * The lock spins a little and then yields. Its holders never sleep while holding it, critical sections are
 * tens of nanoseconds, and unlocking is a plain store: a mutex costs a second locked instruction on every
 * unlock. All locks are private to a process; nothing here is ever placed in memory that two processes share,
 * so a killed process leaves no lock held. */
#pragma once

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define SR_EXPORT   __attribute__((visibility("default")))
#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
/* Payload races are the program's business, and statistics may be read while they are counted. */
#ifdef __SANITIZE_THREAD__
#define RACES_ALLOWED __attribute__((no_sanitize_thread))
#else
#define RACES_ALLOWED
#endif
#define CACHE_LINE                    64
#define NS_PER_SEC                    1000000000ull
#define NS_PER_MS                     1000000ull
#define NS_PER_US                     1000ull
#define PAGE                          4096ull
#define ARRAY_LEN(a)                  (sizeof(a) / sizeof((a)[0]))
#define container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

#define load_relaxed(p)     atomic_load_explicit((p), memory_order_relaxed)
#define load_acquire(p)     atomic_load_explicit((p), memory_order_acquire)
#define store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define full_fence()        atomic_thread_fence(memory_order_seq_cst)

static inline void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

struct spinlock {
    _Atomic uint32_t held;
};

static inline bool spin_trylock(struct spinlock *lock) {
    return atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) == 0;
}

static inline void spin_lock(struct spinlock *lock) {
    for (unsigned spins = 0; unlikely(!spin_trylock(lock));)
        while (load_relaxed(&lock->held)) {
            if (++spins % 64)
                cpu_relax();
            else
                sched_yield();
        }
}

static inline void spin_unlock(struct spinlock *lock) {
    store_release(&lock->held, 0);
}

static inline uint64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static inline uint32_t pow2_at_least(uint32_t n) {
    return n <= 1 ? 1 : 1u << (32 - __builtin_clz(n - 1));
}
static inline uint32_t log2_of(uint32_t pow2) {
    return (uint32_t)__builtin_ctz(pow2);
}
static inline uint64_t round_up(uint64_t n, uint64_t unit) {
    return (n + unit - 1) / unit * unit;
}
static inline uint64_t round_down(uint64_t n, uint64_t unit) {
    return n / unit * unit;
}

/* A doubly linked list with a sentinel; links live in the objects. */
struct link {
    struct link *next, *prev;
};

static inline void list_init(struct link *head) {
    head->next = head->prev = head;
}
static inline bool list_empty(const struct link *head) {
    return head->next == head;
}
static inline bool link_is_listed(const struct link *l) {
    return l->next && l->next != l;
}

static inline void list_append(struct link *head, struct link *l) {
    l->next = head;
    l->prev = head->prev;
    head->prev->next = l;
    head->prev = l;
}

static inline void list_remove(struct link *l) {
    if (!l->next) return;
    l->next->prev = l->prev;
    l->prev->next = l->next;
    l->next = l->prev = NULL;
}

static inline struct link *list_pop(struct link *head) {
    struct link *l = head->next;
    if (l == head) return NULL;
    list_remove(l);
    return l;
}
