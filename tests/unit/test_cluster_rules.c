/* Single rules of the cluster's state machine: commands, manual failover, replica migration, votes, hostile peers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>
#include "cluster/protocol/machine.h"
#include "../simulation/cluster_simulator.h"

static struct sim sim;
static struct cluster *cluster_at(unsigned index) {
    return sim.machines[index].cluster;
}
static const struct node_id *id_at(unsigned index) {
    return &sim.machines[index].cluster->myself->id;
}
static int64_t time_at(unsigned index) {
    return sim_time(&sim.machines[index]);
}
static struct cluster_node *node_of(unsigned observer, unsigned index) {
    return nodes_find(&cluster_at(observer)->nodes, id_at(index));
}
static struct slot_bitmap one_slot(unsigned slot) {
    struct slot_bitmap slots = {0};
    slot_bitmap_set(&slots, slot);
    return slots;
}
static void build(unsigned machines, unsigned primaries) {
    sim_init(&sim, machines * 10 + primaries, machines, 2000);
    sim_build(&sim, primaries, 60000);
    sim_run(&sim, 3000);
}
static void wait_role(unsigned index, bool primary, int64_t limit_ms) {
    for (int64_t start_ms = sim.now_ms; node_is_primary(cluster_at(index)->myself) != primary; sim_run(&sim, 10))
        if (sim.now_ms - start_ms > limit_ms) sim_fail(&sim, "machine %u does not change its role", index);
}

static void manual_failover_loses_no_write(void **state) {
    build(6, 3);
    assert_string_equal(cluster_failover(cluster_at(0), FAILOVER_NORMAL, "test", time_at(0)),
                        "You should send CLUSTER FAILOVER to a replica");
    assert_null(cluster_failover(cluster_at(3), FAILOVER_NORMAL, "test", time_at(3)));
    cluster_flush(cluster_at(3), time_at(3));
    wait_role(3, true, 2000);
    assert_true(sim_said(&sim, 0, "Manual failover requested by replica"));
    assert_true(sim_said(&sim, 3, "All primary replication stream processed, manual failover can start."));
    assert_true(sim.machines[3].offset >= sim.machines[0].offset);
    sim_agree(&sim, 5000);
    assert_ptr_equal(cluster_at(0)->myself->primary, node_of(0, 3));
    assert_int_equal(sim.machines[0].paused_until_ms, 0); /* writes are resumed */
    sim_free(&sim);
}

/* A primary that has written nothing to its stream yet has the offset 0 of a replica without data, but may have keys.
 */
static void manual_failover_waits_for_the_first_copy(void **state) {
    build(6, 3);
    sim.no_copies = true;
    sim.writes = false;
    sim_run(&sim, 100);
    sim.machines[3].offset = sim.machines[0].offset;
    assert_null(cluster_failover(cluster_at(3), FAILOVER_NORMAL, "test", time_at(3)));
    sim_run(&sim, 6000);
    assert_true(node_is_replica(cluster_at(3)->myself));
    assert_true(sim_said(&sim, 3, "Manual failover timed out."));
    sim.no_copies = false;
    assert_null(cluster_failover(cluster_at(3), FAILOVER_NORMAL, "test", time_at(3)));
    cluster_flush(cluster_at(3), time_at(3));
    wait_role(3, true, 2000);
    sim_free(&sim);
}

/* The primary has paused for an earlier request, too. Its two links do not keep the order. */
static void manual_failover_waits_for_the_last_pause(void **state) {
    build(6, 3);
    struct cluster *cluster = cluster_at(3);
    const struct cluster_node *primary = cluster_at(0)->myself;
    struct slot_bitmap slots = *node_slots(primary);
    struct bus_message pause = {.header = {.type = BUS_PING,
                                           .sender = *id_at(0),
                                           .current_epoch = cluster->current_epoch,
                                           .config_epoch = primary->config_epoch,
                                           .slots = &slots,
                                           .offset = sim.machines[3].offset - 1,
                                           .message_flags = BUS_PAUSED,
                                           .port = 6379,
                                           .bus_port = 16379}};
    assert_null(cluster_failover(cluster, FAILOVER_NORMAL, "test", time_at(3)));
    cluster_receive(cluster, node_of(3, 0)->inbound, &pause, time_at(3));
    cluster_flush(cluster, time_at(3));
    wait_role(3, true, 2000);
    assert_true(sim.machines[3].offset >= sim.machines[0].offset);
    sim_free(&sim);
}

static void manual_failover_gives_up(void **state) {
    build(6, 3);
    sim.machines[0].settings.manual_failover_timeout_ms = 1000;
    cluster_configure(cluster_at(0), &sim.machines[0].settings, time_at(0));
    assert_null(cluster_failover(cluster_at(3), FAILOVER_NORMAL, "test", time_at(3)));
    sim_run(&sim, 20);
    sim_freeze(&sim.machines[3], 1500); /* the replica does not go on */
    sim_run(&sim, 200);
    assert_true(sim.machines[0].paused_until_ms > sim.now_ms);
    sim_run(&sim, 1200);
    assert_true(sim_said(&sim, 0, "Manual failover timed out."));
    assert_int_equal(sim.machines[0].paused_until_ms, 0);
    sim_free(&sim);
}

static void forced_failover_and_takeover_need_no_primary(void **state) {
    build(6, 3);
    sim_crash(&sim.machines[0]);
    sim_run(&sim, 200);
    assert_string_equal(cluster_failover(cluster_at(3), FAILOVER_NORMAL, "test", time_at(3)),
                        "Master is down or failed, please use CLUSTER FAILOVER FORCE");
    assert_null(cluster_failover(cluster_at(3), FAILOVER_FORCE, "test", time_at(3)));
    wait_role(3, true, 500);
    assert_true(sim_said(&sim, 3, "Forced failover user request accepted (test)."));
    /* A takeover needs no majority either. */
    sim_crash(&sim.machines[1]);
    sim_crash(&sim.machines[2]);
    assert_null(cluster_failover(cluster_at(4), FAILOVER_TAKEOVER, "test", time_at(4)));
    assert_true(node_is_primary(cluster_at(4)->myself));
    assert_int_equal(cluster_at(4)->myself->slot_count, HASH_SLOTS * 2 / 3 - HASH_SLOTS / 3);
    for (unsigned i = 0; i < 3; i++) sim_start(&sim.machines[i]);
    sim_agree(&sim, 20000);
    assert_true(node_is_replica(cluster_at(1)->myself));
    sim_free(&sim);
}

static void each_second_of_an_election_tells_the_votes(void **state) {
    static const char reset[] = "received a new manual failover. Resetting the election.";
    build(6, 3);
    for (unsigned i = 0; i < 3; i++) sim_crash(&sim.machines[i]);
    sim_run(&sim, 200);
    assert_null(cluster_failover(cluster_at(3), FAILOVER_FORCE, "test", time_at(3)));
    sim_run(&sim, 3500);
    assert_false(sim_said(&sim, 3, reset));
    assert_int_equal(sim_said_times(&sim, 3, "Needed quorum: 2. Number of votes received so far: 0"), 4);
    assert_null(cluster_failover(cluster_at(3), FAILOVER_FORCE, "test", time_at(3)));
    assert_int_equal(sim_said_times(&sim, 3, reset), 1);
    sim_run(&sim, 500);
    assert_null(cluster_failover(cluster_at(3), FAILOVER_TAKEOVER, "test", time_at(3)));
    assert_int_equal(sim_said_times(&sim, 3, reset), 1);
    sim_free(&sim);
}

