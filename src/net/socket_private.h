/* socket_private.h: shared by the files of socket.h: socket.c (reading, writing, closing, moving), socket_accept.c,
 * socket_connect.c, socket_linger.c and socket_pool.c. */
#pragma once
#include "net/socket.h"

enum {
    CHUNK_SIZE = 16 * 1024, /* header included */
    CHUNKS_STEADY = 2,      /* of them, that one client after the other needs */
};

/* An accepted connection until its handshake is complete. */
struct socket_handshake {
    struct socket_listener *listener;         /* that accepted it, or NULL: placed on this loop */
    void (*arrived)(struct connection *conn); /* when placed */
};

static inline struct socket_connection *socket_of(const struct connection *conn) {
    return (struct socket_connection *)(uintptr_t)conn;
}

/* socket.c */
struct socket_connection *socket_new(struct event_loop *loop, const struct transport *transport, int fd,
                                     enum connection_state state);
void socket_free(struct event_deferred *deferred);
/* Ends the session of the I/O table. `orderly`: with a message to the peer. */
void socket_session_end(struct socket_connection *s, bool orderly);
void socket_update_interest(struct socket_connection *s); /* waits for the events that the state requires */

/* socket_pool.c */
struct socket_pool *socket_pool_of(struct event_loop *loop);

/* socket_linger.c: the owner closed the connection; the sending direction is shut down, and the socket waits for the
 * peer's end. */
bool socket_linger_begin(struct socket_connection *s); /* false: it need not linger */
void socket_linger_end(struct socket_connection *s);

/* socket_accept.c */
/* Ends an accepted connection before its handshake is complete. */
void socket_arrival_drop(struct socket_connection *s);
