/* users.c: users of modules, their permissions, and clients that modules authenticate. See users.h.
 *
 * A module's own user is like one of the server's, but in no table: no client can log in as it, and only the module
 * gives it permissions. A client ends when the module's own user that it acts as is gone, or the module that wants to
 * know when it acts as another one. */
#include "module/users.h"
#include "acl/acl.h"
#include "acl/rights.h"
#include "lib/system/memory.h"
#include "lib/system/ticks.h"
#include "module/blocked.h"
#include "server/clients/auth.h"
#include "server/clients/client.h"
#include "server/clients/reply_barrier.h"
#include "server/command/dispatch.h"
#include <errno.h>
#include <stdio.h>

struct user *context_client_user(const struct ValkeyModuleCtx *ctx) {
    const struct client *client = ctx->client;
    if (ctx->flags & CONTEXT_DETACHED) return &user_default;
    return client && client->authenticated && client->user != &user_superuser ? client->user : NULL;
}
struct user *context_user(struct ValkeyModuleCtx *ctx) {
    return ctx->user ? ctx->user->user : context_client_user(ctx);
}
void api_SetContextUser(ValkeyModuleCtx *ctx, const ValkeyModuleUser *user) {
    ctx->user = user;
}

/* --- Clients that modules have authenticated --- */

struct module_login {
    struct module *module;
    ValkeyModuleUserChangedFunc changed; /* called once, when the client acts as another user or is gone */
    void *data;
};
static void login_freed(struct client *client);
static struct client_listener login_listener = {.freed = login_freed, .reset = login_freed};

static void login_freed(struct client *client) {
    struct module_login *login = client_state(client, &login_listener);
    if (!login) return;
    client_set_state(client, &login_listener, NULL);
    bool within_command = dispatch_running() != NULL; /* see events.c: it uses its keys afterwards */
    store_settings.readers += within_command;
    login->changed(client->id, login->data);
    store_settings.readers -= within_command;
    mem_free(login);
}
static void login_revoke(struct client *client) {
    login_freed(client);
    client->user = &user_default;
    client->authenticated = false;
    user_close_client(client);
    user_close_caller(client);
}
static void logins_revoke(const struct user *user, const struct module *module) {
    list_each(clients_all(), link) {
        struct client *client = container_of(link, struct client, link);
        const struct module_login *login = client_state(client, &login_listener);
        if ((user && client->user == user) || (module && login && login->module == module)) login_revoke(client);
    }
}

static int login_as(ValkeyModuleCtx *ctx, struct user *user, ValkeyModuleUserChangedFunc callback, void *privdata,
                    uint64_t *client_id) {
    struct client *client = ctx->client;
    if (!user || !(user->flags & USER_ENABLED)) return VALKEYMODULE_ERR;
    if (!client || !client->conn) return VALKEYMODULE_ERR;
    auth_act_as(client, user, ctx->module->name);
    if (callback) {
        struct module_login *login = mem_calloc(1, sizeof *login);
        *login = (struct module_login){ctx->module, callback, privdata};
        client_set_state(client, &login_listener, login);
    }
    if (client_id) *client_id = client->id;
    return VALKEYMODULE_OK;
}
int api_AuthenticateClientWithACLUser(ValkeyModuleCtx *ctx, const char *name, size_t len,
                                      ValkeyModuleUserChangedFunc callback, void *privdata, uint64_t *client_id) {
    return login_as(ctx, user_find((struct slice){name, len}), callback, privdata, client_id);
}
int api_AuthenticateClientWithUser(ValkeyModuleCtx *ctx, ValkeyModuleUser *user, ValkeyModuleUserChangedFunc callback,
                                   void *privdata, uint64_t *client_id) {
    return login_as(ctx, user->user, callback, privdata, client_id);
}
int api_DeauthenticateAndCloseClient(ValkeyModuleCtx *ctx, uint64_t client_id) {
    (void)ctx;
    struct client *client = client_by_id(client_id);
    if (!client) return VALKEYMODULE_ERR;
    login_revoke(client);
    return VALKEYMODULE_OK;
}

