/* hello.c: the messages by which Sentinels find one another and agree on a group's primary:
 *
 *     ip,port,id,current epoch,group,primary's ip,primary's port,config epoch
 *
 * A Sentinel publishes one on each server of the group and sends it to the Sentinels that it knows. */
#include "lib/text/number.h"
#include "sentinel/protocol/machine.h"
#include <stdio.h>
#include <string.h>

enum { HELLO_FIELDS = 8, HELLO_MAX = SENTINEL_HOST_MAX * 2 + SENTINEL_NAME_MAX + 200 };

bool hello_publish(struct sentinel *s, struct instance *i) {
    struct instance *group = group_of(i);
    const struct sentinel_address *primary = sentinel_primary_address(group);
    char text[HELLO_MAX], host[SENTINEL_HOST_MAX];
    int port;
    /* A coordinated failover must not be disturbed by Sentinels that hear of the new primary from the server itself. */
    if (group->flags & INSTANCE_COORD_FAILOVER && group->failover.state < FAILOVER_RECONFIGURE) return false;
    if (!(i->flags & INSTANCE_SENTINEL) && i->reported.failover_in_progress) return false;
    if (i->link->half[LINK_COMMANDS].state == HALF_NONE) return false;
    if (!s->effects->own_address(s->context, i->link, host, &port)) return false;
    snprintf(text, sizeof text, "%s,%d,%s,%llu,%s,%s,%d,%llu", host, port, s->id, (unsigned long long)s->current_epoch,
             group->name, sentinel_announced(s, primary), primary->port, (unsigned long long)group->config_epoch);
    if (!machine_send(s, i, &(struct sentinel_request){.kind = REQUEST_HELLO, .text = text})) return false;
    i->hello_sent_ms = s->now_ms;
    if (i->flags & INSTANCE_SENTINEL) i->published_ms = s->now_ms; /* its link is shared: the reply names no group */
    return true;
}
static void publish_soon(struct instance *i, int64_t past) {
    if (i->published_ms > past) i->published_ms = past;
    i->hello_sent_ms = 0;
}
void hello_soon(struct sentinel *s, struct instance *group) {
    int64_t past = s->now_ms - s->settings.timers.publish_period - 1;
    publish_soon(group, past);
    each_instance(&group->replicas, replica) publish_soon(replica, past);
    each_instance(&group->sentinels, other) publish_soon(other, past);
}

struct sentinel_hello {
    struct sentinel_address sender, primary;
    char id[SENTINEL_ID_LEN + 1];
    uint64_t current_epoch, config_epoch;
    struct slice group;
};
/* False: the message is malformed. */
static bool hello_split(struct slice text, struct slice fields[static HELLO_FIELDS]) {
    for (int i = 0; i < HELLO_FIELDS; i++) {
        const char *comma = text.len ? memchr(text.data, ',', text.len) : NULL;
        size_t len = comma ? (size_t)(comma - text.data) : text.len;
        fields[i] = (struct slice){text.data, len};
        if (!comma) return i == HELLO_FIELDS - 1 && len > 0;
        text.data += len + 1, text.len -= len + 1;
    }
    return false; /* too many */
}

static struct instance *find_sentinel(const struct instance *group, const char *id) {
    each_instance(&group->sentinels, other) if (strcmp(other->run_id, id) == 0) return other;
    return NULL;
}

/* A Sentinel with this id has moved: all groups that know it use the new address. */
static void move_sentinel(struct sentinel *s, const struct instance *group, const char *id,
                          const struct sentinel_address *address) {
    const struct instance *first = NULL;
    unsigned others = 0;
    each_instance(&s->groups, any) {
        struct instance *other = find_sentinel(any, id);
        if (!other) continue;
        other->address = *address;
        close_link(s, other->link);
        other->link->dial_ms = 0;
        if (!first) first = other;
        others += any != group;
    }
    if (others)
        event_about(s, EVENT_NOTICE, "+sentinel-address-update", first, "%u additional matching instances", others);
}
/* A new Sentinel has the address of another, which is gone, or has a new id: no group counts the old one any more. If
 * it lives elsewhere, its hello messages bring it back. */
