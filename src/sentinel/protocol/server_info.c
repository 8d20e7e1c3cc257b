/* server_info.c: see server_info.h. */
#include "sentinel/protocol/server_info.h"
#include "lib/text/number.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool take_port(struct slice text, int *port) {
    int64_t value;
    if (!parse_int64(text, &value) || value < 0 || value > 65535) return false;
    *port = (int)value;
    return true;
}
static bool take_text(struct slice text, char *to, size_t size) {
    if (text.len >= size || memchr(text.data, 0, text.len)) return false;
    if (text.len) memcpy(to, text.data, text.len);
    to[text.len] = 0;
    return true;
}
/* Splits off the part before `mark`. */
static struct slice part(struct slice *rest, char mark) {
    const char *at = rest->len ? memchr(rest->data, mark, rest->len) : NULL;
    struct slice before = {rest->data, at ? (size_t)(at - rest->data) : rest->len};
    size_t skip = before.len + (at != NULL);
    rest->data += skip, rest->len -= skip;
    return before;
}

/* "ip=10.0.0.2,port=6380,state=online,...", or "10.0.0.2,6380,online" of old servers. */
static void read_replica(struct slice text, void (*replica)(void *context, const char *host, int port), void *context) {
    char host[INFO_HOST_MAX] = "";
    int port = 0;
    if (memchr(text.data, '=', text.len)) {
        while (text.len) {
            struct slice value = part(&text, ','), key = part(&value, '=');
            if (slice_equal(key, SLICE("ip")) && !take_text(value, host, sizeof host)) return;
            if (slice_equal(key, SLICE("port")) && !take_port(value, &port)) return;
        }
    } else if (!take_text(part(&text, ','), host, sizeof host) || !take_port(part(&text, ','), &port)) {
        return;
    }
    if (*host && port) replica(context, host, port);
}

/* "name=rdma,bind=0.0.0.0,port=6379"; "rdma-tls" with tls-rdma yes or optional */
static void read_listener(struct slice text, struct server_info *info) {
    bool rdma = false;
    int port = 0;
    while (text.len) {
        struct slice value = part(&text, ','), key = part(&value, '=');
        if (slice_equal(key, SLICE("name")))
            rdma = slice_equal(value, SLICE("rdma")) || slice_equal(value, SLICE("rdma-tls"));
        if (slice_equal(key, SLICE("port"))) take_port(value, &port);
    }
    if (rdma && port && !info->rdma_port) info->rdma_port = port;
}

static bool is_numbered(struct slice key, const char *word) {
    size_t len = strlen(word);
    return key.len > len && memcmp(key.data, word, len) == 0 && key.data[len] >= '0' && key.data[len] <= '9';
}

/* As Valkey's Sentinel reads numbers: what follows the digits does not count, and a text without any is 0. */
static int64_t number_in(struct slice text) {
    char digits[24];
    snprintf(digits, sizeof digits, "%.*s", (int)(text.len < sizeof digits ? text.len : sizeof digits - 1), text.data);
    return strtoll(digits, NULL, 10);
}

void server_info_init(struct server_info *info) {
    *info = (struct server_info){.priority = 100, .announced = 1};
}

void server_info_read(struct slice text, struct server_info *info,
                      void (*replica)(void *context, const char *host, int port), void *context) {
    info->run_id[0] = info->replication_id[0] = 0;
    info->is_primary = info->loading = info->sync_ineligible = false;
    info->primary_link_down_ms = 0;
    info->rdma_port = 0;
    while (text.len) {
        struct slice value = part(&text, '\n');
        if (!value.len || !strchr("lmrs", value.data[0])) continue; /* the first letters of what follows */
        if (value.len && value.data[value.len - 1] == '\r') value.len--;
        struct slice key = part(&value, ':');
#define FIELD(name) slice_equal(key, SLICE(name))
        if (FIELD("run_id")) {
            if (value.len >= 40) take_text(slice_make(value.data, 40), info->run_id, sizeof info->run_id);
        } else if (FIELD("master_replid")) {
            take_text(value, info->replication_id, sizeof info->replication_id);
        } else if (FIELD("role")) {
            info->is_primary = slice_equal(value, SLICE("master"));
        } else if (is_numbered(key, "slave")) {
            if (replica && value.len) read_replica(value, replica, context);
        } else if (is_numbered(key, "listener")) {
            read_listener(value, info);
        } else if (FIELD("master_host")) {
            if (!take_text(value, info->primary_host, sizeof info->primary_host)) info->primary_host[0] = 0;
        } else if (FIELD("master_port")) {
            take_port(value, &info->primary_port);
        } else if (FIELD("master_link_status")) {
            info->primary_link_up = slice_is(value, "up");
        } else if (FIELD("master_link_down_since_seconds")) {
            int64_t seconds = number_in(value);
            if (seconds >= -1 && seconds < INT64_MAX / 1000) info->primary_link_down_ms = seconds * 1000;
        } else if (FIELD("slave_priority")) {
            info->priority = number_in(value);
        } else if (FIELD("slave_repl_offset")) {
            info->offset = (uint64_t)number_in(value);
        } else if (FIELD("replica_announced")) {
            info->announced = number_in(value);
        } else if (FIELD("master_failover_state")) {
            info->has_failover_state = true;
            info->failover_in_progress = !slice_equal(value, SLICE("no-failover"));
        } else if (FIELD("loading")) {
            info->loading = number_in(value) != 0;
        } else if (FIELD("sync_eligible")) {
            info->sync_ineligible = slice_equal(value, SLICE("0"));
        }
#undef FIELD
    }
}
