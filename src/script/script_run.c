/* script_run.c: see script_run.h. */
#include "script/script_run.h"
#include "lib/system/log.h"
#include "lib/system/must.h"
#include "lib/system/ticks.h"
#include "script/script_debug.h"
#include "server/clients/client.h"
#include "server/clients/user.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/config/settings.h"
#include "server/debug/debug.h"
#include "server/maxmemory.h"
#include "server/nested_turn.h"
#include "server/command/command.h"
#include "server/role.h"
#include "server/server.h"
#include "server/stats/commandlog.h"
#include "server/stats/errorstats.h"
#include <stdio.h>
#include <string.h>

enum { REPLY_KEPT_MAX = 64 * 1024, UNKNOWN_SUBCOMMAND_SHOWN = 128 };

struct script_run *script_running;
struct script_settings script_settings;
static struct client *caller; /* the client that calls the script's commands */
static struct memory_output replies;

static const struct {
    const char *name;
    enum script_flag flag;
} flag_names[] = {{"no-writes", SCRIPT_NO_WRITES},
                  {"allow-oom", SCRIPT_ALLOW_OOM},
                  {"allow-stale", SCRIPT_ALLOW_STALE},
                  {"no-cluster", SCRIPT_NO_CLUSTER},
                  {"allow-cross-slot-keys", SCRIPT_ALLOW_CROSS_SLOT}};
enum { FLAG_NAMES = sizeof flag_names / sizeof *flag_names };

uint32_t script_flag_parse(struct slice name) {
    for (size_t i = 0; i < FLAG_NAMES; i++)
        if (slice_equal(name, slice_of(flag_names[i].name))) return flag_names[i].flag;
    return 0;
}

void script_flags_each(uint32_t flags, void (*visit)(void *context, const char *name), void *context) {
    for (size_t i = 0; i < FLAG_NAMES; i++)
        if (flags & flag_names[i].flag) visit(context, flag_names[i].name);
}

/* --- Begin and end --- */

/* Returns the error if writes are rejected now, for a script whose shebang declares that it may write. */
static const char *refuse_writer(const struct call *call) {
    enum {
        ORDERS = FILTER_BIT(FILTER_DISK) | FILTER_BIT(FILTER_REPLICAS) | FILTER_BIT(FILTER_READONLY),
        FLAGS = CMD_WRITE | CMD_DENYOOM
    };
    return dispatch_ask(call->client, call->command, FLAGS, call->argc, call->argv, ORDERS);
}

static const char *refuse_run(const struct script_run *run, bool read_only_command) {
    uint32_t flags = run->flags;
    bool declared = !(flags & SCRIPT_WITHOUT_SHEBANG);
    const char *refused = NULL;
    if (read_only_command && declared && !(flags & SCRIPT_NO_WRITES))
        refused = "ERR Can not execute a script with write flag using *_ro command.";
    if (client_must_be_obeyed(run->call->client)) return refused;
    if (flags & SCRIPT_NO_CLUSTER && server.cluster_enabled)
        return "ERR Can not run script on cluster, 'no-cluster' flag is set.";
    if (!(flags & SCRIPT_ALLOW_STALE) && role_is_stale())
        return "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    if (!declared || flags & SCRIPT_NO_WRITES) return NULL;
    if (run->out_of_memory && !(flags & SCRIPT_ALLOW_OOM))
        return "OOM command not allowed when used memory > 'maxmemory'.";
    const char *writer_refused = refuse_writer(run->call);
    /* For other clients the filters have refused the command itself. */
    if (writer_refused && run->call->client->flags & CLIENT_INTERNAL && strncmp(writer_refused, "READONLY", 8) == 0)
        return "READONLY Can not run script with write flag on readonly replica";
    return writer_refused ? writer_refused : refused;
}

