/* bus_wire.c: see bus_wire.h. */
#include "cluster/protocol/bus_wire.h"
#include "lib/hash/siphash.h"
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>

enum {
    BUS_VERSION = 1,
    LIGHT_BIT = 0x8000,
    BRIEF_BIT = 0x4000,
    EXTENSION_HEADER = 8,
    FORGOTTEN_DATA = NODE_ID_LEN + 8
};
static const uint8_t signature[4] = {'R', 'C', 'm', 'b'};

/* Where the fields of the header are. */
enum {
    AT_LENGTH = 4,
    AT_VERSION = 8,
    AT_PORT = 10,
    AT_TYPE = 12,
    AT_COUNT = 14,
    AT_CURRENT_EPOCH = 16,
    AT_CONFIG_EPOCH = 24,
    AT_OFFSET = 32,
    AT_SENDER = 40,
    AT_SLOTS = 80,
    AT_PRIMARY = 2128,
    AT_ADDRESS = 2168,
    AT_EXTENSIONS = 2214,
    AT_RESERVED = 2216,
    AT_OTHER_PORT = 2246,
    AT_BUS_PORT = 2248,
    AT_FLAGS = 2250,
    AT_STATE = 2252,
    AT_MESSAGE_FLAGS = 2253,
};

/* Those of a brief header; the others are where they are in all headers. */
enum {
    AT_BRIEF_GOSSIP = 10,
    AT_BRIEF_OFFSET = 24,
    AT_BRIEF_DIGEST = 32,
    AT_BRIEF_FLAGS = 40,
    AT_BRIEF_STATE = 42,
    AT_BRIEF_MESSAGE_FLAGS = 43,
    AT_BRIEF_EXTENSIONS = 44,
};

enum extension {
    EXTENSION_HOSTNAME,
    EXTENSION_NODENAME,
    EXTENSION_FORGOTTEN,
    EXTENSION_SHARD,
    EXTENSION_CLIENT_IPV4,
    EXTENSION_CLIENT_IPV6,
    EXTENSION_CLIENT_PORT,
    EXTENSION_CLIENT_TLS_PORT,
    EXTENSION_AVAILABILITY_ZONE,
    EXTENSION_TYPES,
    EXTENSION_NONE = 0xffff
};

static uint16_t load16(const uint8_t *at) {
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return be16toh(value);
}
static uint32_t load32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return be32toh(value);
}
static uint64_t load64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return be64toh(value);
}
static void store16(uint8_t *at, uint16_t value) {
    value = htobe16(value);
    memcpy(at, &value, sizeof value);
}
static void store32(uint8_t *at, uint32_t value) {
    value = htobe32(value);
    memcpy(at, &value, sizeof value);
}
static void store64(uint8_t *at, uint64_t value) {
    value = htobe64(value);
    memcpy(at, &value, sizeof value);
}
static void load_address(char address[NODE_ADDRESS_MAX], const uint8_t *at) {
    memcpy(address, at, NODE_ADDRESS_MAX);
    address[NODE_ADDRESS_MAX - 1] = '\0';
}
static void store_address(uint8_t *at, const char address[NODE_ADDRESS_MAX]) {
    size_t len = strnlen(address, NODE_ADDRESS_MAX - 1);
    memcpy(at, address, len);
    memset(at + len, 0, NODE_ADDRESS_MAX - len);
}

/* Looks at all characters, which the compiler does many at a time: each entry of gossip has an id. */
bool node_id_valid(const struct node_id *id) {
    unsigned char invalid = 0;
    for (int i = 0; i < NODE_ID_LEN; i++) {
        unsigned char c = (unsigned char)id->text[i], letter = (unsigned char)(c - 'a');
        unsigned char digit = (unsigned char)(c - '0');
        invalid |= (letter > 'z' - 'a') & (digit > 9);
    }
    return !invalid;
}
bool node_id_is_zero(const struct node_id *id) {
    static const struct node_id zero;
    return node_id_equal(id, &zero);
}

