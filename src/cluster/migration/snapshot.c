/* snapshot.c: sends the keys of the slots of a job, which snapshot_write.c writes; see snapshot.h.
 *
 * What this process writes goes to the output of the link, or into the memory of the offer for a target that fetches
 * it (pull.h). When it may write on, a timer keeps the loop from sleeping. One snapshot after the other gets a turn.
 *
 * Chunks on a plain socket go straight from the child to the target (repl/primary/direct_transfer.h): the server then
 * sends nothing on the link, and learns from the child how much it has sent. Otherwise the child writes into a pipe,
 * and the server passes the bytes to the link, as fast as the target takes them: while much is waiting for the target,
 * the pipe is not read, and the child waits.
 *
 * For a target that fetches them, the child writes the chunks to the offer, and only commands to the pipe. Offers of
 * chunks must not stand within a command, so the pipe has frames then, and an empty one follows each value.
 *
 * Each job that needs a child has one of its own. Children for different targets run side by side. A job whose target
 * is already getting a snapshot waits for its turn, and so does a child while one of another kind is running. */
#include "cluster/migration/snapshot.h"
#include "cluster/migration/source_stream.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "persistence/background_save.h"
#include "persistence/persistence.h"
#include "persistence/write_pause.h"
#include "repl/settings.h"
#include "server/command/dispatch.h"
#include "server/server.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE = 256 * 1024,
    PENDING_MAX = 4 * 1024 * 1024, /* bytes that may wait for the target */
    PIECES_A_TURN = 4,
    PIPE_SIZE = 1024 * 1024,
    COMMAND_US = 100, /* see rest_us() */
    OWED_MAX_US = 2000,
    REST_MAX_US = 400,
    LATE_SHARE = 16, /* of the time by which a turn is late, the part that it takes */
    DELAY_TURN_US = 10000,
    SNAPSHOTS_MAX = 8 /* at a time: each may have a child, which makes the kernel copy what this process writes */
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

/* --- The pipe --- */

static void pipe_close(struct snapshot *snapshot) {
    if (snapshot->pipe.mask) event_io_remove(server.loop, &snapshot->pipe);
    if (snapshot->fd >= 0) close(snapshot->fd);
    snapshot->fd = -1;
    snapshot->ended = true;
}

static void snapshot_free(struct snapshot *snapshot) {
    list_remove(&snapshots, &snapshot->link);
    snapshot_view_end(snapshot);
    slot_offer_free(snapshot->offer);
    mem_free(snapshot->writer.scratch);
    mem_free(snapshot);
}

/* All keys are written, and their bytes are on the way. */
static void finish_if_done(struct snapshot *snapshot) {
    struct slot_export *export = snapshot->export;
    bool good = snapshot->good;
    if (snapshot->runs || !snapshot->ended || snapshot->giving) return;
    if (export && good && snapshot->offer && !slot_offer_is_done(snapshot->offer)) return;
    if (export && good && (snapshot->offer || snapshot->copies))
        job_send_message(&export->job, &(struct slot_message){.verb = VERB_SNAPSHOT_EOF});
    snapshot_free(snapshot);
    if (export) export_snapshot_done(&migrations, export, good, migration_now());
}

/* The target has got more of the offer, or may get more. */
static void advanced(void *context) {
    struct snapshot *snapshot = context;
    if (!snapshot->export || slot_offer_good(snapshot->offer)) return;
    log_warning("Slot migration %s: the snapshot is damaged", export_text(snapshot->export));
    job_end_later(&snapshot->export->job, "Failed to perform snapshot");
}

/* False: the child has closed the pipe. */
static bool read_reports(const struct snapshot *snapshot) {
    enum direct_event event;
    uint64_t value;
    while ((event = direct_read_report(snapshot->fd, &value)) != DIRECT_NOTHING && event != DIRECT_CLOSED)
        if (event == DIRECT_SENT) jobs_count_exported(value);
    return event != DIRECT_CLOSED;
}

static void reported(struct event_io *io, int mask) {
    struct snapshot *snapshot = container_of(io, struct snapshot, pipe);
    if (read_reports(snapshot)) return;
    pipe_close(snapshot);
    finish_if_done(snapshot);
}

static bool link_is_full(const struct snapshot *snapshot) {
    const struct client *client = export_client(snapshot->export);
    return client && conn_pending(client->conn) > PENDING_MAX;
}

