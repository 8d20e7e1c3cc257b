/* pubsub.c: channels, subscriptions, delivery. See pubsub.h; the commands are in pubsub_commands.c. */
#include "pubsub/pubsub.h"
#include "lib/structures/hashtable.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/glob.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include <stdio.h>

struct channel {
    struct list subscriptions; /* oldest first */
    struct list_link of_kind;  /* in channel_lists */
    struct list_link unused_link;
    size_t len;
    char name[];
};
struct subscription {
    struct subscription_key {
        uint64_t client;
        const struct channel *channel;
    } key;
    struct list_link of_channel, of_subscriber;
    struct client *client;
};
/* The state of a client with subscriptions. */
struct subscriber {
    struct list subscriptions[PUBSUB_KINDS];
};

static struct slice channel_name(const void *entry) {
    const struct channel *channel = entry;
    return (struct slice){channel->name, channel->len};
}
static struct slice subscription_key(const void *entry) {
    return slice_make(&((const struct subscription *)entry)->key, sizeof(struct subscription_key));
}
static const struct hashtable_type channel_type = {.key = channel_name}, subscription_type = {.key = subscription_key};

static struct hashtable *channels[PUBSUB_KINDS], *subscriptions;
static size_t subscriber_count;
static struct list channel_lists[PUBSUB_KINDS];
/* True while a message is delivered, which may close a client that does not read its output. Channels that lose their
 * last subscriber are freed after the delivery. */
static bool delivering;
static struct list unused[PUBSUB_KINDS];

/* In RESP2 a client with subscriptions may run only a few commands, because it cannot tell messages from replies. */
static enum filter_answer subscriber_ask(struct client *client, const struct command *command, int argc,
                                         const struct slice *argv, const char **error) {
    static const char *const allowed[] = {"ping",         "subscribe",    "ssubscribe", "psubscribe", "unsubscribe",
                                          "sunsubscribe", "punsubscribe", "quit",       "reset"};
    static char text[256];
    if (!(client->flags & CLIENT_PUBSUB) || client->reply.protocol != 2) return FILTER_PASS;
    for (size_t i = 0; !command->parent && i < sizeof allowed / sizeof *allowed; i++)
        if (strcmp(command->spec->name, allowed[i]) == 0) return FILTER_PASS;
    snprintf(text, sizeof text,
             "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this "
             "context",
             command->full_name);
    *error = text;
    return FILTER_REFUSE;
}
static struct command_filter subscriber_filter = {.order = FILTER_PUBSUB, .ask = subscriber_ask};

/* --- Subscribing --- */

static void client_gone(struct client *client);
static void client_reported(const struct client *client, struct client_report *report);
static struct client_listener client_listener = {.freed = client_gone, .reset = client_gone, .report = client_reported};

static struct subscriber *subscriber_find(const struct client *client) {
    return client_state(client, &client_listener);
}

static struct subscriber *subscriber_of(struct client *client) {
    struct subscriber *subscriber = subscriber_find(client);
    if (subscriber) return subscriber;
    subscriber = mem_calloc(1, sizeof *subscriber);
    for (int kind = 0; kind < PUBSUB_KINDS; kind++) list_init(&subscriber->subscriptions[kind]);
    client_set_state(client, &client_listener, subscriber);
    client->flags |= CLIENT_PUBSUB;
    if (++subscriber_count == 1) dispatch_add_filter(&subscriber_filter);
    return subscriber;
}

static void subscriber_release(struct client *client, struct subscriber *subscriber) {
    for (int kind = 0; kind < PUBSUB_KINDS; kind++)
        if (subscriber->subscriptions[kind].len) return;
    must(subscriber_count > 0 && client->flags & CLIENT_PUBSUB);
    client->flags &= ~(uint32_t)CLIENT_PUBSUB;
    client_set_state(client, &client_listener, NULL);
    mem_free(subscriber);
    if (--subscriber_count == 0) dispatch_remove_filter(&subscriber_filter);
}

static struct channel *channel_of(enum pubsub_kind kind, struct slice name) {
    struct channel *channel = hashtable_find(channels[kind], name);
    if (channel) return channel;
    channel = mem_alloc(sizeof *channel + name.len);
    list_init(&channel->subscriptions);
    channel->len = name.len;
    channel->of_kind = channel->unused_link = (struct list_link){NULL, NULL};
    if (name.len) memcpy(channel->name, name.data, name.len);
    hashtable_add(channels[kind], channel);
    list_append(&channel_lists[kind], &channel->of_kind);
    return channel;
}

