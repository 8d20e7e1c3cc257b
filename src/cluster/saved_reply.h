/* saved_reply.h: replies of commands that change the cluster, which leave when nodes.conf has the change.
 *
 * OK promises the client that the node knows the change after a crash, and that the messages about it left before the
 * reply: `valkey-cli --cluster fix` gives a slot to one node and at once uses another one. The loop does not wait for
 * the file (nodes_conf.h), so the client is blocked meanwhile, as by BLPOP.
 *
 * Main thread only. */
#ifndef CLUSTER_SAVED_REPLY_H
#define CLUSTER_SAVED_REPLY_H
#include "server/command/command.h"

enum { SAVED_REPLY_MAX = 40 };

/* The last thing that a handler does: replies with this status (at most SAVED_REPLY_MAX characters) when the change is
 * in the file; at once where nothing is unsaved or the client may not wait (a transaction, a script, a primary). */
void saved_reply(struct call *call, const char *status);
/* The first thing that such a handler does. True: the command has been executed, the call only ends the wait, and the
 * handler returns. */
bool saved_reply_continues(struct call *call);
/* Everything that was saved up to this ticket (file_writer.h) is on disk, and messages about it have left. */
void saved_reply_release(uint64_t ticket);

struct server_part;
extern const struct server_part saved_reply_part; /* behind the part that saves the changes of a turn */
#endif
