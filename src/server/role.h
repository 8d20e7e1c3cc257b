/* role.h: whether this server is a primary or a replica, and the primary and the link of a replica. All code that
 * depends on the role reads it here; no other module keeps a copy.
 *
 * A replica's data is its primary's. The replica refuses writes of clients (replica-read-only). It neither expires nor
 * evicts keys by itself: clients see expired keys as missing until the primary's DEL arrives, while the primary's own
 * commands see them. If replica-serve-stale-data is "no" it refuses commands on its data while the link is down. With
 * replica-read-only off clients may write; a write that names an expired key removes it.
 *
 * Replication changes the role with role_follow(), role_lead() and role_set_link(); DEBUG ROLE does so for tests. Main
 * thread only. */
#pragma once
#include "lib/structures/linked_list.h"
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stdint.h>

/* A replica's link to its primary. Names as ROLE shows them. */
enum role_link {
    ROLE_LINK_CONNECT,    /* no connection; the replica will try */
    ROLE_LINK_CONNECTING, /* a connection attempt is in progress */
    ROLE_LINK_HANDSHAKE,
    ROLE_LINK_SYNC,     /* the full copy is being transferred or loaded */
    ROLE_LINK_CONNECTED /* up: the data follows the primary's */
};
/* A position in a replication stream: everything that is needed to continue the stream from there. RDB files contain it
 * (AUX fields repl-id, repl-offset, repl-stream-db and repl-local-changes), PSYNC requests it, and it survives a lost
 * link and a change of roles. No transaction is open at a position: the bytes of a transaction count when its EXEC has
 * been executed, so a stream that breaks within a transaction continues before it. */
enum { REPL_ID_LEN = 40, STREAM_DB_NONE = -1 };
struct stream_position {
    char id[REPL_ID_LEN + 1]; /* of the history */
    int64_t offset;           /* bytes of the stream that a primary has written or a replica has executed */
    int db;                   /* selected in the stream; STREAM_DB_NONE: the next command is preceded by SELECT */
    bool known;               /* of a replica: its data is that of this position, so PSYNC can request it */
    bool local_changes;       /* of a replica: see role_note_local_change() */
};
struct role {
    bool is_replica;
    struct stream_position position; /* kept by replication */
    /* Replica only. */
    char *host;
    int port;
    enum role_link link;
    int64_t link_since_ms; /* clock_mono_ms(): when link_down last changed; 0: the link was never up */
    int64_t heard_ms;      /* clock_mono_ms(): last bytes from the primary; 0: none yet. Kept by replication */
};
extern const struct role *const role; /* read only */

static inline bool role_is_replica(void) {
    return role->is_replica;
}
void role_follow(struct slice host, int port); /* becomes a replica, or one of another primary; the link is down */
void role_set_port(int port);                  /* of the same primary; the next attempt to connect uses it */
void role_lead(void);                          /* becomes a primary */
void role_report(void); /* after role_lead(), when the ids of the history are those of a primary: EVENT_ROLE */
void role_set_link(enum role_link link);
/* More about a replica's link, for INFO. Kept by replication. */
struct role_sync {
    int64_t read_ahead;         /* bytes of the stream received and not executed (a transaction that is not complete) */
    int64_t total, read;        /* the full copy: bytes, those received; total -1: unknown */
    int64_t heard_ms;           /* clock_mono_ms(): last bytes of the full copy */
    size_t buffer, buffer_peak; /* bytes of the stream received while the full copy is loaded (dual channel) */
    const char *transport;      /* of the link: "rdma", or "tcp" where RDMA was tried; NULL: not shown */
    size_t tracked_keys;        /* keys with an expiry that clients of a writable replica made */
    uint64_t errors;            /* commands of the stream that failed: unexpected_error_replies */
};
extern struct role_sync role_sync;
void role_set_position(const struct stream_position *position);
void role_set_offset(int64_t offset); /* `id` and `known` stay as they are */
void role_set_stream_db(int db);
void role_set_position_known(bool known);
/* Counts the calls with false. Code that gives the data a position later than it loaded them compares two counts: the
 * data may have been replaced in between. */
uint64_t role_positions_lost(void);
/* A replica changes its data by itself: clients write to it (replica-read-only no), it evicts keys
 * (replica-ignore-maxmemory no), or DEBUG POPULATE adds some. No stream has these changes, so if it becomes a primary,
 * other servers can only follow it after a full synchronization. */
void role_note_local_change(void);
/* The data are not those of the position any more, because a file was loaded into them: this server, or the replicas of
 * this primary, need a full synchronization. */
void role_data_replaced(void);
void role_heard(void);             /* bytes have arrived from the primary */
bool role_is_stale(void);          /* a replica that refuses commands on its data: the link is down */
bool role_is_read_only(void);      /* the option replica-read-only */
bool role_ignores_maxmemory(void); /* a replica whose primary evicts for both */

struct role_settings { /* the options replica-read-only, replica-serve-stale-data, replica-ignore-maxmemory */
    bool read_only, serve_stale, ignore_maxmemory;
};
extern struct role_settings role_settings;
/* Makes what depends on the role follow it: called first after each change of the role or of the link. role_commands.c
 * installs it at start. */
extern void (*role_enforce)(void);

/* Called after the role changes, or the primary of a replica. */
struct role_listener {
    struct list_link link;
    void (*changed)(void);
};
void role_listen(struct role_listener *listener);
