/* rdma_info.c: INFO rdma, from the counters that the transport keeps (net/rdma.h). They run from the start of the process on; what is
 * interesting is mostly how they stand to one another, so the ratios an operator would compute are given too. */
#include "server/rdma_info.h"
#ifdef USE_RDMA
#include "net/rdma.h"

static double ratio(uint64_t part, uint64_t whole) { return whole ? (double)part / (double)whole : 0; }

static void rdma_write(struct output *out) {
    const struct rdma_stats *s = rdma_stats();
    const char *device = rdma_device_name();
    struct {
        const char *name;
        uint64_t value;
    } counters[] = {
        {"rdma_connections", s->connections},
        {"rdma_accepted_connections", s->accepted},
        {"rdma_refused_connections", s->refused},
        {"rdma_failed_connections", s->failed},
        {"rdma_protocol_errors", s->protocol_errors},
        {"rdma_registered_bytes", s->registered_bytes},
        {"rdma_net_input_bytes", s->bytes_in},
        {"rdma_net_output_bytes", s->bytes_out},
        {"rdma_messages_in", s->messages_in},
        {"rdma_messages_out", s->messages_out},
        {"rdma_control_messages_in", s->control_in},
        {"rdma_control_messages_out", s->control_out},
        {"rdma_work_requests", s->work_requests},
        {"rdma_doorbells", s->doorbells},
        {"rdma_completions", s->completions},
        {"rdma_polls", s->polls},
        {"rdma_stalls_on_full_peer_buffer", s->stalls},
    };
    info_line(out, "rdma_device:%s", device ? device : "");
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        info_line(out, "%s:%llu", counters[i].name, (unsigned long long)counters[i].value);
    }
    info_line(out, "rdma_work_requests_per_doorbell:%.2f", ratio(s->work_requests, s->doorbells));
    info_line(out, "rdma_completions_per_poll:%.2f", ratio(s->completions, s->polls));
    info_line(out, "rdma_inline_share:%.3f", ratio(s->inlined, s->work_requests));
    info_line(out, "rdma_signalled_share:%.3f", ratio(s->signalled, s->work_requests));
}

const struct info_section rdma_sections[] = {
    {.name = "rdma", .title = "RDMA", .order = 55, .when = INFO_DEFAULT, .write = rdma_write},
    {.name = NULL},
};
#else
const struct info_section rdma_sections[] = {{.name = NULL}};
#endif
