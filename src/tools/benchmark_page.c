/* benchmark_page.c: the page of --report.
 *
 * benchmark_page.html is the page without data: layout, styles and the script that draws the charts. The build makes it
 * a constant of this program. The program writes the data of a run as one block at a mark in the page:
 *
 *   <script type="application/json" class="run">{"label": …}</script>
 *
 * --report-add copies the blocks of the existing file without parsing them, so the program needs no JSON parser, and
 * the page gets the layout of this version. A block has
 *
 *   label, date (ISO 8601, UTC), command, tool, transport, target; clients, pipeline, size (bytes of a value), threads
 *   (0: one, not asked for), rps (0: no limit)
 *   baseline  the label of the run that the others are compared with; missing: the slowest
 *   machine   of the client: host, cpu, cpus, memory (bytes), kernel
 *   server    version, settings; empty texts: unknown
 *   tests     a list of objects: title, requests, seconds; min, max and mean latency in nanoseconds;
 *     percentiles  [[f, ns] …]: a fraction f of the requests took longer than ns nanoseconds; f falls
 *     histogram    [[i, n] …]: n requests took 10^(i/24) to 10^((i+1)/24) nanoseconds; i grows
 *     samples      [[seconds, requests, ns] …]: requests done by then, and the sum of their latencies
 *
 * After each test the page is written to a temporary file, which then replaces the file. So a reader never sees an
 * incomplete page, and an interrupted run leaves a page with the finished tests. */
#include "lib/system/memory.h"
#include "lib/system/version.h"
#include "tools/benchmark.h"
#include "tools/session.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

extern const char benchmark_page_html[]; /* made from benchmark_page.html */

static const char runs_mark[] = "<!-- runs -->\n";
static const char generator_mark[] = "<meta name=\"generator\" content=\"valkey-benchmark --report\">";
static const char block_begin[] = "<script type=\"application/json\" class=\"run\">";
static const char block_end[] = "</script>\n";
enum { BUCKETS_PER_DECADE = 24, PAGE_MAX = 256 * 1024 * 1024 };

struct bench_page {
    const struct bench_options *options;
    char *temporary;                                  /* path of the file being written */
    struct memory_output earlier, head, tests, block; /* runs of the existing page; this run: its parts, and all */
    int tests_count;
};

static void benchmark_page_fail(const char *what, const char *path, const char *why) {
    fprintf(stderr, "%s %s: %s\n", what, path, why);
    exit(1);
}

/* --- JSON --- */

__attribute__((format(printf, 2, 3))) static void print(struct output *out, const char *format, ...) {
    char *space = output_reserve(out, 256);
    va_list args;
    va_start(args, format);
    int len = vsnprintf(space, 256, format, args);
    va_end(args);
    output_commit(out, len < 256 ? (size_t)len : 255);
}

/* Length of the UTF-8 character at `at`, or 0. Overlong forms and surrogates are not characters. */
static size_t character_len(const unsigned char *at) {
    if (at[0] < 0x80) return 1;
    size_t len = at[0] >= 0xc2 && at[0] < 0xe0   ? 2
                 : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
                 : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                                 : 0;
    for (size_t i = 1; i < len; i++)
        if ((at[i] & 0xc0) != 0x80) return 0; /* also the NUL at the end */
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0)) return 0;
    if ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90)) return 0;
    return len;
}

/* A JSON string. '<' is escaped, since "</script>" would end the block. */
static void print_text(struct output *out, const char *text) {
    print(out, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t len = character_len(at);
        if (len == 0)
            print(out, "\\ufffd");
        else if (len == 1 && (*at < ' ' || *at == '"' || *at == '\\' || *at == '<' || *at == 0x7f))
            print(out, "\\u%04x", *at);
        else
            output_write(out, slice_make((const char *)at, len));
        at += len ? len : 1;
    }
    print(out, "\"");
}

static void print_member(struct output *out, const char *name, const char *text) {
    print(out, "\"%s\":", name);
    print_text(out, text);
    print(out, ",");
}

/* --- The description of a run --- */

static void cpu_name(char *text, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[512];
    *text = 0;
    while (file && !*text && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (!value || (strncmp(line, "model name", 10) != 0 && strncmp(line, "Model", 5) != 0)) continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = 0;
        snprintf(text, size, "%s", value);
    }
    if (file) fclose(file);
}

static void print_machine(struct output *out) {
    struct utsname system;
    char cpu[256], kernel[300];
    cpu_name(cpu, sizeof cpu);
    if (uname(&system) != 0) memset(&system, 0, sizeof system);
    snprintf(kernel, sizeof kernel, "%s %s", system.sysname, system.release);
    print(out, "\"machine\":{");
    print_member(out, "host", system.nodename);
    print_member(out, "cpu", *cpu ? cpu : system.machine);
    print_member(out, "kernel", kernel);
    print(out, "\"cpus\":%ld,\"memory\":%lld},", sysconf(_SC_NPROCESSORS_ONLN),
          (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
}

/* The value of a field of INFO: "name:value\r\n". */
static bool info_value(const char *info, const char *name, char *text, size_t size) {
    size_t len = strlen(name);
    for (const char *line = info; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) != 0 || line[len] != ':') continue;
        snprintf(text, size, "%.*s", (int)strcspn(line + len + 1, "\r\n"), line + len + 1);
        return true;
    }
    return false;
}

