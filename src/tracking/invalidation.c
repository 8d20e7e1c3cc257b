/* invalidation.c: see invalidation.h.
 *
 * All messages use the same memory, so a change of a tracked key allocates nothing. */
#include "tracking/invalidation.h"
#include "lib/text/blob.h"
#include "resp/reply.h"
#include "server/clients/client.h"
#include "tracking/tracker.h"

enum { KEPT_MAX = 64 * 1024 /* larger memory is freed at the end of the message */ };

struct encoded_invalidation {
    struct memory_output bytes;
    struct blob *blob; /* the encoded message as a blob if it is large enough to be shared */
    bool made;
};
struct invalidation {
    struct memory_output keys; /* the array of keys, which is the same in both protocols */
    bool all;
    struct encoded_invalidation encoded[2]; /* RESP2, RESP3 */
};

static struct invalidation shared;

struct invalidation *invalidation_start(size_t keys, bool all) {
    struct invalidation *message = &shared;
    if (!message->keys.out.ops) {
        memory_output_init(&message->keys);
        for (int i = 0; i < 2; i++) memory_output_init(&message->encoded[i].bytes);
    }
    message->all = all;
    struct reply reply = {.out = &message->keys.out, .protocol = 2};
    if (!all) reply_array(&reply, keys);
    return message;
}

void invalidation_add(struct invalidation *message, struct slice key) {
    struct reply reply = {.out = &message->keys.out, .protocol = 2};
    reply_bulk(&reply, key);
}

static struct encoded_invalidation *encode(struct invalidation *message, int protocol) {
    struct encoded_invalidation *encoded = &message->encoded[protocol == 3];
    if (encoded->made) return encoded;
    encoded->made = true;
    struct reply reply = {.out = &encoded->bytes.out, .protocol = (uint8_t)protocol};
    reply_push(&reply, protocol == 3 ? 2 : 3);
    if (protocol == 3) {
        reply_bulk_text(&reply, "invalidate");
    } else {
        reply_bulk_text(&reply, "message");
        reply_bulk_text(&reply, "__redis__:invalidate");
    }
    if (message->all)
        reply_null(&reply);
    else
        reply_raw(&reply, memory_output_slice(&message->keys));
    struct slice bytes = memory_output_slice(&encoded->bytes);
    if (bytes.len >= OUTPUT_SHARE_MIN) encoded->blob = blob_copy(bytes);
    return encoded;
}

/* The client of REDIRECT is closed. A tracking client in RESP3 gets this push instead of each message. */
static void redirection_broken(struct tracker *tracker) {
    struct client *client = tracker->client;
    tracker->redirect_broken = true;
    if (client->reply.protocol != 3) return;
    struct memory_output bytes = MEMORY_OUTPUT_INIT;
    struct reply reply = {.out = &bytes.out, .protocol = 3};
    reply_push(&reply, 2);
    reply_bulk_text(&reply, "tracking-redir-broken");
    reply_integer(&reply, (int64_t)tracker->redirect);
    client_push(client, memory_output_slice(&bytes));
    memory_output_free(&bytes);
}

void invalidation_send(struct invalidation *message, struct tracker *tracker) {
    struct client *receiver = tracker->client;
    if (tracker->redirect) {
        receiver = client_by_id(tracker->redirect);
        if (!receiver) {
            redirection_broken(tracker);
            return;
        }
    }
    int protocol = receiver->reply.protocol;
    if (protocol == 2 && !(tracker->redirect && receiver->flags & CLIENT_PUBSUB)) return;
    struct encoded_invalidation *encoded = encode(message, protocol);
    if (encoded->blob)
        client_push_blob(receiver, encoded->blob);
    else
        client_push(receiver, memory_output_slice(&encoded->bytes));
}

static void memory_keep(struct memory_output *bytes) {
    if (bytes->capacity <= KEPT_MAX) {
        memory_output_clear(bytes);
        return;
    }
    memory_output_free(bytes);
    memory_output_init(bytes);
}

void invalidation_end(struct invalidation *message) {
    memory_keep(&message->keys);
    for (int i = 0; i < 2; i++) {
        struct encoded_invalidation *encoded = &message->encoded[i];
        memory_keep(&encoded->bytes);
        if (encoded->blob) blob_release(encoded->blob);
        encoded->blob = NULL;
        encoded->made = false;
    }
}
