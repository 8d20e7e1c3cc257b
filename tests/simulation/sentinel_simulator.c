/* sentinel_simulator.c: see sentinel_simulator.h. */
#include "sentinel_simulator.h"
#include "lib/system/memory.h"
#include "sentinel/protocol/sentinel.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIM_SENTINELS = 15, SIM_SERVERS = 6, SIM_EPOCHS = 4096, SIM_NODES = SIM_SENTINELS + SIM_SERVERS };
struct sim_server {
    bool up;
    bool stopped;
    int primary; /* index of the server that it follows; -1: it is a primary */
    uint64_t offset;
    unsigned starts;
};

struct sim_disk {
    char id[SENTINEL_ID_LEN + 1];
    uint64_t current_epoch, leader_epoch, config_epoch;
    int primary;
    int replicas[SIM_SERVERS], replica_count;
    int sentinels[SIM_SENTINELS], sentinel_count;
};

struct sim_sentinel {
    struct sim *sim;
    int index;
    bool up, stopped;
    struct sentinel *machine;
    struct sim_disk disk;
    bool unsettled;
    unsigned life;
    int64_t skew;  /* of its clock */
    int drift_ppt; /* parts per thousand by which its clock is fast */
    int64_t since; /* start of this life */
};

struct sim_conn {
    int from, to; /* nodes */
    struct sentinel_link *link;
    enum link_kind kind;
    bool open, closed;
    unsigned users; /* events in flight */
    struct sim_conn *next;
};
enum sim_event_kind { SIM_OPEN, SIM_BREAK, SIM_REQUEST, SIM_REPLY, SIM_PUSH, SIM_TICK, SIM_CRASH, SIM_START };

struct sim_event {
    int64_t at;
    uint64_t order;
    enum sim_event_kind kind;
    struct sim_conn *conn;
    int node;
    unsigned life;
    enum sentinel_request_kind request;
    char *text, *host;
    int port;
    uint64_t epoch;
    bool down, valid, error;
};

struct sim {
    uint64_t random;
    int64_t now;
    uint64_t order;
    struct sim_event *heap;
    size_t count, capacity;
    int sentinels, servers;
    struct sim_sentinel sentinel[SIM_SENTINELS];
    struct sim_server server[SIM_SERVERS];
    bool cut[SIM_NODES][SIM_NODES];
    struct sim_conn *conns;
    int vote[SIM_SENTINELS][SIM_EPOCHS]; /* candidate + 1 */
    int leader[SIM_EPOCHS];              /* sentinel + 1 */
    unsigned failovers, elections, votes;
    unsigned break_permille; /* of requests: the connection breaks */
    unsigned loss_permille;  /* of messages in each direction: lost, the connection stays */
    unsigned crash_permille; /* of votes asked for or given: this Sentinel crashes soon, and starts again */
    bool verbose;
    char failure[256];
};

static uint64_t sim_random(struct sim *sim) {
    sim->random ^= sim->random << 13;
    sim->random ^= sim->random >> 7;
    sim->random ^= sim->random << 17;
    return sim->random * 0x2545F4914F6CDD1Dull;
}
static uint64_t sim_below(struct sim *sim, uint64_t bound) {
    return (sim_random(sim) >> 11) % bound;
}
static int sim_server_node(int server) {
    return SIM_SENTINELS + server;
}
static void sim_fail(struct sim *sim, const char *text, int a, int b) {
    if (*sim->failure) return;
    snprintf(sim->failure, sizeof sim->failure, "at %lld ms: %s (%d, %d)", (long long)sim->now, text, a, b);
}
static void sim_id(int sentinel, char id[static SENTINEL_ID_LEN + 1]) {
    snprintf(id, SENTINEL_ID_LEN + 1, "%040d", sentinel);
}
/* "10.0.0.K" is server K, "10.0.1.K" Sentinel K. */
static int sim_node_of(const char *ip) {
    int kind, index;
    if (sscanf(ip, "10.0.%d.%d", &kind, &index) != 2) return -1;
    return kind ? index : sim_server_node(index);
}

