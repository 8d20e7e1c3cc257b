/* linked_list.h: an intrusive doubly linked list. The link is a member of the element, so linking allocates nothing and
 * removal is O(1). container_of() gives the element of a link.
 *
 * Iteration. The body of list_each may remove any element, including the current and the next one, and may free it: an
 * iteration registers with its list, and list_remove() moves every iteration at the removed link to the link after it.
 * An iteration ends when its list becomes empty, so the body may then free the list itself. It visits an element that
 * the body appends if another element still follows the current one.
 *
 * Rejected: saving only the next link before the body runs. A callback that closes a client can remove the next
 * element, and the bodies of most iterations in the server run such callbacks.
 *
 * An iteration changes its list, so a list shared between threads needs a lock even for iteration. */
#pragma once
#include "lib/system/must.h"
#include <stdbool.h>
#include <stddef.h>

struct list_link {
    struct list_link *next, *prev;
};
struct list_walk;
struct list {
    struct list_link head; /* a ring through head; empty: both point at head */
    size_t len;
    struct list_walk *walks; /* active iterations, innermost first */
};
/* The position of one list_each. */
struct list_walk {
    struct list *list; /* NULL: the list became empty */
    struct list_link *next;
    struct list_walk *outer;
};
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* The initial value of a list that is not on the stack: static struct list items = LIST_INIT(items). */
#define LIST_INIT(list)                                                                                                \
    {                                                                                                                  \
        .head = { &(list).head, &(list).head }                                                                         \
    }

static inline bool list_is_linked(const struct list_link *link) {
    return link->next != NULL;
}
static inline void list_init(struct list *list) {
    list->head.next = list->head.prev = &list->head;
    list->len = 0;
    list->walks = NULL;
}
/* The link is in no list. It begins as zeros. */
static inline void list_insert_before(struct list *list, struct list_link *at, struct list_link *link) {
    must(!list_is_linked(link));
    link->next = at, link->prev = at->prev;
    at->prev->next = link, at->prev = link;
    list->len++;
}
static inline void list_append(struct list *list, struct list_link *link) {
    list_insert_before(list, &list->head, link);
}
static inline void list_prepend(struct list *list, struct list_link *link) {
    list_insert_before(list, list->head.next, link);
}
void list_walks_pass(struct list *list, const struct list_link *removed); /* for list_remove only */
/* Removes the link from its list; list_is_linked() is false afterwards. */
static inline void list_remove(struct list *list, struct list_link *link) {
    must(list_is_linked(link) && list->len > 0);
    if (__builtin_expect(list->walks != NULL, 0)) list_walks_pass(list, link);
    link->prev->next = link->next, link->next->prev = link->prev;
    link->next = link->prev = NULL;
    list->len--;
}
static inline struct list_link *list_first(struct list *list) {
    return list->head.next == &list->head ? NULL : list->head.next;
}
static inline struct list_link *list_next(struct list *list, struct list_link *link) {
    return link->next == &list->head ? NULL : link->next;
}

struct list_walk *list_walk_start(struct list_walk *walk, struct list *list);
/* Returns the next link; NULL: the end. */
static inline struct list_link *list_walk_step(struct list_walk *walk) {
    struct list_link *link = walk->next;
    if (!walk->list || link == &walk->list->head) return NULL;
    walk->next = link->next;
    return link;
}
static inline void *list_walk_entry(struct list_walk *walk, size_t offset) {
    struct list_link *link = list_walk_step(walk);
    return link ? (char *)link - offset : NULL;
}
/* Walks of a list end in the reverse order of their starts, because they belong to nested blocks. */
static inline void list_walk_end(struct list_walk *walk) {
    if (!walk->list) return;
    must(walk->list->walks == walk);
    walk->list->walks = walk->outer;
}
/* Runs the following statement for each link of the list. `break`, `continue`, `return` and `goto` work as in a loop.
 */
#define list_each(list, link)                                                                                          \
    for (struct list_walk link##_walk __attribute__((cleanup(list_walk_end))),                                         \
         *link##_once = list_walk_start(&link##_walk, (list));                                                         \
         link##_once; link##_once = NULL)                                                                              \
        for (struct list_link * link; (link = list_walk_step(&link##_walk));)
/* The same for the elements: `member` is their link. Declares the loop variable: list_each_entry(clients_all(), struct
 * client, link, client) … */
#define list_each_entry(list, type, member, item)                                                                      \
    for (struct list_walk item##_walk __attribute__((cleanup(list_walk_end))),                                         \
         *item##_once = list_walk_start(&item##_walk, (list));                                                         \
         item##_once; item##_once = NULL)                                                                              \
        for (type * item; (item = list_walk_entry(&item##_walk, offsetof(type, member)));)

/* Listeners. A module that reports events keeps a list of listeners: structs of callbacks, each with a link. Listeners
 * come and go by X_listen() and X_unlisten() of that module, which use these two. Adding an element that is in the list
 * does nothing, and neither does removing one that is not. */
static inline bool list_add_listener(struct list *list, struct list_link *link) {
    if (list_is_linked(link)) return false;
    list_append(list, link);
    return true;
}
static inline bool list_remove_listener(struct list *list, struct list_link *link) {
    if (!list_is_linked(link)) return false;
    list_remove(list, link);
    return true;
}
/* Calls one callback of each listener that has it. */
#define listeners_call(list, type, callback, ...)                                                                      \
    list_each_entry(list, type, link, listener)                                                                        \
        if (listener->callback) listener->callback(__VA_ARGS__)
