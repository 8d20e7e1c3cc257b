/* memory.h: every allocation of the program goes through here, so that it is counted.
 *
 * The allocator is jemalloc or libc's (MALLOC=jemalloc|libc). Counting costs one thread-local addition: each thread has
 * a counter of its own on a cache line of its own, and mem_used() adds them up. A block may be freed by another thread
 * than the one that allocated it; the sum stays right.
 *
 * mem_alloc and friends never return NULL: running out of memory calls the handler set by mem_set_oom_handler() and
 * then aborts. Where a peer, a client or a file chose the size, use the mem_try_ functions and answer with an error. */
#ifndef LIB_MEMORY_H
#define LIB_MEMORY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t size) __attribute__((malloc, alloc_size(1), returns_nonnull));
void *mem_calloc(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
void *mem_realloc(void *block, size_t size);
void *mem_try_alloc(size_t size);
void *mem_try_calloc(size_t count, size_t size);
void *mem_try_realloc(void *block, size_t size);
/* Would mem_alloc(size) succeed now? For a size that a client chose, ahead of calls that allocate about as much and
 * cannot fail. Costs an allocation and a release, untouched: ask only about large sizes. */
bool mem_is_available(size_t size);
/* As above, and tells how many bytes the block really holds; all of them may be used. */
void *mem_alloc_usable(size_t size, size_t *usable);
void *mem_realloc_usable(void *block, size_t size, size_t *usable);
void mem_free(void *block);         /* NULL is allowed */
size_t mem_size(const void *block); /* usable size */
char *mem_strdup(const char *text);
char *mem_strndup(const char *text, size_t len);

size_t mem_used(void); /* bytes in use, over all threads */
void mem_count(
    size_t bytes); /* an allocator beside this one has given out, or (a negative number) got back, so many bytes */
void mem_set_oom_handler(void (*handler)(size_t size));

/* What the allocator and the kernel say; zero where the allocator cannot tell. Slow: for INFO and cron. */
struct mem_stats {
    size_t allocated, active, resident, retained, muzzy, metadata;
    size_t rss;          /* of the process, from the kernel */
    size_t total_system; /* physical memory of the machine */
};
void mem_read_stats(struct mem_stats *stats);
const char *mem_allocator(void); /* "jemalloc-5.3.0" or "libc" */
void mem_purge(void);            /* give unused pages back to the kernel */
#endif
