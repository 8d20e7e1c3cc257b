/* Clusters of state machines in virtual time: joining, failover, and seeds of random faults.
 *
 *     test_cluster_simulation                     a few hundred seeds
 *     test_cluster_simulation --seeds 1000-5000   these seeds
 *     test_cluster_simulation --seed 17           one, with its history */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>
#include "cluster_simulator.h"

static void nodes_join_through_one(void **state) {
    static struct sim sim;
    for (unsigned count = 2; count <= 32; count *= 4) {
        sim_init(&sim, count, count, 5000);
        sim_build(&sim, count < 3 ? count : 3, 60000);
        sim_free(&sim);
    }
}

/* Runs until a replica of each of the first `shards` shards has taken over; returns the time of the last one. */
static int64_t wait_failover(struct sim *sim, unsigned shards, unsigned primaries, int64_t limit_ms) {
    int64_t start_ms = sim->now_ms;
    for (;; sim_run(sim, 10)) {
        unsigned done = 0;
        for (unsigned shard = 0; shard < shards; shard++)
            for (unsigned i = primaries + shard; i < sim->count; i += primaries)
                if (sim->machines[i].cluster && sim->machines[i].following < 0) {
                    done++;
                    break;
                }
        if (done == shards) return sim->now_ms - start_ms;
        if (sim->now_ms - start_ms > limit_ms)
            sim_fail(sim, "%u of %u shards without a primary after %lld ms", shards - done, shards,
                     (long long)limit_ms);
    }
}

static void a_replica_takes_over(void **state) {
    static struct sim sim;
    for (unsigned seed = 0; seed < 20; seed++) {
        int64_t timeout = seed % 2 ? 15000 : 2000;
        unsigned replicas = 1 + seed % 3;
        sim_init(&sim, seed, 3 + 3 * replicas, timeout);
        sim_build(&sim, 3, 60000);
        if (seed % 4 < 2)
            sim_crash(&sim.machines[0]);
        else
            sim_freeze(&sim.machines[0], 100 * timeout);
        wait_failover(&sim, 1, 3, timeout * 3 / 2 + 2000);
        sim_run(&sim, 1000);
        struct sim_machine *owner = sim_owner(&sim, 1, 0);
        assert_true(owner->index >= 3 && owner->index % 3 == 0);
        assert_true(sim.machines[1].cluster->ok);
        assert_int_equal(sim.elections, 1);
        sim_free(&sim);
    }
}

static void several_shards_fail_over_one_after_another(void **state) {
    static struct sim sim;
    for (unsigned seed = 0; seed < 5; seed++) {
        sim_init(&sim, seed, 22, 5000);
        sim_build(&sim, 11, 60000);
        for (unsigned i = 0; i < 5; i++) sim_crash(&sim.machines[i]);
        wait_failover(&sim, 5, 11, 5000 * 3 / 2 + 2000 + 5 * 500);
        sim_run(&sim, 5000);
        assert_true(sim.machines[10].cluster->ok);
        sim_free(&sim);
    }
}

/* Pauses that are shorter than the node timeout change nothing. */
static void short_pauses_cause_no_failover(void **state) {
    static struct sim sim;
    for (unsigned fast = 0; fast < 2; fast++) {
        sim_init(&sim, 7 + fast, 6, 5000);
        for (unsigned i = 0; i < 6; i++) {
            sim.machines[i].settings.fast_failover = fast;
            cluster_configure(sim.machines[i].cluster, &sim.machines[i].settings, sim_time(&sim.machines[i]));
        }
        sim_build(&sim, 3, 60000);
        for (unsigned i = 0; i < 600; i++) {
            sim_freeze(&sim.machines[i % 6], 4000);
            sim_run(&sim, 6000);
            /* A break of the network's connections alone is no failure either. */
            sim.break_one_in = i % 2 ? 50 : 0;
        }
        assert_int_equal(sim.elections, 0);
        sim_free(&sim);
    }
}

static void build_fast(struct sim *sim, uint64_t seed, unsigned fast) {
    sim_init(sim, seed, 9, 15000);
    for (unsigned i = 0; i < 9; i++) {
        sim->machines[i].settings.fast_failover = i >= 9 - fast;
        cluster_configure(sim->machines[i].cluster, &sim->machines[i].settings, sim_time(&sim->machines[i]));
    }
    sim_build(sim, 3, 60000);
    sim_run(sim, 5000);
}

