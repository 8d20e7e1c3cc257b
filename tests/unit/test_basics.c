/* The small modules of lib/: patterns, hashing, random numbers, clocks, background threads, the log. */
#include "unit.h"
#include "lib/hash/siphash.h"
#include "lib/structures/linked_list.h"
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/glob.h"
#include "lib/text/slice.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>

TEST(patterns_match_as_in_valkey) {
    static const struct {
        const char *pattern, *text;
        bool match, nocase;
    } cases[] = {
        {"", "", true, false},
        {"", "a", false, false},
        {"*", "", false, false},
        {"*", "abc", true, false},
        {"a*", "abc", true, false},
        {"*c", "abc", true, false},
        {"a*c", "abbbc", true, false},
        {"a*c", "abbbd", false, false},
        {"**a**", "xxaxx", true, false},
        {"?", "", false, false},
        {"a?c", "abc", true, false},
        {"[abc]", "b", true, false},
        {"[^abc]", "b", false, false},
        {"[^abc]", "d", true, false},
        {"[a-c]", "b", true, false},
        {"[c-a]", "b", true, false},
        {"[a-c", "b", true, false},
        {"[", "[", false, false},
        {"[]a]", "a]", false, false},
        {"\\*", "*", true, false},
        {"\\*", "a", false, false},
        {"a\\", "a\\", true, false},
        {"[\\]]", "]", true, false},
        {"h[ae]llo", "hello", true, false},
        {"HELLO*", "hello world", true, true},
        {"[A-C]x", "bX", true, true},
        {"HELLO", "hello", false, false},
        {"a*b*c*d", "a__b__c__c__d", true, false},
        {"*a*b", "ab_ab_a", false, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(glob_match(slice_of(cases[i].pattern), slice_of(cases[i].text), cases[i].nocase),
                         cases[i].match);
    assert_true(glob_match((struct slice){"a\0*", 3}, (struct slice){"a\0b", 3}, false));
}

TEST(a_pattern_matches_with_up_to_1000_stars) {
    static char pattern[2004], text[1001];
    for (size_t i = 0; i < sizeof(pattern); i++) pattern[i] = i % 2 ? 'a' : '*';
    memset(text, 'a', sizeof(text));
    struct slice all = {text, sizeof(text)};
    assert_true(glob_match((struct slice){pattern, 2000}, all, false));
    assert_true(glob_match((struct slice){pattern, 2001}, all, false)); /* the last star is not counted */
    assert_false(glob_match((struct slice){pattern, 2002}, all, false));
    for (size_t i = 0; i + 1 < sizeof(pattern); i++) pattern[i] = '*';
    assert_true(glob_match((struct slice){pattern, sizeof(pattern)}, all, false)); /* a run of stars counts once */
}

TEST(many_stars_take_no_exponential_time) {
    static char pattern[2000], text[10000];
    for (size_t i = 0; i < sizeof(pattern); i += 2) pattern[i] = '*', pattern[i + 1] = 'a';
    memset(text, 'a', sizeof(text));
    pattern[sizeof(pattern) - 1] = 'b';
    clock_t start = clock();
    assert_false(glob_match((struct slice){pattern, sizeof(pattern)}, (struct slice){text, sizeof(text)}, false));
    assert_true(clock() - start < 10 * CLOCKS_PER_SEC); /* CPU time: other work on the machine counts for nothing */
}

TEST(a_long_class_matches_what_its_members_match) {
    static const char *const classes[] = {"abc", "^abc", "c-a", "\\]x", "^\\\\-_", "A-Cz", "Z-a", "^^"};
    static const char texts[] = "abcxzABCZ-]^\\_\xff";
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        char brief[32], longer[2000];
        bool negated = classes[i][0] == '^';
        const char *members = classes[i] + negated;
        snprintf(brief, sizeof brief, "*[%s]?", classes[i]);
        int len = snprintf(longer, sizeof longer, "*[%s", negated ? "^" : "");
        for (int n = 0; n < 100; n++) len += snprintf(longer + len, sizeof longer - (size_t)len, "%s", members);
        snprintf(longer + len, sizeof longer - (size_t)len, "]?");
        for (const char *text = texts; *text; text++)
            for (int nocase = 0; nocase < 2; nocase++) {
                char pair[] = {*text, '.', 0};
                assert_int_equal(glob_match(slice_of(brief), slice_of(pair), nocase),
                                 glob_match(slice_of(longer), slice_of(pair), nocase));
            }
    }
}

TEST(a_class_of_many_members_is_read_once) {
    static char pattern[2 * 20002 + 4], text[20000];
    size_t len = 0;
    memset(text, 'a', sizeof text);
    pattern[len++] = '*';
    for (int class = 0; class < 2; class ++) {
        pattern[len++] = '[';
        for (int i = 0; i < 20000; i++) pattern[len++] = (char)('b' + i % 20);
        pattern[len++] = ']';
    }
    clock_t start = clock();
    for (int i = 0; i < 100; i++)
        assert_false(glob_match((struct slice){pattern, len}, (struct slice){text, sizeof text}, i & 1));
    text[sizeof text - 1] = text[sizeof text - 2] = 'c';
    assert_true(glob_match((struct slice){pattern, len}, (struct slice){text, sizeof text}, false));
    assert_true(clock() - start < 10 * CLOCKS_PER_SEC); /* CPU time: other work on the machine counts for nothing */
}

/* Vectors made with the published algorithm (c = 1, d = 3): key 00..0f, data 00 01 02 … of each length. */
static uint64_t reference(const uint8_t *data, size_t len, const uint8_t *key) {
    uint64_t k[2] = {0, 0}, v[4], m;
    for (int i = 0; i < 16; i++) k[i / 8] |= (uint64_t)key[i] << (i % 8 * 8);
    v[0] = k[0] ^ 0x736f6d6570736575, v[1] = k[1] ^ 0x646f72616e646f6d;
    v[2] = k[0] ^ 0x6c7967656e657261, v[3] = k[1] ^ 0x7465646279746573;
#define ROT(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define SIPROUND                                                                                                       \
    v[0] += v[1], v[2] += v[3], v[1] = ROT(v[1], 13), v[3] = ROT(v[3], 16), v[1] ^= v[0], v[3] ^= v[2],                \
                                v[0] = ROT(v[0], 32), v[2] += v[1], v[0] += v[3], v[1] = ROT(v[1], 17),                \
                                v[3] = ROT(v[3], 21), v[1] ^= v[2], v[3] ^= v[0], v[2] = ROT(v[2], 32)
    size_t blocks = len / 8;
    for (size_t b = 0; b <= blocks; b++) {
        m = b == blocks ? (uint64_t)len << 56 : 0;
        for (size_t i = 0; i < 8 && b * 8 + i < len; i++) m |= (uint64_t)data[b * 8 + i] << (i * 8);
        v[3] ^= m;
        SIPROUND;
        v[0] ^= m;
    }
    v[2] ^= 0xff;
    SIPROUND;
    SIPROUND;
    SIPROUND;
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
TEST(siphash_is_siphash_1_3) {
    uint8_t key[16], data[64];
    for (int i = 0; i < 16; i++) key[i] = (uint8_t)i;
    for (int i = 0; i < 64; i++) data[i] = (uint8_t)i;
    for (size_t len = 0; len <= 64; len++) assert_true(siphash(data, len, key) == reference(data, len, key));
    assert_true(siphash(data, 0, key) == 0xabac0158050fc4dc); /* published for SipHash-1-3 */
}
TEST(hashing_without_case_folds_ascii_letters_only) {
    uint8_t key[16] = {1, 2, 3}, upper[256], lower[256];
    for (int i = 0; i < 256; i++) {
        upper[i] = (uint8_t)i;
        lower[i] = (uint8_t)(i >= 'A' && i <= 'Z' ? i + 32 : i);
    }
    for (size_t at = 0; at < 240; at++)
        for (size_t len = 0; len < 16; len++)
            assert_true(siphash_nocase(upper + at, len, key) == siphash(lower + at, len, key));
}

TEST(random_numbers_are_spread_evenly) {
    size_t hits[10] = {0};
    random_seed(1);
    for (int i = 0; i < 100000; i++) hits[random_below(10)]++;
    for (int i = 0; i < 10; i++) assert_in_range(hits[i], 9500, 10500);
    for (int i = 0; i < 100; i++) assert_int_equal(random_below(1), 0);
    random_seed(9);
    uint64_t first = random_u64();
    random_seed(9);
    assert_true(first == random_u64());
    char hex[41] = {0}, other[41] = {0};
    random_hex(hex, 40);
    random_hex(other, 40);
    assert_int_equal(strspn(hex, "0123456789abcdef"), 40);
    assert_string_not_equal(hex, other);
    static char bytes[10000];
    random_bytes(bytes, sizeof(bytes));
}
static void *draw(void *arg) {
    *(uint64_t *)arg = random_u64();
    return NULL;
}
TEST(threads_draw_different_numbers) {
    uint64_t a = 0, b = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, draw, &a);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, draw, &b);
    pthread_join(thread, NULL);
    assert_true(a != b);
}

