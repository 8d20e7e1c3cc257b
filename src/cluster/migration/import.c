/* import.c: the target of a migration, and jobs that are tracked.
 *
 * The link is an ordinary client with the flag CLIENT_MIGRATION. Its commands are executed without any check, as those
 * of a primary are, and they are propagated as this server's own. It gets no reply. An error ends the job: the data
 * would not be that of the source.
 *
 * The slots are hidden (store/keyspace.h) from ESTABLISH until the job ends. */
#include "cluster/copied_owners.h"
#include "cluster/effects.h"
#include "cluster/migration/outcome.h"
#include "cluster/migration/pull.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "repl/repl.h"
#include "repl/repl_settings.h"
#include "repl/sync/sync.h"
#include "resp/request.h"
#include "server/clients/user.h"
#include "server/command/propagate.h"
#include "server/config/config_engine.h"
#include "server/notify.h"
#include "server/role.h"
#include "server/server.h"
#include "server/stats/errorstats.h"
#include <stdio.h>
#include <string.h>

static bool restarted; /* a data set was loaded: jobs that it has are to fail */

/* --- Hiding --- */

static void slots_hide(const struct job *job) {
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(&job->slots, slot)) keyspace_hide_slot(server.keyspace, slot);
}
static void slots_show(const struct job *job) {
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(&job->slots, slot)) keyspace_show_slot(server.keyspace, slot);
}

/* The data set is being replaced as a whole. */
static void slots_forget(const struct job *job) {
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(&job->slots, slot)) keyspace_drop_slot(server.keyspace, slot, true);
    slots_show(job);
}

/* Deletes the keys, here and (if this server leads) on its replicas. */
static void slots_drop(const struct job *job) {
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(&job->slots, slot)) continue;
        if (role_is_replica())
            server.dirty += keyspace_drop_slot(server.keyspace, slot, true);
        else
            effects_drop_slot(slot);
    }
}

/* --- Propagation --- */

static int64_t last_end; /* the stream when a job ended last, or this server began to lead */

static void propagate_finish(const struct job *job, enum job_state state, const char *message) {
    bool success = state == JOB_SUCCESS;
    bool claimed = success && sync_on && !role_is_replica(); /* Valkey does not know EPOCH */
    job_propagate_finish(job, success, message, claimed ? this_cluster->myself->config_epoch : 0);
    last_end = role->position.offset;
}

#define TAKE_WORDS(job)                                                                                                \
    {                                                                                                                  \
        SLICE("CLUSTER"), SLICE("SYNCSLOTS"), SLICE("TAKE"), SLICE("NAME"), {                                          \
            (job)->name, JOB_NAME_LEN                                                                                  \
        }                                                                                                              \
    }

void import_write_take(const struct job *job, struct output *out) {
    request_write(out, 5, (struct slice[])TAKE_WORDS(job));
}

/* --- The link --- */

static void error_reply(struct reply *reply, struct slice text) {
    struct client *client = container_of(reply, struct client, reply);
    struct job *job = job_of_client(client);
    errorstats_count(reply, text);
    if (!job) return;
    if (text.len >= 3 && memcmp(text.data, "OOM", 3) == 0) {
        job_out_of_memory(job);
        return;
    }
    if (job->failing) return; /* the rest of what it has sent */
    repl_log_error("This slot-import-target is sending an error to its slot-import-source", text, client->current);
    client->flags |= CLIENT_CLOSE_AFTER_REPLY; /* executes nothing more */
    job_fail_later(job, "Failed to process command during slot migration. Check logs for more information");
}

void import_establish(struct call *call, const struct cluster_node *source, struct slice name,
                      const uint16_t (*ranges)[2], size_t count) {
    struct client *client = call->client;
    struct job *job = job_new(true, name, ranges, count, JOB_WAITING_FOR_ACK);
    job->source = source->id;
    job->target = this_cluster->myself->id;
    job->owners_version = this_cluster->slots.version;
    log_notice("New slot import job created: %s.", job_text(job));
    slots_hide(job);
    call_propagate(call, call->argc, call->argv);
    reply_ok(call->reply);
    client->flags |= CLIENT_MIGRATION | CLIENT_REPLY_OFF;
    client->reply.error_hook = error_reply;
    client_retarget(client);
    job_attach(job, client);
}

