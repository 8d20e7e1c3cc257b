/* expiry.h: expires keys that clients wrote to a writable replica. */
#ifndef REPL_REPLICA_EXPIRY_H
#define REPL_REPLICA_EXPIRY_H
#include "server/server.h"

extern const struct server_part replica_expiry_part;
#endif
