/* fake_verbs.c: see fake_verbs.h. */
#include "fake_verbs.h"
#include "fuzz.h"
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_query_port

struct fake_hooks fake_hooks;
int fake_fail_in, fake_next_device;
struct fake_counts fake_counts;

static bool fails(void) {
    if (fake_fail_in == 0 || --fake_fail_in > 0) return false;
    errno = ENOMEM;
    return true;
}
static void *zeroed(size_t size) {
    void *memory = calloc(1, size);
    if (!memory) abort();
    return memory;
}

/* --- Devices --- */

struct fake_completion {
    struct ibv_wc wc;
    struct fake_qp *qp; /* the queue pair of a send */
    uint32_t number;    /* of the send */
};
struct fake_cq {
    struct ibv_cq cq;
    struct fake_completion *ring;
    uint32_t first, count, capacity;
    bool armed, told;
    struct fake_cq *next;
};
struct fake_srq {
    struct ibv_srq srq;
    struct ibv_recv_wr *receives;
    struct ibv_sge *elements;
    uint32_t first, count, depth;
};
static struct fake_device {
    struct ibv_context context;
    struct ibv_device device;
    bool made;
    struct fake_cq *queues;
} devices[FAKE_DEVICES];

static struct fake_device *device_of(const struct ibv_context *context) {
    return (struct fake_device *)(uintptr_t)context;
}

/* --- Memory --- */

struct fake_mr {
    struct ibv_mr mr;
    int access;
    struct fake_mr *next;
};
static struct fake_mr *regions;
static uint32_t next_key = 1;

static void check_local(uint64_t addr, uint32_t len, uint32_t lkey, int access) {
    for (const struct fake_mr *mr = regions; mr; mr = mr->next) {
        if (mr->mr.lkey != lkey) continue;
        uint64_t from = (uintptr_t)mr->mr.addr;
        FUZZ_CHECK(addr >= from && addr + len <= from + mr->mr.length, "outside its region");
        FUZZ_CHECK((mr->access & access) == access, "rights");
        return;
    }
    FUZZ_CHECK(false, "no region has the key %u", lkey);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    if (fails()) return NULL;
    struct fake_mr *mr = zeroed(sizeof *mr);
    mr->mr = (struct ibv_mr){
        .context = pd->context, .pd = pd, .addr = addr, .length = length, .lkey = next_key, .rkey = next_key};
    mr->access = access;
    next_key++;
    mr->next = regions;
    regions = mr;
    fake_counts.regions++;
    fake_counts.registered_bytes += length;
    return &mr->mr;
}
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access) {
    return ibv_reg_mr(pd, addr, length, (int)access);
}
int ibv_dereg_mr(struct ibv_mr *mr) {
    for (struct fake_mr **at = &regions; *at; at = &(*at)->next) {
        if (&(*at)->mr != mr) continue;
        struct fake_mr *gone = *at;
        *at = gone->next;
        fake_counts.regions--;
        fake_counts.registered_bytes -= gone->mr.length;
        free(gone);
        return 0;
    }
    FUZZ_CHECK(false, "a region that is not there");
    return EINVAL;
}

/* --- Completion queues --- */

static void complete(struct fake_cq *cq, struct fake_completion completion) {
    FUZZ_CHECK(cq->count < cq->capacity, "a completion queue of %u overruns", cq->capacity);
    cq->ring[(cq->first + cq->count++) % cq->capacity] = completion;
    if (!cq->armed) return;
    uint64_t one = 1;
    cq->armed = false;
    cq->told = true;
    FUZZ_CHECK(write(cq->cq.channel->fd, &one, sizeof one) == sizeof one, "channel");
}

