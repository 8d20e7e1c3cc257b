/* CPU lists as taskset and the kernel write them. */
#include "unit.h"
#include "net/pin.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

static bool parses(const char *list, cpu_set_t *cpus) {
    char error[200] = "";
    bool good = pin_parse_cpulist(list, cpus, error, sizeof error);
    assert_true(good == (error[0] == '\0')); /* an error is explained */
    return good;
}

TEST(lists_contain_single_cpus_ranges_and_steps) {
    static const struct {
        const char *list;
        int count, cpus[8];
    } cases[] = {
        {"", 0, {0}},
        {"0", 1, {0}},
        {"0-3,8", 5, {0, 1, 2, 3, 8}},
        {"0,2,4", 3, {0, 2, 4}},
        {"0-7:2", 4, {0, 2, 4, 6}},
        {"1-8:3", 3, {1, 4, 7}},
        {"5-5", 1, {5}},
        {" 1, 3 ", 2, {1, 3}},
        {"1,1,0-1", 2, {0, 1}},
        {"1023", 1, {1023}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cpu_set_t cpus;
        assert_true(parses(cases[i].list, &cpus));
        assert_int_equal(CPU_COUNT(&cpus), cases[i].count);
        for (int k = 0; k < cases[i].count; k++) assert_true(CPU_ISSET(cases[i].cpus[k], &cpus));
    }
}

TEST(invalid_lists_are_rejected_with_a_reason) {
    static const char *const bad[] = {"x",
                                      "-1",
                                      "1-",
                                      "3-1",
                                      "1,",
                                      ",1",
                                      "1,,2",
                                      "0-7:0",
                                      "0-7:",
                                      "1:2",
                                      "0-3;5",
                                      "1024",
                                      "99999999999999999999",
                                      "0-4294967296",
                                      "1 2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cpu_set_t cpus;
        if (parses(bad[i], &cpus)) fail_msg("\"%s\" was taken", bad[i]);
    }
}

TEST(a_thread_can_be_pinned_and_an_empty_list_leaves_it) {
    cpu_set_t before, now;
    pthread_getaffinity_np(pthread_self(), sizeof before, &before);
    assert_int_equal(pin_thread(NULL), 0);
    assert_int_equal(pin_thread(""), 0);
    pthread_getaffinity_np(pthread_self(), sizeof now, &now);
    assert_true(CPU_EQUAL(&before, &now));
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before)) cpu++;
    char list[16];
    snprintf(list, sizeof list, "%d", cpu);
    assert_int_equal(pin_thread(list), 0);
    pthread_getaffinity_np(pthread_self(), sizeof now, &now);
    assert_int_equal(CPU_COUNT(&now), 1);
    assert_true(CPU_ISSET(cpu, &now));
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    assert_int_equal(pin_thread("0-"), -EINVAL);
    assert_int_equal(pin_thread("1023"), -EINVAL); /* no such CPU here */
}
