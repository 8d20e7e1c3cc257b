/* history.h: the history of this server's data: its id, and the second id (repl.h explains them). Main thread only. */
#pragma once
#include "lib/text/slice.h"
#include "server/role.h"
#include <stdbool.h>
#include <stdint.h>

struct repl_history {
    char second_id[REPL_ID_LEN + 1]; /* all zeros: none */
    int64_t second_offset;           /* first offset that is not part of the second id's history; -1: none */
};
extern const struct repl_history *const repl_history; /* its id, and the position in it, are role->position */
/* Begins a new history and clears the second id. A primary calls it when it frees the backlog: later changes are in no
 * stream, so no replica may continue the old history. */
void repl_history_new(void);
/* For a replica that becomes a primary: the id becomes the second id, and a new id begins at the current offset. With
 * local changes (role.h) there is no second id. */
void repl_history_branch(void);
/* For a replica that continues its primary's history. adopt: after a full synchronization, from the position of the
 * copy; no replica is connected, and nothing reads the stream. rename: the primary's reply to PSYNC names another id,
 * and the old id becomes the second id. */
void repl_history_adopt(const struct stream_position *position);
void repl_history_rename(struct slice id);
/* Whether `id` is the id of this history for all bytes before `offset`. */
bool repl_history_has(struct slice id, int64_t offset);

struct rdb_aux;
/* The AUX fields of RDB files, for struct repl_hooks. They are read only while the data set is loaded at start. */
size_t repl_history_write_aux(struct rdb_aux *fields);
bool repl_history_read_aux(struct slice name, struct slice value);
/* AUX field repl-stream-db. False: there is no such database, and *db is unchanged. */
bool repl_history_read_db(struct slice value, int *db);
/* AUX field repl-local-changes; others are ignored. */
void repl_history_read_local_changes(struct slice name, struct slice value, struct stream_position *position);
/* Called at start, before and after the data set is loaded: collects the AUX fields, and restores their position. */
void repl_history_start(void);
void repl_history_loaded(void);
