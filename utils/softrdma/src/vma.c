/* Asks the kernel what is mapped at an address: PROCMAP_QUERY (Linux 6.11) answers for one address in about a
 * microsecond. Older kernels are asked by reading /proc/self/maps, which costs O(mappings). */
#define _GNU_SOURCE
#include "vma.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* From linux/fs.h of 6.11; older headers lack it. */
struct procmap_query {
    uint64_t size, query_flags, query_addr;
    uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
    uint32_t dev_major, dev_minor;
    uint32_t vma_name_size, build_id_size;
    uint64_t vma_name_addr, build_id_addr;
};
#define PROCMAP_QUERY_IOCTL _IOWR('f', 17, struct procmap_query)
enum { VMA_READABLE = 1, VMA_WRITABLE = 2, VMA_EXECUTABLE = 4, VMA_SHARED = 8 };

static int maps_fd = -1;
static bool query_missing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void vma_forget(void) {
    if (maps_fd >= 0) close(maps_fd);
    maps_fd = -1;
    pthread_mutex_init(&lock, NULL);
}

static int query_kernel(uint64_t addr, struct vma *vma) {
    char name[64] = "";
    struct procmap_query q = {.size = sizeof(q),
                              .query_addr = addr,
                              .vma_name_addr = (uint64_t)(uintptr_t)name,
                              .vma_name_size = sizeof(name)};
    if (ioctl(maps_fd, PROCMAP_QUERY_IOCTL, &q)) {
        if (errno == ENAMETOOLONG) { /* some long file name: certainly not the stack */
            q.vma_name_size = 0;
            q.vma_name_addr = 0;
            if (ioctl(maps_fd, PROCMAP_QUERY_IOCTL, &q)) return errno == ENOENT ? -EFAULT : -ENOSYS;
        } else {
            return errno == ENOENT ? -EFAULT : -ENOSYS;
        }
    }
    *vma = (struct vma){.start = q.vma_start,
                        .end = q.vma_end,
                        .offset = q.vma_offset,
                        .inode = q.inode,
                        .dev = makedev(q.dev_major, q.dev_minor),
                        .page_size = q.vma_page_size,
                        .read = q.vma_flags & VMA_READABLE,
                        .write = q.vma_flags & VMA_WRITABLE,
                        .exec = q.vma_flags & VMA_EXECUTABLE,
                        .shared = q.vma_flags & VMA_SHARED,
                        .stack = !strncmp(name, "[stack", 6)};
    return 0;
}

static int read_maps(uint64_t addr, struct vma *vma) {
    FILE *f = fopen("/proc/self/maps", "re");
    if (!f) return -ENOSYS;
    char line[4600];
    int found = -EFAULT;
    while (found && fgets(line, sizeof(line), f)) {
        unsigned long long start, end, offset, inode;
        unsigned int major_nr, minor_nr;
        char perms[5], name[16] = "";
        if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu %15s", &start, &end, perms, &offset, &major_nr, &minor_nr,
                   &inode, name) < 7)
            continue;
        if (addr < start || addr >= end) continue;
        *vma = (struct vma){.start = start,
                            .end = end,
                            .offset = offset,
                            .inode = inode,
                            .dev = makedev(major_nr, minor_nr),
                            .page_size = 4096,
                            .read = perms[0] == 'r',
                            .write = perms[1] == 'w',
                            .exec = perms[2] == 'x',
                            .shared = perms[3] == 's',
                            .stack = !strncmp(name, "[stack", 6)};
        found = 0;
    }
    fclose(f);
    return found;
}

int vma_find(uint64_t addr, struct vma *vma) {
    int r = -ENOSYS;
    pthread_mutex_lock(&lock);
    if (!query_missing) {
        if (maps_fd < 0) maps_fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
        if (maps_fd >= 0) r = query_kernel(addr, vma);
        if (r == -ENOSYS) query_missing = true;
    }
    pthread_mutex_unlock(&lock);
    return r == -ENOSYS ? read_maps(addr, vma) : r;
}
