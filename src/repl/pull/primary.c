/* primary.c: see primary.h. */
#include "repl/pull/primary.h"
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/rdma/read.h"
#include "repl/pull/arena.h"
#include "repl/pull/reads.h"
#include "repl/pull/replica.h"
#include "repl/pull/wire.h"
#include "repl/settings.h"
#include "server/server.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    TICK_US = 100 * 1000,
    ALIVE_US = 1000 * 1000,  /* between two keepalives */
    REPORT_US = 5000 * 1000, /* between two lines of progress in the log */
    SPARE_PART = 4           /* no chunk is released while more than 1/SPARE_PART of the slots are free */
};

struct pull_reader {
    struct list_link link;
    struct client *client;
    void *owner;
    struct rdma_window window;
    uint64_t announced, taken; /* chunks */
    uint64_t taken_bytes, taken_keys;
    uint64_t began_us, sent_us;
    uint64_t heard_bytes, heard_us; /* the connection's bytes_in, and the time when tick() last saw it change */
    uint64_t waited_us;             /* time for which others waited for this replica */
    bool begun, end_sent;
};

static struct {
    struct pull_arena *arena; /* NULL: no snapshot is held */
    const struct pull_events *events;
    struct event_io filled;
    struct event_timer tick;
    struct list readers;
    uint64_t published, bytes, keys; /* chunks that were published so far, and their contents */
    uint64_t *ends, *end_keys;       /* by slot: bytes and keys up to the end of its chunk */
    bool sealed, complete, saving, damaged;
    struct pull_key key; /* sealed */
    uint64_t ticked_us, reported_us;
    uint64_t snapshots, delivered, dropped_slow;
} pull = {.filled.fd = -1};

static struct background_save save;

bool pull_possible(const struct client *client) {
    return client->conn && rdma_window_possible(client->conn) && conn_is_open(client->conn);
}
bool pull_needs_seal(const struct client *client) {
    return strcmp(conn_transport_name(client->conn), "rdma-tls") == 0;
}
bool pull_active(void) {
    return pull.arena != NULL;
}
bool pull_joinable(bool needs_seal) {
    return pull.arena && pull.sealed == needs_seal && !pull.damaged && (pull.saving || pull.complete) &&
           pull_arena_released(pull.arena) == 0;
}

/* --- On the thread --- */

static bool writer_goes_on(void *context) {
    return background_save_goes_on(&save);
}
static bool writer_ends; /* all keys are written; of the writer */
static uint64_t writer_keys(void *context) {
    return writer_ends ? save.keys_total : background_save_keys(&save);
}

static int pull_save_begin(struct background_save *of, struct sink *sink) {
    static const struct pull_writer writer = {.goes_on = writer_goes_on, .keys = writer_keys};
    pull_arena_sink(pull.arena, sink, &writer);
    return 0;
}

static int pull_save_end(struct background_save *of, struct sink *sink, int error) {
    writer_ends = !error;
    if (!error) error = sink_flush(sink);
    sink_free(sink);
    if (!error) error = pull_arena_finish(pull.arena);
    if (error && error != -ECANCELED)
        log_warning("Write error while producing the snapshot for replicas: %s", strerror(-error));
    return error;
}

/* --- Readers --- */

/* Sends nothing after +END: the stream follows there, and its offset counts every byte. */
static void reader_send(struct pull_reader *reader, const char *text, int len) {
    if (reader->end_sent) return;
    output_write(&reader->client->conn->out, slice_make(text, (size_t)len));
    client_flush_later(reader->client);
    reader->sent_us = clock_monotonic_us();
}

static void reader_remove(struct pull_reader *reader) {
    rdma_window_close(&reader->window);
    list_remove(&pull.readers, &reader->link);
    mem_free(reader);
}

/* Unmapping takes a millisecond for 3 MiB, so a background thread does it. */
static void free_arena(void *arena) {
    pull_arena_free(arena);
}

/* Ends the snapshot when no reader is left. */
static void end_if_unused(void) {
    if (!pull.arena || pull.readers.len) return;
    if (pull.saving) {
        if (!pull.complete) child_kill();
        return; /* pull_save_done() calls this again */
    }
    event_io_remove(server.loop, &pull.filled);
    event_timer_cancel(server.loop, &pull.tick);
    background_submit(BACKGROUND_LAZY_FREE, free_arena, pull.arena);
    pull.arena = NULL;
    pull_key_forget(&pull.key);
    mem_free(pull.ends);
    mem_free(pull.end_keys);
    pull.ends = pull.end_keys = NULL;
    pull.events->ended();
}

