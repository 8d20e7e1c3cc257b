/* dispatch.c: see dispatch.h.
 *
 * The clock is read once for each call, at its end: the end of one call is the start of the next in the same turn. The
 * usec of a command therefore include parsing and looking up the request, some tens of nanoseconds; in exchange a call
 * costs one reading of the counter. */
#include "server/command/dispatch.h"
#include "lib/structures/histogram.h"
#include "lib/system/clock.h"
#include "lib/system/likely.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/ticks.h"
#include "lib/text/blob.h"
#include "server/clients/auth.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/reply_barrier.h"
#include "server/clients/transactions.h"
#include "server/command/propagate.h"
#include "server/server.h"
#include "server/server_events.h"
#include "server/stats/commandlog.h"
#include "server/stats/latency_monitor.h"
#include "store/key_slot.h"
#include <stdio.h>

enum {
    CLOCK_STALE_TICKS = 1 << 20 /* some hundred microseconds on any machine */,
    UNKNOWN_SHOWN = 128,
    LATENCY_BITS = 6 /* 1.6 % */
};
#define LATENCY_HIGHEST (UINT64_C(1) << 36) /* ticks: at least a quarter of a minute */

uint64_t dispatch_ticks, dispatch_commands, dispatch_ticks_total;
struct dispatch_settings dispatch_settings = {.latency_tracking = true};
static struct list filters = LIST_INIT(filters);
static struct list listeners = LIST_INIT(listeners);
static size_t listeners_of_all; /* without state_only */

/* Calls nest: a script's calls, a module's. */
struct running {
    struct call call;
    struct pending_effect *pending, *pending_last;
    struct running *outer;
};
static struct running *running;

const struct call *dispatch_running(void) {
    return running ? &running->call : NULL;
}

bool dispatch_is_nested(void) {
    return running && running->outer;
}

struct client *dispatch_requester(void) {
    const struct running *at = running;
    while (at && at->outer) at = at->outer;
    return at ? at->call.client : NULL;
}

struct client *dispatch_caller(void) {
    const struct running *at = running;
    while (at && !at->call.client->conn) at = at->outer;
    return at ? at->call.client : NULL;
}

bool dispatch_is_running(const struct client *client) {
    for (const struct running *at = running; at; at = at->outer)
        if (at->call.client == client) return true;
    return false;
}

bool dispatch_replies_to(const struct client *client) {
    for (const struct running *at = running; at; at = at->outer)
        if (at->call.client == client && at->call.reply == &client->reply) return true;
    return false;
}

void dispatch_add_filter(struct command_filter *filter) {
    if (list_is_linked(&filter->link)) return;
    struct list_link *at = filters.head.next;
    while (at != &filters.head && container_of(at, struct command_filter, link)->order <= filter->order) at = at->next;
    list_insert_before(&filters, at, &filter->link);
}
void dispatch_remove_filter(struct command_filter *filter) {
    list_remove_listener(&filters, &filter->link);
}
void dispatch_set_filter(struct command_filter *filter, bool on) {
    if (on)
        dispatch_add_filter(filter);
    else
        dispatch_remove_filter(filter);
}
void call_listen(struct call_listener *listener) {
    if (list_add_listener(&listeners, &listener->link)) listeners_of_all += !listener->state_only;
}
void call_unlisten(struct call_listener *listener) {
    if (list_remove_listener(&listeners, &listener->link)) listeners_of_all -= !listener->state_only;
}

/* Propagation of a call. An argument in a blob is passed with that blob. All other arguments of call_propagate() are
 * copied, since the handler may change their memory. */

struct pending_effect {
    struct pending_effect *next;
    struct db *db; /* NULL: that of the call */
    int argc;
    struct blob **blobs; /* with a reference each; behind argv. NULL: none */
    struct slice argv[]; /* followed by the blobs and the bytes */
};

/* The blob of the client's request that contains `argument`. */
static struct blob *argument_blob(const struct client *client, struct slice argument) {
    if (likely(argument.len < REQUEST_LARGE_MIN)) return NULL;
    if (unlikely(client->states != NULL) && transaction_runs(client)) return transaction_find_blob(client, argument);
    return request_find_blob(&client->reader, argument);
}

