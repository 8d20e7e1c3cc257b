/* Peers, links and front doors; see peer.h. All reading happens on the progress thread. */
#define _GNU_SOURCE
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fault.h"
#include "stats.h"

#define CACHED_NAMES 64
#define DIAL_RETRIES 2000 /* a full backlog is tried again after a millisecond */

enum conn_state { CONN_GREETED_BY, CONN_DIALLING, CONN_UP };

struct out_msg {
    struct link link;
    int fd;
    struct message msg;
};

struct conn {
    struct watch watch;
    struct link link;
    enum conn_state state;
    struct peer *peer; /* holds a reference when UP */
    struct dial *dial;
    struct link out; /* under peer->lock */
};

struct self_msg {
    struct task task;
    int fd;
    struct message msg;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the lists and the cache */
static pthread_mutex_t door_lock = PTHREAD_MUTEX_INITIALIZER;
static struct link peers, conns, doors;
static struct peer *self;
static message_handler *handlers[32];
static void (*death_hooks[8])(struct peer *);
static struct cached_name {
    char name[64];
    struct peer *peer;
} cache[CACHED_NAMES];
static uint32_t cache_next;

static void conn_ready(struct watch *watch, uint32_t events);

void peer_handle(enum msg_type type, message_handler *handler) {
    handlers[type] = handler;
}

void peer_on_death(void (*hook)(struct peer *)) {
    for (size_t i = 0; i < ARRAY_LEN(death_hooks); i++)
        if (!death_hooks[i] || death_hooks[i] == hook) {
            death_hooks[i] = hook;
            return;
        }
}

struct peer *peer_self(void) {
    return self;
}

int peer_start(void) {
    pthread_mutex_lock(&lock);
    int r = self ? 0 : -ENOMEM;
    if (!self && (self = calloc(1, sizeof(*self)))) {
        list_init(&peers);
        list_init(&conns);
        list_init(&doors);
        *self = (struct peer){.base = arena.base, .size = arena.size, .memfd = arena.fd, .is_self = true, .refs = 1};
        self->uuid = arena_head()->uuid;
        self->pid = arena_head()->pid;
        pthread_mutex_init(&self->lock, NULL);
        r = 0;
    }
    pthread_mutex_unlock(&lock);
    return r;
}

static void close_channel_fds(struct peer *peer) {
    for (uint32_t i = 0; i < peer->channel_len; i++)
        if (peer->channel_fds[i] >= 0) close(peer->channel_fds[i]);
}

void peer_put(struct peer *peer) {
    if (!peer || atomic_fetch_sub(&peer->refs, 1) != 1) return;
    munmap(peer->base, peer->size);
    close(peer->memfd);
    close_channel_fds(peer);
    free(peer->channel_fds);
    pthread_mutex_destroy(&peer->lock);
    free(peer);
}

void peer_before_fork(void) {
    pthread_mutex_lock(&lock);
}

void peer_after_fork_in_parent(void) {
    pthread_mutex_unlock(&lock);
}

void peer_forget(void) {
    if (self) {
        for (struct link *l = conns.next; l != &conns; l = l->next) close(container_of(l, struct conn, link)->watch.fd);
        for (struct link *l = doors.next; l != &doors; l = l->next) {
            struct door *door = container_of(l, struct door, link);
            close(door->watch.fd);
            door->watch.fd = -1;
        }
        for (struct link *l = peers.next; l != &peers; l = l->next) {
            close(container_of(l, struct peer, link)->memfd);
            close_channel_fds(container_of(l, struct peer, link));
        }
        close_channel_fds(self);
    }
    self = NULL;
    memset(cache, 0, sizeof(cache));
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&door_lock, NULL);
}

/* --- sending --- */

