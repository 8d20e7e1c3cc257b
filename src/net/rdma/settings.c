/* settings.c: see settings.h. */
#include "net/rdma/settings.h"
#include "net/rdma/wire.h"

struct rdma_settings rdma_settings = {
    .rx_size = RDMA_RX_SIZE_DEFAULT,
    .completion_vector = -1,
    .busy_poll_us = 20,
    .keepalive_ms = 3000,
    .connect_timeout_ms = 5000,
    .ack_timeout_ms = 250,
    .traffic_class = -1,
    .trust_timeout_ms = 10000,
    .features = RDMA_FEATURE_RING | RDMA_FEATURE_POLLED,
    .poll_after = 64,
    .send_memory = 256 * 1024 * 1024,
    .zero_copy_min = RDMA_ZERO_COPY_MIN_DEFAULT,
};

struct rdma_hooks rdma_hooks;

const char *rdma_error_name(enum rdma_error error) {
    static const char *const names[RDMA_ERRORS] = {
        [RDMA_ERROR_PROTOCOL] = "protocol",
        [RDMA_ERROR_TIMEOUT] = "timeout",
        [RDMA_ERROR_RNR] = "rnr",
        [RDMA_ERROR_ACCESS] = "access",
        [RDMA_ERROR_PEER_GONE] = "peer_gone",
        [RDMA_ERROR_CONNECT] = "connect",
        [RDMA_ERROR_REGISTRATION] = "registration",
        [RDMA_ERROR_RESOURCES] = "resources",
        [RDMA_ERROR_DEVICE] = "device",
        [RDMA_ERROR_OTHER] = "other",
    };
    return names[error];
}

const char *rdma_refusal_name(enum rdma_refusal refusal) {
    static const char *const names[RDMA_REFUSALS] = {
        [RDMA_REFUSED_MAX_CLIENTS] = "max_clients",  [RDMA_REFUSED_FULL] = "full",
        [RDMA_REFUSED_MEMORY] = "registered_memory", [RDMA_REFUSED_UNTRUSTED] = "unauthenticated_memory",
        [RDMA_REFUSED_RESOURCES] = "resources",
    };
    return names[refusal];
}

static bool in_forked_child;

bool rdma_usable(void) {
    return !in_forked_child;
}
void rdma_after_fork_child(void) {
    in_forked_child = true;
}
