/* effects.c: see effects.h.
 *
 * The loop may turn within a script or while a data set is loaded, and messages of other nodes arrive then, too. The
 * machine answers them at once, so that nobody takes this node for dead. But the keys and the role must not change in
 * the middle of a script or a load: these effects are noted and carried out when it is over (effects_settle). Of
 * several changes of the role only the last one counts then. */
#include "cluster/effects.h"
#include "cluster/links.h"
#include "cluster/migration/migration.h"
#include "cluster/node_private.h"
#include "cluster/nodes_conf.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "pubsub/pubsub.h"
#include "repl/link_transport.h"
#include "repl/primary.h"
#include "repl/repl.h"
#include "repl/sync/sync.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/config/tls_options.h"
#include "server/server.h"
#include <stdio.h>
#include <string.h>

enum { DELETED_AT_ONCE = 128 /* keys of one DEL */ };

static struct {
    bool any, role, data, other_shard;
    struct slot_bitmap slots; /* whose keys are to be deleted */
} waiting;
static bool starting;

static bool must_wait(void) {
    return server_is_loading() || dispatch_is_nested() || (cluster_in_event() && dispatch_running());
}

/* --- Questions --- */

static bool has_keys(void) {
    for (int id = 0; id < keyspace_databases(server.keyspace); id++)
        if (db_size(keyspace_db(server.keyspace, id))) return true;
    return false;
}

static void facts(void *context, struct cluster_facts *facts) {
    /* A replica whose data are not its primary's, or not yet, has nothing that counts in an election. */
    bool counts = !role->is_replica || role->position.known;
    *facts = (struct cluster_facts){.offset = counts ? (uint64_t)role->position.offset : 0,
                                    .primary_link_up = role->is_replica && role->link == ROLE_LINK_CONNECTED,
                                    .loading = server_is_loading(),
                                    .has_keys = has_keys(),
                                    .bound = !sync_may_leave()};
    facts->primary_ms = facts->primary_link_up ? role->heard_ms : role->link_since_ms;
}

/* From the kernel, because ids of nodes come from it; a message asks for dozens of numbers. */
static uint64_t random_number(void *context) {
    enum { POOL = 64 };
    static uint64_t pool[POOL];
    static unsigned left;
    if (left == 0) {
        random_bytes(pool, sizeof pool);
        left = POOL;
    }
    return pool[--left];
}

static size_t keys_in_slot(void *context, unsigned slot) {
    size_t keys = 0;
    for (int id = 0; id < keyspace_databases(server.keyspace); id++)
        keys += db_slot_size(keyspace_db(server.keyspace, id), slot).keys;
    return keys;
}

static bool slot_granted(void *context, unsigned slot, const struct cluster_node *node, uint64_t epoch) {
    return migration_granted(slot, node, epoch);
}

static bool slot_arrives(void *context, unsigned slot) {
    return migration_imports(slot);
}

static bool slot_leaves(void *context, unsigned slot) {
    return migration_leaves(slot);
}

static bool epoch_must_stay(void *context) {
    return migration_awaits_claim();
}

/* --- Data --- */

/* All replicas know CLUSTER FLUSHSLOT. */
static bool replicas_are_new(void) {
    list_each(&replicas, link) {
        if (container_of(link, struct replica, link)->version < 0x090000) return false;
    }
    return true;
}

struct deletion {
    int db, count;
    struct slice argv[1 + DELETED_AT_ONCE];
};
static void deletion_send(struct deletion *deletion) {
    if (deletion->count) propagate(deletion->db, 1 + deletion->count, deletion->argv, NULL);
    deletion->count = 0;
}
static void deletion_add(void *context, struct entry *entry) {
    struct deletion *deletion = context;
    deletion->argv[1 + deletion->count++] = entry_key(entry);
    if (deletion->count == DELETED_AT_ONCE) deletion_send(deletion);
}

static void propagate_deletion(unsigned slot) {
    char text[8];
    if (!propagate_wanted()) return;
    propagate_begin();
    if (replicas_are_new()) {
        snprintf(text, sizeof text, "%u", slot);
        propagate(0, 4, (struct slice[]){SLICE("CLUSTER"), SLICE("FLUSHSLOT"), slice_of(text), SLICE("ASYNC")}, NULL);
    } else {
        for (int id = 0; id < keyspace_databases(server.keyspace); id++) {
            struct deletion deletion = {.db = id, .argv = {SLICE("DEL")}};
            db_slot_keys(keyspace_db(server.keyspace, id), slot, SIZE_MAX, deletion_add, &deletion);
            deletion_send(&deletion);
        }
    }
    propagate_end();
}