static void print_server(struct output *out, const struct bench_options *o, const struct bench_cluster *cluster) {
    char version[128] = "", name[64], number[64], settings[512] = "", threads[32] = "";
    const struct bench_node *node = &cluster->nodes[0];
    struct session s;
    session_init(&s);
    if (session_connect(&s, &o->endpoint, 0) == 0 && session_authenticate(&s, &o->endpoint)) {
        const struct resp_value *reply = SESSION_CALL(&s, "INFO", "server");
        if (reply && reply->type != RESP_ERROR && reply->text.data) {
            const char *info = reply->text.data;
            if (info_value(info, "valkey_version", number, sizeof number)) {
                if (!info_value(info, "server_name", name, sizeof name)) snprintf(name, sizeof name, "valkey");
                snprintf(version, sizeof version, "%s %s", name, number);
            } else if (info_value(info, "redis_version", number, sizeof number)) {
                snprintf(version, sizeof version, "redis %s", number);
            }
        }
        reply = SESSION_CALL(&s, "CONFIG", "GET", "io-threads");
        const struct resp_value *value = reply ? resp_value_get(reply, "io-threads") : NULL;
        if (value && value->text.data) snprintf(threads, sizeof threads, "io-threads %s, ", value->text.data);
    }
    session_free(&s);
    if (node->save)
        snprintf(settings, sizeof settings, "%ssave \"%s\", appendonly %s%s", threads, node->save,
                 node->appendonly ? node->appendonly : "unknown", o->cluster ? ", cluster" : "");
    print(out, "\"server\":{");
    print_member(out, "version", version);
    print(out, "\"settings\":");
    print_text(out, settings);
    print(out, "},");
}

static void head_write(struct bench_page *page, const struct bench_cluster *cluster) {
    const struct bench_options *o = page->options;
    struct output *out = &page->head.out;
    char text[256];
    time_t now = time(NULL);
    struct tm utc;
    endpoint_format_transport(&o->endpoint, text, sizeof text);
    print_member(out, "label", o->report_label ? o->report_label : text);
    print_member(out, "transport", text);
    if (o->report_baseline) print_member(out, "baseline", o->report_baseline);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    print_member(out, "date", text);
    print_member(out, "command", o->command_line);
    print_member(out, "tool", "valkey-benchmark " PROJECT_VERSION);
    endpoint_format(&o->endpoint, text, sizeof text);
    print_member(out, "target", text);
    print(out, "\"clients\":%lld,\"pipeline\":%lld,\"size\":%lld,\"threads\":%lld,\"rps\":%lld,", (long long)o->clients,
          (long long)o->pipeline, (long long)o->data_size, o->multi_thread ? (long long)o->threads : 0,
          (long long)o->rps);
    print_machine(out);
    print_server(out, o, cluster);
}

/* --- A test --- */

/* Includes the usual percentiles: 50, 75, 90, 95, 99, 99.5, 99.9 … */
static void print_percentiles(struct output *out, const struct histogram *h) {
    static const double steps[] = {1, .8, .65, .5, .4, .3, .25, .2, .15};
    double decade = 1;
    print(out, "\"percentiles\":[");
    for (; decade * (double)h->count >= 1; decade /= 10) {
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            double left = decade * steps[i];
            if (left * (double)h->count < 1) break;
            uint64_t ns = left == 1 ? h->min : histogram_percentile(h, 100 * (1 - left));
            print(out, "%s[%.6g,%llu]", left == 1 ? "" : ",", left, (unsigned long long)ns);
        }
    }
    print(out, "],");
}

static void print_histogram(struct output *out, const struct histogram *h) {
    int bucket = 0;
    uint64_t count = 0;
    const char *separator = "";
    print(out, "\"histogram\":[");
    for (uint32_t i = 0; i < h->buckets; i++) {
        if (h->counts[i] == 0) continue;
        uint64_t top = histogram_bucket_top(h, i);
        int at = top > 1 ? (int)floor(log10((double)top) * BUCKETS_PER_DECADE) : 0;
        if (at != bucket && count) {
            print(out, "%s[%d,%llu]", separator, bucket, (unsigned long long)count);
            separator = ",";
            count = 0;
        }
        bucket = at;
        count += h->counts[i];
    }
    print(out, "%s[%d,%llu]],", separator, bucket, (unsigned long long)count);
}

