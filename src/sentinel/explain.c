/* explain.c: SENTINEL EXPLAIN: sentences about a group, for people. */
#include "sentinel/links.h"
#include "sentinel/this_sentinel.h"
#include <stdarg.h>
#include <stdio.h>

struct lines {
    struct reply *reply;
    size_t count;
};
static void say(struct lines *lines, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct lines *lines, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    reply_bulk_text(lines->reply, text);
    lines->count++;
}

static void explain_server(struct lines *lines, const struct instance *i, const char *what) {
    const struct sentinel_link *link = i->link;
    const char *host = sentinel_announced(this_sentinel, &i->address), *transport = sentinel_links_transport(link);
    double silent = (double)(this_sentinel->now_ms - link->available_ms) / 1000;
    if (*transport)
        say(lines, "%s %s:%d: connected over %s, last valid reply to PING %.1f s ago", what, host, i->address.port,
            transport, silent);
    else
        say(lines, "%s %s:%d: not connected (%s), last valid reply to PING %.1f s ago", what, host, i->address.port,
            *link->error ? link->error : "no attempt has ended yet", silent);
}

static void explain_state(struct lines *lines, const struct instance *group) {
    const struct sentinel *s = this_sentinel;
    unsigned agree = (group->flags & INSTANCE_S_DOWN) != 0;
    each_in(&group->sentinels, other) agree += (other->flags & INSTANCE_PRIMARY_DOWN) != 0;
    if (s->tilt)
        say(lines, "This Sentinel is in TILT since %.1f s: its process was stopped or late, and it decides nothing",
            (double)(s->now_ms - s->tilt_start_ms) / 1000);
    if (!(group->flags & INSTANCE_S_DOWN)) {
        say(lines,
            "The primary is up in the view of this Sentinel: it is down without a valid reply to PING for %.1f s",
            (double)group->down_after_ms / 1000);
    } else {
        say(lines, "The primary is down in the view of this Sentinel (S_DOWN) since %.1f s: %s",
            (double)(s->now_ms - group->s_down_ms) / 1000,
            !group->reports_primary                  ? "it says that it is a replica"
            : group->flags & INSTANCE_PRIMARY_REBOOT ? "it was restarted and does not finish loading"
                                                     : "it does not answer PING");
        if (group->flags & INSTANCE_O_DOWN)
            say(lines, "It is down in the view of the quorum (O_DOWN): %u of %u", agree, group->options.quorum);
        else
            say(lines, "It is not down in the view of the quorum: %u of the %u Sentinels that must agree say so", agree,
                group->options.quorum);
    }
}

static void explain_votes(struct lines *lines, const struct instance *group) {
    bool quorum, majority;
    size_t voters = group->sentinels.count + 1;
    unsigned usable = sentinel_usable(this_sentinel, group, &quorum, &majority);
    say(lines, "Votes: %zu Sentinels are known, %u are up; a failover needs %zu votes%s", voters, usable,
        voters / 2 + 1 > group->options.quorum ? voters / 2 + 1 : group->options.quorum,
        quorum && majority ? "" : ", which cannot be reached");
    if (*group->vote.leader)
        say(lines, "This Sentinel (%.8s) voted for %.8s in epoch %llu", this_sentinel->id, group->vote.leader,
            (unsigned long long)group->vote.epoch);
    each_in(&group->sentinels, other) {
        char name[128];
        snprintf(name, sizeof name, "Sentinel %.8s%s%s", other->run_id,
                 other->flags & INSTANCE_S_DOWN ? ", which is down," : "",
                 other->flags & INSTANCE_PRIMARY_DOWN ? ", which says that the primary is down," : "");
        explain_server(lines, other, name);
        if (*other->vote.leader)
            say(lines, "Sentinel %.8s voted for %.8s in epoch %llu", other->run_id, other->vote.leader,
                (unsigned long long)other->vote.epoch);
    }
}

static void explain_replicas(struct lines *lines, const struct instance *group) {
    const struct instance *chosen = sentinel_choose_replica(this_sentinel, group);
    each_in(&group->replicas, replica) {
        const char *why = sentinel_replica_unfit(this_sentinel, replica);
        explain_server(lines, replica, "Replica");
        if (why)
            say(lines, "Replica %s cannot be promoted: it %s", replica->name, why);
        else
            say(lines, "Replica %s can be promoted: priority %lld, offset %llu", replica->name,
                (long long)replica->reported.priority, (unsigned long long)replica->reported.offset);
    }
    if (chosen)
        say(lines, "Replica %s would be promoted", chosen->name);
    else
        say(lines, "No replica can be promoted");
}

static void explain_failover(struct lines *lines, const struct instance *group) {
    int64_t now = this_sentinel->now_ms, next = group->failover.start_ms + 2 * group->options.failover_timeout_ms;
    if (group->flags & INSTANCE_FAILOVER_IN_PROGRESS)
        say(lines, "A failover is in progress since %.1f s, in state %s, epoch %llu",
            (double)(now - group->failover.start_ms) / 1000, failover_state_name(group->failover.state),
            (unsigned long long)group->failover.epoch);
    else if (group->failover.start_ms && next > now)
        say(lines,
            "The next failover by this Sentinel starts in %.1f s at the earliest, two failover timeouts after the "
            "last attempt or vote",
            (double)(next - now) / 1000);
    else if (*group->failover.stuck && group->flags & INSTANCE_S_DOWN)
        say(lines, "No failover now: %s", group->failover.stuck);
}

void sentinel_explain(struct call *call, struct instance *group) {
    struct reply_deferred deferred;
    struct lines lines = {call->reply, 0};
    reply_deferred_begin(call->reply, &deferred);
    explain_server(&lines, group, "Primary");
    explain_state(&lines, group);
    explain_failover(&lines, group);
    explain_votes(&lines, group);
    explain_replicas(&lines, group);
    reply_deferred_end(call->reply, &deferred, REPLY_ARRAY, lines.count);
}
