/* sync_when.c: see sync_when.h. */
#include "repl/sync/sync_when.h"
#include "lib/system/memory.h"

enum { FIRST_SIZE = 64, MARKS_MAX = 1 << 20 };

void sync_when_reset(struct sync_when *when) {
    mem_free(when->marks);
    *when = (struct sync_when){.committed = -1};
}

static struct sync_mark *mark_at(const struct sync_when *when, size_t index) {
    return &when->marks[(when->first + index) & (when->size - 1)];
}

static void grow(struct sync_when *when) {
    size_t size = when->size ? when->size * 2 : FIRST_SIZE;
    struct sync_mark *marks = mem_alloc(size * sizeof *marks);
    for (size_t i = 0; i < when->count; i++) marks[i] = *mark_at(when, i);
    mem_free(when->marks);
    when->marks = marks;
    when->first = 0;
    when->size = size;
}

void sync_when_mark(struct sync_when *when, uint64_t sequence, int64_t offset, uint64_t time) {
    if (when->count ==
        MARKS_MAX) { /* the last mark waits for this one; its time stays, which makes the lease shorter */
        struct sync_mark *last = mark_at(when, when->count - 1);
        last->sequence = sequence;
        last->offset = offset;
        return;
    }
    if (when->count == when->size) grow(when);
    when->count++;
    *mark_at(when, when->count - 1) = (struct sync_mark){sequence, offset, time};
}

uint64_t sync_when_commit(struct sync_when *when, int64_t offset) {
    uint64_t sequence = 0;
    if (offset > when->committed) when->committed = offset;
    while (when->count && when->marks[when->first].offset <= when->committed) {
        const struct sync_mark *mark = &when->marks[when->first];
        sequence = mark->sequence;
        when->lease_from = mark->time;
        when->first = (when->first + 1) & (when->size - 1);
        when->count--;
    }
    return sequence;
}

uint64_t sync_when_oldest(const struct sync_when *when) {
    return when->count ? when->marks[when->first].time : 0;
}
