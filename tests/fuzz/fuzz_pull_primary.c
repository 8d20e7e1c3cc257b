/* The primary's half of a full synchronization that replicas fetch, against any replicas. The input is a script:
 * snapshots start, fail to start, are filled, completed or corrupted; the save ends or is killed at any time; replicas
 * join, acknowledge offered chunks or any other number, become silent or leave; registrations fail; time passes.
 *
 * Checked guarantees: each replica is offered the chunks in order, with the key of its own window, and one matching
 * end; an acknowledgement is accepted only if it covers chunks that the replica was offered and has not acknowledged
 * yet, any other changes nothing; a chunk is released only after all replicas have acknowledged it; the key is revoked
 * before a replica is reported as done or failed, which happens once; a replica fails only for its own reasons or those
 * of the snapshot; the snapshot ends and its memory is freed when no replica is left.
 *
 * This file replaces the RDMA transport, the event loop, the clock, background saves and the shared memory. */
#include "formats/rdb.h"
#include "fuzz.h"
#include "lib/system/log.h"
#include "net/rdma/read.h"
#include "repl/pull/arena.h"
#include "repl/pull/primary.h"
#include "repl/pull/wire.h"
#include "repl/settings.h"
#include "server/process/child.h"
#include "server/role.h"
#include "server/server.h"
#include <errno.h>
#include <string.h>

enum { CLIENTS = 4, STEPS_MAX = 4000, SLOTS = 8, MAX_WAIT_MS = 1000, TIMEOUT_SECONDS = 10 };
enum { OUTPUT_MAX = 4096 };

struct repl_settings repl_settings = {.timeout = TIMEOUT_SECONDS};
struct pull_settings pull_settings = {.snapshot_memory = 1, .max_wait_ms = MAX_WAIT_MS};
struct rdb_settings rdb_settings;
struct server server;
static struct role the_role;
const struct role *const role = &the_role;
const int CHILD_KILL_SIGNAL = 10;

/* A replica. */
struct peer {
    struct client client;
    struct connection conn;
    char output[OUTPUT_MAX];
    struct pull_reader *reader; /* NULL: not joined */
    const struct rdma_window *window;
    uint64_t offered, offered_bytes, taken; /* chunks, their bytes */
    uint64_t joined_us, heard_us, seen_us;  /* seen: the server noticed, at a tick, that bytes had arrived */
    bool told_end;
};

/* The save fills slots; the header of a damaged one is zero. */
struct pull_arena {
    struct pull_chunk chunks[SLOTS];
    uint64_t published, released;
    bool complete;
};
static struct pull_arena arena;
static char memory[SLOTS];

static struct {
    struct fuzz_input script;
    struct peer peers[CLIENTS];
    bool held, runs, killed, stopped, holds_writes, damaged, broken_save, awaited; /* held: the arena exists */
    struct background_save *save;
    struct event_io *io;
    bool raised; /* chunks were published, or the snapshot is complete */
    struct event_timer *timer;
    uint64_t bytes, ends; /* of the snapshot; calls of ended() */
    uint32_t next_key;
    int windows;
} world;

/* --- The event loop --- */

int event_io_set(struct event_loop *loop, struct event_io *io, int fd, int mask,
                 void (*ready)(struct event_io *, int)) {
    FUZZ_CHECK(!world.io, "watched twice");
    if (fuzz_byte(&world.script) == 255) return -ENOMEM;
    io->ready = ready;
    world.io = io;
    return 0;
}
void event_io_remove(struct event_loop *loop, struct event_io *io) {
    world.io = NULL;
}
void event_timer_set(struct event_loop *loop, struct event_timer *timer, uint64_t after_us,
                     uint64_t (*fire)(struct event_timer *)) {
    timer->fire = fire;
    world.timer = timer;
}
void event_timer_cancel(struct event_loop *loop, struct event_timer *timer) {
    world.timer = NULL;
}

