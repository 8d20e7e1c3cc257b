/* client_commands.c: CLIENT and its subcommands. KILL is in client_kill.c; those of client-side caching are in
 * tracking/. */
#include "server/clients/client_commands.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/clients/auth.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/client_private.h"
#include "server/clients/listeners.h"
#include "server/command/command.h"
#include "server/command/help.h"
#include "server/command/spec.h"
#include "server/feature.h"
#include "server/server.h"

static void id_run(struct call *call) {
    reply_integer(call->reply, (int64_t)call->client->id);
}

static void info_run(struct call *call) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    client_describe(call->client, &text.out);
    output_write(&text.out, SLICE("\n"));
    reply_verbatim(call->reply, "txt", memory_output_slice(&text));
    memory_output_free(&text);
}

static void list_run(struct call *call) {
    struct client_filter filter = {0};
    if (client_filter_parse(&filter, call->reply, call->argc - 2, call->argv + 2)) {
        struct memory_output text = MEMORY_OUTPUT_INIT;
        list_each_entry(clients_all(), struct client, link, client) {
            if ((filter.skip_me && client == call->client) || !client_filter_matches(&filter, client)) continue;
            client_describe(client, &text.out);
            output_write(&text.out, SLICE("\n"));
        }
        reply_verbatim(call->reply, "txt", memory_output_slice(&text));
        memory_output_free(&text);
    }
    client_filter_free(&filter);
}

bool client_name_ok(struct slice name) {
    for (size_t i = 0; i < name.len; i++)
        if (name.data[i] < '!' || name.data[i] > '~') return false;
    return true;
}

static void getname_run(struct call *call) {
    if (call->client->name)
        reply_bulk_text(call->reply, call->client->name);
    else
        reply_null(call->reply);
}

static void setname_run(struct call *call) {
    if (!client_name_ok(call->argv[2])) {
        reply_error(call->reply, "ERR Client names cannot contain spaces, newlines or special characters.");
        return;
    }
    client_set_name(call->client, call->argv[2]);
    reply_ok(call->reply);
}

static void setinfo_run(struct call *call) {
    struct slice attribute = call->argv[2], value = call->argv[3];
    char **place;
    if (slice_is(attribute, "lib-name")) {
        place = &call->client->lib_name;
    } else if (slice_is(attribute, "lib-ver")) {
        place = &call->client->lib_ver;
    } else {
        reply_error_format(call->reply, "ERR Unrecognized option '%.*s'",
                           (int)(attribute.len > 128 ? 128 : attribute.len), attribute.data);
        return;
    }
    if (!client_name_ok(value)) {
        reply_error_format(call->reply, "ERR %.*s cannot contain spaces, newlines or special characters.",
                           (int)attribute.len, attribute.data);
        return;
    }
    mem_free(*place);
    *place = value.len ? mem_strndup(value.data, value.len) : NULL;
    reply_ok(call->reply);
}

static void reply_run(struct call *call) {
    struct client *client = call->client;
    struct slice mode = call->argv[2];
    if (slice_is(mode, "on")) {
        client->flags &= ~(uint32_t)(CLIENT_REPLY_OFF | CLIENT_REPLY_SKIP | CLIENT_REPLY_SKIP_NEXT);
        client_retarget(client);
        reply_ok(call->reply);
    } else if (slice_is(mode, "off")) {
        client->flags |= CLIENT_REPLY_OFF;
        client_retarget(client);
    } else if (slice_is(mode, "skip")) {
        if (!(client->flags & CLIENT_REPLY_OFF)) client->flags |= CLIENT_REPLY_SKIP_NEXT;
    } else {
        reply_syntax_error(call->reply);
    }
}