/* --- The queue of events --- */

static bool sim_before(const struct sim_event *a, const struct sim_event *b) {
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}
static struct sim_event *sim_add(struct sim *sim, int64_t delay, enum sim_event_kind kind, struct sim_conn *conn) {
    static struct sim_event made;
    made = (struct sim_event){.at = sim->now + delay, .order = sim->order++, .kind = kind, .conn = conn};
    if (conn) conn->users++;
    return &made;
}
static void sim_push(struct sim *sim, const struct sim_event *event) {
    if (sim->count == sim->capacity) {
        sim->capacity = sim->capacity ? sim->capacity * 2 : 1024;
        sim->heap = realloc(sim->heap, sim->capacity * sizeof *sim->heap);
    }
    size_t at = sim->count++;
    for (; at && sim_before(event, &sim->heap[(at - 1) / 2]); at = (at - 1) / 2)
        sim->heap[at] = sim->heap[(at - 1) / 2];
    sim->heap[at] = *event;
}
static struct sim_event sim_pop(struct sim *sim) {
    struct sim_event first = sim->heap[0], last = sim->heap[--sim->count];
    size_t at = 0;
    for (;;) {
        size_t child = at * 2 + 1;
        if (child >= sim->count) break;
        if (child + 1 < sim->count && sim_before(&sim->heap[child + 1], &sim->heap[child])) child++;
        if (!sim_before(&sim->heap[child], &last)) break;
        sim->heap[at] = sim->heap[child];
        at = child;
    }
    if (sim->count) sim->heap[at] = last;
    return first;
}

/* --- Effects --- */

/* A Sentinel's vote has left it, or has made it leader: it must not give another one in this epoch. */
static void sim_count_vote(struct sim *sim, int voter, uint64_t epoch, int candidate) {
    if (epoch >= SIM_EPOCHS) return;
    int *given = &sim->vote[voter][epoch];
    if (*given && *given != candidate + 1) sim_fail(sim, "a Sentinel voted twice in an epoch", voter, (int)epoch);
    if (!*given) sim->votes++;
    *given = candidate + 1;
}
static int64_t sim_clock(const struct sim_sentinel *of) {
    return of->sim->now + of->skew + (of->sim->now - of->since) * of->drift_ppt / 1000;
}
static bool sim_reachable(const struct sim *sim, int a, int b) {
    return !sim->cut[a][b];
}
static bool sim_is_up(const struct sim *sim, int node) {
    return node < SIM_SENTINELS ? sim->sentinel[node].up : sim->server[node - SIM_SENTINELS].up;
}
static bool sim_is_stopped(const struct sim *sim, int node) {
    return node < SIM_SENTINELS ? sim->sentinel[node].stopped : sim->server[node - SIM_SENTINELS].stopped;
}
static bool sim_loses(struct sim *sim) {
    return sim->loss_permille && sim_below(sim, 1000) < sim->loss_permille;
}
static int64_t sim_delay(struct sim *sim) {
    return 1 + (int64_t)sim_below(sim, 20) + (sim_below(sim, 50) == 0 ? (int64_t)sim_below(sim, 400) : 0);
}

/* Crashes at the moments that matter: around a vote. */
static void sim_doom(struct sim_sentinel *of) {
    struct sim *sim = of->sim;
    if (sim_below(sim, 1000) >= sim->crash_permille) return;
    struct sim_event *event = sim_add(sim, (int64_t)sim_below(sim, 40), SIM_CRASH, NULL);
    event->node = of->index;
    event->life = of->life;
    sim_push(sim, event);
}