/* Only pull_progress_of() of the replica's half is used; the rest of it calls these functions. */
unsigned rdma_read_depth(const struct connection *conn) {
    abort();
}
int rdma_read_start(struct connection *conn, const struct rdma_window *target, size_t offset, uint64_t address,
                    uint32_t rkey, uint32_t length, rdma_read_done *done, void *context) {
    abort();
}
int event_loop_turn(struct event_loop *loop, int64_t timeout_us) {
    abort();
}

/* --- The save --- */

int background_save_start(struct background_save *save) {
    FUZZ_CHECK(!world.runs, "two saves");
    if (fuzz_byte(&world.script) == 255) return -EAGAIN;
    save->keys_total = fuzz_byte(&world.script);
    world.save = save;
    world.runs = true;
    world.killed = world.stopped = false;
    return 0;
}
enum child_kind child_kind(void) {
    return world.runs ? CHILD_REPLICATION : CHILD_NONE;
}
bool background_save_holds_writes(const struct background_save *save) {
    FUZZ_CHECK(world.held && save == world.save, "asked about no save");
    if (world.runs) world.holds_writes ^= fuzz_byte(&world.script) % 8 == 0;
    return world.runs && world.holds_writes;
}
uint64_t background_save_keys(const struct background_save *save) {
    return 0;
}
bool background_save_goes_on(const struct background_save *save) {
    return true;
}
static bool takes_part(const struct peer *peer) {
    return peer->reader != NULL;
}
static int readers(void) {
    int count = 0;
    for (int i = 0; i < CLIENTS; i++) count += takes_part(&world.peers[i]);
    return count;
}
void child_kill(void) {
    FUZZ_CHECK(world.runs && readers() == 0, "the snapshot of %d replicas is ended", readers());
    world.killed = true;
    world.save->ops->stop(world.save);
    FUZZ_CHECK(world.stopped, "the writer may wait for a slot");
}
static void save_ends(int signal) {
    if (!world.runs) return;
    world.runs = false;
    world.broken_save |= !arena.complete;
    world.save->ops->done(world.save, 0, world.killed ? CHILD_KILL_SIGNAL : signal);
}

/* --- The shared memory --- */

struct pull_arena *pull_arena_new(size_t size, const struct pull_key *key) {
    FUZZ_CHECK(!world.held, "two snapshots");
    memset(&arena, 0, sizeof arena);
    world.held = true;
    world.damaged = world.broken_save = world.raised = false;
    world.bytes = 0;
    return &arena;
}
void pull_arena_free(struct pull_arena *freed) {
    FUZZ_CHECK(world.held && freed == &arena && !world.windows && !world.runs, "freed while in use");
    world.held = false;
}
void *pull_arena_memory(const struct pull_arena *of, size_t *size) {
    *size = sizeof memory;
    return memory;
}
uint64_t pull_arena_slots(const struct pull_arena *of) {
    return SLOTS;
}
int pull_arena_fd(const struct pull_arena *of) {
    return 3;
}
uint64_t pull_arena_published(struct pull_arena *of) {
    world.raised = false;
    return arena.published;
}
bool pull_arena_chunk(const struct pull_arena *of, uint64_t number, struct pull_chunk *chunk) {
    FUZZ_CHECK(number < arena.published, "chunk %llu is not there", (unsigned long long)number);
    *chunk = arena.chunks[number % SLOTS];
    return chunk->length > 0;
}
void pull_arena_release(struct pull_arena *of, uint64_t count) {
    FUZZ_CHECK(count <= arena.published, "more than there is");
    for (int i = 0; i < CLIENTS; i++)
        FUZZ_CHECK(!takes_part(&world.peers[i]) || count <= world.peers[i].taken, "replica %d needs chunk %llu", i,
                   (unsigned long long)world.peers[i].taken);
    if (count > arena.released) arena.released = count;
}
uint64_t pull_arena_released(const struct pull_arena *of) {
    return arena.released;
}
bool pull_arena_complete(const struct pull_arena *of) {
    return arena.complete;
}
void pull_arena_sink(struct pull_arena *of, struct sink *sink, const struct pull_writer *writer) {}
void pull_arena_stop(struct pull_arena *of) {
    FUZZ_CHECK(world.held, "stopped while there is none");
    world.stopped = true;
}
int pull_arena_finish(struct pull_arena *of) {
    return 0;
}
int sink_flush(struct sink *sink) {
    return 0;
}
void sink_free(struct sink *sink) {}

