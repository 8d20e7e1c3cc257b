/* background_save.c: see background_save.h. What the methods have in common, and the method fork. */
#include "persistence/background_save.h"
#include "formats/rdb.h"
#include "lib/structures/linked_list.h"
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
    if (child_kind() == CHILD_RDB || forkless_running()) child_kill();
}

void persistence_delay(int microseconds) {
    if (microseconds > 0)
        usleep((useconds_t)microseconds);
    else if (microseconds < 0 && random_below(-(int64_t)microseconds) == 0)
        usleep(1);
}

/* --- The data --- */

struct saving {
    struct sink *sink;
    uint64_t keys;
    bool streamed;
};
static void key_saved(void *context) {
    struct saving *saving = context;
    if (saving->streamed && persistence_settings.key_save_delay > 0) sink_flush(saving->sink);
    persistence_delay(persistence_settings.key_save_delay);
    child_report(++saving->keys);
}
static void progress(void *context, uint64_t keys, uint64_t bytes) {
    child_report(keys);
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

static int write_rdb(struct sink *sink, const struct save_content *content) {
    struct rdb_aux aux[SAVE_AUX_MAX];
    struct saving saving = {.sink = sink, .streamed = content->streamed};
    struct rdb_save_params params = save_params(aux, content);
    params.progress = progress;
    params.key_saved = persistence_settings.key_save_delay ? key_saved : NULL;
    params.context = &saving;
    return rdb_save(sink, server.keyspace, &params);
}

int save_write(struct sink *sink, const struct save_content *content) {
    return content->format == SAVE_COMMANDS ? aof_commands_write(sink, server.keyspace) : write_rdb(sink, content);
}

/* --- The child --- */

static struct background_save *save_of_job(struct child_job *job) {
    return container_of(job, struct background_save, job);
}

static int save_child(struct child_job *job) {
    struct background_save *save = save_of_job(job);
    struct sink sink;
    if (save->content.uncompressed) rdb_settings.compression = false;
    if (save->ops->begin(save, &sink) < 0) return 1;
    if (save->ops->end(save, &sink, save_write(&sink, &save->content)) < 0) return 1;
    child_report_end();
    if (save->ops->leave) save->ops->leave(save);
    return 0;
}

static void save_child_done(struct child_job *job, int status, int signal) {
    struct background_save *save = save_of_job(job);
    save->ops->done(save, status, signal);
}

static int start_child(struct background_save *save) {
    save->job = (struct child_job){.kind = save->kind,
                                   .title = save->title,
                                   .log_name = save->log_name,
                                   .keep = save->keep,
                                   .keep_count = save->keep_count,
                                   .run = save_child,
                                   .done = save_child_done};
    pid_t pid = child_start(&save->job);
    if (pid < 0) return (int)pid;
    save->pid = pid;
    save->keys_total = save->job.keys_total;
    return 0;
}

/* --- Both --- */

enum save_method background_save_method(enum save_method method) {
    if (method == SAVE_DEFAULT) method = (enum save_method)persistence_settings.save_method;
    return persistence_settings.forkless_enabled ? method : SAVE_FORK;
}

int background_save_start(struct background_save *save, enum save_method method) {
    if (child_active()) return -EBUSY;
    save->method = background_save_method(method);
    return save->method == SAVE_FORKLESS ? forkless_start(save) : start_child(save);
}

bool background_save_holds_writes(const struct background_save *save) {
    return save->forkless && forkless_holds_writes(save);
}

uint64_t background_save_keys(const struct background_save *save) {
    return save->method == SAVE_FORKLESS ? forkless_keys(save) : child_reported_keys();
}

bool background_save_goes_on(struct background_save *save) {
    if (save->method == SAVE_FORKLESS) return forkless_goes_on(save);
    child_report(child_reported_keys()); /* exits if the server has exited */
    return true;
}
