/* valkeyrdma_hiredis.h: hiredis over RDMA. Connections of hiredis whose bytes libvalkeyrdma carries, by the function
 * table that hiredis has from 1.0 on. Needs hiredis' headers; link with hiredis and libvalkeyrdma.
 *
 *     redisContext *c = valkeyrdma_hiredis_connect("192.0.2.1", 6379, NULL, 5000, error, sizeof error);
 *     redisReply *reply = redisCommand(c, "GET key");
 *     redisFree(c);
 *
 *     redisAsyncContext *ac = valkeyrdma_hiredis_async("192.0.2.1", 6379, NULL, 5000, error, sizeof error);
 *     redisLibuvAttach(ac, loop);                  (or the adapter of another event loop)
 *     valkeyrdma_hiredis_attached(ac);             (after it, and before the first command)
 *     redisAsyncCommand(ac, callback, data, "GET key");
 *
 * What differs from hiredis over TCP
 *   The descriptor of the context is that of libvalkeyrdma: wait for reading only. The adapter of an event loop never
 *   waits for writing; commands are sent when the loop finds the descriptor readable, which it is after a command.
 *   Timeouts of commands are those that valkeyrdma_hiredis_set_timeout() sets. redisSetTimeout(), redisReconnect(),
 *   redisEnableKeepAlive() and TLS of hiredis need a socket and fail.
 *   A connection that cannot be made is reported to the connect callback, if there is one, and then, with the reason in
 *   `errstr`, to the disconnect callback. */
#ifndef VALKEYRDMA_HIREDIS_H
#define VALKEYRDMA_HIREDIS_H
#include <errno.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valkeyrdma.h>

struct valkeyrdma_hiredis {
    struct valkeyrdma *c;
    struct valkeyrdma_context *context;
    redisAsyncContext *ac; /* NULL: blocking */
    int timeout_ms;        /* of a blocking read or write */
    int decided;           /* the attempt to connect has ended */
    int wants_write;
    int running; /* within valkeyrdma_hiredis_run() */
    int gone;    /* freed by a callback meanwhile */
    /* The adapter of the event loop. */
    void *data;
    void (*add_read)(void *);
    void (*cleanup)(void *);
    void (*schedule_timer)(void *, struct timeval);
};

static inline struct valkeyrdma_hiredis *valkeyrdma_hiredis_of(const redisContext *c) {
    return (struct valkeyrdma_hiredis *)c->privctx;
}

/* --- The function table --- */

static inline ssize_t valkeyrdma_hiredis_failed(redisContext *c, ssize_t result) {
    const char *text = valkeyrdma_error_text(valkeyrdma_hiredis_of(c)->c);
    if (c->err) return -1;
    c->err = result == 0 ? REDIS_ERR_EOF : result == -ETIMEDOUT ? REDIS_ERR_TIMEOUT : REDIS_ERR_IO;
    if (result == 0)
        text = "Server closed the connection";
    else if (!*text)
        text = strerror((int)-result);
    snprintf(c->errstr, sizeof c->errstr, "%s", text);
    errno = (int)-result;
    return -1;
}

static inline ssize_t valkeyrdma_hiredis_read(redisContext *c, char *buffer, size_t size) {
    struct valkeyrdma_hiredis *a = valkeyrdma_hiredis_of(c);
    ssize_t result = valkeyrdma_recv(a->c, buffer, size, c->flags & REDIS_BLOCK ? a->timeout_ms : 0);
    if (result > 0) return result;
    if (result == -EAGAIN || result == -EINTR) return 0;
    return valkeyrdma_hiredis_failed(c, result);
}

static inline ssize_t valkeyrdma_hiredis_write(redisContext *c) {
    struct valkeyrdma_hiredis *a = valkeyrdma_hiredis_of(c);
    ssize_t result = valkeyrdma_send(a->c, c->obuf, sdslen(c->obuf), c->flags & REDIS_BLOCK ? a->timeout_ms : 0);
    if (result >= 0) return result;
    if (result == -EAGAIN || result == -EINTR) return 0;
    return valkeyrdma_hiredis_failed(c, result);
}

