#include "quorum_clients.h"
#include <string.h>

const char *const trial_names[TRIALS] = {"read", "mark", "timeout", "ask", "message", "migrate", "replica"};

static uint32_t *floor_of(unsigned key) {
    return &world.floors[key];
}
static void seen(unsigned key, uint32_t value) {
    if (value > *floor_of(key)) *floor_of(key) = value;
}

/* What the server has: 0: nothing. */
uint32_t clients_value(const struct node *node, unsigned key) {
    int64_t at = node->latest[key];
    return at < 0 || node->log[at].gone ? 0 : node->log[at].value;
}

static bool serves_clients(const struct node *node) {
    return node->machine.status == QUORUM_LEADING && quorum_machine_writable(&node->machine) &&
           !(world.serves && world_shard_of(node) == NO_SHARD) && (!world.serves || world.serves(node));
}

/* --- Replies --- */

static void asked_elsewhere(struct op op);
static void migrate_sends(struct node *node, const struct op *op);

static void respond(struct node *node, const struct op *op) {
    switch (op->kind) {
    case OP_WRITE:
    case OP_MESSAGE: seen(op->key, op->value); break;
    case OP_READ:
        world.reads++;
        if (op->value < op->floor) world_violated("a primary answers a stale read", (int)node->index);
        seen(op->key, op->value);
        break;
    case OP_BLOCKED:
        world.reads++;
        if (!op->value && op->floor > op->from)
            world_violated("a blocking read times out although there was a value", (int)node->index);
        if (op->value && op->value < op->floor) world_violated("a blocking read is stale", (int)node->index);
        seen(op->key, op->value);
        break;
    case OP_REPLICA:
        world.replica_reads++;
        if (op->value < op->floor) world_violated("a replica no longer shows what it has shown", (int)node->index);
        if (op->value > node->shown[op->key]) node->shown[op->key] = op->value;
        seen(op->key, op->value);
        break;
    case OP_ASKED: asked_elsewhere(*op); break;
    case OP_MIGRATE: migrate_sends(node, op); break;
    }
}

void clients_release(struct node *node) {
    for (unsigned i = 0; i < node->held_count;) {
        struct op op = node->held[i];
        if (op.sequence > node->lease.released) {
            i++;
            continue;
        }
        memmove(node->held + i, node->held + i + 1, (--node->held_count - i) * sizeof op);
        respond(node, &op);
    }
}

/* quorum.c, quorum_may_show() */
static void ask_to_show(struct node *node) {
    if (node->machine.status != QUORUM_LEADING) return;
    if (world.trial & TRIAL_READ && !quorum_lease_all_released(&node->lease)) return;
    if (quorum_lease_read(&node->lease, world_us()) != QUORUM_READ_ASKS) return;
    quorum_lease_asked(&node->lease, ++node->issued, world_us());
}

static void reply(struct node *node, struct op op) {
    op.sequence = node->issued;
    if (quorum_lease_all_released(&node->lease)) {
        respond(node, &op);
    } else if (node->held_count < HELD_MAX) {
        node->held[node->held_count++] = op;
    }
}

/* Through a door. */
static void show(struct node *node, const struct op *op, enum trial door) {
    if (world.trial & door) {
        respond(node, op);
        return;
    }
    ask_to_show(node);
    reply(node, *op);
}

/* --- Requests --- */

static struct op request(enum op_kind kind, unsigned key) {
    return (struct op){.kind = kind, .key = key, .floor = *floor_of(key)};
}

static void serve_blocked(struct node *node, unsigned key, uint32_t value) {
    for (unsigned i = 0; i < node->blocked_count;) {
        struct op op = node->blocked[i];
        if (op.key != key || value <= op.from) {
            i++;
            continue;
        }
        memmove(node->blocked + i, node->blocked + i + 1, (--node->blocked_count - i) * sizeof op);
        op.value = value;
        reply(node, op);
    }
}

