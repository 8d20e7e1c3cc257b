/* rdma_cm.c: the connection manager's side of the RDMA transport: listening, accepting, connecting, ending.
 *
 * All of a loop's identifiers share one event channel, whose descriptor the loop watches. An event is copied and acknowledged before it is
 * handled, since an identifier cannot be destroyed while one of its events is unacknowledged.
 *
 * Before the peer's end is told, completions are drained: what it wrote before it disconnected is there by then.
 *
 * The order of the end: the queue pair leaves the table (late completions find nobody), the peer is told, and at the end of the turn the
 * completions are drained once more, the queue pair is destroyed, after it the memory goes back, then the identifier. */
#include "net/rdma_connection.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/memory.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { EVENTS_AT_ONCE = 32, RETRY_COUNT = 7, RNR_RETRY_FOR_EVER = 7 };

/* Addresses */

static bool address_from(const struct sockaddr *from, struct address *address) {
    const void *ip;
    if (from->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
        ip = &v4->sin_addr;
        address->port = ntohs(v4->sin_port);
    } else if (from->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
        ip = &v6->sin6_addr;
        address->port = ntohs(v6->sin6_port);
    } else
        return false;
    return inet_ntop(from->sa_family, ip, address->host, sizeof address->host) != NULL;
}

bool rdma_connection_address(const struct connection *conn, bool peer, struct address *address) {
    const struct rdma_connection *c = rdma_of(conn);
    if (!c->id) return false;
    return address_from(peer ? rdma_get_peer_addr(c->id) : rdma_get_local_addr(c->id), address);
}

bool rdma_connection_is_local(const struct connection *conn) {
    struct address peer, own;
    if (!rdma_connection_address(conn, true, &peer)) return false;
    if (strncmp(peer.host, "127.", 4) == 0 || strcmp(peer.host, "::1") == 0) return true;
    return rdma_connection_address(conn, false, &own) && strcmp(peer.host, own.host) == 0;
}

static int resolve(const char *host, int port, int flags, struct addrinfo **found) {
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    return getaddrinfo(host, service, &hints, found);
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
    if (list_is_linked(&c->starved_link)) list_remove(&c->device->starved, &c->starved_link);
    rdma_queue_pair_forget(c);
    if (c->phase == RDMA_ESTABLISHED) rdma_disconnect(c->id);
    c->phase = RDMA_OVER;
    event_loop_defer(c->conn.loop, &c->conn.deferred, connection_free);
}

/* What a connection needs once its device is known: context, receive buffer, queue pair. 0, or -errno with the reason. */
static int equip(struct rdma_connection *c, char *error, size_t error_size) {
    c->device = rdma_device_of(c->owner, c->id->verbs, error, error_size);
    if (!c->device) return -errno;
    uint32_t size = rdma_settings.rx_size;
    if (size < RDMA_RX_SIZE_MIN) size = RDMA_RX_SIZE_MIN;
    if (size > RDMA_RX_SIZE_MAX) size = RDMA_RX_SIZE_MAX;
    c->rx = rdma_rx_take(&c->device->memory, size);
    if (!c->rx) {
        int failure = errno;
        rdma_registration_error(failure, c->device->name, error, error_size);
        return -failure;
    }
    int result = rdma_queue_pair_create(c);
    if (result < 0)
        snprintf(error, error_size, "RDMA: cannot make a queue pair (%s): %s", c->device->name,
                 strerror(-result));
    return result;
}

static void fill_parameters(const struct rdma_connection *c, struct rdma_conn_param *param) {
    *param = (struct rdma_conn_param){
        .responder_resources = 1,
        .initiator_depth = 1,
        .retry_count = RETRY_COUNT,
        .rnr_retry_count =
            RNR_RETRY_FOR_EVER, /* a peer that meets no receive of ours waits; it does not fail */
    };
}

/* Accepting */

