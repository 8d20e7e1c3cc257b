/* Rules of the Sentinel state machine that the simulation does not name: what INFO says, which replica is chosen, TILT,
 * hello messages of any content. */
#include "unit.h"
#include "sentinel/protocol/sentinel.h"
#include <stdio.h>
#include <string.h>

static struct sentinel *s;
static struct instance *group;
static char events[4096];
static int64_t now;

static uint64_t fixed(void *context) {
    return 7;
}
static bool resolve(void *context, const char *host, bool names, char ip[static SENTINEL_IP_MAX]) {
    if (host[0] < '0' || host[0] > '9') return false;
    snprintf(ip, SENTINEL_IP_MAX, "%.45s", host);
    return true;
}
static bool own_address(void *context, const struct sentinel_link *link, char host[static SENTINEL_HOST_MAX],
                        int *port) {
    snprintf(host, SENTINEL_HOST_MAX, "10.9.9.9");
    *port = 26379;
    return true;
}
static int dials;
static bool sends = true;
static int promotions;
static void dial(void *context, struct sentinel_link *link, enum link_kind kind) {
    if (kind == LINK_COMMANDS) dials++;
}
static void close_link_half(void *context, struct sentinel_link *link, enum link_kind kind) {}
static bool send_request(void *context, struct sentinel_link *link, const struct instance *to,
                         const struct sentinel_request *request) {
    promotions += request->kind == REQUEST_REPLICATE && !request->host;
    return sends;
}
static void save(void *context, bool durable) {}
static bool settle(void *context) {
    return true;
}
static int refusals; /* times that the log says why no failover happens */
static void write_log(void *context, enum log_level level, const char *text) {
    refusals += strstr(text, "No failover of") != NULL;
}
static int64_t delay_ms; /* all delays of failovers, added up */
static void note_delay(void *context, int64_t wait_ms) {
    delay_ms += wait_ms;
}
static void note_event(void *context, enum log_level level, const char *type, const char *text,
                       const struct instance *of) {
    size_t at = strlen(events);
    snprintf(events + at, sizeof events - at, "%s;", type);
}
static void script(void *context, const struct instance *of, const char *role, const char *state,
                   const struct sentinel_address *from, const struct sentinel_address *to) {}
static void crash(void *context) {}
static const struct sentinel_effects effects = {.random = fixed,
                                                .resolve = resolve,
                                                .own_address = own_address,
                                                .dial = dial,
                                                .close = close_link_half,
                                                .send = send_request,
                                                .save = save,
                                                .settle = settle,
                                                .log = write_log,
                                                .failover_delayed = note_delay,
                                                .event = note_event,
                                                .reconfig_script = script,
                                                .crash = crash};

#define ID    "1111111111111111111111111111111111111111"
#define OTHER "2222222222222222222222222222222222222222"

static int begin(void **state) {
    now = 1000000;
    *events = 0;
    s = sentinel_new(ID, &effects, NULL, now);
    assert_null(sentinel_monitor(s, SLICE("g"), SLICE("10.0.0.1"), 6379, 2, &group, now));
    sentinel_set_down_after(group, 5000);
    return 0;
}
static int finish(void **state) {
    sentinel_free(s);
    return 0;
}
static void advance(int64_t ms) {
    for (int64_t end = now + ms; now < end;) {
        now += 100;
        sentinel_tick(s, now);
    }
}
static void answer(struct instance *i, enum sentinel_request_kind kind, const char *text) {
    struct sentinel_answer given = {.text = slice_of(text)};
    sentinel_replied(s, i->link, kind, "g", &given, now);
}

#define FIXTURE_TEST(name) TEST_WITH(name, begin, finish)

