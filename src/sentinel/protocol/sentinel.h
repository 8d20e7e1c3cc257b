/* sentinel.h: one Sentinel as a state machine.
 *
 * The machine decides whether servers are down, votes, elects a leader, and fails groups over. It owns no socket,
 * clock, file or source of random numbers. Its inputs are events with the time; its outputs are calls of struct
 * sentinel_effects, in order. A simulator drives many of them (tests/simulation/sentinel_simulator.h).
 *
 *     event                               input
 *     ---------------------------------   ----------------------------------------------------------------
 *     a link that dial() asked for        sentinel_link_opened(), sentinel_link_closed()
 *     a reply to send()                   sentinel_replied()
 *     a hello message                     sentinel_hello(), and sentinel_link_heard() if a subscription brought it
 *     50 to 100 ms have passed            sentinel_tick()
 *     a command of a client               sentinel_monitor() and others below
 *
 * Rules between the machine and its host:
 * - An effect never calls the machine back.
 * - save(durable): whatever is sent afterwards, including the reply to the command that is being executed, may leave
 *   only when the file is on disk. The machine calls it before a peer could hear of a vote or an epoch.
 * - Times are milliseconds of a clock that never jumps back (the monotonic clock). If the machine is not called for
 *   more than SENTINEL_STOPPED_MS, it was stopped: this time does not count as silence of others.
 *
 * The host reads the fields; only the machine writes them, but for settings and the options of a group.
 *
 * Files: instance.c (groups, servers, links), tick.c (timers, TILT, what is down), reports.c (PING and INFO), hello.c,
 * election.c, replica_choice.c, failover.c, group_commands.c; server_info.h reads INFO. */
#pragma once
#include "lib/system/log.h"
#include "lib/text/slice.h"
#include "sentinel/protocol/server_info.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SENTINEL_ID_LEN = 40,
    SENTINEL_HOST_MAX = 256, /* a host name or address, with its NUL */
    SENTINEL_IP_MAX = 46,
    SENTINEL_STOPPED_MS = 2000,
    SENTINEL_REPLICAS_MAX = 1000,  /* of a group: a server or hello messages may not add more */
    SENTINEL_SENTINELS_MAX = 1000, /* of a group */
    SENTINEL_NAME_MAX = 512,
    SENTINEL_TEXT_MAX = 2048 /* text of an event */
};
/* The longest time that can be set: some times are multiplied, and added to others. */
#define SENTINEL_MS_MAX INT64_C(1000000000000000)
static inline int64_t sentinel_limit_ms(int64_t ms) {
    return ms < SENTINEL_MS_MAX ? ms : SENTINEL_MS_MAX;
}

enum instance_flag {
    INSTANCE_PRIMARY = 1 << 0,
    INSTANCE_REPLICA = 1 << 1,
    INSTANCE_SENTINEL = 1 << 2,
    INSTANCE_S_DOWN = 1 << 3,
    INSTANCE_O_DOWN = 1 << 4,
    INSTANCE_PRIMARY_DOWN = 1 << 5, /* a Sentinel: it says that the primary is down */
    INSTANCE_FAILOVER_IN_PROGRESS = 1 << 6,
    INSTANCE_PROMOTED = 1 << 7,
    INSTANCE_RECONF_SENT = 1 << 8,
    INSTANCE_RECONF_INPROG = 1 << 9,
    INSTANCE_RECONF_DONE = 1 << 10,
    INSTANCE_FORCE_FAILOVER = 1 << 11,
    INSTANCE_COORD_FAILOVER = 1 << 12,
    INSTANCE_SCRIPT_KILL_SENT = 1 << 13,
    INSTANCE_PRIMARY_REBOOT = 1 << 14
};

/* Of SENTINEL DEBUG, in ms. */
struct sentinel_timers {
    int64_t info_period, ping_period, ask_period, publish_period, default_down_after, default_failover_timeout,
        tilt_trigger, tilt_period, reconf_timeout, min_link_reconnect, election_timeout, script_max_runtime,
        script_retry_delay;
};
extern const struct sentinel_timers sentinel_default_timers;

struct sentinel_settings {
    struct sentinel_timers timers;
    bool tilt_period_set; /* by SENTINEL DEBUG: TILT then lasts as long as this says */
    bool resolve_hostnames, announce_hostnames;
    bool crash_after_election, crash_after_promotion; /* SENTINEL SIMULATE-FAILURE */
};