static void sim_settle(struct sim_sentinel *of) {
    struct sentinel *m = of->machine;
    if (!of->unsettled) return;
    of->unsettled = false;
    struct instance *group = m->groups.items[0];
    const struct sentinel_address *primary = sentinel_primary_address(group);
    struct sim_disk *disk = &of->disk;
    *disk = (struct sim_disk){.current_epoch = m->current_epoch,
                              .leader_epoch = group->vote.epoch,
                              .config_epoch = group->config_epoch,
                              .primary = sim_node_of(primary->ip) - SIM_SENTINELS};
    memcpy(disk->id, m->id, sizeof disk->id);
    each_in(&group->replicas, replica) {
        const struct sentinel_address *address = &replica->address;
        if (sentinel_address_equal(m, address, primary)) address = &group->address;
        disk->replicas[disk->replica_count++] = sim_node_of(address->ip) - SIM_SENTINELS;
    }
    each_in(&group->sentinels, other) if (other->address.port) disk->sentinels[disk->sentinel_count++] =
        sim_node_of(other->address.ip);
}

static uint64_t sim_effect_random(void *context) {
    return sim_random(((struct sim_sentinel *)context)->sim) >> 5;
}
static bool sim_resolve(void *context, const char *host, bool names, char ip[static SENTINEL_IP_MAX]) {
    if (sim_node_of(host) < 0) return false;
    snprintf(ip, SENTINEL_IP_MAX, "%.45s", host);
    return true;
}
static bool sim_own_address(void *context, const struct sentinel_link *link, char host[static SENTINEL_HOST_MAX],
                            int *port) {
    snprintf(host, SENTINEL_HOST_MAX, "10.0.1.%d", ((struct sim_sentinel *)context)->index);
    *port = 26379;
    return true;
}
static void sim_dial(void *context, struct sentinel_link *link, enum link_kind kind) {
    struct sim_sentinel *from = context;
    struct sim *sim = from->sim;
    struct sim_conn *conn = mem_calloc(1, sizeof *conn);
    *conn = (struct sim_conn){
        .from = from->index, .to = sim_node_of(link->instance->address.ip), .link = link, .kind = kind};
    conn->next = sim->conns;
    sim->conns = conn;
    link->half[kind].host = conn;
    bool ok = sim_reachable(sim, conn->from, conn->to);
    if (!ok && sim_below(sim, 2)) return; /* nothing comes back */
    bool open = ok && sim_is_up(sim, conn->to);
    struct sim_event *event = sim_add(sim, sim_delay(sim), open ? SIM_OPEN : SIM_BREAK, conn);
    sim_push(sim, event);
}
static void sim_close(void *context, struct sentinel_link *link, enum link_kind kind) {
    struct sim_conn *conn = link->half[kind].host;
    if (conn) conn->closed = true;
}
static bool sim_send(void *context, struct sentinel_link *link, const struct instance *to,
                     const struct sentinel_request *request) {
    struct sim_sentinel *from = context;
    struct sim *sim = from->sim;
    struct sim_conn *conn = link->half[LINK_COMMANDS].host;
    if (request->kind == REQUEST_ASK || request->kind == REQUEST_HELLO || request->kind == REQUEST_REPLICATE ||
        request->kind == REQUEST_COORDINATED)
        sim_settle(from);
    if (request->kind == REQUEST_ASK && strcmp(request->text, "*") != 0) sim_doom(from);
    link->pending++;
    if (!sim_reachable(sim, conn->from, conn->to) || sim_loses(sim)) return true; /* lost */
    if (sim_below(sim, 1000) < sim->break_permille) {
        sim_push(sim, sim_add(sim, sim_delay(sim), SIM_BREAK, conn));
        return true;
    }
    struct sim_event *event = sim_add(sim, sim_delay(sim) + (conn->open ? 0 : 30), SIM_REQUEST, conn);
    event->request = request->kind;
    event->text = request->text ? mem_strdup(request->text) : NULL;
    event->host = request->host ? mem_strdup(request->host) : NULL;
    event->port = request->port;
    event->epoch = request->epoch;
    sim_push(sim, event);
    return true;
}
static void sim_save(void *context, bool durable) {
    struct sim_sentinel *of = context;
    of->unsettled = true;
}
static bool sim_settle_effect(void *context) {
    sim_settle(context);
    return true;
}
static void sim_log(void *context, enum log_level level, const char *text) {
    struct sim_sentinel *of = context;
    if (of->sim->verbose) printf("%8lld S%d %s\n", (long long)of->sim->now, of->index, text);
}
static void sim_failover_delayed(void *context, int64_t wait_ms) {}
static void sim_event_effect(void *context, enum log_level level, const char *type, const char *text,
                             const struct instance *group) {
    struct sim_sentinel *of = context;
    struct sim *sim = of->sim;
    if (sim->verbose) printf("%8lld S%d %s %s\n", (long long)sim->now, of->index, type, text);
    if (strcmp(type, "+switch-master") == 0) sim->failovers++;
    if (strcmp(type, "+elected-leader") != 0 || group->flags & INSTANCE_FORCE_FAILOVER) return;
    sim->elections++;
    if (group->failover.epoch >= SIM_EPOCHS) return;
    int *leader = &sim->leader[group->failover.epoch];
    if (*leader && *leader != of->index + 1) sim_fail(sim, "two leaders in an epoch", *leader - 1, of->index);
    *leader = of->index + 1;
    if (group->vote.epoch == group->failover.epoch && strcmp(group->vote.leader, of->machine->id) == 0)
        sim_count_vote(sim, of->index, group->failover.epoch, of->index);
}
static void sim_script(void *context, const struct instance *group, const char *role, const char *state,
                       const struct sentinel_address *from, const struct sentinel_address *to) {}
