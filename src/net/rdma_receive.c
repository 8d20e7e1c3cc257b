/* rdma_receive.c: the receiving half of the data path: exposes the bytes that the peer has written, in place.
 * rdma_connection.h describes the structure.
 *
 * Two buffers in the base protocol.  A client that fills our buffer waits inside its write for RegisterXferMemory. The
 * announcement therefore goes out with the completion that fills the buffer, before its requests are executed. The
 * client copies its next bytes meanwhile. It also prevents a stall: clients that poll their completion queue while they
 * wait take the completions of our replies there, and may then sleep although replies have arrived (rdma_stall_begin()
 * has the remedy for the rest). All second buffers together are bounded: many large ones cost more in the processor's
 * caches than the waiting they save.
 *
 * Size in the base protocol.  A stock client deregisters, allocates and registers its send buffer whenever the
 * announced size differs from the one before, so sizes must settle. A buffer is too small when few messages fill it,
 * because each buffer costs one announcement. That is counted in messages, not in time: how fast a buffer fills says
 * little where one thread of a client serves many connections. Then the buffer grows to what takes LAP_MESSAGES
 * messages of that size, up to half of the largest size and a margin, so that a value of that size fits together with
 * the rest of its request; LEAP_MOST times as large at most: one request that is larger than the buffer may be the only
 * one. Half, because a stock client's send buffer is as large as ours, and the client copies each byte into it before
 * the device reads it there: 512 KiB stay in a core's second-level cache, 1 MiB does not. It shrinks, step by step,
 * only when filling it took longer than SHRINK_PLAIN_US. The size cannot change while a buffer is partly filled: the
 * base protocol has no message by which a client confirms an announcement, and data on its way to the old buffer could
 * not be distinguished from data for the new one.
 *
 * Writes of one length.  A buffer that ends in the middle of a write makes the client wait for the next one; a buffer
 * that ends with a write does not, because the client waits for the reply to that write anyway, and the announcement
 * arrives with the reply. Most clients with large values send many writes of the same length: requests of one kind, or
 * batches of them. So the announced size is a multiple of the length of the latest writes where they are alike and
 * few fit in: as many as LAP_BYTES take, LAP_WRITES at most, but at least one. The buffer's memory is a little larger.
 * More large writes in a buffer gain nothing, and the buffers of many connections would not fit in the caches. The
 * header of the first request tells the length of a first write that is larger than the buffer. Later, what is missing
 * of the present write comes first, in a buffer of that size: two changes, which pay only after ALIKE_LEAST writes. A
 * peer with writes of other lengths costs CHANGES_MOST useless changes at most.
 *
 * Rejected: growing by the time from a buffer's first message to its last: a client with 500 connections shows
 * anything. Announcing two halves of one buffer in turn: an idle connection would hold both, and the first half
 * announced is a change of size. */
#include "net/rdma_connection.h"
#include "lib/clock.h"
#include "lib/memory.h"
#include <string.h>

enum {
    BOUNCE_STEP = 4 * 1024,
    GROW_FACTOR = 4,
    /* A ring that is filled in less time was too small. The peer of a larger ring does not wait as long as a quarter of
     * it takes longer than a round trip; and small rings stay in the caches. */
    GROW_RING_BELOW_US = 100,
    SHRINK_ABOVE_US = 500 * 1000, /* one that takes longer than this is larger than it needs to be */
    /* Base protocol: a buffer that fewer messages fill within GROW_PLAIN_US is too small. */
    LAP_MESSAGES = 32,
    GROW_PLAIN_US = 1000 * 1000,
    MANY_MESSAGES = 96,     /* a buffer that takes this many need not end with a write */
    LEAP_MOST = 16,         /* how many times as large a buffer becomes at once, at most */
    LAP_WRITES = 4,         /* writes in a buffer that ends with a write, at most; */
    LAP_BYTES = 256 * 1024, /* and their length, if it is more than one */
    ALIKE_LEAST = 16, /* writes of one length in a row for which a buffer takes what is missing of the present one */
    CHANGES_MOST = 6, /* changes of the size since a buffer ended with a write; then the size follows no writes */
    REQUEST_MARGIN = 4096, /* command, key and lengths beside a value */
    PART_LEAST = 4096,     /* what is missing of a write gets a buffer of its own if it is at least this much */
    SHRINK_PLAIN_US = 10 * 1000 * 1000,
    SECOND_MOST = 8 * 1024 * 1024,    /* bytes of second buffers of a device context */
    SPARE_QUIET_US = 2 * 1000 * 1000, /* the second buffer is released when nothing has arrived for this long */
};