static void each_failure_of_the_cluster_is_logged_once(void **state) {
    static const char down[] = "Cluster is currently down: At least one hash slot";
    struct slot_bitmap slot = {{0}};
    build(3, 3);
    unsigned owned = 0;
    while (cluster_at(0)->slots.owner[owned] != cluster_at(0)->myself) owned++;
    slot_bitmap_set(&slot, owned);
    for (unsigned times = 1; times <= 2; times++) {
        assert_null(cluster_delete_slots(cluster_at(0), &slot, time_at(0)));
        sim_run(&sim, times == 1 ? 500 : 15000);
        assert_int_equal(sim_said_times(&sim, 0, down), times);
        assert_null(cluster_add_slots(cluster_at(0), &slot, time_at(0)));
        sim_run(&sim, 500);
    }
    sim_free(&sim);
}

/* A replica names the slots of its primary as it last heard of them. */
static void old_slots_of_a_replica_are_logged_but_by_its_primary(void **state) {
    char text[128];
    unsigned slot = 0, others = 0;
    build(6, 3);
    while (cluster_at(0)->slots.owner[slot] != cluster_at(0)->myself) slot++;
    snprintf(text, sizeof text, "Mismatch in topology information for sender node %.40s", id_at(3)->text);
    unsigned before = sim_said_times(&sim, 0, text);
    for (unsigned times = 0; times < 20; times++, slot++) {
        assert_ptr_equal(cluster_at(0)->slots.owner[slot], cluster_at(0)->myself);
        sim.group[3] = 1; /* does not hear that the slot goes to another shard */
        assert_null(cluster_set_slot_importing(cluster_at(1), slot, id_at(0), time_at(1)));
        assert_null(cluster_set_slot_node(cluster_at(1), slot, id_at(1), time_at(1)));
        sim_run(&sim, 1000);
        assert_ptr_equal(cluster_at(0)->slots.owner[slot], node_of(0, 1));
        sim.group[3] = 0;
        sim_agree(&sim, 10000);
    }
    for (int i = 1; i < 6; i++) others += sim_said_times(&sim, i, text);
    assert_true(others > 0);
    assert_int_equal(sim_said_times(&sim, 0, text), before);
    sim_free(&sim);
}

/* A replica that did not hear that its primary has lost a slot keeps the keys until it leads. */
static void a_new_primary_deletes_keys_of_slots_that_others_serve(void **state) {
    build(6, 3);
    unsigned foreign = HASH_SLOTS - cluster_at(3)->myself->primary->slot_count;
    sim_crash(&sim.machines[0]);
    wait_role(3, true, 20000);
    sim.machines[3].data = true;
    assert_int_equal(sim.machines[3].deleted_slots, 0); /* until the owners are heard of */
    sim_run(&sim, 5000);
    assert_int_equal(sim.machines[3].deleted_slots, foreign);
    sim_run(&sim, 5000);
    assert_int_equal(sim.machines[3].deleted_slots, foreign);
    sim_free(&sim);
}

static bool last_slot_leaves(void *context, unsigned slot) {
    return slot == HASH_SLOTS - 1;
}

/* The target may yet refuse a slot that was granted. Meanwhile a claim from before may be believed. */
static void a_new_primary_keeps_keys_of_slots_that_are_granted(void **state) {
    static struct cluster_effects effects;
    effects = sim_effects;
    effects.slot_leaves = last_slot_leaves;
    sim_uses = &effects;
    build(6, 3);
    unsigned foreign = HASH_SLOTS - cluster_at(3)->myself->primary->slot_count;
    assert_ptr_equal(sim_owner(&sim, 3, HASH_SLOTS - 1), &sim.machines[2]);
    sim_crash(&sim.machines[0]);
    wait_role(3, true, 20000);
    sim.machines[3].data = true;
    sim_run(&sim, 5000);
    assert_int_equal(sim.machines[3].deleted_slots, foreign - 1);
    cluster_check_data(cluster_at(3), time_at(3));
    assert_int_equal(sim.machines[3].deleted_slots, 2 * (foreign - 1));
    sim_free(&sim);
    sim_uses = &sim_effects;
}

/* Keys of a slot whose owner is down, or unknown, may be the only ones. */
static void a_new_primary_keeps_keys_that_nobody_else_may_have(void **state) {
    build(6, 3);
    unsigned known = cluster_at(2)->myself->slot_count;
    sim_crash(&sim.machines[0]);
    sim_crash(&sim.machines[1]);
    sim_crash(&sim.machines[4]);
    assert_null(cluster_failover(cluster_at(3), FAILOVER_TAKEOVER, "test", time_at(3)));
    sim.machines[3].data = true;
    sim_run(&sim, 10000);
    assert_true(sim.machines[3].deleted_slots > 0); /* again and again: the simulated keys stay */
    assert_int_equal(sim.machines[3].deleted_slots % known, 0);
    sim_free(&sim);
}

static void a_replica_moves_to_an_orphaned_primary(void **state) {
    sim_init(&sim, 1, 8, 2000); /* shards of 3, 3 and 2 */
    sim_build(&sim, 3, 60000);
    unsigned said = sim_said_times(&sim, -1, "is now part of shard");
    sim_crash(&sim.machines[5]);
    sim_run(&sim, 12000);
    assert_int_equal(sim_said_times(&sim, -1, "is now part of shard"), said); /* of primaries only */
    assert_int_equal(node_of(0, 2)->replica_count, 2);                        /* the dead one and the new one */
    assert_int_equal(node_working_replicas(node_of(0, 2)), 1);
    assert_true(sim_said(&sim, -1, "Migrating to orphaned primary"));
    sim_start(&sim.machines[5]);
    sim_agree(&sim, 20000);
    sim_free(&sim);
    sim_init(&sim, 2, 8, 2000);
    for (unsigned i = 0; i < 8; i++) {
        sim.machines[i].settings.migration_barrier = 2; /* keep two */
        cluster_configure(cluster_at(i), &sim.machines[i].settings, time_at(i));
    }
    sim_build(&sim, 3, 60000);
    sim_crash(&sim.machines[5]);
    sim_run(&sim, 12000);
    assert_int_equal(node_working_replicas(node_of(0, 2)), 0);
    sim_free(&sim);
}

static void a_forgotten_node_stays_forgotten(void **state) {
    build(6, 3);
    struct node_id id = *id_at(5);
    assert_string_equal(cluster_forget(cluster_at(0), id_at(0), "test", time_at(0)),
                        "I tried hard but I can't forget myself...");
    assert_string_equal(cluster_forget(cluster_at(3), id_at(0), "test", time_at(3)), "Can't forget my master!");
    struct node_id unknown = id;
    unknown.text[0] = 'z';
    assert_non_null(strstr(cluster_forget(cluster_at(0), &unknown, "test", time_at(0)), "Unknown node z"));
    assert_null(cluster_forget(cluster_at(0), &id, "test", time_at(0)));
    assert_null(cluster_forget(cluster_at(0), &id, "test", time_at(0))); /* once more */
    sim_run(&sim, 5000);
    for (unsigned i = 0; i < 5; i++) assert_null(nodes_find(&cluster_at(i)->nodes, &id)); /* gossip told them */
    sim_run(&sim, 30000);
    for (unsigned i = 0; i < 5; i++) assert_null(nodes_find(&cluster_at(i)->nodes, &id));
    /* Its own messages do not bring it back, though it still knows the others. */
    assert_int_equal(cluster_at(5)->nodes.count, 6);
    sim_free(&sim);
}

