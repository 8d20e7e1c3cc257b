/* transactions.h: MULTI, EXEC, DISCARD, and WATCH.
 *
 * Queueing is a gate of dispatch.h that is there only while some client has a transaction open, so that nobody else
 * pays for it. A queued command keeps copies of its arguments (large ones as the blobs they arrived in) and is called
 * by EXEC as if it came from the client just then. A command that is refused while it is queued spoils the transaction:
 * EXEC answers EXECABORT. Watched keys stand in one table; the store's events look there while there are any. Main
 * thread only. */
#ifndef SERVER_TRANSACTIONS_H
#define SERVER_TRANSACTIONS_H
#include "server/command/command.h"

struct blob;
struct watch_list;

/* Makes the room known to dispatch and to the clients. Once, at start. */
void transactions_init(void);
/* The client's open transaction, if there is one, will fail: what it has queued need not be kept. Who calls it notes
 * why in the client's flags. */
void transaction_mark_dirty(struct client *client);
/* Bytes held for the client's open transaction. */
size_t transaction_memory(const struct client *client);
/* The blob of an argument of the queued call that runs; see call_take_blob(). NULL: none. */
struct blob *transaction_take_blob(const struct call *call, int index);
/* The blob whose bytes `argument` of that call is, without a reference. NULL: none. */
struct blob *transaction_find_blob(const struct client *client, struct slice argument);
extern const struct command_spec transaction_commands[];

/* watch.c. A client whose watched keys have changed has CLIENT_DIRTY_WATCH. */
void watch_key(struct client *client, struct db *db, struct slice key);
void unwatch_all(struct client *client);         /* and forgets that they changed */
size_t watch_keys(void);                         /* that anybody watches */
bool watch_expired(const struct client *client); /* a watched key's time has come since */
#endif
