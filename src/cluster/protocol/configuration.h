/* configuration.h: what a node keeps on disk: itself, the members it knows, the slots, the epochs.
 *
 * From the machine to the lines of nodes.conf and of CLUSTER NODES (nodes_file.h), and back. */
#pragma once
#include "cluster/protocol/cluster.h"
#include "cluster/protocol/nodes_file.h"

/* The line of a node, without its open slots. It points into the node. */
void cluster_describe_node(const struct cluster *cluster, const struct cluster_node *node, struct node_line *line);
/* The open slots of this node, by slot. `open` has space for cluster_count_open_slots(). */
static inline size_t cluster_count_open_slots(const struct cluster *cluster) {
    return cluster->slots.migrating_count + cluster->slots.importing_count;
}
void cluster_list_open_slots(const struct cluster *cluster, struct open_slot *open);
/* The text of nodes.conf. For the effect save(). */
void cluster_print_configuration(const struct cluster *cluster, struct output *out);
/* A node that knew all this when it ended. NULL: the file contradicts itself; `*error` says how. */
struct cluster *cluster_new_from(const struct nodes_file *file, const struct cluster_settings *settings,
                                 const struct cluster_effects *effects, void *context, int64_t now_ms,
                                 const char **error);
