/* tick.c: what happens periodically: links, PING, INFO and hello messages, TILT, and whether an instance is down in
 * this Sentinel's own view (S_DOWN).
 *
 * TILT: a tick that comes much too late means that this process was stopped or that the machine is overloaded, so the
 * silence of other instances proves nothing. The Sentinel then continues to watch but decides nothing. The machine's
 * time does not include the time in which the process was stopped, so no instance appears down because of it. TILT ends
 * when ticks have been in time for TILT_SANE_MS, and at the latest after tilt-period. If the user has set tilt-period,
 * TILT lasts exactly that long. */
#include "sentinel/protocol/machine.h"
#include <string.h>

enum { TILT_SANE_MS = 3000 };

void machine_time(struct sentinel *s, int64_t now_ms) {
    int64_t now = now_ms - s->stopped_ms;
    /* Ticks come every 100 ms; an event may be the first thing that is seen after a stop. */
    if (now - s->tick_ms > SENTINEL_STOPPED_MS && s->tick_ms) {
        int64_t skip = now - s->tick_ms - 100;
        if (s->now_ms > now - skip) skip = now - s->now_ms;
        if (skip > 0) s->stopped_ms += skip, s->late_ms += skip, now -= skip;
    }
    if (now > s->now_ms) s->now_ms = now;
}

/* --- TILT --- */

static void check_tilt(struct sentinel *s, int64_t since_ms) {
    const struct sentinel_timers *timers = &s->settings.timers;
    if (since_ms < 0 || since_ms > timers->tilt_trigger) {
        s->insane_ms = s->now_ms;
        if (!s->tilt) s->tilts++;
        s->tilt = true;
        s->tilt_start_ms = s->now_ms;
        event_text(s, EVENT_WARNING, "+tilt", NULL, "#tilt mode entered");
        return;
    }
    if (!s->tilt) return;
    bool over = s->now_ms - s->tilt_start_ms > timers->tilt_period;
    if (!s->settings.tilt_period_set && s->now_ms - s->insane_ms > TILT_SANE_MS) over = true;
    if (!over) return;
    s->tilt = false;
    event_text(s, EVENT_WARNING, "-tilt", NULL, "#tilt mode exited");
}

/* --- Links --- */

static void ping_instance(struct sentinel *s, struct instance *i) {
    if (!machine_send(s, i, &(struct sentinel_request){.kind = REQUEST_PING})) return;
    i->link->ping_ms = s->now_ms;
    if (!i->link->unanswered_ms) i->link->unanswered_ms = s->now_ms;
}

static void reconnect(struct sentinel *s, struct instance *i) {
    struct sentinel_link *link = i->link;
    if (!link->disconnected || i->address.port == 0) return;
    if (s->now_ms - link->dial_ms < s->settings.timers.ping_period && link->dial_ms) return;
    link->dial_ms = s->now_ms;
    /* A name may have another address by now. */
    if (s->settings.resolve_hostnames && strcmp(i->address.host, i->address.ip) != 0) {
        char ip[SENTINEL_IP_MAX];
        if (s->effects->resolve(s->context, i->address.host, true, ip)) memcpy(i->address.ip, ip, sizeof ip);
    }
    if (!*i->address.ip) return;
    for (int kind = 0; kind < (i->flags & INSTANCE_SENTINEL ? 1 : LINK_KINDS); kind++) {
        if (link->half[kind].state != HALF_NONE) continue;
        link->half[kind].state = HALF_DIALING;
        link->half[kind].since_ms = s->now_ms;
        if (kind == LINK_PUBSUB) link->heard_ms = s->now_ms;
        if (!link->instance) link->instance = i;
        s->effects->dial(s->context, link, (enum link_kind)kind);
    }
    link->disconnected = false;
    ping_instance(s, i);
}

void sentinel_link_opened(struct sentinel *s, struct sentinel_link *link, enum link_kind kind, int64_t now_ms) {
    machine_time(s, now_ms);
    link->half[kind].state = HALF_OPEN;
    if (kind == LINK_PUBSUB) link->heard_ms = s->now_ms;
}
void sentinel_link_closed(struct sentinel *s, struct sentinel_link *link, enum link_kind kind, const char *reason,
                          int64_t now_ms) {
    machine_time(s, now_ms);
    strncpy(link->error, reason, sizeof link->error - 1);
    link->half[kind] = (struct link_half){.state = HALF_NONE};
    link->disconnected = true;
    if (kind == LINK_COMMANDS) link->pending = 0;
    if (kind == LINK_COMMANDS && link->instance) link->instance->info.pending = 0;
}
void sentinel_link_heard(struct sentinel *s, struct sentinel_link *link, int64_t now_ms) {
    machine_time(s, now_ms);
    link->heard_ms = s->now_ms;
}

/* Reconnects a link that gets no replies: the connection may be dead although the peer works. */
static void check_links(struct sentinel *s, struct instance *i) {
    struct sentinel_link *link = i->link;
    const struct sentinel_timers *timers = &s->settings.timers;
    struct link_half *commands = &link->half[LINK_COMMANDS], *pubsub = &link->half[LINK_PUBSUB];
    int64_t age = s->now_ms - commands->since_ms, half = i->down_after_ms / 2;
    bool silent = link->unanswered_ms && s->now_ms - link->unanswered_ms > half && s->now_ms - link->pong_ms > half;
    /* An attempt to connect may get no answer at all, and the kernel repeats it ever more rarely. */
    bool stuck = commands->state == HALF_DIALING && age > half;
    if (commands->state != HALF_NONE && age > timers->min_link_reconnect && (silent || stuck))
        close_half(s, link, LINK_COMMANDS);
    if (pubsub->state != HALF_NONE && s->now_ms - pubsub->since_ms > timers->min_link_reconnect &&
        s->now_ms - link->heard_ms > timers->publish_period * 3)
        close_half(s, link, LINK_PUBSUB);
}

