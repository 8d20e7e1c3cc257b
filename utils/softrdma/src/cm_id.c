/* Identifiers: creation, binding, resolving, listening, options, destruction.
 *
 * An identifier outlives rdma_destroy_id while the program holds events of it, and its memory is freed on the
 * progress thread, which may be looking at one of its doors. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "cm.h"
#include "config.h"
#include "fault.h"
#include "net.h"
#include "stats.h"

#define DEFAULT_BACKLOG 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cm_id **table; /* by number & mask; a slot is used again only after all others */
static uint32_t table_size, table_used, next_number;
static struct link ids = {&ids, &ids};

void cm_lock(void) {
    pthread_mutex_lock(&lock);
}
void cm_unlock(void) {
    pthread_mutex_unlock(&lock);
}

struct cm_id *cm_find(uint32_t number) {
    struct cm_id *c = table_size ? table[number & (table_size - 1)] : NULL;
    return c && c->number == number && !c->destroyed ? c : NULL;
}

void cm_each(void (*visit)(struct cm_id *, void *), void *arg) {
    for (struct link *l = ids.next, *next; l != &ids; l = next) {
        next = l->next;
        visit(container_of(l, struct cm_id, link), arg);
    }
}

static bool table_grow(void) {
    uint32_t size = table_size ? table_size * 2 : 64;
    struct cm_id **bigger = calloc(size, sizeof(*bigger));
    if (!bigger) return false;
    for (uint32_t i = 0; i < table_size; i++)
        if (table[i]) bigger[table[i]->number & (size - 1)] = table[i];
    free(table);
    table = bigger;
    table_size = size;
    return true;
}

/* Numbers count upward, skipping those whose slot is in use: no number comes back before all 2^32 have
 * been. */
static bool number_take(struct cm_id *c) {
    if (table_used * 2 >= table_size && !table_grow()) return false;
    do ++next_number;
    while (!next_number || table[next_number & (table_size - 1)]);
    c->number = next_number;
    table[c->number & (table_size - 1)] = c;
    table_used++;
    list_append(&ids, &c->link);
    return true;
}

static void free_on_thread(struct task *task) {
    struct cm_id *c = container_of(task, struct cm_id, free_task);
    timer_cancel_wait(&c->timer);
    peer_put(c->peer);
    free(c);
}

void cm_maybe_free(struct cm_id *c) {
    if (!c->destroyed || c->unacked || !c->link.next) return;
    list_remove(&c->link);
    table[c->number & (table_size - 1)] = NULL;
    table_used--;
    c->free_task.run = free_on_thread;
    progress_run(&c->free_task);
}

struct cm_id *cm_create(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps) {
    struct cm_id *c = calloc(1, sizeof(*c));
    if (!c) return NULL;
    c->id.channel = channel;
    c->id.context = context;
    c->id.ps = ps;
    c->id.qp_type = IBV_QPT_RC;
    cm_prepare_timer(c);
    if (!number_take(c)) {
        free(c);
        return NULL;
    }
    stats_inc(cm_ids);
    return c;
}

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                     enum rdma_port_space ps) {
    int err = -device_start();
    if (!err) err = fault_errno(FAULT_CREATE_ID);
    if (!err && !device_count()) err = ENODEV;
    if (!err && ps != RDMA_PS_TCP && ps != RDMA_PS_IB) err = EOPNOTSUPP; /* no datagrams */
    if (err) return fail(err);
    struct rdma_event_channel *own = channel ? NULL : (struct rdma_event_channel *)cm_channel_create();
    if (!channel && !own) return fail(ENOMEM);
    cm_lock();
    struct cm_id *c = cm_create(channel ? channel : own, context, ps);
    cm_unlock();
    if (!c) {
        if (own) rdma_destroy_event_channel(own);
        return fail(ENOMEM);
    }
    c->sync = !channel;
    *id = &c->id;
    return 0;
}

SR_EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                             enum rdma_port_space ps) {
    return create_id(channel, id, context, ps);
}

SR_EXPORT int rdma_destroy_id(struct rdma_cm_id *id) {
    struct cm_id *c = to_cm(id);
    if (id->verbs && !device_is_ours(id->verbs)) return fail(EPERM);
    struct rdma_event_channel *own = c->sync ? id->channel : NULL;
    if (c->sync && id->event) {
        rdma_ack_cm_event(id->event);
        id->event = NULL;
    }
    timer_cancel_wait(&c->timer);
    cm_lock();
    cm_drop_events(c);
    cm_hang_up(c);
    port_release(&c->port);
    c->destroyed = true;
    cm_maybe_free(c);
    cm_unlock();
    stats_dec(cm_ids);
    if (own) rdma_destroy_event_channel(own);
    return 0;
}

