/* completion.h: what devices report: completions, and asynchronous events (async.c).
 *
 * Completions
 *   One poller for each device context drains the queues in batches. It changes the state of connections but calls none
 *   of their handlers: a connection with something to report goes on the loop's ready list, which is processed after
 *   the batch. So handlers may run the loop, and one call reports several messages of a connection.
 *
 * Sleeping
 *   When nothing arrived for rdma_settings.busy_poll_us, the loop has the poller arm the queues. The poller polls them
 *   once more after arming, because a completion that arrived in between raises no event.
 *   Falling asleep and waking takes both CPUs longer than many a pause between two messages: a peer copies a large
 *   value, or announces its buffer. So after RDMA_SHORT_WAITS sleeps that lasted only a moment the thread spins
 *   for RDMA_SPIN_LONG_US, until such a spin finds nothing. It does not spin while the device moves a large value
 *   (place.c), which takes longer than a sleep, nor after the last one until a peer sends something, unless it polls
 *   peers: a client that moves large values does not send its next request within microseconds. */
#pragma once
#include "net/rdma/device.h"

extern const struct rdma_device_handlers rdma_completion_handlers;

/* Handles all available completions without calling any connection's handlers. Not while one is handled. */
void rdma_device_drain(struct rdma_device *device);
/* A completion has woken the thread so long after its last work. */
void rdma_device_woke(struct rdma_device *device, uint64_t waited_us);

/* async.c */
/* The device was removed: fails its connections, also those of other threads. */
void rdma_device_gone(struct rdma_device *device);
void rdma_async_ready(struct event_io *io, int mask); /* a handler */
