/* What is mapped at an address of this process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct vma {
    uint64_t start, end;
    uint64_t offset, inode, dev;
    uint64_t page_size;
    bool read, write, exec, shared;
    bool stack;
};

/* The mapping that covers `addr`: 0, or -EFAULT when there is none, or -ENOSYS when the kernel would not
 * say. */
int vma_find(uint64_t addr, struct vma *vma);
void vma_forget(void); /* in a forked child */
