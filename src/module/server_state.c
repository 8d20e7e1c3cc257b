/* server_state.c: what modules ask of the server: its state, the time, random numbers, the client; and the log. */
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include "module/blocked.h"
#include "module/context.h"
#include "module/users.h"
#include "script/script_run.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/transactions.h"
#include "server/clients/user.h"
#include "server/command/dispatch.h"
#include "server/config/config.h"
#include "server/config/settings.h"
#include "server/process/child.h"
#include "server/role.h"
#include "server/server.h"
#include "server/stats/latency_monitor.h"
#include <errno.h>
#include <stdio.h>
#include <strings.h>

/* --- The log --- */

void module_log(const char *name, const char *level, const char *format, va_list arguments) {
    enum log_level at = strcasecmp(level, "debug") == 0     ? LOG_LEVEL_DEBUG
                        : strcasecmp(level, "verbose") == 0 ? LOG_LEVEL_VERBOSE
                        : strcasecmp(level, "warning") == 0 ? LOG_LEVEL_WARNING
                                                            : LOG_LEVEL_NOTICE;
    if (at < log_level) return;
    char text[1024];
    vsnprintf(text, sizeof text, format, arguments);
    log_write(at, "<%s> %s", name ? name : "module", text);
}
void api_Log(ValkeyModuleCtx *ctx, const char *level, const char *fmt, ...) {
    va_list arguments;
    va_start(arguments, fmt);
    module_log(ctx ? ctx->module->name : NULL, level, fmt, arguments);
    va_end(arguments);
}
void api__Assert(const char *estr, const char *file, int line) {
    must_fail(file, line, "a module", estr, NULL);
}

/* --- Time --- */

mstime_t api_Milliseconds(void) {
    return clock_wall_us() / 1000;
}
ustime_t api_Microseconds(void) {
    return clock_wall_us();
}
ustime_t api_CachedMicroseconds(void) {
    return clock_us();
}
uint64_t api_MonotonicMicroseconds(void) {
    return clock_monotonic_us();
}

/* --- The server --- */

void api_GetRandomBytes(unsigned char *dst, size_t len) {
    random_bytes(dst, len);
}
void api_GetRandomHexChars(char *dst, size_t len) {
    static const char digits[] = "0123456789abcdef";
    random_bytes(dst, len);
    for (size_t i = 0; i < len; i++) dst[i] = digits[dst[i] & 15];
}
int api_GetServerVersion(void) {
    unsigned parts[3] = {0, 0, 0};
    sscanf(SERVER_VERSION, "%u.%u.%u", &parts[0], &parts[1], &parts[2]);
    return (int)(parts[0] << 16 | parts[1] << 8 | parts[2]);
}
int api_GetTypeMethodVersion(void) {
    return VALKEYMODULE_TYPE_METHOD_VERSION;
}
float api_GetUsedMemoryRatio(void) {
    uint64_t limit = server_settings.maxmemory;
    return limit ? (float)mem_used() / (float)limit : 0;
}
int api_AvoidReplicaTraffic(void) {
    return clients_paused() != PAUSE_NONE;
}

