/* Groups of servers with synchronous replication (src/repl/sync/sync_who.h) in virtual time, with faults.
 *
 * Each server has a log of writes and sets, a disk that forgets what is not durable yet, a link to a primary, and
 * clients. An outsider promotes servers blindly, as a Sentinel with an old view would, and tells the others whom to
 * follow. Servers crash and lose a part of their log, start without their files, freeze, and are cut off from each
 * other; messages take time. One seed determines everything.
 *
 * Checked: a primary that begins to lead, and each read that a primary answers, have all writes that were acknowledged
 * before; no write that a read has shown disappears; no two primaries lead in one term. At the end of the faults the
 * group must acknowledge writes again if enough of its servers kept their data.
 *
 *     test_sync_replication --seed 17        this seed, with its history
 *     test_sync_replication --seeds 1-5000 */
#include "lib/system/memory.h"
#include "repl/sync/sync_when.h"
#include "repl/sync/sync_who.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    NODES_MAX = 6,
    ENTRIES_MAX = 60000,
    EVENTS_MAX = 4096,
    TICKETS_MAX = 512,
    STEP_MS = 5,
    LEASE = 1000,
    LEASE_COUNTED = 750,
    ABSENT = 4000
};

struct entry {
    uint32_t value; /* of a write; 0: a set */
    uint32_t set;
};
struct node {
    unsigned index;
    bool up;
    int64_t frozen_until;
    struct sync_who who;
    struct sync_when when;
    /* The disk. */
    bool has_file;
    struct sync_state durable;
    struct {
        struct sync_state state;
        uint64_t ticket;
        int64_t due;
    } tickets[TICKETS_MAX];
    unsigned ticket_count;
    uint64_t next_ticket;
    /* The data. */
    struct entry *log;
    int64_t len;
    /* The link. */
    bool replica;
    int follows;      /* index; -1: none */
    bool link;        /* up, as this end sees it */
    unsigned link_of; /* number of the link: what arrives from an older one is dropped */
    int64_t retry, copy_until, copy_len;
    struct entry *copy;
    int64_t lag; /* entries that it is behind */
    struct {
        bool up;
        unsigned number;
        int64_t lost_at; /* when this end notices that the link is down */
    } peers[NODES_MAX];
    int64_t lease_until;
    uint32_t shown; /* writes up to this one were shown to readers: see check_shown() */
    unsigned life;
    uint64_t leads_term;
};
enum kind { ACK, STORED, ASK, VOTE };
struct message {
    enum kind kind;
    int from, to;
    unsigned life_to, link;
    int64_t due, offset;
    struct sync_term term;
    uint64_t version;
    struct sync_ask ask;
    struct sync_vote vote;
};
static struct sim {
    unsigned count, replicas;
    int64_t now;
    uint64_t random, seed;
    bool verbose;
    struct node nodes[NODES_MAX];
    bool cut[NODES_MAX][NODES_MAX];
    struct message *messages;
    unsigned message_count;
    struct sync_set *sets;
    unsigned set_count;
    uint32_t next_value;
    bool *acknowledged; /* of each value */
    uint32_t acknowledged_count;
    uint32_t acknowledged_list[ENTRIES_MAX];
    unsigned links, leads, reads;
    struct sync_term terms[4096];
    unsigned term_count;
    bool loss_accepted;
} sim;

static uint64_t below(uint64_t bound) {
    sim.random ^= sim.random << 13;
    sim.random ^= sim.random >> 7;
    sim.random ^= sim.random << 17;
    return sim.random % bound;
}