static void forget_address(struct sentinel *s, const struct instance *group, const char *id,
                           const struct sentinel_address *address) {
    struct instance *old = NULL;
    each_instance(&group->sentinels, other) if (strcmp(other->run_id, id) != 0 &&
                                                sentinel_address_equal(s, &other->address, address)) old = other;
    if (!old) return;
    char gone[SENTINEL_ID_LEN + 1];
    memcpy(gone, old->run_id, sizeof gone);
    event_plain(s, EVENT_NOTICE, "+sentinel-invalid-addr", old);
    each_instance(&s->groups, any) {
        struct instance *other = find_sentinel(any, gone);
        if (other) remove_sentinel(s, any, other);
    }
}

static struct instance *meet(struct sentinel *s, struct instance *group, const struct sentinel_hello *hello) {
    struct instance *other = find_sentinel(group, hello->id);
    if (other && sentinel_address_equal(s, &other->address, &hello->sender)) return other;
    if (!other && group->sentinels.count >= SENTINEL_SENTINELS_MAX) return NULL;
    bool moved = other != NULL;
    if (moved)
        event_about(s, EVENT_NOTICE, "+sentinel-address-switch", group, "ip %s port %d for %s", hello->sender.host,
                    hello->sender.port, hello->id);
    if (moved) {
        move_sentinel(s, group, hello->id, &hello->sender);
    } else {
        forget_address(s, group, hello->id, &hello->sender);
        other = add_sentinel(s, group, &hello->sender, hello->id);
        event_plain(s, EVENT_NOTICE, "+sentinel", other);
    }
    machine_save(s, false);
    return other;
}

/* The sender has a newer configuration of the group. */
static void take_configuration(struct sentinel *s, struct instance *group, const struct instance *sender,
                               const struct sentinel_hello *hello) {
    struct sentinel_address old = *sentinel_primary_address(group);
    /* Otherwise the next failover by this Sentinel would have an older configuration. */
    take_epoch(s, hello->config_epoch);
    group->config_epoch = hello->config_epoch;
    if (sentinel_address_equal(s, &old, &hello->primary)) {
        machine_save(s, true);
        return;
    }
    event_plain(s, EVENT_WARNING, "+config-update-from", sender);
    event_text(s, EVENT_WARNING, "+switch-master", group, "%s %s %d %s %d", group->name, sentinel_announced(s, &old),
               old.port, sentinel_announced(s, &hello->primary), hello->primary.port);
    /* The script gets the addresses of before and now; both are copied before the group changes. */
    group_change_primary(s, group, &hello->primary);
    s->effects->reconfig_script(s->context, group, "observer", "start", &old, &group->address);
}

void sentinel_hello(struct sentinel *s, struct slice text, int64_t now_ms) {
    struct slice fields[HELLO_FIELDS];
    struct sentinel_hello hello;
    int64_t port, primary_port;
    machine_time(s, now_ms);
    if (!hello_split(text, fields)) return;
    struct instance *group = sentinel_find_group(s, fields[4]);
    if (!group || fields[2].len != SENTINEL_ID_LEN || memchr(fields[2].data, 0, SENTINEL_ID_LEN)) return;
    if (slice_equal(fields[2], slice_of(s->id))) return; /* our own */
    if (!parse_int64(fields[1], &port) || !parse_int64(fields[6], &primary_port) ||
        !parse_uint64(fields[3], &hello.current_epoch) || !parse_uint64(fields[7], &hello.config_epoch) ||
        !epoch_is_plausible(s, hello.current_epoch) || !epoch_is_plausible(s, hello.config_epoch))
        return;
    snprintf(hello.id, sizeof hello.id, "%.*s", (int)fields[2].len, fields[2].data);
    for (size_t i = 0; i < SENTINEL_ID_LEN; i++)
        if ((unsigned char)hello.id[i] <= ' ' || hello.id[i] == 127) return;
    if (set_address(s, &hello.sender, fields[0], port, false)) return;
    struct instance *sender = meet(s, group, &hello);
    take_epoch(s, hello.current_epoch);
    if (sender) sender->hello_ms = s->now_ms;
    if (!sender || group->config_epoch >= hello.config_epoch) return;
    if (set_address(s, &hello.primary, fields[5], primary_port, false)) return;
    take_configuration(s, group, sender, &hello);
}
