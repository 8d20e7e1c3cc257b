/* benchmark_options.c: the command line of valkey-benchmark. */
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/version.h"
#include "lib/text/number.h"
#include "tools/benchmark.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS_MAX = 500 };

static const char help[] = "Usage: valkey-benchmark [OPTIONS] [COMMAND ARGS...]\n"
                           "\n"
                           "Connection:\n"
                           " -h <hostname>      Name or address of the server (default 127.0.0.1)\n"
                           " -p <port>          Port (default 6379)\n"
                           " -s <socket>        Unix socket, instead of host and port\n"
                           " -u <uri>           valkey://user:password@host:port/db; omitted parts keep their\n"
                           "                    defaults. rdma:// for RDMA\n"
                           " --rdma             Connect by RDMA\n"
                           " --tls              Connect by TLS, like valkeys:// in a URI\n"
                           " --cacert <file>    Trusted CA certificates (PEM)\n"
                           " --cacertdir <dir>  Directory of trusted CA certificates. Without either option: the\n"
                           "                    CA certificates of the system\n"
                           " --insecure         Do not verify the server's certificate\n"
                           " --cert <file>      Client certificate (PEM)\n"
                           " --key <file>       Private key of the client certificate\n"
                           " --sni <host>       Server name for SNI, the TLS extension\n"
                           " --tls-ciphers <list>  Ciphers of TLS 1.2, see ciphers(1ssl)\n"
                           " --tls-ciphersuites <list>  Cipher suites of TLS 1.3\n"
                           " --placement        SET and GET by direct placement, from and to registered memory of\n"
                           "                    this program; needs --rdma\n"
                           " --rdma-base-protocol  Use Valkey over RDMA without protocol extensions\n"
                           " --rdma-busy-poll-us <us>  Time to poll for completions before sleeping (default: 10\n"
                           "                    if there are spare CPUs, else 0)\n"
                           " --rdma-rx-size <bytes>  Receive buffer of a connection (default: 64 to 256 KiB,\n"
                           "                    about 4 MiB for all connections)\n"
                           " -a <password>      Password\n"
                           " --user <username>  User name (default: the default user)\n"
                           " --dbnum <db>       Database (default 0)\n"
                           " -3                 Use RESP3\n"
                           " --cluster          The server is a node of a cluster: spread the load over all\n"
                           "                    primaries. The keys of your command must contain {tag}.\n"
                           " --rfr <mode>       With --cluster, read from replicas: no, from primaries (default);\n"
                           "                    yes, from replicas; all, from both. For tests that only read.\n"
                           " --mptcp            Connect by Multipath TCP\n"
                           " --enable-tracking  Turn on client-side caching (CLIENT TRACKING) first\n"
                           "\n"
                           "Load:\n"
                           " -c <clients>       Connections (default 50)\n"
                           " -n <requests>      Total number of requests (default 100000)\n"
                           " --duration <seconds>  Run each test for this time instead of a number of requests\n"
                           " --warmup <seconds> Send requests for this time first, without counting them\n"
                           " --rps <requests>   Limit for the total number of requests per second\n"
                           " -P <numreq>        Pipeline this many requests or sequences (default 1)\n"
                           " -d <size>          Size of values in bytes (default 3)\n"
                           " -k <boolean>       1: keep connections (default), 0: a new one for each request\n"
                           " -r <keyspacelen>   Replace __rand_int__ in keys and arguments by numbers of 12\n"
                           "                    digits, 0 to keyspacelen-1, a new one for each occurrence.\n"
                           "                    __rand_1st__ ... __rand_9th__: one number for all occurrences of\n"
                           "                    the same name in a request. Without -r nothing is replaced.\n"
                           " --sequential       Consecutive instead of random numbers; __rand_int__ and each of\n"
                           "                    __rand_1st__ ... __rand_9th__ have a counter of their own\n"
                           " --seed <num>       Seed of the random numbers (default: the time)\n"
                           " --threads <num>    Number of threads, which share the connections equally\n"
                           " -t <tests>         Run only these tests, separated by commas: ping (ping_inline,\n"
                           "                    ping_mbulk), set, get, incr, lpush, rpush, lpop, rpop, sadd,\n"
                           "                    hset, spop, zadd, zpopmin, lrange (lrange_100, _300, _500,\n"
                           "                    _600), mset, mget, xadd, function_load, fcall\n"
                           " --num-functions <num>      Number of functions for function_load (default 10)\n"
                           " --num-keys-in-fcall <num>  Number of keys for fcall (default 1)\n"
                           " --fuzz             Send random commands, generated from COMMAND DOCS, to find those\n"
                           "                    that make the server fail. They overwrite data. Runs with the\n"
                           "                    same --seed send the same commands.\n"
                           " --fuzz-mode <modes>  malformed-commands: also commands with wrong arguments;\n"
                           "                    config-commands: also CONFIG SET; or both, separated by a comma\n"
                           " --fuzz-loglevel <level>  none, error, info (default), or debug: every command\n"
                           " -l                 Repeat all tests forever\n"
                           " -I                 Open the connections, send nothing, and wait\n"
                           " -x                 Read the last argument of the command from standard input\n"
                           "\n"
                           "Output:\n"
                           " -q                 One line for each test\n"
                           " --csv              CSV\n"
                           " --precision <num>  Decimal places of latencies in milliseconds (default 3)\n"
                           " --report <file>    Write an HTML page with charts of throughput and latencies; an\n"
                           "                    existing file is replaced\n"
                           " --report-add <file>  Add this run to such a page, to compare runs side by side\n"
                           " --report-label <text>  Name of this run on the page (default: the transport)\n"
                           " --report-baseline <text>  Name of the run that the others are compared with (default:\n"
                           "                    the slowest)\n"
                           " --help, --version\n"
                           "\n"
                           "In a command on the command line, __rand_int__ (see -r) and __data__ (a value of -d\n"
                           "bytes) are replaced. Commands separated by ';' are a sequence, which is sent as a whole;\n"
                           "a number before a command repeats it. A standard test whose command the server does not\n"
                           "know is skipped with a message.\n"
                           "\n"
                           "Examples:\n"
                           "   valkey-benchmark -t ping,set,get -n 100000 -q\n"
                           "   valkey-benchmark --rdma -h 192.168.122.100 -c 30 --threads 4 -d 1024 -t get,set\n"
                           "   valkey-benchmark -t set -n 1000000 -r 100000000\n"
                           "   valkey-benchmark -r 10000 -n 10000 lpush mylist __rand_int__\n"
                           "   valkey-benchmark -d 1024 -P 16 set key:__rand_int__ __data__\n"
                           "   valkey-benchmark -- multi ';' set key:__rand_int__ __data__ ';' 2 incr n ';' exec\n"
                           "   valkey-benchmark -t set,get --report compare.html\n"
                           "   valkey-benchmark -t set,get --rdma --report-add compare.html\n";