static void note(int node, const char *format, ...) {
    va_list args;
    if (!sim.verbose) return;
    printf("%8lld %2d ", (long long)sim.now, node);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static void violated(const char *what, int node) {
    printf("seed %llu: %s (node %d at %lld ms)\n", (unsigned long long)sim.seed, what, node, (long long)sim.now);
    fflush(stdout);
    fail();
}

static bool reachable(int a, int b) {
    return !sim.cut[a][b];
}
static bool runs(const struct node *node) {
    return node->up && sim.now >= node->frozen_until;
}

/* --- Checks --- */

static void check_has_all(const struct node *node, const char *what) {
    static bool has[ENTRIES_MAX];
    memset(has, 0, sim.next_value * sizeof *has);
    for (int64_t i = 0; i < node->len; i++)
        if (node->log[i].value) has[node->log[i].value] = true;
    for (uint32_t i = 0; i < sim.acknowledged_count; i++)
        if (!has[sim.acknowledged_list[i]]) violated(what, (int)node->index);
}

/* --- Effects --- */

static struct message *message(enum kind kind, int from, int to) {
    if (sim.message_count == EVENTS_MAX) violated("too many messages", from);
    struct message *new = &sim.messages[sim.message_count++];
    memset(new, 0, sizeof *new);
    new->kind = kind;
    new->from = from;
    new->to = to;
    new->life_to = sim.nodes[to].life;
    new->due = sim.now + 1 + (int64_t)below(below(20) ? 5 : 400);
    return new;
}

static uint64_t effect_save(void *context, const struct sync_state *state) {
    struct node *node = context;
    if (node->ticket_count == TICKETS_MAX) violated("too many saves", (int)node->index);
    int64_t due = sim.now + 1 + (int64_t)below(below(10) ? 10 : 600);
    if (node->ticket_count && node->tickets[node->ticket_count - 1].due > due)
        due = node->tickets[node->ticket_count - 1].due;
    node->tickets[node->ticket_count].state = *state;
    node->tickets[node->ticket_count].ticket = ++node->next_ticket;
    node->tickets[node->ticket_count++].due = due;
    return node->next_ticket;
}
static int64_t effect_offset(void *context) {
    return ((struct node *)context)->len;
}
static void effect_ask(void *context, const struct sync_member *member, const struct sync_ask *ask) {
    struct node *node = context;
    int to = member->port - 1;
    if (to < 0 || to >= (int)sim.count || below(10) == 0) return;
    message(ASK, (int)node->index, to)->ask = *ask;
}
static void link_down(struct node *node) {
    if (!node->link) return;
    node->link = false;
    node->copy_until = 0;
    sync_who_link_lost(&node->who);
    struct node *primary = &sim.nodes[node->follows];
    if (primary->peers[node->index].up)
        primary->peers[node->index].lost_at = sim.now + 1 + (int64_t)below(below(3) ? 20 : 3000);
}
static void effect_unfollow(void *context) {
    link_down(context);
}
static void effect_copy_from(void *context, const struct sync_member *member) {
    struct node *node = context;
    link_down(node);
    node->replica = true;
    node->follows = member->port - 1;
    node->retry = sim.now;
}
static void append(struct node *node, struct entry entry) {
    if (node->len == ENTRIES_MAX) violated("the log is full", (int)node->index);
    node->log[node->len++] = entry;
}
static void effect_lead(void *context) {
    struct node *node = context;
    link_down(node);
    node->replica = false;
    node->follows = -1;
    sync_when_reset(&node->when);
    node->lease_until = 0;
    sim.leads++;
    note((int)node->index, "leads term %llu with %lld entries", (unsigned long long)node->who.standing.number,
         (long long)node->len);
    for (unsigned i = 0; i < sim.term_count; i++)
        if (sync_term_compare(&sim.terms[i], &node->who.standing) == 0)
            violated("a term has begun twice", (int)node->index);
    if (sim.term_count < 4096) sim.terms[sim.term_count++] = node->who.standing;
    if (!sim.loss_accepted) check_has_all(node, "a new primary lacks an acknowledged write");
    for (unsigned i = 0; i < NODES_MAX; i++) node->peers[i].up = false;
    sync_when_mark(&node->when, (uint64_t)node->len + 1, node->len, (uint64_t)sim.now);
}
static void effect_stand_down(void *context) {
    struct node *node = context;
    note((int)node->index, "stands down");
    sync_when_reset(&node->when);
    node->lease_until = 0;
    for (unsigned i = 0; i < sim.count; i++) {
        struct node *other = &sim.nodes[i];
        if (other->link && other->follows == (int)node->index) link_down(other);
        node->peers[i].up = false;
    }
}
static void effect_send_set(void *context, const struct sync_set *set) {
    if (sim.set_count == 8192) violated("too many sets", -1);
    sim.sets[sim.set_count] = *set;
    append(context, (struct entry){.set = sim.set_count++});
}
static void effect_say_stored(void *context, const struct sync_set *set) {
    struct node *node = context;
    if (!node->link) return;
    struct message *say = message(STORED, (int)node->index, node->follows);
    say->link = node->link_of;
    say->term = set->term;
    say->version = set->version;
}
static void effect_committed(void *context, int64_t offset) {
    struct node *node = context;
    int64_t from = node->when.committed < 0 ? 0 : node->when.committed;
    if (sync_when_commit(&node->when, offset)) node->lease_until = (int64_t)node->when.lease_from + LEASE_COUNTED;
    /* Only its own clients wait: writes of this node's term. Writes of earlier terms have lost their clients. */
    for (int64_t i = from; i < offset && i < node->len; i++) {
        uint32_t value = node->log[i].value;
        /* With fewer members than a commit needs only the server itself writes (expiry), and nobody sees it. */
        if (!value || sim.acknowledged[value] || node->who.state.set.now.count <= (int)sim.replicas) continue;
        sim.acknowledged[value] = true;
        sim.acknowledged_list[sim.acknowledged_count++] = value;
    }
}
static void effect_log(void *context, const char *text) {
    note((int)((struct node *)context)->index, "%s", text);
}
static const struct sync_effects effects = {.save = effect_save,
                                            .offset = effect_offset,
                                            .ask = effect_ask,
                                            .unfollow = effect_unfollow,
                                            .copy_from = effect_copy_from,
                                            .lead = effect_lead,
                                            .stand_down = effect_stand_down,
                                            .send_set = effect_send_set,
                                            .say_stored = effect_say_stored,
                                            .committed = effect_committed,
                                            .log = effect_log};

/* --- Nodes --- */

static void fresh_id(const struct node *node, char id[static SYNC_ID_LEN + 1]) {
    snprintf(id, SYNC_ID_LEN + 1, "%08x%032x", (unsigned)below(UINT32_MAX), node->index);
}

static void node_start(struct node *node) {
    char id[SYNC_ID_LEN + 1];
    fresh_id(node, id);
    struct sync_settings settings = {
        .replicas = (int)sim.replicas, .eligible = true, .lease_ms = LEASE, .absent_ms = ABSENT};
    node->up = true;
    node->life++;
    node->frozen_until = 0;
    node->ticket_count = 0;
    node->next_ticket = 0;
    node->link = false;
    node->copy_until = 0;
    node->lease_until = 0;
    sync_when_reset(&node->when);
    sync_who_init(&node->who, &settings, &effects, node, node->has_file ? &node->durable : NULL, id, sim.now);
    if (!node->replica && node->who.state.group[0]) sync_who_depose(&node->who, sim.now);
}

static void node_crash(struct node *node, bool disk) {
    note((int)node->index, disk ? "crashes" : "crashes and loses its files");
    node->up = false;
    link_down(node);
    for (unsigned i = 0; i < sim.count; i++) {
        struct node *other = &sim.nodes[i];
        if (other->link && other->follows == (int)node->index) link_down(other);
        node->peers[i].up = false;
    }
    node->len = disk && below(3) ? (int64_t)below((uint64_t)node->len + 1) : 0;
    if (!disk) node->has_file = false;
}

static void disk_step(struct node *node) {
    unsigned done = 0;
    while (done < node->ticket_count && node->tickets[done].due <= sim.now) done++;
    if (!done) return;
    node->durable = node->tickets[done - 1].state;
    node->has_file = true;
    uint64_t ticket = node->tickets[done - 1].ticket;
    memmove(node->tickets, node->tickets + done, (node->ticket_count - done) * sizeof *node->tickets);
    node->ticket_count -= done;
    if (runs(node)) sync_who_saved(&node->who, ticket, sim.now);
}

static bool is_prefix(const struct node *a, const struct node *b) {
    if (a->len > b->len) return false;
    return memcmp(a->log, b->log, (size_t)a->len * sizeof *a->log) == 0;
}

static void try_link(struct node *node) {
    struct sync_hello hello;
    struct sync_welcome welcome;
    if (node->link || node->follows < 0 || sim.now < node->retry) return;
    node->retry = sim.now + 200;
    struct node *primary = &sim.nodes[node->follows];
    if (primary == node || !runs(primary) || !reachable((int)node->index, node->follows)) return;
    sync_who_hello(&node->who, &hello);
    if (sync_who_hello_from(&primary->who, &hello, sim.now, &welcome)) return;
    if (sync_who_welcomed(&node->who, &welcome, sim.now)) return;
    node->link = true;
    node->link_of = ++sim.links;
    node->lag = (int64_t)below(3) ? 0 : (int64_t)below(40);
    if (!is_prefix(node, primary)) {
        note((int)node->index, "copies from %d", node->follows);
        sync_who_data_lost(&node->who);
        node->len = 0;
        node->copy_until = sim.now + 1 + (int64_t)below(500);
        node->copy_len = primary->len;
        memcpy(node->copy, primary->log, (size_t)primary->len * sizeof *node->copy);
    }
    if (!welcome.leads) return;
    primary->peers[node->index].number = node->link_of;
    primary->peers[node->index].lost_at = 0;
    if (node->copy_until) return;
    primary->peers[node->index].up = true;
    sync_who_peer_linked(&primary->who, &hello, "node", (int)node->index + 1, sim.now);
}

static void replicate(struct node *node) {
    if (!node->link) return;
    struct node *primary = &sim.nodes[node->follows];
    if (!runs(primary) || !reachable((int)node->index, node->follows)) return;
    if (node->copy_until) {
        if (sim.now < node->copy_until) return;
        node->copy_until = 0;
        node->len = node->copy_len;
        memcpy(node->log, node->copy, (size_t)node->len * sizeof *node->copy);
        if (node->who.link_leads && primary->who.status == SYNC_LEADING) {
            struct sync_hello hello;
            sync_who_hello(&node->who, &hello);
            primary->peers[node->index].up = true;
            sync_who_peer_linked(&primary->who, &hello, "node", (int)node->index + 1, sim.now);
        }
        sync_who_advanced(&node->who);
    }
    if (below(4) == 0) return;
    int64_t to = primary->len - (below(3) ? 0 : node->lag);
    bool moved = node->len < to;
    while (node->len < to && node->link) {
        struct entry entry = primary->log[node->len];
        append(node, entry);
        if (!entry.value) sync_who_got_set(&node->who, &sim.sets[entry.set], sim.now);
    }
    if (!node->link) return;
    sync_who_advanced(&node->who);
    if (!moved || !node->who.link_leads) return;
    sync_who_acknowledges(&node->who, sim.now);
    struct message *ack = message(ACK, (int)node->index, node->follows);
    ack->offset = node->len;
    ack->link = node->link_of;
}

static void deliver(struct message *msg) {
    struct node *to = &sim.nodes[msg->to], *from = &sim.nodes[msg->from];
    bool current = to->peers[msg->from].up && to->peers[msg->from].number == msg->link;
    switch (msg->kind) {
    case ACK:
        if (current) sync_who_peer_acked(&to->who, from->who.state.id, msg->offset);
        break;
    case STORED:
        if (current) sync_who_peer_stored(&to->who, from->who.state.id, &msg->term, msg->version);
        break;
    case ASK: {
        struct message *reply = message(VOTE, msg->to, msg->from);
        sync_who_asked(&to->who, &msg->ask, sim.now, &reply->vote);
        break;
    }
    case VOTE: sync_who_voted(&to->who, &msg->vote, sim.now); break;
    }
}

static void messages_step(void) {
    for (unsigned i = 0; i < sim.message_count;) {
        struct message msg = sim.messages[i];
        struct node *to = &sim.nodes[msg.to];
        if (msg.due > sim.now || (to->up && !runs(to))) {
            i++;
            continue;
        }
        memmove(sim.messages + i, sim.messages + i + 1, (sim.message_count - i - 1) * sizeof msg);
        sim.message_count--;
        if (!to->up || to->life != msg.life_to || !reachable(msg.from, msg.to)) continue;
        deliver(&msg);
        i = 0;
    }
}

static void clients_step(struct node *node) {
    if (node->who.status != SYNC_LEADING) return;
    if (sim.now < node->lease_until && sync_who_writable(&node->who) &&
        below(3) == 0) { /* a read, also before the messages that wait */
        sim.reads++;
        check_has_all(node, "a primary answers a stale read");
    }
    bool heartbeat = sim.now % 200 < STEP_MS;
    if (!heartbeat && (!sync_who_writable(&node->who) || below(3))) return;
    if (sim.next_value == ENTRIES_MAX - 1) return;
    append(node, (struct entry){.value = sim.next_value++});
    sync_when_mark(&node->when, (uint64_t)node->len, node->len, (uint64_t)sim.now);
}

static void step(void) {
    sim.now += STEP_MS;
    for (unsigned i = 0; i < sim.count; i++)
        if (runs(&sim.nodes[i])) clients_step(&sim.nodes[i]);
    for (unsigned i = 0; i < sim.count; i++)
        if (sim.nodes[i].up) disk_step(&sim.nodes[i]);
    messages_step();
    for (unsigned i = 0; i < sim.count; i++) {
        struct node *node = &sim.nodes[i];
        if (!runs(node)) continue;
        for (unsigned j = 0; j < sim.count; j++) {
            if (!node->peers[j].up || !node->peers[j].lost_at || sim.now < node->peers[j].lost_at) continue;
            node->peers[j].up = false;
            node->peers[j].lost_at = 0;
            sync_who_peer_unlinked(&node->who, sim.nodes[j].who.state.id, sim.now);
        }
        if (node->replica) try_link(node);
        replicate(node);
        sync_who_tick(&node->who, sim.now);
    }
}

static void run(int64_t ms) {
    for (int64_t end = sim.now + ms; sim.now < end;) step();
}

/* --- The outsider --- */

static void follow(struct node *node, int primary) {
    if (!node->up || (int)node->index == primary) return;
    note((int)node->index, "is told to follow %d", primary);
    link_down(node);
    sync_who_follow(&node->who, sim.now);
    node->replica = true;
    node->follows = primary;
    node->retry = sim.now;
}

static void promote(struct node *node) {
    if (!node->up) return;
    note((int)node->index, "is told to lead");
    link_down(node);
    if (sync_who_stand(&node->who, sim.now)) note((int)node->index, "cannot");
}

static int newest_leader(void) {
    int best = -1;
    for (unsigned i = 0; i < sim.count; i++) {
        const struct node *node = &sim.nodes[i];
        if (!node->up || node->who.status != SYNC_LEADING) continue;
        if (best < 0 || sync_term_compare(&node->who.standing, &sim.nodes[best].who.standing) > 0) best = (int)i;
    }
    return best;
}

/* After too many crashes at a time nobody can lead, and nothing more would happen. One seed in ten allows them. */
static bool may_crash(const struct node *node) {
    if (sim.seed % 10 == 0 || !node->who.sure) return true;
    unsigned sure = 0;
    for (unsigned i = 0; i < sim.count; i++) sure += sim.nodes[i].up && sim.nodes[i].who.sure;
    return sure > sim.count - sim.replicas;
}

static void fault(void) {
    struct node *node = &sim.nodes[below(sim.count)];
    switch (below(10)) {
    case 0:
    case 1:
        if (node->up && may_crash(node)) node_crash(node, below(8) != 0);
        break;
    case 2:
    case 3:
    case 4:
        if (!node->up) node_start(node);
        break;
    case 5: node->frozen_until = sim.now + (int64_t)below(4000); break;
    case 6: {
        unsigned a = (unsigned)below(sim.count), b = (unsigned)below(sim.count);
        if (a != b) sim.cut[a][b] = sim.cut[b][a] = !sim.cut[a][b];
        if (!reachable((int)a, (int)b)) break;
        break;
    }
    case 7: promote(node); break;
    default: {
        int leader = newest_leader();
        if (leader >= 0)
            follow(node, leader);
        else if (below(2))
            promote(node);
    }
    }
    /* Connections over a cut end after a while. */
    for (unsigned i = 0; i < sim.count; i++)
        if (sim.nodes[i].link && !reachable((int)i, sim.nodes[i].follows) && below(3)) link_down(&sim.nodes[i]);
}

static void sim_begin(uint64_t seed, unsigned count, unsigned replicas) {
    static struct entry *logs[2 * NODES_MAX];
    struct message *messages = sim.messages ? sim.messages : mem_alloc(EVENTS_MAX * sizeof *sim.messages);
    struct sync_set *sets = sim.sets ? sim.sets : mem_alloc(8192 * sizeof *sim.sets);
    bool *acknowledged = sim.acknowledged ? sim.acknowledged : mem_alloc(ENTRIES_MAX);
    bool verbose = sim.verbose;
    for (unsigned i = 0; i < NODES_MAX; i++) sync_when_reset(&sim.nodes[i].when);
    memset(&sim, 0, sizeof sim);
    sim.messages = messages;
    sim.sets = sets;
    sim.acknowledged = acknowledged;
    memset(acknowledged, 0, ENTRIES_MAX);
    sim.verbose = verbose;
    sim.seed = seed;
    sim.random = seed * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < 10; i++) below(2);
    sim.count = count;
    sim.replicas = replicas;
    sim.next_value = 1;
    sim.now = 1000;
    for (unsigned i = 0; i < count; i++) {
        struct node *node = &sim.nodes[i];
        for (int l = 0; l < 2; l++)
            if (!logs[2 * i + l]) logs[2 * i + l] = mem_alloc(ENTRIES_MAX * sizeof **logs);
        node->log = logs[2 * i];
        node->copy = logs[2 * i + 1];
        node->index = i;
        node->replica = i != 0;
        node->follows = i ? 0 : -1;
        node_start(node);
    }
    sync_who_found(&sim.nodes[0].who, "0123456789abcdef0123456789abcdef01234567", sim.now);
    run(3000);
}

