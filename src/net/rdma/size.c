/* size.c: see size.h. */
#include "net/rdma/size.h"

enum {
    GROW_FACTOR = 4,
    /* A ring that is filled in less time was too small. The peer of a larger ring does not wait as long as a quarter of
     * it takes longer than a round trip; and small rings stay in the caches. */
    GROW_RING_BELOW_US = 100,
    SHRINK_ABOVE_US = 500 * 1000, /* one that takes longer than this is larger than it needs to be */
    /* Base protocol: a buffer that fewer messages fill within GROW_PLAIN_US is too small. */
    LAP_MESSAGES = 32,
    GROW_PLAIN_US = 1000 * 1000,
    MANY_MESSAGES = 96,     /* a buffer that takes this many messages need not end with a write */
    LEAP_MOST = 16,         /* the largest factor by which a buffer grows */
    LAP_WRITES = 4,         /* the most writes in a buffer that ends with a write */
    LAP_BYTES = 256 * 1024, /* the most bytes in such a buffer, if it holds more than one write */
    ALIKE_LEAST = 16,       /* writes of one length after which the missing part of one gets a buffer of its own size */
    LARGE_WRITE = 128 * 1024, /* for writes of more than this the second one is enough */
    CHANGES_MOST = 6,      /* changes of the size since a buffer ended with a write; then the size follows no writes */
    REQUEST_MARGIN = 4096, /* command, key and lengths beside a value */
    PART_LEAST = 4096,     /* the missing part of a write gets a buffer of its own if it is at least this long */
    SHRINK_PLAIN_US = 10 * 1000 * 1000,
};

/* Bytes that the owner is known to wait for. */
static size_t awaited(const struct rdma_connection *c) {
    return c->conn.sink_len > c->conn.awaited ? c->conn.sink_len : c->conn.awaited;
}

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

/* Sizes are steps from the first size, so that few different sizes are in use and each has its pool. A step that would
 * end shortly before the largest size leads to that: the small step after it would cost a stock client as much. */
static uint32_t step_below(const struct rdma_connection *c) {
    uint32_t size = c->receive.least;
    while (size * GROW_FACTOR < c->receive.rx->capacity) size *= GROW_FACTOR;
    return size;
}

static uint32_t step_above(uint32_t size, uint32_t most) {
    uint64_t next = (uint64_t)size * GROW_FACTOR;
    return next + next / 2 > most ? most : (uint32_t)next;
}

void rdma_size_guess_write(struct rdma_connection *c) {
    if (c->receive.write_length || !c->receive.write_part || !c->conn.sink_len || c->conn.sink_len >= RDMA_RX_SIZE_MAX)
        return;
    c->receive.write_length = c->receive.write_part + (uint32_t)c->conn.sink_len + 2;
    c->receive.write_guessed = true;
}

/* The length of the peer's writes, and the missing part of an unfinished one. False: the lengths are unknown. */
static bool known_writes(const struct rdma_connection *c, uint32_t *length, uint32_t *missing) {
    *length = c->receive.write_length;
    *missing = 0;
    if (c->receive.size_changes >= CHANGES_MOST) return false;
    if (!c->receive.write_part) return *length != 0;
    if (*length <= c->receive.write_part) return false;
    *missing = *length - c->receive.write_part;
    return true;
}

/* The length of as many writes as a buffer should take. */
static uint32_t lap_of_writes(uint32_t length) {
    uint32_t writes = LAP_BYTES / length;
    return length * (writes < 1 ? 1 : writes < LAP_WRITES ? writes : LAP_WRITES);
}

/* A request with a value of half the largest size fits. A buffer that begins with the largest size keeps it. */
static uint32_t half_plain_size(const struct rdma_connection *c) {
    uint32_t half = whole_pages(largest_size() / 2, RDMA_RX_SIZE_MIN, RDMA_RX_SIZE_MAX);
    return c->receive.least < half ? half + REQUEST_MARGIN : c->receive.least;
}

/* The peer's writes are longer than `length`: the latest complete one was, and either the unfinished one is already or
 * several had the same length. */
static bool writes_exceed(const struct rdma_connection *c, uint32_t length) {
    if (c->receive.write_length <= length || c->receive.write_guessed || c->receive.size_changes >= CHANGES_MOST)
        return false;
    return c->receive.write_part > length || c->receive.writes_alike;
}

