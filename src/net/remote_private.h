/* remote_private.h: shared by the two halves of a remote connection: remote.c and remote_move.c (home),
 * and remote_worker.c (the end). */
#pragma once
#include "net/remote.h"
#include <pthread.h>

struct remote_lock {
    pthread_mutex_t mutex;
};

/* What the end reports to home when a connection opens. */
struct opened_message {
    struct remote_message message; /* must be first */
    const struct transport *transport;
    struct address peer, own;
    bool peer_known, own_known, is_local;
    int fd;
    char *names;       /* conn_peer_names() */
    char *certificate; /* conn_peer_certificate() */
};

struct remote {
    struct connection conn; /* must be first */
    struct remote_worker *worker;
    struct remote_end *end; /* NULL: closed */
    struct opened_message *about;
    struct remote_message *shown;                  /* conn.in points into it */
    struct remote_message *arrived, **arrived_end; /* received, not shown yet */
    size_t arrived_size;                           /* bytes of them and of `shown` */
    size_t arrived_len;                            /* bytes of the stream in them */
    uint64_t received;                             /* bytes of all messages of input, as end->sent_home */
    struct remote_message *filling;                /* the message that conn.out writes to; may be `shown` */
    struct remote_message *sealed, **sealed_end;   /* for the next flush */
    size_t sealed_len;                             /* output in them */
    uint64_t handed;                               /* bytes of output given to the end */
    uint64_t shown_out;                            /* remote_bytes_out(), which does not go back */
    bool shown_space_used;                         /* the reply space of `shown` must not be used again */
    bool showing, drain_asked, reads_on;
    bool leaving;                            /* LEAVE was sent, and the end has not gone on yet */
    struct remote_message *kept, **kept_end; /* messages for the end, while it is leaving */
    struct remote_end *left;                 /* the end, from LEFT until a worker takes it */
    char *error_note;
    struct event_timer resume; /* shows what has arrived; nested turns of the loop run no deferred work */
    struct event_deferred resume_end;
};

static inline struct remote *remote_of(const struct connection *conn) {
    return (struct remote *)(uintptr_t)conn;
}

/* Handlers of messages, on the thread of the half. */
void remote_at_home(struct event_post *post);
void remote_at_end(struct event_post *post);
void remote_message_drop(struct remote_message *message);
struct remote_message *remote_message_init(struct remote_message *message,
                                           size_t size); /* of new memory: remote_message_new() */
/* remote.c */
void remote_send_command(struct remote *r, enum message_kind kind, int number); /* to the end */
bool remote_takes_output(const struct remote *r);
void remote_home_init(struct remote *r, struct opened_message *about);
void remote_free(struct event_deferred *deferred);

/* remote_move.c: the answer to LEAVE */
void remote_home_left(struct remote *r, const struct remote_message *message);

/* remote_worker.c */
/* Makes the two halves, which are not connected by messages yet. */
struct opened_message *remote_halves_new(struct remote_worker *worker, struct connection *conn);
