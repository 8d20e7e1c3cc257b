/* The replica's half of a full synchronization that the replica fetches, against any primary. The input is a script:
 * lines of the primary, valid or forged, in pieces of any length; reads complete, fail, cannot start or never end; the
 * link breaks; time passes; the loader consumes the bytes in steps of any size.
 *
 * Checked guarantees: reads stay within the registered buffers and never overwrite bytes that the loader has not used
 * yet; the loader gets the bytes of the chunks in order; acknowledgements increase and cover only chunks that have
 * arrived; a forged line never leads to success, and only a fault leads to failure; bytes after the end of the snapshot
 * stay in the connection; memory is limited and freed.
 *
 * This file replaces the RDMA transport, the event loop and the clock. */
#include "fuzz.h"
#include "lib/hash/crc32c.h"
#include "lib/system/log.h"
#include "net/rdma/read.h"
#include "repl/pull/replica.h"
#include "repl/pull/wire.h"
#include "repl/settings.h"
#include <errno.h>
#include <stdarg.h>
#include <string.h>

enum {
    DEPTH = 5,
    STEPS_MAX = 3000,
    INPUT_MAX = 64 * 1024,
    LENGTH_MAX = 64 * 1024,
    ORDINARY_LENGTH = 300,
    TIMEOUT_SECONDS = 60
};

struct repl_settings repl_settings = {.timeout = TIMEOUT_SECONDS};

/* A read, from its start until the loader has used its bytes. */
struct read {
    size_t offset;
    uint64_t address;
    uint32_t length;
    rdma_read_done *done;
    void *context;
};

static struct {
    struct fuzz_input script;
    struct connection conn;
    char input[INPUT_MAX], output[OUTPUT_RESERVE_MAX];
    size_t input_begin, input_end, delivered; /* bytes of input[]: consumed; written; shown to the replica */
    const struct rdma_window *window;
    struct read reads[PULL_FETCH_MEMORY / PULL_WIRE_CHUNK_MIN + 1]; /* a ring */
    uint64_t started, completed, loaded; /* numbers of reads. Failed reads complete last and are never loaded */
    uint64_t stored, acknowledged;       /* reads whose bytes arrived with the right checksum */
    uint32_t used, shown;                /* bytes of read `loaded`: given to the loader; shown to it */
    uint32_t reading;                    /* maximum bytes that the loader's current call copies */
    uint64_t announced, announced_bytes; /* by well-formed lines */
    uint32_t chunk_size;
    size_t rest; /* input[] from here on follows the end of the snapshot */
    bool ended, forged, unknown, faulty, holds_back;
    int read_error;
    bool takes;        /* the loader never waits: pull_fetch_take() */
    uint64_t notified; /* of reads that have ended */
    uint64_t passed_us;
    struct pull_fetch *fetch;
    int steps;
} world;

static char byte_at(uint64_t address, uint64_t i) {
    return (char)((address + i) * 131 + (i >> 8));
}
static struct read *read_at(uint64_t number) {
    return &world.reads[number % (sizeof world.reads / sizeof *world.reads)];
}

/* --- The transport --- */

int rdma_window_open(struct connection *conn, enum rdma_window_use use, void *base, size_t length,
                     struct rdma_window *window) {
    FUZZ_CHECK(use == RDMA_WINDOW_TARGET && length <= PULL_FETCH_MEMORY && !world.window, "%zu bytes", length);
    if (fuzz_byte(&world.script) == 255) return -EDQUOT;
    *window = (struct rdma_window){.base = base, .length = length, .use = use, .conn = conn};
    world.window = window;
    return 0;
}
void rdma_window_close(struct rdma_window *window) {
    if (!window->base) return; /* never opened */
    FUZZ_CHECK(world.window == window, "closed twice");
    FUZZ_CHECK(world.completed == world.started, "the memory is given back while reads write to it");
    world.window = NULL;
}
unsigned rdma_read_depth(const struct connection *conn) {
    return DEPTH;
}
int rdma_read_start(struct connection *conn, const struct rdma_window *target, size_t offset, uint64_t address,
                    uint32_t rkey, uint32_t length, rdma_read_done *done, void *context) {
    FUZZ_CHECK(conn == &world.conn && target == world.window, "another connection or window");
    FUZZ_CHECK(length > 0 && length <= RDMA_READ_LENGTH_MAX, "%u bytes", length);
    FUZZ_CHECK(offset <= target->length && length <= target->length - offset, "%u bytes at %zu", length, offset);
    FUZZ_CHECK(world.started - world.completed < DEPTH, "too many reads are in flight");
    uint64_t first = world.loaded; /* a chunk that the current call copies completely is used */
    if (world.reading && world.reading >= read_at(first)->length - world.used) first++;
    for (uint64_t i = first; i < world.started; i++) {
        const struct read *other = read_at(i);
        FUZZ_CHECK(offset >= other->offset + other->length || other->offset >= offset + length,
                   "the read overwrites chunk %llu", (unsigned long long)i);
    }
    if (world.read_error) {
        world.faulty = true;
        return world.read_error;
    }
    *read_at(world.started++) = (struct read){offset, address, length, done, context};
    return 0;
}

