/* machine.c: see machine.h. */
#include "repl/quorum/protocol/machine.h"
#include "lib/system/must.h"
#include <stdio.h>
#include <string.h>

enum {
    REQUEST_MS = 100,
    PRE_VOTE_MS = 1000,
    PRE_VOTE_PAUSE_MS = 5000,
    COPY_MS = 10000,
    RETRY_MS = 250,
    REPLACE_MS = 500
};
enum { REFUSED_PAUSE_MS = 3000 /* a replica that was refused tries again sooner */ };
enum { COPY_LINK_MS = 1000 /* for the link to the voter that a candidate copies from */ };

static bool is_me(const struct quorum_machine *machine, const char *id) {
    return strcmp(machine->state.id, id) == 0;
}

static uint64_t save(struct quorum_machine *machine) {
    return machine->effects->save(machine->context, &machine->state);
}

static int64_t offset(const struct quorum_machine *machine) {
    return machine->effects->offset(machine->context);
}

static void log_text(struct quorum_machine *machine, const char *text) {
    machine->effects->log(machine->context, text);
}

/* Two candidates that begin an election at the same time must not repeat that for ever. */
static int64_t jitter(const struct quorum_machine *machine) {
    unsigned sum = (unsigned)machine->term.number;
    for (int i = 0; i < QUORUM_ID_LEN; i++) sum = sum * 31 + (unsigned char)machine->state.id[i];
    return (int64_t)(sum % 400);
}

void quorum_machine_init(struct quorum_machine *machine, const struct quorum_settings *settings,
                         const struct quorum_effects *effects, void *context, const struct quorum_state *loaded,
                         const char *id, int64_t now_ms) {
    *machine = (struct quorum_machine){
        .settings = *settings, .effects = effects, .context = context, .status = QUORUM_FOLLOWING};
    if (loaded)
        machine->state = *loaded;
    else
        memcpy(machine->state.id, id, QUORUM_ID_LEN);
    machine->lease_until_ms = now_ms + settings->lease_ms; /* it may have acknowledged just before it stopped */
}

/* --- Data --- */

/* Without enough members for a commit there are no committed writes, so nothing can be lost. */
static bool can_commit(const struct quorum_members *members) {
    return members->count > members->replicas;
}

void quorum_machine_advanced(struct quorum_machine *machine) {
    if (!machine->linked || !machine->joined || offset(machine) < machine->link_offset) return;
    machine->data_term = machine->link_term;
    machine->complete = true;
    if (machine->stored_sent || !machine->link_leads || machine->saved < machine->set_ticket ||
        machine->saved < machine->promise_ticket)
        return;
    if (quorum_term_compare(&machine->state.set.term, &machine->link_term) != 0) return;
    machine->stored_sent = true;
    machine->effects->say_stored(machine->context, &machine->state.set);
}

void quorum_machine_joined(struct quorum_machine *machine) {
    machine->joined = true;
    quorum_machine_advanced(machine);
}

void quorum_machine_data_lost(struct quorum_machine *machine) {
    machine->complete = machine->joined = false;
    machine->data_term = (struct quorum_term){0};
    machine->stored_sent = false;
}

void quorum_machine_link_lost(struct quorum_machine *machine) {
    machine->linked = machine->stored_sent = false;
}

void quorum_machine_acknowledges(struct quorum_machine *machine, int64_t now_ms) {
    if (!machine->linked || !machine->link_leads) return;
    machine->lease_until_ms = now_ms + machine->settings.lease_ms;
    machine->lease_term = machine->link_term;
}

/* --- Promises --- */

static void promise(struct quorum_machine *machine, const struct quorum_term *term) {
    must(quorum_term_compare(term, &machine->state.promised) > 0);
    machine->state.promised = *term;
    machine->promise_ticket = save(machine);
}

/* A primary does not know under which address others reach it, so a set that it sends lacks its own address.
 * Without the address a candidate could not request the vote of that server. */
static void keep_addresses(struct quorum_members *members, const struct quorum_set *old) {
    for (int i = 0; i < members->count; i++) {
        struct quorum_member *member = &members->list[i];
        if (member->port) continue;
        const struct quorum_member *known = quorum_members_find(&old->now, member->id);
        if (!known || !known->port) known = quorum_members_find(&old->before, member->id);
        if (known) *member = *known;
    }
}

static void learn_set(struct quorum_machine *machine, const struct quorum_set *set) {
    if (!set->version || quorum_set_compare(set, &machine->state.set) <= 0) return;
    struct quorum_set learnt = *set;
    keep_addresses(&learnt.now, &machine->state.set);
    keep_addresses(&learnt.before, &machine->state.set);
    machine->state.set = learnt;
    machine->stored_sent = false;
    machine->set_ticket = save(machine);
}

void quorum_machine_set_received(struct quorum_machine *machine, const struct quorum_set *set, int64_t now_ms) {
    if (!machine->linked || !machine->link_leads) return;
    if (quorum_set_compare(set, &machine->state.set) == 0)
        machine->stored_sent = false; /* the primary asks again */
    else
        learn_set(machine, set);
    quorum_machine_advanced(machine);
}

