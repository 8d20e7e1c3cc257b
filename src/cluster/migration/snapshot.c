/* snapshot.c: sends the keys of the slots of a job, which snapshot_write.c writes; see snapshot.h.
 *
 * They go to the output of the link, or into the memory of the offer for a target that fetches them (pull.h). When the
 * server may write on, a timer keeps the loop from sleeping. One snapshot after the other gets a turn.
 *
 * Snapshots for different targets are sent side by side. A job whose target is already getting one waits. */
#include "cluster/migration/snapshot.h"
#include "cluster/migration/source_stream.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "persistence/persistence.h"
#include "persistence/write_pause.h"
#include "server/command/dispatch.h"
#include "server/server.h"
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>

enum {
    COMMAND_US = 100, /* see rest_us() */
    OWED_MAX_US = 2000,
    REST_MAX_US = 400,
    LATE_SHARE = 16, /* of the time by which a turn is late, the part that it takes */
    DELAY_TURN_US = 10000,
    SNAPSHOTS_MAX = 8 /* at a time: each may have a thread, and memory that waits for its target */
};

static struct list snapshots = LIST_INIT(snapshots);

/* When the next turn of copying begins; see copy_step(). */
static uint64_t rest;   /* before it, in us */
static uint64_t due_us; /* when it should begin, of the monotonic clock; 0: the last one waited for the target */

static struct snapshot *snapshot_of_link(struct list_link *link) {
    return container_of(link, struct snapshot, link);
}
static struct snapshot *snapshot_of(const struct slot_export *export) {
    list_each(&snapshots, link) {
        if (snapshot_of_link(link)->export == export) return snapshot_of_link(link);
    }
    return NULL;
}

/* --- Its life --- */

static void snapshot_free(struct snapshot *snapshot) {
    list_remove(&snapshots, &snapshot->link);
    snapshot_view_end(snapshot);
    slot_offer_free(snapshot->offer);
    mem_free(snapshot->writer.scratch);
    mem_free(snapshot);
}

/* The target has got more of the offer, or may get more. */
static void advanced(void *context) {
    struct snapshot *snapshot = context;
    if (!snapshot->export || slot_offer_good(snapshot->offer)) return;
    log_warning("Slot migration %s: the snapshot is damaged", export_text(snapshot->export));
    job_end_later(&snapshot->export->job, "Failed to perform snapshot");
}

bool snapshot_possible(void *context, const struct slot_export *export) {
    if (snapshots.len >= SNAPSHOTS_MAX) return false;
    list_each(&snapshots, link) {
        if (node_id_equal(&snapshot_of_link(link)->target, &export->job.target)) return false;
    }
    return true;
}

bool snapshot_pulled(void *context, struct slot_export *export, int64_t count) {
    const struct snapshot *snapshot = snapshot_of(export);
    return snapshot && snapshot->offer && slot_offer_taken(snapshot->offer, count);
}
bool snapshot_lets_send(void *context, const struct slot_export *export) {
    const struct snapshot *snapshot = snapshot_of(export);
    return snapshot && snapshot->chunks;
}

enum snapshot_start snapshot_export(struct slot_export *export) {
    if (!export_client(export)) return SNAPSHOT_LATER;
    log_notice("Beginning snapshot of slot migration %s.", export_text(export));
    struct snapshot *snapshot = mem_calloc(1, sizeof *snapshot);
    snapshot->export = export;
    snapshot->target = export->job.target;
    snapshot->slots = export->job.slots;
    snapshot->chunks = export->form != SNAPSHOT_COMMANDS;
    memcpy(snapshot->name, export->job.name, JOB_NAME_LEN);
    snapshot->writer = (struct slot_writer){.selected = -1};
    if (export->form == SNAPSHOT_PULLED) snapshot->offer = slot_offer_new(export, advanced, snapshot);
    if (!snapshots.len) due_us = 0;
    list_append(&snapshots, &snapshot->link);
    int result = snapshot->offer ? slot_offer_open(snapshot->offer) : 0;
    if (result < 0) { /* nothing was sent: another snapshot goes through the link */
        log_warning("Slot migration %s cannot be fetched by RDMA READ: %s", export_text(export), strerror(-result));
        snapshot_free(snapshot);
        return SNAPSHOT_NOT_PULLED;
    }
    if (!snapshot->chunks || persistence_settings.key_save_delay) snapshot_view_begin(snapshot);
    log_notice("Slot migration %s sends its snapshot%s, between commands%s", export_text(export),
               snapshot->chunks ? " in chunks" : "", snapshot->offer ? ", which the target fetches by RDMA READ" : "");
    return SNAPSHOT_STARTED;
}

