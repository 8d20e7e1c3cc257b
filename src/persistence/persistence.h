/* persistence.h: persistence: snapshots (RDB files), the append-only file, and loading them at start.
 *
 *   background_save.h  writes the data set of one moment for the two below and for replication, while the server
 *                      executes commands (forkless.h)
 *   snapshot.h         writes it to `dbfilename`, in the background (BGSAVE) or while nothing else happens (SAVE)
 *   save_points.h      when a snapshot is due
 *   aof.h              appends each write to the append-only file, rewrites and loads it
 *   loading.h          loads a file while clients get the error LOADING
 *
 * A snapshot never damages the previous one: it is written to temp-PID.rdb (SAVE) or temp-forkless-PID.rdb (BGSAVE),
 * synced to disk, and then renamed.
 *
 * Main thread only, except for the jobs of aof_sync.c. persistence_feature lists the tables and parts. */
#pragma once
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/debug/debug.h"
#include "server/server.h"
#include "server/stats/info.h"

struct persistence_settings {
    char *file_name; /* dbfilename, in the working directory */
    bool checksum;   /* rdbchecksum */
    bool incremental_fsync, stop_writes_on_error;
    int sanitize;                       /* enum sanitize_level */
    int key_save_delay, key_load_delay; /* microseconds; negative -n: one microsecond every n keys, on average */
    int64_t forkless_buffer_limit;      /* bytes */
    int loading_interval;               /* bytes loaded between two turns of the event loop */
};
enum sanitize_level { SANITIZE_NO, SANITIZE_YES, SANITIZE_CLIENTS };
extern struct persistence_settings persistence_settings;

struct feature;
extern const struct feature persistence_feature;
/* Its tables. */
extern const struct config_option persistence_options[];
extern const struct command_spec snapshot_commands[];
extern const struct debug_subcommand debug_reload_subcommands[];
extern const struct server_part snapshot_part;

void persistence_delay(int microseconds); /* sleeps for key_save_delay or key_load_delay */