TEST(a_frozen_clock_stops_the_time_of_the_data_only) {
    clock_update();
    clock_freeze();
    clock_freeze();
    int64_t wall = clock_us(), data = clock_data_ms();
    uint64_t mono = clock_mono();
    assert_true(data == clock_ms());
    usleep(2000);
    clock_update();
    clock_thaw();
    clock_update();
    assert_true(clock_data_ms() == data);
    assert_true(clock_us() > wall && clock_ms() > data);
    assert_true(clock_mono() >= mono + 2000);
    clock_thaw();
    clock_update();
    assert_true(clock_data_ms() == clock_ms());
    assert_true(clock_us() / 1000000 - time(NULL) <= 1);
}

static _Atomic int ran;
static int order[1000];
static pthread_t runner;
static void job(void *arg) {
    order[ran++] = (int)(intptr_t)arg;
    runner = pthread_self();
}
static _Atomic int set_up;
static void setup_thread(void) {
    set_up++;
}
TEST(jobs_run_at_once_before_the_start) {
    ran = 0;
    background_submit(BACKGROUND_FSYNC, job, (void *)7);
    assert_int_equal(ran, 1);
    assert_true(pthread_equal(runner, pthread_self()));
    assert_int_equal(background_pending(BACKGROUND_FSYNC), 0);
    background_drain(BACKGROUND_FSYNC);
    background_stop();
}
TEST(jobs_of_a_kind_run_in_order_elsewhere) {
    for (int round = 0; round < 3; round++) {
        ran = 0;
        set_up = 0;
        assert_int_equal(background_start(setup_thread), 0);
        for (intptr_t i = 0; i < 1000; i++) background_submit(BACKGROUND_LAZY_FREE, job, (void *)i);
        if (round) background_drain(BACKGROUND_LAZY_FREE);
        background_stop(); /* runs all queued jobs */
        assert_int_equal(ran, 1000);
        assert_int_equal(set_up, BACKGROUND_KINDS);
        for (int i = 0; i < 1000; i++) assert_int_equal(order[i], i);
        assert_false(pthread_equal(runner, pthread_self()));
    }
}
static void allocate_and_free(void *arg) {
    enum { BLOCKS = 2000 };
    void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) blocks[i] = mem_alloc(16 + i * 7);
    for (size_t i = 0; i < BLOCKS; i++) mem_free(blocks[i]);
}

