/* pubsub.h: publish and subscribe. A client can subscribe to channels, patterns and shard channels (enum pubsub_kind).
 *
 * A message is encoded once per protocol and written to every subscriber as a push: first to the subscribers of the
 * channel, then to those of each matching pattern, in the order in which they subscribed. Main thread only. */
#pragma once
#include "server/command/command.h"
#include "server/config/config.h"

enum pubsub_kind { PUBSUB_CHANNEL, PUBSUB_PATTERN, PUBSUB_SHARD, PUBSUB_KINDS };

/* Delivers a message to the subscribers of a channel and of the patterns that match it, or of a shard channel; returns
 * the number of receivers. */
size_t pubsub_publish(struct slice channel, struct slice message, bool shard);
/* PUBLISH calls this instead: a Sentinel takes messages from other Sentinels only. */
void pubsub_replace_publish(void (*run)(struct call *call));
bool pubsub_has_subscribers(void); /* of channels or patterns; false: no message needs to be built */

/* Subscribe and unsubscribe a client. False: no change. */
bool pubsub_subscribe(struct client *client, enum pubsub_kind kind, struct slice name);
bool pubsub_unsubscribe(struct client *client, enum pubsub_kind kind, struct slice name);
/* Ends all subscriptions of a kind; calls `ended` (may be NULL) for each. */
typedef void pubsub_ended(struct client *client, enum pubsub_kind kind, struct slice name);
void pubsub_unsubscribe_all(struct client *client, enum pubsub_kind kind, pubsub_ended *ended);

/* Ends the subscriptions to the shard channels that `ends` names: their clients are sent `sunsubscribe`. */
void pubsub_end_shard_channels(bool (*ends)(void *context, struct slice name), void *context);

void pubsub_each_of(const struct client *client, enum pubsub_kind kind, void (*seen)(void *context, struct slice name),
                    void *context);
size_t pubsub_subscriptions(const struct client *client, enum pubsub_kind kind); /* of one client */
size_t pubsub_channels(enum pubsub_kind kind);
size_t pubsub_subscribers(enum pubsub_kind kind, struct slice name);
void pubsub_channels_each(enum pubsub_kind kind, void (*seen)(void *context, struct slice name), void *context);

struct feature;
extern const struct feature pubsub_feature;
extern const struct config_option notification_options[]; /* notifications.c: notify-keyspace-events */
void pubsub_init(void);