FIXTURE_TEST(info_is_read) {
    struct server_info info;
    server_info_init(&info);
    server_info_read(
        SLICE("role:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\nmaster_link_status:up\r\n"
              "slave_repl_offset:77\r\nslave_priority:5\r\nreplica_announced:0\r\nloading:1\r\n"
              "sync_eligible:0\r\nlistener0:name=tcp,bind=*,port=1\r\nlistener1:name=rdma,bind=x,port=2\r\n"),
        &info, NULL, NULL);
    assert_true(!info.is_primary && info.primary_link_up && info.loading && info.sync_ineligible);
    assert_string_equal(info.primary_host, "10.0.0.1");
    assert_int_equal(info.offset, 77);
    assert_int_equal(info.priority, 5);
    assert_int_equal(info.rdma_port, 2);
    assert_false(info.announced);
    assert_false(info.has_failover_state);
    /* What is missing or wrong keeps its value; a link that never was up looks down. */
    server_info_read(SLICE("role:master\r\nmaster_port:99999\r\nmaster_link_down_since_seconds:-1\r\n"), &info, NULL,
                     NULL);
    assert_true(info.is_primary && info.primary_link_up && !info.loading && !info.sync_ineligible);
    assert_int_equal(info.primary_port, 6379);
    assert_int_equal(info.offset, 77);
    assert_int_equal(info.primary_link_down_ms, -1000);
    server_info_read(SLICE("run_id:x\r\nslave_priority:12x\r\nslave_repl_offset:x\r\n"), &info, NULL, NULL);
    assert_false(info.is_primary);
    assert_string_equal(info.run_id, "");
    assert_int_equal(info.priority, 12);
    assert_int_equal(info.offset, 0);
}

FIXTURE_TEST(the_text_of_info_is_kept) {
    char text[9000];
    for (size_t len = 0; len < sizeof text; len = len * 3 + 1) {
        for (size_t i = 0; i < len; i++) text[i] = i % 7 ? "role:master\r\n"[i % 13] : (char)(i * 31);
        sentinel_tick(s, now);
        struct sentinel_answer given = {.text = {text, len}};
        sentinel_replied(s, group->link, REQUEST_INFO, "g", &given, now);
        assert_int_equal(group->info.len, len);
        assert_memory_equal(group->info.text, text, len);
    }
    sentinel_reset(s, group, now);
    assert_null(group->info.text);
}
FIXTURE_TEST(the_reason_for_no_failover_is_said_for_each_failure) {
    refusals = 0;
    for (int failures = 1; failures <= 3; failures++) {
        advance(8000);
        assert_true(group->flags & INSTANCE_S_DOWN);
        assert_int_equal(refusals, failures);
        answer(group, REQUEST_PING, "PONG");
        sentinel_link_opened(s, group->link, LINK_COMMANDS, now);
        advance(100);
        assert_false(group->flags & INSTANCE_S_DOWN);
        sentinel_link_closed(s, group->link, LINK_COMMANDS, "gone", now);
    }
}
FIXTURE_TEST(replicas_come_from_the_primary) {
    sentinel_tick(s, now);
    answer(group, REQUEST_INFO,
           "role:master\r\nslave0:ip=10.0.0.2,port=6379,state=online\r\nslave1:10.0.0.3,6379,online\r\n"
           "slave2:ip=nowhere,port=1\r\nslave3:ip=10.0.0.4\r\nslave4:\r\n");
    assert_int_equal(group->replicas.count, 2);
    assert_string_equal(events, "+slave;+slave;");
    answer(group, REQUEST_INFO, "role:master\r\nslave0:ip=10.0.0.2,port=6379,state=online\r\n");
    assert_int_equal(group->replicas.count, 2); /* only RESET forgets one */
}