static void pause_run(struct call *call) {
    enum pause_kind kind = PAUSE_ALL;
    if (call->argc > 4) {
        reply_error(call->reply, "ERR wrong number of arguments for 'client|pause' command");
        return;
    }
    if (call->argc == 4 && slice_is(call->argv[3], "write")) {
        kind = PAUSE_WRITE;
    } else if (call->argc == 4 && !slice_is(call->argv[3], "all")) {
        reply_error(call->reply, "ERR CLIENT PAUSE mode must be WRITE or ALL");
        return;
    }
    int64_t duration;
    if (!parse_int64(call->argv[2], &duration)) {
        reply_error(call->reply, "ERR timeout is not an integer or out of range");
    } else if (duration < 0) {
        reply_error(call->reply, "ERR timeout is negative");
    } else if (duration > INT64_MAX / 2 - clock_ms()) {
        reply_error(call->reply, "ERR timeout is out of range");
    } else {
        clients_pause(PAUSE_COMMAND, kind, clock_mono_ms() + duration);
        reply_ok(call->reply);
    }
}

static void unpause_run(struct call *call) {
    clients_unpause(PAUSE_COMMAND);
    reply_ok(call->reply);
}

static void flag_run(struct call *call, uint32_t flag) {
    if (slice_is(call->argv[2], "on")) {
        call->client->flags |= flag;
    } else if (slice_is(call->argv[2], "off")) {
        call->client->flags &= ~flag;
    } else {
        reply_syntax_error(call->reply);
        return;
    }
    reply_ok(call->reply);
}
/* Newer clients may send unknown capabilities, which are not an error. */
static void capa_run(struct call *call) {
    for (int i = 2; i < call->argc; i++) {
        if (slice_is(call->argv[i], "redirect")) call->client->flags |= CLIENT_CAPA_REDIRECT;
        if (slice_is(call->argv[i], "rdma-endpoints")) call->client->flags |= CLIENT_CAPA_RDMA_ENDPOINTS;
    }
    reply_ok(call->reply);
}

static void no_evict_run(struct call *call) {
    flag_run(call, CLIENT_NO_EVICT);
}
static void no_touch_run(struct call *call) {
    flag_run(call, CLIENT_NO_TOUCH);
}

static void import_source_run(struct call *call) {
    if (!server_deletion_paused_for(DELETION_PAUSE_IMPORT) && !slice_is(call->argv[2], "off"))
        reply_error(call->reply, "ERR Server is not in import mode");
    else
        flag_run(call, CLIENT_IMPORT_SOURCE);
}

