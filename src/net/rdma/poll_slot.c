/* poll_slot.c: see poll_slot.h. */
#include "net/rdma/poll_slot.h"
#include <sys/mman.h>

enum { SLOT_SIZE = 4096, LINE = 64 };

static bool slot_register(struct rdma_polls *polls, struct rdma_poll_slot *slot) {
    size_t at = (size_t)(slot - polls->slots);
    char *page = polls->pages + at * SLOT_SIZE;
    slot->mr = rdma_register(polls->memory, page, SLOT_SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                             RDMA_MEMORY_CONTROL);
    if (!slot->mr) return false;
    slot->word =
        (_Atomic uint64_t *)(void *)(page + at * LINE % SLOT_SIZE); /* spread the words over the sets of the cache */
    slot->next = polls->ready;
    polls->ready = slot;
    polls->usable++;
    return true;
}

static inline int slots_wanted(const struct rdma_polls *polls) {
    return polls->users < RDMA_POLLED_MAX ? (int)polls->users : RDMA_POLLED_MAX;
}

/* Unregisters the oldest stale slot, whose key a peer knows; registers it again if it is needed. */
static void recycle_slot(struct rdma_polls *polls) {
    struct rdma_poll_slot *slot = polls->stale;
    polls->stale = slot->next;
    if (!rdma_unregister(polls->memory, slot->mr, RDMA_MEMORY_CONTROL))
        return; /* the device failed to unregister it: the slot is lost */
    slot->mr = NULL;
    if (polls->usable < slots_wanted(polls)) slot_register(polls, slot);
}

void rdma_polls_add(struct rdma_polls *polls) {
    if (polls->usable >= slots_wanted(polls)) return;
    if (polls->stale) {
        recycle_slot(polls);
        return;
    }
    if (!polls->pages) {
        size_t size = SLOT_SIZE * RDMA_POLLED_MAX;
        void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) return;
        madvise(pages, size, MADV_DONTFORK);
        polls->pages = pages;
    }
    for (int i = 0; i < polls->made; i++) {
        if (polls->slots[i].mr) continue;
        slot_register(polls, &polls->slots[i]);
        return;
    }
    if (polls->made < RDMA_POLLED_MAX && slot_register(polls, &polls->slots[polls->made])) polls->made++;
}

struct rdma_poll_slot *rdma_poll_slot_take(struct rdma_polls *polls) {
    struct rdma_poll_slot *slot = polls->ready;
    if (slot) polls->ready = slot->next;
    return slot;
}

void rdma_poll_slot_give(struct rdma_polls *polls, struct rdma_poll_slot *slot) {
    slot->next = polls->stale;
    polls->stale = slot;
    polls->usable--;
    if (polls->memory->work) polls->memory->work(polls->memory);
}

void rdma_polls_tidy(struct rdma_polls *polls) {
    while (polls->stale) recycle_slot(polls);
    while (polls->ready && polls->usable > slots_wanted(polls)) {
        struct rdma_poll_slot *slot = polls->ready;
        polls->ready = slot->next;
        polls->usable--;
        if (rdma_unregister(polls->memory, slot->mr, RDMA_MEMORY_CONTROL)) slot->mr = NULL;
    }
}

void rdma_polls_free(struct rdma_polls *polls) {
    polls->users = 0;
    rdma_polls_tidy(polls);
    if (polls->pages) munmap(polls->pages, SLOT_SIZE * RDMA_POLLED_MAX);
}
