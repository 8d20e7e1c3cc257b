/* rdma_wire.h: what goes over the wire of Valkey over RDMA.
 *
 * Control messages are exactly 32 bytes, big-endian, sent by SEND:
 *
 *   GetServerFeature 0, SetClientFeature 1
 *   offset  size  field
 *        0     2  opcode
 *        2     2  select     which set of 64 features; 0 is the only one
 *        4    20  reserved   zero
 *       24     8  features   bits
 *   Keepalive 2
 *        0     2  opcode
 *        2    30  reserved   zero
 *   RegisterXferMemory 3
 *        0     2  opcode
 *        2    14  reserved   zero
 *       16     8  addr       of the sender's receive buffer
 *       24     4  length     of it
 *       28     4  key        remote key
 *   Credit 0x8000 (feature ring)
 *        0     2  opcode
 *        2    22  reserved   zero
 *       24     4  bytes      of the sender's receive buffer that are free again
 *       28     4  reserved   zero
 *   BufferTaken 0x8001 (feature ring)
 *        0     2  opcode
 *        2    22  reserved   zero
 *       24     4  count      while the peer polls (feature polled): bytes sent so far; else zero
 *       28     4  reserved   zero
 *   PollBegin 0x8002 (feature polled)
 *        0     2  opcode
 *        2    14  reserved   zero
 *       16     8  addr       of the word that the sender will look at, a multiple of 8
 *       24     4  length     8
 *       28     4  key        remote key
 *   PollBegun 0x8003, PollEnd 0x8004 (feature polled)
 *        0     2  opcode
 *        2    30  reserved   zero
 *   PollEnded 0x8005 (feature polled)
 *        0     2  opcode
 *        2    22  reserved   zero
 *       24     4  count      bytes sent so far
 *       28     4  reserved   zero
 *
 * Payload is written into the peer's receive buffer by any number of RDMA WRITEs, the last one WRITE_WITH_IMM whose
 * immediate (big-endian) is the number of bytes since the last immediate. When the buffer is exactly full its owner
 * sends RegisterXferMemory anew and both sides begin at its start again.
 *
 * That is the base protocol, and all that a peer sees which asks for nothing. Features of our own have the upper half
 * of the bits and of the opcodes; the lower halves are Valkey's.
 *
 *   client                                server
 *     GetServerFeature          ------>            at any time; nothing waits for the answer
 *                               <------   GetServerFeature(bits it offers)
 *     SetClientFeature(subset)  ------>            not sent where it would be 0
 *                               <------   SetClientFeature(the same bits)
 *
 * SetClientFeature with bits says of its sender: "from here on my receive buffer is what the bits say". Each end sends
 * it once, the client first; what its sender writes obeys the base protocol until it has got the other's. So each
 * direction changes at a point of the stream that both ends see, and nothing stops meanwhile.
 *
 * Ring (bit 32).  The receive buffer is a ring. What the peer had filled before stays filled and where it is; if it was
 * full, the next byte goes to its start. The sender of the stream may have written and not got back at most `length`
 * bytes; when it reaches the end of the buffer it goes on at its start, within a message, too (WRITE to the end, WRITE
 * from the start, the immediate counts both). A Credit gives bytes back, in the order they were written; it is never 0
 * and never more than was written and not given back. RegisterXferMemory now announces another buffer at any time,
 * except that it must not follow another one before BufferTaken has come. Who gets it answers BufferTaken: all
 * immediates before BufferTaken are of the old buffer, all after it of the new one, from its start, with nothing of it
 *   written yet. Between RegisterXferMemory and BufferTaken its sender gives no Credit, and what was written to the old
 * buffer is never given back. (The first RegisterXferMemory of a connection is answered by nothing, even if it comes
 * after SetClientFeature.)
 *
 * Polled (bit 33).  A receiver of many messages may look at memory instead of waiting for completions. Each direction
 * on its own, as often as its receiver likes:
 *
 *   receiver                              sender of the stream
 *     PollBegin(word)           ------>
 *                               <------   PollBegun: from here on messages are announced as below
 *     PollEnd                   ------>   at any time after PollBegun; before it sleeps, for instance
 *                               <------   PollEnded(count): from here on immediates as before
 *
 * The count is the number of bytes, modulo 2^32, that the sender has sent between PollBegun and PollEnded since the
 * connection began. Between PollBegun and PollEnded a message of at most 1,024 bytes is announced by a WRITE of the
 * word behind the WRITEs of its bytes, unless words would then announce more than 32,768 bytes in a row; any other
 * message by an immediate, which is the count after it, not the length of the message.
 *
 *   word
 *   offset  size  field
 *        0     4  count      after the message
 *        4     4  checksum   CRC-32C of the base and the bytes between the base and the count
 *
 * The base is the last count that a completion of the receiver told: of an immediate, BufferTaken or PollBegun (which
 * begins where the last period ended); it enters the checksum as four bytes, big-endian. The receiver sets the word
 * to the count and the checksum of no bytes before PollBegin; another PollBegin may name another word.
 *
 * Memory may show a word before the bytes that it announces, so the receiver takes them only when the checksum agrees.
 * The eight bytes of a word are taken to be written at once; if they are not, the checksum does not agree either.
 *
 * Violations, each of which ends the connection: SetClientFeature with bits that were not offered, twice, or by a
 * server that was not asked or with other bits than it was; GetServerFeature after SetClientFeature; an answer that
 * nobody asked for; Credit, BufferTaken or any Poll… without the feature or against what is said above; an immediate of
 * zero bytes; an immediate, or the count of BufferTaken or PollEnded, that tells of more than is free. A word is none:
 * one that does not agree with its bytes is not believed, and ends the polling period at last. */