static void a_reset_node_starts_anew(void **state) {
    build(6, 3);
    struct node_id id = *id_at(5), shard = cluster_at(5)->myself->shard;
    sim.machines[0].data = true;
    assert_string_equal(cluster_reset(cluster_at(0), false, "test", time_at(0)),
                        "CLUSTER RESET can't be called with master nodes containing keys");
    assert_null(cluster_reset(cluster_at(5), true, "test", time_at(5)));
    assert_false(node_id_equal(id_at(5), &id));
    assert_false(node_id_equal(&cluster_at(5)->myself->shard, &shard));
    assert_int_equal(cluster_at(5)->nodes.count, 1);
    assert_int_equal(cluster_at(5)->slots.assigned, 0);
    assert_int_equal(cluster_at(5)->current_epoch, 0);
    assert_true(node_is_primary(cluster_at(5)->myself));
    sim_run(&sim, 100); /* the reply to a ping has another id */
    sim_run(&sim, 5000);
    assert_true(nodes_find(&cluster_at(0)->nodes, &id)->flags & NODE_FAIL);
    cluster_forget(cluster_at(0), &id, "test", time_at(0));
    sim_run(&sim, 5000);
    cluster_meet(cluster_at(0), sim.machines[5].address, 6379, 16379, "test", time_at(0));
    sim_run(&sim, 3000);
    assert_non_null(node_of(0, 5));
    sim_free(&sim);
}

static void a_forgotten_node_is_not_met_before_the_blacklist_ends(void **state) {
    build(6, 3);
    struct node_id id = *id_at(5);
    for (unsigned i = 0; i < 5; i++) {
        cluster_at(i)->settings.blacklist_ttl_s = 20;
        assert_null(cluster_forget(cluster_at(i), &id, "test", time_at(i)));
    }
    for (unsigned attempt = 0; attempt < 3; attempt++) {
        assert_null(cluster_meet(cluster_at(0), sim.machines[5].address, 6379, 16379, "test", time_at(0)));
        assert_null(cluster_meet(cluster_at(5), sim.machines[1].address, 6379, 16379, "test", time_at(5)));
        sim_run(&sim, 3000);
        assert_null(node_of(0, 5));
        assert_null(node_of(1, 5));
    }
    sim_run(&sim, 20000);
    assert_null(cluster_meet(cluster_at(0), sim.machines[5].address, 6379, 16379, "test", time_at(0)));
    sim_run(&sim, 3000);
    assert_non_null(node_of(0, 5));
    sim_free(&sim);
}

static void a_node_that_does_not_dial_is_met_again(void **state) {
    build(6, 3);
    unsigned handshakes = sim_said_times(&sim, 0, "Successfully completed handshake with");
    cluster_at(1)->settings.no_reconnection = true;
    link_close(cluster_at(0), node_of(0, 1)->inbound);
    sim_run(&sim, 5000);
    assert_true(sim_said(&sim, 0, "because there is no inbound link for it"));
    assert_true(sim_said_times(&sim, 0, "Successfully completed handshake with") > handshakes);
    sim_free(&sim);
}

static void replicate_checks_its_target(void **state) {
    build(6, 3);
    struct node_id unknown = *id_at(0);
    unknown.text[0] = 'z';
    assert_string_equal(cluster_replicate(cluster_at(3), id_at(3), time_at(3)), "Can't replicate myself");
    assert_string_equal(cluster_replicate(cluster_at(3), id_at(4), time_at(3)),
                        "I can only replicate a master, not a replica.");
    assert_string_equal(cluster_replicate(cluster_at(0), id_at(1), time_at(0)),
                        "To set a master the node must be empty and without assigned slots.");
    assert_non_null(strstr(cluster_replicate(cluster_at(3), &unknown, time_at(3)), "Unknown node"));
    assert_null(cluster_replicate(cluster_at(3), id_at(1), time_at(3)));
    sim_agree(&sim, 5000);
    assert_int_equal(sim.machines[3].following, 1);
    assert_null(cluster_replicate_no_one(cluster_at(3), "test", time_at(3)));
    assert_true(node_is_primary(cluster_at(3)->myself));
    sim_agree(&sim, 5000);
    assert_false(nodes_share_shard(node_of(0, 3), node_of(0, 1)));
    sim_free(&sim);
}

static void a_slot_moves_by_hand(void **state) {
    build(4, 3);
    unsigned slot = 7, first, last, at = 0;
    struct cluster *source = cluster_at(0), *target = cluster_at(1);
    int64_t now = time_at(0);
    assert_string_equal(cluster_set_slot_migrating(target, slot, id_at(0), now), "I'm not the owner of hash slot 7");
    assert_string_equal(cluster_set_slot_importing(source, slot, id_at(1), now),
                        "I'm already the owner of hash slot 7");
    assert_string_equal(cluster_set_slot_migrating(source, slot, id_at(0), now), "Target node is myself");
    assert_string_equal(cluster_set_slot_migrating(source, slot, id_at(3), now), "Target node is not a master");
    assert_null(cluster_set_slot_migrating(source, slot, id_at(1), now));
    assert_null(cluster_set_slot_importing(target, slot, id_at(0), now));
    sim.machines[0].data = true;
    assert_non_null(strstr(cluster_set_slot_node(source, slot, id_at(1), now), "while I still hold keys"));
    sim.machines[0].data = false;
    assert_null(cluster_set_slot_node(target, slot, id_at(1), now));
    assert_true(sim_said(&sim, 1, "ConfigEpoch updated after importing slot 7"));
    assert_null(slots_importing_from(&target->slots, slot));
    sim_agree(&sim, 5000);
    assert_ptr_equal(sim_owner(&sim, 2, slot), &sim.machines[1]);
    assert_null(slots_migrating_to(&source->slots, slot));
    assert_true(node_slot_range(source->myself, &at, &first, &last));
    assert_int_equal(last, slot - 1);
    assert_true(sim_said(&sim, 2, "Slot range [7, 7] is migrated from node"));
    /* The source gives a slot up first. */
    assert_null(cluster_set_slot_importing(target, 8, id_at(0), now));
    struct slot_bitmap eight = one_slot(8);
    assert_null(cluster_delete_slots(source, &eight, now));
    sim_agree(&sim, 5000);
    assert_ptr_equal(sim_owner(&sim, 2, 8), &sim.machines[1]);
    /* Several at once, as at the end of a migration. */
    cluster_set_slot_stable(source, 9, now);
    struct slot_bitmap nine = one_slot(9);
    cluster_take_slots(target, &nine, now);
    sim_agree(&sim, 5000);
    assert_ptr_equal(sim_owner(&sim, 2, 9), &sim.machines[1]);
    sim_free(&sim);
}

/* The stream says that a primary has claimed slots: a replica that has not heard it on the bus believes it. */
static void a_replica_hears_a_claim_in_the_stream(void **state) {
    build(4, 3); /* machine 3 follows 0 */
    struct slot_bitmap slots = *node_slots(cluster_at(1)->myself);
    unsigned slot = 0;
    while (!slot_bitmap_has(&slots, slot)) slot++;
    struct slot_bitmap moved = one_slot(slot);
    uint64_t known = node_of(3, 1)->config_epoch, epoch = cluster_at(3)->current_epoch + 1;
    cluster_hear_claim(cluster_at(3), node_of(3, 0), &moved, known, time_at(3)); /* not later than that of the owner */
    assert_ptr_equal(cluster_at(3)->slots.owner[slot], node_of(3, 1));
    cluster_hear_claim(cluster_at(3), node_of(3, 0), &moved, epoch, time_at(3));
    assert_ptr_equal(cluster_at(3)->slots.owner[slot], node_of(3, 0));
    assert_int_equal(node_of(3, 0)->config_epoch, epoch);
    assert_int_equal(cluster_at(3)->current_epoch, epoch);
    assert_null(cluster_failover(cluster_at(3), FAILOVER_TAKEOVER, "test", time_at(3)));
    sim_agree(&sim, 10000);
    assert_ptr_equal(sim_owner(&sim, 2, slot), &sim.machines[3]); /* its successor claims them */
    sim_free(&sim);
}

