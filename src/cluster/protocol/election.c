/* election.c: the election of a replica in place of its failed primary.
 *
 * This is the leader election of Raft, with an epoch for the term: a candidate raises the epoch and asks for votes, a
 * voter votes once in an epoch, and a majority of votes wins. So an epoch has at most one winner, whose claim on the
 * slots has a larger epoch than that of the failed primary, and all nodes believe it (topology.c). The differences:
 *
 * - The voters are the primaries with slots, not the nodes of the shard.
 * - A voter does not compare logs: a replica with older data can win. Instead, a candidate waits before it asks, for
 *   longer the more replicas of its shard have newer data: its rank.
 *
 * The wait also has a random part, against split votes, and is longer if several primaries have failed at once. The
 * replica of rank 0 asks at once if all replicas of the primary agree that it has failed, because then this replica has
 * heard the offsets of all.
 *
 * With synchronous replication the servers of the shard elect their primary first (struct cluster_effects: mandate).
 * The winner is the candidate in the cluster. It remains so if the voters elect no candidate, and asks again later. */
#include "cluster/protocol/machine.h"
#include <stdio.h>

enum { OFFSET_UNKNOWN_DELAY_MS = 500, WAIT_LOG_MS = 10000, VOTES_LOG_MS = 1000 };

static int64_t election_timeout(const struct cluster *cluster) {
    return max_i64(2 * cluster->settings.node_timeout_ms, 2000);
}
static int64_t election_delay(const struct cluster *cluster) {
    return max_i64(min_i64(cluster->settings.node_timeout_ms / 30, 500), 1);
}
static uint64_t own_offset(struct cluster *cluster) {
    struct cluster_facts facts;
    cluster->effects->facts(cluster->context, &facts);
    return facts.offset;
}

/* The number of replicas of the same primary that have more data, or as much and a smaller id. */
static unsigned find_rank(struct cluster *cluster) {
    const struct cluster_node *myself = cluster->myself;
    uint64_t offset = own_offset(cluster);
    unsigned rank = 0;
    for (size_t i = 0; i < myself->primary->replica_count; i++) {
        const struct cluster_node *sibling = myself->primary->replicas[i];
        if (sibling == myself || sibling->flags & NODE_NOFAILOVER) continue;
        rank += sibling->beat->offset > offset ||
                (sibling->beat->offset == offset && memcmp(sibling->id.text, myself->id.text, NODE_ID_LEN) < 0);
    }
    return rank;
}

/* The number of other shards that need an election and whose ids are smaller: they elect first. */
static unsigned find_failed_primary_rank(const struct cluster *cluster) {
    const struct cluster_node *myself = cluster->myself;
    int64_t factor = cluster->settings.replica_validity_factor;
    int64_t longest = factor ? cluster->settings.node_timeout_ms * factor : INT64_MAX;
    unsigned rank = 0;
    for (size_t i = 0; i < cluster->nodes.count; i++) {
        const struct cluster_node *node = cluster->nodes.list[i];
        if (node == myself->primary || !node_votes(node) || !node_failed(node) || !node->replica_count) continue;
        if (cluster->now_ms - node->fail_ms > longest) continue; /* nobody can take over there */
        rank += memcmp(node->shard.text, myself->shard.text, NODE_ID_LEN) < 0;
    }
    return rank;
}

static bool is_best_ranked(struct cluster *cluster) {
    const struct election *election = &cluster->election;
    const struct cluster_node *primary = cluster->myself->primary;
    if (election->rank || election->failed_primary_rank || !own_offset(cluster)) return false;
    for (size_t i = 0; i < primary->replica_count; i++)
        if (!(primary->replicas[i]->flags & NODE_PRIMARY_FAILED)) return false;
    return true;
}

/* The largest majority that was needed at any time since this node asked: the number of voters may change meanwhile. */
static unsigned votes_needed(struct cluster *cluster) {
    struct election *election = &cluster->election;
    if (election->quorum < quorum(cluster)) election->quorum = quorum(cluster);
    return election->quorum;
}

