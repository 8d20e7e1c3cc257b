/* remote_worker.c: the end of a remote connection, on the worker's thread, and workers. See remote.h. */
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "net/placement.h"
#include "net/remote_private.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

enum { DESCRIBE_US = 100 * 1000 };

/* --- Messages --- */

struct remote_message *remote_message_init(struct remote_message *message, size_t size) {
    memset(message, 0, sizeof *message);
    message->post.drop = remote_message_free;
    message->size = size;
    return message;
}

struct remote_message *remote_message_new(size_t size) {
    return remote_message_init(mem_alloc(size), size);
}

struct remote_message *remote_message_try_new(size_t size) {
    void *memory = mem_try_alloc(size);
    return memory ? remote_message_init(memory, size) : NULL;
}

void remote_message_free(struct event_post *post) {
    struct remote_message *message = (struct remote_message *)post;
    if (message->blob) blob_release(message->blob);
    if (message->placement) message->placement->ended(message->placement, -ECANCELED);
    mem_free(message);
}

void remote_message_drop(struct remote_message *message) {
    message->post.drop(&message->post);
}

static void send_home(struct remote_end *end, struct remote_message *message, enum message_kind kind) {
    message->kind = kind;
    message->home = end->home;
    message->end = end;
    message->post.run = remote_at_home;
    event_outbox_add(&end->worker->to_home, &message->post);
}

/* --- The end --- */

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

static _Atomic size_t growth_step;

/* Before the messages that the end makes of this input: home may close the connection instead of executing them. */
static void report_growth(struct remote_end *end, size_t memory) {
    size_t step = atomic_load_explicit(&growth_step, memory_order_relaxed);
    if (__builtin_expect(!step, 1)) return;
    bool grown = memory >= end->reported_memory + step;
    if (grown || memory < end->reported_memory / 2) end->reported_memory = memory;
    if (grown) send_home(end, remote_message_new(sizeof(struct remote_message)), MESSAGE_GROWN);
}

/* Returns the memory that the connection holds. */
static size_t note_figures(struct remote_end *end) {
    const struct connection *conn = end->conn;
    size_t waiting = end->worker->ops->waiting ? end->worker->ops->waiting(end) : conn->in_len;
    size_t input = 0, output = 0, all = conn_memory(conn, &input, &output);
    if (conn->in_len > input) all += conn->in_len - input; /* still in the loop's buffer */
    atomic_store_explicit(&end->memory, all + end->held, memory_order_relaxed);
    atomic_store_explicit(&end->spare, input > conn->in_len ? input - conn->in_len : 0, memory_order_relaxed);
    atomic_store_explicit(&end->memory_out, output, memory_order_relaxed);
    size_t pending = conn_pending(conn);
    atomic_store_explicit(&end->sent, end->taken_out > pending ? end->taken_out - pending : 0, memory_order_relaxed);
    atomic_store_explicit(&end->queued, pending, memory_order_relaxed);
    atomic_store_explicit(&end->waiting, waiting, memory_order_relaxed);
    return all + end->held;
}

static void note(struct remote_end *end) {
    report_growth(end, note_figures(end));
    /* Writing the text takes longer than a request, so it is done later. */
    struct remote_worker *worker = end->worker;
    if (!end->described[0] || list_is_linked(&end->stale_link)) return; /* [0]: this thread writes it */
    list_append(&worker->stale, &end->stale_link);
    if (!worker->describe.heap_index) event_timer_set(worker->loop, &worker->describe, DESCRIBE_US, describe_stale);
}

