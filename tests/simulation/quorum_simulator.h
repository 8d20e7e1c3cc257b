/* quorum_simulator.h: servers with synchronous replication (src/repl/quorum/protocol/machine.h) in virtual time, with
 * faults.
 *
 * Each server has a log of writes and sets, a disk that forgets what is not durable yet, a link to a primary, and
 * clients. Servers crash and lose a part of their log, start without their files, freeze, and are cut off from each
 * other; messages take time. One seed determines everything. Servers of several shards may share a world.
 *
 * A server works in turns: it takes requests of its clients (quorum_clients.h), reads its sockets, and at the end of
 * the turn sends what it has written to its stream. It may freeze between any two of these steps, while
 * acknowledgements wait in its sockets, and bytes that it has sent arrive. Cuts may be one-way, and links slow. What
 * one server sends to another may be late for seconds while the other direction works: it then arrives in order, the
 * end of the connection last. In a manual failover the primary's stream stops growing until a replica that has all of
 * it stands.
 *
 * Checked: a primary that begins to lead has all writes of its shard that were acknowledged before; no two primaries
 * lead in one term; and what the clients see. A violation ends the program. */
#ifndef TESTS_SIMULATION_QUORUM_SIMULATOR_H
#define TESTS_SIMULATION_QUORUM_SIMULATOR_H
#include "lib/system/memory.h"
#include "repl/quorum/protocol/lease.h"
#include "repl/quorum/protocol/machine.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODES_MAX = 9,
    ENTRIES_MAX = 60000,
    EVENTS_MAX = 4096,
    TICKETS_MAX = 512,
    STEP_MS = 5,
    ABSENT = 4000,
    NO_SHARD = 255,
    SHARDS_MAX = 4,
    SHARD_KEYS = 4,
    MOVING_KEYS = 512,
    KEYS_MAX = SHARDS_MAX * SHARD_KEYS + MOVING_KEYS,
    HELD_MAX = 64,
    BLOCKED_MAX = 16
};

