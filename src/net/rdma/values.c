/* values.c: see values.h. */
#include "net/rdma/values.h"
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/blob.h"
#include "net/event_loop.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    RETRY_US = 1000 * 1000,
    SHARE = 2, /* values take at most one part in SHARE of the limit on registered memory */
};

static const struct blob_allocator allocator = {value_arena_take, value_arena_give, value_arena_block_size,
                                                value_arena_is_writable};
static bool started, usable;

/* The smallest value that is sent without a copy, 0: none. */
static uint64_t smallest(void) {
    uint64_t least = rdma_settings.zero_copy_min;
    return least && least < VALUE_BLOCK_MIN ? VALUE_BLOCK_MIN : least;
}

void rdma_values_changed(void) {
    if (!usable) return;
    uint64_t least = smallest(), bound = rdma_settings.max_registered;
    value_arena_set_limit(bound ? bound / SHARE : SIZE_MAX);
    blob_set_large_allocator(&allocator, least ? least : SIZE_MAX);
}

size_t rdma_values_share_min(void) {
    return usable ? smallest() : 0;
}

void rdma_values_start(void) {
    if (started) return;
    started = true;
    /* With these variables libibverbs hides all registered memory from children. */
    bool hidden = getenv("RDMAV_FORK_SAFE") || getenv("IBV_FORK_SAFE");
#ifdef LIBRARY_THAT_IS_LOADED
    (void)hidden;
    usable = false; /* it stores no values, and the arena reserves much of the program's address space */
#else
    usable = !hidden && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED && value_arena_open();
#endif
    rdma_values_changed();
}

static void refused(struct rdma_values *values, int error) {
    values->retry_us = clock_mono() + RETRY_US;
    if (values->failure_logged) return;
    char text[320];
    rdma_registration_error(error, rdma_memory_device(values->memory), text, sizeof text);
    log_notice("%s. Large values are copied to be sent", text);
    values->failure_logged = true;
}

/* The regions that count as registered memory of the process, and how many device contexts have or make a registration
 * of each. The lock is taken only when a context adds or removes one. */
static pthread_mutex_t charges_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t *charges, charges_count; /* by region index */
static _Atomic uint64_t charged_bytes;

uint64_t rdma_values_bytes(void) {
    return atomic_load_explicit(&charged_bytes, memory_order_relaxed);
}

/* False: the limit. */
static bool charge_region(struct rdma_values *values, const struct value_region *region) {
    uint64_t bound = rdma_settings.max_registered;
    pthread_mutex_lock(&charges_lock);
    if (region->index >= charges_count) {
        uint32_t count = region->index + 64;
        charges = mem_realloc(charges, count * sizeof *charges);
        memset(charges + charges_count, 0, (count - charges_count) * sizeof *charges);
        charges_count = count;
    }
    bool first = charges[region->index] == 0;
    bool good = !first || ((!bound || rdma_values_bytes() + region->size <= bound / SHARE) &&
                           rdma_register_claim(values->memory, region->size));
    if (good) charges[region->index]++;
    if (good && first) charged_bytes += region->size;
    pthread_mutex_unlock(&charges_lock);
    return good;
}

static void uncharge_region(const struct value_region *region) {
    pthread_mutex_lock(&charges_lock);
    if (--charges[region->index] == 0) {
        charged_bytes -= region->size;
        rdma_register_unclaim(region->size);
    }
    pthread_mutex_unlock(&charges_lock);
}

static void reserve_index(struct rdma_values *values, uint32_t index) {
    if (index < values->count) return;
    uint32_t count = values->count ? values->count : 8;
    while (count <= index) count *= 2;
    values->regions = mem_realloc(values->regions, count * sizeof *values->regions);
    memset(values->regions + values->count, 0, (count - values->count) * sizeof *values->regions);
    values->count = count;
}

/* A registration by the background thread. `done` returns it to the device's thread, whose loop is woken then. */
struct rdma_values_job {
    struct rdma_values_job *next;
    struct event_loop *loop;
    struct ibv_pd *pd;
    const struct value_region *region; /* held */
    struct ibv_mr *mr;
    int error;
    atomic_bool done;
};

static void run_job(void *arg) {
    struct rdma_values_job *job = arg;
    struct event_loop *loop = job->loop; /* rdma_values_free() waits for the end of this function */
    job->mr = ibv_reg_mr(job->pd, job->region->base, job->region->size, IBV_ACCESS_LOCAL_WRITE);
    job->error = errno;
    atomic_store_explicit(&job->done, true, memory_order_release);
    event_loop_wake(loop);
}

