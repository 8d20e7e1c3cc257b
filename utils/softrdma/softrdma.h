/* What a test may ask of the software RDMA device in its own process. Programs need none of this: they are
 * written to libibverbs and librdmacm. Find the function with dlsym(RTLD_DEFAULT, "softrdma_counters"); it is
 * absent when the program does not run on the device. The same numbers are written at exit to the file named
 * by SOFTRDMA_STATS. */
#pragma once

#include <stdint.h>

/* clang-format off */
#define SOFTRDMA_COUNTERS(X)                                                                                     \
    /* objects alive */                                                                                          \
    X(contexts)                                                                                                  \
    X(pds)                                                                                                       \
    X(mrs)                                                                                                       \
    X(cqs) X(qps) X(srqs) X(comp_channels) X(cm_ids) X(cm_channels) X(cm_events_unacked) X(peers)                \
        X(registered_bytes)           /* done so far */                                                          \
        X(doorbells)                  /* calls of post_send that were given work */                              \
        X(send_wrs)                   /* work requests in them */                                                \
        X(recv_wrs)                   /* receives posted */                                                      \
        X(messages)                   /* work requests carried out */                                            \
        X(bytes)                      /* and their payload */                                                    \
        X(completions)                /* handed out by polling */                                                \
        X(polls)                      /* calls of poll_cq */                                                     \
        X(wakeups)                    /* eventfd writes for an armed completion queue */                         \
        X(edge_copies)                /* process_vm calls for bytes outside whole registered pages */            \
        X(withheld_lines)             /* cache lines that the fault write:scatter made visible late */            \
        X(control_messages) X(stalls) /* sends that had to wait: no receive posted, peer not ready, peer dead */ \
        X(faults)                     /* injected */
/* clang-format on */

struct softrdma_counters {
#define X(name) uint64_t name;
    SOFTRDMA_COUNTERS(X)
#undef X
};

void softrdma_counters(struct softrdma_counters *out);
