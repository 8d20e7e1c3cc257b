/* database.c: commands on whole databases: DBSIZE, FLUSHDB, FLUSHALL, SWAPDB. */
#include "commands/flush_mode.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"
#include "server/server.h"
#include "server/server_events.h"
#include <limits.h>

static void dbsize_run(struct call *call) {
    reply_integer(call->reply, (int64_t)db_size(call->db));
}

static bool flush_options_read(struct call *call, bool *lazy) {
    if (flush_mode_read(call, 1, lazy)) return true;
    return reply_syntax_error(call->reply);
}

/* A flush is propagated even if the data set was empty: a replica may have other data. A flush in the foreground has
 * already spent time on each key, so it also returns the memory to the kernel immediately. */
static void flush_done(struct call *call, bool lazy) {
    if (!lazy) mem_purge();
    call_propagate(call, call->argc, call->argv);
    reply_ok(call->reply);
}

static void flushdb_run(struct call *call) {
    bool lazy;
    if (!flush_options_read(call, &lazy)) return;
    struct flush_event event = {!lazy, db_id(call->db)};
    server_event(EVENT_FLUSHDB, 0, &event);
    call->dirty += db_flush(call->db, lazy);
    server_event(EVENT_FLUSHDB, 1, &event);
    flush_done(call, lazy);
}

static void flushall_run(struct call *call) {
    bool lazy;
    if (!flush_options_read(call, &lazy)) return;
    call->dirty += server_flush_all(lazy);
    server.dirty += call->dirty; /* immediately, for a snapshot of the empty data set */
    call->dirty = 0;
    server_flushed_all();
    flush_done(call, lazy);
}

static bool swap_index_read(struct call *call, int index, const char *error, int *id) {
    int64_t value;
    if (!parse_int64(call->argv[index], &value) || value < INT_MIN || value > INT_MAX)
        return reply_error(call->reply, error);
    *id = (int)value;
    return true;
}

static void swapdb_run(struct call *call) {
    int first, second;
    if (server.cluster_enabled) {
        reply_error(call->reply, "ERR SWAPDB is not allowed in cluster mode");
        return;
    }
    if (!swap_index_read(call, 1, "ERR invalid first DB index", &first) ||
        !swap_index_read(call, 2, "ERR invalid second DB index", &second))
        return;
    struct db *a = keyspace_db(server.keyspace, first), *b = keyspace_db(server.keyspace, second);
    if (!a || !b) {
        reply_no_such_db(call->reply);
        return;
    }
    if (a != b) db_swap(a, b);
    call->dirty++;
    reply_ok(call->reply);
}

#define FLUSH_SYNTAX  "[flush-type(ASYNC@4.0.0|SYNC@6.2.0)]"
#define FLUSH_HISTORY WORDS("4.0.0", "The option `ASYNC`.", "6.2.0", "The option `SYNC`.")
#define FLUSH_TIPS    WORDS("request_policy:all_shards", "response_policy:all_succeeded")

const struct command_spec database_commands[] = {
    {COMMAND("dbsize", dbsize_run, 1, CMD_READONLY | CMD_FAST, .group = GROUP_SERVER, "1.0.0"),
     .categories = CAT_KEYSPACE, .complexity = "O(1)", .summary = "Returns the number of keys in the database.",
     .syntax = "", .tips = WORDS("request_policy:all_shards", "response_policy:agg_sum")},
    {COMMAND("flushdb", flushdb_run, -1, CMD_WRITE, .group = GROUP_SERVER, "1.0.0"),
     .categories = CAT_KEYSPACE | CAT_DANGEROUS, .complexity = "O(N) where N is the number of keys in the database.",
     .summary = "Deletes all keys of the database.", .syntax = FLUSH_SYNTAX, .history = FLUSH_HISTORY,
     .tips = FLUSH_TIPS},
    {COMMAND("flushall", flushall_run, -1, CMD_WRITE | CMD_ALL_DATABASES, .group = GROUP_SERVER, "1.0.0"),
     .categories = CAT_KEYSPACE | CAT_DANGEROUS, .complexity = "O(N) where N is the number of keys in all databases.",
     .summary = "Deletes all keys of all databases.", .syntax = FLUSH_SYNTAX, .history = FLUSH_HISTORY,
     .tips = FLUSH_TIPS},
    {COMMAND("swapdb", swapdb_run, 3, CMD_WRITE | CMD_FAST, .group = GROUP_SERVER, "4.0.0"),
     .categories = CAT_KEYSPACE | CAT_DANGEROUS,
     .complexity = "O(N) where N is the number of clients that watch keys or block on keys of the two databases.",
     .summary = "Exchanges the contents of two databases.", .syntax = "index1:integer index2:integer"},
    {.name = NULL},
};
