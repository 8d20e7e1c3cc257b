/* rdma_polled.c: see rdma_polled.h. */
#include "net/rdma_connection.h"
#include "lib/crc32c.h"
#include <endian.h>
#include <sys/mman.h>

enum {
    SLOT_SIZE = 4096,
    LINE = 64,
    AFTER_MOST = 4096,
    LATER = 4,             /* factor for `after`, when a period had fewer than */
    WORTHWHILE = 256,      /* messages: the control messages of a period wake a peer that sleeps */
    BEGINS_A_TICK = 32,    /* four control messages each, of which two reach the same end; it takes 512 */
    DOUBT_MAX = 256 * 1024 /* bytes of checksums without a match; each check counts as a cache line more */
};

/* The word */

static inline uint64_t make_word(uint32_t count, uint32_t crc) {
    return htobe64((uint64_t)count << 32 | crc);
}
static inline uint32_t word_count(uint64_t word) {
    return (uint32_t)(be64toh(word) >> 32);
}
static inline uint32_t word_crc(uint64_t word) {
    return (uint32_t)be64toh(word);
}
/* The checksum includes the count that it starts at, so that the word of another stretch of the stream does not match
 * by its bytes alone. */
static inline uint32_t crc_begin(uint32_t count) {
    uint32_t wire = htobe32(count);
    return crc32c(0, &wire, sizeof wire);
}

/* Poll slots */

static bool slot_register(struct rdma_device *device, struct rdma_poll_slot *slot) {
    struct rdma_polls *polls = &device->polls;
    size_t at = (size_t)(slot - polls->slots);
    char *page = polls->pages + at * SLOT_SIZE;
    slot->mr = rdma_register(&device->memory, page, SLOT_SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                             RDMA_MEMORY_CONTROL);
    if (!slot->mr) return false;
    slot->word =
        (_Atomic uint64_t *)(void *)(page + at * LINE % SLOT_SIZE); /* spread the words over the sets of the cache */
    slot->next = polls->ready;
    polls->ready = slot;
    polls->usable++;
    return true;
}

static inline int slots_wanted(const struct rdma_polls *polls) {
    return polls->users < RDMA_POLLED_MAX ? (int)polls->users : RDMA_POLLED_MAX;
}

/* Unregisters the oldest stale slot, whose key a peer knows; registers it again if it is needed. */
static void recycle_slot(struct rdma_device *device) {
    struct rdma_polls *polls = &device->polls;
    struct rdma_poll_slot *slot = polls->stale;
    polls->stale = slot->next;
    if (!rdma_unregister(&device->memory, slot->mr, RDMA_MEMORY_CONTROL))
        return; /* the device failed to unregister it: the slot is lost */
    slot->mr = NULL;
    if (polls->usable < slots_wanted(polls)) slot_register(device, slot);
}

/* Adds a slot if another connection could use it. */
static void add_slot(struct rdma_device *device) {
    struct rdma_polls *polls = &device->polls;
    if (polls->usable >= slots_wanted(polls)) return;
    if (polls->stale) {
        recycle_slot(device);
        return;
    }
    if (!polls->pages) {
        size_t size = SLOT_SIZE * RDMA_POLLED_MAX;
        void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) return;
        madvise(pages, size, MADV_DONTFORK);
        polls->pages = pages;
    }
    for (int i = 0; i < polls->made; i++) {
        if (polls->slots[i].mr) continue;
        slot_register(device, &polls->slots[i]);
        return;
    }
    if (polls->made < RDMA_POLLED_MAX && slot_register(device, &polls->slots[polls->made])) polls->made++;
}

void rdma_polled_agreed(struct rdma_connection *c) {
    c->polled.agreed = true;
    c->device->polls.users++;
    add_slot(c->device);
}

static bool slot_take(struct rdma_connection *c) {
    struct rdma_polls *polls = &c->device->polls;
    if (c->polled.slot) return true;
    if (!polls->ready) return false;
    c->polled.slot = polls->ready;
    polls->ready = polls->ready->next;
    return true;
}

/* The peer knows its key, so no other connection gets it before it is registered again. */
static void slot_give(struct rdma_connection *c) {
    struct rdma_poll_slot *slot = c->polled.slot;
    struct rdma_memory *memory = &c->device->memory;
    if (!slot) return;
    c->polled.slot = NULL;
    slot->next = c->device->polls.stale;
    c->device->polls.stale = slot;
    c->device->polls.usable--;
    if (memory->work) memory->work(memory);
}

void rdma_polls_tidy(struct rdma_device *device) {
    struct rdma_polls *polls = &device->polls;
    while (polls->stale) recycle_slot(device);
    while (polls->ready && polls->usable > slots_wanted(polls)) {
        struct rdma_poll_slot *slot = polls->ready;
        polls->ready = slot->next;
        polls->usable--;
        if (rdma_unregister(&device->memory, slot->mr, RDMA_MEMORY_CONTROL)) slot->mr = NULL;
    }
}

