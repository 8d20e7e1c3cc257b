/* watching.c: a module that watches and changes what others do: server events, command filters, users. */
#include "module/valkeymodule.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* --- Events: watching.events replies with what has happened since the last time --- */

static char events[4096];

static void event_note(const char *what, unsigned long long kind, const char *more) {
    size_t len = strlen(events);
    snprintf(events + len, sizeof events - len, "%s%s:%llu%s%s", len ? " " : "", what, kind, *more ? ":" : "", more);
}
static void flush_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    (void)ctx, (void)event;
    ValkeyModuleFlushInfoV1 *info = data;
    char text[64];
    snprintf(text, sizeof text, "%d,%d", info->sync, info->dbnum);
    event_note("flush", kind, text);
}
static void config_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    (void)ctx, (void)event;
    ValkeyModuleConfigChangeV1 *info = data;
    for (uint32_t i = 0; i < info->num_changes; i++) event_note("config", kind, info->config_names[i]);
}
static void swap_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    (void)ctx, (void)event;
    ValkeyModuleSwapDbInfoV1 *info = data;
    char text[64];
    snprintf(text, sizeof text, "%d,%d", info->dbnum_first, info->dbnum_second);
    event_note("swap", kind, text);
}
static char ids[256]; /* watching.ids: of the last change of the role */

static void role_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    (void)ctx, (void)event;
    ValkeyModuleReplicationInfoV1 *info = data;
    event_note("role", kind, info->primary ? "primary" : "replica");
    snprintf(ids, sizeof ids, "%s %lld", info->replid2, (long long)info->repl2_offset);
}
static void module_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    (void)ctx, (void)event;
    ValkeyModuleModuleChangeV1 *info = data;
    event_note("module", kind, info->module_name);
}
static void login_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    (void)ctx, (void)event, (void)kind;
    ValkeyModuleAuthenticationInfoV1 *info = data;
    event_note("login", info->result, info->username);
}
/* watching.reset: the end of the next save empties the data set, and begins the append-only file again. */
static int resets;
static int reset_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    resets = 1;
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
static void save_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    (void)ctx, (void)event, (void)data;
    event_note("save", kind, "");
    if (kind != VALKEYMODULE_SUBEVENT_PERSISTENCE_ENDED || !resets) return;
    resets = 0;
    ValkeyModule_ResetDataset(1, 0);
}
static void progress_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    (void)ctx, (void)event;
    ValkeyModuleLoadingProgressV1 *info = data;
    event_note("progress", kind, info->progress >= 0 && info->progress <= 1024 && info->hz > 0 ? "" : "wrong");
}
static int events_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModule_ReplyWithCString(ctx, events);
    events[0] = 0;
    return VALKEYMODULE_OK;
}

static int ids_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return ValkeyModule_ReplyWithCString(ctx, ids);
}

/* --- A filter: the first argument "@double" becomes two, "@drop" none, "@id" the client's id, "@count" the number of
 * times; with "@close" the client ends --- */

static long long filtered;

static void filter(ValkeyModuleCommandFilterCtx *filter) {
    int count = ValkeyModule_CommandFilterArgsCount(filter);
    for (int i = 1; i < count; i++) {
        const char *text = ValkeyModule_StringPtrLen(ValkeyModule_CommandFilterArgGet(filter, i), NULL);
        if (strcmp(text, "@drop") == 0) {
            ValkeyModule_CommandFilterArgDelete(filter, i);
        } else if (strcmp(text, "@double") == 0) {
            ValkeyModule_CommandFilterArgReplace(filter, i, ValkeyModule_CreateString(NULL, "one", 3));
            ValkeyModule_CommandFilterArgInsert(filter, i + 1, ValkeyModule_CreateString(NULL, "two", 3));
        } else if (strcmp(text, "@id") == 0) {
            unsigned long long id = ValkeyModule_CommandFilterGetClientId(filter);
            ValkeyModule_CommandFilterArgReplace(filter, i, ValkeyModule_CreateStringPrintf(NULL, "%llu", id));
        } else if (strcmp(text, "@count") == 0) {
            ValkeyModule_CommandFilterArgReplace(filter, i, ValkeyModule_CreateStringFromLongLong(NULL, ++filtered));
        } else if (strcmp(text, "@close") == 0) {
            ValkeyModuleCtx *ctx = ValkeyModule_GetThreadSafeContext(NULL);
            unsigned long long id = ValkeyModule_CommandFilterGetClientId(filter);
            ValkeyModule_CommandFilterArgReplace(filter, i, ValkeyModule_CreateString(NULL, "closed", 6));
            ValkeyModule_DeauthenticateAndCloseClient(ctx, id);
            ValkeyModule_FreeThreadSafeContext(ctx);
        } else {
            continue;
        }
        return;
    }
}
/* watching.call command argument…: through Call */
static int call_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    ValkeyModuleCallReply *reply =
        ValkeyModule_Call(ctx, ValkeyModule_StringPtrLen(argv[1], NULL), "Ev", argv + 2, (size_t)argc - 2);
    ValkeyModule_ReplyWithCallReply(ctx, reply);
    ValkeyModule_FreeCallReply(reply);
    return VALKEYMODULE_OK;
}

