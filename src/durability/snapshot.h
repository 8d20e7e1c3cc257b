/* snapshot.h: writes the data set to an RDB file, and what is known of the snapshots so far. */
#ifndef DURABILITY_SNAPSHOT_H
#define DURABILITY_SNAPSHOT_H
#include <stdbool.h>
#include <stdint.h>

struct snapshot_state {
    uint64_t saves;          /* SAVE and background saves that were started */
    int64_t last_save_ms;    /* the last that succeeded; at first, when the server started */
    int64_t last_try_ms;     /* the last background save that was started */
    int64_t started_ms;      /* the background save that runs; 0: none */
    int64_t last_seconds;    /* of the last background save; -1: there was none */
    uint64_t last_cow;       /* bytes copied by the last background save */
    uint64_t changes_before; /* of server.dirty, that are in the background save that runs */
    bool failed;             /* the last background save did */
    bool scheduled;          /* a background save starts as soon as no other child runs */
};
extern struct snapshot_state snapshot_state;

/* Writes the file `name` in the working directory: a temporary file first, then fsync(), rename() and fsync() of the
 * directory, so that `name` is either the old file or the whole new one. Logs what fails and removes the temporary
 * file. 0 or a negative errno. */
int snapshot_write(const char *name);
/* As SAVE: in this process; then nothing is unsaved. */
int snapshot_save(void);
/* As BGSAVE: in a child process. Logs what fails. 0 or a negative errno: -EBUSY where a child runs. */
int snapshot_start(void);
bool snapshot_running(void); /* the child that runs writes a snapshot */
#endif
