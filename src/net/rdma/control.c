/* control.c: control messages, which the two ends exchange beside the stream. wire.h describes them.
 *
 * Everything a peer sends is checked here and in receive.c: length and opcode of a control message, whether its
 * turn has come, the bounds of the memory it announces, immediates against the free bytes of our buffer. A violation is
 * logged with the peer's address and ends that connection. No allocation has a size that a peer chose. */
#include "net/rdma/control.h"
#include "lib/system/clock.h"
#include "net/rdma/announce.h"
#include "net/rdma/buffer.h"
#include "net/rdma/polled.h"
#include "net/rdma/reads.h"
#include "net/rdma/receive.h"
#include "net/rdma/ring.h"
#include "net/rdma/send.h"
#include <endian.h>

enum {
    CONTROL_A_TICK = 512, /* more control messages than this are a flood; for how many ticks see too_many() */
    PEER_BUFFER_MAX = 1024 * 1024 * 1024,
};

/* --- Sending --- */

static bool send_feature(struct rdma_connection *c, enum rdma_opcode opcode, uint16_t select, uint64_t features) {
    union rdma_wire_message message = {
        .feature = {.opcode = htobe16(opcode), .select = htobe16(select), .features = htobe64(features)}};
    return rdma_send_control(c, &message);
}

/* From this message on our buffer works as the features say; it has been announced before. */
static void send_set(struct rdma_connection *c) {
    c->negotiation.want_set =
        !c->receive.registered || !send_feature(c, RDMA_OP_SET_CLIENT_FEATURE, 0, c->negotiation.offered);
    if (!c->negotiation.want_set && c->negotiation.offered & RDMA_FEATURE_RING) rdma_ring_begin_in(c);
}

void rdma_control_pump(struct rdma_connection *c) {
    if (c->receive.want_register) rdma_receive_announce(c);
    if (c->negotiation.want_ask) c->negotiation.want_ask = !send_feature(c, RDMA_OP_GET_SERVER_FEATURE, 0, 0);
    if (c->negotiation.want_reply)
        c->negotiation.want_reply = !send_feature(c, RDMA_OP_GET_SERVER_FEATURE, c->negotiation.select,
                                                  c->negotiation.select ? 0 : c->negotiation.offered);
    if (c->negotiation.want_set) send_set(c);
    bool ring_done = rdma_ring_pump(c), polled_done = rdma_polled_pump(c), announced = rdma_announce_pump(c);
    bool reads_done = !c->reads || rdma_reads_pump(c);
    c->send.wants_control = c->receive.want_register || c->negotiation.want_ask || c->negotiation.want_reply ||
                            c->negotiation.want_set || !ring_done || !polled_done || !announced || !reads_done;
}

void rdma_control_open(struct rdma_connection *c) {
    if (!c->passive && rdma_settings.features) {
        c->negotiation.state = RDMA_ASKED;
        c->negotiation.want_ask = true;
    }
    rdma_control_pump(c);
}

/* Messages from the peer. Before the connection is established here, answers wait for rdma_control_open(). */

static void pump_if_open(struct rdma_connection *c) {
    c->send.wants_control = true;
    if (c->phase == RDMA_ESTABLISHED) rdma_control_pump(c);
}

static uint64_t features_possible(const struct rdma_connection *c) {
    return rdma_settings.features & (RDMA_FEATURE_RING | rdma_polled_possible(c));
}

static void on_get_feature(struct rdma_connection *c, const struct rdma_wire_feature *feature) {
    if (c->passive && c->negotiation.state == RDMA_NEGOTIATION_NONE) {
        c->negotiation.select = be16toh(feature->select);
        if (c->negotiation.select == 0) c->negotiation.offered = features_possible(c);
        c->negotiation.want_reply = true;
    } else if (c->negotiation.state == RDMA_ASKED) {
        uint64_t features = feature->select ? 0 : be64toh(feature->features);
        c->negotiation.offered = features & features_possible(c);
        c->negotiation.want_set = c->negotiation.offered != 0;
        c->negotiation.state = c->negotiation.want_set ? RDMA_SET : RDMA_NEGOTIATION_NONE;
    } else {
        rdma_violation(c, c->passive ? "GetServerFeature after SetClientFeature"
                                     : "GetServerFeature that answers no request");
        return;
    }
    pump_if_open(c);
}

static void on_set_feature(struct rdma_connection *c, const struct rdma_wire_feature *feature) {
    uint64_t features = be64toh(feature->features);
    if (c->passive && c->negotiation.state == RDMA_AGREED) {
        rdma_violation(c, "SetClientFeature after SetClientFeature");
        return;
    }
    if (c->passive && features == 0) return; /* stay with the base protocol */
    if (c->passive && (feature->select || features & ~c->negotiation.offered)) {
        rdma_violation(c, "SetClientFeature with features %llx that this server does not offer",
                       (unsigned long long)features);
        return;
    }
    if (!c->passive && (c->negotiation.state != RDMA_SET || c->negotiation.want_set || feature->select ||
                        features != c->negotiation.offered)) {
        rdma_violation(c, "SetClientFeature with features %llx that this client did not set",
                       (unsigned long long)features);
        return;
    }
    c->negotiation.state = RDMA_AGREED;
    c->features = c->negotiation.offered = features;
    c->negotiation.want_set = c->passive;
    if (features & RDMA_FEATURE_RING) {
        c->owner->stats.ring_connections++;
        c->send.to_ring = true;
    }
    if (features & RDMA_FEATURE_POLLED) rdma_polled_agreed(c);
    pump_if_open(c);
}