static void sim_crash_effect(void *context) {}
static const struct sentinel_effects sim_effects = {.random = sim_effect_random,
                                                    .resolve = sim_resolve,
                                                    .own_address = sim_own_address,
                                                    .dial = sim_dial,
                                                    .close = sim_close,
                                                    .send = sim_send,
                                                    .save = sim_save,
                                                    .settle = sim_settle_effect,
                                                    .log = sim_log,
                                                    .failover_delayed = sim_failover_delayed,
                                                    .event = sim_event_effect,
                                                    .reconfig_script = sim_script,
                                                    .crash = sim_crash_effect};

/* --- Life of a Sentinel --- */

static void sim_start_sentinel(struct sim *sim, int index) {
    struct sim_sentinel *of = &sim->sentinel[index];
    struct sim_disk *disk = &of->disk;
    struct instance *group;
    char host[32];
    bool duplicate;
    of->up = true;
    of->stopped = false;
    of->life++;
    of->skew = (int64_t)sim_below(sim, 100000);
    of->drift_ppt = (int)sim_below(sim, 101) - 50;
    of->since = sim->now;
    of->machine = sentinel_new(disk->id, &sim_effects, of, sim_clock(of));
    of->machine->settings.timers.info_period = 2000;
    snprintf(host, sizeof host, "10.0.0.%d", disk->primary);
    sentinel_monitor(of->machine, SLICE("g"), slice_of(host), 6379, sim->sentinels / 2 + 1, &group, sim_clock(of));
    sentinel_set_down_after(group, 1000);
    group->options.failover_timeout_ms = 6000;
    group->options.parallel_syncs = 2;
    group->config_epoch = disk->config_epoch;
    group->vote.epoch = disk->leader_epoch;
    of->machine->current_epoch = disk->current_epoch;
    for (int i = 0; i < disk->replica_count; i++) {
        snprintf(host, sizeof host, "10.0.0.%d", disk->replicas[i]);
        sentinel_add_replica(of->machine, group, slice_of(host), 6379, &duplicate);
    }
    for (int i = 0; i < disk->sentinel_count; i++) {
        char id[SENTINEL_ID_LEN + 1];
        sim_id(disk->sentinels[i], id);
        snprintf(host, sizeof host, "10.0.1.%d", disk->sentinels[i]);
        sentinel_add_sentinel(of->machine, group, slice_of(host), 26379, slice_of(id));
    }
    struct sim_event *event = sim_add(sim, (int64_t)sim_below(sim, 100), SIM_TICK, NULL);
    event->node = index;
    event->life = of->life;
    sim_push(sim, event);
}
/* Connections from and to a node that is gone break. */
static void sim_break_of(struct sim *sim, int node) {
    for (struct sim_conn *conn = sim->conns; conn; conn = conn->next) {
        if (conn->closed) continue;
        if (conn->from == node) conn->closed = true;
        if (conn->to == node && sim_reachable(sim, conn->from, node))
            sim_push(sim, sim_add(sim, sim_delay(sim), SIM_BREAK, conn));
    }
}
static void sim_crash_sentinel(struct sim *sim, int index) {
    struct sim_sentinel *of = &sim->sentinel[index];
    if (!of->up) return;
    of->up = false;
    /* What was not settled may have reached the disk, or is lost. */
    if (sim_below(sim, 2)) sim_settle(of);
    sim_break_of(sim, index);
    sentinel_free(of->machine);
    of->machine = NULL;
    of->unsettled = false;
}

