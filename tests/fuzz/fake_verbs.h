/* fake_verbs.h: the calls of libibverbs and librdmacm that the RDMA transport makes, in one process and without a
 * device. The program that links it plays the card, the connection manager and the peer: nothing completes and nothing
 * happens but by the calls below.
 *
 * It is strict where a card would fail later or silently: a send queue or completion queue that is posted beyond its
 * depth, memory outside its region, a key that is not (any more) valid, inline data beyond what was granted, objects
 * destroyed in the wrong order or not at all. */
#ifndef TESTS_FAKE_VERBS_H
#define TESTS_FAKE_VERBS_H
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>

enum {
    FAKE_DEVICES = 2
}; /* 0: shared receives, inline sends, 4 elements; 1: none of these, one element, short queues */

struct fake_send {
    uint64_t wr_id;
    bool signalled, inlined;
    int count;
    struct ibv_sge elements[4];
    uint64_t offset; /* for fake_hooks */
};

struct fake_qp {
    struct ibv_qp qp; /* must be first */
    struct rdma_cm_id *id;
    struct fake_send *sends; /* a ring of max_send */
    uint32_t max_send, max_recv, max_inline, max_sge;
    uint32_t posted, completed, freed; /* freed: told by a completion that was polled */
    struct ibv_recv_wr *receives;      /* a ring of max_recv, where it has its own */
    struct ibv_sge *receive_elements;
    uint32_t receive_first, receive_count;
    bool failed; /* everything posted will be flushed */
};

/* What the player of the peer observes. `bytes` of a request are looked at again when it completes: they must not
 * have changed. */
struct fake_hooks {
    void (*sent)(struct fake_qp *qp, const struct ibv_send_wr *wr, struct fake_send *send);
    void (*completed)(struct fake_qp *qp, const struct fake_send *send);
    void (*id_destroyed)(struct rdma_cm_id *id);
    void (*qp_destroyed)(struct fake_qp *qp);
};
extern struct fake_hooks fake_hooks;
extern int fake_fail_in;     /* the so-many-th call that can fail does; 0: none */
extern int fake_next_device; /* what the next address resolves to */

struct fake_counts {
    int ids, queue_pairs, regions;
    uint64_t registered_bytes;
};
extern struct fake_counts fake_counts;

/* Connection manager. */
struct rdma_cm_id *fake_request(struct rdma_cm_id *listener, int device); /* a peer wants to connect */
void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status);
enum fake_stage { FAKE_NEW, FAKE_ADDRESS, FAKE_ROUTE, FAKE_CONNECT, FAKE_OPEN };
enum fake_stage *fake_stage(struct rdma_cm_id *id); /* what was asked for last */
/* Completions. False: there is nothing posted that could complete. */
bool fake_receive(struct fake_qp *qp, const void *bytes, uint32_t len, enum ibv_wc_status status); /* of a SEND */
bool fake_receive_immediate(struct fake_qp *qp, uint32_t imm_be);
bool fake_complete_send(struct fake_qp *qp, enum ibv_wc_status status);
void fake_stray(int device, uint32_t qp_num, uint64_t wr_id,
                enum ibv_wc_status status); /* a completion of a queue pair that is gone */
uint32_t fake_shared_receives(const struct ibv_srq *queue, uint32_t *depth); /* posted now; NULL: none */
#endif
