/* A condition that does not hold: the report names it with its values, and the process ends by SIGABRT. */
#include "unit.h"
#include "lib/structures/linked_list.h"
#include "lib/system/must.h"
#include "lib/system/thread.h"
#include "lib/text/blob.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int report_fd;

static void write_report(const char *text) {
    if (write(report_fd, text, strlen(text)) < 0) _exit(2);
}

/* Runs the function in a child. Returns what it reported; the child must end by SIGABRT. */
static const char *report_of(void (*act)(void)) {
    static char text[2048];
    int pipes[2], status;
    size_t len = 0;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        signal(SIGABRT, SIG_DFL);
        close(pipes[0]);
        report_fd = pipes[1];
        must_set_handler(write_report);
        act();
        _exit(1); /* the condition held */
    }
    close(pipes[1]);
    for (ssize_t got; (got = read(pipes[0], text + len, sizeof text - 1 - len)) > 0;) len += (size_t)got;
    close(pipes[0]);
    text[len] = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    return text;
}

static void assert_report(const char *report, const char *place, const char *rest) {
    assert_non_null(strstr(report, place));
    const char *at = strstr(report, "(): ");
    assert_non_null(at);
    assert_string_equal(at + 4, rest);
}

static volatile size_t three = 3, five = 5;

static void fail_plain(void) {
    must(three > five);
}
static void fail_equal(void) {
    must_equal(three, five);
}
static void fail_less(void) {
    must_less(five, three);
}
static void fail_within(void) {
    must_within(five - three - 3, three); /* an unsigned number that went below 0 */
}
static void fail_hold(void) {
    must_hold(three == five, "a %s of %zu", "list", three);
}

TEST(a_failing_condition_reports_its_place_and_values) {
    assert_report(report_of(fail_plain), "test_must.c:", "'three > five' is not true");
    assert_report(report_of(fail_equal), "fail_equal", "'three == five' is not true: 3 and 5");
    assert_report(report_of(fail_less), "fail_less", "'five < three' is not true: 5 and 3");
    assert_report(report_of(fail_within), "fail_within", "'five - three - 3 <= three' is not true: -1 and 3");
    assert_report(report_of(fail_hold), "fail_hold", "'three == five' is not true: a list of 3");
}

static void *fail_in_thread(void *argument) {
    must_less(five, three);
    return NULL;
}
static void fail_elsewhere(void) {
    pthread_t thread;
    if (thread_create(&thread, fail_in_thread, NULL) == 0) pthread_join(thread, NULL);
}
static void *check_main_thread(void *argument) {
    must_be_main_thread();
    return NULL;
}
static void main_thread_elsewhere(void) {
    pthread_t thread;
    must_be_main_thread();
    if (thread_create(&thread, check_main_thread, NULL) == 0) pthread_join(thread, NULL);
}

TEST(a_condition_that_fails_in_any_thread_ends_the_process) {
    assert_report(report_of(fail_elsewhere), "fail_in_thread", "'five < three' is not true: 5 and 3");
    assert_report(report_of(main_thread_elsewhere), "check_main_thread", "'thread_is_main()' is not true");
}

static int evaluated;
TEST(true_conditions_are_evaluated_once) {
    must(++evaluated == 1);
    must_equal(++evaluated, 2);
    must_less(2, ++evaluated);
    must_within(4, ++evaluated);
    must_hold(++evaluated == 5, "%d", evaluated);
    assert_int_equal(evaluated, 5);
}

static void link_twice(void) {
    struct list list;
    struct list_link link = {0};
    list_init(&list);
    list_append(&list, &link);
    list_append(&list, &link);
}
static void remove_twice(void) {
    struct list list;
    struct list_link link = {0};
    list_init(&list);
    list_append(&list, &link);
    list_remove(&list, &link);
    list_remove(&list, &link);
}
static void release_unheld(void) {
    struct blob *blob = blob_new(5000, 5000);
    blob->references = 0;
    blob_release(blob);
}

TEST(what_is_in_a_list_is_in_it_once) {
    assert_report(report_of(link_twice), "linked_list.h:", "'!list_is_linked(link)' is not true");
    assert_report(report_of(remove_twice), "linked_list.h:", "'list_is_linked(link) && list->len > 0' is not true");
}
TEST(references_do_not_go_below_zero) {
    assert_report(report_of(release_unheld), "blob.c:", "'before > 0' is not true");
}