static void refuse(struct rdma_listener *l, struct rdma_cm_id *id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void refuse(struct rdma_listener *l, struct rdma_cm_id *id, const char *format, ...) {
    static _Thread_local uint64_t last_told_us;
    uint64_t now = clock_mono();
    l->owner->stats.refused++;
    if (last_told_us == 0 || now - last_told_us > 1000000) {
        char text[400];
        struct address from = {.host = "?"};
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        address_from(rdma_get_peer_addr(id), &from);
        last_told_us = now;
        log_warning("RDMA: refused a connection from %s:%d: %s", from.host, from.port, text);
    }
    rdma_reject(id, NULL, 0);
}

static uint64_t accept_timed_out(struct event_timer *timer) {
    struct rdma_connection *c = container_of(timer, struct rdma_connection, timer);
    log_verbose("RDMA: %s did not complete its connect in time", c->target);
    rdma_connection_finish(c);
    return 0;
}

static void on_request(struct rdma_listener *l, struct rdma_cm_id *id) {
    struct rdma_loop *owner = l->owner;
    if (rdma_settings.max_clients && owner->accepted >= rdma_settings.max_clients) {
        refuse(l, id, "there are %u RDMA connections already", rdma_settings.max_clients);
        rdma_destroy_id(id);
        return;
    }
    struct rdma_connection *c = mem_calloc(1, sizeof *c);
    rdma_connection_init(c, owner, CONN_CONNECTING);
    c->id = id;
    id->context = c;
    c->passive = true;
    owner->accepted++;
    c->listener = l;
    c->phase = RDMA_CONNECTING;
    conn_format_address(&c->conn, true, c->target);
    char error[400];
    int result = equip(c, error, sizeof error);
    if (result == 0) {
        struct rdma_conn_param param;
        fill_parameters(c, &param);
        if (rdma_accept(id, &param) < 0) {
            result = -errno;
            snprintf(error, sizeof error, "accepting failed (%s): %s", c->device->name, strerror(-result));
        }
    }
    if (result < 0) {
        refuse(l, id, "%s", error);
        rdma_connection_finish(c);
        return;
    }
    uint32_t timeout_ms = rdma_settings.connect_timeout_ms ? rdma_settings.connect_timeout_ms : 5000;
    event_timer_set(owner->loop, &c->timer, (uint64_t)timeout_ms * 1000, accept_timed_out);
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
             c->device ? c->device->name : "", c->device ? ")" : "", reason ? reason : strerror(error));
    rdma_connection_failed(c, error ? error : ECONNREFUSED, text);
}

/* Leaves what an attempt has made so far. */
static void undo_attempt(struct rdma_connection *c) {
    if (c->device) rdma_queue_pair_destroy(c);
    if (c->rx) rdma_rx_give(&c->device->memory, c->rx);
    if (c->id) rdma_destroy_id(c->id);
    c->rx = NULL;
    c->id = NULL;
}

static int begin_attempt(struct rdma_connection *c, const struct addrinfo *to) {
    struct sockaddr *source = NULL;
    for (const struct addrinfo *from = c->source; from && !source; from = from->ai_next)
        if (from->ai_family == to->ai_family) source = from->ai_addr;
    if (c->source && !source) return -EADDRNOTAVAIL;
    if (rdma_create_id(c->owner->channel, &c->id, c, RDMA_PS_TCP) < 0) {
        c->id = NULL;
        return -errno;
    }
    c->phase = RDMA_RESOLVING_ADDRESS;
    return rdma_resolve_addr(c->id, source, to->ai_addr, (int)milliseconds_left(c)) < 0 ? -errno : 0;
}

static void next_attempt(struct rdma_connection *c, int error) {
    while (c->next_address) {
        const struct addrinfo *to = c->next_address;
        c->next_address = to->ai_next;
        undo_attempt(c);
        c->device = NULL;
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
    int result = equip(c, error, sizeof error);
    if (result < 0) {
        connect_failed(c, -result, error);
        return;
    }
    c->phase = RDMA_CONNECTING;
    struct rdma_conn_param param;
    fill_parameters(c, &param);
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
    int unknown = result < 0 ? 0 : resolve(options->host, options->port, 0, &c->addresses);
    if (result == 0 && unknown == 0 && options->source_host && options->source_host[0])
        unknown = resolve(options->source_host, 0, 0, &c->source);
    if (unknown) {
        result = unknown == EAI_SYSTEM ? -errno : -EHOSTUNREACH;
        snprintf(error, sizeof error, "%s", unknown == EAI_SYSTEM ? strerror(errno) : gai_strerror(unknown));
    }
    c->next_address = c->addresses;
    if (result < 0)
        connect_failed(c, -result, error);
    else
        event_timer_set(loop, &c->timer, 0, connect_timer); /* no handler is called before this returns */
    return &c->conn;
}

/* Events */

static void on_established(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    struct rdma_listener *l = c->listener;
    c->listener = NULL;
    if (c->passive && !l) {
        rdma_connection_finish(c);
        return;
    }
    rdma_connection_opened(c);
    if (c->passive) {
        c->owner->stats.accepted++;
        l->listener.accepted(&l->listener, conn);
    } else if (conn->events->connected)
        conn->events->connected(conn);
    if (conn->state != CONN_OPEN) return;
    conn_flush(conn);
    rdma_connection_ready(c); /* the peer may have been quicker than this event */
}

static void on_failed(struct rdma_connection *c, enum rdma_cm_event_type type, int status) {
    int error = status < 0 ? -status : EHOSTUNREACH;
    if (type == RDMA_CM_EVENT_REJECTED) error = ECONNREFUSED;
    if (c->passive)
        rdma_connection_finish(c);
    else
        next_attempt(c, error);
}

static void on_event(struct rdma_connection *c, enum rdma_cm_event_type type, int status) {
    if (c->finished || c->end_pending) return;
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: on_address_resolved(c); break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: on_route_resolved(c); break;
    case RDMA_CM_EVENT_ESTABLISHED:
        if (c->phase == RDMA_CONNECTING) on_established(c);
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
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        rdma_connection_failed(c, ENODEV, "the RDMA device was removed");
        break;
    default: break;
    }
}

