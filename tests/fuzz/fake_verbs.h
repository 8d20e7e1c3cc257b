/* fake_verbs.h: the functions of libibverbs and librdmacm that the RDMA transport uses, in one process and without a
 * device. The program that links it acts as the card, the connection manager and the peer: completions and events come
 * only from the calls below.
 *
 * It aborts where a card would fail later or silently: a send queue or completion queue that overruns, memory outside
 * its region, an invalid or invalidated key, inline data beyond the granted size, objects destroyed in the wrong order
 * or not at all. */
#pragma once
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
    uint32_t posted, completed, freed; /* freed: reported by a completion that was polled */
    struct ibv_recv_wr *receives;      /* a ring of max_recv, without a shared queue */
    struct ibv_sge *receive_elements;
    uint32_t receive_first, receive_count;
    bool failed; /* all posted requests will be flushed */
};

/* Calls to the code that acts as the peer. `bytes` of a request are checked again at its completion: they must not have
 * changed. */
struct fake_hooks {
    void (*sent)(struct fake_qp *qp, const struct ibv_send_wr *wr, struct fake_send *send);
    void (*completed)(struct fake_qp *qp, const struct fake_send *send);
    void (*id_destroyed)(struct rdma_cm_id *id);
    void (*qp_destroyed)(struct fake_qp *qp);
};
extern struct fake_hooks fake_hooks;
extern int fake_fail_in;     /* the number of calls until one fails; 0: none fails */
extern int fake_next_device; /* the device to which the next address resolves */

struct fake_counts {
    int ids, queue_pairs, regions;
    uint64_t registered_bytes;
};
extern struct fake_counts fake_counts;

/* Connection manager. */
struct rdma_cm_id *fake_request(struct rdma_cm_id *listener, int device); /* a peer wants to connect */
void fake_event(struct rdma_cm_id *id, enum rdma_cm_event_type type, int status);
enum fake_stage { FAKE_NEW, FAKE_ADDRESS, FAKE_ROUTE, FAKE_CONNECT, FAKE_OPEN };
enum fake_stage *fake_stage(struct rdma_cm_id *id); /* the last request of the transport */
/* Completions. False: no posted request can complete. */
bool fake_receive(struct fake_qp *qp, const void *bytes, uint32_t len, enum ibv_wc_status status); /* receives a SEND */
bool fake_receive_immediate(struct fake_qp *qp, uint32_t imm_be);
bool fake_complete_send(struct fake_qp *qp, enum ibv_wc_status status);
void fake_stray(int device, uint32_t qp_num, uint64_t wr_id,
                enum ibv_wc_status status); /* a completion of a destroyed queue pair */
uint32_t fake_shared_receives(const struct ibv_srq *queue, uint32_t *depth); /* posted now; NULL: none */
