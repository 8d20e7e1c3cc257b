/* rdma_options.c: options of the RDMA transport; rdma_info.c shows its state, and listeners.c has the addresses. A
 * build without RDMA also knows the options, so that the same configuration file loads. */
#include "server/config/rdma_options.h"
#include "lib/text/number.h"
#include "net/connection.h"
#ifdef USE_RDMA
#include "net/rdma/rdma.h"
#include "net/rdma/wire.h"
#endif

static int64_t rx_size, rx_initial, send_memory, max_registered, max_unauthenticated, zero_copy_min;
static int completion_vector, busy_poll_us, keepalive_ms, connect_timeout_ms, ack_timeout_ms, authentication_timeout_ms,
    traffic_class, max_clients;

/* The option's numbering; the wire format uses other bits. */
enum { FEATURE_RING = 1, FEATURE_POLLED = 2 };
static int features;
static const struct config_name feature_names[] = {
    {"none", 0}, {"ring", FEATURE_RING}, {"polled", FEATURE_POLLED}, {NULL, 0}};

const char *rdma_option_check(const struct config_option *option, struct slice text) {
    if (transport_find("rdma") || slice_equal(text, slice_of(option->initial))) return NULL;
    return "this server was built without RDMA (BUILD_RDMA=no)";
}

void rdma_options_apply(void) {
#ifdef USE_RDMA
    rdma_settings.rx_size = (uint32_t)rx_size;
    rdma_settings.rx_initial = (uint32_t)rx_initial;
    rdma_settings.send_memory = (uint64_t)send_memory;
    rdma_settings.max_registered = (uint64_t)max_registered;
    rdma_settings.max_untrusted = (uint64_t)max_unauthenticated;
    rdma_settings.trust_timeout_ms = (uint32_t)authentication_timeout_ms;
    rdma_settings.zero_copy_min = (uint64_t)zero_copy_min;
    rdma_settings.completion_vector = completion_vector;
    rdma_settings.busy_poll_us = (uint32_t)busy_poll_us;
    rdma_settings.keepalive_ms = (uint32_t)keepalive_ms;
    rdma_settings.features =
        (features & FEATURE_RING ? RDMA_FEATURE_RING : 0) | (features & FEATURE_POLLED ? RDMA_FEATURE_POLLED : 0);
    rdma_settings.connect_timeout_ms = (uint32_t)connect_timeout_ms;
    rdma_settings.ack_timeout_ms = (uint32_t)ack_timeout_ms;
    rdma_settings.traffic_class = traffic_class;
    rdma_settings.max_clients = (uint32_t)max_clients;
    rdma_settings_changed();
#endif
}

static const char *rdma_option_apply(void) {
    rdma_options_apply();
    return NULL;
}

/* A smaller limit would not hold the send memory and the control messages of one device. */
static const char *check_max_registered(const struct config_option *option, struct slice text) {
    enum { LEAST = 8 * 1024 * 1024 };
    uint64_t bytes;
    if (!parse_memory(text, &bytes) || bytes == 0 || bytes >= LEAST) return NULL;
    return config_reason("argument must be 0 or at least %d", (int)LEAST);
}

/* A number, or "auto". */
enum { VECTOR_AUTO = -2, VECTOR_MAX = 1024 };
#ifdef USE_RDMA
_Static_assert((int)VECTOR_AUTO == (int)RDMA_VECTOR_AUTO, "");
#endif
static const char *set_vector(const struct config_option *option, int count, const struct slice *words) {
    int64_t number = VECTOR_AUTO;
    if (count != 1) return "wrong number of arguments";
    if (!slice_is(words[0], "auto")) {
        if (!parse_int64(words[0], &number)) return "argument couldn't be parsed into an integer";
        if (number < -1 || number > VECTOR_MAX)
            return config_reason("argument must be between -1 and %d inclusive", VECTOR_MAX);
    }
    completion_vector = (int)number;
    return NULL;
}
static void get_vector(const struct config_option *option, struct output *out) {
    char text[NUMBER_TEXT_MAX];
    if (completion_vector == VECTOR_AUTO)
        output_write(out, slice_of("auto"));
    else
        output_write(out, (struct slice){text, format_int64(text, completion_vector)});
}

#define RDMA .apply = rdma_option_apply
const struct config_option rdma_options[] = {
    {OPTION("rdma-rx-size", CONFIG_MEMORY, &rx_size, "1048576"), .min = 64 * 1024, .max = 16 * 1024 * 1024, RDMA},
    {OPTION("rdma-rx-initial-size", CONFIG_MEMORY, &rx_initial, "32768"), .min = 4 * 1024, .max = 16 * 1024 * 1024,
     RDMA},
    {OPTION("rdma-max-registered-memory", CONFIG_MEMORY, &max_registered, "1073741824"), .min = 0, .max = INT64_MAX,
     RDMA, .check = check_max_registered},
    {OPTION("rdma-max-unauthenticated-memory", CONFIG_MEMORY, &max_unauthenticated, "67108864"), .min = 0,
     .max = INT64_MAX, RDMA},
    {OPTION("rdma-authentication-timeout-ms", CONFIG_INT, &authentication_timeout_ms, "10000"), .min = 0,
     .max = INT32_MAX, RDMA},
    {OPTION("rdma-completion-vector", CONFIG_CUSTOM, NULL, "-1"), .set = set_vector, .get = get_vector, RDMA},
    {OPTION("rdma-busy-poll-us", CONFIG_INT, &busy_poll_us, "20"), .min = 0, .max = 1000000, RDMA},
    {OPTION("rdma-keepalive-ms", CONFIG_INT, &keepalive_ms, "3000"), .min = 0, .max = INT32_MAX, RDMA},
    {OPTION("rdma-connect-timeout-ms", CONFIG_INT, &connect_timeout_ms, "5000"), .min = 1, .max = INT32_MAX, RDMA},
    {OPTION("rdma-ack-timeout-ms", CONFIG_INT, &ack_timeout_ms, "250"), .min = 0, .max = 600000, RDMA},
    {OPTION("rdma-traffic-class", CONFIG_INT, &traffic_class, "-1"), .min = -1, .max = 255, RDMA},
    {OPTION("rdma-features", CONFIG_FLAGS, &features, "ring polled"), .names = feature_names, RDMA},
    {OPTION("rdma-max-clients", CONFIG_INT, &max_clients, "0"), .min = 0, .max = INT32_MAX, RDMA},
    {OPTION("rdma-send-memory", CONFIG_MEMORY, &send_memory, "268435456"), .min = 2 * 1024 * 1024, .max = INT64_MAX,
     RDMA},
    {OPTION("rdma-zero-copy-min", CONFIG_MEMORY, &zero_copy_min, "2048"), .min = 0, .max = INT64_MAX, RDMA},
    {.name = NULL},
};