uint32_t rdma_size_largest_plain(const struct rdma_connection *c) {
    uint32_t half = half_plain_size(c), largest = largest_size() + REQUEST_MARGIN;
    bool first = c->receive.write_guessed && c->receive.write_length > half && c->receive.write_length <= largest;
    if (half >= largest || (!first && !writes_exceed(c, half))) return half;
    return c->receive.rx->capacity >= largest || rdma_memory_is_plentiful(largest) ? largest : half;
}

uint32_t rdma_receive_plain_size(const struct rdma_connection *c, uint32_t messages, uint64_t took_us) {
    uint32_t size = c->receive.rx->capacity, most = rdma_size_largest_plain(c);
    uint32_t next = c->receive.least, length, missing;
    if (!c->conn.trusted) return size < c->receive.least ? size : c->receive.least;
    bool few = messages && messages < LAP_MESSAGES && took_us < GROW_PLAIN_US, large = awaited(c) >= size;
    if (size < most && (few || large)) {
        uint64_t wanted = (uint64_t)size / (messages ? messages : 1) * LAP_MESSAGES, leap = (uint64_t)size * LEAP_MOST;
        if (wanted > leap) wanted = leap;
        if (large && wanted < awaited(c)) wanted = awaited(c);
        if (known_writes(c, &length, &missing) && length <= most) wanted = (uint64_t)missing + lap_of_writes(length);
        if (wanted <= size) return size;
        while (next < most && (next <= size || next < wanted)) next = step_above(next, most);
        return next;
    }
    bool slow = took_us > SHRINK_PLAIN_US || (rdma_memory_is_short() && messages >= LAP_MESSAGES);
    return size > c->receive.least && slow ? step_below(c) : size;
}

/* The length of equal parts of a write that a buffer takes one of; 0: there are none of a good length. A batch of equal
 * requests always has some. */
static uint32_t equal_part(uint32_t length, uint32_t capacity) {
    uint32_t least = (length + capacity - 1) / capacity;
    for (uint32_t parts = least; parts <= 2 * least; parts++)
        if (length % parts == 0) return length / parts;
    return 0;
}

/* The same for writes that are longer than the buffer, which takes a part of one. */
static uint32_t fitting_part(const struct rdma_connection *c, uint32_t capacity, uint32_t length, uint32_t missing,
                             uint32_t same) {
    uint32_t part = equal_part(length, capacity);
    if (!part || !writes_exceed(c, half_plain_size(c))) return same;
    uint32_t rest = missing % part;
    if (rest == 0) return part;
    return rest >= PART_LEAST ? rest : same;
}

/* The size to announce of a buffer of that capacity. */
uint32_t rdma_size_fitting(const struct rdma_connection *c, uint32_t capacity) {
    bool changes = capacity != c->receive.rx->capacity; /* in any case */
    uint32_t same = changes ? capacity : c->receive.rx->size, length, missing;
    if (!c->conn.trusted || !known_writes(c, &length, &missing)) return same;
    if (!missing && same % length == 0) return same;
    if (!changes && c->receive.messages >= MANY_MESSAGES) return same;
    if (length > capacity) return fitting_part(c, capacity, length, missing, same);
    if (missing && !c->receive.write_guessed) {
        if (c->receive.writes_alike < ALIKE_LEAST && !writes_exceed(c, LARGE_WRITE)) return same;
        if (missing >= PART_LEAST) return missing;
    }
    uint32_t lap = lap_of_writes(length), fits = (capacity - missing) / length * length;
    uint32_t size = missing + (fits < lap ? fits : lap);
    return size ? size : same;
}

uint32_t rdma_receive_ring_size(const struct rdma_connection *c, uint64_t bytes, uint64_t took_us) {
    uint32_t size = c->receive.rx->capacity, most = largest_size();
    if (!c->conn.trusted) return size < c->receive.least ? size : c->receive.least;
    uint64_t fill_us = bytes ? took_us * size / bytes : UINT64_MAX;
    bool quick = fill_us < GROW_RING_BELOW_US || awaited(c) >= size;
    if (size < most && quick) {
        do size = step_above(size, most);
        while (size < most && size < awaited(c));
    } else if (size > c->receive.least && !quick && (fill_us > SHRINK_ABOVE_US || rdma_memory_is_short()))
        size = step_below(c);
    return size;
}

/* A buffer is announced whose size is, or is not, that of the one before. */
void rdma_size_count(struct rdma_connection *c, bool same) {
    if (!same)
        c->receive.size_changes += c->receive.size_changes < UINT8_MAX;
    else if (!c->receive.write_part)
        c->receive.size_changes = 0; /* the buffer ended with a write */
}
