/* propagate.h: the single path by which changes of data leave the server. Replicas, the append only file and slot
 * migration are listeners.
 *
 * propagate() is called once for a write, after its execution, with the arguments to execute again (absolute times,
 * resolved values). Commands that form a group (a transaction, everything that one call propagates, the deletion of
 * keys that it found expired) arrive between begin and end, even if the group has one command.
 *
 * Large values travel by reference: an argument that was received into a blob comes with that blob, and a listener that
 * keeps it takes a reference (blob_hold) instead of copying its bytes. Everything else is valid only during the
 * callback. A blob that a listener holds is shared and must not be written.
 *
 * Main thread only. */
#pragma once
#include "lib/structures/linked_list.h"
#include "lib/text/blob.h"
#include "lib/text/slice.h"

/* The origin of the command that causes a change. */
enum propagation_origin {
    PROPAGATION_LOCAL,   /* a client, a script, or the server itself (expiry, eviction) */
    PROPAGATION_PRIMARY, /* the stream of the primary: sub-replicas get that stream unchanged, not this command */
    PROPAGATION_LOADING  /* a file that is being loaded: nothing is propagated */
};

struct propagation {
    int db;
    int argc;
    const struct slice *argv;
    struct blob *const *blobs; /* one for each argument, NULL for an argument without one; NULL: no argument has one */
    enum propagation_origin origin;
    bool is_message; /* changes no data: PUBLISH and the like */
    int slot;        /* of the call that it comes from (struct call); -1: not known */
    uint64_t offset; /* propagation_offset() with this command */
};
static inline struct blob *propagation_blob(const struct propagation *propagation, int index) {
    return propagation->blobs ? propagation->blobs[index] : NULL;
}

/* Where a script sends its effects (set_repl). A listener with a target receives what is meant for it. */
enum propagation_target {
    PROPAGATE_ANY, /* of a listener: receives what has a target */
    PROPAGATE_AOF = 1,
    PROPAGATE_REPLICAS = 2,
    PROPAGATE_ALL = PROPAGATE_AOF | PROPAGATE_REPLICAS
};
struct propagation_listener {
    struct list_link link;
    void (*command)(struct propagation_listener *self, const struct propagation *propagation);
    void (*begin)(struct propagation_listener *self, int db); /* may be NULL */
    void (*end)(struct propagation_listener *self);           /* may be NULL */
    bool changes_only;                                        /* no messages */
    enum propagation_target target;
    bool begun; /* private: begin was called, end was not */
};
/* May be called at any time outside a callback, also between begin and end; a callback may remove its own listener. */
void propagate_listen(struct propagation_listener *listener);
void propagate_unlisten(struct propagation_listener *listener);
/* True: propagate() has a listener now. A caller that need not build arguments asks first. */
bool propagate_wanted(void);
void propagate(int db, int argc, const struct slice *argv, struct blob *const *blobs);
/* For commands that are propagated although they change no data: PUBLISH. */
void propagate_message(int db, int argc, const struct slice *argv);
void propagate_begin(void);
void propagate_end(void);
bool propagate_is_grouped(void);
/* Called before the outermost group ends: what it propagates belongs to the group. NULL: nobody adds anything. */
extern void (*propagate_before_end)(void);
/* The slot of the call that runs; -1: not known. Dispatch sets it. */
extern int propagation_slot;
/* The number of commands propagated since the start of the server. A caller that saves it after a write can check later
 * whether a listener has processed that write. */
uint64_t propagation_offset(void);
/* Sets the origin of all following propagation and returns the previous one, which the caller restores. Dispatch does
 * so around the calls of a client with CLIENT_PRIMARY or CLIENT_LOADER. */
enum propagation_origin propagation_set_origin(enum propagation_origin origin);
/* Sets the targets, a set of propagation_target, of all following propagation and returns the previous set, which the
 * caller restores. Without a target nothing is propagated. */
int propagation_set_targets(int targets);
