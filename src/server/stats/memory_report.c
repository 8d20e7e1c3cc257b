/* memory_report.c: collects the memory statistics.
 *
 * The cron samples the bytes in use to find the peak; it misses a peak between two samples, but counting on each
 * allocation would cost more. Everything else is read on request; the allocator and the kernel, whose figures cost more
 * than all of INFO, are asked again after 100 ms. */
#include "lib/system/clock.h"
#include "server/clients/client.h"
#include "server/feature.h"
#include "server/server.h"
#include "server/repl_hooks.h"
#include "server/script_hooks.h"
#include "server/stats/memory_report.h"

static size_t peak, startup;

static void look(void) {
    size_t used = mem_used();
    if (used > peak) peak = used;
}
static void memory_report_start(void) {
    startup = peak = mem_used();
}
static const struct server_part memory_report_part = {.name = "memory", .start = memory_report_start, .cron = look};

static void read_allocator(struct mem_stats *stats) {
    enum { AGE_US = 100000 };
    static struct mem_stats read;
    static uint64_t read_us;
    uint64_t now = clock_mono();
    if (!read_us || now - read_us > AGE_US) {
        mem_read_stats(&read);
        read_us = now;
    }
    *stats = read;
}

static double ratio(size_t a, size_t b) {
    return b ? (double)a / (double)b : 0;
}
static int64_t difference(size_t a, size_t b) {
    return (int64_t)a - (int64_t)b;
}

static void add_databases(struct memory_report *report) {
    for (int id = 0; id < keyspace_databases(server.keyspace); id++) {
        struct db *db = keyspace_db(server.keyspace, id);
        report->keys += db_size(db);
        report->tables += db_keys_overhead(db) + db_expires_overhead(db);
        report->databases_rehashing += db_rehashing(db);
        report->tables_rehashing += db_rehashing_memory(db);
    }
}
static void add_clients(struct memory_report *report) {
    list_each_entry(clients_all(), const struct client, link, client) {
        if (client->flags & CLIENT_REPLICA)
            report->clients_replicas += client_memory(client);
        else
            report->clients_normal += client_memory(client);
    }
}

void memory_report_make(struct memory_report *report) {
    *report = (struct memory_report){0};
    look();
    read_allocator(&report->allocator);
    report->used = mem_used();
    report->peak = peak > report->used ? peak : report->used;
    report->startup = startup;
    add_clients(report);
    add_databases(report);
    if (repl_hooks) repl_hooks->report_memory(report);
    struct script_usage scripts;
    script_usage_read(&scripts);
    report->overhead = report->startup + scripts.scripts_bytes + scripts.functions_bytes + report->clients_normal +
                       report->clients_replicas + report->tables + report->replication_backlog + report->received_ahead;
    report->dataset = report->used > report->overhead ? report->used - report->overhead : 0;
    size_t since_start = report->used > report->startup ? report->used - report->startup : 0;
    report->bytes_per_key = report->keys ? since_start / report->keys : 0;
    report->dataset_percent = since_start ? ratio(report->dataset, since_start) * 100 : 0;
    if (report->dataset_percent > 100) report->dataset_percent = 100;
    report->peak_percent = ratio(report->used, report->peak) * 100;
    const struct mem_stats *a = &report->allocator;
    report->allocator_frag = ratio(a->active, a->allocated);
    report->allocator_frag_bytes = difference(a->active, a->allocated);
    report->allocator_rss = ratio(a->resident, a->active);
    report->allocator_rss_bytes = difference(a->resident, a->active);
    report->rss_overhead = ratio(a->rss, a->resident);
    report->rss_overhead_bytes = difference(a->rss, a->resident);
    report->fragmentation = ratio(a->rss, report->used);
    report->fragmentation_bytes = difference(a->rss, report->used);
}

const struct feature memory_feature = {
    .name = "memory", .commands = COMMANDS(memory_commands), .parts = PARTS(&memory_report_part)};
