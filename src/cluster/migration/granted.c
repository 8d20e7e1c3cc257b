/* granted.c: the source's shard with a job whose grant is in its stream (outcome.h): the grant itself, jobs that are
 * tracked, and the question to the target's shard.
 *
 *     in the stream and append-only file    CLUSTER SYNCSLOTS GRANT NAME job TARGET id SHARD id EPOCH epoch
 *                                           SLOTSRANGE a b …
 *                                           CLUSTER SYNCSLOTS MOVED NAME job TARGET id SHARD id EPOCH epoch
 *                                           SLOTSRANGE a b …: who owns the slots, before FINISH STATE SUCCESS
 *                                           CLUSTER SYNCSLOTS FINISH STATE state NAME job MESSAGE text
 *                                           [EPOCH epoch]: of the claim of a server that has taken the slots back
 *     in RDB files                          AUX cluster-slot-grants: "job target shard epoch a b …," for each
 *     leader of the source's shard -> leader of the target's shard, on a connection of its own
 *                                           CLUSTER SYNCSLOTS OUTCOME SOURCE id NAME job SHARD id EPOCH epoch
 *                                           SLOTSRANGE a b …: to this shard
 *                                           +TAKEN or +REFUSED; an error: not decided yet */
#include "cluster/effects.h"
#include "cluster/migration/jobs.h"
#include "cluster/migration/outcome.h"
#include "cluster/protocol/own_fields.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "repl/replica.h"
#include "repl/sync/sync.h"
#include "resp/request.h"
#include "server/clients/listeners.h"
#include "server/config/config_engine.h"
#include "server/config/tls_options.h"
#include "server/role.h"
#include "server/server.h"
#include <string.h>

enum { ASK_INTERVAL_MS = 200, ANSWER_TIMEOUT_MS = 2000, LINE_MAX_BYTES = 1024, LINK_SILENCE_MS = 2000 };

static const char aux_name[] = "cluster-slot-grants";

static bool target_answers(const struct job *job) {
    const struct cluster_node *target = nodes_find(&this_cluster->nodes, &job->target);
    return target && target->features & OWN_FEATURE_SLOT_OUTCOME;
}

bool granted_is_asked(const struct job *job) {
    return sync_on && target_answers(job);
}

/* --- The stream --- */

/* CLUSTER SYNCSLOTS …, with the ranges of the job at the end. Replicas that the bus does not reach learn from it which
 * slots their shard has given away, and to which node, in the order in which it took others. */
struct ranged {
    size_t count;
    struct slice *list;
    char (*numbers)[NUMBER_TEXT_MAX];
};
static struct ranged ranged_words(const struct job *job, size_t count, const struct slice *head) {
    struct ranged words = {.list = mem_alloc((count + 2 * job->count) * sizeof(*words.list)),
                           .numbers = mem_alloc(2 * job->count * sizeof(*words.numbers))};
    for (; words.count < count; words.count++) words.list[words.count] = head[words.count];
    for (size_t i = 0; i < 2 * job->count; i++)
        words.list[words.count++] =
            (struct slice){words.numbers[i], format_int64(words.numbers[i], job->ranges[i / 2][i % 2])};
    return words;
}
static void ranged_free(struct ranged *words) {
    mem_free(words->list);
    mem_free(words->numbers);
}
static void ranged_write(struct ranged *words, struct output *out) {
    request_write(out, (int)words->count, words->list);
    ranged_free(words);
}

static struct ranged owner_words(const char *verb, const struct job *job, char epoch[static NUMBER_TEXT_MAX]) {
    const struct slice head[] = {SLICE("CLUSTER"),
                                 SLICE("SYNCSLOTS"),
                                 slice_of(verb),
                                 SLICE("NAME"),
                                 {job->name, JOB_NAME_LEN},
                                 SLICE("TARGET"),
                                 {job->target.text, NODE_ID_LEN},
                                 SLICE("SHARD"),
                                 {job->target_shard.text, NODE_ID_LEN},
                                 SLICE("EPOCH"),
                                 {epoch, format_uint64(epoch, job->target_epoch)},
                                 SLICE("SLOTSRANGE")};
    return ranged_words(job, sizeof head / sizeof *head, head);
}

/* The claim of a target of this kind has a larger epoch than it had before, so an older claim that comes late is told
 * from it. A target that is Valkey may claim the slots with the epoch that it has. */
