/* metrics_text.c: converts INFO to the text exposition format of Prometheus.
 *
 * The format requires all samples of a metric to be adjacent, but a line of INFO has several fields of one command. So
 * each sample is written to a buffer, and the samples are sorted by name before they are output.
 *
 * INFO does not show which fields are counters. `kinds` lists them as patterns by section. */
#include "lib/system/memory.h"
#include "lib/text/glob.h"
#include "metrics/metrics.h"
#include <stdio.h>
#include <stdlib.h>

enum { PAIRS_MAX = 32 };

struct metrics_pair {
    struct slice key, value;
};
struct metrics_sample {
    size_t name_at, name_len, rest_len; /* in the buffer: the name, followed by labels, value and line end */
    struct slice section, field;        /* in the text of INFO */
    enum sample_type { SAMPLE_GAUGE, SAMPLE_COUNTER, SAMPLE_SUMMARY } type;
};
struct page {
    struct memory_output text;
    struct metrics_sample *samples;
    size_t count, capacity;
    struct slice section;
};

/* --- Kinds --- */

/* The first matching row decides. If none matches, the field is a gauge. */
static const struct {
    const char *section, *field;
    bool counter;
} kinds[] = {
    {"stats", "instantaneous_*", false},
    {"stats", "current_*", false},
    {"stats", "*_perc", false},
    {"stats", "latest_*", false},
    {"stats", "pubsub*", false},
    {"stats", "tracking_total_*", false},
    {"stats", "migrate_cached_sockets", false},
    {"stats", "slave_expires_tracked_keys", false},
    {"stats", "*", true},
    {"cpu", "*", true},
    {"commandstats", "usec_per_call", false},
    {"commandstats", "*", true},
    {"errorstats", "*", true},
    {"persistence", "rdb_saves", true},
    {"persistence", "aof_rewrites", true},
    {"memory", "lazyfreed_objects", true},
    {"rdma", "rdma_*_share", false},
    {"rdma", "rdma_*_per_*", false},
    {"rdma", "rdma_device_port", false},
    {"rdma", "rdma_mtu", false},
    {"rdma", "rdma_listeners*", false},
    {"rdma", "rdma_connections", false},
    {"rdma", "rdma_ring_connections", false},
    {"rdma", "rdma_polled_connections", false},
    {"rdma", "rdma_registered_*", false},
    {"rdma", "rdma_max_*", false},
    {"rdma", "rdma_unauthenticated_receive_bytes", false},
    {"rdma", "rdma_memory_regions", false},
    {"rdma", "rdma_queue_pairs", false},
    {"rdma", "rdma_read_windows", false},
    {"rdma", "rdma_shared_receive_queues", false},
    {"rdma", "*", true},
};
/* Fields with text that may look like a number. */
static const char *const texts[] = {"*_sha1",   "*_build_id", "run_id", "*_version",
                                    "*replid*", "*_serial",   "name",   "id"};

static bool is_counter(struct slice section, struct slice field) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (slice_is(section, kinds[i].section) && glob_match(slice_of(kinds[i].field), field, false))
            return kinds[i].counter;
    }
    return false;
}

/* --- Values --- */

/* The number in a field, in the syntax of Prometheus: "83.71%" becomes 83.71, "ok" and "up" become 1, "err", "fail" and
 * "down" 0. False: the field is text. */
static bool metrics_text_number_of(struct slice field, struct slice value, struct slice *number) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (glob_match(slice_of(texts[i]), field, false)) return false;
    *number = value;
    if (slice_is(value, "ok") || slice_is(value, "up")) return *number = SLICE("1"), true;
    if (slice_is(value, "err") || slice_is(value, "fail") || slice_is(value, "down")) return *number = SLICE("0"), true;
    if (number->len > 1 && number->data[number->len - 1] == '%') number->len--;
    if (!number->len || number->len > 32) return false;
    bool digit = false, point = false;
    for (size_t i = 0; i < number->len; i++) {
        char c = number->data[i];
        if (c >= '0' && c <= '9')
            digit = true;
        else if (c == '.' && !point)
            point = true;
        else if (c != '-' || i)
            return false;
    }
    return digit;
}