int api_GetContextFlagsAll(void) {
    return (VALKEYMODULE_CTX_FLAGS_SLOT_EXPORT_CLIENT << 1) - 1;
}
static int client_flags_of(const struct ValkeyModuleCtx *ctx) {
    const struct client *client = ctx->client;
    int flags = 0;
    if (client->flags & CLIENT_PRIMARY) flags |= VALKEYMODULE_CTX_FLAGS_REPLICATED;
    if ((client->flags | (ctx->call ? ctx->call->client->flags : 0)) & CLIENT_DENY_BLOCKING)
        flags |= VALKEYMODULE_CTX_FLAGS_DENY_BLOCKING;
    if (client->flags & CLIENT_DIRTY_WATCH) flags |= VALKEYMODULE_CTX_FLAGS_MULTI_DIRTY;
    if (ctx->reply->protocol >= 3) flags |= VALKEYMODULE_CTX_FLAGS_RESP3;
    if (client->flags & CLIENT_MIGRATION)
        flags |= client->flags & CLIENT_REPLICA ? VALKEYMODULE_CTX_FLAGS_SLOT_EXPORT_CLIENT
                                                : VALKEYMODULE_CTX_FLAGS_SLOT_IMPORT_CLIENT;
    return flags;
}
static int role_flags(void) {
    static const int links[] = {
        [ROLE_LINK_CONNECT] = VALKEYMODULE_CTX_FLAGS_REPLICA_IS_STALE,
        [ROLE_LINK_CONNECTING] = VALKEYMODULE_CTX_FLAGS_REPLICA_IS_STALE | VALKEYMODULE_CTX_FLAGS_REPLICA_IS_CONNECTING,
        [ROLE_LINK_HANDSHAKE] = VALKEYMODULE_CTX_FLAGS_REPLICA_IS_STALE | VALKEYMODULE_CTX_FLAGS_REPLICA_IS_CONNECTING,
        [ROLE_LINK_SYNC] = VALKEYMODULE_CTX_FLAGS_REPLICA_IS_STALE | VALKEYMODULE_CTX_FLAGS_REPLICA_IS_TRANSFERRING,
        [ROLE_LINK_CONNECTED] = VALKEYMODULE_CTX_FLAGS_REPLICA_IS_ONLINE};
    if (!role_is_replica()) return VALKEYMODULE_CTX_FLAGS_PRIMARY;
    int flags = VALKEYMODULE_CTX_FLAGS_REPLICA | links[role->link];
    if (config_number("replica-read-only")) flags |= VALKEYMODULE_CTX_FLAGS_READONLY;
    return flags;
}
static bool saves_files(void) {
    const struct config_option *option = config_find(SLICE("save"));
    struct memory_output text;
    memory_output_init(&text);
    option->get(option, &text.out);
    bool saves = memory_output_slice(&text).len > 0;
    memory_output_free(&text);
    return saves;
}
int api_GetContextFlags(ValkeyModuleCtx *ctx) {
    int flags = role_flags();
    if (ctx && ctx->client) flags |= client_flags_of(ctx);
    if (script_running) flags |= VALKEYMODULE_CTX_FLAGS_LUA;
    const struct client *requester = dispatch_requester();
    if (requester && requester->states && transaction_runs(requester)) flags |= VALKEYMODULE_CTX_FLAGS_MULTI;
    if (server.cluster_enabled) flags |= VALKEYMODULE_CTX_FLAGS_CLUSTER;
    if (server.loading) flags |= VALKEYMODULE_CTX_FLAGS_LOADING;
    if (server.async_loading) flags |= VALKEYMODULE_CTX_FLAGS_ASYNC_LOADING;
    if (config_number("appendonly")) flags |= VALKEYMODULE_CTX_FLAGS_AOF;
    if (saves_files()) flags |= VALKEYMODULE_CTX_FLAGS_RDB;
    if (server_settings.maxmemory) {
        flags |= VALKEYMODULE_CTX_FLAGS_MAXMEMORY;
        if (server_settings.maxmemory_policy != POLICY_NOEVICTION) flags |= VALKEYMODULE_CTX_FLAGS_EVICT;
        float used = api_GetUsedMemoryRatio();
        if (used > 1) flags |= VALKEYMODULE_CTX_FLAGS_OOM;
        if (used > 0.75F) flags |= VALKEYMODULE_CTX_FLAGS_OOM_WARNING;
    }
    if (child_active()) flags |= VALKEYMODULE_CTX_FLAGS_ACTIVE_CHILD;
    if (server.is_child) flags |= VALKEYMODULE_CTX_FLAGS_IS_CHILD;
    if (modules_starting) flags |= VALKEYMODULE_CTX_FLAGS_SERVER_STARTUP;
    return flags;
}

void api_LatencyAddSample(const char *event, mstime_t latency) {
    latency_event(event, latency > 0 ? (uint64_t)latency * 1000 : 0);
}

/* --- Clients --- */

