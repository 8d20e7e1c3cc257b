/* pubsub.c: topics, subscriptions, delivery. See pubsub.h; the commands are in pubsub_commands.c. */
#include "pubsub/pubsub.h"
#include "lib/glob.h"
#include "lib/hashtable.h"
#include "lib/memory.h"
#include "server/client.h"
#include "server/dispatch.h"
#include <stdio.h>

struct topic {
    struct list subscriptions; /* oldest first */
    struct list_link of_kind;  /* patterns are gone through one after the other */
    struct list_link deserted_link;
    size_t len;
    char name[];
};
struct subscription {
    struct subscription_key {
        uint64_t client;
        const struct topic *topic;
    } key;
    struct list_link of_topic, of_subscriber;
    struct client *client;
};
/* A client with subscriptions. */
struct subscriber {
    uint64_t id;
    struct list subscriptions[PUBSUB_KINDS];
};

static struct slice topic_name(const void *entry) {
    const struct topic *topic = entry;
    return (struct slice){topic->name, topic->len};
}
static struct slice subscription_key(const void *entry) { return slice_make(&((const struct subscription *)entry)->key, sizeof(struct subscription_key)); }
static struct slice subscriber_key(const void *entry) { return slice_make(&((const struct subscriber *)entry)->id, sizeof(uint64_t)); }
static const struct hashtable_type topic_type = {.key = topic_name}, subscription_type = {.key = subscription_key}, subscriber_type = {.key = subscriber_key};

static struct hashtable *topics[PUBSUB_KINDS], *subscriptions, *subscribers;
static struct list topic_lists[PUBSUB_KINDS];
/* While a message goes through the lists a client may be closed for not reading; topics that lose their last subscriber by that stay until the end. */
static bool delivering;
static struct list deserted[PUBSUB_KINDS];

/* A RESP2 client that subscribes can do little else: its messages would be taken for replies. */
static enum gate_answer subscriber_ask(struct client *client, const struct command *command, int argc, const struct slice *argv, const char **error) {
    static const char *const allowed[] = {"ping", "subscribe", "ssubscribe", "psubscribe", "unsubscribe", "sunsubscribe", "punsubscribe", "quit", "reset"};
    static char text[256];
    (void)argc, (void)argv;
    if (!(client->flags & CLIENT_PUBSUB) || client->reply.protocol != 2) return GATE_PASS;
    for (size_t i = 0; !command->parent && i < sizeof allowed / sizeof *allowed; i++)
        if (strcmp(command->spec->name, allowed[i]) == 0) return GATE_PASS;
    snprintf(text, sizeof text, "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
             command->full_name);
    *error = text;
    return GATE_REFUSE;
}
static struct command_gate subscriber_gate = {.order = GATE_PUBSUB, .ask = subscriber_ask};

/* Subscribing */

static struct subscriber *subscriber_find(const struct client *client) {
    return client->flags & CLIENT_PUBSUB ? hashtable_find(subscribers, slice_make(&client->id, sizeof client->id)) : NULL;
}

static struct subscriber *subscriber_of(struct client *client) {
    struct subscriber *subscriber = subscriber_find(client);
    if (subscriber) return subscriber;
    subscriber = mem_calloc(1, sizeof *subscriber);
    subscriber->id = client->id;
    for (int kind = 0; kind < PUBSUB_KINDS; kind++) list_init(&subscriber->subscriptions[kind]);
    hashtable_add(subscribers, subscriber);
    client->flags |= CLIENT_PUBSUB;
    if (hashtable_size(subscribers) == 1) dispatch_add_gate(&subscriber_gate);
    return subscriber;
}

static void subscriber_release(struct client *client, struct subscriber *subscriber) {
    for (int kind = 0; kind < PUBSUB_KINDS; kind++)
        if (subscriber->subscriptions[kind].len) return;
    client->flags &= ~(uint32_t)CLIENT_PUBSUB;
    hashtable_pop(subscribers, subscriber_key(subscriber));
    mem_free(subscriber);
    if (hashtable_size(subscribers) == 0) dispatch_remove_gate(&subscriber_gate);
}

static struct topic *topic_of(enum pubsub_kind kind, struct slice name) {
    struct topic *topic = hashtable_find(topics[kind], name);
    if (topic) return topic;
    topic = mem_alloc(sizeof *topic + name.len);
    list_init(&topic->subscriptions);
    topic->len = name.len;
    topic->deserted_link = (struct list_link){NULL, NULL};
    if (name.len) memcpy(topic->name, name.data, name.len);
    hashtable_add(topics[kind], topic);
    list_append(&topic_lists[kind], &topic->of_kind);
    return topic;
}

bool pubsub_subscribe(struct client *client, enum pubsub_kind kind, struct slice name) {
    struct subscriber *subscriber = subscriber_of(client);
    struct topic *topic = topic_of(kind, name);
    struct subscription *subscription = mem_alloc(sizeof *subscription);
    *subscription = (struct subscription){.key = {client->id, topic}, .client = client};
    if (!hashtable_add(subscriptions, subscription)) {
        mem_free(subscription);
        return false;
    }
    list_append(&topic->subscriptions, &subscription->of_topic);
    list_append(&subscriber->subscriptions[kind], &subscription->of_subscriber);
    client->subscriptions[kind]++;
    return true;
}

static void topic_drop(enum pubsub_kind kind, struct topic *topic) {
    hashtable_pop(topics[kind], topic_name(topic));
    list_remove(&topic_lists[kind], &topic->of_kind);
    mem_free(topic);
}