struct entry {
    uint32_t value; /* of a write; 0: a set, or a command */
    uint32_t set;
    uint32_t command; /* of migration_simulator.h; 0: none */
    uint32_t commit;  /* of COMMIT: the offset + 1; 0: none */
    uint16_t key;     /* of a write */
    bool gone;        /* the key is deleted */
};
enum op_kind { OP_WRITE, OP_READ, OP_BLOCKED, OP_MESSAGE, OP_REPLICA, OP_ASKED, OP_MIGRATE };
struct op { /* a request, or its reply */
    enum op_kind kind;
    unsigned key;
    bool writes;                 /* when it is asked elsewhere */
    uint32_t value, floor, from; /* the newest value that was seen before; a blocking read waits for a newer one */
    int64_t deadline;
    uint64_t sequence;
};
struct node {
    unsigned index;
    bool up;
    bool asynchronous; /* without synchronous replication: asynchronous_shards.h, which does not use `machine` */
    unsigned shard;    /* … and its shard */
    int64_t frozen_until;
    struct quorum_machine machine;
    struct quorum_lease lease;
    uint64_t issued;   /* by the reply barrier */
    unsigned phase;    /* of its turn */
    bool has_woken;    /* from a freeze, in this turn */
    int64_t freeze_ms; /* in this turn, before this phase */
    unsigned freeze_phase;
    int64_t final_until; /* its stream must not grow: CLUSTER FAILOVER */
    int64_t busy_until;  /* it runs a script, and answers no PSYNC */
    struct op held[HELD_MAX], blocked[BLOCKED_MAX];
    unsigned held_count, blocked_count;
    unsigned migrating, migrating_to, migrating_life; /* the key; 0: none */
    uint32_t migrating_value;
    int64_t migrating_at, migrating_until;
    struct quorum_term migrating_term;
    /* The disk. */
    bool has_file;
    struct quorum_state durable;
    struct {
        struct quorum_state state;
        uint64_t ticket;
        int64_t due;
    } tickets[TICKETS_MAX];
    unsigned ticket_count;
    uint64_t next_ticket;
    /* The data. */
    struct entry *log;
    int64_t len, sent;
    int64_t latest[KEYS_MAX]; /* the index of the last entry of each key; -1: there is none */
    /* The link. */
    bool replica;
    int follows;                                   /* index; -1: none */
    bool link;                                     /* up, as this end sees it */
    unsigned link_of;                              /* number of the link: what arrives from an older one is dropped */
    int64_t retry, psync_at, copy_until, copy_len; /* psync_at: the primary's answer to PSYNC arrives */
    struct entry *copy;
    int64_t base; /* entries that a file has as a whole: they are lost together */
    int64_t lag;  /* entries that it is behind */
    struct {
        bool up;
        unsigned number;
        char id[QUORUM_ID_LEN + 1]; /* that the peer had when it came online */
        int64_t lost_at;            /* when this end notices that the link is down */
    } peers[NODES_MAX];
    uint32_t shown[KEYS_MAX]; /* as a replica */
    unsigned life;
    uint64_t leads_term;
};
enum kind { ACK, STORED, ASK, VOTE };
struct message {
    enum kind kind;
    int from, to;
    unsigned life_to, link;
    int64_t due, offset;
    struct quorum_term term;
    uint64_t version;
    struct quorum_vote_request ask;
    struct quorum_vote *vote; /* of VOTE: allocated, because it is large */
};
static struct world {
    unsigned count, replicas;
    int64_t now;
    uint64_t random, seed;
    bool verbose;
    struct node nodes[NODES_MAX];
    bool cut[NODES_MAX][NODES_MAX];
    int64_t late_until[NODES_MAX][NODES_MAX]; /* what the first sends to the second waits */
    struct {
        unsigned primary, replica; /* of a manual failover */
        int64_t until;             /* 0: there is none */
    } manual;
    struct message *messages;
    unsigned message_count;
    struct quorum_set *sets;
    unsigned set_count;
    uint32_t next_value;
    bool *acknowledged; /* of each value */
    uint32_t acknowledged_count;
    uint32_t acknowledged_list[ENTRIES_MAX];
    unsigned links, leads, reads, replica_reads, moves;
    uint32_t floors[KEYS_MAX]; /* the newest value that anybody has seen */
    unsigned trial;            /* enum trial */
    unsigned group, slow;      /* servers of a group; one message in `slow` is slow, 0: few are */
    bool moves_on;
    struct quorum_term terms[4096];
    unsigned term_count;
    bool loss_accepted;
    uint8_t shard_of[ENTRIES_MAX]; /* of each value */
    /* Of a cluster; NULL: every server that leads serves, and a server that is elected leads. */
    bool (*serves)(const struct node *node);
    void (*elected)(struct node *node);
    void (*command_committed)(struct node *node, uint32_t command);
    void (*began)(struct node *node);                           /* to lead */
    void (*copied)(struct node *node, const struct node *from); /* the copy of this moment will be loaded */
    void (*loads)(struct node *node);                           /* the copy */
    void (*asynchronous_turn)(struct node *node);
} world;

static uint64_t below(uint64_t bound) {
    world.random ^= world.random << 13;
    world.random ^= world.random >> 7;
    world.random ^= world.random << 17;
    return world.random % bound;
}

