/* Everything two processes share: the layout of an arena, and the messages of a control link.
 *
 * Each process owns one arena: a sparse memfd that its peers map whole, once. Every object in it is named by
 * its offset.
 *
 *   0            arena_head
 *   mr_table     mr_slot[max_mr]          the owner writes, peers read
 *   objects      qp_shared, cq_shared, channel_shared, rings
 *   spans        the pages of registered memory, moved here from where the program allocated them
 *
 * The rules that let a process die at any instant without harming another:
 *   - a word has one writer, or is changed by a single atomic instruction;
 *   - there are no locks: work that a process left half done counts as not begun;
 *   - a sender marks itself busy in its OWN arena while it writes into a peer's, and writes only if the peer admits it.
 *
 * Admission. qp_shared.sender holds the token of the one remote queue pair that may write, or 0. A sender sets
 * its own qp_shared.busy, then compares `sender` with its token. An owner that revokes it (error, destroy)
 * or takes a memory region back does so first, then waits until the sender's busy is clear. The pair of
 * accesses needs a full fence on both sides; since revoking is rare and sending is not, the owner issues
 * membarrier(GLOBAL_EXPEDITED), which puts the sender's fence in for it. */
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>

#include "base.h"

#define ARENA_MAGIC  0x534f4654524d4131ull /* "SOFTRMA1" */
#define WIRE_VERSION 4

struct arena_head {
    uint64_t magic;
    uint64_t uuid; /* of the process */
    uint64_t size;
    uint64_t mr_table; /* offset of mr_slot[mr_slots] */
    uint32_t version;
    uint32_t pid;
    uint32_t mr_slots;
    uint32_t fences; /* 1: senders of this process fence by themselves, membarrier does not reach them */
};

/* One memory region. `key` is the remote and the local key, 0 while the slot is dead: index << 8 | a tag that
 * changes with each use. Bytes [lo, hi) of the region, counted from its start, are at arena offset `off` +
 * (byte - lo); the others (the partial pages at its ends) are still in the owner's private memory, at va +
 * byte. With more than one segment `off` is the offset of an mr_seg[nseg] and lo == hi == 0. */
struct mr_slot {
    _Atomic uint32_t key;
    uint32_t pd;
    uint32_t access;
    uint32_t nseg;
    uint64_t iova;
    uint64_t len;
    uint64_t va;
    uint64_t lo, hi, off;
};

struct mr_seg {
    uint64_t lo, hi, off;
};

/* A completion of a receive, written by the sending process into the ring of the receiving queue pair. Four
 * to a cache line: a stream of messages moves a quarter of a line for each. `word` is written last; it is new
 * when its turn is the one the reader expects, so nothing has to be cleared. */
struct recv_cqe {
    uint32_t byte_len;
    uint32_t imm;
    uint32_t srq_wqe; /* which receive of the shared queue was used */
    _Atomic uint32_t word;
};

enum { CQE_WITH_IMM = 1, CQE_IS_WRITE = 2, CQE_SOLICITED = 4 };
#define CQE_WORD(turn, status, flags) (((uint32_t)(turn) << 16) | ((uint32_t)(status) << 8) | (uint32_t)(flags))
#define CQE_TURN(index, shift)        ((((index) >> (shift)) + 1) & 0xffff)

/* A posted receive: written by the owner, read by the sender of a SEND. A WRITE_WITH_IMM never looks at it.
 * The stride of the ring is fixed at creation: 16 + 16 * max_sge. */
struct recv_wqe {
    uint32_t num_sge;
    _Atomic uint32_t claimed_by; /* shared queues: qpn of the queue pair whose peer took this one */
    uint64_t reserved;
    struct ibv_sge sge[];
};

struct qp_shared {
    /* Line 0: read by the peer with every message, written at state changes only. */
    _Atomic uint32_t sender;
    uint32_t qpn;
    uint32_t pd;
    uint32_t access; /* qp_access_flags */
    uint64_t cqes;   /* offset of recv_cqe[ring] */
    uint64_t wqes;   /* offset of the receive ring; 0 with a shared receive queue */
    uint64_t srq;    /* offset of srq_shared, or 0 */
    uint64_t cq;     /* offset of cq_shared of the receive completion queue */
    uint32_t cq_bit;
    uint16_t wqe_stride;
    uint8_t cqe_shift;
    uint8_t max_dest_rd_atomic;
    uint8_t min_rnr_timer;
    _Atomic uint8_t watched; /* the owner polls this ring directly: adding it to the ready set is not needed */
    uint8_t spare[6];
    /* Line 1: how far the peer may go. Own receive queue: receives posted so far. Shared receive queue:
     * completions polled so far plus the size of the ring. */
    _Alignas(CACHE_LINE) _Atomic uint32_t posted;
    /* Line 2: written by the owner around each of its own sends. */
    _Alignas(CACHE_LINE) _Atomic uint32_t busy;
};