/* What is propagated: the arguments, and of one of them the blob, if the caller knows it. */
struct effect {
    struct db *db;
    int argc;
    const struct slice *argv;
    int blob_index;
    struct blob *blob;
};

static struct blob *effect_blob(const struct call *call, const struct effect *effect, int index) {
    return effect->blob && index == effect->blob_index ? effect->blob
                                                       : argument_blob(call->client, effect->argv[index]);
}

static void pending_add(struct call *call, const struct effect *effect) {
    int argc = effect->argc;
    const struct slice *argv = effect->argv;
    call->propagated = true;
    if (!propagate_wanted()) return;
    size_t bytes = 0, count = (size_t)argc;
    bool in_blobs = false;
    for (int i = 0; i < argc; i++) {
        if (effect_blob(call, effect, i))
            in_blobs = true;
        else
            bytes += argv[i].len;
    }
    size_t blobs_size = in_blobs ? count * sizeof(struct blob *) : 0;
    struct pending_effect *pending = mem_alloc(sizeof *pending + count * sizeof *argv + blobs_size + bytes);
    char *at = (char *)&pending->argv[argc] + blobs_size;
    pending->next = NULL;
    pending->db = effect->db;
    pending->argc = argc;
    pending->blobs = in_blobs ? (struct blob **)&pending->argv[argc] : NULL;
    for (int i = 0; i < argc; i++) {
        struct blob *blob = in_blobs ? effect_blob(call, effect, i) : NULL;
        if (in_blobs) pending->blobs[i] = blob ? blob_hold(blob) : NULL;
        pending->argv[i] = argv[i];
        if (blob) continue;
        if (argv[i].len) memcpy(at, argv[i].data, argv[i].len);
        pending->argv[i].data = at;
        at += argv[i].len;
    }
    struct running *self = container_of(call, struct running, call);
    *(self->pending ? &self->pending_last->next : &self->pending) = pending;
    self->pending_last = pending;
}

void call_propagate(struct call *call, int argc, const struct slice *argv) {
    pending_add(call, &(struct effect){.argc = argc, .argv = argv});
}

void call_propagate_in(struct call *call, struct db *db, int argc, const struct slice *argv) {
    pending_add(call, &(struct effect){.db = db, .argc = argc, .argv = argv});
}

void call_propagate_blob(struct call *call, int argc, const struct slice *argv, int index, struct blob *blob) {
    pending_add(call, &(struct effect){.argc = argc, .argv = argv, .blob_index = index, .blob = blob});
}

void call_redact(struct call *call, int index) {
    call->client->redacted |= UINT32_C(1) << (index < REDACTED_REST ? index : REDACTED_REST);
}

void call_propagate_nothing(struct call *call) {
    call->propagated = true;
}

struct blob *call_take_blob(struct call *call, int index) {
    struct client *client = call->client;
    if (!client) return NULL;
    if (unlikely(client->states != NULL) && transaction_runs(client)) return transaction_take_blob(call, index);
    return call->argv == client->reader.argv ? request_take_blob(&client->reader, index) : NULL;
}

void call_select(struct call *call, struct db *db) {
    call->client->db = call->db = db;
}

static void pending_send(struct running *self, int db) {
    for (struct pending_effect *pending = self->pending, *next; pending; pending = next) {
        next = pending->next;
        propagate(pending->db ? db_id(pending->db) : db, pending->argc, pending->argv, pending->blobs);
        for (int i = 0; pending->blobs && i < pending->argc; i++)
            if (pending->blobs[i]) blob_release(pending->blobs[i]);
        mem_free(pending);
    }
    self->pending = NULL;
}

