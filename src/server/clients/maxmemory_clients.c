/* maxmemory_clients.c: maxmemory-clients: the memory limit for all clients together. Above it the server closes the
 * clients that use most, before a client's turn and before the loop waits.
 *
 * While the limit is set, the server updates the memory of each client at the end of its turns and from the cron. It
 * walks all clients to find the largest one only if one must be closed. */
#include "lib/system/log.h"
#include "server/clients/client_private.h"
#include "server/command/dispatch.h"
#include "server/config/config.h"
#include "server/config/settings.h"

static int64_t bound; /* bytes; negative: percent of maxmemory; 0: none */
static size_t total;
static uint64_t evicted;
bool client_memory_bounded;

uint64_t clients_evicted(void) {
    return evicted;
}
void clients_evicted_reset(void) {
    evicted = 0;
}

static bool may_be_evicted(const struct client *client) {
    return !(client->flags & (CLIENT_NO_EVICT | CLIENT_REPLICA | CLIENT_PRIMARY | CLIENT_PROTECTED | CLIENT_MIGRATION));
}

size_t client_memory_caused(const struct client *client) {
    const struct connection *conn = client->conn;
    size_t input = 0, output = 0, all = client_memory(client);
    if (!conn) return all;
    conn_memory(conn, &input, &output);
    return conn_reserves_input(conn) && input > conn->in_len && all > input ? all - input + conn->in_len : all;
}

void client_memory_note(struct client *client) {
    size_t now = may_be_evicted(client) ? client_memory_caused(client) : 0;
    total += now - client->memory_noted;
    client->memory_noted = now;
}

bool clients_memory_is_limited(void) {
    return client_memory_bounded;
}
size_t client_limited_memory(struct client *client) {
    client_memory_note(client);
    return client->memory_noted;
}

void client_memory_forget(struct client *client) {
    total -= client->memory_noted;
    client->memory_noted = 0;
}

/* A lower limit would disconnect every client, including the administrator's. */
enum { BOUND_LEAST = 128 * 1024 };

static size_t bound_bytes(void) {
    double bytes = bound >= 0 ? (double)bound : (double)server_settings.maxmemory * (double)-bound / 100;
    if (bytes <= 0) return 0;
    return bytes < BOUND_LEAST ? BOUND_LEAST : (size_t)bytes;
}

void clients_evict(void) {
    size_t limit = bound_bytes();
    while (limit && total > limit) {
        struct client *largest = NULL;
        list_each_entry(clients_all(), struct client, link, client) {
            if (dispatch_replies_to(client)) continue; /* may be closed after its call */
            client_memory_note(client);
            if (client->memory_noted && (!largest || client->memory_noted > largest->memory_noted)) largest = client;
        }
        if (!largest || total <= limit) return;
        log_notice("Evicting client: %s", client_log_text(largest));
        evicted++;
        client_free(largest);
    }
}

static const char *apply_bound(void) {
    client_memory_bounded = bound != 0;
    if (client_memory_bounded)
        list_each(clients_all(), link) client_memory_note(container_of(link, struct client, link));
    return NULL;
}
void client_eviction_start(void) {
    client_memory_bounded = bound != 0;
}

const struct config_option client_eviction_options[] = {
    {OPTION("maxmemory-clients", CONFIG_MEMORY, &bound, "0"), .flags = CONFIG_PERCENT_OK, .min = 0, .max = INT64_MAX,
     .apply = apply_bound},
    {.name = NULL},
};
