/* primary.h: sends the stream to replicas, and takes their acknowledgements. Main thread only. */
#pragma once
#include "repl/primary/replicas.h"
#include "server/server.h"

extern const struct server_part primary_part;
extern const struct command_spec handshake_commands[]; /* handshake.c */

void replica_send_stream(struct replica *replica); /* as much of the stream as the connection takes */
/* The full copy is sent: the replica goes online, or is done. `await_ack`: the stream begins with its first
 * acknowledgement, which says that it has loaded the copy. */
void replica_put_online(struct replica *replica, bool await_ack);
void replica_acknowledged(struct replica *replica, int64_t offset, int64_t fsynced);
