/* slot_stats.c: CLUSTER SLOT-STATS: keys of each slot, and with cluster-slot-stats-enabled its time and bytes.
 *
 * While the option is on, the calls of clients are observed: a call counts for the slot that redirection has found. As
 * in Valkey:
 *  - Requests that are refused or queued add their bytes, too.
 *  - A script or a transaction is one call, for the time. A command of a script adds its reply to the slot of its keys;
 *    the script itself counts for the slot of the last command, or for none if it may use several slots. A command of
 *    a transaction adds all that EXEC has replied so far.
 *  - Bytes out are replies, messages of shard channels, and the stream to each replica, without the SELECT in it, and
 *    without what a script that may use several slots has changed.
 *  - A replica counts the commands of its primary's stream.
 * The statistics of a slot begin again when it gets another owner. Without the option nothing listens. */
#include "cluster/slot_stats.h"
#include "cluster/settings.h"
#include "cluster/redirect.h"
#include "cluster/subcommand.h"
#include "cluster/this_node.h"
#include "lib/system/memory.h"
#include "lib/system/ticks.h"
#include "lib/text/number.h"
#include "repl/primary/replicas.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/script_hooks.h"
#include "server/server.h"
#include <stdlib.h>

enum { MULTI_BYTES = 15 /* of the request that EXEC completes */ };

static struct costs { uint64_t us, bytes_in, bytes_out; } * costs; /* of each slot; NULL: the option is off */
static uint64_t replied;  /* by the client of the outermost call, when it began */
static int own_slot;      /* that the outermost call counts for; -1: for none */
static bool call_watched; /* not for an EXEC that has switched the option on */

/* --- Counting --- */

static void before_call(struct call *call) {
    if (dispatch_is_nested()) return;
    call_watched = true;
    own_slot = call->slot;
    if (call->client->conn) replied = client_reply_bytes(call->client);
}

static bool any_slot(void) {
    return script_hooks && script_hooks->any_slot();
}

static size_t digits(size_t number) {
    char text[NUMBER_TEXT_MAX];
    return format_uint64(text, number);
}
static size_t request_size(int argc, const struct slice *argv) {
    enum { FRAME = 3 /* type and line end */ };
    size_t bytes = FRAME + digits((size_t)argc);
    for (int i = 0; i < argc; i++) bytes += FRAME + digits(argv[i].len) + argv[i].len + 2;
    return bytes;
}

static void stopped(struct client *client, const struct command *command, size_t size) {
    if (command->spec->flags & CMD_RUNS_QUEUED) return;
    int slot = redirect_slot(command, client->reader.argc, client->reader.argv);
    if (slot >= 0) costs[slot].bytes_in += size;
}

/* What a call that took `ticks` has added to the whole microseconds of its command: so the slots have the sum of INFO
 * commandstats. */
static uint64_t call_us(const struct command *command, uint64_t ticks) {
    uint64_t before = command->ticks >= ticks ? command->ticks - ticks : 0; /* else it has reset the statistics */
    return ticks_to_us(before + ticks) - ticks_to_us(before);
}

static void wait_ended(int slot, const struct command *command, uint64_t ticks) {
    if (slot >= 0) costs[slot].us += call_us(command, ticks);
}

static void count_stream(const struct call *call, uint64_t ticks) {
    bool executes = call->command->spec->flags & CMD_RUNS_QUEUED;
    int slot = executes ? own_slot : redirect_slot(call->command, call->argc, call->argv);
    if (dispatch_is_nested()) {
        own_slot = slot; /* EXEC counts for the slot of its last command */
    } else if (slot >= 0) {
        costs[slot].bytes_in += request_size(call->argc, call->argv) + (executes ? MULTI_BYTES : 0);
        costs[slot].us += call_us(call->command, ticks);
    }
}

