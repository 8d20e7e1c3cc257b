/* commands.c: CLUSTER MIGRATESLOTS, GETSLOTMIGRATIONS, CANCELSLOTMIGRATIONS, SYNCSLOTS, and DEBUG SLOTMIGRATION. */
#include "cluster/copied_owners.h"
#include "cluster/migration/jobs.h"
#include "cluster/slot_commands.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/command/dispatch.h"
#include "server/debug/debug.h"
#include "server/role.h"
#include "server/server.h"
#include <limits.h>
#include <string.h>

/* --- Arguments --- */

struct ranges {
    size_t count;
    struct slot_bitmap slots;
    uint16_t list[HASH_SLOTS][2];
};

static bool is_number(struct slice text) {
    int64_t number;
    return parse_int64(text, &number);
}

/* Adds a range. False: it was refused. With `owner`, all slots must be those of one node, which becomes *owner. */
static bool range_add(struct call *call, struct ranges *ranges, unsigned first, unsigned last,
                      struct cluster_node **owner) {
    if (first > last) {
        reply_error_format(call->reply, "ERR Start slot number %u is greater than end slot number %u.", first, last);
        return false;
    }
    for (unsigned slot = first; owner && slot <= last; slot++) {
        struct cluster_node *node = this_cluster->slots.owner[slot];
        if (!node) {
            reply_error_format(call->reply, "ERR Slot %u has no node served.", slot);
            return false;
        }
        if (*owner && *owner != node) {
            reply_error(call->reply, "ERR Requested slots span multiple shards");
            return false;
        }
        *owner = node;
    }
    for (size_t i = 0; i < ranges->count; i++) {
        if (first > ranges->list[i][1] || last < ranges->list[i][0]) continue;
        reply_error_format(call->reply, "ERR Slot range %u-%u overlaps with previous range %u-%u.", first, last,
                           ranges->list[i][0], ranges->list[i][1]);
        return false;
    }
    for (unsigned slot = first; slot <= last; slot++) slot_bitmap_set(&ranges->slots, slot);
    ranges->list[ranges->count][0] = (uint16_t)first;
    ranges->list[ranges->count++][1] = (uint16_t)last;
    return true;
}

/* Reads ranges from argument *at on and moves it behind them. Replies and returns NULL if they are invalid; else
 * returns their owner. */
static struct cluster_node *ranges_read(struct call *call, int *at, struct ranges *ranges) {
    struct cluster_node *owner = NULL;
    ranges->count = 0;
    memset(&ranges->slots, 0, sizeof ranges->slots);
    while (*at < call->argc && is_number(call->argv[*at])) {
        unsigned first, last;
        if (*at + 1 == call->argc) {
            reply_error(call->reply, "ERR No end slot for final slot range");
            return NULL;
        }
        if (!cluster_slot_read(call, *at, &first) || !cluster_slot_read(call, *at + 1, &last) ||
            !range_add(call, ranges, first, last, &owner))
            return NULL;
        *at += 2;
    }
    if (!ranges->count) {
        reply_error(call->reply, "ERR No slot ranges specified");
        return NULL;
    }
    return owner;
}

/* Whatever its characters are: then no node has it. */
static bool is_id(struct slice text, struct node_id *id) {
    if (text.len != NODE_ID_LEN) return false;
    memcpy(id->text, text.data, NODE_ID_LEN);
    return true;
}

/* Whether SETSLOT has opened slots of this node: any, not only those to move. */
static bool any_open(struct call *call) {
    const struct slot_table *slots = &this_cluster->slots;
    if (!slots->importing_count && !slots->migrating_count) return false;
    reply_error(call->reply, slots->importing_count ? "ERR Slots are being manually imported"
                                                    : "ERR Slots are being manually migrated");
    return true;
}

/* --- CLUSTER MIGRATESLOTS --- */

