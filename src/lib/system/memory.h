/* memory.h: counted allocation. Every allocation of the program goes through these functions.
 *
 * The allocator is jemalloc or libc's malloc (MALLOC=jemalloc|libc). Counting costs one thread-local addition: each
 * thread has its own counter on its own cache line, and mem_used() adds them up. Another thread may free a block; the
 * sum stays correct.
 *
 * mem_alloc() and the other plain functions never return NULL: when memory runs out they call the handler of
 * mem_set_oom_handler() and abort. Where a peer, a client or a file determines the size, use the mem_try_ functions and
 * report an error. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t size) __attribute__((malloc, alloc_size(1), returns_nonnull));
void *mem_calloc(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
void *mem_realloc(void *block, size_t size);
/* Makes room for one more element of an array of which `count` elements are used and `capacity`, a variable, fit: it
 * begins with `first` elements and doubles. */
#define mem_grow(array, count, capacity, first)                                                                        \
    do {                                                                                                               \
        if ((count) == (capacity)) {                                                                                   \
            (capacity) = (capacity) ? (capacity)*2 : (first);                                                          \
            (array) = mem_realloc((array), (size_t)(capacity) * sizeof *(array));                                      \
        }                                                                                                              \
    } while (0)
void *mem_try_alloc(size_t size);
void *mem_try_calloc(size_t count, size_t size);
void *mem_try_realloc(void *block, size_t size);
/* True: mem_alloc(size) would succeed now. For sizes that a client determines, before calls that allocate about that
 * much and cannot fail. It costs an allocation and a free of untouched memory: use it for large sizes only. */
bool mem_is_available(size_t size);
/* As above; *usable receives the real size of the block, all of which may be used. */
void *mem_alloc_usable(size_t size, size_t *usable);
void *mem_realloc_usable(void *block, size_t size, size_t *usable);
void mem_free(void *block);         /* NULL is allowed */
size_t mem_size(const void *block); /* usable size */
char *mem_strdup(const char *text);
char *mem_strndup(const char *text, size_t len);

size_t mem_used(void); /* bytes in use, over all threads */
/* Adds `bytes` that another allocator handed out to the count; a negative number subtracts bytes returned to it. */
void mem_count(size_t bytes);
/* For the allocations of a library, which count here instead of in mem_used(). NULL: out of memory. */
enum mem_library { MEM_TLS, MEM_LUA, MEM_LIBRARIES };
void *mem_library_alloc(enum mem_library library, size_t size);
void *mem_library_realloc(enum mem_library library, void *block, size_t size); /* size 0 frees */
void mem_library_free(enum mem_library library, void *block);
size_t mem_used_by_library(enum mem_library library);
void mem_set_oom_handler(void (*handler)(size_t size));

/* Statistics of the allocator and the kernel; 0 if the allocator does not provide the value. Slow: call it for INFO and
 * from the cron only.
 */
struct mem_stats {
    size_t allocated, active, resident, muzzy;
    size_t rss;          /* of the process, as the kernel reports it */
    size_t total_system; /* physical memory of the machine */
};
void mem_read_stats(struct mem_stats *stats);
const char *mem_allocator(void); /* "jemalloc-5.3.0" or "libc" */
void mem_purge(void);            /* return unused pages to the kernel */
/* Starts or stops the allocator's own thread, which returns pages to the kernel some seconds after they became unused.
 * Without it a thread returns its pages when it allocates or frees, so an idle process keeps them. False: the allocator
 * has no such thread. */
bool mem_purge_in_background(bool on);
