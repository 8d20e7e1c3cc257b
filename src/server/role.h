/* role.h: whether this server is a primary or a replica, and a replica's primary and link. All code that depends on the
 * role asks here; nothing else keeps a copy.
 *
 * A replica's data is its primary's. The replica refuses writes of clients (replica-read-only). It neither expires nor
 * evicts keys by itself: clients see expired keys as missing until the primary's DEL arrives, while the primary's own
 * commands see them. If replica-serve-stale-data is "no" it refuses commands on its data while the link is down. With
 * replica-read-only off clients may write; a write that names an expired key removes it.
 *
 * Replication changes the role with role_follow(), role_lead() and role_set_link(); DEBUG ROLE does so for tests. Main
 * thread only. */
#ifndef SERVER_ROLE_H
#define SERVER_ROLE_H
#include "lib/structures/linked_list.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/debug/debug.h"
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
/* A position in a replication stream: everything that is needed to continue the stream from there, kept as one. RDB
 * files name it (AUX fields repl-id, repl-offset and repl-stream-db), PSYNC asks for it, and it survives a lost link
 * and a change of roles. There is no open transaction at a position: the bytes of a transaction count when its EXEC has
 * been executed, so a stream that breaks within one continues in front of it. */
enum { REPL_ID_LEN = 40, STREAM_DB_NONE = -1 };
struct stream_position {
    char id[REPL_ID_LEN + 1]; /* of the history */
    int64_t offset; /* bytes of the stream: written by a primary, executed by a replica. Nothing else counts */
    int db;         /* selected in the stream; STREAM_DB_NONE: the next command is preceded by SELECT */
    bool known;     /* of a replica: the data are those of this position, so that PSYNC can ask for it */
};
struct role {
    bool is_replica;
    struct stream_position position; /* kept by replication */
    /* Replica only. */
    char *host;
    int port;
    enum role_link link;
    int64_t link_since_ms; /* wall clock: when link_down last changed; 0: the link was never up */
    int64_t heard_ms;      /* wall clock: last bytes from the primary; 0: none yet. Kept by replication */
};
extern const struct role *const role; /* read only */

static inline bool role_is_replica(void) {
    return role->is_replica;
}
void role_follow(struct slice host, int port); /* becomes a replica, or one of another primary; the link is down */
void role_lead(void);                          /* becomes a primary */
void role_set_link(enum role_link link);
/* What INFO shows of a replica's link besides. Kept by replication. */
struct role_sync {
    int64_t read_ahead;         /* bytes of the stream received and not executed (a transaction that is not complete) */
    int64_t total, read;        /* the full copy: bytes, those received; total -1: unknown */
    int64_t heard_ms;           /* wall clock: last bytes of the full copy */
    size_t buffer, buffer_peak; /* bytes of the stream received while the full copy is loaded (dual channel) */
    const char *transport;      /* of the link: "rdma", or "tcp" where RDMA was tried; NULL: not shown */
    size_t tracked_keys;        /* keys with an expiry that clients of a writable replica made */
    uint64_t errors;            /* commands of the stream that failed: unexpected_error_replies */
};
extern struct role_sync role_sync;
void role_set_position(const struct stream_position *position);
void role_set_offset(int64_t offset); /* the stream goes on: its id and what is known stay as they are */
void role_set_stream_db(int db);
void role_set_position_known(bool known);
void role_heard(void);             /* bytes have arrived from the primary */
bool role_is_stale(void);          /* a replica that refuses commands on its data: the link is down */
bool role_is_read_only(void);      /* the option replica-read-only */
bool role_ignores_maxmemory(void); /* a replica whose primary evicts for both */

/* Called after the role changes, or the primary of a replica. */
struct role_listener {
    struct list_link link;
    void (*changed)(void);
};
void role_listen(struct role_listener *listener);

void role_start(void); /* at start, once the role is known: the log shows the role from here on */
struct output;
void role_write_info(struct output *out); /* the first lines of INFO replication, up to the list of replicas */
#endif
