/* size.h: the sizes of a connection's receive buffers.
 *
 * Base protocol
 *   A stock client deregisters, allocates and registers its send buffer whenever the announced size differs from the
 *   one before, so sizes must settle.
 *
 *   Growing. A buffer is too small when few messages fill it, because each buffer costs one announcement. Messages
 *   count, not time: how fast a buffer fills says little where one thread of a client serves many connections. The
 *   buffer grows to the size of LAP_MESSAGES such messages, and at most by a factor of LEAP_MOST, because a single
 *   large request may have filled it. The limit is half of the largest size and a margin, so that a value of half the
 *   largest size fits together with the rest of its request. A stock client's send buffer is as large as ours, and the
 *   client copies each byte into it before its device reads it there: 512 KiB stay in a core's second-level cache,
 *   1 MiB does not.
 *   A buffer has the whole largest size if the peer's writes have the same length and are longer than that half, and
 *   if half of the registered memory is free. Otherwise each such write would cost two or three messages and as many
 *   waits.
 *
 *   Shrinking. The buffer becomes smaller, step by step, when filling it took longer than SHRINK_PLAIN_US.
 *
 *   When the size changes. It cannot change while a buffer is partly filled: the base protocol has no message by which
 *   a client confirms an announcement, so data on its way to the old buffer could not be distinguished from data for
 *   the new one.
 *
 * Writes of one length
 *   A buffer that ends in the middle of a write makes the client wait for the next buffer. A buffer that ends with a
 *   write does not: the client waits for the reply to that write anyway, and the announcement arrives with the reply.
 *   Most clients with large values send many writes of the same length, which are requests of one kind or batches of
 *   them.
 *   If the latest writes have one length and few of them fill the buffer, the announced size is a multiple of that
 *   length: at least one write, at most LAP_WRITES, and not more than LAP_BYTES unless one write is longer. The
 *   buffer's memory is a little larger. More large writes in a buffer gain nothing, and the buffers of many connections
 *   would not fit in the caches.
 *   A first write that is larger than the buffer has its length in the header of its request. Later, a write may be
 *   unfinished when the buffer is full. Its missing part then gets a buffer of its own size. This takes two changes of
 *   the size, which pay only after ALIKE_LEAST writes of one length, or after two of more than LARGE_WRITE bytes.
 *   A write that no buffer can hold (a batch of large values) is divided into equal parts, so that its last part ends
 *   with a buffer. A peer with writes of other lengths causes at most CHANGES_MOST useless changes.
 *
 * Ring
 *   A ring that the peer fills in less than GROW_RING_BELOW_US grows, and one that takes longer than SHRINK_ABOVE_US
 *   shrinks.
 *
 * Rejected
 *   Beginning with 256 KiB. It saves no change of the size, since the first write begins at the start of the first
 *   buffer, and 5,000 quiet clients would hold it.
 *   Growing by the time from a buffer's first message to its last. A client with 500 connections shows anything.
 *   Announcing two halves of one buffer in turn. An idle connection would hold both, and the first half announced is a
 *   change of size. */
#pragma once
#include "net/rdma/connection.h"

uint32_t rdma_receive_first_size(bool passive);
/* The best size for a ring, given that `bytes` arrived in the last `took_us` microseconds. For an untrusted peer never
 * more than the first size. */
uint32_t rdma_receive_ring_size(const struct rdma_connection *c, uint64_t bytes, uint64_t took_us);
/* The best size for a buffer of the base protocol, which `messages` messages filled in `took_us` microseconds. */
uint32_t rdma_receive_plain_size(const struct rdma_connection *c, uint32_t messages, uint64_t took_us);
uint32_t rdma_size_largest_plain(const struct rdma_connection *c); /* the largest one in the base protocol */
/* The size to announce of a buffer of that capacity. */
uint32_t rdma_size_fitting(const struct rdma_connection *c, uint32_t capacity);
/* If the peer's first write has filled the buffer: takes it for one request, of which the argument and the end of the
 * line are missing. */
void rdma_size_guess_write(struct rdma_connection *c);
/* A buffer is announced. `same`: it has the size of the one before. */
void rdma_size_count(struct rdma_connection *c, bool same);
