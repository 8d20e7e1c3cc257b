/* polled.c: see polled.h. */
#include "net/rdma/polled.h"
#include "lib/system/must.h"
#include "net/rdma/announce.h"
#include "net/rdma/receive.h"
#include "net/rdma/send.h"
#include <stdatomic.h>

enum {
    LINE = 64,
    AFTER_MOST = 4096,
    LATER = 4,             /* factor for `after`, when a period had fewer than */
    WORTHWHILE = 256,      /* messages: the control messages of a period wake a peer that sleeps */
    BEGINS_A_TICK = 32,    /* four control messages each, of which two reach the same end; it takes 512 */
    DOUBT_MAX = 256 * 1024 /* bytes of checksums without a match; each check counts as a cache line more */
};

/* --- Poll slots --- */

void rdma_polled_agreed(struct rdma_connection *c) {
    c->polled.agreed = true;
    c->qp.device->polls.users++;
    rdma_polls_add(&c->qp.device->polls);
}

static bool slot_take(struct rdma_connection *c) {
    if (!c->polled.slot) c->polled.slot = rdma_poll_slot_take(&c->qp.device->polls);
    return c->polled.slot != NULL;
}

static void slot_give(struct rdma_connection *c) {
    if (c->polled.slot) rdma_poll_slot_give(&c->qp.device->polls, c->polled.slot);
    c->polled.slot = NULL;
}

/* --- When to poll --- */

uint64_t rdma_polled_possible(const struct rdma_connection *c) {
    return c->qp.max_inline >= sizeof(uint64_t) && !c->polled.excluded ? RDMA_FEATURE_POLLED : 0;
}

void rdma_polled_init(struct rdma_connection *c) {
    c->polled.after = rdma_settings.poll_after;
    c->polled.begins_left = BEGINS_A_TICK;
}

/* A completion covers all bytes up to `count`. */
static void begin_checksum_in(struct rdma_polled *polled, uint32_t count) {
    polled->base_in = count;
    polled->crc_in = rdma_crc_begin(count);
    polled->doubt = 0;
}

/* If it cannot begin now, the next message tries again. */
static void rdma_polled_begin(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    bool may = polled->begins_left && !c->end_pending && c->conn.state == CONN_OPEN && (c->conn.trusted || !c->passive);
    if (!may || !slot_take(c)) return;
    begin_checksum_in(polled, polled->count_in);
    atomic_store_explicit(polled->slot->word, rdma_word_make(polled->count_in, polled->crc_in), memory_order_relaxed);
    union rdma_wire_message message = {.memory = {.opcode = htobe16(RDMA_OP_POLL_BEGIN),
                                                  .addr = htobe64((uintptr_t)polled->slot->word),
                                                  .length = htobe32(sizeof *polled->slot->word),
                                                  .key = htobe32(polled->slot->mr->rkey)}};
    if (!rdma_send_control(c, &message)) return;
    polled->begins_left--;
    polled->state = RDMA_POLLED_ASKED;
}

void rdma_polled_after_immediate(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    if (!polled->agreed || polled->state != RDMA_POLLED_OFF) return;
    if (polled->sleeps != c->owner->stats.sleeps) {
        polled->sleeps = c->owner->stats.sleeps;
        polled->immediates = 0;
    }
    if (++polled->immediates >= polled->after) rdma_polled_begin(c);
}

static void rdma_polled_end(struct rdma_connection *c) {
    c->polled.ending = true;
    c->polled.want_end = !rdma_send_count(c, RDMA_OP_POLL_END, 0);
    if (c->polled.want_end) c->send.wants_control = true;
}

void rdma_polled_end_all(struct rdma_device *device) {
    for (int i = 0; i < device->polls.count; i++) {
        struct rdma_connection *c = device->polls.entries[i].conn;
        if (!c->polled.ending && !c->end_pending && !c->finished) rdma_polled_end(c);
    }
}

void rdma_polled_tick(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    polled->begins_left = BEGINS_A_TICK;
    if (polled->state == RDMA_POLLED_OFF)
        slot_give(c);
    else if (polled->state == RDMA_POLLED_ON && !polled->ending && polled->ticked == polled->count_in)
        rdma_polled_end(c);
    polled->ticked = polled->count_in;
}

