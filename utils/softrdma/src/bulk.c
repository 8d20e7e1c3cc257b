/* The DMA engine: one thread per process, started by the first request that is large.
 *
 * A card moves the bytes while the program does something else. Here the posting thread copies, which takes less time
 * than waking another one, as long as the bytes are few. Larger READs and plain WRITEs (SOFTRDMA_BULK) take longer than
 * that, and meanwhile the posting thread could serve no other client. Such a request waits in its queue pair
 * (STALL_BULK), like one without a receive, and what is posted later waits behind it.
 *
 * The thread takes the queue pairs in turn, a STEP each. send.c copies it in parts of PART bytes, and checks keys and
 * admission again for each part, as a card does for each packet: so a peer that withdraws a region waits for a part
 * only, and what was withdrawn under way ends the request with the status that a card reports.
 *
 * From STREAM_LEAST bytes on the copy goes past the caches. A cached store reads the line first, which is a third of
 * all traffic to memory, and blocks that are larger than a cache drive everything else out of it. */
#define _GNU_SOURCE
#include "bulk.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "config.h"
#include "fault.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, turned = PTHREAD_COND_INITIALIZER;
static struct link queue = {&queue, &queue};
static struct qp *current;
static bool started, failed;
static _Atomic uint32_t parts; /* odd: in a part */
static _Thread_local bool is_me;

/* A card's DMA takes no CPU. This thread takes one for milliseconds, and where all are busy, the program's own threads
 * would wait until its time slice ends, or for the next tick. The scheduler lets a thread that wakes up preempt one
 * with a longer slice at once, so this thread asks for a slice that is a little longer than any default (0.7 to 2.8
 * ms). A much longer one would delay the copies on a busy machine: its turns are as rare. Kernels before 6.12 ignore
 * it. */
static void take_longer_slices(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t slice_ns, deadline, period;
    } attributes = {.size = sizeof attributes,
                    .policy = SCHED_OTHER,
                    .nice = getpriority(PRIO_PROCESS, 0),
                    .slice_ns = 3 * 1000 * 1000};
    if (sched_getscheduler(0) == SCHED_OTHER) syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/* Of ThreadSanitizer, in a program that is built with it. It knows nothing of what orders these copies, as with a
 * card's, would find a race in each line that was copied, and take a hundred times as long. */
__attribute__((weak)) void AnnotateIgnoreReadsBegin(const char *file, int line);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char *file, int line);

static void hide_from_thread_sanitizer(void) {
    if (AnnotateIgnoreReadsBegin) AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    if (AnnotateIgnoreWritesBegin) AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static void *bulk_main(void *arg) {
    hide_from_thread_sanitizer();
    take_longer_slices();
    is_me = true;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct link *l = list_pop(&queue);
        if (!l) {
            pthread_cond_wait(&work, &lock);
            continue;
        }
        struct qp *qp = current = container_of(l, struct qp, bulk_link);
        pthread_mutex_unlock(&lock);
        bool more = send_bulk(qp);
        pthread_mutex_lock(&lock);
        current = NULL;
        if (more && !qp->bulk_left && !link_is_listed(&qp->bulk_link)) list_append(&queue, &qp->bulk_link);
        pthread_cond_broadcast(&turned);
    }
    return NULL;
}

static int start_thread(void) {
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    sigfillset(&all);
    /* A fault of this thread must reach the handlers of the program that reports crashes. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) sigdelset(&all, faults[i]);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 1 << 20);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&thread, &attr, bulk_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (!r) pthread_setname_np(thread, "softrdma-dma");
    return r;
}

bool bulk_takes(uint64_t len) {
    uint64_t least = config()->bulk;
    if (!least || len < least || fault_armed[FAULT_WRITE]) return false;
    pthread_mutex_lock(&lock);
    if (!started && !failed) {
        failed = start_thread() != 0;
        started = !failed;
    }
    bool takes = started;
    pthread_mutex_unlock(&lock);
    return takes;
}

void bulk_submit(struct qp *qp) {
    pthread_mutex_lock(&lock);
    if (!qp->bulk_left && !link_is_listed(&qp->bulk_link)) list_append(&queue, &qp->bulk_link);
    pthread_mutex_unlock(&lock);
    if (!is_me) pthread_cond_signal(&work);
}

void bulk_stop(struct qp *qp) {
    if (qp->stall == STALL_BULK) qp->stall = STALL_NONE;
    atomic_fetch_add(&qp->bulk_turn, 1);
    while (load_acquire(&qp->bulk_copies)) sched_yield();
}

void bulk_leave(struct qp *qp) {
    pthread_mutex_lock(&lock);
    qp->bulk_left = true;
    list_remove(&qp->bulk_link);
    while (current == qp) pthread_cond_wait(&turned, &lock);
    pthread_mutex_unlock(&lock);
}

void bulk_part_begin(void) {
    atomic_fetch_add_explicit(&parts, 1, memory_order_relaxed);
    full_fence();
}

void bulk_part_end(void) {
    atomic_fetch_add_explicit(&parts, 1, memory_order_release);
}

void bulk_quiesce(void) {
    full_fence();
    uint32_t before = load_acquire(&parts);
    if (is_me || before % 2 == 0) return;
    while (load_acquire(&parts) == before) sched_yield();
}

RACES_ALLOWED void bulk_stream(void *to, const void *from, uint64_t n) {
#if defined(__SSE2__) && !defined(__SANITIZE_ADDRESS__)
    uint64_t head = -(uintptr_t)to % CACHE_LINE;
    if (n > CACHE_LINE * 2) {
        memcpy(to, from, head);
        uint64_t lines = (n - head) / CACHE_LINE;
        __m128i *d = (__m128i *)((uint8_t *)to + head);
        const __m128i *s = (const __m128i *)((const uint8_t *)from + head);
        for (uint64_t i = 0; i < lines; i++, d += 4, s += 4) {
            __m128i a = _mm_loadu_si128(s), b = _mm_loadu_si128(s + 1), c = _mm_loadu_si128(s + 2),
                    e = _mm_loadu_si128(s + 3);
            _mm_stream_si128(d, a);
            _mm_stream_si128(d + 1, b);
            _mm_stream_si128(d + 2, c);
            _mm_stream_si128(d + 3, e);
        }
        _mm_sfence(); /* before the completion */
        uint64_t done = head + lines * CACHE_LINE;
        memcpy((uint8_t *)to + done, (const uint8_t *)from + done, n - done);
        return;
    }
#endif
    memcpy(to, from, n);
}

void bulk_forget(void) {
    list_init(&queue);
    current = NULL;
    started = failed = false;
    store_relaxed(&parts, 0);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&work, NULL);
    pthread_cond_init(&turned, NULL);
}
