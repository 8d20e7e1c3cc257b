/* event_loop.h: the event loop of one thread: file descriptors (epoll), timers, polled sources, and posts from other
 * threads.
 *
 * One iteration runs these steps:
 *   1. hook before_wait
 *   2. wait for descriptors (do not wait while a polled source is busy)
 *   3. clock_update()
 *   4. poll the polled sources, repeatedly while one of them is busy and there is nothing else to do
 *   5. handlers of ready descriptors
 *   6. posts
 *   7. due timers
 *   8. deferred work
 *
 * A handler may run the loop itself (a blocking wait, a long-running script). Such a nested iteration calls no hooks
 * and runs no deferred work, so objects that the outer handlers use stay alive. Work that must also run in nested
 * iterations uses a timer. server/nested_turn.h says what else the server does there.
 *
 * Everything here belongs to the loop's thread, except event_loop_wake() and event_loop_post(). A handler may add,
 * change and remove any descriptor or timer, including its own. A removed one is not called again, even if its event
 * was already fetched. Free objects that handlers on the stack may still use through event_loop_defer(). */
#pragma once
#include "lib/structures/linked_list.h"
#include <stdbool.h>
#include <stdint.h>

struct event_loop;
struct event_loop *event_loop_new(void);     /* aborts when descriptors run out */
struct event_loop *event_loop_try_new(void); /* NULL: errno */
void event_loop_free(struct event_loop *loop);
void event_loop_run(struct event_loop *loop); /* until event_loop_stop */
void event_loop_stop(struct event_loop *loop);
/* One iteration; waits at most `timeout_us` microseconds (-1: without limit). Returns the number of handlers, posts,
 * timers and completions it ran. For tools and blocking waits. */
int event_loop_turn(struct event_loop *loop, int64_t timeout_us);
bool event_loop_is_turning(const struct event_loop *loop); /* within an iteration: another one would be nested */
void event_loop_wake(struct event_loop *loop);             /* from any thread or signal handler: end the wait */

/* For an owner that waits elsewhere, in place of a turn's wait (the client library). event_loop_prepare_wait() arms the
 * polled sources; false: there is work, run a turn first. Then event_loop_fd() becomes readable when a descriptor of
 * the loop is ready or event_loop_wake() is called, but not when a timer is due. `spin`: false also while polled
 * sources must be polled before the thread sleeps. Run a turn after the wait. */
int event_loop_fd(const struct event_loop *loop);
bool event_loop_prepare_wait(struct event_loop *loop, bool spin);
uint64_t event_loop_next_due(const struct event_loop *loop); /* time of the next timer; INT64_MAX: there is none */

/* File descriptors, level-triggered. The owner embeds an event_io in its struct. */
enum { EVENT_READ = 1, EVENT_WRITE = 2 };
struct event_io {
    int fd; /* -1: not watched */
    int mask;
    void (*ready)(struct event_io *io, int mask); /* mask: the ready events; errors and hang-up set both */
};
int event_io_set(struct event_loop *loop, struct event_io *io, int fd, int mask,
                 void (*ready)(struct event_io *, int)); /* add or change; mask 0 removes; 0 or -errno */
void event_io_remove(struct event_loop *loop, struct event_io *io);

/* Timers, in a heap: a timer costs nothing until it is due. Times are microseconds of the monotonic clock. */
struct event_timer {
    uint64_t due_us; /* INT64_MAX at most */
    /* Returns the microseconds until the next call, 0: no further call. The function may free its timer when it returns
     * 0. */
    uint64_t (*fire)(struct event_timer *timer);
    uint32_t heap_index; /* from 1 on; 0: not set */
};
void event_timer_set(struct event_loop *loop, struct event_timer *timer, uint64_t after_us,
                     uint64_t (*fire)(struct event_timer *));
void event_timer_cancel(struct event_loop *loop, struct event_timer *timer);

enum { EVENT_SPIN_ALWAYS_US = 10 * 1000 };
/* Polled sources (a completion queue): polled in every iteration. */
struct event_poller {
    struct list_link link;
    int (*poll)(struct event_poller *poller); /* handles pending work; returns the number of items handled */
    /* Called when the loop is about to sleep: arm the wake-up descriptor, then poll once more. False: work arrived, do
     * not sleep. */
    bool (*prepare_sleep)(struct event_poller *poller);
    /* Spin for this long after the last work before sleeping; 0: sleep immediately. While it spins, the thread yields
     * its CPU to other threads that can run. It does not spin while others that do not yield want the CPU, unless
     * spin_us is EVENT_SPIN_ALWAYS_US or more: then the CPU is meant for this thread. */
    uint32_t spin_us;
    uint64_t last_work_us; /* private to the loop */
};
void event_poller_add(struct event_loop *loop, struct event_poller *poller);
void event_poller_remove(struct event_loop *loop, struct event_poller *poller);