static bool staying;
static bool stays(void *context) {
    return staying;
}
/* A node that has let another one take its slots keeps its epoch until that has claimed them. */
static void an_epoch_stays_while_a_claim_is_awaited(void **state) {
    struct cluster_effects effects = sim_effects;
    effects.epoch_stays = stays;
    sim_uses = &effects;
    build(3, 3);
    struct cluster_node *first = cluster_at(0)->myself;
    if (memcmp(id_at(0)->text, id_at(1)->text, NODE_ID_LEN) > 0) first = cluster_at(1)->myself;
    uint64_t epoch = cluster_at(0)->current_epoch + 1;
    staying = true;
    for (unsigned i = 0; i < 2; i++) {
        cluster_at(i)->myself->config_epoch = cluster_at(i)->current_epoch = epoch;
        changed_self(cluster_at(i));
        cluster_flush(cluster_at(i), time_at(i));
    }
    assert_false(cluster_bump_epoch(cluster_at(2), time_at(2)));
    sim_run(&sim, 5000);
    for (unsigned i = 0; i < 2; i++) assert_int_equal(cluster_at(i)->myself->config_epoch, epoch);
    staying = false;
    sim_run(&sim, 5000);
    assert_int_equal(first->config_epoch, epoch + 1); /* a later message has shown the collision again */
    assert_true(cluster_bump_epoch(cluster_at(2), time_at(2)));
    sim_free(&sim);
    sim_uses = &sim_effects;
}

/* The stream tells of a claim that is older than what the bus has told of this primary: the slot may have gone on. */
static void an_older_claim_in_the_stream_is_not_spread(void **state) {
    build(6, 3);
    struct cluster *cluster = cluster_at(3);
    struct slot_bitmap moved = one_slot(0), slots = *node_slots(cluster_at(1)->myself);
    node_of(3, 2)->config_epoch = 10;
    cluster_hear_claim(cluster, node_of(3, 2), &moved, 8, time_at(3));
    assert_ptr_equal(sim_owner(&sim, 3, 0), &sim.machines[2]);
    slot_bitmap_set(&slots, 0);
    struct bus_message ping = {.header = {.type = BUS_PING,
                                          .sender = *id_at(1),
                                          .current_epoch = 10,
                                          .config_epoch = 9,
                                          .slots = &slots,
                                          .port = 6379,
                                          .bus_port = 16379}};
    uint64_t before = sim.machines[3].sent[BUS_UPDATE];
    cluster_receive(cluster, node_of(3, 1)->inbound, &ping, time_at(3));
    assert_int_equal(sim.machines[3].sent[BUS_UPDATE], before);
    assert_ptr_equal(sim_owner(&sim, 3, 0), &sim.machines[1]);
    sim_free(&sim);
}

static void bound_facts(void *context, struct cluster_facts *facts) {
    effect_facts(context, facts);
    facts->bound = true;
}

/* A takeover is not voted on. The new primary may lack a slot that the old one has got since. */
static void a_primary_of_a_bound_shard_keeps_keys_that_a_sibling_claims(void **state) {
    static struct cluster_effects effects;
    effects = sim_effects;
    effects.facts = bound_facts;
    for (int bound = 0; bound < 2; bound++) {
        sim_uses = bound ? &effects : &sim_effects;
        build(6, 3);
        struct slot_bitmap slots = *node_slots(cluster_at(0)->myself);
        unsigned count = cluster_at(0)->myself->slot_count;
        slot_bitmap_clear(&slots, 0);
        sim.machines[0].data = true;
        struct bus_message ping = {.header = {.type = BUS_PING,
                                              .sender = *id_at(3),
                                              .current_epoch = 10,
                                              .config_epoch = 10,
                                              .slots = &slots,
                                              .port = 6379,
                                              .bus_port = 16379}};
        cluster_receive(cluster_at(0), node_of(0, 3)->inbound, &ping, time_at(0));
        assert_ptr_equal(sim_owner(&sim, 0, 0), &sim.machines[0]);
        assert_ptr_equal(sim_owner(&sim, 0, 1), &sim.machines[3]);
        assert_int_equal(sim.machines[0].deleted_slots, bound ? 0 : count - 1);
        sim_free(&sim);
    }
    sim_uses = &sim_effects;
}

static void who_loses_its_last_slot_follows_the_new_owner(void **state) {
    build(4, 3); /* machine 3 follows 0 */
    struct slot_bitmap slots = *node_slots(cluster_at(0)->myself);
    cluster_take_slots(cluster_at(1), &slots, time_at(1));
    sim_agree(&sim, 5000);
    assert_ptr_equal(cluster_at(0)->myself->primary, node_of(0, 1));
    assert_ptr_equal(cluster_at(3)->myself->primary, node_of(3, 1));
    sim_free(&sim);
    build(4, 3);
    sim.machines[0].settings.allow_replica_migration = false;
    sim.machines[0].data = true;
    cluster_configure(cluster_at(0), &sim.machines[0].settings, time_at(0));
    slots = *node_slots(cluster_at(0)->myself);
    cluster_take_slots(cluster_at(1), &slots, time_at(1));
    sim_run(&sim, 1000);
    assert_true(node_is_primary(cluster_at(0)->myself));
    assert_true(sim_said(&sim, 0, "I am now an empty primary."));
    assert_int_equal(sim.machines[0].deleted_slots, HASH_SLOTS / 3);
    sim_free(&sim);
}

static void a_replica_takes_over_from_a_primary_without_slots(void **state) {
    build(5, 3);
    assert_null(cluster_replicate_no_one(cluster_at(3), "test", time_at(3)));
    sim_agree(&sim, 5000);
    struct node_id primary = cluster_at(3)->myself->id;
    assert_null(cluster_replicate(cluster_at(4), &primary, time_at(4)));
    sim_agree(&sim, 5000);
    assert_int_equal(cluster_at(3)->myself->slot_count, 0);
    sim_freeze(&sim.machines[3], 10000);
    wait_role(4, true, 10000);
    assert_false(node_is_primary(node_of(0, 4)) && node_votes(node_of(0, 4)));
    sim_free(&sim);
}

static void slots_are_added_and_deleted_all_or_none(void **state) {
    sim_init(&sim, 3, 1, 2000);
    struct slot_bitmap slots = one_slot(5);
    assert_null(cluster_add_slots(cluster_at(0), &slots, time_at(0)));
    slot_bitmap_set(&slots, 4);
    assert_string_equal(cluster_add_slots(cluster_at(0), &slots, time_at(0)), "Slot 5 is already busy");
    assert_string_equal(cluster_delete_slots(cluster_at(0), &slots, time_at(0)), "Slot 4 is already unassigned");
    assert_int_equal(cluster_at(0)->slots.assigned, 1);
    assert_string_equal(cluster_set_config_epoch(cluster_at(0), -1, time_at(0)), "Invalid config epoch specified: -1");
    assert_true(cluster_bump_epoch(cluster_at(0), time_at(0)));
    assert_false(cluster_bump_epoch(cluster_at(0), time_at(0)));
    assert_string_equal(cluster_set_config_epoch(cluster_at(0), 5, time_at(0)),
                        "Node config epoch is already non-zero");
    /* Keys of slots that nobody serves are ours. */
    sim.machines[0].data = true;
    cluster_check_data(cluster_at(0), time_at(0));
    assert_int_equal(cluster_at(0)->slots.assigned, HASH_SLOTS);
    sim_run(&sim, 3000);
    assert_true(cluster_at(0)->ok);
    sim_free(&sim);
}

