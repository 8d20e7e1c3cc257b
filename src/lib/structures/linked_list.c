/* linked_list.c: starts an iteration and updates active iterations after a removal; see linked_list.h. */
#include "lib/structures/linked_list.h"

struct list_walk *list_walk_start(struct list_walk *walk, struct list *list) {
    *walk = (struct list_walk){list, list->head.next, list->walks};
    list->walks = walk;
    return walk;
}

void list_walks_pass(struct list *list, const struct list_link *removed) {
    for (struct list_walk *walk = list->walks; walk; walk = walk->outer) {
        if (walk->next == removed) walk->next = removed->next;
        if (list->len == 1) walk->list = NULL;
    }
    if (list->len == 1) list->walks = NULL;
}
