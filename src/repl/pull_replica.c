/* pull_replica.c: see pull_replica.h.
 *
 * Three counters divide the chunks: those before `consumed` were given to the loader, those from there to `arrived` are
 * in local buffers, and those from there to `started` are being read. Chunk n uses buffer n modulo the number of
 * buffers. READs complete in the order in which they were started. */
#include "repl/pull_replica.h"
#include "lib/hash/crc32c.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "net/rdma/read.h"
#include "repl/pull_seal.h"
#include "repl/pull_wire.h"
#include "repl/repl_settings.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    WAIT_US = 100 * 1000,
    READS = 8, /* in flight, or fewer if the connection allows fewer */
};
_Static_assert((int)READS <= (int)RDMA_READS_MAX, "reads in flight");

struct buffer {
    uint32_t length, checksum;
    uint64_t keys;
};

struct pull_fetch {
    struct event_loop *loop;
    struct connection *conn; /* NULL: cancelled */
    struct rdma_window window;
    char *memory;
    size_t memory_size;
    uint32_t chunk_size, buffer_count, depth;
    uint64_t started, arrived, consumed, acknowledged; /* chunks */
    uint64_t reads, called_back;                       /* READs that were started; that completed or failed */
    bool orphaned; /* pull_fetch_free() was called: the last READ in flight frees it */
    uint32_t used; /* bytes of chunk `consumed` that the loader has finished with */
    size_t shown;  /* bytes after these that the loader is using in the buffer */
    void (*arrived_event)(void);
    bool ended;             /* +END was received: `started` is the number of chunks */
    struct pull_seal *seal; /* NULL: the chunks are not encrypted */
    uint64_t announced_bytes, bytes, keys, keys_total;
    uint64_t began_us, heard_us;
    uint64_t heard_bytes, heard_reads; /* of the connection, at heard_us */
    int error;
    char reason[160];
    struct buffer buffers[];
};

static struct pull_fetch *running;

bool pull_fetch_possible(const struct connection *conn) {
    return rdma_read_depth(conn) > 0;
}

static struct buffer *buffer_at(struct pull_fetch *fetch, uint64_t number) {
    return &fetch->buffers[number % fetch->buffer_count];
}
static size_t buffer_offset(const struct pull_fetch *fetch, uint64_t number) {
    return (size_t)(number % fetch->buffer_count) * fetch->chunk_size;
}

static void fail(struct pull_fetch *fetch, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fail(struct pull_fetch *fetch, int error, const char *format, ...) {
    if (fetch->error) return;
    fetch->error = error;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fetch->reason, sizeof fetch->reason, format, arguments);
    va_end(arguments);
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
    enum { TEXT = 1 + 2 * PULL_KEY_SIZE };
    static const char digits[] = "0123456789abcdef";
    if (header->len < TEXT) return false;
    header->len -= TEXT;
    const char *text = header->data + header->len;
    for (size_t i = 0; i < PULL_KEY_SIZE; i++) {
        const char *high = memchr(digits, text[1 + 2 * i], 16), *low = memchr(digits, text[2 + 2 * i], 16);
        if (!high || !low) return false;
        key->bytes[i] = (unsigned char)((high - digits) << 4 | (low - digits));
    }
    return text[0] == ' ';
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
    struct pull_seal *seal = sealed ? pull_seal_new(&key) : NULL;
    if (sealed) pull_key_forget(&key);
    if (sealed && !seal) {
        *error = "no memory for the cipher of the pulled snapshot";
        return NULL;
    }
    uint32_t count = PULL_FETCH_MEMORY / (uint32_t)numbers[0];
    struct pull_fetch *fetch = mem_calloc(1, sizeof *fetch + count * sizeof *fetch->buffers);
    fetch->seal = seal;
    fetch->chunk_size = (uint32_t)numbers[0];
    fetch->buffer_count = count;
    fetch->keys_total = numbers[1];
    fetch->memory_size = (size_t)count * fetch->chunk_size;
    fetch->memory = mmap(NULL, fetch->memory_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fetch->memory == MAP_FAILED) {
        *error = strerror(errno);
        pull_seal_free(seal);
        mem_free(fetch);
        return NULL;
    }
    int result = rdma_window_open(conn, RDMA_WINDOW_TARGET, fetch->memory, fetch->memory_size, &fetch->window);
    if (result < 0) {
        *error = result == -EDQUOT ? "rdma-max-registered-memory leaves no memory for the buffers" : strerror(-result);
        munmap(fetch->memory, fetch->memory_size);
        pull_seal_free(seal);
        mem_free(fetch);
        return NULL;
    }
    uint32_t depth = rdma_read_depth(conn);
    fetch->depth = depth < READS ? depth : READS;
    fetch->conn = conn;
    fetch->loop = conn->loop;
    fetch->began_us = fetch->heard_us = clock_monotonic_us();
    running = fetch;
    return fetch;
}

