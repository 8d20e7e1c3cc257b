/* notify.c: hands keyspace events to the listeners. See notify.h. */
#include "server/notify.h"

static struct list listeners = LIST_INIT(listeners);
uint32_t notify_wanted;

static void wanted_update(void) {
    notify_wanted = 0;
    list_each(&listeners, link) notify_wanted |= container_of(link, struct notify_listener, link)->classes;
}

void notify_listen(struct notify_listener *listener) {
    list_add_listener(&listeners, &listener->link);
    wanted_update();
}

void notify_unlisten(struct notify_listener *listener) {
    list_remove_listener(&listeners, &listener->link);
    wanted_update();
}

void notify_set_classes(struct notify_listener *listener, uint32_t classes) {
    listener->classes = classes;
    wanted_update();
}

void notify_dispatch(struct db *db, enum notify_class class, const char *event, struct slice key) {
    list_each_entry(&listeners, struct notify_listener, link, listener) {
        if (listener->classes & class) listener->event(listener, db, class, event, key);
    }
}
