/* journal.c: a module for tests/interop/module_answers.py: it keeps a journal of all server events and keyspace events
 * with what they say, and runs functions of the interface from each place in which a module may act.
 *
 *   JOURNAL.READ                replies with the journal, and begins a new one
 *   JOURNAL.RUN operation…      runs operations, and replies with what they answered
 *   JOURNAL.ON event operation… runs operations at an event: "set" or another keyspace event, or "flushdb:1"
 *   JOURNAL.MUTE name…          leaves these out of the journal
 *   JOURNAL.DEFRAGMENTED        how often active defragmentation has asked the module
 *
 * Operations are separated by ";":
 *
 *   call format command argument…        Call      replicate format command argument…  Replicate
 *   verbatim    ReplicateVerbatim        flags     GetContextFlags
 *   select db   SelectDb                 who       id, user and name of the client, and the command
 *   timer ms    the rest in a timer      thread    the rest in a thread, which takes the lock
 *   job         the rest as a job after the notification          oneshot  the rest in a turn of the event loop
 *   wait        the client is blocked; the rest runs in a thread, which replies to it
 *   notify event key                     signal key      SignalKeyAsReady
 *   user rules  the calls with C run as a user with these rules */
#include "module/valkeymodule.h"
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OPERATIONS = 64 };
static char journal[1 << 16], muted[1024] = " cron-loop eventloop result-0 ";
static struct {
    char event[64];
    int argc;
    ValkeyModuleString *argv[OPERATIONS];
} actions[16];
static ValkeyModuleUser *user;

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
    size_t len = strlen(journal);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(journal + len, sizeof journal - len - 2, format, arguments);
    va_end(arguments);
    strcat(journal, "\n");
}
static const char *text(const ValkeyModuleString *string) {
    return string ? ValkeyModule_StringPtrLen(string, NULL) : "NULL";
}
static int is_muted(const char *name) {
    char word[100];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(muted, word) != NULL;
}

/* --- Operations --- */

struct rest {
    int argc;
    ValkeyModuleString **argv;
    ValkeyModuleBlockedClient *blocked;
    char *answer;
};
static void run(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc, char *answer);

static struct rest *rest_of(ValkeyModuleString **argv, int argc) {
    struct rest *rest = ValkeyModule_Calloc(1, sizeof *rest);
    rest->argv = ValkeyModule_Calloc((size_t)argc + 1, sizeof *argv);
    rest->argc = argc;
    for (int i = 0; i < argc; i++) rest->argv[i] = ValkeyModule_HoldString(NULL, argv[i]);
    rest->answer = ValkeyModule_Calloc(1, 1 << 14);
    return rest;
}
static void rest_free(void *data) {
    struct rest *rest = data;
    for (int i = 0; i < rest->argc; i++) ValkeyModule_FreeString(NULL, rest->argv[i]);
    ValkeyModule_Free(rest->argv);
    ValkeyModule_Free(rest->answer);
    ValkeyModule_Free(rest);
}
static void rest_run(const char *where, ValkeyModuleCtx *ctx, struct rest *rest) {
    run(ctx, rest->argv, rest->argc, rest->answer);
    note("%s:%s", where, rest->answer);
}
static void on_timer(ValkeyModuleCtx *ctx, void *data) {
    rest_run("timer", ctx, data);
    rest_free(data);
}
static void on_job(ValkeyModuleCtx *ctx, void *data) {
    rest_run("job", ctx, data);
}
static void on_turn(void *data) {
    ValkeyModuleCtx *ctx = ValkeyModule_GetThreadSafeContext(NULL);
    rest_run("oneshot", ctx, data);
    rest_free(data);
    ValkeyModule_FreeThreadSafeContext(ctx);
}
static void *in_thread(void *data) {
    struct rest *rest = data;
    ValkeyModuleCtx *ctx = ValkeyModule_GetThreadSafeContext(rest->blocked);
    ValkeyModule_ThreadSafeContextLock(ctx);
    rest_run("thread", ctx, rest);
    if (rest->blocked) ValkeyModule_ReplyWithCString(ctx, rest->answer);
    ValkeyModule_ThreadSafeContextUnlock(ctx);
    ValkeyModule_FreeThreadSafeContext(ctx);
    if (rest->blocked) ValkeyModule_UnblockClient(rest->blocked, NULL);
    rest_free(rest);
    return NULL;
}
static void thread_start(struct rest *rest) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, rest) == 0) pthread_detach(thread);
}

