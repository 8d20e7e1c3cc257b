/* unloading.c: a module for tests/integration/modules-unloading.tcl: leaves registrations behind, of every kind, when
 * it is unloaded or when its OnLoad fails. */
#include "module/valkeymodule.h"
#include <string.h>
#include <unistd.h>

static ValkeyModuleCtx *self; /* for UNLOADING.LOOP */
static ValkeyModuleType *type;
static int ends[2] = {-1, -1}, called, leave_one_shot;

/* --- Functions that would crash the server after the library has been closed --- */

static void on_descriptor(int fd, void *data, int mask) {
    (void)fd, (void)data, (void)mask;
    called++; /* and reads nothing, so the loop calls it in each turn */
}
static void on_output(int fd, void *data, int mask) {
    (void)data, (void)mask;
    called++;
    ValkeyModule_EventLoopDel(fd, VALKEYMODULE_EVENTLOOP_WRITABLE);
}
static void once(void *data) {
    (void)data;
    called++;
}
static void unload_from_loop(void *data) {
    (void)data;
    ValkeyModuleCallReply *reply = ValkeyModule_Call(self, "MODULE", "Ecc", "UNLOAD", "unloading");
    size_t len;
    const char *text = ValkeyModule_CallReplyStringPtr(reply, &len);
    ValkeyModule_Log(self, "notice", "it answers: %.*s", (int)len, text);
    ValkeyModule_FreeCallReply(reply);
    ValkeyModule_FreeThreadSafeContext(self);
}
static void on_timer(ValkeyModuleCtx *ctx, void *data) {
    (void)ctx, (void)data;
    called++;
}
static int on_keyspace(ValkeyModuleCtx *ctx, int kind, const char *event, ValkeyModuleString *key) {
    (void)ctx, (void)kind, (void)event, (void)key;
    called++;
    return VALKEYMODULE_OK;
}
static void on_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    (void)ctx, (void)event, (void)kind, (void)data;
    called++;
}
static void on_command(ValkeyModuleCommandFilterCtx *filtered) {
    (void)filtered;
    called++;
}
static void on_info(ValkeyModuleInfoCtx *ctx, int for_crash_report) {
    (void)for_crash_report;
    ValkeyModule_InfoAddSection(ctx, "left");
}
static int on_auth(ValkeyModuleCtx *ctx, ValkeyModuleString *user, ValkeyModuleString *password,
                   ValkeyModuleString **error) {
    (void)ctx, (void)user, (void)password, (void)error;
    called++;
    return VALKEYMODULE_AUTH_NOT_HANDLED;
}
static void on_defrag(ValkeyModuleDefragCtx *ctx) {
    (void)ctx;
}
static void on_job(ValkeyModuleCtx *ctx, void *data) {
    (void)ctx, (void)data;
    called++;
}
static void on_promise(ValkeyModuleCtx *ctx, ValkeyModuleCallReply *reply, void *data) {
    (void)ctx, (void)data;
    called++;
    ValkeyModule_FreeCallReply(reply);
}
static void on_message(ValkeyModuleCtx *ctx, const char *sender, uint8_t kind, const unsigned char *bytes,
                       uint32_t len) {
    (void)ctx, (void)sender, (void)kind, (void)bytes, (void)len;
}
static int option_get(const char *name, void *data) {
    (void)name, (void)data;
    return 1;
}
static int option_set(const char *name, int value, void *data, ValkeyModuleString **error) {
    (void)name, (void)value, (void)data, (void)error;
    return VALKEYMODULE_OK;
}

static void *value_load(ValkeyModuleIO *io, int version) {
    (void)version;
    return ValkeyModule_LoadStringBuffer(io, NULL);
}
static void value_save(ValkeyModuleIO *io, void *value) {
    ValkeyModule_SaveStringBuffer(io, value, 1);
}
static void value_free(void *value) {
    if (*(char *)value == 'b') usleep(200000); /* in the background, while OnLoad fails */
    ValkeyModule_Free(value);
}
static size_t value_effort(ValkeyModuleString *key, const void *value) {
    (void)key;
    return *(const char *)value == 'b' ? 0 : 1;
}

/* --- Commands --- */

