/* rdma_suite.h: the set-ups of the test programs of the RDMA transport (test_rdma.c, test_rdma_keepalive.c,
 * test_rdma_peers.c). RDMA_IP is the address of the device, RDMA_TEST_BULK the length of the long streams. */
#pragma once
#pragma GCC diagnostic ignored "-Wunused-function" /* a program need not use all of the suite */
#include "net/rdma/rdma.h"
#include "net/rdma/connection.h"
#include "rdma_device_arranged.h"
#include "transport_suite.h"

static inline int use_rdma(void **state) {
    suite = (struct suite){.transport = &transport_rdma, .bulk = 100 << 20, .crowd = 500};
    const char *ip = getenv("RDMA_IP"), *bulk = getenv("RDMA_TEST_BULK");
    snprintf(suite.host, sizeof suite.host, "%s", ip ? ip : "127.0.0.1");
    if (bulk) suite.bulk = strtoul(bulk, NULL, 10);
    rdma_settings.rx_size = 64 * 1024;
    rdma_settings.features = RDMA_FEATURE_RING;
    return 0;
}
static inline int use_base_protocol(void **state) {
    use_rdma(state);
    rdma_settings.features = 0;
    return 0;
}
/* Polled from the first message on. */
static inline int use_polled(void **state) {
    use_rdma(state);
    rdma_settings.features = RDMA_FEATURE_RING | RDMA_FEATURE_POLLED;
    rdma_settings.poll_after = 1;
    rdma_settings.busy_poll_us = 1000;
    return 0;
}
static inline int leave_polled(void **state) {
    rdma_settings.poll_after = 64;
    rdma_settings.busy_poll_us = 20;
    return 0;
}

/* Requests and replies of one byte. */
static inline void ping_pong(int count) {
    for (int i = 0; i < count; i++) {
        send_stream(&client, client.sent + 1);
        turn_until(server.consumed == client.sent);
        send_stream(&server, server.sent + 1);
        turn_until(client.consumed == server.sent);
    }
}
