/* cluster_simulator.c: see cluster_simulator.h. */
#include "cluster_simulator.h"
#include <stdarg.h>

enum { SIM_ADDRESS_BASE = 100 };
struct sim_bytes { /* of a message, which may go to many machines */
    size_t references, len;
    uint8_t bytes[];
};
enum sim_kind { SIM_TICK, SIM_DIAL, SIM_ACCEPT, SIM_CONNECTED, SIM_CLOSED, SIM_DELIVER };
struct sim_event {
    int64_t at_ms;
    uint64_t sequence;
    enum sim_kind kind;
    unsigned machine, life;
    struct sim_connection *connection;
    bool to_a, refused;
    struct sim_bytes *bytes;
    size_t len;
};

static uint64_t sim_random(struct sim *sim) {
    uint64_t z = sim->random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}
unsigned sim_below(struct sim *sim, unsigned bound) {
    return (unsigned)(sim_random(sim) % bound);
}

void sim_note(struct sim *sim, int machine, const char *format, ...) {
    char *line = sim->history[sim->history_count++ % SIM_HISTORY];
    int len = snprintf(line, 200, "%9.3f %3d ", (double)(sim->now_ms - sim->start_ms) / 1000, machine);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + len, 200 - (size_t)len, format, arguments);
    va_end(arguments);
    if (strncmp(format, "--- ", 4) == 0) {
        size_t used = strlen(sim->faults);
        char who[16] = "";
        if (machine >= 0) snprintf(who, sizeof who, "%d ", machine);
        snprintf(sim->faults + used, sizeof sim->faults - used, "%s%s%s", used ? ", " : "", who, line + len + 4);
    }
    if (sim->verbose) puts(line);
}

void sim_fail(struct sim *sim, const char *format, ...) {
    size_t from = sim->history_count > SIM_HISTORY ? sim->history_count - SIM_HISTORY : 0;
    for (size_t i = from; i < sim->history_count && !sim->verbose; i++) puts(sim->history[i % SIM_HISTORY]);
    printf("seed %llu variant %u at %.3f s: ", (unsigned long long)sim->seed, sim->variant,
           (double)(sim->now_ms - sim->start_ms) / 1000);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    puts("");
    fflush(stdout);
    exit(1);
}

/* Events */
static bool event_before(const struct sim_event *a, const struct sim_event *b) {
    return a->at_ms < b->at_ms || (a->at_ms == b->at_ms && a->sequence < b->sequence);
}
static void sim_push(struct sim *sim, struct sim_event event) {
    if (event.connection) event.connection->events++;
    if (!event.sequence) event.sequence = ++sim->sequence;
    if (sim->event_count == sim->event_capacity) {
        sim->event_capacity = sim->event_capacity ? sim->event_capacity * 2 : 1024;
        sim->events = realloc(sim->events, sim->event_capacity * sizeof *sim->events);
    }
    size_t at = sim->event_count++;
    for (; at > 0 && event_before(&event, &sim->events[(at - 1) / 2]); at = (at - 1) / 2)
        sim->events[at] = sim->events[(at - 1) / 2];
    sim->events[at] = event;
}
static struct sim_event sim_pop(struct sim *sim) {
    struct sim_event first = sim->events[0], last = sim->events[--sim->event_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= sim->event_count) break;
        if (child + 1 < sim->event_count && event_before(&sim->events[child + 1], &sim->events[child])) child++;
        if (!event_before(&sim->events[child], &last)) break;
        sim->events[at] = sim->events[child];
        at = child;
    }
    sim->events[at] = last;
    if (first.connection) first.connection->events--;
    return first;
}
/* A message of another length, or another draw of a random number, shows here. */
static void sim_digest(struct sim *sim, const struct sim_event *event) {
    uint64_t fields = (uint64_t)event->at_ms << 24 ^ (uint64_t)event->machine << 8 ^ event->kind ^ event->len << 40;
    sim->digest = (sim->digest ^ fields ^ sim->random) * 0x9e3779b97f4a7c15;
    sim->digest ^= sim->digest >> 29;
}
static int64_t sim_latency(struct sim *sim) {
    return 1 + (sim->latency_ms ? sim_below(sim, sim->latency_ms) : 0);
}
static bool sim_reaches(const struct sim *sim, unsigned a, unsigned b) {
    for (unsigned i = 0; i < sim->cuts; i++)
        if ((sim->cut[i][0] == a && sim->cut[i][1] == b) || (sim->cut[i][0] == b && sim->cut[i][1] == a)) return false;
    return sim->group[a] == sim->group[b];
}
int64_t sim_time(const struct sim_machine *machine) {
    return machine->sim->now_ms + machine->skew_ms;
}

int sim_index(const char *address) {
    unsigned numbers[4] = {0}, count = 0;
    for (const char *at = address; *at && count < 4; at++) {
        if (*at == '.')
            count++;
        else
            numbers[count] = numbers[count] * 10 + (unsigned)(*at - '0');
    }
    return count == 3 && numbers[0] == 10 ? (int)(numbers[2] * SIM_ADDRESS_BASE + numbers[3]) : -1;
}

