/* repl_stream.h: the replication stream: one buffer that the backlog and all replicas share.
 *
 * The stream is a list of blocks. Each byte is in memory once, however many replicas read it. A reader (a replica, the
 * backlog) has a position and pins the block of that position; a block is freed when no reader is in it or in an
 * earlier one. The backlog is the reader at the oldest byte; it advances as bytes are added, so that it covers
 * repl-backlog-size bytes, or more while a slow replica still needs them.
 *
 * Values that lie in blobs are not copied: such a value is a block of its own, which holds a reference. A connection
 * sends blobs from where they are stored (lib/text/blob.h), over RDMA without a copy.
 *
 * Memory is counted once: what exceeds repl-backlog-size is counted for the replicas. A replica's output (omem) is the
 * distance from its position to the end, which client-output-buffer-limit replica bounds.
 *
 * Without a backlog and without readers, nothing is written: repl_stream_active() is false, and a primary pays nothing.
 *
 * Main thread only. */
#ifndef REPL_REPL_STREAM_H
#define REPL_REPL_STREAM_H
#include "lib/structures/linked_list.h"
#include "lib/text/blob.h"
#include "lib/text/output.h"
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stdint.h>

struct repl_stream_block;
struct repl_stream_reader {
    struct list_link link;
    struct repl_stream_block *block; /* NULL: not attached */
    size_t used;                     /* bytes of the block that were read */
};

/* Writing: repl_feed.c for propagated commands, apply.c for bytes of the primary, which go to sub-replicas unchanged.
 * The end of the stream is role->position.offset, which these functions advance. While the stream is not active nothing
 * is kept, only the offset advances. */
bool repl_stream_active(void);
void repl_stream_write(struct slice bytes);
void repl_stream_write_blob(struct blob *blob); /* keeps a reference of its own */
/* The output that writes into the last block, for code that formats in place. Valid while the stream is active; the
 * offset advances with the next call of repl_stream_written(). */
struct output *repl_stream_output(void);
/* Called once after each group of writes. Replicas receive the bytes before the loop waits. */
void repl_stream_written(void);
/* A group of commands needs MULTI in front of its first one, which is known only when the second one comes: mark the
 * end of the stream, write, insert bytes at the mark, unmark. Active streams only. Between mark and unmark no reader
 * may attach at the end, and readers read up to the mark: a busy script serves connections in the middle of its group.
 */
void repl_stream_mark(void);
void repl_stream_insert_at_mark(struct slice bytes);
void repl_stream_unmark(void); /* may be called without a mark */
bool repl_stream_is_marked(void);

/* The backlog. It is created for the first replica (and on a replica after a full synchronization) and freed
 * repl-backlog-ttl seconds after the last replica left. */
bool repl_stream_has_backlog(void);
void repl_stream_create_backlog(void); /* empty, at role->position.offset */
void repl_stream_free_backlog(void);
/* The backlog gives up what it no longer has to keep: after repl-backlog-size changed, and while repl_stream_excess is
 * set, which says that it stopped before the end, to not hold up the server. */
void repl_stream_trim(void);
extern bool repl_stream_excess;
/* First offset in the backlog, and bytes in it. */
int64_t repl_stream_backlog_start(void);
int64_t repl_stream_backlog_len(void);

/* Readers. Attach at an offset that the backlog covers, or at the end; false: it does not cover it. */
bool repl_stream_attach(struct repl_stream_reader *reader, int64_t offset);
void repl_stream_attach_end(struct repl_stream_reader *reader);
void repl_stream_attach_like(struct repl_stream_reader *reader, const struct repl_stream_reader *other); /* attached */
void repl_stream_detach(struct repl_stream_reader *reader);
int64_t repl_stream_reader_offset(const struct repl_stream_reader *reader);
uint64_t repl_stream_reader_lag(const struct repl_stream_reader *reader); /* bytes from its position to the end */
/* Writes up to about `max` bytes to the output (sharing blobs) and moves on. Returns the bytes written. */
size_t repl_stream_read(struct repl_stream_reader *reader, struct output *out, size_t max);

struct repl_stream_memory {
    size_t blocks;   /* bytes allocated, blobs included */
    size_t backlog;  /* of these, up to repl-backlog-size: mem_replication_backlog */
    size_t replicas; /* the rest, which slow replicas hold: mem_clients_slaves counts it once */
    size_t peak;
};
struct repl_stream_memory repl_stream_memory(void);
#endif