const char *bus_type_name(unsigned type) {
    static const char *const names[BUS_TYPES] = {
        [BUS_PING] = "ping",
        [BUS_PONG] = "pong",
        [BUS_MEET] = "meet",
        [BUS_FAIL] = "fail",
        [BUS_PUBLISH] = "publish",
        [BUS_AUTH_REQUEST] = "auth-req",
        [BUS_AUTH_ACK] = "auth-ack",
        [BUS_UPDATE] = "update",
        [BUS_MFSTART] = "mfstart",
        [BUS_MODULE] = "module",
        [BUS_PUBLISHSHARD] = "publishshard",
    };
    return type < BUS_TYPES ? names[type] : "unknown";
}

static bool has_gossip(unsigned type) {
    return type == BUS_PING || type == BUS_PONG || type == BUS_MEET;
}
static bool may_be_light(unsigned type) {
    return type == BUS_PUBLISH || type == BUS_PUBLISHSHARD || type == BUS_MODULE;
}

static size_t header_size_of(bool light, bool brief) {
    return light ? BUS_LIGHT_HEADER_SIZE : brief ? BUS_BRIEF_HEADER_SIZE : BUS_HEADER_SIZE;
}

bool bus_prefix(const uint8_t bytes[static BUS_PREFIX_SIZE], uint32_t *length, unsigned *type) {
    unsigned word = load16(bytes + AT_TYPE);
    *length = load32(bytes + AT_LENGTH);
    *type = word & ~(unsigned)(LIGHT_BIT | BRIEF_BIT);
    return memcmp(bytes, signature, sizeof signature) == 0 &&
           *length >= header_size_of(word & LIGHT_BIT, word & BRIEF_BIT);
}

uint64_t bus_length_max(unsigned type, uint64_t bulk_max, size_t nodes) {
    /* What Valkey sends in a cluster of thousands fits in ORDINARY: a tenth of the nodes as gossip, all nodes that may
     * have failed, nodes that were forgotten. Texts that clients publish have no other limit than that of their
     * requests, and a module's messages are taken to be of that kind. */
    enum { ORDINARY = 2 * 1024 * 1024, BESIDE_TEXTS = 64 * 1024 };
    if (may_be_light(type)) {
        if (bulk_max > UINT32_MAX) return UINT32_MAX;
        return 2 * bulk_max + BESIDE_TEXTS;
    }
    uint64_t entries = (uint64_t)nodes * 2 * BUS_GOSSIP_SIZE;
    return has_gossip(type) ? ORDINARY + entries : ORDINARY;
}

/* --- Decoding --- */

static void decode_header(const uint8_t *bytes, struct bus_header *header) {
    header->port = load16(bytes + AT_PORT);
    header->other_port = load16(bytes + AT_OTHER_PORT);
    header->bus_port = load16(bytes + AT_BUS_PORT);
    header->current_epoch = load64(bytes + AT_CURRENT_EPOCH);
    header->config_epoch = load64(bytes + AT_CONFIG_EPOCH);
    header->offset = load64(bytes + AT_OFFSET);
    memcpy(&header->sender, bytes + AT_SENDER, NODE_ID_LEN);
    memcpy(&header->primary, bytes + AT_PRIMARY, NODE_ID_LEN);
    header->slots = (const struct slot_bitmap *)(bytes + AT_SLOTS);
    load_address(header->address, bytes + AT_ADDRESS);
    memcpy(header->reserved, bytes + AT_RESERVED, BUS_RESERVED_SIZE);
    header->flags = load16(bytes + AT_FLAGS);
    header->cluster_fails = bytes[AT_STATE] != 0;
    header->message_flags = bytes[AT_MESSAGE_FLAGS];
}

static void decode_brief_header(const uint8_t *bytes, struct bus_header *header) {
    header->current_epoch = load64(bytes + AT_CURRENT_EPOCH);
    header->offset = load64(bytes + AT_BRIEF_OFFSET);
    header->digest = load64(bytes + AT_BRIEF_DIGEST);
    header->flags = load16(bytes + AT_BRIEF_FLAGS);
    header->cluster_fails = bytes[AT_BRIEF_STATE] != 0;
    header->message_flags = bytes[AT_BRIEF_MESSAGE_FLAGS];
}

