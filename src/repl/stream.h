/* stream.h: the replication stream: one buffer that the backlog and all replicas share.
 *
 * The stream is a list of blocks. Each byte is in memory once, whatever the number of replicas. A reader (a replica, or
 * the backlog) has a position and pins the block of that position. A block is freed when no reader is in it or in an
 * earlier block. The backlog is the reader at the oldest byte. It advances as bytes are appended, so that it covers
 * repl-backlog-size bytes, or more while a slow replica still needs them.
 *
 * A value in a blob is not copied: it becomes a block of its own, which holds a reference to the blob. Connections send
 * blobs from where they are stored (lib/text/blob.h); RDMA connections without any copy.
 *
 * Memory is counted once: the part above repl-backlog-size is attributed to the replicas. A replica's output (omem) is
 * the distance from its position to the end, which client-output-buffer-limit replica limits.
 *
 * Without a backlog and without readers nothing is written, and repl_stream_active() is false.
 *
 * Main thread only. */
#pragma once
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

/* Writing: feed.c writes propagated commands; apply.c writes the primary's bytes, unchanged, for sub-replicas. The
 * stream ends at role->position.offset, which these functions advance. While the stream is not active, they only
 * advance the offset. */
bool repl_stream_active(void);
void repl_stream_write(struct slice bytes);
void repl_stream_write_blob(struct blob *blob); /* takes a reference of its own */
/* The output that writes into the last block, for code that formats in place. Valid while the stream is active. The
 * next call of repl_stream_written() advances the offset. */
struct output *repl_stream_output(void);
/* Called once after each group of writes. Replicas receive the bytes before the loop waits. */
void repl_stream_written(void);
/* A group of commands needs MULTI before its first command, but only the second command shows that it is a group. So
 * the writer marks the end of the stream, writes, inserts bytes at the mark, and unmarks. Active streams only. Between
 * mark and unmark no reader may attach at the end, and readers read up to the mark: a busy script serves connections in
 * the middle of its group. */
void repl_stream_mark(void);
void repl_stream_insert_at_mark(struct slice bytes);
void repl_stream_unmark(void); /* does nothing without a mark */
bool repl_stream_is_marked(void);

/* The backlog. It is created for the first replica, and on a replica when it begins to follow its primary. A primary
 * frees it repl-backlog-ttl seconds after the last replica disconnected. */
bool repl_stream_has_backlog(void);
void repl_stream_create_backlog(void); /* empty, at role->position.offset */
void repl_stream_free_backlog(void);
/* Frees what the backlog need not keep. Call it after repl-backlog-size has changed, and each turn while
 * repl_stream_excess is set: it frees a limited number of blocks per call. */
void repl_stream_trim(void);
extern bool repl_stream_excess;
/* First offset in the backlog, and bytes in it. */
int64_t repl_stream_backlog_start(void);
int64_t repl_stream_backlog_len(void);

/* Readers. Attach at an offset that the backlog covers, or at the end. False: the backlog does not cover it. */
bool repl_stream_attach(struct repl_stream_reader *reader, int64_t offset);
void repl_stream_attach_end(struct repl_stream_reader *reader);
void repl_stream_attach_like(struct repl_stream_reader *reader, const struct repl_stream_reader *other); /* attached */
void repl_stream_detach(struct repl_stream_reader *reader);
int64_t repl_stream_reader_offset(const struct repl_stream_reader *reader);
uint64_t repl_stream_reader_lag(const struct repl_stream_reader *reader); /* bytes from its position to the end */
/* Writes up to about `max` bytes to the output (sharing blobs) and advances the reader. Returns the bytes written. */
size_t repl_stream_read(struct repl_stream_reader *reader, struct output *out, size_t max);

struct repl_stream_memory {
    size_t blocks;   /* bytes allocated, blobs included */
    size_t backlog;  /* the part up to repl-backlog-size: mem_replication_backlog */
    size_t replicas; /* the rest, pinned by slow replicas: counted once in mem_clients_slaves */
    size_t peak;
};
struct repl_stream_memory repl_stream_memory(void);
