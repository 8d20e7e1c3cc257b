/* commands.c: SENTINEL, ROLE and PUBLISH of a Sentinel. Subcommands with an older name (MASTER, SLAVES) have both.
 */
#include "lib/system/log.h"
#include "lib/text/glob.h"
#include "lib/text/number.h"
#include "repl/link_transport.h"
#include "sentinel/links.h"
#include "sentinel/scripts.h"
#include "sentinel/sentinel_file.h"
#include "sentinel/this_sentinel.h"
#include "sentinel/views.h"
#include "server/clients/client.h"
#include "server/command/help.h"
#include "server/command/spec.h"
#include <stdio.h>
#include <string.h>

void sentinel_no_such_group(struct call *call) {
    reply_error(call->reply, "ERR No such master with that name");
}
void sentinel_reply_saved(struct call *call) {
    if (sentinel_file_flush())
        reply_error(call->reply, "ERR Failed to save config file. Check server logs.");
    else
        reply_ok(call->reply);
}
static struct instance *group_of_call(struct call *call) {
    struct instance *group = sentinel_find_group(this_sentinel, call->argv[2]);
    if (!group) sentinel_no_such_group(call);
    return group;
}

/* --- Views --- */

static void primaries_run(struct call *call) {
    reply_array(call->reply, this_sentinel->groups.count);
    each_group(group) view_instance(call->reply, group);
}
static void primary_run(struct call *call) {
    struct instance *group = group_of_call(call);
    if (group) view_instance(call->reply, group);
}
static void replicas_run(struct call *call) {
    struct instance *group = group_of_call(call);
    if (group) view_list(call->reply, &group->replicas);
}
static void sentinels_run(struct call *call) {
    struct instance *group = group_of_call(call);
    if (group) view_list(call->reply, &group->sentinels);
}
static void get_primary_addr_run(struct call *call) {
    struct instance *group = sentinel_find_group(this_sentinel, call->argv[2]);
    const struct connection *conn = call->client->conn;
    if (!group)
        reply_null_array(call->reply);
    else
        view_primary_address(call->reply, group, conn && link_is_rdma(conn));
}
static void myid_run(struct call *call) {
    reply_bulk_text(call->reply, this_sentinel->id);
}
static void pending_scripts_run(struct call *call) {
    scripts_reply(call->reply);
}
static void info_cache_run(struct call *call) {
    struct reply_deferred deferred;
    size_t count = 0;
    reply_deferred_begin(call->reply, &deferred);
    each_group(group) {
        bool wanted = false;
        for (int i = 2; i < call->argc; i++) wanted |= slice_equal(call->argv[i], slice_of(group->name));
        if (!wanted) continue;
        view_info_cache(call->reply, group);
        count += 2;
    }
    reply_deferred_end(call->reply, &deferred, REPLY_ARRAY, count); /* no map, also in RESP3 */
}
static void ckquorum_run(struct call *call) {
    struct instance *group = group_of_call(call);
    bool quorum, majority;
    if (!group) return;
    unsigned usable = sentinel_usable(this_sentinel, group, &quorum, &majority);
    char text[256];
    if (quorum && majority) {
        snprintf(text, sizeof text, "OK %u usable Sentinels. Quorum and failover authorization can be reached", usable);
        reply_status(call->reply, text);
        return;
    }
    snprintf(text, sizeof text, "NOQUORUM %u usable Sentinels. %s%s%s", usable,
             quorum ? "" : "Not enough available Sentinels to reach the specified quorum for this master",
             quorum || majority ? "" : ". ",
             majority ? "" : "Not enough available Sentinels to reach the majority and authorize a failover");
    reply_error(call->reply, text);
}
static void explain_run(struct call *call) {
    struct instance *group = group_of_call(call);
    if (group) sentinel_explain(call, group);
}

/* --- Between Sentinels --- */

static void is_down_run(struct call *call) {
    int64_t port, epoch;
    const char *leader;
    uint64_t leader_epoch;
    if (!parse_int64(call->argv[3], &port) || !parse_int64(call->argv[4], &epoch)) {
        reply_not_integer(call->reply);
        return;
    }
    /* Epochs are not negative: a request with such an epoch gets no vote. */
    bool down = sentinel_is_down(this_sentinel, call->argv[2], port < 0 || port > 65535 ? -1 : (int)port,
                                 epoch < 0 ? 0 : (uint64_t)epoch, epoch < 0 ? SLICE("*") : call->argv[5], &leader,
                                 &leader_epoch, sentinel_now());
    /* A vote is on disk before the reply. If it cannot be written, this Sentinel does not vote. */
    if (sentinel_file_settle()) leader = "", leader_epoch = 0;
    reply_array(call->reply, 3);
    reply_integer(call->reply, down);
    reply_bulk_text(call->reply, *leader ? leader : "*");
    reply_integer(call->reply, (int64_t)leader_epoch);
}
void sentinel_publish_run(struct call *call) {
    if (!slice_equal(call->argv[1], slice_of(sentinel_hello_channel))) {
        reply_error(call->reply, "ERR Only HELLO messages are accepted by Sentinel instances.");
        return;
    }
    sentinel_hello(this_sentinel, call->argv[2], sentinel_now());
    reply_integer(call->reply, 1);
}

