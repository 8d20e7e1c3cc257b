/* copy.c: the full synchronization on the replica: receives the primary's copy (an RDB file) and loads it.
 *
 * The primary announces the copy's size ("$1234"), or a mark of 40 random bytes that ends the copy ("$EOF:<mark>").
 *
 * If the replica fetches the copy by RDMA READ (pull/replica.h), the bytes come from the chunks instead of from the
 * connection. Everything below applies to it as well.
 *
 * repl-diskless-load decides where the copy goes: into a temporary file, which replaces `dbfilename` and is loaded when
 * it is complete; into the databases, whose old contents are freed first; or, with swapdb, into a second keyspace that
 * replaces the first at the end. With swapdb, clients can read the old data during the load if the copy has the same
 * replication id, and an incomplete copy leaves the old data in place. Modules that do not handle errors of input, or
 * a second keyspace, have the copy go to a file whatever the option says.
 *
 * The load runs outside of the loop's turns (server_run_outside). It reads bytes from the connection through a source,
 * which turns the loop until some arrive. So memory is bounded: the source's buffer, and AHEAD_MAX bytes of the
 * connection.
 *
 * From the header to the end of the load, the replica sends a newline each second as a keepalive.
 *
 * If the load fails, the databases are flushed; with swapdb they are unchanged. */
#include "repl/replica/copy.h"
#include "formats/sink.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "persistence/aof.h"
#include "persistence/background_save.h"
#include "persistence/persistence.h"
#include "persistence/loading.h"
#include "persistence/save_points.h"
#include "repl/history.h"
#include "repl/primary/replicas.h"
#include "repl/pull/replica.h"
#include "repl/pull/wire.h"
#include "repl/replica/link.h"
#include "repl/settings.h"
#include "server/cluster_hooks.h"
#include "server/nested_turn.h"
#include "server/process/child.h"
#include "server/role.h"
#include "server/server_events.h"
#include "server/stats/stats.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MARK_LEN = 40,
    NAME_MAX_LEN = 64,
    AHEAD_MAX = 16 * 1024 * 1024, /* bytes that the connection may receive ahead of the load */
    SYNC_INTERVAL = 4 * 1024 * 1024,
    WAIT_US = 100 * 1000,
    NEWLINE_US = 1000 * 1000,
    PROGRESS_US = 5000 * 1000 /* between two lines of progress in the log */
};

static struct {
    enum { COPY_NONE, COPY_RECEIVING, COPY_READY, COPY_LOADING } state;
    struct connection *conn, *other; /* other: also gets keepalives; NULL: none */
    void (*done)(bool loaded);
    struct stream_position *at;
    int64_t size; /* -1: until the mark */
    uint64_t received;
    char mark[MARK_LEN];
    uint64_t heard_us, reported_us;
    struct event_timer alive;
    bool ended;               /* the connection is closed */
    char reason[256];         /* why the load must stop; empty: it continues */
    struct pull_fetch *fetch; /* the copy is fetched by RDMA READ; NULL: it comes through the connection */
    bool pulled;
    /* To a file. */
    bool to_file;
    int fd, directory; /* -1: none. CONFIG SET may change `dir` until the copy is complete */
    char name[NAME_MAX_LEN];
    char *placed; /* what it was renamed to, while it is loaded: CONFIG SET may change dbfilename */
    struct sink sink;
    char tail[MARK_LEN]; /* received bytes not written yet, since they may be the start of the mark */
    size_t tail_len;
} copy;

static bool needs_no_checksum; /* copy_needs_no_checksum() */

static void remove_temporary(void) {
    unlinkat(copy.directory, copy.name, 0);
}

static void close_file(bool keep) {
    if (!copy.to_file || copy.fd < 0) return;
    sink_free(&copy.sink);
    close(copy.fd);
    copy.fd = -1;
    if (!keep) remove_temporary();
}

static void fetch_end(void) {
    pull_fetch_free(copy.fetch);
    copy.fetch = NULL;
}

static void end(void) {
    fetch_end();
    event_timer_cancel(server.loop, &copy.alive);
    if (copy.directory >= 0) close(copy.directory);
    copy.directory = -1;
    copy.state = COPY_NONE;
    copy.conn = copy.other = NULL;
}

static void finish(bool loaded) {
    end();
    copy.done(loaded);
}

static void fail(void) {
    close_file(false);
    finish(false);
}