void granted_note_target(struct job *job) {
    const struct cluster_node *target = nodes_find(&this_cluster->nodes, &job->target);
    if (target) job->target_shard = target->shard;
    job->target_epoch = target && target->features & OWN_FEATURE_SLOT_OUTCOME ? target->config_epoch : 0;
}

void granted_record(struct job *job) {
    char epoch[NUMBER_TEXT_MAX];
    granted_note_target(job);
    struct ranged words = owner_words("GRANT", job, epoch);
    job_propagate((int)words.count, words.list);
    ranged_free(&words);
    job->is_recorded = true;
    job->committed_at = role->position.offset;
}

/* --- Jobs that are tracked --- */

void granted_track(struct slice name, const struct node_id *target, const struct node_id *target_shard,
                   uint64_t target_epoch, const uint16_t (*ranges)[2], size_t count) {
    struct job *known = job_find(name);
    if (known && !job_is_over(known)) return;
    struct job *job = job_new(false, name, ranges, count, JOB_EXPORT_GRANTED);
    job->is_tracked = job->is_recorded = true;
    job->target = *target;
    job->target_shard = *target_shard;
    job->target_epoch = target_epoch;
    log_notice("Slot migration %s was granted. Its outcome is not known", job_text(job));
}

/* Another server decides, or this one as a successor of itself. */
static void become_tracked(struct job *job) {
    job_detach(job);
    export_end(job, job->state);
    job->is_tracked = true;
    job->committed_at = -1;
    job->failing = NULL;
    if (job->state != JOB_EXPORT_GRANTED) job_set_state(job, JOB_EXPORT_GRANTED);
    log_notice("Slot migration %s was granted. Its outcome is not known", job_text(job));
}

bool granted_keeps(struct job *job, enum job_state state) {
    if (job->is_import || !job->is_recorded || state == JOB_SUCCESS || job->is_decided) return false;
    if (job->state != JOB_EXPORT_GRANTED && !role_is_replica() && !sync_stands()) return false; /* not said yet */
    if (!job->is_tracked) become_tracked(job);
    return true;
}

static void propagate_owner(const struct job *job, const struct cluster_node *owner) {
    struct job part = *job; /* its slots that this node has */
    char epoch[NUMBER_TEXT_MAX];
    unsigned slot = 0;
    part.ranges = mem_alloc(HASH_SLOTS * sizeof(*part.ranges));
    part.count = 0;
    while (slot < HASH_SLOTS) {
        bool has = slot_bitmap_has(&job->slots, slot) && this_cluster->slots.owner[slot] == owner;
        unsigned first = slot++;
        if (!has) continue;
        while (slot < HASH_SLOTS && slot_bitmap_has(&job->slots, slot) && this_cluster->slots.owner[slot] == owner)
            slot++;
        part.ranges[part.count][0] = (uint16_t)first;
        part.ranges[part.count++][1] = (uint16_t)(slot - 1);
    }
    if (part.count) {
        part.target = owner->id;
        part.target_shard = owner->shard;
        part.target_epoch = owner->config_epoch;
        struct ranged words = owner_words("MOVED", &part, epoch);
        job_propagate((int)words.count, words.list);
        ranged_free(&words);
    }
    mem_free(part.ranges);
}

static bool owns_all(const struct job *job) {
    unsigned slot = 0;
    while ((slot = slot_bitmap_next(&job->slots, slot, true)) < HASH_SLOTS && cluster_serves(this_cluster, slot))
        slot++;
    return slot == HASH_SLOTS;
}

void granted_end(const struct job *job, enum job_state state, const char *message) {
    const struct cluster_node *myself = this_cluster->myself;
    bool success = state == JOB_SUCCESS;
    if (!job->is_recorded || role_is_replica() || server_is_loading()) return;
    for (size_t i = 0; success && i < this_cluster->nodes.count; i++) {
        const struct cluster_node *node = this_cluster->nodes.list[i];
        if (node->slot_count && !nodes_share_shard(node, myself)) propagate_owner(job, node);
    }
    job_propagate_finish(job, success, message, !success && owns_all(job) ? myself->config_epoch : 0);
}

bool migration_leaves(unsigned slot) {
    if (!jobs_in_progress.len) return false;
    list_each(&jobs_in_progress, link) {
        const struct job *job = job_in_progress(link);
        if (job->is_recorded && slot_bitmap_has(&job->slots, slot)) return true;
    }
    return false;
}

/* --- The decisions --- */

