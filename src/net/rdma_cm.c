/* rdma_cm.c: the RDMA transport's use of the connection manager: listening, accepting, connecting, ending.
 *
 * All of a loop's identifiers share one event channel, whose descriptor the loop watches. An event is copied and
 * acknowledged before it is handled, since an identifier cannot be destroyed while one of its events is unacknowledged.
 *
 * A disconnect is reported after the completions have been drained, because the peer's last bytes have arrived by then.
 *
 * A connection ends in this order: the queue pair leaves the table, so that later completions find no connection; the
 * peer gets a disconnect; at the end of the loop's turn the completions are drained once more, the queue pair is
 * destroyed, the memory returns to its pools, and the identifier is destroyed. */
#include "net/rdma_connection.h"
#include "net/rdma_read.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
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
    COURTESIES_A_SECOND = 100
};

/* Addresses */

bool rdma_connection_address(const struct connection *conn, bool peer, struct address *address) {
    const struct rdma_connection *c = rdma_of(conn);
    if (!c->id) return false;
    return address_from(peer ? rdma_get_peer_addr(c->id) : rdma_get_local_addr(c->id), address);
}

bool rdma_connection_is_local(const struct connection *conn) {
    struct address peer, own;
    if (!rdma_connection_address(conn, true, &peer)) return false;
    if (address_is_loopback(&peer)) return true;
    return rdma_connection_address(conn, false, &own) && strcmp(peer.host, own.host) == 0;
}

/* Ending */

static void connection_free(struct event_deferred *deferred) {
    struct rdma_connection *c = rdma_of(container_of(deferred, struct connection, deferred));
    rdma_connection_release(c);
    if (c->addresses) freeaddrinfo(c->addresses);
    if (c->source) freeaddrinfo(c->source);
    mem_free(c);
}

void rdma_connection_finish(struct rdma_connection *c) {
    if (c->finished) return;
    c->finished = true;
    c->conn.state = CONN_CLOSED;
    event_timer_cancel(c->conn.loop, &c->timer);
    if (list_is_linked(&c->ready_link)) list_remove(&c->owner->ready, &c->ready_link);
    rdma_starved_end(c);
    rdma_stall_end(c);
    rdma_queue_pair_forget(c);
    if (c->phase == RDMA_ESTABLISHED) rdma_disconnect(c->id);
    c->phase = RDMA_OVER;
    event_loop_defer(c->conn.loop, &c->conn.deferred, connection_free);
}

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

/* The type of service of connections that this end requests. The request carries it to the peer, whose packets have it,
 * too, unless the peer chooses its own. */
static void set_traffic_class(struct rdma_cm_id *id) {
    int class = rdma_settings.traffic_class;
    if (class < 0) return;
    uint8_t tos = (uint8_t) class;
    if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos) < 0)
        log_warning("RDMA: cannot set the traffic class %d (rdma-traffic-class): %s", class, strerror(errno));
}

/* Allocates what a connection needs once its device is known: context, receive buffer, queue pair. Returns 0, or -errno
 * with the reason. */
static int allocate(struct rdma_connection *c, char *error, size_t error_size) {
    c->device = rdma_device_of(c->owner, c->id->verbs, error, error_size);
    if (!c->device) return -errno;
    c->device->users++;
    rdma_port_note(c->id);
    set_ack_timeout(c->id);
    if (!rdma_receive_allocate(c)) {
        int failure = errno;
        rdma_registration_error(failure, c->device->name, error, error_size);
        return -failure;
    }
    int result = rdma_queue_pair_create(c);
    if (result < 0)
        snprintf(error, error_size, "RDMA: cannot create a queue pair (%s): %s", c->device->name, strerror(-result));
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
    const struct ibv_device_attr *limits = &c->device->limits;
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
    if (rdma_init_qp_attr(c->id, &attr, &mask) < 0) return -errno;
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
    return -ibv_modify_qp(c->qp, &attr, mask);
}

/* Accepts the request of a connection: 0 or -errno. rdma_accept() would give the queue pair the traffic class of the
 * peer's request, and the type of service of the identifier is not used then. Where a class is set, this end moves the
 * queue pair through its states itself, and rdma_accept() sees none that it should move. */