static void benchmark_options_fail(const char *text) {
    fprintf(stderr, "%s\n", text);
    exit(1);
}

static struct benchmark_number_option {
    const char *name;
    size_t offset;
    int64_t min, max;
} const numbers[] = {
#define NUMBER(name, field, min, max)                                                                                  \
    { name, offsetof(struct bench_options, field), min, max }
    NUMBER("-c", clients, 1, 1000000),
    NUMBER("-n", requests, 1, INT64_MAX / 2),
    NUMBER("--duration", duration, 1, 1000000),
    NUMBER("--warmup", warmup, 1, 1000000),
    NUMBER("--rps", rps, 0, 1000000000),
    NUMBER("-d", data_size, 0, 1024 * 1024 * 1024),
    NUMBER("--dbnum", db, 0, INT32_MAX),
    NUMBER("-P", pipeline, 1, 1000000),
    NUMBER("-r", keyspace, 0, INT64_C(1000000000000)),
    NUMBER("--threads", threads, 0, INT32_MAX),
    NUMBER("--precision", precision, 0, 6),
    NUMBER("--seed", seed, INT64_MIN, INT64_MAX),
    NUMBER("--num-functions", functions, 1, 10000),
    NUMBER("--num-keys-in-fcall", function_keys, 0, 10000),
    NUMBER("--rdma-busy-poll-us", busy_poll_us, 0, 1000000),
    NUMBER("--rdma-rx-size", rx_size, 64 * 1024, 16 * 1024 * 1024),
#undef NUMBER
};

