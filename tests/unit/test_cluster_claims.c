/* Which node has a slot: claims, epochs, and the keys of slots that move. */
#include "cluster_rules.h"

/* A replica that did not hear that its primary has lost a slot keeps the keys until it leads. */
TEST(a_new_primary_deletes_keys_of_slots_that_others_serve) {
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
TEST(a_new_primary_keeps_keys_of_slots_that_are_granted) {
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
TEST(a_new_primary_keeps_keys_that_nobody_else_may_have) {
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

TEST(a_slot_moves_by_hand) {
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
    /* The source, whose epoch is larger, gives a slot up first. */
    assert_true(cluster_bump_epoch(source, now));
    sim_agree(&sim, 5000);
    assert_true(target->myself->config_epoch < source->myself->config_epoch);
    now = time_at(1);
    assert_null(cluster_set_slot_importing(target, 8, id_at(0), now));
    struct slot_bitmap eight = one_slot(8);
    assert_null(cluster_delete_slots(source, &eight, now));
    sim_agree(&sim, 5000);
    assert_ptr_equal(sim_owner(&sim, 2, 8), &sim.machines[1]);
    assert_true(target->myself->config_epoch > source->myself->config_epoch);
    /* Several at once, as at the end of a migration. */
    cluster_set_slot_stable(source, 9, now);
    struct slot_bitmap nine = one_slot(9);
    cluster_take_slots(target, &nine, now);
    sim_agree(&sim, 5000);
    assert_ptr_equal(sim_owner(&sim, 2, 9), &sim.machines[1]);
    /* A slot without an owner is imported from nobody. */
    assert_null(cluster_set_slot_importing(target, 10, id_at(0), now));
    struct slot_bitmap ten = one_slot(10);
    assert_null(cluster_delete_slots(target, &ten, now));
    assert_null(slots_importing_from(&target->slots, 10));
    sim_free(&sim);
}

/* The stream says that a primary has claimed slots: a replica that has not heard it on the bus believes it. */
TEST(a_replica_hears_a_claim_in_the_stream) {
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
TEST(an_epoch_stays_while_a_claim_is_awaited) {
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
TEST(an_older_claim_in_the_stream_is_not_spread) {
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

/* A primary that has copied the data of another one of its shard. The epoch is that one's. */
TEST(a_primary_takes_no_epoch_from_the_stream) {
    build(3, 3);
    struct slot_bitmap moved = one_slot(HASH_SLOTS - 1);
    uint64_t epoch = cluster_at(0)->current_epoch + 1;
    cluster_hear_claim(cluster_at(0), cluster_at(0)->myself, &moved, epoch, time_at(0));
    assert_ptr_equal(sim_owner(&sim, 0, HASH_SLOTS - 1), &sim.machines[0]);
    assert_int_equal(cluster_at(0)->myself->config_epoch, epoch + 1);
    sim_free(&sim);
}

/* The owner may have replaced its primary, which this node has not heard either. */
TEST(a_claim_in_the_stream_makes_a_replica_a_primary) {
    build(4, 3);
    struct slot_bitmap moved = one_slot(HASH_SLOTS - 1);
    assert_false(node_is_primary(node_of(1, 3)));
    cluster_hear_claim(cluster_at(1), node_of(1, 3), &moved, cluster_at(1)->current_epoch + 1, time_at(1));
    assert_ptr_equal(sim_owner(&sim, 1, HASH_SLOTS - 1), &sim.machines[3]);
    assert_true(node_is_primary(node_of(1, 3)));
    sim_free(&sim);
}

/* The stream names the epoch of some slots. The primary may have lost others to an epoch between this one and its last.
 */
TEST(a_claim_in_the_stream_is_of_its_slots_only) {
    build(4, 3);
    struct cluster *cluster = cluster_at(3);
    struct slot_bitmap moved = one_slot(HASH_SLOTS - 1), slots = *node_slots(cluster_at(1)->myself);
    uint64_t epoch = cluster->current_epoch;
    assert_ptr_equal(sim_owner(&sim, 3, 0), &sim.machines[0]);
    cluster_hear_claim(cluster, node_of(3, 0), &moved, epoch + 2, time_at(3));
    slot_bitmap_set(&slots, 0);
    struct bus_message ping = {.header = {.type = BUS_PING,
                                          .sender = *id_at(1),
                                          .current_epoch = epoch + 1,
                                          .config_epoch = epoch + 1,
                                          .slots = &slots,
                                          .port = 6379,
                                          .bus_port = 16379}};
    cluster_receive(cluster, node_of(3, 1)->inbound, &ping, time_at(3));
    assert_ptr_equal(sim_owner(&sim, 3, 0), &sim.machines[1]);
    assert_ptr_equal(sim_owner(&sim, 3, HASH_SLOTS - 1), &sim.machines[0]);
    sim_free(&sim);
}

static void bound_facts(void *context, struct cluster_facts *facts) {
    sim_effect_facts(context, facts);
    facts->bound = true;
}

/* A takeover is not voted on. The new primary may lack a slot that the old one has got since. */
TEST(a_primary_of_a_bound_shard_keeps_keys_that_a_sibling_claims) {
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

static enum cluster_mandate no_mandate(void *context) {
    return MANDATE_NONE;
}

/* CLUSTER RESET of a replica that this primary last heard of as one of its own, while its shard elects another one. */
TEST(a_primary_does_not_follow_a_replica_that_was_reset) {
    static struct cluster_effects effects;
    effects = sim_effects;
    effects.mandate = no_mandate;
    sim_uses = &effects;
    for (int left = 0; left < 2; left++) {
        build(6, 3);
        struct bus_message ping = {.header = {.type = BUS_PING,
                                              .message_flags = BUS_EXTENSION_DATA,
                                              .sender = *id_at(3),
                                              .current_epoch = 10,
                                              .config_epoch = 10,
                                              .port = 6379,
                                              .bus_port = 16379},
                                   .has_extensions = true};
        ping.extensions.shard = left ? *id_at(3) : cluster_at(0)->myself->shard;
        cluster_receive(cluster_at(0), node_of(0, 3)->inbound, &ping, time_at(0));
        assert_int_equal(node_is_primary(cluster_at(0)->myself), left);
        assert_int_equal(cluster_at(0)->myself->slot_count > 0, left);
        sim_free(&sim);
    }
    sim_uses = &sim_effects;
}

TEST(who_loses_its_last_slot_follows_the_new_owner) {
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

/* No slot that it has lost tells an empty primary that it is replaced. */
TEST(a_primary_without_slots_follows_the_replica_that_replaces_it) {
    build(5, 3); /* machines 3 and 4 follow 0 and 1 */
    assert_null(cluster_replicate(cluster_at(4), id_at(0), time_at(4)));
    struct slot_bitmap slots = *node_slots(cluster_at(0)->myself);
    assert_null(cluster_delete_slots(cluster_at(0), &slots, time_at(0)));
    sim_run(&sim, 5000);
    for (unsigned i = 3; i < 5; i++) assert_null(cluster_delete_slots(cluster_at(i), &slots, time_at(i)));
    assert_null(cluster_failover(cluster_at(3), FAILOVER_TAKEOVER, "test", time_at(3)));
    sim_run(&sim, 5000);
    assert_int_equal(cluster_at(3)->myself->slot_count, 0);
    assert_ptr_equal(cluster_at(0)->myself->primary, node_of(0, 3));
    assert_ptr_equal(cluster_at(4)->myself->primary, node_of(4, 3));
    assert_true(node_is_primary(cluster_at(3)->myself));
    sim_free(&sim);
}

TEST(slots_are_added_and_deleted_all_or_none) {
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

/* A known node tells of a failed one, of itself with an old epoch, and that this node has failed. */
TEST(claims_with_an_old_epoch_are_answered) {
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
TEST(an_older_claim_that_comes_last_holds_until_the_next) {
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

/* Both nodes of a pair dial, and what was sent on one link may be read after what was sent later on the other. */
TEST(an_offset_of_before_a_claim_says_nothing_of_its_slots) {
    build(6, 3);
    struct cluster *cluster = cluster_at(1);
    struct node_heartbeat *beat = node_of(1, 0)->beat;
    struct slot_bitmap slots = *node_slots(cluster_at(0)->myself);
    struct bus_message message = {.header = {.type = BUS_PING,
                                             .sender = *id_at(0),
                                             .current_epoch = cluster->current_epoch,
                                             .config_epoch = cluster_at(0)->myself->config_epoch,
                                             .slots = &slots,
                                             .offset = 1000,
                                             .port = 6379,
                                             .bus_port = 16379}};
    uint64_t before = beat->agreed;
    cluster_receive(cluster, node_of(1, 0)->inbound, &message, time_at(1));
    assert_int_equal(beat->agreed, before + 1);
    assert_int_equal(beat->agreed_offset, 1000);
    slot_bitmap_clear(&slots, 0);
    message.header.offset = 900;
    cluster_receive(cluster, node_of(1, 0)->inbound, &message, time_at(1));
    assert_int_equal(beat->offset, 900);
    assert_int_equal(beat->agreed, before + 1);
    assert_int_equal(beat->agreed_offset, 1000);
    sim_free(&sim);
}

/* A node that was away sends a stale UPDATE: machine 3 won an election. Since then it has become a replica again. */
TEST(an_old_update_about_a_replica_is_corrected) {
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
TEST(a_successor_that_a_replica_names_is_learnt_with_its_slots) {
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
TEST(a_successor_has_only_the_slots_that_it_claims) {
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
TEST(a_claim_of_the_file_is_not_spread) {
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
