/* The addresses that clients are told, and the kept replies of CLUSTER NODES, SLOTS and SHARDS: they must be what a new
 * reply would be, whatever happens in the cluster. */
#include "unit.h"
#include <stdbool.h>
#include "cluster/settings.h"
#include "cluster/this_node.h"
#include "cluster/views.h"
#include "../simulation/cluster_simulator.h"
#include "server/clients/client.h"

static struct sim sim;
enum { KINDS = 3, NODES_MAX = 16 };
static void (*const writers[KINDS])(struct reply *reply, struct endpoint_view view) = {views_nodes, views_slots,
                                                                                       views_shards};
static const char *const names[KINDS] = {"NODES", "SLOTS", "SHARDS"};

static void write_view(struct memory_output *out, unsigned kind, unsigned view, uint8_t protocol) {
    struct endpoint_view endpoint = {view / 4, view / 2 % 2, view % 2};
    assert_int_equal(endpoint_view_index(endpoint), view);
    memory_output_clear(out);
    struct reply reply = {.out = &out->out, .protocol = protocol};
    writers[kind](&reply, endpoint);
}

static const char *redirection(const struct cluster_node *node, unsigned slot, bool ask, const struct client *client) {
    struct slice text = endpoint_redirection(node, slot, ask, client);
    assert_int_equal(text.data[text.len], 0);
    assert_int_equal(strlen(text.data), text.len);
    return text.data;
}

/* Views are kept for a cluster and a version: a cluster of the test before may have had both the same. */
static void forget_views(void) {
    static uint64_t tests;
    tests++;
    for (size_t i = 0; i < sim.count; i++) sim.machines[i].cluster->view_version += tests << 32;
}

/* Compares all kept replies of a machine with new ones. */
static unsigned compare_views(struct sim_machine *machine) {
    static struct memory_output kept[KINDS][ENDPOINT_VIEWS][2], made;
    static char moved[NODES_MAX][128];
    static struct client *client;
    unsigned compared = 0;
    this_cluster = machine->cluster;
    if (!this_cluster) return 0;
    if (!made.out.ops) {
        memory_output_init(&made);
        for (struct memory_output *out = &kept[0][0][0]; out < &kept[0][0][0] + sizeof kept / sizeof *out; out++)
            memory_output_init(out);
    }
    for (unsigned kind = 0; kind < KINDS; kind++)
        for (unsigned view = 0; view < ENDPOINT_VIEWS; view++)
            for (uint8_t protocol = 2; protocol <= 3; protocol++)
                write_view(&kept[kind][view][protocol - 2], kind, view, protocol);
    if (!client) client = client_new(NULL);
    const struct node_table *nodes = &this_cluster->nodes;
    for (size_t i = 0; i < nodes->count; i++)
        snprintf(moved[i], sizeof moved[i], "%s", redirection(nodes->list[i], 7, false, client));
    cluster_options.version++; /* what was kept is outdated */
    for (size_t i = 0; i < nodes->count; i++)
        if (strcmp(moved[i], redirection(nodes->list[i], 7, false, client)) != 0)
            sim_fail(&sim, "a redirection of machine %u, \"%s\", is outdated", machine->index, moved[i]);
    for (unsigned kind = 0; kind < KINDS; kind++) {
        for (unsigned view = 0; view < ENDPOINT_VIEWS; view++) {
            for (uint8_t protocol = 2; protocol <= 3; protocol++, compared++) {
                write_view(&made, kind, view, protocol);
                struct slice old = memory_output_slice(&kept[kind][view][protocol - 2]);
                struct slice new = memory_output_slice(&made);
                if (slice_equal(old, new)) continue;
                printf("kept:\n%.*s\nnew:\n%.*s\n", (int)old.len, old.data, (int)new.len, new.data);
                sim_fail(&sim, "CLUSTER %s of machine %u, view %u, RESP%u, is outdated", names[kind], machine->index,
                         view, protocol);
            }
        }
    }
    return compared;
}

/* One machine at a time: the replies of another one are made anew. */
static void run_and_compare(unsigned index, unsigned steps) {
    for (unsigned i = 0; i < steps; i++) {
        sim_run(&sim, 1 + sim_below(&sim, 60));
        compare_views(&sim.machines[index]);
    }
}

