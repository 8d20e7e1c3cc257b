/* replicaof.c: REPLICAOF and SLAVEOF. */
#include "lib/system/log.h"
#include "lib/text/number.h"
#include "repl/primary/failover.h"
#include "repl/quorum/quorum.h"
#include "repl/replica/link.h"
#include "repl/roles.h"
#include "server/clients/client.h"
#include "server/role.h"
#include "server/server.h"

static void replicaof_run(struct call *call) {
    struct slice host = call->argv[1], port_text = call->argv[2];
    int64_t port;
    if (server.cluster_enabled) {
        reply_error(call->reply, "ERR REPLICAOF not allowed in cluster mode.");
        return;
    }
    if (repl_failover_running()) {
        reply_error(call->reply, "ERR REPLICAOF not allowed while failing over.");
        return;
    }
    if (slice_is(host, "no") && slice_is(port_text, "one")) {
        if (quorum_on) {
            if (!quorum_leads()) quorum_start_election();
        } else if (role->is_replica) {
            repl_lead();
            log_notice("PRIMARY MODE enabled (user request from '%s')", client_requester_text(call->client));
        }
        reply_ok(call->reply);
        return;
    }
    if (call->client->flags & CLIENT_REPLICA) {
        reply_error(call->reply, "ERR Command is not valid when client is a replica.");
        return;
    }
    if (!parse_int64(port_text, &port) || port < 0 || port > 65535) {
        reply_error(call->reply, "ERR Invalid master port");
        return;
    }
    bool follows = role->is_replica && replica_link_is_on() && !quorum_campaigns();
    if (follows && slice_is(host, role->host) && role->port == port) {
        log_notice("REPLICAOF would result into synchronization with the primary we are already connected with. No "
                   "operation performed.");
        reply_status(call->reply, "OK Already connected to specified master");
        return;
    }
    quorum_follow();
    repl_follow(host, (int)port, REPL_FOLLOW);
    log_notice("REPLICAOF %.*s:%d enabled (user request from '%s')", (int)host.len, host.data, (int)port,
               client_requester_text(call->client));
    reply_ok(call->reply);
}

#define OF_REPLICATION                                                                                                 \
    .run = replicaof_run, .arity = 3,                                                                                  \
    .flags = CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_STALE | CMD_NO_ASYNC_LOADING, .group = GROUP_SERVER,         \
    .complexity = "O(1)"

const struct command_spec replicaof_commands[] = {
    {.name = "replicaof",
     OF_REPLICATION,
     .since = "5.0.0",
     .summary = "Makes the server a replica of another one, or a primary.",
     .syntax = "args(host-port{host:string port:integer}|no-one{NO ONE})"},
    {.name = "slaveof",
     OF_REPLICATION,
     .since = "1.0.0",
     .summary = "Makes the server a replica of another one, or a primary.",
     .syntax = "args(host-port{host:string port:integer}|no-one{NO ONE})",
     .deprecated_since = "5.0.0",
     .replaced_by = "`REPLICAOF`"},
    {.name = NULL},
};
