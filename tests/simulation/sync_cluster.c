#include "sync_cluster.h"
#include "asynchronous_shards.h"
#include "membership_simulator.h"
#include "migration_simulator.h"
#include <stdio.h>
#include <string.h>

enum { FAULTS = 25 };

struct sim cluster_sim;

/* --- The machine's effects on its server: src/cluster/effects.c does the same --- */

static bool has_keys(const struct node *node) {
    bool found = moving_has_keys(node);
    for (int64_t i = 0; i < node->len && !found; i++) found = node->log[i].value;
    return found;
}

static void server_facts(void *context, struct cluster_facts *facts) {
    struct node *node = server_of(context);
    sim_effect_facts(context, facts);
    facts->offset = (uint64_t)node->len + 1;
    facts->primary_link_up = node->link;
    facts->bound = !node->asynchronous && !quorum_machine_may_leave(&node->machine);
    facts->has_keys = has_keys(node);
}

static void leave(struct node *node) {
    char id[QUORUM_ID_LEN + 1];
    if (!node->machine.state.group[0]) return;
    world_note((int)node->index, "leaves its group");
    world_fresh_id(node, id);
    quorum_machine_leave(&node->machine, id, world.now);
}

static void found(struct node *node) {
    char group[QUORUM_ID_LEN + 1];
    snprintf(group, sizeof group, "f%07x%032x", (unsigned)world_random(1 << 28), node->index);
    quorum_machine_establish(&node->machine, group, world.now);
}

/* The keys are deleted, and the group that the server founds has a history of its own. */
static void leave_and_found(struct node *node) {
    leave(node);
    world_link_down(node);
    node->replica = false;
    node->follows = -1;
    node->len = node->base = 0;
    moving_emptied(node);
    found(node);
    moving_leave_shard(node);
}

static void server_goes_to(struct node *node, int primary) {
    node->replica = true;
    node->follows = primary;
    if (node->up) world_follow(node, primary);
}

static void server_follow(void *context, const struct cluster_node *primary, bool same_shard) {
    int index = sim_index(primary->address);
    struct node *node = server_of(context);
    sim_effect_follow(context, primary, same_shard);
    if (index < 0) return;
    if (node->asynchronous) asynchronous_disconnect_replicas(node);
    if (!same_shard && node->up && !node->asynchronous) leave(node);
    server_goes_to(node, index);
}

void sync_server_lead(void *context, bool same_shard) {
    struct node *node = server_of(context);
    sim_effect_lead(context, same_shard);
    if (node->asynchronous)
        asynchronous_leads(node);
    else if (!same_shard)
        leave_and_found(node);
    else if (node->machine.status == QUORUM_ELECTED)
        quorum_machine_lead(&node->machine, world.now);
    else
        world_promote(node);
}

static enum cluster_mandate server_mandate(void *context) {
    if (server_of(context)->asynchronous) return MANDATE_NOT_NEEDED;
    switch (server_of(context)->machine.status) {
    case QUORUM_FOLLOWING: return MANDATE_NONE;
    case QUORUM_ELECTED:
    case QUORUM_LEADING: return MANDATE_HELD;
    default: return MANDATE_ASKED;
    }
}

static void server_stand(void *context, bool forced) {
    struct node *node = server_of(context);
    if (forced || (!quorum_machine_cannot_be_elected(&node->machine) && world.now >= node->machine.pre_votes_from_ms))
        world_promote(node);
}

static void server_stand_back(void *context) {
    const struct sim_machine *machine = context;
    const struct cluster_node *primary = machine->cluster->myself->primary;
    if (sim_index(primary->address) >= 0) server_goes_to(server_of(context), sim_index(primary->address));
}

/* The stream must not grow: the replica waits until it has all of it. */
static void server_pause_writes(void *context, int64_t until_ms) {
    const struct sim_machine *machine = context;
    server_of(context)->final_until = world.now + until_ms - sim_time(machine);
}
static void server_resume_writes(void *context) {
    server_of(context)->final_until = 0;
}

static void server_elected(struct node *node) {
    struct sim_machine *machine = machine_of(node);
    if (node_is_primary(machine->cluster->myself))
        quorum_machine_lead(&node->machine, world.now);
    else
        cluster_mandated(machine->cluster, sim_time(machine));
}
static bool server_serves(const struct node *node) {
    unsigned shard = world_shard_of(node);
    return shard < SHARDS && sim_serves(&cluster_sim, node->index, cluster_sim.first_slot[shard]);
}

