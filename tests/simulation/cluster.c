/* A cluster in virtual time (cluster_simulator.h), under faults that follow from seeds. Run by hand:
 *
 *     tests/simulation/run --seeds 1-1000             3 to 15 machines, 30 faults each, which must end in agreement
 *     tests/simulation/run --seeds 1-10 --nodes 1000  of this size, from a nodes.conf that has all of them
 *     tests/simulation/run --seed 17                  one, with its history
 *     tests/simulation/run --pauses 10000             pauses and restarts with cluster-fast-failover: no election
 *     tests/simulation/run --deaths 1000              processes that die: how long a failover takes
 *     … --faults N      of a seed, instead of 30; with more than 64 nodes 1 to N, and a line tells which
 *     … --variants N    other faults of the same cluster, each in a process of its own; --variant N: only this one
 *     … --limit S       begins no seed after S seconds
 *
 * A violation prints its history and ends the program with 1. `make check` runs a few seeds of the same kind in
 * tests/unit/test_cluster_simulation.c. */
#include "cluster_faults.h"
#include "lib/system/clock.h"

/* Of jemalloc: memory that it gave back to the kernel would be cleared again, in each process of a history. */
const char *malloc_conf = "dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:1";

struct options {
    unsigned long long first, last;
    unsigned pauses, deaths, limit_s;
    struct seed_options of_seed;
};

static bool parse(int argc, char **argv, struct options *options) {
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--seeds") == 0 && sscanf(value, "%llu-%llu", &options->first, &options->last) == 2) continue;
        if (strcmp(name, "--seed") == 0 && sscanf(value, "%llu", &options->first) == 1) {
            options->last = options->first;
            options->of_seed.print = true;
            continue;
        }
        unsigned *number = strcmp(name, "--nodes") == 0      ? &options->of_seed.count
                           : strcmp(name, "--faults") == 0   ? &options->of_seed.faults
                           : strcmp(name, "--variants") == 0 ? &options->of_seed.variants
                           : strcmp(name, "--variant") == 0  ? &options->of_seed.variant
                           : strcmp(name, "--pauses") == 0   ? &options->pauses
                           : strcmp(name, "--deaths") == 0   ? &options->deaths
                           : strcmp(name, "--limit") == 0    ? &options->limit_s
                                                             : NULL;
        if (!number || sscanf(value, "%u", number) != 1) return false;
    }
    return argc % 2 == 1 && options->of_seed.count <= SIM_MACHINES_MAX && options->of_seed.count != 1 &&
           options->of_seed.count != 2;
}

static unsigned pauses(const struct options *options) {
    enum { OF_A_CLUSTER = 500 };
    unsigned elections = 0, done = 0;
    for (uint64_t seed = options->first; done < options->pauses; seed++, done += OF_A_CLUSTER)
        elections += run_pauses(seed, OF_A_CLUSTER);
    printf("%u pauses and restarts, %u failovers\n", done, elections);
    return elections;
}

static unsigned deaths(const struct options *options) {
    int64_t longest = 0, sum = 0;
    unsigned late = 0;
    for (unsigned i = 0; i < options->deaths; i++) {
        int64_t took_ms = run_death(options->first + i);
        if (took_ms > longest) longest = took_ms;
        late += took_ms > 1000;
        sum += took_ms;
    }
    printf("%u processes died; failover took %lld ms on average, %lld at most, %u times over 1000\n", options->deaths,
           (long long)sum / (long long)options->deaths, (long long)longest, late);
    return late;
}

int main(int argc, char **argv) {
    struct options options = {.first = 1, .last = 100, .of_seed = {.faults = 30}};
    if (!parse(argc, argv, &options)) {
        fprintf(stderr,
                "usage: %s [--seeds A-B | --seed N | --pauses N | --deaths N] [--nodes N] [--faults N] "
                "[--variants N | --variant N] [--limit S]\n",
                argv[0]);
        return 2;
    }
    log_level = LOG_LEVEL_NOTICE;
    if (options.pauses) return pauses(&options) != 0;
    if (options.deaths) return deaths(&options) != 0;
    uint64_t start = clock_monotonic_us();
    unsigned long long seed = options.first, digest = 0;
    for (; seed <= options.last; seed++) {
        if (options.limit_s && (clock_monotonic_us() - start) / 1000000 >= options.limit_s) break;
        digest = digest * 31 + run_seed_with(seed, &options.of_seed);
        if (options.of_seed.count && options.of_seed.count <= SIM_LARGE) {
            printf("seed %llu passed\n", seed);
            fflush(stdout);
        }
    }
    printf("%llu seeds passed, from %llu on, %u variants of each; digest %016llx\n", seed - options.first,
           options.first, options.of_seed.variants > 1 ? options.of_seed.variants : 1, digest);
    return 0;
}