static void stand_down(struct quorum_machine *machine, int64_t now_ms) {
    must_equal(machine->status, QUORUM_LEADING);
    machine->status = QUORUM_DEPOSED;
    machine->pre_voting = true;
    machine->vote_count = 0;
    machine->peer_count = 0;
    machine->next_ask_ms = now_ms + PRE_VOTE_MS + jitter(machine);
    machine->reason = "another server was asked to lead";
    machine->effects->stand_down(machine->context);
}

static void fill_vote(const struct quorum_machine *machine, struct quorum_vote *vote) {
    memcpy(vote->id, machine->state.id, sizeof vote->id);
    vote->promised = machine->state.promised;
    vote->complete = machine->complete;
    vote->data_term = machine->data_term;
    vote->offset = offset(machine);
    vote->set = machine->state.set;
}

static bool is_candidate(const struct quorum_machine *machine) {
    return machine->status == QUORUM_CANDIDATE || machine->status == QUORUM_CATCHING_UP ||
           machine->status == QUORUM_ELECTED;
}

static bool has_primary(const struct quorum_machine *machine) {
    return machine->status == QUORUM_LEADING || (machine->linked && machine->link_leads);
}

void quorum_machine_vote_requested(struct quorum_machine *machine, const struct quorum_vote_request *request,
                                   int64_t now_ms, struct quorum_vote *vote) {
    *vote = (struct quorum_vote){.answer = QUORUM_REFUSED, .kind = request->kind, .term = request->term};
    if (strcmp(request->group, machine->state.group) != 0) {
        /* A candidate of another group must not learn this one's set. */
        memcpy(vote->id, machine->state.id, sizeof vote->id);
        return;
    }
    if (request->kind == QUORUM_PRE_VOTE) {
        bool grants = !has_primary(machine) && now_ms >= machine->pre_votes_from_ms && !is_candidate(machine);
        if (grants) vote->answer = QUORUM_PROMISED;
        fill_vote(machine, vote);
        return;
    }
    int order = quorum_term_compare(&request->term, &machine->state.promised);
    if (order >= 0 && !is_me(machine, request->term.id)) {
        if (order > 0) {
            promise(machine, &request->term);
            machine->pre_votes_from_ms = now_ms + PRE_VOTE_PAUSE_MS;
            if (machine->status == QUORUM_LEADING) {
                stand_down(machine, now_ms);
            } else if (is_candidate(machine)) {
                machine->status = QUORUM_DEPOSED; /* it asks for pre-votes first from now on */
                machine->pre_voting = true;
                machine->vote_count = 0;
                machine->next_ask_ms = now_ms + PRE_VOTE_PAUSE_MS;
                machine->reason = "another server was asked to lead";
            }
            if (machine->linked) {
                machine->linked = machine->stored_sent = false;
                machine->effects->unfollow(machine->context);
            }
        }
        /* The lease protects the reads of the primary that was acknowledged last. A candidate answers none.
         */
        bool leased = now_ms < machine->lease_until_ms && strcmp(machine->lease_term.id, request->term.id) != 0;
        bool safe = machine->saved >= machine->promise_ticket && !leased;
        vote->answer = safe ? QUORUM_PROMISED : QUORUM_WAIT;
    }
    fill_vote(machine, vote);
}

/* --- The candidate --- */

static void begin_term(struct quorum_machine *machine, int64_t now_ms) {
    uint64_t highest = machine->state.promised.number;
    if (machine->state.set.term.number > highest) highest = machine->state.set.term.number;
    if (machine->higher_promise > highest) highest = machine->higher_promise;
    for (int i = 0; i < machine->vote_count; i++)
        if (machine->votes[i].promised.number > highest) highest = machine->votes[i].promised.number;
    machine->vote_count = 0;
    machine->term.number = highest + 1;
    memcpy(machine->term.id, machine->state.id, sizeof machine->term.id);
    machine->next_ask_ms = now_ms;
}

static void begin_election(struct quorum_machine *machine, int64_t now_ms) {
    begin_term(machine, now_ms);
    machine->status = QUORUM_CANDIDATE;
    machine->pre_voting = false;
    machine->reason = "it waits for the votes of other servers of its group";
    promise(machine, &machine->term);
}

const char *quorum_machine_cannot_be_elected(const struct quorum_machine *machine) {
    if (!machine->state.group[0])
        return "it belongs to no group yet: it has never reached a primary with sync-replication";
    if (!machine->state.set.version) return "it has never received the set of in-sync replicas";
    if (!machine->settings.eligible) return "it has sync-eligible no";
    return NULL;
}

const char *quorum_machine_start_election(struct quorum_machine *machine, int64_t now_ms) {
    /* An election goes on: one that began anew with each request might never end. */
    if (machine->status == QUORUM_LEADING || is_candidate(machine)) return NULL;
    if (machine->linked) {
        machine->linked = machine->stored_sent = false;
        machine->effects->unfollow(machine->context);
    }
    const char *reason = quorum_machine_cannot_be_elected(machine);
    if (reason) {
        machine->status = QUORUM_DEPOSED;
        machine->reason = reason;
        return reason;
    }
    begin_election(machine, now_ms);
    return NULL;
}

