/* rdma_polled.h: the polled word (feature RDMA_FEATURE_POLLED, wire format in rdma_wire.h): the receiver finds the
 * small messages of a busy peer by reading memory, without a completion or a receive for each.
 *
 * Receiving
 *   Each of at most RDMA_POLLED_MAX connections of a device has a poll slot: a page with its own memory region, so that
 *   no peer reaches a neighbour's slot. The slot holds one aligned word of eight bytes: the number of bytes that the
 *   peer has sent, and a CRC-32C of the bytes that the peer announces by words. PollBegin carries the address of the
 *   word. From PollBegun on, words are valid and the device's poller reads them.
 *
 * Verification
 *   InfiniBand orders the execution of two WRITEs, not the moments at which memory shows their bytes. Adaptive routing,
 *   relaxed ordering on the PCIe bus and regions registered with IBV_ACCESS_RELAXED_ORDERING can all make the word
 *   visible before the bytes that it announces. So a word is a hint: the receiver computes the checksum of the
 *   announced bytes in place and takes them only if it matches. Otherwise it checks again in the poller's next round.
 *   Memory contents alone never end a connection. A completion does order memory, and only information from
 *   completions (immediates, BufferTaken, PollEnded) is binding. Four bytes of checksum let one stale message in 2^32
 *   pass. A message is stale only for an instant, and stale bytes that are identical to the new ones do no harm.
 *
 *   The wait is limited. A connection whose words do not match may cost DOUBT_MAX bytes of checksums, about ten
 *   microseconds. Then its polling period ends early: the answer to PollEnd is a completion, which orders all bytes
 *   before it, and the connection is polled again only after many immediates. So a peer that writes nonsense, or a
 *   device that delays bytes, costs time but no data.
 *
 * Message sizes
 *   An immediate, which orders memory, announces each message of more than RDMA_POLLED_MESSAGE_MAX bytes, and the first
 *   message after RDMA_POLLED_BYTES_MAX bytes of words. For large messages a completion costs less than a checksum, and
 *   the receiver never checks more than RDMA_POLLED_BYTES_MAX bytes at a time.
 *
 * Polling periods
 *   A connection is polled when `after` immediates have arrived since this thread last slept: then both ends are awake.
 *   Polling ends when the connection was quiet for a whole tick, or when the thread is about to sleep. A period that
 *   ended before it saved more than its control messages cost delays the next one; a period that saved more advances
 *   the next one. A connection without a poll slot uses completions.
 *
 * Sleeping
 *   Before the thread arms the queues it sends PollEnd to every polled peer, and it does not wait for the answers.
 *   Nothing is lost. The answer is a SEND behind all writes of the word on the same connection, hence its completion
 *   covers all of them. It comes after the PollEnd, so either the poll of the queues after arming finds it or it wakes
 *   the thread. A PollEnd that does not fit the send queue is sent when a completion frees an entry, and a full send
 *   queue always has a completion coming. A sleep with N peers polled costs N messages each way, so the thread spins
 *   longer the more peers it polls: RDMA_POLLED_PATIENCE_US for each, about the cost of its messages to both ends.
 *
 * Memory
 *   Poll slots are registered when connections are set up. The loop's tidy timer registers a slot again if a peer knew
 *   its key. Slots are never registered while messages flow.
 *
 * Sending
 *   A message is its WRITEs and one more WRITE of eight bytes, behind one doorbell, in place of the immediate.
 *
 * Rejected
 *   Slots for whole messages, flag and bytes in one WRITE: the reader would have to report each slot that it has read,
 *   before the peer may write it again; bytes outside of the stream have to be copied into it; and order within one
 *   WRITE is not guaranteed either.
 *   Waiting for the answers to PollEnd before sleeping: a peer that does not answer would keep the thread awake.
 *   A separate checksum of each message: a word overwrites the one before, so the reader may see only some of them. The
 *   checksum therefore continues across messages. */
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
    struct rdma_poll_slot *next; /* in the list of ready or stale slots */
};

