/* saved_reply.h: delays the reply to a command that changes the cluster until nodes.conf on disk has the change.
 *
 * With OK the server promises that it knows the change even after a crash, and that it sent the messages about the
 * change before the reply. `valkey-cli --cluster fix` needs this: it gives a slot to one node and immediately uses
 * another node. The event loop does not wait for the file (nodes_conf.h), so the client is blocked, as by BLPOP.
 *
 * Main thread only. */
#pragma once
#include "server/command/command.h"

enum { SAVED_REPLY_MAX = 40 };

/* A handler calls this last. Replies with this status (at most SAVED_REPLY_MAX characters) when the change is in the
 * file, or immediately if nothing is unsaved or the client may not wait (a transaction, a script, a primary). */
void saved_reply(struct call *call, const char *status);
/* Such a handler calls this first. True: the command was executed before, and this call of the handler only ended the
 * wait: the handler returns. */
bool saved_reply_continues(struct call *call);
/* Sends the delayed replies to all changes up to this ticket (file_writer.h): they are on disk, and the messages about
 * them were sent. */
void saved_reply_release(uint64_t ticket);

struct server_part;
extern const struct server_part saved_reply_part; /* must come after the part that saves the changes of a turn */