void quorum_machine_depose(struct quorum_machine *machine, int64_t now_ms) {
    machine->status = QUORUM_DEPOSED;
    machine->pre_voting = true;
    machine->vote_count = 0;
    machine->next_ask_ms = now_ms;
    machine->reason = quorum_machine_cannot_be_elected(machine);
    if (!machine->reason)
        machine->reason = "it has restarted and may lack acknowledged writes; it waits for other servers of its group";
}

void quorum_machine_follow(struct quorum_machine *machine, int64_t now_ms) {
    if (machine->status == QUORUM_LEADING) stand_down(machine, now_ms);
    machine->status = QUORUM_FOLLOWING;
    machine->linked = machine->stored_sent = false;
    machine->vote_count = machine->peer_count = 0;
    machine->reason = NULL;
}

static void propose(struct quorum_machine *machine, int64_t now_ms);

static void lead(struct quorum_machine *machine, int64_t now_ms) {
    machine->status = QUORUM_LEADING;
    machine->linked = false;
    machine->complete = true;
    machine->data_term = machine->term;
    machine->peer_count = 0;
    machine->committed = -1;
    machine->caught_up_at = INT64_MAX;
    machine->checked_ms = now_ms;
    machine->higher_promise = 0;
    machine->refused_ms = now_ms - REFUSED_PAUSE_MS - 1;
    machine->reason = NULL;
    machine->state.set.term = machine->term;
    /* The absence of members counts from now on. */
    for (int i = 0; i < machine->state.set.now.count; i++) {
        struct quorum_peer *peer = &machine->peers[machine->peer_count++];
        *peer = (struct quorum_peer){.member = machine->state.set.now.list[i], .acked = -1, .since_ms = now_ms};
        memcpy(peer->id, peer->member.id, sizeof peer->id);
    }
    machine->effects->lead(machine->context);
    propose(machine, now_ms);
}

static void won(struct quorum_machine *machine, int64_t now_ms) {
    must(is_candidate(machine) && !machine->pre_voting);
    if (!machine->settings.waits_for_cluster) {
        lead(machine, now_ms);
        return;
    }
    machine->status = QUORUM_ELECTED;
    machine->linked = false;
    machine->reason = "it waits for the votes of the cluster";
    machine->effects->elected(machine->context);
}

void quorum_machine_lead(struct quorum_machine *machine, int64_t now_ms) {
    if (machine->status == QUORUM_ELECTED) lead(machine, now_ms);
}

void quorum_machine_leave(struct quorum_machine *machine, const char *id, int64_t now_ms) {
    if (machine->status == QUORUM_LEADING) stand_down(machine, now_ms);
    if (machine->linked) machine->effects->unfollow(machine->context);
    quorum_machine_follow(machine, now_ms);
    quorum_machine_data_lost(machine);
    machine->state = (struct quorum_state){0};
    memcpy(machine->state.id, id, QUORUM_ID_LEN);
    machine->promise_ticket = machine->set_ticket = save(machine);
}

bool quorum_machine_may_leave(const struct quorum_machine *machine) {
    const struct quorum_set *set = &machine->state.set;
    return !quorum_set_has(set, machine->state.id) ||
           (!set->before.count && set->now.count > 2 * set->now.replicas + 1);
}

/* Whether enough of the members have voted. */
static bool elected_by(const struct quorum_machine *machine, const struct quorum_members *members) {
    int votes = 0;
    for (int i = 0; i < machine->vote_count; i++) {
        const struct quorum_vote *vote = &machine->votes[i];
        if (vote->answer != QUORUM_PROMISED || !quorum_members_find(members, vote->id)) continue;
        votes += vote->complete || !can_commit(members);
    }
    return votes >= quorum_members_electing(members);
}

static bool elected(const struct quorum_machine *machine) {
    const struct quorum_set *set = &machine->state.set;
    return elected_by(machine, &set->now) && (!set->before.count || elected_by(machine, &set->before));
}

static int compare_data(const struct quorum_term *a, int64_t a_offset, const struct quorum_term *b, int64_t b_offset) {
    int order = quorum_term_compare(a, b);
    return order ? order : (a_offset > b_offset) - (a_offset < b_offset);
}

