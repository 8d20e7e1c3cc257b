/* checksum.c: see checksum.h. A checksum that is 0 counts as unknown and is computed each time: one value in four
 * billion. */
#include "blob/checksum.h"
#include "blob/again.h"
#include "lib/hash/crc32c.h"
#include "lib/system/background.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/server.h"

enum {
    AT_ONCE_MAX = 64 * 1024, /* takes less time than to wait for another thread */
    ROUNDS_MAX = 4           /* a value that is replaced this often is computed at once */
};

/* A client that waits for a checksum. */
struct checksum_wait {
    struct again again;
    struct blob *blob;
    struct checksum_job *job; /* NULL: it has ended */
    uint32_t crc;
    int round;       /* how often the client has waited before */
    bool reply_only; /* checksum_begin() */
};
struct checksum_job {
    struct event_post post;     /* must be first */
    struct checksum_wait *wait; /* NULL: nobody waits any more */
    struct blob *blob;
    uint32_t crc;
};
static uint64_t computed, computed_bytes;

uint64_t checksums_computed(uint64_t *bytes) {
    *bytes = computed_bytes;
    return computed;
}

static void job_free(struct event_post *post) {
    struct checksum_job *job = (struct checksum_job *)post;
    blob_release(job->blob);
    mem_free(job);
}

static void job_ended(struct event_post *post) {
    struct checksum_job *job = (struct checksum_job *)post;
    job->blob->crc = job->crc; /* the job held it, so that its bytes have not changed */
    must(!job->wait || job->wait->job == job);
    if (job->wait) {
        job->wait->crc = job->crc;
        job->wait->job = NULL;
        again_soon(&job->wait->again);
    }
    job_free(post);
}

static void job_run(void *argument) {
    struct checksum_job *job = argument;
    job->crc = crc32c(0, job->blob->data, job->blob->len);
    event_loop_post(server.loop, &job->post);
}

static void wait_over(void *state) {
    struct checksum_wait *wait = state;
    if (wait->job) wait->job->wait = NULL;
    again_cancel(&wait->again);
    blob_release(wait->blob);
    mem_free(wait);
}

static void wait_on(struct call *call, struct checksum_wait *wait) {
    call_block(call, &(struct blocking){.changes_later = true, .until_done = true, .state = wait, .ended = wait_over});
}

static void wait_for_job(struct call *call, struct blob *blob, int round, bool reply_only) {
    computed++;
    computed_bytes += blob->len;
    struct checksum_wait *wait = mem_alloc(sizeof *wait);
    struct checksum_job *job = mem_alloc(sizeof *job);
    *job = (struct checksum_job){.post = {.run = job_ended, .drop = job_free}, .wait = wait, .blob = blob_hold(blob)};
    *wait = (struct checksum_wait){.blob = blob_hold(blob), .job = job, .round = round, .reply_only = reply_only};
    again_init(&wait->again, call);
    wait_on(call, wait);
    background_submit(BACKGROUND_CHECKSUM, job_run, job);
}

static bool may_wait(const struct call *call, const struct blob *blob) {
    const struct client *client = call->client;
    return blob->len > AT_ONCE_MAX && client->conn && !(client->flags & CLIENT_DENY_BLOCKING) &&
           background_is_parallel(BACKGROUND_CHECKSUM);
}

bool checksum_begin(struct call *call, struct blob *blob) {
    if (blob->crc || !may_wait(call, blob)) return false;
    wait_for_job(call, blob, 0, true);
    return true;
}

enum checksum_state checksum_state(struct call *call, uint64_t *length, uint32_t *crc) {
    struct checksum_wait *wait = call_wait(call, wait_over);
    if (!wait || !wait->reply_only) return CHECKSUM_NONE;
    *length = wait->blob->len;
    *crc = wait->crc;
    if (!wait->job) return CHECKSUM_THERE;
    wait_on(call, wait);
    return CHECKSUM_WAITS;
}

bool checksum_find(struct call *call, struct blob *blob, uint32_t *crc) {
    const struct checksum_wait *wait = call_wait(call, wait_over);
    bool waited = wait && wait->blob == blob && !wait->job;
    *crc = waited ? wait->crc : blob->crc;
    if (*crc || waited) return true;
    int round = wait ? wait->round + 1 : 0; /* the value was replaced while the client waited */
    if (round < ROUNDS_MAX && may_wait(call, blob)) {
        wait_for_job(call, blob, round, false);
        return false;
    }
    computed++;
    computed_bytes += blob->len;
    *crc = blob->crc = crc32c(0, blob->data, blob->len);
    return true;
}
