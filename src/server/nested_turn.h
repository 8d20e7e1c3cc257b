/* nested_turn.h: turns of the event loop within a command or a load. This is their manual.
 *
 * A busy script, a debugging session in the server, and the load of a data set take long. They serve the event loop
 * while they run, and all of them call nested_turn() for that. No other code turns the server's loop; MIGRATE and the
 * tools have loops of their own. What a nested turn may do depends on one question: does a call run
 * (dispatch_running)?
 *
 * No call runs: a load. Data sets are loaded before the loop runs or between its turns (server_run_outside). The turn
 * does everything that a turn of the loop does. The filter of persistence/loading.c refuses commands of clients;
 * expiry, rehashing and defragmentation check server.loading. While the commands of a loaded file run a script, a call
 * runs.
 *
 * A call runs: a command is half executed. Its data must not change, its reply is being written, and functions on the
 * stack hold pointers. Below, the caller is the client of this call.
 *
 *   keys            Nothing changes them. Filters refuse commands of other clients (BUSY). Expiry, eviction (also by
 *                   requests of other clients), defragmentation, rehashing, the cron, commands of blocked clients and
 *                   loads wait: each checks dispatch_running(). The stream of the primary changes keys, so it waits at
 *                   the link.
 *   files, streams  The append-only file is written and synchronized, and replicas get their stream, up to the first
 *                   write of the call. The writes of the call are one group; whether the group needs MULTI is known
 *                   when it ends (propagation_writer.h).
 *   other replies   They are sent. The reply barrier releases them (reply_barrier.h), so no client waits for the end of
 *                   a script to learn that an earlier write is safe.
 *   caller's reply  It stays. The server neither flushes the caller nor releases its held replies, even if an earlier
 *                   batch of them is safe: the reply of the call is written behind that batch and would be sent with
 *                   it, before its own write is safe (dispatch_replies_to). Pushes to the caller wait until after the
 *                   reply. A debugging session replies to memory of its own. It begins after all earlier replies to
 *                   its client have been sent, and sends its lines immediately: they may show writes of the group,
 *                   which is safe only after the session.
 *   requests        They are read and executed, up to the filters. The caller is held and its connection is not read,
 *                   because the memory of the connection contains the arguments of the call. The connection of a
 *                   debugging session is read; the filters hold the requests of others until its end.
 *   pushes          MONITOR, messages and invalidations to other clients are sent. Invalidations that are collected
 *                   until the end of a turn wait, because their keys may change again.
 *   closing         Any client may be freed, including the caller: by its peer, by CLIENT KILL, by its output limit.
 *                   Pointers to it stay valid, because deferred work waits for the end of the outermost turn.
 *                   maxmemory-clients closes any client except the caller.
 *   time            It goes on for all but the keys (clock.h): TIME, idle times, pauses, logs. Expiration sees the time
 *                   at which the call began.
 *   timers, posts   They run. Timeouts of blocked clients end. The cron waits, and with it timeouts of idle clients.
 *   blocked clients They are not served: the rest of the script may undo what they wait for.
 *   WAIT, failover  They wait: they add commands to the stream, which may be within a transaction.
 *   signals         A shutdown by a signal waits for the end of the call. SHUTDOWN NOSAVE does not.
 *   threads         Connections do not move to other I/O threads.
 *
 * Rejected: queueing all events of other clients until the call ends (SCRIPT KILL would be impossible); running the
 * deferred work of objects that no function on the stack uses (which objects these are is not known). */
#pragma once
#include <stdint.h>

/* Runs one turn of the server's loop. It sends all output that may be sent, before and after the wait. Waits at most
 * `timeout_us` microseconds, -1: without limit. */
void nested_turn(int64_t timeout_us);
/* For lifecycle.c: the work before the loop waits while a call runs. */
void nested_turn_before_wait(void);
