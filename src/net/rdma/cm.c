/* cm.c: accepting and connecting, and the events of the connection manager. See cm.h. */
#include "net/rdma/cm.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/rdma/buffer.h"
#include "net/rdma/completion.h"
#include "net/rdma/lifetime.h"
#include "net/rdma/read.h"
#include "net/rdma/send.h"
#include "net/rdma/size.h"
#include "net/rdma/untrusted.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    EVENTS_AT_ONCE = 32,
    RETRY_COUNT = 7,
    RNR_RETRY_FOR_EVER = 7,
    REFUSALS_LOGGED_A_SECOND = 10,
    FULL_ERRORS_A_SECOND = 100
};

/* --- Addresses --- */

bool rdma_connection_address(const struct connection *conn, bool peer, struct address *address) {
    const struct rdma_connection *c = rdma_of(conn);
    if (!c->qp.id) return false;
    return address_from(peer ? rdma_get_peer_addr(c->qp.id) : rdma_get_local_addr(c->qp.id), address);
}

bool rdma_connection_is_local(const struct connection *conn) {
    struct address peer, own;
    if (!rdma_connection_address(conn, true, &peer)) return false;
    if (address_is_loopback(&peer)) return true;
    return rdma_connection_address(conn, false, &own) && strcmp(peer.host, own.host) == 0;
}

/* --- Ending --- */

/* The time after which a lost packet or acknowledgement is retransmitted. The connection manager derives two seconds
 * from the path's properties on RoCE. The value is given in powers of two times 4.096 us; kernels before 5.1 do not
 * know the option. */
static void set_ack_timeout(struct rdma_cm_id *id) {
    enum { UNIT_NS = 4096, STEPS = 32 };
    uint64_t wanted_ns = (uint64_t)rdma_settings.ack_timeout_ms * 1000000;
    uint8_t step = 1;
    if (!wanted_ns) return;
    while (step < STEPS - 1 && (uint64_t)UNIT_NS << step < wanted_ns) step++;
    if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &step, sizeof step) < 0)
        log_debug("RDMA: the acknowledgement timeout cannot be chosen here: %s (errno %d)", strerror(errno), errno);
}

/* Allocates what a connection needs once its device is known: context, receive buffer, queue pair. Returns 0, or -errno
 * with the reason. */
static int allocate(struct rdma_connection *c, char *error, size_t error_size) {
    c->qp.device = rdma_device_of(c->owner, c->qp.id->verbs, &rdma_completion_handlers, error, error_size);
    if (!c->qp.device) return -errno;
    c->qp.device->users++;
    rdma_port_note(c->qp.id);
    set_ack_timeout(c->qp.id);
    if (!rdma_receive_allocate(c)) {
        int failure = errno;
        rdma_registration_error(failure, c->qp.device->name, error, error_size);
        return -failure;
    }
    int result = rdma_queue_pair_create(&c->qp);
    if (result < 0)
        snprintf(error, error_size, "RDMA: cannot create a queue pair (%s): %s", c->qp.device->name, strerror(-result));
    else
        rdma_send_begin(c);
    return result;
}

/* The reads in flight that the peer asked for in its request or granted in its answer. */
struct read_depths {
    uint8_t here;  /* at this end's memory: responder resources */
    uint8_t there; /* at the peer's: initiator depth */
};

static struct read_depths depths_of(const struct rdma_cm_event *event) {
    return (struct read_depths){.here = event->param.conn.responder_resources,
                                .there = event->param.conn.initiator_depth};
}

/* The reads in flight that each end can have, as far as the device and the peer allow them. `peer` NULL: the peer has
 * not been asked yet. */
static uint8_t read_limit(int of_device, const uint8_t *peer) {
    int limit = of_device < RDMA_READS_MAX ? of_device : RDMA_READS_MAX;
    if (limit < 0) limit = 0;
    return peer && *peer < limit ? *peer : (uint8_t)limit;
}

static void fill_parameters(const struct rdma_connection *c, const struct read_depths *asked,
                            struct rdma_conn_param *param) {
    const struct ibv_device_attr *limits = &c->qp.device->limits;
    *param = (struct rdma_conn_param){
        .responder_resources = read_limit(limits->max_qp_rd_atom, asked ? &asked->here : NULL),
        .initiator_depth = read_limit(limits->max_qp_init_rd_atom, asked ? &asked->there : NULL),
        .retry_count = RETRY_COUNT,
        .rnr_retry_count = RNR_RETRY_FOR_EVER, /* a peer that meets no receive of ours waits; it does not fail */
    };
}

