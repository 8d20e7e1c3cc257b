/* sentinel_file.h: a Sentinel's configuration file: its `sentinel ...` directives, and their rewriting.
 *
 * At start the directives are executed in three steps: those that the others depend on (resolve-hostnames,
 * announce-hostnames, announce-ip and others of the process), then `monitor`, then the rest.
 *
 * The file is rewritten whenever the state changes. It keeps comments and other lines, and each directive's place. A
 * thread writes it beside its path, syncs it and renames it (lib/system/file_writer.h), so a crash leaves a whole file.
 * A message that depends on the saved state is sent after sentinel_file_settle(). */
#pragma once
#include "server/config/config.h"
#include <stdbool.h>

extern const struct config_directive sentinel_directives[];
/* Executes the directives, up to the first invalid one. Returns NULL, or why it is invalid; *number and *text (for
 * mem_free()) are its line. */
const char *sentinel_file_read(int *number, char **text);
void sentinel_file_start(void); /* starts the writer; makes the id if there is none, and saves */
void sentinel_file_stop(void);
void sentinel_file_save(bool durable); /* soon; durable: before the next settle() returns */
/* Waits until all durable saves are on disk. Returns 0, or -errno: the file could not be written, and no message that
 * depends on it may leave. The next call tries again. */
int sentinel_file_settle(void);
int sentinel_file_flush(void); /* saves now and waits; 0 or -errno */
void sentinel_file_turn(void); /* at the end of a turn: starts to write what has changed */
