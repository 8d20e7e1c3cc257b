/* Lives of a group under faults (sentinel_simulator.h): some seeds here; `test_sentinel_simulation FIRST COUNT` runs
 * more, and `... FIRST 1 verbose` shows the events of one. */
#include "unit.h"
#include "../simulation/sentinel_simulator.h"
#include <stdio.h>
#include <stdlib.h>

enum { SEEDS = 60 };

TEST(groups_survive_faults) {
    char failure[320];
    unsigned failovers = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        if (!sim_play(seed, failure, false, &failovers)) fail_msg("%s", failure);
    assert_true(failovers > SEEDS); /* the faults had consequences */
}

int main(int argc, char **argv) {
    if (argc > 2) {
        uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10), failed = 0;
        unsigned failovers = 0;
        char failure[320];
        for (uint64_t seed = first; seed < first + count; seed++) {
            if (sim_play(seed, failure, argc > 3, &failovers)) continue;
            printf("%s\n", failure);
            failed++;
        }
        printf("%llu seeds, %llu failed, %u changes of a primary seen by Sentinels\n", (unsigned long long)count,
               (unsigned long long)failed, failovers);
        return failed != 0;
    }
    return RUN_TESTS();
}
