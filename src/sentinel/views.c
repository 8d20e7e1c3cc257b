/* views.c: see views.h. */
#include "sentinel/views.h"
#include "sentinel/scripts.h"
#include "sentinel/this_sentinel.h"
#include <stdio.h>

struct map {
    struct reply *reply;
    size_t count;
};
static void text(struct map *map, const char *name, const char *value) {
    reply_bulk_text(map->reply, name);
    reply_bulk_text(map->reply, value);
    map->count++;
}
static void number(struct map *map, const char *name, int64_t value) {
    reply_bulk_text(map->reply, name);
    reply_bulk_integer(map->reply, value);
    map->count++;
}

static void view_group(struct map *map, const struct instance *i) {
    number(map, "config-epoch", (int64_t)i->config_epoch);
    number(map, "num-slaves", (int64_t)i->replicas.count);
    number(map, "num-other-sentinels", (int64_t)i->sentinels.count);
    number(map, "quorum", i->options.quorum);
    number(map, "failover-timeout", i->options.failover_timeout_ms);
    number(map, "parallel-syncs", i->options.parallel_syncs);
    if (i->options.notification_script) text(map, "notification-script", i->options.notification_script);
    if (i->options.reconfig_script) text(map, "client-reconfig-script", i->options.reconfig_script);
}
static void view_replica(struct map *map, const struct instance *i) {
    const struct server_info *info = &i->reported;
    number(map, "master-link-down-time", info->primary_link_down_ms);
    text(map, "master-link-status", info->primary_link_up ? "ok" : "err");
    text(map, "master-host", *info->primary_host ? info->primary_host : "?");
    number(map, "master-port", info->primary_port);
    number(map, "slave-priority", info->priority);
    number(map, "slave-repl-offset", (int64_t)info->offset);
    number(map, "replica-announced", info->announced);
}
static void view_sentinel(struct map *map, const struct instance *i, int64_t now) {
    number(map, "last-hello-message", now - i->hello_ms);
    text(map, "voted-leader", *i->vote.leader ? i->vote.leader : "?");
    number(map, "voted-leader-epoch", (int64_t)i->vote.epoch);
}

void view_instance(struct reply *reply, const struct instance *i) {
    struct reply_deferred deferred;
    struct map map = {reply, 0};
    const struct sentinel_link *link = i->link;
    int64_t now = this_sentinel->now_ms;
    char flags[256];
    sentinel_flags_text(i, flags);
    reply_deferred_begin(reply, &deferred);
    text(&map, "name", i->name);
    text(&map, "ip", sentinel_announced(this_sentinel, &i->address));
    number(&map, "port", i->address.port);
    text(&map, "runid", i->run_id);
    text(&map, "flags", flags);
    number(&map, "link-pending-commands", link->pending);
    number(&map, "link-refcount", link->refs);
    if (i->flags & INSTANCE_FAILOVER_IN_PROGRESS) text(&map, "failover-state", failover_state_name(i->failover.state));
    number(&map, "last-ping-sent", link->unanswered_ms ? now - link->unanswered_ms : 0);
    number(&map, "last-ok-ping-reply", now - link->available_ms);
    number(&map, "last-ping-reply", now - link->pong_ms);
    if (i->flags & INSTANCE_S_DOWN) number(&map, "s-down-time", now - i->s_down_ms);
    if (i->flags & INSTANCE_O_DOWN) number(&map, "o-down-time", now - i->o_down_ms);
    number(&map, "down-after-milliseconds", i->down_after_ms);
    if (!(i->flags & INSTANCE_SENTINEL)) {
        number(&map, "info-refresh", i->info.replied_ms ? now - i->info.replied_ms : 0);
        text(&map, "role-reported", i->reports_primary ? "master" : "slave");
        number(&map, "role-reported-time", now - i->role_ms);
    }
    if (i->flags & INSTANCE_PRIMARY) view_group(&map, i);
    if (i->flags & INSTANCE_REPLICA) view_replica(&map, i);
    if (i->flags & INSTANCE_SENTINEL) view_sentinel(&map, i, now);
    reply_deferred_end(reply, &deferred, REPLY_MAP, map.count);
}

void view_list(struct reply *reply, const struct instance_list *list) {
    size_t count = 0;
    each_in(list, i) count += i->reported.announced != 0;
    reply_array(reply, count);
    each_in(list, shown) if (shown->reported.announced) view_instance(reply, shown);
}

void view_primary_address(struct reply *reply, const struct instance *group, bool rdma) {
    const struct instance *primary = sentinel_current_primary(group);
    int port = primary->address.port;
    if (rdma && primary->reported.rdma_port) port = primary->reported.rdma_port;
    reply_array(reply, 2);
    reply_bulk_text(reply, sentinel_announced(this_sentinel, &primary->address));
    reply_bulk_integer(reply, port);
}

static void view_info(struct reply *reply, const struct instance *i) {
    reply_array(reply, 2);
    reply_integer(reply, i->info.replied_ms ? this_sentinel->now_ms - i->info.replied_ms : 0);
    if (i->info.text)
        reply_bulk(reply, slice_make(i->info.text, i->info.len));
    else
        reply_null(reply);
}
void view_info_cache(struct reply *reply, const struct instance *group) {
    reply_bulk_text(reply, group->name);
    reply_array(reply, group->replicas.count + 1);
    view_info(reply, group);
    each_in(&group->replicas, replica) view_info(reply, replica);
}

/* --- INFO --- */

static void write_info(struct output *out) {
    const struct sentinel *s = this_sentinel;
    if (!s) return;
    info_line(out, "sentinel_masters:%zu", s->groups.count);
    info_line(out, "sentinel_tilt:%d", s->tilt);
    info_line(out, "sentinel_tilt_since_seconds:%lld", s->tilt ? (long long)(s->now_ms - s->tilt_start_ms) / 1000 : -1);
    info_line(out, "sentinel_total_tilt:%llu", (unsigned long long)s->tilts);
    info_line(out, "sentinel_running_scripts:%zu", scripts_running());
    info_line(out, "sentinel_scripts_queue_length:%zu", scripts_queued());
    info_line(out, "sentinel_simulate_failure_flags:%d",
              s->settings.crash_after_election + 2 * s->settings.crash_after_promotion);
    size_t n = 0;
    each_in(&s->groups, group) {
        const char *status = group->flags & INSTANCE_O_DOWN ? "odown" : group->flags & INSTANCE_S_DOWN ? "sdown" : "ok";
        info_line(out, "master%zu:name=%s,status=%s,address=%s:%d,slaves=%zu,sentinels=%zu", n++, group->name, status,
                  sentinel_announced(s, &group->address), group->address.port, group->replicas.count,
                  group->sentinels.count + 1);
    }
}
const struct info_section sentinel_sections[] = {
    {.name = "sentinel", .title = "Sentinel", .order = 125, .when = INFO_DEFAULT, .write = write_info},
    {.name = NULL},
};