static int send_now(int sock, const struct message *msg, int fd) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    size_t len = offsetof(struct message, cm.private_data) + msg->cm.private_len;
    struct iovec iov = {(void *)(uintptr_t)msg, len};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        h.msg_control = &control;
        h.msg_controllen = sizeof(control);
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(int));
    }
    stats_inc(control_messages);
    ssize_t n;
    do n = sendmsg(sock, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

static void deliver_to_self(struct task *task) {
    struct self_msg *m = container_of(task, struct self_msg, task);
    if (handlers[m->msg.type]) handlers[m->msg.type](self, &m->msg, m->fd);
    free(m);
}

static int send_to_self(const struct message *msg, int fd) {
    struct self_msg *m = malloc(sizeof(*m));
    if (!m) return -ENOMEM;
    *m = (struct self_msg){
        .task = {.run = deliver_to_self}, .fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3), .msg = *msg};
    progress_run(&m->task);
    return 0;
}

static int conn_queue(struct conn *conn, const struct message *msg, int fd) {
    struct out_msg *out = malloc(sizeof(*out));
    if (!out) return -ENOMEM;
    *out = (struct out_msg){.msg = *msg, .fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3)};
    if (list_empty(&conn->out)) progress_rewatch(&conn->watch, EPOLLIN | EPOLLOUT);
    list_append(&conn->out, &out->link);
    return 0;
}

int peer_send(struct peer *peer, const struct message *msg, int fd) {
    if (peer->is_self) return send_to_self(msg, fd);
    pthread_mutex_lock(&peer->lock);
    struct conn *conn = peer->primary;
    int r = -EPIPE;
    if (conn && !peer_is_dead(peer)) {
        r = list_empty(&conn->out) ? send_now(conn->watch.fd, msg, fd) : -EAGAIN;
        if (r == -EAGAIN || r == -ENOBUFS || r == -ETOOMANYREFS) r = conn_queue(conn, msg, fd);
    }
    pthread_mutex_unlock(&peer->lock);
    return r;
}

void peer_broadcast(const struct message *msg) {
    pthread_mutex_lock(&lock);
    for (struct link *l = peers.next; l != &peers; l = l->next) peer_send(container_of(l, struct peer, link), msg, -1);
    pthread_mutex_unlock(&lock);
}

static void conn_flush(struct conn *conn) {
    pthread_mutex_lock(&conn->peer->lock);
    while (!list_empty(&conn->out)) {
        struct out_msg *out = container_of(conn->out.next, struct out_msg, link);
        int r = send_now(conn->watch.fd, &out->msg, out->fd);
        if (r == -EAGAIN || r == -ENOBUFS) break;
        list_remove(&out->link);
        if (out->fd >= 0) close(out->fd);
        free(out);
    }
    if (list_empty(&conn->out)) progress_rewatch(&conn->watch, EPOLLIN);
    pthread_mutex_unlock(&conn->peer->lock);
}

int peer_channel_fd(struct peer *peer, uint32_t id) {
    return id < peer->channel_len ? peer->channel_fds[id] : -1;
}

void peer_set_channel_fd(struct peer *peer, uint32_t id, int fd) {
    pthread_mutex_lock(&peer->lock);
    if (id >= peer->channel_len && fd >= 0) {
        uint32_t len = pow2_at_least(id + 1) < 16 ? 16 : pow2_at_least(id + 1);
        int *bigger = realloc(peer->channel_fds, len * sizeof(int));
        if (bigger) {
            for (uint32_t i = peer->channel_len; i < len; i++) bigger[i] = -1;
            peer->channel_fds = bigger;
            peer->channel_len = len;
        }
    }
    if (id < peer->channel_len) {
        if (peer->channel_fds[id] >= 0) close(peer->channel_fds[id]);
        peer->channel_fds[id] = fd;
    } else if (fd >= 0) {
        close(fd);
    }
    pthread_mutex_unlock(&peer->lock);
}

/* --- connections --- */