void sim_effect_facts(void *context, struct cluster_facts *facts) {
    const struct sim_machine *machine = context;
    *facts = (struct cluster_facts){.offset = machine->offset,
                                    .primary_link_up = machine->link_up,
                                    .primary_ms = machine->primary_ms ? machine->primary_ms + machine->skew_ms : 0,
                                    .has_keys = machine->data};
}
static uint64_t effect_random(void *context) {
    return sim_random(((struct sim_machine *)context)->sim);
}
static size_t effect_keys_in_slot(void *context, unsigned slot) {
    return ((struct sim_machine *)context)->data;
}
static void effect_dial(void *context, struct cluster_link *link) {
    struct sim_machine *machine = context;
    struct sim *sim = machine->sim;
    int target = sim_index(link->node->address);
    if (target < 0 || target >= (int)sim->count) target = (int)machine->index; /* there is nobody: it dials itself */
    struct sim_connection *connection = calloc(1, sizeof *connection);
    *connection =
        (struct sim_connection){.a = machine->index, .b = (unsigned)target, .life_a = machine->life, .link_a = link};
    link->host = connection;
    sim_push(sim, (struct sim_event){.at_ms = sim->now_ms + sim_latency(sim),
                                     .kind = SIM_DIAL,
                                     .machine = (unsigned)target,
                                     .connection = connection});
}
/* Tells the other end, behind all bytes that were sent before. */
static void sim_close_end(struct sim *sim, struct sim_connection *connection, bool at_a, bool refused) {
    if (at_a)
        connection->link_a = NULL;
    else
        connection->link_b = NULL;
    int64_t *last = at_a ? &connection->last_to_b : &connection->last_to_a;
    int64_t at_ms = sim->now_ms + sim_latency(sim);
    if (at_ms < *last) at_ms = *last;
    *last = at_ms;
    sim_push(sim, (struct sim_event){.at_ms = at_ms,
                                     .kind = SIM_CLOSED,
                                     .machine = at_a ? connection->b : connection->a,
                                     .life = at_a ? connection->life_b : connection->life_a,
                                     .connection = connection,
                                     .to_a = !at_a,
                                     .refused = refused});
}
static void effect_close(void *context, struct cluster_link *link) {
    struct sim_machine *machine = context;
    struct sim_connection *connection = link->host;
    sim_close_end(machine->sim, connection, connection->link_a == link, false);
}
static void sim_check_message(struct sim_machine *machine, const struct bus_message *message) {
    struct sim *sim = machine->sim;
    const struct sim_disk *disk = &machine->durable;
    const struct bus_header *header = &message->header;
    if (!disk->exists || !node_id_equal(&disk->id, &header->sender))
        sim_fail(sim, "machine %u says an id that is not durable", machine->index);
    if (header->current_epoch > disk->current_epoch)
        sim_fail(sim, "machine %u says epoch %llu; durable is %llu", machine->index,
                 (unsigned long long)header->current_epoch, (unsigned long long)disk->current_epoch);
    bool primary = node_id_is_zero(&header->primary);
    if (primary != disk->primary) sim_fail(sim, "machine %u says a role that is not durable", machine->index);
    if (primary && header->config_epoch != disk->config_epoch)
        sim_fail(sim, "machine %u says configuration epoch %llu; durable is %llu", machine->index,
                 (unsigned long long)header->config_epoch, (unsigned long long)disk->config_epoch);
    uint64_t version = machine->cluster->slots.version + 1;
    if (primary && (machine->told_slots != header->slots || machine->told_version != version)) {
        const struct slot_bitmap *slots = header->slots ? header->slots : &slot_bitmap_empty;
        if (memcmp(slots, &disk->slots, sizeof *slots) != 0)
            sim_fail(sim, "machine %u claims slots that are not durable", machine->index);
        machine->told_slots = header->slots;
        machine->told_version = version;
    }
    if (header->type == BUS_AUTH_ACK) {
        if (disk->last_vote_epoch < header->current_epoch)
            sim_fail(sim, "machine %u: vote is not durable", machine->index);
        if (machine->last_vote >= header->current_epoch)
            sim_fail(sim, "machine %u votes again in epoch %llu", machine->index,
                     (unsigned long long)header->current_epoch);
        machine->last_vote = header->current_epoch;
    }
}
static void sim_drop_bytes(struct sim_bytes *bytes) {
    if (bytes && --bytes->references == 0) free(bytes);
}
/* A thousand messages of a broadcast are alike: they share their bytes. */
static struct sim_bytes *sim_encode(struct sim *sim, const struct bus_message *message, size_t len) {
    struct sim_bytes *bytes = malloc(sizeof *bytes + len);
    *bytes = (struct sim_bytes){.references = 1, .len = len};
    bus_encode(message, bytes->bytes);
    if (sim->sent && sim->sent->len == len && memcmp(sim->sent->bytes, bytes->bytes, len) == 0) {
        free(bytes);
    } else {
        sim_drop_bytes(sim->sent);
        sim->sent = bytes;
    }
    sim->sent->references++;
    return sim->sent;
}
static void effect_send(void *context, struct cluster_link *link, const struct bus_message *message) {
    struct sim_machine *machine = context;
    struct sim *sim = machine->sim;
    struct sim_connection *connection = link->host;
    if (message->header.type < BUS_TYPES) machine->sent[message->header.type]++;
    sim_check_message(machine, message);
    if (sim->break_one_in && sim_below(sim, sim->break_one_in) == 0) connection->broken = true;
    bool to_a = connection->link_b == link;
    int64_t *last = to_a ? &connection->last_to_a : &connection->last_to_b;
    int64_t at_ms = sim->now_ms + sim_latency(sim);
    if (at_ms < *last) at_ms = *last;
    *last = at_ms;
    struct sim_event event = {.at_ms = at_ms,
                              .kind = SIM_DELIVER,
                              .machine = to_a ? connection->a : connection->b,
                              .life = to_a ? connection->life_a : connection->life_b,
                              .connection = connection,
                              .to_a = to_a,
                              .len = bus_encoded_size(message)};
    machine->bytes_sent += event.len;
    if (sim->reorders) event.at_ms = sim->now_ms + sim_latency(sim);
    if (sim->lose_one_in && sim_below(sim, sim->lose_one_in) == 0) return;
    event.bytes = sim_encode(sim, message, event.len);
    if (sim->duplicate_one_in && sim_below(sim, sim->duplicate_one_in) == 0) {
        struct sim_event again = event;
        again.bytes->references++;
        if (sim->reorders) again.at_ms = sim->now_ms + sim_latency(sim);
        sim_push(sim, again);
    }
    sim_push(sim, event);
}
static void effect_publish(void *context, struct slice channel, struct slice message, bool shard) {
    ((struct sim_machine *)context)->published++;
}
static void effect_module_message(void *context, const struct cluster_node *sender, const struct bus_message *message) {
}
static void sim_erase(struct sim_disk *disk) {
    if (disk->exists) memory_output_free(&disk->file);
    *disk = (struct sim_disk){0};
}
/* A slot has one owner in an epoch. A claim is saved before it is told. */
static void sim_check_owner(struct sim_machine *machine) {
    struct sim *sim = machine->sim;
    const struct cluster_node *myself = machine->cluster->myself;
    if (!sim->owners || sim->no_single_owner || !node_votes(myself) || myself->config_epoch >= SIM_EPOCHS) return;
    for (unsigned i = 0; i < sim->shards; i++) {
        if (!slot_bitmap_has(myself->slots, sim->first_slot[i])) continue;
        uint16_t *owner = &sim->owners[i * SIM_EPOCHS + myself->config_epoch];
        if (*owner && *owner != machine->index + 1)
            sim_fail(sim, "slot %u has two owners in epoch %llu: %u and %u", sim->first_slot[i],
                     (unsigned long long)myself->config_epoch, *owner - 1u, machine->index);
        *owner = (uint16_t)(machine->index + 1);
    }
}