static void reader_fail(struct pull_reader *reader, const char *reason) {
    void *owner = reader->owner;
    char text[PULL_LINE_MAX];
    int len = snprintf(text, sizeof text, "-ERR %s\r\n", reason);
    reader_send(reader, text, len);
    reader_remove(reader);
    pull.events->failed(owner, reason);
}
static void fail_all(const char *reason) {
    while (pull.readers.len) reader_fail(container_of(list_first(&pull.readers), struct pull_reader, link), reason);
}

/* Sends the descriptors that the replica does not have yet. */
static void reader_announce(struct pull_reader *reader) {
    char text[PULL_LINE_MAX];
    if (!reader->begun) return;
    for (; reader->announced < pull.published; reader->announced++) {
        struct pull_chunk chunk;
        if (!pull_arena_chunk(pull.arena, reader->announced, &chunk)) {
            pull.damaged = true; /* tick() fails all readers */
            return;
        }
        int len = snprintf(text, sizeof text, PULL_CHUNK "%llu %llu %u %u %u %llu\r\n",
                           (unsigned long long)reader->announced, (unsigned long long)(uintptr_t)chunk.bytes,
                           chunk.length, reader->window.rkey, chunk.checksum, (unsigned long long)chunk.keys);
        reader_send(reader, text, len);
    }
    if (!pull.complete || reader->end_sent) return;
    int len = snprintf(text, sizeof text, PULL_END "%llu %llu\r\n", (unsigned long long)pull.published,
                       (unsigned long long)pull.bytes);
    reader_send(reader, text, len);
    reader->end_sent = true;
}

static bool reader_finish(struct pull_reader *reader) {
    if (!reader->end_sent || reader->taken != pull.published) return false;
    void *owner = reader->owner;
    reader_remove(reader);
    pull.delivered++;
    pull.events->delivered(owner);
    return true;
}

static struct pull_reader *slowest_reader(void) {
    struct pull_reader *slowest = NULL;
    list_each_entry(&pull.readers, struct pull_reader, link, reader)
        if (!slowest || reader->taken < slowest->taken) slowest = reader;
    return slowest;
}

/* Lets the writer reuse chunks that all replicas have. After the first release no replica can join, so it is postponed
 * while there are enough free chunks. */
static void release_chunks(void) {
    const struct pull_reader *slowest = slowest_reader();
    if (!slowest) return;
    uint64_t slots = pull_arena_slots(pull.arena);
    if (pull_arena_released(pull.arena) == 0 && (pull.complete || pull.published + slots / SPARE_PART < slots)) return;
    pull_arena_release(pull.arena, slowest->taken);
}

/* Chunks were published, or the snapshot is complete. */
static void arena_advanced(void) {
    bool complete = pull_arena_complete(pull.arena);
    uint64_t published = pull_arena_published(pull.arena), slots = pull_arena_slots(pull.arena);
    for (; pull.published < published; pull.published++) {
        struct pull_chunk chunk;
        if (published - pull_arena_released(pull.arena) > slots ||
            !pull_arena_chunk(pull.arena, pull.published, &chunk)) {
            pull.damaged = true;
            return;
        }
        pull.bytes += chunk.length;
        pull.keys = chunk.keys;
        pull.ends[pull.published % slots] = pull.bytes;
        pull.end_keys[pull.published % slots] = pull.keys;
    }
    pull.complete = complete;
    release_chunks();
    list_each_entry(&pull.readers, struct pull_reader, link, reader) {
        reader_announce(reader);
        reader_finish(reader); /* an empty snapshot, or all chunks were taken before its end was known */
    }
    end_if_unused();
}
static void filled_ready(struct event_io *io, int mask) {
    if (pull.arena && !pull.damaged) arena_advanced();
}

/* Whether others wait because the slowest replica has not fetched its chunks: a replica that takes part and has
 * everything so far while the writer waits for free chunks, clients whose writes are paused until the writer goes on,
 * or a replica that needs the next snapshot. */
