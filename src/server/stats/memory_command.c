/* memory_command.c: MEMORY USAGE, STATS, DOCTOR, PURGE, MALLOC-STATS, HELP. */
#include "lib/system/memory.h"
#include "server/clients/client.h"
#include "server/cluster_hooks.h"
#include "server/command/command.h"
#include "server/command/help.h"
#include "server/command/spec.h"
#include "server/script_hooks.h"
#include "server/stats/memory_report.h"
#include <stdarg.h>
#include <stdio.h>
#ifdef USE_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

static void run_usage(struct call *call) {
    int64_t samples = 5;
    for (int i = 3; i < call->argc; i += 2) {
        if (!slice_is(call->argv[i], "samples") || i + 1 == call->argc) {
            reply_syntax_error(call->reply);
            return;
        }
        if (!argument_integer(call, i + 1, &samples)) return;
        if (samples < 0) {
            reply_syntax_error(call->reply);
            return;
        }
    }
    /* An expired key uses memory until it is deleted; this command does not delete it. */
    bool shown = store_settings.show_expired;
    store_settings.show_expired = true;
    struct entry *entry = db_find(call->db, call->argv[2], LOOKUP_NOTOUCH | LOOKUP_NOSTATS);
    store_settings.show_expired = shown;
    if (!entry)
        reply_null(call->reply);
    else
        reply_integer(call->reply, (int64_t)entry_memory(entry, db_id(call->db), samples ? (size_t)samples : SIZE_MAX));
}

/* --- STATS --- */

static size_t reply_databases(struct reply *reply) {
    size_t count = 0;
    for (int id = 0; id < keyspace_databases(server.keyspace); id++) {
        struct db *db = keyspace_db(server.keyspace, id);
        if (!db_size(db) && !db_keys_overhead(db)) continue;
        char name[32];
        snprintf(name, sizeof name, "db.%d", id);
        reply_bulk_text(reply, name);
        reply_map(reply, 2);
        reply_field_integer(reply, "overhead.hashtable.main", (int64_t)db_keys_overhead(db));
        reply_field_integer(reply, "overhead.hashtable.expires", (int64_t)db_expires_overhead(db));
        count++;
    }
    return count;
}
static void run_stats(struct call *call) {
    struct script_usage scripts;
    struct memory_report r;
    memory_report_make(&r);
    script_usage_read(&scripts);
    struct reply *reply = call->reply;
    struct reply_deferred deferred;
    reply_deferred_begin(reply, &deferred);
    reply_field_integer(reply, "peak.allocated", (int64_t)r.peak);
    reply_field_integer(reply, "total.allocated", (int64_t)r.used);
    reply_field_integer(reply, "startup.allocated", (int64_t)r.startup);
    reply_field_integer(reply, "replication.backlog", (int64_t)r.replication_backlog);
    reply_field_integer(reply, "replicas.repl.buffer", (int64_t)r.received_ahead);
    reply_field_integer(reply, "clients.slaves", (int64_t)r.clients_replicas);
    reply_field_integer(reply, "clients.normal", (int64_t)r.clients_normal);
    reply_field_integer(reply, "cluster.links", cluster_hooks ? (int64_t)cluster_hooks->link_memory() : 0);
    size_t imports = 0, exports = 0;
    if (cluster_hooks) cluster_hooks->migration_memory(&imports, &exports);
    reply_field_integer(reply, "cluster.slot_import", (int64_t)imports);
    reply_field_integer(reply, "cluster.slot_export", (int64_t)exports);
    reply_field_integer(reply, "aof.buffer", 0);
    reply_field_integer(reply, "lua.caches", (int64_t)scripts.scripts_bytes);
    reply_field_integer(reply, "functions.caches", (int64_t)scripts.functions_bytes);
    size_t databases = reply_databases(reply);
    reply_field_integer(reply, "overhead.db.hashtable.lut", (int64_t)r.tables);
    reply_field_integer(reply, "overhead.db.hashtable.rehashing", (int64_t)r.tables_rehashing);
    reply_field_integer(reply, "overhead.total", (int64_t)r.overhead);
    reply_field_integer(reply, "db.dict.rehashing.count", r.databases_rehashing);
    reply_field_integer(reply, "keys.count", (int64_t)r.keys);
    reply_field_integer(reply, "keys.bytes-per-key", (int64_t)r.bytes_per_key);
    reply_field_integer(reply, "dataset.bytes", (int64_t)r.dataset);
    reply_field_double(reply, "dataset.percentage", r.dataset_percent);
    reply_field_double(reply, "peak.percentage", r.peak_percent);
    reply_field_integer(reply, "allocator.allocated", (int64_t)r.allocator.allocated);
    reply_field_integer(reply, "allocator.active", (int64_t)r.allocator.active);
    reply_field_integer(reply, "allocator.resident", (int64_t)r.allocator.resident);
    reply_field_integer(reply, "allocator.muzzy", (int64_t)r.allocator.muzzy);
    reply_field_double(reply, "allocator-fragmentation.ratio", r.allocator_frag);
    reply_field_integer(reply, "allocator-fragmentation.bytes", r.allocator_frag_bytes);
    reply_field_double(reply, "allocator-rss.ratio", r.allocator_rss);
    reply_field_integer(reply, "allocator-rss.bytes", r.allocator_rss_bytes);
    reply_field_double(reply, "rss-overhead.ratio", r.rss_overhead);
    reply_field_integer(reply, "rss-overhead.bytes", r.rss_overhead_bytes);
    reply_field_double(reply, "fragmentation", r.fragmentation);
    reply_field_integer(reply, "fragmentation.bytes", r.fragmentation_bytes);
    reply_deferred_end(reply, &deferred, REPLY_MAP, 34 + databases);
}

