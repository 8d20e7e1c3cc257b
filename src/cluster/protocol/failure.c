/* failure.c: detects failed nodes, and sets the state of the cluster (ok or fail).
 *
 * As in SWIM, a node is suspected first (PFAIL) and declared failed later (FAIL). PFAIL is this node's own view: no
 * reply for the node timeout. Unlike in SWIM, a second timeout does not make it FAIL, but the suspicions of a majority
 * of the primaries with slots. They report theirs to each other at once, in a PONG, and again in all gossip. The node
 * that counts a majority sends FAIL to all nodes. FAIL ends when the failed node answers; a primary with slots stays
 * failed for a while, because an election may be in progress.
 *
 * The cluster fails for this node when slots are not served, or when it cannot reach a majority of the voting
 * primaries: in the minority of a partition it must not accept writes that the majority will not have. */
#include "cluster/protocol/machine.h"
#include "lib/system/memory.h"

enum {
    JOIN_DELAY_MS = 2000, /* before a restarted primary serves or votes: its view may be old */
    REJOIN_DELAY_MIN_MS = 500,
    REJOIN_DELAY_MAX_MS = 5000
};
enum down_reason { DOWN_NOT = 0, DOWN_SLOTS, DOWN_MINORITY };

size_t cluster_count_failure_reports(struct cluster *cluster, struct cluster_node *node, int64_t now_ms) {
    if (!node->report_count) return 0;
    return node_count_reports(node, now_ms, 2 * cluster->settings.node_timeout_ms);
}

void failure_primary_changed(struct cluster *cluster) {
    struct cluster_node *myself = cluster->myself;
    bool failed = node_is_replica(myself) && myself->primary && node_failed(myself->primary);
    myself->flags &= ~(unsigned)NODE_PRIMARY_FAILED;
    if (failed) myself->flags |= NODE_PRIMARY_FAILED;
}

void failure_set(struct cluster *cluster, struct cluster_node *node) {
    node->flags &= ~(unsigned)NODE_PFAIL;
    node->flags |= NODE_FAIL;
    node_update(node);
    node->fail_ms = cluster->now_ms;
    changed_table(cluster);
    todo(cluster, TODO_STATE);
    if (node == cluster->myself->primary) {
        failure_primary_changed(cluster);
        todo(cluster, TODO_FAILOVER);
    }
}

void failure_mark_if_quorum(struct cluster *cluster, struct cluster_node *node) {
    if (!node_maybe_failed(node) || node_failed(node)) return;
    size_t own = node_votes(cluster->myself), needed = quorum(cluster);
    if (node->report_count + own < needed) return; /* without counting those that are too old */
    if (cluster_count_failure_reports(cluster, node, cluster->now_ms) + own < needed) return;
    say_notice(cluster, "Marking node " NODE_FORMAT " as failing (quorum reached).", NODE_TEXT(node));
    failure_set(cluster, node);
    send_fail(cluster, node);
}

void failure_clear_if_possible(struct cluster *cluster, struct cluster_node *node) {
    if (!node_votes(node)) {
        say_notice(cluster, "Clear FAIL state for node " NODE_FORMAT ": %s is reachable again.", NODE_TEXT(node),
                   node_is_replica(node) ? "replica" : "primary without slots");
    } else if (cluster->now_ms - node->fail_ms > 2 * cluster->settings.node_timeout_ms) {
        say_notice(cluster,
                   "Clear FAIL state for node " NODE_FORMAT
                   ": is reachable again and nobody is serving its slots after some time.",
                   NODE_TEXT(node));
    } else {
        return;
    }
    node->flags &= ~(unsigned)NODE_FAIL;
    node_update(node);
    failure_primary_changed(cluster);
    changed_table(cluster);
    todo(cluster, TODO_STATE);
}

static void suspects_add(struct cluster *cluster, struct cluster_node *node) {
    for (size_t i = 0; i < cluster->failures.count; i++)
        if (cluster->failures.suspects[i] == node) return;
    mem_grow(cluster->failures.suspects, cluster->failures.count, cluster->failures.capacity, 16);
    cluster->failures.suspects[cluster->failures.count++] = node;
}

void failure_forget(struct cluster *cluster, const struct cluster_node *node) {
    for (size_t i = 0; i < cluster->failures.count; i++)
        if (cluster->failures.suspects[i] == node)
            cluster->failures.suspects[i--] = cluster->failures.suspects[--cluster->failures.count];
}