bool script_is_caller(const struct client *client) {
    return client == caller;
}
static void caller_prepare(const struct client *client) {
    enum {
        TAKEN =
            CLIENT_PRIMARY | CLIENT_LOADER | CLIENT_IMPORT_SOURCE | CLIENT_NO_TOUCH | CLIENT_READONLY | CLIENT_ASKING
    };
    if (!caller) {
        caller = client_new(NULL);
        memory_output_init_try(&replies);
        caller->reply.out = &replies.out;
    }
    caller->flags = CLIENT_INTERNAL | CLIENT_DENY_BLOCKING | (client->flags & TAKEN);
    caller->db = client->db;
    caller->user = client->user;
    caller->authenticated = true;
    caller->reply.protocol = 2;
}

static void session_begin(struct script_run *run);

bool script_begin(struct script_run *run, struct call *call, const char *name, uint32_t flags, bool read_only_command) {
    *run = (struct script_run){.call = call,
                               .name = name,
                               .db = call->db,
                               .slot = call->slot,
                               .flags = flags,
                               .read_only = read_only_command || flags & SCRIPT_NO_WRITES,
                               .out_of_memory = eviction_out_of_memory() && !(call->client->flags & CLIENT_OVER_MEMORY),
                               .started = dispatch_ticks};
    const char *refused = refuse_run(run, read_only_command);
    if (refused) return reply_error(call->reply, refused);
    must(!script_running);
    caller_prepare(call->client);
    script_running = run;
    if (script_session && script_session_blocks_server()) session_begin(run);
    return true;
}

/* --- Busy scripts: the calling client is not read from, so that its arguments do not move --- */

/* Clients wait for the end of a debugging session, as with Valkey, which serves nobody meanwhile. */
static bool waits_for_session(const struct client *client) {
    bool plain = client->conn && !(client->flags & CLIENT_REPLICA) && !client_must_be_obeyed(client);
    return script_session && script_session_blocks_server() && plain;
}

static const char *busy_error(void) {
    if (script_running->is_function)
        return WITH_PRODUCT("BUSY ", " is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.");
    return WITH_PRODUCT("BUSY ", " is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");
}

static enum filter_answer busy_ask(struct client *client, const struct command *command, int argc,
                                   const struct slice *argv, const char **error) {
    bool shutdown = strcmp(command->spec->name, "shutdown") == 0, nosave = false;
    for (int i = 1; i < argc; i++) nosave |= slice_is(argv[i], "nosave");
    if (shutdown ? nosave : command->spec->flags & CMD_ALLOW_BUSY) return FILTER_PASS;
    /* The commands of a migration's source wait, like the stream of a primary: an error would end the migration. */
    if (waits_for_session(client) || client->flags & CLIENT_MIGRATION) {
        client_postpone(client);
        return FILTER_HOLD;
    }
    *error = busy_error();
    return FILTER_REFUSE;
}
static struct command_filter busy_filter = {.order = FILTER_BUSY, .asks_obeyed = true, .ask = busy_ask};

static void busy_begin(struct script_run *run) {
    struct client *client = run->call->client;
    run->busy = true;
    log_warning("Slow script detected: still in execution after %llu milliseconds. You can try killing the script "
                "using the %s command. Script name is: %s.",
                (unsigned long long)script_running_ms(), run->is_function ? "FUNCTION KILL" : "SCRIPT KILL", run->name);
    dispatch_add_filter(&busy_filter);
    client_hold(client);
    if (client->conn) conn_set_reading(client->conn, false);
}

/* A debugged script is busy from its start. The arguments of its call are copies, so the server may read from the
 * client. */
static void session_begin(struct script_run *run) {
    run->busy = true;
    dispatch_add_filter(&busy_filter);
}

static void busy_end(struct script_run *run) {
    struct client *client = run->call->client;
    dispatch_remove_filter(&busy_filter);
    clients_postponed_again();
    if (script_session) return;
    if (client->conn && !client->waits_for_turn) conn_set_reading(client->conn, true);
    client_release(client);
}

uint64_t script_running_ms(void) {
    return ticks_to_us(ticks_now() - script_running->started) / 1000;
}

bool script_poll(void) {
    struct script_run *run = script_running;
    if (__builtin_expect(script_session != NULL, 0)) return script_session_poll();
    if (!run->busy) {
        if (!script_settings.busy_threshold_ms || script_running_ms() < (uint64_t)script_settings.busy_threshold_ms)
            return false;
        busy_begin(run);
    }
    nested_turn(0);
    return run->killed;
}

