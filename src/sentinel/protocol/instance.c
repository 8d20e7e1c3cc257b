/* instance.c: groups, their servers, the other Sentinels, and the links to them.
 *
 * The groups that a Sentinel watches share one link to each other Sentinel, found by its id. */
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "sentinel/protocol/machine.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_MIN = 64, EVENT_TEXT_MAX = SENTINEL_TEXT_MAX };

const struct sentinel_timers sentinel_default_timers = {.info_period = 10000,
                                                        .ping_period = 1000,
                                                        .ask_period = 1000,
                                                        .publish_period = 2000,
                                                        .default_down_after = 30000,
                                                        .default_failover_timeout = 180000,
                                                        .tilt_trigger = 2000,
                                                        .tilt_period = 30000,
                                                        .reconf_timeout = 10000,
                                                        .min_link_reconnect = 15000,
                                                        .election_timeout = 10000,
                                                        .script_max_runtime = 60000,
                                                        .script_retry_delay = 30000};

struct sentinel *sentinel_new(const char *id, const struct sentinel_effects *effects, void *context, int64_t now_ms) {
    struct sentinel *s = mem_calloc(1, sizeof *s);
    s->settings.timers = sentinel_default_timers;
    s->effects = effects;
    s->context = context;
    snprintf(s->id, sizeof s->id, "%s", id);
    s->now_ms = s->tick_ms = now_ms;
    s->ticks = 1;
    s->by_name_size = NAMES_MIN;
    s->by_name = mem_calloc(s->by_name_size, sizeof *s->by_name);
    return s;
}
void sentinel_free(struct sentinel *s) {
    if (!s) return;
    while (s->groups.count) sentinel_remove(s, s->groups.items[s->groups.count - 1], s->now_ms);
    mem_free(s->groups.items);
    mem_free(s->by_name);
    mem_free(s);
}

/* --- Events --- */

const char *sentinel_announced(const struct sentinel *s, const struct sentinel_address *address) {
    return s->settings.announce_hostnames || !*address->ip ? address->host : address->ip;
}

static const char *type_name(const struct instance *i) {
    return i->flags & INSTANCE_PRIMARY ? "master" : i->flags & INSTANCE_REPLICA ? "slave" : "sentinel";
}