static bool owns_all(const struct slot_bitmap *slots) {
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(slots, slot) && this_cluster->slots.owner[slot] != this_cluster->myself) return false;
    return true;
}

/* This node takes the slots. From here on their keys are seen, and the source's clients are sent here. */
static void claim_slots(struct job *job) {
    if (!job->is_tracked || !owns_all(&job->slots)) cluster_take_slots(this_cluster, &job->slots, cluster_now());
    log_notice("Slot migration %s completed successfully. This node is now the owner of the slots", job_text(job));
    job_end(job, JOB_SUCCESS, "");
}

static enum take_step next_step(struct job *job) {
    bool leads = node_is_primary(this_cluster->myself) && !role_is_replica() && !server_is_loading() &&
                 (!sync_on || sync_leads());
    if (leads && job->takes && job->committed_at < 0) job->committed_at = role->position.offset;
    struct take_facts facts = {.leads = leads,
                               .certain = sync_leads_for_certain(),
                               .granted = job->state == JOB_IMPORT_GRANTED,
                               .held = migration_settings.prevent_failover,
                               .decided = job->takes,
                               .committed = job->takes && sync_has_committed(job->committed_at),
                               .tracked = job->is_tracked,
                               .owns = sync_on && owns_all(&job->slots)};
    return take_decide(&facts);
}

/* Goes on with a job that was granted, or is tracked. Without synchronous replication it is carried out at once. */
static void take_slots(struct job *job) {
    enum take_step step = next_step(job);
    if (step == TAKE_DECIDE) {
        if (sync_on) job_propagate(5, (struct slice[])TAKE_WORDS(job));
        job->takes = true;
        job->committed_at = role->position.offset;
        step = next_step(job);
    }
    if (step == TAKE_CLAIM) claim_slots(job);
    if (step == TAKE_FAIL)
        job_fail_later(job, restarted ? "Process restarted" : "A failover occurred during slot import");
}

/* CAPA slot-chunks [slot-pull [key]] */
static void capabilities(const struct call *call, struct job *job) {
    if (call->argc < 4 || !slice_is(call->argv[3], CHUNK_CAPABILITY)) return;
    job->acks_backlog = true;
    bool unlimited = call->client->user->flags & USER_ALL_RIGHTS; /* commands are checked one by one */
    if (notify_wanted || !unlimited) {                            /* keys of chunks cause no keyspace events */
        job_send_words(job, 4, (struct slice[]){SLICE("CLUSTER"), SLICE("SYNCSLOTS"), SLICE("CAPA"), SLICE("none")});
        return;
    }
    bool asked = call->argc > 4 && slice_is(call->argv[4], PULL_CAPABILITY_SLOTS);
    if (asked && slot_fetch_open(job, call->argc > 5 ? call->argv[5] : SLICE("")))
        job_send_words(job, 5,
                       (struct slice[]){SLICE("CLUSTER"), SLICE("SYNCSLOTS"), SLICE("CAPA"), SLICE(CHUNK_CAPABILITY),
                                        SLICE(PULL_CAPABILITY_SLOTS)});
    else
        job_send_capability(job);
}

static void request_pause(struct job *job) {
    if (job->pause_requested) return;
    job->pause_requested = true;
    job_send(job, "REQUEST-PAUSE");
}