/* Propagates the call as the client sent it. */
static void call_send(const struct call *call, int db) {
    enum { ON_STACK = 16 };
    struct blob *few[ON_STACK], **blobs = NULL;
    for (int i = 0; i < call->argc; i++) {
        struct blob *blob = argument_blob(call->client, call->argv[i]);
        if (likely(!blob)) continue;
        if (!blobs) {
            size_t size = (size_t)call->argc * sizeof *blobs;
            blobs = call->argc <= ON_STACK ? few : mem_alloc(size);
            memset(blobs, 0, size);
        }
        blobs[i] = blob;
    }
    propagate(db, call->argc, call->argv, blobs);
    if (blobs != few) mem_free(blobs);
}

/* --- The call --- */

static __attribute__((noinline)) void listeners_before(struct call *call) {
    listeners_call(&listeners, struct call_listener, before, call);
}

static __attribute__((noinline)) void listeners_after(struct call *call, uint64_t ticks) {
    list_each_entry(&listeners, struct call_listener, link, listener) {
        if (listener->after && (listener->again || !(call->client->flags & CLIENT_CALLED_AGAIN)))
            listener->after(call, ticks);
    }
}

/* Counts an execution and adds it to the command log if it was slow. */
static inline void call_account(struct client *client, struct command *command, int argc, const struct slice *argv,
                                uint64_t ticks) {
    dispatch_commands++;
    client->commands++;
    command->calls++;
    command->ticks += ticks;
    if (likely(dispatch_settings.latency_tracking)) {
        if (unlikely(!command->latency)) command->latency = histogram_new(LATENCY_BITS, LATENCY_HIGHEST);
        histogram_record(command->latency, ticks, 1);
    }
    if (unlikely(ticks >= commandlog_thresholds[COMMANDLOG_SLOW]))
        commandlog_add(COMMANDLOG_SLOW, command, client, argc, argv, ticks_to_us(ticks));
}

void dispatch_account(struct client *client, struct command *command, int argc, const struct slice *argv,
                      uint64_t ticks) {
    call_account(client, command, argc, argv, ticks);
}

/* Apart from call_run(), so that the compiler keeps its variables in registers where nothing is propagated. */
static __attribute__((noinline)) void call_repeat(struct running *self, int db, bool together) {
    const struct call *call = &self->call;
    if (call->dirty && !call->propagated) call_send(call, db);
    if (self->pending) pending_send(self, db);
    if (together) propagate_end();
}

/* Accounts for what a call changed and propagates it, also for a call that blocked. */
static inline void call_changes(struct running *self, int db, bool repeated, bool together) {
    server.dirty += self->call.dirty;
    if (unlikely(repeated)) call_repeat(self, db, together);
}

/* The primary decides when keys expire, and in import mode the source of the data does: their commands see expired
 * keys. */
static __attribute__((noinline)) void run_with_expired(struct call *call) {
    bool shown = store_settings.show_expired, imports = call->client->flags & CLIENT_IMPORT_SOURCE;
    if (!imports || server_deletion_paused_for(DELETION_PAUSE_IMPORT)) store_settings.show_expired = true;
    call->command->spec->run(call);
    store_settings.show_expired = shown;
}

/* A call whose slot is known: nested calls have their own. */
static inline void slot_begin(const struct call *call) {
    must_in_tests(call->slot < HASH_SLOTS);
    propagation_slot = call->slot;
    if (likely(call->command->only_key)) key_slot_announce(call->argv[call->command->only_key], (unsigned)call->slot);
}
static inline void slot_end(const struct running *self) {
    key_slot_withdraw();
    propagation_slot = self->outer ? self->outer->call.slot : -1;
}

/* The end of a call whose client waits: it is counted when the command finishes. */
static __attribute__((noinline)) void call_blocks(struct running *self, int db, uint64_t ticks, bool repeated,
                                                  bool together) {
    struct client *client = self->call.client;
    call_changes(self, db, repeated, together);
    if (self->call.slot >= 0) slot_end(self);
    if (listeners.len) listeners_after(&self->call, ticks);
    running = self->outer;
    if (!running) client_pushes_write(client);
    if (reply_barrier_replies(client) && client->conn)
        client_flush_later(client); /* no reply was written: frees the held replies */
}