static struct conn *conn_create(int fd, enum conn_state state) {
    struct conn *conn = calloc(1, sizeof(*conn));
    if (!conn) return NULL;
    conn->watch = (struct watch){conn_ready, fd};
    conn->state = state;
    list_init(&conn->out);
    if (progress_watch(&conn->watch, EPOLLIN)) {
        free(conn);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    list_append(&conns, &conn->link);
    pthread_mutex_unlock(&lock);
    return conn;
}

static void conn_free(struct conn *conn) {
    pthread_mutex_lock(&lock);
    list_remove(&conn->link);
    progress_unwatch(&conn->watch);
    close(conn->watch.fd);
    pthread_mutex_unlock(&lock);
    for (struct link *l; (l = list_pop(&conn->out));) {
        struct out_msg *out = container_of(l, struct out_msg, link);
        if (out->fd >= 0) close(out->fd);
        free(out);
    }
    peer_put(conn->peer);
    free(conn);
}

static void peer_died(struct peer *peer) {
    pthread_mutex_lock(&lock);
    pthread_mutex_lock(&peer->lock);
    peer->primary = NULL;
    store_release(&peer->dead, true);
    pthread_mutex_unlock(&peer->lock);
    list_remove(&peer->link);
    for (size_t i = 0; i < CACHED_NAMES; i++)
        if (cache[i].peer == peer) cache[i].peer = NULL;
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < ARRAY_LEN(death_hooks) && death_hooks[i]; i++) death_hooks[i](peer);
    peer_put(peer); /* the list's */
}

static void dial_ended(struct conn *conn, struct peer *peer, int err) {
    struct dial *dial = conn->dial;
    conn->dial = NULL;
    if (dial) dial->done(dial, peer ? peer_get(peer) : NULL, err);
}

static void conn_closed(struct conn *conn) {
    struct peer *peer = conn->peer;
    if (conn->dial) dial_ended(conn, NULL, ECONNRESET);
    if (peer && !peer_is_dead(peer) && peer->primary == conn) peer_died(peer);
    conn_free(conn);
}

static struct peer *peer_by_uuid(uint64_t uuid) {
    if (uuid == self->uuid) return self;
    for (struct link *l = peers.next; l != &peers; l = l->next)
        if (container_of(l, struct peer, link)->uuid == uuid) return container_of(l, struct peer, link);
    return NULL;
}

/* Maps the arena behind `memfd`; takes the descriptor over on success. */
static struct peer *peer_create(const struct message *msg, int memfd) {
    struct stat st;
    if (memfd < 0 || fstat(memfd, &st) || st.st_size < (off_t)PAGE) return NULL;
    struct peer *peer = calloc(1, sizeof(*peer));
    if (!peer) return NULL;
    uint64_t size = (uint64_t)st.st_size;
    uint8_t *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memfd, 0);
    if (base == MAP_FAILED) goto failed;
    const struct arena_head *head = (const struct arena_head *)base;
    if (head->magic != ARENA_MAGIC || head->version != WIRE_VERSION || head->uuid != msg->uuid || head->size != size) {
        munmap(base, size);
        goto failed;
    }
    madvise(base, size, MADV_DONTFORK);
    *peer = (struct peer){.base = base, .size = size, .uuid = msg->uuid, .pid = msg->pid, .memfd = memfd, .refs = 1};
    pthread_mutex_init(&peer->lock, NULL);
    return peer;
failed:
    free(peer);
    return NULL;
}

static void greet(struct conn *conn, enum msg_type type, bool spare) {
    struct message msg = {
        .type = type, .version = WIRE_VERSION, .uuid = self->uuid, .pid = self->pid, .spare_link = spare, .fds = 1};
    send_now(conn->watch.fd, &msg, arena.fd);
}

static void answer_greeting(struct conn *conn, bool spare) {
    struct fault f;
    if (fault_hit(FAULT_GREET, NULL, &f) && f.action == ACT_DELAY) {
        struct timespec delay = {(time_t)(f.value / NS_PER_SEC), (long)(f.value % NS_PER_SEC)};
        nanosleep(&delay, NULL);
    }
    greet(conn, MSG_WELCOME, spare);
}

/* Both ends of a greeting: finds or makes the peer and lets the socket be its link. `*known`: there was one
 * already. The answer to a greeting is sent under the lock: from the end of the lock on, other threads find the peer
 * and send it messages, and the answer must be the first. */
