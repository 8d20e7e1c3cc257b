/* manual_failover.c: CLUSTER FAILOVER: a replica takes over from a primary that works.
 *
 *     replica:  MFSTART ->
 *     primary:             pauses writes; each tick a PING with PAUSED and its offset ->
 *     replica:  in sync, processes the stream up to that offset, then holds an election without delay
 *
 * FORCE omits the first steps, TAKEOVER also the election. Both sides give up after the timeout. */
#include "cluster/protocol/machine.h"

void manual_tick(struct cluster *cluster) {
    if (!cluster->manual.end_ms || cluster->now_ms < cluster->manual.end_ms) return;
    say_warning(cluster, "Manual failover timed out.");
    manual_reset(cluster);
}

static void manual_can_start(struct cluster *cluster) {
    const struct election *election = &cluster->election;
    cluster->manual.can_start = true;
    if (!election->start_ms) return;
    say_warning(cluster,
                "Failover election in progress for epoch %llu, but received a new manual failover. Resetting the "
                "election.",
                (unsigned long long)election->epoch);
    election_reset(cluster);
}

void manual_handle(struct cluster *cluster) {
    struct manual_failover *manual = &cluster->manual;
    if (!manual->end_ms || manual->can_start || !manual->offset_known) return;
    struct cluster_facts facts;
    cluster->effects->facts(cluster->context, &facts);
    /* A replica that waits for its first copy may have the same offset by chance, and would lead an empty shard. */
    if (!facts.primary_link_up || facts.offset != manual->offset) return;
    manual_can_start(cluster);
    say_notice(cluster, "All primary replication stream processed, manual failover can start.");
    todo(cluster, TODO_FAILOVER);
}

void manual_receive_start(struct cluster *cluster, struct cluster_node *sender) {
    if (!node_is_primary(cluster->myself) || sender->primary != cluster->myself) return;
    manual_reset(cluster);
    struct manual_failover *manual = &cluster->manual;
    int64_t timeout = cluster->settings.manual_failover_timeout_ms;
    manual->end_ms = cluster->now_ms + timeout;
    manual->replica = sender;
    manual->paused = true;
    cluster->effects->pause_writes(cluster->context, cluster->now_ms + 2 * timeout);
    say_notice(cluster, "Manual failover requested by replica " NODE_FORMAT ".", NODE_TEXT(sender));
    if (sender->link && sender->link->connected) send_ping(cluster, sender->link, BUS_PING);
}

const char *cluster_failover(struct cluster *cluster, enum failover_kind kind, const char *who, int64_t now_ms) {
    cluster->now_ms = now_ms;
    struct cluster_node *primary = cluster->myself->primary;
    if (node_is_primary(cluster->myself)) return "You should send CLUSTER FAILOVER to a replica";
    if (!primary) return "I'm a replica but my master is unknown to me";
    if (kind == FAILOVER_NORMAL && (node_failed(primary) || !primary->link || !primary->link->connected))
        return "Master is down or failed, please use CLUSTER FAILOVER FORCE";
    manual_reset(cluster);
    cluster->manual.end_ms = now_ms + cluster->settings.manual_failover_timeout_ms;
    if (kind == FAILOVER_TAKEOVER) {
        say_notice(cluster, "Taking over the primary (%s).", who);
        election_reset(cluster);
        bump_epoch_without_consensus(cluster);
        take_over_primary(cluster);
    } else if (kind != FAILOVER_NORMAL) {
        say_notice(cluster, "Forced failover %s request accepted (%s).",
                   kind == FAILOVER_BY_PRIMARY ? "primary" : "user", who);
        manual_can_start(cluster);
        todo(cluster, TODO_FAILOVER);
    } else {
        say_notice(cluster, "Manual failover user request accepted (%s).", who);
        struct bus_message message;
        message_begin(cluster, &message, BUS_MFSTART);
        send_message(cluster, primary->link, &message);
    }
    return NULL;
}