void (*dispatch_unit_ended)(void), (*dispatch_function_returned)(void);
static void call_run(struct client *client, struct command *command, int argc, const struct slice *argv, int slot) {
    struct running self = {.call = {.command = command,
                                    .argc = argc,
                                    .argv = argv,
                                    .reply = &client->reply,
                                    .client = client,
                                    .db = client->db,
                                    .dirty_before = server.dirty,
                                    .slot = slot},
                           .outer = running};
    struct db *db = client->db;
    uint64_t start = dispatch_ticks;
    bool repeated = propagate_wanted(), together = repeated && !(command->spec->flags & CMD_TOUCHES_ARBITRARY_KEYS);
    if (unlikely(reply_barrier_armed) && (!running || (client->conn && !dispatch_is_running(client))))
        reply_barrier_before_call(client, dispatch_flags(client, command, argv));
    running = &self;
    client->current = command;
    client->reply.failed = 0;
    client->redacted = 0;
    if (unlikely(listeners_of_all) && !(client->flags & CLIENT_CALLED_AGAIN)) listeners_before(&self.call);
    clock_freeze();
    if (unlikely(slot >= 0)) slot_begin(&self.call);
    /* Keys that the command finds expired are propagated in one group with the command, unless it visits all keys. */
    if (unlikely(together)) propagate_begin();

    if (unlikely(client->flags & CLIENT_IMPORT_SOURCE || client_must_be_obeyed(client)))
        run_with_expired(&self.call);
    else
        command->spec->run(&self.call);
    if (unlikely(dispatch_function_returned != NULL)) dispatch_function_returned();

    must(running == &self); /* the calls that it made have ended */
    clock_thaw();
    uint64_t now = ticks_now(), ticks = now - start + self.call.more_ticks;
    dispatch_ticks = now;
    if (unlikely(self.call.blocked)) {
        call_blocks(&self, db_id(db), ticks, repeated, together);
        return;
    }
    if (unlikely(client->reply.failed)) command->failed += client->reply.failed;
    call_account(client, command, argc, argv, ticks);
    if (likely(!self.outer))
        dispatch_ticks_total += ticks; /* the time of a call includes its nested calls */
    else if (client->flags & CLIENT_INTERNAL)
        dispatch_requester()->commands++; /* a command of a script counts for its caller */
    call_changes(&self, db_id(db), repeated, together);
    if (unlikely(slot >= 0)) slot_end(&self);
    if (unlikely(ticks >= latency_threshold_ticks))
        latency_event_add(command->spec->flags & CMD_FAST ? "fast-command" : "command", ticks_to_us(ticks));
    if (unlikely(listeners.len) && (listeners_of_all || client->states || self.outer))
        listeners_after(&self.call, ticks);
    running = self.outer;
    if (unlikely(client->states != NULL) && !running) client_pushes_write(client);
    if (unlikely(dispatch_unit_ended != NULL) && !running) dispatch_unit_ended();
    if (unlikely(blocking_ready) && !running) blocking_serve();
    /* The clock is read once a turn of the loop. After a slow command the next commands of the turn get a fresh one.
     */
    if (unlikely(ticks > CLOCK_STALE_TICKS) && !running) clock_update();
}

void dispatch_call(struct client *client, struct command *command, int argc, const struct slice *argv, int slot) {
    if (likely(!client_must_be_obeyed(client))) {
        call_run(client, command, argc, argv, slot);
        return;
    }
    /* What the source of a migration sends is propagated like a change of this server's own. */
    enum propagation_origin before = propagation_set_origin(client->flags & CLIENT_LOADER      ? PROPAGATION_LOADING
                                                            : client->flags & CLIENT_MIGRATION ? PROPAGATION_LOCAL
                                                                                               : PROPAGATION_PRIMARY);
    call_run(client, command, argc, argv, slot);
    propagation_set_origin(before);
}

/* --- Refusing --- */

