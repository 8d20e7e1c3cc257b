/* The RDMA transport against any peer and any order of events. The input is a script: connection requests, control
 * messages, immediates, successful and failed completions, events of the connection manager, failing calls, actions of
 * our own end, and the passing of time, for up to PEERS simultaneous connections, accepted and made by us. The device
 * is fake_verbs.c.
 *
 * Checked guarantees: the input is exactly the stream that the peer wrote, at the correct address; the output is the
 * stream that was written, within the peer's buffer, and does not change before its completion; an immediate has the
 * number of bytes; a violation ends its connection with EPROTO and no other connection; `closed` is called at most once
 * and is the last call; queues do not overrun; receives and chunks are neither lost nor duplicated; counters agree with
 * the events; at the end all resources are freed.
 *
 * The script determines the time, so that an input is reproducible: this file replaces lib/system/clock.c. */
#include "fake_verbs.h"
#include "fuzz.h"
#include "lib/hash/crc32c.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/rdma/announce.h"
#include "net/rdma/buffer.h"
#include "net/rdma/cm.h"
#include "net/rdma/rdma.h"
#include <endian.h>
#include <errno.h>

enum { PEERS = 3, RX_SIZE = RDMA_RX_SIZE_MIN, STEPS_MAX = 2000, TURNS_TO_END = 14 };

/* The remote end of a connection, and the owner of our end. */
struct peer {
    struct rdma_cm_id *id;
    struct connection *conn;
    bool used, told_end, closed, violated;
    bool ended; /* an event that may end it in another way has happened */
    bool early; /* it announced data before it knew a buffer, or a buffer before the old one was full, or replied before
                   it was asked: this may be valid, but the bytes there are not its stream */
    /* From us to the peer. */
    uint64_t addr;
    uint32_t size, key, filled;
    uint32_t message; /* bytes of the current message */
    uint64_t written, arrived;
    /* From the peer to us. */
    char *rx;
    uint32_t rx_size, rx_filled;
    uint64_t sent, consumed;
    /* Features. `ours`: our end has declared its buffer a ring; `its`: the peer has. */
    bool dialled, asked, answered, ours, its;
    uint64_t offered;
    uint32_t space; /* bytes that it may write to our ring */
    char *next_rx;  /* another buffer that we have announced and it has not confirmed */
    uint32_t next_size;
    uint32_t window; /* bytes that we may write to its ring */
    bool moving;     /* it has announced another buffer: new_ */
    uint64_t new_addr;
    uint32_t new_size, new_key;
    /* Polled words. For ours: it was asked to use it, it uses it, it must stop; `told`: bytes that it announced
     * there. */
    uint64_t set, its_set; /* features of the SetClientFeature of either end */
    char *word;
    bool word_asked, word_on, word_end;
    uint32_t told, base, crc;
    /* The same for its own word, which is at this address. */
    bool its_asked, its_on, its_end;
    uint32_t its_announced, its_base, its_crc;
    uint8_t manner; /* behavior of our handlers */
    char *sink;
    size_t sink_size;
};
static struct peer peers[PEERS];
static struct event_loop *loop;
static struct listener *listener;
static struct rdma_loop *owner;

static inline char byte_in(const struct peer *p, uint64_t at) {
    return (char)(at * 131 + (at >> 9) + (uint64_t)(p - peers) * 29);
}
static inline char byte_out(const struct peer *p, uint64_t at) {
    return (char)(at * 37 + (at >> 8) + 101 + (uint64_t)(p - peers) * 53);
}

static struct peer *peer_of_id(const struct rdma_cm_id *id) {
    for (int i = 0; i < PEERS; i++)
        if (peers[i].used && id && peers[i].id == id) return &peers[i];
    for (int i = 0; i < PEERS; i++) { /* a connection that we made has an identifier now */
        struct peer *p = &peers[i];
        if (!p->used || p->id || !p->conn || p->closed || p->told_end || rdma_of(p->conn)->qp.id != id) continue;
        p->id = (struct rdma_cm_id *)(uintptr_t)id;
        return p;
    }
    return NULL;
}
static struct fake_qp *qp_of(const struct peer *p) {
    return p->id ? (struct fake_qp *)p->id->qp : NULL;
}

/* --- Output of our end --- */

static void check_bytes(const struct peer *p, const struct fake_send *send) {
    uint64_t at = send->offset;
    for (int i = 0; i < send->count; i++) {
        const char *bytes = (const char *)(uintptr_t)send->elements[i].addr;
        for (uint32_t j = 0; j < send->elements[i].length; j++, at++)
            FUZZ_CHECK(bytes[j] == byte_out(p, at), "byte %llu of the stream", (unsigned long long)at);
    }
}

/* The initial part of the word's checksum. */
static uint32_t crc_of_base(uint32_t base) {
    uint32_t wire = htobe32(base);
    return crc32c_portable(0, &wire, sizeof wire);
}
static void begin_its_checksum(struct peer *p) {
    p->its_base = p->its_announced;
    p->its_crc = crc_of_base(p->its_base);
}
static void begin_checksum(struct peer *p) {
    p->base = p->told;
    p->crc = crc_of_base(p->base);
}

enum { ITS_WORD = 0x7fff0000, ITS_WORD_KEY = 77 };