void pull_fetch_cancel(struct pull_fetch *fetch) {
    if (!fetch || !fetch->conn) return;
    fail(fetch, -ECANCELED, "cancelled");
    fetch->conn = NULL;
}

static void release(struct pull_fetch *fetch) {
    rdma_window_close(&fetch->window);
    munmap(fetch->memory, fetch->memory_size);
    pull_seal_free(fetch->seal);
    mem_free(fetch);
}

void pull_fetch_free(struct pull_fetch *fetch) {
    if (!fetch) return;
    if (running == fetch) running = NULL;
    fail(fetch, -ECANCELED, "cancelled");
    fetch->orphaned = true;
    if (fetch->called_back == fetch->reads) release(fetch);
}

const char *pull_fetch_error(const struct pull_fetch *fetch) {
    return fetch->error ? fetch->reason : NULL;
}

static void chunk_read(struct pull_fetch *fetch, int64_t result) {
    struct buffer *buffer = buffer_at(fetch, fetch->arrived);
    if (fetch->error) return;
    if (result < 0) {
        fail(fetch, (int)result, "reading chunk %llu failed: %s", (unsigned long long)fetch->arrived,
             strerror((int)-result));
        return;
    }
    char *bytes = fetch->memory + buffer_offset(fetch, fetch->arrived);
    if (crc32c(0, bytes, buffer->length) != buffer->checksum) {
        fail(fetch, -EILSEQ, "chunk %llu has a wrong checksum", (unsigned long long)fetch->arrived);
        return;
    }
    if (fetch->seal) {
        if (!pull_seal_open(fetch->seal, fetch->arrived, bytes, buffer->length)) {
            fail(fetch, -EBADMSG, "chunk %llu was changed on its way: its tag is wrong",
                 (unsigned long long)fetch->arrived);
            return;
        }
        buffer->length -= PULL_TAG_SIZE;
    }
    fetch->arrived++;
    fetch->bytes += buffer->length;
    fetch->keys = buffer->keys;
}

static void read_done(struct connection *conn, void *context, int64_t result) {
    struct pull_fetch *fetch = context;
    fetch->called_back++;
    if (fetch->orphaned) {
        if (fetch->called_back == fetch->reads) release(fetch);
        return;
    }
    chunk_read(fetch, result);
    if (fetch->arrived_event) fetch->arrived_event();
}

void pull_fetch_notify(struct pull_fetch *fetch, void (*arrived)(void)) {
    fetch->arrived_event = arrived;
}

/* +CHUNK: starts the read. */
static void chunk_announced(struct pull_fetch *fetch, struct slice line) {
    uint64_t numbers[6]; /* number, address, length, key, checksum, keys */
    uint32_t around = fetch->seal ? PULL_TAG_SIZE : 0;
    if (!numbers_of(line, numbers, 6) || numbers[0] != fetch->started || numbers[2] <= around ||
        numbers[2] > fetch->chunk_size || numbers[3] > UINT32_MAX || numbers[4] > UINT32_MAX) {
        fail(fetch, -EPROTO, "the descriptor of chunk %llu is malformed", (unsigned long long)fetch->started);
        return;
    }
    uint32_t length = (uint32_t)numbers[2];
    *buffer_at(fetch, fetch->started) =
        (struct buffer){.length = length, .checksum = (uint32_t)numbers[4], .keys = numbers[5]};
    size_t offset = buffer_offset(fetch, fetch->started);
    fetch->announced_bytes += length;
    fetch->started++;
    int result = rdma_read_start(fetch->conn, &fetch->window, offset, numbers[1], (uint32_t)numbers[3], length,
                                 read_done, fetch);
    if (result < 0)
        fail(fetch, result, "reading could not start: %s", strerror(-result));
    else
        fetch->reads++;
}

static void end_announced(struct pull_fetch *fetch, struct slice line) {
    uint64_t numbers[2]; /* chunks, bytes */
    if (!numbers_of(line, numbers, 2) || numbers[0] != fetch->started || numbers[1] != fetch->announced_bytes) {
        fail(fetch, -EPROTO, "the end of the snapshot does not match its chunks");
        return;
    }
    fetch->ended = true;
}

