/* The devices as programs see them: listing, opening, asking, protection domains, asynchronous events. Also
 * where the library starts in a process, and where a forked child lets go of it.
 *
 * The real libibverbs stays loaded for what is not defined here (names of statuses and events, rates). */
#define _GNU_SOURCE
#include "device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bulk.h"
#include "cm.h"
#include "config.h"
#include "fault.h"
#include "mr.h"
#include "net.h"
#include "pages.h"
#include "qp.h"
#include "stats.h"
#include "vma.h"

#define SYSFS_MARK "softrdma:"
#define FW_VERSION "1.0.0-software"
#define BOARD_ID   "SOFTRDMA_NOT_A_CARD"

struct async_event {
    struct link link;
    struct ibv_async_event event;
};

static struct device *devices;
static struct ibv_context **cm_contexts;
static uint32_t pd_numbers, live_pds;
static struct link contexts = {&contexts, &contexts};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool running, started; /* started: at least once */

/* --- start and fork --- */

static void before_fork(void) {
    pages_lock();
    peer_before_fork();
}

static void after_fork_in_parent(void) {
    peer_after_fork_in_parent();
    pages_unlock();
}

static int dead_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    *bad = wr;
    return EPERM;
}

static int dead_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    *bad = wr;
    return EPERM;
}

static int dead_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    *bad = wr;
    return EPERM;
}

static int dead_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc) {
    return (void)cq, (void)n, (void)wc, -1;
}
static int dead_req_notify(struct ibv_cq *cq, int solicited) {
    return (void)cq, (void)solicited, EPERM;
}

/* Everything belongs to the parent: the child closes the library's descriptors (not those the program can
 * see), makes inherited contexts answer with errors, and could begin anew. */
static void after_fork_in_child(void) {
    if (!started) {
        after_fork_in_parent();
        return;
    }
    for (struct link *l = contexts.next; l != &contexts; l = l->next) {
        struct ibv_context_ops *ops = &container_of(l, struct context, link)->verbs.context.ops;
        ops->post_send = dead_post_send;
        ops->post_recv = dead_post_recv;
        ops->post_srq_recv = dead_post_srq_recv;
        ops->poll_cq = dead_poll_cq;
        ops->req_notify_cq = dead_req_notify;
    }
    vma_forget();
    pages_forget_in_child();
    peer_forget();
    arena_forget();
    progress_forget();
    bulk_forget();
    mr_forget();
    qp_forget();
    cq_forget();
    cm_forget();
    stats_forget();
    list_init(&contexts);
    cm_contexts = NULL;
    live_pds = 0;
    running = false;
    pthread_mutex_init(&lock, NULL);
}

static void device_identify(struct device *device, uint32_t index) {
    device->index = index;
    device->ib.node_type = config()->iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
    device->ib.transport_type = config()->iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
    snprintf(device->ib.name, sizeof(device->ib.name), "softrdma%u", index);
    snprintf(device->ib.dev_name, sizeof(device->ib.dev_name), "softrdma%u", index);
    snprintf(device->ib.dev_path, sizeof(device->ib.dev_path), SYSFS_MARK "/dev/%u", index);
    snprintf(device->ib.ibdev_path, sizeof(device->ib.ibdev_path), SYSFS_MARK "/ibdev/%u", index);
}

static int start_parts(void) {
    int r = arena_start();
    if (!r) r = peer_start();
    if (!r) r = progress_start();
    if (r) return r;
    arena_protect_fork();
    stats_start();
    cq_start();
    qp_start();
    cm_start();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0,
          0); /* lets peers of our user reach the edges of regions under Yama */
    return 0;
}

/* Before the program registers handlers: those that run before a fork run in the reverse order, and a program calls
 * this library while it holds locks that its own handlers take. */
__attribute__((constructor)) static void handle_fork(void) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

int device_start(void) {
    pthread_mutex_lock(&lock);
    int r = 0;
    if (!running) {
        fault_start();
        r = start_parts();
        running = !r;
    }
    if (!r && !devices && (devices = calloc(config()->devices + 1, sizeof(*devices))))
        for (uint32_t i = 0; i < config()->devices; i++) device_identify(&devices[i], i);
    if (!r && !devices) r = -ENOMEM;
    started = true;
    pthread_mutex_unlock(&lock);
    return r;
}

uint32_t device_count(void) {
    return config()->devices;
}

bool device_is_ours(const struct ibv_context *ib) {
    return ib->ops.poll_cq == cq_poll;
}

