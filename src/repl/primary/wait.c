/* wait.c: WAIT, WAITAOF, and min-replicas-to-write.
 *
 * After each call that has written to the stream or the append-only file, the server records both positions for the
 * client. A transaction or a script counts as one call; WAIT within it waits for earlier calls. WAIT counts the
 * replicas that have acknowledged the recorded offset. If there are too few, the client blocks, and the server sends
 * REPLCONF GETACK, so that the client need not wait for the next regular acknowledgement. Positions are recorded only
 * while there are replicas or an append-only file.
 *
 * Blocked clients are served before the loop waits, not when an acknowledgement arrives, which is within a call of the
 * replica's client. */
#include "repl/primary/wait.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "persistence/aof.h"
#include "repl/feed.h"
#include "repl/primary/replicas.h"
#include "server/clients/blocking.h"
#include "server/command/command.h"
#include "server/command/dispatch.h"
#include "server/command/spec.h"
#include "server/config/config.h"
#include "server/role.h"

static int min_replicas, max_lag;

/* --- What a client has written --- */

struct written {
    struct client *client;
    struct list_link waiting; /* in the list of blocked clients */
    int64_t offset;           /* end of the stream after the client's last write */
    uint64_t appended;        /* commands in the append-only file after it */
};
static struct list waiting = LIST_INIT(waiting);
static int64_t seen_offset;
static uint64_t seen_appended;
static bool acknowledged, asks;
static uint64_t seen_synced;
static bool seen_file; /* the last result of aof_progress(): the file is on, and its first rewrite is done */

static void wait_forget(struct client *client);
static struct client_listener client_listener = {.freed = wait_forget};

static void wait_forget(struct client *client) {
    struct written *written = client_state(client, &client_listener);
    if (!written) return;
    if (list_is_linked(&written->waiting)) list_remove(&waiting, &written->waiting);
    client_set_state(client, &client_listener, NULL);
    mem_free(written);
}

static struct written *written_by(struct client *client) {
    struct written *written = client_state(client, &client_listener);
    if (written) return written;
    written = mem_calloc(1, sizeof *written);
    written->client = client;
    client_set_state(client, &client_listener, written);
    return written;
}

static void note_write(struct call *call, uint64_t ticks) {
    struct aof_progress file = {0};
    if (dispatch_is_nested()) return; /* recorded when the transaction or the script ends */
    aof_progress(&file);
    /* A command that has waited: who serves it may have written for it meanwhile. */
    bool again = call->client->flags & CLIENT_CALLED_AGAIN;
    if (!again && role->position.offset == seen_offset && file.appended == seen_appended) return;
    seen_offset = role->position.offset;
    seen_appended = file.appended;
    if (!call->client->conn || call->client->flags & (CLIENT_PRIMARY | CLIENT_REPLICA)) return;
    struct written *written = written_by(call->client);
    written->offset = seen_offset;
    written->appended = seen_appended;
}
static struct call_listener call_listener = {.after = note_write, .again = true};

/* Listens to calls only while there is something that WAIT or WAITAOF could wait for. */
static void wait_observe(void) {
    struct aof_progress file;
    bool wanted = !role_is_replica() && (repl_stream_active() || aof_progress(&file));
    if (wanted)
        call_listen(&call_listener);
    else
        call_unlisten(&call_listener);
}

/* --- WAIT, WAITAOF --- */

static size_t replicas_at(int64_t offset, bool fsynced) {
    size_t count = 0;
    list_each_entry(&replicas, const struct replica, link, replica)
        count += replica_is_online(replica) && (fsynced ? replica->fsynced : replica->acked) >= offset;
    return count;
}

/* The positions of the client, or of the client that called the script. NULL: it has written nothing. */
static const struct written *written_before(const struct call *call) {
    struct client *requester = call->client->conn ? call->client : dispatch_requester();
    return requester ? client_state(requester, &client_listener) : NULL;
}

static bool must_reply(const struct client *client) {
    return !client->conn || client->flags & CLIENT_DENY_BLOCKING;
}

static void wait_ended(void *client) {
    struct written *written = client_state(client, &client_listener);
    if (written) list_remove(&waiting, &written->waiting);
}

static void wait_more(struct call *call, int64_t timeout_ms) {
    struct written *written = written_by(call->client);
    if (!list_is_linked(&written->waiting)) {
        list_append(&waiting, &written->waiting);
        asks = true;
    }
    call_block(call, &(struct blocking){
                         .timeout_ms = timeout_ms, .call_at_end = true, .state = call->client, .ended = wait_ended});
}

static void wait_run(struct call *call) {
    int64_t wanted, timeout_ms;
    if (role_is_replica()) {
        reply_error(call->reply, "ERR WAIT cannot be used with replica instances. Please also note that if a replica "
                                 "is configured to be writable (which is not the default) writes to replicas are just "
                                 "local and are not propagated.");
        return;
    }
    if (!argument_integer(call, 1, &wanted)) return;
    if (!call_timeout_milliseconds(call, 2, &timeout_ms)) return;
    const struct written *written = written_before(call);
    size_t count = replicas_at(written ? written->offset : 0, false);
    if ((int64_t)count < wanted && !must_reply(call->client)) {
        wait_more(call, timeout_ms);
        return;
    }
    reply_integer(call->reply, (int64_t)count);
}

