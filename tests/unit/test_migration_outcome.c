/* Granted slots when a server dies: the decisions of both shards (cluster/migration/outcome.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cluster/migration/outcome.h"

static const struct grant_facts successor = {
    .primary = true, .leads = true, .certain = true, .committed = true, .tracked = true};
static const struct grant_facts source = {
    .primary = true, .leads = true, .certain = true, .committed = true, .owns = true, .alone_ms = GRANT_PATIENCE_MS};
#define STEP(base, ...) grant_decide(&(struct grant_facts){FIELDS(base), __VA_ARGS__})
#define FIELDS(base)                                                                                                   \
    .primary = base.primary, .leads = base.leads, .certain = base.certain, .committed = base.committed,                \
    .tracked = base.tracked, .owns = base.owns, .alone_ms = base.alone_ms

#pragma GCC diagnostic ignored "-Woverride-init"

static void a_successor_gives_the_slots_up_before_it_asks(void **state) {
    assert_int_equal(STEP(successor, .owns = true), GRANT_RELEASE);
    assert_int_equal(STEP(successor, .owns = true, .certain = false, .committed = false), GRANT_RELEASE);
    assert_int_equal(STEP(successor, .owns = false), GRANT_ASK);
}

static void only_who_leads_for_certain_and_has_committed_the_grant_asks(void **state) {
    assert_int_equal(STEP(successor, .certain = false), GRANT_WAIT);
    assert_int_equal(STEP(successor, .committed = false), GRANT_WAIT);
    assert_int_equal(STEP(successor, .leads = false), GRANT_WAIT);
    assert_int_equal(STEP(successor, .primary = false), GRANT_WAIT);
    assert_int_equal(STEP(source, .committed = false), GRANT_WAIT);
}

static void a_source_asks_when_its_link_has_been_down_for_a_while(void **state) {
    assert_int_equal(STEP(source, .linked = true, .alone_ms = 0), GRANT_WAIT);
    assert_int_equal(STEP(source, .alone_ms = GRANT_PATIENCE_MS - 1), GRANT_WAIT);
    assert_int_equal(STEP(source, .alone_ms = GRANT_PATIENCE_MS), GRANT_ASK);
}

static void a_source_that_is_replaced_leaves_the_decision_to_its_successor(void **state) {
    assert_int_equal(STEP(source, .primary = false), GRANT_TRACK);
    assert_int_equal(STEP(source, .primary = false, .moved = true), GRANT_TRACK);
    assert_int_equal(STEP(source, .leads = false), GRANT_WAIT);
}

static void slots_that_other_shards_claim_have_moved(void **state) {
    assert_int_equal(STEP(source, .moved = true, .linked = true, .certain = false), GRANT_DONE);
    assert_int_equal(STEP(successor, .moved = true), GRANT_DONE);
    assert_int_equal(STEP(successor, .moved = true, .leads = false), GRANT_WAIT);
}

static void a_refusal_counts_only_for_the_leader_while_nobody_claims_the_slots(void **state) {
    struct grant_facts facts = successor;
    assert_true(grant_takes_back(&facts));
    facts.moved = true;
    assert_false(grant_takes_back(&facts));
    facts = successor;
    facts.certain = false;
    assert_false(grant_takes_back(&facts));
    facts = successor;
    facts.primary = false;
    assert_false(grant_takes_back(&facts));
}

#define ANSWER(kind, ...)                                                                                              \
    outcome_decide(&(struct outcome_facts){.job = kind, .certain = true, .with_source = true, __VA_ARGS__})

static void a_question_is_the_grant_for_a_job_that_waits(void **state) {
    assert_int_equal(ANSWER(OUTCOME_JOB_WAITS, .keys = true), OUTCOME_TAKE);
    assert_int_equal(ANSWER(OUTCOME_JOB_WAITS, .owns = true), OUTCOME_TAKE); /* ends the job, too */
    assert_int_equal(ANSWER(OUTCOME_JOB_WAITS, .held = true), OUTCOME_LATER);
    assert_int_equal(ANSWER(OUTCOME_JOB_EARLY, .keys = true), OUTCOME_LATER);
}

static void a_failure_is_told_when_it_is_committed(void **state) {
    assert_int_equal(ANSWER(OUTCOME_JOB_FAILED, .committed = false), OUTCOME_LATER);
    assert_int_equal(ANSWER(OUTCOME_JOB_FAILED, .committed = true), OUTCOME_REFUSED);
}

static void a_success_that_nobody_heard_of_is_carried_out(void **state) {
    assert_int_equal(ANSWER(OUTCOME_JOB_SUCCESS, .owns = true), OUTCOME_TAKEN);
    assert_int_equal(ANSWER(OUTCOME_JOB_SUCCESS, .keys = true), OUTCOME_TAKE);
    assert_int_equal(ANSWER(OUTCOME_JOB_SUCCESS, .with_source = false), OUTCOME_TAKEN); /* moved on */
}

static void a_forgotten_job_has_failed_if_it_left_no_keys(void **state) {
    assert_int_equal(ANSWER(OUTCOME_JOB_UNKNOWN, .keys = false), OUTCOME_REFUSED);
    assert_int_equal(ANSWER(OUTCOME_JOB_UNKNOWN, .keys = true), OUTCOME_TAKE);
    assert_int_equal(ANSWER(OUTCOME_JOB_UNKNOWN, .owns = true), OUTCOME_TAKEN);
    assert_int_equal(ANSWER(OUTCOME_JOB_UNKNOWN, .with_source = false), OUTCOME_TAKEN);
}

static void who_does_not_lead_for_certain_says_nothing(void **state) {
    for (enum outcome_job job = OUTCOME_JOB_UNKNOWN; job <= OUTCOME_JOB_FAILED; job++)
        assert_int_equal(ANSWER(job, .certain = false, .committed = true, .owns = true), OUTCOME_LATER);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_successor_gives_the_slots_up_before_it_asks),
        cmocka_unit_test(only_who_leads_for_certain_and_has_committed_the_grant_asks),
        cmocka_unit_test(a_source_asks_when_its_link_has_been_down_for_a_while),
        cmocka_unit_test(a_source_that_is_replaced_leaves_the_decision_to_its_successor),
        cmocka_unit_test(slots_that_other_shards_claim_have_moved),
        cmocka_unit_test(a_refusal_counts_only_for_the_leader_while_nobody_claims_the_slots),
        cmocka_unit_test(a_question_is_the_grant_for_a_job_that_waits),
        cmocka_unit_test(a_failure_is_told_when_it_is_committed),
        cmocka_unit_test(a_success_that_nobody_heard_of_is_carried_out),
        cmocka_unit_test(a_forgotten_job_has_failed_if_it_left_no_keys),
        cmocka_unit_test(who_does_not_lead_for_certain_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