/* --- Users --- */

static struct list named = LIST_INIT(named); /* users of the server that modules have asked for */

/* Without permissions. */
static void own_user_make(struct ValkeyModuleUser *made, const char *name) {
    made->user = mem_calloc(1, sizeof *made->user);
    made->user->name = mem_strdup(name);
    user_reset(made->user);
    acl_outsider_add(made->user);
}
ValkeyModuleUser *api_CreateModuleUser(const char *name) {
    struct ValkeyModuleUser *made = mem_calloc(1, sizeof *made);
    own_user_make(made, name);
    return made;
}
void api_FreeModuleUser(ValkeyModuleUser *user) {
    if (list_is_linked(&user->link)) {
        list_remove(&named, &user->link);
    } else {
        logins_revoke(user->user, NULL);
        user_leave_internal(user->user);
        acl_outsider_remove(user->user);
        user_free_rights(user->user);
        user_clear_passwords(user->user);
        mem_free((char *)(uintptr_t)user->user->name);
        mem_free(user->user);
    }
    mem_free(user);
}
ValkeyModuleUser *api_GetModuleUserFromUserName(ValkeyModuleString *name) {
    struct user *found = user_find(module_string_slice(name));
    if (!found) return NULL;
    struct ValkeyModuleUser *user = mem_calloc(1, sizeof *user);
    user->user = found;
    list_append(&named, &user->link);
    return user;
}
/* A module may keep what stands for a user longer than the user exists: it becomes a user of the module's own. */
static void named_user_removed(struct user *gone) {
    list_each_entry(&named, struct ValkeyModuleUser, link, user) {
        if (user->user != gone) continue;
        list_remove(&named, &user->link);
        own_user_make(user, gone->name);
    }
}

static int error_of(const char *reason) {
    return strncmp(reason, "Unknown command", 15) == 0          ? ENOENT
           : strncmp(reason, "Adding a pattern after", 22) == 0 ? EEXIST
                                                                : EINVAL;
}
int api_SetModuleUserACL(ValkeyModuleUser *user, const char *acl) {
    const char *reason = user_apply_rule(user->user, slice_of(acl));
    acl_user_changed(user->user);
    if (reason) errno = error_of(reason);
    return reason ? VALKEYMODULE_ERR : VALKEYMODULE_OK;
}

static void error_set(ValkeyModuleCtx *ctx, ValkeyModuleString **error, const char *format, struct slice text,
                      const char *reason) {
    char message[1024];
    int len = snprintf(message, sizeof message, format, (int)(text.len < 512 ? text.len : 512), text.data, reason);
    size_t used = len < (int)sizeof message ? (size_t)len : sizeof message - 1;
    if (error)
        *error =
            ctx ? context_string(ctx, (struct slice){message, used}) : module_string_new((struct slice){message, used});
}
/* Applies all rules, or none. */
int api_SetModuleUserACLString(ValkeyModuleCtx *ctx, ValkeyModuleUser *user, const char *acl,
                               ValkeyModuleString **error) {
    struct slice text = slice_of(acl), *words = mem_calloc(text.len / 2 + 1, sizeof *words);
    int count = 0;
    for (size_t at = 0; at < text.len;) {
        size_t end = at;
        while (end < text.len && text.data[end] != ' ') end++;
        if (end > at) words[count++] = (struct slice){text.data + at, end - at};
        at = end + 1;
    }
    int rule_count, unmatched;
    struct slice *rules = rules_join(count, words, &rule_count, &unmatched);
    if (!rules) {
        error_set(ctx, error, "Unmatched parenthesis in acl selector starting at '%.*s'.%s", words[unmatched], "");
        mem_free(words);
        return VALKEYMODULE_ERR;
    }
    struct user tried = {0};
    user_copy_rights(&tried, user->user);
    const char *reason = NULL;
    for (int i = 0; i < rule_count && !reason; i++) {
        reason = user_apply_rule(&tried, rules[i]);
        if (!reason) continue;
        error_set(ctx, error, "Error in ACL SETUSER modifier '%.*s': %s", rules[i], reason);
        errno = error_of(reason);
    }
    if (!reason) {
        user_copy_rights(user->user, &tried);
        acl_user_changed(user->user);
    }
    user_free_rights(&tried);
    user_clear_passwords(&tried);
    rules_free(rules, rule_count);
    mem_free(words);
    return reason ? VALKEYMODULE_ERR : VALKEYMODULE_OK;
}
ValkeyModuleString *api_GetModuleUserACLString(ValkeyModuleUser *user) {
    struct memory_output text;
    memory_output_init(&text);
    user_write_rules(user->user, &text.out);
    struct ValkeyModuleString *string = module_string_new(memory_output_slice(&text));
    memory_output_free(&text);
    return string;
}

