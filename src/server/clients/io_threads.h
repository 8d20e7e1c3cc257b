/* io_threads.h: threads that read, parse and write for clients, so that the main thread does nothing but execute
 * commands. The option io-threads counts the main thread: 1 is none besides, and nothing is paid then.
 *
 * Roles.   Each I/O thread runs an event loop of its own (and so has, over RDMA, a device context, completion queue,
 * receive queue and send memory of its own). Connections are accepted by the main thread and placed on one of the loops
 * for good; everything of theirs, a queue pair included, is touched by that thread alone. Above the connection there is
 * no I/O thread: clients, their table, their flags, command execution, replication, INFO are the main thread's, as
 * without threads. Path.    The I/O thread reads requests over the receive memory in place, as the main thread would,
 * and makes a batch of those that are there whole: their arguments, found, and one copy of their bytes, which the main
 * thread's cache needs anyway. The batch travels as a message (net/remote.h, where the two queues, the one lock and the
 * life of a connection are told). The main thread executes it as it would a pipeline, writes the replies into the
 * batch's room for replies and sends it back; the I/O thread copies them to the connection's send memory and flushes.
 *          Large arguments are received into their blobs by the I/O thread and travel as references, and so do large
 * values in replies. Order.   A connection's batches are executed in the order in which they came, its replies leave in
 * the order in which they were written; a client whose commands are held (CLIENT PAUSE) leaves its batches where they
 * are. Between connections there is no order, as ever. Limits.  What Valkey's limits say is said by the I/O thread
 * where it concerns input (client-query-buffer-limit, proto-max-bulk-len, protocol errors): it tells the verdict in a
 * batch, in its place in the stream, and the main thread logs, counts, answers and closes. Before AUTH requests are
 * parsed one at a time: the next is read with the limits that the answer left behind. What of options an I/O thread
 * needs is published once a turn (relaxed atomics). Waking.  A thread that has nothing to do sleeps in its epoll; who
 * posts to a sleeping loop wakes it. There is no spinning but for rdma-busy-poll-us, and no thread ever waits for
 * another one, but the main thread for all of them at the end of the process. */
#ifndef SERVER_IO_THREADS_H
#define SERVER_IO_THREADS_H
#include "net/connection.h"
#include "resp/request.h"
#include "server/config/config.h"
#include "server/server.h"

struct db;

int io_threads_count(void);       /* without the main thread */
int io_threads_descriptors(void); /* that they hold open */
uint64_t io_threads_reads(void);
uint64_t io_threads_writes(void);
void io_threads_place(struct listen_options *options); /* what is accepted goes to them */
extern struct server_part io_threads_part;
extern const struct config_option io_threads_options[];

/* What a client's connection shows, parsed. NULL: nothing. Lives until the end of the loop's turn whatever becomes of
 * the client. */
struct io_batch;
struct io_batch *io_batch_of(const struct connection *conn);
/* The next request goes to `reader`: REQUEST_READY. REQUEST_FAILED: a protocol error, as from request_read().
 * REQUEST_LARGE: the peer has passed the limit of the query buffer; *size is how much it was. REQUEST_PARTIAL: no more.
 */
enum request_status io_batch_next(struct io_batch *batch, struct request_reader *reader, size_t *size);
void io_batch_done(struct io_batch *batch, struct request_reader *reader); /* executed */
void io_batch_hold(struct io_batch *batch, struct request_reader *reader); /* not executed: it comes again */
void io_batch_prefetch(struct io_batch *batch, struct db *db);             /* the keys of requests that come soon */
#endif
