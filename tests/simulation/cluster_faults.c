/* cluster_faults.c: see cluster_faults.h. */
#include "cluster_faults.h"
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The end of a slot migration. */
static void take_some_slot(struct sim_machine *machine) {
    unsigned slot = sim_below(machine->sim, HASH_SLOTS);
    const struct cluster_node *owner = machine->cluster->slots.owner[slot];
    struct slot_bitmap slots = {0};
    if (!owner || owner->slot_count < 2) return; /* the last slot takes the replicas along */
    slot_bitmap_set(&slots, slot);
    sim_note(machine->sim, (int)machine->index, "--- takes slot %u", slot);
    cluster_take_slots(machine->cluster, &slots, sim_time(machine));
}

static void cut_link(struct sim *sim) {
    unsigned a = sim_below(sim, sim->count), b = sim_below(sim, sim->count);
    sim_note(sim, -1, "--- cut %u %u", a, b);
    if (a == b || sim->cuts == SIM_CUTS_MAX) return;
    sim->cut[sim->cuts][0] = a;
    sim->cut[sim->cuts++][1] = b;
}

/* What no TCP does. */
static void spoil_messages(struct sim *sim) {
    sim->lose_one_in = sim_below(sim, 2) ? 0 : 20 + sim_below(sim, 200);
    sim->duplicate_one_in = sim_below(sim, 2) ? 0 : 5 + sim_below(sim, 100);
    sim->reorders = sim_below(sim, 2);
    sim_note(sim, -1, "--- lose %u duplicate %u reorder %d", sim->lose_one_in, sim->duplicate_one_in, sim->reorders);
}

static void random_fault(struct sim *sim, int64_t timeout) {
    bool large = sim->count > SIM_LARGE;
    struct sim_machine *machine = &sim->machines[sim_below(sim, sim->count)];
    switch (sim_below(sim, large ? 12 : 9)) {
    case 0:
    case 1: sim_crash(machine); break;
    case 2:
    case 3:
        if (large) sim_crash(machine);
        if (!machine->cluster) sim_start(machine);
        break;
    case 4:
        if (machine->cluster) sim_freeze(machine, (int64_t)sim_below(sim, (unsigned)timeout * 3));
        break;
    case 5: { /* a partition into two sides; of a large cluster a small part is cut off */
        sim_note(sim, -1, "--- partition");
        unsigned one_in = large ? 10 + sim_below(sim, 100) : 3;
        for (unsigned i = 0; i < sim->count; i++) sim->group[i] = sim_below(sim, one_in) == 0;
        break;
    }
    case 6:
        sim_note(sim, -1, "--- the network heals");
        for (unsigned i = 0; i < sim->count; i++) sim->group[i] = 0;
        sim->cuts = 0;
        break;
    case 7: /* a command */
        if (!machine->cluster) break;
        if (large) sim_note(sim, (int)machine->index, "--- command");
        if (sim_below(sim, 4))
            cluster_failover(machine->cluster, sim_below(sim, 2) ? FAILOVER_NORMAL : FAILOVER_FORCE, "test",
                             sim_time(machine));
        else if (sim->no_single_owner && node_votes(machine->cluster->myself) && sim_below(sim, 2))
            take_some_slot(machine);
        else if (sim->no_single_owner)
            cluster_bump_epoch(machine->cluster, sim_time(machine));
        cluster_flush(machine->cluster, sim_time(machine));
        break;
    case 8: /* the clock jumps */
        machine->skew_ms += (int64_t)sim_below(sim, (unsigned)timeout / 4) - timeout / 8;
        if (large) sim_note(sim, (int)machine->index, "--- clock at %+lld ms", (long long)machine->skew_ms);
        break;
    case 9: cut_link(sim); break;
    case 10: /* some neighbours */
        for (unsigned i = 2 + sim_below(sim, 7); i > 0; i--)
            sim_crash(&sim->machines[(machine->index + i) % sim->count]);
        break;
    case 11: spoil_messages(sim); break;
    }
}

/* To connect a thousand machines takes longer than what is done to them. So one cluster may have several histories, in
 * processes that share it: the variants 1 to `count` - 1 of the seed. Returns true in each of these processes, which
 * has to exit, and in the end false in this one. */
static bool sim_in_variant(struct sim *sim, unsigned count, bool *failed) {
    for (unsigned variant = 1; variant < count; variant++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            sim->variant = variant;
            return true;
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child) sim_fail(sim, "no process for variant %u", variant);
        if (status != 0) {
            printf("seed %llu variant %u failed\n", (unsigned long long)sim->seed, variant);
            *failed = true;
        }
    }
    return false;
}

