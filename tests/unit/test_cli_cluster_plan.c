/* The decisions of valkey-cli --cluster: lines of CLUSTER NODES, and the plans of create, reshard, rebalance and fix.
 */
#include "unit.h"
#include "tools/cli_cluster_plan.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include <stdio.h>

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb2"

static void assert_set(const struct slot_bitmap *set, const char *expected) {
    struct memory_output m;
    memory_output_init(&m);
    slots_write(set, &m.out);
    struct slice text = memory_output_slice(&m);
    char *copy = mem_strndup(text.len ? text.data : "", text.len);
    assert_string_equal(copy, expected);
    mem_free(copy);
    memory_output_free(&m);
}

TEST(a_set_of_slots_is_written_as_ranges) {
    struct slot_bitmap set = {{0}};
    assert_set(&set, "");
    slot_bitmap_set_range(&set, 0, 5460);
    slot_bitmap_set(&set, 7000);
    slot_bitmap_set_range(&set, 16382, 16383);
    assert_set(&set, "[0-5460],[7000],[16382-16383]");
    assert_int_equal(slot_bitmap_count(&set), 5464);
    slot_bitmap_clear(&set, 5460);
    slot_bitmap_clear(&set, 0);
    assert_set(&set, "[1-5459],[7000],[16382-16383]");
    slot_bitmap_set_range(&set, 0, HASH_SLOTS - 1);
    assert_set(&set, "[0-16383]");
}

/* --- CLUSTER NODES --- */

TEST(a_line_of_cluster_nodes_is_parsed) {
    struct cli_node_line n;
    assert_true(node_line_parse(SLICE(ID_A " 127.0.0.1:7000@17000,host-1,shard-id=x myself,master - 0 0 12 connected "
                                           "0-5 7 9-10 [8->-" ID_B "] [16383-<-" ID_B "]"),
                                &n));
    assert_string_equal(n.id, ID_A);
    assert_string_equal(n.host, "127.0.0.1");
    assert_string_equal(n.primary, "");
    assert_int_equal(n.port, 7000);
    assert_int_equal(n.bus_port, 17000);
    assert_int_equal(n.flags, NODE_MYSELF);
    assert_int_equal(n.epoch, 12);
    assert_int_equal(n.slots_count, 9);
    assert_set(&n.slots, "[0-5],[7],[9-10]");
    assert_int_equal(n.open_count, 2);
    assert_string_equal(node_line_peer(&n, 8, false), ID_B);
    assert_string_equal(node_line_peer(&n, 16383, true), ID_B);
    assert_null(node_line_peer(&n, 8, true));
    assert_null(node_line_peer(&n, 9, false));
    node_line_free(&n);
}

TEST(lines_of_replicas_old_servers_and_lost_nodes_are_parsed) {
    struct cli_node_line n;
    assert_true(node_line_parse(SLICE(ID_A " ::1:7000@17000 slave,fail " ID_B " 1 2 3 disconnected\r"), &n));
    assert_string_equal(n.host, "::1");
    assert_string_equal(n.primary, ID_B);
    assert_int_equal(n.flags, NODE_REPLICA | NODE_FAIL | NODE_DISCONNECTED);
    assert_int_equal(n.slots_count, 0);
    assert_true(node_line_parse(SLICE(ID_A " 10.0.0.1:6379 master,fail? - 1 2 3 connected 1"), &n));
    assert_int_equal(n.bus_port, 0);
    assert_int_equal(n.flags, 0);
    assert_true(node_line_parse(SLICE(ID_A " :0@0 handshake,noaddr,master - 1 2 3 connected"), &n));
    assert_string_equal(n.host, "");
    assert_int_equal(n.flags, NODE_HANDSHAKE | NODE_NOADDR);
}