/* --- Looking --- */

static void entry_begin(struct rdma_connection *c) {
    struct rdma_polls *polls = &c->qp.device->polls;
    struct rdma_polled *polled = &c->polled;
    must_hold(polls->count < RDMA_POLLED_MAX && polled->slot, "%d are polled", polls->count);
    polled->entry = polls->count++;
    polls->entries[polled->entry] =
        (struct rdma_poll_entry){polled->slot->word, rdma_word_make(polled->count_in, polled->crc_in), c};
    polled->state = RDMA_POLLED_ON;
    polled->messages = 0;
    c->owner->stats.polled_connections++;
}

static void entry_end(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    struct rdma_polls *polls = &c->qp.device->polls;
    must_less(polled->entry, polls->count);
    must(polls->entries[polled->entry].conn == c);
    struct rdma_poll_entry *last = &polls->entries[--polls->count];
    polls->entries[polled->entry] = *last;
    last->conn->polled.entry = polled->entry;
    c->owner->stats.polled_connections--;
    polled->state = RDMA_POLLED_OFF;
    polled->immediates = 0;
    if (polled->distrusted)
        polled->after = AFTER_MOST;
    else if (polled->messages >= WORTHWHILE)
        polled->after = rdma_settings.poll_after;
    else if (polled->after < AFTER_MOST)
        polled->after *= LATER;
    polled->ending = polled->want_end = polled->distrusted = false;
}

/* Between RegisterXferMemory and BufferTaken a word does not say which buffer its bytes are in: BufferTaken does. */
static inline bool may_check(const struct rdma_connection *c) {
    return c->polled.state == RDMA_POLLED_ON && !c->polled.distrusted && !c->ring.moving && !c->end_pending &&
           !c->finished;
}

static void take(struct rdma_connection *c, uint32_t count) {
    uint32_t len = count - c->polled.count_in;
    c->polled.count_in = count;
    c->polled.messages++;
    rdma_receive_data(c, len);
}

/* The buffer that the peer writes to. */
static inline const struct rdma_rx *written_buffer(const struct rdma_connection *c) {
    return c->receive.next && !c->ring.moving ? c->receive.next : c->receive.rx;
}

/* The offset of the next byte of the stream in it. The bytes may continue at the start of a ring. */
static inline uint32_t next_offset(const struct rdma_connection *c, const struct rdma_rx *rx) {
    if (rx == c->receive.next) return c->receive.next_received;
    return c->receive.received < rx->size ? c->receive.received : c->receive.wrapped;
}

/* Not beyond the message: the peer is about to write the next line. */
static inline void prefetch_message(const struct rdma_connection *c, uint64_t word) {
    const struct rdma_rx *rx = written_buffer(c);
    const char *bytes = rx->data + next_offset(c, rx);
    __builtin_prefetch(bytes);
    if ((uintptr_t)bytes % LINE + (rdma_word_count(word) - c->polled.count_in) > LINE) __builtin_prefetch(bytes + LINE);
}

/* The checksum of the next `len` bytes of the stream, which fit in the space that the peer may write. */
static uint32_t crc_of_next(const struct rdma_connection *c, uint32_t len) {
    const struct rdma_rx *rx = written_buffer(c);
    uint32_t at = next_offset(c, rx), first = len < rx->size - at ? len : rx->size - at;
    uint32_t crc = crc32c(c->polled.crc_in, rx->data + at, first);
    return first < len ? crc32c(crc, rx->data, len - first) : crc;
}

enum polled_check { CHECK_NOTHING, CHECK_TAKEN, CHECK_AGAIN };

/* Treat an impossible count like a checksum that does not match. */
static enum polled_check doubt(struct rdma_connection *c, uint32_t len) {
    struct rdma_polled *polled = &c->polled;
    polled->doubt += len + LINE;
    c->owner->stats.polled_again++;
    if (polled->doubt <= DOUBT_MAX) return CHECK_AGAIN;
    polled->distrusted = true;
    c->owner->stats.polled_given_up++;
    return CHECK_NOTHING;
}

