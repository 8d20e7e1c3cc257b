/* rdma_debug.c: DEBUG RDMA. A subcommand is a function and a line in the table.
 *
 * The counts of objects are gauges: a test reads them before and after an operation and expects them to be equal. */
#include "server/debug/debug.h"
#ifdef USE_RDMA
#include "lib/text/number.h"
#include "net/rdma/rdma.h"
#include "net/rdma/tls.h"
#include "server/server.h"

struct rdma_debug {
    const char *name;
    int min_arguments, max_arguments; /* after the name */
    void (*run)(struct call *call);   /* argv[3] is the first argument */
};

static void run_resources(struct call *call) {
    const struct rdma_stats *s = rdma_stats();
    const struct {
        const char *name;
        uint64_t value;
    } gauges[] = {
        {"connections", s->connections},
        {"queue-pairs", s->queue_pairs},
        {"completion-queues", s->completion_queues},
        {"memory-regions", s->memory_regions - s->value_regions}, /* those of values stay for the life of the value */
        {"registered-bytes", s->registered_bytes - s->registered[RDMA_MEMORY_VALUES]},
        {"send-chunks", s->send_chunks},
        {"send-chunks-used", s->send_chunks_used},
        {"receive-buffers", s->receive_buffers},
        {"receive-buffers-ready", s->receive_ready},
        {"receives-posted", s->receives_posted},
    };
    size_t count = sizeof gauges / sizeof *gauges;
    reply_map(call->reply, count);
    for (size_t i = 0; i < count; i++) {
        reply_bulk_text(call->reply, gauges[i].name);
        reply_integer(call->reply, (int64_t)gauges[i].value);
    }
}

static void run_trim(struct call *call) {
    rdma_trim(server.loop);
    reply_ok(call->reply);
}

#ifdef USE_TLS
static void run_tls_handshakes(struct call *call) {
    uint64_t most;
    if (!parse_uint64(call->argv[3], &most) || most == 0 || most > UINT32_MAX) {
        reply_error(call->reply, "ERR value is not an integer or out of range");
        return;
    }
    rdma_tls_handshakes_max = (uint32_t)most;
    reply_ok(call->reply);
}
#endif

static const struct rdma_debug table[] = {
    {"resources", 0, 0, run_resources},
    {"trim", 0, 0, run_trim},
#ifdef USE_TLS
    {"tls-handshakes", 1, 1, run_tls_handshakes},
#endif
};

static void run_rdma(struct call *call) {
    int arguments = call->argc - 3;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!slice_is(call->argv[2], table[i].name)) continue;
        if (arguments < table[i].min_arguments || arguments > table[i].max_arguments) break;
        table[i].run(call);
        return;
    }
    reply_error(call->reply, "ERR unknown subcommand or wrong number of arguments for 'rdma'. Try DEBUG HELP.");
}

static const char *const help[] = {
    "RDMA RESOURCES",
    "    Count what the RDMA transport holds now: a map of names and numbers.",
    "RDMA TRIM",
    "    Give registered memory that is kept for later back to the system.",
#ifdef USE_TLS
    "RDMA TLS-HANDSHAKES <count>",
    "    At most this many handshakes of a thread are in progress over RDMA (1024 at the start).",
#endif
    NULL};
const struct debug_subcommand rdma_debug_subcommands[] = {
    {"rdma", 1, -1, run_rdma, help},
    {NULL, 0, 0, NULL, NULL},
};
#else
const struct debug_subcommand rdma_debug_subcommands[] = {{NULL, 0, 0, NULL, NULL}};
#endif
