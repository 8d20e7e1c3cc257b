/* proxy.h: valkey-rdma-proxy, which carries the connections of programs on this machine over RDMA.
 *
 * Each client, on a Unix socket or a loopback TCP port, gets an RDMA connection of its own to the server. The proxy
 * passes bytes and understands none of them: AUTH, SELECT and MULTI of a client are those of its connection.
 *
 *   main.c    options, listeners, threads, signals, the status
 *   pair.c    a client and its RDMA connection
 *
 * Memory
 *   Each direction of a pair holds at most `buffer` bytes that the other end has not taken, and as much that was
 *   received and not passed on. Then the proxy stops reading, and the sender has to wait. `maxclients` bounds the
 * pairs.
 *
 * Threads
 *   A worker is a thread with an event loop. The main thread is worker 0 and accepts; it gives each new client to the
 *   worker with the fewest. A pair stays on its worker. Only the members marked so are used by other threads.
 *
 * Rejected: reading a socket into the registered memory that is sent, which saves a copy for each message and costs
 * every idle client a registered buffer; multiplexing clients on one RDMA connection, which the protocol has no way to
 * express. */
#pragma once
#include "net/connection.h"
#include <stdatomic.h>

struct proxy_options {
    const char *server_host;
    int server_port;
    const char *source_host;
    uint32_t connect_timeout_ms;
    uint32_t linger_ms; /* how long a client that has ended its sending may wait for replies */
    size_t buffer;      /* bytes */
    bool verbose;       /* a line for each client */
};
extern struct proxy_options proxy_options;

struct proxy_worker {
    struct event_loop *loop;
    struct list pairs;
    bool ending; /* no new pairs */
    /* Read by other threads. */
    atomic_uint clients; /* counts those that are on their way to the worker, too */
    _Atomic uint64_t accepted, failed, bytes_to_server, bytes_to_clients;
};

/* A client has connected; the pair is the worker's. */
void pair_start(struct proxy_worker *worker, struct connection *client);
void pairs_end(
    struct proxy_worker *worker); /* closes all; what was received is still passed on, for 2 seconds at most */
void pair_refuse(struct connection *client, const char *reason);                 /* sends the error and closes */
void proxy_print(const char *format, ...) __attribute__((format(printf, 1, 2))); /* a line on standard output */