static struct peer *peer_meet(struct conn *conn, const struct message *msg, int memfd, bool *known) {
    if (msg->version != WIRE_VERSION) return NULL;
    pthread_mutex_lock(&lock);
    struct peer *peer = peer_by_uuid(msg->uuid);
    *known = peer != NULL;
    if (!peer && (peer = peer_create(msg, memfd))) {
        peer->primary = conn;
        list_append(&peers, &peer->link);
    } else if (memfd >= 0) {
        close(memfd);
    }
    if (peer && !peer->is_self) conn->peer = peer_get(peer);
    if (peer && conn->state == CONN_GREETED_BY) answer_greeting(conn, *known);
    conn->state = CONN_UP;
    pthread_mutex_unlock(&lock);
    return peer;
}

/* Returns false when the connection has been closed. */
static bool greeted(struct conn *conn, const struct message *msg, int fd) {
    bool known = false;
    if (conn->state == CONN_GREETED_BY) {
        struct peer *peer = msg->type == MSG_HELLO ? peer_meet(conn, msg, fd, &known) : NULL;
        if (!peer) conn_closed(conn);
        return peer != NULL;
    }
    struct peer *peer = msg->type == MSG_WELCOME ? peer_meet(conn, msg, fd, &known) : NULL;
    if (peer) {
        pthread_mutex_lock(&lock);
        struct cached_name *slot = &cache[cache_next++ % CACHED_NAMES];
        if (conn->dial->tries < ARRAY_LEN(conn->dial->names)) {
            memcpy(slot->name, conn->dial->names[conn->dial->tries], sizeof(slot->name));
            slot->peer = peer;
        }
        pthread_mutex_unlock(&lock);
    }
    dial_ended(conn, peer, peer ? 0 : EPROTO);
    if (!peer || (known && msg->spare_link)) {
        conn_closed(conn);
        return false;
    }
    return true;
}

/* Reads one message. 1: read, 0: nothing there, -1: closed. */
static int conn_read(struct conn *conn, struct message *msg, int *fd) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {msg, sizeof(*msg)};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    *fd = -1;
    memset(msg, 0, sizeof(*msg));
    ssize_t n = recvmsg(conn->watch.fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n <= 0) return -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) memcpy(fd, CMSG_DATA(c), sizeof(int));
    bool whole =
        (size_t)n >= offsetof(struct message, cm.private_data) && msg->cm.private_len <= sizeof(msg->cm.private_data);
    if (whole && msg->type < ARRAY_LEN(handlers)) return 1;
    if (*fd >= 0) close(*fd);
    return -1;
}

static void conn_ready(struct watch *watch, uint32_t events) {
    struct conn *conn = container_of(watch, struct conn, watch);
    if ((events & EPOLLOUT) && conn->peer) conn_flush(conn);
    for (;;) {
        struct message msg;
        int fd, r = conn_read(conn, &msg, &fd);
        if (!r) return;
        if (r < 0) {
            conn_closed(conn);
            return;
        }
        if (conn->state != CONN_UP) {
            if (!greeted(conn, &msg, fd)) return;
        } else if (handlers[msg.type] && conn->peer) {
            handlers[msg.type](conn->peer, &msg, fd);
        } else if (fd >= 0) {
            close(fd);
        }
    }
}

/* --- names --- */

void door_name(char out[64], const char *format, ...) {
    int n = snprintf(out, 64, "softrdma.%u.", (unsigned)geteuid());
    va_list args;
    va_start(args, format);
    vsnprintf(out + n, 64 - (size_t)n, format, args);
    va_end(args);
}

static socklen_t door_address(struct sockaddr_un *un, const char *name) {
    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path + 1, name, strlen(name));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

/* Anybody may bind any abstract name; only our own user is let in. */
static bool same_user(int fd) {
    struct ucred cred;
    socklen_t len = sizeof(cred);
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.uid == geteuid();
}