__attribute__((format(printf, 2, 3))) static void add(char *answer, const char *format, ...) {
    size_t len = strlen(answer);
    va_list arguments;
    va_start(arguments, format);
    len += (size_t)snprintf(answer + len, (1 << 14) - len, " ");
    vsnprintf(answer + len, (1 << 14) - len, format, arguments);
    va_end(arguments);
}
/* Without the bits that tell of memory and persistence at the moment. */
static int flags_of(ValkeyModuleCtx *ctx) {
    return ValkeyModule_GetContextFlags(ctx) & ~VALKEYMODULE_CTX_FLAGS_ACTIVE_CHILD;
}
static void add_reply(char *answer, ValkeyModuleCallReply *reply, int error) {
    size_t len;
    if (!reply) {
        add(answer, "NULL %s", error ? strerrorname_np(error) : "0");
        return;
    }
    if (ValkeyModule_CallReplyType(reply) == VALKEYMODULE_REPLY_PROMISE) {
        add(answer, "promise");
        return;
    }
    const char *proto = ValkeyModule_CallReplyProto(reply, &len);
    char shown[2000];
    size_t at = 0;
    for (size_t i = 0; proto && i < len && at < sizeof shown - 2; i++)
        if (proto[i] != '\n') shown[at++] = proto[i] == '\r' ? ' ' : proto[i];
    shown[at] = 0;
    add(answer, "%d[%s]", ValkeyModule_CallReplyType(reply), shown);
}
static void promise_ended(ValkeyModuleCtx *ctx, ValkeyModuleCallReply *reply, void *data) {
    char answer[1 << 14] = "";
    add_reply(answer, reply, 0);
    note("promise:%s %x", answer, flags_of(ctx));
    ValkeyModule_FreeCallReply(reply);
    ValkeyModule_FreeCallReply(data);
}
static void operation(ValkeyModuleCtx *ctx, const char *name, ValkeyModuleString **argv, int argc, char *answer) {
    char format[64];
    errno = 0;
    if (strcmp(name, "call") == 0 && argc > 1) {
        snprintf(format, sizeof format, "%s%s", strcmp(text(argv[0]), "-") ? text(argv[0]) : "", "v");
        ValkeyModuleCallReply *reply = ValkeyModule_Call(ctx, text(argv[1]), format, argv + 2, (size_t)(argc - 2));
        add_reply(answer, reply, errno);
        if (reply && ValkeyModule_CallReplyType(reply) == VALKEYMODULE_REPLY_PROMISE)
            ValkeyModule_CallReplyPromiseSetUnblockHandler(reply, promise_ended, reply);
        else if (reply)
            ValkeyModule_FreeCallReply(reply);
    } else if (strcmp(name, "replicate") == 0 && argc > 1) {
        snprintf(format, sizeof format, "%s%s", strcmp(text(argv[0]), "-") ? text(argv[0]) : "", "v");
        int result = ValkeyModule_Replicate(ctx, text(argv[1]), format, argv + 2, (size_t)(argc - 2));
        add(answer, "%d %s", result, errno ? strerrorname_np(errno) : "0");
    } else if (strcmp(name, "verbatim") == 0) {
        add(answer, "%d", ValkeyModule_ReplicateVerbatim(ctx));
    } else if (strcmp(name, "flags") == 0) {
        add(answer, "%x", flags_of(ctx));
    } else if (strcmp(name, "select") == 0) {
        long long db = 0;
        ValkeyModule_StringToLongLong(argv[0], &db);
        int result = ValkeyModule_SelectDb(ctx, (int)db);
        add(answer, "%d %d", result, ValkeyModule_GetSelectedDb(ctx));
    } else if (strcmp(name, "who") == 0) {
        unsigned long long id = ValkeyModule_GetClientId(ctx);
        ValkeyModuleString *by_id = ValkeyModule_GetClientUserNameById(ctx, id), *of_name;
        int error = errno;
        of_name = ValkeyModule_GetClientNameById(ctx, id);
        ValkeyModuleClientInfo info = VALKEYMODULE_CLIENTINFO_INITIALIZER_V1;
        int found = ValkeyModule_GetClientInfoById(&info, id);
        ValkeyModuleString *current = ValkeyModule_GetCurrentUserName(ctx);
        add(answer, "id %s user %s %s name %s current %s db %d must %d info %d flags %llx addr %s db %d command %s",
            id == 0                 ? "0"
            : id >= UINT64_MAX - 99 ? "high"
                                    : "some",
            text(by_id), error ? strerrorname_np(error) : "0", text(of_name), text(current),
            ValkeyModule_GetSelectedDb(ctx), ValkeyModule_MustObeyClient(ctx), found, (unsigned long long)info.flags,
            info.addr, info.db, id && id < UINT64_MAX - 99 ? ValkeyModule_GetCurrentCommandName(ctx) : "-");
        if (by_id) ValkeyModule_FreeString(ctx, by_id);
        if (of_name) ValkeyModule_FreeString(ctx, of_name);
        if (current) ValkeyModule_FreeString(ctx, current);
    } else if (strcmp(name, "notify") == 0 && argc == 2) {
        add(answer, "%d", ValkeyModule_NotifyKeyspaceEvent(ctx, VALKEYMODULE_NOTIFY_MODULE, text(argv[0]), argv[1]));
    } else if (strcmp(name, "signal") == 0 && argc == 1) {
        ValkeyModule_SignalKeyAsReady(ctx, argv[0]);
    } else if (strcmp(name, "user") == 0 && argc == 1) {
        if (user) ValkeyModule_FreeModuleUser(user);
        user = ValkeyModule_CreateModuleUser("journal");
        ValkeyModuleString *error = NULL;
        add(answer, "%d", ValkeyModule_SetModuleUserACLString(ctx, user, text(argv[0]), &error) == VALKEYMODULE_OK);
        if (error) {
            add(answer, "%s", text(error));
            ValkeyModule_FreeString(NULL, error);
        }
        ValkeyModule_SetContextUser(ctx, user);
    } else {
        add(answer, "no operation %s", name);
    }
}
static void run(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc, char *answer) {
    int begin = 0;
    while (begin < argc) {
        int end = begin;
        while (end < argc && strcmp(text(argv[end]), ";") != 0) end++;
        const char *name = text(argv[begin]);
        ValkeyModuleString **rest = argv + end + 1;
        int left = end < argc ? argc - end - 1 : 0;
        long long ms = 1;
        if (strcmp(name, "timer") == 0) {
            ValkeyModule_StringToLongLong(argv[begin + 1], &ms);
            ValkeyModule_CreateTimer(ctx, ms, on_timer, rest_of(rest, left));
            return;
        }
        if (strcmp(name, "job") == 0) {
            struct rest *data = rest_of(rest, left);
            int result = ValkeyModule_AddPostNotificationJob(ctx, on_job, data, rest_free);
            add(answer, "%d", result);
            if (result != VALKEYMODULE_OK) rest_free(data);
            return;
        }
        if (strcmp(name, "oneshot") == 0) {
            add(answer, "%d", ValkeyModule_EventLoopAddOneShot(on_turn, rest_of(rest, left)));
            return;
        }
        if (strcmp(name, "thread") == 0) {
            thread_start(rest_of(rest, left));
            return;
        }
        operation(ctx, name, argv + begin + 1, end - begin - 1, answer);
        begin = end + 1;
    }
}
static int run_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc > 1 && strcmp(text(argv[1]), "wait") == 0) {
        ValkeyModuleBlockedClient *blocked = ValkeyModule_BlockClient(ctx, NULL, NULL, NULL, 0);
        struct rest *rest = rest_of(argv + 3, argc - 3);
        rest->blocked = blocked;
        thread_start(rest);
        return VALKEYMODULE_OK;
    }
    char *answer = ValkeyModule_Calloc(1, 1 << 14);
    run(ctx, argv + 1, argc - 1, answer);
    ValkeyModule_ReplyWithCString(ctx, answer);
    ValkeyModule_Free(answer);
    return VALKEYMODULE_OK;
}
static void act(ValkeyModuleCtx *ctx, const char *event) {
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (actions[i].event[0] && strcmp(actions[i].event, event) == 0) {
            char *answer = ValkeyModule_Calloc(1, 1 << 14);
            run(ctx, actions[i].argv, actions[i].argc, answer);
            note(" on %s:%s", event, answer);
            ValkeyModule_Free(answer);
        }
}

