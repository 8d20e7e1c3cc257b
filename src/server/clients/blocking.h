/* blocking.h: clients that wait for keys. All blocking commands use this mechanism.
 *
 * A handler that finds no data to reply with calls call_block() and returns without a reply. The server keeps the
 * command. When one of the keys changes into something that may serve the client, the server calls the handler again
 * from its beginning. The handler either replies, or finds no data again and calls call_block() once more; the client
 * then keeps its position in the queue and its timeout.
 *
 * The client that has waited longest is served first. Clients are served after the command (or the whole transaction)
 * that changed the key and before the next command of any client; serving a client may make other clients ready in
 * turn. While clients are paused none is served. A waiting client executes nothing else, but its connection keeps
 * receiving, so that the server detects a disconnect.
 *
 * In a context that must not block (a transaction or a script) call_block() replies at once. Main thread only. */
#pragma once
#include "server/command/command.h"

struct blocking {
    int first_key, key_count; /* consecutive arguments */
    const struct slice *keys; /* in their place; NULL: the arguments. Read by call_block() only */
    enum value_type type;     /* the type a key must have for the command to be called again */
    bool any_type;       /* in its place: any type, once a key of a type that commands wait for has come, or entries
                            of a stream, or after blocking_wake() */
    bool unless_present; /* also if the key is missing or has another type: the handler replies with an error
                            (XREADGROUP) */
    int64_t timeout_ms;  /* 0: no limit */
    bool call_at_end;    /* the command is called again when the time is up or CLIENT UNBLOCK ends the wait, with
                            CLIENT_DENY_BLOCKING: it must reply then. Also called so where it may not block */
    bool changes_later;  /* a command that waits for no key, but has changed nothing before it is called again: it
                            is refused then if the state of the server refuses it, like one that waits for keys */
    bool until_done;     /* nothing but a call of blocking_call_again() ends the wait: client_unblock() does not */
    void (*timed_out)(struct reply *reply); /* the reply after the timeout; NULL: a null array */
    void (*refused)(struct reply *reply);   /* the reply if blocking is not allowed; NULL: as timed_out */
    const struct slice *argv;   /* the command to keep and call again, with the call's argument count; NULL: the call's
                                   own arguments. For arguments that refer to the present ("$") */
    void *state;                /* of the command while it waits, for call_wait() */
    void (*ended)(void *state); /* called when the wait is over, however it ends: with a reply, an error, or the
                                   client. Takes the state back; may be NULL */
};
/* When the command is called again, the wait goes on as it began, and `how` counts only if it has another state: the
 * client then waits for something else, without a timeout. */
void call_block(struct call *call, const struct blocking *how);
/* The state of the wait for which the command is called again; NULL: this call is a new one, or its wait has another
 * `ended`. It is valid until the call returns. */
void *call_wait(const struct call *call, void (*ended)(void *state));
/* The key for which the command is called again; without data: for another reason. Valid until the call returns. */
struct slice call_ready_key(const struct call *call);
/* Parses argument `index` as a timeout: seconds with fractions, or whole milliseconds. False: replied with an error.
 */
bool call_timeout_seconds(struct call *call, int index, int64_t *timeout_ms);
bool call_timeout_milliseconds(struct call *call, int index, int64_t *timeout_ms);

/* A client without a connection waits only if it has an owner, who learns what happens to its command. The struct must
 * stay valid until `ended`, or blocking_cancel(). */
struct blocking_owner {
    void (*begins)(struct blocking_owner *owner); /* the command is about to be called again, or to be answered */
    /* That is over. `ended`: the command has replied, and the client waits no longer. */
    void (*over)(struct blocking_owner *owner, bool ended);
};
void blocking_set_owner(struct client *client, struct blocking_owner *owner); /* NULL: none */
/* Ends the wait of a client that has an owner, as if the client had gone. False: it does not wait, or its command runs.
 */
bool blocking_cancel(struct client *client);
/* The command may wait here: call_block() would not refuse it. */
bool call_may_block(const struct call *call);
/* Ends with this error the waits of clients that have an owner. */
void blocking_end_owned(const char *error);

/* CLIENT UNBLOCK: ends the wait as if it had timed out, or with `error` if that is not NULL. Returns false if the
 * client does not wait. */
bool client_unblock(struct client *client, const char *error);
const struct command *blocking_command(const struct client *client); /* that it waits in; NULL: it does not wait */
size_t blocking_request_size(const struct client *client);           /* bytes of the request that waits; 0: none does */
int blocking_slot(const struct client *client); /* of the keys it waits for, in cluster mode; -1: it does not wait */
/* Calls the command of a waiting client again, for commands that wait for something else than keys. Not within a call
 * of another client. */
void blocking_call_again(struct client *client);
/* Called when a wait in a slot (-1: none) ends without a call, for the ticks that its command ran before. NULL: not
 * wanted. */
extern void (*blocking_ended)(int slot, const struct command *command, uint64_t ticks);
size_t blocking_keys(bool unless_present_only);
uint64_t blocking_visited(void); /* waits visited to serve keys since the start: the cost of serving */

/* db_changed() for a change that cannot serve any client that waits for the key (entries were removed): no command is
 * called again for it. */
void blocking_changed_quietly(struct db *db, struct slice key);
/* db_set_expire(), which serves no client that waits, either. */
void blocking_set_expire_quietly(struct db *db, struct entry *entry, int64_t at_ms);
/* The value stays, or changes without db_changed(), but the commands that wait for the key and that it may serve are
 * called again (XREADGROUP after its group was destroyed). */
void blocking_wake(struct db *db, struct slice key);

/* Serves the clients that wait for keys that have changed. Dispatch calls this after each call that is not nested in
 * another, and the loop calls it before it waits. */
extern bool blocking_ready;
void blocking_serve(void);
