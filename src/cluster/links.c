/* links.c: see links.h.
 *
 * Unknown peers. Any program can connect to the bus. The number of accepted links is limited, and a
 * link on which no known node has spoken is closed after a while: a node that wants to join has sent MEET by then. */
#include "cluster/links.h"
#include "cluster/node_private.h"
#include "cluster/nodes_conf.h"
#include "cluster/settings.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "server/clients/client.h"
#include "server/clients/listeners.h"
#include "server/config/tls_options.h"
#include "server/server.h"
#include <errno.h>
#include <stdio.h>

enum {
    STRANGERS_MAX = 1024,             /* accepted links, besides two of each known node */
    STRANGER_GRACE_MS = 5000,         /* besides the time of a handshake */
    HELD_BYTES_MAX = 64 * 1024 * 1024 /* nodes lose messages anyway; a disk that hangs must not fill the memory */
};

struct bus cluster_bus;
static int bus_port;

struct held_message {
    struct list_link link;
    struct bus_link *to;
    struct blob *encoded;
    uint64_t ticket; /* the message leaves when the file is on disk up to this ticket */
};
static struct list held = LIST_INIT(held);
static size_t held_bytes;

/* --- Waiting for the disk --- */

static void held_free(struct held_message *message) {
    list_remove(&held, &message->link);
    held_bytes -= message->encoded->len;
    blob_release(message->encoded);
    mem_free(message);
}

static void held_forget(const struct bus_link *link) {
    list_each_entry(&held, struct held_message, link, message)
        if (message->to == link) held_free(message);
}

static void hold(struct bus_link *link, const struct bus_message *message, uint64_t ticket) {
    static struct log_limit limit = {.interval_us = 60 * 1000000};
    if (!bus_link_is_open(link)) return;
    if (held_bytes > HELD_BYTES_MAX) {
        log_limited(&limit, LOG_LEVEL_WARNING,
                    "Messages on the Cluster bus are dropped: %zu bytes wait until the cluster config file is on disk",
                    held_bytes);
        return;
    }
    struct blob *encoded = bus_encode_shared(message);
    if (!encoded) return;
    struct held_message *new = mem_alloc(sizeof *new);
    *new = (struct held_message){.to = link, .encoded = encoded, .ticket = ticket};
    list_append(&held, &new->link);
    held_bytes += encoded->len;
}

void links_saved(uint64_t ticket) {
    struct list_link *first;
    while ((first = list_first(&held))) {
        struct held_message *message = container_of(first, struct held_message, link);
        if (message->ticket > ticket) return;
        bus_link_send_shared(message->to, message->encoded);
        held_free(message);
    }
}
size_t links_held(void) {
    return held_bytes;
}

/* --- Effects --- */

void links_dial(void *context, struct cluster_link *link) {
    struct bus_link *new = bus_connect(&cluster_bus, link->node->address, link->node->bus_port, link);
    new->known = true; /* this node chose the address */
    link->host = new;
}

void links_close(void *context, struct cluster_link *link) {
    struct bus_link *bus_link = link->host;
    held_forget(bus_link);
    bus_link_close(bus_link);
}

void links_send(void *context, struct cluster_link *link, const struct bus_message *message) {
    uint64_t ticket = message->header.light ? 0 : nodes_conf_unsafe_ticket();
    if (__builtin_expect(ticket != 0 || (held.len && !message->header.light), 0))
        hold(link->host, message, ticket);
    else
        bus_link_send(link->host, message);
}

/* --- Events of the bus --- */

/* Returns the port. */
static uint16_t address_text(const struct bus_link *link, bool peer, char text[static NODE_ADDRESS_MAX]) {
    struct address address;
    text[0] = 0;
    if (!bus_link_address(link, peer, &address)) return 0;
    snprintf(text, NODE_ADDRESS_MAX, "%.*s", NODE_ADDRESS_MAX - 1, address.host);
    return (uint16_t)address.port;
}

static void links_accepted(struct bus_link *link) {
    char peer[NODE_ADDRESS_MAX], local[NODE_ADDRESS_MAX];
    uint16_t port = address_text(link, true, peer);
    address_text(link, false, local);
    log_verbose("Accepting cluster node connection from %s:%u", peer, port);
    struct cluster_link *new = cluster_link_accepted(this_cluster, peer, port, local, cluster_now());
    new->host = link;
    link->owner = new;
}

static void opened(struct bus_link *link) {
    char local[NODE_ADDRESS_MAX];
    address_text(link, false, local);
    cluster_event_begin();
    cluster_link_connected(this_cluster, link->owner, local, cluster_now());
    cluster_event_end();
}

static void received(struct bus_link *link) {
    cluster_link_heard(this_cluster, link->owner, cluster_now());
}

static void log_odd(const struct bus_link *link, const struct bus_message *message, enum bus_verdict verdict,
                    const uint8_t *bad_id) {
    static struct log_limit types = {.interval_us = 60 * 1000000}, ids = {.interval_us = 60 * 1000000},
                            extensions = {.interval_us = 60 * 1000000};
    if (verdict == BUS_UNKNOWN_TYPE)
        log_limited(&types, LOG_LEVEL_WARNING, "Received unknown packet type: %u", message->header.type);
    if (bad_id) {
        char hex[97];
        for (int i = 0; i < 48; i++) snprintf(hex + i * 2, 3, "%02x", bad_id[i]);
        log_limited(&ids, LOG_LEVEL_WARNING,
                    "Node %.40s gossiped an invalid node id: its gossip section is ignored. It begins with %s",
                    message->header.sender.text, hex);
    }
    if (!message->header.light && message->has_extensions && message->extensions.unknown != 0xffff)
        log_limited(&extensions, LOG_LEVEL_VERBOSE, "Received unknown extension type %u", message->extensions.unknown);
}

