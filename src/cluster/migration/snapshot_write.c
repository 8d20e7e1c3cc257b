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
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "persistence/aof.h"
#include "persistence/persistence.h"
#include "resp/request.h"
#include "server/server.h"
#include <errno.h>
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

/* --- A child --- */

/* A key of the snapshot. */
struct next_key {
    struct entry *entry; /* NULL: none */
    int db;
    unsigned slot;
    bool is_first; /* of its slot, which has this size */
    struct db_slot_size size;
};

struct slot_writer {
    const struct snapshot *snapshot;
    struct sink sink;
    struct rdb_fragment fragment;
    int selected; /* database of the commands; -1: none */
    int error;    /* of the offer, or of a module that could not write its value */
    uint64_t keys;
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

/* Publishes the chunk in shared memory. */
static void offer_chunk(struct slot_writer *writer) {
    int error = slot_offer_publish(writer->snapshot->offer, rdb_fragment_end(&writer->fragment).len);
    if (error < 0) writer->error = error;
    writer->fragment.bytes = NULL;
}

static void write_chunk(struct slot_writer *writer) {
    if (!writer->fragment.bytes || !rdb_fragment_len(&writer->fragment)) return;
    if (writer->snapshot->offer) {
        offer_chunk(writer);
        return;
    }
    (void)rdb_fragment_end(&writer->fragment);
    write_chunk_command(&writer->sink.out, writer->snapshot, writer->fragment.blob);
}

static void write_commands(struct slot_writer *writer, int db, const struct entry *entry) {
    struct output *out = &writer->sink.out;
    if (writer->selected != db) write_select(out, db);
    writer->selected = db;
    if (!aof_write_entry(out, entry, db)) writer->error = -EINVAL;
    if (!writer->snapshot->offer) return;
    sink_flush(&writer->sink);
    if (!sink_error(&writer->sink)) write_frame(&writer->sink, "", 0);
}

static void write_key(struct slot_writer *writer, const struct next_key *key) {
    if (!writer->fragment.bytes) { /* in shared memory, as soon as the target has taken an older one */
        size_t size = 0;
        char *memory = slot_offer_begin(writer->snapshot->offer, &size);
        rdb_fragment_init_at(&writer->fragment, memory, size);
    }
    if (!writer->snapshot->chunks ||
        !rdb_fragment_add(&writer->fragment, key->db, key->entry, key->slot, key->is_first ? &key->size : NULL))
        write_commands(writer, key->db, key->entry);
    if (rdb_fragment_len(&writer->fragment) >= RDB_FRAGMENT_FULL) write_chunk(writer);
    if (++writer->keys % REPORTED_KEYS == 0) child_report(writer->keys);
    if (!persistence_settings.key_save_delay) return;
    write_chunk(writer);
    sink_flush(&writer->sink);
    child_report(writer->keys);
    persistence_delay(persistence_settings.key_save_delay);
}

/* Writes the oldest key of the ring and puts another one in its place. */
static void write_ahead(struct slot_writer *writer, struct next_key key) {
    struct next_key *oldest = &writer->ahead[writer->at], *half = &writer->ahead[(writer->at + AHEAD / 2) % AHEAD];
    if (oldest->entry && !sink_error(&writer->sink)) write_key(writer, oldest);
    *oldest = key;
    writer->at = (writer->at + 1) % AHEAD;
    if (key.entry) prefetch_entry(key.entry);
    if (half->entry) entry_prefetch_value(half->entry);
}

static void write_slot(struct slot_writer *writer, struct db *db, unsigned slot) {
    struct next_key key = {.db = db_id(db), .slot = slot, .is_first = true, .size = db_slot_size(db, slot)};
    struct db_iterator *it = db_iterate(db, (int)slot);
    for (; !sink_error(&writer->sink) && (key.entry = db_iterate_next(it)); key.is_first = false)
        write_ahead(writer, key);
    db_iterate_end(it);
}

int snapshot_write(struct child_job *child) {
    static struct slot_writer writer = {.selected = -1};
    struct snapshot *snapshot = container_of(child, struct snapshot, child);
    struct sink *sink = &writer.sink;
    writer.snapshot = snapshot;
    (void)!nice(CHILD_NICE);
    rdb_settings.compression = false; /* the peer would have to undo it */
    static const struct sink_ops frames = {.write = write_frame};
    if (snapshot->offer)
        sink_init(sink, &frames, snapshot);
    else if (snapshot->direct)
        direct_sink_init(sink, &snapshot->writer);
    else
        sink_init_fd(sink, snapshot->child_fds[0]);
    if (!snapshot->offer) rdb_fragment_init(&writer.fragment);
    for (int id = 0; id < keyspace_databases(server.keyspace); id++) {
        struct db *db = keyspace_db(server.keyspace, id);
        for (unsigned slot = 0; slot < HASH_SLOTS && !sink_error(sink); slot++)
            if (slot_bitmap_has(&snapshot->slots, slot) && db_slot_size(db, slot).keys) write_slot(&writer, db, slot);
    }
    for (int i = 0; i < AHEAD; i++) write_ahead(&writer, (struct next_key){.entry = NULL});
    write_chunk(&writer);
    if (!snapshot->offer)
        request_write(&sink->out, 3, (struct slice[]){SLICE("CLUSTER"), SLICE("SYNCSLOTS"), SLICE("SNAPSHOT-EOF")});
    int error = sink_flush(sink);
    if (!error) error = writer.error;
    if (!error && snapshot->offer) error = slot_offer_finish(snapshot->offer);
    if (snapshot->direct) direct_end(&snapshot->writer);
    rdb_fragment_free(&writer.fragment);
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

/* Sends or offers what the fragment has. False: the offer failed. */
static bool copy_send(struct snapshot *snapshot) {
    struct rdb_fragment *fragment = &snapshot->fragment;
    if (!fragment->bytes || !rdb_fragment_len(fragment)) return true;
    size_t len = rdb_fragment_end(fragment).len;
    fragment->bytes = NULL;
    if (snapshot->offer) return slot_offer_publish(snapshot->offer, len) == 0;
    write_chunk_command(&export_client(snapshot->export)->conn->out, snapshot, fragment->blob);
    rdb_fragment_free(fragment);
    fragment->blob = NULL;
    return true;
}

/* Begins a fragment if none is begun. False: the target must fetch older ones first. */
static bool copy_begin(struct snapshot *snapshot) {
    struct rdb_fragment *fragment = &snapshot->fragment;
    if (fragment->bytes) return true;
    if (!snapshot->offer) {
        rdb_fragment_init(fragment);
        return true;
    }
    if (!slot_offer_space(snapshot->offer)) return false;
    size_t size;
    char *memory = slot_offer_begin(snapshot->offer, &size);
    rdb_fragment_init_at(fragment, memory, size);
    return true;
}

/* False: the offer failed. */
static bool copy_key(struct snapshot *snapshot, struct copied_key key, unsigned slot, const struct db_slot_size *size) {
    struct rdb_fragment *fragment = &snapshot->fragment;
    for (int attempt = 0; attempt < 2 && copy_begin(snapshot); attempt++) {
        if (rdb_fragment_add(fragment, key.db, key.entry, slot, size)) {
            snapshot->keys++;
            return rdb_fragment_len(fragment) < RDB_FRAGMENT_FULL || copy_send(snapshot);
        }
        if (!rdb_fragment_len(fragment)) break;
        if (!copy_send(snapshot)) return false;
    }
    /* No fragment is large enough for it, or the target must fetch older ones first. */
    struct output *out = &export_client(snapshot->export)->conn->out;
    write_select(out, key.db);
    bool written = aof_write_entry(out, key.entry, key.db);
    must(written); /* only an extension may fail, and a child writes these */
    snapshot->keys++;
    return true;
}

static bool copy_keys(struct snapshot *snapshot, unsigned slot, const struct copied_key *keys, size_t count) {
    int db = -1;
    for (size_t i = 0; i < count; i++) {
        struct db_slot_size size;
        bool first = keys[i].db != db;
        db = keys[i].db;
        if (first) size = db_slot_size(keyspace_db(server.keyspace, db), slot);
        if (!copy_key(snapshot, keys[i], slot, first ? &size : NULL)) return false;
    }
    return true;
}

static bool has_space(const struct snapshot *snapshot) {
    if (snapshot->offer) return slot_offer_space(snapshot->offer) >= COPY_OFFERS;
    return conn_pending(export_client(snapshot->export)->conn) <= COPY_PENDING_MAX;
}

static enum copy_result copy_slots(struct snapshot *snapshot, uint64_t us) {
    static struct copied_key keys[COPY_KEYS_MAX];
    uint64_t end = clock_monotonic_us() + us;
    while ((snapshot->next = slot_bitmap_next(&snapshot->slots, snapshot->next, true)) < HASH_SLOTS) {
        if (persistence_settings.key_save_delay) return COPY_NEEDS_CHILD;
        if (!has_space(snapshot)) return COPY_WAITS;
        size_t count = snapshot_write_collect(snapshot->next, keys);
        if (count > COPY_KEYS_MAX || !are_small(keys, count)) return COPY_NEEDS_CHILD;
        if (!copy_keys(snapshot, snapshot->next, keys, count)) return COPY_FAILED;
        slot_bitmap_clear(&snapshot->slots, snapshot->next);
        source_stream_slot(snapshot->export, snapshot->next++);
        if ((count || snapshot->next % EMPTY_SLOTS == 0) && clock_monotonic_us() >= end) return COPY_GOES_ON;
    }
    return COPY_ENDED;
}

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
    enum copy_result result = copy_slots(snapshot, us);
    rdb_settings.compression = compression;
    bool ends = result == COPY_NEEDS_CHILD || result == COPY_ENDED;
    if ((ends || (busy && sends_all(snapshot))) && !copy_send(snapshot)) result = COPY_FAILED;
    return result;
}