unsigned long long api_GetClientId(ValkeyModuleCtx *ctx) {
    if (ctx->client) return ctx->client->id;
    return ctx->blocked ? ctx->blocked->client_id : 0; /* of a thread */
}
const char *api_GetCurrentCommandName(ValkeyModuleCtx *ctx) {
    return ctx->call ? ctx->call->command->full_name : NULL;
}
int api_MustObeyClient(ValkeyModuleCtx *ctx) {
    return ctx && ctx->client && client_must_be_obeyed(ctx->client);
}
ValkeyModuleString *api_GetClientNameById(ValkeyModuleCtx *ctx, uint64_t id) {
    const struct client *client = client_by_id(id);
    return client && client->name ? context_string(ctx, slice_of(client->name)) : NULL;
}
int api_SetClientNameById(uint64_t id, ValkeyModuleString *name) {
    struct client *client = client_by_id(id);
    struct slice text = module_string_slice(name);
    errno = ENOENT;
    if (!client) return VALKEYMODULE_ERR;
    errno = EINVAL;
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] <= ' ' || text.data[i] > '~') return VALKEYMODULE_ERR;
    errno = 0;
    client_set_name(client, text);
    return VALKEYMODULE_OK;
}
ValkeyModuleString *api_GetClientUserNameById(ValkeyModuleCtx *ctx, uint64_t id) {
    const struct client *client = client_by_id(id);
    if (!client) errno = ENOENT;
    return client && client->authenticated ? context_string(ctx, slice_of(client->user->name)) : NULL;
}
ValkeyModuleString *api_GetCurrentUserName(ValkeyModuleCtx *ctx) {
    const struct user *user = context_client_user(ctx);
    return user ? context_string(ctx, slice_of(user->name)) : NULL;
}
/* NULL: there is no such client, or it has not shown a certificate that this server has verified. */
ValkeyModuleString *api_GetClientCertificate(ValkeyModuleCtx *ctx, uint64_t id) {
    const struct client *client = client_by_id(id);
    const char *text = client && client->conn ? conn_peer_certificate(client->conn) : NULL;
    return text ? context_string(ctx, slice_of(text)) : NULL;
}
void client_info_write(const struct client *client, ValkeyModuleClientInfoV1 *info) {
    static const struct {
        uint32_t of_client;
        uint64_t flag;
    } flags[] = {{CLIENT_PUBSUB, VALKEYMODULE_CLIENTINFO_FLAG_PUBSUB},
                 {CLIENT_TRACKING, VALKEYMODULE_CLIENTINFO_FLAG_TRACKING},
                 {CLIENT_READONLY, VALKEYMODULE_CLIENTINFO_FLAG_READONLY},
                 {CLIENT_PRIMARY, VALKEYMODULE_CLIENTINFO_FLAG_PRIMARY},
                 {CLIENT_REPLICA, VALKEYMODULE_CLIENTINFO_FLAG_REPLICA},
                 {CLIENT_MONITOR, VALKEYMODULE_CLIENTINFO_FLAG_MONITOR},
                 {CLIENT_INTERNAL, VALKEYMODULE_CLIENTINFO_FLAG_MODULE}};
    info->flags = 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (client->flags & flags[i].of_client) info->flags |= flags[i].flag;
    if (blocking_command(client)) info->flags |= VALKEYMODULE_CLIENTINFO_FLAG_BLOCKED;
    if (client->states && (transaction_queued(client) >= 0 || transaction_runs(client)))
        info->flags |= VALKEYMODULE_CLIENTINFO_FLAG_MULTI;
    if (client->authenticated) info->flags |= VALKEYMODULE_CLIENTINFO_FLAG_AUTHENTICATED;
    if (client->authenticated || client->flags & CLIENT_KNOWN)
        info->flags |= VALKEYMODULE_CLIENTINFO_FLAG_EVER_AUTHENTICATED;
    info->id = client->id;
    info->db = (uint16_t)db_id(client->db);
    info->addr[0] = 0;
    info->port = 0;
    if (!client->conn) {
        info->flags |= VALKEYMODULE_CLIENTINFO_FLAG_FAKE;
        return;
    }
    if (conn_is_encrypted(client->conn)) info->flags |= VALKEYMODULE_CLIENTINFO_FLAG_SSL;
    struct address peer;
    if (!conn_address(client->conn, true, &peer)) return;
    snprintf(info->addr, sizeof info->addr, "%.*s", (int)sizeof info->addr - 1, peer.host);
    info->port = (uint16_t)peer.port;
}
/* Of a version that this server does not know nothing is written. NULL: does the client exist? */
int api_GetClientInfoById(void *ci, uint64_t id) {
    const struct client *client = client_by_id(id);
    ValkeyModuleClientInfoV1 *info = ci;
    if (!client) return VALKEYMODULE_ERR;
    if (!info) return VALKEYMODULE_OK;
    if (info->version != VALKEYMODULE_CLIENTINFO_VERSION) return VALKEYMODULE_ERR;
    client_info_write(client, info);
    return VALKEYMODULE_OK;
}
int api_RedactClientCommandArgument(ValkeyModuleCtx *ctx, int pos) {
    if (!ctx->call || pos <= 0 || pos >= ctx->call->argc) return VALKEYMODULE_ERR;
    call_redact(ctx->call, pos);
    return VALKEYMODULE_OK;
}

/* --- Messages: PUBLISH and SPUBLISH propagate them and pass them to other nodes --- */

static int publish(ValkeyModuleCtx *ctx, const char *command, ValkeyModuleString *channel,
                   ValkeyModuleString *message) {
    ValkeyModuleCallReply *reply = api_Call(ctx, command, "!ss", channel, message);
    long long receivers = reply ? api_CallReplyInteger(reply) : 0;
    if (reply) api_FreeCallReply(reply);
    return receivers > 0 ? (int)receivers : 0;
}
int api_PublishMessage(ValkeyModuleCtx *ctx, ValkeyModuleString *channel, ValkeyModuleString *message) {
    return publish(ctx, "PUBLISH", channel, message);
}
int api_PublishMessageShard(ValkeyModuleCtx *ctx, ValkeyModuleString *channel, ValkeyModuleString *message) {
    return publish(ctx, "SPUBLISH", channel, message);
}
