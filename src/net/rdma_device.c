/* rdma_device.c: device contexts and completions. See rdma_device.h.
 *
 * Rejected: a completion queue, channel or protection domain per connection (a descriptor and a system call for each
 * connection that has something; polling all of them is linear in connections). Rejected: resizing the completion queue
 * as connections come (few drivers can; a further queue always works). */
#include "net/rdma_connection.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include "lib/random.h"
#include "net/pin.h"
#include "net/rdma_srq.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    LONG_RUN_BYTES = 16 * 1024, /* bytes of requests that take longer to execute than a poll of the completion queue */
    QUEUE_CAPACITY = 8192,
    ACKNOWLEDGE_AT = 64,
    EVENTS_AT_ONCE = 64,
};

/* Queue pairs by number */

static struct rdma_connection **table_entry(struct rdma_device *device, uint32_t qp_num, bool make) {
    struct rdma_connection ***page = &device->pages[qp_num >> 12 & (RDMA_QP_PAGE - 1)];
    if (!*page) {
        if (!make) return NULL;
        *page = mem_calloc(RDMA_QP_PAGE, sizeof **page);
    }
    return &(*page)[qp_num & (RDMA_QP_PAGE - 1)];
}

static inline struct rdma_connection *find_connection(const struct rdma_device *device, uint32_t qp_num) {
    struct rdma_connection **page = device->pages[qp_num >> 12 & (RDMA_QP_PAGE - 1)];
    return page ? page[qp_num & (RDMA_QP_PAGE - 1)] : NULL;
}

/* Completions */

