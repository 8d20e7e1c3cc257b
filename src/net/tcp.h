/* tcp.h: the parts of tcp.c that every transport over TCP shares. See connection.h for what they do. */
#pragma once
#include "net/connection.h"

struct connection *tcp_connect(const struct transport *transport, struct event_loop *loop,
                               const struct connect_options *options);
struct listener *tcp_listen(const struct transport *transport, struct event_loop *loop,
                            const struct listen_options *options, char *error, size_t error_size);
bool tcp_address(const struct connection *conn, bool peer, struct address *address);
bool tcp_is_local(const struct connection *conn);
int tcp_set_keepalive(struct connection *conn, int seconds);
int tcp_set_nodelay(struct connection *conn, bool on);
/* The same for the transports over TCP; needs socket.h. */
#define TCP_OPERATIONS                                                                                                 \
    SOCKET_OPERATIONS, .address = tcp_address, .is_local = tcp_is_local, .set_keepalive = tcp_set_keepalive,           \
                       .set_nodelay = tcp_set_nodelay