void copy_cancel(void) {
    if (copy.state == COPY_NONE || copy.state == COPY_LOADING) return;
    close_file(false);
    if (copy.state == COPY_READY && copy.to_file) remove_temporary();
    end();
}

bool copy_was_pulled(void) {
    return copy.pulled;
}

void copy_broken(const char *reason) {
    if (copy.state == COPY_LOADING) {
        snprintf(copy.reason, sizeof copy.reason, "%s", reason);
    } else if (copy.state != COPY_NONE) {
        log_warning("PRIMARY <-> REPLICA sync: %s", reason);
        fail();
    }
}

static bool timed_out(void) {
    return clock_mono() - copy.heard_us > repl_timeout_us();
}

static const char timeout_text[] = "Timeout receiving bulk data from PRIMARY... If the problem persists try to set the "
                                   "'repl-timeout' parameter in valkey.conf to a larger value.";

void copy_check_timeout(void) {
    if (copy.state != COPY_RECEIVING || !timed_out()) return;
    log_warning("%s", timeout_text);
    fail();
}

void copy_keep_alive(struct connection *conn) {
    copy.other = conn;
}

static void send_newline(struct connection *conn) {
    if (!conn || !conn_is_open(conn)) return;
    output_write(&conn->out, SLICE("\n"));
    conn_flush(conn);
}

/* Logs the progress of a fetch every PROGRESS_US. */
static void report_progress(void) {
    struct pull_progress progress;
    if (clock_mono() - copy.reported_us < PROGRESS_US || !pull_fetch_progress(&progress)) return;
    copy.reported_us = clock_mono();
    log_notice("PRIMARY <-> REPLICA sync: fetched %.1f%% of the keys, %.1f MB, %.1f MB/s, %lld seconds left",
               progress.percent, (double)progress.bytes / 1e6, progress.bytes_per_second / 1e6,
               (long long)progress.seconds_left);
}

static uint64_t send_newlines(struct event_timer *timer) {
    report_progress();
    send_newline(copy.conn);
    send_newline(copy.other);
    return copy.state == COPY_NONE ? 0 : NEWLINE_US; /* sending may have ended it */
}

static void heard(size_t bytes) {
    copy.received += bytes;
    copy.heard_us = clock_mono();
    role_sync.read = (int64_t)copy.received;
    role_sync.heard_ms = clock_mono_ms();
}
static void heard_from_connection(size_t bytes) {
    replication_stats.bytes_in += bytes;
    heard(bytes);
}

/* --- Loading --- */

static ssize_t conn_read(struct source *source, void *to, size_t len) {
    struct connection *conn = copy.conn;
    if (copy.size >= 0 && (uint64_t)copy.size - copy.received < len)
        len = (size_t)((uint64_t)copy.size - copy.received);
    if (len == 0) return 0;
    for (;;) {
        if (copy.reason[0]) {
            source_fail(source, -ECANCELED, "%s", copy.reason);
            return -ECANCELED;
        }
        size_t got = conn->in_len < len ? conn->in_len : len;
        if (!got && copy.ended) return 0;
        conn_receive_into(conn, to, got ? got : len);
        if (!got) {
            nested_turn(WAIT_US);
            got = len - conn->sink_len;
            conn_receive_into(conn, NULL, 0);
        }
        if (got) {
            heard_from_connection(got);
            return (ssize_t)got;
        }
        if (timed_out()) snprintf(copy.reason, sizeof copy.reason, "%s", timeout_text);
    }
}
static const struct source_ops conn_ops = {.read = conn_read};

static ssize_t have_fetched(struct source *source, ssize_t got) {
    if (got < 0) source_fail(source, (int)got, "%s", pull_fetch_error(copy.fetch));
    if (got <= 0) return got;
    heard((size_t)got);
    return got;
}
static bool is_cancelled(struct source *source) {
    if (copy.reason[0]) source_fail(source, -ECANCELED, "%s", copy.reason);
    return copy.reason[0];
}
static ssize_t fetch_read(struct source *source, void *to, size_t len) {
    return is_cancelled(source) ? -ECANCELED : have_fetched(source, pull_fetch_read(copy.fetch, to, len));
}
static ssize_t fetch_show(struct source *source, const char **bytes) {
    return is_cancelled(source) ? -ECANCELED : have_fetched(source, pull_fetch_show(copy.fetch, bytes));
}
static const struct source_ops fetch_ops = {.read = fetch_read, .show = fetch_show};