static int poll_cq(struct ibv_cq *queue, int count, struct ibv_wc *wc) {
    struct fake_cq *cq = (struct fake_cq *)queue;
    int n = 0;
    while (n < count && cq->count) {
        struct fake_completion *completion = &cq->ring[cq->first];
        if (completion->qp && (int32_t)(completion->number - completion->qp->freed) > 0)
            completion->qp->freed = completion->number;
        wc[n++] = completion->wc;
        cq->first = (cq->first + 1) % cq->capacity;
        cq->count--;
    }
    return n;
}
static int req_notify_cq(struct ibv_cq *cq, int solicited) {
    ((struct fake_cq *)cq)->armed = true;
    return 0;
}
struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
                             int vector) {
    if (fails()) return NULL;
    struct fake_device *device = device_of(context);
    struct fake_cq *cq = zeroed(sizeof *cq);
    cq->cq = (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context, .cqe = cqe};
    cq->capacity = (uint32_t)cqe;
    cq->ring = zeroed(cq->capacity * sizeof *cq->ring);
    cq->next = device->queues;
    device->queues = cq;
    return &cq->cq;
}
int ibv_destroy_cq(struct ibv_cq *queue) {
    struct fake_cq *cq = (struct fake_cq *)queue;
    struct fake_cq **at = &device_of(queue->context)->queues;
    while (*at != cq) at = &(*at)->next;
    *at = cq->next;
    free(cq->ring);
    free(cq);
    return 0;
}
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    if (fails()) return NULL;
    struct ibv_comp_channel *channel = zeroed(sizeof *channel);
    *channel = (struct ibv_comp_channel){.context = context, .fd = eventfd(0, EFD_CLOEXEC)};
    return channel;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    close(channel->fd);
    free(channel);
    return 0;
}
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context) {
    for (struct fake_cq *at = device_of(channel->context)->queues; at; at = at->next) {
        if (!at->told) continue;
        at->told = false;
        *cq = &at->cq;
        *cq_context = at->cq.cq_context;
        return 0;
    }
    uint64_t value;
    FUZZ_CHECK(read(channel->fd, &value, sizeof value) > 0 || errno == EAGAIN, "channel");
    errno = EAGAIN;
    return -1;
}
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) {}

/* --- Receives --- */

static int receives_add(struct ibv_recv_wr *ring, struct ibv_sge *elements, uint32_t first, uint32_t *count,
                        uint32_t depth, struct ibv_recv_wr *wr) {
    for (; wr; wr = wr->next) {
        FUZZ_CHECK(*count < depth && wr->num_sge == 1, "a receive queue of %u overruns", depth);
        check_local(wr->sg_list->addr, wr->sg_list->length, wr->sg_list->lkey, IBV_ACCESS_LOCAL_WRITE);
        uint32_t at = (first + (*count)++) % depth;
        ring[at] = *wr;
        elements[at] = *wr->sg_list;
    }
    return 0;
}
static int post_recv(struct ibv_qp *queue, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct fake_qp *qp = (struct fake_qp *)queue;
    FUZZ_CHECK(!qp->qp.srq, "its receives are shared");
    return receives_add(qp->receives, qp->receive_elements, qp->receive_first, &qp->receive_count, qp->max_recv, wr);
}
static int post_srq_recv(struct ibv_srq *queue, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct fake_srq *srq = (struct fake_srq *)queue;
    return receives_add(srq->receives, srq->elements, srq->first, &srq->count, srq->depth, wr);
}
static bool receive_take(struct fake_qp *qp, uint64_t *wr_id, struct ibv_sge *element) {
    struct fake_srq *srq = (struct fake_srq *)qp->qp.srq;
    uint32_t *first = srq ? &srq->first : &qp->receive_first, *count = srq ? &srq->count : &qp->receive_count;
    if (!*count) return false;
    *wr_id = (srq ? srq->receives : qp->receives)[*first].wr_id;
    *element = (srq ? srq->elements : qp->receive_elements)[*first];
    *first = (*first + 1) % (srq ? srq->depth : qp->max_recv);
    --*count;
    return true;
}
bool fake_receive(struct fake_qp *qp, const void *bytes, uint32_t len, enum ibv_wc_status status) {
    uint64_t wr_id;
    struct ibv_sge element;
    if (!receive_take(qp, &wr_id, &element)) return false;
    uint32_t part = len < element.length ? len : element.length;
    if (part) memcpy((void *)(uintptr_t)element.addr, bytes, part);
    if (len > element.length && status == IBV_WC_SUCCESS) status = IBV_WC_LOC_LEN_ERR;
    if (status != IBV_WC_SUCCESS) qp->failed = true;
    complete(
        (struct fake_cq *)qp->qp.recv_cq,
        (struct fake_completion){
            .wc = {.wr_id = wr_id, .status = status, .opcode = IBV_WC_RECV, .byte_len = len, .qp_num = qp->qp.qp_num}});
    return true;
}
bool fake_receive_immediate(struct fake_qp *qp, uint32_t imm_be) {
    uint64_t wr_id;
    struct ibv_sge element;
    if (!receive_take(qp, &wr_id, &element)) return false;
    complete((struct fake_cq *)qp->qp.recv_cq, (struct fake_completion){.wc = {.wr_id = wr_id,
                                                                               .status = IBV_WC_SUCCESS,
                                                                               .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                                                                               .wc_flags = IBV_WC_WITH_IMM,
                                                                               .imm_data = imm_be,
                                                                               .qp_num = qp->qp.qp_num}});
    return true;
}

/* --- Sends --- */

