/* benchmark.h: the parts of valkey-benchmark.
 *
 *   benchmark.c           the program: parses options, runs the tests, shows results
 *   benchmark_options.c   the command line
 *   benchmark_request.c   prepared batches of requests with fields to patch
 *   benchmark_tests.c     the standard tests
 *   benchmark_run.c       runs one batch against the server from many connections and threads
 *   benchmark_cluster.c   the slots of each node, and key tags for them
 *   benchmark_report.c    the output on the screen
 *   benchmark_fuzz.c      --fuzz: random commands
 *   benchmark_page.c      the page of --report, whose layout is benchmark_page.html */
#pragma once
#include "lib/structures/histogram.h"
#include "tools/endpoint.h"
#include <stdatomic.h>

/* --- Options --- */

enum bench_output { OUTPUT_REPORT, OUTPUT_QUIET, OUTPUT_CSV };
enum bench_fuzz_level { FUZZ_NONE, FUZZ_ERROR, FUZZ_INFO, FUZZ_DEBUG };
struct bench_options {
    struct endpoint endpoint;
    int64_t clients, data_size, db, threads;
    int64_t requests;         /* commands, rounded up to whole sequences */
    int64_t pipeline;         /* commands or sequences sent together */
    int64_t duration, warmup; /* seconds; 0: `requests` decide, no warm-up */
    int64_t rps;              /* requests per second of all connections together; 0: no limit */
    int64_t precision;        /* decimal places of latencies, at least 3 */
    int64_t seed, keyspace;
    int64_t functions, function_keys; /* of the FUNCTION LOAD and FCALL tests */
    int64_t busy_poll_us;             /* -1: choose automatically */
    int64_t rx_size;                  /* receive buffer of an RDMA connection; 0: choose automatically */
    bool random_keys, sequential, resp3, cluster, tracking, read_primaries, read_replicas, keep_alive, loop, idle,
        stdin_argument, multi_thread;
    bool placement; /* SET and GET by the BLOB commands, from and to memory of this program */
    bool fuzz, fuzz_malformed, fuzz_config;
    enum bench_fuzz_level fuzz_level;
    enum bench_output output;
    char *tests;           /* ",get,set," or NULL for all */
    char *report_file;     /* NULL: no page */
    bool report_add;       /* keep the runs that the file has */
    char *report_label;    /* NULL: the transport */
    char *report_baseline; /* the label of the run that others are compared with; NULL: the slowest */
    char *command_line;    /* of this run, without passwords */
    int command_argc;      /* the user's command instead of the standard tests */
    struct slice *command_argv;
};
/* Prints the error or the help and exits if there is nothing to run. */
void options_parse(struct bench_options *o, int argc, char **argv);
bool options_selects(const struct bench_options *o, const char *test);

/* --- Cluster --- */

struct bench_node {
    struct endpoint endpoint;
    char *save, *appendonly; /* from CONFIG GET; NULL: unknown */
    char id[41];             /* in the cluster; empty: unknown */
    bool is_replica;
    uint16_t *slots;
    int slots_count;
};
struct bench_cluster {
    struct bench_node *nodes; /* without --cluster: one node without slots */
    int count;
    char (*tags)[3]; /* for each slot, three letters that hash to it */
};
/* Asks the server for its nodes and its configuration. Exits on failure. */
void cluster_discover(struct bench_cluster *cluster, const struct bench_options *o);
void cluster_free(struct bench_cluster *cluster);

/* --- Requests --- */

enum {
    PATCH_KEY = -3 /* --placement: the memory's remote key, */,
    PATCH_ADDRESS = -2 /* and where a value of this request is in it */,
    PATCH_TAG = -1,
    PATCH_RANDOM = 0 /* and 1 … 9: one number for all its occurrences in a command */,
    PATCH_KINDS = 10
};
struct bench_patch {
    size_t offset; /* within one request */
    int kind;
};
/* A request is one command or a sequence of them, which is sent as a whole. */
struct bench_request {
    char *bytes;  /* `count` equal requests, back to back */
    size_t size;  /* of one request */
    int commands; /* in one request: its number of replies */
    int count;
    struct bench_patch *patches;
    int patches_count;
};
/* In argv, ";" separates the commands of a sequence, and a number before a command repeats it. Exits if a command is
 * empty or the sequence too long. */
