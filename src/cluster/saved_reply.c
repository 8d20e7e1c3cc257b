/* saved_reply.c: see saved_reply.h. */
#include "cluster/saved_reply.h"
#include "cluster/nodes_conf.h"
#include "cluster/protocol/machine.h"
#include "cluster/this_node.h"
#include "lib/system/memory.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/server.h"
#include <string.h>

struct saved_waiting {
    struct client *client;
    struct list_link link;
    uint64_t ticket; /* UINT64_MAX: it is submitted at the end of this turn */
    char status[SAVED_REPLY_MAX + 1];
};
static struct list waits = LIST_INIT(waits);

static void wait_end(void *state) {
    struct saved_waiting *waiting = state;
    list_remove(&waits, &waiting->link);
    mem_free(waiting);
}

void saved_reply(struct call *call, const char *status) {
    struct client *client = call->client;
    if (this_cluster->unsaved) this_cluster->unsaved |= UNSAVED_SELF; /* what a command has changed may not be lost */
    bool saved = !(this_cluster->unsaved & UNSAVED_SELF) && !nodes_conf_unsafe_ticket();
    if (saved || !client->conn || client->flags & CLIENT_DENY_BLOCKING || client_must_be_obeyed(client)) {
        reply_status(call->reply, status);
        return;
    }
    struct saved_waiting *waiting = mem_calloc(1, sizeof *waiting);
    waiting->client = client;
    waiting->ticket = UINT64_MAX;
    strncpy(waiting->status, status, SAVED_REPLY_MAX);
    list_append(&waits, &waiting->link);
    call_block(call, &(struct blocking){.call_at_end = true, .state = waiting, .ended = wait_end});
}

bool saved_reply_continues(struct call *call) {
    struct saved_waiting *waiting = call_wait(call, wait_end);
    if (!waiting) return false;
    if (waiting->ticket && !(call->client->flags & CLIENT_DENY_BLOCKING)) /* of CLIENT UNBLOCK, too */
        call_block(call, &(struct blocking){.call_at_end = true});
    else
        reply_status(call->reply, waiting->status);
    return true;
}

void saved_reply_release(uint64_t ticket) {
    list_each_entry(&waits, struct saved_waiting, link, waiting) {
        if (waiting->ticket > ticket) continue;
        waiting->ticket = 0;
        blocking_call_again(waiting->client);
    }
}

static void saved_reply_before_wait(void) {
    if (__builtin_expect(!waits.len, 1) || this_cluster->unsaved & UNSAVED_SELF) return;
    uint64_t ticket = nodes_conf_unsafe_ticket();
    list_each_entry(&waits, struct saved_waiting, link, waiting)
        if (waiting->ticket == UINT64_MAX) waiting->ticket = ticket;
    if (!ticket) saved_reply_release(0);
}
const struct server_part saved_reply_part = {.name = "cluster-saved-reply", .before_wait = saved_reply_before_wait};
