/* full_sync_slow.c: see full_sync_slow.h. */
#include "repl/primary/full_sync_slow.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include <stdio.h>
#include <string.h>

enum { SLOW_MAX = 64, SLOW_MS = 3600 * 1000 };

/* The ones noted last. A replica that connects again is another client: its address and port tell who it is. */
static struct {
    char name[REPLICA_NAME_MAX];
    int64_t until_ms;
} slow[SLOW_MAX];
static unsigned slow_next;
uint64_t full_sync_dropped_slow;

static int slow_index(const char *name) {
    for (int i = 0; i < SLOW_MAX; i++)
        if (strcmp(slow[i].name, name) == 0) return i;
    return -1;
}

void full_sync_slow_note(const struct replica *replica, int64_t waited_ms) {
    const char *name = replica_name(replica);
    int i = slow_index(name);
    log_warning(
        "Replica %s kept writes of clients waiting for %lld ms in a full synchronization without fork: dropping "
        "it. Its next copy comes from a file",
        name, (long long)waited_ms);
    if (i < 0) {
        i = (int)slow_next;
        slow_next = (slow_next + 1) % SLOW_MAX;
        snprintf(slow[i].name, sizeof slow[i].name, "%s", name);
    }
    slow[i].until_ms = clock_mono_ms() + SLOW_MS;
    full_sync_dropped_slow++;
}

void full_sync_slow_forget(const struct replica *replica) {
    if (!full_sync_dropped_slow) return;
    int i = slow_index(replica_name(replica));
    if (i >= 0) slow[i].until_ms = 0;
}

bool full_sync_is_slow(const struct replica *replica) {
    if (!full_sync_dropped_slow) return false;
    int i = slow_index(replica_name(replica));
    return i >= 0 && clock_mono_ms() < slow[i].until_ms;
}
