/* announce.h: the sending half of the polled word (feature RDMA_FEATURE_POLLED; wire.h has the format, polled.h the
 * other half). While the peer polls, a small message is its WRITEs and one more WRITE of eight bytes, the word, behind
 * one doorbell, in place of the immediate.
 *
 * An immediate, which orders memory, announces each message of more than RDMA_POLLED_MESSAGE_MAX bytes, and the first
 * message after RDMA_POLLED_BYTES_MAX bytes of words. For large messages a completion costs less than a checksum, and
 * the receiver never checks more than RDMA_POLLED_BYTES_MAX bytes at a time. */
#pragma once
#include "lib/hash/crc32c.h"
#include "net/rdma/connection.h"
#include <endian.h>

enum {
    RDMA_POLLED_MESSAGE_MAX = 1024,    /* bytes of a message that a word announces */
    RDMA_POLLED_BYTES_MAX = 32 * 1024, /* bytes announced by words in a row, without an immediate */
};

/* --- The word --- */

static inline uint64_t rdma_word_make(uint32_t count, uint32_t crc) {
    return htobe64((uint64_t)count << 32 | crc);
}
static inline uint32_t rdma_word_count(uint64_t word) {
    return (uint32_t)(be64toh(word) >> 32);
}
static inline uint32_t rdma_word_crc(uint64_t word) {
    return (uint32_t)be64toh(word);
}
/* The checksum includes the count that it starts at, so that the word of another stretch of the stream does not match
 * by its bytes alone. */
static inline uint32_t rdma_crc_begin(uint32_t count) {
    uint32_t wire = htobe32(count);
    return crc32c(0, &wire, sizeof wire);
}

/* PollBegin and PollEnd of the peer have arrived. */
void rdma_announce_on_begin(struct rdma_connection *c, const struct rdma_wire_memory *memory);
void rdma_announce_on_end(struct rdma_connection *c);
/* Sends answers that waited for space in the send queue. False: it is still full. */
bool rdma_announce_pump(struct rdma_connection *c);
/* The count for the BufferTaken that is about to be sent. The checksum restarts after it. */
uint32_t rdma_announce_taken_count(const struct rdma_connection *c);
void rdma_announce_taken_sent(struct rdma_connection *c);
/* Announces a message of `bytes` bytes in `sges`. True: by a word; `wr` with `sge` is the request that writes it, and
 * `sge` and `word` must live until it is posted. False: by an immediate with the value *immediate. */
bool rdma_announce_message(struct rdma_connection *c, uint32_t bytes, const struct ibv_sge *sges, uint32_t count,
                           struct ibv_send_wr *wr, struct ibv_sge *sge, uint64_t *word, uint32_t *immediate);