static void delete_now(unsigned slot) {
    if (!keys_in_slot(NULL, slot)) return;
    if (!role_is_replica()) propagate_deletion(slot);
    server.dirty += keyspace_drop_slot(server.keyspace, slot, true);
}

void effects_drop_slot(unsigned slot) {
    delete_now(slot);
}

/* A server that does not lead its shard must not change data: the one that does may have other ones. */
static bool data_must_wait(void) {
    return must_wait() || sync_stands();
}

static void delete_keys(void *context, unsigned slot) {
    if (!data_must_wait()) {
        delete_now(slot);
        return;
    }
    slot_bitmap_set(&waiting.slots, slot);
    waiting.any = true;
}

/* This server leads now. The append-only file must not bring the keys back. */
static void drop_now(void) {
    if (!has_keys()) return;
    for (int id = 0; id < keyspace_databases(server.keyspace); id++)
        server.dirty += db_flush(keyspace_db(server.keyspace, id), true);
    server_flushed_all();
    propagate_begin();
    propagate(0, 1, (struct slice[]){SLICE("FLUSHALL")}, NULL);
    propagate_end();
}

static void drop_data(void *context) {
    if (data_must_wait())
        waiting.any = waiting.data = true;
    else
        drop_now();
}

/* --- The role --- */

/* Without an address or a port of the new primary the link stays down until a message brings them. The link to the old
 * primary ends at once: its data must not count as those of the new one in an election. */
static void follow_now(const struct cluster_node *primary, bool same_shard) {
    int port = tls_for_replication() ? primary->tls_port : primary->port;
    struct slice host = slice_of(primary->address);
    bool stood = sync_stands() || sync_leads();
    if (role->is_replica && !stood && slice_is(host, role->host) && role->port == port) return;
    if (host.len && !port && !(primary->rdma_port && link_rdma_transport()))
        log_warning("Primary %.*s has told no %s port, and tls-replication is %s: it cannot be followed", NODE_ID_LEN,
                    primary->id.text, tls_for_replication() ? "TLS" : "TCP", tls_for_replication() ? "on" : "off");
    if (starting) {
        role_follow(host, port);
        return;
    }
    if (same_shard)
        sync_follow();
    else
        sync_leave();
    repl_follow(host, port, same_shard ? REPL_FOLLOW : REPL_FOLLOW_UNRELATED);
}

/* tls-replication may have changed, and with it the port of the primary. A link that is up stays. */
void effects_tick(void) {
    const struct cluster_node *primary = this_cluster->myself->primary;
    if (!primary || !role->is_replica || role->link != ROLE_LINK_CONNECT || must_wait()) return;
    int port = tls_for_replication() ? primary->tls_port : primary->port;
    if (!port || role->port == port || !slice_is(slice_of(primary->address), role->host)) return;
    if (!sync_stands() && !sync_leads()) role_set_port(port);
}

static void lead_now(bool same_shard) {
    if (!sync_on)
        repl_lead();
    else if (same_shard)
        sync_take_over();
    else
        sync_leave_and_found();
    if (!same_shard) migration_left_shard();
}

static void role_now(void) {
    const struct cluster_node *myself = this_cluster->myself;
    if (node_is_primary(myself))
        lead_now(!waiting.other_shard);
    else if (myself->primary)
        follow_now(myself->primary, !waiting.other_shard);
    cluster_role_changed();
}

static void follow(void *context, const struct cluster_node *primary, bool same_shard) {
    if (!this_cluster) return; /* nodes.conf is being read: effects_start() */
    if (must_wait()) {
        waiting.any = waiting.role = true;
        waiting.other_shard |= !same_shard;
        return;
    }
    follow_now(primary, same_shard);
    cluster_role_changed();
}

static void lead(void *context, bool same_shard) {
    if (must_wait()) {
        waiting.any = waiting.role = true;
        waiting.other_shard |= !same_shard;
        return;
    }
    lead_now(same_shard);
    cluster_role_changed();
}

void effects_leave_shard(void) {
    lead(NULL, false);
}

/* --- The election of a shard --- */