static struct instance *add(const char *host, const char *info) {
    bool duplicate;
    assert_null(sentinel_add_replica(s, group, slice_of(host), 6379, &duplicate));
    struct instance *replica = group->replicas.items[group->replicas.count - 1];
    sentinel_tick(s, now);
    answer(replica, REQUEST_PING, "PONG");
    answer(replica, REQUEST_INFO, info);
    return replica;
}
FIXTURE_TEST(the_best_replica_is_chosen) {
    struct instance *a = add("10.0.0.2", "role:slave\r\nslave_priority:100\r\nslave_repl_offset:10\r\n");
    assert_ptr_equal(sentinel_choose_replica(s, group), a);
    struct instance *b = add("10.0.0.3", "role:slave\r\nslave_priority:100\r\nslave_repl_offset:11\r\n");
    assert_ptr_equal(sentinel_choose_replica(s, group), b);
    struct instance *c = add("10.0.0.4", "role:slave\r\nslave_priority:10\r\nslave_repl_offset:1\r\n");
    assert_ptr_equal(sentinel_choose_replica(s, group), c);
    answer(c, REQUEST_INFO, "role:slave\r\nslave_priority:0\r\nslave_repl_offset:100\r\n");
    assert_ptr_equal(sentinel_choose_replica(s, group), b);
    answer(b, REQUEST_INFO, "role:slave\r\nslave_priority:100\r\nslave_repl_offset:11\r\nloading:1\r\n");
    assert_string_equal(sentinel_replica_unfit(s, b), "is loading a data set");
    assert_ptr_equal(sentinel_choose_replica(s, group), a);
    answer(a, REQUEST_INFO, "role:slave\r\nslave_priority:100\r\nslave_repl_offset:10\r\nsync_eligible:0\r\n");
    assert_null(sentinel_choose_replica(s, group));
    assert_string_equal(sentinel_failover(s, group, false, now), "NOGOODSLAVE No suitable replica to promote");
}
FIXTURE_TEST(a_replica_that_lost_the_primary_before_this_process_was_stopped_is_chosen) {
    struct instance *replica = add("10.0.0.2", "role:slave\r\n");
    answer(group, REQUEST_PING, "PONG");
    answer(group, REQUEST_INFO, "role:master\r\n");
    advance(200);
    now += 90000; /* stopped; the primary is gone */
    for (int i = 0; i < 150; i++) {
        advance(100);
        answer(replica, REQUEST_PING, "PONG");
        if (replica->info.pending)
            answer(replica, REQUEST_INFO,
                   "role:slave\r\nmaster_link_status:down\r\nmaster_link_down_since_seconds:97\r\n");
    }
    assert_true(group->flags & INSTANCE_S_DOWN);
    assert_ptr_equal(sentinel_choose_replica(s, group), replica);
}
FIXTURE_TEST(equal_replicas_are_chosen_by_run_id) {
    add("10.0.0.2", "run_id:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\nrole:slave\r\n");
    struct instance *a = add("10.0.0.3", "run_id:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nrole:slave\r\n");
    add("10.0.0.4", "role:slave\r\n");
    assert_ptr_equal(sentinel_choose_replica(s, group), a);
}

/* A primary dies 8 seconds after the last INFO: that of a replica would be too old, so it is asked again. */
FIXTURE_TEST(candidates_are_asked_when_one_is_chosen) {
    group->options.quorum = 1;
    struct instance *a = add("10.0.0.2", "role:slave\r\nslave_repl_offset:10\r\n");
    struct instance *b = add("10.0.0.3", "role:slave\r\nslave_repl_offset:9\r\n");
    for (int i = 0; i < 120 && !strstr(events, "+failover-state-select-slave;"); i++) {
        if (i % 10 == 0) answer(a, REQUEST_PING, "PONG");
        if (i % 10 == 0) answer(b, REQUEST_PING, "PONG");
        if (i % 10 == 0 && i < 30) answer(group, REQUEST_PING, "PONG");
        advance(100);
    }
    assert_non_null(strstr(events, "+failover-state-select-slave;"));
    assert_null(strstr(events, "-failover-abort"));
    /* This process waits for the disk; the first answer that it reads then is not the only one. */
    now += 1500;
    answer(a, REQUEST_INFO, "role:slave\r\nslave_repl_offset:10\r\n");
    assert_null(group->failover.promoted);
    answer(b, REQUEST_INFO, "role:slave\r\nslave_repl_offset:11\r\n");
    assert_ptr_equal(group->failover.promoted, b);
}
FIXTURE_TEST(a_candidate_that_does_not_answer_in_time_is_not_waited_for) {
    struct instance *a = add("10.0.0.2", "role:slave\r\n"),
                    *b = add("10.0.0.3", "role:slave\r\nslave_repl_offset:9\r\n");
    answer(group, REQUEST_INFO, "role:master\r\n");
    assert_null(sentinel_failover(s, group, false, now));
    for (int i = 0; i < 2 || !strstr(events, "+failover-state-select-slave;"); i++) advance(100);
    assert_null(group->failover.promoted);
    answer(a, REQUEST_INFO, "role:slave\r\nslave_repl_offset:1\r\n");
    assert_null(group->failover.promoted);
    advance(1000);
    assert_ptr_equal(group->failover.promoted, b); /* by its last INFO */
}