/* --- Both together --- */

static void run_both(int64_t ms) {
    for (int64_t end = world.now + ms; world.now < end;) {
        sim_run(&cluster_sim, STEP_MS);
        world_step();
        moving_step();
        membership_step();
        if (!moving.on || moving.stopped) continue;
        if (world_random(20) == 0) moving_migrate_some_slot();
        if (world_random(30) == 0) moving_disturb_some_job();
    }
}

static void start(unsigned index) {
    struct node *node = &world.nodes[index];
    node->replica = false;
    node->follows = -1;
    sim_start(&cluster_sim.machines[index]);
    world_start(node);
    moving_started(node);
    if (!node->asynchronous && !node->replica && !node->machine.state.group[0]) found(node);
    if (!node->asynchronous || !moving.on) return;
    cluster_check_data(cluster_of(node), sim_time(machine_of(node)));
}

static void crash(struct node *node) {
    if (node->asynchronous && !node->replica) asynchronous_loses(node->shard);
    world_crash(node, true);
    moving_crashed(node);
    sim_crash(machine_of(node));
}

static void heal(void) {
    memset(world.cut, 0, sizeof world.cut);
    memset(cluster_sim.group, 0, sizeof cluster_sim.group);
}

static bool is_cut(void) {
    bool cut = false;
    for (unsigned a = 0; a < MACHINES; a++)
        for (unsigned b = 0; b < MACHINES; b++) cut |= world.cut[a][b] || cluster_sim.group[a] != cluster_sim.group[b];
    return cut;
}

static void cut_off_some(void) {
    unsigned alone = world_random(2) ? (unsigned)world_random(MACHINES) : MACHINES;
    unsigned kind = moving.on ? (unsigned)world_random(4) : 2; /* 0: only the cluster bus; 1: all but the bus */
    unsigned group[MACHINES];
    bool one_way = world_random(4) == 0;
    cluster_sim.no_single_owner |= kind == 0; /* a job goes on, and its claim may have the epoch of an election */
    for (unsigned i = 0; i < MACHINES; i++) group[i] = alone < MACHINES ? i == alone : world_random(3) == 0;
    for (unsigned i = 0; i < MACHINES && kind != 1; i++) cluster_sim.group[i] = group[i];
    for (unsigned a = 0; a < MACHINES && kind != 0; a++)
        for (unsigned b = 0; b < MACHINES; b++) world.cut[a][b] = one_way ? group[a] < group[b] : group[a] != group[b];
    for (unsigned i = 0; i < MACHINES; i++) /* connections over the cut end after a while */
        if (world.nodes[i].link && !world_reaches_both((int)i, world.nodes[i].follows) && world_random(3))
            world_link_down(&world.nodes[i]);
}

static void any_fault(int64_t timeout) {
    struct node *node = &world.nodes[world_random(MACHINES)];
    struct sim_machine *machine = machine_of(node);
    if (membership.on && world_random(4) == 0) {
        membership_change(node);
        return;
    }
    switch (world_random(8)) {
    case 0:
    case 1:
        if (!node->up || !membership_may_lose_data(node)) break;
        crash(node);
        break;
    case 2:
    case 3:
        if (!node->up) start(node->index);
        break;
    case 4:
        if (!node->up) break;
        sim_freeze(machine, (int64_t)world_random((uint64_t)timeout * 3));
        node->freeze_ms = machine->frozen_until_ms - cluster_sim.now_ms;
        node->freeze_phase = (unsigned)world_random(TURN_PHASES);
        break;
    case 5: cut_off_some(); break;
    case 6: heal(); break;
    case 7: {
        static const enum failover_kind kinds[] = {FAILOVER_NORMAL, FAILOVER_NORMAL, FAILOVER_FORCE, FAILOVER_TAKEOVER};
        enum failover_kind kind = kinds[world_random(4)];
        if (!world_runs(node) || (kind == FAILOVER_TAKEOVER && moving.on && is_cut())) break; /* docs/cluster.md */
        cluster_sim.no_single_owner |= kind == FAILOVER_TAKEOVER; /* an epoch without consensus */
        world_note((int)node->index, "CLUSTER FAILOVER %d", (int)kind);
        cluster_failover(machine->cluster, kind, "test", sim_time(machine));
        cluster_flush(machine->cluster, sim_time(machine));
    }
    }
    memset(cluster_sim.minority_since_ms, 0, sizeof cluster_sim.minority_since_ms);
    memset(cluster_sim.double_since_ms, 0, sizeof cluster_sim.double_since_ms);
}

