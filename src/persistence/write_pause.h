/* write_pause.h: forkless-buffer-limit: writes of clients are paused (CLIENT PAUSE WRITE) while too much of a snapshot
 * without fork waits for its reader: the thread of a save (forkless.h), or the target of a slot migration.
 *
 * Main thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

size_t write_pause_limit(void);  /* bytes that may wait; beyond it, writes are to be paused */
size_t write_pause_resume(void); /* … until no more than this waits */

/* `paused` belongs to the snapshot. Writes go on when no snapshot pauses them. `reader`, `waiting`: for the log. */
void write_pause_begin(bool *paused, const char *reader, size_t waiting);
void write_pause_end(bool *paused);
uint64_t write_pauses(void); /* since the server's start */