/* --- listing --- */

SR_EXPORT struct ibv_device **ibv_get_device_list(int *num) {
    if (num) *num = 0;
    int r = device_start();
    struct ibv_device **list = r ? NULL : calloc(config()->devices + 1, sizeof(*list));
    if (!list) {
        errno = r ? -r : ENOMEM;
        return NULL;
    }
    for (uint32_t i = 0; i < config()->devices; i++) list[i] = &devices[i].ib;
    if (num) *num = (int)config()->devices;
    return list;
}

SR_EXPORT void ibv_free_device_list(struct ibv_device **list) {
    free(list);
}
SR_EXPORT const char *ibv_get_device_name(struct ibv_device *device) {
    return device->name;
}
SR_EXPORT int ibv_get_device_index(struct ibv_device *device) {
    return (int)((struct device *)device)->index;
}

static __be64 device_guid(uint32_t index) {
    return htobe64(0x02534f4654000000ull | index);
}

SR_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device) {
    return device_guid(((struct device *)device)->index);
}

SR_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size) {
    const char *value = NULL;
    if (!strncmp(dir, SYSFS_MARK, strlen(SYSFS_MARK)))
        value = !strcmp(file, "fw_ver")      ? FW_VERSION
                : !strcmp(file, "board_id")  ? BOARD_ID
                : !strcmp(file, "node_type") ? "1: CA"
                                             : NULL;
    if (!value) return -1;
    return snprintf(buf, size, "%s", value);
}

/* --- asking --- */

static void fill_device_attr(struct device *device, struct ibv_device_attr *attr) {
    const struct config *c = config();
    *attr = (struct ibv_device_attr){.fw_ver = FW_VERSION,
                                     .node_guid = device_guid(device->index),
                                     .sys_image_guid = device_guid(device->index),
                                     .max_mr_size = arena.size / 4 * 3,
                                     .page_size_cap = PAGE,
                                     .vendor_id = 0x534f46,
                                     .vendor_part_id = 0,
                                     .hw_ver = 0,
                                     .max_qp = (int)c->max_qp,
                                     .max_qp_wr = (int)c->max_qp_wr,
                                     .device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN,
                                     .max_sge = (int)c->max_sge,
                                     .max_sge_rd = (int)c->max_sge,
                                     .max_cq = (int)c->max_cq,
                                     .max_cqe = (int)c->max_cqe,
                                     .max_mr = (int)c->max_mr,
                                     .max_pd = (int)c->max_pd,
                                     .max_qp_rd_atom = (int)c->max_rd_atomic,
                                     .max_res_rd_atom = (int)(c->max_rd_atomic * c->max_qp),
                                     .max_qp_init_rd_atom = (int)c->max_rd_atomic,
                                     .atomic_cap = IBV_ATOMIC_HCA,
                                     .max_srq = (int)c->max_srq,
                                     .max_srq_wr = c->max_srq ? (int)c->max_srq_wr : 0,
                                     .max_srq_sge = c->max_srq ? (int)c->max_sge : 0,
                                     .max_pkeys = 1,
                                     .local_ca_ack_delay = 0,
                                     .phys_port_cnt = 1};
}

SR_EXPORT int ibv_query_device(struct ibv_context *ib, struct ibv_device_attr *attr) {
    fill_device_attr(to_context(ib)->device, attr);
    return 0;
}

static int query_device_ex(struct ibv_context *ib, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size) {
    if (input && input->comp_mask) return EINVAL;
    struct ibv_device_attr_ex full = {.phys_port_cnt_ex = 1};
    fill_device_attr(to_context(ib)->device, &full.orig_attr);
    memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
    return 0;
}

static int query_port(struct ibv_context *ib, uint8_t port, struct ibv_port_attr *attr, size_t size) {
    if (port != 1) return EINVAL;
    union ibv_gid gids[NET_MAX_GIDS];
    struct ibv_port_attr full = {.state = IBV_PORT_ACTIVE,
                                 .max_mtu = IBV_MTU_4096,
                                 .active_mtu = IBV_MTU_4096,
                                 .gid_tbl_len = (int)net_gids(to_context(ib)->device->index, gids),
                                 .port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
                                 .max_msg_sz = config()->max_message,
                                 .pkey_tbl_len = 1,
                                 .max_vl_num = 1,
                                 .active_width = 2,
                                 .active_speed = 32,
                                 .phys_state = 5,
                                 .link_layer = IBV_LINK_LAYER_ETHERNET};
    memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
    return 0;
}

