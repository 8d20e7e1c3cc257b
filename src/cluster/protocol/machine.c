/* machine.c: the main inputs of the state machine. See cluster.h. */
#include "cluster/protocol/machine.h"
#include "lib/system/memory.h"
#include <stdio.h>

enum {
    SAVE_MS_PER_NODE = 4,
    SAVE_MS_MAX = 1000
}; /* between two files that differ only in what this node knows of others */

static void machine_announce(struct cluster *cluster) {
    struct cluster_node *myself = cluster->myself;
    const struct cluster_settings *settings = &cluster->settings;
    bool changed = node_set_text(&myself->announced.hostname, slice_of(settings->hostname));
    changed |= node_set_text(&myself->announced.nodename, slice_of(settings->nodename));
    changed |= node_set_text(&myself->announced.client_ipv4, slice_of(settings->client_ipv4));
    changed |= node_set_text(&myself->announced.client_ipv6, slice_of(settings->client_ipv6));
    changed |= node_set_text(&myself->announced.availability_zone, slice_of(settings->availability_zone));
    changed |= myself->port != settings->port || myself->tls_port != settings->tls_port ||
               myself->bus_port != settings->bus_port || myself->announced.client_port != settings->client_port ||
               myself->announced.client_tls_port != settings->client_tls_port ||
               myself->rdma_port != settings->rdma_port || myself->client_rdma_port != settings->client_rdma_port;
    myself->port = settings->port;
    myself->tls_port = settings->tls_port;
    myself->bus_port = settings->bus_port;
    myself->announced.client_port = settings->client_port;
    myself->announced.client_tls_port = settings->client_tls_port;
    myself->rdma_port = settings->rdma_port;
    myself->client_rdma_port = settings->client_rdma_port;
    myself->features = OWN_FEATURE_BRIEF | OWN_FEATURE_SLOT_CHUNKS | OWN_FEATURE_SLOT_OUTCOME;
    if (settings->fast_failover) myself->features |= OWN_FEATURE_FAST_FAILOVER;
    unsigned flags = myself->flags & ~(unsigned)NODE_NOFAILOVER;
    if (settings->replica_no_failover) flags |= NODE_NOFAILOVER;
    if (flags != myself->flags) {
        myself->flags = flags;
        changed = true;
    }
    if (changed) changed_table(cluster);
    if (settings->address[0]) {
        myself_take_address(cluster, settings->address);
    } else if (cluster->address_announced) { /* the next message of a peer shows which address it uses */
        myself->address[0] = 0;
        changed_table(cluster);
    }
    cluster->address_announced = settings->address[0];
}

struct cluster *cluster_new(const struct cluster_settings *settings, const struct cluster_effects *effects,
                            void *context, int64_t now_ms) {
    struct cluster *cluster = mem_calloc(1, sizeof *cluster);
    cluster->settings = *settings;
    cluster->effects = effects;
    cluster->context = context;
    cluster->now_ms = now_ms;
    nodes_init(&cluster->nodes);
    struct node_id id;
    random_id(cluster, &id);
    /* EXTENSIONS and the light headers tell what this version can read. */
    unsigned flags = NODE_MYSELF | NODE_PRIMARY | NODE_EXTENSIONS | NODE_LIGHT_PUBLISH | NODE_LIGHT_MODULE;
    cluster->myself = node_new(&id, flags, now_ms);
    random_id(cluster, &cluster->myself->shard);
    nodes_add(&cluster->nodes, cluster->myself);
    cluster->joining.forgotten = mem_calloc(CLUSTER_FORGOTTEN_MAX, sizeof *cluster->joining.forgotten);
    cluster->scratch.forgotten = mem_calloc(CLUSTER_FORGOTTEN_MAX, sizeof *cluster->scratch.forgotten);
    machine_announce(cluster);
    changed_self(cluster);
    todo(cluster, TODO_STATE);
    return cluster;
}

void cluster_free(struct cluster *cluster) {
    for (struct cluster_link *link = cluster->links, *next; link; link = next) {
        next = link->next;
        repeat_forget(cluster, link);
        mem_free(link);
    }
    hashtable_free(cluster->repeats.slots);
    nodes_free(&cluster->nodes);
    slots_free(&cluster->slots);
    mem_free(cluster->joining.forgotten);
    mem_free(cluster->scratch.forgotten);
    mem_free(cluster->failures.suspects);
    mem_free(cluster->scratch.gossip);
    mem_free(cluster->scratch.brief);
    mem_free(cluster);
}