/* Handles our end's messages about polled words. False: another message. */
static bool on_polled_sent(struct peer *p, const union rdma_wire_message *message) {
    bool agreed = p->set & p->its_set & RDMA_FEATURE_POLLED;
    switch (be16toh(message->opcode)) {
    case RDMA_OP_POLL_BEGIN:
        FUZZ_CHECK(p->early || (agreed && !p->word_asked && !p->word_on), "PollBegin out of its turn");
        p->word = (char *)(uintptr_t)be64toh(message->memory.addr);
        p->word_asked = true;
        return true;
    case RDMA_OP_POLL_END:
        FUZZ_CHECK(p->early || (p->word_on && !p->word_end), "PollEnd out of its turn");
        p->word_end = true;
        return true;
    case RDMA_OP_POLL_BEGUN:
        FUZZ_CHECK(p->early || (p->its_asked && !p->its_on && p->message == 0), "PollBegun out of its turn");
        p->its_on = true;
        p->its_asked = false;
        begin_its_checksum(p);
        return true;
    case RDMA_OP_POLL_ENDED:
        FUZZ_CHECK(p->early || (p->its_on && p->its_end && p->message == 0), "PollEnded out of its turn");
        FUZZ_CHECK(p->early || be32toh(message->credit.bytes) == p->its_announced, "PollEnded tells of %u",
                   be32toh(message->credit.bytes));
        p->its_on = p->its_end = false;
        return true;
    default: return false;
    }
}

/* Handles our end's messages about features, credits and buffers. False: another message. */
static bool on_feature_sent(struct peer *p, const union rdma_wire_message *message) {
    switch (be16toh(message->opcode)) {
    case RDMA_OP_GET_SERVER_FEATURE:
        if (p->dialled)
            p->asked = true;
        else
            p->offered = be64toh(message->feature.features);
        return true;
    case RDMA_OP_SET_CLIENT_FEATURE:
        p->set = be64toh(message->feature.features);
        FUZZ_CHECK(!p->ours && (p->early || (p->dialled ? p->answered : p->its)), "SetClientFeature out of its turn");
        p->ours = true;
        p->space = p->rx_size - p->rx_filled;
        if (p->space == 0) p->rx_filled = 0;
        return true;
    case RDMA_OP_CREDIT: {
        uint32_t bytes = be32toh(message->credit.bytes);
        FUZZ_CHECK(p->ours && !p->next_rx && bytes, "a Credit of %u bytes", bytes);
        FUZZ_CHECK(p->early || bytes <= p->rx_size - p->space, "a Credit of %u bytes where %u are written", bytes,
                   p->rx_size - p->space);
        p->space += bytes;
        return true;
    }
    case RDMA_OP_BUFFER_TAKEN:
        FUZZ_CHECK(p->moving, "BufferTaken that answers nothing");
        FUZZ_CHECK(p->early || be32toh(message->credit.bytes) == (p->its_on ? p->its_announced : 0),
                   "BufferTaken tells of %u", be32toh(message->credit.bytes));
        begin_its_checksum(p);
        p->addr = p->new_addr, p->size = p->window = p->new_size, p->key = p->new_key;
        p->filled = 0;
        p->moving = false;
        return true;
    case RDMA_OP_REGISTER_XFER_MEMORY:
        if (!p->ours) return false;
        FUZZ_CHECK(!p->next_rx, "a third buffer");
        p->next_rx = (char *)(uintptr_t)be64toh(message->memory.addr);
        p->next_size = be32toh(message->memory.length);
        return true;
    default: return on_polled_sent(p, message);
    }
}

static void on_sent(struct fake_qp *qp, const struct ibv_send_wr *wr, struct fake_send *send) {
    struct peer *p = peer_of_id(qp->id);
    FUZZ_CHECK(p, "a send of nobody");
    if (wr->opcode == IBV_WR_SEND) {
        union rdma_wire_message message;
        FUZZ_CHECK(wr->num_sge == 1 && wr->sg_list->length == sizeof message, "a control message");
        memcpy(&message, (const void *)(uintptr_t)wr->sg_list->addr, sizeof message);
        if (on_feature_sent(p, &message) || be16toh(message.opcode) != RDMA_OP_REGISTER_XFER_MEMORY) return;
        FUZZ_CHECK(p->early || p->rx_filled == p->rx_size, "the buffer is announced anew with %u bytes free",
                   p->rx_size - p->rx_filled);
        p->rx = (char *)(uintptr_t)be64toh(message.memory.addr);
        p->rx_size = be32toh(message.memory.length);
        p->rx_filled = 0;
        return;
    }
    uint32_t len = 0;
    for (int i = 0; i < wr->num_sge; i++) len += wr->sg_list[i].length;
    if (len == 0 || p->early) return; /* a marker, or bytes that cannot be compared */
    if (p->its_on && wr->wr.rdma.remote_addr == ITS_WORD) {
        uint32_t word[2];
        FUZZ_CHECK(len == sizeof word && wr->num_sge == 1 && wr->wr.rdma.rkey == ITS_WORD_KEY &&
                       wr->opcode == IBV_WR_RDMA_WRITE && send->inlined,
                   "no word");
        memcpy(word, (const void *)(uintptr_t)wr->sg_list->addr, sizeof word);
        FUZZ_CHECK(p->message && p->message <= RDMA_POLLED_MESSAGE_MAX &&
                       be32toh(word[0]) == p->its_announced + p->message,
                   "a word of %u for %u and %u bytes", be32toh(word[0]), p->its_announced, p->message);
        p->its_announced += p->message;
        FUZZ_CHECK(p->its_announced - p->its_base <= RDMA_POLLED_BYTES_MAX, "%u bytes of words in a row",
                   p->its_announced - p->its_base);
        for (uint64_t at = p->arrived - p->message; at < p->arrived; at++) {
            char byte = byte_out(p, at);
            p->its_crc = crc32c_portable(p->its_crc, &byte, 1);
        }
        FUZZ_CHECK(be32toh(word[1]) == p->its_crc, "the checksum of a word");
        p->message = 0;
        return;
    }
    FUZZ_CHECK(wr->wr.rdma.rkey == p->key && wr->wr.rdma.remote_addr == p->addr + p->filled,
               "not where the peer's buffer goes on");
    FUZZ_CHECK(len <= p->size - p->filled, "%u bytes where %u are left", len, p->size - p->filled);
    send->offset = p->arrived;
    check_bytes(p, send);
    p->arrived += len;
    p->filled += len;
    if (p->its) {
        FUZZ_CHECK(len <= p->window, "%u bytes where credit is for %u", len, p->window);
        p->window -= len;
        if (p->filled == p->size) p->filled = 0;
    }
    p->message += len;
    FUZZ_CHECK(p->arrived <= p->written, "more than was written");
    if (wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM) return;
    uint32_t told = p->its_on ? p->its_announced += p->message : p->message;
    FUZZ_CHECK(be32toh(wr->imm_data) == told, "an immediate of %u for %u bytes", be32toh(wr->imm_data), p->message);
    if (p->its_on) begin_its_checksum(p);
    p->message = 0;
}
static void on_completed(struct fake_qp *qp, const struct fake_send *send) {
    struct peer *p = peer_of_id(qp->id);
    if (!p || p->early || send->inlined || !send->count || send->elements[0].length == sizeof(union rdma_wire_message))
        return;
    check_bytes(p, send);
}
static void on_id_destroyed(struct rdma_cm_id *id) {
    for (int i = 0; i < PEERS; i++)
        if (peers[i].id == id) peers[i].id = NULL;
}
static void on_qp_destroyed(struct fake_qp *qp) {
    struct peer *p = peer_of_id(qp->id);
    if (!p) return;
    p->rx_size = p->rx_filled = p->space = 0;
    p->next_rx = p->word = NULL;
    p->word_on = p->word_asked = p->word_end = false;
}

