/* lease.h: when replies may leave: which writes are committed, and when a primary may answer reads. A state
 * machine without clock and connections, as machine.h; the simulators run it. As Raft's commit index, with lease
 * reads, and with ReadIndex where there is no lease.
 *
 * A mark says that what was issued to the reply barrier up to this sequence number ends at this offset of the stream. A
 * commit up to an offset releases all marks up to there.
 *
 * Lease: a primary may answer a read at once while no other server can lead. N replicas promise nobody a term for
 * QUORUM_LEASE_MS after they have acknowledged something (machine.h). When they have acknowledged bytes that none of
 * them was sent before a time T, they did so after T, and the lease lasts until T + QUORUM_LEASE_COUNTED_MS. An
 * acknowledgement of older bytes proves nothing, however late it is read: it may have waited in a socket while this
 * process was frozen and another server was elected. So the time of a mark is one at which some bytes before its offset
 * were not sent yet, and a mark without such bytes has none.
 *
 * Question: a read that finds no lease waits for an acknowledgement of bytes that are sent after it was taken, whatever
 * else waits. At the end of the turn the stream gets a COMMIT, once for all reads of the turn: after the last of them,
 * because a part of the stream may be sent within the turn. While the stream must not grow (CLUSTER FAILOVER waits for
 * a replica that has all of it) the reads go on waiting, until it may, or until this server stands down and closes
 * their clients.
 *
 * Clocks: times are microseconds of any clock that also counts the time while the machine is suspended, and
 * whose rate differs from that of the replicas' clocks by less than a quarter: clock_boot_us(), which the kernel
 * derives from one oscillator and NTP adjusts by at most 0.05 %. A hypervisor that stops a machine for longer than the
 * difference of the two leases, and hides that from its clocks (a live migration, a snapshot), breaks this. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QUORUM_LEASE_MS = 1000,        /* as replicas keep it, from the acknowledgement */
    QUORUM_LEASE_COUNTED_MS = 750, /* as the primary counts it, from the time of sending */
    QUORUM_HEARTBEAT_MS = 200      /* COMMIT, so that acknowledgements renew the lease */
};

struct quorum_mark {
    uint64_t sequence; /* the last number that was issued before the mark */
    int64_t offset;    /* the end of the stream at the mark */
    uint64_t since;    /* when something began to wait for the mark */
    uint64_t time;     /* some bytes before the offset were not sent yet at this time; 0: not known, so an
                          acknowledgement proves nothing */
};
struct quorum_lease {
    struct quorum_mark *marks; /* a ring of those that are not committed; allocated */
    size_t first, count, size; /* of the ring */
    int64_t committed;         /* the offset up to which the stream is committed; -1: nothing is */
    /* Sequence numbers of the reply barrier. */
    uint64_t issued;   /* the last one */
    uint64_t released; /* the last one whose reply may leave */
    uint64_t marked;   /* the last one with a mark */
    /* Changes. */
    uint64_t changed_at; /* the time of the first change without a mark: none of its bytes was sent before; 0: none */
    int64_t written_at;  /* the offset of the end of the last change */
    /* Reads without a lease. */
    uint64_t question;        /* the number of the reads for which no bytes were sent yet; 0: there are none */
    uint64_t asked_at;        /* the time of the first of these reads */
    uint64_t before_question; /* the last number that was issued before the question */
    /* The lease. */
    uint64_t from;     /* the time at which it began; 0: there is none */
    uint64_t beat_at;  /* the time of the last heartbeat */
    int64_t announced; /* the committed offset in the last COMMIT */
};
/* Forgets everything. The data up to `offset`, and what was issued up to `sequence`, are not known to be committed. */
void quorum_lease_reset(struct quorum_lease *lease, uint64_t sequence, int64_t offset, uint64_t now);
void quorum_lease_free(struct quorum_lease *lease);

/* Sequence numbers, offsets and times do not go back. */

/* A change was issued, and its bytes were not sent. `now` is read only while `changed_at` is 0. */
void quorum_lease_changed(struct quorum_lease *lease, uint64_t sequence, uint64_t now);
/* A primary executes a read, or is about to show its data in another way. */
enum quorum_read {
    QUORUM_READ_PASSES, /* it may show the data when all that was issued before is released */
    /* It may when the last number that was issued is released: that belongs to the question of this turn, or is later.
     */
    QUORUM_READ_WAITS,
    QUORUM_READ_ASKS /* issue a number, pass it to quorum_lease_asked(), and wait for its release */
};
enum quorum_read quorum_lease_read(const struct quorum_lease *lease, uint64_t now);
void quorum_lease_asked(struct quorum_lease *lease, uint64_t sequence, uint64_t now);
bool quorum_lease_holds(const struct quorum_lease *lease, uint64_t now);

/* The end of a turn: whether a COMMIT is to be written, if the stream may grow. `leads`: to renew the lease, too. */
bool quorum_lease_asks(const struct quorum_lease *lease, bool leads, uint64_t now);
/* The stream ended at `from`, at the time `now`; then it was written up to `to`, and none of that was sent yet. */
void quorum_lease_mark(struct quorum_lease *lease, int64_t from, int64_t to, uint64_t now);
/* The stream up to `offset` is committed. True: more is `released` than before. */
bool quorum_lease_commit(struct quorum_lease *lease, int64_t offset);
static inline bool quorum_lease_all_released(const struct quorum_lease *lease) {
    return lease->issued == lease->released;
}
/* Since when the oldest reply waits; 0: none does. */
uint64_t quorum_lease_waits_since(const struct quorum_lease *lease);
/* Whether replicas do not know yet that something is committed that they could show; what COMMIT says next. */
bool quorum_lease_has_news(const struct quorum_lease *lease);
int64_t quorum_lease_announce(struct quorum_lease *lease);