static unsigned acknowledged_of(unsigned shard) {
    unsigned count = 0;
    for (uint32_t i = 0; i < world.acknowledged_count; i++)
        count += world.shard_of[world.acknowledged_list[i]] == shard;
    return count;
}

static void begin(uint64_t seed, int64_t timeout) {
    world_clear(seed, MACHINES, 1);
    world.elected = server_elected;
    world.serves = server_serves;
    world.asynchronous_turn = asynchronous_turn;
    asynchronous.quiet = false;
    memset(asynchronous.leaders, 0, sizeof asynchronous.leaders);
    moving.may_crash = membership_may_lose_data;
    moving.crash = crash;
    if (moving.on) moving_begin();
    membership_begin();
    sim_init(&cluster_sim, seed, MACHINES, timeout);
    for (unsigned i = 0; i < MACHINES; i++) {
        struct sim_machine *machine = &cluster_sim.machines[i];
        machine->settings.fast_failover = seed & 1;
        machine->settings.allow_replica_migration = false;
        cluster_configure(machine->cluster, &machine->settings, sim_time(machine));
        world.nodes[i].shard = i % SHARDS;
        world.nodes[i].asynchronous = asynchronous_has_shard(i % SHARDS);
        if (moving.on) migrations_of(&world.nodes[i])->cluster = machine->cluster;
        world_start(&world.nodes[i]);
        char group[QUORUM_ID_LEN + 1];
        snprintf(group, sizeof group, "%040u", i); /* world_shard_of() */
        if (i < SHARDS && !world.nodes[i].asynchronous)
            quorum_machine_establish(&world.nodes[i].machine, group, world.now);
    }
    sim_build(&cluster_sim, SHARDS, 60000 + 4 * timeout);
    run_both(4000);
}

static unsigned recovered_shards(const unsigned *before) {
    unsigned count = 0;
    for (unsigned i = 0; i < SHARDS; i++) count += acknowledged_of(i) > before[i];
    return count;
}

static unsigned reads, writes, elections, seeds;
/* Shards that can elect a primary in the end, and those that must not: too few members of their sets are sure to have
 * all that they have acknowledged, so a write may be on none of these. */
static struct { unsigned shards, recovered; } able, unable;

static bool can_elect(unsigned shard) {
    return asynchronous_has_shard(shard) || membership_elects_without(shard, NULL);
}

static bool all_can_elect(void) {
    bool all = true;
    for (unsigned shard = 0; shard < SHARDS; shard++) all &= can_elect(shard);
    return all;
}

static void say_unrecovered(const unsigned *before) {
    for (unsigned i = 0; i < MACHINES; i++) {
        const struct node *node = &world.nodes[i];
        unsigned shard = world_shard_of(node);
        if (shard == NO_SHARD || acknowledged_of(shard) > before[shard] || !can_elect(shard)) continue;
        const struct cluster_node *myself = machine_of(node)->cluster->myself;
        printf("seed %llu: shard %u, server %u: %s of the cluster, status %d, %s, %s, %u members, follows %d%s\n",
               (unsigned long long)world.seed, shard, i, node_is_primary(myself) ? "primary" : "replica",
               (int)node->machine.status, node->machine.complete ? "sure" : "not sure",
               node->machine.reason ? node->machine.reason : "no obstacle", (unsigned)node->machine.state.set.now.count,
               node->follows, node->link ? "" : " without a link");
    }
}

static const char *difference(void) {
    const char *why = asynchronous_difference();
    return !why && moving.on ? moving_keys_left_behind() : why;
}

