/* check_rdb_stats.c: see check_rdb_stats.h.
 *
 * An element is a string, an element of a list, a member of a set, a field with its value, an entry of a stream, or a
 * member of a sorted set with its score. As in Valkey's tool, a member and its score in a listpack count as two
 * elements of one size, and an entry of a stream counts as one element, but each of its fields has a size. */
#include "tools/check_rdb_stats.h"
#include "lib/structures/histogram.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/set.h"
#include "store/stream.h"
#include "store/zset.h"
#include <string.h>

enum { COLUMNS = 7, COLUMN_MODULE = 5, COLUMN_STREAM = 6, HISTOGRAM_BITS = 10, DATABASES_MAX = 1 << 16 };
static const char *const column_names[COLUMNS] = {"string", "list", "set", "zset", "hash", "module", "stream"};
#define HISTOGRAM_HIGHEST (UINT64_C(1) << 40)

struct column {
    uint64_t keys, expires, expired, key_bytes, elements, element_bytes, most, largest;
    struct histogram *counts, *sizes; /* NULL: no key yet */
};
struct check_rdb_stats {
    size_t databases;
    struct column (*columns)[COLUMNS]; /* one for each database */
};

static void columns_add(struct check_rdb_stats *stats, size_t databases) {
    size_t old = stats->databases;
    stats->columns = mem_realloc(stats->columns, databases * sizeof *stats->columns);
    memset(stats->columns + old, 0, (databases - old) * sizeof *stats->columns);
    stats->databases = databases;
}

struct check_rdb_stats *check_rdb_stats_new(void) {
    struct check_rdb_stats *stats = mem_calloc(1, sizeof *stats);
    columns_add(stats, 1); /* a file without keys has statistics of database 0 */
    return stats;
}
void check_rdb_stats_free(struct check_rdb_stats *stats) {
    for (size_t db = 0; db < stats->databases; db++)
        for (int i = 0; i < COLUMNS; i++) {
            if (stats->columns[db][i].counts) histogram_free(stats->columns[db][i].counts);
            if (stats->columns[db][i].sizes) histogram_free(stats->columns[db][i].sizes);
        }
    mem_free(stats->columns);
    mem_free(stats);
}

/* --- Counting --- */

static void add_element(struct column *column, uint64_t bytes, uint64_t *count) {
    ++*count;
    column->element_bytes += bytes;
    if (bytes > column->largest) column->largest = bytes;
    histogram_record(column->sizes, bytes, 1);
}
static size_t value_bytes(const struct listpack_value *value) {
    char text[LISTPACK_TEXT];
    return listpack_value_text(value, text).len;
}

static uint64_t add_list(struct column *column, const struct entry *entry) {
    struct list_type_iterator it;
    struct list_type_element element;
    uint64_t count = 0;
    for (list_type_iterate(&it, entry, 0, false); list_type_next(&it, &element);)
        add_element(column, element.blob ? element.blob->len : value_bytes(&element.value), &count);
    list_type_iterate_end(&it);
    return count;
}
static uint64_t add_set(struct column *column, const struct entry *entry) {
    struct set set = set_of(entry);
    struct set_iterator it;
    struct listpack_value member;
    uint64_t count = 0;
    for (set_iterate(&it, &set); set_next(&it, &member);) add_element(column, value_bytes(&member), &count);
    set_iterate_end(&it);
    return count;
}
static uint64_t add_zset(struct column *column, const struct entry *entry) {
    struct zset zset = zset_of(entry);
    struct zset_iterator it;
    struct zset_item item;
    uint64_t count = 0;
    if (zset.encoding == ENCODING_LISTPACK) {
        for (uint8_t *at = listpack_first(zset.value); at; at = listpack_next(zset.value, at)) {
            struct listpack_value member = listpack_get(at), score = listpack_get(at = listpack_next(zset.value, at));
            add_element(column, value_bytes(&member) + value_bytes(&score), &count);
        }
        return 2 * count;
    }
    for (zset_iterate(&it, &zset, 0, false); zset_next(&it, &item);) {
        char text[40];
        add_element(column, value_bytes(&item.member) + format_double(text, item.score), &count);
    }
    return count;
}
static uint64_t add_hash(struct column *column, const struct entry *entry) {
    struct hash_iterator it;
    struct hash_item item;
    uint64_t count = 0;
    for (hash_iterate_all(&it, entry); hash_next(&it, &item);)
        add_element(column, item.field.len + item.value.bytes.len, &count);
    hash_iterate_end(&it);
    return count;
}
static uint64_t add_stream(struct column *column, const struct entry *entry) {
    struct stream_iterator it;
    struct stream_id id;
    size_t fields;
    uint64_t count = 0, pairs = 0;
    for (stream_iterate(&it, stream_of(entry), STREAM_ID_MIN, STREAM_ID_MAX, false); stream_next(&it, &id, &fields);) {
        for (struct slice field, value; fields--; add_element(column, field.len + value.len, &pairs))
            stream_field(&it, &field, &value);
        count++;
    }
    stream_iterate_end(&it);
    return count;
}

/* NULL: too many databases. */
static struct column *column_of(struct check_rdb_stats *stats, uint64_t database, int index) {
    if (database >= DATABASES_MAX) return NULL;
    if (database >= stats->databases) columns_add(stats, (size_t)database + 1);
    struct column *column = &stats->columns[database][index];
    if (!column->counts) {
        column->counts = histogram_new(HISTOGRAM_BITS, HISTOGRAM_HIGHEST);
        column->sizes = histogram_new(HISTOGRAM_BITS, HISTOGRAM_HIGHEST);
    }
    return column;
}