/* --- Questions --- */

static int answer(bool allowed) {
    if (allowed) return VALKEYMODULE_OK;
    errno = EACCES;
    return VALKEYMODULE_ERR;
}
/* The values of the interface. */
static ValkeyModuleACLLogEntryReason reason_of_denial(enum user_denial denial) {
    return denial == USER_DENIED_COMMAND    ? VALKEYMODULE_ACL_LOG_CMD
           : denial == USER_DENIED_KEY      ? VALKEYMODULE_ACL_LOG_KEY
           : denial == USER_DENIED_CHANNEL  ? VALKEYMODULE_ACL_LOG_CHANNEL
           : denial == USER_DENIED_DATABASE ? VALKEYMODULE_ACL_LOG_DB
                                            : VALKEYMODULE_ACL_LOG_AUTH;
}
static int command_allowed(struct user *user, ValkeyModuleString **argv, int argc, int db, enum user_denial *denial) {
    *denial = USER_ALLOWED;
    if (argc < 1) {
        errno = EINVAL;
        return VALKEYMODULE_ERR;
    }
    struct slice *arguments = mem_alloc((size_t)argc * sizeof *arguments);
    for (int i = 0; i < argc; i++) arguments[i] = module_string_slice(argv[i]);
    const struct command *command = command_lookup(argc, arguments, NULL);
    int result = VALKEYMODULE_ERR, at;
    if (!command) {
        errno = ENOENT;
    } else if (!command_arity_ok(command, argc) && command->spec->find_keys) {
        errno = EINVAL; /* Valkey checks what it finds; the function that finds keys counts on the arity */
    } else {
        *denial = acl_check(user, db, command, argc, arguments, &at);
        result = answer(*denial == USER_ALLOWED);
    }
    mem_free(arguments);
    return result;
}
int api_ACLCheckCommandPermissions(ValkeyModuleUser *user, ValkeyModuleString **argv, int argc) {
    enum user_denial denial;
    return command_allowed(user->user, argv, argc, 0, &denial);
}
int api_ACLCheckPermissions(ValkeyModuleUser *user, ValkeyModuleString **argv, int argc, int dbid,
                            ValkeyModuleACLLogEntryReason *denial_reason) {
    if (!keyspace_db(server.keyspace, dbid)) {
        errno = EINVAL;
        return VALKEYMODULE_ERR;
    }
    enum user_denial denial;
    int result = command_allowed(user->user, argv, argc, dbid, &denial);
    if (result != VALKEYMODULE_OK && denial == USER_ALLOWED) errno = EINVAL;
    if (denial != USER_ALLOWED && denial_reason) *denial_reason = reason_of_denial(denial);
    return result;
}
static bool key_flags_valid(unsigned flags) {
    const unsigned uses = VALKEYMODULE_CMD_KEY_ACCESS | VALKEYMODULE_CMD_KEY_INSERT | VALKEYMODULE_CMD_KEY_DELETE |
                          VALKEYMODULE_CMD_KEY_UPDATE;
    if (!(flags & ~uses)) return true;
    errno = EINVAL;
    return false;
}
int api_ACLCheckKeyPermissions(ValkeyModuleUser *user, ValkeyModuleString *key, int flags) {
    if (!key_flags_valid((unsigned)flags)) return VALKEYMODULE_ERR;
    return answer(acl_has_key(user->user, module_string_slice(key), (uint32_t)flags));
}
int api_ACLCheckKeyPrefixPermissions(ValkeyModuleUser *user, const char *key, size_t len, unsigned int flags) {
    if (!key_flags_valid(flags)) return VALKEYMODULE_ERR;
    return answer(acl_has_prefix(user->user, (struct slice){key, len}, flags));
}
int api_ACLCheckChannelPermissions(ValkeyModuleUser *user, ValkeyModuleString *ch, int flags) {
    enum {
        KNOWN = VALKEYMODULE_CMD_CHANNEL_PATTERN | VALKEYMODULE_CMD_CHANNEL_PUBLISH |
                VALKEYMODULE_CMD_CHANNEL_SUBSCRIBE | VALKEYMODULE_CMD_CHANNEL_UNSUBSCRIBE
    };
    if (flags & ~KNOWN) {
        errno = EINVAL;
        return VALKEYMODULE_ERR;
    }
    if (flags & VALKEYMODULE_CMD_CHANNEL_UNSUBSCRIBE) return VALKEYMODULE_OK; /* needs no right */
    return answer(acl_has_channel(user->user, module_string_slice(ch), flags & VALKEYMODULE_CMD_CHANNEL_PATTERN));
}

