/* failover.c: FAILOVER: a primary hands its role to one of its replicas, without losing a write.
 *
 *     waiting-for-sync       clients' writes are paused until the named replica (or any, if none is named) has
 *                            acknowledged the whole stream
 *     failover-in-progress   this server has become a replica of it. Its PSYNC has the argument FAILOVER, on which the
 *                            replica becomes the primary and continues the history
 *     no-failover            the link is up; paused writes get an error, because this server is a replica
 *
 * A timeout, FAILOVER ABORT, or a refusal of the replica ends a failover, and this server is the primary again. With
 * FORCE, the replica becomes the primary at the timeout although it lacks writes, which are lost. */
#include "repl/primary/failover.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "repl/feed.h"
#include "repl/primary/replicas.h"
#include "repl/quorum/quorum.h"
#include "repl/roles.h"
#include "server/command/command.h"
#include "server/command/spec.h"
#include "server/role.h"
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 1000 };

static struct {
    enum { FAILOVER_NONE, FAILOVER_WAITS, FAILOVER_RUNS } state;
    char *host; /* NULL: any replica */
    int port;
    bool force;
    int64_t deadline_ms; /* 0: none */
    int64_t ask_ms;      /* time of the next REPLCONF GETACK */
} failover;

bool repl_failover_running(void) {
    return failover.state != FAILOVER_NONE;
}

const char *repl_failover_state(void) {
    static const char *const names[] = {[FAILOVER_NONE] = "no-failover",
                                        [FAILOVER_WAITS] = "waiting-for-sync",
                                        [FAILOVER_RUNS] = "failover-in-progress"};
    return names[failover.state];
}

static const char *target_text(void) {
    static char text[REPLICA_ADDRESS_MAX + 32];
    if (!failover.host) return "any replica";
    snprintf(text, sizeof text, "%s:%d", failover.host, failover.port);
    return text;
}

/* Blocked clients get their error before the paused requests are executed: they came first. */
static void failover_end(void) {
    mem_free(failover.host);
    failover.host = NULL;
    failover.state = FAILOVER_NONE;
    if (role_is_replica()) repl_end_waits();
    clients_unpause(PAUSE_FAILOVER);
}

static void failover_abandon(const char *reason) {
    log_notice("FAILOVER to %s aborted: %s", target_text(), reason);
    if (failover.state == FAILOVER_RUNS) {
        if (quorum_on)
            quorum_start_election();
        else
            repl_lead();
    }
    failover_end();
}

void repl_failover_refused(void) {
    if (failover.state == FAILOVER_RUNS) failover_abandon("Failover target rejected psync request");
}

/* --- On the primary --- */

static struct replica *replica_at(struct slice host, int64_t port) {
    list_each_entry(&replicas, struct replica, link, replica) {
        if (replica->announced.port == port && slice_equal(replica_address(replica), host)) return replica;
    }
    return NULL;
}

static bool has_all(const struct replica *replica) {
    return replica_is_online(replica) && !replica->awaits_ack && replica->acked == role->position.offset;
}

/* The target, or any replica, if it has acknowledged the whole stream. NULL: none has. */
static struct replica *target_synced(void) {
    if (failover.host) {
        struct replica *replica = replica_at(slice_of(failover.host), failover.port);
        return replica && has_all(replica) ? replica : NULL;
    }
    list_each_entry(&replicas, struct replica, link, replica)
        if (has_all(replica)) return replica;
    return NULL;
}

static void hand_over(void) {
    failover.state = FAILOVER_RUNS;
    quorum_follow();
    repl_follow(slice_of(failover.host), failover.port, REPL_FOLLOW_FAILOVER);
}

static void check_target(void) {
    struct replica *target = target_synced();
    int64_t now = clock_mono_ms();
    if (target) {
        if (!failover.host) {
            struct slice host = replica_address(target);
            failover.host = mem_strndup(host.data, host.len);
            failover.port = target->announced.port;
        }
        log_notice("Failover target %s is synced, failing over.", target_text());
        hand_over();
    } else if (failover.deadline_ms && now >= failover.deadline_ms) {
        if (failover.force) {
            log_notice("FAILOVER to %s time out exceeded, failing over.", target_text());
            hand_over();
        } else {
            failover_abandon("Replica never caught up before timeout");
        }
    } else if (now >= failover.ask_ms) {
        failover.ask_ms = now + ASK_MS;
        repl_feed_getack();
    }
}

static void failover_before_wait(void) {
    if (__builtin_expect(failover.state == FAILOVER_NONE, 1)) return;
    if (failover.state == FAILOVER_WAITS)
        check_target();
    else if (!role_is_replica() || role->link == ROLE_LINK_CONNECTED)
        failover_end();
}