static void a_dead_process_is_replaced_within_a_second(void **state) {
    static struct sim sim;
    for (unsigned seed = 0; seed < 20; seed++) {
        build_fast(&sim, seed, 9);
        sim_crash(&sim.machines[0]);
        int64_t took_ms = wait_failover(&sim, 1, 3, 1000);
        assert_true(took_ms >= 300);
        sim_start(&sim.machines[0]);
        sim_agree(&sim, 60000);
        sim_free(&sim);
        /* A process that restarts at once stays the primary. */
        build_fast(&sim, seed, 9);
        sim_crash(&sim.machines[0]);
        sim_run(&sim, 200);
        sim_start(&sim.machines[0]);
        sim_agree(&sim, 60000);
        assert_int_equal(sim.elections, 0);
        sim_free(&sim);
        /* One voter alone is no majority; it takes the node timeout. */
        build_fast(&sim, seed, 7);
        sim_crash(&sim.machines[0]);
        assert_true(wait_failover(&sim, 1, 3, 15000 * 3 / 2 + 2000) > 10000);
        sim_free(&sim);
    }
}

static void random_fault(struct sim *sim, int64_t timeout) {
    struct sim_machine *machine = &sim->machines[sim_below(sim, sim->count)];
    switch (sim_below(sim, 8)) {
    case 0:
    case 1: sim_crash(machine); break;
    case 2:
    case 3:
        if (!machine->cluster) sim_start(machine);
        break;
    case 4:
        if (machine->cluster) sim_freeze(machine, (int64_t)sim_below(sim, (unsigned)timeout * 3));
        break;
    case 5: /* a partition into two sides, or one machine alone */
        sim_note(sim, -1, "--- partition");
        for (unsigned i = 0; i < sim->count; i++) sim->group[i] = sim_below(sim, 3) == 0;
        break;
    case 6:
        sim_note(sim, -1, "--- the network heals");
        for (unsigned i = 0; i < sim->count; i++) sim->group[i] = 0;
        break;
    case 7: /* a command */
        if (!machine->cluster) break;
        if (sim_below(sim, 4))
            cluster_failover(machine->cluster, sim_below(sim, 2) ? FAILOVER_NORMAL : FAILOVER_FORCE, "test",
                             sim_time(machine));
        else
            cluster_bump_epoch(machine->cluster, sim_time(machine));
        cluster_flush(machine->cluster, sim_time(machine));
        break;
    }
}

static void run_seed(uint64_t seed, bool print) {
    static struct sim sim;
    static const int64_t timeouts[] = {1000, 2000, 5000, 15000};
    srand((unsigned)seed);
    unsigned primaries = 3 + (unsigned)rand() % 3, replicas = (unsigned)rand() % 3;
    int64_t timeout = timeouts[rand() % 4];
    sim_init(&sim, seed, primaries * (1 + replicas), timeout);
    sim.verbose = print;
    bool fast = rand() % 2;
    for (unsigned i = 0; i < sim.count; i++) {
        sim.machines[i].skew_ms = rand() % 3 ? 0 : rand() % 2000 - 1000;
        sim.machines[i].settings.fast_failover = fast;
    }
    sim_build(&sim, primaries, 60000 + 4 * timeout);
    sim.latency_ms = (unsigned)rand() % 3 ? 3 : 50;
    sim.break_one_in = (unsigned)rand() % 2 ? 0 : 200;
    for (int i = 0; i < 30; i++) {
        random_fault(&sim, timeout);
        /* The silence of other machines begins now. */
        memset(sim.minority_since_ms, 0, sizeof sim.minority_since_ms);
        memset(sim.double_since_ms, 0, sizeof sim.double_since_ms);
        sim_run(&sim, sim_below(&sim, (unsigned)timeout * (i % 5 ? 2 : 5)));
    }
    sim.break_one_in = 0;
    sim_note(&sim, -1, "--- no more faults");
    for (unsigned i = 0; i < sim.count; i++) {
        sim.group[i] = 0;
        sim.machines[i].frozen_until_ms = 0;
        if (!sim.machines[i].cluster) sim_start(&sim.machines[i]);
    }
    sim_agree(&sim, 10 * timeout + 30000);
    sim_free(&sim);
}

static uint64_t first_seed = 1, last_seed = 200;
static bool verbose;
static void seeds_of_faults_end_in_agreement(void **state) {
    for (uint64_t seed = first_seed; seed <= last_seed; seed++) run_seed(seed, verbose);
}

int main(int argc, char **argv) {
    log_level = LOG_LEVEL_NOTICE;
    for (int i = 1; i + 1 < argc; i += 2) {
        unsigned long long from = 0, to = 0;
        int read = sscanf(argv[i + 1], "%llu-%llu", &from, &to);
        first_seed = from;
        last_seed = read == 2 ? to : from;
        verbose = strcmp(argv[i], "--seed") == 0;
    }
    const struct CMUnitTest random_only[] = {cmocka_unit_test(seeds_of_faults_end_in_agreement)};
    if (argc > 1) return cmocka_run_group_tests(random_only, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_join_through_one),
        cmocka_unit_test(a_replica_takes_over),
        cmocka_unit_test(several_shards_fail_over_one_after_another),
        cmocka_unit_test(short_pauses_cause_no_failover),
        cmocka_unit_test(a_dead_process_is_replaced_within_a_second),
        cmocka_unit_test(seeds_of_faults_end_in_agreement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
