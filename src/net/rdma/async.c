/* async.c: asynchronous events of devices, among them their removal. See completion.h. */
#include "net/rdma/completion.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/rdma/lifetime.h"
#include "net/rdma/srq.h"
#include <errno.h>

static void fail_connections(struct rdma_device *device, int error, const char *why) {
    rdma_device_drain(device); /* what arrived before is reported first */
    list_each_entry(&device->owner->connections, struct rdma_connection, link, c)
        if (c->qp.device == device) rdma_connection_failed(c, error, why);
}

/* Asynchronous events of the device: a port that goes down, an error of the device. All loops of the process share the
 * descriptor that reports them, so the loop that reads one passes it on to the others, and each checks whether it is
 * concerned. */
struct device_async_event {
    struct event_post post; /* must be first */
    struct rdma_loop *owner;
    struct ibv_context *verbs;
    struct ibv_async_event event;
    uint64_t at_us;
};

static bool has_queue(const struct rdma_device *device, const struct ibv_cq *cq) {
    for (int i = 0; i < device->queue_count; i++)
        if (device->queues[i].cq == cq) return true;
    return false;
}

/* Few receives are left: those that have completed are posted again before anything else happens. The limit is set
 * again by a later tick, so that a queue that stays low does not report it without end. */
static void receives_low(struct rdma_device *device, struct rdma_shared *shared) {
    device->owner->stats.receives_low++;
    shared->armed = false;
    shared->was_low = true;
    rdma_device_drain(device);
    if (device->owner->ready.len) device->poller.last_work_us = clock_mono(); /* the loop polls before it sleeps */
}

static void handle_async_event(const struct device_async_event *message) {
    enum ibv_event_type type = message->event.event_type;
    struct rdma_device *device = rdma_device_known(message->owner, message->verbs);
    if (!device || !rdma_usable() || device->opened_us > message->at_us) return;
    struct rdma_shared *shared = NULL;
    if (type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED)
        shared = rdma_shared_find(device, message->event.element.srq);
    if (type == IBV_EVENT_DEVICE_FATAL) { /* removed or not, it does not work again in this state */
        rdma_device_set_removed(device);
        fail_connections(device, ENODEV, RDMA_REMOVED);
    } else if (type == IBV_EVENT_SRQ_LIMIT_REACHED && shared) {
        receives_low(device, shared);
    } else if (type == IBV_EVENT_CQ_ERR ? has_queue(device, message->event.element.cq) : shared != NULL)
        fail_connections(device, EIO, ibv_event_type_str(type));
}

static void on_async_event(struct event_post *post) {
    handle_async_event((struct device_async_event *)post);
    mem_free(post);
}

static void drop_async_event(struct event_post *post) {
    mem_free(post);
}

/* Passes the event on to the loop of another thread. */
static void pass_async_event(struct rdma_loop *other, void *event) {
    if (!event_loop_takes_posts(other->loop)) return;
    struct device_async_event *theirs = mem_alloc(sizeof *theirs);
    *theirs = *(const struct device_async_event *)event;
    theirs->owner = other;
    theirs->post = (struct event_post){.run = on_async_event, .drop = drop_async_event};
    event_loop_post(other->loop, &theirs->post);
}

static void report_async_event(struct rdma_device *device, const struct ibv_async_event *event) {
    struct device_async_event mine = {
        .owner = device->owner, .verbs = device->verbs, .event = *event, .at_us = clock_monotonic_us()};
    rdma_loops_visit_others(device->owner, pass_async_event, &mine);
    handle_async_event(&mine);
}

void rdma_device_gone(struct rdma_device *device) {
    if (device->removed) return;
    report_async_event(device, &(struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
    /* Discards its pending events: a new context may have the same descriptor and would receive them. */
    struct ibv_async_event stale;
    while (ibv_get_async_event(device->verbs, &stale) == 0) ibv_ack_async_event(&stale);
}

void rdma_async_ready(struct event_io *io, int mask) {
    struct rdma_device *device = container_of(io, struct rdma_device, async_io);
    struct ibv_async_event event;
    if (!rdma_usable() || ibv_get_async_event(device->verbs, &event) != 0) return;
    enum ibv_event_type type = event.event_type;
    bool grave = type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_SRQ_ERR;
    if (grave || type == IBV_EVENT_PORT_ERR)
        log_warning("RDMA: %s reports: %s", device->name, ibv_event_type_str(type));
    else
        log_debug("RDMA: %s reports: %s", device->name, ibv_event_type_str(type));
    if (grave || type == IBV_EVENT_SRQ_LIMIT_REACHED) report_async_event(device, &event);
    ibv_ack_async_event(&event); /* the object that it names may be destroyed from here on */
}
