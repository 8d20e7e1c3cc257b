#include "quorum_simulator.h"
#include "quorum_clients.h"
#include "lib/system/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world world;

uint64_t world_random(uint64_t bound) {
    world.random ^= world.random << 13;
    world.random ^= world.random >> 7;
    world.random ^= world.random << 17;
    return world.random % bound;
}

void world_note(int node, const char *format, ...) {
    va_list args;
    if (!world.verbose) return;
    printf("%8lld %2d ", (long long)world.now, node);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

void world_violated(const char *what, int node) {
    printf("seed %llu: %s (node %d at %lld ms)\n", (unsigned long long)world.seed, what, node, (long long)world.now);
    fflush(stdout);
    exit(1);
}

bool world_reaches(int a, int b) {
    return !world.cut[a][b] && world.now >= world.late_until[a][b];
}
bool world_reaches_both(int a, int b) {
    return world_reaches(a, b) && world_reaches(b, a);
}
static bool is_cut_off(unsigned a, unsigned b) {
    return world.cut[a][b] || world.cut[b][a];
}
bool world_runs(const struct node *node) {
    return node->up && world.now >= node->frozen_until;
}
uint64_t world_us(void) {
    return (uint64_t)world.now * 1000;
}

unsigned world_shard_of(const struct node *node) {
    const char *group = node->machine.state.group;
    if (node->asynchronous) return node->shard;
    return strspn(group, "0") >= QUORUM_ID_LEN - 1 ? (unsigned)atoi(group) : NO_SHARD;
}

/* --- Checks --- */

void world_check_has_all(const struct node *node, const char *what) {
    static bool has[ENTRIES_MAX];
    unsigned shard = world_shard_of(node);
    memset(has, 0, world.next_value * sizeof *has);
    for (int64_t i = 0; i < node->len; i++)
        if (node->log[i].value) has[node->log[i].value] = true;
    for (uint32_t i = 0; i < world.acknowledged_count; i++)
        if (world.shard_of[world.acknowledged_list[i]] == shard && !has[world.acknowledged_list[i]])
            world_violated(what, (int)node->index);
}

/* --- Effects --- */

static struct message *message(enum kind kind, int from, int to) {
    if (world.message_count == EVENTS_MAX) world_violated("too many messages", from);
    struct message *new = &world.messages[world.message_count++];
    memset(new, 0, sizeof *new);
    new->kind = kind;
    new->from = from;
    new->to = to;
    new->life_to = world.nodes[to].life;
    new->due = world.now + 1 + (int64_t)world_random(world_random(20) ? 5 : 400);
    if (world.slow && world_random(world.slow) == 0) new->due += (int64_t)world_random(3000);
    return new;
}

/* To the primary, in the order in which they are sent. */
static struct message *message_on_link(enum kind kind, const struct node *node) {
    struct message *new = message(kind, (int)node->index, node->follows);
    new->link = node->link_of;
    for (unsigned i = 0; i + 1 < world.message_count; i++) {
        const struct message *before = &world.messages[i];
        if (before->link == new->link && before->due > new->due) new->due = before->due;
    }
    return new;
}

static uint64_t does_save(void *context, const struct quorum_state *state) {
    struct node *node = context;
    if (node->ticket_count == TICKETS_MAX) world_violated("too many saves", (int)node->index);
    int64_t due = world.now + 1 + (int64_t)world_random(world_random(10) ? 10 : 600);
    if (node->ticket_count && node->tickets[node->ticket_count - 1].due > due)
        due = node->tickets[node->ticket_count - 1].due;
    node->tickets[node->ticket_count].state = *state;
    node->tickets[node->ticket_count].ticket = ++node->next_ticket;
    node->tickets[node->ticket_count++].due = due;
    return node->next_ticket;
}
static int64_t does_offset(void *context) {
    return ((struct node *)context)->len;
}
static void does_request_vote(void *context, const struct quorum_member *member,
                              const struct quorum_vote_request *ask) {
    struct node *node = context;
    int to = member->port - 1;
    if (to < 0 || to >= (int)world.count || world_random(10) == 0) return;
    message(ASK, (int)node->index, to)->ask = *ask;
}
void world_link_down(struct node *node) {
    if (!node->link) return;
    node->link = false;
    node->psync_at = node->copy_until = 0;
    quorum_machine_link_lost(&node->machine);
    struct node *primary = &world.nodes[node->follows];
    if (!primary->peers[node->index].up) return;
    int64_t lost_at = world.now + 1 + (int64_t)world_random(world_random(3) ? 20 : 3000);
    for (unsigned i = 0; i < world.message_count; i++) /* behind what it has sent before */
        if (world.messages[i].link == node->link_of && world.messages[i].due > lost_at) lost_at = world.messages[i].due;
    primary->peers[node->index].lost_at = lost_at;
}
static void does_unfollow(void *context) {
    world_link_down(context);
}
static void does_copy_from(void *context, const struct quorum_member *member) {
    struct node *node = context;
    world_link_down(node);
    node->replica = true;
    node->follows = member->port - 1;
    node->retry = world.now;
}
void world_append(struct node *node, struct entry entry) {
    if (node->len == ENTRIES_MAX) world_violated("the log is full", (int)node->index);
    if (entry.value) node->latest[entry.key] = node->len;
    node->log[node->len++] = entry;
}
/* After the log was replaced, or has become shorter. */
void world_find_latest(struct node *node) {
    for (unsigned key = 0; key < KEYS_MAX; key++) node->latest[key] = -1;
    for (int64_t i = 0; i < node->len; i++)
        if (node->log[i].value) node->latest[node->log[i].key] = i;
}
void world_write_commit(struct node *node) {
    world_append(node, (struct entry){.commit = (uint32_t)quorum_lease_announce(&node->lease) + 1});
}
/* Nothing of its data is known to be committed. */
static void forget_commits(struct node *node) {
    quorum_lease_reset(&node->lease, ++node->issued, node->len, world_us());
}
static void note_term(const struct node *node) {
    if (world.serves && world_shard_of(node) == NO_SHARD) return; /* a server in no shard may found a group again */
    for (unsigned i = 0; i < world.term_count; i++)
        if (quorum_term_compare(&world.terms[i], &node->machine.term) == 0)
            world_violated("a term has begun twice", (int)node->index);
    if (world.term_count < 4096) world.terms[world.term_count++] = node->machine.term;
}
static void does_lead(void *context) {
    struct node *node = context;
    world_link_down(node);
    node->replica = false;
    node->follows = -1;
    world.leads++;
    world_note((int)node->index, "leads term %llu with %lld entries", (unsigned long long)node->machine.term.number,
               (long long)node->len);
    note_term(node);
    if (!world.loss_accepted) world_check_has_all(node, "a new primary lacks an acknowledged write");
    for (unsigned i = 0; i < NODES_MAX; i++) node->peers[i].up = false;
    forget_commits(node);
    if (world.began) world.began(node);
}
static void does_stand_down(void *context) {
    struct node *node = context;
    world_note((int)node->index, "stands down");
    clients_drop(node);
    forget_commits(node);
    for (unsigned i = 0; i < world.count; i++) {
        struct node *other = &world.nodes[i];
        if (other->link && other->follows == (int)node->index) world_link_down(other);
        node->peers[i].up = false;
    }
}
static void does_send_set(void *context, const struct quorum_set *set) {
    if (world.set_count == 8192) world_violated("too many sets", -1);
    world.sets[world.set_count] = *set;
    world_append(context, (struct entry){.set = world.set_count++});
}
static void does_say_stored(void *context, const struct quorum_set *set) {
    struct node *node = context;
    if (!node->link) return;
    struct message *say = message_on_link(STORED, node);
    say->term = set->term;
    say->version = set->version;
}
static void does_committed(void *context, int64_t offset) {
    struct node *node = context;
    int64_t from = node->lease.committed < 0 ? 0 : node->lease.committed;
    /* Only its own clients wait: writes of this node's term. Writes of earlier terms have lost their clients. */
    for (int64_t i = from; i < offset && i < node->len; i++) {
        uint32_t value = node->log[i].value, command = node->log[i].command;
        if (command && node->machine.state.set.now.count > (int)world.replicas) world.command_committed(node, command);
        /* With fewer members than a commit needs only the server itself writes (expiry), and nobody sees it. */
        if (!value || world.acknowledged[value] || node->machine.state.set.now.count <= (int)world.replicas) continue;
        world.acknowledged[value] = true;
        world.acknowledged_list[world.acknowledged_count++] = value;
    }
    if (quorum_lease_commit(&node->lease, offset)) clients_release(node);
}
static void does_elected(void *context) {
    world.elected(context);
}
static void does_log(void *context, const char *text) {
    world_note((int)((struct node *)context)->index, "%s", text);
}
static const struct quorum_effects world_effects = {.save = does_save,
                                                    .offset = does_offset,
                                                    .request_vote = does_request_vote,
                                                    .unfollow = does_unfollow,
                                                    .copy_from = does_copy_from,
                                                    .lead = does_lead,
                                                    .stand_down = does_stand_down,
                                                    .send_set = does_send_set,
                                                    .say_stored = does_say_stored,
                                                    .committed = does_committed,
                                                    .elected = does_elected,
                                                    .log = does_log};

/* --- Nodes --- */

void world_fresh_id(const struct node *node, char id[static QUORUM_ID_LEN + 1]) {
    snprintf(id, QUORUM_ID_LEN + 1, "%08x%032x", (unsigned)world_random(UINT32_MAX), node->index);
}

void world_start(struct node *node) {
    char id[QUORUM_ID_LEN + 1];
    world_fresh_id(node, id);
    struct quorum_settings settings = {.replicas = (int)world.replicas,
                                       .eligible = true,
                                       .waits_for_cluster = world.elected != NULL,
                                       .lease_ms = QUORUM_LEASE_MS,
                                       .absent_ms = ABSENT};
    node->up = true;
    node->life++;
    node->frozen_until = 0;
    node->ticket_count = 0;
    node->next_ticket = 0;
    node->link = false;
    node->psync_at = node->copy_until = 0;
    node->phase = 0;
    node->freeze_ms = 0;
    node->final_until = node->busy_until = 0;
    node->sent = node->len;
    world_find_latest(node);
    memset(node->shown, 0, sizeof node->shown);
    clients_drop(node);
    forget_commits(node);
    quorum_machine_init(&node->machine, &settings, &world_effects, node, node->has_file ? &node->durable : NULL, id,
                        world.now);
    if (!node->replica && node->machine.state.group[0]) quorum_machine_depose(&node->machine, world.now);
}

void world_crash(struct node *node, bool disk) {
    world_note((int)node->index, disk ? "crashes" : "crashes and loses its files");
    node->up = false;
    clients_drop(node);
    world_link_down(node);
    for (unsigned i = 0; i < world.count; i++) {
        struct node *other = &world.nodes[i];
        if (other->link && other->follows == (int)node->index) world_link_down(other);
        node->peers[i].up = false;
    }
    node->len = disk && world_random(3) ? (int64_t)world_random((uint64_t)node->len + 1) : 0;
    if (node->len < node->base) node->len = 0;
    if (!node->len) node->base = 0;
    if (!disk) node->has_file = false;
}

static void disk_step(struct node *node) {
    unsigned done = 0;
    while (done < node->ticket_count && node->tickets[done].due <= world.now) done++;
    if (!done) return;
    node->durable = node->tickets[done - 1].state;
    node->has_file = true;
    if (!world_runs(node)) return; /* a frozen server hears of it later */
    uint64_t ticket = node->tickets[done - 1].ticket;
    memmove(node->tickets, node->tickets + done, (node->ticket_count - done) * sizeof *node->tickets);
    node->ticket_count -= done;
    quorum_machine_saved(&node->machine, ticket, world.now);
}

bool world_is_prefix(const struct node *a, const struct node *b) {
    if (a->len > b->len) return false;
    return memcmp(a->log, b->log, (size_t)a->len * sizeof *a->log) == 0;
}

static void try_link(struct node *node) {
    struct quorum_hello hello;
    struct quorum_welcome welcome;
    if (node->link || node->follows < 0 || world.now < node->retry) return;
    node->retry = world.now + 200;
    struct node *primary = &world.nodes[node->follows];
    if (primary == node || !world_runs(primary) || !world_reaches_both((int)node->index, node->follows)) return;
    if (world.now < primary->busy_until) return;
    quorum_machine_hello(&node->machine, &hello);
    if (quorum_machine_hello_from(&primary->machine, &hello, world.now, &welcome)) return;
    if (quorum_machine_welcomed(&node->machine, &welcome, world.now)) return;
    node->link = true;
    node->link_of = ++world.links;
    node->lag = (int64_t)world_random(3) ? 0 : (int64_t)world_random(40);
    node->psync_at = world.now + 1 + (int64_t)world_random(30);
    if (!welcome.leads) return;
    primary->peers[node->index].number = node->link_of;
    primary->peers[node->index].lost_at = 0;
}

static void come_online(struct node *node) {
    struct node *primary = &world.nodes[node->follows];
    struct quorum_hello hello;
    quorum_machine_joined(&node->machine);
    if (!node->machine.link_leads || primary->machine.status != QUORUM_LEADING) return;
    quorum_machine_hello(&node->machine, &hello);
    if (primary->peers[node->index].up && strcmp(primary->peers[node->index].id, hello.id) != 0)
        quorum_machine_peer_unlinked(&primary->machine, primary->peers[node->index].id, world.now);
    primary->peers[node->index].up = true;
    memcpy(primary->peers[node->index].id, hello.id, sizeof hello.id);
    quorum_machine_peer_linked(&primary->machine, &hello, "node", (int)node->index + 1, world.now);
}

/* The replica keeps its old data until it has received the copy. */
static void got_psync(struct node *node) {
    const struct node *primary = &world.nodes[node->follows];
    node->psync_at = 0;
    if (node->len && world_is_prefix(node, primary)) {
        come_online(node);
        return;
    }
    world_note((int)node->index, "copies from %d", node->follows);
    node->copy_until = world.now + 1 + (int64_t)world_random(500);
    if (world.copied) world.copied(node, primary); /* the primary may write then */
    node->copy_len = primary->len;
    memcpy(node->copy, primary->log, (size_t)primary->len * sizeof *node->copy);
}

static void got_copy(struct node *node) {
    node->copy_until = 0;
    quorum_machine_data_lost(&node->machine);
    node->len = node->base = node->copy_len;
    memcpy(node->log, node->copy, (size_t)node->len * sizeof *node->copy);
    world_find_latest(node);
    clients_drop(node);
    forget_commits(node);
    if (world.loads) world.loads(node);
    come_online(node);
}

/* The primary does not know its own address; a server that follows it does (quorum.c). */
static void got_set(struct node *node, struct quorum_set set) {
    struct quorum_members *lists[] = {&set.now, &set.before};
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < lists[l]->count; i++)
            if (strcmp(lists[l]->list[i].id, set.term.id) == 0) {
                strcpy(lists[l]->list[i].host, "node");
                lists[l]->list[i].port = node->follows + 1;
            }
    quorum_machine_set_received(&node->machine, &set, world.now);
}

