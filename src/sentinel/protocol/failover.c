/* failover.c: the steps of a failover, after this Sentinel has been elected, or on a user's request.
 *
 *     wait_start           until this Sentinel is elected; it gives up after the election timeout
 *     select_slave         asks the candidates for their offsets and chooses one
 *     send_slaveof_noone   promotes it (coordinated: asks the primary to hand over to it)
 *     wait_promotion       until its INFO says that it is a primary
 *     reconf_slaves        the other replicas follow it, parallel-syncs at a time
 *     update_config        the group has a new primary
 *
 * Between selection and promotion no step waits for a tick: each reply begins the next step. */
#include "lib/system/must.h"
#include "sentinel/protocol/machine.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* How long to wait for the candidates' offsets. Ticks are counted, not time: while this process waits for the disk,
 * replies stay in its sockets. */
enum { OFFSETS_TICKS = 5 };

const char *failover_state_name(enum failover_state state) {
    static const char *const names[] = {[FAILOVER_NONE] = "none",
                                        [FAILOVER_WAIT_START] = "wait_start",
                                        [FAILOVER_SELECT] = "select_slave",
                                        [FAILOVER_SEND_PROMOTION] = "send_slaveof_noone",
                                        [FAILOVER_WAIT_PROMOTION] = "wait_promotion",
                                        [FAILOVER_RECONFIGURE] = "reconf_slaves",
                                        [FAILOVER_UPDATE_CONFIG] = "update_config"};
    return names[state];
}

void failover_stuck(struct sentinel *s, struct instance *group, const char *format, ...) {
    char text[sizeof group->failover.stuck];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (strcmp(text, group->failover.stuck) == 0) return;
    memcpy(group->failover.stuck, text, sizeof text);
    machine_log(s, EVENT_NOTICE, "No failover of '%s' now: %s", group->name, text);
}

/* The steps follow each other; a failover can be aborted in each. */
static void failover_enter(struct sentinel *s, struct instance *group, enum failover_state state) {
    must_hold(state == FAILOVER_NONE || state == group->failover.state + 1, "from %s to %s",
              failover_state_name(group->failover.state), failover_state_name(state));
    group->failover.state = state;
    group->failover.state_ms = s->now_ms;
    group->failover.offsets_asked_tick = 0;
}

void failover_start(struct sentinel *s, struct instance *group) {
    failover_enter(s, group, FAILOVER_WAIT_START);
    group->flags |= INSTANCE_FAILOVER_IN_PROGRESS;
    group->failover.epoch = ++s->current_epoch;
    machine_save(s, true);
    event_text(s, EVENT_WARNING, "+new-epoch", group, "%llu", (unsigned long long)s->current_epoch);
    event_plain(s, EVENT_WARNING, "+try-failover", group);
    group->failover.start_ms = s->now_ms + (int64_t)(s->effects->random(s->context) % DESYNC_MS);
    group->failover.stuck[0] = 0;
}

bool failover_start_if_needed(struct sentinel *s, struct instance *group) {
    if (!(group->flags & INSTANCE_O_DOWN) || group->flags & INSTANCE_FAILOVER_IN_PROGRESS) return false;
    int64_t wait =
        group->failover.start_ms ? group->failover.start_ms + group->options.failover_timeout_ms * 2 - s->now_ms : 0;
    if (wait > 0) {
        if (group->failover.logged_ms != group->failover.start_ms) s->effects->failover_delayed(s->context, wait);
        group->failover.logged_ms = group->failover.start_ms;
        return false;
    }
    failover_start(s, group);
    return true;
}

static void failover_abort(struct sentinel *s, struct instance *group) {
    group->flags &= ~(unsigned)(INSTANCE_FAILOVER_IN_PROGRESS | INSTANCE_FORCE_FAILOVER | INSTANCE_COORD_FAILOVER);
    failover_enter(s, group, FAILOVER_NONE);
    if (group->failover.promoted) group->failover.promoted->flags &= ~(unsigned)INSTANCE_PROMOTED;
    group->failover.promoted = NULL;
}

