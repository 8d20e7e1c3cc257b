/* write_pause.c: see write_pause.h. */
#include "persistence/write_pause.h"
#include "formats/deferred_output.h"
#include "lib/system/log.h"
#include "persistence/persistence.h"
#include "server/clients/client.h"

static size_t pausing; /* snapshots */
static uint64_t pauses;

/* Two batches at least, so that the thread of a save has work. */
size_t write_pause_limit(void) {
    size_t limit = (size_t)persistence_settings.forkless_buffer_limit, least = 4 * sizeof(struct deferred_batch);
    return limit > least ? limit : least;
}
size_t write_pause_resume(void) {
    return write_pause_limit() / 2;
}

void write_pause_begin(bool *paused, const char *reader, size_t waiting) {
    if (*paused) return;
    *paused = true;
    if (pausing++) return;
    pauses++;
    log_notice("Writes of clients wait for %s: %zu MB are not written yet", reader, waiting >> 20);
    clients_pause(PAUSE_SNAPSHOT, PAUSE_WRITE, INT64_MAX);
}
void write_pause_end(bool *paused) {
    if (!*paused) return;
    *paused = false;
    if (!--pausing) clients_unpause(PAUSE_SNAPSHOT);
}
uint64_t write_pauses(void) {
    return pauses;
}
