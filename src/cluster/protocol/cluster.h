/* cluster.h: one node of a cluster as a state machine.
 *
 * The machine decides on membership, failures, owners of slots, votes and failovers. It owns no socket, clock, file or
 * source of random numbers. Its inputs are events with the time; its outputs are calls of struct cluster_effects, in
 * order. A simulator can drive many of them (tests/simulation/cluster_simulator.h).
 *
 *     event                            input
 *     ------------------------------   -------------------------------------------------------------------
 *     a peer connected to the bus      cluster_link_accepted(); later cluster_link_closed()
 *     a connection we asked for        cluster_link_connected(), or cluster_link_closed() with `refused`
 *     a decoded message                cluster_receive(); any bytes before that: cluster_link_heard()
 *     100 ms have passed               cluster_tick()
 *     the end of a turn of the loop    cluster_flush(): what several events of a turn need only once
 *     a command                        cluster_meet() and others below; they return NULL or the text of the error
 *     options changed                  cluster_configure()
 *
 * Rules between the machine and its host:
 * - An effect never calls the machine back. It may be called with the machine in the middle of a change: it must not
 *   read more than its arguments, but for cluster_write_configuration() in save().
 * - A link lives from cluster_link_accepted() or dial() to close() or cluster_link_closed(). close() may concern the
 *   link whose message is being received.
 * - save(durable): a message that is sent after this call may leave only when the file is on disk. The machine calls it
 *   before a message with an epoch, a vote, an identity, a role or slots that the file does not have. A crash may lose
 *   what other saves would have written.
 * - Times are milliseconds of a monotonic clock. In messages and in nodes.conf they are Unix times (wall_ahead_ms()).
 *
 * The views (CLUSTER SLOTS and others), redirection and INFO read the fields of struct cluster; only the machine writes
 * them. `view_version` changes with whatever CLUSTER SLOTS, SHARDS or NODES shows, but for times and offsets.
 *
 * Files, the lowest layer first: core.c, send.c, repeat.c (brief headers), ping.c, ownership.c (slots, epochs, roles),
 * failure.c (PFAIL, FAIL, state), fast_failover.c, election.c, manual_failover.c, topology.c (which node serves what),
 * handshake.c (joining, forgetting, addresses), gossip.c, replica_migration.c, slot_commands.c, machine.c,
 * configuration.c (nodes.conf). */
#pragma once
#include "cluster/protocol/node.h"
#include "cluster/protocol/own_fields.h"
#include "cluster/protocol/slots.h"
#include "lib/structures/hashtable.h"
#include "lib/system/log.h"

enum {
    CLUSTER_TICK_MS = 100,
    CLUSTER_NODES_MAX = 20000, /* gossip adds no more */
    CLUSTER_HANDSHAKES_MAX = 1024,
    CLUSTER_FORGOTTEN_MAX = 1024 /* ids that gossip may not bring back */
};

struct cluster_settings {
    int64_t node_timeout_ms;
    int64_t ping_interval_ms; /* 0: half of the node timeout */
    int64_t manual_failover_timeout_ms, blacklist_ttl_s, repl_ping_period_s;
    unsigned gossip_percent, replica_validity_factor, migration_barrier;
    bool replica_no_failover, allow_replica_migration, require_full_coverage, fast_failover;
    bool tls; /* the bus speaks TLS: the port in headers is the TLS port */
    /* What this node announces: its options, or what it listens on. Texts: "" is nothing. */
    const char *address; /* "": peers take the address they see */
    uint16_t port, tls_port, bus_port, rdma_port;
    const char *hostname, *nodename, *client_ipv4, *client_ipv6, *availability_zone;
    uint16_t client_port, client_tls_port, client_rdma_port;
    /* DEBUG */
    bool no_random_pings, no_reconnection;
};

struct cluster_link {
    struct cluster_node *node; /* NULL: an inbound link on which no known node has spoken */
    bool inbound;
    bool connected;
    bool extensions;                       /* the peer understands extensions of PING */
    bool brief;                            /* the peer has sent a whole header and reads brief ones */
    uint64_t sent_header, sent_extensions; /* digests of what was sent last with a whole header; 0: nothing yet */
    struct repeated_header *received;      /* the last whole header of a peer that may repeat it; NULL: none */
    int64_t created_ms;
    bool answered;                                        /* by a PONG: light messages may be sent */
    char peer[NODE_ADDRESS_MAX], local[NODE_ADDRESS_MAX]; /* addresses of the connection */
    uint16_t peer_port;                                   /* for the log */
    void *host;                                           /* the host's own */
    struct cluster_link *previous, *next;
};

