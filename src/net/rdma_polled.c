/* rdma_polled.c: see rdma_polled.h. */
#include "net/rdma_connection.h"
#include <endian.h>
#include <sys/mman.h>

enum {
    PLACE_SIZE = 4096,
    LINE = 64,
    AFTER_MOST = 4096,
    LATER = 4,          /* so many times, after a period of less than */
    WORTHWHILE = 256,   /* messages: the control messages of a period wake who sleeps */
    BEGINS_A_TICK = 32, /* four control messages each, of which two reach the same end; it takes 512 */
};

/* Places */

static bool place_take(struct rdma_connection *c) {
    struct rdma_polls *polls = &c->device->polls;
    if (c->polled.place) return true;
    if (!polls->pages) {
        void *pages =
            mmap(NULL, PLACE_SIZE * RDMA_POLLED_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) return false;
        polls->pages = pages;
    }
    for (size_t i = 0; i < RDMA_POLLED_MAX; i++) {
        struct rdma_place *place = &polls->places[i];
        if (place->owner || place->mr) continue;
        char *page = polls->pages + i * PLACE_SIZE;
        place->mr = rdma_register(&c->device->memory, page, PLACE_SIZE,
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, RDMA_MEMORY_CONTROL);
        if (!place->mr) return false;
        place->word =
            (_Atomic uint32_t *)(void *)(page + i * LINE % PLACE_SIZE); /* not all in the same set of the cache */
        place->owner = c;
        c->polled.place = place;
        return true;
    }
    return false;
}

static void place_give(struct rdma_connection *c) {
    struct rdma_place *place = c->polled.place;
    if (!place) return;
    if (rdma_unregister(&c->device->memory, place->mr, RDMA_MEMORY_CONTROL)) place->mr = NULL;
    place->owner = NULL;
    c->polled.place = NULL;
}

void rdma_polls_free(struct rdma_device *device) {
    if (device->polls.pages) munmap(device->polls.pages, PLACE_SIZE * RDMA_POLLED_MAX);
}

/* When to poll */

uint64_t rdma_polled_possible(const struct rdma_connection *c) {
    bool possible = c->max_inline >= sizeof(uint32_t) && !(rdma_settings.without & RDMA_POLLED);
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

/* If it cannot begin now, the next message will do. */
static void begin(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    bool may = polled->begins_left && !c->end_pending && c->conn.state == CONN_OPEN && (c->conn.trusted || !c->passive);
    if (!may || !place_take(c)) return;
    atomic_store_explicit(polled->place->word, htobe32(polled->count_in), memory_order_relaxed);
    union rdma_wire_message message = {.memory = {.opcode = htobe16(RDMA_OP_POLL_BEGIN),
                                                  .addr = htobe64((uintptr_t)polled->place->word),
                                                  .length = htobe32(sizeof *polled->place->word),
                                                  .key = htobe32(polled->place->mr->rkey)}};
    if (!rdma_send_control(c, &message)) return;
    polled->begins_left--;
    polled->state = RDMA_POLLED_ASKED;
}

void rdma_polled_on_immediate(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    if (!(c->features & RDMA_FEATURE_POLLED) || polled->state == RDMA_POLLED_ASKED) return;
    if (polled->state == RDMA_POLLED_ON) {
        rdma_violation(c, "an immediate while its word is polled");
        return;
    }
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
        struct rdma_connection *c = device->polls.looks[i].conn;
        if (!c->polled.ending && !c->end_pending && !c->finished) end(c);
    }
}

void rdma_polled_tick(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    polled->begins_left = BEGINS_A_TICK;
    if (polled->state == RDMA_POLLED_OFF)
        place_give(c);
    else if (polled->state == RDMA_POLLED_ON && !polled->ending && polled->ticked == polled->count_in)
        end(c);
    polled->ticked = polled->count_in;
}

/* Looking */

static void look_begin(struct rdma_connection *c) {
    struct rdma_polls *polls = &c->device->polls;
    c->polled.look = polls->count++;
    polls->looks[c->polled.look] = (struct rdma_look){c->polled.place->word, htobe32(c->polled.count_in), c};
    c->polled.state = RDMA_POLLED_ON;
    c->polled.messages = 0;
    c->owner->stats.polled_connections++;
}

