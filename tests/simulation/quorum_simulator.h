/* quorum_simulator.h: servers with synchronous replication (src/repl/quorum/protocol/machine.h) in virtual time, with
 * faults.
 *
 * Each server has a log of writes and sets, a disk that forgets what is not durable yet, a link to a primary, and
 * clients. Servers crash and lose a part of their log, start without their files, freeze, and are cut off from each
 * other; messages take time. One seed determines everything. Servers of several shards may share a world.
 *
 * A server works in turns: it takes requests of its clients (quorum_clients.h), reads its sockets, and at the end of
 * the turn sends what it has written to its stream. It may freeze between any two of these steps, while
 * acknowledgements wait in its sockets, and bytes that it has sent arrive. Cuts may be one-way, and links slow. What
 * one server sends to another may be late for seconds while the other direction works: it then arrives in order, the
 * end of the connection last. In a manual failover the primary's stream stops growing until a replica that has all of
 * it stands.
 *
 * Checked: a primary that begins to lead has all writes of its shard that were acknowledged before; no two primaries
 * lead in one term; and what the clients see. A violation ends the program. */
#pragma once
#include "repl/quorum/protocol/lease.h"
#include "repl/quorum/protocol/machine.h"

enum {
    NODES_MAX = 9,
    ENTRIES_MAX = 60000,
    EVENTS_MAX = 4096,
    TICKETS_MAX = 512,
    STEP_MS = 5,
    ABSENT = 4000,
    NO_SHARD = 255,
    SHARDS_MAX = 4,
    SHARD_KEYS = 4,
    MOVING_KEYS = 512,
    KEYS_MAX = SHARDS_MAX * SHARD_KEYS + MOVING_KEYS,
    HELD_MAX = 64,
    BLOCKED_MAX = 16
};

