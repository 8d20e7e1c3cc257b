/* migrate_large.c: see migrate_large.h. */
#include "commands/lookup.h"
#include "commands/migrate_large.h"
#include "formats/rdb.h"
#include "lib/hash/hash_slot.h"
#include "lib/structures/hashtable.h"
#include "lib/structures/linked_list.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "net/connection.h"
#include "resp/reply_reader.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/listeners.h"
#include "server/clients/reply_barrier.h"
#include "server/clients/transactions.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/config/tls_options.h"
#include "server/notify.h"
#include "server/role.h"
#include "server/server.h"
#include "server/store_events.h"
#include <errno.h>
#include <stdio.h>

enum {
    PIECE = 256 * 1024,
    DUMP_ITEMS = 64, /* of one step */
    DUMP_US = 1000,  /* of one turn */
    HEAD_ROOM = 256, /* for a request before its payload, without the key */
    RETRY_US = 10 * 1000,
    ERROR_MAX = 1024
};

struct moving_key {
    struct job *job;
    bool changed; /* it is not what was sent any more */
    struct slice name;
};
struct job {
    struct list_link link;
    struct client *client; /* that waits; NULL: it is gone */
    int db;
    bool copy, replace, on_replica; /* on_replica: it began on a replica that takes writes */
    struct connection *conn;        /* NULL: the job is over, and waits for its end */
    bool opened;
    struct barrier_waiter waiter; /* until then nothing may be shown to the target */
    bool shown;
    int64_t timeout_ms;
    struct event_timer deadline, next; /* of the step; the next piece, and the end */
    struct memory_output introduction, request;
    int key; /* the one that is dumped or sent now */
    struct dump_steps dump;
    bool dumped, holds; /* the key; the keys may not change */
    size_t sent;        /* of the request, where it begins */
    struct reply_reader reader;
    int introductions, replies; /* requests before those of the keys; replies of all that have arrived */
    char error[ERROR_MAX];      /* "": none */
    int count;
    struct moving_key *keys;
    bool *accepted;
    char names[]; /* of the keys */
};
static struct list jobs = LIST_INIT(jobs);
static struct hashtable *moving; /* the keys of all jobs that hold them, by name */
static bool deleting;            /* the change of a key is the end of its job */

/* --- The keys on the way --- */

static struct slice moving_name(const void *entry) {
    return ((const struct moving_key *)entry)->name;
}
static const struct hashtable_type moving_type = {.key = moving_name};

static bool names_moving(const struct command *command, int argc, const struct slice *argv) {
    enum { POSITIONS = 64 };
    struct key_position few[POSITIONS], *positions = few;
    int count = command_find_keys(command, argc, argv, few, POSITIONS);
    if (count > POSITIONS) {
        positions = mem_alloc((size_t)count * sizeof *positions);
        count = command_find_keys(command, argc, argv, positions, count);
    }
    bool found = count <= 0 && command->spec->flags & CMD_WRITE;
    for (int i = 0; i < count && !found; i++) found = hashtable_find(moving, argv[positions[i].index]) != NULL;
    if (positions != few) mem_free(positions);
    return found;
}

static void visit_queued(void *context, const struct command *command, int argc, const struct slice *argv) {
    bool *found = context;
    uint32_t flags = command_call_flags(command, argv);
    if (!*found && flags & (CMD_WRITE | CMD_MAY_REPLICATE)) *found = names_moving(command, argc, argv);
}

static enum filter_answer ask(struct client *client, const struct command *command, int argc, const struct slice *argv,
                              const char **error) {
    uint32_t flags = command_call_flags(command, argv);
    bool waits = false;
    if (!client->conn || client->flags & CLIENT_REPLICA) return FILTER_PASS;
    if (flags & CMD_RUNS_QUEUED)
        transaction_each(client, visit_queued, &waits);
    else if (transaction_queued(client) < 0 && flags & (CMD_WRITE | CMD_MAY_REPLICATE))
        waits = names_moving(command, argc, argv);
    if (!waits) return FILTER_PASS;
    client_postpone(client);
    return FILTER_HOLD;
}
static struct command_filter filter = {.order = FILTER_PAUSE, .ask = ask};

