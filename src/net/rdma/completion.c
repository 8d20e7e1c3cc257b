/* completion.c: see completion.h. */
#include "net/rdma/completion.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/must.h"
#include "net/rdma/buffer.h"
#include "net/rdma/control.h"
#include "net/rdma/lifetime.h"
#include "net/rdma/polled.h"
#include "net/rdma/reads.h"
#include "net/rdma/send.h"
#include "net/rdma/srq.h"

enum {
    LONG_RUN_BYTES = 16 * 1024, /* bytes of requests that take longer to execute than a poll of the completion queue */
    ACKNOWLEDGE_AT = 64,
};

static inline struct rdma_connection *connection_of(struct rdma_queue_pair *qp) {
    return container_of(qp, struct rdma_connection, qp);
}

/* A completion of a send: all requests up to `seq` are done. */
static void sent(struct rdma_connection *c, uint32_t seq) {
    if (rdma_seq_reached(seq, c->send.retired)) return;
    must_hold(rdma_seq_reached(seq, c->send.posted), "%u of %u", seq, c->send.posted);
    c->send.retired = seq;
    if (__builtin_expect(c->reads != NULL, 0)) rdma_reads_completed(c);
    rdma_send_continue(c);
}

static void handle_completion(struct rdma_device *device, const struct ibv_wc *wc) {
    struct rdma_queue_pair *qp = rdma_queue_pair_find(device, wc->qp_num);
    if (rdma_is_receive(wc)) {
        device->placed_last = false;
        struct rdma_slot *slot = (struct rdma_slot *)(uintptr_t)(wc->wr_id & ~(uint64_t)RDMA_RECEIVE_TAG);
        struct rdma_shared *shared = rdma_shared_of(device, slot);
        if (shared) rdma_shared_note(device, shared, -1);
        bool good = wc->status == IBV_WC_SUCCESS;
        if (qp && good)
            rdma_control_received(connection_of(qp), wc, &slot->message);
        else if (qp)
            rdma_connection_broken(connection_of(qp), wc);
        must_less(device->repost_count, RDMA_BATCH);
        if (shared || (qp && good))
            device->reposts[device->repost_count++] = (struct rdma_repost){slot, shared ? NULL : qp, shared};
    } else if (qp) {
        if (wc->status == IBV_WC_SUCCESS)
            sent(connection_of(qp), (uint32_t)(wc->wr_id >> 1));
        else
            rdma_connection_broken(connection_of(qp), wc);
    }
}

/* Fetches a batch. Returns the number of completions to handle. */
static int fetch_completions(struct rdma_device *device) {
    if (device->completion_next < device->completion_count) return device->completion_count - device->completion_next;
    int count = 0;
    int first = device->queue_first;
    for (int i = 0; i < device->queue_count && count < RDMA_BATCH; i++) {
        int at = first + i < device->queue_count ? first + i : first + i - device->queue_count;
        device->queue_first = at + 1 < device->queue_count ? at + 1 : 0;
        int n = ibv_poll_cq(device->queues[at].cq, RDMA_BATCH - count, device->completions + count);
        if (n < 0) {
            if (!device->removed) log_warning("RDMA: polling a completion queue failed (%s)", device->name);
            continue;
        }
        count += n;
    }
    device->completion_next = 0;
    device->completion_count = count;
    device->owner->stats.polls++;
    if (!count) device->owner->stats.empty_polls++;
    device->owner->stats.completions += (uint64_t)count;
    return count;
}

static int drain(struct rdma_device *device, int max) {
    int total = 0;
    for (;;) {
        if (device->repost_count) rdma_receives_flush(device); /* make space for the receives of a batch */
        int count = fetch_completions(device);
        if (!count) break;
        while (device->completion_next < device->completion_count)
            handle_completion(device, &device->completions[device->completion_next++]);
        total += count;
        if (count < RDMA_BATCH || total >= max) break;
    }
    return total;
}

void rdma_device_drain(struct rdma_device *device) {
    if (!rdma_usable()) return;
    /* A fetch fills its batch from one queue, if it can, and the next fetch begins with the next queue. The last queue
     * is the largest. */
    drain(device, device->queue_count * (int)device->queues[device->queue_count - 1].capacity);
    rdma_polled_check(device);
    if (device->repost_count) rdma_receives_flush(device);
}