/* --- Our side --- */

static void write_out(struct peer *p, uint32_t len, bool as_blob) {
    struct connection *conn = p->conn;
    bool takes = conn->state <= CONN_OPEN;
    if (as_blob && takes) {
        struct blob *blob = blob_new(len, len);
        for (uint32_t i = 0; i < len; i++) blob->data[i] = byte_out(p, p->written++);
        output_write_blob(&conn->out, blob);
        blob_release(blob);
        return;
    }
    for (uint32_t i = 0; i < len; i++) {
        char byte = byte_out(p, p->written);
        output_write(&conn->out, (struct slice){&byte, 1});
        p->written++;
    }
}

static void check_shown(const struct peer *p) {
    struct slice in = conn_peek(p->conn);
    if (p->early) return;
    FUZZ_CHECK(p->consumed + in.len <= p->sent, "%llu bytes shown, %llu sent",
               (unsigned long long)(p->consumed + in.len), (unsigned long long)p->sent);
    for (size_t i = 0; i < in.len; i++)
        FUZZ_CHECK(in.data[i] == byte_in(p, p->consumed + i), "byte %llu is not what was sent",
                   (unsigned long long)(p->consumed + i));
}
static void consume(struct peer *p, size_t len) {
    conn_consume(p->conn, len);
    p->consumed += len;
}
static void drop_sink(struct peer *p) {
    mem_free(p->sink);
    p->sink = NULL;
}
static void close_ours(struct peer *p) {
    if (p->closed || !p->conn) return;
    p->closed = true;
    conn_close(p->conn);
    drop_sink(p);
}
static void sink_check(struct peer *p) {
    if (!p->sink || p->conn->sink_len) return;
    for (size_t i = 0; i < p->sink_size && !p->early; i++)
        FUZZ_CHECK(p->sink[i] == byte_in(p, p->consumed + i), "byte %zu of the sink", i);
    p->consumed += p->sink_size;
    drop_sink(p);
}
static void sink_begin(struct peer *p, size_t len) {
    if (p->sink || len == 0) return;
    p->sink = mem_alloc(len);
    p->sink_size = len;
    conn_receive_into(p->conn, p->sink, len);
    sink_check(p);
}

static void on_readable(struct connection *conn) {
    struct peer *p = conn->owner;
    FUZZ_CHECK(!p->closed && !p->told_end, "shown after the end");
    sink_check(p);
    if (p->sink) return;
    check_shown(p);
    size_t len = conn_peek(conn).len;
    switch (p->manner % 8) {
    case 0: consume(p, len); break;
    case 1: consume(p, len / 2); break;
    case 2: break;
    case 3:
        consume(p, len);
        write_out(p, (uint32_t)len, false);
        conn_flush(conn);
        break;
    case 4: close_ours(p); break;
    case 5: conn_set_reading(conn, false); break;
    case 6: sink_begin(p, len + p->manner * 64u); break;
    case 7: consume(p, len > p->manner ? len - p->manner : 0); break;
    }
}
static void on_drained(struct connection *conn) {
    struct peer *p = conn->owner;
    FUZZ_CHECK(!p->closed && !p->told_end, "drained after the end");
    FUZZ_CHECK(conn_pending(conn) == 0, "drained with %zu pending", conn_pending(conn));
    if (p->manner & 8) write_out(p, 100, false);
    if (p->manner & 16) close_ours(p);
}
static void on_closed(struct connection *conn) {
    struct peer *p = conn->owner;
    FUZZ_CHECK(!p->closed && !p->told_end, "closed twice");
    p->told_end = true;
    if (p->violated && !p->ended) FUZZ_CHECK(conn->error == EPROTO, "a violation ended with %d", conn->error);
    if (!p->violated && !p->ended && !p->early && p->size) /* one without a buffer has taken too long to announce it */
        FUZZ_CHECK(conn->error != EPROTO, "a violation of nobody: %s", conn_error_text(conn));
    conn_error_text(conn);
    close_ours(p);
}
static void on_connected(struct connection *conn) {
    struct peer *p = conn->owner;
    FUZZ_CHECK(!p->closed && !p->told_end, "connected after the end");
}
static const struct connection_events events = {
    .connected = on_connected, .readable = on_readable, .drained = on_drained, .closed = on_closed};

