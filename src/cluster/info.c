/* info.c: the figures of the cluster: CLUSTER INFO and the sections of INFO. */
#include "cluster/views.h"
#include "cluster/links.h"
#include "cluster/this_node.h"
#include "server/server.h"

typedef unsigned long long ull;

static void write_slots(struct output *out) {
    const struct slot_table *slots = &this_cluster->slots;
    unsigned failed = 0, maybe_failed = 0;
    for (size_t i = 0; i < this_cluster->nodes.count; i++) {
        const struct cluster_node *node = this_cluster->nodes.list[i];
        if (node_failed(node))
            failed += node->slot_count;
        else if (node_maybe_failed(node))
            maybe_failed += node->slot_count;
    }
    info_line(out, "cluster_slots_assigned:%u", slots->assigned);
    info_line(out, "cluster_slots_ok:%u", slots->assigned - failed - maybe_failed);
    info_line(out, "cluster_slots_pfail:%u", maybe_failed);
    info_line(out, "cluster_slots_fail:%u", failed);
}

static void write_nodes(struct output *out) {
    unsigned failed = 0, maybe_failed = 0, voting_failed = 0, voting_maybe_failed = 0;
    for (size_t i = 0; i < this_cluster->nodes.count; i++) {
        const struct cluster_node *node = this_cluster->nodes.list[i];
        if (node_failed(node)) {
            failed++;
            voting_failed += node_votes(node);
        } else if (node_maybe_failed(node)) {
            maybe_failed++;
            voting_maybe_failed += node_votes(node);
        }
    }
    info_line(out, "cluster_nodes_pfail:%u", maybe_failed);
    info_line(out, "cluster_nodes_fail:%u", failed);
    info_line(out, "cluster_voting_nodes_pfail:%u", voting_maybe_failed);
    info_line(out, "cluster_voting_nodes_fail:%u", voting_failed);
    info_line(out, "cluster_known_nodes:%zu", this_cluster->nodes.count);
    info_line(out, "cluster_size:%u", this_cluster->size);
}

void cluster_info_write(struct output *out) {
    const struct cluster_node *primary = cluster_shard_primary(this_cluster);
    info_line(out, "cluster_state:%s", this_cluster->ok ? "ok" : "fail");
    write_slots(out);
    write_nodes(out);
    info_line(out, "cluster_current_epoch:%llu", (ull)this_cluster->current_epoch);
    info_line(out, "cluster_my_epoch:%llu", primary ? (ull)primary->config_epoch : 0);
    bus_info(&cluster_bus, out);
}

static void write_cluster(struct output *out) {
    info_line(out, "cluster_enabled:%d", server.cluster_enabled);
}
static void write_cluster_info(struct output *out) {
    if (this_cluster) cluster_info_write(out);
}

const struct info_section cluster_sections[] = {
    {.name = "cluster", .title = "Cluster", .order = 120, .write = write_cluster},
    {.name = "cluster_info", .title = "Cluster Info", .order = 121, .when = INFO_ALL_ONLY, .write = write_cluster_info},
    {.name = NULL},
};
