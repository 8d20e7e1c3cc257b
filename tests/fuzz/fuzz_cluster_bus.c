/* The messages of the cluster bus. Any bytes are decoded; an accepted message is encoded and decoded again to the same
 * struct. The encoded bytes are the same except for fields that are not read, unless the message has extensions, which
 * may be unknown, empty, out of order or have any padding.
 *
 * Input: the message after its first 16 bytes; the first byte selects whether signature, length and version are
 * prepended, because the fuzzer would not find a valid length itself. */
#include "fuzz.h"
#include "cluster/protocol/bus_wire.h"
#include "lib/system/memory.h"

struct packet {
    uint8_t *bytes;
    size_t len;
};

static struct packet encode(const struct bus_message *message) {
    struct packet packet = {.len = bus_encoded_size(message)};
    packet.bytes = mem_alloc(packet.len);
    bus_encode(message, packet.bytes);
    return packet;
}

/* Clears bytes that an encoder does not keep: bytes that are not read, and those after the zero of an address. */
static void clear(uint8_t *bytes, size_t at, size_t len) {
    memset(bytes + at, 0, len);
}
static void clear_behind_text(uint8_t *bytes, size_t at, size_t len) {
    size_t used = strnlen((const char *)bytes + at, len - 1);
    clear(bytes, at + used, len - used);
}
static void normalize_header(struct packet packet, const struct bus_message *message) {
    if (message->header.type > BUS_MEET) clear(packet.bytes, 14, 2), clear(packet.bytes, 2214, 2);
    clear_behind_text(packet.bytes, 2168, NODE_ADDRESS_MAX);
    packet.bytes[2252] = packet.bytes[2252] != 0;
    clear(packet.bytes, 2254, 2);
}

static void normalize(struct packet packet, const struct bus_message *message) {
    if (message->header.light) {
        clear(packet.bytes, 10, 2);
        clear(packet.bytes, 14, 2);
        return;
    }
    size_t header = message->header.brief ? BUS_BRIEF_HEADER_SIZE : BUS_HEADER_SIZE;
    if (message->header.brief) {
        packet.bytes[42] = packet.bytes[42] != 0;
        clear(packet.bytes, 46, 2);
    } else {
        normalize_header(packet, message);
    }
    for (size_t i = 0; i < message->gossip_count; i++) {
        size_t at = header + i * BUS_GOSSIP_SIZE;
        clear_behind_text(packet.bytes, at + 48, NODE_ADDRESS_MAX);
        clear(packet.bytes, at + 102, 2);
    }
}

static void compare(const struct bus_message *a, const struct bus_message *b) {
    const struct bus_extensions *x = &a->extensions, *y = &b->extensions;
    FUZZ_CHECK(a->gossip_count == b->gossip_count, "%zu, %zu entries", a->gossip_count, b->gossip_count);
    FUZZ_CHECK(a->brief_gossip_count == b->brief_gossip_count, "%zu, %zu brief entries", a->brief_gossip_count,
               b->brief_gossip_count);
    FUZZ_CHECK(slice_equal(x->hostname, y->hostname) && slice_equal(x->nodename, y->nodename) &&
                   slice_equal(x->client_ipv4, y->client_ipv4) && slice_equal(x->client_ipv6, y->client_ipv6) &&
                   slice_equal(x->availability_zone, y->availability_zone),
               "other texts");
    FUZZ_CHECK(x->client_port == y->client_port && x->client_tls_port == y->client_tls_port, "other ports");
    FUZZ_CHECK(node_id_equal(&x->shard, &y->shard), "other shard");
    FUZZ_CHECK(x->forgotten_count == y->forgotten_count, "%zu, %zu forgotten", x->forgotten_count, y->forgotten_count);
    for (size_t i = 0; i < x->forgotten_count; i++) {
        struct bus_forgotten first, second;
        bus_forgotten_at(a, i, &first);
        bus_forgotten_at(b, i, &second);
        FUZZ_CHECK(node_id_equal(&first.id, &second.id) && first.ttl_s == second.ttl_s, "node %zu", i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    struct packet packet = {mem_alloc(size), size - 1}; /* of the exact size, so that reads past the end are detected */
    memcpy(packet.bytes, data + 1, packet.len);
    if ((data[0] & 1) && packet.len >= 10) {
        memcpy(packet.bytes, "RCmb", 4);
        for (int i = 0; i < 4; i++) packet.bytes[4 + i] = (uint8_t)(packet.len >> (24 - 8 * i));
        memcpy(packet.bytes + 8, "\0\1", 2);
    }
    struct bus_message message, again;
    const uint8_t *bad_id;
    enum bus_verdict verdict = bus_decode(packet.bytes, packet.len, &message, &bad_id);
    uint32_t length;
    if (verdict == BUS_INVALID && packet.len >= BUS_LIGHT_HEADER_SIZE &&
        bus_prefix(packet.bytes, &length, &(unsigned){0}) && length == packet.len) {
        char text[BUS_TEXT_MAX];
        bus_invalid_text(packet.bytes, packet.len, text);
        FUZZ_CHECK(text[0] && strlen(text) < BUS_TEXT_MAX - 1, "%s", text);
    }
    if (verdict == BUS_ACCEPTED) {
        struct packet encoded = encode(&message);
        FUZZ_CHECK(bus_decode(encoded.bytes, encoded.len, &again, &(const uint8_t *){NULL}) == BUS_ACCEPTED,
                   "is not accepted again");
        compare(&message, &again);
        if (!bad_id && !message.has_extensions) {
            normalize(packet, &message);
            FUZZ_CHECK(packet.len == encoded.len && memcmp(packet.bytes, encoded.bytes, packet.len) == 0,
                       "other bytes");
        }
        struct packet twice = encode(&again);
        FUZZ_CHECK(twice.len == encoded.len && memcmp(twice.bytes, encoded.bytes, twice.len) == 0, "other bytes again");
        mem_free(twice.bytes);
        mem_free(encoded.bytes);
    }
    mem_free(packet.bytes);
    return 0;
}