static void on_accepted(struct listener *from, struct connection *conn) {
    struct peer *p = peer_of_id(rdma_of(conn)->qp.id);
    FUZZ_CHECK(p && !p->conn, "a connection of nobody");
    conn->owner = p;
    conn->events = &events;
    p->conn = conn;
    conn_set_trusted(conn, !(p->manner & 32)); /* its buffers may grow */
    if ((p->manner & 0xC7) == 0xC4) close_ours(p);
}

/* --- The script --- */

static void turn(int64_t timeout_us) {
    /* Called by the loop, its time would depend on the kernel. */
    owner->channel_io.ready(&owner->channel_io, EVENT_READ);
    event_loop_turn(loop, timeout_us);
    for (int i = 0; i < PEERS; i++) {
        struct peer *p = &peers[i];
        if (!p->conn || p->closed) continue;
        const struct rdma_connection *c = rdma_of(p->conn);
        if (!c->receive.rx || p->told_end) continue;
        if (!p->early)
            FUZZ_CHECK(p->conn->bytes_in <= p->sent, "%llu bytes counted, %llu sent",
                       (unsigned long long)p->conn->bytes_in, (unsigned long long)p->sent);
        if (!p->ended)
            FUZZ_CHECK(p->conn->bytes_out == p->arrived, "%llu bytes counted out",
                       (unsigned long long)p->conn->bytes_out);
        FUZZ_CHECK(c->receive.taken <= c->receive.received && c->receive.received <= c->receive.rx->size, "%u %u of %u",
                   c->receive.taken, c->receive.received, c->receive.rx->size);
        FUZZ_CHECK(c->qp.send_depth == 0 || c->send.posted - c->send.retired <= c->qp.send_depth, "%u under way",
                   c->send.posted - c->send.retired);
        const struct input_buffer *input = &c->receive.input;
        if (p->conn->in_len)
            FUZZ_CHECK(p->conn->in >= input->own && p->conn->in + p->conn->in_len <= input->own + input->own_size,
                       "outside the private memory");
    }
}

static void peer_forget(struct peer *p) {
    drop_sink(p);
    *p = (struct peer){0};
}
/* A struct peer for another connection: an unused one, or one whose connection has ended. */
static struct peer *peer_new(struct fuzz_input *in) {
    for (int i = 0; i < PEERS; i++) {
        struct peer *p = &peers[i];
        if (p->used && (p->id || (p->conn && !p->closed))) continue;
        peer_forget(p);
        p->used = true;
        p->manner = fuzz_byte(in);
        p->ended = fake_fail_in != 0;
        return p;
    }
    return NULL;
}

static uint32_t choose_length(struct fuzz_input *in, uint32_t left) {
    uint8_t how = fuzz_byte(in);
    switch (how & 7) {
    case 0: return left;
    case 1: return left + 1 + (how >> 3);
    case 2: return how >> 3;
    case 3: return fuzz_u32(in);
    case 4: return left > (how >> 3) ? left - (how >> 3) : left;
    case 5: return 4096u + (how >> 3) * 997u;
    default: return 1 + fuzz_byte(in) * 8u + (how >> 3);
    }
}

static void write_word(struct peer *p, uint32_t count, uint32_t crc) {
    uint32_t word[2] = {htobe32(count), htobe32(crc)};
    memcpy(p->word, word, sizeof word);
}
/* Announces the next bytes, which are in our buffer, as in the protocol. False: no receive is posted. */
static bool announce_polled(struct peer *p, uint32_t len) {
    if (len > RDMA_POLLED_MESSAGE_MAX || p->told + len - p->base > RDMA_POLLED_BYTES_MAX) {
        if (!fake_receive_immediate(qp_of(p), htobe32(p->told + len))) return false;
        p->told += len;
        begin_checksum(p);
        return true;
    }
    p->told += len;
    for (uint32_t i = 0; i < len; i++) {
        char byte = byte_in(p, p->sent + i);
        p->crc = crc32c_portable(p->crc, &byte, 1);
    }
    write_word(p, p->told, p->crc);
    return true;
}

/* The peer writes and announces bytes: an honest peer stays within the buffer. */
static void step_data(struct peer *p, struct fuzz_input *in) {
    struct fake_qp *qp = qp_of(p);
    uint32_t left = p->ours ? p->space : p->rx_size - p->rx_filled, len = choose_length(in, left);
    if (!qp || qp->failed) return;
    bool honest = len && len <= left;
    if (honest && !p->early)
        for (uint32_t i = 0; i < len; i++) p->rx[(p->rx_filled + i) % p->rx_size] = byte_in(p, p->sent + i);
    if (p->word_on && !honest && fuzz_byte(in) & 1) {
        write_word(p, p->told + len, fuzz_u32(in)); /* no violation: the word is ignored */
        return;
    }
    if (p->word_on && honest) {
        if (p->violated || !announce_polled(p, len)) return;
    } else if (!fake_receive_immediate(qp, htobe32(p->word_on ? p->told + len : len)))
        return;
    if (honest) {
        p->rx_filled += len;
        if (p->ours) {
            p->space -= len;
            p->rx_filled %= p->rx_size;
        }
        if (p->violated) return;
        p->sent += len;
    } else if (!p->rx_size || (!p->ours && left == 0))
        p->early = p->ended = true; /* the next buffer may already be announced: then the data belongs to that buffer */
    else
        p->violated = true;
}

