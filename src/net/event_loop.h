/* event_loop.h: one thread's loop over file descriptors (epoll), timers, polled sources, and what other threads post to
 * it.
 *
 * A turn: hook before_wait; wait for descriptors (not at all while a polled source is busy); clock_update(); hook
 * after_wait; poll the polled sources, repeatedly while one of them is busy and there is nothing else to do; run the
 * handlers of ready descriptors; run posts; run due timers; run deferred work.
 *
 * A handler may turn the loop itself (a blocking wait, a script that runs for long). Such an inner turn calls no hooks
 * and runs no deferred work: what outer handlers look at stays.
 *
 * Everything here belongs to the loop's thread, except event_loop_wake() and event_loop_post(). A handler may add,
 * change and remove any watch or timer, its own included; a removed watch is not called again even when its event was
 * already fetched. Objects that handlers still on the stack may look at are freed through event_loop_defer(). */
#ifndef NET_EVENT_LOOP_H
#define NET_EVENT_LOOP_H
#include "lib/list.h"
#include <stdbool.h>
#include <stdint.h>

struct event_loop;
struct event_loop *event_loop_new(void);
void event_loop_free(struct event_loop *loop);
void event_loop_run(struct event_loop *loop); /* until event_loop_stop */
void event_loop_stop(struct event_loop *loop);
/* One turn; waits at most `timeout_us` (-1: as long as it takes). Returns the number of things done. Tools and blocking
 * waits. */
int event_loop_turn(struct event_loop *loop, int64_t timeout_us);
void event_loop_wake(struct event_loop *loop); /* from any thread or signal handler: end the wait */

/* Descriptors. The watch stands in the owner's struct. Level-triggered. */
enum { EVENT_READ = 1, EVENT_WRITE = 2 };
struct event_watch {
    int fd; /* -1: not watched */
    int mask;
    void (*ready)(struct event_watch *watch, int mask); /* mask holds what is ready; errors and hang-up show as both */
};
int event_watch_set(struct event_loop *loop, struct event_watch *watch, int fd, int mask,
                    void (*ready)(struct event_watch *, int)); /* add or change; mask 0 removes; 0 or -errno */
void event_watch_remove(struct event_loop *loop, struct event_watch *watch);

/* Timers, in a heap: any number of them cost nothing until due. Times are of the monotonic clock, microseconds. */
struct event_timer {
    uint64_t due_us;
    /* Returns after how many microseconds to be called again, 0: not again. The timer may be freed by its own function
     * when it returns 0. */
    uint64_t (*fire)(struct event_timer *timer);
    uint32_t heap_index; /* 0: not set */
};
void event_timer_set(struct event_loop *loop, struct event_timer *timer, uint64_t after_us,
                     uint64_t (*fire)(struct event_timer *));
void event_timer_cancel(struct event_loop *loop, struct event_timer *timer);

/* Polled sources (a completion queue): looked at every turn. */
struct event_poller {
    struct list_link link;
    int (*poll)(struct event_poller *poller); /* handles what is there; returns how much it was */
    /* Called when the loop is about to sleep: arm the wake-up descriptor, look once more; false: something came, do not
     * sleep. */
    bool (*prepare_sleep)(struct event_poller *poller);
    /* Spin this long after the last work before sleeping; 0: sleep at once. */
    uint32_t spin_us;
    uint64_t last_work_us; /* the loop's */
};
void event_poller_add(struct event_loop *loop, struct event_poller *poller);
void event_poller_remove(struct event_loop *loop, struct event_poller *poller);

/* Work to be done at the end of this turn, outside every handler: freeing, mostly. The link stands in the owner's
 * struct. */
struct event_deferred {
    struct list_link link;
    void (*run)(struct event_deferred *deferred);
};
void event_loop_defer(struct event_loop *loop, struct event_deferred *deferred, void (*run)(struct event_deferred *));

/* Posts: how one thread hands work to another's loop. A post is run once, by the loop it was posted to; from then on it
 * belongs to whoever runs it. Posts of one thread to one loop keep their order.
 *
 * The loop holds one atomic pointer to the posts that were published and not fetched, the newest first; it fetches all
 * of them at once and runs them from the oldest on. No lock, nothing to wait for on either side, any number of senders.
 * A loop that is about to sleep says so and looks once more; who publishes after that wakes it, and nobody else pays
 * for a wake-up.
 *
 * An outbox collects the posts of one loop to another, so that a turn publishes them together: when OUTBOX_BATCH have
 * come, when the other loop sleeps anyway, and at the latest before the sender's loop waits. */
struct event_post {
    struct event_post *next;
    void (*run)(struct event_post *post);
};
void event_loop_take_posts(struct event_loop *loop); /* before anybody posts; loops to which nobody does pay nothing */
bool event_loop_takes_posts(const struct event_loop *loop);
void event_loop_post(struct event_loop *to, struct event_post *post); /* from any thread */

struct event_outbox {
    struct list_link link; /* in `from`'s list of outboxes that hold something */
    struct event_loop *from, *to;
    struct event_post *newest, *oldest;
    unsigned count;
};
void event_outbox_init(struct event_outbox *outbox, struct event_loop *from, struct event_loop *to);
void event_outbox_add(struct event_outbox *outbox, struct event_post *post); /* from `from`'s thread */
void event_outbox_publish(struct event_outbox *outbox);                      /* at once */

/* Called each turn: before the loop waits, and after the wait. */
struct event_hooks {
    void (*before_wait)(void *context);
    void (*after_wait)(void *context);
    void *context;
};
void event_loop_set_hooks(struct event_loop *loop, const struct event_hooks *hooks);

/* Something that belongs to a loop and is freed with it: the buffers that all connections of a transport share. The
 * link stands in the owner's struct; `key` is an address of the owner's choice. */
struct event_attachment {
    struct list_link link;
    const void *key;
    void (*free)(struct event_attachment *attachment);
};
struct event_attachment *event_loop_attachment(struct event_loop *loop, const void *key); /* NULL: none yet */
void event_loop_attach(struct event_loop *loop, struct event_attachment *attachment);

struct event_loop_stats {
    uint64_t turns, sleeps, spins; /* spins: looks at polled sources in place of sleep */
    uint64_t busy_us, sleep_us;
};
const struct event_loop_stats *event_loop_stats(const struct event_loop *loop);
#endif
