/* announce.c: see announce.h. */
#include "net/rdma/announce.h"
#include "net/rdma/send.h"
#include <endian.h>

static void begin_checksum(struct rdma_announcer *announce) {
    announce->base = announce->count;
    announce->crc = rdma_crc_begin(announce->count);
}

void rdma_announce_on_begin(struct rdma_connection *c, const struct rdma_wire_memory *memory) {
    struct rdma_announcer *announce = &c->announce;
    uint64_t addr = be64toh(memory->addr);
    uint32_t length = be32toh(memory->length);
    if (!(c->features & RDMA_FEATURE_POLLED)) {
        rdma_violation(c, "PollBegin without the feature polled");
    } else if (announce->on || announce->owes_begun) {
        rdma_violation(c, "PollBegin within a polling period");
    } else if (addr == 0 || addr % sizeof(uint64_t) || length != sizeof(uint64_t)) {
        rdma_violation(c, "PollBegin at address %llx of %u bytes", (unsigned long long)addr, length);
    } else {
        announce->addr = addr;
        announce->key = be32toh(memory->key);
        announce->owes_begun = true;
    }
}

void rdma_announce_on_end(struct rdma_connection *c) {
    struct rdma_announcer *announce = &c->announce;
    if ((!announce->on && !announce->owes_begun) || announce->owes_ended)
        rdma_violation(c, "PollEnd outside a polling period");
    else
        announce->owes_ended = true;
}

bool rdma_announce_pump(struct rdma_connection *c) {
    struct rdma_announcer *announce = &c->announce;
    if (announce->owes_begun && rdma_send_count(c, RDMA_OP_POLL_BEGUN, 0)) {
        announce->owes_begun = false;
        announce->on = true;
        begin_checksum(announce);
    }
    if (announce->owes_ended && !announce->owes_begun && rdma_send_count(c, RDMA_OP_POLL_ENDED, announce->count)) {
        announce->owes_ended = false;
        announce->on = false;
    }
    return !announce->owes_begun && !announce->owes_ended;
}

uint32_t rdma_announce_taken_count(const struct rdma_connection *c) {
    return c->announce.on ? c->announce.count : 0;
}

void rdma_announce_taken_sent(struct rdma_connection *c) {
    if (c->announce.on) begin_checksum(&c->announce);
}

bool rdma_announce_message(struct rdma_connection *c, uint32_t bytes, const struct ibv_sge *sges, uint32_t count,
                           struct ibv_send_wr *wr, struct ibv_sge *sge, uint64_t *word, uint32_t *immediate) {
    struct rdma_announcer *announce = &c->announce;
    *immediate = bytes;
    if (!announce->on) return false;
    announce->count += bytes;
    bool long_one = bytes > RDMA_POLLED_MESSAGE_MAX || announce->count - announce->base > RDMA_POLLED_BYTES_MAX;
    if (long_one || c->send.after_place) { /* a word proves nothing about the WRITEs of a placement */
        *immediate = announce->count;
        begin_checksum(announce);
        return false;
    }
    for (uint32_t i = 0; i < count; i++)
        announce->crc = crc32c(announce->crc, (const void *)(uintptr_t)sges[i].addr, sges[i].length);
    *word = rdma_word_make(announce->count, announce->crc);
    *sge = (struct ibv_sge){.addr = (uintptr_t)word, .length = sizeof *word};
    *wr =
        (struct ibv_send_wr){.sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE};
    wr->wr.rdma.remote_addr = announce->addr;
    wr->wr.rdma.rkey = announce->key;
    c->owner->stats.polled_out++;
    return true;
}