static struct flag_option {
    const char *name;
    size_t offset;
} const flags[] = {
#define FLAG(name, field)                                                                                              \
    { name, offsetof(struct bench_options, field) }
    FLAG("-3", resp3),
    FLAG("--cluster", cluster),
    FLAG("--enable-tracking", tracking),
    FLAG("-l", loop),
    FLAG("-I", idle),
    FLAG("-x", stdin_argument),
    FLAG("--sequential", sequential),
    FLAG("--fuzz", fuzz),
    FLAG("--placement", placement),
#undef FLAG
};

/* Returns the number of arguments used; 0: not in the table; -1: its argument is missing. */
static int table_option(struct bench_options *o, int argc, char **argv, int i) {
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
        if (strcmp(argv[i], flags[k].name) != 0) continue;
        *(bool *)((char *)o + flags[k].offset) = true;
        return 1;
    }
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        const struct benchmark_number_option *number = &numbers[k];
        if (strcmp(argv[i], number->name) != 0) continue;
        if (i + 1 >= argc) return -1;
        int64_t value;
        if (!parse_int64(slice_of(argv[i + 1]), &value) || value < number->min || value > number->max) {
            fprintf(stderr, "%s takes a number from %lld to %lld, not \"%s\"\n", number->name, (long long)number->min,
                    (long long)number->max, argv[i + 1]);
            exit(1);
        }
        *(int64_t *)((char *)o + number->offset) = value;
        return 2;
    }
    return 0;
}

/* The options of the page. Returns as table_option() does. */
static int report_option(struct bench_options *o, int argc, char **argv, int i) {
    bool label = strcmp(argv[i], "--report-label") == 0, add = strcmp(argv[i], "--report-add") == 0,
         baseline = strcmp(argv[i], "--report-baseline") == 0;
    if (!label && !add && !baseline && strcmp(argv[i], "--report") != 0) return 0;
    if (i + 1 >= argc) return -1;
    if (!argv[i + 1][0])
        benchmark_options_fail(
            "--report, --report-add, --report-label and --report-baseline take a text that is not empty");
    text_set(label ? &o->report_label : baseline ? &o->report_baseline : &o->report_file, argv[i + 1]);
    if (!label && !baseline) o->report_add = add;
    return 2;
}

/* Appends a word to the command line, quoted for a shell. */
static void word_append(struct output *out, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
    if (*word && word[strspn(word, plain)] == 0) {
        output_write(out, slice_of(word));
        return;
    }
    output_write(out, SLICE("'"));
    for (; *word; word++) output_write(out, *word == '\'' ? SLICE("'\\''") : slice_make(word, 1));
    output_write(out, SLICE("'"));
}

/* The command line for the page, without the passwords of -a and -u. */
static char *command_line_make(int argc, char **argv) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    output_write(&text.out, SLICE("valkey-benchmark"));
    for (int i = 1; i < argc; i++) {
        char *word = mem_strdup(argv[i]);
        bool secret = strcmp(argv[i - 1], "-a") == 0 || strcmp(argv[i - 1], "--pass") == 0;
        char *user = strcmp(argv[i - 1], "-u") == 0 ? strstr(word, "://") : NULL;
        char *host = user ? strrchr(user, '@') : NULL, *password = user ? strchr(user + 3, ':') : NULL;
        output_write(&text.out, SLICE(" "));
        if (secret) {
            output_write(&text.out, SLICE("***"));
        } else if (host && password && password < host) {
            password[1] = 0;
            word_append(&text.out, word);
            output_write(&text.out, SLICE("***"));
            word_append(&text.out, host);
        } else {
            word_append(&text.out, word);
        }
        mem_free(word);
    }
    output_write(&text.out, slice_make("", 1));
    char *line = mem_strdup(text.data);
    memory_output_free(&text);
    return line;
}

