/* migrate.c: MIGRATE: moves keys to another server.
 *
 * The keys are sent as RESTORE commands with DUMP payloads in one batch; then the replies are read, and each key that
 * the target has accepted is deleted here. The server blocks meanwhile, as Valkey does, for at most the timeout of the
 * call per step: no client sees a key on both servers or on neither. A slow target stalls this server. A large request
 * goes another way, if the client can wait: migrate_large.h.
 *
 * The connection has its own event loop, so that no client is served while the command waits. The connection is cached
 * for ten seconds for the next call. If a cached connection fails before the target can have executed anything, the
 * call is retried once with a new connection. */
#include "commands/commands.h"
#include "commands/lookup.h"
#include "commands/migrate_large.h"
#include "commands/spec.h"
#include "formats/rdb.h"
#include "lib/structures/linked_list.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "resp/reply_reader.h"
#include "server/clients/listeners.h"
#include "server/clients/reply_barrier.h"
#include "server/command/dispatch.h"
#include "server/config/tls_options.h"
#include "server/server.h"
#include "server/stats/stats.h"
#include <errno.h>

enum { KEPT_MAX = 64, KEPT_US = 10 * 1000000, DEFAULT_TIMEOUT_MS = 1000, KEEP_ALIVE_CHECK_US = 1000000 };

struct target {
    struct list_link link;
    struct connection *conn;
    char *host;
    int port;
    bool tls;
    int64_t db; /* selected there; -1: unknown */
    uint64_t used_us;
};
static struct list targets = LIST_INIT(targets);
static struct event_loop *loop;
static struct event_timer timer;

struct migration {
    struct call *call;
    char *host;
    int port;
    int64_t db, timeout_ms;
    bool copy, replace, guarded; /* guarded: the keys may be those of a replaced primary */
    int user, password;          /* indices of arguments; 0: not given */
    int first_key, key_count;
    /* The keys that exist: keys[i] is the argument, done[i] whether the target has accepted it. `moved` counts the
     * accepted keys. */
    int *keys, found, moved;
    bool *done;
    struct memory_output requests; /* RESTORE for each of them */
};

/* --- Connections --- */

static void on_event(struct connection *conn) {}
static const struct connection_events events = {.connected = on_event, .readable = on_event, .closed = on_event};

static void target_close(struct target *target) {
    list_remove(&targets, &target->link);
    stats_migrate_connections = targets.len;
    conn_close(target->conn);
    event_loop_turn(loop, 0); /* frees the connection */
    mem_free(target->host);
    mem_free(target);
}

static uint64_t close_unused(struct event_timer *self) {
    uint64_t now = clock_mono();
    list_each(&targets, link) {
        struct target *target = container_of(link, struct target, link);
        if (now - target->used_us >= KEPT_US) target_close(target);
    }
    return targets.len ? KEEP_ALIVE_CHECK_US : 0;
}

static struct target *target_find(const struct migration *m) {
    list_each(&targets, link) {
        struct target *target = container_of(link, struct target, link);
        if (target->port == m->port && strcmp(target->host, m->host) == 0 && target->tls == tls_for_cluster())
            return target;
    }
    return NULL;
}

/* NULL: replied with an error. */
static struct target *target_connect(const struct migration *m) {
    const struct transport *transport = transport_find(tls_for_cluster() ? "tls" : "tcp");
    if (!loop) loop = event_loop_new();
    if (targets.len >= KEPT_MAX) target_close(container_of(list_first(&targets), struct target, link));
    struct connection *conn = conn_connect(transport, loop,
                                           &(struct connect_options){.host = m->host,
                                                                     .source_host = outgoing_source(),
                                                                     .source_optional = true,
                                                                     .port = m->port,
                                                                     .timeout_ms = (uint32_t)m->timeout_ms,
                                                                     .events = &events});
    int error = conn_wait_open(conn, m->timeout_ms);
    if (error) {
        /* The error texts of Valkey, where a failed connection attempt is reported by the first write. */
        reply_error(m->call->reply,
                    error == -ECONNREFUSED || error == -ETIMEDOUT ? MIGRATE_CANNOT_WRITE : MIGRATE_CANNOT_CONNECT);
        conn_close(conn);
        event_loop_turn(loop, 0);
        return NULL;
    }
    struct target *target = mem_alloc(sizeof *target);
    *target = (struct target){.conn = conn,
                              .host = mem_strndup(m->host, strlen(m->host)),
                              .port = m->port,
                              .tls = tls_for_cluster(),
                              .db = -1};
    list_append(&targets, &target->link);
    stats_migrate_connections = targets.len;
    if (!timer.heap_index) event_timer_set(server.loop, &timer, KEEP_ALIVE_CHECK_US, close_unused);
    return target;
}