/* Work for the end of this iteration, outside all handlers; mostly freeing memory. The owner embeds the link in its
 * struct. */
struct event_deferred {
    struct list_link link;
    void (*run)(struct event_deferred *deferred);
};
void event_loop_defer(struct event_loop *loop, struct event_deferred *deferred, void (*run)(struct event_deferred *));

/* Posts hand work from one thread to another thread's loop. The loop that a post was sent to runs it once and then owns
 * it. Posts of one thread to one loop keep their order. When run() begins, `next` is the post that the loop will run
 * next unless a turn is nested; NULL: it has fetched no more.
 *
 * event_loop_free() drops the posts that have not run, on the thread that frees: it calls drop() in place of run(),
 * first before it frees the attachments, which posts may refer to. drop() frees the post and what it holds; NULL: the
 * sender keeps the post, and learns nothing. An attachment that posts name, or that contains posts, calls
 * event_loop_drop_posts() before it is freed, after it has made sure that no thread sends any more.
 *
 * The loop holds one atomic pointer to the posts that were published and not fetched, the newest first. It fetches all
 * of them together and runs the oldest first. There is no lock, neither end waits, and the number of senders is not
 * limited. A loop that is about to sleep sets a flag and checks for posts once more; a sender that publishes after that
 * wakes it. Other senders pay nothing for wake-ups.
 *
 * An outbox collects the posts from one loop to another and publishes them together: when it holds OUTBOX_BATCH posts,
 * when the other loop is asleep anyway, and at the latest before the sender's loop waits. The posts in an outbox are
 * dropped when the sender's loop is freed. */
struct event_post {
    struct event_post *next;
    void (*run)(struct event_post *post);
    void (*drop)(struct event_post *post);
};
void event_loop_take_posts(struct event_loop *loop); /* call before the first post; other loops pay nothing */
bool event_loop_takes_posts(const struct event_loop *loop);
void event_loop_post(struct event_loop *to, struct event_post *post); /* from any thread */
void event_loop_drop_posts(struct event_loop *loop);                  /* those published and not run */

struct event_outbox {
    struct list_link link; /* in `from`'s list of outboxes that hold something */
    struct event_loop *from, *to;
    struct event_post *newest, *oldest;
    unsigned count;
};
void event_outbox_init(struct event_outbox *outbox, struct event_loop *from, struct event_loop *to);
void event_outbox_add(struct event_outbox *outbox, struct event_post *post); /* from `from`'s thread */
void event_outbox_publish(struct event_outbox *outbox);                      /* now */

/* Called in each outermost iteration. */
struct event_hooks {
    void (*before_wait)(void *context);
    /* Both or none, right before and after the kernel is asked for events: between them the loop's thread does not
     * touch the loop. Another thread may use it then, as its own, after event_loop_adopt(). The hooks see to it that
     * only one does, and that it has ended when `awake` returns: true if one did. It calls event_loop_wake() at the
     * end. */
    void (*asleep)(void *context);
    bool (*awake)(void *context);
    void *context;
};
void event_loop_set_hooks(struct event_loop *loop, const struct event_hooks *hooks);
void event_loop_adopt(struct event_loop *loop);

/* An object that belongs to a loop and is freed with it, such as the buffers that all connections of a transport share.
 * The owner embeds the link in its struct; `key` is an address that the owner chooses. */
struct event_attachment {
    struct list_link link;
    const void *key;
    void (*free)(struct event_attachment *attachment);
};
struct event_attachment *event_loop_attachment(struct event_loop *loop, const void *key); /* NULL: none attached */
void event_loop_attach(struct event_loop *loop, struct event_attachment *attachment);

struct event_loop_stats {
    uint64_t turns, sleeps, spins; /* turns: iterations; spins: polls of polled sources in place of a sleep */
    uint64_t yields;               /* of the CPU, while spinning */
    uint64_t spin_pauses;          /* times that the loop stopped spinning because other threads took its CPU */
    uint64_t busy_us, sleep_us;
    uint64_t longest_us; /* between two sleeps */
};
const struct event_loop_stats *event_loop_stats(const struct event_loop *loop);