void event_about(struct sentinel *s, enum log_level level, const char *type, const struct instance *about,
                 const char *format, ...) {
    char text[EVENT_TEXT_MAX], more[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(more, sizeof more, format, arguments);
    va_end(arguments);
    const char *gap = *more ? " " : "";
    const struct instance *group = group_of(about);
    if (about == group)
        snprintf(text, sizeof text, "%s %s %s %d%s%s", type_name(about), about->name,
                 sentinel_announced(s, &about->address), about->address.port, gap, more);
    else
        snprintf(text, sizeof text, "%s %s %s %d @ %s %s %d%s%s", type_name(about), about->name,
                 sentinel_announced(s, &about->address), about->address.port, group->name,
                 sentinel_announced(s, &group->address), group->address.port, gap, more);
    s->effects->event(s->context, level, type, text, group);
}
void event_text(struct sentinel *s, enum log_level level, const char *type, const struct instance *group,
                const char *format, ...) {
    char text[EVENT_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    s->effects->event(s->context, level, type, text, group);
}
void machine_log(struct sentinel *s, enum log_level level, const char *format, ...) {
    char text[EVENT_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    s->effects->log(s->context, level, text);
}

/* --- Lists --- */

static void list_push(struct instance_list *list, struct instance *instance) {
    mem_grow(list->items, list->count, list->capacity, 4);
    list->items[list->count++] = instance;
}
static void list_drop(struct instance_list *list, struct instance *instance) {
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i] != instance) list->items[kept++] = list->items[i];
    must_equal(kept + 1, list->count);
    list->count = kept;
}

/* --- Addresses --- */

const char *set_address(struct sentinel *s, struct sentinel_address *address, struct slice host, int64_t port,
                        bool unresolved_allowed) {
    static const char unresolved[] = "Can't resolve instance hostname.";
    if (port < 1 || port > 65535) return "Invalid port number.";
    if (!host.len || host.len >= SENTINEL_HOST_MAX) return unresolved;
    for (size_t i = 0; i < host.len; i++)
        if ((unsigned char)host.data[i] <= ' ' || host.data[i] == ',' || host.data[i] == 127) return unresolved;
    memcpy(address->host, host.data, host.len);
    address->host[host.len] = 0;
    address->port = (int)port;
    if (s->effects->resolve(s->context, address->host, s->settings.resolve_hostnames, address->ip)) return NULL;
    address->ip[0] = 0;
    return unresolved_allowed && s->settings.resolve_hostnames ? NULL : unresolved;
}

bool sentinel_address_equal(const struct sentinel *s, const struct sentinel_address *a,
                            const struct sentinel_address *b) {
    if (a->port != b->port) return false;
    return (*a->ip && strcmp(a->ip, b->ip) == 0) || strcasecmp(a->host, b->host) == 0;
}

/* --- Links --- */

static struct sentinel_link *link_new(struct sentinel *s, struct instance *instance) {
    struct sentinel_link *link = mem_calloc(1, sizeof *link);
    link->refs = 1;
    link->instance = instance;
    link->disconnected = true;
    link->available_ms = link->pong_ms = link->unanswered_ms = s->now_ms;
    link->available_stopped_ms = s->stopped_ms;
    return link;
}

void close_half(struct sentinel *s, struct sentinel_link *link, enum link_kind kind) {
    if (link->half[kind].state == HALF_NONE) return;
    s->effects->close(s->context, link, kind);
    link->half[kind] = (struct link_half){.state = HALF_NONE};
    link->disconnected = true;
    if (kind == LINK_COMMANDS) link->pending = 0;
    if (kind == LINK_COMMANDS && link->instance) link->instance->info.pending = 0;
}
void close_link(struct sentinel *s, struct sentinel_link *link) {
    close_half(s, link, LINK_COMMANDS);
    close_half(s, link, LINK_PUBSUB);
}

/* Another user of a link that `instance` had. */
static struct instance *other_user(struct sentinel *s, const struct sentinel_link *link,
                                   const struct instance *instance) {
    each_instance(&s->groups, group)
        each_instance(&group->sentinels, other) if (other != instance && other->link == link) return other;
    return NULL;
}
static void link_release(struct sentinel *s, struct instance *instance) {
    struct sentinel_link *link = instance->link;
    instance->link = NULL;
    must(link->refs > 0);
    if (--link->refs) {
        if (link->instance == instance) link->instance = other_user(s, link, instance);
        if (link->instance) return;
    }
    close_link(s, link);
    mem_free(link);
}
/* The link that another group has to this Sentinel. */
static struct sentinel_link *link_to_sentinel(struct sentinel *s, const char *id) {
    each_instance(&s->groups, group)
        each_instance(&group->sentinels, other) if (other->link && strcmp(other->run_id, id) == 0) return other->link;
    return NULL;
}

/* --- Instances --- */

static struct instance *instance_new(struct sentinel *s, unsigned kind, const char *name,
                                     const struct sentinel_address *address, struct instance *primary) {
    struct instance *i = mem_calloc(1, sizeof *i);
    const struct sentinel_timers *timers = &s->settings.timers;
    i->flags = kind;
    i->name = mem_strdup(name);
    i->address = *address;
    i->primary = primary;
    i->created_ms = i->published_ms = i->hello_ms = i->told_ms = i->role_ms = i->reconf_ms = s->now_ms;
    i->down_after_ms = primary ? primary->down_after_ms : timers->default_down_after;
    i->reports_primary = kind == INSTANCE_PRIMARY;
    server_info_init(&i->reported);
    i->options.parallel_syncs = 1;
    i->options.failover_timeout_ms = timers->default_failover_timeout;
    return i;
}

static void info_forget(struct instance *i) {
    mem_free(i->info.text);
    i->info.text = NULL;
    i->info.len = 0;
}

static void instance_free(struct sentinel *s, struct instance *i);
static void list_free(struct sentinel *s, struct instance_list *list) {
    while (list->count) instance_free(s, list->items[--list->count]);
    mem_free(list->items);
    *list = (struct instance_list){NULL, 0, 0};
}

/* Takes it from no list. */
static void instance_free(struct sentinel *s, struct instance *i) {
    list_free(s, &i->replicas);
    list_free(s, &i->sentinels);
    if (i->link) link_release(s, i);
    if (i->primary && i->primary->failover.promoted == i) i->primary->failover.promoted = NULL;
    info_forget(i);
    while (i->options.renamed) {
        struct renamed_command *renamed = i->options.renamed;
        i->options.renamed = renamed->next;
        mem_free(renamed->from);
        mem_free(renamed->to);
        mem_free(renamed);
    }
    mem_free(i->options.auth_user);
    mem_free(i->options.auth_pass);
    mem_free(i->options.notification_script);
    mem_free(i->options.reconfig_script);
    mem_free(i->name);
    mem_free(i);
}

struct instance *find_replica(const struct sentinel *s, const struct instance *group,
                              const struct sentinel_address *address) {
    each_instance(&group->replicas, replica) if (sentinel_address_equal(s, &replica->address, address)) return replica;
    return NULL;
}

struct instance *add_replica(struct sentinel *s, struct instance *group, const struct sentinel_address *address) {
    char name[SENTINEL_HOST_MAX + 10];
    const char *host = sentinel_announced(s, address);
    snprintf(name, sizeof name, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, address->port);
    struct instance *replica = instance_new(s, INSTANCE_REPLICA, name, address, group);
    replica->link = link_new(s, replica);
    list_push(&group->replicas, replica);
    return replica;
}

struct instance *add_sentinel(struct sentinel *s, struct instance *group, const struct sentinel_address *address,
                              const char *id) {
    struct instance *other = instance_new(s, INSTANCE_SENTINEL, id, address, group);
    snprintf(other->run_id, sizeof other->run_id, "%s", id);
    struct sentinel_link *link = link_to_sentinel(s, id);
    if (link)
        link->refs++;
    else
        link = link_new(s, other);
    other->link = link;
    list_push(&group->sentinels, other);
    return other;
}

void remove_sentinel(struct sentinel *s, struct instance *group, struct instance *other) {
    list_drop(&group->sentinels, other);
    instance_free(s, other);
}

const char *sentinel_add_replica(struct sentinel *s, struct instance *group, struct slice host, int64_t port,
                                 bool *duplicate) {
    struct sentinel_address address;
    const char *reason = set_address(s, &address, host, port, true);
    *duplicate = false;
    if (reason) return reason;
    *duplicate = find_replica(s, group, &address) != NULL;
    if (!*duplicate) add_replica(s, group, &address);
    return NULL;
}
const char *sentinel_add_sentinel(struct sentinel *s, struct instance *group, struct slice host, int64_t port,
                                  struct slice id) {
    struct sentinel_address address;
    char text[SENTINEL_ID_LEN + 1];
    if (id.len != SENTINEL_ID_LEN || memchr(id.data, 0, id.len)) return "Wrong hostname or port for sentinel.";
    snprintf(text, sizeof text, "%.*s", (int)id.len, id.data);
    const char *reason = set_address(s, &address, host, port, true);
    if (reason) return reason;
    each_instance(&group->sentinels,
                  other) if (strcmp(other->run_id, text) == 0) return "Duplicate runid for sentinel.";
    add_sentinel(s, group, &address, text);
    return NULL;
}

void sentinel_set_down_after(struct instance *group, int64_t ms) {
    ms = group->down_after_ms = sentinel_limit_ms(ms);
    each_instance(&group->replicas, replica) replica->down_after_ms = ms;
    each_instance(&group->sentinels, other) other->down_after_ms = ms;
}

/* --- Groups --- */

static size_t name_hash(struct slice name) {
    size_t hash = 1469598103u;
    for (size_t i = 0; i < name.len; i++) hash = (hash ^ (unsigned char)name.data[i]) * 16777619u;
    return hash;
}
struct instance *sentinel_find_group(const struct sentinel *s, struct slice name) {
    struct instance *at = s->by_name[name_hash(name) % s->by_name_size];
    while (at && !slice_equal(slice_of(at->name), name)) at = at->next_by_name;
    return at;
}
static void index_add(struct sentinel *s, struct instance *group) {
    struct instance **chain = &s->by_name[name_hash(slice_of(group->name)) % s->by_name_size];
    group->next_by_name = *chain;
    *chain = group;
}
static void index_drop(struct sentinel *s, struct instance *group) {
    struct instance **at = &s->by_name[name_hash(slice_of(group->name)) % s->by_name_size];
    while (*at && *at != group) at = &(*at)->next_by_name;
    must(*at);
    *at = group->next_by_name;
}
static void index_grow(struct sentinel *s) {
    if (s->groups.count < s->by_name_size) return;
    mem_free(s->by_name);
    s->by_name_size *= 4;
    s->by_name = mem_calloc(s->by_name_size, sizeof *s->by_name);
    each_instance(&s->groups, group) index_add(s, group);
}

const char *sentinel_monitor(struct sentinel *s, struct slice name, struct slice host, int64_t port, int64_t quorum,
                             struct instance **group, int64_t now_ms) {
    struct sentinel_address address;
    if (now_ms) machine_time(s, now_ms);
    if (quorum <= 0 || quorum > INT32_MAX) return "Quorum must be 1 or greater.";
    if (name.len >= SENTINEL_NAME_MAX || memchr(name.data, 0, name.len)) return "Invalid master name.";
    /* Valkey accepts port 0: a group that is never connected. */
    const char *reason = set_address(s, &address, host, port ? port : 1, !now_ms);
    if (reason) return reason;
    address.port = (int)port;
    if (sentinel_find_group(s, name)) return "Duplicate master name.";
    char text[SENTINEL_NAME_MAX];
    snprintf(text, sizeof text, "%.*s", (int)name.len, name.data);
    struct instance *made = instance_new(s, INSTANCE_PRIMARY, text, &address, NULL);
    made->options.quorum = (unsigned)quorum;
    made->link = link_new(s, made);
    list_push(&s->groups, made);
    index_add(s, made);
    index_grow(s);
    if (group) *group = made;
    return NULL;
}
void sentinel_monitored(struct sentinel *s, struct instance *group) {
    event_about(s, EVENT_WARNING, "+monitor", group, "quorum %u", group->options.quorum);
}
void sentinel_remove(struct sentinel *s, struct instance *group, int64_t now_ms) {
    machine_time(s, now_ms);
    index_drop(s, group);
    list_drop(&s->groups, group);
    instance_free(s, group);
}

void group_reset(struct sentinel *s, struct instance *group, bool keep_sentinels) {
    struct sentinel_link *link = group->link;
    list_free(s, &group->replicas);
    if (!keep_sentinels) list_free(s, &group->sentinels);
    close_link(s, link);
    link->unanswered_ms = link->available_ms = link->pong_ms = s->now_ms;
    link->available_stopped_ms = s->stopped_ms;
    link->ping_ms = link->dial_ms = 0;
    group->flags = INSTANCE_PRIMARY;
    group->vote.leader[0] = 0;
    group->failover.state = FAILOVER_NONE;
    group->failover.state_ms = group->failover.start_ms = group->failover.logged_ms = 0;
    group->failover.promoted = NULL;
    group->run_id[0] = 0;
    group->role_ms = group->reconf_ms = s->now_ms;
    group->reports_primary = true;
    group->info.replied_ms = group->info.sent_ms = 0;
    group->s_down_ms = group->o_down_ms = 0;
    group->failover.stuck[0] = 0;
    info_forget(group);
}

void group_change_primary(struct sentinel *s, struct instance *group, const struct sentinel_address *address) {
    struct sentinel_address now = *address, old = group->address;
    struct instance_list replicas = group->replicas;
    /* Reports of the old primary, such as its RDMA port, do not hold for the new one. */
    server_info_init(&group->reported);
    each_instance(&replicas, replica) {
        if (sentinel_address_equal(s, &replica->address, &now)) group->reported = replica->reported;
    }
    group->replicas = (struct instance_list){NULL, 0, 0};
    group_reset(s, group, true);
    group->address = now;
    each_instance(&replicas, replica) {
        if (sentinel_address_equal(s, &replica->address, &now)) continue;
        add_replica(s, group, &replica->address);
    }
    /* Hello messages may bring any number of primaries, one after the other. */
    if (!sentinel_address_equal(s, &old, &now) && group->replicas.count < SENTINEL_REPLICAS_MAX)
        add_replica(s, group, &old);
    list_free(s, &replicas);
    each_instance(&group->replicas, replica) event_plain(s, EVENT_NOTICE, "+slave", replica);
    machine_save(s, true);
}

const struct instance *sentinel_current_primary(const struct instance *group) {
    return group->flags & INSTANCE_FAILOVER_IN_PROGRESS && group->failover.promoted &&
                   group->failover.state >= FAILOVER_RECONFIGURE
               ? group->failover.promoted
               : group;
}
const struct sentinel_address *sentinel_primary_address(const struct instance *group) {
    return &sentinel_current_primary(group)->address;
}

void sentinel_flags_text(const struct instance *i, char text[static 256]) {
    static const struct {
        unsigned flag;
        const char *name;
    } names[] = {{INSTANCE_S_DOWN, "s_down"},
                 {INSTANCE_O_DOWN, "o_down"},
                 {INSTANCE_PRIMARY, "master"},
                 {INSTANCE_REPLICA, "slave"},
                 {INSTANCE_SENTINEL, "sentinel"},
                 {0, "disconnected"},
                 {INSTANCE_PRIMARY_DOWN, "master_down"},
                 {INSTANCE_FAILOVER_IN_PROGRESS, "failover_in_progress"},
                 {INSTANCE_PROMOTED, "promoted"},
                 {INSTANCE_RECONF_SENT, "reconf_sent"},
                 {INSTANCE_RECONF_INPROG, "reconf_inprog"},
                 {INSTANCE_RECONF_DONE, "reconf_done"},
                 {INSTANCE_FORCE_FAILOVER, "force_failover"},
                 {INSTANCE_COORD_FAILOVER, "coordinated_failover"},
                 {INSTANCE_SCRIPT_KILL_SENT, "script_kill_sent"},
                 {INSTANCE_PRIMARY_REBOOT, "master_reboot"}};
    size_t at = 0;
    text[0] = 0;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        if (names[n].flag ? !(i->flags & names[n].flag) : !i->link->disconnected) continue;
        at += (size_t)snprintf(text + at, 256 - at, "%s%s", at ? "," : "", names[n].name);
    }
}