/* --- The request --- */

/* AUTH and SELECT. Returns their number. */
static int write_introduction(const struct migration *m, struct output *out, bool select) {
    char text[NUMBER_TEXT_MAX];
    if (m->password) {
        struct slice argv[] = {SLICE("AUTH"), m->user ? m->call->argv[m->user] : m->call->argv[m->password],
                               m->call->argv[m->password]};
        request_write(out, m->user ? 3 : 2, argv);
    }
    if (select) {
        struct slice argv[] = {SLICE("SELECT"), {text, format_int64(text, m->db)}};
        request_write(out, 2, argv);
    }
    return (m->password != 0) + select;
}

/* False: they have more than `most` bytes. */
static bool write_requests(struct migration *m, size_t most) {
    enum { STEP = 64 };
    char text[NUMBER_TEXT_MAX];
    struct memory_output payload;
    size_t len = 0;
    memory_output_init(&payload);
    for (int i = 0; i < m->found && len <= most; i++) {
        struct slice key = m->call->argv[m->keys[i]];
        const struct entry *entry = db_find(m->call->db, key, LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE);
        struct dump_steps dump = {0};
        memory_output_clear(&payload);
        if (entry_type(entry) == TYPE_STRING && entry_string_len(entry) > most) len = SIZE_MAX;
        while (len <= most && !dump_write_some(&dump, &payload, entry, STEP))
            if (memory_output_slice(&payload).len > most) len = SIZE_MAX;
        if (len > most) break;
        struct slice argv[] = {server.cluster_enabled ? SLICE("RESTORE-ASKING") : SLICE("RESTORE"),
                               key,
                               {text, format_int64(text, migrate_time_left(entry))},
                               memory_output_slice(&payload),
                               SLICE("REPLACE")};
        request_write(&m->requests.out, m->replace ? 5 : 4, argv);
        len = memory_output_slice(&m->requests).len;
    }
    memory_output_free(&payload);
    return len <= most;
}

/* --- The replies --- */

/* 0, or a negative errno. */
static int read_reply(const struct migration *m, struct target *target, struct reply_reader *reader) {
    uint64_t end = clock_monotonic_us() + (uint64_t)m->timeout_ms * 1000;
    for (;;) {
        size_t used;
        enum reply_status status = reply_read(reader, conn_peek(target->conn), &used);
        conn_consume(target->conn, used);
        if (status == REPLY_FAILED) return -EPROTO;
        if (status == REPLY_READY) return 0;
        uint64_t now = clock_monotonic_us();
        if (now >= end) return -ETIMEDOUT;
        int error = conn_wait_readable(target->conn, 0, (int64_t)((end - now) / 1000 + 1));
        if (error) return error;
    }
}

static void reply_target_error(struct reply *reply, struct slice text) {
    reply_error_format(reply, MIGRATE_REFUSED, shown_len(text), text.data);
}

/* Reads all replies; `others`: those before the keys'. Returns 0 or a negative errno. *refused: the target replied with
 * an error, which was sent to the client. */
static int read_replies(struct migration *m, struct target *target, int others, bool *refused, bool *any) {
    struct reply_reader reader;
    int error = 0;
    reply_reader_init(&reader);
    for (int i = 0; i < others + m->found && !error; i++) {
        error = read_reply(m, target, &reader);
        if (error) break;
        *any = true;
        if (reader.value.type == RESP_ERROR) {
            if (!*refused) reply_target_error(m->call->reply, reader.value.text);
            *refused = true;
            if (i < others) break; /* without AUTH or SELECT the keys may be anywhere: nothing is deleted */
        } else if (i >= others) {
            m->done[i - others] = true;
            m->moved++;
        }
    }
    reply_reader_free(&reader);
    return error;
}

