/* rights.c: a module for tests/integration/modules-rights.tcl: which user its calls run as. */
#include "module/valkeymodule.h"
#include <stdio.h>
#include <string.h>

static ValkeyModuleUser *own, *handle;
static char last[1024]; /* the reply to the last call that waited */

static const char *text(ValkeyModuleString *string) {
    return ValkeyModule_StringPtrLen(string, NULL);
}
static void promise_ended(ValkeyModuleCtx *ctx, ValkeyModuleCallReply *reply, void *data) {
    (void)ctx;
    size_t len;
    const char *proto = ValkeyModule_CallReplyProto(reply, &len);
    snprintf(last, sizeof last, "%.*s", (int)len, proto);
    ValkeyModule_FreeCallReply(reply);
    ValkeyModule_FreeCallReply(data);
}
static int call_as(ValkeyModuleCtx *ctx, ValkeyModuleUser *user, ValkeyModuleString **argv, int argc) {
    char format[64];
    if (argc < 3) return ValkeyModule_WrongArity(ctx);
    snprintf(format, sizeof format, "%sEv", text(argv[1]));
    if (user) ValkeyModule_SetContextUser(ctx, user);
    ValkeyModuleCallReply *reply = ValkeyModule_Call(ctx, text(argv[2]), format, argv + 3, (size_t)(argc - 3));
    if (!reply) return ValkeyModule_ReplyWithError(ctx, "ERR no reply");
    if (ValkeyModule_CallReplyType(reply) == VALKEYMODULE_REPLY_PROMISE) {
        last[0] = 0;
        ValkeyModule_CallReplyPromiseSetUnblockHandler(reply, promise_ended, reply);
        return ValkeyModule_ReplyWithSimpleString(ctx, "PROMISE");
    }
    ValkeyModule_ReplyWithCallReply(ctx, reply);
    ValkeyModule_FreeCallReply(reply);
    return VALKEYMODULE_OK;
}
/* RIGHTS.CALL format command argument...: format are modifiers of Call. RIGHTS.AS: as the module's own user, RIGHTS.OF:
 * as the server's user of RIGHTS.HANDLE. */
static int call(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    return call_as(ctx, NULL, argv, argc);
}
static int call_own(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    return own ? call_as(ctx, own, argv, argc) : ValkeyModule_ReplyWithError(ctx, "ERR no user");
}
static int call_handle(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    return handle ? call_as(ctx, handle, argv, argc) : ValkeyModule_ReplyWithError(ctx, "ERR no user");
}
static int last_reply(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return ValkeyModule_ReplyWithCString(ctx, last);
}
static int name(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModuleString *user = ValkeyModule_GetCurrentUserName(ctx);
    if (!user) return ValkeyModule_ReplyWithNull(ctx);
    ValkeyModule_ReplyWithString(ctx, user);
    ValkeyModule_FreeString(ctx, user);
    return VALKEYMODULE_OK;
}
/* RIGHTS.OWN rules: the module's own user, with these rules. RIGHTS.FREE frees it. RIGHTS.RULES: those it has. */
static int make_own(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    ValkeyModuleString *error = NULL;
    if (argc != 2) return ValkeyModule_WrongArity(ctx);
    if (!own) own = ValkeyModule_CreateModuleUser("own");
    if (ValkeyModule_SetModuleUserACLString(ctx, own, text(argv[1]), &error) == VALKEYMODULE_OK)
        return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
    ValkeyModule_ReplyWithError(ctx, text(error));
    ValkeyModule_FreeString(ctx, error);
    return VALKEYMODULE_OK;
}
static int free_own(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (own) ValkeyModule_FreeModuleUser(own);
    own = NULL;
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}
/* RIGHTS.HANDLE name: keeps a user of the server; without a name: forgets it. */
static int keep(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (handle) ValkeyModule_FreeModuleUser(handle);
    handle = argc > 1 ? ValkeyModule_GetModuleUserFromUserName(argv[1]) : NULL;
    return ValkeyModule_ReplyWithLongLong(ctx, handle != NULL);
}
/* RIGHTS.MAY own|handle command argument...: 1 if the user may run it. */
static int may(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc < 3) return ValkeyModule_WrongArity(ctx);
    ValkeyModuleUser *user = strcmp(text(argv[1]), "own") == 0 ? own : handle;
    if (!user) return ValkeyModule_ReplyWithError(ctx, "ERR no user");
    return ValkeyModule_ReplyWithLongLong(ctx, ValkeyModule_ACLCheckCommandPermissions(user, argv + 2, argc - 2) ==
                                                   VALKEYMODULE_OK);
}
static int rules(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModuleUser *user = own ? own : handle;
    if (!user) return ValkeyModule_ReplyWithError(ctx, "ERR no user");
    ValkeyModuleString *string = ValkeyModule_GetModuleUserACLString(user);
    ValkeyModule_ReplyWithString(ctx, string);
    ValkeyModule_FreeString(ctx, string);
    return VALKEYMODULE_OK;
}

