/* files.c: jobs in RDB files and in the append-only file (struct cluster_hooks). */
#include "cluster/migration/link.h"
#include "cluster/migration/migration.h"
#include "lib/system/memory.h"
#include "resp/request.h"

static void write_command(void *out, const struct slot_message *message) {
    struct slot_arguments arguments;
    slot_message_arguments(message, &arguments);
    request_write(out, arguments.argc, arguments.argv);
    slot_arguments_free(&arguments);
}

void migration_write_commands(struct output *out) {
    migrations_write(&migrations, write_command, out);
}

struct aux_texts {
    struct memory_output grants, takes;
};
static void write_aux(void *context, const struct slot_message *message) {
    struct aux_texts *texts = context;
    if (message->verb == VERB_GRANT) slot_grants_write(&texts->grants.out, message);
    if (message->verb == VERB_TAKE) output_write(&texts->takes.out, message->name);
}

size_t migration_write_aux(struct rdb_aux *fields) {
    static struct aux_texts texts;
    size_t count = 0;
    if (!texts.grants.out.ops) {
        memory_output_init(&texts.grants);
        memory_output_init(&texts.takes);
    }
    memory_output_clear(&texts.grants);
    memory_output_clear(&texts.takes);
    migrations_write(&migrations, write_aux, &texts);
    struct slice grants = memory_output_slice(&texts.grants), takes = memory_output_slice(&texts.takes);
    if (grants.len) fields[count++] = (struct rdb_aux){slice_of(slot_grants_aux), grants};
    if (takes.len) fields[count++] = (struct rdb_aux){slice_of(slot_takes_aux), takes};
    return count;
}

void migration_read_aux(struct slice name, struct slice value) {
    static struct slot_ranges ranges;
    struct slot_message grant;
    if (slice_is(name, slot_takes_aux)) migrations_track_takes(&migrations, value);
    if (!slice_is(name, slot_grants_aux)) return;
    while (slot_grants_read(&value, &grant, &ranges)) migrations_track(&migrations, &grant, migration_now());
}

size_t migration_imports_list(const struct rdb_slot_import **list) {
    static struct rdb_slot_import *imports;
    static size_t capacity;
    size_t count = 0;
    list_each_entry(&migrations.jobs, const struct slot_job, link, job) {
        if (job->kind != JOB_IMPORT || job_is_over(job)) continue;
        mem_grow(imports, count, capacity, 4);
        imports[count++] = (struct rdb_slot_import){.name = slice_make(job->name, JOB_NAME_LEN),
                                                    .count = job->count,
                                                    .ranges = (const uint16_t(*)[2])job->ranges};
    }
    *list = imports;
    return count;
}

void migration_read_import(const struct rdb_slot_import *import) {
    struct slot_message establish = {
        .verb = VERB_ESTABLISH, .name = import->name, .count = import->count, .ranges = import->ranges};
    migrations_track(&migrations, &establish, migration_now());
}

void migration_load_begins(void) {
    migrations_load_begins(&migrations, migration_now());
}
void migration_loaded(void) {
    migrations_loaded(&migrations);
}
