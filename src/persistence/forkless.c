/* forkless.c: see forkless.h. */
#include "persistence/forkless.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "persistence/forkless_private.h"
#include "persistence/lent_values.h"
#include "persistence/persistence.h"
#include "persistence/write_pause.h"
#include "server/command/dispatch.h"
#include "server/process/process.h"
#include "server/stats/latency_monitor.h"
#include "server/uncounted_memory.h"
#include "store/before_change.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    GAP_US = 3 * FORKLESS_SLICE_US, /* from slice to slice while clients send commands */
    BUSY_US = 5000,                 /* after a command, for this time */
    WAIT_US = 100000,               /* for the threads, which wake the main thread */
    PARTS_PER_CLOCK = 8,
    DELAY_TURN_US = 10000, /* at most, for rdb-key-save-delay */
    LOANS_AHEAD = 8        /* slices pause until the reader has returned some */
};

static struct list running = LIST_INIT(running);
size_t forkless_batch_parts = LENT_PARTS;
size_t forkless_lend_min = FORKLESS_LEND_MIN, forkless_lend_min_changed = LENT_MIN_CHANGED;

uint64_t forkless_keys(const struct background_save *save) {
    return save->forkless->keys_written;
}
bool forkless_goes_on(const struct background_save *save) {
    return !save->forkless->stop;
}

/* --- Waiting bytes --- */

bool forkless_holds_writes(const struct background_save *save) {
    return save->forkless->paused || (save->forkless->held && save->forkless->blocked);
}
void forkless_hurry_all(bool held) {
    if (server.is_child) return; /* without threads, whose lock may be taken */
    list_each_entry(&running, struct forkless, link, f) forkless_hold(f, held, write_pause_limit());
}

bool forkless_is_giving(void) {
    list_each_entry(&running, const struct forkless, link, f) {
        if (f->giving) return true;
    }
    return false;
}

/* Slices pause at this number of bytes, and paused writes go on. */
static size_t slices_limit(void) {
    size_t most = write_pause_resume();
    return most < FORKLESS_BACKLOG ? most : FORKLESS_BACKLOG;
}

void forkless_check_waiting(struct forkless *f) {
    if (f->waiting > f->most_waiting) f->most_waiting = f->waiting;
    if (!f->slicing && f->waiting > write_pause_limit())
        write_pause_begin(&f->paused, "the background save", f->waiting);
}

static void batch_full(void *context, struct deferred_batch *batch) {
    struct forkless *f = context;
    batch->owner = f;
    batch->keys = f->reservation.keys;
    size_t bytes = deferred_batch_memory(batch) + batch->held;
    atomic_fetch_add(&f->waiting, bytes);
    forkless_check_waiting(f);
    forkless_write(f, batch);
}

/* With the strings that batches refer to: what deletes or evicts one frees nothing until the thread has written it, and
 * would be done again and again. Those that still have their keys are left out of what maxmemory counts meanwhile, too:
 * at most what may wait. */
static size_t waiting_memory(void) {
    size_t waiting = 0;
    list_each_entry(&running, const struct forkless, link, f) {
        waiting += f->waiting;
        if (f->serializes) waiting += deferred_output_memory(&f->out);
    }
    return waiting + loans_detached_memory();
}

static void count_memory(void) {
    static struct uncounted_memory waiting = {.bytes = waiting_memory};
    if (!waiting.link.next) uncounted_memory_add(&waiting);
}

/* --- Entries --- */

static void reading_begins(struct forkless *f) {
    store_settings.readers++;     /* a module that opens a key does not delete it because it has expired */
    store_settings.saving = true; /* what it propagates goes nowhere, as in a child */
    f->giving = true;
}
static void reading_ends(struct forkless *f, int error) {
    f->giving = false;
    store_settings.saving = false;
    store_settings.readers--;
    if (error && !f->error) f->error = error;
}

/* The data of modules that belong to no key are written here: a module that changes keys meanwhile makes the save fail,
 * because the view has begun. */