void import_message(struct call *call, struct job *job, struct slice subcommand) {
    job_heard(job);
    if (job->failing) return;
    if (slice_is(subcommand, "ack")) {
        if (job->state == JOB_WAITING_FOR_ACK) job_set_state(job, JOB_RECEIVING_SNAPSHOT);
        if (job->state == JOB_WAITING_FOR_PAUSED) request_pause(job);
    } else if (slice_is(subcommand, "snapshot-eof")) {
        if (job->state != JOB_RECEIVING_SNAPSHOT || !slot_fetch_is_idle(job)) {
            job_unexpected(job, subcommand);
            return;
        }
        slot_fetch_free(job);
        log_notice("Slot migration %s successfully received slot snapshot. Beginning incremental stream...",
                   job_text(job));
        job_set_state(job, JOB_WAITING_FOR_PAUSED);
        if (!job->acks_backlog) request_pause(job);
    } else if (slice_is(subcommand, "paused")) {
        if (job->state != JOB_WAITING_FOR_PAUSED) {
            job_unexpected(job, subcommand);
            return;
        }
        job->source_paused = true;
    } else if (slice_is(subcommand, "failover-granted")) {
        if (job->state != JOB_FAILOVER_REQUESTED) {
            job_unexpected(job, subcommand);
            return;
        }
        int64_t epoch;
        if (call->argc == 5 && slice_is(call->argv[3], "epoch") && parse_int64(call->argv[4], &epoch) && epoch > 0)
            cluster_see_epoch(this_cluster, (uint64_t)epoch, cluster_now());
        job_set_state(job, JOB_IMPORT_GRANTED);
        take_slots(job);
    } else if (slice_is(subcommand, "capa")) {
        capabilities(call, job);
    } else if (slice_is(subcommand, "offer")) {
        if (job->state == JOB_RECEIVING_SNAPSHOT)
            slot_fetch_offered(job, call);
        else
            job_unexpected(job, subcommand);
    } else if (slice_is(subcommand, "chunk")) {
        if (job->state == JOB_RECEIVING_SNAPSHOT)
            chunk_run(call, job);
        else
            job_unexpected(job, subcommand);
    } else {
        job_unexpected(job, subcommand);
    }
}

/* --- The states --- */

void import_end(struct job *job, enum job_state state, const char *message) {
    bool success = state == JOB_SUCCESS;
    if (!success && !(job->is_tracked && role_is_replica())) {
        job_set_state(job, JOB_CLEANING_UP);
        log_notice("Cleaning up slot migration %s after %s", job_text(job), job_state_name(state));
    }
    if (!success) slots_drop(job);
    slots_show(job);
    if (!job->is_tracked || !role_is_replica()) propagate_finish(job, state, message);
}

static void check_owners(struct job *job) {
    const struct slot_table *slots = &this_cluster->slots;
    if (job->owners_version == slots->version) return;
    job->owners_version = slots->version;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        if (!slot_bitmap_has(&job->slots, slot)) continue;
        const struct cluster_node *owner = slots->owner[slot];
        if (owner == this_cluster->myself) {
            job_fail_later(job, "Slots were unexpectedly assigned to myself during import");
            return;
        }
        if (!owner || !node_id_equal(&owner->id, &job->source)) {
            job_fail_later(job, "Slots are no longer owned by source node");
            return;
        }
    }
}

/* See migration.h: why not at once. */
static bool may_request_failover(const struct job *job) {
    list_each(&jobs_in_progress, link) {
        const struct job *other = job_in_progress(link);
        if (other->state == JOB_EXPORT_GRANTED) return false;
        if (other->state == JOB_FAILOVER_PAUSED && memcmp(&job->target, &job->source, NODE_ID_LEN) < 0) return false;
    }
    return true;
}

/* --- The question for the outcome: outcome.h --- */

static enum outcome_job job_asked_about(const struct job *job) {
    if (!job || !job->is_import) return OUTCOME_JOB_UNKNOWN;
    if (job->state == JOB_SUCCESS) return OUTCOME_JOB_SUCCESS;
    if (job_is_over(job)) return OUTCOME_JOB_FAILED;
    if (job->failing) return OUTCOME_JOB_EARLY; /* it is about to end */
    bool waits = job->takes || job->state == JOB_FAILOVER_REQUESTED || job->state == JOB_IMPORT_GRANTED;
    return waits ? OUTCOME_JOB_WAITS : OUTCOME_JOB_EARLY;
}

