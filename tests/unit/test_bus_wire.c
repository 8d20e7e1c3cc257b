/* The messages of the cluster bus: encoding, decoding, and rejection of invalid messages. */
#include "unit.h"
#include "cluster/protocol/bus_wire.h"
#include "lib/system/memory.h"
#include <stdio.h>
#include <stdlib.h>

static struct node_id id_of(char c) {
    struct node_id id;
    memset(id.text, c, NODE_ID_LEN);
    return id;
}

/* An encoded message in an allocation of its exact length, so that a sanitizer detects reads past the end. */
struct packet {
    uint8_t *bytes;
    size_t len;
};
static struct packet encode(const struct bus_message *message) {
    struct packet packet = {.len = bus_encoded_size(message)};
    packet.bytes = mem_alloc(packet.len);
    memset(packet.bytes, 0xee, packet.len);
    bus_encode(message, packet.bytes);
    return packet;
}
/* The packet with `len` bytes, zeros added or the end removed, and that length in its header. */
static struct packet resize(struct packet packet, size_t len) {
    struct packet other = {mem_alloc(len), len};
    memset(other.bytes, 0, len);
    memcpy(other.bytes, packet.bytes, len < packet.len ? len : packet.len);
    for (int i = 0; i < 4; i++) other.bytes[4 + i] = (uint8_t)(len >> (24 - 8 * i));
    return other;
}
static enum bus_verdict verdict(struct packet packet) {
    struct bus_message message;
    const uint8_t *bad_id;
    return bus_decode(packet.bytes, packet.len, &message, &bad_id);
}
static uint16_t u16_at(struct packet packet, size_t at) {
    return (uint16_t)(packet.bytes[at] << 8 | packet.bytes[at + 1]);
}
static void assert_text(struct slice text, const char *expected) {
    assert_int_equal(text.len, strlen(expected));
    assert_memory_equal(text.data, expected, text.len);
}

static struct slot_bitmap slots;
static struct bus_header header_of(unsigned type) {
    struct bus_header header = {
        .type = type,
        .port = 6379,
        .other_port = 6380,
        .bus_port = 16379,
        .current_epoch = 0x0102030405060708,
        .config_epoch = 7,
        .offset = 1ull << 40,
        .sender = id_of('a'),
        .primary = id_of('b'),
        .slots = &slots,
        .address = "192.0.2.1",
        .flags = NODE_REPLICA | NODE_MYSELF | NODE_PRIMARY_FAILED,
        .cluster_fails = true,
        .message_flags = BUS_PAUSED | BUS_EXTENSION_DATA,
    };
    memcpy(header.reserved, "spare", 5);
    slot_bitmap_set(&slots, 0);
    slot_bitmap_set(&slots, 9);
    slot_bitmap_set(&slots, 16383);
    return header;
}
static void assert_header(const struct bus_header *header, const struct bus_header *expected) {
    assert_int_equal(header->type, expected->type);
    assert_int_equal(header->port, expected->port);
    assert_int_equal(header->other_port, expected->other_port);
    assert_int_equal(header->bus_port, expected->bus_port);
    assert_int_equal(header->current_epoch, expected->current_epoch);
    assert_int_equal(header->config_epoch, expected->config_epoch);
    assert_int_equal(header->offset, expected->offset);
    assert_true(node_id_equal(&header->sender, &expected->sender));
    assert_true(node_id_equal(&header->primary, &expected->primary));
    assert_memory_equal(header->slots, expected->slots, SLOT_BITMAP_SIZE);
    assert_string_equal(header->address, expected->address);
    assert_memory_equal(header->reserved, expected->reserved, BUS_RESERVED_SIZE);
    assert_int_equal(header->flags, expected->flags);
    assert_int_equal(header->cluster_fails, expected->cluster_fails);
    assert_int_equal(header->message_flags, expected->message_flags);
}