/* A text ends at its first zero, or with the extension. */
static struct slice extension_text(const uint8_t *data, size_t len) {
    return slice_make(data, strnlen((const char *)data, len));
}

static void add_forgotten(struct bus_extensions *extensions, const uint8_t *data, size_t len) {
    struct slice *run = &extensions->forgotten_bytes;
    if (extensions->forgotten_count == 0) {
        *run = slice_make(data, len);
        extensions->forgotten_count = 1;
        return;
    }
    /* Valkey sends them one after the other, all of one length. Only the first such run counts, so that any of them is
     * found without a search. */
    size_t stride = (run->len + EXTENSION_HEADER) / extensions->forgotten_count;
    if (len + EXTENSION_HEADER != stride || (const char *)data != run->data + run->len + EXTENSION_HEADER) return;
    run->len += stride;
    extensions->forgotten_count++;
}

/* Data that is too short for its type is ignored, as if the extension were not there. */
static void decode_extension(struct bus_extensions *extensions, unsigned type, const uint8_t *data, size_t len) {
    switch (type) {
    case EXTENSION_HOSTNAME: extensions->hostname = extension_text(data, len); break;
    case EXTENSION_NODENAME: extensions->nodename = extension_text(data, len); break;
    case EXTENSION_CLIENT_IPV4: extensions->client_ipv4 = extension_text(data, len); break;
    case EXTENSION_CLIENT_IPV6: extensions->client_ipv6 = extension_text(data, len); break;
    case EXTENSION_AVAILABILITY_ZONE: extensions->availability_zone = extension_text(data, len); break;
    case EXTENSION_CLIENT_PORT:
        if (len >= 2) extensions->client_port = load16(data);
        break;
    case EXTENSION_CLIENT_TLS_PORT:
        if (len >= 2) extensions->client_tls_port = load16(data);
        break;
    case EXTENSION_SHARD:
        if (len >= NODE_ID_LEN) memcpy(&extensions->shard, data, NODE_ID_LEN);
        break;
    case EXTENSION_FORGOTTEN:
        if (len >= FORGOTTEN_DATA) add_forgotten(extensions, data, len);
        break;
    default: extensions->unknown = (uint16_t)type;
    }
}

/* Gossip and extensions of PING, PONG and MEET, which fill the message exactly. */
static bool decode_gossip(const uint8_t *bytes, size_t len, struct bus_message *message, const uint8_t **bad_id) {
    bool brief = message->header.brief;
    size_t header_size = header_size_of(false, brief);
    size_t count = load16(bytes + AT_COUNT);
    size_t extensions = load16(bytes + (brief ? AT_BRIEF_EXTENSIONS : AT_EXTENSIONS));
    size_t at = header_size + count * BUS_GOSSIP_SIZE;
    if (brief) {
        message->brief_gossip_count = load16(bytes + AT_BRIEF_GOSSIP);
        size_t behind = message->brief_gossip_count * BUS_BRIEF_GOSSIP_SIZE;
        if (behind > len - header_size) return false;
        len -= behind;
        message->brief_gossip_bytes = bytes + len;
    }
    if (at > len) return false;
    message->gossip_bytes = bytes + header_size;
    message->gossip_count = count;
    message->has_extensions = extensions > 0;
    message->extensions.unknown = EXTENSION_NONE;
    for (; extensions; extensions--) {
        if (len - at < EXTENSION_HEADER) return false;
        size_t size = load32(bytes + at);
        if (size < EXTENSION_HEADER || size % 8 || size > len - at) return false;
        decode_extension(&message->extensions, load16(bytes + at + 4), bytes + at + EXTENSION_HEADER,
                         size - EXTENSION_HEADER);
        at += size;
    }
    if (at != len) return false;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *entry = message->gossip_bytes + i * BUS_GOSSIP_SIZE;
        struct node_id id;
        memcpy(&id, entry, NODE_ID_LEN);
        if (!node_id_valid(&id)) {
            message->gossip_count = 0;
            *bad_id = entry;
            break;
        }
    }
    return true;
}