SR_EXPORT int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel) {
    struct cm_id *c = to_cm(id);
    if (c->sync && !channel) return fail(EINVAL);
    struct rdma_event_channel *own = channel ? NULL : (struct rdma_event_channel *)cm_channel_create();
    if (!channel && !own) return fail(ENOMEM);
    if (c->sync && id->event) {
        rdma_ack_cm_event(id->event);
        id->event = NULL;
    }
    struct cm_channel *from = (struct cm_channel *)id->channel, *to = (struct cm_channel *)(channel ? channel : own);
    struct rdma_event_channel *old = c->sync ? id->channel : NULL;
    cm_lock();
    /* What is queued goes along; the counts of both descriptors follow. */
    for (struct link *l = from->events.next, *next; l != &from->events; l = next) {
        next = l->next;
        if (container_of(l, struct cm_event, link)->owner != c) continue;
        list_remove(l);
        list_append(&to->events, l);
        eventfd_t one;
        eventfd_read(from->ib.fd, &one);
        eventfd_write(to->ib.fd, 1);
    }
    id->channel = &to->ib;
    c->sync = !channel;
    cm_unlock();
    if (old) rdma_destroy_event_channel(old);
    return 0;
}

/* --- addresses --- */

int cm_attach_device(struct cm_id *c, const struct sockaddr *addr) {
    if (c->id.verbs) return 0;
    c->id.verbs = device_context(net_device_of(addr));
    if (!c->id.verbs) return -errno;
    c->id.port_num = 1;
    return 0;
}

void cm_fill_path(struct cm_id *c) {
    net_gid_of(cm_src(c), &c->id.route.addr.addr.ibaddr.sgid);
    net_gid_of(cm_dst(c), &c->id.route.addr.addr.ibaddr.dgid);
    c->id.route.addr.addr.ibaddr.pkey = htobe16(0xffff);
    c->path.sgid = c->id.route.addr.addr.ibaddr.sgid;
    c->path.dgid = c->id.route.addr.addr.ibaddr.dgid;
    c->path.pkey = htobe16(0xffff);
    c->path.mtu = IBV_MTU_4096;
    c->path.mtu_selector = 2;
    c->path.reversible = 1;
    c->path.numb_path = 1;
    c->path.hop_limit = 64;
    c->id.route.path_rec = &c->path;
    c->id.route.num_paths = 1;
}

/* Takes the address and its port; an identifier that may share a port takes it when it listens. */
static int bind_port(struct cm_id *c, const struct sockaddr *addr) {
    struct sockaddr_storage at = {0};
    memcpy(&at, addr, net_len(addr));
    struct sockaddr *sa = (struct sockaddr *)&at;
    int r = 0;
    if (net_port(addr)) {
        if (!c->reuse_addr) r = port_bind(&c->port, c->id.ps, sa, c->af_only);
        c->port.number = net_port(addr);
    } else {
        for (int tries = 0; tries < 1024; tries++) {
            uint16_t port = port_take_ephemeral();
            if (!port) return -EADDRINUSE;
            net_set_port(sa, port);
            r = port_bind(&c->port, c->id.ps, sa, c->af_only);
            c->port.ephemeral = !r;
            if (!r) break;
            port_give_back(port);
            if (r != -EADDRINUSE) break;
        }
    }
    if (r) {
        c->port.number = 0;
        return r;
    }
    memcpy(cm_src(c), &at, sizeof(at));
    return 0;
}

static int check_family(const struct sockaddr *addr) {
    return addr && (addr->sa_family == AF_INET || addr->sa_family == AF_INET6) ? 0 : EAFNOSUPPORT;
}

SR_EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr) {
    struct cm_id *c = to_cm(id);
    int err = fault_errno(FAULT_BIND);
    if (!err) err = check_family(addr);
    if (!err && c->state != CM_IDLE) err = EINVAL;
    if (!err && !net_is_local(addr)) err = EADDRNOTAVAIL;
    if (err) return fail(err);
    cm_lock();
    int r = bind_port(c, addr);
    if (!r && !net_is_wildcard(addr)) r = cm_attach_device(c, addr);
    if (!r) c->state = CM_BOUND;
    cm_unlock();
    return fail(-r);
}

static int bind_default(struct rdma_cm_id *id) {
    struct sockaddr_in any = {.sin_family = AF_INET};
    return rdma_bind_addr(id, (struct sockaddr *)&any);
}

SR_EXPORT int rdma_listen(struct rdma_cm_id *id, int backlog) {
    struct cm_id *c = to_cm(id);
    int err = fault_errno(FAULT_LISTEN);
    if (err) return fail(err);
    if (c->state == CM_IDLE && bind_default(id)) return -1;
    cm_lock();
    if (c->state != CM_BOUND && c->state != CM_LISTENING) err = EINVAL;
    if (!err && !c->port.door_count) err = -port_bind(&c->port, id->ps, cm_src(c), c->af_only);
    for (uint32_t i = 0; i < c->port.door_count && !err; i++) err = -door_listen(&c->port.doors[i]);
    if (!err) {
        c->backlog = backlog > 0 && backlog < DEFAULT_BACKLOG ? (uint32_t)backlog : DEFAULT_BACKLOG;
        c->state = CM_LISTENING;
    }
    cm_unlock();
    return fail(err);
}