TEST(replies_follow_what_happens) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        sim_init(&sim, seed, 8, 1000);
        sim_build(&sim, 3, 60000);
        unsigned observer = (unsigned)seed % 2 ? 0 : 4; /* a primary, a replica */
        run_and_compare(observer, 60);
        sim.break_one_in = 200;
        run_and_compare(observer, 60);
        sim.break_one_in = 0;
        struct cluster *cluster = sim.machines[observer].cluster;
        int64_t now_ms = sim_time(&sim.machines[observer]);
        assert_null(cluster_meet(cluster, "10.9.9.9", 7000, 17000, "test", now_ms)); /* nobody is there */
        run_and_compare(observer, 40);
        sim_crash(&sim.machines[1]);
        run_and_compare(observer, 100);
        sim_start(&sim.machines[1]);
        run_and_compare(observer, 60);
        sim_freeze(&sim.machines[2], 3000);
        run_and_compare(observer, 160);
        for (unsigned i = 0; i < sim.count; i++) {
            struct sim_machine *machine = &sim.machines[i];
            machine->settings.hostname = i % 2 ? "" : "host.example";
            machine->settings.client_ipv4 = i % 3 ? "" : "192.0.2.7";
            machine->settings.client_rdma_port = (uint16_t)(7000 + i);
            machine->settings.replica_no_failover = i % 2;
            machine->settings.availability_zone = "zone";
            if (machine->cluster) cluster_configure(machine->cluster, &machine->settings, sim_time(machine));
            run_and_compare(observer, 10);
        }
        struct node_id other = cluster->nodes.list[cluster->nodes.list[0] == cluster->myself]->id;
        if (cluster->myself->primary) other = cluster->myself->primary->id;
        cluster_set_slot_importing(cluster, sim.first_slot[1], &other, sim_time(&sim.machines[observer]));
        run_and_compare(observer, 10);
        for (size_t i = 0; i < cluster->nodes.count; i++) {
            struct cluster_node *node = cluster->nodes.list[i];
            if (node == cluster->myself || node == cluster->myself->primary) continue;
            struct node_id id = node->id;
            assert_null(cluster_forget(cluster, &id, "test", sim_time(&sim.machines[observer])));
            break;
        }
        run_and_compare(observer, 20);
        if (node_is_replica(cluster->myself))
            assert_null(cluster_reset(cluster, true, "test", sim_time(&sim.machines[observer])));
        run_and_compare(observer, 20);
        this_cluster = NULL;
        sim_free(&sim);
    }
}

/* Changes that come alone, so that no other one can hide that the machine does not report them. */
TEST(each_change_is_seen_by_itself) {
    sim_init(&sim, 9, 4, 1000);
    sim_build(&sim, 2, 60000);
    forget_views();
    sim_run(&sim, 5000);
    struct sim_machine *observer = &sim.machines[0], *peer = &sim.machines[3];
    struct cluster *cluster = observer->cluster;
    compare_views(observer);
    uint64_t version = cluster->view_version;
    sim_run(&sim, 1000);
    assert_int_equal(cluster->view_version, version); /* nothing happens */

    peer->settings.replica_no_failover = true;
    cluster_configure(peer->cluster, &peer->settings, sim_time(peer));
    run_and_compare(0, 60);
    peer->settings.rdma_port = 6400;
    cluster_configure(peer->cluster, &peer->settings, sim_time(peer));
    run_and_compare(0, 60);
    observer->settings.rdma_port = 6401;
    cluster_configure(cluster, &observer->settings, sim_time(observer));
    compare_views(observer);

    size_t nodes = cluster->nodes.count;
    assert_null(cluster_meet(cluster, "10.9.9.9", 7000, 17000, "test", sim_time(observer)));
    compare_views(observer);
    assert_int_equal(cluster->nodes.count, nodes + 1);
    run_and_compare(0, 80);
    assert_int_equal(cluster->nodes.count, nodes); /* the handshake has failed */

    /* The offset of this node is not of the machine. */
    struct sim_machine *replica = &sim.machines[2];
    assert_true(node_is_replica(replica->cluster->myself));
    replica->offset = 0;
    compare_views(replica);
    replica->offset = 77;
    compare_views(replica);
    this_cluster = NULL;
    sim_free(&sim);
}

TEST(a_number_that_grows_moves_the_rest) {
    sim_init(&sim, 7, 4, 1000);
    sim_build(&sim, 2, 60000);
    forget_views();
    struct cluster *cluster = sim.machines[0].cluster;
    static const uint64_t values[] = {0, 9, 10, 99999, 100000, 5, UINT64_MAX, 0, 1};
    compare_views(&sim.machines[0]);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        for (size_t at = 0; at < cluster->nodes.count; at++) {
            struct cluster_node *node = cluster->nodes.list[at];
            node->beat->ping_sent_ms = (int64_t)(values[i] >> 1);
            node->beat->pong_received_ms = (int64_t)(values[(i + at) % 9] >> 1);
            if (node->beat->offset && values[i]) node->beat->offset = values[i];
        }
        assert_int_equal(compare_views(&sim.machines[0]), KINDS * ENDPOINT_VIEWS * 2);
    }
    this_cluster = NULL;
    sim_free(&sim);
}

