/* expiry.h: expires keys that clients wrote to a writable replica. */
#pragma once
#include "server/server.h"

extern const struct server_part replica_expiry_part;