bool pubsub_subscribe(struct client *client, enum pubsub_kind kind, struct slice name) {
    struct subscriber *subscriber = subscriber_of(client);
    struct channel *channel = channel_of(kind, name);
    struct subscription *subscription = mem_alloc(sizeof *subscription);
    *subscription = (struct subscription){.key = {client->id, channel}, .client = client};
    if (!hashtable_add(subscriptions, subscription)) {
        mem_free(subscription);
        return false;
    }
    list_append(&channel->subscriptions, &subscription->of_channel);
    list_append(&subscriber->subscriptions[kind], &subscription->of_subscriber);
    return true;
}

static void channel_drop(enum pubsub_kind kind, struct channel *channel) {
    const struct channel *known = hashtable_pop(channels[kind], channel_name(channel));
    must(known == channel && !channel->subscriptions.len);
    list_remove(&channel_lists[kind], &channel->of_kind);
    mem_free(channel);
}

static void subscription_end(struct subscriber *subscriber, enum pubsub_kind kind, struct subscription *subscription,
                             pubsub_ended *ended) {
    struct channel *channel = (struct channel *)(uintptr_t)subscription->key.channel;
    struct client *client = subscription->client;
    const struct subscription *known = hashtable_pop(subscriptions, subscription_key(subscription));
    must(known == subscription && channel->subscriptions.len > 0);
    list_remove(&subscriber->subscriptions[kind], &subscription->of_subscriber);
    list_remove(&channel->subscriptions, &subscription->of_channel);
    mem_free(subscription);
    if (ended) ended(client, kind, channel_name(channel));
    if (channel->subscriptions.len) return;
    if (delivering)
        list_append(&unused[kind], &channel->unused_link);
    else
        channel_drop(kind, channel);
}

bool pubsub_unsubscribe(struct client *client, enum pubsub_kind kind, struct slice name) {
    struct subscriber *subscriber = subscriber_find(client);
    struct subscription_key key = {client->id, subscriber ? hashtable_find(channels[kind], name) : NULL};
    struct subscription *subscription =
        key.channel ? hashtable_find(subscriptions, slice_make(&key, sizeof key)) : NULL;
    if (!subscription) return false;
    subscription_end(subscriber, kind, subscription, NULL);
    subscriber_release(client, subscriber);
    return true;
}

void pubsub_unsubscribe_all(struct client *client, enum pubsub_kind kind, pubsub_ended *ended) {
    struct subscriber *subscriber = subscriber_find(client);
    if (!subscriber) return;
    while (subscriber->subscriptions[kind].len)
        subscription_end(subscriber, kind,
                         container_of(list_first(&subscriber->subscriptions[kind]), struct subscription, of_subscriber),
                         ended);
    subscriber_release(client, subscriber);
}

void pubsub_each_of(const struct client *client, enum pubsub_kind kind, void (*seen)(void *context, struct slice name),
                    void *context) {
    struct subscriber *subscriber = subscriber_find(client);
    if (!subscriber) return;
    list_each_entry(&subscriber->subscriptions[kind], const struct subscription, of_subscriber, subscription)
        seen(context, channel_name(subscription->key.channel));
}

static void client_gone(struct client *client) {
    for (int kind = 0; kind < PUBSUB_KINDS; kind++) pubsub_unsubscribe_all(client, (enum pubsub_kind)kind, NULL);
}

static void client_reported(const struct client *client, struct client_report *report) {
    report->memory += sizeof(struct subscriber);
    for (int kind = 0; kind < PUBSUB_KINDS; kind++) {
        report->subscriptions[kind] = (int)pubsub_subscriptions(client, (enum pubsub_kind)kind);
        report->memory += (size_t)report->subscriptions[kind] * sizeof(struct subscription);
    }
}

void pubsub_init(void) {
    for (int kind = 0; kind < PUBSUB_KINDS; kind++) {
        channels[kind] = hashtable_new(&channel_type);
        list_init(&channel_lists[kind]);
        list_init(&unused[kind]);
    }
    subscriptions = hashtable_new(&subscription_type);
    client_listen(&client_listener);
}

/* --- Counting --- */

size_t pubsub_subscriptions(const struct client *client, enum pubsub_kind kind) {
    const struct subscriber *subscriber = subscriber_find(client);
    return subscriber ? subscriber->subscriptions[kind].len : 0;
}
size_t pubsub_channels(enum pubsub_kind kind) {
    return hashtable_size(channels[kind]);
}
size_t pubsub_subscribers(enum pubsub_kind kind, struct slice name) {
    const struct channel *channel = hashtable_find(channels[kind], name);
    return channel ? channel->subscriptions.len : 0;
}
void pubsub_channels_each(enum pubsub_kind kind, void (*seen)(void *, struct slice), void *context) {
    list_each(&channel_lists[kind], link) seen(context, channel_name(container_of(link, struct channel, of_kind)));
}
bool pubsub_has_subscribers(void) {
    return pubsub_channels(PUBSUB_CHANNEL) + pubsub_channels(PUBSUB_PATTERN) != 0;
}

/* --- Delivering --- */