static bool decode_published(const uint8_t *body, size_t len, struct bus_message *message) {
    if (len < 8) return false;
    size_t rest = len - 8, channel = load32(body), text = load32(body + 4);
    if (channel > rest || text != rest - channel) return false;
    message->channel = slice_make(body + 8, channel);
    message->message = slice_make(body + 8 + channel, text);
    return true;
}

static bool decode_module(const uint8_t *body, size_t len, struct bus_message *message) {
    if (len < 13 || load32(body + 8) != len - 13) return false;
    message->module = load64(body);
    message->module_type = body[12];
    message->payload = slice_make(body + 13, len - 13);
    return true;
}

/* The stream of a replica and the commands of a migration carry epochs as signed integers, and elections raise them. */
static const uint64_t EPOCH_MAX = INT64_MAX / 2;

static bool epochs_are_valid(const struct bus_message *message) {
    const struct bus_header *header = &message->header;
    return header->current_epoch <= EPOCH_MAX && header->config_epoch <= EPOCH_MAX && message->node_epoch <= EPOCH_MAX;
}

enum bus_verdict bus_decode(const uint8_t *bytes, size_t len, struct bus_message *message, const uint8_t **bad_id) {
    uint32_t announced;
    *bad_id = NULL;
    memset(message, 0, sizeof *message);
    struct bus_header *header = &message->header;
    if (len < BUS_LIGHT_HEADER_SIZE || !bus_prefix(bytes, &announced, &header->type) || announced != len)
        return BUS_INVALID;
    header->light = load16(bytes + AT_TYPE) & LIGHT_BIT;
    header->brief = load16(bytes + AT_TYPE) & BRIEF_BIT;
    if (header->light && (header->brief || !may_be_light(header->type))) return BUS_INVALID;
    if (header->brief && header->type != BUS_PING && header->type != BUS_PONG) return BUS_INVALID;
    if (load16(bytes + AT_VERSION) != BUS_VERSION) return BUS_IGNORED;
    if (header->brief)
        decode_brief_header(bytes, header);
    else if (!header->light)
        decode_header(bytes, header);

    size_t header_size = header_size_of(header->light, header->brief);
    const uint8_t *body = bytes + header_size;
    size_t body_len = len - header_size;
    bool valid = false;
    switch (header->type) {
    case BUS_PING:
    case BUS_PONG:
    case BUS_MEET: valid = decode_gossip(bytes, len, message, bad_id); break;
    case BUS_FAIL:
        valid = body_len == NODE_ID_LEN;
        if (valid) memcpy(&message->node, body, NODE_ID_LEN);
        break;
    case BUS_PUBLISH:
    case BUS_PUBLISHSHARD: valid = decode_published(body, body_len, message); break;
    case BUS_UPDATE:
        valid = body_len == 8 + NODE_ID_LEN + SLOT_BITMAP_SIZE;
        if (!valid) break;
        message->node_epoch = load64(body);
        memcpy(&message->node, body + 8, NODE_ID_LEN);
        message->node_slots = (const struct slot_bitmap *)(body + 8 + NODE_ID_LEN);
        break;
    case BUS_MODULE: valid = decode_module(body, body_len, message); break;
    case BUS_AUTH_REQUEST:
    case BUS_AUTH_ACK:
    case BUS_MFSTART: valid = body_len == 0; break;
    default: return BUS_UNKNOWN_TYPE;
    }
    return valid && epochs_are_valid(message) ? BUS_ACCEPTED : BUS_INVALID;
}

/* Of a message whose lengths fit. */
static void invalid_epoch_text(size_t len, const char *name, char text[static BUS_TEXT_MAX]) {
    snprintf(text, BUS_TEXT_MAX, "Received invalid %s packet of length %zu with an epoch above %" PRIu64, name, len,
             EPOCH_MAX);
}

