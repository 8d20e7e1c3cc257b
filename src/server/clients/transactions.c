/* transactions.c: MULTI, EXEC, DISCARD, WATCH, UNWATCH. See transactions.h; the watched keys are in watch.c. */
#include "server/clients/transactions.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/blob.h"
#include "lib/text/number.h"
#include "server/clients/client_private.h"
#include "server/clients/user.h"
#include "server/command/command.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/command/spec.h"
#include "server/feature.h"
#include "server/role.h"
#include "server/server.h"
#include <stdio.h>

/* What a queued command counts besides its arguments in multi-mem and for client-query-buffer-limit, as in Valkey. */
enum { QUEUED_HEAD = 24 };

/* A command that waits for EXEC. Small arguments are stored behind argv, large ones in blobs. */
struct transaction_command {
    struct transaction_command *next;
    struct command *command;
    int argc;
    uint32_t blob_count;
    int slot;         /* see struct call */
    size_t wire_size; /* bytes of the request */
    struct queued_blob {
        int index;
        struct blob *blob;
    } * blobs;
    struct slice argv[];
};
struct transaction {
    struct transaction_command *first, **last;
    struct transaction_command *runs; /* the command that EXEC is executing */
    const struct command *exec;
    bool running; /* EXEC owns it */
    bool dirty;   /* a command was refused while it was queued: it will not run */
    bool runs_scripts;
    int count;
    uint32_t flags;           /* command flags of all queued commands, without those that permit something */
    int slot;                 /* transaction_slot() */
    uint32_t lacks;           /* CMD_STALE or CMD_LOADING that one of them does not have */
    struct db *db;            /* in which the next one will run; NULL: the client's */
    size_t memory, arguments; /* in all; bytes of the arguments of the queued commands */
};

static void transaction_drop(struct client *client);
static void client_reported(const struct client *client, struct client_report *report);
static struct client_listener client_listener = {
    .freed = transaction_drop, .reset = transaction_drop, .report = client_reported};
static size_t open_count;

static struct transaction *transaction_of(const struct client *client) {
    return client_state(client, &client_listener);
}

/* The client's open transaction, or NULL. */
static struct transaction *transaction_opened(const struct client *client) {
    struct transaction *t = transaction_of(client);
    return t && !t->running ? t : NULL;
}

int transaction_queued(const struct client *client) {
    const struct transaction *t = transaction_opened(client);
    return t ? t->count : -1;
}

/* Adds what a queued command is to the flags of all. Returns its own. */
static uint32_t flags_add(const struct transaction_command *queued, uint32_t *all, uint32_t *lacks) {
    enum { PERMITS = CMD_STALE | CMD_LOADING };
    uint32_t flags = command_call_flags(queued->command, queued->argv);
    *all |= flags & ~(uint32_t)(PERMITS | CMD_RUNS_SCRIPT);
    if (flags & CMD_RUNS_SCRIPT) *all |= CMD_SHOWS_DATA;
    *lacks |= ~flags & PERMITS;
    return flags;
}

uint32_t transaction_flags(const struct client *client, uint32_t own) {
    const struct transaction *t = transaction_opened(client);
    if (!t) return own;
    uint32_t all = t->flags, lacks = t->lacks;
    /* A function may have been replaced since its call was queued, by one that writes. */
    for (const struct transaction_command *queued = t->runs_scripts ? t->first : NULL; queued; queued = queued->next)
        flags_add(queued, &all, &lacks);
    /* Whether it is executed shows if the keys have changed. */
    if (watch_count(client) || client->flags & CLIENT_DIRTY_WATCH) all |= CMD_SHOWS_DATA;
    return (own & ~lacks) | all;
}

int transaction_slot(const struct client *client) {
    const struct transaction *t = transaction_opened(client);
    return t ? t->slot : -1;
}

void transaction_each(const struct client *client,
                      void (*visit)(void *context, const struct command *command, int argc, const struct slice *argv),
                      void *context) {
    const struct transaction *t = transaction_opened(client);
    for (const struct transaction_command *queued = t ? t->first : NULL; queued; queued = queued->next)
        visit(context, queued->command, queued->argc, queued->argv);
}

struct db *transaction_db(const struct client *client) {
    const struct transaction *t = transaction_opened(client);
    return t && t->db ? t->db : client->db;
}

bool transaction_runs(const struct client *client) {
    const struct transaction *t = transaction_of(client);
    return t && t->running;
}

