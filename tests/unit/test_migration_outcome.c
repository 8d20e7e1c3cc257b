/* Granted slots when a server dies: the decisions of both shards (cluster/migration/outcome.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cluster/migration/outcome.h"

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

static void a_successor_gives_the_slots_up_before_it_asks(void **state) {
    assert_int_equal(step(SUCCESSOR | OWNS), GRANT_RELEASE);
    assert_int_equal(step(((SUCCESSOR | OWNS) & ~CERTAIN) & ~COMMITTED), GRANT_RELEASE);
    assert_int_equal(step(SUCCESSOR), GRANT_ASK);
}

static void only_who_leads_for_certain_and_has_committed_the_grant_asks(void **state) {
    assert_int_equal(step(SUCCESSOR & ~CERTAIN), GRANT_WAIT);
    assert_int_equal(step(SUCCESSOR & ~COMMITTED), GRANT_WAIT);
    assert_int_equal(step(SUCCESSOR & ~LEADS), GRANT_WAIT);
    assert_int_equal(step(SUCCESSOR & ~PRIMARY), GRANT_WAIT);
    assert_int_equal(step(SOURCE & ~COMMITTED), GRANT_WAIT);
}

static void a_source_asks_when_its_link_has_been_down_for_a_while(void **state) {
    assert_int_equal(step_after(SOURCE | LINKED, 0), GRANT_WAIT);
    assert_int_equal(step_after(SOURCE, GRANT_PATIENCE_MS - 1), GRANT_WAIT);
    assert_int_equal(step(SOURCE), GRANT_ASK);
}

static void a_source_holds_its_clients_only_for_so_long(void **state) {
    assert_int_equal(step_after(SOURCE, HOLD_MS - 1), GRANT_ASK);
    assert_int_equal(step_after(SOURCE, HOLD_MS), GRANT_TRACK);
    assert_int_equal(step_after(SUCCESSOR, HOLD_MS), GRANT_ASK);
}

static void a_source_that_is_replaced_leaves_the_decision_to_its_successor(void **state) {
    assert_int_equal(step(SOURCE & ~PRIMARY), GRANT_TRACK);
    assert_int_equal(step((SOURCE | MOVED) & ~PRIMARY), GRANT_TRACK);
    assert_int_equal(step(SOURCE & ~LEADS), GRANT_WAIT);
}

static void slots_that_other_shards_claim_have_moved(void **state) {
    assert_int_equal(step((SOURCE | MOVED | LINKED) & ~CERTAIN), GRANT_DONE);
    assert_int_equal(step(SUCCESSOR | MOVED), GRANT_DONE);
    assert_int_equal(step((SUCCESSOR | MOVED) & ~LEADS), GRANT_WAIT);
}

static void a_refusal_counts_only_for_the_leader_while_nobody_claims_the_slots(void **state) {
    assert_true(takes_back(SUCCESSOR));
    assert_true(takes_back(SOURCE));
    assert_false(takes_back(SUCCESSOR | MOVED));
    assert_false(takes_back(SUCCESSOR & ~CERTAIN));
    assert_false(takes_back(SUCCESSOR & ~PRIMARY));
    assert_false(takes_back(SUCCESSOR & ~COMMITTED));
}

#define STEP(...) take_decide(&(struct take_facts){__VA_ARGS__})

static void a_target_decides_when_it_was_granted(void **state) {
    assert_int_equal(STEP(.leads = true, .certain = true, .granted = true), TAKE_DECIDE);
    assert_int_equal(STEP(.leads = true, .certain = true), TAKE_WAIT);
    assert_int_equal(STEP(.leads = true, .granted = true), TAKE_WAIT);
    assert_int_equal(STEP(.certain = true, .granted = true), TAKE_WAIT);
    assert_int_equal(STEP(.leads = true, .certain = true, .granted = true, .held = true), TAKE_WAIT);
}

static void slots_are_claimed_when_the_decision_is_committed(void **state) {
    for (int tracked = 0; tracked < 2; tracked++) {
        assert_int_equal(STEP(.leads = true, .certain = true, .decided = true, .tracked = tracked), TAKE_WAIT);
        assert_int_equal(STEP(.leads = true, .decided = true, .committed = true, .tracked = tracked), TAKE_WAIT);
        assert_int_equal(STEP(.certain = true, .decided = true, .committed = true, .tracked = tracked), TAKE_WAIT);
        assert_int_equal(
            STEP(.leads = true, .certain = true, .decided = true, .committed = true, .held = true, .tracked = tracked),
            TAKE_CLAIM);
    }
}

static void a_successor_without_the_decision_fails_the_job(void **state) {
    assert_int_equal(STEP(.leads = true, .tracked = true), TAKE_FAIL);
    assert_int_equal(STEP(.tracked = true), TAKE_WAIT);
}

static void slots_that_are_owned_after_a_restart_stay(void **state) {
    assert_int_equal(STEP(.leads = true, .tracked = true, .owns = true), TAKE_CLAIM);
    assert_int_equal(STEP(.tracked = true, .owns = true), TAKE_WAIT);
}

#define DECIDE(...)       outcome_decide(&(struct outcome_facts){__VA_ARGS__})
#define ANSWER(kind, ...) DECIDE(.job = kind, .certain = true, .with_source = true, __VA_ARGS__)

static void a_question_is_the_grant_for_a_job_that_waits(void **state) {
    assert_int_equal(ANSWER(OUTCOME_JOB_WAITS, .committed = true), OUTCOME_GRANTED);
    assert_int_equal(ANSWER(OUTCOME_JOB_WAITS, .owns = true), OUTCOME_GRANTED); /* ends the job, too */
    assert_int_equal(ANSWER(OUTCOME_JOB_WAITS, .held = true), OUTCOME_LATER);
    assert_int_equal(ANSWER(OUTCOME_JOB_EARLY, .committed = true), OUTCOME_LATER);
}

