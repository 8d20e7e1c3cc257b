/* snapshot_write.c: see snapshot.h.
 *
 * A writer makes commands that create the keys, or, for a target that takes them, fragments (formats/rdb_fragment.h) in
 * commands SYNCSLOTS CHUNK. For a target that fetches them, fragments are built in the memory of the offer (pull.h). A
 * key that is too large for a fragment is written as commands in either case, so that the target serves its clients in
 * between. */
#include "cluster/migration/snapshot.h"
#include "cluster/migration/source_stream.h"
#include "formats/rdb.h"
#include "formats/sink.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "persistence/aof.h"
#include "persistence/persistence.h"
#include "persistence/write_pause.h"
#include "resp/request.h"
#include "server/server.h"
#include "server/stats/latency_monitor.h"
#include "store/before_change.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    AHEAD = 16,         /* keys that are prefetched while others are written */
    REPORTED_KEYS = 64, /* the child reads the clock once for this many keys */
    CHILD_NICE = 5,     /* added to its niceness: clients wait for this process, not for the child */
    /* This process */
    COPY_TURN_US = 200,
    COPY_BUSY_TURN_US = 25,
    COPY_LATE_TURN_US = 5000,
    COPY_KEYS_MAX = 4096,           /* of a slot, and … */
    COPY_BYTES_MAX = 1024 * 1024,   /* … bytes of its keys and values: they take about a millisecond */
    COPY_PENDING_MAX = 1024 * 1024, /* bytes that may wait for the target */
    COPY_OFFERS = 3,                /* chunks that a slot may need */
    EMPTY_SLOTS = 64                /* the clock is read once for this many */
};

static void write_chunk_command(struct output *out, const struct snapshot *snapshot, struct blob *blob) {
    request_write_count(out, 5);
    request_write_argument(out, SLICE("CLUSTER"));
    request_write_argument(out, SLICE("SYNCSLOTS"));
    request_write_argument(out, SLICE("CHUNK"));
    request_write_argument(out, slice_make(snapshot->name, JOB_NAME_LEN));
    request_write_blob(out, blob);
}

/* In the child the sink; otherwise the link. */
static struct output *writer_output(const struct slot_writer *writer) {
    return writer->sink ? &writer->sink->out : &export_client(writer->snapshot->export)->conn->out;
}

static void write_select(struct output *out, int db) {
    char number[NUMBER_TEXT_MAX];
    request_write(out, 2, (struct slice[]){SLICE("SELECT"), {number, format_int64(number, (int64_t)db)}});
}

/* Entries are anywhere in memory, so that each one costs a cache miss, and its value another one. */
static void prefetch_entry(const struct entry *entry) {
    enum { LINE = 64 };
    const char *bytes = (const char *)entry;
    __builtin_prefetch(bytes);
    __builtin_prefetch(bytes + LINE);
    __builtin_prefetch(bytes + (size_t)2 * LINE); /* the value of a small string */
}

/* --- Keys --- */

/* Sends or offers what the fragment has. 0 or a negative errno, of the offer. */
static int writer_send(struct slot_writer *writer) {
    struct rdb_fragment *fragment = &writer->fragment;
    if (!fragment->bytes || !rdb_fragment_len(fragment)) return 0;
    struct slice bytes = rdb_fragment_end(fragment);
    fragment->bytes = NULL;
    if (writer->snapshot->offer) return slot_offer_publish(writer->snapshot->offer, bytes.len);
    /* Of its own size: many may wait. */
    struct blob *blob = blob_copy(bytes);
    write_chunk_command(writer_output(writer), writer->snapshot, blob);
    blob_release(blob);
    return 0;
}

/* Begins a fragment if none is begun. False: the target must fetch older ones first; a child waits for that. */
static bool writer_begin(struct slot_writer *writer) {
    struct rdb_fragment *fragment = &writer->fragment;
    struct slot_offer *offer = writer->snapshot->offer;
    if (fragment->bytes) return true;
    if (!offer) {
        if (!writer->scratch) writer->scratch = mem_alloc(RDB_FRAGMENT_MAX);
        rdb_fragment_init(fragment, writer->scratch, RDB_FRAGMENT_MAX);
        return true;
    }
    if (!writer->sink && !slot_offer_space(offer)) return false;
    size_t size = 0;
    char *memory = slot_offer_begin(offer, &size);
    rdb_fragment_init(fragment, memory, size);
    return true;
}

