/* Single rules of the cluster's state machine: commands, manual failover, replica migration, votes, hostile peers.
 * test_cluster_claims.c has those of slots. */
#include "cluster_rules.h"

TEST(manual_failover_loses_no_write) {
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
TEST(manual_failover_waits_for_the_first_copy) {
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
TEST(manual_failover_waits_for_the_last_pause) {
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

TEST(manual_failover_gives_up) {
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

TEST(forced_failover_and_takeover_need_no_primary) {
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

/* A replica that has just started is connected to no voter yet. */
TEST(votes_are_asked_for_on_links_that_open_late) {
    build(6, 3);
    sim_crash(&sim.machines[3]);
    sim_run(&sim, 500);
    sim_start(&sim.machines[3]);
    assert_null(cluster_failover(cluster_at(3), FAILOVER_FORCE, "test", time_at(3)));
    cluster_flush(cluster_at(3), time_at(3));
    assert_true(sim_said(&sim, 3, "Starting a failover election"));
    wait_role(3, true, 1000); /* long before it could ask again */
    assert_int_equal(sim_said_times(&sim, 3, "Starting a failover election"), 1);
    sim_free(&sim);
}

TEST(each_second_of_an_election_tells_the_votes) {
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

TEST(each_failure_of_the_cluster_is_logged_once) {
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
TEST(old_slots_of_a_replica_are_logged_but_by_its_primary) {
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

TEST(a_candidate_with_old_slots_is_told_the_owner) {
    build(6, 3);
    log_level = LOG_LEVEL_VERBOSE;
    sim.group[3] = 1; /* does not hear that the epoch of its primary has changed */
    assert_true(cluster_bump_epoch(cluster_at(0), time_at(0)));
    sim_run(&sim, 1000);
    sim_crash(&sim.machines[0]);
    sim.group[3] = 0;
    unsigned before = sim_said_times(&sim, 1, "has old slots configuration, sending an UPDATE message about");
    assert_null(cluster_failover(cluster_at(3), FAILOVER_FORCE, "test", time_at(3)));
    sim_run(&sim, 1000);
    assert_true(sim_said(&sim, 1, "Failover auth denied to"));
    assert_true(sim_said_times(&sim, 1, "has old slots configuration, sending an UPDATE message about") > before);
    assert_true(sim_said(&sim, 3, "Processing UPDATE message received from"));
    log_level = LOG_LEVEL_NOTICE;
    sim_free(&sim);
}

TEST(a_failover_of_the_target_of_a_slot_is_logged) {
    unsigned slot = 0;
    build(6, 3);
    while (cluster_at(1)->slots.owner[slot] != cluster_at(1)->myself) slot++;
    assert_null(cluster_set_slot_migrating(cluster_at(1), slot, id_at(0), time_at(1)));
    assert_null(cluster_failover(cluster_at(3), FAILOVER_NORMAL, "test", time_at(3)));
    wait_role(3, true, 2000);
    sim_run(&sim, 1000);
    assert_ptr_equal(slots_migrating_to(&cluster_at(1)->slots, slot), node_of(1, 3));
    assert_true(sim_said(&sim, 1, "A failover occurred in migration target. Update migrating target of 1 slot(s) to"));
    sim_free(&sim);
}

TEST(a_replica_moves_to_an_orphaned_primary) {
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

TEST(a_forgotten_node_stays_forgotten) {
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

TEST(a_reset_node_starts_anew) {
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

TEST(a_forgotten_node_is_not_met_before_the_blacklist_ends) {
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

TEST(a_node_that_does_not_dial_is_met_again) {
    build(6, 3);
    unsigned handshakes = sim_said_times(&sim, 0, "Successfully completed handshake with");
    cluster_at(1)->settings.no_reconnection = true;
    link_close(cluster_at(0), node_of(0, 1)->inbound);
    sim_run(&sim, 5000);
    assert_true(sim_said(&sim, 0, "because there is no inbound link for it"));
    assert_true(sim_said_times(&sim, 0, "Successfully completed handshake with") > handshakes);
    sim_free(&sim);
}

TEST(a_lost_link_is_dialled_again_soon_also_with_a_long_node_timeout) {
    build(3, 3);
    cluster_at(0)->settings.node_timeout_ms = 600000;
    for (unsigned attempt = 0; attempt < 2; attempt++) {
        link_close(cluster_at(0), node_of(0, 1)->link);
        sim_run(&sim, 1500);
        assert_true(node_of(0, 1)->link && node_of(0, 1)->link->connected);
    }
    sim_free(&sim);
}

TEST(replicate_checks_its_target) {
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

TEST(a_replica_takes_over_from_a_primary_without_slots) {
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

TEST(a_primary_in_the_minority_stops_serving) {
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

TEST(messages_reach_subscribers_of_the_shard_or_all) {
    build(6, 3);
    cluster_publish(cluster_at(0), SLICE("news"), SLICE("hello"), false);
    sim_run(&sim, 100);
    for (unsigned i = 1; i < 6; i++) assert_int_equal(sim.machines[i].published, 1);
    cluster_publish(cluster_at(0), SLICE("news"), SLICE("hello"), true);
    sim_run(&sim, 100);
    for (unsigned i = 1; i < 6; i++) assert_int_equal(sim.machines[i].published, i == 3 ? 2 : 1);
    sim_free(&sim);
}

TEST(a_node_that_moves_is_found) {
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
TEST(idle_nodes_repeat_their_headers) {
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

TEST(a_header_that_was_lost_is_not_repeated) {
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

/* DEBUG DROP-CLUSTER-PACKET-FILTER drops messages, and the sender does not know it. */
TEST(a_header_that_the_host_dropped_may_be_repeated) {
    build(6, 3);
    sim_run(&sim, 10000);
    struct cluster_link *link = node_of(1, 0)->link;
    struct bus_message message;
    raise_epoch(cluster_at(0));
    message_begin(cluster_at(0), &message, BUS_PONG);
    cluster_link_dropped(cluster_at(1), link, &message);
    assert_true(node_of(1, 0)->config_epoch < cluster_at(0)->myself->config_epoch);
    message.header.digest = bus_header_digest(&message.header, bus_slots_digest(message.header.slots));
    message.header.brief = true;
    cluster_receive(cluster_at(1), link, &message, time_at(1));
    assert_true(node_of(1, 0)->config_epoch == cluster_at(0)->myself->config_epoch);
    assert_ptr_equal(node_of(1, 0)->link, link);
    sim_free(&sim);
}

/* No message is lost in a connection, but a host may drop one. The peer's own link works: nobody notices a silence. */
TEST(a_ping_that_was_lost_is_repeated) {
    build(6, 3);
    struct cluster_node *node = node_of(1, 0);
    int64_t lost_ms = node->beat->ping_sent_ms = time_at(1);
    sim_run(&sim, 5000); /* the node timeout is 2000 */
    assert_true(node->beat->ping_sent_ms != lost_ms && node->beat->pong_received_ms > lost_ms);
    assert_int_equal(sim.elections, 0);
    sim_agree(&sim, 1000);
    sim_free(&sim);
}

/* All nodes meet one of them; whoever hears of new nodes tells others at once. */
TEST(sixty_nodes_know_each_other_in_seconds) {
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

TEST(votes_need_a_failed_primary_and_a_new_epoch) {
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
TEST(the_vote_of_a_failed_primary_does_not_count) {
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
TEST(strangers_have_no_influence) {
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
    assert_int_equal(cluster->joining.handshakes, CLUSTER_HANDSHAKES_MAX);
    assert_int_equal(cluster->nodes.count, nodes + CLUSTER_HANDSHAKES_MAX);
    free(bytes);
    sim_run(&sim, 10000);
    assert_int_equal(cluster->joining.handshakes, 0);
    sim_agree(&sim, 10000);
    sim_free(&sim);
}

/* Its own opinion and one report make a majority of three. */
TEST(a_failed_node_gets_no_more_reports) {
    enum { CRASHED = 5 };
    build(6, 3);
    const struct node_id id = *id_at(CRASHED);
    sim_crash(&sim.machines[CRASHED]);
    for (int i = 0; i < 100; i++) {
        sim_run(&sim, 500);
        for (unsigned primary = 0; primary < 3; primary++) {
            const struct cluster_node *node = nodes_find(&cluster_at(primary)->nodes, &id);
            if (node->flags & NODE_FAIL) assert_true(node->report_count <= 1);
        }
    }
    assert_true(nodes_find(&cluster_at(0)->nodes, &id)->flags & NODE_FAIL);
    sim_free(&sim);
}

/* The handshake with the sender may fail, when messages in one direction are lost. */
TEST(a_node_that_knows_nobody_learns_nodes_from_a_meet) {
    build(1, 1);
    struct cluster *cluster = cluster_at(0);
    assert_int_equal(cluster->nodes.count, 1);
    struct cluster_link *link = cluster_link_accepted(cluster, "10.9.9.9", 1, "10.0.0.0", time_at(0));
    struct sim_connection *connection = calloc(1, sizeof *connection);
    *connection = (struct sim_connection){.a = 5, .b = 0, .life_b = sim.machines[0].life, .link_b = link};
    link->host = connection;
    struct bus_gossip gossip = {.port = 1, .bus_port = 1, .flags = NODE_PRIMARY, .address = "10.1.1.1"};
    struct bus_message message = {.header = {.type = BUS_MEET, .bus_port = 1, .port = 1}, .gossip = &gossip};
    memset(message.header.sender.text, 'x', NODE_ID_LEN);
    memset(gossip.id.text, 'a', NODE_ID_LEN);
    message.gossip_count = 1;
    uint8_t bytes[8192];
    struct bus_message decoded;
    const uint8_t *bad_id;
    assert_true(bus_encoded_size(&message) <= sizeof bytes);
    bus_encode(&message, bytes);
    assert_int_equal(bus_decode(bytes, bus_encoded_size(&message), &decoded, &bad_id), BUS_ACCEPTED);
    cluster_receive(cluster, link, &decoded, time_at(0));
    assert_int_equal(cluster->nodes.count, 3); /* the sender, in its handshake, and the node it told of */
    const struct cluster_node *learnt = nodes_find(&cluster->nodes, &gossip.id);
    assert_non_null(learnt);
    assert_false(learnt->flags & NODE_HANDSHAKE);
    gossip.id.text[0] = 'b'; /* now it knows somebody */
    bus_encode(&message, bytes);
    assert_int_equal(bus_decode(bytes, bus_encoded_size(&message), &decoded, &bad_id), BUS_ACCEPTED);
    cluster_receive(cluster, link, &decoded, time_at(0));
    assert_int_equal(cluster->nodes.count, 3);
    sim_free(&sim);
}

TEST(a_configuration_survives_a_restart) {
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
    for (size_t i = 0; i < file.count; i++) file.lines[i].flags |= NODE_REPLICA;
    loaded = cluster_new_from(&file, &sim.machines[0].settings, &sim_effects, &sim.machines[0], time_at(0), &error);
    for (size_t i = 0; i < file.count; i++) assert_false(node_is_primary(loaded->nodes.list[i])); /* not both */
    cluster_free(loaded);
    for (size_t i = 0; i < file.count; i++)
        if (file.lines[i].flags & NODE_PRIMARY) file.lines[i].flags &= (uint16_t)~NODE_REPLICA;
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
TEST(nodes_tell_each_other_whom_they_know) {
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

TEST(own_fields_are_zero_for_others) {
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

static struct cluster_node *numbered_node(unsigned number) {
    struct node_id id;
    char text[NODE_ID_LEN + 1];
    /* Three of them begin alike. */
    snprintf(text, sizeof text, "%016x%024x", number / 3, number);
    memcpy(id.text, text, NODE_ID_LEN);
    return node_new(&id, NODE_PRIMARY, 1);
}
TEST(ids_that_begin_alike_are_told_apart) {
    enum { NODES = 300 };
    static struct cluster_node *present[NODES];
    struct node_table nodes;
    nodes_init(&nodes);
    struct cluster_node *stranger = numbered_node(NODES * 3);
    assert_null(nodes_find(&nodes, &stranger->id));
    unsigned random = 1;
    for (unsigned i = 0; i < 5000; i++) {
        unsigned at = (random = random * 1103515245 + 12345) >> 16;
        struct cluster_node **node = &present[at %= NODES];
        if (*node) {
            nodes_remove(&nodes, *node);
            *node = NULL;
        } else {
            nodes_add(&nodes, *node = numbered_node(at));
            (*node)->beat->pong_received_ms = at;
        }
        if (i % 100) continue;
        for (at = 0; at < NODES; at++) {
            struct cluster_node *like = numbered_node(at);
            struct node_heartbeat *beats[NODES_FIND_MAX];
            assert_ptr_equal(nodes_find(&nodes, &like->id), present[at]);
            nodes_find_brief(&nodes, (const uint8_t *)like->id.text, NODE_ID_LEN, 1, beats);
            bool known = present[at / 3 * 3] || present[at / 3 * 3 + 1] || present[at / 3 * 3 + 2];
            assert_int_equal(beats[0] != NULL, known);
            if (known) assert_memory_equal(nodes_of_beat(&nodes, beats[0])->id.text, like->id.text, BUS_BRIEF_ID_LEN);
            if (present[at]) assert_int_equal(present[at]->beat->pong_received_ms, at);
            mem_free(like);
        }
        assert_null(nodes_find(&nodes, &stranger->id));
    }
    mem_free(stranger);
    nodes_free(&nodes);
}
