/* dispatch.h: from a request to its handler: lookup, checks, the call, statistics, propagation.
 *
 * A feature that may refuse or hold back commands (ACL, transactions, cluster, disk errors, too few replicas, a
 * read-only replica, loading, a busy script) adds a filter. Dispatch calls the filters in Valkey's order, after it has
 * found the command and checked its arity and the client's authentication. A filter for some commands only names their
 * flags, which costs other commands a test of a word; without filters there is no cost. */
#pragma once
#include "lib/structures/linked_list.h"
#include "server/command/command.h"

struct client;

/* The order in which filters are called. */
enum filter_order {
    FILTER_FIRST = 0, /* for these, client->current is still the command before */
    FILTER_NO_MULTI = 10,
    FILTER_ACL = 20,
    FILTER_CLUSTER = 30,
    FILTER_MEMORY = 40,
    FILTER_DISK = 50,
    FILTER_REPLICAS = 60,
    FILTER_READONLY = 70,
    FILTER_PUBSUB = 80,
    FILTER_STALE = 90,
    FILTER_LOADING = 100,
    FILTER_BUSY = 110,
    FILTER_MONITOR = 115,
    FILTER_PAUSE = 120,
    FILTER_QUEUE = 130
};
enum filter_answer {
    FILTER_PASS,
    FILTER_REFUSE,    /* with the error in *error, a complete error text */
    FILTER_ELSEWHERE, /* the same, but the error names another server: within EXEC it is the reply to EXEC itself */
    FILTER_TAKEN,     /* handled otherwise (queued) and answered */
    FILTER_ASK,       /* of look(): ask() must decide */
    FILTER_HOLD       /* not now: the request stays in its client, and is dispatched again after client_release() */
};
struct command_filter {
    struct list_link link;
    int order;
    uint32_t flags;   /* called for commands that have one of these; 0: for all */
    bool asks_obeyed; /* also called for clients that must be obeyed (client.h): it does more than limit clients */
    /* Comes before ask(), and must be cheap. FILTER_PASS: ask() would pass the request and do nothing else.
     * FILTER_TAKEN: see dispatch_refuse_moved(). FILTER_ASK: ask() must decide. May be NULL. */
    enum filter_answer (*look)(struct client *client, const struct command *command, int argc,
                               const struct slice *argv);
    enum filter_answer (*ask)(struct client *client, const struct command *command, int argc, const struct slice *argv,
                              const char **error);
};
void dispatch_add_filter(struct command_filter *filter);
void dispatch_remove_filter(struct command_filter *filter);
void dispatch_set_filter(struct command_filter *filter,
                         bool on); /* adds or removes it; each may have been done before */
/* Flags of the command for filters: EXEC also has those of all commands it will run, and a script may replicate. */
uint32_t dispatch_flags(const struct client *client, const struct command *command, const struct slice *argv);
/* Looks a request up, checks it and runs it. Returns false if it is held back (FILTER_HOLD): dispatch it again later.
 */
bool dispatch_request(struct client *client, int argc, const struct slice *argv);
/* A function that changes the arguments of a request of a client, a script or a module before its command is looked up,
 * once. NULL: there is none. It replaces argc (at least 1) and argv. If it does, it sets `free`, which is called after
 * the execution, and `keep`, which is called when the request is held back: the arguments must then not be in the
 * request's memory any more. It may free the client. */
struct request_rewrite {
    struct client *client;
    int argc;
    const struct slice *argv;
    void (*free)(struct request_rewrite *rewrite); /* NULL: nothing was changed */
    void (*keep)(struct request_rewrite *rewrite);
    void *state;
};
extern void (*dispatch_rewrite)(struct request_rewrite *rewrite);
/* The text of the error for a request without a command of that name, without the error's code and a line end.
 * `parent`: the container whose subcommand is unknown, or NULL. */
enum { DISPATCH_UNKNOWN_TEXT = 512 };
void dispatch_unknown_text(char text[static DISPATCH_UNKNOWN_TEXT], int argc, const struct slice *argv,
                           const struct command *parent);
/* Replies with an error to a request before its lookup; an open transaction becomes dirty. */
void dispatch_refuse(struct client *client, const char *error);
/* For a filter's look(): refuses the request of a client without an open transaction as FILTER_ELSEWHERE does, with
 * fewer instructions. The error has no line break. */
void dispatch_refuse_moved(struct client *client, const struct command *command, struct slice error);
/* Runs a command that was already checked (EXEC, scripts). slot: see struct call. */
void dispatch_call(struct client *client, struct command *command, int argc, const struct slice *argv, int slot);

/* Called for a request of `size` bytes that a filter refused, or took to queue it. NULL: not wanted. */
extern void (*dispatch_stopped)(struct client *client, const struct command *command, size_t size);

/* Asks the filters of some kinds, a set of 1u << (order / 10), about a command that has the given flags, and does not
 * run it. Returns the error of the first filter that refuses it, NULL: none. For commands of scripts. */
#define FILTER_BIT(order) (1u << (order) / 10)
const char *dispatch_ask(struct client *client, const struct command *command, uint32_t flags, int argc,
                         const struct slice *argv, uint32_t orders);

/* Argument `index` is a secret: logs and monitors leave it out. */
void call_redact(struct call *call, int index);
/* Selects another database for the call and its client. */
void call_select(struct call *call, struct db *db);

/* Called when the function of a command has returned, before the call is accounted for and propagated. NULL: not
 * wanted. */
extern void (*dispatch_function_returned)(void);
/* Called after a call that no other one has made, when it is accounted for and propagated. NULL: not wanted. */
extern void (*dispatch_unit_ended)(void);

/* Called for each call (`before` for MONITOR). The struct belongs to its owner. */
struct call_listener {
    struct list_link link;
    void (*before)(struct call *call);                /* may be NULL */
    void (*after)(struct call *call, uint64_t ticks); /* may be NULL */
    bool again;      /* call `after` each time a command that has blocked is called again, too */
    bool state_only; /* not for the calls of clients without state (client_state()), which then pay nothing. It is
                        called for all calls that are made by another one: a script's. `before` must be NULL */
};
void call_listen(struct call_listener *listener);
void call_unlisten(struct call_listener *listener);

/* The clock of a turn: the time at which the last call ended (ticks.h). Code that begins to execute requests sets it.
 */
extern uint64_t dispatch_ticks;
extern uint64_t dispatch_ticks_total; /* of all commands */

struct dispatch_settings {
    bool latency_tracking;
};
extern struct dispatch_settings dispatch_settings;
extern uint64_t dispatch_commands; /* executed, since start or RESETSTAT */
/* Counts an execution that dispatch did not end itself: that of a command that blocked, for `ticks` of work. */
void dispatch_account(struct client *client, struct command *command, int argc, const struct slice *argv,
                      uint64_t ticks);
/* The call that runs, NULL: none. For crash reports and long calls. */
const struct call *dispatch_running(void);
/* The client whose request is being executed, for a script its caller; NULL: none. */
struct client *dispatch_requester(void);
/* The client of the innermost call whose client has a connection. Not the requester if the call runs in a turn of the
 * loop within another client's call. NULL: there is none. */
struct client *dispatch_caller(void);
bool dispatch_is_nested(void);                         /* the call that runs was made by a transaction or a script */
bool dispatch_is_running(const struct client *client); /* one of the running calls is this client's */
/* One of the running calls replies into this client's output: nobody else may write to, flush or release that output
 * until the call has ended (server/nested_turn.h). Not so while a call of the client's replies elsewhere, as a
 * debugging session does. */
bool dispatch_replies_to(const struct client *client);
