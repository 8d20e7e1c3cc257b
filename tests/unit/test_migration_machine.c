/* Slot migrations: the messages (cluster/migration/protocol/messages.h), the machine at both ends, and the decisions of
 * both shards when a server dies after the grant. */
#include "cluster/migration/protocol/migration_machine.h"
#include "cluster_rules.h"

/* --- Messages --- */

static struct slot_ranges ranges;
static struct slot_message parse_words(int argc, const struct slice *argv, bool good) {
    struct slot_message message;
    assert_int_equal(slot_message_parse(&message, argc, argv, &ranges), good);
    return message;
}
#define PARSE(good, ...)                                                                                               \
    parse_words((int)(sizeof((struct slice[]){__VA_ARGS__}) / sizeof(struct slice)), (struct slice[]){__VA_ARGS__},    \
                good)
#define SYNCSLOTS SLICE("CLUSTER"), SLICE("SYNCSLOTS")
#define NAME      "0123456789012345678901234567890123456789"
#define ID        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

TEST(messages_of_a_link_are_read) {
    assert_int_equal(PARSE(true, SYNCSLOTS, SLICE("request-pause")).verb, VERB_REQUEST_PAUSE);
    assert_int_equal(PARSE(true, SYNCSLOTS, SLICE("foo")).verb, VERB_UNKNOWN);
    assert_int_equal(PARSE(true, SYNCSLOTS, SLICE("PULLED"), SLICE("7")).pulled, 7);
    assert_int_equal(PARSE(true, SYNCSLOTS, SLICE("PULLED"), SLICE("x")).pulled, -1);
    assert_int_equal(PARSE(true, SYNCSLOTS, SLICE("CAPA")).capability, CAPABILITY_NONE);
    assert_int_equal(PARSE(true, SYNCSLOTS, SLICE("CAPA"), SLICE("none")).capability, CAPABILITY_NONE);
    assert_int_equal(PARSE(true, SYNCSLOTS, SLICE("CAPA"), SLICE("slot-chunks")).capability, CAPABILITY_CHUNKS);
    struct slot_message capa =
        PARSE(true, SYNCSLOTS, SLICE("CAPA"), SLICE("slot-chunks"), SLICE("slot-pull"), SLICE("k"));
    assert_int_equal(capa.capability, CAPABILITY_PULL);
    assert_true(slice_is(capa.key, "k"));
    assert_int_equal(PARSE(true, SYNCSLOTS, SLICE("FAILOVER-GRANTED")).epoch, 0);
    assert_int_equal(PARSE(true, SYNCSLOTS, SLICE("FAILOVER-GRANTED"), SLICE("EPOCH"), SLICE("9")).epoch, 9);
    assert_int_equal(PARSE(true, SYNCSLOTS, SLICE("FAILOVER-GRANTED"), SLICE("EPOCH"), SLICE("-1")).epoch, 0);
}

TEST(malformed_messages_of_streams_are_refused) {
    struct slice name = SLICE("NAME"), job = SLICE(NAME), list = SLICE("SLOTSRANGE");
    PARSE(false, SYNCSLOTS, SLICE("TAKE"));
    PARSE(false, SYNCSLOTS, SLICE("TAKE"), name, SLICE("short"));
    PARSE(false, SYNCSLOTS, SLICE("ESTABLISH"), name, job);
    PARSE(false, SYNCSLOTS, SLICE("ESTABLISH"), name, job, list, SLICE("5"), SLICE("4"));
    PARSE(false, SYNCSLOTS, SLICE("ESTABLISH"), name, job, list, SLICE("5"), SLICE("16384"));
    PARSE(false, SYNCSLOTS, SLICE("ESTABLISH"), name, job, list, SLICE("5"), SLICE("6"), SLICE("6"), SLICE("7"));
    PARSE(false, SYNCSLOTS, SLICE("GRANT"), name, job, list, SLICE("5"), SLICE("6"));
    PARSE(false, SYNCSLOTS, SLICE("FINISH"), name, job);
    PARSE(false, SYNCSLOTS, SLICE("FINISH"), name, job, SLICE("STATE"));
    PARSE(false, SYNCSLOTS, SLICE("FINISH"), name, job, SLICE("STATE"), SLICE("SUCCESS"), SLICE("FOO"), SLICE("1"));
    PARSE(true, SYNCSLOTS, SLICE("FINISH"), name, job, SLICE("STATE"), SLICE("SUCCESS"), SLICE("EPOCH"), SLICE("1"));
    PARSE(true, SYNCSLOTS, SLICE("ESTABLISH"), SLICE("FOO"), SLICE("1"), name, job, list, SLICE("5"), SLICE("6"));
}

