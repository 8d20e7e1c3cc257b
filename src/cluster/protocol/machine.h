/* machine.h: what the files of the state machine use of each other, the lowest first. See cluster.h. */
#pragma once
#include "cluster/protocol/cluster.h"

/* Work for cluster_flush(), in this order. */
enum cluster_todo {
    TODO_STATE = 1,
    TODO_FAILOVER = 2,
    TODO_MANUAL_FAILOVER = 4,
    TODO_BROADCAST = 8,
    TODO_TELL_VOTERS = 16, /* of nodes that this voter cannot reach since this turn */
};
enum cluster_unsaved {
    UNSAVED_TABLE = 1, /* about others: may be lost */
    UNSAVED_SELF = 2   /* epochs, vote, identity, role, own slots: no message leaves before it is saved */
};

/* core.c */
void say(struct cluster *cluster, enum log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define say_notice(cluster, ...)  say((cluster), LOG_LEVEL_NOTICE, __VA_ARGS__)
#define say_verbose(cluster, ...) say((cluster), LOG_LEVEL_VERBOSE, __VA_ARGS__)
#define say_debug(cluster, ...)   say((cluster), LOG_LEVEL_DEBUG, __VA_ARGS__)
#define say_warning(cluster, ...) say((cluster), LOG_LEVEL_WARNING, __VA_ARGS__)
/* "<id> (<name>)" of a node in a log line. */
#define NODE_FORMAT          "%.40s (%s)"
#define NODE_TEXT(node)      (node)->id.text, node_name(node)
#define SHARD_TEXT(node)     (node)->shard.text
#define LINK_ID(link)        ((link)->node ? (link)->node->id.text : "<unknown>")
#define LINK_NAME(link)      ((link)->node ? node_name((link)->node) : "<unknown>")
#define LINK_DIRECTION(link) ((link)->inbound ? "inbound" : "outbound")
void say_bound(struct cluster *cluster, const struct cluster_link *link);
void changed_self(struct cluster *cluster);  /* saved before the next message leaves */
void changed_table(struct cluster *cluster); /* saved at the next flush */
void changed_view(struct cluster *cluster);  /* nothing to save */
void todo(struct cluster *cluster, unsigned work);
void save(struct cluster *cluster, bool durable);
void random_id(struct cluster *cluster, struct node_id *id);
void election_reset(struct cluster *cluster);
void manual_reset(struct cluster *cluster);
static inline uint64_t random_under(struct cluster *cluster, uint64_t bound) {
    return cluster->effects->random(cluster->context) % bound;
}
static inline int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}
/* A time of this machine as the other nodes and nodes.conf have it, and back; 0: never. */
static inline int64_t wall_ahead(const struct cluster *cluster) {
    return cluster->effects->wall_ahead_ms ? cluster->effects->wall_ahead_ms(cluster->context) : 0;
}
static inline int64_t time_to_wall(const struct cluster *cluster, int64_t time_ms) {
    return time_ms ? time_ms + wall_ahead(cluster) : 0;
}
static inline int64_t time_of_wall(const struct cluster *cluster, int64_t wall_ms) {
    int64_t time_ms = wall_ms - wall_ahead(cluster);
    return wall_ms && time_ms > 0 ? time_ms : 0;
}
static inline int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline unsigned quorum(const struct cluster *cluster) {
    return cluster->size / 2 + 1;
}

/* send.c */
void message_begin(struct cluster *cluster, struct bus_message *message, unsigned type);
void send_message(struct cluster *cluster, struct cluster_link *link, const struct bus_message *message);
void send_to_all(struct cluster *cluster, const struct bus_message *message);
void send_fail(struct cluster *cluster, const struct cluster_node *node);
void send_update(struct cluster *cluster, const struct cluster_node *to, const struct cluster_node *about); /* logs */

/* repeat.c */
bool repeat_is_possible(struct cluster *cluster, const struct cluster_link *link, const struct bus_message *message);
/* A whole header. */
void repeat_sent(struct cluster *cluster, struct cluster_link *link, const struct bus_message *message);
void repeat_received(struct cluster *cluster, struct cluster_link *link, const struct bus_header *header);
void repeat_forget(struct cluster *cluster, struct cluster_link *link);
bool repeat_expand(const struct cluster_link *link,
                   struct bus_header *header); /* false: it repeats an unknown header */
/* The link's last whole header, and its slots, stay until they are released, also if the link is closed. */
void repeat_hold(struct cluster *cluster, const struct cluster_link *link);
void repeat_release(struct cluster *cluster);
/* Whether the slots of the message that is being received are those that `claimant` has. Most messages repeat slots
 * that are known to be: then it need not read them. */
bool repeat_slots_are_of(struct cluster *cluster, const struct slot_bitmap *slots, const struct cluster_node *claimant);

/* ping.c */
void send_ping(struct cluster *cluster, struct cluster_link *link, unsigned type); /* PING, PONG or MEET */
void broadcast_pong(struct cluster *cluster, bool only_shard_replicas);
/* Whether a node was added, or has moved, within this time, and `receiver` may not know it. */
bool ping_has_news(struct cluster *cluster, const struct cluster_node *receiver, int64_t within_ms);

