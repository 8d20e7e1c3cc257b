/* Moves whole pages of the program's private memory into the arena, where peers can reach them, and back. */
#pragma once

#include "wire.h"

struct extent;

/* What a region holds on to. */
struct page_hold {
    struct extent **extents;
    uint32_t count;
    struct mr_seg *segs; /* in address order; lo and hi count from the start of the region */
    uint32_t nseg;
};

/* Makes [addr, addr + len) reachable as far as that is possible. 0, or -EFAULT: not mapped, or not writable
 * though `writable` asks for it; -ENOMEM. The pages stay until pages_release. */
int pages_hold(uint64_t addr, uint64_t len, bool writable, struct page_hold *hold);
/* 0, or -EFAULT: not all of it can be read. */
int pages_check(uint64_t addr, uint64_t len);
void pages_release(struct page_hold *hold);

void pages_fork_init(void); /* from now on, held pages do not exist in a forked child */
bool pages_fork_safe(void);
void pages_lock(void), pages_unlock(void);
void pages_forget_in_child(void);
