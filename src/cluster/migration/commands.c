/* commands.c: CLUSTER MIGRATESLOTS, GETSLOTMIGRATIONS, CANCELSLOTMIGRATIONS, SYNCSLOTS, and DEBUG SLOTMIGRATION. */
#include "cluster/copied_owners.h"
#include "cluster/migration/chunk.h"
#include "cluster/migration/link.h"
#include "cluster/migration/migration.h"
#include "cluster/migration/source_stream.h"
#include "cluster/migration/target_link.h"
#include "cluster/slot_keys.h"
#include "cluster/subcommand.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "server/command/dispatch.h"
#include "server/debug/debug.h"
#include "server/command/command.h"
#include "server/cluster_hooks.h"
#include <limits.h>
#include <string.h>

/* --- Arguments --- */

static bool is_number(struct slice text) {
    int64_t number;
    return parse_int64(text, &number);
}

/* Adds a range. False: it was refused. With `owner`, all slots must be those of one node, which becomes *owner. */
static bool range_add(struct call *call, struct slot_ranges *ranges, unsigned first, unsigned last,
                      struct cluster_node **owner) {
    if (first > last)
        return reply_error_format(call->reply, "ERR Start slot number %u is greater than end slot number %u.", first,
                                  last);
    for (unsigned slot = first; owner && slot <= last; slot++) {
        struct cluster_node *node = this_cluster->slots.owner[slot];
        if (!node) return reply_error_format(call->reply, "ERR Slot %u has no node served.", slot);
        if (*owner && *owner != node) return reply_error(call->reply, "ERR Requested slots span multiple shards");
        *owner = node;
    }
    for (size_t i = 0; i < ranges->count; i++) {
        if (first > ranges->list[i][1] || last < ranges->list[i][0]) continue;
        return reply_error_format(call->reply, "ERR Slot range %u-%u overlaps with previous range %u-%u.", first, last,
                                  ranges->list[i][0], ranges->list[i][1]);
    }
    return slot_ranges_add(ranges, first, last);
}

/* Reads ranges from argument *at on and moves it behind them. Replies and returns NULL if they are invalid; else
 * returns their owner. */
static struct cluster_node *ranges_read(struct call *call, int *at, struct slot_ranges *ranges) {
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

/* The length only: no node has an id with other characters. */
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
struct migration_plan {
    size_t count;
    struct slot_group {
        struct cluster_node *target;
        struct slot_ranges *ranges;
    } * groups;
    struct slot_bitmap slots;
};

static void plan_free(struct migration_plan *plan) {
    for (size_t i = 0; i < plan->count; i++) mem_free(plan->groups[i].ranges);
    mem_free(plan->groups);
}

static bool plan_add(struct call *call, struct migration_plan *plan, const struct slot_ranges *ranges,
                     struct slice name) {
    struct node_id id;
    struct cluster_node *target = is_id(name, &id) ? nodes_find(&this_cluster->nodes, &id) : NULL;
    int shown = name.len > INT_MAX ? INT_MAX : (int)name.len;
    if (!is_id(name, &id)) return reply_error_format(call->reply, "ERR Invalid node name: %.*s", shown, name.data);
    if (!target || node_in_handshake(target))
        return reply_error_format(call->reply, "ERR Unknown node name: %.*s", shown, name.data);
    if (target == this_cluster->myself) return reply_error(call->reply, "ERR Target node can not be this node.");
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(&ranges->slots, slot)) continue;
        if (slot_bitmap_has(&plan->slots, slot))
            return reply_error(call->reply, "ERR Slot ranges in migrations overlap");
    }
    for (size_t i = 0; i < sizeof plan->slots.bytes; i++) plan->slots.bytes[i] |= ranges->slots.bytes[i];
    plan->groups = mem_realloc(plan->groups, (plan->count + 1) * sizeof(*plan->groups));
    struct slot_group *group = &plan->groups[plan->count++];
    *group = (struct slot_group){.target = target, .ranges = mem_alloc(sizeof(*group->ranges))};
    *group->ranges = *ranges;
    return true;
}

static bool any_exported(struct call *call, const struct slot_ranges *ranges) {
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(&ranges->slots, slot) || !export_with_slot(&migrations, slot)) continue;
        reply_error_format(call->reply, "ERR I am already migrating slot %u.", slot);
        return true;
    }
    return false;
}

static bool plan_read(struct call *call, struct migration_plan *plan) {
    static struct slot_ranges ranges;
    for (int at = 2; at < call->argc;) {
        if (!slice_is(call->argv[at++], "slotsrange")) return reply_syntax_error(call->reply);
        const struct cluster_node *owner = ranges_read(call, &at, &ranges);
        if (!owner || any_exported(call, &ranges)) return false;
        if (owner != this_cluster->myself) return reply_error(call->reply, "ERR Slots are not served by this node.");
        if (at + 1 >= call->argc || !slice_is(call->argv[at], "node")) return reply_syntax_error(call->reply);
        if (!plan_add(call, plan, &ranges, call->argv[at + 1])) return false;
        at += 2;
    }
    return true;
}