static void finish_job(struct rdma_values *values, const struct rdma_values_job *job) {
    const struct value_region *region = job->region;
    rdma_register_done(values->memory, job->mr, job->error);
    if (!job->mr) {
        values->held--;
        uncharge_region(region);
        value_arena_release(region);
        refused(values, job->error);
        return;
    }
    reserve_index(values, region->index);
    values->regions[region->index] = job->mr;
    values->retry_us = 0;
    values->memory->stats->value_regions++;
}

static void finish_jobs(struct rdma_values *values) {
    for (struct rdma_values_job **at = &values->jobs; *at;) {
        struct rdma_values_job *job = *at;
        if (!atomic_load_explicit(&job->done, memory_order_acquire)) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        finish_job(values, job);
        mem_free(job);
        values->ended = true;
    }
}

bool rdma_values_ended(struct rdma_values *values) {
    if (values->jobs) finish_jobs(values);
    bool ended = values->ended;
    values->ended = false;
    return ended;
}

static bool has_job(const struct rdma_values *values, const struct value_region *region) {
    const struct rdma_values_job *job = values->jobs;
    while (job && job->region != region) job = job->next;
    return job != NULL;
}

static void start_job(struct rdma_values *values, const struct value_region *region) {
    struct rdma_values_job *job = mem_calloc(1, sizeof *job);
    job->pd = values->memory->pd;
    job->loop = values->loop;
    job->region = region;
    job->next = values->jobs;
    values->jobs = job;
    values->held++;
    value_arena_hold(region);
    background_submit(BACKGROUND_REGISTER, run_job, job);
    if (values->memory->work) values->memory->work(values->memory);
}

struct ibv_mr *rdma_values_register(struct rdma_values *values, const struct value_region *region) {
    if (values->jobs) finish_jobs(values);
    if (values->retry_us && clock_mono() < values->retry_us) return NULL;
    if (!has_job(values, region) && !(region->index < values->count && values->regions[region->index])) {
        if (!charge_region(values, region)) {
            refused(values, EDQUOT);
            return NULL;
        }
        start_job(values, region);
        finish_jobs(values); /* without a background thread it is finished already */
    }
    return region->index < values->count ? values->regions[region->index] : NULL;
}

bool rdma_values_pending(const struct rdma_values *values, const void *data) {
    const struct value_region *region = value_arena_region(data);
    return region && has_job(values, region);
}

/* The end of a registration, by the background thread: it takes milliseconds for a large region. */
struct forget_job {
    struct ibv_mr *mr;
    const struct value_region *region;
};

static void run_forget(void *arg) {
    struct forget_job *job = arg;
    int error = ibv_dereg_mr(job->mr);
    if (error)
        log_warning("RDMA: cannot unregister memory of values: %s", strerror(error)); /* the region stays */
    else {
        uncharge_region(job->region);
        value_arena_release(job->region);
    }
    mem_free(job);
}

static void forget(struct rdma_values *values, const struct value_region *region) {
    struct forget_job *job = mem_alloc(sizeof *job);
    *job = (struct forget_job){values->regions[region->index], region};
    values->regions[region->index] = NULL;
    values->held--;
    values->memory->stats->value_regions--;
    values->memory->stats->memory_regions--;
    background_submit(BACKGROUND_REGISTER, run_forget, job);
}

/* One round of tidying. */
struct values_tidy {
    struct rdma_values *values;
    uint64_t began_us, budget_us;
    bool begun, more;
};

static bool holds(void *context, const struct value_region *region) {
    const struct rdma_values *values = ((struct values_tidy *)context)->values;
    return region->index < values->count && values->regions[region->index];
}

static bool release(void *context, const struct value_region *region) {
    struct values_tidy *tidy = context;
    tidy->more = tidy->begun && clock_monotonic_us() - tidy->began_us >= tidy->budget_us;
    tidy->begun = true;
    if (!tidy->more) forget(tidy->values, region);
    return !tidy->more;
}

bool rdma_values_tidy(struct rdma_values *values, uint64_t budget_us) {
    struct values_tidy tidy = {.values = values, .began_us = clock_monotonic_us(), .budget_us = budget_us};
    finish_jobs(values);
    if (rdma_memory_is_short())
        value_arena_trim();
    else
        value_arena_age(clock_mono() / 1000);
    if (values->held) value_arena_sweep(holds, release, &tidy);
    return tidy.more;
}

void rdma_values_free(struct rdma_values *values) {
    background_drain(BACKGROUND_REGISTER);
    finish_jobs(values);
    for (uint32_t i = 0; i < values->count; i++) {
        if (!values->regions[i]) continue;
        forget(values, value_arena_region(values->regions[i]->addr));
    }
    background_drain(BACKGROUND_REGISTER); /* the protection domain goes next */
    mem_free(values->regions);
    *values = (struct rdma_values){.memory = values->memory, .loop = values->loop};
}
