/* cli_cluster_plan.h: the decisions of valkey-cli --cluster, without any input or output: lines of CLUSTER NODES, sets
 * of slots, and the plans of create, reshard, rebalance and fix. The cli_cluster_*.c files carry them out. */
#pragma once
#include "lib/hash/slot_bitmap.h"
#include "lib/text/output.h"
#include "lib/text/slice.h"
#include <stdint.h>

/* --- Sets of slots --- */

/* "[0-5460],[7]"; nothing for an empty set. */
void slots_write(const struct slot_bitmap *slots, struct output *out);

/* --- Lines of CLUSTER NODES --- */

enum { NODE_ID = 40, NODE_HOST_MAX = 256 };
enum node_flags {
    NODE_MYSELF = 1,
    NODE_REPLICA = 2,
    NODE_FAIL = 4,
    NODE_NOADDR = 8,
    NODE_HANDSHAKE = 16,
    NODE_DISCONNECTED = 32, /* the link of the node that lists it */
};
struct cli_open_slot {
    int slot;
    bool importing; /* else migrating */
    char peer[NODE_ID + 1];
};
struct cli_node_line {
    char id[NODE_ID + 1], primary[NODE_ID + 1] /* "": none */, host[NODE_HOST_MAX];
    int port, bus_port; /* bus_port 0: not listed */
    unsigned flags;
    uint64_t epoch;
    struct slot_bitmap slots;
    int slots_count;
    struct cli_open_slot *open; /* owned */
    int open_count;
};
/* Parses one line. False: it is not a line of CLUSTER NODES, and `node` is free of memory. */
bool node_line_parse(struct slice line, struct cli_node_line *node);
void node_line_free(struct cli_node_line *node);
/* The peer of a slot that is open in this direction, or NULL. */
const char *node_line_peer(const struct cli_node_line *node, int slot, bool importing);
/* "host:port" or "host:port@bus" at the last colon; an IPv6 address may be in brackets. bus_port may be NULL. False:
 * invalid. */
bool address_parse(struct slice text, char host[NODE_HOST_MAX], int *port, int *bus_port);

/* --- create --- */

struct planned_node {
    const char *host;
    int primary;     /* index of the primary that it replicates; -1: it is a primary */
    int first, last; /* the slots of a primary */
};
struct create_plan {
    struct planned_node *nodes; /* as given */
    int count, primaries, replicas;
    int *order;                  /* the primaries, in the order of their slots */
    int *added;                  /* the replicas in the order in which they were assigned */
    int added_count, extra_from; /* from added[extra_from] on: beyond the requested number of replicas */
};
/* Makes primaries of the first nodes, interleaved by host, divides the slots among them and deals out the other nodes
 * as replicas, to primaries on other hosts where there are any. Needs at least one primary: count / (replicas + 1) > 0.
 */
void create_plan_make(struct create_plan *plan, const char *const *hosts, int count, int replicas);
void create_plan_free(struct create_plan *plan);
/* 10,000 for each replica on its primary's host, and 1 for each further replica of a primary on one host; 0 is
 * perfect. */
int create_plan_score(const struct create_plan *plan);
enum { SAME_HOST_AS_PRIMARY = 10000 };
/* Exchanges the primaries of pairs of replicas while that lowers the score, and at random for some time after. Returns
 * the score. */
int create_plan_improve(struct create_plan *plan);

/* --- reshard --- */

struct slot_move {
    int slot, source; /* an index */
};
/* Which slots to take from the sources: in proportion to what they own, the lowest first, beginning with the source
 * that owns most. Writes at most `wanted` moves and returns their number, which is less if the sources own fewer. */
int reshard_plan(const struct slot_bitmap *const *sources, int count, int wanted, struct slot_move *moves);

/* The end of the range of consecutive slots of one source that begins with moves[from]. */
int slot_moves_range(const struct slot_move *moves, int count, int from);

/* --- rebalance --- */

struct rebalance_node {
    int slots;
    double weight;
    int surplus; /* result: slots to give away; negative: to receive */
};
struct rebalance_move {
    int source, target, slots;
};
/* Returns the number of moves (at most count - 1), 0 if every node is within `threshold` percent of its share. The
 * weights must be >= 0, and one of them > 0. */
int rebalance_plan(struct rebalance_node *nodes, int count, double threshold, struct rebalance_move *moves);

/* --- fix --- */

/* What the primaries say about an open slot. */
struct fix_node {
    bool owner, migrating, importing;
    uint64_t keys;
    int migrating_to; /* index of the node that it names; -1: none of these */
    bool found_as_owner /* result: it has keys of a slot that it does not own */;
    bool found /* result: it has keys, and its slot is not open */;
};
enum fix_action {
    FIX_MOVE,       /* case 1: finish the migration from `source` to `target` */
    FIX_GATHER,     /* case 2: move the keys of all importing nodes to `owner` */
    FIX_MOVE_CLOSE, /* case 3: like FIX_MOVE, and close the slot on the other importing nodes */
    FIX_CLOSE_ALL,  /* case 3: close the slot on all nodes */
    FIX_CLOSE,      /* case 4: close the slot on `source` */
    FIX_DONE,       /* the slot is closed once the owner is configured */
    FIX_NONE,       /* none of these */
};
struct fix_plan {
    enum fix_action action;
    int owner, source, target; /* -1: none */
    bool choose_owner;         /* no node was clearly the owner: `owner` is configured first */
};
/* Decides how to close a slot. Sets migrating and importing of the nodes to the lists that the actions refer to, and
 * `found`. Nodes that lose the ownership count as importing. */
struct fix_plan fix_plan_make(struct fix_node *nodes, int count);
/* The node with the most keys; the first of them. -1: count is 0. */
int fix_most_keys(const struct fix_node *nodes, int count);