/* --- Events --- */

static const char *const names[] = {"role",           "persistence", "flushdb",    "loading",   "client",   "shutdown",
                                    "replica",        "link",        "cron-loop",  "module",    "progress", "swapdb",
                                    "backup",         "fork",        "async-load", "eventloop", "config",   "key",
                                    "authentication", "slots",       "success",    "failure",   "rejected", "acl"};
enum { EVENTS = sizeof names / sizeof *names };

static void describe(uint64_t id, void *data, char *more, size_t size) {
    size_t at = 0;
    more[0] = 0;
    if (!data) return;
    switch (id) {
    case VALKEYMODULE_EVENT_REPLICATION_ROLE_CHANGED: {
        ValkeyModuleReplicationInfo *info = data;
        snprintf(more, size, "%llu %d %s %d id %zu %zu", (unsigned long long)info->version, info->primary,
                 info->primary_host, info->primary ? 0 : info->primary_port > 0, strlen(info->replid1),
                 strlen(info->replid2));
        break;
    }
    case VALKEYMODULE_EVENT_FLUSHDB: {
        ValkeyModuleFlushInfo *info = data;
        snprintf(more, size, "%llu %d %d", (unsigned long long)info->version, info->sync, info->dbnum);
        break;
    }
    case VALKEYMODULE_EVENT_CLIENT_CHANGE: {
        ValkeyModuleClientInfo *info = data;
        snprintf(more, size, "%llu flags %llx addr %s db %d port %d", (unsigned long long)info->version,
                 (unsigned long long)info->flags, info->addr, info->db, info->port > 0);
        break;
    }
    case VALKEYMODULE_EVENT_MODULE_CHANGE: {
        ValkeyModuleModuleChange *info = data;
        snprintf(more, size, "%llu %s %d", (unsigned long long)info->version, info->module_name, info->module_version);
        break;
    }
    case VALKEYMODULE_EVENT_CONFIG: {
        ValkeyModuleConfigChange *info = data;
        for (uint32_t i = 0; i < info->num_changes; i++)
            at += (size_t)snprintf(more + at, size - at, "%s ", info->config_names[i]);
        break;
    }
    case VALKEYMODULE_EVENT_SWAPDB: {
        ValkeyModuleSwapDbInfo *info = data;
        snprintf(more, size, "%llu %d %d", (unsigned long long)info->version, info->dbnum_first, info->dbnum_second);
        break;
    }
    case VALKEYMODULE_EVENT_KEY: {
        ValkeyModuleKeyInfo *info = data;
        mstime_t expire = ValkeyModule_GetAbsExpire(info->key);
        snprintf(more, size, "%llu '%s' type %d length %zu expires %d db %d", (unsigned long long)info->version,
                 text(ValkeyModule_GetKeyNameFromModuleKey(info->key)), ValkeyModule_KeyType(info->key),
                 ValkeyModule_ValueLength(info->key), expire > 0 ? 1 : (int)expire,
                 ValkeyModule_GetDbIdFromModuleKey(info->key));
        break;
    }
    case VALKEYMODULE_EVENT_AUTHENTICATION_ATTEMPT: {
        ValkeyModuleAuthenticationInfo *info = data;
        snprintf(more, size, "%llu %s %s %d", (unsigned long long)info->version, info->username,
                 info->module_name ? info->module_name : "NULL", info->result);
        break;
    }
    case VALKEYMODULE_EVENT_LOADING_PROGRESS: {
        ValkeyModuleLoadingProgress *info = data;
        snprintf(more, size, "%llu %d", (unsigned long long)info->version, info->progress >= 0);
        break;
    }
    case VALKEYMODULE_EVENT_COMMAND_RESULT_SUCCESS:
    case VALKEYMODULE_EVENT_COMMAND_RESULT_FAILURE:
    case VALKEYMODULE_EVENT_COMMAND_RESULT_REJECTED:
    case VALKEYMODULE_EVENT_COMMAND_RESULT_ACL_REJECTED: {
        ValkeyModuleCommandResultInfo *info = data;
        snprintf(more, size, "%llu %s dirty %lld module %d argc %d %s", (unsigned long long)info->version,
                 info->command_name, info->dirty, info->is_module_client, info->argc,
                 info->rejection_context ? info->rejection_context : "NULL");
        break;
    }
    }
}
static void server_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    char more[1024], name[64];
    if (is_muted(names[event.id])) return;
    describe(event.id, data, more, sizeof more);
    note("%s:%llu %s flags %x db %d version %llu", names[event.id], (unsigned long long)kind, more, flags_of(ctx),
         ValkeyModule_GetSelectedDb(ctx), (unsigned long long)event.dataver);
    snprintf(name, sizeof name, "%s:%llu", names[event.id], (unsigned long long)kind);
    act(ctx, name);
    if (event.id == VALKEYMODULE_EVENT_SHUTDOWN) ValkeyModule_Log(ctx, "notice", "shutdown, flags %x", flags_of(ctx));
}
static int keyspace_event(ValkeyModuleCtx *ctx, int type, const char *event, ValkeyModuleString *key) {
    if (is_muted("keyspace")) return VALKEYMODULE_OK;
    note("keyspace %x %s %s flags %x db %d id %d", type, event, text(key), flags_of(ctx),
         ValkeyModule_GetSelectedDb(ctx), ValkeyModule_GetClientId(ctx) > 0);
    act(ctx, event);
    return VALKEYMODULE_OK;
}