static void complete_read(int64_t result) {
    if (world.completed == world.started) return;
    const struct read *read = read_at(world.completed++);
    char *to = (char *)world.window->base + read->offset;
    for (uint32_t i = 0; i < read->length; i++) to[i] = byte_at(read->address, i);
    if (result >= 0) world.stored++;
    read->done(&world.conn, read->context, result < 0 ? result : (int64_t)read->length);
}
static void break_link(int error) {
    if (world.conn.state != CONN_OPEN) return;
    world.conn.state = CONN_ENDED;
    world.faulty = true;
    while (world.completed < world.started) complete_read(error);
}

static void make_space(struct output *out, size_t len) {
    FUZZ_CHECK(len <= sizeof world.output, "%zu bytes", len);
    out->pos = world.output;
    out->end = world.output + sizeof world.output;
}
static const struct output_ops output_ops = {.make_space = make_space};

/* Checks the bytes that the replica has written. */
static void flush(struct connection *conn) {
    static const char command[] = "*3\r\n$8\r\nREPLCONF\r\n$6\r\nPULLED\r\n$";
    FUZZ_CHECK(conn->state == CONN_OPEN, "sends to a broken link");
    *conn->out.pos = 0;
    for (const char *at = world.output; at < conn->out.pos;) {
        if (*at == '\n') { /* alive */
            at++;
            continue;
        }
        FUZZ_CHECK(strncmp(at, command, sizeof command - 1) == 0, "%.40s", at);
        char *end;
        unsigned long digits = strtoul(at + sizeof command - 1, &end, 10);
        unsigned long long number = strtoull(end + 2, &end, 10);
        FUZZ_CHECK(digits > 0 && strncmp(end, "\r\n", 2) == 0, "%s", at);
        FUZZ_CHECK(number > world.acknowledged && number <= world.stored, "acknowledges %llu, %llu have arrived",
                   number, (unsigned long long)world.stored);
        world.acknowledged = number;
        at = end + 2;
    }
    conn->out.pos = world.output;
}
static void show_input(size_t until) {
    world.conn.bytes_in += until - world.delivered;
    world.delivered = until;
    world.conn.in = world.input + world.input_begin;
    world.conn.in_len = world.delivered - world.input_begin;
}
static void consume(struct connection *conn, size_t len) {
    FUZZ_CHECK(len <= conn->in_len, "%zu bytes of %zu", len, conn->in_len);
    world.input_begin += len;
    show_input(world.delivered);
}
const struct transport transport_rdma = {.name = "rdma", .consume = consume, .flush = flush};

/* --- The primary --- */