/* A set of up to 65,536 members, of which finding the next costs O(1). See ready.h. */
#define READY_LEAVES 1024
struct ready_set {
    _Atomic uint64_t summary[READY_LEAVES / 64];
    _Atomic uint64_t leaf[READY_LEAVES];
};

/* armed: what the owner waits for. A sender that finds it armed moves it to FIRING with one compare-and-swap,
 * delivers the wake-up, and sets it IDLE if it is still FIRING: a queue found FIRING when a peer has died is
 * fired again. */
enum { CQ_IDLE = 0, CQ_ARMED_SOLICITED = 1, CQ_ARMED = 2, CQ_FIRING = 3 };

struct cq_shared {
    _Atomic uint32_t armed;
    uint32_t id;
    uint32_t channel_bit;
    uint32_t channel_id;     /* 0: none */
    uint64_t channel;        /* offset of channel_shared */
    _Atomic uint32_t events; /* fired, not yet taken by get_cq_event */
    _Alignas(CACHE_LINE) struct ready_set ready;
};

struct channel_shared {
    uint32_t id;
    _Alignas(CACHE_LINE) struct ready_set fired;
};

/* Shared receive queue. ring[i & mask] = turn << 40 | state << 32 | value. A claimer swings POSTED(wqe) to
 * CLAIMED(qpn) and then moves head on; a sender that finds head at a claimed entry moves it on for the claimer, which
 * may be dead. */
enum { SRQ_EMPTY = 0, SRQ_POSTED = 1, SRQ_CLAIMED = 2 };
#define SRQ_ENTRY(turn, state, value) (((uint64_t)(turn) << 40) | ((uint64_t)(state) << 32) | (uint32_t)(value))
#define SRQ_STATE(e)                  ((uint32_t)((e) >> 32) & 0xff)
#define SRQ_TURN(e)                   ((uint32_t)((e) >> 40))

struct srq_shared {
    uint64_t ring, wqes;
    uint32_t mask, shift, pd;
    uint16_t wqe_stride;
    uint32_t id;
    _Alignas(CACHE_LINE) _Atomic uint32_t head;
    _Alignas(CACHE_LINE) _Atomic uint32_t posted;
    _Atomic uint32_t limit;
};

/* Control messages, one per SOCK_SEQPACKET datagram. */
enum msg_type {
    MSG_HELLO = 1,  /* to a front door, with the arena's descriptor */
    MSG_WELCOME,    /* the answer, with the arena's descriptor */
    MSG_QP_QUERY,   /* where is this queue pair? */
    MSG_QP_INFO,    /* the answer; qp.off == 0: there is none */
    MSG_QP_ERROR,   /* your queue pair must go to the error state, raising `value` as its event */
    MSG_CQ_WAKE,    /* fire this queue; I have no descriptor of its channel yet */
    MSG_CHANNEL_FD, /* here it is, with a descriptor */
    MSG_CHANNEL_GONE,
    MSG_SRQ_LIMIT,
    MSG_CM_REQ,
    MSG_CM_REP,
    MSG_CM_RTU,
    MSG_CM_REJ,
    MSG_CM_DREQ,
    MSG_CM_DREP
};

/* What one must know of a queue pair to send to it. */
struct qp_address {
    uint64_t off;
    uint32_t qpn;
    uint32_t token;
};

struct cm_body {
    uint32_t from, to; /* numbers of the connection identifiers; to == 0 in a REQ */
    int32_t status;
    uint16_t ps;
    uint8_t responder_resources, initiator_depth;
    uint8_t retry_count, rnr_retry_count, flow_control, srq;
    uint8_t traffic_class; /* of the path, in a REQ */
    uint8_t private_len;
    struct sockaddr_in6 src, dst; /* IPv4 is in its sockaddr_in form */
    uint8_t private_data[196];
};

struct message {
    uint32_t type;
    uint32_t version;
    uint64_t uuid;
    uint32_t pid;
    uint32_t value;
    uint32_t spare_link; /* WELCOME: this socket is not needed, a link exists already */
    uint32_t fds;        /* descriptors that come with it */
    struct qp_address qp;
    struct cm_body cm;
};

_Static_assert(sizeof(struct mr_slot) == CACHE_LINE, "a region is one cache line");
_Static_assert(sizeof(struct recv_cqe) == 16, "four completions a line");
_Static_assert(sizeof(struct recv_wqe) == 16, "a receive is 16 + 16 * sge");
_Static_assert(offsetof(struct qp_shared, posted) == CACHE_LINE, "what the peer reads is one line");
_Static_assert(offsetof(struct qp_shared, busy) == 2 * CACHE_LINE, "busy has a line of its own");
