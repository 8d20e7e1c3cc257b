/* handshake.c: nodes join and leave: links, MEET, FORGET, changes of addresses, RESET.
 *
 * A node of which only the address is known gets a random id and the flag HANDSHAKE. The reply to our MEET or PING has
 * its id; from then on it is a member. The receiver of a MEET from an unknown node adds the sender in the same way, and
 * dials it.
 *
 * The number of handshakes is limited, because each takes the memory of a node until it times out. */
#include "cluster/protocol/machine.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <stdio.h>

int64_t handshake_timeout(const struct cluster *cluster) {
    return max_i64(cluster->settings.node_timeout_ms, 1000);
}

static struct cluster_link *link_new(struct cluster *cluster, struct cluster_node *node) {
    struct cluster_link *link = mem_calloc(1, sizeof *link);
    link->node = node;
    link->created_ms = cluster->now_ms;
    link->next = cluster->links;
    if (link->next) link->next->previous = link;
    cluster->links = link;
    return link;
}

static void link_free(struct cluster *cluster, struct cluster_link *link) {
    struct cluster_node *node = link->node;
    if (node && node->link == link) {
        node->link = NULL;
        node->beat->connected = false;
        if (link->connected) changed_view(cluster);
    }
    if (node && node->inbound == link) {
        node->inbound = NULL;
        node->links.inbound_missing_ms = cluster->now_ms;
    }
    if (node) node_update(node);
    if (link->previous)
        link->previous->next = link->next;
    else
        cluster->links = link->next;
    if (link->next) link->next->previous = link->previous;
    repeat_forget(cluster, link);
    mem_free(link);
}

static void say_freed(struct cluster *cluster, const struct cluster_link *link) {
    say_debug(cluster, "Freeing cluster link for node: %.40s:%s (%s)", LINK_ID(link), LINK_DIRECTION(link),
              LINK_NAME(link));
}

void link_close(struct cluster *cluster, struct cluster_link *link) {
    say_freed(cluster, link);
    cluster->effects->close(cluster->context, link);
    link_free(cluster, link);
}

struct cluster_link *cluster_link_accepted(struct cluster *cluster, const char *peer, uint16_t peer_port,
                                           const char *local, int64_t now_ms) {
    cluster->now_ms = now_ms;
    struct cluster_link *link = link_new(cluster, NULL);
    link->inbound = link->connected = true;
    snprintf(link->peer, sizeof link->peer, "%s", peer);
    link->peer_port = peer_port;
    snprintf(link->local, sizeof link->local, "%s", local);
    return link;
}

/* Removes a node with all that refers to it. */
void node_delete(struct cluster *cluster, struct cluster_node *node) {
    must(node != cluster->myself);
    node_drop_slots(cluster, node);
    struct slot_table *slots = &cluster->slots;
    for (unsigned slot = 0; slot < HASH_SLOTS && node->migrating_count + node->importing_count > 0; slot++) {
        if (slots_migrating_to(slots, slot) == node) slots_set_migrating(slots, slot, NULL);
        if (slots_importing_from(slots, slot) == node) slots_set_importing(slots, slot, NULL);
    }
    if (node->link) link_close(cluster, node->link);
    if (node->inbound) link_close(cluster, node->inbound);
    if (cluster->manual.replica == node) manual_reset(cluster);
    failure_forget(cluster, node);
    must_equal(node->slot_count + node->migrating_count + node->importing_count, 0u);
    if (node_in_handshake(node)) {
        must(cluster->joining.handshakes > 0);
        cluster->joining.handshakes--;
        changed_view(cluster);
    } else {
        changed_table(cluster);
    }
    if (cluster->myself->primary == node) changed_self(cluster);
    nodes_remove(&cluster->nodes, node);
    todo(cluster, TODO_STATE);
}

void cluster_link_connected(struct cluster *cluster, struct cluster_link *link, const char *local, int64_t now_ms) {
    cluster->now_ms = now_ms;
    link->connected = true;
    changed_view(cluster);
    struct cluster_node *node = link->node;
    node->beat->connected = true;
    node_update(node);
    fast_failover_link_connected(node);
    snprintf(link->local, sizeof link->local, "%s", local);
    snprintf(link->peer, sizeof link->peer, "%s", node->address);
    link->peer_port = node->bus_port;
    /* The silence began with the ping on an older link, if there was one. */
    int64_t ping_sent_ms = node->beat->ping_sent_ms;
    send_ping(cluster, link, node->flags & NODE_MEET ? BUS_MEET : BUS_PING);
    node->beat->ping_sent_ms = ping_sent_ms;
    if (node->flags & NODE_MEET) node->links.meet_sent_ms = now_ms;
    election_link_opened(cluster, node);
    say_debug(cluster, "Connecting with Node %.40s at %s:%u", node->id.text, node->address, node->bus_port);
}