static void delete_moved(struct migration *m) {
    struct call *call = m->call;
    if (m->copy || !m->moved) {
        call_propagate_nothing(call);
        return;
    }
    struct slice *argv = mem_alloc(((size_t)m->moved + 1) * sizeof *argv);
    int argc = 0;
    argv[argc++] = SLICE("DEL");
    for (int i = 0; i < m->found; i++) {
        if (!m->done[i]) continue;
        struct slice key = call->argv[m->keys[i]];
        if (!db_delete(call->db, key, false)) continue; /* the key was given twice */
        notify(call->db, NOTIFY_GENERIC, "del", key);
        call->dirty++;
        argv[argc++] = key;
    }
    call_propagate(call, argc, argv);
    mem_free(argv);
}

static void begin_large(struct migration *m, bool waits);

/* One attempt. False: a cached connection was closed before anything was read from it. */
static bool attempt(struct migration *m, bool may_retry) {
    struct target *target = target_find(m);
    bool kept = target != NULL, refused = false, any = false;
    if (!target && !(target = target_connect(m))) return true;
    target->used_us = clock_mono();
    if (m->guarded && !reply_barrier_may_show()) { /* connecting has taken long */
        begin_large(m, true);
        return true;
    }
    int others = write_introduction(m, &target->conn->out, target->db != m->db);
    output_write(&target->conn->out, memory_output_slice(&m->requests));
    int error = conn_wait_drained(target->conn, m->timeout_ms);
    bool writing = error != 0;
    if (!error) error = read_replies(m, target, others, &refused, &any);
    if (error || refused) {
        /* After an error later replies may be missing, or another database may be selected. */
        target_close(target);
    } else {
        target->db = m->db;
    }
    if (error && kept && may_retry && !any && error != -ETIMEDOUT) return false;
    delete_moved(m);
    if (error && !refused)
        reply_error(m->call->reply, writing ? MIGRATE_CANNOT_WRITE : MIGRATE_CANNOT_READ);
    else if (!refused)
        reply_ok(m->call->reply);
    return true;
}

/* --- The command --- */

static bool options_read(struct migration *m) {
    struct call *call = m->call;
    for (int i = 6; i < call->argc; i++) {
        int more = call->argc - 1 - i;
        if (slice_is(call->argv[i], "copy")) {
            m->copy = true;
        } else if (slice_is(call->argv[i], "replace")) {
            m->replace = true;
        } else if (slice_is(call->argv[i], "auth") && more) {
            m->user = 0;
            call_redact(call, m->password = ++i);
        } else if (slice_is(call->argv[i], "auth2") && more > 1) {
            call_redact(call, m->user = ++i);
            call_redact(call, m->password = ++i);
        } else if (slice_is(call->argv[i], "keys")) {
            if (call->argv[3].len) {
                reply_error(call->reply, "ERR When using MIGRATE KEYS option, the key argument must be set to the "
                                         "empty string");
                return false;
            }
            m->first_key = i + 1;
            m->key_count = more;
            break;
        } else {
            reply_syntax_error(call->reply);
            return false;
        }
    }
    if (!argument_int64(call, 5, &m->timeout_ms) || !argument_int64(call, 4, &m->db)) return false;
    if (m->timeout_ms <= 0) m->timeout_ms = DEFAULT_TIMEOUT_MS;
    if (m->timeout_ms > INT32_MAX) m->timeout_ms = INT32_MAX;
    return true;
}

/* The client waits. */
static void begin_large(struct migration *m, bool waits) {
    struct memory_output introduction;
    struct slice *keys = mem_alloc((size_t)m->found * sizeof *keys);
    for (int i = 0; i < m->found; i++) keys[i] = m->call->argv[m->keys[i]];
    memory_output_init(&introduction);
    int introductions = write_introduction(m, &introduction.out, true);
    migrate_large_begin(m->call, &(struct large_migration){.host = m->host,
                                                           .port = m->port,
                                                           .timeout_ms = m->timeout_ms,
                                                           .copy = m->copy,
                                                           .replace = m->replace,
                                                           .waits = waits,
                                                           .count = m->found,
                                                           .keys = keys,
                                                           .introductions = introductions,
                                                           .introduction = &introduction});
    mem_free(keys);
}

