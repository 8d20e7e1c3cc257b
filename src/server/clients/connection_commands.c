/* connection_commands.c: PING, ECHO, AUTH, HELLO, SELECT, QUIT, RESET, TIME: commands about the connection and
 * the server. CLIENT is in client_commands.c. */
#include "lib/system/clock.h"
#include "lib/text/number.h"
#include "server/clients/auth.h"
#include "server/clients/client.h"
#include "server/clients/client_commands.h"
#include "server/clients/transactions.h"
#include "server/command/command.h"
#include "server/command/dispatch.h"
#include "server/command/spec.h"
#include "server/config/settings.h"
#include "server/server_events.h"
#include "server/role.h"
#include "server/server.h"
#include <limits.h>

static void ping_run(struct call *call) {
    if (call->argc > 2) {
        reply_error(call->reply, "ERR wrong number of arguments for 'ping' command");
    } else if ((call->client->flags & CLIENT_PUBSUB) && call->reply->protocol == 2) {
        reply_array(call->reply, 2);
        reply_bulk(call->reply, SLICE("pong"));
        reply_bulk(call->reply, call->argc == 2 ? call->argv[1] : SLICE(""));
    } else if (call->argc == 1) {
        reply_status(call->reply, "PONG");
    } else {
        reply_bulk(call->reply, call->argv[1]);
    }
}

static void echo_run(struct call *call) {
    reply_bulk(call->reply, call->argv[1]);
}

static void select_run(struct call *call) {
    int64_t id;
    if (!argument_integer(call, 1, &id)) return;
    if (id < INT_MIN || id > INT_MAX) {
        reply_not_int(call->reply);
        return;
    }
    struct db *db = id < 0 ? NULL : keyspace_db(server.keyspace, (int)id);
    if (!db) {
        reply_no_such_db(call->reply);
        return;
    }
    call_select(call, db);
    reply_ok(call->reply);
}

static const char wrong_password[] = "WRONGPASS invalid username-password pair or user is disabled.";

/* Replies with the error if the client is refused. False: refused, or it waits. */
static bool authenticate(struct call *call, const struct slice *user, const struct slice *password) {
    enum auth_answer answer = auth_ask ? auth_ask(call, user, password) : AUTH_NOT_HANDLED;
    if (answer != AUTH_NOT_HANDLED) return answer == AUTH_GRANTED;
    if (auth_login(call->client, *user, *password)) return true;
    reply_error(call->reply, wrong_password);
    return false;
}

static void auth_run(struct call *call) {
    for (int i = 1; i < call->argc; i++) call_redact(call, i);
    if (call->argc > 3) {
        reply_syntax_error(call->reply);
    } else if (call->argc == 2 && !auth_has_password()) {
        reply_error(
            call->reply,
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your "
            "configuration is correct?");
    } else {
        struct slice user = call->argc == 2 ? SLICE("default") : call->argv[1];
        if (authenticate(call, &user, &call->argv[call->argc - 1])) reply_ok(call->reply);
    }
}

struct hello_options {
    int protocol;
    const struct slice *user, *password, *name;
};

/* Returns false after replying with an error. */
static bool hello_parse(struct call *call, struct hello_options *hello) {
    struct reply *reply = call->reply;
    if (call->argc >= 2) {
        int64_t version;
        if (!parse_int64(call->argv[1], &version))
            return reply_error(reply, "ERR Protocol version is not an integer or out of range");
        if (version < 2 || version > 3) return reply_error(reply, "NOPROTO unsupported protocol version");
        hello->protocol = (int)version;
    }
    for (int i = 2; i < call->argc; i++) {
        int more = call->argc - 1 - i;
        if (slice_is(call->argv[i], "AUTH") && more >= 2) {
            call_redact(call, i + 1);
            call_redact(call, i + 2);
            hello->user = &call->argv[i + 1];
            hello->password = &call->argv[i + 2];
            i += 2;
        } else if (slice_is(call->argv[i], "SETNAME") && more >= 1) {
            hello->name = &call->argv[i + 1];
            if (!client_name_ok(*hello->name))
                return reply_error(reply, "ERR Client names cannot contain spaces, newlines or special characters.");
            i++;
        } else {
            return reply_error_format(reply, "ERR Syntax error in HELLO option '%.*s'",
                                      (int)(call->argv[i].len > 128 ? 128 : call->argv[i].len), call->argv[i].data);
        }
    }
    return true;
}

static void hello_answer(struct call *call) {
    struct reply *reply = call->reply;
    const char *zone = server_settings.availability_zone;
    bool has_role = strcmp(server.mode, "sentinel") != 0;
    reply_map(reply, 6 + has_role + (zone[0] != 0));
    reply_field_text(reply, "server", server_settings.redis_names ? "redis" : SERVER_NAME);
    reply_field_text(reply, "version", server_settings.redis_names ? SERVER_REDIS_VERSION : SERVER_VERSION);
    reply_field_integer(reply, "proto", reply->protocol);
    reply_field_integer(reply, "id", (int64_t)call->client->id);
    reply_field_text(reply, "mode", server.mode);
    if (has_role) {
        reply_field_text(reply, "role", role_is_replica() ? "replica" : "master");
    }
    reply_bulk_text(reply, "modules");
    if (modules_reply)
        modules_reply(reply);
    else
        reply_array(reply, 0);
    if (zone[0]) {
        reply_field_text(reply, "availability_zone", zone);
    }
}