/* --- Servers --- */

static void sim_info(struct sim *sim, int index, char *text, size_t size) {
    const struct sim_server *server = &sim->server[index];
    size_t at = (size_t)snprintf(text, size, "run_id:%037d%03d\r\nrole:%s\r\nmaster_failover_state:no-failover\r\n",
                                 index, server->starts, server->primary < 0 ? "master" : "slave");
    if (server->primary >= 0) {
        bool up = sim->server[server->primary].up &&
                  sim_reachable(sim, sim_server_node(index), sim_server_node(server->primary));
        at += (size_t)snprintf(text + at, size - at,
                               "master_host:10.0.0.%d\r\nmaster_port:6379\r\nmaster_link_status:%s\r\n"
                               "slave_priority:100\r\nslave_repl_offset:%llu\r\n",
                               server->primary, up ? "up" : "down", (unsigned long long)server->offset);
    }
    for (int i = 0, n = 0; i < sim->servers; i++)
        if (sim->server[i].primary == index && sim->server[i].up)
            at += (size_t)snprintf(text + at, size - at, "slave%d:ip=10.0.0.%d,port=6379,state=online\r\n", n++, i);
}
static void sim_publish(struct sim *sim, int server, const char *text) {
    for (struct sim_conn *conn = sim->conns; conn; conn = conn->next) {
        if (conn->closed || !conn->open || conn->kind != LINK_PUBSUB || conn->to != sim_server_node(server)) continue;
        if (!sim_reachable(sim, conn->from, conn->to) || sim_loses(sim)) continue;
        struct sim_event *event = sim_add(sim, sim_delay(sim), SIM_PUSH, conn);
        event->text = mem_strdup(text);
        sim_push(sim, event);
    }
}

static void sim_answer(struct sim *sim, struct sim_event *request, const char *text, bool down, uint64_t epoch) {
    struct sim_conn *conn = request->conn;
    if (!sim_reachable(sim, conn->from, conn->to) || sim_loses(sim)) return;
    struct sim_event *event = sim_add(sim, sim_delay(sim), SIM_REPLY, conn);
    event->request = request->request;
    event->text = mem_strdup(text);
    event->down = down;
    event->epoch = epoch;
    sim_push(sim, event);
}