static void a_primary_in_the_minority_stops_serving(void **state) {
    build(6, 3);
    sim.group[0] = 1;
    sim_run(&sim, 6000);
    assert_false(cluster_at(0)->ok);
    assert_true(cluster_at(1)->ok); /* 3 has taken over */
    assert_true(sim_said(&sim, 0, "Cluster is currently down: I am part of a minority partition."));
    sim.group[0] = 0;
    sim_agree(&sim, 20000);
    assert_true(node_is_replica(cluster_at(0)->myself));
    sim_free(&sim);
}

static void messages_reach_subscribers_of_the_shard_or_all(void **state) {
    build(6, 3);
    cluster_publish(cluster_at(0), SLICE("news"), SLICE("hello"), false);
    sim_run(&sim, 100);
    for (unsigned i = 1; i < 6; i++) assert_int_equal(sim.machines[i].published, 1);
    cluster_publish(cluster_at(0), SLICE("news"), SLICE("hello"), true);
    sim_run(&sim, 100);
    for (unsigned i = 1; i < 6; i++) assert_int_equal(sim.machines[i].published, i == 3 ? 2 : 1);
    sim_free(&sim);
}

static void a_node_that_moves_is_found(void **state) {
    build(6, 3);
    struct sim_machine *moved = &sim.machines[0];
    sim_crash(moved);
    snprintf(moved->address, sizeof moved->address, "10.1.0.0"); /* the simulator ignores the second number */
    sim_start(moved);
    sim_agree(&sim, 20000);
    for (unsigned i = 1; i < 6; i++) assert_string_equal(node_of(i, 0)->address, "10.1.0.0");
    sim_free(&sim);
}

/* Bytes that machine 0 sends to all others in a while. */
static uint64_t bytes_sent(int64_t ms) {
    uint64_t before = sim.machines[0].bytes_sent;
    sim_run(&sim, ms);
    return sim.machines[0].bytes_sent - before;
}

/* A header with slots has 2256 bytes; idle nodes of ours repeat theirs in less than 300 with gossip. A node that does
 * not say that it understands this gets whole headers, as any node of Valkey. */
static void idle_nodes_repeat_their_headers(void **state) {
    build(6, 3);
    sim_run(&sim, 20000); /* nobody is new any more */
    uint64_t pings = sim.machines[0].sent[BUS_PING] + sim.machines[0].sent[BUS_PONG], bytes = bytes_sent(20000);
    pings = sim.machines[0].sent[BUS_PING] + sim.machines[0].sent[BUS_PONG] - pings;
    assert_true(pings > 20 && bytes / pings < 300);
    /* What changes is told by whole headers, once on each link. */
    uint64_t version = cluster_at(1)->view_version;
    struct slot_bitmap slot = one_slot(0);
    assert_null(cluster_delete_slots(cluster_at(0), &slot, time_at(0)));
    assert_null(cluster_add_slots(cluster_at(0), &slot, time_at(0)));
    assert_true(cluster_bump_epoch(cluster_at(0), time_at(0)) || cluster_at(0)->myself->config_epoch > 0);
    sim_run(&sim, 3000);
    assert_true(cluster_at(1)->view_version != version);
    sim_agree(&sim, 5000);
    for (unsigned i = 0; i < 6; i++) {
        cluster_at(i)->myself->features = 0;
        sim_crash(&sim.machines[i]);
        sim_start(&sim.machines[i]);
        cluster_at(i)->myself->features = 0;
    }
    sim_agree(&sim, 20000);
    pings = sim.machines[0].sent[BUS_PING] + sim.machines[0].sent[BUS_PONG];
    bytes = bytes_sent(20000);
    pings = sim.machines[0].sent[BUS_PING] + sim.machines[0].sent[BUS_PONG] - pings;
    assert_true(bytes / pings > BUS_HEADER_SIZE);
    sim_free(&sim);
}

static void a_header_that_was_lost_is_not_repeated(void **state) {
    build(6, 3);
    sim_run(&sim, 10000);
    struct cluster *cluster = cluster_at(1);
    struct cluster_link *link = node_of(1, 0)->link;
    assert_non_null(link->received);
    struct bus_message message = {.header = {.type = BUS_PONG, .brief = true, .digest = 1}};
    cluster_receive(cluster, link, &message, time_at(1));
    assert_true(sim_said(&sim, 1, "repeats a header which has not arrived"));
    assert_null(node_of(1, 0)->link);
    sim_run(&sim, 1000);
    assert_true(node_of(1, 0)->link && node_of(1, 0)->link->connected);
    sim_agree(&sim, 1000);
    assert_int_equal(sim.elections, 0);
    sim_free(&sim);
}

/* No message is lost in a connection, but a host may drop one. The peer's own link works: nobody notices a silence. */
static void a_ping_that_was_lost_is_repeated(void **state) {
    build(6, 3);
    struct cluster_node *node = node_of(1, 0);
    int64_t lost_ms = node->ping_sent_ms = time_at(1);
    sim_run(&sim, 5000); /* the node timeout is 2000 */
    assert_true(node->ping_sent_ms != lost_ms && node->pong_received_ms > lost_ms);
    assert_int_equal(sim.elections, 0);
    sim_agree(&sim, 1000);
    sim_free(&sim);
}

/* All nodes meet one of them; whoever hears of new nodes tells others at once. */
static void sixty_nodes_know_each_other_in_seconds(void **state) {
    sim_init(&sim, 1, 60, 15000);
    for (unsigned i = 1; i < sim.count; i++)
        cluster_meet(cluster_at(0), sim.machines[i].address, 6379, 16379, "test", time_at(0));
    sim_run(&sim, 4000);
    for (unsigned i = 0; i < sim.count; i++) {
        assert_int_equal(cluster_at(i)->nodes.count, sim.count);
        for (unsigned n = 0; n < sim.count; n++)
            assert_true(n == i || (node_of(i, n)->link && node_of(i, n)->link->connected));
    }
    sim_free(&sim);
}

static void votes_need_a_failed_primary_and_a_new_epoch(void **state) {
    build(6, 3);
    struct cluster *voter = cluster_at(1);
    struct cluster_link *link = node_of(1, 3)->inbound;
    struct slot_bitmap slots = *node_slots(node_of(1, 0));
    struct bus_message request = {.header = {.type = BUS_AUTH_REQUEST,
                                             .current_epoch = voter->current_epoch,
                                             .config_epoch = node_of(1, 0)->config_epoch,
                                             .sender = *id_at(3),
                                             .primary = *id_at(0),
                                             .slots = &slots,
                                             .flags = NODE_REPLICA}};
    voter->last_vote_epoch = voter->current_epoch;
    cluster_receive(voter, link, &request, time_at(1));
    assert_true(sim_said(&sim, 1, "already voted for epoch"));
    request.header.current_epoch--;
    cluster_receive(voter, link, &request, time_at(1));
    assert_true(sim_said(&sim, 1, "reqEpoch ("));
    request.header.current_epoch += 5;
    cluster_receive(voter, link, &request, time_at(1));
    assert_true(sim_said(&sim, 1, ": its primary is up"));
    request.header.current_epoch++;
    request.header.message_flags = BUS_FORCE_ACK;
    slot_bitmap_set(&slots, HASH_SLOTS - 1); /* machine 2 has it, with a larger epoch */
    cluster_receive(voter, link, &request, time_at(1));
    assert_true(sim_said(&sim, 1, "slot 16383 epoch ("));
    request.header.current_epoch++;
    slot_bitmap_clear(&slots, HASH_SLOTS - 1);
    cluster_receive(voter, link, &request, time_at(1));
    assert_true(sim_said(&sim, 1, "Failover auth granted to"));
    assert_int_equal(voter->last_vote_epoch, voter->current_epoch);
    sim_free(&sim);
}