void cluster_link_closed(struct cluster *cluster, struct cluster_link *link, bool refused, int64_t now_ms) {
    cluster->now_ms = now_ms;
    struct cluster_node *node = link->node;
    bool dialled = !link->inbound;
    struct cluster_link closed = *link;
    say_freed(cluster, link);
    link_free(cluster, link);
    if (dialled) fast_failover_link_closed(cluster, node, &closed, refused);
}

void cluster_link_heard(struct cluster *cluster, struct cluster_link *link, int64_t now_ms) {
    if (link->node) link->node->beat->data_received_ms = now_ms;
}

/* Dials the nodes without a link: each after a twentieth of the node timeout since its last attempt, but at most a
 * second; and `budget` of them earlier. */
void reconnect_tick(struct cluster *cluster) {
    enum { PAUSE_MAX_MS = 1000 };
    int64_t now = cluster->now_ms, timeout = cluster->settings.node_timeout_ms;
    int64_t pause = timeout / 20 < PAUSE_MAX_MS ? timeout / 20 : PAUSE_MAX_MS;
    int64_t budget = (int64_t)cluster->nodes.count * CLUSTER_TICK_MS / max_i64(timeout / 2, 1) * 10;
    for (size_t i = 0; i < cluster->nodes.count;) {
        struct node_heartbeat *beat = &cluster->nodes.beats[i];
        if (beat->usual && !beat->ping_sent_ms) {
            i++;
            continue;
        }
        struct cluster_node *node = cluster->nodes.list[i];
        if (node_in_handshake(node) && now - node->created_ms > handshake_timeout(cluster)) {
            say_warning(cluster, "Clusterbus handshake timeout %s:%u", node->address, node->bus_port);
            node_delete(cluster, node); /* another node is at this index now */
            continue;
        }
        i++;
        if (node->flags & (NODE_MYSELF | NODE_NOADDR) || cluster->settings.no_reconnection) continue;
        struct cluster_link *link = node->link;
        /* Nothing arrives on this link: the ping or its reply was dropped, though the other link may work. */
        int64_t unanswered = beat->ping_sent_ms ? now - beat->ping_sent_ms : 0;
        if (unanswered > timeout / 2 && link && now - link->created_ms > timeout &&
            (now - beat->data_received_ms > timeout / 2 || unanswered > timeout))
            link_close(cluster, link);
        if (node->link) continue;
        if (node->links.dialled_ms && now - node->links.dialled_ms < pause && !fast_failover_dials(cluster, node) &&
            budget-- <= 0)
            continue;
        node->links.dialled_ms = now;
        if (!beat->ping_sent_ms) beat->ping_sent_ms = now; /* an attempt to connect is a ping without a reply */
        node->link = link_new(cluster, node);
        cluster->effects->dial(cluster->context, node->link);
    }
}

void address_set(struct cluster *cluster, struct cluster_node *node, const char *address, uint16_t port,
                 uint16_t other_port, uint16_t bus_port) {
    bool tls = cluster->settings.tls, known = node->created_ms != cluster->now_ms;
    snprintf(node->address, sizeof node->address, "%s", address);
    node->port = tls ? other_port : port;
    node->tls_port = tls ? port : other_port;
    node->bus_port = bus_port;
    if (known) cluster->joining.moved_ms = cluster->now_ms;
    node->news_ms = cluster->joining.news_ms = cluster->now_ms;
    if (node_in_handshake(node))
        changed_view(cluster);
    else
        changed_table(cluster);
    if (node == cluster->myself->primary) cluster->effects->follow(cluster->context, node, true);
}

bool address_update(struct cluster *cluster, struct cluster_node *node, const struct cluster_link *link,
                    const struct bus_header *header) {
    const char *address = header->address[0] ? header->address : link->peer;
    uint16_t port = cluster->settings.tls ? node->tls_port : node->port;
    uint16_t other_port = cluster->settings.tls ? node->port : node->tls_port;
    bool same_bus = strcmp(node->address, address) == 0 && node->bus_port == header->bus_port;
    if (same_bus && port == header->port && other_port == header->other_port) return false;
    /* A node that is known by MEET tells its other ports later: its link is good. */
    if (!same_bus && node->link && node->link != link) link_close(cluster, node->link);
    node->flags &= ~(unsigned)NODE_NOADDR;
    node_update(node);
    address_set(cluster, node, address, header->port, header->other_port, header->bus_port);
    say_notice(cluster, "Address updated for node " NODE_FORMAT ", now %s:%u", NODE_TEXT(node), node->address,
               header->port);
    return true;
}