static void message(struct bus_link *link, const struct bus_message *message, enum bus_verdict verdict,
                    const uint8_t *bad_id) {
    struct cluster_link *cluster_link = link->owner;
    log_odd(link, message, verdict, bad_id);
    if (verdict != BUS_ACCEPTED) return;
    cluster_event_begin();
    cluster_receive(this_cluster, cluster_link, message, cluster_now());
    cluster_event_end();
    if (!link->closed) link->known = cluster_link->node != NULL && !node_in_handshake(cluster_link->node);
}

static void dropped(struct bus_link *link, const struct bus_message *message) {
    cluster_link_dropped(this_cluster, link->owner, message);
}

static void log_end(const struct bus_link *link, enum bus_end reason) {
    const struct cluster_link *cluster_link = link->owner;
    const struct cluster_node *node = cluster_link->node;
    if (reason == BUS_END_LIMIT) {
        log_warning("Freeing cluster link(%s node %.40s (%s), used memory: %zu) due to exceeding send buffer memory "
                    "limit.",
                    link->inbound ? "from" : "to", node ? node->id.text : "", node ? node_name(node) : "",
                    bus_link_memory(link));
    } else if (!cluster_link->connected && !link->inbound) {
        log_verbose("Connection with Node %.40s at %s:%d failed: %s", node ? node->id.text : "",
                    node ? node->address : "", node ? node->bus_port : 0, bus_link_error(link));
    } else if (reason == BUS_END_PEER) {
        log_debug("I/O error reading from node link (%.40s:%s) (%s): %s", node ? node->id.text : "<unknown>",
                  link->inbound ? "inbound" : "outbound", node ? node_name(node) : "<unknown>",
                  link->conn->error ? bus_link_error(link) : "connection closed");
    }
}

static void ended(struct bus_link *link, enum bus_end reason) {
    held_forget(link);
    log_end(link, reason);
    bool refused = !link->inbound && link->conn->error == ECONNREFUSED;
    cluster_event_begin();
    cluster_link_closed(this_cluster, link->owner, refused, cluster_now());
    cluster_event_end();
}

static const struct bus_events events = {.accepted = links_accepted,
                                         .opened = opened,
                                         .received = received,
                                         .message = message,
                                         .dropped = dropped,
                                         .ended = ended};

/* --- Life --- */

void links_reset_stats(void) {
    cluster_bus.stats = (struct bus_stats){0};
}

bool links_use_tls(void) {
    return cluster_bus.transport == transport_find("tls");
}
int links_port(void) {
    return bus_port;
}

static bool listen_on_bus(void) {
    const struct config_strings *hosts = listeners_bind();
    return bus_listen(&cluster_bus, (const char *const *)hosts->items, hosts->count, bus_port,
                      (int)config_number("tcp-backlog"));
}

bool links_start(int port) {
    static struct cluster_listener listener = {.role_changed = links_configure};
    cluster_listen(&listener);
    bus_port = port;
    bus_init(&cluster_bus, server.loop, transport_find(tls_for_cluster() ? "tls" : "tcp"), &events, NULL);
    links_configure();
    return listen_on_bus();
}

static void close_all(void) {
    list_each_entry(&cluster_bus.links, struct bus_link, link, link) {
        held_forget(link);
        cluster_link_closed(this_cluster, link->owner, false, cluster_now());
        bus_link_close(link);
    }
}

void links_stop(void) {
    close_all();
    bus_free(&cluster_bus);
}

/* tls-cluster has changed: the links of the other kind end. The old kind of links is dialled again, in the new one. */
static void change_transport(void) {
    close_all();
    bus_free(&cluster_bus);
    cluster_bus.transport = transport_find(tls_for_cluster() ? "tls" : "tcp");
    if (!listen_on_bus()) log_warning("The Cluster bus does not listen any more.");
}

void links_configure(void) {
    struct bus_settings *settings = &cluster_bus.settings;
    settings->bulk_max = (uint64_t)client_settings.bulk_max;
    settings->nodes = this_cluster ? this_cluster->nodes.count : 1;
    settings->link_limit = (uint64_t)cluster_options.link_limit;
    settings->inbound_max = 2 * settings->nodes + STRANGERS_MAX;
    /* A primary without its data must not look alive. */
    settings->refuses = server_is_loading() && this_cluster && node_is_primary(this_cluster->myself);
    settings->source_host = outgoing_source();
    settings->keepalive_s = client_settings.tcp_keepalive;
    if (cluster_bus.listener_count && links_use_tls() != tls_for_cluster()) change_transport();
}

void links_tick(void) {
    int64_t now = cluster_now(), timeout = this_cluster->settings.node_timeout_ms;
    int64_t grace = (timeout > 1000 ? timeout : 1000) + STRANGER_GRACE_MS;
    list_each_entry(&cluster_bus.links, struct bus_link, link, link) {
        struct cluster_link *cluster_link = link->owner;
        if (!link->inbound || cluster_link->node || now - link->opened_ms < grace) continue;
        held_forget(link);
        cluster_link_closed(this_cluster, cluster_link, false, now);
        bus_link_close(link);
    }
}
