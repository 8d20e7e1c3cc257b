/* cm.h: the transport's use of the connection manager: accepting and connecting (cm.c), listening (listener.c).
 *
 * All of a loop's identifiers share one event channel, whose descriptor the loop watches. An event is copied and
 * acknowledged before it is handled, since an identifier cannot be destroyed while one of its events is unacknowledged.
 *
 * A disconnect is reported after the completions have been drained, because the peer's last bytes have arrived by then.
 */
#pragma once
#include "lib/system/log.h"
#include "net/rdma/connection.h"

struct rdma_listener {
    struct listener listener; /* must be first */
    struct rdma_loop *owner;
    struct rdma_cm_id *id; /* NULL: its device is missing, and listening is retried */
    struct list_link link;
    char *host; /* as configured */
    int port, backlog;
    struct event_timer retry;
    struct log_limit log; /* of lines about retrying */
    bool closed;
    struct event_deferred deferred;
};

/* Opens the loop's event channel unless it is open. Returns 0, or -errno with the reason in `error`. */
int rdma_cm_open(struct rdma_loop *loop, char *error, size_t error_size);
struct connection *rdma_connect_start(struct rdma_loop *loop, const struct connect_options *options);
bool rdma_connection_address(const struct connection *conn, bool peer, struct address *address);
bool rdma_connection_is_local(const struct connection *conn);

/* listener.c */
struct listener *rdma_listen_start(struct rdma_loop *loop, const struct listen_options *options, char *error,
                                   size_t error_size);
void rdma_listener_lost(struct rdma_listener *l); /* its device was removed */
/* The type of service of connections that this end requests. The request carries it to the peer, whose packets have it
 * as well, unless the peer chooses its own. */
void rdma_set_traffic_class(struct rdma_cm_id *id);
