/* The state machine of the cluster against hostile members and strangers: messages with any content from any sender,
 * in any order, mixed with ticks, lost links and commands. Whatever happens the tables must agree with each other, and
 * nothing may be told before it is saved.
 *
 * Input: steps; each begins with a byte that says what happens. Ids, addresses and slots come from small sets, so that
 * messages often concern the same nodes. */
#include "fuzz.h"
#include "cluster/protocol/configuration.h"
#include "lib/system/memory.h"

struct input {
    const uint8_t *data;
    size_t len;
};
static uint8_t next(struct input *input) {
    if (!input->len) return 0;
    input->len--;
    return *input->data++;
}

static struct cluster *cluster;
static uint64_t saved_current_epoch, saved_config_epoch, saved_vote_epoch, random_state;
static int64_t now_ms;
static bool has_keys;

static void facts(void *context, struct cluster_facts *result) {
    *result = (struct cluster_facts){.offset = 10, .primary_link_up = true, .primary_ms = now_ms, .has_keys = has_keys};
}
static uint64_t random_number(void *context) {
    return random_state = random_state * 6364136223846793005u + 1442695040888963407u;
}
static size_t keys_in_slot(void *context, unsigned slot) {
    return has_keys && slot % 3 == 0;
}
static void link_effect(void *context, struct cluster_link *link) {}
static void send_effect(void *context, struct cluster_link *link, const struct bus_message *message) {
    FUZZ_CHECK(link->connected, "sent on a link without a connection");
    FUZZ_CHECK(message->header.current_epoch <= saved_current_epoch, "an epoch is told before it is saved");
    if (node_id_is_zero(&message->header.primary))
        FUZZ_CHECK(message->header.config_epoch == saved_config_epoch, "an own epoch is told before it is saved");
    if (message->header.type == BUS_AUTH_ACK)
        FUZZ_CHECK(saved_vote_epoch == message->header.current_epoch, "a vote is told before it is saved");
    size_t size = bus_encoded_size(message);
    uint8_t *bytes = mem_alloc(size);
    bus_encode(message, bytes);
    struct bus_message decoded;
    const uint8_t *bad_id;
    FUZZ_CHECK(bus_decode(bytes, size, &decoded, &bad_id) == BUS_ACCEPTED, "it does not accept its own message");
    mem_free(bytes);
}
static void publish(void *context, struct slice channel, struct slice message, bool shard) {}
static void module_message(void *context, const struct cluster_node *sender, const struct bus_message *message) {}
static void save(void *context, bool durable) {
    if (!durable) return;
    saved_current_epoch = cluster->current_epoch;
    saved_config_epoch = cluster->myself->config_epoch;
    saved_vote_epoch = cluster->last_vote_epoch;
}
static void log_line(void *context, enum log_level level, const char *text) {}
static void follow(void *context, const struct cluster_node *primary, bool same_shard) {
    FUZZ_CHECK(primary != cluster->myself, "it follows itself");
}
static void nothing(void *context) {}
static void lead(void *context, bool same_shard) {}
static void slot_moved(void *context, unsigned slot, const struct cluster_node *from, const struct cluster_node *to) {}
static void slot_effect(void *context, unsigned slot) {}
static void state_changed(void *context, bool ok) {}
static void pause_writes(void *context, int64_t until_ms) {}
static const struct cluster_effects effects = {.facts = facts,
                                               .random = random_number,
                                               .keys_in_slot = keys_in_slot,
                                               .dial = link_effect,
                                               .close = link_effect,
                                               .send = send_effect,
                                               .publish = publish,
                                               .module_message = module_message,
                                               .save = save,
                                               .log = log_line,
                                               .follow = follow,
                                               .lead = lead,
                                               .drop_data = nothing,
                                               .slot_moved = slot_moved,
                                               .delete_keys = slot_effect,
                                               .state_changed = state_changed,
                                               .pause_writes = pause_writes,
                                               .resume_writes = nothing};

