/* sync_lease.c: see sync_lease.h. */
#include "repl/sync/sync_lease.h"
#include "lib/system/memory.h"

enum { FIRST_SIZE = 64, MARKS_MAX = 1 << 20 };

void sync_lease_free(struct sync_lease *lease) {
    mem_free(lease->marks);
    *lease = (struct sync_lease){.committed = -1};
}

static struct sync_mark *mark_at(const struct sync_lease *lease, size_t index) {
    return &lease->marks[(lease->first + index) & (lease->size - 1)];
}

static void grow(struct sync_lease *lease) {
    size_t size = lease->size ? lease->size * 2 : FIRST_SIZE;
    struct sync_mark *marks = mem_alloc(size * sizeof *marks);
    for (size_t i = 0; i < lease->count; i++) marks[i] = *mark_at(lease, i);
    mem_free(lease->marks);
    lease->marks = marks;
    lease->first = 0;
    lease->size = size;
}

static void add_mark(struct sync_lease *lease, uint64_t sequence, int64_t offset, uint64_t since, uint64_t time) {
    lease->marked = sequence;
    if (lease->count == MARKS_MAX) { /* the last mark waits for this one, and keeps its time */
        struct sync_mark *last = mark_at(lease, lease->count - 1);
        last->sequence = sequence;
        last->offset = offset;
        return;
    }
    if (lease->count == lease->size) grow(lease);
    lease->count++;
    *mark_at(lease, lease->count - 1) = (struct sync_mark){sequence, offset, since, time};
}

void sync_lease_reset(struct sync_lease *lease, uint64_t sequence, int64_t offset, uint64_t now) {
    sync_lease_free(lease);
    lease->issued = sequence;
    lease->written_at = offset;
    add_mark(lease, sequence, offset, now, 0);
}

void sync_lease_changed(struct sync_lease *lease, uint64_t sequence, uint64_t now) {
    lease->issued = sequence;
    if (!lease->changed_at) lease->changed_at = now;
}

bool sync_lease_holds(const struct sync_lease *lease, uint64_t now) {
    return lease->from && now - lease->from < SYNC_LEASE_COUNTED_MS * UINT64_C(1000);
}

enum sync_read sync_lease_read(const struct sync_lease *lease, uint64_t now) {
    if (sync_lease_holds(lease, now)) return SYNC_READ_PASSES;
    return lease->question ? SYNC_READ_WAITS : SYNC_READ_ASKS;
}

void sync_lease_asked(struct sync_lease *lease, uint64_t sequence, uint64_t now) {
    lease->before_question = lease->issued;
    lease->question = lease->issued = sequence;
    lease->asked_at = now;
}

bool sync_lease_asks(const struct sync_lease *lease, bool leads, uint64_t now) {
    return lease->question || (leads && now - lease->beat_at >= SYNC_HEARTBEAT_MS * UINT64_C(1000));
}

void sync_lease_mark(struct sync_lease *lease, int64_t from, int64_t to, uint64_t now) {
    uint64_t up_to = lease->issued, time = lease->changed_at;
    uint64_t since = time ? time : lease->question ? lease->asked_at : now;
    if (to > from) { /* after everything that was issued; what was sent before `now` does not reach `to` */
        time = lease->beat_at = now;
        lease->question = 0;
    } else if (lease->question) {
        up_to = lease->before_question;
        if (up_to == lease->marked) return;
    } else if (up_to == lease->marked) {
        return;
    }
    if (lease->changed_at) lease->written_at = from;
    /* Changes after a question that must wait keep this time: an earlier one makes the lease shorter. */
    if (up_to == lease->issued) lease->changed_at = 0;
    add_mark(lease, up_to, to, since, time);
}

bool sync_lease_commit(struct sync_lease *lease, int64_t offset) {
    uint64_t before = lease->released;
    if (offset > lease->committed) lease->committed = offset;
    while (lease->count && lease->marks[lease->first].offset <= lease->committed) {
        const struct sync_mark *mark = &lease->marks[lease->first];
        lease->released = mark->sequence;
        if (mark->time > lease->from) lease->from = mark->time;
        lease->first = (lease->first + 1) & (lease->size - 1);
        lease->count--;
    }
    return lease->released != before;
}

uint64_t sync_lease_waits_since(const struct sync_lease *lease) {
    if (lease->count) return lease->marks[lease->first].since;
    return lease->changed_at ? lease->changed_at : lease->question ? lease->asked_at : 0;
}

static int64_t known(const struct sync_lease *lease) {
    return lease->committed < lease->written_at ? lease->committed : lease->written_at;
}

bool sync_lease_has_news(const struct sync_lease *lease) {
    return lease->told < known(lease);
}

int64_t sync_lease_tell(struct sync_lease *lease) {
    return lease->told = lease->committed < 0 ? 0 : lease->committed;
}