static void effect_save(void *context, bool durable) {
    struct sim_machine *machine = context;
    if (durable) sim_check_owner(machine);
    const struct cluster *cluster = machine->cluster;
    struct sim_disk disk = {.exists = true,
                            .id = cluster->myself->id,
                            .current_epoch = cluster->current_epoch,
                            .last_vote_epoch = cluster->last_vote_epoch,
                            .config_epoch = cluster->myself->config_epoch,
                            .primary = node_is_primary(cluster->myself),
                            .slots = *node_slots(cluster->myself)};
    struct sim_disk *to = durable ? &machine->durable : &machine->written;
    if (durable) machine->told_version = 0;
    sim_erase(to);
    memory_output_init(&disk.file);
    *to = disk;
    cluster_print_configuration(cluster, &to->file.out);
    if (durable) sim_erase(&machine->written); /* an older file does not come back */
}
static void effect_log(void *context, enum log_level level, const char *text) {
    struct sim_machine *machine = context;
    struct sim *sim = machine->sim;
    if (level >= log_level) sim_note(sim, (int)machine->index, "%s", text);
    unsigned long long epoch;
    if (strstr(text, "after successful failover") && sscanf(text, "configEpoch set to %llu", &epoch) == 1) {
        sim->elections++;
        if (epoch < SIM_EPOCHS) {
            const struct node_id *shard = &machine->cluster->myself->shard;
            if (sim->winner[epoch] && sim->winner[epoch] != (int)machine->index + 1 &&
                node_id_equal(&sim->winner_shard[epoch], shard))
                sim_fail(sim, "epoch %llu has two winners: %d and %u", epoch, sim->winner[epoch] - 1, machine->index);
            sim->winner[epoch] = (int)machine->index + 1;
            sim->winner_shard[epoch] = *shard;
        }
    }
}
void sim_effect_follow(void *context, const struct cluster_node *primary, bool same_shard) {
    struct sim_machine *machine = context;
    int target = sim_index(primary->address);
    if (machine->following == target) return;
    machine->following = target;
    machine->link_up = false;
}
void sim_effect_lead(void *context, bool same_shard) {
    struct sim_machine *machine = context;
    machine->following = -1;
    machine->lead_ms = machine->sim->now_ms;
    machine->sim->failovers++;
}
static void effect_drop_data(void *context) {
    struct sim_machine *machine = context;
    machine->data = false;
    machine->offset = 0;
}
static void effect_slot_moved(void *context, unsigned slot, const struct cluster_node *from,
                              const struct cluster_node *to) {
    ((struct sim_machine *)context)->moved_slots++;
}
static void effect_delete_keys(void *context, unsigned slot) {
    ((struct sim_machine *)context)->deleted_slots++;
}
static void effect_state_changed(void *context, bool ok) {}
static void effect_pause_writes(void *context, int64_t until_ms) {
    struct sim_machine *machine = context;
    machine->paused_until_ms = until_ms - machine->skew_ms;
}
static void effect_resume_writes(void *context) {
    ((struct sim_machine *)context)->paused_until_ms = 0;
}
const struct cluster_effects sim_effects = {.facts = sim_effect_facts,
                                            .random = effect_random,
                                            .keys_in_slot = effect_keys_in_slot,
                                            .dial = effect_dial,
                                            .close = effect_close,
                                            .send = effect_send,
                                            .publish = effect_publish,
                                            .module_message = effect_module_message,
                                            .save = effect_save,
                                            .log = effect_log,
                                            .follow = sim_effect_follow,
                                            .lead = sim_effect_lead,
                                            .drop_data = effect_drop_data,
                                            .slot_moved = effect_slot_moved,
                                            .delete_keys = effect_delete_keys,
                                            .state_changed = effect_state_changed,
                                            .pause_writes = effect_pause_writes,
                                            .resume_writes = effect_resume_writes};