/* The size of the buffer */

static uint32_t whole_pages(uint32_t size, uint32_t least, uint32_t most) {
    enum { PAGE = 4096 };
    if (size < least) size = least;
    if (size > most) size = most;
    return (size + PAGE - 1) / PAGE * PAGE;
}

static uint32_t largest_size(void) {
    return whole_pages(rdma_settings.rx_size, RDMA_RX_SIZE_MIN, RDMA_RX_SIZE_MAX);
}

uint32_t rdma_receive_first_size(bool passive) {
    uint32_t largest = largest_size();
    return passive && rdma_settings.rx_initial ? whole_pages(rdma_settings.rx_initial, RDMA_RX_INITIAL_MIN, largest)
                                               : largest;
}

bool rdma_receive_allocate(struct rdma_connection *c) {
    c->rx_least = rdma_receive_first_size(c->passive);
    c->rx = rdma_rx_take(&c->device->memory, c->rx_least);
    return c->rx != NULL;
}

/* Sizes are steps from the first size, so that few different sizes are in use and each has its pool. */
static uint32_t step_below(const struct rdma_connection *c) {
    uint32_t size = c->rx_least;
    while (size * GROW_FACTOR < c->rx->capacity) size *= GROW_FACTOR;
    return size;
}

static uint32_t step_above(uint32_t size, uint32_t most) {
    return size > most / GROW_FACTOR ? most : size * GROW_FACTOR;
}

/* A write of the peer has arrived, or the part of it that filled the buffer. */
static void note_write(struct rdma_connection *c, uint32_t len) {
    uint32_t length = c->write_part <= UINT32_MAX - len ? c->write_part + len : 0;
    if (c->writable == 0 && length != c->write_length) {
        c->write_part = length;
        return;
    }
    c->write_part = 0;
    c->write_guessed = false;
    if (length != c->write_length) {
        c->write_length = length;
        c->writes_alike = 0;
    } else if (c->writes_alike < UINT8_MAX) {
        c->writes_alike++;
    }
}

/* The peer's first write fills the buffer: presumably it is one request, whose argument and end of the line are
 * missing. */
static void guess_write(struct rdma_connection *c) {
    if (c->write_length || !c->write_part || !c->conn.sink_len || c->conn.sink_len >= RDMA_RX_SIZE_MAX) return;
    c->write_length = c->write_part + (uint32_t)c->conn.sink_len + 2;
    c->write_guessed = true;
}

/* The lengths of the peer's writes, as far as they can be known, and what is missing of the present one. */
static bool known_writes(const struct rdma_connection *c, uint32_t *length, uint32_t *missing) {
    *length = c->write_length;
    *missing = 0;
    if (c->size_changes >= CHANGES_MOST) return false;
    if (!c->write_part) return *length != 0;
    if (*length <= c->write_part) return false;
    *missing = *length - c->write_part;
    return true;
}

/* The length of as many writes as a buffer should take. */
static uint32_t lap_of_writes(uint32_t length) {
    uint32_t writes = LAP_BYTES / length;
    return length * (writes < 1 ? 1 : writes < LAP_WRITES ? writes : LAP_WRITES);
}

/* A request with a value of half the largest size fits, too. A buffer that begins with the largest size keeps it. */
static uint32_t largest_plain_size(const struct rdma_connection *c) {
    uint32_t largest = whole_pages(largest_size() / 2, RDMA_RX_SIZE_MIN, RDMA_RX_SIZE_MAX);
    return c->rx_least < largest ? largest + REQUEST_MARGIN : c->rx_least;
}

uint32_t rdma_receive_plain_size(const struct rdma_connection *c, uint32_t messages, uint64_t took_us) {
    uint32_t size = c->rx->capacity, most = largest_plain_size(c);
    uint32_t next = c->rx_least, length, missing;
    if (!c->conn.trusted) return size < c->rx_least ? size : c->rx_least;
    bool few = messages && messages < LAP_MESSAGES && took_us < GROW_PLAIN_US, large = c->conn.sink_len >= size;
    if (size < most && (few || large)) {
        uint64_t wanted = (uint64_t)size / (messages ? messages : 1) * LAP_MESSAGES, leap = (uint64_t)size * LEAP_MOST;
        if (wanted > leap) wanted = leap;
        if (large && wanted < c->conn.sink_len) wanted = c->conn.sink_len;
        if (known_writes(c, &length, &missing) && length <= most) wanted = (uint64_t)missing + lap_of_writes(length);
        if (wanted <= size) return size;
        while (next < most && (next <= size || next < wanted)) next = step_above(next, most);
        return next;
    }
    bool slow = took_us > SHRINK_PLAIN_US || (rdma_memory_is_short() && messages >= LAP_MESSAGES);
    return size > c->rx_least && slow ? step_below(c) : size;
}

