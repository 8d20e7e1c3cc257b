/* benchmark.c: valkey-benchmark measures the performance of a server. benchmark.h lists its parts. */
#include "tools/benchmark.h"
#include "lib/system/clock.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct bench {
    struct bench_options options;
    struct bench_cluster cluster;
    struct bench_report report;
    struct bench_page *page; /* NULL: no --report */
};

/* While slots move, each of them sends away the requests for it, one after the other. */
enum { REDISCOVER_S = 30, REDISCOVER_PAUSE_MS = 50 };

/* Runs one test and prints its result. A test whose command the server does not know is skipped. */
static bool test_run(void *context, const char *title, const struct bench_request *request) {
    struct bench *bench = context;
    struct bench_result result;
    uint64_t begin_us = clock_monotonic_us();
    for (;;) {
        report_begin(&bench->report, title);
        bench_run(&bench->options, &bench->cluster, request, &result, report_progress, &bench->report);
        bool moved = result.outcome == BENCH_SERVER_ERROR && bench->options.cluster &&
                     (strncmp(result.error, "MOVED ", 6) == 0 || strncmp(result.error, "ASK ", 4) == 0);
        if (!moved || clock_monotonic_us() - begin_us > REDISCOVER_S * 1000000ull) break;
        /* Slots have moved: read the slot map again and restart this test. */
        histogram_free(result.latencies);
        nanosleep(&(struct timespec){.tv_nsec = REDISCOVER_PAUSE_MS * 1000000}, NULL);
        cluster_free(&bench->cluster);
        cluster_discover(&bench->cluster, &bench->options);
    }
    if (result.outcome == BENCH_DONE) {
        report_result(&bench->report, &result);
        if (bench->page) page_add(bench->page, title, &result);
    } else {
        report_clear_line(&bench->report);
    }
    histogram_free(result.latencies);
    if (result.outcome == BENCH_DONE) return true;
    fflush(stdout);
    if (result.outcome == BENCH_SERVER_ERROR && bench->options.command_argc == 0 &&
        strncasecmp(result.error, "ERR unknown command", 19) == 0) {
        fprintf(stderr, "%s: skipped, the server does not know the command\n", title);
        return true;
    }
    fprintf(stderr, "%s%s\n", result.outcome == BENCH_SERVER_ERROR ? "Error from server: " : "", result.error);
    exit(1);
}

static void command_run(struct bench *bench) {
    const struct bench_options *o = &bench->options;
    struct memory_output title = MEMORY_OUTPUT_INIT;
    for (int i = 0; i < o->command_argc - o->stdin_argument; i++) {
        if (i) output_write(&title.out, SLICE(" "));
        output_write(&title.out, o->command_argv[i]);
    }
    output_write(&title.out, slice_make("", 1));
    struct bench_request request;
    request_build(&request, o, o->command_argc, o->command_argv);
    test_run(bench, memory_output_slice(&title).data, &request);
    request_free(&request);
    memory_output_free(&title);
}

static void transport_announce(const struct bench_options *o) {
    if (!o->endpoint.rdma || o->output == OUTPUT_REPORT) return;
    char transport[128];
    endpoint_format_transport(&o->endpoint, transport, sizeof transport);
    fprintf(stderr, "transport: %s\n", transport);
}

int main(int argc, char **argv) {
    static struct bench bench;
    signal(SIGPIPE, SIG_IGN);
    options_parse(&bench.options, argc, argv);
    const struct bench_options *o = &bench.options;
    if (o->fuzz) return fuzz_run(o);
    cluster_discover(&bench.cluster, o);
    bench.report.options = o;
    bench.report.cluster = &bench.cluster;
    transport_announce(o);
    if (!o->keep_alive)
        fprintf(stderr, "WARNING: without keep-alive the time to connect is part of what is measured, and "
                        "ports may run out\n");
    if (o->idle) {
        printf("Creating %lld idle connections and waiting forever (Ctrl+C when done)\n", (long long)o->clients);
        fflush(stdout);
        struct bench_request none;
        struct bench_result result;
        request_build_raw(&none, o, SLICE("PING\r\n"));
        bench_run(o, &bench.cluster, &none, &result, NULL, NULL);
        fprintf(stderr, "%s\n", result.error);
        return 1;
    }
    if (o->report_file) bench.page = page_open(o, &bench.cluster);
    if (o->output == OUTPUT_CSV) report_csv_header();
    do {
        if (o->command_argc > 0)
            command_run(&bench);
        else
            tests_run(o, test_run, &bench);
    } while (o->loop);
    page_close(bench.page);
    cluster_free(&bench.cluster);
    return 0;
}
