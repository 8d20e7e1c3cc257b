/* Clusters of state machines in virtual time: joining, failover, and a few seeds of random faults; tests/simulation
 * runs any number of them. */
#include "unit.h"
#include "../simulation/cluster_faults.h"

TEST(nodes_join_through_one) {
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

TEST(a_replica_takes_over) {
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

TEST(several_shards_fail_over_one_after_another) {
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
TEST(short_pauses_cause_no_failover) {
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

TEST(a_dead_process_is_replaced_within_a_second) {
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

TEST(seeds_of_faults_end_in_agreement) {
    for (uint64_t seed = 1; seed <= 120; seed++) run_seed(seed, 0, 30);
}
/* Seeds that have found a defect. */
TEST(seeds_that_failed_once_end_in_agreement) {
    static const uint64_t seeds[] = {274, 320, 1077, 1995, 2343, 2610};
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) run_seed(seeds[i], 0, 30);
}
TEST(a_hundred_nodes_agree_after_faults) {
    run_seed(1, 100, 10);
}

int main(void) {
    log_level = LOG_LEVEL_NOTICE;
    return RUN_TESTS();
}
