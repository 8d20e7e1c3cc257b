/* setslot.c: CLUSTER SETSLOT: opens a slot for a migration key by key, closes it, or gives it to a node.
 *
 * The state of an open slot is not part of the data set, and the other nodes do not know it. But a replica that takes
 * over in the middle of a migration needs it: a full copy has it in a field, and afterwards a primary sends the command
 * to its replicas first, and executes it when all of them have acknowledged it. If they do not within the timeout, the
 * primary changes nothing.
 *
 * Within a transaction or a script a client cannot wait: the command is sent to the replicas, and executed. */
#include "cluster/setslot.h"
#include "cluster/migration/migration.h"
#include "cluster/redirect.h"
#include "cluster/saved_reply.h"
#include "cluster/commands.h"
#include "cluster/this_node.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "repl/primary/replicas.h"
#include "repl/primary/wait.h"
#include "repl/feed.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/command/propagate.h"
#include "server/role.h"

enum { TIMEOUT_MS = 2000, VERSION_MIN = 0x070300 /* older replicas do not take the command from the stream */ };

struct setslot_request {
    enum slot_change change;
    unsigned slot;
    struct slice node;
    int64_t timeout_ms;
};

/* A client that waits for replicas. */
struct setslot_waiting {
    struct client *client;
    struct list_link link;
    size_t replicas;
    int64_t offset; /* of the stream behind the command; -1: at the end of this turn */
};
static struct list waits = LIST_INIT(waits);

static void wait_end(void *state) {
    struct setslot_waiting *waiting = state;
    list_remove(&waits, &waiting->link);
    mem_free(waiting);
}

static bool migration_refuses(struct call *call, int slot) {
    bool imports = migration_excludes_setslot(slot, true);
    if (!imports && !migration_excludes_setslot(slot, false)) return false;
    reply_error(call->reply, imports ? "ERR Slot import in progress." : "ERR Slot export in progress.");
    return true;
}

static bool change_read(struct call *call, struct setslot_request *request) {
    static const struct {
        const char *name;
        enum slot_change change;
        int arguments;
    } changes[] = {{"migrating", SLOT_MIGRATING, 5},
                   {"importing", SLOT_IMPORTING, 5},
                   {"stable", SLOT_STABLE, 4},
                   {"node", SLOT_NODE, 5}};
    *request = (struct setslot_request){.timeout_ms = TIMEOUT_MS};
    if (migration_refuses(call, -1) || !cluster_slot_read(call, 2, &request->slot)) return false;
    int next = 0;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        if (!slice_is(call->argv[3], changes[i].name) || call->argc < changes[i].arguments) continue;
        next = changes[i].arguments;
        request->change = changes[i].change;
    }
    if (!next)
        return reply_error(call->reply, "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP");
    if (request->change != SLOT_STABLE) request->node = call->argv[4];
    if (migration_refuses(call, (int)request->slot)) return false;
    const char *refused = cluster_check_slot_change(this_cluster, request->change, request->slot, request->node);
    if (refused) return reply_error_format(call->reply, "ERR %s", refused);
    for (; next < call->argc; next++) {
        if (!slice_is(call->argv[next], "timeout")) continue;
        if (++next == call->argc) return reply_error(call->reply, "ERR Missing timeout value");
        if (!call_timeout_milliseconds(call, next, &request->timeout_ms)) return false;
    }
    return true;
}

static void execute(struct call *call, const struct setslot_request *request) {
    struct node_id id;
    if (request->node.len == sizeof(id.text)) memcpy(id.text, request->node.data, sizeof(id.text));
    int64_t now = cluster_now();
    const char *error = NULL;
    switch (request->change) {
    case SLOT_MIGRATING: error = cluster_set_slot_migrating(this_cluster, request->slot, &id, now); break;
    case SLOT_IMPORTING: error = cluster_set_slot_importing(this_cluster, request->slot, &id, now); break;
    case SLOT_STABLE: cluster_set_slot_stable(this_cluster, request->slot, now); break;
    case SLOT_NODE: error = cluster_set_slot_node(this_cluster, request->slot, &id, now); break;
    }
    redirect_check_waits(); /* the slot is not imported any more */
    if (error)
        reply_error_format(call->reply, "ERR %s", error);
    else
        saved_reply(call, "OK");
}

/* Counts the replicas that must acknowledge the command. A replica that is being copied to finds it in its stream,
 * too, or finds the state of the slot in its copy. False: one of them is too old for it. */
static bool replicas_take_it(size_t *online) {
    *online = 0;
    list_each_entry(&replicas, const struct replica, link, replica) {
        if (replica->announced.version < VERSION_MIN) return false;
        *online += replica_is_online(replica);
    }
    return true;
}

