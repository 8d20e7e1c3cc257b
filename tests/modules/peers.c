/* peers.c: a module for tests/integration/modules-cluster.tcl: nodes of the cluster and messages between them. */
#include "module/valkeymodule.h"
#include <string.h>

enum { HEARD_MAX = 16, TYPE = 7, OTHER_TYPE = 8 };
static struct {
    char sender[VALKEYMODULE_NODE_ID_LEN + 1];
    long long type;
    ValkeyModuleString *text;
} heard[HEARD_MAX];
static int heard_count;

static void receive(ValkeyModuleCtx *ctx, const char *sender, uint8_t type, const unsigned char *payload,
                    uint32_t len) {
    (void)ctx;
    if (heard_count == HEARD_MAX) return;
    memcpy(heard[heard_count].sender, sender, VALKEYMODULE_NODE_ID_LEN);
    heard[heard_count].type = type;
    heard[heard_count++].text = ValkeyModule_CreateString(NULL, (const char *)payload, len);
}
/* PEERS.SEND node|all type text */
static int send_message(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (argc != 4) return ValkeyModule_WrongArity(ctx);
    size_t len;
    long long type = 0;
    const char *to = ValkeyModule_StringPtrLen(argv[1], NULL), *text = ValkeyModule_StringPtrLen(argv[3], &len);
    ValkeyModule_StringToLongLong(argv[2], &type);
    int sent =
        ValkeyModule_SendClusterMessage(ctx, strcmp(to, "all") == 0 ? NULL : to, (uint8_t)type, text, (uint32_t)len);
    return ValkeyModule_ReplyWithSimpleString(ctx, sent == VALKEYMODULE_OK ? "OK" : "NO");
}
/* Heard like a message, of the job. */
static void slots_event(ValkeyModuleCtx *ctx, ValkeyModuleEvent event, uint64_t kind, void *data) {
    (void)ctx, (void)event;
    ValkeyModuleAtomicSlotMigrationInfoV1 *info = data;
    if (heard_count == HEARD_MAX || info->num_slot_ranges != 1) return;
    memcpy(heard[heard_count].sender, info->job_name, VALKEYMODULE_NODE_ID_LEN);
    heard[heard_count].type = (long long)kind;
    heard[heard_count++].text =
        ValkeyModule_CreateStringPrintf(NULL, "%d-%d", info->slot_ranges->start, info->slot_ranges->end);
}
static int list_heard(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    ValkeyModule_ReplyWithArray(ctx, heard_count);
    for (int i = 0; i < heard_count; i++) {
        ValkeyModule_ReplyWithArray(ctx, 3);
        ValkeyModule_ReplyWithCString(ctx, heard[i].sender);
        ValkeyModule_ReplyWithLongLong(ctx, heard[i].type);
        ValkeyModule_ReplyWithString(ctx, heard[i].text);
        ValkeyModule_FreeString(NULL, heard[i].text);
    }
    heard_count = 0;
    return VALKEYMODULE_OK;
}
/* PEERS.NODES: this node's id, the number of nodes, and of each: its id, its address, its port, its flags. */
static int nodes(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    size_t count = 0;
    char **ids = ValkeyModule_GetClusterNodesList(ctx, &count);
    if (!ids) return ValkeyModule_ReplyWithNull(ctx);
    ValkeyModule_ReplyWithArray(ctx, 2 + (long)count);
    ValkeyModule_ReplyWithCString(ctx, ValkeyModule_GetMyClusterID());
    ValkeyModule_ReplyWithLongLong(ctx, (long long)ValkeyModule_GetClusterSize());
    for (size_t i = 0; i < count; i++) {
        char ip[64] = "", primary[VALKEYMODULE_NODE_ID_LEN];
        int port = 0, flags = 0;
        ValkeyModule_GetClusterNodeInfo(ctx, ids[i], ip, primary, &port, &flags);
        ValkeyModule_ReplyWithArray(ctx, 4);
        ValkeyModule_ReplyWithStringBuffer(ctx, ids[i], VALKEYMODULE_NODE_ID_LEN);
        ValkeyModule_ReplyWithCString(ctx, ip);
        ValkeyModule_ReplyWithLongLong(ctx, port);
        ValkeyModule_ReplyWithLongLong(ctx, flags);
    }
    ValkeyModule_FreeClusterNodesList(ids);
    return VALKEYMODULE_OK;
}
/* PEERS.SLOTS: how many slots have a name that is in another slot. */
static int slots(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv;
    (void)argc;
    long long wrong = 0;
    for (unsigned slot = 0; slot < 16384; slot++) {
        const char *name = ValkeyModule_ClusterCanonicalKeyNameInSlot(slot);
        wrong += ValkeyModule_ClusterKeySlotC(name, strlen(name)) != slot;
    }
    return ValkeyModule_ReplyWithLongLong(ctx, wrong);
}
/* PEERS.FLAGS flags */
static int set_flags(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    long long flags = 0;
    if (argc > 1) ValkeyModule_StringToLongLong(argv[1], &flags);
    ValkeyModule_SetClusterFlags(ctx, (uint64_t)flags);
    return ValkeyModule_ReplyWithSimpleString(ctx, "OK");
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    static const struct {
        const char *name;
        ValkeyModuleCmdFunc run;
    } commands[] = {{"peers.send", send_message},
                    {"peers.heard", list_heard},
                    {"peers.nodes", nodes},
                    {"peers.slots", slots},
                    {"peers.flags", set_flags}};
    (void)argv;
    (void)argc;
    /* With nine characters the name has a number of its own on the bus. */
    if (ValkeyModule_Init(ctx, "peersTest", 1, VALKEYMODULE_APIVER_1) == VALKEYMODULE_ERR) return VALKEYMODULE_ERR;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (ValkeyModule_CreateCommand(ctx, commands[i].name, commands[i].run, "", 0, 0, 0)) return VALKEYMODULE_ERR;
    ValkeyModule_SetModuleOptions(ctx, VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION);
    ValkeyModule_SubscribeToServerEvent(ctx, ValkeyModuleEvent_AtomicSlotMigration, slots_event);
    ValkeyModule_RegisterClusterMessageReceiver(ctx, TYPE, receive);
    ValkeyModule_RegisterClusterMessageReceiver(ctx, OTHER_TYPE, receive);
    ValkeyModule_RegisterClusterMessageReceiver(ctx, OTHER_TYPE, NULL);
    return VALKEYMODULE_OK;
}
int ValkeyModule_OnUnload(ValkeyModuleCtx *ctx) {
    (void)ctx;
    while (heard_count) ValkeyModule_FreeString(NULL, heard[--heard_count].text);
    return VALKEYMODULE_OK;
}