static void step_register(struct peer *p, struct fuzz_input *in) {
    struct fake_qp *qp = qp_of(p);
    if (!qp || qp->failed || (p->its && p->size)) return; /* step_feature */
    uint8_t how = fuzz_byte(in);
    uint32_t size = how & 1 ? fuzz_u32(in) : 64 + fuzz_byte(in) * (how & 2 ? 1024u : 3u), key = fuzz_u32(in);
    uint64_t addr = how & 4 ? (uint64_t)fuzz_u32(in) << 32 | fuzz_u32(in) : 0x10000;
    union rdma_wire_message message = {.memory = {.opcode = htobe16(RDMA_OP_REGISTER_XFER_MEMORY),
                                                  .addr = htobe64(addr),
                                                  .length = htobe32(size),
                                                  .key = htobe32(key)}};
    bool honest = size && size <= 1u << 30 && addr && addr + size >= addr && p->filled == p->size;
    if (how & 8 && p->filled != p->size) return; /* honest peers only, most of the time */
    if (!fake_receive(qp, &message, sizeof message, IBV_WC_SUCCESS)) return;
    if (!honest && size && size <= 1u << 30 && addr && addr + size >= addr)
        p->early = p->ended = true;
    else if (!honest)
        p->violated = true;
    if (p->violated) return;
    p->addr = addr, p->size = p->window = size, p->key = key, p->filled = 0;
}

static bool say(struct peer *p, union rdma_wire_message *message, enum rdma_opcode opcode) {
    message->opcode = htobe16(opcode);
    return fake_receive(qp_of(p), message, sizeof *message, IBV_WC_SUCCESS);
}
/* The peer negotiates, grants credit, confirms buffers and announces others: correctly, or (how & 8) with any
 * values. */
static void step_feature(struct peer *p, struct fuzz_input *in) {
    struct fake_qp *qp = qp_of(p);
    uint8_t how = fuzz_byte(in);
    bool lies = (how & 0x18) == 0x18;
    union rdma_wire_message message = {.opcode = 0};
    if (!qp || qp->failed || p->early || p->violated) return;
    switch (how & 7) {
    case 0:
    case 1: /* GetServerFeature: a request or a reply */
        if (!lies && (p->dialled ? !p->asked || p->answered : p->its)) return;
        if (p->dialled)
            message.feature.features =
                htobe64(how & 32 ? RDMA_FEATURE_RING | (how & 64 ? RDMA_FEATURE_POLLED : 0) : fuzz_u32(in));
        if (!say(p, &message, RDMA_OP_GET_SERVER_FEATURE)) return;
        if (p->dialled && !p->asked)
            p->early = p->ended = true; /* we may ask before we process the reply */
        else if (p->dialled ? p->answered : p->its)
            p->violated = true;
        else if (p->dialled)
            p->answered = true;
        return;
    case 2: /* SetClientFeature */
        if (!lies && (p->its || (p->dialled ? !p->ours : !p->offered))) return;
        p->its_set =
            p->dialled && p->set ? p->set : RDMA_FEATURE_RING | (how & 32 ? p->offered & RDMA_FEATURE_POLLED : 0);
        message.feature.features = htobe64(p->its_set);
        if (!say(p, &message, RDMA_OP_SET_CLIENT_FEATURE)) return;
        if (p->its || (p->dialled && !p->ours)) {
            p->violated = true;
            return;
        }
        if (!p->offered && !p->dialled) p->ended = true; /* it may have asked, and the reply may be in flight */
        p->its = true;
        p->window = p->size - p->filled;
        if (p->window == 0) p->filled = 0;
        return;
    case 3:
    case 4: { /* Credit */
        uint32_t most = p->size - p->window, bytes = lies ? fuzz_u32(in) : how & 32 ? most : fuzz_byte(in) * 100u;
        if (!lies && (!p->its || p->moving || bytes == 0 || bytes > most)) return;
        message.credit.bytes = htobe32(bytes);
        if (!say(p, &message, RDMA_OP_CREDIT)) return;
        if (!p->its || bytes == 0 || bytes > most || p->moving)
            p->violated = p->early = true; /* the window is unknown from now on */
        else
            p->window += bytes;
        if (p->moving) p->ended = true;
        return;
    }
    case 5: /* BufferTaken */
        if (!lies && !p->next_rx) return;
        message.credit.bytes = htobe32(p->word_on ? p->told : 0);
        if (!say(p, &message, RDMA_OP_BUFFER_TAKEN)) return;
        if (!p->next_rx) {
            p->violated = true;
            return;
        }
        p->rx = p->next_rx;
        p->rx_size = p->space = p->next_size;
        p->rx_filled = 0;
        p->next_rx = NULL;
        return;
    default: /* another buffer */
        if (!p->its || p->moving || !p->size) return;
        p->new_addr = 0x10000;
        p->new_size = 64 + fuzz_byte(in) * 90u;
        p->new_key = fuzz_byte(in);
        message.memory.addr = htobe64(p->new_addr);
        message.memory.length = htobe32(p->new_size);
        message.memory.key = htobe32(p->new_key);
        p->moving = say(p, &message, RDMA_OP_REGISTER_XFER_MEMORY);
    }
}

