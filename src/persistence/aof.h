/* aof.h: the append-only file: every change of the data set, written as the commands that make it again.
 *
 * On disk, in the directory `appenddirname` (formats: formats/aof_manifest.h, formats/aof_reader.h):
 *
 *     appendonly.aof.manifest       which files there are, in which order they are read
 *     appendonly.aof.N.base.rdb     the data set at some moment, as an RDB file or (.aof) as commands
 *     appendonly.aof.N.incr.aof     the changes since then
 *
 * A rewrite (BGREWRITEAOF, or by itself when the files have grown) begins a new incremental file, writes a new base
 * file in a child process, and then replaces manifest and files.
 *
 *     aof.c          the feature: on and off, the cron, options, BGREWRITEAOF
 *     aof_append.c   from propagated commands to bytes in the file
 *     aof_sync.c     when bytes are written and brought to the disk, and when replies may leave (appendfsync)
 *     aof_files.c    the directory: manifest, names, deletion of what is no longer needed
 *     aof_rewrite.c  rewriting
 *     aof_commands.c a key as the commands that create it, for base files that are not RDB files
 *     aof_load.c     reading at start
 *
 * What is promised: a reply to a write leaves when the write has been handed to the kernel (appendfsync everysec, no)
 * or is on the disk (always). It survives the end of the process in the first case, that of the machine in the second.
 * With everysec a crash of the machine loses the writes of the last second, two at most.
 *
 * Everything belongs to the main thread, but for the jobs of aof_sync.c. */
#ifndef PERSISTENCE_AOF_H
#define PERSISTENCE_AOF_H
#include "lib/text/output.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/debug/debug.h"
#include "server/server.h"

extern const struct config_option aof_options[];
extern const struct command_spec aof_commands[];
extern const struct debug_subcommand aof_debug_subcommands[];
extern const struct server_part aof_part;

/* The option, which may differ from what is going on: the file is opened when loading is over. */
bool aof_is_configured(void);
/* At start: reads the files, or creates them, and opens the last one. Ends the process where they cannot be read. */
void aof_load_at_start(void);
/* At start with appendonly no: reads the manifest, so that a later rewrite takes names that no file has, and retires
 * the files that are there. Ends the process where it cannot be read. */
void aof_manifest_find(void);
void aof_info(struct output *out);       /* lines of INFO persistence */
void aof_info_sizes(struct output *out); /* more of them, after those of others; none where the file is off */
void aof_reset_stats(void);
/* Commands appended to the file, how many of them are so safe that a reply may acknowledge them, and how many are on
 * the disk. The counts only grow. False: the file is off, or does not count yet. */
struct aof_progress {
    uint64_t appended, safe, synced;
};
bool aof_progress(struct aof_progress *progress);
/* The file cannot be written. The stream of a primary is executed all the same: what reads it asks. */
bool aof_refuses_writes(void);
/* The data set was replaced as a whole (DEBUG RELOAD, a full synchronization): what the files say does not lead to it
 * any more. Starts a rewrite from it. */
void aof_restart(void);
/* The same, where `rdb` is a file, brought to the disk, with exactly this data set: it is moved and becomes the base,
 * if aof-use-rdb-preamble allows. Where that fails, a rewrite starts and the file stays. */
void aof_restart_from(const char *rdb);
#endif
