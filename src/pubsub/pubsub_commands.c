/* pubsub_commands.c: SUBSCRIBE and its variants, PUBLISH, SPUBLISH, PUBSUB, and their fields of INFO. */
#include "lib/text/glob.h"
#include "pubsub/pubsub.h"
#include "server/clients/client.h"
#include "server/clients/transactions.h"
#include "server/cluster_hooks.h"
#include "server/command/command.h"
#include "server/command/help.h"
#include "server/command/propagate.h"
#include "server/command/spec.h"
#include "server/feature.h"
#include "server/stats/info.h"

/* --- Subscribing --- */

/* A confirmation is a push, sent in order with the replies, even with CLIENT REPLY OFF. */

static void confirm(struct client *client, enum pubsub_kind kind, bool subscribed, const struct slice *name) {
    static const char *const words[PUBSUB_KINDS][2] = {
        {"unsubscribe", "subscribe"}, {"punsubscribe", "psubscribe"}, {"sunsubscribe", "ssubscribe"}};
    struct reply reply = client->reply;
    if (client->conn) reply.out = client_output(client);
    reply_push(&reply, 3);
    reply_bulk_text(&reply, words[kind][subscribed]);
    if (name)
        reply_bulk(&reply, *name);
    else
        reply_null(&reply);
    size_t count = pubsub_subscriptions(client, kind == PUBSUB_SHARD ? PUBSUB_SHARD : PUBSUB_CHANNEL);
    if (kind != PUBSUB_SHARD) count += pubsub_subscriptions(client, PUBSUB_PATTERN);
    reply_integer(&reply, (int64_t)count);
}

static void subscribe(struct call *call, enum pubsub_kind kind, const char *refusal) {
    struct client *client = call->client;
    /* Allowed within a transaction, except for shard channels, as in Valkey. */
    bool in_transaction = transaction_runs(client) && kind != PUBSUB_SHARD;
    if (client->flags & CLIENT_DENY_BLOCKING && !in_transaction) {
        reply_error(call->reply, refusal);
        return;
    }
    for (int i = 1; i < call->argc; i++) {
        pubsub_subscribe(client, kind, call->argv[i]);
        confirm(client, kind, true, &call->argv[i]);
    }
}
static void subscribe_run(struct call *call) {
    subscribe(call, PUBSUB_CHANNEL, "ERR SUBSCRIBE isn't allowed for a DENY BLOCKING client");
}
static void psubscribe_run(struct call *call) {
    subscribe(call, PUBSUB_PATTERN, "ERR PSUBSCRIBE isn't allowed for a DENY BLOCKING client");
}
static void ssubscribe_run(struct call *call) {
    subscribe(call, PUBSUB_SHARD, "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");
}

static void unsubscribed(struct client *client, enum pubsub_kind kind, struct slice name) {
    confirm(client, kind, false, &name);
}

static void unsubscribe_run(struct call *call) {
    enum pubsub_kind kind = call_variant(call);
    struct client *client = call->client;
    if (call->argc == 1) {
        if (pubsub_subscriptions(client, kind))
            pubsub_unsubscribe_all(client, kind, unsubscribed);
        else
            confirm(client, kind, false, NULL);
    } else {
        for (int i = 1; i < call->argc; i++) {
            pubsub_unsubscribe(client, kind, call->argv[i]);
            confirm(client, kind, false, &call->argv[i]);
        }
    }
}

/* --- Publishing --- */

static void pubsub_commands_publish(struct call *call, bool shard) {
    size_t receivers = pubsub_publish(call->argv[1], call->argv[2], shard);
    if (cluster_hooks) /* the bus takes it to the replicas, too */
        cluster_hooks->publish(call->argv[1], call->argv[2], shard, receivers);
    else
        propagate_message(db_id(call->db), call->argc, call->argv);
    reply_integer(call->reply, (int64_t)receivers);
}
static void (*publish_instead)(struct call *call); /* NULL: nothing */
void pubsub_replace_publish(void (*run)(struct call *call)) {
    publish_instead = run;
}
static void publish_run(struct call *call) {
    if (publish_instead)
        publish_instead(call);
    else
        pubsub_commands_publish(call, false);
}
static void spublish_run(struct call *call) {
    pubsub_commands_publish(call, true);
}

/* --- PUBSUB --- */