/* Processes the next line of the input. False: no line is complete, or a READ must complete first. */
static bool take_line(struct pull_fetch *fetch) {
    if (fetch->error || fetch->ended || !conn_is_open(fetch->conn)) return false;
    if (fetch->started - fetch->arrived >= fetch->depth || fetch->started - fetch->consumed >= fetch->buffer_count)
        return false;
    struct slice input = conn_peek(fetch->conn);
    const char *end = input.len ? memchr(input.data, '\n', input.len) : NULL;
    if ((end ? (size_t)(end - input.data) + 1 : input.len) > PULL_LINE_MAX) {
        fail(fetch, -EPROTO, "the primary sent a line that is too long");
        return false;
    }
    if (!end) return false;
    char text[PULL_LINE_MAX];
    struct slice line = {text, (size_t)(end - input.data)};
    memcpy(text, input.data, line.len);
    conn_consume(fetch->conn, line.len + 1);
    if (line.len && line.data[line.len - 1] == '\r') line.len--;
    if (line.len == 0) return true;
    if (starts_with(&line, PULL_CHUNK))
        chunk_announced(fetch, line);
    else if (starts_with(&line, PULL_END))
        end_announced(fetch, line);
    else if (line.data[0] == '-')
        fail(fetch, -ECONNABORTED, "the primary says: %.*s", (int)(line.len > 100 ? 100 : line.len) - 1, line.data + 1);
    else
        fail(fetch, -EPROTO, "the primary sent an unknown message");
    return true;
}

static void acknowledge(struct pull_fetch *fetch) {
    if (fetch->acknowledged == fetch->arrived || fetch->error || !conn_is_open(fetch->conn)) return;
    char text[96], number[24];
    size_t digits = format_uint64(number, fetch->arrived);
    int len = snprintf(text, sizeof text, "*3\r\n$8\r\nREPLCONF\r\n$6\r\nPULLED\r\n$%zu\r\n%.*s\r\n", digits,
                       (int)digits, number);
    output_write(&fetch->conn->out, slice_make(text, (size_t)len));
    conn_flush(fetch->conn);
    fetch->acknowledged = fetch->arrived;
}

void pull_fetch_pump(struct pull_fetch *fetch) {
    if (!fetch->conn) return;
    while (take_line(fetch)) continue;
    acknowledge(fetch);
}

/* Runs the loop once. */
static void turn(struct pull_fetch *fetch, int64_t wait_us) {
    event_loop_turn(fetch->loop, wait_us);
    pull_fetch_pump(fetch);
    if (!fetch->conn) return;
    uint64_t now = clock_monotonic_us();
    if (!conn_is_open(fetch->conn)) {
        fail(fetch, -ECONNRESET, "the link to the primary broke");
    } else if (fetch->conn->bytes_in != fetch->heard_bytes || fetch->called_back != fetch->heard_reads) {
        fetch->heard_bytes = fetch->conn->bytes_in;
        fetch->heard_reads = fetch->called_back;
        fetch->heard_us = now;
    } else if (fetch->ended && fetch->arrived == fetch->started) {
        fetch->heard_us = now; /* everything has arrived: the primary need not send anything */
    } else if (now - fetch->heard_us > (uint64_t)repl_settings.timeout * 1000000) {
        fail(fetch, -ETIMEDOUT, "nothing was heard from the primary for %d seconds: repl-timeout",
             repl_settings.timeout);
    }
}

/* The loader has finished with `len` more bytes of the current chunk. Returns whether that completes the chunk. */
static bool bytes_used(struct pull_fetch *fetch, size_t len) {
    fetch->used += (uint32_t)len;
    if (len == 0 || fetch->used < buffer_at(fetch, fetch->consumed)->length) return false;
    fetch->used = 0;
    fetch->consumed++;
    return true;
}
static bool shown_used(struct pull_fetch *fetch) {
    size_t shown = fetch->shown;
    fetch->shown = 0;
    return bytes_used(fetch, shown);
}

/* The rest of the current chunk. 0: the end. -EAGAIN: no chunk has arrived. */
static ssize_t arrived_bytes(struct pull_fetch *fetch, const char **bytes) {
    if (fetch->error) return fetch->error;
    if (fetch->consumed == fetch->arrived) return fetch->ended && fetch->arrived == fetch->started ? 0 : -EAGAIN;
    *bytes = fetch->memory + buffer_offset(fetch, fetch->consumed) + fetch->used;
    return (ssize_t)(buffer_at(fetch, fetch->consumed)->length - fetch->used);
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
    *progress =
        pull_progress_of(running->bytes, running->keys, running->keys_total, clock_monotonic_us() - running->began_us);
    return true;
}