/* --- Periodic commands --- */

void info_request(struct sentinel *s, struct instance *i) {
    if (!machine_send(s, i, &(struct sentinel_request){.kind = REQUEST_INFO})) return;
    if (s->now_ms - i->info.sent_ms >= 1000) i->info.pending = 0; /* the last one will hardly be answered any more */
    i->info.sent_ms = s->now_ms;
    i->info.pending++;
}

/* If down-after is long, PING is sent only together with hello messages: that costs half as much, and finds a failure
 * up to a second later. A period that the user has set is kept. */
static int64_t ping_period_of(const struct sentinel *s, const struct instance *i) {
    const struct sentinel_timers *timers = &s->settings.timers;
    int64_t period = timers->ping_period;
    if (i->down_after_ms < period) return i->down_after_ms;
    if (period == sentinel_default_timers.ping_period && i->down_after_ms / 10 >= timers->publish_period)
        period = timers->publish_period;
    return period;
}

static void send_periodically(struct sentinel *s, struct instance *i) {
    struct sentinel_link *link = i->link;
    const struct sentinel_timers *timers = &s->settings.timers;
    if (link->half[LINK_COMMANDS].state == HALF_NONE || link->pending >= PENDING_MAX * link->refs) return;
    bool urgent =
        i->flags & INSTANCE_REPLICA && (i->primary->flags & (INSTANCE_O_DOWN | INSTANCE_FAILOVER_IN_PROGRESS) ||
                                        i->reported.primary_link_down_ms != 0);
    int64_t info_period = urgent ? 1000 : timers->info_period;
    if (info_period > timers->info_period) info_period = timers->info_period;
    int64_t ping_period = ping_period_of(s, i);
    /* An INFO that is on its way need not be sent again at once. */
    bool info_underway = i->info.pending && s->now_ms - i->info.sent_ms < 1000;
    bool info = !(i->flags & INSTANCE_SENTINEL) && !info_underway &&
                (!i->info.replied_ms || s->now_ms - i->info.replied_ms > info_period);
    bool hello = s->now_ms - i->published_ms > timers->publish_period &&
                 s->now_ms - i->hello_sent_ms > timers->publish_period / 2;
    /* Messages that leave together cost little more than one: a PING is sent with another before its time, and INFO, if
     * it is not urgent, waits for the next PING. */
    int64_t ping_wait = hello ? ping_period * 3 / 4 : ping_period;
    bool ping = s->now_ms - link->pong_ms > ping_wait && s->now_ms - link->ping_ms > ping_period / 2;
    if (i->info.replied_ms && !ping && info_period > ping_period * 5 &&
        s->now_ms - i->info.replied_ms < info_period + ping_period)
        info = false;
    if (info) info_request(s, i);
    if (ping) ping_instance(s, i);
    if (hello) hello_publish(s, i);
}

/* --- S_DOWN --- */

static void check_s_down(struct sentinel *s, struct instance *i) {
    const struct sentinel_link *link = i->link;
    int64_t silence = 0;
    if (link->unanswered_ms)
        silence = s->now_ms - link->unanswered_ms;
    else if (link->disconnected || link->half[LINK_COMMANDS].state != HALF_OPEN)
        silence = s->now_ms - link->available_ms;
    check_links(s, i);
    bool wrong_role = i->flags & INSTANCE_PRIMARY && !i->reports_primary &&
                      s->now_ms - i->role_ms > i->down_after_ms + s->settings.timers.info_period * 2;
    bool rebooting = i->flags & INSTANCE_PRIMARY_REBOOT && s->now_ms - i->reboot_ms > i->options.reboot_down_after_ms;
    bool down = silence > i->down_after_ms || wrong_role || rebooting;
    if (down && !(i->flags & INSTANCE_S_DOWN)) {
        i->s_down_ms = s->now_ms;
        i->flags |= INSTANCE_S_DOWN;
        event_plain(s, EVENT_WARNING, "+sdown", i);
    } else if (!down && i->flags & INSTANCE_S_DOWN) {
        i->flags &= ~(unsigned)(INSTANCE_S_DOWN | INSTANCE_SCRIPT_KILL_SENT);
        event_plain(s, EVENT_WARNING, "-sdown", i);
    }
}

static void tick_instance(struct sentinel *s, struct instance *i) {
    reconnect(s, i);
    send_periodically(s, i);
    if (!s->tilt) check_s_down(s, i);
}

static void tick_group(struct sentinel *s, struct instance *group) {
    tick_instance(s, group);
    each_instance(&group->replicas, replica) tick_instance(s, replica);
    each_instance(&group->sentinels, other) tick_instance(s, other);
    if (s->tilt) return;
    check_o_down(s, group);
    if (failover_start_if_needed(s, group)) ask_others(s, group, true);
    failover_step(s, group);
    ask_others(s, group, false);
}

void sentinel_tick(struct sentinel *s, int64_t now_ms) {
    int64_t before = s->tick_ms, since = now_ms - s->stopped_ms - before + s->late_ms;
    machine_time(s, now_ms);
    s->late_ms = 0;
    s->tick_ms = s->now_ms;
    s->ticks++;
    check_tilt(s, before ? since : 0);
    each_instance(&s->groups, group) tick_group(s, group);
}