static void catch_up_or_lead(struct quorum_machine *machine, int64_t now_ms) {
    const struct quorum_vote *best = NULL;
    for (int i = 0; i < machine->vote_count; i++) {
        const struct quorum_vote *vote = &machine->votes[i];
        if (vote->answer != QUORUM_PROMISED || !vote->complete) continue;
        int order = best ? compare_data(&vote->data_term, vote->offset, &best->data_term, best->offset) : 1;
        if (order > 0 || (order == 0 && is_me(machine, vote->id))) best = vote;
    }
    if (!best || is_me(machine, best->id) ||
        (machine->complete &&
         compare_data(&machine->data_term, offset(machine), &best->data_term, best->offset) >= 0)) {
        won(machine, now_ms);
        return;
    }
    const struct quorum_member *member = quorum_members_find(&machine->state.set.now, best->id);
    if (!member) member = quorum_members_find(&machine->state.set.before, best->id);
    if (!member || !member->port) {
        machine->reason = "the address of the server with the newest data is not known";
        return;
    }
    machine->source = *member;
    machine->source_term = best->data_term;
    machine->source_offset = best->offset;
    machine->status = QUORUM_CATCHING_UP;
    machine->give_up_ms = now_ms + COPY_MS;
    machine->reason = "it copies the newest data from another server of its group";
    machine->effects->copy_from(machine->context, member);
}

static void decide(struct quorum_machine *machine, int64_t now_ms) {
    if (!elected(machine)) return;
    if (machine->pre_voting)
        begin_election(machine, now_ms);
    else
        catch_up_or_lead(machine, now_ms);
}

static struct quorum_vote *vote_of(struct quorum_machine *machine, const char *id) {
    for (int i = 0; i < machine->vote_count; i++)
        if (strcmp(machine->votes[i].id, id) == 0) return &machine->votes[i];
    if (machine->vote_count == (int)(sizeof machine->votes / sizeof *machine->votes)) return NULL;
    machine->votes[machine->vote_count] = (struct quorum_vote){.answer = QUORUM_WAIT};
    return &machine->votes[machine->vote_count++];
}

static bool collects_votes(const struct quorum_machine *machine) {
    return (machine->status == QUORUM_DEPOSED && machine->pre_voting) || machine->status == QUORUM_CANDIDATE;
}

/* The primary that this server acknowledged has promised to follow it, so it answers no reads any more. */
static bool lease_is_void(const struct quorum_machine *machine) {
    for (int i = 0; i < machine->vote_count; i++) {
        const struct quorum_vote *vote = &machine->votes[i];
        if (vote->answer == QUORUM_PROMISED && strcmp(vote->id, machine->lease_term.id) == 0) return true;
    }
    return false;
}

static void own_vote(struct quorum_machine *machine, int64_t now_ms) {
    struct quorum_vote *mine = vote_of(machine, machine->state.id);
    if (!mine || mine->answer == QUORUM_PROMISED) return;
    mine->kind = machine->pre_voting ? QUORUM_PRE_VOTE : QUORUM_VOTE;
    mine->term = machine->term;
    fill_vote(machine, mine);
    bool safe =
        machine->saved >= machine->promise_ticket && (now_ms >= machine->lease_until_ms || lease_is_void(machine));
    mine->answer = machine->pre_voting || safe ? QUORUM_PROMISED : QUORUM_WAIT;
    if (mine->answer == QUORUM_PROMISED) decide(machine, now_ms);
}

/* A vote that comes while the candidate copies from a voter: it may make that voter dispensable. The newest committed
 * set is known by now, and a newer one would need other votes. */
static void note_late_vote(struct quorum_machine *machine, const struct quorum_vote *vote) {
    if (quorum_term_compare(&vote->term, &machine->term) != 0 || is_me(machine, vote->id) || vote->kind != QUORUM_VOTE)
        return;
    if (vote->answer != QUORUM_PROMISED || quorum_set_compare(&vote->set, &machine->state.set) > 0) return;
    struct quorum_vote *mine = vote_of(machine, vote->id);
    if (mine) *mine = *vote;
}

void quorum_machine_voted(struct quorum_machine *machine, const struct quorum_vote *vote, int64_t now_ms) {
    if (machine->status == QUORUM_CATCHING_UP) note_late_vote(machine, vote);
    if (!collects_votes(machine) || quorum_term_compare(&vote->term, &machine->term) != 0 || is_me(machine, vote->id))
        return;
    if ((vote->kind == QUORUM_PRE_VOTE) != machine->pre_voting) return;
    learn_set(machine, &vote->set);
    struct quorum_vote *mine = vote_of(machine, vote->id);
    if (!mine) return;
    *mine = *vote;
    if (!machine->pre_voting && vote->answer == QUORUM_REFUSED &&
        quorum_term_compare(&vote->promised, &machine->term) > 0) {
        machine->next_ask_ms = now_ms + RETRY_MS + jitter(machine); /* another candidate, or an older attempt */
        return;
    }
    if (!machine->pre_voting) own_vote(machine, now_ms);
    if (collects_votes(machine)) decide(machine, now_ms);
}

static void ask_members(struct quorum_machine *machine, const struct quorum_members *members) {
    struct quorum_vote_request request = {.kind = machine->pre_voting ? QUORUM_PRE_VOTE : QUORUM_VOTE,
                                          .term = machine->term};
    memcpy(request.group, machine->state.group, sizeof request.group);
    for (int i = 0; i < members->count; i++) {
        const struct quorum_member *member = &members->list[i];
        const struct quorum_vote *vote = NULL;
        for (int j = 0; j < machine->vote_count; j++)
            if (strcmp(machine->votes[j].id, member->id) == 0) vote = &machine->votes[j];
        if (is_me(machine, member->id) || !member->port || (vote && vote->answer != QUORUM_WAIT)) continue;
        machine->effects->request_vote(machine->context, member, &request);
    }
}