static void unblock_run(struct call *call) {
    const char *error = NULL;
    int64_t id;
    if (call->argc == 4) {
        if (slice_is(call->argv[3], "error")) {
            error = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
        } else if (!slice_is(call->argv[3], "timeout")) {
            reply_error(call->reply, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
            return;
        }
    } else if (call->argc > 4) {
        reply_syntax_error(call->reply);
        return;
    }
    if (!argument_integer(call, 2, &id)) return;
    struct client *client = client_by_id((uint64_t)id);
    bool unblocked = client && client_unblock(client, error);
    reply_integer(call->reply, unblocked);
    if (unblocked && error) call->reply->failed = 1; /* INFO commandstats counts the error sent above, as Valkey does */
}

#define OWN_FLAGS   (CMD_NO_DATA | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE)
#define ADMIN_FLAGS (OWN_FLAGS | CMD_ADMIN)

static const char *const nondeterministic[] = {"nondeterministic_output", NULL};
static const char *const everywhere[] = {"request_policy:all_nodes", "response_policy:all_succeeded", NULL};
static const char *const list_history[] = {"2.8.12", "Shows the id.",
                                           "5.0.0",  "Takes TYPE.",
                                           "6.0.0",  "Shows the user.",
                                           "6.2.0",  "Shows argv-mem, tot-mem, laddr and redir; takes ID.",
                                           "7.0.0",  "Shows resp, multi-mem, rbs and rbp.",
                                           "7.0.3",  "Shows ssub.",
                                           "8.0.0",  "The type of a primary is called primary; master is understood.",
                                           "8.1.0",  "Takes USER, ADDR, LADDR, SKIPME and MAXAGE.",
                                           "9.0.0",  "Takes the filters of CLIENT KILL and their negative forms.",
                                           NULL};
static const char *const kill_history[] = {"2.8.12", "Takes filters.",
                                           "2.8.12", "Takes ID.",
                                           "3.2.0",  "Knows the type master.",
                                           "5.0.0",  "Calls a replica replica; slave is understood.",
                                           "6.2.0",  "Takes LADDR.",
                                           "8.0.0",  "Takes MAXAGE.",
                                           "8.0.0",  "Calls a primary primary; master is understood.",
                                           "8.1.0",  "Takes several ids.",
                                           "9.0.0",  "Takes more filters and negative ones.",
                                           NULL};
static const char *const pause_history[] = {"6.2.0", "Takes a mode, of which WRITE is new.", NULL};

static const struct command_spec subcommands[] = {
    {COMMAND("capa", capa_run, -3, OWN_FLAGS | CMD_ALLOW_BUSY, .group = GROUP_CONNECTION, "8.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)", .summary = "Declares capabilities of the client.",
     .syntax = "capability:string..."},
    {COMMAND("getname", getname_run, 2, OWN_FLAGS | CMD_ALLOW_BUSY, .group = GROUP_CONNECTION, "2.6.9"),
     .categories = CAT_CONNECTION, .complexity = "O(1)", .summary = "Returns the name that CLIENT SETNAME has set."},
    {HELP_ROW(help_handler, "CACHING (YES|NO)",
              "    Track the keys of the next command, or do not, in the modes OPTIN and OPTOUT.",
              "CAPA <option> [options...]", "    Report the capabilities of this client. Options are:",
              "    * REDIRECT: it follows -REDIRECT to another server (r in CLIENT LIST).",
              "    * RDMA-ENDPOINTS: CLUSTER SLOTS and SHARDS also name RDMA ports (e).", "GETNAME",
              "    The name of this connection.", "GETREDIR",
              "    The id of the client that gets the invalidation messages of this connection.", "ID",
              "    The id of this connection.", "INFO", "    What CLIENT LIST shows, of this connection alone.",
              "KILL <ip:port>", "    Close the connection from that address.",
              "KILL <option> <value> [<option> <value> [...]]",
              "    Close the connections that match all options. Options are:", "    * ADDR <ip:port>, LADDR <ip:port>",
              "      Connections from an address, or to an address of the server.", "    * IP <ip>",
              "      Connections from an address, whatever the port.", "    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)",
              "      Connections of a type.", "    * USER <username>, NAME <client-name>, DB <db-id>",
              "      Connections of a user, with a name, with a database selected.",
              "    * LIB-NAME <library-name>, LIB-VER <library-version>", "      Connections of a client library.",
              "    * FLAGS <flags>, CAPA <capa>",
              "      Connections with all these letters in flags= or capa= of CLIENT LIST.",
              "    * ID <client-id> [<client-id> ...]", "      Connections with these ids.",
              "    * NOT-<option> <value>", "      Connections that the option above does not match.",
              "    * MAXAGE <seconds>, IDLE <seconds>",
              "      Connections of this age or older, or idle for this long.", "    * SKIPME (YES|NO)",
              "      Leave this connection alone (default: yes).", "LIST [<option> <value> [<option> <value> [...]]]",
              "    One line for each connection that matches all options, which are those of KILL",
              "    (default of SKIPME: no).", "UNBLOCK <clientid> [TIMEOUT|ERROR]",
              "    End the wait of a blocked client, as a timeout or with an error.", "UNPAUSE", "    End a pause.",
              "PAUSE <timeout> [WRITE|ALL]", "    Hold back all requests, or just writes, for <timeout> milliseconds.",
              "REPLY (ON|OFF|SKIP)", "    Turn replies to this connection on or off; SKIP omits one reply.",
              "SETNAME <name>", "    Name this connection.", "SETINFO <option> <value>",
              "    Report the client library. Options are:", "    * LIB-NAME: name of its library.",
              "    * LIB-VER: version of it.", "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
              "         [OPTIN] [OPTOUT] [NOLOOP]",
              "    Turn client-side caching on or off: the server sends invalidation messages",
              "    for the keys that this connection reads, or for all keys with a prefix.", "TRACKINGINFO",
              "    What this connection tracks for client-side caching.", "NO-EVICT (ON|OFF)",
              "    Exempt this connection from client eviction.", "NO-TOUCH (ON|OFF)",
              "    Keep the keys' access times unchanged by this connection.", "IMPORT-SOURCE (ON|OFF)",
              "    Show expired keys to this connection, in import mode."),
     .categories = CAT_CONNECTION, .group = GROUP_CONNECTION, .since = "5.0.0"},
    {COMMAND("id", id_run, 2, OWN_FLAGS | CMD_ALLOW_BUSY, .group = GROUP_CONNECTION, "5.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)", .summary = "Returns the id of the connection."},
    {COMMAND("import-source", import_source_run, 3, OWN_FLAGS, .group = GROUP_CONNECTION, "8.1.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)",
     .summary = "Marks the connection as an import: it sees expired keys in import mode.", .syntax = "enabled(ON|OFF)"},
    {COMMAND("info", info_run, 2, OWN_FLAGS, .group = GROUP_CONNECTION, "6.2.0"), .categories = CAT_CONNECTION,
     .complexity = "O(1)", .summary = "Returns the line of the connection in CLIENT LIST.", .tips = nondeterministic},
    {COMMAND("kill", client_kill_run, -3, ADMIN_FLAGS, .group = GROUP_CONNECTION, "2.4.0"),
     .categories = CAT_CONNECTION, .complexity = "O(N) where N is the number of connections",
     .summary = "Closes connections.",
     .syntax = "filter(old-format:string\"ip:port\"!2.8.12|new-format([ID client-id:integer...@2.8.12]|[TY"
               "PE client-type(NORMAL|MASTER@3.2.0|PRIMARY@8.0.0|SLAVE|REPLICA@5.0.0|PUBSUB)@2.8.12]|[US"
               "ER username:string]|[ADDR addr:string\"ip:port\"]|[LADDR laddr:string\"ip:port\"@6.2.0]|[SKI"
               "PME skipme(YES|NO)]|[MAXAGE maxage:integer@8.0.0]|[NAME name:string@9.0.0]|[IDLE idle:in"
               "teger@9.0.0]|[FLAGS flags:string@9.0.0]|[LIB-NAME lib-name:string@9.0.0]|[LIB-VER lib-ve"
               "r:string@9.0.0]|[DB db:integer@9.0.0]|[CAPA capa:string@9.0.0]|[IP ip:string@9.0.0]|[NOT"
               "-TYPE not-client-type(NORMAL|MASTER|PRIMARY|SLAVE|REPLICA|PUBSUB)@9.0.0]|[NOT-ID not-cli"
               "ent-id:integer...@9.0.0]|[NOT-USER not-username:string@9.0.0]|[NOT-ADDR not-addr:string\""
               "ip:port\"@9.0.0]|[NOT-LADDR not-laddr:string\"ip:port\"@9.0.0]|[NOT-NAME not-name:string@9."
               "0.0]|[NOT-FLAGS not-flags:string@9.0.0]|[NOT-LIB-NAME not-lib-name:string@9.0.0]|[NOT-LI"
               "B-VER not-lib-ver:string@9.0.0]|[NOT-DB not-db:integer@9.0.0]|[NOT-CAPA not-capa:string@"
               "9.0.0]|[NOT-IP not-ip:string@9.0.0])...)",
     .history = kill_history},
    {COMMAND("list", list_run, -2, ADMIN_FLAGS, .group = GROUP_CONNECTION, "2.4.0"), .categories = CAT_CONNECTION,
     .complexity = "O(N) where N is the number of connections", .summary = "Lists the connections.",
     .syntax = "[TYPE client-type(NORMAL|MASTER|REPLICA|PUBSUB)@5.0.0] [ID client-id:integer...@6.2.0] ["
               "USER username:string@8.1.0] [ADDR addr:string\"ip:port\"@8.1.0] [LADDR laddr:string\"ip:por"
               "t\"@8.1.0] [SKIPME skipme(YES|NO)@8.1.0] [MAXAGE maxage:integer@8.1.0] [NAME name:string@"
               "9.0.0] [IDLE idle:integer@9.0.0] [FLAGS flags:string@9.0.0] [LIB-NAME lib-name:string@9."
               "0.0] [LIB-VER lib-ver:string@9.0.0] [DB db:integer@9.0.0] [CAPA capa:string@9.0.0] [IP i"
               "p:string@9.0.0] [NOT-TYPE not-client-type(NORMAL|MASTER|REPLICA|PUBSUB)@9.0.0] [NOT-ID n"
               "ot-client-id:integer...@9.0.0] [NOT-USER not-username:string@9.0.0] [NOT-ADDR not-addr:s"
               "tring\"ip:port\"@9.0.0] [NOT-LADDR not-laddr:string\"ip:port\"@9.0.0] [NOT-NAME not-name:str"
               "ing@9.0.0] [NOT-FLAGS not-flags:string@9.0.0] [NOT-LIB-NAME not-lib-name:string@9.0.0] ["
               "NOT-LIB-VER not-lib-ver:string@9.0.0] [NOT-DB not-db:integer@9.0.0] [NOT-CAPA not-capa:s"
               "tring@9.0.0] [NOT-IP not-ip:string@9.0.0]",
     .history = list_history, .tips = nondeterministic},
    {COMMAND("no-evict", no_evict_run, 3, ADMIN_FLAGS | CMD_ALLOW_BUSY, .group = GROUP_CONNECTION, "7.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)",
     .summary = "Controls whether the connection may be closed to free memory of clients.",
     .syntax = "enabled(ON|OFF)"},
    {COMMAND("no-touch", no_touch_run, 3, OWN_FLAGS | CMD_ALLOW_BUSY, .group = GROUP_CONNECTION, "7.2.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)",
     .summary = "Controls whether commands of the connection change the access times of keys.",
     .syntax = "enabled(ON|OFF)"},
    {COMMAND("pause", pause_run, -3, ADMIN_FLAGS, .group = GROUP_CONNECTION, "3.0.0"), .categories = CAT_CONNECTION,
     .complexity = "O(1)", .summary = "Makes clients wait with their commands for a time.",
     .syntax = "timeout:integer [mode(WRITE|ALL)@6.2.0]", .history = pause_history},
    {COMMAND("reply", reply_run, 3, OWN_FLAGS | CMD_NO_MULTI | CMD_ALLOW_BUSY, .group = GROUP_CONNECTION, "3.2.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)", .summary = "Controls whether the server replies to commands.",
     .syntax = "action(ON|OFF|SKIP)"},
    {COMMAND("setinfo", setinfo_run, 4, OWN_FLAGS | CMD_ALLOW_BUSY, .group = GROUP_CONNECTION, "7.2.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)", .summary = "Sets an attribute of the client program.",
     .syntax = "attr(LIB-NAME libname:string|LIB-VER libver:string)", .tips = everywhere},
    {COMMAND("setname", setname_run, 3, OWN_FLAGS | CMD_ALLOW_BUSY, .group = GROUP_CONNECTION, "2.6.9"),
     .categories = CAT_CONNECTION, .complexity = "O(1)", .summary = "Gives the connection a name.",
     .syntax = "connection-name:string", .tips = everywhere},
    {COMMAND("unblock", unblock_run, -3, ADMIN_FLAGS, .group = GROUP_CONNECTION, "5.0.0"), .categories = CAT_CONNECTION,
     .complexity = "O(log N), where N is the number of connections", .summary = "Ends the wait of a blocked client.",
     .syntax = "client-id:integer [unblock-type(TIMEOUT|ERROR)]"},
    {COMMAND("unpause", unpause_run, 2, ADMIN_FLAGS, .group = GROUP_CONNECTION, "6.2.0"), .categories = CAT_CONNECTION,
     .complexity = "O(N) where N is the number of paused connections", .summary = "Ends CLIENT PAUSE."},
    {.name = NULL},
};

static const struct command_spec client_commands[] = {
    {COMMAND("client", NULL, -2, 0, .group = GROUP_CONNECTION, "2.4.0"), .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about connections.", .subcommands = subcommands},
    {.name = NULL},
};

const struct feature clients_feature = {
    .name = "clients",
    .options = OPTIONS(client_options, client_eviction_options, auth_options, listener_options),
    .commands = COMMANDS(connection_commands, client_commands),
};