void snapshot_cancel(void *context, struct slot_export *export) {
    struct snapshot *snapshot = snapshot_of(export);
    if (!snapshot) return;
    snapshot->export = NULL;
    link_of(&export->job)->ahead = 0;
    slot_offer_withdraw(snapshot->offer);
    if (!snapshot->giving) snapshot_free(snapshot); /* else snapshot_step() frees it */
}

/* All keys are written. The output limit of the link counts what the link has not sent, so the stream begins when that
 * is nothing, and when the target has all chunks. */
static void finish_if_sent(struct snapshot *snapshot) {
    struct slot_export *export = snapshot->export;
    struct slot_offer *offer = snapshot->offer;
    if (conn_pending(export_client(export)->conn)) return;
    if (offer && !slot_offer_is_complete(offer)) {
        bool good = slot_offer_finish(offer) == 0;
        if (!good) job_end_later(&export->job, "Failed to perform snapshot");
        if (!good) return;
    }
    if (offer && !slot_offer_is_done(offer)) return;
    log_notice("Slot migration %s: %llu keys were sent between commands", export_text(export),
               (unsigned long long)snapshot->writer.keys);
    job_send_message(&export->job, &(struct slot_message){.verb = VERB_SNAPSHOT_EOF});
    if (snapshot->export != export) return; /* a limit of the link's output has ended it */
    link_of(&export->job)->ahead = 0;
    snapshot_free(snapshot);
    export_snapshot_done(&migrations, export, migration_now());
}

/* --- A target that takes nothing --- */

/* What has left for the target, and, on a socket, has arrived there: a slow one takes a little at a time, long before
 * the socket has space for more. */
static uint64_t taken_by_target(const struct snapshot *snapshot) {
    const struct connection *conn = export_client(snapshot->export)->conn;
    uint64_t chunks = snapshot->offer ? slot_offer_count_taken(snapshot->offer) : 0;
    int unsent = 0, fd = conn->transport->io ? conn_fd(conn) : -1;
    if (fd < 0 || ioctl(fd, SIOCOUTQ, &unsent) < 0 || unsent < 0) unsent = 0;
    return conn->bytes_out - (uint64_t)unsent + chunks;
}

/* It must not keep clients waiting for as long as it may be silent otherwise. */
static void watch_target(struct snapshot *snapshot) {
    if (!snapshot->export || !export_client(snapshot->export)) return;
    if (snapshot->paused && snapshot_added(snapshot) <= write_pause_resume()) write_pause_end(&snapshot->paused);
    bool waits = snapshot->paused || (snapshot->awaited && snapshot_reader_memory(snapshot) > write_pause_limit());
    uint64_t now = clock_monotonic_us(), taken = waits ? taken_by_target(snapshot) : 0;
    if (!waits) {
        snapshot->stuck_us = 0;
    } else if (!snapshot->stuck_us || taken != snapshot->taken) {
        snapshot->stuck_us = now;
        snapshot->taken = taken;
    } else if (now - snapshot->stuck_us > PATIENCE_US && !snapshot->export->job.ending) {
        log_warning("Slot migration %s: the target has taken nothing for %llu ms while clients waited for it",
                    export_text(snapshot->export), (unsigned long long)(now - snapshot->stuck_us) / 1000);
        job_end_later(&snapshot->export->job, "The target kept writes waiting during the snapshot");
    }
}

static void copy_step(void);

