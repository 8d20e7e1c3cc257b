/* tls_connection.h: a connection of TLS over RDMA. Shared by tls.c (the data path, and the table of the transport) and
 * tls_handshake.c (handshakes of both ends, listening, and the carrier's events). See tls.h. */
#pragma once
#include "net/input_buffer.h"
#include "net/output_queue.h"
#include "net/rdma/tls.h"
#include "net/tls_private.h"

struct tls_chunk;
struct tls_listener;

enum stage {
    STAGE_CARRIER,   /* outgoing: the carrier is connecting */
    STAGE_UNDECIDED, /* accepted: TLS or clear text */
    STAGE_HANDSHAKE,
    STAGE_OPEN,
};

/* What the connections of a loop share. */
struct tls_pool {
    struct event_attachment attachment;
    struct event_loop *loop;
    struct input_shared input; /* plain text while `readable` runs */
    struct tls_chunk *free;
    unsigned free_count;
    struct list handshakes; /* accepted connections that are not reported yet, the oldest first */
    struct list steps;      /* those with input for their handshake */
    struct event_timer step_timer;
    struct list buffered; /* connections whose sessions keep their buffers */
    struct event_timer buffers_timer;
};

struct rdma_tls {
    struct connection conn; /* must be first */
    struct connection *raw; /* the carrier; NULL: closed */
    struct tls_pool *pool;
    SSL *ssl; /* NULL: the handshake has not begun */
    enum stage stage;
    bool accepted;
    bool showing;                             /* `readable` is on the stack */
    bool raw_ended;                           /* the carrier has ended; its last bytes may not be read yet */
    bool broken;                              /* a call of OpenSSL has failed: it takes no further one */
    bool waiting;                             /* a flush left output behind; `drained` is due */
    bool write_waits;                         /* OpenSSL must read before it can write */
    bool more;                                /* the last read stopped before OpenSSL's input was used up */
    bool answers_wait;                        /* reading stopped, because the peer does not take OpenSSL's answers */
    bool keeps_buffers, buffers_used;         /* tls.c, Buffers; used: since the last round of their timer */
    size_t fed;                               /* bytes that the current call of OpenSSL has read */
    struct tls_listener *listener;            /* that accepted it, or NULL: placed on this loop */
    void (*arrived)(struct connection *conn); /* when placed */
    uint64_t began_us;
    uint32_t timeout_ms; /* outgoing: of the handshake */
    struct list_link handshake_link, step_link, buffered_link;
    struct event_timer timer; /* of the handshake, of failing, and to read again */
    struct output_queue output;
    size_t chunk_memory;
    struct input_buffer input; /* plain text */
    char *names, *certificate, *note;
};

static inline struct rdma_tls *tls_of(const struct connection *conn) {
    return (struct rdma_tls *)(uintptr_t)conn;
}

/* tls.c */
struct rdma_tls *rdma_tls_new(struct event_loop *loop);
/* Ends the connection and its carrier; the struct is freed at the end of the iteration. */
void rdma_tls_finish(struct rdma_tls *t);
/* Call it after transport_rdma has attached its state to the loop, which must be freed later. */
struct tls_pool *rdma_tls_pool_of(struct event_loop *loop);
bool rdma_tls_session_begin(struct rdma_tls *t, enum tls_role role); /* false: no context, or no memory */
void rdma_tls_keep_buffers(struct rdma_tls *t); /* the peer is trusted, and the handshake is complete */
/* As tls_session_failed(), with the text for conn_error_text(). */
int rdma_tls_call_failed(struct rdma_tls *t, int result);
void rdma_tls_note(struct rdma_tls *t, const char *text); /* for conn_error_text(); NULL: none */
void rdma_tls_output_continue(struct rdma_tls *t);        /* more output may leave, or all has left */
void rdma_tls_input_run(struct rdma_tls *t);              /* decrypts what has come, and calls `readable` */
void rdma_tls_raw_run(struct rdma_tls *t);        /* the same, and lets output that waited for input leave first */
void rdma_tls_raw_over(struct rdma_tls *t);       /* the carrier takes no output any more */
void rdma_tls_end(struct rdma_tls *t, int error); /* calls `closed`; error: an errno, 0: an orderly end */

/* tls_handshake.c */
extern const struct connection_events rdma_tls_carrier_events;
struct listener *rdma_tls_listen(struct event_loop *loop, const struct listen_options *options, char *error,
                                 size_t error_size);
void rdma_tls_arrival_drop(struct rdma_tls *t); /* ends an accepted connection that was not reported */