static bool slice_ends(struct slice text, const char *end) {
    size_t len = strlen(end);
    return text.len >= len && memcmp(text.data + text.len - len, end, len) == 0;
}

/* --- Samples --- */

static void metrics_text_put(struct page *page, const char *text) {
    output_write(&page->text.out, slice_of(text));
}
/* Replaces characters that are invalid in a name by '_'. */
static void name_write(struct page *page, struct slice name) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        bool valid = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        output_write(&page->text.out, valid ? slice_make(&name.data[i], 1) : SLICE("_"));
    }
}
/* Escapes a label value. Clients can choose some of them, such as names of errors that scripts return. */
static void value_write(struct page *page, struct slice value) {
    for (size_t i = 0; i < value.len; i++) {
        char c = value.data[i];
        if (c == '"' || c == '\\') metrics_text_put(page, "\\");
        output_write(&page->text.out, c >= ' ' && c < 127 ? slice_make(&value.data[i], 1) : SLICE("?"));
    }
}

/* The suffix _total is for counters, and _count for summaries: other metrics lose it. */
static void sample_begin(struct page *page, struct slice base, struct slice field, const char *end) {
    mem_grow(page->samples, page->count, page->capacity, 512);
    struct metrics_sample *sample = &page->samples[page->count++];
    bool counter = !*end && is_counter(page->section, field.len ? field : base);
    *sample = (struct metrics_sample){.name_at = memory_output_slice(&page->text).len,
                                      .section = page->section,
                                      .field = field.len ? field : base,
                                      .type = counter ? SAMPLE_COUNTER : SAMPLE_GAUGE};
    metrics_text_put(page, "valkey_");
    if (counter && !field.len && slice_starts(base, "total_")) base.data += 6, base.len -= 6;
    if (!counter && !field.len && slice_ends(base, "_total")) base.len -= 6;
    if (!counter && !field.len && slice_ends(base, "_count")) base.len -= 6;
    name_write(page, base);
    if (field.len) metrics_text_put(page, "_");
    name_write(page, field);
    metrics_text_put(page, end);
    if (counter && !slice_ends(memory_output_slice(&page->text), "_total")) metrics_text_put(page, "_total");
    sample->name_len = memory_output_slice(&page->text).len - sample->name_at;
}
static void label_write(struct page *page, struct slice key, struct slice value, bool first) {
    metrics_text_put(page, first ? "{" : ",");
    name_write(page, key);
    metrics_text_put(page, "=\"");
    value_write(page, value);
    metrics_text_put(page, "\"");
}
static void sample_end(struct page *page, bool labels, struct slice number) {
    struct metrics_sample *sample = &page->samples[page->count - 1];
    metrics_text_put(page, labels ? "} " : " ");
    output_write(&page->text.out, number);
    metrics_text_put(page, "\n");
    sample->rest_len = memory_output_slice(&page->text).len - sample->name_at - sample->name_len;
}

/* --- Rows --- */

/* Splits "k=v,k=v". Returns the number of pairs; 0: the value is not such a list. */
static int pairs_split(struct slice value, struct metrics_pair pairs[static PAIRS_MAX]) {
    int count = 0;
    while (value.len && count < PAIRS_MAX) {
        const char *comma = memchr(value.data, ',', value.len);
        size_t len = comma ? (size_t)(comma - value.data) : value.len;
        const char *sign = memchr(value.data, '=', len);
        if (!sign || sign == value.data) return 0;
        size_t key = (size_t)(sign - value.data);
        pairs[count++] = (struct metrics_pair){slice_make(value.data, key), slice_make(sign + 1, len - key - 1)};
        value = slice_make(value.data + len + (comma != NULL), value.len - len - (comma != NULL));
    }
    return count;
}

