/* sync_who.c: see sync_who.h. */
#include "repl/sync/sync_who.h"
#include "lib/system/must.h"
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 100, PROBE_MS = 1000, POLITE_MS = 5000, COPY_MS = 10000, RETRY_MS = 250, REPLACE_MS = 500 };
enum { REFUSED_PAUSE_MS = 3000 /* a replica that was refused tries again sooner */ };
enum { COPY_LINK_MS = 1000 /* for the link to the voter that a candidate copies from */ };

static bool is_me(const struct sync_who *who, const char *id) {
    return strcmp(who->state.id, id) == 0;
}

static uint64_t save(struct sync_who *who) {
    return who->effects->save(who->context, &who->state);
}

static int64_t offset(const struct sync_who *who) {
    return who->effects->offset(who->context);
}

static void log_text(struct sync_who *who, const char *text) {
    who->effects->log(who->context, text);
}

/* Two candidates that stand at the same time must not repeat that for ever. */
static int64_t jitter(const struct sync_who *who) {
    unsigned sum = (unsigned)who->standing.number;
    for (int i = 0; i < SYNC_ID_LEN; i++) sum = sum * 31 + (unsigned char)who->state.id[i];
    return (int64_t)(sum % 400);
}

void sync_who_init(struct sync_who *who, const struct sync_settings *settings, const struct sync_effects *effects,
                   void *context, const struct sync_state *loaded, const char *id, int64_t now_ms) {
    *who = (struct sync_who){.settings = *settings, .effects = effects, .context = context, .status = SYNC_FOLLOWING};
    if (loaded)
        who->state = *loaded;
    else
        memcpy(who->state.id, id, SYNC_ID_LEN);
    who->may_promise_ms = now_ms + settings->lease_ms; /* it may have acknowledged just before it stopped */
}

/* --- Data --- */

/* Without enough members for a commit there are no committed writes, so nothing can be lost. */
static bool can_commit(const struct sync_members *members) {
    return members->count > members->replicas;
}

void sync_who_advanced(struct sync_who *who) {
    if (!who->linked || !who->joined || offset(who) < who->link_offset) return;
    who->data = who->link_term;
    who->sure = true;
    if (who->said || !who->link_leads || who->saved < who->set_ticket || who->saved < who->promise_ticket) return;
    if (sync_term_compare(&who->state.set.term, &who->link_term) != 0) return;
    who->said = true;
    who->effects->say_stored(who->context, &who->state.set);
}

void sync_who_joined(struct sync_who *who) {
    who->joined = true;
    sync_who_advanced(who);
}

void sync_who_data_lost(struct sync_who *who) {
    who->sure = who->joined = false;
    who->data = (struct sync_term){0};
    who->said = false;
}

void sync_who_link_lost(struct sync_who *who) {
    who->linked = who->said = false;
}

void sync_who_acknowledges(struct sync_who *who, int64_t now_ms) {
    if (!who->linked || !who->link_leads) return;
    who->may_promise_ms = now_ms + who->settings.lease_ms;
    who->lease_of = who->link_term;
}

/* --- Promises --- */

static void promise(struct sync_who *who, const struct sync_term *term) {
    must(sync_term_compare(term, &who->state.promised) > 0);
    who->state.promised = *term;
    who->promise_ticket = save(who);
}

/* A primary does not know under which address others reach it, so a set that it tells itself lacks that address.
 * Without it a candidate could not ask that server. */
static void keep_addresses(struct sync_members *members, const struct sync_set *old) {
    for (int i = 0; i < members->count; i++) {
        struct sync_member *member = &members->list[i];
        if (member->port) continue;
        const struct sync_member *known = sync_members_find(&old->now, member->id);
        if (!known || !known->port) known = sync_members_find(&old->before, member->id);
        if (known) *member = *known;
    }
}

static void learn_set(struct sync_who *who, const struct sync_set *set) {
    if (!set->version || sync_set_compare(set, &who->state.set) <= 0) return;
    struct sync_set learnt = *set;
    keep_addresses(&learnt.now, &who->state.set);
    keep_addresses(&learnt.before, &who->state.set);
    who->state.set = learnt;
    who->said = false;
    who->set_ticket = save(who);
}

void sync_who_got_set(struct sync_who *who, const struct sync_set *set, int64_t now_ms) {
    if (!who->linked || !who->link_leads) return;
    if (sync_set_compare(set, &who->state.set) == 0)
        who->said = false; /* the primary asks again */
    else
        learn_set(who, set);
    sync_who_advanced(who);
}