static void check_slots(void) {
    unsigned assigned = 0;
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        const struct cluster_node *owner = cluster->slots.owner[slot];
        assigned += owner != NULL;
        FUZZ_CHECK(!owner || node_has_slot(owner, slot), "slot %u is not in its owner's bitmap", slot);
    }
    FUZZ_CHECK(assigned == cluster->slots.assigned, "%u slots are assigned", assigned);
}
static void check_nodes(void) {
    const struct node_table *nodes = &cluster->nodes;
    unsigned counted = 0;
    size_t handshakes = 0;
    for (size_t i = 0; i < nodes->count; i++) {
        struct cluster_node *node = nodes->list[i];
        counted += node->slot_count;
        handshakes += node_in_handshake(node);
        FUZZ_CHECK(nodes_find(nodes, &node->id) == node && node->index == i, "a node is not found");
        FUZZ_CHECK((node->slots != NULL) == (node->slot_count > 0), "a node with %u slots", node->slot_count);
        FUZZ_CHECK(!(node_is_primary(node) && node_is_replica(node)), "a node with two roles");
        FUZZ_CHECK(!node->primary || node_is_replica(node), "a primary with a primary");
        FUZZ_CHECK(node->primary != node, "a node that follows itself");
        FUZZ_CHECK(!node->link || node->link->node == node, "a link of another node");
        FUZZ_CHECK(!node->inbound || node->inbound->node == node, "an inbound link of another node");
        FUZZ_CHECK(node->report_count <= nodes->count, "%u reports", node->report_count);
        for (size_t r = 0; r < node->replica_count; r++)
            FUZZ_CHECK(node->replicas[r]->primary == node, "a replica of another node");
    }
    FUZZ_CHECK(counted == cluster->slots.assigned, "%u slots in bitmaps", counted);
    FUZZ_CHECK(handshakes == cluster->joining.handshakes && handshakes <= CLUSTER_HANDSHAKES_MAX, "%zu handshakes",
               handshakes);
    FUZZ_CHECK(!(cluster->myself->flags & (NODE_FAIL | NODE_PFAIL | NODE_HANDSHAKE)), "it has failed for itself");
    FUZZ_CHECK(cluster->current_epoch >= cluster->myself->config_epoch, "its epoch is from the future");
}

static struct node_id make_id(unsigned number) {
    struct node_id id;
    if (number % 8 == 0) return cluster->myself->id;
    memset(id.text, 'a' + (int)(number % 8), NODE_ID_LEN);
    return id;
}
static void fill_slots(struct input *input, struct slot_bitmap *slots) {
    memset(slots, 0, sizeof *slots);
    unsigned first = next(input) * 64u, count = next(input) * 64u;
    for (unsigned slot = first; slot < first + count && slot < HASH_SLOTS; slot += 16) slot_bitmap_set(slots, slot);
}
static struct cluster_link *find_link(unsigned number) {
    struct cluster_link *link = cluster->links;
    for (unsigned i = number % 8; link && link->next && i > 0; i--) link = link->next;
    return link;
}

static void receive(struct input *input) {
    struct cluster_link *link = find_link(next(input));
    if (!link || !link->connected) return;
    static const unsigned types[] = {BUS_PING,         BUS_PONG,     BUS_MEET,   BUS_FAIL,
                                     BUS_AUTH_REQUEST, BUS_AUTH_ACK, BUS_UPDATE, BUS_MFSTART};
    struct slot_bitmap slots, node_slots;
    struct bus_gossip gossip[4];
    struct bus_forgotten forgotten[2];
    unsigned kind = next(input), roles = next(input), extra = next(input);
    struct bus_message message = {.header = {.type = types[kind % 8],
                                             .port = (uint16_t)(next(input) % 4),
                                             .bus_port = (uint16_t)(next(input) % 4),
                                             .current_epoch = next(input),
                                             .config_epoch = next(input),
                                             .offset = next(input) % 16,
                                             .sender = make_id(roles),
                                             .slots = &slots,
                                             .flags = (uint16_t)(next(input) << 8 | next(input)),
                                             .message_flags = next(input)}};
    fill_slots(input, &slots);
    if (roles & 8) message.header.primary = make_id(roles >> 4);
    if (roles & 128) snprintf(message.header.address, sizeof message.header.address, "10.0.0.%u", extra);
    if (message.header.type <= BUS_MEET) {
        message.gossip = gossip;
        message.gossip_count = extra % 5;
        for (size_t i = 0; i < message.gossip_count; i++) {
            gossip[i] = (struct bus_gossip){.id = make_id(next(input)),
                                            .pong_received_s = (uint32_t)(now_ms / 1000) + next(input) % 3,
                                            .port = next(input) % 4,
                                            .bus_port = next(input) % 4,
                                            .flags = (uint16_t)(next(input) << 8 | next(input))};
            if (next(input) % 4) snprintf(gossip[i].address, sizeof gossip[i].address, "10.0.0.%u", next(input) % 8);
        }
        message.has_extensions = extra & 64;
        if (message.has_extensions) {
            message.extensions = (struct bus_extensions){.shard = make_id(next(input)), .hostname = SLICE("host")};
            for (size_t i = 0; i < 2; i++) forgotten[i] = (struct bus_forgotten){make_id(next(input)), next(input)};
            message.extensions.forgotten = forgotten;
            message.extensions.forgotten_count = extra % 3;
        }
    }
    message.node = make_id(next(input));
    message.node_epoch = next(input);
    fill_slots(input, &node_slots);
    message.node_slots = &node_slots;
    size_t size = bus_encoded_size(&message);
    uint8_t *bytes = mem_alloc(size);
    bus_encode(&message, bytes);
    struct bus_message decoded;
    const uint8_t *bad_id;
    if (bus_decode(bytes, size, &decoded, &bad_id) == BUS_ACCEPTED) cluster_receive(cluster, link, &decoded, now_ms);
    mem_free(bytes);
}

