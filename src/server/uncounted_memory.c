/* uncounted_memory.c: see uncounted_memory.h. */
#include "server/uncounted_memory.h"
#include "net/socket.h"
#include "store/parts.h"

static struct list uncounted = LIST_INIT(uncounted);

void uncounted_memory_add(struct uncounted_memory *memory) {
    list_append(&uncounted, &memory->link);
}

bool uncounted_memory_exists(void) {
    return uncounted.len != 0 || departed_memory() != 0;
}

size_t uncounted_memory(void) {
    size_t bytes = socket_idle_memory() + departed_memory();
    list_each(&uncounted, link) bytes += container_of(link, struct uncounted_memory, link)->bytes();
    return bytes;
}
