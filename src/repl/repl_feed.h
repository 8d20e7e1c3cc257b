/* repl_feed.h: propagated commands become bytes of the replication stream (repl_stream.h). */
#ifndef REPL_REPL_FEED_H
#define REPL_REPL_FEED_H

/* Listens to propagation while the stream is active and this server is a primary. Called after either changed. */
void repl_feed_update(void);
/* The next command is preceded by SELECT: a replica that begins at a snapshot has no database selected. No effect on a
 * replica, whose own replicas get the stream of its primary. */
void repl_feed_select_again(void);
/* Commands that concern no database. Nothing is written while the stream is not active or this server is a replica. */
void repl_feed_ping(void);
void repl_feed_getack(void); /* asks all replicas for REPLCONF ACK */
#endif