void rdma_polls_free(struct rdma_device *device) {
    struct rdma_polls *polls = &device->polls;
    polls->users = 0;
    rdma_polls_tidy(device);
    if (polls->pages) munmap(polls->pages, SLOT_SIZE * RDMA_POLLED_MAX);
}

/* When to poll */

uint64_t rdma_polled_possible(const struct rdma_connection *c) {
    bool possible = c->max_inline >= sizeof(uint64_t) && rdma_uses(RDMA_POLLED);
    return possible ? RDMA_FEATURE_POLLED : 0;
}

void rdma_polled_init(struct rdma_connection *c) {
    c->polled.after = rdma_settings.poll_after;
    c->polled.begins_left = BEGINS_A_TICK;
}

static bool send_count(struct rdma_connection *c, enum rdma_opcode opcode, uint32_t count) {
    union rdma_wire_message message = {.credit = {.opcode = htobe16(opcode), .bytes = htobe32(count)}};
    return rdma_send_control(c, &message);
}

/* A completion covers all bytes up to `count`. */
static void begin_checksum_in(struct rdma_polled *polled, uint32_t count) {
    polled->base_in = count;
    polled->crc_in = crc_begin(count);
    polled->doubt = 0;
}

/* If it cannot begin now, the next message tries again. */
static void begin(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    bool may = polled->begins_left && !c->end_pending && c->conn.state == CONN_OPEN && (c->conn.trusted || !c->passive);
    if (!may || !slot_take(c)) return;
    begin_checksum_in(polled, polled->count_in);
    atomic_store_explicit(polled->slot->word, make_word(polled->count_in, polled->crc_in), memory_order_relaxed);
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
    if (++polled->immediates >= polled->after) begin(c);
}

static void end(struct rdma_connection *c) {
    c->polled.ending = true;
    c->polled.want_end = !send_count(c, RDMA_OP_POLL_END, 0);
    if (c->polled.want_end) c->wants_control = true;
}

void rdma_polled_end_all(struct rdma_device *device) {
    for (int i = 0; i < device->polls.count; i++) {
        struct rdma_connection *c = device->polls.entries[i].conn;
        if (!c->polled.ending && !c->end_pending && !c->finished) end(c);
    }
}

void rdma_polled_tick(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    polled->begins_left = BEGINS_A_TICK;
    if (polled->state == RDMA_POLLED_OFF)
        slot_give(c);
    else if (polled->state == RDMA_POLLED_ON && !polled->ending && polled->ticked == polled->count_in)
        end(c);
    polled->ticked = polled->count_in;
}

/* Looking */

static void entry_begin(struct rdma_connection *c) {
    struct rdma_polls *polls = &c->device->polls;
    struct rdma_polled *polled = &c->polled;
    polled->entry = polls->count++;
    polls->entries[polled->entry] =
        (struct rdma_poll_entry){polled->slot->word, make_word(polled->count_in, polled->crc_in), c};
    polled->state = RDMA_POLLED_ON;
    polled->messages = 0;
    c->owner->stats.polled_connections++;
}

