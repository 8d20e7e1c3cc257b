/* client_private.h: what the client_*.c files tell one another and nobody else. */
#ifndef SERVER_CLIENT_PRIVATE_H
#define SERVER_CLIENT_PRIVATE_H
#include "server/clients/client.h"

void client_retarget(struct client *client); /* reply.out as the client's flags want it */
void client_flush(struct client *client); /* at the end of a turn, now or before the loop waits; frees a client that is
                                             to be closed and has nothing left */
void client_flush_forget(struct client *client);
void client_count_bytes(struct client *client); /* what came and went since the last time, into client_stats */
/* The COMMANDLOG's sizes of a call that dispatch_call executes. client_call_starts stands before it, client_call_ends
 * after it, where request or reply may be large. */
struct call_start {
    const char *pos; /* where the reply begins in conn->out */
    uint64_t calls;  /* client->commands */
    size_t held;     /* reply_barrier_held() */
};
void client_call_starts(struct client *client, struct call_start *start);
void client_call_ends(struct client *client, const struct call_start *start, int argc, const struct slice *argv,
                      size_t request_size);
void client_cron_forget(struct client *client);
void client_pause_forget(struct client *client);
extern bool client_memory_bounded; /* maxmemory-clients is set: note what clients hold */
void client_memory_note(struct client *client);
void client_memory_forget(struct client *client);
struct call;
void client_kill_run(struct call *call);
void client_events_tell(struct client *client);
void client_events_tell_reset(struct client *client);
#endif
