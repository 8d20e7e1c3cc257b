/* propagate.c: passes each change to the listeners. See propagate.h.
 *
 * Commands between begin and end form a group; begin and end nest (a transaction of calls, each of which may propagate
 * several commands). A listener sees only the outermost pair, and no pair around an empty group. */
#include "server/command/propagate.h"
#include "lib/system/thread.h"

static struct list listeners = LIST_INIT(listeners);
static int depth;
static enum propagation_origin origin;
static uint64_t offset;
static int targets = PROPAGATE_ALL;
int propagation_slot = -1;

void propagate_listen(struct propagation_listener *listener) {
    if (list_add_listener(&listeners, &listener->link)) listener->begun = false;
}
void propagate_unlisten(struct propagation_listener *listener) {
    list_remove_listener(&listeners, &listener->link);
}
bool propagate_wanted(void) {
    return listeners.len != 0 && origin != PROPAGATION_LOADING && targets;
}
uint64_t propagation_offset(void) {
    return offset;
}

enum propagation_origin propagation_set_origin(enum propagation_origin now) {
    enum propagation_origin before = origin;
    origin = now;
    return before;
}

int propagation_set_targets(int now) {
    int before = targets;
    targets = now;
    return before;
}

static void hand_out(struct propagation *propagation) {
    if (!propagate_wanted()) return;
    must_be_main_thread();
    propagation->origin = origin;
    propagation->offset = ++offset;
    propagation->slot = propagation_slot;
    list_each_entry(&listeners, struct propagation_listener, link, listener) {
        if (propagation->is_message && listener->changes_only) continue;
        if (listener->target && !(listener->target & targets)) continue;
        if (depth && !listener->begun) {
            listener->begun = true;
            if (listener->begin) listener->begin(listener, propagation->db);
        }
        listener->command(listener, propagation);
    }
}

void propagate(int db, int argc, const struct slice *argv, struct blob *const *blobs) {
    hand_out(&(struct propagation){.db = db, .argc = argc, .argv = argv, .blobs = blobs});
}

void propagate_message(int db, int argc, const struct slice *argv) {
    hand_out(&(struct propagation){.db = db, .argc = argc, .argv = argv, .is_message = true});
}

void propagate_begin(void) {
    depth++;
}

bool propagate_is_grouped(void) {
    return depth > 0;
}

void (*propagate_before_end)(void);
void propagate_end(void) {
    must(depth > 0);
    if (__builtin_expect(propagate_before_end != NULL, 0) && depth == 1) propagate_before_end();
    if (--depth) return;
    list_each_entry(&listeners, struct propagation_listener, link, listener) {
        if (!listener->begun) continue;
        listener->begun = false;
        if (listener->end) listener->end(listener);
    }
}