/* What the server knows of replication, at this moment. */
struct cluster_facts {
    uint64_t offset;      /* primary: of the stream; replica: processed, 0 without the data of its primary */
    bool primary_link_up; /* replica: online with its primary */
    int64_t primary_ms;   /* replica: last bytes from its primary, or if the link is down, since when; 0: never up */
    bool loading;         /* a data set is being loaded */
    bool has_keys;
    bool bound; /* replica: its shard needs it, it does not move to another one by itself */
};

enum cluster_mandate { MANDATE_NOT_NEEDED, MANDATE_NONE, MANDATE_ASKED, MANDATE_HELD };
struct cluster_effects {
    /* Questions; they have no effect. */
    void (*facts)(void *context, struct cluster_facts *facts);
    uint64_t (*random)(void *context);
    size_t (*keys_in_slot)(void *context, unsigned slot);
    /* Whether this node has let `node` take its slot, whatever this node's epoch is. The claim is of `epoch`, and may
     * be older than that; NULL: never. */
    bool (*slot_granted)(void *context, unsigned slot, const struct cluster_node *node, uint64_t epoch);
    bool (*slot_arrives)(void *context, unsigned slot); /* its keys are being moved here; NULL: never */
    /* This shard has let another one take the slot, and does not know whether it did: a new primary of this shard must
     * not claim it; NULL: never. */
    bool (*slot_leaves)(void *context, unsigned slot);
    /* This node has let another one take slots that it still claims. The other nodes must not hear of a larger epoch of
     * this node before that claim: they would not believe it; NULL: never. */
    bool (*epoch_stays)(void *context);
    /* The bus. dial() connects to link->node; it does not fail at once. send() queues or drops, and does not fail. */
    void (*dial)(void *context, struct cluster_link *link);
    void (*close)(void *context, struct cluster_link *link);
    void (*send)(void *context, struct cluster_link *link, const struct bus_message *message);
    void (*publish)(void *context, struct slice channel, struct slice message, bool shard); /* to local subscribers */
    void (*module_message)(void *context, const struct cluster_node *sender, const struct bus_message *message);
    /* Disk and log */
    void (*save)(void *context, bool durable);
    void (*log)(void *context, enum log_level level, const char *text);
    /* The server. follow() may name the node that is followed already, with another address. The data set of another
     * shard has another history: no partial synchronization. */
    void (*follow)(void *context, const struct cluster_node *primary, bool same_shard);
    void (*lead)(void *context, bool same_shard); /* false: an empty shard of its own */
    /* A shard that elects its primary before the cluster does (synchronous replication: repl/quorum/quorum.h). A
     * replica asks for votes only with the mandate of its shard. stand() asks the shard for it, not at once `forced` by
     * a command; cluster_mandated() says that it is there. stand_back(): the failover is over without this replica,
     * which follows its primary again. mandate NULL: MANDATE_NOT_NEEDED. */
    enum cluster_mandate (*mandate)(void *context);
    void (*stand)(void *context, bool forced);
    void (*stand_back)(void *context);
    void (*drop_data)(void *context); /* delete all keys: this node became empty */
    void (*slot_moved)(void *context, unsigned slot, const struct cluster_node *from, const struct cluster_node *to);
    void (*delete_keys)(void *context, unsigned slot); /* of a slot that another node serves now */
    void (*state_changed)(void *context, bool ok);
    void (*pause_writes)(void *context, int64_t until_ms);
    void (*resume_writes)(void *context);
    /* The machine's time is monotonic. What this returns, added to it, is the wall clock: times in gossip, and in
     * nodes.conf, are such. NULL: 0. */
    int64_t (*wall_ahead_ms)(void *context);
};

enum election_wait { WAIT_NOTHING, WAIT_DATA_AGE, WAIT_DELAY, WAIT_EXPIRED, WAIT_VOTES, WAIT_SHARD };
struct election {
    int64_t start_ms; /* when it may start; 0: none is planned */
    bool sent, force_ack;
    unsigned votes, quorum, rank, failed_primary_rank;
    uint64_t epoch;
    enum election_wait logged; /* the reason logged last, and when */
    int64_t logged_ms;
};
struct manual_failover {
    int64_t end_ms;               /* 0: none is in progress */
    struct cluster_node *replica; /* at the primary: the replica that takes over */
    bool offset_known;            /* at the replica: the primary has paused at `offset` */
    uint64_t offset;
    bool can_start;
    bool paused; /* at the primary: writes are paused */
};
struct forgotten_node {
    struct node_id id;
    int64_t until_ms;
};