/* Moves the queue pair of an incoming connection to `state` with the traffic class `class`. 0 or -errno. */
static int modify_accepted(struct rdma_connection *c, enum ibv_qp_state state, int class,
                           const struct rdma_conn_param *param) {
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask;
    if (rdma_init_qp_attr(c->qp.id, &attr, &mask) < 0) return -errno;
    if (mask & IBV_QP_AV && attr.ah_attr.is_global) attr.ah_attr.grh.traffic_class = (uint8_t) class;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) {
        attr.max_dest_rd_atomic = param->responder_resources;
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (param->responder_resources) attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ;
        mask |= IBV_QP_ACCESS_FLAGS;
    }
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC) attr.max_rd_atomic = param->initiator_depth;
    if (mask & IBV_QP_RNR_RETRY) attr.rnr_retry = param->rnr_retry_count;
    if (mask & IBV_QP_RETRY_CNT) attr.retry_cnt = param->retry_count;
    return -ibv_modify_qp(c->qp.verbs, &attr, mask);
}

/* Accepts the request of a connection: 0 or -errno. rdma_accept() would give the queue pair the traffic class of the
 * peer's request, and the type of service of the identifier is not used then. Where a class is set, this end moves the
 * queue pair through its states itself, and rdma_accept() sees none that it should move. */
static int accept_request(struct rdma_connection *c, struct rdma_conn_param *param) {
    int class = rdma_settings.traffic_class;
    if (class < 0) return rdma_accept(c->qp.id, param) < 0 ? -errno : 0;
    int result = modify_accepted(c, IBV_QPS_RTR, class, param);
    if (result == 0) result = modify_accepted(c, IBV_QPS_RTS, class, param);
    if (result < 0) return result;
    param->qp_num = c->qp.number;
    param->srq = c->qp.verbs->srq != NULL;
    c->qp.id->qp = NULL;
    if (rdma_accept(c->qp.id, param) < 0) result = -errno;
    c->qp.id->qp = c->qp.verbs;
    return result;
}

/* A reason, as part of a line that names the subject already. */
static const char *without_prefix(const char *reason) {
    return strncmp(reason, "RDMA: ", 6) == 0 ? reason + 6 : reason;
}

/* --- Accepting --- */

static void rdma_cm_refuse(struct rdma_loop *owner, struct rdma_cm_id *id, enum rdma_refusal cause, const char *format,
                           ...) __attribute__((format(printf, 4, 5)));
static void rdma_cm_refuse(struct rdma_loop *owner, struct rdma_cm_id *id, enum rdma_refusal cause, const char *format,
                           ...) {
    static _Thread_local struct log_limit limit = {.interval_us = 1000000, .lines = REFUSALS_LOGGED_A_SECOND};
    char text[400], device[RDMA_NAME_MAX];
    struct address from = {.host = "?"};
    va_list arguments;
    owner->stats.refused++;
    owner->stats.refusals[cause]++;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    address_from(rdma_get_peer_addr(id), &from);
    log_limited(&limit, LOG_LEVEL_WARNING, "RDMA: refused a connection from %s:%d (%s): %s", from.host, from.port,
                rdma_device_text(id, device), without_prefix(text));
    rdma_reject(id, NULL, 0);
}

static uint64_t accept_timed_out(struct event_timer *timer) {
    struct rdma_connection *c = container_of(timer, struct rdma_connection, timer);
    char name[RDMA_NAME_MAX];
    log_verbose("RDMA: %s did not complete the connection in time", rdma_connection_name(c, name));
    c->owner->stats.failed++;
    c->owner->stats.errors[RDMA_ERROR_TIMEOUT]++;
    rdma_connection_finish(c);
    return 0;
}

/* The peer has withdrawn its request, or is gone, before it was accepted. */
static void gave_up(struct rdma_connection *c) {
    char name[RDMA_NAME_MAX];
    log_verbose("RDMA: %s gave up while it was connecting", rdma_connection_name(c, name));
    c->owner->stats.failed++;
    c->owner->stats.errors[RDMA_ERROR_CONNECT]++;
}

/* When the server is full, a few connections are accepted all the same, so that `accepted` can send them the reason;
 * the others of a flood are rejected. */