TEST(a_message_is_read_as_it_was_written) {
    static const uint16_t list[2][2] = {{0, 5}, {16383, 16383}};
    const enum slot_verb verbs[] = {VERB_ESTABLISH, VERB_TAKE, VERB_GRANT, VERB_MOVED, VERB_FINISH, VERB_OUTCOME};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        struct slot_message message = {.verb = verbs[i], .name = SLICE(NAME), .count = 2, .ranges = list, .epoch = 77};
        struct slot_arguments arguments;
        bool targeted = verbs[i] == VERB_GRANT || verbs[i] == VERB_MOVED;
        if (verbs[i] == VERB_TAKE || verbs[i] == VERB_FINISH) message.count = 0;
        if (targeted) memcpy(message.target.text, ID, NODE_ID_LEN);
        if (targeted || verbs[i] == VERB_OUTCOME) memcpy(message.shard.text, ID, NODE_ID_LEN);
        if (verbs[i] == VERB_OUTCOME) memcpy(message.source.text, ID, NODE_ID_LEN);
        if (verbs[i] == VERB_FINISH) message.finish = FINISH_CANCELLED;
        if (verbs[i] == VERB_FINISH) message.text = SLICE("why");
        slot_message_arguments(&message, &arguments);
        struct slot_message got = parse_words(arguments.argc, arguments.argv, true);
        assert_int_equal(got.verb, verbs[i]);
        assert_true(slice_equal(got.name, message.name));
        assert_int_equal(got.epoch, 77);
        assert_int_equal(got.finish, message.finish);
        assert_true(slice_equal(got.text, message.text));
        assert_memory_equal(&got.target, &message.target, sizeof got.target);
        assert_memory_equal(&got.shard, &message.shard, sizeof got.shard);
        assert_memory_equal(&got.source, &message.source, sizeof got.source);
        assert_int_equal(got.count, message.count);
        if (got.count) assert_memory_equal(got.ranges, list, sizeof list);
        slot_arguments_free(&arguments);
    }
}

TEST(damaged_grants_in_a_file_are_passed_over) {
    struct slice field =
        SLICE("x," NAME " " ID " " ID " 5 1 2 7 7," NAME " " ID " " ID " 5 9," NAME " " ID " " ID " 6 3 3,rest");
    struct slot_message grant;
    assert_true(slot_grants_read(&field, &grant, &ranges));
    assert_int_equal(grant.epoch, 5);
    assert_int_equal(grant.count, 2);
    assert_int_equal(grant.ranges[1][0], 7);
    assert_true(slot_grants_read(&field, &grant, &ranges));
    assert_int_equal(grant.epoch, 6);
    assert_false(slot_grants_read(&field, &grant, &ranges));
}

/* --- A source --- */

static struct migration_settings settings = {.log_max_len = 10, .failover_bytes = 0, .timeout_ms = 60000};
static struct migration_facts server = {.sync = true, .leads = true, .certain = true};
static enum slot_verb sent_last;
static int dials, records;