/* The options of --fuzz with an argument. Returns as table_option() does. */
static int fuzz_option(struct bench_options *o, int argc, char **argv, int i) {
    static const char *const levels[] = {
        [FUZZ_NONE] = "none", [FUZZ_ERROR] = "error", [FUZZ_INFO] = "info", [FUZZ_DEBUG] = "debug"};
    bool mode = strcmp(argv[i], "--fuzz-mode") == 0;
    if (!mode && strcmp(argv[i], "--fuzz-loglevel") != 0) return 0;
    if (i + 1 >= argc) return -1;
    if (mode) {
        char *modes = mem_strdup(argv[i + 1]), *rest = modes, *name;
        while ((name = strsep(&rest, ","))) {
            if (strcmp(name, "malformed-commands") == 0)
                o->fuzz_malformed = true;
            else if (strcmp(name, "config-commands") == 0)
                o->fuzz_config = true;
            else
                benchmark_options_fail(
                    "--fuzz-mode takes malformed-commands, config-commands, or both with a comma between them");
        }
        mem_free(modes);
        return 2;
    }
    for (int level = FUZZ_NONE; level <= FUZZ_DEBUG; level++)
        if (strcmp(argv[i + 1], levels[level]) == 0) {
            o->fuzz_level = (enum bench_fuzz_level)level;
            return 2;
        }
    benchmark_options_fail("--fuzz-loglevel takes none, error, info or debug");
    return 0;
}

static int other_option(struct bench_options *o, int argc, char **argv, int i) {
    if (strcmp(argv[i], "-e") == 0) { /* scripts written for older versions pass it */
        fprintf(stderr, "WARNING: -e option has no effect. We now immediately exit on error to avoid false results.\n");
        return 1;
    }
    if (strcmp(argv[i], "-q") == 0) {
        if (o->output == OUTPUT_REPORT) o->output = OUTPUT_QUIET;
        return 1;
    }
    if (strcmp(argv[i], "--csv") == 0) {
        o->output = OUTPUT_CSV;
        return 1;
    }
    bool rfr = strcmp(argv[i], "--rfr") == 0;
    if (strcmp(argv[i], "-k") != 0 && strcmp(argv[i], "-t") != 0 && !rfr) return 0;
    if (i + 1 >= argc) return -1;
    if (rfr) {
        const char *mode = argv[i + 1];
        bool yes = strcmp(mode, "yes") == 0, no = strcmp(mode, "no") == 0;
        if (!yes && !no && strcmp(mode, "all") != 0) benchmark_options_fail("--rfr takes no, yes or all");
        o->read_primaries = !yes;
        o->read_replicas = !no;
    } else if (argv[i][1] == 'k') {
        o->keep_alive = atoi(argv[i + 1]) != 0;
    } else {
        size_t len = strlen(argv[i + 1]);
        mem_free(o->tests);
        o->tests = mem_alloc(len + 3);
        snprintf(o->tests, len + 3, ",%s,", argv[i + 1]);
        for (char *p = o->tests; *p; p++) *p = (char)tolower((unsigned char)*p);
    }
    return 2;
}

bool options_selects(const struct bench_options *o, const char *test) {
    char name[40];
    snprintf(name, sizeof name, ",%s,", test);
    return !o->tests || strstr(o->tests, name);
}

static struct slice stdin_read(void) {
    size_t len = 0, capacity = 4096;
    char *data = mem_alloc(capacity);
    ssize_t got;
    while ((got = read(STDIN_FILENO, data + len, capacity - len)) > 0) {
        len += (size_t)got;
        if (len == capacity) data = mem_realloc(data, capacity *= 2);
    }
    return slice_make(data, len);
}

static void command_take(struct bench_options *o, int argc, char **argv) {
    o->command_argv = mem_alloc((size_t)(argc + 1) * sizeof *o->command_argv);
    for (int i = 0; i < argc; i++) o->command_argv[i] = slice_of(argv[i]);
    o->command_argc = argc;
    if (o->stdin_argument) {
        if (argc == 0) benchmark_options_fail("-x needs a command whose last argument it is to read");
        o->command_argv[o->command_argc++] = stdin_read();
    }
}