static void a_failure_is_told_when_it_is_committed(void **state) {
    assert_int_equal(ANSWER(OUTCOME_JOB_FAILED, .committed = false), OUTCOME_LATER);
    assert_int_equal(ANSWER(OUTCOME_JOB_FAILED, .committed = true), OUTCOME_REFUSED);
}

static void a_success_that_nobody_heard_of_is_carried_out(void **state) {
    assert_int_equal(ANSWER(OUTCOME_JOB_SUCCESS, .owns = true), OUTCOME_TAKEN);
    assert_int_equal(ANSWER(OUTCOME_JOB_SUCCESS, .owns = false), OUTCOME_CLAIM);
    assert_int_equal(DECIDE(.job = OUTCOME_JOB_SUCCESS, .certain = true), OUTCOME_TAKEN); /* moved on */
}

static void a_forgotten_job_has_failed_if_the_source_has_the_slots(void **state) {
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

static void who_does_not_lead_for_certain_says_nothing(void **state) {
    for (enum outcome_job job = OUTCOME_JOB_UNKNOWN; job <= OUTCOME_JOB_FAILED; job++)
        assert_int_equal(DECIDE(.job = job, .committed = true, .owns = true, .with_source = true), OUTCOME_LATER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_successor_gives_the_slots_up_before_it_asks),
        cmocka_unit_test(only_who_leads_for_certain_and_has_committed_the_grant_asks),
        cmocka_unit_test(a_source_asks_when_its_link_has_been_down_for_a_while),
        cmocka_unit_test(a_source_holds_its_clients_only_for_so_long),
        cmocka_unit_test(a_source_that_is_replaced_leaves_the_decision_to_its_successor),
        cmocka_unit_test(slots_that_other_shards_claim_have_moved),
        cmocka_unit_test(a_refusal_counts_only_for_the_leader_while_nobody_claims_the_slots),
        cmocka_unit_test(a_target_decides_when_it_was_granted),
        cmocka_unit_test(slots_are_claimed_when_the_decision_is_committed),
        cmocka_unit_test(a_successor_without_the_decision_fails_the_job),
        cmocka_unit_test(slots_that_are_owned_after_a_restart_stay),
        cmocka_unit_test(a_question_is_the_grant_for_a_job_that_waits),
        cmocka_unit_test(a_failure_is_told_when_it_is_committed),
        cmocka_unit_test(a_success_that_nobody_heard_of_is_carried_out),
        cmocka_unit_test(a_forgotten_job_has_failed_if_the_source_has_the_slots),
        cmocka_unit_test(who_does_not_lead_for_certain_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