/* True: replied. */
static bool refused_by_module(struct call *call) {
    const char *error = cluster_migration_refused ? cluster_migration_refused() : NULL;
    if (error) reply_error(call->reply, error);
    return error;
}

void migration_migrateslots_run(struct call *call) {
    struct migration_plan plan = {0};
    if (cluster_is_disabled(call) || refused_by_module(call)) return;
    if (!node_is_primary(this_cluster->myself)) {
        reply_error(call->reply, "ERR Slot migration can only be used on primary nodes.");
        return;
    }
    if (any_open(call)) return;
    migrations_settle(&migrations, migration_now());
    if (plan_read(call, &plan)) {
        for (size_t i = plan.count; i-- > 0;) { /* the first group is shown first */
            const struct slot_group *group = &plan.groups[i];
            char name[JOB_NAME_LEN];
            random_hex(name, JOB_NAME_LEN);
            const struct slot_export *export = export_new(&migrations, slice_make(name, JOB_NAME_LEN),
                                                          &group->target->id, group->ranges, migration_now());
            log_notice("Slot migration initiated through CLUSTER MIGRATESLOTS command: %s (%s)", export_text(export),
                       cluster_requester(call->client));
        }
        reply_ok(call->reply);
    }
    plan_free(&plan);
}

/* --- CLUSTER GETSLOTMIGRATIONS, CANCELSLOTMIGRATIONS --- */

static void reply_text(struct reply *reply, const char *name, struct slice value) {
    reply_bulk_text(reply, name);
    reply_bulk(reply, value);
}
static void reply_number(struct reply *reply, const char *name, int64_t value) {
    reply_bulk_text(reply, name);
    reply_integer(reply, value);
}

static void job_describe(const struct slot_job *job, struct reply *reply) {
    const struct slot_export *export = export_of(job);
    struct memory_output ranges;
    reply_map(reply, job->tracked ? 10 : 12);
    reply_text(reply, "name", slice_make(job->name, JOB_NAME_LEN));
    reply_text(reply, "operation", export ? SLICE("EXPORT") : SLICE("IMPORT"));
    memory_output_init(&ranges);
    job_write_ranges(job, &ranges.out);
    reply_text(reply, "slot_ranges", memory_output_slice(&ranges));
    memory_output_free(&ranges);
    if (!job->tracked) {
        reply_text(reply, "target_node", slice_make(job->target.text, NODE_ID_LEN));
        reply_text(reply, "source_node", slice_make(job->source.text, NODE_ID_LEN));
    }
    reply_number(reply, "create_time", clock_shown_ms(job->created_ms) / 1000);
    reply_number(reply, "last_update_time", clock_shown_ms(job->changed_ms) / 1000);
    reply_number(reply, "last_ack_time", clock_shown_ms(job->acked_ms) / 1000);
    reply_text(reply, "state", slice_of(job_state_name(job)));
    reply_text(reply, "message", slice_of(job->message));
    reply_number(reply, "cow_size", 0);
    reply_number(reply, "remaining_repl_size", export ? (int64_t)source_output(export) : 0);
}

void migration_getslotmigrations_run(struct call *call) {
    if (cluster_is_disabled(call)) return;
    if (!dispatch_is_nested()) migrations_settle(&migrations, migration_now());
    reply_array(call->reply, migrations.jobs.len);
    list_each(&migrations.jobs, link) job_describe(container_of(link, struct slot_job, link), call->reply);
}

void migration_cancelslotmigrations_run(struct call *call) {
    bool any = false;
    if (cluster_is_disabled(call)) return;
    list_each(&migrations.in_progress, link) {
        struct slot_export *export = export_of(container_of(link, struct slot_job, progress));
        if (!export || export->cancelled) continue;
        any = true;
        export_cancel(&migrations, export, migration_now());
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

struct establish {
    struct cluster_node *source;
    struct slice name;
    struct cluster_node *owner;
};

static bool establish_read_source(struct call *call, int at, struct cluster_node **source) {
    struct node_id id;
    if (!is_id(call->argv[at], &id)) return reply_syntax_error(call->reply);
    *source = nodes_find(&this_cluster->nodes, &id);
    if (*source && *source != this_cluster->myself) return true;
    return reply_error(call->reply, *source ? "ERR Source node is target node itself"
                                            : "ERR Target node does not know the source node");
}

static bool establish_read(struct call *call, struct establish *request, struct slot_ranges *ranges) {
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
            return reply_syntax_error(call->reply);
        }
    }
    if (request->source && request->name.len && request->owner) return true;
    return reply_syntax_error(call->reply);
}

/* A message of the stream of a primary, or of a file. The cluster may have changed since, so only its form is checked.
 */