TEST(damaged_lines_of_cluster_nodes_are_refused) {
    static const char *const bad[] = {
        "",
        "x",
        ID_A,
        ID_A " 127.0.0.1:7000@17000 master - 0 0 1",
        "short 127.0.0.1:7000@17000 master - 0 0 1 connected",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA 127.0.0.1:7000@17000 master - 0 0 1 connected",
        ID_A " 127.0.0.1 master - 0 0 1 connected",
        ID_A " 127.0.0.1:70000 master - 0 0 1 connected",
        ID_A " 127.0.0.1:7000@x master - 0 0 1 connected",
        ID_A " 127.0.0.1:7000@17000 master nobody 0 0 1 connected",
        ID_A " 127.0.0.1:7000@17000 master - 0 0 -1 connected",
        ID_A " 127.0.0.1:7000@17000 master - 0 0 1 connected 16384",
        ID_A " 127.0.0.1:7000@17000 master - 0 0 1 connected 5-4",
        ID_A " 127.0.0.1:7000@17000 master - 0 0 1 connected 5-",
        ID_A " 127.0.0.1:7000@17000 master - 0 0 1 connected x",
        ID_A " 127.0.0.1:7000@17000 master - 0 0 1 connected [",
        ID_A " 127.0.0.1:7000@17000 master - 0 0 1 connected [1",
        ID_A " 127.0.0.1:7000@17000 master - 0 0 1 connected [1-",
        ID_A " 127.0.0.1:7000@17000 master - 0 0 1 connected [1->-" ID_B,
        ID_A " 127.0.0.1:7000@17000 master - 0 0 1 connected [1-?-" ID_B "]",
        ID_A " 127.0.0.1:7000@17000 master - 0 0 1 connected [16384->-" ID_B "]",
        ID_A " 127.0.0.1:7000@17000 master - 0 0 1 connected [1->-short]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cli_node_line n;
        size_t len = strlen(bad[i]);
        char *exact = mem_alloc(len + 1); /* without a NUL after it, so that a sanitizer sees reads beyond it */
        memcpy(exact, bad[i], len);
        exact = mem_realloc(exact, len ? len : 1);
        if (node_line_parse((struct slice){exact, len}, &n)) fail_msg("accepted: %s", bad[i]);
        mem_free(exact);
    }
}

/* Whatever bytes change in a good line, it is parsed or refused, and what was parsed is within bounds. */
TEST(mutated_lines_of_cluster_nodes_stay_within_bounds) {
    static const char good[] =
        ID_A " 127.0.0.1:7000@17000,h myself,master - 0 0 12 connected 0-5 7 9-10 [8->-" ID_B "] [9-<-" ID_B "]";
    int parsed = 0;
    for (int round = 0; round < 20000; round++) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        for (uint64_t changes = random_below(3) + 1; changes; changes--)
            text[random_below(sizeof good - 1)] = (char)random_below(256);
        struct cli_node_line n;
        if (!node_line_parse((struct slice){text, sizeof good - 1 - random_below(20)}, &n)) continue;
        parsed++;
        assert_int_equal(n.slots_count, slot_bitmap_count(&n.slots));
        assert_in_range(n.port, 0, 65535);
        assert_int_equal(strlen(n.id), NODE_ID);
        for (int i = 0; i < n.open_count; i++) assert_in_range(n.open[i].slot, 0, HASH_SLOTS - 1);
        node_line_free(&n);
    }
    assert_in_range(parsed, 1, 19999);
}

