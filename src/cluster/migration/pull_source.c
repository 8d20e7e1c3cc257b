/* pull_source.c: offers the arena of a snapshot to the target; see pull.h. */
#include "cluster/migration/pull.h"
#include "lib/system/background.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "repl/pull/arena.h"
#include "repl/pull/reads.h"
#include "server/server.h"
#include <errno.h>
#include <string.h>

_Static_assert((int)SLOT_PULL_WINDOW >= (int)PULL_SLOTS_MIN, "the slots of the arena");

struct slot_offer {
    struct slot_export *export;
    struct pull_arena *arena;
    struct rdma_window window;
    uint64_t announced, taken, published; /* chunks */
    bool complete, damaged;
    void (*advanced)(void *context);
    void *context;
};

static bool is_sealed(const struct slot_export *export) {
    return export_client(export)->conn->transport->carrier != NULL;
}

bool slot_pull_ask(struct slot_export *export) {
    struct slot_message question = {.verb = VERB_CAPA, .capability = CAPABILITY_PULL};
    struct job_link *link = link_of(&export->job);
    char text[PULL_KEY_TEXT];
    if (!link->client || !rdma_window_possible(link->client->conn)) return false;
    if (is_sealed(export)) {
        if (!link->pull_key) link->pull_key = mem_alloc(sizeof *link->pull_key);
        if (!pull_key_new(link->pull_key)) return false;
        pull_key_format(text, link->pull_key);
        question.key = slice_make(text, sizeof text);
    }
    job_send_message(&export->job, &question);
    memset(text, 0, sizeof text);
    return true;
}

struct slot_offer *slot_offer_new(struct slot_export *export, void (*advanced)(void *context), void *context) {
    struct pull_arena *arena = pull_arena_new((size_t)SLOT_PULL_WINDOW * PULL_CHUNK_SIZE,
                                              is_sealed(export) ? link_of(&export->job)->pull_key : NULL);
    if (!arena) return NULL;
    struct slot_offer *offer = mem_calloc(1, sizeof *offer);
    *offer = (struct slot_offer){.export = export, .arena = arena, .advanced = advanced, .context = context};
    return offer;
}

static void pull_source_announce(struct slot_offer *offer) {
    struct client *client = export_client(offer->export);
    offer->published = pull_arena_published(offer->arena);
    for (; offer->announced < offer->published && client; offer->announced++) {
        struct pull_chunk chunk;
        char numbers[5][NUMBER_TEXT_MAX];
        if (offer->published - offer->taken > SLOT_PULL_WINDOW ||
            !pull_arena_chunk(offer->arena, offer->announced, &chunk)) {
            offer->damaged = true;
            return;
        }
        const uint64_t values[] = {offer->announced, (uintptr_t)chunk.bytes, chunk.length, offer->window.rkey,
                                   chunk.checksum};
        struct slice words[8] = {SLICE("CLUSTER"), SLICE("SYNCSLOTS"), SLICE("OFFER")};
        for (int i = 0; i < 5; i++) words[3 + i] = slice_make(numbers[i], format_uint64(numbers[i], values[i]));
        job_send_words(&offer->export->job, 8, words);
        client = export_client(offer->export);
        jobs_count_exported(chunk.length);
    }
}

int slot_offer_open(struct slot_offer *offer) {
    size_t size;
    void *memory = pull_arena_memory(offer->arena, &size);
    enum rdma_window_use use = is_sealed(offer->export) ? RDMA_WINDOW_OFFERED_SEALED : RDMA_WINDOW_OFFERED;
    return rdma_window_open(export_client(offer->export)->conn, use, memory, size, &offer->window);
}

bool slot_offer_taken(struct slot_offer *offer, int64_t count) {
    if (count <= 0 || (uint64_t)count <= offer->taken || (uint64_t)count > offer->announced) return false;
    offer->taken = (uint64_t)count;
    pull_arena_release(offer->arena, offer->taken);
    pull_source_announce(offer);
    offer->advanced(offer->context);
    return true;
}

uint64_t slot_offer_count_taken(const struct slot_offer *offer) {
    return offer->taken;
}

bool slot_offer_good(const struct slot_offer *offer) {
    return !offer->damaged;
}

bool slot_offer_is_complete(const struct slot_offer *offer) {
    return offer->complete;
}
bool slot_offer_is_done(const struct slot_offer *offer) {
    return offer->complete && offer->taken == offer->published;
}

/* Unmapping takes a millisecond for 3 MiB, so a background thread does it. */
static void free_arena(void *arena) {
    pull_arena_free(arena);
}

void slot_offer_withdraw(struct slot_offer *offer) {
    if (!offer) return;
    rdma_window_close(&offer->window);
}

void slot_offer_free(struct slot_offer *offer) {
    if (!offer) return;
    slot_offer_withdraw(offer);
    background_submit(BACKGROUND_LAZY_FREE, free_arena, offer->arena);
    mem_free(offer);
}

/* --- Writing --- */

static bool never_waits(void *context) {
    return false;
}
static uint64_t keys_unknown(void *context) {
    return 0;
}

char *slot_offer_begin(struct slot_offer *offer, size_t *size) {
    static const struct pull_writer writer = {.goes_on = never_waits, .keys = keys_unknown};
    must(slot_offer_space(offer) > 0);
    return pull_arena_begin(offer->arena, &writer, size);
}
int slot_offer_publish(struct slot_offer *offer, size_t len) {
    int result = pull_arena_publish(offer->arena, len);
    if (!result) pull_source_announce(offer);
    return result ? result : offer->damaged ? -EIO : 0;
}
int slot_offer_finish(struct slot_offer *offer) {
    int result = pull_arena_finish(offer->arena);
    offer->complete = !result;
    return result;
}
unsigned slot_offer_space(const struct slot_offer *offer) {
    return pull_arena_free_slots(offer->arena);
}