static void invalid_gossip_text(const uint8_t *bytes, size_t len, const char *name, char text[static BUS_TEXT_MAX]) {
    size_t count = load16(bytes + AT_COUNT), at = BUS_HEADER_SIZE + count * BUS_GOSSIP_SIZE;
    if (at > len) {
        snprintf(text, BUS_TEXT_MAX,
                 "Received invalid %s packet with gossip count %zu that exceeds total packet length (%zu)", name, count,
                 len);
        return;
    }
    for (size_t extensions = load16(bytes + AT_EXTENSIONS); extensions; extensions--) {
        size_t size = len - at < EXTENSION_HEADER ? SIZE_MAX : load32(bytes + at);
        if (size != SIZE_MAX && size % 8) {
            snprintf(text, BUS_TEXT_MAX, "Received a %s packet without proper padding (%zu bytes)", name, size);
            return;
        }
        if (size > len - at) {
            snprintf(text, BUS_TEXT_MAX,
                     "Received invalid %s packet with extension data that exceeds total packet length (%zu)", name,
                     len);
            return;
        }
        at += size;
    }
    if (at == len) {
        invalid_epoch_text(len, name, text);
        return;
    }
    snprintf(text, BUS_TEXT_MAX, "Received invalid %s packet of length %zu but expected length %zu", name, len, at);
}

void bus_invalid_text(const uint8_t *bytes, size_t len, char text[static BUS_TEXT_MAX]) {
    unsigned word = load16(bytes + AT_TYPE), type = word & ~(unsigned)(LIGHT_BIT | BRIEF_BIT);
    bool light = word & LIGHT_BIT;
    const char *name = bus_type_name(type), *exceeds = NULL;
    if (word & BRIEF_BIT) {
        snprintf(text, BUS_TEXT_MAX, "Received invalid %s packet of length %zu with a brief header", name, len);
        return;
    }
    if (light && !may_be_light(type)) {
        snprintf(text, BUS_TEXT_MAX,
                 "Packet of type '%s' (%u) does not support light cluster header. Marking packet as invalid.", name,
                 type);
        return;
    }
    size_t expected = light ? BUS_LIGHT_HEADER_SIZE : BUS_HEADER_SIZE, rest = len - expected;
    const uint8_t *body = bytes + expected;
    switch (type) {
    case BUS_PING:
    case BUS_PONG:
    case BUS_MEET: invalid_gossip_text(bytes, len, name, text); return;
    case BUS_FAIL: expected += NODE_ID_LEN; break;
    case BUS_UPDATE: expected += 8 + NODE_ID_LEN + SLOT_BITMAP_SIZE; break;
    case BUS_PUBLISH:
    case BUS_PUBLISHSHARD:
        if (rest < 8 || load32(body) > rest - 8)
            exceeds = "channel";
        else if (load32(body + 4) > rest - 8 - load32(body))
            exceeds = "message";
        else
            expected += 8 + (size_t)load32(body) + load32(body + 4);
        break;
    case BUS_MODULE:
        if (rest < 13 || load32(body + 8) > rest - 13)
            exceeds = "module payload";
        else
            expected += 13 + (size_t)load32(body + 8);
        break;
    default: break;
    }
    if (exceeds)
        snprintf(text, BUS_TEXT_MAX, "Received invalid %s packet with %s length that exceeds total packet length (%zu)",
                 name, exceeds, len);
    else if (len == expected)
        invalid_epoch_text(len, name, text);
    else
        snprintf(text, BUS_TEXT_MAX, "Received invalid %s packet of length %zu but expected length %zu", name, len,
                 expected);
}

void bus_gossip_at(const struct bus_message *message, size_t index, struct bus_gossip *entry) {
    const uint8_t *at = message->gossip_bytes + index * BUS_GOSSIP_SIZE;
    memcpy(&entry->id, at, NODE_ID_LEN);
    entry->ping_sent_s = load32(at + 40);
    entry->pong_received_s = load32(at + 44);
    load_address(entry->address, at + 48);
    entry->port = load16(at + 94);
    entry->bus_port = load16(at + 96);
    entry->flags = load16(at + 98);
    entry->other_port = load16(at + 100);
}

void bus_brief_gossip_at(const struct bus_message *message, size_t index, struct bus_brief_gossip *entry) {
    const uint8_t *at = message->brief_gossip_bytes + index * BUS_BRIEF_GOSSIP_SIZE;
    memcpy(entry->id, at, BUS_BRIEF_ID_LEN);
    entry->pong_received_s = load32(at + BUS_BRIEF_ID_LEN);
}

