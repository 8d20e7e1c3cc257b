/* listener.c: listening. See cm.h.
 *
 * A listener whose device is removed tries again every second until it listens; so does one whose address is optional.
 * A listener at a wildcard is bound to no device: the connection manager itself follows the devices. */
#include "net/rdma/cm.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/rdma/lifetime.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

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
    list_each_entry(&l->owner->connections, struct rdma_connection, link,
                    c) { /* connections being accepted lose their listener */
        if (c->connecting.listener != l) continue;
        c->connecting.listener = NULL;
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

/* The type of service of connections that this end requests. The request carries it to the peer, whose packets have it,
 * too, unless the peer chooses its own. */
void rdma_set_traffic_class(struct rdma_cm_id *id) {
    int class = rdma_settings.traffic_class;
    if (class < 0) return;
    uint8_t tos = (uint8_t) class;
    if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos) < 0)
        log_warning("RDMA: cannot set the traffic class %d (rdma-traffic-class): %s", class, strerror(errno));
}

static int bind_and_listen(struct rdma_listener *l, const struct addrinfo *at) {
    int on = 1;
    if (rdma_create_id(l->owner->channel, &l->id, l, RDMA_PS_TCP) < 0) {
        l->id = NULL;
        return -errno;
    }
    rdma_set_option(l->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on);
    rdma_set_traffic_class(l->id);
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
    int result = rdma_cm_open(l->owner, reason, reason_size);
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
    char text[512];
    listener_error(l, -result, reason, text, sizeof text);
    log_limited(&l->log, LOG_LEVEL_WARNING, "%s; trying again every second", text);
    return LISTEN_AGAIN_US;
}

static void listener_wait(struct rdma_listener *l, uint64_t after_us) {
    l->listener.waiting = true;
    l->owner->stats.listeners_waiting++;
    l->log = (struct log_limit){.interval_us = LISTEN_LOG_US};
    event_timer_set(l->listener.loop, &l->retry, after_us, listen_again);
}

/* The device is gone. The first attempt follows immediately, because the address may belong to another device as well.
 */
void rdma_listener_lost(struct rdma_listener *l) {
    rdma_destroy_id(l->id);
    l->id = NULL;
    rdma_port_forget();
    listener_wait(l, 1);
}

struct listener *rdma_listen_start(struct rdma_loop *owner, const struct listen_options *options, char *error,
                                   size_t error_size) {
    struct rdma_listener *l = mem_calloc(1, sizeof *l);
    l->owner = owner;
    l->port = options->port;
    l->backlog = options->backlog;
    l->host = mem_strdup(options->host);
    l->listener = (struct listener){.transport = owner->transport,
                                    .loop = owner->loop,
                                    .address.port = options->port,
                                    .accepted = options->accepted,
                                    .has_capacity = options->has_capacity,
                                    .rejects = options->rejects,
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
