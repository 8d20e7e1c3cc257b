/* reply_barrier.h: holds replies back until the writes that they acknowledge are safe (an fsync of the append only
 * file, copies on replicas).
 *
 * A feature that makes writes safe owns a barrier and arms it. While it is armed the feature calls
 * reply_barrier_issue() for each write, from its propagation listener, and reply_barrier_release() when all writes up
 * to a sequence number are safe. Sequence numbers only grow and are common to all barriers; a write is released when
 * every armed barrier that issued for it, or for an earlier one, has released it.
 *
 * What waits. Replies of a client that has executed a command which may write, or a command that reads while writes are
 * unreleased (it may have seen them); and pushes (messages, invalidations, lines of MONITOR), which would let others
 * learn of such a write. Everything else is sent at once: PING is answered whatever is unreleased, and so are reads
 * when nothing is. Replies made before the first that must wait go ahead of it.
 *
 * How. Replies that wait are not written to the connection but to memory of their own, so no transport can send them
 * early. The batch of requests that the client has sent is executed to its end; then the client waits with the sequence
 * number that was issued last, and executes nothing more (client_hold) until its replies are released. So a client has
 * at most one batch of replies held, and a pipeline waits once. Pushes that come meanwhile form the next batch. All
 * clients whose writes are released together are flushed together, over every transport, with and without I/O threads.
 *
 * A client that is closed while it waits loses what was held: that is not acknowledged. The limits of
 * client-output-buffer-limit and maxmemory-clients count what is held. Without an armed barrier the cost is one test of
 * reply_barrier_armed for a call and for a push. Bytes that a feature writes to a connection's output by itself (the
 * replication stream) do not pass here.
 *
 * Main thread only: a background thread that has finished posts to the main loop (event_loop.h). */
#ifndef SERVER_REPLY_BARRIER_H
#define SERVER_REPLY_BARRIER_H
#include "lib/list.h"
#include "lib/output.h"
#include <stdint.h>

struct client;

struct reply_barrier {
    struct list_link link;
    uint64_t issued, released; /* private */
};
extern bool reply_barrier_armed; /* a barrier is */

/* The struct stays the caller's and must live until it is disarmed. Disarming releases what the barrier has issued. */
void reply_barrier_arm(struct reply_barrier *barrier);
void reply_barrier_disarm(struct reply_barrier *barrier);
/* A write has been executed. Returns its sequence number. */
uint64_t reply_barrier_issue(struct reply_barrier *barrier);
/* All writes up to `sequence` are safe. From an event of the loop the clients are flushed at once; from within a
 * command, before the loop waits. */
void reply_barrier_release(struct reply_barrier *barrier, uint64_t sequence);
/* Writes cannot be made safe for now (the disk is full), and nobody knows for how long: commands that only read are
 * answered, although they may see such a write. Replies to writes, and pushes, go on waiting. */
void reply_barrier_pass_reads(bool pass);
uint64_t reply_barrier_unreleased(void); /* writes issued and not released */
size_t reply_barrier_clients(void);      /* that wait */

/* For the files of clients and dispatch. */
struct held_replies;
/* Before a call that is not part of another one: redirects the client's replies where they will have to wait, by the
 * command's flags (dispatch_flags). Only while reply_barrier_armed. */
void reply_barrier_before_call(struct client *client, uint32_t command_flags);
/* Where a push to the client is to be written; only while reply_barrier_armed or where the client has held replies. */
struct output *reply_barrier_push_output(struct client *client);
/* The client, which has held replies, would be flushed. True: they wait, nothing after them may leave. */
bool reply_barrier_holds(struct client *client);
/* A reply to one of its requests, an error perhaps, was added to its held replies. */
void reply_barrier_replied(struct client *client);
void reply_barrier_forget(struct client *client);       /* drops them, and stops its waiting */
size_t reply_barrier_held(const struct client *client); /* bytes */
struct output *held_replies_output(struct held_replies *held);
/* Flushes what was released within a command; before the loop waits. */
void reply_barrier_flush(void);
extern bool reply_barrier_pending; /* there is something to flush */
#endif