static void on_peer_buffer(struct rdma_connection *c, const struct rdma_wire_memory *memory) {
    uint64_t addr = be64toh(memory->addr);
    uint32_t size = be32toh(memory->length);
    bool moves = c->send.to_ring && c->send.peer_size;
    if (size == 0 || size > PEER_BUFFER_MAX) {
        rdma_violation(c, "RegisterXferMemory of %u bytes", size);
    } else if (addr == 0 || addr + size < addr) {
        rdma_violation(c, "RegisterXferMemory at address %llx of %u bytes", (unsigned long long)addr, size);
    } else if (moves && c->send.owes_taken) {
        rdma_violation(c, "RegisterXferMemory before the previous one was answered");
    } else if (!moves && c->send.window) {
        rdma_violation(c, "RegisterXferMemory while %u bytes of the buffer are free", c->send.window);
    } else {
        c->send.peer_addr = addr;
        c->send.peer_size = size;
        c->send.peer_key = be32toh(memory->key);
        c->send.peer_used = 0;
        c->send.window = size;
        c->send.owes_taken = moves;
        if (moves) c->send.wants_control = true;
        rdma_send_resume(c);
    }
}

static void on_taken(struct rdma_connection *c, const struct rdma_wire_credit *taken) {
    if (!c->ring.moving) {
        rdma_violation(c, "BufferTaken where no buffer was announced");
        return;
    }
    rdma_polled_take_until(c, be32toh(taken->bytes)); /* the remaining bytes are in the new buffer */
    if (c->end_pending) return;
    rdma_ring_moved(c);
}

/* A thread that was stopped for a minute (a debugger, a suspended machine) finds a minute's messages. So the limit
 * grows with the number of ticks that should have run since the one before the last. */
static bool too_many(const struct rdma_connection *c) {
    if (c->negotiation.messages <= CONTROL_A_TICK) return false;
    uint64_t ticks = (clock_monotonic_us() - c->owner->ticked_before_us) / RDMA_TICK_US;
    return c->negotiation.messages > (ticks + 1) * CONTROL_A_TICK;
}

static void on_control(struct rdma_connection *c, uint32_t len, const union rdma_wire_message *message) {
    c->owner->stats.control_in++;
    if (len != sizeof *message) {
        rdma_violation(c, "a control message of %u bytes", len);
        return;
    }
    unsigned opcode = be16toh(message->opcode);
    /* What we send limits the number of Credits, and of RegisterXferMemory in the base protocol. */
    bool bounded = opcode == RDMA_OP_CREDIT || (opcode == RDMA_OP_REGISTER_XFER_MEMORY && !c->send.to_ring);
    if (!bounded) c->negotiation.messages++;
    if (!bounded && too_many(c)) {
        rdma_violation(c, "a flood of control messages");
        return;
    }
    switch (opcode) {
    case RDMA_OP_REGISTER_XFER_MEMORY: on_peer_buffer(c, &message->memory); return;
    case RDMA_OP_KEEPALIVE: return;
    case RDMA_OP_GET_SERVER_FEATURE: on_get_feature(c, &message->feature); return;
    case RDMA_OP_SET_CLIENT_FEATURE: on_set_feature(c, &message->feature); return;
    case RDMA_OP_CREDIT: rdma_ring_on_credit(c, &message->credit); return;
    case RDMA_OP_BUFFER_TAKEN: on_taken(c, &message->credit); return;
    case RDMA_OP_POLL_BEGIN: rdma_announce_on_begin(c, &message->memory); break;
    case RDMA_OP_POLL_BEGUN: rdma_polled_on_begun(c); return;
    case RDMA_OP_POLL_END: rdma_announce_on_end(c); break;
    case RDMA_OP_POLL_ENDED: rdma_polled_on_ended(c, &message->credit); return;
    default: rdma_violation(c, "a control message with opcode %u", opcode); return;
    }
    if (!c->end_pending) pump_if_open(c); /* there is an answer to send */
}

void rdma_control_received(struct rdma_connection *c, const struct ibv_wc *wc, const union rdma_wire_message *message) {
    if (c->end_pending || c->finished) return;
    /* The message that completes connecting (RTU) may be late or lost: what the peer has sent proves as much. */
    if (c->passive && c->phase == RDMA_CONNECTING && !c->notified) {
        c->notified = true;
        rdma_notify(c->qp.id, IBV_EVENT_COMM_EST);
    }
    if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        uint32_t immediate = be32toh(wc->imm_data);
        if (!rdma_polled_immediate(c, immediate)) return;
        rdma_receive_data(c, immediate);
        rdma_polled_after_immediate(c);
    } else
        on_control(c, wc->byte_len, message);
}

void rdma_control_tick(struct rdma_connection *c, uint64_t now) {
    c->negotiation.messages = 0;
    if (c->phase != RDMA_ESTABLISHED || c->end_pending || c->finished) return;
    uint64_t period = (uint64_t)rdma_settings.keepalive_ms * 1000;
    if (period && now - c->send.last_control_us >= period) rdma_send_keepalive(c);
}
