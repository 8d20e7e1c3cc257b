/* bus.h: the connections of the cluster bus: what the protocol, which owns no socket, needs of the network.
 *
 * Each node listens on its bus port and dials all others, so two nodes have a link in each direction. A link is an
 * ordered stream of messages (protocol/bus_wire.h). This file opens, accepts and closes links, cuts the stream into
 * messages, counts them, and limits what waits to be sent. It knows no node: it reports to one table of callbacks, and
 * the owner keeps a pointer in each link.
 *
 * Everything that a peer sends is checked before use. Bytes that do not begin a message, and a message that is longer
 * than its type allows, end the link. Memory grows with the bytes that have arrived, not with the length that
 * a message announces.
 *
 * Messages leave at the end of the turn: those of one turn to one node with one system call. A message to all nodes is
 * encoded once (bus_encode_shared); where it is large, the links share its bytes.
 *
 * A callback may close any link. The memory of a closed link stays until the end of the turn. */
#pragma once
#include "cluster/protocol/bus_wire.h"
#include "lib/text/blob.h"
#include "net/connection.h"

struct bus;

struct bus_link {
    struct bus *bus;
    void *owner; /* a pointer that the owner of the link sets and reads */
    struct connection *conn;
    struct list_link link; /* private: in the bus's list */
    int64_t created_ms;    /* wall clock, for users */
    int64_t opened_ms;     /* clock_mono_ms() */
    bool inbound;          /* the peer opened the connection */
    bool known;            /* set by the owner: the peer is a node that may publish. Messages of others must be short */
    bool closed, reading, unflushed; /* private */
    struct event_deferred deferred;
};

enum bus_end {
    BUS_END_PEER,    /* the peer closed the connection, or it broke: bus_link_error() has the error */
    BUS_END_INVALID, /* the peer sent bytes that are not a message; this has been logged */
    BUS_END_LIMIT,   /* more than link_limit waited to be sent */
    BUS_END_DROPPED  /* debug.close_on_drop */
};

struct bus_events {
    void (*accepted)(struct bus_link *link);
    void (*opened)(struct bus_link *link);   /* bus_connect() has succeeded */
    void (*received)(struct bus_link *link); /* bytes have arrived; called before the messages in them */
    /* A message has arrived, which is valid, or of an unknown type; it is freed after the return. For `bad_id` see
     * bus_decode(). */
    void (*message)(struct bus_link *link, const struct bus_message *message, enum bus_verdict verdict,
                    const uint8_t *bad_id);
    /* debug.drop has discarded this message, and the link stays open. */
    void (*dropped)(struct bus_link *link, const struct bus_message *message);
    /* The link has ended, or could not be opened; it is closed after the return. bus_link_close() does not call this.
     */
    void (*ended)(struct bus_link *link, enum bus_end reason);
};

struct bus_settings {        /* the owner changes them at any time */
    uint64_t bulk_max;       /* proto-max-bulk-len */
    size_t nodes;            /* known nodes */
    uint64_t link_limit;     /* cluster-link-sendbuf-limit; 0: none */
    size_t inbound_max;      /* accepted links; 0: no limit */
    bool refuses;            /* while the data set is being loaded: accepted links are closed immediately */
    const char *source_host; /* of outgoing links; NULL or empty: any */
    int keepalive_s;         /* 0: off */
};
enum { BUS_DROP_NONE = -1, BUS_DROP_ALL = -2 };
struct bus_debug {
    int drop; /* the type of messages that are dropped when they arrive, or one of the values above */
    bool close_on_drop;
};
struct bus_stats {
    uint64_t sent[BUS_TYPES], received[BUS_TYPES]; /* received: before they were checked */
    uint64_t bytes_sent, bytes_received, published_bytes_sent, published_bytes_received, module_bytes_sent,
        module_bytes_received;
    uint64_t over_limit; /* links that ended with BUS_END_LIMIT */
};

struct bus {
    struct event_loop *loop;
    const struct transport *transport; /* TCP or TLS */
    const struct bus_events *events;
    void *owner;
    struct bus_settings settings;
    struct bus_debug debug;
    struct bus_stats stats;
    struct list links; /* struct bus_link */
    size_t inbound;
    struct listener *listeners[16];
    int listener_count;
    struct event_timer flush_timer; /* private: set while a link is unflushed */
};

void bus_init(struct bus *bus, struct event_loop *loop, const struct transport *transport,
              const struct bus_events *events, void *owner);
/* Listens on all addresses (those of `bind`: one that begins with '-' may be missing). False: logged, none is open. */
bool bus_listen(struct bus *bus, const char *const *hosts, int count, int port, int backlog);
void bus_free(struct bus *bus); /* closes listeners and links without a callback */

struct bus_link *bus_connect(struct bus *bus, const char *host, int port, void *owner);
/* Sends as much of the queue as the peer takes at once, and closes. No callback follows. */
void bus_link_close(struct bus_link *link);
/* Does nothing while the link is not open: the message would be outdated when the link opens. */
void bus_link_send(struct bus_link *link, const struct bus_message *message);
/* An encoded message for several links; the caller releases it. NULL: it is too long, or memory is out. */
struct blob *bus_encode_shared(const struct bus_message *message);
void bus_link_send_shared(struct bus_link *link, struct blob *encoded);

bool bus_link_is_open(const struct bus_link *link);
bool bus_link_address(const struct bus_link *link, bool peer, struct address *address);
const char *bus_link_error(const struct bus_link *link);
size_t bus_link_memory(const struct bus_link *link);
/* Bytes that wait to be sent, and the memory for them. */
size_t bus_link_queued(const struct bus_link *link, size_t *allocated);
size_t bus_memory(const struct bus *bus);
/* The lines of CLUSTER INFO from cluster_stats_messages_ping_sent on. */
void bus_info(const struct bus *bus, struct output *out);