FIXTURE_TEST(a_silent_primary_is_down_and_comes_back) {
    advance(4000);
    assert_false(group->flags & INSTANCE_S_DOWN);
    advance(2000);
    assert_true(group->flags & INSTANCE_S_DOWN);
    answer(group, REQUEST_PING, "LOADING Valkey is loading the dataset in memory");
    advance(100);
    assert_false(group->flags & INSTANCE_S_DOWN);
    assert_string_equal(events, "+sdown;-sdown;");
}
FIXTURE_TEST(a_stopped_process_finds_nobody_down) {
    advance(1000);
    answer(group, REQUEST_PING, "PONG");
    now += 60000; /* the process was stopped */
    sentinel_tick(s, now);
    assert_true(s->tilt);
    assert_string_equal(events, "+tilt;");
    advance(2000);
    answer(group, REQUEST_PING, "PONG");
    advance(2000);
    assert_false(s->tilt);
    assert_string_equal(events, "+tilt;-tilt;");
    assert_false(group->flags & INSTANCE_S_DOWN);
    /* An event comes before the first tick. */
    now += 60000;
    answer(group, REQUEST_PING, "PONG");
    advance(100);
    assert_string_equal(events, "+tilt;-tilt;+tilt;");
    assert_false(group->flags & INSTANCE_S_DOWN);
    advance(4000);
    answer(group, REQUEST_PING, "PONG");
    assert_false(s->tilt);
    s->settings.tilt_period_set = true;
    now += 3000;
    sentinel_tick(s, now);
    for (int i = 0; i < 29; i++) {
        answer(group, REQUEST_PING, "PONG");
        advance(1000);
    }
    assert_true(s->tilt); /* as long as tilt-period says */
    answer(group, REQUEST_PING, "PONG");
    advance(2000);
    assert_false(s->tilt);
}