static void entries_begin(struct forkless *f) {
    const struct save_content *content = &f->save->content;
    if (content->format == SAVE_COMMANDS) {
        aof_entries_begin(&f->entries.commands, &f->out.out);
        return;
    }
    struct rdb_aux aux[SAVE_AUX_MAX];
    struct rdb_save_params params = save_params(aux, content);
    reading_begins(f);
    int error = rdb_entries_begin(&f->entries.rdb, &f->out.out, server.keyspace, &params);
    reading_ends(f, error);
}

static int entries_add(struct forkless *f, int db, const struct entry *entry) {
    return f->save->content.format == SAVE_COMMANDS ? aof_entries_add(&f->entries.commands, db, entry)
                                                    : rdb_entries_add(&f->entries.rdb, db, entry);
}
static int entries_place(struct forkless *f, int db, const struct entry *entry) {
    if (f->save->content.format == SAVE_RDB) return rdb_entries_place(&f->entries.rdb, db, entry);
    aof_entries_place(&f->entries.commands, db);
    return 0;
}

/* `whole`: with the entry itself. 0 or a negative errno. */
int forkless_serialize(struct forkless *f, int db, const struct entry *entry, bool whole) {
    reading_begins(f);
    int error = whole ? entries_add(f, db, entry) : entries_place(f, db, entry);
    reading_ends(f, error);
    return error;
}

static void entries_close(struct forkless *f, bool complete) {
    if (f->save->content.format == SAVE_RDB) {
        if (complete) rdb_entries_end(&f->entries.rdb);
        rdb_entries_free(&f->entries.rdb);
    }
    if (complete) deferred_output_flush(&f->out);
    deferred_output_free(&f->out);
    f->serializes = false;
}

bool forkless_counts(struct forkless *f, size_t keys) {
    if (server.is_child || f->error) return false; /* a session of the script debugger has a copy of this state */
    f->reservation.keys += keys;
    /* A module changes data while it saves a value: the file cannot be right. */
    if (f->giving) f->error = -EDEADLK;
    return !f->error;
}

static void give_entry(void *context, int db, const struct entry *entry) {
    struct forkless *f = context;
    if (!forkless_counts(f, 1)) return;
    if (entry_type(entry) != TYPE_STRING) f->gave_much = true;
    forkless_serialize(f, db, entry, true);
}

/* --- The end --- */

static void stop_thread(struct forkless *f) {
    forkless_stop_threads(f);
    if (f->save->ops->stop && !f->stopped) f->save->ops->stop(f->save);
    f->stopped = true;
}

/* No entries follow, and the thread gets its last job. */
static void end_entries(struct forkless *f) {
    must(!f->giving);
    if (f->error || f->stop) stop_thread(f); /* first: the reader then returns what it reads */
    if (f->view) data_view_end(f->view);
    f->view = NULL;
    bool complete = !f->error && !f->stop;
    if (!complete) stop_thread(f);
    entries_close(f, complete);
    forkless_write_end(f);
    write_pause_end(&f->paused); /* they add nothing more */
}

static void log_counts(const struct forkless *f) {
    log_notice("Save without fork: %llu keys, %llu of them before a change, %llu large ones in place; at most %zu MB "
               "waited to be written; the longest slice took %llu us",
               (unsigned long long)f->reservation.keys, (unsigned long long)(f->reservation.keys - f->by_slices),
               (unsigned long long)f->by_reader, f->most_waiting >> 20, (unsigned long long)f->longest_us);
}

static void forkless_free(struct forkless *f) {
    forkless_threads_end(f);
    list_remove(&running, &f->link);
    lent_values_end();
    mem_free(f);
}

static void finish(struct forkless *f) {
    struct background_save *save = f->save;
    must(f->ended && !f->view);
    /* One that was cancelled too late has succeeded, as a child that was killed too late has. */
    bool failed = f->result < 0, cancelled = failed && f->cancelled;
    if (!failed) log_counts(f);
    event_timer_cancel(server.loop, &f->timer);
    write_pause_end(&f->paused);
    child_unreserve(&f->reservation);
    forkless_free(f);
    save->forkless = NULL;
    save->ops->done(save, failed && !cancelled, cancelled ? CHILD_KILL_SIGNAL : 0);
}

