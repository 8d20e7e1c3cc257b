/* Options: conversion between texts and values, the syntax of files, and the changes of CONFIG REWRITE to a file. */
#include "unit.h"
#include "lib/system/memory.h"
#include "server/config/config.h"
#include "server/config/config_engine.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool flag;
static int number, octal, mode, several;
static int64_t wide, size, share;
static char *name;
static struct config_strings words;
static char custom[64] = "one two";

static const char *check_even(const struct config_option *option, struct slice text) {
    return atoi(text.data) % 2 ? "must be even" : NULL;
}
static const char *set_custom(const struct config_option *option, int count, const struct slice *given) {
    if (count != 2) return "two words";
    snprintf(custom, sizeof custom, "%.*s %.*s", (int)given[0].len, given[0].data, (int)given[1].len, given[1].data);
    return NULL;
}
static void get_custom(const struct config_option *option, struct output *out) {
    output_write(out, slice_of(custom));
}

static const struct config_name modes[] = {{"slow", 1}, {"fast", 2}, {NULL, 0}};
static const struct config_name signals[] = {{"default", 0}, {"save", 1}, {"now", 4}, {"force", 8}, {NULL, 0}};
static const struct config_option options[] = {
    {.name = "t-flag", .type = CONFIG_BOOL, .value = &flag, .initial = "yes"},
    {.name = "t-number",
     .alias = "t-old-number",
     .type = CONFIG_INT,
     .value = &number,
     .initial = "10",
     .min = 2,
     .max = 100,
     .check = check_even},
    {.name = "t-any-int", .type = CONFIG_INT, .initial = "-1"},
    {.name = "t-wide", .type = CONFIG_INT64, .value = &wide, .initial = "0"},
    {.name = "t-size", .type = CONFIG_MEMORY, .value = &size, .initial = "1mb"},
    {.name = "t-signed-size", .type = CONFIG_MEMORY, .initial = "0", .min = -1, .max = INT64_MAX},
    {.name = "t-share", .type = CONFIG_MEMORY, .flags = CONFIG_PERCENT_OK, .value = &share, .initial = "0"},
    {.name = "t-octal", .type = CONFIG_OCTAL, .value = &octal, .initial = "0", .max = 0777},
    {.name = "t-mode", .type = CONFIG_ENUM, .value = &mode, .initial = "slow", .names = modes},
    {.name = "t-several",
     .type = CONFIG_FLAGS,
     .flags = CONFIG_MULTI_ARG,
     .value = &several,
     .initial = "default",
     .names = signals},
    {.name = "t-name", .type = CONFIG_STRING, .value = &name, .initial = ""},
    {.name = "t-words", .type = CONFIG_STRINGS, .flags = CONFIG_MULTI_ARG, .value = &words, .initial = "a b"},
    {.name = "t-custom", .type = CONFIG_CUSTOM, .flags = CONFIG_MULTI_ARG, .set = set_custom, .get = get_custom},
    {.name = "t-hidden", .type = CONFIG_BOOL, .flags = CONFIG_HIDDEN, .initial = "no"},
    {.name = NULL}};

static const char *set(const char *option, const char *text) {
    return config_state_set_text(config_name_find(slice_of(option))->state, slice_of(text), false);
}
static void assert_shows(const char *option, const char *text) {
    struct slice shown = config_state_text_copy(config_name_find(slice_of(option))->state);
    assert_string_equal(shown.data, text);
    config_text_free(shown);
}
static void assert_set(const char *option, const char *text, const char *shown) {
    const char *reason = set(option, text);
    if (reason) fail_msg("%s %s: %s", option, text, reason);
    assert_shows(option, shown);
}
static void assert_refused(const char *option, const char *text, const char *why) {
    struct config_state *state = config_name_find(slice_of(option))->state;
    struct slice before = config_state_text_copy(state);
    const char *reason = set(option, text);
    assert_non_null(reason);
    assert_string_equal(reason, why);
    assert_shows(option, before.data);
    config_text_free(before);
}
static int put_defaults(void **state) {
    for (const struct config_option *option = options; option->name; option++) {
        struct config_state *own = config_name_find(slice_of(option->name))->state;
        config_state_set_text(own, own->initial, true);
    }
    return 0;
}
static int setup(void **state) {
    config_register(options);
    return 0;
}

#define FIXTURE_TEST(name) TEST_WITH(name, put_defaults, NULL)

