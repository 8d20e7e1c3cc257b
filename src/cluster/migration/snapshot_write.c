/* snapshot_write.c: see snapshot.h.
 *
 * A writer makes commands that create the keys, or, for a target that takes them, fragments (formats/rdb_fragment.h) in
 * commands SYNCSLOTS CHUNK. For a target that fetches them, fragments are built in the memory of the offer (pull.h). A
 * key that is too large for a fragment is written as commands in either case, so that the target serves its clients in
 * between. */
#include "cluster/migration/command_pieces.h"
#include "cluster/migration/snapshot.h"
#include "cluster/migration/source_stream.h"
#include "formats/rdb.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "persistence/aof.h"
#include "persistence/lent_values.h"
#include "persistence/persistence.h"
#include "persistence/write_pause.h"
#include "resp/request.h"
#include "server/server.h"
#include "server/stats/latency_monitor.h"
#include "store/before_change.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    COPY_TURN_US = 200,
    COPY_BUSY_TURN_US = 25,
    COPY_LATE_TURN_US = 5000,
    COPY_KEYS_MAX = 4096,           /* of a slot */
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

static struct output *link_output(const struct snapshot *snapshot) {
    return &export_client(snapshot->export)->conn->out;
}

void snapshot_write_select(struct snapshot *snapshot, int db) {
    char number[NUMBER_TEXT_MAX];
    if (snapshot->writer.selected == db) return;
    snapshot->writer.selected = db;
    request_write(link_output(snapshot), 2,
                  (struct slice[]){SLICE("SELECT"), {number, format_int64(number, (int64_t)db)}});
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
static int writer_send(struct snapshot *snapshot) {
    struct rdb_fragment *fragment = &snapshot->writer.fragment;
    if (!fragment->bytes || !rdb_fragment_len(fragment)) return 0;
    struct slice bytes = rdb_fragment_end(fragment);
    fragment->bytes = NULL;
    if (snapshot->offer) return slot_offer_publish(snapshot->offer, bytes.len);
    /* Of its own size: many may wait. */
    struct blob *blob = blob_copy(bytes);
    write_chunk_command(link_output(snapshot), snapshot, blob);
    blob_release(blob);
    return 0;
}

/* Begins a fragment if none is begun. False: the target must fetch older ones first. */
static bool writer_begin(struct snapshot *snapshot) {
    struct slot_writer *writer = &snapshot->writer;
    if (writer->fragment.bytes) return true;
    if (!snapshot->offer) {
        if (!writer->scratch) writer->scratch = mem_alloc(RDB_FRAGMENT_MAX);
        rdb_fragment_init(&writer->fragment, writer->scratch, RDB_FRAGMENT_MAX);
        return true;
    }
    if (!slot_offer_space(snapshot->offer)) return false;
    size_t size = 0;
    char *memory = slot_offer_begin(snapshot->offer, &size);
    rdb_fragment_init(&writer->fragment, memory, size);
    return true;
}

static void write_piece(void *context, struct command_piece *piece) {
    command_piece_write(piece, context);
    command_piece_free(piece);
}

/* Bytes that a reference holds would not change if a command changed them, but those that a module has a pointer to do.
 */
static bool write_copy(struct output *out, int db, const struct entry *entry) {
    struct command_pieces pieces;
    command_pieces_init(&pieces, write_piece, out);
    pieces.copies = true;
    bool written = aof_write_entry(&pieces.out, entry, db);
    if (written) command_pieces_end(&pieces);
    command_pieces_free(&pieces);
    return written;
}

static int writer_commands(struct snapshot *snapshot, int db, const struct entry *entry) {
    struct output *out = link_output(snapshot);
    snapshot_write_select(snapshot, db);
    bool written = snapshot->writer.copies ? write_copy(out, db, entry) : aof_write_entry(out, entry, db);
    return written ? 0 : -EINVAL; /* a module failed */
}

/* `slot`, `size`: as of rdb_fragment_add(). 0 or a negative errno. */
static int writer_add(struct snapshot *snapshot, int db, const struct entry *entry, unsigned slot,
                      const struct db_slot_size *size) {
    struct rdb_fragment *fragment = &snapshot->writer.fragment;
    snapshot->writer.keys++;
    for (int attempt = 0; snapshot->chunks && attempt < 2 && writer_begin(snapshot); attempt++) {
        if (rdb_fragment_add(fragment, db, entry, slot, size))
            return rdb_fragment_len(fragment) < RDB_FRAGMENT_FULL ? 0 : writer_send(snapshot);
        if (!rdb_fragment_len(fragment) || !rdb_fragment_takes(entry)) break;
        int error = writer_send(snapshot);
        if (error) return error;
    }
    /* No fragment is large enough for it, or the target must fetch older ones first. */
    return writer_commands(snapshot, db, entry);
}

/* --- Whole slots --- */

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

size_t snapshot_key_bytes(const struct entry *entry) {
    if (entry_type(entry) != TYPE_STRING) return entry_memory(entry, 0, RDB_FRAGMENT_ITEMS);
    return entry_key(entry).len + entry_string_len(entry);
}

static bool are_small(const struct copied_key *keys, size_t count) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) entry_prefetch_value(keys[i].entry);
    for (size_t i = 0; i < count; i++) {
        if (!rdb_fragment_takes(keys[i].entry)) return false;
        bytes += snapshot_key_bytes(keys[i].entry);
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
        if (writer_add(snapshot, db, keys[i].entry, slot, first ? &size : NULL)) return false;
    }
    return true;
}