static void sim_serve_sentinel(struct sim *sim, struct sim_event *event) {
    struct sim_sentinel *to = &sim->sentinel[event->conn->to];
    if (event->request == REQUEST_PING) sim_answer(sim, event, "PONG", false, 0);
    if (event->request == REQUEST_HELLO) {
        sentinel_hello(to->machine, slice_of(event->text), sim_clock(to));
        sim_answer(sim, event, "1", false, 0);
    }
    if (event->request != REQUEST_ASK) return;
    const char *leader;
    uint64_t epoch;
    bool down = sentinel_is_down(to->machine, slice_of(event->host), event->port, event->epoch, slice_of(event->text),
                                 &leader, &epoch, sim_clock(to));
    sim_settle(to);
    if (*leader) sim_count_vote(sim, to->index, epoch, atoi(leader));
    sim_answer(sim, event, *leader ? leader : "*", down, epoch);
    if (*leader) sim_doom(to);
}
static void sim_serve_server(struct sim *sim, struct sim_event *event) {
    int index = event->conn->to - SIM_SENTINELS;
    struct sim_server *server = &sim->server[index];
    char text[4096];
    switch (event->request) {
    case REQUEST_PING: sim_answer(sim, event, "PONG", false, 0); break;
    case REQUEST_INFO:
        sim_info(sim, index, text, sizeof text);
        sim_answer(sim, event, text, false, 0);
        break;
    case REQUEST_HELLO:
        sim_publish(sim, index, event->text);
        sim_answer(sim, event, "1", false, 0);
        break;
    case REQUEST_REPLICATE:
        server->primary = event->host ? sim_node_of(event->host) - SIM_SENTINELS : -1;
        if (server->primary == index) server->primary = -1;
        sim_answer(sim, event, "OK", false, 0);
        break;
    default: sim_answer(sim, event, "OK", false, 0);
    }
}

/* --- Running --- */

static void sim_handle(struct sim *sim, struct sim_event *event) {
    struct sim_conn *conn = event->conn;
    if (event->kind == SIM_TICK) {
        struct sim_sentinel *of = &sim->sentinel[event->node];
        if (!of->up || of->life != event->life) return;
        if (!of->stopped) sentinel_tick(of->machine, sim_clock(of));
        struct sim_event *next = sim_add(sim, 50 + (int64_t)sim_below(sim, 50), SIM_TICK, NULL);
        next->node = event->node;
        next->life = event->life;
        sim_push(sim, next);
        return;
    }
    if (event->kind == SIM_CRASH || event->kind == SIM_START) {
        struct sim_sentinel *of = &sim->sentinel[event->node];
        if (of->life != event->life || of->up != (event->kind == SIM_CRASH)) return;
        if (event->kind == SIM_START) {
            sim_start_sentinel(sim, of->index);
            return;
        }
        sim_crash_sentinel(sim, of->index);
        struct sim_event *start = sim_add(sim, (int64_t)sim_below(sim, 200), SIM_START, NULL);
        start->node = of->index;
        start->life = of->life;
        sim_push(sim, start);
        return;
    }
    struct sim_sentinel *from = &sim->sentinel[conn->from];
    if (conn->closed || !from->up) return;
    int at = event->kind == SIM_REQUEST ? conn->to : conn->from;
    if (sim_is_stopped(sim, at)) { /* it waits in the socket */
        event->at = sim->now + 50;
        event->order = sim->order++;
        conn->users++;
        sim_push(sim, event);
        event->text = event->host = NULL;
        return;
    }
    switch (event->kind) {
    case SIM_OPEN:
        conn->open = true;
        sentinel_link_opened(from->machine, conn->link, conn->kind, sim_clock(from));
        break;
    case SIM_BREAK:
        conn->closed = true;
        sentinel_link_closed(from->machine, conn->link, conn->kind, "broken", sim_clock(from));
        break;
    case SIM_REQUEST:
        if (!sim_is_up(sim, conn->to)) break;
        if (conn->to < SIM_SENTINELS)
            sim_serve_sentinel(sim, event);
        else
            sim_serve_server(sim, event);
        break;
    case SIM_REPLY: {
        struct sentinel_answer answer = {.text = slice_of(event->text),
                                         .valid = true,
                                         .down = event->down,
                                         .leader = slice_of(event->text),
                                         .leader_epoch = event->epoch};
        if (conn->link->pending) conn->link->pending--;
        sentinel_replied(from->machine, conn->link, event->request, "g", &answer, sim_clock(from));
        break;
    }
    case SIM_PUSH:
        sentinel_link_heard(from->machine, conn->link, sim_clock(from));
        sentinel_hello(from->machine, slice_of(event->text), sim_clock(from));
        break;
    case SIM_TICK:
    case SIM_CRASH:
    case SIM_START: break;
    }
}
static void sim_sweep(struct sim *sim) {
    for (struct sim_conn **at = &sim->conns; *at;) {
        struct sim_conn *conn = *at;
        if (conn->closed && !conn->users) {
            *at = conn->next;
            mem_free(conn);
        } else {
            at = &conn->next;
        }
    }
}
static void sim_run(struct sim *sim, int64_t ms) {
    int64_t end = sim->now + ms;
    while (sim->count && sim->heap[0].at <= end && !*sim->failure) {
        struct sim_event event = sim_pop(sim);
        sim->now = event.at;
        if (event.conn) event.conn->users--;
        sim_handle(sim, &event);
        mem_free(event.text);
        mem_free(event.host);
    }
    sim->now = end;
    sim_sweep(sim);
}

