/* Event channels and events. A channel's descriptor is an eventfd in semaphore mode that counts the queued
 * events, so it can be polled, edge-triggered or not, and made non-blocking by the program. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cm.h"
#include "fault.h"
#include "stats.h"

struct cm_channel *cm_channel_create(void) {
    struct cm_channel *ch = calloc(1, sizeof(*ch));
    if (!ch) return NULL;
    list_init(&ch->events);
    ch->ib.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    if (ch->ib.fd < 0) {
        free(ch);
        return NULL;
    }
    stats_inc(cm_channels);
    return ch;
}

SR_EXPORT struct rdma_event_channel *rdma_create_event_channel(void) {
    int err = -device_start();
    if (!err) err = fault_errno(FAULT_CREATE_EVENT_CHANNEL);
    if (!err && !device_count()) err = ENODEV;
    struct cm_channel *ch = err ? NULL : cm_channel_create();
    if (err) errno = err;
    return ch ? &ch->ib : NULL;
}

SR_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel) {
    struct cm_channel *ch = (struct cm_channel *)channel;
    close(channel->fd);
    stats_dec(cm_channels);
    free(ch);
}

static struct cm_channel *channel_of(struct cm_id *c) {
    return (struct cm_channel *)c->id.channel;
}

static void enqueue(struct cm_event *e) {
    struct cm_channel *ch = channel_of(e->owner);
    list_append(&ch->events, &e->link);
    uint64_t one = 1;
    ssize_t n = write(ch->ib.fd, &one, sizeof(one));
    (void)n;
}

/* A delayed event. Its owner may be gone, but then it has been taken out of `late` and freed. */
static struct link late = {&late, &late};

static void late_event(struct timer *timer) {
    cm_lock();
    for (struct link *l = late.next; l != &late; l = l->next) {
        struct cm_event *e = container_of(l, struct cm_event, link);
        if (&e->timer != timer) continue;
        list_remove(l);
        enqueue(e);
        break;
    }
    cm_unlock();
}

static void enqueue_late(struct cm_event *e, uint64_t ns) {
    list_append(&late, &e->link);
    e->timer.fire = late_event;
    timer_set(&e->timer, now_ns() + ns);
}

/* As if the device were pulled out: each identifier on it and its context get an event, and work on until their program
 * lets go of them, like on a card. */
struct removal {
    struct timer timer;
    struct ibv_context *verbs;
};

static void tell_removal(struct cm_id *c, void *arg) {
    struct removal *removal = arg;
    struct cm_event *e = c->destroyed || c->id.verbs != removal->verbs ? NULL : calloc(1, sizeof(*e));
    if (!e) return;
    e->owner = c;
    e->ib.id = &c->id;
    e->ib.event = RDMA_CM_EVENT_DEVICE_REMOVAL;
    enqueue(e);
}

static void removed(struct timer *timer) {
    struct removal *removal = container_of(timer, struct removal, timer);
    cm_lock();
    async_raise(removal->verbs, IBV_EVENT_DEVICE_FATAL, NULL);
    cm_each(tell_removal, removal);
    cm_unlock();
    free(removal);
}

static void remove_later(struct cm_id *c, uint64_t ns) {
    struct removal *removal = calloc(1, sizeof(*removal));
    if (!removal) return;
    *removal = (struct removal){.timer.fire = removed, .verbs = c->id.verbs};
    timer_set(&removal->timer, now_ns() + ns);
}

static void enqueue_under_faults(struct cm_event *e) {
    struct fault f;
    bool hit = fault_hit(FAULT_EVENT, rdma_event_str(e->ib.event), &f);
    if (hit && f.action == ACT_DELAY) {
        enqueue_late(e, f.value);
        return;
    }
    enqueue(e);
    if (hit && f.action == ACT_REMOVE && e->owner->id.verbs) remove_later(e->owner, f.value * NS_PER_US);
}

/* Cards report the whole field, padded with zeros, whatever was sent. */
static uint8_t private_field(enum rdma_cm_event_type type) {
    switch (type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST: return REQ_PRIVATE_MAX;
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_CONNECT_RESPONSE: return REP_PRIVATE_MAX;
    case RDMA_CM_EVENT_REJECTED: return REJ_PRIVATE_MAX;
    default: return 0;
    }
}