static void handle_completion(struct rdma_device *device, const struct ibv_wc *wc) {
    struct rdma_connection *c = find_connection(device, wc->qp_num);
    if (rdma_is_receive(wc)) {
        struct rdma_slot *slot = (struct rdma_slot *)(uintptr_t)(wc->wr_id & ~(uint64_t)RDMA_RECEIVE_TAG);
        struct rdma_shared *shared = rdma_shared_of(device, slot);
        if (shared) rdma_shared_note(device, shared, -1);
        bool good = wc->status == IBV_WC_SUCCESS;
        if (c && good)
            rdma_connection_received(c, wc, &slot->message);
        else if (c)
            rdma_connection_broken(c, wc);
        if (shared || (c && good))
            device->reposts[device->repost_count++] = (struct rdma_repost){slot, shared ? NULL : c, shared};
    } else if (c) {
        if (wc->status == IBV_WC_SUCCESS)
            rdma_connection_sent(c, (uint32_t)(wc->wr_id >> 1));
        else
            rdma_connection_broken(c, wc);
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
    drain(device, QUEUE_CAPACITY);
    rdma_polled_check(device);
    if (device->repost_count) rdma_receives_flush(device);
}

/* Connections whose peers' buffers are full hold send memory that others could use: their output moves to ordinary
 * memory. */
void rdma_device_relieve(struct rdma_device *device) {
    list_each(&device->owner->connections, link) {
        struct rdma_connection *c = container_of(link, struct rdma_connection, link);
        if (c->device == device && c->stalled) rdma_send_unregister(c);
    }
}

/* Resumes the connections that waited for send memory. */
void rdma_device_feed(struct rdma_device *device) {
    for (size_t left = device->starved.len; left > 0 && device->starved.len > 0 && device->memory.free_chunks; left--) {
        struct rdma_connection *c = container_of(list_first(&device->starved), struct rdma_connection, starved_link);
        rdma_starved_end(c);
        rdma_send_pump(c);
    }
}

void rdma_loop_run_ready(struct rdma_loop *owner) {
    /* Runs only those that are ready now: a connection that becomes ready again waits for the next round. */
    for (size_t left = owner->ready.len; left > 0 && owner->ready.len > 0; left--) {
        struct rdma_connection *c = container_of(list_first(&owner->ready), struct rdma_connection, ready_link);
        list_remove(&owner->ready, &c->ready_link);
        struct rdma_device *device = c->device;
        bool long_run = device && !c->ring.in && rdma_receive_unshown(c) >= LONG_RUN_BYTES;
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
    if (spin_us) {
        if (spin_us < RDMA_SPIN_LONG_US && device->short_waits >= RDMA_SHORT_WAITS) spin_us = RDMA_SPIN_LONG_US;
        spin_us += (uint32_t)device->polls.count * RDMA_POLLED_PATIENCE_US;
    }
    poller->spin_us = spin_us;
    int done = drain(device, RDMA_POLL_MAX);
    if (device->polls.count) rdma_polled_check(device);
    if (device->starved.len) rdma_device_feed(device);
    if (device->owner->ready.len) {
        done += (int)device->owner->ready.len;
        rdma_loop_run_ready(device->owner);
    }
    /* Post the receives again after the messages are answered: the peers wait for the answers, not for the receives. */
    if (device->repost_count) rdma_receives_flush(device);
    return done;
}

static bool device_prepare_sleep(struct event_poller *poller) {
    struct rdma_device *device = container_of(poller, struct rdma_device, poller);
    if (!rdma_usable()) return true;
    if (device->owner->ready.len) return false;
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
    if (waited_us >= RDMA_SPIN_LONG_US)
        device->short_waits = 0;
    else if (device->short_waits < RDMA_SHORT_WAITS)
        device->short_waits++;
}

static void channel_ready(struct event_watch *watch, int mask) {
    struct rdma_device *device = container_of(watch, struct rdma_device, watch);
    if (!rdma_usable()) return;
    struct ibv_cq *cq;
    void *context;
    for (int i = 0; i < EVENTS_AT_ONCE && ibv_get_cq_event(device->channel, &cq, &context) == 0; i++) {
        struct rdma_queue *queue = context;
        queue->armed = false;
        if (++queue->unacknowledged >= ACKNOWLEDGE_AT) {
            ibv_ack_cq_events(cq, queue->unacknowledged);
            queue->unacknowledged = 0;
        }
    }
    rdma_device_woke(device, clock_mono() - device->poller.last_work_us);
    /* This iteration's polling is over already: handle the completions at once, and let the loop spin. */
    device_poll(&device->poller);
    device->poller.last_work_us = clock_mono();
}

static void fail_connections(struct rdma_device *device, int error, const char *why) {
    list_each(&device->owner->connections, link) {
        struct rdma_connection *c = container_of(link, struct rdma_connection, link);
        if (c->device == device) rdma_connection_failed(c, error, why);
    }
}

static void device_leaves(struct event_deferred *deferred) {
    struct rdma_device *device = container_of(deferred, struct rdma_device, deferred);
    list_remove(&device->owner->devices, &device->link);
    rdma_device_free(device);
}

static void device_leave_if_unused(struct rdma_device *device) {
    if (device->removed && device->users == 0) event_loop_defer(device->owner->loop, &device->deferred, device_leaves);
}

static void device_removed(struct rdma_device *device) {
    device->removed = true;
    event_watch_remove(device->owner->loop, &device->async_watch);
    fail_connections(device, ENODEV, RDMA_REMOVED);
    device_leave_if_unused(device);
}

void rdma_device_left(struct rdma_device *device) {
    device->users--;
    device_leave_if_unused(device);
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
    if (type == IBV_EVENT_DEVICE_FATAL)
        device_removed(device); /* removed or not, it does not work again in this state */
    else if (type == IBV_EVENT_SRQ_LIMIT_REACHED && shared)
        receives_low(device, shared);
    else if (type == IBV_EVENT_CQ_ERR ? has_queue(device, message->event.element.cq) : shared != NULL)
        fail_connections(device, EIO, ibv_event_type_str(type));
}

static void on_async_event(struct event_post *post) {
    handle_async_event((struct device_async_event *)post);
    mem_free(post);
}

/* Passes the event on to the loop of another thread. */
static void pass_async_event(struct rdma_loop *other, void *event) {
    if (!event_loop_takes_posts(other->loop)) return;
    struct device_async_event *theirs = mem_alloc(sizeof *theirs);
    *theirs = *(const struct device_async_event *)event;
    theirs->owner = other;
    theirs->post.run = on_async_event;
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

static void async_ready(struct event_watch *watch, int mask) {
    struct rdma_device *device = container_of(watch, struct rdma_device, async_watch);
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

/* Queues and queue pairs */

/* The choice is kept: further queues of this thread use the same vector, and connecting is no time to read files. */
static int own_vector(struct rdma_device *device, int vectors) {
    if (device->own_vector != RDMA_VECTOR_AUTO) return device->own_vector;
    cpu_set_t cpus;
    char reason[256];
    int error = pthread_getaffinity_np(pthread_self(), sizeof cpus, &cpus);
    if (error) {
        snprintf(reason, sizeof reason, "the CPUs of the thread are unknown: %s", strerror(error));
        device->own_vector = -1;
    } else {
        device->own_vector =
            pin_completion_vector(&pin_trees_here, device->name, vectors, &cpus, reason, sizeof reason);
    }
    if (device->own_vector >= 0)
        log_notice("RDMA: completion vector %d of %s: %s", device->own_vector, device->name, reason);
    else
        log_notice("RDMA: a random completion vector of %s: %s", device->name, reason);
    return device->own_vector;
}

static int choose_vector(struct rdma_device *device) {
    int vectors = device->verbs->num_comp_vectors > 0 ? device->verbs->num_comp_vectors : 1;
    int vector = rdma_settings.completion_vector;
    if (vector == RDMA_VECTOR_AUTO) vector = own_vector(device, vectors);
    return vector < 0 ? (int)random_below((uint64_t)vectors) : vector % vectors;
}

static bool add_queue(struct rdma_device *device, uint32_t capacity) {
    if (device->queue_count == RDMA_QUEUES_MAX) {
        errno = ENOSPC;
        return false;
    }
    if (device->limits.max_cqe > 0 && capacity > (uint32_t)device->limits.max_cqe)
        capacity = (uint32_t)device->limits.max_cqe;
    struct rdma_queue *queue = &device->queues[device->queue_count];
    *queue = (struct rdma_queue){.capacity = capacity};
    queue->cq = ibv_create_cq(device->verbs, (int)capacity, queue, device->channel, choose_vector(device));
    if (!queue->cq) return false;
    device->queue_count++;
    device->owner->stats.completion_queues++;
    return true;
}

struct rdma_queue *rdma_queue_with_capacity(struct rdma_device *device, uint32_t need) {
    for (int i = 0; i < device->queue_count; i++)
        if (device->queues[i].capacity - device->queues[i].committed >= need) return &device->queues[i];
    struct rdma_queue *last = &device->queues[device->queue_count - 1];
    if (!add_queue(device, last->capacity * 2)) return NULL;
    last = &device->queues[device->queue_count - 1];
    return last->capacity >= need ? last : NULL;
}

static int create_with_inline(struct rdma_connection *c, struct ibv_qp_init_attr *wanted) {
    struct rdma_device *device = c->device;
    static const uint32_t smaller[] = {RDMA_INLINE_WANTED, 128, 64, 32, 0};
    int error = EINVAL;
    for (size_t i = 0; i < sizeof smaller / sizeof *smaller; i++) {
        if (smaller[i] > device->max_inline) continue;
        struct ibv_qp_init_attr attr = *wanted;
        attr.cap.max_inline_data = smaller[i];
        if (rdma_create_qp(c->id, device->pd, &attr) == 0) {
            device->max_inline = smaller[i]; /* do not ask for more again */
            c->max_inline = smaller[i] < attr.cap.max_inline_data ? smaller[i] : attr.cap.max_inline_data;
            return 0;
        }
        error = errno;
    }
    return -error;
}

/* Sets the limits of the connection from its queue pair, less what is left out for measuring. */
static void choose_techniques(struct rdma_connection *c) {
    c->signal_every = rdma_uses(RDMA_SIGNALLING) ? c->send_depth / 4 : 1;
    c->message_requests = rdma_uses(RDMA_CHAINING) ? RDMA_MESSAGE_REQUESTS : 1;
    c->request_elements = rdma_uses(RDMA_CHAINING) ? (uint32_t)c->device->max_sge : 1;
    if (!rdma_uses(RDMA_INLINE)) c->max_inline = 0;
    c->in_bounce = !rdma_uses(RDMA_ZERO_COPY_IN); /* and stays there */
}

int rdma_queue_pair_create(struct rdma_connection *c) {
    struct rdma_device *device = c->device;
    struct rdma_shared *shared = rdma_shared_choose(device);
    uint32_t own = shared ? 0 : device->own_depth, need = device->send_depth + own;
    struct rdma_queue *queue = rdma_queue_with_capacity(device, need);
    if (!queue) {
        device->owner->stats.errors[RDMA_ERROR_RESOURCES]++;
        return -errno;
    }
    struct ibv_qp_init_attr attr = {
        .send_cq = queue->cq,
        .recv_cq = shared ? shared->cq : queue->cq,
        .srq = shared ? shared->srq : NULL,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = device->send_depth,
                .max_recv_wr = own,
                .max_send_sge = (uint32_t)device->max_sge,
                .max_recv_sge = 1},
    };
    int result = create_with_inline(c, &attr);
    if (result < 0) {
        device->owner->stats.errors[RDMA_ERROR_RESOURCES]++;
        return result;
    }
    device->owner->stats.queue_pairs++;
    device->owner->stats.receives_posted += own;
    c->qp = c->id->qp;
    c->shared = shared;
    if (shared) shared->users++;
    c->qp_num = c->qp->qp_num;
    c->send_queue = queue;
    c->send_depth = device->send_depth;
    choose_techniques(c);
    queue->committed += need;
    *table_entry(device, c->qp_num, true) = c;
    return own ? rdma_receives_add(c, own) : result;
}

void rdma_queue_pair_forget(struct rdma_connection *c) {
    if (!c->qp) return;
    struct rdma_connection **place = table_entry(c->device, c->qp_num, false);
    if (place && *place == c) *place = NULL;
}

void rdma_queue_pair_destroy(struct rdma_connection *c) {
    struct rdma_device *device = c->device;
    if (!c->qp) return;
    rdma_queue_pair_forget(c);
    rdma_destroy_qp(c->id);
    device->owner->stats.queue_pairs--;
    c->qp = NULL;
    uint32_t own = c->shared ? 0 : device->own_depth;
    if (c->shared) c->shared->users--;
    c->send_queue->committed -= device->send_depth + own;
    device->owner->stats.receives_posted -= own;
    rdma_receives_drop(c, own);
    c->shared = NULL;
}

/* Making and freeing device contexts */

static void memory_has_work(struct rdma_memory *memory) {
    rdma_loop_tidy_soon(container_of(memory, struct rdma_device, memory)->owner);
}

void rdma_device_free(struct rdma_device *device) {
    event_poller_remove(device->owner->loop, &device->poller);
    event_watch_remove(device->owner->loop, &device->watch);
    event_watch_remove(device->owner->loop, &device->async_watch);
    rdma_shared_free(device);
    for (int i = 0; i < device->queue_count; i++) {
        if (device->queues[i].unacknowledged) ibv_ack_cq_events(device->queues[i].cq, device->queues[i].unacknowledged);
        ibv_destroy_cq(device->queues[i].cq);
        device->owner->stats.completion_queues--;
    }
    if (device->channel) ibv_destroy_comp_channel(device->channel);
    rdma_values_free(device);
    rdma_polls_free(device);
    if (device->pd) { /* without a protection domain there is no memory */
        rdma_memory_free(&device->memory);
        ibv_dealloc_pd(device->pd);
    }
    for (int i = 0; i < RDMA_QP_PAGE; i++) mem_free(device->pages[i]);
    mem_free(device);
}

int rdma_set_nonblocking(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

/* Fills the context. False: errno, and `what` failed. */
static bool device_open(struct rdma_device *device, const char **what) {
    struct event_loop *loop = device->owner->loop;
    *what = "query the device";
    int error = ibv_query_device(device->verbs, &device->limits);
    if (error) {
        errno = error;
        return false;
    }
    *what = "allocate a protection domain";
    if (!(device->pd = ibv_alloc_pd(device->verbs))) return false;
    rdma_memory_init(&device->memory, device->pd, &device->owner->stats);
    device->memory.work = memory_has_work;
    *what = "create a completion channel";
    if (!(device->channel = ibv_create_comp_channel(device->verbs)) || rdma_set_nonblocking(device->channel->fd) < 0)
        return false;
    *what = "create a completion queue";
    if (!add_queue(device, QUEUE_CAPACITY)) return false;
    int max_wr = device->limits.max_qp_wr > 0 ? device->limits.max_qp_wr : RDMA_SEND_DEPTH;
    device->send_depth = max_wr < RDMA_SEND_DEPTH ? (uint32_t)max_wr : RDMA_SEND_DEPTH;
    device->own_depth = max_wr < RDMA_OWN_DEPTH ? (uint32_t)max_wr : RDMA_OWN_DEPTH;
    device->max_sge =
        device->limits.max_sge > 0 && device->limits.max_sge < RDMA_SGE_MAX ? device->limits.max_sge : RDMA_SGE_MAX;
    device->max_inline = RDMA_INLINE_WANTED;
    *what = "register memory";
    rdma_shared_add(device);
    struct rdma_chunk *chunk = rdma_chunk_take(&device->memory); /* so that send memory is always available */
    if (!chunk) return false;
    rdma_chunk_give(&device->memory, chunk);
    *what = "watch the completion channel";
    int result = event_watch_set(loop, &device->watch, device->channel->fd, EVENT_READ, channel_ready);
    if (result < 0) {
        errno = -result;
        return false;
    }
    if (device->verbs->async_fd >= 0 && rdma_set_nonblocking(device->verbs->async_fd) == 0)
        event_watch_set(loop, &device->async_watch, device->verbs->async_fd, EVENT_READ, async_ready);
    device->poller.poll = device_poll;
    device->poller.prepare_sleep = device_prepare_sleep;
    event_poller_add(loop, &device->poller);
    return true;
}

struct rdma_device *rdma_device_known(struct rdma_loop *owner, const struct ibv_context *verbs) {
    list_each(&owner->devices, link) {
        struct rdma_device *device = container_of(link, struct rdma_device, link);
        if (device->verbs == verbs && !device->removed) return device;
    }
    return NULL;
}

bool rdma_device_fits(const struct ibv_context *verbs, char *error, size_t error_size) {
    if (verbs->device->transport_type != IBV_TRANSPORT_IWARP) return true;
    snprintf(error, error_size, "%s is an iWARP device, which has no RDMA WRITE with immediate data",
             ibv_get_device_name(verbs->device));
    errno = EOPNOTSUPP;
    return false;
}

struct rdma_device *rdma_device_of(struct rdma_loop *owner, struct ibv_context *verbs, char *error, size_t error_size) {
    struct rdma_device *device = rdma_device_known(owner, verbs);
    if (device) return device;
    if (!rdma_device_fits(verbs, error, error_size)) return NULL;
    device = mem_calloc(1, sizeof *device);
    device->owner = owner;
    device->verbs = verbs;
    device->opened_us = clock_monotonic_us();
    device->name = ibv_get_device_name(verbs->device);
    device->own_vector = RDMA_VECTOR_AUTO;
    device->watch.fd = device->async_watch.fd = -1;
    list_init(&device->starved);
    const char *what;
    if (device_open(device, &what)) {
        list_append(&owner->devices, &device->link);
        return device;
    }
    int failure = errno;
    if (strcmp(what, "register memory") == 0)
        rdma_registration_error(failure, device->name, error, error_size);
    else
        snprintf(error, error_size, "RDMA: cannot %s (%s): %s", what, device->name, strerror(failure));
    rdma_device_free(device);
    errno = failure;
    return NULL;
}