/* A child of a build with AddressSanitizer waited for ever for a lock of its allocator. */
TEST(a_forked_child_can_allocate) {
    assert_int_equal(background_start(NULL), 0);
    for (int i = 0; i < 100; i++) {
        for (int j = 0; j < 20; j++) background_submit(BACKGROUND_LAZY_FREE, allocate_and_free, NULL);
        background_before_fork();
        pid_t pid = fork();
        if (pid == 0) {
            allocate_and_free(NULL);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    background_stop();
}

TEST(a_forked_child_runs_jobs_itself) {
    assert_int_equal(background_start(NULL), 0);
    pid_t pid = fork();
    if (pid == 0) {
        ran = 0;
        background_submit(BACKGROUND_LAZY_FREE, job, NULL);
        background_drain(BACKGROUND_LAZY_FREE);
        _exit(ran == 1 && pthread_equal(runner, pthread_self()) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    background_stop();
}

static char log_path[] = "/tmp/test-log-XXXXXX";
static char *log_text(void) {
    static char text[20000];
    int fd = open(log_path, O_RDONLY);
    ssize_t len = read(fd, text, sizeof(text) - 1);
    close(fd);
    assert_true(len >= 0);
    text[len] = '\0';
    return text;
}
static void assert_log(const char *pattern) {
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&regex, log_text(), 0, NULL, 0)) fail_msg("'%s' is not like %s", log_text(), pattern);
    regfree(&regex);
    assert_int_equal(truncate(log_path, 0), 0);
}
TEST(log_lines_look_as_valkeys) {
    int fd = mkstemp(log_path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(log_set_file(log_path), 0);
    log_notice("hello %d", 5);
    assert_log("^[0-9]+:M [0-9]{2} (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [0-9]{4} "
               "[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3} \\* hello 5\n$");
    log_set_role('S');
    log_warning("w");
    assert_log("^[0-9]+:S .* # w\n$");
    log_verbose("not shown");
    log_debug("not shown");
    assert_log("^$");
    log_level = LOG_LEVEL_DEBUG;
    log_verbose("v");
    assert_log(" - v\n$");
    log_debug("d");
    assert_log(" \\. d\n$");
    log_level = LOG_LEVEL_NOTHING;
    log_warning("nothing");
    assert_log("^$");
    log_level = LOG_LEVEL_NOTICE;
    log_set_format(LOG_FORMAT_LEGACY, LOG_TIMESTAMP_ISO8601);
    log_notice("iso");
    assert_log("^[0-9]+:S [0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}[+-][0-9]{2}:[0-9]{2} \\* "
               "iso\n$");
    log_set_format(LOG_FORMAT_LEGACY, LOG_TIMESTAMP_MILLISECONDS);
    log_notice("ms");
    assert_log("^[0-9]+:S [0-9]{13} \\* ms\n$");
    log_set_role('M');
    log_set_format(LOG_FORMAT_LOGFMT, LOG_TIMESTAMP_MILLISECONDS);
    log_warning("say \"hi\"\nthere");
    assert_log("^pid=[0-9]+ role=primary timestamp=\"[0-9]{13}\" level=warning message=\"say 'hi' there\"\n$");
    log_set_format(LOG_FORMAT_LEGACY, LOG_TIMESTAMP_LEGACY);
    log_write_raw("=== raw ===\n");
    log_write_from_handler("signal");
    assert_log("^=== raw ===\n[0-9]+:signal-handler \\([0-9]{10}\\) signal\n$");
}
TEST(a_limited_line_counts_those_that_were_left_out) {
    struct log_limit limit = {.interval_us = 3600000000, .lines = 2};
    for (int i = 0; i < 5; i++) log_limited(&limit, LOG_LEVEL_WARNING, "flood %d", i);
    assert_log("# flood 0\n.* # flood 1\n$");
    limit.began_us -= limit.interval_us; /* as if an hour had passed */
    log_limited(&limit, LOG_LEVEL_WARNING, "flood %d", 5);
    assert_log("# flood 5 \\(3 more of these lines were left out\\)\n$");
    log_limited(&limit, LOG_LEVEL_WARNING, "flood %d", 6);
    assert_log("# flood 6\n$");
    int evaluated = 0;
    log_limited(&limit, LOG_LEVEL_WARNING, "flood %d", evaluated++);
    assert_int_equal(evaluated, 0);
}
TEST(long_lines_are_written_whole) {
    static char message[10000];
    memset(message, 'x', sizeof(message) - 1);
    log_notice("%s", message);
    assert_int_equal(strspn(strchr(log_text(), 'x'), "x"), sizeof(message) - 1);
    assert_int_equal(truncate(log_path, 0), 0);
}
TEST(log_dates_are_local_dates) {
    char expected[64];
    time_t before, after;
    struct tm tm;
    do { /* time() is a clock of its own, which may be some milliseconds behind that of the log */
        before = clock_wall_us() / 1000000;
        assert_int_equal(truncate(log_path, 0), 0);
        log_notice("date");
        after = clock_wall_us() / 1000000;
    } while (before != after);
    localtime_r(&before, &tm);
    strftime(expected, sizeof(expected), "%d %b %Y %H:%M:%S.", &tm);
    assert_non_null(strstr(log_text(), expected));
    assert_int_equal(truncate(log_path, 0), 0);
}
TEST(a_log_file_that_cannot_be_opened_is_reported) {
    assert_int_equal(log_set_file("/nonexistent/directory/log"), -ENOENT);
    assert_int_equal(log_set_file(NULL), 0);
    unlink(log_path);
}

struct item {
    struct list_link link;
    char name;
};

/* Iterates over a, b, c, d; at the element `at` it removes the elements of `leaving` and appends those of `coming`. */
static void walk(char *seen, char at, const char *leaving, const char *coming) {
    struct item items[] = {{.name = 'a'}, {.name = 'b'}, {.name = 'c'}, {.name = 'd'}, {.name = 'e'}};
    struct list list;
    list_init(&list);
    for (int i = 0; i < 4; i++) list_append(&list, &items[i].link);
    list_each(&list, link) {
        const struct item *item = container_of(link, struct item, link);
        *seen++ = item->name;
        if (item->name != at) continue;
        for (const char *p = leaving; *p; p++) list_remove(&list, &items[*p - 'a'].link);
        for (const char *p = coming; *p; p++) list_append(&list, &items[*p - 'a'].link);
    }
    *seen = 0;
    assert_null(list.walks);
}

TEST(an_iteration_survives_any_removal_in_its_body) {
    static const struct {
        char at;
        const char *leaving, *coming, *seen;
    } cases[] = {
        {'b', "", "", "abcd"},     {'b', "b", "", "abcd"},   {'b', "c", "", "abd"},   {'b', "bc", "", "abd"},
        {'b', "cb", "", "abd"},    {'b', "cd", "", "ab"},    {'b', "dc", "", "ab"},   {'a', "abcd", "", "a"},
        {'d', "abcd", "", "abcd"}, {'a', "abcd", "bc", "a"}, {'b', "", "e", "abcde"}, {'b', "cd", "e", "ab"},
        {'a', "b", "b", "acdb"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char seen[16];
        walk(seen, cases[i].at, cases[i].leaving, cases[i].coming);
        assert_string_equal(seen, cases[i].seen);
    }
}

static size_t length_until(struct list *list, const struct list_link *end) {
    size_t length = 0;
    list_each(list, link) {
        if (link == end) return length;
        length++;
    }
    return length;
}

TEST(iterations_of_one_list_nest_and_may_end_early) {
    struct item items[] = {{.name = 'a'}, {.name = 'b'}, {.name = 'c'}};
    struct list list;
    list_init(&list);
    for (int i = 0; i < 3; i++) list_append(&list, &items[i].link);
    size_t outer = 0;
    list_each(&list, link) {
        outer++;
        assert_int_equal(length_until(&list, &items[1].link), 1); /* by return */
        list_each(&list, other) {
            if (other == &items[1].link) break;
        }
        /* The inner iteration removes the element that the outer one would visit next. */
        if (outer > 1) continue;
        list_each(&list, other) {
            if (other == &items[2].link) list_remove(&list, &items[1].link);
        }
        list_insert_before(&list, &items[2].link, &items[1].link); /* before the next element of the outer iteration */
    }
    assert_int_equal(outer, 2); /* a, then c */
    assert_null(list.walks);
    assert_int_equal(list.len, 3);
}

int main(void) {
    setenv("TZ", "XXX-12:45", 1); /* before the first line, which reads the offset */
    tzset();
    return RUN_TESTS();
}