static void stand_down(struct sync_who *who, int64_t now_ms) {
    must_equal(who->status, SYNC_LEADING);
    who->status = SYNC_DEPOSED;
    who->probing = true;
    who->vote_count = 0;
    who->peer_count = 0;
    who->next_ask_ms = now_ms + PROBE_MS + jitter(who);
    who->obstacle = "another server was asked to lead";
    who->effects->stand_down(who->context);
}

static void fill_vote(const struct sync_who *who, struct sync_vote *vote) {
    memcpy(vote->id, who->state.id, sizeof vote->id);
    vote->promised = who->state.promised;
    vote->sure = who->sure;
    vote->data = who->data;
    vote->offset = offset(who);
    vote->set = who->state.set;
}

static bool is_candidate(const struct sync_who *who) {
    return who->status == SYNC_STANDING || who->status == SYNC_CATCHING_UP || who->status == SYNC_ELECTED;
}

static bool has_primary(const struct sync_who *who) {
    return who->status == SYNC_LEADING || (who->linked && who->link_leads);
}

void sync_who_asked(struct sync_who *who, const struct sync_ask *ask, int64_t now_ms, struct sync_vote *vote) {
    *vote = (struct sync_vote){.answer = SYNC_REFUSED, .kind = ask->kind, .term = ask->term};
    if (strcmp(ask->group, who->state.group) != 0) { /* a candidate of another group must not learn this one's set */
        memcpy(vote->id, who->state.id, sizeof vote->id);
        return;
    }
    if (ask->kind == SYNC_PROBE) {
        bool grants = !has_primary(who) && now_ms >= who->polite_ms && !is_candidate(who);
        if (grants) vote->answer = SYNC_PROMISED;
        fill_vote(who, vote);
        return;
    }
    int order = sync_term_compare(&ask->term, &who->state.promised);
    if (order >= 0 && !is_me(who, ask->term.id)) {
        if (order > 0) {
            promise(who, &ask->term);
            who->polite_ms = now_ms + POLITE_MS;
            if (who->status == SYNC_LEADING) {
                stand_down(who, now_ms);
            } else if (is_candidate(who)) {
                who->status = SYNC_DEPOSED; /* from now on it asks politely */
                who->probing = true;
                who->vote_count = 0;
                who->next_ask_ms = now_ms + POLITE_MS;
                who->obstacle = "another server was asked to lead";
            }
            if (who->linked) {
                who->linked = who->said = false;
                who->effects->unfollow(who->context);
            }
        }
        /* The lease protects the reads of the primary that was acknowledged last, which answers none while it stands.
         */
        bool leased = now_ms < who->may_promise_ms && strcmp(who->lease_of.id, ask->term.id) != 0;
        bool safe = who->saved >= who->promise_ticket && !leased;
        vote->answer = safe ? SYNC_PROMISED : SYNC_WAIT;
    }
    fill_vote(who, vote);
}

/* --- The candidate --- */

static void begin_votes(struct sync_who *who, int64_t now_ms) {
    uint64_t highest = who->state.promised.number;
    if (who->state.set.term.number > highest) highest = who->state.set.term.number;
    if (who->outpromised > highest) highest = who->outpromised;
    for (int i = 0; i < who->vote_count; i++)
        if (who->votes[i].promised.number > highest) highest = who->votes[i].promised.number;
    who->vote_count = 0;
    who->standing.number = highest + 1;
    memcpy(who->standing.id, who->state.id, sizeof who->standing.id);
    who->next_ask_ms = now_ms;
}

static void begin_standing(struct sync_who *who, int64_t now_ms) {
    begin_votes(who, now_ms);
    who->status = SYNC_STANDING;
    who->probing = false;
    who->obstacle = "it waits for the votes of other servers of its group";
    promise(who, &who->standing);
}

const char *sync_who_cannot_stand(const struct sync_who *who) {
    if (!who->state.group[0]) return "it belongs to no group yet: it has never reached a primary with sync-replication";
    if (!who->state.set.version) return "it has never received the set of in-sync replicas";
    if (!who->settings.eligible) return "it has sync-eligible no";
    return NULL;
}

const char *sync_who_stand(struct sync_who *who, int64_t now_ms) {
    /* Asked again, it goes on: an election that began anew each time might never end. */
    if (who->status == SYNC_LEADING || is_candidate(who)) return NULL;
    if (who->linked) {
        who->linked = who->said = false;
        who->effects->unfollow(who->context);
    }
    const char *reason = sync_who_cannot_stand(who);
    if (reason) {
        who->status = SYNC_DEPOSED;
        who->obstacle = reason;
        return reason;
    }
    begin_standing(who, now_ms);
    return NULL;
}