const struct command *transaction_exec(const struct client *client) {
    return transaction_runs(client) ? transaction_of(client)->exec : NULL;
}

static void client_reported(const struct client *client, struct client_report *report) {
    const struct transaction *t = transaction_of(client);
    report->queued_commands = t->count;
    report->queued_memory = t->arguments + (size_t)t->count * QUEUED_HEAD;
    report->memory += t->memory;
}

/* --- The queue --- */

static enum filter_answer refuse_ask(struct client *client, const struct command *command, int argc,
                                     const struct slice *argv, const char **error) {
    static char text[96];
    if (!transaction_opened(client)) return FILTER_PASS;
    snprintf(text, sizeof text, "ERR Command '%s' not allowed inside a transaction", command->full_name);
    *error = text;
    return FILTER_REFUSE;
}

static void enqueue(struct client *client, struct command *command, int argc, const struct slice *argv) {
    struct transaction *t = transaction_of(client);
    bool own = argv == client->reader.argv;
    size_t bytes = 0;
    for (int i = 0; i < argc; i++) bytes += argv[i].len < REQUEST_LARGE_MIN ? argv[i].len : 0;
    struct transaction_command *queued = mem_alloc(sizeof *queued + (size_t)argc * sizeof *argv + bytes);
    char *at = (char *)&queued->argv[argc];
    *queued = (struct transaction_command){.command = command,
                                           .argc = argc,
                                           .slot = client->slot,
                                           .wire_size = own ? request_wire_size(&client->reader) : bytes};
    for (int i = 0; i < argc; i++) {
        struct slice word = argv[i];
        t->arguments += word.len;
        if (word.len >= REQUEST_LARGE_MIN) {
            struct blob *blob = own ? request_take_blob(&client->reader, i) : NULL;
            if (!blob) blob = blob_copy(word);
            queued->blobs = mem_realloc(queued->blobs, (queued->blob_count + 1) * sizeof *queued->blobs);
            queued->blobs[queued->blob_count++] = (struct queued_blob){i, blob};
            queued->argv[i] = blob_slice(blob);
            t->memory += blob->capacity;
        } else {
            if (word.len) memcpy(at, word.data, word.len);
            queued->argv[i] = (struct slice){at, word.len};
            at += word.len;
        }
    }
    *t->last = queued;
    t->last = &queued->next;
    t->memory += mem_size(queued);
    t->count++;
    if (queued->slot >= 0) t->slot = t->slot == -1 || t->slot == queued->slot ? queued->slot : -2;
    if (flags_add(queued, &t->flags, &t->lacks) & CMD_RUNS_SCRIPT) t->runs_scripts = true;
    int64_t db;
    if (strcmp(command->spec->name, "select") == 0 && parse_int64(argv[1], &db) && db >= 0 &&
        db < keyspace_databases(server.keyspace))
        t->db = keyspace_db(server.keyspace, (int)db);
}

static enum filter_answer queue_ask(struct client *client, const struct command *command, int argc,
                                    const struct slice *argv, const char **error) {
    const struct transaction *t = transaction_opened(client);
    if (!t || command->spec->flags & CMD_NOT_QUEUED) return FILTER_PASS;
    /* A transaction that is already dirty will not run: its commands need not be kept. */
    struct command *queued = (struct command *)(uintptr_t)command;
    if (!t->dirty && !(client->flags & CLIENT_DIRTY_WATCH)) enqueue(client, queued, argc, argv);
    client->current = queued;
    reply_status(&client->reply, "QUEUED");
    return FILTER_TAKEN;
}

static struct command_filter refuse_filter = {
    .order = FILTER_NO_MULTI, .flags = CMD_NO_MULTI, .asks_obeyed = true, .ask = refuse_ask};
static struct command_filter queue_filter = {.order = FILTER_QUEUE, .asks_obeyed = true, .ask = queue_ask};

static void transaction_open(struct client *client) {
    must(!transaction_of(client));
    struct transaction *t = mem_calloc(1, sizeof *t);
    t->last = &t->first;
    t->slot = -1;
    t->memory = mem_size(t);
    client_set_state(client, &client_listener, t);
    client->flags |= CLIENT_TRANSACTED;
    if (open_count++ == 0) {
        dispatch_add_filter(&refuse_filter);
        dispatch_add_filter(&queue_filter);
    }
}