/* Its replica may have taken over and vote for another candidate. */
static void the_vote_of_a_failed_primary_does_not_count(void **state) {
    build(6, 3);
    struct cluster *candidate = cluster_at(3);
    struct cluster_node *voter = node_of(3, 1);
    struct bus_message vote = {.header = {.type = BUS_AUTH_ACK,
                                          .current_epoch = candidate->current_epoch,
                                          .config_epoch = voter->config_epoch,
                                          .sender = voter->id,
                                          .slots = voter->slots,
                                          .port = 6379,
                                          .bus_port = 16379}};
    candidate->election.sent = true;
    candidate->election.epoch = candidate->current_epoch;
    voter->flags |= NODE_FAIL;
    cluster_receive(candidate, voter->inbound, &vote, time_at(3));
    assert_int_equal(candidate->election.votes, 0);
    voter->flags &= ~(unsigned)NODE_FAIL;
    cluster_receive(candidate, voter->inbound, &vote, time_at(3));
    assert_int_equal(candidate->election.votes, 1);
    sim_free(&sim);
}

/* Messages of strangers: gossip, FAIL, UPDATE and votes of a sender that is not a member do not count, and a flood of
 * MEETs has an end. */
static void strangers_have_no_influence(void **state) {
    build(6, 3);
    struct cluster *cluster = cluster_at(0);
    struct cluster_link *link = cluster_link_accepted(cluster, "10.9.9.9", 1, "10.0.0.0", time_at(0));
    struct sim_connection *connection = calloc(1, sizeof *connection);
    *connection = (struct sim_connection){.a = 5, .b = 0, .life_b = sim.machines[0].life, .link_b = link};
    link->host = connection;
    struct bus_gossip gossip[50];
    struct bus_message message = {.header = {.type = BUS_PING, .bus_port = 1, .port = 1}, .gossip = gossip};
    memset(message.header.sender.text, 'x', NODE_ID_LEN);
    for (unsigned i = 0; i < 50; i++) {
        gossip[i] = (struct bus_gossip){.port = 1, .bus_port = 1, .flags = NODE_PRIMARY, .address = "10.1.1.1"};
        memset(gossip[i].id.text, 'a', NODE_ID_LEN);
        snprintf(gossip[i].id.text, NODE_ID_LEN, "%u", i + 100);
        gossip[i].id.text[3] = 'a';
    }
    message.gossip_count = 50;
    size_t size = bus_encoded_size(&message), nodes = cluster->nodes.count;
    uint8_t *bytes = malloc(size);
    bus_encode(&message, bytes);
    struct bus_message decoded;
    const uint8_t *bad_id;
    assert_int_equal(bus_decode(bytes, size, &decoded, &bad_id), BUS_ACCEPTED);
    cluster_receive(cluster, link, &decoded, time_at(0));
    assert_int_equal(cluster->nodes.count, nodes);
    decoded.header.sender = *id_at(0); /* our own id proves nothing */
    cluster_receive(cluster, link, &decoded, time_at(0));
    assert_int_equal(cluster->nodes.count, nodes);
    memset(decoded.header.sender.text, 'x', NODE_ID_LEN);
    unsigned types[] = {BUS_FAIL, BUS_UPDATE, BUS_AUTH_REQUEST, BUS_AUTH_ACK, BUS_MFSTART};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct slot_bitmap all;
        memset(&all, 0xff, sizeof all);
        struct bus_message other = {.header = decoded.header, .node = *id_at(1), .node_epoch = 99, .node_slots = &all};
        other.header.type = types[i];
        cluster_receive(cluster, link, &other, time_at(0));
    }
    assert_false(node_of(0, 1)->flags & NODE_FAIL);
    assert_int_equal(cluster->manual.end_ms, 0);
    assert_int_equal(cluster->myself->slot_count, HASH_SLOTS / 3);
    decoded.header.type = BUS_MEET;
    for (unsigned i = 1; i < 3000; i++) {
        snprintf(decoded.header.address, sizeof decoded.header.address, "10.%u.%u.1", i / 200, i % 200);
        cluster_receive(cluster, link, &decoded, time_at(0));
    }
    assert_int_equal(cluster->handshakes, CLUSTER_HANDSHAKES_MAX);
    assert_int_equal(cluster->nodes.count, nodes + CLUSTER_HANDSHAKES_MAX);
    free(bytes);
    sim_run(&sim, 10000);
    assert_int_equal(cluster->handshakes, 0);
    sim_agree(&sim, 10000);
    sim_free(&sim);
}

/* A known node tells of a failed one, of itself with an old epoch, and that this node has failed. */
static void claims_with_an_old_epoch_are_answered(void **state) {
    build(6, 3);
    struct cluster *cluster = cluster_at(0);
    struct slot_bitmap slots = one_slot(0);
    struct bus_message update = {
        .header = {.type = BUS_UPDATE, .sender = *id_at(1), .current_epoch = 3, .config_epoch = 2, .bus_port = 16379},
        .node = *id_at(2),
        .node_epoch = 3,
        .node_slots = &slots};
    cluster_receive(cluster, node_of(0, 1)->inbound, &update, time_at(0));
    assert_ptr_equal(cluster->slots.owner[0], cluster->myself); /* epoch 3 is known: nothing new */
    update.header.type = BUS_FAIL;
    update.node = *id_at(0);
    cluster_receive(cluster, node_of(0, 1)->inbound, &update, time_at(0));
    assert_false(cluster->myself->flags & NODE_FAIL);
    /* Machine 0 claims a slot of machine 2 with a smaller epoch: whoever hears it sends an UPDATE. */
    struct bus_message claim = {.header = {.type = BUS_PING,
                                           .sender = *id_at(0),
                                           .current_epoch = 3,
                                           .config_epoch = 1,
                                           .port = 6379,
                                           .bus_port = 16379}};
    slots = *node_slots(cluster->myself);
    slot_bitmap_set(&slots, HASH_SLOTS - 1);
    claim.header.slots = &slots;
    uint64_t before = sim.machines[1].sent[BUS_UPDATE];
    cluster_receive(cluster_at(1), node_of(1, 0)->inbound, &claim, time_at(1));
    assert_int_equal(sim.machines[1].sent[BUS_UPDATE], before + 1);
    assert_ptr_equal(sim_owner(&sim, 1, HASH_SLOTS - 1), &sim.machines[2]);
    sim_free(&sim);
}

/* Messages on the two links between two nodes may overtake each other. */
static void an_older_claim_that_comes_last_holds_until_the_next(void **state) {
    build(6, 3);
    struct cluster *cluster = cluster_at(1);
    struct slot_bitmap slots = *node_slots(cluster_at(0)->myself);
    struct bus_message claim = {.header = {.type = BUS_PING,
                                           .sender = *id_at(0),
                                           .current_epoch = cluster->current_epoch,
                                           .config_epoch = cluster_at(0)->myself->config_epoch,
                                           .slots = &slots,
                                           .port = 6379,
                                           .bus_port = 16379}};
    slot_bitmap_clear(&slots, 0);
    cluster_receive(cluster, node_of(1, 0)->inbound, &claim, time_at(1));
    assert_true(slot_bitmap_has(&cluster->slots.unclaimed, 0));
    slot_bitmap_set(&slots, 0);
    cluster_receive(cluster, node_of(1, 0)->inbound, &claim, time_at(1));
    assert_false(slot_bitmap_has(&cluster->slots.unclaimed, 0));
    assert_ptr_equal(sim_owner(&sim, 1, 0), &sim.machines[0]);
    sim_free(&sim);
}