/* The size to announce of a buffer of that capacity. */
static uint32_t fitting_size(const struct rdma_connection *c, uint32_t capacity) {
    bool changes = capacity != c->rx->capacity; /* in any case */
    uint32_t same = changes ? capacity : c->rx->size, length, missing;
    if (!c->conn.trusted || !known_writes(c, &length, &missing)) return same;
    if (length > capacity || (!missing && same % length == 0)) return same;
    if (!changes && c->rx_messages >= MANY_MESSAGES) return same;
    if (missing && !c->write_guessed) {
        if (c->writes_alike < ALIKE_LEAST) return same;
        if (missing >= PART_LEAST) return missing;
    }
    uint32_t lap = lap_of_writes(length), fits = (capacity - missing) / length * length;
    uint32_t size = missing + (fits < lap ? fits : lap);
    return size ? size : same;
}

uint32_t rdma_receive_ring_size(const struct rdma_connection *c, uint64_t bytes, uint64_t took_us) {
    uint32_t size = c->rx->capacity, most = largest_size();
    if (!c->conn.trusted) return size < c->rx_least ? size : c->rx_least;
    uint64_t fill_us = bytes ? took_us * size / bytes : UINT64_MAX;
    bool quick = fill_us < GROW_RING_BELOW_US || c->conn.sink_len >= size;
    if (size < most && quick) {
        do size = step_above(size, most);
        while (size < most && size < c->conn.sink_len);
    } else if (size > c->rx_least && !quick && (fill_us > SHRINK_ABOVE_US || rdma_memory_is_short()))
        size = step_below(c);
    return size;
}

struct rdma_rx *rdma_receive_take_other(struct rdma_connection *c, uint32_t size) {
    bool grow = size > c->rx->capacity;
    struct rdma_rx *rx = grow ? rdma_rx_take_to_grow(&c->device->memory, size) : rdma_rx_take(&c->device->memory, size);
    if (rx) *(grow ? &c->owner->stats.grown : &c->owner->stats.shrunk) += 1;
    return rx;
}

/* Replaces the present buffer by one of that size. No byte of the present one may be exposed. The caller announces the
 * new one. False: none is available, and the present one stays. */
static bool switch_to(struct rdma_connection *c, uint32_t size) {
    struct rdma_rx *rx = rdma_receive_take_other(c, size);
    if (!rx) return false;
    rdma_rx_give(&c->device->memory, c->rx);
    c->rx = rx;
    return true;
}

/* The peer may fill the buffer from its start. */
static void announce(struct rdma_connection *c, struct rdma_rx *rx) {
    c->writable = rx->size;
    c->rx_since_us = clock_mono();
    c->rx_messages = 0;
    rx->announced = true;
    rdma_control_announce(c);
}

void rdma_receive_begin(struct rdma_connection *c) {
    c->received = c->taken = 0;
    announce(c, c->rx);
}

/* A buffer for the peer to continue in while the full one is read: of a better size, the spare one, or a further one.
 * NULL: none is available. */
static struct rdma_rx *take_next(struct rdma_connection *c) {
    guess_write(c);
    uint32_t capacity = rdma_receive_plain_size(c, c->rx_messages, clock_mono() - c->rx_since_us);
    struct rdma_rx *rx = capacity != c->rx->capacity ? rdma_receive_take_other(c, capacity) : NULL;
    if (rx) {
        rx->size = fitting_size(c, capacity);
        return rx;
    }
    rx = c->spare;
    c->spare = NULL;
    if (!rx && c->device->memory.second_bytes + c->rx->size <= SECOND_MOST) {
        rx = rdma_rx_take_to_grow(&c->device->memory, c->rx->capacity);
        if (rx) c->device->memory.second_bytes += c->second_bytes = c->rx->size;
    }
    if (rx) rx->size = fitting_size(c, rx->capacity);
    return rx;
}