/* --- DOCTOR --- */

enum { SMALL = 5 << 20 }; /* below this size the ratios mean nothing */
static void say(struct memory_output *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct memory_output *text, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    output_write(&text->out, (struct slice){line, (size_t)len < sizeof line ? (size_t)len : sizeof line - 1});
}
static int diagnose(struct memory_output *text, const struct memory_report *r, size_t clients) {
    int found = 0;
    if (r->used * 3 / 2 < r->peak) {
        found++;
        say(text,
            " * Past peak: at its peak the server used %.1f times as much as now. The allocator may hold on to pages "
            "of that time; "
            "MEMORY PURGE asks it to give them back.\n",
            (double)r->peak / (double)r->used);
    }
    if (r->fragmentation > 1.4 && r->fragmentation_bytes > (10 << 20)) {
        found++;
        say(text,
            " * Fragmentation: the process holds %.2f times the memory that is in use. The three figures below tell "
            "where it is.\n",
            r->fragmentation);
    }
    if (r->allocator_frag > 1.1 && r->allocator_frag_bytes > (10 << 20)) {
        found++;
        say(text, " * Inside the allocator: its pages are %.2f times what is allocated in them.\n", r->allocator_frag);
    }
    if (r->allocator_rss > 1.1 && r->allocator_rss_bytes > (10 << 20)) {
        found++;
        say(text,
            " * Kept by the allocator: it holds %.2f times the pages in use. MEMORY PURGE returns them to the "
            "system.\n",
            r->allocator_rss);
    }
    if (r->rss_overhead > 1.1 && r->rss_overhead_bytes > (10 << 20)) {
        found++;
        say(text, " * Outside the allocator: the process holds %.2f times what the allocator does.\n", r->rss_overhead);
    }
    if (clients && r->clients_normal / clients > 200 * 1024) {
        found++;
        say(text,
            " * Clients: a connection takes %zu bytes on average. CLIENT LIST shows which (tot-mem), "
            "client-output-buffer-limit bounds them.\n",
            r->clients_normal / clients);
    }
    return found;
}
static void run_doctor(struct call *call) {
    struct memory_report r;
    struct memory_output text = MEMORY_OUTPUT_INIT;
    memory_report_make(&r);
    if (r.used < SMALL)
        say(&text,
            "The server uses less than 5 megabytes. With so little data the figures tell nothing about health.\n");
    else if (!diagnose(&text, &r, clients_count()))
        say(&text, "No memory problem was found.\n");
    reply_verbatim(call->reply, "txt", memory_output_slice(&text));
    memory_output_free(&text);
}

