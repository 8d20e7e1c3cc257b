/* server.c: see server.h. */
#include "server/server.h"
#include "server/server_events.h"
#include "lib/system/memory.h"
#include "server/cluster_hooks.h"

struct server server = {.mode = "standalone"};
const struct cluster_hooks *cluster_hooks;
const char *(*cluster_migration_refused)(void);
void (*cluster_module_received)(struct slice sender, const struct cluster_module_message *message);
struct turn_stats turn_stats;
static const struct server_part **parts; /* ends with NULL */
static uint32_t stands_still;

void server_add_part(const struct server_part *part) {
    static size_t count;
    parts = mem_realloc(parts, (count + 2) * sizeof *parts);
    parts[count++] = part;
    parts[count] = NULL;
}
const struct server_part *const *server_parts(void) {
    static const struct server_part *const none = NULL;
    return parts ? parts : &none;
}

void server_pause_deletion(enum deletion_pause reason, bool on) {
    if (on)
        stands_still |= reason;
    else
        stands_still &= ~(uint32_t)reason;
    store_settings.keep_expired = stands_still != 0;
}

bool server_deletion_paused(void) {
    return stands_still != 0;
}
bool server_deletion_paused_for(int reasons) {
    return stands_still & (uint32_t)reasons;
}

void server_configured(void) {
    parts_call(configured);
}

static void (*outside_task)(void);

void server_run_outside(void (*task)(void)) {
    outside_task = task;
    event_loop_stop(server.loop);
}

void server_run(void) {
    for (;;) {
        event_loop_run(server.loop);
        void (*task)(void) = outside_task;
        outside_task = NULL;
        if (task) task();
    }
}

uint64_t server_flush_all(bool lazy) {
    struct flush_event event = {!lazy, -1};
    uint64_t keys = 0;
    server_event(EVENT_FLUSHDB, 0, &event);
    for (int id = 0; id < keyspace_databases(server.keyspace); id++)
        keys += db_flush(keyspace_db(server.keyspace, id), lazy);
    server_event(EVENT_FLUSHDB, 1, &event);
    return keys;
}
void server_flushed_all(void) {
    if (server.is_child) return; /* a debugged script: its changes are not those of the server */
    parts_call(flushed_all);
}