static void facts_of(struct job *job, struct grant_facts *facts) {
    const struct cluster_node *myself = this_cluster->myself;
    const struct cluster_node *target = nodes_find(&this_cluster->nodes, &job->target);
    *facts = (struct grant_facts){.primary = node_is_primary(myself) && !role_is_replica(),
                                  /* A server that has restarted has old data until it is elected. */
                                  .leads = sync_on ? sync_leads() : !server_is_loading(),
                                  .certain = sync_leads_for_certain(),
                                  .tracked = job->is_tracked};
    grant_facts_of_slots(facts, this_cluster, &job->slots, job->target_epoch);
    if (facts->primary && facts->leads && job->committed_at < 0) job->committed_at = role->position.offset;
    facts->committed = job->committed_at >= 0 && sync_has_committed(job->committed_at);
    facts->linked =
        job->client && clock_mono_ms() - job->changed_ms < LINK_SILENCE_MS && target && !node_failed(target);
    if (!facts->linked && !job->unknown_ms) job->unknown_ms = clock_mono_ms();
    facts->alone_ms = facts->linked ? 0 : clock_mono_ms() - job->unknown_ms;
    facts->hold_ms = job->cancelled ? GRANT_CANCELLED_HOLD_MS : 2 * config_number("cluster-manual-failover-timeout");
}

static bool owns_any(const struct job *job) {
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(&job->slots, slot) && cluster_serves(this_cluster, slot)) return true;
    return false;
}

static void release_slots(const struct job *job) {
    struct slot_bitmap owned = {0};
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(&job->slots, slot) && cluster_serves(this_cluster, slot)) slot_bitmap_set(&owned, slot);
    log_notice("Slot migration %s: the slots are not served until its outcome is known", job_text(job));
    cluster_give_up_slots(this_cluster, &owned, cluster_now());
}

static void done(struct job *job) {
    log_notice("Slot migration %s slots are now owned by target node.", job_text(job));
    /* A claim deletes the keys of a job that is not tracked, unless a script is running then (effects_settle). */
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(&job->slots, slot)) effects_drop_slot(slot);
    job_end(job, JOB_SUCCESS, "");
}

static void take_back(struct job *job) {
    static struct log_limit limit = {.interval_us = 10 * 1000 * 1000};
    struct grant_facts facts;
    facts_of(job, &facts);
    if (!grant_takes_back(&facts)) return; /* it is asked again */
    job->is_refused = true;
    if (exports_await_claim(job)) {
        log_limited(&limit, LOG_LEVEL_NOTICE,
                    "Slot migration %s: the target did not take the slots. They are taken back when other targets that "
                    "were granted slots have claimed them",
                    job_text(job));
        return;
    }
    job->is_decided = true;
    /* The epoch is above that of any claim that may still come. */
    cluster_take_slots(this_cluster, &job->slots, cluster_now());
    job_end(job, JOB_FAILED, "The target did not take the slots");
}

/* --- The question --- */

static void hang_up(struct job *job) {
    if (job->conn) conn_close(job->conn);
    job->conn = NULL;
}

/* The answer may be a claim: as for a grant (export.c), it needs an epoch above those that this node knows. */
static void ask_connected(struct connection *conn) {
    struct job *job = conn->owner;
    struct output *out = &conn->out;
    char epoch[NUMBER_TEXT_MAX];
    replica_send_auth(conn);
    struct ranged words = ranged_words(job, 12,
                                       (struct slice[]){SLICE("CLUSTER"),
                                                        SLICE("SYNCSLOTS"),
                                                        SLICE("OUTCOME"),
                                                        SLICE("SOURCE"),
                                                        {this_cluster->myself->id.text, NODE_ID_LEN},
                                                        SLICE("NAME"),
                                                        {job->name, JOB_NAME_LEN},
                                                        SLICE("SHARD"),
                                                        {job->target_shard.text, NODE_ID_LEN},
                                                        SLICE("EPOCH"),
                                                        {epoch, format_uint64(epoch, this_cluster->current_epoch)},
                                                        SLICE("SLOTSRANGE")});
    ranged_write(&words, out);
    conn_flush(conn);
}

static void got_answer(struct job *job, struct slice line) {
    static struct log_limit limit = {.interval_us = 10 * 1000 * 1000};
    hang_up(job);
    if (job_is_over(job) || slice_equal(line, SLICE("+TAKEN"))) return; /* the bus brings the claim */
    if (slice_equal(line, SLICE("+REFUSED")) && !job->is_recorded) {    /* granted_ask_cancelled() */
        job->is_refused = true;
        job_fail_later(job, "");
    } else if (slice_equal(line, SLICE("+REFUSED")))
        take_back(job);
    else
        log_limited(&limit, LOG_LEVEL_NOTICE, "Slot migration %s: the target's shard has not decided: %.*s",
                    job_text(job), (int)(line.len > 200 ? 200 : line.len), line.data);
}

