/* cluster.c: nodes of the cluster, and messages that modules send each other on its bus. */
#include "module/parts.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/memory.h"
#include "module/context.h"
#include "server/clients/client.h"
#include "server/cluster_hooks.h"
#include "server/command/dispatch.h"
#include "server/server.h"
#include <stdio.h>

enum { IP_MAX = 46 };

/* --- Slots --- */

unsigned int api_ClusterKeySlotC(const char *key, size_t keylen) {
    return hash_slot((struct slice){key, keylen});
}
unsigned int api_ClusterKeySlot(ValkeyModuleString *key) {
    return hash_slot(module_string_slice(key));
}
/* Short names, found by trying: each slot has one of three letters and digits. */
const char *api_ClusterCanonicalKeyNameInSlot(unsigned int slot) {
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    enum { DIGITS = sizeof digits - 1 };
    static char names[HASH_SLOTS][4];
    static bool made;
    if (slot >= HASH_SLOTS) return NULL;
    for (unsigned i = 0; !made && i < DIGITS * DIGITS * DIGITS; i++) {
        char name[4] = {digits[i / DIGITS / DIGITS], digits[i / DIGITS % DIGITS], digits[i % DIGITS], 0};
        unsigned of = hash_slot(slice_of(name));
        if (!names[of][0]) memcpy(names[of], name, sizeof name);
    }
    made = true;
    return names[slot];
}

/* --- Nodes --- */

const char *api_GetMyClusterID(void) {
    static char id[CLUSTER_NODE_ID_LEN + 1];
    if (!cluster_hooks) return NULL;
    memcpy(id, cluster_hooks->node_id().data, CLUSTER_NODE_ID_LEN);
    return id;
}
size_t api_GetClusterSize(void) {
    return cluster_hooks ? cluster_hooks->nodes() : 0;
}
struct node_list {
    char **ids;
    size_t count, capacity;
};
static void node_add(void *context, struct slice id) {
    struct node_list *list = context;
    if (list->count == list->capacity) return;
    list->ids[list->count] = mem_strndup(id.data, id.len);
    list->ids[++list->count] = NULL;
}
char **api_GetClusterNodesList(ValkeyModuleCtx *ctx, size_t *numnodes) {
    (void)ctx;
    if (!cluster_hooks) return NULL;
    struct node_list list = {.capacity = cluster_hooks->nodes()};
    list.ids = mem_calloc(list.capacity + 1, sizeof *list.ids);
    cluster_hooks->each_node(node_add, &list);
    *numnodes = list.count;
    return list.ids;
}
void api_FreeClusterNodesList(char **ids) {
    for (size_t i = 0; ids && ids[i]; i++) mem_free(ids[i]);
    mem_free(ids);
}
static struct slice id_of(const char *id) {
    return (struct slice){id, strnlen(id, CLUSTER_NODE_ID_LEN)};
}
static int node_info(const struct client *client, const char *id, char *ip, char *primary_id, int *port, int *flags) {
    struct cluster_node_facts facts;
    if (!cluster_hooks || !cluster_hooks->node_facts(id_of(id), client, &facts)) return VALKEYMODULE_ERR;
    if (ip) snprintf(ip, IP_MAX, "%s", facts.ip);
    if (primary_id) {
        memset(primary_id, 0, CLUSTER_NODE_ID_LEN);
        if (facts.primary.len) memcpy(primary_id, facts.primary.data, CLUSTER_NODE_ID_LEN);
    }
    if (port) *port = facts.port;
    if (!flags) return VALKEYMODULE_OK;
    *flags = facts.is_primary ? VALKEYMODULE_NODE_PRIMARY : VALKEYMODULE_NODE_REPLICA;
    if (facts.myself) *flags |= VALKEYMODULE_NODE_MYSELF;
    if (facts.pfail) *flags |= VALKEYMODULE_NODE_PFAIL;
    if (facts.fail) *flags |= VALKEYMODULE_NODE_FAIL;
    if (facts.no_failover) *flags |= VALKEYMODULE_NODE_NOFAILOVER;
    return VALKEYMODULE_OK;
}
int api_GetClusterNodeInfo(ValkeyModuleCtx *ctx, const char *id, char *ip, char *primary_id, int *port, int *flags) {
    (void)ctx;
    return node_info(NULL, id, ip, primary_id, port, flags);
}
int api_GetClusterNodeInfoForClient(ValkeyModuleCtx *ctx, uint64_t client_id, const char *node_id, char *ip,
                                    char *primary_id, int *port, int *flags) {
    (void)ctx;
    const struct client *client = client_by_id(client_id);
    return client ? node_info(client, node_id, ip, primary_id, port, flags) : VALKEYMODULE_ERR;
}
void api_SetClusterFlags(ValkeyModuleCtx *ctx, uint64_t flags) {
    (void)ctx;
    if (cluster_hooks)
        cluster_hooks->limit(flags & VALKEYMODULE_CLUSTER_FLAG_NO_FAILOVER,
                             flags & VALKEYMODULE_CLUSTER_FLAG_NO_REDIRECTION);
}

