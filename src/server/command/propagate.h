/* propagate.h: the one way by which changes of data leave the server: replicas, the append only file and slot migration
 * are listeners.
 *
 * propagate() is called once for a write, after it was executed, with the arguments as they must be executed again
 * (absolute times, resolved values). Commands that belong together (a transaction, everything that one call propagates,
 * the deletion of keys that it found expired) arrive between begin and end, although it may be one command only.
 *
 * Large values travel by reference: an argument that was received into a blob comes with that blob, and a listener that
 * keeps it holds a reference (blob_hold) instead of copying its bytes. Everything else is valid only during the
 * callback. A blob that a listener holds is shared: nobody writes to it.
 *
 * Main thread only. */
#ifndef SERVER_PROPAGATE_H
#define SERVER_PROPAGATE_H
#include "lib/blob.h"
#include "lib/list.h"
#include "lib/slice.h"

/* Where the command that causes a change comes from. */
enum propagation_origin {
    PROPAGATION_LOCAL,   /* a client, a script, or the server itself (expiry, eviction) */
    PROPAGATION_PRIMARY, /* the stream of our primary: replicas of ours get that stream as it is, not this command */
    PROPAGATION_LOADING  /* a file that is being loaded: nothing is propagated */
};

struct propagation {
    int db;
    int argc;
    const struct slice *argv;
    struct blob *const *blobs; /* one for each argument, NULL where the bytes lie in none; NULL: no argument has one */
    enum propagation_origin origin;
    bool is_message; /* changes no data: PUBLISH and the like */
    uint64_t offset; /* propagation_offset() with this command */
};
static inline struct blob *propagation_blob(const struct propagation *propagation, int index) {
    return propagation->blobs ? propagation->blobs[index] : NULL;
}

struct propagation_listener {
    struct list_link link;
    void (*command)(struct propagation_listener *self, const struct propagation *propagation);
    void (*begin)(struct propagation_listener *self, int db); /* may be NULL: of no interest */
    void (*end)(struct propagation_listener *self);           /* may be NULL */
    bool changes_only;                                        /* no messages */
    bool begun;                                               /* private: begin was called, end was not */
};
/* At any time outside a callback, between begin and end too; a callback may remove its own listener. */
void propagate_listen(struct propagation_listener *listener);
void propagate_unlisten(struct propagation_listener *listener);
/* Does propagate() reach a listener now? Saves a caller from building arguments in vain. */
bool propagate_wanted(void);
void propagate(int db, int argc, const struct slice *argv, struct blob *const *blobs);
/* For what is propagated though it changes no data: PUBLISH. */
void propagate_message(int db, int argc, const struct slice *argv);
void propagate_begin(void);
void propagate_end(void);
/* Commands that were propagated since the start of the server; never falls. A caller that notes it after a write can
 * ask later whether a listener has got as far. */
uint64_t propagation_offset(void);
/* Sets the origin of what is propagated from now on, and returns the one before, to be set again afterwards. Dispatch
 * does so around the calls of a client with CLIENT_PRIMARY or CLIENT_LOADER. */
enum propagation_origin propagation_set_origin(enum propagation_origin origin);
#endif