static void count_request(struct costs *of, const struct call *call) {
    struct client *client = call->client;
    if (client->flags & CLIENT_CALLED_AGAIN) {
        of->bytes_in += blocking_request_size(client);
        of->bytes_out += client_reply_bytes(client) - client->produced; /* its reply has just begun */
        return;
    }
    of->bytes_in += request_wire_size(&client->reader);
    if (call->command->spec->flags & CMD_RUNS_QUEUED) of->bytes_in += MULTI_BYTES;
    of->bytes_out += client_reply_bytes(client) - replied;
}

static void after_call(struct call *call, uint64_t ticks) {
    const struct client *client = call->client;
    if (!call_watched || call->blocked) return;
    if (client->flags & CLIENT_INTERNAL) {
        const struct memory_output *replies = container_of(call->reply->out, struct memory_output, out);
        if (call->slot >= 0) costs[call->slot].bytes_out += memory_output_slice(replies).len;
        own_slot = any_slot() ? -1 : call->slot;
        return;
    }
    if (!client->conn) return;
    if (client->flags & CLIENT_PRIMARY) {
        count_stream(call, ticks);
        return;
    }
    int slot = client->flags & CLIENT_CALLED_AGAIN ? call->slot : own_slot;
    if (slot < 0) return;
    struct costs *of = &costs[slot];
    if (dispatch_is_nested()) {
        of->bytes_out += client_reply_bytes(client) - replied;
    } else if (!(call->command->spec->flags & CMD_RUNS_QUEUED) || !client->reply.failed) { /* not EXECABORT */
        of->us += call_us(call->command, ticks);
        count_request(of, call);
    }
}
static struct call_listener call_listener = {.before = before_call, .after = after_call, .again = true};

static void count_propagation(struct propagation_listener *self, const struct propagation *propagation) {
    const struct client *client = dispatch_requester();
    if (propagation->slot < 0 || !replicas.len || any_slot()) return;
    if (client && client->flags & CLIENT_CALLED_AGAIN) return;
    costs[propagation->slot].bytes_out += request_size(propagation->argc, propagation->argv) * replicas.len;
}
static struct propagation_listener propagation_listener = {.command = count_propagation, .target = PROPAGATE_REPLICAS};

void slot_stats_delivered(unsigned slot, size_t bytes) {
    if (costs) costs[slot].bytes_out += bytes;
}

static void slot_moved(unsigned slot, const struct cluster_node *from, const struct cluster_node *to) {
    if (costs) costs[slot] = (struct costs){0};
}
static struct cluster_listener listener = {.slot_moved = slot_moved};

void slot_stats_reset(void) {
    if (costs) memset(costs, 0, HASH_SLOTS * sizeof(*costs));
}

void slot_stats_configure(void) {
    if (!this_cluster || cluster_options.slot_stats == (costs != NULL)) return;
    if (costs) {
        mem_free(costs);
        costs = NULL;
        call_unlisten(&call_listener);
        propagate_unlisten(&propagation_listener);
        dispatch_stopped = NULL;
        blocking_ended = NULL;
    } else {
        costs = mem_calloc(HASH_SLOTS, sizeof(*costs));
        call_watched = false;
        call_listen(&call_listener);
        propagate_listen(&propagation_listener);
        dispatch_stopped = stopped;
        blocking_ended = wait_ended;
    }
}

void slot_stats_start(void) {
    cluster_listen(&listener);
    slot_stats_configure();
}

/* --- CLUSTER SLOT-STATS --- */

enum slot_metric { METRIC_KEYS, METRIC_CPU, METRIC_IN, METRIC_OUT, METRICS };
static const char *const metric_names[METRICS] = {"key-count", "cpu-usec", "network-bytes-in", "network-bytes-out"};

static uint64_t metric_of(unsigned slot, enum slot_metric metric) {
    uint64_t keys = 0;
    switch (metric) {
    case METRIC_CPU: return costs[slot].us;
    case METRIC_IN: return costs[slot].bytes_in;
    case METRIC_OUT: return costs[slot].bytes_out;
    default:
        for (int id = 0; id < keyspace_databases(server.keyspace); id++)
            keys += db_slot_size(keyspace_db(server.keyspace, id), slot).keys;
        return keys;
    }
}

