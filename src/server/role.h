/* role.h: whether this server is a primary, or a replica of which one and how far. Everything that depends on the role
 * asks here: nothing else keeps a copy.
 *
 * A replica's data is its primary's. It refuses writes of clients (replica-read-only), deletes nothing by itself, be it
 * expired or to make room (expired keys look missing to clients until the primary's DEL arrives; the primary's own
 * commands see them), and, where replica-serve-stale-data says so, answers nothing from its data while the link is
 * down. With replica-read-only off clients may write; such a write removes the expired key that it is given.
 *
 * Replication moves the role: it calls role_follow(), role_lead() and role_set_link(); DEBUG ROLE does so for tests.
 * Main thread only. */
#ifndef SERVER_ROLE_H
#define SERVER_ROLE_H
#include "lib/list.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/debug/debug.h"
#include <stdbool.h>
#include <stdint.h>

/* Of a replica, to its primary. Names as ROLE shows them. */
enum role_link {
    ROLE_LINK_CONNECT,    /* there is none: it will be tried */
    ROLE_LINK_CONNECTING, /* under way */
    ROLE_LINK_HANDSHAKE,
    ROLE_LINK_SYNC,     /* the full copy is being transferred or loaded */
    ROLE_LINK_CONNECTED /* up: the data follows the primary's */
};
struct role {
    bool is_replica;
    /* Of a replica. */
    char *host;
    int port;
    enum role_link link;
    int64_t link_since_ms; /* wall clock: when link_down became what it is; 0: was never up */
    int64_t heard_ms;      /* wall clock: last bytes from the primary; 0: none yet. Kept by replication */
    int64_t offset;        /* bytes of the replication stream: sent by a primary, executed by a replica. Kept by
                              replication */
};
extern const struct role *const role; /* read only */

static inline bool role_is_replica(void) {
    return role->is_replica;
}
void role_follow(struct slice host, int port); /* becomes a replica, or one of another primary; the link is down */
void role_lead(void);                          /* becomes a primary */
void role_set_link(enum role_link link);
void role_set_offset(int64_t offset);
void role_heard(void);             /* bytes have arrived from the primary */
bool role_ignores_maxmemory(void); /* a replica whose primary evicts for both */

/* Called after the role, or the primary that is followed, has changed. */
struct role_listener {
    struct list_link link;
    void (*changed)(void);
};
void role_listen(struct role_listener *listener);

void role_start(void); /* once the role is known at start: the process is no longer just a program that starts */
struct output;
void role_write_info(struct output *out); /* the first lines of INFO replication, up to the list of replicas */
extern const struct config_option role_options[];
extern const struct command_spec role_commands[];
extern const struct debug_subcommand role_debug_subcommands[];
#endif