/* Closes the client's transaction; the caller frees the queued commands. */
static struct transaction *transaction_close(struct client *client) {
    struct transaction *t = transaction_of(client);
    must(t && !t->running && open_count > 0);
    client_set_state(client, &client_listener, NULL);
    if (--open_count == 0) {
        dispatch_remove_filter(&refuse_filter);
        dispatch_remove_filter(&queue_filter);
    }
    return t;
}

static void queued_free(struct transaction_command *queued) {
    for (uint32_t i = 0; i < queued->blob_count; i++)
        if (queued->blobs[i].blob) blob_release(queued->blobs[i].blob);
    mem_free(queued->blobs);
    mem_free(queued);
}

static void queue_free(struct transaction *t) {
    for (struct transaction_command *queued = t->first, *next; queued; queued = next) {
        next = queued->next;
        queued_free(queued);
    }
}

static void transaction_free(struct transaction *t) {
    queue_free(t);
    mem_free(t);
}

void transaction_mark_dirty(struct client *client) {
    struct transaction *t = transaction_opened(client);
    if (!t) return;
    queue_free(t);
    t->first = NULL;
    t->last = &t->first;
    t->memory = mem_size(t);
    t->arguments = 0;
    t->count = 0;
    t->flags = t->lacks = 0;
    t->runs_scripts = false;
    t->db = NULL;
    t->slot = -1;
}

static void transaction_drop(struct client *client) {
    if (transaction_opened(client)) transaction_free(transaction_close(client));
    unwatch_all(client);
}

struct blob *transaction_take_blob(const struct call *call, int index) {
    struct transaction_command *queued = transaction_of(call->client)->runs;
    if (!queued || call->argv != queued->argv) return NULL;
    for (uint32_t i = 0; i < queued->blob_count; i++)
        if (queued->blobs[i].index == index) return queued->blobs[i].blob ? blob_hold(queued->blobs[i].blob) : NULL;
    return NULL;
}

struct blob *transaction_find_blob(const struct client *client, struct slice argument) {
    const struct transaction_command *queued = transaction_of(client)->runs;
    for (uint32_t i = 0; queued && i < queued->blob_count; i++) {
        struct blob *blob = queued->blobs[i].blob;
        if (blob && blob->data == argument.data && blob->len == argument.len) return blob;
    }
    return NULL;
}

/* --- Commands --- */

static void multi_run(struct call *call) {
    transaction_open(call->client);
    reply_ok(call->reply);
}

static void discard_run(struct call *call) {
    if (!transaction_opened(call->client)) {
        reply_error(call->reply, "ERR DISCARD without MULTI");
        return;
    }
    transaction_drop(call->client);
    reply_ok(call->reply);
}

/* A transaction with REPLICAOF may write afterwards, as in Valkey. Only the data of this server has these writes: it
 * needs a full synchronization, and so do others that may follow it before that. */
static void note_write(const struct client *client, const struct transaction_command *queued) {
    if (!(dispatch_flags(client, queued->command, queued->argv) & CMD_WRITE)) return;
    role_set_position_known(false);
    role_note_local_change();
}

/* Calls the commands as the client's own. One of them may free the client; its memory stays until the end of the turn,
 * and this function owns the transaction meanwhile. */
static void run_queued(struct call *call, struct transaction *t) {
    struct client *client = call->client;
    struct command *exec = client->current;
    bool followed = role_is_replica(), refused = false;
    t->running = true;
    t->exec = exec;
    client_set_state(client, &client_listener, t); /* for the blobs of the arguments */
    client->flags |= CLIENT_DENY_BLOCKING;
    reply_array(call->reply, (size_t)t->count);
    propagate_begin();
    for (struct transaction_command *queued = t->first; queued; queued = queued->next) {
        struct call_start start;
        t->runs = queued;
        client_call_starts(client, &start);
        const char *refusal = user_refusal_at_exec(client, queued->command, queued->argc, queued->argv);
        refused = refusal != NULL;
        if (__builtin_expect(refused, 0)) {
            reply_error(call->reply, refusal);
        } else {
            if (!role_is_replica())
                followed = false;
            else if (!followed)
                note_write(client, queued);
            dispatch_call(client, queued->command, queued->argc, queued->argv, queued->slot);
        }
        client_call_ends(client, &start, queued->argc, queued->argv, queued->wire_size);
    }
    propagate_end();
    client->flags &= ~(uint32_t)CLIENT_DENY_BLOCKING;
    client_set_state(client, &client_listener, NULL);
    client->current = exec;
    client->redacted = 0;
    /* A failed command does not make EXEC fail, and one that was refused does if none was executed after it. */
    client->reply.failed = refused;
    call->db = client->db;
    call->propagated = true;
}

