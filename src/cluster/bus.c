/* bus.c: see bus.h. */
#include "cluster/bus.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    INPUT_LIMIT = 64 * 1024,        /* unconsumed bytes, unless a message is longer */
    UNKNOWN_BULK_MAX = 1024 * 1024, /* bulk_max for a peer that may be anybody */
    QUEUE_SIZE = 48,                /* of an empty queue: the limit is one of memory, as in Valkey */
};

static const struct connection_events link_events;

/* --- Links --- */

static struct bus_link *link_new(struct bus *bus, bool inbound, void *owner) {
    struct bus_link *link = mem_calloc(1, sizeof *link);
    link->bus = bus;
    link->inbound = inbound;
    link->owner = owner;
    link->created_ms = clock_wall_us() / 1000;
    link->opened_ms = clock_monotonic_ms();
    list_append(&bus->links, &link->link);
    bus->inbound += inbound;
    return link;
}
static void link_free(struct event_deferred *deferred) {
    mem_free(container_of(deferred, struct bus_link, deferred));
}

void bus_link_close(struct bus_link *link) {
    struct bus *bus = link->bus;
    if (link->closed) return;
    link->closed = true;
    list_remove(&bus->links, &link->link);
    must(bus->inbound > 0 || !link->inbound);
    bus->inbound -= link->inbound;
    if (conn_is_open(link->conn) && link->unflushed) conn_flush(link->conn);
    link->conn->owner = NULL;
    conn_close(link->conn);
    link->conn = NULL;
    event_loop_defer(bus->loop, &link->deferred, link_free);
}

static void link_end(struct bus_link *link, enum bus_end reason) {
    if (link->closed) return;
    link->bus->events->ended(link, reason);
    bus_link_close(link);
}

bool bus_link_is_open(const struct bus_link *link) {
    return !link->closed && conn_is_open(link->conn);
}
bool bus_link_address(const struct bus_link *link, bool peer, struct address *address) {
    return !link->closed && conn_address(link->conn, peer, address);
}
const char *bus_link_error(const struct bus_link *link) {
    return link->closed ? "closed" : conn_error_text(link->conn);
}
size_t bus_link_memory(const struct bus_link *link) {
    return mem_size(link) + (link->closed ? 0 : conn_memory(link->conn, NULL, NULL));
}
size_t bus_link_queued(const struct bus_link *link, size_t *allocated) {
    *allocated = 0;
    if (link->closed) return 0;
    conn_memory(link->conn, NULL, allocated);
    return conn_pending(link->conn);
}
size_t bus_memory(const struct bus *bus) {
    size_t total = 0;
    for (const struct list_link *at = bus->links.head.next; at != &bus->links.head; at = at->next)
        total += bus_link_memory(container_of(at, struct bus_link, link));
    return total;
}

/* --- Receiving --- */

static void count_received(struct bus_stats *stats, unsigned type, size_t len) {
    if (type < BUS_TYPES) stats->received[type]++;
    stats->bytes_received += len;
    if (type == BUS_PUBLISH || type == BUS_PUBLISHSHARD) stats->published_bytes_received += len;
    if (type == BUS_MODULE) stats->module_bytes_received += len;
}

/* A whole message. */
static void take_message(struct bus_link *link, const uint8_t *bytes, size_t len, unsigned type) {
    struct bus *bus = link->bus;
    struct bus_message message;
    const uint8_t *bad_id;
    count_received(&bus->stats, type, len);
    log_debug("--- Processing packet of type %s, %zu bytes", bus_type_name(type), len);
    enum bus_verdict verdict = bus_decode(bytes, len, &message, &bad_id);
    if (verdict == BUS_IGNORED) return;
    if (bus->debug.drop == BUS_DROP_ALL || (bus->debug.drop >= 0 && (unsigned)bus->debug.drop == type)) {
        log_warning("Dropping packet of type %s that matches debug drop filter", bus_type_name(type));
        if (!bus->debug.close_on_drop) {
            if (verdict == BUS_ACCEPTED) bus->events->dropped(link, &message);
            return;
        }
        log_warning("Closing link for matching packet type %s", bus_type_name(type));
        link_end(link, BUS_END_DROPPED);
        return;
    }
    if (verdict == BUS_INVALID) {
        char text[BUS_TEXT_MAX];
        bus_invalid_text(bytes, len, text);
        log_warning("%s", text);
        return;
    }
    bus->events->message(link, &message, verdict, bad_id);
}

static void bus_refuse(struct bus_link *link, uint32_t length, uint64_t max) {
    char peer[128];
    conn_format_address(link->conn, true, peer);
    if (max)
        log_warning("A message of %u bytes was announced on the Cluster bus by %s; at most %llu are accepted", length,
                    peer, (unsigned long long)max);
    else
        log_warning("Bad message length or signature received on the Cluster bus from %s", peer);
    link_end(link, BUS_END_INVALID);
}

