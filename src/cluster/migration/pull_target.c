/* pull_target.c: fetches the chunks that the source offers; see pull.h.
 *
 * Offers are kept until the connection may have another READ in flight. Chunks are loaded at the end of a turn of the
 * loop, a few at a time, so that clients are served in between. */
#include "cluster/migration/pull.h"
#include "cluster/migration/chunk.h"
#include "formats/rdb_fragment.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "repl/pull/arena.h"
#include "repl/pull/reads.h"
#include "server/server.h"
#include <string.h>

enum { TURN_US = 2000 /* of loading, before clients are served */ };
_Static_assert((int)PULL_CHUNK_SIZE == (int)RDB_FRAGMENT_MAX, "a chunk is a fragment");

struct slot_fetch {
    struct pull_reads *reads;
    struct pull_offer offers[SLOT_PULL_WINDOW]; /* a ring; from reads->started to `offered` */
    uint64_t offered;
    struct event_timer again; /* more has arrived than a turn loads */
};

bool slot_fetch_open(struct slot_import *import, struct slice key_text) {
    struct job_link *link = link_of(&import->job);
    struct connection *conn = link->client ? link->client->conn : NULL;
    struct pull_key key;
    const char *error;
    if (!conn || link->fetch || !rdma_read_depth(conn)) return false;
    bool sealed = conn->transport->carrier != NULL;
    if (sealed != (key_text.len > 0) || (sealed && !pull_key_parse(key_text, &key))) return false;
    struct slot_fetch *fetch = mem_calloc(1, sizeof *fetch);
    struct pull_reads_params params = {
        .chunk_size = PULL_CHUNK_SIZE, .buffers = SLOT_PULL_WINDOW, .key = sealed ? &key : NULL};
    fetch->reads = pull_reads_new(conn, &params, &error);
    if (sealed) pull_key_forget(&key);
    if (!fetch->reads) {
        log_warning("Slot migration %s cannot fetch the slots by RDMA READ: %s", import_text(import), error);
        mem_free(fetch);
        return false;
    }
    link->fetch = fetch;
    return true;
}

void slot_fetch_free(struct slot_job *job) {
    struct slot_fetch *fetch = link_of(job)->fetch;
    if (!fetch) return;
    link_of(job)->fetch = NULL;
    if (fetch->again.heap_index) event_timer_cancel(server.loop, &fetch->again);
    pull_reads_free(fetch->reads);
    mem_free(fetch);
}

bool slot_fetch_is_idle(const struct slot_import *import) {
    const struct slot_fetch *fetch = link_of(&import->job)->fetch;
    return !fetch || fetch->reads->consumed == fetch->offered;
}

static void fetch_failed(struct slot_import *import, const char *reason) {
    log_warning("Slot migration %s: fetching the slots by RDMA READ failed: %s", import_text(import), reason);
    import_command_failed(import);
}

static void start_reads(struct slot_import *import) {
    struct job_link *link = link_of(&import->job);
    struct slot_fetch *fetch = link->fetch;
    struct pull_reads *reads = fetch->reads;
    while (reads->started < fetch->offered && pull_reads_ready(reads)) {
        if (pull_reads_start(reads, link->client->conn, &fetch->offers[reads->started % SLOT_PULL_WINDOW])) continue;
        fetch_failed(import, "a chunk has an invalid length");
        return;
    }
}

void slot_fetch_offered(struct slot_import *import, const struct call *call) {
    struct slot_fetch *fetch = link_of(&import->job)->fetch;
    uint64_t numbers[5]; /* number, address, length, key, checksum */
    bool good = fetch && call->argc == 8;
    for (int i = 0; good && i < 5; i++) good = parse_uint64(call->argv[3 + i], &numbers[i]);
    if (!good || numbers[0] != fetch->offered || fetch->offered - fetch->reads->consumed >= SLOT_PULL_WINDOW ||
        numbers[2] > UINT32_MAX || numbers[3] > UINT32_MAX || numbers[4] > UINT32_MAX) {
        fetch_failed(import, "the offer of a chunk is malformed");
        return;
    }
    fetch->offers[fetch->offered++ % SLOT_PULL_WINDOW] = (struct pull_offer){.address = numbers[1],
                                                                             .length = (uint32_t)numbers[2],
                                                                             .rkey = (uint32_t)numbers[3],
                                                                             .checksum = (uint32_t)numbers[4]};
    start_reads(import);
}

static void acknowledge(struct slot_import *import) {
    const struct slot_fetch *fetch = link_of(&import->job)->fetch;
    struct slot_message pulled = {.verb = VERB_PULLED, .pulled = (int64_t)fetch->reads->consumed};
    job_send_message(&import->job, &pulled);
}

static uint64_t look_again(struct event_timer *timer) {
    return 0; /* the turn ends with the next step */
}

void slot_fetch_step(struct slot_import *import) {
    struct job_link *link = link_of(&import->job);
    struct slot_fetch *fetch = link->fetch;
    struct slice chunk;
    if (!fetch || import->job.ending) return;
    struct pull_reads *reads = fetch->reads;
    uint64_t begun = clock_monotonic_us();
    while ((chunk = pull_reads_front(reads)).len) {
        if (clock_monotonic_us() - begun > TURN_US) {
            event_timer_set(server.loop, &fetch->again, 0, look_again);
            break;
        }
        if (!chunk_load_pulled(import, chunk)) return;
        jobs_count_imported(chunk.len);
        pull_reads_next(reads);
        acknowledge(import);
        if (link->fetch != fetch) return; /* a limit of the link's output has ended it */
    }
    if (link->client) start_reads(import);
    if (reads->error) fetch_failed(import, reads->reason);
}
