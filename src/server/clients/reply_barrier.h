/* reply_barrier.h: holds replies back until the writes that they acknowledge are safe (an fsync of the append only
 * file, copies on replicas). All code that sends data to a client or to another server asks the barrier first;
 * docs/durability.md lists these ways. Each command declares in its flags what its reply shows of the data (command.h).
 *
 * A feature that makes writes safe owns a barrier and arms it. While it is armed the feature calls
 * reply_barrier_issue() for each write, from its propagation listener, and reply_barrier_release() when all writes up
 * to a sequence number are safe. Sequence numbers only grow and are common to all barriers; a write is released when
 * every armed barrier that issued for it, or for an earlier one, has released it.
 *
 * What is held: replies to a command which may write, replies to a command that reads or shows data while writes are
 * unreleased (it may have seen them), and pushes (messages, invalidations, MONITOR lines), which could reveal such a
 * write to other clients. Answers outside of a call (nil at a timeout, ASK) count as reads. What is no reply (messages
 * on the cluster bus, MIGRATE) waits as a struct barrier_waiter. Everything else is sent immediately: the reply to PING
 * always, and replies to reads when no write is unreleased. Replies written before the first held one are sent before
 * it.
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
#pragma once
#include "lib/structures/linked_list.h"
#include "server/clients/client.h"
#include <stdint.h>

struct reply_barrier {
    struct list_link link;
    uint64_t issued, released; /* private */
    /* Called before data leave the server, for example in a reply to a command that reads. Returns true if this server
     * may show its data at this moment. Otherwise it has asked whether it may (or an earlier call of this turn has, and
     * the answer will cover this read, too) and has issued a number for that with reply_barrier_issue(), which it
     * releases with the answer. It does not decide whether all issued numbers are released. NULL: the server may always
     * show its data. */
    bool (*may_show)(struct reply_barrier *barrier);
    /* Returns the error for a request about data if this server will not show its data even after a wait, else NULL. It
     * is for answers outside of a call; commands are refused by a filter of the barrier's owner (dispatch.h). The text
     * is valid until the next call. May be NULL: then nothing is refused. */
    const char *(*refusal)(struct reply_barrier *barrier);
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
/* Held replies will never be sent: closes all clients that have some, and drops what else waits. Returns the number of
 * clients. */
size_t reply_barrier_close_waiting(void);

/* An answer about data outside of a call is written to the client next: nil at the timeout of a blocking command, ASK.
 * NULL: write it; it waits like the reply to a read. Otherwise write this error instead. */
const char *reply_barrier_before_answer(struct client *client);

/* Data that leave the server by another way than the output of a client wait here. `ended` is called once, in the order
 * of the calls of reply_barrier_when_shown(): with true when everything that was executed before that call is released
 * (and, if the call had to ask, when this server's right to show its data is confirmed), with false if that will not
 * happen. It is called from the loop, also within a nested turn, so it must not execute commands. */
struct barrier_waiter {
    struct list_link link;
    uint64_t sequence; /* private */
    void (*ended)(struct barrier_waiter *waiter, bool shown);
};
void reply_barrier_when_shown(struct barrier_waiter *waiter);
void reply_barrier_forget(struct barrier_waiter *waiter); /* `ended` is not called; the waiter may have ended */
/* True in a call that has asked, if nothing has to wait at this moment. */
bool reply_barrier_shows_now(void);
/* True if a barrier with may_show is armed: this server may be a replaced primary, whose data are not those of the
 * group. Otherwise replies only wait for an fsync: the data are valid, although a crash may lose them. */
bool reply_barrier_guards(void);
const char *reply_barrier_refusal(void); /* see struct reply_barrier */
/* For lists that are shown without a wait and contain only what is safe. Returns the number of the writes of the
 * running call or event. Store it in the list's entry, which may be shown when the number is released. */
uint64_t reply_barrier_number(void);
bool reply_barrier_is_released(uint64_t number);
/* True if every barrier permits this server to show data at this moment; may_show of the others was called. A request
 * that another server will execute as a write (MIGRATE) needs this when it is sent, in addition to the wait for what
 * was executed before. */
bool reply_barrier_may_show(void);

uint64_t reply_barrier_unreleased(void); /* writes issued and not released */
size_t reply_barrier_clients(void);      /* clients that wait */

/* For clients/ and dispatch only. */
struct held_replies;
extern struct client_listener reply_barrier_listener;
/* The held replies of the client; NULL: its replies go to its connection. */
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

/* One client's reply may wait for something else: a module. While it may be pinned, replies to commands that may write,
 * or also to those that read, are written to separate memory; they leave at the end of the turn unless one is pinned.
 */
enum barrier_pinning { PIN_NONE, PIN_WRITES, PIN_ALL };
void reply_barrier_may_pin(enum barrier_pinning pinning);
/* Within a call of the client that is not nested in another: its reply waits until reply_barrier_unpin(), and the
 * client executes nothing meanwhile. False: the reply does not go to separate memory, or is pinned already. A client
 * that is freed is pinned no more. Both may not be called for a client whose pin is not the caller's. */
bool reply_barrier_pin(struct client *client);
void reply_barrier_unpin(struct client *client); /* not within a call of the client */
