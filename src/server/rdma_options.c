/* rdma_options.c: what an operator sets of the RDMA transport; what there is to see is in rdma_info.c. Where to listen is in listeners.c. A build without RDMA knows the options too, so that one
 * configuration file serves both. */
#include "server/rdma_options.h"
#include "lib/number.h"
#include "net/connection.h"
#ifdef USE_RDMA
#include "net/rdma.h"
#endif

static int64_t rx_size, send_memory;
static int completion_vector, busy_poll_us, keepalive_ms, connect_timeout_ms, max_clients;

const char *rdma_option_check(const struct config_option *option, struct slice text) {
    if (transport_find("rdma") || slice_equal(text, slice_of(option->initial))) return NULL;
    return "this server was built without RDMA (BUILD_RDMA=no)";
}

void rdma_options_apply(void) {
#ifdef USE_RDMA
    rdma_settings.rx_size = (uint32_t)rx_size;
    rdma_settings.send_memory = (uint64_t)send_memory;
    rdma_settings.completion_vector = completion_vector;
    rdma_settings.busy_poll_us = (uint32_t)busy_poll_us;
    rdma_settings.keepalive_ms = (uint32_t)keepalive_ms;
    rdma_settings.connect_timeout_ms = (uint32_t)connect_timeout_ms;
    rdma_settings.max_clients = (uint32_t)max_clients;
#endif
}

static const char *apply(void) {
    rdma_options_apply();
    return NULL;
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
        if (number < -1 || number > VECTOR_MAX) return config_reason("argument must be between -1 and %d inclusive", VECTOR_MAX);
    }
    completion_vector = (int)number;
    return NULL;
}
static void get_vector(const struct config_option *option, struct output *out) {
    char text[NUMBER_TEXT_MAX];
    if (completion_vector == VECTOR_AUTO) output_write(out, slice_of("auto"));
    else output_write(out, (struct slice){text, format_int64(text, completion_vector)});
}

#define RDMA .apply = apply
const struct config_option rdma_options[] = {
    {.name = "rdma-rx-size", .type = CONFIG_MEMORY, .value = &rx_size, .initial = "1048576", .min = 64 * 1024, .max = 16 * 1024 * 1024, RDMA,
     .help = "Bytes of a connection's RDMA receive buffer."},
    {.name = "rdma-completion-vector", .type = CONFIG_CUSTOM, .initial = "-1", .set = set_vector, .get = get_vector, RDMA,
     .help = "Completion vector whose interrupt serves the connections; -1: a random one; auto: that of the server's CPU."},
    {.name = "rdma-busy-poll-us", .type = CONFIG_INT, .value = &busy_poll_us, .initial = "20", .min = 0, .max = 1000000, RDMA,
     .help = "Microseconds to go on polling for RDMA completions before sleeping; 0: sleep at once."},
    {.name = "rdma-keepalive-ms", .type = CONFIG_INT, .value = &keepalive_ms, .initial = "3000", .min = 0, .max = INT32_MAX, RDMA,
     .help = "Milliseconds between two signs of life on an RDMA connection; 0: none."},
    {.name = "rdma-connect-timeout-ms", .type = CONFIG_INT, .value = &connect_timeout_ms, .initial = "5000", .min = 1, .max = INT32_MAX, RDMA,
     .help = "Milliseconds that connecting by RDMA may take."},
    {.name = "rdma-max-clients", .type = CONFIG_INT, .value = &max_clients, .initial = "0", .min = 0, .max = INT32_MAX, RDMA,
     .help = "RDMA connections at a time; 0: as many as maxclients allows."},
    {.name = "rdma-send-memory", .type = CONFIG_MEMORY, .value = &send_memory, .initial = "268435456", .min = 2 * 1024 * 1024, .max = INT64_MAX, RDMA,
     .help = "Bytes of registered memory that replies may wait in; more waits in ordinary memory."},
    {.name = NULL},
};