static void log_wait(struct cluster *cluster, enum election_wait reason) {
    struct election *election = &cluster->election;
    bool counts = reason == WAIT_VOTES || reason == WAIT_EXPIRED;
    int64_t interval = counts ? VOTES_LOG_MS : WAIT_LOG_MS;
    if (reason == election->logged && cluster->now_ms - election->logged_ms < interval) return;
    election->logged = reason;
    election->logged_ms = cluster->now_ms;
    static const char *const texts[] = {[WAIT_DATA_AGE] =
                                            "Disconnected from primary for longer than allowed. Please check the "
                                            "'cluster-replica-validity-factor' configuration option.",
                                        [WAIT_DELAY] = "Waiting the delay before I can start a new failover.",
                                        [WAIT_EXPIRED] = "Failover attempt expired.",
                                        [WAIT_VOTES] = "Waiting for votes, but majority still not reached.",
                                        [WAIT_SHARD] = "Waiting for the servers of this shard to elect this one."};
    say_notice(cluster, "Currently unable to failover: %s", texts[reason]);
    if (counts)
        say_notice(cluster, "Needed quorum: %u. Number of votes received so far: %u", votes_needed(cluster),
                   election->votes);
}

/* Ends an election of an epoch that is not larger than that of this claim: it cannot be won any more. */
void election_see_epoch(struct cluster *cluster, const struct cluster_node *claimant) {
    const struct election *election = &cluster->election;
    if (!election->sent || claimant->config_epoch < election->epoch || !node_is_replica(cluster->myself)) return;
    say_warning(cluster,
                "Failover election in progress for epoch %llu, but received a claim from node " NODE_FORMAT
                " with an equal or higher epoch %llu. Resetting the election since we cannot win an election in the "
                "past.",
                (unsigned long long)election->epoch, NODE_TEXT(claimant), (unsigned long long)claimant->config_epoch);
    election_reset(cluster);
}

/* The age of the data, without the time that it takes to notice a failure. */
static int64_t data_age(struct cluster *cluster) {
    struct cluster_facts facts;
    cluster->effects->facts(cluster->context, &facts);
    int64_t age = cluster->now_ms - facts.primary_ms;
    return age > cluster->settings.node_timeout_ms ? age - cluster->settings.node_timeout_ms : age;
}

static void plan(struct cluster *cluster, bool manual) {
    struct election *election = &cluster->election;
    int64_t delay = election_delay(cluster), now = cluster->now_ms;
    uint64_t offset = own_offset(cluster);
    *election = (struct election){.start_ms = now};
    if (manual) {
        election->force_ack = true;
    } else {
        election->rank = find_rank(cluster);
        election->failed_primary_rank = find_failed_primary_rank(cluster);
        if (is_best_ranked(cluster)) {
            say_notice(cluster, "This is the best ranked replica and can initiate the election immediately.");
            election->force_ack = true;
        } else {
            election->start_ms += delay + (int64_t)random_under(cluster, (uint64_t)delay) +
                                  delay * (2 * election->rank + election->failed_primary_rank) +
                                  (offset ? 0 : OFFSET_UNKNOWN_DELAY_MS);
        }
    }
    say_notice(cluster, "Start of election delayed for %lld milliseconds (rank #%u, primary rank #%u, offset %lld).",
               (long long)(election->start_ms - now), election->rank, election->failed_primary_rank, (long long)offset);
    broadcast_pong(cluster, true); /* the other replicas hear the offset */
}

/* Other replicas may have reported more data since then. */
static void refresh_ranks(struct cluster *cluster) {
    struct election *election = &cluster->election;
    int64_t delay = election_delay(cluster);
    unsigned rank = find_rank(cluster), failed_primary_rank = find_failed_primary_rank(cluster);
    if (rank > election->rank) {
        int64_t added = (rank - election->rank) * 2 * delay;
        election->start_ms += added;
        say_notice(cluster, "Replica rank updated to #%u, added %lld milliseconds of delay.", rank, (long long)added);
    }
    election->rank = rank;
    if (failed_primary_rank != election->failed_primary_rank) { /* it falls when another shard has a new primary */
        int64_t added = ((int64_t)failed_primary_rank - election->failed_primary_rank) * delay;
        election->start_ms += added;
        say_notice(cluster, "Failed primary rank updated to #%u, added %lld milliseconds of delay.",
                   failed_primary_rank, (long long)added);
    }
    election->failed_primary_rank = failed_primary_rank;
    if (election->start_ms > cluster->now_ms && is_best_ranked(cluster)) {
        say_notice(cluster, "Myself become the best ranked replica, initiate the election immediately.");
        election->start_ms = cluster->now_ms;
        election->force_ack = true;
    }
}

static void send_request(struct cluster *cluster, struct cluster_link *link) {
    struct bus_message message;
    message_begin(cluster, &message, BUS_AUTH_REQUEST);
    if (cluster->election.force_ack) message.header.message_flags |= BUS_FORCE_ACK;
    if (link)
        send_message(cluster, link, &message);
    else
        send_to_all(cluster, &message);
}