/* UNLOADING.WATCH: watches a descriptor that is always readable, and one that is always writable. */
static int watch(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (pipe(ends) != 0 || write(ends[1], "x", 1) != 1 ||
        ValkeyModule_EventLoopAdd(ends[0], VALKEYMODULE_EVENTLOOP_READABLE, on_descriptor, NULL) != VALKEYMODULE_OK ||
        ValkeyModule_EventLoopAdd(ends[1], VALKEYMODULE_EVENTLOOP_WRITABLE, on_output, NULL) != VALKEYMODULE_OK)
        return ValkeyModule_ReplyWithError(ctx, "ERR not watched");
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
/* UNLOADING.ONCE: OnUnload adds a function for the next turn of the loop. */
static int leave_once(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    leave_one_shot = 1;
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
/* UNLOADING.LOOP: a function of the loop unloads the module, in a context that belongs to no module. */
static int unload_in_loop(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    self = ValkeyModule_GetThreadSafeContext(NULL);
    ValkeyModule_EventLoopAddOneShot(unload_from_loop, NULL);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
static int calls(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return ValkeyModule_ReplyWithLongLong(ctx, called);
}
/* --- OnLoad --- */

static int store(ValkeyModuleCtx *ctx, const char *name, int db, char content) {
    ValkeyModuleString *key_name = ValkeyModule_CreateString(NULL, name, strlen(name));
    char *value = ValkeyModule_Alloc(1);
    *value = content;
    ValkeyModule_SelectDb(ctx, db);
    ValkeyModuleKey *key = ValkeyModule_OpenKey(ctx, key_name, VALKEYMODULE_WRITE);
    int result = ValkeyModule_ModuleTypeSetValue(key, type, value);
    ValkeyModule_CloseKey(key);
    ValkeyModule_SelectDb(ctx, 0);
    ValkeyModule_FreeString(NULL, key_name);
    return result;
}
static int leave_everything(ValkeyModuleCtx *ctx) {
    ValkeyModuleTypeMethods methods = {.version = VALKEYMODULE_TYPE_METHOD_VERSION,
                                       .rdb_load = value_load,
                                       .rdb_save = value_save,
                                       .free = value_free,
                                       .free_effort = value_effort};
    int failed = !(type = ValkeyModule_CreateDataType(ctx, "unloading", 1, &methods));
    failed |= store(ctx, "one", 0, 'a') | store(ctx, "plain", 0, 'a') | store(ctx, "two", 9, 'a');
    ValkeyModule_CreateTimer(ctx, 20, on_timer, NULL);
    failed |= ValkeyModule_SubscribeToKeyspaceEvents(ctx, VALKEYMODULE_NOTIFY_ALL, on_keyspace);
    failed |= !ValkeyModule_RegisterCommandFilter(ctx, on_command, 0);
    failed |= ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_FlushDB, on_event);
    failed |= ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_Key, on_event);
    failed |= ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_EventLoop, on_event);
    failed |= ValkeyModule_RegisterBoolConfig(ctx, "option", 1, 0, option_get, option_set, NULL, NULL);
    failed |= ValkeyModule_LoadConfigs(ctx);
    failed |= ValkeyModule_RegisterInfoFunc(ctx, on_info);
    failed |= ValkeyModule_AddACLCategory(ctx, "unloading");
    failed |= ValkeyModule_SetCommandACLCategories(ValkeyModule_GetCommand(ctx, "unloading.calls"), "unloading");
    ValkeyModule_FreeCallReply(
        ValkeyModule_Call(ctx, "ACL", "ccccc", "SETUSER", "left", "on", "+@unloading", "+unloading.watch"));
    ValkeyModule_RegisterAuthCallback(ctx, on_auth);
    failed |= ValkeyModule_RegisterDefragFunc(ctx, on_defrag);
    failed |= ValkeyModule_AddPostNotificationJob(ctx, on_job, NULL, NULL);
    ValkeyModule_RegisterClusterMessageReceiver(ctx, 1, on_message);
    failed |= ValkeyModule_ExportSharedAPI(ctx, "unloading_function", (void *)(uintptr_t)calls);
    failed |= pipe(ends) != 0 || write(ends[1], "x", 1) != 1;
    failed |= ValkeyModule_EventLoopAdd(ends[0], VALKEYMODULE_EVENTLOOP_READABLE, on_descriptor, NULL);
    failed |= ValkeyModule_EventLoopAddOneShot(once, NULL);
    ValkeyModuleCallReply *waits = ValkeyModule_Call(ctx, "BLPOP", "Kcc", "list", "0");
    failed |= ValkeyModule_CallReplyType(waits) != VALKEYMODULE_REPLY_PROMISE;
    ValkeyModule_CallReplyPromiseSetUnblockHandler(waits, on_promise, NULL);
    ValkeyModule_FreeCallReply(waits);
    return failed ? VALKEYMODULE_ERR : VALKEYMODULE_OK;
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (ValkeyModule_Init(ctx, "unloading", 1, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    if (ValkeyModule_CreateCommand(ctx, "unloading.watch", watch, "", 0, 0, 0) == VALKEYMODULE_ERR ||
        ValkeyModule_CreateCommand(ctx, "unloading.once", leave_once, "", 0, 0, 0) == VALKEYMODULE_ERR ||
        ValkeyModule_CreateCommand(ctx, "unloading.loop", unload_in_loop, "", 0, 0, 0) == VALKEYMODULE_ERR ||
        ValkeyModule_CreateCommand(ctx, "unloading.calls", calls, "", 0, 0, 0) == VALKEYMODULE_ERR)
        return VALKEYMODULE_ERR;
    const char *how = argc > 0 ? ValkeyModule_StringPtrLen(argv[0], NULL) : "";
    if (!*how) return VALKEYMODULE_OK;
    int left = leave_everything(ctx);
    ValkeyModule_Log(ctx, "notice", "OnLoad leaves %s", left == VALKEYMODULE_OK ? "everything" : "less");
    if (strcmp(how, "background") == 0) {
        store(ctx, "three", 0, 'b');
        ValkeyModule_FreeCallReply(ValkeyModule_Call(ctx, "UNLINK", "c", "three"));
    }
    return VALKEYMODULE_ERR;
}
int ValkeyModule_OnUnload(ValkeyModuleCtx *ctx) {
    (void)ctx;
    if (leave_one_shot) ValkeyModule_EventLoopAddOneShot(once, NULL);
    return VALKEYMODULE_OK;
}
