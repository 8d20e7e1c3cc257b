/* How registered memory comes to lie in the arena.
 *
 * Only whole pages that lie inside the registered range and belong to a private anonymous mapping are moved:
 * copied into a span of the arena, then replaced by a mapping of it. The partial pages at the ends hold the
 * program's other data; sharing them would undo the copy-on-write a forked child relies on, so they stay
 * where they are and peers reach them by process_vm_readv/writev. The same goes for files, shared memory and
 * the stack.
 *
 * Regions may overlap, so what is moved is counted: an extent is one moved range, and each region holds the
 * extents it touches. With the last hold gone the pages move back, in one mremap, and the memory is private
 * again. A program may also have unmapped the range before deregistering it; so the kernel is asked what is
 * there before anything is put back.
 *
 * Absent pages are not copied (pagemap tells), and pages never written stay absent (mincore and SEEK_DATA tell):
 * registering a large fresh buffer costs the pages that get used.
 *
 * A write by another thread to the range while it is being registered or deregistered may be lost; a card has
 * no such window. Rejected: sharing the end pages (breaks fork); userfaultfd write protection to close the
 * window (privileges). */
#define _GNU_SOURCE
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arena.h"
#include "vma.h"

#define HUGE_PAGE       (2ull << 20)
#define PAGEMAP_PRESENT (3ull << 62) /* present or swapped */

struct extent {
    uint64_t va, len;
    struct arena_span *span;
    uint32_t holds;
    int prot;
    bool indexed; /* in the table; not when the program has unmapped it meanwhile */
};

static struct extent **table; /* sorted by address, disjoint */
static uint32_t table_len, table_capacity;
static bool dont_fork;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void pages_lock(void) {
    pthread_mutex_lock(&lock);
}
void pages_unlock(void) {
    pthread_mutex_unlock(&lock);
}

