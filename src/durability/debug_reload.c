/* debug_reload.c: DEBUG RELOAD: saves the data set to `dbfilename`, forgets it, and loads it back. It shows whether a
 * file holds all that there is. */
#include "durability/durability.h"
#include "server/config/settings.h"
#include "durability/loading.h"
#include "durability/snapshot.h"
#include "lib/log.h"

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
    if (server.loading || server.async_loading) {
        reply_error(call->reply, WITH_PRODUCT("LOADING ", " is loading the dataset in memory"));
        return;
    }
    if (save && snapshot_save() < 0) {
        reply_error(call->reply, "ERR");
        return;
    }
    if (loading_read_rdb(durability_settings.file_name, LOADING_BLOCKS, flush, duplicates) < 0) {
        reply_error(call->reply, "ERR Error trying to load the RDB dump, check server logs.");
        return;
    }
    log_notice("DB reloaded by DEBUG RELOAD");
    reply_ok(call->reply);
}

const struct debug_subcommand debug_reload_subcommands[] = {
    {"reload", 0, 3, run_reload,
     (const char *const[]){"RELOAD [MERGE] [NOFLUSH] [NOSAVE]",
                           "    Save the RDB file, empty all databases, and load the file. NOSAVE loads the file that",
                           "    is there. NOFLUSH keeps what is in memory: a key that is in the file, too, is an error",
                           "    unless MERGE lets the file's replace it.", NULL}},
    {NULL, 0, 0, NULL, NULL}};