static void replicate(struct node *node) {
    if (!node->link) return;
    struct node *primary = &world.nodes[node->follows];
    if (node->psync_at || node->copy_until) {
        if (!world_runs(primary) || !world_reaches_both((int)node->index, node->follows)) return;
        quorum_machine_advanced(&node->machine); /* the server calls it whenever it waits */
        if (world.now < node->psync_at || world.now < node->copy_until) return;
        if (node->psync_at)
            got_psync(node);
        else
            got_copy(node);
        if (node->copy_until) return;
    }
    if (!primary->up || !world_reaches(node->follows, (int)node->index) || world_random(4) == 0) return;
    int64_t to = primary->sent - (world_random(3) ? 0 : node->lag);
    bool moved = node->len < to;
    while (node->len < to && node->link) {
        struct entry entry = primary->log[node->len];
        if (entry.commit) quorum_lease_mark(&node->lease, node->len, node->len, world_us());
        world_append(node, entry);
        if (entry.commit && quorum_lease_commit(&node->lease, (int64_t)entry.commit - 1)) clients_release(node);
        if (entry.value || entry.command) quorum_lease_changed(&node->lease, ++node->issued, world_us());
        if (!entry.value && !entry.command && !entry.commit) got_set(node, world.sets[entry.set]);
    }
    if (!node->link) return;
    node->sent = node->len;
    quorum_lease_mark(&node->lease, node->len, node->len, world_us());
    quorum_machine_advanced(&node->machine);
    if (!moved || !node->machine.link_leads) return;
    quorum_machine_acknowledges(&node->machine, world.now);
    message_on_link(ACK, node)->offset = node->len;
}

