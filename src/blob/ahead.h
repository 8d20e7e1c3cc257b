/* ahead.h: begins the transfers of a client's next BLOB.SET requests while an earlier one is in progress, so that the
 * device always has work and the thread is woken less often.
 *
 * A BLOB.SET waits for its transfer, and its client executes nothing meanwhile. The requests behind it are in the
 * client's input. For those directly behind it that are BLOB.SETs, too, and that would be accepted at this moment, the
 * transfer begins, into a blob that nothing else refers to. The request itself is executed as any other, in its turn:
 * who may execute it is decided then. Only it does not have to transfer anything any more.
 *
 * A request whose transfer began is not executed before the transfer has ended: its reply, also an error, says that the
 * server does not touch the client's memory again. So a client waits (client_hold) until the transfer for its next
 * request has ended. The transfers belong to the next requests one by one, in their order; one whose request was
 * refused is dropped with it.
 *
 * Replies are sent behind the READs that were posted before them. The number of bytes that are read ahead is limited,
 * because a device that is software carries out one request after the other.
 *
 * Not for clients of I/O threads, whose input is elsewhere. */
#pragma once
#include "lib/structures/linked_list.h"
#include "server/command/command.h"

struct client;
/* A transfer that began ahead. Its owner embeds it. */
struct ahead_item {
    struct list_link link;
    struct ahead *ahead;
    uint64_t bytes;
    size_t size;                           /* of the request in the input */
    bool ended;                            /* ahead_ended() was called */
    void (*over)(struct ahead_item *item); /* frees it: its request was executed or refused, or the client is gone */
};

/* Looks at the client's next requests at the end of this turn. */
void ahead_look_soon(struct client *client);
void ahead_ended(struct ahead_item *item); /* its transfer has */
/* The transfer that began for the request that is being executed; NULL: none. */
struct ahead_item *ahead_of(const struct call *call);

/* By blob_set.c. */
bool ahead_is_set(const struct command *command); /* a form of BLOB.SET */
/* Begins the transfer of a request, of at most `limit` bytes. Changes no data, not even an expired key. NULL: it is no
 * BLOB.SET by placement, or has to wait. */
struct ahead_item *ahead_begin(struct client *client, int argc, const struct slice *argv, uint64_t limit);