static void get_facts(void *context, struct migration_facts *facts) {
    *facts = server;
}
static bool commits = true;
static bool has_committed(void *context, int64_t offset) {
    return commits;
}
static bool no(void *context) {
    return false;
}
static bool yes(void *context) {
    return true;
}
static bool node_yes(void *context, const struct cluster_node *node) {
    return true;
}
static bool slot_no(void *context, unsigned slot) {
    return false;
}
static bool export_yes(void *context, const struct slot_export *export) {
    return true;
}
static bool import_yes(void *context, const struct slot_import *import) {
    return true;
}
static bool hidden;
static void hide_keys(void *context, const struct slot_import *import) {
    hidden = true;
}
static void show_keys(void *context, const struct slot_import *import) {
    hidden = false;
}
static int drops;
static void drop_keys(void *context, const struct slot_import *import) {
    drops++;
}
static void import_nothing(void *context, struct slot_import *import) {}
static bool export_no(void *context, struct slot_export *export) {
    return false;
}
static void job_nothing(void *context, struct slot_job *job) {}
static void job_ended(void *context, struct slot_job *job, bool success) {}
static void export_nothing(void *context, struct slot_export *export) {}
static void dial(void *context, struct slot_export *export, const struct cluster_node *target) {
    dials++;
}
static void send_verb(void *context, struct slot_job *job, const struct slot_message *message) {
    sent_last = message->verb;
}
static enum snapshot_start start_snapshot(void *context, struct slot_export *export) {
    return SNAPSHOT_STARTED;
}
static size_t flush(void *context, struct slot_export *export) {
    return 0;
}
static void hold(void *context, bool reads, int64_t until_ms) {}
static void release(void *context) {}
static void record(void *context, const struct slot_message *message) {
    records++;
}
static void write_log(void *context, enum log_level level, const char *text) {}
static void write_log_seldom(void *context, const char *text) {}
static const struct migration_effects effects = {.facts = get_facts,
                                                 .committed = has_committed,
                                                 .authenticates = no,
                                                 .clients_are_held = yes,
                                                 .can_ask = node_yes,
                                                 .owner_is_unknown = slot_no,
                                                 .snapshot_is_possible = export_yes,
                                                 .snapshot_lets_send = export_yes,
                                                 .fetch_is_idle = import_yes,
                                                 .created = job_nothing,
                                                 .ended = job_ended,
                                                 .freed = job_nothing,
                                                 .dial = dial,
                                                 .accepted = export_nothing,
                                                 .send = send_verb,
                                                 .close = job_nothing,
                                                 .ask_pull = export_no,
                                                 .hang_up = export_nothing,
                                                 .start_snapshot = start_snapshot,
                                                 .cancel_snapshot = export_nothing,
                                                 .send_changes = export_nothing,
                                                 .flush = flush,
                                                 .end_stream = export_nothing,
                                                 .hold_clients = hold,
                                                 .release_clients = release,
                                                 .hide_keys = hide_keys,
                                                 .show_keys = show_keys,
                                                 .drop_keys = drop_keys,
                                                 .load_fetched = import_nothing,
                                                 .close_fetch = import_nothing,
                                                 .record = record,
                                                 .log = write_log,
                                                 .log_seldom = write_log_seldom};

static struct migration_machine m;
static int64_t now;

static void turn_of(const struct slot_job *job, const char *name) {
    migrations_turn_end(&m, now += 10);
    assert_string_equal(job_state_name(job), name);
}
static void turn(struct slot_export *export, const char *name) {
    turn_of(&export->job, name);
}
static void hear(struct slot_export *export, enum slot_verb verb) {
    export_received(&m, export, &(struct slot_message){.verb = verb}, now += 10);
}

/* An export of a slot of machine 0 to machine 1 that is about to grant. The link is up. */
static struct slot_export *begin_export(unsigned features) {
    build(3, 2);
    unsigned slot = 0;
    now = time_at(0);
    migrations_init(&m, &settings, &effects, NULL, cluster_at(0));
    while (!cluster_serves(cluster_at(0), slot)) slot++;
    node_of(0, 1)->features = features;
    memset(&ranges, 0, sizeof ranges);
    slot_ranges_add(&ranges, slot, slot);
    struct slot_export *export = export_new(&m, SLICE(NAME), id_at(1), &ranges, now);
    turn(export, "connecting");
    export_connected(&m, export, now);
    assert_int_equal(sent_last, VERB_ESTABLISH);
    assert_string_equal(job_state_name(&export->job), "reading-establish-response");
    export_answered(&m, export, SLICE("+OK"), now);
    turn(export, "snapshotting");
    export_snapshot_done(&m, export, now);
    turn(export, "replicating");
    hear(export, VERB_REQUEST_PAUSE);
    turn(export, "failover-paused");
    assert_int_equal(sent_last, VERB_PAUSED);
    hear(export, VERB_REQUEST_FAILOVER);
    records = 0;
    return export;
}
static void end_jobs(void) {
    migrations_free(&m);
    sim_free(&sim);
}

