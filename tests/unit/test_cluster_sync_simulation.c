/* A few seeds of tests/simulation/sync_cluster.h, among them some that have found defects. */
#include "unit.h"
#include "../simulation/sync_cluster.h"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void simulate_seeds(const char *range, const char *option, const char *another) {
    char *argv[] = {"test", "--seeds", (char *)(uintptr_t)range, (char *)(uintptr_t)option, (char *)(uintptr_t)another,
                    NULL};
    assert_int_equal(sync_cluster_simulate(3 + !!option + !!another, argv), 0); /* a violation ends the program */
}

TEST(acknowledged_writes_survive_elections_of_shards) {
    simulate_seeds("1-3", NULL, NULL);
}

TEST(acknowledged_writes_survive_slot_migrations) {
    static const char *const ranges[] = {"1-3", "236", "256", "293", "707", "977", "1032"};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) simulate_seeds(ranges[i], "--migrations", NULL);
}

TEST(acknowledged_writes_survive_changes_of_the_members) {
    simulate_seeds("5-7", "--members", NULL);
}

TEST(shards_without_synchronous_replication_converge_beside_those_with_it) {
    simulate_seeds("1-3", "--mixed", NULL);
    simulate_seeds("1-6", "--mixed", "--migrations");
}

TEST(the_simulation_finds_writes_that_a_migration_loses) {
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char *argv[] = {"test", "--seeds", "1-20", "--mixed", "--migrations", "--trial", NULL};
        _exit(sync_cluster_simulate(6, argv) ? 2 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1); /* the exit of a violation */
}

TEST(slots_find_an_owner_after_migrations_and_changes_of_the_members) {
    simulate_seeds("447", "--members", "--migrations");
}