static void look_end(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    struct rdma_polls *polls = &c->device->polls;
    struct rdma_look *last = &polls->looks[--polls->count];
    polls->looks[polled->look] = *last;
    last->conn->polled.look = polled->look;
    c->owner->stats.polled_connections--;
    polled->state = RDMA_POLLED_OFF;
    polled->ending = polled->want_end = false;
    polled->immediates = 0;
    if (polled->messages >= WORTHWHILE)
        polled->after = rdma_settings.poll_after;
    else if (polled->after < AFTER_MOST)
        polled->after *= LATER;
}

/* Between RegisterXferMemory and BufferTaken a word does not say which buffer its bytes are in: BufferTaken does. */
static inline bool may_take(const struct rdma_connection *c) {
    return c->polled.state == RDMA_POLLED_ON && !c->ring.moving && !c->end_pending && !c->finished;
}

static void take(struct rdma_connection *c, uint32_t count) {
    uint32_t len = count - c->polled.count_in;
    c->polled.count_in = count;
    c->polled.messages++;
    c->device->polls.looks[c->polled.look].seen = htobe32(count);
    c->owner->stats.polled_in++;
    rdma_receive_data(c, len);
}

bool rdma_polled_look(struct rdma_device *device) {
    bool found = false;
    for (int i = 0; i < device->polls.count; i++) {
        const struct rdma_look *look = &device->polls.looks[i];
        uint32_t word = atomic_load_explicit(look->word, memory_order_acquire);
        if (word == look->seen || !may_take(look->conn)) continue;
        take(look->conn, be32toh(word));
        found = true;
    }
    return found;
}

void rdma_polled_take_until(struct rdma_connection *c, uint32_t count) {
    if (c->polled.state == RDMA_POLLED_ON && count != c->polled.count_in) take(c, count);
}

void rdma_polled_take(struct rdma_connection *c) {
    if (may_take(c))
        rdma_polled_take_until(c, be32toh(atomic_load_explicit(c->polled.place->word, memory_order_acquire)));
}

void rdma_polled_on_begun(struct rdma_connection *c) {
    if (c->polled.state != RDMA_POLLED_ASKED)
        rdma_violation(c, "PollBegun that answers nothing");
    else
        look_begin(c);
}

void rdma_polled_on_ended(struct rdma_connection *c, const struct rdma_wire_credit *count) {
    if (!c->polled.ending || c->polled.want_end) {
        rdma_violation(c, "PollEnded that answers nothing");
        return;
    }
    rdma_polled_take_until(c, be32toh(count->bytes));
    look_end(c);
}

void rdma_polled_release(struct rdma_connection *c) {
    if (c->polled.state == RDMA_POLLED_ON) look_end(c);
    place_give(c);
}

/* Sending */

void rdma_polled_on_begin(struct rdma_connection *c, const struct rdma_wire_memory *memory) {
    struct rdma_polled *polled = &c->polled;
    uint64_t addr = be64toh(memory->addr);
    uint32_t length = be32toh(memory->length);
    if (!(c->features & RDMA_FEATURE_POLLED)) {
        rdma_violation(c, "PollBegin without the feature");
    } else if (polled->out || polled->owes_begun) {
        rdma_violation(c, "PollBegin while it polls");
    } else if (addr == 0 || addr % sizeof(uint32_t) || length != sizeof(uint32_t)) {
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
        rdma_violation(c, "PollEnd while it does not poll");
    else
        polled->owes_ended = true;
}

bool rdma_polled_pump(struct rdma_connection *c) {
    struct rdma_polled *polled = &c->polled;
    if (polled->want_end) polled->want_end = !send_count(c, RDMA_OP_POLL_END, 0);
    if (polled->owes_begun && send_count(c, RDMA_OP_POLL_BEGUN, 0)) {
        polled->owes_begun = false;
        polled->out = true;
    }
    if (polled->owes_ended && !polled->owes_begun && send_count(c, RDMA_OP_POLL_ENDED, polled->count_out)) {
        polled->owes_ended = false;
        polled->out = false;
    }
    return !polled->want_end && !polled->owes_begun && !polled->owes_ended;
}

void rdma_polled_write(struct rdma_connection *c, uint32_t bytes, struct ibv_send_wr *wr, struct ibv_sge *sge,
                       uint32_t *word) {
    c->polled.count_out += bytes;
    *word = htobe32(c->polled.count_out);
    *sge = (struct ibv_sge){.addr = (uintptr_t)word, .length = sizeof *word};
    *wr =
        (struct ibv_send_wr){.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE};
    wr->wr.rdma.remote_addr = c->polled.addr;
    wr->wr.rdma.rkey = c->polled.key;
    c->owner->stats.polled_out++;
}