static void options_default(struct bench_options *o) {
    memset(o, 0, sizeof *o);
    endpoint_init(&o->endpoint);
    o->clients = 50, o->requests = 100000, o->data_size = 3, o->pipeline = 1, o->keep_alive = o->read_primaries = true;
    o->precision = 3, o->functions = 10, o->function_keys = 1, o->busy_poll_us = -1;
    o->fuzz_level = FUZZ_INFO;
    o->seed = clock_wall_us();
}

void options_parse(struct bench_options *o, int argc, char **argv) {
    options_default(o);
    bool counted = false;
    int i = 1;
    while (i < argc && argv[i][0] == '-') {
        char error[256];
        if (strcmp(argv[i], "--help") == 0) {
            fputs(help, stdout);
            exit(0);
        }
        if (strcmp(argv[i], "--version") == 0 || strcmp(argv[i], "-v") == 0) {
            puts("valkey-benchmark " PROJECT_VERSION);
            exit(0);
        }
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        int used = endpoint_option(&o->endpoint, argc, argv, i, error, sizeof error);
        if (used == -2) benchmark_options_fail(error);
        if (used == 0) used = table_option(o, argc, argv, i);
        if (used == 0) used = report_option(o, argc, argv, i);
        if (used == 0) used = fuzz_option(o, argc, argv, i);
        if (used == 0) used = other_option(o, argc, argv, i);
        if (used <= 0) {
            fprintf(stderr, "Invalid option \"%s\" or option argument missing\n\n%s", argv[i], help);
            exit(1);
        }
        if (strcmp(argv[i], "-r") == 0) o->random_keys = true;
        if (strcmp(argv[i], "-n") == 0) counted = true;
        if (strcmp(argv[i], "--threads") == 0) o->multi_thread = o->threads > 0;
        if (strcmp(argv[i], "-u") == 0) o->db = o->endpoint.db;
        i += used;
    }
    command_take(o, argc - i, argv + i);
    if (o->tests && o->command_argc) fputs("WARNING: Option -t is ignored, because a command is given.\n", stderr);
    if (o->tests && !o->command_argc) tests_warn_unknown(o);
    if (o->duration && counted) benchmark_options_fail("Options -n and --duration are mutually exclusive.");
    if (o->duration) o->requests = INT64_MAX / 2;
    if (o->fuzz && (o->cluster || o->report_file || o->command_argc || o->loop || o->idle))
        benchmark_options_fail("--fuzz takes no command, and not --cluster, --report, -l or -I");
    if (!o->fuzz && (o->fuzz_malformed || o->fuzz_config)) benchmark_options_fail("--fuzz-mode needs --fuzz");
    if (o->sequential && !o->random_keys) benchmark_options_fail("--sequential needs -r");
    if (o->report_file && (o->loop || o->idle)) benchmark_options_fail("--report needs a run that ends, not -l or -I");
    if (o->report_label && !o->report_file) benchmark_options_fail("--report-label needs --report or --report-add");
    if (o->report_baseline && !o->report_file)
        benchmark_options_fail("--report-baseline needs --report or --report-add");
    if (o->report_file) o->command_line = command_line_make(argc, argv);
    if (o->placement && (!o->endpoint.rdma || o->endpoint.tls))
        benchmark_options_fail("--placement needs --rdma, without --tls");
    if (o->placement && !o->data_size) benchmark_options_fail("--placement needs values of at least one byte (-d)");
    char error[512];
    if (!endpoint_prepare(&o->endpoint, error, sizeof error)) benchmark_options_fail(error);
    if (o->precision < 3) o->precision = 3;
    if (o->threads < 1) o->threads = 1;
    if (o->threads > THREADS_MAX) {
        fprintf(stderr, "WARNING: Too many threads, limiting threads to %d.\n", THREADS_MAX);
        o->threads = THREADS_MAX;
    }
    if (o->threads > o->clients) o->threads = o->clients;
}