void bus_forgotten_at(const struct bus_message *message, size_t index, struct bus_forgotten *forgotten) {
    const struct bus_extensions *extensions = &message->extensions;
    size_t stride = (extensions->forgotten_bytes.len + EXTENSION_HEADER) / extensions->forgotten_count;
    const uint8_t *data = (const uint8_t *)extensions->forgotten_bytes.data + index * stride;
    memcpy(&forgotten->id, data, NODE_ID_LEN);
    forgotten->ttl_s = load64(data + NODE_ID_LEN);
}

/* Encoding. Extensions are written by one function that only counts where `out` is NULL. */

struct extension_writer {
    uint8_t *out;
    size_t size, count;
};

static uint8_t *write_extension(struct extension_writer *writer, unsigned type, size_t len) {
    size_t size = EXTENSION_HEADER + (len + 7) / 8 * 8;
    uint8_t *at = writer->out ? writer->out + writer->size : NULL;
    writer->size += size;
    writer->count++;
    if (!at) return NULL;
    memset(at, 0, size);
    store32(at, (uint32_t)size);
    store16(at + 4, (uint16_t)type);
    return at + EXTENSION_HEADER;
}
static void bus_wire_write_text(struct extension_writer *writer, unsigned type, struct slice text) {
    if (!text.len) return;
    uint8_t *data = write_extension(writer, type, text.len + 1);
    if (data) memcpy(data, text.data, text.len);
}
static void write_port(struct extension_writer *writer, unsigned type, uint16_t port) {
    if (!port) return;
    uint8_t *data = write_extension(writer, type, sizeof port);
    if (data) store16(data, port);
}

static size_t forgotten_count(const struct bus_extensions *extensions) {
    /* The count of extensions has 16 bits. */
    enum { MAX = UINT16_MAX - EXTENSION_TYPES };
    return extensions->forgotten_count < MAX ? extensions->forgotten_count : MAX;
}

static void write_extensions(struct extension_writer *writer, const struct bus_message *message) {
    const struct bus_extensions *extensions = &message->extensions;
    if (!message->has_extensions) return;
    bus_wire_write_text(writer, EXTENSION_HOSTNAME, extensions->hostname);
    bus_wire_write_text(writer, EXTENSION_NODENAME, extensions->nodename);
    bus_wire_write_text(writer, EXTENSION_CLIENT_IPV4, extensions->client_ipv4);
    bus_wire_write_text(writer, EXTENSION_CLIENT_IPV6, extensions->client_ipv6);
    write_port(writer, EXTENSION_CLIENT_PORT, extensions->client_port);
    write_port(writer, EXTENSION_CLIENT_TLS_PORT, extensions->client_tls_port);
    bus_wire_write_text(writer, EXTENSION_AVAILABILITY_ZONE, extensions->availability_zone);
    for (size_t i = 0; i < forgotten_count(extensions); i++) {
        uint8_t *data = write_extension(writer, EXTENSION_FORGOTTEN, FORGOTTEN_DATA);
        if (!data) continue;
        struct bus_forgotten forgotten;
        if (extensions->forgotten)
            forgotten = extensions->forgotten[i];
        else
            bus_forgotten_at(message, i, &forgotten);
        memcpy(data, &forgotten.id, NODE_ID_LEN);
        store64(data + NODE_ID_LEN, forgotten.ttl_s);
    }
    if (!node_id_is_zero(&extensions->shard)) {
        uint8_t *data = write_extension(writer, EXTENSION_SHARD, NODE_ID_LEN);
        if (data) memcpy(data, &extensions->shard, NODE_ID_LEN);
    }
}

static size_t body_size(const struct bus_message *message) {
    struct extension_writer counter = {0};
    switch (message->header.type) {
    case BUS_PING:
    case BUS_PONG:
    case BUS_MEET:
        write_extensions(&counter, message);
        return message->gossip_count * BUS_GOSSIP_SIZE + counter.size +
               (message->header.brief ? message->brief_gossip_count * BUS_BRIEF_GOSSIP_SIZE : 0);
    case BUS_FAIL: return NODE_ID_LEN;
    case BUS_PUBLISH:
    case BUS_PUBLISHSHARD: return 8 + message->channel.len + message->message.len;
    case BUS_UPDATE: return 8 + NODE_ID_LEN + SLOT_BITMAP_SIZE;
    case BUS_MODULE: return 13 + message->payload.len;
    default: return 0;
    }
}

