/* remote.c: the home half of a connection on another thread. See remote.h. */
#include "net/remote.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "net/placement.h"
#include "net/remote_private.h"
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>

enum {
    OUTPUT_SIZE_FIRST = 1024, /* bytes of the first OUTPUT message, header included; later ones are larger */
    OUTPUT_SIZE_NEXT = 16 * 1024,
    TRUST_PENDING = 16 * 1024, /* below this, conn_pending() may count bytes that are already sent */
};

/* --- Messages --- */

static void send_to_end(struct remote *r, struct remote_message *message) {
    message->home = r;
    message->end = r->end;
    message->post.run = remote_at_end;
    if (__builtin_expect(!r->leaving, 1)) {
        event_outbox_add(&r->worker->to_loop, &message->post);
        return;
    }
    message->post.next = NULL;
    *r->kept_end = message;
    r->kept_end = (struct remote_message **)&message->post.next;
}

void remote_send_command(struct remote *r, enum message_kind kind, int number) {
    if (!r->end) return;
    struct remote_message *message = remote_message_new(sizeof *message);
    message->kind = kind;
    message->number = number;
    message->trusted = r->conn.trusted;
    send_to_end(r, message);
}

/* --- Output --- */

bool remote_takes_output(const struct remote *r) {
    return r->end && !r->conn.error;
}

static void seal(struct remote *r, struct remote_message *message) {
    message->post.next = NULL;
    *r->sealed_end = message;
    r->sealed_end = (struct remote_message **)&message->post.next;
    r->sealed_len += message->reply_len + (message->blob ? message->blob->len : 0);
}

/* NULL: no memory is left. */
static struct remote_message *output_message(const struct remote *r, size_t space) {
    struct remote_message *message = conn_output_alloc(sizeof *message + space, r->sealed_len);
    if (!message) return NULL;
    remote_message_init(message, sizeof *message + space);
    message->kind = MESSAGE_OUTPUT;
    message->reply = (char *)(message + 1);
    message->reply_capacity = space;
    return message;
}

static void write_to(struct remote *r, struct remote_message *message) {
    r->filling = message;
    r->conn.out.pos = message ? message->reply + message->reply_len : NULL;
    r->conn.out.end = message ? message->reply + message->reply_capacity : NULL;
}

static uint64_t show_resume(struct event_timer *timer);

static void drop_output(struct remote *r) {
    if (r->filling && r->filling != r->shown) remote_message_drop(r->filling);
    write_to(r, NULL);
    struct remote_message *next, *sealed = r->sealed;
    r->sealed = NULL;
    r->sealed_end = &r->sealed;
    r->sealed_len = 0;
    for (struct remote_message *message = sealed; message; message = next) {
        next = (struct remote_message *)message->post.next;
        message->reply_len = 0;
        if (message->kind == MESSAGE_INPUT)
            seal(r, message); /* the end counts on its return */
        else
            remote_message_drop(message);
    }
}

/* The end learns of it when the user closes the connection. */
static void fail(struct remote *r) {
    if (!remote_takes_output(r)) return;
    r->conn.error = ENOMEM;
    r->conn.out.failed = true;
    drop_output(r);
    event_timer_set(r->conn.loop, &r->resume, 0, show_resume);
}

/* Ends writing to `filling`; its bytes are sent by the next flush. A shown message cannot leave while its input is
 * needed: then its bytes move to a message with space for `more` behind them, which is returned, unsealed. Without
 * memory for that the connection fails. */
static struct remote_message *filling_end(struct remote *r, size_t more) {
    struct remote_message *message = r->filling, *copy = NULL;
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
    copy = output_message(r, len + more);
    if (!copy) {
        fail(r);
        return NULL;
    }
    memcpy(copy->reply, message->reply, len);
    copy->reply_len = len;
    return copy;
}

static void remote_fail(struct output *out) {
    fail(remote_of((struct connection *)out));
    output_discard(out);
}

static void remote_make_space(struct output *out, size_t len) {
    struct remote *r = remote_of((struct connection *)out);
    if (!remote_takes_output(r)) {
        output_discard(out);
        return;
    }
    if (!r->filling && r->shown && !r->shown_space_used && r->shown->reply_capacity >= len) {
        write_to(r, r->shown);
        return;
    }
    size_t space = (r->sealed || r->filling ? OUTPUT_SIZE_NEXT : OUTPUT_SIZE_FIRST) - sizeof(struct remote_message);
    if (space < len) space = len;
    struct remote_message *next = filling_end(r, space);
    if (!next && remote_takes_output(r)) next = output_message(r, space);
    if (next)
        write_to(r, next);
    else
        remote_fail(out);
}