void sync_who_depose(struct sync_who *who, int64_t now_ms) {
    who->status = SYNC_DEPOSED;
    who->probing = true;
    who->vote_count = 0;
    who->next_ask_ms = now_ms;
    who->obstacle = sync_who_cannot_stand(who);
    if (!who->obstacle)
        who->obstacle = "it has restarted and may lack acknowledged writes; it waits for other servers of its group";
}

void sync_who_follow(struct sync_who *who, int64_t now_ms) {
    if (who->status == SYNC_LEADING) stand_down(who, now_ms);
    who->status = SYNC_FOLLOWING;
    who->linked = who->said = false;
    who->vote_count = who->peer_count = 0;
    who->obstacle = NULL;
}

static void propose(struct sync_who *who, int64_t now_ms);

static void lead(struct sync_who *who, int64_t now_ms) {
    who->status = SYNC_LEADING;
    who->linked = false;
    who->sure = true;
    who->data = who->standing;
    who->peer_count = 0;
    who->committed = -1;
    who->caught_up_at = INT64_MAX;
    who->checked_ms = now_ms;
    who->outpromised = 0;
    who->refused_ms = now_ms - REFUSED_PAUSE_MS - 1;
    who->obstacle = NULL;
    who->state.set.term = who->standing;
    /* The absence of members counts from now on. */
    for (int i = 0; i < who->state.set.now.count; i++) {
        struct sync_peer *peer = &who->peers[who->peer_count++];
        *peer = (struct sync_peer){.member = who->state.set.now.list[i], .acked = -1, .since_ms = now_ms};
        memcpy(peer->id, peer->member.id, sizeof peer->id);
    }
    who->effects->lead(who->context);
    propose(who, now_ms);
}

static void won(struct sync_who *who, int64_t now_ms) {
    must(is_candidate(who) && !who->probing);
    if (!who->settings.waits) {
        lead(who, now_ms);
        return;
    }
    who->status = SYNC_ELECTED;
    who->linked = false;
    who->obstacle = "it waits for the votes of the cluster";
    who->effects->elected(who->context);
}

void sync_who_lead(struct sync_who *who, int64_t now_ms) {
    if (who->status == SYNC_ELECTED) lead(who, now_ms);
}

void sync_who_leave(struct sync_who *who, const char *id, int64_t now_ms) {
    if (who->status == SYNC_LEADING) stand_down(who, now_ms);
    if (who->linked) who->effects->unfollow(who->context);
    sync_who_follow(who, now_ms);
    sync_who_data_lost(who);
    who->state = (struct sync_state){0};
    memcpy(who->state.id, id, SYNC_ID_LEN);
    who->promise_ticket = who->set_ticket = save(who);
}

bool sync_who_may_leave(const struct sync_who *who) {
    const struct sync_set *set = &who->state.set;
    return !sync_set_has(set, who->state.id) || (!set->before.count && set->now.count > 2 * set->now.replicas + 1);
}

/* Whether enough of the members have voted. */
static bool elected_by(const struct sync_who *who, const struct sync_members *members) {
    int votes = 0;
    for (int i = 0; i < who->vote_count; i++) {
        const struct sync_vote *vote = &who->votes[i];
        if (vote->answer != SYNC_PROMISED || !sync_members_find(members, vote->id)) continue;
        votes += vote->sure || !can_commit(members);
    }
    return votes >= sync_members_electing(members);
}

static bool elected(const struct sync_who *who) {
    const struct sync_set *set = &who->state.set;
    return elected_by(who, &set->now) && (!set->before.count || elected_by(who, &set->before));
}

static int compare_data(const struct sync_term *a, int64_t a_offset, const struct sync_term *b, int64_t b_offset) {
    int order = sync_term_compare(a, b);
    return order ? order : (a_offset > b_offset) - (a_offset < b_offset);
}

static void catch_up_or_lead(struct sync_who *who, int64_t now_ms) {
    const struct sync_vote *best = NULL;
    for (int i = 0; i < who->vote_count; i++) {
        const struct sync_vote *vote = &who->votes[i];
        if (vote->answer != SYNC_PROMISED || !vote->sure) continue;
        int order = best ? compare_data(&vote->data, vote->offset, &best->data, best->offset) : 1;
        if (order > 0 || (order == 0 && is_me(who, vote->id))) best = vote;
    }
    if (!best || is_me(who, best->id) ||
        (who->sure && compare_data(&who->data, offset(who), &best->data, best->offset) >= 0)) {
        won(who, now_ms);
        return;
    }
    const struct sync_member *member = sync_members_find(&who->state.set.now, best->id);
    if (!member) member = sync_members_find(&who->state.set.before, best->id);
    if (!member || !member->port) {
        who->obstacle = "the address of the server with the newest data is not known";
        return;
    }
    who->best = *member;
    who->best_data = best->data;
    who->best_offset = best->offset;
    who->status = SYNC_CATCHING_UP;
    who->give_up_ms = now_ms + COPY_MS;
    who->obstacle = "it copies the newest data from another server of its group";
    who->effects->copy_from(who->context, member);
}

