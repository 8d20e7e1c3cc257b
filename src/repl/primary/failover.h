/* failover.h: FAILOVER: a primary hands its role to one of its replicas. Main thread only. */
#pragma once
#include "server/command/command.h"
#include "server/server.h"

extern const struct server_part failover_part;
extern const struct command_spec failover_commands[];

/* PSYNC with the argument FAILOVER: the primary hands its role to this replica. False: it replied with an error. */
bool repl_failover_asked(struct call *call);
void repl_failover_refused(void); /* the replica refuses to take over */
bool repl_failover_running(void);
const char *repl_failover_state(void); /* as INFO shows it */