void cluster_configure(struct cluster *cluster, const struct cluster_settings *settings, int64_t now_ms) {
    cluster->now_ms = now_ms;
    cluster->settings = *settings;
    machine_announce(cluster);
    todo(cluster, TODO_STATE); /* full coverage */
}

/* Notes what is in each header of a known node. */
static void read_header(struct cluster *cluster, struct cluster_link *link, struct cluster_node *sender,
                        const struct bus_header *header) {
    sender->beat->data_received_ms = cluster->now_ms;
    const unsigned told =
        NODE_NOFAILOVER | NODE_EXTENSIONS | NODE_LIGHT_PUBLISH | NODE_LIGHT_MODULE | NODE_PRIMARY_FAILED;
    if ((sender->flags ^ header->flags) & NODE_NOFAILOVER) changed_view(cluster);
    unsigned flags = (sender->flags & ~told) | (header->flags & told);
    if (header->message_flags & BUS_EXTENSION_DATA) {
        flags |= NODE_EXTENSIONS;
        if (!link->extensions) link->extensions = true;
    }
    struct own_fields own;
    own_fields_read(header->reserved, &own);
    /* A store that changes nothing costs a line of the CPU's cache. */
    if (sender->flags != flags) sender->flags = flags;
    if (sender->features != own.features) sender->features = own.features;
    if (sender->members != own.members) sender->members = own.members;
    if (sender->rdma_port != own.rdma_port || sender->client_rdma_port != own.client_rdma_port) {
        sender->rdma_port = own.rdma_port;
        sender->client_rdma_port = own.client_rdma_port;
        changed_view(cluster);
    }
    if (header->current_epoch > cluster->current_epoch) {
        cluster->current_epoch = header->current_epoch;
        changed_self(cluster);
    }
    bool claims_primary = node_id_is_zero(&header->primary);
    if (claims_primary && header->config_epoch > sender->config_epoch) {
        sender->config_epoch = header->config_epoch;
        changed_table(cluster);
        election_see_epoch(cluster, sender);
    }
    /* A sibling whose offset becomes known may be shown by CLUSTER SLOTS from now on. */
    if ((sender->beat->offset == 0) != (header->offset == 0)) changed_view(cluster);
    sender->beat->offset = header->offset;
    struct manual_failover *manual = &cluster->manual;
    /* The first one may belong to an earlier pause, from the other link. The largest belongs to the present pause. */
    bool newer = !manual->offset_known || (!manual->can_start && header->offset > manual->offset);
    if (manual->end_ms && newer && sender == cluster->myself->primary && header->message_flags & BUS_PAUSED) {
        manual->offset = header->offset;
        manual->offset_known = true;
        say_notice(cluster, "Received replication offset for paused primary manual failover: %lld",
                   (long long)manual->offset);
        todo(cluster, TODO_MANUAL_FAILOVER);
    }
}

static void say_received(struct cluster *cluster, const struct cluster_link *link, unsigned type) {
    say_debug(cluster, "%s packet received from: %.40s (%s) from client: %s:%u", bus_type_name(type), LINK_ID(link),
              LINK_NAME(link), link->peer, link->peer_port);
}

static void bind_inbound(struct cluster *cluster, struct cluster_link *link, struct cluster_node *node) {
    if (!link->inbound || link->node == node) return;
    if (link->node && link->node->inbound == link) {
        link->node->inbound = NULL;
        link->node->links.inbound_missing_ms = cluster->now_ms;
        node_update(link->node);
    }
    /* An old link may live on unnoticed after its peer has crashed; the new one proves that it is dead. */
    if (node->inbound) link_close(cluster, node->inbound);
    link->node = node;
    node->inbound = link;
    node_update(node);
    say_bound(cluster, link);
    election_link_opened(cluster, node);
}

