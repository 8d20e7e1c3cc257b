/* replica.c: see replica.h. */
#include "repl/pull/replica.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "net/reply_line.h"
#include "repl/pull/reads.h"
#include "repl/pull/wire.h"
#include "repl/settings.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { WAIT_US = 100 * 1000 };

struct pull_fetch {
    struct event_loop *loop;
    struct connection *conn;
    struct pull_reads *reads;
    uint64_t acknowledged; /* chunks */
    uint32_t used;         /* bytes of the oldest chunk that the loader has finished with */
    size_t shown;          /* bytes after these that the loader is using in the buffer */
    void (*arrived_event)(void);
    bool ended; /* +END was received: reads->started is the number of chunks */
    uint64_t announced_bytes, keys_total;
    uint64_t began_us, heard_us;
    uint64_t heard_bytes, heard_reads; /* of the connection, at heard_us */
};

static struct pull_fetch *running;

bool pull_fetch_possible(const struct connection *conn) {
    return rdma_read_depth(conn) > 0;
}

/* Parses exactly `count` numbers, separated by single spaces. */
static bool numbers_of(struct slice text, uint64_t *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *space = memchr(text.data, ' ', text.len);
        if (!space != (i == count - 1)) return false;
        size_t len = space ? (size_t)(space - text.data) : text.len;
        if (!parse_uint64((struct slice){text.data, len}, &numbers[i])) return false;
        if (space) text = slice_make(space + 1, text.len - len - 1);
    }
    return true;
}
static bool starts_with(struct slice *line, const char *prefix) {
    size_t len = strlen(prefix);
    if (line->len < len || memcmp(line->data, prefix, len) != 0) return false;
    *line = slice_make(line->data + len, line->len - len);
    return true;
}

const char *pull_fetch_capability(const struct connection *conn) {
    return conn->transport->carrier ? PULL_CAPABILITY_SEALED : PULL_CAPABILITY;
}

/* Takes " <key>" from the end of the header. */
static bool take_key(struct slice *header, struct pull_key *key) {
    enum { TEXT = 1 + PULL_KEY_TEXT };
    if (header->len < TEXT) return false;
    header->len -= TEXT;
    const char *text = header->data + header->len;
    return text[0] == ' ' && pull_key_parse(slice_make(text + 1, PULL_KEY_TEXT), key);
}

static void read_arrived(void *context) {
    const struct pull_fetch *fetch = context;
    if (fetch->arrived_event) fetch->arrived_event();
}

struct pull_fetch *pull_fetch_new(struct connection *conn, struct slice header, const char **error) {
    uint64_t numbers[2]; /* chunk size, keys */
    bool sealed = strcmp(pull_fetch_capability(conn), PULL_CAPABILITY_SEALED) == 0;
    struct pull_key key;
    if (!starts_with(&header, PULL_HEADER) || (sealed && !take_key(&header, &key)) || !numbers_of(header, numbers, 2) ||
        numbers[0] < PULL_WIRE_CHUNK_MIN || numbers[0] > PULL_WIRE_CHUNK_MAX) {
        *error = "the header of the pulled snapshot is malformed";
        return NULL;
    }
    struct pull_fetch *fetch = mem_calloc(1, sizeof *fetch);
    struct pull_reads_params params = {.chunk_size = (uint32_t)numbers[0],
                                       .buffers = PULL_FETCH_MEMORY / (uint32_t)numbers[0],
                                       .key = sealed ? &key : NULL,
                                       .arrived = read_arrived,
                                       .context = fetch};
    fetch->reads = pull_reads_new(conn, &params, error);
    if (sealed) pull_key_forget(&key);
    if (!fetch->reads) {
        mem_free(fetch);
        return NULL;
    }
    fetch->keys_total = numbers[1];
    fetch->conn = conn;
    fetch->loop = conn->loop;
    fetch->began_us = fetch->heard_us = clock_monotonic_us();
    running = fetch;
    return fetch;
}

void pull_fetch_free(struct pull_fetch *fetch) {
    if (!fetch) return;
    if (running == fetch) running = NULL;
    pull_reads_free(fetch->reads);
    mem_free(fetch);
}