static bool accepted_to_refuse(struct rdma_loop *owner) {
    uint64_t second = clock_mono() / 1000000;
    if (second != owner->full_errors_second) {
        owner->full_errors_second = second;
        owner->full_errors = 0;
    }
    return owner->full_errors++ < FULL_ERRORS_A_SECOND;
}

/* Runs on the connection's future loop, before any memory is spent on it. True: it holds a claim of `size` bytes as an
 * untrusted connection. */
static bool admit(struct rdma_loop *owner, struct rdma_cm_id *id, uint32_t size) {
    if (rdma_settings.max_clients && rdma_accepted >= rdma_settings.max_clients) {
        rdma_cm_refuse(owner, id, RDMA_REFUSED_MAX_CLIENTS,
                       "%u RDMA connections are open, the limit (rdma-max-clients)", rdma_settings.max_clients);
        return false;
    }
    struct rdma_device *device = rdma_device_known(owner, id->verbs);
    if (device && !rdma_rx_available(&device->memory, size)) {
        char text[320];
        rdma_registration_error(EDQUOT, device->name, text, sizeof text);
        rdma_cm_refuse(owner, id, RDMA_REFUSED_MEMORY, "%s", text);
        return false;
    }
    if (!rdma_untrusted_claim(owner, size)) {
        rdma_cm_refuse(owner, id, RDMA_REFUSED_UNTRUSTED,
                       "clients that have not authenticated yet hold %llu bytes (rdma-max-unauthenticated-memory)",
                       (unsigned long long)rdma_untrusted_bytes());
        return false;
    }
    return true;
}

/* Accepts on this loop, for its own listener or for one of another loop (then `arrived`). */
static void accept_here(struct rdma_loop *owner, struct rdma_cm_id *id, const struct read_depths *asked,
                        struct rdma_listener *l, void (*arrived)(struct connection *)) {
    uint32_t size = rdma_receive_first_size(true);
    if (!admit(owner, id, size)) {
        rdma_destroy_id(id);
        return;
    }
    struct rdma_connection *c = mem_calloc(1, sizeof *c);
    rdma_connection_init(c, owner, CONN_CONNECTING);
    c->qp.id = id;
    id->context = c;
    c->passive = true;
    rdma_untrusted_enter(c, size);
    rdma_accepted++;
    c->connecting.listener = l;
    c->connecting.arrived = arrived;
    c->phase = RDMA_CONNECTING;
    conn_format_address(&c->conn, true, c->target);
    char error[400];
    bool gone = false;
    int result = allocate(c, error, sizeof error);
    if (result == 0) {
        struct rdma_conn_param param;
        fill_parameters(c, asked, &param);
        result = accept_request(c, &param);
        c->read_depth = param.initiator_depth;
        if (result < 0) {
            snprintf(error, sizeof error, "accepting failed (%s): %s", c->qp.device->name, strerror(-result));
            gone = result == -EINVAL && rdma_reject(id, NULL, 0) < 0; /* no request is left that could be rejected */
        }
    }
    if (result < 0) {
        if (gone)
            gave_up(c);
        else
            rdma_cm_refuse(owner, id, result == -EDQUOT ? RDMA_REFUSED_MEMORY : RDMA_REFUSED_RESOURCES, "%s", error);
        rdma_connection_finish(c);
        return;
    }
    uint32_t timeout_ms = rdma_settings.connect_timeout_ms ? rdma_settings.connect_timeout_ms : 5000;
    event_timer_set(owner->loop, &c->timer, (uint64_t)timeout_ms * 1000, accept_timed_out);
}

/* A connection request on its way to another loop. Its identifier has moved to that loop's event channel already.
 * Events that arrive before it is accepted there are ignored: accepting then fails, or does not complete in time. */
struct cm_placed {
    struct event_post post; /* must be first */
    struct rdma_loop *owner;
    struct rdma_cm_id *id;
    struct read_depths asked;
    void (*arrived)(struct connection *conn);
};

static void placed_arrives(struct event_post *post) {
    struct cm_placed *placed = (struct cm_placed *)post;
    accept_here(placed->owner, placed->id, &placed->asked, NULL, placed->arrived);
    mem_free(placed);
}

static void placed_dropped(struct event_post *post) {
    rdma_destroy_id(((struct cm_placed *)post)->id); /* the peer sees that it is rejected */
    mem_free(post);
}

