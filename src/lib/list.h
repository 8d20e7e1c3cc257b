/* list.h: an intrusive doubly linked list. The link stands in the element, so that linking allocates nothing and an
 * element can leave in O(1). Use container_of to come from a link to its element. */
#ifndef LIB_LIST_H
#define LIB_LIST_H
#include <stdbool.h>
#include <stddef.h>

struct list_link {
    struct list_link *next, *prev;
};
struct list {
    struct list_link head; /* a ring through head; empty: both point at head */
    size_t len;
};
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void list_init(struct list *list) {
    list->head.next = list->head.prev = &list->head;
    list->len = 0;
}
static inline void list_insert_before(struct list *list, struct list_link *at, struct list_link *link) {
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
/* After removal the link is unlinked: list_is_linked() says no. */
static inline void list_remove(struct list *list, struct list_link *link) {
    link->prev->next = link->next, link->next->prev = link->prev;
    link->next = link->prev = NULL;
    list->len--;
}
static inline bool list_is_linked(const struct list_link *link) {
    return link->next != NULL;
}
static inline struct list_link *list_first(struct list *list) {
    return list->head.next == &list->head ? NULL : list->head.next;
}
static inline struct list_link *list_next(struct list *list, struct list_link *link) {
    return link->next == &list->head ? NULL : link->next;
}
/* Safe against removal of the current element. */
#define list_each(list, link)                                                                                          \
    for (struct list_link *link = (list)->head.next, *link##_next = link->next; link != &(list)->head;                 \
         link = link##_next, link##_next = link->next)
#endif
