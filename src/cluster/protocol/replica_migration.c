/* replica_migration.c: a replica leaves a shard that has several for a primary that has none left: the replica
 * migration of the Redis Cluster specification.
 *
 * The nodes agree without a message: of the replicas of those shards that have the most, the one with the smallest id
 * moves. */
#include "cluster/protocol/machine.h"

enum { ORPHANED_MS = 5000 /* a replica that moves at once would move during each failover */ };

void replica_migration_tick(struct cluster *cluster) {
    struct cluster_node *myself = cluster->myself, *target = NULL;
    size_t best = 0;
    if (cluster->covered.version == cluster->view_version && cluster->now_ms <= cluster->covered.ms) return;
    int64_t first_ms = INT64_MAX - ORPHANED_MS;
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        struct cluster_node *node = nodes_at(&cluster->nodes, i);
        if (!node_votes(node) || node->flags & (NODE_HANDSHAKE | NODE_FAIL | NODE_PFAIL)) {
            if (node->orphaned_ms) node->orphaned_ms = 0;
            continue;
        }
        size_t working = node_working_replicas(node);
        if (working > best) best = working;
        if (working > 0 || !(node->flags & NODE_MIGRATE_TO)) {
            if (node->orphaned_ms) node->orphaned_ms = 0;
            continue;
        }
        if (!node->orphaned_ms) node->orphaned_ms = cluster->now_ms;
        first_ms = min_i64(first_ms, node->orphaned_ms);
        if (cluster->now_ms - node->orphaned_ms > ORPHANED_MS &&
            (!target || memcmp(node->id.text, target->id.text, NODE_ID_LEN) < 0))
            target = node;
    }
    cluster->covered.version = cluster->view_version;
    cluster->covered.ms = first_ms + ORPHANED_MS;
    if (!target || best < 2 || !cluster->ok || !cluster->settings.allow_replica_migration) return;
    struct cluster_node *primary = myself->primary;
    struct cluster_facts facts;
    cluster->effects->facts(cluster->context, &facts);
    if (facts.bound) return;
    if (!primary || node_working_replicas(primary) != best || best <= cluster->settings.migration_barrier) return;
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        const struct cluster_node *node = cluster->nodes.list[i];
        if (!node_is_replica(node) || node->flags & (NODE_FAIL | NODE_PFAIL) || !node->primary) continue;
        if (node_votes(node->primary) && node_working_replicas(node->primary) == best &&
            memcmp(node->id.text, myself->id.text, NODE_ID_LEN) < 0)
            return;
    }
    say_notice(cluster, "Migrating to orphaned primary " NODE_FORMAT " in shard %.40s", NODE_TEXT(target),
               SHARD_TEXT(target));
    follow_node(cluster, target);
}
