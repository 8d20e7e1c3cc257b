/* rdma_polled.h: the polled word (feature RDMA_FEATURE_POLLED, its wire format in rdma_wire.h): the receiver finds the
 * small messages of a busy peer by reading memory, which costs it neither a completion nor a receive.
 *
 * Receiving.  Each of at most RDMA_POLLED_MAX connections of a device has a poll slot: a page with a memory region of
 * its own, so that no peer reaches a neighbour's, and in it one aligned word of eight bytes: the number of bytes that
 * the peer has sent, and a CRC-32C of those that it announces by words. PollBegin says where the word is; PollBegun
 * says that from here on words count, and the device's poller looks at them.
 *
 * Verification.  InfiniBand orders the execution of two WRITEs, not the moments at which memory shows their bytes.
 * Adaptive routing, relaxed ordering on the PCIe bus and regions registered with IBV_ACCESS_RELAXED_ORDERING all let
 * the word show before bytes that it announces. So a word is a hint: the receiver computes the checksum of the
 * announced bytes where they lie, and takes them only when it agrees. Otherwise it looks again in the poller's next
 * round. What memory shows alone never ends a connection; a completion does order memory, and only what completions say
 * (immediates, BufferTaken, PollEnded) is binding. Four bytes of checksum let one stale message in 2^32 pass; a message
 * is only stale for an instant, and bytes of the last lap that happen to be the same are as good as the new ones.
 *
 * The wait is bounded. A connection whose words do not agree may cost DOUBT_MAX bytes of checksums, about ten
 * microseconds; then its polling period ends early: the answer to PollEnd is a completion, which orders all bytes
 * before it, and the connection is polled again only after many immediates. So a peer that writes nonsense, or a device
 * that holds back bytes, costs time and no data.
 *
 * Message sizes.  A message of more than RDMA_POLLED_MESSAGE_MAX bytes, and the first one after RDMA_POLLED_BYTES_MAX
 * bytes of words, is announced by an immediate, which orders memory: for large messages a completion costs less than a
 * checksum, and the receiver never checks more than RDMA_POLLED_BYTES_MAX bytes at a time.
 *
 * When.  A connection is polled when `after` immediates have come since this thread last slept: then both ends are
 * awake. Polling ends when the connection was quiet for a whole tick, or when the thread is about to sleep. A period
 * that ended before it was worth its control messages makes the next one begin later, a good one soon. A connection
 * without a poll slot stays with completions.
 *
 * Sleeping.  Before the thread arms the queues it sends PollEnd to every polled peer, and does not wait for the
 * answers. Nothing is lost: the answer is a SEND behind all writes of the word, on the same connection, hence its
 * completion covers all of them; and it comes after the PollEnd, so either the poll of the queues that follows arming
 * finds it or it wakes the thread. A PollEnd that has no room in the send queue goes when a completion makes some, and
 * a full send queue always has one coming. A sleep with N peers polled costs N messages each way, so the thread spins
 * longer the more it polls: by RDMA_POLLED_PATIENCE_US for each, which is about what its messages cost both ends.
 *
 * Memory.  Poll slots are registered when connections are set up and, once a peer knew their key, anew by the loop's
 * tidy timer: never while messages flow.
 *
 * Sending.  A message is its WRITEs and one more of eight bytes, behind one doorbell, in place of the immediate.
 *
 * Rejected: slots for whole messages, flag and bytes in one WRITE: a slot can be written anew only when its reader is
 * done with it, which is one more thing to tell the peer; bytes beside the stream have to be copied back into it; and
 * order within one WRITE is not promised either. Waiting for the answers to PollEnd before sleeping: a peer that does
 * not answer would keep the thread awake. A checksum of each message alone: a word overwrites the one before, so the
 * reader may see every second one only; the checksum runs on instead. */
#ifndef NET_RDMA_POLLED_H
#define NET_RDMA_POLLED_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ibv_mr;
struct ibv_send_wr;
struct ibv_sge;
struct rdma_connection;
struct rdma_device;
struct rdma_wire_memory;
struct rdma_wire_credit;

enum {
    RDMA_POLLED_MAX = 64,
    RDMA_POLLED_PATIENCE_US = 2,
    RDMA_POLLED_MESSAGE_MAX = 1024,    /* bytes of a message that a word announces */
    RDMA_POLLED_BYTES_MAX = 32 * 1024, /* bytes announced by words in a row, without an immediate */
};

struct rdma_poll_slot {
    _Atomic uint64_t *word;      /* as rdma_wire.h lays it out */
    struct ibv_mr *mr;           /* NULL: not registered */
    struct rdma_poll_slot *next; /* of the ready or the stale ones */
};

