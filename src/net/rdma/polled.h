/* polled.h: the receiving half of the polled word (feature RDMA_FEATURE_POLLED; wire.h has the format, announce.h the
 * other half). The receiver finds the small messages of a busy peer by reading memory, without a completion or a
 * receive for each.
 *
 * Receiving
 *   Each of at most RDMA_POLLED_MAX connections of a device has a poll slot: a page with its own memory region, so that
 *   no peer reaches a neighbour's slot. The slot holds one aligned word of eight bytes: the number of bytes that the
 *   peer has sent, and a CRC-32C of the bytes that the peer announces by words. PollBegin carries the address of the
 *   word. From PollBegun on, words are valid and the device's poller reads them.
 *
 * Verification
 *   InfiniBand orders the execution of two WRITEs, not the moments at which memory shows their bytes. Adaptive routing,
 *   relaxed ordering on the PCIe bus and regions registered with IBV_ACCESS_RELAXED_ORDERING can all make the word
 *   visible before the bytes that it announces. So a word is a hint: the receiver computes the checksum of the
 *   announced bytes in place and takes them only if it matches. Otherwise it checks again in the poller's next round.
 *   Memory contents alone never end a connection. A completion does order memory, and only information from
 *   completions (immediates, BufferTaken, PollEnded) is binding. Four bytes of checksum let one stale message in 2^32
 *   pass. A message is stale only for an instant, and stale bytes that are identical to the new ones do no harm.
 *
 *   The wait is limited. A connection whose words do not match may cost DOUBT_MAX bytes of checksums, about ten
 *   microseconds. Then its polling period ends early: the answer to PollEnd is a completion, which orders all bytes
 *   before it, and the connection is polled again only after many immediates. So a peer that writes nonsense, or a
 *   device that delays bytes, costs time but no data.
 *
 * Polling periods
 *   A connection is polled when `after` immediates have arrived since this thread last slept: then both ends are awake.
 *   Polling ends when the connection was quiet for a whole tick, or when the thread is about to sleep. A period that
 *   ended before it saved more than its control messages cost delays the next one; a period that saved more advances
 *   the next one. A connection without a poll slot uses completions.
 *
 * Sleeping
 *   Before the thread arms the queues it sends PollEnd to every polled peer, and it does not wait for the answers.
 *   Nothing is lost. The answer is a SEND behind all writes of the word on the same connection, hence its completion
 *   covers all of them. It comes after the PollEnd, so either the poll of the queues after arming finds it or it wakes
 *   the thread. A PollEnd that does not fit the send queue is sent when a completion frees an entry, and a full send
 *   queue always has a completion coming. A sleep with N peers polled costs N messages each way, so the thread spins
 *   longer the more peers it polls: RDMA_POLLED_PATIENCE_US for each, about the cost of its messages to both ends.
 *
 * The end
 *   A peer may send its last bytes, announce them by a word and disconnect while words are ignored: our ring is about
 * to change, or the word did not match before. Neither BufferTaken nor PollEnded follows then. So the word is checked
 *   once more when the connection ends. A buffer whose BufferTaken has not arrived by then was never written to.
 *
 * Rejected
 *   Slots for whole messages, flag and bytes in one WRITE: the reader would have to report each slot that it has read,
 *   before the peer may write it again; bytes outside of the stream have to be copied into it; and order within one
 *   WRITE is not guaranteed either.
 *   Waiting for the answers to PollEnd before sleeping: a peer that does not answer would keep the thread awake.
 *   A separate checksum of each message: a word overwrites the one before, so the reader may see only some of them. The
 *   checksum therefore continues across messages. */
#pragma once
#include "net/rdma/connection.h"

enum { RDMA_POLLED_PATIENCE_US = 2 };

void rdma_polled_init(struct rdma_connection *c);
/* RDMA_FEATURE_POLLED, or 0 if the device or a setting excludes it. */
uint64_t rdma_polled_possible(const struct rdma_connection *c);
void rdma_polled_agreed(struct rdma_connection *c); /* both ends have the feature */
/* Handles the immediate of a message. True: it is a number of bytes, as in the base protocol, and the caller handles
 * it. */
bool rdma_polled_immediate(struct rdma_connection *c, uint32_t immediate);
void rdma_polled_after_immediate(struct rdma_connection *c); /* may start a polling period */
bool rdma_polled_check(struct rdma_device *device);          /* reads all words. True: a message has arrived */
void rdma_polled_take(struct rdma_connection *c);            /* the same for one connection that is about to end */
/* Takes the bytes that the peer had sent when it sent this control message. */
void rdma_polled_take_until(struct rdma_connection *c, uint32_t count);
void rdma_polled_end_all(struct rdma_device *device); /* the thread is about to sleep */
void rdma_polled_tick(struct rdma_connection *c);
void rdma_polled_on_begun(struct rdma_connection *c);
void rdma_polled_on_ended(struct rdma_connection *c, const struct rdma_wire_credit *count);
/* Sends a PollEnd that waited for space in the send queue. False: it is still full. */
bool rdma_polled_pump(struct rdma_connection *c);
void rdma_polled_release(struct rdma_connection *c);
