/* full_sync_stream.h: the full synchronization from a background save (persistence/background_save.h) that writes
 * "$EOF:<mark>", the RDB file and the mark into a pipe. The server reads the pipe in pieces and passes each piece, by
 * reference, to all replicas that take part. It stops reading while one replica has enough bytes queued, so memory is
 * bounded. The cron closes a replica that accepts no bytes for repl-timeout. The save uses no connection, so this works
 * with every transport.
 *
 * If the replicas are RDB channels and all of these are sockets, the save writes to them itself (direct_transfer.h). */
#pragma once
#include "repl/primary/replicas.h"

struct save_content;
/* `dual`: to RDB channels, which have already received the position of the copy. 0 or a negative errno. */
int full_sync_stream_start(const struct save_content *content, bool dual);
bool full_sync_stream_runs(void);
void full_sync_stream_resume(void); /* a connection has sent what was queued */
/* The replica's connection is closed. First full_sync_stream_leaves(): true if it has received its last bytes, or they
 * are on their way. At the end full_sync_stream_left(): the save is ended if no other replica receives. */
bool full_sync_stream_leaves(struct replica *replica);
void full_sync_stream_left(const struct replica *replica);