/* Of a message on a link: the link still exists. */
static bool is_current(const struct message *msg) {
    const struct node *to = &world.nodes[msg->to];
    return (msg->kind == ACK || msg->kind == STORED) && to->peers[msg->from].up &&
           to->peers[msg->from].number == msg->link;
}

static void deliver(struct message *msg) {
    struct node *to = &world.nodes[msg->to];
    bool current = is_current(msg);
    switch (msg->kind) {
    case ACK:
        if (current) quorum_machine_peer_acked(&to->machine, to->peers[msg->from].id, msg->offset);
        break;
    case STORED:
        if (current) quorum_machine_peer_stored(&to->machine, to->peers[msg->from].id, &msg->term, msg->version);
        break;
    case ASK: {
        struct quorum_vote *vote = mem_alloc(sizeof *vote);
        message(VOTE, msg->to, msg->from)->vote = vote;
        quorum_machine_vote_requested(&to->machine, &msg->ask, world.now, vote);
        break;
    }
    case VOTE: quorum_machine_voted(&to->machine, msg->vote, world.now); break;
    }
}

/* Those to a server that is down are lost. */
static void sockets(const struct node *node) {
    for (unsigned i = 0; i < world.message_count;) {
        if (world.messages[i].to != (int)node->index || world.messages[i].due > world.now) {
            i++;
            continue;
        }
        struct message msg = world.messages[i];
        bool current = node->up && node->life == msg.life_to && is_current(&msg);
        if (current && !world_reaches(msg.from, msg.to)) { /* a link repeats what is lost, until it breaks */
            i++;
            continue;
        }
        memmove(world.messages + i, world.messages + i + 1, (world.message_count - i - 1) * sizeof msg);
        world.message_count--;
        bool arrives = node->up && node->life == msg.life_to && world_reaches(msg.from, msg.to);
        if (arrives) deliver(&msg);
        mem_free(msg.vote);
        if (arrives) i = 0;
    }
}

