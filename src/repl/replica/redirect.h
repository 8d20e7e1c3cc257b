/* redirect.h: redirects clients of a replica to its primary. Main thread only. */
#pragma once
#include "server/server.h"

extern const struct server_part redirect_clients_part;
void redirect_end_waits(void); /* repl_end_waits() */
