/* events.c: server events: modules subscribe to an event and learn of what happens to the server. See
 * server/server_events.h. What the events of a kind say is a struct of valkeymodule.h. */
#include "module/parts.h"
#include "lib/system/memory.h"
#include "lib/system/ticks.h"
#include "module/context.h"
#include "module/keys.h"
#include "repl/history.h"
#include "script/script_run.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/user.h"
#include "server/config/config.h"
#include "server/command/dispatch.h"
#include "server/role.h"
#include "server/server.h"
#include "server/server_events.h"
#include "server/stats/errorstats.h"
#include "server/store_events.h"
#include <stdio.h>

struct module_event_subscription {
    struct list_link link; /* in module->events */
    uint64_t event;
    ValkeyModuleEventCallback function;
};
/* The number of subevents of each event that are reported; 0: none, or the event has none. */
static const unsigned kinds[] = {[VALKEYMODULE_EVENT_REPLICATION_ROLE_CHANGED] = 2,
                                 [VALKEYMODULE_EVENT_PERSISTENCE] = 6,
                                 [VALKEYMODULE_EVENT_FLUSHDB] = 2,
                                 [VALKEYMODULE_EVENT_LOADING] = 5,
                                 [VALKEYMODULE_EVENT_CLIENT_CHANGE] = 2,
                                 [VALKEYMODULE_EVENT_SHUTDOWN] = 0,
                                 [VALKEYMODULE_EVENT_REPLICA_CHANGE] = 2,
                                 [VALKEYMODULE_EVENT_PRIMARY_LINK_CHANGE] = 2,
                                 [VALKEYMODULE_EVENT_CRON_LOOP] = 0,
                                 [VALKEYMODULE_EVENT_MODULE_CHANGE] = 2,
                                 [VALKEYMODULE_EVENT_LOADING_PROGRESS] = 2,
                                 [VALKEYMODULE_EVENT_SWAPDB] = 0,
                                 [VALKEYMODULE_EVENT_REPL_BACKUP] = 0,
                                 [VALKEYMODULE_EVENT_FORK_CHILD] = 2,
                                 [VALKEYMODULE_EVENT_REPL_ASYNC_LOAD] = 3,
                                 [VALKEYMODULE_EVENT_EVENTLOOP] = 2,
                                 [VALKEYMODULE_EVENT_CONFIG] = 1,
                                 [VALKEYMODULE_EVENT_KEY] = 4,
                                 [VALKEYMODULE_EVENT_AUTHENTICATION_ATTEMPT] = 0,
                                 [VALKEYMODULE_EVENT_ATOMIC_SLOT_MIGRATION] = 6,
                                 [VALKEYMODULE_EVENT_COMMAND_RESULT_SUCCESS] = 0,
                                 [VALKEYMODULE_EVENT_COMMAND_RESULT_FAILURE] = 0,
                                 [VALKEYMODULE_EVENT_COMMAND_RESULT_REJECTED] = 0,
                                 [VALKEYMODULE_EVENT_COMMAND_RESULT_ACL_REJECTED] = 0};
enum { EVENTS = sizeof kinds / sizeof *kinds };
static unsigned subscribers[EVENTS];

int api_IsSubEventSupported(ValkeyModuleEvent event, uint64_t subevent) {
    return event.id < EVENTS && kinds[event.id] && subevent < kinds[event.id];
}

/* --- Delivery --- */

/* `client`: NULL: the event concerns none. `data`: the struct of the event. Reads only while a command changes data. */
static const struct module *changed_module; /* a module does not learn of its own load; NULL: none changes */
static struct db *event_db;                 /* that the event happens in; NULL: database 0 */
static void deliver(uint64_t event, uint64_t kind, void *data, struct client *client) {
    if (!subscribers[event]) return;
    list_each(modules_all(), at) {
        struct module *module = container_of(at, struct module, link);
        if (event == VALKEYMODULE_EVENT_MODULE_CHANGE && module == changed_module) continue;
        list_each(&module->events, link) {
            struct module_event_subscription *subscription = container_of(link, struct module_event_subscription, link);
            if (subscription->event != event) continue;
            struct ValkeyModuleCtx ctx;
            context_init(&ctx, module);
            if (client) ctx.client = client;
            if (event_db) ctx.db = event_db;
            subscription->function(&ctx, (ValkeyModuleEvent){event, 1}, kind, data);
            context_end(&ctx);
        }
    }
}

