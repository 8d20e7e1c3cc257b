/* reports.c: what the replies to PING and INFO say. */
#include "lib/system/memory.h"
#include "sentinel/protocol/machine.h"
#include <stdio.h>
#include <string.h>

enum { CONVERT_PUBLISH_PERIODS = 4 };

/* --- PING --- */

static void ping_answered(struct sentinel *s, struct sentinel_link *link, const struct sentinel_answer *answer) {
    struct instance *i = link->instance;
    bool pong = slice_starts(answer->text, "PONG");
    if (pong || slice_starts(answer->text, "LOADING") || slice_starts(answer->text, "MASTERDOWN")) {
        link->available_ms = s->now_ms;
        link->available_stopped_ms = s->stopped_ms;
        link->unanswered_ms = 0;
        if (pong) i->flags &= ~(unsigned)INSTANCE_PRIMARY_REBOOT;
    } else if (slice_starts(answer->text, "BUSY") && i->flags & INSTANCE_S_DOWN &&
               !(i->flags & INSTANCE_SCRIPT_KILL_SENT)) {
        /* A script runs for too long. Once: if the script has written, it cannot be killed. */
        if (machine_send(s, i, &(struct sentinel_request){.kind = REQUEST_KILL_SCRIPT}))
            i->flags |= INSTANCE_SCRIPT_KILL_SENT;
    }
    link->pong_ms = s->now_ms;
}

/* --- INFO --- */

struct discovery {
    struct sentinel *s;
    struct instance *group;
    bool changed;
};
static void replica_seen(void *context, const char *host, int port) {
    struct discovery *d = context;
    struct sentinel_address address;
    if (d->group->replicas.count >= SENTINEL_REPLICAS_MAX) return;
    each_instance(&d->group->replicas,
                  known) if (known->address.port == port && (strcmp(known->address.ip, host) == 0 ||
                                                             strcasecmp(known->address.host, host) == 0)) return;
    if (set_address(d->s, &address, slice_of(host), port, false)) return;
    if (find_replica(d->s, d->group, &address)) return;
    event_plain(d->s, EVENT_NOTICE, "+slave", add_replica(d->s, d->group, &address));
    d->changed = true;
}

static bool primary_is_sane(const struct sentinel *s, const struct instance *group) {
    return group->reports_primary && !(group->flags & (INSTANCE_S_DOWN | INSTANCE_O_DOWN)) &&
           s->now_ms - group->info.replied_ms < s->settings.timers.info_period * 2;
}
static bool was_up_for(const struct sentinel *s, const struct instance *i, int64_t ms) {
    int64_t last = i->s_down_ms > i->o_down_ms ? i->s_down_ms : i->o_down_ms;
    return last == 0 || s->now_ms - last > ms;
}

/* A replica reports for a while that it is a primary. Either it was the primary before a failover and has come back, or
 * it has just become the primary by FAILOVER; INFO comes too rarely to tell which. So this Sentinel asks the group's
 * primary for its role, and corrects the replica only if the primary still is one. Otherwise it would undo a hand-over,
 * and two replicas would follow each other. */
static bool is_stray_primary(const struct sentinel *s, const struct instance *replica) {
    int64_t wait = s->settings.timers.publish_period * CONVERT_PUBLISH_PERIODS;
    const struct instance *group = replica->primary;
    return replica->reports_primary && !(replica->flags & INSTANCE_PROMOTED) &&
           !(group->flags & INSTANCE_FAILOVER_IN_PROGRESS) && primary_is_sane(s, group) &&
           was_up_for(s, replica, wait) && s->now_ms - replica->role_ms > wait;
}
static void suspect_role(struct sentinel *s, struct instance *replica) {
    if (!is_stray_primary(s, replica) || replica->role_suspect) return;
    replica->role_suspect = true;
    info_request(s, replica->primary);
}
static void correct_roles(struct sentinel *s, struct instance *group) {
    if (group->info.pending) return; /* the answer may be to an older question */
    each_instance(&group->replicas, replica) {
        if (!replica->role_suspect) continue;
        replica->role_suspect = false;
        if (!group->reports_primary || group->reported.failover_in_progress || !is_stray_primary(s, replica)) continue;
        if (send_replicate(s, replica, &group->address)) event_plain(s, EVENT_NOTICE, "+convert-to-slave", replica);
    }
}
static bool follows(struct sentinel *s, const struct instance *replica, const struct sentinel_address *primary) {
    const struct server_info *r = &replica->reported;
    struct sentinel_address told;
    if (r->primary_port != primary->port) return false;
    if (strcasecmp(r->primary_host, primary->ip) == 0 || strcasecmp(r->primary_host, primary->host) == 0) return true;
    return !set_address(s, &told, slice_of(r->primary_host), r->primary_port, false) &&
           sentinel_address_equal(s, &told, primary);
}
static void correct_primary(struct sentinel *s, struct instance *replica) {
    struct instance *group = replica->primary;
    int64_t wait = group->options.failover_timeout_ms;
    if (!*replica->reported.primary_host || follows(s, replica, &group->address)) return;
    if (group->flags & INSTANCE_FAILOVER_IN_PROGRESS) return;
    if (!primary_is_sane(s, group) || !was_up_for(s, replica, wait) || s->now_ms - replica->reconf_ms <= wait) return;
    if (send_replicate(s, replica, &group->address)) event_plain(s, EVENT_NOTICE, "+fix-slave-config", replica);
}
static void watch_reconfiguration(struct sentinel *s, struct instance *replica) {
    struct instance *group = replica->primary;
    if (replica->flags & INSTANCE_RECONF_SENT && group->failover.promoted &&
        follows(s, replica, &group->failover.promoted->address)) {
        replica->flags &= ~(unsigned)INSTANCE_RECONF_SENT;
        replica->flags |= INSTANCE_RECONF_INPROG;
        event_plain(s, EVENT_NOTICE, "+slave-reconf-inprog", replica);
    }
    if (replica->flags & INSTANCE_RECONF_INPROG && replica->reported.primary_link_up) {
        replica->flags &= ~(unsigned)INSTANCE_RECONF_INPROG;
        replica->flags |= INSTANCE_RECONF_DONE;
        event_plain(s, EVENT_NOTICE, "+slave-reconf-done", replica);
    }
}

