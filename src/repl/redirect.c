/* redirect.c: a replica names its primary to clients that follow redirections (CLIENT CAPA redirect): it answers
 * "-REDIRECT host:port" to commands on data, except reads of clients that sent READONLY. Primaries pay nothing: the
 * filter is installed while this server is a replica. */
#include "lib/list.h"
#include "repl/primary.h"
#include "server/command/dispatch.h"
#include "server/role.h"
#include <stdio.h>

enum { ERROR_MAX = 512 };

static enum filter_answer redirect(struct client *client, const struct command *command, int argc,
                                   const struct slice *argv, const char **error) {
    (void)argc, (void)argv;
    static char text[ERROR_MAX];
    if (!(client->flags & CLIENT_CAPA_REDIRECT) || client->flags & (CLIENT_PRIMARY | CLIENT_LOADER)) return FILTER_PASS;
    if (client->flags & CLIENT_READONLY && !(dispatch_flags(client, command) & CMD_WRITE)) return FILTER_PASS;
    snprintf(text, sizeof text, "REDIRECT %s:%d", role->host, role->port);
    *error = text;
    return FILTER_REFUSE;
}
static struct command_filter filter = {.order = FILTER_CLUSTER, .flags = CMD_WRITE | CMD_READONLY, .ask = redirect};

static void role_changed(void) {
    if (role_is_replica() == list_is_linked(&filter.link)) return;
    if (role_is_replica())
        dispatch_add_filter(&filter);
    else
        dispatch_remove_filter(&filter);
}

void repl_redirect_start(void) {
    static struct role_listener listener = {.changed = role_changed};
    role_listen(&listener);
    role_changed();
}
