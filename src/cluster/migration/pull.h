/* pull.h: slots that the target fetches from the source by RDMA READ, in place of chunks in the stream of the link.
 *
 *     source                                            target
 *     SYNCSLOTS CAPA slot-chunks slot-pull [key]   ->   opens buffers
 *                                                  <-   SYNCSLOTS CAPA slot-chunks slot-pull
 *     fills an arena with fragments
 *     SYNCSLOTS OFFER n address length rkey crc    ->   RDMA READ, checks the bytes, loads them
 *                                                  <-   SYNCSLOTS PULLED n + 1
 *     SYNCSLOTS SNAPSHOT-EOF, when all are pulled  ->
 *
 * The numbers are those of +CHUNK in repl/pull/wire.h, decimal; each chunk is one fragment (formats/rdb_fragment.h).
 * The source offers at most SLOT_PULL_WINDOW chunks that the target has not acknowledged, so the target never has to
 * stop reading the link. The target acknowledges a chunk when it has loaded it. Values too large for a fragment come as
 * commands on the link meanwhile. On a link with TLS the chunks are encrypted (repl/pull/seal.h) with `key`, 64
 * hexadecimal digits; without TLS there is none.
 *
 * The source asks for it on an RDMA link only. A target without memory for the buffers, or whose link is served by an
 * I/O thread, answers without slot-pull; then the chunks travel in the stream. The same happens if the source cannot
 * register the arena. A READ that fails ends the connection and the job.
 *
 * Main thread only. */
#pragma once
#include "cluster/migration/link.h"
#include "server/command/command.h"

enum { SLOT_PULL_WINDOW = 8 };

struct slot_offer; /* the arena of a snapshot, and what the target has of it */
struct slot_fetch; /* the buffers of the target */

#ifdef USE_RDMA
/* --- The source --- */
/* Asks the target: CAPA. False: the link cannot, or the job has no key; nothing was sent. */
bool slot_pull_ask(struct slot_export *export);
/* NULL: no memory. `advanced` is called when the target may get more, and at the end. */
struct slot_offer *slot_offer_new(struct slot_export *export, void (*advanced)(void *context), void *context);
int slot_offer_open(struct slot_offer *offer);                  /* registers the arena. 0 or a negative errno */
bool slot_offer_taken(struct slot_offer *offer, int64_t count); /* PULLED; false: the number is wrong */
uint64_t slot_offer_count_taken(const struct slot_offer *offer);
bool slot_offer_good(const struct slot_offer *offer);        /* false: the arena is damaged */
bool slot_offer_is_complete(const struct slot_offer *offer); /* slot_offer_finish() was called */
bool slot_offer_is_done(const struct slot_offer *offer);     /* the target has all chunks */
/* The job does not need it any more: revokes the key. NULL is accepted. */
void slot_offer_withdraw(struct slot_offer *offer);
void slot_offer_free(struct slot_offer *offer);            /* NULL is accepted */
unsigned slot_offer_space(const struct slot_offer *offer); /* fragments that can be begun */
/* The memory of the next fragment; there is space for one. */
char *slot_offer_begin(struct slot_offer *offer, size_t *size);
/* Offers its first `len` bytes; marks the end. 0 or a negative errno. */
int slot_offer_publish(struct slot_offer *offer, size_t len);
int slot_offer_finish(struct slot_offer *offer);

/* --- The target --- */
/* CAPA with slot-pull: opens the buffers. False: it cannot. `key`: "" without TLS. */
bool slot_fetch_open(struct slot_import *import, struct slice key);
void slot_fetch_offered(struct slot_import *import, const struct call *call); /* OFFER; may fail the job */
void slot_fetch_step(struct slot_import *import);                             /* loads some of what has arrived */
bool slot_fetch_is_idle(const struct slot_import *import); /* nothing was offered that is not loaded */
void slot_fetch_free(struct slot_job *job);
#else
static inline bool slot_pull_ask(struct slot_export *export) {
    return false;
}
static inline struct slot_offer *slot_offer_new(struct slot_export *export, void (*advanced)(void *context),
                                                void *context) {
    return NULL;
}
static inline int slot_offer_open(struct slot_offer *offer) {
    return -1;
}
static inline bool slot_offer_taken(struct slot_offer *offer, int64_t count) {
    return false;
}
static inline uint64_t slot_offer_count_taken(const struct slot_offer *offer) {
    return 0;
}
static inline bool slot_offer_good(const struct slot_offer *offer) {
    return true;
}
static inline bool slot_offer_is_complete(const struct slot_offer *offer) {
    return true;
}
static inline bool slot_offer_is_done(const struct slot_offer *offer) {
    return true;
}
static inline void slot_offer_withdraw(struct slot_offer *offer) {}
static inline void slot_offer_free(struct slot_offer *offer) {}
static inline char *slot_offer_begin(struct slot_offer *offer, size_t *size) {
    return NULL;
}
static inline int slot_offer_publish(struct slot_offer *offer, size_t len) {
    return -1;
}
static inline int slot_offer_finish(struct slot_offer *offer) {
    return -1;
}
static inline unsigned slot_offer_space(const struct slot_offer *offer) {
    return 0;
}
static inline bool slot_fetch_open(struct slot_import *import, struct slice key) {
    return false;
}
static inline void slot_fetch_offered(struct slot_import *import, const struct call *call) {
    job_end_later(&import->job, "Unexpected state machine transition");
}
static inline void slot_fetch_step(struct slot_import *import) {}
static inline bool slot_fetch_is_idle(const struct slot_import *import) {
    return true;
}
static inline void slot_fetch_free(struct slot_job *job) {}
#endif