static int post_send(struct ibv_qp *queue, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    struct fake_qp *qp = (struct fake_qp *)queue;
    if (fails()) return ENOMEM;
    for (; wr; wr = wr->next) {
        FUZZ_CHECK(qp->posted - qp->freed < qp->max_send, "a send queue of %u overruns", qp->max_send);
        FUZZ_CHECK(wr->num_sge >= 0 && (uint32_t)wr->num_sge <= qp->max_sge, "%d elements", wr->num_sge);
        struct fake_send *send = &qp->sends[qp->posted++ % qp->max_send];
        *send = (struct fake_send){.wr_id = wr->wr_id,
                                   .signalled = wr->send_flags & IBV_SEND_SIGNALED,
                                   .inlined = wr->send_flags & IBV_SEND_INLINE,
                                   .count = wr->num_sge};
        uint32_t total = 0;
        for (int i = 0; i < wr->num_sge; i++) {
            struct ibv_sge *element = &wr->sg_list[i];
            FUZZ_CHECK(element->length, "an element of zero bytes");
            total += element->length;
            if (!send->inlined) check_local(element->addr, element->length, element->lkey, 0);
            send->elements[i] = *element;
        }
        FUZZ_CHECK(!send->inlined || total <= qp->max_inline, "%u bytes inline", total);
        fake_hooks.sent(qp, wr, send);
    }
    return 0;
}
bool fake_complete_send(struct fake_qp *qp, enum ibv_wc_status status) {
    for (bool any = false;; any = true) {
        if (qp->completed == qp->posted) return any;
        struct fake_send *send = &qp->sends[qp->completed++ % qp->max_send];
        if (status == IBV_WC_SUCCESS) fake_hooks.completed(qp, send);
        if (!send->signalled && status == IBV_WC_SUCCESS) continue; /* reported by the next signaled send */
        if (status != IBV_WC_SUCCESS) qp->failed = true;
        complete((struct fake_cq *)qp->qp.send_cq,
                 (struct fake_completion){.wc = {.wr_id = send->wr_id, .status = status, .qp_num = qp->qp.qp_num},
                                          .qp = qp,
                                          .number = qp->completed});
        return true;
    }
}
void fake_stray(int which, uint32_t qp_num, uint64_t wr_id, enum ibv_wc_status status) {
    if (!devices[which].queues || devices[which].queues->count == devices[which].queues->capacity) return;
    complete(devices[which].queues,
             (struct fake_completion){.wc = {.wr_id = wr_id & ~UINT64_C(1), .status = status, .qp_num = qp_num}});
}

/* --- Contexts --- */

