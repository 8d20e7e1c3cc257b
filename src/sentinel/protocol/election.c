/* election.c: O_DOWN, votes and leaders.
 *
 * This is the leader election of Raft, with an epoch for the term: a Sentinel gives one vote for each epoch and group,
 * to the first candidate that asks, and has it on disk before it answers. The Sentinel with the votes of a majority of
 * all known Sentinels, and of at least `quorum`, leads the failover of this epoch. So a group never has two leaders in
 * one epoch. There is no log to compare: the leader chooses the replica (replica_choice.c). */
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "sentinel/protocol/machine.h"
#include <stdio.h>
#include <string.h>

enum { ANSWER_PERIODS = 5 };

/* --- O_DOWN --- */

void check_o_down(struct sentinel *s, struct instance *group) {
    unsigned agree = 0;
    if (group->flags & INSTANCE_S_DOWN) {
        agree = 1;
        each_instance(&group->sentinels, other) agree += (other->flags & INSTANCE_PRIMARY_DOWN) != 0;
    }
    bool down = agree && agree >= group->options.quorum;
    if (down && !(group->flags & INSTANCE_O_DOWN)) {
        event_about(s, EVENT_WARNING, "+odown", group, "#quorum %u/%u", agree, group->options.quorum);
        group->flags |= INSTANCE_O_DOWN;
        group->o_down_ms = s->now_ms;
    } else if (!down && group->flags & INSTANCE_O_DOWN) {
        event_plain(s, EVENT_WARNING, "-odown", group);
        group->flags &= ~(unsigned)INSTANCE_O_DOWN;
        group->failover.stuck[0] = 0;
    }
    if (!agree) group->failover.stuck[0] = 0; /* logged again when the group is down the next time */
    if (agree && !down)
        failover_stuck(s, group, "%u of the %u Sentinels that must agree say that it is down", agree,
                       group->options.quorum);
}

void ask_others(struct sentinel *s, struct instance *group, bool forced) {
    const struct sentinel_timers *timers = &s->settings.timers;
    /* A coordinated failover needs the votes, too, though the primary is up. */
    bool candidate = group->flags & INSTANCE_COORD_FAILOVER && group->failover.state == FAILOVER_WAIT_START;
    bool wanted = group->flags & INSTANCE_S_DOWN || candidate;
    each_instance(&group->sentinels, other) {
        if (s->now_ms - other->told_ms > timers->ask_period * ANSWER_PERIODS) {
            other->flags &= ~(unsigned)INSTANCE_PRIMARY_DOWN;
            other->vote.leader[0] = 0;
        }
        if (!wanted || other->link->half[LINK_COMMANDS].state == HALF_NONE) continue;
        if (!forced && s->now_ms - other->asked_ms < timers->ask_period) continue;
        struct sentinel_request request = {.kind = REQUEST_ASK,
                                           .host = sentinel_announced(s, &group->address),
                                           .port = group->address.port,
                                           .epoch = s->current_epoch,
                                           .text = group->failover.state > FAILOVER_NONE ? s->id : "*"};
        if (machine_send(s, other, &request)) other->asked_ms = s->now_ms;
    }
}

void ask_answered(struct sentinel *s, struct instance *other, const struct sentinel_answer *answer) {
    if (!answer->valid) return;
    other->told_ms = s->now_ms;
    if (answer->down)
        other->flags |= INSTANCE_PRIMARY_DOWN;
    else
        other->flags &= ~(unsigned)INSTANCE_PRIMARY_DOWN;
    if (slice_equal(answer->leader, SLICE("*")) || answer->leader.len > SENTINEL_ID_LEN) return;
    char leader[SENTINEL_ID_LEN + 1];
    snprintf(leader, sizeof leader, "%.*s", (int)answer->leader.len, answer->leader.data);
    if (other->vote.epoch != answer->leader_epoch)
        machine_log(s, EVENT_NOTICE, "%s voted for %s %llu", other->name, leader,
                    (unsigned long long)answer->leader_epoch);
    memcpy(other->vote.leader, leader, sizeof leader);
    other->vote.epoch = answer->leader_epoch;
}

/* --- Votes --- */

