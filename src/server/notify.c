/* notify.c: hands keyspace events to the registered receivers. See notify.h. */
#include "server/notify.h"

static struct list receivers = {.head = {&receivers.head, &receivers.head}};
uint32_t notify_wanted;

static void wanted_update(void) {
    notify_wanted = 0;
    list_each(&receivers, link) notify_wanted |= container_of(link, struct notify_receiver, link)->classes;
}

void notify_listen(struct notify_receiver *receiver) {
    list_append(&receivers, &receiver->link);
    wanted_update();
}

void notify_unlisten(struct notify_receiver *receiver) {
    list_remove(&receivers, &receiver->link);
    wanted_update();
}

void notify_set_classes(struct notify_receiver *receiver, uint32_t classes) {
    receiver->classes = classes;
    wanted_update();
}

void notify_dispatch(struct db *db, enum notify_class class, const char *event, struct slice key) {
    list_each(&receivers, link) {
        struct notify_receiver *receiver = container_of(link, struct notify_receiver, link);
        if (receiver->classes & class) receiver->event(receiver, db, class, event, key);
    }
}