/* repeat.c: whole headers and their slots. */
struct header_repeats {
    struct hashtable *slots;             /* NULL: none yet */
    struct repeated_header *received;    /* of the PING or PONG that is being received; NULL: none */
    struct sent_slots {                  /* of the last header that was sent */
        uint64_t digest;                 /* 0: none yet */
        const struct slot_bitmap *slots; /* as the header had them; they are not read */
        uint64_t version;                /* of the table of slots */
    } sent;
};

/* handshake.c: nodes that come and go. */
struct joining_nodes {
    size_t handshakes;                /* in progress */
    struct forgotten_node *forgotten; /* NULL: none yet */
    size_t forgotten_count;
    int64_t news_ms;  /* last time that a node was added, or its address changed */
    int64_t moved_ms; /* last time that an address changed; 0: never */
};

/* failure.c: nodes that fail, and the state of the cluster. */
struct failure_state {
    struct cluster_node **suspects; /* PFAIL, or it was so after the last tick */
    size_t count, capacity;         /* of suspects */
    int64_t state_since_ms;         /* when the state was evaluated first; 0: never */
    int64_t minority_since_ms;      /* when a majority was last out of reach; 0: never */
    bool safe_to_vote;
    unsigned down_reason_logged;
};

/* gossip.c: the parts of the message that is being built. */
struct gossip_scratch {
    struct bus_gossip *gossip;
    struct bus_brief_gossip *brief;
    size_t capacity; /* of both */
    struct bus_forgotten *forgotten;
    uint64_t stamp; /* of the message: node_heartbeat.stamp */
};

/* Only the file that is named beside a struct changes it; several files change the other members. */
struct cluster {
    struct cluster_settings settings;
    const struct cluster_effects *effects;
    void *context;
    int64_t now_ms; /* time of the input that is being handled */

    struct cluster_node *myself;
    struct node_table nodes;
    struct slot_table slots;
    uint64_t current_epoch, last_vote_epoch;
    bool address_announced; /* the own address is that of the option */
    bool ok;                /* state of the cluster */
    unsigned size;          /* primaries with slots: they vote */
    uint64_t view_version;
    struct cluster_link *links;
    struct header_repeats repeats;
    struct joining_nodes joining;
    struct failure_state failures;
    struct election election;      /* election.c */
    struct manual_failover manual; /* manual_failover.c */
    int64_t strays_ms;             /* after a failover: when to look for keys of slots that others serve; 0: never */
    struct gossip_scratch scratch;
    struct {
        uint64_t version;
        int64_t ms;
    } covered; /* replica_migration.c has nothing to do before this time while the view has this version */
    uint64_t ticks;
    unsigned todo;    /* enum cluster_todo: at the next flush */
    unsigned unsaved; /* enum cluster_unsaved */
    int64_t saved_ms; /* when it was saved last */
    char error[192];
};

/* A new node: it knows itself alone, has an id of its own, and is in state fail. */
struct cluster *cluster_new(const struct cluster_settings *settings, const struct cluster_effects *effects,
                            void *context, int64_t now_ms);
void cluster_free(struct cluster *cluster); /* closes no links: the host has done so */
void cluster_configure(struct cluster *cluster, const struct cluster_settings *settings, int64_t now_ms);

/* The addresses are texts without a port. */
struct cluster_link *cluster_link_accepted(struct cluster *cluster, const char *peer, uint16_t peer_port,
                                           const char *local, int64_t now_ms);
void cluster_link_connected(struct cluster *cluster, struct cluster_link *link, const char *local, int64_t now_ms);
/* The link is gone: closed by the peer, broken, or never established. Frees it. `refused`: the peer's machine answers,
 * but nothing listens. */
void cluster_link_closed(struct cluster *cluster, struct cluster_link *link, bool refused, int64_t now_ms);
void cluster_link_heard(struct cluster *cluster, struct cluster_link *link, int64_t now_ms);
void cluster_receive(struct cluster *cluster, struct cluster_link *link, const struct bus_message *message,
                     int64_t now_ms);
/* The host has dropped this message, but others of the link may repeat its header. */
void cluster_link_dropped(struct cluster *cluster, struct cluster_link *link, const struct bus_message *message);
void cluster_mandated(struct cluster *cluster, int64_t now_ms); /* this replica's shard has elected it */
void cluster_tick(struct cluster *cluster, int64_t now_ms);
void cluster_flush(struct cluster *cluster, int64_t now_ms);