/* --- Tests --- */

static void a_group_forms_and_acknowledges(void **state) {
    sim_begin(1, 3, 1);
    assert_int_equal(sim.nodes[0].who.state.set.now.count, 3);
    assert_int_equal(sim.nodes[0].who.state.set.before.count, 0);
    assert_true(sim.acknowledged_count > 50);
    assert_int_equal(sync_who_in_sync(&sim.nodes[0].who), 2);
    assert_true(sync_who_may_lead(&sim.nodes[1].who));
}

static void a_promoted_replica_has_all_acknowledged_writes(void **state) {
    sim_begin(2, 3, 1);
    uint32_t before = sim.acknowledged_count;
    node_crash(&sim.nodes[0], true);
    promote(&sim.nodes[1]);
    run(3000);
    assert_int_equal(sim.nodes[1].who.status, SYNC_LEADING);
    assert_int_equal(sim.acknowledged_count, before); /* alone it acknowledges nothing */
    follow(&sim.nodes[2], 1);
    run(1000);
    assert_true(sim.acknowledged_count > before);
}

static void one_server_of_three_is_not_enough(void **state) {
    sim_begin(3, 3, 1);
    node_crash(&sim.nodes[0], true);
    node_crash(&sim.nodes[2], true);
    promote(&sim.nodes[1]);
    run(5000);
    assert_int_equal(sim.nodes[1].who.status, SYNC_STANDING);
    node_start(&sim.nodes[2]); /* it has its promises, but perhaps not its data: its vote does not count */
    run(3000);
    assert_int_equal(sim.nodes[1].who.status, SYNC_STANDING);
    promote(&sim.nodes[1]); /* a second time changes nothing */
    run(3000);
    assert_int_equal(sim.nodes[1].who.status, SYNC_STANDING);
    sim.loss_accepted = true;
    sync_who_force(&sim.nodes[1].who, "", sim.now);
    assert_int_equal(sim.nodes[1].who.status, SYNC_LEADING);
    assert_false(sync_who_writable(&sim.nodes[1].who));
    follow(&sim.nodes[2], 1);
    run(4000);
    assert_true(sync_who_writable(&sim.nodes[1].who));
}

