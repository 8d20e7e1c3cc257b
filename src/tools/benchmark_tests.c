/* benchmark_tests.c: the standard tests, as a table. */
#include "lib/system/memory.h"
#include "tools/benchmark.h"
#include <stdio.h>

/* `command` is split at spaces. Each key contains {tag}, which assigns it to the target node of a cluster; without
 * --cluster, {tag} and the colon before it are removed. A test runs if one of its names is selected, or if no test is
 * selected. */
static const struct test {
    const char *names; /* each name between commas */
    const char *title;
    const char *command; /* NULL: built by a function below */
} tests[] = {
    {",ping_inline,ping,", "PING_INLINE", NULL},
    {",ping_mbulk,ping,", "PING_MBULK", "PING"},
    {",set,", "SET", "SET key:{tag}:__rand_int__ __data__"},
    {",get,", "GET", "GET key:{tag}:__rand_int__"},
    {",incr,", "INCR", "INCR counter:{tag}:__rand_int__"},
    {",lpush,", "LPUSH", "LPUSH mylist:{tag} __data__"},
    {",rpush,", "RPUSH", "RPUSH mylist:{tag} __data__"},
    {",lpop,", "LPOP", "LPOP mylist:{tag}"},
    {",rpop,", "RPOP", "RPOP mylist:{tag}"},
    {",sadd,", "SADD", "SADD myset:{tag} element:__rand_int__"},
    {",hset,", "HSET", "HSET myhash:{tag} element:__rand_int__ __data__"},
    {",spop,", "SPOP", "SPOP myset:{tag}"},
    {",zadd,", "ZADD", "ZADD myzset:{tag} __score__ element:__rand_1st__"},
    {",zpopmin,", "ZPOPMIN", "ZPOPMIN myzset:{tag}"},
    {",lrange,lrange_100,lrange_300,lrange_500,lrange_600,", "LPUSH (needed to benchmark LRANGE)",
     "LPUSH mylist:{tag} __data__"},
    {",lrange,lrange_100,", "LRANGE_100 (first 100 elements)", "LRANGE mylist:{tag} 0 99"},
    {",lrange,lrange_300,", "LRANGE_300 (first 300 elements)", "LRANGE mylist:{tag} 0 299"},
    {",lrange,lrange_500,", "LRANGE_500 (first 500 elements)", "LRANGE mylist:{tag} 0 499"},
    {",lrange,lrange_600,", "LRANGE_600 (first 600 elements)", "LRANGE mylist:{tag} 0 599"},
    {",mset,", "MSET (10 keys)",
     "MSET key:{tag}:__rand_int__ __data__ key:{tag}:__rand_int__ __data__ key:{tag}:__rand_int__ __data__ "
     "key:{tag}:__rand_int__ __data__ key:{tag}:__rand_int__ __data__ key:{tag}:__rand_int__ __data__ "
     "key:{tag}:__rand_int__ __data__ key:{tag}:__rand_int__ __data__ key:{tag}:__rand_int__ __data__ "
     "key:{tag}:__rand_int__ __data__"},
    {",mget,", "MGET (10 keys)",
     "MGET key:{tag}:__rand_int__ key:{tag}:__rand_int__ key:{tag}:__rand_int__ key:{tag}:__rand_int__ "
     "key:{tag}:__rand_int__ key:{tag}:__rand_int__ key:{tag}:__rand_int__ key:{tag}:__rand_int__ "
     "key:{tag}:__rand_int__ key:{tag}:__rand_int__"},
    {",xadd,", "XADD", "XADD mystream:{tag} * myfield __data__"},
    {",function_load,", "FUNCTION LOAD", NULL},
    {",fcall,", "FCALL", NULL},
};
enum { WORDS_MAX = 32 };

static bool is_selected(const struct bench_options *o, const char *names) {
    char name[32];
    for (const char *at = names + 1; *at; at += strcspn(at, ",") + 1) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        if (options_selects(o, name)) return true;
    }
    return false;
}

void tests_warn_unknown(const struct bench_options *o) {
    for (const char *at = o->tests; *at; at += strcspn(at, ",")) {
        size_t len = strcspn(++at, ",");
        char name[40];
        snprintf(name, sizeof name, ",%.*s,", (int)len, at);
        bool known = len == 0;
        for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) known |= strstr(tests[i].names, name) != NULL;
        if (!known) fprintf(stderr, "WARNING: -t: no test is named \"%.*s\"; --help lists them.\n", (int)len, at);
    }
}

