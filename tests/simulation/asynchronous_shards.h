/* asynchronous_shards.h: shards of cluster_sync.c without synchronous replication, beside those with it.
 *
 * A server of such a shard answers its clients at once, and sends its log to replicas, which continue it or copy it as
 * a whole. The cluster alone elects the primary: an elected replica leads at once, with the data that it has. So
 * a failover, or a crash of the primary, may lose acknowledged writes, and two primaries may serve for a while. Checked
 * is what such shards promise nevertheless:
 *
 *     - the server that owns the slots (of those that claim them, the one with the largest epoch) has everything that
 *       it and its predecessors have acknowledged, until the shard fails over or its primary crashes. A migration of a
 *       slot, also from or to a shard with synchronous replication, loses nothing then, and leaves no keys behind
 *     - a slot has one owner in the end: cluster_simulator.h and migration_simulator.h
 *     - when the faults are over, and nobody writes, all replicas have the data of their primary
 *
 * What the shards with synchronous replication promise holds without a change. */
#ifndef TESTS_SIMULATION_ASYNCHRONOUS_SHARDS_H
#define TESTS_SIMULATION_ASYNCHRONOUS_SHARDS_H

static struct {
    bool on, quiet; /* quiet: nobody writes to them */
    bool trial;     /* the source of a migration does not hold writes; the simulation must find what that loses */
    unsigned losses, reads;
    const struct node *leaders[SHARDS]; /* as far as writes were acknowledged or read */
} asynchronous;

static bool is_asynchronous(unsigned shard) {
    /* One or two of the three. */
    return asynchronous.on && (shard == 0 || (shard == 1 && world.seed % 2));
}

/* The server that owns a slot now, whoever else may believe it; NULL: none that runs. */
static const struct node *owner_now(unsigned slot) {
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

static void migrations_lose(unsigned shard);

/* Of what the shard has acknowledged, some may be lost now. */
static void asynchronous_loses(unsigned shard) {
    for (unsigned i = 0; i < SHARD_KEYS; i++) world.floors[shard * SHARD_KEYS + i] = 0;
    asynchronous.losses++;
    migrations_lose(shard);
}

/* It owns the slot, and has not been replaced in its shard. A primary that has been replaced, and does not know it, may
 * take its slots back: when it imports a slot, it takes a larger epoch. */
static bool asynchronous_owns(const struct node *node, unsigned slot) {
    const struct node **leader = &asynchronous.leaders[node->shard];
    if (owner_now(cluster_sim.first_slot[node->shard]) != node) return false;
    if (*leader && *leader != node) asynchronous_loses(node->shard);
    *leader = node;
    return owner_now(slot) == node;
}

/* --- The primary --- */

/* A server whose history has ended, or which is to follow another one. */
static void disconnect_replicas(const struct node *node) {
    for (unsigned i = 0; i < world.count; i++)
        if (world.nodes[i].link && world.nodes[i].follows == (int)node->index) link_down(&world.nodes[i]);
}

static void asynchronous_leads(struct node *node) {
    note((int)node->index, "leads without an election of its shard, with %lld entries", (long long)node->len);
    link_down(node);
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
    unsigned key = node->shard * SHARD_KEYS + (unsigned)below(SHARD_KEYS);
    bool owns = asynchronous_owns(node, slot);
    if (owns && value_of(node, key) < world.floors[key])
        violated("a shard has lost an acknowledged write without a failover", (int)node->index);
    asynchronous.reads += owns;
    if (asynchronous.quiet || world.now < node->final_until || world.next_value >= ENTRIES_MAX - 1 || below(6)) return;
    uint32_t value = world.next_value++;
    world.shard_of[value] = (uint8_t)node->shard;
    append(node, (struct entry){.value = value, .key = (uint16_t)key});
    if (!owns) return;
    world.floors[key] = value;
    acknowledge(value);
}

/* --- The replica --- */

static void asynchronous_connect(struct node *node) {
    if (node->link || node->follows < 0 || world.now < node->retry) return;
    node->retry = world.now + 200;
    const struct node *primary = &world.nodes[node->follows];
    if (primary == node || !runs(primary) || !reaches_both((int)node->index, node->follows)) return;
    if (primary->replica && (!primary->link || primary->psync_at || primary->copy_until)) return; /* NOMASTERLINK */
    node->link = true;
    node->link_of = ++world.links;
    node->lag = (int64_t)below(3) ? 0 : (int64_t)below(40);
    node->psync_at = world.now + 1 + (int64_t)below(30);
}

static void asynchronous_psync(struct node *node) {
    const struct node *primary = &world.nodes[node->follows];
    node->psync_at = 0;
    if (node->len && is_prefix(node, primary)) return;
    note((int)node->index, "copies from %d", node->follows);
    node->copy_until = world.now + 1 + (int64_t)below(500);
    if (world.copied) world.copied(node, primary); /* the primary may write then */
    node->copy_len = primary->len;
    memcpy(node->copy, primary->log, (size_t)primary->len * sizeof *node->copy);
}

static void asynchronous_copy(struct node *node) {
    node->copy_until = 0;
    disconnect_replicas(node);
    node->len = node->base = node->copy_len;
    memcpy(node->log, node->copy, (size_t)node->len * sizeof *node->copy);
    find_latest(node);
    if (world.loads) world.loads(node);
}

static void asynchronous_replicate(struct node *node) {
    asynchronous_connect(node);
    if (!node->link) return;
    const struct node *primary = &world.nodes[node->follows];
    if (node->psync_at || node->copy_until) {
        if (!runs(primary) || !reaches_both((int)node->index, node->follows)) return;
        if (world.now < node->psync_at || world.now < node->copy_until) return;
        if (node->psync_at)
            asynchronous_psync(node);
        else
            asynchronous_copy(node);
        if (node->copy_until) return;
    }
    if (!primary->up || !reachable(node->follows, (int)node->index) || below(4) == 0) return;
    int64_t to = primary->sent - (below(3) ? 0 : node->lag);
    while (node->len < to) append(node, primary->log[node->len]);
    node->sent = node->len;
}

static void asynchronous_turn(struct node *node) {
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
static const char *asynchronous_difference(void) {
    for (unsigned i = 0; i < MACHINES; i++) {
        const struct node *node = &world.nodes[i];
        if (!node->asynchronous || !node->replica) continue;
        const struct node *primary = &world.nodes[node->follows];
        if (!node->link || node->psync_at || node->copy_until) return "a replica has no link to its primary";
        if (node->len != primary->len || !is_prefix(node, primary))
            return "a replica does not have the data of its primary";
    }
    return NULL;
}
#endif