static void ready(struct event_io *io, int mask) {
    struct snapshot *snapshot = container_of(io, struct snapshot, pipe);
    for (int i = 0; i < PIECES_A_TURN; i++) {
        struct slot_export *export = snapshot->export;
        if (!export || !export_client(export)) return;
        if (link_is_full(snapshot)) {
            event_io_remove(server.loop, io);
            return;
        }
        if (snapshot->offer && !snapshot->frame) {
            uint64_t head;
            ssize_t got = read(snapshot->fd, &head, sizeof head); /* it was written at once */
            if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
            if (got != (ssize_t)sizeof head) {
                pipe_close(snapshot);
                finish_if_done(snapshot);
                return;
            }
            snapshot->frame = head;
            slot_offer_hold(snapshot->offer, head > 0);
            if (!head) continue;
        }
        size_t most = snapshot->offer && snapshot->frame < PIECE ? snapshot->frame : PIECE;
        struct blob *piece = blob_new(PIECE, PIECE);
        ssize_t got = read(snapshot->fd, piece->data, most);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            blob_release(piece);
            return;
        }
        if (got <= 0) {
            blob_release(piece);
            pipe_close(snapshot);
            finish_if_done(snapshot);
            return;
        }
        piece->len = (size_t)got;
        if (snapshot->offer) snapshot->frame -= (uint64_t)got;
        output_write_blob(&export_client(export)->conn->out, piece);
        blob_release(piece);
        conn_flush(export_client(export)->conn);
        job_heard(&export->job, migration_now()); /* the target cannot say more while it reads */
    }
}

static void read_on(struct snapshot *snapshot) {
    if (snapshot->fd < 0 || snapshot->pipe.mask || !snapshot->export || (!snapshot->direct && link_is_full(snapshot)))
        return;
    event_io_set(server.loop, &snapshot->pipe, snapshot->fd, EVENT_READ, snapshot->direct ? reported : ready);
}

/* A target that takes nothing must not keep clients waiting for as long as it may be silent otherwise. */
static void resume_writes(struct snapshot *snapshot) {
    if (!snapshot->paused || !snapshot->export || !export_client(snapshot->export)) return;
    uint64_t now = clock_monotonic_us(), sent = export_client(snapshot->export)->conn->bytes_out;
    if (snapshot_added(snapshot) <= write_pause_resume()) {
        write_pause_end(&snapshot->paused);
    } else if (sent != snapshot->paused_out) {
        snapshot->paused_out = sent;
        snapshot->paused_us = now;
    } else if (now - snapshot->paused_us > PAUSE_PATIENCE_US) {
        job_end_later(&snapshot->export->job, "The target kept writes waiting during the snapshot");
    }
}

static void copy_step(void);

void snapshot_step(void) {
    list_each(&snapshots, link) {
        struct snapshot *snapshot = snapshot_of_link(link);
        read_on(snapshot);
        resume_writes(snapshot);
        if (snapshot->offer || !snapshot->export) finish_if_done(snapshot);
    }
    copy_step();
}

bool snapshot_pulled(void *context, struct slot_export *export, int64_t count) {
    const struct snapshot *snapshot = snapshot_of(export);
    return snapshot && snapshot->offer && slot_offer_taken(snapshot->offer, count);
}
bool snapshot_lets_send(void *context, const struct slot_export *export) {
    const struct snapshot *snapshot = snapshot_of(export);
    return snapshot &&
           ((snapshot->copies && snapshot->chunks) || (snapshot->offer && !slot_offer_is_held(snapshot->offer)));
}

/* --- The life of the child --- */

static void done(struct child_job *child, int status, int signal) {
    struct snapshot *snapshot = container_of(child, struct snapshot, child);
    snapshot->runs = false;
    snapshot->good = !status && !signal;
    if (snapshot->good)
        log_notice("Background SLOT MIGRATION transfer terminated with success");
    else if (signal)
        log_warning("Background SLOT MIGRATION transfer terminated by signal %d", signal);
    else
        log_warning("Background SLOT MIGRATION transfer error");
    if (snapshot->export) link_of(&snapshot->export->job)->copied = child_last_cow();
    if (snapshot->direct && snapshot->fd >= 0) {
        read_reports(snapshot);
        pipe_close(snapshot);
    }
    if (!snapshot->good || !snapshot->export) pipe_close(snapshot);
    finish_if_done(snapshot);
}

static bool child_is_possible(void) {
    return !child_active() || child_kind() == CHILD_SLOTS;
}