/* The first extent that ends after `addr`. */
static uint32_t table_find(uint64_t addr) {
    uint32_t lo = 0, hi = table_len;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (table[mid]->va + table[mid]->len <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static int table_add(struct extent *e) {
    if (table_len == table_capacity) {
        uint32_t capacity = table_capacity ? table_capacity * 2 : 64;
        struct extent **bigger = realloc(table, capacity * sizeof(*bigger));
        if (!bigger) return -ENOMEM;
        table = bigger;
        table_capacity = capacity;
    }
    uint32_t at = table_find(e->va);
    memmove(table + at + 1, table + at, (table_len - at) * sizeof(*table));
    table[at] = e;
    table_len++;
    e->indexed = true;
    return 0;
}

static void table_drop(uint32_t at) {
    table[at]->indexed = false;
    memmove(table + at, table + at + 1, (table_len - at - 1) * sizeof(*table));
    table_len--;
}

static void extent_free(struct extent *e) {
    arena_span_free(e->span);
    free(e);
}

static bool vma_is_extent(const struct vma *v, const struct extent *e, uint64_t addr) {
    return v->shared && v->inode == arena.inode && v->offset + (addr - v->start) == e->span->off + (addr - e->va);
}

static void copy_present_pages(uint64_t va, uint64_t len, uint8_t *to) {
    uint64_t map[512];
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (uint64_t done = 0; done < len;) {
        uint64_t pages = (len - done) / PAGE;
        if (pages > ARRAY_LEN(map)) pages = ARRAY_LEN(map);
        ssize_t got = fd < 0 ? -1 : pread(fd, map, pages * 8, (off_t)((va + done) / PAGE * 8));
        for (uint64_t i = 0; i < pages; i++, done += PAGE)
            if (got != (ssize_t)(pages * 8) || (map[i] & PAGEMAP_PRESENT))
                memcpy(to + done, (const void *)(uintptr_t)(va + done), PAGE);
    }
    if (fd >= 0) close(fd);
}

/* Moves [va, va + len), whole pages of one private anonymous mapping. */
static int extent_create(uint64_t va, uint64_t len, int prot) {
    struct extent *e = calloc(1, sizeof(*e));
    if (!e) return -ENOMEM;
    uint64_t align = len >= HUGE_PAGE ? HUGE_PAGE : PAGE;
    e->span = arena_span_alloc(len, align, va);
    if (!e->span) {
        free(e);
        return -ENOMEM;
    }
    *e = (struct extent){.va = va, .len = len, .span = e->span, .prot = prot};
    copy_present_pages(va, len, arena_ptr(e->span->off));
    void *at = (void *)(uintptr_t)va;
    if (table_add(e) ||
        mmap(at, len, prot, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, arena.fd, (off_t)e->span->off) == MAP_FAILED) {
        if (e->indexed) table_drop(table_find(va));
        extent_free(e);
        return -ENOMEM;
    }
    if (align == HUGE_PAGE) madvise(at, len, MADV_HUGEPAGE);
    if (dont_fork) madvise(at, len, MADV_DONTFORK);
    return 0;
}

/* The arena's pages [base, base + len) that exist. mincore() looks at these pages alone; SEEK_HOLE would walk on
 * through all the data behind them, to the end of the arena. A page that mincore() does not see may have been swapped
 * out: SEEK_DATA knows it, and jumps over holes at no cost. */
static void copy_written_pages(uint8_t *to, uint64_t base, uint64_t len) {
    unsigned char resident[512];
    uint64_t end = base + len, from = base, until = base; /* resident[] tells of [from, until) */
    for (uint64_t at = base; at < end;) {
        if (at >= until) {
            uint64_t pages = (end - at) / PAGE;
            if (pages > ARRAY_LEN(resident)) pages = ARRAY_LEN(resident);
            if (mincore(arena_ptr(at), pages * PAGE, resident)) memset(resident, 0, pages);
            from = at;
            until = at + pages * PAGE;
        }
        if (!(resident[(at - from) / PAGE] & 1)) {
            off_t data = lseek(arena.fd, (off_t)at, SEEK_DATA);
            if (data < 0 || (uint64_t)data >= end) return;
            at = round_down((uint64_t)data, PAGE);
            if (at >= until) continue;
        }
        uint64_t stop = at + PAGE;
        while (stop < until && (resident[(stop - from) / PAGE] & 1)) stop += PAGE;
        memcpy(to + (at - base), arena_ptr(at), stop - at);
        at = stop;
    }
}

/* Puts private memory with the same bytes back at the part of the extent that is still mapped. */
static void restore_range(struct extent *e, uint64_t from, uint64_t to) {
    uint64_t len = to - from, base = e->span->off + (from - e->va);
    uint8_t *fresh = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fresh == MAP_FAILED) return; /* the program keeps the arena's pages: still the right bytes */
    copy_written_pages(fresh, base, len);
    mprotect(fresh, len, e->prot);
    if (mremap(fresh, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(uintptr_t)from) == MAP_FAILED)
        munmap(fresh, len);
}

static void extent_restore(struct extent *e) {
    struct vma v;
    for (uint64_t at = e->va, end = e->va + e->len; at < end;) {
        if (vma_find(at, &v)) {
            at += PAGE;
            continue;
        }
        uint64_t to = v.end < end ? v.end : end;
        if (vma_is_extent(&v, e, at)) restore_range(e, at, to);
        at = to;
    }
}

static void extent_unhold(struct extent *e) {
    if (--e->holds) return;
    extent_restore(e);
    if (e->indexed) table_drop(table_find(e->va));
    extent_free(e);
}

/* Extents that claim [from, to), where the kernel says something else is mapped now. */
static void forget_unmapped(uint64_t from, uint64_t to) {
    for (uint32_t i = table_find(from); i < table_len && table[i]->va < to;) table_drop(i);
}

static int move_part(const struct vma *v, uint64_t from, uint64_t to) {
    bool movable = !v->shared && !v->inode && !v->stack && v->read;
    uint32_t i = table_find(from);
    bool known = i < table_len && table[i]->va <= from && vma_is_extent(v, table[i], from);
    if (known) return 0;
    forget_unmapped(from, to);
    uint64_t unit = v->page_size ? v->page_size : PAGE;
    from = round_up(from, unit);
    to = round_down(to, unit);
    if (!movable || from >= to) return 0;
    int prot = PROT_READ | (v->write ? PROT_WRITE : 0) | (v->exec ? PROT_EXEC : 0);
    return extent_create(from, to - from, prot);
}

static int move_all(uint64_t addr, uint64_t len, bool writable) {
    struct vma v;
    for (uint64_t at = addr, end = addr + len; at < end;) {
        int r = vma_find(at, &v);
        if (r == -ENOSYS) return 0; /* nothing can be known: everything stays, peers use process_vm */
        if (r || !v.read || (writable && !v.write)) return -EFAULT;
        uint64_t to = v.end < end ? v.end : end;
        if ((r = move_part(&v, at, to))) return r;
        at = to;
    }
    return 0;
}

static int hold_extents(uint64_t addr, uint64_t len, struct page_hold *hold) {
    uint32_t first = table_find(addr), n = 0;
    while (first + n < table_len && table[first + n]->va < addr + len) n++;
    *hold = (struct page_hold){0};
    if (!n) return 0;
    hold->extents = calloc(n, sizeof(*hold->extents));
    hold->segs = calloc(n, sizeof(*hold->segs));
    if (!hold->extents || !hold->segs) {
        free(hold->extents);
        free(hold->segs);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct extent *e = table[first + i];
        uint64_t from = e->va > addr ? e->va : addr;
        uint64_t to = e->va + e->len < addr + len ? e->va + e->len : addr + len;
        hold->segs[i] = (struct mr_seg){from - addr, to - addr, e->span->off + (from - e->va)};
        hold->extents[i] = e;
        e->holds++;
    }
    hold->count = hold->nseg = n;
    return 0;
}

/* Extents made for a hold that failed later have no holder. */
static void drop_unheld(uint64_t addr, uint64_t len) {
    for (uint32_t i = table_find(addr); i < table_len && table[i]->va < addr + len;)
        if (table[i]->holds) {
            i++;
        } else {
            table[i]->holds = 1;
            extent_unhold(table[i]);
        }
}

int pages_hold(uint64_t addr, uint64_t len, bool writable, struct page_hold *hold) {
    pages_lock();
    int r = move_all(addr, len, writable);
    if (!r) r = hold_extents(addr, len, hold);
    if (r) drop_unheld(addr, len);
    pages_unlock();
    return r;
}

int pages_check(uint64_t addr, uint64_t len) {
    struct vma v;
    for (uint64_t at = addr; at < addr + len; at = v.end) {
        int r = vma_find(at, &v);
        if (r == -ENOSYS) return 0;
        if (r || !v.read) return -EFAULT;
    }
    return 0;
}

void pages_release(struct page_hold *hold) {
    pages_lock();
    for (uint32_t i = 0; i < hold->count; i++) extent_unhold(hold->extents[i]);
    pages_unlock();
    free(hold->extents);
    free(hold->segs);
    *hold = (struct page_hold){0};
}

void pages_fork_init(void) {
    pages_lock();
    dont_fork = true;
    for (uint32_t i = 0; i < table_len; i++) madvise((void *)(uintptr_t)table[i]->va, table[i]->len, MADV_DONTFORK);
    pages_unlock();
}

bool pages_fork_safe(void) {
    return dont_fork;
}

/* The child gets a private view of what was moved, unless ibv_fork_init was called: then it has no such
 * pages, as with a card. Called with the lock held since before the fork. */
void pages_forget_in_child(void) {
    for (uint32_t i = 0; !dont_fork && i < table_len; i++) {
        struct extent *e = table[i];
        struct vma v;
        if (vma_find(e->va, &v) || !vma_is_extent(&v, e, e->va)) continue;
        uint64_t len = v.end - e->va < e->len ? v.end - e->va : e->len;
        /* Without it the child would write into its parent's memory. */
        if (mmap((void *)(uintptr_t)e->va, len, e->prot, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, arena.fd,
                 (off_t)e->span->off) == MAP_FAILED)
            abort();
    }
    table = NULL;
    table_len = table_capacity = 0;
    pthread_mutex_init(&lock, NULL);
}