static void publish(void) {
    if (!world.runs || arena.complete || arena.published - arena.released >= SLOTS) return;
    uint8_t kind = fuzz_byte(&world.script);
    struct pull_chunk *chunk = &arena.chunks[arena.published % SLOTS];
    *chunk = (struct pull_chunk){.bytes = memory + arena.published % SLOTS,
                                 .length = 1 + fuzz_u32(&world.script) % PULL_CHUNK_SIZE,
                                 .checksum = fuzz_u32(&world.script),
                                 .keys = fuzz_byte(&world.script)};
    if (kind == 255) {
        chunk->length = 0;
        world.damaged = true;
    }
    world.bytes += chunk->length;
    arena.published++;
    world.raised = true;
}

/* --- The transport --- */

const struct transport transport_rdma = {.name = "rdma"};
static struct peer *peer_of(const struct connection *conn) {
    return container_of(conn, struct peer, conn);
}
bool rdma_window_possible(const struct connection *conn) {
    return conn->transport == &transport_rdma;
}
int rdma_window_open(struct connection *conn, enum rdma_window_use use, void *base, size_t length,
                     struct rdma_window *window) {
    FUZZ_CHECK(use == RDMA_WINDOW_OFFERED && base == memory && length == sizeof memory, "opens something else");
    if (fuzz_byte(&world.script) >= 250) return fuzz_byte(&world.script) % 2 ? -EDQUOT : -ENOMEM;
    *window = (struct rdma_window){.base = base, .length = length, .rkey = ++world.next_key, .conn = conn};
    peer_of(conn)->window = window;
    world.windows++;
    return 0;
}
void rdma_window_close(struct rdma_window *window) {
    FUZZ_CHECK(window->conn && peer_of(window->conn)->window == window, "closed twice");
    peer_of(window->conn)->window = NULL;
    world.windows--;
}

static void make_space(struct output *out, size_t len) {
    struct peer *peer = peer_of(container_of(out, struct connection, out));
    FUZZ_CHECK(len <= sizeof peer->output, "%zu bytes", len);
    out->pos = peer->output;
    out->end = peer->output + sizeof peer->output - 1;
}
static const struct output_ops output_ops = {.make_space = make_space};

/* Reads a number and the text after it. */
static uint64_t number_at(const char **at, const char *next) {
    char *end;
    uint64_t number = strtoull(*at, &end, 10);
    FUZZ_CHECK(end > *at && strncmp(end, next, strlen(next)) == 0, "'%s'", *at);
    *at = end + strlen(next);
    return number;
}
/* Checks the bytes that the replica is sent. */
void client_flush_later(struct client *client) {
    struct peer *peer = peer_of(client->conn);
    *peer->conn.out.pos = 0;
    for (const char *at = peer->output; *at;) {
        if (strncmp(at, PULL_CHUNK, strlen(PULL_CHUNK)) == 0) {
            at += strlen(PULL_CHUNK);
            uint64_t number = number_at(&at, " ");
            FUZZ_CHECK(number == peer->offered && number < arena.published, "chunk %llu", (unsigned long long)number);
            FUZZ_CHECK(number >= arena.released && !peer->told_end, "chunk %llu is gone", (unsigned long long)number);
            const struct pull_chunk *chunk = &arena.chunks[number % SLOTS];
            FUZZ_CHECK(number_at(&at, " ") == (uintptr_t)chunk->bytes, "address");
            FUZZ_CHECK(number_at(&at, " ") == chunk->length, "length");
            FUZZ_CHECK(peer->window && number_at(&at, " ") == peer->window->rkey, "key");
            FUZZ_CHECK(number_at(&at, " ") == chunk->checksum, "checksum");
            FUZZ_CHECK(number_at(&at, "\r\n") == chunk->keys, "keys");
            peer->offered++;
            peer->offered_bytes += chunk->length;
        } else if (strncmp(at, PULL_END, strlen(PULL_END)) == 0) {
            at += strlen(PULL_END);
            FUZZ_CHECK(!peer->told_end && arena.complete, "an end too many");
            FUZZ_CHECK(number_at(&at, " ") == peer->offered && peer->offered == arena.published, "chunks");
            FUZZ_CHECK(number_at(&at, "\r\n") == peer->offered_bytes && peer->offered_bytes == world.bytes, "bytes");
            peer->told_end = true;
        } else if (*at == '-' || *at == '$') {
            at = strchr(at, '\n');
            FUZZ_CHECK(at, "a line without end");
            at++;
        } else {
            FUZZ_CHECK(*at == '\n', "'%s'", at);
            at++;
        }
    }
    peer->conn.out.pos = peer->output;
}
const char *client_log_text(struct client *client) {
    return "";
}

