/* rdma_info.c: INFO rdma, from the counters of the transport (net/rdma/rdma.h), and the transport's waits as LATENCY
 * events. Counters run from the start of the process. INFO also shows the ratios that operators mostly need.
 * docs/operating.md explains the fields. */
#include "server/config/rdma_options.h"
#include "server/feature.h"
#include "server/stats/info.h"
#include "server/server.h"
#ifdef USE_RDMA
#include "lib/system/clock.h"
#include "net/rdma/rdma.h"
#include "net/value_arena.h"
#include "server/stats/latency_monitor.h"
#include <stdatomic.h>

static double ratio(uint64_t part, uint64_t whole) {
    return whole ? (double)part / (double)whole : 0;
}

struct rdma_counter {
    const char *name;
    uint64_t value;
};

static void write_counters(struct output *out, const struct rdma_counter *counters, size_t count) {
    for (size_t i = 0; i < count; i++) info_number(out, counters[i].name, counters[i].value);
}
#define WRITE(out, counters) write_counters(out, counters, sizeof(counters) / sizeof *(counters))

static void write_device(struct output *out) {
    const struct rdma_port *port = rdma_port_used();
    info_line(out, "rdma_device:%s", port ? port->device : "");
    info_line(out, "rdma_device_port:%u", port ? port->number : 0);
    info_line(out, "rdma_gid:%s", port ? port->gid : "");
    info_line(out, "rdma_mtu:%u", port ? port->mtu : 0);
}

static void rdma_write(struct output *out) {
    const struct rdma_stats *s = rdma_stats();
    const struct rdma_counter traffic[] = {
        {"rdma_listeners", s->listeners},
        {"rdma_listeners_waiting", s->listeners_waiting},
        {"rdma_connections", s->connections},
        {"rdma_accepted_connections", s->accepted},
        {"rdma_refused_connections", s->refused},
        {"rdma_failed_connections", s->failed},
        {"rdma_registered_bytes", s->registered_bytes},
        {"rdma_registered_receive_bytes", s->registered[RDMA_MEMORY_RECEIVE]},
        {"rdma_registered_send_bytes", s->registered[RDMA_MEMORY_SEND]},
        {"rdma_registered_control_bytes", s->registered[RDMA_MEMORY_CONTROL]},
        {"rdma_registered_value_bytes", s->registered[RDMA_MEMORY_VALUES]},
        {"rdma_registered_window_bytes", s->registered[RDMA_MEMORY_WINDOWS]},
        {"rdma_registered_other_bytes", s->registered[RDMA_MEMORY_OTHER]},
        {"rdma_registered_huge_page_bytes", s->huge_bytes},
        {"rdma_max_registered_memory", rdma_settings.max_registered},
        {"rdma_unauthenticated_receive_bytes", s->untrusted_bytes},
        {"rdma_unauthenticated_closed", s->untrusted_closed},
        {"rdma_receive_buffers_grown", s->grown},
        {"rdma_receive_buffers_shrunk", s->shrunk},
        {"rdma_memory_regions", s->memory_regions},
        {"rdma_queue_pairs", s->queue_pairs},
        {"rdma_net_input_bytes", s->bytes_in},
        {"rdma_net_output_bytes", s->bytes_out},
        {"rdma_messages_in", s->messages_in},
        {"rdma_messages_out", s->messages_out},
        {"rdma_control_messages_in", s->control_in},
        {"rdma_control_messages_out", s->control_out},
        {"rdma_ring_connections", s->ring_connections},
        {"rdma_polled_connections", s->polled_connections},
        {"rdma_polled_messages_in", s->polled_in},
        {"rdma_polled_messages_out", s->polled_out},
        {"rdma_polled_words_reread", s->polled_again},
        {"rdma_polled_periods_given_up", s->polled_given_up},
        {"rdma_credits_in", s->credits_in},
        {"rdma_credits_out", s->credits_out},
        {"rdma_zero_copy_sends", s->zero_copies},
        {"rdma_zero_copy_bytes", s->zero_copy_bytes},
        {"rdma_read_windows", s->windows},
        {"rdma_reads", s->reads},
        {"rdma_read_bytes", s->read_bytes},
        {"rdma_reads_failed", s->reads_failed},
        {"rdma_work_requests", s->work_requests},
        {"rdma_doorbells", s->doorbells},
        {"rdma_completions", s->completions},
        {"rdma_polls", s->polls},
        {"rdma_spins", s->empty_polls},
        {"rdma_sleeps", s->sleeps},
        {"rdma_poll_pauses", s->poll_pauses},
        {"rdma_shared_receive_queues", s->shared_queues},
        {"rdma_receives_low", s->receives_low},
        {"rdma_stalls_on_full_peer_buffer", s->stalls},
        {"rdma_stalled_usec", s->stall_us},
        {"rdma_waits_for_send_memory", s->memory_waits},
        {"rdma_waited_for_send_memory_usec", s->memory_wait_us},
    };
    write_device(out);
    WRITE(out, traffic);
    for (int i = 0; i < RDMA_REFUSALS; i++)
        info_line(out, "rdma_refused_%s:%llu", rdma_refusal_name((enum rdma_refusal)i),
                  (unsigned long long)s->refusals[i]);
    info_line(out, "rdma_work_requests_per_doorbell:%.2f", ratio(s->work_requests, s->doorbells));
    info_line(out, "rdma_completions_per_poll:%.2f", ratio(s->completions, s->polls - s->empty_polls));
    info_line(out, "rdma_inline_share:%.3f", ratio(s->inlined, s->work_requests));
    info_line(out, "rdma_signalled_share:%.3f", ratio(s->signalled, s->work_requests));
    for (int i = 0; i < RDMA_ERRORS; i++)
        info_line(out, "rdma_errors_%s:%llu", rdma_error_name(i), (unsigned long long)s->errors[i]);
}

