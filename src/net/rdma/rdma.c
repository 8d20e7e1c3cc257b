/* rdma.c: the table of the transport, the state of its loops, and what it shows. See rdma.h. */
#include "net/rdma/rdma.h"
#include "net/rdma/cm.h"
#include "net/rdma/lifetime.h"
#include "net/rdma/receive.h"
#include "net/rdma/send.h"
#include "net/rdma/untrusted.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* --- Settings and counters of the process --- */

static pthread_mutex_t settings_lock = PTHREAD_MUTEX_INITIALIZER;

void rdma_settings_changed(void) {
    pthread_mutex_lock(&settings_lock);
    rdma_values_changed();
    rdma_send_settings_changed();
    pthread_mutex_unlock(&settings_lock);
}

const struct rdma_stats *rdma_stats(void) {
    static _Thread_local struct rdma_stats sum;
    rdma_loops_sum(&sum);
    return &sum;
}

/* --- The state of a loop --- */

static const char loop_key;

static void loop_free(struct event_attachment *attachment) {
    struct rdma_loop *owner = container_of(attachment, struct rdma_loop, attachment);
    if (!rdma_usable()) return; /* all of it belongs to the parent */
    while (owner->listeners.len)
        listener_close(&container_of(list_first(&owner->listeners), struct rdma_listener, link)->listener);
    list_each_entry(&owner->connections, struct rdma_connection, link, c) {
        c->conn.state = CONN_CLOSED;
        rdma_connection_finish(c);
    }
    list_each(&owner->devices, link) container_of(link, struct rdma_device, link)->removed =
        false;                       /* all devices are freed below */
    while (owner->connections.len) { /* free their memory before the devices */
        struct rdma_connection *c = container_of(list_first(&owner->connections), struct rdma_connection, link);
        rdma_connection_release(c);
    }
    rdma_loop_free(owner);
}

/* The RDMA state of the loop, created by the first call. */
static struct rdma_loop *loop_of(struct event_loop *loop) {
    struct event_attachment *attachment = event_loop_attachment(loop, &loop_key);
    if (attachment) return container_of(attachment, struct rdma_loop, attachment);
    struct rdma_loop *owner = rdma_loop_new(loop, &transport_rdma);
    owner->attachment.key = &loop_key;
    owner->attachment.free = loop_free;
    event_loop_attach(loop, &owner->attachment);
    pthread_mutex_lock(&settings_lock);
    rdma_values_start();
    rdma_send_settings_changed();
    pthread_mutex_unlock(&settings_lock);
    return owner;
}

void rdma_trim(struct event_loop *loop) {
    rdma_loops_trim(loop_of(loop));
}

/* Connections placed on the loop of another thread need its state. */
static bool join(struct event_loop *loop) {
    char error[300];
    struct rdma_loop *owner = loop_of(loop);
    rdma_loop_joined(owner);
    return rdma_cm_open(owner, error, sizeof error) == 0;
}

static struct connection *connect_from(struct event_loop *loop, const struct connect_options *options) {
    return rdma_connect_start(loop_of(loop), options);
}
static struct listener *listen_on(struct event_loop *loop, const struct listen_options *options, char *error,
                                  size_t error_size) {
    return rdma_listen_start(loop_of(loop), options, error, error_size);
}

/* --- What the transport offers --- */

static void rdma_consume(struct connection *conn, size_t len) {
    rdma_receive_consume(rdma_of(conn), len);
}
static void rdma_set_reading(struct connection *conn) {
    if (conn->state == CONN_OPEN) rdma_connection_ready(rdma_of(conn));
}
static void rdma_trim_input(struct connection *conn) {
    struct rdma_connection *c = rdma_of(conn);
    if (!c->receive.showing) input_buffer_trim(&c->receive.input, conn);
}
bool rdma_discard(struct connection *conn, size_t len) {
    if (conn->transport != &transport_rdma || conn->in_len || conn->sink) return false;
    rdma_of(conn)->receive.discard = len;
    rdma_set_reading(conn);
    return true;
}
void rdma_find_by_completions(struct connection *conn) {
    if (conn->transport == &transport_rdma) rdma_of(conn)->polled.excluded = true;
}
static void rdma_set_trusted(struct connection *conn) {
    if (conn->trusted) rdma_untrusted_leave(rdma_of(conn));
}
static void rdma_flush(struct connection *conn) {
    rdma_send_flush(rdma_of(conn));
}
static size_t rdma_pending(const struct connection *conn) {
    return rdma_send_pending(rdma_of(conn));
}

/* --- For display --- */

static int rdma_fd(const struct connection *conn) {
    return -1;
}
static const char *rdma_error_text(const struct connection *conn) {
    const struct rdma_connection *c = rdma_of(conn);
    if (c->ending.note) return c->ending.note;
    return conn->error ? strerror(conn->error) : "Connection closed by the peer";
}

static size_t rdma_memory(const struct connection *conn, size_t *input, size_t *output) {
    const struct rdma_connection *c = rdma_of(conn);
    size_t in = (c->receive.rx ? c->receive.rx->capacity : 0) + (c->receive.next ? c->receive.next->capacity : 0) +
                (c->receive.spare ? c->receive.spare->capacity : 0) + c->receive.input.own_size;
    size_t out = rdma_send_memory(c);
    if (input) *input = in;
    if (output) *output = out;
    return sizeof *c + in + out;
}

static size_t rdma_shared(const struct connection *conn) {
    return rdma_of(conn)->send.output.queued_blobs;
}

static void rdma_describe(const struct connection *conn, char *text, size_t size) {
    const struct rdma_connection *c = rdma_of(conn);
    static const char *const features[] = {"none", "ring", "polled", "ring,polled"};
    unsigned which = (c->features & RDMA_FEATURE_RING ? 1 : 0) + (c->features & RDMA_FEATURE_POLLED ? 2 : 0);
    snprintf(text, size, "device=%s qp=%u rx=%u rx-free=%u tx=%u tx-free=%u queued=%zu rdma-features=%s",
             c->qp.device ? c->qp.device->name : "?", c->qp.verbs ? c->qp.number : 0,
             c->receive.rx ? c->receive.rx->size : 0, c->receive.rx ? c->receive.writable : 0, c->send.peer_size,
             c->send.window, rdma_send_pending(c), features[which]);
}

const struct transport transport_rdma = {
    .name = "rdma",
    .connect = connect_from,
    .listen = listen_on,
    .join = join,
    .consume = rdma_consume,
    .set_reading = rdma_set_reading,
    .set_trusted = rdma_set_trusted,
    .flush = rdma_flush,
    .pending = rdma_pending,
    .close = rdma_connection_close,
    .address = rdma_connection_address,
    .fd = rdma_fd,
    .is_local = rdma_connection_is_local,
    .error_text = rdma_error_text,
    .memory = rdma_memory,
    .trim = rdma_trim_input,
    .shared = rdma_shared,
    .describe = rdma_describe,
};