static void a_restarted_primary_takes_its_data_from_its_replicas(void **state) {
    sim_begin(4, 3, 1);
    node_crash(&sim.nodes[0], true);
    sim.nodes[0].len = 0;
    node_start(&sim.nodes[0]);
    run(6000);
    assert_int_equal(sim.nodes[0].who.status, SYNC_LEADING);
    check_has_all(&sim.nodes[0], "it leads without its data");
}

static void a_server_without_a_group_or_a_set_does_not_lead(void **state) {
    sim_begin(5, 3, 1);
    struct node *node = &sim.nodes[2];
    node_crash(node, false);
    node->follows = -1;
    node_start(node);
    assert_non_null(sync_who_stand(&node->who, sim.now));
    run(3000);
    assert_int_equal(node->who.status, SYNC_DEPOSED);
    assert_false(sync_who_may_lead(&node->who));
}

static void a_server_that_is_not_eligible_does_not_lead(void **state) {
    sim_begin(6, 3, 1);
    sim.nodes[1].who.settings.eligible = false;
    node_crash(&sim.nodes[0], true);
    promote(&sim.nodes[1]);
    run(3000);
    assert_int_equal(sim.nodes[1].who.status, SYNC_DEPOSED);
}

static void a_dead_member_is_replaced_by_a_new_server(void **state) {
    sim_begin(7, 4, 1);
    assert_int_equal(sim.nodes[0].who.state.set.now.count, 4);
    char id[SYNC_ID_LEN + 1];
    memcpy(id, sim.nodes[3].who.state.id, sizeof id);
    node_crash(&sim.nodes[3], true);
    run(2 * ABSENT);
    assert_int_equal(sim.nodes[0].who.state.set.now.count, 3);
    assert_null(sync_members_find(&sim.nodes[0].who.state.set.now, id));
    node_crash(&sim.nodes[2], true);
    run(2 * ABSENT); /* with three members nobody leaves */
    assert_int_equal(sim.nodes[0].who.state.set.now.count, 3);
}