static void door_ready(struct watch *watch, uint32_t events) {
    pthread_mutex_lock(&door_lock);
    int fd = watch->fd < 0 ? -1 : accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    pthread_mutex_unlock(&door_lock);
    if (fd >= 0 && (!same_user(fd) || !conn_create(fd, CONN_GREETED_BY))) close(fd);
}

int door_bind(struct door *door, const char *name) {
    struct sockaddr_un un;
    socklen_t len = door_address(&un, name);
    door->watch = (struct watch){door_ready, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    door->listening = false;
    if (door->watch.fd < 0) return -errno;
    if (bind(door->watch.fd, (struct sockaddr *)&un, len)) {
        int r = -errno;
        close(door->watch.fd);
        door->watch.fd = -1;
        return r;
    }
    pthread_mutex_lock(&lock);
    list_append(&doors, &door->link);
    pthread_mutex_unlock(&lock);
    return 0;
}

int door_listen(struct door *door) {
    if (door->listening) return 0;
    if (listen(door->watch.fd, 1024)) return -errno;
    door->listening = true;
    return progress_watch(&door->watch, EPOLLIN);
}

void door_close(struct door *door) {
    pthread_mutex_lock(&lock);
    pthread_mutex_lock(&door_lock);
    if (door->watch.fd >= 0) {
        if (door->listening) progress_unwatch(&door->watch);
        close(door->watch.fd);
        list_remove(&door->link);
    }
    door->watch.fd = -1;
    pthread_mutex_unlock(&door_lock);
    pthread_mutex_unlock(&lock);
}

bool door_is_taken(const char *name) {
    struct sockaddr_un un;
    socklen_t len = door_address(&un, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool taken = fd >= 0 && bind(fd, (struct sockaddr *)&un, len) && errno == EADDRINUSE;
    if (fd >= 0) close(fd);
    return taken;
}

/* --- dialling --- */

static struct peer *cached_peer(struct dial *dial) {
    struct peer *found = NULL;
    pthread_mutex_lock(&lock);
    for (size_t n = 0; n < ARRAY_LEN(dial->names) && !found; n++)
        for (size_t i = 0; i < CACHED_NAMES && !found && *dial->names[n]; i++)
            if (cache[i].peer && !strcmp(cache[i].name, dial->names[n])) {
                if (dial->skip_cache)
                    cache[i].peer = NULL;
                else
                    found = peer_get(cache[i].peer);
            }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Connects to one name: the descriptor, or -errno. */
static int dial_name(const char *name) {
    struct sockaddr_un un;
    socklen_t len = door_address(&un, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    if (!connect(fd, (struct sockaddr *)&un, len)) {
        if (same_user(fd)) return fd;
        errno = ECONNREFUSED;
    }
    int r = -errno;
    close(fd);
    return r;
}

static void dial_again(struct timer *timer);

static void dial_run(struct task *task) {
    struct dial *dial = container_of(task, struct dial, task);
    struct peer *peer = cached_peer(dial);
    if (peer) {
        dial->done(dial, peer, 0);
        return;
    }
    int r = -ECONNREFUSED;
    uint32_t n = 0;
    for (; n < ARRAY_LEN(dial->names) && *dial->names[n] && r == -ECONNREFUSED; n++) r = dial_name(dial->names[n]);
    if (r == -EAGAIN && dial->tries++ < DIAL_RETRIES) {
        dial->timer.fire = dial_again;
        timer_set(&dial->timer, now_ns() + NS_PER_MS);
        return;
    }
    struct conn *conn = r < 0 ? NULL : conn_create(r, CONN_DIALLING);
    if (!conn) {
        if (r >= 0) close(r);
        dial->done(dial, NULL, r < 0 ? -r : ENOMEM);
        return;
    }
    dial->tries = n - 1; /* which name it was */
    conn->dial = dial;
    greet(conn, MSG_HELLO, false);
}

static void dial_again(struct timer *timer) {
    dial_run(&container_of(timer, struct dial, timer)->task);
}

void peer_dial(struct dial *dial) {
    dial->task.run = dial_run;
    dial->tries = 0;
    progress_run(&dial->task);
}