static void say(const char *bytes, size_t len) {
    if (len > INPUT_MAX - world.input_end) return;
    memcpy(world.input + world.input_end, bytes, len);
    world.input_end += len;
    if (!world.holds_back) show_input(world.input_end);
}
static void say_line(bool forged, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say_line(bool forged, const char *format, ...) {
    char line[PULL_LINE_MAX * 2];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (len + 2 > (int)(INPUT_MAX - world.input_end)) return;
    if (!world.ended) world.forged |= forged;
    say(line, (size_t)len);
}

/* A number other than the correct one, as text. */
static const char *wrong_number(uint64_t right, char text[static 32]) {
    static const char *const odd[] = {"",   "-1", "x", "18446744073709551616", "99999999999999999999999", "1 1", " 0",
                                      "1.", "0x", "+1"};
    uint8_t kind = fuzz_byte(&world.script);
    if (kind < 128) return odd[kind % (sizeof odd / sizeof *odd)];
    uint64_t number = kind < 160   ? right + 1
                      : kind < 192 ? right - 1
                                   : (uint64_t)fuzz_u32(&world.script) << (kind % 33);
    snprintf(text, 32, "%llu", (unsigned long long)(number == right ? right + 1 : number));
    return text;
}

static void announce_chunk(bool forged) {
    struct fuzz_input *in = &world.script;
    uint64_t address = fuzz_u32(in);
    uint32_t longest = world.chunk_size < LENGTH_MAX ? world.chunk_size : LENGTH_MAX;
    uint32_t length = fuzz_byte(in) < 4 ? longest : 1 + fuzz_u32(in) % ORDINARY_LENGTH;
    static char bytes[LENGTH_MAX];
    for (uint32_t i = 0; i < length; i++) bytes[i] = byte_at(address, i);
    uint32_t crc = crc32c(0, bytes, length);
    char fields[6][32], text[32];
    uint64_t right[6] = {world.announced, address, length, fuzz_byte(in), crc, fuzz_byte(in)};
    for (int i = 0; i < 6; i++) snprintf(fields[i], sizeof *fields, "%llu", (unsigned long long)right[i]);
    if (forged) {
        /* Any address, key and number of keys may be valid: only their form can be wrong. */
        int field = fuzz_byte(in) % 6;
        const char *wrong;
        if (field == 0 || field == 4)
            wrong = wrong_number(right[field], text);
        else
            wrong = field == 2 ? (fuzz_byte(in) % 2 ? "0" : "8388609") : field == 3 ? "4294967296" : "-1";
        snprintf(fields[field], sizeof *fields, "%s", wrong);
    }
    if (!world.ended && INPUT_MAX - world.input_end > PULL_LINE_MAX) {
        world.announced++;
        world.announced_bytes += length;
    }
    say_line(forged, PULL_CHUNK "%s %s %s %s %s %s\r\n", fields[0], fields[1], fields[2], fields[3], fields[4],
             fields[5]);
}
static void announce_end(bool forged) {
    char text[32], other[32];
    snprintf(other, sizeof other, "%llu", (unsigned long long)world.announced);
    if (!forged) {
        say_line(false, PULL_END "%s %llu\r\n", other, (unsigned long long)world.announced_bytes);
        if (!world.ended) world.rest = world.input_end;
        world.ended = true;
    } else if (fuzz_byte(&world.script) % 2) {
        say_line(true, PULL_END "%s %s\r\n", other, wrong_number(world.announced_bytes, text));
    } else {
        say_line(true, PULL_END "%s %llu\r\n", wrong_number(world.announced, text),
                 (unsigned long long)world.announced_bytes);
    }
}

static void let_pass(uint64_t us) {
    fuzz_now_us += us;
    world.passed_us += us;
    if (world.passed_us > (uint64_t)TIMEOUT_SECONDS * 1000000) world.faulty = true;
}

static void step(void) {
    struct fuzz_input *in = &world.script;
    if (in->at == in->end || world.steps++ > STEPS_MAX || world.input_end + PULL_LINE_MAX > INPUT_MAX) {
        show_input(world.input_end);
        break_link(-ECONNRESET);
        fuzz_now_us += 1000000;
        return;
    }
    switch (fuzz_byte(in) % 18) {
    case 0:
    case 1:
    case 2: announce_chunk(false); break;
    case 3: announce_end(false); break;
    case 4: say("\r\n", 2); break;
    case 5: announce_chunk(true); break;
    case 6: announce_end(true); break;
    case 7:
        say_line(true, "-%.*s\r\n", fuzz_byte(in) % 100, "ERR the snapshot failed\1\2\xff%s%n the reason is long");
        break;
    case 8: { /* any bytes: they may be valid by chance */
        struct slice bytes = fuzz_take(in, fuzz_byte(in));
        if (!world.ended) world.unknown = true;
        say(bytes.data, bytes.len);
        break;
    }
    case 9: say_line(true, "%s%0*d", fuzz_byte(in) % 2 ? PULL_CHUNK : "", PULL_LINE_MAX + 1, 0); break;
    case 10:
    case 11:
    case 12: complete_read(0); break;
    case 13: /* a read that fails ends the connection */
        if (world.completed < world.started) break_link(fuzz_byte(in) % 2 ? -EACCES : -ECONNRESET);
        break;
    case 14:
        world.holds_back = true;
        if (world.delivered < world.input_end)
            show_input(world.delivered + 1 + fuzz_byte(in) % (world.input_end - world.delivered));
        break;
    case 15:
        world.holds_back = false;
        show_input(world.input_end);
        break;
    case 16: let_pass((uint64_t)fuzz_byte(in) * 50000); break;
    case 17:
        switch (fuzz_byte(in) % 8) {
        case 0: break_link(-ECONNRESET); break;
        case 1: world.read_error = -ENOTCONN; break;
        case 2: world.read_error = -EINVAL; break;
        case 4: let_pass((uint64_t)(TIMEOUT_SECONDS + 1) * 1000000); break;
        default: pull_fetch_pump(world.fetch);
        }
    }
}
int event_loop_turn(struct event_loop *event_loop, int64_t timeout_us) {
    if (timeout_us || fuzz_byte(&world.script) % 2) step();
    return 0;
}

/* --- The loader --- */

static void check_bytes(const char *bytes, size_t len) {
    FUZZ_CHECK(world.loaded < world.stored, "bytes of a chunk that has not arrived");
    const struct read *read = read_at(world.loaded);
    FUZZ_CHECK(len > 0 && len <= read->length - world.used, "%zu bytes", len);
    for (size_t i = 0; i < len; i++)
        FUZZ_CHECK(bytes[i] == byte_at(read->address, world.used + i), "byte %zu of chunk %llu", world.used + i,
                   (unsigned long long)world.loaded);
}
static void have_used(uint32_t len) {
    world.used += len;
    if (len == 0 || world.used < read_at(world.loaded)->length) return;
    world.used = 0;
    world.loaded++;
}

static void arrived(void) {
    world.notified++;
}

/* Returns 0 at the end, otherwise an error. */
static ssize_t load(void) {
    char bytes[1000];
    const char *at;
    struct pull_progress progress;
    for (;;) {
        ssize_t got;
        uint8_t size = world.takes ? 0 : fuzz_byte(&world.script);
        uint32_t used = world.shown; /* the next call may reuse their memory */
        world.shown = 0;
        have_used(used);
        if (world.takes) {
            got = pull_fetch_take(world.fetch, &at);
            if (got == -EAGAIN && world.conn.state != CONN_OPEN) return -ECONNRESET; /* the owner gets `closed` */
            if (got == -EAGAIN) {
                step();
                continue;
            }
            if (got > 0) world.shown = (uint32_t)got;
        } else if (size % 4 == 0) {
            got = pull_fetch_show(world.fetch, &at);
            if (got > 0) world.shown = (uint32_t)got;
        } else {
            world.reading = 1 + (uint32_t)size * 3;
            got = pull_fetch_read(world.fetch, bytes, world.reading);
            world.reading = 0;
            at = bytes;
        }
        FUZZ_CHECK(pull_fetch_progress(&progress), "no progress");
        FUZZ_CHECK(progress.percent >= 0 && progress.percent <= 100 && progress.seconds_left >= -1, "progress");
        if (got <= 0) return got;
        check_bytes(at, (size_t)got);
        if (!world.shown) have_used((uint32_t)got);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    log_level = LOG_LEVEL_NOTHING;
    return 0;
}

static struct pull_fetch *begin(void) {
    static const uint32_t sizes[] = {PULL_WIRE_CHUNK_MIN, 8192, 65536, 1 << 20, PULL_WIRE_CHUNK_MAX};
    struct fuzz_input *in = &world.script;
    char header[PULL_LINE_MAX];
    const char *error = NULL;
    uint8_t kind = fuzz_byte(in);
    world.chunk_size = sizes[kind % 5];
    int len = snprintf(header, sizeof header, PULL_HEADER "%u %u", world.chunk_size, fuzz_byte(in));
    struct slice line = {header, (size_t)len};
    if (kind >= 240) {
        line = fuzz_take(in, fuzz_byte(in));
        world.unknown = true;
    }
    struct pull_fetch *fetch = pull_fetch_new(&world.conn, line, &error);
    FUZZ_CHECK(fetch || (error && *error), "no reason");
    FUZZ_CHECK(!fetch == !world.window, "the window is left");
    return fetch;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memset(&world, 0, sizeof world);
    world.script = (struct fuzz_input){data, data + size};
    world.conn = (struct connection){.out.ops = &output_ops, .transport = &transport_rdma, .state = CONN_OPEN};
    make_space(&world.conn.out, 0);
    fuzz_now_us = 1000000;
    world.fetch = begin();
    if (!world.fetch) return 0;
    world.takes = fuzz_byte(&world.script) % 2;
    if (world.takes) pull_fetch_notify(world.fetch, arrived);
    ssize_t result = load();
    if (result == 0) {
        FUZZ_CHECK(!world.forged || world.unknown, "a forged line was accepted");
        FUZZ_CHECK(!pull_fetch_error(world.fetch), "%s", pull_fetch_error(world.fetch));
        FUZZ_CHECK(world.loaded == world.started && world.stored == world.started, "chunks are missing");
        if (!world.unknown) {
            FUZZ_CHECK(world.ended && world.loaded == world.announced, "ended early");
            FUZZ_CHECK(world.input_begin == world.rest, "bytes behind the end are gone");
        }
    } else {
        const char *reason = pull_fetch_error(world.fetch);
        FUZZ_CHECK((reason && *reason) || (world.takes && world.faulty), "no reason");
        FUZZ_CHECK(world.forged || world.unknown || world.faulty, "failed: %s", reason);
        char byte;
        FUZZ_CHECK(!reason || pull_fetch_read(world.fetch, &byte, 1) == result, "another error");
    }
    FUZZ_CHECK(!world.takes || world.notified == world.completed, "%llu notifications of %llu reads",
               (unsigned long long)world.notified, (unsigned long long)world.completed);
    pull_fetch_free(world.fetch);
    break_link(-ECANCELED);
    FUZZ_CHECK(!world.window, "the window is left");
    return 0;
}