static void receive_light(struct cluster *cluster, struct cluster_link *link, const struct bus_message *message) {
    if (!link->node || node_in_handshake(link->node)) {
        say_notice(cluster,
                   "Closing link for node %.40s that sent a lightweight message of type %s as its first message on "
                   "the link",
                   link->node ? link->node->id.text : "<unknown>", bus_type_name(message->header.type));
        link_close(cluster, link);
        return;
    }
    link->node->beat->data_received_ms = cluster->now_ms;
    if (message->header.type == BUS_MODULE)
        cluster->effects->module_message(cluster->context, link->node, message);
    else
        cluster->effects->publish(cluster->context, message->channel, message->message,
                                  message->header.type == BUS_PUBLISHSHARD);
}

static void receive_ping(struct cluster *cluster, struct cluster_link *link, struct cluster_node *sender,
                         const struct bus_message *message) {
    const struct bus_header *header = &message->header;
    if (header->type != BUS_PONG) {
        /* A MEET tells this node under which address others reach it. */
        if ((header->type == BUS_MEET || !cluster->myself->address[0]) && !cluster->settings.address[0] &&
            myself_take_address(cluster, link->local))
            say_notice(cluster, "IP address for this node updated to %s", link->local);
        if (header->type == BUS_MEET && link->inbound) {
            if (!sender) {
                handshake_receive_meet(cluster, link, message);
                /* A node that knows no other node hears of the cluster even if the handshake fails. */
                bool alone = cluster->nodes.count == 1 + cluster->joining.handshakes;
                if (alone && link->node) gossip_process(cluster, link->node, message);
            }
            if (sender && sender != cluster->myself && sender->link &&
                cluster->now_ms - sender->created_ms > handshake_timeout(cluster)) {
                say_notice(cluster,
                           "Freeing outbound link to node " NODE_FORMAT
                           " after receiving a MEET packet from this known node",
                           NODE_TEXT(sender));
                link_close(cluster, sender->link);
            }
        }
        say_received(cluster, link, header->type);
        send_ping(cluster, link, BUS_PONG);
    } else {
        say_received(cluster, link, header->type);
    }
    if (!link->inbound && link->node) {
        bool known = sender != NULL;
        if (!handshake_check_identity(cluster, link, &sender, message)) return;
        if (sender && !known) read_header(cluster, link, sender, header);
    }
    if (!sender || sender == cluster->myself) return;
    if (header->type == BUS_PING && link->inbound) address_update(cluster, sender, link, header);
    if (header->type == BUS_PONG && !link->inbound && link->node == sender) {
        sender->beat->pong_received_ms = cluster->now_ms;
        sender->beat->ping_sent_ms = 0;
        if (!link->answered) link->answered = true;
        if (sender->met_again) {
            say_met(cluster, sender);
            sender->met_again = false;
        }
        if (node_maybe_failed(sender)) {
            sender->flags &= ~(unsigned)NODE_PFAIL;
            node_update(sender);
            changed_table(cluster);
            todo(cluster, TODO_STATE);
        } else if (node_failed(sender)) {
            failure_clear_if_possible(cluster, sender);
        }
    }
    topology_process(cluster, sender, message);
    gossip_process(cluster, sender, message);
    extensions_process(cluster, sender, message);
}

static void receive_whole(struct cluster *cluster, struct cluster_link *link, const struct bus_message *message) {
    const struct bus_header *header = &message->header;
    struct cluster_node *sender = link->node;
    if (!sender || !node_id_equal(&sender->id, &header->sender)) sender = nodes_find(&cluster->nodes, &header->sender);
    if (sender && node_in_handshake(sender)) sender = NULL;
    if (sender && sender != cluster->myself) {
        bind_inbound(cluster, link, sender);
        read_header(cluster, link, sender, header);
    } else if (header->message_flags & BUS_EXTENSION_DATA) {
        link->extensions = true;
    }
    if (header->type <= BUS_MEET) { /* PING, PONG, MEET */
        receive_ping(cluster, link, sender, message);
        return;
    }
    say_received(cluster, link, header->type);
    if (!sender || sender == cluster->myself) return;
    switch (header->type) {
    case BUS_FAIL: {
        struct cluster_node *failing = nodes_find(&cluster->nodes, &message->node);
        if (!failing) {
            say_notice(cluster, "Ignoring FAIL message from unknown node %.40s about %.40s", header->sender.text,
                       message->node.text);
        } else if (!(failing->flags & (NODE_FAIL | NODE_MYSELF | NODE_HANDSHAKE))) {
            say_notice(cluster, "FAIL message received from " NODE_FORMAT " about " NODE_FORMAT, NODE_TEXT(sender),
                       NODE_TEXT(failing));
            failure_set(cluster, failing);
        }
        break;
    }
    case BUS_PUBLISH:
    case BUS_PUBLISHSHARD:
        cluster->effects->publish(cluster->context, message->channel, message->message,
                                  header->type == BUS_PUBLISHSHARD);
        break;
    case BUS_AUTH_REQUEST: election_receive_request(cluster, sender, message); break;
    case BUS_AUTH_ACK: election_receive_vote(cluster, sender, message); break;
    case BUS_UPDATE: topology_receive_update(cluster, sender, message); break;
    case BUS_MFSTART: manual_receive_start(cluster, sender); break;
    case BUS_MODULE: cluster->effects->module_message(cluster->context, sender, message); break;
    }
}