static inline void valkeyrdma_hiredis_close(redisContext *c) {
    c->fd = REDIS_INVALID_FD; /* it is the library's */
}

static inline void valkeyrdma_hiredis_free(void *privctx) {
    struct valkeyrdma_hiredis *a = (struct valkeyrdma_hiredis *)privctx;
    a->gone = 1;
    if (a->running) return;
    valkeyrdma_close(a->c);
    free(a);
}

static inline void valkeyrdma_hiredis_connected(struct valkeyrdma_hiredis *a, int result) {
    redisAsyncContext *ac = a->ac;
    a->decided = 1;
    if (ac->onConnectNC)
        ac->onConnectNC(ac, result == 0 ? REDIS_OK : REDIS_ERR);
    else if (ac->onConnect)
        ac->onConnect(ac, result == 0 ? REDIS_OK : REDIS_ERR);
}

/* The descriptor is readable. A callback may free the context at any call. */
static inline void valkeyrdma_hiredis_run(redisAsyncContext *ac) {
    struct valkeyrdma_hiredis *a = valkeyrdma_hiredis_of(&ac->c);
    int result = 0;
    a->running++;
    valkeyrdma_context_process(a->context);
    while (valkeyrdma_context_next(a->context)) {
    }
    if (!a->decided) {
        result = valkeyrdma_connect_finish(a->c, 0);
        if (result != -EAGAIN && result != -EINTR) valkeyrdma_hiredis_connected(a, result);
    }
    if (a->decided && !a->gone && a->wants_write) redisAsyncWrite(ac);
    if (a->decided && !a->gone) redisAsyncRead(ac);
    a->running--;
    if (a->gone) {
        if (!a->running) valkeyrdma_hiredis_free(a);
        return;
    }
    /* What is left makes the descriptor readable again. */
    int state, changed = valkeyrdma_context_process(a->context) == 1;
    state = valkeyrdma_state(a->c);
    if (changed || state & VALKEYRDMA_READABLE || (a->wants_write && state & VALKEYRDMA_WRITABLE))
        valkeyrdma_context_wake(a->context);
}

static inline const redisContextFuncs *valkeyrdma_hiredis_table(void) {
    static const redisContextFuncs table = {.close = valkeyrdma_hiredis_close,
                                            .free_privctx = valkeyrdma_hiredis_free,
                                            .async_read = valkeyrdma_hiredis_run,
                                            .async_write = valkeyrdma_hiredis_run,
                                            .read = valkeyrdma_hiredis_read,
                                            .write = valkeyrdma_hiredis_write};
    return &table;
}

/* --- Connecting --- */

static inline struct valkeyrdma_hiredis *valkeyrdma_hiredis_new(struct valkeyrdma *c) {
    struct valkeyrdma_hiredis *a = c ? (struct valkeyrdma_hiredis *)calloc(1, sizeof *a) : NULL;
    if (!a) {
        valkeyrdma_close(c);
        return NULL;
    }
    a->c = c;
    a->context = valkeyrdma_context_of(c);
    a->timeout_ms = -1;
    return a;
}

static inline void *valkeyrdma_hiredis_take(struct valkeyrdma_hiredis *a, redisContext *c, char *error, size_t size) {
    if (c && !c->err) {
        c->privctx = a;
        c->funcs = valkeyrdma_hiredis_table();
        return c;
    }
    if (error && size) snprintf(error, size, "%s", c ? c->errstr : "out of memory");
    valkeyrdma_hiredis_free(a);
    return NULL;
}

/* Connects and waits until the connection is open. As valkeyrdma_connect(): NULL, and the reason in `error`. */
static inline redisContext *valkeyrdma_hiredis_connect(const char *host, int port,
                                                       const struct valkeyrdma_options *options, int timeout_ms,
                                                       char *error, size_t error_size) {
    struct valkeyrdma_hiredis *a =
        valkeyrdma_hiredis_new(valkeyrdma_connect(NULL, host, port, options, timeout_ms, error, error_size));
    if (!a) return NULL;
    redisContext *c = redisConnectFd(valkeyrdma_fd(a->c));
    if (valkeyrdma_hiredis_take(a, c, error, error_size)) return c;
    if (c) c->fd = REDIS_INVALID_FD;
    redisFree(c);
    return NULL;
}