static void on_request(struct rdma_listener *l, struct rdma_cm_id *id, const struct read_depths *asked) {
    if (l->listener.has_capacity && !l->listener.has_capacity(&l->listener) &&
        (l->listener.rejects || !accepted_to_refuse(l->owner))) {
        rdma_cm_refuse(l->owner, id, RDMA_REFUSED_FULL, "the number of clients has reached maxclients");
        rdma_destroy_id(id);
        return;
    }
    struct event_loop *loop = l->listener.place ? l->listener.place(&l->listener) : NULL;
    if (!loop || loop == l->owner->loop) {
        accept_here(l->owner, id, asked, l, NULL);
        return;
    }
    struct rdma_loop *owner = rdma_loop_find(loop);
    id->context = NULL;
    if (rdma_migrate_id(id, owner->channel) < 0) {
        rdma_cm_refuse(l->owner, id, RDMA_REFUSED_RESOURCES, "cannot move it to an I/O thread: %s", strerror(errno));
        rdma_destroy_id(id);
        return;
    }
    struct cm_placed *placed = mem_alloc(sizeof *placed);
    *placed = (struct cm_placed){.post = {.run = placed_arrives, .drop = placed_dropped},
                                 .owner = owner,
                                 .id = id,
                                 .asked = *asked,
                                 .arrived = l->listener.arrived};
    event_loop_post(loop, &placed->post);
}

/* --- Connecting --- */

static void next_attempt(struct rdma_connection *c, int error);

static uint32_t milliseconds_left(const struct rdma_connection *c) {
    uint64_t now = clock_monotonic_us();
    return now >= c->connecting.deadline_us ? 1 : (uint32_t)((c->connecting.deadline_us - now) / 1000 + 1);
}

static void connect_failed(struct rdma_connection *c, int error, const char *reason) {
    char text[640];
    snprintf(text, sizeof text, "RDMA: cannot connect to %s%s%s%s: %s", c->target, c->qp.device ? " (" : "",
             c->qp.device ? c->qp.device->name : "", c->qp.device ? ")" : "",
             reason ? without_prefix(reason) : strerror(error));
    rdma_connection_failed(c, error ? error : ECONNREFUSED, text);
}

/* Frees what an attempt has created so far. */
static void undo_attempt(struct rdma_connection *c) {
    if (c->qp.device) rdma_queue_pair_destroy(&c->qp);
    if (c->receive.rx) rdma_rx_give(&c->qp.device->memory, c->receive.rx);
    if (c->qp.id) rdma_destroy_id(c->qp.id);
    if (c->qp.device) rdma_device_left(c->qp.device);
    c->receive.rx = NULL;
    c->qp.id = NULL;
    c->qp.device = NULL;
}

static int begin_attempt(struct rdma_connection *c, const struct addrinfo *to) {
    struct sockaddr *source = NULL;
    for (const struct addrinfo *from = c->connecting.source; from && !source; from = from->ai_next)
        if (from->ai_family == to->ai_family) source = from->ai_addr;
    if (c->connecting.source && !source && !c->connecting.source_optional) return -EADDRNOTAVAIL;
    if (rdma_create_id(c->owner->channel, &c->qp.id, c, RDMA_PS_TCP) < 0) {
        c->qp.id = NULL;
        return -errno;
    }
    rdma_set_traffic_class(c->qp.id);
    c->phase = RDMA_RESOLVING_ADDRESS;
    int result = rdma_resolve_addr(c->qp.id, source, to->ai_addr, (int)milliseconds_left(c));
    if (result < 0 && source && c->connecting.source_optional)
        result = rdma_resolve_addr(c->qp.id, NULL, to->ai_addr, (int)milliseconds_left(c));
    return result < 0 ? -errno : 0;
}

static void next_attempt(struct rdma_connection *c, int error) {
    while (c->connecting.next_address) {
        const struct addrinfo *to = c->connecting.next_address;
        c->connecting.next_address = to->ai_next;
        undo_attempt(c);
        error = -begin_attempt(c, to);
        if (error == 0) return;
    }
    connect_failed(c, error, error == ENODEV ? "no RDMA device has a route to this address" : NULL);
}