static void a_new_server_takes_the_place_of_an_absent_member_at_once(void **state) {
    sim_begin(14, 3, 1);
    const struct sync_members *members = &sim.nodes[0].who.state.set.now;
    char id[SYNC_ID_LEN + 1];
    memcpy(id, sim.nodes[2].who.state.id, sizeof id);
    node_crash(&sim.nodes[2], false);
    while (sim.nodes[0].peers[2].up) run(STEP_MS);
    node_start(&sim.nodes[2]);
    follow(&sim.nodes[2], 0);
    for (int64_t end = sim.now + ABSENT - 500; sim.now < end && sync_members_find(members, id);) {
        run(STEP_MS);
        assert_int_equal(members->count, 3); /* with four, one of them dead, no other server could fail */
    }
    assert_null(sync_members_find(members, id));
    assert_non_null(sync_members_find(members, sim.nodes[2].who.state.id));
    run(1000);
    assert_int_equal(sim.nodes[0].who.state.set.before.count, 0);
    node_crash(&sim.nodes[0], true);
    promote(&sim.nodes[1]);
    run(3000);
    assert_int_equal(sim.nodes[1].who.status, SYNC_LEADING);
}

static void a_promise_is_on_disk_and_the_lease_is_over_before_it_is_said(void **state) {
    sim_begin(9, 3, 1);
    struct node *voter = &sim.nodes[2];
    struct sync_vote vote;
    struct sync_ask ask = {.kind = SYNC_STAND, .term = {.number = 1000}};
    memcpy(ask.group, voter->who.state.group, sizeof ask.group);
    memcpy(ask.term.id, sim.nodes[1].who.state.id, sizeof ask.term.id);
    int64_t lease = voter->who.may_promise_ms;
    assert_true(lease > sim.now); /* it has just acknowledged */
    sync_who_asked(&voter->who, &ask, lease, &vote);
    assert_int_equal(vote.answer, SYNC_WAIT); /* not on disk */
    assert_false(voter->link);
    sync_who_saved(&voter->who, voter->next_ticket, sim.now);
    sync_who_asked(&voter->who, &ask, lease - 1, &vote);
    assert_int_equal(vote.answer, SYNC_WAIT);
    sync_who_asked(&voter->who, &ask, lease, &vote);
    assert_int_equal(vote.answer, SYNC_PROMISED);
    /* The same term is not promised to another candidate, and no lower one is followed. */
    memcpy(ask.term.id, sim.nodes[0].who.state.id, sizeof ask.term.id);
    bool lower = sync_term_compare(&ask.term, &voter->who.state.promised) < 0;
    if (lower) sync_who_asked(&voter->who, &ask, lease, &vote);
    assert_true(!lower || vote.answer == SYNC_REFUSED);
    struct sync_welcome welcome = {.leads = true, .term = sim.nodes[0].who.standing};
    memcpy(welcome.group, ask.group, sizeof welcome.group);
    assert_non_null(sync_who_welcomed(&voter->who, &welcome, sim.now));
    assert_false(voter->who.linked);
}

