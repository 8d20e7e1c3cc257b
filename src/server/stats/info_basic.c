/* info_basic.c: INFO, its sections of the store (memory, keyspace) and of features that are not in this build
 * (modules). A change that adds a feature registers its section and removes the one here. */
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/clients/reply_barrier.h"
#include "server/cluster_hooks.h"
#include "server/command/command.h"
#include "server/command/spec.h"
#include "server/config/settings.h"
#include "server/defrag.h"
#include "server/feature.h"
#include "server/script_hooks.h"
#include "server/server.h"
#include "server/stats/info.h"
#include "server/stats/memory_report.h"
#include "server/uncounted_memory.h"

static void line_bytes(struct output *out, const char *name, uint64_t bytes) {
    char human[33];
    size_t len = format_bytes_human(human, bytes);
    info_line(out, "%s:%llu", name, (unsigned long long)bytes);
    info_line(out, "%s_human:%.*s", name, (int)len, human);
}
static void line_size(struct output *out, const char *name, size_t bytes) {
    info_line(out, "%s:%zu", name, bytes);
}

static void write_script_memory(struct output *out) {
    struct script_usage usage;
    char human[32];
    script_usage_read(&usage);
    line_size(out, "used_memory_lua", usage.vm_eval);
    line_size(out, "used_memory_vm_eval", usage.vm_eval);
    info_line(out, "used_memory_lua_human:%.*s", (int)format_bytes_human(human, usage.vm_eval), human);
    line_size(out, "used_memory_scripts_eval", usage.scripts_bytes);
    info_line(out, "number_of_cached_scripts:%zu\r\nnumber_of_functions:%zu\r\nnumber_of_libraries:%zu", usage.scripts,
              usage.functions, usage.libraries);
    line_size(out, "used_memory_vm_functions", usage.vm_functions);
    line_bytes(out, "used_memory_vm_total", usage.vm_eval + usage.vm_functions);
    line_size(out, "used_memory_functions", usage.functions_bytes);
    line_bytes(out, "used_memory_scripts", usage.scripts_bytes + usage.functions_bytes);
}
static void write_memory(struct output *out) {
    struct memory_report r;
    memory_report_make(&r);
    line_bytes(out, "used_memory", r.used);
    line_bytes(out, "used_memory_rss", r.allocator.rss);
    line_bytes(out, "used_memory_peak", r.peak);
    info_line(out, "used_memory_peak_perc:%.2f%%", r.peak_percent);
    line_size(out, "used_memory_overhead", r.overhead);
    line_size(out, "used_memory_startup", r.startup);
    line_size(out, "used_memory_dataset", r.dataset);
    info_line(out, "used_memory_dataset_perc:%.2f%%", r.dataset_percent);
    line_size(out, "allocator_allocated", r.allocator.allocated);
    line_size(out, "allocator_active", r.allocator.active);
    line_size(out, "allocator_resident", r.allocator.resident);
    line_size(out, "allocator_muzzy", r.allocator.muzzy);
    line_bytes(out, "total_system_memory", r.allocator.total_system);
    write_script_memory(out);
    line_bytes(out, "maxmemory", server_settings.maxmemory);
    info_line(out, "maxmemory_policy:%s", maxmemory_policy_name());
    info_line(out, "allocator_frag_ratio:%.2f", r.allocator_frag);
    info_line(out, "allocator_frag_bytes:%lld", (long long)r.allocator_frag_bytes);
    info_line(out, "allocator_rss_ratio:%.2f", r.allocator_rss);
    info_line(out, "allocator_rss_bytes:%lld", (long long)r.allocator_rss_bytes);
    info_line(out, "rss_overhead_ratio:%.2f", r.rss_overhead);
    info_line(out, "rss_overhead_bytes:%lld", (long long)r.rss_overhead_bytes);
    info_line(out, "mem_fragmentation_ratio:%.2f", r.fragmentation);
    info_line(out, "mem_fragmentation_bytes:%lld", (long long)r.fragmentation_bytes);
    line_size(out, "mem_not_counted_for_evict", uncounted_memory());
    line_size(out, "mem_replication_backlog", r.replication_backlog);
    line_size(out, "mem_total_replication_buffers", r.replication_buffers);
    line_size(out, "mem_replicas_repl_buffer", r.received_ahead);
    line_size(out, "mem_clients_slaves", r.clients_replicas);
    line_size(out, "mem_clients_normal", r.clients_normal);
    line_size(out, "mem_cluster_links", cluster_hooks ? cluster_hooks->link_memory() : 0);
    size_t imports = 0, exports = 0;
    if (cluster_hooks) cluster_hooks->migration_memory(&imports, &exports);
    info_line(out, "mem_cluster_slot_import:%zu\r\nmem_cluster_slot_export:%zu\r\nmem_aof_buffer:0", imports, exports);
    info_line(out, "mem_allocator:%s", mem_allocator());
    line_size(out, "mem_overhead_db_hashtable_rehashing", r.tables_rehashing);
    info_line(out, "active_defrag_running:%d", defrag_stats().running);
    info_line(out, "lazyfree_pending_objects:%zu", background_pending(BACKGROUND_LAZY_FREE));
    info_line(out, "lazyfreed_objects:%llu", (unsigned long long)store_lazyfree.freed);
}
static void write_engines(struct output *out) {
    if (script_hooks) script_hooks->write_engines(out);
}
static void write_modules(struct output *out) {
    if (!script_hooks) return;
    info_line(out,
              "module:name=" SCRIPT_MODULE ",ver=%d,api=1,filters=0,usedby=[],using=[],"
              "options=[handle-repl-async-load|handle-atomic-slot-migration]",
              SCRIPT_MODULE_VERSION);
}
static void write_counts(struct output *out) {
    for (int id = 0; id < keyspace_databases(server.keyspace); id++) {
        struct db *db = keyspace_db(server.keyspace, id);
        if (!db_size(db)) continue;
        info_line(out, "db%d:keys=%zu,expires=%zu,avg_ttl=%lld,keys_with_volatile_items=%zu", id, db_size(db),
                  db_expires(db), (long long)db_average_ttl(db), db_expiring(db));
    }
}