/* A node that was away sends a stale UPDATE: machine 3 won an election. Since then it has become a replica again. */
static void an_old_update_about_a_replica_is_corrected(void **state) {
    build(6, 3);
    struct slot_bitmap slots = *node_slots(cluster_at(0)->myself);
    struct bus_message update = {
        .header = {.type = BUS_UPDATE, .sender = *id_at(2), .current_epoch = 11, .config_epoch = 3, .bus_port = 16379},
        .node = *id_at(3),
        .node_epoch = 10,
        .node_slots = &slots};
    cluster_receive(cluster_at(1), node_of(1, 2)->inbound, &update, time_at(1));
    assert_true(node_is_primary(node_of(1, 3)));
    /* This may have been sent before it won. */
    struct bus_message ping = {.header = {.type = BUS_PING,
                                          .sender = *id_at(3),
                                          .primary = *id_at(0),
                                          .current_epoch = 10,
                                          .config_epoch = 1,
                                          .slots = &slots,
                                          .port = 6379,
                                          .bus_port = 16379}};
    cluster_receive(cluster_at(1), node_of(1, 3)->inbound, &ping, time_at(1));
    assert_true(node_is_primary(node_of(1, 3)));
    ping.header.current_epoch = 11;
    cluster_receive(cluster_at(1), node_of(1, 3)->inbound, &ping, time_at(1));
    assert_ptr_equal(node_of(1, 3)->primary, node_of(1, 0));
    sim_agree(&sim, 5000);
    assert_ptr_equal(sim_owner(&sim, 1, 0), &sim.machines[0]);
    sim_free(&sim);
}

/* A replica names its new primary, but not the slots that this one has taken: an UPDATE tells them. */
static void a_successor_that_a_replica_names_is_learnt_with_its_slots(void **state) {
    build(9, 3); /* machines 3 and 6 follow machine 0 */
    struct cluster_node *replica = node_of(1, 6), *successor = node_of(1, 3);
    /* Machine 6 is a primary without slots for a moment. Then it says that machine 3 has won epoch 10. */
    struct slot_bitmap slots = *node_slots(cluster_at(0)->myself);
    struct bus_message ping = {
        .header = {.type = BUS_PING, .sender = *id_at(6), .current_epoch = 10, .port = 6379, .bus_port = 16379}};
    cluster_receive(cluster_at(1), replica->inbound, &ping, time_at(1));
    assert_true(node_is_primary(replica));
    ping.header.primary = *id_at(3);
    ping.header.config_epoch = 10;
    ping.header.slots = &slots;
    cluster_receive(cluster_at(1), replica->inbound, &ping, time_at(1));
    assert_true(node_is_primary(successor));
    assert_ptr_equal(replica->primary, successor);
    assert_ptr_equal(sim_owner(&sim, 1, 0), &sim.machines[0]);
    struct bus_message update = {
        .header = {.type = BUS_UPDATE, .sender = *id_at(2), .current_epoch = 10, .config_epoch = 3, .bus_port = 16379},
        .node = *id_at(3),
        .node_epoch = 10,
        .node_slots = &slots};
    cluster_receive(cluster_at(1), node_of(1, 2)->inbound, &update, time_at(1));
    assert_ptr_equal(sim_owner(&sim, 1, 0), &sim.machines[3]);
    sim_free(&sim);
}

/* A node that was away hears first that a primary has followed its successor, and does not know that some of the slots
 * had moved to another shard before. Their owner must not hear of it that the successor has them. */
static void a_successor_has_only_the_slots_that_it_claims(void **state) {
    build(9, 3);
    struct slot_bitmap slots = *node_slots(cluster_at(0)->myself);
    struct bus_message ping = {.header = {.type = BUS_PING,
                                          .sender = *id_at(0),
                                          .primary = *id_at(3),
                                          .current_epoch = 10,
                                          .config_epoch = 10,
                                          .slots = &slots,
                                          .port = 6379,
                                          .bus_port = 16379}};
    cluster_receive(cluster_at(2), node_of(2, 0)->inbound, &ping, time_at(2));
    assert_ptr_equal(sim_owner(&sim, 2, 0), &sim.machines[3]);
    slots = *node_slots(cluster_at(1)->myself);
    slot_bitmap_set(&slots, 0); /* machine 1 has taken it with epoch 9 */
    memset(&ping.header.primary, 0, sizeof ping.header.primary);
    ping.header.sender = *id_at(1);
    ping.header.config_epoch = 9;
    uint64_t before = sim.machines[2].sent[BUS_UPDATE];
    cluster_receive(cluster_at(2), node_of(2, 1)->inbound, &ping, time_at(2));
    assert_int_equal(sim.machines[2].sent[BUS_UPDATE], before);
    assert_ptr_equal(sim_owner(&sim, 2, 0), &sim.machines[1]);
    assert_ptr_equal(sim_owner(&sim, 2, 1), &sim.machines[3]);
    sim_free(&sim);
}

/* A node that has restarted does not know which slots of the file their owners did not claim. */
static void a_claim_of_the_file_is_not_spread(void **state) {
    build(6, 3);
    struct slot_bitmap slots = *node_slots(cluster_at(0)->myself);
    slot_bitmap_set(&slots, HASH_SLOTS - 1);
    struct bus_message ping = {.header = {.type = BUS_PING,
                                          .sender = *id_at(0),
                                          .current_epoch = 3,
                                          .config_epoch = 1,
                                          .slots = &slots,
                                          .port = 6379,
                                          .bus_port = 16379}};
    uint64_t before = sim.machines[1].sent[BUS_UPDATE];
    assert_true(node_of(1, 2)->claim_heard);
    node_of(1, 2)->claim_heard = false; /* as after a restart */
    cluster_receive(cluster_at(1), node_of(1, 0)->inbound, &ping, time_at(1));
    assert_int_equal(sim.machines[1].sent[BUS_UPDATE], before);
    sim_run(&sim, 5000);
    assert_true(node_of(1, 2)->claim_heard);
    before = sim.machines[1].sent[BUS_UPDATE];
    cluster_receive(cluster_at(1), node_of(1, 0)->inbound, &ping, time_at(1));
    assert_int_equal(sim.machines[1].sent[BUS_UPDATE], before + 1);
    sim_free(&sim);
}

