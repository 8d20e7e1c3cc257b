/* notifications.c: keyspace notifications: publishes keyspace events (server/notify.h) as messages according to
 * notify-keyspace-events.
 *
 * An event is published twice: to "__keyspace@<db>__:<key>" with the event's name (K), and to
 * "__keyevent@<db>__:<event>" with the key's name (E). */
#include "lib/system/memory.h"
#include "pubsub/pubsub.h"
#include "server/notify.h"
#include "store/keyspace.h"
#include <stdio.h>

enum { BY_KEY = 1 << 30, BY_EVENT = 1 << 29 }; /* K and E; bits above all classes */
_Static_assert(NOTIFY_NEW < (int)BY_EVENT, "");

static uint32_t wanted;

/* In the order of CONFIG GET. */
static const struct {
    char letter;
    uint32_t class;
} letters[] = {{'g', NOTIFY_GENERIC}, {'$', NOTIFY_STRING},  {'l', NOTIFY_LIST},    {'s', NOTIFY_SET},
               {'h', NOTIFY_HASH},    {'z', NOTIFY_ZSET},    {'x', NOTIFY_EXPIRED}, {'e', NOTIFY_EVICTED},
               {'t', NOTIFY_STREAM},  {'d', NOTIFY_MODULE},  {'n', NOTIFY_NEW},     {'K', BY_KEY},
               {'E', BY_EVENT},       {'m', NOTIFY_KEY_MISS}};
enum { LETTERS = sizeof letters / sizeof *letters };

static void notifications_publish(const char *kind, int db, struct slice about, struct slice message) {
    char buffer[256], head[48];
    int head_len = snprintf(head, sizeof head, "__%s@%d__:", kind, db);
    size_t len = (size_t)head_len + about.len;
    char *channel = len <= sizeof buffer ? buffer : mem_alloc(len);
    memcpy(channel, head, (size_t)head_len);
    if (about.len) memcpy(channel + head_len, about.data, about.len);
    pubsub_publish((struct slice){channel, len}, message, false);
    if (channel != buffer) mem_free(channel);
}

static void notifications_on_event(struct notify_listener *self, struct db *db, enum notify_class class,
                                   const char *event, struct slice key) {
    if (!pubsub_has_subscribers()) return;
    if (wanted & BY_KEY) notifications_publish("keyspace", db_id(db), key, slice_of(event));
    if (wanted & BY_EVENT) notifications_publish("keyevent", db_id(db), slice_of(event), key);
}
static struct notify_listener listener = {.event = notifications_on_event};

static const char *set_events(const struct config_option *option, int count, const struct slice *words) {
    uint32_t set = 0;
    if (count > 1) return "wrong number of arguments";
    for (size_t i = 0; count && i < words[0].len; i++) {
        uint32_t class = words[0].data[i] == 'A' ? NOTIFY_ALL : 0;
        for (int j = 0; j < LETTERS && !class; j++)
            if (letters[j].letter == words[0].data[i]) class = letters[j].class;
        if (!class) return "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
        set |= class;
    }
    wanted = set;
    notify_listen(&listener);
    /* Without K or E no class is published. */
    notify_set_classes(&listener, wanted & (BY_KEY | BY_EVENT) ? wanted & ~(uint32_t)(BY_KEY | BY_EVENT) : 0);
    return NULL;
}

static void get_events(const struct config_option *option, struct output *out) {
    char text[LETTERS + 1];
    size_t len = 0;
    bool all = (wanted & NOTIFY_ALL) == NOTIFY_ALL;
    if (all) text[len++] = 'A';
    for (int i = 0; i < LETTERS; i++) {
        if (!(wanted & letters[i].class)) continue;
        if (all && (letters[i].class & NOTIFY_ALL || letters[i].class == NOTIFY_NEW)) continue;
        text[len++] = letters[i].letter;
    }
    output_write(out, (struct slice){text, len});
}

const struct config_option notification_options[] = {
    {OPTION("notify-keyspace-events", CONFIG_CUSTOM, NULL, ""), .set = set_events, .get = get_events},
    {.name = NULL},
};