bool myself_take_address(struct cluster *cluster, const char *address) {
    struct cluster_node *myself = cluster->myself;
    if (!address[0] || strcmp(myself->address, address) == 0) return false;
    snprintf(myself->address, sizeof myself->address, "%s", address);
    changed_table(cluster);
    return true;
}

/* Returns the new node, or the one of a handshake with this address in progress; NULL: too many. */
static struct cluster_node *handshake_start(struct cluster *cluster, const char *address, uint16_t port,
                                            uint16_t other_port, uint16_t bus_port, unsigned flags) {
    for (size_t i = 0; cluster->joining.handshakes > 0 && i < cluster->nodes.count; i++) {
        struct cluster_node *node = cluster->nodes.list[i];
        if (node_in_handshake(node) && node->bus_port == bus_port && strcmp(node->address, address) == 0) return node;
    }
    if (cluster->joining.handshakes >= CLUSTER_HANDSHAKES_MAX) return NULL;
    struct node_id id;
    random_id(cluster, &id);
    struct cluster_node *node = node_new(&id, flags | NODE_HANDSHAKE, cluster->now_ms);
    random_id(cluster, &node->shard);
    cluster->joining.handshakes++;
    nodes_add(&cluster->nodes, node);
    address_set(cluster, node, address, port, other_port, bus_port);
    return node;
}

void handshake_receive_meet(struct cluster *cluster, struct cluster_link *link, const struct bus_message *message) {
    const struct bus_header *header = &message->header;
    const char *address = header->address[0] ? header->address : link->peer;
    if (!header->bus_port) return;
    struct cluster_node *node =
        handshake_start(cluster, address, header->port, header->other_port, header->bus_port, 0);
    if (!node || link->node == node) return;
    if (node->inbound) link_close(cluster, node->inbound);
    if (link->node && link->node->inbound == link) {
        link->node->inbound = NULL;
        node_update(link->node);
    }
    link->node = node;
    node->inbound = link;
    node_update(node);
    say_bound(cluster, link);
}

void say_met(struct cluster *cluster, const struct cluster_node *node) {
    say_notice(cluster, "Successfully completed handshake with " NODE_FORMAT, NODE_TEXT(node));
}

bool handshake_check_identity(struct cluster *cluster, struct cluster_link *link, struct cluster_node **sender,
                              const struct bus_message *message) {
    const struct bus_header *header = &message->header;
    struct cluster_node *node = link->node;
    if (node_in_handshake(node)) {
        if (*sender) {
            say_verbose(cluster, "Handshake: we already know node " NODE_FORMAT ", updating the address if needed.",
                        NODE_TEXT(*sender));
            if (*sender != cluster->myself) address_update(cluster, *sender, link, header);
            node_delete(cluster, node);
            return false;
        }
        /* Also after CLUSTER MEET: FORGET lasts for cluster-blacklist-ttl. */
        if (node_is_forgotten(cluster, &header->sender)) {
            node_delete(cluster, node);
            return false;
        }
        bool met = node->flags & NODE_MEET;
        say_debug(cluster, "Renaming node " NODE_FORMAT " into %.40s", NODE_TEXT(node), header->sender.text);
        nodes_rename(&cluster->nodes, node, &header->sender);
        node->flags &= ~(unsigned)(NODE_HANDSHAKE | NODE_MEET);
        node->flags |= node_id_is_zero(&header->primary) ? NODE_PRIMARY : NODE_REPLICA;
        node_update(node);
        node->news_ms = cluster->joining.news_ms = cluster->now_ms;
        must(cluster->joining.handshakes > 0);
        cluster->joining.handshakes--;
        say_debug(cluster, "Handshake with node " NODE_FORMAT " completed.", NODE_TEXT(node));
        if (met) say_met(cluster, node);
        changed_table(cluster);
        *sender = node;
    } else if (!node_id_equal(&node->id, &header->sender)) {
        say_notice(cluster,
                   "PONG contains mismatching sender ID. About node " NODE_FORMAT
                   " in shard %.40s added %lld ms ago, having flags %u",
                   NODE_TEXT(node), SHARD_TEXT(node), (long long)(cluster->now_ms - node->created_ms), node->flags);
        link_close(cluster, link);
        node->flags |= NODE_NOADDR;
        node_update(node);
        node->address[0] = 0;
        node->port = node->tls_port = node->bus_port = 0;
        changed_table(cluster);
        if (!node_failed(node)) {
            failure_set(cluster, node);
            send_fail(cluster, node);
        }
        return false;
    }
    return true;
}