/* "cmdstat_get" is the base "cmdstat" with the label cmd="get"; "slave0" is "slave" with slave="0". */
static void base_split(struct slice name, struct slice *base, struct metrics_pair *label) {
    static const struct {
        const char *prefix, *label;
    } prefixes[] = {{"cmdstat_", "cmd"}, {"errorstat_", "error"}, {"latency_percentiles_usec_", "cmd"}};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t len = strlen(prefixes[i].prefix);
        if (!slice_starts(name, prefixes[i].prefix)) continue;
        *base = slice_make(name.data, len - 1);
        *label = (struct metrics_pair){slice_of(prefixes[i].label), slice_make(name.data + len, name.len - len)};
        return;
    }
    size_t len = name.len;
    while (len && name.data[len - 1] >= '0' && name.data[len - 1] <= '9') len--;
    *base = slice_make(name.data, len);
    if (len > 1 && name.data[len - 1] == '_') base->len--;
    *label = (struct metrics_pair){*base, slice_make(name.data + len, name.len - len)};
}

/* In a list, text and ports become labels of the other numbers. */
static bool is_label(const struct metrics_pair *pair) {
    struct slice number;
    return slice_is(pair->key, "port") || !metrics_text_number_of(pair->key, pair->value, &number);
}
/* A key that occurs several times, as the addresses of a listener do, becomes one label. */
static bool labels_write(struct page *page, const struct metrics_pair *label, const struct metrics_pair *pairs,
                         int count) {
    bool any = label->value.len > 0;
    if (any) label_write(page, label->key, label->value, true);
    for (int i = 0; i < count; i++) {
        bool again = !is_label(&pairs[i]) || slice_equal(pairs[i].key, label->key);
        for (int k = 0; k < i && !again; k++) again = slice_equal(pairs[k].key, pairs[i].key);
        if (again) continue;
        metrics_text_put(page, any ? "," : "{");
        name_write(page, pairs[i].key);
        metrics_text_put(page, "=\"");
        for (int k = i; k < count; k++) {
            if (!slice_equal(pairs[k].key, pairs[i].key)) continue;
            if (k > i) metrics_text_put(page, " ");
            value_write(page, pairs[k].value);
        }
        metrics_text_put(page, "\"");
        any = true;
    }
    return any;
}

static void list_row(struct page *page, struct slice name, const struct metrics_pair *pairs, int count) {
    struct slice base, number;
    struct metrics_pair label;
    bool any = false;
    base_split(name, &base, &label);
    for (int i = 0; i < count; i++) {
        if (is_label(&pairs[i]) || !metrics_text_number_of(pairs[i].key, pairs[i].value, &number)) continue;
        any = true;
        double percentile;
        if (slice_is(page->section, "latencystats") && pairs[i].key.len > 1 && pairs[i].key.data[0] == 'p') {
            char quantile[32];
            percentile = strtod(pairs[i].key.data + 1, NULL); /* ends at the '=' */
            snprintf(quantile, sizeof quantile, "%.10g", percentile / 100);
            sample_begin(page, base, slice_make(NULL, 0), "");
            page->samples[page->count - 1].type = SAMPLE_SUMMARY;
            label_write(page, label.key, label.value, true);
            label_write(page, SLICE("quantile"), slice_of(quantile), false);
            sample_end(page, true, number);
            continue;
        }
        sample_begin(page, base, pairs[i].key, "");
        sample_end(page, labels_write(page, &label, pairs, count), number);
    }
    if (any) return;
    sample_begin(page, base, slice_make(NULL, 0), "_info");
    sample_end(page, labels_write(page, &label, pairs, count), SLICE("1"));
}