/* --- Steps --- */

static void wait_start(struct sentinel *s, struct instance *group) {
    if (s->tick_ms < group->failover.state_ms) return; /* a user's request: it begins at the next tick */
    const char *leader = elected_leader(s, group, group->failover.epoch);
    if ((!leader || strcmp(leader, s->id) != 0) && !(group->flags & INSTANCE_FORCE_FAILOVER)) {
        int64_t patience = s->settings.timers.election_timeout;
        if (patience > group->options.failover_timeout_ms) patience = group->options.failover_timeout_ms;
        if (s->now_ms - group->failover.start_ms <= patience) return;
        event_plain(s, EVENT_WARNING, "-failover-abort-not-elected", group);
        failover_abort(s, group);
        return;
    }
    /* Its own vote counted, so it must be on disk: after a crash this Sentinel could vote again in this epoch. */
    if (!s->effects->settle(s->context)) return;
    event_plain(s, EVENT_WARNING, "+elected-leader", group);
    if (s->settings.crash_after_election) s->effects->crash(s->context);
    failover_enter(s, group, FAILOVER_SELECT);
    event_plain(s, EVENT_WARNING, "+failover-state-select-slave", group);
}

/* Whether the replica would be a candidate if its INFO were new. */
static bool is_alive(const struct sentinel *s, const struct instance *replica) {
    return !(replica->flags & INSTANCE_S_DOWN) && link_is_up(replica->link) &&
           s->now_ms - replica->link->available_ms <= s->settings.timers.ping_period * 5;
}
/* The last INFO may be 10 seconds old, too old for a candidate: asks all candidates again. True: all have answered, or
 * the time for it is over. */
static bool offsets_are_known(struct sentinel *s, struct instance *group) {
    if (!group->failover.offsets_asked_tick) {
        group->failover.offsets_asked_tick = s->ticks;
        each_instance(&group->replicas, replica) if (is_alive(s, replica)) info_request(s, replica);
    }
    if (s->ticks - group->failover.offsets_asked_tick > OFFSETS_TICKS) return true;
    each_instance(&group->replicas, replica) if (is_alive(s, replica) && replica->info.pending) return false;
    return true;
}

static void log_unfit(struct sentinel *s, struct instance *group) {
    if (!group->replicas.count) machine_log(s, EVENT_NOTICE, "No replica of '%s' is known", group->name);
    each_instance(&group->replicas, replica) {
        const char *why = sentinel_replica_unfit(s, replica);
        if (why)
            machine_log(s, EVENT_NOTICE, "Replica %s of '%s' cannot be promoted: it %s", replica->name, group->name,
                        why);
    }
}

static void select_replica(struct sentinel *s, struct instance *group) {
    if (!offsets_are_known(s, group)) return;
    struct instance *chosen = sentinel_choose_replica(s, group);
    log_unfit(s, group);
    if (!chosen) {
        event_plain(s, EVENT_WARNING, "-failover-abort-no-good-slave", group);
        failover_abort(s, group);
        return;
    }
    event_plain(s, EVENT_WARNING, "+selected-slave", chosen);
    chosen->flags |= INSTANCE_PROMOTED;
    group->failover.promoted = chosen;
    failover_enter(s, group, FAILOVER_SEND_PROMOTION);
    event_plain(s, EVENT_NOTICE, "+failover-state-send-slaveof-noone", chosen);
}

static void timed_out(struct sentinel *s, struct instance *group, const char *event) {
    event_plain(s, EVENT_WARNING, event, group);
    failover_abort(s, group);
}

