/* script_debug.h: debugging sessions of scripts. Independent of the script language: lua_debug.c is the debugger of
 * Lua.
 *
 * SCRIPT DEBUG YES or SYNC puts a client into debugging mode. Its next EVAL starts a session: the script stops at its
 * first line, and from then on each request of the client is a command of the debugger. The debugger replies to each
 * with an array of status replies, its lines. The session ends with the line "<endsession>" and the reply to EVAL. Then
 * the server closes the connection, because the client must leave the session's protocol.
 *
 *   YES   The script runs in a forked process (server/process/child.h), on a copy of the data set that is dropped at
 *         the end. The server continues. The connection stays in the server, which passes requests and output through a
 *         socket pair: so a session works over every transport, RDMA and TLS included, CLIENT LIST shows the client,
 *         and `timeout` and CLIENT KILL end a session as they end any client. Rejected: a child that uses the
 *         connection itself. It cannot over RDMA, nor while an I/O thread owns the connection.
 *   SYNC  The script runs in the server and its changes stay. It counts as a busy script until it ends: other clients
 *         get the error BUSY, SCRIPT KILL stops it while it has written nothing.
 *
 * If the client disconnects, a forked session ends; a script in the server runs to its end without the debugger. Main
 * thread only. */
#pragma once
#include "lib/text/slice.h"
#include <stdbool.h>

struct call;
struct script_session;
extern struct script_session *script_session; /* the session in this process; NULL: none */

/* SCRIPT DEBUG. */
struct script_engine;
void script_debug_set(struct call *call, struct slice mode, struct script_engine *engine);
/* Called by EVAL: starts a session if the client is in debugging mode. True: the handler must return; the session
 * executes `call` with `eval`. */
bool script_debug_takes(struct call *call, void (*eval)(struct call *call));
bool script_debug_is_on(const struct call *call); /* the client is in debugging mode */

/* --- For the debugger of a language, while script_session is not NULL --- */

/* The complete text of the script. */
struct slice script_session_text(void);
bool script_session_blocks_server(void); /* SYNC */
/* Sends the lines and waits for the next request. NULL: there are no more requests; the script must run to its end. The
 * arguments are valid until the next call. */
const struct slice *script_session_read(int *argc);
/* Adds a line to the output; control characters become spaces. Lines are dropped while several megabytes of output are
 * waiting for the next request. */
void script_session_line(struct slice text);
void script_session_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Sends the lines at once, as one reply: then script_session_read() sends no more unless there are further lines. */
void script_session_flush(void);
/* Must be called periodically while the script runs. True: the script was killed and must end. */
bool script_session_poll(void);