/* The groups of one command. */
struct plan {
    size_t count;
    struct group {
        struct cluster_node *target;
        size_t ranges;
        uint16_t (*list)[2];
    } * groups;
    struct slot_bitmap slots;
};

static void plan_free(struct plan *plan) {
    for (size_t i = 0; i < plan->count; i++) mem_free(plan->groups[i].list);
    mem_free(plan->groups);
}

static bool plan_add(struct call *call, struct plan *plan, const struct ranges *ranges, struct slice name) {
    struct node_id id;
    struct cluster_node *target = is_id(name, &id) ? nodes_find(&this_cluster->nodes, &id) : NULL;
    int shown = name.len > INT_MAX ? INT_MAX : (int)name.len;
    if (!is_id(name, &id)) {
        reply_error_format(call->reply, "ERR Invalid node name: %.*s", shown, name.data);
        return false;
    }
    if (!target || node_in_handshake(target)) {
        reply_error_format(call->reply, "ERR Unknown node name: %.*s", shown, name.data);
        return false;
    }
    if (target == this_cluster->myself) {
        reply_error(call->reply, "ERR Target node can not be this node.");
        return false;
    }
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(&ranges->slots, slot)) continue;
        if (slot_bitmap_has(&plan->slots, slot)) {
            reply_error(call->reply, "ERR Slot ranges in migrations overlap");
            return false;
        }
    }
    for (size_t i = 0; i < sizeof plan->slots.bytes; i++) plan->slots.bytes[i] |= ranges->slots.bytes[i];
    plan->groups = mem_realloc(plan->groups, (plan->count + 1) * sizeof(*plan->groups));
    struct group *group = &plan->groups[plan->count++];
    *group = (struct group){.target = target, .ranges = ranges->count};
    group->list = mem_alloc(ranges->count * sizeof(*group->list));
    memcpy(group->list, ranges->list, ranges->count * sizeof(*group->list));
    return true;
}

static bool any_exported(struct call *call, const struct ranges *ranges) {
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(&ranges->slots, slot) || !job_with_slot(slot, false)) continue;
        reply_error_format(call->reply, "ERR I am already migrating slot %u.", slot);
        return true;
    }
    return false;
}

static bool plan_read(struct call *call, struct plan *plan) {
    static struct ranges ranges;
    for (int at = 2; at < call->argc;) {
        if (!slice_is(call->argv[at++], "slotsrange")) {
            reply_syntax_error(call->reply);
            return false;
        }
        const struct cluster_node *owner = ranges_read(call, &at, &ranges);
        if (!owner || any_exported(call, &ranges)) return false;
        if (owner != this_cluster->myself) {
            reply_error(call->reply, "ERR Slots are not served by this node.");
            return false;
        }
        if (at + 1 >= call->argc || !slice_is(call->argv[at], "node")) {
            reply_syntax_error(call->reply);
            return false;
        }
        if (!plan_add(call, plan, &ranges, call->argv[at + 1])) return false;
        at += 2;
    }
    return true;
}

void migration_migrateslots_run(struct call *call) {
    struct plan plan = {0};
    if (cluster_is_disabled(call)) return;
    if (!node_is_primary(this_cluster->myself)) {
        reply_error(call->reply, "ERR Slot migration can only be used on primary nodes.");
        return;
    }
    if (any_open(call)) return;
    jobs_settle();
    if (plan_read(call, &plan)) {
        for (size_t i = plan.count; i-- > 0;) { /* the first group is shown first */
            const struct group *group = &plan.groups[i];
            struct job *job = export_new(group->target, (const uint16_t(*)[2])group->list, group->ranges);
            log_notice("Slot migration initiated through CLUSTER MIGRATESLOTS command: %s (%s)", job_text(job),
                       cluster_requester(call->client));
        }
        reply_ok(call->reply);
    }
    plan_free(&plan);
}

/* --- CLUSTER GETSLOTMIGRATIONS, CANCELSLOTMIGRATIONS --- */

