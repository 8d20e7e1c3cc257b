/* snapshot.h: writes the data set to an RDB file, and what is known of the snapshots so far. */
#ifndef PERSISTENCE_SNAPSHOT_H
#define PERSISTENCE_SNAPSHOT_H
#include "formats/rdb_file.h"
#include "lib/structures/linked_list.h"
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

/* What a snapshot contains; all zeros: everything, in the oldest version of the format that holds it. */
struct snapshot_content {
    int version; /* as in struct rdb_save_params */
    bool without_keys, without_libraries;
    bool streamed; /* somebody reads along: what rdb-key-save-delay holds up is handed over first */
};
/* Writes the data set to a sink, as rdb_save() does, with what the options and other modules add. In this process or in
 * a child. */
int snapshot_write_to(struct sink *sink, const struct snapshot_content *content);
/* Called after each background save, once its state is noted. */
struct snapshot_listener {
    struct list_link link;
    void (*done)(bool success);
};
void snapshot_listen(struct snapshot_listener *listener);

/* The last background save failed, and stop-writes-on-bgsave-error says what follows. The stream of a primary is
 * executed all the same: what reads it asks. */
bool snapshot_refuses_writes(void);
/* As SAVE: in this process; then nothing is unsaved. Ends a background save. */
int snapshot_save(void);
/* As BGSAVE: in a child process. Logs what fails. 0 or a negative errno: -EBUSY where a child runs. */
int snapshot_start(void);
int snapshot_start_with(const struct snapshot_content *content);
bool snapshot_running(void); /* the child that runs writes a snapshot */
#endif
