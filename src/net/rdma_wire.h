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
 *
 * Payload is written into the peer's receive buffer by any number of RDMA WRITEs, the last one WRITE_WITH_IMM whose immediate
 * (big-endian) is the number of bytes since the last immediate. When the buffer is exactly full its owner sends RegisterXferMemory anew
 * and both sides begin at its start again. */
#ifndef NET_RDMA_WIRE_H
#define NET_RDMA_WIRE_H
#include <stdint.h>

enum rdma_opcode {
    RDMA_OP_GET_SERVER_FEATURE = 0,
    RDMA_OP_SET_CLIENT_FEATURE = 1,
    RDMA_OP_KEEPALIVE = 2,
    RDMA_OP_REGISTER_XFER_MEMORY = 3,
};

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
union rdma_wire_message {
    uint16_t opcode;
    struct rdma_wire_feature feature;
    struct rdma_wire_keepalive keepalive;
    struct rdma_wire_memory memory;
    uint8_t bytes[32];
};
_Static_assert(sizeof(union rdma_wire_message) == 32, "control messages are 32 bytes");
_Static_assert(__builtin_offsetof(struct rdma_wire_feature, features) == 24, "wire layout");
_Static_assert(__builtin_offsetof(struct rdma_wire_memory, addr) == 16, "wire layout");
_Static_assert(__builtin_offsetof(struct rdma_wire_memory, key) == 28, "wire layout");
#endif