/* The message that carries what the output shares next; the caller seals it. NULL: there is no memory. */
static struct remote_message *sharing_message(struct remote *r) {
    struct remote_message *message = r->filling;
    if (message && message != r->shown) {
        message->reply_len = (size_t)(r->conn.out.pos - message->reply);
        write_to(r, NULL);
    } else {
        message = filling_end(r, 0);
        if (!message && remote_takes_output(r)) message = output_message(r, 0);
    }
    if (!message) fail(r);
    return message;
}

static void remote_share(struct output *out, struct blob *blob) {
    struct remote *r = remote_of((struct connection *)out);
    struct remote_message *message = remote_takes_output(r) && blob->len ? sharing_message(r) : NULL;
    if (!message) {
        blob_release(blob);
        return;
    }
    message->blob = blob;
    seal(r, message);
}

static void remote_place(struct output *out, struct placement *placement) {
    struct remote *r = remote_of((struct connection *)out);
    struct remote_message *message = remote_takes_output(r) ? sharing_message(r) : NULL;
    if (!message) {
        placement->ended(placement, -ECANCELED);
        return;
    }
    message->placement = placement;
    seal(r, message);
}

static const struct output_ops remote_output_ops = {
    .make_space = remote_make_space, .give_up = remote_fail, .share = remote_share, .place = remote_place};

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
    if (!remote_takes_output(r)) return 0;
    uint64_t all = produced(r);
    must_within(conn->bytes_out, all); /* the end has sent what it got at most */
    if (all - conn->bytes_out > TRUST_PENDING) ask_sent(r);
    return (size_t)(all - conn->bytes_out);
}

static void read_on(struct remote *r, bool on) {
    r->reads_on = on;
    remote_send_command(r, MESSAGE_READ_ON, on);
}

/* The shown message is consumed: it returns, with the replies in it. */
static void retire(struct remote *r) {
    struct remote_message *message = r->shown;
    if (r->filling == message) {
        message->reply_len = (size_t)(r->conn.out.pos - message->reply);
        write_to(r, NULL);
    } else if (r->filling)
        filling_end(r, 0);
    must_within(message->size, r->arrived_size);
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
    struct remote_message *left = filling_end(r, 0);
    if (left) seal(r, left);
    r->shown_space_used = false; /* its contents have been copied */
    struct remote_message *next;
    for (struct remote_message *message = r->sealed; message; message = next) {
        next = (struct remote_message *)message->post.next;
        r->end->worker->handed += message->size;
        send_to_end(r, message);
    }
    r->handed += r->sealed_len;
    r->sealed_len = 0;
    r->sealed = NULL;
    r->sealed_end = &r->sealed;
    if (conn->wants_drained && !r->drain_asked) {
        r->drain_asked = true;
        remote_send_command(r, MESSAGE_ASK_DRAINED, 0);
    }
}

/* Input
 *
 * Messages wait in `arrived` and are shown one after the other. The next one is shown by one of these:
 *   - show_next(), when a message arrives, and in a loop while the user consumes what it is shown;
 *   - while it calls the user (`showing`), that call returns to it, whatever the user does meanwhile;
 *   - show_resume(), from a timer, when the user consumes input or resumes reading outside of such a call.
 * So whenever nothing is being shown and messages wait, either input is unconsumed, or reading is paused, or the timer
 * is set. */

static void show_next(struct remote *r);

static uint64_t show_resume(struct event_timer *timer) {
    struct remote *r = container_of(timer, struct remote, resume);
    if (r->conn.error && r->conn.state == CONN_OPEN) {
        r->conn.state = CONN_ENDED;
        r->error_note = mem_strdup(strerror(r->conn.error));
        r->conn.events->closed(&r->conn);
    } else {
        show_next(r);
    }
    return 0;
}

static void show_later(struct remote *r) {
    if (r->arrived && !r->showing && r->end && !r->resume.heap_index)
        event_timer_set(r->conn.loop, &r->resume, 0, show_resume);
}