/* quorum.c: mark() and commit_due(), then primary.c sends */
static void end_of_turn(struct node *node) {
    bool leads = node->machine.status == QUORUM_LEADING, linked = false, grows = world.now >= node->final_until;
    for (unsigned i = 0; i < world.count; i++) linked |= node->peers[i].up;
    int64_t from = node->len;
    if (leads && quorum_lease_asks(&node->lease, linked, world_us())) {
        if (grows) world_write_commit(node);
        if (!grows && world.trial & TRIAL_MARK) from--;
    }
    quorum_lease_mark(&node->lease, from, node->len, world_us());
    if (leads && grows && quorum_lease_has_news(&node->lease) && world_random(2)) world_write_commit(node);
    node->sent = node->len;
}

static void losses(struct node *node) {
    for (unsigned j = 0; j < world.count; j++) {
        int64_t lost_at = node->peers[j].lost_at;
        if (!node->peers[j].up || !lost_at || world.now < lost_at) continue;
        /* The end of the connection is as late as what was sent before it, or repl-timeout passes. */
        if (!world_reaches((int)j, (int)node->index) && world.now < lost_at + ABSENT) continue;
        node->peers[j].up = false;
        node->peers[j].lost_at = 0;
        quorum_machine_peer_unlinked(&node->machine, node->peers[j].id, world.now);
    }
}