void snapshot_step(void) {
    list_each(&snapshots, link) {
        struct snapshot *snapshot = snapshot_of_link(link);
        watch_target(snapshot);
        if (snapshot->export) link_of(&snapshot->export->job)->ahead = snapshot_reader_memory(snapshot);
        if (!snapshot->export && !snapshot->giving) snapshot_free(snapshot);
    }
    copy_step();
}

/* --- Turns --- */

static struct event_timer next_turn;
static bool is_resting;

static uint64_t turn_is_due(struct event_timer *timer) {
    is_resting = false;
    return 0;
}

/* Clients come first, and on a busy machine their CPU time, too: each command that was executed makes the next turn
 * later, and that turn is a short one. */
static uint64_t rest_us(void) {
    static uint64_t commands, owed;
    bool is_reset = dispatch_commands < commands; /* CONFIG RESETSTAT */
    owed += (dispatch_commands - (is_reset ? 0 : commands)) * COMMAND_US;
    commands = dispatch_commands;
    if (owed > OWED_MAX_US) owed = OWED_MAX_US;
    rest = owed < REST_MAX_US ? owed : REST_MAX_US;
    owed -= rest;
    return rest;
}

/* Changes with each. */
static uint64_t written_bytes(const struct snapshot *snapshot) {
    const struct connection *conn = export_client(snapshot->export)->conn;
    return snapshot->writer.keys + conn->bytes_out + conn_pending(conn);
}

/* False: it waits. */
static bool copy_turn(struct snapshot *snapshot) {
    struct slot_export *export = snapshot->export;
    if (snapshot->giving || !export || !export_client(export) || export->job.ending) return false;
    if (snapshot->phase == SNAPSHOT_WRITTEN) {
        finish_if_sent(snapshot);
        return false;
    }
    uint64_t before = written_bytes(snapshot), now = clock_monotonic_us();
    uint64_t late = due_us && now > due_us ? now - due_us : 0;
    enum copy_result result = snapshot_copy(snapshot, rest > 0, late / LATE_SHARE);
    if (!snapshot->export || !export_client(export)) return false;
    if (written_bytes(snapshot) != before)
        job_heard(&export->job, migration_now()); /* the target cannot say more while it reads */
    switch (result) {
    case COPY_WAITS: break;
    case COPY_DELAYED: break;
    case COPY_GOES_ON: break;
    case COPY_NEEDS_MOMENT:
        log_notice("Slot migration %s: %llu keys were sent slot by slot. The others follow as they are now",
                   export_text(export), (unsigned long long)snapshot->writer.keys);
        snapshot_view_begin(snapshot);
        break;
    case COPY_FAILED: job_end_later(&export->job, "Failed to perform snapshot"); break;
    case COPY_ENDED: snapshot->phase = SNAPSHOT_WRITTEN; break;
    }
    if (!snapshot->export || !export_client(export)) return false;
    conn_flush(export_client(export)->conn);
    return result != COPY_WAITS && result != COPY_DELAYED;
}

/* rdb-key-save-delay, which may change meanwhile. */
static void wake_delayed(void) {
    uint64_t us = 0;
    list_each(&snapshots, link) {
        uint64_t delay = snapshot_delay_us(snapshot_of_link(link));
        if (delay && (!us || delay < us)) us = delay;
    }
    if (us) event_timer_set(server.loop, &next_turn, us < DELAY_TURN_US ? us : DELAY_TURN_US, turn_is_due);
}

/* A loop that is long in coming back, because commands are slow, gives few turns a second. Each one then takes longer,
 * in proportion, so that the migration goes on at a pace of its own. The time for which all snapshots wait for their
 * targets does not count: no command has taken it. */
static void copy_step(void) {
    if (is_resting) return;
    for (size_t left = snapshots.len; left; left--) {
        struct snapshot *snapshot = snapshot_of_link(list_first(&snapshots));
        list_remove(&snapshots, &snapshot->link);
        list_append(&snapshots, &snapshot->link);
        if (!copy_turn(snapshot)) continue;
        is_resting = true; /* the loop does not sleep for longer */
        event_timer_set(server.loop, &next_turn, rest_us(), turn_is_due);
        due_us = clock_monotonic_us() + rest;
        return;
    }
    due_us = 0;
    wake_delayed();
}
