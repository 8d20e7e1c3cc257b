/* timers.c: timers of modules: one call each, some milliseconds from now. */
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "module/context.h"
#include "net/event_loop.h"
#include "server/command/dispatch.h"
#include "server/server.h"

struct module_timer {
    struct event_timer timer;
    struct list_link link;
    uint64_t id;
    struct module *module;
    struct db *db;
    ValkeyModuleTimerProc function;
    void *data;
};
enum { LATER_US = 1000 };
static struct list timers = LIST_INIT(timers);
static uint64_t last_id;

static void timer_free(struct module_timer *timer) {
    must(timer->module->timers > 0);
    timer->module->timers--;
    list_remove(&timers, &timer->link);
    mem_free(timer);
}

static uint64_t timer_fire(struct event_timer *at) {
    struct module_timer *timer = container_of(at, struct module_timer, timer);
    /* Keys must not change in the middle of a command, or of a load. */
    if (dispatch_running() || server.loading) return LATER_US;
    struct module_timer copy = *timer;
    timer_free(timer);
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, copy.module);
    ctx.db = copy.db;
    copy.function(&ctx, copy.data);
    context_end(&ctx);
    return 0;
}

ValkeyModuleTimerID api_CreateTimer(ValkeyModuleCtx *ctx, mstime_t period, ValkeyModuleTimerProc callback, void *data) {
    struct module_timer *timer = mem_calloc(1, sizeof *timer);
    timer->id = ++last_id;
    timer->module = ctx->module;
    timer->db = ctx->db;
    timer->function = callback;
    timer->data = data;
    ctx->module->timers++;
    list_append(&timers, &timer->link);
    event_timer_set(server.loop, &timer->timer, period > 0 ? (uint64_t)period * 1000 : 0, timer_fire);
    return timer->id;
}
static struct module_timer *timer_find(const ValkeyModuleCtx *ctx, uint64_t id) {
    list_each(&timers, link) {
        struct module_timer *timer = container_of(link, struct module_timer, link);
        if (timer->id == id) return timer->module == ctx->module ? timer : NULL;
    }
    return NULL;
}
int api_StopTimer(ValkeyModuleCtx *ctx, ValkeyModuleTimerID id, void **data) {
    struct module_timer *timer = timer_find(ctx, id);
    if (!timer) return VALKEYMODULE_ERR;
    if (data) *data = timer->data;
    event_timer_cancel(server.loop, &timer->timer);
    timer_free(timer);
    return VALKEYMODULE_OK;
}
int api_GetTimerInfo(ValkeyModuleCtx *ctx, ValkeyModuleTimerID id, uint64_t *remaining, void **data) {
    const struct module_timer *timer = timer_find(ctx, id);
    if (!timer) return VALKEYMODULE_ERR;
    uint64_t now = clock_monotonic_us();
    if (remaining) *remaining = timer->timer.due_us > now ? (timer->timer.due_us - now) / 1000 : 0;
    if (data) *data = timer->data;
    return VALKEYMODULE_OK;
}
void module_timers_drop(struct module *module) {
    list_each(&timers, link) {
        struct module_timer *timer = container_of(link, struct module_timer, link);
        if (timer->module != module) continue;
        event_timer_cancel(server.loop, &timer->timer);
        timer_free(timer);
    }
}