/* The file's database counts, whatever $ENDOFF says: a replica of Valkey that was a primary once sends there the one
 * that it selected last in a stream of its own. */
static bool read_aux(void *context, struct source *source, struct slice name, struct slice value) {
    if (slice_is(name, "repl-stream-db")) repl_history_read_db(value, &copy.at->db);
    repl_history_read_local_changes(name, value, copy.at);
    if (cluster_hooks) cluster_hooks->read_aux(name, value, true);
    return true;
}

static void flush_all(void) {
    server_flush_all(replica_settings.lazy_flush);
}

/* Whether the copy begins with a valid RDB header; checked before the old data are flushed. */
static bool header_is_valid(struct source *source) {
    source_want(source, RDB_MAGIC_BYTES);
    const char *reason = source->failed                               ? source->reason
                         : source->end - source->at < RDB_MAGIC_BYTES ? "it is too short"
                                                                      : rdb_header_check(source->at);
    if (!reason) {
        log_notice("RDB signature and version check passed. Flushing old data");
        return true;
    }
    log_warning("The copy of the primary does not begin as an RDB file does: %s", reason);
    return false;
}

static bool read_mark(struct source *source) {
    char mark[MARK_LEN];
    if (copy.size >= 0 || copy.to_file || copy.fetch) {
        if (source_at_end(source)) return true;
        log_warning("Replication full sync: the copy goes on after its end, at offset %llu",
                    (unsigned long long)source_offset(source));
        return false;
    }
    if (!source_read(source, mark, sizeof mark) || memcmp(mark, copy.mark, sizeof mark) != 0) {
        log_warning("Replication stream EOF marker is broken");
        return false;
    }
    if (source->at == source->end) return true;
    log_warning("The primary sent its stream before the copy was acknowledged");
    return false;
}

/* Begins a new history before the data are replaced, until the new data are loaded and have a position. Otherwise an
 * RDB file saved meanwhile, or this server as a primary, would name the old position for other data. */
static void leave_history(void) {
    replica_forget_position();
    repl_disconnect_replicas("a full synchronization replaces the data");
    repl_history_new();
}

/* Replaces the data by those of the source. *replaced: the old data are gone, even if the load failed. */
static bool load(struct source *source, bool swap, bool *replaced) {
    struct keyspace *into = server.keyspace;
    *replaced = false;
    if (swap) {
        into = keyspace_new_like(server.keyspace);
    } else {
        if (!header_is_valid(source)) return false;
        leave_history();
        flush_all();
        *replaced = true;
    }
    if (cluster_hooks) cluster_hooks->copy_begins();
    enum copy_check check = copy.fetch ? COPY_VERIFIED : needs_no_checksum ? COPY_WITHOUT_SUM : COPY_WITH_SUM;
    bool ok = loading_read_copy(source, into, check, read_aux) == 0 && read_mark(source);
    if (ok && swap) {
        leave_history();
        log_notice("PRIMARY <-> REPLICA sync: Swapping active DB with loaded DB");
        keyspace_replace(server.keyspace, into);
        *replaced = true;
        log_notice("PRIMARY <-> REPLICA sync: Discarding old DB in background");
    } else if (ok) {
        keyspace_replace(server.keyspace, NULL);
    } else if (!swap) {
        log_notice("PRIMARY <-> REPLICA sync: Discarding the half-loaded data");
        flush_all();
    }
    if (swap && !ok) log_notice("PRIMARY <-> REPLICA sync: Discarding temporary DB in background");
    if (swap) {
        for (int id = 0; id < keyspace_databases(into); id++) db_flush(keyspace_db(into, id), true);
        keyspace_free(into);
    }
    return ok;
}

static bool load_source(struct source *source, uint64_t total, bool swap) {
    bool async = swap && memcmp(copy.at->id, role->position.id, REPL_ID_LEN) == 0, replaced;
    log_notice("PRIMARY <-> REPLICA sync: Loading DB in memory");
    loading_begin(total, async ? LOADING_SERVES_OLD : LOADING_SERVES);
    loading_attach(source);
    if (async)
        server_event(EVENT_ASYNC_LOAD, 0, NULL);
    else
        server_event(EVENT_LOADING, LOADING_REPLICATION_START, NULL);
    bool ok = load(source, swap, &replaced);
    loading_detach();
    loading_end();
    if (async)
        server_event(EVENT_ASYNC_LOAD, ok ? 2 : 1, NULL);
    else
        server_event(EVENT_LOADING, ok ? LOADING_ENDED : LOADING_FAILED, NULL);
    if (ok && replaced) server.dirty = 0;
    if (ok && copy.to_file)
        aof_restart_from(copy.placed);
    else if (ok)
        aof_restart();
    return ok;
}