static void note(int node, const char *format, ...) {
    va_list args;
    if (!world.verbose) return;
    printf("%8lld %2d ", (long long)world.now, node);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static void violated(const char *what, int node) {
    printf("seed %llu: %s (node %d at %lld ms)\n", (unsigned long long)world.seed, what, node, (long long)world.now);
    fflush(stdout);
    exit(1);
}

static bool reachable(int a, int b) {
    return !world.cut[a][b] && world.now >= world.late_until[a][b];
}
static bool reaches_both(int a, int b) {
    return reachable(a, b) && reachable(b, a);
}
static inline bool is_cut_off(unsigned a, unsigned b) {
    return world.cut[a][b] || world.cut[b][a];
}
static bool runs(const struct node *node) {
    return node->up && world.now >= node->frozen_until;
}
static uint64_t world_us(void) {
    return (uint64_t)world.now * 1000;
}

/* The shard that a server's data belong to: that of its group, whatever the cluster says. */
static unsigned shard_of(const struct node *node) {
    const char *group = node->machine.state.group;
    if (node->asynchronous) return node->shard;
    return strspn(group, "0") >= QUORUM_ID_LEN - 1 ? (unsigned)atoi(group) : NO_SHARD;
}

/* --- Checks --- */

static void check_has_all(const struct node *node, const char *what) {
    static bool has[ENTRIES_MAX];
    unsigned shard = shard_of(node);
    memset(has, 0, world.next_value * sizeof *has);
    for (int64_t i = 0; i < node->len; i++)
        if (node->log[i].value) has[node->log[i].value] = true;
    for (uint32_t i = 0; i < world.acknowledged_count; i++)
        if (world.shard_of[world.acknowledged_list[i]] == shard && !has[world.acknowledged_list[i]])
            violated(what, (int)node->index);
}

/* --- Effects --- */

static struct message *message(enum kind kind, int from, int to) {
    if (world.message_count == EVENTS_MAX) violated("too many messages", from);
    struct message *new = &world.messages[world.message_count++];
    memset(new, 0, sizeof *new);
    new->kind = kind;
    new->from = from;
    new->to = to;
    new->life_to = world.nodes[to].life;
    new->due = world.now + 1 + (int64_t)below(below(20) ? 5 : 400);
    if (world.slow && below(world.slow) == 0) new->due += (int64_t)below(3000);
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
    if (node->ticket_count == TICKETS_MAX) violated("too many saves", (int)node->index);
    int64_t due = world.now + 1 + (int64_t)below(below(10) ? 10 : 600);
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
    if (to < 0 || to >= (int)world.count || below(10) == 0) return;
    message(ASK, (int)node->index, to)->ask = *ask;
}
static void link_down(struct node *node) {
    if (!node->link) return;
    node->link = false;
    node->psync_at = node->copy_until = 0;
    quorum_machine_link_lost(&node->machine);
    struct node *primary = &world.nodes[node->follows];
    if (!primary->peers[node->index].up) return;
    int64_t lost_at = world.now + 1 + (int64_t)below(below(3) ? 20 : 3000);
    for (unsigned i = 0; i < world.message_count; i++) /* behind what it has sent before */
        if (world.messages[i].link == node->link_of && world.messages[i].due > lost_at) lost_at = world.messages[i].due;
    primary->peers[node->index].lost_at = lost_at;
}
static void does_unfollow(void *context) {
    link_down(context);
}
static void does_copy_from(void *context, const struct quorum_member *member) {
    struct node *node = context;
    link_down(node);
    node->replica = true;
    node->follows = member->port - 1;
    node->retry = world.now;
}
static void append(struct node *node, struct entry entry) {
    if (node->len == ENTRIES_MAX) violated("the log is full", (int)node->index);
    if (entry.value) node->latest[entry.key] = node->len;
    node->log[node->len++] = entry;
}
/* After the log was replaced, or has become shorter. */
static void find_latest(struct node *node) {
    for (unsigned key = 0; key < KEYS_MAX; key++) node->latest[key] = -1;
    for (int64_t i = 0; i < node->len; i++)
        if (node->log[i].value) node->latest[node->log[i].key] = i;
}
static void write_commit(struct node *node) {
    append(node, (struct entry){.commit = (uint32_t)quorum_lease_announce(&node->lease) + 1});
}
/* Nothing of its data is known to be committed. */
static void forget_commits(struct node *node) {
    quorum_lease_reset(&node->lease, ++node->issued, node->len, world_us());
}
static void release_replies(struct node *node);
static void drop_clients(struct node *node);
static void note_term(const struct node *node) {
    if (world.serves && shard_of(node) == NO_SHARD) return; /* a server in no shard may found a group again */
    for (unsigned i = 0; i < world.term_count; i++)
        if (quorum_term_compare(&world.terms[i], &node->machine.term) == 0)
            violated("a term has begun twice", (int)node->index);
    if (world.term_count < 4096) world.terms[world.term_count++] = node->machine.term;
}
static void does_lead(void *context) {
    struct node *node = context;
    link_down(node);
    node->replica = false;
    node->follows = -1;
    world.leads++;
    note((int)node->index, "leads term %llu with %lld entries", (unsigned long long)node->machine.term.number,
         (long long)node->len);
    note_term(node);
    if (!world.loss_accepted) check_has_all(node, "a new primary lacks an acknowledged write");
    for (unsigned i = 0; i < NODES_MAX; i++) node->peers[i].up = false;
    forget_commits(node);
    if (world.began) world.began(node);
}
static void does_stand_down(void *context) {
    struct node *node = context;
    note((int)node->index, "stands down");
    drop_clients(node);
    forget_commits(node);
    for (unsigned i = 0; i < world.count; i++) {
        struct node *other = &world.nodes[i];
        if (other->link && other->follows == (int)node->index) link_down(other);
        node->peers[i].up = false;
    }
}
static void does_send_set(void *context, const struct quorum_set *set) {
    if (world.set_count == 8192) violated("too many sets", -1);
    world.sets[world.set_count] = *set;
    append(context, (struct entry){.set = world.set_count++});
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
    if (quorum_lease_commit(&node->lease, offset)) release_replies(node);
}
static void does_elected(void *context) {
    world.elected(context);
}
static void does_log(void *context, const char *text) {
    note((int)((struct node *)context)->index, "%s", text);
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

static void fresh_id(const struct node *node, char id[static QUORUM_ID_LEN + 1]) {
    snprintf(id, QUORUM_ID_LEN + 1, "%08x%032x", (unsigned)below(UINT32_MAX), node->index);
}

static void node_start(struct node *node) {
    char id[QUORUM_ID_LEN + 1];
    fresh_id(node, id);
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
    find_latest(node);
    memset(node->shown, 0, sizeof node->shown);
    drop_clients(node);
    forget_commits(node);
    quorum_machine_init(&node->machine, &settings, &world_effects, node, node->has_file ? &node->durable : NULL, id,
                        world.now);
    if (!node->replica && node->machine.state.group[0]) quorum_machine_depose(&node->machine, world.now);
}

static void node_crash(struct node *node, bool disk) {
    note((int)node->index, disk ? "crashes" : "crashes and loses its files");
    node->up = false;
    drop_clients(node);
    link_down(node);
    for (unsigned i = 0; i < world.count; i++) {
        struct node *other = &world.nodes[i];
        if (other->link && other->follows == (int)node->index) link_down(other);
        node->peers[i].up = false;
    }
    node->len = disk && below(3) ? (int64_t)below((uint64_t)node->len + 1) : 0;
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
    if (!runs(node)) return; /* a frozen server hears of it later */
    uint64_t ticket = node->tickets[done - 1].ticket;
    memmove(node->tickets, node->tickets + done, (node->ticket_count - done) * sizeof *node->tickets);
    node->ticket_count -= done;
    quorum_machine_saved(&node->machine, ticket, world.now);
}

static bool is_prefix(const struct node *a, const struct node *b) {
    if (a->len > b->len) return false;
    return memcmp(a->log, b->log, (size_t)a->len * sizeof *a->log) == 0;
}

static void try_link(struct node *node) {
    struct quorum_hello hello;
    struct quorum_welcome welcome;
    if (node->link || node->follows < 0 || world.now < node->retry) return;
    node->retry = world.now + 200;
    struct node *primary = &world.nodes[node->follows];
    if (primary == node || !runs(primary) || !reaches_both((int)node->index, node->follows)) return;
    if (world.now < primary->busy_until) return;
    quorum_machine_hello(&node->machine, &hello);
    if (quorum_machine_hello_from(&primary->machine, &hello, world.now, &welcome)) return;
    if (quorum_machine_welcomed(&node->machine, &welcome, world.now)) return;
    node->link = true;
    node->link_of = ++world.links;
    node->lag = (int64_t)below(3) ? 0 : (int64_t)below(40);
    node->psync_at = world.now + 1 + (int64_t)below(30);
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
    if (node->len && is_prefix(node, primary)) {
        come_online(node);
        return;
    }
    note((int)node->index, "copies from %d", node->follows);
    node->copy_until = world.now + 1 + (int64_t)below(500);
    if (world.copied) world.copied(node, primary); /* the primary may write then */
    node->copy_len = primary->len;
    memcpy(node->copy, primary->log, (size_t)primary->len * sizeof *node->copy);
}

static void got_copy(struct node *node) {
    node->copy_until = 0;
    quorum_machine_data_lost(&node->machine);
    node->len = node->base = node->copy_len;
    memcpy(node->log, node->copy, (size_t)node->len * sizeof *node->copy);
    find_latest(node);
    drop_clients(node);
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
        if (!runs(primary) || !reaches_both((int)node->index, node->follows)) return;
        quorum_machine_advanced(&node->machine); /* the server calls it whenever it waits */
        if (world.now < node->psync_at || world.now < node->copy_until) return;
        if (node->psync_at)
            got_psync(node);
        else
            got_copy(node);
        if (node->copy_until) return;
    }
    if (!primary->up || !reachable(node->follows, (int)node->index) || below(4) == 0) return;
    int64_t to = primary->sent - (below(3) ? 0 : node->lag);
    bool moved = node->len < to;
    while (node->len < to && node->link) {
        struct entry entry = primary->log[node->len];
        if (entry.commit) quorum_lease_mark(&node->lease, node->len, node->len, world_us());
        append(node, entry);
        if (entry.commit && quorum_lease_commit(&node->lease, (int64_t)entry.commit - 1)) release_replies(node);
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
        if (current && !reachable(msg.from, msg.to)) { /* a link repeats what is lost, until it breaks */
            i++;
            continue;
        }
        memmove(world.messages + i, world.messages + i + 1, (world.message_count - i - 1) * sizeof msg);
        world.message_count--;
        bool arrives = node->up && node->life == msg.life_to && reachable(msg.from, msg.to);
        if (arrives) deliver(&msg);
        mem_free(msg.vote);
        if (arrives) i = 0;
    }
}

#include "quorum_clients.h"

/* quorum.c: mark() and commit_due(), then primary.c sends */
static void end_of_turn(struct node *node) {
    bool leads = node->machine.status == QUORUM_LEADING, linked = false, grows = world.now >= node->final_until;
    for (unsigned i = 0; i < world.count; i++) linked |= node->peers[i].up;
    int64_t from = node->len;
    if (leads && quorum_lease_asks(&node->lease, linked, world_us())) {
        if (grows) write_commit(node);
        if (!grows && world.trial & TRIAL_MARK) from--;
    }
    quorum_lease_mark(&node->lease, from, node->len, world_us());
    if (leads && grows && quorum_lease_has_news(&node->lease) && below(2)) write_commit(node);
    node->sent = node->len;
}

static void losses(struct node *node) {
    for (unsigned j = 0; j < world.count; j++) {
        int64_t lost_at = node->peers[j].lost_at;
        if (!node->peers[j].up || !lost_at || world.now < lost_at) continue;
        /* The end of the connection is as late as what was sent before it, or repl-timeout passes. */
        if (!reachable((int)j, (int)node->index) && world.now < lost_at + ABSENT) continue;
        node->peers[j].up = false;
        node->peers[j].lost_at = 0;
        quorum_machine_peer_unlinked(&node->machine, node->peers[j].id, world.now);
    }
}

enum { TURN_REQUESTS, TURN_SOCKETS, TURN_MORE_REQUESTS, TURN_END, TURN_REST, TURN_PHASES };

static void turn(struct node *node) {
    for (; node->phase < TURN_PHASES; node->phase++) {
        if (node->freeze_ms && node->freeze_phase == node->phase) {
            node->frozen_until = world.now + node->freeze_ms;
            node->freeze_ms = 0;
            node->has_woken = true;
            return;
        }
        switch (node->phase) {
        case TURN_REQUESTS: requests(node); break;
        case TURN_SOCKETS:
            disk_step(node);
            sockets(node);
            break;
        case TURN_MORE_REQUESTS:
            if (node->has_woken || below(4) == 0) requests(node);
            if (below(8) == 0 && node->machine.status == QUORUM_LEADING)
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

static void step(void) {
    world.now += STEP_MS;
    for (unsigned i = 0; i < world.count; i++) {
        struct node *node = &world.nodes[i];
        if (node->asynchronous) {
            if (runs(node)) world.asynchronous_turn(node);
        } else if (runs(node))
            turn(node);
        else if (node->up)
            disk_step(node);
        else
            sockets(node);
    }
}

static void promote(struct node *node);

/* A replica that has all of the paused stream stands. */
static void manual_failover_step(void) {
    const struct node *primary = &world.nodes[world.manual.primary];
    struct node *replica = &world.nodes[world.manual.replica];
    if (!world.manual.until || !runs(replica)) return;
    if (world.now < world.manual.until && !(replica->link && replica->len == primary->len)) return;
    if (world.now < world.manual.until) promote(replica);
    world.manual.until = 0;
}

static void run(int64_t ms) {
    for (int64_t end = world.now + ms; world.now < end;) {
        step();
        manual_failover_step();
    }
}

/* --- The outsider --- */

static void follow(struct node *node, int primary) {
    if (!node->up || (int)node->index == primary) return;
    note((int)node->index, "is told to follow %d", primary);
    link_down(node);
    if (!node->asynchronous) quorum_machine_follow(&node->machine, world.now);
    node->replica = true;
    node->follows = primary;
    node->retry = world.now;
}

static void promote(struct node *node) {
    if (!node->up) return;
    note((int)node->index, "is told to lead");
    link_down(node);
    if (quorum_machine_start_election(&node->machine, world.now)) note((int)node->index, "cannot");
}

static unsigned first_of_group(unsigned index) {
    return index / world.group * world.group;
}

static inline int newest_leader_near(unsigned index) { /* in its group */
    int best = -1;
    for (unsigned i = first_of_group(index); i < first_of_group(index) + world.group; i++) {
        const struct node *node = &world.nodes[i];
        if (!node->up || node->machine.status != QUORUM_LEADING) continue;
        if (best < 0 || quorum_term_compare(&node->machine.term, &world.nodes[best].machine.term) > 0) best = (int)i;
    }
    return best;
}

static inline int newest_leader(void) {
    return newest_leader_near(0);
}

/* After too many crashes at a time nobody can lead, and nothing more would happen. One seed in ten allows them. */
static inline bool may_crash(const struct node *node) {
    if (world.seed % 10 == 0 || !node->machine.complete) return true;
    unsigned sure = 0, first = first_of_group(node->index);
    for (unsigned i = first; i < first + world.group; i++) sure += world.nodes[i].up && world.nodes[i].machine.complete;
    return sure > world.group - world.replicas;
}

/* The primary is frozen most often, while its replicas acknowledge, and often for long enough to be replaced. */
static inline void freeze(struct node *node) {
    int leader = newest_leader_near(node->index);
    if (leader >= 0 && below(2)) node = &world.nodes[leader];
    node->freeze_ms = 1 + (int64_t)below(below(2) ? 1500 : 6000);
    node->freeze_phase = (unsigned)below(TURN_PHASES);
    if ((int)node->index != leader || below(3) == 0) return;
    /* It is replaced meanwhile, perhaps while it waits for a replica, and perhaps cut off when it wakes up. */
    if (below(3) == 0) node->final_until = world.now + node->freeze_ms + 2000;
    unsigned first = first_of_group(node->index), other = first + (unsigned)below(world.group);
    if (below(2))
        for (unsigned i = first; i < first + world.group; i++)
            if (i != node->index) world.cut[i][node->index] = world.cut[node->index][i] = true;
    if (other != node->index) promote(&world.nodes[other]);
}

/* The primary runs a script, and somebody promotes a replica because of that. */
static inline void be_busy(struct node *node) {
    int leader = newest_leader_near(node->index);
    if (leader >= 0) node = &world.nodes[leader];
    node->busy_until = world.now + (int64_t)below(below(2) ? 3000 : 20000);
    unsigned other = first_of_group(node->index) + (unsigned)below(world.group);
    if (other != node->index && below(3)) promote(&world.nodes[other]);
}

static inline void delay(unsigned from, unsigned to) {
    if (from != to) world.late_until[from][to] = world.now + 200 + (int64_t)below(5000);
}
/* From the others of its group to one server, or back. */
static inline void delay_some(unsigned index) {
    unsigned first = first_of_group(index), inwards = (unsigned)below(2);
    note((int)index, "what it %s is late", inwards ? "gets" : "sends");
    for (unsigned i = first; i < first + world.group; i++)
        if (below(4)) delay(inwards ? i : index, inwards ? index : i);
}

static inline void manual_failover(struct node *primary) {
    unsigned first = first_of_group(primary->index), other = first + (unsigned)below(world.group);
    const struct node *replica = &world.nodes[other];
    if (other == primary->index || !replica->link || replica->follows != (int)primary->index) return;
    note((int)other, "is told to replace %u", primary->index);
    primary->final_until = world.now + 1000 + (int64_t)below(5000);
    world.manual.primary = primary->index;
    world.manual.replica = other;
    world.manual.until = primary->final_until;
    for (unsigned i = first, late = (unsigned)below(2); late && i < first + world.group; i++) delay(i, primary->index);
}

static inline void fault(void) {
    struct node *node = &world.nodes[below(world.count)];
    int leader = newest_leader_near(node->index);
    switch (below(12)) {
    case 0:
    case 1:
        if (node->up && may_crash(node)) node_crash(node, below(8) != 0);
        break;
    case 2:
    case 3:
    case 4:
        if (!node->up) node_start(node);
        break;
    case 5:
        if (below(4))
            freeze(node);
        else
            be_busy(node);
        break;
    case 6: {
        unsigned a = (unsigned)below(world.count), b = (unsigned)below(world.count);
        if (a == b || below(3) == 0) memset(world.cut, 0, sizeof world.cut);
        if (a == b) break;
        world.cut[a][b] = !world.cut[a][b];
        if (below(3)) world.cut[b][a] = world.cut[a][b]; /* else one-way */
        break;
    }
    case 7: promote(node); break;
    case 8: delay_some(leader >= 0 && below(2) ? (unsigned)leader : node->index); break;
    case 9:
        if (leader >= 0) manual_failover(&world.nodes[leader]);
        break;
    default:
        if (leader >= 0)
            follow(node, leader);
        else if (below(2))
            promote(node);
    }
    /* Connections over a cut end after a while. */
    for (unsigned i = 0; i < world.count; i++)
        if (world.nodes[i].link && is_cut_off(i, (unsigned)world.nodes[i].follows) && below(3))
            link_down(&world.nodes[i]);
}

/* An empty world of servers that do not run. */
static void world_clear(uint64_t seed, unsigned count, unsigned replicas) {
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
    for (int i = 0; i < 10; i++) below(2);
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

static inline void world_begin(uint64_t seed, unsigned count, unsigned replicas) {
    world_clear(seed, count, replicas);
    for (unsigned i = 0; i < count; i++) {
        struct node *node = &world.nodes[i];
        node->replica = i != 0;
        node->follows = i ? 0 : -1;
        node_start(node);
    }
    quorum_machine_establish(&world.nodes[0].machine, "0123456789abcdef0123456789abcdef01234567", world.now);
    run(3000);
}
#endif