/* What the poller goes through: all it needs of a connection that has nothing new. */
struct rdma_poll_entry {
    const _Atomic uint64_t *word;
    uint64_t seen; /* as it stands there */
    struct rdma_connection *conn;
};

/* Of a device. */
struct rdma_polls {
    char *pages; /* NULL: not needed yet */
    struct rdma_poll_slot slots[RDMA_POLLED_MAX];
    struct rdma_poll_slot *ready;                    /* registered, the key known to nobody */
    struct rdma_poll_slot *stale;                    /* given back: a peer still knows the key */
    int made;                                        /* slots that were ever registered: the first ones */
    int usable;                                      /* slots in use or ready */
    size_t users;                                    /* connections that agreed on the feature */
    struct rdma_poll_entry entries[RDMA_POLLED_MAX]; /* the first `count` */
    int count;
};

enum rdma_polled_state {
    RDMA_POLLED_OFF,
    RDMA_POLLED_ASKED, /* PollBegin is sent */
    RDMA_POLLED_ON,    /* PollBegun has come: there is an entry */
};

/* Of a connection. Counts are bytes of the stream modulo 2^32; they rest while the connection is not polled. */
struct rdma_polled {
    /* receiving */
    enum rdma_polled_state state;
    bool agreed;     /* it is one of the device's users */
    bool ending;     /* PollEnd is sent, or */
    bool want_end;   /* had no room in the send queue */
    bool distrusted; /* its words did not agree for too long: they are not looked at until PollEnded */
    struct rdma_poll_slot *slot;
    int entry;
    uint32_t count_in, crc_in; /* of what was taken; the checksum runs from */
    uint32_t base_in;          /* the last count that a completion told */
    uint32_t doubt;            /* bytes that were checked in vain since the last message */
    uint32_t messages;         /* in this period */
    uint32_t immediates;       /* since the thread slept last: */
    uint64_t sleeps;           /* after so many sleeps */
    uint32_t after;
    unsigned begins_left; /* in this tick */
    uint32_t ticked;      /* count_in at the last tick */
    /* sending */
    bool out; /* the peer polls: from our PollBegun to our PollEnded */
    bool owes_begun, owes_ended;
    uint32_t key, count_out, crc_out, base_out;
    uint64_t addr;
};

void rdma_polled_init(struct rdma_connection *c);
uint64_t rdma_polled_possible(
    const struct rdma_connection *c); /* RDMA_FEATURE_POLLED, or 0 where the device or a setting forbids it */
void rdma_polled_agreed(struct rdma_connection *c); /* both ends have the feature */
/* The immediate of a message. False: it was handled here. True: it is a number of bytes, as in the base protocol. */
bool rdma_polled_immediate(struct rdma_connection *c, uint32_t immediate);
void rdma_polled_after_immediate(struct rdma_connection *c); /* perhaps it is time to poll */
bool rdma_polled_look(struct rdma_device *device);           /* at all words. True: something has come */
void rdma_polled_take(struct rdma_connection *c);            /* the same for one connection that is about to end */
/* What the peer had sent when it sent this control message. */
void rdma_polled_take_until(struct rdma_connection *c, uint32_t count);
void rdma_polled_end_all(struct rdma_device *device); /* the thread is about to sleep */
void rdma_polled_tick(struct rdma_connection *c);
void rdma_polled_on_begin(struct rdma_connection *c, const struct rdma_wire_memory *memory);
void rdma_polled_on_begun(struct rdma_connection *c);
void rdma_polled_on_end(struct rdma_connection *c);
void rdma_polled_on_ended(struct rdma_connection *c, const struct rdma_wire_credit *count);
/* Control messages that had no room in the send queue. False: they still have none. */
bool rdma_polled_pump(struct rdma_connection *c);
/* The count to put in BufferTaken, which is about to be sent. The checksum begins anew behind it. */
uint32_t rdma_polled_taken_count(const struct rdma_connection *c);
void rdma_polled_taken_sent(struct rdma_connection *c);
/* Announces a message of `bytes` bytes that lie in `sges`. True: by a word; `wr` with `sge` is the request that writes
 * it, and `sge` and `word` must live until it is posted. False: by an immediate, of *immediate. */
bool rdma_polled_announce(struct rdma_connection *c, uint32_t bytes, const struct ibv_sge *sges, uint32_t count,
                          struct ibv_send_wr *wr, struct ibv_sge *sge, uint64_t *word, uint32_t *immediate);
void rdma_polled_release(struct rdma_connection *c);

/* Registers slots anew whose key a peer knew, and gives up those that no connection can need. */
void rdma_polls_tidy(struct rdma_device *device);
void rdma_polls_free(struct rdma_device *device); /* no connection is left */
#endif