static void job_over(struct job *job, const char *error);

static void key_has_changed(struct moving_key *key) {
    key->changed = true;
    job_over(key->job, MIGRATE_CANNOT_READ);
}
static void changed(struct db *db, struct slice name) {
    if (deleting) return;
    struct moving_key *key = hashtable_find(moving, name);
    if (key && key->job->db == db_id(db)) key_has_changed(key);
}
/* slot: only the keys of this one have changed; -1: all. */
static void db_has_changed(struct db *db, int slot) {
    list_each(&jobs, link) {
        struct job *job = container_of(link, struct job, link);
        if (!job->holds || job->db != db_id(db)) continue;
        for (int i = 0; i < job->count; i++)
            if (slot < 0 || hash_slot(job->keys[i].name) == (unsigned)slot) key_has_changed(&job->keys[i]);
    }
}
static void flushed(struct db *db, size_t keys) {
    db_has_changed(db, -1);
}
static void slot_left(struct db *db, unsigned slot) {
    db_has_changed(db, (int)slot);
}
static void swapped(struct db *a, struct db *b) {
    db_has_changed(a, -1);
    if (a != b) db_has_changed(b, -1);
}
static struct store_listener store_listener = {
    .hooks = {.changed = changed, .flushed = flushed, .slot_left = slot_left, .swapped = swapped}};

static void keys_hold(struct job *job) {
    job->holds = true;
    if (!moving) moving = hashtable_new(&moving_type);
    if (hashtable_size(moving) == 0) {
        store_events_listen(&store_listener);
        dispatch_set_filter(&filter, true);
    }
    /* A key that was given twice is in the table once, and what happens to it counts for its first place. */
    for (int i = 0; i < job->count; i++) hashtable_add(moving, &job->keys[i]);
}

static void keys_release(struct job *job) {
    if (!job->holds) return;
    job->holds = false;
    for (int i = 0; i < job->count; i++)
        if (hashtable_find(moving, job->keys[i].name) == &job->keys[i]) hashtable_pop(moving, job->keys[i].name);
    if (hashtable_size(moving) == 0) {
        store_events_unlisten(&store_listener);
        dispatch_set_filter(&filter, false);
    }
    clients_postponed_again();
}

/* --- The client --- */

static void wait_ended(void *state) {
    struct job *job = state;
    job->client = NULL;
}

bool migrate_large_possible(const struct call *call) {
    return call->client->conn && !(call->client->flags & CLIENT_DENY_BLOCKING);
}

bool migrate_large_again(struct call *call) {
    const struct job *job = call_wait(call, wait_ended);
    if (!job) return false;
    call_propagate_nothing(call); /* the end of the job does */
    bool over = !list_is_linked(&job->link), unblocked = call->client->flags & CLIENT_DENY_BLOCKING;
    if (!over && !unblocked)
        call_block(call, &(struct blocking){.call_at_end = true});
    else if (!over)
        reply_error(call->reply, MIGRATE_CANNOT_READ);
    else if (job->error[0])
        reply_error(call->reply, job->error);
    else
        reply_ok(call->reply);
    return true;
}

/* --- The end --- */

static void job_free(struct job *job) {
    reply_barrier_forget(&job->waiter);
    event_timer_cancel(server.loop, &job->deadline);
    event_timer_cancel(server.loop, &job->next);
    memory_output_free(&job->introduction);
    memory_output_free(&job->request);
    reply_reader_free(&job->reader);
    mem_free(job->accepted);
    mem_free(job->keys);
    mem_free(job);
}

