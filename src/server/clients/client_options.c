/* client_options.c: options about clients. */
#include "lib/text/number.h"
#include "server/clients/client.h"
#include "server/config/config.h"
#include "server/clients/open_files.h"
#include <stdio.h>

struct client_settings client_settings = {.protocol = 2,
                                          .immediate_reply = REPLY_AS_TRANSPORT,
                                          .maxclients = 10000,
                                          .query_buffer_limit = 1024 * 1024 * 1024,
                                          .bulk_max = 512 * 1024 * 1024};

/* Groups of "class hard soft seconds"; classes that are not named keep their limits. */
static const char *set_output_limits(const struct config_option *option, int count, const struct slice *words) {
    struct client_limit limits[CLIENT_CLASSES];
    memcpy(limits, client_settings.limits, sizeof limits);
    if (count % 4) return "Wrong number of arguments in buffer limit configuration.";
    for (int i = 0; i < count; i += 4) {
        enum client_class class;
        uint64_t hard, soft;
        int64_t seconds;
        if (!client_class_parse(words[i], &class) || class == CLIENT_CLASS_PRIMARY)
            return "Invalid client class specified in buffer limit configuration.";
        if (!parse_memory(words[i + 1], &hard) || !parse_memory(words[i + 2], &soft) ||
            !config_parse_number(words[i + 3], &seconds) || seconds < 0)
            return "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        limits[class] = (struct client_limit){hard, soft, (uint64_t)seconds};
    }
    memcpy(client_settings.limits, limits, sizeof limits);
    return NULL;
}

static void output_limit_text(enum client_class class, char *text, size_t size) {
    const struct client_limit *limit = &client_settings.limits[class];
    /* The class of replicas has its former name here. */
    snprintf(text, size, "%s %llu %llu %llu", class == CLIENT_CLASS_REPLICA ? "slave" : client_class_name(class),
             (unsigned long long)limit->hard, (unsigned long long)limit->soft, (unsigned long long)limit->soft_seconds);
}

static void get_output_limits(const struct config_option *option, struct output *out) {
    for (int class = 0; class < CLIENT_CLASS_PRIMARY; class ++) {
        char text[128];
        output_limit_text(class, text, sizeof text);
        if (class) output_write(out, SLICE(" "));
        output_write(out, slice_of(text));
    }
}

static void rewrite_output_limits(const struct config_option *option, struct output *out) {
    for (int class = 0; class < CLIENT_CLASS_PRIMARY; class ++) {
        const struct client_limit *limit = &client_settings.limits[class];
        char text[128];
        size_t len = (size_t)snprintf(text, sizeof text, "%s %s ", option->name, client_class_name(class));
        len += format_memory(text + len, limit->hard);
        text[len++] = ' ';
        len += format_memory(text + len, limit->soft);
        snprintf(text + len, sizeof text - len, " %llu\n", (unsigned long long)limit->soft_seconds);
        output_write(out, slice_of(text));
    }
}

static const char *apply_maxclients(void) {
    int64_t wanted = client_settings.maxclients;
    open_files_adjust();
    if (client_settings.maxclients == wanted) return NULL;
    return config_reason("The operating system is not able to handle the specified number of clients, try with %lld",
                         (long long)client_settings.maxclients);
}

static const char *apply_query_limit(void) {
    list_each(clients_all(), link)
        conn_set_in_limit(container_of(link, struct client, link)->conn, (size_t)client_settings.query_buffer_limit);
    return NULL;
}

static const struct config_name immediate_names[] = {
    {"auto", REPLY_AS_TRANSPORT}, {"yes", REPLY_IMMEDIATE}, {"no", REPLY_LATE}, {NULL, 0}};

const struct config_option client_options[] = {
    {OPTION("timeout", CONFIG_INT, &client_settings.timeout, "0"), .min = 0, .max = INT32_MAX},
    {OPTION("maxclients", CONFIG_INT64, &client_settings.maxclients, "10000"), .min = 1, .max = UINT32_MAX,
     .apply = apply_maxclients},
    {OPTION("tcp-keepalive", CONFIG_INT, &client_settings.tcp_keepalive, "300"), .min = 0, .max = INT32_MAX},
    {OPTION("client-query-buffer-limit", CONFIG_MEMORY, &client_settings.query_buffer_limit, "1073741824"),
     .min = 1024 * 1024, .max = INT64_MAX, .apply = apply_query_limit},
    {OPTION("prefetch-batch-max-size", CONFIG_INT, &client_settings.prefetch_batch_max, "16"), .min = 0, .max = 128},
    {OPTION("proto-max-bulk-len", CONFIG_MEMORY, &client_settings.bulk_max, "536870912"), .min = 1024 * 1024,
     .max = INT64_MAX},
    {OPTION("client-output-buffer-limit", CONFIG_CUSTOM, NULL,
            "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"),
     .flags = CONFIG_MULTI_ARG, .set = set_output_limits, .get = get_output_limits, .rewrite = rewrite_output_limits},
    {OPTION("immediate-reply", CONFIG_ENUM, &client_settings.immediate_reply, "auto"), .names = immediate_names},
    {OPTION("min-string-size-avoid-copy-reply", CONFIG_MEMORY, &client_settings.shared_reply_min, "16kb"),
     .flags = CONFIG_HIDDEN, .min = 0, .max = INT64_MAX},
    {OPTION("client-default-resp", CONFIG_INT, &client_settings.protocol, "2"), .flags = CONFIG_HIDDEN, .min = 2,
     .max = 3},
    {.name = NULL},
};