/* In the pipe of a child an empty frame tells that its commands are complete. */
static int write_frame(struct sink *sink, const void *bytes, size_t len);

static int writer_commands(struct slot_writer *writer, int db, const struct entry *entry) {
    struct output *out = writer_output(writer);
    if (writer->selected != db) write_select(out, db);
    writer->selected = db;
    if (!aof_write_entry(out, entry, db)) return -EINVAL; /* a module failed */
    if (!writer->sink || !writer->snapshot->offer) return 0;
    int error = sink_flush(writer->sink);
    return error ? error : write_frame(writer->sink, "", 0);
}

/* `slot`, `size`: as of rdb_fragment_add(). 0 or a negative errno. */
static int writer_add(struct slot_writer *writer, int db, const struct entry *entry, unsigned slot,
                      const struct db_slot_size *size) {
    struct rdb_fragment *fragment = &writer->fragment;
    writer->keys++;
    for (int attempt = 0; writer->snapshot->chunks && attempt < 2 && writer_begin(writer); attempt++) {
        if (rdb_fragment_add(fragment, db, entry, slot, size))
            return rdb_fragment_len(fragment) < RDB_FRAGMENT_FULL ? 0 : writer_send(writer);
        if (!rdb_fragment_len(fragment) || !rdb_fragment_takes(entry)) break;
        int error = writer_send(writer);
        if (error) return error;
    }
    /* No fragment is large enough for it, or the target must fetch older ones first. */
    return writer_commands(writer, db, entry);
}

/* --- A child --- */

/* A key of the snapshot. */
struct next_key {
    struct entry *entry; /* NULL: none */
    int db;
    unsigned slot;
    bool is_first; /* of its slot, which has this size */
    struct db_slot_size size;
};

struct child_writer {
    struct slot_writer writer;
    struct sink sink;
    int error;                    /* of the offer, or of a module that could not write its value */
    struct next_key ahead[AHEAD]; /* a ring; the oldest one is at `at` */
    unsigned at;
};

/* Writes to the pipe; it is full as long as the target is slower. */
static int write_all(int fd, const char *bytes, size_t len) {
    while (len) {
        ssize_t written = write(fd, bytes, len);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return -errno;
        bytes += written;
        len -= (size_t)written;
    }
    return 0;
}

static int write_frame(struct sink *sink, const void *bytes, size_t len) {
    const struct snapshot *snapshot = sink->context;
    uint64_t head = len;
    int error = write_all(snapshot->child_fds[0], (const char *)&head, sizeof head);
    return error < 0 ? error : write_all(snapshot->child_fds[0], bytes, len);
}

static void note_error(struct child_writer *child, int error) {
    if (error && !child->error) child->error = error;
}

static void write_key(struct child_writer *child, const struct next_key *key) {
    struct slot_writer *writer = &child->writer;
    note_error(child, writer_add(writer, key->db, key->entry, key->slot, key->is_first ? &key->size : NULL));
    if (writer->keys % REPORTED_KEYS == 0) child_report(writer->keys);
    if (!persistence_settings.key_save_delay) return;
    note_error(child, writer_send(writer));
    sink_flush(&child->sink);
    child_report(writer->keys);
    persistence_delay(persistence_settings.key_save_delay);
}

/* Writes the oldest key of the ring and puts another one in its place. */
static void write_ahead(struct child_writer *child, struct next_key key) {
    struct next_key *oldest = &child->ahead[child->at], *half = &child->ahead[(child->at + AHEAD / 2) % AHEAD];
    if (oldest->entry && !sink_error(&child->sink)) write_key(child, oldest);
    *oldest = key;
    child->at = (child->at + 1) % AHEAD;
    if (key.entry) prefetch_entry(key.entry);
    if (half->entry) entry_prefetch_value(half->entry);
}

