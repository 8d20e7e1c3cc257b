/* repl_feed.h: writes propagated commands to the replication stream (repl_stream.h). */
#ifndef REPL_REPL_FEED_H
#define REPL_REPL_FEED_H
#include "lib/text/slice.h"

/* Starts or stops listening to propagation: it listens while the stream is active and this server is a primary. Call it
 * after either has changed. */
void repl_feed_update(void);
/* Writes SELECT before the next command: a replica that begins at a snapshot has no database selected. No effect on a
 * replica, whose sub-replicas get the stream of its primary. */
void repl_feed_select_again(void);
/* Write commands that concern no database. No effect while the stream is not active or this server is a replica. */
void repl_feed_ping(void);
void repl_feed_request(int argc, const struct slice *argv);
void repl_feed_getack(void); /* asks all replicas for REPLCONF ACK */
#endif
