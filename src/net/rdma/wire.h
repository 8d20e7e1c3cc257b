/* wire.h: the wire protocol of Valkey over RDMA, and our extensions of it.
 *
 * Control messages are exactly 32 bytes, big-endian, sent by SEND:
 *
 *   GetServerFeature 0, SetClientFeature 1
 *   offset  size  field
 *        0     2  opcode
 *        2     2  select     the set of 64 features; only 0 exists
 *        4    20  reserved   zero
 *       24     8  features   bits
 *   Keepalive 2
 *        0     2  opcode
 *        2    30  reserved   zero
 *   RegisterXferMemory 3
 *        0     2  opcode
 *        2    14  reserved   zero
 *       16     8  addr       of the sender's receive buffer
 *       24     4  length     of this buffer, in bytes
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
 *       16     8  addr       of the word that the sender will poll, a multiple of 8
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
 * RDMA WRITEs store the payload in the peer's receive buffer. The last WRITE of a message is a WRITE_WITH_IMM; its
 * immediate (big-endian) is the number of bytes since the last immediate. When the buffer is exactly full, its owner
 * sends RegisterXferMemory again and both sides start over at the beginning of the buffer.
 *
 * This is the base protocol. A peer that requests no features sees nothing else. Our own features use the upper half of
 * the feature bits and of the opcodes; the lower halves are Valkey's.
 *
 *   client                                server
 *     GetServerFeature          ------>            at any time; nothing waits for the answer
 *                               <------   GetServerFeature(bits it offers)
 *     SetClientFeature(subset)  ------>            not sent if the subset is empty
 *                               <------   SetClientFeature(the same bits)
 *
 * SetClientFeature with bits says: "from here on, the sender's receive buffer works as the bits say". Each end sends it
 * once, the client first. Until an end has received the other's SetClientFeature, it writes by the base protocol. So
 * each direction changes at a point of the stream that both ends know, and the traffic does not stop.
 *
 * Ring (bit 32)
 *   The receive buffer is a ring. Bytes that the peer wrote before the change stay in place and count as written; if
 *   the buffer was full, the next byte goes to its start. At most `length` bytes may be written and not credited.
 *   The writer continues at the start when it reaches the end of the buffer, also within a message (WRITE to the
 *   end, WRITE from the start; the immediate counts both). A Credit returns bytes in the order they were written.
 *   Its count is never 0 and never more than the bytes written and not credited.
 *
 *   RegisterXferMemory may now announce another buffer at any time, except between an earlier one and its BufferTaken.
 *   Its receiver answers BufferTaken: all immediates before BufferTaken belong to the old buffer, all after it to the
 *   new one, starting at its beginning, with nothing of it written. Between RegisterXferMemory and BufferTaken the
 *   sender of RegisterXferMemory sends no Credit, and bytes in the old buffer are never credited. (The first
 *   RegisterXferMemory of a connection is not answered, even if it comes after SetClientFeature.)
 *
 * Polled (bit 33)
 *   A receiver of many messages may poll memory instead of waiting for completions. Each direction does so on its own,
 *   as often as its receiver chooses:
 *
 *   receiver                              sender of the stream
 *     PollBegin(word)           ------>
 *                               <------   PollBegun: from here on messages are announced as below
 *     PollEnd                   ------>   at any time after PollBegun, for instance before the receiver sleeps
 *                               <------   PollEnded(count): from here on immediates as before
 *
 *   The count is the number of bytes, modulo 2^32, that the sender has sent in all periods between PollBegun and
 *   PollEnded since the connection began. In such a period a WRITE of the word, behind the WRITEs of the message's
 *   bytes, announces each message of at most 1,024 bytes, unless words would then announce more than 32,768 bytes in a
 *   row. An immediate announces any other message; its value is the count after the message, not its length.
 *
 *   word
 *   offset  size  field
 *        0     4  count      after the message
 *        4     4  checksum   CRC-32C of the base and the bytes between the base and the count
 *
 *   The base is the last count that the receiver knows from a completion: of an immediate, of BufferTaken or of
 *   PollBegun (where the count continues from the last period). It enters the checksum as four bytes, big-endian.
 *   Before it sends PollBegin, the receiver sets the word to the count and the checksum of no bytes. Another
 *   PollBegin may name another word.
 *
 *   Memory may show a word before the bytes that it announces, so the receiver takes the bytes only if the checksum
 *   matches. The protocol assumes that the eight bytes of a word are written at once; if they are not, the checksum
 *   does not match either.
 *
 * Violations
 *   Each of these ends the connection:
 *   - SetClientFeature with bits that were not offered, twice, or from a server without a request or with other bits
 *     than requested
 *   - GetServerFeature after SetClientFeature
 *   - an answer without a request
 *   - Credit, BufferTaken or any Poll… message without the feature or against the rules above
 *   - an immediate of zero bytes
 *   - an immediate, or the count of BufferTaken or PollEnded, of more bytes than are free
 *   A word that does not match its bytes is not a violation: the receiver ignores it, and ends the polling period after
 *   a while. */
#pragma once
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