static void decide(struct sync_who *who, int64_t now_ms) {
    if (!elected(who)) return;
    if (who->probing)
        begin_standing(who, now_ms);
    else
        catch_up_or_lead(who, now_ms);
}

static struct sync_vote *vote_of(struct sync_who *who, const char *id) {
    for (int i = 0; i < who->vote_count; i++)
        if (strcmp(who->votes[i].id, id) == 0) return &who->votes[i];
    if (who->vote_count == (int)(sizeof who->votes / sizeof *who->votes)) return NULL;
    who->votes[who->vote_count] = (struct sync_vote){.answer = SYNC_WAIT};
    return &who->votes[who->vote_count++];
}

static bool collects_votes(const struct sync_who *who) {
    return (who->status == SYNC_DEPOSED && who->probing) || who->status == SYNC_STANDING;
}

/* The primary that this server acknowledged has promised to follow it, so it answers no reads any more. */
static bool lease_is_void(const struct sync_who *who) {
    for (int i = 0; i < who->vote_count; i++) {
        const struct sync_vote *vote = &who->votes[i];
        if (vote->answer == SYNC_PROMISED && strcmp(vote->id, who->lease_of.id) == 0) return true;
    }
    return false;
}

static void own_vote(struct sync_who *who, int64_t now_ms) {
    struct sync_vote *mine = vote_of(who, who->state.id);
    if (!mine || mine->answer == SYNC_PROMISED) return;
    mine->kind = who->probing ? SYNC_PROBE : SYNC_STAND;
    mine->term = who->standing;
    fill_vote(who, mine);
    bool safe = who->saved >= who->promise_ticket && (now_ms >= who->may_promise_ms || lease_is_void(who));
    mine->answer = who->probing || safe ? SYNC_PROMISED : SYNC_WAIT;
    if (mine->answer == SYNC_PROMISED) decide(who, now_ms);
}

/* A vote that comes while the candidate copies from a voter: it may make that voter dispensable. The newest committed
 * set is known by now, and a newer one would need other votes. */
static void note_late_vote(struct sync_who *who, const struct sync_vote *vote) {
    if (sync_term_compare(&vote->term, &who->standing) != 0 || is_me(who, vote->id) || vote->kind != SYNC_STAND) return;
    if (vote->answer != SYNC_PROMISED || sync_set_compare(&vote->set, &who->state.set) > 0) return;
    struct sync_vote *mine = vote_of(who, vote->id);
    if (mine) *mine = *vote;
}

void sync_who_voted(struct sync_who *who, const struct sync_vote *vote, int64_t now_ms) {
    if (who->status == SYNC_CATCHING_UP) note_late_vote(who, vote);
    if (!collects_votes(who) || sync_term_compare(&vote->term, &who->standing) != 0 || is_me(who, vote->id)) return;
    if ((vote->kind == SYNC_PROBE) != who->probing) return;
    learn_set(who, &vote->set);
    struct sync_vote *mine = vote_of(who, vote->id);
    if (!mine) return;
    *mine = *vote;
    if (!who->probing && vote->answer == SYNC_REFUSED && sync_term_compare(&vote->promised, &who->standing) > 0) {
        who->next_ask_ms = now_ms + RETRY_MS + jitter(who); /* another candidate, or an older attempt */
        return;
    }
    if (!who->probing) own_vote(who, now_ms);
    if (collects_votes(who)) decide(who, now_ms);
}

static void ask_members(struct sync_who *who, const struct sync_members *members) {
    struct sync_ask ask = {.kind = who->probing ? SYNC_PROBE : SYNC_STAND, .term = who->standing};
    memcpy(ask.group, who->state.group, sizeof ask.group);
    for (int i = 0; i < members->count; i++) {
        const struct sync_member *member = &members->list[i];
        const struct sync_vote *vote = NULL;
        for (int j = 0; j < who->vote_count; j++)
            if (strcmp(who->votes[j].id, member->id) == 0) vote = &who->votes[j];
        if (is_me(who, member->id) || !member->port || (vote && vote->answer != SYNC_WAIT)) continue;
        who->effects->ask(who->context, member, &ask);
    }
}

static void ask_all(struct sync_who *who) {
    ask_members(who, &who->state.set.now);
    ask_members(who, &who->state.set.before);
}

