/* Devices and contexts, protection domains, asynchronous events. */
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include "base.h"

struct device {
    struct ibv_device ib;
    uint32_t index;
};

struct context {
    struct link link; /* of all contexts */
    pthread_mutex_t lock;
    struct link events;
    struct device *device;
    struct verbs_context verbs; /* its `context` must be last */
};

struct pd {
    struct ibv_pd ib;
    uint32_t id;
    _Atomic uint32_t users; /* regions, queue pairs, shared queues */
};

static inline struct context *to_context(struct ibv_context *ib) {
    return container_of(ib, struct context, verbs.context);
}
static inline struct pd *to_pd(struct ibv_pd *ib) {
    return (struct pd *)ib;
}

/* Starts the library in this process; idempotent. 0 or -errno. */
int device_start(void);
struct ibv_context *device_context(uint32_t index); /* the one the connection manager shares out; NULL and errno */
uint32_t device_count(void);

/* Objects belong to the process that made them; in a forked child they are dead. */
bool device_is_ours(const struct ibv_context *ib);

/* The connection manager's part in starting and forking (cm_id.c). */
void cm_start(void);
void cm_forget(void);

/* Queues an asynchronous event. `element`: the qp, cq or srq. */
void async_raise(struct ibv_context *ib, enum ibv_event_type type, void *element);
void async_purge(struct ibv_context *ib, void *element);