void rdma_cm_handle_events(struct rdma_loop *owner) {
    struct rdma_cm_event *event;
    for (int i = 0; i < EVENTS_AT_ONCE && rdma_usable() && rdma_get_cm_event(owner->channel, &event) == 0;
         i++) {
        struct rdma_cm_id *id = event->id, *listen_id = event->listen_id;
        enum rdma_cm_event_type type = event->event;
        int status = event->status;
        rdma_ack_cm_event(event);
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
            on_request(listen_id->context, id);
        else if (type == RDMA_CM_EVENT_DEVICE_REMOVAL && !id->qp)
            log_warning("RDMA: a device was removed");
        else if (type != RDMA_CM_EVENT_TIMEWAIT_EXIT && type != RDMA_CM_EVENT_ADDR_CHANGE)
            on_event(id->context, type, status);
    }
}

/* Listening */

static void listener_free(struct event_deferred *deferred) {
    mem_free(container_of(deferred, struct rdma_listener, deferred));
}

static void listener_stop(struct listener *listener) {
    struct rdma_listener *l = (struct rdma_listener *)listener;
    if (l->closed) return;
    l->closed = true;
    if (list_is_linked(&l->link)) list_remove(&l->owner->listeners, &l->link);
    list_each(&l->owner->connections, link) { /* those that were being accepted have nobody to go to */
        struct rdma_connection *c = container_of(link, struct rdma_connection, link);
        if (c->listener != l) continue;
        c->listener = NULL;
        rdma_connection_finish(c);
    }
    if (l->id && rdma_usable()) rdma_destroy_id(l->id);
    event_loop_defer(listener->loop, &l->deferred, listener_free);
}

static int bind_and_listen(struct rdma_listener *l, const struct addrinfo *at,
                           const struct listen_options *options) {
    int on = 1;
    if (rdma_create_id(l->owner->channel, &l->id, l, RDMA_PS_TCP) < 0) {
        l->id = NULL;
        return -errno;
    }
    rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on);
    if (at->ai_family == AF_INET6)
        rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on);
    if (rdma_bind_addr(l->id, at->ai_addr) == 0 &&
        rdma_listen(l->id, options->backlog > 0 ? options->backlog : 511) == 0)
        return 0;
    int error = errno;
    rdma_destroy_id(l->id);
    l->id = NULL;
    return -error;
}

struct listener *rdma_listen_start(struct event_loop *loop, const struct listen_options *options, char *error,
                                   size_t error_size) {
    const char *host = strcmp(options->host, "*") == 0     ? "0.0.0.0"
                       : strcmp(options->host, "::*") == 0 ? "::"
                                                           : options->host;
    char reason[300] = "";
    const char *device = "";
    struct rdma_loop *owner = rdma_loop_of(loop);
    struct addrinfo *found = NULL;
    int result = rdma_loop_open(owner, reason, sizeof reason);
    int unknown = result < 0 ? 0 : resolve(host, options->port, AI_PASSIVE, &found);
    if (unknown) {
        result = -EADDRNOTAVAIL;
        snprintf(reason, sizeof reason, "%s",
                 unknown == EAI_SYSTEM ? strerror(errno) : gai_strerror(unknown));
    }
    struct rdma_listener *l = mem_calloc(1, sizeof *l);
    l->owner = owner;
    l->listener = (struct listener){.transport = &transport_rdma,
                                    .loop = loop,
                                    .accepted = options->accepted,
                                    .owner = options->owner,
                                    .close = listener_stop,
                                    .accept_batch = options->accept_batch};
    for (const struct addrinfo *at = found; at && !l->id; at = at->ai_next)
        result = bind_and_listen(l, at, options);
    if (found) freeaddrinfo(found);
    if (result == 0 && l->id) {
        if (!address_from(rdma_get_local_addr(l->id), &l->listener.address))
            snprintf(l->listener.address.host, sizeof l->listener.address.host, "%s", host);
        l->listener.address.port = ntohs(rdma_get_src_port(l->id));
        list_append(&owner->listeners, &l->link);
        if (l->id->verbs) device = ibv_get_device_name(l->id->verbs->device);
        log_verbose("RDMA: listening on %s:%d%s%s", l->listener.address.host, l->listener.address.port,
                    *device ? " on " : "", device);
        return &l->listener;
    }
    device = rdma_device_name();
    snprintf(error, error_size, "RDMA: cannot listen on %s:%d%s%s%s: %s", options->host, options->port,
             device ? " (" : "", device ? device : "", device ? ")" : "",
             reason[0] ? reason : strerror(-result));
    mem_free(l);
    errno = -result;
    return NULL;
}
