/* client_kill.c: CLIENT KILL, in its old form (an address) and with filters. */
#include "server/clients/client_private.h"

void client_kill_run(struct call *call) {
    bool old_form = call->argc == 3;
    struct client_filter filter = {.skip_me = !old_form};
    struct slice address[2] = {SLICE("addr"), call->argv[2]};
    bool parsed = old_form ? client_filter_parse(&filter, call->reply, 2, address)
                           : client_filter_parse(&filter, call->reply, call->argc - 2, call->argv + 2);
    int64_t killed = 0;
    bool me = false;
    list_each_entry(clients_all(), struct client, link, client) {
        if (!parsed || !client_filter_matches(&filter, client) || (client == call->client && filter.skip_me)) continue;
        killed++;
        if (client == call->client)
            me = true;
        else
            client_free(client);
    }
    client_filter_free(&filter);
    if (!parsed) return;
    if (!old_form)
        reply_integer(call->reply, killed);
    else if (killed)
        reply_ok(call->reply);
    else
        reply_error(call->reply, "ERR No such client");
    if (me) client_free_after_reply(call->client);
}
