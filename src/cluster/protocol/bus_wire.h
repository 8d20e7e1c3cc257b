/* bus_wire.h: the messages of the cluster bus, from bytes to a struct and back.
 *
 * Pure functions: no clock, no socket, no allocation. This file and bus_wire.c are the only ones that know the format.
 * The format is that of Valkey 9.1; all integers are big-endian, strings are fields of fixed size filled with zeros.
 *
 *     header (2256 bytes)                          light header (16 bytes): PUBLISH, PUBLISHSHARD and MODULE only
 *        0  "RCmb"                                    0  "RCmb"
 *        4  u32 length of the message                 4  u32 length of the message
 *        8  u16 version, 1                            8  u16 version, 1
 *       10  u16 port of clients on the bus' own kind  10  zeros
 *           (TLS with tls-cluster, else TCP)         12  u16 type | 0x8000
 *       12  u16 type                                 14  zeros
 *       14  u16 number of gossip entries
 *       16  u64 current epoch
 *       24  u64 configuration epoch (of the primary, if the sender is a replica)
 *       32  u64 replication offset
 *       40  sender, 40 characters
 *       80  slots, 2048 bytes: slot s is bit s % 8 of byte s / 8 (of the primary, if the sender is a replica)
 *     2128  the sender's primary, 40 characters or zeros
 *     2168  announced address, 46 bytes or zeros: the receiver takes the peer's address
 *     2214  u16 number of extensions
 *     2216  30 bytes that Valkey sends as zeros and does not read
 *     2246  u16 port of clients on the other kind
 *     2248  u16 port of the bus
 *     2250  u16 flags of the sender (enum node_flag)
 *     2252  u8 state of the cluster, as the sender sees it: 0 ok, 1 fail
 *     2253  u8 message flags (enum bus_message_flag), then two zeros
 *
 *     PING, PONG, MEET: gossip entries of 104 bytes, then extensions: u32 length of the whole extension (a multiple of
 *                       8), u16 type, two zeros, data, zeros up to the length
 *     FAIL:             the failed node, 40 characters
 *     PUBLISH, PUBLISHSHARD: u32 length of the channel, u32 length of the message, both texts
 *     UPDATE:           u64 configuration epoch, the node, 40 characters, its slots
 *     MODULE:           u64 module, u32 length, u8 type, payload
 *     AUTH_REQUEST, AUTH_ACK, MFSTART: nothing
 *
 *     brief header (48 bytes): PING and PONG between our nodes only (OWN_FEATURE_BRIEF of own_fields.h). The header
 *     repeats the last whole header that was sent on the link, but for the fields below.
 *        0  "RCmb"                                   24  u64 replication offset
 *        4  u32 length of the message                32  u64 digest of the repeated header: bus_header_digest()
 *        8  u16 version, 1                           40  u16 flags of the sender
 *       10  u16 number of brief gossip entries       42  u8 state of the cluster
 *       12  u16 type | 0x4000                        43  u8 message flags
 *       14  u16 number of gossip entries             44  u16 number of extensions
 *       16  u64 current epoch                        46  zeros
 *     Gossip entries and extensions are those of other messages; extensions that are not sent are unchanged. Brief
 *     gossip entries follow, about nodes that do not fail: the first 16 characters of the id, u32 last PONG.
 *
 * What a peer sends is hostile until bus_decode() has accepted it. The decoded struct points into the bytes. */
#pragma once
#include "lib/hash/slot_bitmap.h"
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NODE_ID_LEN = 40,
    NODE_ADDRESS_MAX = 46, /* bytes of an address field; the text may fill it but for one zero */
    BUS_PREFIX_SIZE = 14,  /* bytes that tell the length and the type of a message */
    BUS_HEADER_SIZE = 2256,
    BUS_LIGHT_HEADER_SIZE = 16,
    BUS_BRIEF_HEADER_SIZE = 48,
    BUS_GOSSIP_SIZE = 104,
    BUS_BRIEF_GOSSIP_SIZE = 20,
    BUS_BRIEF_ID_LEN = 16,
    BUS_RESERVED_SIZE = 30,
};

