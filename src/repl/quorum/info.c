/* info.c: what INFO replication shows of synchronous replication. */
#include "repl/quorum/quorum.h"
#include "server/role.h"
#include "server/stats/info.h"
#include <string.h>

static const char *state_name(void) {
    static const char *const names[] = {
        [QUORUM_FOLLOWING] = "following",     [QUORUM_DEPOSED] = "fenced",  [QUORUM_CANDIDATE] = "standing",
        [QUORUM_CATCHING_UP] = "catching-up", [QUORUM_ELECTED] = "elected", [QUORUM_LEADING] = "leading"};
    return names[quorum_machine.status];
}

static const struct quorum_peer *peer_of(const char *id) {
    for (int i = 0; i < quorum_machine.peer_count; i++)
        if (strcmp(quorum_machine.peers[i].id, id) == 0) return &quorum_machine.peers[i];
    return NULL;
}

static void write_members(struct output *out) {
    const struct quorum_set *set = &quorum_machine.state.set;
    for (int i = 0; i < set->now.count; i++) {
        const struct quorum_member *member = &set->now.list[i];
        const struct quorum_peer *peer = quorum_machine.status == QUORUM_LEADING ? peer_of(member->id) : NULL;
        bool self = strcmp(member->id, quorum_machine.state.id) == 0;
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

void quorum_write_info(struct output *out) {
    struct quorum_progress progress;
    if (!quorum_on) return;
    const struct quorum_set *set = &quorum_machine.state.set;
    quorum_progress(&progress);
    info_line(out, "sync_replication:%s\r\nsync_eligible:%d", state_name(), quorum_machine_may_lead(&quorum_machine));
    if (quorum_machine.reason) info_line(out, "sync_obstacle:%s", quorum_machine.reason);
    info_line(out, "sync_group:%s\r\nsync_id:%s", quorum_machine.state.group, quorum_machine.state.id);
    info_line(out, "sync_term:%llu\r\nsync_promised_term:%llu", (unsigned long long)set->term.number,
              (unsigned long long)quorum_machine.state.promised.number);
    info_line(out, "sync_data_is_current:%d",
              quorum_machine.status == QUORUM_LEADING || quorum_machine_is_current(&quorum_machine));
    info_line(out, "sync_min_replicas:%d\r\nsync_in_sync_replicas:%d\r\nsync_writable:%d", quorum_config.replicas,
              quorum_machine_in_sync(&quorum_machine), quorum_machine_writable(&quorum_machine));
    info_line(out, "sync_prepared_offset:%lld\r\nsync_committed_offset:%lld", (long long)role->position.offset,
              (long long)progress.committed);
    info_line(out, "sync_set_version:%llu\r\nsync_set_changes:%d\r\nsync_members:%d", (unsigned long long)set->version,
              set->before.count != 0, set->now.count);
    write_members(out);
}