const struct cluster_effects *sim_uses = &sim_effects; /* of machines that start */

static struct cluster_settings sim_settings(int64_t node_timeout_ms) {
    return (struct cluster_settings){.node_timeout_ms = node_timeout_ms,
                                     .manual_failover_timeout_ms = 5000,
                                     .blacklist_ttl_s = 60,
                                     .repl_ping_period_s = 10,
                                     .gossip_percent = 10,
                                     .replica_validity_factor = 10,
                                     .migration_barrier = 1,
                                     .allow_replica_migration = true,
                                     .require_full_coverage = true,
                                     .address = "",
                                     .port = 6379,
                                     .bus_port = 16379,
                                     .hostname = "",
                                     .nodename = "",
                                     .client_ipv4 = "",
                                     .client_ipv6 = "",
                                     .availability_zone = ""};
}

void sim_start(struct sim_machine *machine) {
    struct sim *sim = machine->sim;
    machine->life++;
    machine->frozen_until_ms = machine->paused_until_ms = 0;
    machine->following = -1;
    machine->link_up = false;
    machine->primary_ms = 0;
    machine->lead_ms = 0;
    machine->told_version = 0;
    if (machine->durable.exists) {
        if (machine->written.exists && sim_below(sim, 2)) { /* it reached the disk */
            sim_erase(&machine->durable);
            machine->durable = machine->written;
            machine->written = (struct sim_disk){0};
        }
        sim_note(sim, (int)machine->index, "--- restart");
        struct nodes_file file;
        struct nodes_file_error file_error;
        const char *error = "";
        if (!nodes_file_parse(memory_output_slice(&machine->durable.file), false, NULL, NULL, &file, &file_error))
            sim_fail(sim, "machine %u: line %zu: %s", machine->index, file_error.number, file_error.reason);
        machine->cluster = cluster_new_from(&file, &machine->settings, sim_uses, machine, sim_time(machine), &error);
        nodes_file_free(&file);
        if (!machine->cluster) sim_fail(sim, "machine %u: %s", machine->index, error);
    } else {
        machine->cluster = cluster_new(&machine->settings, sim_uses, machine, sim_time(machine));
    }
    sim_push(sim, (struct sim_event){.at_ms = sim->now_ms + sim_below(sim, sim->first_tick_ms),
                                     .kind = SIM_TICK,
                                     .machine = machine->index,
                                     .life = machine->life});
}

static void sim_prepare(struct sim *sim, uint64_t seed, unsigned count, int64_t node_timeout_ms) {
    *sim = (struct sim){.seed = seed,
                        .random = seed * 0x2545f4914f6cdd1d + 1,
                        .count = count,
                        .latency_ms = 3,
                        .first_tick_ms = CLUSTER_TICK_MS};
    sim->now_ms = sim->start_ms = 1800000000000;
    static char history[SIM_HISTORY][SIM_LINE];
    sim->history = history; /* of one simulation at a time */
    sim->machines = calloc(count, sizeof *sim->machines);
    for (unsigned i = 0; i < count; i++) {
        struct sim_machine *machine = &sim->machines[i];
        machine->sim = sim;
        machine->index = i;
        snprintf(machine->address, sizeof machine->address, "10.0.%u.%u", i / SIM_ADDRESS_BASE, i % SIM_ADDRESS_BASE);
        machine->settings = sim_settings(node_timeout_ms);
    }
}
void sim_init(struct sim *sim, uint64_t seed, unsigned count, int64_t node_timeout_ms) {
    sim_prepare(sim, seed, count, node_timeout_ms);
    for (unsigned i = 0; i < count; i++) sim_start(&sim->machines[i]);
}

static void sim_free_connection(struct sim_connection *connection) {
    if (connection && !connection->events && !connection->link_a && !connection->link_b) free(connection);
}
void sim_free(struct sim *sim) {
    for (unsigned i = 0; i < sim->count; i++) {
        struct sim_machine *machine = &sim->machines[i];
        for (struct cluster_link *link = machine->cluster ? machine->cluster->links : NULL; link; link = link->next) {
            struct sim_connection *connection = link->host;
            *(connection->link_a == link ? &connection->link_a : &connection->link_b) = NULL;
            sim_free_connection(connection);
        }
        if (machine->cluster) cluster_free(machine->cluster);
        sim_erase(&machine->durable);
        sim_erase(&machine->written);
    }
    while (sim->event_count) {
        struct sim_event event = sim_pop(sim);
        sim_drop_bytes(event.bytes);
        sim_free_connection(event.connection);
    }
    sim_drop_bytes(sim->sent);
    free(sim->events);
    free(sim->machines);
    free(sim->owners);
}

