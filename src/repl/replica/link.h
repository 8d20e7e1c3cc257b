/* link.h: the link of this server to its primary, and which file owns its connection:
 *
 *     link.c          owns the link: connects, shakes hands, asks for a synchronization, and starts over when the link
 *                     breaks
 *     copy.c          owns a connection while it receives and loads a full copy
 *     dual_channel.c  owns both connections of a synchronization on two channels; uses copy.c
 *     apply.c         owns the connection while it executes the stream
 *
 * Main thread only. */
#pragma once
#include "lib/text/slice.h"
#include "net/connection.h"
#include "repl/roles.h"
#include "server/command/command.h"
#include "server/server.h"
#include "server/role.h"
#include <stdbool.h>

extern const struct server_part replica_part;
extern const struct server_part replica_expiry_part;   /* expiry.c */
extern const struct server_part redirect_clients_part; /* redirect.c */
extern const struct command_spec replicaof_commands[]; /* replicaof.c */
void redirect_end_waits(void);                         /* redirect.c: repl_end_waits() */
extern const struct repl_role_hooks replica_role_hooks;

bool replica_link_is_on(void); /* this server is a replica whose link was not dropped */
/* The data no longer match a position in the history: the next synchronization is a full one. */
void replica_forget_position(void);
void replica_stream_refused(void); /* the same after a command that cannot be executed; may delay the next attempt */
/* The full copy is loaded, and the data are those of this position. Follows the stream on `conn` from there. */
void replica_synchronized(struct connection *conn, const struct stream_position *at);
/* Reads a line of a handshake from the connection, without its line end, NUL-terminated. The primary sends empty lines
 * as keepalives. Returns the length, -1 if the line is not complete, -2 if it is longer than REPLICA_LINE_MAX; `line`
 * is then the first REPLICA_LINE_SHOWN bytes, as many as Valkey logs of one. */
enum { REPLICA_LINE_MAX = 1024, REPLICA_LINE_SHOWN = 255 };
int replica_read_line(struct connection *conn, char line[static REPLICA_LINE_MAX]);
/* The id in the reply +CONTINUE; "": it has none. NULL: it is malformed, or another reply. */
const char *replica_continue_id(const char *line);
void replica_send(struct connection *conn, int argc, const struct slice *argv);
int replica_listening_port(void); /* the port to announce */

void replica_stream_ended(void); /* apply.c: the connection is closed */