/* --- other subcommands --- */

#ifdef USE_JEMALLOC
static void memory_collect(void *context, const char *text) {
    output_write(context, slice_of(text));
}
#endif
static void run_malloc_stats(struct call *call) {
#ifdef USE_JEMALLOC
    struct memory_output text = MEMORY_OUTPUT_INIT;
    malloc_stats_print(memory_collect, &text.out, NULL);
    reply_verbatim(call->reply, "txt", memory_output_slice(&text));
    memory_output_free(&text);
#else
    reply_bulk_text(call->reply, "Stats not supported for the current allocator");
#endif
}
static void run_purge(struct call *call) {
    mem_purge();
    reply_ok(call->reply);
}
#define REPORT_TIPS WORDS("nondeterministic_output", "request_policy:all_shards", "response_policy:special")
static const struct command_spec subcommands[] = {
    {COMMAND("doctor", run_doctor, 2, CMD_NO_DATA, .group = GROUP_SERVER, "4.0.0"), .complexity = "O(1)",
     .summary = "Returns a report about problems with memory, in sentences.", .tips = REPORT_TIPS},
    {HELP_ROW(help_handler, "DOCTOR", "    Report memory problems.", "MALLOC-STATS",
              "    Show the allocator's own statistics.", "PURGE", "    Ask the allocator to give unused pages back.",
              "STATS", "    Show the memory usage by purpose.", "USAGE <key> [SAMPLES <count>]",
              "    Tell how many bytes a key and its value take. Of a value with many parts",
              "    <count> are measured and the rest is estimated (default 5; 0: all)."),
     .group = GROUP_SERVER, .since = "4.0.0"},
    {COMMAND("malloc-stats", run_malloc_stats, 2, CMD_NO_DATA | CMD_LOADING, .group = GROUP_SERVER, "4.0.0"),
     .complexity = "Grows with the memory that is in use.", .summary = "Returns the allocator's own statistics.",
     .tips = REPORT_TIPS},
    {COMMAND("purge", run_purge, 2, CMD_NO_DATA | CMD_LOADING, .group = GROUP_SERVER, "4.0.0"),
     .complexity = "Grows with the memory that is in use.",
     .summary = "Asks the allocator to release unused memory to the operating system.",
     .tips = WORDS("request_policy:all_shards", "response_policy:all_succeeded")},
    {COMMAND("stats", run_stats, 2, CMD_SHOWS_DATA, .group = GROUP_SERVER, "4.0.0"), .complexity = "O(1)",
     .summary = "Returns how memory is used.", .tips = REPORT_TIPS},
    {COMMAND("usage", run_usage, -3, CMD_READONLY, .group = GROUP_SERVER, "4.0.0"),
     .complexity = "O(N) where N is how many parts of the value are measured.",
     .summary = "Returns the memory used by a key and its value, in bytes.",
     .syntax = "key:key [SAMPLES count:integer]",
     .keys = {{.flags = KEY_RO, .begin = BEGIN_INDEX, .index = 2, .find = FIND_RANGE, .a = 0, .b = 1}}},
    {.name = NULL}};
const struct command_spec memory_commands[] = {{.name = "memory",
                                                .arity = -2,
                                                .group = GROUP_SERVER,
                                                .since = "4.0.0",
                                                .complexity = "Depends on subcommand.",
                                                .summary = "A container for commands about memory.",
                                                .subcommands = subcommands},
                                               {.name = NULL}};