size_t bus_encoded_size(const struct bus_message *message) {
    return header_size_of(message->header.light, message->header.brief) + body_size(message);
}

static void encode_brief_header(const struct bus_header *header, uint8_t *out) {
    store64(out + AT_CURRENT_EPOCH, header->current_epoch);
    store64(out + AT_BRIEF_OFFSET, header->offset);
    store64(out + AT_BRIEF_DIGEST, header->digest);
    store16(out + AT_BRIEF_FLAGS, header->flags);
    out[AT_BRIEF_STATE] = header->cluster_fails;
    out[AT_BRIEF_MESSAGE_FLAGS] = header->message_flags;
}

static void encode_header(const struct bus_header *header, uint8_t *out) {
    store16(out + AT_PORT, header->port);
    store16(out + AT_OTHER_PORT, header->other_port);
    store16(out + AT_BUS_PORT, header->bus_port);
    store64(out + AT_CURRENT_EPOCH, header->current_epoch);
    store64(out + AT_CONFIG_EPOCH, header->config_epoch);
    store64(out + AT_OFFSET, header->offset);
    memcpy(out + AT_SENDER, &header->sender, NODE_ID_LEN);
    memcpy(out + AT_PRIMARY, &header->primary, NODE_ID_LEN);
    if (header->slots) memcpy(out + AT_SLOTS, header->slots, SLOT_BITMAP_SIZE);
    store_address(out + AT_ADDRESS, header->address);
    memcpy(out + AT_RESERVED, header->reserved, BUS_RESERVED_SIZE);
    store16(out + AT_FLAGS, header->flags);
    out[AT_STATE] = header->cluster_fails;
    out[AT_MESSAGE_FLAGS] = header->message_flags;
}

static void encode_gossip(const struct bus_gossip *entry, uint8_t *at) {
    memcpy(at, &entry->id, NODE_ID_LEN);
    store32(at + 40, entry->ping_sent_s);
    store32(at + 44, entry->pong_received_s);
    store_address(at + 48, entry->address);
    store16(at + 94, entry->port);
    store16(at + 96, entry->bus_port);
    store16(at + 98, entry->flags);
    store16(at + 100, entry->other_port);
    store16(at + 102, 0);
}

/* At the end of the message. */
static void encode_brief_gossip(const struct bus_message *message, uint8_t *at) {
    for (size_t i = 0; i < message->brief_gossip_count; i++, at += BUS_BRIEF_GOSSIP_SIZE) {
        struct bus_brief_gossip entry;
        if (message->brief_gossip)
            entry = message->brief_gossip[i];
        else
            bus_brief_gossip_at(message, i, &entry);
        memcpy(at, entry.id, BUS_BRIEF_ID_LEN);
        store32(at + BUS_BRIEF_ID_LEN, entry.pong_received_s);
    }
}

static void encode_gossip_section(const struct bus_message *message, uint8_t *out) {
    bool brief = message->header.brief;
    uint8_t *at = out + header_size_of(false, brief);
    for (size_t i = 0; i < message->gossip_count; i++, at += BUS_GOSSIP_SIZE) {
        if (message->gossip) {
            encode_gossip(&message->gossip[i], at);
        } else {
            struct bus_gossip entry;
            bus_gossip_at(message, i, &entry);
            encode_gossip(&entry, at);
        }
    }
    struct extension_writer writer = {.out = at};
    write_extensions(&writer, message);
    store16(out + AT_COUNT, (uint16_t)message->gossip_count);
    store16(out + (brief ? AT_BRIEF_EXTENSIONS : AT_EXTENSIONS), (uint16_t)writer.count);
    if (!brief) return;
    store16(out + AT_BRIEF_GOSSIP, (uint16_t)message->brief_gossip_count);
    encode_brief_gossip(message, at + writer.size);
}