static void on_address_resolved(struct rdma_connection *c) {
    c->phase = RDMA_RESOLVING_ROUTE;
    if (rdma_resolve_route(c->qp.id, (int)milliseconds_left(c)) < 0) next_attempt(c, errno);
}

static void on_route_resolved(struct rdma_connection *c) {
    char error[400];
    int result = allocate(c, error, sizeof error);
    if (result < 0) {
        connect_failed(c, -result, error);
        return;
    }
    c->phase = RDMA_CONNECTING;
    struct rdma_conn_param param;
    fill_parameters(c, NULL, &param);
    if (rdma_connect(c->qp.id, &param) < 0) next_attempt(c, errno);
}

static uint64_t connect_timer(struct event_timer *timer) {
    struct rdma_connection *c = container_of(timer, struct rdma_connection, timer);
    uint64_t now = clock_monotonic_us();
    if (c->qp.id || now >= c->connecting.deadline_us) {
        connect_failed(c, ETIMEDOUT, NULL);
        return 0;
    }
    next_attempt(c, EHOSTUNREACH);
    return c->connecting.deadline_us > now ? c->connecting.deadline_us - now : 1;
}

struct connection *rdma_connect_start(struct rdma_loop *owner, const struct connect_options *options) {
    struct rdma_connection *c = mem_calloc(1, sizeof *c);
    char error[300];
    rdma_connection_init(c, owner, CONN_CONNECTING);
    c->conn.events = options->events;
    c->conn.owner = options->owner;
    snprintf(c->target, sizeof c->target, strchr(options->host, ':') ? "[%s]:%d" : "%s:%d", options->host,
             options->port);
    uint32_t timeout_ms = options->timeout_ms ? options->timeout_ms : rdma_settings.connect_timeout_ms;
    c->connecting.deadline_us = clock_monotonic_us() + (uint64_t)(timeout_ms ? timeout_ms : 5000) * 1000;
    int result = rdma_cm_open(owner, error, sizeof error);
    int unknown = result < 0 ? 0 : address_resolve(options->host, options->port, 0, &c->connecting.addresses);
    c->connecting.source_optional = options->source_optional;
    if (result == 0 && unknown == 0 && options->source_host && options->source_host[0]) {
        unknown = address_resolve(options->source_host, 0, 0, &c->connecting.source);
        if (c->connecting.source_optional) unknown = 0;
    }
    if (unknown) {
        result = unknown == EAI_SYSTEM ? -errno : -EHOSTUNREACH;
        snprintf(error, sizeof error, "%s", unknown == EAI_SYSTEM ? strerror(errno) : gai_strerror(unknown));
    }
    c->connecting.next_address = c->connecting.addresses;
    if (result < 0)
        connect_failed(c, -result, error);
    else
        event_timer_set(owner->loop, &c->timer, 0,
                        connect_timer); /* no handler is called before this function returns */
    return &c->conn;
}

/* --- Events --- */

static void on_established(struct rdma_connection *c, const struct read_depths *granted) {
    if (!c->passive) c->read_depth = read_limit(c->qp.device->limits.max_qp_init_rd_atom, &granted->there);
    struct connection *conn = &c->conn;
    struct rdma_listener *l = c->connecting.listener;
    c->connecting.listener = NULL;
    if (c->passive && !l && !c->connecting.arrived) {
        rdma_connection_finish(c);
        return;
    }
    rdma_connection_opened(c);
    if (c->passive) {
        c->owner->stats.accepted++;
        if (log_level <= LOG_LEVEL_VERBOSE) {
            char name[RDMA_NAME_MAX];
            log_verbose("RDMA: accepted %s, queue pair %u, receive buffer of %u bytes", rdma_connection_name(c, name),
                        c->qp.number, c->receive.rx->size);
        }
        if (c->connecting.arrived)
            c->connecting.arrived(conn);
        else
            l->listener.accepted(&l->listener, conn);
    } else if (conn->events->connected)
        conn->events->connected(conn);
    if (conn->state != CONN_OPEN) return;
    conn_flush(conn);
    rdma_connection_ready(c); /* the peer's first message may precede this event */
}