static void client_info(struct client *client, ValkeyModuleClientInfoV1 *info) {
    *info = (ValkeyModuleClientInfoV1){.version = VALKEYMODULE_CLIENTINFO_VERSION};
    client_info_write(client, info);
}

static void deliver_role(unsigned kind) {
    int64_t second = repl_history->second_offset;
    ValkeyModuleReplicationInfoV1 info = {
        .version = VALKEYMODULE_REPLICATIONINFO_VERSION,
        .primary = !role_is_replica(),
        .primary_host = role->host ? role->host : (char *)(uintptr_t) "",
        .primary_port = role->port,
        .replid1 = (char *)(uintptr_t)role->position.id,
        .replid2 = (char *)(uintptr_t)repl_history->second_id,
        .repl1_offset = (uint64_t)role->position.offset,
        .repl2_offset = (uint64_t)(second < 0 ? -1 : second + 1), /* as INFO has it */
    };
    deliver(VALKEYMODULE_EVENT_REPLICATION_ROLE_CHANGED, kind, &info, NULL);
}

/* With those of the calls that it has made; SAVE has reset the count. */
static long long changes_of(const struct call *call) {
    return server.dirty > call->dirty_before ? (long long)(server.dirty - call->dirty_before) : 0;
}
/* What rejected a command, as Valkey words it: the errors of some checks have no code, others are the whole reply. */
static char *rejection_text(const char *error) {
    static const char code[] = "ERR ";
    if (strncmp(error, code, sizeof code - 1) == 0) return mem_strdup(error + sizeof code - 1);
    size_t size = strlen(error) + sizeof "-\r\n";
    char *text = mem_alloc(size);
    snprintf(text, size, "-%s\r\n", error);
    return text;
}
static void deliver_result(uint64_t event, uint64_t kind, const struct call *call, const char *name, int argc,
                           const struct slice *argv, struct client *client, int64_t duration_us, const char *context) {
    static bool delivering; /* what a listener calls has no events */
    if (delivering) return;
    delivering = true;
    ValkeyModuleCommandResultInfoV1 info = {.version = VALKEYMODULE_COMMANDRESULTINFO_VERSION,
                                            .command_name = name,
                                            .duration_us = duration_us,
                                            .dirty = call ? changes_of(call) : 0,
                                            .client_id = client->id,
                                            .is_module_client = !client->conn && !script_is_caller(client),
                                            .argc = argc,
                                            .argv = module_strings_of(argc, argv),
                                            .rejection_context = context};
    deliver(event, kind, &info, NULL);
    module_strings_free(argc, info.argv);
    delivering = false;
}
static void deliver_rejection(uint64_t event, unsigned denial, const struct rejection_event *rejection) {
    static const ValkeyModuleACLLogEntryReason reasons[] = {[USER_ALLOWED] = VALKEYMODULE_ACL_LOG_AUTH,
                                                            [USER_DENIED_DATABASE] = VALKEYMODULE_ACL_LOG_DB,
                                                            [USER_DENIED_COMMAND] = VALKEYMODULE_ACL_LOG_CMD,
                                                            [USER_DENIED_KEY] = VALKEYMODULE_ACL_LOG_KEY,
                                                            [USER_DENIED_CHANNEL] = VALKEYMODULE_ACL_LOG_CHANNEL};
    if (rejection->client->flags & CLIENT_CLOSING) return;
    bool by_acl = event == EVENT_COMMAND_ACL_REJECTED;
    int at = by_acl && denial != USER_ALLOWED ? user_denied_argument() : 0;
    const struct slice *object = at ? &rejection->argv[at] : NULL;
    char *text = !by_acl ? rejection_text(rejection->error) : object ? mem_strndup(object->data, object->len) : NULL;
    deliver_result(event, by_acl ? reasons[denial] : 0, NULL, rejection->command ? rejection->command->full_name : NULL,
                   rejection->argc, rejection->argv, rejection->client, 0, text);
    mem_free(text);
}
static uint64_t errors_before; /* the number of error replies when the last call began or ended */

static void result_before(struct call *call) {
    (void)call;
    errors_before = errorstats_total();
}
/* A command that has blocked has succeeded. It is called again when a key is there, but one of a module is not: only
 * what the module has written is sent then. A call has not failed with an error of a call that it has made. */