static void print_samples(struct output *out, const struct bench_series *series) {
    print(out, "\"samples\":[");
    for (int i = 0; i < series->count; i++) {
        const struct bench_sample *sample = &series->samples[i];
        print(out, "%s[%.6f,%llu,%llu]", i ? "," : "", sample->seconds, (unsigned long long)sample->done,
              (unsigned long long)sample->latency_ns);
    }
    print(out, "]");
}

static void test_write(struct output *out, const char *title, const struct bench_result *result) {
    const struct histogram *h = result->latencies;
    print(out, "{");
    print_member(out, "title", title);
    print(out, "\"requests\":%llu,\"seconds\":%.9f,", (unsigned long long)h->count, result->seconds);
    print(out, "\"min\":%llu,\"max\":%llu,\"mean\":%llu,", (unsigned long long)(h->count ? h->min : 0),
          (unsigned long long)h->max, (unsigned long long)(h->count ? h->sum / h->count : 0));
    print_percentiles(out, h);
    print_histogram(out, h);
    print_samples(out, &result->series);
    print(out, "}");
}

/* --- The file --- */

static void earlier_read(struct bench_page *page, const char *path) {
    FILE *file = fopen(path, "re");
    if (!file && errno == ENOENT) return;
    struct stat status;
    if (!file || fstat(fileno(file), &status) < 0) benchmark_page_fail("Cannot read", path, strerror(errno));
    if (!S_ISREG(status.st_mode) || status.st_size > PAGE_MAX)
        benchmark_page_fail("Cannot add to", path, "not a report");
    size_t size = (size_t)status.st_size;
    char *text = mem_alloc(size + 1);
    size_t got = fread(text, 1, size, file);
    text[got] = 0;
    fclose(file);
    if (got == 0) {
        mem_free(text);
        return;
    }
    const char *at = strstr(text, runs_mark);
    if (!strstr(text, generator_mark) || !at)
        benchmark_page_fail("Cannot add to", path, "not a report of valkey-benchmark");
    while ((at = strstr(at, block_begin))) {
        const char *end = strstr(at, block_end);
        if (!end) benchmark_page_fail("Cannot add to", path, "the last run in it is not complete");
        end += sizeof block_end - 1;
        output_write(&page->earlier.out, slice_make(at, (size_t)(end - at)));
        at = end;
    }
    mem_free(text);
}

static bool bytes_write(FILE *file, struct slice bytes) {
    return bytes.len == 0 || fwrite(bytes.data, 1, bytes.len, file) == bytes.len;
}

static void file_write(struct bench_page *page) {
    const char *path = page->options->report_file;
    const char *mark = strstr(benchmark_page_html, runs_mark);
    size_t before = (size_t)(mark - benchmark_page_html) + sizeof runs_mark - 1;
    FILE *file = fopen(page->temporary, "we");
    bool written = file && bytes_write(file, slice_make(benchmark_page_html, before)) &&
                   bytes_write(file, memory_output_slice(&page->earlier)) &&
                   (page->tests_count == 0 || bytes_write(file, memory_output_slice(&page->block))) &&
                   bytes_write(file, slice_of(benchmark_page_html + before));
    int error = errno;
    if (file && fclose(file) != 0 && written) {
        written = false;
        error = errno;
    }
    if (written && rename(page->temporary, path) < 0) {
        written = false;
        error = errno;
    }
    if (written) return;
    if (file) unlink(page->temporary);
    benchmark_page_fail("Cannot write", path, strerror(error));
}

struct bench_page *page_open(const struct bench_options *o, const struct bench_cluster *cluster) {
    struct bench_page *page = mem_calloc(1, sizeof *page);
    size_t len = strlen(o->report_file) + 32;
    page->options = o;
    page->temporary = mem_alloc(len);
    snprintf(page->temporary, len, "%s.%ld.tmp", o->report_file, (long)getpid());
    memory_output_init(&page->earlier);
    memory_output_init(&page->head);
    memory_output_init(&page->tests);
    memory_output_init(&page->block);
    if (o->report_add) earlier_read(page, o->report_file);
    head_write(page, cluster);
    file_write(page); /* now, so that a path that cannot be written fails before the run, not after it */
    return page;
}

void page_add(struct bench_page *page, const char *title, const struct bench_result *result) {
    if (result->latencies->count == 0) return;
    if (page->tests_count++) output_write(&page->tests.out, SLICE(",\n"));
    test_write(&page->tests.out, title, result);
    struct output *out = &page->block.out;
    memory_output_clear(&page->block);
    output_write(out, slice_of(block_begin));
    output_write(out, SLICE("{"));
    output_write(out, memory_output_slice(&page->head));
    output_write(out, SLICE("\"tests\":[\n"));
    output_write(out, memory_output_slice(&page->tests));
    output_write(out, SLICE("]}"));
    output_write(out, slice_of(block_end));
    file_write(page);
}

void page_close(struct bench_page *page) {
    if (!page) return;
    memory_output_free(&page->earlier);
    memory_output_free(&page->head);
    memory_output_free(&page->tests);
    memory_output_free(&page->block);
    mem_free(page->temporary);
    mem_free(page);
}
