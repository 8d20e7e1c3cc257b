/* propagate.h: the one way by which changes of data leave the server: replicas, AOF, slot migration are listeners.
 *
 * Called once for a write, after it was executed, with the arguments as they are to be repeated (absolute times,
 * resolved values). What belongs together (all of a transaction, all that one call repeats, keys it finds expired
 * included) arrives between begin and end, though it may be one command only. */
#ifndef SERVER_PROPAGATE_H
#define SERVER_PROPAGATE_H
#include "lib/list.h"
#include "lib/slice.h"
struct propagation_listener {
    struct list_link link;
    void (*command)(struct propagation_listener *self, int db, int argc, const struct slice *argv);
    void (*begin)(struct propagation_listener *self, int db); /* may be NULL: of no interest */
    void (*end)(struct propagation_listener *self);
    bool changes_only; /* does not care for what changes no data (propagate_message) */
};
void propagate_listen(struct propagation_listener *listener);
void propagate_unlisten(struct propagation_listener *listener);
bool propagate_wanted(void); /* is anybody listening? Saves building arguments in vain. */
void propagate(int db, int argc, const struct slice *argv);
/* What others must hear of though it changes no data: PUBLISH. */
void propagate_message(int db, int argc, const struct slice *argv);
void propagate_begin(void);
void propagate_end(void);
#endif
