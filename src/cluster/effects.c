/* effects.c: see effects.h.
 *
 * The loop also turns within a script and while a data set is loaded. The machine answers messages of other nodes at
 * once, so that they do not mark this node as failed. But the keys and the role must not change in the middle of a
 * script or a load: these effects are noted and carried out afterwards (effects_settle()). Of several changes of the
 * role only the last one is carried out. */
#include "cluster/effects.h"
#include "cluster/links.h"
#include "cluster/migration/migration.h"
#include "cluster/node_private.h"
#include "cluster/nodes_conf.h"
#include "cluster/slot_keys.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/random.h"
#include "pubsub/pubsub.h"
#include "repl/link_transport.h"
#include "repl/roles.h"
#include "repl/quorum/quorum.h"
#include "server/clients/client.h"
#include "server/cluster_hooks.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/config/tls_options.h"
#include "server/role.h"
#include "server/server.h"
#include <stdio.h>
#include <string.h>

static struct {
    bool any, role, data, other_shard;
    struct slot_bitmap slots; /* their keys will be deleted */
} waiting;
static bool starting;

static bool must_wait(void) {
    return server_is_loading() || dispatch_is_nested() || (cluster_in_event() && dispatch_running());
}

/* --- Questions --- */

static void facts(void *context, struct cluster_facts *facts) {
    /* The data of a replica count in an election only if they are a prefix of its primary's stream. */
    bool counts = !role->is_replica || role->position.known;
    *facts = (struct cluster_facts){.offset = counts ? (uint64_t)role->position.offset : 0,
                                    .primary_link_up = role->is_replica && role->link == ROLE_LINK_CONNECTED,
                                    .loading = server_is_loading(),
                                    .has_keys = keyspace_size(server.keyspace) > 0,
                                    .bound = !quorum_may_leave()};
    facts->primary_ms = facts->primary_link_up ? role->heard_ms : role->link_since_ms;
}

/* From the kernel, because node ids consist of these numbers; read in blocks, because a message needs dozens. */
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
    return slot_keys_count(slot);
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

/* A server that does not lead its shard must not change data: the leader may have other data. */
static bool data_must_wait(void) {
    return must_wait() || quorum_campaigns();
}

static void delete_keys(void *context, unsigned slot) {
    if (!data_must_wait()) {
        slot_keys_delete(slot);
        return;
    }
    slot_bitmap_set(&waiting.slots, slot);
    waiting.any = true;
}

/* This server leads now. The append-only file must not bring the keys back. */
static void drop_now(void) {
    if (!keyspace_size(server.keyspace)) return;
    server.dirty += server_flush_all(true);
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

/* Without the address and port of the new primary the link stays down until a message brings them. The link to the old
 * primary ends at once: in an election its data must not count as the new primary's. */
static void follow_now(const struct cluster_node *primary, bool same_shard) {
    int port = tls_for_replication() ? primary->tls_port : primary->port;
    struct slice host = slice_of(primary->address);
    bool stood = quorum_campaigns() || quorum_leads();
    if (role->is_replica && !stood && slice_is(host, role->host) && role->port == port) return;
    if (host.len && !port && !(primary->rdma_port && link_rdma_transport()))
        log_warning("Primary %.*s has told no %s port, and tls-replication is %s: it cannot be followed", NODE_ID_LEN,
                    primary->id.text, tls_for_replication() ? "TLS" : "TCP", tls_for_replication() ? "on" : "off");
    if (starting) {
        role_follow(host, port);
        return;
    }
    if (same_shard)
        quorum_follow();
    else
        quorum_leave();
    repl_follow(host, port, same_shard ? REPL_FOLLOW : REPL_FOLLOW_UNRELATED);
}

/* tls-replication may have changed, and with it the port of the primary. A link that is up stays. */
void effects_tick(void) {
    const struct cluster_node *primary = this_cluster->myself->primary;
    if (!primary || !role->is_replica || role->link != ROLE_LINK_CONNECT || must_wait()) return;
    int port = tls_for_replication() ? primary->tls_port : primary->port;
    if (!port || role->port == port || !slice_is(slice_of(primary->address), role->host)) return;
    if (!quorum_campaigns() && !quorum_leads()) role_set_port(port);
}

static void lead_now(bool same_shard) {
    if (!quorum_on)
        repl_lead();
    else if (same_shard)
        quorum_take_over();
    else
        quorum_leave_and_establish();
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
    if (!quorum_on) return MANDATE_NOT_NEEDED;
    return quorum_is_elected() ? MANDATE_HELD : quorum_campaigns() ? MANDATE_ASKED : MANDATE_NONE;
}
static void stand(void *context, bool forced) {
    if (!must_wait()) quorum_start_shard_election(!forced);
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
static const struct quorum_host shard_host = {
    .owns = owns, .has_slots = has_slots, .elected = elected, .leads = migration_leads, .address = address};

void effects_start(void) {
    starting = true;
    quorum_host = &shard_host;
    if (node_is_replica(this_cluster->myself)) role_now();
    starting = false;
}

/* Keys stay if the slot has come back in the meantime. A replica deletes no keys: its primary does, when another shard
 * owns the slot. The shard may get back a slot that it has granted; otherwise its machine deletes the keys. */
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
        if (slot_bitmap_has(&waiting.slots, slot) && !keeps_keys(slot)) slot_keys_delete(slot);
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

static void effects_publish(void *context, struct slice channel, struct slice message, bool shard) {
    pubsub_publish(channel, message, shard);
}
static void module_message(void *context, const struct cluster_node *sender, const struct bus_message *message) {
    if (!cluster_module_received) return;
    struct cluster_module_message heard = {
        .module = message->module, .type = message->module_type, .payload = message->payload};
    cluster_module_received(slice_make(sender->id.text, NODE_ID_LEN), &heard);
}

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
                                             .publish = effects_publish,
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