struct matches {
    const struct slice *pattern; /* NULL: all */
    struct reply *reply;
    size_t count;
};
static void match(void *context, struct slice name) {
    struct matches *matches = context;
    if (matches->pattern && !glob_match(*matches->pattern, name, false)) return;
    if (matches->reply) reply_bulk(matches->reply, name);
    matches->count++;
}

static void channels_run(struct call *call) {
    enum pubsub_kind kind = call_variant(call);
    if (call->argc > 3) {
        reply_error_format(call->reply,
                           "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try PUBSUB HELP.",
                           (int)call->argv[1].len, call->argv[1].data);
        return;
    }
    struct matches matches = {.pattern = call->argc == 3 ? &call->argv[2] : NULL};
    pubsub_channels_each(kind, match, &matches);
    reply_array(call->reply, matches.count);
    matches.reply = call->reply;
    pubsub_channels_each(kind, match, &matches);
}

static void numsub_run(struct call *call) {
    enum pubsub_kind kind = call_variant(call);
    reply_array(call->reply, (size_t)(call->argc - 2) * 2);
    for (int i = 2; i < call->argc; i++) {
        reply_bulk(call->reply, call->argv[i]);
        reply_integer(call->reply, (int64_t)pubsub_subscribers(kind, call->argv[i]));
    }
}
static void numpat_run(struct call *call) {
    reply_integer(call->reply, (int64_t)pubsub_channels(PUBSUB_PATTERN));
}

/* --- Tables --- */

#define LOOKING_FLAGS     (CMD_NO_DATA | CMD_PUBSUB | CMD_LOADING | CMD_STALE)
#define SUBSCRIBING_FLAGS (LOOKING_FLAGS | CMD_NOSCRIPT)
#define PUBLISHING_FLAGS  (LOOKING_FLAGS | CMD_FAST | CMD_MAY_REPLICATE)
#define SHARD_KEY(last)                                                                                                \
    {                                                                                                                  \
        { .flags = KEY_NOT_KEY, .begin = BEGIN_INDEX, .index = 1, .find = FIND_RANGE, .a = (last), .b = 1 }            \
    }
static const struct command_spec pubsub_subcommands[] = {
    {COMMAND("channels", channels_run, -2, LOOKING_FLAGS, .group = GROUP_PUBSUB, "2.8.0"), .variant = PUBSUB_CHANNEL,
     .complexity = "O(N), where N is the number of channels with subscribers",
     .summary = "Lists the channels that have subscribers.", .syntax = "[pattern:pattern]"},
    {COMMAND("numpat", numpat_run, 2, LOOKING_FLAGS, .group = GROUP_PUBSUB, "2.8.0"), .complexity = "O(1)",
     .summary = "Counts the patterns that have subscribers."},
    {COMMAND("numsub", numsub_run, -2, LOOKING_FLAGS, .group = GROUP_PUBSUB, "2.8.0"), .variant = PUBSUB_CHANNEL,
     .complexity = "O(N), where N is the number of channels requested",
     .summary = "Counts the subscribers of channels.", .syntax = "[channel:string]..."},
    {COMMAND("shardchannels", channels_run, -2, LOOKING_FLAGS, .group = GROUP_PUBSUB, "7.0.0"), .variant = PUBSUB_SHARD,
     .complexity = "O(N), where N is the number of shard channels with subscribers",
     .summary = "Lists the shard channels that have subscribers.", .syntax = "[pattern:pattern]"},
    {COMMAND("shardnumsub", numsub_run, -2, LOOKING_FLAGS, .group = GROUP_PUBSUB, "7.0.0"), .variant = PUBSUB_SHARD,
     .complexity = "O(N), where N is the number of shard channels requested",
     .summary = "Counts the subscribers of shard channels.", .syntax = "[shardchannel:string]..."},
    {HELP_ROW(help_handler, "CHANNELS [<pattern>]",
              "    Return the currently active channels matching a <pattern> (default: '*').", "NUMPAT",
              "    Return number of subscriptions to patterns.", "NUMSUB [<channel> ...]",
              "    Return the number of subscribers for the specified channels, excluding",
              "    pattern subscriptions(default: no channels).", "SHARDCHANNELS [<pattern>]",
              "    Return the currently active shard level channels matching a <pattern> (default: '*').",
              "SHARDNUMSUB [<shardchannel> ...]",
              "    Return the number of subscribers for the specified shard level channel(s)"),
     .group = GROUP_PUBSUB, .since = "6.2.0"},
    {.name = NULL},
};