void migration_getslotmigrations_run(struct call *call) {
    if (cluster_is_disabled(call)) return;
    if (!dispatch_is_nested()) jobs_settle();
    reply_array(call->reply, jobs.len);
    list_each(&jobs, link) job_describe(job_of(link), call->reply);
}

void migration_cancelslotmigrations_run(struct call *call) {
    bool any = false;
    if (cluster_is_disabled(call)) return;
    list_each(&jobs, link) {
        struct job *job = job_of(link);
        if (job->is_import || job_is_over(job) || job->cancelled) continue;
        any = true;
        export_cancel(job);
    }
    if (!any) {
        reply_error(call->reply, "ERR No migrations ongoing");
        return;
    }
    log_notice("Canceled all in progress slot migrations (%s)", cluster_requester(call->client));
    reply_ok(call->reply);
}

/* --- CLUSTER SYNCSLOTS --- */

static bool is_from_primary(const struct call *call) {
    return client_must_be_obeyed(call->client) && !(call->client->flags & CLIENT_MIGRATION);
}

static bool id_after(const struct call *call, const char *word, struct node_id *id) {
    for (int at = 3; at + 1 < call->argc; at++)
        if (slice_is(call->argv[at], word)) return is_id(call->argv[at + 1], id) && node_id_valid(id);
    return false;
}

/* 0: none is named. */
static bool epoch_after(const struct call *call, int64_t *epoch) {
    *epoch = 0;
    for (int at = 3; at + 1 < call->argc; at++)
        if (slice_is(call->argv[at], "epoch")) return parse_int64(call->argv[at + 1], epoch) && *epoch >= 0;
    return true;
}

struct establish {
    struct cluster_node *source;
    struct slice name;
    struct cluster_node *owner;
};

static bool establish_read_source(struct call *call, int at, struct cluster_node **source) {
    struct node_id id;
    if (!is_id(call->argv[at], &id)) {
        reply_syntax_error(call->reply);
        return false;
    }
    *source = nodes_find(&this_cluster->nodes, &id);
    if (*source && *source != this_cluster->myself) return true;
    reply_error(call->reply,
                *source ? "ERR Source node is target node itself" : "ERR Target node does not know the source node");
    return false;
}

static bool establish_read(struct call *call, struct establish *request, struct ranges *ranges) {
    for (int at = 3; at < call->argc;) {
        bool more = at + 1 < call->argc;
        if (!request->source && slice_is(call->argv[at], "source") && more) {
            if (!establish_read_source(call, at + 1, &request->source)) return false;
            at += 2;
        } else if (!request->name.len && slice_is(call->argv[at], "name") && more &&
                   call->argv[at + 1].len == JOB_NAME_LEN) {
            request->name = call->argv[at + 1];
            at += 2;
        } else if (!request->owner && slice_is(call->argv[at], "slotsrange")) {
            at++;
            request->owner = ranges_read(call, &at, ranges);
            if (!request->owner) return false;
        } else {
            reply_syntax_error(call->reply);
            return false;
        }
    }
    if (request->source && request->name.len && request->owner) return true;
    reply_syntax_error(call->reply);
    return false;
}

/* Reads what a primary or a file says: its cluster may have changed since, so only the form counts. */
static bool establish_read_tracked(struct call *call, struct slice *name, struct ranges *ranges) {
    *name = SLICE("");
    ranges->count = 0;
    memset(&ranges->slots, 0, sizeof ranges->slots);
    for (int at = 3; at < call->argc;) {
        if (slice_is(call->argv[at], "slotsrange")) {
            at++;
            for (; at + 1 < call->argc && is_number(call->argv[at]); at += 2) {
                unsigned first, last;
                if (!cluster_slot_read(call, at, &first) || !cluster_slot_read(call, at + 1, &last) ||
                    !range_add(call, ranges, first, last, NULL))
                    return false;
            }
            continue;
        }
        if (slice_is(call->argv[at], "name") && at + 1 < call->argc) *name = call->argv[at + 1];
        at += 2;
    }
    if (name->len == JOB_NAME_LEN && ranges->count) return true;
    reply_syntax_error(call->reply);
    return false;
}