static void info_keep(struct instance *i, struct slice text) {
    char *copy = mem_try_alloc(text.len + 1);
    if (!copy) return;
    if (text.len) memcpy(copy, text.data, text.len);
    mem_free(i->info.text);
    i->info.text = copy;
    i->info.len = text.len;
}

static void info_received(struct sentinel *s, struct instance *i, struct slice text) {
    struct server_info info = i->reported;
    struct discovery discovery = {s, group_of(i), false};
    info_keep(i, text);
    bool is_group = i->flags & INSTANCE_PRIMARY;
    /* A reply without a role is not from a server, but perhaps from a Sentinel that got its address: it counts as the
     * reply of a replica. */
    server_info_read(text, &info, NULL, NULL);
    if (*info.run_id && strcmp(info.run_id, i->run_id) != 0) {
        if (*i->run_id) {
            event_plain(s, EVENT_NOTICE, "+reboot", i);
            if (is_group && i->options.reboot_down_after_ms) {
                i->flags |= INSTANCE_PRIMARY_REBOOT;
                i->reboot_ms = s->now_ms;
            }
        }
        memcpy(i->run_id, info.run_id, sizeof i->run_id);
    }
    /* Replicas are taken from the primary only: one of a chain is not of the group's first row. */
    if (is_group && info.is_primary) server_info_read(text, &info, replica_seen, &discovery);
    bool moved =
        strcmp(info.primary_host, i->reported.primary_host) != 0 || info.primary_port != i->reported.primary_port;
    if (!info.is_primary && moved) i->reconf_ms = s->now_ms;
    /* It was a replica since the last INFO, and has been promoted again: by a failover that we shall hear of. */
    if (!is_group && info.is_primary && strcmp(info.replication_id, i->reported.replication_id) != 0)
        i->role_ms = s->now_ms;
    i->reported = info;
    i->info.replied_ms = s->now_ms;
    if (discovery.changed) machine_save(s, false);
    if (info.is_primary != i->reports_primary) {
        i->role_ms = s->now_ms;
        i->reports_primary = info.is_primary;
        if (!info.is_primary) i->reconf_ms = s->now_ms;
        event_about(s, EVENT_VERBOSE, info.is_primary == is_group ? "+role-change" : "-role-change", i,
                    "new reported role is %s", info.is_primary ? "master" : "slave");
    }
    if (s->tilt) return;
    if (is_group) {
        correct_roles(s, i);
        return;
    }
    struct instance *group = i->primary;
    if (info.is_primary && i->flags & INSTANCE_PROMOTED && group->flags & INSTANCE_FAILOVER_IN_PROGRESS &&
        group->failover.state == FAILOVER_WAIT_PROMOTION)
        failover_promoted(s, i);
    else if (info.is_primary)
        suspect_role(s, i);
    else
        correct_primary(s, i);
    if (!info.is_primary) watch_reconfiguration(s, i);
}

void sentinel_replied(struct sentinel *s, struct sentinel_link *link, enum sentinel_request_kind kind,
                      const char *group_name, const struct sentinel_answer *answer, int64_t now_ms) {
    machine_time(s, now_ms);
    struct instance *i = link->instance;
    switch (kind) {
    case REQUEST_PING: ping_answered(s, link, answer); break;
    case REQUEST_INFO:
        if (i->info.pending) i->info.pending--;
        if (answer->error) break;
        info_received(s, i, answer->text);
        /* A failover need not wait for the next tick. */
        if (!s->tilt && group_of(i)->flags & INSTANCE_FAILOVER_IN_PROGRESS) failover_step(s, group_of(i));
        break;
    case REQUEST_HELLO:
        if (!answer->error) i->published_ms = s->now_ms;
        break;
    case REQUEST_ASK: {
        struct instance *group = sentinel_find_group(s, slice_of(group_name));
        if (!group) break;
        each_instance(&group->sentinels, other) {
            if (other->link != link) continue;
            ask_answered(s, other, answer);
            /* Votes are counted at once. Failovers start at ticks only, which come at random times. */
            if (!s->tilt && group->flags & INSTANCE_FAILOVER_IN_PROGRESS) failover_step(s, group);
            break;
        }
        break;
    }
    default: break;
    }
}
