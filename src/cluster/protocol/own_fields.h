/* own_fields.h: the fields of our nodes in the 30 header bytes that Valkey sends as zeros and does not read.
 *
 *     0  "VR", u16 version, 1          4  u32 features (enum own_feature)
 *     8  u16 port of RDMA clients     10  u16 RDMA port that is announced to clients
 *    12  u32 digest of the ids of all nodes that the sender knows, 0: not sent                  16  zeros
 *
 * A node of Valkey sends zeros: it has no feature. Unknown features are ignored, a later version is read as this one.
 */
#pragma once
#include "cluster/protocol/bus_wire.h"

enum own_feature {
    OWN_FEATURE_FAST_FAILOVER = 1, /* confirms that a node refuses connections: fast_failover.c */
    OWN_FEATURE_BRIEF = 2,         /* reads brief headers: repeat.c */
    OWN_FEATURE_SLOT_CHUNKS = 4,   /* knows SYNCSLOTS CHUNK: cluster/migration */
    OWN_FEATURE_SLOT_OUTCOME = 8,  /* knows SYNCSLOTS OUTCOME: cluster/migration/migration.h */
};
struct own_fields {
    uint32_t features;
    uint16_t rdma_port, client_rdma_port;
    uint32_t members;
};
void own_fields_write(uint8_t out[static BUS_RESERVED_SIZE], const struct own_fields *fields);
/* False, and all zero: the sender is not our server. */
bool own_fields_read(const uint8_t in[static BUS_RESERVED_SIZE], struct own_fields *fields);