static void delete_accepted(struct job *job) {
    struct db *db = keyspace_db(server.keyspace, job->db);
    struct slice *argv = mem_alloc(((size_t)job->count + 1) * sizeof *argv);
    int argc = 0;
    argv[argc++] = SLICE("DEL");
    deleting = true;
    propagate_begin();
    for (int i = 0; i < job->count; i++) {
        struct moving_key *key = &job->keys[i];
        if (!job->accepted[i] || hashtable_find(moving, key->name) != key || key->changed) continue;
        if (!db_delete(db, key->name, true)) continue;
        notify(db, NOTIFY_GENERIC, "del", key->name);
        argv[argc++] = key->name;
    }
    server.dirty += (uint64_t)argc - 1;
    if (argc > 1) propagate(job->db, argc, argv, NULL);
    propagate_end();
    deleting = false;
    mem_free(argv);
}

static uint64_t job_end(struct event_timer *timer) {
    struct job *job = container_of(timer, struct job, next);
    if (dispatch_running() || server_is_loading() || clients_paused() != PAUSE_NONE) return RETRY_US;
    if (!job->copy && role_is_replica() && (!job->on_replica || role_is_read_only())) {
        if (!job->error[0]) snprintf(job->error, sizeof job->error, "%s", MIGRATE_CANNOT_READ);
    } else if (!job->copy) {
        role_note_local_change(); /* the call noted it, too, but perhaps for another copy of the data */
        delete_accepted(job);
    }
    list_remove(&jobs, &job->link);
    keys_release(job);
    if (job->client) blocking_call_again(job->client);
    job_free(job);
    return 0;
}

/* Nothing is sent or read any more. From anywhere; the end comes from the loop. `error`: NULL: none; not counted after
 * an earlier one. */
static void job_over(struct job *job, const char *error) {
    if (error && !job->error[0]) snprintf(job->error, sizeof job->error, "%s", error);
    if (!job->conn) return;
    job->conn->owner = NULL;
    job->conn->drops_output = true;
    conn_close(job->conn);
    job->conn = NULL;
    event_timer_cancel(server.loop, &job->deadline);
    event_timer_set(server.loop, &job->next, 0, job_end);
}

static bool sends_keys(const struct job *job) {
    return job->shown && job->replies >= job->introductions && job->key < job->count;
}
static bool is_writing(const struct job *job) {
    return !job->shown || sends_keys(job) || conn_pending(job->conn) > 0;
}

static uint64_t time_is_up(struct event_timer *timer) {
    struct job *job = container_of(timer, struct job, deadline);
    job_over(job, !job->opened || is_writing(job) ? MIGRATE_CANNOT_WRITE : MIGRATE_CANNOT_READ);
    return 0;
}

static void step_begins(struct job *job) {
    event_timer_set(server.loop, &job->deadline, (uint64_t)job->timeout_ms * 1000, time_is_up);
}

/* --- The connection --- */

int64_t migrate_time_left(const struct entry *entry) {
    int64_t at = entry_expire_at(entry);
    if (at < 0) return 0;
    return at > clock_data_ms() ? at - clock_data_ms() : 1;
}

/* Room for what precedes the payload, whose length it contains. */
static void request_begin(struct job *job) {
    static const char room[HEAD_ROOM];
    memory_output_clear(&job->request);
    output_write(&job->request.out, slice_make(room, sizeof room));
    output_write(&job->request.out, job->keys[job->key].name);
    job->dump = (struct dump_steps){0};
    job->dumped = false;
}

static void request_end(struct job *job, const struct entry *entry) {
    struct slice key = job->keys[job->key].name,
                 name = server.cluster_enabled ? SLICE("RESTORE-ASKING") : SLICE("RESTORE");
    char ttl[NUMBER_TEXT_MAX], before[HEAD_ROOM], after[HEAD_ROOM];
    size_t room = job->dump.start, payload = memory_output_slice(&job->request).len - room;
    size_t ttl_len = format_int64(ttl, migrate_time_left(entry));
    size_t before_len = (size_t)snprintf(before, sizeof before, "*%d\r\n$%zu\r\n%.*s\r\n$%zu\r\n", job->replace ? 5 : 4,
                                         name.len, (int)name.len, name.data, key.len);
    size_t after_len =
        (size_t)snprintf(after, sizeof after, "\r\n$%zu\r\n%.*s\r\n$%zu\r\n", ttl_len, (int)ttl_len, ttl, payload);
    job->sent = room - before_len - key.len - after_len;
    char *at = job->request.data + job->sent;
    memcpy(at, before, before_len);
    if (key.len) memmove(at + before_len, key.data, key.len);
    memcpy(at + before_len + key.len, after, after_len);
    output_write(&job->request.out, job->replace ? SLICE("\r\n$7\r\nREPLACE\r\n") : SLICE("\r\n"));
    job->dumped = true;
    /* A copy is that of the time of the call. */
    if (job->copy && job->key == job->count - 1) keys_release(job);
}