static void hello(const char *text) {
    sentinel_hello(s, slice_of(text), now);
}
FIXTURE_TEST(malformed_hello_messages_change_nothing) {
    static const char *const texts[] = {"",
                                        ",,,,,,,",
                                        "10.0.1.1,26379," OTHER ",1,g,10.0.0.1,6379",
                                        "10.0.1.1,26379," OTHER ",1,g,10.0.0.1,6379,",
                                        "10.0.1.1,26379," OTHER ",1,g,10.0.0.1,6379,0,more",
                                        "10.0.1.1,0," OTHER ",1,g,10.0.0.1,6379,0",
                                        "10.0.1.1,26379,short,1,g,10.0.0.1,6379,0",
                                        "10.0.1.1,26379," OTHER ",-1,g,10.0.0.1,6379,0",
                                        "10.0.1.1,26379," OTHER ",99999999999999999999,g,10.0.0.1,6379,0",
                                        "10.0.1.1,26379," OTHER ",9223372036854775808,g,10.0.0.1,6379,0",
                                        "10.0.1.1,26379," OTHER ",9223372036854775807,g,10.0.0.1,6379,0",
                                        "10.0.1.1,26379," OTHER ",1,g,10.0.0.7,6379,9223372036854775807",
                                        "nowhere,26379," OTHER ",1,g,10.0.0.1,6379,0",
                                        "10.0.1.1,26379," OTHER ",1,h,10.0.0.1,6379,0",
                                        "10.0.1.1,26379," ID ",1,g,10.0.0.1,6379,0"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) hello(texts[i]);
    assert_string_equal(events, "");
    assert_int_equal(group->sentinels.count, 0);
    assert_int_equal(s->current_epoch, 0);
}
FIXTURE_TEST(a_hello_brings_sentinels_epochs_and_the_primary) {
    hello("10.0.1.1,26379," OTHER ",5,g,10.0.0.1,6379,0");
    assert_string_equal(events, "+sentinel;+new-epoch;");
    hello("10.0.1.2,26379," OTHER ",5,g,10.0.0.1,6379,0");
    assert_string_equal(events, "+sentinel;+new-epoch;+sentinel-address-switch;");
    *events = 0;
    hello("10.0.1.2,26379," OTHER ",6,g,10.0.0.7,6379,6");
    assert_string_equal(events, "+new-epoch;+config-update-from;+switch-master;+slave;");
    assert_string_equal(group->address.ip, "10.0.0.7");
    assert_int_equal(group->replicas.count, 1);            /* the old primary */
    hello("10.0.1.2,26379," OTHER ",6,g,10.0.0.8,6379,6"); /* not newer */
    assert_string_equal(group->address.ip, "10.0.0.7");
}
/* 2^62, the greatest epoch that a message may bring at once. */
FIXTURE_TEST(epochs_of_messages_leave_room_for_failovers) {
    const char *leader;
    uint64_t epoch;
    hello("10.0.1.1,26379," OTHER ",4611686018427387904,g,10.0.0.1,6379,0");
    assert_true(s->current_epoch == UINT64_C(1) << 62);
    hello("10.0.1.1,26379," OTHER ",4611686018427387905,g,10.0.0.1,6379,0"); /* it has begun a failover */
    assert_true(s->current_epoch == (UINT64_C(1) << 62) + 1);
    sentinel_is_down(s, SLICE("10.0.0.1"), 6379, INT64_MAX, SLICE(OTHER), &leader, &epoch, now);
    assert_string_equal(leader, "");
    assert_true(s->current_epoch == (UINT64_C(1) << 62) + 1);
}
FIXTURE_TEST(a_configuration_from_a_message_is_no_newer_than_the_epoch) {
    hello("10.0.1.1,26379," OTHER ",5,g,10.0.0.7,6379,100");
    assert_string_equal(group->address.ip, "10.0.0.7");
    assert_int_equal(s->current_epoch, 100);
}
FIXTURE_TEST(messages_with_many_primaries_add_a_limited_number_of_replicas) {
    char text[200];
    for (int i = 1; i <= SENTINEL_REPLICAS_MAX + 50; i++) {
        snprintf(text, sizeof text, "10.0.1.1,26379,%s,%d,g,10.0.0.1,%d,%d", OTHER, i, 6379 + i, i);
        hello(text);
    }
    assert_int_equal(group->address.port, 6379 + SENTINEL_REPLICAS_MAX + 50);
    assert_int_equal(group->replicas.count, SENTINEL_REPLICAS_MAX);
}
FIXTURE_TEST(a_primary_with_the_longest_time_is_not_down) {
    sentinel_set_down_after(group, INT64_MAX);
    answer(group, REQUEST_PING, "PONG");
    answer(group, REQUEST_INFO, "role:slave\r\n");
    advance(1000);
    assert_false(group->flags & INSTANCE_S_DOWN);
}
FIXTURE_TEST(the_new_primary_has_its_own_rdma_port) {
    add("10.0.0.7", "role:slave\r\nlistener0:name=rdma,bind=x,port=7777\r\n");
    answer(group, REQUEST_PING, "PONG");
    answer(group, REQUEST_INFO, "role:master\r\nlistener0:name=rdma-tls,bind=x,port=1111\r\n");
    assert_int_equal(group->reported.rdma_port, 1111);
    hello("10.0.1.1,26379," OTHER ",5,g,10.0.0.7,6379,5");
    assert_string_equal(group->address.ip, "10.0.0.7");
    assert_int_equal(group->reported.rdma_port, 7777);
    hello("10.0.1.1,26379," OTHER ",6,g,10.0.0.9,6379,6"); /* it has reported nothing yet */
    assert_string_equal(group->address.ip, "10.0.0.9");
    assert_int_equal(group->reported.rdma_port, 0);
}
FIXTURE_TEST(a_sentinel_whose_address_another_takes_is_forgotten) {
    struct instance *second;
    assert_null(sentinel_monitor(s, SLICE("h"), SLICE("10.0.0.2"), 6379, 2, &second, now));
    hello("10.0.1.1,26379," OTHER ",5,g,10.0.0.1,6379,0");
    hello("10.0.1.1,26379," OTHER ",5,h,10.0.0.2,6379,0");
    assert_int_equal(group->sentinels.count, 1);
    assert_int_equal(second->sentinels.count, 1);
    *events = 0;
    /* It moves: its link is shared, so both groups follow. */
    hello("10.0.1.9,26379," OTHER ",5,g,10.0.0.1,6379,0");
    assert_string_equal(events, "+sentinel-address-switch;+sentinel-address-update;");
    assert_string_equal(second->sentinels.items[0]->address.ip, "10.0.1.9");
    *events = 0;
    /* It was started anew, with another id. The old one must not count as a voter for ever. */
    hello("10.0.1.9,26379,9999999999999999999999999999999999999999,5,g,10.0.0.1,6379,0");
    assert_string_equal(events, "+sentinel-invalid-addr;+sentinel;");
    assert_int_equal(group->sentinels.count, 1);
    assert_int_equal(second->sentinels.count, 0);
    sentinel_remove(s, second, now);
}
FIXTURE_TEST(a_vote_is_given_once) {
    const char *leader;
    uint64_t epoch;
    sentinel_is_down(s, SLICE("10.0.0.1"), 6379, 3, SLICE(OTHER), &leader, &epoch, now);
    assert_string_equal(leader, OTHER);
    assert_int_equal(epoch, 3);
    sentinel_is_down(s, SLICE("10.0.0.1"), 6379, 3, SLICE(ID), &leader, &epoch, now);
    assert_string_equal(leader, OTHER);
    sentinel_is_down(s, SLICE("10.0.0.1"), 6379, 2, SLICE(ID), &leader, &epoch, now);
    assert_string_equal(leader, OTHER);
    sentinel_is_down(s, SLICE("10.0.0.1"), 6379, 4, SLICE(ID), &leader, &epoch, now);
    assert_string_equal(leader, ID);
    sentinel_is_down(s, SLICE("10.0.0.1"), 6379, 9, SLICE("*"), &leader, &epoch, now);
    assert_string_equal(leader, "");
    assert_int_equal(s->current_epoch, 4);
}
FIXTURE_TEST(the_delay_of_a_failover_is_told_once) {
    const char *leader;
    uint64_t epoch;
    group->options.quorum = 1;
    delay_ms = 0;
    sentinel_is_down(s, SLICE("10.0.0.1"), 6379, 3, SLICE(OTHER), &leader, &epoch, now);
    advance(10000);
    assert_true(group->flags & INSTANCE_O_DOWN);
    assert_int_equal(delay_ms, group->failover.start_ms + 2 * group->options.failover_timeout_ms - group->o_down_ms);
}

