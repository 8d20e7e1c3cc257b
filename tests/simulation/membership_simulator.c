#include "membership_simulator.h"
#include "migration_simulator.h"

struct membership membership;

void membership_begin(void) {
    membership.gone_count = 0;
}

/* --- What a shard can do without --- */

static const struct quorum_set *newest_set(unsigned shard) {
    const struct quorum_set *newest = NULL;
    for (unsigned i = 0; i < MACHINES; i++) {
        const struct quorum_state *state = &world.nodes[i].machine.state;
        if (world_shard_of(&world.nodes[i]) != shard) continue;
        if (!newest || quorum_set_compare(&state->set, newest) > 0) newest = &state->set;
    }
    return newest;
}

static bool elects(const struct quorum_members *members, unsigned shard, const struct node *without) {
    int sure = 0;
    for (unsigned i = 0; i < MACHINES; i++) {
        const struct node *node = &world.nodes[i];
        if (node == without || !node->up || !node->machine.complete || world_shard_of(node) != shard) continue;
        sure += quorum_members_find(members, node->machine.state.id) != NULL;
    }
    return sure >= quorum_members_electing(members);
}
bool membership_elects_without(unsigned shard, const struct node *without) {
    const struct quorum_set *set = newest_set(shard);
    return set && elects(&set->now, shard, without) && (!set->before.count || elects(&set->before, shard, without));
}

/* All servers of the shard know its members, on disk. */
static bool has_settled(unsigned shard) {
    const struct quorum_set *set = newest_set(shard);
    for (unsigned i = 0; i < MACHINES; i++) {
        const struct node *node = &world.nodes[i];
        if (world_shard_of(node) != shard) continue;
        if (!node->up || node->machine.saved < node->machine.set_ticket ||
            quorum_set_compare(&node->machine.state.set, set) != 0)
            return false;
    }
    return !set->before.count;
}

bool membership_may_lose_data(const struct node *node) {
    unsigned shard = world_shard_of(node);
    if (world.seed % 10 == 0 || shard == NO_SHARD || node->asynchronous) return true;
    if (membership.on) return has_settled(shard) && membership_elects_without(shard, node);
    for (unsigned i = node->index % SHARDS; i < MACHINES; i += SHARDS)
        if (i != node->index && !(world.nodes[i].up && world.nodes[i].machine.complete)) return false;
    return true;
}

/* --- The commands --- */

/* It was reset. If it crashed then, its group may be on disk still. */
static bool is_lone(const struct node *node) {
    const struct cluster *cluster = cluster_of(node);
    return node_is_primary(cluster->myself) && (world_shard_of(node) == NO_SHARD || cluster->nodes.count == 1);
}

/* reset_run() */
static void reset(struct node *node, bool hard) {
    struct sim_machine *machine = machine_of(node);
    struct cluster *cluster = machine->cluster;
    bool primary = node_is_primary(cluster->myself);
    struct node_id id = cluster->myself->id;
    if (hard && membership.gone_count == GONE_MAX) return;
    world_note((int)node->index, "CLUSTER RESET %s", hard ? "HARD" : "SOFT");
    const char *refused = cluster_reset(cluster, hard, "test", sim_time(machine));
    if (refused) world_violated(refused, (int)node->index);
    if (primary) sync_server_lead(machine, false);
    if (hard) {
        membership.gone[membership.gone_count++] = id;
        machine->last_vote = 0;
    }
    membership.resets++;
    cluster_flush(cluster, sim_time(machine));
}

void membership_change(struct node *node) {
    if (!world_runs(node)) return;
    bool replica = node_is_replica(cluster_of(node)->myself);
    /* While slots are being moved to a primary, it has keys and refuses. */
    if (replica ? membership_may_lose_data(node) : is_lone(node) && !moving_has_keys(node))
        reset(node, world_random(2));
}

/* --- The administrator brings servers back --- */

static void forget_the_gone(struct node *node) {
    struct cluster *cluster = cluster_of(node);
    for (unsigned i = 0; i < membership.gone_count; i++)
        if (nodes_find(&cluster->nodes, &membership.gone[i]))
            cluster_forget(cluster, &membership.gone[i], "test", sim_time(machine_of(node)));
}

static unsigned servers_of(unsigned shard) {
    unsigned count = 0;
    for (unsigned i = 0; i < MACHINES; i++) count += world_shard_of(&world.nodes[i]) == shard;
    return count;
}

/* A primary with slots that the node knows, mostly one of a small shard. */
static const struct cluster_node *some_primary(const struct node *node) {
    const struct cluster *cluster = cluster_of(node);
    const struct cluster_node *chosen = NULL;
    unsigned least = MACHINES + 1, seen = 0;
    bool balances = world_random(4);
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        const struct cluster_node *other = cluster->nodes.list[i];
        int index = sim_index(other->address);
        if (other == cluster->myself || other == cluster->myself->primary || !node_votes(other) ||
            node_in_handshake(other) || index < 0)
            continue;
        unsigned size = balances ? servers_of(world_shard_of(&world.nodes[index])) : 0;
        if (size > least) continue;
        if (size < least) seen = 0;
        least = size;
        if (world_random(++seen) == 0) chosen = other;
    }
    return chosen;
}

static void replicate_some(struct node *node) {
    struct sim_machine *machine = machine_of(node);
    const struct cluster_node *primary = some_primary(node);
    if (!primary || moving_has_keys(node)) return; /* slots are being moved to it */
    world_note((int)node->index, "CLUSTER REPLICATE %.40s", primary->id.text);
    struct node_id id = primary->id;
    const char *refused = cluster_replicate(machine->cluster, &id, sim_time(machine));
    if (refused) world_violated(refused, (int)node->index);
    membership.joins++;
    cluster_flush(machine->cluster, sim_time(machine));
}

static void meet(const struct node *node, const struct node *other) {
    struct sim_machine *machine = machine_of(node);
    world_note((int)node->index, "CLUSTER MEET %u", other->index);
    cluster_meet(machine->cluster, machine_of(other)->address, 6379, 16379, "test", sim_time(machine));
}

static void bring_back(struct node *node) {
    struct node *other = &world.nodes[world_random(MACHINES)];
    if (some_primary(node)) {
        replicate_some(node);
    } else if (world_runs(other) && !is_lone(other)) {
        bool asks = world_random(2);
        meet(asks ? node : other, asks ? other : node);
    }
}

void membership_step(void) {
    if (!membership.on) return;
    for (unsigned i = 0; i < MACHINES; i++) {
        struct node *node = &world.nodes[i];
        if (!world_runs(node)) continue;
        unsigned shard = 0;
        while (shard < SHARDS && !sim_serves(&cluster_sim, i, cluster_sim.first_slot[shard])) shard++;
        if (shard < SHARDS && leads_for_certain(node) && world_shard_of(node) != shard)
            world_violated("a server of another group serves the slots of a shard", (int)i);
        if (world_random(200)) continue;
        forget_the_gone(node);
        if (is_lone(node)) bring_back(node);
    }
}