static void reply_slot(struct reply *reply, unsigned slot) {
    enum slot_metric count = costs ? METRICS : METRIC_KEYS + 1;
    reply_array(reply, 2);
    reply_integer(reply, slot);
    reply_map(reply, (size_t)count);
    for (enum slot_metric metric = 0; metric < count; metric++) {
        reply_bulk_text(reply, metric_names[metric]);
        reply_integer(reply, (int64_t)metric_of(slot, metric));
    }
}

static bool is_own(unsigned slot) {
    const struct cluster_node *owner = this_cluster->slots.owner[slot];
    return owner && owner == cluster_shard_primary(this_cluster);
}

static void reply_range(struct call *call) {
    unsigned first, last;
    if (!cluster_slot_read(call, 3, &first) || !cluster_slot_read(call, 4, &last)) return;
    if (first > last) {
        reply_error_format(call->reply, "ERR Start slot number %u is greater than end slot number %u", first, last);
        return;
    }
    size_t count = 0;
    for (unsigned slot = first; slot <= last; slot++) count += is_own(slot);
    reply_array(call->reply, count);
    for (unsigned slot = first; slot <= last; slot++)
        if (is_own(slot)) reply_slot(call->reply, slot);
}

struct order {
    enum slot_metric metric;
    int64_t limit;
    bool ascending;
};

static bool order_read(struct call *call, struct order *order) {
    enum slot_metric known = costs ? METRICS : METRIC_KEYS + 1;
    bool limited = false, directed = false, repeated = false;
    *order = (struct order){.limit = HASH_SLOTS};
    while (order->metric < known && !slice_is(call->argv[3], metric_names[order->metric])) order->metric++;
    if (order->metric == known) return reply_error(call->reply, "ERR Unrecognized sort metric for ORDERBY.");
    for (int i = 4; i < call->argc; i++) {
        if (slice_is(call->argv[i], "limit") && i + 1 < call->argc) {
            if (!parse_int64(call->argv[++i], &order->limit) || order->limit < 1 || order->limit > HASH_SLOTS)
                return reply_error(call->reply,
                                   "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).");
            repeated |= limited;
            limited = true;
        } else if (slice_is(call->argv[i], "asc") || slice_is(call->argv[i], "desc")) {
            order->ascending = slice_is(call->argv[i], "asc");
            repeated |= directed;
            directed = true;
        } else {
            return reply_syntax_error(call->reply);
        }
        if (repeated) return reply_error(call->reply, "ERR Multiple filters of the same type are disallowed.");
    }
    return true;
}

struct ranked {
    unsigned slot;
    uint64_t value;
};
static int compare_ascending(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->slot < y->slot ? -1 : 1;
}
static int compare_descending(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->slot < y->slot ? -1 : 1;
}

static void reply_ordered(struct call *call) {
    struct order order;
    if (!order_read(call, &order)) return;
    struct ranked *ranked = mem_alloc(HASH_SLOTS * sizeof(*ranked));
    size_t count = 0;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (is_own(slot)) ranked[count++] = (struct ranked){slot, metric_of(slot, order.metric)};
    qsort(ranked, count, sizeof(*ranked), order.ascending ? compare_ascending : compare_descending);
    if (count > (size_t)order.limit) count = (size_t)order.limit;
    reply_array(call->reply, count);
    for (size_t i = 0; i < count; i++) reply_slot(call->reply, ranked[i].slot);
    mem_free(ranked);
}

void cluster_slot_stats_run(struct call *call) {
    if (cluster_is_disabled(call)) return;
    if (slice_is(call->argv[2], "slotsrange") && call->argc == 5)
        reply_range(call);
    else if (slice_is(call->argv[2], "orderby"))
        reply_ordered(call);
    else
        cluster_reply_usage(call);
}
