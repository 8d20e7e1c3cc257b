/* outcome.c: see outcome.h. */
#include "cluster/migration/outcome.h"

enum grant_step grant_decide(const struct grant_facts *facts) {
    if (!facts->primary) return facts->tracked ? GRANT_WAIT : GRANT_TRACK;
    if (!facts->leads) return GRANT_WAIT;
    if (facts->moved) return GRANT_DONE;
    if (facts->tracked && facts->owns) return GRANT_RELEASE;
    if (!facts->certain || !facts->committed || facts->linked) return GRANT_WAIT;
    if (!facts->tracked && facts->alone_ms < GRANT_PATIENCE_MS) return GRANT_WAIT;
    return GRANT_ASK;
}

bool grant_takes_back(const struct grant_facts *facts) {
    return facts->primary && facts->certain && facts->committed && !facts->moved;
}

enum outcome_answer outcome_decide(const struct outcome_facts *facts) {
    if (!facts->certain) return OUTCOME_LATER;
    if (facts->owns && facts->job != OUTCOME_JOB_WAITS) return OUTCOME_TAKEN;
    switch (facts->job) {
    case OUTCOME_JOB_EARLY: return OUTCOME_LATER;
    case OUTCOME_JOB_WAITS: return facts->held ? OUTCOME_LATER : OUTCOME_TAKE;
    /* The one that took them may have died before anybody heard of it. Later they may have gone on to a third shard. */
    case OUTCOME_JOB_SUCCESS: return facts->with_source ? OUTCOME_TAKE : OUTCOME_TAKEN;
    case OUTCOME_JOB_FAILED: return facts->committed ? OUTCOME_REFUSED : OUTCOME_LATER;
    case OUTCOME_JOB_UNKNOWN: break;
    }
    /* A job that failed leaves no keys. */
    if (!facts->with_source) return OUTCOME_TAKEN;
    return facts->keys ? OUTCOME_TAKE : OUTCOME_REFUSED;
}
