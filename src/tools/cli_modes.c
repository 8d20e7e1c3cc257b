/* cli_modes.c: --stat, --scan, --latency and its variants, and --lru-test. */
#include "lib/system/clock.h"
#include "lib/system/random.h"
#include "tools/cli_format.h"
#include "tools/cli_modes.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* --- --stat --- */

static int64_t info_number(struct slice info, const char *field) {
    size_t len = strlen(field);
    const char *at = info.data, *end = info.data + info.len;
    while ((at = memmem(at, (size_t)(end - at), field, len))) {
        bool line_start = at == info.data || at[-1] == '\n';
        at += len;
        if (line_start && at < end && *at == ':') return strtoll(at + 1, NULL, 10);
    }
    return 0;
}

/* The number of keys in all databases: "db0:keys=12,expires=…". */
static int64_t info_keys(struct slice info) {
    int64_t keys = 0;
    for (const char *at = info.data; (at = strstr(at, "\ndb")); at++) {
        const char *digits = at + 3 + strspn(at + 3, "0123456789");
        if (digits > at + 3 && strncmp(digits, ":keys=", 6) == 0) keys += strtoll(digits + 6, NULL, 10);
    }
    return keys;
}

static void format_human(char *text, size_t size, int64_t bytes) {
    static const char units[] = "BKMGTP";
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 5; unit++) value /= 1024;
    if (unit == 0)
        snprintf(text, size, "%lldB", (long long)bytes);
    else
        snprintf(text, size, "%.2f%c", value, units[unit]);
}

int mode_stat(struct cli *cli) {
    int64_t before = 0;
    cli_connect_or_exit(cli);
    /* The number of databases is not used here, but a user who may not read it gets the message of Valkey's cli. */
    const struct resp_value *databases = CLI_CALL(cli, "CONFIG", "GET", "databases");
    if (databases->type == RESP_ERROR)
        fprintf(stderr, "CONFIG GET databases fails: %s, use default value 16 instead\n", databases->text.data);
    useconds_t interval = cli->options.interval_us ? (useconds_t)cli->options.interval_us : 1000 * 1000;
    for (int row = 0;; row++) {
        cli_connect_or_exit(cli);
        struct slice info = cli_text(CLI_CALL(cli, "INFO"));
        if (row % 20 == 0) {
            printf("------- data ------ --------------------- load -------------------- - child -\n"
                   "keys       mem      clients blocked requests            connections          \n");
        }
        char memory[32], requests[64];
        int64_t total = info_number(info, "total_commands_processed");
        format_human(memory, sizeof memory, info_number(info, "used_memory"));
        snprintf(requests, sizeof requests, "%lld (+%lld)", (long long)total, (long long)(row ? total - before : 0));
        before = total;
        bool save = info_number(info, "rdb_bgsave_in_progress") != 0,
             rewrite = info_number(info, "aof_rewrite_in_progress") != 0;
        printf("%-10lld %-8s %-7lld %-7lld %-19s %-12lld%s\n", (long long)info_keys(info), memory,
               (long long)info_number(info, "connected_clients"), (long long)info_number(info, "blocked_clients"),
               requests, (long long)info_number(info, "total_connections_received"),
               save && rewrite ? "SAVE+AOF"
               : save          ? "SAVE"
               : rewrite       ? "AOF"
                               : "");
        fflush(stdout);
        usleep(interval);
    }
}

/* --- --scan --- */

int mode_scan(struct cli *cli) {
    const struct cli_options *o = &cli->options;
    char cursor[32] = "0", count[24];
    snprintf(count, sizeof count, "%lld", (long long)o->count);
    cli_connect_or_exit(cli);
    do {
        struct slice argv[6] = {SLICE("SCAN"), slice_of(cursor)};
        int argc = 2;
        if (o->pattern) argv[argc++] = SLICE("MATCH"), argv[argc++] = slice_of(o->pattern);
        argv[argc++] = SLICE("COUNT"), argv[argc++] = slice_of(count);
        const struct resp_value *reply = cli_call(cli, argc, argv);
        if (reply->type == RESP_ERROR) cli_refused("SCAN error", reply);
        if (reply->count != 2 || reply->children[0].text.len >= sizeof cursor) {
            fprintf(stderr, "ERROR: this is not an answer to SCAN\n");
            return 1;
        }
        memcpy(cursor, reply->children[0].text.data, reply->children[0].text.len + 1);
        const struct resp_value *keys = &reply->children[1];
        for (size_t i = 0; i < keys->count; i++) {
            struct memory_output line = MEMORY_OUTPUT_INIT;
            if (o->output == CLI_FORMATTED)
                format_quoted(&line.out, keys->children[i].text);
            else
                output_write(&line.out, keys->children[i].text);
            output_write(&line.out, SLICE("\n"));
            fwrite(line.data, 1, memory_output_slice(&line).len, stdout);
            memory_output_free(&line);
        }
        if (o->interval_us) fflush(stdout), usleep((useconds_t)o->interval_us);
    } while (strcmp(cursor, "0") != 0);
    return 0;
}