static int accept_request(struct rdma_connection *c, struct rdma_conn_param *param) {
    int class = rdma_settings.traffic_class;
    if (class < 0) return rdma_accept(c->id, param) < 0 ? -errno : 0;
    int result = modify_accepted(c, IBV_QPS_RTR, class, param);
    if (result == 0) result = modify_accepted(c, IBV_QPS_RTS, class, param);
    if (result < 0) return result;
    param->qp_num = c->qp_num;
    param->srq = c->qp->srq != NULL;
    c->id->qp = NULL;
    if (rdma_accept(c->id, param) < 0) result = -errno;
    c->id->qp = c->qp;
    return result;
}

/* A reason, as part of a line that names the subject already. */
static const char *without_prefix(const char *reason) {
    return strncmp(reason, "RDMA: ", 6) == 0 ? reason + 6 : reason;
}

/* Accepting */

static void refuse(struct rdma_loop *owner, struct rdma_cm_id *id, enum rdma_refusal cause, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void refuse(struct rdma_loop *owner, struct rdma_cm_id *id, enum rdma_refusal cause, const char *format, ...) {
    static _Thread_local uint64_t second, logged;
    uint64_t now = clock_mono() / 1000000;
    owner->stats.refused++;
    owner->stats.refusals[cause]++;
    if (now != second) second = now, logged = 0;
    if (logged++ < REFUSALS_LOGGED_A_SECOND) {
        char text[400], device[RDMA_NAME_MAX];
        struct address from = {.host = "?"};
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        address_from(rdma_get_peer_addr(id), &from);
        log_warning("RDMA: refused a connection from %s:%d (%s): %s", from.host, from.port,
                    rdma_device_text(id, device), without_prefix(text));
    }
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

/* When the server is full, a few connections are accepted all the same, so that `accepted` can send them the reason;
 * the others of a flood are rejected. */
static bool may_be_told(struct rdma_loop *owner) {
    uint64_t second = clock_mono() / 1000000;
    if (second != owner->courtesy_second) {
        owner->courtesy_second = second;
        owner->courtesies = 0;
    }
    return owner->courtesies++ < COURTESIES_A_SECOND;
}

/* Runs on the connection's future loop, before any memory is spent on it. True: it holds a claim of `size` bytes as an
 * untrusted connection. */
static bool admit(struct rdma_loop *owner, struct rdma_cm_id *id, uint32_t size) {
    if (rdma_settings.max_clients && rdma_accepted >= rdma_settings.max_clients) {
        refuse(owner, id, RDMA_REFUSED_MAX_CLIENTS, "%u RDMA connections are open, the limit (rdma-max-clients)",
               rdma_settings.max_clients);
        return false;
    }
    struct rdma_device *device = rdma_device_known(owner, id->verbs);
    if (device && !rdma_rx_available(&device->memory, size)) {
        char text[320];
        rdma_registration_error(EDQUOT, device->name, text, sizeof text);
        refuse(owner, id, RDMA_REFUSED_MEMORY, "%s", text);
        return false;
    }
    if (!rdma_untrusted_claim(owner, size)) {
        refuse(owner, id, RDMA_REFUSED_UNTRUSTED,
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
    c->id = id;
    id->context = c;
    c->passive = true;
    rdma_untrusted_enter(c, size);
    rdma_accepted++;
    c->listener = l;
    c->arrived = arrived;
    c->phase = RDMA_CONNECTING;
    conn_format_address(&c->conn, true, c->target);
    char error[400];
    int result = allocate(c, error, sizeof error);
    if (result == 0) {
        struct rdma_conn_param param;
        fill_parameters(c, asked, &param);
        result = accept_request(c, &param);
        c->read_depth = param.initiator_depth;
        if (result < 0) snprintf(error, sizeof error, "accepting failed (%s): %s", c->device->name, strerror(-result));
    }
    if (result < 0) {
        refuse(owner, id, result == -EDQUOT ? RDMA_REFUSED_MEMORY : RDMA_REFUSED_RESOURCES, "%s", error);
        rdma_connection_finish(c);
        return;
    }
    uint32_t timeout_ms = rdma_settings.connect_timeout_ms ? rdma_settings.connect_timeout_ms : 5000;
    event_timer_set(owner->loop, &c->timer, (uint64_t)timeout_ms * 1000, accept_timed_out);
}

/* A connection request on its way to another loop. Its identifier has moved to that loop's event channel already.
 * Events that arrive before it is accepted there are ignored: accepting then fails, or does not complete in time. */
struct placed {
    struct event_post post; /* must be first */
    struct rdma_loop *owner;
    struct rdma_cm_id *id;
    struct read_depths asked;
    void (*arrived)(struct connection *conn);
};

static void placed_arrives(struct event_post *post) {
    struct placed *placed = (struct placed *)post;
    accept_here(placed->owner, placed->id, &placed->asked, NULL, placed->arrived);
    mem_free(placed);
}

static void on_request(struct rdma_listener *l, struct rdma_cm_id *id, const struct read_depths *asked) {
    if (l->listener.has_capacity && !l->listener.has_capacity(&l->listener) && !may_be_told(l->owner)) {
        refuse(l->owner, id, RDMA_REFUSED_FULL, "the number of clients has reached maxclients");
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
        refuse(l->owner, id, RDMA_REFUSED_RESOURCES, "cannot move it to an I/O thread: %s", strerror(errno));
        rdma_destroy_id(id);
        return;
    }
    struct placed *placed = mem_alloc(sizeof *placed);
    *placed = (struct placed){
        .post.run = placed_arrives, .owner = owner, .id = id, .asked = *asked, .arrived = l->listener.arrived};
    event_loop_post(loop, &placed->post);
}

/* Connecting */

static void next_attempt(struct rdma_connection *c, int error);

static uint32_t milliseconds_left(const struct rdma_connection *c) {
    uint64_t now = clock_monotonic_us();
    return now >= c->deadline_us ? 1 : (uint32_t)((c->deadline_us - now) / 1000 + 1);
}

static void connect_failed(struct rdma_connection *c, int error, const char *reason) {
    char text[640];
    snprintf(text, sizeof text, "RDMA: cannot connect to %s%s%s%s: %s", c->target, c->device ? " (" : "",
             c->device ? c->device->name : "", c->device ? ")" : "", reason ? without_prefix(reason) : strerror(error));
    rdma_connection_failed(c, error ? error : ECONNREFUSED, text);
}

/* Frees what an attempt has created so far. */
static void undo_attempt(struct rdma_connection *c) {
    if (c->device) rdma_queue_pair_destroy(c);
    if (c->rx) rdma_rx_give(&c->device->memory, c->rx);
    if (c->id) rdma_destroy_id(c->id);
    if (c->device) rdma_device_left(c->device);
    c->rx = NULL;
    c->id = NULL;
    c->device = NULL;
}

static int begin_attempt(struct rdma_connection *c, const struct addrinfo *to) {
    struct sockaddr *source = NULL;
    for (const struct addrinfo *from = c->source; from && !source; from = from->ai_next)
        if (from->ai_family == to->ai_family) source = from->ai_addr;
    if (c->source && !source && !c->source_optional) return -EADDRNOTAVAIL;
    if (rdma_create_id(c->owner->channel, &c->id, c, RDMA_PS_TCP) < 0) {
        c->id = NULL;
        return -errno;
    }
    set_traffic_class(c->id);
    c->phase = RDMA_RESOLVING_ADDRESS;
    int result = rdma_resolve_addr(c->id, source, to->ai_addr, (int)milliseconds_left(c));
    if (result < 0 && source && c->source_optional)
        result = rdma_resolve_addr(c->id, NULL, to->ai_addr, (int)milliseconds_left(c));
    return result < 0 ? -errno : 0;
}

static void next_attempt(struct rdma_connection *c, int error) {
    while (c->next_address) {
        const struct addrinfo *to = c->next_address;
        c->next_address = to->ai_next;
        undo_attempt(c);
        error = -begin_attempt(c, to);
        if (error == 0) return;
    }
    connect_failed(c, error, error == ENODEV ? "no RDMA device has a route to this address" : NULL);
}

static void on_address_resolved(struct rdma_connection *c) {
    c->phase = RDMA_RESOLVING_ROUTE;
    if (rdma_resolve_route(c->id, (int)milliseconds_left(c)) < 0) next_attempt(c, errno);
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
    if (rdma_connect(c->id, &param) < 0) next_attempt(c, errno);
}

static uint64_t connect_timer(struct event_timer *timer) {
    struct rdma_connection *c = container_of(timer, struct rdma_connection, timer);
    uint64_t now = clock_monotonic_us();
    if (c->id || now >= c->deadline_us) {
        connect_failed(c, ETIMEDOUT, NULL);
        return 0;
    }
    next_attempt(c, EHOSTUNREACH);
    return c->deadline_us > now ? c->deadline_us - now : 1;
}

struct connection *rdma_connect_start(struct event_loop *loop, const struct connect_options *options) {
    struct rdma_loop *owner = rdma_loop_of(loop);
    struct rdma_connection *c = mem_calloc(1, sizeof *c);
    char error[300];
    rdma_connection_init(c, owner, CONN_CONNECTING);
    c->conn.events = options->events;
    c->conn.owner = options->owner;
    snprintf(c->target, sizeof c->target, strchr(options->host, ':') ? "[%s]:%d" : "%s:%d", options->host,
             options->port);
    uint32_t timeout_ms = options->timeout_ms ? options->timeout_ms : rdma_settings.connect_timeout_ms;
    c->deadline_us = clock_monotonic_us() + (uint64_t)(timeout_ms ? timeout_ms : 5000) * 1000;
    int result = rdma_loop_open(owner, error, sizeof error);
    int unknown = result < 0 ? 0 : address_resolve(options->host, options->port, 0, &c->addresses);
    c->source_optional = options->source_optional;
    if (result == 0 && unknown == 0 && options->source_host && options->source_host[0]) {
        unknown = address_resolve(options->source_host, 0, 0, &c->source);
        if (c->source_optional) unknown = 0;
    }
    if (unknown) {
        result = unknown == EAI_SYSTEM ? -errno : -EHOSTUNREACH;
        snprintf(error, sizeof error, "%s", unknown == EAI_SYSTEM ? strerror(errno) : gai_strerror(unknown));
    }
    c->next_address = c->addresses;
    if (result < 0)
        connect_failed(c, -result, error);
    else
        event_timer_set(loop, &c->timer, 0, connect_timer); /* no handler is called before this function returns */
    return &c->conn;
}

/* Events */

static void on_established(struct rdma_connection *c, const struct read_depths *granted) {
    if (!c->passive) c->read_depth = read_limit(c->device->limits.max_qp_init_rd_atom, &granted->there);
    struct connection *conn = &c->conn;
    struct rdma_listener *l = c->listener;
    c->listener = NULL;
    if (c->passive && !l && !c->arrived) {
        rdma_connection_finish(c);
        return;
    }
    rdma_connection_opened(c);
    if (c->passive) {
        c->owner->stats.accepted++;
        if (log_level <= LOG_LEVEL_VERBOSE) {
            char name[RDMA_NAME_MAX];
            log_verbose("RDMA: accepted %s, queue pair %u, receive buffer of %u bytes", rdma_connection_name(c, name),
                        c->qp_num, c->rx->size);
        }
        if (c->arrived)
            c->arrived(conn);
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

/* Logged at most once a second: a device that is removed takes all its connections along. */
static void removal_log(const struct rdma_cm_id *id) {
    static _Thread_local uint64_t last_logged_us;
    uint64_t now = clock_mono();
    if (last_logged_us && now - last_logged_us < 1000000) return;
    char device[RDMA_NAME_MAX];
    last_logged_us = now;
    log_warning("RDMA: the device %s was removed", rdma_device_text(id, device));
}

static void on_event(struct rdma_connection *c, enum rdma_cm_event_type type, int status,
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
        if (c->device) rdma_device_drain(c->device);
        if (c->phase != RDMA_ESTABLISHED)
            on_failed(c, type, -ECONNRESET);
        else
            rdma_connection_failed(c, 0, NULL);
        break;
    default: break;
    }
}

static void listener_lost(struct rdma_listener *l);

/* Every identifier of the device gets this event. The first one removes the device's context and all its connections.
 */
static void on_removal(struct rdma_loop *owner, struct rdma_cm_id *id) {
    removal_log(id);
    list_each(&owner->listeners, link) {
        struct rdma_listener *l = container_of(link, struct rdma_listener, link);
        if (l->id != id) continue;
        struct rdma_device *device = rdma_device_known(owner, id->verbs);
        if (device) rdma_device_gone(device);
        listener_lost(l);
        return;
    }
    struct rdma_connection *c = id->context; /* NULL: on its way to another loop, where accepting will fail */
    if (!c || c->finished) return;
    if (c->device) rdma_device_gone(c->device);
    rdma_connection_failed(c, ENODEV, RDMA_REMOVED);
}

void rdma_cm_handle_events(struct rdma_loop *owner) {
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
            on_event(id->context, type, status, &depths);
    }
}

/* Listening
 *
 * A listener whose device is removed tries again every second until it listens; so does one whose address is optional.
 * A listener at a wildcard is bound to no device: the connection manager itself follows the devices. */

enum { LISTEN_AGAIN_US = 1000 * 1000, LISTEN_LOG_US = 60 * 1000 * 1000 };

static void listener_free(struct event_deferred *deferred) {
    struct rdma_listener *l = container_of(deferred, struct rdma_listener, deferred);
    mem_free(l->host);
    mem_free(l);
}

static void listener_stop(struct listener *listener) {
    struct rdma_listener *l = (struct rdma_listener *)listener;
    if (l->closed) return;
    l->closed = true;
    event_timer_cancel(listener->loop, &l->retry);
    if (list_is_linked(&l->link)) list_remove(&l->owner->listeners, &l->link);
    list_each(&l->owner->connections, link) { /* connections being accepted lose their listener */
        struct rdma_connection *c = container_of(link, struct rdma_connection, link);
        if (c->listener != l) continue;
        c->listener = NULL;
        rdma_connection_finish(c);
    }
    l->owner->stats.listeners--;
    l->owner->stats.listeners_waiting -= listener->waiting;
    if (l->id && rdma_usable()) rdma_destroy_id(l->id);
    l->id = NULL;
    event_loop_defer(listener->loop, &l->deferred, listener_free);
}

/* The connection manager rejects requests beyond the backlog for good, where TCP lets the client try again, so the
 * backlog is not small. Linux limits it to 1024 by default (net.rdma_ucm.max_backlog). */
static int backlog_of(const struct rdma_listener *l) {
    enum { LEAST = 1024 };
    return l->backlog > LEAST ? l->backlog : LEAST;
}

static int bind_and_listen(struct rdma_listener *l, const struct addrinfo *at) {
    int on = 1;
    if (rdma_create_id(l->owner->channel, &l->id, l, RDMA_PS_TCP) < 0) {
        l->id = NULL;
        return -errno;
    }
    rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on);
    set_traffic_class(l->id);
    if (at->ai_family == AF_INET6) rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on);
    if (rdma_bind_addr(l->id, at->ai_addr) == 0 && rdma_listen(l->id, backlog_of(l)) == 0) return 0;
    int error = errno;
    rdma_destroy_id(l->id);
    l->id = NULL;
    return -error;
}

/* Returns 0, or -errno with the reason. */
static int listener_open(struct rdma_listener *l, char *reason, size_t reason_size) {
    struct addrinfo *found = NULL;
    const char *host = strcmp(l->host, "*") == 0 ? "0.0.0.0" : strcmp(l->host, "::*") == 0 ? "::" : l->host;
    int result = rdma_loop_open(l->owner, reason, reason_size);
    if (result < 0) return result;
    int unknown = address_resolve(host, l->port, AI_PASSIVE, &found);
    if (unknown) {
        snprintf(reason, reason_size, "%s", unknown == EAI_SYSTEM ? strerror(errno) : gai_strerror(unknown));
        return -EADDRNOTAVAIL;
    }
    for (const struct addrinfo *at = found; at && !l->id; at = at->ai_next) result = bind_and_listen(l, at);
    freeaddrinfo(found);
    if (result < 0) {
        snprintf(reason, reason_size, "%s", strerror(-result));
        return result;
    }
    if (l->id->verbs && !rdma_device_fits(l->id->verbs, reason, reason_size)) {
        rdma_destroy_id(l->id);
        l->id = NULL;
        return -EOPNOTSUPP;
    }
    if (!address_from(rdma_get_local_addr(l->id), &l->listener.address))
        snprintf(l->listener.address.host, sizeof l->listener.address.host, "%s", host);
    l->port = l->listener.address.port = ntohs(rdma_get_src_port(l->id));
    rdma_port_note(l->id);
    char device[RDMA_NAME_MAX];
    log_notice("RDMA: listening on %s:%d (%s)", l->listener.address.host, l->port, rdma_device_text(l->id, device));
    return 0;
}

/* "RDMA: cannot listen on 10.0.0.1:6379 (mlx5_0): No such device (errno 19)" */
static void listener_error(const struct rdma_listener *l, int error, const char *reason, char *text, size_t size) {
    const char *device = rdma_device_name();
    snprintf(text, size, "RDMA: cannot listen on %s:%d%s%s%s: %s (errno %d)", l->host, l->port, device ? " (" : "",
             device ? device : "", device ? ")" : "", reason, error);
}

static uint64_t listen_again(struct event_timer *timer) {
    struct rdma_listener *l = container_of(timer, struct rdma_listener, retry);
    char reason[300];
    if (!rdma_usable()) return 0;
    int result = listener_open(l, reason, sizeof reason);
    if (result == 0) {
        l->listener.waiting = false;
        l->owner->stats.listeners_waiting--;
        return 0;
    }
    uint64_t now = clock_mono();
    if (l->logged_us == 0 || now - l->logged_us >= LISTEN_LOG_US) {
        char text[512];
        listener_error(l, -result, reason, text, sizeof text);
        log_warning("%s; trying again every second", text);
        l->logged_us = now;
    }
    return LISTEN_AGAIN_US;
}

static void listener_wait(struct rdma_listener *l, uint64_t after_us) {
    l->listener.waiting = true;
    l->owner->stats.listeners_waiting++;
    l->logged_us = 0;
    event_timer_set(l->listener.loop, &l->retry, after_us, listen_again);
}

/* The device is gone. The first attempt follows at once, because the address may belong to another device too. */
static void listener_lost(struct rdma_listener *l) {
    rdma_destroy_id(l->id);
    l->id = NULL;
    rdma_port_forget();
    listener_wait(l, 1);
}

struct listener *rdma_listen_start(struct event_loop *loop, const struct listen_options *options, char *error,
                                   size_t error_size) {
    struct rdma_loop *owner = rdma_loop_of(loop);
    struct rdma_listener *l = mem_calloc(1, sizeof *l);
    l->owner = owner;
    l->port = options->port;
    l->backlog = options->backlog;
    l->host = mem_strdup(options->host);
    l->listener = (struct listener){.transport = &transport_rdma,
                                    .loop = loop,
                                    .address.port = options->port,
                                    .accepted = options->accepted,
                                    .has_capacity = options->has_capacity,
                                    .place = options->place,
                                    .arrived = options->arrived,
                                    .owner = options->owner,
                                    .close = listener_stop,
                                    .accept_batch = options->accept_batch};
    snprintf(l->listener.address.host, sizeof l->listener.address.host, "%s", options->host);
    char reason[300];
    int result = listener_open(l, reason, sizeof reason);
    bool absent = result == -ENODEV || result == -EADDRNOTAVAIL;
    if (absent && options->may_wait) listener_wait(l, 1);
    if (result == 0 || l->listener.waiting) {
        list_append(&owner->listeners, &l->link);
        owner->stats.listeners++;
        return &l->listener;
    }
    listener_error(l, -result, reason, error, error_size);
    mem_free(l->host);
    mem_free(l);
    errno = -result;
    return NULL;
}