static void migrate_run(struct call *call) {
    struct migration m = {.call = call, .first_key = 3, .key_count = 1};
    if (!options_read(&m)) return;
    if (migrate_large_again(call)) return;
    m.guarded = reply_barrier_armed && reply_barrier_guards();
    if (m.guarded && (dispatch_is_nested() || !migrate_large_possible(call))) {
        reply_error(call->reply, "ERR With synchronous replication MIGRATE may have to wait: it cannot be called in a "
                                 "transaction or a script");
        return;
    }
    m.keys = mem_alloc(((size_t)m.key_count + 1) * sizeof *m.keys);
    for (int i = 0; i < m.key_count; i++)
        if (find_read(call, call->argv[m.first_key + i])) m.keys[m.found++] = m.first_key + i;
    if (!m.found) {
        mem_free(m.keys);
        reply_status(call->reply, "NOKEY");
        return;
    }
    int64_t port;
    if (!parse_int64(call->argv[2], &port) || port < 0 || port > UINT16_MAX)
        port = 0; /* connecting then fails, as in Valkey */
    m.port = (int)port;
    m.host = mem_strndup(call->argv[1].data, call->argv[1].len);
    m.done = mem_calloc((size_t)m.found, sizeof *m.done);
    memory_output_init(&m.requests);
    if (m.guarded && !reply_barrier_shows_now())
        begin_large(&m, true);
    else if (!write_requests(&m, migrate_large_possible(call) ? MIGRATE_LARGE_MIN : SIZE_MAX))
        begin_large(&m, false);
    else if (!attempt(&m, true))
        attempt(&m, false);
    memory_output_free(&m.requests);
    mem_free(m.done);
    mem_free(m.host);
    mem_free(m.keys);
}

/* If the key is empty, the keys follow KEYS. */
static int find_keys(const struct command *command, int argc, const struct slice *argv, struct key_position *positions,
                     int max) {
    const uint32_t flags = KEY_RW | KEY_ACCESS | KEY_DELETE;
    int count = 0;
    if (argc <= 3) return -1;
    if (argv[3].len) {
        if (max > 0) positions[0] = (struct key_position){3, flags};
        return 1;
    }
    for (int i = 6; i < argc; i++) {
        if (slice_is(argv[i], "auth"))
            i++;
        else if (slice_is(argv[i], "auth2"))
            i += 2;
        else if (slice_is(argv[i], "keys"))
            while (++i < argc) {
                if (count < max) positions[count] = (struct key_position){i, flags};
                count++;
            }
    }
    return count;
}

const struct command_spec migrate_commands[] = {
    {.name = "migrate",
     .run = migrate_run,
     .arity = -6,
     .flags = CMD_WRITE,
     .categories = CAT_KEYSPACE | CAT_DANGEROUS,
     .group = GROUP_GENERIC,
     .since = "2.6.0",
     .complexity = "Of DUMP and DEL here and of RESTORE on the target, for each key; O(N) for the bytes that are sent.",
     .summary = "Moves keys to another server.",
     .syntax = "host:string port:integer key-selector(key:key|empty-string=\"\") destination-db:integer "
               "timeout:integer [copy=COPY@3.0.0] [replace=REPLACE@3.0.0] [authentication(AUTH "
               "auth:string\"password\"@4.0.7|AUTH2 auth2{username:string password:string}@6.0.0)] [KEYS "
               "keys:key(#1)\"key\"@3.0.6...]",
     .history = WORDS("3.0.0", "`COPY` and `REPLACE`.", "3.0.6", "`KEYS`.", "4.0.7", "`AUTH`.", "6.0.0", "`AUTH2`."),
     .tips = WORDS("nondeterministic_output"),
     .find_keys = find_keys,
     .keys = {KEY_RANGE(3, 0, 1, KEY_RW | KEY_ACCESS | KEY_DELETE),
              {.flags = KEY_RW | KEY_ACCESS | KEY_DELETE | KEY_INCOMPLETE,
               .begin = BEGIN_KEYWORD,
               .keyword = "KEYS",
               .index = -2,
               .find = FIND_RANGE,
               .a = -1,
               .b = 1}}},
    {.name = NULL},
};
