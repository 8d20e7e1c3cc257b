/* benchmark_report.c: the output on the screen. Its lines are those of Valkey's tool, because scripts parse them, and
 * `transport:`. */
#include "tools/benchmark.h"
#include <stdio.h>

static double ms(uint64_t ns) {
    return (double)ns / 1e6;
}

void report_begin(struct bench_report *report, const char *title) {
    report->title = title;
    report->line_len = 0;
    report->last_done = report->last_latency_ns = 0;
    report->last_seconds = 0;
}

void report_clear_line(struct bench_report *report) {
    if (report->line_len == 0) return;
    printf("\r%*s\r", report->line_len, "");
    report->line_len = 0;
}

void report_progress(void *context, uint64_t done, uint64_t latency_ns, double seconds) {
    struct bench_report *report = context;
    if (report->options->output == OUTPUT_CSV) return;
    uint64_t fresh = done - report->last_done;
    double interval = seconds - report->last_seconds;
    report_clear_line(report);
    report->line_len =
        printf("%s: rps=%.1f (overall: %.1f) avg_msec=%.3f (overall: %.3f)", report->title,
               interval > 0 ? (double)fresh / interval : 0, seconds > 0 ? (double)done / seconds : 0,
               fresh ? ms((latency_ns - report->last_latency_ns) / fresh) : 0, done ? ms(latency_ns / done) : 0);
    fflush(stdout);
    report->last_done = done;
    report->last_latency_ns = latency_ns;
    report->last_seconds = seconds;
}

void report_csv_header(void) {
    puts("\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_"
         "latency_ms\","
         "\"max_latency_ms\"");
}

static void show_setting(const char *indent, const char *name, const char *value) {
    if (value) printf("%shost configuration \"%s\": %s\n", indent, name, value);
}

static void show_head(const struct bench_report *report, const struct bench_result *result) {
    const struct bench_options *o = report->options;
    const struct bench_cluster *cluster = report->cluster;
    char transport[128];
    endpoint_format_transport(&o->endpoint, transport, sizeof transport);
    printf("====== %s ======\n", report->title);
    printf("  %lld requests completed in %.2f seconds\n", (long long)result->latencies->count, result->seconds);
    printf("  %lld parallel clients\n", (long long)o->clients);
    printf("  %lld bytes payload\n", (long long)o->data_size);
    printf("  keep alive: %d\n", o->keep_alive);
    printf("  transport: %s\n", transport);
    if (o->cluster) {
        printf("  cluster mode: yes (%d primary)\n", cluster->count);
        for (int i = 0; i < cluster->count; i++) {
            printf("  node [%d] configuration:\n", i);
            const char *save = cluster->nodes[i].save;
            printf("    save: %s\n", save && *save ? save : "NONE");
            printf("    appendonly: %s\n", cluster->nodes[i].appendonly ? cluster->nodes[i].appendonly : "NONE");
        }
    } else {
        show_setting("  ", "save", cluster->nodes[0].save);
        show_setting("  ", "appendonly", cluster->nodes[0].appendonly);
    }
    printf("  multi-thread: %s\n", o->multi_thread ? "yes" : "no");
    if (o->multi_thread) printf("  threads: %lld\n", (long long)o->threads);
    putchar('\n');
}

/* Halves the remainder at each line: 0, 50, 75, 87.5 … 100. */
static void show_percentiles(const struct bench_report *report, const struct histogram *h) {
    int places = (int)report->options->precision;
    puts("Latency by percentile distribution:");
    double wanted = 0, left = 100;
    uint64_t seen = 0, shown = 0, top = 0;
    for (uint32_t i = 0; i < h->buckets && seen < h->count; i++) {
        if (h->counts[i] == 0) continue;
        seen += h->counts[i];
        top = histogram_bucket_top(h, i) < h->max ? histogram_bucket_top(h, i) : h->max;
        double reached = 100.0 * (double)seen / (double)h->count;
        if (reached < wanted || seen == shown) continue;
        printf("%.3f%% <= %.*f milliseconds (cumulative count %llu)\n", wanted, places, ms(top),
               (unsigned long long)seen);
        shown = seen;
        while (wanted <= reached && left > 1e-12) {
            left /= 2;
            wanted = 100 - left;
        }
    }
    printf("%.3f%% <= %.*f milliseconds (cumulative count %llu)\n", 100.0, places, ms(top), (unsigned long long)seen);
    putchar('\n');
}

/* In steps of 0.1 ms up to 2 ms, then of 1 ms; omits empty steps. */
static void show_cumulative(const struct bench_report *report, const struct histogram *h) {
    const uint64_t fine = 100 * 1000, coarse = 1000 * 1000, change = 2 * coarse;
    int places = (int)report->options->precision;
    puts("Cumulative distribution of latencies:");
    uint64_t shown = 0, seen = 0, step = fine;
    bool first = true;
    for (uint32_t i = 0; i < h->buckets && (first || seen < h->count);) {
        for (; i < h->buckets && histogram_bucket_top(h, i) <= step; i++) seen += h->counts[i];
        if (first || seen != shown) {
            printf("%.3f%% <= %.*f milliseconds (cumulative count %llu)\n", 100.0 * (double)seen / (double)h->count,
                   places, ms(step), (unsigned long long)seen);
        }
        first = false;
        shown = seen;
        step += step < change ? fine : coarse;
    }
    putchar('\n');
}

static void show_summary(const struct bench_report *report, const struct bench_result *result, double rps) {
    const struct histogram *h = result->latencies;
    int places = (int)report->options->precision;
    puts("Summary:");
    printf("  throughput summary: %.2f requests per second\n", rps);
    puts("  latency summary (msec):");
    printf("    %9s %9s %9s %9s %9s %9s\n", "avg", "min", "p50", "p95", "p99", "max");
    printf("    %9.*f %9.*f %9.*f %9.*f %9.*f %9.*f\n", places, ms(h->sum / h->count), places, ms(h->min), places,
           ms(histogram_percentile(h, 50)), places, ms(histogram_percentile(h, 95)), places,
           ms(histogram_percentile(h, 99)), places, ms(h->max));
}

void report_result(struct bench_report *report, const struct bench_result *result) {
    const struct histogram *h = result->latencies;
    double rps = result->seconds > 0 ? (double)h->count / result->seconds : 0;
    int places = (int)report->options->precision;
    report_clear_line(report);
    switch (report->options->output) {
    case OUTPUT_QUIET:
        printf("%s: %.2f requests per second, p50=%.*f msec\n", report->title, rps, places,
               ms(histogram_percentile(h, 50)));
        break;
    case OUTPUT_CSV:
        printf("\"%s\",\"%.2f\",\"%.*f\",\"%.*f\",\"%.*f\",\"%.*f\",\"%.*f\",\"%.*f\"\n", report->title, rps, places,
               ms(h->sum / h->count), places, ms(h->min), places, ms(histogram_percentile(h, 50)), places,
               ms(histogram_percentile(h, 95)), places, ms(histogram_percentile(h, 99)), places, ms(h->max));
        break;
    case OUTPUT_REPORT:
        show_head(report, result);
        show_percentiles(report, h);
        show_cumulative(report, h);
        show_summary(report, result, rps);
        putchar('\n');
    }
    fflush(stdout);
}
