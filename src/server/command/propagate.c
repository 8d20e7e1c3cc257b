/* propagate.c: hands each change to the listeners. See propagate.h.
 *
 * Between begin and end the commands belong together; begin and end nest (a transaction of calls, each of which may
 * propagate several), the listeners see the outermost pair only, and none where nothing is propagated in between. */
#include "server/command/propagate.h"

static struct list listeners = {.head = {&listeners.head, &listeners.head}};
static int depth;
static bool begun; /* the listeners were told */

void propagate_listen(struct propagation_listener *listener) {
    list_append(&listeners, &listener->link);
}
void propagate_unlisten(struct propagation_listener *listener) {
    list_remove(&listeners, &listener->link);
}
bool propagate_wanted(void) {
    return listeners.len != 0;
}

static void begin_if_together(int db) {
    if (!depth || begun) return;
    begun = true;
    list_each(&listeners, link) {
        struct propagation_listener *listener = container_of(link, struct propagation_listener, link);
        if (listener->begin) listener->begin(listener, db);
    }
}

void propagate(int db, int argc, const struct slice *argv) {
    begin_if_together(db);
    list_each(&listeners, link) {
        struct propagation_listener *listener = container_of(link, struct propagation_listener, link);
        listener->command(listener, db, argc, argv);
    }
}

void propagate_message(int db, int argc, const struct slice *argv) {
    begin_if_together(db);
    list_each(&listeners, link) {
        struct propagation_listener *listener = container_of(link, struct propagation_listener, link);
        if (!listener->changes_only) listener->command(listener, db, argc, argv);
    }
}

void propagate_begin(void) {
    depth++;
}

void propagate_end(void) {
    if (--depth || !begun) return;
    begun = false;
    list_each(&listeners, link) {
        struct propagation_listener *listener = container_of(link, struct propagation_listener, link);
        if (listener->end) listener->end(listener);
    }
}