/* Nothing comes back for a dial to a machine that is away, and the link may be so full that no PING waits for it. */
FIXTURE_TEST(a_dial_without_an_answer_is_repeated) {
    sends = false;
    dials = 0;
    advance(200);
    assert_int_equal(dials, 1);
    group->link->unanswered_ms = 0;
    advance(50000);
    sends = true;
    assert_in_range(dials, 3, 20);
    assert_true(group->flags & INSTANCE_S_DOWN);
}

/* It says for long that it is a primary. Whether it is a stray one or took over by FAILOVER since the last INFO of the
 * group's primary, only a new answer of that one tells. */
static struct instance *replica_that_says_primary(void) {
    struct instance *replica = add("10.0.0.2", "role:slave\r\n");
    for (int i = 0; i < 20 && !replica->role_suspect; i++) {
        advance(1000);
        answer(group, REQUEST_PING, "PONG");
        answer(replica, REQUEST_PING, "PONG");
        while (group->info.pending) answer(group, REQUEST_INFO, "role:master\r\nmaster_failover_state:no-failover\r\n");
        answer(replica, REQUEST_INFO, "role:master\r\n");
    }
    return replica;
}
FIXTURE_TEST(a_stray_primary_is_converted_when_the_primary_has_answered) {
    replica_that_says_primary();
    assert_null(strstr(events, "+convert-to-slave"));
    assert_int_equal(group->info.pending, 1);
    answer(group, REQUEST_INFO, "role:master\r\nmaster_failover_state:no-failover\r\n");
    assert_non_null(strstr(events, "+convert-to-slave"));
}
FIXTURE_TEST(a_hand_over_by_failover_is_not_undone) {
    replica_that_says_primary();
    answer(group, REQUEST_INFO, "role:master\r\nmaster_failover_state:failover-in-progress\r\n");
    answer(group, REQUEST_INFO, "role:slave\r\nmaster_failover_state:no-failover\r\n");
    assert_null(strstr(events, "+convert-to-slave"));
}