static void run_one(uint64_t seed) {
    static const int64_t timeouts[] = {1000, 2000, 5000};
    int64_t timeout = timeouts[seed % 3];
    begin(seed, timeout);
    cluster_sim.latency_ms = world_random(3) ? 3 : moving.on && world_random(2) ? 400 : 50;
    cluster_sim.break_one_in = world_random(2) ? 0 : 200;
    cluster_sim.lose_one_in = world_random(3) ? 0 : 50;
    for (unsigned i = 0; i < FAULTS; i++) {
        any_fault(timeout);
        run_both((int64_t)world_random((uint64_t)timeout * (i % 5 ? 1 : 4)));
    }
    world_note(-1, "no more faults");
    moving.stopped = true;
    cluster_sim.break_one_in = cluster_sim.lose_one_in = 0;
    heal();
    for (unsigned i = 0; i < MACHINES; i++) {
        cluster_sim.machines[i].frozen_until_ms = 0;
        world.nodes[i].frozen_until = world.nodes[i].freeze_ms = 0;
        if (!world.nodes[i].up) start(i);
    }
    unsigned before[SHARDS];
    for (unsigned i = 0; i < SHARDS; i++) before[i] = acknowledged_of(i);
    for (int64_t waited = 0; sim_disagreement(&cluster_sim); waited += 500) {
        run_both(500);
        if (waited > 10 * timeout + 60000 && moving.on && !all_can_elect()) break; /* it decides on no granted slots */
        if (waited > 10 * timeout + 60000)
            sim_fail(&cluster_sim, "no agreement after the faults: %s", sim_disagreement(&cluster_sim));
    }
    for (int i = 0; i < 60 && recovered_shards(before) < SHARDS; i++) run_both(500);
    for (unsigned i = 0; i < SHARDS; i++) {
        bool serves = acknowledged_of(i) > before[i], counts = serves || can_elect(i);
        if (!counts && world.seed % 10) world_violated("a shard has lost too many servers", -1);
        (counts ? &able : &unable)->shards++;
        able.recovered += serves;
    }
    if (moving.on && recovered_shards(before) == SHARDS) {
        const char *why = moving_unfinished();
        for (int64_t waited = 0; why && waited < 10 * timeout + 60000; waited += 500, why = moving_unfinished())
            run_both(500);
        if (why) world_violated(why, -1);
    }
    say_unrecovered(before);
    asynchronous.quiet = true;
    for (int64_t waited = 0; asynchronous.on && difference(); waited += 100) {
        if (waited > 10 * timeout + 30000) world_violated(difference(), -1);
        run_both(100);
    }
    reads += world.reads;
    writes += world.acknowledged_count;
    elections += cluster_sim.elections;
    seeds++;
    sim_free(&cluster_sim);
}

int sync_cluster_simulate(int argc, char **argv) {
    static struct cluster_effects effects;
    unsigned long long first = 1, last = 100;
    moving.on = membership.on = asynchronous.on = asynchronous.trial = false;
    asynchronous.losses = asynchronous.reads = 0;
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && (strcmp(argv[i], "--seed") == 0 || strcmp(argv[i], "--seeds") == 0)) {
            world.verbose = strcmp(argv[i], "--seed") == 0;
            if (sscanf(argv[++i], "%llu-%llu", &first, &last) < 2) last = first;
        } else if (strcmp(argv[i], "--migrations") == 0) {
            moving.on = true;
        } else if (strcmp(argv[i], "--members") == 0) {
            membership.on = true;
        } else if (strcmp(argv[i], "--mixed") == 0) {
            asynchronous.on = true;
        } else if (strcmp(argv[i], "--trial") == 0) {
            asynchronous.trial = true;
        } else {
            fprintf(stderr, "unknown argument %s\n", argv[i]);
            return 2;
        }
    }
    if (membership.on && asynchronous.on) {
        fprintf(stderr, "--members and --mixed exclude each other\n");
        return 2;
    }
    log_level = LOG_LEVEL_NOTICE;
    effects = sim_effects;
    effects.facts = server_facts;
    effects.follow = server_follow;
    effects.lead = sync_server_lead;
    effects.mandate = server_mandate;
    effects.stand = server_stand;
    effects.stand_back = server_stand_back;
    effects.pause_writes = server_pause_writes;
    effects.resume_writes = server_resume_writes;
    if (moving.on) moving_set_effects(&effects);
    sim_uses = &effects;
    for (uint64_t seed = first; seed <= last; seed++) run_one(seed);
    printf("%u seeds: %u failovers, %u acknowledged writes, %u reads checked; in the end %u of %u shards acknowledge "
           "writes; in %u others too many servers may have lost data\n",
           seeds, elections, writes, reads, able.recovered, able.shards, unable.shards);
    if (asynchronous.on)
        printf("Shards without synchronous replication: %u reads checked, %u failovers or crashes of a primary, equal "
               "data in the end\n",
               asynchronous.reads, asynchronous.losses);
    if (membership.on) printf("%u resets, %u times a server joined a shard\n", membership.resets, membership.joins);
    if (moving.on)
        printf("%u slot migrations: %u imports succeeded, %u failed, %u grants were taken back\n", moving.names,
               moving.done, moving.failed, moving.refused);
    return able.recovered < able.shards;
}
