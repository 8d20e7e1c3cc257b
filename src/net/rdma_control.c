/* rdma_control.c: control messages, which the two ends exchange beside the stream. rdma_wire.h describes them.
 *
 * Everything a peer sends is checked here and in rdma_receive.c: length and opcode of a control message, whether its
 * turn has come, the bounds of the memory it announces, immediates against the free bytes of our buffer. A violation is
 * logged with the peer's address and ends that connection. No allocation has a size that a peer chose. */
#include "net/rdma_connection.h"
#include "lib/clock.h"
#include "lib/log.h"
#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    CONTROL_A_TICK = 512, /* more control messages than this are a flood; for how many ticks see too_many() */
    PEER_BUFFER_MAX = 1024 * 1024 * 1024,
};

void rdma_violation(struct rdma_connection *c, const char *format, ...) {
    static _Thread_local uint64_t second, logged;
    char what[160], name[RDMA_NAME_MAX];
    va_list arguments;
    if (c->end_pending || c->finished) return;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    c->owner->stats.protocol_errors++;
    uint64_t now = clock_mono() / 1000000;
    if (now != second) second = now, logged = 0;
    if (logged++ < 20) { /* do not let hostile peers fill the disk */
        log_warning("RDMA: closing the connection of %s: protocol violation: %s", rdma_connection_name(c, name), what);
    }
    c->received = c->taken; /* discard the bytes that were not exposed yet */
    rdma_ring_forget(c);
    rdma_connection_failed(c, EPROTO, what);
}

/* Sending */

bool rdma_control_send_memory(struct rdma_connection *c, const struct rdma_rx *rx) {
    union rdma_wire_message message = {.memory = {.opcode = htobe16(RDMA_OP_REGISTER_XFER_MEMORY),
                                                  .addr = htobe64((uintptr_t)rx->data),
                                                  .length = htobe32(rx->size),
                                                  .key = htobe32(rx->mr->rkey)}};
    return rdma_send_control(c, &message);
}

void rdma_control_announce(struct rdma_connection *c) {
    c->want_register = !rdma_control_send_memory(c, c->next ? c->next : c->rx);
    c->registered = !c->want_register;
    if (c->want_register) c->wants_control = true;
}

static bool send_feature(struct rdma_connection *c, enum rdma_opcode opcode, uint16_t select, uint64_t features) {
    union rdma_wire_message message = {
        .feature = {.opcode = htobe16(opcode), .select = htobe16(select), .features = htobe64(features)}};
    return rdma_send_control(c, &message);
}

/* From this message on our buffer works as the features say; it has been announced before. */
static void send_set(struct rdma_connection *c) {
    c->want_set = !c->registered || !send_feature(c, RDMA_OP_SET_CLIENT_FEATURE, 0, c->offered);
    if (!c->want_set && c->offered & RDMA_FEATURE_RING) rdma_ring_begin_in(c);
}

void rdma_control_pump(struct rdma_connection *c) {
    if (c->want_register) rdma_control_announce(c);
    if (c->want_ask) c->want_ask = !send_feature(c, RDMA_OP_GET_SERVER_FEATURE, 0, 0);
    if (c->want_feature_reply)
        c->want_feature_reply =
            !send_feature(c, RDMA_OP_GET_SERVER_FEATURE, c->feature_select, c->feature_select ? 0 : c->offered);
    if (c->want_set) send_set(c);
    bool ring_done = rdma_ring_pump(c), polled_done = rdma_polled_pump(c);
    bool reads_done = !c->reads || rdma_reads_pump(c);
    c->wants_control = c->want_register || c->want_ask || c->want_feature_reply || c->want_set || !ring_done ||
                       !polled_done || !reads_done;
}

void rdma_control_open(struct rdma_connection *c) {
    if (!c->passive && rdma_settings.features) {
        c->negotiation = RDMA_ASKED;
        c->want_ask = true;
    }
    rdma_control_pump(c);
}

/* Messages from the peer. Before the connection is established here, answers wait for rdma_control_open(). */

static void pump_if_open(struct rdma_connection *c) {
    c->wants_control = true;
    if (c->phase == RDMA_ESTABLISHED) rdma_control_pump(c);
}

static uint64_t features_possible(const struct rdma_connection *c) {
    return rdma_settings.features & (RDMA_FEATURE_RING | rdma_polled_possible(c));
}

static void on_get_feature(struct rdma_connection *c, const struct rdma_wire_feature *feature) {
    if (c->passive && c->negotiation == RDMA_NEGOTIATION_NONE) {
        c->feature_select = be16toh(feature->select);
        if (c->feature_select == 0) c->offered = features_possible(c);
        c->want_feature_reply = true;
    } else if (c->negotiation == RDMA_ASKED) {
        uint64_t features = feature->select ? 0 : be64toh(feature->features);
        c->offered = features & features_possible(c);
        c->want_set = c->offered != 0;
        c->negotiation = c->want_set ? RDMA_SET : RDMA_NEGOTIATION_NONE;
    } else {
        rdma_violation(c, c->passive ? "GetServerFeature after SetClientFeature"
                                     : "GetServerFeature that answers no request");
        return;
    }
    pump_if_open(c);
}