void cluster_receive(struct cluster *cluster, struct cluster_link *link, const struct bus_message *message,
                     int64_t now_ms) {
    cluster->now_ms = now_ms;
    if (link->node) link->node->beat->data_received_ms = now_ms;
    if (message->header.light) {
        receive_light(cluster, link, message);
    } else if (message->header.brief) {
        struct bus_message whole = *message;
        if (repeat_expand(link, &whole.header)) {
            repeat_hold(cluster, link);
            receive_whole(cluster, link, &whole);
            repeat_release(cluster);
            return;
        }
        say_notice(cluster, "Closing link for node %.40s that repeats a header which has not arrived",
                   link->node ? link->node->id.text : "<unknown>");
        link_close(cluster, link);
    } else {
        if (message->header.type <= BUS_MEET) {
            repeat_received(cluster, link, &message->header);
            repeat_hold(cluster, link);
        }
        receive_whole(cluster, link, message);
        repeat_release(cluster);
    }
}

void cluster_link_dropped(struct cluster *cluster, struct cluster_link *link, const struct bus_message *message) {
    const struct bus_header *header = &message->header;
    if (!header->light && !header->brief && header->type <= BUS_MEET) repeat_received(cluster, link, header);
}

void cluster_tick(struct cluster *cluster, int64_t now_ms) {
    cluster->now_ms = now_ms;
    cluster->ticks++;
    reconnect_tick(cluster);
    gossip_tick(cluster);
    failure_tick(cluster);
    manual_tick(cluster);
    if (node_is_replica(cluster->myself)) {
        manual_handle(cluster);
        if (!(cluster->todo & TODO_FAILOVER)) election_handle(cluster);
        replica_migration_tick(cluster);
    }
    topology_strays_tick(cluster);
    if (!cluster->ok || cluster->failures.state_since_ms == 0) todo(cluster, TODO_STATE);
}

void cluster_flush(struct cluster *cluster, int64_t now_ms) {
    cluster->now_ms = now_ms;
    /* The order matters: the new state may win an election, which must be on disk before a message tells it. */
    unsigned work = cluster->todo;
    cluster->todo = 0;
    if (node_is_replica(cluster->myself)) topology_guard(cluster);
    if (work & TODO_STATE) state_update(cluster);
    if (work & TODO_MANUAL_FAILOVER) manual_handle(cluster);
    if ((work | cluster->todo) & TODO_FAILOVER) {
        cluster->todo &= ~(unsigned)TODO_FAILOVER;
        election_handle(cluster);
    }
    /* While a cluster forms, each message has news of other nodes. The longer the file, the less often it is written.
     */
    int64_t wait_ms = min_i64(max_i64(CLUSTER_TICK_MS, (int64_t)cluster->nodes.count * SAVE_MS_PER_NODE), SAVE_MS_MAX);
    bool later = cluster->unsaved == UNSAVED_TABLE && cluster->now_ms >= cluster->saved_ms &&
                 cluster->now_ms - cluster->saved_ms < wait_ms;
    if (cluster->unsaved && !later) save(cluster, cluster->unsaved & UNSAVED_SELF);
    if ((work | cluster->todo) & TODO_BROADCAST) {
        cluster->todo &= ~(unsigned)TODO_BROADCAST;
        broadcast_pong(cluster, false);
    }
    if ((work | cluster->todo) & TODO_TELL_VOTERS) {
        cluster->todo &= ~(unsigned)TODO_TELL_VOTERS;
        failure_tell_voters(cluster);
    }
}
