/* background_save.c: see background_save.h. */
#include "persistence/background_save.h"
#include "formats/rdb.h"
#include "lib/system/random.h"
#include "persistence/aof_private.h"
#include "persistence/forkless.h"
#include "persistence/persistence.h"
#include "server/cluster_hooks.h"
#include "server/config/settings.h"
#include "server/repl_hooks.h"
#include "server/script_hooks.h"
#include <errno.h>
#include <unistd.h>

void background_save_data_leaves(void) {
    if (forkless_running()) child_kill();
}

void persistence_delay(int microseconds) {
    if (microseconds > 0)
        usleep((useconds_t)microseconds);
    else if (microseconds < 0 && random_below(-(int64_t)microseconds) == 0)
        usleep(1);
}

/* --- The data --- */

static void key_saved(void) {
    persistence_delay(persistence_settings.key_save_delay);
}

/* The file stores the access data that maxmemory-policy uses. */
static enum rdb_access kept_access(void) {
    int policy = server_settings.maxmemory_policy;
    return policy & POLICY_LFU ? RDB_ACCESS_FREQUENCY : policy & POLICY_LRU ? RDB_ACCESS_IDLE : RDB_ACCESS_NONE;
}

struct rdb_save_params save_params(struct rdb_aux aux[static SAVE_AUX_MAX], const struct save_content *content) {
    struct rdb_save_params params = {.aux = aux,
                                     .aux_count = repl_hooks ? repl_hooks->write_aux(aux) : 0,
                                     .access = kept_access(),
                                     .aof_base = content->aof_base,
                                     .version = content->version,
                                     .without_keys = content->without_keys};
    if (cluster_hooks) params.aux_count += cluster_hooks->write_aux(&aux[params.aux_count]);
    if (cluster_hooks) params.import_count = cluster_hooks->imports(&params.imports);
    if (script_hooks && !content->without_libraries) params.library_count = script_hooks->libraries(&params.libraries);
    return params;
}

int save_write(struct sink *sink, const struct save_content *content) {
    if (content->format == SAVE_COMMANDS) return aof_commands_write(sink, server.keyspace);
    struct rdb_aux aux[SAVE_AUX_MAX];
    struct rdb_save_params params = save_params(aux, content);
    params.key_saved = persistence_settings.key_save_delay ? key_saved : NULL;
    return rdb_save(sink, server.keyspace, &params);
}

/* --- In the background --- */

int background_save_start(struct background_save *save) {
    int error = child_active() ? -EBUSY : forkless_start(save);
    if (!error) child_pause_after_fork(); /* DEBUG: where other servers fork */
    return error;
}

bool background_save_holds_writes(const struct background_save *save) {
    return save->forkless && forkless_holds_writes(save);
}

uint64_t background_save_keys(const struct background_save *save) {
    return forkless_keys(save);
}

bool background_save_goes_on(const struct background_save *save) {
    return forkless_goes_on(save);
}