static void result_after(struct call *call, uint64_t ticks) {
    bool again = call->client->flags & CLIENT_CALLED_AGAIN;
    if (again && (call->blocked || !call_ready_key(call).data || call->command->spec->flags & CMD_MODULE)) return;
    bool failed = call->client->reply.failed > 0 && errorstats_total() != errors_before;
    errors_before = errorstats_total();
    uint64_t event = failed ? VALKEYMODULE_EVENT_COMMAND_RESULT_FAILURE : VALKEYMODULE_EVENT_COMMAND_RESULT_SUCCESS;
    if (!subscribers[event]) return;
    deliver_result(event, 0, call, call->command->full_name, call->argc, call->argv, call->client,
                   (int64_t)ticks_to_us(ticks), NULL);
}
static struct call_listener result_listener = {.before = result_before, .after = result_after, .again = true};

static void deliver_key(uint64_t kind, struct db *db, struct slice key) {
    if (!subscribers[VALKEYMODULE_EVENT_KEY]) return;
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, container_of(list_first(modules_all()), struct module, link));
    ctx.db = db;
    struct ValkeyModuleString *name = module_string_new(key);
    store_settings.readers++;
    struct ValkeyModuleKey opened;
    key_init(&opened, &ctx, name, VALKEYMODULE_READ);
    ValkeyModuleKeyInfoV1 info = {VALKEYMODULE_KEYINFO_VERSION, &opened};
    event_db = db;
    deliver(VALKEYMODULE_EVENT_KEY, kind, &info, NULL);
    event_db = NULL;
    key_stream_stop(&opened);
    store_settings.readers--;
    module_string_release(name);
    context_end(&ctx);
}
static void deliver_slot_migration(unsigned kind, const struct slot_migration_event *event) {
    ValkeyModuleSlotRange *ranges = mem_alloc(event->count * sizeof *ranges);
    for (size_t i = 0; i < event->count; i++)
        ranges[i] = (ValkeyModuleSlotRange){event->ranges[i][0], event->ranges[i][1]};
    ValkeyModuleAtomicSlotMigrationInfoV1 info = {.version = VALKEYMODULE_ATOMICSLOTMIGRATION_INFO_VERSION,
                                                  .slot_ranges = ranges,
                                                  .num_slot_ranges = (uint32_t)event->count};
    snprintf(info.job_name, sizeof info.job_name, "%s", event->job);
    deliver(VALKEYMODULE_EVENT_ATOMIC_SLOT_MIGRATION, kind, &info, NULL);
    mem_free(ranges);
}
static void databases_swapped(struct db *a, struct db *b) {
    if (a == b) return;
    ValkeyModuleSwapDbInfoV1 info = {VALKEYMODULE_SWAPDBINFO_VERSION, db_id(a), db_id(b)};
    deliver(VALKEYMODULE_EVENT_SWAPDB, 0, &info, NULL);
}
static struct store_listener store_listener = {.hooks = {.swapped = databases_swapped}};