/* --- Messages --- */

/* The number of a module on the bus: that of a value type of its name, 6 bits for each of 9 characters, with the least
 * significant byte first. A name of another length has 0: such modules hear the messages of each other. */
static uint64_t number_of(const char *name) {
    static const char characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    enum { LENGTH = 9, BITS = 6, VERSION_BITS = 10 };
    uint64_t number = 0;
    if (strlen(name) != LENGTH) return 0;
    for (const char *p = name; *p; p++) {
        const char *found = strchr(characters, *p);
        if (!found) return 0;
        number = number << BITS | (uint64_t)(found - characters);
    }
    return __builtin_bswap64(number << VERSION_BITS);
}

struct message_receiver {
    struct list_link link; /* in module->receivers */
    uint8_t type;
    ValkeyModuleClusterMessageReceiver function;
};
struct message {
    struct list_link link;
    char sender[CLUSTER_NODE_ID_LEN + 1];
    uint64_t module;
    uint8_t type;
    uint32_t len;
    unsigned char payload[];
};
static struct list messages = LIST_INIT(messages);
enum { MESSAGES_MAX_BYTES = 64 * 1024 * 1024 }; /* the bus may lose messages */
static size_t message_bytes;

static void deliver(struct module *module, const struct message *message) {
    list_each(&module->receivers, link) {
        const struct message_receiver *receiver = container_of(link, struct message_receiver, link);
        if (receiver->type != message->type) continue;
        struct ValkeyModuleCtx ctx;
        context_init(&ctx, module);
        receiver->function(&ctx, message->sender, message->type, message->payload, message->len);
        context_end(&ctx);
        return;
    }
}
void messages_before_wait(void) {
    if (server.loading || dispatch_running()) return; /* a function of a module may change keys */
    while (messages.len) {
        struct message *message = container_of(list_first(&messages), struct message, link);
        list_remove(&messages, &message->link);
        message_bytes -= sizeof *message + message->len + 1;
        list_each(modules_all(), link) {
            struct module *module = container_of(link, struct module, link);
            if (module->name && module->receivers.len && number_of(module->name) == message->module)
                deliver(module, message);
        }
        mem_free(message);
    }
}
static void message_received(struct slice sender, const struct cluster_module_message *heard) {
    size_t size = sizeof(struct message) + heard->payload.len + 1;
    struct message *message = message_bytes + size > MESSAGES_MAX_BYTES ? NULL : mem_try_alloc(size);
    if (!message) return;
    message_bytes += size;
    *message = (struct message){.module = heard->module, .type = heard->type, .len = (uint32_t)heard->payload.len};
    memcpy(message->sender, sender.data, CLUSTER_NODE_ID_LEN);
    if (heard->payload.len) memcpy(message->payload, heard->payload.data, heard->payload.len);
    message->payload[message->len] = 0;
    list_append(&messages, &message->link);
}

/* Modules that keep keys elsewhere must know of slots that arrive and leave. */
static const char *migration_refused(void) {
    static char text[256];
    list_each(modules_all(), link) {
        const struct module *module = container_of(link, struct module, link);
        if (!module->name || module->options & VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION) continue;
        snprintf(text, sizeof text,
                 "ERR The module %.100s does not support atomic slot migrations. Please ensure all modules have "
                 "declared support for atomic slot migration and try again",
                 module->name);
        return text;
    }
    return NULL;
}

void module_cluster_start(void) {
    cluster_migration_refused = migration_refused;
}

void api_RegisterClusterMessageReceiver(ValkeyModuleCtx *ctx, uint8_t type,
                                        ValkeyModuleClusterMessageReceiver callback) {
    if (!server.cluster_enabled) return;
    list_each(&ctx->module->receivers, link) {
        struct message_receiver *known = container_of(link, struct message_receiver, link);
        if (known->type != type) continue;
        list_remove(&ctx->module->receivers, link);
        mem_free(known);
    }
    if (!callback) return;
    struct message_receiver *receiver = mem_calloc(1, sizeof *receiver);
    receiver->type = type;
    receiver->function = callback;
    list_append(&ctx->module->receivers, &receiver->link);
    cluster_module_received = message_received;
}
int api_SendClusterMessage(ValkeyModuleCtx *ctx, const char *target_id, uint8_t type, const char *msg, uint32_t len) {
    struct cluster_module_message message = {
        .module = number_of(ctx->module->name), .type = type, .payload = {msg, len}};
    if (!cluster_hooks) return VALKEYMODULE_ERR;
    struct slice to = target_id ? id_of(target_id) : (struct slice){0};
    if (target_id && to.len != CLUSTER_NODE_ID_LEN) return VALKEYMODULE_ERR;
    return cluster_hooks->send_module(to, &message) ? VALKEYMODULE_OK : VALKEYMODULE_ERR;
}
void module_messages_drop(struct module *module) {
    list_each(&module->receivers, link) {
        list_remove(&module->receivers, link);
        mem_free(container_of(link, struct message_receiver, link));
    }
}
