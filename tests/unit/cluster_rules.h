/* cluster_rules.h: the simulated cluster of test_cluster_rules.c and test_cluster_claims.c. */
#pragma once
#include "unit.h"
#include <stdbool.h>
#include "cluster/protocol/machine.h"
#include "../simulation/cluster_simulator.h"

static struct sim sim;
static struct cluster *cluster_at(unsigned index) {
    return sim.machines[index].cluster;
}
static const struct node_id *id_at(unsigned index) {
    return &sim.machines[index].cluster->myself->id;
}
static inline int64_t time_at(unsigned index) {
    return sim_time(&sim.machines[index]);
}
static inline struct cluster_node *node_of(unsigned observer, unsigned index) {
    return nodes_find(&cluster_at(observer)->nodes, id_at(index));
}
static inline struct slot_bitmap one_slot(unsigned slot) {
    struct slot_bitmap slots = {0};
    slot_bitmap_set(&slots, slot);
    return slots;
}
static void build(unsigned machines, unsigned primaries) {
    sim_init(&sim, machines * 10 + primaries, machines, 2000);
    sim_build(&sim, primaries, 60000);
    sim_run(&sim, 3000);
}
static inline void wait_role(unsigned index, bool primary, int64_t limit_ms) {
    for (int64_t start_ms = sim.now_ms; node_is_primary(cluster_at(index)->myself) != primary; sim_run(&sim, 10))
        if (sim.now_ms - start_ms > limit_ms) sim_fail(&sim, "machine %u does not change its role", index);
}
