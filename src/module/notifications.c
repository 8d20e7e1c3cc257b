/* notifications.c: modules that listen to keyspace events, and that report events of their own.
 *
 * A listener is called in the middle of a command, which holds pointers into the data. So it only reads: until it
 * returns, a call of a command that writes or may run others is refused, whichever context it uses, no key is opened
 * for writing, and a key that has expired is not found, but stays. The event "expired" precedes the deletion. */
#include "lib/system/memory.h"
#include "module/context.h"
#include "module/events.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/config/config.h"
#include "server/notify.h"
#include "server/role.h"
#include "server/server.h"

/* The classes in the order of their bits in the interface; those of the server have other bits. */
static const struct {
    int of_module;
    enum notify_class class;
} classes[] = {{VALKEYMODULE_NOTIFY_GENERIC, NOTIFY_GENERIC},   {VALKEYMODULE_NOTIFY_STRING, NOTIFY_STRING},
               {VALKEYMODULE_NOTIFY_LIST, NOTIFY_LIST},         {VALKEYMODULE_NOTIFY_SET, NOTIFY_SET},
               {VALKEYMODULE_NOTIFY_HASH, NOTIFY_HASH},         {VALKEYMODULE_NOTIFY_ZSET, NOTIFY_ZSET},
               {VALKEYMODULE_NOTIFY_EXPIRED, NOTIFY_EXPIRED},   {VALKEYMODULE_NOTIFY_EVICTED, NOTIFY_EVICTED},
               {VALKEYMODULE_NOTIFY_STREAM, NOTIFY_STREAM},     {VALKEYMODULE_NOTIFY_MODULE, NOTIFY_MODULE},
               {VALKEYMODULE_NOTIFY_KEY_MISS, NOTIFY_KEY_MISS}, {VALKEYMODULE_NOTIFY_NEW, NOTIFY_NEW}};
enum { CLASSES = sizeof classes / sizeof *classes };

static uint32_t classes_of_module(int types) {
    uint32_t wanted = 0;
    for (size_t i = 0; i < CLASSES; i++)
        if (types & classes[i].of_module) wanted |= classes[i].class;
    return wanted;
}
static int class_of_server(enum notify_class class) {
    for (size_t i = 0; i < CLASSES; i++)
        if (classes[i].class == class) return classes[i].of_module;
    return 0;
}

struct module_subscription {
    struct notify_listener listener;
    struct list_link link; /* in module->notifications */
    struct module *module;
    ValkeyModuleNotificationFunc function;
    bool runs;
};

static void subscription_event(struct notify_listener *self, struct db *db, enum notify_class class, const char *event,
                               struct slice key) {
    struct module_subscription *subscription = container_of(self, struct module_subscription, listener);
    if (subscription->runs &&
        !(subscription->module->options & VALKEYMODULE_OPTIONS_ALLOW_NESTED_KEYSPACE_NOTIFICATIONS))
        return;
    bool outer = subscription->runs;
    subscription->runs = true;
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, subscription->module);
    ctx.db = db;
    struct ValkeyModuleString *name = module_string_new(key);
    store_settings.readers++;
    subscription->function(&ctx, class_of_server(class), event, name);
    context_end(&ctx);
    store_settings.readers--;
    module_string_release(name);
    subscription->runs = outer;
}

/* --- Jobs for later: they may change data --- */

struct notification_job {
    struct list_link link;
    struct module *module;
    struct db *db;
    ValkeyModulePostNotificationJobFunc function;
    void *data;
    void (*free)(void *data);
};
static struct list jobs = LIST_INIT(jobs);