static void log_entry(ValkeyModuleCtx *ctx, struct slice user, ValkeyModuleString *object,
                      ValkeyModuleACLLogEntryReason reason) {
    static const enum user_denial denials[] = {[VALKEYMODULE_ACL_LOG_AUTH] = USER_ALLOWED,
                                               [VALKEYMODULE_ACL_LOG_CMD] = USER_DENIED_COMMAND,
                                               [VALKEYMODULE_ACL_LOG_KEY] = USER_DENIED_KEY,
                                               [VALKEYMODULE_ACL_LOG_CHANNEL] = USER_DENIED_CHANNEL,
                                               [VALKEYMODULE_ACL_LOG_DB] = USER_DENIED_DATABASE};
    if (!ctx->client || (unsigned)reason >= sizeof denials / sizeof *denials) return;
    acl_log_module(ctx->client, denials[reason], module_string_slice(object), user);
}
void api_ACLAddLogEntry(ValkeyModuleCtx *ctx, ValkeyModuleUser *user, ValkeyModuleString *object,
                        ValkeyModuleACLLogEntryReason reason) {
    log_entry(ctx, slice_of(user->user->name), object, reason);
}
void api_ACLAddLogEntryByUserName(ValkeyModuleCtx *ctx, ValkeyModuleString *user, ValkeyModuleString *object,
                                  ValkeyModuleACLLogEntryReason reason) {
    log_entry(ctx, module_string_slice(user), object, reason);
}

/* --- Authentication by modules --- */

struct module_auth {
    struct list_link link;
    struct module *module;
    ValkeyModuleAuthCallback function;
};
static struct list auths = LIST_INIT(auths); /* the newest first: it is asked first */

static enum auth_answer auth_answer_of(ValkeyModuleCtx *ctx, int result, ValkeyModuleString *error, struct slice user) {
    if (result != VALKEYMODULE_AUTH_HANDLED) {
        if (error) module_string_release(error);
        return AUTH_NOT_HANDLED;
    }
    if (!error && ctx->client->authenticated) return AUTH_GRANTED;
    auth_denied_by_module(ctx->client, user, ctx->module->name); /* what the log says of it is the module's business */
    if (error && !reply_barrier_refusal()) {
        char text[1024];
        snprintf(text, sizeof text, "%.*s", (int)(error->len < 1000 ? error->len : 1000), error->data);
        reply_error(ctx->reply, text);
    } else {
        reply_error(ctx->reply, "WRONGPASS invalid username-password pair or user is disabled.");
    }
    if (error) module_string_release(error);
    return AUTH_REFUSED;
}
static struct module_auth *auth_running;
static uint64_t auth_measured_us; /* by modules that have waited for the same command before */

