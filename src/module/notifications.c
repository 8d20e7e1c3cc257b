/* notifications.c: modules that listen to keyspace events, and that report events of their own.
 *
 * A listener may change data. The event comes in the middle of a command, which holds pointers into the data, so the
 * listener is called when the command's function has returned: before the command is propagated, and in its group. An
 * event outside of a command (a key expires in the cycle, or is evicted) waits until the change is complete; what
 * listeners and jobs do then is in a group with it. Rejected: calling listeners at once, and refusing what they write.
 *
 * An event that happens while a listener or a job runs is delivered to a listener that does not run itself, or to all
 * with the option ALLOW_NESTED_KEYSPACE_NOTIFICATIONS. */
#include "lib/system/memory.h"
#include "module/context.h"
#include "module/parts.h"
#include "server/clients/reply_barrier.h"
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
               {VALKEYMODULE_NOTIFY_KEY_MISS, NOTIFY_KEY_MISS}, {VALKEYMODULE_NOTIFY_NEW, NOTIFY_NEW},
               {VALKEYMODULE_NOTIFY_LOADED, NOTIFY_LOADED}};
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
    struct list_link link;   /* in module->notifications */
    struct list_link of_all; /* in `subscriptions` */
    struct module *module;
    uint32_t classes;
    ValkeyModuleNotificationFunc function;
    bool runs;
};
static struct list subscriptions = LIST_INIT(subscriptions);

/* An event that waits for its delivery. */
struct module_notification {
    struct list_link link;
    struct db *db;
    enum notify_class class;
    struct ValkeyModuleString *key;
    char event[];
};
static struct list notifications = LIST_INIT(notifications);

static void subscription_call(struct module_subscription *subscription, const struct module_notification *event) {
    if (!(subscription->classes & event->class)) return;
    if (subscription->runs &&
        !(subscription->module->options & VALKEYMODULE_OPTIONS_ALLOW_NESTED_KEYSPACE_NOTIFICATIONS))
        return;
    bool outer = subscription->runs;
    subscription->runs = true;
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, subscription->module);
    ctx.db = event->db;
    ctx.client = dispatch_requester();
    ctx.call = (struct call *)(uintptr_t)dispatch_running(); /* its name */
    ctx.flags |= CONTEXT_LISTENER;
    if (propagate_is_grouped()) ctx.flags |= CONTEXT_THREAD_SAFE; /* it begins no group of its own */
    store_settings.lookups_keep_expired++;                        /* no event "expired" comes while a listener runs */
    subscription->function(&ctx, class_of_server(event->class), event->event, event->key);
    store_settings.lookups_keep_expired--;
    context_end(&ctx);
    subscription->runs = outer;
}
static void notifications_deliver(void) {
    if (context_must_only_read()) return; /* within a change: its end delivers them */
    /* Calls of listeners end here, too, and deliver what happened within them, but nothing that came before. */
    struct list events = LIST_INIT(events);
    while (events.len || notifications.len) {
        for (bool all = !events.len; all && notifications.len;) {
            struct list_link *link = list_first(&notifications);
            list_remove(&notifications, link);
            list_append(&events, link);
        }
        struct module_notification *event = container_of(list_first(&events), struct module_notification, link);
        list_remove(&events, &event->link);
        list_each_entry(&subscriptions, struct module_subscription, of_all, subscription)
            subscription_call(subscription, event);
        module_string_release(event->key);
        mem_free(event);
    }
    dispatch_function_returned = NULL;
}

static void later_begin(void);
/* A key of a file is delivered at once: a load may have any number of them. Listeners only read then. */
static void loaded_deliver(struct module_notification *event) {
    store_settings.readers++;
    list_each_entry(&subscriptions, struct module_subscription, of_all, subscription)
        subscription_call(subscription, event);
    store_settings.readers--;
    module_string_release(event->key);
    mem_free(event);
}
static void listener_event(struct notify_listener *self, struct db *db, enum notify_class class, const char *name,
                           struct slice key) {
    (void)self;
    size_t len = strlen(name) + 1;
    struct module_notification *event = mem_alloc(sizeof *event + len);
    *event = (struct module_notification){.db = db, .class = class, .key = module_string_new(key)};
    memcpy(event->event, name, len);
    if (class == NOTIFY_LOADED) {
        loaded_deliver(event);
        return;
    }
    list_append(&notifications, &event->link);
    if (dispatch_running())
        dispatch_function_returned = notifications_deliver;
    else
        later_begin();
}
static struct notify_listener listener = {.event = listener_event};