static bool others_wait_for(const struct pull_reader *slowest) {
    if (pull.complete) return pull.events->awaited();
    if (pull.published - pull_arena_released(pull.arena) < pull_arena_slots(pull.arena)) return false;
    if (background_save_holds_writes(&save)) return true;
    list_each_entry(&pull.readers, const struct pull_reader, link, reader)
        if (reader != slowest && reader->taken == pull.published) return true;
    return pull.events->awaited();
}

static void slowest_add_wait(uint64_t elapsed_us) {
    struct pull_reader *slowest = slowest_reader();
    if (!slowest || slowest->taken == pull.published || !others_wait_for(slowest)) return;
    slowest->waited_us += elapsed_us;
    if (slowest->waited_us <= (uint64_t)pull_settings.max_wait_ms * 1000) return;
    pull.dropped_slow++;
    if (!pull.complete && background_save_holds_writes(&save))
        pull.events->held_writes(slowest->owner, (int64_t)(slowest->waited_us / 1000));
    log_warning("Replica %s kept others waiting for more than %d ms in a pulled synchronization: dropping it",
                client_log_text(slowest->client), pull_settings.max_wait_ms);
    reader_fail(slowest, "the replica is too slow for the others: rdma-replication-max-wait");
    release_chunks();
}

static struct pull_progress reader_progress(const struct pull_reader *reader) {
    return pull_progress_of(reader->taken_bytes, reader->taken_keys, save.keys_total,
                            clock_monotonic_us() - reader->began_us);
}

static void report(void) {
    const struct pull_reader *slowest = slowest_reader();
    if (!slowest) return;
    struct pull_progress progress = reader_progress(slowest);
    log_notice("Pulled synchronization: %zu replicas, the slowest has %.1f%% of the keys, %.1f MB/s, %lld seconds left",
               pull.readers.len, progress.percent, progress.bytes_per_second / 1e6, (long long)progress.seconds_left);
}

static uint64_t tick(struct event_timer *timer) {
    uint64_t now = clock_monotonic_us(), elapsed = now - pull.ticked_us;
    pull.ticked_us = now;
    if (pull.damaged) fail_all("the snapshot is damaged");
    slowest_add_wait(elapsed < 10 * TICK_US ? elapsed
                                            : 10 * TICK_US); /* a stall of this thread counts against no replica */
    list_each_entry(&pull.readers, struct pull_reader, link, reader) {
        if (reader->client->conn->bytes_in != reader->heard_bytes) {
            reader->heard_bytes = reader->client->conn->bytes_in;
            reader->heard_us = now;
        } else if (now - reader->heard_us > (uint64_t)repl_settings.timeout * 1000000) {
            log_warning("Disconnecting timedout replica (pulled synchronization): %s", client_log_text(reader->client));
            reader_fail(reader, "nothing was heard from the replica: repl-timeout");
            continue;
        }
        if (now - reader->sent_us > ALIVE_US) reader_send(reader, "\n", 1);
    }
    if (now - pull.reported_us >= REPORT_US) {
        pull.reported_us = now;
        report();
    }
    end_if_unused();
    return pull.arena ? TICK_US : 0;
}

struct pull_reader *pull_join(struct client *client, void *owner, const char **error) {
    struct pull_reader *reader = mem_calloc(1, sizeof *reader);
    size_t size;
    void *memory = pull_arena_memory(pull.arena, &size);
    enum rdma_window_use use = pull.sealed ? RDMA_WINDOW_OFFERED_SEALED : RDMA_WINDOW_OFFERED;
    int result = rdma_window_open(client->conn, use, memory, size, &reader->window);
    if (result < 0) {
        mem_free(reader);
        *error = result == -EDQUOT ? "rdma-max-registered-memory leaves no memory for it" : strerror(-result);
        end_if_unused();
        return NULL;
    }
    reader->client = client;
    reader->owner = owner;
    reader->began_us = reader->heard_us = clock_monotonic_us();
    reader->heard_bytes = client->conn->bytes_in;
    list_append(&pull.readers, &reader->link);
    return reader;
}