/* With --placement, the commands that have a form for it. */
static const char *command_of(const struct bench_options *o, const struct test *test) {
    if (o->placement && strcmp(test->title, "SET") == 0)
        return "BLOB.SET key:{tag}:__rand_int__ __size__ __rkey____ __address___________ __size__";
    if (o->placement && strcmp(test->title, "GET") == 0)
        return "BLOB.GET key:{tag}:__rand_int__ __rkey____ __address___________ __size__";
    return test->command;
}

/* Copies an argument to `buffer` with {tag}, __score__ and __size__ replaced. */
static struct slice word_prepare(const struct bench_options *o, struct slice word, char *buffer, size_t size) {
    if (slice_equal(word, SLICE("__score__"))) return o->random_keys ? SLICE("__rand_int__") : SLICE("0");
    if (slice_equal(word, SLICE("__size__")))
        return slice_make(buffer, (size_t)snprintf(buffer, size, "%lld", (long long)o->data_size));
    const char *tag = o->cluster ? NULL : memmem(word.data, word.len, ":{tag}", 6);
    if (!tag) return word;
    int len = snprintf(buffer, size, "%.*s%.*s", (int)(tag - word.data), word.data,
                       (int)(word.data + word.len - tag - 6), tag + 6);
    return slice_make(buffer, (size_t)len);
}

static void table_test_build(struct bench_request *request, const struct bench_options *o, const char *command) {
    struct slice argv[WORDS_MAX];
    char buffers[WORDS_MAX][64];
    int argc = 0;
    for (const char *at = command; *at && argc < WORDS_MAX; argc++) {
        size_t len = strcspn(at, " ");
        argv[argc] = word_prepare(o, slice_make(at, len), buffers[argc], sizeof buffers[argc]);
        at += len + (at[len] == ' ');
    }
    request_build(request, o, argc, argv);
}

static void function_load_build(struct bench_request *request, const struct bench_options *o) {
    struct memory_output code = MEMORY_OUTPUT_INIT;
    output_write(&code.out, SLICE("#!lua name=benchmarklib\n"));
    for (int64_t i = 0; i < o->functions; i++) {
        char line[128];
        int len = snprintf(line, sizeof line,
                           "server.register_function('benchmark_%lld', function(keys, args) return %lld end)\n",
                           (long long)i, (long long)i);
        output_write(&code.out, slice_make(line, (size_t)len));
    }
    struct slice argv[] = {SLICE("FUNCTION"), SLICE("LOAD"), SLICE("REPLACE"), memory_output_slice(&code)};
    request_build(request, o, 4, argv);
    memory_output_free(&code);
}

static void fcall_build(struct bench_request *request, const struct bench_options *o) {
    char count[24];
    int argc = 3 + (int)o->function_keys;
    struct slice *argv = mem_alloc((size_t)argc * sizeof *argv);
    snprintf(count, sizeof count, "%lld", (long long)o->function_keys);
    argv[0] = SLICE("FCALL"), argv[1] = SLICE("benchmark_0"), argv[2] = slice_of(count);
    for (int i = 3; i < argc; i++) argv[i] = o->cluster ? SLICE("key:{tag}:__rand_int__") : SLICE("key:__rand_int__");
    request_build(request, o, argc, argv);
    mem_free(argv);
}

void tests_run(const struct bench_options *o,
               bool (*run)(void *context, const char *title, const struct bench_request *request), void *context) {
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (!is_selected(o, tests[i].names)) continue;
        struct bench_request request;
        if (tests[i].command)
            table_test_build(&request, o, command_of(o, &tests[i]));
        else if (strcmp(tests[i].title, "FCALL") == 0)
            fcall_build(&request, o);
        else if (strcmp(tests[i].title, "PING_INLINE") == 0)
            request_build_raw(&request, o, SLICE("PING\r\n"));
        else
            function_load_build(&request, o);
        bool go_on = run(context, tests[i].title, &request);
        request_free(&request);
        if (!go_on) return;
    }
}