/* GRANT or MOVED NAME job TARGET id EPOCH epoch SLOTSRANGE a b …: from the stream of a primary, or a file. */
static void grant_run(struct call *call, bool moved) {
    static struct ranges ranges;
    struct slice name;
    struct node_id target, shard;
    int64_t epoch;
    if (!is_from_primary(call) || !id_after(call, "target", &target) || !id_after(call, "shard", &shard) ||
        !epoch_after(call, &epoch)) {
        reply_syntax_error(call->reply);
        return;
    }
    if (!establish_read_tracked(call, &name, &ranges)) return;
    if (moved)
        copied_owner_heard(&target, (uint64_t)epoch, &ranges.slots);
    else
        granted_track(name, &target, &shard, (uint64_t)epoch, (const uint16_t(*)[2])ranges.list, ranges.count);
    call_propagate(call, call->argc, call->argv);
    reply_ok(call->reply);
}

/* OUTCOME SOURCE id NAME job SHARD id [EPOCH epoch] SLOTSRANGE a b …: from the leader of the source's shard. */
static void outcome_run(struct call *call) {
    static struct ranges ranges;
    struct slice name;
    struct node_id source, shard;
    int64_t epoch;
    if (!id_after(call, "source", &source) || !id_after(call, "shard", &shard) || !epoch_after(call, &epoch)) {
        reply_syntax_error(call->reply);
        return;
    }
    if (!establish_read_tracked(call, &name, &ranges)) return;
    if (node_id_equal(&shard, &this_cluster->myself->shard))
        import_asked(call, &source, name, &ranges.slots, (uint64_t)epoch);
    else
        reply_error(call->reply, "ERR This node is in another shard");
}

static const char *establish_refusal(const struct establish *request, const struct ranges *ranges) {
    if (request->owner != request->source) return "ERR Target node does not agree about current slot ownership";
    const struct job *known = job_find(request->name); /* replicas tell jobs apart by their names */
    if (known && !job_is_over(known)) return "ERR A slot migration with this name is in progress";
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(&ranges->slots, slot)) continue;
        if (job_with_slot(slot, true))
            return "ERR Slot is already being imported on the target by a different migration";
        if (this_cluster->effects->keys_in_slot(this_cluster->context, slot))
            return "ERR Target node holds keys of a slot that it does not serve";
    }
    return NULL;
}

static void establish_run(struct call *call) {
    static struct ranges ranges;
    struct establish request = {.name = SLICE("")};
    if (is_from_primary(call)) {
        if (!establish_read_tracked(call, &request.name, &ranges)) return;
        import_track(request.name, (const uint16_t(*)[2])ranges.list, ranges.count);
        call_propagate(call, call->argc, call->argv);
        reply_ok(call->reply);
        return;
    }
    if (!node_is_primary(this_cluster->myself)) {
        reply_error(call->reply, "ERR Slot migration can only be used on primary nodes.");
        return;
    }
    if (!call->client->conn || call->client->flags & (CLIENT_DENY_BLOCKING | CLIENT_MIGRATION)) {
        reply_syntax_error(call->reply);
        return;
    }
    if (any_open(call)) return;
    jobs_settle();
    if (!establish_read(call, &request, &ranges)) return;
    const char *refused = establish_refusal(&request, &ranges);
    if (refused) {
        reply_error(call->reply, refused);
        return;
    }
    import_establish(call, request.source, request.name, (const uint16_t(*)[2])ranges.list, ranges.count);
}