/* Commands. They return NULL, or the error without its code, valid until the next one. `who` describes the client for
 * the log: "user request from 'id=...'". */
const char *cluster_meet(struct cluster *cluster, const char *address, uint16_t port, uint16_t bus_port,
                         const char *who, int64_t now_ms);
const char *cluster_forget(struct cluster *cluster, const struct node_id *id, const char *who, int64_t now_ms);
const char *cluster_replicate(struct cluster *cluster, const struct node_id *id, int64_t now_ms);
const char *cluster_replicate_no_one(struct cluster *cluster, const char *who, int64_t now_ms);
const char *cluster_reset(struct cluster *cluster, bool hard, const char *who, int64_t now_ms);
const char *cluster_set_config_epoch(struct cluster *cluster, int64_t epoch, int64_t now_ms);
/* False: it is the largest already, or it stays for now (struct cluster_effects). */
bool cluster_bump_epoch(struct cluster *cluster, int64_t now_ms);
/* FAILOVER_BY_PRIMARY: FORCE, asked for by our primary, which shuts down. */
enum failover_kind { FAILOVER_NORMAL, FAILOVER_FORCE, FAILOVER_TAKEOVER, FAILOVER_BY_PRIMARY };
const char *cluster_failover(struct cluster *cluster, enum failover_kind kind, const char *who, int64_t now_ms);
/* ADDSLOTS, DELSLOTS: all slots or none. */
const char *cluster_add_slots(struct cluster *cluster, const struct slot_bitmap *slots, int64_t now_ms);
const char *cluster_delete_slots(struct cluster *cluster, const struct slot_bitmap *slots, int64_t now_ms);
/* SETSLOT. The first function says whether one of the others would fail, and does nothing else. */
enum slot_change { SLOT_MIGRATING, SLOT_IMPORTING, SLOT_STABLE, SLOT_NODE };
const char *cluster_check_slot_change(struct cluster *cluster, enum slot_change change, unsigned slot,
                                      struct slice node);
const char *cluster_set_slot_migrating(struct cluster *cluster, unsigned slot, const struct node_id *target,
                                       int64_t now_ms);
const char *cluster_set_slot_importing(struct cluster *cluster, unsigned slot, const struct node_id *source,
                                       int64_t now_ms);
void cluster_set_slot_stable(struct cluster *cluster, unsigned slot, int64_t now_ms);
const char *cluster_set_slot_node(struct cluster *cluster, unsigned slot, const struct node_id *owner, int64_t now_ms);
/* The slots of a finished import: this primary takes them with a new epoch. */
void cluster_take_slots(struct cluster *cluster, const struct slot_bitmap *slots, int64_t now_ms);
/* A primary, or this node before a restart, has claimed these slots with this epoch: the stream or the copy of this
 * shard's primary says so, and the bus may not have. Older than what is known, it changes nothing. */
void cluster_hear_claim(struct cluster *cluster, struct cluster_node *primary, const struct slot_bitmap *slots,
                        uint64_t epoch, int64_t now_ms);
/* Another node has this epoch: the next one that this node takes is larger. */
void cluster_see_epoch(struct cluster *cluster, uint64_t epoch, int64_t now_ms);
/* This primary stops claiming these slots, which it owns: no node serves them. */
void cluster_give_up_slots(struct cluster *cluster, const struct slot_bitmap *slots, int64_t now_ms);
/* After loading: claims unassigned slots that have keys, and deletes the keys of slots that others serve. */
void cluster_check_data(struct cluster *cluster, int64_t now_ms);

/* Sends a message of a client to the nodes that may have subscribers: all, or with `shard` those of this shard. */
void cluster_publish(struct cluster *cluster, struct slice channel, struct slice message, bool shard);
/* Sends a message of a module to a node; NULL: to all. False: the node is not linked. */
bool cluster_send_module(struct cluster *cluster, const struct cluster_node *to, uint64_t module, uint8_t type,
                         struct slice payload);

size_t cluster_count_failure_reports(struct cluster *cluster, struct cluster_node *node, int64_t now_ms);
static inline bool cluster_serves(const struct cluster *cluster, unsigned slot) {
    return cluster->slots.owner[slot] == cluster->myself;
}
/* The primary of this node's shard: itself, or its primary; NULL: not known. */
static inline struct cluster_node *cluster_shard_primary(const struct cluster *cluster) {
    return node_is_primary(cluster->myself) ? cluster->myself : cluster->myself->primary;
}
