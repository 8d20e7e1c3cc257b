/* cluster_faults.h: random faults of a simulated cluster, which follow from a seed, and must end in agreement. */
#pragma once
#include "cluster_simulator.h"

/* A cluster of more machines is built once for many histories, which are short. */
enum { SIM_LARGE = 64 };

struct seed_options {
    unsigned count;    /* machines; 0: 3 to 15, by the seed */
    unsigned faults;   /* 0: none */
    unsigned variants; /* histories; 0 and 1: one */
    unsigned variant;  /* only this one; 0: that of the seed itself */
    bool print;
};
/* Returns a digest of what happened, without that of other variants. */
uint64_t run_seed_with(uint64_t seed, const struct seed_options *options);
uint64_t run_seed(uint64_t seed, unsigned count, unsigned faults);
/* Pauses and restarts of one machine after the other, with cluster-fast-failover: none may cause an election. Pauses
 * are shorter than the node timeout; a process that ends is back before its peers have been refused for 300 ms. Returns
 * the number of elections. */
unsigned run_pauses(uint64_t seed, unsigned count);
/* A process dies. Returns the milliseconds until a replica of it has taken over. */
int64_t run_death(uint64_t seed);