static uint32_t write_key(struct node *node, unsigned key) {
    uint32_t value = world.next_value++;
    world.shard_of[value] = (uint8_t)world_shard_of(node);
    world_append(node, (struct entry){.value = value, .key = key});
    quorum_lease_changed(&node->lease, ++node->issued, world_us());
    serve_blocked(node, key, value);
    return value;
}

static bool may_write(const struct node *node) {
    return world.now >= node->final_until && world.next_value < ENTRIES_MAX - 1;
}

static void timeouts(struct node *node) {
    for (unsigned i = 0; i < node->blocked_count;) {
        struct op op = node->blocked[i];
        if (world.now < op.deadline) {
            i++;
            continue;
        }
        memmove(node->blocked + i, node->blocked + i + 1, (--node->blocked_count - i) * sizeof op);
        op.value = 0;
        show(node, &op, TRIAL_TIMEOUT);
    }
}

static unsigned some_key(const struct node *node) {
    return (unsigned)(world_shard_of(node) % SHARDS_MAX * SHARD_KEYS + world_random(SHARD_KEYS));
}

static void request_at_primary(struct node *node) {
    unsigned key = some_key(node);
    struct op op;
    ask_to_show(node); /* before each of these commands */
    switch (world_random(6)) {
    case 0:
    case 1:
        op = request(OP_READ, key);
        op.value = clients_value(node, key);
        reply(node, op);
        break;
    case 2: /* a transaction */
        if (!may_write(node)) break;
        op = request(OP_READ, key);
        op.value = clients_value(node, key);
        reply(node, op);
        op = request(OP_WRITE, key);
        op.value = write_key(node, key);
        reply(node, op);
        break;
    case 3:
        op = request(OP_BLOCKED, key);
        op.from = clients_value(node, key);
        if (op.from < op.floor && world_random(2))
            op.from = op.floor; /* it knows a newer value: this server has nothing new */
        op.deadline = world.now + (int64_t)world_random(world_random(2) ? 20 : 3000);
        if (node->blocked_count < BLOCKED_MAX) node->blocked[node->blocked_count++] = op;
        break;
    case 4:
        if (!may_write(node)) break;
        op = request(OP_MESSAGE, key);
        op.value = write_key(node, key);
        show(node, &op, TRIAL_MESSAGE);
        break;
    default:
        if (!may_write(node)) break;
        op = request(OP_WRITE, key);
        op.value = write_key(node, key);
        reply(node, op);
    }
}

/* quorum.c, data_ask() */
static void request_at_replica(struct node *node) {
    if (!node->link && !quorum_lease_all_released(&node->lease)) return;
    struct op op = request(OP_REPLICA, some_key(node));
    op.floor = node->shown[op.key];
    op.value = clients_value(node, op.key);
    show(node, &op, TRIAL_REPLICA);
}

/* --- Keys that move --- */

static struct node *primary_of_shard(unsigned shard) {
    struct node *found = NULL;
    for (unsigned i = 0; i < world.count; i++) {
        struct node *node = &world.nodes[i];
        if (!world_runs(node) || world_shard_of(node) != shard || !serves_clients(node)) continue;
        if (!found || world_random(2)) found = node; /* a client may know the old one only */
    }
    return found;
}
/* The keys in use: those that moved last, and some that may not exist yet. */
enum { KEYS_IN_USE = 24, KEYS_AHEAD = 8 };
static unsigned first_moving_key(void) {
    unsigned end = world.moves + KEYS_AHEAD < MOVING_KEYS ? world.moves + KEYS_AHEAD : MOVING_KEYS;
    return SHARDS_MAX * SHARD_KEYS + (end > KEYS_IN_USE ? end - KEYS_IN_USE : 0);
}
static unsigned some_moving_key(void) {
    return first_moving_key() + (unsigned)world_random(KEYS_IN_USE);
}

/* The second shard: the key is here, or on its way to here. */
static void asked_elsewhere(struct op op) {
    struct node *node = primary_of_shard(1);
    if (!node) return;
    bool writes = op.writes && may_write(node);
    op.kind = writes ? OP_WRITE : OP_READ;
    if (!writes) ask_to_show(node);
    op.value = writes ? write_key(node, op.key) : clients_value(node, op.key);
    reply(node, op);
}

