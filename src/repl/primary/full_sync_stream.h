/* full_sync_stream.h: the full synchronization from a background save (persistence/background_save.h) whose thread
 * writes "$EOF:<mark>", the RDB file and the mark, in pieces, into a queue. The main thread passes each piece, by
 * reference, to all replicas that take part. It takes none while one replica has enough bytes queued, and the thread
 * waits while the queue is full, so memory is bounded. The cron closes a replica that accepts no bytes for
 * repl-timeout. The thread uses no connection, so this works with every transport. */
#pragma once
#include "repl/primary/replicas.h"

struct save_content;
/* `dual`: to RDB channels, which have already received the position of the copy. 0 or a negative errno. */
int full_sync_stream_start(const struct save_content *content, bool dual);
bool full_sync_stream_runs(void);
void full_sync_stream_resume(void);   /* a connection has sent what was queued */
size_t full_sync_stream_memory(void); /* bytes in the queue */
/* Whether the last bytes of the copy were passed to the replica's connection. */
bool full_sync_stream_sent(const struct replica *replica);
/* The replica's connection is closed: the save is ended if no other replica receives. */
void full_sync_stream_left(const struct replica *replica);