/* An address: as it was configured or announced, and what it resolves to. */
struct sentinel_address {
    char host[SENTINEL_HOST_MAX];
    char ip[SENTINEL_IP_MAX];
    int port;
};

/* A connection for commands or for the subscription. Commands may be sent from dial() on; the host queues them. */
enum link_kind { LINK_COMMANDS, LINK_PUBSUB, LINK_KINDS };
struct link_half {
    enum { HALF_NONE, HALF_DIALING, HALF_OPEN } state;
    int64_t since_ms; /* of the last dial */
    void *host;       /* the host's own */
};
struct sentinel_link {
    struct link_half half[LINK_KINDS]; /* Sentinels have no subscription */
    struct instance *instance;         /* any that uses it */
    unsigned refs;                     /* a link to a Sentinel is shared by the groups that it watches */
    unsigned pending;                  /* commands without a reply; kept by the host */
    bool disconnected;                 /* a half is missing */
    int64_t heard_ms;                  /* of the subscription */
    int64_t available_ms;              /* last valid reply to PING */
    int64_t available_stopped_ms;      /* stopped_ms at that time */
    int64_t pong_ms;                   /* last reply to PING */
    int64_t unanswered_ms;             /* the oldest PING without a valid reply; 0: none */
    int64_t ping_ms;                   /* last PING */
    int64_t dial_ms;
    bool rdma;       /* the host's own: dial over RDMA */
    char error[128]; /* why the last connection ended */
};

struct instance_list {
    struct instance **items;
    size_t count, capacity;
};

enum failover_state {
    FAILOVER_NONE,
    FAILOVER_WAIT_START,
    FAILOVER_SELECT,
    FAILOVER_SEND_PROMOTION,
    FAILOVER_WAIT_PROMOTION,
    FAILOVER_RECONFIGURE,
    FAILOVER_UPDATE_CONFIG
};
const char *failover_state_name(enum failover_state state);

struct renamed_command {
    char *from, *to;
    struct renamed_command *next;
};

/* What an administrator sets for a group, by SENTINEL MONITOR, SENTINEL SET or the configuration file. */
struct instance_options {
    unsigned quorum, parallel_syncs;
    int64_t failover_timeout_ms, reboot_down_after_ms;
    char *auth_user, *auth_pass, *notification_script, *reconfig_script; /* NULL: none */
    struct renamed_command *renamed;
};

/* The failover of a group. failover.c changes it; election.c puts it off when another Sentinel gets the vote. */
struct group_failover {
    enum failover_state state;
    uint64_t epoch;
    int64_t start_ms;            /* when it began, here or at the Sentinel that got the vote, with a random delay */
    int64_t state_ms, logged_ms; /* the state last changed; a delay was last logged for this start_ms */
    uint64_t offsets_asked_tick; /* in FAILOVER_SELECT: the candidates were asked for their offsets; 0: not yet */
    struct instance *promoted;   /* NULL: none is chosen */
    char stuck[128];             /* why no failover happens, as it was logged last */
};

/* The INFO requests to a server: tick.c sends them, reports.c reads the replies. */
struct instance_info {
    int64_t replied_ms, sent_ms; /* the last reply, 0: none; the last request */
    unsigned pending;            /* requests without a reply */
    char *text;                  /* the last reply, for INFO-CACHE; NULL: none */
    size_t len;
};

/* Of a Sentinel: its vote, as it said. Of a primary: the vote of this Sentinel. election.c changes it. */
struct instance_vote {
    char leader[SENTINEL_ID_LEN + 1]; /* "": none */
    uint64_t epoch;
};

/* A primary (which stands for its group), a replica or another Sentinel. */
struct instance {
    unsigned flags;
    char *name; /* group name; "ip:port" of a replica; id of a Sentinel */
    char run_id[SENTINEL_ID_LEN + 1];
    struct sentinel_address address;
    struct sentinel_link *link;
    struct instance *primary;  /* of a replica or Sentinel */
    int64_t published_ms;      /* last hello that was answered, or sent to a Sentinel */
    int64_t hello_sent_ms;     /* last hello sent */
    int64_t hello_ms;          /* Sentinel: last hello received */
    int64_t asked_ms, told_ms; /* Sentinel: when it was last asked about the primary, and answered */
    int64_t s_down_ms, o_down_ms;
    int64_t down_after_ms;
    struct instance_info info;
    struct instance_vote vote;

