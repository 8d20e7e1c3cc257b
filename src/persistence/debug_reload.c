/* debug_reload.c: DEBUG RELOAD: saves the data set to `dbfilename`, flushes it, and loads the file. Tests use it to
 * check that the file has all data. */
#include "lib/system/log.h"
#include "persistence/loading.h"
#include "persistence/persistence.h"
#include "persistence/snapshot.h"
#include "server/clients/client.h"
#include "server/debug/debug.h"
#include "server/role.h"
#include <errno.h>

static void run_reload(struct call *call) {
    bool save = true, flush = true;
    enum rdb_duplicate_key duplicates = RDB_DUPLICATE_REFUSED;
    for (int i = 2; i < call->argc; i++) {
        if (slice_is(call->argv[i], "merge")) {
            duplicates = RDB_DUPLICATE_REPLACES;
        } else if (slice_is(call->argv[i], "noflush")) {
            flush = false;
        } else if (slice_is(call->argv[i], "nosave")) {
            save = false;
        } else {
            reply_error(call->reply, "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.");
            return;
        }
    }
    if (debug_refused_by_load(call)) return;
    if (call->client->flags & CLIENT_INTERNAL) {
        reply_error(call->reply, "ERR DEBUG RELOAD would free the script that calls it");
        return;
    }
    if (save && snapshot_save() < 0) {
        reply_error(call->reply, "ERR");
        return;
    }
    int error = loading_read_rdb(persistence_settings.file_name, LOADING_BLOCKS, flush, duplicates);
    if (error < 0) {
        if (error != -ENOENT) role_set_position_known(false); /* the data are incomplete: a replica needs a full copy */
        reply_error(call->reply, "ERR Error trying to load the RDB dump, check server logs.");
        return;
    }
    if (!save) loading_data_replaced(); /* the file may be older */
    if (!role_is_replica()) loading_delete_expired();
    log_notice("DB reloaded by DEBUG RELOAD");
    reply_ok(call->reply);
}

const struct debug_subcommand debug_reload_subcommands[] = {
    {"reload", 0, 3, run_reload,
     WORDS("RELOAD [option ...]", "    Save the RDB on disk and reload it back to memory. Valid <option> values:",
           "    * MERGE: conflicting keys will be loaded from RDB.",
           "    * NOFLUSH: the existing database will not be removed before load, but",
           "      conflicting keys will generate an exception and kill the server.",
           "    * NOSAVE: the database will be loaded from an existing RDB file.",
           "    Examples:", "    * DEBUG RELOAD: verify that the server is able to persist, flush and reload",
           "      the database.", "    * DEBUG RELOAD NOSAVE: replace the current database with the contents of an",
           "      existing RDB file.", "    * DEBUG RELOAD NOSAVE NOFLUSH MERGE: add the contents of an existing RDB",
           "      file to the database.")},
    {NULL, 0, 0, NULL, NULL}};
