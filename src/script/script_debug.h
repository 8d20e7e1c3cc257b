/* script_debug.h: debugging sessions of scripts. Knows no language: lua_debug.c is the debugger of Lua.
 *
 * SCRIPT DEBUG YES or SYNC puts a client into debugging mode. Its next EVAL starts a session: the script stops at its
 * first line, and from then on each request of the client is a command of the debugger. The debugger answers each with
 * an array of status replies, its lines. At the end come the line "<endsession>" and the reply to EVAL; then the server
 * closes the connection, since the client has to leave the session's protocol.
 *
 *   YES   The script runs in a forked process (server/process/child.h), on a copy of the data set that is dropped at
 *         the end. The server goes on. The connection stays in the server, which passes requests and output through a
 *         socket pair: so a session works over every transport, RDMA and TLS included, CLIENT LIST shows the client,
 *         and `timeout` and CLIENT KILL end a session as they end any client. Rejected: a child that uses the
 *         connection itself. It cannot over RDMA, nor while an I/O thread owns the connection.
 *   SYNC  The script runs in the server and its changes stay. It counts as a busy script until it ends: other clients
 *         get the error BUSY, SCRIPT KILL stops it while it has written nothing.
 *
 * If the client goes away, a forked session ends; a script in the server runs on to its end. Main thread only. */
#ifndef SCRIPT_SCRIPT_DEBUG_H
#define SCRIPT_SCRIPT_DEBUG_H
#include "lib/slice.h"
#include <stdbool.h>
#include <stddef.h>

struct call;
struct script_session;
extern struct script_session *script_session; /* the one that runs in this process; NULL: none */

/* SCRIPT DEBUG. */
void script_debug_set(struct call *call, struct slice mode);
/* EVAL: starts a session if the client is in debugging mode. True: `call` is done for now. `eval` executes it, within
 * the session. */
bool script_debug_takes(struct call *call, void (*eval)(struct call *call));
bool script_debug_is_on(const struct call *call); /* the client is in debugging mode */

/* --- For the debugger of a language, while script_session is not NULL --- */

/* The text of the script, all of it. */
struct slice script_session_text(void);
bool script_session_blocks_server(void); /* SYNC */
/* Sends the lines and waits for the next request. NULL: there will be none, the script has to run on. The arguments are
 * valid until the next call. */
const struct slice *script_session_read(int *argc);
/* Adds a line; control characters become spaces. Beyond some megabytes that the client has not asked for, lines are
 * dropped. */
void script_session_line(struct slice text);
void script_session_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* To be called every now and then while the script runs. True: it was killed and must end. */
bool script_session_poll(void);
#endif