/* Dumps the key for a while. False: the job is over. */
static bool dump_on(struct job *job) {
    struct entry *entry = db_find(keyspace_db(server.keyspace, job->db), job->keys[job->key].name,
                                  LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE);
    if (!entry) {
        job_over(job, MIGRATE_CANNOT_READ);
        return false;
    }
    for (uint64_t end = clock_monotonic_us() + DUMP_US; !job->dumped && clock_monotonic_us() < end;)
        if (dump_write_some(&job->dump, &job->request, entry, DUMP_ITEMS)) request_end(job, entry);
    return true;
}

/* What is sent now becomes a write of the target, perhaps seconds after the call: another server may lead meanwhile and
 * have given the target a newer value. False: not now, or the job is over. */
static bool may_send(struct job *job) {
    if (!reply_barrier_armed || !reply_barrier_guards()) return true;
    const char *error = reply_barrier_refusal();
    if (!error && role_is_replica() && !job->on_replica) error = MIGRATE_CANNOT_WRITE;
    if (error) {
        job_over(job, error);
        return false;
    }
    if (reply_barrier_may_show()) return true;
    job->shown = false;
    reply_barrier_when_shown(&job->waiter);
    return false;
}

static uint64_t send_next(struct event_timer *timer) {
    struct job *job = container_of(timer, struct job, next);
    if (job->key == job->count || !job->shown) return 0;
    if (!job->dumped) {
        if (dispatch_running() || server_is_loading()) return RETRY_US;
        if (!dump_on(job)) return 0;
        if (conn_pending(job->conn) == 0) step_begins(job); /* the target waits for us */
        return 1;
    }
    struct slice all = memory_output_slice(&job->request);
    if (conn_pending(job->conn) > 0 || !sends_keys(job) || !may_send(job)) return 0;
    size_t len = all.len - job->sent < PIECE ? all.len - job->sent : PIECE;
    output_write(&job->conn->out, slice_make(all.data + job->sent, len));
    job->sent += len;
    if (job->sent == all.len && ++job->key < job->count) request_begin(job);
    job->conn->wants_drained = true;
    step_begins(job);
    conn_flush(job->conn);
    /* The peer may take all pieces at once: others have their turn between two of them. */
    return job->conn && (conn_pending(job->conn) == 0 || !job->dumped) ? 1 : 0;
}

static void on_drained(struct connection *conn) {
    struct job *job = conn->owner;
    if (!job || !job->opened) return;
    step_begins(job);
    if (sends_keys(job)) event_timer_set(server.loop, &job->next, 0, send_next);
}

static void on_connected(struct connection *conn) {
    struct job *job = conn->owner;
    if (!job) return;
    job->opened = true;
    output_write(&conn->out, memory_output_slice(&job->introduction));
    conn->wants_drained = true;
    step_begins(job);
    conn_flush(conn);
}

/* False: the job is over. The keys leave when the target has accepted AUTH and SELECT: otherwise they would be
 * anywhere. */