static void a_change_of_the_set_needs_the_voters_of_both_sets(void **state) {
    sim_begin(10, 3, 1);
    node_crash(&sim.nodes[0], true);
    for (int i = 1; i < 3; i++) {
        struct sync_set *set = &sim.nodes[i].who.state.set;
        set->before = (struct sync_members){.replicas = 1, .count = 3};
        for (int j = 0; j < 3; j++) fresh_id(&sim.nodes[0], set->before.list[j].id);
    }
    promote(&sim.nodes[1]);
    run(5000);
    assert_int_equal(sim.nodes[1].who.status, SYNC_STANDING);
}

static void a_replica_counts_when_it_has_the_set_and_the_data(void **state) {
    sim_begin(11, 3, 1);
    struct sync_who *primary = &sim.nodes[0].who;
    for (int i = 1; i < 3; i++) { /* they have an older set */
        sync_who_peer_stored(primary, sim.nodes[i].who.state.id, &primary->standing, primary->state.set.version - 1);
        sync_who_peer_acked(primary, sim.nodes[i].who.state.id, sim.nodes[0].len + 100);
    }
    int64_t before = primary->committed;
    sync_who_peer_acked(primary, sim.nodes[1].who.state.id, sim.nodes[0].len + 200);
    assert_int_equal(primary->committed, before);
    sync_who_peer_stored(primary, sim.nodes[1].who.state.id, &primary->standing, primary->state.set.version);
    assert_true(primary->committed > before);
}