static void wait_begin(struct call *call, size_t count, int64_t timeout_ms) {
    struct setslot_waiting *waiting = mem_alloc(sizeof(*waiting));
    *waiting = (struct setslot_waiting){.client = call->client, .replicas = count, .offset = -1};
    list_append(&waits, &waiting->link);
    call_block(call,
               &(struct blocking){.timeout_ms = timeout_ms, .call_at_end = true, .state = waiting, .ended = wait_end});
}

void cluster_setslot_run(struct call *call) {
    struct client *client = call->client;
    struct setslot_request request;
    if (cluster_is_disabled(call) || saved_reply_continues(call)) return;
    const struct setslot_waiting *waiting = call_wait(call, wait_end);
    bool acknowledged = waiting && waiting->offset >= 0 && repl_replicas_at(waiting->offset) >= waiting->replicas;
    bool gives_up = client->flags & CLIENT_DENY_BLOCKING;
    if (waiting && !acknowledged) {
        if (gives_up)
            reply_error(call->reply, "NOREPLICAS Not enough good replicas to write.");
        else
            call_block(call, &(struct blocking){.call_at_end = true});
        return;
    }
    if (node_is_replica(this_cluster->myself) && !client_must_be_obeyed(client)) {
        reply_error(call->reply, "ERR Please use SETSLOT only with masters.");
        return;
    }
    if (!change_read(call, &request)) return;
    if (!acknowledged && !client_must_be_obeyed(client)) {
        size_t online;
        bool all = replicas_take_it(&online);
        if (all) propagate_message(db_id(call->db), call->argc, call->argv);
        if (all && online && !gives_up && client->conn) {
            wait_begin(call, online, request.timeout_ms);
            return;
        }
    }
    execute(call, &request);
}

/* Open slots in the copy of a replica: "6000<ID,5062>ID," for importing and migrating. */

static const char aux_name[] = "cluster-slot-states";

size_t setslot_write_aux(struct rdb_aux *field) {
    static struct memory_output states;
    const struct slot_table *slots = &this_cluster->slots;
    char number[NUMBER_TEXT_MAX];
    if (!slots->migrating_count && !slots->importing_count) return 0;
    if (!states.out.ops) memory_output_init(&states);
    memory_output_clear(&states);
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        const struct cluster_node *source = slots_importing_from(slots, slot),
                                  *target = slots_migrating_to(slots, slot);
        if (!source && !target) continue;
        output_write(&states.out, (struct slice){number, format_int64(number, slot)});
        output_write(&states.out, source ? SLICE("<") : SLICE(">"));
        output_write(&states.out, slice_make((source ? source : target)->id.text, sizeof(struct node_id)));
        output_write(&states.out, SLICE(","));
    }
    *field = (struct rdb_aux){slice_of(aux_name), memory_output_slice(&states)};
    return 1;
}

/* The primary may have closed slots while the replica was away, and a copy names only those that are open. A slot that
 * stays open here would become a redirection to nowhere when this replica takes over. */
void setslot_copy_begins(void) {
    const struct slot_table *slots = &this_cluster->slots;
    if (!node_is_replica(this_cluster->myself)) return;
    for (unsigned slot = 0; slot < HASH_SLOTS && slots->migrating_count + slots->importing_count > 0; slot++)
        if (slots_is_open(slots, slot)) cluster_set_slot_stable(this_cluster, slot, cluster_now());
}

/* Entries that do not fit what this node knows of the cluster are left out. */
void setslot_read_aux(struct slice name, struct slice states) {
    if (!slice_is(name, aux_name) || !node_is_replica(this_cluster->myself)) return;
    const char *at = states.data, *end = at + states.len;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        if (!comma) return;
        struct slice entry = {at, (size_t)(comma - at)};
        int64_t slot;
        struct node_id id;
        at = comma + 1;
        if (entry.len <= sizeof(id.text) + 1) continue;
        size_t digits = entry.len - sizeof(id.text) - 1;
        if (!parse_int64((struct slice){entry.data, digits}, &slot) || slot < 0 || slot >= HASH_SLOTS) continue;
        memcpy(id.text, entry.data + digits + 1, sizeof(id.text));
        if (entry.data[digits] == '>')
            cluster_set_slot_migrating(this_cluster, (unsigned)slot, &id, cluster_now());
        else if (entry.data[digits] == '<')
            cluster_set_slot_importing(this_cluster, (unsigned)slot, &id, cluster_now());
    }
}

static void setslot_before_wait(void) {
    if (__builtin_expect(!waits.len, 1)) return;
    bool asks = false;
    list_each_entry(&waits, struct setslot_waiting, link, waiting) {
        if (waiting->offset < 0) {
            waiting->offset = role->position.offset;
            asks = true;
        } else if (repl_replicas_at(waiting->offset) >= waiting->replicas) {
            blocking_call_again(waiting->client);
        }
    }
    if (asks) repl_feed_getack();
}
const struct server_part setslot_part = {.name = "cluster-setslot", .before_wait = setslot_before_wait};
