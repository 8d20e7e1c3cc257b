/* group_commands.c: what users ask of a group: RESET, FAILOVER and SET. */
#include "lib/system/memory.h"
#include "sentinel/protocol/machine.h"

void sentinel_reset(struct sentinel *s, struct instance *group, int64_t now_ms) {
    machine_time(s, now_ms);
    group_reset(s, group, false);
    event_plain(s, EVENT_WARNING, "+reset-master", group);
    machine_save(s, false);
}

const char *sentinel_failover(struct sentinel *s, struct instance *group, bool coordinated, int64_t now_ms) {
    machine_time(s, now_ms);
    if (group->flags & INSTANCE_FAILOVER_IN_PROGRESS) return "INPROG Failover already in progress";
    if (coordinated && !group->reported.has_failover_state)
        return "NOGOODPRIMARY Primary does not support FAILOVER command";
    if (!sentinel_choose_replica(s, group)) return "NOGOODSLAVE No suitable replica to promote";
    machine_log(s, EVENT_NOTICE, "Executing user requested FAILOVER of '%s'", group->name);
    failover_start(s, group);
    group->flags |= coordinated ? INSTANCE_COORD_FAILOVER : INSTANCE_FORCE_FAILOVER;
    /* As with Valkey's Sentinel, it looks down until the next tick. */
    if (!(group->flags & INSTANCE_S_DOWN)) group->s_down_ms = s->now_ms;
    group->flags |= INSTANCE_S_DOWN;
    if (coordinated) ask_others(s, group, true);
    return NULL;
}

static void reconnect_soon(struct sentinel *s, struct instance *server) {
    close_link(s, server->link);
    server->link->dial_ms = 0; /* at the next tick */
}
void sentinel_reconnect_servers(struct sentinel *s, struct instance *group) {
    reconnect_soon(s, group);
    each_instance(&group->replicas, replica) reconnect_soon(s, replica);
}
void sentinel_reconnect(struct sentinel *s, unsigned kinds) {
    each_instance(&s->groups, group) {
        if (kinds & INSTANCE_PRIMARY) close_link(s, group->link);
        if (kinds & INSTANCE_REPLICA) each_instance(&group->replicas, replica) close_link(s, replica->link);
        if (kinds & INSTANCE_SENTINEL) each_instance(&group->sentinels, other) close_link(s, other->link);
    }
}

void sentinel_rename_command(struct instance *group, struct slice from, struct slice to) {
    struct renamed_command *renamed = mem_calloc(1, sizeof *renamed);
    renamed->from = mem_strndup(from.data, from.len);
    renamed->to = mem_strndup(to.data, to.len);
    renamed->next = group->options.renamed;
    group->options.renamed = renamed;
}