/* ownership.c */
void node_set_role_primary(struct cluster *cluster, struct cluster_node *node);
void move_to_new_shard(struct cluster *cluster); /* myself */
void node_move_to_shard(struct cluster *cluster, struct cluster_node *node, const struct node_id *shard);
bool slot_arrives(const struct cluster *cluster, unsigned slot); /* struct cluster_effects */
bool slot_leaves(const struct cluster *cluster, unsigned slot);
unsigned node_drop_slots(struct cluster *cluster, struct cluster_node *node);
void slot_assign(struct cluster *cluster, unsigned slot, struct cluster_node *owner);
uint64_t max_config_epoch(const struct cluster *cluster);
void raise_epoch(struct cluster *cluster); /* above all that are known */
bool bump_epoch_without_consensus(struct cluster *cluster);
bool epoch_stays(const struct cluster *cluster); /* struct cluster_effects */
void node_change_primary(struct cluster *cluster, struct cluster_node *node,
                         struct cluster_node *primary); /* NULL: none */

/* failure.c */
void failure_tick(struct cluster *cluster);
void failure_mark_if_quorum(struct cluster *cluster, struct cluster_node *node);
void failure_set(struct cluster *cluster, struct cluster_node *node);
void failure_clear_if_possible(struct cluster *cluster, struct cluster_node *node);
void failure_primary_changed(struct cluster *cluster); /* recomputes NODE_PRIMARY_FAILED of myself */
void state_update(struct cluster *cluster);

void failure_tell_voters(struct cluster *cluster);
bool failure_suspect(struct cluster *cluster, struct cluster_node *node);      /* sets PFAIL; false: it was set */
void failure_forget(struct cluster *cluster, const struct cluster_node *node); /* which is deleted */

/* fast_failover.c */
bool fast_failover_dials(const struct cluster *cluster, const struct cluster_node *node);
void fast_failover_link_closed(struct cluster *cluster, struct cluster_node *node, const struct cluster_link *link,
                               bool refused);
void fast_failover_link_connected(struct cluster_node *node);

/* election.c */
bool election_is_of_shard(struct cluster *cluster); /* the servers of a shard elect, too: synchronous replication */
bool election_is_without_mandate(struct cluster *cluster); /* its shard has to elect it, and has not */
void election_handle(struct cluster *cluster);
/* One of the two links with this node is new: while the other one was missing, a request or its vote got lost. */
void election_link_opened(struct cluster *cluster, struct cluster_node *node);
void election_receive_request(struct cluster *cluster, struct cluster_node *sender, const struct bus_message *message);
void election_receive_vote(struct cluster *cluster, struct cluster_node *sender, const struct bus_message *message);
void election_see_epoch(struct cluster *cluster, const struct cluster_node *claimant);
void take_over_primary(struct cluster *cluster);

/* manual_failover.c */
void manual_tick(struct cluster *cluster);
void manual_handle(struct cluster *cluster);
void manual_receive_start(struct cluster *cluster, struct cluster_node *sender);

/* topology.c */
void topology_process(struct cluster *cluster, struct cluster_node *sender, const struct bus_message *message);
void topology_receive_update(struct cluster *cluster, struct cluster_node *sender, const struct bus_message *message);
void follow_node(struct cluster *cluster, struct cluster_node *primary);
void topology_strays_tick(struct cluster *cluster);
void topology_guard(struct cluster *cluster); /* a replica of a replica follows the primary */

/* handshake.c */
void node_delete(struct cluster *cluster, struct cluster_node *node); /* with all that refers to it */
void link_close(struct cluster *cluster, struct cluster_link *link);  /* tells the host, and frees it */
int64_t handshake_timeout(const struct cluster *cluster);
void reconnect_tick(struct cluster *cluster);
void handshake_receive_meet(struct cluster *cluster, struct cluster_link *link, const struct bus_message *message);
void say_met(struct cluster *cluster, const struct cluster_node *node);
/* A reply on a link that we dialled. False: the message is used up. */
bool handshake_check_identity(struct cluster *cluster, struct cluster_link *link, struct cluster_node **sender,
                              const struct bus_message *message);
bool address_update(struct cluster *cluster, struct cluster_node *node, const struct cluster_link *link,
                    const struct bus_header *header);
void address_set(struct cluster *cluster, struct cluster_node *node, const char *address, uint16_t port,
                 uint16_t other_port, uint16_t bus_port);
bool node_is_forgotten(struct cluster *cluster, const struct node_id *id);
void node_forget(struct cluster *cluster, const struct node_id *id, int64_t ttl_s);
bool myself_take_address(struct cluster *cluster, const char *address); /* true: it is another one */

/* gossip.c */
void gossip_process(struct cluster *cluster, struct cluster_node *sender, const struct bus_message *message);
void extensions_process(struct cluster *cluster, struct cluster_node *sender, const struct bus_message *message);
void gossip_tick(struct cluster *cluster);

/* replica_migration.c */
void replica_migration_tick(struct cluster *cluster);