bool failure_suspect(struct cluster *cluster, struct cluster_node *node) {
    if (node->flags & (NODE_PFAIL | NODE_FAIL)) return false;
    node->flags |= NODE_PFAIL;
    node_update(node);
    suspects_add(cluster, node);
    changed_view(cluster);
    todo(cluster, TODO_STATE);
    if (node_votes(cluster->myself)) {
        failure_mark_if_quorum(cluster, node);
        todo(cluster, TODO_TELL_VOTERS);
    } else {
        say_notice(cluster, "NODE " NODE_FORMAT " possibly failing.", NODE_TEXT(node));
    }
    return true;
}

void failure_tell_voters(struct cluster *cluster) {
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        struct cluster_node *node = cluster->nodes.list[i];
        if (node == cluster->myself || !node_votes(node) || !node->link || !node->link->connected) continue;
        if (node->flags & (NODE_PFAIL | NODE_FAIL)) continue;
        send_ping(cluster, node->link, BUS_PONG);
    }
}

void failure_tick(struct cluster *cluster) {
    size_t kept = 0;
    for (size_t i = 0; i < cluster->failures.count; i++)
        if (node_maybe_failed(cluster->failures.suspects[i]))
            cluster->failures.suspects[kept++] = cluster->failures.suspects[i];
    cluster->failures.count = kept;
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        if (!cluster->nodes.beats[i].ping_sent_ms) continue;
        struct cluster_node *node = cluster->nodes.list[i];
        if (node->flags & (NODE_MYSELF | NODE_NOADDR | NODE_HANDSHAKE)) continue;
        int64_t now = cluster->now_ms;
        if (min_i64(now - node->beat->ping_sent_ms, now - node->beat->data_received_ms) >
            cluster->settings.node_timeout_ms)
            failure_suspect(cluster, node);
    }
}

static enum down_reason find_down_reason(struct cluster *cluster) {
    unsigned reachable = 0;
    bool slots_down = cluster->slots.assigned < HASH_SLOTS;
    cluster->size = 0;
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        const struct cluster_node *node = cluster->nodes.list[i];
        if (!node->slot_count) continue;
        slots_down |= node_failed(node);
        if (!node_votes(node)) continue;
        cluster->size++;
        reachable += !(node->flags & (NODE_FAIL | NODE_PFAIL));
    }
    if (reachable < quorum(cluster)) {
        /* Before a cluster is created there are no voters, so no other part can have a majority. */
        if (cluster->size) cluster->failures.minority_since_ms = cluster->now_ms;
        return DOWN_MINORITY;
    }
    return slots_down && cluster->settings.require_full_coverage ? DOWN_SLOTS : DOWN_NOT;
}

static void log_down(struct cluster *cluster, enum down_reason reason) {
    if (reason == cluster->failures.down_reason_logged) return;
    cluster->failures.down_reason_logged = reason;
    if (reason == DOWN_NOT) return;
    say_warning(cluster, "Cluster is currently down: %s",
                reason == DOWN_MINORITY
                    ? "I am part of a minority partition."
                    : "At least one hash slot is not served by any available node. Please check the "
                      "'cluster-require-full-coverage' configuration.");
}

void state_update(struct cluster *cluster) {
    int64_t now = cluster->now_ms;
    if (!cluster->failures.state_since_ms) cluster->failures.state_since_ms = now;
    enum down_reason reason = find_down_reason(cluster);
    if (!cluster->failures.safe_to_vote) {
        if (node_is_primary(cluster->myself) && now - cluster->failures.state_since_ms < JOIN_DELAY_MS) return;
        cluster->failures.safe_to_vote = true;
    }
    bool ok = reason == DOWN_NOT;
    if (ok && !cluster->ok && node_is_primary(cluster->myself) && cluster->failures.minority_since_ms) {
        int64_t delay = max_i64(min_i64(cluster->settings.node_timeout_ms, REJOIN_DELAY_MAX_MS), REJOIN_DELAY_MIN_MS);
        if (now - cluster->failures.minority_since_ms < delay) return;
    }
    if (ok != cluster->ok) {
        cluster->ok = ok;
        say(cluster, ok ? LOG_LEVEL_NOTICE : LOG_LEVEL_WARNING, "Cluster state changed: %s", ok ? "ok" : "fail");
        changed_view(cluster);
        cluster->effects->state_changed(cluster->context, ok);
    }
    if (!ok || reason == DOWN_NOT) log_down(cluster, reason);
}
