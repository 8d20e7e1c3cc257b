/* The ibv_wr_* interface: the requests between ibv_wr_start and ibv_wr_complete are gathered as ibv_send_wr
 * and posted as one chain. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "qp.h"

#define MAX_CHAIN 1024

struct wr_builder {
    struct spinlock lock; /* from start to complete */
    int err;
    uint32_t count, sge_count, data_len;
    struct ibv_send_wr wrs[MAX_CHAIN];
    uint32_t first_sge[MAX_CHAIN];
    struct ibv_sge sges[MAX_CHAIN * 4];
    uint8_t data[64 << 10];
};

static void wr_start(struct ibv_qp_ex *ex) {
    struct qp *qp = (struct qp *)ex;
    struct wr_builder *b = qp->builder;
    if (!b) { /* few programs use this interface; two threads may meet here */
        spin_lock(&qp->lock);
        if (!qp->builder) qp->builder = calloc(1, sizeof(*b));
        b = qp->builder;
        spin_unlock(&qp->lock);
        if (!b) abort(); /* the interface cannot report it */
    }
    spin_lock(&b->lock);
    b->err = 0;
    b->count = b->sge_count = b->data_len = 0;
}

static struct ibv_send_wr *wr_add(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode) {
    static _Thread_local struct ibv_send_wr overflow;
    struct wr_builder *b = ((struct qp *)ex)->builder;
    if (b->count == MAX_CHAIN) {
        b->err = ENOMEM;
        return &overflow;
    }
    struct ibv_send_wr *wr = &b->wrs[b->count];
    b->first_sge[b->count++] = b->sge_count;
    *wr = (struct ibv_send_wr){.wr_id = ex->wr_id, .opcode = opcode, .send_flags = ex->wr_flags};
    return wr;
}

static void wr_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr, __be32 imm) {
    struct ibv_send_wr *wr = wr_add(ex, opcode);
    wr->wr.rdma.remote_addr = addr;
    wr->wr.rdma.rkey = rkey;
    wr->imm_data = imm;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr) {
    wr_rdma(ex, IBV_WR_RDMA_WRITE, rkey, addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm) {
    wr_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr) {
    wr_rdma(ex, IBV_WR_RDMA_READ, rkey, addr, 0);
}
static void wr_send(struct ibv_qp_ex *ex) {
    wr_add(ex, IBV_WR_SEND);
}
static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm) {
    wr_add(ex, IBV_WR_SEND_WITH_IMM)->imm_data = imm;
}

static void wr_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr, uint64_t compare,
                      uint64_t swap) {
    struct ibv_send_wr *wr = wr_add(ex, op);
    wr->wr.atomic.remote_addr = addr;
    wr->wr.atomic.rkey = rkey;
    wr->wr.atomic.compare_add = compare;
    wr->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap) {
    wr_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add) {
    wr_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

static void add_sge(struct wr_builder *b, struct ibv_sge sge) {
    if (!b->count || b->sge_count == sizeof(b->sges) / sizeof(*b->sges)) {
        b->err = b->count ? ENOMEM : EINVAL;
        return;
    }
    b->sges[b->sge_count++] = sge;
    b->wrs[b->count - 1].num_sge++;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length) {
    add_sge(((struct qp *)ex)->builder, (struct ibv_sge){addr, length, lkey});
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list) {
    for (size_t i = 0; i < n; i++) add_sge(((struct qp *)ex)->builder, list[i]);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *bufs) {
    struct wr_builder *b = ((struct qp *)ex)->builder;
    for (size_t i = 0; i < n; i++) {
        if (!b->count || bufs[i].length > sizeof(b->data) - b->data_len) {
            b->err = ENOMEM;
            return;
        }
        memcpy(b->data + b->data_len, bufs[i].addr, bufs[i].length);
        b->wrs[b->count - 1].send_flags |= IBV_SEND_INLINE;
        add_sge(b, (struct ibv_sge){(uint64_t)(uintptr_t)(b->data + b->data_len), (uint32_t)bufs[i].length, 0});
        b->data_len += (uint32_t)bufs[i].length;
    }
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length) {
    struct ibv_data_buf buf = {addr, length};
    wr_set_inline_data_list(ex, 1, &buf);
}

static int wr_complete(struct ibv_qp_ex *ex) {
    struct qp *qp = (struct qp *)ex;
    struct wr_builder *b = qp->builder;
    struct ibv_send_wr *bad;
    int err = b->err;
    for (uint32_t i = 0; i < b->count; i++) {
        b->wrs[i].sg_list = &b->sges[b->first_sge[i]];
        b->wrs[i].next = i + 1 < b->count ? &b->wrs[i + 1] : NULL;
    }
    if (!err && b->count) err = qp_post_send(&qp->ib, b->wrs, &bad);
    spin_unlock(&b->lock);
    return err;
}

static void wr_abort(struct ibv_qp_ex *ex) {
    spin_unlock(&((struct qp *)ex)->builder->lock);
}

void wr_ops_install(struct qp *qp) {
    struct ibv_qp_ex *ex = &qp->ex;
    ex->wr_start = wr_start;
    ex->wr_complete = wr_complete;
    ex->wr_abort = wr_abort;
    ex->wr_rdma_write = wr_rdma_write;
    ex->wr_rdma_write_imm = wr_rdma_write_imm;
    ex->wr_rdma_read = wr_rdma_read;
    ex->wr_send = wr_send;
    ex->wr_send_imm = wr_send_imm;
    ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
    ex->wr_set_sge = wr_set_sge;
    ex->wr_set_sge_list = wr_set_sge_list;
    ex->wr_set_inline_data = wr_set_inline_data;
    ex->wr_set_inline_data_list = wr_set_inline_data_list;
}
