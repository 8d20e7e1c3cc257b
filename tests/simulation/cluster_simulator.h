/* cluster_simulator.h: a cluster of state machines (src/cluster/protocol/) in one process and in virtual time.
 *
 * The network: connections carry bytes in order, late, or not at all while a partition lasts; they break and lose what
 * is under way. `lose_one_in`, `duplicate_one_in` and `reorders` make it worse than TCP: the protocol does not rely on
 * the order of a connection. Machines freeze (as by SIGSTOP: their kernel still accepts connections), crash, and
 * restart from their disk, which has lost what was not durable. Clocks differ, and jump. All of it follows from one
 * seed.
 *
 * Checked at each step: an epoch has one winner in a shard, and a slot one owner in an epoch; nobody votes twice in an
 * epoch; nothing that must be durable is told before it is. Two shards may elect in one epoch, in Valkey, too: a
 * primary that was replaced while a partition changed votes on where nobody has heard of it (seed 2037705). Their slots
 * differ, and the rule for equal epochs separates the two. sim_agree() waits until all machines have one view. A
 * violation prints the history and ends the program. */
#pragma once
#include "cluster/protocol/configuration.h"
#include "lib/system/memory.h"
#include <stdio.h>
#include <stdlib.h>

enum { SIM_MACHINES_MAX = 1000, SIM_HISTORY = 10000, SIM_EPOCHS = 8192, SIM_LINE = 200, SIM_CUTS_MAX = 16 };
struct sim_disk { /* what the checks need of the file */
    bool exists;
    struct node_id id;
    uint64_t current_epoch, last_vote_epoch, config_epoch;
    bool primary;
    struct slot_bitmap slots;
    struct memory_output file; /* nodes.conf */
};
struct sim_machine {
    struct sim *sim;
    unsigned index;
    struct cluster *cluster; /* NULL: it does not run */
    struct cluster_settings settings;
    char address[NODE_ADDRESS_MAX];
    unsigned life; /* changes with each start: events of an earlier life are dropped */
    int64_t skew_ms, frozen_until_ms, paused_until_ms;
    struct sim_disk durable, written; /* what survives a crash for certain, and perhaps */
    /* Replication */
    uint64_t offset;
    int following; /* index; -1: it is a primary */
    bool link_up, data;
    int64_t primary_ms;
    unsigned moved_slots, deleted_slots, published;
    uint64_t sent[BUS_TYPES], bytes_sent;
    uint64_t last_vote;
    /* The slots that were last compared with the durable ones, and the version of their table plus one; 0: none. */
    const struct slot_bitmap *told_slots;
    uint64_t told_version;
    int64_t lead_ms; /* when it became a primary last */
};
struct sim_connection {
    unsigned a, b; /* a dialled */
    unsigned life_a, life_b;
    struct cluster_link *link_a, *link_b; /* NULL: closed at that end, or not yet there */
    bool accepted, broken;
    int64_t last_to_a, last_to_b; /* bytes arrive in order */
    unsigned events;              /* that refer to it */
};
struct sim {
    uint64_t seed, random;
    unsigned variant; /* of the seed: cluster_faults.h */
    int64_t now_ms, start_ms;
    struct sim_machine *machines;
    unsigned count;
    struct sim_event *events; /* a heap */
    size_t event_count, event_capacity;
    uint64_t sequence;
    struct sim_bytes *sent;                 /* the last message; NULL: none */
    unsigned group[SIM_MACHINES_MAX];       /* machines of different groups cannot reach each other */
    unsigned cut[SIM_CUTS_MAX][2], cuts;    /* nor can the two of a pair */
    unsigned latency_ms, break_one_in;      /* 0: connections do not break */
    unsigned lose_one_in, duplicate_one_in; /* messages; 0: none */
    bool reorders;                          /* messages overtake each other */
    bool no_single_owner;                   /* epochs were taken without consensus: a slot may have two owners in one */
    unsigned first_tick_ms;                 /* machines that start begin to work within this time */
    bool writes;
    bool no_copies;  /* replicas wait for their copies */
    unsigned shards; /* at the start: shard i has slot first_slot[i] */
    unsigned first_slot[SIM_MACHINES_MAX];
    int64_t double_since_ms[SIM_MACHINES_MAX]; /* since when two primaries serve it that reach each other */
    int64_t minority_since_ms[SIM_MACHINES_MAX];
    int64_t checked_ms;
    int winner[SIM_EPOCHS]; /* of each epoch, plus one */
    struct node_id winner_shard[SIM_EPOCHS];
    uint16_t *owners; /* of the first slot of each shard in each epoch, plus one */
    unsigned elections, failovers;
    char faults[500]; /* those of cluster_faults.h, cut to this length */
    char (*history)[SIM_LINE];
    size_t history_count;
    bool verbose;
    uint64_t digest; /* of all events: two programs that do the same have the same */
};

unsigned sim_below(struct sim *sim, unsigned bound);
__attribute__((format(printf, 3, 4))) void sim_note(struct sim *sim, int machine, const char *format, ...);
__attribute__((format(printf, 2, 3), noreturn)) void sim_fail(struct sim *sim, const char *format, ...);
int64_t sim_time(const struct sim_machine *machine);
/* The machine with this address, or -1. The second number is free, for a machine that moves. */
int sim_index(const char *address);

/* The effects of a machine, and three of them for simulations that do more. */
void sim_effect_facts(void *context, struct cluster_facts *facts);
void sim_effect_follow(void *context, const struct cluster_node *primary, bool same_shard);
void sim_effect_lead(void *context, bool same_shard);
extern const struct cluster_effects sim_effects;
extern const struct cluster_effects *sim_uses; /* by machines that start; sim_effects by default */

void sim_start(struct sim_machine *machine);
void sim_init(struct sim *sim, uint64_t seed, unsigned count, int64_t node_timeout_ms);
void sim_free(struct sim *sim);
bool sim_serves(const struct sim *sim, unsigned index, unsigned slot);
void sim_run(struct sim *sim, int64_t ms);
/* The process ends. Its kernel closes the connections. */
void sim_crash(struct sim_machine *machine);
void sim_freeze(struct sim_machine *machine, int64_t ms);
/* How many lines with this text a machine (-1: any) has logged. */
unsigned sim_said_times(const struct sim *sim, int machine, const char *text);
bool sim_said(const struct sim *sim, int machine, const char *text);
/* All machines that run have one view: members, roles, owners, no failures, state ok. Returns why not, or NULL. */
const char *sim_disagreement(struct sim *sim);
/* Runs until all agree; returns the time that it took. Fails after `limit_ms`. */
int64_t sim_agree(struct sim *sim, int64_t limit_ms);
/* Instead of sim_init() and sim_build(): all machines start with a nodes.conf that has all of them. */
void sim_init_built(struct sim *sim, uint64_t seed, unsigned count, unsigned primaries, int64_t node_timeout_ms);
/* Behind sim_init_built(): waits until all machines agree. From then on they gossip as usual. */
void sim_agree_built(struct sim *sim, int64_t limit_ms);
/* Joins all machines; the first `primaries` share the slots, the others follow them in turn. */
void sim_build(struct sim *sim, unsigned primaries, int64_t limit_ms);
struct sim_machine *sim_owner(struct sim *sim, unsigned observer, unsigned slot);