/* A node's or a shard's identity: 40 characters of [a-z0-9], without a zero at the end. */
struct node_id {
    char text[NODE_ID_LEN];
};
bool node_id_valid(const struct node_id *id);
bool node_id_is_zero(const struct node_id *id);
static inline bool node_id_equal(const struct node_id *a, const struct node_id *b) {
    return __builtin_memcmp(a->text, b->text, NODE_ID_LEN) == 0;
}

enum bus_type {
    BUS_PING,
    BUS_PONG,
    BUS_MEET,
    BUS_FAIL,
    BUS_PUBLISH,
    BUS_AUTH_REQUEST,
    BUS_AUTH_ACK,
    BUS_UPDATE,
    BUS_MFSTART,
    BUS_MODULE,
    BUS_PUBLISHSHARD,
    BUS_TYPES
};
const char *bus_type_name(unsigned type); /* as INFO and the log show it; "unknown" for others */

/* Flags of a node: in headers, in gossip entries and in memory. */
enum node_flag {
    NODE_PRIMARY = 1,
    NODE_REPLICA = 2,
    NODE_PFAIL = 4,
    NODE_FAIL = 8,
    NODE_MYSELF = 16,
    NODE_HANDSHAKE = 32,
    NODE_NOADDR = 64,
    NODE_MEET = 128, /* send MEET instead of PING when the link is up */
    NODE_MIGRATE_TO = 256,
    NODE_NOFAILOVER = 512,
    NODE_EXTENSIONS = 1024,
    NODE_LIGHT_PUBLISH = 2048,
    NODE_LIGHT_MODULE = 4096,  /* also: understands a second MEET */
    NODE_PRIMARY_FAILED = 8192 /* a replica that sees its own primary as failed */
};
enum bus_message_flag { BUS_PAUSED = 1, BUS_FORCE_ACK = 2, BUS_EXTENSION_DATA = 4 };

struct bus_header {
    unsigned type;   /* enum bus_type, or a type that this version does not know */
    bool light;      /* of a light message only `type` and the body are set */
    bool brief;      /* decoding: the fields that a brief header does not have are not set */
    uint64_t digest; /* of the repeated header; only of a brief one */
    uint16_t port, other_port, bus_port;
    uint64_t current_epoch, config_epoch, offset;
    struct node_id sender, primary;  /* primary: zeros if the sender is one */
    const struct slot_bitmap *slots; /* encoding: NULL stands for none */
    char address[NODE_ADDRESS_MAX];  /* ends with a zero; empty: not announced */
    uint8_t reserved[BUS_RESERVED_SIZE];
    uint16_t flags; /* enum node_flag */
    bool cluster_fails;
    uint8_t message_flags; /* enum bus_message_flag */
};

struct bus_gossip {
    struct node_id id;
    uint32_t ping_sent_s, pong_received_s; /* Unix time in seconds; 0: none in flight, never */
    char address[NODE_ADDRESS_MAX];
    uint16_t port, bus_port, other_port, flags;
};

struct bus_brief_gossip {
    char id[BUS_BRIEF_ID_LEN]; /* how the id begins */
    uint32_t pong_received_s;
};

/* Extensions of PING, PONG and MEET. An empty text and a port of 0 are not sent; where a message has extensions, what
 * it leaves out is empty at the receiver. */
struct bus_extensions {
    struct slice hostname, nodename, client_ipv4, client_ipv6, availability_zone;
    uint16_t client_port, client_tls_port;
    struct node_id shard; /* zeros: not sent */
    struct bus_forgotten {
        struct node_id id;
        uint64_t ttl_s;
    } const *forgotten;     /* encoding only */
    size_t forgotten_count; /* decoding: read them with bus_forgotten_at() */
    struct slice forgotten_bytes;
    uint16_t unknown; /* decoding: the last type that is not known, or 0xffff */
}; /* A type that a message has twice counts as it came last; data too short for its type is ignored. */