static const struct info_section rdma_sections[] = {
    {.name = "rdma", .title = "RDMA", .order = 55, .when = INFO_DEFAULT, .write = rdma_write},
    {.name = NULL},
};

/* Only the main thread may add events of LATENCY. The cron collects the longest wait of the I/O threads; a sample of
 * LATENCY is the longest time of a second anyway. The cron also lets the arena of values free unused memory. */
struct rdma_wait {
    const char *event;
    _Atomic uint64_t worst_us; /* worst on other threads */
};
static struct rdma_wait stall = {.event = "rdma-stall"}, connecting = {.event = "rdma-connect"};

static void wait_note(struct rdma_wait *wait, const struct connection *conn, uint64_t us) {
    if (conn->loop == server.loop) {
        latency_event(wait->event, us);
        return;
    }
    uint64_t worst = wait->worst_us;
    while (us > worst && !atomic_compare_exchange_weak(&wait->worst_us, &worst, us)) continue;
}
static void on_stalled(const struct connection *conn, uint64_t us) {
    wait_note(&stall, conn, us);
}
static void rdma_info_on_connected(const struct connection *conn, uint64_t us) {
    wait_note(&connecting, conn, us);
}

static void wait_collect(struct rdma_wait *wait) {
    uint64_t us = wait->worst_us ? atomic_exchange(&wait->worst_us, 0) : 0;
    if (us) latency_event(wait->event, us);
}
static void rdma_info_cron(void) {
    wait_collect(&stall);
    wait_collect(&connecting);
    value_arena_age(clock_mono() / 1000);
}

static void rdma_info_start(void) {
    rdma_hooks.stalled = on_stalled;
    rdma_hooks.connected = rdma_info_on_connected;
}
static const struct server_part rdma_info_part = {
    .name = "rdma-info", .start = rdma_info_start, .cron = rdma_info_cron};
#else
static const struct info_section rdma_sections[] = {{.name = NULL}};
static const struct server_part rdma_info_part = {.name = "rdma-info"};
#endif

const struct feature rdma_feature = {
    .name = "rdma",
    .options = OPTIONS(rdma_options),
    .sections = SECTIONS(rdma_sections),
    .parts = PARTS(&rdma_info_part),
};