TEST(a_grant_is_recorded_if_the_target_can_be_asked) {
    struct slot_export *export = begin_export(OWN_FEATURE_SLOT_OUTCOME);
    turn(export, "failover-granted");
    assert_int_equal(records, 1);
    assert_int_equal(export->state, EXPORT_GRANTED_RECORDED);
    end_jobs();
}

/* Valkey: whether it takes the slots shows on the bus alone. */
TEST(a_source_waits_for_the_claim_of_a_target_that_cannot_be_asked) {
    struct slot_export *export = begin_export(0);
    turn(export, "failover-granted");
    assert_int_equal(records, 0);
    for (int i = 0; i < 100; i++) migrations_tick(&m, now += 100);
    assert_string_equal(job_state_name(&export->job), "failover-granted");
    assert_false(job_is_over(&export->job));
    /* It speaks long after its link broke, and claims nothing. */
    node_of(0, 1)->beat->data_received_ms = now + 60000;
    migrations_tick(&m, now += 60000);
    assert_string_equal(export->job.message, "The target did not take the slots");
    end_jobs();
}

TEST(a_cancelled_grant_is_shown_as_cancelled_and_goes_on) {
    struct slot_export *export = begin_export(OWN_FEATURE_SLOT_OUTCOME);
    turn(export, "failover-granted");
    export_cancel(&m, export, now);
    assert_string_equal(job_state_name(&export->job), "cancelled");
    assert_false(job_is_over(&export->job));
    assert_null(export_with_slot(&m, export->job.ranges[0][0]));
    assert_true(exports_recorded(&m, export->job.ranges[0][0]));
    end_jobs();
}

/* The target breaks the protocol: the link ends, and the writes of clients would go on. */
TEST(a_grant_that_loses_its_link_by_an_error_gives_the_slots_up_at_once) {
    struct slot_export *export = begin_export(OWN_FEATURE_SLOT_OUTCOME);
    turn(export, "failover-granted");
    assert_true(cluster_serves(cluster_at(0), export->job.ranges[0][0]));
    hear(export, VERB_REQUEST_FAILOVER);
    turn(export, "failover-granted");
    assert_int_equal(export->state, EXPORT_TRACKED);
    assert_false(cluster_serves(cluster_at(0), export->job.ranges[0][0]));
    end_jobs();
}

/* --- A target --- */

static void tell(struct slot_import *import, enum slot_verb verb) {
    import_received(&m, import, &(struct slot_message){.verb = verb}, now += 10);
}

/* An import of a slot of machine 0 at machine 1, whose source has paused its clients. */
static struct slot_import *begin_import(void) {
    build(3, 2);
    unsigned slot = 0;
    now = time_at(1);
    commits = true;
    records = drops = 0;
    migrations_init(&m, &settings, &effects, NULL, cluster_at(1));
    while (!cluster_serves(cluster_at(0), slot)) slot++;
    memset(&ranges, 0, sizeof ranges);
    slot_ranges_add(&ranges, slot, slot);
    struct slot_import *import = import_new(&m, SLICE(NAME), id_at(0), &ranges, now);
    assert_true(hidden);
    turn_of(&import->job, "waiting-for-ack");
    tell(import, VERB_ACK);
    turn_of(&import->job, "receiving-snapshot");
    tell(import, VERB_SNAPSHOT_EOF);
    assert_int_equal(sent_last, VERB_REQUEST_PAUSE);
    turn_of(&import->job, "waiting-for-paused");
    return import;
}

TEST(a_target_requests_and_claims_the_slots_when_its_shard_has_committed) {
    struct slot_import *import = begin_import();
    commits = false;
    tell(import, VERB_PAUSED);
    turn_of(&import->job, "waiting-for-paused");
    commits = true;
    turn_of(&import->job, "failover-requested");
    assert_int_equal(sent_last, VERB_REQUEST_FAILOVER);
    commits = false;
    tell(import, VERB_FAILOVER_GRANTED);
    assert_int_equal(records, 1); /* TAKE */
    turn_of(&import->job, "failover-granted");
    assert_true(hidden);
    job_end_later(&import->job, "It does not fail any more");
    turn_of(&import->job, "failover-granted");
    commits = true;
    turn_of(&import->job, "success");
    assert_int_equal(records, 2); /* FINISH */
    assert_true(cluster_serves(cluster_at(1), import->job.ranges[0][0]));
    assert_false(hidden);
    assert_int_equal(drops, 0);
    end_jobs();
}