static void turn(struct node *node) {
    for (; node->phase < TURN_PHASES; node->phase++) {
        if (node->freeze_ms && node->freeze_phase == node->phase) {
            node->frozen_until = world.now + node->freeze_ms;
            node->freeze_ms = 0;
            node->has_woken = true;
            return;
        }
        switch (node->phase) {
        case TURN_REQUESTS: clients_turn(node); break;
        case TURN_SOCKETS:
            disk_step(node);
            sockets(node);
            break;
        case TURN_MORE_REQUESTS:
            if (node->has_woken || world_random(4) == 0) clients_turn(node);
            if (world_random(8) == 0 && node->machine.status == QUORUM_LEADING)
                node->sent = node->len; /* a socket took it early */
            break;
        case TURN_END: end_of_turn(node); break;
        case TURN_REST:
            losses(node);
            if (node->replica) try_link(node);
            replicate(node);
            quorum_machine_tick(&node->machine, world.now);
        }
    }
    node->phase = 0;
}

void world_step(void) {
    world.now += STEP_MS;
    for (unsigned i = 0; i < world.count; i++) {
        struct node *node = &world.nodes[i];
        if (node->asynchronous) {
            if (world_runs(node)) world.asynchronous_turn(node);
        } else if (world_runs(node))
            turn(node);
        else if (node->up)
            disk_step(node);
        else
            sockets(node);
    }
}