static void hello_run(struct call *call) {
    struct hello_options hello = {0};
    if (!hello_parse(call, &hello)) return;
    struct client *client = call->client;
    if (hello.user && !authenticate(call, hello.user, hello.password)) return;
    if (!client->authenticated && auth_required()) {
        reply_error(
            call->reply,
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
            "<user> <pass> "
            "option can be used to authenticate the client and select the RESP protocol version at the same time");
        return;
    }
    if (hello.name) client_set_name(client, *hello.name);
    if (hello.protocol) call->reply->protocol = client->reply.protocol = (uint8_t)hello.protocol;
    hello_answer(call);
}

static void quit_run(struct call *call) {
    reply_ok(call->reply);
    client_free_after_reply(call->client);
}

static void connection_reset_run(struct call *call) {
    /* The links of replication, and the clients of modules. */
    if (call->client->flags & (CLIENT_PRIMARY | CLIENT_REPLICA | CLIENT_INTERNAL)) {
        reply_error(call->reply, "ERR can only reset normal client connections");
        return;
    }
    client_reset(call->client);
    call->db = call->client->db;
    reply_status(call->reply, "RESET");
}

static void time_run(struct call *call) {
    int64_t now = clock_us();
    reply_array(call->reply, 2);
    reply_bulk_integer(call->reply, now / 1000000);
    reply_bulk_integer(call->reply, now % 1000000);
}

/* Within EXEC it has no effect: the commands were checked before. */
static void asking_run(struct call *call) {
    struct client *client = call->client;
    if (!server.cluster_enabled) {
        reply_error(call->reply, "ERR This instance has cluster support disabled");
        return;
    }
    if (!transaction_runs(client)) client->flags = (client->flags & ~(uint32_t)CLIENT_ASKING_USED) | CLIENT_ASKING;
    reply_ok(call->reply);
}

static void readonly_run(struct call *call) {
    call->client->flags |= CLIENT_READONLY;
    reply_ok(call->reply);
}
static void readwrite_run(struct call *call) {
    call->client->flags &= ~(uint32_t)CLIENT_READONLY;
    reply_ok(call->reply);
}

#define CONNECTION_FLAGS (CMD_NO_DATA | CMD_LOADING | CMD_STALE | CMD_FAST)
#define HANDSHAKE_FLAGS  (CONNECTION_FLAGS | CMD_NOSCRIPT | CMD_NO_AUTH | CMD_ALLOW_BUSY)

static const char *const auth_history[] = {"6.0.0", "Takes a username, for servers that have several users.", NULL};
static const char *const hello_history[] = {
    "6.2.0", "The protocol version may be left out: the reply then describes the connection as it is.", "8.1.0",
    "Shows the availability zone.", NULL};
static const char *const ping_tips[] = {"request_policy:all_shards", "response_policy:all_succeeded", NULL};
static const char *const time_tips[] = {"nondeterministic_output", NULL};

const struct command_spec connection_commands[] = {
    {COMMAND("ping", ping_run, -1, CMD_NO_DATA | CMD_FAST, .group = GROUP_CONNECTION, "1.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)", .summary = "Returns PONG, or its argument.",
     .syntax = "[message:string]", .tips = ping_tips},
    {COMMAND("echo", echo_run, 2, CONNECTION_FLAGS, .group = GROUP_CONNECTION, "1.0.0"), .categories = CAT_CONNECTION,
     .complexity = "O(1)", .summary = "Returns its argument.", .syntax = "message:string"},
    {COMMAND("auth", auth_run, -2, HANDSHAKE_FLAGS, .group = GROUP_CONNECTION, "1.0.0"), .categories = CAT_CONNECTION,
     .complexity = "O(N) where N is the number of passwords of the user", .summary = "Authenticates the connection.",
     .syntax = "[username:string@6.0.0] password:string", .history = auth_history},
    {COMMAND("hello", hello_run, -1, HANDSHAKE_FLAGS, .group = GROUP_CONNECTION, "6.0.0"), .categories = CAT_CONNECTION,
     .complexity = "O(1)", .summary = "Selects the protocol version; may also authenticate and name the connection.",
     .syntax = "[arguments{protover:integer [AUTH auth{username:string password:string}] [SETNAME clientname:string]}]",
     .history = hello_history},
    {COMMAND("select", select_run, 2, CONNECTION_FLAGS | CMD_ALLOW_BUSY, .group = GROUP_CONNECTION, "1.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)", .summary = "Selects a database for the connection.",
     .syntax = "index:integer"},
    {COMMAND("quit", quit_run, -1, HANDSHAKE_FLAGS | CMD_NOT_QUEUED, .group = GROUP_CONNECTION, "1.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)", .summary = "Closes the connection."},
    {COMMAND("reset", connection_reset_run, 1, HANDSHAKE_FLAGS | CMD_NOT_QUEUED, .group = GROUP_CONNECTION, "6.2.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)", .summary = "Brings the connection back to its initial state."},
    {COMMAND("asking", asking_run, 1, CMD_NO_DATA | CMD_FAST, .group = GROUP_CLUSTER, "3.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)",
     .summary = "Marks the next command as one that follows an -ASK redirection."},
    {COMMAND("readonly", readonly_run, 1, CONNECTION_FLAGS, .group = GROUP_CLUSTER, "3.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)", .summary = "Enables reads from a replica for the connection."},
    {COMMAND("readwrite", readwrite_run, 1, CONNECTION_FLAGS, .group = GROUP_CLUSTER, "3.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)",
     .summary = "Disables reads from a replica for the connection."},
    {.name = NULL},
};

const struct command_spec server_commands[] = {
    {COMMAND("time", time_run, 1, CONNECTION_FLAGS, .group = GROUP_SERVER, "2.6.0"), .complexity = "O(1)",
     .summary = "Returns the server's time: seconds and microseconds.", .tips = time_tips},
    {.name = NULL},
};