static void ask_readable(struct connection *conn) {
    struct job *job = conn->owner;
    while (job->conn == conn) {
        struct slice in = conn_peek(conn);
        const char *end = in.len ? memchr(in.data, '\n', in.len) : NULL;
        if (!end) {
            if (in.len > LINE_MAX_BYTES) hang_up(job);
            return;
        }
        size_t len = (size_t)(end - in.data);
        char *line = mem_strndup(in.data, len && end[-1] == '\r' ? len - 1 : len);
        conn_consume(conn, len + 1);
        if (strcmp(line, "+OK") != 0) got_answer(job, slice_of(line)); /* else AUTH */
        mem_free(line);
    }
}

static void ask_closed(struct connection *conn) {
    hang_up(conn->owner);
}

static const struct connection_events ask_events = {
    .connected = ask_connected, .readable = ask_readable, .closed = ask_closed};

/* The node that decides for the target's shard; NULL: none is known. The target itself may have left it. */
static const struct cluster_node *leader_of_target(const struct job *job) {
    const struct cluster_node *leader = NULL;
    for (size_t i = 0; i < this_cluster->nodes.count; i++) {
        const struct cluster_node *node = this_cluster->nodes.list[i];
        if (!node_is_primary(node) || node_failed(node) || !node_id_equal(&node->shard, &job->target_shard)) continue;
        if (!leader || node_id_equal(&node->id, &job->target)) leader = node;
    }
    return leader;
}

bool granted_knows_shard(const struct job *job) {
    for (size_t i = 0; i < this_cluster->nodes.count; i++)
        if (node_id_equal(&this_cluster->nodes.list[i]->shard, &job->target_shard)) return true;
    return false;
}

static void ask(struct job *job) {
    int64_t now = clock_mono_ms();
    const struct cluster_node *node = leader_of_target(job);
    if (job->conn && now - job->sent_ms > ANSWER_TIMEOUT_MS) hang_up(job);
    if (job->conn || now - job->sent_ms < ASK_INTERVAL_MS || !node) return;
    int port = tls_for_replication() ? node->tls_port : node->port;
    if (!node->address[0] || !port) return;
    if (job->client) job_detach(job); /* a grant that is still on its way does not count any more */
    job->sent_ms = now;
    struct connect_options options = {.host = node->address,
                                      .port = port,
                                      .source_host = outgoing_source(),
                                      .source_optional = true,
                                      .timeout_ms = ANSWER_TIMEOUT_MS,
                                      .events = &ask_events,
                                      .owner = job};
    job->conn = conn_connect(transport_find(tls_for_replication() ? "tls" : "tcp"), server.loop, &options);
}

void granted_ask_cancelled(struct job *job) {
    if (job->cancelled && !job->is_recorded && !job->is_refused && !sync_on && target_answers(job)) ask(job);
}

void granted_step(struct job *job) {
    struct grant_facts facts;
    if (server_is_loading()) return;
    if (!granted_knows_shard(job) && !job->is_decided) { /* an operator has forgotten all of its nodes */
        facts_of(job, &facts);
        if (facts.leads) take_back(job);
        return;
    }
    facts_of(job, &facts);
    switch (grant_decide(&facts)) {
    case GRANT_WAIT: break;
    case GRANT_TRACK:
        if (facts.primary && facts.leads) release_slots(job); /* before clients go on */
        become_tracked(job);
        break;
    case GRANT_RELEASE: release_slots(job); break;
    case GRANT_ASK: ask(job); break;
    case GRANT_DONE: done(job); break;
    }
}

void migration_leads(void) {
    import_leads();
    list_each(&jobs, link) {
        struct job *job = job_of(link);
        if (!job->is_recorded || job_is_over(job)) continue;
        job->committed_at = -1; /* nothing is known to be committed in this term */
        if (job->is_tracked && owns_any(job)) release_slots(job);
    }
}

void migration_left_shard(void) {
    list_each(&jobs_in_progress, link) {
        struct job *job = job_in_progress(link);
        if (!job->is_recorded && !job->takes && !job->is_tracked) continue; /* it finds that its slots have moved */
        job->is_decided = true;                                             /* by the others */
        job->takes = false;
        job_end(job, JOB_FAILED, "This node left its shard");
    }
}

