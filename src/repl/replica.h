/* replica.h: what the files of the replica's side share. See repl.h for the whole.
 *
 *     replica.c       owns the link: connects, shakes hands, asks for a synchronization, and starts over when the link
 *                     breaks
 *     sync_load.c     has a connection while a full copy arrives and is loaded
 *     dual_channel.c  has a second connection, for the full copy; uses sync_load.c
 *     apply.c         has the connection while the stream is followed
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
/* The data are no longer those of a position in the history: the next synchronization is a full one. */
void replica_forget_position(void);
void replica_stream_refused(void); /* nor can the stream go on: the next attempt may have to wait */
/* The full copy is loaded: the data are those of this position. Follows the stream, which `conn` brings, from there. */
void replica_synchronized(struct connection *conn, const struct stream_position *at);
/* Reads a line of a handshake from the connection: without its end, NUL-terminated. Empty lines are the primary's sign
 * that it is alive. Returns its length, -1 where the line is not complete, -2 where it has no end within the size. */
enum { REPLICA_LINE_MAX = 1024 };
int replica_read_line(struct connection *conn, char line[static REPLICA_LINE_MAX]);
void replica_send(struct connection *conn, int argc, const struct slice *argv);
void replica_send_auth(struct connection *conn); /* where an option gives a password */
int replica_listening_port(void);                /* the port to announce */

void replica_stream_ended(void); /* apply.c: the connection is closed */
static inline uint64_t repl_timeout_us(void) {
    return (uint64_t)repl_settings.timeout * 1000000;
}

/* --- sync_load.c --- */
/* Receives the full copy that `header` begins ("$<bytes>", "$EOF:<mark>", or "$PULL:", see pull_wire.h) from the
 * connection, and loads it. The connection's events belong to sync_load.c until `done` is called, which happens outside
 * of the connection's handlers. `at`: the position of the copy, valid until then; where its database is not known, it
 * is taken from the copy. Returns false if the header is malformed, which was logged. done(false): it failed, which was
 * logged. */
bool sync_start(struct connection *conn, const char *header, struct stream_position *at, void (*done)(bool loaded));
void sync_cancel(void);     /* `done` is not called. Only while the copy is being received, not while it is loaded */
bool sync_was_pulled(void); /* the last copy was to be fetched by RDMA READ */
void sync_broken(const char *reason);          /* another connection that the synchronization needs is lost: it fails */
void sync_check_timeout(void);                 /* each second */
void sync_keep_alive(struct connection *conn); /* this one gets a newline each second, too */
void sync_stop(void);                          /* the server stops */

/* --- dual_channel.c --- */
/* The primary answered PSYNC with +DUALCHANNELSYNC: `conn` is the main channel. done(true): replica_synchronized() has
 * been called. done(false): the channels failed; the caller closes `conn`. */
void dual_channel_start(struct connection *conn, void (*done)(bool synchronized));
void dual_channel_cancel(void);
void dual_channel_cron(void); /* each second */

/* --- apply.c --- */
/* Follows the stream that the connection brings. */
void apply_start(struct connection *conn); /* from role->position on */
void apply_stop(void);                     /* closes the connection; keeps the position */
void apply_cron(void);                     /* each second: acknowledges */
void apply_before_wait(void);
extern bool apply_frees_later; /* DEBUG FORCE-FREE-PRIMARY-ASYNC */
#endif