#undef ibv_query_port

/* The symbol fills the first, older part of the structure; the macro of today's header goes through
 * query_port. */
SR_EXPORT int ibv_query_port(struct ibv_context *ib, uint8_t port, struct _compat_ibv_port_attr *attr) {
    return query_port(ib, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

static int read_gid(struct ibv_context *ib, uint32_t port, uint32_t index, union ibv_gid *gid) {
    union ibv_gid gids[NET_MAX_GIDS];
    if (port != 1 || index >= net_gids(to_context(ib)->device->index, gids)) return ENODATA;
    *gid = gids[index];
    return 0;
}

SR_EXPORT int ibv_query_gid(struct ibv_context *ib, uint8_t port, int index, union ibv_gid *gid) {
    int err = index < 0 ? EINVAL : read_gid(ib, port, (uint32_t)index, gid);
    errno = err ? err : errno;
    return err ? -1 : 0;
}

SR_EXPORT int _ibv_query_gid_ex(struct ibv_context *ib, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                                uint32_t flags, size_t size) {
    struct ibv_gid_entry full = {.gid_index = index, .port_num = port, .gid_type = IBV_GID_TYPE_ROCE_V2};
    if (flags) return EOPNOTSUPP;
    int err = read_gid(ib, port, index, &full.gid);
    if (err) return err;
    full.ndev_ifindex = net_interface_of(&full.gid);
    memcpy(entry, &full, size < sizeof(full) ? size : sizeof(full));
    return 0;
}

SR_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *ib, struct ibv_gid_entry *entries, size_t max,
                                       uint32_t flags, size_t size) {
    size_t n = 0;
    for (; n < max; n++)
        if (_ibv_query_gid_ex(ib, 1, (uint32_t)n, (struct ibv_gid_entry *)((char *)entries + n * size), flags, size))
            break;
    return (ssize_t)n;
}

/* Of a private interface of libibverbs that its own tools use: 0 is IB or RoCE v1, 1 RoCE v2. */
SR_EXPORT int ibv_query_gid_type(struct ibv_context *ib, uint8_t port, unsigned int index, unsigned int *type) {
    union ibv_gid gid;
    if (read_gid(ib, port, index, &gid)) return -1;
    *type = 1;
    return 0;
}

SR_EXPORT int ibv_query_pkey(struct ibv_context *ib, uint8_t port, int index, __be16 *pkey) {
    if (port != 1 || index) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htobe16(0xffff);
    return 0;
}

SR_EXPORT int ibv_get_pkey_index(struct ibv_context *ib, uint8_t port, __be16 pkey) {
    return (void)ib, port == 1 && pkey == htobe16(0xffff) ? 0 : -1;
}

/* --- contexts --- */

static int modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr) {
    return (void)qp, (void)attr, EOPNOTSUPP;
}