/* A replica that has all of the paused stream stands. */
static void manual_failover_step(void) {
    const struct node *primary = &world.nodes[world.manual.primary];
    struct node *replica = &world.nodes[world.manual.replica];
    if (!world.manual.until || !world_runs(replica)) return;
    if (world.now < world.manual.until && !(replica->link && replica->len == primary->len)) return;
    if (world.now < world.manual.until) world_promote(replica);
    world.manual.until = 0;
}

void world_run(int64_t ms) {
    for (int64_t end = world.now + ms; world.now < end;) {
        world_step();
        manual_failover_step();
    }
}

/* --- The outsider --- */

void world_follow(struct node *node, int primary) {
    if (!node->up || (int)node->index == primary) return;
    world_note((int)node->index, "is told to follow %d", primary);
    world_link_down(node);
    if (!node->asynchronous) quorum_machine_follow(&node->machine, world.now);
    node->replica = true;
    node->follows = primary;
    node->retry = world.now;
}

void world_promote(struct node *node) {
    if (!node->up) return;
    world_note((int)node->index, "is told to lead");
    world_link_down(node);
    if (quorum_machine_start_election(&node->machine, world.now)) world_note((int)node->index, "cannot");
}

unsigned world_first_of_group(unsigned index) {
    return index / world.group * world.group;
}

int world_newest_leader_near(unsigned index) { /* in its group */
    int best = -1;
    for (unsigned i = world_first_of_group(index); i < world_first_of_group(index) + world.group; i++) {
        const struct node *node = &world.nodes[i];
        if (!node->up || node->machine.status != QUORUM_LEADING) continue;
        if (best < 0 || quorum_term_compare(&node->machine.term, &world.nodes[best].machine.term) > 0) best = (int)i;
    }
    return best;
}

int world_newest_leader(void) {
    return world_newest_leader_near(0);
}

/* After too many crashes at a time nobody can lead, and nothing more would happen. One seed in ten allows them. */
static bool may_crash(const struct node *node) {
    if (world.seed % 10 == 0 || !node->machine.complete) return true;
    unsigned sure = 0, first = world_first_of_group(node->index);
    for (unsigned i = first; i < first + world.group; i++) sure += world.nodes[i].up && world.nodes[i].machine.complete;
    return sure > world.group - world.replicas;
}

/* The primary is frozen most often, while its replicas acknowledge, and often for long enough to be replaced. */
static void freeze(struct node *node) {
    int leader = world_newest_leader_near(node->index);
    if (leader >= 0 && world_random(2)) node = &world.nodes[leader];
    node->freeze_ms = 1 + (int64_t)world_random(world_random(2) ? 1500 : 6000);
    node->freeze_phase = (unsigned)world_random(TURN_PHASES);
    if ((int)node->index != leader || world_random(3) == 0) return;
    /* It is replaced meanwhile, perhaps while it waits for a replica, and perhaps cut off when it wakes up. */
    if (world_random(3) == 0) node->final_until = world.now + node->freeze_ms + 2000;
    unsigned first = world_first_of_group(node->index), other = first + (unsigned)world_random(world.group);
    if (world_random(2))
        for (unsigned i = first; i < first + world.group; i++)
            if (i != node->index) world.cut[i][node->index] = world.cut[node->index][i] = true;
    if (other != node->index) world_promote(&world.nodes[other]);
}

/* The primary runs a script, and somebody promotes a replica because of that. */
static void be_busy(struct node *node) {
    int leader = world_newest_leader_near(node->index);
    if (leader >= 0) node = &world.nodes[leader];
    node->busy_until = world.now + (int64_t)world_random(world_random(2) ? 3000 : 20000);
    unsigned other = world_first_of_group(node->index) + (unsigned)world_random(world.group);
    if (other != node->index && world_random(3)) world_promote(&world.nodes[other]);
}

static void delay(unsigned from, unsigned to) {
    if (from != to) world.late_until[from][to] = world.now + 200 + (int64_t)world_random(5000);
}
/* From the others of its group to one server, or back. */
static void delay_some(unsigned index) {
    unsigned first = world_first_of_group(index), inwards = (unsigned)world_random(2);
    world_note((int)index, "what it %s is late", inwards ? "gets" : "sends");
    for (unsigned i = first; i < first + world.group; i++)
        if (world_random(4)) delay(inwards ? i : index, inwards ? index : i);
}