static void sim_replicate(struct sim_machine *machine) {
    struct sim *sim = machine->sim;
    struct cluster *cluster = machine->cluster;
    if (machine->following >= 0) {
        struct sim_machine *primary = &sim->machines[machine->following];
        machine->link_up = !sim->no_copies && primary->cluster && primary->frozen_until_ms <= sim->now_ms &&
                           sim_reaches(sim, machine->index, primary->index) &&
                           node_is_primary(primary->cluster->myself);
        if (machine->link_up) {
            machine->offset = primary->offset;
            machine->data = primary->data;
            machine->primary_ms = sim->now_ms;
        }
    } else if (sim->writes && cluster->ok && cluster->myself->slot_count && machine->paused_until_ms <= sim->now_ms) {
        machine->offset += sim_below(sim, 100);
    }
}

/* What the table of nodes keeps beside the nodes is what follows from them. */
static void sim_check_heartbeats(struct sim_machine *machine) {
    const unsigned unusual = NODE_MYSELF | NODE_HANDSHAKE | NODE_NOADDR | NODE_PFAIL | NODE_FAIL;
    const struct node_table *nodes = &machine->cluster->nodes;
    for (size_t i = 0; i < nodes->count; i++) {
        const struct cluster_node *node = nodes->list[i];
        struct node_heartbeat *found[NODES_FIND_MAX];
        bool connected = node->link && node->link->connected;
        bool usual = !(node->flags & unusual) && connected && node->inbound && !node->report_count;
        nodes_find_brief(nodes, (const uint8_t *)node->id.text, NODE_ID_LEN, 1, found);
        if (node->beat != &nodes->beats[i] || node->beat->connected != connected || node->beat->usual != usual ||
            found[0] != node->beat)
            sim_fail(machine->sim, "machine %u: the heartbeat of node %.40s is wrong", machine->index, node->id.text);
    }
}

static void sim_handle(struct sim *sim, struct sim_event *event) {
    struct sim_machine *machine = &sim->machines[event->machine];
    struct sim_connection *connection = event->connection;
    switch (event->kind) {
    case SIM_TICK:
        sim_replicate(machine);
        if (sim->count <= 64) sim_check_heartbeats(machine);
        cluster_tick(machine->cluster, sim_time(machine));
        sim_push(sim, (struct sim_event){.at_ms = sim->now_ms + CLUSTER_TICK_MS,
                                         .kind = SIM_TICK,
                                         .machine = machine->index,
                                         .life = machine->life});
        break;
    case SIM_ACCEPT:
        if (connection->broken) break;
        connection->link_b = cluster_link_accepted(machine->cluster, sim->machines[connection->a].address, 1,
                                                   machine->address, sim_time(machine));
        connection->link_b->host = connection;
        break;
    case SIM_CONNECTED:
        if (connection->link_a)
            cluster_link_connected(machine->cluster, connection->link_a, machine->address, sim_time(machine));
        break;
    case SIM_CLOSED: {
        struct cluster_link **end = event->to_a ? &connection->link_a : &connection->link_b;
        struct cluster_link *link = *end;
        *end = NULL;
        if (link) cluster_link_closed(machine->cluster, link, event->refused, sim_time(machine));
        break;
    }
    case SIM_DELIVER: {
        struct cluster_link *link = event->to_a ? connection->link_a : connection->link_b;
        if (!link) break;
        if (connection->broken) { /* both ends notice */
            sim_close_end(sim, connection, event->to_a, false);
            cluster_link_closed(machine->cluster, link, false, sim_time(machine));
            break;
        }
        struct bus_message message;
        const uint8_t *bad_id;
        enum bus_verdict verdict = bus_decode(event->bytes->bytes, event->len, &message, &bad_id);
        if (verdict != BUS_ACCEPTED || bad_id) sim_fail(sim, "a message is not accepted: %d", (int)verdict);
        cluster_link_heard(machine->cluster, link, sim_time(machine));
        cluster_receive(machine->cluster, link, &message, sim_time(machine));
        break;
    }
    case SIM_DIAL: break;
    }
    /* A loop turn may have several events. */
    if (event->kind == SIM_TICK || sim_below(sim, 4)) cluster_flush(machine->cluster, sim_time(machine));
}

/* A connection request reaches a machine, whether its process runs or not. */
static void sim_dial(struct sim *sim, const struct sim_event *event) {
    struct sim_connection *connection = event->connection;
    struct sim_machine *target = &sim->machines[connection->b];
    if (!connection->link_a) return;
    if (!sim_reaches(sim, connection->a, connection->b)) { /* the kernel tries again */
        sim_push(sim, (struct sim_event){.at_ms = sim->now_ms + 500,
                                         .kind = SIM_DIAL,
                                         .machine = event->machine,
                                         .connection = connection});
        return;
    }
    if (!target->cluster) {
        sim_push(sim, (struct sim_event){.at_ms = sim->now_ms + sim_latency(sim),
                                         .kind = SIM_CLOSED,
                                         .machine = connection->a,
                                         .life = connection->life_a,
                                         .connection = connection,
                                         .to_a = true,
                                         .refused = true});
        return;
    }
    connection->life_b = target->life;
    connection->accepted = true;
    sim_push(sim, (struct sim_event){.at_ms = sim->now_ms,
                                     .kind = SIM_ACCEPT,
                                     .machine = connection->b,
                                     .life = connection->life_b,
                                     .connection = connection});
    sim_push(sim, (struct sim_event){.at_ms = sim->now_ms + sim_latency(sim),
                                     .kind = SIM_CONNECTED,
                                     .machine = connection->a,
                                     .life = connection->life_a,
                                     .connection = connection,
                                     .to_a = true});
}