FIXTURE_TEST(test_defaults_are_set_when_registered) {
    assert_true(flag);
    assert_int_equal(number, 10);
    assert_int_equal(size, 1 << 20);
    assert_string_equal(name, "");
    assert_int_equal(words.count, 2);
    assert_shows("t-custom", "one two");
    assert_int_equal(config_number("t-any-int"), -1);
}
FIXTURE_TEST(test_names_and_aliases_ignore_case) {
    assert_ptr_equal(config_find(SLICE("T-OLD-Number")), config_find(SLICE("t-number")));
    assert_null(config_find(SLICE("t-numbe")));
    assert_null(config_find(SLICE("")));
    assert_set("t-old-number", "12", "12");
    assert_shows("t-number", "12");
}
FIXTURE_TEST(test_booleans) {
    assert_set("t-flag", "NO", "no");
    assert_set("t-flag", "yes", "yes");
    assert_refused("t-flag", "1", "argument must be 'yes' or 'no'");
    assert_refused("t-flag", "", "argument must be 'yes' or 'no'");
}
FIXTURE_TEST(test_integers_and_their_limits) {
    assert_set("t-number", "100", "100");
    assert_refused("t-number", "101", "argument must be between 2 and 100 inclusive");
    assert_refused("t-number", "1", "argument must be between 2 and 100 inclusive");
    assert_refused("t-number", "11", "must be even");
    assert_refused("t-number", "0x10", "argument couldn't be parsed into an integer");
    assert_refused("t-number", " 10", "argument couldn't be parsed into an integer");
    assert_refused("t-number", "99999999999999999999", "argument couldn't be parsed into an integer");
    assert_refused("t-any-int", "2147483648", "argument must be between -2147483648 and 2147483647 inclusive");
    assert_set("t-any-int", "-2147483648", "-2147483648");
    assert_set("t-wide", "-9223372036854775808", "-9223372036854775808");
}
FIXTURE_TEST(test_sizes_and_percentages) {
    static const struct {
        const char *text, *bytes;
    } good[] = {{"0", "0"},           {"1k", "1000"},        {"1kb", "1024"}, {"3MB", "3145728"},
                {"2g", "2000000000"}, {"1Gb", "1073741824"}, {"7b", "7"},     {"", "0"},
                {"mb", "0"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_set("t-size", good[i].text, good[i].bytes);
    static const char *const bad[] = {"-1", "1tb", "1.5mb", "1 mb", "5%", "18446744073709551616", "17179869184gb"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused("t-size", bad[i], "argument must be a memory value");
    assert_set("t-size", "9223372036854775807", "9223372036854775807");
    static const char out_of_limits[] = "argument must be between 0 and 9223372036854775807 inclusive";
    assert_refused("t-size", "9223372036854775808", out_of_limits);
    assert_refused("t-size", "18446744073709551615", out_of_limits);
    assert_refused("t-size", "9007199254740992kb", out_of_limits);
    assert_set("t-signed-size", "-1", "-1");
    assert_refused("t-signed-size", "-2", "argument must be between -1 and 9223372036854775807 inclusive");
    assert_refused("t-signed-size", "-1kb", "argument must be a memory value");
    assert_set("t-share", "5%", "5%");
    assert_int_equal(share, -5);
    assert_set("t-share", "0%", "0");
    assert_refused("t-share", "101%", "percentage argument must be less or equal to 100");
    assert_refused("t-share", "-5%", "argument must be a memory or percent value");
    assert_refused("t-share", "%", "argument must be a memory or percent value");
}
FIXTURE_TEST(test_octal_numbers) {
    assert_set("t-octal", "755", "755");
    assert_int_equal(octal, 0755);
    assert_refused("t-octal", "888", "argument couldn't be parsed as an octal number");
    assert_refused("t-octal", "1000", "argument must be between 0 and 777 inclusive");
}
FIXTURE_TEST(test_one_of_and_several_of) {
    assert_set("t-mode", "FAST", "fast");
    assert_refused("t-mode", "medium", "argument(s) must be one of the following: slow, fast");
    assert_set("t-several", "save now", "save now");
    assert_int_equal(several, 5);
    assert_set("t-several", "default", "default");
    assert_refused("t-several", "save bogus", "argument(s) must be one of the following: default, save, now, force");
    assert_refused("t-several", "", "argument(s) must be one of the following: default, save, now, force");
}
FIXTURE_TEST(test_words) {
    assert_set("t-words", "x yy  z", "x yy  z");
    assert_int_equal(words.count, 4); /* between two spaces there is an empty word */
    assert_set("t-words", "", "");
    assert_int_equal(words.count, 0);
    assert_set("t-name", "a b", "a b");
    struct slice two[] = {SLICE("a"), SLICE("b")};
    assert_string_equal(config_state_set(config_name_find(SLICE("t-name"))->state, 2, two, false),
                        "wrong number of arguments");
    struct slice with_nul = {"a\0b", 3};
    assert_non_null(config_state_set(config_name_find(SLICE("t-name"))->state, 1, &with_nul, false));
    assert_set("t-custom", "p q", "p q");
    assert_refused("t-custom", "p", "two words");
}

static const char *load(const char *text, int *line) {
    struct slice at;
    return config_load_text(slice_of(text), line, &at);
}
static void assert_loads(const char *text) {
    int line;
    const char *reason = load(text, &line);
    if (reason) fail_msg("line %d: %s", line, reason);
}
static void assert_fails_at(const char *text, int expected, const char *why) {
    int line = 0;
    const char *reason = load(text, &line);
    assert_non_null(reason);
    assert_string_equal(reason, why);
    assert_int_equal(line, expected);
}
FIXTURE_TEST(test_a_file_is_read_line_by_line) {
    assert_loads(
        "# comment\n\n  t-number 20\t\r\nT-FLAG no\r\n   # another\nt-name \"a \\\"b\\\" \\x41\\n\"\nt-words 'x y' z");
    assert_shows("t-number", "20");
    assert_shows("t-flag", "no");
    assert_string_equal(name, "a \"b\" A\n");
    assert_int_equal(words.count, 2);
    assert_string_equal(words.items[0], "x y");
    assert_loads("t-number 30\nt-number 32\n");
    assert_shows("t-number", "32");
    assert_loads("t-several \"save now\"\n");
    assert_int_equal(several, 5);
    assert_loads("t-words \"\"\n");
    assert_int_equal(words.count, 0);
    assert_loads("");
}
FIXTURE_TEST(test_a_wrong_line_is_named) {
    assert_fails_at("t-number 20\n\n# x\nt-bogus 1\n", 4, "Bad directive or wrong number of arguments");
    assert_fails_at("t-number\n", 1, "wrong number of arguments");
    assert_fails_at("t-number 2 4", 1, "wrong number of arguments");
    assert_fails_at("\nt-name \"x\n", 2, "Unbalanced quotes in configuration line");
    assert_fails_at("include\n", 1, "Bad directive or wrong number of arguments");
}
static char *write_file(const char *text) {
    char path[] = "/tmp/test_config_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return mem_strdup(path);
}
FIXTURE_TEST(test_includes_are_read_in_their_place) {
    char *inner = write_file("t-number 40\nt-flag no\n"), text[256];
    snprintf(text, sizeof text, "t-number 20\ninclude %s\nt-flag yes\ninclude /nonexistent/*.conf\n", inner);
    assert_loads(text);
    assert_shows("t-number", "40");
    assert_shows("t-flag", "yes");
    unlink(inner);
    mem_free(inner);

    char *wrong = write_file("t-flag yes\nt-number x\n");
    snprintf(text, sizeof text, "\n\n\ninclude %s\n", wrong);
    assert_fails_at(text, 2, "argument couldn't be parsed into an integer"); /* the line of the inner file */
    unlink(wrong);
    mem_free(wrong);
}
FIXTURE_TEST(test_a_file_that_includes_itself_ends) {
    char *path = write_file("");
    char text[128];
    snprintf(text, sizeof text, "include %s\n", path);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    int line;
    assert_string_equal(load(text, &line), "Files include one another too deeply");
    unlink(path);
    mem_free(path);
}
static void assert_command_line(char **arguments, const char *text) {
    struct memory_output out;
    memory_output_init(&out);
    int count = 0;
    while (arguments[count]) count++;
    config_arguments_to_text(count, arguments, &out.out);
    struct slice got = memory_output_slice(&out);
    assert_int_equal(got.len, strlen(text));
    assert_memory_equal(got.data, text, got.len);
    memory_output_free(&out);
}
FIXTURE_TEST(test_the_command_line_becomes_lines) {
    assert_command_line((char *[]){"--port", "7000", "--name", "a b", "c\"", NULL},
                        "\nport \"7000\"\nname \"a b\" \"c\\\"\"");
    assert_command_line((char *[]){"--port", "--name", NULL}, "\nport \"--name\"");
    assert_command_line((char *[]){"--save", "--port", "1", NULL}, "\nsave \"\"\nport \"1\"");
    assert_command_line((char *[]){"--save", NULL}, "\nsave \"\"");
    assert_command_line((char *[]){"--hz", "-1", "--port", "2", NULL}, "\nhz \"-1\"\nport \"2\"");
    assert_command_line((char *[]){NULL}, "");
}

static void assert_rewrites(const char *old, const char *new) {
    struct memory_output out;
    memory_output_init(&out);
    config_rewrite_content(slice_of(old), false, &out.out);
    output_write(&out.out, (struct slice){"", 1});
    assert_string_equal(memory_output_slice(&out).data, new);
    memory_output_free(&out);
}
FIXTURE_TEST(test_rewrite_keeps_what_is_no_option) {
    assert_rewrites("# one\n\nunknown 3\nuser joe on\n  # two \r", "# one\n\nunknown 3\nuser joe on\n# two\n");
    assert_rewrites("", "");
}
FIXTURE_TEST(test_rewrite_collapses_blank_lines_and_those_of_removed_options) {
    assert_rewrites("\n\n# a\n \n\t\n# b", "\n# a\n\n# b\n");
    assert_rewrites("t-number 3\n# a\nt-number 4\n\nt-number 5\n# b", "t-number 10\n# a\n\n# b\n");
    /* What follows the last newline counts as a line. */
    assert_rewrites("# a\n", "# a\n\n");
    assert_rewrites("# a\n\n", "# a\n\n");
}
FIXTURE_TEST(test_rewrite_changes_lines_in_place_and_appends) {
    set("t-number", "20");
    set("t-size", "2gb");
    set("t-name", "a \"b\"\n");
    set("t-several", "now force");
    assert_rewrites("# top\nT-NUMBER    3\n# end\n",
                    "# top\nt-number 20\n# end\n\n# Generated by CONFIG REWRITE\nt-name \"a \\\"b\\\"\\n\"\nt-several "
                    "now force\nt-size 2gb\n");
}
FIXTURE_TEST(test_rewrite_drops_repeated_lines_and_keeps_defaults_that_were_there) {
    assert_rewrites("t-number 3\nt-flag no\nt-number 4\nt-old-number 6", "t-number 10\nt-flag yes\n\n");
    assert_rewrites("t-old-number 8", "t-old-number 10\n");
}
FIXTURE_TEST(test_rewriting_twice_changes_nothing_more) {
    set("t-words", "x y");
    assert_rewrites("# c\n", "# c\n\n# Generated by CONFIG REWRITE\nt-words x y\n");
    assert_rewrites("# c\n\n# Generated by CONFIG REWRITE\nt-words x y\n\n",
                    "# c\n\n# Generated by CONFIG REWRITE\nt-words x y\n\n");
    set("t-flag", "no");
    assert_rewrites("# c\n\n# Generated by CONFIG REWRITE\nt-words x y\n",
                    "# c\n\n# Generated by CONFIG REWRITE\nt-words x y\n\nt-flag no\n");
}
FIXTURE_TEST(test_what_is_rewritten_can_be_read) {
    set("t-name", " \"'\\\n\x01\xff# ");
    set("t-words", "a#b #c 'd");
    set("t-share", "7%");
    set("t-octal", "640");
    struct memory_output out;
    memory_output_init(&out);
    config_rewrite_content(SLICE(""), true, &out.out);
    put_defaults(NULL);
    int line;
    struct slice at;
    assert_null(config_load_text(memory_output_slice(&out), &line, &at));
    assert_string_equal(name, " \"'\\\n\x01\xff# ");
    assert_shows("t-words", "a#b #c 'd");
    assert_shows("t-share", "7%");
    assert_int_equal(octal, 0640);
    memory_output_free(&out);
}

FIXTURE_TEST(test_options_can_be_removed_and_registered_again) {
    static char *text;
    static struct config_strings list;
    static int count;
    static const struct config_option passing[] = {
        {.name = "p-text", .alias = "p-old-text", .type = CONFIG_STRING, .value = &text, .initial = "first"},
        {.name = "p-words", .type = CONFIG_STRINGS, .flags = CONFIG_MULTI_ARG, .value = &list, .initial = "a b"},
        {.name = "p-count", .type = CONFIG_INT, .value = &count, .initial = "3"},
        {.name = "p-own", .type = CONFIG_STRINGS, .flags = CONFIG_MULTI_ARG, .initial = "x y z"},
        {.name = NULL}};
    size_t before = config_names_count();
    for (int i = 0; i < 3; i++) {
        config_register(passing);
        assert_int_equal(config_names_count(), before + 5);
        assert_string_equal(text, "first");
        set("p-old-text", "second");
        set("p-words", "c d e");
        set("p-own", "w");
        assert_shows("p-text", "second");
        config_unregister(passing);
        assert_int_equal(config_names_count(), before);
        assert_null(config_find(SLICE("p-text")));
        assert_null(config_find(SLICE("p-old-text")));
        assert_null(text);
        assert_null(list.items);
        for (size_t at = 0; at < before; at++) assert_non_null(config_name_at(at)->state);
    }
    config_unregister(passing); /* none is registered */
    assert_shows("t-custom", "one two");
}

int main(void) {
    return RUN_TESTS_WITH(setup, NULL);
}
