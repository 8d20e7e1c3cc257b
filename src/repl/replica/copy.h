/* copy.h: the full synchronization on the replica: receives the primary's copy, and loads it. Main thread only. */
#pragma once
#include "net/connection.h"
#include "server/role.h"
#include <stdbool.h>

/* Receives a full copy from the connection and loads it. `header` is its first line: "$<bytes>", "$EOF:<mark>", or
 * "$PULL:" (pull/wire.h). Returns false if the header is malformed or the synchronization cannot start.
 *
 * copy.c handles the connection's events until it calls `done`. It calls done(true) outside of the connection's
 * handlers, and done(false) if the synchronization failed, also within them or within copy_start(). Failures are logged
 * before. `at` is the position of the copy, which must stay valid until then; if its database is STREAM_DB_NONE, the
 * copy sets it. */
bool copy_start(struct connection *conn, const char *header, struct stream_position *at, void (*done)(bool loaded));
/* Called in the handshake. True: the primary may leave out the checksum of the copy, because TLS protects the bytes and
 * they are loaded as they come. The copy that follows is loaded accordingly. */
bool copy_needs_no_checksum(const struct connection *conn);
void copy_cancel(void);     /* ends it without a call of `done`. Has no effect while the copy is being loaded */
bool copy_was_pulled(void); /* the last copy was one that this server fetches by RDMA READ */
void copy_broken(const char *reason);          /* lets it fail: another connection that it needs is lost */
void copy_check_timeout(void);                 /* called each second */
void copy_keep_alive(struct connection *conn); /* also sends a newline each second to this connection */
void copy_stop(void);                          /* called when the server stops */