static void ask_all(struct quorum_machine *machine) {
    ask_members(machine, &machine->state.set.now);
    ask_members(machine, &machine->state.set.before);
}

/* The voter with the newest data gives no copy: it runs a script, or has died since. If the votes of others are enough,
 * they have all committed writes, and the candidate does without that voter. */
static void do_without_source(struct quorum_machine *machine, int64_t now_ms) {
    struct quorum_vote *source = vote_of(machine, machine->source.id), *mine = vote_of(machine, machine->state.id);
    if (!source || !mine) return;
    fill_vote(machine, mine); /* a copy that broke off has cost the data */
    source->answer = QUORUM_WAIT;
    if (elected(machine)) {
        log_text(machine, "the server with the newest data gives no copy, and the votes of others are enough");
        machine->effects->unfollow(machine->context);
        machine->status = QUORUM_CANDIDATE;
        catch_up_or_lead(machine, now_ms);
        return;
    }
    source->answer = QUORUM_PROMISED;
    if (now_ms < machine->next_ask_ms) return;
    machine->next_ask_ms = now_ms + REQUEST_MS;
    ask_all(machine);
}

static bool is_outvoted(const struct quorum_machine *machine) { /* a voter has promised a higher term */
    for (int i = 0; i < machine->vote_count; i++)
        if (quorum_term_compare(&machine->votes[i].promised, &machine->term) > 0) return true;
    return false;
}

static void candidate_tick(struct quorum_machine *machine, int64_t now_ms) {
    if (machine->status == QUORUM_ELECTED) return;
    if (machine->status == QUORUM_CATCHING_UP) {
        bool done = machine->complete && compare_data(&machine->data_term, offset(machine), &machine->source_term,
                                                      machine->source_offset) >= 0;
        if (machine->linked) machine->give_up_ms = now_ms + COPY_MS;
        if (done) {
            if (machine->linked) machine->effects->unfollow(machine->context);
            won(machine, now_ms);
        } else if (now_ms >= machine->give_up_ms) {
            machine->effects->unfollow(machine->context);
            begin_election(machine, now_ms);
        } else if (now_ms >= machine->give_up_ms - COPY_MS + COPY_LINK_MS) {
            do_without_source(machine, now_ms);
        }
        return;
    }
    if (now_ms < machine->next_ask_ms) return;
    if (machine->status == QUORUM_DEPOSED) {
        if (!machine->pre_voting || quorum_machine_cannot_be_elected(machine)) return;
        bool again = machine->vote_count == 0 || now_ms >= machine->give_up_ms;
        if (again) {
            begin_term(machine, now_ms);
            machine->give_up_ms = now_ms + PRE_VOTE_MS + jitter(machine);
        }
    } else if (is_outvoted(machine)) {
        begin_election(machine, now_ms);
    }
    machine->next_ask_ms = now_ms + REQUEST_MS;
    own_vote(machine, now_ms);
    if (!collects_votes(machine)) return;
    /* Its own promise is on disk first: otherwise it could use the same term again after a restart. */
    if (!machine->pre_voting && machine->saved < machine->promise_ticket) {
        machine->next_ask_ms = now_ms;
        return;
    }
    ask_all(machine);
}

/* --- The primary --- */

static struct quorum_peer *peer_of(struct quorum_machine *machine, const char *id) {
    for (int i = 0; i < machine->peer_count; i++)
        if (strcmp(machine->peers[i].id, id) == 0) return &machine->peers[i];
    return NULL;
}

static const struct quorum_peer *peer_find(const struct quorum_machine *machine, const char *id) {
    return peer_of((struct quorum_machine *)(uintptr_t)machine, id);
}

/* The highest offset that `needed` members have. */
static int64_t committed_by(const struct quorum_machine *machine, const struct quorum_members *members) {
    int64_t have[QUORUM_MEMBERS_MAX];
    int count = 0, needed = quorum_members_needed(members);
    for (int i = 0; i < members->count; i++) {
        const char *id = members->list[i].id;
        int64_t at = -1;
        const struct quorum_peer *peer = peer_find(machine, id);
        if (is_me(machine, id)) {
            if (machine->saved >= machine->set_ticket) at = offset(machine);
        } else if (peer && peer->linked && peer->stored_version == machine->state.set.version &&
                   quorum_term_compare(&peer->stored_term, &machine->term) == 0) {
            at = peer->acked;
        }
        if (at < 0) continue;
        int to = count++;
        while (to && have[to - 1] < at) have[to] = have[to - 1], to--;
        have[to] = at;
    }
    return count >= needed ? have[needed - 1] : -1;
}