/* The source address the kernel would use towards `dst`: the machine talks to itself, so it is the same. */
static void default_source(struct cm_id *c) {
    struct sockaddr *src = cm_src(c);
    uint16_t port = net_port(src);
    memcpy(src, cm_dst(c), net_len(cm_dst(c)));
    net_set_port(src, port);
}

static int resolve_source(struct cm_id *c, const struct sockaddr *src) {
    if (c->state == CM_IDLE && src && !check_family(src)) {
        if (!net_is_local(src)) return -EADDRNOTAVAIL;
        int r = net_port(src) ? bind_port(c, src) : 0;
        if (r) return r;
        if (!net_port(src)) memcpy(cm_src(c), src, net_len(src));
    }
    if (!cm_src(c)->sa_family || net_is_wildcard(cm_src(c))) default_source(c);
    if (!c->port.number) {
        c->port.number = port_take_ephemeral();
        c->port.ephemeral = true;
        if (!c->port.number) return -EADDRNOTAVAIL;
        net_set_port(cm_src(c), c->port.number);
    }
    return 0;
}

static void wildcard_means_loopback(struct sockaddr *dst) {
    if (!net_is_wildcard(dst)) return;
    if (dst->sa_family == AF_INET)
        ((struct sockaddr_in *)dst)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        ((struct sockaddr_in6 *)dst)->sin6_addr = in6addr_loopback;
}

SR_EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms) {
    struct cm_id *c = to_cm(id);
    struct fault f;
    int err = check_family(dst);
    if (err) return fail(err);
    cm_lock();
    if (c->state != CM_IDLE && c->state != CM_BOUND) err = EINVAL;
    bool hit = !err && fault_hit(FAULT_RESOLVE_ADDR, NULL, &f);
    if (hit && f.action == ACT_FAIL) err = (int)f.value;
    if (!err) {
        memset(&id->route.addr.dst_storage, 0, sizeof(id->route.addr.dst_storage));
        memcpy(cm_dst(c), dst, net_len(dst));
        wildcard_means_loopback(cm_dst(c));
        err = -resolve_source(c, src);
    }
    if (!err && hit && f.action == ACT_UNREACHABLE) {
        cm_raise(c, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT, NULL, NULL);
    } else if (!err && !net_is_local(cm_dst(c))) {
        cm_raise(c, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, NULL, NULL);
    } else if (!err && !(err = -cm_attach_device(c, cm_src(c)))) {
        c->state = CM_ADDR_RESOLVED;
        cm_fill_path(c);
        cm_raise(c, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, NULL);
    }
    cm_unlock();
    return err ? fail(err) : cm_wait(c);
}

SR_EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms) {
    struct cm_id *c = to_cm(id);
    struct fault f;
    cm_lock();
    int err = c->state == CM_ADDR_RESOLVED ? 0 : EINVAL;
    bool hit = !err && fault_hit(FAULT_RESOLVE_ROUTE, NULL, &f);
    if (hit && f.action == ACT_FAIL) err = (int)f.value;
    if (!err && hit && f.action == ACT_UNREACHABLE) {
        cm_raise(c, RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT, NULL, NULL);
    } else if (!err) {
        c->state = CM_ROUTE_RESOLVED;
        cm_raise(c, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, NULL);
    }
    cm_unlock();
    return err ? fail(err) : cm_wait(c);
}

SR_EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id) {
    return htons(net_port(&id->route.addr.src_addr));
}
SR_EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id) {
    return htons(net_port(&id->route.addr.dst_addr));
}

/* --- options --- */

static int set_id_option(struct cm_id *c, int name, const void *value, size_t len) {
    switch (name) {
    case RDMA_OPTION_ID_TOS: /* the path of a connection that this end requests; later it changes nothing */
        if (len != sizeof(uint8_t)) return EINVAL;
        c->tos = *(const uint8_t *)value;
        return 0;
    case RDMA_OPTION_ID_REUSEADDR:
        if (len != sizeof(int)) return EINVAL;
        c->reuse_addr = *(const int *)value;
        return 0;
    case RDMA_OPTION_ID_AFONLY:
        if (len != sizeof(int) || c->state != CM_IDLE) return EINVAL;
        c->af_only = *(const int *)value;
        return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        if (len != sizeof(uint8_t) || *(const uint8_t *)value > 31) return EINVAL;
        c->ack_timeout = *(const uint8_t *)value;
        return 0;
    default: return ENOSYS;
    }
}

SR_EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len) {
    if (!value) return fail(EINVAL);
    if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH) return fail(EOPNOTSUPP);
    if (level != RDMA_OPTION_ID) return fail(ENOSYS);
    cm_lock();
    int err = set_id_option(to_cm(id), name, value, len);
    cm_unlock();
    return fail(err);
}

/* --- the whole --- */

void cm_start(void) {
    list_init(&ids);
    cm_conn_start();
}

void cm_forget(void) {
    table = NULL;
    table_size = table_used = 0;
    list_init(&ids);
    port_forget();
    pthread_mutex_init(&lock, NULL);
}