void cm_raise(struct cm_id *c, enum rdma_cm_event_type type, int status, const struct cm_body *body,
              struct cm_id *listener) {
    if (c->destroyed) return;
    struct cm_event *e = calloc(1, sizeof(*e));
    if (!e) return;
    e->owner = listener ? listener : c;
    e->ib.id = &c->id;
    e->ib.listen_id = listener ? &listener->id : NULL;
    e->ib.event = type;
    e->ib.status = status;
    if (body) {
        struct rdma_conn_param *p = &e->ib.param.conn;
        memcpy(e->private_data, body->private_data, body->private_len);
        p->private_data_len = private_field(type);
        p->private_data = p->private_data_len ? e->private_data : NULL;
        p->responder_resources = body->initiator_depth; /* theirs to initiate is ours to respond to */
        p->initiator_depth = body->responder_resources;
        p->flow_control = body->flow_control;
        p->retry_count = body->retry_count;
        p->rnr_retry_count = body->rnr_retry_count;
        p->srq = body->srq;
        p->qp_num = c->remote_qp.qpn;
        e->answer = type == RDMA_CM_EVENT_CONNECT_RESPONSE;
    }
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST && listener) listener->queued++;
    enqueue_under_faults(e);
}

static void drop_from(struct link *list, struct cm_id *c) {
    for (struct link *l = list->next, *next; l != list; l = next) {
        next = l->next;
        struct cm_event *e = container_of(l, struct cm_event, link);
        if (e->owner != c && e->ib.id != &c->id) continue;
        if (e->owner != c && e->ib.event == RDMA_CM_EVENT_CONNECT_REQUEST) e->owner->queued--;
        timer_cancel(&e->timer);
        list_remove(l);
        /* Nobody has seen this connection: it is turned down with its listener. */
        if (e->owner == c && e->ib.listen_id == &c->id) {
            struct cm_id *child = to_cm(e->ib.id);
            cm_hang_up(child);
            child->destroyed = true;
            stats_dec(cm_ids);
            cm_maybe_free(child);
        }
        free(e);
    }
}

void cm_drop_events(struct cm_id *c) {
    drop_from(&channel_of(c)->events, c);
    drop_from(&late, c);
}

static struct cm_event *take_event(struct cm_channel *ch) {
    struct cm_event *e = NULL;
    cm_lock();
    struct link *l = list_pop(&ch->events);
    if (l) {
        e = container_of(l, struct cm_event, link);
        e->owner->unacked++;
        if (e->ib.event == RDMA_CM_EVENT_CONNECT_REQUEST) e->owner->queued--;
        stats_inc(cm_events_unacked);
    }
    cm_unlock();
    return e;
}

/* As in librdmacm the program's thread moves the queue pair of the active side and confirms, when it takes
 * the answer. */
static void finish_answer(struct cm_event *e) {
    struct cm_id *c = e->owner;
    e->answer = false;
    if (!c->id.qp) return; /* the program does it, and calls rdma_establish */
    int err = cm_complete_answer(c);
    e->ib.event = err ? RDMA_CM_EVENT_CONNECT_ERROR : RDMA_CM_EVENT_ESTABLISHED;
    e->ib.status = -err;
}

SR_EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
    struct cm_channel *ch = (struct cm_channel *)channel;
    if (!event || !channel) return fail(EINVAL);
    for (;;) {
        uint64_t one;
        if (read(channel->fd, &one, sizeof(one)) != sizeof(one)) return -1;
        struct cm_event *e = take_event(ch);
        if (!e) continue; /* its identifier has been destroyed meanwhile */
        if (e->answer) finish_answer(e);
        if (e->ib.listen_id && to_cm(e->ib.listen_id)->sync) rdma_migrate_id(e->ib.id, NULL);
        *event = &e->ib;
        return 0;
    }
}

SR_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event) {
    if (!event) return fail(EINVAL);
    struct cm_event *e = container_of(event, struct cm_event, ib);
    cm_lock();
    e->owner->unacked--;
    stats_dec(cm_events_unacked);
    cm_maybe_free(e->owner);
    cm_unlock();
    free(e);
    return 0;
}

int cm_wait(struct cm_id *c) {
    if (!c->sync) return 0;
    if (c->id.event) {
        rdma_ack_cm_event(c->id.event);
        c->id.event = NULL;
    }
    if (rdma_get_cm_event(c->id.channel, &c->id.event)) return -1;
    const struct rdma_cm_event *e = c->id.event;
    if (!e->status) return 0;
    return fail(e->event == RDMA_CM_EVENT_REJECTED ? ECONNREFUSED : e->status < 0 ? -e->status : ECONNABORTED);
}