void script_kill(struct call *call, bool function) {
    struct script_run *run = script_running;
    const char *error = NULL;
    if (!run || !run->busy)
        error = "NOTBUSY No scripts in execution right now.";
    else if (client_must_be_obeyed(run->call->client))
        error = "UNKILLABLE The busy script was sent by a master instance in the context of replication and cannot be "
                "killed.";
    else if (run->wrote)
        error = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait "
                "the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.";
    else if (run->is_function != function)
        error = busy_error();
    if (error) {
        reply_error(call->reply, error);
        return;
    }
    run->killed = true;
    reply_ok(call->reply);
}

void script_end(struct script_run *run) {
    must(script_running == run);
    if (run->busy) busy_end(run);
    if (run->redirected) propagation_set_targets(run->targets);
    if (__builtin_expect(replies.capacity > REPLY_KEPT_MAX, 0)) memory_output_free(&replies);
    /* The effects have been propagated instead of the call. */
    call_propagate_nothing(run->call);
    script_running = NULL;
}

/* --- Commands --- */

static const char *refuse_unknown(struct command *parent, const struct slice *argv) {
    static char text[UNKNOWN_SUBCOMMAND_SHOWN + 128];
    if (!parent) return "ERR Unknown command called from script";
    char upper[64];
    size_t len = 0;
    for (const char *p = parent->name; *p && len < sizeof upper - 1; p++)
        upper[len++] = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
    upper[len] = 0;
    snprintf(text, sizeof text, "ERR unknown subcommand '%.*s'. Try %s HELP.",
             argv[1].len > UNKNOWN_SUBCOMMAND_SHOWN ? UNKNOWN_SUBCOMMAND_SHOWN : (int)argv[1].len, argv[1].data, upper);
    return text;
}

static struct command *script_run_find(int argc, const struct slice *argv, struct command **parent) {
    struct command *command = caller->last;
    *parent = NULL;
    if (command && command_is_named(command, argv[0])) return command;
    command = command_lookup(argc, argv, parent);
    caller->last = !command || command->parent || command->subcommands ? NULL : command;
    return command;
}

/* *counted: the error for the error statistics, if that is another one. */
static const char *refuse_by_state(const struct command *command, int argc, const struct slice *argv,
                                   const char **counted) {
    static char text[512];
    struct script_run *run = script_running;
    uint32_t flags = command->spec->flags;
    caller->slot = -1;
    bool obeyed = client_must_be_obeyed(caller);
    if (flags & CMD_DENYOOM && run->out_of_memory && !run->wrote && !(run->flags & SCRIPT_ALLOW_OOM) && !obeyed)
        return "OOM command not allowed when used memory > 'maxmemory'.";
    caller->user = run->call->client->user; /* a command of the script may have removed its user */
    const char *error = user_refusal(caller, command, argc, argv);
    if (error) {
        *counted = error;
        while (*error && *error != ' ') error++; /* the script's own error has another code */
        snprintf(text, sizeof text, "ERR ACL failure in script:%s", error);
        return text;
    }
    if (flags & (CMD_WRITE | CMD_MAY_REPLICATE) && run->read_only)
        return "ERR Write commands are not allowed from read-only scripts.";
    if (obeyed) return NULL;
    if (!(flags & CMD_STALE) && role_is_stale()) return "ERR Can not execute the command on a stale replica";
    enum {
        ORDERS = FILTER_BIT(FILTER_CLUSTER) | FILTER_BIT(FILTER_DISK) | FILTER_BIT(FILTER_REPLICAS) |
                 FILTER_BIT(FILTER_READONLY)
    };
    /* A script that has begun to write may continue, because half of its writes would be worse. */
    uint32_t orders = run->wrote ? FILTER_BIT(FILTER_CLUSTER) : ORDERS;
    /* Of commands that do not write, the filter refuses PING, which tells clients of the error: a script needs it not.
     */
    if (!(flags & CMD_WRITE)) orders &= ~(uint32_t)FILTER_BIT(FILTER_DISK);
    error = dispatch_ask(caller, command, flags, argc, argv, orders);
    if (error) return error;
    if (__builtin_expect(caller->slot >= 0, 0)) {
        enum { ANY_SLOT = SCRIPT_WITHOUT_SHEBANG | SCRIPT_ALLOW_CROSS_SLOT };
        if (run->slot >= 0 && run->slot != caller->slot && !(run->flags & ANY_SLOT))
            return "ERR Script attempted to access keys that do not hash to the same slot";
        run->slot = caller->slot;
    }
    return NULL;
}

