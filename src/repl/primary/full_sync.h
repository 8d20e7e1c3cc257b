/* full_sync.h: the full synchronization on the primary. Main thread only. */
#pragma once
#include "repl/primary/replicas.h"

/* The replica needs a snapshot: it joins the current one, or waits for the next one. */
void full_sync_request(struct replica *replica);
void full_sync_send(struct replica *replica);   /* its connection has taken what was queued */
void full_sync_forget(struct replica *replica); /* its connection is closed */
void full_sync_cron(void);                      /* once a second */
void full_sync_start(void);                     /* at start */

/* --- For full_sync_*.c --- */
/* Sends the position of the copy ("+FULLRESYNC id offset") and pins the stream from there on. */
void full_sync_announce(struct replica *replica);
/* The replica gets the snapshot that `other` gets, from the same position in the stream on. */
void full_sync_announce_like(struct replica *replica, const struct repl_stream_reader *other);
/* Whether one snapshot is right for both. */
bool full_sync_is_shared(const struct replica *a, const struct replica *b);
/* The highest RDB version that the replica is known to load. */
int full_sync_version(const struct replica *replica);
void full_sync_next(void); /* a snapshot has ended: starts the next one */