static void show_input(struct remote *r, struct remote_message *message) {
    struct connection *conn = &r->conn;
    r->shown = message;
    r->shown_space_used = false;
    conn->in = message->bytes;
    conn->in_len = message->len;
    conn->bytes_in += message->stream_len;
    must(!r->showing);
    must_within(message->stream_len, r->arrived_len);
    r->arrived_len -= message->stream_len;
    r->showing = true;
    conn->events->readable(conn);
    r->showing = false;
    if (r->shown && conn->in_len == 0 && r->end) retire(r);
}

static void show_end(struct remote *r, struct remote_message *message) {
    struct connection *conn = &r->conn;
    conn->state = CONN_ENDED;
    conn->error = message->number;
    r->error_note = mem_strdup(message->bytes);
    remote_message_drop(message);
    conn->events->closed(conn);
}

static struct remote_message *arrived_pop(struct remote *r) {
    struct remote_message *message = r->arrived;
    r->arrived = (struct remote_message *)message->post.next;
    if (!r->arrived) r->arrived_end = &r->arrived;
    return message;
}

/* The user has left its input unconsumed. If there is much of it, the end reads on regardless. */
static void input_left(struct remote *r) {
    bool on = r->arrived_size >= REMOTE_AT_HOME_MAX / 2 && remote_unread(&r->conn) < r->conn.in_limit;
    if (on != r->reads_on) read_on(r, on);
}

static void show_next(struct remote *r) {
    while (r->arrived && remote_takes_output(r) && !r->showing && !r->conn.reading_paused &&
           r->conn.state == CONN_OPEN) {
        if (r->shown && r->conn.in_len) {
            input_left(r);
            return;
        }
        if (r->shown) retire(r);
        struct remote_message *message = arrived_pop(r);
        if (message->kind == MESSAGE_INPUT)
            show_input(r, message);
        else
            show_end(r, message);
    }
}

/* What has arrived waits behind unconsumed input. A user that executes nothing now looks at it, and ends the connection
 * where it is too much, or where its end has come. A user that is about to continue may continue here and consume it.
 */
static void show_waiting(struct remote *r, bool ended) {
    struct connection *conn = &r->conn;
    r->showing = true;
    if (!ended)
        conn->events->readable(conn);
    else if (conn->events->hung_up)
        conn->events->hung_up(conn);
    r->showing = false;
    show_next(r);
}