/* Whether the child can write to the socket of the link itself. */
static bool direct_prepare(struct snapshot *snapshot, const struct slot_export *export, int report_fd) {
    struct connection *real = NULL;
    const struct client *client = export_client(export);
    bool chunks = export->form != SNAPSHOT_COMMANDS;
    int fd = chunks && !snapshot->offer ? conn_socket_for_child(client->conn, false, &real) : -1;
    snapshot->child_fds[1] = fd;
    if (fd < 0) return false;
    fcntl(report_fd, F_SETFL, O_NONBLOCK);
    snapshot->direct_writer = (struct direct_writer){.targets[0] = {.client_id = client->id, .fd = fd, .conn = real},
                                                     .count = 1,
                                                     .report_fd = report_fd,
                                                     .timeout_us = (uint64_t)repl_settings.timeout * 1000000};
    return true;
}

/* False: it failed. */
static bool start_child(struct snapshot *snapshot) {
    struct slot_export *export = snapshot->export;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        log_warning("Can't create a pipe for slot migration %s: %s", export_text(export), strerror(errno));
        return false;
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[0], F_SETPIPE_SZ, PIPE_SIZE);
    snapshot->child_fds[0] = ends[1];
    snapshot->direct = direct_prepare(snapshot, export, ends[1]);
    if (snapshot->offer) slot_offer_child_fds(snapshot->offer, snapshot->child_fds + 1);
    snapshot->child = (struct child_job){.kind = CHILD_SLOTS,
                                         .title = "valkey-slot-migration",
                                         .log_name = "Slot migration",
                                         .keep = snapshot->child_fds,
                                         .keep_count = snapshot->offer    ? 3
                                                       : snapshot->direct ? 2
                                                                          : 1,
                                         .run = snapshot_write,
                                         .done = done};
    for (unsigned slot = 0; (slot = slot_bitmap_next(&snapshot->slots, slot, true)) < HASH_SLOTS; slot++)
        source_stream_slot(export, slot); /* before the fork: no change is missed */
    pid_t pid = child_start_slots(&snapshot->process, &snapshot->child);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        log_warning("Can't start a child for slot migration %s: %s", export_text(export), strerror((int)-pid));
        return false;
    }
    log_notice("Started child process %d for slot migration %s", (int)pid, export_text(export));
    if (snapshot->chunks)
        log_notice("Slot migration %s sends its snapshot in chunks, %s", export_text(export),
                   snapshot->offer    ? "which the target fetches by RDMA READ"
                   : snapshot->direct ? "from the child to the target"
                                      : "through this process");
    snapshot->fd = ends[0];
    snapshot->runs = true;
    snapshot->copies = false;
    return true;
}

static bool is_forkless(void) {
    return background_save_method(SAVE_DEFAULT) == SAVE_FORKLESS;
}

/* Between the commands of clients, slot by slot; see snapshot.h. */
static bool copies_first(const struct slot_export *export) {
    if (export->form == SNAPSHOT_COMMANDS || persistence_settings.key_save_delay) return false;
    if (is_forkless()) return true;
    return !child_pauses_after_fork() && (export->form != SNAPSHOT_PULLED || slot_offer_is_seen_by_child());
}

bool snapshot_possible(void *context, const struct slot_export *export) {
    if (snapshots.len >= SNAPSHOTS_MAX || (!is_forkless() && !copies_first(export) && !child_is_possible()))
        return false;
    list_each(&snapshots, link) {
        if (node_id_equal(&snapshot_of_link(link)->target, &export->job.target)) return false;
    }
    return true;
}