struct entry {
    uint32_t value; /* of a write; 0: a set, or a command */
    uint32_t set;
    uint32_t command; /* of migration_simulator.h; 0: none */
    uint32_t commit;  /* of COMMIT: the offset + 1; 0: none */
    uint16_t key;     /* of a write */
    bool gone;        /* the key is deleted */
};
enum op_kind { OP_WRITE, OP_READ, OP_BLOCKED, OP_MESSAGE, OP_REPLICA, OP_ASKED, OP_MIGRATE };
struct op { /* a request, or its reply */
    enum op_kind kind;
    unsigned key;
    bool writes;                 /* when it is asked elsewhere */
    uint32_t value, floor, from; /* the newest value that was seen before; a blocking read waits for a newer one */
    int64_t deadline;
    uint64_t sequence;
};
struct node {
    unsigned index;
    bool up;
    bool asynchronous; /* without synchronous replication: asynchronous_shards.h, which does not use `machine` */
    unsigned shard;    /* … and its shard */
    int64_t frozen_until;
    struct quorum_machine machine;
    struct quorum_lease lease;
    uint64_t issued;   /* by the reply barrier */
    unsigned phase;    /* of its turn */
    bool has_woken;    /* from a freeze, in this turn */
    int64_t freeze_ms; /* in this turn, before this phase */
    unsigned freeze_phase;
    int64_t final_until; /* its stream must not grow: CLUSTER FAILOVER */
    int64_t busy_until;  /* it runs a script, and answers no PSYNC */
    struct op held[HELD_MAX], blocked[BLOCKED_MAX];
    unsigned held_count, blocked_count;
    unsigned migrating, migrating_to, migrating_life; /* the key; 0: none */
    uint32_t migrating_value;
    int64_t migrating_at, migrating_until;
    struct quorum_term migrating_term;
    /* The disk. */
    bool has_file;
    struct quorum_state durable;
    struct {
        struct quorum_state state;
        uint64_t ticket;
        int64_t due;
    } tickets[TICKETS_MAX];
    unsigned ticket_count;
    uint64_t next_ticket;
    /* The data. */
    struct entry *log;
    int64_t len, sent;
    int64_t latest[KEYS_MAX]; /* the index of the last entry of each key; -1: there is none */
    /* The link. */
    bool replica;
    int follows;                                   /* index; -1: none */
    bool link;                                     /* up, as this end sees it */
    unsigned link_of;                              /* number of the link: what arrives from an older one is dropped */
    int64_t retry, psync_at, copy_until, copy_len; /* psync_at: the primary's answer to PSYNC arrives */
    struct entry *copy;
    int64_t base; /* entries that a file has as a whole: they are lost together */
    int64_t lag;  /* entries that it is behind */
    struct {
        bool up;
        unsigned number;
        char id[QUORUM_ID_LEN + 1]; /* that the peer had when it came online */
        int64_t lost_at;            /* when this end notices that the link is down */
    } peers[NODES_MAX];
    uint32_t shown[KEYS_MAX]; /* as a replica */
    unsigned life;
    uint64_t leads_term;
};
enum kind { ACK, STORED, ASK, VOTE };
struct message {
    enum kind kind;
    int from, to;
    unsigned life_to, link;
    int64_t due, offset;
    struct quorum_term term;
    uint64_t version;
    struct quorum_vote_request ask;
    struct quorum_vote *vote; /* of VOTE: allocated, because it is large */
};
extern struct world {
    unsigned count, replicas;
    int64_t now;
    uint64_t random, seed;
    bool verbose;
    struct node nodes[NODES_MAX];
    bool cut[NODES_MAX][NODES_MAX];
    int64_t late_until[NODES_MAX][NODES_MAX]; /* what the first sends to the second waits */
    struct {
        unsigned primary, replica; /* of a manual failover */
        int64_t until;             /* 0: there is none */
    } manual;
    struct message *messages;
    unsigned message_count;
    struct quorum_set *sets;
    unsigned set_count;
    uint32_t next_value;
    bool *acknowledged; /* of each value */
    uint32_t acknowledged_count;
    uint32_t acknowledged_list[ENTRIES_MAX];
    unsigned links, leads, reads, replica_reads, moves;
    uint32_t floors[KEYS_MAX]; /* the newest value that anybody has seen */
    unsigned trial;            /* enum trial */
    unsigned group, slow;      /* servers of a group; one message in `slow` is slow, 0: few are */
    bool moves_on;
    struct quorum_term terms[4096];
    unsigned term_count;
    bool loss_accepted;
    uint8_t shard_of[ENTRIES_MAX]; /* of each value */
    /* Of a cluster; NULL: every server that leads serves, and a server that is elected leads. */
    bool (*serves)(const struct node *node);
    void (*elected)(struct node *node);
    void (*command_committed)(struct node *node, uint32_t command);
    void (*began)(struct node *node);                           /* to lead */
    void (*copied)(struct node *node, const struct node *from); /* the copy of this moment will be loaded */
    void (*loads)(struct node *node);                           /* the copy */
    void (*asynchronous_turn)(struct node *node);
} world;

enum { TURN_REQUESTS, TURN_SOCKETS, TURN_MORE_REQUESTS, TURN_END, TURN_REST, TURN_PHASES };

uint64_t world_random(uint64_t bound);              /* less than `bound` */
void world_note(int node, const char *format, ...); /* a line of the history; node -1: of no server */
void world_violated(const char *what, int node);    /* ends the program */
bool world_reaches(int a, int b);                   /* what a sends arrives at b */
bool world_reaches_both(int a, int b);
bool world_runs(const struct node *node); /* it is up, and not frozen */
uint64_t world_us(void);
/* The shard that the data of a server belong to: that of its group, whatever the cluster says. */
unsigned world_shard_of(const struct node *node);
void world_check_has_all(const struct node *node, const char *what);
void world_link_down(struct node *node);
void world_append(struct node *node, struct entry entry);
void world_find_latest(struct node *node);
void world_write_commit(struct node *node);
void world_fresh_id(const struct node *node, char id[static QUORUM_ID_LEN + 1]);
void world_start(struct node *node);
void world_crash(struct node *node, bool disk); /* disk: its files remain */
bool world_is_prefix(const struct node *a, const struct node *b);
void world_step(void);
void world_run(int64_t ms);
void world_follow(struct node *node, int primary);
void world_promote(struct node *node);
unsigned world_first_of_group(unsigned index);
int world_newest_leader_near(unsigned index);
int world_newest_leader(void);
void world_fault(void);
/* An empty world of servers that do not run; or with servers that run, and the first one leads. */
void world_clear(uint64_t seed, unsigned count, unsigned replicas);
void world_begin(uint64_t seed, unsigned count, unsigned replicas);