TEST(ids_are_lowercase_letters_and_digits) {
    struct node_id id = id_of('z');
    for (int at = 0; at < NODE_ID_LEN; at++) {
        for (int c = 0; c < 256; c++) {
            id.text[at] = (char)c;
            assert_int_equal(node_id_valid(&id), (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'));
        }
        id.text[at] = '0';
    }
    id = id_of('\0');
    assert_false(node_id_valid(&id));
    assert_true(node_id_is_zero(&id));
}

TEST(types_have_names) {
    assert_string_equal(bus_type_name(BUS_PING), "ping");
    assert_string_equal(bus_type_name(BUS_AUTH_REQUEST), "auth-req");
    assert_string_equal(bus_type_name(BUS_PUBLISHSHARD), "publishshard");
    assert_string_equal(bus_type_name(BUS_TYPES), "unknown");
}

TEST(the_header_has_its_fields_in_their_places) {
    struct bus_message message = {.header = header_of(BUS_AUTH_REQUEST)}, decoded;
    struct packet packet = encode(&message);
    const uint8_t *bad_id;
    assert_int_equal(packet.len, BUS_HEADER_SIZE);
    assert_memory_equal(packet.bytes, "RCmb\0\0\x08\xd0\0\x01\x18\xeb\0\x05\0\0\1\2\3\4\5\6\7\x08", 24);
    assert_memory_equal(packet.bytes + 40, "aaaa", 4);
    assert_int_equal(packet.bytes[80], 1);
    assert_int_equal(packet.bytes[81], 2);
    assert_int_equal(packet.bytes[2127], 128);
    assert_memory_equal(packet.bytes + 2128, "bbbb", 4);
    assert_string_equal(packet.bytes + 2168, "192.0.2.1");
    assert_memory_equal(packet.bytes + 2216, "spare", 5);
    assert_int_equal(u16_at(packet, 2246), 6380);
    assert_int_equal(u16_at(packet, 2248), 16379);
    assert_int_equal(u16_at(packet, 2250), 8192 + 16 + 2);
    assert_memory_equal(packet.bytes + 2252, "\1\5\0\0", 4);
    assert_int_equal(bus_decode(packet.bytes, packet.len, &decoded, &bad_id), BUS_ACCEPTED);
    assert_header(&decoded.header, &message.header);
    mem_free(packet.bytes);
}

TEST(a_ping_carries_gossip_and_extensions) {
    const struct bus_gossip gossip[] = {
        {id_of('c'), 0, 1700000000, "2001:db8::1", 7000, 17000, 0, NODE_PRIMARY},
        {id_of('d'), 1700000001, 0, "", 7001, 17001, 7002, NODE_REPLICA | NODE_PFAIL},
    };
    const struct bus_forgotten forgotten[] = {{id_of('e'), 60}, {id_of('f'), 1}, {id_of('g'), 1ull << 33}};
    struct bus_message message = {
        .header = header_of(BUS_PING),
        .gossip = gossip,
        .gossip_count = 2,
        .has_extensions = true,
        .extensions = {.hostname = SLICE("seventh"), /* with its zero it fills its eight bytes */
                       .nodename = SLICE("a name"),
                       .client_ipv4 = SLICE("198.51.100.1"),
                       .client_ipv6 = SLICE("2001:db8::2"),
                       .availability_zone = SLICE("zone-1a."),
                       .client_port = 443,
                       .client_tls_port = 444,
                       .shard = id_of('s'),
                       .forgotten = forgotten,
                       .forgotten_count = 3},
    };
    struct packet packet = encode(&message);
    assert_int_equal(packet.len,
                     BUS_HEADER_SIZE + 2 * BUS_GOSSIP_SIZE + 16 + 16 + 24 + 24 + 16 + 16 + 24 + 3 * 56 + 48);
    assert_int_equal(u16_at(packet, 14), 2);
    assert_int_equal(u16_at(packet, 2214), 11);
    const uint8_t *first = packet.bytes + BUS_HEADER_SIZE + 2 * BUS_GOSSIP_SIZE;
    assert_memory_equal(first, "\0\0\0\x10\0\0\0\0seventh\0", 16);

    struct bus_message decoded;
    const uint8_t *bad_id;
    assert_int_equal(bus_decode(packet.bytes, packet.len, &decoded, &bad_id), BUS_ACCEPTED);
    assert_null(bad_id);
    assert_header(&decoded.header, &message.header);
    assert_int_equal(decoded.gossip_count, 2);
    for (size_t i = 0; i < 2; i++) {
        struct bus_gossip entry;
        bus_gossip_at(&decoded, i, &entry);
        assert_true(node_id_equal(&entry.id, &gossip[i].id));
        assert_int_equal(entry.ping_sent_s, gossip[i].ping_sent_s);
        assert_int_equal(entry.pong_received_s, gossip[i].pong_received_s);
        assert_string_equal(entry.address, gossip[i].address);
        assert_int_equal(entry.port, gossip[i].port);
        assert_int_equal(entry.bus_port, gossip[i].bus_port);
        assert_int_equal(entry.other_port, gossip[i].other_port);
        assert_int_equal(entry.flags, gossip[i].flags);
    }
    const struct bus_extensions *extensions = &decoded.extensions;
    assert_true(decoded.has_extensions);
    assert_text(extensions->hostname, "seventh");
    assert_text(extensions->nodename, "a name");
    assert_text(extensions->client_ipv4, "198.51.100.1");
    assert_text(extensions->client_ipv6, "2001:db8::2");
    assert_text(extensions->availability_zone, "zone-1a.");
    assert_int_equal(extensions->client_port, 443);
    assert_int_equal(extensions->client_tls_port, 444);
    assert_true(node_id_equal(&extensions->shard, &message.extensions.shard));
    assert_int_equal(extensions->unknown, 0xffff);
    assert_int_equal(extensions->forgotten_count, 3);
    for (size_t i = 0; i < 3; i++) {
        struct bus_forgotten node;
        bus_forgotten_at(&decoded, i, &node);
        assert_true(node_id_equal(&node.id, &forgotten[i].id));
        assert_int_equal(node.ttl_s, forgotten[i].ttl_s);
    }
    struct packet again = encode(&decoded);
    assert_int_equal(again.len, packet.len);
    assert_memory_equal(again.bytes, packet.bytes, packet.len);
    mem_free(again.bytes);
    mem_free(packet.bytes);
}

TEST(a_ping_without_extensions_says_so) {
    struct bus_message message = {.header = header_of(BUS_MEET), .extensions = {.hostname = SLICE("left-out")}},
                       decoded;
    struct packet packet = encode(&message);
    const uint8_t *bad_id;
    assert_int_equal(packet.len, BUS_HEADER_SIZE);
    assert_int_equal(bus_decode(packet.bytes, packet.len, &decoded, &bad_id), BUS_ACCEPTED);
    assert_false(decoded.has_extensions);
    assert_int_equal(decoded.extensions.hostname.len, 0);
    mem_free(packet.bytes);
}

static uint64_t digest_of(const struct bus_header *header) {
    return bus_header_digest(header, bus_slots_digest(header->slots));
}

TEST(a_brief_ping_repeats_a_header) {
    struct slot_bitmap some = {{1, 2, 3}}, others = {{1, 2, 4}};
    struct bus_gossip gossip = {.pong_received_s = 7, .port = 6379, .bus_port = 16379};
    memset(gossip.id.text, 'a', NODE_ID_LEN);
    struct bus_brief_gossip brief[2] = {{.pong_received_s = 8}, {.pong_received_s = 9}};
    memset(brief[0].id, 'b', BUS_BRIEF_ID_LEN);
    memset(brief[1].id, 'c', BUS_BRIEF_ID_LEN);
    struct bus_header whole = {.config_epoch = 3, .slots = &some, .address = "10.0.0.1", .port = 1, .bus_port = 2};
    struct bus_message message = {.header = whole,
                                  .gossip = &gossip,
                                  .gossip_count = 1,
                                  .brief_gossip = brief,
                                  .brief_gossip_count = 2,
                                  .has_extensions = true,
                                  .extensions = {.client_port = 5}};
    message.header.type = BUS_PONG;
    message.header.brief = true;
    message.header.digest = digest_of(&whole);
    message.header.current_epoch = 11;
    message.header.offset = 12;
    message.header.flags = NODE_REPLICA;
    message.header.cluster_fails = true;
    message.header.message_flags = BUS_PAUSED;
    uint8_t bytes[BUS_BRIEF_HEADER_SIZE + BUS_GOSSIP_SIZE + 16 + 2 * BUS_BRIEF_GOSSIP_SIZE];
    assert_int_equal(bus_encoded_size(&message), sizeof bytes);
    bus_encode(&message, bytes);
    struct bus_message read;
    const uint8_t *bad_id;
    assert_int_equal(bus_decode(bytes, sizeof bytes, &read, &bad_id), BUS_ACCEPTED);
    const struct bus_header *header = &read.header;
    assert_true(header->brief && header->type == BUS_PONG && header->digest == digest_of(&whole));
    assert_true(header->current_epoch == 11 && header->offset == 12 && header->flags == NODE_REPLICA);
    assert_true(header->cluster_fails && header->message_flags == BUS_PAUSED && !header->slots);
    assert_int_equal(read.gossip_count, 1);
    assert_int_equal(read.extensions.client_port, 5);
    assert_int_equal(read.brief_gossip_count, 2);
    struct bus_brief_gossip entry;
    bus_brief_gossip_at(&read, 1, &entry);
    assert_memory_equal(&entry, &brief[1], sizeof entry);
    /* Each length but the right one is invalid, and so are other types. */
    for (size_t len = BUS_BRIEF_HEADER_SIZE; len < sizeof bytes; len++) {
        bytes[7] = (uint8_t)len;
        assert_int_equal(bus_decode(bytes, len, &read, &bad_id), BUS_INVALID);
    }
    bytes[7] = sizeof bytes;
    uint32_t length;
    unsigned type;
    assert_true(bus_prefix(bytes, &length, &type) && type == BUS_PONG);
    for (type = BUS_MEET; type < BUS_TYPES; type++) {
        bytes[13] = (uint8_t)type;
        assert_int_equal(bus_decode(bytes, sizeof bytes, &read, &bad_id), BUS_INVALID);
    }
    bytes[12] |= 0x80; /* light and brief */
    assert_int_equal(bus_decode(bytes, sizeof bytes, &read, &bad_id), BUS_INVALID);
    /* Whatever a brief header does not have is in the digest. */
    uint64_t digest = digest_of(&whole);
    struct bus_header other[9];
    for (int i = 0; i < 9; i++) other[i] = whole;
    other[0].slots = &others;
    other[1].config_epoch++;
    other[2].sender.text[0]++;
    other[3].primary.text[0]++;
    other[4].address[0]++;
    other[5].reserved[0]++;
    other[6].port++;
    other[7].other_port++;
    other[8].bus_port++;
    for (int i = 0; i < 9; i++) assert_true(digest_of(&other[i]) != digest);
}

TEST(other_types_carry_their_bodies) {
    struct bus_message message = {.header = header_of(BUS_UPDATE),
                                  .node = id_of('n'),
                                  .node_epoch = 99,
                                  .node_slots = &slots,
                                  .channel = SLICE("channel"),
                                  .message = SLICE("the message"),
                                  .module = 0x1122334455667788,
                                  .module_type = 5,
                                  .payload = SLICE("payload")},
                       decoded;
    const uint8_t *bad_id;
    static const unsigned types[] = {BUS_UPDATE, BUS_FAIL, BUS_PUBLISH, BUS_PUBLISHSHARD, BUS_MODULE, BUS_MFSTART};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        unsigned type = message.header.type = types[i];
        bool texts = type == BUS_PUBLISH || type == BUS_PUBLISHSHARD;
        for (int light = 0; light <= (texts || type == BUS_MODULE); light++) {
            message.header.light = light;
            struct packet packet = encode(&message);
            uint32_t length;
            unsigned prefix_type;
            assert_true(bus_prefix(packet.bytes, &length, &prefix_type));
            assert_int_equal(length, packet.len);
            assert_int_equal(prefix_type, type);
            assert_int_equal(bus_decode(packet.bytes, packet.len, &decoded, &bad_id), BUS_ACCEPTED);
            assert_int_equal(decoded.header.type, type);
            assert_int_equal(decoded.header.light, light);
            if (light) assert_int_equal(u16_at(packet, 12), type | 0x8000);
            if (!light) assert_header(&decoded.header, &message.header);
            if (type == BUS_UPDATE) {
                assert_int_equal(packet.len, 4352);
                assert_int_equal(decoded.node_epoch, 99);
                assert_memory_equal(decoded.node_slots, &slots, sizeof slots);
            }
            if (type == BUS_UPDATE || type == BUS_FAIL) assert_true(node_id_equal(&decoded.node, &message.node));
            if (texts) {
                assert_int_equal(packet.len, (light ? 24 : 2264) + 7 + 11);
                assert_text(decoded.channel, "channel");
                assert_text(decoded.message, "the message");
            }
            if (type == BUS_MODULE) {
                assert_int_equal(packet.len, (light ? 16 : 2256) + 13 + 7);
                assert_int_equal(decoded.module, message.module);
                assert_int_equal(decoded.module_type, 5);
                assert_text(decoded.payload, "payload");
            }
            struct packet again = encode(&decoded);
            assert_int_equal(again.len, packet.len);
            assert_memory_equal(again.bytes, packet.bytes, packet.len);
            mem_free(again.bytes);
            mem_free(packet.bytes);
        }
    }
}

TEST(every_length_but_the_right_one_is_invalid) {
    for (unsigned type = 0; type < BUS_TYPES; type++) {
        struct bus_gossip gossip = {.id = id_of('g')};
        struct bus_message message = {.header = header_of(type),
                                      .gossip = &gossip,
                                      .gossip_count = 1,
                                      .has_extensions = true,
                                      .extensions = {.hostname = SLICE("host")},
                                      .channel = SLICE("channel"),
                                      .payload = SLICE("p")};
        for (int light = 0; light < 2; light++) {
            message.header.light = light;
            if (light && type != BUS_PUBLISH && type != BUS_PUBLISHSHARD && type != BUS_MODULE) continue;
            struct packet packet = encode(&message);
            for (size_t len = light ? 16 : BUS_HEADER_SIZE; len < packet.len + 20; len++) {
                struct packet other = resize(packet, len);
                assert_int_equal(verdict(other), len == packet.len ? BUS_ACCEPTED : BUS_INVALID);
                mem_free(other.bytes);
            }
            mem_free(packet.bytes);
        }
    }
}

TEST(a_prefix_needs_the_signature_and_a_whole_header) {
    static const struct {
        const char *bytes;
        bool valid;
    } cases[] = {
        {"RCmb\0\0\x08\xd0\0\1\0\0\0\0", true},     {"RCmc\0\0\x08\xd0\0\1\0\0\0\0", false},
        {"RCmb\0\0\x08\xcf\0\1\0\0\0\0", false},    {"RCmb\0\0\0\x10\0\1\0\0\x80\4", true},
        {"RCmb\0\0\0\x0f\0\1\0\0\x80\4", false},    {"RCmb\xff\xff\xff\xff\0\1\0\0\0\4", true},
        {"RCmb\0\0\x08\xd0\0\2\0\0\x7f\xff", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t length;
        unsigned type;
        assert_int_equal(bus_prefix((const uint8_t *)cases[i].bytes, &length, &type), cases[i].valid);
    }
}

TEST(other_versions_and_types_are_told_apart) {
    struct bus_message message = {.header = header_of(BUS_PING)}, decoded;
    struct packet packet = encode(&message);
    const uint8_t *bad_id;
    packet.bytes[9] = 2;
    assert_int_equal(verdict(packet), BUS_IGNORED);
    packet.bytes[9] = 1;
    packet.bytes[12] = 0x80; /* a PING has no light form */
    assert_int_equal(verdict(packet), BUS_INVALID);
    packet.bytes[12] = 1;
    packet.bytes[13] = 44;
    assert_int_equal(bus_decode(packet.bytes, packet.len, &decoded, &bad_id), BUS_UNKNOWN_TYPE);
    assert_int_equal(decoded.header.type, 300);
    assert_true(node_id_equal(&decoded.header.sender, &message.header.sender));
    assert_int_equal(bus_decode(packet.bytes, packet.len - 1, &decoded, &bad_id), BUS_INVALID);
    assert_int_equal(bus_decode(packet.bytes, 3, &decoded, &bad_id), BUS_INVALID);
    mem_free(packet.bytes);
}

TEST(lengths_of_texts_cannot_overflow) {
    struct bus_message message = {.header = header_of(BUS_PUBLISH), .channel = SLICE("12345678")};
    for (int light = 0; light < 2; light++) {
        message.header.light = light;
        struct packet packet = encode(&message);
        uint8_t *lengths = packet.bytes + (light ? 16 : BUS_HEADER_SIZE);
        memcpy(lengths, "\xff\xff\xff\xff\0\0\0\x09", 8); /* 2^32 - 1 + 9 = 8 */
        assert_int_equal(verdict(packet), BUS_INVALID);
        memcpy(lengths, "\0\0\0\x09\xff\xff\xff\xff", 8);
        assert_int_equal(verdict(packet), BUS_INVALID);
        memcpy(lengths, "\0\0\0\x01\0\0\0\x07", 8);
        assert_int_equal(verdict(packet), BUS_ACCEPTED);
        mem_free(packet.bytes);
    }
}

TEST(a_gossip_section_with_a_bad_id_is_left_out) {
    struct bus_gossip gossip[3] = {{.id = id_of('1')}, {.id = id_of('2'), .pong_received_s = 5}, {.id = id_of('3')}};
    gossip[1].id.text[7] = 'Z';
    struct bus_message message = {.header = header_of(BUS_PONG),
                                  .gossip = gossip,
                                  .gossip_count = 3,
                                  .has_extensions = true,
                                  .extensions = {.hostname = SLICE("kept")}},
                       decoded;
    struct packet packet = encode(&message);
    const uint8_t *bad_id;
    assert_int_equal(bus_decode(packet.bytes, packet.len, &decoded, &bad_id), BUS_ACCEPTED);
    assert_int_equal(decoded.gossip_count, 0);
    assert_ptr_equal(bad_id, packet.bytes + BUS_HEADER_SIZE + BUS_GOSSIP_SIZE);
    assert_text(decoded.extensions.hostname, "kept");
    mem_free(packet.bytes);
}

/* A PING with these extensions, given as type and data. */
struct raw_extension {
    unsigned type;
    struct slice data;
};
static struct packet ping_with(const struct raw_extension *extensions, size_t count) {
    struct bus_message message = {.header = header_of(BUS_PING)};
    struct packet plain = encode(&message);
    size_t len = BUS_HEADER_SIZE;
    for (size_t i = 0; i < count; i++) len += 8 + extensions[i].data.len;
    struct packet packet = resize(plain, len);
    packet.bytes[2215] = (uint8_t)count;
    uint8_t *at = packet.bytes + BUS_HEADER_SIZE;
    for (size_t i = 0; i < count; i++) {
        at[3] = (uint8_t)(8 + extensions[i].data.len);
        at[4] = (uint8_t)(extensions[i].type >> 8);
        at[5] = (uint8_t)extensions[i].type;
        memcpy(at + 8, extensions[i].data.data, extensions[i].data.len);
        at += 8 + extensions[i].data.len;
    }
    mem_free(plain.bytes);
    return packet;
}

TEST(unknown_and_short_extensions_are_skipped) {
    static const struct raw_extension extensions[] = {
        {0xf001, {"12345678", 8}},      {0, {"unended!", 8}}, {2, {"short   ", 8}}, {3, {"short   ", 8}}, {6, {"", 0}},
        {7, {"\x01\xbb\0\0\0\0\0", 8}}, {1, {"", 0}},
    };
    struct packet packet = ping_with(extensions, 7);
    struct bus_message decoded;
    const uint8_t *bad_id;
    assert_int_equal(bus_decode(packet.bytes, packet.len, &decoded, &bad_id), BUS_ACCEPTED);
    assert_int_equal(decoded.extensions.unknown, 0xf001);
    assert_text(decoded.extensions.hostname, "unended!");
    assert_int_equal(decoded.extensions.forgotten_count, 0);
    assert_true(node_id_is_zero(&decoded.extensions.shard));
    assert_int_equal(decoded.extensions.client_port, 0);
    assert_int_equal(decoded.extensions.client_tls_port, 443);
    assert_int_equal(decoded.extensions.nodename.len, 0);
    mem_free(packet.bytes);
}

TEST(extensions_must_have_lengths_that_fit) {
    static const struct raw_extension extension = {0, {"host\0\0\0\0", 8}};
    struct packet packet = ping_with(&extension, 1);
    assert_int_equal(verdict(packet), BUS_ACCEPTED);
    for (unsigned length = 0; length < 40; length++) {
        packet.bytes[BUS_HEADER_SIZE + 3] = (uint8_t)length;
        assert_int_equal(verdict(packet), length == 16 ? BUS_ACCEPTED : BUS_INVALID);
    }
    memset(packet.bytes + BUS_HEADER_SIZE, 0xff, 4);
    assert_int_equal(verdict(packet), BUS_INVALID);
    mem_free(packet.bytes);
}

TEST(forgotten_nodes_are_one_run_of_equal_lengths) {
    char data[56] = {0}; /* a later version may add eight bytes */
    memset(data, 'a', NODE_ID_LEN);
    data[47] = 9;
    const struct slice longer = {data, 56}, ordinary = {data, 48}, host = SLICE("host\0\0\0");
    const struct raw_extension extensions[] = {
        {2, longer}, {2, longer}, {2, ordinary}, {0, {host.data, 8}}, {2, longer}};
    struct packet packet = ping_with(extensions, 5);
    struct bus_message decoded;
    const uint8_t *bad_id;
    assert_int_equal(bus_decode(packet.bytes, packet.len, &decoded, &bad_id), BUS_ACCEPTED);
    assert_int_equal(decoded.extensions.forgotten_count, 2);
    for (size_t i = 0; i < 2; i++) {
        struct bus_forgotten node;
        bus_forgotten_at(&decoded, i, &node);
        assert_memory_equal(node.id.text, data, NODE_ID_LEN);
        assert_int_equal(node.ttl_s, 9);
    }
    assert_text(decoded.extensions.hostname, "host");
    mem_free(packet.bytes);
}

TEST(the_log_says_what_is_wrong) {
    struct bus_message message = {.header = header_of(BUS_PING)};
    char text[BUS_TEXT_MAX];
    static const struct {
        unsigned type;
        size_t len; /* of the body */
        size_t at;
        uint8_t byte;
        const char *text;
    } cases[] = {
        {BUS_PING, 0, 15, 1,
         "Received invalid ping packet with gossip count 1 that exceeds total packet length (2256)"},
        {BUS_PONG, 8, 0, 0, "Received invalid pong packet of length 2264 but expected length 2256"},
        {BUS_FAIL, 41, 0, 0, "Received invalid fail packet of length 2297 but expected length 2296"},
        {BUS_UPDATE, 0, 0, 0, "Received invalid update packet of length 2256 but expected length 4352"},
        {BUS_MFSTART, 1, 0, 0, "Received invalid mfstart packet of length 2257 but expected length 2256"},
        {BUS_PUBLISH, 7, 0, 0,
         "Received invalid publish packet with channel length that exceeds total packet length (2263)"},
        {BUS_PUBLISH, 8, 2256, 255,
         "Received invalid publish packet with channel length that exceeds total packet length (2264)"},
        {BUS_PUBLISHSHARD, 8, 2263, 1,
         "Received invalid publishshard packet with message length that exceeds total packet length (2264)"},
        {BUS_PUBLISH, 9, 0, 0, "Received invalid publish packet of length 2265 but expected length 2264"},
        {BUS_MODULE, 12, 0, 0,
         "Received invalid module packet with module payload length that exceeds total packet length (2268)"},
        {BUS_MODULE, 13, 2267, 1,
         "Received invalid module packet with module payload length that exceeds total packet length (2269)"},
        {BUS_MODULE, 14, 0, 0, "Received invalid module packet of length 2270 but expected length 2269"},
        {BUS_PING, 4, 2215, 1,
         "Received invalid ping packet with extension data that exceeds total packet length (2260)"},
        {BUS_PING, 12, 2215, 1, "Received invalid ping packet of length 2268 but expected length 2256"},
        {BUS_PING, 0, 12, 0x80,
         "Packet of type 'ping' (0) does not support light cluster header. Marking packet as invalid."},
        {BUS_PONG, 0, 16, 0x40, "Received invalid pong packet of length 2256 with an epoch above 4611686018427387903"},
        {BUS_AUTH_ACK, 0, 24, 0x80,
         "Received invalid auth-ack packet of length 2256 with an epoch above 4611686018427387903"},
        {BUS_UPDATE, 2096, 2256, 0x40,
         "Received invalid update packet of length 4352 with an epoch above 4611686018427387903"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        message.header.type = BUS_MFSTART; /* a header alone */
        struct packet header = encode(&message), packet = resize(header, BUS_HEADER_SIZE + cases[i].len);
        packet.bytes[13] = (uint8_t)cases[i].type;
        if (cases[i].at) packet.bytes[cases[i].at] = cases[i].byte;
        assert_int_equal(verdict(packet), BUS_INVALID);
        bus_invalid_text(packet.bytes, packet.len, text);
        assert_string_equal(text, cases[i].text);
        mem_free(packet.bytes);
        mem_free(header.bytes);
    }
    static const struct raw_extension extension = {0, {"host\0\0\0\0", 8}};
    struct packet packet = ping_with(&extension, 1);
    packet.bytes[BUS_HEADER_SIZE + 3] = 12;
    bus_invalid_text(packet.bytes, packet.len, text);
    assert_string_equal(text, "Received a ping packet without proper padding (12 bytes)");
    packet.bytes[BUS_HEADER_SIZE + 3] = 24;
    bus_invalid_text(packet.bytes, packet.len, text);
    assert_string_equal(text,
                        "Received invalid ping packet with extension data that exceeds total packet length (2272)");
    mem_free(packet.bytes);
}

TEST(an_address_that_fills_its_field_is_cut) {
    struct bus_message message = {.header = header_of(BUS_AUTH_ACK)}, decoded;
    struct packet packet = encode(&message);
    const uint8_t *bad_id;
    memset(packet.bytes + 2168, '1', NODE_ADDRESS_MAX);
    assert_int_equal(bus_decode(packet.bytes, packet.len, &decoded, &bad_id), BUS_ACCEPTED);
    assert_int_equal(strlen(decoded.header.address), NODE_ADDRESS_MAX - 1);
    mem_free(packet.bytes);
}

TEST(lengths_are_limited_by_type) {
    enum { KIB = 1024, MIB = 1024 * KIB };
    assert_int_equal(bus_length_max(BUS_FAIL, 512 * MIB, 10), 2 * MIB);
    assert_int_equal(bus_length_max(BUS_PING, 512 * MIB, 0), 2 * MIB);
    assert_true(bus_length_max(BUS_PING, 1 * MIB, 30000) > 2 * 30000 * BUS_GOSSIP_SIZE);
    assert_int_equal(bus_length_max(BUS_PUBLISH, 1 * MIB, 10), 2 * MIB + 64 * KIB);
    assert_int_equal(bus_length_max(BUS_PUBLISHSHARD, 1 * MIB, 10), 2 * MIB + 64 * KIB);
    assert_int_equal(bus_length_max(BUS_MODULE, UINT64_MAX, 10), UINT32_MAX);
    assert_int_equal(bus_length_max(4711, 512 * MIB, 10), 2 * MIB);
}

/* One message of the recording: hexadecimal digits, and "00*20" for 20 bytes of zeros. */
static struct packet parse_packet(const char *text) {
    enum { SIZE = 64 * 1024 };
    struct packet packet = {mem_alloc(SIZE), 0};
    while (*text && *text != '\n') {
        unsigned byte, count = 1;
        int used = 0;
        assert_int_equal(sscanf(text, "%2x%n", &byte, &used), 1);
        assert_int_equal(used, 2);
        text += used;
        if (*text == '*') {
            assert_int_equal(sscanf(text, "*%u%n", &count, &used), 1);
            text += used;
        }
        assert_true(count <= SIZE - packet.len);
        memset(packet.bytes + packet.len, (int)byte, count);
        packet.len += count;
        while (*text == ' ') text++;
    }
    return packet;
}

/* The messages were recorded by tests/interop/cluster_packets.py. */
TEST(messages_of_valkey_are_encoded_to_the_same_bytes) {
    FILE *file = fopen("tests/unit/data/cluster-packets", "r");
    assert_non_null(file);
    char *line = NULL;
    size_t size = 0, messages[BUS_TYPES] = {0}, extensions = 0;
    while (getline(&line, &size, file) > 0) {
        char name[200];
        assert_int_equal(sscanf(line, "%199[^ \n]", name), 1);
        assert_true(getline(&line, &size, file) > 0);
        struct packet whole = parse_packet(line), packet = resize(whole, whole.len);
        struct bus_message message;
        const uint8_t *bad_id;
        assert_int_equal(bus_decode(packet.bytes, packet.len, &message, &bad_id), BUS_ACCEPTED);
        assert_null(bad_id);
        assert_string_equal(bus_type_name(message.header.type), name);
        assert_int_equal(message.extensions.unknown, message.header.type <= BUS_MEET ? 0xffff : 0);
        struct packet again = encode(&message);
        assert_int_equal(again.len, whole.len);
        assert_memory_equal(again.bytes, whole.bytes, whole.len);
        messages[message.header.type]++;
        extensions |= (message.extensions.hostname.len ? 1 : 0) | (message.extensions.nodename.len ? 2 : 0) |
                      (message.extensions.client_ipv4.len ? 4 : 0) | (message.extensions.client_ipv6.len ? 8 : 0) |
                      (message.extensions.client_port ? 16 : 0) | (message.extensions.client_tls_port ? 32 : 0) |
                      (message.extensions.availability_zone.len ? 64 : 0) |
                      (message.extensions.forgotten_count ? 128 : 0);
        mem_free(again.bytes);
        mem_free(packet.bytes);
        mem_free(whole.bytes);
    }
    for (unsigned type = 0; type < BUS_TYPES; type++) assert_true(messages[type] > 0);
    assert_int_equal(extensions, 255);
    free(line);
    fclose(file);
}

TEST(the_next_slot_is_found_like_bit_by_bit) {
    static const struct {
        unsigned first, last;
    } ranges[] = {{0, 0}, {7, 9}, {63, 64}, {128, 191}, {200, 1000}, {8191, 8191}, {16320, 16382}, {16383, 16383}};
    struct slot_bitmap set = {0};
    assert_int_equal(slot_bitmap_next(&set, 0, true), HASH_SLOTS);
    assert_int_equal(slot_bitmap_next(&set, 5, false), 5);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        for (unsigned slot = ranges[i].first; slot <= ranges[i].last; slot++) slot_bitmap_set(&set, slot);
        for (unsigned in = 0; in <= 1; in++) {
            unsigned next = HASH_SLOTS;
            assert_int_equal(slot_bitmap_next(&set, HASH_SLOTS, in), HASH_SLOTS);
            for (unsigned slot = HASH_SLOTS; slot-- > 0;) {
                if (slot_bitmap_has(&set, slot) == in) next = slot;
                assert_int_equal(slot_bitmap_next(&set, slot, in), next);
            }
        }
    }
}