/* DEBUG SET-DISABLE-DENY-SCRIPTS 1 ignores CMD_NOSCRIPT, so that tests can call DEBUG or CLIENT from a script. It does
 * not affect commands on scripts and commands on the state of a connection, which the internal client does not have. */
static bool deny_disabled;
bool script_denies(const struct command *command) {
    uint32_t flags = command->spec->flags;
    enum { ALWAYS = CMD_NO_MULTI | CMD_NOT_QUEUED | CMD_RUNS_SCRIPT | CMD_NO_AUTH | CMD_PUBSUB };
    bool always = flags & ALWAYS || command->spec->group == GROUP_SCRIPTING;
    return flags & CMD_NOSCRIPT && (always || !deny_disabled);
}

static void debug_set_deny(struct call *call) {
    deny_disabled = !slice_equal(call->argv[2], SLICE("0"));
    reply_ok(call->reply);
}

const struct debug_subcommand script_debug_subcommands[] = {
    {"set-disable-deny-scripts", 1, 1, debug_set_deny,
     WORDS("SET-DISABLE-DENY-SCRIPTS <0|1>",
           "    Allow scripts to call commands that they are denied, or deny them again.")},
    {.name = NULL}};

static const char *script_run_refuse(struct command *command, int argc, const struct slice *argv,
                                     const char **counted) {
    if (!command_arity_ok(command, argc)) return "ERR Wrong number of args calling command from script";
    if (script_denies(command)) return "ERR This Valkey command is not allowed from script";
    return refuse_by_state(command, argc, argv, counted);
}

static const char *script_call_rewritten(int argc, const struct slice *argv, struct slice *reply) {
    struct command *parent, *command = script_run_find(argc, argv, &parent);
    const char *counted = NULL;
    const char *error = command ? script_run_refuse(command, argc, argv, &counted) : refuse_unknown(parent, argv);
    if (__builtin_expect(error != NULL, 0)) {
        if (command) command->rejected++;
        errorstats_count(&caller->reply, slice_of(counted ? counted : error));
        return error;
    }
    if (command->spec->flags & CMD_WRITE) script_running->wrote = true;
    memory_output_clear(&replies);
    dispatch_call(caller, command, argc, argv, caller->slot);
    if (__builtin_expect(replies.out.failed, 0)) return "OOM the reply is too large for the memory that is left";
    *reply = memory_output_slice(&replies);
    if (__builtin_expect(reply->len >= commandlog_thresholds[COMMANDLOG_LARGE_REPLY], 0))
        commandlog_add(COMMANDLOG_LARGE_REPLY, command, caller, argc, argv, reply->len);
    return NULL;
}

const char *script_call(int argc, const struct slice *argv, struct slice *reply) {
    if (__builtin_expect(!dispatch_rewrite, 1)) return script_call_rewritten(argc, argv, reply);
    struct request_rewrite rewrite = {.client = caller, .argc = argc, .argv = argv};
    dispatch_rewrite(&rewrite);
    const char *error = script_call_rewritten(rewrite.argc, rewrite.argv, reply);
    if (rewrite.free) rewrite.free(&rewrite);
    return error;
}

int script_may_call(int argc, const struct slice *argv) {
    struct command *parent, *command = script_run_find(argc, argv, &parent);
    if (!command) return -1;
    return user_may(caller, command, argc, argv);
}

void script_set_protocol(int protocol) {
    caller->reply.protocol = (uint8_t)protocol;
}

int script_protocol(void) {
    return caller->reply.protocol;
}

void script_set_targets(int targets) {
    int before = propagation_set_targets(targets);
    if (script_running->redirected) return;
    script_running->redirected = true;
    script_running->targets = before;
}