static void reported(enum server_event event, unsigned kind, const void *data) {
    switch (event) {
    case EVENT_ROLE: deliver_role(kind); return;
    case EVENT_FLUSHDB: {
        const struct flush_event *flush = data;
        ValkeyModuleFlushInfoV1 info = {VALKEYMODULE_FLUSHINFO_VERSION, flush->sync, flush->db};
        bool in_load = server.loading || !dispatch_running();
        store_settings.readers += in_load;
        deliver(event, kind, &info, NULL);
        store_settings.readers -= in_load;
        return;
    }
    case EVENT_CLIENT_CHANGE: {
        struct client *client = (struct client *)(uintptr_t)data;
        ValkeyModuleClientInfoV1 info;
        client_info(client, &info);
        /* A push that passes a limit ends a client within a command, which uses its keys afterwards. */
        bool within_command = dispatch_running() != NULL;
        store_settings.readers += within_command;
        deliver(event, kind, &info, client);
        store_settings.readers -= within_command;
        return;
    }
    case EVENT_LOADING_PROGRESS: {
        ValkeyModuleLoadingProgressV1 info = {VALKEYMODULE_LOADING_PROGRESS_VERSION, server.hz, *(const int *)data};
        deliver(event, kind, &info, NULL);
        return;
    }
    case EVENT_AUTHENTICATION: {
        const struct authentication_event *attempt = data;
        char *user = mem_strndup(attempt->user.data, attempt->user.len);
        ValkeyModuleAuthenticationInfoV1 info = {
            VALKEYMODULE_AUTHENTICATION_INFO_VERSION, attempt->client->id, user, attempt->module,
            attempt->granted ? VALKEYMODULE_AUTH_RESULT_GRANTED : VALKEYMODULE_AUTH_RESULT_DENIED};
        deliver(event, 0, &info, NULL);
        mem_free(user);
        return;
    }
    case EVENT_KEY: {
        const struct key_event *change = data;
        deliver_key(kind, change->db, change->key);
        return;
    }
    case EVENT_SLOT_MIGRATION: deliver_slot_migration(kind, data); return;
    case EVENT_COMMAND_REJECTED:
    case EVENT_COMMAND_ACL_REJECTED: deliver_rejection(event, kind, data); return;
    case EVENT_PERSISTENCE:
    case EVENT_LOADING:
    case EVENT_REPLICA_CHANGE:
    case EVENT_PRIMARY_LINK:
    case EVENT_FORK_CHILD:
    case EVENT_ASYNC_LOAD: deliver(event, kind, NULL, NULL); return;
    }
}
static void config_changed(int count, const char *const *names) {
    ValkeyModuleConfigChangeV1 info = {VALKEYMODULE_CONFIGCHANGE_VERSION, (uint32_t)count,
                                       (const char **)(uintptr_t)names};
    deliver(VALKEYMODULE_EVENT_CONFIG, VALKEYMODULE_SUBEVENT_CONFIG_CHANGE, &info, NULL);
}
void module_event_changed(struct module *module, bool loaded) {
    ValkeyModuleModuleChangeV1 info = {VALKEYMODULE_MODULE_CHANGE_VERSION, module->name, module->version};
    const struct module *outer = changed_module; /* a module may load another in its listener */
    changed_module = module;
    deliver(VALKEYMODULE_EVENT_MODULE_CHANGE,
            loaded ? VALKEYMODULE_SUBEVENT_MODULE_LOADED : VALKEYMODULE_SUBEVENT_MODULE_UNLOADED, &info, NULL);
    changed_module = outer;
}
void module_events_cron(void) {
    ValkeyModuleCronLoopV1 info = {VALKEYMODULE_CRON_LOOP_VERSION, server.hz};
    deliver(VALKEYMODULE_EVENT_CRON_LOOP, 0, &info, NULL);
}
void module_events_before_wait(void) {
    static bool slept;
    if (slept) deliver(VALKEYMODULE_EVENT_EVENTLOOP, VALKEYMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP, NULL, NULL);
    slept = true;
    deliver(VALKEYMODULE_EVENT_EVENTLOOP, VALKEYMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP, NULL, NULL);
}
void module_events_shutdown(void) {
    deliver(VALKEYMODULE_EVENT_SHUTDOWN, 0, NULL, NULL);
}

/* --- Subscription --- */

static void wanted_changed(void) {
    server_events_wanted = 0;
    for (int i = 0; i < EVENTS; i++)
        if (subscribers[i]) server_events_wanted |= 1u << i;
    store_settings.reports_removals = subscribers[VALKEYMODULE_EVENT_KEY] > 0;
    bool results = subscribers[VALKEYMODULE_EVENT_COMMAND_RESULT_SUCCESS] ||
                   subscribers[VALKEYMODULE_EVENT_COMMAND_RESULT_FAILURE];
    if (results)
        call_listen(&result_listener);
    else
        call_unlisten(&result_listener);
    if (subscribers[VALKEYMODULE_EVENT_SWAPDB])
        store_events_listen(&store_listener);
    else
        store_events_unlisten(&store_listener);
}
static void subscription_end(struct module_event_subscription *subscription, struct module *module) {
    subscribers[subscription->event]--;
    list_remove(&module->events, &subscription->link);
    mem_free(subscription);
}
/* One function for each event and module; NULL ends the subscription. */
int api_SubscribeToServerEvent(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, ValkeyModuleEventCallback callback) {
    if (!ctx->module || event.id >= EVENTS) return VALKEYMODULE_ERR;
    struct module_event_subscription *present = NULL;
    list_each(&ctx->module->events, link) {
        struct module_event_subscription *subscription = container_of(link, struct module_event_subscription, link);
        if (subscription->event == event.id) present = subscription;
    }
    if (present && callback) {
        present->function = callback;
    } else if (present) {
        subscription_end(present, ctx->module);
    } else if (callback) {
        struct module_event_subscription *subscription = mem_calloc(1, sizeof *subscription);
        subscription->event = event.id;
        subscription->function = callback;
        list_append(&ctx->module->events, &subscription->link);
        subscribers[event.id]++;
    }
    wanted_changed();
    return VALKEYMODULE_OK;
}
void module_events_drop(struct module *module) {
    list_each(&module->events, link)
        subscription_end(container_of(link, struct module_event_subscription, link), module);
    wanted_changed();
}

void module_events_start(void) {
    server_event_listener = reported;
    config_on_change(config_changed);
}