/* A buffer is announced whose size is, or is not, that of the one before. */
static void count_size(struct rdma_connection *c, bool same) {
    if (!same)
        c->size_changes += c->size_changes < UINT8_MAX;
    else if (!c->write_part)
        c->size_changes = 0; /* the buffer ended with a write */
}

/* The full buffer is read at once. Whether the next one is better announced after that. */
static bool later_is_better(const struct rdma_connection *c) {
    /* The peer waits for the reply to its last write, not for a buffer. It receives both together then, and one buffer
     * is enough for it. */
    if (!c->write_part) return rdma_receive_unshown(c) + c->conn.in_len <= c->write_length;
    /* It has filled its first buffer by its first write. The header of the request shows how much is missing. */
    return !c->write_length && c->write_part == c->rx->size && c->rx->capacity < largest_plain_size(c);
}

/* The buffer is full and not read yet. An untrusted peer has one buffer only. */
static void announce_next(struct rdma_connection *c) {
    if (c->next || c->ring.in || !c->conn.trusted || c->conn.state != CONN_OPEN || c->end_pending) return;
    if (rdma_may_receive(c) && later_is_better(c)) return;
    c->next = take_next(c);
    if (!c->next) return;
    count_size(c, c->next->size == c->rx->size);
    announce(c, c->next);
}

void rdma_receive_drop_spare(struct rdma_connection *c) {
    if (c->spare) rdma_rx_give(&c->device->memory, c->spare);
    c->spare = NULL;
    if (c->second_bytes) c->device->memory.second_bytes -= c->second_bytes;
    c->second_bytes = 0;
}

struct rdma_rx *rdma_receive_enter_next(struct rdma_connection *c) {
    struct rdma_rx *old = c->rx;
    c->rx = c->next;
    c->taken = 0;
    c->received = c->next_received;
    c->next = NULL;
    c->next_received = 0;
    return old;
}

/* All of the buffer has been exposed, and the next one is announced. */
static void enter_next(struct rdma_connection *c) {
    struct rdma_rx *old = rdma_receive_enter_next(c);
    if (c->spare || old->capacity != c->rx->capacity) {
        rdma_receive_drop_spare(c);
        rdma_rx_give(&c->device->memory, old);
    } else
        c->spare = old;
    if (c->writable == 0) announce_next(c);
}

uint64_t rdma_receive_quiet_us(struct rdma_connection *c, uint64_t now) {
    if (c->conn.bytes_in != c->quiet_at) {
        c->quiet_at = c->conn.bytes_in;
        c->quiet_since_us = now;
    }
    return now - c->quiet_since_us;
}

void rdma_receive_tick(struct rdma_connection *c, uint64_t now) {
    if (c->ring.in) {
        rdma_ring_tick(c, now);
        return;
    }
    uint64_t quiet_us = rdma_receive_quiet_us(c, now);
    if (quiet_us >= SPARE_QUIET_US || (quiet_us && rdma_memory_is_short())) rdma_receive_drop_spare(c);
}

/* Showing what arrived */

/* Makes space for `more` bytes behind those exposed from the bounce buffer. */
static void bounce_reserve(struct rdma_connection *c, size_t more) {
    struct connection *conn = &c->conn;
    size_t at = (size_t)(conn->in - c->bounce);
    if (c->bounce_size - at - conn->in_len >= more) return;
    if (c->bounce_size >= conn->in_len + more && at >= conn->in_len) {
        memcpy(c->bounce, conn->in, conn->in_len);
        conn->in = c->bounce;
        return;
    }
    char *grown = mem_alloc_usable((conn->in_len + more) * 2, &c->bounce_size);
    if (conn->in_len) memcpy(grown, conn->in, conn->in_len);
    mem_free(c->bounce);
    conn->in = c->bounce = grown;
}

void rdma_receive_show(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    size_t there = c->received - c->taken;
    if (conn->sink) {
        size_t part = there < conn->sink_len ? there : conn->sink_len;
        memcpy(conn->sink, c->rx->data + c->taken, part);
        c->taken += (uint32_t)part;
        conn->sink_len -= part;
        conn->sink = conn->sink_len ? conn->sink + part : NULL;
        there -= part;
        if (there == 0) return;
    }
    if (c->in_bounce) {
        size_t part = conn->in_len > BOUNCE_STEP ? conn->in_len : BOUNCE_STEP;
        if (part > there || !rdma_uses(RDMA_ZERO_COPY_IN)) part = there;
        bounce_reserve(c, part);
        memcpy(c->bounce + (conn->in - c->bounce) + conn->in_len, c->rx->data + c->taken, part);
        c->bounce_from_rx += part;
        if (c->ring.in) { /* bytes kept for the return from the bounce buffer are not free for the peer */
            size_t most = c->rx->size / 4;
            c->bounce_from_rx = part < most ? part : most;
        }
        there = part;
    } else if (conn->in_len == 0)
        conn->in = c->rx->data + c->taken;
    c->taken += (uint32_t)there;
    conn->in_len += there;
}