static bool take_reply(struct job *job, const struct resp_value *reply) {
    int key = job->replies++ - job->introductions;
    if (reply->type == RESP_ERROR) {
        if (!job->error[0])
            snprintf(job->error, sizeof job->error, MIGRATE_REFUSED, shown_len(reply->text), reply->text.data);
        if (key < 0) job_over(job, NULL);
    } else if (key >= 0) {
        job->accepted[key] = true;
    }
    if (!job->conn) return false;
    if (job->replies == job->introductions) event_timer_set(server.loop, &job->next, 0, send_next);
    if (job->replies == job->introductions + job->count) job_over(job, NULL);
    return job->conn != NULL;
}

static void on_readable(struct connection *conn) {
    struct job *job = conn->owner;
    if (!job) return;
    for (;;) {
        size_t used;
        enum reply_status status = reply_read(&job->reader, conn_peek(conn), &used);
        conn_consume(conn, used);
        if (status == REPLY_PARTIAL) return;
        if (status == REPLY_FAILED) {
            job_over(job, MIGRATE_CANNOT_READ);
            return;
        }
        if (!take_reply(job, &job->reader.value)) return;
        step_begins(job);
    }
}

static void on_closed(struct connection *conn) {
    struct job *job = conn->owner;
    if (!job) return;
    if (!job->opened) {
        bool refused = conn->error == ECONNREFUSED || conn->error == ETIMEDOUT;
        job_over(job, refused ? MIGRATE_CANNOT_WRITE : MIGRATE_CANNOT_CONNECT);
    } else {
        job_over(job, is_writing(job) ? MIGRATE_CANNOT_WRITE : MIGRATE_CANNOT_READ);
    }
}
static const struct connection_events events = {
    .connected = on_connected, .readable = on_readable, .drained = on_drained, .closed = on_closed};

/* --- The beginning --- */

static struct job *job_new(struct call *call, const struct large_migration *large) {
    size_t bytes = 0;
    for (int i = 0; i < large->count; i++) bytes += large->keys[i].len;
    struct job *job = mem_alloc(sizeof *job + bytes);
    *job = (struct job){.client = call->client,
                        .db = db_id(call->db),
                        .copy = large->copy,
                        .replace = large->replace,
                        .on_replica = role_is_replica(),
                        .timeout_ms = large->timeout_ms,
                        .introduction = *large->introduction,
                        .introductions = large->introductions,
                        .count = large->count};
    reply_reader_init(&job->reader);
    memory_output_init(&job->request);
    job->accepted = mem_calloc((size_t)large->count, sizeof *job->accepted);
    job->keys = mem_alloc((size_t)large->count * sizeof *job->keys);
    char *at = job->names;
    for (int i = 0; i < large->count; i++) {
        struct slice name = large->keys[i];
        if (name.len) memcpy(at, name.data, name.len);
        job->keys[i] = (struct moving_key){.job = job, .name = {at, name.len}};
        at += name.len;
    }
    return job;
}

static void wait_is_over(struct barrier_waiter *waiter, bool shown) {
    struct job *job = container_of(waiter, struct job, waiter);
    if (!shown)
        job_over(job, "NOSYNCREPLICAS The keys cannot be sent: this server does not know that they are safe");
    else if (job->conn)
        event_timer_set(server.loop, &job->next, 0, send_next);
    job->shown = shown;
}

void migrate_large_begin(struct call *call, const struct large_migration *large) {
    struct job *job = job_new(call, large);
    list_append(&jobs, &job->link);
    keys_hold(job);
    job->conn = conn_connect(transport_find(tls_for_cluster() ? "tls" : "tcp"), server.loop,
                             &(struct connect_options){.host = large->host,
                                                       .source_host = outgoing_source(),
                                                       .source_optional = true,
                                                       .port = large->port,
                                                       .timeout_ms = (uint32_t)large->timeout_ms,
                                                       .events = &events,
                                                       .owner = job});
    request_begin(job);
    job->shown = !large->waits;
    job->waiter.ended = wait_is_over;
    if (large->waits) reply_barrier_when_shown(&job->waiter);
    event_timer_set(server.loop, &job->next, 0, send_next);
    call_propagate_nothing(call);
    call_block(call, &(struct blocking){.call_at_end = true, .state = job, .ended = wait_ended});
}
