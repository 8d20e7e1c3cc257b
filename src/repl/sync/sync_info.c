/* sync_info.c: what INFO replication shows of synchronous replication. */
#include "repl/sync/sync.h"
#include "server/role.h"
#include "server/stats/info.h"
#include <string.h>

static const char *state_name(void) {
    static const char *const names[] = {
        [SYNC_FOLLOWING] = "following",     [SYNC_DEPOSED] = "fenced",  [SYNC_STANDING] = "standing",
        [SYNC_CATCHING_UP] = "catching-up", [SYNC_ELECTED] = "elected", [SYNC_LEADING] = "leading"};
    return names[sync_who.status];
}

static const struct sync_peer *peer_of(const char *id) {
    for (int i = 0; i < sync_who.peer_count; i++)
        if (strcmp(sync_who.peers[i].id, id) == 0) return &sync_who.peers[i];
    return NULL;
}

static void write_members(struct output *out) {
    const struct sync_set *set = &sync_who.state.set;
    for (int i = 0; i < set->now.count; i++) {
        const struct sync_member *member = &set->now.list[i];
        const struct sync_peer *peer = sync_who.status == SYNC_LEADING ? peer_of(member->id) : NULL;
        bool self = strcmp(member->id, sync_who.state.id) == 0;
        info_line(out, "sync_member%d:id=%s,ip=%s,port=%d,state=%s,offset=%lld", i, member->id, member->host,
                  member->port,
                  self                   ? "self"
                  : peer && peer->linked ? "linked"
                  : peer                 ? "absent"
                                         : "unknown",
                  self   ? (long long)role->position.offset
                  : peer ? (long long)peer->acked
                         : -1LL);
    }
}

void sync_write_info(struct output *out) {
    struct sync_progress progress;
    if (!sync_on) return;
    const struct sync_set *set = &sync_who.state.set;
    sync_progress(&progress);
    info_line(out, "sync_replication:%s\r\nsync_eligible:%d", state_name(), sync_who_may_lead(&sync_who));
    if (sync_who.obstacle) info_line(out, "sync_obstacle:%s", sync_who.obstacle);
    info_line(out, "sync_group:%s\r\nsync_id:%s", sync_who.state.group, sync_who.state.id);
    info_line(out, "sync_term:%llu\r\nsync_promised_term:%llu", (unsigned long long)set->term.number,
              (unsigned long long)sync_who.state.promised.number);
    info_line(out, "sync_data_is_current:%d", sync_who.status == SYNC_LEADING || sync_who_is_current(&sync_who));
    info_line(out, "sync_min_replicas:%d\r\nsync_in_sync_replicas:%d\r\nsync_writable:%d", sync_settings.replicas,
              sync_who_in_sync(&sync_who), sync_who_writable(&sync_who));
    info_line(out, "sync_prepared_offset:%lld\r\nsync_committed_offset:%lld", (long long)role->position.offset,
              (long long)progress.committed);
    info_line(out, "sync_set_version:%llu\r\nsync_set_changes:%d\r\nsync_members:%d", (unsigned long long)set->version,
              set->before.count != 0, set->now.count);
    write_members(out);
}