static void recompute(struct quorum_machine *machine) {
    if (machine->status != QUORUM_LEADING) return;
    int64_t at = committed_by(machine, &machine->state.set.now);
    if (machine->state.set.before.count) {
        int64_t before = committed_by(machine, &machine->state.set.before);
        if (before < at) at = before;
    }
    if (at <= machine->committed) return;
    must(machine->saved >= machine->promise_ticket || machine->state.set.now.count == 1);
    machine->committed = at;
    machine->effects->committed(machine->context, at);
}

static void propose(struct quorum_machine *machine, int64_t now_ms) {
    must_equal(machine->status, QUORUM_LEADING);
    machine->state.set.version++;
    machine->set_ticket = save(machine);
    machine->effects->send_set(machine->context, &machine->state.set);
    machine->proposed_at = offset(machine);
    recompute(machine);
}

static bool may_join(const struct quorum_machine *machine, const struct quorum_peer *peer) {
    return peer->linked && peer->eligible && peer->acked >= machine->caught_up_at && peer->member.port &&
           quorum_term_compare(&peer->stored_term, &machine->term) == 0 &&
           !quorum_members_find(&machine->state.set.now, peer->id);
}

static bool is_absent(const struct quorum_machine *machine, const char *id, int64_t now_ms, int64_t for_ms) {
    const struct quorum_peer *peer = peer_find(machine, id);
    return !is_me(machine, id) && peer && !peer->linked && now_ms - peer->since_ms > for_ms;
}

/* Whether a member has lost its link a moment ago: it is not known yet whether it will be replaced. */
static bool may_be_leaving(const struct quorum_machine *machine, const struct quorum_members *members, int64_t now_ms) {
    for (int i = 0; i < members->count; i++) {
        const char *id = members->list[i].id;
        if (is_absent(machine, id, now_ms, -1) && !is_absent(machine, id, now_ms, REPLACE_MS)) return true;
    }
    return false;
}

/* The members as they should be. False: as they are. */
static bool wanted_members(const struct quorum_machine *machine, int64_t now_ms, struct quorum_members *wanted) {
    const struct quorum_members *now = &machine->state.set.now;
    *wanted = *now;
    bool changed = false;
    if (now->replicas != machine->settings.replicas) {
        wanted->replicas = machine->settings.replicas;
        changed = true;
    }
    if (!quorum_members_find(now, machine->state.id) && wanted->count < QUORUM_MEMBERS_MAX) {
        struct quorum_member *self = &wanted->list[wanted->count++];
        *self = (struct quorum_member){0};
        memcpy(self->id, machine->state.id, sizeof self->id);
        changed = true;
    }
    int joining = 0;
    for (int i = 0; i < machine->peer_count && wanted->count < QUORUM_MEMBERS_MAX; i++) {
        if (!may_join(machine, &machine->peers[i])) continue;
        if (wanted->count > 2 * wanted->replicas && may_be_leaving(machine, wanted, now_ms)) break;
        wanted->list[wanted->count++] = machine->peers[i].member;
        joining++;
        changed = true;
    }
    for (int i = 0; i < wanted->count; i++) {
        struct quorum_member *member = &wanted->list[i];
        const struct quorum_peer *peer = peer_find(machine, member->id);
        if (peer && peer->linked && peer->member.port &&
            (peer->member.port != member->port || strcmp(peer->member.host, member->host) != 0)) {
            *member = peer->member;
            changed = true;
        }
        /* A server that joins takes the place of one that is absent: beside it the set would need more voters. */
        int64_t absent_ms =
            joining && REPLACE_MS < machine->settings.absent_ms ? REPLACE_MS : machine->settings.absent_ms;
        if (wanted->count > 2 * wanted->replicas + 1 && is_absent(machine, member->id, now_ms, absent_ms)) {
            *member = wanted->list[--wanted->count];
            i--;
            joining -= joining > 0;
            changed = true;
        }
    }
    return changed;
}

static void manage_set(struct quorum_machine *machine, int64_t now_ms) {
    struct quorum_set *set = &machine->state.set;
    /* The whole set must be on enough disks, and what was sent before it must have arrived there. */
    if (machine->committed < machine->proposed_at) return;
    struct quorum_members wanted;
    if (set->before.count) {
        set->before = (struct quorum_members){0};
        log_text(machine, "the change of the set of in-sync replicas is complete");
        propose(machine, now_ms);
    } else if (wanted_members(machine, now_ms, &wanted)) {
        char text[96];
        snprintf(text, sizeof text, "the set of in-sync servers changes from %d to %d", set->now.count, wanted.count);
        log_text(machine, text);
        set->before = set->now;
        set->now = wanted;
        propose(machine, now_ms);
    }
}

void quorum_machine_establish(struct quorum_machine *machine, const char *group, int64_t now_ms) {
    memcpy(machine->state.group, group, QUORUM_ID_LEN);
    machine->term.number = machine->state.promised.number + 1;
    memcpy(machine->term.id, machine->state.id, sizeof machine->term.id);
    machine->state.promised = machine->term;
    machine->state.set = (struct quorum_set){.now = {.replicas = machine->settings.replicas, .count = 1}};
    memcpy(machine->state.set.now.list[0].id, machine->state.id, sizeof machine->state.id);
    lead(machine, now_ms);
}