static enum cluster_mandate mandate(void *context) {
    if (!sync_on) return MANDATE_NOT_NEEDED;
    return sync_is_elected() ? MANDATE_HELD : sync_stands() ? MANDATE_ASKED : MANDATE_NONE;
}
static void stand(void *context, bool forced) {
    if (!must_wait()) sync_stand_for(!forced);
}
static void stand_back(void *context) {
    if (!must_wait()) follow_now(this_cluster->myself->primary, true);
}
static bool owns(void) {
    return node_is_primary(this_cluster->myself);
}
static bool has_slots(void) {
    return this_cluster->myself->slot_count > 0;
}
static void elected(void) {
    cluster_mandated(this_cluster, cluster_now());
}
static const char *address(const char *node_id, int *port) {
    struct node_id id;
    memcpy(id.text, node_id, NODE_ID_LEN);
    const struct cluster_node *node = nodes_find(&this_cluster->nodes, &id);
    if (!node) return "";
    *port = tls_for_replication() ? node->tls_port : node->port;
    return node->address;
}
static const struct sync_host shard_host = {
    .owns = owns, .has_slots = has_slots, .elected = elected, .leads = migration_leads, .address = address};

void effects_start(void) {
    starting = true;
    sync_host = &shard_host;
    if (node_is_replica(this_cluster->myself)) role_now();
    starting = false;
}

/* A slot that was lost may have come back since. The keys of a replica are those of its primary, which deletes them if
 * it finds that the slot is elsewhere. The shard may get back a slot that it has granted; else granted.c deletes the
 * keys. */
static bool keeps_keys(unsigned slot) {
    const struct cluster_node *owner = this_cluster->slots.owner[slot];
    return role_is_replica() || (owner && nodes_share_shard(owner, this_cluster->myself)) || migration_imports(slot) ||
           migration_leaves(slot);
}

void effects_settle(void) {
    if (__builtin_expect(!waiting.any, 1) || must_wait()) return;
    if (waiting.role) role_now();
    waiting.role = waiting.other_shard = false;
    if (data_must_wait()) return;
    waiting.any = false;
    if (waiting.data) drop_now();
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++)
        if (slot_bitmap_has(&waiting.slots, slot) && !keeps_keys(slot)) delete_now(slot);
    memset(&waiting, 0, sizeof waiting);
}

static int64_t wall_ahead_ms(void *context) {
    return clock_wall_ahead_ms();
}
static void pause_writes(void *context, int64_t until_ms) {
    clients_pause(PAUSE_FAILOVER, PAUSE_WRITE, until_ms);
}
static void resume_writes(void *context) {
    clients_unpause(PAUSE_FAILOVER);
}

/* --- The rest --- */

static void publish(void *context, struct slice channel, struct slice message, bool shard) {
    pubsub_publish(channel, message, shard);
}
/* There are no modules: nobody receives it. */
static void module_message(void *context, const struct cluster_node *sender, const struct bus_message *message) {}

static void save(void *context, bool durable) {
    if (this_cluster) nodes_conf_save(this_cluster, durable);
}
static void write_log(void *context, enum log_level level, const char *text) {
    LOG(level, "%s", text);
}
static void slot_moved(void *context, unsigned slot, const struct cluster_node *from, const struct cluster_node *to) {
    cluster_slot_moved(slot, from, to);
}
static void state_changed(void *context, bool ok) {
    cluster_state_changed(ok);
}

const struct cluster_effects node_effects = {.facts = facts,
                                             .random = random_number,
                                             .keys_in_slot = keys_in_slot,
                                             .slot_granted = slot_granted,
                                             .slot_arrives = slot_arrives,
                                             .slot_leaves = slot_leaves,
                                             .epoch_stays = epoch_must_stay,
                                             .dial = links_dial,
                                             .close = links_close,
                                             .send = links_send,
                                             .publish = publish,
                                             .module_message = module_message,
                                             .save = save,
                                             .log = write_log,
                                             .follow = follow,
                                             .lead = lead,
                                             .mandate = mandate,
                                             .stand = stand,
                                             .stand_back = stand_back,
                                             .drop_data = drop_data,
                                             .slot_moved = slot_moved,
                                             .delete_keys = delete_keys,
                                             .state_changed = state_changed,
                                             .pause_writes = pause_writes,
                                             .wall_ahead_ms = wall_ahead_ms,
                                             .resume_writes = resume_writes};
