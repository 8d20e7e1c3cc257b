/* durability.h: persistence: snapshots (RDB files), the append-only file, and loading them at start.
 *
 *   snapshot.h     writes the data set to `dbfilename`, in the server (SAVE) or in a child process (BGSAVE)
 *   save_points.h  when a snapshot is due
 *   aof.h          appends each write to the append-only file, rewrites and loads it
 *   loading.h      loads a file while clients get the error LOADING
 *
 * A snapshot never damages the one before it: it is written to temp-PID.rdb, brought to the disk, and then renamed.
 *
 * All of it belongs to the main thread. Tables of commands, options and INFO are registered in main.c. */
#ifndef DURABILITY_H
#define DURABILITY_H
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/debug/debug.h"
#include "server/server.h"
#include "server/stats/info.h"

struct durability_settings {
    char *file_name; /* dbfilename, in the working directory */
    bool checksum;   /* rdbchecksum */
    bool incremental_fsync, stop_writes_on_error;
    int version_check;                  /* enum version_check */
    int sanitize;                       /* enum sanitize_level */
    int key_save_delay, key_load_delay; /* microseconds; negative -n: one microsecond every n keys, on average */
    int loading_interval;               /* bytes between two looks at clients while loading */
};
enum version_check { VERSION_CHECK_STRICT, VERSION_CHECK_RELAXED };
enum sanitize_level { SANITIZE_NO, SANITIZE_YES, SANITIZE_CLIENTS };
extern struct durability_settings durability_settings;

extern const struct config_option durability_options[];
extern const struct command_spec snapshot_commands[];
extern const struct info_section persistence_sections[];
extern const struct debug_subcommand debug_reload_subcommands[];
extern struct server_part snapshot_part;

void durability_delay(int microseconds); /* for the settings above */
#endif