void quorum_machine_force(struct quorum_machine *machine, const char *group, int64_t now_ms) {
    if (machine->status == QUORUM_LEADING) return;
    if (machine->linked) machine->effects->unfollow(machine->context);
    if (!machine->state.group[0]) memcpy(machine->state.group, group, QUORUM_ID_LEN);
    begin_term(machine, now_ms);
    machine->state.promised = machine->term;
    uint64_t version = machine->state.set.version;
    machine->state.set =
        (struct quorum_set){.version = version, .now = {.replicas = machine->settings.replicas, .count = 1}};
    memcpy(machine->state.set.now.list[0].id, machine->state.id, sizeof machine->state.id);
    lead(machine, now_ms);
}

/* A server of the group has promised a candidate its term. If this primary needs that server for commits, or the
 * candidate has not won for a while, this primary has to lead a higher term, so that the server can follow it. */
static void refuse_promised(struct quorum_machine *machine, const struct quorum_hello *hello, int64_t now_ms) {
    if (hello->promised.number > machine->higher_promise) machine->higher_promise = hello->promised.number;
    if (now_ms - machine->refused_ms > REFUSED_PAUSE_MS) machine->refused_since_ms = now_ms;
    machine->refused_ms = now_ms;
    if (!quorum_machine_writable(machine)) {
        stand_down(machine, now_ms);
        machine->next_ask_ms = now_ms;
    } else if (now_ms - machine->refused_since_ms >= PRE_VOTE_PAUSE_MS && !quorum_machine_cannot_be_elected(machine)) {
        log_text(machine, "asking to lead a higher term, because a server of the group has promised one in vain");
        stand_down(machine, now_ms);
        begin_election(machine, now_ms);
    }
}

const char *quorum_machine_hello_from(struct quorum_machine *machine, const struct quorum_hello *hello, int64_t now_ms,
                                      struct quorum_welcome *welcome) {
    *welcome = (struct quorum_welcome){.leads = true};
    memcpy(welcome->group, machine->state.group, sizeof welcome->group);
    if (is_me(machine, hello->id)) return "the replica has the id of this server: its file of promises is a copy";
    if (hello->group[0] && strcmp(hello->group, machine->state.group) != 0)
        return "the replica belongs to another group of sync-replication";
    if (machine->status == QUORUM_LEADING) {
        if (quorum_term_compare(&hello->promised, &machine->term) > 0) {
            refuse_promised(machine, hello, now_ms);
            return "the replica has promised to follow a newer primary";
        }
        welcome->term = machine->term;
        welcome->offset = offset(machine);
        return NULL;
    }
    /* A candidate that this voter has promised to takes the data from here. */
    bool promised = machine->state.promised.number && strcmp(machine->state.promised.id, hello->id) == 0 &&
                    quorum_term_compare(&machine->state.promised, &hello->promised) == 0;
    if (!promised || !machine->complete || machine->linked || !machine->data_term.number)
        return "this server does not lead its group";
    welcome->leads = false;
    welcome->term = machine->data_term;
    welcome->offset = offset(machine);
    return NULL;
}

void quorum_machine_peer_linked(struct quorum_machine *machine, const struct quorum_hello *hello, const char *host,
                                int port, int64_t now_ms) {
    if (machine->status != QUORUM_LEADING) return;
    struct quorum_peer *peer = peer_of(machine, hello->id);
    if (!peer) {
        if (machine->peer_count == QUORUM_PEERS_MAX) {
            int free = 0;
            while (free < machine->peer_count &&
                   (machine->peers[free].linked || quorum_set_has(&machine->state.set, machine->peers[free].id)))
                free++;
            if (free == machine->peer_count) return;
            peer = &machine->peers[free];
        } else {
            peer = &machine->peers[machine->peer_count++];
        }
    }
    *peer = (struct quorum_peer){.linked = true, .eligible = hello->eligible, .acked = -1, .since_ms = now_ms};
    memcpy(peer->id, hello->id, sizeof peer->id);
    memcpy(peer->member.id, hello->id, sizeof peer->member.id);
    snprintf(peer->member.host, sizeof peer->member.host, "%s", host);
    peer->member.port = port;
    machine->effects->send_set(machine->context, &machine->state.set);
}

void quorum_machine_peer_unlinked(struct quorum_machine *machine, const char *id, int64_t now_ms) {
    struct quorum_peer *peer = peer_of(machine, id);
    if (!peer) return;
    peer->linked = false;
    peer->acked = -1;
    peer->stored_version = 0;
    peer->stored_term = (struct quorum_term){0};
    peer->since_ms = now_ms;
}

void quorum_machine_peer_stored(struct quorum_machine *machine, const char *id, const struct quorum_term *term,
                                uint64_t version) {
    struct quorum_peer *peer = peer_of(machine, id);
    if (machine->status != QUORUM_LEADING || !peer || !peer->linked) return;
    peer->stored_term = *term;
    peer->stored_version = version;
    recompute(machine);
}