bool node_is_forgotten(struct cluster *cluster, const struct node_id *id) {
    bool found = false;
    for (size_t i = 0; i < cluster->joining.forgotten_count;) {
        struct forgotten_node *forgotten = &cluster->joining.forgotten[i];
        if (forgotten->until_ms <= cluster->now_ms) {
            *forgotten = cluster->joining.forgotten[--cluster->joining.forgotten_count];
            continue;
        }
        found |= node_id_equal(&forgotten->id, id);
        i++;
    }
    return found;
}

void node_forget(struct cluster *cluster, const struct node_id *id, int64_t ttl_s) {
    if (node_is_forgotten(cluster, id)) return;
    struct forgotten_node *forgotten = &cluster->joining.forgotten[0];
    if (cluster->joining.forgotten_count < CLUSTER_FORGOTTEN_MAX) {
        forgotten = &cluster->joining.forgotten[cluster->joining.forgotten_count++];
    } else { /* the entry that would end first */
        for (size_t i = 1; i < cluster->joining.forgotten_count; i++)
            if (cluster->joining.forgotten[i].until_ms < forgotten->until_ms)
                forgotten = &cluster->joining.forgotten[i];
    }
    *forgotten = (struct forgotten_node){*id, cluster->now_ms + ttl_s * 1000};
}

const char *cluster_meet(struct cluster *cluster, const char *address, uint16_t port, uint16_t bus_port,
                         const char *who, int64_t now_ms) {
    cluster->now_ms = now_ms;
    if (!handshake_start(cluster, address, port, 0, bus_port, NODE_MEET)) return "Too many handshakes are in progress";
    say_notice(cluster, "Cluster meet %s:%u (%s).", address, port, who);
    return NULL;
}

const char *cluster_forget(struct cluster *cluster, const struct node_id *id, const char *who, int64_t now_ms) {
    cluster->now_ms = now_ms;
    struct cluster_node *node = nodes_find(&cluster->nodes, id);
    if (!node) {
        if (node_is_forgotten(cluster, id)) return NULL;
        snprintf(cluster->error, sizeof cluster->error, "Unknown node %.40s", id->text);
        return cluster->error;
    }
    if (node == cluster->myself) return "I tried hard but I can't forget myself...";
    if (node == cluster->myself->primary) return "Can't forget my master!";
    say_notice(cluster, "Cluster forget %.40s (%s).", id->text, who);
    node_forget(cluster, id, cluster->settings.blacklist_ttl_s);
    node_delete(cluster, node);
    return NULL;
}

const char *cluster_reset(struct cluster *cluster, bool hard, const char *who, int64_t now_ms) {
    cluster->now_ms = now_ms;
    struct cluster_node *myself = cluster->myself;
    struct cluster_facts facts;
    cluster->effects->facts(cluster->context, &facts);
    if (node_is_primary(myself) && facts.has_keys)
        return "CLUSTER RESET can't be called with master nodes containing keys";
    say_notice(cluster, "Cluster reset (%s).", who);
    if (hard) {
        cluster->current_epoch = cluster->last_vote_epoch = myself->config_epoch = 0;
        say_notice(cluster, "configEpoch set to 0 via CLUSTER RESET HARD");
        struct node_id id;
        random_id(cluster, &id);
        nodes_rename(&cluster->nodes, myself, &id);
        say_notice(cluster, "Node hard reset, now I'm %.40s", myself->id.text);
    }
    move_to_new_shard(cluster);
    if (node_is_replica(myself)) {
        node_set_role_primary(cluster, myself);
        cluster->effects->lead(cluster->context, false);
        cluster->effects->drop_data(cluster->context);
    }
    election_reset(cluster);
    manual_reset(cluster);
    slots_close_all(&cluster->slots);
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (cluster->slots.owner[slot]) slot_assign(cluster, slot, NULL);
    for (size_t i = 0; i < cluster->nodes.count;) {
        struct cluster_node *node = cluster->nodes.list[i];
        if (node == myself)
            i++;
        else
            node_delete(cluster, node);
    }
    changed_self(cluster);
    todo(cluster, TODO_STATE);
    return NULL;
}