/* TAKE NAME job: from the stream of a primary, or a file. */
static void take_run(struct call *call) {
    if (!is_from_primary(call) || call->argc != 5 || !slice_is(call->argv[3], "name"))
        reply_syntax_error(call->reply);
    else
        import_take_tracked(call, call->argv[4]);
}

/* FINISH STATE state NAME job [MESSAGE text] [EPOCH epoch] */
static void finish_run(struct call *call) {
    struct slice name = SLICE(""), message = SLICE("");
    enum job_state state = JOB_FAILED;
    int64_t epoch = 0;
    bool stated = false;
    for (int at = 3; at < call->argc; at += 2) {
        if (at + 1 == call->argc) {
            reply_syntax_error(call->reply);
            return;
        }
        struct slice value = call->argv[at + 1];
        if (slice_is(call->argv[at], "state")) {
            state = slice_is(value, "success")     ? JOB_SUCCESS
                    : slice_is(value, "cancelled") ? JOB_CANCELLED
                                                   : JOB_FAILED;
            stated = true;
        } else if (slice_is(call->argv[at], "name")) {
            name = value;
        } else if (slice_is(call->argv[at], "message")) {
            message = value;
        } else if (!slice_is(call->argv[at], "epoch") || !parse_int64(value, &epoch) || epoch < 0) {
            reply_syntax_error(call->reply);
            return;
        }
    }
    if (!stated || name.len != JOB_NAME_LEN) {
        reply_syntax_error(call->reply);
        return;
    }
    if (!client_must_be_obeyed(call->client) || call->client->flags & CLIENT_MIGRATION) {
        reply_error(call->reply, "ERR No such slot migration job");
        return;
    }
    import_finish_tracked(call, name, state, message, (uint64_t)epoch);
}

void migration_syncslots_run(struct call *call) {
    static const char *const of_a_job[] = {"ACK",    "SNAPSHOT-EOF",     "REQUEST-PAUSE",
                                           "PAUSED", "REQUEST-FAILOVER", "FAILOVER-GRANTED"};
    if (cluster_is_disabled(call)) return;
    struct slice name = call->argv[2];
    struct job *job = call->client->flags & CLIENT_MIGRATION ? job_of_client(call->client) : NULL;
    if (slice_is(name, "establish")) {
        establish_run(call);
        return;
    }
    if (slice_is(name, "finish")) {
        finish_run(call);
        return;
    }
    if (slice_is(name, "grant") || slice_is(name, "moved")) {
        grant_run(call, slice_is(name, "moved"));
        return;
    }
    if (slice_is(name, "take")) {
        take_run(call);
        return;
    }
    if (slice_is(name, "outcome")) {
        outcome_run(call);
        return;
    }
    if (job) {
        import_message(call, job, name);
        return;
    }
    if (slice_is(name, "chunk") && is_from_primary(call)) {
        chunk_run(call, NULL);
        return;
    }
    for (size_t i = 0; i < sizeof of_a_job / sizeof *of_a_job; i++) {
        if (!slice_is(name, of_a_job[i])) continue;
        /* A primary that is Valkey passes on everything that came from the source. */
        if (client_must_be_obeyed(call->client))
            reply_ok(call->reply);
        else
            reply_error_format(call->reply, "ERR CLUSTER SYNCSLOTS %s should only be used by slot migration clients",
                               of_a_job[i]);
        return;
    }
    if (!slice_is(name, "capa")) reply_syntax_error(call->reply); /* CAPA gets no reply */
}

/* --- DEBUG SLOTMIGRATION --- */

void migration_debug_run(struct call *call) {
    int64_t value = 0;
    bool on = parse_int64(call->argv[3], &value) && value != 0;
    if (slice_is(call->argv[2], "prevent-pause")) {
        migration_settings.prevent_pause = on;
    } else if (slice_is(call->argv[2], "prevent-failover")) {
        migration_settings.prevent_failover = on;
    } else {
        debug_reply_unknown(call);
        return;
    }
    reply_ok(call->reply);
}