static size_t pending(const struct snapshot *snapshot) {
    return conn_pending(export_client(snapshot->export)->conn);
}

static bool has_space(const struct snapshot *snapshot) {
    size_t most = snapshot->phase == SNAPSHOT_VIEWS ? write_pause_resume() : SIZE_MAX;
    if (pending(snapshot) > (most < COPY_PENDING_MAX ? most : COPY_PENDING_MAX)) return false;
    return !snapshot->offer || slot_offer_space(snapshot->offer) >= COPY_OFFERS;
}

static enum copy_result copy_slots(struct snapshot *snapshot, uint64_t us) {
    static struct copied_key keys[COPY_KEYS_MAX];
    uint64_t end = clock_monotonic_us() + us;
    snapshot->writer.copies = held_keys.len > 0;
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

/* --- The other slots, as they were at one moment --- */

size_t snapshot_added(const struct snapshot *snapshot) {
    uint64_t sent = export_client(snapshot->export)->conn->bytes_out, all = sent + pending(snapshot);
    size_t read = snapshot_reader_memory(snapshot);
    if (sent < snapshot->stepped) sent = snapshot->stepped;
    return (all > sent ? all - sent : 0) + (read > READ_AHEAD ? read - READ_AHEAD : 0);
}

static bool is_wanted(struct snapshot *snapshot) {
    /* A session of the script debugger has a copy of this state. */
    if (server.is_child || snapshot->failed || !snapshot->export || !export_client(snapshot->export)) return false;
    /* A module changes data while it writes a value: the snapshot cannot be right. */
    if (snapshot->giving) snapshot->failed = true;
    if (!snapshot->stepping && snapshot_added(snapshot) / LIMITS_MAX > write_pause_limit()) {
        log_warning("Slot migration %s: changes that cannot wait have added %zu MB to the snapshot, which the target "
                    "has not taken",
                    export_text(snapshot->export), snapshot_added(snapshot) >> 20);
        snapshot->failed = true;
    }
    return !snapshot->failed;
}

static void pause_writes(struct snapshot *snapshot) {
    size_t waiting = snapshot_added(snapshot);
    if (snapshot->paused || waiting <= write_pause_limit()) return;
    char reader[512];
    snprintf(reader, sizeof reader, "slot migration %s", export_text(snapshot->export));
    write_pause_begin(&snapshot->paused, reader, waiting);
}

void snapshot_give(void *context, int db, const struct entry *entry) {
    struct snapshot *snapshot = context;
    if (!is_wanted(snapshot)) return;
    struct slot_place at = {.db = db, .slot = hash_slot(entry_key(entry))};
    bool first = snapshot->stepping && (at.db != snapshot->last.db || at.slot != snapshot->last.slot);
    struct db_slot_size size;
    if (first) size = db_slot_size(keyspace_db(server.keyspace, db), at.slot);
    if (first) snapshot->last = at;
    store_settings.readers++; /* a module that opens a key does not delete it because it has expired */
    snapshot->giving = store_settings.saving = true;
    if (writer_add(snapshot, db, entry, at.slot, first ? &size : NULL)) snapshot->failed = true;
    snapshot->giving = store_settings.saving = false;
    store_settings.readers--;
    if (!snapshot->stepping && snapshot->export && export_client(snapshot->export)) pause_writes(snapshot);
}

void snapshot_view_begin(struct snapshot *snapshot) {
    struct data_view_reader reader = {.entry = snapshot_give,
                                      .lend = snapshot_lend,
                                      .recall = snapshot_recall,
                                      .lend_min = LEND_MIN,
                                      .lend_min_changed = LENT_MIN_CHANGED,
                                      .context = snapshot};
    for (unsigned slot = 0; (slot = slot_bitmap_next(&snapshot->slots, slot, true)) < HASH_SLOTS; slot++)
        source_stream_slot(snapshot->export, slot);
    snapshot->phase = SNAPSHOT_VIEWS;
    snapshot->last.db = -1;
    snapshot->view = data_view_start(server.keyspace, &snapshot->slots, &reader);
    lent_values_begin();
    snapshot->writer.copies = true;
    snapshot->stepped = UINT64_MAX; /* no command has added them */
    before_held_keys_change();
    snapshot->writer.copies = false;
    if (!snapshot->export || !export_client(snapshot->export)) return; /* a module may have cancelled the job */
    snapshot->stepped = export_client(snapshot->export)->conn->bytes_out + pending(snapshot);
}

/* Ends the view alone: the thread may have made more than is sent. */
static void view_over(struct snapshot *snapshot) {
    if (!snapshot->view) return;
    data_view_end(snapshot->view);
    snapshot->view = NULL;
    snapshot->awaited = false;
    lent_values_end();
}

void snapshot_view_end(struct snapshot *snapshot) {
    must(!snapshot->giving);
    snapshot_reader_stop(snapshot); /* it then returns what it reads */
    view_over(snapshot);
    snapshot_reader_free(snapshot);
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

/* Gives a part. */
static enum copy_result give_part(struct snapshot *snapshot) {
    uint64_t before = snapshot->writer.keys;
    bool more = data_view_step(snapshot->view, 0);
    if (snapshot->failed || !snapshot->export) return COPY_FAILED; /* a module may have cancelled the job */
    pace(snapshot, snapshot->writer.keys - before);
    if (!more) view_over(snapshot);
    return COPY_GOES_ON;
}

static enum copy_result view_step(struct snapshot *snapshot) {
    snapshot_loans_collect(snapshot);
    if (snapshot->failed) return COPY_FAILED;
    if (!has_space(snapshot)) return COPY_WAITS;
    enum copy_result result = COPY_GOES_ON;
    snapshot->stepping = true;
    if (!snapshot_send_piece(snapshot)) {
        if (!snapshot->view)
            result = COPY_ENDED;
        else if (snapshot_waits_for_loans(snapshot))
            result = COPY_WAITS;
        else if (snapshot_delay_us(snapshot))
            result = COPY_DELAYED;
        else
            result = give_part(snapshot);
    }
    snapshot->stepping = false;
    if (result != COPY_FAILED) snapshot->stepped = export_client(snapshot->export)->conn->bytes_out + pending(snapshot);
    if (result == COPY_ENDED) snapshot_view_end(snapshot);
    return result;
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
    enum copy_result result = snapshot->phase == SNAPSHOT_VIEWS ? copy_view(snapshot, us) : copy_slots(snapshot, us);
    if (result == COPY_FAILED) return result;
    bool ends = result == COPY_NEEDS_MOMENT || result == COPY_DELAYED || result == COPY_ENDED;
    return (ends || (busy && result != COPY_WAITS && sends_all(snapshot))) && writer_send(snapshot) ? COPY_FAILED
                                                                                                    : result;
}