static struct ibv_context *context_of(int which) {
    struct fake_device *device = &devices[which];
    if (device->made) return &device->context;
    device->made = true;
    snprintf(device->device.name, sizeof device->device.name, "fake_%d", which);
    device->context.device = &device->device;
    device->context.ops.poll_cq = poll_cq;
    device->context.ops.req_notify_cq = req_notify_cq;
    device->context.ops.post_send = post_send;
    device->context.ops.post_recv = post_recv;
    device->context.ops.post_srq_recv = post_srq_recv;
    device->context.async_fd = -1;
    device->context.num_comp_vectors = 4;
    return &device->context;
}
struct ibv_device **ibv_get_device_list(int *count) {
    struct ibv_device **list = zeroed((FAKE_DEVICES + 1) * sizeof *list);
    for (int i = 0; i < FAKE_DEVICES; i++) list[i] = context_of(i)->device;
    if (count) *count = FAKE_DEVICES;
    return list;
}
void ibv_free_device_list(struct ibv_device **list) {
    free(list);
}
const char *ibv_get_device_name(struct ibv_device *device) {
    return device->name;
}
struct ibv_context *ibv_open_device(struct ibv_device *device) {
    return context_of(device == &devices[1].device);
}
int ibv_close_device(struct ibv_context *context) {
    return 0;
}
int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    bool rich = context == &devices[0].context;
    if (fails()) return ENOMEM;
    *attr = (struct ibv_device_attr){.max_cqe = 65536,
                                     .max_qp_wr = rich ? 1024 : 16,
                                     .max_sge = rich ? 30 : 1,
                                     .phys_port_cnt = 1,
                                     .max_srq = rich ? 8 : 0,
                                     .max_srq_wr = rich ? 256 : 0};
    return 0;
}
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr) {
    ((struct ibv_port_attr *)attr)->state = IBV_PORT_ACTIVE;
    return 0;
}
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
    *gid = (union ibv_gid){.raw = {0xfe, 0x80}};
    return fails() ? -1 : 0;
}
const char *rdma_event_str(enum rdma_cm_event_type type) {
    return "an event";
}
int ibv_fork_init(void) {
    return 0;
}
enum ibv_fork_status ibv_is_fork_initialized(void) {
    return IBV_FORK_UNNEEDED;
}
int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    return -1;
}
void ibv_ack_async_event(struct ibv_async_event *event) {}
const char *ibv_event_type_str(enum ibv_event_type type) {
    return "an event";
}
const char *ibv_wc_status_str(enum ibv_wc_status status) {
    return "a status";
}
struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    if (fails()) return NULL;
    struct ibv_pd *pd = zeroed(sizeof *pd);
    pd->context = context;
    return pd;
}
int ibv_dealloc_pd(struct ibv_pd *pd) {
    for (const struct fake_mr *mr = regions; mr; mr = mr->next) FUZZ_CHECK(mr->mr.pd != pd, "a region is left");
    free(pd);
    return 0;
}
struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
    if (fails()) return NULL;
    struct fake_srq *srq = zeroed(sizeof *srq);
    srq->srq.context = pd->context;
    srq->depth = attr->attr.max_wr;
    srq->receives = zeroed(srq->depth * sizeof *srq->receives);
    srq->elements = zeroed(srq->depth * sizeof *srq->elements);
    return &srq->srq;
}
int ibv_modify_srq(struct ibv_srq *queue, struct ibv_srq_attr *attr, int mask) {
    const struct fake_srq *srq = (const struct fake_srq *)queue;
    return mask == IBV_SRQ_LIMIT && attr->srq_limit <= srq->depth ? 0 : EINVAL;
}
int ibv_destroy_srq(struct ibv_srq *queue) {
    struct fake_srq *srq = (struct fake_srq *)queue;
    free(srq->receives);
    free(srq->elements);
    free(srq);
    return 0;
}
uint32_t fake_shared_receives(const struct ibv_srq *queue, uint32_t *depth) {
    const struct fake_srq *srq = (const struct fake_srq *)queue;
    *depth = srq ? srq->depth : 0;
    return srq ? srq->count : 0;
}
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    return 0;
}

/* --- Connection manager --- */

struct fake_id {
    struct rdma_cm_id id;
    enum fake_stage stage;
};
struct fake_cm_event {
    struct rdma_cm_event event;
    struct fake_cm_event *next;
};
static struct fake_cm_event *events, **events_end = &events;
static struct rdma_event_channel *the_channel;

enum fake_stage *fake_stage(struct rdma_cm_id *id) {
    return &((struct fake_id *)id)->stage;
}

static void push_event(struct rdma_cm_id *id, struct rdma_cm_id *listener, enum rdma_cm_event_type type, int status) {
    struct fake_cm_event *event = zeroed(sizeof *event);
    event->event = (struct rdma_cm_event){.id = id, .listen_id = listener, .event = type, .status = status};
    *events_end = event;
    events_end = &event->next;
    uint64_t one = 1;
    FUZZ_CHECK(write(the_channel->fd, &one, sizeof one) == sizeof one, "channel");
}
void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status) {
    push_event(id, NULL, type, status);
}