static void write_slot(struct child_writer *child, struct db *db, unsigned slot) {
    struct next_key key = {.db = db_id(db), .slot = slot, .is_first = true, .size = db_slot_size(db, slot)};
    struct db_iterator *it = db_iterate(db, (int)slot);
    for (; !sink_error(&child->sink) && (key.entry = db_iterate_next(it)); key.is_first = false)
        write_ahead(child, key);
    db_iterate_end(it);
}

int snapshot_write(struct child_job *job) {
    static struct child_writer child;
    struct snapshot *snapshot = container_of(job, struct snapshot, child);
    struct sink *sink = &child.sink;
    child.writer = (struct slot_writer){.snapshot = snapshot, .sink = sink, .selected = -1};
    (void)!nice(CHILD_NICE);
    rdb_settings.compression = false; /* the peer would have to undo it */
    static const struct sink_ops frames = {.write = write_frame};
    if (snapshot->offer)
        sink_init(sink, &frames, snapshot);
    else if (snapshot->direct)
        direct_sink_init(sink, &snapshot->direct_writer);
    else
        sink_init_fd(sink, snapshot->child_fds[0]);
    for (int id = 0; id < keyspace_databases(server.keyspace); id++) {
        struct db *db = keyspace_db(server.keyspace, id);
        for (unsigned slot = 0; slot < HASH_SLOTS && !sink_error(sink); slot++)
            if (slot_bitmap_has(&snapshot->slots, slot) && db_slot_size(db, slot).keys) write_slot(&child, db, slot);
    }
    for (int i = 0; i < AHEAD; i++) write_ahead(&child, (struct next_key){.entry = NULL});
    note_error(&child, writer_send(&child.writer));
    if (!snapshot->offer)
        request_write(&sink->out, 3, (struct slice[]){SLICE("CLUSTER"), SLICE("SYNCSLOTS"), SLICE("SNAPSHOT-EOF")});
    int error = sink_flush(sink);
    if (!error) error = child.error;
    if (!error && snapshot->offer) error = slot_offer_finish(snapshot->offer);
    if (snapshot->direct) direct_end(&snapshot->direct_writer);
    mem_free(child.writer.scratch);
    sink_free(sink);
    if (error < 0) {
        log_warning("Write error sending the snapshot of a slot migration: %s", strerror(-error));
        return 1;
    }
    child_report_end();
    return 0;
}

/* --- This process, in turns --- */

struct copied_key {
    struct entry *entry;
    int db;
};

/* The keys of a slot in all databases. Returns their number; COPY_KEYS_MAX + 1: too many. */
static size_t snapshot_write_collect(unsigned slot, struct copied_key keys[static COPY_KEYS_MAX]) {
    size_t count = 0;
    for (int id = 0; id < keyspace_databases(server.keyspace); id++) {
        struct db *db = keyspace_db(server.keyspace, id);
        size_t size = db_size(db) ? db_slot_size(db, slot).keys : 0;
        if (!size) continue;
        if (size > COPY_KEYS_MAX - count) return COPY_KEYS_MAX + 1;
        struct db_iterator *it = db_iterate(db, (int)slot);
        for (struct entry *entry; count < COPY_KEYS_MAX && (entry = db_iterate_next(it)); count++) {
            keys[count] = (struct copied_key){.entry = entry, .db = id};
            prefetch_entry(entry);
        }
        db_iterate_end(it);
    }
    return count;
}

/* Looks at each element: few large ones among many small ones count, too. So does the name of the key. */
static size_t key_bytes(const struct entry *entry) {
    if (entry_type(entry) != TYPE_STRING) return entry_memory(entry, 0, RDB_FRAGMENT_ITEMS);
    return entry_key(entry).len + entry_string_len(entry);
}

static bool are_small(const struct copied_key *keys, size_t count) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) entry_prefetch_value(keys[i].entry);
    for (size_t i = 0; i < count; i++) {
        if (!rdb_fragment_takes(keys[i].entry)) return false;
        bytes += key_bytes(keys[i].entry);
        if (bytes > COPY_BYTES_MAX) return false;
    }
    return true;
}