static struct sim *sim_new(uint64_t seed) {
    struct sim *sim = mem_calloc(1, sizeof *sim);
    sim->random = seed * 0x9E3779B97F4A7C15ull + 0x1234567;
    for (int i = 0; i < 10; i++) sim_random(sim);
    sim->now = 1000000;
    sim->sentinels = 3 + (int)sim_below(sim, seed % 2 == 0 ? 13 : 3);
    sim->servers = 2 + (int)sim_below(sim, 4);
    sim->break_permille = (unsigned)sim_below(sim, 4);
    sim->loss_permille = sim_below(sim, 2) ? (unsigned)sim_below(sim, 200) : 0;
    sim->crash_permille = sim_below(sim, 2) ? (unsigned)sim_below(sim, 100) : 0;
    for (int i = 0; i < sim->servers; i++)
        sim->server[i] = (struct sim_server){.up = true, .primary = i ? 0 : -1, .offset = (uint64_t)i};
    for (int i = 0; i < sim->sentinels; i++) {
        sim->sentinel[i] = (struct sim_sentinel){.sim = sim, .index = i};
        sim_id(i, sim->sentinel[i].disk.id);
        sim_start_sentinel(sim, i);
    }
    return sim;
}
static void sim_free(struct sim *sim) {
    for (int i = 0; i < sim->sentinels; i++) sim_crash_sentinel(sim, i);
    while (sim->count) {
        struct sim_event event = sim_pop(sim);
        if (event.conn) event.conn->users--;
        mem_free(event.text);
        mem_free(event.host);
    }
    for (struct sim_conn *conn = sim->conns; conn; conn = conn->next) conn->closed = true;
    sim_sweep(sim);
    free(sim->heap);
    mem_free(sim);
}

/* --- Faults --- */