#ifndef NET_RDMA_WIRE_H
#define NET_RDMA_WIRE_H
#include <stdint.h>

enum rdma_opcode {
    RDMA_OP_GET_SERVER_FEATURE = 0,
    RDMA_OP_SET_CLIENT_FEATURE = 1,
    RDMA_OP_KEEPALIVE = 2,
    RDMA_OP_REGISTER_XFER_MEMORY = 3,
    RDMA_OP_CREDIT = 0x8000,
    RDMA_OP_BUFFER_TAKEN = 0x8001,
    RDMA_OP_POLL_BEGIN = 0x8002,
    RDMA_OP_POLL_BEGUN = 0x8003,
    RDMA_OP_POLL_END = 0x8004,
    RDMA_OP_POLL_ENDED = 0x8005,
};

#define RDMA_FEATURE_RING   (UINT64_C(1) << 32)
#define RDMA_FEATURE_POLLED (UINT64_C(1) << 33)

struct rdma_wire_feature {
    uint16_t opcode, select;
    uint8_t reserved[20];
    uint64_t features;
};
struct rdma_wire_keepalive {
    uint16_t opcode;
    uint8_t reserved[30];
};
struct rdma_wire_memory {
    uint16_t opcode;
    uint8_t reserved[14];
    uint64_t addr;
    uint32_t length;
    uint32_t key;
};
struct rdma_wire_credit {
    uint16_t opcode;
    uint8_t reserved[22];
    uint32_t bytes;
    uint8_t reserved_too[4];
};
union rdma_wire_message {
    uint16_t opcode;
    struct rdma_wire_feature feature;
    struct rdma_wire_keepalive keepalive;
    struct rdma_wire_memory memory;
    struct rdma_wire_credit credit;
    uint8_t bytes[32];
};
_Static_assert(sizeof(union rdma_wire_message) == 32, "control messages are 32 bytes");
_Static_assert(__builtin_offsetof(struct rdma_wire_feature, features) == 24, "wire layout");
_Static_assert(__builtin_offsetof(struct rdma_wire_memory, addr) == 16, "wire layout");
_Static_assert(__builtin_offsetof(struct rdma_wire_credit, bytes) == 24, "wire layout");
_Static_assert(__builtin_offsetof(struct rdma_wire_memory, key) == 28, "wire layout");
#endif