void import_asked(struct call *call, const struct node_id *source, struct slice name, const struct slot_bitmap *slots,
                  uint64_t epoch) {
    struct job *job = job_find(name);
    const struct cluster_node *myself = this_cluster->myself, *asker = nodes_find(&this_cluster->nodes, source);
    struct outcome_facts facts = {.job = job_asked_about(job),
                                  .certain = node_is_primary(myself) && !role_is_replica() && !server_is_loading() &&
                                             sync_leads_for_certain(),
                                  .committed = sync_has_committed(last_end),
                                  .held = migration_settings.prevent_failover};
    outcome_facts_of_slots(&facts, this_cluster, slots, asker);
    for (unsigned slot = 0; (slot = slot_bitmap_next(slots, slot, true)) < HASH_SLOTS; slot++)
        facts.unheard |= copied_owner_is_unknown(slot);
    enum outcome_answer answer = outcome_decide(&facts);
    if (answer == OUTCOME_CLAIM && exports_await_claim(NULL)) answer = OUTCOME_LATER;
    if (answer == OUTCOME_GRANTED || answer == OUTCOME_CLAIM) cluster_see_epoch(this_cluster, epoch, cluster_now());
    if (answer == OUTCOME_GRANTED) {
        if (job->state == JOB_FAILOVER_REQUESTED) job_set_state(job, JOB_IMPORT_GRANTED);
        take_slots(job);
        answer = job->state == JOB_SUCCESS ? OUTCOME_TAKEN : OUTCOME_LATER;
    } else if (answer == OUTCOME_CLAIM) {
        cluster_take_slots(this_cluster, slots, cluster_now());
        log_notice("Slots of migration %.*s are taken: the source's shard has granted them", (int)name.len, name.data);
        answer = OUTCOME_TAKEN;
    }
    if (answer == OUTCOME_LATER)
        reply_error(call->reply, "TRYAGAIN The outcome of this slot migration is not decided");
    else
        reply_status(call->reply, answer == OUTCOME_TAKEN ? "TAKEN" : "REFUSED");
}

void import_step(struct job *job) {
    if (job->is_tracked) {
        if (role_is_replica()) restarted = false;
        take_slots(job);
        return;
    }
    if (role_is_replica()) {
        job_detach(job);
        job->is_tracked = true;
        job->committed_at = -1;
        job_set_state(job, JOB_ON_PRIMARY);
        return;
    }
    if (!node_is_primary(this_cluster->myself) || sync_stands())
        job_fail_later(job, "A failover occurred during slot import");
    else
        check_owners(job);
    slot_fetch_step(job);
    if (job->failing) return;
    if (job->state == JOB_IMPORT_GRANTED) take_slots(job);
    if (job->state != JOB_WAITING_FOR_PAUSED || !job->source_paused || !may_request_failover(job)) return;
    /* The source's acknowledged writes: this shard must be able to lose this node before the source gives them up. */
    if (job->committed_at < 0) job->committed_at = role->position.offset;
    if (!sync_has_committed(job->committed_at)) return;
    job_set_state(job, JOB_FAILOVER_REQUESTED);
    job_send(job, "REQUEST-FAILOVER");
}

void import_tick(struct job *job) {
    int64_t now = clock_mono_ms();
    if (job->is_tracked || !job->client) return;
    if (job->client->active_ms > job->heard_ms || job->client->conn->bytes_in != job->counted_in) job_heard(job);
    if (now - job->heard_ms > (int64_t)repl_settings.timeout * 1000) {
        log_warning("Timing out slot migration %s after not receiving ack for too long", job_text(job));
        job_fail_later(job, "Timed out after too long with no interaction");
        return;
    }
    if (job->state == JOB_WAITING_FOR_ACK || now - job->sent_ms < ACK_INTERVAL_MS) return;
    job->sent_ms = now;
    job_send(job, "ACK");
}

/* --- Jobs of a primary, or of a file --- */

static const char takes_aux[] = "cluster-slot-takes";
static struct memory_output noted; /* the names of jobs with TAKE: the file has them before the jobs */

static bool is_noted(struct slice name) {
    for (size_t at = 0; noted.out.ops && at + JOB_NAME_LEN <= memory_output_slice(&noted).len; at += JOB_NAME_LEN)
        if (slice_equal(slice_make(noted.data + at, JOB_NAME_LEN), name)) return true;
    return false;
}

bool import_write_aux(struct rdb_aux *field) {
    static struct memory_output text;
    if (!text.out.ops) memory_output_init(&text);
    memory_output_clear(&text);
    list_each(&jobs, link) {
        const struct job *job = job_of(link);
        if (job->takes && !job_is_over(job)) output_write(&text.out, slice_make(job->name, JOB_NAME_LEN));
    }
    *field = (struct rdb_aux){slice_of(takes_aux), memory_output_slice(&text)};
    return field->value.len > 0;
}