/* One element of the array that the poller scans: all it needs for a connection without new messages. */
struct rdma_poll_entry {
    const _Atomic uint64_t *word;
    uint64_t last; /* the last value read */
    struct rdma_connection *conn;
};

/* State of a device. */
struct rdma_polls {
    char *pages; /* NULL: not needed yet */
    struct rdma_poll_slot slots[RDMA_POLLED_MAX];
    struct rdma_poll_slot *ready;                    /* registered, and no peer knows the key */
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
    RDMA_POLLED_ON,    /* PollBegun has arrived: there is an entry */
};

/* State of a connection. Counts are bytes of the stream modulo 2^32; they do not change while it is not polled. */
struct rdma_polled {
    /* receiving */
    enum rdma_polled_state state;
    bool agreed;     /* it is counted in rdma_polls.users */
    bool ending;     /* PollEnd is sent, or */
    bool want_end;   /* waits for space in the send queue */
    bool distrusted; /* its words did not match for too long: they are ignored until PollEnded */
    struct rdma_poll_slot *slot;
    int entry;
    uint32_t count_in, crc_in; /* bytes taken, and the checksum of those since base_in */
    uint32_t base_in;          /* the last count known from a completion */
    uint32_t doubt;            /* bytes checked without a match since the last message */
    uint32_t messages;         /* in this period */
    uint32_t immediates;       /* since the thread last slept: */
    uint64_t sleeps;           /* the thread's number of sleeps at that time */
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
    const struct rdma_connection *c); /* RDMA_FEATURE_POLLED, or 0 if the device or a setting excludes it */
void rdma_polled_agreed(struct rdma_connection *c); /* both ends have the feature */
/* Handles the immediate of a message. True: it is a number of bytes, as in the base protocol, and the caller handles
 * it. */
bool rdma_polled_immediate(struct rdma_connection *c, uint32_t immediate);
void rdma_polled_after_immediate(struct rdma_connection *c); /* may start a polling period */
bool rdma_polled_check(struct rdma_device *device);          /* reads all words. True: a message has arrived */
void rdma_polled_take(struct rdma_connection *c);            /* the same for one connection that is about to end */
/* Takes the bytes that the peer had sent when it sent this control message. */
void rdma_polled_take_until(struct rdma_connection *c, uint32_t count);
void rdma_polled_end_all(struct rdma_device *device); /* the thread is about to sleep */
void rdma_polled_tick(struct rdma_connection *c);
void rdma_polled_on_begin(struct rdma_connection *c, const struct rdma_wire_memory *memory);
void rdma_polled_on_begun(struct rdma_connection *c);
void rdma_polled_on_end(struct rdma_connection *c);
void rdma_polled_on_ended(struct rdma_connection *c, const struct rdma_wire_credit *count);
/* Sends control messages that waited for space in the send queue. False: it is still full. */
bool rdma_polled_pump(struct rdma_connection *c);
/* The count for the BufferTaken that is about to be sent. The checksum restarts after it. */
uint32_t rdma_polled_taken_count(const struct rdma_connection *c);
void rdma_polled_taken_sent(struct rdma_connection *c);
/* Announces a message of `bytes` bytes in `sges`. True: by a word; `wr` with `sge` is the request that writes it, and
 * `sge` and `word` must live until it is posted. False: by an immediate with the value *immediate. */
bool rdma_polled_announce(struct rdma_connection *c, uint32_t bytes, const struct ibv_sge *sges, uint32_t count,
                          struct ibv_send_wr *wr, struct ibv_sge *sge, uint64_t *word, uint32_t *immediate);
void rdma_polled_release(struct rdma_connection *c);

/* Registers slots again whose key a peer knew, and frees those that no connection can need. */
void rdma_polls_tidy(struct rdma_device *device);
void rdma_polls_free(struct rdma_device *device); /* after the last connection */
#endif