/* The peer replies to messages about our word and announces its own: correctly, or (how & 0x18) with any values. */
static void step_polled(struct peer *p, struct fuzz_input *in) {
    struct fake_qp *qp = qp_of(p);
    uint8_t how = fuzz_byte(in);
    bool lies = (how & 0x18) == 0x18;
    union rdma_wire_message message = {.opcode = 0};
    if (!qp || qp->failed || p->early || p->violated) return;
    if (lies) p->early = p->ended = true;
    switch (how & 3) {
    case 0:
        if ((lies || p->word_asked) && say(p, &message, RDMA_OP_POLL_BEGUN) && !lies) {
            begin_checksum(p);
            p->word_on = true;
            p->word_asked = false;
        }
        return;
    case 1:
        if (!lies && !p->word_end) return;
        message.credit.bytes = htobe32(lies ? fuzz_u32(in) : p->told);
        if (say(p, &message, RDMA_OP_POLL_ENDED)) p->word_on = p->word_end = false;
        return;
    case 2:
        if (!lies && (!(p->its_set & RDMA_FEATURE_POLLED) || p->its_asked || p->its_on)) return;
        message.memory.addr = htobe64(lies ? fuzz_u32(in) : ITS_WORD);
        message.memory.length = htobe32(lies ? fuzz_byte(in) % 9u : 8);
        message.memory.key = htobe32(ITS_WORD_KEY);
        p->its_asked |= say(p, &message, RDMA_OP_POLL_BEGIN);
        return;
    default:
        if (!lies && ((!p->its_asked && !p->its_on) || p->its_end)) return;
        p->its_end |= say(p, &message, RDMA_OP_POLL_END);
    }
}

static void step_control(struct peer *p, struct fuzz_input *in) {
    struct fake_qp *qp = qp_of(p);
    if (!qp || qp->failed) return;
    uint8_t how = fuzz_byte(in), bytes[64] = {0};
    uint32_t len = how & 1 ? fuzz_byte(in) % 65u : 32;
    struct slice given = fuzz_take(in, how & 2 ? 32 : 2);
    memcpy(bytes, given.data, given.len);
    uint16_t opcode = (uint16_t)(bytes[0] << 8 | bytes[1]);
    if (opcode == RDMA_OP_REGISTER_XFER_MEMORY && len == 32) return; /* step_register */
    if (how & 4) bytes[1] = (uint8_t)(RDMA_OP_KEEPALIVE), bytes[0] = (uint8_t)(RDMA_OP_KEEPALIVE >> 8);
    for (int i = how & 8 ? 1 + (how >> 2) : 1; i > 0 && !qp->failed; i--)
        if (!fake_receive(qp, bytes, len, IBV_WC_SUCCESS)) break;
    p->ended = true; /* other tests check whether this is a violation */
}

static void all_may_end(void) {
    for (int i = 0; i < PEERS; i++) peers[i].ended = true;
}