void import_read_aux(struct slice name, struct slice value) {
    if (!slice_is(name, takes_aux)) return;
    if (!noted.out.ops) memory_output_init(&noted);
    memory_output_clear(&noted);
    output_write(&noted.out, value);
}

void import_track(struct slice name, const uint16_t (*ranges)[2], size_t count) {
    struct job *known = job_find(name);
    if (!server_is_loading()) restarted = false;
    if (known && !job_is_over(known)) return;
    struct job *job = job_new(true, name, ranges, count, JOB_ON_PRIMARY);
    job->is_tracked = true;
    job->takes = is_noted(name);
    log_notice("New slot import job created: %s.", job_text(job));
    slots_hide(job);
}

void import_take_tracked(struct call *call, struct slice name) {
    struct job *job = job_find(name);
    if (!job || !job->is_import || !job->is_tracked || job_is_over(job)) {
        reply_error(call->reply, "ERR No such slot migration job");
        return;
    }
    job->takes = true;
    call_propagate(call, call->argc, call->argv);
    reply_ok(call->reply);
}

/* The keys are shown before this server serves the slots, which it may own already. */
void import_leads(void) {
    last_end = role->position.offset;
    list_each(&jobs, link) {
        struct job *job = job_of(link);
        if (!job->is_import || job_is_over(job)) continue;
        job->committed_at = -1;
        if (job->is_tracked && job->takes) slots_show(job);
    }
}

void import_finish_tracked(struct call *call, struct slice name, enum job_state state, struct slice message,
                           uint64_t epoch) {
    struct job *job = job_find(name);
    if (!job || (!job->is_tracked && !job_is_over(job))) {
        reply_error(call->reply, "ERR No such slot migration job");
        return;
    }
    char *text = mem_strndup(message.data, message.len);
    job->is_decided = true;
    if (!job_is_over(job)) job_end(job, state, text);
    mem_free(text);
    struct cluster_node *primary = cluster_shard_primary(this_cluster);
    if (epoch && primary) /* it has taken the slots, or has taken them back */
        cluster_hear_claim(this_cluster, primary, &job->slots, epoch, cluster_now());
    call_propagate(call, call->argc, call->argv);
    reply_ok(call->reply);
}

/* --- RDB files --- */

size_t migration_imports_list(const struct rdb_slot_import **list) {
    static struct rdb_slot_import *imports;
    static size_t capacity;
    size_t count = 0;
    list_each(&jobs, link) {
        struct job *job = job_of(link);
        if (!job->is_import || job_is_over(job)) continue;
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 4;
            imports = mem_realloc(imports, capacity * sizeof(*imports));
        }
        imports[count++] = (struct rdb_slot_import){.name = slice_make(job->name, JOB_NAME_LEN),
                                                    .count = job->count,
                                                    .ranges = (const uint16_t(*)[2])job->ranges};
    }
    *list = imports;
    return count;
}

void migration_read_import(const struct rdb_slot_import *import) {
    import_track(import->name, import->ranges, import->count);
}

/* The data set is about to be replaced. */
void migration_load_begins(void) {
    if (noted.out.ops) memory_output_clear(&noted);
    if (!jobs.len) return;
    list_each(&jobs, link) {
        struct job *job = job_of(link);
        if (job_is_over(job)) continue;
        if (job->is_import) {
            job_detach(job);
            slots_forget(job);
            log_warning("Slot migration %s finished. State: failed, Message: A new RDB is being loaded", job_text(job));
        } else if (job->state == JOB_EXPORT_GRANTED && !job->is_recorded && !job->failing && !role_is_replica()) {
            export_cancel(job); /* DEBUG RELOAD: the target may have taken the slots, so writes still wait */
        } else {
            job_end(job, JOB_FAILED, "A new RDB is being loaded");
            job_detach(job); /* a job that job_end() keeps: the new data set has it, if it is still to be known */
        }
    }
    log_notice("Cleaning slot migration log in anticipation of a load operation.");
    jobs_forget();
}

void migration_loaded(void) {
    restarted = true;
}