/* --- The owner --- */

static void leaves(struct peer *peer) {
    FUZZ_CHECK(takes_part(peer) && !peer->window, "the key of a replica that is done opens something");
    peer->reader = NULL;
}
static void delivered(void *owner) {
    struct peer *peer = owner;
    leaves(peer);
    FUZZ_CHECK(peer->told_end && peer->taken == arena.published, "%llu of %llu chunks are delivered",
               (unsigned long long)peer->taken, (unsigned long long)arena.published);
}
static void held_writes(void *owner, int64_t waited_ms) {
    const struct peer *peer = owner;
    FUZZ_CHECK(takes_part(peer) && world.holds_writes && waited_ms >= MAX_WAIT_MS, "it holds no writes");
}
static void failed(void *owner, const char *reason) {
    struct peer *peer = owner;
    leaves(peer);
    bool slow = fuzz_now_us - peer->joined_us > MAX_WAIT_MS * 1000 && peer->taken < arena.published;
    bool silent = fuzz_now_us - peer->heard_us > (uint64_t)TIMEOUT_SECONDS * 1000000;
    FUZZ_CHECK(slow || silent || world.damaged || world.broken_save, "failed: %s", reason);
    FUZZ_CHECK(!strstr(reason, "too slow") || slow, "it is not slow");
    FUZZ_CHECK(!strstr(reason, "repl-timeout") || silent, "it is not silent");
}
static void ended(void) {
    FUZZ_CHECK(readers() == 0 && !world.runs && !world.windows && !world.io && !world.timer, "something is held");
    world.ends++;
}
static bool awaited(void) {
    return world.awaited;
}
static const struct pull_events events = {
    .delivered = delivered, .held_writes = held_writes, .failed = failed, .ended = ended, .awaited = awaited};

static void join(struct peer *peer) {
    const char *error = NULL;
    if (takes_part(peer) || !pull_joinable(false)) return;
    FUZZ_CHECK(arena.released == 0, "the first chunks are gone");
    memset(peer, 0, sizeof *peer);
    peer->conn = (struct connection){.out.ops = &output_ops, .transport = &transport_rdma, .state = CONN_OPEN};
    make_space(&peer->conn.out, 0);
    peer->client.conn = &peer->conn;
    peer->joined_us = peer->heard_us = fuzz_now_us;
    FUZZ_CHECK(pull_possible(&peer->client), "RDMA");
    struct pull_reader *reader = pull_join(&peer->client, peer, &error);
    FUZZ_CHECK(reader || (error && *error), "no reason");
    if (!reader) return;
    peer->reader = reader;
    pull_begin(reader);
}

static void start(void) {
    bool was_held = world.held;
    if (world.runs && !was_held) return;
    int result = pull_start(&events, &(struct save_content){0}, false);
    FUZZ_CHECK(result != 0 || !was_held, "two snapshots");
    FUZZ_CHECK(result == 0 || world.held == was_held, "the memory is left");
    if (result < 0) return;
    uint8_t who = fuzz_byte(&world.script);
    for (int i = 0; i < CLIENTS; i++)
        if (who & 1 << i) join(&world.peers[i]);
    if (readers() == 0) join(&world.peers[0]); /* a snapshot is started for a replica */
}

