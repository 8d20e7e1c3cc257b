/* thread.c: see thread.h. */
#include "lib/system/thread.h"
#include "lib/system/memory.h"
#include <sys/mman.h>

enum { HANDLER_STACK = 128 * 1024 };

struct thread_start {
    void *(*run)(void *);
    void *argument;
};

void thread_signals_without_faults(sigset_t *signals) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigfillset(signals);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(signals, faults[i]);
}

/* The sanitizers have stacks of their own for handlers. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static void *handler_stack(void) {
    return MAP_FAILED;
}
#else
static void *handler_stack(void) {
    void *memory = mmap(NULL, HANDLER_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) return memory;
    stack_t stack = {.ss_sp = memory, .ss_size = HANDLER_STACK};
    sigaltstack(&stack, NULL);
    return memory;
}
#endif

_Thread_local bool thread_is_created;

static void *thread_begin(void *memory) {
    struct thread_start start = *(struct thread_start *)memory;
    thread_is_created = true;
    mem_free(memory);
    void *stack = handler_stack(), *result = start.run(start.argument);
    if (stack != MAP_FAILED) {
        stack_t none = {.ss_flags = SS_DISABLE};
        sigaltstack(&none, NULL);
        munmap(stack, HANDLER_STACK);
    }
    return result;
}

int thread_create(pthread_t *thread, void *(*run)(void *), void *argument) {
    pthread_t own;
    sigset_t blocked, before;
    struct thread_start *start = mem_alloc(sizeof *start);
    *start = (struct thread_start){run, argument};
    thread_signals_without_faults(&blocked);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(&own, NULL, thread_begin, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        mem_free(start);
        return -error;
    }
    if (thread)
        *thread = own;
    else
        pthread_detach(own);
    return 0;
}
