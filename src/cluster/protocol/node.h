/* node.h: the nodes that a cluster node knows.
 *
 * A node is found by its id; the table also has them in an array, in no order, for random choices. Nodes refer to each
 * other: a replica to its primary, a primary to its replicas, a failing node to those who reported it.
 * nodes_remove() clears all of these references but not those of other modules: use node_delete() of machine.h.
 *
 * A failure report says that a voting primary cannot reach a node. A node has at most one report of each reporter. */
#pragma once
#include "cluster/protocol/bus_wire.h"

struct cluster_link;

struct failure_report {
    struct cluster_node *reporter;
    int64_t at_s; /* Unix time in whole seconds: gossip repeats a report often, and its age matters little */
};

enum { NODE_NAME_MAX = 255 /* bytes of a text that a node announces: longer ones are cut */ };

/* What each message and each tick needs of a node. The table has them side by side: with a thousand nodes, most of
 * what a message or a tick costs is waiting for memory. */
struct node_heartbeat {
    char brief_id[BUS_BRIEF_ID_LEN];
    int64_t ping_sent_ms;     /* of the PING that has no reply yet, 0: none. It survives a reconnect */
    int64_t pong_received_ms; /* also advanced by gossip; 0: never */
    int64_t data_received_ms; /* last bytes on any of its links */
    uint64_t offset;          /* replication offset in its last message */
    /* The offset in its last message whose slots are those that this node believes it has, and the number of such
     * messages. A message that a newer one has overtaken has other slots. */
    uint64_t agreed_offset, agreed;
    uint64_t stamp; /* of the message that has taken this node into its gossip */
    bool connected; /* the link that we dialled */
    bool usual;     /* see node_update() */
};

/* What a node says of itself for clients and for people; NULL: nothing. Owned. gossip.c sets it. */
struct node_announcement {
    char *hostname, *nodename, *client_ipv4, *client_ipv6, *availability_zone;
    uint16_t client_port, client_tls_port;
};

/* The history of the two links with a node, for handshake.c and fast_failover.c. Times in ms; 0: never, or not now. */
struct node_links {
    int64_t inbound_missing_ms; /* since when it has no inbound link */
    int64_t meet_sent_ms;
    int64_t dialled_ms; /* last attempt to connect */
    int64_t lost_ms;    /* when a working link that we dialled broke; 0: we have one, or never had */
    unsigned refusals;  /* of our attempts to connect since then, without a break */
};

struct cluster_node {
    struct node_id id;            /* random during a handshake, until the node says its own */
    unsigned flags;               /* enum node_flag; node_update() after a change */
    uint16_t slot_count;          /* of `slots` */
    uint16_t report_count;        /* of `reports` */
    struct node_heartbeat *beat;  /* NULL: the node is in no table yet */
    int64_t news_ms;              /* when it was added, or its address changed: others may not know */
    struct cluster_link *link;    /* that we dialled; NULL: none. node_update() after a change of the links */
    struct cluster_link *inbound; /* that it dialled; NULL: none */

    /* What each message of the node is compared with */
    struct cluster_node *primary; /* of a replica; NULL if it is not known */
    uint64_t config_epoch;
    uint32_t features; /* enum own_feature (own_fields.h) */
    uint32_t members;  /* nodes_digest() of the nodes that it knows; 0: it does not tell */
    uint16_t rdma_port, client_rdma_port;
    bool shard_heard; /* else `shard` is random, or came from a replica of it */
    bool claim_heard; /* its slots are not only those of nodes.conf */
    bool met_again;   /* a MEET to this member has no reply yet */

    struct node_id shard;
    size_t index;     /* in nodes.list */
    size_t view_rank; /* the host's own: its place in a view */

    struct cluster_node **replicas; /* of a primary, by id */
    size_t replica_count;
    struct slot_bitmap *slots;                 /* NULL: none */
    unsigned slot_low, slot_end;               /* its slots are from slot_low on and below slot_end */
    unsigned migrating_count, importing_count; /* open slots of this server that name the node */

    char address[NODE_ADDRESS_MAX];    /* "": not known */
    uint16_t port, tls_port, bus_port; /* 0: it has none */
    struct node_announcement announced;
    char *unknown; /* values of its line in nodes.conf that this version does not know; NULL: none */

    /* In ms; 0: never, or not now. */
    int64_t created_ms;
    int64_t fail_ms;     /* when FAIL was set */
    int64_t orphaned_ms; /* since when a primary has no working replica */
    struct node_links links;