static int read_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModule_ReplyWithCString(ctx, journal);
    journal[0] = 0;
    return VALKEYMODULE_OK;
}
static int on_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc < 2) return ValkeyModule_WrongArity(ctx);
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        int same = strcmp(actions[i].event, text(argv[1])) == 0;
        if (!same && (actions[i].event[0] || argc == 2)) continue;
        while (actions[i].argc) ValkeyModule_FreeString(NULL, actions[i].argv[--actions[i].argc]);
        snprintf(actions[i].event, sizeof actions[i].event, "%s", argc > 2 ? text(argv[1]) : "");
        for (int word = 2; word < argc && actions[i].argc < OPERATIONS; word++)
            actions[i].argv[actions[i].argc++] = ValkeyModule_HoldString(NULL, argv[word]);
        break;
    }
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
static int mute_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    strcpy(muted, " ");
    for (int i = 1; i < argc; i++) {
        size_t len = strlen(muted);
        snprintf(muted + len, sizeof muted - len, "%s ", text(argv[i]));
    }
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

static long long defragmented;
static void defrag(ValkeyModuleDefragCtx *ctx) {
    (void)ctx;
    defragmented++;
}
static int defragmented_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return ValkeyModule_ReplyWithLongLong(ctx, defragmented);
}

int ValkeyModule_OnUnload(ValkeyModuleCtx *ctx) {
    ValkeyModule_Log(ctx, "notice", "the journal ends, flags %x", flags_of(ctx));
    return VALKEYMODULE_OK;
}
int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (ValkeyModule_Init(ctx, "journal", 3, VALKEYMODULE_APIVER_1) != VALKEYMODULE_OK) return VALKEYMODULE_ERR;
    if (argc && strcmp(text(argv[0]), "nested") == 0)
        ValkeyModule_SetModuleOptions(ctx, VALKEYMODULE_OPTIONS_ALLOW_NESTED_KEYSPACE_NOTIFICATIONS);
    strcpy(muted, " cron-loop eventloop progress success failure rejected acl ");
    for (uint64_t id = 0; id < EVENTS; id++)
        if (id != VALKEYMODULE_EVENT_REPL_BACKUP &&
            ValkeyModule_SubscribeToServerEvent(ctx, (ValkeyModuleEvent){id, 1}, server_event) != VALKEYMODULE_OK)
            return VALKEYMODULE_ERR;
    int types = VALKEYMODULE_NOTIFY_ALL | VALKEYMODULE_NOTIFY_KEY_MISS | VALKEYMODULE_NOTIFY_LOADED |
                VALKEYMODULE_NOTIFY_NEW | VALKEYMODULE_NOTIFY_MODULE;
    int result = ValkeyModule_SubscribeToKeyspaceEvents(ctx, types, keyspace_event);
    result |= ValkeyModule_CreateCommand(ctx, "journal.read", read_command, "allow-stale", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "journal.on", on_command, "", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "journal.mute", mute_command, "", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "journal.run", run_command, "", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "journal.everywhere", read_command, "all-dbs", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "journal.defragmented", defragmented_command, "", 0, 0, 0);
    result |= ValkeyModule_RegisterDefragFunc(ctx, defrag);
    result |= ValkeyModule_CreateCommand(ctx, "journal.write", run_command, "write", 0, 0, 0);
    return result;
}
