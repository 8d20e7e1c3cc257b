/* remote.c: the two halves of a connection on another thread; see remote.h. */
#include "net/remote.h"
#include "lib/clock.h"
#include "lib/memory.h"
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>

enum {
    OUTPUT_SIZE_FIRST = 1024, /* bytes of the first OUTPUT message, header included; later ones are larger */
    OUTPUT_SIZE_NEXT = 16 * 1024,
    TRUST_PENDING = 16 * 1024, /* below this, conn_pending() may count bytes that are already sent */
    DESCRIBE_US = 100 * 1000,
};

struct remote_lock {
    pthread_mutex_t mutex;
};

/* What the end tells home when a connection opens. */
struct opened_message {
    struct message message; /* must be first */
    const struct transport *transport;
    struct address peer, own;
    bool peer_known, own_known, is_local;
    int fd;
    char *names; /* conn_peer_names() */
};

struct remote {
    struct connection conn; /* must be first */
    struct remote_worker *worker;
    struct remote_end *end; /* NULL: closed */
    struct opened_message *about;
    struct message *shown;                  /* conn.in points into it */
    struct message *arrived, **arrived_end; /* received, not shown yet */
    size_t arrived_size;                    /* bytes of them and of `shown` */
    size_t arrived_len;                     /* bytes of the stream in them */
    struct message *filling;                /* the message that conn.out writes to; may be `shown` */
    struct message *sealed, **sealed_end;   /* for the next flush */
    size_t sealed_len;                      /* output in them */
    uint64_t handed;                        /* bytes of output given to the end */
    bool shown_space_used;                  /* the reply space of `shown` must not be used again */
    bool showing, drain_asked, reads_on;
    bool leaving;                     /* LEAVE was sent, and the end has not gone on yet */
    struct message *kept, **kept_end; /* messages for the end, while it is leaving */
    struct remote_end *left;          /* the end, after LEFT, until it goes on */
    char *error_note;
    struct event_deferred resume, go_on;
};

static struct remote *remote_of(const struct connection *conn) {
    return (struct remote *)(uintptr_t)conn;
}

/* Messages */

struct message *remote_message_new(size_t size) {
    struct message *message = mem_alloc(size);
    memset(message, 0, sizeof *message);
    message->size = size;
    return message;
}

void remote_message_drop(struct message *message) {
    if (message->blob) blob_release(message->blob);
    if (message->drop)
        message->drop(message);
    else
        mem_free(message);
}

static void at_home(struct event_post *post);
static void at_end(struct event_post *post);

static void send_home(struct remote_end *end, struct message *message, enum message_kind kind) {
    message->kind = kind;
    message->home = end->home;
    message->end = end;
    message->post.run = at_home;
    event_outbox_add(&end->worker->to_home, &message->post);
}

static void send_to_end(struct remote *r, struct message *message) {
    message->home = r;
    message->end = r->end;
    message->post.run = at_end;
    if (__builtin_expect(!r->leaving, 1)) {
        event_outbox_add(&r->worker->to_loop, &message->post);
        return;
    }
    message->post.next = NULL;
    *r->kept_end = message;
    r->kept_end = (struct message **)&message->post.next;
}

static void tell_end(struct remote *r, enum message_kind kind, int number) {
    if (!r->end) return;
    struct message *message = remote_message_new(sizeof *message);
    message->kind = kind;
    message->number = number;
    message->trusted = r->conn.trusted;
    send_to_end(r, message);
}

/* --- The end: worker's thread --- */

static uint64_t describe_stale(struct event_timer *timer) {
    struct remote_worker *worker = container_of(timer, struct remote_worker, describe);
    pthread_mutex_lock(&worker->lock->mutex);
    while (worker->stale.len) {
        struct remote_end *end = container_of(list_first(&worker->stale), struct remote_end, stale_link);
        list_remove(&worker->stale, &end->stale_link);
        end->conn->transport->describe(end->conn, end->described, sizeof end->described);
    }
    pthread_mutex_unlock(&worker->lock->mutex);
    return 0;
}

