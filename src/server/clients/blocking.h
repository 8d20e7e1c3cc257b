/* blocking.h: clients that wait for keys. The one mechanism for all commands that do.
 *
 * A handler that finds nothing to answer with calls call_block() and returns without a reply. The command is kept, and
 * called again, from its beginning, when one of the keys has changed into something that may serve it: then the handler
 * either answers, or finds nothing again and calls call_block() once more, by which nothing changes: the client keeps
 * its place and its time.
 *
 * Who has waited longest is served first. Clients are served after the command (or the whole transaction) that changed
 * the key, before anybody's next command; what they do may serve others in turn. While clients are paused nobody is
 * served. A waiting client executes nothing else, but its connection goes on receiving, so that its end is noticed.
 *
 * Where nothing may wait (in a transaction or a script) call_block() answers at once. Main thread only. */
#ifndef SERVER_BLOCKING_H
#define SERVER_BLOCKING_H
#include "server/command/command.h"

struct blocking {
    int first_key, key_count; /* among the arguments, one after the other */
    enum value_type type;     /* what a key must be to be looked at again */
    bool
        unless_present; /* also when it is missing or of another type: the handler answers with an error (XREADGROUP) */
    int64_t timeout_ms; /* 0: for ever */
    void (*timed_out)(struct reply *reply); /* the answer when time has run out; NULL: a null array */
    void (*refused)(struct reply *reply);   /* the answer where nothing may wait; NULL: timed_out's */
    const struct slice *argv; /* what is kept and called again, as many arguments; NULL: those of the call. For
                                 arguments that mean the present ("$") */
};
void call_block(struct call *call, const struct blocking *how);
/* Reads argument `index` as a timeout: seconds with fractions, or whole milliseconds. False: the error is replied. */
bool call_timeout_seconds(struct call *call, int index, int64_t *timeout_ms);
bool call_timeout_milliseconds(struct call *call, int index, int64_t *timeout_ms);

/* CLIENT UNBLOCK: ends the waiting as if time had run out, or (`error` not NULL) with that error. False: it does not
 * wait. */
bool client_unblock(struct client *client, const char *error);
size_t clients_blocked(void);
size_t blocking_keys(bool unless_present_only);
uint64_t blocking_visited(void); /* waits that were looked at to serve keys, since the start: what serving costs */

/* db_changed() for a change that cannot give anything to those who wait for the key (entries are gone): none of them is
 * called again for it. */
void blocking_changed_quietly(struct db *db, struct slice key);
/* And where the value stays, but those who wait are to be called again (XREADGROUP, when its group is gone). */
void blocking_wake(struct db *db, struct slice key);

/* Serves who waits for keys that have changed. Called by dispatch after each call that is not part of another, and
 * before the loop waits. */
extern bool blocking_ready;
void blocking_serve(void);
void blocking_init(void);
#endif