/* The voter with the newest data gives no copy: it runs a script, or has died since. If the votes of others are enough,
 * they have all committed writes, and the candidate does without that voter. */
static void do_without_source(struct sync_who *who, int64_t now_ms) {
    struct sync_vote *source = vote_of(who, who->best.id), *mine = vote_of(who, who->state.id);
    if (!source || !mine) return;
    fill_vote(who, mine); /* a copy that broke off has cost the data */
    source->answer = SYNC_WAIT;
    if (elected(who)) {
        log_text(who, "the server with the newest data gives no copy, and the votes of others are enough");
        who->effects->unfollow(who->context);
        who->status = SYNC_STANDING;
        catch_up_or_lead(who, now_ms);
        return;
    }
    source->answer = SYNC_PROMISED;
    if (now_ms < who->next_ask_ms) return;
    who->next_ask_ms = now_ms + ASK_MS;
    ask_all(who);
}

static bool is_outvoted(const struct sync_who *who) { /* a voter has promised a higher term */
    for (int i = 0; i < who->vote_count; i++)
        if (sync_term_compare(&who->votes[i].promised, &who->standing) > 0) return true;
    return false;
}

static void candidate_tick(struct sync_who *who, int64_t now_ms) {
    if (who->status == SYNC_ELECTED) return;
    if (who->status == SYNC_CATCHING_UP) {
        bool done = who->sure && compare_data(&who->data, offset(who), &who->best_data, who->best_offset) >= 0;
        if (who->linked) who->give_up_ms = now_ms + COPY_MS;
        if (done) {
            if (who->linked) who->effects->unfollow(who->context);
            won(who, now_ms);
        } else if (now_ms >= who->give_up_ms) {
            who->effects->unfollow(who->context);
            begin_standing(who, now_ms);
        } else if (now_ms >= who->give_up_ms - COPY_MS + COPY_LINK_MS) {
            do_without_source(who, now_ms);
        }
        return;
    }
    if (now_ms < who->next_ask_ms) return;
    if (who->status == SYNC_DEPOSED) {
        if (!who->probing || sync_who_cannot_stand(who)) return;
        bool again = who->vote_count == 0 || now_ms >= who->give_up_ms;
        if (again) {
            begin_votes(who, now_ms);
            who->give_up_ms = now_ms + PROBE_MS + jitter(who);
        }
    } else if (is_outvoted(who)) {
        begin_standing(who, now_ms);
    }
    who->next_ask_ms = now_ms + ASK_MS;
    own_vote(who, now_ms);
    if (!collects_votes(who)) return;
    /* Its own promise first: otherwise it could stand for the same term again after a restart. */
    if (!who->probing && who->saved < who->promise_ticket) {
        who->next_ask_ms = now_ms;
        return;
    }
    ask_all(who);
}

/* --- The primary --- */

static struct sync_peer *peer_of(struct sync_who *who, const char *id) {
    for (int i = 0; i < who->peer_count; i++)
        if (strcmp(who->peers[i].id, id) == 0) return &who->peers[i];
    return NULL;
}

static const struct sync_peer *peer_find(const struct sync_who *who, const char *id) {
    return peer_of((struct sync_who *)(uintptr_t)who, id);
}

/* The highest offset that `needed` members have. */
static int64_t committed_by(const struct sync_who *who, const struct sync_members *members) {
    int64_t have[SYNC_MEMBERS_MAX];
    int count = 0, needed = sync_members_needed(members);
    for (int i = 0; i < members->count; i++) {
        const char *id = members->list[i].id;
        int64_t at = -1;
        const struct sync_peer *peer = peer_find(who, id);
        if (is_me(who, id)) {
            if (who->saved >= who->set_ticket) at = offset(who);
        } else if (peer && peer->linked && peer->stored_version == who->state.set.version &&
                   sync_term_compare(&peer->stored_term, &who->standing) == 0) {
            at = peer->acked;
        }
        if (at < 0) continue;
        int to = count++;
        while (to && have[to - 1] < at) have[to] = have[to - 1], to--;
        have[to] = at;
    }
    return count >= needed ? have[needed - 1] : -1;
}

/* Whether the whole set is on enough disks, and what was sent before it has arrived there. */
static bool set_is_complete(const struct sync_who *who) {
    return who->committed >= who->proposed_at;
}

static void recompute(struct sync_who *who) {
    if (who->status != SYNC_LEADING) return;
    int64_t at = committed_by(who, &who->state.set.now);
    if (who->state.set.before.count) {
        int64_t before = committed_by(who, &who->state.set.before);
        if (before < at) at = before;
    }
    if (at <= who->committed) return;
    must(who->saved >= who->promise_ticket || who->state.set.now.count == 1);
    who->committed = at;
    who->effects->committed(who->context, at);
}