void quorum_machine_peer_acked(struct quorum_machine *machine, const char *id, int64_t at) {
    struct quorum_peer *peer = peer_of(machine, id);
    if (machine->status != QUORUM_LEADING || !peer || !peer->linked || at <= peer->acked) return;
    peer->acked = at;
    recompute(machine);
}

static int in_sync_of(const struct quorum_machine *machine, const struct quorum_members *members) {
    int count = 0;
    for (int i = 0; i < members->count; i++) {
        const struct quorum_peer *peer = peer_find(machine, members->list[i].id);
        if (is_me(machine, members->list[i].id)) continue;
        count += peer && peer->linked && quorum_term_compare(&peer->stored_term, &machine->term) == 0;
    }
    return count;
}

int quorum_machine_in_sync(const struct quorum_machine *machine) {
    return machine->status == QUORUM_LEADING ? in_sync_of(machine, &machine->state.set.now) : 0;
}

static bool enough(const struct quorum_machine *machine, const struct quorum_members *members) {
    int needed = members->replicas + (quorum_members_find(members, machine->state.id) == NULL);
    return in_sync_of(machine, members) >= needed;
}

bool quorum_machine_writable(const struct quorum_machine *machine) {
    const struct quorum_set *set = &machine->state.set;
    if (machine->status != QUORUM_LEADING || set->now.replicas < machine->settings.replicas) return false;
    bool forms = set->before.count && !can_commit(&set->before);
    return enough(machine, &set->now) && (!set->before.count || forms || enough(machine, &set->before));
}

bool quorum_machine_may_lead(const struct quorum_machine *machine) {
    if (machine->status == QUORUM_LEADING) return true;
    if (quorum_machine_cannot_be_elected(machine) || !quorum_set_has(&machine->state.set, machine->state.id))
        return false;
    return machine->complete && quorum_term_compare(&machine->data_term, &machine->state.set.term) == 0;
}

/* --- All --- */

/* The server has established a group that no other server has joined. It has acknowledged no write, and may join
 * another group. */
static bool is_alone(const struct quorum_machine *machine) {
    const struct quorum_set *set = &machine->state.set;
    return set->now.count == 1 && !set->before.count && !can_commit(&set->now) && is_me(machine, set->now.list[0].id);
}

const char *quorum_machine_welcomed(struct quorum_machine *machine, const struct quorum_welcome *welcome,
                                    int64_t now_ms) {
    bool same_group = strcmp(machine->state.group, welcome->group) == 0;
    if (machine->state.group[0] && !same_group && !is_alone(machine))
        return "it belongs to another group of sync-replication";
    if (machine->status == QUORUM_CATCHING_UP) {
        if (welcome->leads || quorum_term_compare(&welcome->term, &machine->source_term) != 0)
            return "it is no longer the voter that this candidate chose";
    } else if (machine->status != QUORUM_FOLLOWING || !welcome->leads) {
        return "it does not lead its group";
    } else if (same_group && quorum_term_compare(&welcome->term, &machine->state.promised) < 0) {
        return "this server has promised to follow a newer primary";
    }
    machine->linked = true;
    machine->joined = machine->stored_sent = false;
    machine->link_leads = welcome->leads;
    machine->link_term = welcome->term;
    machine->link_offset = welcome->offset;
    if (!welcome->leads) return NULL;
    bool changed = !same_group;
    if (!same_group) {
        machine->state.promised = welcome->term;
        machine->state.set = (struct quorum_set){0};
    }
    memcpy(machine->state.group, welcome->group, sizeof machine->state.group);
    if (quorum_term_compare(&welcome->term, &machine->state.promised) > 0) {
        machine->state.promised = welcome->term;
        changed = true;
    }
    if (changed) machine->promise_ticket = save(machine);
    return NULL;
}

void quorum_machine_hello(const struct quorum_machine *machine, struct quorum_hello *hello) {
    memset(hello, 0, sizeof *hello);
    memcpy(hello->id, machine->state.id, sizeof hello->id);
    hello->eligible = machine->settings.eligible;
    if (is_alone(machine)) return;
    memcpy(hello->group, machine->state.group, sizeof hello->group);
    hello->promised = machine->state.promised;
}

void quorum_machine_saved(struct quorum_machine *machine, uint64_t ticket, int64_t now_ms) {
    if (ticket > machine->saved) machine->saved = ticket;
    if (machine->status == QUORUM_LEADING)
        recompute(machine);
    else
        quorum_machine_advanced(machine);
}

void quorum_machine_tick(struct quorum_machine *machine, int64_t now_ms) {
    if (machine->status == QUORUM_LEADING) {
        recompute(machine);
        manage_set(machine, now_ms);
        if (now_ms - machine->checked_ms >= REQUEST_MS) {
            machine->checked_ms = now_ms;
            machine->caught_up_at = machine->committed < 0 ? INT64_MAX : machine->committed;
        }
        return;
    }
    quorum_machine_advanced(machine);
    if (machine->status != QUORUM_FOLLOWING) candidate_tick(machine, now_ms);
}