    /* Servers: what INFO says. */
    bool reports_primary;
    bool role_suspect; /* a replica that says it is a primary: the primary is being asked whether it still is one */
    int64_t role_ms, reconf_ms; /* when its reported role, and the primary that it reports, last changed */
    struct server_info reported;
    int64_t created_ms;
    int64_t reconf_sent_ms; /* replica: when it was last told to follow the promoted one */

    /* Primary */
    uint64_t config_epoch;
    int64_t reboot_ms;
    struct instance_options options;
    struct group_failover failover;
    struct instance_list replicas, sentinels;
    struct instance *next_by_name;
};

enum sentinel_request_kind {
    REQUEST_PING,
    REQUEST_INFO,
    REQUEST_HELLO,       /* text */
    REQUEST_ASK,         /* host, port, epoch, text: this Sentinel's id or "*" */
    REQUEST_REPLICATE,   /* host, port; host NULL: NO ONE. `abort`: abort its failover first */
    REQUEST_COORDINATED, /* host, port, timeout_ms: CLIENT PAUSE and FAILOVER TO */
    REQUEST_HANDED_OVER, /* after it: CONFIG REWRITE, CLIENT KILL of normal and pubsub, CLIENT UNPAUSE */
    REQUEST_KILL_SCRIPT
};
struct sentinel_request {
    enum sentinel_request_kind kind;
    const char *text, *host;
    int port;
    uint64_t epoch;
    int64_t timeout_ms;
    bool abort;
};
struct sentinel_answer {
    bool error;
    struct slice text; /* of a status, an error, a bulk string */
    /* REQUEST_ASK; `valid`: it had the right form. */
    bool valid, down;
    struct slice leader;
    uint64_t leader_epoch;
};

struct sentinel;
struct sentinel_effects {
    uint64_t (*random)(void *context);
    /* False: it does not resolve, or it is not known yet whether it does. With `names` off only addresses do. */
    bool (*resolve)(void *context, const char *host, bool names, char ip[static SENTINEL_IP_MAX]);
    /* The address that a peer of this link should use for this Sentinel. False: not known. */
    bool (*own_address)(void *context, const struct sentinel_link *link, char host[static SENTINEL_HOST_MAX],
                        int *port);
    void (*dial)(void *context, struct sentinel_link *link, enum link_kind kind);
    void (*close)(void *context, struct sentinel_link *link, enum link_kind kind);
    /* False: it could not be queued. `to`: the instance, on a shared link. */
    bool (*send)(void *context, struct sentinel_link *link, const struct instance *to,
                 const struct sentinel_request *request);
    void (*save)(void *context, bool durable);
    bool (*settle)(void *context); /* waits for the durable saves; false: they failed */
    void (*log)(void *context, enum log_level level, const char *text);
    /* A failover of a group that is down begins no earlier than after this time. Once for each delay, for the log. */
    void (*failover_delayed)(void *context, int64_t wait_ms);
    /* `group`: whose notification script runs; NULL: none. */
    void (*event)(void *context, enum log_level level, const char *type, const char *text,
                  const struct instance *group);
    void (*reconfig_script)(void *context, const struct instance *group, const char *role, const char *state,
                            const struct sentinel_address *from, const struct sentinel_address *to);
    void (*crash)(void *context); /* SENTINEL SIMULATE-FAILURE */
};

struct sentinel {
    struct sentinel_settings settings;
    const struct sentinel_effects *effects;
    void *context;
    char id[SENTINEL_ID_LEN + 1];
    uint64_t current_epoch;
    struct instance_list groups;
    struct instance **by_name; /* a table of chains */
    size_t by_name_size;
    int64_t now_ms;     /* of the input that is being handled, without the time in which this process was stopped */
    int64_t stopped_ms; /* left out of now_ms, in total */
    int64_t late_ms;    /* of it since the last tick */
    int64_t tick_ms;    /* last tick */
    uint64_t ticks;     /* one more than there were */
    bool tilt;
    int64_t tilt_start_ms, insane_ms; /* start of TILT; last tick that was late */
    uint64_t tilts;
};