static void a_server_that_is_promoted_again_and_again_leads(void **state) {
    sim_begin(13, 3, 1);
    node_crash(&sim.nodes[0], true);
    node_start(&sim.nodes[0]); /* it has to copy its data, too */
    for (int i = 0; i < 300 && sim.nodes[0].who.status != SYNC_LEADING; i++) {
        sync_who_stand(&sim.nodes[0].who, sim.now);
        run(20);
    }
    assert_int_equal(sim.nodes[0].who.status, SYNC_LEADING);
}

static void two_promoted_servers_do_not_depose_each_other_for_ever(void **state) {
    sim_begin(12, 3, 1);
    promote(&sim.nodes[1]);
    promote(&sim.nodes[2]);
    run(15000);
    int leader = newest_leader();
    assert_true(leader == 1 || leader == 2);
    follow(&sim.nodes[0], leader);
    run(3000);
    unsigned leads = sim.leads;
    run(20000);
    assert_int_equal(sim.leads, leads);
    assert_int_equal(newest_leader(), leader);
}

static uint64_t first_seed = 1, last_seed = 150;
static unsigned total_leads, total_reads, recovered, total_acknowledged;

static void run_seed(uint64_t seed) {
    unsigned count = 2 + (unsigned)(seed % 4), replicas = count > 3 && seed % 3 == 0 ? 2 : 1;
    sim_begin(seed, count, replicas);
    for (int i = 0; i < 60; i++) {
        if (below(3)) fault();
        run((int64_t)below(below(4) ? 300 : 3000));
        /* Sentinel makes the others follow. */
        int leader = newest_leader();
        if (leader >= 0 && below(2)) {
            struct node *node = &sim.nodes[below(sim.count)];
            if (node->who.status != SYNC_LEADING && node->follows != leader) follow(node, leader);
        }
    }
    note(-1, "no more faults");
    memset(sim.cut, 0, sizeof sim.cut);
    for (unsigned i = 0; i < count; i++) {
        sim.nodes[i].frozen_until = 0;
        if (!sim.nodes[i].up) node_start(&sim.nodes[i]);
    }
    uint32_t before = sim.acknowledged_count;
    for (int i = 0; i < 12 && sim.acknowledged_count == before; i++) {
        int leader = newest_leader();
        if (leader < 0) {
            promote(&sim.nodes[below(count)]);
            run(3000);
            leader = newest_leader();
        }
        for (unsigned n = 0; n < count && leader >= 0; n++)
            if (sim.nodes[n].follows != leader) follow(&sim.nodes[n], leader);
        run(3000);
    }
    total_leads += sim.leads;
    total_reads += sim.reads;
    total_acknowledged += sim.acknowledged_count;
    recovered += sim.acknowledged_count > before;
}