enum snapshot_start snapshot_export(struct slot_export *export) {
    if (!export_client(export)) return SNAPSHOT_LATER;
    log_notice("Beginning snapshot of slot migration %s.", export_text(export));
    struct snapshot *snapshot = mem_calloc(1, sizeof *snapshot);
    snapshot->fd = snapshot->pipe.fd = -1;
    snapshot->export = export;
    snapshot->target = export->job.target;
    snapshot->slots = export->job.slots;
    snapshot->chunks = export->form != SNAPSHOT_COMMANDS;
    memcpy(snapshot->name, export->job.name, JOB_NAME_LEN);
    if (export->form == SNAPSHOT_PULLED) snapshot->offer = slot_offer_new(export, advanced, snapshot);
    snapshot->writer = (struct slot_writer){.snapshot = snapshot, .selected = -1};
    snapshot->forkless = is_forkless();
    bool at_once = !copies_first(export); /* all is of one moment */
    snapshot->copies = snapshot->forkless || !at_once;
    if (!snapshots.len) due_us = 0;
    list_append(&snapshots, &snapshot->link);
    if (!snapshot->copies && !start_child(snapshot)) {
        snapshot_free(snapshot);
        return SNAPSHOT_FAILED;
    }
    if (at_once && snapshot->forkless) snapshot_view_begin(snapshot);
    int result = snapshot->offer ? slot_offer_open(snapshot->offer) : 0;
    if (result < 0) { /* nothing was sent: another snapshot goes through the link */
        log_warning("Slot migration %s cannot be fetched by RDMA READ: %s", export_text(export), strerror(-result));
        snapshot_cancel(NULL, export);
        return SNAPSHOT_NOT_PULLED;
    }
    if (snapshot->copies)
        log_notice("Slot migration %s sends its snapshot%s, between commands%s", export_text(export),
                   snapshot->chunks ? " in chunks" : "",
                   snapshot->offer ? ", which the target fetches by RDMA READ" : "");
    read_on(snapshot);
    return SNAPSHOT_STARTED;
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

/* The output limit of the link counts what the link has not sent, so the stream begins when that is nothing. */
static void end_copy_later(struct snapshot *snapshot) {
    if (conn_pending(export_client(snapshot->export)->conn)) return;
    log_notice("Slot migration %s: %llu keys were sent between commands", export_text(snapshot->export),
               (unsigned long long)snapshot->writer.keys);
    snapshot->good = !snapshot->offer || slot_offer_finish(snapshot->offer) == 0;
    snapshot->ended = true;
    finish_if_done(snapshot);
}

/* When the link has sent what was written, the child can write to its socket. */
static void begin_moment_later(struct snapshot *snapshot) {
    if (snapshot->forkless) {
        log_notice(
            "Slot migration %s: %llu keys were sent between commands. The others follow as they are now, without "
            "fork",
            export_text(snapshot->export), (unsigned long long)snapshot->writer.keys);
        snapshot->needs_moment = false;
        snapshot_view_begin(snapshot);
        return;
    }
    if (!child_is_possible() || (!snapshot->offer && conn_pending(export_client(snapshot->export)->conn))) return;
    log_notice("Slot migration %s: %llu keys were sent between commands. A child process sends the others",
               export_text(snapshot->export), (unsigned long long)snapshot->writer.keys);
    if (start_child(snapshot)) {
        read_on(snapshot);
        return;
    }
    snapshot->ended = true;
    job_end_later(&snapshot->export->job, "Failed to start snapshot");
}

/* False: it waits. */
static bool copy_turn(struct snapshot *snapshot) {
    struct slot_export *export = snapshot->export;
    if (!snapshot->copies || snapshot->ended || snapshot->giving || !export || !export_client(export) ||
        export->job.ending)
        return false;
    if (snapshot->written) {
        end_copy_later(snapshot);
        return false;
    }
    if (snapshot->needs_moment) {
        begin_moment_later(snapshot);
        return snapshot->view != NULL;
    }
    uint64_t before = snapshot->writer.keys, now = clock_monotonic_us();
    uint64_t late = due_us && now > due_us ? now - due_us : 0;
    enum copy_result result = snapshot_copy(snapshot, rest > 0, late / LATE_SHARE);
    if (!snapshot->export || !export_client(export)) return false;
    if (snapshot->writer.keys != before)
        job_heard(&export->job, migration_now()); /* the target cannot say more while it reads */
    switch (result) {
    case COPY_WAITS: break;
    case COPY_DELAYED: break;
    case COPY_GOES_ON: break;
    case COPY_NEEDS_MOMENT: snapshot->needs_moment = true; break;
    case COPY_FAILED: job_end_later(&export->job, "Failed to perform snapshot"); break;
    case COPY_ENDED: snapshot->written = true; break;
    }
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

void snapshot_cancel(void *context, struct slot_export *export) {
    struct snapshot *snapshot = snapshot_of(export);
    if (!snapshot) return;
    snapshot->export = NULL;
    slot_offer_withdraw(snapshot->offer);
    pipe_close(snapshot);
    if (!snapshot->giving) snapshot_view_end(snapshot);
    if (!snapshot->runs) {
        finish_if_done(snapshot);
        return;
    }
    log_notice("Slot migration target dropped, killing fork child.");
    child_kill_process(&snapshot->process);
}