/* A question that was delayed on the network, after the slots have gone back to the source by another migration. */
TEST(a_late_question_does_not_take_slots_that_have_gone_back) {
    struct slot_import *import = begin_import();
    struct slot_bitmap slots = one_slot(import->job.ranges[0][0]);
    tell(import, VERB_PAUSED);
    turn_of(&import->job, "failover-requested");
    tell(import, VERB_FAILOVER_GRANTED);
    turn_of(&import->job, "success");
    struct slot_message question = {.verb = VERB_OUTCOME,
                                    .name = SLICE(NAME),
                                    .source = *id_at(0),
                                    .shard = cluster_at(1)->myself->shard,
                                    .epoch = cluster_at(1)->current_epoch};
    cluster_hear_claim(cluster_at(1), node_of(1, 0), &slots, question.epoch + 1, now);
    assert_false(cluster_serves(cluster_at(1), import->job.ranges[0][0]));
    assert_int_equal(import_asked(&m, &question, &slots, now), OUTCOME_LATER);
    assert_false(cluster_serves(cluster_at(1), import->job.ranges[0][0]));
    question.epoch++; /* the server that asks knew the owner, and owns the slots no more */
    assert_int_equal(import_asked(&m, &question, &slots, now), OUTCOME_TAKEN);
    assert_true(cluster_serves(cluster_at(1), import->job.ranges[0][0]));
    end_jobs();
}

TEST(a_message_that_does_not_fit_the_state_ends_a_job) {
    struct slot_import *import = begin_import();
    tell(import, VERB_FAILOVER_GRANTED);
    turn_of(&import->job, "failed");
    assert_string_equal(import->job.message, "Unexpected state machine transition");
    assert_int_equal(drops, 1);
    assert_false(hidden);
    end_jobs();
}

TEST(an_import_of_a_server_that_becomes_a_replica_is_tracked) {
    struct slot_import *import = begin_import();
    server.replica = true;
    turn_of(&import->job, "occurring-on-primary");
    struct slot_message finish = {.verb = VERB_FINISH, .name = SLICE(NAME), .text = SLICE("why")};
    assert_true(migrations_track(&m, &finish, now));
    assert_string_equal(import->job.message, "why");
    assert_int_equal(records, 0); /* its primary has recorded it */
    server.replica = false;
    end_jobs();
}

/* Without synchronous replication the stream of the primary may have been behind its claim. */
TEST(a_successor_that_owns_the_slots_of_an_import_keeps_their_keys) {
    for (int owns = 0; owns < 2; owns++) {
        struct slot_import *import = begin_import();
        struct slot_bitmap slots = one_slot(import->job.ranges[0][0]);
        server = (struct migration_facts){.replica = true, .leads = true, .certain = true};
        turn_of(&import->job, "occurring-on-primary");
        if (owns) cluster_take_slots(cluster_at(1), &slots, now);
        server.replica = false;
        turn_of(&import->job, owns ? "success" : "failed");
        assert_int_equal(drops, owns ? 0 : 1);
        assert_false(hidden);
        server = (struct migration_facts){.sync = true, .leads = true, .certain = true};
        end_jobs();
    }
}

/* --- The decisions --- */

enum {
    PRIMARY = 1,
    LEADS = 2,
    CERTAIN = 4,
    COMMITTED = 8,
    TRACKED = 16,
    LINKED = 32,
    OWNS = 64,
    MOVED = 128,
    HOLD_MS = 10000,
    SUCCESSOR = PRIMARY | LEADS | CERTAIN | COMMITTED | TRACKED,
    SOURCE = PRIMARY | LEADS | CERTAIN | COMMITTED | OWNS
};
static struct grant_facts facts_of(unsigned bits, int64_t alone_ms) {
    return (struct grant_facts){.primary = bits & PRIMARY,
                                .leads = bits & LEADS,
                                .certain = bits & CERTAIN,
                                .committed = bits & COMMITTED,
                                .tracked = bits & TRACKED,
                                .linked = bits & LINKED,
                                .owns = bits & OWNS,
                                .moved = bits & MOVED,
                                .alone_ms = alone_ms,
                                .hold_ms = HOLD_MS};
}
static enum grant_step step_after(unsigned bits, int64_t alone_ms) {
    struct grant_facts facts = facts_of(bits, alone_ms);
    return grant_decide(&facts);
}
static enum grant_step step(unsigned bits) {
    return step_after(bits, GRANT_PATIENCE_MS);
}
static bool takes_back(unsigned bits) {
    struct grant_facts facts = facts_of(bits, 0);
    return grant_takes_back(&facts);
}