/* For blocking commands; -1, the default: they wait for ever. */
static inline void valkeyrdma_hiredis_set_timeout(redisContext *c, int timeout_ms) {
    valkeyrdma_hiredis_of(c)->timeout_ms = timeout_ms;
}

/* Begins to connect. Commands may be queued at once. */
static inline redisAsyncContext *valkeyrdma_hiredis_async(const char *host, int port,
                                                          const struct valkeyrdma_options *options, int timeout_ms,
                                                          char *error, size_t error_size) {
    struct valkeyrdma_hiredis *a =
        valkeyrdma_hiredis_new(valkeyrdma_connect_start(NULL, host, port, options, timeout_ms, error, error_size));
    if (!a) return NULL;
    redisOptions how;
    memset(&how, 0, sizeof how);
    how.type = REDIS_CONN_USERFD;
    how.endpoint.fd = valkeyrdma_fd(a->c);
    redisAsyncContext *ac = redisAsyncConnectWithOptions(&how);
    a->ac = ac;
    if (valkeyrdma_hiredis_take(a, ac ? &ac->c : NULL, error, error_size)) {
        ac->c.flags |= REDIS_CONNECTED; /* or it would ask the socket; valkeyrdma_hiredis_run() knows */
        return ac;
    }
    if (ac) ac->c.fd = REDIS_INVALID_FD;
    if (ac) redisAsyncFree(ac);
    return NULL;
}

/* --- The event loop's adapter, called with what it does not know --- */

static inline void valkeyrdma_hiredis_add_read(void *data) {
    struct valkeyrdma_hiredis *a = (struct valkeyrdma_hiredis *)data;
    a->add_read(a->data);
}
static inline void valkeyrdma_hiredis_del_read(void *data) {
    (void)data; /* output needs the descriptor, too */
}
static inline void valkeyrdma_hiredis_add_write(void *data) {
    struct valkeyrdma_hiredis *a = (struct valkeyrdma_hiredis *)data;
    a->wants_write = 1;
    if (a->running) return;
    a->add_read(a->data);
    valkeyrdma_context_wake(a->context);
}
static inline void valkeyrdma_hiredis_del_write(void *data) {
    ((struct valkeyrdma_hiredis *)data)->wants_write = 0;
}
static inline void valkeyrdma_hiredis_cleanup(void *data) {
    struct valkeyrdma_hiredis *a = (struct valkeyrdma_hiredis *)data;
    if (a->cleanup) a->cleanup(a->data);
}
static inline void valkeyrdma_hiredis_timer(void *data, struct timeval time) {
    struct valkeyrdma_hiredis *a = (struct valkeyrdma_hiredis *)data;
    if (a->schedule_timer) a->schedule_timer(a->data, time);
}

/* Call it once, after the attach function of the adapter. */
static inline void valkeyrdma_hiredis_attached(redisAsyncContext *ac) {
    struct valkeyrdma_hiredis *a = valkeyrdma_hiredis_of(&ac->c);
    a->data = ac->ev.data;
    a->add_read = ac->ev.addRead;
    a->cleanup = ac->ev.cleanup;
    a->schedule_timer = ac->ev.scheduleTimer;
    ac->ev.data = a;
    ac->ev.addRead = valkeyrdma_hiredis_add_read;
    ac->ev.delRead = valkeyrdma_hiredis_del_read;
    ac->ev.addWrite = valkeyrdma_hiredis_add_write;
    ac->ev.delWrite = valkeyrdma_hiredis_del_write;
    ac->ev.cleanup = valkeyrdma_hiredis_cleanup;
    ac->ev.scheduleTimer = valkeyrdma_hiredis_timer;
    a->add_read(a->data);
    valkeyrdma_context_wake(a->context);
}
#endif
