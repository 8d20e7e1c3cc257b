/* Reads the environment once, on first use. A value that is no number is refused with a message on stderr and
 * the default is taken: a typing error in a test must not silently test something else. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct config settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t env_number(const char *name, uint64_t fallback, uint64_t min, uint64_t max) {
    const char *text = getenv(name);
    if (!text || !*text) return fallback;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (errno || *end || *text == '-' || value < min || value > max) {
        fprintf(stderr, "softrdma: %s=%s is not a number between %llu and %llu; using %llu\n", name, text,
                (unsigned long long)min, (unsigned long long)max, (unsigned long long)fallback);
        return fallback;
    }
    return value;
}

static uint32_t env_u32(const char *name, uint32_t fallback, uint32_t min, uint32_t max) {
    return (uint32_t)env_number(name, fallback, min, max);
}

static void config_read(void) {
    struct config *c = &settings;
    c->arena_bytes = env_number("SOFTRDMA_ARENA", 32ull << 30, 64ull << 20, 1ull << 44);
    c->memlock = env_number("SOFTRDMA_MEMLOCK", UINT64_MAX, 0, UINT64_MAX);
    c->bulk = env_number("SOFTRDMA_BULK", 64 << 10, 0, UINT64_MAX);
    c->devices = env_u32("SOFTRDMA_DEVICES", 1, 0, 64);
    c->max_qp = env_u32("SOFTRDMA_MAX_QP", 131072, 0, 1 << 20);
    c->max_cq = env_u32("SOFTRDMA_MAX_CQ", 131072, 0, 1 << 20);
    c->max_mr = env_u32("SOFTRDMA_MAX_MR", 262144, 0, (1 << 20) - 2);
    c->max_pd = env_u32("SOFTRDMA_MAX_PD", 65536, 0, 1 << 20);
    c->max_srq = env_u32("SOFTRDMA_MAX_SRQ", 4096, 0, 1 << 16);
    c->max_cqe = env_u32("SOFTRDMA_MAX_CQE", 4194303, 1, 1 << 24);
    c->max_qp_wr = env_u32("SOFTRDMA_MAX_QP_WR", 32768, 1, 1 << 20);
    c->max_srq_wr = env_u32("SOFTRDMA_MAX_SRQ_WR", 65536, 1, 1 << 20);
    c->max_sge = env_u32("SOFTRDMA_MAX_SGE", 30, 1, 255);
    c->max_inline = env_u32("SOFTRDMA_MAX_INLINE", 220, 0, 4096);
    c->max_rd_atomic = env_u32("SOFTRDMA_MAX_RD_ATOMIC", 16, 0, 255);
    c->max_message = env_u32("SOFTRDMA_MAX_MESSAGE", 1 << 30, 4096, 1u << 31);
    c->comp_vectors = env_u32("SOFTRDMA_COMP_VECTORS", 4, 1, 1024);
    c->cm_timeout_ms = env_u32("SOFTRDMA_CM_TIMEOUT_MS", 20000, 1, 3600000);
    c->iwarp = env_u32("SOFTRDMA_IWARP", 0, 0, 1);
    c->dontfork = env_u32("SOFTRDMA_DONTFORK", 0, 0, 1);
    c->timewait_ms = env_u32("SOFTRDMA_TIMEWAIT_MS", 100, 0, 3600000);
}

const struct config *config(void) {
    pthread_once(&once, config_read);
    return &settings;
}