TEST(a_successor_gives_the_slots_up_before_it_asks) {
    assert_int_equal(step(SUCCESSOR | OWNS), GRANT_RELEASE);
    assert_int_equal(step(((SUCCESSOR | OWNS) & ~CERTAIN) & ~COMMITTED), GRANT_RELEASE);
    assert_int_equal(step(SUCCESSOR), GRANT_ASK);
}

TEST(only_who_leads_for_certain_and_has_committed_the_grant_asks) {
    assert_int_equal(step(SUCCESSOR & ~CERTAIN), GRANT_WAIT);
    assert_int_equal(step(SUCCESSOR & ~COMMITTED), GRANT_WAIT);
    assert_int_equal(step(SUCCESSOR & ~LEADS), GRANT_WAIT);
    assert_int_equal(step(SUCCESSOR & ~PRIMARY), GRANT_WAIT);
    assert_int_equal(step(SOURCE & ~COMMITTED), GRANT_WAIT);
}

TEST(a_source_asks_when_its_link_has_been_down_for_a_while) {
    assert_int_equal(step_after(SOURCE | LINKED, 0), GRANT_WAIT);
    assert_int_equal(step_after(SOURCE, GRANT_PATIENCE_MS - 1), GRANT_WAIT);
    assert_int_equal(step(SOURCE), GRANT_ASK);
}

TEST(a_source_holds_its_clients_only_for_so_long) {
    assert_int_equal(step_after(SOURCE, HOLD_MS - 1), GRANT_ASK);
    assert_int_equal(step_after(SOURCE, HOLD_MS), GRANT_TRACK);
    assert_int_equal(step_after(SUCCESSOR, HOLD_MS), GRANT_ASK);
}

TEST(a_source_that_is_replaced_leaves_the_decision_to_its_successor) {
    assert_int_equal(step(SOURCE & ~PRIMARY), GRANT_TRACK);
    assert_int_equal(step((SOURCE | MOVED) & ~PRIMARY), GRANT_TRACK);
    assert_int_equal(step(SOURCE & ~LEADS), GRANT_WAIT);
}

TEST(slots_that_other_shards_claim_have_moved) {
    assert_int_equal(step((SOURCE | MOVED | LINKED) & ~CERTAIN), GRANT_DONE);
    assert_int_equal(step(SUCCESSOR | MOVED), GRANT_DONE);
    assert_int_equal(step((SUCCESSOR | MOVED) & ~LEADS), GRANT_WAIT);
}

TEST(a_refusal_counts_only_for_the_leader_while_nobody_claims_the_slots) {
    assert_true(takes_back(SUCCESSOR));
    assert_true(takes_back(SOURCE));
    assert_false(takes_back(SUCCESSOR | MOVED));
    assert_false(takes_back(SUCCESSOR & ~CERTAIN));
    assert_false(takes_back(SUCCESSOR & ~PRIMARY));
    assert_false(takes_back(SUCCESSOR & ~COMMITTED));
}

#define STEP(...) take_decide(&(struct take_facts){__VA_ARGS__})

TEST(a_target_decides_when_it_was_granted) {
    assert_int_equal(STEP(.leads = true, .certain = true, .granted = true), TAKE_DECIDE);
    assert_int_equal(STEP(.leads = true, .certain = true), TAKE_WAIT);
    assert_int_equal(STEP(.leads = true, .granted = true), TAKE_WAIT);
    assert_int_equal(STEP(.certain = true, .granted = true), TAKE_WAIT);
    assert_int_equal(STEP(.leads = true, .certain = true, .granted = true, .held = true), TAKE_WAIT);
}

