/* cli_cluster.h: the parts of valkey-cli --cluster.
 *
 *   cli_cluster.c            options, the table of subcommands; info, call, set-timeout
 *   cli_cluster_plan.c       the decisions, without input or output
 *   cli_cluster_nodes.c      connections to the nodes, and what the nodes say about the cluster
 *   cli_cluster_show.c       nodes as text and JSON; messages and prompts
 *   cli_cluster_check.c      check, which most subcommands begin with
 *   cli_cluster_fix.c        fix: open slots, slots without an owner, slots with several owners
 *   cli_cluster_create.c     create
 *   cli_cluster_members.c    add-node, del-node
 *   cli_cluster_move.c       moves one slot with its keys, or a range of slots by an atomic slot migration
 *   cli_cluster_reshard.c    reshard, rebalance
 *   cli_cluster_import.c     import
 *   cli_cluster_backup.c     backup
 *
 * Each subcommand connects to one node, asks it for the others, and connects to these; every node is then judged by
 * what it says about itself. A subcommand that stops in the middle says what it left behind and ends with exit code 1.
 */
#pragma once
#include "tools/cli.h"
#include "tools/cli_cluster_plan.h"

struct cli_node {
    struct cli_node_line line;    /* what the node says about itself */
    char name[NODE_HOST_MAX + 8]; /* "host:port" */
    struct session session;
    int replicas, index;
    bool reachable;
};
static inline bool node_is_primary(const struct cli_node *node) {
    return !(node->line.flags & NODE_REPLICA);
}

struct cli_cluster {
    struct cli *cli;
    const struct cli_cluster_options *options;
    struct cli_node **nodes; /* those that are connected; the first is the one that the user named */
    int count;
    struct cli_node **lost;         /* listed by the first node, but not connected */
    int lost_count, lost_primaries; /* primaries with slots among them */
    unsigned problems;              /* found by cluster_check() */
};

/* --- cli_cluster_nodes.c --- */

/* Connects to a node and asks it about itself. NULL: that failed, with a message. */
struct cli_node *cluster_node_open(struct cli_cluster *c, const char *host, int port);
void cluster_node_free(struct cli_node *node);
void cluster_add(struct cli_cluster *c, struct cli_node *node); /* takes it over */
/* Opens the node and all that it lists. False: the node itself failed, with a message. */
bool cluster_open(struct cli_cluster *c, const char *host, int port);
void cluster_close(struct cli_cluster *c);
/* Asks all nodes again. */
bool cluster_reload(struct cli_cluster *c);
/* False: the node knows others or has keys, with a message. */
bool cluster_node_is_empty(struct cli_node *node);
/* By the whole id, or a prefix that is not ambiguous. */
struct cli_node *cluster_find(struct cli_cluster *c, const char *id, bool prefix);
/* The primary with the fewest replicas; NULL: there is none but `except`. */
struct cli_node *cluster_fewest_replicas(struct cli_cluster *c, const struct cli_node *except);
/* True: all nodes list the same nodes with the same slots. */
bool cluster_is_consistent(struct cli_cluster *c);
/* Sends CLUSTER MEET to `node`, so that it joins the cluster of `to`. */
bool cluster_meet(struct cli_node *node, const struct cli_node *to);
/* Waits until all nodes agree and, with an id, list that node. Shows progress. */
bool cluster_wait_join(struct cli_cluster *c, const char *id);

/* Calls: the reply is valid until the next call to the same node. NULL: the connection failed or, but for _try, the
 * node replied with an error; with a message. */
struct resp_value *cluster_call(struct cli_node *node, int argc, const struct slice *argv);
struct resp_value *cluster_try(struct cli_node *node, int argc, const struct slice *argv, int64_t timeout_ms);
struct resp_value *cluster_call_words(struct cli_node *node, bool try, int count, const char *const *words);
#define CLUSTER_CALL(node, ...)                                                                                        \
    cluster_call_words((node), false, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)),             \
                       (const char *[]){__VA_ARGS__})
#define CLUSTER_TRY(node, ...)                                                                                         \
    cluster_call_words((node), true, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)),              \
                       (const char *[]){__VA_ARGS__})
/* "Node … replied with error:" and the error. */
void cluster_show_error(const struct cli_node *node, const struct resp_value *reply);
/* The databases of the node that have keys; ascending. Returns their number; -1: failed, with a message. Free with
 * mem_free(). */
