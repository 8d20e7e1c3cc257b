/* migrate.c: MIGRATE: moves keys to another server.
 *
 * The keys are sent as RESTORE commands with DUMP payloads in one batch; then the replies are read, and each key that
 * the target has accepted is deleted here. The server blocks meanwhile, as Valkey does, for at most the timeout of the
 * call per step: no client sees a key on both servers or on neither. A slow target stalls this server. Slots with much
 * data are better moved by CLUSTER MIGRATESLOTS.
 *
 * With synchronous replication the target must not get a value that may be lost, or that of a replaced primary. While
 * anything waits for the reply barrier, the client waits, and writes are paused, so that the barrier can release all.
 * Then the command is called again. What it sends leaves in pieces, each only while this server may show its data. A
 * transaction or a script cannot wait and gets an error.
 *
 * The connection has its own event loop, so that no client is served while the command waits. The connection is cached
 * for ten seconds for the next call. If a cached connection fails before the target can have executed anything, the
 * call is retried once with a new connection. */
#include "commands/lookup.h"
#include "formats/rdb.h"
#include "lib/structures/linked_list.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "resp/reply_reader.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/listeners.h"
#include "server/clients/reply_barrier.h"
#include "server/command/command.h"
#include "server/command/dispatch.h"
#include "server/command/spec.h"
#include "server/config/tls_options.h"
#include "server/role.h"
#include "server/server.h"
#include "server/stats/stats.h"
#include <errno.h>

enum { KEPT_MAX = 64, KEPT_US = 10 * 1000000, DEFAULT_TIMEOUT_MS = 1000, KEEP_ALIVE_CHECK_US = 1000000 };
enum { PIECE = 256 * 1024, MAY_SHOW_CHECK_MS = 100, RETRY_US = 10 * 1000 }; /* with synchronous replication */
#define CANNOT_CONNECT "IOERR error or timeout connecting to the client"
#define CANNOT_WRITE   "IOERR error or timeout writing to target instance"
#define CANNOT_READ    "IOERR error or timeout reading to target instance"