static void note(struct remote_end *end) {
    const struct connection *conn = end->conn;
    size_t input = 0, output = 0, all = conn->transport->memory(conn, &input, &output);
    atomic_store_explicit(&end->memory, all + end->held, memory_order_relaxed);
    atomic_store_explicit(&end->spare, input > conn->in_len ? input - conn->in_len : 0, memory_order_relaxed);
    atomic_store_explicit(&end->memory_out, output, memory_order_relaxed);
    size_t pending = conn_pending(conn);
    atomic_store_explicit(&end->sent, end->taken_out > pending ? end->taken_out - pending : 0, memory_order_relaxed);
    /* Writing the text takes longer than a request, so it is done later. */
    struct remote_worker *worker = end->worker;
    if (!end->described[0] || list_is_linked(&end->stale_link)) return; /* [0]: this thread writes it */
    list_append(&worker->stale, &end->stale_link);
    if (!worker->describe.heap_index) event_timer_set(worker->loop, &worker->describe, DESCRIBE_US, describe_stale);
}

static void count(_Atomic uint64_t *counter) { /* that one thread writes */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void tell_drained(struct remote_end *end) {
    if (!end->drain_asked || conn_pending(end->conn)) return;
    end->drain_asked = false;
    send_home(end, remote_message_new(sizeof(struct message)), MESSAGE_DRAINED);
}

static void set_reading(struct remote_end *end) {
    if (!end->ended) conn_set_reading(end->conn, !end->full && !end->paused);
}

/* Pauses reading while too much is at home. */
static void bound_reading(struct remote_end *end) {
    size_t limit = end->full ? REMOTE_AT_HOME_MAX / 2 : REMOTE_AT_HOME_MAX;
    bool full = end->at_home >= limit && !end->reads_on;
    if (full == end->full) return;
    end->full = full;
    set_reading(end);
}

void remote_end_pause(struct remote_end *end, bool pause) {
    end->paused = pause;
    set_reading(end);
}

void remote_send_input(struct remote_end *end, struct message *message) {
    end->at_home += message->size;
    message->sent = atomic_load_explicit(&end->sent, memory_order_relaxed);
    send_home(end, message, MESSAGE_INPUT);
    bound_reading(end);
}

static void end_readable(struct connection *conn) {
    struct remote_end *end = conn->owner;
    count(&end->worker->reads);
    end->worker->ops->readable(end);
    note(end);
}

static void end_drained(struct connection *conn) {
    struct remote_end *end = conn->owner;
    note(end);
    tell_drained(end);
}

static void end_closed(struct connection *conn) {
    struct remote_end *end = conn->owner;
    end->ended = true;
    const char *text = conn_error_text(conn);
    size_t len = strlen(text);
    struct message *message = remote_message_new(sizeof *message + len + 1);
    char *copy = (char *)(message + 1);
    memcpy(copy, text, len + 1);
    message->bytes = copy;
    message->number = conn->error;
    send_home(end, message, MESSAGE_ENDED);
    tell_drained(end);
}

static const struct connection_events end_events = {
    .readable = end_readable, .drained = end_drained, .closed = end_closed};

static const char worker_key;

static char *names_copy(const char *names) {
    if (!names) return NULL;
    size_t len = 0;
    while (names[len]) len += strlen(names + len) + 1;
    char *copy = mem_alloc(len + 1);
    memcpy(copy, names, len + 1);
    return copy;
}

static void about_drop(struct message *message) {
    mem_free(((struct opened_message *)message)->names);
    mem_free(message);
}

/* Makes the two halves, which are not connected by messages yet. */
static struct opened_message *halves_new(struct remote_worker *worker, struct connection *conn) {
    struct remote_end *end = worker->ops->opened(worker, conn);
    end->conn = conn;
    end->worker = worker;
    end->home = mem_calloc(1, sizeof *end->home);
    end->home->end = end;
    end->home->worker = worker;
    conn->events = &end_events;
    conn->owner = end;
    struct opened_message *about = (struct opened_message *)remote_message_new(sizeof *about);
    about->message.end = end;
    about->transport = conn->transport;
    about->peer_known = conn->transport->address(conn, true, &about->peer);
    about->own_known = conn->transport->address(conn, false, &about->own);
    about->is_local = conn->transport->is_local(conn);
    about->fd = conn->transport->fd(conn);
    about->names = names_copy(conn_peer_names(conn));
    about->message.drop = about_drop;
    return about;
}

static void end_describe(struct remote_end *end) {
    if (!end->conn->transport->describe) return;
    pthread_mutex_lock(&end->worker->lock->mutex);
    end->conn->transport->describe(end->conn, end->described, sizeof end->described);
    pthread_mutex_unlock(&end->worker->lock->mutex);
}

/* The end creates home's half, so that messages name it from the start; from now on that half belongs to home. */
void remote_arrived(struct connection *conn) {
    struct event_attachment *attachment = event_loop_attachment(conn->loop, &worker_key);
    struct remote_worker *worker = container_of(attachment, struct remote_worker, attachment);
    struct opened_message *about = halves_new(worker, conn);
    struct remote_end *end = about->message.end;
    end_describe(end);
    note(end);
    send_home(end, &about->message, MESSAGE_OPENED);
}

static void flush_end(struct remote_end *end) {
    list_remove(&end->worker->dirty, &end->dirty_link);
    count(&end->worker->writes);
    conn_flush(end->conn);
    note(end);
    tell_drained(end);
}

static void flush_dirty(struct remote_worker *worker) {
    while (worker->dirty.len) flush_end(container_of(list_first(&worker->dirty), struct remote_end, dirty_link));
}

static void end_leave(struct remote_end *end, struct message *message) {
    struct connection *conn = end->conn;
    if (list_is_linked(&end->dirty_link)) flush_end(end);
    message->number = !end->ended && !end->at_home && !end->drain_asked && conn->transport->leave(conn);
    if (message->number && list_is_linked(&end->stale_link)) list_remove(&end->worker->stale, &end->stale_link);
    send_home(end, message, MESSAGE_LEFT); /* if it has left, home may use it from now on */
}

static void end_enter(struct remote_end *end) {
    end->conn->transport->enter(end->conn, end->worker->loop);
    end_describe(end);
    note(end);
}

static void end_close(struct remote_end *end, struct message *message) {
    struct remote_worker *worker = end->worker;
    if (list_is_linked(&end->dirty_link)) list_remove(&worker->dirty, &end->dirty_link);
    if (list_is_linked(&end->stale_link)) list_remove(&worker->stale, &end->stale_link);
    conn_flush(end->conn);
    end->conn->owner = NULL;
    conn_close(end->conn);
    send_home(end, message, MESSAGE_GONE);
    worker->ops->free(end);
}

static void take_output(struct remote_end *end, struct message *message) {
    struct output *out = &end->conn->out;
    size_t len = message->reply_len;
    if (len) output_write(out, (struct slice){message->reply, len});
    if (message->blob) {
        len += message->blob->len;
        output_write_blob(out, message->blob);
    }
    if (!len) return;
    end->taken_out += len;
    if (!list_is_linked(&end->dirty_link)) list_append(&end->worker->dirty, &end->dirty_link);
}

static void take_back(struct remote_end *end, struct message *message) {
    end->at_home -= message->size;
    conn_set_trusted(end->conn, message->trusted);
    bound_reading(end);
    if (!end->ended && end->worker->ops->returned) end->worker->ops->returned(end, message);
}

static void at_end(struct event_post *post) {
    struct message *message = (struct message *)post;
    struct remote_end *end = message->end;
    switch (message->kind) {
    case MESSAGE_INPUT:
        take_output(end, message);
        take_back(end, message);
        break;
    case MESSAGE_READ_ON:
        end->reads_on = message->number;
        bound_reading(end);
        break;
    case MESSAGE_OUTPUT: take_output(end, message); break;
    case MESSAGE_TRUST: conn_set_trusted(end->conn, message->trusted); break;
    case MESSAGE_KEEPALIVE: end->conn->transport->set_keepalive(end->conn, message->number); break;
    case MESSAGE_ASK_DRAINED:
        end->drain_asked = true;
        if (!list_is_linked(&end->dirty_link)) list_append(&end->worker->dirty, &end->dirty_link);
        break;
    case MESSAGE_LEAVE: end_leave(end, message); return;
    case MESSAGE_ENTER: end_enter(end); break;
    case MESSAGE_CLOSE: end_close(end, message); return;
    default: break;
    }
    remote_message_drop(message);
}

/* --- Home --- */

/* Output */

static void seal(struct remote *r, struct message *message) {
    message->post.next = NULL;
    *r->sealed_end = message;
    r->sealed_end = (struct message **)&message->post.next;
    r->sealed_len += message->reply_len + (message->blob ? message->blob->len : 0);
}

static struct message *output_message(size_t space) {
    struct message *message = remote_message_new(sizeof *message + space);
    message->kind = MESSAGE_OUTPUT;
    message->reply = (char *)(message + 1);
    message->reply_capacity = space;
    return message;
}

static void write_to(struct remote *r, struct message *message) {
    r->filling = message;
    r->conn.out.pos = message ? message->reply + message->reply_len : NULL;
    r->conn.out.end = message ? message->reply + message->reply_capacity : NULL;
}

/* Ends writing to `filling`; its bytes are sent by the next flush. A shown message cannot leave while its input is
 * needed: then its bytes move to a message with space for `more` behind them, which is returned, unsealed. */
static struct message *filling_end(struct remote *r, size_t more) {
    struct message *message = r->filling, *copy = NULL;
    if (!message) return NULL;
    size_t len = (size_t)(r->conn.out.pos - message->reply);
    write_to(r, NULL);
    if (message != r->shown) {
        message->reply_len = len;
        seal(r, message);
        return NULL;
    }
    r->shown_space_used = true;
    if (!len && !more) return NULL;
    copy = output_message(len + more);
    memcpy(copy->reply, message->reply, len);
    copy->reply_len = len;
    return copy;
}

static bool takes_output(const struct remote *r) {
    return r->end && !r->conn.error;
}

static void remote_make_space(struct output *out, size_t len) {
    struct remote *r = remote_of((struct connection *)out);
    if (!takes_output(r)) {
        output_discard(out);
        return;
    }
    if (!r->filling && r->shown && !r->shown_space_used && r->shown->reply_capacity >= len) {
        write_to(r, r->shown);
        return;
    }
    size_t space = (r->sealed || r->filling ? OUTPUT_SIZE_NEXT : OUTPUT_SIZE_FIRST) - sizeof(struct message);
    if (space < len) space = len;
    struct message *next = filling_end(r, space);
    write_to(r, next ? next : output_message(space));
}

static void remote_share(struct output *out, struct blob *blob) {
    struct remote *r = remote_of((struct connection *)out);
    if (!takes_output(r) || blob->len == 0) {
        blob_release(blob);
        return;
    }
    struct message *message = r->filling;
    if (message && message != r->shown) {
        message->reply_len = (size_t)(out->pos - message->reply);
        write_to(r, NULL);
    } else {
        message = filling_end(r, 0);
        if (!message) message = output_message(0);
    }
    message->blob = blob;
    seal(r, message);
}

static const struct output_ops remote_output_ops = {.make_space = remote_make_space, .share = remote_share};

bool conn_is_remote(const struct connection *conn) {
    return conn->out.ops == &remote_output_ops;
}

static uint64_t produced(const struct remote *r) {
    return r->handed + r->sealed_len + (r->filling ? (uint64_t)(r->conn.out.pos - r->filling->reply) : 0);
}

/* Updates how much the end has sent, as it reports. */
static void ask_sent(const struct remote *r) {
    if (r->end) remote_of(&r->conn)->conn.bytes_out = atomic_load_explicit(&r->end->sent, memory_order_relaxed);
}

static size_t remote_pending(const struct connection *conn) {
    const struct remote *r = remote_of(conn);
    if (!takes_output(r)) return 0;
    uint64_t all = produced(r);
    if (all - conn->bytes_out > TRUST_PENDING) ask_sent(r);
    return (size_t)(all - conn->bytes_out);
}

static void read_on(struct remote *r, bool on) {
    r->reads_on = on;
    tell_end(r, MESSAGE_READ_ON, on);
}

/* The shown message is consumed: it returns, with the replies in it. */
static void retire(struct remote *r) {
    struct message *message = r->shown;
    if (r->filling == message) {
        message->reply_len = (size_t)(r->conn.out.pos - message->reply);
        write_to(r, NULL);
    } else if (r->filling)
        filling_end(r, 0);
    r->shown = NULL;
    r->conn.in = NULL;
    r->conn.in_len = 0;
    if (r->reads_on) read_on(r, false);
    r->arrived_size -= message->size;
    message->trusted = r->conn.trusted;
    seal(r, message);
}

static void remote_flush(struct connection *conn) {
    struct remote *r = remote_of(conn);
    if (!r->end) return;
    if (r->shown && conn->in_len == 0) retire(r);
    struct message *left = filling_end(r, 0);
    if (left) seal(r, left);
    r->shown_space_used = false; /* its contents have been copied */
    struct message *next;
    for (struct message *message = r->sealed; message; message = next) {
        next = (struct message *)message->post.next;
        send_to_end(r, message);
    }
    r->handed += r->sealed_len;
    r->sealed_len = 0;
    r->sealed = NULL;
    r->sealed_end = &r->sealed;
    if (conn->wants_drained && !r->drain_asked) {
        r->drain_asked = true;
        tell_end(r, MESSAGE_ASK_DRAINED, 0);
    }
}

/* Input */

static void show_next(struct remote *r);

static void show_resume(struct event_deferred *deferred) {
    show_next(container_of(deferred, struct remote, resume));
}

static void show_later(struct remote *r) {
    if (r->arrived && !r->showing && r->end) event_loop_defer(r->conn.loop, &r->resume, show_resume);
}

static void show_input(struct remote *r, struct message *message) {
    struct connection *conn = &r->conn;
    r->shown = message;
    r->shown_space_used = false;
    conn->in = message->bytes;
    conn->in_len = message->len;
    conn->bytes_in += message->stream_len;
    r->arrived_len -= message->stream_len;
    r->showing = true;
    conn->events->readable(conn);
    r->showing = false;
    if (r->shown && conn->in_len == 0 && r->end) retire(r);
}

static void show_end(struct remote *r, struct message *message) {
    struct connection *conn = &r->conn;
    conn->state = CONN_ENDED;
    conn->error = message->number;
    r->error_note = mem_strdup(message->bytes);
    remote_message_drop(message);
    conn->events->closed(conn);
}

static struct message *arrived_pop(struct remote *r) {
    struct message *message = r->arrived;
    r->arrived = (struct message *)message->post.next;
    if (!r->arrived) r->arrived_end = &r->arrived;
    return message;
}

/* The user has left its input unconsumed. If there is much of it, the end reads on regardless. */
static void input_left(struct remote *r) {
    bool on = r->arrived_size >= REMOTE_AT_HOME_MAX / 2 && remote_unread(&r->conn) < r->conn.in_limit;
    if (on != r->reads_on) read_on(r, on);
}

static void show_next(struct remote *r) {
    while (r->arrived && r->end && !r->showing && !r->conn.reading_paused && r->conn.state == CONN_OPEN) {
        if (r->shown && r->conn.in_len) {
            input_left(r);
            return;
        }
        if (r->shown) retire(r);
        struct message *message = arrived_pop(r);
        if (message->kind == MESSAGE_INPUT)
            show_input(r, message);
        else
            show_end(r, message);
    }
}

static void home_input(struct remote *r, struct message *message) {
    if (!r->end) {
        remote_message_drop(message);
        return;
    }
    struct connection *conn = &r->conn;
    bool ends = message->kind == MESSAGE_ENDED;
    if (!ends) {
        r->arrived_size += message->size;
        r->arrived_len += message->stream_len;
        if (message->sent > conn->bytes_out) conn->bytes_out = message->sent;
    }
    message->post.next = NULL;
    *r->arrived_end = message;
    r->arrived_end = (struct message **)&message->post.next;
    show_next(r);
    if (!r->arrived || conn->state != CONN_OPEN || r->showing) return;
    /* The message waits behind unconsumed input. */
    if (ends) {
        conn->hung_up = true;
        if (conn->events->hung_up) conn->events->hung_up(conn);
    } else if (!conn->reading_paused && r->arrived_size >= REMOTE_AT_HOME_MAX / 2) {
        r->showing = true;
        conn->events->readable(conn);
        r->showing = false;
    }
}

static void remote_consume(struct connection *conn, size_t len) {
    struct remote *r = remote_of(conn);
    conn->in += len;
    conn->in_len -= len;
    if (conn->in_len == 0) show_later(r);
}

static void remote_set_reading(struct connection *conn) {
    if (!conn->reading_paused) show_later(remote_of(conn));
}

/* For display */

static bool remote_address(const struct connection *conn, bool peer, struct address *address) {
    const struct opened_message *about = remote_of(conn)->about;
    *address = peer ? about->peer : about->own;
    return peer ? about->peer_known : about->own_known;
}

static int remote_fd(const struct connection *conn) {
    return remote_of(conn)->about->fd;
}
static const char *remote_peer_names(const struct connection *conn) {
    return remote_of(conn)->about->names;
}
static bool remote_is_local(const struct connection *conn) {
    return remote_of(conn)->about->is_local;
}

static const char *remote_error_text(const struct connection *conn) {
    const struct remote *r = remote_of(conn);
    return r->error_note ? r->error_note : "Connection closed by the peer";
}

/* Memory for input is that of the shown input and what is empty: the rest is held because the peer has sent bytes,
 * whichever half holds it. */
static size_t remote_memory(const struct connection *conn, size_t *input, size_t *output) {
    const struct remote *r = remote_of(conn);
    size_t in = conn->in_len, out = r->sealed_len + (r->filling && r->filling != r->shown ? r->filling->size : 0);
    size_t all = sizeof *r + sizeof *r->about;
    if (r->end) {
        ask_sent(r);
        in += atomic_load_explicit(&r->end->spare, memory_order_relaxed);
        out += atomic_load_explicit(&r->end->memory_out, memory_order_relaxed);
        all += atomic_load_explicit(&r->end->memory, memory_order_relaxed) + r->arrived_size + r->sealed_len;
    }
    if (input) *input = in;
    if (output) *output = out;
    return all;
}

static void remote_describe(const struct connection *conn, char *text, size_t size) {
    const struct remote *r = remote_of(conn);
    if (size) text[0] = 0;
    if (!r->end || !size) return;
    pthread_mutex_lock(&r->worker->lock->mutex);
    size_t len = strlen(r->end->described);
    if (len >= size) len = size - 1;
    memcpy(text, r->end->described, len);
    text[len] = 0;
    pthread_mutex_unlock(&r->worker->lock->mutex);
}

/* Lifetime */

static int remote_set_keepalive(struct connection *conn, int seconds) {
    tell_end(remote_of(conn), MESSAGE_KEEPALIVE, seconds);
    return 0;
}

static void remote_set_trusted(struct connection *conn) {
    tell_end(remote_of(conn), MESSAGE_TRUST, 0);
}

static void remote_free(struct event_deferred *deferred) {
    struct remote *r = remote_of(container_of(deferred, struct connection, deferred));
    while (r->arrived) remote_message_drop(arrived_pop(r));
    if (r->shown) remote_message_drop(r->shown);
    remote_message_drop(&r->about->message);
    mem_free(r->error_note);
    mem_free(r);
}

/* A caller that still reads the input (the client's own command may close it) finds it until the end of the turn. */
static void remote_close(struct connection *conn) {
    struct remote *r = remote_of(conn);
    if (!r->end) return;
    if (r->shown) r->conn.in_len = r->shown->len + 1; /* not consumed: the flush leaves it here */
    remote_flush(conn);
    struct message *message = remote_message_new(sizeof *message);
    message->kind = MESSAGE_CLOSE;
    send_to_end(r, message);
    r->end = NULL;
    conn->state = CONN_CLOSED;
    conn->bytes_out = r->handed;
    conn->in_len = 0;
}

/* The transport of a remote connection, as another thread sees it. */
static const struct transport *proxy_of(const struct transport *real) {
    static struct transport proxies[8];
    size_t i = 0;
    while (proxies[i].name && proxies[i].name != real->name) i++;
    if (!proxies[i].name)
        proxies[i] = (struct transport){.name = real->name,
                                        .consume = remote_consume,
                                        .set_reading = remote_set_reading,
                                        .set_trusted = remote_set_trusted,
                                        .flush = remote_flush,
                                        .pending = remote_pending,
                                        .close = remote_close,
                                        .address = remote_address,
                                        .fd = remote_fd,
                                        .is_local = remote_is_local,
                                        .set_keepalive = remote_set_keepalive,
                                        .error_text = remote_error_text,
                                        .memory = remote_memory,
                                        .describe = remote_describe,
                                        .peer_names = remote_peer_names};
    return &proxies[i];
}

static void home_init(struct remote *r, struct opened_message *about) {
    struct connection *conn = &r->conn;
    r->about = about;
    r->arrived_end = &r->arrived;
    r->sealed_end = &r->sealed;
    r->kept_end = &r->kept;
    conn->out.ops = &remote_output_ops;
    conn->transport = proxy_of(about->transport);
    conn->loop = r->worker->home;
    conn->state = CONN_OPEN;
    conn->in_limit = SIZE_MAX;
    r->worker->count++;
}

static void home_open(struct remote *r, struct opened_message *about) {
    home_init(r, about);
    r->worker->ops->accepted(&r->conn);
}

/* Moving */

/* The end goes on: the messages kept meanwhile follow. */
static void end_goes_on(struct remote *r, struct remote_end *end, struct remote_worker *worker) {
    struct message *next;
    r->leaving = false;
    r->worker = worker;
    worker->count++;
    for (struct message *message = r->kept; message; message = next) {
        next = (struct message *)message->post.next;
        message->end = end;
        event_outbox_add(&worker->to_loop, &message->post);
    }
    r->kept = NULL;
    r->kept_end = &r->kept;
}

static void enter(struct remote *r, struct remote_end *end, struct remote_worker *worker) {
    struct message *message = remote_message_new(sizeof *message);
    end->worker = worker;
    message->kind = MESSAGE_ENTER;
    message->home = r;
    message->end = end;
    message->post.run = at_end;
    event_outbox_add(&worker->to_loop, &message->post);
}

static void go_on(struct event_deferred *deferred) {
    struct remote *r = container_of(deferred, struct remote, go_on);
    struct remote_worker *to = r->end ? r->worker->ops->left(&r->conn) : r->worker; /* closed meanwhile: goes back */
    if (!to) return;
    struct remote_end *end = r->left;
    r->left = NULL;
    enter(r, end, to);
    end_goes_on(r, end, to);
}

static void home_left(struct remote *r, const struct message *message) {
    if (!message->number) {
        end_goes_on(r, message->end, r->worker);
        return;
    }
    r->left = message->end;
    event_loop_defer(r->conn.loop, &r->go_on, go_on);
}

struct remote_worker *remote_worker_of(const struct connection *conn) {
    return remote_of(conn)->worker;
}

bool remote_can_leave(const struct connection *conn) {
    return remote_of(conn)->about->transport->leave != NULL;
}

bool remote_is_leaving(const struct connection *conn) {
    return remote_of(conn)->leaving;
}

bool remote_leave(struct connection *conn) {
    struct remote *r = remote_of(conn);
    bool busy = r->shown || r->arrived || r->filling || r->sealed || r->showing || r->drain_asked || r->reads_on;
    if (!takes_output(r) || conn->state != CONN_OPEN || r->leaving || busy || !remote_can_leave(conn)) return false;
    tell_end(r, MESSAGE_LEAVE, 0);
    r->leaving = true;
    r->worker->count--;
    return true;
}

struct connection *remote_take(struct connection *conn) {
    struct remote *r = remote_of(conn);
    struct remote_end *end = r->left;
    struct connection *real = end->conn;
    bool busy = r->kept || r->filling || r->sealed || conn->reading_paused || list_is_linked(&r->resume.link);
    if (busy || end->full || end->paused || real->in_len || real->sink || !r->worker->ops->idle(end)) return NULL;
    real->events = conn->events;
    real->owner = conn->owner;
    real->trusted = conn->trusted;
    real->bytes_in = conn->bytes_in;
    real->bytes_out = r->handed;
    real->in_limit = conn->in_limit;
    r->worker->ops->free(end);
    r->end = r->left = NULL;
    conn->state = CONN_CLOSED;
    event_loop_defer(conn->loop, &conn->deferred, remote_free);
    real->transport->enter(real, conn->loop);
    return real;
}

struct connection *remote_adopt(struct remote_worker *worker, struct connection *conn) {
    const struct connection_events *events = conn->events;
    void *owner = conn->owner;
    if (conn->in_len || conn->sink || conn->reading_paused) return NULL;
    if (!conn->transport->leave || !conn->transport->leave(conn)) return NULL;
    struct opened_message *about = halves_new(worker, conn);
    struct remote_end *end = about->message.end;
    struct remote *r = end->home;
    home_init(r, about);
    r->conn.events = events;
    r->conn.owner = owner;
    r->conn.trusted = conn->trusted;
    r->conn.in_limit = conn->in_limit;
    r->conn.bytes_in = conn->bytes_in;
    r->conn.bytes_out = r->handed = end->taken_out = conn->bytes_out;
    atomic_store_explicit(&end->sent, conn->bytes_out, memory_order_relaxed);
    enter(r, end, worker);
    return &r->conn;
}

static void home_drained(struct remote *r) {
    struct connection *conn = &r->conn;
    r->drain_asked = false;
    if (!r->end) return;
    ask_sent(r);
    if (remote_pending(conn)) /* more was written since */
        remote_flush(conn);
    else if (conn->events->drained)
        conn->events->drained(conn);
}

static void at_home(struct event_post *post) {
    struct message *message = (struct message *)post;
    struct remote *r = message->home;
    switch (message->kind) {
    case MESSAGE_OPENED: home_open(r, (struct opened_message *)message); return;
    case MESSAGE_INPUT:
    case MESSAGE_ENDED: home_input(r, message); return;
    case MESSAGE_DRAINED: home_drained(r); break;
    case MESSAGE_LEFT: home_left(r, message); break;
    case MESSAGE_GONE:
        r->worker->count--;
        event_loop_defer(r->conn.loop, &r->conn.deferred, remote_free);
        break;
    default: break;
    }
    remote_message_drop(message);
}

size_t remote_unread(const struct connection *conn) {
    return conn->in_len + remote_of(conn)->arrived_len;
}

struct message *remote_shown(const struct connection *conn) {
    return remote_of(conn)->shown;
}

/* Calls */

struct remote_call {
    struct event_post post; /* must be first */
    struct connection *conn;
    void (*run)(struct connection *real, void *context);
    void *context;
    sem_t done;
};

static void call_at_end(struct event_post *post) {
    struct remote_call *call = (struct remote_call *)post;
    call->run(call->conn, call->context);
    sem_post(&call->done); /* the caller's stack, where the call is, may be gone now */
}

/* The end exists: it is freed after CLOSE, which is sent when r->end becomes NULL. */
bool remote_run(struct connection *conn, void (*run)(struct connection *real, void *context), void *context) {
    const struct remote *r = remote_of(conn);
    if (!r->end || r->leaving || r->worker->stopped) return false;
    struct remote_call call = {.post.run = call_at_end, .conn = r->end->conn, .run = run, .context = context};
    sem_init(&call.done, 0, 0);
    event_loop_post(r->worker->loop, &call.post);
    while (sem_wait(&call.done) < 0) continue; /* a signal */
    sem_destroy(&call.done);
    return true;
}

/* Workers */

static void before_wait(void *context) {
    flush_dirty(context);
}

static void worker_free(struct event_attachment *attachment) {
    struct remote_worker *worker = container_of(attachment, struct remote_worker, attachment);
    pthread_mutex_destroy(&worker->lock->mutex);
    mem_free(worker->lock);
}

void remote_worker_init(struct remote_worker *worker, struct event_loop *loop, struct event_loop *home,
                        const struct remote_worker_ops *ops) {
    memset(worker, 0, sizeof *worker);
    worker->ops = ops;
    worker->loop = loop;
    worker->home = home;
    event_loop_take_posts(loop);
    event_loop_take_posts(home);
    event_outbox_init(&worker->to_home, loop, home);
    event_outbox_init(&worker->to_loop, home, loop);
    list_init(&worker->dirty);
    list_init(&worker->stale);
    worker->lock = mem_alloc(sizeof *worker->lock);
    pthread_mutex_init(&worker->lock->mutex, NULL);
    event_loop_set_hooks(loop, &(struct event_hooks){.before_wait = before_wait, .context = worker});
    worker->attachment = (struct event_attachment){.key = &worker_key, .free = worker_free};
    event_loop_attach(loop, &worker->attachment);
}

void remote_worker_flush(struct remote_worker *worker) {
    flush_dirty(worker);
}

void remote_worker_stopped(struct remote_worker *worker) {
    worker->stopped = true;
}