/* Renames the copy to `dbfilename`; called before the old data are flushed, which remain if it fails. */
static bool place_file(void) {
    if (renameat(copy.directory, copy.name, AT_FDCWD, persistence_settings.file_name) == 0) {
        copy.placed = mem_strdup(persistence_settings.file_name);
        return true;
    }
    log_warning("Failed trying to rename the temp DB into %s in PRIMARY <-> REPLICA synchronization: %s",
                persistence_settings.file_name, strerror(errno));
    return false;
}

static bool is_rdb_file(int fd) {
    char magic[RDB_MAGIC_BYTES];
    const char *reason =
        pread(fd, magic, sizeof magic, 0) == RDB_MAGIC_BYTES ? rdb_header_check(magic) : "it is too short";
    if (!reason) return true;
    log_warning("The copy of the primary does not begin as an RDB file does: %s", reason);
    return false;
}

/* Removes `dbfilename` if the copy is damaged, because the server could not start with it, or if rdb-del-sync-files
 * says so. */
static void remove_file(bool loaded) {
    if (!loaded && !copy.reason[0]) unlink(copy.placed);
    if (!replica_settings.delete_sync_files || save_points_count() || aof_is_configured()) return;
    log_notice("Removing the RDB file obtained from the primary. This replica has persistence disabled");
    unlink(copy.placed);
}

static bool load_file(void) {
    struct source source;
    int fd = openat(copy.directory, copy.name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        log_warning("The copy of the primary cannot be read: %s", strerror(errno));
        return false;
    }
    log_notice("Loading the RDB and finalizing primary-replica sync...");
    if (!is_rdb_file(fd) || !place_file()) {
        remove_temporary();
        close(fd);
        return false;
    }
    source_init_fd(&source, fd);
    bool ok = load_source(&source, source_left(&source), false);
    source_free(&source);
    close(fd);
    remove_file(ok);
    mem_free(copy.placed);
    copy.placed = NULL;
    return ok;
}

static bool load_connection(void) {
    struct source source;
    bool swap = replica_settings.diskless_load == DISKLESS_LOAD_SWAP;
    source_init(&source, copy.fetch ? &fetch_ops : &conn_ops, NULL, copy.size >= 0 ? (uint64_t)copy.size : UINT64_MAX);
    bool ok = load_source(&source, copy.size >= 0 ? (uint64_t)copy.size : 0, swap);
    source_free(&source);
    return ok;
}

/* Runs outside of the loop's turns. */
static void load_task(void) {
    if (copy.state != COPY_READY) return; /* cancelled in the meantime */
    copy.state = COPY_LOADING;
    if (child_kind() == CHILD_RDB) {
        log_notice("Replica is about to load the RDB file received from the primary, but a background save is running. "
                   "Ending it and removing its temp file to avoid any race");
        if (copy.to_file) child_kill_wait(); /* it would replace the file that is about to be renamed */
    }
    background_save_data_leaves();
    bool ok = copy.to_file ? load_file() : load_connection();
    if (!ok) {
        log_warning("Failed trying to load the PRIMARY synchronization DB from %s, check server logs.",
                    copy.to_file ? "disk" : "socket");
        log_warning("Failed to load RDB");
    }
    if (ok && copy.reason[0]) {
        log_warning("PRIMARY <-> REPLICA sync: %s", copy.reason);
        ok = false;
    }
    finish(ok);
}

static void start_load(void) {
    copy.state = COPY_READY;
    server_run_outside(load_task);
}

/* --- Receiving into a file --- */

static bool write_out(struct slice bytes) {
    output_write(&copy.sink.out, bytes);
    if (sink_error(&copy.sink) == 0) return true;
    log_warning("Write error or short write writing to the DB dump file needed for PRIMARY <-> REPLICA "
                "synchronization: %s",
                strerror(-sink_error(&copy.sink)));
    fail();
    return false;
}

static void file_complete(void) {
    int error = sink_sync(&copy.sink);
    if (error < 0) {
        log_warning("Failed trying to sync the temp DB to disk in PRIMARY <-> REPLICA synchronization: %s",
                    strerror(-error));
        fail();
        return;
    }
    close_file(true);
    conn_set_reading(copy.conn, false); /* the primary keeps the stream until the data are loaded */
    log_notice("PRIMARY <-> REPLICA sync: Done downloading RDB");
    start_load();
}

