/* reply_barrier.h: holds replies back until the writes that they acknowledge are safe (an fsync of the append only
 * file, copies on replicas).
 *
 * A feature that makes writes safe owns a barrier and arms it. While it is armed the feature calls
 * reply_barrier_issue() for each write, from its propagation listener, and reply_barrier_release() when all writes up
 * to a sequence number are safe. Sequence numbers only grow and are common to all barriers; a write is released when
 * every armed barrier that issued for it, or for an earlier one, has released it.
 *
 * What is held: replies to a command which may write, replies to a command that reads while writes are unreleased (it
 * may have seen them), and pushes (messages, invalidations, MONITOR lines), which could reveal such a write to other
 * clients. Everything else is sent immediately: the reply to PING always, and replies to reads when no write is
 * unreleased. Replies written before the first held one are sent before it.
 *
 * How it works: held replies are written to separate memory instead of the connection, so no transport can send them
 * early. The server executes all requests that it has received from the client. Then the client waits for the last
 * issued sequence number and executes nothing more (client_hold) until its replies are released. So a client has at
 * most one batch of held replies, and a pipeline waits once. Pushes that are written during the wait form the next
 * batch. All clients whose writes are released together are flushed together, over every transport, with and without
 * I/O threads.
 *
 * If a waiting client is closed, its held replies are discarded and its writes stay unacknowledged.
 * client-output-buffer-limit and maxmemory-clients count held bytes. Without an armed barrier the cost is one test of
 * reply_barrier_armed for a call and for a push. Bytes that a feature writes to a connection's output directly (the
 * replication stream) bypass the barrier.
 *
 * Main thread only: a background thread that has finished posts to the main loop (event_loop.h). */
#ifndef SERVER_CLIENTS_REPLY_BARRIER_H
#define SERVER_CLIENTS_REPLY_BARRIER_H
#include "lib/structures/linked_list.h"
#include "lib/text/output.h"
#include "server/clients/client.h"
#include <stdint.h>

struct reply_barrier {
    struct list_link link;
    uint64_t issued, released; /* private */
    /* Called before data leave the server (a reply to a command that reads). True: this server may show its data at
     * this moment. False: the callback has called reply_barrier_issue(), and releases that number when this server
     * knows that it could show the data after the call. NULL: it always may. Whether everything that was issued is
     * released is not its business. */
    bool (*may_show)(struct reply_barrier *barrier);
};
extern bool reply_barrier_armed; /* at least one barrier is armed */

/* The caller keeps the struct and must not free it before it is disarmed. Disarming releases all that the barrier
 * issued. */
void reply_barrier_arm(struct reply_barrier *barrier);
void reply_barrier_disarm(struct reply_barrier *barrier);
/* A write has been executed. Returns its sequence number. */
uint64_t reply_barrier_issue(struct reply_barrier *barrier);
/* All writes up to `sequence` are safe. Called from an event of the loop, it flushes the clients immediately; called
 * within a command, they are flushed at the end of the turn. */
void reply_barrier_release(struct reply_barrier *barrier, uint64_t sequence);
/* Writes cannot be made safe for an unknown time (the disk is full). While `pass` is set, replies to commands that only
 * read are sent, although they may show such a write. Replies to writes, and pushes, continue to wait.
 * It has no effect while another barrier is armed: a read must not show what that one holds back. */
void reply_barrier_pass_reads(bool pass);
/* Held replies will never be sent: closes all clients that have some. Returns their number. */
size_t reply_barrier_close_waiting(void);
uint64_t reply_barrier_unreleased(void); /* writes issued and not released */
size_t reply_barrier_clients(void);      /* clients that wait */

/* For clients/ and dispatch only. */
struct held_replies;
extern struct client_listener reply_barrier_listener;
/* What the client holds; NULL: its replies go to its connection. */
static inline struct held_replies *reply_barrier_replies(const struct client *client) {
    return client_state(client, &reply_barrier_listener);
}
/* Before a call that is not nested in another one: redirects the client's replies if they must be held, according to
 * the command's flags (dispatch_flags). Only while reply_barrier_armed. */
void reply_barrier_before_call(struct client *client, uint32_t command_flags);
/* The output for a push to the client; call it only while reply_barrier_armed or if the client has held replies. */
struct output *reply_barrier_push_output(struct client *client);
/* Called to flush a client with held replies. True: they wait, and nothing after them may be sent. */
bool reply_barrier_holds(struct client *client);
/* A reply (or an error) to one of its requests was added to its held replies. */
void reply_barrier_replied(struct client *client);
/* Whether the client executes nothing until its replies are released: it is held by one client_hold(). */
bool reply_barrier_holds_requests(const struct client *client);
bool reply_barrier_holds_replies(const struct client *client); /* to its requests, flushed or not */
size_t reply_barrier_held(const struct client *client);        /* bytes */
/* Undoes reply_barrier_before_call() for a call that writes its replies elsewhere. Before the call replies to the
 * client it must call reply_barrier_before_call() again. */
void reply_barrier_call_replies_elsewhere(struct client *client);
struct output *held_replies_output(struct held_replies *held);
/* Flushes the replies that were released within a command; before the loop waits. */
void reply_barrier_flush(void);
extern bool reply_barrier_pending; /* there is something to flush */
#endif