void election_link_opened(struct cluster *cluster, struct cluster_node *node) {
    const struct election *election = &cluster->election;
    if (!election->sent || cluster->now_ms - election->start_ms > election_timeout(cluster) || !node_votes(node) ||
        node->vote_epoch == election->epoch || !node->link || !node->link->connected)
        return;
    /* Not in a larger epoch: the voter may have voted for another replica there. */
    if (cluster->current_epoch == election->epoch) send_request(cluster, node->link);
}

static void ask_for_votes(struct cluster *cluster) {
    struct election *election = &cluster->election;
    cluster->current_epoch++;
    changed_self(cluster);
    election->epoch = cluster->current_epoch;
    election->sent = true;
    election->quorum = quorum(cluster);
    const struct cluster_node *primary = cluster->myself->primary;
    say_notice(cluster, "Starting a failover election for epoch %llu, node config epoch is %llu",
               (unsigned long long)election->epoch, (unsigned long long)primary->config_epoch);
    send_request(cluster, NULL);
}

void take_over_primary(struct cluster *cluster) {
    struct cluster_node *myself = cluster->myself, *old = myself->primary;
    if (!old) return;
    say_notice(cluster, "Setting myself to primary in shard %.40s after failover; my old primary is " NODE_FORMAT,
               SHARD_TEXT(myself), NODE_TEXT(old));
    node_set_role_primary(cluster, myself);
    for (unsigned slot = 0; slot < HASH_SLOTS && old->slot_count > 0; slot++)
        if (cluster->slots.owner[slot] == old) slot_assign(cluster, slot, slot_leaves(cluster, slot) ? NULL : myself);
    cluster->effects->lead(cluster->context, true);
    changed_self(cluster);
    state_update(cluster);
    save(cluster, true);
    todo(cluster, TODO_BROADCAST);
    manual_reset(cluster);
    cluster->strays_ms = cluster->now_ms + 2 * cluster->settings.node_timeout_ms;
}

static enum cluster_mandate mandate(struct cluster *cluster) {
    return cluster->effects->mandate ? cluster->effects->mandate(cluster->context) : MANDATE_NOT_NEEDED;
}

bool election_is_of_shard(struct cluster *cluster) {
    return mandate(cluster) != MANDATE_NOT_NEEDED;
}

bool election_is_without_mandate(struct cluster *cluster) {
    enum cluster_mandate held = mandate(cluster);
    return held == MANDATE_NONE || held == MANDATE_ASKED;
}

void cluster_mandated(struct cluster *cluster, int64_t now_ms) {
    struct election *election = &cluster->election;
    cluster->now_ms = now_ms;
    if (election->start_ms && !election->sent)
        election->start_ms = now_ms; /* from here on the voters have the whole timeout */
    todo(cluster, TODO_FAILOVER);
}

void election_handle(struct cluster *cluster) {
    struct election *election = &cluster->election;
    const struct cluster_node *myself = cluster->myself;
    bool manual = cluster->manual.end_ms && cluster->manual.can_start;
    if (!node_is_replica(myself) || !myself->primary || (!node_failed(myself->primary) && !manual) ||
        (cluster->settings.replica_no_failover && !manual)) {
        election->logged = WAIT_NOTHING;
        if (node_is_replica(myself) && myself->primary && mandate(cluster) >= MANDATE_ASKED)
            cluster->effects->stand_back(cluster->context);
        return;
    }
    int64_t factor = cluster->settings.replica_validity_factor, timeout = cluster->settings.node_timeout_ms;
    /* The election in the shard compares the data, so their age does not matter then. */
    if (factor && !manual && mandate(cluster) == MANDATE_NOT_NEEDED &&
        data_age(cluster) > cluster->settings.repl_ping_period_s * 1000 + timeout * factor) {
        log_wait(cluster, WAIT_DATA_AGE);
        return;
    }
    int64_t age = cluster->now_ms - election->start_ms;
    if (!election->start_ms || age > 2 * election_timeout(cluster)) {
        plan(cluster, manual);
        if (election->start_ms > cluster->now_ms) return;
    } else if (!election->sent && !manual) {
        refresh_ranks(cluster);
    }
    if (!election->sent && election->start_ms <= cluster->now_ms && election_is_without_mandate(cluster)) {
        election->start_ms = cluster->now_ms; /* does not expire meanwhile */
        log_wait(cluster, WAIT_SHARD);
        cluster->effects->stand(cluster->context, manual);
        if (election_is_without_mandate(cluster)) return;
    }
    age = cluster->now_ms - election->start_ms;
    if (age < 0) {
        log_wait(cluster, WAIT_DELAY);
    } else if (age > election_timeout(cluster)) {
        log_wait(cluster, WAIT_EXPIRED);
    } else if (!election->sent) {
        ask_for_votes(cluster);
    } else if (election->votes < votes_needed(cluster)) {
        log_wait(cluster, WAIT_VOTES);
    } else {
        say_notice(cluster, "Failover election won: I'm the new primary.");
        if (cluster->myself->config_epoch < election->epoch) {
            cluster->myself->config_epoch = election->epoch;
            say_notice(cluster, "configEpoch set to %llu after successful failover",
                       (unsigned long long)election->epoch);
        }
        take_over_primary(cluster);
        election_reset(cluster);
    }
}