static const struct command_spec pubsub_commands[] = {
    {COMMAND("subscribe", subscribe_run, -2, SUBSCRIBING_FLAGS, .group = GROUP_PUBSUB, "2.0.0"),
     .complexity = "O(N), where N is the number of channels", .summary = "Subscribes the connection to channels.",
     .syntax = "channel:string..."},
    {COMMAND("unsubscribe", unsubscribe_run, -1, SUBSCRIBING_FLAGS, .group = GROUP_PUBSUB, "2.0.0"),
     .variant = PUBSUB_CHANNEL, .complexity = "O(N), where N is the number of channels",
     .summary = "Ends the subscriptions to channels, or to all channels.", .syntax = "[channel:string]..."},
    {COMMAND("psubscribe", psubscribe_run, -2, SUBSCRIBING_FLAGS, .group = GROUP_PUBSUB, "2.0.0"),
     .complexity = "O(N), where N is the number of patterns",
     .summary = "Subscribes the connection to channels that match patterns.", .syntax = "pattern:pattern..."},
    {COMMAND("punsubscribe", unsubscribe_run, -1, SUBSCRIBING_FLAGS, .group = GROUP_PUBSUB, "2.0.0"),
     .variant = PUBSUB_PATTERN, .complexity = "O(N), where N is the number of patterns",
     .summary = "Ends the subscriptions to patterns, or to all patterns.", .syntax = "[pattern:pattern]..."},
    {COMMAND("ssubscribe", ssubscribe_run, -2, SUBSCRIBING_FLAGS, .group = GROUP_PUBSUB, "7.0.0"),
     .complexity = "O(N), where N is the number of shard channels",
     .summary = "Subscribes the connection to shard channels.", .syntax = "shardchannel:string...",
     .keys = SHARD_KEY(-1)},
    {COMMAND("sunsubscribe", unsubscribe_run, -1, SUBSCRIBING_FLAGS, .group = GROUP_PUBSUB, "7.0.0"),
     .variant = PUBSUB_SHARD, .complexity = "O(N), where N is the number of shard channels",
     .summary = "Ends the subscriptions to shard channels, or to all shard channels.",
     .syntax = "[shardchannel:string]...", .keys = SHARD_KEY(-1)},
    {COMMAND("publish", publish_run, 3, PUBLISHING_FLAGS, .group = GROUP_PUBSUB, "2.0.0"),
     .complexity =
         "O(N+M), where N is the number of the channel's subscribers and M the number of patterns that have any",
     .summary = "Sends a message to a channel.", .syntax = "channel:string message:string"},
    {COMMAND("spublish", spublish_run, 3, PUBLISHING_FLAGS, .group = GROUP_PUBSUB, "7.0.0"),
     .complexity = "O(N), where N is the number of the channel's subscribers",
     .summary = "Sends a message to a shard channel.", .syntax = "shardchannel:string message:string",
     .keys = SHARD_KEY(0)},
    {COMMAND("pubsub", NULL, -2, 0, .group = GROUP_PUBSUB, "2.8.0"), .complexity = "That of the subcommand",
     .summary = "A container for commands about active subscriptions.", .subcommands = pubsub_subcommands},
    {.name = NULL},
};

/* --- INFO stats --- */

static void stats_write(struct output *out) {
    info_line(out, "pubsub_channels:%zu", pubsub_channels(PUBSUB_CHANNEL));
    info_line(out, "pubsub_patterns:%zu", pubsub_channels(PUBSUB_PATTERN));
    info_line(out, "pubsubshard_channels:%zu", pubsub_channels(PUBSUB_SHARD));
}

static const struct info_section pubsub_sections[] = {
    {.name = "stats", .title = "Stats", .order = 51, .when = INFO_DEFAULT, .write = stats_write},
    {.name = NULL},
};

const struct feature pubsub_feature = {
    .name = "pubsub",
    .options = OPTIONS(notification_options),
    .commands = COMMANDS(pubsub_commands),
    .init = pubsub_init,
    .sections = SECTIONS(pubsub_sections),
};
