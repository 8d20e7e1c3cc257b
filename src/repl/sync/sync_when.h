/* sync_when.h: when replies may leave: which writes are committed, and how long reads may be answered without asking
 * the replicas. No clock of its own: times are in any unit, here lib/system/ticks.h.
 *
 * A mark says that the write with this sequence number of the reply barrier ends at this offset of the stream, and when
 * it was sent. A commit up to an offset releases all marks up to there. The time of the newest of them begins the
 * lease: the replicas have acknowledged after that time (sync_who.h). */
#ifndef REPL_SYNC_SYNC_WHEN_H
#define REPL_SYNC_SYNC_WHEN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sync_mark {
    uint64_t sequence;
    int64_t offset;
    uint64_t time;
};
struct sync_when {
    struct sync_mark *marks; /* a ring; allocated */
    size_t first, count, size;
    int64_t committed;
    uint64_t lease_from; /* 0: none */
};
void sync_when_reset(struct sync_when *when); /* forgets everything */
/* Sequence numbers, offsets and times do not go back. */
void sync_when_mark(struct sync_when *when, uint64_t sequence, int64_t offset, uint64_t time);
/* Returns the sequence number up to which replies may leave; 0: no more than before. */
uint64_t sync_when_commit(struct sync_when *when, int64_t offset);
/* The time of the oldest mark that is not committed; 0: all are. */
uint64_t sync_when_oldest(const struct sync_when *when);
#endif
