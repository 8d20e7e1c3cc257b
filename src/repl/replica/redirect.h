/* redirect.h: redirects clients of a replica to its primary. Main thread only. */
#ifndef REPL_REPLICA_REDIRECT_H
#define REPL_REPLICA_REDIRECT_H
#include "server/server.h"

extern const struct server_part redirect_clients_part;
void redirect_end_waits(void); /* repl_end_waits() */
#endif
