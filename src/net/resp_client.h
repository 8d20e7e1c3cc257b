/* resp_client.h: an asynchronous RESP client over any transport, for the server's own requests to other servers.
 *
 * The owner sends requests at any time, also before the connection is open, and gets the replies in order, each through
 * the callback of its request. Push messages of RESP3, and the messages of RESP2 subscriptions, go to `push` instead.
 *
 *     struct resp_client_options options = {.transport = transport_find("tcp"), .host = "10.0.0.7", .port = 6379,
 *                                           .events = &events, .owner = this};
 *     struct resp_client *client = resp_client_new(loop, &options);
 *     resp_client_send(client, 1, (struct slice[]){SLICE("PING")}, got_pong, context);
 *
 * Every accepted request gets its callback exactly once: with its reply, or with NULL when the connection ends before
 * the reply, whether the peer or the owner ends it. `ended` follows the last of these callbacks, unless the owner ended
 * it. The client frees itself after that; the owner forgets its pointer in `ended` or after resp_client_close().
 *
 * The owner may call resp_client_close() and resp_client_send() at any time, from any callback of this client too.
 * Requests sent in one turn of the loop leave together at its end.
 *
 * A reply has at most `reply_max` bytes, and a longer one ends the connection. An element of a reply takes up to 100
 * bytes, so a peer that sends the shortest elements can make it take 25 times `reply_max`. If the peer does not read,
 * at most `pending_max` requests and `output_max` bytes wait; the next send fails. */
#pragma once
#include "lib/text/slice.h"
#include "net/connection.h"
#include "resp/reply_reader.h"

struct resp_client;
/* NULL: there is no reply, and will not be. The value is valid until the callback returns. */
typedef void resp_client_replied(struct resp_client *client, void *context, const struct resp_value *reply);

struct resp_client_events {
    void (*opened)(struct resp_client *client, void *owner);                                 /* may be NULL */
    void (*push)(struct resp_client *client, void *owner, const struct resp_value *message); /* NULL: dropped */
    void (*ended)(struct resp_client *client, void *owner, const char *reason);
};
struct resp_client_options {
    const struct transport *transport;
    const char *host;
    int port;
    const char *source_host; /* NULL: any */
    bool source_optional;
    const char *server_name; /* TLS: SNI; NULL: none */
    uint32_t timeout_ms;     /* of connecting; 0: the transport's default */
    unsigned keepalive_s;    /* 0: none */
    uint32_t mark;           /* SO_MARK; 0: none */
    bool mptcp;
    bool subscriber;      /* it will subscribe with RESP2: arrays that look like messages are messages */
    size_t reply_max;     /* bytes of one reply; 0: 1 MiB */
    size_t output_max;    /* queued bytes; 0: 1 MiB */
    unsigned pending_max; /* requests without a reply; 0: 100 */
    const struct resp_client_events *events;
    void *owner;
};
struct resp_client *resp_client_new(struct event_loop *loop, const struct resp_client_options *options);
/* Returns 0, -ENOBUFS (a limit is reached) or -ENOTCONN (it is closed). Copies the arguments. `replied` may be NULL. */
int resp_client_send(struct resp_client *client, int argc, const struct slice *argv, resp_client_replied *replied,
                     void *context);
void resp_client_close(struct resp_client *client);
bool resp_client_is_open(const struct resp_client *client);
unsigned resp_client_pending(const struct resp_client *client); /* requests without a reply */
/* The connection, for its addresses; NULL after the end. The owner does not read, write or close it. */
struct connection *resp_client_connection(const struct resp_client *client);