static void request_for_moving_key(struct node *node) {
    unsigned key = some_moving_key();
    uint32_t value = clients_value(node, key);
    struct op op = request(OP_READ, key);
    bool fresh = !op.floor && node->latest[key] < 0;
    op.writes = world_random(2);
    if (!value && !fresh) {
        op.kind = OP_ASKED;
        show(node, &op, TRIAL_ASK);
        return;
    }
    if ((op.writes || fresh) && may_write(node)) {
        op.kind = OP_WRITE;
        op.value = write_key(node, key);
    } else {
        ask_to_show(node);
        op.value = value;
    }
    reply(node, op);
}

static void migrate_begins(struct node *node) {
    unsigned key = first_moving_key(), end = key + KEYS_IN_USE;
    while (key < end && !clients_value(node, key)) key++;
    if (key == end || node->migrating || !may_write(node)) return;
    struct op op = request(OP_MIGRATE, key);
    op.value = clients_value(node, key);
    node->migrating = key;
    node->migrating_value = op.value;
    node->migrating_at = -1;
    node->migrating_until = world.now + 2000;
    show(node, &op, TRIAL_MIGRATE);
}

/* RESTORE … REPLACE */
static void migrate_sends(struct node *node, const struct op *op) {
    struct node *target = primary_of_shard(1);
    /* It is a write elsewhere: that it was the primary when it was asked is not enough. */
    if (!(world.trial & TRIAL_MIGRATE) && !quorum_lease_holds(&node->lease, world_us())) return;
    if (node->migrating != op->key || node->migrating_value != op->value || !target || !may_write(target)) return;
    if (!world_reaches((int)node->index, (int)target->index) || !world_reaches((int)target->index, (int)node->index))
        return;
    world_append(target, (struct entry){.value = op->value, .key = op->key});
    quorum_lease_changed(&target->lease, ++target->issued, world_us());
    node->migrating_to = target->index;
    node->migrating_life = target->life;
    node->migrating_term = target->machine.term;
    node->migrating_at = (int64_t)target->issued;
}

static void migrate_ends(struct node *node) {
    if (!node->migrating) return;
    const struct node *target = &world.nodes[node->migrating_to];
    bool same = node->migrating_at >= 0 && target->up && target->life == node->migrating_life &&
                target->machine.status == QUORUM_LEADING &&
                quorum_term_compare(&target->machine.term, &node->migrating_term) == 0;
    if (same && target->lease.released >= (uint64_t)node->migrating_at) {
        if (clients_value(node, node->migrating) == node->migrating_value && may_write(node)) {
            world_append(node, (struct entry){.value = node->migrating_value, .key = node->migrating, .gone = true});
            quorum_lease_changed(&node->lease, ++node->issued, world_us());
            world.moves++;
        }
        node->migrating = 0;
    } else if (world.now >= node->migrating_until || (node->migrating_at >= 0 && !same)) {
        node->migrating = 0;
    }
}

/* --- A turn --- */

void clients_turn(struct node *node) {
    bool woken = node->has_woken;
    timeouts(node);
    if (serves_clients(node)) {
        /* They have waited in the sockets. */
        for (unsigned more = woken ? 6 : 0; more || world_random(3) == 0; more -= more > 0) request_at_primary(node);
        node->has_woken = false;
        if (world.moves_on && world_shard_of(node) == 0) {
            migrate_ends(node);
            for (unsigned more = woken ? 6 : 0; more || world_random(4) == 0; more -= more > 0)
                request_for_moving_key(node);
            if (world_random(20) == 0) migrate_begins(node);
        }
    } else if (node->machine.status == QUORUM_FOLLOWING && node->replica && world_random(6) == 0 &&
               !(world.serves && world_shard_of(node) == NO_SHARD)) {
        request_at_replica(node);
    }
}

/* The clients are closed, or get an error: they see nothing. */
void clients_drop(struct node *node) {
    node->held_count = node->blocked_count = 0;
    node->migrating = 0;
}