TEST(addresses_are_split_at_the_last_colon) {
    char host[NODE_HOST_MAX];
    int port, bus;
    assert_true(address_parse(SLICE("localhost:7000"), host, &port, NULL));
    assert_string_equal(host, "localhost");
    assert_int_equal(port, 7000);
    assert_true(address_parse(SLICE("[fe80::1]:7001@1"), host, &port, &bus));
    assert_string_equal(host, "fe80::1");
    assert_int_equal(bus, 1);
    assert_true(address_parse(SLICE("fe80::1:7001"), host, &port, &bus));
    assert_string_equal(host, "fe80::1");
    assert_int_equal(bus, 0);
    static const char *const bad[] = {"", "host", "host:", "host:x", "host:65536", "host:-1", "host:7000@1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(address_parse(slice_of(bad[i]), host, &port, NULL));
}

/* --- create --- */

TEST(slots_are_divided_evenly_and_completely) {
    const char *hosts[1000];
    for (size_t i = 0; i < 1000; i++) hosts[i] = "h";
    for (int count = 1; count <= 1000; count += count < 50 ? 1 : 119) {
        struct create_plan plan;
        create_plan_make(&plan, hosts, count, 0);
        assert_int_equal(plan.primaries, count);
        int next = 0;
        for (int i = 0; i < count; i++) {
            const struct planned_node *n = &plan.nodes[plan.order[i]];
            assert_int_equal(n->first, next);
            assert_in_range(n->last - n->first + 1, HASH_SLOTS / count, HASH_SLOTS / count + 1);
            next = n->last + 1;
        }
        assert_int_equal(next, HASH_SLOTS);
        create_plan_free(&plan);
    }
}

TEST(three_primaries_get_the_known_ranges) {
    const char *hosts[] = {"a", "a", "a"};
    struct create_plan plan;
    create_plan_make(&plan, hosts, 3, 0);
    assert_int_equal(plan.nodes[0].last, 5460);
    assert_int_equal(plan.nodes[1].last, 10922);
    create_plan_free(&plan);
}

/* The assignments of Valkey's tool for these hosts. */
TEST(replicas_are_dealt_to_primaries_on_other_hosts) {
    static const struct {
        const char *hosts;
        int replicas, primary[9]; /* -1: is one */
    } cases[] = {
        {"111222", 1, {-1, -1, 3, -1, 1, 0}},
        {"112233", 1, {-1, 4, -1, 0, -1, 2}},
        {"111222333", 2, {-1, 6, 3, -1, 0, 6, -1, 0, 3}},
        {"123445", 1, {-1, -1, -1, 2, 1, 0}},
        {"1122334", 1, {-1, 2, -1, 0, -1, 0, 4}},
        {"111111", 1, {-1, -1, -1, 2, 0, 1}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char names[9][2];
        const char *hosts[9];
        int count = (int)strlen(cases[k].hosts);
        for (int i = 0; i < count; i++) {
            names[i][0] = cases[k].hosts[i], names[i][1] = '\0';
            hosts[i] = names[i];
        }
        struct create_plan plan;
        create_plan_make(&plan, hosts, count, cases[k].replicas);
        for (int i = 0; i < count; i++) assert_int_equal(plan.nodes[i].primary, cases[k].primary[i]);
        assert_int_equal(plan.added_count, count - plan.primaries);
        create_plan_free(&plan);
    }
}

TEST(anti_affinity_is_scored_and_improved) {
    const char *hosts[] = {"1", "2", "3", "1", "2", "3"};
    struct create_plan plan;
    create_plan_make(&plan, hosts, 6, 1);
    assert_int_equal(create_plan_score(&plan), 0);
    for (int i = 3; i < 6; i++) plan.nodes[i].primary = i - 3;
    assert_int_equal(create_plan_score(&plan), 3 * SAME_HOST_AS_PRIMARY);
    for (int tries = 0; tries < 20 && create_plan_improve(&plan) > 0;) tries++;
    assert_int_equal(create_plan_score(&plan), 0);
    create_plan_free(&plan);
    /* Two replicas of a primary on one host. */
    const char *crowded[] = {"1", "2", "3", "4", "4", "4", "4", "4", "4"};
    create_plan_make(&plan, crowded, 9, 2);
    assert_int_equal(create_plan_score(&plan), 3);
    assert_int_equal(create_plan_improve(&plan), 3);
    create_plan_free(&plan);
}

TEST(improving_never_raises_the_score_or_loses_a_replica) {
    for (int round = 0; round < 300; round++) {
        char names[40][4];
        const char *hosts[40];
        int count = 6 + (int)random_below(34), replicas = (int)random_below(3);
        for (int i = 0; i < count; i++) {
            snprintf(names[i], sizeof names[i], "%d", (int)random_below(5));
            hosts[i] = names[i];
        }
        struct create_plan plan;
        create_plan_make(&plan, hosts, count, replicas);
        int before[40] = {0}, after[40] = {0}, score = create_plan_score(&plan);
        for (int i = 0; i < count; i++)
            if (plan.nodes[i].primary >= 0) before[plan.nodes[i].primary]++;
        assert_true(create_plan_improve(&plan) <= score);
        for (int i = 0; i < count; i++)
            if (plan.nodes[i].primary >= 0) after[plan.nodes[i].primary]++;
        assert_memory_equal(before, after, sizeof before);
        for (int i = 0; i < plan.primaries; i++) assert_in_range(after[plan.order[i]], replicas, count);
        create_plan_free(&plan);
    }
}

/* --- reshard --- */

TEST(slots_are_taken_in_proportion_the_lowest_first) {
    struct slot_bitmap a = {{0}}, b = {{0}};
    slot_bitmap_set_range(&a, 100, 5558);    /* 5459 */
    slot_bitmap_set_range(&b, 10923, 16383); /* 5461 */
    const struct slot_bitmap *sources[] = {&a, &b};
    struct slot_move moves[HASH_SLOTS];
    assert_int_equal(reshard_plan(sources, 2, 5, moves), 5);
    static const struct slot_move expected[] = {{10923, 1}, {10924, 1}, {10925, 1}, {100, 0}, {101, 0}};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(moves[i].slot, expected[i].slot);
        assert_int_equal(moves[i].source, expected[i].source);
    }
}

TEST(as_many_slots_as_wanted_move_where_there_are_so_many) {
    for (int round = 0; round < 500; round++) {
        struct slot_bitmap sets[6] = {{{0}}}, taken = {{0}};
        const struct slot_bitmap *sources[6];
        int count = 1 + (int)random_below(6), total = 0, wanted = (int)random_below(HASH_SLOTS + 1);
        for (int slot = 0; slot < HASH_SLOTS; slot++) {
            uint64_t owner = random_below(7);
            if (owner < (uint64_t)count) slot_bitmap_set(&sets[owner], slot), total++;
        }
        for (int i = 0; i < count; i++) sources[i] = &sets[i];
        static struct slot_move moves[HASH_SLOTS];
        int planned = reshard_plan(sources, count, wanted, moves);
        assert_int_equal(planned, wanted < total ? wanted : total);
        for (int i = 0; i < planned; i++) {
            assert_true(slot_bitmap_has(sources[moves[i].source], moves[i].slot));
            assert_false(slot_bitmap_has(&taken, moves[i].slot));
            slot_bitmap_set(&taken, moves[i].slot);
        }
    }
    assert_int_equal(reshard_plan(NULL, 0, 10, NULL), 0);
}

/* --- rebalance --- */

TEST(a_new_node_gets_its_share_from_all) {
    struct rebalance_node nodes[] = {{5461, 1, 0}, {0, 1, 0}, {5462, 1, 0}, {5461, 1, 0}};
    struct rebalance_move moves[4];
    assert_int_equal(rebalance_plan(nodes, 4, 2, moves), 3);
    static const struct rebalance_move expected[] = {{2, 1, 1366}, {3, 1, 1365}, {0, 1, 1365}};
    assert_memory_equal(moves, expected, sizeof expected);
}

TEST(weights_decide_the_shares) {
    struct rebalance_node nodes[] = {{4096, 2, 0}, {4096, 1, 0}, {4096, 1, 0}, {4096, 0.5, 0}};
    struct rebalance_move moves[4];
    assert_int_equal(rebalance_plan(nodes, 4, 2, moves), 3);
    static const struct rebalance_move expected[] = {{3, 0, 2276}, {2, 0, 456}, {1, 0, 456}};
    assert_memory_equal(moves, expected, sizeof expected);
    struct rebalance_node leaving[] = {{4096, 0, 0}, {4096, 1, 0}, {4096, 1, 0}, {4096, 1, 0}};
    assert_int_equal(rebalance_plan(leaving, 4, 1, moves), 3);
    static const struct rebalance_move emptied[] = {{0, 1, 1366}, {0, 2, 1365}, {0, 3, 1365}};
    assert_memory_equal(moves, emptied, sizeof emptied);
}

TEST(nodes_within_the_threshold_stay_as_they_are) {
    struct rebalance_node nodes[] = {{5400, 1, 0}, {5500, 1, 0}, {5484, 1, 0}};
    struct rebalance_move moves[3];
    assert_int_equal(rebalance_plan(nodes, 3, 2, moves), 0);
    assert_in_range(rebalance_plan(nodes, 3, 1, moves), 1, 2);
}

TEST(rebalancing_ends_at_the_shares_and_loses_no_slot) {
    for (int round = 0; round < 2000; round++) {
        struct rebalance_node nodes[12];
        struct rebalance_move moves[12];
        int count = 1 + (int)random_below(12), left = HASH_SLOTS;
        double total = 0;
        for (int i = 0; i < count; i++) {
            int slots = i == count - 1 ? left : (int)random_below((uint64_t)left + 1);
            nodes[i] = (struct rebalance_node){slots, (double)random_below(5) / 2, 0};
            total += nodes[i].weight;
            left -= slots;
        }
        if (total <= 0) continue;
        int planned = rebalance_plan(nodes, count, 0, moves);
        assert_in_range(planned, 0, count);
        for (int i = 0; i < planned; i++) {
            nodes[moves[i].source].slots -= moves[i].slots;
            nodes[moves[i].target].slots += moves[i].slots;
            assert_true(moves[i].slots > 0 && nodes[moves[i].source].slots >= 0);
        }
        if (!planned) continue;
        for (int i = 0; i < count; i++) {
            double share = HASH_SLOTS / total * nodes[i].weight;
            assert_true(nodes[i].slots >= (int)share && nodes[i].slots <= (int)share + count);
            if (nodes[i].weight == 0) assert_int_equal(nodes[i].slots, 0);
        }
    }
}

/* --- fix --- */

/* A letter of `states` for each node: O owner, M owner that migrates to the node at `to`, I importing, - nothing; and a
 * digit of `keys`, how many keys it has. */
static struct fix_plan plan_of(const char *states, const char *keys, int to, struct fix_node nodes[8]) {
    int count = (int)strlen(states);
    for (int i = 0; i < count; i++) {
        nodes[i] = (struct fix_node){.owner = states[i] == 'O' || states[i] == 'M',
                                     .migrating = states[i] == 'M',
                                     .importing = states[i] == 'I',
                                     .keys = (uint64_t)(keys[i] - '0'),
                                     .migrating_to = states[i] == 'M' ? to : -1};
    }
    return fix_plan_make(nodes, count);
}

TEST(open_slots_are_closed_case_by_case) {
    static const struct {
        const char *states, *keys;
        int to;
        struct fix_plan plan; /* action, owner, source, target, choose_owner */
    } cases[] = {
        {"MI-", "600", 1, {FIX_MOVE, 0, 0, 1, false}},
        {"MI-", "000", 1, {FIX_MOVE, 0, 0, 1, false}},
        {"OI-", "000", -1, {FIX_GATHER, 0, -1, 1, false}},
        {"OII", "900", -1, {FIX_GATHER, 0, -1, 2, false}},
        {"MII", "000", 1, {FIX_MOVE_CLOSE, 0, 0, 1, false}},
        {"MI-I", "0000", 2, {FIX_CLOSE_ALL, 0, 0, -1, false}},
        {"M--", "700", 1, {FIX_CLOSE, 0, 0, -1, false}},
        {"MI-", "120", 1, {FIX_GATHER, 1, -1, 0, true}}, /* keys on both sides: the one with more gathers them */
        {"MI-", "310", 1, {FIX_GATHER, 0, -1, 1, true}},
        {"MII", "120", 1, {FIX_GATHER, 1, -1, 2, true}},
        {"OI-", "120", -1, {FIX_GATHER, 1, -1, 0, true}},
        {"-I-", "000", -1, {FIX_GATHER, 0, -1, 1, true}}, /* nobody owns it */
        {"I--", "000", -1, {FIX_DONE, 0, -1, -1, true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fix_node nodes[8];
        struct fix_plan plan = plan_of(cases[i].states, cases[i].keys, cases[i].to, nodes);
        if (plan.action != cases[i].plan.action || plan.owner != cases[i].plan.owner ||
            plan.choose_owner != cases[i].plan.choose_owner || plan.target != cases[i].plan.target ||
            (plan.action != FIX_GATHER && plan.source != cases[i].plan.source))
            fail_msg("%s %s: action %d owner %d source %d target %d choose %d", cases[i].states, cases[i].keys,
                     plan.action, plan.owner, plan.source, plan.target, plan.choose_owner);
    }
    assert_int_equal(fix_plan_make(NULL, 0).action, FIX_NONE);
}

TEST(keys_on_nodes_that_do_not_own_the_slot_are_found) {
    struct fix_node nodes[8];
    plan_of("OI-", "120", -1, nodes);
    assert_true(nodes[1].found_as_owner && !nodes[0].found_as_owner);
    assert_true(nodes[0].found && !nodes[1].found);
    plan_of("MI-", "003", 1, nodes);
    assert_true(nodes[2].found_as_owner && nodes[2].found && !nodes[1].found);
}

/* Every key ends at the owner: a plan never leaves keys on a node that neither owns the slot nor gives them away. */
TEST(no_plan_leaves_keys_behind) {
    int planned = 0;
    for (int round = 0; round < 20000; round++) {
        char states[6], keys[6];
        int count = 2 + (int)random_below(4), to = (int)random_below((uint64_t)count);
        for (int i = 0; i < count; i++) {
            states[i] = "OMI--"[random_below(5)];
            keys[i] = (char)('0' + random_below(2) * random_below(5));
        }
        states[count] = keys[count] = '\0';
        struct fix_node nodes[8];
        struct fix_plan plan = plan_of(states, keys, to, nodes);
        if (plan.action == FIX_NONE) continue;
        planned++;
        int final = plan.action == FIX_MOVE || plan.action == FIX_MOVE_CLOSE ? plan.target : plan.owner;
        for (int i = 0; i < count; i++) {
            bool moved = plan.action == FIX_GATHER ? nodes[i].importing : i == plan.source;
            if (i != final && keys[i] != '0' && !moved) fail_msg("%s %s: keys stay on node %d", states, keys, i);
        }
    }
    assert_in_range(planned, 10000, 20000);
}