static void exec_run(struct call *call) {
    struct client *client = call->client;
    if (!transaction_opened(client)) {
        reply_error(call->reply, "ERR EXEC without MULTI");
        return;
    }
    if (watch_expired(client)) client->flags |= CLIENT_DIRTY_WATCH;
    bool changed = client->flags & CLIENT_DIRTY_WATCH;
    struct transaction *t = transaction_close(client);
    unwatch_all(client);
    if (t->dirty)
        reply_error(call->reply, "EXECABORT Transaction discarded because of previous errors.");
    else if (changed)
        reply_null_array(call->reply);
    else
        run_queued(call, t);
    transaction_free(t);
}

static void watch_run(struct call *call) {
    /* Keys that have already changed keep the client dirty, so there is no need to watch more. */
    if (!(call->client->flags & CLIENT_DIRTY_WATCH))
        for (int i = 1; i < call->argc; i++) watch_key(call->client, call->db, call->argv[i]);
    reply_ok(call->reply);
}

static void unwatch_run(struct call *call) {
    unwatch_all(call->client);
    reply_ok(call->reply);
}

/* --- Refusals and disconnects --- */

bool transaction_refused(struct client *client, const struct command *command, const char *error, bool elsewhere) {
    if (command && command->spec->flags & CMD_RUNS_QUEUED) {
        transaction_drop(client);
        if (elsewhere) return false;
        if (strncmp(error, "ERR ", 4) == 0) error += 4;
        reply_error_format(&client->reply, "EXECABORT Transaction discarded because of: %s", error);
        return true;
    }
    transaction_mark_dirty(client);
    struct transaction *t = transaction_opened(client);
    if (t) t->dirty = true;
    return false;
}

static void transactions_init(void) {
    client_listen(&client_listener);
}

static const char *const no_tips[] = {NULL};
static const struct command_spec transaction_commands[] = {
    {COMMAND("multi", multi_run, 1,
             CMD_NO_DATA | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE | CMD_FAST | CMD_NO_MULTI | CMD_ALLOW_BUSY |
                 CMD_NOT_QUEUED,
             .group = GROUP_TRANSACTIONS, "1.2.0"),
     .categories = CAT_TRANSACTION, .tips = no_tips, .complexity = "O(1)",
     .summary = "Begins a transaction: the commands that follow are queued until EXEC."},
    {COMMAND("exec", exec_run, 1,
             CMD_NO_DATA | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE | CMD_SKIP_COMMANDLOG | CMD_RUNS_QUEUED |
                 CMD_NOT_QUEUED,
             .group = GROUP_TRANSACTIONS, "1.2.0"),
     .categories = CAT_TRANSACTION, .tips = no_tips, .complexity = "That of the commands it runs",
     .summary = "Executes the queued commands of the transaction."},
    {COMMAND("discard", discard_run, 1,
             CMD_NO_DATA | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE | CMD_FAST | CMD_ALLOW_BUSY | CMD_NOT_QUEUED,
             .group = GROUP_TRANSACTIONS, "2.0.0"),
     .categories = CAT_TRANSACTION, .tips = no_tips, .complexity = "O(N), where N is the number of queued commands",
     .summary = "Ends the transaction without executing its commands."},
    {COMMAND("watch", watch_run, -2,
             CMD_NO_DATA | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE | CMD_FAST | CMD_NO_MULTI | CMD_ALLOW_BUSY |
                 CMD_NOT_QUEUED,
             .group = GROUP_TRANSACTIONS, "2.2.0"),
     .categories = CAT_TRANSACTION, .tips = no_tips, .complexity = "O(1) for every key",
     .summary = "Makes EXEC depend on the keys: it fails if one of them has changed.", .syntax = "key:key...",
     .keys = {{.flags = KEY_RO, .begin = BEGIN_INDEX, .index = 1, .find = FIND_RANGE, .a = -1, .b = 1}}},
    {COMMAND("unwatch", unwatch_run, 1,
             CMD_NO_DATA | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE | CMD_FAST | CMD_ALLOW_BUSY,
             .group = GROUP_TRANSACTIONS, "2.2.0"),
     .categories = CAT_TRANSACTION, .tips = no_tips, .complexity = "O(1)",
     .summary = "Ends WATCH for all keys of the connection."},
    {.name = NULL},
};

const struct feature transactions_feature = {
    .name = "transactions", .commands = COMMANDS(transaction_commands), .init = transactions_init};
