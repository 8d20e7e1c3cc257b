/* Other processes that use the device: finding them, the link to each, their arena mapped here.
 *
 * Finding goes by front doors: listening sockets with abstract names, softrdma.<uid>.<what>, one per bound
 * port and one per block of queue pair numbers. Binding a name is how a number is taken, machine-wide, and
 * the kernel gives it back when the process dies. The process that dials a door sends HELLO and receives WELCOME; both
 * carry the arena's descriptor. The socket then becomes the link of this pair of processes, unless they have
 * one already. However many connections two processes have, they share one link (two if both dialled at once)
 * and one mapping. */
#pragma once

#include <pthread.h>

#include "arena.h"
#include "progress.h"

struct conn;

struct peer {
    struct link link;
    uint8_t *base; /* its arena, mapped here; our own for the peer that is this process */
    uint64_t size;
    uint64_t uuid;
    uint32_t pid;
    int memfd;
    bool is_self;
    _Atomic bool dead;
    _Atomic uint32_t refs;
    pthread_mutex_t lock; /* guards what follows */
    struct conn *primary;
    int *channel_fds; /* by channel id; -1: not received yet */
    uint32_t channel_len;
};

/* A front door. `fd` is -1 when closed. */
struct door {
    struct watch watch;
    struct link link;
    bool listening;
};

/* A search for the process behind the first of the names that has a listener. Runs on the progress
 * thread and ends there, calling `done` with a peer (the callee takes over a reference) or with NULL and an
 * error. */
struct dial {
    struct task task;
    struct timer timer;
    char names[3][64];
    uint32_t tries;
    bool skip_cache;
    void (*done)(struct dial *dial, struct peer *peer, int err);
};

typedef void message_handler(struct peer *peer, const struct message *msg, int fd);

int peer_start(void);
/* The thread may be opening or closing descriptors when the program forks: the child must know which there are. */
void peer_before_fork(void), peer_after_fork_in_parent(void);
void peer_forget(void); /* in a forked child: closes every descriptor that belongs to the parent */
void peer_handle(enum msg_type type, message_handler *handler);
void peer_on_death(void (*hook)(struct peer *peer));

struct peer *peer_self(void);
static inline struct peer *peer_get(struct peer *peer) {
    atomic_fetch_add_explicit(&peer->refs, 1, memory_order_relaxed);
    return peer;
}
void peer_put(struct peer *peer);
void peer_dial(struct dial *dial);

/* Sends in order; -EPIPE to the dead. `fd` >= 0 goes with it (and stays the caller's). Any thread. */
int peer_send(struct peer *peer, const struct message *msg, int fd);
void peer_broadcast(const struct message *msg);

/* The descriptor of the peer's completion channel, or -1 when it has not been sent yet. Call with peer->lock
 * held. */
int peer_channel_fd(struct peer *peer, uint32_t channel_id);
void peer_set_channel_fd(struct peer *peer, uint32_t channel_id, int fd);

int door_bind(struct door *door, const char *name); /* takes the name; -EADDRINUSE */
int door_listen(struct door *door);                 /* from now on dialling finds it */
void door_close(struct door *door);
bool door_is_taken(const char *name); /* is the name bound by anybody? */
void door_name(char out[64], const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline void *peer_ptr(const struct peer *peer, uint64_t off) {
    return peer->base + off;
}
static inline bool peer_is_dead(struct peer *peer) {
    return load_relaxed(&peer->dead);
}