static uint64_t length_max(const struct bus_link *link, unsigned type) {
    const struct bus_settings *settings = &link->bus->settings;
    uint64_t bulk_max = settings->bulk_max;
    if (!link->known && bulk_max > UNKNOWN_BULK_MAX) bulk_max = UNKNOWN_BULK_MAX;
    return bus_length_max(type, bulk_max, settings->nodes);
}

static void read_messages(struct bus_link *link) {
    while (!link->closed) {
        struct connection *conn = link->conn;
        struct slice in = conn_peek(conn);
        const uint8_t *bytes = (const uint8_t *)in.data;
        uint32_t length;
        unsigned type;
        if (in.len < BUS_PREFIX_SIZE) break;
        if (!bus_prefix(bytes, &length, &type)) {
            bus_refuse(link, length, 0);
            return;
        }
        uint64_t max = length_max(link, type);
        if (length > max) {
            bus_refuse(link, length, max);
            return;
        }
        if (in.len < length) {
            conn_set_in_limit(conn, length > INPUT_LIMIT ? length : INPUT_LIMIT);
            break;
        }
        take_message(link, bytes, length, type);
        if (!link->closed) conn_consume(conn, length);
    }
}

static void bus_readable(struct connection *conn) {
    struct bus_link *link = conn->owner;
    if (!link || link->reading) return; /* in a callback that runs the loop */
    link->reading = true;
    link->bus->events->received(link);
    read_messages(link);
    link->reading = false;
}

static void connected(struct connection *conn) {
    struct bus_link *link = conn->owner;
    if (!link) return;
    if (link->bus->settings.keepalive_s) conn_set_keepalive(conn, link->bus->settings.keepalive_s);
    link->bus->events->opened(link);
}
static void bus_closed(struct connection *conn) {
    struct bus_link *link = conn->owner;
    if (link) link_end(link, BUS_END_PEER);
}
static const struct connection_events link_events = {
    .connected = connected, .readable = bus_readable, .closed = bus_closed};

/* --- Sending --- */

static void count_sent(struct bus_stats *stats, unsigned type, size_t len) {
    if (type < BUS_TYPES) stats->sent[type]++;
    stats->bytes_sent += len;
    if (type == BUS_PUBLISH || type == BUS_PUBLISHSHARD) stats->published_bytes_sent += len;
    if (type == BUS_MODULE) stats->module_bytes_sent += len;
}

/* A timer, since deferred work waits for the end of a long script, and a peer must not. */
static uint64_t flush_links(struct event_timer *timer) {
    struct bus *bus = container_of(timer, struct bus, flush_timer);
    list_each_entry(&bus->links, struct bus_link, link, link) {
        if (!link->unflushed) continue;
        link->unflushed = false;
        if (!conn_is_open(link->conn)) continue;
        conn_flush(link->conn);
        if (!bus->settings.link_limit || conn_pending(link->conn) + QUEUE_SIZE <= bus->settings.link_limit) continue;
        bus->stats.over_limit++;
        link_end(link, BUS_END_LIMIT);
    }
    return 0;
}

static void link_written(struct bus_link *link, unsigned type, size_t len) {
    struct bus *bus = link->bus;
    count_sent(&bus->stats, type, len);
    link->unflushed = true;
    if (!bus->flush_timer.heap_index) event_timer_set(bus->loop, &bus->flush_timer, 0, flush_links);
}

void bus_link_send(struct bus_link *link, const struct bus_message *message) {
    size_t size = bus_encoded_size(message);
    if (!bus_link_is_open(link)) return;
    if (size <= OUTPUT_RESERVE_MAX) {
        bus_encode(message, (uint8_t *)output_reserve(&link->conn->out, size));
        output_commit(&link->conn->out, size);
        link_written(link, message->header.type, size);
        return;
    }
    struct blob *encoded = bus_encode_shared(message);
    if (!encoded) return;
    bus_link_send_shared(link, encoded);
    blob_release(encoded);
}

struct blob *bus_encode_shared(const struct bus_message *message) {
    size_t size = bus_encoded_size(message);
    struct blob *encoded = size <= UINT32_MAX ? blob_try_new(size) : NULL;
    if (!encoded) {
        log_warning("A message of type %s and %zu bytes cannot be sent on the Cluster bus",
                    bus_type_name(message->header.type), size);
        return NULL;
    }
    bus_encode(message, (uint8_t *)encoded->data);
    encoded->len = size;
    return encoded;
}

void bus_link_send_shared(struct bus_link *link, struct blob *encoded) {
    uint32_t length;
    unsigned type;
    if (!bus_link_is_open(link)) return;
    bus_prefix((const uint8_t *)encoded->data, &length, &type);
    output_write_blob(&link->conn->out, encoded);
    link_written(link, type, length);
}

/* --- Opening --- */