static void bus_wire_put(uint8_t *at, struct slice text) {
    if (text.len) memcpy(at, text.data, text.len);
}

void bus_encode(const struct bus_message *message, uint8_t *out) {
    const struct bus_header *header = &message->header;
    size_t header_size = header_size_of(header->light, header->brief);
    uint8_t *body = out + header_size;
    memset(out, 0, header_size);
    memcpy(out, signature, sizeof signature);
    store32(out + AT_LENGTH, (uint32_t)bus_encoded_size(message));
    store16(out + AT_VERSION, BUS_VERSION);
    store16(out + AT_TYPE, (uint16_t)(header->type | (header->light ? LIGHT_BIT : header->brief ? BRIEF_BIT : 0)));
    if (header->brief)
        encode_brief_header(header, out);
    else if (!header->light)
        encode_header(header, out);
    switch (header->type) {
    case BUS_PING:
    case BUS_PONG:
    case BUS_MEET: encode_gossip_section(message, out); break;
    case BUS_FAIL: memcpy(body, &message->node, NODE_ID_LEN); break;
    case BUS_PUBLISH:
    case BUS_PUBLISHSHARD:
        store32(body, (uint32_t)message->channel.len);
        store32(body + 4, (uint32_t)message->message.len);
        bus_wire_put(body + 8, message->channel);
        bus_wire_put(body + 8 + message->channel.len, message->message);
        break;
    case BUS_UPDATE:
        store64(body, message->node_epoch);
        memcpy(body + 8, &message->node, NODE_ID_LEN);
        if (message->node_slots)
            memcpy(body + 8 + NODE_ID_LEN, message->node_slots, SLOT_BITMAP_SIZE);
        else
            memset(body + 8 + NODE_ID_LEN, 0, SLOT_BITMAP_SIZE);
        break;
    case BUS_MODULE:
        store64(body, message->module);
        store32(body + 8, (uint32_t)message->payload.len);
        body[12] = message->module_type;
        bus_wire_put(body + 13, message->payload);
        break;
    default: break;
    }
}

/* --- Digests --- */

/* SipHash with the digest so far as its key: of the fields in turn, each with its length. */
static uint64_t digest_add(uint64_t digest, const void *data, size_t len) {
    uint8_t key[16];
    store64(key, digest);
    store64(key + 8, len);
    return siphash(data, len, key);
}

uint64_t bus_slots_digest(const struct slot_bitmap *slots) {
    return digest_add(1, slots, sizeof *slots);
}

uint64_t bus_header_digest(const struct bus_header *header, uint64_t slots) {
    const uint16_t ports[] = {htobe16(header->port), htobe16(header->other_port), htobe16(header->bus_port)};
    const uint64_t config_epoch = htobe64(header->config_epoch);
    uint64_t digest = digest_add(slots, &config_epoch, sizeof config_epoch);
    digest = digest_add(digest, &header->sender, sizeof header->sender);
    digest = digest_add(digest, &header->primary, sizeof header->primary);
    digest = digest_add(digest, header->address, strnlen(header->address, NODE_ADDRESS_MAX - 1));
    digest = digest_add(digest, header->reserved, BUS_RESERVED_SIZE);
    digest = digest_add(digest, ports, sizeof ports);
    return digest ? digest : 1;
}

uint64_t bus_extensions_digest(const struct bus_extensions *extensions) {
    const uint16_t ports[] = {extensions->client_port, extensions->client_tls_port};
    uint64_t digest = digest_add(1, extensions->hostname.data, extensions->hostname.len);
    digest = digest_add(digest, extensions->nodename.data, extensions->nodename.len);
    digest = digest_add(digest, extensions->client_ipv4.data, extensions->client_ipv4.len);
    digest = digest_add(digest, extensions->client_ipv6.data, extensions->client_ipv6.len);
    digest = digest_add(digest, extensions->availability_zone.data, extensions->availability_zone.len);
    digest = digest_add(digest, &extensions->shard, sizeof extensions->shard);
    return digest_add(digest, ports, sizeof ports);
}