/* Between two INFOs another Sentinel made it a replica and then promoted it. */
FIXTURE_TEST(a_role_that_was_interrupted_counts_anew) {
    struct instance *replica = add("10.0.0.2", "role:slave\r\n");
    for (int i = 0; i < 15; i++) {
        advance(1000);
        answer(group, REQUEST_PING, "PONG");
        answer(replica, REQUEST_PING, "PONG");
        while (group->info.pending) answer(group, REQUEST_INFO, "role:master\r\nmaster_failover_state:no-failover\r\n");
        answer(replica, REQUEST_INFO,
               i < 7 ? "role:master\r\nmaster_replid:aaaa\r\n" : "role:master\r\nmaster_replid:bbbb\r\n");
        assert_false(replica->role_suspect);
    }
    advance(2000);
    answer(replica, REQUEST_INFO, "role:master\r\nmaster_replid:bbbb\r\n");
    assert_true(replica->role_suspect);
}

/* A user's failover, up to the moment in which the replica has been told to become a primary. */
static struct instance *replica_being_promoted(void) {
    struct instance *replica = add("10.0.0.2", "role:slave\r\n");
    sentinel_link_opened(s, replica->link, LINK_COMMANDS, now);
    sentinel_link_opened(s, replica->link, LINK_PUBSUB, now);
    promotions = 0;
    assert_null(sentinel_failover(s, group, false, now));
    advance(200);
    while (replica->info.pending) answer(replica, REQUEST_INFO, "role:slave\r\n");
    assert_ptr_equal(group->failover.promoted, replica);
    assert_int_equal(promotions, 1);
    return replica;
}
FIXTURE_TEST(a_promoted_replica_that_dies_is_the_primary_nevertheless) {
    struct instance *replica = replica_being_promoted();
    struct instance *other = add("10.0.0.3", "role:slave\r\n");
    answer(replica, REQUEST_INFO, "role:master\r\n");
    assert_non_null(strstr(events, "+promoted-slave"));
    for (int i = 0; i < 100; i++) {
        answer(group, REQUEST_PING, "PONG");
        if (group->failover.state) answer(other, REQUEST_PING, "PONG");
        advance(100);
    }
    assert_non_null(strstr(events, "+switch-master"));
    assert_string_equal(group->address.ip, "10.0.0.2");
}