static void count(_Atomic uint64_t *counter) { /* that one thread writes */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void report_drained(struct remote_end *end) {
    if (!end->drain_asked || conn_pending(end->conn)) return;
    end->drain_asked = false;
    send_home(end, remote_message_new(sizeof(struct remote_message)), MESSAGE_DRAINED);
}

static void set_reading(struct remote_end *end) {
    bool waits = end->full || end->paused || (end->finished && !end->conn->hung_up);
    if (!end->ended) conn_set_reading(end->conn, !waits);
}

/* Pauses reading while too much is at home. */
static void bound_reading(struct remote_end *end) {
    size_t limit = end->full ? REMOTE_AT_HOME_MAX / 2 : REMOTE_AT_HOME_MAX;
    bool full = end->at_home >= limit && !end->reads_on && !end->conn->hung_up;
    if (full == end->full) return;
    end->full = full;
    set_reading(end);
}

void remote_end_pause(struct remote_end *end, bool pause) {
    end->paused = pause;
    set_reading(end);
}

void remote_end_finish(struct remote_end *end) {
    end->finished = true;
    set_reading(end);
}

void remote_send_input(struct remote_end *end, struct remote_message *message) {
    end->at_home += message->size;
    /* What leaves the end counts as on its way until home has the message. Home may see it for a moment in neither, but
     * not in both: that could close a client within the limit. */
    size_t memory = atomic_load_explicit(&end->memory, memory_order_relaxed);
    atomic_store_explicit(&end->memory, memory > message->size ? memory - message->size : 0, memory_order_relaxed);
    uint64_t sent_home = atomic_load_explicit(&end->sent_home, memory_order_relaxed) + message->size;
    atomic_store_explicit(&end->sent_home, sent_home, memory_order_release);
    message->sent = atomic_load_explicit(&end->sent, memory_order_relaxed);
    send_home(end, message, MESSAGE_INPUT);
    bound_reading(end);
}

static void end_readable(struct connection *conn) {
    struct remote_end *end = conn->owner;
    count(&end->worker->reads);
    if (__builtin_expect(end->finished, 0))
        conn_consume(conn, conn->in_len);
    else
        end->worker->ops->readable(end);
    note(end);
}

/* Home learns of the end only behind the input before it. What the peer's buffer holds is received although much is at
 * home. If it has to wait for an answer that home will never give, because it closes the connection after its replies,
 * DRAINED is what home waits for. */
static void end_hung_up(struct connection *conn) {
    struct remote_end *end = conn->owner;
    bound_reading(end);
    if (end->finished) conn_consume(conn, conn->in_len);
    set_reading(end);
    report_drained(end); /* the output is dropped */
}

static void end_drained(struct connection *conn) {
    struct remote_end *end = conn->owner;
    note(end);
    report_drained(end);
}

static void end_closed(struct connection *conn) {
    struct remote_end *end = conn->owner;
    end->ended = true;
    const char *text = conn_error_text(conn);
    size_t len = strlen(text);
    struct remote_message *message = remote_message_new(sizeof *message + len + 1);
    char *copy = (char *)(message + 1);
    memcpy(copy, text, len + 1);
    message->bytes = copy;
    message->number = conn->error;
    send_home(end, message, MESSAGE_ENDED);
    report_drained(end);
}

static const struct connection_events end_events = {
    .readable = end_readable, .drained = end_drained, .closed = end_closed, .hung_up = end_hung_up};

static const char worker_key;

static char *names_copy(const char *names) {
    if (!names) return NULL;
    size_t len = 0;
    while (names[len]) len += strlen(names + len) + 1;
    char *copy = mem_alloc(len + 1);
    memcpy(copy, names, len + 1);
    return copy;
}

static void about_drop(struct event_post *post) {
    mem_free(((struct opened_message *)post)->names);
    mem_free(((struct opened_message *)post)->certificate);
    remote_message_free(post);
}

struct opened_message *remote_halves_new(struct remote_worker *worker, struct connection *conn) {
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
    about->peer_known = conn_address(conn, true, &about->peer);
    about->own_known = conn_address(conn, false, &about->own);
    about->is_local = conn_is_local(conn);
    about->fd = conn_fd(conn);
    about->names = names_copy(conn_peer_names(conn));
    const char *certificate = conn_peer_certificate(conn);
    about->certificate = certificate ? mem_strdup(certificate) : NULL;
    about->message.post.drop = about_drop;
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
    struct opened_message *about = remote_halves_new(worker, conn);
    struct remote_end *end = about->message.end;
    end_describe(end);
    end->reported_memory = note_figures(end); /* home knows of the connection only by the next message */
    send_home(end, &about->message, MESSAGE_OPENED);
}

static void flush_end(struct remote_end *end) {
    list_remove(&end->worker->dirty, &end->dirty_link);
    count(&end->worker->writes);
    conn_flush(end->conn);
    note(end);
    report_drained(end);
}

static void flush_dirty(struct remote_worker *worker) {
    while (worker->dirty.len) flush_end(container_of(list_first(&worker->dirty), struct remote_end, dirty_link));
}

static void end_leave(struct remote_end *end, struct remote_message *message) {
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

static void end_close(struct remote_end *end, struct remote_message *message) {
    struct remote_worker *worker = end->worker;
    if (list_is_linked(&end->dirty_link)) list_remove(&worker->dirty, &end->dirty_link);
    if (list_is_linked(&end->stale_link)) list_remove(&worker->stale, &end->stale_link);
    end->conn->drops_output = message->number;
    if (!end->conn->drops_output) conn_flush(end->conn);
    end->conn->owner = NULL;
    conn_close(end->conn);
    send_home(end, message, MESSAGE_GONE);
    worker->ops->free(end);
}

static void take_output(struct remote_end *end, struct remote_message *message) {
    uint64_t taken = atomic_load_explicit(&end->worker->taken, memory_order_relaxed);
    atomic_store_explicit(&end->worker->taken, taken + message->size, memory_order_relaxed);
    struct output *out = &end->conn->out;
    size_t len = message->reply_len;
    if (len) output_write(out, (struct slice){message->reply, len});
    if (message->blob) {
        len += message->blob->len;
        output_write_blob(out, message->blob);
    }
    bool places = message->placement != NULL;
    if (places) output_place(out, message->placement);
    message->placement = NULL;
    if (!len && !places) return;
    end->taken_out += len;
    if (!list_is_linked(&end->dirty_link)) list_append(&end->worker->dirty, &end->dirty_link);
}

static void take_back(struct remote_end *end, struct remote_message *message) {
    must_within(message->size, end->at_home);
    end->at_home -= message->size;
    conn_set_trusted(end->conn, message->trusted);
    bound_reading(end);
    if (!end->ended && end->worker->ops->returned) end->worker->ops->returned(end, message);
}

void remote_at_end(struct event_post *post) {
    struct remote_message *message = (struct remote_message *)post;
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
    case MESSAGE_KEEPALIVE: conn_set_keepalive(end->conn, message->number); break;
    case MESSAGE_NODELAY: conn_set_nodelay(end->conn, message->number); break;
    case MESSAGE_ASK_DRAINED:
        end->drain_asked = true;
        if (!list_is_linked(&end->dirty_link)) list_append(&end->worker->dirty, &end->dirty_link);
        break;
    case MESSAGE_LEAVE: end_leave(end, message); return;
    case MESSAGE_ENTER: end_enter(end); break;
    case MESSAGE_CLOSE: end_close(end, message); return;
    default: must_hold(false, "message %d is for home", message->kind);
    }
    remote_message_drop(message);
}

/* --- Workers --- */

void remote_report_growth(size_t step) {
    atomic_store_explicit(&growth_step, step, memory_order_relaxed);
}

static void remote_worker_before_wait(void *context) {
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
    event_loop_set_hooks(loop, &(struct event_hooks){.before_wait = remote_worker_before_wait, .context = worker});
    worker->attachment = (struct event_attachment){.key = &worker_key, .free = worker_free};
    event_loop_attach(loop, &worker->attachment);
}

void remote_worker_flush(struct remote_worker *worker) {
    flush_dirty(worker);
}

void remote_worker_stopped(struct remote_worker *worker) {
    worker->stopped = true;
}