static void a_configuration_survives_a_restart(void **state) {
    build(6, 3);
    cluster_set_slot_migrating(cluster_at(0), 3, id_at(1), time_at(0));
    cluster_set_slot_importing(cluster_at(0), HASH_SLOTS - 3, id_at(2), time_at(0));
    cluster_flush(cluster_at(0), time_at(0));
    sim_crash(&sim.machines[0]);
    sim_start(&sim.machines[0]);
    assert_ptr_equal(slots_migrating_to(&cluster_at(0)->slots, 3), node_of(0, 1));
    assert_ptr_equal(slots_importing_from(&cluster_at(0)->slots, HASH_SLOTS - 3), node_of(0, 2));
    assert_int_equal(cluster_at(0)->slots.assigned, HASH_SLOTS);
    struct open_slot open[2];
    assert_int_equal(cluster_count_open_slots(cluster_at(0)), 2);
    cluster_list_open_slots(cluster_at(0), open);
    assert_true(open[0].slot == 3 && !open[0].importing && node_id_equal(&open[0].node, id_at(1)));
    assert_true(open[1].slot == HASH_SLOTS - 3 && open[1].importing);
    struct node_line line;
    cluster_describe_node(cluster_at(0), node_of(0, 4), &line);
    assert_int_equal(line.epoch, node_of(0, 1)->config_epoch); /* a replica's line has its primary's */
    assert_true(node_id_equal(&line.primary, id_at(1)));
    assert_false(cluster_at(0)->ok); /* not before it knows that nothing has changed */
    sim_agree(&sim, 10000);
    /* What the file says is what the machine knew, and the parts that contradict each other are refused. */
    struct memory_output again;
    memory_output_init(&again);
    cluster_print_configuration(cluster_at(0), &again.out);
    struct nodes_file file;
    struct nodes_file_error file_error;
    const char *error;
    assert_true(nodes_file_parse(memory_output_slice(&again), false, NULL, NULL, &file, &file_error));
    struct cluster *loaded =
        cluster_new_from(&file, &sim.machines[0].settings, &sim_effects, &sim.machines[0], time_at(0), &error);
    assert_non_null(loaded);
    struct memory_output third;
    memory_output_init(&third);
    cluster_print_configuration(loaded, &third.out);
    assert_int_equal(memory_output_slice(&third).len > 1000, true);
    assert_int_equal(loaded->slots.assigned, HASH_SLOTS);
    assert_int_equal(loaded->nodes.count, 6);
    cluster_free(loaded);
    memory_output_free(&third);
    size_t other = file.myself ? 0 : 1;
    struct node_id saved = file.lines[other].id;
    file.lines[other].id = file.lines[file.myself].id;
    assert_null(cluster_new_from(&file, &sim.machines[0].settings, &sim_effects, &sim.machines[0], time_at(0), &error));
    assert_string_equal(error, "a node is there twice");
    file.lines[other].id = saved;
    file.lines[other].id.text[0] ^= 1; /* replicas or open slots name it */
    assert_null(cluster_new_from(&file, &sim.machines[0].settings, &sim_effects, &sim.machines[0], time_at(0), &error));
    nodes_file_free(&file);
    memory_output_free(&again);
    sim_free(&sim);
}

/* Equal digests spare the messages between nodes that know the same ones. */
static void nodes_tell_each_other_whom_they_know(void **state) {
    build(6, 3);
    sim_run(&sim, 30000);
    for (unsigned i = 0; i < 6; i++)
        for (unsigned other = 0; other < 6; other++)
            if (other != i) assert_int_equal(node_of(i, other)->members, nodes_digest(&cluster_at(other)->nodes));
    for (unsigned i = 1; i < 6; i++)
        assert_int_equal(nodes_digest(&cluster_at(i)->nodes), nodes_digest(&cluster_at(0)->nodes));
    uint32_t before = nodes_digest(&cluster_at(0)->nodes);
    assert_null(cluster_meet(cluster_at(0), "10.9.9.9", 7000, 17000, "test", time_at(0)));
    assert_int_equal(nodes_digest(&cluster_at(0)->nodes), before); /* it is in a handshake */
    struct node_id id = *id_at(5);
    assert_null(cluster_forget(cluster_at(0), &id, "test", time_at(0)));
    assert_true(nodes_digest(&cluster_at(0)->nodes) != before);
    sim_free(&sim);
}

static void own_fields_are_zero_for_others(void **state) {
    uint8_t bytes[BUS_RESERVED_SIZE] = {0};
    struct own_fields fields;
    assert_false(own_fields_read(bytes, &fields));
    assert_int_equal(fields.features, 0);
    own_fields_write(bytes,
                     &(struct own_fields){
                         .features = 0x80000001, .rdma_port = 6380, .client_rdma_port = 7000, .members = 0x80000002});
    assert_true(own_fields_read(bytes, &fields));
    assert_int_equal(fields.features, 0x80000001);
    assert_int_equal(fields.rdma_port, 6380);
    assert_int_equal(fields.client_rdma_port, 7000);
    assert_int_equal(fields.members, 0x80000002);
    bytes[3] = 2; /* a later version */
    assert_true(own_fields_read(bytes, &fields));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manual_failover_loses_no_write),
        cmocka_unit_test(manual_failover_waits_for_the_first_copy),
        cmocka_unit_test(manual_failover_waits_for_the_last_pause),
        cmocka_unit_test(manual_failover_gives_up),
        cmocka_unit_test(forced_failover_and_takeover_need_no_primary),
        cmocka_unit_test(each_second_of_an_election_tells_the_votes),
        cmocka_unit_test(each_failure_of_the_cluster_is_logged_once),
        cmocka_unit_test(old_slots_of_a_replica_are_logged_but_by_its_primary),
        cmocka_unit_test(a_new_primary_deletes_keys_of_slots_that_others_serve),
        cmocka_unit_test(a_new_primary_keeps_keys_that_nobody_else_may_have),
        cmocka_unit_test(a_new_primary_keeps_keys_of_slots_that_are_granted),
        cmocka_unit_test(a_replica_moves_to_an_orphaned_primary),
        cmocka_unit_test(a_forgotten_node_stays_forgotten),
        cmocka_unit_test(a_reset_node_starts_anew),
        cmocka_unit_test(a_forgotten_node_is_not_met_before_the_blacklist_ends),
        cmocka_unit_test(a_node_that_does_not_dial_is_met_again),
        cmocka_unit_test(replicate_checks_its_target),
        cmocka_unit_test(a_slot_moves_by_hand),
        cmocka_unit_test(a_replica_hears_a_claim_in_the_stream),
        cmocka_unit_test(an_epoch_stays_while_a_claim_is_awaited),
        cmocka_unit_test(an_older_claim_in_the_stream_is_not_spread),
        cmocka_unit_test(a_primary_of_a_bound_shard_keeps_keys_that_a_sibling_claims),
        cmocka_unit_test(who_loses_its_last_slot_follows_the_new_owner),
        cmocka_unit_test(a_replica_takes_over_from_a_primary_without_slots),
        cmocka_unit_test(slots_are_added_and_deleted_all_or_none),
        cmocka_unit_test(a_primary_in_the_minority_stops_serving),
        cmocka_unit_test(messages_reach_subscribers_of_the_shard_or_all),
        cmocka_unit_test(a_node_that_moves_is_found),
        cmocka_unit_test(idle_nodes_repeat_their_headers),
        cmocka_unit_test(a_header_that_was_lost_is_not_repeated),
        cmocka_unit_test(a_ping_that_was_lost_is_repeated),
        cmocka_unit_test(sixty_nodes_know_each_other_in_seconds),
        cmocka_unit_test(votes_need_a_failed_primary_and_a_new_epoch),
        cmocka_unit_test(the_vote_of_a_failed_primary_does_not_count),
        cmocka_unit_test(strangers_have_no_influence),
        cmocka_unit_test(claims_with_an_old_epoch_are_answered),
        cmocka_unit_test(an_older_claim_that_comes_last_holds_until_the_next),
        cmocka_unit_test(an_old_update_about_a_replica_is_corrected),
        cmocka_unit_test(a_successor_that_a_replica_names_is_learnt_with_its_slots),
        cmocka_unit_test(a_successor_has_only_the_slots_that_it_claims),
        cmocka_unit_test(a_claim_of_the_file_is_not_spread),
        cmocka_unit_test(a_configuration_survives_a_restart),
        cmocka_unit_test(nodes_tell_each_other_whom_they_know),
        cmocka_unit_test(own_fields_are_zero_for_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