/* INFO answers at once, also where reads wait. So while writes may be lost, it shows the counts of an earlier moment,
 * which are safe: those are written down now and then, and shown when everything up to that moment is released. */
enum { COUNTS_EVERY_US = 100 * 1000 };
static struct memory_output counts_safe, counts_next;
static bool counts_wait;

static void counts_ended(struct barrier_waiter *waiter, bool shown) {
    struct memory_output before = counts_safe;
    counts_wait = false;
    if (!shown) return;
    counts_safe = counts_next;
    counts_next = before;
}

static void safe_counts_before_wait(void) {
    static struct barrier_waiter waiter = {.ended = counts_ended};
    static uint64_t noted_us;
    if (__builtin_expect(!reply_barrier_armed, 1) || counts_wait || clock_mono() - noted_us < COUNTS_EVERY_US) return;
    noted_us = clock_mono();
    if (!reply_barrier_guards() || server.loading) return;
    if (!counts_next.out.ops) memory_output_init(&counts_next);
    memory_output_clear(&counts_next);
    write_counts(&counts_next.out);
    counts_wait = true;
    reply_barrier_when_shown(&waiter);
}
static const struct server_part safe_counts_part = {.name = "safe-counts", .before_wait = safe_counts_before_wait};

static void write_keyspace(struct output *out) {
    if (!reply_barrier_armed || !reply_barrier_guards() || !reply_barrier_unreleased())
        write_counts(out);
    else if (counts_safe.out.ops)
        output_write(out, memory_output_slice(&counts_safe));
}

static const struct info_section info_sections_basic[] = {
    {.name = "memory", .title = "Memory", .order = 30, .write = write_memory},
    {.name = "modules", .title = "Modules", .order = 80, .write = write_modules},
    {.name = "scriptingengines",
     .title = "Scripting Engines",
     .order = 125,
     .when = INFO_ALL_ONLY,
     .write = write_engines},
    {.name = "keyspace", .title = "Keyspace", .order = 130, .write = write_keyspace},
    {.name = NULL},
};

/* With sections of modules the reply waits as that to a read does. While this server shows no data, they are left out:
 * the rest is needed to see why. */
static void run_info(struct call *call) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    int count = call->argc - 1;
    bool late = info_has_late(count, call->argv + 1) && !reply_barrier_before_answer(call->client);
    info_write(&text.out, count, call->argv + 1, late);
    reply_verbatim(call->reply, "txt", memory_output_slice(&text));
    memory_output_free(&text);
}

static const struct command_spec info_commands[] = {
    {COMMAND("info", run_info, -1, CMD_NO_DATA | CMD_LOADING | CMD_STALE, .group = GROUP_SERVER, "1.0.0"),
     .categories = CAT_DANGEROUS, .complexity = "O(1)",
     .summary = "Returns the state and statistics of the server, by section.", .syntax = "[section:string...]",
     .history = WORDS("7.0.0", "Takes several sections."),
     .tips = WORDS("nondeterministic_output", "request_policy:all_shards", "response_policy:special")},
    {.name = NULL}};

const struct feature info_feature = {.name = "info",
                                     .commands = COMMANDS(info_commands),
                                     .sections = SECTIONS(info_sections_basic),
                                     .parts = PARTS(&safe_counts_part)};