static void add_key(struct column *column, size_t key_len, uint64_t count, bool expires, bool expired) {
    column->keys++;
    column->expires += expires;
    column->expired += expired;
    column->key_bytes += key_len;
    column->elements += count;
    if (count > column->most) column->most = count;
    histogram_record(column->counts, count, 1);
}

void check_rdb_stats_add_module(struct check_rdb_stats *stats, uint64_t database, size_t key_len, uint64_t bytes,
                                bool expires, bool expired) {
    struct column *column = column_of(stats, database, COLUMN_MODULE);
    uint64_t count = 0;
    if (!column) return;
    add_element(column, bytes, &count);
    add_key(column, key_len, count, expires, expired);
}

void check_rdb_stats_add(struct check_rdb_stats *stats, uint64_t database, const struct entry *entry, bool expires,
                         bool expired) {
    enum value_type type = entry_type(entry);
    struct column *column = column_of(stats, database, type == TYPE_STREAM ? COLUMN_STREAM : (int)type);
    uint64_t count = 0;
    if (!column) return;
    switch (type) {
    case TYPE_LIST: count = add_list(column, entry); break;
    case TYPE_SET: count = add_set(column, entry); break;
    case TYPE_ZSET: count = add_zset(column, entry); break;
    case TYPE_HASH: count = add_hash(column, entry); break;
    case TYPE_STREAM: count = add_stream(column, entry); break;
    default: add_element(column, entry_string_len(entry), &count);
    }
    add_key(column, entry_key(entry).len, count, expires, expired);
}

/* --- Printing --- */

/* Valkey's tool rounds averages to a float before it prints two decimals. */
static double average(uint64_t sum, uint64_t count) {
    return count ? (double)(float)((double)sum / (double)count) : 0;
}
/* The upper bound of the histogram's bucket, as Valkey's tool prints it. */
static double percentile(const struct histogram *histogram, double percent) {
    if (!histogram) return 0;
    return (double)histogram_bucket_top(histogram,
                                        histogram_bucket(histogram, histogram_percentile(histogram, percent)));
}

/* Metrics, in the order in which they are printed. */
static const struct rdb_metric {
    const char *name;
    bool decimals; /* printed with two */
} metrics[] = {{"keys.total", false},        {"expire_keys.total", false}, {"already_expired.total", false},
               {"keys.size", false},         {"keys.value_size", false},   {"elements.total", false},
               {"elements.size", false},     {"elements.num.max", false},  {"elements.num.avg", true},
               {"elements.num.p99", true},   {"elements.num.p90", true},   {"elements.num.p50", true},
               {"elements.size.max", false}, {"elements.size.avg", true},  {"elements.size.p99", true},
               {"elements.size.p90", true},  {"elements.size.p50", true}};
enum { METRICS = sizeof metrics / sizeof *metrics };

static double metric_value(const struct column *c, size_t metric) {
    const double values[METRICS] = {(double)c->keys,
                                    (double)c->expires,
                                    (double)c->expired,
                                    (double)c->key_bytes,
                                    (double)c->element_bytes,
                                    (double)c->elements,
                                    (double)c->element_bytes,
                                    (double)c->most,
                                    average(c->elements, c->keys),
                                    percentile(c->counts, 99),
                                    percentile(c->counts, 90),
                                    percentile(c->counts, 50),
                                    (double)c->largest,
                                    average(c->element_bytes, c->elements),
                                    percentile(c->sizes, 99),
                                    percentile(c->sizes, 90),
                                    percentile(c->sizes, 50)};
    return values[metric];
}

static void print_row(FILE *output, enum check_rdb_format format, size_t db, const char *name,
                      const char cells[COLUMNS][32]) {
    char label[64];
    snprintf(label, sizeof label, "db.%zu.%s", db, name);
    fprintf(output, format == CHECK_RDB_CSV ? "%s" : "%-30s", label);
    for (int i = 0; i < COLUMNS; i++) fprintf(output, format == CHECK_RDB_CSV ? ",%s" : "\t%-5s", cells[i]);
    fprintf(output, "\n");
}

static void print_db(const struct check_rdb_stats *stats, size_t db, enum check_rdb_format format, FILE *output) {
    char cells[COLUMNS][32];
    for (int i = 0; i < COLUMNS; i++) snprintf(cells[i], sizeof cells[i], "%s", column_names[i]);
    if (format != CHECK_RDB_INFO) print_row(output, format, db, "type.name", (const char(*)[32])cells);
    for (size_t m = 0; m < METRICS; m++) {
        for (int i = 0; i < COLUMNS; i++)
            snprintf(cells[i], sizeof cells[i], "%.*f", metrics[m].decimals ? 2 : 0,
                     metric_value(&stats->columns[db][i], m));
        if (format != CHECK_RDB_INFO) {
            print_row(output, format, db, metrics[m].name, (const char(*)[32])cells);
            continue;
        }
        for (int i = 0; i < COLUMNS; i++)
            fprintf(output, "[info] db.%zu.type.%s.%s:%s\n", db, column_names[i], metrics[m].name, cells[i]);
    }
}

void check_rdb_stats_print(const struct check_rdb_stats *stats, enum check_rdb_format format, FILE *output) {
    for (size_t db = 0; db < stats->databases; db++) print_db(stats, db, format, output);
}