SR_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device) {
    int err = -device_start();
    if (!err) err = fault_errno(FAULT_OPEN_DEVICE);
    struct context *c = err ? NULL : calloc(1, sizeof(*c));
    if (!c) {
        errno = err ? err : ENOMEM;
        return NULL;
    }
    c->device = (struct device *)device;
    pthread_mutex_init(&c->lock, NULL);
    list_init(&c->events);
    c->verbs.query_port = query_port;
    c->verbs.query_device_ex = query_device_ex;
    c->verbs.create_cq_ex = cq_create_ex;
    c->verbs.modify_cq = cq_modify;
    c->verbs.create_qp_ex = qp_create_ex;
    c->verbs.create_srq_ex = srq_create_ex;
    c->verbs.modify_qp_rate_limit = modify_qp_rate_limit;
    c->verbs.sz = sizeof(c->verbs);
    struct ibv_context *ib = &c->verbs.context;
    ib->device = device;
    ib->abi_compat = __VERBS_ABI_IS_EXTENDED;
    ib->num_comp_vectors = (int)config()->comp_vectors;
    ib->async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    ib->cmd_fd = ib->async_fd;
    pthread_mutex_init(&ib->mutex, NULL);
    ib->ops.poll_cq = cq_poll;
    ib->ops.req_notify_cq = cq_req_notify;
    ib->ops.post_send = qp_post_send;
    ib->ops.post_recv = qp_post_recv;
    ib->ops.post_srq_recv = srq_post_recv;
    if (ib->async_fd < 0) {
        free(c);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    list_append(&contexts, &c->link);
    pthread_mutex_unlock(&lock);
    stats_inc(contexts);
    return ib;
}

SR_EXPORT int ibv_close_device(struct ibv_context *ib) {
    struct context *c = to_context(ib);
    close(ib->async_fd);
    for (struct link *l; (l = list_pop(&c->events));) free(container_of(l, struct async_event, link));
    pthread_mutex_lock(&lock);
    list_remove(&c->link);
    pthread_mutex_unlock(&lock);
    stats_dec(contexts);
    free(c);
    return 0;
}

SR_EXPORT struct ibv_context *ibv_import_device(int fd) {
    errno = EOPNOTSUPP;
    return NULL;
}

struct ibv_context *device_context(uint32_t index) {
    int r = device_start();
    if (r || index >= config()->devices) {
        errno = r ? -r : ENODEV;
        return NULL;
    }
    pthread_mutex_lock(&lock);
    if (!cm_contexts) cm_contexts = calloc(config()->devices, sizeof(*cm_contexts));
    struct ibv_context *ib = cm_contexts ? cm_contexts[index] : NULL;
    pthread_mutex_unlock(&lock);
    if (ib || !cm_contexts) return ib;
    ib = ibv_open_device(&devices[index].ib);
    pthread_mutex_lock(&lock);
    if (ib && !cm_contexts[index]) {
        cm_contexts[index] = ib;
        stats_dec(contexts); /* not the program's to close */
    }
    pthread_mutex_unlock(&lock);
    return cm_contexts[index];
}

/* --- protection domains --- */

SR_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ib) {
    int err = fault_errno(FAULT_ALLOC_PD);
    struct pd *pd = err ? NULL : calloc(1, sizeof(*pd));
    pthread_mutex_lock(&lock);
    if (!err && (!pd || live_pds >= config()->max_pd)) err = ENOMEM;
    if (!err) {
        live_pds++;
        pd->id = ++pd_numbers;
    }
    pthread_mutex_unlock(&lock);
    if (err) {
        free(pd);
        errno = err;
        return NULL;
    }
    pd->ib.context = ib;
    pd->ib.handle = pd->id;
    stats_inc(pds);
    return &pd->ib;
}

SR_EXPORT int ibv_dealloc_pd(struct ibv_pd *ib) {
    struct pd *pd = to_pd(ib);
    if (!device_is_ours(ib->context)) return EPERM;
    if (load_acquire(&pd->users)) return EBUSY;
    pthread_mutex_lock(&lock);
    live_pds--;
    pthread_mutex_unlock(&lock);
    stats_dec(pds);
    free(pd);
    return 0;
}

/* --- asynchronous events --- */

static void *event_element(const struct ibv_async_event *event) {
    return event->element.qp; /* all members are pointers in one place */
}

void async_raise(struct ibv_context *ib, enum ibv_event_type type, void *element) {
    struct context *c = to_context(ib);
    struct async_event *e = calloc(1, sizeof(*e));
    if (!e) return;
    e->event.event_type = type;
    e->event.element.qp = element;
    pthread_mutex_lock(&c->lock);
    list_append(&c->events, &e->link);
    pthread_mutex_unlock(&c->lock);
    uint64_t one = 1;
    ssize_t n = write(ib->async_fd, &one, sizeof(one));
    (void)n;
}

void async_purge(struct ibv_context *ib, void *element) {
    struct context *c = to_context(ib);
    pthread_mutex_lock(&c->lock);
    for (struct link *l = c->events.next, *next; l != &c->events; l = next) {
        next = l->next;
        struct async_event *e = container_of(l, struct async_event, link);
        if (event_element(&e->event) != element) continue;
        list_remove(l);
        free(e);
    }
    pthread_mutex_unlock(&c->lock);
}

SR_EXPORT int ibv_get_async_event(struct ibv_context *ib, struct ibv_async_event *event) {
    struct context *c = to_context(ib);
    for (;;) {
        uint64_t one;
        if (read(ib->async_fd, &one, sizeof(one)) != sizeof(one)) return -1;
        pthread_mutex_lock(&c->lock);
        struct link *l = list_pop(&c->events);
        pthread_mutex_unlock(&c->lock);
        if (!l) continue; /* its object has gone meanwhile */
        struct async_event *e = container_of(l, struct async_event, link);
        *event = e->event;
        free(e);
        return 0;
    }
}

SR_EXPORT void ibv_ack_async_event(struct ibv_async_event *event) {}