static void on_set_feature(struct rdma_connection *c, const struct rdma_wire_feature *feature) {
    uint64_t features = be64toh(feature->features);
    if (c->passive && c->negotiation == RDMA_AGREED) {
        rdma_violation(c, "SetClientFeature after SetClientFeature");
        return;
    }
    if (c->passive && features == 0) return; /* stay with the base protocol */
    if (c->passive && (feature->select || features & ~c->offered)) {
        rdma_violation(c, "SetClientFeature with features %llx that this server does not offer",
                       (unsigned long long)features);
        return;
    }
    if (!c->passive && (c->negotiation != RDMA_SET || c->want_set || feature->select || features != c->offered)) {
        rdma_violation(c, "SetClientFeature with features %llx that this client did not set",
                       (unsigned long long)features);
        return;
    }
    c->negotiation = RDMA_AGREED;
    c->features = c->offered = features;
    c->want_set = c->passive;
    if (features & RDMA_FEATURE_RING) {
        c->owner->stats.ring_connections++;
        c->ring.out = true;
    }
    if (features & RDMA_FEATURE_POLLED) rdma_polled_agreed(c);
    pump_if_open(c);
}

static void on_peer_buffer(struct rdma_connection *c, const struct rdma_wire_memory *memory) {
    uint64_t addr = be64toh(memory->addr);
    uint32_t size = be32toh(memory->length);
    bool moves = c->ring.out && c->peer_size;
    if (size == 0 || size > PEER_BUFFER_MAX) {
        rdma_violation(c, "RegisterXferMemory of %u bytes", size);
    } else if (addr == 0 || addr + size < addr) {
        rdma_violation(c, "RegisterXferMemory at address %llx of %u bytes", (unsigned long long)addr, size);
    } else if (moves && c->ring.owes_taken) {
        rdma_violation(c, "RegisterXferMemory before the previous one was answered");
    } else if (!moves && c->window) {
        rdma_violation(c, "RegisterXferMemory while %u bytes of the buffer are free", c->window);
    } else {
        c->peer_addr = addr;
        c->peer_size = size;
        c->peer_key = be32toh(memory->key);
        c->peer_used = 0;
        c->window = size;
        c->ring.owes_taken = moves;
        if (moves) c->wants_control = true;
        rdma_send_resume(c);
    }
}

/* A thread that was stopped for a minute (a debugger, a suspended machine) finds a minute's messages. So the limit
 * grows with the number of ticks that should have run since the one before the last. */
static bool too_many(const struct rdma_connection *c) {
    if (c->control_count <= CONTROL_A_TICK) return false;
    uint64_t ticks = (clock_monotonic_us() - c->owner->ticked_before_us) / RDMA_TICK_US;
    return c->control_count > (ticks + 1) * CONTROL_A_TICK;
}

static void on_control(struct rdma_connection *c, uint32_t len, const union rdma_wire_message *message) {
    c->owner->stats.control_in++;
    if (len != sizeof *message) {
        rdma_violation(c, "a control message of %u bytes", len);
        return;
    }
    unsigned opcode = be16toh(message->opcode);
    /* What we send limits the number of Credits, and of RegisterXferMemory in the base protocol. */
    bool bounded = opcode == RDMA_OP_CREDIT || (opcode == RDMA_OP_REGISTER_XFER_MEMORY && !c->ring.out);
    if (!bounded) c->control_count++;
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
    case RDMA_OP_BUFFER_TAKEN: rdma_ring_on_taken(c, &message->credit); return;
    case RDMA_OP_POLL_BEGIN: rdma_polled_on_begin(c, &message->memory); break;
    case RDMA_OP_POLL_BEGUN: rdma_polled_on_begun(c); return;
    case RDMA_OP_POLL_END: rdma_polled_on_end(c); break;
    case RDMA_OP_POLL_ENDED: rdma_polled_on_ended(c, &message->credit); return;
    default: rdma_violation(c, "a control message with opcode %u", opcode); return;
    }
    if (!c->end_pending) pump_if_open(c); /* there is an answer to send */
}

void rdma_connection_received(struct rdma_connection *c, const struct ibv_wc *wc,
                              const union rdma_wire_message *message) {
    if (c->end_pending || c->finished) return;
    /* The message that completes connecting (RTU) may be late or lost: what the peer has sent proves as much. */
    if (c->passive && c->phase == RDMA_CONNECTING && !c->notified) {
        c->notified = true;
        rdma_notify(c->id, IBV_EVENT_COMM_EST);
    }
    if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        uint32_t immediate = be32toh(wc->imm_data);
        if (!rdma_polled_immediate(c, immediate)) return;
        rdma_receive_data(c, immediate);
        rdma_polled_after_immediate(c);
    } else
        on_control(c, wc->byte_len, message);
}

void rdma_control_keepalive(struct rdma_connection *c) {
    union rdma_wire_message message = {.keepalive = {.opcode = htobe16(RDMA_OP_KEEPALIVE)}};
    rdma_send_control(c, &message);
}

void rdma_control_tick(struct rdma_connection *c, uint64_t now) {
    c->control_count = 0;
    if (c->phase != RDMA_ESTABLISHED || c->end_pending || c->finished) return;
    uint64_t period = (uint64_t)rdma_settings.keepalive_ms * 1000;
    if (period && now - c->last_control_us >= period) rdma_control_keepalive(c);
}
