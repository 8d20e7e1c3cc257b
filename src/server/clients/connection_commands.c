/* connection_commands.c: PING, ECHO, AUTH, HELLO, SELECT, QUIT, RESET, TIME, SHUTDOWN: commands about the connection
 * and the server. CLIENT is in client_commands.c. */
#include "lib/system/clock.h"
#include "lib/text/number.h"
#include "server/absent_features.h"
#include "server/clients/auth.h"
#include "server/clients/client.h"
#include "server/clients/client_commands.h"
#include "server/clients/transactions.h"
#include "server/config/settings.h"
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
    if (!parse_int64(call->argv[1], &id)) {
        reply_not_integer(call->reply);
        return;
    }
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

static void auth_run(struct call *call) {
    for (int i = 1; i < call->argc; i++) call_redact(call, i);
    if (call->argc > 3) {
        reply_syntax_error(call->reply);
    } else if (call->argc == 2 && !auth_has_password()) {
        reply_error(
            call->reply,
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your "
            "configuration is correct?");
    } else if (auth_login(call->client, call->argc == 2 ? SLICE("default") : call->argv[1],
                          call->argv[call->argc - 1])) {
        reply_ok(call->reply);
    } else {
        reply_error(call->reply, wrong_password);
    }
}

struct hello {
    int protocol;
    const struct slice *user, *password, *name;
};

/* Returns false after replying with an error. */
static bool hello_parse(struct call *call, struct hello *hello) {
    struct reply *reply = call->reply;
    if (call->argc >= 2) {
        int64_t version;
        if (!parse_int64(call->argv[1], &version)) {
            reply_error(reply, "ERR Protocol version is not an integer or out of range");
            return false;
        }
        if (version < 2 || version > 3) {
            reply_error(reply, "NOPROTO unsupported protocol version");
            return false;
        }
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
            if (!client_name_ok(*hello->name)) {
                reply_error(reply, "ERR Client names cannot contain spaces, newlines or special characters.");
                return false;
            }
            i++;
        } else {
            reply_error_format(reply, "ERR Syntax error in HELLO option '%.*s'",
                               (int)(call->argv[i].len > 128 ? 128 : call->argv[i].len), call->argv[i].data);
            return false;
        }
    }
    return true;
}

static void hello_answer(struct call *call) {
    struct reply *reply = call->reply;
    const char *zone = server_settings.availability_zone;
    bool has_role = strcmp(server.mode, "sentinel") != 0;
    reply_map(reply, 6 + has_role + (zone[0] != 0));
    reply_bulk_text(reply, "server");
    reply_bulk_text(reply, server_settings.redis_names ? "redis" : SERVER_NAME);
    reply_bulk_text(reply, "version");
    reply_bulk_text(reply, server_settings.redis_names ? SERVER_REDIS_VERSION : SERVER_VERSION);
    reply_bulk_text(reply, "proto");
    reply_integer(reply, reply->protocol);
    reply_bulk_text(reply, "id");
    reply_integer(reply, (int64_t)call->client->id);
    reply_bulk_text(reply, "mode");
    reply_bulk_text(reply, server.mode);
    if (has_role) {
        reply_bulk_text(reply, "role");
        reply_bulk_text(reply, role_is_replica() ? "replica" : "master");
    }
    reply_bulk_text(reply, "modules");
    modules_reply(reply);
    if (zone[0]) {
        reply_bulk_text(reply, "availability_zone");
        reply_bulk_text(reply, zone);
    }
}

