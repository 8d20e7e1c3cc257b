/* outcome.c: see outcome.h. */
#include "cluster/migration/outcome.h"

void grant_facts_of_slots(struct grant_facts *facts, const struct cluster *cluster, const struct slot_bitmap *slots,
                          uint64_t target_epoch) {
    const struct cluster_node *myself = cluster->myself;
    facts->owns = false;
    facts->moved = true;
    for (unsigned slot = 0; (slot = slot_bitmap_next(slots, slot, true)) < HASH_SLOTS; slot++) {
        const struct cluster_node *owner = cluster->slots.owner[slot];
        facts->owns |= owner == myself;
        facts->moved &= owner && owner != myself && !nodes_share_shard(owner, myself) &&
                        owner->config_epoch > target_epoch && !slot_bitmap_has(&cluster->slots.unclaimed, slot);
    }
}

enum grant_step grant_decide(const struct grant_facts *facts) {
    if (!facts->primary) return facts->tracked ? GRANT_WAIT : GRANT_TRACK;
    if (!facts->leads) return GRANT_WAIT;
    if (facts->moved) return GRANT_DONE;
    if (facts->tracked && facts->owns) return GRANT_RELEASE;
    if (!facts->certain || !facts->committed || facts->linked) return GRANT_WAIT;
    if (!facts->tracked && facts->alone_ms >= facts->hold_ms) return GRANT_TRACK;
    if (!facts->tracked && facts->alone_ms < GRANT_PATIENCE_MS) return GRANT_WAIT;
    return GRANT_ASK;
}

bool grant_takes_back(const struct grant_facts *facts) {
    return facts->primary && facts->certain && facts->committed && !facts->moved;
}

enum take_step take_decide(const struct take_facts *facts) {
    if (!facts->leads) return TAKE_WAIT;
    /* A claim is on disk before the end of the job: that may be lost with the files of all servers. */
    if (facts->tracked && facts->owns) return TAKE_CLAIM;
    if (facts->decided) return facts->certain && facts->committed ? TAKE_CLAIM : TAKE_WAIT;
    if (facts->tracked) return TAKE_FAIL;
    return facts->granted && facts->certain && !facts->held ? TAKE_DECIDE : TAKE_WAIT;
}

void outcome_facts_of_slots(struct outcome_facts *facts, const struct cluster *cluster, const struct slot_bitmap *slots,
                            const struct cluster_node *source) {
    const struct cluster_node *myself = cluster->myself;
    facts->owns = true;
    facts->with_source = facts->unclaimed = false;
    for (unsigned slot = 0; (slot = slot_bitmap_next(slots, slot, true)) < HASH_SLOTS; slot++) {
        const struct cluster_node *owner = cluster->slots.owner[slot];
        facts->owns &= owner == myself;
        facts->unclaimed |= owner && owner != myself && slot_bitmap_has(&cluster->slots.unclaimed, slot);
        facts->with_source |= !owner || (source && owner != myself && nodes_share_shard(owner, source));
    }
}

enum outcome_answer outcome_decide(const struct outcome_facts *facts) {
    if (!facts->certain) return OUTCOME_LATER;
    switch (facts->job) {
    case OUTCOME_JOB_EARLY: return OUTCOME_LATER;
    case OUTCOME_JOB_WAITS: return facts->held ? OUTCOME_LATER : OUTCOME_GRANTED;
    /* Later they may have gone on to a third shard. */
    case OUTCOME_JOB_SUCCESS: return facts->with_source && !facts->owns ? OUTCOME_CLAIM : OUTCOME_TAKEN;
    case OUTCOME_JOB_FAILED:
    case OUTCOME_JOB_UNKNOWN: break;
    }
    /* The files of a job that has failed may be those of a time before it succeeded. But an older owner of the slots,
     * which has come back with a claim from that time, does not keep them from the source. */
    if (facts->owns || !(facts->with_source || facts->unclaimed)) return OUTCOME_TAKEN;
    if (facts->unheard) return OUTCOME_LATER; /* the bus brings it */
    return facts->committed ? OUTCOME_REFUSED : OUTCOME_LATER;
}