/* --- --latency and --latency-history --- */

enum { LATENCY_PERIOD_US = 10 * 1000, LATENCY_HISTORY_US = 15 * 1000 * 1000, LATENCY_ONCE_US = 1000 * 1000 };

/* An error takes as long as the reply. */
static uint64_t ping_us(struct cli *cli) {
    cli_connect_or_exit(cli);
    uint64_t start = clock_monotonic_us();
    CLI_CALL(cli, "PING");
    return clock_monotonic_us() - start;
}

struct latency {
    uint64_t min, max, sum, count; /* milliseconds */
};

static void latency_show(const struct cli *cli, const struct latency *l) {
    double average = l->count ? (double)l->sum / (double)l->count : 0;
    unsigned long long min = l->min, max = l->max, count = l->count;
    switch (cli->options.output) {
    case CLI_FORMATTED: printf("min: %llu, max: %llu, avg: %.2f (%llu samples)", min, max, average, count); break;
    case CLI_CSV: printf("%llu,%llu,%.2f,%llu\n", min, max, average, count); break;
    case CLI_RAW: printf("%llu %llu %.2f %llu\n", min, max, average, count); break;
    case CLI_JSON:
    case CLI_QUOTED_JSON:
        printf("{\"min\": %llu, \"max\": %llu, \"avg\": %.2f, \"count\": %llu}\n", min, max, average, count);
        break;
    }
    fflush(stdout);
}

int mode_latency(struct cli *cli, bool history) {
    const struct cli_options *o = &cli->options;
    bool live = o->output == CLI_FORMATTED;
    uint64_t interval = o->interval_us ? (uint64_t)o->interval_us : history ? LATENCY_HISTORY_US : LATENCY_ONCE_US;
    struct latency l = {0};
    uint64_t start = clock_monotonic_us();
    for (;;) {
        uint64_t took = ping_us(cli) / 1000;
        if (l.count == 0 || took < l.min) l.min = took;
        if (took > l.max) l.max = took;
        l.sum += took;
        l.count++;
        if (live) {
            printf("\033[0G\033[2K"); /* moves to the start of the line and erases it */
            latency_show(cli, &l);
        }
        uint64_t passed = clock_monotonic_us() - start;
        if ((history || !live) && passed >= interval) {
            if (live)
                printf(" -- %.2f seconds range\n", (double)passed / 1e6);
            else
                latency_show(cli, &l);
            if (!history) return 0;
            start = clock_monotonic_us();
            l = (struct latency){0};
        }
        usleep(LATENCY_PERIOD_US);
    }
}

/* --- --latency-dist --- */

static const struct {
    uint64_t below_us; /* 0: no limit */
    char mark;
} spectrum[] = {
    {10, '.'},       {125, '-'},      {250, '*'},     {500, '#'},     {1000, '1'},    {2000, '2'},    {3000, '3'},
    {4000, '4'},     {5000, '5'},     {6000, '6'},    {7000, '7'},    {8000, '8'},    {9000, '9'},    {10000, 'A'},
    {20000, 'B'},    {30000, 'C'},    {40000, 'D'},   {50000, 'E'},   {100000, 'F'},  {200000, 'G'},  {300000, 'H'},
    {400000, 'I'},   {500000, 'J'},   {1000000, 'K'}, {2000000, 'L'}, {4000000, 'M'}, {8000000, 'N'}, {16000000, 'O'},
    {30000000, 'P'}, {60000000, 'Q'}, {0, '?'},
};
enum { SPECTRUM = sizeof spectrum / sizeof *spectrum };
/* From black over grey and yellow to red, in the 256-colour palette of terminals. */
static const int palette[] = {0,   233, 234, 235, 237, 239, 241, 243, 245, 247,
                              144, 143, 142, 184, 226, 214, 208, 202, 196};
enum { PALETTE = sizeof palette / sizeof *palette };

static void spectrum_legend(void) {
    puts("---------------------------------------------");
    puts(". - * #          .01 .125 .25 .5 milliseconds");
    puts("1,2,3,...,9      from 1 to 9     milliseconds");
    puts("A,B,C,D,E        10,20,30,40,50  milliseconds");
    puts("F,G,H,I,J        .1,.2,.3,.4,.5       seconds");
    puts("K,L,M,N,O,P,Q,?  1,2,4,8,16,30,60,>60 seconds");
    printf("From 0 to 100%%: ");
    for (int i = 0; i < PALETTE; i++) printf("\033[48;5;%dm ", palette[i]);
    puts("\033[0m");
    puts("---------------------------------------------");
}