static void command(struct input *input) {
    unsigned kind = next(input), slot = next(input) * 64u;
    struct node_id id = make_id(next(input));
    struct slot_bitmap slots;
    switch (kind % 13) {
    case 0: cluster_meet(cluster, "10.0.0.1", 1, 2, "fuzz", now_ms); break;
    case 1: cluster_forget(cluster, &id, "fuzz", now_ms); break;
    case 2: cluster_replicate(cluster, &id, now_ms); break;
    case 3: cluster_replicate_no_one(cluster, "fuzz", now_ms); break;
    case 4: cluster_reset(cluster, slot & 64, "fuzz", now_ms); break;
    case 5: cluster_bump_epoch(cluster, now_ms); break;
    case 6: cluster_failover(cluster, slot / 64 % 4, "fuzz", now_ms); break;
    case 7: fill_slots(input, &slots), cluster_add_slots(cluster, &slots, now_ms); break;
    case 8: fill_slots(input, &slots), cluster_delete_slots(cluster, &slots, now_ms); break;
    case 9: cluster_set_slot_migrating(cluster, slot, &id, now_ms); break;
    case 10: cluster_set_slot_importing(cluster, slot, &id, now_ms); break;
    case 11: cluster_set_slot_node(cluster, slot, &id, now_ms); break;
    case 12: has_keys = slot & 64; break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
    struct input input = {data, len};
    static const struct cluster_settings settings = {.node_timeout_ms = 1000,
                                                     .manual_failover_timeout_ms = 500,
                                                     .blacklist_ttl_s = 10,
                                                     .repl_ping_period_s = 10,
                                                     .gossip_percent = 10,
                                                     .replica_validity_factor = 10,
                                                     .migration_barrier = 1,
                                                     .allow_replica_migration = true,
                                                     .require_full_coverage = true,
                                                     .fast_failover = true,
                                                     .address = "",
                                                     .port = 1,
                                                     .bus_port = 2,
                                                     .hostname = "",
                                                     .nodename = "",
                                                     .client_ipv4 = "",
                                                     .client_ipv6 = "",
                                                     .availability_zone = ""};
    log_level = LOG_LEVEL_NOTHING;
    now_ms = 1800000000000;
    random_state = 1;
    has_keys = false;
    saved_current_epoch = saved_config_epoch = saved_vote_epoch = 0;
    cluster = cluster_new(&settings, &effects, NULL, now_ms);
    while (input.len) {
        unsigned step = next(&input);
        struct cluster_link *link;
        switch (step % 8) {
        case 0:
        case 1:
        case 2: receive(&input); break;
        case 3: cluster_link_accepted(cluster, "10.0.0.9", 1, "10.0.0.1", now_ms); break;
        case 4:
            now_ms += step < 128 ? 100 : 1500;
            cluster_tick(cluster, now_ms);
            break;
        case 5:
            link = find_link(step >> 3);
            if (link && !link->inbound && !link->connected)
                cluster_link_connected(cluster, link, "10.0.0.1", now_ms);
            else if (link)
                cluster_link_closed(cluster, link, step & 128, now_ms);
            break;
        case 6: command(&input); break;
        case 7: cluster_flush(cluster, now_ms); break;
        }
        check_nodes();
    }
    check_slots();
    struct memory_output text;
    memory_output_init(&text);
    cluster_print_configuration(cluster, &text.out);
    struct nodes_file file;
    struct nodes_file_error error;
    FUZZ_CHECK(nodes_file_parse(memory_output_slice(&text), false, NULL, NULL, &file, &error),
               "its configuration cannot be read: line %zu: %s", error.number, error.reason);
    const char *contradiction;
    struct cluster *copy = cluster_new_from(&file, &settings, &effects, NULL, now_ms, &contradiction);
    FUZZ_CHECK(copy, "its configuration contradicts itself: %s", contradiction);
    cluster_free(copy);
    nodes_file_free(&file);
    memory_output_free(&text);
    cluster_free(cluster);
    return 0;
}
