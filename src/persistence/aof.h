/* aof.h: the append-only file (AOF): every change of the data set, as commands that repeat it.
 *
 * On disk, in the directory `appenddirname` (formats: formats/aof_manifest.h, formats/aof_reader.h):
 *
 *     appendonly.aof.manifest       the names of the files, in the order in which they are loaded
 *     appendonly.aof.N.base.rdb     the data set at one point in time, as an RDB file or (.aof) as commands
 *     appendonly.aof.N.incr.aof     the changes after that
 *
 * A rewrite (BGREWRITEAOF, or automatic when the files have grown) begins a new incremental file, writes a new base
 * file in a child process, and then replaces the manifest and the old files.
 *
 *     aof.c          the feature: on and off, the cron, options, BGREWRITEAOF
 *     aof_append.c   formats propagated commands into a buffer
 *     aof_sync.c     when the buffer is written and synced, and when replies are sent (appendfsync)
 *     aof_files.c    the directory: manifest, file names, deletion of old files
 *     aof_rewrite.c  rewriting
 *     aof_commands.c a key as the commands that create it, for base files that are not RDB files
 *     aof_load.c     loading at start
 *
 * Durability: with appendfsync everysec or no, a reply to a write is sent after write() has returned, so acknowledged
 * writes survive a crash of the process. With always, it is sent after fdatasync(), so they also survive a crash of the
 * machine. With everysec a crash of the machine loses the writes of the last second, at most two.
 *
 * Main thread only, except for the jobs of aof_sync.c. */
#pragma once
#include "lib/text/output.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/debug/debug.h"
#include "server/server.h"

extern const struct config_option aof_options[];
extern const struct command_spec aof_commands[];
extern const struct debug_subcommand aof_debug_subcommands[];
extern const struct server_part aof_part;

/* The option appendonly. While the data set is loading, the file is not open yet even if this is true. */
bool aof_is_configured(void);
/* At start: loads or creates the files, and opens the last one. Exits the process if they cannot be read. */
void aof_load_at_start(void);
/* At start with appendonly no: reads the manifest, so that a later rewrite uses unused file names and deletes the
 * existing files. Deletes what a killed process left unfinished. Exits the process if the manifest cannot be read. */
void aof_find_at_start(void);
void aof_info(struct output *out);       /* lines of INFO persistence */
void aof_info_sizes(struct output *out); /* the lines that INFO shows only while the file is on */
void aof_reset_stats(void);
/* Numbers of commands: appended to the file; safe, so that replies may acknowledge them (appendfsync); synced to disk.
 * They only grow while the file is on. False: the file is off, or its first rewrite is not done. */
struct aof_progress {
    uint64_t appended, safe, synced;
};
bool aof_progress(struct aof_progress *progress);
/* Writes the commands that create a key, without SELECT. `db`: the number of its database. False: the module of its
 * value cannot. */
struct entry;
bool aof_write_entry(struct output *out, const struct entry *entry, int db);
/* Whether writes of clients are refused (MISCONF) because the file cannot be written. Commands of the primary's stream
 * are not refused; apply.c calls this itself. */
bool aof_refuses_writes(void);
/* Starts a rewrite after the whole data set was replaced (a full synchronization), since the files no longer lead to
 * it. */
void aof_restart(void);
/* The same if `rdb` is a synced RDB file with exactly this data set: moves it and makes it the base, if
 * aof-use-rdb-preamble is set. If that fails, starts a rewrite and leaves the file. */
void aof_restart_from(const char *rdb);