/* failover_before_wait() runs only when the loop wakes up; the cron checks the timeout. */
static void failover_cron(void) {
    if (failover.state == FAILOVER_WAITS) check_target();
}

const struct server_part failover_part = {
    .name = "failover", .cron = failover_cron, .before_wait = failover_before_wait};

/* --- The command --- */

struct request {
    struct slice host;
    int64_t port, timeout_ms;
    bool to, force, timeout;
};

static bool options_read(struct call *call, struct request *request) {
    for (int i = 1; i < call->argc; i++) {
        int more = call->argc - 1 - i;
        if (slice_is(call->argv[i], "timeout") && more && !request->timeout) {
            if (!argument_integer(call, ++i, &request->timeout_ms)) return false;
            if (request->timeout_ms <= 0)
                return reply_error(call->reply, "ERR FAILOVER timeout must be greater than 0");
            request->timeout = true;
        } else if (slice_is(call->argv[i], "to") && more > 1 && !request->to) {
            request->host = call->argv[++i];
            if (!argument_integer(call, ++i, &request->port)) return false;
            request->to = true;
        } else if (slice_is(call->argv[i], "force") && !request->force) {
            request->force = true;
        } else {
            return reply_syntax_error(call->reply);
        }
    }
    return true;
}

/* The error, or NULL if the failover may begin. */
static const char *request_refusal(const struct request *request) {
    if (failover.state != FAILOVER_NONE) return "ERR FAILOVER already in progress.";
    if (role_is_replica()) return "ERR FAILOVER is not valid when server is a replica.";
    if (!replicas.len) return "ERR FAILOVER requires connected replicas.";
    if (request->force && !(request->to && request->timeout))
        return "ERR FAILOVER with force option requires both a timeout and target HOST and IP.";
    if (!request->to) return NULL;
    const struct replica *replica = replica_at(request->host, request->port);
    if (!replica) return "ERR FAILOVER target HOST and PORT is not a replica.";
    return replica_is_online(replica) ? NULL : "ERR FAILOVER target replica is not online.";
}

static void failover_run(struct call *call) {
    if (server.cluster_enabled) {
        reply_error(call->reply, "ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.");
        return;
    }
    if (call->argc == 2 && slice_is(call->argv[1], "abort")) {
        if (failover.state == FAILOVER_NONE) {
            reply_error(call->reply, "ERR No failover in progress.");
            return;
        }
        failover_abandon("Failover manually aborted");
        reply_ok(call->reply);
        return;
    }
    struct request request = {0};
    if (!options_read(call, &request)) return;
    const char *refusal = request_refusal(&request);
    if (refusal) {
        reply_error(call->reply, refusal);
        return;
    }
    int64_t now = clock_mono_ms();
    failover.state = FAILOVER_WAITS;
    failover.host = request.to ? mem_strndup(request.host.data, request.host.len) : NULL;
    failover.port = (int)request.port;
    failover.force = request.force;
    failover.deadline_ms = !request.timeout ? 0 : request.timeout_ms > INT64_MAX - now ? 0 : now + request.timeout_ms;
    failover.ask_ms = 0;
    clients_pause(PAUSE_FAILOVER, PAUSE_WRITE, INT64_MAX);
    log_notice("FAILOVER requested to %s.", target_text());
    reply_ok(call->reply);
}

/* --- On the replica that takes over --- */

bool repl_failover_asked(struct call *call) {
    if (quorum_leads()) return true; /* elected since the first PSYNC */
    if (!role_is_replica()) return reply_error(call->reply, "ERR PSYNC FAILOVER can't be sent to a master.");
    if (!slice_equal(call->argv[1], slice_of(role->position.id)))
        return reply_error(call->reply, "ERR PSYNC FAILOVER replid must match my replid.");
    log_notice("Failover request received for replid %s.", role->position.id);
    if (quorum_on) {
        if (!quorum_campaigns()) quorum_start_election();
        return reply_error(call->reply, "NOMASTERLINK This server asks its group to lead it");
    }
    repl_lead();
    log_notice("PRIMARY MODE enabled (failover request from '%s')", client_requester_text(call->client));
    return true;
}

const struct command_spec failover_commands[] = {
    {COMMAND("failover", failover_run, -1, CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_STALE, .group = GROUP_SERVER,
             "6.2.0"),
     .complexity = "O(1)", .summary = "Hands the role of the primary to a replica.",
     .syntax = "[TO target{host:string port:integer [FORCE]}] [ABORT] [TIMEOUT milliseconds:integer]"},
    {.name = NULL},
};