void request_build(struct bench_request *r, const struct bench_options *o, int argc, const struct slice *argv);
void request_build_raw(struct bench_request *r, const struct bench_options *o, struct slice bytes);
void request_free(struct bench_request *r);
/* A part of a request. Long parts that are never patched are blobs, which are sent without a copy. */
struct bench_part {
    size_t offset, len; /* within one request */
    struct blob *blob;  /* NULL: bytes of the batch */
};
/* Returns the number of parts; 0: copy the whole request. Free them with request_parts_free(). */
int request_parts(const struct bench_request *r, struct bench_part **parts);
void request_parts_free(struct bench_part *parts, int count);
/* Memory of a connection for the values of a batch, which the server reads and writes. */
struct bench_memory {
    uint64_t address;
    uint32_t rkey;
};
/* Writes new random numbers, the tag and the memory into the first `count` requests of a batch. With --sequential the
 * numbers of each kind come from its counter, which all threads share and all tests continue. */
void request_patch(const struct bench_request *r, const struct bench_options *o, char *bytes, int count,
                   const char *tag, const struct bench_memory *memory);

/* --- Running --- */

/* The progress of a run, at about equal intervals. */
enum { SERIES_MAX = 480 };
struct bench_sample {
    double seconds;            /* since the first counted request */
    uint64_t done, latency_ns; /* requests completed, and the sum of their latencies */
};
struct bench_series {
    uint64_t interval_us; /* when the series is full, it is doubled and every second sample is dropped */
    int count;
    struct bench_sample samples[SERIES_MAX];
};
enum bench_outcome { BENCH_DONE, BENCH_SERVER_ERROR, BENCH_FAILED };
struct bench_result {
    enum bench_outcome outcome;
    char error[512];
    double seconds;
    struct histogram *latencies; /* nanoseconds */
    struct bench_series series;
};
/* Called regularly while a test runs: requests done and the sum of their latencies so far, seconds since the start. */
typedef void bench_progress(void *context, uint64_t done, uint64_t latency_ns, double seconds);
void bench_run(const struct bench_options *o, struct bench_cluster *cluster, const struct bench_request *request,
               struct bench_result *result, bench_progress *progress, void *context);

/* --- The standard tests --- */

/* Prints a warning for each name of -t that no test has. Unknown names are no error, because scripts name tests that
 * only some versions have. */
void tests_warn_unknown(const struct bench_options *o);
/* Calls `run` for each selected test, until it returns false. */
void tests_run(const struct bench_options *o,
               bool (*run)(void *context, const char *title, const struct bench_request *request), void *context);

/* --- Fuzzing --- */

/* Sends random commands. Returns the program's exit status: 1 if the server has failed. */
int fuzz_run(const struct bench_options *o);

/* --- Reports --- */

struct bench_report {
    const struct bench_options *options;
    const struct bench_cluster *cluster;
    const char *title;
    int line_len; /* of the progress line on the screen */
    uint64_t last_done, last_latency_ns;
    double last_seconds;
};
void report_begin(struct bench_report *report, const char *title);
bench_progress report_progress;
void report_result(struct bench_report *report, const struct bench_result *result);
void report_clear_line(struct bench_report *report);
void report_csv_header(void);

/* --- The page of --report --- */

struct bench_page;
/* Reads the existing runs (--report-add), gets the server's version, and writes the page without the new run. Exits if
 * the file cannot be read or written. */
struct bench_page *page_open(const struct bench_options *o, const struct bench_cluster *cluster);
/* Adds a finished test and writes the file. Exits if that fails. */
void page_add(struct bench_page *page, const char *title, const struct bench_result *result);
void page_close(struct bench_page *page); /* NULL is allowed */
