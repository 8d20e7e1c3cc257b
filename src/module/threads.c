/* threads.c: see threads.h. */
#include "module/threads.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/ticks.h"
#include "module/blocked.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/lifecycle.h"
#include "server/server.h"
#include <errno.h>
#include <pthread.h>

/* A thread that waits for the lock holds `turn`. So no later thread overtakes it, and no thread, the main thread
 * included, can take the lock again while another one waits. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, turn = PTHREAD_MUTEX_INITIALIZER;
static bool started, given_up;
static uint64_t since;     /* when the thread that holds the lock took it */
static __thread bool mine; /* this thread holds the lock, and is not the main one */
static bool used;          /* a thread has held the lock since the main thread gave it up */

static void lock_take(void) {
    pthread_mutex_lock(&turn);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&turn);
}
static int lock_try(void) {
    int result = pthread_mutex_trylock(&turn);
    if (result) return result;
    result = pthread_mutex_trylock(&lock);
    pthread_mutex_unlock(&turn);
    return result;
}

static void lock_give_up(void) {
    given_up = true;
    used = false;
    pthread_mutex_unlock(&lock);
}
static bool lock_take_back(void) {
    if (!given_up) return false;
    lock_take();
    given_up = false;
    return used;
}

void module_lock_start(void) {
    if (started) return;
    started = true;
    event_loop_take_posts(server.loop);
    lock_take();
    server_set_wait_hooks(lock_give_up, lock_take_back);
}

/* --- Contexts of threads --- */

static struct module no_module = {.name = (char[]){"module"}};

static struct ValkeyModuleCtx *context_new(struct module *module) {
    struct ValkeyModuleCtx *ctx = mem_alloc(sizeof *ctx);
    if (!no_module.commands.head.next) module_lists_init(&no_module);
    context_init(ctx, module ? module : &no_module);
    ctx->flags |= CONTEXT_THREAD_SAFE | CONTEXT_DETACHED;
    return ctx;
}
ValkeyModuleCtx *api_GetThreadSafeContext(ValkeyModuleBlockedClient *bc) {
    struct ValkeyModuleCtx *ctx = context_new(bc ? bc->module : NULL);
    if (bc) {
        ctx->blocked = bc;
        ctx->db = bc->db;
        ctx->reply = &bc->reply;
        ctx->flags &= ~(uint32_t)CONTEXT_DETACHED;
    }
    return ctx;
}
ValkeyModuleCtx *api_GetDetachedThreadSafeContext(ValkeyModuleCtx *ctx) {
    return context_new(ctx->module);
}
void api_FreeThreadSafeContext(ValkeyModuleCtx *ctx) {
    context_end(ctx);
    mem_free(ctx);
}

static void lock_taken(void) {
    must(!dispatch_running()); /* the main thread gives the lock up between commands only */
    clock_update();
    used = mine = true;
    event_loop_adopt(server.loop);
    propagate_begin(); /* all changes under the lock are one group, whichever contexts make them */
}
void api_ThreadSafeContextLock(ValkeyModuleCtx *ctx) {
    (void)ctx;
    lock_take();
    lock_taken();
    since = ticks_now();
}
int api_ThreadSafeContextTryLock(ValkeyModuleCtx *ctx) {
    (void)ctx;
    int result = lock_try();
    if (result) {
        errno = result;
        return VALKEYMODULE_ERR;
    }
    lock_taken();
    since = ticks_now();
    return VALKEYMODULE_OK;
}
static void lock_leave(void) {
    mine = false;
    propagate_end();
    pthread_mutex_unlock(&lock);
    /* What the thread has changed and written is sent by the next turn of the loop. */
    event_loop_wake(server.loop);
}
void api_ThreadSafeContextUnlock(ValkeyModuleCtx *ctx) {
    (void)ctx; /* may be NULL */
    lock_leave();
}
bool module_lock_is_of_thread(void) {
    return mine;
}
uint64_t module_lock_since(void) {
    return since;
}
void module_lock_pass(void) {
    uint64_t began = since;
    lock_leave();
    lock_take();
    lock_taken();
    since = began;
}