static void seeds_of_faults_lose_no_acknowledged_write(void **state) {
    for (uint64_t seed = first_seed; seed <= last_seed; seed++) run_seed(seed);
    unsigned seeds = (unsigned)(last_seed - first_seed + 1);
    printf("%u seeds: %u terms, %u acknowledged writes, %u reads checked, %u groups recovered by themselves\n", seeds,
           total_leads, total_acknowledged, total_reads, recovered);
    if (seeds >= 100) assert_true(recovered * 2 > seeds && total_leads > 2 * seeds && total_reads > 100 * seeds);
}

static void damaged_texts_are_refused(void **state) {
    struct memory_output text;
    struct sync_vote vote;
    sim_begin(8, 3, 1);
    struct sync_ask ask = {.kind = SYNC_STAND, .term = {.number = 1000}};
    memcpy(ask.group, sim.nodes[0].who.state.group, sizeof ask.group);
    memcpy(ask.term.id, sim.nodes[1].who.state.id, sizeof ask.term.id);
    sync_who_asked(&sim.nodes[2].who, &ask, sim.now, &vote);
    memory_output_init(&text);
    sync_vote_print(&text.out, &vote);
    struct slice bytes = memory_output_slice(&text);
    struct sync_vote again;
    assert_true(sync_vote_parse(bytes, &again));
    assert_int_equal(again.set.now.count, 3);
    for (size_t len = 0; len < bytes.len - 2; len++)
        assert_false(sync_vote_parse((struct slice){bytes.data, len}, &again) && again.set.now.count != 3);
    char *copy = mem_strndup(bytes.data, bytes.len);
    for (size_t i = 0; i < bytes.len; i++) { /* no change may crash */
        for (int c = 0; c < 256; c += 5) {
            copy[i] = (char)c;
            sync_vote_parse((struct slice){copy, bytes.len}, &again);
        }
        copy[i] = bytes.data[i];
    }
    mem_free(copy);
    memory_output_clear(&text);
    sync_state_print(&text.out, &sim.nodes[0].who.state);
    struct sync_state loaded;
    bytes = memory_output_slice(&text);
    assert_true(sync_state_parse(bytes, &loaded));
    assert_int_equal(sync_set_compare(&loaded.set, &sim.nodes[0].who.state.set), 0);
    for (size_t len = 0; len < bytes.len; len++)
        assert_false(sync_state_parse((struct slice){bytes.data, len}, &loaded));
    memory_output_free(&text);
    struct sync_term term;
    assert_false(sync_term_parse_words(SLICE("18446744073709551615"), slice_of(ask.term.id), &term));
}

int main(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        unsigned long long from = 0, to = 0;
        int read = sscanf(argv[i + 1], "%llu-%llu", &from, &to);
        first_seed = from;
        last_seed = read == 2 ? to : from;
        sim.verbose = strcmp(argv[i], "--seed") == 0;
    }
    const struct CMUnitTest random_only[] = {cmocka_unit_test(seeds_of_faults_lose_no_acknowledged_write)};
    if (argc > 1) return cmocka_run_group_tests(random_only, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_forms_and_acknowledges),
        cmocka_unit_test(a_promoted_replica_has_all_acknowledged_writes),
        cmocka_unit_test(one_server_of_three_is_not_enough),
        cmocka_unit_test(a_restarted_primary_takes_its_data_from_its_replicas),
        cmocka_unit_test(a_server_without_a_group_or_a_set_does_not_lead),
        cmocka_unit_test(a_server_that_is_not_eligible_does_not_lead),
        cmocka_unit_test(a_dead_member_is_replaced_by_a_new_server),
        cmocka_unit_test(a_new_server_takes_the_place_of_an_absent_member_at_once),
        cmocka_unit_test(a_promise_is_on_disk_and_the_lease_is_over_before_it_is_said),
        cmocka_unit_test(a_change_of_the_set_needs_the_voters_of_both_sets),
        cmocka_unit_test(a_replica_counts_when_it_has_the_set_and_the_data),
        cmocka_unit_test(a_server_that_is_promoted_again_and_again_leads),
        cmocka_unit_test(two_promoted_servers_do_not_depose_each_other_for_ever),
        cmocka_unit_test(damaged_texts_are_refused),
        cmocka_unit_test(seeds_of_faults_lose_no_acknowledged_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
