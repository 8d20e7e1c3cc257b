/* What the environment sets: limits of the device, and its habits. Read once. README.md lists the
 * variables. */
#pragma once

#include <stdint.h>

struct config {
    uint64_t arena_bytes;
    uint64_t memlock; /* bytes that may be registered; UINT64_MAX: as RLIMIT_MEMLOCK says */
    uint64_t bulk;    /* least bytes that the thread of bulk.c copies; 0: it copies none */
    uint32_t devices;
    uint32_t max_qp, max_cq, max_mr, max_pd, max_srq, max_cqe, max_qp_wr, max_srq_wr, max_sge, max_inline,
        max_rd_atomic, max_message;
    uint32_t comp_vectors;
    uint32_t cm_timeout_ms, timewait_ms;
    uint32_t iwarp;    /* 1: devices say that they are iWARP */
    uint32_t dontfork; /* 1: as with kernels before 5.12, a child shares no registered memory safely unless
                          ibv_fork_init was called */
};

const struct config *config(void);