/* A message in one protocol, encoded when the first subscriber needs it. */
struct encoded_message {
    struct memory_output bytes;
    struct blob *blob; /* the encoded message as a blob if it is large enough to be shared */
    bool made;
};
struct pubsub_message {
    const char *kind;
    struct slice pattern, channel, text;
    bool has_pattern;
    struct encoded_message encoded[2]; /* RESP2, RESP3 */
};

static struct encoded_message *encode(struct pubsub_message *message, int protocol) {
    struct encoded_message *encoded = &message->encoded[protocol == 3];
    if (encoded->made) return encoded;
    encoded->made = true;
    memory_output_init(&encoded->bytes);
    struct reply reply = {.out = &encoded->bytes.out, .protocol = (uint8_t)protocol};
    reply_push(&reply, message->has_pattern ? 4 : 3);
    reply_bulk_text(&reply, message->kind);
    if (message->has_pattern) reply_bulk(&reply, message->pattern);
    reply_bulk(&reply, message->channel);
    reply_bulk(&reply, message->text);
    struct slice bytes = memory_output_slice(&encoded->bytes);
    if (bytes.len >= OUTPUT_SHARE_MIN) encoded->blob = blob_copy(bytes);
    return encoded;
}

static void message_free(struct pubsub_message *message) {
    for (int i = 0; i < 2; i++) {
        if (!message->encoded[i].made) continue;
        memory_output_free(&message->encoded[i].bytes);
        if (message->encoded[i].blob) blob_release(message->encoded[i].blob);
    }
}

static size_t deliver(struct channel *channel, struct pubsub_message *message) {
    size_t receivers = channel->subscriptions.len;
    list_each(&channel->subscriptions, link) {
        struct client *client = container_of(link, struct subscription, of_channel)->client;
        struct encoded_message *encoded = encode(message, client->reply.protocol);
        if (encoded->blob)
            client_push_blob(client, encoded->blob);
        else
            client_push(client, memory_output_slice(&encoded->bytes));
    }
    message_free(message);
    return receivers;
}

static size_t deliver_to_patterns(struct slice channel, struct slice text) {
    size_t receivers = 0;
    list_each_entry(&channel_lists[PUBSUB_PATTERN], struct channel, of_kind, pattern) {
        if (!glob_match(channel_name(pattern), channel, false)) continue;
        struct pubsub_message message = {.kind = "pmessage",
                                         .has_pattern = true,
                                         .pattern = channel_name(pattern),
                                         .channel = channel,
                                         .text = text};
        receivers += deliver(pattern, &message);
    }
    return receivers;
}

static void delivery_end(void) {
    delivering = false;
    for (int kind = 0; kind < PUBSUB_KINDS; kind++) {
        while (unused[kind].len) {
            struct channel *left = container_of(list_first(&unused[kind]), struct channel, unused_link);
            list_remove(&unused[kind], &left->unused_link);
            channel_drop((enum pubsub_kind)kind, left);
        }
    }
}

static void push_ended(struct client *client, struct slice name, size_t left) {
    struct memory_output bytes = MEMORY_OUTPUT_INIT;
    struct reply reply = {.out = &bytes.out, .protocol = client->reply.protocol};
    reply_push(&reply, 3);
    reply_bulk_text(&reply, "sunsubscribe");
    reply_bulk(&reply, name);
    reply_integer(&reply, (int64_t)left);
    client_push(client, memory_output_slice(&bytes));
    memory_output_free(&bytes);
}

size_t pubsub_publish(struct slice name, struct slice text, bool shard) {
    struct channel *channel = hashtable_find(channels[shard ? PUBSUB_SHARD : PUBSUB_CHANNEL], name);
    size_t receivers = 0;
    delivering = true;
    if (channel) {
        struct pubsub_message message = {.kind = shard ? "smessage" : "message", .channel = name, .text = text};
        receivers = deliver(channel, &message);
    }
    if (!shard) receivers += deliver_to_patterns(name, text);
    delivery_end();
    return receivers;
}

void pubsub_end_shard_channels(bool (*ends)(void *context, struct slice name), void *context) {
    delivering = true;
    list_each_entry(&channel_lists[PUBSUB_SHARD], struct channel, of_kind, channel) {
        if (!ends(context, channel_name(channel))) continue;
        while (channel->subscriptions.len) {
            struct subscription *subscription =
                container_of(list_first(&channel->subscriptions), struct subscription, of_channel);
            struct client *client = subscription->client;
            struct subscriber *subscriber = subscriber_find(client);
            subscription_end(subscriber, PUBSUB_SHARD, subscription, NULL);
            size_t left = subscriber->subscriptions[PUBSUB_SHARD].len;
            subscriber_release(client, subscriber);
            push_ended(client, channel_name(channel), left);
        }
    }
    delivery_end();
}