    uint64_t vote_epoch; /* of our election in which its vote was counted */

    struct failure_report *reports; /* report_count of them */
    size_t report_capacity;
};

static inline bool node_is_primary(const struct cluster_node *node) {
    return node->flags & NODE_PRIMARY;
}
static inline bool node_is_replica(const struct cluster_node *node) {
    return node->flags & NODE_REPLICA;
}
static inline bool node_in_handshake(const struct cluster_node *node) {
    return node->flags & NODE_HANDSHAKE;
}
static inline bool node_failed(const struct cluster_node *node) {
    return node->flags & NODE_FAIL;
}
static inline bool node_maybe_failed(const struct cluster_node *node) {
    return node->flags & NODE_PFAIL;
}
/* A primary with slots votes. */
static inline bool node_votes(const struct cluster_node *node) {
    return node_is_primary(node) && node->slot_count > 0;
}
static inline const char *node_text(const char *text) {
    return text ? text : "";
}

struct node_table {
    struct cluster_node **list;
    struct node_heartbeat *beats; /* of the nodes of `list` */
    uint32_t *brief;              /* a hash table of places in `list`: node.c */
    size_t brief_size;
    size_t count, capacity;
    uint32_t digest; /* 0: to be made again */
};
void nodes_init(struct node_table *nodes);
void nodes_free(struct node_table *nodes);
struct cluster_node *nodes_find(const struct node_table *nodes, const struct node_id *id);
/* The nodes whose ids begin like these, at `bytes` and each `stride` bytes further; NULL: there is none. Of several
 * nodes whose ids begin alike, it is the first. */
enum { NODES_FIND_MAX = 128 };
void nodes_find_brief(const struct node_table *nodes, const uint8_t *bytes, size_t stride, size_t count,
                      struct node_heartbeat *beats[static NODES_FIND_MAX]);
static inline struct cluster_node *nodes_of_beat(const struct node_table *nodes, const struct node_heartbeat *beat) {
    return nodes->list[beat - nodes->beats];
}
/* The node at `index` of the list, by a loop that goes through all. */
static inline struct cluster_node *nodes_at(const struct node_table *nodes, size_t index) {
    enum { AHEAD = 12 };
    if (index + AHEAD < nodes->count) __builtin_prefetch(nodes->list[index + AHEAD]);
    return nodes->list[index];
}
/* Takes ownership. The id must be new. */
void nodes_add(struct node_table *nodes, struct cluster_node *node);
/* Removes and frees the node: no replica, primary or report refers to it afterwards. It must have no slots or links. */
void nodes_remove(struct node_table *nodes, struct cluster_node *node);
void nodes_rename(struct node_table *nodes, struct cluster_node *node, const struct node_id *id);

/* Of the ids of all nodes that are not in a handshake: equal for nodes that know the same ones. Not 0. */
uint32_t nodes_digest(struct node_table *nodes);

struct cluster_node *node_new(const struct node_id *id, unsigned flags, int64_t now_ms);
/* Keeps `usual` of the heartbeat, after a change of what it depends on: another node, which is a member, not failing,
 * without reports of a failure, and linked in both directions. */
void node_update(struct cluster_node *node);
/* Sets or, with NULL, clears the primary of a node, in both directions. */
void node_set_primary(struct cluster_node *node, struct cluster_node *primary);
size_t node_working_replicas(const struct cluster_node *primary); /* those that are not failing */
/* Replaces a text; true if it differs. Texts longer than NODE_NAME_MAX are cut. */
bool node_set_text(char **text, struct slice value);
/* The name in log lines: the announced name, or address and port. Valid until the third call from now. */
const char *node_name(const struct cluster_node *node);
/* The shard's nodes are those with its id. */
static inline bool nodes_share_shard(const struct cluster_node *a, const struct cluster_node *b) {
    return node_id_equal(&a->shard, &b->shard);
}

/* True if the report is new: the reporter had none. */
bool node_add_report(struct cluster_node *node, struct cluster_node *reporter, int64_t now_ms);
bool node_remove_report(struct cluster_node *node, const struct cluster_node *reporter); /* true: there was one */
/* Drops the reports older than `max_age_ms` and counts the others. */
size_t node_count_reports(struct cluster_node *node, int64_t now_ms, int64_t max_age_ms);