/* Why this node denies its vote; NULL: it votes. */
static const char *find_denial(struct cluster *cluster, const struct cluster_node *sender,
                               const struct bus_message *message, char *text, size_t size) {
    const struct bus_header *header = &message->header;
    unsigned long long epoch = header->current_epoch;
    if (!cluster->failures.safe_to_vote) return " it is not safe to vote in this moment)";
    if (header->current_epoch < cluster->current_epoch) {
        snprintf(text, size, " reqEpoch (%llu) < curEpoch(%llu)", epoch, (unsigned long long)cluster->current_epoch);
        return text;
    }
    if (cluster->last_vote_epoch == cluster->current_epoch) {
        snprintf(text, size, " already voted for epoch %llu", (unsigned long long)cluster->current_epoch);
        return text;
    }
    const char *reason = NULL;
    if (node_is_primary(sender))
        reason = "it is a primary node";
    else if (!sender->primary)
        reason = "I don't know its primary";
    else if (!node_failed(sender->primary) && !(header->message_flags & BUS_FORCE_ACK))
        reason = "its primary is up";
    if (reason) {
        snprintf(text, size, " for epoch %llu: %s", epoch, reason);
        return text;
    }
    return NULL;
}

void election_receive_request(struct cluster *cluster, struct cluster_node *sender, const struct bus_message *message) {
    const struct bus_header *header = &message->header;
    if (!node_votes(cluster->myself)) return;
    char text[160];
    const char *denial = find_denial(cluster, sender, message, text, sizeof text);
    if (denial) {
        say_notice(cluster, "Failover auth denied to " NODE_FORMAT ":%s", NODE_TEXT(sender), denial);
        return;
    }
    for (unsigned slot = 0; header->slots && slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(header->slots, slot)) continue;
        struct cluster_node *owner = cluster->slots.owner[slot];
        if (!owner || owner->config_epoch <= header->config_epoch) continue;
        say_notice(cluster, "Failover auth denied to " NODE_FORMAT ": slot %u epoch (%llu) > reqConfigEpoch (%llu)",
                   NODE_TEXT(sender), slot, (unsigned long long)owner->config_epoch,
                   (unsigned long long)header->config_epoch);
        send_update(cluster, sender, owner);
        return;
    }
    if (!sender->link || !sender->link->connected) return; /* the vote could not be sent */
    cluster->last_vote_epoch = cluster->current_epoch;
    changed_self(cluster);
    struct bus_message vote;
    message_begin(cluster, &vote, BUS_AUTH_ACK);
    send_message(cluster, sender->link, &vote);
    say_notice(cluster, "Failover auth granted to " NODE_FORMAT " for epoch %llu", NODE_TEXT(sender),
               (unsigned long long)header->current_epoch);
}

void election_receive_vote(struct cluster *cluster, struct cluster_node *sender, const struct bus_message *message) {
    struct election *election = &cluster->election;
    if (!election->sent || !node_votes(sender) || message->header.current_epoch < election->epoch) return;
    if (sender->vote_epoch == election->epoch) return;
    /* A failed primary that answers again may have been replaced, and its successor may vote for another candidate in
     * the same epoch: two candidates could have a majority then. A primary without replicas is not replaced. */
    if (node_failed(sender) && sender->replica_count > 0) return;
    votes_needed(cluster);
    sender->vote_epoch = election->epoch;
    election->votes++;
    todo(cluster, TODO_FAILOVER);
}
