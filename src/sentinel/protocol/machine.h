/* machine.h: what the files of the Sentinel state machine share. */
#pragma once
#include "sentinel/protocol/sentinel.h"

enum { DESYNC_MS = 1000, PENDING_MAX = 100 };

/* Takes the time of an input; skips the time in which this process was stopped. */
void machine_time(struct sentinel *s, int64_t now_ms);

#define each_instance(list, at) each_in(list, at)

/* instance.c */
const char *set_address(struct sentinel *s, struct sentinel_address *address, struct slice host, int64_t port,
                        bool unresolved_allowed);
struct instance *find_replica(const struct sentinel *s, const struct instance *group,
                              const struct sentinel_address *address);
struct instance *add_replica(struct sentinel *s, struct instance *group, const struct sentinel_address *address);
struct instance *add_sentinel(struct sentinel *s, struct instance *group, const struct sentinel_address *address,
                              const char *id);
void remove_sentinel(struct sentinel *s, struct instance *group, struct instance *other);
void close_half(struct sentinel *s, struct sentinel_link *link, enum link_kind kind);
void close_link(struct sentinel *s, struct sentinel_link *link);
void group_reset(struct sentinel *s, struct instance *group, bool keep_sentinels);
/* The group has another primary: its other servers become replicas. */
void group_change_primary(struct sentinel *s, struct instance *group, const struct sentinel_address *address);

/* Events. event_about(): "<type> <name> <ip> <port>[ @ <primary> <ip> <port>]" and the text; event_plain(): without
 * text. */
void event_about(struct sentinel *s, enum log_level level, const char *type, const struct instance *about,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));
static inline void event_plain(struct sentinel *s, enum log_level level, const char *type,
                               const struct instance *about) {
    event_about(s, level, type, about, "%s", "");
}
void event_text(struct sentinel *s, enum log_level level, const char *type, const struct instance *group,
                const char *format, ...) __attribute__((format(printf, 5, 6)));
void machine_log(struct sentinel *s, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define EVENT_VERBOSE LOG_LEVEL_VERBOSE
#define EVENT_NOTICE  LOG_LEVEL_NOTICE
#define EVENT_WARNING LOG_LEVEL_WARNING

static inline void machine_save(struct sentinel *s, bool durable) {
    s->effects->save(s->context, durable);
}
static inline bool machine_send(struct sentinel *s, const struct instance *to, const struct sentinel_request *request) {
    struct sentinel_link *link = to->link;
    if (link->half[LINK_COMMANDS].state == HALF_NONE) return false;
    return s->effects->send(s->context, link, to, request);
}
static inline bool link_is_up(const struct sentinel_link *link) {
    return !link->disconnected;
}
/* Epochs grow by one with each failover. No Sentinel sends an epoch above this limit; to accept one would leave no
 * epochs for later failovers, so the message is ignored. The limit moves with the current epoch. */
static inline bool epoch_is_plausible(const struct sentinel *s, uint64_t epoch) {
    const uint64_t limit = UINT64_C(1) << 62, step = UINT64_C(1) << 20;
    return epoch <= (s->current_epoch > limit ? s->current_epoch : limit) + step && epoch <= INT64_MAX;
}
static inline struct instance *group_of(const struct instance *instance) {
    return instance->flags & INSTANCE_PRIMARY ? (struct instance *)instance : instance->primary;
}

/* tick.c */
void info_request(struct sentinel *s, struct instance *instance);
/* hello.c */
bool hello_publish(struct sentinel *s, struct instance *instance);
void hello_soon(struct sentinel *s, struct instance *group); /* to all, at the next tick */
/* election.c */
void check_o_down(struct sentinel *s, struct instance *group);
void ask_others(struct sentinel *s, struct instance *group, bool forced);
void ask_answered(struct sentinel *s, struct instance *sentinel, const struct sentinel_answer *answer);
void take_epoch(struct sentinel *s, uint64_t epoch);
const char *elected_leader(struct sentinel *s, struct instance *group, uint64_t epoch); /* NULL: nobody yet */
/* failover.c */
bool failover_start_if_needed(struct sentinel *s, struct instance *group);
void failover_start(struct sentinel *s, struct instance *group);
void failover_step(struct sentinel *s, struct instance *group);
void failover_promoted(struct sentinel *s, struct instance *replica); /* INFO says that it is a primary now */
bool send_replicate(struct sentinel *s, struct instance *instance, const struct sentinel_address *primary);
/* Logs once for each reason why no failover happens. */
void failover_stuck(struct sentinel *s, struct instance *group, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