/* Whether the client's writes are in the append-only file on disk. */
static bool is_local(const struct written *written) {
    struct aof_progress file;
    return aof_progress(&file) && (!written || file.synced >= written->appended);
}

static bool waitaof_parse(struct call *call, int64_t *local, int64_t *wanted, int64_t *timeout_ms) {
    if (!argument_integer(call, 1, local)) return false;
    if (*local < 0 || *local > 1)
        return reply_error(call->reply, "ERR value is out of range, value must between 0 and 1");
    if (!argument_integer(call, 2, wanted)) return false;
    if (*wanted < 0) return reply_error(call->reply, "ERR value is out of range, must be positive");
    return call_timeout_milliseconds(call, 3, timeout_ms);
}

static void waitaof_run(struct call *call) {
    int64_t local, wanted, timeout_ms;
    if (!waitaof_parse(call, &local, &wanted, &timeout_ms)) return;
    if (role_is_replica()) {
        reply_error(call->reply, "ERR WAITAOF cannot be used with replica instances. Please also note that writes to "
                                 "replicas are just local and are not propagated.");
        return;
    }
    if (local && !aof_is_configured()) {
        reply_error(call->reply, "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
        return;
    }
    const struct written *written = written_before(call);
    bool is_synced = is_local(written);
    size_t count = replicas_at(written ? written->offset : 0, true);
    if ((is_synced < local || (int64_t)count < wanted) && !must_reply(call->client)) {
        wait_more(call, timeout_ms);
        return;
    }
    reply_array(call->reply, 2);
    reply_integer(call->reply, is_synced);
    reply_integer(call->reply, (int64_t)count);
}

size_t repl_replicas_at(int64_t offset) {
    return replicas_at(offset, false);
}

void repl_wait_acknowledged(void) {
    acknowledged = true;
}

/* Runs the commands of all blocked clients again if a replica has acknowledged or the append-only file was synced. */
static void wait_serve(void) {
    struct aof_progress file = {0};
    bool counts = aof_progress(&file);
    /* A node that takes over from this one need not have what the clients wait for. Outside of a cluster,
     * repl_end_waits() ends their waits. */
    bool demoted = server.cluster_enabled && role_is_replica();
    if (!demoted && !acknowledged && file.synced == seen_synced && counts == seen_file) return;
    acknowledged = false;
    seen_synced = file.synced;
    seen_file = counts;
    list_each(&waiting, link) blocking_call_again(container_of(link, struct written, waiting)->client);
}

static void wait_before_wait(void) {
    wait_observe();
    if (__builtin_expect(!waiting.len, 1)) return;
    wait_serve();
    if (repl_offset_is_final()) return; /* asks later */
    /* One GETACK after the writes of all clients that blocked in this turn. */
    if (asks && replicas.len) repl_feed_getack();
    asks = false;
}

/* --- min-replicas-to-write --- */

bool repl_min_replicas_set(void) {
    return min_replicas && max_lag;
}

size_t repl_good_replicas(void) {
    int64_t now = clock_mono_ms();
    size_t count = 0;
    list_each_entry(&replicas, const struct replica, link, replica)
        count += replica_is_online(replica) && (now - replica->acked_ms) / 1000 <= max_lag;
    return count;
}

static enum filter_answer wait_refuse_write(struct client *client, const struct command *command, int argc,
                                            const struct slice *argv, const char **error) {
    if (role_is_replica()) return FILTER_PASS;
    if (repl_good_replicas() >= (size_t)min_replicas) return FILTER_PASS;
    *error = "NOREPLICAS Not enough good replicas to write.";
    return FILTER_REFUSE;
}
/* After the filter of synchronous replication, whose error says what to do. */
static struct command_filter filter = {.order = FILTER_REPLICAS + 1, .flags = CMD_WRITE, .ask = wait_refuse_write};

static const char *apply_min_replicas(void) {
    dispatch_set_filter(&filter, repl_min_replicas_set());
    return NULL;
}

static void wait_start(void) {
    apply_min_replicas();
    client_listen(&client_listener);
}

const struct server_part wait_part = {.name = "wait", .start = wait_start, .before_wait = wait_before_wait};

static const char *const wait_tips[] = {"request_policy:all_shards", "response_policy:agg_min", NULL};

const struct command_spec wait_commands[] = {
    {COMMAND("wait", wait_run, 3, CMD_NO_DATA | CMD_BLOCKING, .group = GROUP_GENERIC, "3.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)",
     .summary = "Waits until replicas have acknowledged the connection's writes.",
     .syntax = "numreplicas:integer timeout:integer", .tips = wait_tips},
    {COMMAND("waitaof", waitaof_run, 4, CMD_NO_DATA | CMD_BLOCKING, .group = GROUP_GENERIC, "7.2.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)",
     .summary = "Waits until the connection's writes are on the disk of this server and of replicas.",
     .syntax = "numlocal:integer numreplicas:integer timeout:integer", .tips = wait_tips},
    {.name = NULL},
};

const struct config_option wait_options[] = {
    {OPTION("min-replicas-to-write", CONFIG_INT, &min_replicas, "0"), .alias = "min-slaves-to-write", .min = 0,
     .max = INT32_MAX, .apply = apply_min_replicas},
    {OPTION("min-replicas-max-lag", CONFIG_INT, &max_lag, "10"), .alias = "min-slaves-max-lag", .min = 0,
     .max = INT32_MAX, .apply = apply_min_replicas},
    {.name = NULL},
};
