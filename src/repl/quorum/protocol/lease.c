/* lease.c: see lease.h. */
#include "repl/quorum/protocol/lease.h"
#include "lib/system/memory.h"

enum { FIRST_SIZE = 64, MARKS_MAX = 1 << 20 };

void quorum_lease_free(struct quorum_lease *lease) {
    mem_free(lease->marks);
    *lease = (struct quorum_lease){.committed = -1};
}

static struct quorum_mark *mark_at(const struct quorum_lease *lease, size_t index) {
    return &lease->marks[(lease->first + index) & (lease->size - 1)];
}

static void grow(struct quorum_lease *lease) {
    size_t size = lease->size ? lease->size * 2 : FIRST_SIZE;
    struct quorum_mark *marks = mem_alloc(size * sizeof *marks);
    for (size_t i = 0; i < lease->count; i++) marks[i] = *mark_at(lease, i);
    mem_free(lease->marks);
    lease->marks = marks;
    lease->first = 0;
    lease->size = size;
}

static void add_mark(struct quorum_lease *lease, uint64_t sequence, int64_t offset, uint64_t since, uint64_t time) {
    lease->marked = sequence;
    if (lease->count == MARKS_MAX) { /* the last mark waits for this one, and keeps its time */
        struct quorum_mark *last = mark_at(lease, lease->count - 1);
        last->sequence = sequence;
        last->offset = offset;
        return;
    }
    if (lease->count == lease->size) grow(lease);
    lease->count++;
    *mark_at(lease, lease->count - 1) = (struct quorum_mark){sequence, offset, since, time};
}

void quorum_lease_reset(struct quorum_lease *lease, uint64_t sequence, int64_t offset, uint64_t now) {
    quorum_lease_free(lease);
    lease->issued = sequence;
    lease->written_at = offset;
    add_mark(lease, sequence, offset, now, 0);
}

void quorum_lease_changed(struct quorum_lease *lease, uint64_t sequence, uint64_t now) {
    lease->issued = sequence;
    if (!lease->changed_at) lease->changed_at = now;
}

bool quorum_lease_holds(const struct quorum_lease *lease, uint64_t now) {
    return lease->from && now - lease->from < QUORUM_LEASE_COUNTED_MS * UINT64_C(1000);
}

enum quorum_read quorum_lease_read(const struct quorum_lease *lease, uint64_t now) {
    if (quorum_lease_holds(lease, now)) return QUORUM_READ_PASSES;
    return lease->question ? QUORUM_READ_WAITS : QUORUM_READ_ASKS;
}

void quorum_lease_asked(struct quorum_lease *lease, uint64_t sequence, uint64_t now) {
    lease->before_question = lease->issued;
    lease->question = lease->issued = sequence;
    lease->asked_at = now;
}

bool quorum_lease_asks(const struct quorum_lease *lease, bool leads, uint64_t now) {
    return lease->question || (leads && now - lease->beat_at >= QUORUM_HEARTBEAT_MS * UINT64_C(1000));
}

void quorum_lease_mark(struct quorum_lease *lease, int64_t from, int64_t to, uint64_t now) {
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

bool quorum_lease_commit(struct quorum_lease *lease, int64_t offset) {
    uint64_t before = lease->released;
    if (offset > lease->committed) lease->committed = offset;
    while (lease->count && lease->marks[lease->first].offset <= lease->committed) {
        const struct quorum_mark *mark = &lease->marks[lease->first];
        lease->released = mark->sequence;
        if (mark->time > lease->from) lease->from = mark->time;
        lease->first = (lease->first + 1) & (lease->size - 1);
        lease->count--;
    }
    return lease->released != before;
}

uint64_t quorum_lease_waits_since(const struct quorum_lease *lease) {
    if (lease->count) return lease->marks[lease->first].since;
    return lease->changed_at ? lease->changed_at : lease->question ? lease->asked_at : 0;
}

static int64_t known(const struct quorum_lease *lease) {
    return lease->committed < lease->written_at ? lease->committed : lease->written_at;
}

bool quorum_lease_has_news(const struct quorum_lease *lease) {
    return lease->announced < known(lease);
}

int64_t quorum_lease_announce(struct quorum_lease *lease) {
    return lease->announced = lease->committed < 0 ? 0 : lease->committed;
}