static void track_run(struct call *call, enum slot_verb verb) {
    static struct slot_ranges ranges;
    struct slot_message message;
    bool obeyed = is_from_primary(call), well_formed = slot_message_parse(&message, call->argc, call->argv, &ranges);
    if (!well_formed || (!obeyed && verb != VERB_FINISH)) {
        reply_syntax_error(call->reply);
        return;
    }
    if (verb == VERB_MOVED) {
        copied_owner_heard(&message.target, message.epoch, &ranges.slots);
    } else if (!obeyed || !migrations_track(&migrations, &message, migration_now())) {
        reply_error(call->reply, "ERR No such slot migration job");
        return;
    }
    call_propagate(call, call->argc, call->argv);
    reply_ok(call->reply);
}

/* OUTCOME SOURCE id NAME job SHARD id EPOCH epoch SLOTSRANGE a b …: from the leader of the source's shard. */
static void outcome_run(struct call *call) {
    static struct slot_ranges ranges;
    struct slot_message question;
    if (!slot_message_parse(&question, call->argc, call->argv, &ranges)) {
        reply_syntax_error(call->reply);
        return;
    }
    if (!node_id_equal(&question.shard, &this_cluster->myself->shard)) {
        reply_error(call->reply, "ERR This node is in another shard");
        return;
    }
    enum outcome_answer answer = import_asked(&migrations, &question, &ranges.slots, migration_now());
    if (answer == OUTCOME_LATER)
        reply_error(call->reply, "TRYAGAIN The outcome of this slot migration is not decided");
    else
        reply_status(call->reply, answer == OUTCOME_TAKEN ? "TAKEN" : "REFUSED");
}

static const char *establish_refusal(const struct establish *request, const struct slot_ranges *ranges) {
    if (request->owner != request->source) return "ERR Target node does not agree about current slot ownership";
    const struct slot_job *known = job_find(&migrations, request->name); /* replicas tell jobs apart by their names */
    if (known && !job_is_over(known)) return "ERR A slot migration with this name is in progress";
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(&ranges->slots, slot)) continue;
        if (import_with_slot(&migrations, slot))
            return "ERR Slot is already being imported on the target by a different migration";
        if (slot_keys_count(slot)) return "ERR Target node holds keys of a slot that it does not serve";
    }
    return NULL;
}

static void establish_run(struct call *call) {
    static struct slot_ranges ranges;
    struct establish request = {.name = SLICE("")};
    if (is_from_primary(call)) {
        track_run(call, VERB_ESTABLISH);
        return;
    }
    if (refused_by_module(call)) return;
    if (!node_is_primary(this_cluster->myself)) {
        reply_error(call->reply, "ERR Slot migration can only be used on primary nodes.");
        return;
    }
    if (!call->client->conn || call->client->flags & (CLIENT_DENY_BLOCKING | CLIENT_MIGRATION)) {
        reply_syntax_error(call->reply);
        return;
    }
    if (any_open(call)) return;
    migrations_settle(&migrations, migration_now());
    if (!establish_read(call, &request, &ranges)) return;
    const char *refused = establish_refusal(&request, &ranges);
    if (refused) {
        reply_error(call->reply, refused);
        return;
    }
    struct slot_import *import = import_new(&migrations, request.name, &request.source->id, &ranges, migration_now());
    call_propagate(call, call->argc, call->argv);
    reply_ok(call->reply);
    target_attach(import, call->client);
}

/* A message of the source. */
static void source_message_run(struct call *call, struct slot_import *import) {
    static struct slot_ranges ranges;
    struct slot_message message;
    slot_message_parse(&message, call->argc, call->argv, &ranges);
    message.payload = call;
    import_received(&migrations, import, &message, migration_now());
}

/* A primary that runs Valkey passes all messages of the source on to its replicas. */
static void stray_message_run(struct call *call, enum slot_verb verb) {
    if (verb == VERB_CAPA) return; /* it gets no reply */
    if (verb == VERB_UNKNOWN || verb == VERB_CHUNK || verb == VERB_OFFER || verb == VERB_PULLED)
        reply_syntax_error(call->reply);
    else if (client_must_be_obeyed(call->client))
        reply_ok(call->reply);
    else
        reply_error_format(call->reply, "ERR CLUSTER SYNCSLOTS %s should only be used by slot migration clients",
                           slot_verb_name(verb));
}

void migration_syncslots_run(struct call *call) {
    if (cluster_is_disabled(call)) return;
    enum slot_verb verb = slot_verb_find(call->argv[2]);
    struct slot_job *job = call->client->flags & CLIENT_MIGRATION ? job_of_client(call->client) : NULL;
    switch (verb) {
    case VERB_ESTABLISH: establish_run(call); return;
    case VERB_FINISH:
    case VERB_GRANT:
    case VERB_MOVED:
    case VERB_TAKE: track_run(call, verb); return;
    case VERB_OUTCOME: outcome_run(call); return;
    default: break;
    }
    if (job)
        source_message_run(call, import_of(job));
    else if (verb == VERB_CHUNK && is_from_primary(call))
        chunk_run(call, NULL);
    else
        stray_message_run(call, verb);
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
