/* remote_move.c: moves connections between workers, and between a worker and home. See remote.h. */
#include "lib/system/must.h"
#include "net/remote_private.h"
#include <stdatomic.h>

/* The end continues on a worker: the messages kept meanwhile follow. */
static void end_continue(struct remote *r, struct remote_end *end, struct remote_worker *worker) {
    struct remote_message *next;
    r->leaving = false;
    r->worker = worker;
    worker->count++;
    for (struct remote_message *message = r->kept; message; message = next) {
        next = (struct remote_message *)message->post.next;
        message->end = end;
        event_outbox_add(&worker->to_loop, &message->post);
    }
    r->kept = NULL;
    r->kept_end = &r->kept;
}

static void remote_move_enter(struct remote *r, struct remote_end *end, struct remote_worker *worker) {
    struct remote_message *message = remote_message_new(sizeof *message);
    end->worker = worker;
    message->kind = MESSAGE_ENTER;
    message->home = r;
    message->end = end;
    message->post.run = remote_at_end;
    event_outbox_add(&worker->to_loop, &message->post);
}

static void resume_end(struct event_deferred *deferred) {
    struct remote *r = container_of(deferred, struct remote, resume_end);
    struct remote_worker *to = r->end ? r->worker->ops->left(&r->conn) : r->worker; /* closed meanwhile: goes back */
    if (!to) return;
    struct remote_end *end = r->left;
    must(end && r->leaving);
    r->left = NULL;
    remote_move_enter(r, end, to);
    end_continue(r, end, to);
}

void remote_home_left(struct remote *r, const struct remote_message *message) {
    if (!message->number) {
        end_continue(r, message->end, r->worker);
        return;
    }
    r->left = message->end;
    event_loop_defer(r->conn.loop, &r->resume_end, resume_end);
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
    if (!remote_takes_output(r) || conn->state != CONN_OPEN || r->leaving || busy || !remote_can_leave(conn))
        return false;
    remote_send_command(r, MESSAGE_LEAVE, 0);
    must(r->worker->count > 0);
    r->leaving = true;
    r->worker->count--;
    return true;
}

struct connection *remote_take(struct connection *conn) {
    struct remote *r = remote_of(conn);
    struct remote_end *end = r->left;
    must(end); /* within left() */
    struct connection *real = end->conn;
    bool busy = r->kept || r->filling || r->sealed || conn->reading_paused || r->resume.heap_index;
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
    if (!conn_can_move(conn) || !conn->transport->leave(conn)) return NULL;
    struct opened_message *about = remote_halves_new(worker, conn);
    struct remote_end *end = about->message.end;
    struct remote *r = end->home;
    remote_home_init(r, about);
    r->conn.events = events;
    r->conn.owner = owner;
    r->conn.trusted = conn->trusted;
    r->conn.in_limit = conn->in_limit;
    r->conn.bytes_in = conn->bytes_in;
    r->conn.bytes_out = r->handed = r->shown_out = end->taken_out = conn->bytes_out;
    atomic_store_explicit(&end->sent, conn->bytes_out, memory_order_relaxed);
    remote_move_enter(r, end, worker);
    return &r->conn;
}
