/* restore_large.h: RESTORE of a large payload, while other clients are served.
 *
 * To check and load a payload of many bytes takes long. If the client can wait, the payload of more than
 * RESTORE_LARGE_MIN bytes is loaded from the loop, for at most about a millisecond in each turn, into a database of its
 * own that nobody sees. Then the call is made again. It checks again what may have changed meanwhile (BUSYKEY, the
 * role, the owner of the slot), and moves the value to its key in one step: db_rename(). A relative time to live counts
 * from the first call. Whoever repeats the command, replicas and the append-only file, gets the whole payload by
 * reference.
 *
 * A node of a list or stream, all groups of a stream, and a value in one piece (a string, a listpack) are loaded in one
 * step. Transactions, scripts, the stream of a primary and files do not wait: they load as one piece.
 *
 * If the client leaves or is unblocked, the load ends, and what it has is freed in the background. Main thread only. */
#ifndef COMMANDS_RESTORE_LARGE_H
#define COMMANDS_RESTORE_LARGE_H
#include "server/command/command.h"

struct source;
struct large_load;
enum { RESTORE_LARGE_MIN = 256 * 1024 };

/* The payload, argv[3], is large and has a version that is accepted, and the client can wait. */
bool large_load_possible(const struct call *call);
void large_load_begin(struct call *call); /* the call waits */
/* What the call has waited for; NULL: it has not waited. It is freed after the call. */
struct large_load *large_load_of(const struct call *call);
/* True: it is not over, and the call waits on, or CLIENT UNBLOCK has ended it. */
bool large_load_waits(struct large_load *load, struct call *call);
/* Once: the entry, in large_load_db(). NULL: *failure says why; NULL: the checksum is wrong. */
struct entry *large_load_entry(struct large_load *load, const struct source **failure);
struct db *large_load_db(const struct large_load *load);
int64_t large_load_began_ms(const struct large_load *load);
/* call_propagate() with the payload as argv[3]. */
void large_load_propagate(const struct large_load *load, struct call *call, int argc, struct slice *argv);
#endif