/* RIGHTS.LATER: waits for RIGHTS.NOW, and then sets the key "later" as its client. */
static ValkeyModuleBlockedClient *waiting;
static int reply_later(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModuleCallReply *reply = ValkeyModule_Call(ctx, "SET", "!CEcc", "later", "x");
    if (!reply) return ValkeyModule_ReplyWithError(ctx, "ERR no reply");
    ValkeyModule_ReplyWithCallReply(ctx, reply);
    ValkeyModule_FreeCallReply(reply);
    return VALKEYMODULE_OK;
}
static int later(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    waiting = ValkeyModule_BlockClient(ctx, reply_later, NULL, NULL, 0);
    return VALKEYMODULE_OK;
}
static int now(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (!waiting) return ValkeyModule_ReplyWithError(ctx, "ERR nobody waits");
    ValkeyModule_UnblockClient(waiting, NULL);
    waiting = NULL;
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

/* With the argument "auth": who logs in as "reader" is refused, and gets the value of the key "secret"; "writer" adds
 * to a counter. */
static int authenticate(ValkeyModuleCtx *ctx, ValkeyModuleString *user, ValkeyModuleString *password,
                        ValkeyModuleString **error) {
    (void)password;
    if (strcmp(text(user), "reader") == 0) {
        ValkeyModuleCallReply *reply = ValkeyModule_Call(ctx, "GET", "c", "secret");
        size_t len;
        const char *value = ValkeyModule_CallReplyStringPtr(reply, &len);
        *error = ValkeyModule_CreateStringPrintf(NULL, "DENIED the secret is %.*s", (int)len, value ? value : "");
        ValkeyModule_FreeCallReply(reply);
        return VALKEYMODULE_AUTH_HANDLED;
    }
    if (strcmp(text(user), "writer") == 0) ValkeyModule_FreeCallReply(ValkeyModule_Call(ctx, "INCR", "!c", "logins"));
    return VALKEYMODULE_AUTH_NOT_HANDLED;
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    static const struct {
        const char *name;
        ValkeyModuleCmdFunc run;
    } commands[] = {{"rights.call", call},       {"rights.as", call_own}, {"rights.of", call_handle},
                    {"rights.last", last_reply}, {"rights.name", name},   {"rights.own", make_own},
                    {"rights.free", free_own},   {"rights.handle", keep}, {"rights.may", may},
                    {"rights.rules", rules},     {"rights.later", later}, {"rights.now", now}};
    if (ValkeyModule_Init(ctx, "rights", 1, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    if (argc > 0 && strcmp(text(argv[0]), "auth") == 0) ValkeyModule_RegisterAuthCallback(ctx, authenticate);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (ValkeyModule_CreateCommand(ctx, commands[i].name, commands[i].run, "write", 0, 0, 0) == VALKEYMODULE_ERR)
            return VALKEYMODULE_ERR;
    return VALKEYMODULE_OK;
}
int ValkeyModule_OnUnload(ValkeyModuleCtx *ctx) {
    (void)ctx;
    if (own) ValkeyModule_FreeModuleUser(own);
    if (handle) ValkeyModule_FreeModuleUser(handle);
    own = handle = NULL;
    return VALKEYMODULE_OK;
}