static bool sim_works(const struct sim *sim, unsigned index) {
    return sim->machines[index].cluster && sim->machines[index].frozen_until_ms <= sim->now_ms;
}
bool sim_serves(const struct sim *sim, unsigned index, unsigned slot) {
    const struct cluster *cluster = sim->machines[index].cluster;
    return sim_works(sim, index) && cluster->ok && cluster_serves(cluster, slot) && node_is_primary(cluster->myself);
}
/* Two primaries that can talk to each other do not serve one slot for long, and a primary that reaches no majority
 * stops. The limits are those of the node timeout and of the ping interval. */
static void sim_check_service(struct sim *sim) {
    int64_t limit_ms = 2 * sim->machines[0].settings.node_timeout_ms + 3000;
    unsigned serving[SIM_MACHINES_MAX], count = 0;
    for (unsigned i = 0; i < sim->count; i++)
        if (sim_works(sim, i) && sim->machines[i].cluster->ok && node_is_primary(sim->machines[i].cluster->myself))
            serving[count++] = i;
    for (unsigned i = 0; i < sim->shards; i++) {
        bool twice = false;
        for (unsigned a = 0; a < count; a++)
            for (unsigned b = 0; sim_serves(sim, serving[a], sim->first_slot[i]) && b < a; b++)
                twice |= sim_reaches(sim, serving[a], serving[b]) && sim_serves(sim, serving[b], sim->first_slot[i]);
        if (!twice)
            sim->double_since_ms[i] = 0;
        else if (!sim->double_since_ms[i])
            sim->double_since_ms[i] = sim->now_ms;
        else if (sim->now_ms - sim->double_since_ms[i] > limit_ms)
            sim_fail(sim, "slot %u is served twice for %lld ms", sim->first_slot[i], (long long)limit_ms);
    }
    for (unsigned i = 0; i < sim->count; i++) {
        const struct cluster *cluster = sim->machines[i].cluster;
        bool served = sim_works(sim, i) && cluster->ok && cluster->myself->slot_count;
        unsigned reachable = 0;
        for (size_t n = 0; served && n < cluster->nodes.count; n++) {
            const struct cluster_node *node = cluster->nodes.list[n];
            if (!node_votes(node)) continue;
            int index = node == cluster->myself ? (int)i : sim_index(node->address);
            reachable += index >= 0 && sim_works(sim, (unsigned)index) && sim_reaches(sim, i, (unsigned)index);
        }
        if (!served || reachable > cluster->size / 2)
            sim->minority_since_ms[i] = 0;
        else if (!sim->minority_since_ms[i])
            sim->minority_since_ms[i] = sim->now_ms;
        else if (sim->now_ms - sim->minority_since_ms[i] > limit_ms)
            sim_fail(sim, "machine %u serves without a majority for %lld ms", i, (long long)limit_ms);
    }
}

/* A thousand machines do not fit in the cache: what the next events need is fetched during this one. In
 * the heap of events the first is the next one, and one of its two children that after it. */
static void sim_prefetch_lines(const void *from, size_t len) {
    enum { LINE = 64 };
    for (size_t at = 0; from && at < len; at += LINE) __builtin_prefetch((const char *)from + at);
}
static const struct cluster_link *sim_link_of(const struct sim_event *event) {
    if (event->kind != SIM_DELIVER) return NULL;
    return event->to_a ? event->connection->link_a : event->connection->link_b;
}
static void sim_prefetch(const struct sim *sim) {
    enum { AHEAD = 15, HEADER = 160 };
    const struct sim_event *events = sim->events;
    for (size_t i = 3; i < AHEAD && i < sim->event_count; i++)
        if (events[i].connection) sim_prefetch_lines(events[i].connection, sizeof *events[i].connection);
    if (sim->event_count < 3) return;
    const struct sim_event *second = event_before(&events[1], &events[2]) ? &events[1] : &events[2];
    const struct cluster *cluster = sim->machines[second->machine].cluster;
    const struct cluster_link *link = sim_link_of(&events[0]);
    if (link) {
        sim_prefetch_lines(link->node, 2 * sizeof(struct node_id));
        sim_prefetch_lines(link->received, HEADER);
    }
    sim_prefetch_lines(sim_link_of(second), sizeof *link);
    if (!cluster) return;
    sim_prefetch_lines(cluster, offsetof(struct cluster, slots));
    sim_prefetch_lines(&cluster->slots.assigned, sizeof cluster->slots.assigned);
    sim_prefetch_lines(&cluster->slots.unclaimed_count,
                       offsetof(struct cluster, error) - offsetof(struct cluster, slots.unclaimed_count));
    sim_prefetch_lines(second->bytes, second->len < HEADER ? second->len : HEADER);
}

static void sim_step(struct sim *sim) {
    struct sim_event event = sim_pop(sim);
    if (sim->count > 64) sim_prefetch(sim);
    struct sim_machine *machine = &sim->machines[event.machine];
    struct sim_connection *connection = event.connection;
    sim->now_ms = event.at_ms;
    sim_digest(sim, &event);
    if (sim->now_ms - sim->checked_ms >= (sim->count > 64 ? 1000 : 200)) {
        sim->checked_ms = sim->now_ms;
        sim_check_service(sim);
    }
    if (event.kind == SIM_DIAL) {
        sim_dial(sim, &event);
    } else if (event.life == machine->life && machine->cluster) {
        bool blocked = connection && !sim_reaches(sim, connection->a, connection->b);
        if (machine->frozen_until_ms > sim->now_ms || blocked) {
            /* Bytes wait in the kernel, here or at the other end, and keep their order. */
            event.at_ms = blocked ? sim->now_ms + 200 : machine->frozen_until_ms;
            sim_push(sim, event);
            return;
        }
        sim_handle(sim, &event);
    }
    sim_drop_bytes(event.bytes);
    sim_free_connection(connection);
}