static void sim_cut(struct sim *sim, int a, int b, bool cut) {
    sim->cut[a][b] = sim->cut[b][a] = cut;
}
static int sim_any_node(struct sim *sim) {
    int n = (int)sim_below(sim, (uint64_t)(sim->sentinels + sim->servers));
    return n < sim->sentinels ? n : sim_server_node(n - sim->sentinels);
}
static void sim_repair(struct sim *sim) {
    memset(sim->cut, 0, sizeof sim->cut);
    for (int i = 0; i < sim->sentinels; i++) {
        if (!sim->sentinel[i].up) sim_start_sentinel(sim, i);
        sim->sentinel[i].stopped = false;
    }
    for (int i = 0; i < sim->servers; i++) {
        if (!sim->server[i].up) sim->server[i].starts++;
        sim->server[i].up = true;
        sim->server[i].stopped = false;
    }
}
static void sim_server_down(struct sim *sim, int index) {
    sim->server[index].up = false;
    sim_break_of(sim, sim_server_node(index));
}
static void sim_fault(struct sim *sim) {
    int node = sim_any_node(sim);
    switch (sim_below(sim, 9)) {
    case 0: sim_crash_sentinel(sim, (int)sim_below(sim, (uint64_t)sim->sentinels)); break;
    case 1: sim_server_down(sim, (int)sim_below(sim, (uint64_t)sim->servers)); break;
    case 2: /* one node alone */
        for (int i = 0; i < SIM_NODES; i++)
            if (i != node) sim_cut(sim, node, i, true);
        break;
    case 3: /* two parts */
        for (int i = 0; i < SIM_NODES; i++)
            for (int j = 0; j < SIM_NODES; j++)
                if (i < j && sim_below(sim, 2)) sim_cut(sim, i, j, true);
        break;
    case 4: sim->sentinel[sim_below(sim, (uint64_t)sim->sentinels)].stopped = true; break;
    case 5: sim->server[sim_below(sim, (uint64_t)sim->servers)].stopped = true; break;
    case 6: { /* restart at once */
        int index = (int)sim_below(sim, (uint64_t)sim->sentinels);
        sim_crash_sentinel(sim, index);
        sim_start_sentinel(sim, index);
        break;
    }
    case 7: /* the primary */
        for (int i = 0; i < sim->servers; i++)
            if (sim->server[i].primary < 0) {
                sim_server_down(sim, i);
                break;
            }
        break;
    case 8: /* its virtual machine was suspended */
        sim->sentinel[sim_below(sim, (uint64_t)sim->sentinels)].skew += (int64_t)sim_below(sim, 40000);
        break;
    }
}

/* The primary that all Sentinels and servers agree on; -1: they do not. */
static int sim_agreed(const struct sim *sim) {
    int primary = -1;
    for (int i = 0; i < sim->sentinels; i++) {
        const struct instance *group = sim->sentinel[i].machine->groups.items[0];
        int named = sim_node_of(sentinel_primary_address(group)->ip) - SIM_SENTINELS;
        if (group->flags & (INSTANCE_S_DOWN | INSTANCE_FAILOVER_IN_PROGRESS)) return -1;
        if (primary >= 0 && named != primary) return -1;
        primary = named;
    }
    for (int i = 0; i < sim->servers; i++)
        if (sim->server[i].primary != (i == primary ? -1 : primary)) return -1;
    return primary;
}

bool sim_play(uint64_t seed, char failure[static 320], bool verbose, unsigned *failovers) {
    struct sim *sim = sim_new(seed);
    sim->verbose = verbose;
    sim_run(sim, 8000);
    for (int round = 0; round < 6 && !*sim->failure; round++) {
        unsigned faults = 1 + (unsigned)sim_below(sim, 3);
        while (faults--) sim_fault(sim);
        sim_run(sim, 500 + (int64_t)sim_below(sim, 9000));
        if (sim_below(sim, 2)) sim_repair(sim);
        sim_run(sim, (int64_t)sim_below(sim, 4000));
    }
    sim_repair(sim);
    sim->break_permille = sim->loss_permille = sim->crash_permille = 0;
    for (int i = 0; i < 120 && !*sim->failure && sim_agreed(sim) < 0; i++) sim_run(sim, 1000);
    if (!*sim->failure && sim_agreed(sim) < 0) sim_fail(sim, "no agreement two minutes after the repair", 0, 0);
    snprintf(failure, 320, "seed %llu %s", (unsigned long long)seed, sim->failure);
    bool ok = !*sim->failure;
    *failovers += sim->failovers;
    sim_free(sim);
    return ok;
}