static void home_input(struct remote *r, struct remote_message *message) {
    if (message->kind == MESSAGE_INPUT) r->received += message->size;
    if (!r->end) {
        remote_message_drop(message);
        return;
    }
    struct connection *conn = &r->conn;
    bool ended = message->kind == MESSAGE_ENDED;
    if (!ended) {
        r->arrived_size += message->size;
        r->arrived_len += message->stream_len;
        if (message->sent > conn->bytes_out) conn->bytes_out = message->sent;
    }
    message->post.next = NULL;
    *r->arrived_end = message;
    r->arrived_end = (struct remote_message **)&message->post.next;
    show_next(r);
    if (!r->arrived || conn->state != CONN_OPEN || conn->error || r->showing) return;
    if (ended) conn->hung_up = true;
    if (ended || (!conn->reading_paused && r->arrived_size >= REMOTE_AT_HOME_MAX / 2)) show_waiting(r, ended);
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

/* --- For display --- */

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
static const char *remote_certificate(const struct connection *conn) {
    return remote_of(conn)->about->certificate;
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
static size_t in_transit(const struct remote *r) {
    uint64_t taken = atomic_load_explicit(&r->end->sent, memory_order_relaxed) +
                     atomic_load_explicit(&r->end->queued, memory_order_relaxed);
    return r->handed > taken ? (size_t)(r->handed - taken) : 0;
}

size_t remote_in_transit(const struct remote_worker *worker) {
    return (size_t)(worker->handed - atomic_load_explicit(&worker->taken, memory_order_relaxed));
}

static size_t remote_memory(const struct connection *conn, size_t *input, size_t *output) {
    const struct remote *r = remote_of(conn);
    size_t in = conn->in_len, out = r->sealed_len + (r->filling && r->filling != r->shown ? r->filling->size : 0);
    size_t all = sizeof *r + sizeof *r->about;
    if (r->end) {
        size_t transit = in_transit(r);
        ask_sent(r);
        out += transit;
        in += atomic_load_explicit(&r->end->spare, memory_order_relaxed);
        out += atomic_load_explicit(&r->end->memory_out, memory_order_relaxed);
        size_t on_its_way = (size_t)(atomic_load_explicit(&r->end->sent_home, memory_order_acquire) - r->received);
        all += atomic_load_explicit(&r->end->memory, memory_order_relaxed) + on_its_way + r->arrived_size +
               r->sealed_len + transit;
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

/* --- Lifetime --- */

static int remote_set_keepalive(struct connection *conn, int seconds) {
    remote_send_command(remote_of(conn), MESSAGE_KEEPALIVE, seconds);
    return 0;
}

static int remote_set_nodelay(struct connection *conn, bool on) {
    remote_send_command(remote_of(conn), MESSAGE_NODELAY, on);
    return 0;
}

static void remote_set_trusted(struct connection *conn) {
    remote_send_command(remote_of(conn), MESSAGE_TRUST, 0);
}

void remote_free(struct event_deferred *deferred) {
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
    struct remote_message *message = remote_message_new(sizeof *message);
    message->kind = MESSAGE_CLOSE;
    message->number = conn->drops_output || conn->error;
    send_to_end(r, message);
    r->end = NULL;
    event_timer_cancel(conn->loop, &r->resume);
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
                                        .set_nodelay = remote_set_nodelay,
                                        .error_text = remote_error_text,
                                        .memory = remote_memory,
                                        .describe = remote_describe,
                                        .peer_names = remote_peer_names,
                                        .certificate = remote_certificate};
    return &proxies[i];
}

void remote_home_init(struct remote *r, struct opened_message *about) {
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

void remote_at_home(struct event_post *post) {
    struct remote_message *message = (struct remote_message *)post;
    struct remote *r = message->home;
    switch (message->kind) {
    case MESSAGE_OPENED:
        remote_home_init(r, (struct opened_message *)message);
        r->worker->ops->accepted(&r->conn);
        return;
    case MESSAGE_INPUT:
        if (r->worker->ops->upcoming) r->worker->ops->upcoming(message);
        home_input(r, message);
        return;
    case MESSAGE_ENDED: home_input(r, message); return;
    case MESSAGE_DRAINED: home_drained(r); break;
    case MESSAGE_LEFT: remote_home_left(r, message); break;
    case MESSAGE_GROWN:
        if (r->end && r->conn.events->grown) r->conn.events->grown(&r->conn);
        break;
    case MESSAGE_GONE:
        must(!r->end && r->worker->count > 0);
        r->worker->count--;
        event_loop_defer(r->conn.loop, &r->conn.deferred, remote_free);
        break;
    default: must_hold(false, "message %d is for the end", message->kind);
    }
    remote_message_drop(message);
}

size_t remote_unread(const struct connection *conn) {
    return conn->in_len + remote_of(conn)->arrived_len;
}

size_t remote_waiting(const struct connection *conn) {
    const struct remote *r = remote_of(conn);
    size_t at_end = r->end ? atomic_load_explicit(&r->end->waiting, memory_order_relaxed) : 0;
    return r->arrived_len + at_end;
}

uint64_t remote_bytes_out(const struct connection *conn) {
    struct remote *r = remote_of(conn);
    if (!r->end) return conn->bytes_out;
    size_t queued = atomic_load_explicit(&r->end->queued, memory_order_relaxed);
    if (r->handed > r->shown_out + queued) r->shown_out = r->handed - queued;
    return r->shown_out;
}

struct remote_message *remote_shown(const struct connection *conn) {
    return remote_of(conn)->shown;
}

struct remote_message *remote_next_message(const struct remote_message *message) {
    struct event_post *next = message->post.next;
    return next && next->run == remote_at_home ? (struct remote_message *)next : NULL;
}

struct connection *remote_message_connection(const struct remote_message *message) {
    return message->home->end ? &message->home->conn : NULL;
}

/* --- Calls --- */

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
    event_outbox_publish(&r->worker->to_loop); /* it comes behind what was sent to the end before */
    event_loop_post(r->worker->loop, &call.post);
    while (sem_wait(&call.done) < 0) continue; /* a signal */
    sem_destroy(&call.done);
    return true;
}