static void subscription_end(struct subscriber *subscriber, enum pubsub_kind kind, struct subscription *subscription, pubsub_ended *ended) {
    struct topic *topic = (struct topic *)(uintptr_t)subscription->key.topic;
    struct client *client = subscription->client;
    hashtable_pop(subscriptions, subscription_key(subscription));
    list_remove(&subscriber->subscriptions[kind], &subscription->of_subscriber);
    list_remove(&topic->subscriptions, &subscription->of_topic);
    mem_free(subscription);
    client->subscriptions[kind]--;
    if (ended) ended(client, kind, topic_name(topic));
    if (topic->subscriptions.len) return;
    if (delivering) list_append(&deserted[kind], &topic->deserted_link);
    else topic_drop(kind, topic);
}

bool pubsub_unsubscribe(struct client *client, enum pubsub_kind kind, struct slice name) {
    struct subscriber *subscriber = subscriber_find(client);
    struct subscription_key key = {client->id, subscriber ? hashtable_find(topics[kind], name) : NULL};
    struct subscription *subscription = key.topic ? hashtable_find(subscriptions, slice_make(&key, sizeof key)) : NULL;
    if (!subscription) return false;
    subscription_end(subscriber, kind, subscription, NULL);
    subscriber_release(client, subscriber);
    return true;
}

void pubsub_unsubscribe_all(struct client *client, enum pubsub_kind kind, pubsub_ended *ended) {
    struct subscriber *subscriber = subscriber_find(client);
    if (!subscriber) return;
    while (subscriber->subscriptions[kind].len)
        subscription_end(subscriber, kind, container_of(list_first(&subscriber->subscriptions[kind]), struct subscription, of_subscriber), ended);
    subscriber_release(client, subscriber);
}

static void client_gone(struct client *client) {
    for (int kind = 0; kind < PUBSUB_KINDS; kind++) pubsub_unsubscribe_all(client, (enum pubsub_kind)kind, NULL);
}
static struct client_watcher watcher = {.freed = client_gone, .reset = client_gone};

void pubsub_init(void) {
    for (int kind = 0; kind < PUBSUB_KINDS; kind++) {
        topics[kind] = hashtable_new(&topic_type);
        list_init(&topic_lists[kind]);
        list_init(&deserted[kind]);
    }
    subscriptions = hashtable_new(&subscription_type);
    subscribers = hashtable_new(&subscriber_type);
    clients_watch(&watcher);
}

/* Counting */

size_t pubsub_topics(enum pubsub_kind kind) { return hashtable_size(topics[kind]); }
size_t pubsub_subscribers(enum pubsub_kind kind, struct slice name) {
    const struct topic *topic = hashtable_find(topics[kind], name);
    return topic ? topic->subscriptions.len : 0;
}
void pubsub_topics_each(enum pubsub_kind kind, void (*seen)(void *, struct slice), void *context) {
    list_each(&topic_lists[kind], link) seen(context, topic_name(container_of(link, struct topic, of_kind)));
}
bool pubsub_has_subscribers(void) { return pubsub_topics(PUBSUB_CHANNEL) + pubsub_topics(PUBSUB_PATTERN) != 0; }

/* Delivering */

/* A message as each protocol writes it, made when the first subscriber wants it. */
struct encoded {
    struct memory_output bytes;
    struct blob *blob; /* the same, where it is large enough to be shared */
    bool made;
};
struct message {
    const char *kind;
    struct slice pattern, channel, text;
    bool has_pattern;
    struct encoded encoded[2]; /* RESP2, RESP3 */
};

static struct encoded *encode(struct message *message, int protocol) {
    struct encoded *encoded = &message->encoded[protocol == 3];
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

static void message_free(struct message *message) {
    for (int i = 0; i < 2; i++) {
        if (!message->encoded[i].made) continue;
        memory_output_free(&message->encoded[i].bytes);
        if (message->encoded[i].blob) blob_release(message->encoded[i].blob);
    }
}

static size_t deliver(struct topic *topic, struct message *message) {
    size_t receivers = topic->subscriptions.len;
    list_each(&topic->subscriptions, link) {
        struct client *client = container_of(link, struct subscription, of_topic)->client;
        struct encoded *encoded = encode(message, client->reply.protocol);
        if (encoded->blob) client_push_blob(client, encoded->blob);
        else client_push(client, memory_output_slice(&encoded->bytes));
    }
    message_free(message);
    return receivers;
}

static size_t deliver_to_patterns(struct slice channel, struct slice text) {
    size_t receivers = 0;
    list_each(&topic_lists[PUBSUB_PATTERN], link) {
        struct topic *pattern = container_of(link, struct topic, of_kind);
        if (!glob_match(topic_name(pattern), channel, false)) continue;
        struct message message = {.kind = "pmessage", .has_pattern = true, .pattern = topic_name(pattern), .channel = channel, .text = text};
        receivers += deliver(pattern, &message);
    }
    return receivers;
}

size_t pubsub_publish(struct slice channel, struct slice text, bool shard) {
    struct topic *topic = hashtable_find(topics[shard ? PUBSUB_SHARD : PUBSUB_CHANNEL], channel);
    size_t receivers = 0;
    delivering = true;
    if (topic) {
        struct message message = {.kind = shard ? "smessage" : "message", .channel = channel, .text = text};
        receivers = deliver(topic, &message);
    }
    if (!shard) receivers += deliver_to_patterns(channel, text);
    delivering = false;
    for (int kind = 0; kind < PUBSUB_KINDS; kind++) {
        while (deserted[kind].len) {
            struct topic *left = container_of(list_first(&deserted[kind]), struct topic, deserted_link);
            list_remove(&deserted[kind], &left->deserted_link);
            topic_drop((enum pubsub_kind)kind, left);
        }
    }
    return receivers;
}