static void send_promotion(struct sentinel *s, struct instance *group) {
    struct instance *chosen = group->failover.promoted;
    bool coordinated = group->flags & INSTANCE_COORD_FAILOVER, sent;
    int64_t left = group->options.failover_timeout_ms - (s->now_ms - group->failover.state_ms);
    if (coordinated && left > 0)
        sent = link_is_up(group->link) &&
               machine_send(s, group,
                            &(struct sentinel_request){.kind = REQUEST_COORDINATED,
                                                       .host = sentinel_announced(s, &chosen->address),
                                                       .port = chosen->address.port,
                                                       .timeout_ms = left});
    else
        sent = !coordinated && link_is_up(chosen->link) && send_replicate(s, chosen, NULL);
    if (!sent) {
        if (s->now_ms - group->failover.state_ms > group->options.failover_timeout_ms)
            timed_out(s, group, coordinated ? "-failover-abort-master-timeout" : "-failover-abort-slave-timeout");
        return;
    }
    event_plain(s, EVENT_NOTICE, "+failover-state-wait-promotion", chosen);
    failover_enter(s, group, FAILOVER_WAIT_PROMOTION);
}

static void wait_promotion(struct sentinel *s, struct instance *group) {
    struct instance *chosen = group->failover.promoted;
    if (s->now_ms - group->failover.state_ms > group->options.failover_timeout_ms) {
        /* A coordinated one is given up by the primary itself at the same time. FAILOVER ABORT could leave two
         * primaries. */
        timed_out(s, group, "-failover-abort-slave-timeout");
        return;
    }
    /* Its INFO says when it is a primary: ask for it more often than each second. */
    if (chosen && s->now_ms - chosen->info.sent_ms >= 100 && !chosen->info.pending) info_request(s, chosen);
}

void failover_promoted(struct sentinel *s, struct instance *chosen) {
    struct instance *group = chosen->primary;
    bool coordinated = group->flags & INSTANCE_COORD_FAILOVER;
    must(group->failover.promoted == chosen);
    /* The others take the address from hello messages, because this epoch is greater. */
    group->config_epoch = group->failover.epoch;
    failover_enter(s, group, FAILOVER_RECONFIGURE);
    machine_save(s, true);
    event_plain(s, EVENT_WARNING, "+promoted-slave", chosen);
    if (s->settings.crash_after_promotion) s->effects->crash(s->context);
    event_plain(s, EVENT_WARNING, "+failover-state-reconf-slaves", group);
    s->effects->reconfig_script(s->context, group, "leader", "start", &group->address, &chosen->address);
    if (coordinated) {
        /* The old primary, which is a replica now, would else hold back PUBLISH, and what follows it on the connection,
         * until the failover timeout is over: it would look down. */
        machine_send(s, group, &(struct sentinel_request){.kind = REQUEST_HANDED_OVER});
        machine_send(s, chosen, &(struct sentinel_request){.kind = REQUEST_HANDED_OVER});
    }
    hello_soon(s, group);
}

bool send_replicate(struct sentinel *s, struct instance *i, const struct sentinel_address *primary) {
    return machine_send(s, i,
                        &(struct sentinel_request){.kind = REQUEST_REPLICATE,
                                                   .host = primary ? sentinel_announced(s, primary) : NULL,
                                                   .port = primary ? primary->port : 0,
                                                   .abort = i->reported.failover_in_progress});
}

static bool is_configured(const struct instance *replica) {
    return replica->flags & (INSTANCE_PROMOTED | INSTANCE_RECONF_DONE);
}

/* Ends the failover when all reachable replicas follow the promoted one, when the time is over, and when the promoted
 * one has died: it must become the primary here, too, so that it can be failed over. The other Sentinels have changed
 * their configuration already, and this one could not agree with them that the new primary is down. (Valkey's Sentinel
 * waits for its return.) */