uint64_t run_seed_with(uint64_t seed, const struct seed_options *options) {
    unsigned count = options->count, faults = options->faults;
    static struct sim sim;
    static const int64_t timeouts[] = {1000, 2000, 5000, 15000};
    uint64_t random = seed * 0x9e3779b97f4a7c15 + 1;
#define DRAW(bound) ((unsigned)((random = random * 6364136223846793005 + 1442695040888963407) >> 33) % (bound))
    int64_t timeout = timeouts[DRAW(4)];
    unsigned replicas = DRAW(3), primaries = 3 + DRAW(3);
    bool large = count > SIM_LARGE;
    if (large) timeout = DRAW(2) ? 5000 : 15000;
    if (count) {
        primaries = count / (1 + replicas) > 3 ? count / (1 + replicas) : count < 3 ? count : 3;
        sim_init_built(&sim, seed, count, primaries, timeout);
    } else {
        sim_init(&sim, seed, primaries * (1 + replicas), timeout);
    }
    sim.verbose = options->print;
    bool fast = DRAW(2), skewed = DRAW(3) == 0;
    for (unsigned i = 0; i < sim.count; i++) {
        struct sim_machine *machine = &sim.machines[i];
        machine->skew_ms = skewed ? (int64_t)DRAW(2000) - 1000 : 0;
        machine->settings.fast_failover = fast;
        cluster_configure(machine->cluster, &machine->settings, sim_time(machine));
    }
    if (count)
        sim_agree_built(&sim, 60000 + 4 * timeout);
    else
        sim_build(&sim, primaries, 60000 + 4 * timeout);
    sim.variant = options->variant;
    bool failed = false, exits = sim_in_variant(&sim, options->variants, &failed);
    clock_t start = clock(); /* of the CPU */
    int64_t start_ms = sim.now_ms;
    sim.elections = 0;
    sim.faults[0] = 0;
    random += sim.variant;
    sim.random += sim.variant;
    sim.no_single_owner = DRAW(4) == 0;
    sim.latency_ms = DRAW(3) ? 3 : 50;
    sim.break_one_in = DRAW(2) ? 0 : large ? 20000 : 200;
    if (DRAW(2)) { /* no TCP does this */
        sim.lose_one_in = DRAW(2) ? 0 : 20 + DRAW(200);
        sim.duplicate_one_in = DRAW(2) ? 0 : 5 + DRAW(100);
        sim.reorders = DRAW(2);
    }
    if (large && faults) faults = 1 + sim_below(&sim, faults);
    for (unsigned i = 0; i < faults; i++) {
        random_fault(&sim, timeout);
        /* The silence of other machines begins now. */
        memset(sim.minority_since_ms, 0, sizeof sim.minority_since_ms);
        memset(sim.double_since_ms, 0, sizeof sim.double_since_ms);
        sim_run(&sim, sim_below(&sim, large ? (unsigned)timeout * 3 / faults : (unsigned)timeout * (i % 5 ? 2 : 5)));
    }
    sim.break_one_in = sim.lose_one_in = sim.duplicate_one_in = 0;
    sim.reorders = false;
    sim.cuts = 0;
    sim_note(&sim, -1, "--- no more faults");
    for (unsigned i = 0; i < sim.count; i++) {
        sim.group[i] = 0;
        sim.machines[i].frozen_until_ms = 0;
        if (!sim.machines[i].cluster) sim_start(&sim.machines[i]);
    }
    int64_t agree_ms = sim_agree(&sim, 10 * timeout + 30000);
    if (large)
        printf("seed %llu variant %u passed in %.1f s, agreed after %.1f s, elections %u, CPU %.1f s, %016llx: %s\n",
               (unsigned long long)seed, sim.variant, (double)(sim.now_ms - start_ms) / 1000, (double)agree_ms / 1000,
               sim.elections, (double)(clock() - start) / CLOCKS_PER_SEC, (unsigned long long)sim.digest, sim.faults);
    fflush(stdout);
    if (exits) _exit(0);
    sim_free(&sim);
    if (failed) exit(1); /* after all variants */
    return sim.digest;
#undef DRAW
}
uint64_t run_seed(uint64_t seed, unsigned count, unsigned faults) {
    return run_seed_with(seed, &(struct seed_options){.count = count, .faults = faults});
}

unsigned run_pauses(uint64_t seed, unsigned count) {
    static struct sim sim;
    enum { NODES = 9, TIMEOUT_MS = 15000, DOWN_MS = 250 };
    sim_init(&sim, seed, NODES, TIMEOUT_MS);
    for (unsigned i = 0; i < NODES; i++) {
        struct sim_machine *machine = &sim.machines[i];
        machine->settings.fast_failover = true;
        cluster_configure(machine->cluster, &machine->settings, sim_time(machine));
    }
    sim_build(&sim, 3, 60000);
    sim_run(&sim, 5000);
    for (unsigned i = 0; i < count; i++) {
        struct sim_machine *machine = &sim.machines[sim_below(&sim, NODES)];
        if (sim_below(&sim, 2)) {
            sim_freeze(machine, 1 + sim_below(&sim, TIMEOUT_MS * 9 / 10));
            sim_run(&sim, TIMEOUT_MS);
        } else {
            sim_crash(machine);
            sim_run(&sim, sim_below(&sim, DOWN_MS));
            sim_start(machine);
            sim_run(&sim, 5000);
        }
        sim.break_one_in = sim_below(&sim, 2) ? 200 : 0;
    }
    unsigned elections = sim.elections;
    sim_free(&sim);
    return elections;
}

int64_t run_death(uint64_t seed) {
    static struct sim sim;
    enum { NODES = 9, TIMEOUT_MS = 15000 };
    sim_init(&sim, seed, NODES, TIMEOUT_MS);
    for (unsigned i = 0; i < NODES; i++) {
        struct sim_machine *machine = &sim.machines[i];
        machine->settings.fast_failover = true;
        cluster_configure(machine->cluster, &machine->settings, sim_time(machine));
    }
    sim_build(&sim, 3, 60000);
    sim_run(&sim, 5000 + sim_below(&sim, 10000));
    sim_crash(&sim.machines[sim_below(&sim, 3)]);
    int64_t start_ms = sim.now_ms;
    while (sim.elections == 0 && sim.now_ms - start_ms < 60000) sim_run(&sim, 5);
    int64_t took_ms = sim.now_ms - start_ms;
    sim_free(&sim);
    return took_ms;
}
