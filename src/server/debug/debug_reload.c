/* debug_reload.c: DEBUG RELOAD: all keys are written down as RDB files have them (persist/rdb.h) and read back, with
 * their times and how they were used. It shows whether the forms on disk hold all that there is. What is written stays
 * in memory: there are no files in this build, so NOSAVE finds none. */
#include "lib/log.h"
#include "lib/memory.h"
#include "persist/rdb_file.h"
#include "server/debug/debug_data.h"
#include "server/server.h"
#include "store/keyspace.h"

/* The file: memory that the sink writes to. */
static int keep_bytes(struct sink *sink, const void *bytes, size_t len) {
    struct memory_output *file = sink->context;
    output_write(&file->out, slice_make(bytes, len));
    return 0;
}
static const struct sink_ops memory_file = {keep_bytes};

static void save(struct memory_output *file) {
    struct sink sink;
    memory_output_init(file);
    sink_init(&sink, &memory_file, file);
    sink.checksum = true;
    struct rdb_save_params params = {.access = store_settings.lfu ? RDB_ACCESS_FREQUENCY : RDB_ACCESS_IDLE};
    rdb_save(&sink, server.keyspace, &params);
    sink_free(&sink);
}

static bool load(struct slice file, bool replace) {
    struct source source;
    struct rdb_load_result result;
    struct rdb_load_params params = {.skip_expired = true,
                                     .check_duplicates = true,
                                     .duplicates = replace ? RDB_DUPLICATE_REPLACES : RDB_DUPLICATE_REFUSED};
    source_init_memory(&source, file);
    bool good = rdb_load(&source, server.keyspace, &params, &result) == 0;
    if (!good)
        log_warning("DEBUG RELOAD: loading failed at offset %llu: %s", (unsigned long long)result.offset,
                    result.reason);
    source_free(&source);
    return good;
}

struct reload_options {
    bool keep, replace, unsaved; /* NOFLUSH, MERGE, NOSAVE */
};
static bool options_read(struct call *call, struct reload_options *options) {
    *options = (struct reload_options){0};
    for (int i = 2; i < call->argc; i++) {
        if (slice_is(call->argv[i], "merge"))
            options->replace = true;
        else if (slice_is(call->argv[i], "noflush"))
            options->keep = true;
        else if (slice_is(call->argv[i], "nosave"))
            options->unsaved = true;
        else {
            reply_error(call->reply, "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.");
            return false;
        }
    }
    return true;
}

static void run_reload(struct call *call) {
    struct reload_options options;
    if (!options_read(call, &options)) return;
    struct memory_output file;
    bool good = !options.unsaved;
    if (good)
        save(&file);
    else
        log_warning("DEBUG RELOAD NOSAVE: there is no RDB file");
    for (int id = 0; id < keyspace_databases(server.keyspace) && !options.keep && good; id++)
        db_flush(keyspace_db(server.keyspace, id), false);
    if (good) {
        good = load(memory_output_slice(&file), options.replace);
        memory_output_free(&file);
    }
    if (good) {
        log_notice("DB reloaded by DEBUG RELOAD");
        reply_ok(call->reply);
    } else {
        reply_error(call->reply, "ERR Error trying to load the RDB dump, check server logs.");
    }
}

const struct debug_subcommand debug_reload_subcommands[] = {
    {"reload", 0, 3, run_reload,
     (const char *const[]){
         "RELOAD [NOFLUSH] [MERGE] [NOSAVE]",
         "    Write all keys down as RDB files have them, forget them, and read them back. NOFLUSH does not",
         "    forget, so that every key is there already, which is an error but with MERGE. NOSAVE wants a file, and "
         "there is none.",
         NULL}},
    {NULL, 0, 0, NULL, NULL}};
