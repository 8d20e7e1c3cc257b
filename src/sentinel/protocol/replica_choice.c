/* replica_choice.c: which replica would be promoted.
 *
 * A candidate is up, answers, has a priority above 0, reported its state recently, and was not cut off from its primary
 * for long before the primary failed. It is not loading a data set, and has all acknowledged writes as far as it says
 * so (sync_eligible). Of these the one with the lowest priority number is chosen, then with the most of the primary's
 * stream, then with the smallest run id. */
#include "sentinel/protocol/machine.h"
#include <string.h>

const char *sentinel_replica_unfit(const struct sentinel *s, const struct instance *replica) {
    const struct instance *group = replica->primary;
    const struct sentinel_timers *timers = &s->settings.timers;
    int64_t info_max = group->flags & INSTANCE_S_DOWN ? timers->ping_period * 5 : timers->info_period * 3;
    int64_t link_down_max = replica->down_after_ms * 10;
    /* The replica's clock went on while this process was stopped. */
    if (group->flags & INSTANCE_S_DOWN)
        link_down_max += s->now_ms - group->s_down_ms + s->stopped_ms - group->link->available_stopped_ms;
    if (replica->flags & (INSTANCE_S_DOWN | INSTANCE_O_DOWN)) return "is down";
    if (replica->link->disconnected) return "is not connected";
    if (s->now_ms - replica->link->available_ms > timers->ping_period * 5) return "does not answer PING";
    if (replica->reported.priority == 0) return "has priority 0";
    if (!replica->info.replied_ms) return "has not answered INFO";
    if (s->now_ms - replica->info.replied_ms > info_max) return "has not answered INFO recently";
    if (replica->reported.primary_link_down_ms > link_down_max) return "was cut off from the primary for too long";
    if (replica->reported.loading) return "is loading a data set";
    if (replica->reported.sync_ineligible) return "lacks acknowledged writes (sync_eligible:0)";
    return NULL;
}

static bool is_better(const struct instance *a, const struct instance *b) {
    if (a->reported.priority != b->reported.priority) return a->reported.priority < b->reported.priority;
    if (a->reported.offset != b->reported.offset) return a->reported.offset > b->reported.offset;
    if (!*a->run_id || !*b->run_id) return *a->run_id && !*b->run_id;
    return strcasecmp(a->run_id, b->run_id) < 0;
}

struct instance *sentinel_choose_replica(const struct sentinel *s, const struct instance *group) {
    struct instance *best = NULL;
    each_instance(&group->replicas, replica) {
        if (sentinel_replica_unfit(s, replica)) continue;
        if (!best || is_better(replica, best)) best = replica;
    }
    return best;
}
