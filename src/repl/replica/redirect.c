/* redirect.c: a replica redirects clients that declared the capability (CLIENT CAPA redirect) to its primary: commands
 * on data get "-REDIRECT host:port", except reads of clients that sent READONLY. The filter is installed only while
 * this server is a replica. Nodes of a cluster redirect by slots (cluster/redirect.c).
 *
 * During a failover the other server is also a replica and would redirect the client back. So the client waits until
 * the failover ends. */
#include "repl/replica/link.h"
#include "lib/structures/linked_list.h"
#include "repl/primary/failover.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include "server/command/command.h"
#include "server/role.h"
#include "server/server.h"
#include <stdio.h>

enum { ERROR_MAX = 512 };

static const char *redirection(void) {
    static char text[ERROR_MAX];
    snprintf(text, sizeof text, "REDIRECT %s:%d", role->host, role->port);
    return text;
}

static enum filter_answer redirect_ask(struct client *client, const struct command *command, int argc,
                                       const struct slice *argv, const char **error) {
    if (!(client->flags & CLIENT_CAPA_REDIRECT)) return FILTER_PASS;
    if (client->flags & CLIENT_READONLY && !(dispatch_flags(client, command, argv) & CMD_WRITE)) return FILTER_PASS;
    if (repl_failover_running()) {
        client_postpone(client);
        return FILTER_HOLD;
    }
    *error = redirection();
    return FILTER_ELSEWHERE;
}
static struct command_filter filter = {.order = FILTER_CLUSTER, .flags = CMD_WRITE | CMD_READONLY, .ask = redirect_ask};

void redirect_end_waits(void) {
    static const char changed[] =
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
    if (server.cluster_enabled) return; /* the cluster does so, by slots */
    blocking_end_owned(changed);
    list_each_entry(clients_all(), struct client, link, client) {
        const struct command *command = blocking_command(client);
        if (!command) continue;
        uint32_t flags = command->spec->flags;
        if (client->flags & CLIENT_READONLY && !(flags & CMD_WRITE)) continue;
        if (client->flags & CLIENT_CAPA_REDIRECT && flags & (CMD_WRITE | CMD_READONLY)) {
            client_unblock(client, redirection());
        } else if (client_unblock(client, changed)) { /* otherwise its command ends by itself */
            client_free_after_reply(client);
        }
    }
}

static void redirect_role_changed(void) {
    dispatch_set_filter(&filter, role_is_replica() && !server.cluster_enabled);
}

static void redirect_start(void) {
    static struct role_listener listener = {.changed = redirect_role_changed};
    role_listen(&listener);
    redirect_role_changed();
}

const struct server_part redirect_clients_part = {.name = "redirect", .start = redirect_start};
