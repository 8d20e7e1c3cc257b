/* roles.h: changes of this server's role, for all who decide about it: REPLICAOF, FAILOVER, synchronous replication and
 * the cluster. The role itself is in server/role.h; the replica's side (replica/link.c) carries the changes out.
 * Main thread only. */
#pragma once
#include "lib/text/slice.h"
#include <stdbool.h>

enum repl_follow {
    REPL_FOLLOW,           /* with a partial synchronization if that is possible */
    REPL_FOLLOW_UNRELATED, /* the primary has another data set: without one */
    REPL_FOLLOW_FAILOVER   /* PSYNC asks the primary to hand over to this server (FAILOVER) */
};
void repl_follow(struct slice host, int port, enum repl_follow how);
void repl_lead(void);
/* Ends the link to the primary and keeps the position. `again`: the replica connects again within a second. */
void repl_drop_link(bool again);
/* Sends a request to the primary. No effect while the stream is not followed. */
void repl_say(int argc, const struct slice *argv);
/* Unblocks clients after this server has become a replica: they wait for a write that clients of a replica cannot make.
 * Blocked reads of clients that sent READONLY stay blocked. */
void repl_end_waits(void);

struct repl_role_hooks { /* what these functions call */
    void (*follow)(struct slice host, int port, enum repl_follow how);
    void (*lead)(void);
    void (*drop_link)(bool again);
    void (*say)(int argc, const struct slice *argv);
    void (*end_waits)(void);
};
extern const struct repl_role_hooks *repl_role_hooks; /* the replica's side installs them before the server starts */
