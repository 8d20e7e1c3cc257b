/* replica.h: shared by the files that implement the replica. repl.h has the overview.
 *
 *     replica.c       owns the link: connects, shakes hands, asks for a synchronization, and starts over when the link
 *                     breaks
 *     sync_load.c     owns a connection while it receives and loads a full copy
 *     dual_channel.c  owns both connections of a synchronization on two channels; uses sync_load.c
 *     apply.c         owns the connection while it executes the stream
 *
 * Main thread only. */
#ifndef REPL_REPLICA_H
#define REPL_REPLICA_H
#include "lib/text/slice.h"
#include "net/connection.h"
#include "repl/repl.h"
#include "repl/repl_settings.h"
#include <stdbool.h>
#include <stdint.h>

struct replica_settings {
    struct slice primary_auth;
    char *primary_user, *announce_ip;
    int announce_port, priority;
    bool announced, lazy_flush, ignore_disk_errors, delete_sync_files;
    int diskless_load;  /* enum diskless_load */
    int error_behavior; /* enum error_behavior */
};
enum diskless_load { DISKLESS_LOAD_DISABLED, DISKLESS_LOAD_ON_EMPTY, DISKLESS_LOAD_SWAP, DISKLESS_LOAD_FLUSH };
enum error_behavior { ERRORS_IGNORED, ERRORS_PANIC, ERRORS_PANIC_ON_REPLICAS };
extern struct replica_settings replica_settings;

/* --- replica.c --- */
/* The data no longer match a position in the history: the next synchronization is a full one. */
void replica_forget_position(void);
void replica_stream_refused(void); /* the same after a command that cannot be executed; may delay the next attempt */
/* The full copy is loaded, and the data are those of this position. Follows the stream on `conn` from there. */
void replica_synchronized(struct connection *conn, const struct stream_position *at);
/* Reads a line of a handshake from the connection, without its line end, NUL-terminated. The primary sends empty lines
 * as keepalives. Returns the length, -1 if the line is not complete, -2 if it is longer than REPLICA_LINE_MAX; `line`
 * is then the first REPLICA_LINE_SHOWN bytes, as many as Valkey logs of one. */
enum { REPLICA_LINE_MAX = 1024, REPLICA_LINE_SHOWN = 255 };
int replica_read_line(struct connection *conn, char line[static REPLICA_LINE_MAX]);
/* The id in the reply +CONTINUE; "": it has none. NULL: it is malformed, or another reply. */
const char *replica_continue_id(const char *line);
void replica_send(struct connection *conn, int argc, const struct slice *argv);
/* AUTH with primaryuser and primaryauth. Returns the number of arguments; 0: primaryauth is not set. */
int replica_auth(struct slice argv[static 3]);
void replica_send_auth(struct connection *conn);
int replica_listening_port(void); /* the port to announce */

void replica_stream_ended(void); /* apply.c: the connection is closed */
static inline uint64_t repl_timeout_us(void) {
    return (uint64_t)repl_settings.timeout * 1000000;
}

/* --- sync_load.c --- */
/* Receives a full copy from the connection and loads it. `header` is its first line: "$<bytes>", "$EOF:<mark>", or
 * "$PULL:" (pull_wire.h). sync_load.c handles the connection's events until it calls `done`: with true outside of the
 * connection's handlers, with false also within them or within sync_start(). `at`: the position of the copy, valid
 * until then; if its database is STREAM_DB_NONE, it is set from the copy. Returns false if the header is malformed or
 * the synchronization cannot start. done(false): the synchronization failed. Both failures were logged. */
bool sync_start(struct connection *conn, const char *header, struct stream_position *at, void (*done)(bool loaded));
/* Called in the handshake. True: the primary may leave out the checksum of the copy, because TLS protects the bytes and
 * they are loaded as they come. The copy that follows is loaded accordingly. */
bool sync_needs_no_checksum(const struct connection *conn);
void sync_cancel(void);               /* without calling `done`. Has no effect while the copy is being loaded */
bool sync_was_pulled(void);           /* the last copy was to be fetched by RDMA READ */
void sync_broken(const char *reason); /* fails it: another connection that it needs is lost */
void sync_check_timeout(void);        /* called each second */
void sync_keep_alive(struct connection *conn); /* also sends a newline each second to this connection */
void sync_stop(void);                          /* called when the server stops */

/* --- dual_channel.c --- */
/* Called after the primary replied to PSYNC with +DUALCHANNELSYNC; `conn` is the main channel. done(true):
 * replica_synchronized() was called. done(false): the synchronization failed; the caller closes `conn`. */
void dual_channel_start(struct connection *conn, void (*done)(bool synchronized));
void dual_channel_cancel(void);
void dual_channel_cron(void); /* each second */

/* --- apply.c --- */
void apply_start(struct connection *conn);          /* follows the stream on this connection, from role->position on */
void apply_say(int argc, const struct slice *argv); /* sends a request to the primary */
void apply_stop(void);                              /* closes the connection; keeps the position */
void apply_cron(void);                              /* each second: acknowledges */
void apply_before_wait(void);
extern bool apply_frees_later; /* DEBUG FORCE-FREE-PRIMARY-ASYNC */
#endif