/* --- Groups --- */

static void monitor_run(struct call *call) {
    int64_t quorum, port;
    struct instance *group;
    char text[256];
    if (!parse_int64(call->argv[5], &quorum)) {
        reply_error(call->reply, "ERR Invalid quorum");
        return;
    }
    if (!parse_int64(call->argv[4], &port)) {
        reply_error(call->reply, "ERR Invalid port");
        return;
    }
    if (quorum <= 0) {
        reply_error(call->reply, "ERR Quorum must be 1 or greater.");
        return;
    }
    sentinel_waits_for_names = true; /* the reply says whether the name resolves */
    const char *reason =
        sentinel_monitor(this_sentinel, call->argv[2], call->argv[3], port, quorum, &group, sentinel_now());
    sentinel_waits_for_names = false;
    if (reason) {
        snprintf(text, sizeof text, "ERR %s",
                 strstr(reason, "resolve") ? "Invalid IP address or hostname specified" : reason);
        reply_error(call->reply, text);
        return;
    }
    sentinel_monitored(this_sentinel, group);
    sentinel_reply_saved(call);
}
static void remove_run(struct call *call) {
    struct instance *group = group_of_call(call);
    char text[SENTINEL_TEXT_MAX];
    if (!group) return;
    snprintf(text, sizeof text, "master %s %s %d", group->name, sentinel_announced(this_sentinel, &group->address),
             group->address.port);
    sentinel_effects.event(NULL, LOG_LEVEL_WARNING, "-monitor", text, group);
    sentinel_remove(this_sentinel, group, sentinel_now());
    sentinel_reply_saved(call);
}
static void sentinel_reset_run(struct call *call) {
    int64_t count = 0;
    each_group(group) {
        if (!glob_match(call->argv[2], slice_of(group->name), false)) continue;
        sentinel_reset(this_sentinel, group, sentinel_now());
        count++;
    }
    reply_integer(call->reply, count);
}
static void failover_run(struct call *call) {
    bool coordinated = call->argc > 3 && slice_is(call->argv[3], "coordinated");
    if (call->argc > 4) {
        reply_error(call->reply, "ERR wrong number of arguments for 'sentinel|failover' command");
        return;
    }
    struct instance *group = group_of_call(call);
    if (!group) return;
    if (call->argc == 4 && !coordinated) {
        reply_error(call->reply, "ERR Unknown failover option specified");
        return;
    }
    const char *error = sentinel_failover(this_sentinel, group, coordinated, sentinel_now());
    if (error)
        reply_error(call->reply, error);
    else
        reply_ok(call->reply);
}
static void simulate_failure_run(struct call *call) {
    struct sentinel_settings *settings = &this_sentinel->settings;
    settings->crash_after_election = settings->crash_after_promotion = false;
    for (int i = 2; i < call->argc; i++) {
        if (slice_is(call->argv[i], "crash-after-election")) {
            settings->crash_after_election = true;
            log_warning("Failure simulation: this Sentinel will crash after being successfully elected as failover "
                        "leader");
        } else if (slice_is(call->argv[i], "crash-after-promotion")) {
            settings->crash_after_promotion = true;
            log_warning("Failure simulation: this Sentinel will crash after promoting the selected replica to primary");
        } else if (slice_is(call->argv[i], "help")) {
            reply_array(call->reply, 2);
            reply_bulk_text(call->reply, "crash-after-election");
            reply_bulk_text(call->reply, "crash-after-promotion");
            return;
        } else {
            reply_error(call->reply, "ERR Unknown failure simulation specified");
            return;
        }
    }
    reply_ok(call->reply);
}

/* --- Others --- */

static void role_run(struct call *call) {
    reply_array(call->reply, 2);
    reply_bulk_text(call->reply, "sentinel");
    reply_array(call->reply, this_sentinel->groups.count);
    each_group(group) reply_bulk_text(call->reply, group->name);
}

