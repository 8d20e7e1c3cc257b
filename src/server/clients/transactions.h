/* transactions.h: MULTI, EXEC, DISCARD, and WATCH.
 *
 * Queueing is a filter of dispatch.h that is installed only while a client has a transaction open, so that other
 * clients pay nothing. A queued command keeps copies of its arguments (large ones as the blobs they arrived in); EXEC
 * calls it as if the client had just sent it. A command that is refused while it is queued makes the transaction dirty:
 * EXEC replies EXECABORT. One table holds the watched keys; the store's events look keys up in it while it is not
 * empty. Main thread only. */
#pragma once
#include "server/command/command.h"

struct blob;

/* Makes the client's open transaction, if it has one, fail at EXEC and frees its queued commands. The caller records
 * the reason in the client's flags. */
void transaction_mark_dirty(struct client *client);
/* A request was refused before it ran: an open transaction becomes dirty, and a refused EXEC drops it. `command`: NULL
 * if unknown. `elsewhere`: the error names another server (FILTER_ELSEWHERE). Returns true if it has replied. */
bool transaction_refused(struct client *client, const struct command *command, const char *error, bool elsewhere);
int transaction_queued(const struct client *client); /* commands queued; -1: the client has no open transaction */
/* The command flags of EXEC, which itself has the flags `own`: it writes if a queued command does, and may run on a
 * stale replica or while the server is loading if all of them may. */
uint32_t transaction_flags(const struct client *client, uint32_t own);
/* In cluster mode, the slot of all queued commands; -1: they have no keys; -2: they have different slots. */
int transaction_slot(const struct client *client);
void transaction_each(const struct client *client,
                      void (*visit)(void *context, const struct command *command, int argc, const struct slice *argv),
                      void *context);                   /* the queued commands */
struct db *transaction_db(const struct client *client); /* the one in which the next queued command will run */
bool transaction_runs(const struct client *client);     /* EXEC is calling them */
const struct command *transaction_exec(const struct client *client); /* the EXEC that does; NULL: none */
/* The blob of an argument of the queued call that runs; see call_take_blob(). NULL: none. Only if transaction_runs().
 */
struct blob *transaction_take_blob(const struct call *call, int index);
/* The blob that contains the bytes of `argument` of that call, without a reference. NULL: none. */
struct blob *transaction_find_blob(const struct client *client, struct slice argument);

/* watch.c. A client whose watched keys have changed has CLIENT_DIRTY_WATCH. */
void watch_key(struct client *client, struct db *db, struct slice key);
void unwatch_all(struct client *client);         /* also clears CLIENT_DIRTY_WATCH */
int watch_count(const struct client *client);    /* keys that it watches */
size_t watch_keys(void);                         /* number of keys watched by any client */
bool watch_expired(const struct client *client); /* a watched key has expired since */