void take_epoch(struct sentinel *s, uint64_t epoch) {
    if (epoch <= s->current_epoch) return;
    s->current_epoch = epoch;
    machine_save(s, true);
    event_text(s, EVENT_WARNING, "+new-epoch", NULL, "%llu", (unsigned long long)epoch);
}

static void cast_vote(struct sentinel *s, struct instance *group, uint64_t epoch, const char *id) {
    take_epoch(s, epoch);
    if (group->vote.epoch >= epoch || s->current_epoch > epoch) return;
    must_equal(s->current_epoch, epoch);
    snprintf(group->vote.leader, sizeof group->vote.leader, "%s", id);
    group->vote.epoch = s->current_epoch;
    machine_save(s, true);
    event_text(s, EVENT_WARNING, "+vote-for-leader", group, "%s %llu", group->vote.leader,
               (unsigned long long)group->vote.epoch);
    /* Let the other one finish. */
    if (strcmp(id, s->id) != 0)
        group->failover.start_ms = s->now_ms + (int64_t)(s->effects->random(s->context) % DESYNC_MS);
}

struct tally {
    const char *id;
    unsigned votes;
};
static void count_vote(struct tally *tally, size_t *count, const char *id) {
    size_t i = 0;
    while (i < *count && strcmp(tally[i].id, id) != 0) i++;
    if (i == *count) tally[(*count)++] = (struct tally){id, 0};
    tally[i].votes++;
}
static const struct tally *most_votes(const struct tally *tally, size_t count) {
    const struct tally *most = NULL;
    for (size_t i = 0; i < count; i++)
        if (!most || tally[i].votes > most->votes) most = &tally[i];
    return most;
}

const char *elected_leader(struct sentinel *s, struct instance *group, uint64_t epoch) {
    static char winner[SENTINEL_ID_LEN + 1];
    size_t voters = group->sentinels.count + 1, count = 0;
    struct tally *tally = mem_calloc(voters + 1, sizeof *tally);
    each_instance(&group->sentinels, other) if (*other->vote.leader && other->vote.epoch == epoch)
        count_vote(tally, &count, other->vote.leader);
    /* This Sentinel votes, too: for the candidate with most votes so far, or for itself. */
    const struct tally *most = most_votes(tally, count);
    snprintf(winner, sizeof winner, "%s", most ? most->id : s->id);
    if (s->current_epoch == epoch) cast_vote(s, group, epoch, winner);
    if (*group->vote.leader && group->vote.epoch == epoch) count_vote(tally, &count, group->vote.leader);
    most = most_votes(tally, count);
    must(!most || most->votes <= voters); /* each votes once */
    bool wins = most && most->votes >= voters / 2 + 1 && most->votes >= group->options.quorum;
    snprintf(winner, sizeof winner, "%s", wins ? most->id : "");
    mem_free(tally);
    return wins ? winner : NULL;
}

bool sentinel_is_down(struct sentinel *s, struct slice host, int port, uint64_t epoch, struct slice id,
                      const char **leader, uint64_t *leader_epoch, int64_t now_ms) {
    struct sentinel_address address;
    bool down = false;
    *leader = "";
    *leader_epoch = 0;
    machine_time(s, now_ms);
    if (set_address(s, &address, host, port, false)) return false;
    each_instance(&s->groups, group) {
        if (!sentinel_address_equal(s, &group->address, &address)) continue;
        down = !s->tilt && group->flags & INSTANCE_S_DOWN;
        if (slice_equal(id, SLICE("*")) || !id.len || id.len > SENTINEL_ID_LEN || memchr(id.data, 0, id.len)) break;
        if (!epoch_is_plausible(s, epoch)) break;
        char candidate[SENTINEL_ID_LEN + 1];
        snprintf(candidate, sizeof candidate, "%.*s", (int)id.len, id.data);
        cast_vote(s, group, epoch, candidate);
        *leader = group->vote.leader;
        *leader_epoch = group->vote.epoch;
        break;
    }
    return down;
}

unsigned sentinel_usable(const struct sentinel *s, const struct instance *group, bool *quorum, bool *majority) {
    size_t voters = group->sentinels.count + 1;
    unsigned usable = 1;
    each_instance(&group->sentinels, other) usable += !(other->flags & (INSTANCE_S_DOWN | INSTANCE_O_DOWN));
    *quorum = usable >= group->options.quorum;
    *majority = usable >= voters / 2 + 1;
    return usable;
}