TEST(slots_are_claimed_when_the_decision_is_committed) {
    for (int tracked = 0; tracked < 2; tracked++) {
        assert_int_equal(STEP(.leads = true, .certain = true, .decided = true, .tracked = tracked), TAKE_WAIT);
        assert_int_equal(STEP(.leads = true, .decided = true, .committed = true, .tracked = tracked), TAKE_WAIT);
        assert_int_equal(STEP(.certain = true, .decided = true, .committed = true, .tracked = tracked), TAKE_WAIT);
        assert_int_equal(
            STEP(.leads = true, .certain = true, .decided = true, .committed = true, .held = true, .tracked = tracked),
            TAKE_CLAIM);
    }
}

TEST(a_successor_without_the_decision_fails_the_job) {
    assert_int_equal(STEP(.leads = true, .tracked = true), TAKE_FAIL);
    assert_int_equal(STEP(.tracked = true), TAKE_WAIT);
}

TEST(slots_that_are_owned_after_a_restart_stay) {
    assert_int_equal(STEP(.leads = true, .tracked = true, .owns = true), TAKE_CLAIM);
    assert_int_equal(STEP(.tracked = true, .owns = true), TAKE_WAIT);
}

#define DECIDE(...)       outcome_decide(&(struct outcome_facts){__VA_ARGS__})
#define ANSWER(kind, ...) DECIDE(.job = kind, .certain = true, .with_source = true, __VA_ARGS__)

TEST(a_question_is_the_grant_for_a_job_that_waits) {
    assert_int_equal(ANSWER(OUTCOME_JOB_WAITS, .committed = true), OUTCOME_GRANTED);
    assert_int_equal(ANSWER(OUTCOME_JOB_WAITS, .owns = true), OUTCOME_GRANTED); /* ends the job, too */
    assert_int_equal(ANSWER(OUTCOME_JOB_WAITS, .held = true), OUTCOME_LATER);
    assert_int_equal(ANSWER(OUTCOME_JOB_EARLY, .committed = true), OUTCOME_LATER);
}

TEST(a_failure_is_told_when_it_is_committed) {
    assert_int_equal(ANSWER(OUTCOME_JOB_FAILED, .committed = false), OUTCOME_LATER);
    assert_int_equal(ANSWER(OUTCOME_JOB_FAILED, .committed = true), OUTCOME_REFUSED);
}

TEST(a_success_that_nobody_heard_of_is_carried_out) {
    assert_int_equal(ANSWER(OUTCOME_JOB_SUCCESS, .owns = true), OUTCOME_TAKEN);
    assert_int_equal(ANSWER(OUTCOME_JOB_SUCCESS, .owns = false), OUTCOME_CLAIM);
    assert_int_equal(DECIDE(.job = OUTCOME_JOB_SUCCESS, .certain = true), OUTCOME_TAKEN); /* moved on */
    assert_int_equal(ANSWER(OUTCOME_JOB_SUCCESS, .outdated = true), OUTCOME_LATER);       /* moved back */
}

TEST(a_forgotten_job_has_failed_if_the_source_has_the_slots) {
    assert_int_equal(ANSWER(OUTCOME_JOB_UNKNOWN, .committed = true), OUTCOME_REFUSED);
    assert_int_equal(ANSWER(OUTCOME_JOB_UNKNOWN, .committed = false), OUTCOME_LATER);
    assert_int_equal(ANSWER(OUTCOME_JOB_UNKNOWN, .owns = true), OUTCOME_TAKEN);
    assert_int_equal(DECIDE(.job = OUTCOME_JOB_UNKNOWN, .certain = true), OUTCOME_TAKEN);
    assert_int_equal(DECIDE(.job = OUTCOME_JOB_UNKNOWN, .certain = true, .committed = true, .unclaimed = true),
                     OUTCOME_REFUSED);
    assert_int_equal(DECIDE(.job = OUTCOME_JOB_SUCCESS, .certain = true, .unclaimed = true), OUTCOME_TAKEN);
    assert_int_equal(ANSWER(OUTCOME_JOB_UNKNOWN, .committed = true, .unheard = true), OUTCOME_LATER);
    assert_int_equal(ANSWER(OUTCOME_JOB_UNKNOWN, .owns = true, .unheard = true), OUTCOME_TAKEN);
}

TEST(who_does_not_lead_for_certain_says_nothing) {
    for (enum outcome_job job = OUTCOME_JOB_UNKNOWN; job <= OUTCOME_JOB_FAILED; job++)
        assert_int_equal(DECIDE(.job = job, .committed = true, .owns = true, .with_source = true), OUTCOME_LATER);
}