static enum polled_check check_word(struct rdma_connection *c, struct rdma_poll_entry *entry, uint64_t word) {
    struct rdma_polled *polled = &c->polled;
    uint32_t count = rdma_word_count(word), len = count - polled->count_in;
    if (len == 0 || (int32_t)len < 0) { /* an immediate has announced more meanwhile */
        entry->last = word;
        return CHECK_NOTHING;
    }
    if (len > c->receive.writable || count - polled->base_in > RDMA_POLLED_BYTES_MAX) return doubt(c, 0);
    uint32_t crc = crc_of_next(c, len);
    if (crc != rdma_word_crc(word)) return doubt(c, len);
    entry->last = word;
    polled->crc_in = crc;
    polled->doubt = 0;
    c->owner->stats.polled_in++;
    take(c, count);
    return CHECK_TAKEN;
}

/* The word and its bytes were written by another core or by the device, so the first access to each waits for memory.
 * The first pass over the entries starts all these accesses, the second one takes the messages. */
bool rdma_polled_check(struct rdma_device *device) {
    struct rdma_poll_entry *changed[RDMA_POLLED_MAX];
    uint64_t words[RDMA_POLLED_MAX];
    int count = 0;
    bool found = false;
    for (int i = 0; i < device->polls.count; i++) {
        struct rdma_poll_entry *entry = &device->polls.entries[i];
        uint64_t word = atomic_load_explicit(entry->word, memory_order_acquire);
        if (word == entry->last || !may_check(entry->conn)) continue;
        prefetch_message(entry->conn, word);
        changed[count] = entry;
        words[count++] = word;
    }
    for (int i = 0; i < count; i++) {
        struct rdma_connection *c = changed[i]->conn;
        found |= check_word(c, changed[i], words[i]) == CHECK_TAKEN;
        if (c->polled.distrusted && !c->polled.ending) rdma_polled_end(c);
    }
    return found;
}

void rdma_polled_take_until(struct rdma_connection *c, uint32_t count) {
    if (c->polled.state != RDMA_POLLED_ON) return;
    if (count != c->polled.count_in) take(c, count);
    begin_checksum_in(&c->polled, count);
}

/* Bytes that do not match by now are lost, like any others in flight. */
void rdma_polled_take(struct rdma_connection *c) {
    c->polled.doubt = 0; /* also if it is distrusted: as many checks as for any other word */
    enum polled_check result = CHECK_AGAIN;
    while (result == CHECK_AGAIN && c->polled.state == RDMA_POLLED_ON && !c->end_pending && !c->finished) {
        struct rdma_poll_entry *entry = &c->qp.device->polls.entries[c->polled.entry];
        uint64_t word = atomic_load_explicit(entry->word, memory_order_acquire);
        result = word == entry->last ? CHECK_NOTHING : check_word(c, entry, word);
    }
}

bool rdma_polled_immediate(struct rdma_connection *c, uint32_t immediate) {
    if (c->polled.state != RDMA_POLLED_ON) return true;
    uint32_t len = immediate - c->polled.count_in;
    if (len == 0 || len > c->receive.writable)
        rdma_violation(c, "an immediate of %u after %u bytes, while %u are free", immediate, c->polled.count_in,
                       c->receive.writable);
    else
        rdma_polled_take_until(c, immediate);
    return false;
}

bool rdma_polled_pump(struct rdma_connection *c) {
    if (c->polled.want_end) c->polled.want_end = !rdma_send_count(c, RDMA_OP_POLL_END, 0);
    return !c->polled.want_end;
}

void rdma_polled_on_begun(struct rdma_connection *c) {
    if (c->polled.state != RDMA_POLLED_ASKED)
        rdma_violation(c, "PollBegun that answers no PollBegin");
    else
        entry_begin(c);
}

void rdma_polled_on_ended(struct rdma_connection *c, const struct rdma_wire_credit *count) {
    if (!c->polled.ending || c->polled.want_end) {
        rdma_violation(c, "PollEnded that answers no PollEnd");
        return;
    }
    rdma_polled_take_until(c, be32toh(count->bytes));
    entry_end(c);
}

void rdma_polled_release(struct rdma_connection *c) {
    if (c->polled.state == RDMA_POLLED_ON) entry_end(c);
    slot_give(c);
    must(!c->polled.agreed || c->qp.device->polls.users > 0);
    if (c->polled.agreed) c->qp.device->polls.users--;
    c->polled.agreed = false;
}