static void hello_run(struct call *call) {
    struct hello hello = {0};
    if (!hello_parse(call, &hello)) return;
    struct client *client = call->client;
    if (hello.user && !auth_login(client, *hello.user, *hello.password)) {
        reply_error(call->reply, wrong_password);
        return;
    }
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

static void reset_run(struct call *call) {
    if (call->client->flags & (CLIENT_PRIMARY | CLIENT_REPLICA)) { /* the links of replication */
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

static void shutdown_run(struct call *call) {
    int flags = 0, aborts = 0;
    for (int i = 1; i < call->argc; i++) {
        if (slice_is(call->argv[i], "nosave"))
            flags |= SHUTDOWN_NOSAVE;
        else if (slice_is(call->argv[i], "save"))
            flags |= SHUTDOWN_SAVE;
        else if (slice_is(call->argv[i], "now"))
            flags |= SHUTDOWN_NOW;
        else if (slice_is(call->argv[i], "force"))
            flags |= SHUTDOWN_FORCE;
        else if (slice_is(call->argv[i], "safe"))
            flags |= SHUTDOWN_SAFE;
        else if (slice_is(call->argv[i], "failover"))
            flags |= SHUTDOWN_FAILOVER;
        else if (slice_is(call->argv[i], "abort"))
            aborts++;
        else
            aborts = 2;
    }
    if (aborts > 1 || (aborts && flags) || ((flags & SHUTDOWN_SAVE) && (flags & SHUTDOWN_NOSAVE))) {
        reply_syntax_error(call->reply);
        return;
    }
    if (flags & SHUTDOWN_FAILOVER && !server.cluster_enabled) {
        reply_error(call->reply, "ERR SHUTDOWN FAILOVER is only supported in cluster mode.");
        return;
    }
    if (aborts) {
        if (server_shutdown_abort())
            reply_ok(call->reply);
        else
            reply_error(call->reply, "ERR No shutdown in progress.");
        return;
    }
    server_shutdown_for(call->client, flags);
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
static const char *const shutdown_history[] = {"7.0.0", "Takes NOW, FORCE and ABORT.", "9.0.0",
                                               "Takes SAFE and FAILOVER.", NULL};

const struct command_spec connection_commands[] = {
    {.name = "ping",
     .run = ping_run,
     .arity = -1,
     .flags = CMD_NO_DATA | CMD_FAST,
     .categories = CAT_CONNECTION,
     .group = GROUP_CONNECTION,
     .since = "1.0.0",
     .complexity = "O(1)",
     .summary = "Returns PONG, or its argument.",
     .syntax = "[message:string]",
     .tips = ping_tips},
    {.name = "echo",
     .run = echo_run,
     .arity = 2,
     .flags = CONNECTION_FLAGS,
     .categories = CAT_CONNECTION,
     .group = GROUP_CONNECTION,
     .since = "1.0.0",
     .complexity = "O(1)",
     .summary = "Returns its argument.",
     .syntax = "message:string"},
    {.name = "auth",
     .run = auth_run,
     .arity = -2,
     .flags = HANDSHAKE_FLAGS,
     .categories = CAT_CONNECTION,
     .group = GROUP_CONNECTION,
     .since = "1.0.0",
     .complexity = "O(N) where N is the number of passwords of the user",
     .summary = "Authenticates the connection.",
     .syntax = "[username:string@6.0.0] password:string",
     .history = auth_history},
    {.name = "hello",
     .run = hello_run,
     .arity = -1,
     .flags = HANDSHAKE_FLAGS,
     .categories = CAT_CONNECTION,
     .group = GROUP_CONNECTION,
     .since = "6.0.0",
     .complexity = "O(1)",
     .summary = "Selects the protocol version; may also authenticate and name the connection.",
     .syntax = "[arguments{protover:integer [AUTH auth{username:string password:string}] [SETNAME clientname:string]}]",
     .history = hello_history},
    {.name = "select",
     .run = select_run,
     .arity = 2,
     .flags = CONNECTION_FLAGS | CMD_ALLOW_BUSY,
     .categories = CAT_CONNECTION,
     .group = GROUP_CONNECTION,
     .since = "1.0.0",
     .complexity = "O(1)",
     .summary = "Selects a database for the connection.",
     .syntax = "index:integer"},
    {.name = "quit",
     .run = quit_run,
     .arity = -1,
     .flags = HANDSHAKE_FLAGS | CMD_NOT_QUEUED,
     .categories = CAT_CONNECTION,
     .group = GROUP_CONNECTION,
     .since = "1.0.0",
     .complexity = "O(1)",
     .summary = "Closes the connection."},
    {.name = "reset",
     .run = reset_run,
     .arity = 1,
     .flags = HANDSHAKE_FLAGS | CMD_NOT_QUEUED,
     .categories = CAT_CONNECTION,
     .group = GROUP_CONNECTION,
     .since = "6.2.0",
     .complexity = "O(1)",
     .summary = "Brings the connection back to its initial state."},
    {.name = "asking",
     .run = asking_run,
     .arity = 1,
     .flags = CMD_NO_DATA | CMD_FAST,
     .categories = CAT_CONNECTION,
     .group = GROUP_CLUSTER,
     .since = "3.0.0",
     .complexity = "O(1)",
     .summary = "Marks the next command as one that follows an -ASK redirection."},
    {.name = "readonly",
     .run = readonly_run,
     .arity = 1,
     .flags = CONNECTION_FLAGS,
     .categories = CAT_CONNECTION,
     .group = GROUP_CLUSTER,
     .since = "3.0.0",
     .complexity = "O(1)",
     .summary = "Enables reads from a replica for the connection."},
    {.name = "readwrite",
     .run = readwrite_run,
     .arity = 1,
     .flags = CONNECTION_FLAGS,
     .categories = CAT_CONNECTION,
     .group = GROUP_CLUSTER,
     .since = "3.0.0",
     .complexity = "O(1)",
     .summary = "Disables reads from a replica for the connection."},
    {.name = NULL},
};

const struct command_spec server_commands[] = {
    {.name = "time",
     .run = time_run,
     .arity = 1,
     .flags = CONNECTION_FLAGS,
     .group = GROUP_SERVER,
     .since = "2.6.0",
     .complexity = "O(1)",
     .summary = "Returns the server's time: seconds and microseconds.",
     .tips = time_tips},
    {.name = "shutdown",
     .run = shutdown_run,
     .arity = -1,
     .flags = CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE | CMD_NO_MULTI | CMD_ALLOW_BUSY,
     .group = GROUP_SERVER,
     .since = "1.0.0",
     .complexity = "O(N) when saving, where N is the number of keys in all databases, else O(1)",
     .summary = "Saves the data as configured and stops the server.",
     .syntax = "[abort-selector(save-selector-block{[save-selector(NOSAVE|SAVE)] [NOW@7.0.0] [FORCE@7.0.0] "
               "[SAFE@9.0.0] [FAILOVER@9.0.0]}|ABORT@7.0.0)]",
     .history = shutdown_history},
    {.name = NULL},
};
