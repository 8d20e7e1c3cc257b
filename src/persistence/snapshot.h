/* snapshot.h: writes the data set to an RDB file, and keeps the results of past snapshots. */
#pragma once
#include "lib/structures/linked_list.h"
#include "persistence/background_save.h"
#include <stdbool.h>
#include <stdint.h>

struct snapshot_state {
    uint64_t saves;       /* number of SAVE commands and background saves started */
    int64_t last_save_ms; /* when the last successful one ended; initially the server's start. Wall clock */
    /* clock_mono_ms(): the same; the start of the last background save; of the running one, 0: none is running. */
    int64_t saved_ms, last_try_ms, started_ms;
    int64_t last_seconds;    /* duration of the last background save; -1: none so far */
    uint64_t changes_before; /* server.dirty when the running background save started */
    bool failed;             /* the last background save failed */
    bool scheduled;          /* a background save starts when no other child runs */
};
extern struct snapshot_state snapshot_state;
void snapshot_saved(void); /* the data are those of the file */

/* `done` is called after each background save, when snapshot_state is up to date. */
struct snapshot_listener {
    struct list_link link;
    void (*done)(bool success);
};
void snapshot_listen(struct snapshot_listener *listener);

/* Whether writes of clients are refused (MISCONF) because the last background save failed. Commands of the primary's
 * stream are not refused; apply.c calls this itself. */
bool snapshot_refuses_writes(void);
/* Saves to another file, and executes no commands meanwhile; the data count as not saved. 0 or a negative errno. */
int snapshot_save_as(const char *name);
/* SAVE: executes no commands meanwhile. Ends a running background save. */
int snapshot_save(void);
/* BGSAVE: `content` all zeros. Logs failures. 0 or a negative errno: -EBUSY if a save or child is running. */
int snapshot_start(const struct save_content *content);
bool snapshot_running(void); /* a background save */
/* The file of the running or last background save, whatever CONFIG SET has made of dir and dbfilename since. */
const char *snapshot_path(void);