/* --- Slices --- */

static void note_slice(struct forkless *f, uint64_t us) {
    if (us > f->longest_us) f->longest_us = us;
    latency_event("forkless-slice", us);
}

/* Only the reader can go on. */
static bool waits_for_reader(const struct forkless *f) {
    size_t loans = data_view_loans(f->view), batches = data_view_batches(f->view);
    return loans >= LOANS_AHEAD || batches >= FORKLESS_BATCHES_AHEAD ||
           ((loans || batches) && data_view_given(f->view) == data_view_keys(f->view));
}

/* Gives entries for a time; 0: one part, or a batch. */
static void slice(struct forkless *f, uint64_t microseconds, bool batches) {
    uint64_t before = data_view_given(f->view), began = clock_monotonic_us();
    bool more;
    f->slicing = true;
    do {
        /* A few strings take less time than a look at the clock is worth. */
        f->gave_much = false;
        int parts = microseconds ? PARTS_PER_CLOCK : 1;
        do more = batches ? data_view_lend_step(f->view) : data_view_step(f->view, 0);
        while (more && --parts && !f->gave_much && !waits_for_reader(f));
    } while (more && clock_monotonic_us() - began < microseconds && f->waiting < slices_limit() &&
             !waits_for_reader(f));
    f->slicing = false;
    f->by_slices += data_view_given(f->view) - before;
    note_slice(f, clock_monotonic_us() - began);
    if (!more || f->error) end_entries(f);
}

/* rdb-key-save-delay: a part, and no more until its keys have had their time. The option may change meanwhile. */
static uint64_t turn_with_delay(struct forkless *f, uint64_t delay) {
    uint64_t now = clock_monotonic_us(), due = f->paced_us + f->paced_keys * delay;
    if (now < due) return due - now < DELAY_TURN_US ? due - now : DELAY_TURN_US;
    uint64_t before = f->reservation.keys;
    slice(f, 0, false);
    if (f->view && f->save->content.streamed) deferred_output_flush(&f->out);
    f->paced_us = now;
    f->paced_keys = f->reservation.keys - before;
    return 1;
}

/* The writer wakes the main thread when less than that waits. */
static uint64_t wait_for_writer(struct forkless *f, size_t limit) {
    f->wake_below = limit;
    return f->waiting < limit ? 1 : WAIT_US;
}

/* Returns the microseconds until the next turn; 0: the save has ended, and is gone. */
static uint64_t turn(struct forkless *f) {
    f->wake_below = 0;
    forkless_collect(f);
    if (f->held) forkless_hold(f, true, write_pause_limit()); /* which may have changed */
    if (f->waiting <= write_pause_resume()) write_pause_end(&f->paused);
    if (!f->view) {
        if (!f->ended) return WAIT_US;
        finish(f);
        return 0;
    }
    if (f->giving) return GAP_US;
    if (f->stop || f->error) {
        end_entries(f);
        return 1;
    }
    if (f->waiting >= slices_limit()) return wait_for_writer(f, f->paused ? write_pause_resume() + 1 : slices_limit());
    if (waits_for_reader(f)) return f->paused ? wait_for_writer(f, write_pause_resume() + 1) : WAIT_US;
    if (persistence_settings.key_save_delay > 0)
        return turn_with_delay(f, (uint64_t)persistence_settings.key_save_delay);
    uint64_t now = clock_monotonic_us();
    /* The reader has woken the main thread. */
    if (now - f->busy_us < BUSY_US && now - f->sliced_us < GAP_US) return GAP_US - (now - f->sliced_us);
    slice(f, FORKLESS_SLICE_US, true);
    f->sliced_us = clock_monotonic_us();
    if (dispatch_commands != f->commands) f->busy_us = f->sliced_us;
    f->commands = dispatch_commands;
    return f->sliced_us - f->busy_us < BUSY_US ? GAP_US : 1;
}

static uint64_t forkless_turn(struct event_timer *fired) {
    return server.is_child ? 0 : turn(container_of(fired, struct forkless, timer));
}