const char *pull_fetch_error(const struct pull_fetch *fetch) {
    return fetch->reads->error ? fetch->reads->reason : NULL;
}

void pull_fetch_notify(struct pull_fetch *fetch, void (*arrived)(void)) {
    fetch->arrived_event = arrived;
}

/* +CHUNK: starts the read. */
static void chunk_announced(struct pull_fetch *fetch, struct slice line) {
    uint64_t numbers[6]; /* number, address, length, key, checksum, keys */
    if (numbers_of(line, numbers, 6) && numbers[0] == fetch->reads->started && numbers[2] <= UINT32_MAX &&
        numbers[3] <= UINT32_MAX && numbers[4] <= UINT32_MAX) {
        struct pull_offer offer = {.address = numbers[1],
                                   .length = (uint32_t)numbers[2],
                                   .rkey = (uint32_t)numbers[3],
                                   .checksum = (uint32_t)numbers[4],
                                   .keys = numbers[5]};
        fetch->announced_bytes += offer.length;
        if (pull_reads_start(fetch->reads, fetch->conn, &offer)) return;
    }
    pull_reads_fail(fetch->reads, -EPROTO, "the descriptor of chunk %llu is malformed",
                    (unsigned long long)fetch->reads->started);
}

static void end_announced(struct pull_fetch *fetch, struct slice line) {
    uint64_t numbers[2]; /* chunks, bytes */
    if (!numbers_of(line, numbers, 2) || numbers[0] != fetch->reads->started || numbers[1] != fetch->announced_bytes) {
        pull_reads_fail(fetch->reads, -EPROTO, "the end of the snapshot does not match its chunks");
        return;
    }
    fetch->ended = true;
}

/* Processes the next line of the input. False: no line is complete, or a READ must complete first. */
static bool take_line(struct pull_fetch *fetch) {
    if (fetch->ended || !pull_reads_ready(fetch->reads) || !conn_is_open(fetch->conn)) return false;
    char text[PULL_LINE_MAX];
    struct slice line;
    ssize_t used = reply_line_read(conn_peek(fetch->conn), sizeof text, &line);
    if (used < 0) pull_reads_fail(fetch->reads, -EPROTO, "the primary sent a line that is too long");
    if (used <= 0) return false;
    line.data = memcpy(text, line.data, line.len);
    conn_consume(fetch->conn, (size_t)used);
    if (line.len == 0) return true;
    if (starts_with(&line, PULL_CHUNK))
        chunk_announced(fetch, line);
    else if (starts_with(&line, PULL_END))
        end_announced(fetch, line);
    else if (line.data[0] == '-')
        pull_reads_fail(fetch->reads, -ECONNABORTED, "the primary says: %.*s",
                        (int)(line.len > 100 ? 100 : line.len) - 1, line.data + 1);
    else
        pull_reads_fail(fetch->reads, -EPROTO, "the primary sent an unknown message");
    return true;
}

static void acknowledge(struct pull_fetch *fetch) {
    if (fetch->acknowledged == fetch->reads->arrived || fetch->reads->error || !conn_is_open(fetch->conn)) return;
    char text[96], number[24];
    size_t digits = format_uint64(number, fetch->reads->arrived);
    int len = snprintf(text, sizeof text, "*3\r\n$8\r\nREPLCONF\r\n$6\r\nPULLED\r\n$%zu\r\n%.*s\r\n", digits,
                       (int)digits, number);
    output_write(&fetch->conn->out, slice_make(text, (size_t)len));
    conn_flush(fetch->conn);
    fetch->acknowledged = fetch->reads->arrived;
}

void pull_fetch_pump(struct pull_fetch *fetch) {
    while (take_line(fetch)) continue;
    acknowledge(fetch);
}