int mode_latency_dist(struct cli *cli) {
    uint64_t interval = cli->options.interval_us ? (uint64_t)cli->options.interval_us : 1000 * 1000;
    for (int row = 0;; row++) {
        uint64_t counts[SPECTRUM] = {0}, total = 0, start = clock_monotonic_us();
        if (row % 20 == 0) spectrum_legend();
        while (clock_monotonic_us() - start < interval) {
            uint64_t took = ping_us(cli);
            int i = 0;
            while (spectrum[i].below_us && took > spectrum[i].below_us) i++;
            counts[i]++, total++;
            usleep(LATENCY_PERIOD_US);
        }
        printf("\033[38;5;0m");
        for (int i = 0; i < SPECTRUM; i++) {
            int colour = total ? (int)ceil((double)counts[i] / (double)total * (PALETTE - 1)) : 0;
            printf("\033[48;5;%dm%c", palette[colour], spectrum[i].mark);
        }
        puts("\033[0m");
        fflush(stdout);
    }
}

/* --- --intrinsic-latency --- */

/* Computation that the compiler cannot remove, between two readings of the clock. */
static uint64_t work(uint64_t seed) {
    for (int i = 0; i < 64; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        __asm__ volatile("" : "+r"(seed));
    }
    return seed;
}

int mode_intrinsic_latency(struct cli *cli) {
    cli_catch_interrupt(cli, true);
    uint64_t seed = 88172645463325252u, runs = 0, max = 0, start = clock_monotonic_us(), now = start;
    uint64_t end = start + (uint64_t)cli->options.intrinsic_s * 1000 * 1000;
    while (now < end && !cli_interrupted) {
        uint64_t before = clock_monotonic_us();
        seed = work(seed);
        now = clock_monotonic_us();
        runs++;
        if (now - before <= max) continue;
        max = now - before;
        printf("Max latency so far: %llu microseconds.\n", (unsigned long long)max);
        fflush(stdout);
    }
    double average = runs ? (double)(now - start) / (double)runs : 0;
    printf("\n%llu total runs (avg latency: %.4f microseconds / %.2f nanoseconds per run).\n", (unsigned long long)runs,
           average, average * 1000);
    printf("Worst run took %.0fx longer than the average latency.\n", average > 0 ? (double)max / average : 0);
    return 0;
}

/* --- --lru-test --- */

enum { LRU_PIPELINE = 250 };

/* Four of five accesses go to one fifth of the keys, and so on recursively: a power law. */
static int64_t lru_key(int64_t keys) {
    double uniform = (double)(random_u64() >> 11) / 9007199254740992.0, alpha = 6.2;
    double value = pow((pow((double)keys, alpha + 1) - 1) * uniform + 1, 1 / (alpha + 1));
    return keys - (int64_t)value;
}

int mode_lru_test(struct cli *cli) {
    int64_t keys = cli->options.lru_keys;
    static const char value[] = "A value of a few bytes";
    for (;;) {
        uint64_t start = clock_monotonic_us(), hits = 0, misses = 0;
        while (clock_monotonic_us() - start < 1000 * 1000) {
            cli_connect_or_exit(cli);
            static char names[LRU_PIPELINE][32];
            for (int i = 0; i < LRU_PIPELINE; i++) {
                snprintf(names[i], sizeof names[i], "lru:%lld", (long long)lru_key(keys));
                request_write(&cli->session.conn->out, 2, (struct slice[]){SLICE("GET"), slice_of(names[i])});
            }
            conn_flush(cli->session.conn);
            int missed = 0;
            for (int i = 0; i < LRU_PIPELINE; i++) {
                const struct resp_value *reply = session_read(&cli->session, -1);
                if (!reply) cli_connect_or_exit(cli), exit(1);
                if (reply->type == RESP_ERROR)
                    fprintf(stderr, "%s\n", reply->text.data);
                else if (reply->type != RESP_NULL)
                    hits++;
                else
                    memmove(names[missed++], names[i], sizeof names[i]);
            }
            misses += (uint64_t)missed;
            for (int i = 0; i < missed; i++) {
                request_write(&cli->session.conn->out, 3,
                              (struct slice[]){SLICE("SET"), slice_of(names[i]), SLICE(value)});
            }
            conn_flush(cli->session.conn);
            for (int i = 0; i < missed; i++) {
                const struct resp_value *reply = session_read(&cli->session, -1);
                if (!reply) exit(1);
                if (reply->type == RESP_ERROR) fprintf(stderr, "%s\n", reply->text.data);
            }
        }
        double total = (double)(hits + misses);
        printf("%llu Gets/sec | Hits: %llu (%.2f%%) | Misses: %llu (%.2f%%)\n", (unsigned long long)hits + misses,
               (unsigned long long)hits, total > 0 ? 100 * (double)hits / total : 0, (unsigned long long)misses,
               total > 0 ? 100 * (double)misses / total : 0);
        fflush(stdout);
    }
}