/* Fields that count the kinds of one thing become one metric with a label, so that PromQL can sum over them. */
static void number_row(struct page *page, struct slice name, struct slice number) {
    static const struct {
        const char *prefix, *label, *other;
    } families[] = {{"rdma_errors_", "kind", ""}, {"rdma_refused_", "reason", "rdma_refused_connections"}};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        size_t len = strlen(families[i].prefix);
        if (!slice_starts(name, families[i].prefix) || slice_is(name, families[i].other)) continue;
        sample_begin(page, slice_make(name.data, len - 1), slice_make(NULL, 0), "");
        label_write(page, slice_of(families[i].label), slice_make(name.data + len, name.len - len), true);
        sample_end(page, true, number);
        return;
    }
    sample_begin(page, name, slice_make(NULL, 0), "");
    sample_end(page, false, number);
}

static void row(struct page *page, struct slice name, struct slice value) {
    struct slice number;
    struct metrics_pair pairs[PAIRS_MAX];
    if (!name.len || !value.len || slice_ends(name, "_human")) return;
    if (metrics_text_number_of(name, value, &number)) {
        number_row(page, name, number);
        return;
    }
    int count = pairs_split(value, pairs);
    if (count) {
        list_row(page, name, pairs, count);
        return;
    }
    sample_begin(page, name, slice_make(NULL, 0), "_info");
    label_write(page, SLICE("value"), value, true);
    sample_end(page, true, SLICE("1"));
}

/* --- The page --- */

static const char *sorted_text; /* the buffer of the samples that are sorted, since qsort() passes no context */
static int sample_compare(const void *a, const void *b) {
    const struct metrics_sample *x = a, *y = b;
    size_t shorter = x->name_len < y->name_len ? x->name_len : y->name_len;
    int order = memcmp(sorted_text + x->name_at, sorted_text + y->name_at, shorter);
    if (order) return order;
    if (x->name_len != y->name_len) return x->name_len < y->name_len ? -1 : 1;
    return x->name_at < y->name_at ? -1 : x->name_at > y->name_at;
}

static void write_lower(struct output *out, struct slice text) {
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c >= 'A' && c <= 'Z') c = (char)(c + 'a' - 'A');
        output_write(out, slice_make(&c, 1));
    }
}
static void page_write(const struct page *page, struct output *out) {
    static const char *const types[] = {
        [SAMPLE_GAUGE] = " gauge\n", [SAMPLE_COUNTER] = " counter\n", [SAMPLE_SUMMARY] = " summary\n"};
    const char *text = memory_output_slice(&page->text).data;
    const struct metrics_sample *before = NULL;
    for (size_t i = 0; i < page->count; i++) {
        const struct metrics_sample *sample = &page->samples[i];
        struct slice name = slice_make(text + sample->name_at, sample->name_len);
        if (!before || !slice_equal(name, slice_make(text + before->name_at, before->name_len))) {
            output_write(out, SLICE("# HELP "));
            output_write(out, name);
            output_write(out, SLICE(" The field "));
            output_write(out, sample->field);
            output_write(out, SLICE(" of INFO "));
            write_lower(out, sample->section);
            output_write(out, SLICE("\n# TYPE "));
            output_write(out, name);
            output_write(out, slice_of(types[sample->type]));
        }
        output_write(out, slice_make(text + sample->name_at, sample->name_len + sample->rest_len));
        before = sample;
    }
}

void metrics_write(struct output *out, struct slice info) {
    struct page page = {.section = SLICE("")};
    memory_output_init(&page.text);
    while (info.len) {
        struct slice line = slice_take_line(&info);
        if (line.len && line.data[line.len - 1] == '\r') line.len--;
        if (line.len > 2 && line.data[0] == '#') {
            page.section = slice_make(line.data + 2, line.len - 2);
            continue;
        }
        const char *colon = line.len ? memchr(line.data, ':', line.len) : NULL;
        if (!colon) continue;
        size_t name = (size_t)(colon - line.data);
        row(&page, slice_make(line.data, name), slice_make(colon + 1, line.len - name - 1));
    }
    sorted_text = memory_output_slice(&page.text).data;
    if (page.count) qsort(page.samples, page.count, sizeof *page.samples, sample_compare);
    page_write(&page, out);
    mem_free(page.samples);
    memory_output_free(&page.text);
}