void sim_run(struct sim *sim, int64_t ms) {
    int64_t until_ms = sim->now_ms + ms;
    while (sim->event_count && sim->events[0].at_ms <= until_ms) sim_step(sim);
    sim->now_ms = until_ms;
}

void sim_crash(struct sim_machine *machine) {
    struct sim *sim = machine->sim;
    if (!machine->cluster) return;
    sim_note(sim, (int)machine->index, "--- crash");
    for (struct cluster_link *link = machine->cluster->links; link; link = link->next) {
        struct sim_connection *connection = link->host;
        sim_close_end(sim, connection, connection->link_a == link, false);
    }
    cluster_free(machine->cluster);
    machine->cluster = NULL;
    machine->life++;
}
void sim_freeze(struct sim_machine *machine, int64_t ms) {
    sim_note(machine->sim, (int)machine->index, "--- freeze for %lld ms", (long long)ms);
    if (machine->frozen_until_ms < machine->sim->now_ms + ms) machine->frozen_until_ms = machine->sim->now_ms + ms;
}

unsigned sim_said_times(const struct sim *sim, int machine, const char *text) {
    unsigned times = 0;
    size_t from = sim->history_count > SIM_HISTORY ? sim->history_count - SIM_HISTORY : 0;
    for (size_t i = from; i < sim->history_count; i++) {
        const char *line = sim->history[i % SIM_HISTORY];
        times += (machine < 0 || atoi(line + 10) == machine) && strstr(line, text);
    }
    return times;
}
bool sim_said(const struct sim *sim, int machine, const char *text) {
    return sim_said_times(sim, machine, text) > 0;
}

const char *sim_disagreement(struct sim *sim) {
    static char why[200];
    struct sim_machine *first = NULL;
    unsigned running = 0;
    for (unsigned i = 0; i < sim->count; i++) running += sim->machines[i].cluster != NULL;
    for (unsigned i = 0; i < sim->count; i++) {
        struct sim_machine *machine = &sim->machines[i];
        struct cluster *cluster = machine->cluster;
        if (!cluster) continue;
        if (cluster->nodes.count != running) {
            snprintf(why, sizeof why, "machine %u knows %zu nodes of %u", i, cluster->nodes.count, running);
            return why;
        }
        if (!cluster->ok) {
            snprintf(why, sizeof why, "machine %u is in state fail", i);
            return why;
        }
        if (!first) first = machine;
        bool unclaimed = memcmp(&cluster->slots.unclaimed, &slot_bitmap_empty, sizeof slot_bitmap_empty) != 0;
        for (size_t n = 0; n < cluster->nodes.count; n++) {
            struct cluster_node *node = cluster->nodes.list[n];
            struct cluster_node *other = first->cluster->nodes.list[n]; /* most tables have one order */
            if (!node_id_equal(&other->id, &node->id)) other = nodes_find(&first->cluster->nodes, &node->id);
            const char *problem = NULL;
            if (!other)
                problem = "is not known to all";
            else if (node->flags & (NODE_PFAIL | NODE_FAIL | NODE_HANDSHAKE | NODE_NOADDR))
                problem = "is failing";
            else if (node_is_primary(node) != node_is_primary(other))
                problem = "has two roles";
            else if (node_is_replica(node) &&
                     (!node->primary || !other->primary || !node_id_equal(&node->primary->id, &other->primary->id)))
                problem = "follows two primaries";
            else if (node->primary && !node_is_primary(node->primary))
                problem = "follows a replica";
            else if (!nodes_share_shard(node, other))
                problem = "is in two shards";
            else if (node_is_primary(node) && node->config_epoch != other->config_epoch)
                problem = "has two epochs";
            else if (node->slot_count != other->slot_count ||
                     (node->slot_count && memcmp(node->slots, other->slots, sizeof *node->slots) != 0))
                problem = "has different slots";
            for (unsigned byte = 0; !problem && unclaimed && byte < SLOT_BITMAP_SIZE; byte++)
                if (node_slots(node)->bytes[byte] & cluster->slots.unclaimed.bytes[byte])
                    problem = "does not claim its slots";
            for (size_t m = 0; !problem && machine == first && node_is_primary(node) && m < n; m++)
                if (node_is_primary(cluster->nodes.list[m]) &&
                    cluster->nodes.list[m]->config_epoch == node->config_epoch)
                    problem = "has the epoch of another primary";
            if (problem) {
                snprintf(why, sizeof why, "machine %u: node %.40s (%s) %s", i, node->id.text, node->address, problem);
                return why;
            }
        }
    }
    return NULL;
}
int64_t sim_agree(struct sim *sim, int64_t limit_ms) {
    int64_t start_ms = sim->now_ms;
    for (;;) {
        const char *why = sim_disagreement(sim);
        if (!why) return sim->now_ms - start_ms;
        if (sim->now_ms - start_ms >= limit_ms)
            sim_fail(sim, "no agreement after %lld ms: %s", (long long)limit_ms, why);
        sim_run(sim, sim->count > 64 ? 500 : 50);
    }
}

static void sim_share_slots(struct sim *sim, unsigned primaries) {
    sim->shards = primaries;
    sim->owners = calloc((size_t)primaries * SIM_EPOCHS, sizeof *sim->owners);
    for (unsigned i = 0; i < primaries; i++) sim->first_slot[i] = HASH_SLOTS * i / primaries;
}