static _Atomic bool wake_posted;
static void forkless_woken(struct event_post *post) {
    wake_posted = false;
    list_each_entry(&running, struct forkless, link, f) event_timer_set(server.loop, &f->timer, 1, forkless_turn);
}
void forkless_wake_main(void) {
    static struct event_post post = {.run = forkless_woken};
    if (server.loop && !atomic_exchange(&wake_posted, true)) event_loop_post(server.loop, &post);
}

bool forkless_step(void) {
    if (!running.len) return false;
    struct forkless *f = container_of(list_first(&running), struct forkless, link);
    forkless_collect(f);
    if (f->view && (f->stop || f->error))
        end_entries(f);
    else if (f->view)
        slice(f, 0, true);
    else if (f->ended)
        finish(f);
    return running.len != 0;
}

static void forkless_kill(struct child_reservation *reservation, bool waits) {
    struct forkless *f = container_of(reservation, struct forkless, reservation);
    f->cancelled = true;
    stop_thread(f);
    if (f->view && !f->giving) end_entries(f);
    if (server.loop) event_timer_set(server.loop, &f->timer, 1, forkless_turn);
    /* A module that is saving a value ends its own save: the rest follows in the next turn, and nothing is renamed. */
    if (!waits || f->view) return;
    forkless_drain_threads(f);
    finish(f);
}

/* --- Start --- */

int forkless_start(struct background_save *save) {
    struct forkless *f = mem_calloc(1, sizeof *f);
    const char *cpus = save->kind == CHILD_AOF ? process_aof_rewrite_cpulist() : process_bgsave_cpulist();
    snprintf(f->cpus, sizeof f->cpus, "%s", cpus ? cpus : "");
    f->save = save;
    save->forkless = f;
    if (server.loop) event_loop_take_posts(server.loop);
    int error = forkless_threads_start(f);
    if (error) {
        save->forkless = NULL;
        mem_free(f);
        return error;
    }
    count_memory();
    f->commands = dispatch_commands;
    list_append(&running, &f->link);
    save->pid = getpid();
    deferred_output_init(&f->out, batch_full, f);
    f->out.uncompressed = f->lent.uncompressed;
    f->serializes = true;
    if (!save->content.without_keys)
        f->view = data_view_start(server.keyspace, NULL,
                                  &(struct data_view_reader){.entry = give_entry,
                                                             .lend = forkless_lend,
                                                             .recall = forkless_recall,
                                                             .await = forkless_await,
                                                             .lend_min = forkless_lend_min,
                                                             .lend_min_changed = forkless_lend_min_changed,
                                                             .lend_batch = forkless_lend_batch,
                                                             .recall_batch = forkless_recall_batch,
                                                             .batch_parts = forkless_batch_parts,
                                                             .context = f});
    save->keys_total = f->view ? data_view_keys(f->view) : 0;
    f->reservation = (struct child_reservation){
        .kind = save->kind, .kill = forkless_kill, .keys_total = save->keys_total, .started_ms = clock_mono_ms()};
    child_reserve(&f->reservation);
    entries_begin(f);
    deferred_output_copies(&f->out, true);
    if (f->view) before_held_keys_change();
    deferred_output_copies(&f->out, false);
    lent_values_begin();
    if (!f->view) end_entries(f);
    if (server.loop) event_timer_set(server.loop, &f->timer, 1, forkless_turn);
    return 0;
}

bool forkless_running(void) {
    return running.len != 0;
}

struct forkless_stats forkless_stats(void) {
    struct forkless_stats stats = {.seconds_left = -1, .pauses = write_pauses(), .lent = forkless_lent};
    list_each_entry(&running, const struct forkless, link, f) {
        uint64_t keys = f->reservation.keys, left = f->reservation.keys_total - keys;
        uint64_t ms = (uint64_t)(clock_mono_ms() - f->reservation.started_ms);
        stats.waiting += f->waiting;
        int64_t seconds = left ? -1 : 0;
        if (keys && left) seconds = (int64_t)((double)ms * (double)left / (double)keys / 1000);
        if (seconds > stats.seconds_left) stats.seconds_left = seconds;
    }
    return stats;
}