/* `waits`: the wait of the module that has ended; NULL: the module is asked for the first time. */
static enum auth_answer auth_run_one(struct call *call, struct module_auth *auth,
                                     struct ValkeyModuleBlockedClient *waits, struct ValkeyModuleString *name,
                                     struct ValkeyModuleString *secret) {
    struct client *client = call->client;
    struct ValkeyModuleCtx ctx;
    struct ValkeyModuleString *error = NULL;
    context_init_command(&ctx, auth->module, call);
    bool before = client->authenticated;
    uint64_t failed = call->reply->failed;
    auth_running = auth;
    client->authenticated = false; /* until the module says so */
    int result;
    if (waits) {
        ctx.blocked = waits;
        ctx.flags |= CONTEXT_BLOCKED_REPLY;
        waits->replied = true;
        auth_measured_us = waits->measured_us;
        call->more_ticks += ticks_of_us(waits->measured_us);
        result = waits->auth_function && !waits->aborted ? waits->auth_function(&ctx, name, secret, &error)
                                                         : VALKEYMODULE_AUTH_NOT_HANDLED;
    } else {
        result = auth->function(&ctx, name, secret, &error);
    }
    enum auth_answer answer;
    if (call->blocked)
        answer = AUTH_WAITS;
    else if (call->reply->failed != failed) /* it may not wait, which was said */
        answer = AUTH_REFUSED;
    else
        answer = auth_answer_of(&ctx, result, error, module_string_slice(name));
    if (answer != AUTH_GRANTED) client->authenticated = before;
    context_end(&ctx);
    return answer;
}
static enum auth_answer auths_ask(struct call *call, const struct slice *user, const struct slice *password) {
    struct ValkeyModuleBlockedClient *waits = blocked_of_call(call);
    enum auth_answer answer = AUTH_NOT_HANDLED;
    auth_measured_us = 0;
    call_shows_data(call->client);
    struct ValkeyModuleString *name = module_string_new(*user), *secret = module_string_new(*password);
    list_each(&auths, link) {
        struct module_auth *auth = container_of(link, struct module_auth, link);
        if (waits && waits->auth != auth) continue; /* it was asked before */
        answer = auth_run_one(call, auth, waits, name, secret);
        waits = NULL;
        if (answer != AUTH_NOT_HANDLED || call->client->flags & CLIENT_CLOSING) break;
    }
    module_string_release(name);
    module_string_release(secret);
    return answer;
}
ValkeyModuleBlockedClient *api_BlockClientOnAuth(ValkeyModuleCtx *ctx, ValkeyModuleAuthCallback reply_callback,
                                                 void (*free_privdata)(ValkeyModuleCtx *, void *)) {
    struct ValkeyModuleBlockedClient *bc = api_BlockClient(ctx, NULL, NULL, free_privdata, 0);
    if (!bc) return NULL;
    bc->auth_function = reply_callback;
    bc->auth = auth_running;
    bc->measured_us = auth_measured_us;
    return bc;
}
void api_RegisterAuthCallback(ValkeyModuleCtx *ctx, ValkeyModuleAuthCallback cb) {
    struct module_auth *auth = mem_calloc(1, sizeof *auth);
    auth->module = ctx->module;
    auth->function = cb;
    list_insert_before(&auths, auths.head.next, &auth->link);
    auth_ask = auths_ask;
}

void module_users_drop(struct module *module) {
    logins_revoke(NULL, module);
    list_each(&auths, link) {
        struct module_auth *auth = container_of(link, struct module_auth, link);
        if (auth->module != module) continue;
        list_remove(&auths, link);
        mem_free(auth);
    }
    if (!auths.len) auth_ask = NULL;
}

static void user_changes(struct client *client) {
    login_freed(client);
}
void module_users_start(void) {
    auth_user_changes = user_changes;
    user_removing = named_user_removed;
}