struct migrate_target {
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

/* A client whose MIGRATE waits for the reply barrier. */
struct barrier_wait {
    struct client *client;
    struct barrier_waiter waiter;
    struct event_timer again;
    bool failed; /* this server does not know that the data are safe */
};
static int barrier_waits; /* while there are any, writes are paused */

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

static void migrate_on_event(struct connection *conn) {}
static const struct connection_events events = {
    .connected = migrate_on_event, .readable = migrate_on_event, .closed = migrate_on_event};

static void target_close(struct migrate_target *target) {
    list_remove(&targets, &target->link);
    stats_migrate_connections = targets.len;
    conn_close(target->conn);
    event_loop_turn(loop, 0); /* frees the connection */
    mem_free(target->host);
    mem_free(target);
}

static uint64_t close_unused(struct event_timer *self) {
    uint64_t now = clock_mono();
    list_each_entry(&targets, struct migrate_target, link, target)
        if (now - target->used_us >= KEPT_US) target_close(target);
    return targets.len ? KEEP_ALIVE_CHECK_US : 0;
}

static struct migrate_target *target_find(const struct migration *m) {
    list_each_entry(&targets, struct migrate_target, link, target) {
        if (target->port == m->port && strcmp(target->host, m->host) == 0 && target->tls == tls_for_cluster())
            return target;
    }
    return NULL;
}

/* NULL: replied with an error. */
static struct migrate_target *target_connect(const struct migration *m) {
    const struct transport *transport = transport_find(tls_for_cluster() ? "tls" : "tcp");
    if (!loop) loop = event_loop_new();
    if (targets.len >= KEPT_MAX) target_close(container_of(list_first(&targets), struct migrate_target, link));
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
        reply_error(m->call->reply, error == -ECONNREFUSED || error == -ETIMEDOUT ? CANNOT_WRITE : CANNOT_CONNECT);
        conn_close(conn);
        event_loop_turn(loop, 0);
        return NULL;
    }
    struct migrate_target *target = mem_alloc(sizeof *target);
    *target = (struct migrate_target){.conn = conn,
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

/* 0: it does not expire. */
static int64_t time_left_ms(const struct entry *entry) {
    int64_t at = entry_expire_at(entry);
    if (at < 0) return 0;
    return at > clock_data_ms() ? at - clock_data_ms() : 1;
}

static void write_requests(struct migration *m) {
    char text[NUMBER_TEXT_MAX];
    struct memory_output payload = MEMORY_OUTPUT_INIT;
    for (int i = 0; i < m->found; i++) {
        struct slice key = m->call->argv[m->keys[i]];
        const struct entry *entry = db_find(m->call->db, key, LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE);
        memory_output_clear(&payload);
        dump_write(&payload.out, entry, db_id(m->call->db));
        struct slice argv[] = {server.cluster_enabled ? SLICE("RESTORE-ASKING") : SLICE("RESTORE"),
                               key,
                               {text, format_int64(text, time_left_ms(entry))},
                               memory_output_slice(&payload),
                               SLICE("REPLACE")};
        request_write(&m->requests.out, m->replace ? 5 : 4, argv);
    }
    memory_output_free(&payload);
}

/* --- Synchronous replication --- */

static bool paused_otherwise(void) {
    for (enum pause_reason i = 0; i < PAUSE_REASONS; i++)
        if (i != PAUSE_MIGRATE && clients_paused_for(i)) return true;
    return false;
}

static uint64_t barrier_call_again(struct event_timer *again) {
    struct barrier_wait *wait = container_of(again, struct barrier_wait, again);
    if (dispatch_running() || server_is_loading() || paused_otherwise()) return RETRY_US;
    blocking_call_again(wait->client);
    return 0;
}

static void barrier_ended(struct barrier_waiter *waiter, bool shown) {
    struct barrier_wait *wait = container_of(waiter, struct barrier_wait, waiter);
    wait->failed = !shown;
    event_timer_set(server.loop, &wait->again, 0, barrier_call_again);
}

static void barrier_wait_ended(void *state) {
    struct barrier_wait *wait = state;
    reply_barrier_forget(&wait->waiter);
    event_timer_cancel(server.loop, &wait->again);
    mem_free(wait);
    if (--barrier_waits == 0) clients_unpause(PAUSE_MIGRATE);
}

/* The command is called again when everything that was executed before is released, or when its time is up. On a
 * replica writes are those of its primary, which are not paused. */
static void wait_for_barrier(struct migration *m) {
    struct barrier_wait *wait = call_wait(m->call, barrier_wait_ended);
    if (!wait) {
        wait = mem_calloc(1, sizeof *wait);
        wait->client = m->call->client;
        wait->waiter.ended = barrier_ended;
        barrier_waits++;
        if (!role_is_replica()) clients_pause(PAUSE_MIGRATE, PAUSE_WRITE, clock_mono_ms() + m->timeout_ms);
    }
    reply_barrier_when_shown(&wait->waiter);
    call_propagate_nothing(m->call);
    call_block(m->call, &(struct blocking){.timeout_ms = m->timeout_ms,
                                           .call_at_end = true,
                                           .changes_later = true,
                                           .state = wait,
                                           .ended = barrier_wait_ended});
}

/* What is sent becomes a write of the target, whenever the target reads it. By then another server may lead and have
 * given the target a newer value. So each piece leaves only while this server may show its data. */
static int send_guarded(struct connection *conn, struct slice requests, int64_t timeout_ms) {
    int64_t end = clock_monotonic_ms() + timeout_ms;
    int error = 0;
    while (!error && (requests.len || conn_pending(conn) > 0)) {
        if (!reply_barrier_may_show()) return -ECANCELED;
        if (conn_pending(conn) == 0) {
            size_t len = requests.len < PIECE ? requests.len : PIECE;
            output_write(&conn->out, (struct slice){requests.data, len});
            requests = (struct slice){requests.data + len, requests.len - len};
            end = clock_monotonic_ms() + timeout_ms;
        }
        error = conn_wait_drained(conn, MAY_SHOW_CHECK_MS);
        if (error == -ETIMEDOUT && clock_monotonic_ms() < end) error = 0;
    }
    return error;
}

/* --- The replies --- */

/* 0, or a negative errno. */
static int read_reply(const struct migration *m, struct migrate_target *target, struct reply_reader *reader) {
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

/* Reads all replies; `others`: those before the keys'. Returns 0 or a negative errno. *refused: the target replied with
 * an error, which was sent to the client. */
static int read_replies(struct migration *m, struct migrate_target *target, int others, bool *refused, bool *any) {
    struct reply_reader reader;
    int error = 0;
    reply_reader_init(&reader);
    for (int i = 0; i < others + m->found && !error; i++) {
        error = read_reply(m, target, &reader);
        if (error) break;
        *any = true;
        if (reader.value.type == RESP_ERROR) {
            struct slice text = reader.value.text;
            if (!*refused)
                reply_error_format(m->call->reply, "ERR Target instance replied with error: %.*s", shown_len(text),
                                   text.data);
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

/* One attempt. False: a cached connection was closed before anything was read from it. */
static bool attempt(struct migration *m, bool may_retry) {
    struct migrate_target *target = target_find(m);
    bool kept = target != NULL, refused = false, any = false;
    if (!target && !(target = target_connect(m))) return true;
    target->used_us = clock_mono();
    if (m->guarded && !reply_barrier_may_show()) { /* connecting has taken long */
        wait_for_barrier(m);
        return true;
    }
    int others = write_introduction(m, &target->conn->out, target->db != m->db), error;
    if (m->guarded) {
        error = send_guarded(target->conn, memory_output_slice(&m->requests), m->timeout_ms);
    } else {
        output_write(&target->conn->out, memory_output_slice(&m->requests));
        error = conn_wait_drained(target->conn, m->timeout_ms);
    }
    bool writing = error != 0;
    if (!error) error = read_replies(m, target, others, &refused, &any);
    if (error || refused) {
        /* After an error later replies may be missing, or another database may be selected. */
        target->conn->drops_output = true;
        target_close(target);
    } else {
        target->db = m->db;
    }
    if (error && kept && may_retry && !any && error != -ETIMEDOUT && error != -ECANCELED) return false;
    delete_moved(m);
    if (error && !refused)
        reply_error(m->call->reply, writing ? CANNOT_WRITE : CANNOT_READ);
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
            if (call->argv[3].len)
                return reply_error(call->reply,
                                   "ERR When using MIGRATE KEYS option, the key argument must be set to the "
                                   "empty string");
            m->first_key = i + 1;
            m->key_count = more;
            break;
        } else {
            return reply_syntax_error(call->reply);
        }
    }
    if (!argument_int64(call, 5, &m->timeout_ms) || !argument_int64(call, 4, &m->db)) return false;
    if (m->timeout_ms <= 0) m->timeout_ms = DEFAULT_TIMEOUT_MS;
    if (m->timeout_ms > INT32_MAX) m->timeout_ms = INT32_MAX;
    return true;
}

static void migrate_run(struct call *call) {
    struct migration m = {.call = call, .first_key = 3, .key_count = 1};
    if (!options_read(&m)) return;
    bool can_wait = call->client->conn && !(call->client->flags & CLIENT_DENY_BLOCKING);
    const struct barrier_wait *wait = call_wait(call, barrier_wait_ended);
    if (wait && (wait->failed || !can_wait)) {
        call_propagate_nothing(call);
        reply_error(call->reply, can_wait ? "NOSYNCREPLICAS The keys cannot be sent: this server does not know that "
                                            "they are safe"
                                          : CANNOT_WRITE);
        return;
    }
    m.guarded = reply_barrier_armed && reply_barrier_guards();
    if (m.guarded && (dispatch_is_nested() || !can_wait)) {
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
    if (m.guarded && !reply_barrier_shows_now()) {
        wait_for_barrier(&m);
    } else {
        write_requests(&m);
        if (!attempt(&m, true)) attempt(&m, false);
    }
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
    {COMMAND("migrate", migrate_run, -6, CMD_WRITE, .group = GROUP_GENERIC, "2.6.0"),
     .categories = CAT_KEYSPACE | CAT_DANGEROUS,
     .complexity = "Of DUMP and DEL here and of RESTORE on the target, for each key; O(N) for the bytes that are sent.",
     .summary = "Moves keys to another server.",
     .syntax = "host:string port:integer key-selector(key:key|empty-string=\"\") destination-db:integer "
               "timeout:integer [copy=COPY@3.0.0] [replace=REPLACE@3.0.0] [authentication(AUTH "
               "auth:string\"password\"@4.0.7|AUTH2 auth2{username:string password:string}@6.0.0)] [KEYS "
               "keys:key(#1)\"key\"@3.0.6...]",
     .history = WORDS("3.0.0", "`COPY` and `REPLACE`.", "3.0.6", "`KEYS`.", "4.0.7", "`AUTH`.", "6.0.0", "`AUTH2`."),
     .tips = WORDS("nondeterministic_output"), .find_keys = find_keys,
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
