/* Keepalives of the RDMA transport: they are sent when they are due, are not delivered, and do not count as a flood.
 *
 * If the machine has no RDMA device, the program restarts itself under utils/softrdma/softrdma. */
#ifdef USE_RDMA
#include "net/rdma/completion.h"
#include "net/rdma/lifetime.h"
#include "net/rdma/send.h"
#include "rdma_suite.h"
#include <endian.h>

/* When this thread was stopped, by a debugger or with the machine, all keepalives of that time arrive together. */
static void keepalives_of_a_long_pause_are_no_flood(void **state) {
    open_both();
    struct rdma_connection *c = rdma_of(server.conn);
    turn_until(c->receive.registered && rdma_of(client.conn)->send.window);
    const union rdma_wire_message message = {.opcode = htobe16(RDMA_OP_KEEPALIVE)};
    uint32_t before = c->negotiation.messages;
    c->owner->ticked_us = c->owner->ticked_before_us = clock_monotonic_us() - 60 * 1000000;
    for (int i = 0; i < 1000; i++)
        while (!rdma_send_control(rdma_of(client.conn), &message)) rdma_device_drain(c->qp.device);
    while (c->negotiation.messages < before + 1000 && !c->end_pending && !c->ending.failure)
        rdma_device_drain(c->qp.device);
    assert_true(c->negotiation.messages >= before + 1000); /* a message of the negotiation may come late */
    rdma_connection_tick(c, clock_monotonic_us());
    ping_pong(10);
    assert_true(conn_is_open(server.conn));
}

static void keepalives_are_not_visible_to_the_user(void **state) {
    uint32_t before = rdma_settings.keepalive_ms;
    rdma_settings.keepalive_ms = 1;
    open_both();
    turn_until(rdma_of(server.conn)->receive.registered && rdma_of(client.conn)->receive.registered);
    uint64_t sent = rdma_stats()->control_out, received = rdma_stats()->control_in;
    turn_until(rdma_stats()->control_out >= sent + 8 && rdma_stats()->control_in >= received + 8);
    assert_int_equal(server.readable + client.readable + server.closed + client.closed, 0);
    rdma_settings.keepalive_ms = before;
}

static void a_peer_that_sleeps_on_its_full_buffer_is_sent_keepalives(void **state) {
    uint32_t period = rdma_settings.keepalive_ms;
    rdma_settings.keepalive_ms = 0;
    open_both();
    conn_set_reading(client.conn, false);
    server.on_drained = end_pump;
    send_stream(&server, 8 << 20);
    turn_until(rdma_of(server.conn)->send.stalled);
    uint64_t before = rdma_stats()->control_in;
    turn_until(rdma_stats()->control_in >= before + 3);
    conn_set_reading(client.conn, true);
    turn_until(client.consumed == server.to_send);
    assert_false(client.corrupt);
    rdma_settings.keepalive_ms = period;
}

int main(int argc, char **argv) {
    if (!rdma_device_arranged(argv[0])) return 1;
    const struct CMUnitTest tests[] = {
        SUITE_TEST(keepalives_are_not_visible_to_the_user),
        SUITE_TEST(keepalives_of_a_long_pause_are_no_flood),
    };
    const struct CMUnitTest base_tests[] = {
        SUITE_TEST(keepalives_are_not_visible_to_the_user),
        SUITE_TEST(a_peer_that_sleeps_on_its_full_buffer_is_sent_keepalives),
    };
    int failed = cmocka_run_group_tests_name("rdma keepalives", tests, use_rdma, NULL);
    return failed + cmocka_run_group_tests_name("rdma keepalives, base protocol", base_tests, use_base_protocol, NULL);
}
#endif