/* Writes received bytes up to the mark; keeps the last MARK_LEN bytes back, which may be a part of it. Returns how many
 * bytes of `in` were used; the rest follow the mark. -1: writing failed. */
static ssize_t write_to_mark(struct slice in, bool *found) {
    char joined[2 * MARK_LEN];
    size_t head = in.len < MARK_LEN ? in.len : MARK_LEN, len = copy.tail_len + head;
    memcpy(joined, copy.tail, copy.tail_len);
    memcpy(joined + copy.tail_len, in.data, head);
    const char *at = memmem(joined, len, copy.mark, MARK_LEN);
    *found = true;
    if (at) {
        size_t before = (size_t)(at - joined);
        if (!write_out((struct slice){joined, before})) return -1;
        return (ssize_t)(before + MARK_LEN - copy.tail_len);
    }
    at = memmem(in.data, in.len, copy.mark, MARK_LEN);
    if (at) {
        if (!write_out((struct slice){copy.tail, copy.tail_len})) return -1;
        if (!write_out((struct slice){in.data, (size_t)(at - in.data)})) return -1;
        return at - in.data + MARK_LEN;
    }
    *found = false;
    if (in.len >= MARK_LEN) {
        if (!write_out((struct slice){copy.tail, copy.tail_len})) return -1;
        if (!write_out((struct slice){in.data, in.len - MARK_LEN})) return -1;
        memcpy(copy.tail, in.data + in.len - MARK_LEN, MARK_LEN);
        copy.tail_len = MARK_LEN;
    } else {
        size_t keep = len < MARK_LEN ? len : MARK_LEN;
        if (!write_out((struct slice){joined, len - keep})) return -1;
        memcpy(copy.tail, joined + len - keep, keep);
        copy.tail_len = keep;
    }
    return (ssize_t)in.len;
}

/* Writes the chunks that have arrived. */
static void fetch_to_file(struct event_deferred *deferred) {
    const char *bytes;
    ssize_t got;
    if (copy.state != COPY_RECEIVING || !copy.fetch) return; /* it has ended in the meantime */
    while ((got = pull_fetch_take(copy.fetch, &bytes)) > 0) {
        if (!write_out((struct slice){bytes, (size_t)got})) return;
        heard((size_t)got);
    }
    if (got == -EAGAIN) return;
    if (got < 0) {
        log_warning("PRIMARY <-> REPLICA sync: %s", pull_fetch_error(copy.fetch));
        fail();
        return;
    }
    fetch_end();
    file_complete();
}
static void fetch_arrived(void) {
    static struct event_deferred deferred;
    event_loop_defer(server.loop, &deferred, fetch_to_file);
}

static void file_readable(struct connection *conn) {
    struct slice in = conn_peek(conn);
    bool complete = false;
    ssize_t used;
    if (copy.state != COPY_RECEIVING) return;
    if (copy.fetch) {
        copy.heard_us = clock_mono();
        fetch_arrived();
        return;
    }
    if (!in.len) return;
    if (copy.size >= 0) {
        uint64_t left = (uint64_t)copy.size - copy.received;
        if (in.len > left) in.len = (size_t)left;
        used = write_out(in) ? (ssize_t)in.len : -1;
        complete = used >= 0 && (uint64_t)used == left;
    } else {
        used = write_to_mark(in, &complete);
    }
    if (used < 0) return;
    conn_consume(conn, (size_t)used);
    heard_from_connection((size_t)used);
    if (complete) file_complete();
}

static void file_closed(struct connection *conn) {
    if (copy.state != COPY_RECEIVING) {
        copy.ended = true;
        return;
    }
    const char *why = copy.fetch ? pull_fetch_error(copy.fetch) : NULL; /* a failed READ closes the connection */
    if (!why) why = conn->error ? conn_error_text(conn) : "connection lost";
    log_warning("I/O error trying to sync with PRIMARY: %s", why);
    fail();
}
static const struct connection_events file_events = {.readable = file_readable, .closed = file_closed};