static bool copy_keys(struct snapshot *snapshot, unsigned slot, const struct copied_key *keys, size_t count) {
    int db = -1;
    for (size_t i = 0; i < count; i++) {
        struct db_slot_size size;
        bool first = keys[i].db != db;
        db = keys[i].db;
        if (first) size = db_slot_size(keyspace_db(server.keyspace, db), slot);
        if (writer_add(&snapshot->writer, db, keys[i].entry, slot, first ? &size : NULL)) return false;
    }
    return true;
}

static size_t pending(const struct snapshot *snapshot) {
    return conn_pending(export_client(snapshot->export)->conn);
}

static bool has_space(const struct snapshot *snapshot) {
    size_t most = snapshot->view ? write_pause_resume() : SIZE_MAX;
    if (pending(snapshot) > (most < COPY_PENDING_MAX ? most : COPY_PENDING_MAX)) return false;
    return !snapshot->offer || slot_offer_space(snapshot->offer) >= COPY_OFFERS;
}

static enum copy_result copy_slots(struct snapshot *snapshot, uint64_t us) {
    static struct copied_key keys[COPY_KEYS_MAX];
    uint64_t end = clock_monotonic_us() + us;
    while ((snapshot->next = slot_bitmap_next(&snapshot->slots, snapshot->next, true)) < HASH_SLOTS) {
        if (persistence_settings.key_save_delay) return COPY_NEEDS_MOMENT;
        if (!has_space(snapshot)) return COPY_WAITS;
        size_t count = snapshot_write_collect(snapshot->next, keys);
        if (count > COPY_KEYS_MAX || !are_small(keys, count)) return COPY_NEEDS_MOMENT;
        if (!copy_keys(snapshot, snapshot->next, keys, count)) return COPY_FAILED;
        slot_bitmap_clear(&snapshot->slots, snapshot->next);
        source_stream_slot(snapshot->export, snapshot->next++);
        if ((count || snapshot->next % EMPTY_SLOTS == 0) && clock_monotonic_us() >= end) return COPY_GOES_ON;
    }
    return COPY_ENDED;
}

/* --- This process, with a view --- */

size_t snapshot_added(const struct snapshot *snapshot) {
    uint64_t sent = export_client(snapshot->export)->conn->bytes_out, all = sent + pending(snapshot);
    if (sent < snapshot->stepped) sent = snapshot->stepped;
    return all > sent ? all - sent : 0;
}

static void give(void *context, int db, const struct entry *entry) {
    struct snapshot *snapshot = context;
    /* A session of the script debugger has a copy of this state. */
    if (server.is_child || snapshot->failed || !snapshot->export || !export_client(snapshot->export)) return;
    if (snapshot->giving) { /* a module changes data while it writes a value: the snapshot cannot be right */
        snapshot->failed = true;
        return;
    }
    if (!snapshot->stepping && snapshot_added(snapshot) / LIMITS_MAX > write_pause_limit()) {
        log_warning("Slot migration %s: changes that cannot wait have added %zu MB to the snapshot, which the target "
                    "has not taken",
                    export_text(snapshot->export), snapshot_added(snapshot) >> 20);
        snapshot->failed = true;
        return;
    }
    struct slot_place at = {.db = db, .slot = hash_slot(entry_key(entry))};
    bool first = snapshot->stepping && (at.db != snapshot->last.db || at.slot != snapshot->last.slot);
    struct db_slot_size size;
    if (first) size = db_slot_size(keyspace_db(server.keyspace, db), at.slot);
    if (first) snapshot->last = at;
    bool compression = rdb_settings.compression;
    rdb_settings.compression = false;
    store_settings.readers++; /* a module that opens a key does not delete it because it has expired */
    snapshot->giving = store_settings.saving = true;
    if (writer_add(&snapshot->writer, db, entry, at.slot, first ? &size : NULL)) snapshot->failed = true;
    snapshot->giving = store_settings.saving = false;
    store_settings.readers--;
    rdb_settings.compression = compression;
    if (snapshot->stepping || !snapshot->export || !export_client(snapshot->export)) return;
    size_t waiting = snapshot_added(snapshot);
    if (snapshot->paused || waiting <= write_pause_limit()) return;
    char reader[512];
    snprintf(reader, sizeof reader, "slot migration %s", export_text(snapshot->export));
    write_pause_begin(&snapshot->paused, reader, waiting);
    snapshot->paused_us = clock_monotonic_us();
    snapshot->paused_out = export_client(snapshot->export)->conn->bytes_out;
}