/* --- Files --- */

void migration_write_commands(struct output *out) {
    list_each(&jobs, link) {
        const struct job *job = job_of(link);
        struct ranged words;
        char epoch[NUMBER_TEXT_MAX];
        if (job_is_over(job)) continue;
        if (job->is_recorded) {
            words = owner_words("GRANT", job, epoch);
            ranged_write(&words, out);
        }
        if (!job->is_import) continue;
        words = ranged_words(job, 6,
                             (struct slice[]){SLICE("CLUSTER"),
                                              SLICE("SYNCSLOTS"),
                                              SLICE("ESTABLISH"),
                                              SLICE("NAME"),
                                              {job->name, JOB_NAME_LEN},
                                              SLICE("SLOTSRANGE")});
        ranged_write(&words, out);
        if (job->takes) import_write_take(job, out);
    }
}

size_t migration_write_aux(struct rdb_aux *fields) {
    static struct memory_output text;
    bool any = false;
    if (!text.out.ops) memory_output_init(&text);
    memory_output_clear(&text);
    list_each(&jobs, link) {
        const struct job *job = job_of(link);
        char number[NUMBER_TEXT_MAX];
        if (!job->is_recorded || job_is_over(job)) continue;
        any = true;
        output_write(&text.out, slice_make(job->name, JOB_NAME_LEN));
        output_write(&text.out, SLICE(" "));
        output_write(&text.out, slice_make(job->target.text, NODE_ID_LEN));
        output_write(&text.out, SLICE(" "));
        output_write(&text.out, slice_make(job->target_shard.text, NODE_ID_LEN));
        output_write(&text.out, SLICE(" "));
        output_write(&text.out, (struct slice){number, format_uint64(number, job->target_epoch)});
        for (size_t i = 0; i < 2 * job->count; i++) {
            output_write(&text.out, SLICE(" "));
            output_write(&text.out, (struct slice){number, format_int64(number, job->ranges[i / 2][i % 2])});
        }
        output_write(&text.out, SLICE(","));
    }
    if (any) *fields++ = (struct rdb_aux){slice_of(aux_name), memory_output_slice(&text)};
    return (size_t)any + import_write_aux(fields);
}

/* The ranges of an entry. False: they are damaged. */
static bool read_ranges(struct slice text, uint16_t (*ranges)[2], size_t *count) {
    size_t numbers = 0;
    while (text.len) {
        const char *space = memchr(text.data, ' ', text.len);
        size_t len = space ? (size_t)(space - text.data) : text.len;
        int64_t slot;
        if (!parse_int64((struct slice){text.data, len}, &slot) || slot < 0 || slot >= HASH_SLOTS ||
            numbers == 2 * HASH_SLOTS)
            return false;
        ranges[numbers / 2][numbers % 2] = (uint16_t)slot;
        if (numbers % 2 && ranges[numbers / 2][0] > slot) return false;
        numbers++;
        if (!space) break;
        text = (struct slice){space + 1, text.len - len - 1};
    }
    *count = numbers / 2;
    return numbers && numbers % 2 == 0;
}

void migration_read_aux(struct slice name, struct slice value) {
    static uint16_t ranges[HASH_SLOTS][2];
    enum { SHARD_AT = JOB_NAME_LEN + 1 + NODE_ID_LEN + 1, HEAD = SHARD_AT + NODE_ID_LEN + 1 };
    const char *at = value.data, *end = at + value.len;
    import_read_aux(name, value);
    if (!slice_is(name, aux_name)) return;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t count;
        struct node_id target, shard;
        int64_t epoch;
        if (!comma) return;
        const char *first = comma - at > HEAD ? memchr(at + HEAD, ' ', (size_t)(comma - at - HEAD)) : NULL;
        if (first && parse_int64((struct slice){at + HEAD, (size_t)(first - at - HEAD)}, &epoch) && epoch >= 0 &&
            read_ranges((struct slice){first + 1, (size_t)(comma - first - 1)}, ranges, &count)) {
            memcpy(target.text, at + JOB_NAME_LEN + 1, NODE_ID_LEN);
            memcpy(shard.text, at + SHARD_AT, NODE_ID_LEN);
            if (node_id_valid(&target) && node_id_valid(&shard))
                granted_track(slice_make(at, JOB_NAME_LEN), &target, &shard, (uint64_t)epoch,
                              (const uint16_t(*)[2])ranges, count);
        }
        at = comma + 1;
    }
}