/* The classes of all subscriptions. */
static void listener_update(void) {
    uint32_t wanted = 0;
    list_each_entry(&subscriptions, struct module_subscription, of_all, subscription) wanted |= subscription->classes;
    listener.classes = wanted;
    if (wanted)
        notify_listen(&listener);
    else
        notify_unlisten(&listener);
    if (wanted) notify_set_classes(&listener, wanted);
    /* A listener may let the client of the command wait. */
    reply_barrier_may_pin(!wanted ? PIN_NONE : wanted & (NOTIFY_KEY_MISS | NOTIFY_EXPIRED) ? PIN_ALL : PIN_WRITES);
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

static void job_run(struct notification_job *job) {
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, job->module);
    ctx.db = job->db;
    if (propagate_is_grouped()) ctx.flags |= CONTEXT_THREAD_SAFE; /* it begins no group of its own */
    job->function(&ctx, job->data);
    context_end(&ctx);
    if (job->free) job->free(job->data);
    mem_free(job);
}
/* Listeners and jobs may cause further events and add further jobs. */
static void jobs_run(void) {
    static bool running;
    if (running || context_must_only_read()) return;
    running = true;
    while (notifications.len || jobs.len) {
        notifications_deliver();
        if (!jobs.len) continue;
        struct notification_job *job = container_of(list_first(&jobs), struct notification_job, link);
        list_remove(&jobs, &job->link);
        job_run(job);
    }
    running = false;
    propagate_before_end = NULL;
    dispatch_unit_ended = NULL;
}
static bool later_group; /* later_begin() has begun a group, in which there is no command */
static void jobs_finish(void) {
    if (!later_group) {
        jobs_run();
        return;
    }
    later_group = false;
    propagate_end(); /* runs them */
    if (notifications.len || jobs.len) jobs_run();
}
void module_jobs_before_wait(void) {
    if (notifications.len || jobs.len) jobs_finish();
}
/* Something waits for the end of the command, script, transaction or change. */
static void later_begin(void) {
    propagate_before_end = jobs_run;
    dispatch_unit_ended = jobs_finish;
    if (propagate_is_grouped()) return;
    later_group = true;
    propagate_begin();
}
/* The job runs when the command, script or transaction that caused the event has ended, and is propagated with it. */
int api_AddPostNotificationJob(ValkeyModuleCtx *ctx, ValkeyModulePostNotificationJobFunc callback, void *pd,
                               void (*free_pd)(void *)) {
    if (server_is_loading() || (role_is_replica() && role_is_read_only())) return VALKEYMODULE_ERR;
    struct notification_job *job = mem_calloc(1, sizeof *job);
    *job = (struct notification_job){
        .module = ctx->module, .db = ctx->db, .function = callback, .data = pd, .free = free_pd};
    list_append(&jobs, &job->link);
    later_begin();
    return VALKEYMODULE_OK;
}

/* --- Subscription --- */

int api_SubscribeToKeyspaceEvents(ValkeyModuleCtx *ctx, int types, ValkeyModuleNotificationFunc cb) {
    struct module_subscription *subscription = mem_calloc(1, sizeof *subscription);
    subscription->module = ctx->module;
    subscription->function = cb;
    subscription->classes = classes_of_module(types);
    list_append(&ctx->module->notifications, &subscription->link);
    list_append(&subscriptions, &subscription->of_all);
    listener_update();
    return VALKEYMODULE_OK;
}
void module_notifications_drop(struct module *module) {
    list_each(&module->notifications, link) {
        struct module_subscription *subscription = container_of(link, struct module_subscription, link);
        list_remove(&module->notifications, link);
        list_remove(&subscriptions, &subscription->of_all);
        mem_free(subscription);
    }
    listener_update();
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
    notifications_deliver(); /* a module holds no pointers into the data */
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