static void entry_end(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    struct rdma_polls *polls = &c->device->polls;
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

/* Where the next byte of the stream goes; the bytes may go on at the start of a ring. */
static inline uint32_t next_offset(const struct rdma_connection *c, const struct rdma_rx *rx) {
    if (c->next) return c->next_received;
    return c->received < rx->size ? c->received : c->ring.wrapped;
}

/* Not beyond the message: the peer is about to write the next line. */
static inline void prefetch_message(const struct rdma_connection *c, uint64_t word) {
    const struct rdma_rx *rx = c->next ? c->next : c->rx;
    const char *bytes = rx->data + next_offset(c, rx);
    __builtin_prefetch(bytes);
    if ((uintptr_t)bytes % LINE + (word_count(word) - c->polled.count_in) > LINE) __builtin_prefetch(bytes + LINE);
}

/* The checksum of the next `len` bytes of the stream, which fit in the space that the peer may write. */
static uint32_t crc_of_next(const struct rdma_connection *c, uint32_t len) {
    const struct rdma_rx *rx = c->next ? c->next : c->rx;
    uint32_t at = next_offset(c, rx), first = len < rx->size - at ? len : rx->size - at;
    uint32_t crc = crc32c(c->polled.crc_in, rx->data + at, first);
    return first < len ? crc32c(crc, rx->data, len - first) : crc;
}

enum check { CHECK_NOTHING, CHECK_TAKEN, CHECK_AGAIN };

/* Treat an impossible count like a checksum that does not match. */
static enum check doubt(struct rdma_connection *c, uint32_t len) {
    struct rdma_polled *polled = &c->polled;
    polled->doubt += len + LINE;
    c->owner->stats.polled_again++;
    if (polled->doubt <= DOUBT_MAX) return CHECK_AGAIN;
    polled->distrusted = true;
    c->owner->stats.polled_given_up++;
    return CHECK_NOTHING;
}

static enum check check_word(struct rdma_connection *c, struct rdma_poll_entry *entry, uint64_t word) {
    struct rdma_polled *polled = &c->polled;
    uint32_t count = word_count(word), len = count - polled->count_in;
    if (len == 0 || (int32_t)len < 0) { /* an immediate has announced more meanwhile */
        entry->last = word;
        return CHECK_NOTHING;
    }
    if (len > c->writable || count - polled->base_in > RDMA_POLLED_BYTES_MAX) return doubt(c, 0);
    uint32_t crc = crc_of_next(c, len);
    if (crc != word_crc(word)) return doubt(c, len);
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
        if (c->polled.distrusted && !c->polled.ending) end(c);
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
    enum check result = CHECK_AGAIN;
    while (result == CHECK_AGAIN && may_check(c)) {
        struct rdma_poll_entry *entry = &c->device->polls.entries[c->polled.entry];
        uint64_t word = atomic_load_explicit(entry->word, memory_order_acquire);
        result = word == entry->last ? CHECK_NOTHING : check_word(c, entry, word);
    }
}

bool rdma_polled_immediate(struct rdma_connection *c, uint32_t immediate) {
    if (c->polled.state != RDMA_POLLED_ON) return true;
    uint32_t len = immediate - c->polled.count_in;
    if (len == 0 || len > c->writable)
        rdma_violation(c, "an immediate of %u after %u bytes, while %u are free", immediate, c->polled.count_in,
                       c->writable);
    else
        rdma_polled_take_until(c, immediate);
    return false;
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
    if (c->polled.agreed) c->device->polls.users--;
    c->polled.agreed = false;
}

/* Sending */

static void begin_checksum_out(struct rdma_polled *polled) {
    polled->base_out = polled->count_out;
    polled->crc_out = crc_begin(polled->count_out);
}

void rdma_polled_on_begin(struct rdma_connection *c, const struct rdma_wire_memory *memory) {
    struct rdma_polled *polled = &c->polled;
    uint64_t addr = be64toh(memory->addr);
    uint32_t length = be32toh(memory->length);
    if (!(c->features & RDMA_FEATURE_POLLED)) {
        rdma_violation(c, "PollBegin without the feature polled");
    } else if (polled->out || polled->owes_begun) {
        rdma_violation(c, "PollBegin within a polling period");
    } else if (addr == 0 || addr % sizeof(uint64_t) || length != sizeof(uint64_t)) {
        rdma_violation(c, "PollBegin at address %llx of %u bytes", (unsigned long long)addr, length);
    } else {
        polled->addr = addr;
        polled->key = be32toh(memory->key);
        polled->owes_begun = true;
    }
}

void rdma_polled_on_end(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    if ((!polled->out && !polled->owes_begun) || polled->owes_ended)
        rdma_violation(c, "PollEnd outside a polling period");
    else
        polled->owes_ended = true;
}

bool rdma_polled_pump(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    if (polled->want_end) polled->want_end = !send_count(c, RDMA_OP_POLL_END, 0);
    if (polled->owes_begun && send_count(c, RDMA_OP_POLL_BEGUN, 0)) {
        polled->owes_begun = false;
        polled->out = true;
        begin_checksum_out(polled);
    }
    if (polled->owes_ended && !polled->owes_begun && send_count(c, RDMA_OP_POLL_ENDED, polled->count_out)) {
        polled->owes_ended = false;
        polled->out = false;
    }
    return !polled->want_end && !polled->owes_begun && !polled->owes_ended;
}

uint32_t rdma_polled_taken_count(const struct rdma_connection *c) {
    return c->polled.out ? c->polled.count_out : 0;
}
void rdma_polled_taken_sent(struct rdma_connection *c) {
    if (c->polled.out) begin_checksum_out(&c->polled);
}

bool rdma_polled_announce(struct rdma_connection *c, uint32_t bytes, const struct ibv_sge *sges, uint32_t count,
                          struct ibv_send_wr *wr, struct ibv_sge *sge, uint64_t *word, uint32_t *immediate) {
    struct rdma_polled *polled = &c->polled;
    *immediate = bytes;
    if (!polled->out) return false;
    polled->count_out += bytes;
    if (bytes > RDMA_POLLED_MESSAGE_MAX || polled->count_out - polled->base_out > RDMA_POLLED_BYTES_MAX) {
        *immediate = polled->count_out;
        begin_checksum_out(polled);
        return false;
    }
    for (uint32_t i = 0; i < count; i++)
        polled->crc_out = crc32c(polled->crc_out, (const void *)(uintptr_t)sges[i].addr, sges[i].length);
    *word = make_word(polled->count_out, polled->crc_out);
    *sge = (struct ibv_sge){.addr = (uintptr_t)word, .length = sizeof *word};
    *wr =
        (struct ibv_send_wr){.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE};
    wr->wr.rdma.remote_addr = polled->addr;
    wr->wr.rdma.rkey = polled->key;
    c->owner->stats.polled_out++;
    return true;
}