void sim_init_built(struct sim *sim, uint64_t seed, unsigned count, unsigned primaries, int64_t node_timeout_ms) {
    sim_prepare(sim, seed, count, node_timeout_ms);
    /* A thousand machines that dial each other at once fill the memory. After the node timeout they would send MEET to
     * those that have not dialled yet. Their first messages, two million, tell little of third machines. */
    sim->first_tick_ms = (unsigned)node_timeout_ms * 3 / 4;
    sim_share_slots(sim, primaries);
    char(*lines)[400] = calloc(count, sizeof *lines);
    for (unsigned i = 0; i < count; i++) {
        unsigned shard = i % primaries;
        char id[NODE_ID_LEN + 1], slots[40] = "", primary[NODE_ID_LEN + 1] = "-";
        unsigned last = HASH_SLOTS * (shard + 1) / primaries - 1;
        snprintf(id, sizeof id, "%016llx%024x", (unsigned long long)sim_random(sim), i);
        if (i < primaries)
            snprintf(slots, sizeof slots, " %u-%u", sim->first_slot[shard], last);
        else
            memcpy(primary, lines[shard], NODE_ID_LEN);
        memcpy(sim->machines[i].durable.id.text, id, NODE_ID_LEN);
        snprintf(lines[i], sizeof lines[i], "%s %s:6379@16379,,tls-port=0,shard-id=%040x @%s %s 0 0 %u connected%s\n",
                 id, sim->machines[i].address, 1000 + shard, i < primaries ? "master" : "slave", primary, shard + 1,
                 slots);
    }
    for (unsigned i = 0; i < count; i++) {
        struct sim_machine *machine = &sim->machines[i];
        struct sim_disk *disk = &machine->durable;
        machine->settings.gossip_percent = 1;
        disk->exists = true;
        disk->primary = i < primaries;
        disk->current_epoch = primaries;
        disk->config_epoch = i < primaries ? i + 1 : 0;
        for (unsigned slot = 0; i < primaries && slot < HASH_SLOTS; slot++)
            if (slot >= sim->first_slot[i] && slot < HASH_SLOTS * (i + 1) / primaries)
                slot_bitmap_set(&disk->slots, slot);
        memory_output_init(&disk->file);
        for (unsigned n = 0; n < count; n++) {
            char *flags = strchr(lines[n], '@'); /* of the bus port */
            flags = strchr(flags + 1, '@');
            output_write(&disk->file.out, slice_make(lines[n], (size_t)(flags - lines[n])));
            if (n == i) output_write(&disk->file.out, SLICE("myself,"));
            output_write(&disk->file.out, slice_of(flags + 1));
        }
        char vars[80];
        snprintf(vars, sizeof vars, "vars currentEpoch %u lastVoteEpoch 0\n", primaries);
        output_write(&disk->file.out, slice_of(vars));
        sim_start(machine);
        /* Else the second message of each link would have a whole header, too, because only then it has extensions: a
         * million of them, in each history. */
        for (size_t n = 0; n < count; n++) machine->cluster->nodes.list[n]->flags |= NODE_EXTENSIONS;
    }
    free(lines);
    sim->writes = true;
    sim->first_tick_ms = CLUSTER_TICK_MS;
}

void sim_agree_built(struct sim *sim, int64_t limit_ms) {
    sim_agree(sim, limit_ms);
    for (unsigned i = 0; i < sim->count; i++) {
        struct sim_machine *machine = &sim->machines[i];
        machine->settings.gossip_percent = 10;
        cluster_configure(machine->cluster, &machine->settings, sim_time(machine));
    }
}

void sim_build(struct sim *sim, unsigned primaries, int64_t limit_ms) {
    sim_share_slots(sim, primaries);
    for (unsigned i = 0; i < primaries; i++) {
        struct slot_bitmap slots = {0};
        for (unsigned slot = HASH_SLOTS * i / primaries; slot < HASH_SLOTS * (i + 1) / primaries; slot++)
            slot_bitmap_set(&slots, slot);
        struct sim_machine *machine = &sim->machines[i];
        const char *error = cluster_add_slots(machine->cluster, &slots, sim_time(machine));
        if (!error) error = cluster_set_config_epoch(machine->cluster, i + 1, sim_time(machine));
        if (error) sim_fail(sim, "%s", error);
    }
    for (unsigned i = 1; i < sim->count; i++)
        cluster_meet(sim->machines[0].cluster, sim->machines[i].address, 6379, 16379, "test",
                     sim_time(&sim->machines[0]));
    sim_agree(sim, limit_ms);
    for (unsigned i = primaries; i < sim->count; i++) {
        struct sim_machine *machine = &sim->machines[i];
        const struct node_id *id = &sim->machines[i % primaries].cluster->myself->id;
        const char *error = cluster_replicate(machine->cluster, id, sim_time(machine));
        if (error) sim_fail(sim, "%s", error);
    }
    sim->writes = true;
    sim_run(sim, 1000);
    sim_agree(sim, limit_ms);
}
struct sim_machine *sim_owner(struct sim *sim, unsigned observer, unsigned slot) {
    struct cluster_node *owner = sim->machines[observer].cluster->slots.owner[slot];
    int index = owner ? sim_index(owner->address[0] ? owner->address : sim->machines[observer].address) : -1;
    return index < 0 ? NULL : &sim->machines[index];
}
