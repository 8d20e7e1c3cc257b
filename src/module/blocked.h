/* blocked.h: clients whose command waits for a module.
 *
 * The command calls BlockClient() and returns without a reply. It waits as blocking commands do (server/clients/
 * blocking.h) until the module calls UnblockClient(), from any thread, or until its time is up. Then the server calls
 * the module's reply or timeout function. The struct lives until both the wait has ended and the module has let it go.
 * A client that waits for keys is served without the module: its struct lives until the wait has ended. */
#pragma once
#include "module/context.h"
#include "net/event_loop.h"

struct ValkeyModuleBlockedClient {
    struct list_link link; /* in the list of those to be served, or in module->refused */
    struct event_post post;
    struct module *module;
    struct client *client; /* NULL: the wait has ended */
    uint64_t client_id;
    struct db *db;
    ValkeyModuleCmdFunc reply_function, timeout_function;
    void (*free_data)(ValkeyModuleCtx *, void *);
    ValkeyModuleDisconnectFunc gone;
    void *data;
    bool unblocked; /* UnblockClient was called and has reached the main thread */
    bool asked;     /* UnblockClient was called, and `data` is set; atomic */
    bool aborted, replied;
    struct client *pinned;                  /* whose reply waits, for a listener of its command; NULL: none does */
    bool on_keys, timed;                    /* timed: the wait has a timeout */
    uint64_t measure_began_us, measured_us; /* BlockedClientMeasureTimeStart; 0: none runs */
    struct memory_output output;            /* what contexts of threads have replied */
    struct memory_output errors; /* the errors among that, a line each: they are counted on the main thread */
    struct reply reply;
    ValkeyModuleAuthCallback auth_function; /* BlockClientOnAuth */
    void *auth;                             /* of users.c */
};
/* The command of a client that waits is called again. */
void blocked_serve(struct ValkeyModuleCtx *ctx, struct ValkeyModuleBlockedClient *bc);
/* The wait for which the command is called again; NULL: the call is a new one. */
struct ValkeyModuleBlockedClient *blocked_of_call(const struct call *call);
void blocked_before_wait(void); /* serves those that could not be served within a call or a load */