struct bus_link *bus_connect(struct bus *bus, const char *host, int port, void *owner) {
    const char *source = bus->settings.source_host;
    struct bus_link *link = link_new(bus, false, owner);
    link->conn = conn_connect(bus->transport, bus->loop,
                              &(struct connect_options){.host = host,
                                                        .port = port,
                                                        .source_host = source && *source ? source : NULL,
                                                        .source_optional = true,
                                                        .events = &link_events,
                                                        .owner = link});
    conn_set_in_limit(link->conn, INPUT_LIMIT);
    return link;
}

static void bus_accepted(struct listener *listener, struct connection *conn) {
    struct bus *bus = listener->owner;
    conn->events = &link_events;
    conn->owner = NULL;
    if (bus->settings.refuses || (bus->settings.inbound_max && bus->inbound >= bus->settings.inbound_max)) {
        conn_close(conn);
        return;
    }
    struct bus_link *link = link_new(bus, true, NULL);
    link->conn = conn;
    conn->owner = link;
    conn_set_in_limit(conn, INPUT_LIMIT);
    if (bus->settings.keepalive_s) conn_set_keepalive(conn, bus->settings.keepalive_s);
    bus->events->accepted(link);
}

void bus_init(struct bus *bus, struct event_loop *loop, const struct transport *transport,
              const struct bus_events *events, void *owner) {
    *bus = (struct bus){.loop = loop, .transport = transport, .events = events, .owner = owner};
    bus->settings.bulk_max = 512 * 1024 * 1024;
    bus->debug.drop = BUS_DROP_NONE;
    list_init(&bus->links);
}

static void close_listeners(struct bus *bus) {
    while (bus->listener_count) listener_close(bus->listeners[--bus->listener_count]);
}

bool bus_listen(struct bus *bus, const char *const *hosts, int count, int port, int backlog) {
    char error[256] = "";
    if (count == 0) log_warning("No bind address is configured, but it is required for the Cluster bus.");
    for (int i = 0; i < count; i++) {
        bool optional = hosts[i][0] == '-';
        struct listen_options options = {.host = hosts[i] + optional,
                                         .port = port,
                                         .backlog = backlog,
                                         .needs_certificate = true,
                                         .accepted = bus_accepted,
                                         .owner = bus};
        if (bus->listener_count == sizeof bus->listeners / sizeof *bus->listeners) break;
        struct listener *listener = conn_listen(bus->transport, bus->loop, &options, error, sizeof error);
        if (listener) {
            bus->listeners[bus->listener_count++] = listener;
            continue;
        }
        int reason = errno;
        if (optional && (reason == EADDRNOTAVAIL || reason == EAFNOSUPPORT)) continue;
        log_warning("Warning: Could not create server TCP listening socket %s:%d: bind: %s", options.host, port,
                    strerror(reason));
        close_listeners(bus);
        break;
    }
    if (bus->listener_count) return true;
    if (count) log_warning("Failed listening on port %d (cluster), aborting.", port);
    return false;
}

void bus_free(struct bus *bus) {
    close_listeners(bus);
    list_each(&bus->links, at) bus_link_close(container_of(at, struct bus_link, link));
    event_timer_cancel(bus->loop, &bus->flush_timer);
}

/* --- Figures --- */

static void info_line(struct output *out, const char *name, const char *end, uint64_t value) {
    char line[128];
    int len = snprintf(line, sizeof line, "%s%s:%llu\r\n", name, end, (unsigned long long)value);
    output_write(out, slice_make(line, (size_t)len));
}
static void info_messages(struct output *out, const uint64_t messages[BUS_TYPES], const char *end) {
    uint64_t total = 0;
    for (unsigned type = 0; type < BUS_TYPES; type++) {
        char name[64];
        total += messages[type];
        if (!messages[type]) continue;
        snprintf(name, sizeof name, "cluster_stats_messages_%s", bus_type_name(type));
        info_line(out, name, end, messages[type]);
    }
    info_line(out, "cluster_stats_messages", end, total);
}
void bus_info(const struct bus *bus, struct output *out) {
    const struct bus_stats *stats = &bus->stats;
    info_messages(out, stats->sent, "_sent");
    info_messages(out, stats->received, "_received");
    info_line(out, "cluster_stats_bytes", "_sent", stats->bytes_sent);
    info_line(out, "cluster_stats_bytes", "_received", stats->bytes_received);
    info_line(out, "cluster_stats_pubsub_bytes", "_sent", stats->published_bytes_sent);
    info_line(out, "cluster_stats_pubsub_bytes", "_received", stats->published_bytes_received);
    info_line(out, "cluster_stats_module_bytes", "_sent", stats->module_bytes_sent);
    info_line(out, "cluster_stats_module_bytes", "_received", stats->module_bytes_received);
    info_line(out, "total_cluster_links_buffer_limit_exceeded", "", stats->over_limit);
}
