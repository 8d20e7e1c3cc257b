/* debug_reload.c: DEBUG RELOAD: all keys are written down as RDB files have them (persist/rdb.h) and read back, with
 * their times and how they were used. It shows whether the forms on disk hold all that there is. What is written stays
 * in memory: there are no files in this build, so NOSAVE finds none. */
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include "persist/rdb.h"
#include "server/debug/debug_data.h"
#include "server/server.h"
#include "store/keyspace.h"

/* A key: its name, when it expires (-1: never), its idle seconds or its frequency, and its value. */
static void write_key(struct output *out, const struct entry *entry) {
    rdb_write_string(out, entry_key(entry));
    rdb_write_time(out, entry_expire_at(entry));
    rdb_write_length(out, store_settings.lfu ? entry_frequency(entry) : entry_idle_seconds(entry));
    rdb_write_value(out, entry);
}
static void write_db(struct output *out, struct db *db) {
    struct db_iterator *it = db_iterate(db);
    for (struct entry *entry; (entry = db_iterate_next(it));) write_key(out, entry);
    db_iterate_end(it);
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

/* False: it is damaged, or the key is there and is not to be replaced. */
static bool read_key(struct rdb_reader *in, struct db *db, bool replace) {
    char *made;
    struct slice key = rdb_read_string(in, &made);
    int64_t expire_at = rdb_read_time(in);
    uint64_t access = rdb_read_length(in);
    bool good = !in->failed && ((replace && db_delete(db, key, false)) ||
                                !db_find(db, key, LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_WRITE));
    struct entry *entry = good ? rdb_read_value(in, db, key) : NULL;
    if (entry && expire_at >= 0) entry = db_set_expire(db, entry, expire_at);
    if (entry && store_settings.lfu)
        entry_set_frequency(entry, (uint8_t)access);
    else if (entry)
        entry_set_idle_seconds(entry, (uint32_t)access);
    if (entry && expire_at >= 0 && expire_at <= clock_ms()) db_delete(db, key, false);
    if (!entry)
        log_warning("DEBUG RELOAD: '%.*s' cannot be loaded: it is there already, or what was written is damaged",
                    (int)key.len, key.data);
    mem_free(made);
    return entry;
}

static void run_reload(struct call *call) {
    struct reload_options options;
    if (!options_read(call, &options)) return;
    int count = keyspace_databases(server.keyspace);
    struct memory_output *saved = mem_alloc((size_t)count * sizeof *saved);
    bool good = !options.unsaved;
    if (options.unsaved) log_warning("DEBUG RELOAD NOSAVE: there is no RDB file");
    for (int id = 0; id < count; id++) {
        memory_output_init(&saved[id]);
        if (good) write_db(&saved[id].out, keyspace_db(server.keyspace, id));
    }
    for (int id = 0; id < count && !options.keep && good; id++) db_flush(keyspace_db(server.keyspace, id), false);
    bool shown = store_settings.show_expired;
    store_settings.show_expired = true; /* what has expired goes below, unseen */
    for (int id = 0; id < count; id++) {
        struct slice bytes = memory_output_slice(&saved[id]);
        struct rdb_reader in = {.at = bytes.data, .end = bytes.data + bytes.len};
        while (good && in.at < in.end) good = read_key(&in, keyspace_db(server.keyspace, id), options.replace);
        memory_output_free(&saved[id]);
    }
    store_settings.show_expired = shown;
    mem_free(saved);
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