static void propose(struct sync_who *who, int64_t now_ms) {
    must_equal(who->status, SYNC_LEADING);
    who->state.set.version++;
    who->set_ticket = save(who);
    who->effects->send_set(who->context, &who->state.set);
    who->proposed_at = offset(who);
    recompute(who);
}

static bool may_join(const struct sync_who *who, const struct sync_peer *peer) {
    return peer->linked && peer->eligible && peer->acked >= who->caught_up_at && peer->member.port &&
           sync_term_compare(&peer->stored_term, &who->standing) == 0 &&
           !sync_members_find(&who->state.set.now, peer->id);
}

static bool is_absent(const struct sync_who *who, const char *id, int64_t now_ms, int64_t for_ms) {
    const struct sync_peer *peer = peer_find(who, id);
    return !is_me(who, id) && peer && !peer->linked && now_ms - peer->since_ms > for_ms;
}

/* Whether a member has lost its link a moment ago: it is not known yet whether it will be replaced. */
static bool may_be_leaving(const struct sync_who *who, const struct sync_members *members, int64_t now_ms) {
    for (int i = 0; i < members->count; i++) {
        const char *id = members->list[i].id;
        if (is_absent(who, id, now_ms, -1) && !is_absent(who, id, now_ms, REPLACE_MS)) return true;
    }
    return false;
}

/* The members as they should be. False: as they are. */
static bool wanted_members(const struct sync_who *who, int64_t now_ms, struct sync_members *wanted) {
    const struct sync_members *now = &who->state.set.now;
    *wanted = *now;
    bool changed = false;
    if (now->replicas != who->settings.replicas) {
        wanted->replicas = who->settings.replicas;
        changed = true;
    }
    if (!sync_members_find(now, who->state.id) && wanted->count < SYNC_MEMBERS_MAX) {
        struct sync_member *self = &wanted->list[wanted->count++];
        *self = (struct sync_member){0};
        memcpy(self->id, who->state.id, sizeof self->id);
        changed = true;
    }
    int joining = 0;
    for (int i = 0; i < who->peer_count && wanted->count < SYNC_MEMBERS_MAX; i++) {
        if (!may_join(who, &who->peers[i])) continue;
        if (wanted->count > 2 * wanted->replicas && may_be_leaving(who, wanted, now_ms)) break;
        wanted->list[wanted->count++] = who->peers[i].member;
        joining++;
        changed = true;
    }
    for (int i = 0; i < wanted->count; i++) {
        struct sync_member *member = &wanted->list[i];
        const struct sync_peer *peer = peer_find(who, member->id);
        if (peer && peer->linked && peer->member.port &&
            (peer->member.port != member->port || strcmp(peer->member.host, member->host) != 0)) {
            *member = peer->member;
            changed = true;
        }
        /* A server that joins takes the place of one that is absent: beside it the set would need more voters. */
        int64_t absent_ms = joining && REPLACE_MS < who->settings.absent_ms ? REPLACE_MS : who->settings.absent_ms;
        if (wanted->count > 2 * wanted->replicas + 1 && is_absent(who, member->id, now_ms, absent_ms)) {
            *member = wanted->list[--wanted->count];
            i--;
            joining -= joining > 0;
            changed = true;
        }
    }
    return changed;
}

static void manage_set(struct sync_who *who, int64_t now_ms) {
    struct sync_set *set = &who->state.set;
    if (!set_is_complete(who)) return;
    struct sync_members wanted;
    if (set->before.count) {
        set->before = (struct sync_members){0};
        log_text(who, "the change of the set of in-sync replicas is complete");
        propose(who, now_ms);
    } else if (wanted_members(who, now_ms, &wanted)) {
        char text[96];
        snprintf(text, sizeof text, "the set of in-sync servers changes from %d to %d", set->now.count, wanted.count);
        log_text(who, text);
        set->before = set->now;
        set->now = wanted;
        propose(who, now_ms);
    }
}

void sync_who_found(struct sync_who *who, const char *group, int64_t now_ms) {
    memcpy(who->state.group, group, SYNC_ID_LEN);
    who->standing.number = who->state.promised.number + 1;
    memcpy(who->standing.id, who->state.id, sizeof who->standing.id);
    who->state.promised = who->standing;
    who->state.set = (struct sync_set){.now = {.replicas = who->settings.replicas, .count = 1}};
    memcpy(who->state.set.now.list[0].id, who->state.id, sizeof who->state.id);
    lead(who, now_ms);
}