/* A replica without data is not shown by SLOTS, and "loading" in SHARDS; a failed one is "fail" and not shown. */
static bool view_has(unsigned kind, const char *text) {
    struct memory_output out;
    memory_output_init(&out);
    write_view(&out, kind, 0, 3);
    struct slice bytes = memory_output_slice(&out);
    bool found = memmem(bytes.data, bytes.len, text, strlen(text)) != NULL;
    memory_output_free(&out);
    return found;
}
TEST(replicas_without_data_are_not_offered) {
    sim_init(&sim, 8, 4, 1000);
    sim_build(&sim, 2, 60000);
    forget_views();
    sim.writes = true;
    sim_run(&sim, 3000);
    this_cluster = sim.machines[0].cluster;
    char id[NODE_ID_LEN + 1] = "";
    memcpy(id, sim.machines[2].cluster->myself->id.text, NODE_ID_LEN);
    struct cluster_node *replica = nodes_find(&this_cluster->nodes, &sim.machines[2].cluster->myself->id);
    for (int i = 0; i < 100 && !replica->beat->offset; i++) sim_run(&sim, 100); /* until a ping tells it */
    assert_true(node_is_replica(replica) && replica->beat->offset);
    assert_true(view_has(1, id));
    assert_false(view_has(2, "loading"));
    replica->beat->offset = 0;
    this_cluster->view_version++;
    assert_false(view_has(1, id));
    assert_true(view_has(2, "loading"));
    sim_crash(&sim.machines[2]);
    sim_run(&sim, 5000);
    assert_true(node_failed(replica));
    assert_false(view_has(1, id));
    assert_true(view_has(2, "$4\r\nfail\r\n"));
    this_cluster = NULL;
    sim_free(&sim);
}

TEST(endpoints_depend_on_kind_family_and_options) {
    const struct endpoint_view tcp = {.kind = ENDPOINT_TCP}, tcp6 = {.family = ENDPOINT_IPV6},
                               tls = {.kind = ENDPOINT_TLS}, rdma = {.kind = ENDPOINT_RDMA},
                               tcp_capable = {.with_rdma_ports = true};
    struct cluster_node node = {.address = "10.0.0.1", .port = 6379};
    assert_string_equal(endpoint_host(&node, tcp), "10.0.0.1");
    assert_int_equal(endpoint_port(&node, tcp), 6379);
    assert_int_equal(endpoint_port(&node, tls), 0);
    assert_int_equal(endpoint_port(&node, rdma), 6379); /* it has no RDMA */
    assert_int_equal(endpoint_named_rdma_port(&node, tcp_capable), 0);
    node.tls_port = 6380;
    node.rdma_port = 6381;
    assert_int_equal(endpoint_port(&node, tls), 6380);
    assert_int_equal(endpoint_port(&node, rdma), 6381);
    node.announced.client_port = 1;
    node.announced.client_tls_port = 2;
    node.client_rdma_port = 3;
    assert_int_equal(endpoint_port(&node, tcp), 1);
    assert_int_equal(endpoint_port(&node, tls), 2);
    assert_int_equal(endpoint_port(&node, rdma), 3);
    assert_int_equal(endpoint_named_rdma_port(&node, tcp_capable), 3);
    assert_int_equal(endpoint_named_rdma_port(&node, tcp), 0);
    node.announced.client_ipv6 = "fe80::1";
    assert_string_equal(endpoint_ip(&node, tcp), "10.0.0.1");
    assert_string_equal(endpoint_ip(&node, tcp6), "fe80::1");
    node.announced.client_ipv4 = "192.0.2.1";
    assert_string_equal(endpoint_ip(&node, tcp), "192.0.2.1");

    struct cluster cluster = {0};
    this_cluster = &cluster;
    struct client *client = client_new(NULL);
    assert_string_equal(redirection(&node, 866, false, client), "MOVED 866 192.0.2.1:1");
    assert_string_equal(redirection(&node, 16383, true, client), "ASK 16383 192.0.2.1:1");
    cluster_options.preferred_endpoint = ENDPOINT_HOSTNAME;
    assert_string_equal(endpoint_host(&node, tcp), "?");
    node.announced.hostname = "host.example";
    cluster.view_version++;
    assert_string_equal(redirection(&node, 0, false, client), "MOVED 0 host.example:1");
    for (unsigned slot = 0; slot < HASH_SLOTS; slot++) {
        char expected[64];
        snprintf(expected, sizeof expected, "MOVED %u host.example:1", slot);
        assert_string_equal(redirection(&node, slot, false, client), expected);
    }
    assert_false(endpoint_is_unknown());
    cluster_options.preferred_endpoint = ENDPOINT_UNKNOWN;
    cluster_options.version++;
    assert_true(endpoint_is_unknown());
    assert_string_equal(redirection(&node, 0, false, client), "MOVED 0 :1");
    cluster_options.preferred_endpoint = ENDPOINT_IP;
    cluster_options.version++;
    client_free(client);
    this_cluster = NULL;
}