/* Jobs may add further jobs. */
static void jobs_run(void) {
    static bool running;
    if (running || store_settings.readers) return;
    running = true;
    while (jobs.len) {
        struct notification_job *job = container_of(list_first(&jobs), struct notification_job, link);
        list_remove(&jobs, &job->link);
        struct ValkeyModuleCtx ctx;
        context_init(&ctx, job->module);
        ctx.db = job->db;
        if (propagate_is_grouped()) ctx.flags |= CONTEXT_THREAD_SAFE; /* it begins no group of its own */
        job->function(&ctx, job->data);
        context_end(&ctx);
        if (job->free) job->free(job->data);
        mem_free(job);
    }
    running = false;
    propagate_before_end = NULL;
    dispatch_unit_ended = NULL;
}
static bool jobs_group; /* AddPostNotificationJob has begun a group, in which there is no command */
static void jobs_finish(void) {
    if (!jobs_group) {
        jobs_run();
        return;
    }
    jobs_group = false;
    propagate_end(); /* runs them */
    if (jobs.len) jobs_run();
}
void module_jobs_before_wait(void) {
    if (jobs.len) jobs_finish();
}
/* The job runs when the command, script or transaction that caused the event has ended, and is propagated with it. */
int api_AddPostNotificationJob(ValkeyModuleCtx *ctx, ValkeyModulePostNotificationJobFunc callback, void *pd,
                               void (*free_pd)(void *)) {
    if (server_is_loading() || (role_is_replica() && role_is_read_only())) return VALKEYMODULE_ERR;
    struct notification_job *job = mem_calloc(1, sizeof *job);
    *job = (struct notification_job){
        .module = ctx->module, .db = ctx->db, .function = callback, .data = pd, .free = free_pd};
    list_append(&jobs, &job->link);
    propagate_before_end = jobs_run;
    dispatch_unit_ended = jobs_finish;
    if (propagate_is_grouped()) return VALKEYMODULE_OK;
    jobs_group = true;
    propagate_begin();
    return VALKEYMODULE_OK;
}

/* --- Subscription --- */

int api_SubscribeToKeyspaceEvents(ValkeyModuleCtx *ctx, int types, ValkeyModuleNotificationFunc cb) {
    struct module_subscription *subscription = mem_calloc(1, sizeof *subscription);
    subscription->module = ctx->module;
    subscription->function = cb;
    subscription->listener.classes = classes_of_module(types);
    subscription->listener.event = subscription_event;
    list_append(&ctx->module->notifications, &subscription->link);
    notify_listen(&subscription->listener);
    return VALKEYMODULE_OK;
}
void module_notifications_drop(struct module *module) {
    list_each(&module->notifications, link) {
        struct module_subscription *subscription = container_of(link, struct module_subscription, link);
        notify_unlisten(&subscription->listener);
        list_remove(&module->notifications, link);
        mem_free(subscription);
    }
    list_each(&jobs, link) {
        struct notification_job *job = container_of(link, struct notification_job, link);
        if (job->module != module) continue;
        list_remove(&jobs, link);
        if (job->free) job->free(job->data);
        mem_free(job);
    }
}

int api_NotifyKeyspaceEvent(ValkeyModuleCtx *ctx, int type, const char *event, ValkeyModuleString *key) {
    if (!ctx) return VALKEYMODULE_ERR;
    notify(ctx->db, (enum notify_class)classes_of_module(type), event, module_string_slice(key));
    return VALKEYMODULE_OK;
}
int api_GetKeyspaceNotificationFlagsAll(void) {
    return (VALKEYMODULE_NOTIFY_NEW << 1) - 1;
}
/* The events that the option notify-keyspace-events publishes. */
int api_GetNotifyKeyspaceEvents(void) {
    static const struct {
        char letter;
        int types;
    } letters[] = {
        {'K', VALKEYMODULE_NOTIFY_KEYSPACE}, {'E', VALKEYMODULE_NOTIFY_KEYEVENT}, {'g', VALKEYMODULE_NOTIFY_GENERIC},
        {'$', VALKEYMODULE_NOTIFY_STRING},   {'l', VALKEYMODULE_NOTIFY_LIST},     {'s', VALKEYMODULE_NOTIFY_SET},
        {'h', VALKEYMODULE_NOTIFY_HASH},     {'z', VALKEYMODULE_NOTIFY_ZSET},     {'x', VALKEYMODULE_NOTIFY_EXPIRED},
        {'e', VALKEYMODULE_NOTIFY_EVICTED},  {'t', VALKEYMODULE_NOTIFY_STREAM},   {'d', VALKEYMODULE_NOTIFY_MODULE},
        {'m', VALKEYMODULE_NOTIFY_KEY_MISS}, {'n', VALKEYMODULE_NOTIFY_NEW},      {'A', VALKEYMODULE_NOTIFY_ALL}};
    const struct config_option *option = config_find(SLICE("notify-keyspace-events"));
    struct memory_output text;
    memory_output_init(&text);
    option->get(option, &text.out);
    struct slice set = memory_output_slice(&text);
    int types = 0;
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (set.len && memchr(set.data, letters[i].letter, set.len)) types |= letters[i].types;
    memory_output_free(&text);
    return types;
}