static void refuse_as(struct client *client, struct command *command, const char *error, bool elsewhere) {
    dispatch_ticks = ticks_now(); /* bounds the turn of a client whose requests are all refused */
    if (command) command->rejected++;
    client->current = command;
    bool replied = transaction_refused(client, command, error, elsewhere);
    if (unlikely(client->flags & CLIENT_ASKING) && transaction_queued(client) < 0)
        client->flags &= ~(uint32_t)(CLIENT_ASKING | CLIENT_ASKING_USED);
    if (!replied) reply_error(&client->reply, error);
}

void dispatch_refuse_moved(struct client *client, const struct command *command, struct slice error) {
    struct command *refused = (struct command *)(uintptr_t)command;
    dispatch_ticks = ticks_now();
    refused->rejected++;
    client->current = refused;
    reply_error_line(&client->reply, error);
}

static void refuse(struct client *client, struct command *command, const char *error) {
    refuse_as(client, command, error, false);
}

void dispatch_refuse(struct client *client, const char *error) {
    refuse(client, NULL, error);
}

static void refuse_browser(struct client *client) {
    static struct log_limit limit = {.interval_us = 60 * 1000000};
    log_limited(&limit, LOG_LEVEL_WARNING,
                "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to "
                "Valkey. This is likely due to an "
                "attacker attempting to use Cross Protocol Scripting to compromise your Valkey instance. "
                "Connection aborted: %s",
                client_log_text(client));
    client_free(client);
}

void dispatch_unknown_text(char text[static DISPATCH_UNKNOWN_TEXT], int argc, const struct slice *argv,
                           const struct command *parent) {
    size_t size = DISPATCH_UNKNOWN_TEXT;
    if (parent) {
        char upper[64];
        size_t len = 0;
        for (const char *p = parent->name; *p && len < sizeof upper - 1; p++)
            upper[len++] = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
        upper[len] = 0;
        snprintf(text, size, "unknown subcommand '%.*s'. Try %s HELP.",
                 argv[1].len > UNKNOWN_SHOWN ? UNKNOWN_SHOWN : (int)argv[1].len, argv[1].data, upper);
        return;
    }
    int at = snprintf(text, size, "unknown command '%.*s', with args beginning with: ",
                      argv[0].len > UNKNOWN_SHOWN ? UNKNOWN_SHOWN : (int)argv[0].len, argv[0].data);
    int shown = 0;
    for (int i = 1; i < argc && shown < UNKNOWN_SHOWN; i++) {
        int len = argv[i].len > (size_t)(UNKNOWN_SHOWN - shown) ? UNKNOWN_SHOWN - shown : (int)argv[i].len;
        int written = snprintf(text + at, size - (size_t)at, "'%.*s' ", len, argv[i].data);
        shown += written;
        at += written;
        if ((size_t)at >= size) break;
    }
}

/* Refuses a request whose arguments are known. */
static void refuse_request(struct client *client, struct command *command, int argc, const struct slice *argv,
                           const char *error, bool elsewhere) {
    refuse_as(client, command, error, elsewhere);
    static const struct {
        const char *begins;
        enum user_denial denial;
    } denials[] = {{"NOAUTH", USER_ALLOWED},
                   {"NOPERM No permissions to access a key", USER_DENIED_KEY},
                   {"NOPERM No permissions to access a channel", USER_DENIED_CHANNEL},
                   {"NOPERM No permissions to access database", USER_DENIED_DATABASE},
                   {"NOPERM", USER_DENIED_COMMAND}};
    struct rejection_event event = {client, command, argc, argv, error};
    for (size_t i = 0; i < sizeof denials / sizeof *denials; i++) {
        if (strncmp(error, denials[i].begins, strlen(denials[i].begins)) != 0) continue;
        server_event(EVENT_COMMAND_ACL_REJECTED, denials[i].denial, &event);
        return;
    }
    server_event(EVENT_COMMAND_REJECTED, 0, &event);
}

static __attribute__((noinline)) void refuse_unknown(struct client *client, int argc, const struct slice *argv,
                                                     struct command *parent) {
    client->current = NULL;
    /* An HTTP request of a browser (cross-protocol scripting): the commands in its body must not be executed. */
    if (!parent && client->conn && (slice_is(argv[0], "post") || slice_is(argv[0], "host:"))) {
        refuse_browser(client);
        return;
    }
    char text[DISPATCH_UNKNOWN_TEXT + 4] = "ERR ";
    dispatch_unknown_text(text + 4, argc, argv, parent);
    refuse_request(client, NULL, argc, argv, text, false);
}