void sync_who_force(struct sync_who *who, const char *group, int64_t now_ms) {
    if (who->status == SYNC_LEADING) return;
    if (who->linked) who->effects->unfollow(who->context);
    if (!who->state.group[0]) memcpy(who->state.group, group, SYNC_ID_LEN);
    begin_votes(who, now_ms);
    who->state.promised = who->standing;
    uint64_t version = who->state.set.version;
    who->state.set = (struct sync_set){.version = version, .now = {.replicas = who->settings.replicas, .count = 1}};
    memcpy(who->state.set.now.list[0].id, who->state.id, sizeof who->state.id);
    lead(who, now_ms);
}

/* A server of the group has promised a candidate. If this server cannot do without it, or nothing has come of that
 * candidate for a while, this server has to lead a higher term, so that the other can follow it. */
static void refuse_promised(struct sync_who *who, const struct sync_hello *hello, int64_t now_ms) {
    if (hello->promised.number > who->outpromised) who->outpromised = hello->promised.number;
    if (now_ms - who->refused_ms > REFUSED_PAUSE_MS) who->refused_since_ms = now_ms;
    who->refused_ms = now_ms;
    if (!sync_who_writable(who)) {
        stand_down(who, now_ms);
        who->next_ask_ms = now_ms;
    } else if (now_ms - who->refused_since_ms >= POLITE_MS && !sync_who_cannot_stand(who)) {
        log_text(who, "asking to lead a higher term, because a server of the group has promised one in vain");
        stand_down(who, now_ms);
        begin_standing(who, now_ms);
    }
}

const char *sync_who_hello_from(struct sync_who *who, const struct sync_hello *hello, int64_t now_ms,
                                struct sync_welcome *welcome) {
    *welcome = (struct sync_welcome){.leads = true};
    memcpy(welcome->group, who->state.group, sizeof welcome->group);
    if (is_me(who, hello->id)) return "the replica has the id of this server: its file of promises is a copy";
    if (hello->group[0] && strcmp(hello->group, who->state.group) != 0)
        return "the replica belongs to another group of sync-replication";
    if (who->status == SYNC_LEADING) {
        if (sync_term_compare(&hello->promised, &who->standing) > 0) {
            refuse_promised(who, hello, now_ms);
            return "the replica has promised to follow a newer primary";
        }
        welcome->term = who->standing;
        welcome->offset = offset(who);
        return NULL;
    }
    /* A candidate that this voter has promised to takes the data from here. */
    bool promised = who->state.promised.number && strcmp(who->state.promised.id, hello->id) == 0 &&
                    sync_term_compare(&who->state.promised, &hello->promised) == 0;
    if (!promised || !who->sure || who->linked || !who->data.number) return "this server does not lead its group";
    welcome->leads = false;
    welcome->term = who->data;
    welcome->offset = offset(who);
    return NULL;
}

void sync_who_peer_linked(struct sync_who *who, const struct sync_hello *hello, const char *host, int port,
                          int64_t now_ms) {
    if (who->status != SYNC_LEADING) return;
    struct sync_peer *peer = peer_of(who, hello->id);
    if (!peer) {
        if (who->peer_count == SYNC_PEERS_MAX) {
            int free = 0;
            while (free < who->peer_count &&
                   (who->peers[free].linked || sync_set_has(&who->state.set, who->peers[free].id)))
                free++;
            if (free == who->peer_count) return;
            peer = &who->peers[free];
        } else {
            peer = &who->peers[who->peer_count++];
        }
    }
    *peer = (struct sync_peer){.linked = true, .eligible = hello->eligible, .acked = -1, .since_ms = now_ms};
    memcpy(peer->id, hello->id, sizeof peer->id);
    memcpy(peer->member.id, hello->id, sizeof peer->member.id);
    snprintf(peer->member.host, sizeof peer->member.host, "%s", host);
    peer->member.port = port;
    who->effects->send_set(who->context, &who->state.set);
}

void sync_who_peer_unlinked(struct sync_who *who, const char *id, int64_t now_ms) {
    struct sync_peer *peer = peer_of(who, id);
    if (!peer) return;
    peer->linked = false;
    peer->acked = -1;
    peer->stored_version = 0;
    peer->stored_term = (struct sync_term){0};
    peer->since_ms = now_ms;
}

void sync_who_peer_stored(struct sync_who *who, const char *id, const struct sync_term *term, uint64_t version) {
    struct sync_peer *peer = peer_of(who, id);
    if (who->status != SYNC_LEADING || !peer || !peer->linked) return;
    peer->stored_term = *term;
    peer->stored_version = version;
    recompute(who);
}

