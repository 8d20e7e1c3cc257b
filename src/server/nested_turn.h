/* nested_turn.h: turns of the event loop within a command or a load. This is their manual.
 *
 * A script that is busy, a debugging session in the server, and a load of a data set take long and serve the loop
 * meanwhile. All of them call nested_turn(), and what such a turn may do depends on one question: does a call run
 * (dispatch_running)? Nobody else turns the server's loop. MIGRATE and the tools turn loops of their own.
 *
 * Within a load no call runs: data sets are loaded before the loop runs or outside of its turns (server_run_outside).
 * The turn is a whole one. What clients may do then is decided by the filter of persistence/loading.c; expiry,
 * rehashing and defragmentation ask server.loading. A file whose commands run scripts is the other case while they run.
 *
 * Within a call a command is half done: the data must not change under it, its client's output is being written, and
 * the functions on the stack hold pointers. The client of the call is called the caller here.
 *
 *   keys            Nothing changes them. Filters refuse other clients' commands (BUSY). Expiry, eviction, also that
 *                   by other clients' requests, defragmentation, rehashing, the cron, commands of blocked clients and
 *                   loads wait: each asks dispatch_running(), or runs only in a whole turn. The stream of the primary
 *                   is data, too, and waits at the link.
 *   files, streams  The append-only file is written and synchronized, and replicas get their stream, up to the first
 *                   write of the call: its writes are one group, whose beginning is known only at its end
 *                   (propagation_writer.h).
 *   other replies   Sent. Batches that a reply barrier releases leave (reply_barrier.h), so no client waits for the
 *                   end of a script for what was done before it.
 *   caller's reply  Stays. The caller is not flushed and its held replies are not released, although an earlier batch
 *                   of them may be safe: a reply that is written behind it would leave with it, before its own write
 *                   is safe (dispatch_replies_to). Its pushes wait until after its reply. A debugging session replies
 *                   to memory of its own. It begins when all earlier replies to its client have left, and its lines
 *                   are sent at once: they may show writes of its own group, which is safe only after its end.
 *   requests        Read and executed, up to the filters. The caller is held and not read from, since its arguments
 *                   are in its connection's memory. The caller of a debugging session is read from.
 *   pushes          MONITOR, messages and invalidations to other clients are sent. Invalidations that are collected
 *                   for the end of a turn wait, because their keys may change again.
 *   closing         A client may be freed, the caller, too: by its peer, by CLIENT KILL, by its output limit. What it
 *                   leaves on the stack is valid, since deferred work waits for the end of the outermost turn.
 *                   maxmemory-clients closes any client but the caller.
 *   timers, posts   Run. Timeouts of blocked clients end. The cron, and with it timeouts of idle clients, waits.
 *   blocked clients Are not served: what they wait for may still be undone by the rest of the script.
 *   WAIT, failover  Wait: they add commands to the stream, which may be within a transaction now.
 *   signals         A shutdown by a signal waits for the end of the call. SHUTDOWN NOSAVE does not.
 *   threads         Connections do not move to other I/O threads.
 *
 * Rejected: queueing all events of other clients until the call ends, which makes SCRIPT KILL impossible; running
 * deferred work of objects that no function on the stack uses, since nobody knows which these are. */
#ifndef SERVER_NESTED_TURN_H
#define SERVER_NESTED_TURN_H
#include <stdint.h>

/* One turn of the server's loop, in which all output that may leave is sent before and after the wait. Waits at most
 * `timeout_us` microseconds, -1: without limit. */
void nested_turn(int64_t timeout_us);
/* For server.c: the work before the loop waits, where a call runs. */
void nested_turn_before_wait(void);
#endif