static __attribute__((noinline)) void refuse_arity(struct client *client, struct command *command, int argc,
                                                   const struct slice *argv) {
    char text[256];
    snprintf(text, sizeof text, "ERR wrong number of arguments for '%s' command", command->full_name);
    refuse_request(client, command, argc, argv, text, false);
}

uint32_t dispatch_flags(const struct client *client, const struct command *command, const struct slice *argv) {
    uint32_t flags = command_call_flags(command, argv);
    return flags & CMD_RUNS_QUEUED ? transaction_flags(client, flags) : flags;
}

static inline bool filter_concerns(const struct command_filter *filter, const struct client *client, uint32_t flags) {
    if (filter->flags && !(filter->flags & flags)) return false;
    return filter->asks_obeyed || !client_must_be_obeyed(client);
}

const char *dispatch_ask(struct client *client, const struct command *command, uint32_t flags, int argc,
                         const struct slice *argv, uint32_t orders) {
    list_each_entry(&filters, struct command_filter, link, filter) {
        if (!(FILTER_BIT(filter->order) & orders) || !filter_concerns(filter, client, flags)) continue;
        const char *error = NULL;
        enum filter_answer answer = filter->ask(client, command, argc, argv, &error);
        if (answer == FILTER_REFUSE || answer == FILTER_ELSEWHERE) return error;
    }
    return NULL;
}

/* FILTER_PASS: all filters pass the request, and none of them has to be asked. */
static enum filter_answer filters_look(struct client *client, const struct command *command, int argc,
                                       const struct slice *argv) {
    uint32_t flags = command->spec->flags;
    if (unlikely(flags & (CMD_RUNS_QUEUED | CMD_RUNS_SCRIPT))) return FILTER_ASK; /* dispatch_flags() has more */
    for (const struct list_link *link = filters.head.next; link != &filters.head; link = link->next) {
        const struct command_filter *filter = container_of(link, struct command_filter, link);
        if (!filter_concerns(filter, client, flags)) continue;
        enum filter_answer answer = filter->look ? filter->look(client, command, argc, argv) : FILTER_ASK;
        if (answer != FILTER_PASS) return answer;
    }
    return FILTER_PASS;
}

void (*dispatch_stopped)(struct client *client, const struct command *command, size_t size);

/* Returns true if a filter stopped the request. */
static __attribute__((noinline)) bool filters_ask(struct client *client, struct command *command, int argc,
                                                  const struct slice *argv, bool *held) {
    uint32_t flags = dispatch_flags(client, command, argv);
    list_each_entry(&filters, struct command_filter, link, filter) {
        if (filter->order > FILTER_FIRST) client->current = command;
        if (!filter_concerns(filter, client, flags)) continue;
        const char *error = NULL;
        switch (filter->ask(client, command, argc, argv, &error)) {
        case FILTER_ASK: /* only of look() */
        case FILTER_PASS:
            if (client->flags & CLIENT_CLOSING) return true; /* an eviction event exceeded its output limit */
            continue;
        case FILTER_REFUSE: refuse_request(client, command, argc, argv, error, false); return true;
        case FILTER_ELSEWHERE: refuse_request(client, command, argc, argv, error, true); return true;
        case FILTER_TAKEN: return true;
        case FILTER_HOLD:
            client->flags &= ~(uint32_t)CLIENT_ASKING_USED; /* the request will come again */
            *held = true;
            return true;
        }
    }
    return false;
}

/* `answer` is that of filters_look(). */
static __attribute__((noinline)) bool filters_apply(struct client *client, struct command *command, int argc,
                                                    const struct slice *argv, enum filter_answer answer, bool *held) {
    bool taken = answer == FILTER_TAKEN;
    if (likely(!dispatch_stopped) || !client->conn || argv != client->reader.argv)
        return taken || filters_ask(client, command, argc, argv, held);
    size_t size = request_wire_size(&client->reader); /* the queue may take parts of the request away */
    bool stopped = taken || filters_ask(client, command, argc, argv, held);
    if (stopped && !*held) dispatch_stopped(client, command, size);
    return stopped;
}

