/* rdma.h: the RDMA transport, `transport_rdma`. Compiled in with BUILD_RDMA=yes. Settings are of the whole process and are read when a
 * connection is made or (spin, keepalive) at use; the server's options set them. */
#ifndef NET_RDMA_H
#define NET_RDMA_H
#include "net/connection.h"

extern const struct transport transport_rdma;

struct rdma_settings {
    uint32_t rx_size;        /* receive buffer of a connection, bytes; 64 KiB … 16 MiB, default 1 MiB */
    int completion_vector;   /* -1: random, N: that one (modulo what the device has), RDMA_VECTOR_AUTO */
    uint32_t busy_poll_us;   /* spin this long after the last completion before sleeping */
    uint32_t keepalive_ms;   /* period of Keepalive messages, 0: none */
    uint32_t connect_timeout_ms;
    uint32_t max_clients;    /* accepted connections of one loop; 0: no bound of its own */
    uint64_t send_memory;    /* bytes of registered send memory of one loop's device, at least 2 MiB; more waits in ordinary memory */
};
extern struct rdma_settings rdma_settings;

/* The vector whose interrupt is served on the CPUs that the thread is pinned to (net/pin.h); a random one where there is none. */
enum { RDMA_VECTOR_AUTO = -2 };
enum { RDMA_RX_SIZE_MIN = 64 * 1024, RDMA_RX_SIZE_MAX = 16 * 1024 * 1024, RDMA_RX_SIZE_DEFAULT = 1024 * 1024 };

/* Counters of the process, for INFO. */
struct rdma_stats {
    uint64_t connections, accepted, refused, failed;
    uint64_t bytes_in, bytes_out, messages_in, messages_out, control_in, control_out;
    uint64_t doorbells, work_requests, inlined, signalled, completions, polls, stalls;
    uint64_t registered_bytes, protocol_errors;
};
const struct rdma_stats *rdma_stats(void);
/* Name of the first device with an active port, for banners; NULL: none. */
const char *rdma_device_name(void);
/* Call in a forked child before anything else: it must not touch verbs objects. */
void rdma_after_fork_child(void);
#endif