static void manual_failover(struct node *primary) {
    unsigned first = world_first_of_group(primary->index), other = first + (unsigned)world_random(world.group);
    const struct node *replica = &world.nodes[other];
    if (other == primary->index || !replica->link || replica->follows != (int)primary->index) return;
    world_note((int)other, "is told to replace %u", primary->index);
    primary->final_until = world.now + 1000 + (int64_t)world_random(5000);
    world.manual.primary = primary->index;
    world.manual.replica = other;
    world.manual.until = primary->final_until;
    for (unsigned i = first, late = (unsigned)world_random(2); late && i < first + world.group; i++)
        delay(i, primary->index);
}

void world_fault(void) {
    struct node *node = &world.nodes[world_random(world.count)];
    int leader = world_newest_leader_near(node->index);
    switch (world_random(12)) {
    case 0:
    case 1:
        if (node->up && may_crash(node)) world_crash(node, world_random(8) != 0);
        break;
    case 2:
    case 3:
    case 4:
        if (!node->up) world_start(node);
        break;
    case 5:
        if (world_random(4))
            freeze(node);
        else
            be_busy(node);
        break;
    case 6: {
        unsigned a = (unsigned)world_random(world.count), b = (unsigned)world_random(world.count);
        if (a == b || world_random(3) == 0) memset(world.cut, 0, sizeof world.cut);
        if (a == b) break;
        world.cut[a][b] = !world.cut[a][b];
        if (world_random(3)) world.cut[b][a] = world.cut[a][b]; /* else one-way */
        break;
    }
    case 7: world_promote(node); break;
    case 8: delay_some(leader >= 0 && world_random(2) ? (unsigned)leader : node->index); break;
    case 9:
        if (leader >= 0) manual_failover(&world.nodes[leader]);
        break;
    default:
        if (leader >= 0)
            world_follow(node, leader);
        else if (world_random(2))
            world_promote(node);
    }
    /* Connections over a cut end after a while. */
    for (unsigned i = 0; i < world.count; i++)
        if (world.nodes[i].link && is_cut_off(i, (unsigned)world.nodes[i].follows) && world_random(3))
            world_link_down(&world.nodes[i]);
}

void world_clear(uint64_t seed, unsigned count, unsigned replicas) {
    static struct entry *logs[2 * NODES_MAX];
    struct message *messages = world.messages ? world.messages : mem_alloc(EVENTS_MAX * sizeof *world.messages);
    struct quorum_set *sets = world.sets ? world.sets : mem_alloc(8192 * sizeof *world.sets);
    bool *acknowledged = world.acknowledged ? world.acknowledged : mem_alloc(ENTRIES_MAX);
    bool verbose = world.verbose;
    unsigned trial = world.trial;
    for (unsigned i = 0; i < NODES_MAX; i++) quorum_lease_free(&world.nodes[i].lease);
    for (unsigned i = 0; i < world.message_count; i++) mem_free(messages[i].vote);
    memset(&world, 0, sizeof world);
    world.trial = trial;
    world.group = count;
    world.messages = messages;
    world.sets = sets;
    world.acknowledged = acknowledged;
    memset(acknowledged, 0, ENTRIES_MAX);
    world.verbose = verbose;
    world.seed = seed;
    world.random = seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < 10; i++) world_random(2);
    world.count = count;
    world.replicas = replicas;
    world.next_value = 1;
    world.now = 1000;
    for (unsigned i = 0; i < count; i++) {
        struct node *node = &world.nodes[i];
        for (int l = 0; l < 2; l++)
            if (!logs[2 * i + l]) logs[2 * i + l] = mem_alloc(ENTRIES_MAX * sizeof **logs);
        node->log = logs[2 * i];
        node->copy = logs[2 * i + 1];
        node->index = i;
        node->follows = -1;
    }
}

void world_begin(uint64_t seed, unsigned count, unsigned replicas) {
    world_clear(seed, count, replicas);
    for (unsigned i = 0; i < count; i++) {
        struct node *node = &world.nodes[i];
        node->replica = i != 0;
        node->follows = i ? 0 : -1;
        world_start(node);
    }
    quorum_machine_establish(&world.nodes[0].machine, "0123456789abcdef0123456789abcdef01234567", world.now);
    world_run(3000);
}
