/* A module of Valkey that sends messages over the cluster bus, for cluster_packets.py: CLUSTERMESSAGE <type> <text>
 * sends the text to all nodes. It declares the few functions of the module interface that it needs.
 *
 *   cc -shared -fPIC -o cluster_message_module.so cluster_message_module.c */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct context;
struct string;
typedef int command(struct context *context, struct string **argv, int argc);

static int (*get_api)(const char *name, void *function);
static int (*set_attributes)(struct context *, const char *name, int version, int api_version);
static int (*create_command)(struct context *, const char *name, command *, const char *flags, int first, int last,
                             int step);
static const char *(*string_text)(const struct string *, size_t *len);
static int (*send_message)(struct context *, const char *node, uint8_t type, const char *text, uint32_t len);
static int (*reply_number)(struct context *, long long number);
static void (*register_receiver)(struct context *, uint8_t type,
                                 void (*)(struct context *, const char *, uint8_t, const unsigned char *, uint32_t));

static int send_text(struct context *context, struct string **argv, int argc) {
    size_t len;
    if (argc != 3) return 1;
    const char *text = string_text(argv[2], &len);
    uint8_t type = (uint8_t)atoi(string_text(argv[1], &len));
    text = string_text(argv[2], &len);
    return reply_number(context, send_message(context, NULL, type, text, (uint32_t)len));
}

static void ignore(struct context *context, const char *node, uint8_t type, const unsigned char *text, uint32_t len) {}

__attribute__((visibility("default"))) int ValkeyModule_OnLoad(struct context *context, void **argv, int argc);
int ValkeyModule_OnLoad(struct context *context, void **argv, int argc) {
    get_api = *(int (**)(const char *, void *))context; /* the first member */
    if (get_api("ValkeyModule_SetModuleAttribs", &set_attributes) ||
        get_api("ValkeyModule_CreateCommand", &create_command) || get_api("ValkeyModule_StringPtrLen", &string_text) ||
        get_api("ValkeyModule_SendClusterMessage", &send_message) ||
        get_api("ValkeyModule_RegisterClusterMessageReceiver", &register_receiver) ||
        get_api("ValkeyModule_ReplyWithLongLong", &reply_number))
        return 1;
    set_attributes(context, "message", 1, 1);
    register_receiver(context, 7, ignore);
    return create_command(context, "clustermessage", send_text, "readonly", 0, 0, 0);
}