/* Loops over a list; nothing may be added to or taken from it meanwhile. */
#define each_in(list, at)                                                                                              \
    for (struct instance **at##_next = (list)->items, *at = NULL;                                                      \
         at##_next && at##_next < (list)->items + (list)->count && (at = *at##_next); at##_next++)

struct sentinel *sentinel_new(const char *id, const struct sentinel_effects *effects, void *context, int64_t now_ms);
void sentinel_free(struct sentinel *sentinel); /* closes the links */

void sentinel_tick(struct sentinel *sentinel, int64_t now_ms);
void sentinel_link_opened(struct sentinel *sentinel, struct sentinel_link *link, enum link_kind kind, int64_t now_ms);
void sentinel_link_closed(struct sentinel *sentinel, struct sentinel_link *link, enum link_kind kind,
                          const char *reason, int64_t now_ms);
void sentinel_link_heard(struct sentinel *sentinel, struct sentinel_link *link, int64_t now_ms);
/* `group`: the name of the group of REQUEST_ASK's `to`. */
void sentinel_replied(struct sentinel *sentinel, struct sentinel_link *link, enum sentinel_request_kind kind,
                      const char *group, const struct sentinel_answer *answer, int64_t now_ms);
void sentinel_hello(struct sentinel *sentinel, struct slice text, int64_t now_ms);

/* Commands. Errors are static texts with their code, NULL is success. */
struct instance *sentinel_find_group(const struct sentinel *sentinel, struct slice name);
const char *sentinel_monitor(struct sentinel *sentinel, struct slice name, struct slice host, int64_t port,
                             int64_t quorum, struct instance **group, int64_t now_ms);
void sentinel_monitored(struct sentinel *sentinel, struct instance *group); /* the event of a new group */
void sentinel_remove(struct sentinel *sentinel, struct instance *group, int64_t now_ms);
void sentinel_reset(struct sentinel *sentinel, struct instance *group, int64_t now_ms);
const char *sentinel_failover(struct sentinel *sentinel, struct instance *group, bool coordinated, int64_t now_ms);
/* IS-MASTER-DOWN-BY-ADDR. *leader: "" or an id. `id`: "*" or the candidate. */
bool sentinel_is_down(struct sentinel *sentinel, struct slice host, int port, uint64_t epoch, struct slice id,
                      const char **leader, uint64_t *leader_epoch, int64_t now_ms);
/* Sentinels that can vote, this one included. *quorum, *majority: whether they suffice. */
unsigned sentinel_usable(const struct sentinel *sentinel, const struct instance *group, bool *quorum, bool *majority);
/* Opens the links to all instances of these kinds (INSTANCE_SENTINEL, ...) anew, with changed credentials. */
void sentinel_reconnect(struct sentinel *sentinel, unsigned kinds);
void sentinel_reconnect_servers(struct sentinel *sentinel, struct instance *group); /* those of one group */
/* Adds a command of the servers that has another name; `from` must have none yet. */
void sentinel_rename_command(struct instance *group, struct slice from, struct slice to);
void sentinel_set_down_after(struct instance *group, int64_t ms);

/* From the file. NULL, or the reason. *duplicate: it is known already, and nothing has happened. */
const char *sentinel_add_replica(struct sentinel *sentinel, struct instance *group, struct slice host, int64_t port,
                                 bool *duplicate);
const char *sentinel_add_sentinel(struct sentinel *sentinel, struct instance *group, struct slice host, int64_t port,
                                  struct slice id);

/* The address of the group's primary: the promoted replica's once it is promoted. */
const struct sentinel_address *sentinel_primary_address(const struct instance *group);
const struct instance *sentinel_current_primary(const struct instance *group);
/* The address as this Sentinel announces it: a host name with announce-hostnames. */
const char *sentinel_announced(const struct sentinel *sentinel, const struct sentinel_address *address);
/* NULL: none. With `why`: the reason for which this replica is not a candidate; NULL: it is one. */
struct instance *sentinel_choose_replica(const struct sentinel *sentinel, const struct instance *group);
const char *sentinel_replica_unfit(const struct sentinel *sentinel, const struct instance *replica);
bool sentinel_address_equal(const struct sentinel *sentinel, const struct sentinel_address *a,
                            const struct sentinel_address *b);
/* "s_down,master,disconnected" */
void sentinel_flags_text(const struct instance *instance, char text[static 256]);
