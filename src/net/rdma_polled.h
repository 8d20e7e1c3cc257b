/* rdma_polled.h: the polled word (feature RDMA_FEATURE_POLLED, told in rdma_wire.h): the messages of busy peers are
 * noticed by looking at memory, and cost their receiver neither a completion nor a receive.
 *
 * Receiving.  Each of at most RDMA_POLLED_MAX connections of a device has a place: a page with a memory region of its
 * own, so that no peer reaches a neighbour's, and in it one word, which the peer counts its bytes in. PollBegin tells
 * where; PollBegun says that all immediates before have been sent, and from then on the device's poller looks at the
 * word. A word is read once and what it says is treated like an immediate: it can lie, and then it is a violation or
 * harms nobody but its peer. When.  A connection is polled when `after` immediates have come since this thread last
 * slept: then both ends are awake. No longer when it was quiet for a whole tick, or when we are about to sleep. Periods
 * that ended before they were worth their control messages make the next one later, those that were worth it make it
 * soon. Who has no place stays with completions. Sleeping.  Before the queues are armed every polled peer is sent
 * PollEnd, and the poller does not wait for the answers. Nothing is lost: the answer is a SEND behind all writes of the
 * word, on the same connection, hence its completion tells of all of them; and it comes after the PollEnd, so either
 * the look at the queues that follows arming finds it or it wakes us. What is written between our last look and the
 * answer waits as long as the answer does, which is the peer's own affair: a peer that spins answers at once, one that
 * sleeps is woken by the PollEnd. A PollEnd that has no room in the send queue goes when a completion makes some, and a
 * full send queue always has one coming. A sleep with N peers polled costs N messages each way, more than it saves when
 * it is short. So the thread spins longer the more it polls: by RDMA_POLLED_PATIENCE_US for each, which is about what
 * its messages cost both ends; a period that began had more traffic than that before. Order.  The word comes after the
 * bytes that it counts as two WRITEs of one queue pair. The specification of InfiniBand orders their execution and
 * leaves open when memory shows them (only a completion does that); a card that writes to memory in the order of the
 * queue pair, as all that we know do unless a region is registered with relaxed ordering, shows them in that order.
 * Flags in the last byte of one WRITE, as others use them, ask for more: order within a WRITE. Four aligned bytes are
 * taken to be written at once. For devices that do otherwise there is rdma-features without "polled". Sending.  A
 * message is its WRITEs and one more of four bytes, behind one doorbell, in place of the immediate.
 *
 * Rejected: slots for whole messages, flag and bytes in one WRITE: a slot can be written anew only when its reader is
 * known to be done with it, which is one more thing to tell the peer; bytes beside the stream have to be copied back
 * into it; and larger messages need the other way as well. Waiting for the answers to PollEnd before sleeping: a peer
 * that does not answer would keep us awake. */
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

enum { RDMA_POLLED_MAX = 64, RDMA_POLLED_PATIENCE_US = 2 };

struct rdma_place {
    _Atomic uint32_t *word;
    struct ibv_mr *mr;
    struct rdma_connection *owner; /* NULL: free, unless there is an mr: the device kept it */
};

/* What the poller goes through: all it needs of a connection that has nothing new. */
struct rdma_look {
    const _Atomic uint32_t *word;
    uint32_t seen; /* as it stands there */
    struct rdma_connection *conn;
};

/* Of a device. */
struct rdma_polls {
    char *pages; /* NULL: not needed yet */
    struct rdma_place places[RDMA_POLLED_MAX];
    struct rdma_look looks[RDMA_POLLED_MAX]; /* the first `count` */
    int count;
};

enum rdma_polled_state {
    RDMA_POLLED_OFF,
    RDMA_POLLED_ASKED, /* PollBegin is sent */
    RDMA_POLLED_ON,    /* PollBegun has come: there is a look */
};

/* Of a connection. Both counts run from its beginning on, modulo 2^32, and rest while immediates are used. */
struct rdma_polled {
    /* receiving */
    enum rdma_polled_state state;
    bool ending;   /* PollEnd is sent, or */
    bool want_end; /* had no room in the send queue */
    struct rdma_place *place;
    int look;
    uint32_t count_in;
    uint32_t messages;   /* in this period */
    uint32_t immediates; /* since we slept last: */
    uint64_t sleeps;     /* after so many sleeps */
    uint32_t after;
    unsigned begins_left; /* in this tick */
    uint32_t ticked;      /* count_in at the last tick */
    /* sending */
    bool out; /* the peer polls: from our PollBegun to our PollEnded */
    bool owes_begun, owes_ended;
    uint32_t key, count_out;
    uint64_t addr;
};

void rdma_polled_init(struct rdma_connection *c);
uint64_t rdma_polled_possible(
    const struct rdma_connection *c); /* RDMA_FEATURE_POLLED, or 0 where the device or a setting forbids it */
void rdma_polled_on_immediate(struct rdma_connection *c); /* a message has come by a completion */
bool rdma_polled_look(struct rdma_device *device);        /* at all words. True: something has come */
void rdma_polled_take(struct rdma_connection *c);         /* the same for one connection, whose end has become known */
/* What the peer had told by its word when it sent this control message. */
void rdma_polled_take_until(struct rdma_connection *c, uint32_t count);
void rdma_polled_end_all(struct rdma_device *device); /* we are about to sleep */
void rdma_polled_tick(struct rdma_connection *c);
void rdma_polled_on_begin(struct rdma_connection *c, const struct rdma_wire_memory *memory);
void rdma_polled_on_begun(struct rdma_connection *c);
void rdma_polled_on_end(struct rdma_connection *c);
void rdma_polled_on_ended(struct rdma_connection *c, const struct rdma_wire_credit *count);
/* Control messages that had no room in the send queue. False: they still have none. */
bool rdma_polled_pump(struct rdma_connection *c);
/* Makes the request that counts `bytes` more; `sge` and `word` must live until it is posted. */
void rdma_polled_write(struct rdma_connection *c, uint32_t bytes, struct ibv_send_wr *wr, struct ibv_sge *sge,
                       uint32_t *word);
void rdma_polled_release(struct rdma_connection *c);
void rdma_polls_free(struct rdma_device *device); /* no connection is left */
#endif