/* Runs the loop once. */
static void turn(struct pull_fetch *fetch, int64_t wait_us) {
    event_loop_turn(fetch->loop, wait_us);
    pull_fetch_pump(fetch);
    uint64_t now = clock_monotonic_us();
    if (!conn_is_open(fetch->conn)) {
        pull_reads_fail(fetch->reads, -ECONNRESET, "the link to the primary broke");
    } else if (fetch->conn->bytes_in != fetch->heard_bytes || fetch->reads->called_back != fetch->heard_reads) {
        fetch->heard_bytes = fetch->conn->bytes_in;
        fetch->heard_reads = fetch->reads->called_back;
        fetch->heard_us = now;
    } else if (fetch->ended && fetch->reads->arrived == fetch->reads->started) {
        fetch->heard_us = now; /* everything has arrived: the primary need not send anything */
    } else if (now - fetch->heard_us > (uint64_t)repl_settings.timeout * 1000000) {
        pull_reads_fail(fetch->reads, -ETIMEDOUT, "nothing was heard from the primary for %d seconds: repl-timeout",
                        repl_settings.timeout);
    }
}

/* The loader has finished with `len` more bytes of the current chunk. Returns whether that completes the chunk. */
static bool bytes_used(struct pull_fetch *fetch, size_t len) {
    fetch->used += (uint32_t)len;
    if (len == 0 || fetch->used < pull_reads_front(fetch->reads).len) return false;
    fetch->used = 0;
    pull_reads_next(fetch->reads);
    return true;
}
static bool shown_used(struct pull_fetch *fetch) {
    size_t shown = fetch->shown;
    fetch->shown = 0;
    return bytes_used(fetch, shown);
}

/* The rest of the current chunk. 0: the end. -EAGAIN: no chunk has arrived. */
static ssize_t arrived_bytes(struct pull_fetch *fetch, const char **bytes) {
    const struct pull_reads *reads = fetch->reads;
    if (reads->error) return reads->error;
    struct slice chunk = pull_reads_front(reads);
    if (!chunk.len) return fetch->ended && reads->arrived == reads->started ? 0 : -EAGAIN;
    *bytes = chunk.data + fetch->used;
    return (ssize_t)(chunk.len - fetch->used);
}

/* Runs the loop until the next bytes have arrived. */
static ssize_t next_bytes(struct pull_fetch *fetch, const char **bytes) {
    if (shown_used(fetch)) turn(fetch, 0); /* takes completed READs, and starts others into the free buffers */
    pull_fetch_pump(fetch);
    ssize_t got;
    while ((got = arrived_bytes(fetch, bytes)) == -EAGAIN) turn(fetch, WAIT_US);
    return got;
}

ssize_t pull_fetch_take(struct pull_fetch *fetch, const char **bytes) {
    (void)shown_used(fetch);
    pull_fetch_pump(fetch);
    ssize_t got = arrived_bytes(fetch, bytes);
    if (got > 0) fetch->shown = (size_t)got;
    return got;
}

ssize_t pull_fetch_show(struct pull_fetch *fetch, const char **bytes) {
    ssize_t got = next_bytes(fetch, bytes);
    if (got > 0) fetch->shown = (size_t)got;
    return got;
}

ssize_t pull_fetch_read(struct pull_fetch *fetch, void *to, size_t len) {
    const char *bytes;
    ssize_t got = next_bytes(fetch, &bytes);
    if (got <= 0) return got;
    if (len > (size_t)got) len = (size_t)got;
    memcpy(to, bytes, len);
    if (bytes_used(fetch, len)) turn(fetch, 0);
    return (ssize_t)len;
}

/* --- Progress --- */

struct pull_progress pull_progress_of(uint64_t bytes, uint64_t keys, uint64_t keys_total, uint64_t elapsed_us) {
    struct pull_progress progress = {.bytes = bytes, .keys = keys, .keys_total = keys_total, .seconds_left = -1};
    double seconds = (double)elapsed_us / 1e6;
    if (seconds > 0) progress.bytes_per_second = (double)bytes / seconds;
    if (keys > keys_total) keys = keys_total;
    if (keys_total) progress.percent = (double)keys * 100 / (double)keys_total;
    double left = keys ? seconds * (double)(keys_total - keys) / (double)keys + 0.5 : -1;
    if (left >= 0 && left < (double)INT32_MAX) progress.seconds_left = (int64_t)left; /* the peer chose the numbers */
    return progress;
}
bool pull_fetch_progress(struct pull_progress *progress) {
    if (!running) return false;
    *progress = pull_progress_of(running->reads->bytes, running->reads->keys, running->keys_total,
                                 clock_monotonic_us() - running->began_us);
    return true;
}