static bool open_file(void) {
    snprintf(copy.name, sizeof copy.name, "temp-%lld.%ld.rdb", (long long)(clock_ms() / 1000), (long)getpid());
    copy.directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (copy.directory >= 0) copy.fd = openat(copy.directory, copy.name, O_CREAT | O_WRONLY | O_EXCL | O_CLOEXEC, 0644);
    if (copy.fd < 0) {
        log_warning("Opening the temp file needed for PRIMARY <-> REPLICA synchronization: %s", strerror(errno));
        if (copy.directory >= 0) close(copy.directory);
        return false;
    }
    sink_init_fd(&copy.sink, copy.fd);
    copy.sink.sync_interval = SYNC_INTERVAL;
    return true;
}

/* --- Receiving into memory --- */

static void load_readable(struct connection *conn) {
    copy.heard_us = clock_mono();
}
static void load_closed(struct connection *conn) {
    copy.ended = true;
}
static const struct connection_events load_events = {.readable = load_readable, .closed = load_closed};

/* *refusal: why modules refuse a direct load that the option asks for; NULL: they do not. */
static bool loads_directly(const char **refusal) {
    enum diskless_load how = replica_settings.diskless_load;
    *refusal = NULL;
    if (how == DISKLESS_LOAD_DISABLED || (how == DISKLESS_LOAD_ON_EMPTY && keyspace_size(server.keyspace)))
        return false;
    if (modules_refuse_direct_load) *refusal = modules_refuse_direct_load(how == DISKLESS_LOAD_SWAP);
    return !*refusal;
}

bool copy_needs_no_checksum(const struct connection *conn) {
    const char *refusal;
    needs_no_checksum = conn_is_encrypted(conn) && loads_directly(&refusal);
    return needs_no_checksum;
}

static bool parse_header(const char *header) {
    static const char mark[] = "$EOF:";
    copy.size = -1;
    if (strncmp(header, PULL_HEADER, strlen(PULL_HEADER)) == 0) {
        const char *error = NULL;
        copy.pulled = true;
        copy.fetch = pull_fetch_new(copy.conn, slice_of(header), &error);
        if (!copy.fetch) log_warning("PRIMARY <-> REPLICA sync: The copy cannot be fetched: %s", error);
        return copy.fetch != NULL;
    }
    if (strncmp(header, mark, strlen(mark)) == 0) {
        if (strlen(header) != strlen(mark) + MARK_LEN) return false;
        memcpy(copy.mark, header + strlen(mark), MARK_LEN);
        return true;
    }
    return parse_int64(slice_of(header + 1), &copy.size) && copy.size > 0;
}

bool copy_start(struct connection *conn, const char *header, struct stream_position *at, void (*done)(bool loaded)) {
    memset(&copy, 0, sizeof copy);
    copy.fd = copy.directory = -1;
    copy.conn = conn;
    if (!parse_header(header)) {
        if (!copy.pulled) log_warning("Bad protocol from PRIMARY, the header of the copy is '%s'", header);
        return false;
    }
    copy.done = done;
    copy.at = at;
    copy.heard_us = clock_mono();
    const char *refusal;
    copy.to_file = !loads_directly(&refusal);
    if (refusal) log_notice("Skipping diskless-load because %s.", refusal);
    role_sync.total = copy.size;
    role_sync.read = 0;
    role_sync.heard_ms = clock_mono_ms();
    role_set_link(ROLE_LINK_SYNC);
    const char *where = copy.to_file ? "to disk" : "to parser";
    copy.reported_us = clock_mono();
    if (copy.fetch)
        log_notice("PRIMARY <-> REPLICA sync: fetching the snapshot of the primary by RDMA READ %s", where);
    else if (copy.size >= 0)
        log_notice("PRIMARY <-> REPLICA sync: receiving %lld bytes from primary %s", (long long)copy.size, where);
    else
        log_notice("PRIMARY <-> REPLICA sync: receiving streamed RDB from primary with EOF %s", where);
    if (copy.to_file && !open_file()) {
        fetch_end();
        return false;
    }
    conn_set_in_limit(conn, AHEAD_MAX);
    conn->events = copy.to_file ? &file_events : &load_events;
    copy.state = COPY_RECEIVING;
    event_timer_set(server.loop, &copy.alive, NEWLINE_US, send_newlines);
    if (copy.fetch && copy.to_file) pull_fetch_notify(copy.fetch, fetch_arrived);
    if (copy.to_file)
        file_readable(conn); /* bytes may have arrived with the header */
    else
        start_load();
    return true;
}

/* Removes the temporary file when the server stops. */
void copy_stop(void) {
    if (copy.state == COPY_NONE || !copy.to_file) return;
    close_file(false);
    remove_temporary();
}