static void on_failed(struct rdma_connection *c, enum rdma_cm_event_type type, int status) {
    int error = status < 0 ? -status : EHOSTUNREACH;
    if (type == RDMA_CM_EVENT_REJECTED) error = ECONNREFUSED;
    if (!c->passive) {
        next_attempt(c, error);
        return;
    }
    char name[RDMA_NAME_MAX];
    log_verbose("RDMA: %s did not complete the connection: %s (%s, errno %d)", rdma_connection_name(c, name),
                rdma_event_str(type), strerror(error), error);
    c->owner->stats.failed++;
    c->owner->stats.errors[RDMA_ERROR_CONNECT]++;
    rdma_connection_finish(c);
}

static void rdma_cm_on_event(struct rdma_connection *c, enum rdma_cm_event_type type, int status,
                             const struct read_depths *depths) {
    if (c->finished || c->end_pending) return;
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: on_address_resolved(c); break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: on_route_resolved(c); break;
    case RDMA_CM_EVENT_ESTABLISHED:
        if (c->phase == RDMA_CONNECTING) on_established(c, depths);
        break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED: on_failed(c, type, status); break;
    case RDMA_CM_EVENT_DISCONNECTED:
        if (c->qp.device) rdma_device_drain(c->qp.device);
        if (c->phase != RDMA_ESTABLISHED)
            on_failed(c, type, -ECONNRESET);
        else
            rdma_connection_failed(c, 0, NULL);
        break;
    default: break;
    }
}

/* Every identifier of the device gets this event. The first one removes the device's context and all its connections.
 */
static void on_removal(struct rdma_loop *owner, struct rdma_cm_id *id) {
    /* A device that is removed takes all its connections along. */
    static _Thread_local struct log_limit limit = {.interval_us = 1000000};
    char name[RDMA_NAME_MAX];
    log_limited(&limit, LOG_LEVEL_WARNING, "RDMA: the device %s was removed", rdma_device_text(id, name));
    list_each_entry(&owner->listeners, struct rdma_listener, link, l) {
        if (l->id != id) continue;
        struct rdma_device *device = rdma_device_known(owner, id->verbs);
        if (device) rdma_device_gone(device);
        rdma_listener_lost(l);
        return;
    }
    struct rdma_connection *c = id->context; /* NULL: on its way to another loop, where accepting will fail */
    if (!c || c->finished) return;
    if (c->qp.device) rdma_device_gone(c->qp.device);
    rdma_connection_failed(c, ENODEV, RDMA_REMOVED);
}

static void cm_ready(struct event_io *io, int mask) {
    struct rdma_loop *owner = container_of(io, struct rdma_loop, channel_io);
    struct rdma_cm_event *event;
    for (int i = 0; i < EVENTS_AT_ONCE && rdma_usable() && rdma_get_cm_event(owner->channel, &event) == 0; i++) {
        struct rdma_cm_id *id = event->id, *listen_id = event->listen_id;
        enum rdma_cm_event_type type = event->event;
        int status = event->status;
        struct read_depths depths = depths_of(event);
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
            on_request(listen_id->context, id, &depths);
        else if (type == RDMA_CM_EVENT_DEVICE_REMOVAL)
            on_removal(owner, id);
        else if (id->context && type != RDMA_CM_EVENT_TIMEWAIT_EXIT && type != RDMA_CM_EVENT_ADDR_CHANGE)
            rdma_cm_on_event(id->context, type, status, &depths);
    }
}

int rdma_cm_open(struct rdma_loop *owner, char *error, size_t error_size) {
    if (owner->channel) return 0;
    int count = 0;
    struct ibv_device **devices = ibv_get_device_list(&count);
    if (devices) ibv_free_device_list(devices);
    if (!devices || count == 0) {
        snprintf(error, error_size, "no RDMA device was found");
        return -ENODEV;
    }
    errno = 0;
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (!channel && !errno) { /* librdmacm does not always say why */
        snprintf(error, error_size,
                 "the connection manager cannot be opened: check that /dev/infiniband/rdma_cm and "
                 "/dev/infiniband/uverbs* exist (modprobe rdma_ucm) and that this user may open them");
        return -ENODEV;
    }
    int result = channel ? rdma_set_nonblocking(channel->fd) : -errno;
    if (result == 0) result = event_io_set(owner->loop, &owner->channel_io, channel->fd, EVENT_READ, cm_ready);
    if (result == 0) {
        owner->channel = channel;
        return 0;
    }
    snprintf(error, error_size, "the connection manager (/dev/infiniband/rdma_cm) cannot be used: %s",
             strerror(-result));
    if (channel) rdma_destroy_event_channel(channel);
    return result;
}