void sync_who_peer_acked(struct sync_who *who, const char *id, int64_t at) {
    struct sync_peer *peer = peer_of(who, id);
    if (who->status != SYNC_LEADING || !peer || !peer->linked || at <= peer->acked) return;
    peer->acked = at;
    recompute(who);
}

static int in_sync_of(const struct sync_who *who, const struct sync_members *members) {
    int count = 0;
    for (int i = 0; i < members->count; i++) {
        const struct sync_peer *peer = peer_find(who, members->list[i].id);
        if (is_me(who, members->list[i].id)) continue;
        count += peer && peer->linked && sync_term_compare(&peer->stored_term, &who->standing) == 0;
    }
    return count;
}

int sync_who_in_sync(const struct sync_who *who) {
    return who->status == SYNC_LEADING ? in_sync_of(who, &who->state.set.now) : 0;
}

static bool enough(const struct sync_who *who, const struct sync_members *members) {
    int needed = members->replicas + (sync_members_find(members, who->state.id) == NULL);
    return in_sync_of(who, members) >= needed;
}

bool sync_who_writable(const struct sync_who *who) {
    const struct sync_set *set = &who->state.set;
    if (who->status != SYNC_LEADING || set->now.replicas < who->settings.replicas) return false;
    bool forms = set->before.count && !can_commit(&set->before);
    return enough(who, &set->now) && (!set->before.count || forms || enough(who, &set->before));
}

bool sync_who_may_lead(const struct sync_who *who) {
    if (who->status == SYNC_LEADING) return true;
    if (sync_who_cannot_stand(who) || !sync_set_has(&who->state.set, who->state.id)) return false;
    return who->sure && sync_term_compare(&who->data, &who->state.set.term) == 0;
}

/* --- All --- */

/* It has founded a group that nobody has joined, so it has never acknowledged anything, and may join another group. */
static bool is_alone(const struct sync_who *who) {
    const struct sync_set *set = &who->state.set;
    return set->now.count == 1 && !set->before.count && !can_commit(&set->now) && is_me(who, set->now.list[0].id);
}

const char *sync_who_welcomed(struct sync_who *who, const struct sync_welcome *welcome, int64_t now_ms) {
    bool same_group = strcmp(who->state.group, welcome->group) == 0;
    if (who->state.group[0] && !same_group && !is_alone(who)) return "it belongs to another group of sync-replication";
    if (who->status == SYNC_CATCHING_UP) {
        if (welcome->leads || sync_term_compare(&welcome->term, &who->best_data) != 0)
            return "it is no longer the voter that this candidate chose";
    } else if (who->status != SYNC_FOLLOWING || !welcome->leads) {
        return "it does not lead its group";
    } else if (same_group && sync_term_compare(&welcome->term, &who->state.promised) < 0) {
        return "this server has promised to follow a newer primary";
    }
    who->linked = true;
    who->joined = who->said = false;
    who->link_leads = welcome->leads;
    who->link_term = welcome->term;
    who->link_offset = welcome->offset;
    if (!welcome->leads) return NULL;
    bool changed = !same_group;
    if (!same_group) {
        who->state.promised = welcome->term;
        who->state.set = (struct sync_set){0};
    }
    memcpy(who->state.group, welcome->group, sizeof who->state.group);
    if (sync_term_compare(&welcome->term, &who->state.promised) > 0) {
        who->state.promised = welcome->term;
        changed = true;
    }
    if (changed) who->promise_ticket = save(who);
    return NULL;
}

void sync_who_hello(const struct sync_who *who, struct sync_hello *hello) {
    memset(hello, 0, sizeof *hello);
    memcpy(hello->id, who->state.id, sizeof hello->id);
    hello->eligible = who->settings.eligible;
    if (is_alone(who)) return;
    memcpy(hello->group, who->state.group, sizeof hello->group);
    hello->promised = who->state.promised;
}

void sync_who_saved(struct sync_who *who, uint64_t ticket, int64_t now_ms) {
    if (ticket > who->saved) who->saved = ticket;
    if (who->status == SYNC_LEADING)
        recompute(who);
    else
        sync_who_advanced(who);
}

void sync_who_tick(struct sync_who *who, int64_t now_ms) {
    if (who->status == SYNC_LEADING) {
        recompute(who);
        manage_set(who, now_ms);
        if (now_ms - who->checked_ms >= ASK_MS) {
            who->checked_ms = now_ms;
            who->caught_up_at = who->committed < 0 ? INT64_MAX : who->committed;
        }
        return;
    }
    sync_who_advanced(who);
    if (who->status != SYNC_FOLLOWING) candidate_tick(who, now_ms);
}
