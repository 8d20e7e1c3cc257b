/* uncounted_memory.h: memory that does not count against maxmemory: buffers of replicas and of the append-only file,
 * bytes between threads, keys that left their database and that a snapshot has not read. */
#pragma once
#include "lib/structures/linked_list.h"
#include <stdbool.h>
#include <stddef.h>

struct uncounted_memory {
    struct list_link link;
    size_t (*bytes)(void);
};
void uncounted_memory_add(struct uncounted_memory *memory);
bool uncounted_memory_exists(void);
size_t uncounted_memory(void); /* bytes: the sum over all that was added, idle buffers of sockets, and such keys */
