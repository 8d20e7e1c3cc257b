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

static const char *apply(void) {
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

#define RDMA .apply = apply
const struct config_option rdma_options[] = {
    {.name = "rdma-rx-size",
     .type = CONFIG_MEMORY,
     .value = &rx_size,
     .initial = "1048576",
     .min = 64 * 1024,
     .max = 16 * 1024 * 1024,
     RDMA},
    {.name = "rdma-rx-initial-size",
     .type = CONFIG_MEMORY,
     .value = &rx_initial,
     .initial = "32768",
     .min = 4 * 1024,
     .max = 16 * 1024 * 1024,
     RDMA},
    {.name = "rdma-max-registered-memory",
     .type = CONFIG_MEMORY,
     .value = &max_registered,
     .initial = "1073741824",
     .min = 0,
     .max = INT64_MAX,
     RDMA,
     .check = check_max_registered},
    {.name = "rdma-max-unauthenticated-memory",
     .type = CONFIG_MEMORY,
     .value = &max_unauthenticated,
     .initial = "67108864",
     .min = 0,
     .max = INT64_MAX,
     RDMA},
    {.name = "rdma-authentication-timeout-ms",
     .type = CONFIG_INT,
     .value = &authentication_timeout_ms,
     .initial = "10000",
     .min = 0,
     .max = INT32_MAX,
     RDMA},
    {.name = "rdma-completion-vector",
     .type = CONFIG_CUSTOM,
     .initial = "-1",
     .set = set_vector,
     .get = get_vector,
     RDMA},
    {.name = "rdma-busy-poll-us",
     .type = CONFIG_INT,
     .value = &busy_poll_us,
     .initial = "20",
     .min = 0,
     .max = 1000000,
     RDMA},
    {.name = "rdma-keepalive-ms",
     .type = CONFIG_INT,
     .value = &keepalive_ms,
     .initial = "3000",
     .min = 0,
     .max = INT32_MAX,
     RDMA},
    {.name = "rdma-connect-timeout-ms",
     .type = CONFIG_INT,
     .value = &connect_timeout_ms,
     .initial = "5000",
     .min = 1,
     .max = INT32_MAX,
     RDMA},
    {.name = "rdma-ack-timeout-ms",
     .type = CONFIG_INT,
     .value = &ack_timeout_ms,
     .initial = "250",
     .min = 0,
     .max = 600000,
     RDMA},
    {.name = "rdma-traffic-class",
     .type = CONFIG_INT,
     .value = &traffic_class,
     .initial = "-1",
     .min = -1,
     .max = 255,
     RDMA},
    {.name = "rdma-features",
     .type = CONFIG_FLAGS,
     .value = &features,
     .initial = "ring polled",
     .names = feature_names,
     RDMA},
    {.name = "rdma-max-clients",
     .type = CONFIG_INT,
     .value = &max_clients,
     .initial = "0",
     .min = 0,
     .max = INT32_MAX,
     RDMA},
    {.name = "rdma-send-memory",
     .type = CONFIG_MEMORY,
     .value = &send_memory,
     .initial = "268435456",
     .min = 2 * 1024 * 1024,
     .max = INT64_MAX,
     RDMA},
    {.name = "rdma-zero-copy-min",
     .type = CONFIG_MEMORY,
     .value = &zero_copy_min,
     .initial = "2048",
     .min = 0,
     .max = INT64_MAX,
     RDMA},
    {.name = NULL},
};