bool rdma_may_receive(const struct rdma_connection *c) {
    return c->conn.state == CONN_OPEN && !c->conn.reading_paused && !c->showing &&
           (c->conn.sink || c->conn.in_len < c->conn.in_limit);
}

void rdma_receive_to_bounce(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    c->bounce = mem_alloc_usable(conn->in_len + BOUNCE_STEP, &c->bounce_size);
    memcpy(c->bounce, conn->in, conn->in_len);
    conn->in = c->bounce;
    c->in_bounce = true;
}

void rdma_receive_settle(struct rdma_connection *c) {
    struct connection *conn = &c->conn;
    if (!c->rx || c->showing) return;
    if (c->in_bounce && rdma_uses(RDMA_ZERO_COPY_IN) && conn->in_len <= c->bounce_from_rx) {
        conn->in = c->rx->data + c->taken - conn->in_len;
        mem_free(c->bounce);
        c->bounce = NULL;
        c->in_bounce = false;
        c->bounce_size = c->bounce_from_rx = 0;
    }
    if (c->ring.in) {
        bool maybe_credit = c->writable <= c->rx->size - c->rx->size / 4;
        if (maybe_credit || c->taken == c->rx->size || c->next) rdma_ring_settle(c);
        return;
    }
    if (c->taken < c->rx->size || !rdma_may_receive(c) || (c->end_pending && !c->next)) return;
    if (conn->in_len && !c->in_bounce) rdma_receive_to_bounce(c);
    c->bounce_from_rx = 0; /* nothing in the buffer is shown any more */
    if (c->next) {
        enter_next(c);
        return;
    }
    guess_write(c);
    uint32_t capacity = rdma_receive_plain_size(c, c->rx_messages, clock_mono() - c->rx_since_us);
    uint32_t size = fitting_size(c, capacity), before = c->rx->size;
    if (capacity == c->rx->capacity || switch_to(c, capacity)) c->rx->size = size;
    count_size(c, c->rx->size == before);
    rdma_receive_begin(c);
}

void rdma_receive_consume(struct rdma_connection *c, size_t len) {
    struct connection *conn = &c->conn;
    conn->in += len;
    conn->in_len -= len;
    /* Exposed bytes stay in place until the caller is done. */
    if (c->showing || !c->rx) return;
    if (c->taken == c->rx->size || c->taken < c->received || rdma_ring_wants_turn(c)) rdma_connection_ready(c);
}

void rdma_receive_data(struct rdma_connection *c, uint32_t len) {
    if (!c->registered)
        rdma_violation(c, "data before the receive buffer was announced");
    else if (len == 0)
        rdma_violation(c, "an immediate of zero bytes");
    else if (len > c->writable)
        rdma_violation(c, "a message of %u bytes while %u are free", len, c->writable);
    else {
        c->writable -= len;
        c->rx_messages++;
        if (!c->ring.in) note_write(c, len);
        /* The peer's bytes are in no cache or in another core's. Prefetch them while the rest of the batch of
         * completions is handled. */
        const char *arrived = c->rx->data + c->received;
        __builtin_prefetch(arrived);
        if (len > 64) __builtin_prefetch(arrived + 64);
        if (len <= c->rx->size - c->received && !c->next)
            c->received += len;
        else if (c->ring.in)
            rdma_ring_arrived(c, len);
        else
            c->next_received += len;
        c->conn.bytes_in += len;
        c->owner->stats.bytes_in += len;
        c->owner->stats.messages_in++;
        if (c->writable == 0) announce_next(c);
        if (!c->lingering) rdma_connection_ready(c);
    }
}

void rdma_receive_release(struct rdma_connection *c) {
    rdma_untrusted_leave(c);
    if (c->next) rdma_rx_give(&c->device->memory, c->next);
    c->next = NULL;
    rdma_receive_drop_spare(c);
    if (c->rx) rdma_rx_give(&c->device->memory, c->rx);
    c->rx = NULL;
    mem_free(c->bounce);
    c->bounce = NULL;
}