void pull_begin(struct pull_reader *reader) {
    char text[PULL_LINE_MAX];
    int len = snprintf(text, sizeof text, PULL_HEADER "%d %llu", PULL_CHUNK_SIZE, (unsigned long long)save.keys_total);
    if (pull.sealed) {
        text[len++] = ' ';
        pull_key_format(text + len, &pull.key);
        len += PULL_KEY_TEXT;
    }
    len += snprintf(text + len, sizeof text - (size_t)len, "\r\n");
    reader_send(reader, text, len);
    reader->begun = true;
    reader_announce(reader);
}

void pull_leave(struct pull_reader *reader) {
    if (!reader) return;
    reader_remove(reader);
    release_chunks();
    end_if_unused();
}

bool pull_taken(struct pull_reader *reader, int64_t count) {
    if (count <= 0 || (uint64_t)count <= reader->taken || (uint64_t)count > reader->announced) return false;
    uint64_t slot = ((uint64_t)count - 1) % pull_arena_slots(pull.arena);
    reader->taken = (uint64_t)count;
    reader->taken_bytes = pull.ends[slot];
    reader->taken_keys = pull.end_keys[slot];
    bool finished = reader_finish(reader);
    release_chunks();
    if (finished) end_if_unused();
    return true;
}

/* --- The snapshot --- */

static void pull_save_done(struct background_save *of, int status, int signal) {
    pull.saving = false;
    arena_advanced(); /* the last chunks may be published and not noticed yet; may end the snapshot */
    if (!pull.arena || pull.complete) return;
    log_warning("The snapshot for replicas %s", signal ? "was cancelled" : "failed");
    fail_all("the primary could not produce the snapshot");
    end_if_unused();
}

static void pull_save_stop(struct background_save *of) {
    pull_arena_stop(pull.arena);
}

static int save_start(const struct save_content *content) {
    static const struct background_save_ops ops = {
        .begin = pull_save_begin, .end = pull_save_end, .stop = pull_save_stop, .done = pull_save_done};
    writer_ends = false;
    save = (struct background_save){.ops = &ops, .kind = CHILD_REPLICATION, .content = *content};
    return background_save_start(&save);
}

int pull_start(const struct pull_events *events, const struct save_content *content, bool sealed) {
    if (pull.arena || child_active()) return -EBUSY;
    if (sealed && !pull_key_new(&pull.key)) return -EIO;
    struct pull_arena *arena = pull_arena_new((size_t)pull_settings.snapshot_memory, sealed ? &pull.key : NULL);
    if (!arena) return -errno;
    if (!pull.snapshots) list_init(&pull.readers);
    pull.arena = arena;
    pull.events = events;
    pull.published = pull.bytes = pull.keys = 0;
    pull.complete = pull.damaged = false;
    pull.sealed = sealed;
    int error = event_io_set(server.loop, &pull.filled, pull_arena_fd(arena), EVENT_READ, filled_ready);
    if (!error) error = save_start(content);
    if (error) {
        event_io_remove(server.loop, &pull.filled);
        pull_arena_free(arena);
        pull.arena = NULL;
        return error;
    }
    pull.ends = mem_calloc(pull_arena_slots(arena), sizeof *pull.ends);
    pull.end_keys = mem_calloc(pull_arena_slots(arena), sizeof *pull.end_keys);
    pull.saving = true;
    pull.snapshots++;
    pull.ticked_us = pull.reported_us = clock_monotonic_us();
    event_timer_set(server.loop, &pull.tick, TICK_US, tick);
    log_notice("Background RDB transfer started by pid %d: replicas fetch the %ssnapshot by RDMA READ, without fork",
               (int)save.pid, sealed ? "encrypted " : "");
    return 0;
}

/* --- INFO --- */

void pull_read_status(struct pull_status *status) {
    *status = (struct pull_status){.seconds_left = -1,
                                   .snapshots = pull.snapshots,
                                   .delivered = pull.delivered,
                                   .dropped_slow = pull.dropped_slow};
    if (!pull.arena) return;
    size_t size;
    (void)pull_arena_memory(pull.arena, &size);
    status->memory = size;
    status->bytes = pull.bytes;
    status->readers = (unsigned)pull.readers.len;
    const struct pull_reader *slowest = slowest_reader();
    if (!slowest) return;
    struct pull_progress progress = reader_progress(slowest);
    status->percent = progress.percent;
    status->bytes_per_second = progress.bytes_per_second;
    status->seconds_left = progress.seconds_left;
}