static const char no_login[] = "NOAUTH Authentication required.";
static inline bool needs_login(const struct client *client) {
    return unlikely(!client->authenticated) && auth_required();
}

static bool request_checked(struct client *client, int argc, const struct slice *argv) {
    struct command *command = client->last;
    if (!command || !command_is_named(command, argv[0])) {
        struct command *parent;
        command = command_lookup(argc, argv, &parent);
        if (unlikely(!command) && client_must_be_obeyed(client)) command = command_lookup_original(argc, argv, &parent);
        if (unlikely(!command)) {
            if (needs_login(client))
                refuse_request(client, NULL, argc, argv, no_login, false);
            else
                refuse_unknown(client, argc, argv, parent);
            return true;
        }
        client->last = command->parent || command->subcommands ? NULL : command;
    }
    if (needs_login(client) && !(command->spec->flags & CMD_NO_AUTH)) {
        refuse_request(client, command, argc, argv, no_login, false);
        return true;
    }
    if (unlikely(!command_arity_ok(command, argc))) {
        refuse_arity(client, command, argc, argv);
        return true;
    }
    int slot = -1;
    if (unlikely(filters.len)) {
        client->slot = -1;
        enum filter_answer answer = filters_look(client, command, argc, argv);
        if (answer != FILTER_PASS) {
            bool held = false;
            if (filters_apply(client, command, argc, argv, answer, &held)) return !held;
        }
        slot = client->slot;
    }
    dispatch_call(client, command, argc, argv, slot);
    return true;
}

void (*dispatch_rewrite)(struct request_rewrite *rewrite);

/* A request that is held back is dispatched again, and was rewritten when it came first. */
static size_t rewrites_kept;
static void rewrite_drop(struct client *client);
static struct client_listener rewrite_listener = {.freed = rewrite_drop, .reset = rewrite_drop};

static void rewrite_drop(struct client *client) {
    struct request_rewrite *kept = client_state(client, &rewrite_listener);
    if (!kept) return;
    client_set_state(client, &rewrite_listener, NULL);
    if (kept->free) kept->free(kept);
    mem_free(kept);
    rewrites_kept--;
}
static void rewrite_keep(const struct request_rewrite *rewrite) {
    struct request_rewrite *kept = mem_alloc(sizeof *kept);
    *kept = *rewrite;
    if (kept->free) kept->keep(kept);
    client_set_state(kept->client, &rewrite_listener, kept);
    rewrites_kept++;
}
/* False: the request comes for the first time. */
static bool rewrite_take(struct request_rewrite *rewrite) {
    struct request_rewrite *kept = client_state(rewrite->client, &rewrite_listener);
    if (!kept) return false;
    if (kept->free) *rewrite = *kept;
    client_set_state(rewrite->client, &rewrite_listener, NULL);
    mem_free(kept);
    rewrites_kept--;
    return true;
}

static __attribute__((noinline)) bool request_rewritten(struct client *client, int argc, const struct slice *argv) {
    struct request_rewrite rewrite = {.client = client, .argc = argc, .argv = argv};
    if (!rewrite_take(&rewrite) && dispatch_rewrite) dispatch_rewrite(&rewrite);
    bool gone = client->flags & CLIENT_CLOSING;
    bool done = gone || request_checked(client, rewrite.argc, rewrite.argv);
    if (!done && client->conn && !(client->flags & CLIENT_CLOSING))
        rewrite_keep(&rewrite);
    else if (rewrite.free)
        rewrite.free(&rewrite);
    return done;
}

bool dispatch_request(struct client *client, int argc, const struct slice *argv) {
    if (likely(!dispatch_rewrite && !rewrites_kept)) return request_checked(client, argc, argv);
    return request_rewritten(client, argc, argv);
}
