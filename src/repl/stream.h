/* stream.h: the replication stream: one buffer that the backlog and all replicas share.
 *
 * The stream is a list of blocks. Each byte is in memory once, however many replicas read it. A reader (a replica, the
 * backlog) has a position and holds the block that it stands in; a block is freed when no reader stands in it or in an
 * earlier one. The backlog is the reader that stands at the oldest byte; it moves on as new bytes come, so that it
 * covers repl-backlog-size bytes.
 *
 * Values that lie in blobs are not copied: such a value is a block of its own, which holds a reference. A connection
 * sends blobs from where they lie (lib/blob.h), over RDMA without a copy.
 *
 * Memory is counted once: replicas_repl_buffer_size is the bytes of blocks before the backlog's start; a replica's
 * output (omem) is the distance from its position to the end, which client-output-buffer-limit replica bounds.
 *
 * Without a backlog and without readers, nothing is written: stream_active() is false, and a primary pays nothing.
 *
 * Main thread only. */
#ifndef REPL_STREAM_H
#define REPL_STREAM_H
#include "lib/blob.h"
#include "lib/list.h"
#include "lib/output.h"
#include "lib/slice.h"
#include <stdbool.h>
#include <stdint.h>

struct stream_block;
struct stream_reader {
    struct list_link link;
    struct stream_block *block; /* NULL: not attached */
    size_t used;                /* bytes of the block that were read */
};

/* Writing: stream_feed.c for propagated commands, apply.c for bytes of the primary, which go to sub-replicas unchanged.
 * The end of the stream is role->offset, which these functions advance. */
bool stream_active(void);
void stream_write(struct slice bytes);
void stream_write_blob(struct blob *blob);
/* Called once after each group of writes: readers send before the loop waits. */
void stream_written(void);

/* The backlog. It is created for the first replica (and on a replica after a full synchronization) and freed
 * repl-backlog-ttl seconds after the last replica left. */
bool stream_has_backlog(void);
void stream_create_backlog(void); /* empty, at role->offset */
void stream_free_backlog(void);
void stream_resize_backlog(void); /* repl-backlog-size changed */
/* First offset in the backlog, and bytes in it. */
int64_t stream_backlog_start(void);
int64_t stream_backlog_len(void);

/* Readers. Attach at an offset that the backlog covers, or at the end; false: it does not cover it. */
bool stream_attach(struct stream_reader *reader, int64_t offset);
void stream_attach_end(struct stream_reader *reader);
void stream_detach(struct stream_reader *reader);
int64_t stream_reader_offset(const struct stream_reader *reader);
uint64_t stream_reader_lag(const struct stream_reader *reader); /* bytes from its position to the end */
/* Writes up to about `max` bytes to the output (sharing blobs) and moves on. Returns the bytes written. */
size_t stream_read(struct stream_reader *reader, struct output *out, size_t max);

struct stream_memory {
    size_t blocks;   /* bytes allocated, blobs included */
    size_t backlog;  /* of these, held by the backlog: mem_replication_backlog */
    size_t replicas; /* of these, held by replicas only: mem_clients_slaves counts them once */
    size_t peak;
};
struct stream_memory stream_memory(void);
#endif