struct bus_message {
    struct bus_header header;
    /* PING, PONG, MEET */
    const struct bus_gossip *gossip;             /* encoding */
    const uint8_t *gossip_bytes;                 /* decoding: read them with bus_gossip_at() */
    size_t gossip_count;                         /* at most UINT16_MAX */
    const struct bus_brief_gossip *brief_gossip; /* encoding, behind a brief header */
    const uint8_t *brief_gossip_bytes;           /* decoding: read them with bus_brief_gossip_at() */
    size_t brief_gossip_count;                   /* at most UINT16_MAX */
    bool has_extensions;                         /* encoding: append them; decoding: the header counts at least one */
    struct bus_extensions extensions;
    /* FAIL, UPDATE */
    struct node_id node;
    uint64_t node_epoch;
    const struct slot_bitmap *node_slots;
    /* PUBLISH, PUBLISHSHARD */
    struct slice channel, message;
    /* MODULE */
    uint64_t module;
    uint8_t module_type;
    struct slice payload;
};

/* The length of the message that begins with these BUS_PREFIX_SIZE bytes, and its type without the light bit. False:
 * these bytes begin no message; the link is closed. The length is not limited here: see bus_length_max(). */
bool bus_prefix(const uint8_t bytes[static BUS_PREFIX_SIZE], uint32_t *length, unsigned *type);
/* The largest length that a message of this type may have. `bulk_max`: proto-max-bulk-len, for published messages.
 * `nodes`: known nodes, which limits the gossip entries that make sense. */
uint64_t bus_length_max(unsigned type, uint64_t bulk_max, size_t nodes);

enum bus_verdict {
    BUS_ACCEPTED,
    BUS_IGNORED,     /* another version: drop it without a log line */
    BUS_INVALID,     /* lengths that do not fit, and the like: drop it, the link stays */
    BUS_UNKNOWN_TYPE /* only the header is decoded */
};
/* Decodes a whole message of `len` bytes, as long as its prefix says. The struct points into `bytes`. Gossip entries
 * and extensions must fill a message exactly, as Valkey demands. A gossip section with an id that is not valid is left
 * out (gossip_count 0) and `*bad_id` points to the 48 bytes for the log; NULL otherwise. */
enum bus_verdict bus_decode(const uint8_t *bytes, size_t len, struct bus_message *message, const uint8_t **bad_id);
/* Why bus_decode() found such a message of at least its header's size BUS_INVALID: Valkey's line for the log. */
enum { BUS_TEXT_MAX = 160 };
void bus_invalid_text(const uint8_t *bytes, size_t len, char text[static BUS_TEXT_MAX]);
void bus_gossip_at(const struct bus_message *message, size_t index, struct bus_gossip *entry);
void bus_brief_gossip_at(const struct bus_message *message, size_t index, struct bus_brief_gossip *entry);
void bus_forgotten_at(const struct bus_message *message, size_t index, struct bus_forgotten *forgotten);

/* A number that tells whether two headers differ in a field that a brief header repeats; never 0. `slots`: the digest
 * of the header's slots, which most headers have in common, and which takes longest. */
uint64_t bus_header_digest(const struct bus_header *header, uint64_t slots);
uint64_t bus_slots_digest(const struct slot_bitmap *slots);
/* The same for extensions, without the forgotten nodes. */
uint64_t bus_extensions_digest(const struct bus_extensions *extensions);

/* The size that bus_encode() needs. A message must not be longer than UINT32_MAX. */
size_t bus_encoded_size(const struct bus_message *message);
/* Encodes into `out`, which has bus_encoded_size() bytes. Light if the header says so. What bus_decode() has filled may
 * be encoded again. Brief likewise. */
void bus_encode(const struct bus_message *message, uint8_t *out);