static void detect_end(struct sentinel *s, struct instance *group) {
    unsigned missing = 0;
    if (!group->failover.promoted) return;
    each_instance(&group->replicas, replica) missing += !is_configured(replica) && !(replica->flags & INSTANCE_S_DOWN);
    bool dead = group->failover.promoted->flags & INSTANCE_S_DOWN;
    bool late = dead || s->now_ms - group->failover.state_ms > group->options.failover_timeout_ms;
    if (dead) machine_log(s, EVENT_NOTICE, "The failover of '%s' ends now: the promoted replica is down", group->name);
    if (missing && !late) return;
    if (late) {
        event_plain(s, EVENT_WARNING, "+failover-end-for-timeout", group);
        each_instance(&group->replicas, replica) {
            if (is_configured(replica) || replica->flags & INSTANCE_RECONF_SENT || !link_is_up(replica->link)) continue;
            if (!send_replicate(s, replica, &group->failover.promoted->address)) continue;
            event_plain(s, EVENT_NOTICE, "+slave-reconf-sent-be", replica);
            replica->flags |= INSTANCE_RECONF_SENT;
        }
    }
    event_plain(s, EVENT_WARNING, "+failover-end", group);
    failover_enter(s, group, FAILOVER_UPDATE_CONFIG);
}

static void reconfigure(struct sentinel *s, struct instance *group) {
    unsigned underway = 0;
    each_instance(&group->replicas, replica) underway +=
        (replica->flags & (INSTANCE_RECONF_SENT | INSTANCE_RECONF_INPROG)) != 0;
    each_instance(&group->replicas, replica) {
        if (is_configured(replica)) continue;
        if (replica->flags & INSTANCE_RECONF_SENT &&
            s->now_ms - replica->reconf_sent_ms > s->settings.timers.reconf_timeout) {
            event_plain(s, EVENT_NOTICE, "-slave-reconf-sent-timeout", replica);
            replica->flags &= ~(unsigned)INSTANCE_RECONF_SENT;
            replica->flags |= INSTANCE_RECONF_DONE; /* REPLICAOF is sent once more, without waiting for the result */
        }
        if (replica->flags & (INSTANCE_RECONF_SENT | INSTANCE_RECONF_INPROG)) continue;
        if (!link_is_up(replica->link) || underway >= group->options.parallel_syncs || !group->failover.promoted)
            continue;
        if (!send_replicate(s, replica, &group->failover.promoted->address)) continue;
        replica->flags |= INSTANCE_RECONF_SENT;
        replica->reconf_sent_ms = s->now_ms;
        event_plain(s, EVENT_NOTICE, "+slave-reconf-sent", replica);
        underway++;
    }
    detect_end(s, group);
}

static void update_config(struct sentinel *s, struct instance *group) {
    const struct instance *now = group->failover.promoted ? group->failover.promoted : group;
    struct sentinel_address address = now->address;
    event_text(s, EVENT_WARNING, "+switch-master", group, "%s %s %d %s %d", group->name,
               sentinel_announced(s, &group->address), group->address.port, sentinel_announced(s, &address),
               address.port);
    group_change_primary(s, group, &address);
}

/* Frees the replicas when the failover ends. */
void failover_step(struct sentinel *s, struct instance *group) {
    if (!(group->flags & INSTANCE_FAILOVER_IN_PROGRESS)) return;
    /* A server that the user removed, or that another Sentinel's configuration replaced. */
    if (group->failover.state > FAILOVER_SELECT && !group->failover.promoted) {
        failover_abort(s, group);
        return;
    }
    if (group->failover.state == FAILOVER_WAIT_START) wait_start(s, group);
    if (group->failover.state == FAILOVER_SELECT) select_replica(s, group);
    if (group->failover.state == FAILOVER_SEND_PROMOTION) send_promotion(s, group);
    if (group->failover.state == FAILOVER_WAIT_PROMOTION) wait_promotion(s, group);
    if (group->failover.state == FAILOVER_RECONFIGURE) reconfigure(s, group);
    /* That closes the links: the last messages of this turn leave before the next tick. */
    if (group->failover.state == FAILOVER_UPDATE_CONFIG && s->tick_ms > group->failover.state_ms)
        update_config(s, group);
}