void snapshot_view_begin(struct snapshot *snapshot) {
    struct data_view_reader reader = {.entry = give, .context = snapshot};
    for (unsigned slot = 0; (slot = slot_bitmap_next(&snapshot->slots, slot, true)) < HASH_SLOTS; slot++)
        source_stream_slot(snapshot->export, slot);
    snapshot->last.db = -1;
    snapshot->view = data_view_start(server.keyspace, &snapshot->slots, &reader);
    before_held_keys_change();
}

void snapshot_view_end(struct snapshot *snapshot) {
    must(!snapshot->giving);
    if (snapshot->view) data_view_end(snapshot->view);
    snapshot->view = NULL;
    write_pause_end(&snapshot->paused);
}

uint64_t snapshot_delay_us(const struct snapshot *snapshot) {
    int delay = persistence_settings.key_save_delay;
    if (!snapshot->view || delay <= 0) return 0;
    uint64_t now = clock_monotonic_us(), due = snapshot->paced_us + snapshot->paced_keys * (uint64_t)delay;
    return now < due ? due - now : 0;
}

/* The keys of a part are written as if there were no delay, and then have their time. */
static void pace(struct snapshot *snapshot, uint64_t keys) {
    snapshot->paced_us = clock_monotonic_us();
    snapshot->paced_keys = keys;
}

static enum copy_result view_step(struct snapshot *snapshot) {
    if (snapshot->failed) return COPY_FAILED;
    if (snapshot_delay_us(snapshot)) return COPY_DELAYED;
    if (!has_space(snapshot)) return COPY_WAITS;
    uint64_t before = snapshot->writer.keys;
    snapshot->stepping = true;
    bool more = data_view_step(snapshot->view, 0);
    snapshot->stepping = false;
    if (snapshot->failed || !snapshot->export) return COPY_FAILED; /* a module may have cancelled the job */
    pace(snapshot, snapshot->writer.keys - before);
    snapshot->stepped = export_client(snapshot->export)->conn->bytes_out + pending(snapshot);
    if (more) return COPY_GOES_ON;
    snapshot_view_end(snapshot);
    return COPY_ENDED;
}

static enum copy_result copy_view(struct snapshot *snapshot, uint64_t us) {
    uint64_t began = clock_monotonic_us(), took;
    enum copy_result result;
    do {
        result = view_step(snapshot);
        took = clock_monotonic_us() - began;
    } while (result == COPY_GOES_ON && took < us);
    latency_event("forkless-slice", took);
    return result;
}

/* --- Turns of either kind --- */

/* The target fetches only a few offers at a time. While it is slow to load them, they must not be small ones. */
static bool sends_all(const struct snapshot *snapshot) {
    return !snapshot->offer || slot_offer_space(snapshot->offer) > SLOT_PULL_WINDOW / 2;
}

enum copy_result snapshot_copy(struct snapshot *snapshot, bool busy, uint64_t us) {
    uint64_t shortest = busy ? COPY_BUSY_TURN_US : COPY_TURN_US;
    if (us < shortest) us = shortest;
    if (us > COPY_LATE_TURN_US) us = COPY_LATE_TURN_US;
    bool compression = rdb_settings.compression;
    rdb_settings.compression = false; /* as in the child */
    enum copy_result result = snapshot->view ? copy_view(snapshot, us) : copy_slots(snapshot, us);
    rdb_settings.compression = compression;
    if (result == COPY_FAILED) return result;
    bool ends = result == COPY_NEEDS_MOMENT || result == COPY_DELAYED || result == COPY_ENDED;
    return (ends || (busy && result != COPY_WAITS && sends_all(snapshot))) && writer_send(&snapshot->writer)
               ? COPY_FAILED
               : result;
}