static struct fake_id *new_id(struct rdma_event_channel *channel, void *context) {
    struct fake_id *id = zeroed(sizeof *id);
    id->id.channel = channel;
    id->id.context = context;
    id->id.ps = RDMA_PS_TCP;
    struct sockaddr_in *from = (struct sockaddr_in *)&id->id.route.addr.src_addr,
                       *to = (struct sockaddr_in *)&id->id.route.addr.dst_addr;
    from->sin_family = to->sin_family = AF_INET;
    from->sin_port = to->sin_port = htons(6379);
    fake_counts.ids++;
    return id;
}
struct rdma_cm_id *fake_request(struct rdma_cm_id *listener, int device) {
    struct fake_id *id = new_id(listener->channel, listener->context);
    id->id.verbs = context_of(device);
    push_event(&id->id, listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    return &id->id;
}
struct rdma_event_channel *rdma_create_event_channel(void) {
    the_channel = zeroed(sizeof *the_channel);
    the_channel->fd = eventfd(0, EFD_CLOEXEC);
    return the_channel;
}
void rdma_destroy_event_channel(struct rdma_event_channel *channel) {
    FUZZ_CHECK(fake_counts.ids == 0, "%d identifiers are left", fake_counts.ids);
    close(channel->fd);
    free(channel);
}
int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps) {
    if (fails()) return -1;
    *id = &new_id(channel, context)->id;
    return 0;
}
int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel) {
    if (fails()) return -1;
    id->channel = channel;
    return 0;
}
/* Drops connection requests that were not fetched from their listener. */
static void drop_requests(const struct rdma_cm_id *listener) {
    for (struct fake_cm_event *event = events; event;) {
        bool drop = event->event.listen_id == listener;
        if (drop) rdma_destroy_id(event->event.id);
        event = drop ? events : event->next;
    }
}
int rdma_destroy_id(struct rdma_cm_id *id) {
    FUZZ_CHECK(!id->qp, "its queue pair is left");
    drop_requests(id);
    struct fake_cm_event **at = &events;
    while (*at) { /* events that were not fetched are dropped */
        struct fake_cm_event *event = *at;
        if (event->event.id != id) {
            at = &event->next;
            continue;
        }
        *at = event->next;
        free(event);
    }
    events_end = at;
    fake_hooks.id_destroyed(id);
    fake_counts.ids--;
    free(id);
    return 0;
}
int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
    if (!events) {
        uint64_t value;
        FUZZ_CHECK(read(channel->fd, &value, sizeof value) > 0 || errno == EAGAIN, "channel");
        errno = EAGAIN;
        return -1;
    }
    *event = &events->event;
    events = events->next;
    if (!events) events_end = &events;
    return 0;
}
int rdma_ack_cm_event(struct rdma_cm_event *event) {
    free(event);
    return 0;
}
int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr) {
    return fails() ? -1 : 0;
}
int rdma_listen(struct rdma_cm_id *id, int backlog) {
    return fails() ? -1 : 0;
}
int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len) {
    return 0;
}
__be16 rdma_get_src_port(struct rdma_cm_id *id) {
    return htons(6379);
}
static int ask(struct rdma_cm_id *id, enum fake_stage stage) {
    if (fails()) return -1;
    *fake_stage(id) = stage;
    return 0;
}
int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int timeout_ms) {
    id->verbs = context_of(fake_next_device);
    return ask(id, FAKE_ADDRESS);
}
int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms) {
    return ask(id, FAKE_ROUTE);
}
int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    FUZZ_CHECK(id->qp, "no queue pair");
    return ask(id, FAKE_CONNECT);
}
int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    FUZZ_CHECK(id->qp, "no queue pair");
    return ask(id, FAKE_CONNECT);
}
/* Called only if a traffic class is set, which no target does. */
int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
    errno = EOPNOTSUPP;
    return -1;
}
int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event) {
    FUZZ_CHECK(event == IBV_EVENT_COMM_EST, "event %d", (int)event);
    return 0;
}
int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len) {
    return 0;
}
int rdma_disconnect(struct rdma_cm_id *id) {
    if (id->qp) ((struct fake_qp *)id->qp)->failed = true;
    return 0;
}
int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    static uint32_t number;
    bool rich = id->verbs == &devices[0].context;
    if (fails()) return -1;
    if (attr->cap.max_inline_data > (rich ? 220 : 0)) {
        errno = EINVAL;
        return -1;
    }
    struct fake_qp *qp = zeroed(sizeof *qp);
    number = (number + 1) % 9000;
    qp->qp = (struct ibv_qp){.context = id->verbs,
                             .pd = pd,
                             .send_cq = attr->send_cq,
                             .recv_cq = attr->recv_cq,
                             .srq = attr->srq,
                             .qp_num = number};
    qp->id = id;
    qp->max_send = attr->cap.max_send_wr;
    qp->max_recv = attr->cap.max_recv_wr;
    qp->max_sge = attr->cap.max_send_sge;
    qp->max_inline = attr->cap.max_inline_data;
    qp->sends = zeroed(qp->max_send * sizeof *qp->sends);
    qp->receives = zeroed((qp->max_recv + 1) * sizeof *qp->receives);
    qp->receive_elements = zeroed((qp->max_recv + 1) * sizeof *qp->receive_elements);
    id->qp = &qp->qp;
    fake_counts.queue_pairs++;
    return 0;
}
void rdma_destroy_qp(struct rdma_cm_id *id) {
    struct fake_qp *qp = (struct fake_qp *)id->qp;
    fake_hooks.qp_destroyed(qp);
    for (struct fake_cq *cq = device_of(qp->qp.context)->queues; cq; cq = cq->next)
        for (uint32_t i = 0; i < cq->count; i++) { /* its sends no longer occupy entries */
            struct fake_completion *completion = &cq->ring[(cq->first + i) % cq->capacity];
            if (completion->qp == qp) completion->qp = NULL;
        }
    free(qp->sends);
    free(qp->receives);
    free(qp->receive_elements);
    free(qp);
    id->qp = NULL;
    fake_counts.queue_pairs--;
}