static int64_t any_number(const struct peer *peer) {
    const uint64_t numbers[] = {0,         (uint64_t)-1,    peer->taken,     peer->offered + 1, 1ULL << 63,
                                INT64_MAX, arena.published, peer->taken + 1, peer->offered};
    uint8_t kind = fuzz_byte(&world.script) % 12;
    return (int64_t)(kind < 9 ? numbers[kind] : (uint64_t)fuzz_u32(&world.script) << (kind - 9) * 16);
}
static void acknowledge(struct peer *peer, int64_t count) {
    if (!takes_part(peer)) return;
    uint64_t before = peer->taken;
    bool right = count > 0 && (uint64_t)count > before && (uint64_t)count <= peer->offered;
    peer->conn.bytes_in += 10;
    peer->heard_us = fuzz_now_us;
    if (right) peer->taken = (uint64_t)count;
    bool accepted = pull_taken(peer->reader, count);
    FUZZ_CHECK(accepted == right, "%lld after %llu of %llu", (long long)count, (unsigned long long)before,
               (unsigned long long)peer->offered);
    if (accepted) return;
    struct pull_reader *reader = peer->reader; /* its connection is closed */
    peer->reader = NULL;
    pull_leave(reader);
    FUZZ_CHECK(!peer->window, "the key is left");
}

static void tick(uint64_t us) {
    fuzz_now_us += us;
    if (world.timer && world.timer->fire(world.timer) == 0) world.timer = NULL;
}

static void step(void) {
    struct fuzz_input *in = &world.script;
    uint8_t op = fuzz_byte(in);
    struct peer *peer = &world.peers[op / 16 % CLIENTS];
    switch (op % 16) {
    case 0: start(); break;
    case 1:
    case 2:
    case 3: publish(); break;
    case 4:
        if (!world.runs || arena.published == 0) break;
        arena.complete = world.raised = true;
        break;
    case 5:
    case 6:
        if (world.io && world.raised) world.io->ready(world.io, EVENT_READ);
        break;
    case 7: join(peer); break;
    case 8:
    case 9: acknowledge(peer, (int64_t)peer->taken + 1 + op / 64 % 4); break;
    case 10: acknowledge(peer, (int64_t)peer->offered); break;
    case 11: acknowledge(peer, any_number(peer)); break;
    case 12: tick((uint64_t)fuzz_byte(in) * 5000); break;
    case 13:
        if (op >= 128) tick((uint64_t)(TIMEOUT_SECONDS / 2) * 1000000);
        for (int i = 0; i < CLIENTS; i++) { /* keepalive */
            if (!takes_part(&world.peers[i]) || op & 16 << i % 2) continue;
            world.peers[i].conn.bytes_in++;
            world.peers[i].heard_us = fuzz_now_us;
        }
        break;
    case 14: {
        if (!takes_part(peer)) break;
        struct pull_reader *reader = peer->reader;
        peer->reader = NULL;
        pull_leave(reader);
        break;
    }
    case 15:
        if (op == 15)
            save_ends(9);
        else if (op == 31)
            world.awaited = !world.awaited;
        else if (arena.complete || world.killed)
            save_ends(0);
    }
    struct pull_status status;
    pull_read_status(&status);
    FUZZ_CHECK(status.readers == (unsigned)readers(), "%u replicas are counted", status.readers);
    FUZZ_CHECK(status.percent >= 0 && status.percent <= 100 && status.seconds_left >= -1, "progress");
    FUZZ_CHECK(arena.published - arena.released <= SLOTS, "more than the memory holds");
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    log_level = LOG_LEVEL_NOTHING;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memset(&world, 0, sizeof world);
    world.script = (struct fuzz_input){data, data + size};
    fuzz_now_us = 1000000;
    for (int i = 0; world.script.at < world.script.end && i < STEPS_MAX; i++) step();
    world.script.at = world.script.end;
    for (int i = 0; i < CLIENTS; i++) {
        struct pull_reader *reader = world.peers[i].reader;
        world.peers[i].reader = NULL;
        pull_leave(reader);
    }
    save_ends(0);
    tick(1000000);
    FUZZ_CHECK(!world.held && !pull_active() && !world.windows, "the snapshot is left");
    return 0;
}