int cluster_databases(struct cli_node *node, int **databases);
/* The keys of a slot in all databases; -1: failed. */
int64_t cluster_count_keys(struct cli_node *node, int slot);
enum { CLUSTER_CALL_MS = 60 * 1000 }; /* a node that says nothing for so long has failed */

/* --- cli_cluster_show.c --- */

enum cluster_tone { TONE_PLAIN, TONE_STEP, TONE_OK, TONE_WARNING, TONE_ERROR };
void cluster_say(const struct cli_cluster *c, enum cluster_tone tone, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Shows a question and reads a line into `answer`, without its end. False: end of input. */
bool cluster_ask(const char *question, char *answer, size_t size);
/* Asks for "yes". --cluster-yes answers it, but not if only the user may. */
bool cluster_confirm(const struct cli_cluster *c, const char *question);
bool cluster_confirm_by_hand(const char *question);
void cluster_show_node(const struct cli_node *node, const char *indent);
void cluster_show_planned(const struct cli_node *node); /* before create: a replica without slots */
/* The keys, slots and replicas of each primary. */
bool cluster_show_summary(struct cli_cluster *c);
bool cluster_write_json(const struct cli_cluster *c, FILE *file);
void cluster_progress(char mark); /* one character, at once */

/* --- cli_cluster_check.c --- */

enum { PROBLEM_OPEN_SLOTS = 1, PROBLEM_UNCOVERED = 2, PROBLEM_DISAGREE = 4, PROBLEM_OWNERS = 8, PROBLEM_UNFIXED = 16 };
/* Returns the problems and keeps them in c->problems; with `fix`, those that are left. */
unsigned cluster_check(struct cli_cluster *c, bool show_nodes, bool fix);

/* --- cli_cluster_fix.c --- */

/* They return false if something is left, with a message. */
bool cluster_fix_open_slot(struct cli_cluster *c, int slot);
bool cluster_fix_coverage(struct cli_cluster *c, const struct slot_bitmap *covered);
bool cluster_fix_owners(struct cli_cluster *c, int slot);

/* --- cli_cluster_move.c --- */

enum move_flags {
    MOVE_KEYS_ONLY = 1, /* the slot is open, and its state and owner stay */
    MOVE_SHOW = 2,      /* "Moving slot …", and a dot for each key */
};
/* Moves a slot. False: with a message, which says what was left open. */
bool cluster_move_slot(struct cli_cluster *c, struct cli_node *source, struct cli_node *target, int slot,
                       unsigned flags);
/* Moves the slots of a plan, by atomic slot migrations if the options say so, with a mark for each slot. */
bool cluster_move_slots(struct cli_cluster *c, struct cli_node *const *sources, struct cli_node *target,
                        const struct slot_move *moves, int count, bool show);
/* CLUSTER SETSLOT; id may be NULL. The node waits for its replicas, and it is asked again if one of them is behind. */
/* How far the migration of slots from `source` to `target` is; NULL, and nothing is shown: stdout is no terminal. */
struct cluster_progress;
struct cluster_progress *cluster_progress_new(struct cli_node *source, struct cli_node *target,
                                              const struct slot_move *moves, int count);
void cluster_progress_show(struct cluster_progress *progress);
void cluster_progress_free(struct cluster_progress *progress, bool moved);
/* MIGRATE connects nodes by TCP or TLS, at the port that the tool tells them. False, with a message: the tool is
 * connected over RDMA and does not know these ports. */
bool cluster_may_move_keys(const struct cli_cluster *c);
/* MIGRATE of these keys from `source` to `target`. The reply may be an error; NULL: the source failed, with a message.
 */
struct resp_value *cluster_migrate(struct cli_cluster *c, struct cli_node *source, const struct cli_node *target,
                                   const char *db, const struct slice *keys, int count, bool copy, bool replace);
bool cluster_set_slot(struct cli_node *node, int slot, const char *state, const char *id);

/* --- Subcommands: they return the exit code --- */

int cluster_create(struct cli_cluster *c, int argc, char **argv);
int cluster_reshard(struct cli_cluster *c);
int cluster_rebalance(struct cli_cluster *c);
int cluster_add_node(struct cli_cluster *c, const char *host, int port);
int cluster_del_node(struct cli_cluster *c, const char *id);
int cluster_import(struct cli_cluster *c);
int cluster_backup(struct cli_cluster *c, const char *directory);
