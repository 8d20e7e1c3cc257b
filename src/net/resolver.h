/* resolver.h: looks host names up without waiting for a name server.
 *
 * A thread, which runs only while names are in its queue, calls getaddrinfo() for one name after the other. The
 * answers are kept, so that a caller that asks again, as those do that try again every second, gets the answer of the
 * lookup that its first call started.
 *
 * For one thread of the process. */
#pragma once
#include "net/connection.h"

/* Returns 0 with the first address of the host; -ENOENT: the name does not resolve; -EAGAIN: it is being looked up for
 * the first time. The answer is the last one: if it is older than a second, the name is looked up again meanwhile. */
int resolver_find(const char *host, struct address *found);