static void run_ready(struct rdma_loop *owner) {
    /* Runs only those that are ready now: a connection that becomes ready again waits for the next round. */
    for (size_t left = owner->ready.len; left > 0 && owner->ready.len > 0; left--) {
        struct rdma_connection *c = container_of(list_first(&owner->ready), struct rdma_connection, ready_link);
        list_remove(&owner->ready, &c->ready_link);
        struct rdma_device *device = c->qp.device;
        bool long_run = device && !c->receive.is_ring && rdma_receive_unshown(c) >= LONG_RUN_BYTES;
        rdma_connection_run(c);
        /* A base-protocol client that has filled its buffer waits inside its write, with all its other connections,
         * until the next one is announced. It does not wait for the rest of the list. */
        if (long_run && left > 1) drain(device, RDMA_POLL_MAX);
    }
}

static int device_poll(struct event_poller *poller) {
    struct rdma_device *device = container_of(poller, struct rdma_device, poller);
    if (!rdma_usable()) return 0;
    /* Before the thread sleeps, every polled peer gets a PollEnd and answers it. First spin for as long as that takes,
     * in the hope of a message. */
    uint32_t spin_us = rdma_settings.busy_poll_us;
    /* A thread that is to poll for longer has a CPU of its own. */
    if ((device->placing || device->placed_last) && !device->polls.count && spin_us <= RDMA_SPIN_LONG_US) spin_us = 0;
    if (spin_us) {
        if (spin_us < RDMA_SPIN_LONG_US && device->short_waits >= RDMA_SHORT_WAITS) spin_us = RDMA_SPIN_LONG_US;
        spin_us += (uint32_t)device->polls.count * RDMA_POLLED_PATIENCE_US;
    }
    poller->spin_us = spin_us;
    int done = drain(device, RDMA_POLL_MAX);
    if (device->polls.count) rdma_polled_check(device);
    if (device->starved.len) rdma_send_feed(device);
    if (__builtin_expect(device->values.jobs || device->values.ended, 0) && rdma_values_ended(&device->values))
        rdma_place_resume(device);
    if (device->owner->ready.len) {
        done += (int)device->owner->ready.len;
        run_ready(device->owner);
    }
    /* Post the receives again after the messages are answered: the peers wait for the answers, not for the receives. */
    if (device->repost_count) rdma_receives_flush(device);
    return done;
}

static bool device_prepare_sleep(struct event_poller *poller) {
    struct rdma_device *device = container_of(poller, struct rdma_device, poller);
    if (!rdma_usable()) return true;
    if (device->owner->ready.len || device->values.ended) return false;
    if (device->polls.count) {
        if (fetch_completions(device) || rdma_polled_check(device)) return false;
        rdma_polled_end_all(device);
        if (device->owner->ready.len) return false; /* posting failed */
    }
    for (int i = 0; i < device->queue_count; i++) {
        struct rdma_queue *queue = &device->queues[i];
        if (!queue->armed && !(queue->armed = ibv_req_notify_cq(queue->cq, 0) == 0))
            return false; /* no event would wake this thread */
    }
    if (fetch_completions(device)) return false;
    if (device->short_waits >= RDMA_SHORT_WAITS) device->short_waits = 0; /* the long spin found nothing */
    device->owner->stats.sleeps++;
    return true;
}

void rdma_device_woke(struct rdma_device *device, uint64_t waited_us) {
    if (device->placing) return; /* the device was at work, not a peer */
    if (waited_us >= RDMA_SPIN_LONG_US)
        device->short_waits = 0;
    else if (device->short_waits < RDMA_SHORT_WAITS)
        device->short_waits++;
}

static void channel_ready(struct event_io *io, int mask) {
    struct rdma_device *device = container_of(io, struct rdma_device, io);
    if (!rdma_usable()) return;
    struct ibv_cq *cq;
    void *context;
    /* A queue has one event until it is armed again. Asking for more would be a system call that finds nothing. */
    for (int i = 0; i < device->queue_count && ibv_get_cq_event(device->channel, &cq, &context) == 0; i++) {
        struct rdma_queue *queue = context;
        queue->armed = false;
        if (++queue->unacknowledged >= ACKNOWLEDGE_AT) {
            ibv_ack_cq_events(cq, queue->unacknowledged);
            queue->unacknowledged = 0;
        }
    }
    rdma_device_woke(device, clock_mono() - device->poller.last_work_us);
    /* This iteration's polling is over already: handle the completions here, and let the loop spin. */
    device_poll(&device->poller);
    device->poller.last_work_us = clock_mono();
}

const struct rdma_device_handlers rdma_completion_handlers = {.poll = device_poll,
                                                              .prepare_sleep = device_prepare_sleep,
                                                              .channel_ready = channel_ready,
                                                              .async_ready = rdma_async_ready};
