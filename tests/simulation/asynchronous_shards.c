#include "asynchronous_shards.h"
#include "migration_simulator.h"
#include "quorum_clients.h"
#include <string.h>

struct asynchronous asynchronous;

bool asynchronous_has_shard(unsigned shard) {
    /* One or two of the three. */
    return asynchronous.on && (shard == 0 || (shard == 1 && world.seed % 2));
}

/* The server that owns a slot now, whoever else may believe it; NULL: none that runs. */
const struct node *asynchronous_owner_now(unsigned slot) {
    const struct node *owner = NULL;
    uint64_t epoch = 0;
    for (unsigned i = 0; i < MACHINES; i++) {
        const struct cluster *cluster = cluster_sim.machines[i].cluster;
        if (!cluster || !cluster_serves(cluster, slot) || !node_is_primary(cluster->myself)) continue;
        if (owner && cluster->myself->config_epoch < epoch) continue;
        owner = &world.nodes[i];
        epoch = cluster->myself->config_epoch;
    }
    return owner;
}

/* Of what the shard has acknowledged, some may be lost now. */
void asynchronous_loses(unsigned shard) {
    for (unsigned i = 0; i < SHARD_KEYS; i++) world.floors[shard * SHARD_KEYS + i] = 0;
    asynchronous.losses++;
    moving_lose(shard);
}

/* It owns the slot, and has not been replaced in its shard. A primary that has been replaced, and does not know it, may
 * take its slots back: when it imports a slot, it takes a larger epoch. */
bool asynchronous_owns(const struct node *node, unsigned slot) {
    const struct node **leader = &asynchronous.leaders[node->shard];
    if (asynchronous_owner_now(cluster_sim.first_slot[node->shard]) != node) return false;
    if (*leader && *leader != node) asynchronous_loses(node->shard);
    *leader = node;
    return asynchronous_owner_now(slot) == node;
}

/* --- The primary --- */

/* A server whose history has ended, or which is to follow another one. */
void asynchronous_disconnect_replicas(const struct node *node) {
    for (unsigned i = 0; i < world.count; i++)
        if (world.nodes[i].link && world.nodes[i].follows == (int)node->index) world_link_down(&world.nodes[i]);
}

void asynchronous_leads(struct node *node) {
    world_note((int)node->index, "leads without an election of its shard, with %lld entries", (long long)node->len);
    world_link_down(node);
    node->replica = false;
    node->follows = -1;
    asynchronous_loses(node->shard);
}

static void acknowledge(uint32_t value) {
    world.acknowledged[value] = true;
    world.acknowledged_list[world.acknowledged_count++] = value;
}

static void asynchronous_requests(struct node *node) {
    unsigned slot = cluster_sim.first_slot[node->shard];
    if (node->replica || !sim_serves(&cluster_sim, node->index, slot)) return;
    unsigned key = node->shard * SHARD_KEYS + (unsigned)world_random(SHARD_KEYS);
    bool owns = asynchronous_owns(node, slot);
    if (owns && clients_value(node, key) < world.floors[key])
        world_violated("a shard has lost an acknowledged write without a failover", (int)node->index);
    asynchronous.reads += owns;
    if (asynchronous.quiet || world.now < node->final_until || world.next_value >= ENTRIES_MAX - 1 || world_random(6))
        return;
    uint32_t value = world.next_value++;
    world.shard_of[value] = (uint8_t)node->shard;
    world_append(node, (struct entry){.value = value, .key = (uint16_t)key});
    if (!owns) return;
    world.floors[key] = value;
    acknowledge(value);
}

/* --- The replica --- */

static void asynchronous_connect(struct node *node) {
    if (node->link || node->follows < 0 || world.now < node->retry) return;
    node->retry = world.now + 200;
    const struct node *primary = &world.nodes[node->follows];
    if (primary == node || !world_runs(primary) || !world_reaches_both((int)node->index, node->follows)) return;
    if (primary->replica && (!primary->link || primary->psync_at || primary->copy_until)) return; /* NOMASTERLINK */
    node->link = true;
    node->link_of = ++world.links;
    node->lag = (int64_t)world_random(3) ? 0 : (int64_t)world_random(40);
    node->psync_at = world.now + 1 + (int64_t)world_random(30);
}

static void asynchronous_psync(struct node *node) {
    const struct node *primary = &world.nodes[node->follows];
    node->psync_at = 0;
    if (node->len && world_is_prefix(node, primary)) return;
    world_note((int)node->index, "copies from %d", node->follows);
    node->copy_until = world.now + 1 + (int64_t)world_random(500);
    if (world.copied) world.copied(node, primary); /* the primary may write then */
    node->copy_len = primary->len;
    memcpy(node->copy, primary->log, (size_t)primary->len * sizeof *node->copy);
}

static void asynchronous_copy(struct node *node) {
    node->copy_until = 0;
    asynchronous_disconnect_replicas(node);
    node->len = node->base = node->copy_len;
    memcpy(node->log, node->copy, (size_t)node->len * sizeof *node->copy);
    world_find_latest(node);
    if (world.loads) world.loads(node);
}

static void asynchronous_replicate(struct node *node) {
    asynchronous_connect(node);
    if (!node->link) return;
    const struct node *primary = &world.nodes[node->follows];
    if (node->psync_at || node->copy_until) {
        if (!world_runs(primary) || !world_reaches_both((int)node->index, node->follows)) return;
        if (world.now < node->psync_at || world.now < node->copy_until) return;
        if (node->psync_at)
            asynchronous_psync(node);
        else
            asynchronous_copy(node);
        if (node->copy_until) return;
    }
    if (!primary->up || !world_reaches(node->follows, (int)node->index) || world_random(4) == 0) return;
    int64_t to = primary->sent - (world_random(3) ? 0 : node->lag);
    while (node->len < to) world_append(node, primary->log[node->len]);
    node->sent = node->len;
}

void asynchronous_turn(struct node *node) {
    if (node->freeze_ms) {
        node->frozen_until = world.now + node->freeze_ms;
        node->freeze_ms = 0;
        return;
    }
    asynchronous_requests(node);
    node->sent = node->len;
    if (node->replica) asynchronous_replicate(node);
}

/* --- The end --- */

/* Why the data of a shard have not converged; NULL: they have. */
const char *asynchronous_difference(void) {
    for (unsigned i = 0; i < MACHINES; i++) {
        const struct node *node = &world.nodes[i];
        if (!node->asynchronous || !node->replica) continue;
        const struct node *primary = &world.nodes[node->follows];
        if (!node->link || node->psync_at || node->copy_until) return "a replica has no link to its primary";
        if (node->len != primary->len || !world_is_prefix(node, primary))
            return "a replica does not have the data of its primary";
    }
    return NULL;
}