/* --- Tables --- */

#define ROW(name_, run_, arity_, since_, complexity_, summary_)                                                        \
    .name = (name_), .run = (run_), .arity = (arity_), .flags = CMD_NO_DATA | CMD_ADMIN | CMD_ONLY_SENTINEL,           \
    .group = GROUP_SENTINEL, .since = (since_), .complexity = (complexity_), .summary = (summary_)
#define OLD(new_word, since_) .deprecated_since = (since_), .replaced_by = "`SENTINEL " new_word "`"
#define OF_NAME               .syntax = "primary-name:string"
#define IS_DOWN_SYNTAX        .syntax = "ip:string port:integer current-epoch:integer runid:string"

static const struct command_spec sentinel_subcommands[] = {
    {ROW("ckquorum", ckquorum_run, 3, "2.8.4", "O(N) where N is the number of Sentinels",
         "Checks for a Sentinel quorum."),
     OF_NAME},
    {ROW("config", sentinel_config_run, -4, "6.2.0", "O(N) when N is the number of configuration parameters provided",
         "Configures Sentinel."),
     .history = WORDS("7.2.0", "Added the ability to set and get multiple parameters in one call."),
     .syntax = "action(SET parameter{parameter:string value:string}...|GET parameter:string...)"},
    {ROW("debug", sentinel_debug_run, -2, "7.0.0", "O(N) where N is the number of configurable parameters",
         "Lists or updates the current configurable parameters of Sentinel."),
     .syntax = "[data{parameter:string value:string}]..."},
    {ROW("explain", explain_run, 3, "9.1.0", "O(N) where N is the number of servers and Sentinels of the group",
         "Explains why a primary is up or down, who votes, and which replica would be promoted."),
     OF_NAME},
    {ROW("failover", failover_run, -3, "2.8.4", "O(N) where N is the number of replicas",
         "Forces a Sentinel failover."),
     .history = WORDS("9.0.0", "`COORDINATED` option."), .syntax = "primary-name:string [COORDINATED@9.0.0]"},
    {ROW("flushconfig", sentinel_reply_saved, 2, "2.8.4", "O(1)", "Rewrites the Sentinel configuration file.")},
    {ROW("get-master-addr-by-name", get_primary_addr_run, 3, "2.8.4", "O(1)",
         "Returns the port and address of a primary instance."),
     OLD("GET-PRIMARY-ADDR-BY-NAME", "8.0.0"), OF_NAME},
    {ROW("get-primary-addr-by-name", get_primary_addr_run, 3, "8.0.0", "O(1)",
         "Returns the port and address of a primary instance."),
     OF_NAME},
    {HELP_ROW(
         help_handler, "CKQUORUM <primary-name>",
         "    Check if the current Sentinel configuration is able to reach the quorum",
         "    needed to failover a primary and the majority needed to authorize the", "    failover.",
         "CONFIG SET param value [param value ...]", "    Set a global Sentinel configuration parameter.",
         "CONFIG GET <param> [param param param ...]", "    Get global Sentinel configuration parameter.",
         "DEBUG [<param> <value> ...]",
         "    Show a list of configurable time parameters and their values (milliseconds).",
         "    Or update current configurable parameters values (one or more).", "EXPLAIN <primary-name>",
         "    Explain why the primary is up or down, who votes, and which replica would be", "    promoted.",
         "GET-PRIMARY-ADDR-BY-NAME <primary-name>", "    Return the ip and port number of the primary with that name.",
         "FAILOVER <primary-name> [COORDINATED]",
         "    Manually failover a primary node without asking for agreement from other", "    Sentinels", "FLUSHCONFIG",
         "    Force Sentinel to rewrite its configuration on disk, including the current", "    Sentinel state.",
         "INFO-CACHE <primary-name>", "    Return last cached INFO output from primaries and all its replicas.",
         "IS-PRIMARY-DOWN-BY-ADDR <ip> <port> <current-epoch> <runid>",
         "    Check if the primary specified by ip:port is down from current Sentinel's", "    point of view.",
         "PRIMARY <primary-name>", "    Show the state and info of the specified primary.", "PRIMARIES",
         "    Show a list of monitored primaries and their state.", "MONITOR <name> <ip> <port> <quorum>",
         "    Start monitoring a new primary with the specified name, ip, port and quorum.", "MYID",
         "    Return the ID of the Sentinel instance.", "PENDING-SCRIPTS", "    Get pending scripts information.",
         "REMOVE <primary-name>", "    Remove primary from Sentinel's monitor list.", "REPLICAS <primary-name>",
         "    Show a list of replicas for this primary and their states.", "RESET <pattern>",
         "    Reset primaries for specific primary name matching this pattern.", "SENTINELS <primary-name>",
         "    Show a list of Sentinel instances for this primary and their state.",
         "SET <primary-name> <option> <value> [<option> <value> ...]",
         "    Set configuration parameters for certain primaries.",
         "SIMULATE-FAILURE [CRASH-AFTER-ELECTION] [CRASH-AFTER-PROMOTION] [HELP]", "    Simulate a Sentinel crash."),
     .group = GROUP_SENTINEL, .since = "6.2.0"},
    {ROW("info-cache", info_cache_run, -3, "3.2.0", "O(N) where N is the number of instances",
         "Returns the cached `INFO` replies from the deployment's instances."),
     .syntax = "nodename:string..."},
    {ROW("is-master-down-by-addr", is_down_run, 6, "2.8.4", "O(1)", "Determines whether a primary instance is down."),
     OLD("IS-PRIMARY-DOWN-BY-ADDR", "8.0.0"), IS_DOWN_SYNTAX},
    {ROW("is-primary-down-by-addr", is_down_run, 6, "8.0.0", "O(1)", "Determines whether a primary instance is down."),
     IS_DOWN_SYNTAX},
    {ROW("master", primary_run, 3, "2.8.4", "O(1)", "Returns the state of a primary instance."),
     OLD("PRIMARY", "8.0.0"), OF_NAME},
    {ROW("masters", primaries_run, 2, "2.8.4", "O(N) where N is the number of primaries",
         "Returns a list of monitored primaries."),
     OLD("PRIMARIES", "8.0.0")},
    {ROW("monitor", monitor_run, 6, "2.8.4", "O(1)", "Starts monitoring."),
     .syntax = "name:string ip:string port:integer quorum:integer"},
    {ROW("myid", myid_run, 2, "6.2.0", "O(1)", "Returns the Sentinel instance ID.")},
    {ROW("pending-scripts", pending_scripts_run, 2, "2.8.4", "O(N) where N is the number of scripts",
         "Returns information about pending scripts for Sentinel.")},
    {ROW("primaries", primaries_run, 2, "8.0.0", "O(N) where N is the number of primaries",
         "Returns a list of monitored primaries.")},
    {ROW("primary", primary_run, 3, "8.0.0", "O(1)", "Returns the state of a primary instance."), OF_NAME},
    {ROW("remove", remove_run, 3, "2.8.4", "O(1)", "Stops monitoring."), OF_NAME},
    {ROW("replicas", replicas_run, 3, "5.0.0", "O(N) where N is the number of replicas",
         "Returns a list of the monitored replicas."),
     OF_NAME},
    {ROW("reset", sentinel_reset_run, 3, "2.8.4", "O(N) where N is the number of monitored primaries",
         "Resets primaries by name matching a pattern."),
     .syntax = "pattern:pattern"},
    {ROW("sentinels", sentinels_run, 3, "2.8.4", "O(N) where N is the number of Sentinels",
         "Returns a list of Sentinel instances."),
     OF_NAME},
    {ROW("set", sentinel_set_run, -5, "2.8.4", "O(1)", "Changes the configuration of a monitored primary."),
     .syntax = "primary-name:string data{option:string value:string}..."},
    {ROW("simulate-failure", simulate_failure_run, -3, "3.2.0", "O(1)", "Simulates failover scenarios."),
     .syntax = "[mode(CRASH-AFTER-ELECTION|CRASH-AFTER-PROMOTION|HELP)]..."},
    {ROW("slaves", replicas_run, 3, "2.8.0", "O(N) where N is the number of replicas.",
         "Returns a list of the monitored replicas."),
     OLD("REPLICAS", "5.0.0"), OF_NAME},
    {.name = NULL},
};

const struct command_spec sentinel_commands[] = {
    {COMMAND("sentinel", NULL, -2, CMD_NO_DATA | CMD_ADMIN | CMD_ONLY_SENTINEL, .group = GROUP_SENTINEL, "2.8.4"),
     .complexity = "Depends on subcommand.", .summary = "A container for Sentinel commands.",
     .subcommands = sentinel_subcommands},
    {COMMAND("role", role_run, 1, CMD_NO_DATA | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE | CMD_FAST,
             .group = GROUP_SERVER, "2.8.12"),
     .categories = CAT_ADMIN | CAT_DANGEROUS, .complexity = "O(N) where N is the number of primaries",
     .summary = "Returns the word \"sentinel\" and the names of the monitored primaries."},
    {.name = NULL},
};