/* --- watching.user rules key: the rules of a new user, and whether it may read the key --- */

static int user_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 3) return ValkeyModule_WrongArity(ctx);
    ValkeyModuleUser *user = ValkeyModule_CreateModuleUser("watched");
    ValkeyModuleString *error = NULL;
    if (ValkeyModule_SetModuleUserACLString(ctx, user, ValkeyModule_StringPtrLen(argv[1], NULL), &error) !=
        VALKEYMODULE_OK) {
        ValkeyModule_ReplyWithError(ctx, ValkeyModule_StringPtrLen(error, NULL));
        ValkeyModule_FreeString(ctx, error);
    } else {
        ValkeyModuleString *rules = ValkeyModule_GetModuleUserACLString(user);
        int access = VALKEYMODULE_CMD_KEY_ACCESS;
        ValkeyModule_ReplyWithArray(ctx, 2);
        ValkeyModule_ReplyWithString(ctx, rules);
        int allowed = ValkeyModule_ACLCheckKeyPermissions(user, argv[2], access);
        ValkeyModule_ReplyWithLongLong(ctx, allowed == VALKEYMODULE_OK ? 0 : errno);
        ValkeyModule_FreeString(ctx, rules);
    }
    ValkeyModule_FreeModuleUser(user);
    return VALKEYMODULE_OK;
}

static void pass(ValkeyModuleCommandFilterCtx *filter) {}

/* Replies with the results of ending a filter, and of ending it again. */
static int end_twice_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    ValkeyModuleCommandFilter *own = ValkeyModule_RegisterCommandFilter(ctx, pass, 0);
    ValkeyModule_ReplyWithArray(ctx, 2);
    ValkeyModule_ReplyWithLongLong(ctx, ValkeyModule_UnregisterCommandFilter(ctx, own));
    return ValkeyModule_ReplyWithLongLong(ctx, ValkeyModule_UnregisterCommandFilter(ctx, own));
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (ValkeyModule_Init(ctx, "watching", 1, VALKEYMODULE_APIVER_1) != VALKEYMODULE_OK) return VALKEYMODULE_ERR;
    events[0] = 0;
    int result = ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_FlushDB, flush_event);
    result |= ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_Config, config_event);
    result |= ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_SwapDB, swap_event);
    result |= ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_ReplicationRoleChanged, role_event);
    result |= ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_ModuleChange, module_event);
    result |= ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_AuthenticationAttempt, login_event);
    result |= ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_Persistence, save_event);
    result |= ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_LoadingProgress, progress_event);
    if (!ValkeyModule_RegisterCommandFilter(ctx, filter, 0)) return VALKEYMODULE_ERR;
    result |= ValkeyModule_CreateCommand(ctx, "watching.events", events_command, "", 0, 0, 0);
    result |= ValkeyModule_ExportSharedAPI(ctx, "watching_filtered", &filtered);
    result |= ValkeyModule_CreateCommand(ctx, "watching.ids", ids_command, "", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "watching.end_twice", end_twice_command, "", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "watching.call", call_command, "", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "watching.user", user_command, "", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "watching.reset", reset_command, "", 0, 0, 0);
    return result;
}