static void step_cm(struct peer *p, struct fuzz_input *in) {
    static const enum rdma_cm_event_type failures[] = {
        RDMA_CM_EVENT_CONNECT_ERROR,  RDMA_CM_EVENT_UNREACHABLE,   RDMA_CM_EVENT_REJECTED,   RDMA_CM_EVENT_DISCONNECTED,
        RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_ADDR_CHANGE};
    uint8_t how = fuzz_byte(in);
    peer_of_id(p->conn && !p->closed ? rdma_of(p->conn)->qp.id : NULL);
    if (!p->id) return;
    enum fake_stage *stage = fake_stage(p->id);
    if (how & 3) { /* the next valid event */
        if (*stage == FAKE_ADDRESS)
            fake_event(p->id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
        else if (*stage == FAKE_ROUTE)
            fake_event(p->id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
        else if (*stage == FAKE_CONNECT)
            fake_event(p->id, RDMA_CM_EVENT_ESTABLISHED, 0);
        *stage = *stage == FAKE_CONNECT || *stage == FAKE_OPEN ? FAKE_OPEN : FAKE_NEW;
    } else if (*stage == FAKE_ADDRESS || *stage == FAKE_ROUTE) {
        p->ended = true;
        fake_event(p->id, *stage == FAKE_ADDRESS ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ROUTE_ERROR,
                   how & 4 ? -ENODEV : 0);
        *stage = FAKE_NEW;
    } else if (*stage >= FAKE_CONNECT) {
        enum rdma_cm_event_type type = failures[(how >> 2) % 7];
        if (*stage == FAKE_OPEN && type < RDMA_CM_EVENT_DISCONNECTED) type = RDMA_CM_EVENT_DISCONNECTED;
        p->ended = true;
        if (type == RDMA_CM_EVENT_DEVICE_REMOVAL) all_may_end(); /* all peers share the device */
        if (type == RDMA_CM_EVENT_DISCONNECTED && qp_of(p)) qp_of(p)->failed = true;
        fake_event(p->id, type, how & 128 ? -ETIMEDOUT : 0);
    }
}

static void step_own(struct peer *p, struct fuzz_input *in) {
    uint8_t how = fuzz_byte(in);
    if (!p->conn || p->closed) return;
    struct connection *conn = p->conn;
    switch (how % 10) {
    case 0: write_out(p, 1 + fuzz_byte(in), false); break;
    case 1: write_out(p, 1 + fuzz_byte(in) * 257u, false); break;
    case 2: write_out(p, OUTPUT_SHARE_MIN + fuzz_byte(in) * 300u, true); break;
    case 3: conn_flush(conn); break;
    case 4: close_ours(p); break;
    case 5: conn_set_reading(conn, how & 16); break;
    case 6: conn_set_in_limit(conn, 1 + fuzz_byte(in) * 600u); break;
    case 7:
        if (conn->state == CONN_OPEN) sink_begin(p, fuzz_byte(in) * 300u);
        break;
    case 8:
        if (!p->sink) consume(p, conn->in_len / (1 + how / 16u));
        break;
    case 9: p->manner = fuzz_byte(in); break;
    }
}

static void step_complete(struct peer *p, struct fuzz_input *in) {
    struct fake_qp *qp = qp_of(p);
    uint8_t how = fuzz_byte(in);
    if (!qp) return;
    if (!qp->failed && how < 224) {
        for (int i = how & 15; i >= 0; i--)
            if (!fake_complete_send(qp, IBV_WC_SUCCESS)) break;
        return;
    }
    enum ibv_wc_status status = how & 7 && !qp->failed ? (enum ibv_wc_status)(how % 21) : IBV_WC_WR_FLUSH_ERR;
    if (status == IBV_WC_SUCCESS) status = IBV_WC_WR_FLUSH_ERR;
    p->ended = true;
    if (how & 8)
        fake_receive(qp, NULL, 0, status);
    else
        fake_complete_send(qp, status);
    for (int i = 0; qp->failed && i < 80 && how & 16; i++) /* all of it is flushed */
        if (!fake_complete_send(qp, IBV_WC_WR_FLUSH_ERR)) break;
}

static void step(struct fuzz_input *in) {
    uint8_t what = fuzz_byte(in);
    struct rdma_cm_id *listens =
        container_of(listener, struct rdma_listener, listener)->id; /* NULL: its device was removed */
    struct peer *p = &peers[(what >> 6) % PEERS];
    switch (what & 31) {
    case 0:
    case 1:
        if (listens && (p = peer_new(in))) p->id = fake_request(listens, what & 1);
        break;
    case 2:
    case 3:
        if ((p = peer_new(in))) {
            struct connect_options options = {.host = "127.0.0.1", .port = 6379, .events = &events, .owner = p};
            fake_next_device = what & 1;
            p->dialled = true;
            p->conn = conn_connect(&transport_rdma, loop, &options);
        }
        break;
    case 4:
    case 5: step_cm(p, in); break;
    case 6:
        fake_fail_in = 1 + fuzz_byte(in) % 24;
        all_may_end();
        break;
    case 7: fake_stray(what >> 7, 9000 + fuzz_u32(in) % 9000, fuzz_u32(in), (enum ibv_wc_status)(what >> 5)); break;
    case 8: step_control(p, in); break;
    case 9:
        fuzz_now_us += fuzz_byte(in) * UINT64_C(50000);
        all_may_end();
        break;
    case 10: turn(1); break;
    case 11:
    case 12:
    case 13: step_complete(p, in); break;
    case 14:
    case 15: step_register(p, in); break;
    case 16:
    case 17:
    case 18:
    case 19: step_own(p, in); break;
    case 20:
    case 21:
    case 22:
    case 23:
    case 24: step_data(p, in); break;
    case 25:
    case 26:
    case 27: step_feature(p, in); break;
    case 28: step_polled(p, in); break;
    case 29:
        if (listens && what >> 5 == 0) {
            all_may_end();
            fake_event(listens, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
        }
        break;
    default: turn(0); break;
    }
    fuzz_now_us++;
}

/* The device completes all requests: no data may wait for a peer whose buffer has space. */
static void send_all(void) {
    enum { ROUNDS = 80, IDLE = 5 };
    uint64_t arrived = UINT64_MAX; /* at the start of the last round; running the loop also sends */
    for (int round = 0, idle = 0; round < ROUNDS && idle < IDLE; round++) {
        uint64_t before = arrived;
        arrived = 0;
        for (int i = 0; i < PEERS; i++) arrived += peers[i].arrived;
        for (int i = 0; i < PEERS; i++) {
            struct peer *p = &peers[i];
            struct fake_qp *qp = qp_of(p);
            if (!qp || qp->failed || !p->conn || p->closed || p->conn->state != CONN_OPEN) continue;
            conn_flush(p->conn);
            while (fake_complete_send(qp, IBV_WC_SUCCESS)) {
            }
        }
        turn(0);
        fuzz_now_us += 260000; /* a tick requests the completion of unsignaled sends */
        idle = arrived != before ? 0 : idle + 1;
        if (round + 1 == ROUNDS) return;
    }
    for (int i = 0; i < PEERS; i++) {
        const struct peer *p = &peers[i];
        const struct fake_qp *qp = qp_of(p);
        if (!qp || qp->failed || !p->conn || p->closed || p->conn->state != CONN_OPEN || p->manner & 8) continue;
        if (rdma_of(p->conn)->end_pending || p->early) continue;
        uint32_t free = p->its ? p->window : p->size - p->filled;
        if (free)
            FUZZ_CHECK(conn_pending(p->conn) == 0, "%zu bytes wait while %u are free", conn_pending(p->conn), free);
        FUZZ_CHECK(!p->moving, "the new buffer is not taken");
    }
}

/* Ends everything; all resources must have been freed. */
static void settle_all(void) {
    fake_fail_in = 0;
    send_all();
    for (int i = 0; i < TURNS_TO_END; i++) turn(0);
    for (int i = 0; i < PEERS; i++) { /* an owner that accepts input has seen all of it */
        const struct peer *p = &peers[i];
        if (!p->conn || p->closed || p->conn->state != CONN_OPEN || p->conn->reading_paused || p->sink) continue;
        const struct rdma_connection *c = rdma_of(p->conn);
        if (c->end_pending || p->conn->in_len >= p->conn->in_limit) continue;
        FUZZ_CHECK(rdma_receive_unshown(c) == 0, "%zu bytes are not shown", rdma_receive_unshown(c));
        if (p->ours && !p->next_rx && !p->early && p->conn->in_len == 0 &&
            c->qp.send_depth - (c->send.posted - c->send.retired) > 1)
            FUZZ_CHECK(p->space >= p->rx_size - p->rx_size / 4, "only %u of %u bytes are credited", p->space,
                       p->rx_size);
    }
    for (int i = 0; i < TURNS_TO_END; i++) {
        turn(0);
        for (int k = 0; k < PEERS; k++) {
            close_ours(&peers[k]);
            if (peers[k].id && i > 2) fake_event(peers[k].id, RDMA_CM_EVENT_DISCONNECTED, 0);
        }
        fuzz_now_us += 1000000;
    }
    for (int i = 0; i < PEERS; i++) peer_forget(&peers[i]);
    FUZZ_CHECK(owner->connections.len == 0 && owner->stats.connections == 0, "%zu connections are left",
               owner->connections.len);
    FUZZ_CHECK(fake_counts.queue_pairs == 0 && fake_counts.ids == 1, "%d queue pairs, %d identifiers are left",
               fake_counts.queue_pairs, fake_counts.ids - 1);
    uint64_t bytes = owner->stats.registered_bytes, values = 0; /* regions of values count once, for the process */
    list_each(&owner->devices, link) {
        const struct rdma_values *of = &container_of(link, struct rdma_device, link)->values;
        for (uint32_t i = 0; i < of->count; i++) values += of->regions[i] ? of->regions[i]->length : 0;
    }
    FUZZ_CHECK(bytes + values == fake_counts.registered_bytes, "%llu bytes are registered, %llu are counted",
               (unsigned long long)fake_counts.registered_bytes, (unsigned long long)(bytes + values));
    FUZZ_CHECK(rdma_registered() == bytes + rdma_values_bytes(), "%llu bytes are charged",
               (unsigned long long)rdma_registered());
    const struct rdma_stats *held = &owner->stats;
    FUZZ_CHECK(held->memory_regions == (uint64_t)fake_counts.regions, "%d regions, %llu are counted",
               fake_counts.regions, (unsigned long long)held->memory_regions);
    FUZZ_CHECK(!held->queue_pairs && !held->send_chunks_used && !held->receive_buffers && !held->ring_connections &&
                   !held->polled_connections,
               "counted as held: %llu queue pairs, %llu chunks, %llu buffers, %llu rings",
               (unsigned long long)held->queue_pairs, (unsigned long long)held->send_chunks_used,
               (unsigned long long)held->receive_buffers, (unsigned long long)held->ring_connections);
    uint64_t all_posted = 0;
    list_each(&owner->devices, link) {
        struct rdma_device *device = container_of(link, struct rdma_device, link);
        size_t chunks = 0;
        for (const struct rdma_chunk *chunk = device->memory.free_chunks; chunk; chunk = chunk->next) chunks++;
        FUZZ_CHECK(chunks == device->memory.send_bytes / RDMA_CHUNK_SIZE, "%zu chunks of %zu are back", chunks,
                   device->memory.send_bytes / RDMA_CHUNK_SIZE);
        uint64_t committed = 0, depths = 0;
        for (int i = 0; i < device->queue_count; i++) committed += device->queues[i].committed;
        for (int i = 0; i < device->shared_count; i++) {
            uint32_t depth, posted = fake_shared_receives(device->shared[i].srq, &depth);
            FUZZ_CHECK(posted == depth, "%u of %u receives are posted", posted, depth);
            FUZZ_CHECK(device->shared[i].users == 0, "users of a shared queue are lost");
            all_posted += posted;
            depths += depth;
        }
        FUZZ_CHECK(committed == depths, "capacity of a completion queue is lost");
    }
    FUZZ_CHECK(held->receives_posted == all_posted, "%llu receives are posted, %llu are counted",
               (unsigned long long)all_posted, (unsigned long long)held->receives_posted);
}

static void all_up(void) {
    char error[200];
    loop = event_loop_new();
    struct listen_options options = {.host = "127.0.0.1", .port = 6379, .accepted = on_accepted};
    listener = conn_listen(&transport_rdma, loop, &options, error, sizeof error);
    FUZZ_CHECK(listener, "%s", error);
    owner = rdma_loop_find(loop);
}
static void all_down(void) {
    event_loop_free(loop);
    FUZZ_CHECK(fake_counts.regions == 0 && fake_counts.ids == 0, "%d regions, %d identifiers", fake_counts.regions,
               fake_counts.ids);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    log_level = LOG_LEVEL_NOTHING;
    fake_hooks = (struct fake_hooks){on_sent, on_completed, on_id_destroyed, on_qp_destroyed};
    rdma_settings.rx_size = RX_SIZE;
    rdma_settings.rx_initial = RDMA_RX_INITIAL_MIN;
    rdma_settings.completion_vector = 0;
    rdma_settings.busy_poll_us = 0;
    rdma_settings.poll_after = 1;
    rdma_settings.send_memory = RDMA_SLAB_SIZE;
    clock_update();
    all_up();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned runs;
    struct fuzz_input in = {data, data + size};
    fuzz_now_us += 1000000;
    clock_update();
    for (int i = 0; in.at < in.end && i < STEPS_MAX; i++) step(&in);
    settle_all();
    if (++runs % 64 == 0) { /* creating and freeing device contexts is slow */
        all_down();
        all_up();
    }
    return 0;
}
