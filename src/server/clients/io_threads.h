/* io_threads.h: threads that read, parse and write for clients, so that the main thread only executes commands. The
 * option io-threads counts the main thread: 1 means no I/O threads and no cost.
 *
 * Ownership. Each I/O thread runs its own event loop, and over RDMA it has its own device context, completion queue,
 * receive queue and send memory. The main thread accepts connections and assigns each to one of the loops. From then on
 * only that thread touches the connection, its queue pair included. Clients, their table and flags, command execution,
 * replication and INFO belong to the main thread, as without I/O threads.
 *
 * CONFIG SET io-threads moves the connections of sockets, each between two of its requests (remote.h): from the main
 * thread to the new threads, from the removed threads to the others, or back to the main thread. Connections over RDMA
 * and those of replicas stay where they are.
 *
 * Data path. The I/O thread parses requests in place in the receive memory, as the main thread would, and makes a batch
 * of the complete ones: the parsed arguments and one copy of their bytes, which the main thread's cache needs anyway.
 * The batch travels as a message (net/remote.h describes the two queues, the lock and the life of a connection). The
 * main thread executes it like a pipeline, writes the replies into the batch's reply space and sends it back; the I/O
 * thread copies them to the connection's send memory and flushes. The I/O thread receives large arguments into their
 * blobs, which travel as references, as do large values in replies.
 *
 * Order. The main thread executes a connection's batches in the order of arrival, and replies leave in the order in
 * which they were written. A client whose commands are held (CLIENT PAUSE) leaves its batches in the queue. There is no
 * order between connections.
 *
 * Limits. The I/O thread checks the limits on input (client-query-buffer-limit, proto-max-bulk-len, protocol errors).
 * It reports a violation in a batch, at its position in the stream, and the main thread logs, counts, replies and
 * closes. Before AUTH, requests are parsed one at a time: the next one is parsed with the limits in force after the
 * reply. The main thread publishes the options that I/O threads need once a turn (relaxed atomics).
 *
 * Waking. An idle thread sleeps in epoll_wait(); a post to a sleeping loop wakes it. Threads spin only for
 * rdma-busy-poll-us. No thread waits for another one, except the main thread at the end of the process, which waits for
 * all. */
#pragma once
#include "net/connection.h"
#include "resp/request.h"

struct db;

int io_threads_count(void);       /* that get new connections; without the main thread */
int io_threads_descriptors(void); /* file descriptors that the threads use */
uint64_t io_threads_reads(void);
uint64_t io_threads_writes(void);
extern struct io_threads_prefetched {
    uint64_t batches, keys; /* keys of requests that were prefetched together, in this many batches; until RESETSTAT */
} io_threads_prefetched;
void io_threads_place(struct listen_options *options); /* distributes accepted connections over the I/O threads */
/* For INFO: the CPU time of thread `number`, from 1 on; and whether the threads have been busy lately. */
uint64_t io_thread_cpu_us(int number);
bool io_threads_active(void);
/* A client has received its connection. If io-threads has changed during the handshake, the connection moves soon. */
void io_threads_accepted(const struct connection *conn);
/* Moves connections after a change of io-threads. Call it while io_threads_moving, before the loop waits, when all
 * output is flushed. */
void io_threads_move(void);
extern bool io_threads_moving;

/* Parsed requests of a client's connection, NULL: none. A batch stays valid until the end of the loop's turn, even if
 * the client is freed. */
struct io_batch;
struct io_batch *io_batch_of(const struct connection *conn);
/* Moves the next request to `reader`: REQUEST_READY. REQUEST_FAILED: a protocol error, as from request_read().
 * REQUEST_LARGE: the request exceeds the query buffer limit; *size is its size. REQUEST_PARTIAL: no more requests. */
enum request_status io_batch_next(struct io_batch *batch, struct request_reader *reader, size_t *size);
void io_batch_done(struct io_batch *batch, struct request_reader *reader); /* the request was executed */
void io_batch_hold(struct io_batch *batch,
                   struct request_reader *reader);             /* not executed: the next call returns it again */
void io_batch_prefetch(struct io_batch *batch, struct db *db); /* prefetches the keys of the next requests */
